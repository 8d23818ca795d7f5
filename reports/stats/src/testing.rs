//! Helpers of tests.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal};

/// A value of the normal distribution around 0.
pub(crate) fn normal(rng: &mut ChaCha8Rng, spread: f64) -> f64 {
    let uniform = rng.random_range(1e-9..1.0 - 1e-9);
    Normal::new(0.0, spread).unwrap().inverse_cdf(uniform)
}
