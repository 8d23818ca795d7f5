//! The health of a run: epochs, load of the machine and the A/A check.
//! It also withholds the verdicts that the run cannot support.

use std::collections::BTreeMap;

use rundir::faults::POWER_LOSS;
use rundir::{Epoch, Journal, LOAD_PROCESS, Outcome, Plan, Run};
use schemars::JsonSchema;
use serde::Serialize;
use stats::{
    Comparison, MAKESPAN, MIN_EPOCHS, SeriesKey, Table, Verdict, baselines, compared_with, median, ratios_by_level,
};

use super::{Cell, FLOOR, void as void_epochs};
use crate::text::difference;

/// Kinds of calls whose time on a file system without a journal depends on earlier deletions.
const NEED_A_JOURNAL: [&str; 6] = ["create", "delete", "fsync", "sync", "sync-new", "sync-overwritten"];

/// Kinds of calls that do nothing but make files durable, or overwrite one and make it durable.
pub const SYNCS: [&str; 4] = ["fsync", "sync", "sync-new", "sync-overwritten"];

/// The reason for a withheld verdict on an arm whose syncs promise less than those of the baseline.
/// The half-width of an interval, as a ratio, above which the run is called imprecise.
const TOO_WIDE: f64 = 2.0;
const WEAKER_SYNC: &str = "its sync survives no power loss";

/// The reason for a withheld verdict in a cell with two levels.
const TWO_LEVELS: &str = "two levels, with different verdicts";

/// The health of a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Health {
    /// Number of valid epochs of all sections.
    pub epochs: usize,
    /// The sections, in the plan's order.
    pub sections: Vec<SectionHealth>,
    /// Void epochs, with the reason.
    pub void: BTreeMap<u32, String>,
    /// Number of timed passes.
    pub passes: usize,
    /// Timed passes outside the plan's limits of a quiet machine.
    pub busy_passes: usize,
    /// The exceeded limits, with the number of passes.
    pub busy: BTreeMap<String, usize>,
    /// Whether more passes were busy than the plan allows. Busy passes are then in the figures, and intervals are widened
    /// by what other processes can have changed.
    pub is_busy: bool,
    /// Processor time of the other processes that used the most during the epochs, in seconds, by name; the most first.
    pub neighbours: Vec<(String, f64)>,
    /// Shares of time in which a task waited for a processor, for input or output, for memory (PSI): means
    /// over epochs.
    pub stalled: [f64; 3],
    /// Share of processor time that the hypervisor gave to other machines: the mean over epochs.
    pub steal: f64,
    /// Share of timed work in the wall-clock time of hot cells.
    pub hot_timed_share: Option<f64>,
    /// Wall-clock time of all epochs, void ones included, in milliseconds.
    pub took_ms: u64,
    /// The A/A check of each cell.
    pub aa: Vec<AaCell>,
    /// Number of cells whose identical arms are called different.
    pub aa_called_different: usize,
    /// Number of cells whose A/A interval excludes 1; one in a hundred is expected.
    pub aa_excluding_one: usize,
    /// Number of undecided cells of candidates, withheld verdicts included.
    pub undecided: usize,
    /// Number of decided and undecided cells of candidates, by main metric only.
    pub compared: usize,
    /// Half of the interval's width in the median compared cell, as a ratio above 1.
    pub half_width: Option<f64>,
    /// Number of cells of candidates whose times are below what matters; they are not among those compared.
    pub below_what_matters: usize,
    /// Notes that a reader needs before any figure.
    pub notes: Vec<String>,
}

/// A section of the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SectionHealth {
    /// Its name.
    pub name: String,
    /// Number of valid epochs.
    pub epochs: usize,
    /// Wall-clock time of its epochs, void ones included, in milliseconds.
    pub took_ms: u64,
    /// Its budget in the plan, in milliseconds.
    pub budget_ms: u64,
}

/// The identical arms in one cell.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AaCell {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The metric.
    pub metric: String,
    /// The comparison of both arms.
    pub comparison: Comparison,
}

