//! A pass whose calls another program makes and times.

use super::*;

/// Why a program that reads one open file cannot run a script; `None` if it can.
pub fn unsupported(script: &Script) -> Option<String> {
    let mut ops = script.calls.iter().flat_map(|call| &call.ops);
    let op = ops.find(|op| !matches!(op, FileOp::ReadOpen { .. }))?;
    Some(format!("it only reads an open file, and does not {}", op.describe()))
}

impl Pass<'_> {
    /// Lets another program make the calls, which all read one open file.
    pub(super) fn by_program(&self, workspaces: &mut Workspaces, watchdog: &Watchdog, passed: &mut Passed) {
        let calls = self.expectations.calls();
        let first = calls.first().and_then(|call| call.ops.first());
        let Some(FileOp::ReadOpen { path, length, .. }) = first else {
            return passed.note(Outcome::Infra, "the program only reads an open file".to_owned());
        };
        let file = path.below(&workspaces.root(&FileOp::Read(path.clone())));
        let Some(reader) = workspaces.first.timed_reader() else {
            return;
        };
        watchdog.enter(PROGRAM_LIMIT);
        let times = reader.pread(&file, *length, calls.len());
        watchdog.leave();
        match times {
            Ok(times) => {
                let total_ns = (times.mean_ns * times.count as f64) as u64;
                let of_calls = Calls {
                    count: times.count,
                    total_ns,
                    p50_ns: times.p50_ns,
                    p90_ns: times.p90_ns,
                    max_ns: times.max_ns,
                };
                passed.sample.calls.insert(CallKind::Pread.to_string(), of_calls);
                passed.sample.outcomes.insert(Outcome::Ok, times.count);
                (passed.sample.makespan_ns, passed.sample.waited_ns) = (total_ns, total_ns);
                passed.sample.bytes_read = times.count * *length as u64;
            }
            Err(error) => passed.note(Outcome::Infra, error.to_string()),
        }
    }
}
