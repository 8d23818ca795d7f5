//! The chart of cost against benefit: a panel for each policy, a point for each candidate.

use plotters::prelude::*;

use super::drawing::{Area, Chart, DrawError, INK, colour, draw, line, write};
use crate::decide::{Decision, Row, RowRole, RowState};

/// Pixels of a panel.
const PANEL: (u32, u32) = (450, 230);
/// Pixels beside the plot of a panel: top, bottom, left, right.
const MARGINS: (i32, i32, i32, i32) = (28, 38, 46, 16);
/// The ends of both axes; figures beyond them are drawn at the end.
const ENDS: (f64, f64) = (0.01, 100.0);
const TICKS: [f64; 5] = [0.01, 0.1, 1.0, 10.0, 100.0];

/// A candidate: its benefit over what is needed, and its cost over what is tolerated.
struct Point<'a> {
    name: &'a str,
    benefit: f64,
    cost: f64,
    /// Whether a gate fails.
    is_barred: bool,
    /// Whether some evidence is missing.
    is_partial: bool,
}

/// A row's figure over its bound: at least 1 if a benefit is shown, at most 1 if a cost is inside its margin.
fn over_bound(row: &Row) -> Option<f64> {
    let value = row.effect?.value;
    let (value, bound) = (value.max(0.0), row.bound.value.max(0.0));
    let share = match (row.role, row.bound.is_most) {
        // A benefit such as "at most 0.8 of the tokens" is larger the smaller its figure is.
        (RowRole::Benefit, true) => bound / value,
        _ => value / bound,
    };
    // 0 over 0: the figure is exactly what is asked for.
    Some(if share.is_nan() { 1.0 } else { share })
}

fn point(decision: &Decision) -> Option<Point<'_>> {
    let benefits = decision.of_role(RowRole::Benefit).filter_map(over_bound);
    let mut benefits: Vec<f64> = benefits.collect();
    benefits.sort_by(|one, other| other.total_cmp(one));
    let costs = decision.of_role(RowRole::Cost).filter_map(over_bound);
    let in_state = |state| decision.rows.iter().any(|row| row.state == state);
    let mut gates = decision.of_role(RowRole::Gate);
    Some(Point {
        name: &decision.candidate,
        // The weakest of the needed benefits: if it is shown, all of them are.
        benefit: *benefits.get(decision.benefits_needed.saturating_sub(1))?,
        cost: costs.reduce(f64::max)?,
        is_barred: gates.any(|row| matches!(row.state, RowState::Unmet | RowState::Failed)),
        is_partial: in_state(RowState::Missing) || in_state(RowState::Void),
    })
}

