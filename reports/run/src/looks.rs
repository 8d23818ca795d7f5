//! Looks: the analyses of a run, and the share of the error rate that each may spend. A run has one, at its end; those of
//! earlier versions had one before, at which decided cells ended.

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
    /// One look, at the end, at 1 %.
    pub fn at_end(epochs: u32) -> Self {
        Self(vec![Look { epochs, alpha: 0.01 }])
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
    fn a_cell_that_was_decided_at_an_earlier_look_has_its_share() {
        let looks = [(5, 0.003), (8, 0.007)].map(|(epochs, alpha)| Look { epochs, alpha });
        let looks = Looks(looks.to_vec());
        let alphas = [4, 5, 6, 8, 20].map(|epochs| looks.alpha(epochs));
        assert_eq!(alphas, [0.003, 0.003, 0.007, 0.007, 0.007]);
        assert_eq!(Looks::at_end(8).alpha(3), 0.01);
    }
}