impl Health {
    /// The numbers of valid epochs in words.
    pub fn epochs_in_words(&self) -> String {
        match &self.sections[..] {
            [first, rest @ ..] if !rest.is_empty() => {
                let rest = rest.iter().map(|section| format!("{} of {}", section.epochs, section.name));
                let first = format!("{} epochs of {}", first.epochs, first.name);
                let all: Vec<String> = std::iter::once(first).chain(rest).collect();
                all.join(", ")
            }
            _ => format!("{} epochs", self.epochs),
        }
    }

    /// How far two measurements of the baseline came out apart, and how wide the intervals are, in sentences
    /// without the last full stop. Every page and command says it in these words.
    pub fn identical_arms(&self) -> String {
        let known = self.aa.iter();
        let known = known.filter(|cell| cell.comparison.epochs.len() >= MIN_EPOCHS);
        let all: Vec<&Comparison> = known.map(|cell| &cell.comparison).collect();
        let mut apart: Vec<f64> = all.iter().map(|comparison| comparison.apart()).collect();
        let Some(middle) = median(&mut apart) else {
            return if self.aa.is_empty() {
                "The baseline was not measured twice, so this run cannot say how precise it is".to_owned()
            } else {
                format!(
                    "With fewer than {MIN_EPOCHS} epochs, this run cannot say how far two measurements of the baseline differ, and how wide its intervals are"
                )
            };
        };
        let known = self.aa.iter().filter(|cell| cell.comparison.epochs.len() >= MIN_EPOCHS);
        let worst = known.max_by(|one, other| one.comparison.apart().total_cmp(&other.comparison.apart()));
        let worst = worst.map_or(String::new(), |cell| {
            let apart = difference(cell.comparison.apart());
            format!(", at most by {apart} ({}, {})", cell.workload, cell.state)
        });
        let mut shown: Vec<f64> = all.iter().filter_map(|one| one.half_width).collect();
        let identical = median(&mut shown).map(difference);
        let shown = match (self.half_width.map(difference), identical) {
            _ if self.half_width.is_some_and(|width| width >= TOO_WIDE) => {
                format!(
                    "The intervals are too wide for most verdicts: the median half-width of those of candidates is {}",
                    self.half_width.map(difference).unwrap_or_default()
                )
            }
            (Some(shown), Some(identical)) => {
                format!(
                    "The median half-width of an interval is {shown} ({identical} for the baseline against itself): half of the comparisons cannot show a smaller difference"
                )
            }
            (None, Some(identical)) => {
                format!(
                    "The median half-width of an interval of the baseline against itself is {identical}: half of these comparisons cannot show a smaller difference"
                )
            }
            _ => "How wide the intervals are is unknown".to_owned(),
        };
        let called = match self.aa_called_different {
            0 => String::new(),
            called => {
                format!("; {called} of {} comparisons of the baseline with itself call it different", self.aa.len())
            }
        };
        format!("The baseline, measured twice, differs by {} (median){worst}. {shown}{called}", difference(middle))
    }

    /// The verdicts of the run in a sentence without its full stop.
    pub fn verdicts(&self) -> String {
        let below = match self.below_what_matters {
            0 => String::new(),
            below => format!("; below what matters: {below} more"),
        };
        format!(
            "{} of {} comparisons are undecided (a longer --budget and more --epochs narrow their intervals){below}",
            self.undecided, self.compared
        )
    }

    /// What a busy machine means for the figures, and what to stop. `None` on a quiet machine.
    pub fn busy_note(&self) -> Option<String> {
        if !self.is_busy {
            return None;
        }
        let is_asked_for = self.neighbours.iter().any(|(name, _)| name == LOAD_PROCESS);
        let names = self.neighbours.iter().filter(|(name, _)| name != LOAD_PROCESS);
        let names: Vec<String> =
            names.map(|(name, seconds)| format!("{name} ({seconds:.0} s of processor time)")).collect();
        let names = names.join(", ");
        let advice = match (is_asked_for, names.is_empty()) {
            (true, true) => " `reproduce --load` asked for this load.".to_owned(),
            (true, false) => {
                format!(" `reproduce --load` asked for a load; beside it, these used the processors: {names}.")
            }
            (false, true) => " To get more verdicts, stop the other processes, and measure again.".to_owned(),
            (false, false) => format!(" To get more verdicts, stop {names}, and measure again."),
        };
        Some(format!(
            "This machine was busy in {} of {} passes, because of other work. Intervals are widened by the largest possible effect of that work, and only verdicts that still hold are given.{advice}",
            self.busy_passes, self.passes
        ))
    }
}

