//! A run in one small file: for readers, to be checked by the records, and for tools that draw trends.

use std::collections::BTreeMap;

use rundir::{Environment, Outcome};
use serde::Serialize;
use serde_json::{Value, json};

use super::report::Report;
use crate::answer::StoreLosses;
use figures::summary::Cell;

/// The version of the format.
const VERSION: u32 = 1;

/// What [`submission`] writes.
#[derive(Serialize)]
struct Submission<'a> {
    /// The version of this format.
    submission: u32,
    /// The version of ctxbench that made the run.
    ctxbench: &'a str,
    created: &'a str,
    command: &'a str,
    seed: u64,
    machine: &'a Environment,
    /// The A/A check in a sentence.
    identical_arms: &'a str,
    answers: Vec<SubmittedAnswer<'a>>,
    cells: Vec<SubmittedCell<'a>>,
    /// Passes by arm and outcome.
    passes: BTreeMap<&'a str, &'a BTreeMap<Outcome, u64>>,
    losses: &'a [StoreLosses],
    /// SHA-256 of each file of records, so that a run directory that is handed over later can be compared.
    records: &'a BTreeMap<String, String>,
}

/// The answer for a use.
#[derive(Serialize)]
struct SubmittedAnswer<'a> {
    policy: &'a str,
    advice: String,
    candidate: &'a str,
    confidence: &'static str,
}

/// A time of an arm; without a ratio for the baseline.
#[derive(Serialize)]
struct SubmittedCell<'a> {
    workload: &'a str,
    state: &'a str,
    metric: &'a str,
    arm: &'a str,
    epochs: usize,
    /// Failed passes, and all.
    failed: [u64; 2],
    typical_ns: f64,
    /// The ends of its 99 % interval over epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ns: Option<[f64; 2]>,
    /// The ratio to the baseline, and the ends of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<[f64; 3]>,
}

/// The ratio of a cell to the baseline, with the ends of its interval.
fn ratio(cell: &Cell) -> Option<[f64; 3]> {
    let comparison = cell.against_baseline.as_ref()?;
    let interval = comparison.interval?;
    Some([comparison.ratio, interval.low, interval.high])
}

/// A run's figures, answers and receipts. `records` is the SHA-256 of each of its files of records.
///
/// # Errors
/// If a value cannot be written as JSON.
pub fn submission(report: &Report<'_>, records: &BTreeMap<String, String>) -> Result<String, serde_json::Error> {
    let plan = &report.run.plan;
    let cells = report.summary.cells.iter().map(|cell| SubmittedCell {
        workload: &cell.workload,
        state: &cell.state,
        metric: &cell.metric,
        arm: &cell.arm,
        epochs: cell.epochs,
        failed: [cell.failed.failed.values().sum(), cell.failed.tried],
        typical_ns: cell.typical_ns,
        interval_ns: cell.interval.map(|ends| [ends.low, ends.high]),
        ratio: ratio(cell),
    });
    let answers = report.overview.uses.iter().map(|answer| SubmittedAnswer {
        policy: &answer.policy,
        advice: answer.headline(),
        candidate: &answer.candidate,
        confidence: answer.confidence.words(),
    });
    let endings = report.summary.endings.iter();
    let text = serde_json::to_string(&Submission {
        submission: VERSION,
        ctxbench: &plan.ctxbench,
        created: &plan.created,
        command: &plan.command,
        seed: plan.seed,
        machine: &report.run.environment,
        identical_arms: &report.overview.identical_arms,
        answers: answers.collect(),
        cells: cells.collect(),
        passes: endings.map(|ending| (ending.arm.as_str(), &ending.passes)).collect(),
        losses: &report.overview.losses,
        records,
    })?;
    Ok(text + "\n")
}

/// The ratios with intervals, each with its name: times differ between machines, ratios less.
fn named_ratios<'a>(report: &'a Report<'_>) -> impl Iterator<Item = (String, [f64; 3])> + 'a {
    let baseline = &report.summary.baseline;
    report.summary.cells.iter().filter_map(move |cell| {
        let ratio = ratio(cell)?;
        let Cell { workload, state, metric, arm, .. } = cell;
        Some((format!("{workload} {state} {metric}: {arm} / {baseline}"), ratio))
    })
}

/// The ratios as github-action-benchmark reads them (`customSmallerIsBetter`).
///
/// # Errors
/// If a value cannot be written as JSON.
pub fn github_action_benchmark(report: &Report<'_>) -> Result<String, serde_json::Error> {
    let rows = named_ratios(report).map(|(name, [ratio, low, high])| {
        json!({ "name": name, "unit": "ratio", "value": ratio, "range": format!("{low:.3} to {high:.3}") })
    });
    Ok(serde_json::to_string_pretty(&rows.collect::<Vec<Value>>())? + "\n")
}

/// The ratios in Bencher's metric format, with the measure `ratio`.
///
/// # Errors
/// If a value cannot be written as JSON.
pub fn bencher(report: &Report<'_>) -> Result<String, serde_json::Error> {
    let rows = named_ratios(report).map(|(name, [ratio, low, high])| {
        let value = json!({ "ratio": { "value": ratio, "lower_value": low, "upper_value": high } });
        (name, value)
    });
    Ok(serde_json::to_string_pretty(&rows.collect::<BTreeMap<String, Value>>())? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;

    #[test]
    fn a_submission_has_every_cell_answer_and_hash_of_the_report() {
        let inputs = Inputs::judged();
        let report = inputs.report();
        let records = BTreeMap::from([("samples.jsonl".to_owned(), "ab".repeat(32))]);
        let text = submission(&report, &records).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        let cells = found["cells"].as_array().unwrap();
        assert_eq!(cells.len(), report.summary.cells.len());
        for (cell, of_report) in cells.iter().zip(&report.summary.cells) {
            let typical = cell["typical_ns"].as_f64().unwrap();
            assert!((typical / of_report.typical_ns - 1.0).abs() < 1e-12);
            assert_eq!(cell.get("ratio").is_some(), ratio(of_report).is_some());
        }
        assert_eq!(found["answers"].as_array().unwrap().len(), report.overview.uses.len());
        assert_eq!(found["records"]["samples.jsonl"], "ab".repeat(32));
        assert_eq!(found["seed"], report.run.plan.seed);
    }

    #[test]
    fn trend_tools_get_the_same_ratios_each_under_a_name_of_its_own() {
        let inputs = Inputs::judged();
        let report = inputs.report();
        let of_action: Value = serde_json::from_str(&github_action_benchmark(&report).unwrap()).unwrap();
        let of_bencher: Value = serde_json::from_str(&bencher(&report).unwrap()).unwrap();
        let rows = of_action.as_array().unwrap();
        assert!(!rows.is_empty());
        assert_eq!(rows.len(), of_bencher.as_object().unwrap().len());
        for row in rows {
            let same = &of_bencher[row["name"].as_str().unwrap()]["ratio"];
            assert_eq!(row["value"], same["value"]);
            let [low, high] = ["lower_value", "upper_value"].map(|end| same[end].as_f64().unwrap());
            assert!(low <= high && row["unit"] == "ratio");
        }
    }
}
