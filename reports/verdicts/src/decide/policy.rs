//! Policies: the rules, fixed before the run, that turn evidence into a verdict on each candidate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use inputs::{InputError, PathStep, parse_toml, sha256, toml_error};
use rundir::{ArmBackend, Plan};

use crate::measure::{Evidence, MODEL_ARMS, Measure, Scale, has_feature, matches, planned_arm};
use figures::summary::MAKESPAN;

static POLICIES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../policies");

/// A policy file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// The question that it answers.
    pub question: String,
    /// The reasons for its rows and bounds.
    pub essay: String,
    /// The words in which an answer states what to do.
    #[serde(default)]
    pub advice: PolicyAdvice,
    /// The arm that candidates are compared with; if the present practice is not an arm, the practice in words.
    pub baseline: String,
    /// The least number of benefits that a candidate must show. Every cost must be tolerated.
    pub benefits_needed: usize,
    /// The candidates that it fits.
    pub candidates: Candidates,
    /// Requirements before any comparison.
    #[serde(default, rename = "gate")]
    pub gates: Vec<Criterion>,
    /// Reasons to change.
    #[serde(default, rename = "benefit")]
    pub benefits: Vec<Criterion>,
    /// Reasons not to change.
    #[serde(default, rename = "cost")]
    pub costs: Vec<Criterion>,
    /// Facts that an operator wants to know and that decide nothing, such as what must be installed.
    #[serde(default, rename = "listed")]
    pub listed: Vec<ListedRow>,
    /// The places for the files of a candidate that has no place of its own, such as a context policy.
    pub places: Option<Places>,
    /// The rows of a source's own comparison.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceRow>,
}

/// A fact that decides nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedRow {
    pub title: String,
    pub measure: Measure,
    /// The sentence of an answer about this fact, without its full stop, with `{candidate}` and `{baseline}` in place of both
    /// figures; empty if no answer states it.
    #[serde(default)]
    pub says: String,
}

/// The places of candidates that are none: at least one must keep every row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// The arms.
    pub arms: Candidates,
    /// The rows that each must keep.
    #[serde(rename = "row")]
    pub rows: Vec<Criterion>,
}

/// The place of the candidate's name in [`PolicyAdvice::choose`], and of its figure in `ListedRow::says`.
pub const CANDIDATE: &str = "{candidate}";

/// The place of the baseline's figure in [`ListedRow::says`].
pub(super) const BASELINE: &str = "{baseline}";

/// The words in which an answer states what to do. Words that are left out are made from the policy's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyAdvice {
    /// The use, in two or three words.
    #[serde(default)]
    pub title: String,
    /// The sentence that advises the baseline, without its full stop.
    #[serde(default)]
    pub keep: String,
    /// The sentence that advises `{candidate}`, without its full stop.
    #[serde(default)]
    pub choose: String,
    /// What no row measures and a reader must know, in a few words, without a full stop.
    #[serde(default)]
    pub unmeasured: String,
}

impl PolicyAdvice {
    /// These words; those that are left out are made from the names of a policy and of its baseline.
    fn completed(&self, policy: &str, baseline: &str) -> Self {
        let or = |words: &str, other: String| match words.trim() {
            "" => other,
            words => words.to_owned(),
        };
        Self {
            title: or(&self.title, capitalised(&policy.replace(['-', '_'], " "))),
            keep: or(&self.keep, format!("Keep {}", arm_words(baseline))),
            choose: or(&self.choose, format!("Use {CANDIDATE}")),
            unmeasured: self.unmeasured.trim().to_owned(),
        }
    }
}

/// An arm or practice in a sentence. The embedded server is an arrangement of a run, and nothing that a reader chooses.
pub fn arm_words(arm: &str) -> &str {
    match arm {
        "direct" => "a plain directory",
        "tools-sql" => "SQL tools",
        "inline" => "every result in the context",
        arm if arm.starts_with("s3") => arm.strip_suffix("-embedded").unwrap_or(arm),
        arm => arm,
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// The candidates that a policy fits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidates {
    /// The capabilities that a candidate must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub can: Vec<Capability>,
    /// The names, `*` at the end for any rest; all names if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// The candidates that an answer is expected to compare. It names those that no run measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<String>,
    /// Context policies, which are candidates instead of arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
}

/// As the table of a policy file, in one line; `any arm` if it is empty.
impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = toml::to_string(self).unwrap_or_default();
        match table.trim_end() {
            "" => f.write_str("any arm"),
            table => f.write_str(&table.replace('\n', ", ")),
        }
    }
}

