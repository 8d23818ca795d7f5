//! What two hosts saw of each other, by workload and arm.

use serde::Serialize;

use rundir::{Outcome, Plan, Run, Sample, histogram};

/// The kind of call in which a note is handed over.
const HANDOFF: &str = "handoff";

/// How long it took until a second host saw what the first had written, in one workload and of one arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Handoffs {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// What was handed over, in all passes.
    pub written: u64,
    /// Of that, what was seen within the limit for a call.
    pub seen: u64,
    /// The median time until it was seen, of what was, in nanoseconds.
    pub median_ns: Option<u64>,
    /// The longest, in nanoseconds.
    pub max_ns: Option<u64>,
}

/// What became of lines that two hosts added to one file, in one workload and of one arm: sums of passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedFiles {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// Passes in which both hosts were waited for.
    pub passes: u64,
    /// Of those, in which both showed the same in the end.
    pub agreed: u64,
    /// Lines whose adding had succeeded.
    pub lines: u64,
    /// Of those, in a file on both hosts.
    pub on_both: u64,
    /// In a file on one host only.
    pub on_one: u64,
    /// In no file, but in a version that is kept of one.
    pub only_in_versions: u64,
    /// Nowhere.
    pub lost: u64,
    /// Files that are kept beside those that were written.
    pub conflict_copies: u64,
}

/// The samples of each workload and arm, in the plan's order.
fn by_arm<'a>(
    plan: &'a Plan,
    samples: &'a [Sample],
) -> impl Iterator<Item = (&'a str, &'a str, Vec<&'a Sample>)> {
    plan.workloads.iter().flat_map(move |workload| {
        plan.arms.iter().map(move |arm| {
            let own = samples.iter();
            let own = own.filter(|own| own.workload == workload.name && own.arm == arm.name);
            (workload.name.as_str(), arm.name.as_str(), own.collect())
        })
    })
}

pub(super) fn handoffs(run: &Run) -> Result<Vec<Handoffs>, String> {
    let (plan, samples) = (&run.plan, &run.samples);
    let is_handed_over = |workload: &str| {
        let mut planned = plan.workloads.iter();
        planned.any(|planned| planned.name == workload && planned.calls.contains_key(HANDOFF))
    };
    let mut found = Vec::new();
    for (workload, arm, samples) in by_arm(plan, samples) {
        if !is_handed_over(workload) || samples.is_empty() {
            continue;
        }
        // Of a pass in which one was not seen, the others count, too: late is a result here.
        let mut times = histogram();
        for cell in run.cells.iter() {
            if cell.workload != workload || cell.arm != arm {
                continue;
            }
            if let Some(latencies) = cell.latencies.get(HANDOFF) {
                times
                    .add(&latencies.histogram()?)
                    .map_err(|error| format!("merging histograms: {error:?}"))?;
            }
        }
        let timed = samples.iter().filter(|own| !own.warm_up);
        let outcomes = timed.flat_map(|own| &own.outcomes);
        let seen = times.len();
        found.push(Handoffs {
            workload: workload.to_owned(),
            arm: arm.to_owned(),
            written: outcomes
                .filter(|(outcome, _)| **outcome != Outcome::Skipped)
                .map(|(_, count)| count)
                .sum(),
            seen,
            median_ns: (seen > 0).then(|| times.value_at_quantile(0.5)),
            max_ns: (seen > 0).then(|| times.max()),
        });
    }
    Ok(found)
}

pub(super) fn shared_files(plan: &Plan, samples: &[Sample]) -> Vec<SharedFiles> {
    let mut found = Vec::new();
    for (workload, arm, samples) in by_arm(plan, samples) {
        let settled: Vec<_> = samples.iter().filter_map(|own| own.settled).collect();
        if settled.is_empty() {
            continue;
        }
        let mut sum = SharedFiles {
            workload: workload.to_owned(),
            arm: arm.to_owned(),
            passes: settled.len() as u64,
            agreed: 0,
            lines: 0,
            on_both: 0,
            on_one: 0,
            only_in_versions: 0,
            lost: 0,
            conflict_copies: 0,
        };
        for one in settled {
            sum.agreed += u64::from(one.agree);
            sum.lines += one.lines;
            sum.on_both += one.on_both;
            sum.on_one += one.on_one;
            sum.only_in_versions += one.only_in_versions;
            sum.lost += one.lost;
            sum.conflict_copies += one.conflict_copies;
        }
        found.push(sum);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rundir::{Calls, Settled};
    use crate::summary::summarise;
    use crate::testing;
    use std::collections::BTreeMap;

    #[test]
    fn what_was_not_seen_in_time_has_no_time_but_is_counted() {
        let mut run = testing::run();
        run.plan.workloads[1].calls = BTreeMap::from([(HANDOFF.to_owned(), 10)]);
        let mut times = histogram();
        (0..7).for_each(|_| times.record(2_000_000).unwrap());
        for sample in run
            .samples
            .iter_mut()
            .filter(|s| s.workload == "agent/session")
        {
            let calls = Calls::new(&times, 14_000_000).unwrap();
            sample.calls = BTreeMap::from([(HANDOFF.to_owned(), calls)]);
            sample.outcomes = BTreeMap::from([(Outcome::Ok, 7), (Outcome::Timeout, 3)]);
            sample.outcome = Outcome::Timeout;
            if sample.arm == "sqlite" {
                sample.calls.clear();
                sample.outcomes = BTreeMap::from([(Outcome::Timeout, 10)]);
            }
        }
        let found = summarise(&run).unwrap().handoffs;
        assert_eq!(found.len(), 3, "of one workload of two, each arm");
        let own = |arm: &str| found.iter().find(|own| own.arm == arm).unwrap();
        let direct = own("direct");
        assert_eq!((direct.written, direct.seen), (100, 70));
        assert_eq!(direct.median_ns, direct.max_ns);
        assert!(direct.median_ns.unwrap() >= 2_000_000);
        let never = own("sqlite");
        assert_eq!((never.written, never.seen, never.max_ns), (100, 0, None));
    }

    #[test]
    fn lines_are_summed_over_blocks_and_blocks_without_are_left_out() {
        let mut run = testing::run();
        assert!(summarise(&run).unwrap().shared_files.is_empty());
        for sample in run
            .samples
            .iter_mut()
            .filter(|s| s.arm == "sqlite" && s.round < 4)
        {
            sample.settled = Some(Settled {
                lines: 10,
                on_both: 4,
                on_one: 3,
                only_in_versions: 2,
                lost: 1,
                conflict_copies: 5,
                agree: sample.round == 0,
            });
        }
        run.samples
            .retain(|sample| sample.workload == "agent/session");
        let [found] = &summarise(&run).unwrap().shared_files[..] else {
            panic!("one arm of one workload");
        };
        assert_eq!((found.blocks, found.agreed), (4, 1));
        let parts = found.on_both + found.on_one + found.only_in_versions + found.lost;
        assert_eq!((found.lines, parts), (40, 40));
        assert_eq!((found.lost, found.conflict_copies), (4, 20));
    }
}
