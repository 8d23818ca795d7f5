//! What a new run damages, refuses or answers wrongly, and an old one does not; and where the new run did not look again.

use std::collections::{BTreeMap, BTreeSet};

use rundir::faults::Status;
use rundir::{Fault, Outcome, Run, ScoreKind, ScoreName};
use schemars::JsonSchema;
use serde::Serialize;

use crate::measure::score_words;
use figures::summary::void;
use figures::text::number_of;

/// Counts of harm that differ between two runs: how often, and of how many tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HarmChange {
    /// The arm.
    pub arm: String,
    /// The kind of harm, and where.
    pub what: String,
    /// How often in the old run, and of how many tries.
    pub old: (u64, u64),
    /// How often in the new runs, and of how many tries.
    pub new: (u64, u64),
}

impl HarmChange {
    /// Whether the new runs do harm that the old one never did. More of the same may be chance.
    pub fn is_worse(&self) -> bool {
        self.old.0 == 0 && self.new.0 > 0
    }
}

/// What only the old run checked, on one arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UncheckedArm {
    /// The arm, and the checks.
    pub words: String,
    /// Whether it is a cell, which the gate of times names by its metrics.
    #[serde(skip)]
    pub is_cell: bool,
}

/// The kind of check that shows harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Check {
    Records,
    Recoveries,
    Probe,
    Scores,
    Lines,
    Passes,
    Counts,
}

impl Check {
    fn subject(self) -> &'static str {
        match self {
            Check::Records => "records",
            Check::Recoveries => "recoveries",
            Check::Probe => "features and tools",
            Check::Scores => "scores",
            Check::Lines => "lines",
            Check::Passes => "passes",
            Check::Counts => "counts",
        }
    }
}

/// Tries that did harm and all tries, by arm, check and kind.
type Harms = BTreeMap<CheckKey, (u64, u64)>;

fn harms(runs: &[&Run]) -> Harms {
    let mut all = Harms::new();
    let mut add = |arm: &str, check: Check, what: String, harm: u64, tries: u64| {
        // An audit without a record looked at nothing.
        if tries > 0 {
            let counts = all.entry((arm.to_owned(), check, what)).or_default();
            *counts = (counts.0 + harm, counts.1 + tries);
        }
    };
    for run in runs {
        for points in run.crash_points.iter().filter(|points| points.points > 0) {
            let audit = &points.audit;
            let what = format!("records not kept after {}", points.loss);
            add(&points.backend, Check::Records, what, points.records_not_kept(), audit.looks());
            let what = format!("exits of the daemon itself before {}", points.loss);
            add(&points.backend, Check::Recoveries, what, points.died_by_itself, points.points);
        }
        for fault in run.fault_outcomes.iter().filter(|fault| fault.status == Status::Ran) {
            if fault.recovery.is_some() {
                let what = format!("recoveries from {} by hand or never", fault.scenario);
                add(&fault.backend, Check::Recoveries, what, u64::from(fault.needs_hand()), 1);
            }
            for (loss, audit) in &fault.audits {
                let what = format!("records not kept in {} after {loss}", fault.scenario);
                add(&fault.backend, Check::Records, what, audit.broken() + audit.unreadable, audit.looks());
            }
        }
        // A start that failed after a kill is a result.
        let tried = |fault: &&Fault| fault.killed && !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped);
        for fault in run.faults.iter().filter(tried) {
            let what = format!("records not kept in {}", fault.scenario);
            add(&fault.arm, Check::Records, what, fault.lost, fault.lost + fault.acknowledged);
            let what = format!("recoveries from {} by hand or never", fault.scenario);
            let is_bad = !fault.recovered || fault.outcome != Outcome::Ok;
            add(&fault.arm, Check::Recoveries, what, u64::from(is_bad), 1);
        }
        let probed = run.probes.iter().filter(|probe| !matches!(probe.outcome, Outcome::Skipped | Outcome::Infra));
        for probe in probed {
            let what = format!("failure of {} {}", probe.aspect, probe.name);
            add(&probe.arm, Check::Probe, what, u64::from(probe.outcome != Outcome::Ok), 1);
        }
        for pass in &run.samples {
            let (arm, workload) = (&pass.arm, &pass.workload);
            for (method, scores) in &pass.scores {
                let wrong = scores.iter().filter_map(|(name, score)| Some((ScoreName::find(name)?, score)));
                for (name, score) in wrong.filter(|(name, _)| name.kind() == ScoreKind::Wrong) {
                    let what = format!("{} by {method} in {workload}", score_words(name.name()));
                    add(arm, Check::Scores, what, score.sum, score.of);
                }
            }
            if let Some(settled) = pass.settled {
                add(arm, Check::Lines, format!("lines lost in {workload}"), settled.lost, settled.lines);
            }
        }
    }
    all
}

