//! What is the same in all passes of a workload: its calls and its questions. A pass of which nothing failed has all of them,
//! and the times of another pass are its own.

use std::collections::{BTreeMap, BTreeSet};

use rundir::{Outcome, Run, SAMPLES, Sample};

use crate::{Discrepancy, pass_row, times_itself};

/// Workload, state, arm, and whether the pass is a warm-up.
type PassKey<'a> = (&'a str, &'a str, &'a str, bool);

/// A method and one of its counts.
type CountName<'a> = (&'a str, &'a str);

/// A pass with its line.
type Line<'a> = (usize, &'a Sample);

pub(crate) fn check_alike(run: &Run, found: &mut Vec<Discrepancy>) {
    let lines = (1..).zip(&run.samples);
    let whole: Vec<Line<'_>> = lines.filter(|(_, pass)| pass.outcome == Outcome::Ok).collect();
    check_calls(run, &whole, found);
    check_questions(&whole, found);
    check_copies(&run.samples, found);
}

/// The calls of a pass, by kind.
fn counts(pass: &Sample) -> BTreeMap<&str, u64> {
    pass.calls.iter().map(|(kind, calls)| (kind.as_str(), calls.count)).collect()
}

/// All arms replay one script, except in tasks, which each arm does in its own way.
fn check_calls(run: &Run, whole: &[Line<'_>], found: &mut Vec<Discrepancy>) {
    let is_task = |pass: &Sample| !pass.scores.is_empty();
    let tasks: BTreeSet<&str> =
        run.samples.iter().filter(|pass| is_task(pass)).map(|pass| pass.workload.as_str()).collect();
    let mut first: BTreeMap<(&str, &str, bool), &Sample> = BTreeMap::new();
    for (line, pass) in whole {
        if tasks.contains(&*pass.workload) || times_itself(&run.plan, &pass.arm) {
            continue;
        }
        let known = *first.entry((&pass.workload, &pass.state, pass.warm_up)).or_insert(pass);
        let (own, others) = (counts(pass), counts(known));
        if own != others {
            let words = |counts: &BTreeMap<&str, u64>| {
                let words = counts.iter().map(|(kind, count)| format!("{count} {kind}"));
                words.collect::<Vec<_>>().join(", ")
            };
            let why = format!("{}, as in a pass of {}", words(&others), known.arm);
            found.push(Discrepancy::new(SAMPLES, pass_row(*line, pass), "calls", words(&own), why));
        }
    }
}

/// All passes of a workload ask the same questions, and those of an arm count the same answers.
fn check_questions(whole: &[Line<'_>], found: &mut Vec<Discrepancy>) {
    let mut asked: BTreeMap<(&str, &str, &str), (u64, &str)> = BTreeMap::new();
    let mut counted: BTreeMap<PassKey<'_>, BTreeSet<CountName<'_>>> = BTreeMap::new();
    for (line, pass) in whole {
        let mut own = BTreeSet::new();
        for (method, counts) in &pass.scores {
            for (count, score) in counts {
                own.insert((method.as_str(), count.as_str()));
                let known = asked.entry((&pass.workload, method, count)).or_insert((score.of, &pass.arm));
                if known.0 != score.of {
                    let field = format!("scores.{method}.{count}.of");
                    let why = format!("{}, as in a pass of {}", known.0, known.1);
                    found.push(Discrepancy::new(SAMPLES, pass_row(*line, pass), &field, score.of, why));
                }
            }
        }
        let key = (&*pass.workload, &*pass.state, &*pass.arm, pass.warm_up);
        let known = counted.entry(key).or_insert_with(|| own.clone());
        if let Some((method, count)) = known.symmetric_difference(&own).next() {
            let field = format!("scores.{method}.{count}");
            let has =
                |counts: &BTreeSet<CountName<'_>>| if counts.contains(&(*method, *count)) { "counted" } else { "none" };
            let why = format!("{}, as in another pass of {}", has(known), pass.arm);
            found.push(Discrepancy::new(SAMPLES, pass_row(*line, pass), &field, has(&own), why));
        }
    }
}

/// The calls of a pass from which on its times are its own. Of 1,220 passes with one call of 12 µs, 210 had the times of
/// another: the clock counts in steps of about 10 ns.
const CALLS_MIN: u64 = 16;

/// No two passes of [`CALLS_MIN`] calls or more take the same times to the nanosecond: the pass, its processors, its calls and
/// the longest of them. The first two alone agree by chance in one merged run of some dozen.
fn check_copies(samples: &[Sample], found: &mut Vec<Discrepancy>) {
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for (line, pass) in (1..).zip(samples) {
        let count = pass.calls.values().map(|calls| calls.count).sum::<u64>();
        if pass.makespan_ns == 0 || pass.cpu.client_ns == 0 || count < CALLS_MIN {
            continue;
        }
        let calls = pass.calls.iter().map(|(kind, calls)| (kind.as_str(), calls.total_ns, calls.max_ns));
        let times = (pass.makespan_ns, pass.cpu.client_ns, pass.cpu.daemon_ns, calls.collect::<Vec<_>>());
        if let Some(other) = known.insert(times, line) {
            let stated = format!("{} ns, and {} ns of the client's processor", pass.makespan_ns, pass.cpu.client_ns);
            let why = format!("the times of line {other}: one of both is a copy");
            found.push(Discrepancy::new(SAMPLES, pass_row(line, pass), "makespan_ns", stated, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use figures::testing;

    use super::*;

    #[test]
    fn equal_times_are_a_copy_only_of_a_pass_of_several_calls() {
        let copies = |count: u64| {
            let mut pass = testing::run().samples.swap_remove(0);
            pass.cpu.client_ns = 14_782;
            let first = pass.calls.keys().next().unwrap().clone();
            pass.calls.retain(|kind, _| *kind == first);
            pass.calls.get_mut(&first).unwrap().count = count;
            let mut found = Vec::new();
            check_copies(&[pass.clone(), pass], &mut found);
            found.len()
        };
        assert_eq!((copies(1), copies(CALLS_MIN - 1), copies(CALLS_MIN)), (0, 0, 1));
    }
}
