//! The picture of ratios: a panel for each operation, a row for each arm, the baseline as a line at 1.

use plotters::prelude::*;

use super::axis::LogAxis;
use super::drawing::{
    Chart, DrawError, Frame, INK, MOST_PANELS, PANEL, Picture, SMALL, Side, TEXT, TITLE, draw, fit, line, two_lines,
    width, write, write_bold,
};
use super::marks::Mark;
use crate::answer::half_words;

const ROW: i32 = 17;
/// Pixels of a line of the title.
const LINE: i32 = 15;
/// Pixels of the names of arms, with their marks.
const NAMES: i32 = 118;
/// Pixels above the rows and below them.
const TOP: i32 = 24;
const BOTTOM: i32 = 36;
/// The ends of an axis of ratios: figures beyond them are drawn at the end, and their numbers stand beside.
const ENDS: (f64, f64) = (1.0 / 16.0, 64.0);
/// Rows of a panel; the tables have the others.
const MOST_ROWS: usize = 24;

/// An operation or a session.
#[derive(Default)]
pub(super) struct RatioPanel {
    pub(super) title: String,
    /// The anchor of its cells on the page.
    pub(super) anchor: String,
    pub(super) baseline: String,
    /// The baseline's time in words; empty without one.
    pub(super) typical: String,
    /// What is divided.
    pub(super) unit: &'static str,
    /// The ratio that is treated as equal, at least 1.
    pub(super) margin: f64,
    pub(super) rows: Vec<RatioRow>,
}

/// An arm.
pub(super) struct RatioRow {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) ratio: f64,
    pub(super) interval: Option<(f64, f64)>,
    /// Whether some of its passes failed, which are in no time.
    pub(super) has_failures: bool,
}

/// Draws all panels on one axis; `None` without a panel.
pub(super) fn ratio_picture(panels: &[RatioPanel]) -> Result<Option<Picture>, DrawError> {
    let panels = &panels[..panels.len().min(MOST_PANELS)];
    let rows = panels.iter().flat_map(|panel| &panel.rows);
    let ends = rows.flat_map(|row| {
        let (low, high) = row.interval.unwrap_or((row.ratio, row.ratio));
        [low, row.ratio, high].map(|end| end.clamp(ENDS.0, ENDS.1))
    });
    let ends: Vec<f64> = ends.collect();
    // An axis that nearly reaches a power of ten ends at it.
    let far = [0.1, 10.0].into_iter().filter(|power| {
        let is_near = |end: &f64| (*power < 1.0 && *end <= power * 2.0) || (*power > 1.0 && *end >= power / 2.0);
        ends.iter().any(is_near)
    });
    // The line at 1 and one tick beside it are on every axis.
    let Some(axis) = LogAxis::of(ends.iter().copied().chain(far).chain([0.8, 2.2])) else {
        return Ok(None);
    };
    let drawn: Result<Vec<Chart>, DrawError> = panels.iter().map(|panel| ratio_panel(panel, &axis)).collect();
    Ok(Some(Picture(drawn?)).filter(|picture| !picture.0.is_empty()))
}

fn ratio_panel(panel: &RatioPanel, axis: &LogAxis) -> Result<Chart, DrawError> {
    let rows = &panel.rows[..panel.rows.len().min(MOST_ROWS)];
    let typical =
        if panel.typical.is_empty() { String::new() } else { format!("{} {}", panel.baseline, panel.typical) };
    let typical = fit(&typical, PANEL as i32 / 2, TEXT);
    // Bold letters are wider. A title that does not fit beside the time is in two lines.
    let room = (PANEL as i32 - 16 - width(&typical, TEXT)) * 9 / 10;
    let title = if width(&panel.title, TITLE) <= room {
        vec![panel.title.clone()]
    } else {
        two_lines(&panel.title, room, TITLE)
    };
    let top = TOP + LINE * (title.len() as i32 - 1);
    let bottom = top + rows.iter().map(height).sum::<i32>();
    let frame = Frame { left: NAMES, top, right: 232, bottom };
    let chart = draw((PANEL, (bottom + BOTTOM) as u32), |area| {
        let inside = [(frame.left, top), (frame.right, bottom)];
        if panel.margin > 1.0 {
            let sides = [1.0 / panel.margin, panel.margin].map(|end| frame.x(axis.share(end)));
            let same = [(sides[0], inside[0].1), (sides[1], inside[1].1)];
            area.draw(&Rectangle::new(same, INK.mix(0.09).filled()))?;
        }
        let mut ticks = axis.ticks();
        // The baseline has its label first, then powers of ten.
        ticks.sort_by_key(|tick| (*tick != 1.0, (tick.log10() - tick.log10().round()).abs() > 1e-9));
        let ticks: Vec<(f64, String)> = ticks.into_iter().map(|tick| (axis.share(tick), format!("×{tick}"))).collect();
        frame.below(area, &ticks)?;
        let one = frame.x(axis.share(1.0));
        line(area, [(one, top - 3), (one, bottom)], INK.mix(0.8))?;
        for (y, part) in (0..).map(|at| 9 + LINE * at).zip(&title) {
            write_bold(area, part, Side::Left, (2, y), TITLE)?;
        }
        write(area, &typical, Side::Right, (PANEL as i32 - 2, 9), TEXT)?;
        let words = fit(&format!("{} ÷ {}", panel.unit, panel.baseline), 200, SMALL);
        let middle = i32::midpoint(frame.left, frame.right);
        write(area, &words, Side::Middle, (middle, bottom + 26), SMALL)?;
        let mut next = top;
        for row in rows {
            let y_name = next + ROW / 2 + 1;
            next += height(row);
            // A long name is above its figure.
            let y = next - ROW / 2;
            row.mark.draw(area, (8, y_name))?;
            let name = fit(&row.name, PANEL as i32 - 22, TEXT);
            write(area, &name, Side::Left, (18, y_name), TEXT)?;
            if let Some((low, high)) = row.interval {
                let ends = [low, high].map(|end| (frame.x(axis.share(end)), y));
                // The mark covers a short one.
                if ends[1].0 - ends[0].0 > 6 {
                    line(area, ends, row.mark.colour.stroke_width(2))?;
                }
            }
            row.mark.draw(area, (frame.x(axis.share(row.ratio)), y))?;
            write(area, &figure(row), Side::Left, (frame.right + 8, y), TEXT)?;
        }
        Ok(())
    })?;
    Ok(chart.with_links(title.into_iter().map(|part| (part, panel.anchor.clone())).collect()))
}

