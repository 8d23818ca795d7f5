//! The file stems of charts, without `.svg`. Pages name charts by them; `charts` draws these charts.

/// The chart of operations by backend.
pub(super) const LATENCY: &str = "latency";
/// The chart of cache states.
pub(super) const STATES: &str = "states";
/// The chart of sessions.
pub(super) const SESSIONS: &str = "sessions";
/// The chart of costs by layer.
pub(super) const COSTS: &str = "costs";
/// The chart of cost against benefit.
pub(super) const TRADE_OFFS: &str = "trade-offs";
/// The chart of tokens over a session.
pub(super) const TOKENS: &str = "tokens";
/// The chart of growth with a size.
pub(super) const GROWTH: &str = "growth";
/// The heat map of failures.
pub(super) const FAILURES: &str = "failures";
