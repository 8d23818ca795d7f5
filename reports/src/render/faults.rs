//! The page of a fault run: the matrix, the crash points, the findings, and the details of each scenario.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plotters::style::RGBColor;

use super::csv_file::{csv, csv_columns};
use super::drawing::{Chart, Picture};
use super::fault_crash::crash_points;
use super::fault_details::{details, not_run};
use super::fault_groups::{bucket, model};
use super::fault_words::{data, recovery, short, worst};
use super::files::chart_file;
use super::heat::{HeatCell, HeatRow, heat_table};
use super::html::html;
use super::markdown::markdown;
use super::output::{WriteError, place, put};
use super::part::Part;
use figures::text::columns;
use rundir::Run;
use rundir::faults::{Audit, AuditVerdict, CellKind, FaultOutcome, KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS};

/// The stem of the chart's file.
const MATRIX: &str = "faults";

/// Writes `faults.md`, `faults.html`, `faults.csv` and `charts/faults.svg` into the run's directory.
/// Files of an earlier page are replaced. Returns the path of the HTML page.
///
/// # Errors
/// See [`WriteError`].
pub fn write_faults(run: &Run) -> Result<PathBuf, WriteError> {
    let dir = &run.dir;
    let matrix = matrix(run).map_err(|error| WriteError::Format(error.to_string()))?;
    let file = place(dir, "charts", &chart_file(MATRIX)?)?;
    put(&file, &matrix.for_file())?;
    let parts = page(run);
    let charts = BTreeMap::from([(MATRIX, Picture(vec![matrix]))]);
    let title = format!("ctxbench fault {}", run.plan.created);
    put(&dir.join("faults.md"), &markdown(&parts))?;
    let page = dir.join("faults.html");
    let text = html(&title, &parts, &charts, None);
    put(&page, &text.map_err(|error| WriteError::Format(error.to_string()))?)?;
    table_file(run, dir)?;
    Ok(page)
}

/// The colour of a cell, and whether it is dark: Okabe and Ito's palette, grey for cells that did not run.
fn colour(kind: CellKind) -> (RGBColor, bool) {
    match kind {
        CellKind::Unfit => (RGBColor(232, 234, 236), false),
        CellKind::Skipped => (RGBColor(205, 208, 212), false),
        CellKind::Clean => (RGBColor(0, 158, 115), true),
        CellKind::Raced => (RGBColor(170, 220, 170), false),
        CellKind::Error => (RGBColor(140, 205, 240), false),
        // Not grey, because the scenario ran although the state of the data is unknown.
        CellKind::Unknown => (RGBColor(204, 121, 167), false),
        CellKind::Infra => (RGBColor(90, 94, 100), true),
        CellKind::Breach => (RGBColor(240, 228, 66), false),
        CellKind::Manual => (RGBColor(230, 159, 0), false),
        CellKind::Hang => (RGBColor(213, 94, 0), true),
        CellKind::Lost => (RGBColor(140, 0, 60), true),
    }
}

const KINDS: [CellKind; 11] = [
    CellKind::Clean,
    CellKind::Raced,
    CellKind::Error,
    CellKind::Breach,
    CellKind::Manual,
    CellKind::Hang,
    CellKind::Lost,
    CellKind::Unknown,
    CellKind::Infra,
    CellKind::Skipped,
    CellKind::Unfit,
];

fn matrix(run: &Run) -> Result<Chart, Box<dyn std::error::Error + Send + Sync>> {
    let columns: Vec<&str> = run.plan.arms.iter().map(|b| b.name.as_str()).collect();
    let mut rows = Vec::new();
    let mut group = "";
    for scenario in &run.plan.scenarios {
        if scenario.group != group {
            group = &scenario.group;
            rows.push(HeatRow::Heading(group.to_owned()));
        }
        let cells = columns.iter().map(|backend| {
            let outcome = worst(run, &scenario.name, backend)?;
            let kind = outcome.cell();
            let (colour, is_dark) = colour(kind);
            Some(HeatCell { text: short(outcome), colour, is_dark })
        });
        rows.push(HeatRow::Cells(scenario.name.clone(), cells.collect()));
    }
    let legend = KINDS.map(|kind| (kind.words(), colour(kind).0));
    heat_table(&columns, &rows, &legend)
}