/// A capability of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// Reads return the bytes that were written.
    HoldsData,
    /// Files survive the daemon.
    Persistent,
    /// It is mounted.
    Mount,
    /// A bucket holds its files.
    Bucket,
}

impl Candidates {
    /// Whether an arm fits. `backend` is `None` for a candidate that no plan describes.
    pub fn fit(&self, name: &str, backend: Option<&ArmBackend>) -> bool {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        let can = |capability: &Capability| {
            backend.is_some_and(|backend| match capability {
                Capability::HoldsData => backend.holds_data,
                Capability::Persistent => backend.persistent,
                Capability::Mount => backend.mounts > 0,
                Capability::Bucket => backend.has_bucket,
            })
        };
        (self.names.is_empty() || named(&self.names)) && !named(&self.except) && self.can.iter().all(can)
    }
}

/// The baseline of a row that compares two methods of the candidate.
pub const ITSELF: &str = "itself";

/// A row: a measure, and the bound that it must keep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub title: String,
    pub measure: Measure,
    pub unit: String,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// The arm of comparison, if it is not the policy's baseline; [`ITSELF`] compares two methods of the candidate.
    pub baseline: Option<String>,
    /// Whether a cost that no run measured decides nothing, so that a measurement can only lower the verdict.
    #[serde(default)]
    pub if_measured: bool,
    /// The condition under which a cost beyond its bound is tolerable.
    pub condition: Option<Condition>,
}

impl Criterion {
    /// The scale of the unit.
    pub fn scale(&self) -> Scale {
        // A parsed policy has no other units.
        self.measure.scale(&self.unit).unwrap_or(Scale::Own)
    }

    /// Whether it compares the same figures as another row of its role. Two costs may bound one figure in two units, but no fact
    /// is a benefit twice.
    fn asks_the_same(&self, other: &Self, role: &str) -> bool {
        let is_same_unit = self.unit == other.unit || role == "benefit";
        is_same_unit && (&self.measure, &self.baseline) == (&other.measure, &other.baseline)
    }

    /// Whether its baseline is a context policy, and no arm.
    fn compares_contexts(&self) -> bool {
        matches!(self.measure, Measure::Context(_))
    }
}

/// A condition whose break-even follows from the measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Condition {
    /// The wait that each file call adds stays below this share of a turn: up to N calls a turn.
    CallsATurn(f64),
    /// The cost is proportional to an amount of use; `used` is the measured amount.
    Proportional {
        what: String,
        /// The measured amount of it.
        used: f64,
        /// When the cost is tolerable, in words after `if`, with `{measured}` and `{used}` in place of the row's figure
        /// and of the amount; without it, the words state the amount at which the cost reaches its bound.
        #[serde(default, rename = "if")]
        holds_if: String,
    },
    /// The time grows with the round-trip time to the server, by the slope between the candidate and the same one
    /// behind an injected delay (`NAME@30ms`): up to Y ms.
    RoundTrip,
    /// A benefit counts for teams that need it.
    Needed,
    /// A benefit is asked for in more sessions than that of the measure. If it is not shown in all of them, it counts for
    /// sessions like that one.
    Sessions {
        /// What a session like that of the measure has, in words after `if`.
        like: String,
        /// The other sessions.
        others: Vec<String>,
    },
    /// A cost of every task is outweighed by what these counts save once a session: up to N tasks.
    OutweighedBy {
        /// The counts of the same score that must be smaller than the baseline's.
        counts: Vec<String>,
    },
}

/// A row of a source's own comparison, and the measure that tests it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRow {
    pub aspect: String,
    pub says: String,
    pub prefers: Preference,
    /// The measure that tests it; smaller is better.
    pub measure: Measure,
    /// The difference to the baseline that counts as none, as a ratio.
    #[serde(default = "no_difference")]
    pub same_within: f64,
    /// The candidate's figure according to the source: both ends, in the measure's unit.
    pub figure: Option<(f64, f64)>,
    /// The baseline's figure according to the source.
    pub baseline_figure: Option<(f64, f64)>,
}

fn no_difference() -> f64 {
    1.0
}

/// The arm that a source prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// The arm or practice in use.
    Baseline,
    /// The candidate.
    Candidate,
    /// Neither.
    Tie,
}

/// The names that a policy may use.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Workloads.
    pub workloads: BTreeSet<String>,
    /// Kinds of calls.
    pub metrics: BTreeSet<String>,
    /// Fault scenarios.
    pub scenarios: BTreeSet<String>,
    /// Arms.
    pub arms: BTreeSet<String>,
    /// Probes by aspect.
    pub probes: BTreeMap<String, BTreeSet<String>>,
    /// Features of file systems, as a plan names them, such as `links: hard link`.
    pub features: BTreeSet<String>,
}

