//! Draws all charts of a report; those with several panels, and heat tables, have modules of their own.

use std::collections::BTreeMap;

use plotters::prelude::*;

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

/// All charts that the run has data for, by stem.
pub(super) fn charts(report: &Report<'_>) -> Result<BTreeMap<&'static str, Chart>, String> {
    let arms = report.arms();
    let cells = &report.summary.cells;
    let is_single = |cell: &Cell| !cell.workload.starts_with("agent/");
    let has_states = |cell: &Cell| {
        let mut others = cells.iter().filter(|other| other.workload == cell.workload);
        others.any(|other| other.state != "hot")
    };
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
            drawn.insert(stem, chart.with_links(links.collect()));
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

/// Draws passes, intervals and their middles in rows over a logarithmic time axis, with one colour per arm.
fn dot_chart(arms: &[&str], dots: &[Dot<'_>]) -> Result<Chart, DrawError> {
    let mut rows: Vec<&str> = Vec::new();
    for dot in dots {
        if !rows.contains(&dot.row.as_str()) {
            rows.push(&dot.row);
        }
    }
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
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    let label_width = label_width(rows.iter().copied());
    let lines = arms.len() as u32;
    let row_height = ROW + 5 * lines;
    let height = 70 + row_height * rows.len() as u32;
    draw((WIDTH, height), |area| {
        let names = arms.iter().enumerate();
        let names: Vec<_> = names.map(|(at, arm)| (*arm, colour(at))).collect();
        legend(area, label_width, &names)?;
        let plot = area.margin(34, 30, label_width, 30);
        let (width, _) = plot.dim_in_pixel();
        let x = |ns: f64| {
            let share = (ns / low * 1.1).ln() / (high / low * 1.21).ln();
            (share * f64::from(width)) as i32
        };
        for tick in ticks(low / 1.1, high * 1.1) {
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
                let mut all = dots.iter();
                let Some(dot) = all.find(|dot| dot.row == *row && dot.cell.arm == *arm) else {
                    continue;
                };
                let y = top + (row_height * (2 * at as u32 + 1) / (2 * lines)) as i32;
                for value in ranked(&dot.cell.values) {
                    let at = x(value.clamp(low, high));
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
    })
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

/// The ticks 1, 2, 5, 10, … of a logarithmic axis; only powers of ten on a wide range.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 2000.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    (first..=last)
        .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
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
    bars
}

fn bar_chart(bars: &[Bar]) -> Result<Chart, DrawError> {
    let label_width = label_width(bars.iter().map(|bar| bar.label.as_str()));
    let height = 70 + 20 * bars.len() as u32;
    let longest = bars
        .iter()
        .map(|bar| bar.parts.iter().sum::<f64>())
        .fold(1.0, f64::max);
    draw((WIDTH, height), |area| {
        legend(area, label_width, &PARTS)?;
        let plot = area.margin(34, 30, label_width, 90);
        let (width, _) = plot.dim_in_pixel();
        let x = |ns: f64| (ns / longest * f64::from(width)) as i32;
        for tick in linear_ticks(longest) {
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

fn linear_ticks(longest: f64) -> Vec<f64> {
    let rough = longest / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    (0..)
        .map(|n| f64::from(n) * step)
        .take_while(|tick| *tick <= longest)
        .collect()
}
