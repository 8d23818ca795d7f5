//! A heat table as SVG, for the page of a fault run: coloured cells with short texts.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::drawing::{
    Area, Chart, DrawError, INK, SMALL, Side, TEXT, TITLE, draw, fit, line, text_style, width, write, write_bold,
    write_styled,
};

/// Height of a row, in pixels.
const ROW: u32 = 22;
/// Minimum and maximum width of a column, in pixels.
const COLUMN: (i32, i32) = (76, 240);
/// Maximum width of the names of rows, in pixels.
const NAMES: i32 = 300;

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
pub(super) fn heat_table(columns: &[&str], rows: &[HeatRow], legend: &[(&str, RGBColor)]) -> Result<Chart, DrawError> {
    let names = rows.iter().map(|row| match row {
        HeatRow::Heading(name) => width(name, TITLE) * 10 / 9,
        HeatRow::Cells(name, _) => width(name, TEXT),
    });
    let left = names.max().unwrap_or(0).min(NAMES) + 20;
    let texts = rows.iter().flat_map(|row| match row {
        HeatRow::Heading(_) => &[][..],
        HeatRow::Cells(_, cells) => cells,
    });
    let texts = texts.flatten().map(|cell| width(&cell.text, SMALL) + 12);
    let heads = columns.iter().map(|name| width(name, TEXT) + 10);
    let column = heads.chain(texts).max().unwrap_or(0).clamp(COLUMN.0, COLUMN.1);
    let all = (left + column * columns.len() as i32 + 12).max(760);
    let (legend_height, places) = legend_places(legend, all);
    let head = legend_height + 30;
    let height = head + ROW as i32 * rows.len() as i32 + 10;
    draw((all as u32, height as u32), |area| {
        draw_legend(area, legend, &places)?;
        let x = |at: usize| left + column * at as i32;
        for (at, name) in columns.iter().enumerate() {
            let name = fit(name, column - 8, TEXT);
            write(area, &name, Side::Left, (x(at) + 4, head - 12), TEXT)?;
        }
        for (number, row) in rows.iter().enumerate() {
            let top = head + ROW as i32 * number as i32;
            let bottom = top + ROW as i32;
            let middle = top + ROW as i32 / 2;
            match row {
                HeatRow::Heading(name) => {
                    let name = fit(name, NAMES * 9 / 10, TITLE);
                    write_bold(area, &name, Side::Left, (8, middle), TITLE)?;
                    line(area, [(8, bottom - 2), (all - 8, bottom - 2)], INK.mix(0.3))?;
                }
                HeatRow::Cells(name, cells) => {
                    let name = fit(name, left - 14, TEXT);
                    write(area, &name, Side::Left, (8, middle), TEXT)?;
                    for (at, cell) in cells.iter().enumerate() {
                        let Some(cell) = cell else { continue };
                        let corners = [(x(at) + 1, top + 1), (x(at) + column - 1, bottom - 1)];
                        area.draw(&Rectangle::new(corners, cell.colour.filled()))?;
                        // The text is on the cell's colour, so a dark page does not change it.
                        let ink = if cell.is_dark { LIGHT } else { DARK };
                        let style = text_style(SMALL).color(&ink);
                        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
                        let text = fit(&cell.text, column - 10, SMALL);
                        write_styled(area, &text, (x(at) + 5, middle), style)?;
                    }
                }
            }
        }
        Ok(())
    })
}

const LIGHT: RGBColor = RGBColor(250, 250, 250);
const DARK: RGBColor = RGBColor(20, 20, 20);

/// The height of a legend, and the place of each of its entries in lines of this width.
fn legend_places(legend: &[(&str, RGBColor)], all: i32) -> (i32, Vec<(i32, i32)>) {
    let (mut at, mut top) = (8, 8);
    let places = legend.iter().map(|(words, _)| {
        let needed = 36 + width(words, TEXT);
        if at > 8 && at + needed > all {
            (at, top) = (8, top + 20);
        }
        let place = (at, top);
        at += needed;
        place
    });
    let places = places.collect();
    (top + 20, places)
}

fn draw_legend(area: &Area<'_>, legend: &[(&str, RGBColor)], places: &[(i32, i32)]) -> Result<(), DrawError> {
    for ((words, colour), (left, top)) in legend.iter().zip(places) {
        let corners = [(*left, *top), (left + 14, top + 14)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        write(area, words, Side::Left, (left + 19, top + 7), TEXT)?;
    }
    Ok(())
}