impl Names {
    /// Whether an arm has this name, or matches this pattern.
    fn has_arm(&self, name: &str) -> bool {
        self.arms.iter().any(|arm| matches(name, arm))
    }

    /// Adds the names of a run's plan.
    pub fn add(&mut self, plan: &Plan) {
        for workload in &plan.workloads {
            self.workloads.insert(workload.name.clone());
            self.metrics.extend(workload.calls.keys().cloned());
        }
        let scenarios = plan.scenarios.iter();
        self.scenarios.extend(scenarios.map(|scenario| scenario.name.clone()));
        self.arms.extend(plan.arms.iter().map(|arm| arm.name.clone()));
        self.features.extend(plan.features.iter().cloned());
    }

    /// The groups of features.
    fn groups(&self) -> BTreeSet<String> {
        let groups = self.features.iter().filter_map(|feature| feature.split_once(':'));
        groups.map(|(group, _)| group.to_owned()).collect()
    }

    /// The number of probes or features that a measure counts; `None` for other measures, and if none is known.
    fn counted(&self, measure: &Measure) -> Option<usize> {
        let counted = match measure {
            Measure::Probes { aspect, .. } => self.probes.get(aspect.name())?.len(),
            Measure::Conformance { groups } => {
                let is_of = |feature: &&String| groups.iter().any(|group| has_feature(group, feature));
                self.features.iter().filter(|feature| groups.is_empty() || is_of(feature)).count()
            }
            _ => return None,
        };
        (counted > 0).then_some(counted)
    }
}

impl Policy {
    /// Parses a policy; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let policy: Self = parse_toml(file, text)?;
        let wrong = |path: &[PathStep<'_>], message: String| Err(toml_error(file, text, path, &message));
        let choose = &policy.advice.choose;
        if !choose.is_empty() && !choose.contains(CANDIDATE) {
            let path = [PathStep::Field("advice"), PathStep::Field("choose")];
            return wrong(&path, format!("must name the candidate as {CANDIDATE}"));
        }
        if policy.benefits.is_empty() {
            let message = "needs at least one `[[benefit]]`: a candidate without benefits is never adopted";
            return Err(InputError::whole(file, message));
        }
        if policy.benefits_needed == 0 || policy.benefits_needed > policy.benefits.len() {
            let message = format!("must be from 1 to {}, the number of benefits", policy.benefits.len());
            return wrong(&[PathStep::Field("benefits_needed")], message);
        }
        let of_contexts = !policy.candidates.contexts.is_empty();
        for (role, rows) in policy.rows() {
            for (at, row) in rows.iter().enumerate() {
                let found = problem(role, row).or_else(|| {
                    let same = rows[..at].iter().find(|other| row.asks_the_same(other, role))?;
                    let message = format!(
                        "asks what {:?} asks, so that one fact would count twice: remove one of them",
                        same.title
                    );
                    Some((vec![PathStep::Field("measure")], message))
                });
                if let Some((field, message)) = found {
                    let path = [PathStep::Field(role), PathStep::Item(at)];
                    let path: Vec<PathStep<'_>> = path.into_iter().chain(field).collect();
                    return wrong(&path, message);
                }
            }
        }
        for (path, measure) in policy.measures() {
            // A place is an arm, whatever the candidates are.
            let is_of_arm = !of_contexts || matches!(path[..], [PathStep::Field("places"), ..]);
            if is_of_arm && matches!(measure, Measure::Context(context) if context.policy.is_none()) {
                let own = [PathStep::Field("measure"), PathStep::Any];
                let message = "needs the field `policy`: it is asked of arms, and no arm is a context policy";
                return wrong(&[path, own.to_vec()].concat(), message.to_owned());
            }
        }
        for (path, row) in policy.of_candidates().filter(|_| of_contexts) {
            if !row.compares_contexts() {
                let path = [path, vec![PathStep::Field("measure")]].concat();
                let message = "is measured of arms, and the candidates are context policies, so that no candidate can keep the row: \
                               ask it of their places, in [[places.row]]";
                return wrong(&path, message.to_owned());
            }
        }
        for (at, row) in policy.listed.iter().enumerate() {
            if !row.says.is_empty() && !row.says.contains(CANDIDATE) {
                let path = [PathStep::Field("listed"), PathStep::Item(at), PathStep::Field("says")];
                return wrong(&path, format!("must have the figure of the candidate as {CANDIDATE}"));
            }
            if let Some((field, message)) = row.measure.problem() {
                let path = [
                    PathStep::Field("listed"),
                    PathStep::Item(at),
                    PathStep::Field("measure"),
                    PathStep::Any,
                    PathStep::Field(field),
                ];
                return wrong(&path, message);
            }
        }
        if of_contexts != policy.places.is_some() {
            let message = "context policies as candidates and `places` go together";
            return wrong(&[PathStep::Field("candidates")], message.to_owned());
        }
        for (at, row) in policy.place_rows().iter().enumerate() {
            if let Some((field, message)) = problem("place", row) {
                let path = [PathStep::Field("places"), PathStep::Field("row"), PathStep::Item(at)];
                let path: Vec<PathStep<'_>> = path.into_iter().chain(field).collect();
                return wrong(&path, message);
            }
        }
        for (at, row) in policy.sources.iter().enumerate() {
            if let Some((field, message)) = row.measure.problem() {
                let path =
                    [PathStep::Field("source"), PathStep::Item(at), PathStep::Field("measure"), PathStep::Field(field)];
                return wrong(&path, message);
            }
        }
        Ok(policy)
    }

