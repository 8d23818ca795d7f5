//! The file stems of charts, without `.svg`. Pages name charts by them; `charts` draws these charts.

pub(super) const LATENCY: &str = "latency";
pub(super) const STATES: &str = "states";
pub(super) const SESSIONS: &str = "sessions";
/// The chart of costs by layer.
pub(super) const COSTS: &str = "costs";
pub(super) const TRADE_OFFS: &str = "trade-offs";
pub(super) const TOKENS: &str = "tokens";
pub(super) const GROWTH: &str = "growth";
/// The heat map of failures.
pub(super) const FAILURES: &str = "failures";
