//! The summary that a run prints at its end.

use reports::render::{arm_and_its_baseline, ratio, table, time};
use stats::MAKESPAN;

use crate::reporting::ReportInputs;

/// The headline of a run: operations and sessions, each arm's ratio to the baseline.
pub(super) fn summary_table(report_inputs: &ReportInputs) -> String {
    let summary = &report_inputs.reported.summary;
    let plan = &report_inputs.reported.run.plan;
    let arms = plan.arms.iter().map(|arm| arm.name.as_str());
    let arms: Vec<&str> = arms
        .filter(|arm| *arm != summary.baseline && Some(*arm) != summary.aa_arm.as_deref())
        .collect();
    let mut rows = Vec::new();
    let baseline = summary
        .cells
        .iter()
        .filter(|cell| cell.arm == summary.baseline);
    for cell in baseline {
        if cell.workload.starts_with("agent/") && cell.metric != MAKESPAN {
            continue;
        }
        let mut row = vec![
            format!("{} {}", cell.workload, cell.state),
            format!("{}{}", time(cell.typical_ns), cell.failed.caveat()),
        ];
        let below = summary.below_what_matters(plan, &cell.key());
        let is_below = below.is_some();
        // One word for all arms of the cell.
        row.extend(below);
        for arm in arms.iter().filter(|_| !is_below) {
            let compared = summary.cells.iter().find(|other| {
                other.arm == *arm
                    && other.workload == cell.workload
                    && other.state == cell.state
                    && other.metric == cell.metric
            });
            let compared = compared.and_then(|cell| {
                let words = ratio(cell.against_baseline.as_ref()?);
                Some(format!("{words}{}", cell.failed.caveat()))
            });
            row.push(compared.unwrap_or("–".to_owned()));
        }
        rows.push(row);
    }
    let wrong: String = summary
        .failing
        .iter()
        .map(|failing| {
            format!(
                "{} {} on {}: {} of calls did not end well, in {} of {} passes; it is in no figure above\n",
                failing.workload,
                failing.state,
                failing.arm,
                format_args!("{:.1} %", failing.share() * 100.0),
                failing.passes,
                failing.of_passes
            )
        })
        .collect();
    let named: Vec<String> = arms
        .iter()
        .map(|arm| arm_and_its_baseline(plan, arm))
        .collect();
    let mut head = vec!["workload", &summary.baseline];
    head.extend(named.iter().map(String::as_str));
    // What a reader must know comes before the figures.
    let notes = summary.health.notes.iter();
    let mut text: String = notes.map(|note| format!("{note}\n\n")).collect();
    text += &table(&head, &rows);
    text += &format!(
        "\nratios to {} with 99 % intervals over {}\n{}.\n{}.\n{wrong}",
        summary.baseline,
        summary.health.epochs_in_words(),
        summary.health.identical_arms(),
        summary.health.verdicts()
    );
    text
}
