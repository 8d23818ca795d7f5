//! The measures that a row of a policy can test, and the units in which its bound can be given.
//! The other modules read their values from runs.

use serde::Deserialize;

use super::burden::BurdenPart;
use super::contexts::ContextFigure;
use super::costs::CostMeasure;
use super::faults::{FaultFigure, Loss};
use super::growth::{ScoreGrowth, TimeGrowth};
use super::hosts::HostFigure;
use super::latency::{Latency, MixStep, ScheduledCopies};
use super::limits::{DAY_S, LEAST_SHARE, MOST_COUNT, ONE_TRY, YEAR_S};
use super::model_files::FileMeasure;
use super::probes::Aspect;
use super::scores::{Divisor, QuestionShare, ScoreMeasure, is_less_better, is_of_question, unknown_count};
use figures::context::{ContextCost, DOLLARS, MODELS, RECORDED};
use figures::evidence::CRON_KILL;
use figures::provenance::Provenance;
use rundir::properties::{MACHINE_LOSS, PROPERTIES};

/// A measured or counted quantity of a candidate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// The time of a cell.
    Latency(Latency),
    /// Passes of a workload that did not end well.
    Passes {
        workload: String,
        /// The largest share of passes that may fail although none did.
        within: Option<f64>,
    },
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
        /// The stated number of such faults a year, by which the mean of a fault is multiplied.
        crashes_a_year: Option<f64>,
        /// The largest share of kills at which an event may happen that no kill showed.
        within: Option<f64>,
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
    ModelFiles(FileMeasure),
    /// The mean time until a task's reader sees a commit of another program, of the slowest pass.
    Lag { workload: String },
    /// An exact count of each timed call.
    Cost(CostMeasure),
    /// The share of kills or power cuts at which a promised record was lost.
    Durability { loss: Loss },
    /// Two hosts on one memory.
    Hosts {
        workload: String,
        figure: HostFigure,
        /// The copies on a schedule that make up the baseline's delay, if no other host sees its files.
        copies: Option<ScheduledCopies>,
        /// The largest share of notes or lines that may be otherwise although none was seen.
        within: Option<f64>,
    },
    /// An operator's burden: things to run and to know.
    Burden {
        /// The parts, added up.
        of: Vec<BurdenPart>,
    },
    /// Properties besides files that probes found to work.
    Property {
        /// The probes' names, such as `snapshot`.
        of: Vec<String>,
    },
    /// The time of several programs' steps, each so often as a session runs it.
    Mix {
        /// The steps, added up.
        steps: Vec<MixStep>,
    },
    /// The 99th percentile of the calls.
    Tail(Latency),
    /// The share of a sample of questions that a method answers, with its interval.
    Questions(QuestionShare),
    /// How the time of a call grows with a size.
    Growth(TimeGrowth),
    /// How a count a question grows with a size.
    ScoreGrowth(ScoreGrowth),
}

/// A measure with another value of a parameter that a policy states.
pub struct RestatedMeasure {
    /// The parameter, in words.
    pub parameter: String,
    pub unit: &'static str,
    /// The stated value.
    pub from: f64,
    /// The other one.
    pub to: f64,
    pub measure: Measure,
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
    /// What the candidate saves against the baseline, in percent.
    Saved,
    /// The added wait as a share of the recorded session.
    SessionShare,
    /// The added wait as a share of a turn.
    TurnShare,
}

impl Measure {
    /// Where its figure comes from: the weakest of its inputs.
    pub fn provenance(&self) -> Provenance {
        match self {
            Measure::Burden { .. } => Provenance::Declared,
            // A stated rate of crashes was not measured, and neither were the weights of steps in recorded sessions.
            Measure::Context(_)
            | Measure::Results { .. }
            | Measure::Mix { .. }
            | Measure::Hosts { copies: Some(_), .. }
            | Measure::Faults { crashes_a_year: Some(_), .. } => Provenance::Computed,
            Measure::Latency(_)
            | Measure::Passes { .. }
            | Measure::Probes { .. }
            | Measure::Conformance { .. }
            | Measure::Faults { .. }
            | Measure::Kept { .. }
            | Measure::Score(_)
            | Measure::Lag { .. }
            | Measure::Cost(_)
            | Measure::Durability { .. }
            | Measure::Property { .. }
            | Measure::Tail(_)
            | Measure::ModelFiles(_)
            | Measure::Questions(_)
            | Measure::Growth(_)
            | Measure::ScoreGrowth(_)
            | Measure::Hosts { .. } => Provenance::Measured,
        }
    }

