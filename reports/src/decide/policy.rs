//! Policies: what turns measurements into adopt, archive or inconclusive, written before the run.

use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use inputs::{InputError, parse_toml};

use crate::digest::sha256;
use crate::summary::MAKESPAN;
use rundir::Plan;

static POLICIES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/policies");

/// A policy file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it decides, and how.
    pub essay: String,
    /// The arm in use.
    pub baseline: String,
    /// The arm that might replace it.
    pub candidate: String,
    /// Rows that the candidate has to win.
    pub wins_needed: usize,
    /// The rows.
    #[serde(rename = "criterion")]
    pub criteria: Vec<Criterion>,
}

/// A row of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// What it is about.
    pub aspect: String,
    /// What the source of the policy says about it.
    pub source_says: String,
    /// Decided by a latency.
    pub latency: Option<Place>,
    /// Decided by a count.
    pub count: Option<Count>,
    /// The workload that a count belongs to, where it belongs to one.
    pub workload: Option<String>,
    /// The candidate's latency must be below so many milliseconds, with its whole interval.
    pub must_be_below_ms: Option<f64>,
    /// The count that must be at most so much, if it is another than the one that decides the winner.
    pub must_count: Option<Count>,
    /// The candidate's count must be at most so much.
    pub must_be_at_most: Option<u64>,
}

/// A cell without its arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The metric.
    pub metric: String,
}

/// Something that a run counts; fewer is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Daemons, mounts and other things that must be on the machine.
    Needs,
    /// Lines of this project's code that must work for the files to be there.
    LinesOfCode,
    /// Tokens of the results of a workload, as an agent is shown them.
    ResultTokens,
    /// Everyday tools that do not work in the workspace.
    ToolsFailing,
    /// Facts about the files that cannot be seen with what is at hand.
    HiddenFacts,
    /// Calls of a cron-style caller that fail while its daemon is killed again and again.
    CronFailedCalls,
    /// Acknowledged records that this loses, and times the caller does not come back by itself.
    CronLosses,
}

impl Policy {
    /// Reads a policy; `file` names it in errors.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let policy: Self = parse_toml(file, text)?;
        for criterion in &policy.criteria {
            let wrong = |message: &str| {
                let message = format!("criterion {:?}: {message}", criterion.aspect);
                Err(InputError::whole(file, message))
            };
            match (&criterion.latency, &criterion.count) {
                (Some(_), None) if criterion.must_be_at_most.is_some() => {
                    return wrong(
                        "`must_be_at_most` goes with `count`; a latency takes `must_be_below_ms`",
                    );
                }
                (None, Some(_)) if criterion.must_be_below_ms.is_some() => {
                    return wrong(
                        "`must_be_below_ms` goes with `latency`; a count takes `must_be_at_most`",
                    );
                }
                (Some(_), None) | (None, Some(_)) => {}
                _ => return wrong("needs exactly one of `latency` and `count`"),
            }
            if criterion.must_count.is_some() && criterion.must_be_at_most.is_none() {
                return wrong("`must_count` needs `must_be_at_most`");
            }
            if criterion.latency.is_some() && criterion.workload.is_some() {
                return wrong("`workload` goes with `count`; a latency names its own");
            }
            if criterion.count == Some(Count::ResultTokens) && criterion.workload.is_none() {
                return wrong("`count = \"result-tokens\"` needs `workload`");
            }
        }
        let problem = if policy.criteria.is_empty() {
            "needs at least one `[[criterion]]`"
        } else if policy.wins_needed == 0 {
            "field `wins_needed`: must be at least 1: what is better in nothing is not adopted"
        } else if policy.wins_needed > policy.criteria.len() {
            "field `wins_needed`: is more than there are criteria"
        } else if policy.baseline == policy.candidate {
            "fields `baseline`, `candidate`: are the same arm"
        } else {
            return Ok(policy);
        };
        Err(InputError::whole(file, problem))
    }

    /// What the policy asks for and a run of this plan cannot answer, by criterion.
    pub fn unanswered(&self, plan: &Plan) -> Vec<String> {
        let mut missing = Vec::new();
        for arm in [&self.baseline, &self.candidate] {
            if !plan.arms.iter().any(|planned| planned.name == *arm) {
                missing.push(format!("arm {arm}"));
            }
        }
        for criterion in &self.criteria {
            let (name, state, metric) = match (&criterion.latency, &criterion.workload) {
                (Some(place), _) => (&place.workload, Some(&place.state), Some(&place.metric)),
                (None, Some(workload)) => (workload, None, None),
                (None, None) => continue,
            };
            let planned = plan.workloads.iter().find(|planned| planned.name == *name);
            let is_there = planned.is_some_and(|planned| {
                let has_metric = |metric: &String| {
                    metric == MAKESPAN || planned.calls.contains_key(metric.as_str())
                };
                state.is_none_or(|state| planned.states.contains(state))
                    && metric.is_none_or(has_metric)
            });
            if !is_there {
                let parts = [metric, Some(name), state].into_iter().flatten();
                let parts: Vec<_> = parts.map(String::as_str).collect();
                missing.push(format!("{} ({})", parts.join(" "), criterion.aspect));
            }
        }
        missing
    }
}

/// The text of the built-in policy called `name`, or of the policy file at that path, and how errors
/// should name it.
///
/// # Errors
/// [`InputError`] if there is none.
pub fn find(name: &str) -> Result<(std::path::PathBuf, String), InputError> {
    let path = Path::new(name);
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(path).map_err(|error| InputError::whole(path, error))?;
        return Ok((path.to_owned(), text));
    }
    let file = POLICIES.get_file(format!("{name}.toml"));
    match file.and_then(|file| file.contents_utf8()) {
        Some(text) => Ok((
            Path::new("reports/policies").join(format!("{name}.toml")),
            text.to_owned(),
        )),
        None => {
            let known = POLICIES.files().filter_map(|file| file.path().file_stem());
            let known: Vec<_> = known.map(|stem| stem.to_string_lossy()).collect();
            let message = format!(
                "no such policy; there are {}, or give the path of a .toml file",
                known.join(", ")
            );
            Err(InputError::whole(path, message))
        }
    }
}

/// The identity of a policy's text.
pub fn identity(text: &str) -> String {
    sha256(text)
}
