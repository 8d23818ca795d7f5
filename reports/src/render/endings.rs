//! The report's sections on tools, conformance, and failed passes and calls.

use std::collections::BTreeMap;

use super::part::Part::{self, Folded, Heading, List, Table, Text};
use super::report::Report;
use figures::conformance::CONFORMANCE;
use figures::text::{columns, count, time};
use rundir::{Fault, Outcome};
use verdicts::decide::digits;

/// The conformance table: a row per feature, a column per arm. In a run with passes it is folded.
pub(super) fn conformance(report: &Report<'_>, parts: &mut Vec<Part>) {
    let run = report.run;
    let features = &run.plan.features;
    if features.is_empty() {
        return;
    }
    let probes = || run.probes.iter().filter(|probe| probe.aspect == CONFORMANCE);
    parts.push(Heading(3, "Conformance".to_owned()));
    let is_tried = |arm: &&rundir::Arm| {
        arm.unavailable.is_none()
            && (run.plan.workloads.is_empty()
                || probes().any(|probe| probe.arm == arm.name && probe.outcome != Outcome::Infra))
    };
    let tried = run.plan.arms.iter().filter(is_tried);
    let arms: Vec<&str> = tried.map(|arm| arm.name.as_str()).collect();
    let word = |feature: &str, arm: &str| {
        let found = probes().find(|probe| probe.name == feature && probe.arm == arm);
        found.map_or("not reached", |probe| match probe.outcome {
            Outcome::Ok => "works",
            Outcome::Skipped => "skipped",
            _ => "FAILS",
        })
    };
    let rows = features.iter().map(|feature| {
        let words = arms.iter().map(|arm| word(feature, arm).to_owned());
        std::iter::once(feature.clone()).chain(words).collect()
    });
    let head = std::iter::once("feature").chain(arms.iter().copied());
    let table = Table(head.map(str::to_owned).collect(), rows.collect());
    let reasons = probes().filter(|probe| !probe.detail.is_empty());
    let reasons = reasons.map(|probe| format!("{}, {}: {}", probe.arm, probe.name, probe.detail));
    let reasons = List(reasons.collect());
    if run.plan.workloads.is_empty() {
        return parts.extend([table, reasons]);
    }
    let failing = probes().filter(|probe| !matches!(probe.outcome, Outcome::Ok | Outcome::Skipped | Outcome::Infra));
    let mut by_feature: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for probe in failing {
        by_feature.entry(&probe.name).or_default().push(&probe.arm);
    }
    let failing = by_feature.iter().map(|(feature, arms)| format!("{feature} ({})", arms.join(", ")));
    let failing: Vec<String> = failing.collect();
    let failing =
        if failing.is_empty() { "none fails".to_owned() } else { format!("these fail: {}", failing.join("; ")) };
    parts.push(Text(format!("{} features were tried on {}; {failing}.", features.len(), arms.join(", "))));
    parts.push(Folded("Feature by feature".to_owned(), vec![table, reasons]));
}

pub(super) fn tools(report: &Report<'_>, parts: &mut Vec<Part>) {
    let run = report.run;
    let probes = run.probes.iter();
    let probes: Vec<_> = probes.filter(|probe| probe.aspect != CONFORMANCE).collect();
    if probes.is_empty() && run.faults.is_empty() {
        return;
    }
    parts.push(Heading(3, "Tools and killed daemons".to_owned()));
    let rows = probes.iter().map(|probe| {
        vec![
            probe.aspect.clone(),
            probe.name.clone(),
            probe.arm.clone(),
            probe.outcome.to_string(),
            probe.detail.clone(),
        ]
    });
    let head = columns("aspect | probe | arm | outcome | seen");
    parts.push(Folded(
        format!("{} probes, {} of them ok", probes.len(), probes.iter().filter(|p| p.outcome == Outcome::Ok).count()),
        vec![Table(head, rows.collect())],
    ));
    let head = columns(
        "scenario | arm | outcome | what happened | times | recovered | recovery (median, longest) | lost | failed calls",
    );
    parts.push(Table(head, equal_faults(&run.faults)));
}

/// A row for all faults of a scenario on an arm that ended in the same way, in the order of the first of each.
fn equal_faults(faults: &[Fault]) -> Vec<Vec<String>> {
    let mut kinds: Vec<(Vec<String>, Vec<&Fault>)> = Vec::new();
    for fault in faults {
        let recovered = if fault.recovered { "by itself" } else { "NO" };
        let outcome = fault.outcome.to_string();
        let kind = [&fault.scenario, &fault.arm, &outcome, &fault.detail];
        let kind: Vec<String> = kind.into_iter().cloned().chain([recovered.to_owned()]).collect();
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, equal)) => equal.push(fault),
            None => kinds.push((kind, vec![fault])),
        }
    }
    let rows = kinds.into_iter().map(|(mut row, equal)| {
        let sum = |of: fn(&Fault) -> u64| equal.iter().map(|fault| of(fault)).sum::<u64>();
        let mut times: Vec<u64> = equal.iter().map(|fault| fault.recovery_ms).collect();
        times.sort_unstable();
        let recovered = row.pop();
        row.push(equal.len().to_string());
        row.extend(recovered);
        row.push(match times.as_slice() {
            [one] => format!("{one} ms"),
            times => {
                let longest = times.last().copied().unwrap_or_default();
                format!("{}, {longest} ms", times[times.len() / 2])
            }
        });
        row.push(format!("{} of {}", sum(|fault| fault.lost), sum(|fault| fault.acknowledged)));
        row.push(sum(|fault| fault.failed_calls).to_string());
        row
    });
    rows.collect()
}

