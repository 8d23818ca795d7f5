//! The pictures of failures and losses: the share of attempts that worked, with a row for each arm.

use std::collections::BTreeMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use rundir::Outcome;

use super::drawing::{
    Chart, DrawError, PANEL, Picture, SMALL, Side, TEXT, TITLE, draw, fit, text_style, two_lines, width, write,
    write_bold, write_styled,
};
use super::marks::Marks;
use super::report::Report;
use figures::conformance::CONFORMANCE;
use figures::text::count;

// Fills of cells, with dark text on each.
const ALL: RGBColor = RGBColor(122, 200, 175);
const SOME: RGBColor = RGBColor(245, 200, 110);
const NONE: RGBColor = RGBColor(240, 150, 110);
const DARK: RGBColor = RGBColor(20, 20, 20);

/// Pixels of a row, and of the names of arms.
const ROW: i32 = 20;
const NAMES: i32 = 118;
/// Pixels of a column, by the number of columns.
fn column_width(columns: usize) -> i32 {
    match columns {
        0..=2 => 100,
        _ => 68,
    }
}
/// Columns of a panel.
const ACROSS: usize = 3;
/// Arms of a panel; the tables have the others.
const MOST_ROWS: usize = 24;

/// By column and arm: the number of successes, and of attempts.
type AttemptCounts = BTreeMap<String, BTreeMap<String, (u64, u64)>>;

/// A group of columns, with the anchor of its table.
struct Group {
    title: &'static str,
    anchor: &'static str,
    tried: AttemptCounts,
}

impl Group {
    fn new(title: &'static str, anchor: &'static str) -> Self {
        Self { title, anchor, tried: AttemptCounts::new() }
    }

    fn add(&mut self, column: &str, arm: &str, worked: u64, all: u64) {
        let of_arms = self.tried.entry(column.to_owned()).or_default();
        let counts = of_arms.entry(arm.to_owned()).or_default();
        counts.0 += worked;
        counts.1 += all;
    }

    /// Makes one column of those in which everything worked.
    fn join_whole(&mut self) {
        let is_whole = |column: &BTreeMap<String, (u64, u64)>| column.values().all(|(worked, all)| worked == all);
        let (whole, mut broken): (AttemptCounts, AttemptCounts) =
            std::mem::take(&mut self.tried).into_iter().partition(|column| is_whole(&column.1));
        let title = match broken.len() {
            0 => "all groups",
            _ => "the others",
        };
        for (arm, (worked, all)) in whole.into_values().flatten() {
            let counts = broken.entry(title.to_owned()).or_default().entry(arm).or_default();
            counts.0 += worked;
            counts.1 += all;
        }
        self.tried = broken;
    }

    fn note(&mut self, column: &str, arm: &str, outcome: Outcome) {
        if !matches!(outcome, Outcome::Skipped | Outcome::Infra) {
            self.add(column, arm, u64::from(outcome == Outcome::Ok), 1);
        }
    }
}

/// Draws the panels; `None` if the run tried nothing.
pub(super) fn failures(report: &Report<'_>, marks: &Marks) -> Result<Option<Picture>, DrawError> {
    let groups = groups(report);
    let mut panels = Vec::new();
    for group in &groups {
        let tried: Vec<_> = group.tried.iter().collect();
        for columns in tried.chunks(ACROSS) {
            panels.push(panel(report, marks, group, columns)?);
        }
    }
    Ok(Some(Picture(panels)).filter(|picture| !picture.0.is_empty()))
}

fn groups(report: &Report<'_>) -> [Group; 4] {
    let run = report.run;
    let mut passes = Group::new("Passes that ended well", "how-calls-ended");
    let mut tools = Group::new("Tools that work, facts in sight", "tools-and-killed-daemons");
    let mut features = Group::new("Features that behave as on Linux", "conformance");
    let mut kills = Group::new("After a kill of the daemon", "tools-and-killed-daemons");
    for sample in &run.samples {
        let family = sample.workload.split('/').next().unwrap_or_default();
        passes.note(family, &sample.arm, sample.outcome);
    }
    for probe in &run.probes {
        match probe.aspect.as_str() {
            CONFORMANCE => {
                let group = probe.name.split(':').next().unwrap_or_default();
                features.note(group, &probe.arm, probe.outcome);
            }
            "visible" => tools.note("facts", &probe.arm, probe.outcome),
            _ => tools.note("tools", &probe.arm, probe.outcome),
        }
    }
    for fault in &run.faults {
        if !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped) {
            let kept = fault.acknowledged.saturating_sub(fault.lost);
            kills.add("records kept", &fault.arm, kept, fault.acknowledged);
            let is_clean = u64::from(fault.failed_calls == 0);
            kills.add("no failed call", &fault.arm, is_clean, 1);
        }
    }
    features.join_whole();
    [passes, tools, features, kills]
}

/// The results of arms in a column, with its title.
type Column<'a> = (&'a String, &'a BTreeMap<String, (u64, u64)>);

fn panel(report: &Report<'_>, marks: &Marks, group: &Group, columns: &[Column<'_>]) -> Result<Chart, DrawError> {
    const TOP: i32 = 44;
    let column = column_width(columns.len());
    let mut arms = report.arms();
    arms.retain(|arm| columns.iter().any(|column| column.1.contains_key(*arm)));
    arms.truncate(MOST_ROWS);
    // A name that is wider than its column is above the cells of its arm.
    let is_long = |arm: &str| width(arm, TEXT) > NAMES - 22;
    let long = arms.iter().filter(|arm| is_long(arm)).count();
    let height = TOP + ROW * (arms.len() + long) as i32 + 8;
    let chart = draw((PANEL, height as u32), |area| {
        write_bold(area, group.title, Side::Left, (2, 9), TITLE)?;
        for (at, (title, _)) in columns.iter().enumerate() {
            let left = NAMES + column * at as i32;
            let lines = two_lines(title, column - 4, SMALL);
            for (y, part) in (0..).map(|at| TOP - 8 - 12 * at).zip(lines.iter().rev()) {
                write(area, part, Side::Left, (left + 2, y), SMALL)?;
            }
        }
        let mut top = TOP;
        for arm in &arms {
            marks.get(arm).draw(area, (8, top + ROW / 2))?;
            let name = fit(arm, PANEL as i32 - 22, TEXT);
            write(area, &name, Side::Left, (18, top + ROW / 2), TEXT)?;
            top += if is_long(arm) { ROW } else { 0 };
            let middle = top + ROW / 2;
            for (at, (_, of_arms)) in columns.iter().enumerate() {
                let Some((worked, all)) = of_arms.get(*arm) else {
                    continue;
                };
                let left = NAMES + column * at as i32;
                let (colour, sign) = match *worked {
                    worked if worked == *all => (ALL, "✓"),
                    0 => (NONE, "✗"),
                    _ => (SOME, "✗"),
                };
                let corners = [(left, top + 1), (left + column - 2, top + ROW - 1)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                let words = if worked == all {
                    format!("{sign} {}", count(*all))
                } else {
                    format!("{sign} {} of {}", count(*worked), count(*all))
                };
                let words = fit(&words, column - 8, SMALL);
                // The text is on the cell's colour, so a dark page does not change it.
                let style = text_style(SMALL).color(&DARK).pos(LEFT);
                write_styled(area, &words, (left + 4, middle), style)?;
            }
            top += ROW;
        }
        Ok(())
    })?;
    Ok(chart.with_links(vec![(group.title.to_owned(), group.anchor.to_owned())]))
}

const LEFT: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };
