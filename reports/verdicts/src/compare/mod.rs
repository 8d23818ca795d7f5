//! Compares the same arms at two times: an old run with one or several new ones, or two commits.
//! Times are compared by their ratio to the baseline of their own run, because the machine's speed drifts.
//! Comparing the arms of one run is in `rank`; whether runs may be compared is in `comparable`.

mod comparable;
mod counts;
mod gate;
mod harm;
mod scores;

use std::collections::BTreeMap;

use rundir::{Outcome, Run};
use schemars::JsonSchema;
use serde::Serialize;
use stats::{
    BoundedLogRatio, Interval, LEVEL, MIN_EPOCHS, Margin, Ratios, SeriesKey, Verdict, baselines, compared_with, holm,
    margin, median, pool,
};

pub use comparable::differences;
pub use counts::CountChange;
use counts::{CountTally, counts};
pub use gate::Gate;
pub use harm::HarmChange;
use harm::{UncheckedArm, harm_changes};
pub use scores::ScoreChange;
use scores::scores;

use crate::claims::{ClaimResult, ClaimStatus};
pub use crate::measure::machine_differences;
use figures::evidence::RunEvidence;
use figures::text::time;

/// The chance of any wrong verdict among all cells of a comparison.
pub const ALPHA: f64 = 1.0 - LEVEL;

/// The changes from an old run to new ones.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunComparison {
    /// The old run.
    pub old: RunName,
    /// The new runs; their epochs count as one run's.
    pub new: Vec<RunName>,
    /// Cells of every arm but the baseline, in the old plan's order.
    pub cells: Vec<CellChange>,
    /// The baseline's own times: changes of the machine, not of an arm.
    pub drift: Vec<CellChange>,
    /// Identical arms, which nothing can have changed.
    pub identical: Vec<CellChange>,
    /// Counts that differ.
    pub counts: Vec<CountChange>,
    /// How many counts both sides have.
    pub counts_compared: CountTally,
    /// Tokens, answers and delays that differ beyond the margin.
    pub scores: Vec<ScoreChange>,
    /// How many of them both sides have.
    pub scores_compared: usize,
    /// Harm that only one side does.
    pub harms: Vec<HarmChange>,
    /// How many kinds of harm both sides looked for.
    pub harms_compared: usize,
    /// What only the old run checked, by arm and kind of check.
    pub unchecked: Vec<UncheckedArm>,
    /// Cells with other shares of failed passes.
    pub failures: Vec<FailureChange>,
    /// Claims whose status changed.
    pub claims: Vec<ClaimChange>,
    /// Cells that only one side has.
    pub missing: Vec<String>,
    /// Those that the plan of both sides has, and only the old run measured.
    #[serde(skip)]
    pub gone: Vec<String>,
    /// The differences between machines or plans, if the user compares them all the same.
    pub mixed: Vec<String>,
    /// The runs whose machine was busy, and what that means.
    pub busy: Vec<String>,
    /// Notes that a reader needs before any figure.
    pub notes: Vec<String>,
}

/// A run in a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunName {
    /// The run directory.
    pub dir: String,
    /// Its report, if it was made.
    pub report: Option<String>,
    /// When it was planned, in UTC.
    pub created: String,
    /// The version of ctxbench that made it.
    pub ctxbench: String,
}

impl RunName {
    fn of(run: &Run) -> Self {
        Self {
            dir: run.dir.display().to_string(),
            report: Some(run.dir.join("report.html"))
                .filter(|report| report.exists())
                .map(|report| report.display().to_string()),
            created: run.plan.created.clone(),
            ctxbench: run.plan.ctxbench.clone(),
        }
    }
}

