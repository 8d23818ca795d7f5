//! What tests a claim: one measure of a run. Each kind of measure has a module of its own.

use serde::Deserialize;

use super::arithmetic::Arithmetic;
use super::counts::Count;
use super::decisions::DecisionTest;
use super::evidence::{Evidence, Place};
use super::failures::{FaultTest, Hosts};
use super::finding::{Finding, Name};
use super::latencies::{Growth, Ratio, latency};
use super::model::ModelTest;
use super::range::Unit;
use super::scores::{ScoreGrowth, ScoreTest};
use super::tokens::TokenTest;

/// A measure of a run, or of a claim's own figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// The typical time of a cell.
    Latency(Place),
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
    /// A figure of a session's context.
    Tokens(TokenTest),
    /// A score of planted evidence, or of a task.
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
    pub(super) fn measure(&self, run: &Evidence<'_>) -> Finding {
        match self {
            Subject::Latency(place) => latency(place, run),
            Subject::Ratio(ratio) => ratio.measure(run),
            Subject::Growth(growth) => growth.measure(run),
            Subject::Count(count) => count.measure(run),
            Subject::Fault(fault) => fault.measure(run),
            Subject::Hosts(hosts) => hosts.measure(run),
            Subject::Tokens(tokens) => tokens.measure(run),
            Subject::Score(score) => score.measure(run),
            Subject::ScoreGrowth(growth) => growth.measure(run),
            Subject::Model(model) => model.measure(run),
            Subject::Decision(decision) => decision.measure(run),
            Subject::Arithmetic(arithmetic) => arithmetic.measure(),
        }
    }

    /// The measure of a subject that needs no run.
    pub(super) fn alone(&self) -> Option<Finding> {
        match self {
            Subject::Arithmetic(arithmetic) => Some(arithmetic.measure()),
            _ => None,
        }
    }

    /// The command that makes the evidence, where no run was given.
    pub(super) fn command(&self) -> String {
        match self {
            Subject::Latency(place) => place.command(),
            Subject::Ratio(ratio) => ratio.command(),
            Subject::Growth(growth) => growth.command(),
            Subject::Count(count) => count.command(),
            Subject::Fault(fault) => fault.command(),
            Subject::Hosts(hosts) => hosts.command(),
            Subject::Tokens(tokens) => tokens.command(),
            Subject::Score(score) => score.command(),
            Subject::ScoreGrowth(growth) => growth.command(),
            Subject::Model(_) => ModelTest::command(),
            Subject::Decision(decision) => decision.command(),
            Subject::Arithmetic(_) => String::new(),
        }
    }

    /// The units in which the measure can be given; the claim's range picks one.
    pub(super) fn units(&self) -> Vec<Unit> {
        match self {
            Subject::Latency(_) => vec![Unit::Ms],
            Subject::Ratio(_) => vec![Unit::Times],
            Subject::Growth(_) | Subject::ScoreGrowth(_) => vec![Unit::Exponent],
            Subject::Count(count) => vec![count.unit()],
            Subject::Fault(fault) => vec![fault.unit()],
            Subject::Hosts(hosts) => vec![hosts.unit()],
            Subject::Tokens(tokens) => vec![tokens.unit()],
            Subject::Score(score) => vec![score.unit()],
            Subject::Model(model) => vec![model.unit()],
            Subject::Decision(decision) => vec![decision.unit()],
            Subject::Arithmetic(arithmetic) => arithmetic.units(),
        }
    }

    /// Checks what the types leave open.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Subject::Growth(growth) => growth.check(),
            Subject::ScoreGrowth(growth) => growth.check(),
            Subject::Count(count) => count.check(),
            Subject::Fault(fault) => fault.check(),
            Subject::Tokens(tokens) => tokens.check(),
            Subject::Model(model) => model.check(),
            Subject::Decision(decision) => decision.check(),
            Subject::Arithmetic(arithmetic) => arithmetic.check(),
            Subject::Latency(_) | Subject::Ratio(_) | Subject::Hosts(_) | Subject::Score(_) => {
                Ok(())
            }
        }
    }

    /// The names that must exist, with their fields.
    pub(super) fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        match self {
            Subject::Latency(place) => place.names(),
            Subject::Ratio(ratio) => ratio.names(),
            Subject::Growth(growth) => growth.names(),
            Subject::Count(count) => count.names(),
            Subject::Fault(fault) => fault.names(),
            Subject::Hosts(hosts) => hosts.names(),
            Subject::Tokens(tokens) => tokens.names(),
            Subject::Score(score) => score.names(),
            Subject::ScoreGrowth(growth) => growth.names(),
            Subject::Decision(decision) => decision.names(),
            Subject::Model(_) | Subject::Arithmetic(_) => Vec::new(),
        }
    }
}
