//! Power laws: the sizes of a test of growth, and the least-squares exponent through points.

use serde::Deserialize;

use super::cells::run_command;
use super::finding::Name;

/// Sizes, each with the workload of that size.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Sizes(Vec<(f64, String)>);

impl Sizes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (f64, &str)> {
        self.0.iter().map(|(size, workload)| (*size, &**workload))
    }

    /// Checks that there are at least two different sizes above 0.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut numbers: Vec<f64> = self.iter().map(|(size, _)| size).collect();
        let given = numbers.len();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        if numbers.len() < 2 || numbers.len() < given || numbers[0] <= 0.0 {
            return Err("`sizes`: needs at least two different sizes above 0".to_owned());
        }
        Ok(())
    }

    /// The weights with which logarithms of values at these sizes add up to the exponent.
    pub(super) fn weights(&self) -> Vec<f64> {
        exponent_weights(self.iter().map(|(size, _)| size))
    }

    /// The command of a run that measures an arm at every size.
    pub(super) fn command(&self, arm: &str) -> String {
        let workloads: Vec<&str> = self.iter().map(|(_, workload)| workload).collect();
        run_command(&workloads, None, &[arm])
    }

    /// The names of an arm and of the workloads, with their fields.
    pub(super) fn names<'a>(&'a self, arm: &'a str) -> Vec<(&'static str, Name<'a>)> {
        let mut names = vec![("arm", Name::Arm(arm))];
        let workloads = self.iter().map(|(_, workload)| workload);
        names.extend(workloads.map(|workload| ("sizes", Name::Workload(workload))));
        names
    }
}

/// The least-squares exponent of a power law through points of size and value.
pub(super) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<f64> = points.iter().map(|(_, value)| value.ln()).collect();
    // Subtracting the mean keeps rounding out of the exponent of equal values.
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let weights = exponent_weights(points.iter().map(|(size, _)| *size));
    let parts = weights.iter().zip(&logs);
    parts.map(|(weight, log)| weight * (log - mean)).sum()
}

/// The weights with which logarithms of values at `sizes` add up to the least-squares exponent.
fn exponent_weights(sizes: impl Iterator<Item = f64>) -> Vec<f64> {
    let logs: Vec<f64> = sizes.map(f64::ln).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    logs.iter().map(|log| (log - mean) / squares).collect()
}
