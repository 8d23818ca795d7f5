//! The exact interval of a share: how often something happens, from how often it was seen to happen.

use statrs::distribution::{Beta, ContinuousCDF};

use crate::epochs::Interval;

/// The two-sided interval of a share that was seen `hits` times of `of`, at error rate `alpha`, between 0 and 1.
/// C. J. Clopper and E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
/// Binomial", Biometrika 26 (1934).
pub fn share_interval(hits: u64, of: u64, alpha: f64) -> Interval {
    let hits = hits.min(of);
    let quantile = |a: u64, b: u64, q: f64| Beta::new(a as f64, b as f64).map(|beta| beta.inverse_cdf(q));
    let low = match hits {
        0 => Ok(0.0),
        hits => quantile(hits, of - hits + 1, alpha / 2.0),
    };
    let high = match of - hits {
        0 => Ok(1.0),
        misses => quantile(hits + 1, misses, 1.0 - alpha / 2.0),
    };
    Interval { low: low.unwrap_or(0.0), high: high.unwrap_or(1.0) }
}

/// The upper one-sided 95 % bound of the share of failures after `failed` failures in `of` tries, by Clopper and Pearson:
/// 1 − 0.05^(1/n) if none of n failed. 1 without a try.
pub fn failure_bound(failed: u64, of: u64) -> f64 {
    share_interval(failed, of, 0.1).high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_failures_rises_with_each_failure_and_falls_with_tries() {
        assert_eq!(failure_bound(0, 0), 1.0);
        // Without a failure: 1 − 0.05^(1/n).
        for (of, bound) in [(1, 0.95), (3, 0.631_597), (14, 0.192_636), (60, 0.048_703), (300, 0.009_936)] {
            assert!((failure_bound(0, of) - bound).abs() < 1e-6, "{of}: {}", failure_bound(0, of));
        }
        // The one-sided bound of a binomial with 1 of 20: qbeta(0.95, 2, 19) = 0.2161.
        assert!((failure_bound(1, 20) - 0.2161).abs() < 1e-4);
        assert_eq!(failure_bound(20, 20), 1.0);
        let bounds: Vec<f64> = (0..=20).map(|failed| failure_bound(failed, 20)).collect();
        assert!(bounds.is_sorted(), "{bounds:?}");
    }

    #[test]
    fn one_try_says_almost_nothing() {
        let interval = share_interval(0, 1, 0.01);
        assert!(interval.high > 0.99, "{interval:?}");
        assert_eq!(share_interval(0, 0, 0.01), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn a_known_interval_is_found() {
        // R: binom.test(7, 20)$conf.int is 0.1539 to 0.5922.
        let interval = share_interval(7, 20, 0.05);
        assert!((interval.low - 0.1539).abs() < 1e-4, "{interval:?}");
        assert!((interval.high - 0.5922).abs() < 1e-4, "{interval:?}");
    }
}
