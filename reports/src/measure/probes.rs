//! Probes of tools and of visible facts, and the features of a conformance run.

use rundir::{Outcome, PROBES, Probe};
use serde::Deserialize;

use super::{Evidence, Found, missing};
use crate::conformance::{CONFORMANCE, tried_features};

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

impl Evidence<'_> {
    pub(super) fn probes(&self, aspect: Aspect, names: &[String], arm: &str) -> Found {
        let name = aspect.name();
        let tried = self.runs.iter().flat_map(|run| run.probes(name, arm));
        let tried = tried.filter(|probe| names.is_empty() || names.contains(&probe.name));
        let tried: Vec<&Probe> = tried.collect();
        let broken = tried.iter().find(|probe| probe.outcome == Outcome::Infra);
        if tried.is_empty() || broken.is_some() {
            let what = match broken {
                Some(probe) => format!("probe {} of {arm}: {}", probe.name, probe.detail),
                None => format!("{name} probes of {arm}"),
            };
            return missing(what, format!("ctxbench run --backend {arm}"));
        }
        let failing = tried.iter().filter(|probe| probe.outcome != Outcome::Ok);
        let failing: Vec<&str> = failing.map(|probe| probe.name.as_str()).collect();
        let verb = match aspect {
            Aspect::Tool => "work",
            Aspect::Visible => "are visible",
        };
        let words = failing_of(&failing, tried.len(), verb);
        let source = format!("{PROBES}: aspect {name}");
        Found::exact(failing.len() as f64, words, &source)
    }

    pub(super) fn conformance(&self, groups: &[String], arm: &str) -> Found {
        let is_wanted =
            |name: &str| groups.is_empty() || groups.iter().any(|group| has_feature(group, name));
        let probes = self.runs.iter().flat_map(|run| &run.run.probes);
        let not_tried = |what: String| missing(what, format!("ctxbench conform direct {arm}"));
        // A group of which nothing was tried would pass.
        let is_tried = |group: &&String| {
            tried_features(probes.clone(), arm, |name| has_feature(group, name)).is_some()
        };
        if let Some(group) = groups.iter().find(|group| !is_tried(group)) {
            return not_tried(format!("conformance of {arm} in the group {group}"));
        }
        let Some(tried) = tried_features(probes, arm, is_wanted) else {
            return not_tried(format!("conformance of {arm}"));
        };
        let words = failing_of(&tried.failing, tried.count, "work");
        let source = format!("{PROBES}: aspect {CONFORMANCE}");
        Found::exact(tried.failing.len() as f64, words, &source)
    }
}

/// Whether a feature is of a group: `links: symbolic` is of `links`, and of itself.
fn has_feature(group: &str, feature: &str) -> bool {
    let rest = feature.strip_prefix(group);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ' ', ',']))
}

fn failing_of(failing: &[&str], all: usize, verb: &str) -> String {
    const SHOWN: usize = 3;
    let works = format!("{} of {all} {verb}", all - failing.len());
    match failing.len() {
        0 => works,
        count if count <= SHOWN => format!("{works} (not: {})", failing.join("; ")),
        count => format!(
            "{works} (not: {}; {} more)",
            failing[..SHOWN].join("; "),
            count - SHOWN
        ),
    }
}
