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
        for arm in &arms {
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
    let mut text = table(&head, &rows);
    for note in &summary.health.notes {
        text += &format!("\n{note}");
    }
    text += &format!(
        "\nratios to {} with 99 % intervals over {}; {}\n{wrong}",
        summary.baseline,
        summary.health.epochs_in_words(),
        summary.health.identical_arms()
    );
    text
}
