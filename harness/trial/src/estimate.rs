//! Estimates the duration and the disk space of a fault run, before and during it. No result depends on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arms::backend::Backend;
use workloads::fault::{Injection, S3Fault, Scenario};

use super::schedule::{ScenarioRun, has_crash_points, has_mounted_cuts, misfit};

/// A scenario run without waits: mounts, work, audits.
const A_TURN: Duration = Duration::from_secs(1);

/// A scenario run with a server, a second host and a new machine.
const A_TURN_OF_S3: Duration = Duration::from_secs(6);

/// A kill of a daemon, with a power cut that is simulated inside the process.
const A_KILL: Duration = Duration::from_millis(100);

/// A power cut over a real mount.
const A_CUT: Duration = Duration::from_millis(400);

/// Scratch of a scenario that writes no large file.
const SCRATCH_BYTES: u64 = 1 << 30;

/// Scratch per byte of a large file: redo log, database or cache, bucket, and one copy each in checkpoints.
const SCRATCH_OF_A_BYTE: u64 = 5;

/// Expected time of finished runs from which on their actual pace corrects the estimate.
const ENOUGH: Duration = Duration::from_secs(10);

/// The expected duration of scenario runs.
pub struct Estimate {
    expected: Vec<Duration>,
    began: Instant,
}

impl Estimate {
    /// An estimate for runs that begin now.
    pub fn of(
        runs: &[ScenarioRun],
        scenarios: &[Scenario],
        backends: &[(Arc<dyn Backend>, Option<String>)],
        is_long: bool,
    ) -> Self {
        let of = |run: &ScenarioRun| {
            let (backend, unavailable) = &backends[run.backend];
            let scenario = &scenarios[run.scenario];
            if unavailable.is_some() || misfit(scenario, &**backend).is_some() {
                return Duration::ZERO;
            }
            lasts(&scenario.injection, is_long)
        };
        Self { expected: runs.iter().map(of).collect(), began: Instant::now() }
    }

    /// Remaining time of the last `left` runs, corrected by the pace so far.
    pub fn left(&self, left: usize) -> Duration {
        self.left_after(left, self.began.elapsed())
    }

    fn left_after(&self, left: usize, took: Duration) -> Duration {
        let (done, to_do) = self.expected.split_at(self.expected.len().saturating_sub(left));
        let (done, to_do): (Duration, Duration) = (done.iter().sum(), to_do.iter().sum());
        if done < ENOUGH {
            return to_do;
        }
        to_do.mul_f64(took.as_secs_f64() / done.as_secs_f64())
    }
}

/// Expected duration of a scenario with its waits.
fn lasts(injection: &Injection, is_long: bool) -> Duration {
    let (least, waits) = match injection {
        Injection::StopDaemon { seconds, long_seconds } => (A_TURN, if is_long { *long_seconds } else { *seconds }),
        Injection::LockDatabase { seconds } => (A_TURN, *seconds),
        Injection::S3(S3Fault::Outage { seconds, long_seconds, .. }) => {
            let seconds = if is_long { *long_seconds } else { *seconds };
            // The daemon retries the bucket after a while of the same length, at most 30 s.
            (A_TURN_OF_S3, seconds + seconds.min(30.0))
        }
        Injection::S3(_) => (A_TURN_OF_S3, 0.0),
        Injection::CutPower { cuts, .. } => (A_TURN, f64::from(*cuts)),
        Injection::TwoMounts { .. } => (A_TURN, 10.0),
        _ => (A_TURN, 0.0),
    };
    least + Duration::from_secs_f64(waits)
}

/// Disk space that the largest of these scenarios takes, in bytes.
pub fn scratch_bytes(scenarios: &[Scenario], is_long: bool) -> u64 {
    let large_file = |scenario: &Scenario| match scenario.injection {
        Injection::LargeFile { long_written_mib, .. } if is_long => long_written_mib,
        Injection::LargeFile { written_mib, .. } => written_mib,
        _ => 0,
    };
    let largest = scenarios.iter().map(large_file).max().unwrap_or(0);
    SCRATCH_BYTES + SCRATCH_OF_A_BYTE * (largest << 20)
}

/// Expected duration of `points` crash points on each of these backends.
pub fn of_points<'a>(points: u64, backends: impl Iterator<Item = &'a dyn Backend>) -> Duration {
    let of = |backend: &dyn Backend| {
        let kill = if has_crash_points(backend) { A_KILL } else { Duration::ZERO };
        if has_mounted_cuts(backend) { kill + A_CUT } else { kill }
    };
    backends.map(of).sum::<Duration>().saturating_mul(u32::try_from(points).unwrap_or(u32::MAX))
}

/// A duration in words, in seconds or minutes.
pub fn roughly(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..90 => format!("{} s", seconds.max(1)),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use workloads::fault::scenario;

    use super::super::schedule::scenario_runs;
    use super::*;

    #[test]
    fn the_estimate_follows_the_pace_of_finished_runs() {
        let estimate = Estimate { expected: vec![Duration::from_secs(20); 3], began: Instant::now() };
        let after = Duration::from_secs(40);
        assert_eq!(estimate.left_after(3, after).as_secs(), 60, "nothing is known yet");
        assert_eq!(estimate.left_after(2, after).as_secs(), 80, "twice as slow");
        assert_eq!(estimate.left_after(0, after), Duration::ZERO);
        assert_eq!(roughly(Duration::from_secs(80)), "80 s");
        assert_eq!(roughly(Duration::from_secs(1700)), "28 min");
    }

    #[test]
    fn the_estimate_includes_the_waits_of_a_scenario() {
        let scenarios = [scenario("stop-daemon").unwrap()];
        let backends = ["sqlite", "direct"].map(|name| {
            let found = backends::registry::Registry::default().find(name).unwrap();
            (Arc::from(found), None)
        });
        let runs = scenario_runs(&scenarios, 2, None);
        let expected = |is_long| Estimate::of(&runs, &scenarios, &backends, is_long).expected;
        let waits = |seconds| A_TURN + Duration::from_secs(seconds);
        assert_eq!(expected(false), [waits(5), Duration::ZERO]);
        assert_eq!(expected(true), [waits(30), Duration::ZERO]);
    }

    #[test]
    fn power_cuts_over_a_real_mount_take_longer() {
        let of = |name: &str| {
            let backend = backends::registry::Registry::default().find(name).unwrap();
            of_points(60, std::iter::once(&*backend)).as_secs()
        };
        assert_eq!(["sqlite", "direct", "sqlite-writeback", "memory"].map(of), [6, 24, 30, 0]);
    }

    #[test]
    fn only_a_large_file_written_whole_takes_much_scratch() {
        let small = [scenario("stop-daemon").unwrap()];
        let large = [scenario("large-file").unwrap(), scenario("stop-daemon").unwrap()];
        let gib = |scenarios, is_long| scratch_bytes(scenarios, is_long) >> 30;
        assert_eq!([gib(&small, false), gib(&small, true)], [1, 1]);
        assert_eq!([gib(&large, false), gib(&large, true)], [1, 5]);
    }
}
