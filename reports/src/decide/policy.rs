//! Policies: the rules, fixed before the run, that turn measurements into adopt, archive or inconclusive.

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
    /// The decision it makes, and how.
    pub essay: String,
    /// The arm in use.
    pub baseline: String,
    /// The arm that might replace the baseline.
    pub candidate: String,
    /// Number of rows that the candidate must win.
    pub wins_needed: usize,
    /// The rows.
    #[serde(rename = "criterion")]
    pub criteria: Vec<Criterion>,
}

/// A row of a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// The aspect of comparison.
    pub aspect: String,
    /// The statement of the policy's source.
    pub source_says: String,
    /// The latency that decides the row, unless a count does.
    pub latency: Option<Place>,
    /// The count that decides the row, unless a latency does.
    pub count: Option<Count>,
    /// The workload of a count, for counts that belong to one.
    pub workload: Option<String>,
    /// Gate: the whole interval of the candidate's latency must be below this, in milliseconds.
    pub must_be_below_ms: Option<f64>,
    /// The count of the gate, if it is not the count that decides the row.
    pub must_count: Option<Count>,
    /// Gate: the maximum of the candidate's count.
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

/// A count of a run; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Daemons, mounts and other requirements on the machine.
    Needs,
    /// Lines of this project's code that the files depend on.
    LinesOfCode,
    /// Tokens of a workload's results, as an agent sees them.
    ResultTokens,
    /// Common tools that do not work in the workspace.
    ToolsFailing,
    /// Facts about the files that cannot be seen with the available tools.
    HiddenFacts,
    /// Failed calls of a cron-style caller whose daemon is killed repeatedly.
    CronFailedCalls,
    /// Acknowledged records lost by these kills, plus kills without recovery by the caller's next attempt.
    CronLosses,
}

impl Policy {
    /// Parses a policy; `file` is only for error messages.
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

    /// The criteria that a run of this plan cannot answer, with the reason.
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

/// The built-in policy `name`, or the policy file at that path: its name for errors, and its text.
///
/// # Errors
/// [`InputError`] if there is no such policy.
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

/// The SHA-256 that identifies a policy's text.
pub fn identity(text: &str) -> String {
    sha256(text)
}