    /// Whether its figure is a constant of this project or of a backend's makers.
    pub fn is_declared(&self) -> bool {
        self.provenance() == Provenance::Declared
    }

    /// Whether its figure is a time of calls, or how one grows, which a busy machine changes.
    pub fn is_timed(&self) -> bool {
        match self {
            Measure::Latency(_) | Measure::Tail(_) | Measure::Mix { .. } | Measure::Growth(_) => true,
            Measure::Passes { .. }
            | Measure::Probes { .. }
            | Measure::Conformance { .. }
            | Measure::Faults { .. }
            | Measure::Kept { .. }
            | Measure::Score(_)
            | Measure::Results { .. }
            | Measure::Context(_)
            | Measure::ModelFiles(_)
            | Measure::Lag { .. }
            | Measure::Cost(_)
            | Measure::Durability { .. }
            | Measure::Hosts { .. }
            | Measure::Burden { .. }
            | Measure::Property { .. }
            | Measure::Questions(_)
            | Measure::ScoreGrowth(_) => false,
        }
    }

    /// The unit of its figure.
    pub fn kind(&self) -> &'static str {
        match self {
            Measure::Latency(_) | Measure::Tail(_) | Measure::Mix { .. } => "ms",
            Measure::Passes { .. } => "passes",
            Measure::Probes { .. } => "probes",
            Measure::Conformance { .. } => "features",
            Measure::Faults { figure, crashes_a_year: Some(_), .. } => match figure {
                FaultFigure::LostRecords => "records a year",
                FaultFigure::FailedCalls => "calls a year",
                FaultFigure::ManualRecoveries => "recoveries a year",
                FaultFigure::Hangs => "hangs a year",
                FaultFigure::UpdatesLost => "updates a year",
                FaultFigure::RecoveryMs => "seconds a year",
            },
            Measure::Faults { figure, .. } => match figure {
                FaultFigure::LostRecords => "records",
                FaultFigure::FailedCalls => "calls",
                FaultFigure::ManualRecoveries => "recoveries",
                FaultFigure::Hangs => "hangs",
                FaultFigure::UpdatesLost => "updates",
                FaultFigure::RecoveryMs => "ms",
            },
            Measure::Kept { .. } => "share",
            Measure::Score(score) => match score.per {
                Divisor::Question => "per question",
                Divisor::ThousandTokens => "per 1,000 tokens",
            },
            Measure::Results { .. } => "tokens",
            Measure::Lag { .. } => "ms",
            Measure::Cost(_) => "a call",
            Measure::Durability { .. } => "share",
            Measure::Context(context) if context.figure == DOLLARS => "USD",
            Measure::Context(_) => "tokens",
            Measure::ModelFiles(files) => files.kind(),
            Measure::Questions(_) => "share",
            Measure::Growth(_) | Measure::ScoreGrowth(_) => "exponent",
            Measure::Hosts { figure, .. } => match figure {
                HostFigure::LinesOutside | HostFigure::LostLines => "lines",
                HostFigure::HandoffMs | HostFigure::LongestHandoffMs => "ms",
                HostFigure::UnseenNotes => "notes",
            },
            Measure::Burden { .. } => "items",
            Measure::Property { .. } => "properties",
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

    /// Whether it has a unit that compares a candidate with a baseline.
    pub fn compares(&self) -> bool {
        self.scales().len() > 1
    }

    pub(super) fn scales(&self) -> Vec<Scale> {
        let mut all = vec![Scale::Own];
        match self {
            // Their baseline is not an arm, or is part of the figure.
            Measure::ModelFiles(_)
            | Measure::Growth(_)
            | Measure::ScoreGrowth(_)
            | Measure::Conformance { .. }
            | Measure::Passes { .. } => return all,
            _ => all.extend([Scale::Ratio, Scale::More, Scale::Fewer, Scale::Saved]),
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
            Scale::Saved => "percent saved".to_owned(),
            Scale::SessionShare => "session share".to_owned(),
            Scale::TurnShare => "turn share".to_owned(),
        }
    }

    /// Whether a smaller figure is the better one. `None` if that depends on the use, as of a store's own counter.
    pub fn is_less_better(&self) -> Option<bool> {
        match self {
            Measure::Latency(_)
            | Measure::Passes { .. }
            | Measure::Probes { .. }
            | Measure::Conformance { .. }
            | Measure::Faults { .. }
            | Measure::Results { .. }
            | Measure::Context(_)
            | Measure::Lag { .. }
            | Measure::Durability { .. }
            | Measure::Hosts { .. }
            | Measure::Burden { .. }
            | Measure::Mix { .. }
            | Measure::Tail(_)
            | Measure::Growth(_) => Some(true),
            Measure::Kept { .. } | Measure::Property { .. } => Some(false),
            Measure::ModelFiles(files) => Some(files.kind() != "share"),
            Measure::Cost(cost) => cost.is_of_run().then_some(true),
            Measure::Score(score) => is_less_better(&score.counts),
            Measure::Questions(share) => is_less_better(std::slice::from_ref(&share.count)),
            Measure::ScoreGrowth(growth) => is_less_better(std::slice::from_ref(&growth.count)),
        }
    }

    /// Whether the candidate and its baseline have different figures although they are one arm: of two methods, two
    /// workloads or two context policies.
    pub fn compares_methods(&self) -> bool {
        match self {
            Measure::Score(score) => {
                let is_other = |own: &String, other: &Option<String>| other.as_ref().is_some_and(|other| other != own);
                is_other(&score.workload, &score.baseline_workload)
                    || is_other(&score.method, &score.baseline_method)
                    || score.or_baseline_method.is_some()
            }
            Measure::Context(context) => context.against.is_some() && context.policy != context.against,
            _ => false,
        }
    }

    /// Why the figure of every arm is the same; `None` if arms can differ.
    pub fn equal_by_construction(&self) -> Option<&'static str> {
        let is_equal = matches!(self, Measure::Results { .. });
        is_equal.then_some("all arms replay one script, so that the tokens of `results` are equal by construction")
    }

