//! The common parts of all charts: panels, text that fits, and SVG for a page or a file.
//!
//! A chart is a picture of panels. A panel is as wide as a phone shows at its natural size, so that its text is never
//! scaled; a page lets panels flow beside each other, and a file has them in a grid.

use std::collections::HashMap;

use inputs::border;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

// Placeholder colours of text and background, replaced for a file or for a page.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
const INK_TEXT: &str = "#010203";
const PAPER: RGBColor = RGBColor(253, 254, 253);
const PAPER_TEXT: &str = "#FDFEFD";

/// The width of a panel in pixels: a phone of 360 pixels has it between its margins.
pub(super) const PANEL: u32 = 328;
/// The most panels of a picture; the tables have the others.
pub(super) const MOST_PANELS: usize = 24;
/// Pixels between the panels of a file.
const GAP: u32 = 24;
/// The most panels beside each other in a file.
const ACROSS: usize = 3;

/// Sizes of text in pixels: of a title, of labels, of ticks.
pub(super) const TITLE: u32 = 13;
pub(super) const TEXT: u32 = 12;
pub(super) const SMALL: u32 = 11;

/// A drawn panel with placeholder colours.
pub(super) struct Chart {
    svg: String,
    size: (u32, u32),
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
        self.svg.replace(INK_TEXT, "#1d2125").replace(PAPER_TEXT, "#ffffff")
    }

    /// The SVG for a page, in the page's text and background colours.
    pub(super) fn for_page(&self) -> String {
        let svg = self.svg.replace(INK_TEXT, "currentColor").replace(PAPER_TEXT, "none");
        let mut links = HashMap::new();
        for (text, anchor) in &self.links {
            let link = links.entry(border::xml(&shown(text)));
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
        compacted(linked)
    }
}

/// A drawing without the attributes that the style sheet of a page sets for all drawings: attributes of texts are most
/// of a chart's bytes. No text has these bytes, because its quotes are encoded.
fn compacted(mut svg: String) -> String {
    for (long, short) in [
        (" opacity=\"1\"", ""),
        (" stroke=\"none\"", ""),
        (" stroke-width=\"1\"", ""),
        (" font-family=\"sans-serif\"", ""),
        (" text-anchor=\"start\"", ""),
        (" dy=\"0.5ex\"", ""),
        (" font-size=\"12\"", ""),
        ("font-size=\"13.000000000000002\"", "font-size=\"13\""),
        (" fill=\"currentColor\"", ""),
        ("<polyline fill=\"none\"", "<polyline"),
        (" \"/>", "\"/>"),
        ("opacity=\"0.13\" stroke=\"currentColor\"", "class=\"g\""),
        ("opacity=\"0.3\" stroke=\"currentColor\"", "class=\"h\""),
        ("text-anchor=\"middle\" font-size=\"11\"", "class=\"m\""),
        ("text-anchor=\"end\" font-size=\"11\"", "class=\"e\""),
        ("font-size=\"11\"", "class=\"s\""),
        ("font-size=\"13\" font-weight=\"bold\"", "class=\"t\""),
        (" xmlns=\"http://www.w3.org/2000/svg\"", ""),
        ("\">\n", "\">"),
        ("\n</", "</"),
        ("/>\n", "/>"),
        ("</text>\n", "</text>"),
    ] {
        svg = svg.replace(long, short);
    }
    // The ground of a chart, which is transparent on a page.
    let ground = "<rect x=\"0\" y=\"0\"";
    if let Some((before, rest)) = svg.split_once(ground)
        && let Some((attributes, after)) = rest.split_once("/>")
        && attributes.ends_with(" fill=\"none\"")
    {
        svg = format!("{before}{after}");
    }
    unquoted(&svg)
}

/// A drawing whose attributes have no quotes where HTML lets a page omit them: around letters, digits, `#`, `.` and `-`.
fn unquoted(svg: &str) -> String {
    let mut short = String::with_capacity(svg.len());
    let mut rest = svg;
    while let Some((before, (value, after))) =
        rest.split_once("=\"").and_then(|(before, after)| Some((before, after.split_once('"')?)))
    {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '.' | '-');
        short += before;
        match !value.is_empty() && value.chars().all(is_plain) {
            // A slash behind the value would be a part of it.
            true if after.starts_with('/') => short += &format!("={value} "),
            true => short += &format!("={value}"),
            false => short += &format!("=\"{value}\""),
        }
        rest = after;
    }
    short + rest
}

/// A chart as panels.
pub(super) struct Picture(pub(super) Vec<Chart>);

