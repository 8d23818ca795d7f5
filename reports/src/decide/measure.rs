//! The measures that a row of a policy can test, and the units in which its bound can be given.
//! `evidence` reads their values from runs.

use serde::Deserialize;

use crate::context::{ContextCost, DOLLARS};
use crate::provenance::Provenance;

/// The names of scores that a policy can count.
pub const SCORES: [&str; 14] = [
    "evidence-in-budget",
    "found-at-1",
    "found-at-5",
    "found-at-10",
    "own-words",
    "other-words",
    "stale",
    "tokens",
    "definition-tokens",
    "call-tokens",
    "result-tokens",
    "calls",
    "stale-answers",
    "lag-us",
];

/// A measured or counted quantity of a candidate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// The time of a cell.
    Latency(Latency),
    /// Passes of a workload that did not end well.
    Passes { workload: String },
    /// Probes that fail.
    Probes {
        aspect: Aspect,
        /// Only these probes; all of the aspect if empty.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Features that fail on the candidate and work on the baseline.
    Conformance {
        /// Groups of features, such as `rename`; all if empty.
        #[serde(default)]
        groups: Vec<String>,
    },
    /// The outcomes of injected faults.
    Faults {
        /// The scenarios, summed.
        scenarios: Vec<String>,
        figure: FaultFigure,
    },
    /// The share of acknowledged records that a loss leaves in their expected state.
    Kept { loss: Loss },
    /// Exact counts of a search method or a task.
    Score(ScoreMeasure),
    /// Tokens of a workload's verified results.
    Results { workload: String },
    /// Tokens or dollars of a session's context under a context policy.
    Context(ContextFigure),
    /// Files that a language model makes up.
    ModelFiles { figure: FileFigure },
    /// Two hosts on one memory.
    Hosts {
        workload: String,
        figure: HostFigure,
    },
    /// An operator's burden: things to run and to know.
    Burden {
        /// The parts, added up.
        of: Vec<BurdenPart>,
    },
    /// Properties that a backend gives besides files.
    Gives {
        /// The properties, counted.
        what: Vec<Property>,
    },
}

/// A cell without its arm.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// A kind of call, or `makespan`.
    pub metric: String,
}

inputs::named! {
    /// The aspect of a probe.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Aspect, name {
        /// Common tools.
        Tool = "tool",
        /// Facts that an operator can see.
        Visible = "visible",
    }
}

/// A figure of fault outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultFigure {
    /// Acknowledged records that are lost or torn.
    LostRecords,
    /// Calls that failed until the backend was back.
    FailedCalls,
    /// Faults after which only a manual step, or nothing, brought the backend back.
    ManualRecoveries,
    /// Calls that did not end within the limit.
    Hangs,
}

inputs::named! {
    /// The part that is lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    pub enum Loss, name {
        /// The daemon, or without one the agent.
        #[serde(rename = "killed-daemon")]
        Daemon = rundir::faults::KILLED_DAEMON,
        /// Everything that has not reached the disk.
        #[serde(rename = "power-loss")]
        Power = rundir::faults::POWER_LOSS,
        /// The machine and its disks.
        #[serde(rename = "machine-loss")]
        Machine = rundir::faults::MACHINE_LOSS,
    }
}

/// See [`Measure::Score`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreMeasure {
    pub workload: String,
    /// The method; a `*` at the end stands for any rest, and the first such method counts.
    pub method: String,
    /// The counts, added up.
    pub counts: Vec<String>,
    /// The divisor of the sum.
    #[serde(default)]
    pub per: Per,
    /// The baseline's workload, if it is another one.
    pub baseline_workload: Option<String>,
    /// The baseline's method, if it is another one.
    pub baseline_method: Option<String>,
}

/// The divisor of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Per {
    /// Questions or tasks.
    #[default]
    #[serde(rename = "question")]
    Question,
    /// Thousands of tokens that the method returned.
    #[serde(rename = "1,000 tokens")]
    ThousandTokens,
}

/// See [`Measure::Context`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFigure {
    /// The session.
    pub workload: String,
    /// The context policy that needs the backend.
    pub policy: String,
    /// The context policy of the baseline.
    pub against: String,
    /// One of [`ContextCost::FIGURES`], or `dollars` on the first model of the report.
    pub figure: String,
}

