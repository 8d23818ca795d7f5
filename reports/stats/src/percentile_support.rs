//! The number of calls that a percentile needs.

/// The chance that the largest of the calls lies above the true percentile.
const CONFIDENCE: f64 = 0.95;

/// The number of calls that percentile `q` (between 0 and 1) needs: 299 for p99, 2,995 for p99.9.
/// With fewer calls, the maximum lies below the true percentile in more than one case of twenty,
/// and no order statistic is above the maximum.
pub fn calls_needed(q: f64) -> u64 {
    ((1.0 - CONFIDENCE).ln() / q.ln()).ceil() as u64
}

/// Whether `calls` calls are enough for percentile `q`.
pub fn has_enough_calls(q: f64, calls: u64) -> bool {
    calls >= calls_needed(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_needs_299_calls() {
        assert_eq!(calls_needed(0.99), 299);
        assert_eq!(calls_needed(0.999), 2995);
        assert_eq!(calls_needed(0.5), 5);
        assert!(!has_enough_calls(0.99, 298));
        assert!(has_enough_calls(0.99, 299));
    }
}
