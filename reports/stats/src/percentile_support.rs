//! Percentiles only where there are enough calls for them.

/// The chance that the largest of the calls lies above the true percentile.
const CONFIDENCE: f64 = 0.95;

/// How many calls it takes before percentile `q` (between 0 and 1) says anything: with fewer, the
/// largest of them lies below the true percentile more often than once in twenty, and no order
/// statistic can be above it. 299 for p99, 2,995 for p99.9.
pub fn calls_needed(q: f64) -> u64 {
    ((1.0 - CONFIDENCE).ln() / q.ln()).ceil() as u64
}

/// Whether `calls` calls earn percentile `q`.
pub fn earned(q: f64, calls: u64) -> bool {
    calls >= calls_needed(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_design() {
        assert_eq!(calls_needed(0.99), 299);
        assert_eq!(calls_needed(0.999), 2995);
        assert_eq!(calls_needed(0.5), 5);
        assert!(!earned(0.99, 298));
        assert!(earned(0.99, 299));
    }
}
