//! Measures: each kind says for an arm of some runs a reading with its interval, or why there is none.
//! Policies give a measure a bound and a part in a verdict; claims give it a published range.

mod burden;
mod compared;
mod compatible;
mod contexts;
mod costs;
mod failed;
mod faults;
mod figure;
mod growth;
mod hosts;
mod kinds;
mod latency;
mod limits;
mod model_files;
mod names;
mod passes;
mod probes;
mod range;
mod scores;
mod units;

use std::cmp::Ordering;

use rundir::{Arm, Run};
use schemars::JsonSchema;
use serde::Serialize;

use figures::context::Contexts;
use figures::evidence::RunEvidence;
use figures::provenance::Provenance;
use figures::summary::Summary;

pub use compared::Figure;
pub(crate) use compatible::differ;
pub use compatible::{check_compatible, check_distinct, machine_differences};
pub(crate) use faults::Loss;
pub use growth::exponent;
pub use kinds::{Measure, RestatedMeasure, Scale};
pub use latency::{READY, TURN_NS};
pub use names::{matches, planned as planned_arm};
pub(crate) use probes::has_feature;
pub use scores::ScoreMeasure;
pub(crate) use scores::score_words;
pub use units::{amount, digits, range_words, spread};

/// The runs that a decision rests on.
#[derive(Clone)]
pub struct Evidence<'a> {
    /// The runs, in the order given.
    pub runs: Vec<RunEvidence<'a>>,
}

/// Evidence that is missing, and the command that makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Gap {
    /// The missing evidence, with the reason.
    pub what: String,
    /// What makes this evidence: a command line.
    pub command: String,
    /// What `what` consists of.
    #[serde(skip)]
    pub kind: GapKind,
}

/// What `Gap::what` consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapKind {
    /// The name of what no run measured.
    #[default]
    Unmeasured,
    /// That name, and the reason that there is no figure.
    Reason,
    /// What a figure needs, such as `needs a capable model`, and why the runs lack it.
    Need {
        /// What is needed.
        need: String,
        /// Why the runs lack it.
        details: String,
    },
    /// That there are too few of these for a bound.
    TooFew(&'static str),
}

impl Gap {
    /// Evidence that no run has.
    pub fn new(what: impl Into<String>, command: impl Into<String>) -> Self {
        Self { what: what.into(), command: command.into(), kind: GapKind::Unmeasured }
    }

    /// A gap with the reason for it.
    pub(crate) fn because(what: &str, why: &str, command: impl Into<String>) -> Self {
        Self { kind: GapKind::Reason, ..Self::new(format!("{what}: {why}"), command) }
    }

    /// Too few of something for a bound that a policy asks for.
    pub(crate) fn too_few(things: &'static str, what: String, command: String) -> Self {
        Self { kind: GapKind::TooFew(things), ..Self::new(what, command) }
    }

    /// What there are too few of for a bound.
    pub fn too_few_of(&self) -> Option<&'static str> {
        match self.kind {
            GapKind::TooFew(things) => Some(things),
            _ => None,
        }
    }

    /// A need that the runs do not meet.
    pub(crate) fn of_need(need: &str, details: &str, command: impl Into<String>) -> Self {
        let kind = GapKind::Need { need: need.to_owned(), details: details.to_owned() };
        Self { kind, ..Self::new(format!("{need}: {details}"), command) }
    }
}

/// A figure with the range in which it is known to lie.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmReading {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub words: String,
    /// `words` without the explanation behind the figure; empty where they have none.
    pub short: String,
    /// The files and fields it comes from.
    pub source: String,
    /// Computed if it follows from published figures alone.
    pub provenance: Provenance,
}

impl ArmReading {
    /// Its words without the explanation.
    pub fn figure_words(&self) -> &str {
        if self.short.is_empty() { &self.words } else { &self.short }
    }

    /// An exact count.
    pub fn exact(value: f64, words: String, source: &str) -> Self {
        let (source, provenance) = (source.to_owned(), Provenance::Measured);
        Self { value, low: value, high: value, words, short: String::new(), source, provenance }
    }

