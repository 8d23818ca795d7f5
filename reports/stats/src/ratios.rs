//! The paired ratios of one cell, and the bounds that a busy machine leaves of them.
//! On a busy machine a round's ratio is known only between two values: the candidate, or the arms that it is compared
//! with, may have waited for other processes. docs/METHODOLOGY.md argues for these bounds.

use crate::combination::{WeightedSum, combine};
use crate::epochs::{Interval, PooledEstimate, pool};

/// The logarithms of paired ratios of one arm to others, one list per epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratios {
    /// As measured.
    pub measured: Vec<Vec<f64>>,
    /// What other processes can have changed.
    pub disturbance: Disturbance,
}

/// What other processes can have changed in the ratios of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Disturbance {
    /// Nothing: rounds beside other processes are not among the ratios.
    #[default]
    Absent,
    /// The run recorded too little to bound it.
    Unknown,
    /// Each round's ratio lies between two bounds.
    Bounded {
        /// The ratios if all waiting of the candidate was for other processes, and none of the other arms' waiting.
        least: Vec<Vec<f64>>,
        /// The ratios if all waiting of the other arms was for other processes, and none of the candidate's.
        most: Vec<Vec<f64>>,
        /// The logarithm of the largest ratio of identical arms in an epoch of the cell, waiting taken out; at least 0.
        identical: f64,
    },
}

impl Ratios {
    /// Ratios of a quiet machine.
    pub fn undisturbed(measured: Vec<Vec<f64>>) -> Self {
        Self { measured, disturbance: Disturbance::Absent }
    }

    /// Adds the epochs of another run.
    pub fn append(&mut self, mut other: Self) {
        use Disturbance::{Absent, Bounded, Unknown};
        let (mine, theirs) = (self.measured.clone(), other.measured.clone());
        self.measured.append(&mut other.measured);
        self.disturbance = match (std::mem::take(&mut self.disturbance), other.disturbance) {
            (Absent, Absent) => Absent,
            (Unknown, _) | (_, Unknown) => Unknown,
            (one, other) => {
                let bounds = |disturbance, measured: Vec<Vec<f64>>| match disturbance {
                    Bounded { least, most, identical } => (least, most, identical),
                    Absent | Unknown => (measured.clone(), measured, 0.0),
                };
                let (one, other) = (bounds(one, mine), bounds(other, theirs));
                Bounded {
                    least: [one.0, other.0].concat(),
                    most: [one.1, other.1].concat(),
                    identical: one.2.max(other.2),
                }
            }
        };
    }
}

/// The logarithm of a ratio, or of a ratio of ratios: a weighted sum of log ratios, with the bounds that the disturbance of
/// its parts leaves of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundedLogRatio {
    /// As measured.
    pub measured: WeightedSum,
    /// The least that it can be without the disturbance.
    least: WeightedSum,
    /// The most that it can be without the disturbance.
    most: WeightedSum,
}

impl BoundedLogRatio {
    /// Sums ratios with weights. `None` if one of them comes from too few epochs, or if its disturbance is unknown.
    pub fn of(parts: &[(f64, &Ratios)]) -> Option<Self> {
        let (mut measured, mut least, mut most) = (Vec::new(), Vec::new(), Vec::new());
        let mut identical = 0.0;
        for (weight, ratios) in parts {
            let pooled = pool(&ratios.measured)?;
            let (low, high) = match &ratios.disturbance {
                Disturbance::Absent => (pooled.clone(), pooled.clone()),
                Disturbance::Unknown => return None,
                Disturbance::Bounded { least, most, identical: apart } => {
                    identical += weight.abs() * apart;
                    (pool(least)?, pool(most)?)
                }
            };
            let (low, high) = if *weight < 0.0 { (high, low) } else { (low, high) };
            measured.push((*weight, pooled));
            least.push((*weight, low));
            most.push((*weight, high));
        }
        let sum = |pooled: &[(f64, PooledEstimate)], shift: f64| {
            let parts: Vec<_> = pooled.iter().map(|(weight, one)| (*weight, one)).collect();
            let sum = combine(&parts)?;
            Some(WeightedSum { mean: sum.mean + shift, ..sum })
        };
        Some(Self { measured: sum(&measured, 0.0)?, least: sum(&least, -identical)?, most: sum(&most, identical)? })
    }