/// Draws the panels; `None` without a figure.
pub(super) fn trade_offs(decisions: &[Decision]) -> Result<Option<Chart>, DrawError> {
    let mut panels: Vec<(&str, Vec<Point<'_>>)> = Vec::new();
    for decision in decisions {
        let Some(point) = point(decision) else {
            continue;
        };
        match panels.iter_mut().find(|panel| panel.0 == decision.policy) {
            Some(panel) => panel.1.push(point),
            None => panels.push((&decision.policy, vec![point])),
        }
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let mut candidates: Vec<&str> = Vec::new();
    for point in panels.iter().flat_map(|panel| &panel.1) {
        if !candidates.contains(&point.name) {
            candidates.push(point.name);
        }
    }
    let rows = panels.len().div_ceil(2) as u32;
    let chart = draw((2 * PANEL.0, rows * PANEL.1), |area| {
        let areas = area.split_evenly((rows as usize, 2));
        let mut panels = panels.iter().zip(&areas);
        panels.try_for_each(|((policy, points), area)| panel(policy, points, &candidates, area))
    })?;
    let links = panels.iter();
    let links = links.map(|(policy, _)| ((*policy).to_owned(), format!("policy-{policy}")));
    Ok(Some(chart.with_links(links.collect())))
}

fn panel(
    policy: &str,
    points: &[Point<'_>],
    candidates: &[&str],
    area: &Area<'_>,
) -> Result<(), DrawError> {
    let (top, bottom, left, right) = MARGINS;
    let (width, height) = (PANEL.0 as i32 - left - right, PANEL.1 as i32 - top - bottom);
    let share = |value: f64| (value.clamp(ENDS.0, ENDS.1) / ENDS.0).ln() / (ENDS.1 / ENDS.0).ln();
    let x = |cost: f64| left + (share(cost) * f64::from(width)) as i32;
    let y = |benefit: f64| top + ((1.0 - share(benefit)) * f64::from(height)) as i32;
    // Inside every margin, with the benefits that are needed.
    let adopted = [(left, top), (x(1.0), y(1.0))];
    area.draw(&Rectangle::new(adopted, INK.mix(0.07).filled()))?;
    write(area, policy, (12, 6), 14)?;
    for tick in TICKS {
        let style = INK.mix(if tick == 1.0 { 0.6 } else { 0.12 });
        let (across, up) = (x(tick), y(tick));
        line(area, [(across, top), (across, top + height)], style)?;
        line(area, [(left, up), (left + width, up)], style)?;
        let label = format!("×{tick}");
        write(area, label.as_str(), (across - 10, top + height + 4), 12)?;
        write(area, label, (6, up - 6), 12)?;
    }
    let below = (left, top + height + 21);
    let words = "cost over its margin, the worst; upwards: benefit over what is needed";
    write(area, words, below, 12)?;
    let mut order: Vec<&Point<'_>> = points.iter().collect();
    order.sort_by(|one, other| other.benefit.total_cmp(&one.benefit));
    let places: Vec<(i32, i32)> = order
        .iter()
        .map(|point| (x(point.cost), y(point.benefit)))
        .collect();
    let mut labels: Vec<i32> = Vec::new();
    for (point, at) in order.into_iter().zip(&places) {
        let number = candidates.iter().position(|name| *name == point.name);
        let colour = colour(number.unwrap_or(0));
        match (point.is_barred, point.is_partial) {
            (true, _) => area.draw(&Cross::new(*at, 5, colour.stroke_width(2)))?,
            (false, true) => area.draw(&Circle::new(*at, 5, colour.stroke_width(2)))?,
            (false, false) => area.draw(&Circle::new(*at, 5, colour.filled()))?,
        }
        // Labels of candidates with the same figures stand below each other, clear of the points beside them.
        let mut down = at.1 - 6;
        while labels.iter().any(|other| (other - down).abs() < 14) {
            down += 14;
        }
        labels.push(down);
        let beside = places.iter().filter(|place| (place.1 - at.1).abs() < 14);
        let beside = beside
            .filter(|place| (place.0 - at.0).abs() < 60)
            .map(|place| place.0);
        let is_left = at.0 > left + width * 2 / 3;
        let label_at = match is_left {
            true => beside.min().unwrap_or(at.0) - 10 - 7 * point.name.chars().count() as i32,
            false => beside.max().unwrap_or(at.0) + 10,
        };
        write(area, point.name, (label_at, down), 13)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rundir::faults::{Audit, CrashPoints, Status};

    use super::*;
    use crate::testing;

    #[test]
    fn a_candidate_lies_where_its_rows_put_it() {
        let mut run = testing::run();
        for (backend, present) in [("direct", 5), ("sqlite", 10)] {
            let audit = Audit {
                present,
                unpromised: 10 - present,
                ..Audit::default()
            };
            run.crash_points.push(CrashPoints {
                audit,
                ..CrashPoints::not_run(backend, "power-loss", Status::Ran, "")
            });
        }
        let decisions = testing::decisions_on(&run);
        let mut placed = decisions
            .iter()
            .filter_map(|decision| Some((decision, point(decision)?)));
        let (decision, point) = placed.next().unwrap();
        let is_above = decision
            .of_role(RowRole::Cost)
            .any(|row| row.state == RowState::Unmet);
        assert_eq!(point.cost > 1.0, is_above, "{}", point.cost);
        let shown = decision.of_role(RowRole::Benefit);
        let shown = shown.filter(|row| row.state == RowState::Met).count();
        let is_shown = shown >= decision.benefits_needed;
        assert_eq!(point.benefit >= 1.0, is_shown, "{}", point.benefit);
        let drawn = trade_offs(&decisions).unwrap().unwrap().for_page();
        assert!(
            drawn.contains(&format!("#policy-{}", decision.policy)),
            "{drawn}"
        );
        assert!(trade_offs(&[]).unwrap().is_none());
    }
}