pub(super) fn endings(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(3, "How calls ended".to_owned()));
    let list = |counts: &BTreeMap<Outcome, u64>| {
        let parts: Vec<_> = counts.iter().map(|(outcome, n)| format!("{outcome} {}", count(*n))).collect();
        parts.join(", ")
    };
    let rows = report.summary.endings.iter().map(|ending| {
        vec![
            ending.arm.clone(),
            list(&ending.passes),
            list(&ending.calls),
            match ending.failure_bound() {
                Some(bound) => format!("≤ {} %", digits(bound * 100.0)),
                None => "—".to_owned(),
            },
        ]
    });
    let head = columns("arm | passes | timed calls | failing passes, at most (95 %)");
    parts.push(Table(head, rows.collect()));
    parts.push(Text("After the timed section of a pass, every read, listing and size was compared with the reference model. A skipped pass does not count as passed.".to_owned()));
    failing(report, parts);
    let mut reasons = Vec::new();
    for ending in &report.summary.endings {
        for (reason, times) in &ending.reasons {
            reasons.push(format!("{} ({times} passes): {reason}", ending.arm));
        }
        let mut cells: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (cell, reason) in &ending.skipped {
            cells.entry(reason).or_default().push(cell);
        }
        for (reason, cells) in cells {
            let cells = match cells.len() {
                0..=3 => cells.join(", "),
                n => format!("{n} cells ({} to {})", cells[0], cells[n - 1]),
            };
            reasons.push(format!("{} skipped in {cells}: {reason}", ending.arm));
        }
    }
    if !reasons.is_empty() {
        parts.push(Folded(format!("What was skipped or failed: {} reasons", reasons.len()), vec![List(reasons)]));
    }
}

/// The table of failing passes with the callers' waits.
fn failing(report: &Report<'_>, parts: &mut Vec<Part>) {
    let failing = &report.summary.failing;
    if failing.is_empty() {
        return;
    }
    parts.push(Text(format!(
        "No time, ratio or verdict includes a pass with a failed call. This table shows how long the caller of such a pass waited, over all its calls, and the same for {}. The figures are medians of passes, without intervals. They are not makespans, because the work was not completed.",
        report.summary.baseline
    )));
    let rows = failing.iter().map(|found| {
        let calls = found.calls.iter();
        let calls: Vec<String> = calls.map(|(outcome, n)| format!("{outcome} {}", count(*n))).collect();
        let against = found.baseline_ns.filter(|base| *base > 0.0);
        vec![
            format!("{} {}", found.workload, found.state),
            found.arm.clone(),
            format!("{} of {}", found.passes, found.of_passes),
            calls.join(", "),
            format!("{:.1} %", found.share() * 100.0),
            time(found.waited_ns),
            against.map_or("–".to_owned(), time),
            against.map_or("–".to_owned(), |base| format!("×{:.0}", found.waited_ns / base)),
        ]
    });
    let head = columns(&format!(
        "workload | arm | passes | their timed calls | not ok | waited | {} | \
         ratio of the medians",
        report.summary.baseline
    ));
    parts.push(Table(head, rows.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::markdown::markdown;
    use crate::render::testing::parts;
    use figures::testing;
    use rundir::Probe;

    #[test]
    fn features_that_fail_are_named_with_their_arms() {
        let text = |outcome| {
            let mut run = testing::run();
            run.plan.features = ["links: hard link", "locks: flock"].map(str::to_owned).to_vec();
            let probe = |name, arm, outcome| Probe::new(CONFORMANCE, name, arm, outcome, "");
            run.probes = vec![
                probe("links: hard link", "direct", Outcome::Ok),
                probe("links: hard link", "sqlite", outcome),
                probe("locks: flock", "sqlite", Outcome::Skipped),
            ];
            markdown(&parts(&run, conformance))
        };
        let failing = text(Outcome::WrongData);
        assert!(
            failing.contains("2 features were tried on direct, sqlite; these fail: links: hard link (sqlite)."),
            "{failing}"
        );
        let fine = text(Outcome::Ok);
        assert!(fine.contains("2 features were tried on direct, sqlite; none fails."), "{fine}");
    }
}
