//! Line charts in panels: cache states, tokens over a session, and how times grow with a size. Lines have their labels at
//! their ends.

use std::collections::{BTreeMap, HashMap};

use plotters::prelude::*;
use rundir::Basis;
use tokens::Account;

use super::axis::{LinearAxis, LogAxis};
use super::drawing::{
    Area, Chart, DrawError, Frame, MOST_PANELS, PANEL, Picture, SMALL, Side, TITLE, draw, fit, line, spread, two_lines,
    width, write, write_bold,
};
use super::growth::sized;
use super::marks::{Mark, Marks};
use super::report::Report;
use super::titles::{short_name, with_many_metrics};
use figures::context::{ContextCost, o200k};
use figures::provenance::Provenance;
use figures::summary::{Cell, MAKESPAN, is_simulated};
use figures::text::{count, time};

/// Pixels from one label to the next.
const LABEL: i32 = 14;
/// The most pixels of a label.
const LABELS: i32 = 144;
/// Lines of a panel; the tables have the others.
const MOST_LINES: usize = 12;
/// Points of a line that have marks.
const MARKED: usize = 8;
/// The most points of a drawn line.
const MOST_POINTS: usize = 400;

/// A panel: its title, and its lines.
pub(super) struct Panel {
    title: String,
    /// The anchor of the title on the page.
    anchor: String,
    across: HorizontalAxis,
    /// The title of the upward axis, and its labels.
    up: &'static str,
    label: fn(f64) -> String,
    is_logarithmic: bool,
    lines: Vec<Line>,
}

/// The axis from left to right.
enum HorizontalAxis {
    /// Names at 0, 1, 2, ….
    Names(Vec<String>),
    Linear(&'static str),
    Logarithmic(&'static str),
}

struct Line {
    name: String,
    /// A figure behind its name.
    figure: String,
    mark: Mark,
    points: Vec<(f64, f64)>,
}

/// The order of cache states.
const STATES: [&str; 3] = ["hot", "lukewarm", "cold"];

/// The times of workloads that were measured in several cache states, with a line for each arm.
pub(super) fn states(report: &Report<'_>, marks: &Marks) -> Vec<Panel> {
    let cells = &report.summary.cells;
    let many = with_many_metrics(cells);
    let rank = |state: &str| STATES.iter().position(|known| *known == state);
    let is_wanted = |cell: &&Cell| {
        let is_main = cell.metric == MAKESPAN || !cell.workload.starts_with("agent/");
        let is_twin = report.summary.aa_arm.as_deref() == Some(cell.arm.as_str());
        is_main && !is_twin && rank(&cell.state).is_some()
    };
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut panels: Vec<Panel> = Vec::new();
    for cell in cells.iter().filter(is_wanted) {
        let at = *places.entry((&cell.workload, &cell.metric)).or_insert_with(|| {
            let mut title = short_name(&cell.workload).to_owned();
            if many.contains(cell.workload.as_str()) && cell.metric != MAKESPAN {
                title += &format!(": {}", cell.metric);
            }
            panels.push(Panel {
                title,
                anchor: cell.anchor(),
                across: HorizontalAxis::Names(STATES.map(str::to_owned).into()),
                up: if cell.metric == MAKESPAN { "wait of a session" } else { "time of a call" },
                label: time_tick,
                is_logarithmic: true,
                lines: Vec::new(),
            });
            panels.len() - 1
        });
        if let Some(rank) = rank(&cell.state) {
            add(&mut panels[at], marks, &cell.arm, (rank as f64, cell.typical_ns));
        }
    }
    retain_lines(&mut panels);
    panels
}

/// Adds a point to the line of a name.
fn add(panel: &mut Panel, marks: &Marks, name: &str, point: (f64, f64)) {
    if !(point.1.is_finite() && point.1 > 0.0) {
        return;
    }
    match panel.lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push(point),
        None => panel.lines.push(Line {
            name: name.to_owned(),
            figure: String::new(),
            mark: marks.get(name),
            points: vec![point],
        }),
    }
}

/// Leaves panels and lines that have something to compare.
fn retain_lines(panels: &mut Vec<Panel>) {
    for panel in panels.iter_mut() {
        for line in &mut panel.lines {
            line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        panel.lines.retain(|line| line.points.len() > 1);
    }
    panels.retain(|panel| !panel.lines.is_empty());
}

/// The prompt tokens of each call of a session, with a line for each context policy; published accounts are left out.
/// A line's label has the dollars of the session.
pub(super) fn tokens(report: &Report<'_>, marks: &Marks) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for session in &report.run.contexts {
        if session.basis == Basis::Published || session.conversation.steps.len() < 3 {
            continue;
        }
        let account = Account::of(&session.conversation, &o200k(session));
        if panels.last().is_none_or(|panel| panel.title != session.workload) {
            panels.push(Panel {
                title: session.workload.clone(),
                anchor: "what-the-context-costs".to_owned(),
                across: HorizontalAxis::Linear("call of the model"),
                up: "tokens in the prompt",
                label: compact,
                is_logarithmic: false,
                lines: Vec::new(),
            });
        }
        let mut costs = report.contexts.costs.iter();
        let cost = costs.find(|cost| cost.workload == session.workload && cost.policy == session.policy);
        let dollars = cost.and_then(ContextCost::paid);
        let dollars = dollars.map_or(String::new(), |dollars| format!(" ${dollars:.2}"));
        let calls = account.calls.iter().map(|call| call.prompt as f64);
        if let Some(panel) = panels.last_mut() {
            panel.lines.push(Line {
                name: session.policy.clone(),
                figure: dollars,
                mark: marks.get(&session.policy),
                points: (1..).map(f64::from).zip(calls).collect(),
            });
        }
    }
    panels.retain(|panel| panel.lines.len() > 1);
    for panel in &mut panels {
        panel.title = short_name(&panel.title).to_owned();
    }
    panels
}

/// Cells by their size.
type Points<'a> = Vec<(f64, &'a Cell)>;

