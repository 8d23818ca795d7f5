//! Suites: which workloads, cache states and backends make a run, and how often.

use std::collections::BTreeSet;
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
    /// What is replayed.
    #[serde(rename = "workload")]
    pub workloads: Vec<SuiteWorkload>,
    /// Seconds after which a call counts as a timeout, unless the command line says; `None` for the usual limit.
    pub call_timeout: Option<f64>,
    /// Whether the decision's probes (tools, cron, what is visible) run too.
    #[serde(default)]
    pub probes: bool,
    /// Whether files that a language model makes up are measured after the passes, in short.
    #[serde(default)]
    pub model_files: bool,
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
        if let Some(seconds) = suite.call_timeout
            && !(seconds > 0.0 && seconds <= 3600.0)
        {
            let message =
                format!("field `call_timeout`: {seconds} s is not above 0 and at most an hour");
            return Err(InputError::whole(file, message));
        }
        if suite.workloads.is_empty() {
            return Err(InputError::whole(file, "needs at least one `[[workload]]`"));
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
