//! The tables of a report as CSV.

use std::path::Path;

use super::csv_file::{Field, csv, csv_columns};
use super::decisions;
use super::output::WriteError;
use super::report::Report;
use crate::claims::ClaimResult;
use crate::context::{ContextCost, MODELS, Reconciled};
use crate::summary::{Cell, Cost, Handoffs, SharedFiles};
use rundir::{Calls, Sample, Settled};

/// Writes `*.csv`.
pub(super) fn tables(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let columns = csv_columns! {
        own: &Cell =>
        workload, state, metric, arm, epochs, passes, calls, typical_ns,
        typical_low_ns = own.interval.map(|interval| interval.low),
        typical_high_ns = own.interval.map(|interval| interval.high),
        p50_ns, p90_ns, p99_ns, p999_ns, max_ns, requests_per_call,
        ratio = own.against_baseline.as_ref().map(|found| found.ratio),
        ratio_low = own.against_baseline.as_ref().and_then(|found| Some(found.interval?.low)),
        ratio_high = own.against_baseline.as_ref().and_then(|found| Some(found.interval?.high)),
        margin = own.against_baseline.as_ref().map(|found| found.margin.ratio),
        low_level_ns = own.modes.map(|modes| modes.low),
        high_level_ns = own.modes.map(|modes| modes.high),
        verdict = own.against_baseline.as_ref().map(|found| found.verdict.name()),
    };
    csv(&dir.join("cells.csv"), columns, &report.summary.cells)?;
    let settled = |sample: &Sample, count: fn(&Settled) -> u64| sample.settled.as_ref().map(count);
    let columns = csv_columns! {
        own: (&Sample, &str, Option<&Calls>) =>
        order = own.0.order,
        epoch = own.0.epoch,
        round = own.0.round,
        warm_up = u64::from(own.0.warm_up),
        busy = own.0.load.busy,
        arm = own.0.arm,
        workload = own.0.workload,
        state = own.0.state,
        outcome = own.0.outcome,
        metric = own.1,
        calls = own.2.map_or(0, |calls| calls.count),
        p50_ns = own.2.map(|calls| calls.p50_ns),
        mean_ns = own.2.map(Calls::mean_ns),
        makespan_ns = own.0.makespan_ns,
        lines = settled(own.0, |found| found.lines),
        lines_on_both = settled(own.0, |found| found.on_both),
        lines_only_in_copies = settled(own.0, |found| found.only_in_copies),
        lines_on_one = settled(own.0, |found| found.on_one),
        lines_lost = settled(own.0, |found| found.lost),
        conflict_copies = settled(own.0, |found| found.conflict_copies),
        agree = settled(own.0, |found| u64::from(found.agree)),
    };
    let passes = report.run.samples.iter().flat_map(|sample| {
        let kinds = sample.calls.iter();
        let kinds = kinds.map(move |(kind, calls)| (sample, kind.as_str(), Some(calls)));
        let nothing = sample.calls.is_empty().then_some((sample, "", None));
        kinds.chain(nothing)
    });
    csv(&dir.join("passes.csv"), columns, passes)?;
    let columns = csv_columns! {
        own: &Cost =>
        workload, state, arm, service_ns, kernel_and_queue_ns, front_end_ns, store_ns, requests,
        system_calls, disk_written_bytes, client_cpu_ns, daemon_cpu_ns, daemon_peak_bytes,
    };
    csv(&dir.join("costs.csv"), columns, &report.summary.costs)?;
    decisions::write_csv(&dir.join("decisions.csv"), &report.decisions)?;
    hosts(report, dir)?;
    let (head, row) = csv_columns! {
        own: &ContextCost =>
        workload, policy, tokens_are = own.basis.name(), calls, entering, resent, fresh, cached, output,
        peak, full_at_call, expired, compactions,
    };
    let head = head.map(str::to_owned).into_iter();
    let head = head.chain(MODELS.map(|model| format!("usd_{model}")));
    let row = |own: &ContextCost| {
        let dollars = MODELS.map(|model| own.dollars.get(model).copied().text());
        row(own).into_iter().chain(dollars).collect()
    };
    csv(
        &dir.join("contexts.csv"),
        (head, row),
        &report.contexts.costs,
    )?;
    let columns = csv_columns! {
        own: &Reconciled =>
        workload, model, calls, median, median_abs, worst_abs, growth_median_abs,
        fresh_ledger = own.cache.map(|cache| cache.fresh.0 as f64),
        fresh_reported = own.cache.map(|cache| cache.fresh.1 as f64),
        expired_ledger = own.cache.map(|cache| cache.expired as f64),
        cache_missed_reported = own.cache.map(|cache| cache.missed as f64),
        expired_and_missed = own.cache.map(|cache| cache.expired_and_missed as f64),
        prompt_usd_ledger = own.dollars.map(|(ours, _)| ours),
        prompt_usd_reported = own.dollars.map(|(_, theirs)| theirs),
    };
    let residuals = &report.contexts.residuals;
    csv(&dir.join("residuals.csv"), columns, residuals)?;
    let columns = csv_columns! {
        own: &ClaimResult => id, source, quote, standing = own.status.name(), evidence,
    };
    csv(&dir.join("claims.csv"), columns, report.claims)
}

/// Writes the results of two hosts, a line per workload and arm, if the run has any.
fn hosts(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
    let (handoffs, shared) = (&report.summary.handoffs, &report.summary.shared_files);
    if !handoffs.is_empty() {
        let columns = csv_columns! {
            own: &Handoffs => workload, arm, written, seen, median_ns, max_ns,
        };
        csv(&dir.join("handoffs.csv"), columns, handoffs)?;
    }
    if shared.is_empty() {
        return Ok(());
    }
    let columns = csv_columns! {
        own: &SharedFiles =>
        workload, arm, passes, agreed, lines, lines_on_both = own.on_both,
        lines_only_in_copies = own.only_in_copies, lines_on_one = own.on_one, lines_lost = own.lost,
        conflict_copies,
    };
    csv(&dir.join("shared_files.csv"), columns, shared)
}
