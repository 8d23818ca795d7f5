//! The cells and arms of a run that claims name.

use serde::Deserialize;
use stats::{Interval, LEVEL, SeriesKey, share_interval};

use crate::evidence::RunEvidence;
use crate::summary::Cell;

/// Names of servers in arms: a claim about `s3@1ms` is tested by `s3-minio@1ms`.
const SERVERS: [&str; 4] = ["minio", "seaweedfs", "rclone", "embedded"];

/// A cell of an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmCell {
    pub arm: String,
    pub workload: String,
    pub state: String,
    /// A kind of call, `makespan`, or `ready`.
    pub metric: String,
}

impl ArmCell {
    pub(super) fn words(&self) -> String {
        format!(
            "{} {} {} on {}",
            self.metric, self.workload, self.state, self.arm
        )
    }

    pub(super) fn key(&self) -> SeriesKey {
        SeriesKey::new(&self.workload, &self.state, &self.metric)
    }
}

impl RunEvidence<'_> {
    /// The name in this run of an arm that a claim names, whichever server holds its bucket.
    pub(super) fn arm<'n>(&'n self, wanted: &'n str) -> &'n str {
        let planned = || self.run.plan.arms.iter().map(|arm| arm.name.as_str());
        let found = planned().find(|name| *name == wanted);
        let found = found.or_else(|| planned().find(|name| is_on_server(name, wanted)));
        found.unwrap_or(wanted)
    }

    pub(super) fn cell(&self, cell: &ArmCell) -> Option<&Cell> {
        let arm = self.arm(&cell.arm);
        self.summary
            .cell(&cell.workload, &cell.state, &cell.metric, arm)
    }
}

/// The command of a run that measures some arms in some workloads.
pub(super) fn run_command(workloads: &[&str], state: Option<&str>, arms: &[&str]) -> String {
    let workloads = workloads
        .iter()
        .map(|workload| format!(" --workload {workload}"));
    let state = state.map(|state| format!(" --state {state}"));
    let arms = arms.iter().map(|arm| format!(" --backend {arm}"));
    let options: String = workloads.chain(state).chain(arms).collect();
    format!("ctxbench run{options}")
}

/// The interval of a share that was seen `hits` times of `of`, in percent.
pub(super) fn percent_interval(hits: u64, of: u64) -> Interval {
    share_interval(hits, of, 1.0 - LEVEL).map(|share| share * 100.0)
}

/// Whether `planned` is the arm `wanted` on a server: `s3-fresh-minio@1ms` of `s3-fresh@1ms`.
fn is_on_server(planned: &str, wanted: &str) -> bool {
    let (name, distance) = wanted.split_once('@').map_or((wanted, None), split);
    let (planned, at) = planned.split_once('@').map_or((planned, None), split);
    let server = planned
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'));
    distance == at && server.is_some_and(|server| SERVERS.contains(&server))
}

fn split<'a>((name, distance): (&'a str, &'a str)) -> (&'a str, Option<&'a str>) {
    (name, Some(distance))
}

#[cfg(test)]
mod tests {
    use super::is_on_server;

    #[test]
    fn an_arm_is_found_on_any_server_but_not_at_another_distance() {
        assert!(is_on_server("s3-fresh-minio@1ms", "s3-fresh@1ms"));
        assert!(is_on_server("s3-embedded", "s3"));
        assert!(!is_on_server("s3-fresh-minio@30ms", "s3-fresh@1ms"));
        assert!(!is_on_server("s3-fresh-minio", "s3"));
        assert!(!is_on_server("sqlite-writeback", "sqlite"));
    }
}
