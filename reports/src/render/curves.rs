//! Line charts in panels: tokens over a session, and how times grow with a size.

use std::collections::BTreeMap;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use rundir::Basis;
use tokens::Account;

use super::drawing::{Area, Chart, DrawError, INK, colour, draw, legend, text_style, write};
use super::report::Report;
use crate::context::o200k;
use crate::summary::{Cell, MAKESPAN};
use crate::text::{count, time};

/// Pixels of a panel.
const PANEL: (u32, u32) = (450, 230);

/// A panel: its title, and a line for each name.
pub(super) struct Panel {
    pub(super) title: String,
    /// The anchor of the title on the page.
    pub(super) anchor: String,
    pub(super) lines: BTreeMap<String, Vec<(f64, f64)>>,
}

/// The scale and the labels of the axes.
#[derive(Clone, Copy)]
struct Axes {
    is_logarithmic: bool,
    x: &'static str,
    y: fn(f64) -> String,
}

/// The prompt tokens of each call of a session, with a line for each context policy; published accounts are left out.
pub(super) fn tokens(report: &Report<'_>) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for session in &report.run.contexts {
        if session.basis == Basis::Published || session.conversation.steps.len() < 3 {
            continue;
        }
        let account = Account::of(&session.conversation, &o200k(session));
        if panels
            .last()
            .is_none_or(|panel| panel.title != session.workload)
        {
            panels.push(Panel {
                title: session.workload.clone(),
                anchor: "what-the-context-costs".to_owned(),
                lines: BTreeMap::new(),
            });
        }
        let calls = account.calls.iter().map(|call| call.prompt as f64);
        let points = (1..).map(f64::from).zip(calls);
        if let Some(panel) = panels.last_mut() {
            panel.lines.insert(session.policy.clone(), points.collect());
        }
    }
    panels.retain(|panel| panel.lines.len() > 1);
    panels
}

/// Cells by their size.
type Points<'a> = Vec<(f64, &'a Cell)>;

/// Cells whose workloads differ in a size at the end of their names only, such as `find-by-request-100` and `-1000`.
pub(super) fn growth(report: &Report<'_>) -> Vec<Panel> {
    let mut groups: BTreeMap<(String, &str, &str), Points<'_>> = BTreeMap::new();
    for cell in report
        .summary
        .cells
        .iter()
        .filter(|cell| cell.metric != MAKESPAN)
    {
        let sized = cell.workload.rsplit_once('-');
        let Some((name, Ok(size))) = sized.map(|(name, size)| (name, size.parse::<u32>())) else {
            continue;
        };
        let key = (name.to_owned(), cell.state.as_str(), cell.metric.as_str());
        groups.entry(key).or_default().push((f64::from(size), cell));
    }
    let panels = groups
        .into_iter()
        .filter_map(|((name, state, metric), cells)| {
            let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for (size, cell) in &cells {
                let is_drawn = cell.typical_ns.is_finite() && cell.typical_ns > 0.0;
                if is_drawn && Some(cell.arm.as_str()) != report.summary.aa_arm.as_deref() {
                    let line = lines.entry(cell.arm.clone()).or_default();
                    line.push((*size, cell.typical_ns));
                }
            }
            for line in lines.values_mut() {
                line.sort_by(|one, other| one.0.total_cmp(&other.0));
            }
            lines.retain(|_, line| line.len() > 1);
            (!lines.is_empty()).then(|| Panel {
                title: format!("{name}-…, {metric}, {state}"),
                anchor: cells[0].1.anchor(),
                lines,
            })
        });
    panels.collect()
}

/// Draws the tokens of sessions over their calls.
pub(super) fn tokens_chart(panels: &[Panel]) -> Result<Chart, DrawError> {
    let axes = Axes {
        is_logarithmic: false,
        x: "call of the model",
        y: |tokens| count(tokens.round() as u64),
    };
    draw_panels(panels, axes)
}

/// Draws times over sizes; both axes are logarithmic.
pub(super) fn growth_chart(panels: &[Panel]) -> Result<Chart, DrawError> {
    let axes = Axes {
        is_logarithmic: true,
        x: "size",
        y: time,
    };
    draw_panels(panels, axes)
}

fn draw_panels(panels: &[Panel], axes: Axes) -> Result<Chart, DrawError> {
    let names = panels.iter().flat_map(|panel| panel.lines.keys());
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let rows = panels.len().div_ceil(2) as u32;
    let size = (2 * PANEL.0, 34 + rows * PANEL.1);
    let chart = draw(size, |area| {
        let entries = names.iter().enumerate();
        let entries: Vec<_> = entries.map(|(at, name)| (*name, colour(at))).collect();
        legend(area, 12, &entries)?;
        let grid = area.margin(34, 0, 0, 0).split_evenly((rows as usize, 2));
        let mut panels = panels.iter().zip(&grid);
        panels.try_for_each(|(panel, area)| draw_panel(panel, &names, axes, area))
    })?;
    let links = panels.iter();
    let links = links.map(|panel| (panel.title.clone(), panel.anchor.clone()));
    Ok(chart.with_links(links.collect()))
}

fn draw_panel(panel: &Panel, names: &[&str], axes: Axes, area: &Area<'_>) -> Result<(), DrawError> {
    let scaled = |value: f64| match axes.is_logarithmic {
        true => value.max(f64::MIN_POSITIVE).log10(),
        false => value,
    };
    let unscaled = move |value: f64| match axes.is_logarithmic {
        true => 10f64.powf(value),
        false => value,
    };
    let points = || panel.lines.values().flatten();
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let values = points().map(|point| scaled(of(point)));
        values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let ((left, right), (low, high)) = (ends(|point| point.0), ends(|point| point.1));
    // A linear axis of tokens starts at 0; equal ends get some room.
    let low = if axes.is_logarithmic { low } else { 0.0 };
    let room = ((high - low) * 0.06).max(0.01);
    let x = left..right.max(left + 0.01);
    let y = (if axes.is_logarithmic { low - room } else { low })..high + room;
    write(area, panel.title.as_str(), (12, 6), 14)?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(28)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d::<RangedCoordf64, RangedCoordf64>(x.into(), y.into())?;
    chart
        .configure_mesh()
        .light_line_style(INK.mix(0.0))
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.5))
        .label_style(text_style(12))
        .x_desc(axes.x)
        .x_labels(6)
        .y_labels(5)
        .x_label_formatter(&|value| count(unscaled(*value).round() as u64))
        .y_label_formatter(&|value| (axes.y)(unscaled(*value)))
        .draw()?;
    for (at, name) in names.iter().enumerate() {
        let Some(line) = panel.lines.get(*name) else {
            continue;
        };
        let line: Vec<(f64, f64)> = line
            .iter()
            .map(|point| (scaled(point.0), scaled(point.1)))
            .collect();
        let style = colour(at).stroke_width(2);
        if line.len() <= 8 {
            let dots = line
                .iter()
                .map(|point| Circle::new(*point, 3, colour(at).filled()));
            chart.draw_series(dots)?;
        }
        chart.draw_series(LineSeries::new(line, style))?;
    }
    Ok(())
}