    /// The workloads that it names, each with cache state and metric where it names them.
    pub fn cells(&self) -> Vec<(&str, Option<(&str, &str)>)> {
        match self {
            Measure::Mix { steps, .. } => {
                let steps = steps.iter().map(|step| &step.cell);
                steps.map(Latency::cell).collect()
            }
            Measure::Latency(cell) | Measure::Tail(cell) => {
                vec![cell.cell()]
            }
            Measure::Passes { workload, .. } | Measure::Results { workload } | Measure::Lag { workload } => {
                vec![(workload, None)]
            }
            Measure::Hosts { workload, copies, .. } => {
                let copy = copies.iter().map(|copies| copies.copy.cell());
                std::iter::once((workload.as_str(), None)).chain(copy).collect()
            }
            Measure::Score(score) => {
                let other = score.baseline_workload.iter();
                let mut all = vec![(score.workload.as_str(), None)];
                all.extend(other.map(|name| (name.as_str(), None)));
                all
            }
            Measure::Growth(growth) => {
                let cell = Some((&*growth.state, &*growth.metric));
                let workloads = growth.sizes.workloads();
                workloads.map(|workload| (workload, cell)).collect()
            }
            Measure::ScoreGrowth(growth) => {
                let workloads = growth.sizes.workloads();
                workloads.map(|workload| (workload, None)).collect()
            }
            Measure::Questions(share) => vec![(&share.workload, None)],
            Measure::Context(context) => context.sessions().map(|session| (session, None)).collect(),
            Measure::Cost(cost) => vec![(&cost.workload, None)],
            Measure::Probes { .. }
            | Measure::Conformance { .. }
            | Measure::Faults { .. }
            | Measure::Kept { .. }
            | Measure::ModelFiles(_)
            | Measure::Durability { .. }
            | Measure::Burden { .. }
            | Measure::Property { .. } => Vec::new(),
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
            Measure::Hosts { workload, copies, .. } => match copies {
                Some(copies) if as_baseline => vec![(&copies.copy.workload, Some(&copies.copy.state))],
                _ => vec![(workload, None)],
            },
            _ => {
                let cells = self.cells().into_iter();
                cells.map(|(workload, cell)| (workload, cell.map(|(state, _)| state))).collect()
            }
        }
    }

    /// Why a count of 0, or a longest time, shows too little: the field, and the problem in words. Every run makes a few tries.
    pub fn unbounded(&self) -> Option<(&'static str, String)> {
        let things = match self {
            Measure::Passes { within: None, .. } => "passes",
            Measure::Hosts { figure, within: None, .. } => figure.things(),
            Measure::Score(score) if score.is_event() && score.within.is_none() => "questions",
            Measure::Faults { scenarios, figure, crashes_a_year: None, within: None }
                if figure.is_event() && scenarios.iter().all(|name| name == CRON_KILL) =>
            {
                "kills"
            }
            _ => return None,
        };
        let message = format!(
            "a few {things} show no count of 0 and no longest time: needs `within`, the largest share of {things} that may be otherwise, such as `within = 0.05`, which 59 {things} show"
        );
        Some(("within", message))
    }

    /// Why a probe of it is no evidence for a claim: the field, and the problem in words. One loss of a machine after which
    /// everything was there shows next to nothing of the next one.
    pub fn seen_once(&self) -> Option<(&'static str, String)> {
        let Measure::Property { of } = self else {
            return None;
        };
        let message = format!(
            "one probe of {MACHINE_LOSS} is one loss of the machine, which bounds no share: use `measure.durability = {{ loss = \"machine-loss\" }}`"
        );
        of.iter().any(|name| name == MACHINE_LOSS).then_some(("of", message))
    }

    /// The same measure under other values of each stated parameter: what is counted or timed is not among them.
    pub fn restated(&self) -> Vec<RestatedMeasure> {
        const FACTORS: [f64; 2] = [0.5, 2.0];
        match self {
            Measure::Hosts { workload, figure, copies: Some(copies), within } => {
                let from = copies.every_s;
                let shorter = std::iter::successors(Some(from / 2.0), |every_s| Some(every_s / 2.0));
                let shorter = shorter.take_while(|every_s| *every_s > copies.or_every_s);
                let all = shorter.chain([copies.or_every_s, 2.0 * from]).filter(|every_s| *every_s != from);
                let restated = all.map(|every_s| {
                    let copies = Some(ScheduledCopies { every_s, ..copies.clone() });
                    let measure =
                        Measure::Hosts { workload: workload.clone(), figure: *figure, copies, within: *within };
                    RestatedMeasure {
                        parameter: "time between copies".to_owned(),
                        unit: "s",
                        from,
                        to: every_s,
                        measure,
                    }
                });
                restated.collect()
            }
            Measure::Faults { crashes_a_year: Some(rate), .. } => {
                let restated = FACTORS.map(|factor| {
                    let mut measure = self.clone();
                    let to = rate * factor;
                    if let Measure::Faults { crashes_a_year, .. } = &mut measure {
                        *crashes_a_year = Some(to);
                    }
                    RestatedMeasure { parameter: "crashes".to_owned(), unit: "a year", from: *rate, to, measure }
                });
                restated.into()
            }
            Measure::Mix { steps } => {
                let all = steps.iter().enumerate().flat_map(|(at, step)| FACTORS.map(|factor| (at, step, factor)));
                let restated = all.map(|(at, step, factor)| {
                    let mut steps = steps.clone();
                    let to = step.times * factor;
                    steps[at].times = to;
                    let parameter = format!("runs of {}", step.cell.metric.replace('-', " "));
                    let measure = Measure::Mix { steps };
                    RestatedMeasure { parameter, unit: "a session", from: step.times, to, measure }
                });
                restated.collect()
            }
            _ => Vec::new(),
        }
    }

