//! What tests a claim: one measure of a run. Each kind of measure has a module of its own.

use serde::Deserialize;

use super::arithmetic::Arithmetic;
use super::cells::ArmCell;
use super::counts::Count;
use super::decisions::DecisionTest;
use super::failures::{FaultTest, Hosts};
use super::finding::Test;
use super::lag::LagTest;
use super::latencies::{Growth, Ratio};
use super::model::ModelTest;
use super::scores::{ScoreGrowth, ScoreTest};
use super::tokens::TokenTest;

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
    /// An exact count.
    Count(Count),
    /// What came of a fault.
    Fault(FaultTest),
    /// What two hosts saw.
    Hosts(Hosts),
    /// How long a reader waits for a commit.
    Lag(LagTest),
    /// A figure of a session's context.
    Tokens(TokenTest),
    /// A score of planted evidence.
    Score(ScoreTest),
    /// How a score grows with a size.
    ScoreGrowth(ScoreGrowth),
    /// A figure of files that a model makes up.
    Model(ModelTest),
    /// What a policy decides.
    Decision(DecisionTest),
    /// The claim's own figures.
    Arithmetic(Arithmetic),
}

impl Subject {
    /// The test of this kind.
    pub(super) fn test(&self) -> &dyn Test {
        match self {
            Subject::Latency(own) => own,
            Subject::Ratio(own) => own,
            Subject::Growth(own) => own,
            Subject::Count(own) => own,
            Subject::Fault(own) => own,
            Subject::Hosts(own) => own,
            Subject::Lag(own) => own,
            Subject::Tokens(own) => own,
            Subject::Score(own) => own,
            Subject::ScoreGrowth(own) => own,
            Subject::Model(own) => own,
            Subject::Decision(own) => own,
            Subject::Arithmetic(own) => own,
        }
    }
}
