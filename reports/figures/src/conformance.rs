//! Conformance probes: their aspect, and the features that an arm itself fails.

use std::collections::BTreeSet;

use rundir::{Outcome, Probe};

/// The aspect of probes for file system features that Linux programs expect.
pub const CONFORMANCE: &str = "conformance";

/// The arm that is a plain directory. The machine itself fails the features that fail there.
const PLAIN_DIRECTORY: &str = "direct";

/// The features that were tried on an arm.
pub struct TriedFeatures<'a> {
    /// The number of features, with failing ones.
    pub count: usize,
    /// The failing features, without those that the machine itself fails.
    pub failing: Vec<&'a str>,
}

/// The features of `arm` whose names `is_wanted` accepts; skipped ones count as not tried.
/// `None` if none was tried, or if a probe failed for a reason of the harness.
pub fn tried_features<'a>(
    probes: impl Iterator<Item = &'a Probe> + Clone,
    arm: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<TriedFeatures<'a>> {
    let tried = |arm: &str| -> Vec<&'a Probe> {
        let probes = probes.clone();
        probes
            .filter(|probe| probe.aspect == CONFORMANCE && probe.arm == arm)
            .filter(|probe| probe.outcome != Outcome::Skipped)
            .collect()
    };
    let of_arm: Vec<&Probe> = tried(arm).into_iter().filter(|probe| is_wanted(&probe.name)).collect();
    if of_arm.is_empty() || of_arm.iter().any(|probe| probe.outcome == Outcome::Infra) {
        return None;
    }
    let is_failing = |probe: &&Probe| probe.outcome != Outcome::Ok;
    let of_machine: BTreeSet<&str> =
        tried(PLAIN_DIRECTORY).into_iter().filter(is_failing).map(|probe| probe.name.as_str()).collect();
    let failing = of_arm.iter().copied().filter(is_failing);
    let failing = failing.map(|probe| probe.name.as_str());
    Some(TriedFeatures { count: of_arm.len(), failing: failing.filter(|name| !of_machine.contains(name)).collect() })
}