/// One cell of one arm, old and new.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CellChange {
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The operation.
    pub metric: String,
    /// The old ratio to the baseline; of the baseline itself the time in nanoseconds.
    pub old: f64,
    /// The typical ratio in the new runs.
    pub new: f64,
    /// The arm's own time in the old run, in nanoseconds.
    pub old_ns: f64,
    /// The arm's own time in the new runs, in nanoseconds.
    pub new_ns: f64,
    /// Failed passes and all passes of the old run: the times are of the others.
    pub old_failed: (u64, u64),
    /// The same of the new runs.
    pub new_failed: (u64, u64),
    /// The new ratio over the old one.
    pub ratio: f64,
    /// Its 99 % interval, not corrected for the number of cells; widened if a machine was busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The margin.
    pub margin: Margin,
    /// The p-value of "no difference beyond the margin", corrected by Holm for all cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The smallest ratio that would have been found with a chance of 80 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detectable: Option<f64>,
    /// What the interval says.
    pub verdict: Verdict,
    /// The reason that no verdict is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

impl CellChange {
    /// The cell in words.
    pub fn place(&self) -> String {
        format!("{} {} {}, {}", self.arm, self.metric, self.workload, self.state)
    }

    /// The arm's own times in words.
    pub fn times(&self) -> String {
        let [new, old] = [self.new_failed, self.old_failed].map(failed_words);
        format!("{}{new}, was {}{old}", time(self.new_ns), time(self.old_ns))
    }
}

/// The share of failed passes behind a time of the others; empty if none failed.
pub fn failed_words((failed, passes): (u64, u64)) -> String {
    match failed {
        0 => String::new(),
        failed => format!(", {failed} of {passes} failed"),
    }
}

/// Failed passes of one arm in one workload and cache state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureChange {
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// Failed passes and all passes, old.
    pub old: (u64, u64),
    /// Failed passes and all passes of the new runs.
    pub new: (u64, u64),
}

impl FailureChange {
    /// Whether a larger share of passes fails now.
    pub fn is_worse(&self) -> bool {
        self.new.0 * self.old.1.max(1) > self.old.0 * self.new.1.max(1)
    }
}

/// A claim that stands otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClaimChange {
    /// The claim.
    pub id: String,
    /// Its status in the old run.
    pub old: ClaimStatus,
    /// Its status in the new runs.
    pub new: ClaimStatus,
    /// The figures that it rests on.
    pub evidence: String,
    /// Whether the new runs, of the same plan, have no figure of it.
    #[serde(skip)]
    pub is_gone: bool,
}

impl ClaimChange {
    /// Whether a claim was confirmed and is no longer, by evidence or because there is none.
    pub fn is_lost(&self) -> bool {
        let is_other = matches!(self.new, ClaimStatus::Refuted | ClaimStatus::Conditional);
        self.old == ClaimStatus::Confirmed && (is_other || self.is_gone)
    }
}

impl RunComparison {
    /// Cells with this verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &CellChange> {
        self.cells.iter().filter(move |cell| cell.verdict == verdict)
    }

    /// The median of the smallest ratios that would have been found; `None` if nothing could be tested.
    pub fn detectable(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.cells.iter().filter_map(|cell| cell.detectable).collect();
        median(&mut all)
    }
}

/// Both sides of a cell before it is judged.
struct Pair {
    change: CellChange,
    log_ratio: Option<BoundedLogRatio>,
}