/// Cells whose workloads differ in a size at the end of their names only, such as `find-by-request-100` and `-1000`.
pub(super) fn growth(report: &Report<'_>, marks: &Marks) -> Vec<Panel> {
    let mut groups: BTreeMap<(String, &str, &str), Points<'_>> = BTreeMap::new();
    let cells = report.summary.cells.iter();
    for cell in cells.filter(|cell| cell.metric != MAKESPAN) {
        let Some((name, size)) = sized(&cell.workload) else {
            continue;
        };
        let key = (name.to_owned(), cell.state.as_str(), cell.metric.as_str());
        groups.entry(key).or_default().push((f64::from(size), cell));
    }
    let panels = groups.into_iter().filter_map(|((name, state, metric), cells)| {
        let mut panel = Panel {
            title: format!("{}-…: {metric}, {state}", short_name(&name)),
            anchor: cells.first()?.1.anchor(),
            across: HorizontalAxis::Logarithmic("files, notes, processes, hosts or MB"),
            up: "time of a call",
            label: time_tick,
            is_logarithmic: true,
            lines: Vec::new(),
        };
        for (size, cell) in &cells {
            if report.summary.aa_arm.as_deref() != Some(cell.arm.as_str()) {
                add(&mut panel, marks, &cell.arm, (*size, cell.typical_ns));
            }
        }
        Some(panel)
    });
    let mut panels: Vec<Panel> = panels.collect();
    retain_lines(&mut panels);
    panels
}

