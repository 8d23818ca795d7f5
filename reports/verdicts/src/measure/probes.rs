//! Probes of tools and of visible facts, and the features of a conformance run.

use std::collections::BTreeSet;

use rundir::properties::{MACHINE_LOSS, PROPERTIES, PROPERTY};
use rundir::{Outcome, PROBES, Probe, SkipReason};
use serde::Deserialize;

use super::{ArmReading, Evidence, Gap, GapKind, MeasureResult, missing};
use figures::conformance::{CONFORMANCE, tried_features};
use figures::evidence::RunEvidence;
use figures::provenance::Provenance;

inputs::named! {
    /// The aspect of a probe.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Aspect, name {
        /// Common tools.
        Tool = "tool",
        /// Facts that an operator can see.
        Visible = "visible",
    }
}

/// What the probes of a property found, with their details.
enum PropertyState<'a> {
    Works(&'a str),
    Fails(Outcome, &'a str),
    Untried,
}

impl Evidence<'_> {
    pub(super) fn probes(&self, aspect: Aspect, names: &[String], arm: &str) -> MeasureResult {
        let name = aspect.name();
        let tried = self.runs.iter().flat_map(|run| run.probes(name, arm));
        let tried = tried.filter(|probe| names.is_empty() || names.contains(&probe.name));
        // A tool that fails on a plain directory is broken on this machine: on a mount it may work or not.
        let broken_tools = match aspect {
            Aspect::Tool => self.failing("direct", name),
            Aspect::Visible => BTreeSet::new(),
        };
        let (untestable, tried): (Vec<&Probe>, Vec<&Probe>) =
            tried.partition(|probe| broken_tools.contains(probe.name.as_str()));
        let untestable: BTreeSet<&str> = untestable.iter().map(|probe| probe.name.as_str()).collect();
        let untestable: Vec<&str> = untestable.into_iter().collect();
        let broken = tried.iter().find(|probe| probe.outcome == Outcome::Infra);
        if tried.is_empty() || broken.is_some() {
            let others = untestable_words(&untestable);
            let command = format!("ctxbench run --backend {arm}");
            let what = format!("{name} probes of {arm}");
            return MeasureResult::Missing(match broken {
                Some(probe) => {
                    Gap::because(&format!("probe {} of {arm}", probe.name), &(probe.detail.clone() + &others), command)
                }
                None if untestable.is_empty() => Gap::new(what, command),
                None => Gap { kind: GapKind::Reason, ..Gap::new(what + &others, command) },
            });
        }
        // A second run with the same probes does not double what fails.
        let failing = tried.iter().filter(|probe| probe.outcome != Outcome::Ok);
        let failing: BTreeSet<&str> = failing.map(|probe| probe.name.as_str()).collect();
        let failing: Vec<&str> = failing.into_iter().collect();
        let tried: BTreeSet<&str> = tried.iter().map(|probe| probe.name.as_str()).collect();
        // No evidence is not a pass.
        if let (true, Some(gap)) = (failing.is_empty() && names.is_empty(), self.without_direct(name, arm)) {
            return MeasureResult::Missing(gap);
        }
        let on_direct = self.runs.iter().flat_map(|run| run.probes(name, "direct"));
        let on_direct = on_direct.filter(|probe| names.is_empty() || names.contains(&probe.name));
        let asked = on_direct.map(|probe| probe.name.as_str()).chain(names.iter().map(String::as_str));
        let is_untried = |name: &&str| !tried.contains(name) && !broken_tools.contains(name);
        let untried: BTreeSet<&str> = asked.filter(is_untried).collect();
        if let (true, Some(first)) = (failing.is_empty(), untried.first()) {
            let what = format!("{name} probe {first} of {arm}, which the policy or direct has");
            return missing(what, format!("ctxbench run --backend {arm}"));
        }
        let verb = match aspect {
            Aspect::Tool => "work",
            Aspect::Visible => "are visible",
        };
        let words = failing_of(&failing, tried.len(), verb) + &untestable_words(&untestable);
        let source = format!("{PROBES}: aspect {name}");
        let value = failing.len() as f64;
        MeasureResult::Value(ArmReading {
            high: value + (untestable.len() + untried.len()) as f64,
            ..ArmReading::exact(value, words, &source)
        })
    }

    /// The gap of a run that has `direct` and no probe of it: what `direct` tried is the list of what an arm has to try.
    fn without_direct(&self, aspect: &str, arm: &str) -> Option<Gap> {
        let has = |run: &RunEvidence<'_>, arm: &str| {
            run.run.probes.iter().any(|probe| (&*probe.aspect, &*probe.arm) == (aspect, arm))
        };
        let mut runs = self.runs.iter();
        let is_planned = runs.any(|run| has(run, arm) && run.run.plan.arm("direct").is_some());
        let has_list = self.runs.iter().any(|run| has(run, "direct"));
        (is_planned && !has_list)
            .then(|| Gap::new(format!("{aspect} probes of direct"), format!("ctxbench run --backend {arm}")))
    }

    /// The names of the probes of an aspect that fail on an arm.
    fn failing(&self, arm: &str, aspect: &str) -> BTreeSet<&str> {
        let probes = self.runs.iter().flat_map(|run| run.probes(aspect, arm));
        let failing = probes.filter(|probe| probe.outcome != Outcome::Ok);
        failing.map(|probe| probe.name.as_str()).collect()
    }

    /// The probes that tried a property of an arm, or found that it is not offered.
    fn tried_properties(&self, name: &str, arm: &str) -> impl Iterator<Item = &Probe> {
        let all = self.runs.iter().flat_map(|run| &run.run.probes);
        let of_name = all.filter(move |probe| (&*probe.aspect, &*probe.name, &*probe.arm) == (PROPERTY, name, arm));
        let is_tried = |probe: &&Probe| probe.outcome != Outcome::Infra && probe.skipped != Some(SkipReason::NotTried);
        of_name.filter(is_tried)
    }

    /// A probed property of an arm: the worst of its probes, since a property that fails once does not work.
    fn property_of(&self, name: &str, arm: &str) -> PropertyState<'_> {
        let tried = self.tried_properties(name, arm);
        let worst = tried.max_by(|one, other| (one.outcome, &one.detail).cmp(&(other.outcome, &other.detail)));
        match worst {
            None => PropertyState::Untried,
            Some(probe) if probe.outcome == Outcome::Ok && probe.skipped.is_none() => {
                PropertyState::Works(&probe.detail)
            }
            Some(probe) => PropertyState::Fails(probe.outcome, &probe.detail),
        }
    }

    /// Whether a probe found that a property of an arm works, whatever others found.
    fn has_worked(&self, name: &str, arm: &str) -> bool {
        self.tried_properties(name, arm).any(|probe| probe.outcome == Outcome::Ok)
    }

    /// The number of these properties that work. One that was not tried may work or not.
    pub(super) fn property(&self, names: &[String], arm: &str) -> MeasureResult {
        let (mut works, mut untried) = (Vec::new(), Vec::new());
        let mut failures = Vec::new();
        let (mut not, mut provenance) = (Vec::new(), Provenance::Measured);
        for name in names {
            let title = property_words(name);
            match self.property_of(name, arm) {
                PropertyState::Untried => untried.push(title.to_owned()),
                PropertyState::Works(detail) => {
                    provenance = provenance.max(provenance_of(name));
                    let seen = match self.tried_properties(name, arm).count() {
                        1 => "seen once".to_owned(),
                        probes => format!("seen in {probes} probes"),
                    };
                    works.push(format!("{title} ({seen}: {detail})"));
                }
                PropertyState::Fails(Outcome::Skipped, why) => {
                    failures.push(why.to_owned());
                    not.push(format!("{title} ({why})"));
                }
                PropertyState::Fails(outcome, detail) => {
                    failures.push(format!("{outcome}, {detail}"));
                    not.push(format!("{title} ({outcome}, {detail})"));
                }
            }
        }
        if works.is_empty() && not.is_empty() {
            let what = format!("probes of {} of {arm}", untried.join(", "));
            return missing(what, format!("ctxbench run --backend {arm}"));
        }
        let parts = [("works", &works), ("does not work", &not), ("not tried", &untried)];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        let words = match &failures[..] {
            // The title of the row names the property.
            [why] if names.len() == 1 => why.clone(),
            _ => parts.join("; "),
        };
        let value = works.len() as f64;
        MeasureResult::Value(ArmReading {
            high: value + untried.len() as f64,
            provenance,
            ..ArmReading::exact(value, words, &format!("{PROBES}: aspect {PROPERTY}"))
        })
    }

    /// The number of these properties that work on `arm` and not on `other`, with the least and the most that it can be:
    /// a property of both is none more, whatever else `other` has.
    pub(super) fn properties_beyond(&self, names: &[String], arm: &str, other: &str) -> [f64; 3] {
        let [mut surely, mut found, mut possibly] = [0.0; 3];
        for name in names {
            let (own, others) = (self.property_of(name, arm), self.property_of(name, other));
            let can_work = !matches!(own, PropertyState::Fails(..)) && !matches!(others, PropertyState::Works(_));
            let works = matches!(own, PropertyState::Works(_)) && can_work;
            possibly += f64::from(u8::from(can_work));
            found += f64::from(u8::from(works));
            // A probe of the other that could not end does not show that it lacks the property, and neither do probes that
            // contradict each other.
            let is_lacking = matches!(others, PropertyState::Fails(Outcome::Skipped | Outcome::WrongData, _))
                && !self.has_worked(name, other);
            surely += f64::from(u8::from(works && is_lacking));
        }
        [surely, found, possibly]
    }

    /// The properties of these that work on an arm and not on its baseline, in words.
    pub fn more_properties(&self, names: &[String], arm: &str, baseline: &str) -> Vec<&'static str> {
        let works = |name: &String, arm: &str| matches!(self.property_of(name, arm), PropertyState::Works(_));
        let more = names.iter().filter(|name| works(name, arm) && !works(name, baseline));
        more.map(|name| property_words(name)).collect()
    }

    pub(super) fn conformance(&self, groups: &[String], arm: &str) -> MeasureResult {
        let is_wanted = |name: &str| groups.is_empty() || groups.iter().any(|group| has_feature(group, name));
        let probes = self.runs.iter().flat_map(|run| &run.run.probes);
        let not_tried = |what: String| missing(what, format!("ctxbench conform direct {arm}"));
        // Without this check, a group without a single test would pass.
        let is_tried = |group: &&String| tried_features(probes.clone(), arm, |name| has_feature(group, name)).is_some();
        if let Some(group) = groups.iter().find(|group| !is_tried(group)) {
            return not_tried(format!("conformance of {arm} in the group {group}"));
        }
        let Some(tried) = tried_features(probes, arm, is_wanted) else {
            return not_tried(format!("conformance of {arm}"));
        };
        if tried.count == 0 {
            let what = format!("conformance of {arm}{}", untestable_words(&tried.untestable));
            let gap = Gap::new(what, format!("ctxbench conform direct {arm}"));
            return MeasureResult::Missing(Gap { kind: GapKind::Reason, ..gap });
        }
        if let (true, Some(gap)) = (tried.failing.is_empty(), self.without_direct(CONFORMANCE, arm)) {
            return MeasureResult::Missing(gap);
        }
        if let (true, Some(first)) = (tried.failing.is_empty(), tried.untried.first()) {
            return not_tried(format!("conformance of {arm} in {first}, which direct has"));
        }
        let words = failing_of(&tried.failing, tried.count, "work") + &untestable_words(&tried.untestable);
        let source = format!("{PROBES}: aspect {CONFORMANCE}");
        let exact = ArmReading::exact(tried.failing.len() as f64, words, &source);
        let unknown = tried.untestable.len() + tried.untried.len();
        MeasureResult::Value(ArmReading { high: exact.value + unknown as f64, ..exact })
    }
}

