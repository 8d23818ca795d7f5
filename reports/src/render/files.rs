//! Writes the files of a report: pages, charts, data.

use std::path::{Path, PathBuf};

use inputs::border;
use inputs::names::FileName;

use super::charts::charts;
use super::drawing::DrawError;
use super::histogram_logs::histogram_logs;
use super::html::html;
use super::json::json;
use super::markdown::markdown;
use super::marks::Marks;
use super::model_files_page::model_files_page;
use super::output::{WriteError, place, put};
use super::page::{page as full, pictured, results, short};
use super::report::Report;
use super::stems::USES;
use super::tables::tables;
use super::use_panels::use_pictures;

/// Writes `report.md`, `report.html`, `report.json`, `*.csv`, `charts/*.svg` and `hist/*.hlog` into `dir`.
/// Files of an earlier report are replaced. Returns the path of the HTML page.
///
/// # Errors
/// See [`WriteError`].
pub fn write(report: &Report<'_>, dir: &Path) -> Result<PathBuf, WriteError> {
    let format = |error: DrawError| WriteError::Format(error.to_string());
    let marks = Marks::of(report);
    let mut drawn = charts(report, &marks).map_err(WriteError::Format)?;
    let uses = use_pictures(&pictured(report), &marks).map_err(format)?;
    if !uses.0.is_empty() {
        drawn.insert(USES, uses);
    }
    for (stem, chart) in &drawn {
        let name = chart_file(stem)?;
        put(&place(dir, "charts", &name)?, &chart.for_file())?;
    }
    let title = format!("ctxbench: {} {}", report.run.plan.suite, report.run.plan.created);
    put(&dir.join("report.md"), &markdown(&short(report)))?;
    if let Some(found) = &report.run.model_files
        && found.failed.is_none()
    {
        let plan = &report.run.plan;
        let made = format!("Measured {} by ctxbench {}.", plan.created, plan.ctxbench);
        let text = model_files_page(found, &made).map_err(WriteError::Format)?;
        put(&dir.join("model-files.md"), &text)?;
    }
    let page = dir.join("report.html");
    let text = html(&title, &full(report), &drawn, Some(&marks)).map_err(format)?;
    put(&page, &text)?;
    put(&dir.join("report.json"), &json(report).map_err(WriteError::Format)?)?;
    tables(report, dir)?;
    histogram_logs(report.run, dir)?;
    Ok(page)
}

/// The file of a chart.
pub(super) fn chart_file(stem: &str) -> Result<FileName, WriteError> {
    FileName::new(format!("{stem}.svg")).map_err(|error| WriteError::Format(error.to_string()))
}

/// A Markdown page for `docs/results`, with the origin of the run.
pub fn results_page(report: &Report<'_>) -> String {
    let plan = &report.run.plan;
    let made = format!(
        "<!-- Made by `ctxbench report --page` from a run directory; do not edit. The run: `{}` -->\n\n",
        border::xml(&plan.command)
    );
    made + &markdown(&results(report))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::render::testing::Inputs;
    use figures::testing;

    fn written() -> (tempfile::TempDir, BTreeMap<String, String>) {
        let inputs = Inputs::judged();
        let mut report = inputs.report();
        report.decisions.retain(|decision| decision.policy == "cron-controller");
        let dir = tempfile::tempdir().unwrap();
        write(&report, dir.path()).unwrap();
        // A second report replaces the first.
        write(&report, dir.path()).unwrap();
        let names = ["report.md", "report.html", "report.json", "cells.csv", "contexts.csv", "charts/latency.svg"];
        let files = names.map(|name| {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            (name.to_owned(), text)
        });
        (dir, files.into())
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
        for outside in ["http://", "https://", "src=", "<link", "@import", "url("] {
            // The name of the SVG namespace is not loaded from the network.
            let html = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.len() < 3_000_000, "{} bytes", html.len());
        assert!(html.contains("prefers-color-scheme: dark"));
        assert!(html.contains("width=device-width"));
        assert!(html.matches("<svg").count() >= 3);
        assert!(!html.contains("#010203"), "a stand-in colour is left");
    }

    #[test]
    fn data_files_can_be_read_back() {
        let (dir, files) = written();
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!(json["schema"], rundir::RUN_DIRECTORY_VERSION);
        let rows = |name: &str| {
            let records = csv::Reader::from_reader(files[name].as_bytes());
            records.into_records().count()
        };
        let len = |items: &serde_json::Value| items.as_array().unwrap().len();
        assert_eq!(rows("cells.csv"), len(&json["summary"]["cells"]));
        let contexts = rows("contexts.csv");
        assert_eq!(contexts, len(&json["contexts"]["costs"]));
        assert!(contexts > 0);
        assert!(files["charts/latency.svg"].contains("read"));
        let log = fs::read_to_string(dir.path().join("hist/micro-read.hot.sqlite.hlog")).unwrap();
        let tagged = log.lines().filter(|line| line.starts_with("Tag=read,"));
        assert_eq!(tagged.count(), testing::EPOCHS as usize);
        let mut left = fs::read_dir(dir.path()).unwrap().flatten();
        assert!(left.all(|entry| entry.path().extension().is_none_or(|e| e != "part")));
    }
}