/// A figure of made-up files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileFigure {
    /// Share of imports in made-up files that name a file of the tree.
    Plausible,
    /// Share of second reads that return the same bytes.
    Consistent,
    /// Share of written files that are read back exactly.
    Exact,
    /// Tools that fail.
    FailedSteps,
    /// Prompt and output tokens over output tokens: the cost of a made-up file over that of a written one.
    TokensOverWriting,
    /// Seconds for a made-up file.
    SecondsAFile,
}

/// A figure of two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFigure {
    /// Lines that are missing from the shared file on a host: lost, on one host, or in a conflict copy.
    LinesOutside,
    /// Lines in no file.
    LostLines,
    /// The median time until the second host saw a note, in milliseconds.
    HandoffMs,
    /// Notes that the second host did not see within the call timeout.
    UnseenNotes,
}

/// A part of an operator's burden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BurdenPart {
    /// Processes besides the agent.
    Processes,
    Mounts,
    /// Devices and users that the backend needs.
    Privileges,
    /// Programs, services and secrets that it needs.
    Dependencies,
    /// Faults after which the operator must do something.
    RecoverySteps,
}

inputs::named! {
    /// A property that a backend gives besides files.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Property, name {
        /// The whole state is one file, which can be copied.
        OneFile = "one-file",
        /// The state of a moment can be kept and gone back to.
        Snapshots = "snapshots",
        /// Earlier states are kept without being asked for.
        Versions = "versions",
    }
}

/// How a candidate's figure is put beside the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The candidate's own figure.
    Own,
    /// Candidate over baseline.
    Ratio,
    /// Candidate minus baseline.
    More,
    /// Baseline minus candidate.
    Fewer,
    /// The added wait as a share of the recorded session.
    SessionShare,
    /// The added wait as a share of a turn.
    TurnShare,
}

impl BurdenPart {
    fn provenance(self) -> Provenance {
        match self {
            BurdenPart::RecoverySteps => Provenance::Measured,
            BurdenPart::Processes
            | BurdenPart::Mounts
            | BurdenPart::Privileges
            | BurdenPart::Dependencies => Provenance::Declared,
        }
    }
}

impl Measure {
    /// Where its figure comes from: the weakest of its inputs.
    pub fn provenance(&self) -> Provenance {
        match self {
            Measure::Gives { .. } => Provenance::Declared,
            Measure::Burden { of } => {
                let parts = of.iter().map(|part| part.provenance());
                parts.max().unwrap_or(Provenance::Declared)
            }
            Measure::Context(_) | Measure::Results { .. } => Provenance::Arithmetic,
            Measure::Latency(_)
            | Measure::Passes { .. }
            | Measure::Probes { .. }
            | Measure::Conformance { .. }
            | Measure::Faults { .. }
            | Measure::Kept { .. }
            | Measure::Score(_)
            | Measure::ModelFiles { .. }
            | Measure::Hosts { .. } => Provenance::Measured,
        }
    }

    /// Whether its figure is a constant of this project or of a backend's makers.
    pub fn is_declared(&self) -> bool {
        self.provenance() == Provenance::Declared
    }

