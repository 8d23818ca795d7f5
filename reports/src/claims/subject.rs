//! The subject of a claim: one measure of a run. Each kind of measure has a module of its own.

use serde::Deserialize;

use super::arithmetic::Arithmetic;
use super::cells::ArmCell;
use super::decisions::DecisionTest;
use super::finding::Test;
use super::latencies::{Growth, Ratio};
use super::model::ModelTest;
use super::reading::ReadingTest;
use super::scores::{ScoreGrowth, ScoreTest};

/// A measure of a run, or of a claim's own figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// The typical time of a cell.
    Latency(ArmCell),
    /// One cell over another.
    Ratio(Ratio),
    /// How a time grows with a size.
    Growth(Growth),
    /// A measure of an arm.
    Reading(ReadingTest),
    /// A score of planted evidence.
    Score(ScoreTest),
    /// How a score grows with a size.
    ScoreGrowth(ScoreGrowth),
    /// A figure of files that a model makes up.
    Model(ModelTest),
    /// The decision of a policy.
    Decision(DecisionTest),
    /// The claim's own figures.
    Arithmetic(Arithmetic),
}

impl Subject {
    /// The test of this kind.
    pub(super) fn test(&self) -> &dyn Test {
        match self {
            Subject::Latency(test) => test,
            Subject::Ratio(test) => test,
            Subject::Growth(test) => test,
            Subject::Reading(test) => test,
            Subject::Score(test) => test,
            Subject::ScoreGrowth(test) => test,
            Subject::Model(test) => test,
            Subject::Decision(test) => test,
            Subject::Arithmetic(test) => test,
        }
    }
}
