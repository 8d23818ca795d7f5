//! The picture of a use: a row for each candidate, with its gates in words, its benefits and its costs on one scale.
//!
//! Each figure is placed by what the policy asks for: 0 is the baseline, 1 to the right the highest cost that is
//! tolerated, 1 to the left the smallest benefit that is needed. So policies with other units have pictures of one shape.

use plotters::prelude::*;

use super::answers::arm_title;
use super::drawing::{
    Area, Chart, DrawError, Frame, INK, PANEL, Picture, SMALL, Side, TEXT, draw, fit, line, width, write, write_bold,
};
use super::marks::{Mark, Marks};
use figures::text::number_of;
use verdicts::decide::{Decision, Row, RowRole, RowState};

/// The most candidates of a picture; the page on the policy has the others.
const MOST_ROWS: usize = 3;
/// Pixels of a candidate's name, of a line of text under it, of a scale, and between two candidates.
const NAME: i32 = 18;
const LINE: i32 = 14;
const SCALE: i32 = 15;
const GAP: i32 = 10;
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
    let side = if row.role == RowRole::Benefit { -1.0 } else { 1.0 };
    let of = |figure: f64| {
        let share = (figure - zero) / whole;
        // Nothing is tolerated: what is worse is beyond the bound, and no distance says how much better something is.
        let share = match share.is_nan() {
            true => 0.0,
            false if whole == 0.0 && share > 0.0 => ENDS.1,
            false if whole == 0.0 => 0.0,
            false => share,
        };
        (side * share).clamp(ENDS.0, ENDS.1)
    };
    let ends = [of(effect.low), of(effect.high)];
    Some(Place { value: of(effect.value), low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) })
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
    let counted = |count: usize| number_of(count, "gate");
    match (failed, all - passed) {
        (0, 0) => format!("✓ {}", counted(all)),
        (0, open) => format!("? {}", counted(open)),
        (failed, _) => format!("✗ {}", counted(failed)),
    }
}

/// A row in words: its figure, and in one line or two whether it keeps its bound and its title.
struct RowText {
    figure: String,
    lines: Vec<String>,
}

/// Where the text of a row begins and ends.
const TEXT_LEFT: i32 = 19;
const TEXT_RIGHT: i32 = PANEL as i32 - 8;

impl RowText {
    fn of(row: &Row) -> Self {
        let sign = match row.state {
            RowState::Met | RowState::Conditional => "✓",
            RowState::Unmet | RowState::Failed => "✗",
            _ => "?",
        };
        // Without a figure the first words say why: "not offered", "no evidence".
        let figure = match row.value() {
            figure if figure.is_empty() => row.candidate.split(':').next().unwrap_or("").to_owned(),
            figure => figure,
        };
        let whole = TEXT_RIGHT - TEXT_LEFT;
        let figure = fit(&figure, whole * 2 / 3, SMALL);
        let room = whole - width(&figure, SMALL) - 8;
        // The figure stands beside the last line.
        let title = format!("{sign} {}", row.title);
        let lines = if width(&title, SMALL) <= room {
            vec![title]
        } else {
            match line_break(&title, whole, room) {
                Some(end) => vec![title[..end].to_owned(), fit(&title[end + 1..], room, SMALL)],
                None => vec![fit(&title, room, SMALL)],
            }
        };
        Self { figure, lines }
    }

    fn height(&self) -> i32 {
        LINE * self.lines.len() as i32
    }

    fn write(&self, area: &Area<'_>, y: i32) -> Result<(), DrawError> {
        let mut y = y + LINE / 2 + 2;
        for line in &self.lines {
            write(area, line, Side::Left, (TEXT_LEFT, y), SMALL)?;
            y += LINE;
        }
        write(area, &self.figure, Side::Right, (TEXT_RIGHT, y - LINE), SMALL)
    }
}

/// The blank at which a title is broken into two lines of so many pixels: of those that cut the second line least, the
/// one that leaves both lines most alike.
fn line_break(title: &str, first: i32, second: i32) -> Option<usize> {
    let ends = title.match_indices(' ').map(|(end, _)| {
        let widths = [&title[..end], &title[end + 1..]].map(|line| width(line, SMALL));
        ((widths[1] - second).max(0), (widths[0] - widths[1]).abs(), widths[0], end)
    });
    // A sign alone is no line.
    let ends = ends.filter(|(_, _, width, end)| *width <= first && *end > "✓".len());
    ends.min().map(|(.., end)| end)
}