impl Picture {
    /// One file with all panels. Written by hand, because plotters cannot put one drawing into another.
    pub(super) fn for_file(&self) -> String {
        if let [only] = &self.0[..] {
            return only.for_file();
        }
        let mut placed = String::new();
        let (mut top, mut widest) = (GAP, 0);
        for row in self.0.chunks(ACROSS) {
            let mut left = GAP;
            for panel in row {
                let at = format!("<svg x=\"{left}\" y=\"{top}\" ");
                placed += &panel.for_file().replacen("<svg ", &at, 1);
                left += panel.size.0 + GAP;
            }
            widest = widest.max(left);
            top += row.iter().map(|panel| panel.size.1).max().unwrap_or(0) + GAP;
        }
        format!(
            "<svg width=\"{widest}\" height=\"{top}\" viewBox=\"0 0 {widest} {top}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <rect width=\"{widest}\" height=\"{top}\" fill=\"#ffffff\"/>\n{placed}</svg>\n"
        )
    }

    /// The panels for a page, one after the other.
    pub(super) fn for_page(&self) -> String {
        self.0.iter().map(Chart::for_page).collect()
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
    Ok(Chart { svg, size, links: Vec::new() })
}

/// The side of a text at which its place is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Middle,
    Right,
}

/// Writes a text at a height, from, around or up to a place.
pub(super) fn write(area: &Area<'_>, text: &str, side: Side, at: (i32, i32), size: u32) -> Result<(), DrawError> {
    write_styled(area, text, at, aligned(text_style(size), side))
}

/// As [`write`], bold.
pub(super) fn write_bold(area: &Area<'_>, text: &str, side: Side, at: (i32, i32), size: u32) -> Result<(), DrawError> {
    let font = ("sans-serif", pixels(size)).into_font();
    let style = font.style(FontStyle::Bold).color(&INK);
    write_styled(area, text, at, aligned(style, side))
}

/// As [`write`], in a style. All texts of charts that are not constants go through here.
pub(super) fn write_styled(area: &Area<'_>, text: &str, at: (i32, i32), style: TextStyle<'_>) -> Result<(), DrawError> {
    Ok(area.draw(&Text::new(shown(text), at, style))?)
}

fn aligned(style: TextStyle<'_>, side: Side) -> TextStyle<'_> {
    let side = match side {
        Side::Left => HPos::Left,
        Side::Middle => HPos::Center,
        Side::Right => HPos::Right,
    };
    style.pos(Pos::new(side, VPos::Center))
}

/// Draws a straight line.
pub(super) fn line(area: &Area<'_>, ends: [(i32, i32); 2], style: impl Into<ShapeStyle>) -> Result<(), DrawError> {
    Ok(area.draw(&PathElement::new(ends.to_vec(), style))?)
}

/// The font size to request from plotters for a size in pixels.
fn pixels(size: u32) -> f64 {
    f64::from(size) * 1.24
}

pub(super) fn text_style(size: u32) -> TextStyle<'static> {
    ("sans-serif", pixels(size)).into_font().color(&INK)
}

/// A text as a chart shows it: a character whose width is not known is a box, and a long text is cut.
fn shown(text: &str) -> String {
    const LONGEST: usize = 120;
    let known = |c: char| match em(c) {
        Some(_) => c,
        None => '□',
    };
    border::html(text).chars().take(LONGEST).map(known).collect()
}

/// The width of a character in a sans-serif font, as a share of the font's size: at least that of DejaVu Sans, which is
/// wider than others. `None` if it is not known.
fn em(c: char) -> Option<f64> {
    let width = match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | 'I' => 0.34,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '/' | '!' => 0.42,
        'm' | 'M' | 'w' | 'W' | '@' | '%' | '—' | '…' => 1.0,
        '+' | '=' | '<' | '>' | '×' | '±' | '~' | '^' | '÷' | '≤' | '≥' | '#' | '✓' | '✗' => 0.85,
        'a'..='z' | '0'..='9' => 0.64,
        ' '..='~' => 0.79,
        '\u{a0}'..='\u{24f}' | '\u{370}'..='\u{3ff}' => 0.9,
        '\u{400}'..='\u{4ff}' => 1.15,
        '–' | '‹' | '›' | '“' | '”' | '„' | '‘' | '’' | '•' | '†' => 0.65,
        '\u{2190}'..='\u{22ff}' | '\u{2500}'..='\u{27bf}' => 1.05,
        '\u{3000}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' => 1.05,
        _ => return None,
    };
    Some(width)
}

/// The width of a text in pixels, rounded up.
pub(super) fn width(text: &str, size: u32) -> i32 {
    let sum: f64 = shown(text).chars().filter_map(em).sum();
    (sum * f64::from(size)).ceil() as i32
}

/// A text that is at most so many pixels wide; an ellipsis replaces the rest.
pub(super) fn fit(text: &str, pixels: i32, size: u32) -> String {
    let whole = shown(text);
    if width(&whole, size) <= pixels {
        return whole;
    }
    let mut kept = whole;
    while kept.pop().is_some() {
        let shorter = format!("{}…", kept.trim_end());
        if width(&shorter, size) <= pixels {
            return shorter;
        }
    }
    String::new()
}

