//! Writes the files of a report: pages, charts, data.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::Serialize;

use super::charts::charts;
use super::html::html;
use super::markdown::markdown;
use super::model_files_page::model_files_page;
use super::page::page;
use super::page::results;
use crate::claims::Judged;
use crate::context::{Contexts, MODELS};
use crate::decide::Decision;
use crate::summary::Summary;
use rundir::{Run, Settled};

/// The input of a report.
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// The summary of its samples.
    pub summary: &'a Summary,
    /// The costs of its session contexts.
    pub contexts: &'a Contexts,
    /// Its verdicts on published claims.
    pub claims: &'a [Judged],
    /// The decision of its policy.
    pub decision: Option<Decision>,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file cannot be written.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A document, chart or table cannot be formatted.
    #[error("{0}")]
    Format(String),
}

/// Writes `report.md`, `report.html`, `report.json`, `*.csv`, `charts/*.svg` and `hist/*.hlog` into `dir`.
/// Files of an earlier report are replaced. Returns the path of the HTML page.
///
/// # Errors
/// See [`WriteError`].
pub fn write(report: &Report<'_>, dir: &Path) -> Result<PathBuf, WriteError> {
    let drawn = charts(report).map_err(WriteError::Format)?;
    for (stem, chart) in &drawn {
        put(
            &dir.join("charts").join(format!("{stem}.svg")),
            &chart.for_file(),
        )?;
    }
    let parts = page(report);
    let inline: BTreeMap<&'static str, String> = drawn
        .iter()
        .map(|(stem, chart)| (*stem, chart.for_page()))
        .collect();
    let title = format!(
        "ctxbench: {} {}",
        report.run.plan.suite, report.run.plan.created
    );
    put(&dir.join("report.md"), &markdown(&parts))?;
    if let Some(found) = &report.run.model_files
        && found.failed.is_none()
    {
        let text = model_files_page(found).map_err(WriteError::Format)?;
        put(&dir.join("model-files.md"), &text)?;
    }
    let page = dir.join("report.html");
    put(&page, &html(&title, &parts, &inline))?;
    put(&dir.join("report.json"), &json(report)?)?;
    tables(report, dir)?;
    histograms(report.run, dir)?;
    Ok(page)
}

/// A Markdown page for `docs/results`, with the origin of the run.
pub fn results_page(report: &Report<'_>) -> String {
    let plan = &report.run.plan;
    let made = format!(
        "<!-- Made by `ctxbench report --page` from a run directory; do not edit. The run: `{}` -->\n\n",
        plan.command
    );
    made + &markdown(&results(report))
}

fn json(report: &Report<'_>) -> Result<String, WriteError> {
    #[derive(Serialize)]
    struct Json<'a> {
        schema: u32,
        plan: &'a rundir::Plan,
        environment: &'a rundir::Environment,
        summary: &'a Summary,
        contexts: &'a Contexts,
        claims: &'a [Judged],
        decision: Option<&'a Decision>,
        probes: &'a [rundir::Probe],
        faults: &'a [rundir::Fault],
    }
    let json = Json {
        schema: rundir::SCHEMA_VERSION,
        plan: &report.run.plan,
        environment: &report.run.environment,
        summary: report.summary,
        contexts: report.contexts,
        claims: report.claims,
        decision: report.decision.as_ref(),
        probes: &report.run.probes,
        faults: &report.run.faults,
    };
    serde_json::to_string_pretty(&json).map_err(|error| WriteError::Format(error.to_string()))
}

