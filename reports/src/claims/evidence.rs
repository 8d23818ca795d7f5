//! A run as evidence for claims, and the places in it that claims name.

use std::cell::OnceCell;

use rundir::Run;
use serde::Deserialize;
use stats::{CellKey, Interval, LEVEL, Table, share_interval};

use super::finding::Name;
use crate::context::Contexts;
use crate::summary::{Cell, Summary, void};

/// Names of servers in arms: a claim about `s3@1ms` is tested by `s3-minio@1ms`.
const SERVERS: [&str; 4] = ["minio", "seaweedfs", "rclone", "embedded"];

/// A run with what follows from it.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its summary.
    pub summary: &'a Summary,
    /// The costs of its sessions.
    pub contexts: &'a Contexts,
    table: OnceCell<Table>,
}

/// A cell of an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub arm: String,
    pub workload: String,
    pub state: String,
    /// A kind of call, `makespan`, or `ready`.
    pub metric: String,
}

impl Place {
    pub(super) fn words(&self) -> String {
        format!(
            "{} {} {} on {}",
            self.metric, self.workload, self.state, self.arm
        )
    }

    pub(super) fn key(&self) -> CellKey {
        CellKey {
            workload: self.workload.clone(),
            state: self.state.clone(),
            metric: self.metric.clone(),
        }
    }

    /// The names that must exist, with their fields.
    pub(super) fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
            ("state", Name::State(&self.workload, &self.state)),
            ("metric", Name::Metric(&self.workload, &self.metric)),
        ]
    }

    /// The command that measures it.
    pub(super) fn command(&self) -> String {
        format!(
            "ctxbench run --workload {} --state {} --backend {}",
            self.workload, self.state, self.arm
        )
    }
}

impl<'a> Evidence<'a> {
    /// A run as evidence.
    pub fn new(run: &'a Run, summary: &'a Summary, contexts: &'a Contexts) -> Self {
        Self {
            run,
            summary,
            contexts,
            table: OnceCell::new(),
        }
    }

    /// The measured values of the run.
    pub(crate) fn table(&self) -> &Table {
        self.table.get_or_init(|| {
            let void = void(self.run);
            Table::of(&self.run.samples, &void, self.summary.health.is_busy)
        })
    }

    /// The name in this run of an arm that a claim names, whichever server holds its bucket.
    pub(super) fn arm<'n>(&'n self, wanted: &'n str) -> &'n str {
        let planned = || self.run.plan.arms.iter().map(|arm| arm.name.as_str());
        let is_same = |name: &&str| *name == wanted;
        let on_server = |name: &&str| is_on_server(name, wanted);
        let found = planned()
            .find(is_same)
            .or_else(|| planned().find(on_server));
        found.unwrap_or(wanted)
    }

    pub(super) fn cell(&self, place: &Place) -> Option<&Cell> {
        let arm = self.arm(&place.arm);
        self.summary.cells.iter().find(|cell| {
            cell.arm == arm
                && cell.workload == place.workload
                && cell.state == place.state
                && cell.metric == place.metric
        })
    }
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