    /// The words of its advice, complete.
    pub fn words(&self) -> PolicyAdvice {
        self.advice.completed(&self.name, &self.baseline)
    }

    /// This policy, with the baselines that it names as the arms of these runs that they mean.
    pub(super) fn with_arms_of(&self, evidence: &Evidence<'_>) -> Self {
        let mut policy = self.clone();
        let lists = [&mut policy.gates, &mut policy.benefits, &mut policy.costs];
        let places = policy.places.iter_mut();
        let rows = lists.into_iter().flatten();
        let rows = rows.chain(places.flat_map(|places| &mut places.rows));
        let named = rows.filter(|row| !row.compares_contexts());
        let named = named.filter_map(|row| row.baseline.as_mut());
        for name in named.chain([&mut policy.baseline]) {
            *name = evidence.arm_named(name).to_owned();
        }
        policy
    }

    /// The rows by role.
    pub fn rows(&self) -> [(&'static str, &[Criterion]); 3] {
        [("gate", &self.gates), ("benefit", &self.benefits), ("cost", &self.costs)]
    }

    /// The rows that a place must keep.
    pub(super) fn place_rows(&self) -> &[Criterion] {
        self.places.as_ref().map_or(&[], |places| &places.rows)
    }

    /// The arms that its rows compare with, and its baseline.
    pub(super) fn compared_with(&self) -> BTreeSet<&str> {
        let rows = self.rows().into_iter().flat_map(|(_, rows)| rows);
        let rows = rows.chain(self.place_rows());
        let named = rows.filter_map(|row| row.baseline.as_deref());
        let named = named.filter(|name| *name != ITSELF);
        named.chain([self.baseline.as_str()]).collect()
    }

    /// The rows that are asked of a candidate, each with its place.
    fn of_candidates(&self) -> impl Iterator<Item = (Vec<PathStep<'static>>, &Criterion)> {
        self.rows().into_iter().flat_map(|(role, rows)| {
            let rows = rows.iter().enumerate();
            rows.map(move |(at, row)| (item(role, at), row))
        })
    }

    /// The rows with a bound, each with its place.
    fn criteria(&self) -> impl Iterator<Item = (Vec<PathStep<'static>>, &Criterion)> {
        let places = self.place_rows().iter().enumerate();
        let places = places.map(|(at, row)| ([vec![PathStep::Field("places")], item("row", at)].concat(), row));
        self.of_candidates().chain(places)
    }

    /// The measures of all rows, each with the place of its row.
    fn measures(&self) -> impl Iterator<Item = (Vec<PathStep<'static>>, &Measure)> {
        let rows = self.criteria().map(|(path, row)| (path, &row.measure));
        let sources = self.sources.iter().enumerate();
        let sources = sources.map(|(at, row)| (item("source", at), &row.measure));
        let listed = self.listed.iter().enumerate();
        let listed = listed.map(|(at, row)| (item("listed", at), &row.measure));
        rows.chain(sources).chain(listed)
    }

    /// The other sessions in which benefits are asked for, each with its place.
    fn other_sessions(&self) -> Vec<(Vec<PathStep<'static>>, &str)> {
        let rows = self.benefits.iter().enumerate();
        let sessions = rows.filter_map(|(at, row)| match &row.condition {
            Some(Condition::Sessions { others, .. }) => Some((at, others)),
            _ => None,
        });
        let fields = ["condition", "sessions", "others"];
        let names = sessions.flat_map(|(at, others)| {
            others.iter().map(move |name| {
                let mut path = item("benefit", at);
                path.extend(fields.map(PathStep::Field));
                (path, name.as_str())
            })
        });
        names.collect()
    }

    /// The names and patterns of arms that must exist.
    pub fn arms(&self) -> impl Iterator<Item = &str> {
        self.arms_at().into_iter().map(|(_, name)| name)
    }

    /// The names and patterns of arms that must exist, each with its place.
    fn arms_at(&self) -> Vec<(Vec<PathStep<'static>>, &str)> {
        let of = &self.candidates;
        let fits = [("names", &of.names), ("except", &of.except), ("expected", &of.expected)];
        let fits = fits.into_iter().flat_map(|(field, names)| {
            let path = vec![PathStep::Field("candidates"), PathStep::Field(field)];
            names.iter().map(move |name| (path.clone(), name.as_str()))
        });
        let rows = self.rows().into_iter().flat_map(|(role, rows)| {
            let rows = rows.iter().enumerate();
            let rows = rows.filter(|(_, row)| !row.compares_contexts());
            rows.filter_map(move |(at, row)| {
                let path = vec![PathStep::Field(role), PathStep::Item(at), PathStep::Field("baseline")];
                let baseline = row.baseline.as_deref();
                Some((path, baseline.filter(|name| *name != ITSELF)?))
            })
        });
        let mut all: Vec<_> = fits.chain(rows).collect();
        if self.compares_with_an_arm() {
            all.push((vec![PathStep::Field("baseline")], &self.baseline));
        }
        all
    }

    /// Checks that a plan has every arm that a row compares with.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field of the first that is missing.
    pub fn check_baselines(&self, file: &Path, text: &str, plan: &Plan) -> Result<(), InputError> {
        let at = self.arms_at().into_iter();
        let baselines = at.filter(|(path, _)| matches!(path.last(), Some(PathStep::Field("baseline"))));
        for (path, name) in baselines {
            let arm = planned_arm(plan, name).and_then(|arm| plan.arm(arm));
            if arm.is_none_or(|arm| arm.unavailable.is_some()) {
                let message = format!(
                    "rows compare with {name:?}, which this run does not measure (add --backend {name}, or name another baseline)"
                );
                return Err(toml_error(file, text, &path, &message));
            }
        }
        Ok(())
    }

    /// Whether a row compares with the figure of the policy's baseline, which is then an arm.
    fn compares_with_an_arm(&self) -> bool {
        self.rows().iter().any(|(_, rows)| {
            rows.iter().any(|row| row.baseline.is_none() && row.scale() != Scale::Own && !row.compares_contexts())
        })
    }

    /// Checks the names of workloads, metrics, scenarios, probes, groups of features and arms.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field of the first unknown name.
    pub fn check_names(&self, file: &Path, text: &str, names: &Names) -> Result<(), InputError> {
        self.check_arms(file, text, names)?;
        self.check_rows(file, text, names)
    }

    /// The names and patterns of arms that match no known arm.
    pub fn unknown_arms(&self, names: &Names) -> Vec<&str> {
        let named = self.arms_at().into_iter().map(|(_, name)| name);
        named.filter(|name| !names.has_arm(name)).collect()
    }

    fn check_arms(&self, file: &Path, text: &str, names: &Names) -> Result<(), InputError> {
        let mut named = self.arms_at().into_iter();
        match named.find(|(_, name)| !names.has_arm(name)) {
            Some((path, name)) => Err(unknown(file, text, &path, (ARM, name), &names.arms)),
            None => Ok(()),
        }
    }

    /// Checks all names but those of arms.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field of the first unknown name.
    pub fn check_rows(&self, file: &Path, text: &str, names: &Names) -> Result<(), InputError> {
        for (path, name) in self.other_sessions() {
            if !names.workloads.contains(name) {
                return Err(unknown(file, text, &path, (WORKLOAD, name), &names.workloads));
            }
        }
        for (path, row) in self.criteria() {
            let counted = names.counted(&row.measure);
            if let Some((field, message)) = counted.and_then(|counted| undecided(row, Some(counted))) {
                let path = [path, vec![PathStep::Field(field)]].concat();
                return Err(toml_error(file, text, &path, &message));
            }
        }
        for (path, measure) in self.measures() {
            let wrong = |field: &'static str, (kind, name): (&str, &str), known: &BTreeSet<String>| {
                let own = [PathStep::Field("measure"), PathStep::Any, PathStep::Field(field)];
                let path: Vec<PathStep<'_>> = path.iter().copied().chain(own).collect();
                Err(unknown(file, text, &path, (kind, name), known))
            };
            for (workload, cell) in measure.cells() {
                if !names.workloads.contains(workload) {
                    let field = match measure {
                        Measure::Context(context) if context.workload != workload => "with",
                        _ => "workload",
                    };
                    return wrong(field, (WORKLOAD, workload), &names.workloads);
                }
                if let Some((_, metric)) = cell
                    && metric != MAKESPAN
                    && !names.metrics.contains(metric)
                {
                    return wrong("metric", ("metric", metric), &names.metrics);
                }
            }
            if let Measure::Conformance { groups } = measure {
                let is_unknown = |group: &&String| !names.features.iter().any(|feature| has_feature(group, feature));
                if let Some(group) = groups.iter().find(is_unknown) {
                    return wrong("groups", ("group", group), &names.groups());
                }
            }
            let none = BTreeSet::new();
            let (field, kind, named, known) = match measure {
                Measure::Faults { scenarios, .. } => ("scenarios", "scenario", scenarios, &names.scenarios),
                Measure::Probes { aspect, names: named } => {
                    let known = names.probes.get(aspect.name());
                    ("names", "probe", named, known.unwrap_or(&none))
                }
                _ => continue,
            };
            if let Some(name) = named.iter().find(|name| !known.contains(*name)) {
                return wrong(field, (kind, name.as_str()), known);
            }
        }
        Ok(())
    }