/// Compares an old run with new ones.
///
/// # Errors
/// A message that names what differs between the machines or plans, unless `allow_mixed`, or the run that
/// measured nothing.
pub fn compare(
    old: &RunEvidence<'_>,
    new: &[RunEvidence<'_>],
    judged: (&[ClaimResult], &[ClaimResult]),
    allow_mixed: bool,
) -> Result<RunComparison, String> {
    let Some(first) = new.first() else {
        return Err("no new run was given".to_owned());
    };
    let mut mixed = Vec::new();
    for run in std::iter::once(old).chain(new) {
        if let Some(why) = run.run.plan.measures_nothing() {
            return Err(format!("{}: {why}", run.run.dir.display()));
        }
    }
    for run in new {
        let found = differences(old.run, run.run);
        if !allow_mixed && !found.is_empty() {
            return Err(format!(
                "{} differs from {} (old and new): {}\n  fix: compare runs of one plan on one machine, or add --mixed",
                run.run.dir.display(),
                old.run.dir.display(),
                found.join("; ")
            ));
        }
        mixed.extend(found);
    }
    mixed.dedup();
    let (mut pairs, mut missing) = (Vec::new(), Vec::new());
    let mut keys: Vec<&SeriesKey> = old.table().0.keys().collect();
    let places = old.run.plan.workloads.iter().map(|workload| workload.name.as_str());
    let places: Vec<&str> = places.collect();
    keys.sort_by_key(|key| places.iter().position(|name| *name == key.workload));
    let is_compared = |key: &&SeriesKey| key.is_main() && old.run.plan.compares(&key.workload, &key.state);
    for key in keys.into_iter().filter(is_compared) {
        for arm in &old.run.plan.arms {
            match pair(old, new, key, &arm.name) {
                Some(pair) => pairs.push(pair),
                // Without a baseline, neither run has a ratio, so the new one lacks none.
                None if has(old, key, &arm.name)
                    && (ratios(old, key, &arm.name).is_some() || !new.iter().all(|run| has(run, key, &arm.name))) =>
                {
                    missing.push(only(key, &arm.name, "old"));
                }
                None => {}
            }
        }
    }
    let gone = if mixed.is_empty() { missing.clone() } else { Vec::new() };
    for key in first.table().0.keys().filter(|key| key.is_main()) {
        for arm in &first.run.plan.arms {
            if has(first, key, &arm.name) && !has(old, key, &arm.name) {
                missing.push(only(key, &arm.name, "new"));
            }
        }
    }
    let (old_failed, new_failed) = (failed(std::slice::from_ref(old)), failed(new));
    for pair in &mut pairs {
        let change = &mut pair.change;
        let place = (&*change.arm, &*change.workload, &*change.state);
        let counts = [&old_failed, &new_failed].map(|counts| counts.get(&place).copied().unwrap_or_default());
        [change.old_failed, change.new_failed] = counts;
    }
    let (baseline, aa_arm) = baselines(&old.run.plan);
    let is_baseline = |pair: &Pair| pair.change.arm == baseline;
    let (drift, pairs): (Vec<Pair>, Vec<Pair>) = pairs.into_iter().partition(is_baseline);
    let is_identical = |pair: &Pair| Some(&pair.change.arm) == aa_arm.as_ref();
    let (identical, pairs): (Vec<Pair>, Vec<Pair>) = pairs.into_iter().partition(is_identical);
    let busy = std::iter::once(old).chain(new).filter_map(|run| {
        let note = run.summary.health.busy_note()?;
        Some(format!("{}: {note}", run.run.dir.display()))
    });
    let busy: Vec<String> = busy.collect();
    let identical = judge(identical);
    let mut notes = vec![format!(
        "{}, and {}. An interval contains what varies between epochs of these runs, not what varies between days: compare with a second old run before acting on a small difference.",
        old.summary.health.epochs_in_words(),
        new.iter().map(|run| run.summary.health.epochs_in_words()).collect::<Vec<_>>().join(", and ")
    )];
    let moved = identical.iter().filter(|cell| is_decided(cell)).count();
    if !identical.is_empty() {
        notes.push(format!("A/A check: {moved} of {} cells call identical arms changed.", identical.len()));
    }
    let (counts, counts_compared) = counts(old.run, &runs(new));
    let scores = scores(old, new, old.run.plan.margins.relative);
    let harm = harm_changes(old.run, &runs(new), scores.unchecked);
    Ok(RunComparison {
        old: RunName::of(old.run),
        new: new.iter().map(|run| RunName::of(run.run)).collect(),
        cells: judge(pairs),
        drift: judge(drift),
        identical,
        counts,
        counts_compared,
        scores: scores.changes,
        scores_compared: scores.compared,
        harms: harm.changes,
        harms_compared: harm.tried,
        unchecked: harm.unchecked,
        failures: failures(&old_failed, &new_failed),
        claims: claims(judged.0, judged.1, mixed.is_empty()),
        missing,
        gone,
        mixed,
        busy,
        notes,
    })
}

fn runs<'a>(evidence: &[RunEvidence<'a>]) -> Vec<&'a Run> {
    evidence.iter().map(|one| one.run).collect()
}