fn tables(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let whole = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let cells = report.summary.cells.iter().map(|cell| {
        let comparison = cell.against_baseline.as_ref();
        let interval = comparison.and_then(|c| c.interval);
        vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            cell.epochs.to_string(),
            cell.passes.to_string(),
            cell.calls.to_string(),
            cell.typical_ns.to_string(),
            number(cell.interval.map(|i| i.low)),
            number(cell.interval.map(|i| i.high)),
            whole(cell.p50_ns),
            whole(cell.p90_ns),
            whole(cell.p99_ns),
            whole(cell.p999_ns),
            cell.max_ns.to_string(),
            number(cell.requests_per_call),
            number(comparison.map(|c| c.ratio)),
            number(interval.map(|i| i.low)),
            number(interval.map(|i| i.high)),
            number(comparison.map(|c| c.margin.ratio)),
            number(cell.modes.map(|modes| modes.low)),
            number(cell.modes.map(|modes| modes.high)),
            comparison.map_or("", |c| c.verdict.name()).to_owned(),
        ]
    });
    let head = [
        "workload",
        "state",
        "metric",
        "arm",
        "epochs",
        "passes",
        "calls",
        "typical_ns",
        "typical_low_ns",
        "typical_high_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "p999_ns",
        "max_ns",
        "requests_per_call",
        "ratio",
        "ratio_low",
        "ratio_high",
        "margin",
        "low_level_ns",
        "high_level_ns",
        "verdict",
    ];
    csv(&dir.join("cells.csv"), &head, cells)?;
    let passes = report.run.samples.iter().flat_map(|sample| {
        let settled = |count: fn(&Settled) -> u64| whole(sample.settled.as_ref().map(count));
        let own = |metric: &str, calls: u64, p50: String, mean: String| {
            vec![
                sample.order.to_string(),
                sample.epoch.to_string(),
                sample.round.to_string(),
                u64::from(sample.warm_up).to_string(),
                sample.load.busy.clone().unwrap_or_default(),
                sample.arm.clone(),
                sample.workload.clone(),
                sample.state.clone(),
                sample.outcome.to_string(),
                metric.to_owned(),
                calls.to_string(),
                p50,
                mean,
                sample.makespan_ns.to_string(),
                settled(|found| found.lines),
                settled(|found| found.on_both),
                settled(|found| found.only_in_copies),
                settled(|found| found.on_one),
                settled(|found| found.lost),
                settled(|found| found.conflict_copies),
                settled(|found| u64::from(found.agree)),
            ]
        };
        let mut rows: Vec<_> = sample
            .calls
            .iter()
            .map(|(kind, calls)| {
                own(
                    kind,
                    calls.count,
                    calls.p50_ns.to_string(),
                    calls.mean_ns().to_string(),
                )
            })
            .collect();
        if rows.is_empty() {
            rows.push(own("", 0, String::new(), String::new()));
        }
        rows
    });
    let head = [
        "order",
        "epoch",
        "round",
        "warm_up",
        "busy",
        "arm",
        "workload",
        "state",
        "outcome",
        "metric",
        "calls",
        "p50_ns",
        "mean_ns",
        "makespan_ns",
        "lines",
        "lines_on_both",
        "lines_only_in_copies",
        "lines_on_one",
        "lines_lost",
        "conflict_copies",
        "agree",
    ];
    csv(&dir.join("passes.csv"), &head, passes)?;
    let costs = report.summary.costs.iter().map(|cost| {
        vec![
            cost.workload.clone(),
            cost.state.clone(),
            cost.arm.clone(),
            cost.service_ns.to_string(),
            cost.kernel_and_queue_ns.to_string(),
            cost.front_end_ns.to_string(),
            cost.store_ns.to_string(),
            cost.requests.to_string(),
            cost.system_calls.to_string(),
            cost.disk_written_bytes.to_string(),
            cost.client_cpu_ns.to_string(),
            cost.daemon_cpu_ns.to_string(),
            cost.daemon_peak_bytes.to_string(),
        ]
    });
    let head = [
        "workload",
        "state",
        "arm",
        "service_ns",
        "kernel_and_queue_ns",
        "front_end_ns",
        "store_ns",
        "requests",
        "system_calls",
        "disk_written_bytes",
        "client_cpu_ns",
        "daemon_cpu_ns",
        "daemon_peak_bytes",
    ];
    csv(&dir.join("costs.csv"), &head, costs)?;
    hosts(report, dir)?;
    let contexts = report.contexts.costs.iter().map(|own| {
        let mut row = vec![
            own.workload.clone(),
            own.policy.clone(),
            own.basis.name().to_owned(),
            own.calls.to_string(),
            own.entering.to_string(),
            own.resent.to_string(),
            own.fresh.to_string(),
            own.cached.to_string(),
            own.output.to_string(),
            own.peak.to_string(),
            own.full_at_call
                .map(|call| call.to_string())
                .unwrap_or_default(),
            own.expired.to_string(),
            own.compactions.to_string(),
        ];
        row.extend(
            MODELS
                .iter()
                .map(|model| number(own.dollars.get(*model).copied())),
        );
        row
    });
    let mut head = vec![
        "workload",
        "policy",
        "tokens_are",
        "calls",
        "entering",
        "resent",
        "fresh",
        "cached",
        "output",
        "peak",
        "full_at_call",
        "expired",
        "compactions",
    ];
    let models = MODELS.map(|model| format!("usd_{model}"));
    head.extend(models.iter().map(String::as_str));
    csv(&dir.join("contexts.csv"), &head, contexts)?;
    let residuals = report.contexts.residuals.iter().map(|own| {
        vec![
            own.workload.clone(),
            own.model.clone(),
            own.calls.to_string(),
            own.median.to_string(),
            own.median_abs.to_string(),
            own.worst_abs.to_string(),
            number(own.growth_median_abs),
            number(own.cache.map(|cache| cache.fresh.0 as f64)),
            number(own.cache.map(|cache| cache.fresh.1 as f64)),
            number(own.cache.map(|cache| cache.expired as f64)),
            number(own.cache.map(|cache| cache.missed as f64)),
            number(own.cache.map(|cache| cache.expired_and_missed as f64)),
            number(own.dollars.map(|(ours, _)| ours)),
            number(own.dollars.map(|(_, theirs)| theirs)),
        ]
    });
    let head = [
        "workload",
        "model",
        "calls",
        "median",
        "median_abs",
        "worst_abs",
        "growth_median_abs",
        "fresh_ledger",
        "fresh_reported",
        "expired_ledger",
        "cache_missed_reported",
        "expired_and_missed",
        "prompt_usd_ledger",
        "prompt_usd_reported",
    ];
    csv(&dir.join("residuals.csv"), &head, residuals)?;
    let claims = report.claims.iter().map(|claim| {
        vec![
            claim.id.clone(),
            claim.source.clone(),
            claim.quote.clone(),
            claim.standing.name().to_owned(),
            claim.evidence.clone(),
        ]
    });
    let head = ["id", "source", "quote", "standing", "evidence"];
    csv(&dir.join("claims.csv"), &head, claims)
}