fn page(run: &Run) -> Vec<Part> {
    let mut parts = Vec::new();
    first_page(run, &mut parts);
    for (title, section) in [("Crash points", crash_points(run)), ("Findings", findings(run))] {
        titled(title, section, &mut parts);
    }
    promises(run, &mut parts);
    for (title, section) in [
        ("The matrix in words", matrix_table(run)),
        ("When the bucket fails", bucket(run)),
        ("When the model fails", model(run)),
    ] {
        titled(title, section, &mut parts);
    }
    details(run, &mut parts);
    not_run(run, &mut parts);
    parts
}

/// Adds a section under its title, unless it is empty.
fn titled(title: &str, section: Vec<Part>, parts: &mut Vec<Part>) {
    if !section.is_empty() {
        parts.push(Part::Heading(2, title.to_owned()));
        parts.extend(section);
    }
}

fn first_page(run: &Run, parts: &mut Vec<Part>) {
    let plan = &run.plan;
    let ran =
        run.fault_outcomes.iter().filter(|outcome| !matches!(outcome.cell(), CellKind::Unfit | CellKind::Skipped));
    let labelled = run.fault_outcomes.iter().filter(|outcome| outcome.label.is_some());
    parts.push(Part::Heading(1, "What backends do when a fault is injected".to_owned()));
    let mut facts = vec![
        format!(
            "`ctxbench fault`, {}, ctxbench {}: {} scenarios, {} backends, {} outcomes of scenarios that fit and could be run, {} of them shortened or simulated (the details say how).",
            plan.created,
            plan.ctxbench,
            plan.scenarios.len(),
            plan.arms.len(),
            ran.count(),
            labelled.count(),
        ),
        format!(
            "On {} ({} processors), Linux {}, as {}. Scratch: {}.",
            run.environment.cpu,
            run.environment.cpus,
            run.environment.kernel.split(' ').next().unwrap_or_default(),
            run.environment.user,
            run.environment.scratch,
        ),
        "Every call on a mount is made by a separate process under a watchdog. Records are numbered and checksummed, every acknowledgement is noted outside the mount, and a checker compares the records with these notes. One run of a scenario shows what can happen, not how often it happens. A killed daemon does not affect the kernel's page cache, so written data that are not on the disk yet survive.".to_owned(),
    ];
    if run.environment.build.starts_with("debug") {
        facts.push("This was a DEBUG build: its times mean nothing, but its outcomes are valid.".to_owned());
    }
    parts.push(Part::List(facts));
    parts.push(Part::Chart(
        MATRIX,
        "Backend by scenario: the outcome, the first error number that the agent saw, and the longest call if it took a second or more.",
    ));
}

pub(super) fn findings(run: &Run) -> Vec<Part> {
    if run.fault_outcomes.is_empty() {
        return Vec::new();
    }
    let said = Part::Text(
        "The worst outcome of each backend, in this order: lost data that were promised, hangs, recoveries by hand, other breaches. If the disk had to be repaired, \"needs a hand\" is not the backend's fault.".to_owned(),
    );
    let mut items = Vec::new();
    for backend in &run.plan.arms {
        let outcomes = run.fault_outcomes.iter().filter(|outcome| outcome.backend == backend.name);
        let mut bad: Vec<&FaultOutcome> = outcomes.filter(|outcome| outcome.cell() >= CellKind::Breach).collect();
        bad.sort_by_key(|outcome| std::cmp::Reverse(outcome.cell()));
        if bad.is_empty() {
            items.push(format!("{}: no breach.", backend.name));
        }
        items.extend(bad.iter().map(|outcome| finding(outcome)));
    }
    vec![said, Part::List(items)]
}

