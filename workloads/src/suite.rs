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
    pub model_files: Option<ModelFilesSettings>,
}

/// How much of model-generated files is measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFilesSettings {
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
        suite
            .check()
            .and_then(|()| suite.check_duplicates())
            .map_err(|message| InputError::whole(file, message))?;
        Ok(suite)
    }

    fn check(&self) -> Result<(), String> {
        if self.rounds == Some(0) {
            return Err("field `rounds`: must be at least 1".to_owned());
        }
        check_epochs(self.epochs)?;
        check_seconds("budget", self.budget, 86_400.0, "a day")?;
        let is_margin = |margin: f64| margin >= 0.0 && margin.is_finite();
        if !self.margin_us.is_none_or(is_margin) {
            return Err("field `margin_us`: must be a number from 0".to_owned());
        }
        check_seconds("call_timeout", self.call_timeout, 3600.0, "an hour")?;
        if self.workloads.is_empty() && self.model_files.is_none() {
            return Err("needs at least one `[[workload]]`, or `[model_files]`".to_owned());
        }
        for SuiteWorkload {
            name,
            states,
            epochs,
        } in &self.workloads
        {
            if states.is_empty() {
                return Err(format!("workload {name}: field `states` is empty"));
            }
            check_epochs(*epochs).map_err(|message| format!("workload {name}: {message}"))?;
        }
        Ok(())
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
        for name in self
            .against
            .iter()
            .flat_map(|(backend, other)| [backend, other])
        {
            if !self.backends.contains(name) {
                return Err(format!("field `against`: {name} is not in `backends`"));
            }
        }
        for (name, workloads) in &self.only {
            if !self.backends.contains(name) {
                return Err(format!("field `only`: {name} is not in `backends`"));
            }
            let is_there =
                |name: &String| self.workloads.iter().any(|workload| workload.name == *name);
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

fn check_epochs(epochs: Option<u32>) -> Result<(), String> {
    match epochs {
        Some(..3) => Err("field `epochs`: must be at least 3: fewer carry no interval".to_owned()),
        _ => Ok(()),
    }
}

fn check_seconds(field: &str, value: Option<f64>, most: f64, words: &str) -> Result<(), String> {
    match value {
        Some(seconds) if !(seconds > 0.0 && seconds <= most) => Err(format!(
            "field `{field}`: {seconds} s is not above 0 and at most {words}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suite of the workload `w`, with more lines before and below it.
    fn parse(before: &str, below: &str) -> Result<Suite, String> {
        let text =
            format!("essay = 'e'\n{before}\n[[workload]]\nname = 'w'\nstates = ['hot']\n{below}");
        Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_backend_is_compared_with_another_of_the_same_suite_only() {
        let parse = |other: &str| {
            let lines = format!("backends = ['s3', 's3-bare']\n[against]\ns3 = '{other}'");
            parse(&lines, "")
        };
        assert_eq!(parse("s3-bare").unwrap().against["s3"], "s3-bare");
        let error = parse("sqlite").unwrap_err();
        assert!(error.contains("sqlite is not in `backends`"), "{error}");
    }

    #[test]
    fn a_backend_can_be_limited_to_workloads_of_the_suite_and_a_workload_to_epochs() {
        let parse = |only: &str, epochs: u32| {
            let lines = format!("backends = ['sqlite']\n[only]\n{only}");
            parse(&lines, &format!("epochs = {epochs}"))
        };
        let suite = parse("sqlite = ['w']", 3).unwrap();
        assert_eq!(suite.only["sqlite"], ["w"]);
        assert_eq!(suite.workloads[0].epochs, Some(3));
        let few = "workload w: field `epochs`: must be at least 3";
        for (only, epochs, expected) in [
            ("s3 = ['w']", 3, "s3 is not in `backends`"),
            ("sqlite = ['x']", 3, "the suite has no workload x"),
            ("sqlite = ['w']", 2, few),
        ] {
            let error = parse(only, epochs).unwrap_err();
            let is_said = error.contains("s.toml") && error.contains(expected);
            assert!(is_said, "{error}");
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
    fn a_suite_may_set_margin_and_call_timeout_within_their_ranges() {
        let parse = |line: &str| parse(&format!("backends = []\n{line}"), "");
        assert_eq!(parse("").unwrap().call_timeout, None);
        assert_eq!(parse("margin_us = 0.0").unwrap().margin_us, Some(0.0));
        let timeout = parse("call_timeout = 60.0").unwrap().call_timeout;
        assert_eq!(timeout, Some(60.0));
        for (field, wrong) in [
            ("margin_us", ["-1.0", "nan", "inf"]),
            ("call_timeout", ["0.0", "nan", "4000.0"]),
        ] {
            for value in wrong {
                let error = parse(&format!("{field} = {value}")).unwrap_err();
                let is_named =
                    error.contains("s.toml") && error.contains(&format!("field `{field}`"));
                assert!(is_named, "{error}");
            }
        }
    }
}
