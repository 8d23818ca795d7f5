//! The file stems of charts, without `.svg`. Pages name charts by them; `charts` draws these charts.

/// A panel for each use: what its policy asks of each candidate.
pub(super) const USES: &str = "uses";
/// Ratios of single operations.
pub(super) const LATENCY: &str = "latency";
/// Ratios of the steps of real programs.
pub(super) const PROGRAMS: &str = "programs";
/// Ratios of whole sessions.
pub(super) const SESSIONS: &str = "sessions";
pub(super) const STATES: &str = "states";
pub(super) const TOKENS: &str = "tokens";
pub(super) const GROWTH: &str = "growth";
/// What breaks, and what is lost.
pub(super) const FAILURES: &str = "failures";
