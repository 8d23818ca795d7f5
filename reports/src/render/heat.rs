//! A heat table as SVG: coloured cells with short texts.

use plotters::prelude::*;

use super::drawing::{Area, Chart, DrawError, INK, draw, label_width, line, write, write_styled};

/// Height of a row, in pixels.
const ROW: u32 = 22;
/// Height of the legend and the column names above the table, in pixels.
const TOP: u32 = 84;
/// Minimum width of a column, in pixels.
const NARROWEST: u32 = 104;

pub(super) struct HeatCell {
    /// Its text, a few letters.
    pub(super) text: String,
    pub(super) colour: RGBColor,
    /// Whether the colour is dark and needs light text.
    pub(super) is_dark: bool,
}

/// A row, or the heading of the following rows.
pub(super) enum HeatRow {
    Heading(String),
    /// A name, and a cell for each column; `None` leaves it empty.
    Cells(String, Vec<Option<HeatCell>>),
}

/// Draws the table; `legend` names the colours.
pub(super) fn heat_table(
    columns: &[&str],
    rows: &[HeatRow],
    legend: &[(&str, RGBColor)],
) -> Result<Chart, DrawError> {
    let names = rows.iter().map(|row| match row {
        HeatRow::Heading(name) | HeatRow::Cells(name, _) => name.as_str(),
    });
    let left = label_width(names);
    let widest = columns.iter().map(|name| name.len() as u32 * 8 + 12).max();
    let column = widest.unwrap_or(0).max(NARROWEST);
    let width = (left as u32 + column * columns.len() as u32 + 12).max(760);
    let height = TOP + ROW * rows.len() as u32 + 10;
    draw((width, height), |area| {
        draw_legend(area, legend, width as i32)?;
        let x = |at: usize| left + (column * at as u32) as i32;
        for (at, name) in columns.iter().enumerate() {
            write(area, *name, (x(at) + 4, TOP as i32 - 20), 13)?;
        }
        for (number, row) in rows.iter().enumerate() {
            let top = (TOP + ROW * number as u32) as i32;
            let bottom = top + ROW as i32;
            match row {
                HeatRow::Heading(name) => {
                    write(area, name.as_str(), (8, top + 5), 15)?;
                    let ends = [(8, bottom - 2), (width as i32 - 8, bottom - 2)];
                    line(area, ends, INK.mix(0.3))?;
                }
                HeatRow::Cells(name, cells) => {
                    write(area, name.as_str(), (8, top + 4), 13)?;
                    for (at, cell) in cells.iter().enumerate() {
                        let Some(cell) = cell else { continue };
                        let right = x(at) + column as i32;
                        let corners = [(x(at) + 1, top + 1), (right - 1, bottom - 1)];
                        area.draw(&Rectangle::new(corners, cell.colour.filled()))?;
                        // The text is on the cell's colour, so a dark page does not change it.
                        let ink = if cell.is_dark { LIGHT } else { DARK };
                        let style = ("sans-serif", 12).into_font().color(&ink);
                        write_styled(area, cell.text.as_str(), (x(at) + 5, top + 5), style)?;
                    }
                }
            }
        }
        Ok(())
    })
}

const LIGHT: RGBColor = RGBColor(250, 250, 250);
const DARK: RGBColor = RGBColor(20, 20, 20);

fn draw_legend(area: &Area<'_>, legend: &[(&str, RGBColor)], width: i32) -> Result<(), DrawError> {
    let (mut at, mut top) = (8, 8);
    for (words, colour) in legend {
        let needed = 30 + 7 * words.len() as i32;
        if at + needed > width {
            (at, top) = (8, top + 20);
        }
        let corners = [(at, top), (at + 14, top + 14)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        write(area, *words, (at + 19, top), 13)?;
        at += needed;
    }
    Ok(())
}
