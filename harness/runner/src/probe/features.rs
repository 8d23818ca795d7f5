//! Conformance features as probes. `ctxbench conform` tries all of them; a run with probes tries those that need no
//! other user and no second mount.

use std::io;
use std::path::Path;
use std::time::Duration;

use conform::{Feature, FeatureResult, features};
use figures::conformance::CONFORMANCE;
use rundir::{Outcome, Probe};

use super::{Prober, STEP_LIMIT};
use crate::interrupt::Interrupt;
use crate::supervise::Watchdog;

/// How long one feature may take.
const FEATURE_LIMIT: Duration = Duration::from_secs(60);

/// Groups that act as other users or compare two mounts.
const LONG_GROUPS: [&str; 2] = ["permissions", "two mounts"];

/// The name of a feature in a run directory.
pub fn feature_name(feature: &Feature) -> String {
    format!("{}: {}", feature.group, feature.name)
}

/// The features that a run with probes tries.
pub fn short_features() -> impl Iterator<Item = &'static Feature> {
    features().filter(|feature| !LONG_GROUPS.contains(&feature.group))
}

/// The outcome of a result, with its reason.
pub fn feature_outcome(result: &FeatureResult) -> (Outcome, &str) {
    match result {
        FeatureResult::Works => (Outcome::Ok, ""),
        FeatureResult::Fails(why) => (Outcome::Errno, why),
        FeatureResult::Skipped(why) => (Outcome::Skipped, why),
    }
}

/// Tries every feature in `dir`, up to one that hangs. `also` is `dir` through another mount.
pub fn try_features(
    dir: &Path,
    also: Option<&Path>,
    features: &[&Feature],
    watchdog: &Watchdog,
    interrupt: &Interrupt,
) -> io::Result<Vec<FeatureResult>> {
    let mut results = Vec::new();
    for feature in features {
        if interrupt.is_set() {
            break;
        }
        watchdog.enter(FEATURE_LIMIT);
        let result = feature.run(dir, also)?;
        watchdog.leave();
        match watchdog.killed() {
            None => results.push(result),
            Some(cut) => {
                results.push(FeatureResult::Fails(cut.to_string()));
                break;
            }
        }
    }
    Ok(results)
}

pub(super) fn probe(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
    if !prober.backend.describe().capabilities.holds_data {
        return Ok(Vec::new());
    }
    let (_, workspace) = prober.open("features", watchdog)?;
    let features: Vec<&Feature> = short_features().collect();
    let results = try_features(workspace.root(), None, &features, watchdog, &prober.interrupt)?;
    let probes = features.iter().zip(&results).map(|(feature, result)| {
        let (outcome, detail) = feature_outcome(result);
        prober.probe(CONFORMANCE, &feature_name(feature), outcome, detail.to_owned())
    });
    let probes = probes.collect();
    watchdog.enter(STEP_LIMIT);
    workspace.close()?;
    watchdog.leave();
    Ok(probes)
}