/// Tools or features that were not counted, and why; empty if all were.
fn untestable_words(untestable: &[&str]) -> String {
    if untestable.is_empty() {
        String::new()
    } else {
        format!("; not testable here, because it fails on direct, too: {}", untestable.join(", "))
    }
}

/// The provenance of properties that work. A test cannot destroy the machine that runs it.
fn provenance_of(name: &str) -> Provenance {
    if name == MACHINE_LOSS { Provenance::Simulated } else { Provenance::Measured }
}

/// What a property gives, in a sentence about a need.
fn property_words(name: &str) -> &'static str {
    PROPERTIES.iter().find(|(property, _)| *property == name).map_or("another property", |(_, words)| words)
}

/// Whether a feature is of a group: `links: symbolic` is of `links`, and of itself.
pub(crate) fn has_feature(group: &str, feature: &str) -> bool {
    let rest = feature.strip_prefix(group);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ' ', ',']))
}

fn failing_of(failing: &[&str], all: usize, verb: &str) -> String {
    const SHOWN: usize = 3;
    let works = format!("{} of {all} {verb}", all - failing.len());
    match failing.len() {
        0 => works,
        count if count <= SHOWN => format!("{works} (not: {})", failing.join("; ")),
        count => format!("{works} (not: {}; {} more)", failing[..SHOWN].join("; "), count - SHOWN),
    }
}
