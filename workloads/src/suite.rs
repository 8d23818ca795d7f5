//! Suite files: the workloads, cache states, backends and schedule of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::definition::CacheState;
use inputs::{InputError, parse_toml};

/// A suite file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its purpose.
    pub essay: String,
    /// The default time budget in seconds; `None` for four minutes. The command line overrides it.
    pub budget: Option<f64>,
    /// The maximum number of epochs; `None` for eight.
    pub epochs: Option<u32>,
    /// The maximum number of rounds of a cell in an epoch; `None` for as many as the budget allows.
    pub rounds: Option<u32>,
    /// The names of the backends; `direct` is always included, twice.
    pub backends: Vec<String>,
    /// Backends that are compared with another backend of the suite instead of `direct`.
    #[serde(default)]
    pub against: BTreeMap<String, String>,
    /// Backends that take part in these workloads of the suite only. Every other backend takes part in all.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// The workloads to replay.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<SuiteWorkload>,
    /// The call timeout in seconds; `None` for the default. The command line overrides it.
    pub call_timeout: Option<f64>,
    /// The absolute margin in microseconds per call; `None` for the default. The command line overrides it.
    pub margin_us: Option<f64>,
    /// The policy of the run; `None` for the default, `none` for a suite without a decision.
    /// The command line overrides it.
    pub policy: Option<String>,
    /// Whether the probes of the decision run: tools, cron, visibility.
    #[serde(default)]
    pub probes: bool,
    /// How much of model-generated files is measured, after the passes; `None` for nothing.
    pub model_files: Option<ModelFiles>,
}

/// How much of model-generated files is measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFiles {
    /// Lengths of histories, in operations.
    pub lengths: Vec<u32>,
    /// Histories of each length.
    pub histories: u32,
    /// Files read in each history.
    pub reads: u32,
    /// Fewer mounts, short answers and no repeated questions, which take about a minute.
    #[serde(default)]
    pub brief: bool,
}

/// A workload in a suite.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteWorkload {
    /// Its name.
    pub name: String,
    /// The cache states in which it is measured.
    pub states: Vec<CacheState>,
    /// The number of epochs that measure it, with the fewest rounds; `None` for all epochs, with as many rounds as the
    /// budget allows. For long passes.
    pub epochs: Option<u32>,
}

impl Suite {
    /// Parses a suite file; `file` is only for error messages.
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
            if workload.epochs.is_some_and(|epochs| epochs < 3) {
                let message = format!(
                    "workload {}: field `epochs`: must be at least 3: fewer carry no interval",
                    workload.name
                );
                return Err(InputError::whole(file, message));
            }
        }
        suite
            .check_duplicates()
            .map_err(|message| InputError::whole(file, message))?;
        Ok(suite)
    }

    /// Checks that every name occurs once. Otherwise two passes of a cell in a round could not be told apart.
    ///
    /// # Errors
    /// A message that names the duplicate.
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
        for (name, workloads) in &self.only {
            if !self.backends.contains(name) {
                return Err(format!("field `only`: {name} is not in `backends`"));
            }
            let is_there = |name: &String| self.workloads.iter().any(|own| own.name == *name);
            if let Some(unknown) = workloads.iter().find(|name| !is_there(name)) {
                return Err(format!("field `only`: the suite has no workload {unknown}"));
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
    fn a_backend_can_be_limited_to_workloads_of_the_suite_and_a_workload_to_epochs() {
        let parse = |only: &str, epochs: u32| {
            let text = format!(
                "essay = 'e'\nbackends = ['sqlite']\n[only]\n{only}\n[[workload]]\nname = 'w'\nstates = ['hot']\nepochs = {epochs}\n"
            );
            Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
        };
        let suite = parse("sqlite = ['w']", 3).unwrap();
        assert_eq!(suite.only["sqlite"], ["w"]);
        assert_eq!(suite.workloads[0].epochs, Some(3));
        for (only, epochs, expected) in [
            ("s3 = ['w']", 3, "s3 is not in `backends`"),
            ("sqlite = ['x']", 3, "the suite has no workload x"),
            (
                "sqlite = ['w']",
                2,
                "workload w: field `epochs`: must be at least 3",
            ),
        ] {
            let error = parse(only, epochs).unwrap_err();
            assert!(
                error.contains("s.toml") && error.contains(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn a_negative_margin_is_refused() {
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
    fn a_suite_may_set_the_call_timeout() {
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
