//! The input of a report.

use std::path::PathBuf;

use rundir::Run;

use crate::claims::ClaimResult;
use crate::context::Contexts;
use crate::decide::Decision;
use crate::summary::Summary;

/// A run with all that is reported of it.
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// The summary of its samples.
    pub summary: &'a Summary,
    /// The costs of its session contexts.
    pub contexts: &'a Contexts,
    /// Its verdicts on published claims.
    pub claims: &'a [ClaimResult],
    /// The decisions by policy and candidate.
    pub decisions: Vec<Decision>,
    /// The directories of the other runs that claims and decisions rest on.
    pub others: &'a [PathBuf],
}