/// The pixels of a row: two lines for a name that is wider than its column.
fn height(row: &RatioRow) -> i32 {
    if width(&row.name, TEXT) > NAMES - 22 { 2 * ROW } else { ROW }
}

/// The ratio and half its interval, `×1.32 ±0.01`; an interval that is wider than the ratio is only drawn.
fn figure(row: &RatioRow) -> String {
    let places = match row.ratio {
        ratio if ratio >= 100.0 => 0,
        ratio if ratio >= 10.0 => 1,
        _ => 2,
    };
    let half = row.interval.map(|(low, high)| (high - low) / 2.0);
    let half = half
        .map_or(String::new(), |half| if half < row.ratio { half_words(half, places) } else { " (wide)".to_owned() });
    let failed = if row.has_failures { "†" } else { "" };
    let ratio = if row.ratio < 1e6 { format!("×{:.places$}", row.ratio) } else { format!("×{:.0e}", row.ratio) };
    fit(&format!("{ratio}{half}{failed}"), 86, TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::marks::Marks;

    /// An arm, its ratio and its interval.
    type ArmRatio<'a> = (&'a str, f64, Option<(f64, f64)>);

    fn panel(rows: &[ArmRatio<'_>]) -> RatioPanel {
        let marks = Marks::of_names(rows.iter().map(|row| row.0));
        let rows = rows.iter().map(|(name, ratio, interval)| RatioRow {
            name: (*name).to_owned(),
            mark: marks.get(name),
            ratio: *ratio,
            interval: *interval,
            has_failures: false,
        });
        RatioPanel {
            title: "read-1k".to_owned(),
            anchor: "cell".to_owned(),
            baseline: "direct".to_owned(),
            typical: "3.3 µs".to_owned(),
            unit: "time of a call",
            margin: 1.05,
            rows: rows.collect(),
        }
    }

    #[test]
    fn a_row_says_its_ratio_and_half_of_its_interval() {
        let one = panel(&[("sqlite", 1.318, Some((1.31, 1.33))), ("far", 432.0, None)]);
        assert_eq!(figure(&one.rows[0]), "×1.32 ±0.01");
        assert_eq!(figure(&one.rows[1]), "×432");
        // A narrow interval is not printed as ±0.00.
        assert_eq!(figure(&panel(&[("sqlite", 1.318, Some((1.317, 1.319)))]).rows[0]), "×1.32");
        let picture = ratio_picture(&[one]).unwrap().unwrap().for_page();
        for text in ["×1.32 ±0.01", "direct 3.3 µs", "time of a call ÷ direct", "href=#cell"] {
            assert!(picture.contains(text), "{text} is not in {picture}");
        }
    }

    #[test]
    fn the_baseline_and_powers_of_ten_have_labels() {
        for (low, high) in [(0.05, 7.6), (0.05, 25.0), (0.9, 5.6), (0.1, 44.0)] {
            let rows = [("low", low, None), ("high", high, None)];
            let picture = ratio_picture(&[panel(&rows)]).unwrap().unwrap().for_page();
            for label in [Some("×1"), Some("×10"), (low < 0.2).then_some("×0.1")].into_iter().flatten() {
                assert!(picture.contains(&format!(">{label}<")), "{label} is missing: {picture}");
            }
        }
    }

    #[test]
    fn impossible_ratios_stay_inside_of_the_panel() {
        let figures = [f64::NAN, f64::INFINITY, 0.0, -1.0, 1e300];
        let rows = figures.map(|ratio| ("x", ratio, Some((f64::NEG_INFINITY, f64::INFINITY))));
        let picture = ratio_picture(&[panel(&rows)]).unwrap().unwrap();
        assert!(!picture.for_page().contains("NaN,"), "a coordinate is a number");
        assert!(ratio_picture(&[]).unwrap().is_none());
    }
}