/// A time without trailing zeros.
fn time_tick(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// A number in few letters: `120k`.
fn compact(number: f64) -> String {
    match number {
        number if number >= 1e7 => format!("{:.0}M", number / 1e6),
        number if number >= 1e6 => format!("{:.1}M", number / 1e6),
        number if number >= 1e3 => format!("{:.0}k", number / 1e3),
        number => count(number.max(0.0).round() as u64),
    }
}

/// Draws panels; `None` without one.
pub(super) fn picture(panels: &[Panel]) -> Result<Option<Picture>, DrawError> {
    let panels = panels.iter().take(MOST_PANELS).map(draw_panel);
    let drawn: Vec<Chart> = panels.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    Ok(Some(Picture(drawn)).filter(|picture| !picture.0.is_empty()))
}

/// The ticks and the places of an axis.
enum Scale {
    Names(Vec<String>),
    Linear(LinearAxis),
    Logarithmic(LogAxis),
}

impl Scale {
    fn share(&self, figure: f64) -> f64 {
        match self {
            // The first and the last name stand a little inside.
            Scale::Names(names) => {
                let last = names.len().saturating_sub(1).max(1) as f64;
                0.08 + 0.84 * (figure / last).clamp(0.0, 1.0)
            }
            Scale::Linear(axis) => axis.share(figure),
            Scale::Logarithmic(axis) => axis.share(figure),
        }
    }

    fn ticks(&self, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        let figures = match self {
            Scale::Names(names) => {
                let names = names.iter().enumerate();
                return names.map(|(at, name)| (self.share(at as f64), name.clone())).collect();
            }
            Scale::Linear(axis) => axis.ticks(),
            Scale::Logarithmic(axis) => axis.ticks(),
        };
        figures.into_iter().map(|tick| (self.share(tick), label(tick))).collect()
    }
}

fn draw_panel(panel: &Panel) -> Result<Option<Chart>, DrawError> {
    let lines = &panel.lines[..panel.lines.len().min(MOST_LINES)];
    let points = || lines.iter().flat_map(|line| &line.points);
    let (xs, ys) = (points().map(|point| point.0), points().map(|point| point.1));
    let up = if panel.is_logarithmic {
        LogAxis::of(ys).map(Scale::Logarithmic)
    } else {
        Some(Scale::Linear(LinearAxis::of(ys)))
    };
    let (across, words) = match &panel.across {
        HorizontalAxis::Names(names) => (Some(Scale::Names(names.clone())), "state of the caches"),
        HorizontalAxis::Linear(words) => (Some(Scale::Linear(LinearAxis::of(xs))), *words),
        HorizontalAxis::Logarithmic(words) => (LogAxis::of(xs).map(Scale::Logarithmic), *words),
    };
    let (Some(up), Some(across)) = (up, across) else {
        return Ok(None);
    };
    let labels = lines.iter().map(|line| {
        if is_simulated(&line.name) { Provenance::Simulated.marked(&line.name) } else { line.name.clone() }
    });
    let labels = labels.zip(lines).map(|(label, line)| {
        let label = fit(&label, PANEL as i32 - 22 - width(&line.figure, SMALL), SMALL);
        label + &line.figure
    });
    let labels: Vec<String> = labels.collect();
    let widest = labels.iter().map(|label| width(label, SMALL)).max().unwrap_or(0);
    // Labels that leave too little of the panel to its lines are below them.
    let is_below = widest > LABELS;
    let beside = if is_below { 0 } else { widest + 14 };
    let below = if is_below { LABEL * lines.len() as i32 } else { 0 };
    let tall = (LABEL * lines.len() as i32).max(120);
    let title = two_lines(&panel.title, PANEL as i32 * 9 / 10, TITLE);
    let top = 44 + 15 * (title.len() as i32 - 1);
    let frame = Frame { left: 56, top, right: PANEL as i32 - beside - 12, bottom: top + tall };
    let chart = draw((PANEL, (frame.bottom + 36 + below) as u32), |area| {
        for (y, part) in (0..).map(|at| 9 + 15 * at).zip(&title) {
            write_bold(area, part, Side::Left, (2, y), TITLE)?;
        }
        write(area, panel.up, Side::Left, (2, top - 17), SMALL)?;
        frame.beside(area, &up.ticks(panel.label))?;
        frame.below(area, &across.ticks(compact))?;
        let middle = i32::midpoint(frame.left, frame.right);
        write(area, words, Side::Middle, (middle, frame.bottom + 26), SMALL)?;
        let place = |point: &(f64, f64)| (frame.x(across.share(point.0)), frame.y(up.share(point.1)));
        let ends: Vec<(i32, i32)> = lines.iter().map(|line| line.points.last().map_or((0, 0), place)).collect();
        let wanted: Vec<i32> = ends.iter().map(|end| end.1).collect();
        let places = spread(&wanted, LABEL, frame.top, frame.bottom);
        for (at, ((of_name, label), (end, y))) in lines.iter().zip(&labels).zip(ends.iter().zip(places)).enumerate() {
            draw_line(area, of_name, place)?;
            if is_below {
                let y = frame.bottom + 40 + LABEL * at as i32;
                of_name.mark.draw(area, (8, y))?;
                write(area, label, Side::Left, (18, y), SMALL)?;
                continue;
            }
            let at = frame.right + 12;
            if y != end.1 || at - end.0 > 40 {
                line(area, [*end, (at - 6, y)], of_name.mark.colour.mix(0.5))?;
            }
            of_name.mark.draw(area, (at, y))?;
            write(area, label, Side::Left, (at + 9, y), SMALL)?;
        }
        Ok(())
    })?;
    Ok(Some(chart.with_links(title.into_iter().map(|part| (part, panel.anchor.clone())).collect())))
}

/// Draws a line, and marks on it if it has few points.
fn draw_line(area: &Area<'_>, of_name: &Line, place: impl Fn(&(f64, f64)) -> (i32, i32)) -> Result<(), DrawError> {
    let every = of_name.points.len().div_ceil(MOST_POINTS).max(1);
    let last = of_name.points.len().saturating_sub(1);
    let shown = of_name.points.iter().enumerate();
    let shown = shown.filter(|(at, _)| at % every == 0 || *at == last);
    let mut points: Vec<(i32, i32)> = shown.map(|(_, point)| place(point)).collect();
    points.dedup();
    if points.len() <= MARKED {
        points.iter().try_for_each(|point| of_name.mark.draw(area, *point))?;
    }
    area.draw(&PathElement::new(points, of_name.mark.colour.stroke_width(2)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;
    use figures::testing;

    #[test]
    fn a_session_has_a_line_for_each_policy_with_its_dollars() {
        let inputs = Inputs::of(testing::run());
        let report = inputs.report();
        let panels = tokens(&report, &Marks::of(&report));
        let [panel] = &panels[..] else {
            panic!("{} panels", panels.len());
        };
        let names: Vec<&str> = panel.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["inline", "evict"]);
        let drawn = picture(&panels).unwrap().unwrap().for_page();
        for text in ["tokens in the prompt", "call of the model", "inline $"] {
            assert!(drawn.contains(text), "{text} is not in {drawn}");
        }
    }

    #[test]
    fn numbers_on_an_axis_have_few_letters() {
        let shown = [0.0, 950.0, 120_000.0, 1_500_000.0, 23_000_000.0].map(compact);
        assert_eq!(shown, ["0", "950", "120k", "1.5M", "23M"]);
        assert_eq!([1000.0, 250_000.0].map(time_tick), ["1 µs", "250 µs"]);
    }
}
