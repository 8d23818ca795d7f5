//! Suite files: the workloads, cache states, backends and schedule of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::definition::CacheState;
use inputs::{InputError, parse_toml};

/// A suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Its purpose.
    pub essay: String,
    /// The names of the backends; `direct` is always included, twice.
    pub backends: Vec<String>,
    /// Backends that are compared with another backend of the suite instead of `direct`.
    pub against: BTreeMap<String, String>,
    /// Backends that take part in these workloads of the suite only. Every other backend takes part in all.
    pub only: BTreeMap<String, Vec<String>>,
    /// The sections. Each has a budget and epochs of its own.
    pub sections: Vec<SuiteSection>,
    /// The call timeout in seconds; `None` for the default. The command line overrides it.
    pub call_timeout: Option<f64>,
    /// The absolute margin in microseconds per call; `None` for the default. The command line overrides it.
    pub margin_us: Option<f64>,
    /// The policy of the run; `None` for the default, `none` for a suite without a decision.
    /// The command line overrides it.
    pub policy: Option<String>,
    /// Whether the probes of the decision run: tools, cron, visibility.
    pub probes: bool,
    /// How much of model-generated files is measured, after the passes; `None` for nothing.
    pub model_files: Option<ModelFilesSettings>,
}

/// A suite file. Without `[[section]]`, it is one section.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteFile {
    essay: String,
    budget: Option<f64>,
    epochs: Option<u32>,
    rounds: Option<u32>,
    backends: Vec<String>,
    #[serde(default)]
    against: BTreeMap<String, String>,
    #[serde(default)]
    only: BTreeMap<String, Vec<String>>,
    #[serde(rename = "section", default)]
    sections: Vec<SuiteSection>,
    #[serde(rename = "workload", default)]
    workloads: Vec<SuiteWorkload>,
    call_timeout: Option<f64>,
    margin_us: Option<f64>,
    policy: Option<String>,
    #[serde(default)]
    probes: bool,
    model_files: Option<ModelFilesSettings>,
}

/// The name of the section of a suite without `[[section]]`.
pub const ONE_SECTION: &str = "all";

/// A part of a suite with a budget and epochs of its own, from which no other section takes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteSection {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// Its time budget in seconds; `None` for four minutes.
    pub budget: Option<f64>,
    /// The maximum number of epochs; `None` for eight.
    pub epochs: Option<u32>,
    /// The maximum number of rounds of a cell in an epoch; `None` for as many as the budget allows.
    pub rounds: Option<u32>,
    /// The backends of the suite that take part; `None` for all of them.
    pub backends: Option<Vec<String>>,
    /// Whether client and daemons share one processor. Otherwise the scheduler places them.
    #[serde(default)]
    pub shared_cpu: bool,
    /// Whether an epoch of a hot cell begins with a round that is not timed.
    #[serde(default = "yes")]
    pub warm_up: bool,
    /// Whether only counts are wanted: then times are not compared, and `direct` takes part once.
    #[serde(default)]
    pub counts: bool,
    /// The workloads to replay.
    #[serde(rename = "workload")]
    pub workloads: Vec<SuiteWorkload>,
}

fn yes() -> bool {
    true
}

impl SuiteSection {
    /// A section with these workloads, and defaults for the rest.
    pub fn of(name: &str, workloads: Vec<SuiteWorkload>) -> Self {
        Self {
            name: name.to_owned(),
            budget: None,
            epochs: None,
            rounds: None,
            backends: None,
            shared_cpu: false,
            warm_up: true,
            counts: false,
            workloads,
        }
    }
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
}

