//! When a run may look at its verdicts, and how much of the error rate each look may spend.

use serde::{Deserialize, Serialize};

/// One look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// After so many epochs of a cell.
    pub epochs: u32,
    /// The share of all runs in which this look may leave out the true value.
    pub alpha: f64,
}

/// The looks of a plan, by epochs. By Bonferroni's inequality the shares add up to at most the error rate of the
/// whole run, however the looks depend on each other; no share is saved by stopping early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Looks(pub Vec<Look>);

impl Looks {
    /// Looks after half, three quarters and all of `epochs`, which spend 0.2, 0.3 and 0.5 % of the 1 % there is. With
    /// fewer than five epochs there is one look, at the end.
    pub fn within(epochs: u32) -> Self {
        if epochs < 5 {
            return Self::at_end(epochs);
        }
        let first = epochs.div_ceil(2).max(3);
        let second = (epochs * 3).div_ceil(4).clamp(first + 1, epochs - 1);
        let mut looks = vec![(first, 0.002), (epochs, 0.005)];
        if second > first {
            looks.insert(1, (second, 0.003));
        }
        let looks = looks.into_iter();
        Self(
            looks
                .map(|(epochs, alpha)| Look { epochs, alpha })
                .collect(),
        )
    }

    /// One look, at the end.
    pub fn at_end(epochs: u32) -> Self {
        Self(vec![Look {
            epochs,
            alpha: 0.01,
        }])
    }

    /// Whether verdicts may be looked at after `epochs` epochs.
    pub fn is_due(&self, epochs: usize) -> bool {
        self.0.iter().any(|look| look.epochs as usize == epochs)
    }

    /// What the interval of a cell with `epochs` epochs leaves out. Where a run ended between two looks, what the
    /// next one would have spent; past the last look, what the last one spends.
    pub fn alpha(&self, epochs: usize) -> f64 {
        let next = self.0.iter().find(|look| look.epochs as usize >= epochs);
        next.or(self.0.last()).map_or(0.01, |look| look.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_spend_one_percent_in_all() {
        for epochs in 3..40 {
            let looks = Looks::within(epochs);
            let spent: f64 = looks.0.iter().map(|look| look.alpha).sum();
            assert!(spent < 0.010_000_1, "{looks:?}");
            assert!(looks.0.is_sorted_by(|a, b| a.epochs < b.epochs), "{looks:?}");
            assert_eq!(looks.0.last().unwrap().epochs, epochs);
        }
        let eight = Looks::within(8);
        assert_eq!(eight.0.iter().map(|l| l.epochs).collect::<Vec<_>>(), [4, 6, 8]);
        assert!(eight.is_due(4) && !eight.is_due(5));
        assert_eq!(eight.alpha(3), 0.002);
        assert_eq!(eight.alpha(5), 0.003);
        assert_eq!(eight.alpha(20), 0.005);
    }
}
