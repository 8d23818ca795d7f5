//! Checks the records of a run against each other: passes, histograms, counts and epochs. Each figure of a pass is compared
//! with the other records that contain it. The order that the seed fixes is checked by the harness, which made it.
//! [`published`] compares the files of a published report with those that are computed from its run again.

mod alike;
mod missing;
pub mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use hdrhistogram::Histogram;
use rundir::faults::Status;
use rundir::{
    CELLS, CRASH_POINTS, Calls, CellEpoch, EPOCHS, Epoch, FAULTS, Outcome, PLAN, POLICY, PROBES, Plan, Run, SAMPLES,
    Sample, cache_state,
};
use schemars::JsonSchema;
use serde::Serialize;

use figures::conformance::CONFORMANCE;

/// A value of a file that does not follow from the other records of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Discrepancy {
    /// The file, relative to the run directory.
    pub file: String,
    /// The line or row, with the names in it.
    pub row: String,
    /// The field.
    pub field: String,
    /// What the file says.
    pub stated: String,
    /// What follows from the other records.
    pub recomputed: String,
}

impl Discrepancy {
    /// A value of `file`.
    pub fn new(file: &str, row: impl Display, field: &str, stated: impl Display, recomputed: impl Display) -> Self {
        Self {
            file: file.to_owned(),
            row: row.to_string(),
            field: field.to_owned(),
            stated: stated.to_string(),
            recomputed: recomputed.to_string(),
        }
    }
}

impl Display for Discrepancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}: field `{}`: states {}; recomputed: {}",
            self.file, self.row, self.field, self.stated, self.recomputed
        )
    }
}

/// A pass with its place, for messages.
pub fn pass_row(line: usize, pass: &Sample) -> String {
    format!(
        "line {line} (epoch {}, round {}, {} on {}, {})",
        pass.epoch, pass.round, pass.workload, pass.arm, pass.state
    )
}

fn cell_row(line: usize, cell: &CellEpoch) -> String {
    format!("line {line} (epoch {}, {} on {}, {})", cell.epoch, cell.workload, cell.arm, cell.state)
}

/// The passes of an arm in a cell of an epoch, with their lines.
type Group<'a> = Vec<(usize, &'a Sample)>;

/// Epoch, workload, state, arm.
type GroupKey<'a> = (u32, &'a str, &'a str, &'a str);

/// What does not fit together in the records of a run: values that contradict each other, and records that others show to be
/// missing. No verdict may rest on such a run.
pub fn check_records(run: &Run) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    let mut groups: BTreeMap<GroupKey<'_>, Group<'_>> = BTreeMap::new();
    for (line, pass) in (1..).zip(&run.samples) {
        let key = (pass.epoch, &*pass.workload, &*pass.state, &*pass.arm);
        groups.entry(key).or_default().push((line, pass));
        check_pass(&run.plan, line, pass, &mut found);
    }
    check_order(run, &mut found);
    check_rounds(run, &groups, &mut found);
    check_cells(run, &groups, &mut found);
    check_epochs(run, &mut found);
    check_probes(run, &mut found);
    check_policy(run, &mut found);
    check_arms(run, &mut found);
    check_promises(run, &mut found);
    alike::check_alike(run, &mut found);
    missing::check_missing(run, &mut found);
    found
}

/// Whether a pass made its calls: one that could not be prepared made none, and stands outside of its round's order. A session
/// with nothing to replay has no calls, and its passes are ok.
pub fn made_calls(pass: &Sample) -> bool {
    !pass.outcomes.is_empty() || pass.outcome == Outcome::Ok
}