/// A text in at most two lines, each at most so many pixels wide: broken behind a blank, `-`, `/` or `,`. What the second
/// line has no room for is an ellipsis.
pub(super) fn two_lines(text: &str, pixels: i32, size: u32) -> Vec<String> {
    if width(text, size) <= pixels {
        return vec![shown(text)];
    }
    let mut ends = text.match_indices([' ', '-', '/', ',']).map(|(at, _)| at + 1);
    let first = ends.rfind(|end| width(text[..*end].trim_end(), size) <= pixels);
    match first {
        Some(end) => vec![shown(text[..end].trim_end()), fit(text[end..].trim_start(), pixels, size)],
        None => vec![fit(text, pixels, size)],
    }
}

/// Where labels stand so that none overlaps another: as near as possible to where they belong, in their order, between
/// `top` and `bottom`.
pub(super) fn spread(wanted: &[i32], each: i32, top: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let mut places = vec![0; wanted.len()];
    let mut next = top;
    for at in &order {
        places[*at] = wanted[*at].max(next);
        next = places[*at] + each;
    }
    let mut last = bottom;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(last);
        last = places[*at] - each;
    }
    places
}

/// The part of a panel between its axes, in pixels of the panel.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

impl Frame {
    pub(super) fn x(&self, share: f64) -> i32 {
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    pub(super) fn y(&self, share: f64) -> i32 {
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    /// Draws a line for each tick from top to bottom, with those labels below that touch no label of a tick before it.
    pub(super) fn below(&self, area: &Area<'_>, ticks: &[(f64, String)]) -> Result<(), DrawError> {
        let (panel, _) = area.dim_in_pixel();
        let mut written: Vec<(i32, i32)> = Vec::new();
        for (share, label) in ticks {
            let x = self.x(*share);
            line(area, [(x, self.top), (x, self.bottom)], INK.mix(0.13))?;
            let half = width(label, SMALL) / 2 + 1;
            let middle = x.max(half).min(panel as i32 - half);
            let ends = (middle - half, middle + half);
            if written.iter().all(|other| ends.0 >= other.1 + 6 || ends.1 + 6 <= other.0) {
                write(area, label, Side::Middle, (middle, self.bottom + 10), SMALL)?;
                written.push(ends);
            }
        }
        Ok(())
    }

    /// Draws a line for each tick from left to right, with those labels beside it that do not touch the label before.
    pub(super) fn beside(&self, area: &Area<'_>, ticks: &[(f64, String)]) -> Result<(), DrawError> {
        let mut free = i32::MAX;
        for (share, label) in ticks {
            let y = self.y(*share);
            line(area, [(self.left, y), (self.right, y)], INK.mix(0.13))?;
            if y <= free {
                let label = fit(label, self.left - 6, SMALL);
                write(area, &label, Side::Right, (self.left - 4, y), SMALL)?;
                free = y - 14;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_does_not_fit_ends_with_an_ellipsis() {
        assert_eq!(fit("sqlite", 200, TEXT), "sqlite");
        let cut = fit("a-backend-with-a-very-long-name", 80, TEXT);
        assert!(cut.ends_with('…') && width(&cut, TEXT) <= 80, "{cut}");
        assert_eq!(two_lines("sqlite", 200, TEXT), ["sqlite"]);
        assert_eq!(two_lines("a-backend-with-a-very-long-name", 130, TEXT), ["a-backend-with-a-", "very-long-name"]);
        assert_eq!(two_lines("abcdefghijklmnopqrstuvwxyz", 80, TEXT), [fit("abcdefghijklmnopqrstuvwxyz", 80, TEXT)]);
        // One ligature can be ten characters wide, and a mark above a letter has no width.
        assert_eq!(fit("a\u{fdfd}\u{301}", 80, TEXT), "a□□");
    }

    #[test]
    fn a_picture_of_many_panels_is_one_file() {
        let panel = || draw((PANEL, 40), |area| write(area, "a<b", Side::Left, (4, 20), TEXT)).unwrap();
        let picture = Picture((0..4).map(|_| panel()).collect());
        let file = picture.for_file();
        assert_eq!(file.matches("<svg ").count(), 5);
        assert!(file.starts_with("<svg width=\"1080\" height=\"152\""), "{file}");
        assert_eq!(picture.for_page().matches("<svg ").count(), 4);
        assert!(!picture.for_page().contains("#010203"));
    }

    #[test]
    fn only_attributes_that_need_no_quotes_lose_them() {
        let svg = "<rect x=\"1\" fill=\"#7A7A7A\"/><polyline points=\"1,2 3,4\"/><text class=\"s\">a=&quot;b</text><a href=\"#c1\"></a><g id=\"\"/>";
        assert_eq!(
            unquoted(svg),
            "<rect x=1 fill=#7A7A7A /><polyline points=\"1,2 3,4\"/><text class=s>a=&quot;b</text><a href=#c1></a><g id=\"\"/>"
        );
    }

    proptest! {
        #[test]
        fn labels_that_have_room_never_overlap(wanted in prop::collection::vec(-50i32..300, 0..12)) {
            let places = spread(&wanted, 14, 10, 180);
            let mut sorted = places.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 14), "{places:?}");
            prop_assert!(places.iter().all(|place| (10..=180).contains(place)), "{places:?}");
        }
    }
}