/// The note on a cell that only one side has.
fn only(key: &SeriesKey, arm: &str, side: &str) -> String {
    let SeriesKey { workload, state, metric } = key;
    format!("{arm} {metric} {workload}, {state}: only the {side} run has it")
}

fn is_decided(cell: &CellChange) -> bool {
    matches!(cell.verdict, Verdict::Better | Verdict::Worse)
}

fn has(run: &RunEvidence<'_>, key: &SeriesKey, arm: &str) -> bool {
    let arms = run.table().0.get(key);
    arms.is_some_and(|arms| arms.contains_key(arm))
}

/// An arm's ratios to the arms that it is compared with; for the baseline, its times.
fn ratios(run: &RunEvidence<'_>, key: &SeriesKey, arm: &str) -> Option<Ratios> {
    let (baseline, aa_arm) = baselines(&run.run.plan);
    if arm == baseline {
        return run.table().times(key, arm);
    }
    let with = compared_with(&run.run.plan, arm);
    let with: Vec<&str> = with.iter().map(String::as_str).collect();
    let identical = aa_arm.as_deref().map(|aa_arm| (baseline.as_str(), aa_arm));
    run.table().ratios(key, arm, &with, identical)
}

/// The mean of an arm's own times, in nanoseconds.
fn own_ns(runs: &[&RunEvidence<'_>], key: &SeriesKey, arm: &str) -> Option<f64> {
    let times = runs.iter().map(|run| run.table().times(key, arm));
    let times: Option<Vec<Ratios>> = times.collect();
    let epochs: Vec<Vec<f64>> = times?.into_iter().flat_map(|one| one.measured).collect();
    Some(pool(&epochs)?.mean.exp())
}

fn pair(old: &RunEvidence<'_>, new: &[RunEvidence<'_>], key: &SeriesKey, arm: &str) -> Option<Pair> {
    let before = ratios(old, key, arm)?;
    let mut after = Ratios::default();
    for run in new {
        after.append(ratios(run, key, arm)?);
    }
    let (old_ratio, new_ratio) = (pool(&before.measured)?.mean, pool(&after.measured)?.mean);
    let log_ratio = BoundedLogRatio::of(&[(1.0, &after), (-1.0, &before)]);
    let has_levels = std::iter::once(old).chain(new).any(|run| {
        let cell = run.summary.cell(&key.workload, &key.state, &key.metric, arm);
        cell.is_some_and(|cell| cell.modes.is_some())
    });
    let epochs = before.measured.len().min(after.measured.len());
    let withheld = match log_ratio {
        None if epochs < MIN_EPOCHS => Some("too few epochs"),
        None => Some("a busy machine, and no record of what waited for it"),
        Some(_) if has_levels => Some("two levels, with different verdicts"),
        Some(_) => None,
    };
    Some(Pair {
        change: CellChange {
            arm: arm.to_owned(),
            workload: key.workload.clone(),
            state: key.state.clone(),
            metric: key.metric.clone(),
            old: old_ratio.exp(),
            new: new_ratio.exp(),
            old_ns: own_ns(&[old], key, arm)?,
            new_ns: own_ns(&new.iter().collect::<Vec<_>>(), key, arm)?,
            old_failed: (0, 0),
            new_failed: (0, 0),
            ratio: (new_ratio - old_ratio).exp(),
            interval: log_ratio.map(|found| found.interval(ALPHA).map(f64::exp)),
            margin: margin(&old.run.plan, key, typical(old, key)?),
            p: None,
            detectable: None,
            verdict: Verdict::Undecided,
            withheld: withheld.map(str::to_owned),
        },
        log_ratio,
    })
}

