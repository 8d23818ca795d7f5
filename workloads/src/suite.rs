//! Suites: which workloads, cache states and backends make a run, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::definition::CacheState;
use inputs::{InputError, parse_toml};

/// A suite file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// What it is for.
    pub essay: String,
    /// Seconds that measuring may take, unless the command line says; `None` for the usual four minutes.
    pub budget: Option<f64>,
    /// The most epochs; `None` for the usual eight.
    pub epochs: Option<u32>,
    /// The most rounds of a cell in an epoch; `None` for as many as the budget allows.
    pub rounds: Option<u32>,
    /// The backends, by name; `direct` is always there, twice.
    pub backends: Vec<String>,
    /// Backends that are compared with another one of the suite instead of with `direct`.
    #[serde(default)]
    pub against: BTreeMap<String, String>,
    /// What is replayed.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<SuiteWorkload>,
    /// Seconds after which a call counts as a timeout, unless the command line says; `None` for the usual limit.
    pub call_timeout: Option<f64>,
    /// The margin in microseconds a call, unless the command line says; `None` for the usual one.
    pub margin_us: Option<f64>,
    /// The policy that runs are made for, unless the command line says; `None` for the usual one, `none` for a suite that
    /// decides nothing.
    pub policy: Option<String>,
    /// Whether the decision's probes (tools, cron, what is visible) run too.
    #[serde(default)]
    pub probes: bool,
    /// How much is measured of files that a language model makes up, after the passes; `None` for nothing.
    pub model_files: Option<ModelFiles>,
}

/// How much of files that a language model makes up is measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFiles {
    /// Lengths of histories, in operations.
    pub lengths: Vec<u32>,
    /// Histories of each length.
    pub histories: u32,
    /// Files that are asked for in each history.
    pub reads: u32,
    /// Fewer mounts, short answers, and nothing is asked anew: a minute.
    #[serde(default)]
    pub brief: bool,
}

/// A workload in a suite.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteWorkload {
    /// Its name.
    pub name: String,
    /// The cache states to measure it in.
    pub states: Vec<CacheState>,
}

impl Suite {
    /// Reads a suite file; `file` names it in errors.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let suite: Self = parse_toml(file, text)?;
        if suite.rounds == Some(0) {
            let message = "field `rounds`: must be at least 1";
            return Err(InputError::whole(file, message));
        }
        if suite.epochs.is_some_and(|epochs| epochs < 3) {
            let message = "field `epochs`: must be at least 3: fewer carry no interval";
            return Err(InputError::whole(file, message));
        }
        if let Some(seconds) = suite.budget
            && !(seconds > 0.0 && seconds <= 86_400.0)
        {
            let message = format!("field `budget`: {seconds} s is not above 0 and at most a day");
            return Err(InputError::whole(file, message));
        }
        if suite
            .margin_us
            .is_some_and(|margin| !(margin >= 0.0 && margin.is_finite()))
        {
            let message = "field `margin_us`: must be a number from 0";
            return Err(InputError::whole(file, message));
        }
        if let Some(seconds) = suite.call_timeout
            && !(seconds > 0.0 && seconds <= 3600.0)
        {
            let message =
                format!("field `call_timeout`: {seconds} s is not above 0 and at most an hour");
            return Err(InputError::whole(file, message));
        }
        if suite.workloads.is_empty() && suite.model_files.is_none() {
            return Err(InputError::whole(
                file,
                "needs at least one `[[workload]]`, or `[model_files]`",
            ));
        }
        for workload in &suite.workloads {
            if workload.states.is_empty() {
                let message = format!("workload {}: field `states` is empty", workload.name);
                return Err(InputError::whole(file, message));
            }
        }
        suite
            .check_duplicates()
            .map_err(|message| InputError::whole(file, message))?;
        Ok(suite)
    }

    /// Whether everything is named once: two passes of one cell in a round could not be told apart.
    ///
    /// # Errors
    /// What is named twice.
    pub fn check_duplicates(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for name in &self.backends {
            if !seen.insert(name) {
                return Err(format!("backend {name} is named twice"));
            }
        }
        for name in self.against.iter().flat_map(|(own, other)| [own, other]) {
            if !self.backends.contains(name) {
                return Err(format!("field `against`: {name} is not in `backends`"));
            }
        }
        let mut seen = BTreeSet::new();
        for workload in &self.workloads {
            if !seen.insert(&workload.name) {
                return Err(format!("workload {} is named twice", workload.name));
            }
            let states: BTreeSet<_> = workload.states.iter().collect();
            if states.len() < workload.states.len() {
                let name = &workload.name;
                return Err(format!("workload {name}: a state is named twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_compared_with_another_of_the_same_suite_only() {
        let parse = |other: &str| {
            let text = format!(
                "essay = 'e'\nbackends = ['s3', 's3-bare']\n[against]\ns3 = '{other}'\n[[workload]]\nname = 'w'\nstates = ['hot']\n"
            );
            Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
        };
        assert_eq!(parse("s3-bare").unwrap().against["s3"], "s3-bare");
        let error = parse("sqlite").unwrap_err();
        assert!(error.contains("sqlite is not in `backends`"), "{error}");
    }

    #[test]
    fn a_margin_below_nothing_is_refused() {
        let parse = |margin: &str| {
            let text = format!(
                "essay = 'e'\nbackends = []\nmargin_us = {margin}\n[[workload]]\nname = 'w'\nstates = ['hot']\n"
            );
            Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
        };
        assert_eq!(parse("0.0").unwrap().margin_us, Some(0.0));
        for wrong in ["-1.0", "nan", "inf"] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains("field `margin_us`"), "{error}");
        }
    }

    #[test]
    fn a_suite_measures_workloads_or_model_files() {
        let head = "essay = 'e'\nbackends = []\n";
        let parse = |text: &str| Suite::parse(Path::new("s.toml"), text);
        let nothing = parse(head).unwrap_err().to_string();
        assert!(nothing.contains("[[workload]]"), "{nothing}");
        let asked = format!("{head}[model_files]\nlengths = [1]\nhistories = 1\nreads = 1\n");
        assert!(parse(&asked).unwrap().workloads.is_empty());
    }

    #[test]
    fn a_suite_may_set_how_long_a_call_may_take() {
        let parse = |line: &str| {
            let text = format!(
                "essay = 'e'\nbackends = []\n{line}\n[[workload]]\nname = 'w'\nstates = ['hot']\n"
            );
            Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
        };
        assert_eq!(parse("").unwrap().call_timeout, None);
        assert_eq!(
            parse("call_timeout = 60.0").unwrap().call_timeout,
            Some(60.0)
        );
        for wrong in [
            "call_timeout = 0.0",
            "call_timeout = nan",
            "call_timeout = 4000.0",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(
                error.contains("s.toml") && error.contains("field `call_timeout`"),
                "{error}"
            );
        }
    }
}
