//! How much of a recorded session its trace replays.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use workloads::trace::{CAUSE, Event, Op, Trace, TraceHead};

/// Causes of calls that do not work on files.
const NO_FILE_WORK: &[&str] = &[
    "a call of another agent",
    "a call of the network",
    "a call that was not allowed",
    "a command without files",
    "a plan",
    "a program of the network",
    "another tool",
];

/// The calls and bytes of a recorded session that its trace replays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Coverage {
    /// Calls of the recording.
    pub recorded: u64,
    /// Calls whose file operations are replayed.
    pub replayed: u64,
    /// Replayed calls in which a walk or a search of the tree stands for a program.
    pub modelled: u64,
    /// Calls that work on files, replayed or not.
    pub file_work: u64,
    /// Calls that are not replayed, by cause.
    pub causes: BTreeMap<String, u64>,
    /// Bytes of files that the recorded reads showed.
    pub read_bytes: u64,
    /// Bytes of `read_bytes` that the trace's files have before any correction by the read itself.
    pub read_bytes_equal: u64,
    /// Bytes of `read_bytes` that a change outside of the recorded calls may have written.
    pub read_bytes_unrecorded: u64,
    /// Bytes of `read_bytes_unrecorded` that are in `read_bytes_equal`.
    pub read_bytes_unrecorded_equal: u64,
    /// Edits that succeeded.
    pub edits: u64,
    /// Edits of `edits` before which the trace's file has the recorded text without a correction by the edit itself.
    pub edits_equal: u64,
    /// Edits of `edits` whose lines a change outside of the recorded calls may have written.
    pub edits_unrecorded: u64,
    /// Edits of `edits_unrecorded` that are in `edits_equal`.
    pub edits_unrecorded_equal: u64,
}

impl Coverage {
    /// The coverage of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut coverage = Self::default();
        trace.events.iter().for_each(|event| coverage.event(event));
        coverage.head(&trace.head);
        coverage
    }

    /// Takes the counts of bytes and edits from the head of the trace.
    pub fn head(&mut self, head: &TraceHead) {
        let count = |name: &str| head.x.get(name).and_then(|count| count.as_u64()).unwrap_or(0);
        self.read_bytes = count("read_bytes");
        self.read_bytes_equal = count("read_bytes_equal");
        self.read_bytes_unrecorded = count("read_bytes_unrecorded");
        self.read_bytes_unrecorded_equal = count("read_bytes_unrecorded_equal");
        self.edits = count("edits");
        self.edits_equal = count("edits_equal");
        self.edits_unrecorded = count("edits_unrecorded");
        self.edits_unrecorded_equal = count("edits_unrecorded_equal");
    }

    /// Counts an event, if it is a call.
    pub fn event(&mut self, event: &Event) {
        let Event::Call(call) = event else {
            return;
        };
        self.recorded += 1;
        if call.path.is_some() || !call.steps.is_empty() {
            self.replayed += 1;
            self.file_work += 1;
            self.modelled += u64::from(call.is_model);
            return;
        }
        let cause = call.x.get(CAUSE).and_then(|cause| cause.as_str());
        // A trace of an earlier version says no cause.
        let cause = cause.unwrap_or("not said");
        let is_plan = matches!(call.op, Op::Plan | Op::Net | Op::Agent);
        if !is_plan && !NO_FILE_WORK.contains(&cause) {
            self.file_work += 1;
        }
        *self.causes.entry(cause.to_owned()).or_default() += 1;
    }
}