/// The gate that failed, if one did.
fn failed_gate(decision: &Decision) -> Option<&Row> {
    let mut gates = decision.of_role(RowRole::Gate);
    gates.find(|row| matches!(row.state, RowState::Unmet | RowState::Failed))
}

/// The row of a role that says most: the cost that is furthest beyond its bound, and the benefit that is nearest to what
/// is needed, or the first without a figure.
fn telling(decision: &Decision, role: RowRole) -> Option<&Row> {
    let rows = || decision.of_role(role);
    let placed = rows().filter_map(|row| Some((place(row)?.value, row)));
    let found = match role {
        RowRole::Benefit => placed.min_by(|one, other| one.0.total_cmp(&other.0)),
        // Of equal places, the figure that is nearest to its bound.
        _ => placed.max_by(|one, other| {
            let figures = [one.1, other.1].map(|row| row.effect.map_or(0.0, |effect| effect.value / row.bound.value));
            one.0.total_cmp(&other.0).then(figures[0].total_cmp(&figures[1]))
        }),
    };
    let shown = rows().find(|row| role == RowRole::Benefit && is_shown(row));
    shown.or(found.map(|found| found.1)).or_else(|| rows().next())
}

/// Whether a benefit is shown, under a condition or not.
fn is_shown(row: &Row) -> bool {
    matches!(row.state, RowState::Met | RowState::Conditional)
}

/// The benefits of a candidate in a few words. More may be shown than are needed.
fn benefits(decision: &Decision) -> String {
    let shown = decision.of_role(RowRole::Benefit).filter(|row| is_shown(row)).count();
    match (shown, decision.benefits_needed) {
        (shown, needed) if shown <= needed => format!("{shown} of {}", number_of(needed, "benefit")),
        (shown, needed) => format!("{}, {needed} needed", number_of(shown, "benefit")),
    }
}

/// Draws a panel for each use, in order.
pub(super) fn use_pictures(uses: &[Vec<&Decision>], marks: &Marks) -> Result<Picture, DrawError> {
    let panels: Result<Vec<Chart>, DrawError> = uses.iter().map(|candidates| panel(candidates, marks)).collect();
    panels.map(Picture)
}

/// The pixels that a candidate takes.
fn height(decision: &Decision) -> i32 {
    let roles = [RowRole::Benefit, RowRole::Cost].into_iter();
    let scales = roles.filter_map(|role| telling(decision, role));
    let scales: i32 = scales.map(|row| RowText::of(row).height() + SCALE).sum();
    let gate = failed_gate(decision).map_or(0, |row| RowText::of(row).height());
    NAME + heading_below(decision) + gate + scales + GAP
}

/// The pixels of the line below a long name, with its gates and benefits; 0 if they fit beside it.
fn heading_below(decision: &Decision) -> i32 {
    let heading = format!("{}, {}", gates(decision), benefits(decision));
    // Bold letters are wider.
    let name = width(arm_title(&decision.candidate), TEXT) * 10 / 9;
    if 19 + name + 12 + width(&heading, SMALL) > PANEL as i32 - 4 { LINE } else { 0 }
}

fn panel(candidates: &[&Decision], marks: &Marks) -> Result<Chart, DrawError> {
    let shown = &candidates[..candidates.len().min(MOST_ROWS)];
    let left_out = candidates.len() - shown.len();
    let bottom = shown.iter().map(|decision| height(decision)).sum();
    let frame = Frame { left: 19, top: 0, right: PANEL as i32 - 8, bottom };
    let x = |figure: f64| frame.x((figure - ENDS.0) / (ENDS.1 - ENDS.0));
    draw((PANEL, (bottom + if left_out > 0 { 50 } else { 36 }) as u32), |area| {
        let mut top = 0;
        for decision in shown {
            candidate(area, decision, marks.get(&decision.candidate), top, x)?;
            top += height(decision);
        }
        for (bound, words) in [(-1.0, "needed"), (1.0, "tolerated")] {
            write(area, words, Side::Middle, (x(bound), bottom + 10), SMALL)?;
        }
        // Rows of one picture can have other baselines than its policy.
        write(area, "today", Side::Middle, (x(0.0), bottom + 26), SMALL)?;
        if left_out > 0 {
            let words = format!("{left_out} more under Why");
            write(area, &words, Side::Left, (4, bottom + 42), SMALL)?;
        }
        Ok(())
    })
}