fn check_pass(plan: &Plan, line: usize, pass: &Sample, found: &mut Vec<Discrepancy>) {
    let mut wrong = |field: &str, stated: &dyn Display, recomputed: &dyn Display| {
        let row = pass_row(line, pass);
        found.push(Discrepancy::new(SAMPLES, row, field, stated, recomputed));
    };
    if !plan.takes_part(&pass.arm, &pass.workload, &pass.state) {
        wrong("arm", &pass.arm, &"the plan has no such arm in this workload and state");
    }
    let planned = plan.arm(&pass.arm);
    if let Some(why) = planned.and_then(|arm| arm.unavailable.as_ref()) {
        wrong("arm", &pass.arm, &format!("no pass: by the plan, {} cannot be measured here: {why}", pass.arm));
    }
    // A description of a third-party backend may leave its daemons out.
    let has_no_daemon = planned.is_some_and(|arm| arm.backend.daemons == 0 && arm.backend.file.is_none());
    if has_no_daemon && pass.cpu.daemon_ns > 0 {
        wrong("cpu.daemon_ns", &pass.cpu.daemon_ns, &format!("0: by the plan, {} has no daemon", pass.arm));
    }
    let skipped = plan
        .skipped
        .iter()
        .find(|cell| cell.arm == pass.arm && cell.workload == pass.workload && cell.state == pass.state);
    if let Some(skipped) = skipped {
        wrong("arm", &pass.arm, &format!("the plan skips this cell: {}", skipped.reason));
    }
    let ok = pass.outcomes.get(&Outcome::Ok).copied().unwrap_or(0);
    let all: u64 = pass.outcomes.values().sum();
    let is_ok = pass.outcome == Outcome::Ok;
    let has_calls = plan.workloads.iter().any(|one| one.name == pass.workload && !one.calls.is_empty());
    if is_ok && (ok != all || all == 0 && has_calls) {
        wrong("outcome", &pass.outcome, &format!("{} of {all} calls did not end well", all - ok));
    }
    if is_ok != pass.reason.is_none() {
        let reason = pass.reason.as_deref().unwrap_or("none");
        wrong("reason", &reason, &format!("outcome {}", pass.outcome));
    }
    let counted: u64 = pass.calls.values().map(|calls| calls.count).sum();
    let timed: u64 = pass.calls.values().map(|calls| calls.total_ns).sum();
    if counted > ok {
        wrong("calls", &counted, &format!("at most {ok}, by field `outcomes`"));
    }
    let fits = if counted == ok { pass.makespan_ns == timed } else { pass.makespan_ns >= timed };
    if !fits {
        wrong("makespan_ns", &pass.makespan_ns, &timed);
    }
    if pass.waited_ns < pass.makespan_ns || (is_ok && pass.waited_ns != pass.makespan_ns) {
        wrong("waited_ns", &pass.waited_ns, &pass.makespan_ns);
    }
    if pass.waited_ns / 1000 > pass.took_us {
        wrong("took_us", &pass.took_us, &format!("at least {}", pass.waited_ns / 1000));
    }
    if times_itself(plan, &pass.arm) {
        return;
    }
    // A call that came late may have added its line.
    let edits = pass.calls.get("edit").map_or(0, |calls| calls.count);
    if let Some(settled) = &pass.settled
        && !(edits..=all).contains(&settled.lines)
    {
        wrong("settled.lines", &settled.lines, &format!("{edits} to {all}, by the calls that added them"));
    }
    for (kind, calls) in &pass.calls {
        let (least, most) = total_bounds(calls);
        let is_sorted = calls.p50_ns <= calls.p90_ns && calls.p90_ns <= calls.max_ns;
        if calls.count == 0 || !is_sorted || calls.total_ns < least || calls.total_ns > most {
            wrong(
                &format!("calls.{kind}"),
                &format!(
                    "count {}, sum {} ns, p50 {} ns, p90 {} ns, maximum {} ns",
                    calls.count, calls.total_ns, calls.p50_ns, calls.p90_ns, calls.max_ns
                ),
                &format!("these percentiles need a sum of {least} to {most} ns"),
            );
        }
    }
}

/// Whether the arm is a program that times its own calls, and passes on a summary of them, without histograms.
fn times_itself(plan: &Plan, arm: &str) -> bool {
    plan.arm(arm).is_some_and(|arm| arm.backend.name == "fio")
}

