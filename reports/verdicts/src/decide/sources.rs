//! A source's own comparison, tested by the evidence: what the source says, the finding, and whether it stands.

use schemars::JsonSchema;
use serde::Serialize;

use super::policy::{Policy, Preference, SourceRow};
use crate::measure::{ArmReading, Evidence, Measure, MeasureResult, Scale};

/// A row of a source, tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SourceResult {
    pub aspect: String,
    pub says: String,
    pub found: String,
    pub stands: Standing,
}

inputs::named! {
    /// Whether a row of a source stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Standing, words {
        /// Conclusion and figure.
        Yes = "stands",
        /// The conclusion is right, its figure is wrong.
        WrongFigure = "right conclusion, wrong figure",
        /// The conclusion is wrong.
        No = "does not stand",
        /// A constant of this project or of a backend's makers says so: nothing was tested.
        Declared = "declared",
        /// The evidence does not decide.
        Open = "open",
    }
}

/// Tests the rows of a policy's source for a candidate.
pub(super) fn test(evidence: &Evidence<'_>, policy: &Policy, candidate: &str) -> Vec<SourceResult> {
    let rows = policy.sources.iter();
    rows.map(|row| {
        let (stands, found) = match compared(evidence, row, &policy.baseline, candidate) {
            Ok((reading, base, ratio)) => {
                let found = format!("{} against {}", reading.words, base.words);
                let stands =
                    if row.measure.is_declared() { Standing::Declared } else { stands(row, &reading, &base, ratio) };
                (stands, found)
            }
            Err(MeasureResult::Missing(gap)) => (Standing::Open, format!("no evidence: {}", gap.what)),
            Err(
                MeasureResult::NotOffered(why)
                | MeasureResult::Unknown(why)
                | MeasureResult::Failed(why)
                | MeasureResult::Void(why),
            ) => (Standing::Open, why),
            // Values are not errors.
            Err(MeasureResult::Value(reading)) => (Standing::Open, reading.words),
        };
        SourceResult { aspect: row.aspect.clone(), says: row.says.clone(), found, stands }
    })
    .collect()
}

/// Both figures, and the range of candidate over baseline.
fn compared(
    evidence: &Evidence<'_>,
    row: &SourceRow,
    baseline: &str,
    candidate: &str,
) -> Result<(ArmReading, ArmReading, (f64, f64)), MeasureResult> {
    if let Some(barred) = evidence.barred(&row.measure, candidate, Some(baseline)) {
        return Err(barred);
    }
    let reading = evidence.read(&row.measure, candidate, false).value()?;
    let base = evidence.read(&row.measure, baseline, true).value()?;
    let ratio = match &row.measure {
        Measure::Latency(latency) => {
            let timed = evidence.timed(latency, Scale::Ratio, candidate, baseline)?;
            (timed.reading.low, timed.reading.high)
        }
        _ => {
            let over = |figure: f64, base: f64| if figure == base { 1.0 } else { figure / base };
            (over(reading.low, base.high), over(reading.high, base.low))
        }
    };
    Ok((reading, base, ratio))
}

fn stands(row: &SourceRow, candidate: &ArmReading, base: &ArmReading, (low, high): (f64, f64)) -> Standing {
    let same = row.same_within.max(1.0);
    let found = if low > same {
        Preference::Baseline
    } else if high < 1.0 / same {
        Preference::Candidate
    } else if low >= 1.0 / same && high <= same {
        Preference::Tie
    } else {
        return Standing::Open;
    };
    if found != row.prefers {
        return Standing::No;
    }
    let is_inside = |figure: Option<(f64, f64)>, reading: &ArmReading| {
        figure.is_none_or(|(from, to)| from <= reading.low && reading.high <= to)
    };
    if is_inside(row.figure, candidate) && is_inside(row.baseline_figure, base) {
        Standing::Yes
    } else {
        Standing::WrongFigure
    }
}
