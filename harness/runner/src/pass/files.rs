//! Calls of one process on files by path. Other kinds of workload with paths build on them.

use std::io;

use replay::{OpenFileTable, PreparedOp, perform, prepare, verify};
use workloads::path::WorkspacePath;
use workloads::script::{Call, FileOp};

use super::calls::{Pass, Replay, Results, TimedCalls};
use super::driver::Driver;
use super::expectations::content_bytes;
use super::workspaces::Workspaces;
use crate::clock::Clock;

pub(super) struct FileDriver;

impl<C: Clock> Driver<C> for FileDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        pass(replay, PathCalls::prepare);
    }
}

/// The prepared operations of all calls.
pub(super) struct PathCalls<'p>(pub(super) Vec<Vec<PreparedOp<'p>>>);

impl<'p> PathCalls<'p> {
    /// Prepares the calls of a pass. Opens the files that they read from open files.
    pub(super) fn prepare(pass: &'p Pass<'p>, workspaces: &Workspaces) -> io::Result<Self> {
        let mut open_files = OpenFileTable::new();
        let mut one = |op| {
            let prepared = prepare(&workspaces.root(op), op, &mut open_files)?;
            Ok(PreparedOp { has_bucket: pass.has_bucket, ..prepared })
        };
        let calls = pass.expectations.calls().iter();
        calls.map(|call| call.ops.iter().map(&mut one).collect()).collect::<io::Result<_>>().map(Self)
    }
}

impl TimedCalls for PathCalls<'_> {
    #[inline(always)]
    fn make(&mut self, at: usize, _: &Call, _: &mut Workspaces, results: &mut Results<'_>) {
        for op in &self.0[at] {
            results.observed.push(perform(op, results.buffer));
        }
    }
}

/// Makes the calls of `prepare` and reads the files back.
pub(super) fn pass<'p, C: Clock>(
    replay: &mut Replay<'p, C>,
    prepare: impl FnOnce(&'p Pass<'p>, &Workspaces) -> io::Result<PathCalls<'p>>,
) {
    if let Some(mut calls) = replay.prepare(prepare) {
        replay.measure(|replay| replay.calls(&mut calls));
        replay.read_back(read_back);
    }
}

/// Compares all files with the model. Missing and additional files are errors.
pub(super) fn read_back<C: Clock>(replay: &mut Replay<'_, C>) -> Result<(), String> {
    let capabilities = replay.pass.backend.capabilities;
    // Reading every file would ask a model or a server for minutes. Timed reads check content already.
    let everything = if capabilities.guesses_content || capabilities.starts_empty {
        FileOp::Walk(WorkspacePath::root())
    } else {
        FileOp::Search(WorkspacePath::root())
    };
    let expected = replay.pass.expectations.end.clone().apply(&everything);
    let buffer = &mut *replay.results.buffer;
    buffer.reserve(content_bytes(&expected));
    let prepared = prepare(&replay.workspaces.files(), &everything, &mut OpenFileTable::new());
    let observed = perform(&prepared.map_err(|error| error.to_string())?, buffer);
    verify(&everything, &expected, &observed, buffer)
}