fn finding(outcome: &FaultOutcome) -> String {
    let mut said = outcome.breaches.clone();
    for (loss, audit) in &outcome.audits {
        if audit.verdict == AuditVerdict::Invalid {
            let example = audit.examples.first().cloned().unwrap_or_default();
            said.push(format!("{loss}: {}; {example}", data(audit)));
        }
    }
    if said.is_empty() {
        said.push(recovery(outcome));
    }
    // A daemon's message may have several lines.
    let said = said.join("; ");
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    format!("{}, {}: {} – {}.", outcome.backend, outcome.scenario, outcome.cell().words(), said.join(" / "))
}

fn promises(run: &Run, parts: &mut Vec<Part>) {
    parts.push(Part::Heading(2, "What each promises".to_owned()));
    parts.push(Part::Text(
        "The weakest call whose return guarantees that data are kept, by kind of loss. The checker tests each backend against this promise.".to_owned(),
    ));
    let head = columns("backend | a killed daemon | power loss | loss of the machine | in its own words");
    let rows = run.plan.arms.iter().map(|backend| {
        let promise = |loss: &str| {
            let promised = backend.backend.promises.get(loss);
            promised.cloned().unwrap_or_else(|| "nothing".to_owned())
        };
        vec![
            backend.name.clone(),
            promise(KILLED_DAEMON),
            promise(POWER_LOSS),
            promise(MACHINE_LOSS),
            backend.backend.durability.clone(),
        ]
    });
    parts.push(Part::Table(head, rows.collect()));
}

pub(super) fn matrix_table(run: &Run) -> Vec<Part> {
    if run.plan.scenarios.is_empty() {
        return Vec::new();
    }
    let mut head = columns("group | scenario");
    head.extend(run.plan.arms.iter().map(|backend| backend.name.clone()));
    let rows = run.plan.scenarios.iter().map(|scenario| {
        let mut row = vec![scenario.group.clone(), scenario.name.clone()];
        for backend in &run.plan.arms {
            let outcome = worst(run, &scenario.name, &backend.name);
            row.push(outcome.map_or("not run".to_owned(), |outcome| match outcome.cell() {
                CellKind::Unfit => "–".to_owned(),
                kind => format!("{}: {}", kind.words(), short(outcome)),
            }));
        }
        row
    });
    vec![Part::Table(head, rows.collect())]
}

fn table_file(run: &Run, dir: &Path) -> Result<(), WriteError> {
    let sum = |outcome: &FaultOutcome, count: fn(&Audit) -> u64| -> u64 { outcome.audits.values().map(count).sum() };
    let verdict = |outcome: &FaultOutcome| outcome.audits.values().map(|audit| audit.verdict).max();
    let columns = csv_columns! {
        outcome: &FaultOutcome =>
        scenario, group, backend, seed, outcome = outcome.cell().words(), injected, label, longest_call_ms,
        uninterruptible_ms, hang_ms = outcome.hang.as_ref().map(|hang| hang.waited_ms),
        recovery = recovery(outcome), recovery_ms = outcome.recovery.as_ref().map(|recovery| recovery.ms),
        verdict = verdict(outcome).map(AuditVerdict::name),
        lost = sum(outcome, |audit| audit.lost),
        torn = sum(outcome, |audit| audit.torn),
        half = sum(outcome, |audit| audit.half),
        stale = sum(outcome, |audit| audit.stale),
        phantom = sum(outcome, |audit| audit.phantom),
        unreadable = sum(outcome, |audit| audit.unreadable),
        updates_lost = outcome.updates_lost(), torn_reads = outcome.torn_reads(),
        breaches = outcome.breaches.join("; "),
    };
    csv(&dir.join("faults.csv"), columns, &run.fault_outcomes)
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