/// A thing that is checked on an arm.
pub(super) type CheckKey = (String, Check, String);

/// Where passes ended and calls were counted: every place of a run in which a failure or a risen count could show.
fn places(runs: &[&Run]) -> BTreeSet<CheckKey> {
    let mut all = BTreeSet::new();
    for run in runs {
        let passes = run.samples.iter().filter(|pass| !matches!(pass.outcome, Outcome::Skipped | Outcome::Infra));
        all.extend(passes.map(|pass| (pass.arm.clone(), Check::Passes, format!("{}, {}", pass.workload, pass.state))));
        let void = void(run);
        let cells = run.cells.iter().filter(|cell| cell.counted.calls > 0 && !void.contains(&cell.epoch));
        for cell in cells {
            let place = format!("{}, {}", cell.workload, cell.state);
            if cell.counted.daemon.is_some() {
                all.insert((cell.arm.clone(), Check::Counts, format!("{place}: requests")));
            }
            all.insert((cell.arm.clone(), Check::Counts, place));
        }
    }
    all
}

/// What the harm of two sides says.
pub(super) struct HarmComparison {
    /// The kinds of harm that only one side does.
    pub changes: Vec<HarmChange>,
    /// How many kinds both sides looked for.
    pub tried: usize,
    /// What only the old run checked, by arm and kind of check.
    pub unchecked: Vec<UncheckedArm>,
}

/// Compares harm. `gone` has the scores that only the old run has.
pub(super) fn harm_changes(old: &Run, new: &[&Run], gone: Vec<CheckKey>) -> HarmComparison {
    let (before, after) = (harms(&[old]), harms(new));
    let mut checked = places(new);
    checked.extend(after.keys().cloned());
    let places = places(&[old]).into_iter();
    let lacking = before.keys().cloned().chain(places).filter(|key| !checked.contains(key));
    // A wrong answer is a score, too.
    let gone: BTreeSet<CheckKey> = lacking.chain(gone).collect();
    let mut unchecked: BTreeMap<(String, Check), Vec<String>> = BTreeMap::new();
    for (arm, check, what) in gone {
        unchecked.entry((arm, check)).or_default().push(what);
    }
    let unchecked = unchecked.into_iter().map(|((arm, check), kinds)| {
        let checks = number_of(kinds.len(), "check");
        let words = format!("{arm}: {checks} of {} not looked at again ({})", check.subject(), shown(&kinds));
        UncheckedArm { words, is_cell: matches!(check, Check::Passes | Check::Counts) }
    });
    let both = before.into_iter().filter_map(|(key, old)| Some((*after.get(&key)?, key, old)));
    let both: Vec<_> = both.collect();
    let tried = both.len();
    let changes = both.into_iter().filter(|(new, _, old)| (new.0 > 0) != (old.0 > 0));
    let changes = changes.map(|(new, (arm, _, what), old)| HarmChange { arm, what, old, new });
    HarmComparison { changes: changes.collect(), tried, unchecked: unchecked.collect() }
}

/// The first few of them.
fn shown(kinds: &[String]) -> String {
    const SHOWN: usize = 3;
    match kinds.len() {
        count if count <= SHOWN => kinds.join("; "),
        count => format!("{}; {} more", kinds[..SHOWN].join("; "), count - SHOWN),
    }
}
