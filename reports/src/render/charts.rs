//! The charts of a report: one picture for each question. How a picture looks is in the module of its kind.

use std::collections::{BTreeMap, HashMap};

use super::curves;
use super::drawing::Picture;
use super::failures::failures;
use super::marks::Marks;
use super::ratios::{RatioPanel, RatioRow, ratio_picture};
use super::report::Report;
use super::stems::{FAILURES, GROWTH, LATENCY, PROGRAMS, SESSIONS, STATES, TOKENS};
use super::titles::{short_name, with_many_metrics};
use figures::summary::{Cell, MAKESPAN};
use figures::text::time;

/// The charts of a run's figures, by stem.
pub(super) fn charts(report: &Report<'_>, marks: &Marks) -> Result<BTreeMap<&'static str, Picture>, String> {
    let mut drawn = BTreeMap::new();
    let is_program = |cell: &Cell| cell.workload.starts_with("program/");
    let is_operation = |cell: &Cell| !cell.workload.starts_with("agent/") && !is_program(cell);
    let ratios: [(&'static str, Vec<RatioPanel>); 3] = [
        (LATENCY, ratio_panels(report, marks, is_operation)),
        (PROGRAMS, ratio_panels(report, marks, is_program)),
        (SESSIONS, ratio_panels(report, marks, |cell| cell.metric == MAKESPAN)),
    ];
    for (stem, panels) in ratios {
        let picture = ratio_picture(&panels).map_err(|error| format!("{stem}: {error}"))?;
        drawn.extend(picture.map(|picture| (stem, picture)));
    }
    if !report.run.plan.workloads.is_empty() {
        let found = failures(report, marks).map_err(|error| format!("{FAILURES}: {error}"))?;
        drawn.extend(found.map(|picture| (FAILURES, picture)));
    }
    let lines = [
        (STATES, curves::states(report, marks)),
        (TOKENS, curves::tokens(report, marks)),
        (GROWTH, curves::growth(report, marks)),
    ];
    for (stem, panels) in lines {
        let picture = curves::picture(&panels).map_err(|error| format!("{stem}: {error}"))?;
        drawn.extend(picture.map(|picture| (stem, picture)));
    }
    Ok(drawn)
}

/// A panel for each workload and metric that `wanted` picks, in the first cache state of the workload.
fn ratio_panels(report: &Report<'_>, marks: &Marks, wanted: impl Fn(&Cell) -> bool) -> Vec<RatioPanel> {
    let cells = &report.summary.cells;
    let many = with_many_metrics(cells);
    let baseline = &report.summary.baseline;
    let mut first_state: HashMap<&str, &str> = HashMap::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut panels: Vec<RatioPanel> = Vec::new();
    for cell in cells.iter().filter(|cell| wanted(cell)) {
        let state = first_state.entry(&cell.workload).or_insert(&cell.state);
        if *state != cell.state.as_str() {
            continue;
        }
        let at = *places.entry((&cell.workload, &cell.metric)).or_insert_with(|| {
            let mut title = short_name(&cell.workload).to_owned();
            if many.contains(cell.workload.as_str()) && cell.metric != MAKESPAN {
                title += &format!(": {}", cell.metric);
            }
            if cell.state != "hot" {
                title += &format!(", {}", cell.state);
            }
            panels.push(RatioPanel {
                title,
                anchor: cell.anchor(),
                baseline: baseline.clone(),
                unit: if cell.metric == MAKESPAN { "wait of a session" } else { "time of a call" },
                ..RatioPanel::default()
            });
            panels.len() - 1
        });
        let panel = &mut panels[at];
        if cell.arm == *baseline {
            panel.typical = time(cell.typical_ns);
            continue;
        }
        let is_twin = report.summary.aa_arm.as_deref() == Some(cell.arm.as_str());
        let (Some(found), false) = (&cell.against_baseline, is_twin) else {
            continue;
        };
        panel.margin = panel.margin.max(found.margin.ratio);
        panel.rows.push(RatioRow {
            name: cell.arm.clone(),
            mark: marks.get(&cell.arm),
            ratio: found.ratio,
            interval: found.interval.map(|interval| (interval.low, interval.high)),
            has_failures: cell.failed.count() > 0,
        });
    }
    panels.retain(|panel| !panel.rows.is_empty());
    panels
}
