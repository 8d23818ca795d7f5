//! Generators of workloads. The same parameters always give the same script.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::path::WorkspacePath;

pub mod asking;
mod clients;
pub(crate) mod corpus;
pub mod finding;
pub mod hosts;
pub mod inbox;
pub mod memory_session;
pub mod micro;
pub mod offload;
pub mod program;
pub mod syncing;
pub mod vsm_cycle;

/// Checks that the parameter `field` is in a range.
fn check_range<T: Display + PartialOrd>(field: &str, value: &T, range: RangeInclusive<T>) -> Result<(), String> {
    let (least, most) = (range.start(), range.end());
    let is_in = range.contains(value);
    is_in.then_some(()).ok_or_else(|| format!("field `{field}`: must be from {least} to {most}"))
}

fn path(name: impl Into<String>) -> Result<WorkspacePath, String> {
    WorkspacePath::new(name).map_err(|error| error.to_string())
}

/// A path that this module's generators choose, which is always a valid one.
fn plain(name: &str) -> WorkspacePath {
    WorkspacePath::new(name).unwrap_or_else(|_| unreachable!("this module's names are plain"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::definition::Workload;

    /// A field, and parameters in which it is out of range.
    const CASES: &str = "asking.notes: operation = 'search', notes = 99, calls = 1, seed = 1
asking.calls: operation = 'search', notes = 100, calls = 0, seed = 1
clients.processes: processes = 0, files = 4, bytes = 10, calls = 50, writes = 20, seed = 1
clients.writes: processes = 3, files = 4, bytes = 10, calls = 50, writes = 101, seed = 1
finding.notes: by = 'files', notes = 3, max_tokens = 2000, seed = 1
handoff.notes: notes = 0, bytes = 100, pause_ms = 500, seed = 7
handoff.bytes: notes = 8, bytes = 0, pause_ms = 500, seed = 7
inbox.size: about = 'mail', size = 73, questions = 12, asked_every_s = 60, copied_every_s = 300, seed = 1
inbox.questions: about = 'mail', size = 40, questions = 51, asked_every_s = 60, copied_every_s = 300, seed = 1
inbox.asked_every_s: about = 'mail', size = 40, questions = 12, asked_every_s = 10, copied_every_s = 300, seed = 1
memory_session.notes: notes = 3, questions = 1, system_tokens = 1, seed = 1
memory_session.questions: notes = 100, questions = 0, system_tokens = 1, seed = 1
memory_session.questions: notes = 100, questions = 1000, system_tokens = 1, seed = 1
micro.calls: operation = 'delete', files = 5, bytes = 1, calls = 6
micro.files: operation = 'stat', files = 0, bytes = 1, calls = 6
micro.calls: operation = 'stat', files = 1, bytes = 1, calls = 0
syncing.files: files = 0, bytes = 1024, times = 2, seed = 1
syncing.times: files = 5, bytes = 1024, times = 0, seed = 1
two_writers.pause_ms: lines = 20, pause_ms = 1001, seed = 7";

    #[test]
    fn a_parameter_out_of_range_is_refused_by_its_field() {
        let essay = "e".repeat(80);
        for case in CASES.lines() {
            let (field, parameters) = case.split_once(": ").unwrap();
            let (table, _) = field.split_once('.').unwrap();
            let parameters = parameters.replace(", ", "\n");
            let text = format!("name = 'w'\nessay = '{essay}'\nstates = ['hot']\n[{table}]\n{parameters}\n");
            let parsed = Workload::parse(Path::new("w.toml"), &text, |_| unreachable!());
            let error = parsed.unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{case}: {error}");
        }
    }
}
