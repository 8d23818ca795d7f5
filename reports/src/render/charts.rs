//! Draws all charts of a report; those with several panels, and heat tables, have modules of their own.

use std::collections::{BTreeMap, HashMap, HashSet};

use plotters::prelude::*;

use super::axis::{LinearAxis, LogAxis};
use super::curves;
use super::drawing::{
    Area, COLOURS, Chart, DrawError, INK, colour, draw, label_width, legend, line, write,
};
use super::failures::failures;
use super::report::Report;
use super::stems::{COSTS, FAILURES, GROWTH, LATENCY, SESSIONS, STATES, TOKENS, TRADE_OFFS};
use super::trade_offs::trade_offs;
use crate::summary::{Cell, Cost, MAKESPAN};
use crate::text::time;

const WIDTH: u32 = 900;
const ROW: u32 = 18;
/// The most rows or bars of a chart.
const MOST_ROWS: usize = 400;

/// All charts that the run has data for, by stem.
pub(super) fn charts(report: &Report<'_>) -> Result<BTreeMap<&'static str, Chart>, String> {
    let arms = report.arms();
    let cells = &report.summary.cells;
    let is_single = |cell: &Cell| !cell.workload.starts_with("agent/");
    let other_states = cells.iter().filter(|cell| cell.state != "hot");
    let other_states: HashSet<&str> = other_states.map(|cell| cell.workload.as_str()).collect();
    let has_states = |cell: &Cell| other_states.contains(cell.workload.as_str());
    let dots = |wanted: &dyn Fn(&Cell) -> bool, with_state: bool| -> Vec<Dot<'_>> {
        let chosen = cells.iter().filter(|cell| wanted(cell));
        let dots = chosen.map(|cell| {
            let name = cell.workload.split_once('/');
            let name = name.map_or(cell.workload.as_str(), |(_, rest)| rest);
            let row = match with_state {
                true => format!("{name} {}", cell.state),
                false => name.to_owned(),
            };
            Dot { row, cell }
        });
        dots.collect()
    };
    let latency = dots(&|cell| is_single(cell) && cell.state == "hot", false);
    let states = dots(&|cell| is_single(cell) && has_states(cell), true);
    let sessions = dots(&|cell| cell.metric == MAKESPAN, true);

    let mut drawn = BTreeMap::new();
    for (stem, dots) in [(LATENCY, latency), (STATES, states), (SESSIONS, sessions)] {
        if !dots.is_empty() {
            let chart = dot_chart(&arms, &dots).map_err(|error| format!("{stem}: {error}"))?;
            let links = dots.iter().map(|dot| (dot.row.clone(), dot.cell.anchor()));
            drawn.extend(chart.map(|chart| (stem, chart.with_links(links.collect()))));
        }
    }
    let found = trade_offs(&report.decisions).map_err(|error| format!("{TRADE_OFFS}: {error}"))?;
    drawn.extend(found.map(|chart| (TRADE_OFFS, chart)));
    if !report.run.plan.workloads.is_empty() {
        let found = failures(report).map_err(|error| format!("{FAILURES}: {error}"))?;
        drawn.extend(found.map(|chart| (FAILURES, chart)));
    }
    let (tokens, growth) = (curves::tokens(report), curves::growth(report));
    if !tokens.is_empty() {
        let chart = curves::tokens_chart(&tokens).map_err(|error| format!("{TOKENS}: {error}"))?;
        drawn.insert(TOKENS, chart);
    }
    if !growth.is_empty() {
        let chart = curves::growth_chart(&growth).map_err(|error| format!("{GROWTH}: {error}"))?;
        drawn.insert(GROWTH, chart);
    }
    let bars = cost_bars(report);
    if !bars.is_empty() {
        let chart = bar_chart(&bars).map_err(|error| format!("{COSTS}: {error}"))?;
        let links = bars
            .into_iter()
            .filter_map(|bar| Some((bar.label, bar.anchor?)));
        drawn.insert(COSTS, chart.with_links(links.collect()));
    }
    Ok(drawn)
}

