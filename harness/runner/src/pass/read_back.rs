//! Reads a workspace back at the end of a pass and compares it with the model.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use arms::backend::{Access, Tools};
use rundir::Outcome;
use workloads::model::ReferenceModel;
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, FileOp};

use super::workspaces::Workspaces;
use super::{Pass, Passed, content_bytes};
use crate::supervise::Watchdog;
use replay::in_process::perform_in_process;
use replay::tools::held;
use replay::{OpenFileTable, ResultBuffer, perform, prepare, verify};

/// Time limit for reading everything back, and for each step of waiting for two hosts.
const LIMIT: Duration = Duration::from_secs(120);

impl Pass<'_> {
    /// Compares the whole workspace with the model after all calls.
    pub(super) fn read_everything_back(
        &self,
        workspaces: &mut Workspaces,
        watchdog: &Watchdog,
        buffer: &mut ResultBuffer,
        passed: &mut Passed,
    ) {
        let capabilities = self.backend.capabilities;
        let mut model = self.expectations.end.clone();
        watchdog.enter(LIMIT);
        let subtree = workspaces.subtree.to_string_lossy().into_owned();
        let whole = match self.access {
            Access::Tools => workspaces.first.tools().map_or(Ok(()), |tools| snapshot_back(tools, &mut model, buffer)),
            Access::Client => workspaces.first.client().map_or(Ok(()), |client| {
                let everything = FileOp::Search(WorkspacePath::root());
                buffer.clear();
                let held = perform_in_process(&everything, &subtree, client, buffer);
                verify(&everything, &model.apply(&everything), &held, buffer)
            }),
            Access::Paths | Access::Program => {
                // Reading every file would ask a model or a server for minutes. Timed reads check content already.
                let everything = if capabilities.guesses_content || capabilities.starts_empty {
                    FileOp::Walk(WorkspacePath::root())
                } else {
                    FileOp::Search(WorkspacePath::root())
                };
                read_back(&workspaces.files(), &everything, &mut model, buffer)
            }
        };
        if let Err(reason) = whole {
            let cut = watchdog.killed().map(|cut| format!("; {cut}"));
            let outcome = cut.as_ref().map_or(Outcome::WrongData, |_| Outcome::Hang);
            let cut = cut.unwrap_or_default();
            passed.note(outcome, format!("reading everything back: {reason}{cut}"));
        }
        watchdog.leave();
    }

    /// Waits until two hosts agree and counts the lines that they added.
    pub(super) fn settle(
        &self,
        workspaces: &mut Workspaces,
        watchdog: &Watchdog,
        added: &BTreeSet<Bytes>,
        passed: &mut Passed,
    ) {
        let patience = 2 * self.call_timeout;
        let files = workspaces.wait_until_equal(patience, LIMIT, watchdog, self.interrupt);
        let found = files.and_then(|files| {
            let shared = self.expectations.script.shared_files();
            files.count(added, &self.expectations.end.lines(), &shared)
        });
        watchdog.leave();
        match found {
            Ok(settled) => passed.sample.settled = Some(settled),
            Err(trouble) => {
                let cut = watchdog.killed();
                let outcome = cut.as_ref().map_or(trouble.outcome, |_| Outcome::Hang);
                let cut = cut.map_or(String::new(), |cut| format!("; {cut}"));
                passed.note(outcome, format!("after both hosts settled: {}{cut}", trouble.reason));
            }
        }
    }
}

/// Compares the whole workspace with the model. Missing and additional files are errors.
fn read_back(
    root: &Path,
    everything: &FileOp,
    model: &mut ReferenceModel,
    buffer: &mut ResultBuffer,
) -> Result<(), String> {
    let expected = model.apply(everything);
    buffer.clear();
    buffer.reserve(content_bytes(&expected));
    let prepared = prepare(root, everything, &mut OpenFileTable::new()).map_err(|e| e.to_string())?;
    let observed = perform(&prepared, buffer);
    verify(everything, &expected, &observed, buffer)
}

/// As [`read_back`], from a snapshot, because a tool's read shows lines and not every byte.
fn snapshot_back(tools: &dyn Tools, model: &mut ReferenceModel, buffer: &mut ResultBuffer) -> Result<(), String> {
    let everything = FileOp::Search(WorkspacePath::root());
    buffer.clear();
    let held = held(tools, buffer)?;
    verify(&everything, &model.apply(&everything), &Ok(held), buffer)
}