    /// An order of readings that does not depend on that of the runs.
    fn order(&self, other: &Self) -> Ordering {
        let by_value = self.value.total_cmp(&other.value).then(self.low.total_cmp(&other.low));
        by_value.then(self.high.total_cmp(&other.high)).then_with(|| self.words.cmp(&other.words))
    }
}

/// The arms that the files of a language model are, in a run that measured those.
pub const MODEL_ARMS: [&str; 2] = [model_files::GENERATE, model_files::HISTORY];

/// The evidence about a measure of an arm.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasureResult {
    Value(ArmReading),
    /// No run measured it.
    Missing(Gap),
    /// Runs measured it, but their passes bound no figure, with the reason.
    Unknown(String),
    /// The candidate does not offer the measured property, with the reason.
    NotOffered(String),
    /// A pass of the candidate failed in a workload that the measure reads.
    Failed(String),
    /// A pass of the baseline, or the harness in a pass, failed in a workload that the measure reads.
    Void(String),
}

impl MeasureResult {
    /// The reading; everything else is the error.
    pub fn value(self) -> Result<ArmReading, MeasureResult> {
        match self {
            MeasureResult::Value(reading) => Ok(reading),
            other => Err(other),
        }
    }

    /// An exact count.
    fn exact(value: f64, words: String, source: &str) -> Self {
        MeasureResult::Value(ArmReading::exact(value, words, source))
    }
}

impl<'a> Evidence<'a> {
    /// The evidence of one run.
    pub fn of(run: &'a Run, summary: &'a Summary, contexts: &'a Contexts) -> Self {
        Self { runs: vec![RunEvidence::new(run, summary, contexts)] }
    }

    /// The names of everything that can be a candidate, in the order of the plans. Identical arms and arms slowed on
    /// purpose are none.
    pub fn arms(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let arms = self.runs.iter().flat_map(|run| &run.run.plan.arms);
        let arms = arms.filter(|arm| arm.can_be_candidate());
        let made_up = self.runs.iter().any(|run| run.model_files().is_some());
        let models = MODEL_ARMS.into_iter().filter(|_| made_up);
        let models = models.map(str::to_owned);
        for name in arms.map(|arm| arm.name.clone()).chain(models) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Whether a run has sessions under a context policy.
    pub fn has_context(&self, policy: &str) -> bool {
        let costs = self.runs.iter().flat_map(|run| &run.contexts.costs);
        costs.into_iter().any(|cost| cost.policy == policy)
    }

    /// The first plan's description of an arm, of a plan that can use it if there is one.
    pub fn arm(&self, name: &str) -> Option<&'a Arm> {
        let arms = self.planned(name);
        arms.clone().find(|arm| arm.unavailable.is_none()).or(arms.clone().next())
    }

