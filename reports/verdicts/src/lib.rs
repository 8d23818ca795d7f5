//! What runs say: published claims, comparisons of runs, rankings, and decisions by policies.
//! A measure reads the figures of a run; a claim gives it a published range, a policy a bound and a part in a verdict.
//! Nothing here writes a page.

pub mod claims;
pub mod compare;
pub mod decide;
mod measure;
pub mod rank;
pub mod reproduction;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
