//! Results of two hosts on the same files, by workload and arm: handoffs and shared files.

use hdrhistogram::Histogram;
use rundir::{Outcome, Placement, Plan, Run, Sample};
use schemars::JsonSchema;
use serde::Serialize;

use super::groups::Groups;
use super::{all_calls, void};

/// The kind of call that hands a note over to the second host.
const HANDOFF: &str = "handoff";

/// The time until the second host saw a write of the first, for one workload and arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Handoffs {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// Number of writes handed over, in all passes.
    pub written: u64,
    /// Writes seen within the call timeout.
    pub seen: u64,
    /// The median time until a write was seen on a quiet machine, in nanoseconds.
    pub median_ns: Option<u64>,
    /// The lower end of the median's interval over notes, in nanoseconds: at 99 %, or the shortest time of too few notes.
    pub median_low_ns: Option<u64>,
    /// The upper end.
    pub median_high_ns: Option<u64>,
    /// The longest time until the second host saw a note, in nanoseconds.
    pub max_ns: Option<u64>,
}

/// The ranks of the two of `count` sorted times, from 1 on, between which their true median lies at 99 %, whatever their
/// distribution is: the sign test. The first and the last of fewer than eight.
fn median_ranks(count: u64) -> (u64, u64) {
    /// From here on a normal distribution stands for the binomial one, whose first terms would be 0.
    const MANY: u64 = 1000;
    if count > MANY {
        let count = count as f64;
        let rank = (count / 2.0 - 2.576 * count.sqrt() / 2.0) as u64;
        return (rank, count as u64 + 1 - rank);
    }
    // The chance that fewer than `rank` of the times are below the true median, for growing ranks.
    let mut outside = 0.0;
    let mut of_rank = 0.5_f64.powf(count as f64);
    let mut rank = 0;
    while 2.0 * (outside + of_rank) <= 0.01 {
        outside += of_rank;
        rank += 1;
        of_rank *= (count + 1 - rank) as f64 / rank as f64;
    }
    let rank = rank.max(1);
    (rank, count + 1 - rank)
}

/// The ends of the median's interval.
fn median_ends(times: &Histogram<u64>) -> (u64, u64) {
    let (low, high) = median_ranks(times.len());
    let at = |rank: u64| times.value_at_quantile(rank as f64 / times.len() as f64);
    // A histogram gives a time up to a thousandth longer than the one that was recorded.
    (at(low), at(high).min(times.max()))
}

/// The lines that two hosts appended to one file, for one workload and arm: sums over the passes of valid epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SharedFiles {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// Passes that waited until both hosts had settled.
    pub passes: u64,
    /// Passes in which both hosts showed the same files in the end.
    pub agreed: u64,
    /// Lines appended with success.
    pub lines: u64,
    /// Lines in the shared file on both hosts.
    pub on_both: u64,
    /// Lines on both hosts, but at least on one of them in a conflict copy only.
    pub only_in_copies: u64,
    /// Lines in a file on one host only.
    pub on_one: u64,
    /// Lines in no file.
    pub lost: u64,
    /// Conflict copies, kept in addition to the files that were written.
    pub conflict_copies: u64,
}

pub(super) fn handoffs(plan: &Plan, groups: &Groups<'_>) -> Result<Vec<Handoffs>, String> {
    let mut found = Vec::new();
    for (workload, arm, states) in groups.by_workload_and_arm(plan) {
        let passes = || states.iter().flat_map(|group| &group.passes);
        if !workload.calls.contains_key(HANDOFF) || passes().next().is_none() {
            continue;
        }
        // A pass with a late handoff keeps its other times, because lateness is a result here.
        let times = all_calls(states.iter().flat_map(|group| &group.cells), HANDOFF)?;
        let times = times.filter(|times| !times.is_empty());
        // Busy passes are in no histogram, but their handoffs are counted.
        let timed = || passes().filter(|pass| !pass.warm_up);
        let outcomes = timed().flat_map(|pass| &pass.outcomes);
        let in_time = timed().filter_map(|pass| pass.calls.get(HANDOFF));
        found.push(Handoffs {
            workload: workload.name.clone(),
            arm: arm.name.clone(),
            written: outcomes.filter(|(outcome, _)| **outcome != Outcome::Skipped).map(|(_, count)| count).sum(),
            seen: in_time.map(|calls| calls.count).sum(),
            median_ns: times.as_ref().map(|times| times.value_at_quantile(0.5)),
            median_low_ns: times.as_ref().map(|times| median_ends(times).0),
            median_high_ns: times.as_ref().map(|times| median_ends(times).1),
            max_ns: times.as_ref().map(Histogram::max),
        });
    }
    Ok(found)
}