    /// The two-sided interval at error rate `alpha`, from the lower end for the least to the upper end for the most.
    pub fn interval(&self, alpha: f64) -> Interval {
        Interval { low: self.least.interval(alpha).low, high: self.most.interval(alpha).high }
    }

    /// The two-sided p-values of the hypotheses that the true sum is at most `edge`, and at least -`edge`.
    pub fn p_beyond(&self, edge: f64) -> (f64, f64) {
        (self.least.p_above(edge), self.most.p_below(-edge))
    }

    /// The smallest true sum, as a distance from 0, that a test against `edge` at error rate `alpha` finds with the
    /// chance [`POWER`](crate::POWER).
    pub fn detectable(&self, edge: f64, alpha: f64) -> f64 {
        let above = self.measured.mean - self.least.mean + self.least.detectable(edge, alpha);
        let below = self.most.mean - self.measured.mean + self.most.detectable(edge, alpha);
        above.max(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(values: &[f64]) -> Vec<Vec<f64>> {
        values.iter().map(|value| vec![*value]).collect()
    }

    fn bounded(least: &[f64], measured: &[f64], most: &[f64], identical: f64) -> Ratios {
        Ratios {
            measured: epochs(measured),
            disturbance: Disturbance::Bounded { least: epochs(least), most: epochs(most), identical },
        }
    }

    #[test]
    fn an_interval_reaches_from_the_least_to_the_most_and_past_what_identical_arms_differ_by() {
        let ratios = bounded(&[0.9, 1.0, 1.1], &[2.0, 2.1, 2.2], &[2.4, 2.5, 2.6], 0.05);
        let found = BoundedLogRatio::of(&[(1.0, &ratios)]).unwrap();
        let interval = found.interval(0.01);
        let reach = 0.1 / 3.0_f64.sqrt() * 9.924_843;
        assert!((interval.low - (1.0 - 0.05 - reach)).abs() < 1e-6, "{interval:?}");
        assert!((interval.high - (2.5 + 0.05 + reach)).abs() < 1e-6, "{interval:?}");
        let (above, below) = found.p_beyond(0.0);
        assert!(above < 0.01 && below == 1.0, "{above}, {below}");
        // Against 1, the least is not far enough.
        assert!(found.p_beyond(1.0).0 == 1.0);
        assert!(found.detectable(0.0, 0.01) > 1.0, "{found:?}");
    }

    #[test]
    fn a_ratio_of_ratios_takes_the_worst_case_of_each() {
        let old = bounded(&[1.0, 1.0, 1.0], &[1.5, 1.5, 1.5], &[2.0, 2.0, 2.0], 0.1);
        let new = bounded(&[3.0, 3.0, 3.0], &[3.5, 3.5, 3.5], &[4.0, 4.0, 4.0], 0.2);
        let interval = BoundedLogRatio::of(&[(1.0, &new), (-1.0, &old)]).unwrap().interval(0.01);
        assert!((interval.low - (3.0 - 2.0 - 0.3)).abs() < 1e-9, "{interval:?}");
        assert!((interval.high - (4.0 - 1.0 + 0.3)).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn an_unknown_disturbance_leaves_no_log_ratio() {
        let mut ratios = Ratios::undisturbed(epochs(&[1.0, 1.1, 1.2]));
        assert!(BoundedLogRatio::of(&[(1.0, &ratios)]).is_some());
        let unknown = Ratios { measured: epochs(&[1.0]), disturbance: Disturbance::Unknown };
        ratios.append(unknown);
        assert_eq!((ratios.measured.len(), BoundedLogRatio::of(&[(1.0, &ratios)])), (4, None));
    }

    #[test]
    fn quiet_epochs_beside_busy_ones_are_their_own_bounds() {
        let mut ratios = Ratios::undisturbed(epochs(&[1.0, 1.1]));
        ratios.append(bounded(&[0.5], &[1.0], &[1.5], 0.2));
        assert_eq!(ratios.measured.len(), 3);
        let Disturbance::Bounded { least, most, identical } = ratios.disturbance else {
            panic!("a busy run bounds all");
        };
        assert_eq!((least, most), (epochs(&[1.0, 1.1, 0.5]), epochs(&[1.0, 1.1, 1.5])));
        assert_eq!(identical, 0.2);
    }
}
