//! The tables of a report as CSV.

use std::collections::BTreeMap;
use std::path::Path;

use super::cells_page::{PASSES, passes_file};
use super::csv_file::{Field, csv, csv_columns};
use super::decisions;
use super::output::{WriteError, place};
use super::report::Report;
use figures::context::{ContextCost, MODELS, Reconciliation};
use figures::summary::{Cell, Cost, Handoffs, SharedFiles};
use rundir::{Calls, Sample, SettledLines};
use verdicts::claims::ClaimResult;

/// Writes `*.csv`, and a file of passes for each workload and cache state.
pub(super) fn tables(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let columns = csv_columns! {
        cell: &Cell =>
        workload, state, metric, arm, epochs, passes, calls,
        failed_passes = cell.failed.count(),
        tried_passes = cell.failed.tried,
        failed_bound = cell.failed.bound(),
        typical_ns,
        typical_low_ns = cell.interval.map(|interval| interval.low),
        typical_high_ns = cell.interval.map(|interval| interval.high),
        p50_ns, p90_ns, p99_ns, p999_ns, max_ns, requests_per_call,
        tail_ns = cell.tail.map(|tail| tail.mean_ns),
        ratio = cell.against_baseline.as_ref().map(|found| found.ratio),
        ratio_low = cell.against_baseline.as_ref().and_then(|found| Some(found.interval?.low)),
        ratio_high = cell.against_baseline.as_ref().and_then(|found| Some(found.interval?.high)),
        margin = cell.against_baseline.as_ref().map(|found| found.margin.ratio),
        low_level_ns = cell.modes.map(|modes| modes.low),
        high_level_ns = cell.modes.map(|modes| modes.high),
        verdict = cell.against_baseline.as_ref().map(|found| found.verdict.name()),
    };
    csv(&dir.join("cells.csv"), columns, &report.summary.cells)?;
    let settled = |sample: &Sample, count: fn(&SettledLines) -> u64| sample.settled.as_ref().map(count);
    let (head, row) = csv_columns! {
        pass: (&Sample, &str, Option<&Calls>) =>
        order = pass.0.order,
        epoch = pass.0.epoch,
        round = pass.0.round,
        warm_up = u64::from(pass.0.warm_up),
        busy = pass.0.load.busy,
        arm = pass.0.arm,
        workload = pass.0.workload,
        state = pass.0.state,
        outcome = pass.0.outcome,
        metric = pass.1,
        calls = pass.2.map_or(0, |calls| calls.count),
        p50_ns = pass.2.map(|calls| calls.p50_ns),
        mean_ns = pass.2.map(Calls::mean_ns),
        makespan_ns = pass.0.makespan_ns,
        lines = settled(pass.0, |found| found.lines),
        lines_on_both = settled(pass.0, |found| found.on_both),
        lines_only_in_copies = settled(pass.0, |found| found.only_in_copies),
        lines_on_one = settled(pass.0, |found| found.on_one),
        lines_lost = settled(pass.0, |found| found.lost),
        conflict_copies = settled(pass.0, |found| found.conflict_copies),
        agree = settled(pass.0, |found| u64::from(found.agree)),
    };
    let by_kind = |sample| rows_of(sample);
    let passes = report.run.samples.iter().flat_map(by_kind);
    csv(&dir.join("passes.csv"), (head, &row), passes)?;
    let mut by_cell: BTreeMap<(&str, &str), Vec<&Sample>> = BTreeMap::new();
    for sample in &report.run.samples {
        let key = (sample.workload.as_str(), sample.state.as_str());
        by_cell.entry(key).or_default().push(sample);
    }
    for ((workload, state), samples) in by_cell {
        let name = passes_file(workload, state).map_err(|error| WriteError::Format(error.to_string()))?;
        let passes = samples.into_iter().flat_map(by_kind);
        csv(&place(dir, PASSES, &name)?, (head, &row), passes)?;
    }
    let columns = csv_columns! {
        cost: &Cost =>
        workload, state, arm, service_ns, kernel_and_queue_ns, front_end_ns, store_ns, requests,
        system_calls, disk_written_bytes, client_cpu_ns, daemon_cpu_ns, daemon_peak_bytes,
    };
    csv(&dir.join("costs.csv"), columns, &report.summary.costs)?;
    decisions::write_csv(&dir.join("decisions.csv"), &report.decisions)?;
    hosts(report, dir)?;
    let (head, row) = csv_columns! {
        cost: &ContextCost =>
        workload, policy, tokens_are = cost.basis.name(), calls, entering, resent, fresh, cached, output,
        peak, full_at_call, expired, compactions,
    };
    let head = head.map(str::to_owned).into_iter();
    let head = head.chain(MODELS.map(|model| format!("usd_{model}")));
    let row = |cost: &ContextCost| {
        let dollars = MODELS.map(|model| cost.dollars.get(model).copied().text());
        row(cost).into_iter().chain(dollars).collect()
    };
    csv(&dir.join("contexts.csv"), (head, row), &report.contexts.costs)?;
    let columns = csv_columns! {
        residual: &Reconciliation =>
        workload, model, calls, median, median_abs, worst_abs, growth_median_abs,
        fresh_ledger = residual.cache.map(|cache| cache.fresh.0 as f64),
        fresh_reported = residual.cache.map(|cache| cache.fresh.1 as f64),
        expired_ledger = residual.cache.map(|cache| cache.expired as f64),
        cache_missed_reported = residual.cache.map(|cache| cache.missed as f64),
        expired_and_missed = residual.cache.map(|cache| cache.expired_and_missed as f64),
        prompt_usd_ledger = residual.dollars.map(|(ours, _)| ours),
        prompt_usd_reported = residual.dollars.map(|(_, theirs)| theirs),
    };
    let residuals = &report.contexts.residuals;
    csv(&dir.join("residuals.csv"), columns, residuals)?;
    let columns = csv_columns! {
        claim: &ClaimResult => id, source, quote, standing = claim.status.name(), evidence,
    };
    csv(&dir.join("claims.csv"), columns, report.claims)
}

/// A pass by kind of call; one without calls is one row.
type PassRow<'a> = (&'a Sample, &'a str, Option<&'a Calls>);

fn rows_of(sample: &Sample) -> impl Iterator<Item = PassRow<'_>> {
    let kinds = sample.calls.iter();
    let kinds = kinds.map(move |(kind, calls)| (sample, kind.as_str(), Some(calls)));
    let nothing = sample.calls.is_empty().then_some((sample, "", None));
    kinds.chain(nothing)
}

/// Writes the results of two hosts, a line per workload and arm, if the run has any.
fn hosts(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let (handoffs, shared) = (&report.summary.handoffs, &report.summary.shared_files);
    if !handoffs.is_empty() {
        let columns = csv_columns! {
            handoffs: &Handoffs => workload, arm, written, seen, median_ns, median_low_ns, median_high_ns, max_ns,
        };
        csv(&dir.join("handoffs.csv"), columns, handoffs)?;
    }
    if shared.is_empty() {
        return Ok(());
    }
    let columns = csv_columns! {
        files: &SharedFiles =>
        workload, arm, passes, agreed, lines, lines_on_both = files.on_both,
        lines_only_in_copies = files.only_in_copies, lines_on_one = files.on_one, lines_lost = files.lost,
        conflict_copies,
    };
    csv(&dir.join("shared_files.csv"), columns, shared)
}
