//! The answer of a report in sentences: for each use what to choose, the figures that carry it, its costs, how sure it is;
//! beside it calls with hot caches, failures, losses and missing evidence.
//! A pure function of decisions and runs. Every output prints these words; pages and charts are in `render`.

mod calls;
mod figure;
mod kept;
#[cfg(test)]
mod tests;
mod text;
mod uses;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use calls::half_words;
pub use calls::{CallCell, CallRow, CallTable};
pub use figure::AnswerFigure;
pub use kept::{PassCount, StoreLosses};
pub use text::{LINES, WIDTH};
pub use uses::{AdviceKind, Confidence, TRY_WITH_PROGRAMS, UseAnswer};

use figures::evidence::RunEvidence;
use figures::summary::Health;
use figures::text::number_of;
use verdicts::decide::{Decision, Remedy, remedies};

/// The answer of a report.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Overview {
    /// The duration, the machine, its scratch and its load, each in a few words.
    pub about: Vec<String>,
    /// The A/A check in a sentence; empty if no call was timed.
    pub identical_arms: String,
    /// Notes that a reader needs before any figure.
    pub notes: Vec<String>,
    /// The answer for each use; decided uses come first.
    pub uses: Vec<UseAnswer>,
    /// Calls with hot caches.
    pub calls: CallTable,
    /// The passes that did not end well.
    pub passes: PassCount,
    /// The acknowledged records that each store lost in kills and power cuts.
    pub losses: Vec<StoreLosses>,
    /// Arms with a daemon that keep files, and that no kill and no power cut was tried on.
    pub not_killed: Vec<String>,
    /// The commands that make missing evidence.
    pub missing: Vec<Remedy>,
}

impl Overview {
    /// The answer of the first of these runs, with decisions that rest on all of them.
    pub fn of(decisions: &[Decision], runs: &[RunEvidence<'_>]) -> Self {
        let Some(first) = runs.first() else {
            return Self::default();
        };
        let health = &first.summary.health;
        let (losses, not_killed) = kept::losses(runs);
        Self {
            about: about(first),
            identical_arms: if first.run.samples.is_empty() { String::new() } else { health.identical_arms() },
            notes: health.notes.clone(),
            uses: uses::uses(decisions, runs),
            calls: calls::table(first, decisions),
            passes: PassCount::of(runs),
            losses,
            not_killed,
            missing: remedies(decisions),
        }
    }
}

/// The duration of a run, its machine, scratch, placement and load.
fn about(run: &RunEvidence<'_>) -> Vec<String> {
    let (plan, environment) = (&run.run.plan, &run.run.environment);
    let health = &run.summary.health;
    let processors = number_of(environment.cpus as usize, "processor");
    let mut about = vec![
        format!("measuring took {}", minutes(health.took_ms)),
        match plan.merged.iter().map(|shard| &shard.machine).collect::<BTreeSet<_>>().len() {
            0 | 1 => format!("{}, {processors}", environment.cpu),
            kinds => format!("{kinds} KINDS OF MACHINES"),
        },
        format!("{} {}", environment.scratch.file_system, environment.scratch.journal),
    ];
    let mut sections = plan.schedule.sections.iter();
    if sections.all(|section| section.placement == rundir::Placement::SharedCpu) {
        about.push("client and daemon share one processor".to_owned());
    }
    if environment.build.starts_with("debug") {
        about.push("DEBUG build: its figures mean nothing".to_owned());
    }
    about.extend(load(health));
    about
}

/// Whether the machine was busy, in a few words. `None` without passes.
pub(crate) fn load(health: &Health) -> Option<String> {
    match (health.passes, health.is_busy, health.busy_passes) {
        (0, _, _) => None,
        (_, true, _) => Some("BUSY machine".to_owned()),
        (_, false, 0) => Some("quiet machine".to_owned()),
        (passes, false, busy) => {
            let share = 100.0 * busy as f64 / passes as f64;
            Some(if share > 10.0 {
                format!("machine busy in {share:.0} % of passes, whose rounds are left out")
            } else {
                format!("quiet machine (except in {share:.1} % of passes, whose rounds are left out)")
            })
        }
    }
}

/// A duration: `4 min 52 s`.
fn minutes(ms: u64) -> String {
    let seconds = (ms + 500) / 1000;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}