    /// Whether a run of a plan has a candidate that it fits.
    pub fn has_candidate(&self, plan: &Plan) -> bool {
        let arms = plan.arms.iter().filter(|arm| arm.can_be_candidate());
        let arms = arms.map(|arm| (arm.name.as_str(), Some(&arm.backend)));
        let models = MODEL_ARMS.into_iter().filter(|_| plan.model_files.is_some());
        if !self.candidates.contexts.is_empty() {
            return !plan.workloads.is_empty();
        }
        let mut all = arms.chain(models.map(|name| (name, None)));
        let baseline = planned_arm(plan, &self.baseline).unwrap_or(&self.baseline);
        all.any(|(name, backend)| name != baseline && self.candidates.fit(name, backend))
    }

    /// The cells that its rows need and that a plan does not have, in words. A cost that decides only if it is measured needs
    /// none.
    pub fn unanswered(&self, plan: &Plan) -> Vec<String> {
        let mut missing = BTreeSet::new();
        let sessions = self.other_sessions().into_iter().map(|(_, name)| name);
        missing.extend(sessions.filter(|name| plan.workload(name).is_none()).map(str::to_owned));
        let rows = self.rows().into_iter().flat_map(|(_, rows)| rows);
        let rows = rows.filter(|row| !row.if_measured);
        let rows = rows.chain(self.place_rows()).map(|row| &row.measure);
        let sources = self.sources.iter().map(|row| &row.measure);
        let listed = self.listed.iter().map(|row| &row.measure);
        for measure in rows.chain(sources).chain(listed) {
            for (name, cell) in measure.cells() {
                let is_there = plan.workload(name).is_some_and(|workload| {
                    cell.is_none_or(|(state, metric)| {
                        workload.states.iter().any(|planned| planned == state)
                            && match metric {
                                MAKESPAN => name.starts_with("agent/"),
                                _ => workload.calls.contains_key(metric),
                            }
                    })
                });
                if !is_there {
                    let cell = cell.map(|(state, metric)| format!(" ({metric}, {state})"));
                    missing.insert(format!("{name}{}", cell.unwrap_or_default()));
                }
            }
        }
        missing.into_iter().collect()
    }
}