/// Writes the results of two hosts, a line per workload and arm, if the run has any.
fn hosts(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let whole = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    if !report.summary.handoffs.is_empty() {
        let rows = report.summary.handoffs.iter().map(|own| {
            vec![
                own.workload.clone(),
                own.arm.clone(),
                own.written.to_string(),
                own.seen.to_string(),
                whole(own.median_ns),
                whole(own.max_ns),
            ]
        });
        let head = ["workload", "arm", "written", "seen", "median_ns", "max_ns"];
        csv(&dir.join("handoffs.csv"), &head, rows)?;
    }
    if report.summary.shared_files.is_empty() {
        return Ok(());
    }
    let rows = report.summary.shared_files.iter().map(|own| {
        let counts = [
            own.passes,
            own.agreed,
            own.lines,
            own.on_both,
            own.only_in_copies,
            own.on_one,
            own.lost,
            own.conflict_copies,
        ];
        let names = [own.workload.clone(), own.arm.clone()].into_iter();
        names.chain(counts.map(|count| count.to_string())).collect()
    });
    let head = [
        "workload",
        "arm",
        "passes",
        "agreed",
        "lines",
        "lines_on_both",
        "lines_only_in_copies",
        "lines_on_one",
        "lines_lost",
        "conflict_copies",
    ];
    csv(&dir.join("shared_files.csv"), &head, rows)
}

pub(super) fn csv(
    file: &Path,
    head: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), WriteError> {
    let format = |error: csv::Error| WriteError::Format(format!("{}: {error}", file.display()));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head).map_err(format)?;
    for row in rows {
        writer.write_record(row).map_err(format)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| WriteError::Format(format!("{}: {error}", file.display())))?;
    put(file, &String::from_utf8_lossy(&bytes))
}

