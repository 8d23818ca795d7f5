//! The common parts of all charts: the drawn SVG, colours, text, and the legend.

use std::collections::HashMap;

use inputs::border;
use plotters::coord::Shift;
use plotters::prelude::*;

// Placeholder colours of text and background, replaced for a file or for a page.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
const INK_TEXT: &str = "#010203";
const PAPER: RGBColor = RGBColor(253, 254, 253);
const PAPER_TEXT: &str = "#FDFEFD";

/// Okabe and Ito's palette, distinguishable with any colour vision, and a grey.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];

/// The colour of a line, bar or point by its number; more than seven repeat.
pub(super) fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// A drawn chart with placeholder colours.
pub(super) struct Chart {
    svg: String,
    /// Texts of the chart, each with the anchor on the page that it links to.
    links: Vec<(String, String)>,
}

impl Chart {
    /// Makes texts of the chart links on a page.
    pub(super) fn with_links(self, links: Vec<(String, String)>) -> Self {
        Self { links, ..self }
    }

    /// The SVG for a file, on white.
    pub(super) fn for_file(&self) -> String {
        self.svg
            .replace(INK_TEXT, "#1d2125")
            .replace(PAPER_TEXT, "#ffffff")
    }

    /// The SVG for a page, in the page's text and background colours.
    pub(super) fn for_page(&self) -> String {
        let svg = self
            .svg
            .replace(INK_TEXT, "currentColor")
            .replace(PAPER_TEXT, "none");
        let mut links = HashMap::new();
        for (text, anchor) in &self.links {
            let link = links.entry(border::xml(text));
            link.or_insert_with(|| border::xml(anchor));
        }
        // A text stands between `>` and `</text>`, on a line of its own.
        let mut linked = String::with_capacity(svg.len());
        for line in svg.split_inclusive('\n') {
            let anchor = links.get(line.trim_end_matches('\n'));
            match anchor.filter(|_| linked.ends_with(">\n")) {
                Some(anchor) => {
                    linked.pop();
                    linked += &format!("<a href=\"#{anchor}\">{}</a>", line.trim_end());
                }
                None => linked += line,
            }
        }
        linked
    }
}

/// Why a chart could not be drawn.
pub(super) type DrawError = Box<dyn std::error::Error + Send + Sync>;

/// The drawing area of a chart.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a chart of a size in pixels.
pub(super) fn draw(
    size: (u32, u32),
    paint: impl FnOnce(&Area<'_>) -> Result<(), DrawError>,
) -> Result<Chart, DrawError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&PAPER)?;
        paint(&area)?;
        area.present()?;
    }
    Ok(Chart {
        svg,
        links: Vec::new(),
    })
}

/// Writes a text, whose upper left corner is at `at`.
pub(super) fn write(
    area: &Area<'_>,
    text: impl Into<String>,
    at: (i32, i32),
    size: u32,
) -> Result<(), DrawError> {
    write_styled(area, text, at, text_style(size))
}

/// As [`write`], in a style. All texts of charts that are not constants go through here.
pub(super) fn write_styled(
    area: &Area<'_>,
    text: impl Into<String>,
    at: (i32, i32),
    style: TextStyle<'_>,
) -> Result<(), DrawError> {
    // A label that is wider than the chart tells nothing more.
    let text: String = border::html(&text.into()).chars().take(120).collect();
    Ok(area.draw(&Text::new(text, at, style))?)
}

/// Draws a straight line.
pub(super) fn line(
    area: &Area<'_>,
    ends: [(i32, i32); 2],
    style: impl Into<ShapeStyle>,
) -> Result<(), DrawError> {
    Ok(area.draw(&PathElement::new(ends.to_vec(), style))?)
}

/// The width of labels in pixels, at about 7 pixels per character.
pub(super) fn label_width<'a>(labels: impl Iterator<Item = &'a str>) -> i32 {
    const LONGEST: usize = 60;
    let longest = labels.map(|label| label.chars().count()).max().unwrap_or(0);
    20 + 7 * longest.min(LONGEST) as i32
}

pub(super) fn text_style(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

pub(super) fn legend(
    area: &Area<'_>,
    left: i32,
    entries: &[(&str, RGBColor)],
) -> Result<(), DrawError> {
    let mut at = left;
    for (name, colour) in entries {
        area.draw(&Circle::new((at, 16), 5, colour.filled()))?;
        write(area, *name, (at + 10, 9), 14)?;
        at = at.saturating_add(34 + 8 * name.chars().count() as i32);
    }
    Ok(())
}
