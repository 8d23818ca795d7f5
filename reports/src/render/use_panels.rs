//! The picture of a use: a row for each candidate, with its gates in words, its benefits and its costs on one scale.
//!
//! Each figure is placed by what the policy asks for: 0 is the baseline, 1 to the right the highest cost that is
//! tolerated, 1 to the left the smallest benefit that is needed. So policies with other units have pictures of one shape.

use plotters::prelude::*;

use super::drawing::{
    Area, Chart, DrawError, Frame, INK, PANEL, Picture, SMALL, Side, TEXT, draw, fit, line, width,
    write, write_bold,
};
use super::marks::{Mark, Marks};
use crate::decide::{Decision, Row, RowRole, RowState};

/// The most candidates of a picture; the page on the policy has the others.
const MOST_ROWS: usize = 4;
/// Pixels of a candidate's row, and of its text above the scale.
const ROW: i32 = 68;
const TEXTS: i32 = 36;
/// Pixels of benefits above and of costs below the middle of the scale.
const APART: i32 = 7;
/// The ends of the scale; figures beyond them are drawn at the end.
const ENDS: (f64, f64) = (-2.0, 2.0);

/// A figure of a row as the picture places it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    value: f64,
    low: f64,
    high: f64,
}

/// Where a row's figure lies between the baseline at 0 and its bound at 1; benefits lie to the left.
fn place(row: &Row) -> Option<Place> {
    let effect = row.effect?;
    // An equal figure is a ratio of 1, and a difference or an amount of 0.
    let zero = if row.bound.unit == "ratio" { 1.0 } else { 0.0 };
    let whole = row.bound.value - zero;
    let side = if row.role == RowRole::Benefit {
        -1.0
    } else {
        1.0
    };
    let of = |figure: f64| {
        let share = (figure - zero) / whole;
        // Nothing is tolerated: whatever is above it is beyond the bound.
        let share = match share.is_nan() {
            true => 0.0,
            false if whole == 0.0 => share.signum() * ENDS.1,
            false => share,
        };
        (side * share).clamp(ENDS.0, ENDS.1)
    };
    let ends = [of(effect.low), of(effect.high)];
    Some(Place {
        value: of(effect.value),
        low: ends[0].min(ends[1]),
        high: ends[0].max(ends[1]),
    })
}

/// The gates of a candidate in a few words, and whether all are passed.
fn gates(decision: &Decision) -> String {
    let all = decision.of_role(RowRole::Gate).count();
    let count = |wanted: fn(RowState) -> bool| {
        let gates = decision.of_role(RowRole::Gate);
        gates.filter(|row| wanted(row.state)).count()
    };
    let failed = count(|state| matches!(state, RowState::Unmet | RowState::Failed));
    let passed = count(|state| state == RowState::Met);
    let counted = |count: usize, word: &str| match count {
        1 => format!("1 {word}gate"),
        count => format!("{count} {word}gates"),
    };
    match (failed, all - passed) {
        (0, 0) => "✓ gates".to_owned(),
        (0, open) => counted(open, "open "),
        (failed, _) => format!("✗ {}", counted(failed, "")),
    }
}

/// The row that says most: the cost that is furthest above its limit, else a shown benefit.
fn headline(decision: &Decision) -> Option<String> {
    let worst = decision
        .of_role(RowRole::Cost)
        .filter(|row| row.state == RowState::Unmet);
    let worst = worst.filter_map(|row| Some((place(row)?.value, row)));
    let worst = worst
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|found| found.1);
    let failed = decision
        .of_role(RowRole::Gate)
        .find(|row| matches!(row.state, RowState::Unmet | RowState::Failed));
    let shown = decision
        .of_role(RowRole::Benefit)
        .find(|row| row.state == RowState::Met);
    if let Some(row) = failed {
        return Some(format!("✗ {}: {}", row.title, row.candidate));
    }
    if let Some(row) = worst {
        return Some(format!("✗ {}: {}", row.title, row.figure()));
    }
    shown.map(|row| format!("✓ {}: {}", row.title, row.figure()))
}

/// The benefits of a candidate in a few words.
fn benefits(decision: &Decision) -> String {
    let shown = decision
        .of_role(RowRole::Benefit)
        .filter(|row| row.state == RowState::Met);
    format!("{} of {} benefits", shown.count(), decision.benefits_needed)
}

/// Draws a panel for each use, in order.
pub(super) fn use_pictures(uses: &[Vec<&Decision>], marks: &Marks) -> Result<Picture, DrawError> {
    let panels: Result<Vec<Chart>, DrawError> = uses
        .iter()
        .map(|candidates| panel(candidates, marks))
        .collect();
    panels.map(Picture)
}