impl Suite {
    /// Parses a suite file; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let given: SuiteFile = parse_toml(file, text)?;
        let suite = Self::from_file(given).and_then(|suite| {
            suite.check()?;
            suite.check_duplicates()?;
            Ok(suite)
        });
        suite.map_err(|message| InputError::whole(file, message))
    }

    fn from_file(given: SuiteFile) -> Result<Self, String> {
        let mut sections = given.sections;
        let is_set = [
            ("budget", given.budget.is_some()),
            ("epochs", given.epochs.is_some()),
            ("rounds", given.rounds.is_some()),
            ("workload", !given.workloads.is_empty()),
        ];
        if sections.is_empty() {
            if !given.workloads.is_empty() {
                sections.push(SuiteSection {
                    budget: given.budget,
                    epochs: given.epochs,
                    rounds: given.rounds,
                    ..SuiteSection::of(ONE_SECTION, given.workloads)
                });
            }
        } else if let Some((field, _)) = is_set.iter().find(|(_, is_set)| *is_set) {
            return Err(format!("field `{field}`: a suite with `[[section]]` has it in each section"));
        }
        Ok(Self {
            essay: given.essay,
            backends: given.backends,
            against: given.against,
            only: given.only,
            sections,
            call_timeout: given.call_timeout,
            margin_us: given.margin_us,
            policy: given.policy,
            probes: given.probes,
            model_files: given.model_files,
        })
    }

    /// The workloads of all sections.
    pub fn workloads(&self) -> impl Iterator<Item = &SuiteWorkload> {
        self.sections.iter().flat_map(|section| &section.workloads)
    }

    fn check(&self) -> Result<(), String> {
        let is_margin = |margin: f64| margin >= 0.0 && margin.is_finite();
        if !self.margin_us.is_none_or(is_margin) {
            return Err("field `margin_us`: must be a number from 0".to_owned());
        }
        check_seconds("call_timeout", self.call_timeout, 3600.0, "an hour")?;
        if self.sections.is_empty() && self.model_files.is_none() {
            return Err("needs at least one `[[workload]]`, or `[model_files]`".to_owned());
        }
        for section in &self.sections {
            let name = &section.name;
            let within = |message| format!("section {name}: {message}");
            if section.rounds == Some(0) {
                return Err(within("field `rounds`: must be at least 1".to_owned()));
            }
            check_epochs(section.epochs).map_err(within)?;
            check_seconds("budget", section.budget, 86_400.0, "a day").map_err(within)?;
            if section.workloads.is_empty() {
                return Err(within("needs at least one `[[section.workload]]`".to_owned()));
            }
            for backend in section.backends.iter().flatten() {
                if !self.backends.contains(backend) {
                    return Err(within(format!("{backend} is not in `backends` of the suite")));
                }
            }
        }
        for SuiteWorkload { name, states } in self.workloads() {
            if states.is_empty() {
                return Err(format!("workload {name}: field `states` is empty"));
            }
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
        for name in self.against.iter().flat_map(|(backend, other)| [backend, other]) {
            if !self.backends.contains(name) {
                return Err(format!("field `against`: {name} is not in `backends`"));
            }
        }
        for (name, workloads) in &self.only {
            if !self.backends.contains(name) {
                return Err(format!("field `only`: {name} is not in `backends`"));
            }
            let is_there = |name: &String| self.workloads().any(|workload| workload.name == *name);
            if let Some(unknown) = workloads.iter().find(|name| !is_there(name)) {
                return Err(format!("field `only`: the suite has no workload {unknown}"));
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.sections.iter().find(|one| !seen.insert(&one.name)) {
            return Err(format!("section {} is named twice", twice.name));
        }
        let mut cells = BTreeSet::new();
        for section in &self.sections {
            let mut seen = BTreeSet::new();
            for workload in &section.workloads {
                let name = &workload.name;
                if !seen.insert(name) {
                    return Err(format!("workload {name} is named twice"));
                }
                for state in &workload.states {
                    if !cells.insert((name, *state, section.shared_cpu)) {
                        return Err(format!("workload {name}: state {} is named twice", state.name()));
                    }
                }
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
        Some(seconds) if !(seconds > 0.0 && seconds <= most) => {
            Err(format!("field `{field}`: {seconds} s is not above 0 and at most {words}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suite of the workload `w`, with more lines before and below it.
    fn parse(before: &str, below: &str) -> Result<Suite, String> {
        let text = format!("essay = 'e'\n{before}\n[[workload]]\nname = 'w'\nstates = ['hot']\n{below}");
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
    fn a_backend_can_be_limited_to_workloads_of_the_suite() {
        let parse = |only: &str| {
            let lines = format!("backends = ['sqlite']\n[only]\n{only}");
            parse(&lines, "")
        };
        let suite = parse("sqlite = ['w']").unwrap();
        assert_eq!(suite.only["sqlite"], ["w"]);
        for (only, expected) in
            [("s3 = ['w']", "s3 is not in `backends`"), ("sqlite = ['x']", "the suite has no workload x")]
        {
            let error = parse(only).unwrap_err();
            let is_said = error.contains("s.toml") && error.contains(expected);
            assert!(is_said, "{error}");
        }
    }

    #[test]
    fn a_suite_without_sections_is_one_section() {
        let suite = parse("backends = []\nbudget = 20\nepochs = 5\nrounds = 2", "").unwrap();
        let [section] = &suite.sections[..] else {
            panic!("{suite:?}");
        };
        let found = (&section.name[..], section.budget, section.epochs, section.rounds);
        assert_eq!(found, ("all", Some(20.0), Some(5), Some(2)));
        assert!(section.warm_up && !section.counts && !section.shared_cpu);
    }

    #[test]
    fn a_section_has_its_own_budget_epochs_backends_and_placement() {
        let cell = "[[section.workload]]\nname = 'w'\nstates = ['hot']\n";
        let parse = |head: &str, second: &str| {
            let text = format!(
                "essay = 'e'\nbackends = ['sqlite']\n{head}\n[[section]]\nname = 'one'\n{cell}[[section]]\n{second}\n{cell}"
            );
            Suite::parse(Path::new("s.toml"), &text).map_err(|error| error.to_string())
        };
        let own = "name = 'two'\nbudget = 9\nepochs = 10\nrounds = 1\nshared_cpu = true\nwarm_up = false\nbackends = ['sqlite']";
        let suite = parse("", own).unwrap();
        let second = &suite.sections[1];
        assert_eq!((second.budget, second.epochs), (Some(9.0), Some(10)));
        assert!(second.shared_cpu && !second.warm_up && !suite.sections[0].shared_cpu);
        for (head, second, expected) in [
            ("budget = 9", own, "field `budget`: a suite with `[[section]]` has it in each section"),
            ("", "name = 'two'", "workload w: state hot is named twice"),
            ("", "name = 'one'\nshared_cpu = true", "section one is named twice"),
            ("", "name = 'two'\nepochs = 2", "section two: field `epochs`: must be at least 3"),
            ("", "name = 'two'\nbudget = 0", "section two: field `budget`: 0 s is not above 0"),
            ("", "name = 'two'\nrounds = 0", "section two: field `rounds`: must be at least 1"),
            ("", "name = 'two'\nbackends = ['s3']", "section two: s3 is not in `backends`"),
            ("", "name = '../x'", "component"),
            ("", "name = 'two'\nshare = 1", "share"),
        ] {
            let error = parse(head, second).unwrap_err();
            let is_said = error.contains("s.toml") && error.contains(expected);
            assert!(is_said, "{expected}: {error}");
        }
    }

    #[test]
    fn a_suite_measures_workloads_or_model_files() {
        let head = "essay = 'e'\nbackends = []\n";
        let parse = |text: &str| Suite::parse(Path::new("s.toml"), text);
        let nothing = parse(head).unwrap_err().to_string();
        assert!(nothing.contains("[[workload]]"), "{nothing}");
        let asked = format!("{head}[model_files]\nlengths = [1]\nhistories = 1\nreads = 1\n");
        assert!(parse(&asked).unwrap().sections.is_empty());
    }

    #[test]
    fn a_suite_may_set_margin_and_call_timeout_within_their_ranges() {
        let parse = |line: &str| parse(&format!("backends = []\n{line}"), "");
        assert_eq!(parse("").unwrap().call_timeout, None);
        assert_eq!(parse("margin_us = 0.0").unwrap().margin_us, Some(0.0));
        let timeout = parse("call_timeout = 60.0").unwrap().call_timeout;
        assert_eq!(timeout, Some(60.0));
        for (field, wrong) in [("margin_us", ["-1.0", "nan", "inf"]), ("call_timeout", ["0.0", "nan", "4000.0"])] {
            for value in wrong {
                let error = parse(&format!("{field} = {value}")).unwrap_err();
                let is_named = error.contains("s.toml") && error.contains(&format!("field `{field}`"));
                assert!(is_named, "{error}");
            }
        }
    }
}
