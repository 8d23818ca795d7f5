//! Conformance probes: their aspect, and the features that an arm itself fails.

use std::collections::BTreeSet;

use rundir::{Outcome, Probe};

/// The aspect of probes for file system features that Linux programs expect.
pub const CONFORMANCE: &str = "conformance";

/// The arm that is a plain directory. The machine itself fails the features that fail there.
const PLAIN_DIRECTORY: &str = "direct";

/// The features that were tried on an arm.
pub struct TriedFeatures<'a> {
    /// The number of features that can be tested here, with failing ones.
    pub count: usize,
    /// The failing features.
    pub failing: Vec<&'a str>,
    /// Features that the machine itself fails: on the arm they may work or not. They are in no count.
    pub untestable: Vec<&'a str>,
    /// Features that were tried on a plain directory, and not on the arm.
    pub untried: Vec<&'a str>,
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
    let on_machine = tried(PLAIN_DIRECTORY);
    let of_machine: BTreeSet<&str> =
        on_machine.iter().copied().filter(is_failing).map(|probe| probe.name.as_str()).collect();
    let names: BTreeSet<&str> = of_arm.iter().map(|probe| probe.name.as_str()).collect();
    let wanted = on_machine.iter().map(|probe| probe.name.as_str()).filter(|name| is_wanted(name));
    let untried: BTreeSet<&str> = wanted.filter(|name| !names.contains(name) && !of_machine.contains(name)).collect();
    let (untestable, testable): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| of_machine.contains(name));
    let failing: BTreeSet<&str> = of_arm.into_iter().filter(is_failing).map(|probe| probe.name.as_str()).collect();
    Some(TriedFeatures {
        count: testable.len(),
        failing: testable.into_iter().filter(|name| failing.contains(name)).collect(),
        untestable,
        untried: untried.into_iter().collect(),
    })
}