fn panel(candidates: &[&Decision], marks: &Marks) -> Result<Chart, DrawError> {
    let shown = &candidates[..candidates.len().min(MOST_ROWS)];
    let left_out = candidates.len() - shown.len();
    let bottom = ROW * shown.len() as i32;
    let frame = Frame {
        left: 62,
        top: 0,
        right: PANEL as i32 - 8,
        bottom,
    };
    let x = |figure: f64| frame.x((figure - ENDS.0) / (ENDS.1 - ENDS.0));
    let baseline = shown
        .first()
        .map_or("", |decision| decision.baseline.as_str());
    draw(
        (PANEL, (bottom + if left_out > 0 { 50 } else { 36 }) as u32),
        |area| {
            for (at, decision) in shown.iter().enumerate() {
                let top = ROW * at as i32;
                candidate(area, decision, marks.get(&decision.candidate), top, x)?;
            }
            for (bound, words) in [(-1.0, "benefit needed"), (1.0, "cost tolerated")] {
                write(area, words, Side::Middle, (x(bound), bottom + 10), SMALL)?;
            }
            let middle = fit(&format!("as {baseline}"), 130, SMALL);
            write(area, &middle, Side::Middle, (x(0.0), bottom + 26), SMALL)?;
            write(area, "← better", Side::Left, (4, bottom + 26), SMALL)?;
            write(
                area,
                "worse →",
                Side::Right,
                (PANEL as i32 - 4, bottom + 26),
                SMALL,
            )?;
            if left_out > 0 {
                let words = format!("{left_out} more under Why");
                write(area, &words, Side::Left, (4, bottom + 42), SMALL)?;
            }
            Ok(())
        },
    )
}

/// Draws the row of a candidate: its name, gates and benefits in words, and its figures on the scale.
fn candidate(
    area: &Area<'_>,
    decision: &Decision,
    mark: Mark,
    top: i32,
    x: impl Fn(f64) -> i32,
) -> Result<(), DrawError> {
    let right = PANEL as i32 - 4;
    let words = format!("{} · {}", gates(decision), benefits(decision));
    mark.draw(area, (9, top + 11))?;
    let room = right - width(&words, SMALL) - 34;
    let name = fit(&decision.candidate, room.max(60) * 9 / 10, TEXT);
    write_bold(area, &name, Side::Left, (19, top + 11), TEXT)?;
    let words = fit(&words, right - 30 - width(&name, TEXT) * 10 / 9, SMALL);
    write(area, &words, Side::Right, (right, top + 11), SMALL)?;
    if let Some(words) = headline(decision) {
        let words = fit(&words, right - 19, SMALL);
        write(area, &words, Side::Left, (19, top + 27), SMALL)?;
    }
    let (above, below) = (top + TEXTS, top + ROW - 5);
    // What is tolerated, and the baseline.
    let tolerated = [(x(0.0), above), (x(1.0), below)];
    area.draw(&Rectangle::new(tolerated, INK.mix(0.09).filled()))?;
    line(
        area,
        [(x(0.0), above - 2), (x(0.0), below + 2)],
        INK.mix(0.8),
    )?;
    for bound in [-1.0, 1.0] {
        line(area, [(x(bound), above), (x(bound), below)], INK.mix(0.3))?;
    }
    let middle = i32::midpoint(above, below);
    line(
        area,
        [(x(ENDS.0), middle), (x(ENDS.1), middle)],
        INK.mix(0.13),
    )?;
    let has = |role| decision.of_role(role).any(|row| place(row).is_some());
    for (role, words, y) in [
        (RowRole::Benefit, "benefits", middle - APART),
        (RowRole::Cost, "costs", middle + APART),
    ] {
        if has(role) {
            write(area, words, Side::Right, (x(ENDS.0) - 8, y), SMALL)?;
        }
    }
    for row in &decision.rows {
        let Some(found) = place(row).filter(|_| row.role != RowRole::Gate) else {
            continue;
        };
        // Benefits above the middle, costs below it.
        let y = match row.role {
            RowRole::Benefit => middle - APART,
            _ => middle + APART,
        };
        let ends = [(x(found.low), y), (x(found.high), y)];
        line(area, ends, mark.colour.mix(0.7).stroke_width(2))?;
        mark.draw(area, (x(found.value), y))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_figure_lies_between_the_baseline_and_its_bound() {
        let decisions = testing::decisions();
        let mut rows = decisions.iter().flat_map(|decision| &decision.rows);
        let row = rows
            .find(|row| row.role == RowRole::Cost && row.effect.is_some())
            .unwrap();
        let with = |role, unit: &str, value: f64, is_most, bound: f64| {
            let mut row = row.clone();
            row.role = role;
            row.bound.unit = unit.to_owned();
            (row.bound.is_most, row.bound.value) = (is_most, bound);
            let effect = row.effect.as_mut().unwrap();
            (effect.value, effect.low, effect.high) = (value, value, f64::INFINITY);
            place(&row).unwrap()
        };
        // Twice as slow where three times is tolerated: half way.
        assert_eq!(with(RowRole::Cost, "ratio", 2.0, true, 3.0).value, 0.5);
        // A quarter of the tokens where half is enough: past the needed benefit.
        let benefit = with(RowRole::Benefit, "ratio", 0.25, true, 0.5);
        assert_eq!(benefit.value, -1.5);
        assert_eq!((benefit.low, benefit.high), (-1.5, 2.0));
        // One step more where none is tolerated is beyond the bound.
        assert_eq!(with(RowRole::Cost, "steps more", 1.0, true, 0.0).value, 2.0);
        assert_eq!(with(RowRole::Cost, "steps more", 0.0, true, 0.0).value, 0.0);
    }

    #[test]
    fn every_policy_has_a_picture_with_its_gates_in_words() {
        let decisions = testing::decisions();
        let marks = Marks::of_names(decisions.iter().map(|decision| decision.candidate.as_str()));
        let uses: Vec<Vec<&Decision>> = decisions.iter().map(|decision| vec![decision]).collect();
        let picture = use_pictures(&uses, &marks).unwrap();
        assert_eq!(picture.0.len(), decisions.len());
        for panel in &picture.0 {
            let drawn = panel.for_page();
            assert!(drawn.contains("gate"), "{drawn}");
        }
    }
}
