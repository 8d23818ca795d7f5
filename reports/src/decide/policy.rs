//! Policies: what turns measurements into adopt, archive or inconclusive, written before the run.

use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use crate::input::{InputError, parse_toml, sha256};

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
    pub seed_says: String,
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
            if criterion.count == Some(Count::ResultTokens) && criterion.workload.is_none() {
                return wrong("`count = \"result-tokens\"` needs `workload`");
            }
        }
        if policy.criteria.is_empty() {
            return Err(InputError::whole(
                file,
                "needs at least one `[[criterion]]`",
            ));
        }
        Ok(policy)
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
