//! Looks: the interim and final analyses of a run, and the share of the error rate that each may spend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The number of epochs of a cell after which the look takes place.
    pub epochs: u32,
    /// The share of all runs in which the interval at this look may exclude the true value.
    pub alpha: f64,
}

/// The looks of a plan, by epochs. By Bonferroni's inequality the error rate of the whole run is at most
/// the sum of the shares, however the looks depend on each other. Stopping early saves no share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Looks(pub Vec<Look>);

impl Looks {
    /// Two looks: after five eighths of `epochs`, at 0.3 %, and after all of them, at 0.7 %.
    /// With fewer than five epochs there is one look, at the end, at 1 %.
    pub fn within(epochs: u32) -> Self {
        let first = (epochs * 5).div_ceil(8);
        if epochs < 5 || first == epochs {
            return Self::at_end(epochs);
        }
        let looks = [(first, 0.003), (epochs, 0.007)].into_iter();
        Self(
            looks
                .map(|(epochs, alpha)| Look { epochs, alpha })
                .collect(),
        )
    }

    /// One look, at the end, at 1 %.
    pub fn at_end(epochs: u32) -> Self {
        Self(vec![Look {
            epochs,
            alpha: 0.01,
        }])
    }

    /// Whether a look is planned after `epochs` epochs.
    pub fn is_due(&self, epochs: usize) -> bool {
        self.0.iter().any(|look| look.epochs as usize == epochs)
    }

    /// The error rate of the interval of a cell with `epochs` epochs. Between two looks it is the share
    /// of the next one; after the last look, the share of the last one.
    pub fn alpha(&self, epochs: usize) -> f64 {
        let next = self.0.iter().find(|look| look.epochs as usize >= epochs);
        next.or(self.0.last()).map_or(0.01, |look| look.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_spend_one_percent_in_total() {
        for epochs in 3..40 {
            let looks = Looks::within(epochs);
            let spent: f64 = looks.0.iter().map(|look| look.alpha).sum();
            assert!(spent < 0.010_000_1, "{looks:?}");
            assert!(
                looks.0.is_sorted_by(|a, b| a.epochs < b.epochs),
                "{looks:?}"
            );
            assert_eq!(looks.0.last().unwrap().epochs, epochs);
        }
        let eight = Looks::within(8);
        assert_eq!(eight.0.iter().map(|l| l.epochs).collect::<Vec<_>>(), [5, 8]);
        assert!(eight.is_due(5) && !eight.is_due(6));
        assert_eq!(eight.alpha(4), 0.003);
        assert_eq!(eight.alpha(6), 0.007);
        assert_eq!(eight.alpha(20), 0.007);
    }
}
