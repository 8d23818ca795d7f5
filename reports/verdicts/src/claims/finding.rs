//! Findings of a run about a claim, the names that a claim uses, and the interface of its tests.

use inputs::PathStep;
use stats::Interval;

use figures::evidence::RunEvidence;

/// A name in a claim that must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Arm(&'a str),
    Workload(&'a str),
    /// A state of a workload.
    State(&'a str, &'a str),
    /// A metric of a workload.
    Metric(&'a str, &'a str),
    /// A context policy or published account of a workload.
    Policy(&'a str, &'a str),
    Scenario(&'a str),
}

/// The finding of a run about a subject.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    Value {
        value: f64,
        /// One point if the value is exact.
        interval: Interval,
        words: String,
        /// The value follows from published figures alone.
        is_published: bool,
    },
    /// The run has figures, which do not settle the claim.
    Open {
        words: String,
        /// The same run again would end in the same way.
        is_final: bool,
    },
    /// A constant of this project or of a backend's makers: nothing was tested.
    Declared(String),
    /// The figures are of a simulated distance or server.
    Simulated(String),
    /// The run has nothing of it.
    Missing(String),
}

impl Finding {
    pub(super) fn exact(value: f64, words: String) -> Self {
        Finding::Value { value, interval: Interval { low: value, high: value }, words, is_published: false }
    }
}

/// A test of a claim.
pub(super) trait Test {
    /// The finding of a run, in one of `units`.
    fn measure(&self, run: &RunEvidence<'_>, unit: &str) -> Finding;

    /// The measure of a test that needs no run.
    fn alone(&self) -> Option<Finding> {
        None
    }

    /// The command that makes the evidence, where no run was given.
    fn command(&self, unit: &str) -> String;

    /// The units in which the measure can be given; the claim's range picks one.
    fn units(&self) -> Vec<String>;

    /// The least and the largest figure that a run can have in one of `units`.
    fn range(&self, _unit: &str) -> (f64, f64) {
        (f64::NEG_INFINITY, f64::INFINITY)
    }

    /// The first problem that the types leave open: the field, and the problem in words.
    fn problem(&self) -> Option<(Vec<PathStep<'static>>, String)> {
        None
    }

    /// The names that must exist, with their fields.
    fn names(&self) -> Vec<(Vec<PathStep<'static>>, Name<'_>)> {
        Vec::new()
    }
}
