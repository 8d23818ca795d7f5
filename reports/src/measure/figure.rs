//! A measure of a candidate beside that of its baseline: the ratio, the difference or the saving.

use super::{Evidence, Found, Measure, Reading, Scale};

/// A figure of a candidate beside the baseline's.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The figure in the unit of the row.
    pub(crate) reading: Reading,
    /// The baseline in words.
    pub(crate) baseline: String,
    /// The time that a call of the candidate adds, in nanoseconds; `None` for other measures.
    pub(crate) added_ns: Option<f64>,
    /// The wait as a share of the recorded session, with what was not replayed; `None` without a recording.
    pub(crate) session: Option<String>,
}

impl Figure {
    /// A figure that is no time.
    pub(crate) fn of(reading: Reading, baseline: String) -> Self {
        Self {
            reading,
            baseline,
            added_ns: None,
            session: None,
        }
    }
}

impl Evidence<'_> {
    /// A measure of a candidate, put beside the baseline's by `scale`.
    pub(crate) fn figure(
        &self,
        measure: &Measure,
        scale: Scale,
        candidate: &str,
        baseline: &str,
    ) -> Result<Figure, Found> {
        match measure {
            Measure::Mix { steps } if scale != Scale::Own => {
                return self.mixed(steps, scale, candidate, baseline);
            }
            Measure::Latency(latency) if scale != Scale::Own => {
                return self.timed(latency, scale, candidate, baseline);
            }
            _ => {}
        }
        let figure = self.read(measure, candidate, false).value()?;
        let other = self.read(measure, baseline, true).value();
        if scale == Scale::Own {
            let baseline = other.map_or(String::new(), |other| other.words);
            return Ok(Figure::of(figure, baseline));
        }
        let other = other?;
        let over = |figure: f64, other: f64| if figure == other { 1.0 } else { figure / other };
        let combine = |figure: f64, other: f64| match scale {
            Scale::Ratio => over(figure, other),
            Scale::Saved => saved(over(figure, other)),
            Scale::Fewer => other - figure,
            _ => figure - other,
        };
        // The ends that make the result smallest and largest.
        let ends = (
            combine(figure.low, other.high),
            combine(figure.high, other.low),
        );
        let (low, high) = match scale {
            Scale::Fewer | Scale::Saved => (ends.1, ends.0),
            _ => ends,
        };
        let reading = Reading {
            value: combine(figure.value, other.value),
            low,
            high,
            ..figure
        };
        Ok(Figure::of(reading, other.words))
    }
}

/// The saving of a ratio, in percent.
pub(super) fn saved(ratio: f64) -> f64 {
    (1.0 - ratio) * 100.0
}