/// Draws a candidate: its name and gates, then for its benefits and for its costs the row that says most in words, above
/// the scale with its figure.
fn candidate(
    area: &Area<'_>,
    decision: &Decision,
    mark: Mark,
    top: i32,
    x: impl Fn(f64) -> i32,
) -> Result<(), DrawError> {
    let right = PANEL as i32 - 4;
    let heading = format!("{}, {}", gates(decision), benefits(decision));
    mark.draw(area, (9, top + 11))?;
    let name = fit(arm_title(&decision.candidate), (right - 24) * 9 / 10, TEXT);
    write_bold(area, &name, Side::Left, (19, top + 11), TEXT)?;
    let more = heading_below(decision);
    write(area, &fit(&heading, right - 24, SMALL), Side::Right, (right, top + 11 + more), SMALL)?;
    let mut y = top + NAME + more;
    if let Some(row) = failed_gate(decision) {
        let text = RowText::of(row);
        text.write(area, y)?;
        y += text.height();
    }
    for role in [RowRole::Benefit, RowRole::Cost] {
        let Some(first) = telling(decision, role) else {
            continue;
        };
        let text = RowText::of(first);
        text.write(area, y)?;
        y += text.height();
        let (above, below, middle) = (y + 4, y + SCALE, y + SCALE / 2 + 2);
        // What is tolerated, the baseline, and the other bound.
        if role == RowRole::Cost {
            let tolerated = [(x(0.0), above), (x(1.0), below)];
            area.draw(&Rectangle::new(tolerated, INK.mix(0.09).filled()))?;
        }
        let bound = if role == RowRole::Cost { 1.0 } else { -1.0 };
        line(area, [(x(0.0), above - 1), (x(0.0), below + 1)], INK.mix(0.8))?;
        line(area, [(x(bound), above), (x(bound), below)], INK.mix(0.3))?;
        line(area, [(x(ENDS.0), middle), (x(ENDS.1), middle)], INK.mix(0.13))?;
        if let Some(found) = place(first) {
            let ends = [(x(found.low), middle), (x(found.high), middle)];
            if ends[0] != ends[1] {
                line(area, ends, mark.colour.mix(0.7).stroke_width(2))?;
            }
            mark.draw(area, (x(found.value), middle))?;
        }
        y += SCALE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_lies_between_the_baseline_and_its_bound() {
        let decisions = verdicts::testing::decisions();
        let mut rows = decisions.iter().flat_map(|decision| &decision.rows);
        let row = rows.find(|row| row.role == RowRole::Cost && row.effect.is_some()).unwrap();
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
        // A saving where no ratio above 1 is tolerated is not drawn as a large one.
        assert_eq!(with(RowRole::Cost, "ratio", 0.926, true, 1.0).value, 0.0);
    }

    #[test]
    fn a_picture_names_the_arms_that_a_reader_chooses_and_counts_benefits() {
        let mut decision = verdicts::testing::decisions().into_iter().find(|one| one.policy == "coding-agent").unwrap();
        decision.candidate = "s3-embedded".to_owned();
        let marks = Marks::of_names(["s3-embedded"].into_iter());
        let drawn = use_pictures(&[vec![&decision]], &marks).unwrap().for_page();
        let needed = format!("of {}", number_of(decision.benefits_needed, "benefit"));
        for text in ["s3<", "today", needed.as_str()] {
            assert!(drawn.contains(text), "{text} is not in {drawn}");
        }
        assert!(!drawn.contains("embedded"), "{drawn}");
    }

    #[test]
    fn a_long_title_has_two_lines_of_like_length() {
        let title = "✗ Time of git clone, git add of all files and rm -rf";
        let end = line_break(title, 301, 220).unwrap();
        assert_eq!((&title[..end], &title[end + 1..]), ("✗ Time of git clone, git", "add of all files and rm -rf"));
        assert_eq!(line_break("✓ Tokens", 301, 20), None);
    }

    #[test]
    fn every_policy_has_a_picture_with_its_gates_in_words() {
        let decisions = verdicts::testing::decisions();
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
