//! How a time grows with a size: the shape of the curve, its exponent, and where the growth begins to matter.

use crate::epochs::Interval;

/// The fewest sizes to which a curve is fitted.
const MIN_SIZES: usize = 4;

/// The least error of a measured time, as a share of it: epochs of one run agree better than runs do.
const LEAST_ERROR: f64 = 0.03;

/// Half a 99 % interval in standard errors, of a normal distribution.
const HALF_99: f64 = 2.576;

/// The largest deviation of a measured time from a curve that fits, as a share of the curve's time.
const MOST_DEVIATION: f64 = 0.25;

/// The least growth from the smallest size to the largest that is no constant.
const LEAST_GROWTH: f64 = 1.1;

/// How many times the time of the smallest size is past the knee.
const KNEE: f64 = 2.0;

/// A measured time at a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizedTime {
    /// The size, above 0.
    pub size: f64,
    /// The time, in any unit, above 0.
    pub time: f64,
    /// Its 99 % interval; `None` for too few epochs.
    pub interval: Option<Interval>,
}

impl SizedTime {
    /// Half the interval of the time's logarithm.
    fn half(&self) -> Option<f64> {
        let interval = self.interval.filter(|interval| interval.low > 0.0 && interval.high >= interval.low)?;
        Some((interval.high / interval.low).ln() / 2.0)
    }

    /// The standard error of the time.
    fn error(&self) -> f64 {
        let measured = self.half().map_or(0.0, |half| half / HALF_99);
        measured.max(LEAST_ERROR) * self.time
    }
}

/// The shape of a curve, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrowthShape {
    /// `a`.
    Constant,
    /// `a + b ln n`.
    Logarithmic,
    /// `a + b n`.
    Linear,
    /// `a + b n^1.5` or `a + b n²`: worse than linear.
    Worse,
}

impl GrowthShape {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Logarithmic => "logarithmic",
            Self::Linear => "linear",
            Self::Worse => "worse than linear",
        }
    }
}

/// How a time grows with a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The simplest shape that fits.
    pub shape: GrowthShape,
    /// The largest deviation of a measured time from the fitted one, as a share of the latter.
    pub deviation: f64,
    /// The least-squares exponent of a power law through all sizes: 0 for constant, 1 for linear.
    pub exponent: f64,
    /// Its 99 % interval; `None` if a time has none.
    pub exponent_interval: Option<Interval>,
    /// The size at which the time is twice that of the smallest size, interpolated between measured sizes; `None` if it
    /// stays below.
    pub knee: Option<f64>,
}

impl Growth {
    /// Whether the curve is near all measured times.
    pub fn fits(&self) -> bool {
        self.deviation <= MOST_DEVIATION
    }
}

/// The part of a curve that grows, as a function of the size.
type GrowingPart = fn(f64) -> f64;

/// The shapes that are tried, each with the part of it that grows; simpler ones first.
const CANDIDATES: [(GrowthShape, GrowingPart); 5] = [
    (GrowthShape::Constant, |_| 0.0),
    (GrowthShape::Logarithmic, f64::ln),
    (GrowthShape::Linear, |size| size),
    (GrowthShape::Worse, |size| size.powf(1.5)),
    (GrowthShape::Worse, |size| size * size),
];