/// Writes an HdrHistogram log per workload, cache state and arm, for other tools.
/// It has a tagged line per call kind and epoch. Times are in nanoseconds.
fn histograms(run: &Run, dir: &Path) -> Result<(), WriteError> {
    struct Line<'a> {
        start: Duration,
        length: Duration,
        kind: &'a str,
        histogram: Histogram<u64>,
    }
    let mut logs: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut start = Duration::ZERO;
    for cell in &run.cells {
        let name = format!(
            "{}.{}.{}",
            cell.workload.replace('/', "-"),
            cell.state,
            cell.arm
        );
        let length = Duration::from_millis(cell.took_ms);
        for (kind, latencies) in &cell.latencies {
            let histogram = latencies.histogram().map_err(WriteError::Format)?;
            logs.entry(name.clone()).or_default().push(Line {
                start,
                length,
                kind,
                histogram,
            });
        }
        start += length;
    }
    for (name, lines) in logs {
        let file = dir.join("hist").join(format!("{name}.hlog"));
        let format = |error: String| WriteError::Format(format!("{}: {error}", file.display()));
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("service times in nanoseconds; one line an epoch and call kind")
            .begin_log_with(&mut bytes, &mut serializer)
            .map_err(|error| format(error.to_string()))?;
        for line in &lines {
            writer
                .write_histogram(
                    &line.histogram,
                    line.start,
                    line.length,
                    Tag::new(line.kind),
                )
                .map_err(|error| format(format!("{error:?}")))?;
        }
        put(&file, &String::from_utf8_lossy(&bytes))?;
    }
    Ok(())
}

/// Writes a file atomically, by a temporary file and a rename.
pub(super) fn put(file: &Path, text: &str) -> Result<(), WriteError> {
    let io = |error| WriteError::Io {
        file: file.to_owned(),
        error,
    };
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    let half = file.with_extension("part");
    fs::write(&half, text).map_err(io)?;
    fs::rename(&half, file).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Policy, decide, find};
    use crate::{claims, testing};

    fn written() -> (tempfile::TempDir, BTreeMap<String, String>) {
        let run = testing::run();
        let summary = testing::summary();
        let contexts = testing::contexts();
        let judged = claims::judge(&summary, &contexts).unwrap();
        let (file, text) = find("vsm").unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        let report = Report {
            run: &run,
            summary: &summary,
            contexts: &contexts,
            claims: &judged,
            decision: Some(decide(&policy, &text, &run, &summary)),
        };
        let dir = tempfile::tempdir().unwrap();
        write(&report, dir.path()).unwrap();
        // A second report replaces the first.
        write(&report, dir.path()).unwrap();
        let mut files = BTreeMap::new();
        for name in [
            "report.md",
            "report.html",
            "report.json",
            "cells.csv",
            "contexts.csv",
            "charts/latency.svg",
        ] {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            files.insert(name.to_owned(), text);
        }
        (dir, files)
    }

    #[test]
    fn a_report_is_the_same_every_time_and_says_what_it_must() {
        let (_dir, files) = written();
        insta::assert_snapshot!(files["report.md"]);
        let (_other, again) = written();
        assert_eq!(files, again);
    }

    #[test]
    fn the_page_stands_alone() {
        let (_dir, files) = written();
        let html = &files["report.html"];
        for outside in ["http://", "https://", "src=", "<script", "@import", "url("] {
            // The name of the SVG namespace is not loaded from the network.
            let html = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
        assert!(html.contains("width=device-width"));
        assert!(html.matches("<svg").count() >= 3);
        assert!(!html.contains("#010203"), "a stand-in colour is left");
    }

    #[test]
    fn data_files_can_be_read_back() {
        let (dir, files) = written();
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!(json["schema"], rundir::SCHEMA_VERSION);
        let cells = csv::Reader::from_reader(files["cells.csv"].as_bytes())
            .into_records()
            .count();
        assert_eq!(cells, json["summary"]["cells"].as_array().unwrap().len());
        let contexts = csv::Reader::from_reader(files["contexts.csv"].as_bytes())
            .into_records()
            .count();
        assert_eq!(
            contexts,
            json["contexts"]["costs"].as_array().unwrap().len()
        );
        assert!(contexts > 0);
        assert!(
            files["charts/latency.svg"].contains("micro")
                || files["charts/latency.svg"].contains("read")
        );
        let log = fs::read_to_string(dir.path().join("hist/micro-read.hot.sqlite.hlog")).unwrap();
        assert_eq!(
            log.lines()
                .filter(|line| line.starts_with("Tag=read,"))
                .count(),
            testing::EPOCHS as usize
        );
        let left = fs::read_dir(dir.path()).unwrap().flatten();
        assert!(
            left.into_iter()
                .all(|entry| entry.path().extension().is_none_or(|e| e != "part"))
        );
    }
}