    /// The plans' descriptions of an arm.
    fn planned(&self, name: &str) -> impl Iterator<Item = &'a Arm> + Clone {
        self.runs.iter().filter_map(move |run| run.run.plan.arm(name))
    }

    /// The evidence of all runs about a measure of an arm. `as_baseline` selects the baseline's workload, method and
    /// context policy where a measure names another one.
    pub fn read(&self, measure: &Measure, arm: &str, as_baseline: bool) -> MeasureResult {
        if let Some(why) = self.arm(arm).and_then(|planned| planned.unavailable.as_ref()) {
            let what = format!("{arm} cannot be used here");
            return MeasureResult::Missing(Gap::because(&what, why, "ctxbench doctor"));
        }
        match measure {
            Measure::Latency(latency) => self.time(latency, arm),
            Measure::Passes { workload, within } => self.passes(workload, *within, arm),
            Measure::Probes { aspect, names } => self.probes(*aspect, names, arm),
            Measure::Conformance { groups } => self.conformance(groups, arm),
            Measure::Faults { scenarios, figure, crashes_a_year, within } => {
                self.faults(scenarios, *figure, *crashes_a_year, *within, arm)
            }
            Measure::Kept { loss } => self.kept(loss.name(), arm, as_baseline),
            Measure::Score(score) => self.score(score, arm, as_baseline),
            Measure::Results { workload } => self.results(workload, arm),
            Measure::Context(figure) => self.context(figure, arm, as_baseline),
            Measure::ModelFiles(files) => self.model_files(files, arm),
            Measure::Lag { workload } => self.lag(workload, arm),
            Measure::Cost(cost) => self.cost(cost, arm),
            Measure::Durability { loss } => self.durability(loss.name(), arm),
            Measure::Hosts { copies: Some(copies), figure, .. } if as_baseline => self.scheduled(copies, *figure, arm),
            Measure::Hosts { workload, figure, within, .. } => self.hosts(workload, *figure, *within, arm, as_baseline),
            Measure::Burden { of } => self.burden(of, arm),
            Measure::Property { of } => self.property(of, arm),
            Measure::Mix { steps, .. } => self.mix(steps, arm),
            Measure::Tail(latency) => self.tail(latency, arm),
            Measure::Questions(share) => self.questions(share, arm),
            Measure::Growth(growth) => self.growth(growth, arm),
            Measure::ScoreGrowth(growth) => self.score_growth(growth, arm),
        }
    }

    /// The reason of a plan for leaving out a workload on an arm in every cache state. A workload that no arm can run,
    /// such as that of a program which is not installed, says nothing about the arm.
    fn left_out(&self, workload: &str, arm: &str) -> Option<String> {
        self.runs.iter().map(|run| &run.run.plan).find_map(|plan| {
            let planned = plan.workload(workload)?;
            let reason = |arm: &str| {
                let skipped = plan.skipped.iter();
                let mut cells = skipped.filter(|cell| cell.workload == workload && cell.arm == arm);
                let first = cells.next()?;
                let states = planned.states.iter();
                let measured = states.filter(|state| plan.takes_part(arm, workload, state));
                (1 + cells.count() == measured.count()).then(|| first.reason.clone())
            };
            let why = reason(arm)?;
            let all = plan.arms.iter().all(|arm| reason(&arm.name).is_some());
            (!all).then_some(why)
        })
    }
}

/// The readings of several runs as one, whatever their order: the middle one, or the larger of two, in the range of all,
/// so that a bound that the runs contradict each other about stays open. One without ends says nothing beside one with ends.
fn pooled(mut readings: Vec<ArmReading>) -> Option<ArmReading> {
    let has_ends = |reading: &ArmReading| reading.low == reading.high || reading.high.is_finite();
    if readings.iter().any(has_ends) {
        readings.retain(has_ends);
    }
    readings.sort_by(ArmReading::order);
    let low = readings.iter().map(|reading| reading.low).reduce(f64::min)?;
    let high = readings.iter().map(|reading| reading.high).reduce(f64::max)?;
    let provenance = readings.iter().map(|reading| reading.provenance).max()?;
    let middle = readings.swap_remove(readings.len() / 2);
    Some(ArmReading { low, high, provenance, ..middle })
}

/// Evidence that no run has, and the command that makes it.
fn missing(what: String, command: String) -> MeasureResult {
    MeasureResult::Missing(Gap::new(what, command))
}

/// A gap that a run of one workload fills.
fn run_gap(workload: &str, arms: &[&str], what: String) -> MeasureResult {
    runs_gap([workload], arms, what)
}

/// A gap that a run of several workloads fills.
fn runs_gap<'a>(workloads: impl IntoIterator<Item = &'a str>, arms: &[&str], what: String) -> MeasureResult {
    missing(what, run_command(workloads, arms))
}

/// The command that runs workloads on these arms.
fn run_command<'a>(workloads: impl IntoIterator<Item = &'a str>, arms: &[&str]) -> String {
    let workloads = workloads.into_iter();
    let workloads = workloads.map(|workload| format!(" --workload {workload}"));
    let arms = arms.iter().filter(|arm| **arm != "direct");
    let arms = arms.map(|arm| format!(" --backend {arm}"));
    let options: String = workloads.chain(arms).collect();
    format!("ctxbench run{options}")
}
