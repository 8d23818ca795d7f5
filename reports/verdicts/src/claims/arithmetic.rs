//! Claims about a source's own figures: they are computed, and no run is needed.

use inputs::PathStep;
use serde::Deserialize;
use stats::Interval;

use super::finding::{Finding, Test};
use crate::measure::exponent;
use figures::evidence::RunEvidence;

/// A computation over published figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Arithmetic {
    /// The sum of figures.
    Sum(Vec<f64>),
    /// The product of figures.
    Product(Vec<f64>),
    /// The saving of `to` against `from`, in percent.
    Saved(Change),
    /// `to` over `from`.
    Times(Change),
    /// Growth a year, compounded, in percent.
    YearlyGrowth(Yearly),
    /// The `o200k` tokens of a text.
    TokensOf(String),
    /// The exponent of a power law through points of size and value: 0 for constant, 1 for linear.
    Exponent(Vec<(f64, f64)>),
}

/// From one figure to another.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    from: f64,
    to: f64,
}

/// From one figure to another in a number of years.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Yearly {
    from: f64,
    to: f64,
    years: f64,
}

impl Arithmetic {
    fn computed(&self) -> Finding {
        let joined = |figures: &[f64], sign: &str| {
            let figures: Vec<_> = figures.iter().map(f64::to_string).collect();
            figures.join(sign)
        };
        let (value, words) = match self {
            Arithmetic::Sum(figures) => {
                let sum: f64 = figures.iter().sum();
                (sum, format!("{} = {sum}", joined(figures, " + ")))
            }
            Arithmetic::Product(figures) => {
                let product: f64 = figures.iter().product();
                (product, format!("{} = {product}", joined(figures, " × ")))
            }
            Arithmetic::Saved(Change { from, to }) => {
                let saved = (1.0 - to / from) * 100.0;
                (saved, format!("{to} instead of {from} saves {saved:.2} %"))
            }
            Arithmetic::Times(Change { from, to }) => {
                let times = to / from;
                (times, format!("{to} / {from} = {times:.4}"))
            }
            Arithmetic::YearlyGrowth(Yearly { from, to, years }) => {
                let growth = ((to / from).powf(1.0 / years) - 1.0) * 100.0;
                let words = format!("({to} / {from})^(1/{years}) - 1 = {growth:.1} % a year");
                (growth, words)
            }
            Arithmetic::TokensOf(text) => {
                let counted = tokens::count(text);
                let words = format!("{counted} tokens, counted: {text:?}");
                return Finding::exact(counted as f64, words);
            }
            Arithmetic::Exponent(points) => {
                let exponent = exponent(points);
                let points: Vec<_> = points.iter().map(|(n, y)| format!("{y} at {n}")).collect();
                let words = format!("n^{exponent:.3} through {}", points.join(", "));
                (exponent, words)
            }
        };
        Finding::Value {
            value,
            interval: Interval { low: value, high: value },
            words: format!("the source's own figures: {words}"),
            is_published: true,
        }
    }
}

impl Test for Arithmetic {
    fn measure(&self, _: &RunEvidence<'_>, _: &str) -> Finding {
        self.computed()
    }

    fn alone(&self) -> Option<Finding> {
        Some(self.computed())
    }

    fn command(&self, _: &str) -> String {
        String::new()
    }

    fn units(&self) -> Vec<String> {
        let units: &[&str] = match self {
            Arithmetic::Sum(_) | Arithmetic::Product(_) => &["tokens", "USD", "ms"],
            Arithmetic::Saved(_) => &["percent saved"],
            Arithmetic::YearlyGrowth(_) => &["percent a year"],
            Arithmetic::Times(_) => &["ratio"],
            Arithmetic::TokensOf(_) => &["tokens"],
            Arithmetic::Exponent(_) => &["exponent"],
        };
        units.iter().map(|unit| (*unit).to_owned()).collect()
    }

    fn problem(&self) -> Option<(Vec<PathStep<'static>>, String)> {
        let positive = |figures: &[f64]| figures.iter().all(|figure| *figure > 0.0);
        let is_sound = match self {
            Arithmetic::Sum(figures) | Arithmetic::Product(figures) => figures.len() >= 2,
            Arithmetic::Saved(change) | Arithmetic::Times(change) => change.from != 0.0,
            Arithmetic::TokensOf(text) => !text.is_empty(),
            Arithmetic::YearlyGrowth(Yearly { from, to, years }) => positive(&[*from, *to, *years]),
            Arithmetic::Exponent(points) => {
                let is_spread = points.iter().any(|(size, _)| *size != points[0].0);
                is_spread && points.iter().all(|(size, value)| positive(&[*size, *value]))
            }
        };
        let message = "needs two figures or more, and above 0 where they are divided";
        (!is_sound).then(|| (Vec::new(), message.to_owned()))
    }
}
