//! A measure of a candidate beside that of its baseline: the ratio, the difference or the saving.

use super::compared::saved;
use super::{ArmReading, Evidence, Figure, Measure, MeasureResult, Scale};

/// Whether a measure is a share of counted questions.
fn is_of_questions(measure: &Measure) -> bool {
    matches!(measure, Measure::Score(score) if score.is_share())
}

/// The interval of the difference of two shares, as the ends from which `figure` takes the lower and the upper one.
/// R. G. Newcombe, "Interval Estimation for the Difference Between Independent Proportions: Comparison of Eleven Methods",
/// Statistics in Medicine 17 (1998), method 10. Both methods answer the same questions, so the interval is wider than needed.
fn difference(figure: &ArmReading, other: &ArmReading, is_fewer: bool) -> (f64, f64) {
    let more = figure.value - other.value;
    let low = more - (figure.value - figure.low).hypot(other.high - other.value);
    let high = more + (figure.high - figure.value).hypot(other.value - other.low);
    if is_fewer { (-low, -high) } else { (low, high) }
}

impl Evidence<'_> {
    /// A measure of a candidate, put beside the baseline's by `scale`.
    pub fn figure(
        &self,
        measure: &Measure,
        scale: Scale,
        candidate: &str,
        baseline: &str,
    ) -> Result<Figure, MeasureResult> {
        match measure {
            Measure::Mix { steps } if scale != Scale::Own => {
                return self.mixed(steps, scale, (candidate, baseline));
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
        // Properties are compared one by one: a second property does not make up for one that is missing.
        if let (Measure::Property { of }, Scale::More | Scale::Fewer) = (measure, scale) {
            let [low, value, high] = match scale {
                Scale::More => self.properties_beyond(of, candidate, baseline),
                _ => self.properties_beyond(of, baseline, candidate),
            };
            return Ok(Figure::of(ArmReading { value, low, high, ..figure }, other.words));
        }
        // The ends that make the result smallest and largest.
        let ends = if is_of_questions(measure) && matches!(scale, Scale::More | Scale::Fewer) {
            difference(&figure, &other, scale == Scale::Fewer)
        } else {
            (combine(figure.low, other.high), combine(figure.high, other.low))
        };
        let (low, high) = match scale {
            Scale::Fewer | Scale::Saved => (ends.1, ends.0),
            _ => ends,
        };
        let provenance = figure.provenance.max(other.provenance);
        let reading = ArmReading { value: combine(figure.value, other.value), low, high, provenance, ..figure };
        let baseline_short = other.figure_words().to_owned();
        Ok(Figure { baseline_short, ..Figure::of(reading, other.words) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_shares_has_the_interval_that_newcombe_gives() {
        // 56/70 and 48/80 of table II, with the score intervals of both.
        let share = |value, low, high| ArmReading { low, high, ..ArmReading::exact(value, String::new(), "") };
        let (one, other) = (share(0.8, 0.6921, 0.8768), share(0.6, 0.4905, 0.7004));
        let (low, high) = difference(&one, &other, false);
        assert!((low - 0.0524).abs() < 5e-4 && (high - 0.3339).abs() < 5e-4);
        let fewer = difference(&one, &other, true);
        assert_eq!(fewer, (-low, -high));
    }
}
