//! The tables of a report as CSV.

use std::fs;
use std::path::Path;

use super::decisions;
use super::output::WriteError;
use super::report::Report;
use crate::context::MODELS;
use rundir::Settled;

/// Writes `*.csv`.
///
/// # Errors
/// See [`WriteError`].
pub(super) fn tables(report: &Report<'_>, dir: &Path) -> Result<(), WriteError> {
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
    let head = "workload,state,metric,arm,epochs,passes,calls,typical_ns,typical_low_ns,\
                typical_high_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,requests_per_call,\
                ratio,ratio_low,ratio_high,margin,low_level_ns,high_level_ns,verdict";
    csv(&dir.join("cells.csv"), head, cells)?;
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
    let head = "order,epoch,round,warm_up,busy,arm,workload,state,outcome,metric,calls,\
                p50_ns,mean_ns,makespan_ns,lines,lines_on_both,lines_only_in_copies,\
                lines_on_one,lines_lost,conflict_copies,agree";
    csv(&dir.join("passes.csv"), head, passes)?;
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
    let head = "workload,state,arm,service_ns,kernel_and_queue_ns,front_end_ns,store_ns,\
                requests,system_calls,disk_written_bytes,client_cpu_ns,daemon_cpu_ns,\
                daemon_peak_bytes";
    csv(&dir.join("costs.csv"), head, costs)?;
    let rows = decisions::csv_rows(&report.decisions);
    csv(&dir.join("decisions.csv"), decisions::CSV_HEAD, rows)?;
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
    let head = format!(
        "workload,policy,tokens_are,calls,entering,resent,fresh,cached,output,peak,\
         full_at_call,expired,compactions,{}",
        MODELS.map(|model| format!("usd_{model}")).join(",")
    );
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
    let head = "workload,model,calls,median,median_abs,worst_abs,growth_median_abs,\
                fresh_ledger,fresh_reported,expired_ledger,cache_missed_reported,\
                expired_and_missed,prompt_usd_ledger,prompt_usd_reported";
    csv(&dir.join("residuals.csv"), head, residuals)?;
    let claims = report.claims.iter().map(|claim| {
        vec![
            claim.id.clone(),
            claim.source.clone(),
            claim.quote.clone(),
            claim.status.name().to_owned(),
            claim.evidence.clone(),
        ]
    });
    let head = "id,source,quote,standing,evidence";
    csv(&dir.join("claims.csv"), head, claims)
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
        let head = "workload,arm,written,seen,median_ns,max_ns";
        csv(&dir.join("handoffs.csv"), head, rows)?;
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
    let head = "workload,arm,passes,agreed,lines,lines_on_both,lines_only_in_copies,\
                lines_on_one,lines_lost,conflict_copies";
    csv(&dir.join("shared_files.csv"), head, rows)
}

/// Writes a table below a line of column names, row by row, so that no table is held in memory.
pub(super) fn csv(
    file: &Path,
    head: &str,
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), WriteError> {
    let format = |error: csv::Error| WriteError::Format(format!("{}: {error}", file.display()));
    let half = file.with_extension("part");
    let mut writer = csv::Writer::from_path(&half).map_err(format)?;
    writer.write_record(head.split(',')).map_err(format)?;
    for row in rows {
        writer.write_record(row).map_err(format)?;
    }
    let renamed = writer.flush().and_then(|()| fs::rename(&half, file));
    renamed.map_err(|error| WriteError::Io {
        file: file.to_owned(),
        error,
    })
}