/// Fits a curve to times at different sizes, by weighted least squares, and selects its shape by the Bayesian information
/// criterion. `None` for fewer than four sizes, or values that are not above 0.
pub fn growth(times: &[SizedTime]) -> Option<Growth> {
    let mut times = times.to_vec();
    times.sort_by(|one, other| one.size.total_cmp(&other.size));
    let is_usable = |at: &SizedTime| [at.size, at.time].iter().all(|value| value.is_finite() && *value > 0.0);
    let is_twice = times.windows(2).any(|pair| pair[0].size >= pair[1].size);
    if times.len() < MIN_SIZES || is_twice || !times.iter().all(is_usable) {
        return None;
    }
    let mut best: Option<(f64, GrowthShape, f64)> = None;
    for (shape, growing) in CANDIDATES {
        let Some(fitted) = fit(&times, growing) else { continue };
        let is_constant = shape == GrowthShape::Constant;
        if !is_constant && fitted[fitted.len() - 1] < LEAST_GROWTH * fitted[0] {
            continue;
        }
        let parameters = if is_constant { 1.0 } else { 2.0 };
        let squares: f64 = times.iter().zip(&fitted).map(|(at, fit)| ((at.time - fit) / at.error()).powi(2)).sum();
        let criterion = squares + parameters * (times.len() as f64).ln();
        if best.is_none_or(|(lowest, ..)| criterion < lowest) {
            let deviations = times.iter().zip(&fitted).map(|(at, fit)| (at.time / fit - 1.0).abs());
            best = Some((criterion, shape, deviations.fold(0.0, f64::max)));
        }
    }
    let (_, shape, deviation) = best?;
    let weights = exponent_weights(times.iter().map(|at| at.size));
    let exponent = weights.iter().zip(&times).map(|(weight, at)| weight * (at.time / times[0].time).ln()).sum();
    let halves: Option<Vec<f64>> = times.iter().map(SizedTime::half).collect();
    // Independent errors: the half of the sum's interval is at most the root of the sum of their squares.
    let half = halves.map(|halves| {
        let squares = weights.iter().zip(&halves).map(|(weight, half)| (weight * half).powi(2));
        squares.sum::<f64>().sqrt()
    });
    let exponent_interval = half.map(|half| Interval { low: exponent - half, high: exponent + half });
    Some(Growth { shape, deviation, exponent, exponent_interval, knee: knee(&times) })
}

/// The fitted times of `a + b g(n)`, with neither part below 0. `None` if that is no curve above 0.
fn fit(times: &[SizedTime], growing: GrowingPart) -> Option<Vec<f64>> {
    let weights: Vec<f64> = times.iter().map(|at| at.error().powi(-2)).collect();
    let sum = |value: &dyn Fn(&SizedTime) -> f64| -> f64 {
        times.iter().zip(&weights).map(|(at, weight)| weight * value(at)).sum()
    };
    let (ones, times_sum) = (sum(&|_| 1.0), sum(&|at| at.time));
    let (grows, squares) = (sum(&|at| growing(at.size)), sum(&|at| growing(at.size).powi(2)));
    let products = sum(&|at| growing(at.size) * at.time);
    let determinant = ones * squares - grows * grows;
    let (mut fixed, mut rising) = if determinant > 1e-9 * ones * squares {
        ((times_sum * squares - products * grows) / determinant, (products * ones - times_sum * grows) / determinant)
    } else {
        (times_sum / ones, 0.0)
    };
    if rising < 0.0 {
        (fixed, rising) = (times_sum / ones, 0.0);
    }
    if fixed < 0.0 {
        (fixed, rising) = (0.0, products / squares);
    }
    let fitted: Vec<f64> = times.iter().map(|at| fixed + rising * growing(at.size)).collect();
    fitted.iter().all(|fit| fit.is_finite() && *fit > 0.0).then_some(fitted)
}

/// The weights with which logarithms of values at `sizes` add up to the least-squares exponent of a power law.
pub fn exponent_weights(sizes: impl Iterator<Item = f64>) -> Vec<f64> {
    let logs: Vec<f64> = sizes.map(f64::ln).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    logs.iter().map(|log| (log - mean) / squares).collect()
}