/// A value in a row of a dot chart.
struct Dot<'a> {
    row: String,
    cell: &'a Cell,
}

/// A tick's label without trailing zeros.
fn tick_label(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Draws passes, intervals and their middles in rows over a logarithmic time axis, with one colour per arm; `None` if no time is above 0.
fn dot_chart(arms: &[&str], dots: &[Dot<'_>]) -> Result<Option<Chart>, DrawError> {
    let mut rows: Vec<&str> = Vec::new();
    let mut by_row: HashMap<(&str, &str), &Dot<'_>> = HashMap::new();
    let mut known = HashSet::new();
    for dot in dots {
        if known.insert(dot.row.as_str()) {
            rows.push(&dot.row);
        }
        by_row.entry((&dot.row, &dot.cell.arm)).or_insert(dot);
    }
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let ends = dots.iter().flat_map(|dot| {
        let interval = dot.cell.interval;
        let ranked = ranked(&dot.cell.values);
        // The axis ignores the slowest pass, so that one outlier does not compress the others.
        let last = ranked.len().saturating_sub(2);
        [
            interval.map_or(dot.cell.typical_ns, |interval| interval.low),
            interval.map_or(dot.cell.typical_ns, |interval| interval.high),
            ranked.first().copied().unwrap_or(dot.cell.typical_ns),
            ranked.get(last).copied().unwrap_or(dot.cell.typical_ns),
        ]
    });
    let Some(axis) = LogAxis::of(ends) else {
        return Ok(None);
    };
    let label_width = label_width(rows.iter().copied());
    let lines = arms.len() as u32;
    let row_height = ROW + 5 * lines;
    let height = 70 + row_height * rows.len() as u32;
    let drawn = draw((WIDTH, height), |area| {
        if left_out > 0 {
            let words = format!("{left_out} more rows are in the tables");
            write(area, words, (8, height as i32 - 16), 13)?;
        }
        let names = arms.iter().enumerate();
        let names: Vec<_> = names.map(|(at, arm)| (*arm, colour(at))).collect();
        legend(area, label_width, &names)?;
        let plot = area.margin(34, 30, label_width, 30);
        let (width, _) = plot.dim_in_pixel();
        let x = |ns: f64| (axis.share(ns) * f64::from(width)) as i32;
        for tick in axis.ticks() {
            draw_tick(&plot, x(tick), tick)?;
        }
        for (number, row) in rows.iter().enumerate() {
            let top = (number as u32 * row_height) as i32;
            let middle = 34 + top + row_height as i32 / 2 - 8;
            write(area, *row, (8, middle), 14)?;
            if number > 0 {
                let ends = [(-label_width, top), (width as i32, top)];
                line(&plot, ends, INK.mix(0.12))?;
            }
            for (at, arm) in arms.iter().enumerate() {
                let colour = colour(at);
                let Some(dot) = by_row.get(&(*row, *arm)) else {
                    continue;
                };
                let y = top + (row_height * (2 * at as u32 + 1) / (2 * lines)) as i32;
                for value in ranked(&dot.cell.values) {
                    let at = x(value);
                    line(&plot, [(at, y - 3), (at, y + 4)], colour.mix(0.35))?;
                }
                if let Some(interval) = dot.cell.interval {
                    let ends = [(x(interval.low), y), (x(interval.high), y)];
                    line(&plot, ends, colour.stroke_width(2))?;
                }
                let circle = Circle::new((x(dot.cell.typical_ns), y), 4, colour.filled());
                plot.draw(&circle)?;
            }
        }
        Ok(())
    });
    drawn.map(Some)
}

/// At most forty of the values, evenly spaced by rank.
fn ranked(values: &[f64]) -> Vec<f64> {
    const SHOWN: usize = 40;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= SHOWN {
        return sorted;
    }
    let last = sorted.len() - 1;
    (0..SHOWN)
        .map(|rank| sorted[rank * last / (SHOWN - 1)])
        .collect()
}

/// Draws the line of a tick at `at`, from top to bottom of a plot, and its time below.
fn draw_tick(plot: &Area<'_>, at: i32, ns: f64) -> Result<(), DrawError> {
    let bottom = plot.dim_in_pixel().1 as i32;
    line(plot, [(at, 0), (at, bottom)], INK.mix(0.15))?;
    write(plot, tick_label(ns), (at - 16, bottom + 6), 13)
}

/// A bar of a stacked bar chart: a label, and the parts in nanoseconds.
struct Bar {
    label: String,
    /// The anchor of its cell.
    anchor: Option<String>,
    parts: [f64; 3],
}

const PARTS: [(&str, RGBColor); 3] = [
    ("kernel and queue", COLOURS[5]),
    ("front end", COLOURS[1]),
    ("store", COLOURS[2]),
];

/// One bar per micro workload and arm, in the first cache state in which a request reached a daemon.
fn cost_bars(report: &Report<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    let anchor = |cost: &Cost| {
        let mut cells = report.summary.cells.iter();
        let cell = cells.find(|cell| cell.workload == cost.workload && cell.state == cost.state);
        cell.map(Cell::anchor)
    };
    for workload in &report.run.plan.workloads {
        if !workload.name.starts_with("micro/") {
            continue;
        }
        let of_workload = || {
            let costs = report.summary.costs.iter();
            costs.filter(|cost| cost.workload == workload.name)
        };
        let state = workload.states.iter().find(|state| {
            of_workload().any(|c| c.state == **state && c.arm != "null" && c.requests > 0.01)
        });
        for cost in of_workload().filter(|c| Some(&c.state) == state) {
            if Some(cost.arm.as_str()) == report.summary.aa_arm.as_deref() {
                continue;
            }
            let name = cost.workload.trim_start_matches("micro/");
            bars.push(Bar {
                label: format!("{name} {}: {}", cost.state, cost.arm),
                anchor: anchor(cost),
                parts: [cost.kernel_and_queue_ns, cost.front_end_ns, cost.store_ns],
            });
        }
    }
    // Long bars are left out, so that one outlier does not compress the others.
    let mut sums: Vec<f64> = bars.iter().map(|bar| bar.parts.iter().sum()).collect();
    sums.sort_by(f64::total_cmp);
    let limit = sums
        .get(sums.len() / 2)
        .map_or(f64::MAX, |median| median * 8.0);
    bars.retain(|bar| bar.parts.iter().sum::<f64>() <= limit);
    bars.truncate(MOST_ROWS);
    bars
}

fn bar_chart(bars: &[Bar]) -> Result<Chart, DrawError> {
    let label_width = label_width(bars.iter().map(|bar| bar.label.as_str()));
    let height = 70 + 20 * bars.len() as u32;
    let axis = LinearAxis::of(bars.iter().map(|bar| bar.parts.iter().sum::<f64>()));
    draw((WIDTH, height), |area| {
        legend(area, label_width, &PARTS)?;
        let plot = area.margin(34, 30, label_width, 90);
        let (width, _) = plot.dim_in_pixel();
        let x = |ns: f64| (axis.share(ns) * f64::from(width)) as i32;
        for tick in axis.ticks() {
            draw_tick(&plot, x(tick), tick)?;
        }
        for (number, bar) in bars.iter().enumerate() {
            let top = 20 * number as i32;
            write(area, bar.label.as_str(), (8, 34 + top + 3), 13)?;
            let mut start = 0.0;
            for (part, (_, colour)) in bar.parts.iter().zip(PARTS) {
                let end = start + part.max(0.0);
                let corners = [(x(start), top + 4), (x(end), top + 16)];
                plot.draw(&Rectangle::new(corners, colour.filled()))?;
                start = end;
            }
            write(&plot, time(start), (x(start) + 6, top + 3), 13)?;
        }
        Ok(())
    })
}
