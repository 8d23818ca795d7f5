//! The heat map of failures in a run with passes: what was tried on each arm, and how much of it worked.

use std::collections::BTreeMap;

use plotters::prelude::RGBColor;
use rundir::Outcome;

use super::drawing::{Chart, DrawError};
use super::heat::{HeatCell, HeatRow, heat_table};
use super::report::Report;
use crate::conformance::CONFORMANCE;
use crate::text::count;

const ALL: RGBColor = RGBColor(0, 158, 115);
const SOME: RGBColor = RGBColor(230, 159, 0);
const NONE: RGBColor = RGBColor(226, 112, 40);

/// By row and arm: the number of successes, and of attempts.
type Tried = BTreeMap<String, BTreeMap<String, (u64, u64)>>;

fn note(tried: &mut Tried, row: &str, arm: &str, outcome: Outcome) {
    if !matches!(outcome, Outcome::Skipped | Outcome::Infra) {
        let of_arms = tried.entry(row.to_owned()).or_default();
        let counts = of_arms.entry(arm.to_owned()).or_default();
        counts.0 += u64::from(outcome == Outcome::Ok);
        counts.1 += 1;
    }
}

/// Draws the map; `None` if the run tried nothing.
pub(super) fn failures(report: &Report<'_>) -> Result<Option<Chart>, DrawError> {
    let run = report.run;
    let mut tried: [(&str, &str, Tried); 4] = [
        ("Passes", "how-calls-ended", Tried::new()),
        (
            "Tools, and facts in sight",
            "tools-visibility-cron",
            Tried::new(),
        ),
        ("Features", "conformance", Tried::new()),
        ("Killed daemons", "tools-visibility-cron", Tried::new()),
    ];
    for sample in &run.samples {
        let kind = sample.workload.split('/').next().unwrap_or_default();
        note(
            &mut tried[0].2,
            &format!("passes of {kind}/…"),
            &sample.arm,
            sample.outcome,
        );
    }
    for probe in &run.probes {
        match probe.aspect.as_str() {
            CONFORMANCE => {
                let group = probe.name.split(':').next().unwrap_or_default();
                note(&mut tried[2].2, group, &probe.arm, probe.outcome);
            }
            aspect => {
                let row = if aspect == "visible" {
                    "facts in sight"
                } else {
                    "tools"
                };
                note(&mut tried[1].2, row, &probe.arm, probe.outcome);
            }
        }
    }
    for fault in &run.faults {
        let keeps = match (fault.outcome, fault.lost) {
            (Outcome::Infra | Outcome::Skipped, _) => Outcome::Skipped,
            (_, 0) => Outcome::Ok,
            _ => Outcome::WrongData,
        };
        note(&mut tried[3].2, "keeps every record", &fault.arm, keeps);
        let answers = match (keeps, fault.failed_calls) {
            (Outcome::Skipped, _) => Outcome::Skipped,
            (_, 0) => Outcome::Ok,
            _ => Outcome::Errno,
        };
        note(&mut tried[3].2, "no failed call", &fault.arm, answers);
    }
    let rows = || tried.iter().flat_map(|section| section.2.values());
    let mut arms = report.arms();
    arms.retain(|arm| rows().any(|row| row.contains_key(*arm)));
    let mut rows = Vec::new();
    let mut links = Vec::new();
    for (heading, anchor, results) in &tried {
        if results.is_empty() {
            continue;
        }
        rows.push(HeatRow::Heading((*heading).to_owned()));
        links.push(((*heading).to_owned(), (*anchor).to_owned()));
        for (name, of_arms) in results {
            let cells = arms.iter().map(|arm| {
                let (worked, all) = *of_arms.get(*arm)?;
                Some(HeatCell {
                    text: format!("{} of {}", count(worked), count(all)),
                    colour: match worked {
                        0 => NONE,
                        worked if worked == all => ALL,
                        _ => SOME,
                    },
                    is_dark: false,
                })
            });
            rows.push(HeatRow::Cells(name.clone(), cells.collect()));
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let legend = [
        ("all worked", ALL),
        ("some failed", SOME),
        ("all failed", NONE),
    ];
    Ok(Some(heat_table(&arms, &rows, &legend)?.with_links(links)))
}