/// The most other processes that a note names.
const NEIGHBOURS: usize = 3;

/// The processes beside the run that used the most processor time, in seconds.
fn neighbours(epochs: &[&Epoch]) -> Vec<(String, f64)> {
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    for (name, seconds) in epochs.iter().flat_map(|epoch| &epoch.neighbours) {
        let shown = |c: char| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '+' | ' ' => c,
            _ => '_',
        };
        let name = name.chars().take(32).map(shown).collect();
        *by_name.entry(name).or_default() += seconds;
    }
    let mut all: Vec<(String, f64)> = by_name.into_iter().collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all.truncate(NEIGHBOURS);
    all
}

pub(super) fn health(run: &Run) -> Health {
    let reason = |epoch: u32| {
        let ended = run.epochs.iter().find(|ended| ended.epoch == epoch);
        match ended {
            Some(ended) => ended.void.clone().unwrap_or_default(),
            None => "it is incomplete".to_owned(),
        }
    };
    let void: BTreeMap<u32, String> = void_epochs(run).into_iter().map(|epoch| (epoch, reason(epoch))).collect();
    let timed = run.samples.iter();
    let timed: Vec<_> = timed.filter(|sample| !sample.warm_up && !void.contains_key(&sample.epoch)).collect();
    let mut busy: BTreeMap<String, usize> = BTreeMap::new();
    let outside = timed.iter().filter_map(|sample| sample.load.busy.as_ref());
    let mut busy_passes = 0;
    for reason in outside {
        busy_passes += 1;
        // Remove the figures, so that passes with the same exceeded limit are counted together.
        let what = reason.split(':').next().unwrap_or(reason);
        let what = what.split(" in ").next().unwrap_or(what);
        let what = what.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        *busy.entry(what.to_owned()).or_default() += 1;
    }
    let is_busy = busy_passes as f64 > run.plan.limits.busy_share * timed.len() as f64;
    let counted = run.epochs.iter().filter(|epoch| epoch.void.is_none());
    let counted: Vec<&Epoch> = counted.collect();
    let mean = |of: &dyn Fn(&Epoch) -> f64| {
        let sum: f64 = counted.iter().map(|epoch| of(epoch)).sum();
        sum / counted.len().max(1) as f64
    };
    let hot_ms: u64 = counted.iter().map(|epoch| epoch.hot_ms).sum();
    let hot_timed_ms: u64 = counted.iter().map(|epoch| epoch.hot_timed_ms).sum();
    let sections = sections(run);
    Health {
        epochs: sections.iter().map(|section| section.epochs).sum(),
        sections,
        void,
        passes: timed.len(),
        busy_passes,
        busy,
        is_busy,
        neighbours: neighbours(&counted),
        stalled: [0, 1, 2].map(|at| mean(&|epoch| epoch.stalled[at])),
        steal: mean(&|epoch| epoch.steal),
        hot_timed_share: (hot_ms > 0).then(|| hot_timed_ms as f64 / hot_ms as f64),
        took_ms: run.epochs.iter().map(|epoch| epoch.took_ms).sum(),
        ..Health::default()
    }
}

/// The number of valid epochs that each cell of a section has. Of a merged run, the shards have epochs of their own: the
/// fewest of them.
fn epochs_of_cells(plan: &Plan, epochs: &[&Epoch]) -> usize {
    let mut by_shard: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for epoch in epochs {
        let valid = by_shard.entry(plan.shard_of(epoch.epoch)).or_default();
        *valid += usize::from(epoch.void.is_none());
    }
    by_shard.into_values().min().unwrap_or(0)
}