/// Lines of void epochs are not compared: those that a baseline lost there must not speak for a candidate.
pub(super) fn shared_files(run: &Run) -> Vec<SharedFiles> {
    let mut found = Vec::new();
    let void = void(run);
    let all = run.samples.iter().filter(|pass| pass.settled.is_some() && !void.contains(&pass.epoch));
    let all: Vec<&Sample> = all.collect();
    let arms = &run.plan.arms;
    let places = run.plan.workloads.iter().flat_map(|workload| arms.iter().map(move |arm| (workload, arm)));
    for (workload, arm) in places {
        let first = workload.states.first().map(|state| Placement::of_state(state));
        let passes = all.iter().filter(|pass| pass.workload == workload.name && pass.arm == arm.name);
        let passes = passes.filter(|pass| Some(Placement::of_state(&pass.state)) == first);
        let settled: Vec<_> = passes.filter_map(|pass| pass.settled).collect();
        if settled.is_empty() {
            continue;
        }
        let mut sum = SharedFiles {
            workload: workload.name.clone(),
            arm: arm.name.clone(),
            passes: settled.len() as u64,
            ..SharedFiles::default()
        };
        for one in settled {
            sum.agreed += u64::from(!one.is_apart());
            sum.lines += one.lines;
            sum.on_both += one.on_both;
            sum.on_one += one.on_one;
            sum.only_in_copies += one.only_in_copies;
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
    use crate::summary::summarise;
    use crate::testing::{self, EPOCHS, ROUNDS};
    use rundir::{Calls, Latencies, SettledLines, histogram};
    use std::collections::BTreeMap;

    #[test]
    fn a_handoff_seen_too_late_has_no_time_but_is_counted() {
        let mut run = testing::run();
        run.plan.workloads[1].calls = BTreeMap::from([(HANDOFF.to_owned(), 10)]);
        let mut times = histogram();
        (0..7).for_each(|_| times.record(2_000_000).unwrap());
        for sample in run.samples.iter_mut().filter(|s| s.workload == "agent/session") {
            let calls = Calls::of(&times, 14_000_000);
            sample.calls = BTreeMap::from([(HANDOFF.to_owned(), calls)]);
            sample.outcomes = BTreeMap::from([(Outcome::Ok, 7), (Outcome::Timeout, 3)]);
            sample.outcome = Outcome::Timeout;
            if sample.arm == "sqlite" {
                sample.calls.clear();
                sample.outcomes = BTreeMap::from([(Outcome::Timeout, 10)]);
            }
        }
        for cell in &mut run.cells {
            cell.latencies.clear();
            if cell.arm != "sqlite" {
                let latencies = Latencies::new(&times).unwrap();
                cell.latencies.insert(HANDOFF.to_owned(), latencies);
            }
        }
        // A handoff on a busy machine is in no median, but it is counted.
        run.samples[3].load.busy = Some("tasks waited for memory in 9 % of this pass".to_owned());
        let found = summarise(&run).unwrap().handoffs;
        assert_eq!(found.len(), 3, "of one workload of two, each arm");
        let of = |arm: &str| found.iter().find(|handoffs| handoffs.arm == arm).unwrap();
        let direct = of("direct");
        // Warm-up passes are not counted.
        let passes = u64::from(EPOCHS * ROUNDS);
        assert_eq!((direct.written, direct.seen), (10 * passes, 7 * passes));
        assert_eq!(direct.median_ns, direct.max_ns);
        assert!(direct.median_ns.unwrap() >= 2_000_000);
        let never = of("sqlite");
        assert_eq!((never.written, never.seen), (10 * passes, 0));
        assert_eq!((never.median_ns, never.median_low_ns, never.max_ns), (None, None, None));
    }

    #[test]
    fn the_median_of_few_notes_lies_anywhere_between_them_and_that_of_many_in_a_part_of_them() {
        // The tables of the sign test at 1 %, two-sided.
        let expected = [(1, (1, 1)), (7, (1, 7)), (8, (1, 8)), (12, (2, 11)), (25, (6, 20)), (100, (37, 64))];
        for (count, ranks) in expected {
            assert_eq!(median_ranks(count), ranks, "{count} notes");
        }
        assert!(median_ranks(100_000).0 > 49_000);
        let mut times = histogram();
        (1..=9).for_each(|ms| times.record(ms * 1_000_000).unwrap());
        let (low, high) = median_ends(&times);
        assert!((1_000_000..1_010_000).contains(&low) && (8_990_000..=9_010_000).contains(&high), "{low} {high}");
    }

    #[test]
    fn shared_lines_are_summed_over_the_passes_that_have_them() {
        let mut run = testing::run();
        assert!(summarise(&run).unwrap().shared_files.is_empty());
        for sample in run.samples.iter_mut().filter(|s| s.arm == "sqlite" && s.epoch == 0 && s.round < 4) {
            sample.settled = Some(SettledLines {
                lines: 10,
                on_both: if sample.round < 2 { 7 } else { 4 },
                // A line on one host only contradicts that both show the same.
                on_one: if sample.round < 2 { 0 } else { 3 },
                only_in_copies: 2,
                lost: 1,
                conflict_copies: 5,
                agree: sample.round != 1,
            });
        }
        // What was lost while the machine slept is compared with nothing.
        run.epochs[1].void = Some("the machine slept for 5 s".to_owned());
        for sample in run.samples.iter_mut().filter(|s| s.arm == "sqlite" && s.epoch == 1) {
            sample.settled = Some(SettledLines { lines: 10, lost: 10, ..SettledLines::default() });
        }
        run.samples.retain(|sample| sample.workload == "agent/session");
        let [found] = &summarise(&run).unwrap().shared_files[..] else {
            panic!("one arm of one workload");
        };
        assert_eq!((found.passes, found.agreed), (4, 1));
        let parts = found.on_both + found.on_one + found.only_in_copies + found.lost;
        assert_eq!((found.lines, parts), (40, 40));
        assert_eq!((found.lost, found.conflict_copies), (4, 20));
    }
}