    /// The unit of its figure.
    pub fn kind(&self) -> &'static str {
        match self {
            Measure::Latency(_) => "ms",
            Measure::Passes { .. } => "passes",
            Measure::Probes { .. } => "probes",
            Measure::Conformance { .. } => "features",
            Measure::Faults { figure, .. } => match figure {
                FaultFigure::LostRecords => "records",
                FaultFigure::FailedCalls => "calls",
                FaultFigure::ManualRecoveries => "recoveries",
                FaultFigure::Hangs => "hangs",
            },
            Measure::Kept { .. } => "share",
            Measure::Score(score) => match score.per {
                Per::Question => "per question",
                Per::ThousandTokens => "per 1,000 tokens",
            },
            Measure::Results { .. } => "tokens",
            Measure::Context(context) if context.figure == DOLLARS => "USD",
            Measure::Context(_) => "tokens",
            Measure::ModelFiles { figure } => match figure {
                FileFigure::Plausible | FileFigure::Consistent | FileFigure::Exact => "share",
                FileFigure::FailedSteps => "steps",
                FileFigure::TokensOverWriting => "times",
                FileFigure::SecondsAFile => "seconds",
            },
            Measure::Hosts { figure, .. } => match figure {
                HostFigure::LinesOutside | HostFigure::LostLines => "lines",
                HostFigure::HandoffMs => "ms",
                HostFigure::UnseenNotes => "notes",
            },
            Measure::Burden { .. } => "items",
            Measure::Gives { .. } => "properties",
        }
    }

    /// The scale of a unit; `None` if it is not a unit of this measure.
    pub fn scale(&self, unit: &str) -> Option<Scale> {
        let mut scales = self.scales().into_iter();
        scales.find(|scale| self.unit(*scale) == unit)
    }

    /// All units of this measure.
    pub fn units(&self) -> Vec<String> {
        let scales = self.scales().into_iter();
        scales.map(|scale| self.unit(scale)).collect()
    }

    fn scales(&self) -> Vec<Scale> {
        let mut all = vec![Scale::Own];
        match self {
            // Their baseline is no arm, or is part of the figure.
            Measure::ModelFiles { .. } | Measure::Conformance { .. } | Measure::Passes { .. } => {
                return all;
            }
            _ => all.extend([Scale::Ratio, Scale::More, Scale::Fewer]),
        }
        if matches!(self, Measure::Latency(_)) {
            all.extend([Scale::SessionShare, Scale::TurnShare]);
        }
        all
    }

    fn unit(&self, scale: Scale) -> String {
        let kind = self.kind();
        match scale {
            Scale::Own => kind.to_owned(),
            Scale::Ratio => "ratio".to_owned(),
            Scale::More => format!("{kind} more"),
            Scale::Fewer => format!("{kind} fewer"),
            Scale::SessionShare => "session share".to_owned(),
            Scale::TurnShare => "turn share".to_owned(),
        }
    }

    /// The workloads that it names, each with cache state and metric where it names them.
    pub fn cells(&self) -> Vec<(&str, Option<(&str, &str)>)> {
        match self {
            Measure::Latency(cell) => vec![(&cell.workload, Some((&cell.state, &cell.metric)))],
            Measure::Passes { workload }
            | Measure::Results { workload }
            | Measure::Hosts { workload, .. } => vec![(workload, None)],
            Measure::Score(score) => {
                let other = score.baseline_workload.iter();
                let mut all = vec![(score.workload.as_str(), None)];
                all.extend(other.map(|name| (name.as_str(), None)));
                all
            }
            Measure::Context(context) => vec![(&context.workload, None)],
            _ => Vec::new(),
        }
    }

    /// The workloads whose passes the figure of a candidate, or of its baseline arm, comes from, each with the cache state
    /// where the measure names one.
    pub fn read_by(&self, as_baseline: bool) -> Vec<(&str, Option<&str>)> {
        match self {
            // Its baseline is a context policy, and no arm.
            Measure::Context(_) if as_baseline => Vec::new(),
            Measure::Score(score) => {
                let other = score.baseline_workload.as_ref().filter(|_| as_baseline);
                vec![(other.unwrap_or(&score.workload), None)]
            }
            _ => {
                let cells = self.cells().into_iter();
                cells
                    .map(|(workload, cell)| (workload, cell.map(|(state, _)| state)))
                    .collect()
            }
        }
    }

    /// The first problem of its fields: the field, and the problem in words.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Measure::Latency(Latency { state, .. })
                if !["hot", "lukewarm", "cold"].contains(&state.as_str()) =>
            {
                let message = format!("{state:?}: there are hot, lukewarm and cold");
                Some(("state", message))
            }
            Measure::Faults { scenarios, .. } if scenarios.is_empty() => {
                Some(("scenarios", "needs at least one scenario".to_owned()))
            }
            Measure::Score(score) if score.counts.is_empty() => {
                Some(("counts", "needs at least one count".to_owned()))
            }
            Measure::Score(score) => {
                let mut counts = score.counts.iter();
                let unknown = counts.find(|name| !SCORES.contains(&name.as_str()))?;
                let message = format!("no count {unknown:?}; there are {}", SCORES.join(", "));
                Some(("counts", message))
            }
            Measure::Context(context)
                if context.figure != DOLLARS
                    && !ContextCost::FIGURES.contains(&context.figure.as_str()) =>
            {
                let known = ContextCost::FIGURES.join(", ");
                let figure = &context.figure;
                let message = format!("no figure {figure:?}; there are {known}, {DOLLARS}");
                Some(("figure", message))
            }
            Measure::Burden { of } if of.is_empty() => {
                Some(("of", "needs at least one part".to_owned()))
            }
            Measure::Gives { what } if what.is_empty() => {
                Some(("what", "needs at least one property".to_owned()))
            }
            _ => None,
        }
    }
}