/// The calls at or below a quantile, as histograms count them.
fn at_quantile(count: u64, quantile: f64) -> u64 {
    ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// The calls at or below the median and the 90th percentile.
fn ranks(calls: &Calls) -> (u64, u64) {
    (at_quantile(calls.count, 0.5), at_quantile(calls.count, 0.9))
}

/// The least and the largest sum that calls with these percentiles can have. Percentiles are rounded to three digits.
fn total_bounds(calls: &Calls) -> (u64, u64) {
    let (half, most) = ranks(calls);
    let (to_most, above) = (most - half, calls.count.saturating_sub(most));
    let sum = |parts: [(u64, u64); 3]| {
        let products = parts.map(|(count, ns)| count.saturating_mul(ns));
        products.into_iter().fold(0, u64::saturating_add)
    };
    let low = |ns: u64| ns - ns / 500;
    let high = |ns: u64| ns.saturating_add(ns / 500 + 1);
    let [p50, p90, max] = [calls.p50_ns, calls.p90_ns, calls.max_ns];
    (
        sum([(to_most, low(p50)), (above, low(p90)), (1, low(max))]),
        sum([(half, high(p50)), (to_most, high(p90)), (above, high(max))]),
    )
}

/// Passes are numbered in the order in which they were made, in ascending epochs, and do not overlap in time.
fn check_order(run: &Run, found: &mut Vec<Discrepancy>) {
    let mut wrong = |line: usize, pass: &Sample, field: &str, recomputed: String| {
        let stated = match field {
            "order" => pass.order,
            "epoch" => u64::from(pass.epoch),
            _ => pass.started_ms,
        };
        let row = pass_row(line, pass);
        found.push(Discrepancy::new(SAMPLES, row, field, stated, recomputed));
    };
    for (line, pass) in (1..).zip(&run.samples) {
        let expected = line as u64 - 1;
        if pass.order != expected {
            // Every later number differs, too.
            let why = format!("{expected}: a pass is missing, was added or was moved");
            wrong(line, pass, "order", why);
            break;
        }
    }
    let mut last: Option<&Sample> = None;
    for (line, pass) in (1..).zip(&run.samples) {
        if let Some(last) = last {
            if pass.epoch < last.epoch {
                let why = format!("at least {}, as in the line before", last.epoch);
                wrong(line, pass, "epoch", why);
            }
            let ended = last.started_ms + last.took_us / 1000;
            if pass.epoch == last.epoch && made_calls(pass) && pass.started_ms + 1 < ended {
                let why = format!("at least {ended}, when the pass before it ended");
                wrong(line, pass, "started_ms", why);
            }
        }
        if made_calls(pass) {
            last = Some(pass);
        }
    }
}

/// The rounds of a cell of an epoch: for each arm its rounds.
#[derive(Default)]
struct Rounds<'a> {
    /// Whether passes of a timed round are busy, by round.
    busy: BTreeMap<u32, BTreeMap<bool, (usize, &'a Sample)>>,
    arms: BTreeMap<&'a str, BTreeSet<u32>>,
    all: BTreeSet<u32>,
    /// How long the first timed round took each arm, in microseconds; with its number.
    first_timed: Option<(u32, BTreeMap<&'a str, u64>)>,
}

impl<'a> Rounds<'a> {
    fn note_first(&mut self, pass: &'a Sample) {
        let first = self.first_timed.as_ref().map(|(round, _)| *round);
        if first.is_none_or(|round| pass.round < round) {
            self.first_timed = Some((pass.round, BTreeMap::new()));
        }
        if let Some((round, took)) = &mut self.first_timed
            && *round == pass.round
        {
            took.insert(&pass.arm, pass.took_us);
        }
    }

    /// The rounds between two passes of an arm, by its time in the first timed round; both neighbours of a time at an edge.
    fn strides(&self, arm: &str) -> BTreeSet<u32> {
        let Some((_, took)) = &self.first_timed else {
            return BTreeSet::new();
        };
        let mut all: Vec<u64> = took.values().copied().collect();
        all.sort_unstable();
        let Some(own) = took.get(arm) else {
            return BTreeSet::new();
        };
        let times = *own as f64 / all[all.len() / 2] as f64 / SLOWER;
        let strides = [0.999, 1.0, 1.001].map(|near| (times * near) as u32);
        strides.map(|stride| stride.clamp(1, MOST_STRIDE)).into()
    }
}

/// How much slower than the middle arm one is for each round that it skips.
const SLOWER: f64 = 1.5;

/// The most rounds between two passes of an arm that is slower than the others.
const MOST_STRIDE: u32 = 4;

fn check_rounds(run: &Run, groups: &BTreeMap<GroupKey<'_>, Group<'_>>, found: &mut Vec<Discrepancy>) {
    let mut cells: BTreeMap<(u32, &str, &str), Rounds<'_>> = BTreeMap::new();
    for ((epoch, workload, state, arm), passes) in groups {
        let cell = cells.entry((*epoch, workload, state)).or_default();
        for (line, pass) in passes.iter().filter(|(_, pass)| made_calls(pass)) {
            if !cell.arms.entry(*arm).or_default().insert(pass.round) {
                let row = pass_row(*line, pass);
                let why = "the arm has another pass in this round";
                found.push(Discrepancy::new(SAMPLES, row, "round", pass.round, why));
            }
            cell.all.insert(pass.round);
            if !pass.warm_up {
                cell.note_first(pass);
                let round = cell.busy.entry(pass.round).or_default();
                round.entry(pass.load.busy.is_some()).or_insert((*line, *pass));
            }
        }
    }
    let ended: BTreeSet<u32> = run.epochs.iter().map(|epoch| epoch.epoch).collect();
    for ((epoch, workload, state), cell) in &cells {
        for (line, pass) in cell.busy.values().filter(|round| round.len() > 1).filter_map(|round| round.get(&false)) {
            found.push(Discrepancy::new(
                SAMPLES,
                pass_row(*line, pass),
                "load.busy",
                "none",
                "a pass of this round was busy, and one busy pass makes its round busy",
            ));
        }
        for (arm, rounds) in &cell.arms {
            let passes = &groups[&(*epoch, *workload, *state, *arm)];
            // An arm without its workspace makes no more passes.
            let is_lost = passes.iter().any(|(_, pass)| {
                matches!(pass.outcome, Outcome::Hang | Outcome::Crash | Outcome::Setup | Outcome::Infra)
            });
            if let Some(missing) = missing_round(&cell.all, rounds, &cell.strides(arm), is_lost)
                && ended.contains(epoch)
            {
                let (line, pass) = passes[passes.len() - 1];
                found.push(Discrepancy::new(
                    SAMPLES,
                    pass_row(line, pass),
                    "round",
                    format!("{} passes of {arm}", rounds.len()),
                    format!("a pass of {arm} in round {missing}, which other arms have"),
                ));
            }
        }
    }
}

/// The first round that an arm lacks. From some round on, a slow arm takes part in every second, third or fourth one, and a
/// lost one in none.
fn missing_round(all: &BTreeSet<u32>, own: &BTreeSet<u32>, strides: &BTreeSet<u32>, is_lost: bool) -> Option<u32> {
    let last_own = own.last().copied().unwrap_or(0);
    let expected = all.iter().copied().filter(|round| !is_lost || *round <= last_own);
    let expected: Vec<u32> = expected.collect();
    let missing = expected.iter().copied().find(|round| !own.contains(round))?;
    let fits = |stride: u32| {
        expected
            .iter()
            .filter(|round| **round >= missing)
            .all(|round| own.contains(round) == round.is_multiple_of(stride))
    };
    let mut slow = strides.iter().copied().filter(|stride| *stride > 1);
    if slow.any(fits) { None } else { Some(missing) }
}

/// Whether calls that ended well count although others of their pass did not: in workloads of two hosts.
fn has_two_hosts(run: &Run, workload: &str) -> bool {
    let planned = run.plan.workload(workload);
    planned.is_some_and(|planned| planned.calls.contains_key("handoff"))
        || run.samples.iter().any(|pass| pass.workload == workload && pass.settled.is_some())
}

fn check_cells(run: &Run, groups: &BTreeMap<GroupKey<'_>, Group<'_>>, found: &mut Vec<Discrepancy>) {
    let workloads: BTreeSet<&str> = run.cells.iter().map(|cell| &*cell.workload).collect();
    let two_hosts: BTreeSet<&str> = workloads.iter().copied().filter(|workload| has_two_hosts(run, workload)).collect();
    let counts: BTreeSet<&str> =
        run.cells.iter().filter(|cell| cell.counted.passes > 0).map(|cell| &*cell.workload).collect();
    let mut known = BTreeSet::new();
    for (line, cell) in (1..).zip(&run.cells) {
        let key = (cell.epoch, &*cell.workload, &*cell.state, &*cell.arm);
        let row = || cell_row(line, cell);
        let mut wrong = |field: &str, stated: &dyn Display, recomputed: &dyn Display| {
            found.push(Discrepancy::new(CELLS, row(), field, stated, recomputed));
        };
        if !known.insert(key) {
            wrong("epoch", &cell.epoch, &"another line has this cell");
        }
        let none = Vec::new();
        let passes = groups.get(&key).unwrap_or(&none);
        if passes.is_empty() {
            wrong("arm", &cell.arm, &format!("{SAMPLES} has no pass of it"));
            continue;
        }
        let counts_requests = run.plan.arm(&cell.arm).is_some_and(|arm| arm.backend.counts_requests);
        // A third-party backend may have counters of its own.
        let has_requests = cell.counted.daemon.as_ref().is_some_and(|daemon| !daemon.fuse.is_empty());
        if has_requests && !counts_requests {
            wrong("counted.daemon.fuse", &"requests", &format!("none: by the plan, {} counts no requests", cell.arm));
        }
        let counts_all = two_hosts.contains(&*cell.workload);
        let timed = passes.iter().map(|(_, pass)| *pass);
        let timed = timed.filter(|pass| !pass.warm_up && (counts_all || pass.outcome == Outcome::Ok));
        let timed: Vec<&Sample> = timed.collect();
        let timed_us = timed.iter().map(|pass| pass.makespan_ns).sum::<u64>() / 1000;
        if cell.timed_us != timed_us {
            wrong("timed_us", &cell.timed_us, &timed_us);
        }
        let took_ms = passes.iter().map(|(_, pass)| pass.took_us).sum::<u64>() / 1000;
        let were_made = passes.iter().all(|(_, pass)| made_calls(pass));
        if were_made && cell.took_ms < took_ms {
            wrong("took_ms", &cell.took_ms, &format!("at least {took_ms}"));
        }
        let quiet = timed.iter().copied();
        let quiet: Vec<&Sample> = quiet.filter(|pass| pass.load.busy.is_none()).collect();
        check_latencies(run, cell, &quiet, &mut wrong);
        check_counts(run, cell, passes, counts.contains(&*cell.workload), &mut wrong);
    }
    let ended: BTreeSet<u32> = run.epochs.iter().map(|epoch| epoch.epoch).collect();
    for (key, passes) in groups.iter().filter(|(key, _)| !known.contains(*key)) {
        let is_lost = passes.iter().any(|(_, pass)| !made_calls(pass));
        if ended.contains(&key.0) && !is_lost {
            let (line, pass) = passes[0];
            let why = format!("{CELLS} has no line of this cell");
            let row = pass_row(line, pass);
            found.push(Discrepancy::new(SAMPLES, row, "arm", key.3, why));
        }
    }
}

/// The calls of the passes are those of the histograms, in number, sum and percentiles.
fn check_latencies(
    run: &Run,
    cell: &CellEpoch,
    passes: &[&Sample],
    wrong: &mut impl FnMut(&str, &dyn Display, &dyn Display),
) {
    let of_passes = passes.iter().flat_map(|pass| pass.calls.keys());
    let kinds: BTreeSet<&String> = of_passes.chain(cell.latencies.keys()).collect();
    if times_itself(&run.plan, &cell.arm) {
        return;
    }
    for kind in kinds {
        let field = format!("latencies.{kind}");
        let calls = passes.iter().filter_map(|pass| pass.calls.get(kind));
        let calls: Vec<&Calls> = calls.collect();
        let count: u64 = calls.iter().map(|calls| calls.count).sum();
        let times = match cell.latencies.get(kind).map(|packed| packed.histogram()) {
            Some(Ok(times)) => times,
            None => {
                wrong(&field, &"no histogram", &format!("{count} calls of the passes"));
                continue;
            }
            // The reader has unpacked it.
            Some(Err(error)) => {
                wrong(&field, &error, &"a histogram");
                continue;
            }
        };
        if times.len() != count {
            wrong(&field, &format!("{} calls", times.len()), &format!("{count} calls of the passes"));
            continue;
        }
        let total: u64 = calls.iter().map(|calls| calls.total_ns).sum();
        let (least, most) = sums(&times);
        if total < least || total > most {
            wrong(
                &field,
                &format!("calls of {least} to {most} ns together"),
                &format!("calls of {total} ns together, by the passes"),
            );
            continue;
        }
        if let Some((at, stated, (low, high))) = percentile_conflict(&times, &calls) {
            wrong(
                &field,
                &format!("{stated} calls of at most {at} ns"),
                &format!("{low} to {high} such calls, by the percentiles of the passes"),
            );
        }
    }
}

/// The least and the largest sum of the times of a histogram, whose values are rounded.
fn sums(times: &Histogram<u64>) -> (u64, u64) {
    let (mut least, mut most) = (0_u64, 0_u64);
    for step in times.iter_recorded() {
        let (value, count) = (step.value_iterated_to(), step.count_at_value());
        least = least.saturating_add(times.lowest_equivalent(value).saturating_mul(count));
        most = most.saturating_add(times.highest_equivalent(value).saturating_mul(count));
    }
    (least, most)
}

/// A time at which a histogram holds more or fewer calls up to it than the percentiles of the passes allow: the time, the
/// histogram's calls, and the least and the most by the passes.
fn percentile_conflict(times: &Histogram<u64>, passes: &[&Calls]) -> Option<(u64, u64, (u64, u64))> {
    let ends = passes.iter().flat_map(|calls| [calls.p50_ns, calls.p90_ns, calls.max_ns]);
    let ends = ends.map(|ns| times.highest_equivalent(ns));
    let ends: BTreeSet<u64> = ends.flat_map(|ns| [times.lowest_equivalent(ns).saturating_sub(1), ns]).collect();
    let mut steps = times.iter_recorded().peekable();
    let mut held = 0;
    for end in ends {
        while let Some(step) = steps.next_if(|step| step.value_iterated_to() <= end) {
            held += step.count_at_value();
        }
        let (mut low, mut high) = (0, 0);
        for calls in passes {
            let (half, most) = ranks(calls);
            let up_to = |ns: u64| times.highest_equivalent(ns) <= end;
            let below = |ns: u64| end < times.lowest_equivalent(ns);
            low += match (up_to(calls.max_ns), up_to(calls.p90_ns), up_to(calls.p50_ns)) {
                (true, ..) => calls.count,
                (_, true, _) => most,
                (_, _, true) => half,
                _ => 0,
            };
            high += match (below(calls.p50_ns), below(calls.p90_ns), below(calls.max_ns)) {
                (true, ..) => half - 1,
                (_, true, _) => most - 1,
                (_, _, true) => calls.count - 1,
                _ => calls.count,
            };
        }
        if held < low || held > high {
            return Some((end, held, (low, high)));
        }
    }
    None
}

/// The counted passes of a cell are the warm-up passes of a hot cell, else the passes.
fn check_counts(
    run: &Run,
    cell: &CellEpoch,
    passes: &Group<'_>,
    is_counted: bool,
    wrong: &mut impl FnMut(&str, &dyn Display, &dyn Display),
) {
    let is_hot = cache_state(&cell.state) == "hot";
    let section = run.plan.section(&cell.workload, &cell.state);
    let warms_up = section.is_some_and(|section| section.warm_up);
    let counts = |pass: &&Sample| match (is_hot, warms_up) {
        (false, _) => true,
        (true, true) => pass.warm_up,
        (true, false) => pass.round == 0,
    };
    let made = passes.iter().map(|(_, pass)| *pass);
    let made = made.filter(|pass| counts(pass) && made_calls(pass));
    let ok: Vec<&Sample> = made.clone().filter(|pass| pass.outcome == Outcome::Ok).collect();
    let counted = &cell.counted;
    if counted.passes == ok.len() as u64 {
        let calls: u64 = ok.iter().flat_map(|pass| pass.outcomes.values()).sum();
        let waited: u64 = ok.iter().map(|pass| pass.waited_ns).sum();
        if counted.calls != calls {
            wrong("counted.calls", &counted.calls, &calls);
        }
        if counted.waited_ns != waited {
            wrong("counted.waited_ns", &counted.waited_ns, &waited);
        }
        return;
    }
    // Content that a model guesses is wrong, but counts.
    let most = made.filter(|pass| pass.outcome <= Outcome::WrongData).count() as u64;
    let may_lack = !is_counted && counted.passes == 0;
    if !may_lack && (counted.passes < ok.len() as u64 || counted.passes > most) {
        wrong("counted.passes", &counted.passes, &ok.len());
    }
}

/// Identical arms have one backend.
fn check_arms(run: &Run, found: &mut Vec<Discrepancy>) {
    for arm in &run.plan.arms {
        let Some(first) = &arm.same_as else { continue };
        let backend = run.plan.arm(first).map(|first| first.backend.name.as_str());
        if backend != Some(&*arm.backend.name) {
            let why = format!("an arm of {}, as {} is", arm.backend.name, arm.name);
            found.push(Discrepancy::new(PLAN, format!("arm {}", arm.name), "same_as", first, why));
        }
    }
}

/// Crash points test what the plan promises.
fn check_promises(run: &Run, found: &mut Vec<Discrepancy>) {
    let ran = (1..).zip(&run.crash_points).filter(|(_, series)| series.status == Status::Ran);
    for (line, series) in ran {
        let promises = run.plan.arm(&series.backend).map(|arm| &arm.backend.promises);
        let promised = promises.and_then(|promises| promises.get(&series.loss));
        if promised.map(String::as_str) != series.audit.promised.as_deref() {
            let words = |promise: Option<&str>| promise.unwrap_or("nothing").to_owned();
            let row = format!("line {line} ({}, {})", series.backend, series.loss);
            let (stated, planned) = (words(series.audit.promised.as_deref()), words(promised.map(String::as_str)));
            let why = format!("{planned}, which the plan promises for this loss");
            found.push(Discrepancy::new(CRASH_POINTS, row, "audit.promised", stated, why));
        }
    }
}

fn check_epochs(run: &Run, found: &mut Vec<Discrepancy>) {
    let mut took: BTreeMap<u32, u64> = BTreeMap::new();
    let mut cells: BTreeMap<u32, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for pass in &run.samples {
        cells.entry(pass.epoch).or_default().insert((&pass.workload, &pass.state));
        if made_calls(pass) {
            *took.entry(pass.epoch).or_default() += pass.took_us;
        }
    }
    let mut last: Option<u32> = None;
    for (line, epoch) in (1..).zip(&run.epochs) {
        let mut wrong = |field: &str, stated: &dyn Display, recomputed: &dyn Display| {
            let row = format!("line {line} (epoch {}, {})", epoch.epoch, epoch.section);
            found.push(Discrepancy::new(EPOCHS, row, field, stated, recomputed));
        };
        if last.is_some_and(|last| epoch.epoch <= last) {
            wrong("epoch", &epoch.epoch, &"a later epoch than the line before");
        }
        last = Some(epoch.epoch);
        let of_epoch = cells.get(&epoch.epoch);
        let measured = of_epoch.map_or(0, BTreeSet::len) as u32;
        if epoch.cells != measured {
            wrong("cells", &epoch.cells, &measured);
        }
        for (workload, state) in of_epoch.into_iter().flatten() {
            let section = run.plan.section(workload, state);
            if let Some(section) = section.filter(|section| section.name != epoch.section) {
                wrong("section", &epoch.section, &section.name);
                break;
            }
        }
        let took_ms = took.get(&epoch.epoch).copied().unwrap_or(0) / 1000;
        if epoch.took_ms < took_ms {
            wrong("took_ms", &epoch.took_ms, &format!("at least {took_ms}"));
        }
        if epoch.took_ms < epoch.hot_ms {
            wrong("hot_ms", &epoch.hot_ms, &format!("at most {}", epoch.took_ms));
        }
        let hot = hot_timed_ms(run, epoch);
        if epoch.hot_timed_ms != hot {
            wrong("hot_timed_ms", &epoch.hot_timed_ms, &hot);
        }
    }
}

fn hot_timed_ms(run: &Run, epoch: &Epoch) -> u64 {
    let hot = run.cells.iter().filter(|cell| {
        cell.epoch == epoch.epoch && cache_state(&cell.state) == "hot" && run.plan.compares(&cell.workload, &cell.state)
    });
    hot.map(|cell| cell.timed_us).sum::<u64>() / 1000
}

/// Each arm has one result of each planned probe of an aspect, or none, and as many series of faults as its time allows.
fn check_probes(run: &Run, found: &mut Vec<Discrepancy>) {
    let mut by_arm: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (line, probe) in (1..).zip(&run.probes) {
        let key = (probe.arm.as_str(), probe.aspect.as_str());
        let names = by_arm.entry(key).or_default();
        if names.contains(&probe.name.as_str()) {
            let row = format!("line {line} ({} of {})", probe.aspect, probe.arm);
            let why = "another line has this probe";
            found.push(Discrepancy::new(PROBES, row, "name", &probe.name, why));
        }
        names.push(&probe.name);
    }
    for ((arm, aspect), names) in &by_arm {
        // The probes of an aspect that failed as a whole have one line.
        if names[..] == ["all"] {
            continue;
        }
        let planned: Vec<&String> = match run.plan.probed.get(*aspect) {
            Some(probes) => probes.iter().collect(),
            None if *aspect == CONFORMANCE => run.plan.features.iter().collect(),
            None => Vec::new(),
        };
        for name in planned.into_iter().filter(|name| !names.contains(&name.as_str())) {
            let row = format!("{aspect} of {arm}");
            let why = format!("{name:?}, a probe of the plan");
            found.push(Discrepancy::new(PROBES, row, "name", "no line", why));
        }
    }
    let mut faults: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (order, fault) in (0..).zip(&run.faults) {
        if fault.order != order {
            let row = format!("line {} ({} on {})", order + 1, fault.scenario, fault.arm);
            found.push(Discrepancy::new(FAULTS, row, "order", fault.order, order));
        }
        *faults.entry((&fault.scenario, &fault.arm)).or_default() += 1;
    }
    for ((scenario, arm), count) in &faults {
        let mut arms_by_count: BTreeMap<usize, usize> = BTreeMap::new();
        for ((_, _), other) in faults.iter().filter(|((other, _), _)| other == scenario) {
            *arms_by_count.entry(*other).or_default() += 1;
        }
        // Most arms have one series. A view has as many as there is time for.
        let most_arms = arms_by_count.iter().max_by_key(|(_, arms)| **arms);
        let series = most_arms.map_or(1, |(count, _)| *count).max(1);
        // A scenario that failed as a whole has one line.
        if *count % series != 0 && *count > 1 {
            let row = format!("{scenario} on {arm}");
            let why = format!("{series} or a multiple, as on other arms");
            found.push(Discrepancy::new(FAULTS, row, "lines", count, why));
        }
    }
}

fn check_policy(run: &Run, found: &mut Vec<Discrepancy>) {
    let stated = run.plan.policy.as_ref();
    let sha256 = run.policy.as_deref().map(verdicts::decide::identity);
    if stated.map(|policy| &policy.sha256) != sha256.as_ref() {
        let stated = stated.map_or("none", |policy| &policy.sha256);
        let sha256 = sha256.unwrap_or_else(|| "none".to_owned());
        let row = format!("SHA-256 of {POLICY}");
        found.push(Discrepancy::new(PLAN, row, "policy.sha256", stated, sha256));
    }
}

#[cfg(test)]
mod tests;