fn sections(run: &Run) -> Vec<SectionHealth> {
    let sections = run.plan.schedule.sections.iter();
    // A shard may have no cell of a section.
    let sections = sections.filter(|section| run.plan.shard.is_none() || run.plan.budget_ms(section) > 0);
    let sections = sections.map(|section| {
        let epochs = run.epochs.iter();
        let own: Vec<&Epoch> = epochs.filter(|epoch| epoch.section == section.name).collect();
        SectionHealth {
            name: section.name.clone(),
            epochs: epochs_of_cells(&run.plan, &own),
            took_ms: own.iter().map(|epoch| epoch.took_ms).sum(),
            budget_ms: run.plan.budget_ms(section),
        }
    });
    sections.collect()
}

/// Withholds the verdicts that the run cannot support, fills in the A/A check, and adds the notes.
pub(super) fn withhold(run: &Run, health: &mut Health, table: &Table, cells: &mut [Cell]) {
    let has_no_journal = run.environment.scratch.journal == Journal::None;
    let by_means = by_means(run, cells);
    let mut shown: Vec<f64> = Vec::new();
    for cell in cells.iter_mut() {
        let key = cell.key();
        let depends_on_level = |comparison: &Comparison, with: &[&str]| {
            let ratios = ratios_by_level(table, &key, &cell.arm, with);
            !ratios.iter().all(|ratio| holds_at(comparison, *ratio))
        };
        if let Some(comparison) = &mut cell.against_floor
            && depends_on_level(comparison, &[FLOOR])
        {
            comparison.withhold(TWO_LEVELS);
        }
        let is_main = cell.is_main();
        // Not with another arm that the plan names.
        let planned = run.plan.arm(&cell.arm);
        let is_to_baseline = planned.is_none_or(|arm| arm.against.is_none());
        let needs_journal = is_to_baseline && NEED_A_JOURNAL.contains(&cell.metric.as_str());
        let with = compared_with(&run.plan, &cell.arm);
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        let Some(comparison) = &mut cell.against_baseline else {
            continue;
        };
        if has_no_journal && needs_journal {
            comparison.withhold("the scratch has no journal");
        } else if has_weaker_sync(&run.plan, &key, &cell.arm, &with)
            && matches!(comparison.verdict, Verdict::Better | Verdict::Same)
        {
            // Worse is worse, even for less.
            comparison.withhold(WEAKER_SYNC);
        } else if depends_on_level(comparison, &with) {
            comparison.withhold(TWO_LEVELS);
        } else if let Some(by_mean) = by_means.get(&(key.clone(), cell.arm.clone()))
            && let Some(why) = other_side(comparison, *by_mean)
        {
            comparison.withhold(&why);
        }
        if planned.is_some_and(|arm| arm.same_as.is_some()) {
            if is_main {
                health.aa.push(AaCell {
                    workload: cell.workload.clone(),
                    state: cell.state.clone(),
                    metric: cell.metric.clone(),
                    comparison: comparison.clone(),
                });
            }
        } else if is_main {
            if comparison.verdict != Verdict::BelowWhatMatters {
                shown.extend(comparison.half_width);
            }
            match comparison.verdict {
                Verdict::BelowWhatMatters => health.below_what_matters += 1,
                Verdict::Better | Verdict::Worse | Verdict::Same => health.compared += 1,
                Verdict::Undecided => {
                    health.compared += 1;
                    health.undecided += 1;
                }
            }
        }
    }
    health.half_width = median(&mut shown);
    health.aa_called_different =
        health.aa.iter().filter(|cell| matches!(cell.comparison.verdict, Verdict::Better | Verdict::Worse)).count();
    let intervals = health.aa.iter().filter_map(|cell| cell.comparison.interval);
    health.aa_excluding_one = intervals.filter(|interval| interval.low > 1.0 || interval.high < 1.0).count();
    let mut notes = Vec::new();
    notes.extend(shard_note(run));
    notes.extend(machines_note(run, health));
    notes.extend(health.busy_note());
    if has_no_journal {
        notes.push("The scratch has no journal: creating and deleting there depends on what was deleted before, and creating, deleting and syncing get no verdict.".to_owned());
    }
    if let Some(fallback) = &run.environment.scratch.fallback {
        notes.push(format!("The scratch is a plain directory: {fallback}"));
    }
    notes.extend(by_machine(run, cells));
    let is_one = health.sections.len() == 1;
    let partial = health.sections.iter();
    for section in partial.filter(|section| section.epochs < MIN_EPOCHS) {
        let which =
            if is_one { "This is a partial run of".to_owned() } else { format!("Section {} has", section.name) };
        notes.push(format!(
            "{which} {} epochs: without {} there are no intervals and no verdicts.",
            section.epochs, MIN_EPOCHS
        ));
    }
    for (epoch, reason) in &health.void {
        let passes = run.samples.iter().filter(|pass| pass.epoch == *epoch);
        let failed = passes.filter(|pass| !matches!(pass.outcome, Outcome::Ok | Outcome::Skipped));
        let failed = match failed.count() {
            0 => String::new(),
            failed => format!(" {failed} of its passes did not end well."),
        };
        notes.push(format!("Epoch {epoch} is void and does not count: {reason}.{failed}"));
    }
    health.notes = notes;
}