/// The typical time of the baseline in a cell, in nanoseconds.
fn typical(run: &RunEvidence<'_>, key: &SeriesKey) -> Option<f64> {
    let arms = run.table().0.get(key)?;
    let baseline = arms.get(&baselines(&run.run.plan).0).or_else(|| arms.values().next());
    median(&mut baseline?.values().copied().collect::<Vec<_>>())
}

/// Gives cells their verdicts, corrected for their number.
fn judge(pairs: Vec<Pair>) -> Vec<CellChange> {
    let edge = |pair: &Pair| pair.change.margin.ratio.ln();
    let sides = pairs.iter().map(|pair| pair.log_ratio.map_or((1.0, 1.0), |found| found.p_beyond(edge(pair))));
    let sides: Vec<(f64, f64)> = sides.collect();
    let p = sides.iter().map(|(above, below)| above.min(*below));
    let p = holm(&p.collect::<Vec<_>>());
    let tests = pairs.iter().filter(|pair| pair.log_ratio.is_some()).count().max(1) as f64;
    let judged = pairs.into_iter().zip(sides).zip(p);
    let judged = judged.map(|((pair, (above, below)), p)| {
        let edge = edge(&pair);
        let mut change = pair.change;
        let Some(log_ratio) = pair.log_ratio else {
            return change;
        };
        change.p = Some(p);
        // The first step of Holm's procedure is the strictest.
        change.detectable = Some(log_ratio.detectable(edge, ALPHA / tests).exp());
        if change.withheld.is_some() {
            return change;
        }
        let inside = change.margin.verdict(log_ratio.interval(ALPHA));
        change.verdict = match inside {
            _ if p <= ALPHA && above < below => Verdict::Worse,
            _ if p <= ALPHA => Verdict::Better,
            // Without the correction for the number of cells an interval decides nothing but that it is inside.
            Verdict::Worse | Verdict::Better => Verdict::Undecided,
            inside => inside,
        };
        change
    });
    judged.collect()
}

/// Failed passes and all passes, by arm, workload and cache state.
type FailedCounts<'a> = BTreeMap<(&'a str, &'a str, &'a str), (u64, u64)>;

fn failed<'a>(runs: &[RunEvidence<'a>]) -> FailedCounts<'a> {
    let mut all = FailedCounts::new();
    let passes = runs.iter().flat_map(|run| &run.run.samples);
    for sample in passes.filter(|sample| sample.outcome != Outcome::Skipped) {
        let counts = all.entry((&*sample.arm, &*sample.workload, &*sample.state)).or_default();
        counts.0 += u64::from(sample.outcome != Outcome::Ok);
        counts.1 += 1;
    }
    all
}

fn failures(old: &FailedCounts<'_>, new: &FailedCounts<'_>) -> Vec<FailureChange> {
    let changes = new.iter().filter_map(|(place, new)| {
        let (old, new) = (old.get(place).copied()?, *new);
        (old.0 + new.0 > 0).then(|| FailureChange {
            arm: place.0.to_owned(),
            workload: place.1.to_owned(),
            state: place.2.to_owned(),
            old,
            new,
        })
    });
    changes.collect()
}

fn claims(old: &[ClaimResult], new: &[ClaimResult], is_one_plan: bool) -> Vec<ClaimChange> {
    let changes = new.iter().filter_map(|now| {
        let before = old.iter().find(|claim| claim.id == now.id)?;
        (before.status != now.status).then(|| ClaimChange {
            id: now.id.clone(),
            old: before.status,
            new: now.status,
            evidence: now.evidence.clone(),
            is_gone: is_one_plan && !now.has_figures,
        })
    });
    changes.collect()
}
