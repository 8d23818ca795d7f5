//! A program that reads one open file, and makes and times its calls in place of the harness.

use std::time::Duration;

use arms::backend::Description;
use rundir::{Calls, Outcome};
use workloads::definition::{CacheState, Workload};
use workloads::script::{CallKind, FileOp};

use super::calls::Replay;
use super::driver::Driver;
use super::files;
use crate::clock::Clock;

/// How long the program may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct ReaderDriver;

/// Lets the program make the calls, which all read one open file.
fn read<C: Clock>(replay: &mut Replay<'_, C>) {
    let passed = &mut replay.passed;
    let calls = replay.pass.expectations.calls();
    let first = calls.first().and_then(|call| call.ops.first());
    let Some(op @ FileOp::ReadOpen { path, length, .. }) = first else {
        return passed.note(Outcome::Infra, "the program only reads an open file".to_owned());
    };
    let file = path.below(&replay.workspaces.root(op));
    let Some(reader) = replay.workspaces.first.timed_reader() else {
        return;
    };
    replay.watchdog.enter(PROGRAM_LIMIT);
    let times = reader.pread(&file, *length, calls.len());
    replay.watchdog.leave();
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

impl<C: Clock> Driver<C> for ReaderDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        replay.measure(read);
        replay.read_back(files::read_back);
    }

    fn unsupported(&self, workload: &Workload, state: CacheState, backend: &Description) -> Option<String> {
        let name = &backend.name;
        let mut ops = workload.script.calls.iter().flat_map(|call| &call.ops);
        if let Some(op) = ops.find(|op| !matches!(op, FileOp::ReadOpen { .. })) {
            return Some(format!("{name}: it only reads an open file, and does not {}", op.describe()));
        }
        let is_hot = state == CacheState::Hot;
        (!is_hot).then(|| format!("nothing proves the cache state that {name} meets"))
    }
}