    /// The first problem of its fields: the field, and the problem in words.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Measure::Latency(Latency { state, .. }) | Measure::Tail(Latency { state, .. })
                if !["hot", "lukewarm", "cold"].contains(&state.as_str()) =>
            {
                let message = format!("unknown state {state:?}; use hot, lukewarm or cold");
                Some(("state", message))
            }
            Measure::Hosts { figure, copies: Some(_), .. } if !figure.is_delay() => {
                Some(("copies", "goes with handoff-ms or longest-handoff-ms".to_owned()))
            }
            Measure::Hosts { copies: Some(copies), .. } if !(copies.every_s > 0.0 && copies.every_s <= DAY_S) => {
                Some(("copies", format!("`every_s` must be above 0 and at most {DAY_S}, a day")))
            }
            Measure::Hosts { copies: Some(copies), .. }
                if !(copies.or_every_s > 0.0 && copies.or_every_s <= copies.every_s) =>
            {
                let message = "`or_every_s`, the shortest time in use, must be above 0 and at most `every_s`";
                Some(("copies", message.to_owned()))
            }
            Measure::Faults { scenarios, .. } if scenarios.is_empty() => {
                Some(("scenarios", "needs at least one scenario".to_owned()))
            }
            Measure::Faults { scenarios, figure: FaultFigure::UpdatesLost, .. }
                if scenarios.iter().all(|name| name == CRON_KILL) =>
            {
                let message = format!("{CRON_KILL} counts no updates: the figure is always 0");
                Some(("figure", message))
            }
            Measure::Score(score) if score.counts.is_empty() => Some(("counts", "needs at least one count".to_owned())),
            Measure::Score(score) if score.or_baseline_method.is_some() && !score.is_of_cost() => {
                let message = "goes with counts of tokens or calls, of which fewer are better";
                Some(("or_baseline_method", message.to_owned()))
            }
            Measure::Score(score) if unknown_count(&score.counts).is_some() => {
                Some(("counts", unknown_count(&score.counts)?))
            }
            Measure::Score(score) if score.within.is_some() && !score.is_event() => {
                Some(("within", "goes with a count of wrong answers, such as stale-answers".to_owned()))
            }
            Measure::Questions(QuestionShare { count, .. }) | Measure::ScoreGrowth(ScoreGrowth { count, .. })
                if unknown_count(std::slice::from_ref(count)).is_some() =>
            {
                Some(("count", unknown_count(std::slice::from_ref(count))?))
            }
            Measure::Score(score) if score.is_tokens_per_token() => {
                Some(("per", "tokens per 1,000 tokens are 1,000, whatever the arm".to_owned()))
            }
            Measure::Questions(QuestionShare { count, .. }) if !is_of_question(count) => {
                let message = format!("{count:?} is not 0 or 1 of a question, so that it has no share of questions");
                Some(("count", message))
            }
            Measure::Growth(growth) => growth.sizes.problem(),
            Measure::ScoreGrowth(growth) => growth.sizes.problem(),
            Measure::ModelFiles(files) => files.problem(),
            Measure::Context(context)
                if context.figure != DOLLARS && !ContextCost::FIGURES.contains(&context.figure.as_str()) =>
            {
                let known = ContextCost::FIGURES.join(", ");
                let figure = &context.figure;
                let message = format!("unknown figure {figure:?}; use one of {known}, {DOLLARS}");
                Some(("figure", message))
            }
            Measure::Context(ContextFigure { figure, model: Some(model), .. }) => {
                let known = [&MODELS[..], &[RECORDED]].concat();
                match (figure.as_str(), known.contains(&model.as_str())) {
                    (DOLLARS, true) => None,
                    (DOLLARS, false) => {
                        Some(("model", format!("unknown model {model:?}; use one of {}", known.join(", "))))
                    }
                    _ => Some(("model", "is only for the figure dollars".to_owned())),
                }
            }
            Measure::Burden { of } if of.is_empty() => Some(("of", "needs at least one part".to_owned())),
            Measure::Property { of } => {
                if of.is_empty() {
                    return Some(("of", "needs at least one property".to_owned()));
                }
                if let Some((_, twice)) = of.iter().enumerate().find(|(at, name)| of[..*at].contains(name)) {
                    return Some(("of", format!("names {twice:?} twice, so that it would count twice")));
                }
                let unknown = of.iter().find(|name| PROPERTIES.iter().all(|(known, _)| known != name))?;
                let known = PROPERTIES.map(|(known, _)| known).join(", ");
                let message = format!("unknown property {unknown:?}; use one of {known}");
                Some(("of", message))
            }
            Measure::Mix { steps } => {
                if steps.is_empty() {
                    return Some(("steps", "needs at least one step".to_owned()));
                }
                let is_wrong = |step: &MixStep| !(step.times > 0.0 && step.times <= MOST_COUNT);
                let wrong = steps.iter().any(is_wrong);
                wrong.then(|| ("steps", format!("`times` must be above 0 and at most {MOST_COUNT}")))
            }
            Measure::Faults { crashes_a_year: Some(rate), .. } if !(*rate > 0.0 && *rate <= YEAR_S) => {
                Some(("crashes_a_year", format!("must be above 0 and at most {YEAR_S}, one a second")))
            }
            Measure::Faults { within: Some(share), .. }
            | Measure::Hosts { within: Some(share), .. }
            | Measure::Score(ScoreMeasure { within: Some(share), .. })
            | Measure::Passes { within: Some(share), .. }
                if !(*share >= LEAST_SHARE && *share < ONE_TRY) =>
            {
                let message = format!(
                    "must be a share from {LEAST_SHARE}, which a million tries show, to below {ONE_TRY}, which a single one shows"
                );
                Some(("within", message))
            }
            Measure::Faults { figure, crashes_a_year, within: Some(_), .. }
                if !figure.is_event() || crashes_a_year.is_some() =>
            {
                let message = "goes with a count of lost-records, manual-recoveries or hangs";
                Some(("within", message.to_owned()))
            }
            _ => None,
        }
    }
}
