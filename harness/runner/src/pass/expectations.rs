//! The results that the calls of a pass must have, computed once for all passes of a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arms::backend::{Access, Capabilities, Description};
use backends::null::FILE_BYTES;
use replay::tools::narrowed;
use workloads::definition::{CacheState, Workload};
use workloads::model::{ExpectedResult, ReferenceModel, Restoration};
use workloads::script::{Bytes, Call, FileOp, Script};

use crate::cache_state::{self, Footprint};

/// The results that a script must have on a backend, computed once for all passes.
#[derive(Debug)]
pub struct Expectations {
    pub(super) script: Arc<Script>,
    is_hot: bool,
    pub(super) expected: Vec<Vec<ExpectedResult>>,
    /// The model of the workspace after all calls.
    pub(super) end: ReferenceModel,
    pub(super) touched: Footprint,
    restoration: Option<Restoration>,
}

impl Expectations {
    /// Computes the results of `script` with caches in `state` on a backend.
    pub fn new(script: &Arc<Script>, state: CacheState, backend: &Description, access: Access) -> Self {
        let is_hot = state == CacheState::Hot;
        let calls = script.calls_when(is_hot);
        let mut end = start_model(script, backend);
        let expected = calls.iter().map(|call| {
            let ops = call.ops.iter().map(|op| match end.apply(op) {
                // Of the entries that it computes, only directories lie among a controller's own.
                ExpectedResult::Entries(entries) if backend.capabilities.changes_source => {
                    ExpectedResult::EntriesAmongDirectories(entries)
                }
                expected => expected,
            });
            if access == Access::Tools { ops.map(|one| narrowed(one, call.lines)).collect() } else { ops.collect() }
        });
        let expected = expected.collect();
        Self {
            script: Arc::clone(script),
            is_hot,
            expected,
            touched: cache_state::touched(script, calls),
            restoration: restoration(script, &end),
            end,
        }
    }

    /// The calls of a pass.
    pub fn calls(&self) -> &[Call] {
        self.script.calls_when(self.is_hot)
    }

    /// Whether the calls change files. If so, each pass needs a fresh or a restored subtree.
    pub fn changes(&self) -> bool {
        self.touched.changes
    }

    /// Whether one pass that reads all files back speaks for the others of a cell: the calls change no file, and no answer is
    /// scored, which happens in passes that read back.
    pub fn is_read_back_once(&self) -> bool {
        !self.changes() && self.calls().iter().all(|call| call.asked.is_none())
    }

    /// The changes that undo the calls of a successful pass. `None` if a fresh subtree is made in less time, or if the changes
    /// are not known.
    pub fn restoration(&self) -> Option<&Restoration> {
        self.restoration.as_ref()
    }

    /// Whether any call syncs.
    pub fn syncs(&self) -> bool {
        let mut ops = self.calls().iter().flat_map(|call| &call.ops);
        ops.any(FileOp::syncs)
    }
}

/// The changes that undo a script whose calls end in `end`. `None` if a fresh subtree is made in less time, if programs changed
/// files, or if the script sets modification times.
fn restoration(script: &Script, end: &ReferenceModel) -> Option<Restoration> {
    if end.has_opaque() || !script.ages_ns.is_empty() {
        return None;
    }
    let restoration = end.restoration(&ReferenceModel::of(script));
    // To create a file takes a store about twice as long as to change or to remove one.
    let changed = restoration.changed.len() + restoration.removed_files.len();
    let is_less = 2 * restoration.created.len() + changed < 2 * script.files.len();
    is_less.then_some(restoration)
}

/// Expectations of a run, which its arms and epochs share: to compute those of a long session takes longer than a pass.
#[derive(Debug, Default)]
pub struct ExpectationsCache(Mutex<BTreeMap<ExpectationsKey, Arc<Expectations>>>);

/// What expectations depend on: the workload's name, and whether caches are hot, the backend holds data, tools ask, and
/// the backend changes a source.
type ExpectationsKey = (String, bool, bool, bool, bool);

impl ExpectationsCache {
    /// The results of a workload with caches in `state` on a backend.
    pub fn of(
        &self,
        workload: &Workload,
        state: CacheState,
        backend: &Description,
        access: Access,
    ) -> Arc<Expectations> {
        let Capabilities { holds_data, changes_source, .. } = backend.capabilities;
        let is_hot = state == CacheState::Hot;
        let key = (workload.name.clone(), is_hot, holds_data, access == Access::Tools, changes_source);
        // An abandoned cell may have panicked. Its records here are complete.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key =
            known.entry(key).or_insert_with(|| Arc::new(Expectations::new(&workload.script, state, backend, access)));
        Arc::clone(of_key)
    }
}

/// The reference model before the first call.
pub fn start_model(script: &Script, backend: &Description) -> ReferenceModel {
    if backend.capabilities.holds_data {
        ReferenceModel::of(script)
    } else {
        let zeros = vec![0; FILE_BYTES as usize];
        ReferenceModel::fixed(script, &Bytes::from(zeros))
    }
}

/// Bytes of content that an operation is expected to return.
pub(super) fn content_bytes(expected: &ExpectedResult) -> usize {
    match expected {
        ExpectedResult::Bytes(bytes) => bytes.len(),
        ExpectedResult::Lines(lines) => lines.iter().map(|line| line.len()).sum(),
        // An answer of 2,000 tokens takes far less.
        ExpectedResult::Mentions(_) => 64 * 1024,
        ExpectedResult::Part { start, end, .. } => end - start,
        ExpectedResult::Tree { files, .. } => files.values().map(|bytes| bytes.len()).sum(),
        _ => 0,
    }
}

pub(super) fn expected_bytes(expected: &[ExpectedResult]) -> usize {
    // Room for the names of a listing.
    let names = |one: &ExpectedResult| match one {
        ExpectedResult::Entries(entries) | ExpectedResult::EntriesAmongDirectories(entries) => 64 * entries.len(),
        _ => 0,
    };
    expected.iter().map(|one| content_bytes(one) + names(one)).sum()
}
