//! A measure of a candidate beside that of its baseline: the ratio, the difference or the saving.

use super::compared::saved;
use super::{Evidence, Figure, Found, Measure, Reading, Scale};

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