/// The size from which on every measured time is above [`KNEE`] times the first one.
fn knee(times: &[SizedTime]) -> Option<f64> {
    let limit = KNEE * times[0].time;
    let above = times.iter().rposition(|at| at.time <= limit).map_or(0, |last| last + 1);
    let (before, after) = (times.get(above.checked_sub(1)?)?, times.get(above)?);
    // Between two sizes, along a power law.
    let share = (limit / before.time).ln() / (after.time / before.time).ln();
    Some((before.size.ln() + share * (after.size / before.size).ln()).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 7] = [100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5];

    /// Times of a planted curve, each with an error of 2 % up or down: one bit of `signs` for each.
    fn planted(curve: impl Fn(f64) -> f64, signs: u32) -> Vec<SizedTime> {
        let times = SIZES.iter().enumerate().map(|(at, size)| {
            let error = if signs & (1 << at) == 0 { 0.98 } else { 1.02 };
            let time = curve(*size) * error;
            SizedTime { size: *size, time, interval: Some(Interval { low: time * 0.95, high: time * 1.05 }) }
        });
        times.collect()
    }

    #[test]
    fn the_shape_of_a_planted_curve_is_found_whatever_the_errors_are() {
        type Curve = fn(f64) -> f64;
        let curves: [(GrowthShape, Curve); 8] = [
            (GrowthShape::Constant, |_| 1500.0),
            (GrowthShape::Logarithmic, |n| 1000.0 + 200.0 * n.ln()),
            (GrowthShape::Logarithmic, |n| 300.0 * n.ln()),
            (GrowthShape::Linear, |n| 2000.0 + n),
            (GrowthShape::Linear, |n| 5000.0 + 0.1 * n),
            (GrowthShape::Linear, |n| 3.0 * n),
            (GrowthShape::Worse, |n| 2000.0 + 1e-3 * n * n),
            (GrowthShape::Worse, |n| 500.0 + n.powf(1.5)),
        ];
        for (number, (shape, curve)) in curves.into_iter().enumerate() {
            for signs in 0..1 << SIZES.len() {
                let found = growth(&planted(curve, signs)).unwrap();
                assert_eq!(found.shape, shape, "curve {number}, errors {signs:b}: {found:?}");
                assert!(found.fits() && found.deviation < 0.06, "curve {number}, errors {signs:b}: {found:?}");
            }
        }
    }

    #[test]
    fn the_interval_of_the_exponent_covers_that_of_a_planted_power_law() {
        for exponent in [0.0, 0.5, 1.0, 2.0] {
            for signs in 0..1 << SIZES.len() {
                let found = growth(&planted(|n| 7.0 * n.powf(exponent), signs)).unwrap();
                let interval = found.exponent_interval.unwrap();
                assert!(interval.low <= exponent && exponent <= interval.high, "{signs:b}: {found:?}");
                assert!(interval.high - interval.low < 0.05, "{found:?}");
            }
        }
        let mut times = planted(|n| n, 0);
        times[3].interval = None;
        assert_eq!(growth(&times).unwrap().exponent_interval, None);
    }

    #[test]
    fn the_knee_is_where_the_time_has_doubled_and_stays_so() {
        let exact = |curve: fn(f64) -> f64| {
            let times = SIZES.map(|size| SizedTime { size, time: curve(size), interval: None });
            growth(&times).unwrap().knee
        };
        // 2 × (1000 + 100) is reached at 1,200.
        let knee = exact(|n| 1000.0 + n).unwrap();
        assert!((1100.0..1300.0).contains(&knee), "{knee}");
        assert_eq!(exact(|_| 5.0), None);
        assert_eq!(exact(|n| 1000.0 + 0.001 * n), None);
        // One slow size before a fast one is no knee.
        assert_eq!(exact(|n| if n == 1e3 { 90.0 } else { 10.0 }), None);
        let knee = exact(|n| n).unwrap();
        assert!((knee - 200.0).abs() < 1e-6, "{knee}");
    }

    #[test]
    fn no_curve_is_fitted_to_too_few_or_impossible_values() {
        let at = |size, time| SizedTime { size, time, interval: None };
        assert_eq!(growth(&[at(1.0, 1.0), at(2.0, 1.0), at(4.0, 1.0)]), None);
        for wrong in [at(2.0, 1.0), at(-1.0, 1.0), at(8.0, 0.0), at(8.0, f64::NAN), at(f64::INFINITY, 1.0)] {
            assert_eq!(growth(&[at(1.0, 1.0), at(2.0, 1.0), at(4.0, 1.0), wrong]), None, "{wrong:?}");
        }
        let falling = growth(&[at(1.0, 8.0), at(2.0, 4.0), at(4.0, 2.0), at(8.0, 1.0)]).unwrap();
        assert_eq!(falling.shape, GrowthShape::Constant);
        assert!(!falling.fits(), "{falling:?}");
    }
}
