//! Axes of charts. An axis has finite ends, so that the number of its ticks is bounded whatever its figures are.

/// The most ticks of an axis.
const MOST_TICKS: usize = 32;

/// The smallest and largest figure of a logarithmic axis. Their quotients are finite.
const LOGARITHMIC: (f64, f64) = (1e-150, 1e150);

/// A logarithmic axis, with some room beside its ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogAxis {
    low: f64,
    high: f64,
}

impl LogAxis {
    /// The axis of those figures that are finite and above 0; `None` without one.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let figures = figures.into_iter();
        let drawn = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
        let ends = drawn.fold(None, |ends: Option<(f64, f64)>, figure| {
            let (low, high) = ends.unwrap_or((figure, figure));
            Some((low.min(figure), high.max(figure)))
        });
        let (smallest, largest) = LOGARITHMIC;
        ends.map(|(low, high)| Self {
            low: low.clamp(smallest, largest) / 1.1,
            high: high.clamp(smallest, largest) * 1.1,
        })
    }

    /// Where a figure lies, as a share of the axis; figures beyond the ends lie at the ends.
    pub(super) fn share(&self, figure: f64) -> f64 {
        // NaN lies at the lower end.
        let figure = figure.max(self.low).min(self.high);
        (figure / self.low).ln() / (self.high / self.low).ln()
    }

    /// The ticks 1, 2, 5, 10, …; on a wide range powers of ten, at most [`MOST_TICKS`].
    pub(super) fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high / self.low > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let powers = (last - first).unsigned_abs() as usize + 1;
        let stride = (powers * steps.len()).div_ceil(MOST_TICKS).max(1);
        let powers = (first..=last).step_by(stride);
        let ticks = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// A linear axis from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearAxis {
    longest: f64,
}

impl LinearAxis {
    /// The axis up to the largest finite figure, and at least up to 1.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let figures = figures.into_iter().filter(|figure| figure.is_finite());
        let longest = figures.fold(1.0, f64::max);
        Self { longest: longest.min(LOGARITHMIC.1) }
    }

    /// Where a figure lies, as a share of the axis; figures beyond the ends lie at the ends.
    pub(super) fn share(&self, figure: f64) -> f64 {
        figure.max(0.0).min(self.longest) / self.longest
    }

    /// Ticks from 0, about six of them.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let rough = self.longest / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power);
        let step = steps.clone().find(|step| *step >= rough).unwrap_or(rough);
        let ticks = (0..MOST_TICKS as u32).map(|number| f64::from(number) * step);
        ticks.take_while(|tick| *tick <= self.longest).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    const EDGES: [f64; 14] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        f64::MIN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e150,
        1e308,
        f64::EPSILON,
    ];

    fn check(figures: &[f64]) {
        let started = Instant::now();
        let linear = LinearAxis::of(figures.iter().copied());
        let logarithmic = LogAxis::of(figures.iter().copied());
        let all = [Some(linear.ticks()), logarithmic.map(|axis| axis.ticks())];
        for ticks in all.into_iter().flatten() {
            assert!(ticks.len() <= MOST_TICKS, "{figures:?}: {} ticks", ticks.len());
            assert!(ticks.iter().all(|tick| tick.is_finite()), "{figures:?}: {ticks:?}");
            assert!(ticks.is_sorted_by(|one, next| one < next), "{figures:?}: {ticks:?}");
        }
        for figure in figures.iter().chain(&EDGES) {
            let share = logarithmic.map_or(0.0, |axis| axis.share(*figure));
            for share in [linear.share(*figure), share] {
                assert!((-1e-9..=1.0 + 1e-9).contains(&share), "{figures:?}: {figure} at {share}");
            }
        }
        // A tick takes nanoseconds; a busy machine may interrupt them.
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn every_axis_has_few_ticks_and_keeps_every_figure_on_it() {
        check(&[]);
        for one in EDGES {
            check(&[one]);
            EDGES.iter().for_each(|other| check(&[one, *other]));
        }
        assert!(LogAxis::of([0.0, f64::NAN, -1.0]).is_none());
    }

    #[test]
    fn an_axis_of_times_has_round_ticks() {
        let axis = LogAxis::of([1_100.0, 9_000.0]).unwrap();
        assert_eq!(axis.ticks(), [1_000.0, 2_000.0, 5_000.0]);
        let axis = LinearAxis::of([10_500.0]);
        assert_eq!(axis.ticks(), [0.0, 2_000.0, 4_000.0, 6_000.0, 8_000.0, 10_000.0]);
    }

    proptest! {
        #[test]
        fn an_axis_of_any_two_figures_is_bounded(one in any::<u64>(), other in any::<u64>()) {
            check(&[f64::from_bits(one), f64::from_bits(other)]);
        }
    }
}
