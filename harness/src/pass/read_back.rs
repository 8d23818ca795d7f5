//! The end of a block: whether everything is there that was written, and nothing else.

use std::path::Path;

use backends::backend::Tools;
use reports::run::Outcome;
use workloads::model::Model;
use workloads::path::WorkspacePath;
use workloads::script::FileOp;

use super::hosts::Hosts;
use super::{Measured, Replay, SETUP_LIMIT, Task, content_bytes};
use crate::clock::Clock;
use crate::replay::tools::held;
use crate::replay::{OpenFiles, Scratch, perform, prepare, verify};
use crate::supervise::Pulse;

impl Task {
    /// Compares the whole workspace with the model in the end.
    pub(super) fn read_everything_back<C: Clock>(
        &self,
        hosts: &mut Hosts,
        pulse: &Pulse,
        replay: &mut Replay<'_, C>,
        measured: &mut Measured,
    ) {
        let capabilities = self.backend.describe().capabilities;
        pulse.enter(SETUP_LIMIT);
        let whole = match hosts.first.tools() {
            Some(tools) => snapshot_back(tools, &mut replay.model, &mut replay.scratch),
            None => {
                // What each file holds would be asked for at the end of each block, one after the other and
                // for minutes: the timed reads say how often that is right.
                let everything = if capabilities.guesses_content || capabilities.starts_empty {
                    FileOp::Walk(WorkspacePath::root())
                } else {
                    FileOp::Search(WorkspacePath::root())
                };
                let root = hosts.first.root();
                read_back(root, &everything, &mut replay.model, &mut replay.scratch)
            }
        };
        if let Err(reason) = whole {
            let cut = pulse.severed().map(|cut| format!("; {cut}"));
            let outcome = cut.as_ref().map_or(Outcome::WrongData, |_| Outcome::Hang);
            let cut = cut.unwrap_or_default();
            measured.note(outcome, format!("reading everything back: {reason}{cut}"));
        }
        pulse.leave();
    }

    /// Lets two hosts come to rest, and looks what became of the lines that they added.
    pub(super) fn settle<C: Clock>(
        &self,
        hosts: &mut Hosts,
        pulse: &Pulse,
        replay: &Replay<'_, C>,
        measured: &mut Measured,
    ) {
        let patience = 2 * self.call_timeout;
        let rested = hosts.rest(patience, pulse, &self.interrupt);
        let found = rested.and_then(|rested| {
            let shared = self.script().shared_files();
            rested.count(&replay.added, &replay.model.lines(), &shared, hosts)
        });
        pulse.leave();
        match found {
            Ok(settled) => measured.settled = Some(settled),
            Err(trouble) => {
                let cut = pulse.severed();
                let outcome = cut.as_ref().map_or(trouble.outcome, |_| Outcome::Hang);
                let cut = cut.map_or(String::new(), |cut| format!("; {cut}"));
                measured.note(
                    outcome,
                    format!("when both had settled: {}{cut}", trouble.reason),
                );
            }
        }
    }
}

/// Compares the whole workspace with the model: what was written has to be there, and nothing else.
fn read_back(
    root: &Path,
    everything: &FileOp,
    model: &mut Model,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let expected = model.apply(everything);
    scratch.clear();
    scratch.reserve(content_bytes(&expected));
    let prepared = prepare(root, everything, &mut OpenFiles::new()).map_err(|e| e.to_string())?;
    let observed = perform(&prepared, scratch);
    verify(everything, &expected, &observed, scratch)
}

/// As [`read_back`], from a snapshot: a read shows lines, a snapshot has every byte.
fn snapshot_back(
    tools: &dyn Tools,
    model: &mut Model,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let everything = FileOp::Search(WorkspacePath::root());
    scratch.clear();
    let held = held(tools, scratch)?;
    verify(&everything, &model.apply(&everything), &Ok(held), scratch)
}