/// Whether the calls of a metric make files durable; in a session, some of its calls.
fn syncs_files(plan: &Plan, workload: &str, metric: &str) -> bool {
    let Some(planned) = plan.workload(workload) else {
        return false;
    };
    let syncs = |kind: &str| SYNCS.contains(&kind) || planned.syncs.iter().any(|name| name == kind);
    match metric {
        MAKESPAN => planned.calls.keys().any(|kind| syncs(kind)),
        kind => syncs(kind),
    }
}

/// Whether an arm's syncs survive a power loss, as its backend promises.
pub fn survives_power_loss(plan: &Plan, arm: &str) -> bool {
    plan.arm(arm).is_some_and(|planned| planned.backend.promises.contains_key(POWER_LOSS))
}

/// Whether a metric contains syncs that promise less on `arm` than on an arm of `with`.
fn has_weaker_sync(plan: &Plan, key: &SeriesKey, arm: &str, with: &[&str]) -> bool {
    syncs_files(plan, &key.workload, &key.metric)
        && !survives_power_loss(plan, arm)
        && with.iter().any(|other| survives_power_loss(plan, other))
}

/// That a run is a part of a plan, or was merged from parts on one machine.
fn shard_note(run: &Run) -> Option<String> {
    let plan = &run.plan;
    match (plan.shard, &plan.merged[..]) {
        (Some(shard), _) => Some(format!(
            "This is shard {shard} of a run: it has {} of the plan's {} cells, and a part of its probes. `ctxbench merge` makes one run of all shards.",
            plan.cells_of_run(),
            plan.cell_count()
        )),
        (None, []) => None,
        (None, merged) => Some(format!(
            "This run was merged from {} shards. Each cell was measured in one of them, together with its own `direct` pair.",
            merged.len()
        )),
    }
}

/// Which machines the shards of a merged run ran on, if there are several, with the A/A check of each.
fn machines_note(run: &Run, health: &Health) -> Option<String> {
    let plan = &run.plan;
    let mut machines: Vec<(&str, Vec<usize>)> = Vec::new();
    for (number, shard) in plan.merged.iter().enumerate() {
        match machines.iter_mut().find(|(machine, _)| *machine == shard.machine) {
            Some((_, shards)) => shards.push(number),
            None => machines.push((&shard.machine, vec![number])),
        }
    }
    if machines.len() < 2 {
        return None;
    }
    let mut shard_of: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for sample in &run.samples {
        if let Some(shard) = plan.shard_of(sample.epoch) {
            shard_of.insert((&sample.workload, &sample.state), shard);
        }
    }
    let words = machines.iter().map(|(machine, shards)| {
        let own = Health {
            aa: health
                .aa
                .iter()
                .filter(|cell| {
                    let shard = shard_of.get(&(cell.workload.as_str(), cell.state.as_str()));
                    shard.is_some_and(|shard| shards.contains(shard))
                })
                .cloned()
                .collect(),
            ..Health::default()
        };
        let numbers: Vec<String> = shards.iter().map(ToString::to_string).collect();
        format!("shard {} on {machine}: {}", numbers.join(", "), own.identical_arms())
    });
    Some(format!(
        "OTHER MACHINES: the shards of this run ran on {} kinds of machines. A ratio compares arms of one machine; times of different cells may be of different machines, and sums of them mix machines. {}.",
        machines.len(),
        words.collect::<Vec<_>>().join(". ")
    ))
}