/// The place of a row.
fn item(field: &'static str, at: usize) -> Vec<PathStep<'static>> {
    vec![PathStep::Field(field), PathStep::Item(at)]
}

/// Kinds of names of which a user may have own ones.
const ARM: &str = "arm";
const WORKLOAD: &str = "workload";

/// The error for an unknown name of a kind, with the known ones.
fn unknown(
    file: &Path,
    text: &str,
    path: &[PathStep<'_>],
    (kind, name): (&str, &str),
    known: &BTreeSet<String>,
) -> InputError {
    // Arms and workloads may also be a user's own.
    let why = match kind {
        ARM | WORKLOAD => ": it is neither built in nor part of the run",
        _ => "",
    };
    let known = known.iter().map(String::as_str);
    // Lists only names of the same kind, such as `agent/`, if there are any.
    let start = name.split_inclusive('/').next().unwrap_or(name);
    let alike = known.clone().filter(|other| other.starts_with(start));
    let alike: Vec<&str> = alike.collect();
    let shown: Vec<&str> = if alike.is_empty() { known.collect() } else { alike };
    let message = format!("unknown {kind} {name:?}{why}; {}", inputs::names::alternatives(name, shown));
    toml_error(file, text, path, &message)
}

/// The largest amount of use in a condition.
const MOST_USED: f64 = 1e9;

/// The first problem of a row: the field below the row, and the problem in words.
fn problem(role: &str, row: &Criterion) -> Option<(Vec<PathStep<'static>>, String)> {
    let field = |name| vec![PathStep::Field(name)];
    if let Some((name, message)) = row.measure.problem() {
        let path = vec![PathStep::Field("measure"), PathStep::Any, PathStep::Field(name)];
        return Some((path, message));
    }
    if !row.title.contains(char::is_alphanumeric) {
        return Some((field("title"), "needs words, which stand in the answer".to_owned()));
    }
    if row.measure.is_declared() {
        let message = format!(
            "is declared by a backend's makers and not measured: no candidate can win or lose this {role}; \
             list it in [[listed]], or name a measure that a run tests"
        );
        return Some((field("measure"), message));
    }
    if let Some(why) = row.measure.equal_by_construction() {
        return Some((field("measure"), format!("{why}: no candidate can win or lose this {role}")));
    }
    // All passes of a run bar a verdict. The few passes of a row say whether the answers of one script are right.
    let is_script = matches!(row.measure, Measure::Passes { .. });
    if let Some((_, message)) = row.measure.unbounded().filter(|_| !is_script) {
        return Some((vec![PathStep::Field("measure"), PathStep::Any], message));
    }
    if row.measure.scale(&row.unit).is_none() {
        let message =
            format!("{:?} is not a unit of this measure; use one of {}", row.unit, row.measure.units().join(", "));
        return Some((field("unit"), message));
    }
    let wrong = match (row.at_most, row.at_least) {
        (Some(bound), None) if !bound.is_finite() => Some(("at_most", "must be finite")),
        (None, Some(bound)) if !bound.is_finite() => Some(("at_least", "must be finite")),
        (None, None) => Some(("title", "the row needs `at_most` or `at_least`")),
        (Some(_), Some(_)) => Some(("at_least", "cannot be used with `at_most`")),
        _ => None,
    };
    if let Some((name, message)) = wrong {
        return Some((field(name), message.to_owned()));
    }
    if let Some((name, message)) = wrong_side(row).or_else(|| undecided(row, None)) {
        return Some((field(name), message));
    }
    if role == "benefit"
        && let Some((name, message)) = no_benefit(row)
    {
        return Some((field(name), message.to_owned()));
    }
    let counts_unseen = match &row.measure {
        Measure::Faults { within, .. } | Measure::Passes { within, .. } => within.is_some(),
        Measure::Score(score) => score.within.is_some() && row.scale() == Scale::Own,
        Measure::Hosts { figure, within, .. } => within.is_some() && figure.is_event() && row.scale() == Scale::Own,
        _ => false,
    };
    if counts_unseen && row.at_most != Some(0.0) {
        let message = "goes with `at_most = 0`: `within` bounds the share at which one event may happen";
        return Some((field("at_most"), message.to_owned()));
    }
    if let Measure::Context(context) = &row.measure
        && row.scale() != Scale::Own
        && context.policy.is_some()
        && context.policy == context.against
    {
        let message = "compares a context policy with itself, so that no candidate can win or lose";
        return Some((vec![PathStep::Field("measure"), PathStep::Any, PathStep::Field("against")], message.to_owned()));
    }
    let is_itself = row.baseline.as_deref() == Some(ITSELF) && row.scale() != Scale::Own;
    if is_itself && !row.measure.compares_methods() {
        let message = "compares the candidate's figure with the same figure, so that no candidate can win or lose; \
                       name two methods or workloads in `measure.score`, or another arm";
        return Some((field("baseline"), message.to_owned()));
    }
    if row.if_measured && role != "cost" {
        let message = format!("`if_measured` is for costs only: a {role} must be measured");
        return Some((field("if_measured"), message));
    }
    let condition = row.condition.as_ref()?;
    let message = match condition {
        Condition::Needed if role != "benefit" || !matches!(row.measure, Measure::Property { .. }) => {
            "`needed` goes with a benefit of `property`".to_owned()
        }
        Condition::Sessions { .. } if role != "benefit" || !matches!(row.measure, Measure::Context(_)) => {
            "`sessions` goes with a benefit of `context`".to_owned()
        }
        Condition::Sessions { like, others } if like.trim().is_empty() || others.is_empty() => {
            "`sessions` needs the words of `like` and at least one of `others`".to_owned()
        }
        Condition::Needed | Condition::Sessions { .. } => return None,
        _ if role != "cost" => "only a cost has such a condition".to_owned(),
        Condition::CallsATurn(share) if *share <= 0.0 || *share > 1.0 => {
            "`calls-a-turn` is a share of a turn, above 0 and at most 1".to_owned()
        }
        Condition::CallsATurn(_) if !matches!(row.measure, Measure::Latency(_)) => {
            "`calls-a-turn` goes with `latency`".to_owned()
        }
        Condition::RoundTrip if !matches!(row.measure, Measure::Latency(_)) || row.scale() != Scale::Own => {
            "`round-trip` goes with `latency` in ms".to_owned()
        }
        Condition::OutweighedBy { .. } if !matches!(row.measure, Measure::Score(_)) => {
            "`outweighed-by` goes with `score`".to_owned()
        }
        Condition::Proportional { used, .. } if !(*used > 0.0 && *used <= MOST_USED) => {
            format!("`used` must be above 0 and at most {MOST_USED}")
        }
        Condition::Proportional { .. } if row.at_most.is_none_or(|most| most <= 0.0) => {
            "`proportional` needs `at_most` above 0".to_owned()
        }
        _ => return None,
    };
    Some((field("condition"), message))
}

/// Why a candidate that is no better than the baseline would keep the bound of a benefit: the field, and the problem.
fn no_benefit(row: &Criterion) -> Option<(&'static str, &'static str)> {
    // The figure of a candidate that equals its baseline.
    let (equal, below, above) = match row.scale() {
        Scale::Own => (f64::NAN, "", ""),
        Scale::Ratio => (
            1.0,
            "must be below 1: a figure equal to the baseline's is not a benefit",
            "must be above 1: a figure equal to the baseline's is not a benefit",
        ),
        _ => (
            0.0,
            "must be below 0: a figure equal to the baseline's is not a benefit",
            "must be above 0: a figure equal to the baseline's is not a benefit",
        ),
    };
    match (row.at_most, row.at_least) {
        (Some(bound), _) if bound >= equal => Some(("at_most", below)),
        (_, Some(bound)) if bound <= equal => Some(("at_least", above)),
        _ if matches!(row.measure, Measure::Passes { .. } | Measure::Conformance { .. }) => {
            Some(("measure", "is a requirement, which the baseline meets, too: make it a gate"))
        }
        _ if row.scale() == Scale::Own && row.measure.compares() => Some((
            "unit",
            "is one of the candidate alone, and the baseline may be as good: a benefit needs a unit that compares, such as `ratio`",
        )),
        _ => None,
    }
}

/// Why a bound asks for a figure that is worse: the field, and the problem in words.
fn wrong_side(row: &Criterion) -> Option<(&'static str, String)> {
    let is_less_better = row.measure.is_less_better()?;
    // What a candidate has fewer or saves is better if it is more.
    let is_less_better = is_less_better != matches!(row.scale(), Scale::Fewer | Scale::Saved);
    let unit = &row.unit;
    match (row.at_most, is_less_better) {
        (None, true) => Some(("at_least", format!("a larger figure is worse here ({unit}): use `at_most`"))),
        (Some(_), false) => Some(("at_most", format!("a smaller figure is worse here ({unit}): use `at_least`"))),
        _ => None,
    }
}

/// Why no candidate can keep a bound, or none can break it: the field, and the problem in words.
fn undecided(row: &Criterion, counted: Option<usize>) -> Option<(&'static str, String)> {
    let range = row.measure.deciding(row.scale(), counted);
    let problem = |bound: f64, is_most| range.problem(bound, is_most, &row.unit);
    match (row.at_most, row.at_least) {
        (Some(bound), _) => problem(bound, true).map(|message| ("at_most", message)),
        (_, Some(bound)) => problem(bound, false).map(|message| ("at_least", message)),
        _ => None,
    }
}

/// The names of the built-in policies.
pub fn built_in() -> Vec<String> {
    let files = POLICIES.files().filter_map(|file| file.path().file_stem());
    let mut names: Vec<String> = files.map(|stem| stem.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The built-in policy `name`, or the policy file at that path: its name for errors, and its text.
///
/// # Errors
/// [`InputError`] if no policy has this name.
pub fn find(name: &str) -> Result<(PathBuf, String), InputError> {
    let file = format!("{name}.toml");
    let found = POLICIES.get_file(&file);
    let found = found.and_then(|policy| policy.contents_utf8());
    let found = found.map(|text| (Path::new("reports/policies").join(file), text));
    inputs::named("policy", name, found, &built_in())
}

/// The SHA-256 of every built-in policy's text, by name.
pub fn identities() -> BTreeMap<String, String> {
    let names = built_in().into_iter();
    names.filter_map(|name| find(&name).ok().map(|(_, text)| (name, identity(&text)))).collect()
}

/// The SHA-256 that identifies a policy's text.
pub fn identity(text: &str) -> String {
    sha256(text)
}