/// The ratios of the means of all calls, of the arms of cells whose figure is a median. The mean has what rare slow calls add.
fn by_means(run: &Run, cells: &[Cell]) -> BTreeMap<(SeriesKey, String), f64> {
    let mean_ns = |cell: &Cell| Some(cell.typical_ns + cell.tail.as_ref()?.mean_ns);
    let ratios = cells.iter().filter_map(|cell| {
        let with = compared_with(&run.plan, &cell.arm);
        let others = with.iter().map(|arm| {
            let mut all = cells.iter();
            let other = all.find(|other| other.arm == *arm && other.key() == cell.key())?;
            mean_ns(other).filter(|mean| *mean > 0.0)
        });
        let others: Vec<f64> = others.collect::<Option<_>>()?;
        let of_others = others.iter().sum::<f64>() / others.len().max(1) as f64;
        let ratio = mean_ns(cell)? / of_others;
        Some(((cell.key(), cell.arm.clone()), ratio))
    });
    ratios.collect()
}

/// Why a verdict on medians is withheld that the means of all calls contradict; `None` if they do not.
fn other_side(comparison: &Comparison, by_mean: f64) -> Option<String> {
    let margin = comparison.margin.ratio;
    let (is_contradicted, mean) = match comparison.verdict {
        Verdict::Better => (by_mean > margin, "slower"),
        Verdict::Worse => (by_mean < 1.0 / margin, "faster"),
        _ => (false, ""),
    };
    let median = comparison.verdict.name();
    is_contradicted.then(|| format!("{median} by the median, {mean} by the mean of all calls (×{by_mean:.2})"))
}

/// For each arm of a cell that both placements decide, and not alike, the sentence that says which machine gets which verdict.
fn by_machine(run: &Run, cells: &[Cell]) -> Vec<String> {
    let (baseline, _) = baselines(&run.plan);
    let sentence = |cell: &Cell| {
        let planned = run.plan.arm(&cell.arm)?;
        if !cell.is_main() || planned.same_as.is_some() {
            return None;
        }
        let free = cell.placed_freely()?;
        let mut others = cells.iter();
        let other = others.find(|other| other.arm == cell.arm && other.key() == free)?;
        let (one, several) = (cell.against_baseline.as_ref()?, other.against_baseline.as_ref()?);
        let differ = one.verdict != several.verdict;
        if !(differ && one.verdict.is_decided() && several.verdict.is_decided()) {
            return None;
        }
        let words = |comparison: &Comparison| match comparison.verdict {
            Verdict::Same => format!("the same (×{:.2})", comparison.ratio),
            verdict => format!("{} (×{:.2})", verdict.name(), comparison.ratio),
        };
        Some(format!(
            "{} against {} in {} ({}) depends on the machine: {} where the scheduler places client and daemon on several processors, {} on one processor or in a container with one CPU.",
            cell.arm,
            planned.against.as_ref().unwrap_or(&baseline),
            cell.workload,
            cell.metric,
            words(several),
            words(one),
        ))
    };
    cells.iter().filter_map(sentence).collect()
}

/// Whether a verdict would also hold at this ratio.
fn holds_at(comparison: &Comparison, ratio: f64) -> bool {
    let margin = comparison.margin.ratio;
    match comparison.verdict {
        Verdict::Worse => ratio > margin,
        Verdict::Better => ratio < 1.0 / margin,
        Verdict::Same | Verdict::BelowWhatMatters => (1.0 / margin..=margin).contains(&ratio),
        Verdict::Undecided => true,
    }
}
