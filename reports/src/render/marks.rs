//! The colour and shape of each arm and context policy: one pair in the whole report.

use std::collections::HashMap;

use plotters::prelude::*;

use super::drawing::{Area, Chart, DrawError, INK, draw};
use super::report::Report;

/// Colours with a contrast of at least 3 on a light and on a dark page. Neighbours and their order are chosen so that two
/// marks of one shape differ for a reader with any colour vision; a test measures that.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(122, 122, 122),
    RGBColor(58, 143, 208),
    RGBColor(176, 83, 154),
    RGBColor(169, 127, 0),
    RGBColor(0, 158, 115),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Cross,
}

const SHAPES: [Shape; 6] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Down, Shape::Cross];

/// A colour and a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) colour: RGBColor,
    shape: Shape,
}

impl Mark {
    /// The mark of a name by its place among all names. The first, the baseline, has the colour of the text.
    fn at(place: usize) -> Self {
        let colour = match place.checked_sub(1) {
            None => INK,
            Some(number) => COLOURS[number % COLOURS.len()],
        };
        Self { colour, shape: SHAPES[place % SHAPES.len()] }
    }

    /// Draws the mark, about nine pixels wide.
    pub(super) fn draw(self, area: &Area<'_>, (x, y): (i32, i32)) -> Result<(), DrawError> {
        let fill = self.colour.filled();
        let corners = |corners: &[(i32, i32)]| -> Vec<(i32, i32)> {
            corners.iter().map(|(right, down)| (x + right, y + down)).collect()
        };
        match self.shape {
            Shape::Circle => area.draw(&Circle::new((x, y), 4, fill))?,
            Shape::Square => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], fill))?,
            Shape::Triangle => {
                area.draw(&Polygon::new(corners(&[(0, -5), (5, 4), (-5, 4)]), fill))?;
            }
            Shape::Diamond => {
                let corners = corners(&[(0, -5), (5, 0), (0, 5), (-5, 0)]);
                area.draw(&Polygon::new(corners, fill))?;
            }
            Shape::Down => {
                area.draw(&Polygon::new(corners(&[(-5, -4), (5, -4), (0, 5)]), fill))?;
            }
            Shape::Cross => {
                // Both strokes are one line, back through the middle: a cross is the mark with the most bytes.
                let ends = corners(&[(-4, -4), (4, 4), (0, 0), (-4, 4), (4, -4)]);
                area.draw(&PathElement::new(ends, self.colour.stroke_width(3)))?;
            }
        }
        Ok(())
    }

    /// The mark alone, for a legend.
    pub(super) fn alone(self) -> Result<Chart, DrawError> {
        draw((14, 14), |area| self.draw(area, (7, 7)))
    }
}

/// The marks of all names of a report.
pub(super) struct Marks(HashMap<String, usize>);

impl Marks {
    /// The marks of a report's arms, then of candidates of other runs, then of context policies.
    pub(super) fn of(report: &Report<'_>) -> Self {
        let baseline = report.summary.baseline.as_str();
        let arms = report.arms().into_iter();
        let candidates = report.decisions.iter().map(|decision| decision.candidate.as_str());
        let policies = report.contexts.costs.iter().map(|cost| cost.policy.as_str());
        Self::of_names(std::iter::once(baseline).chain(arms).chain(candidates).chain(policies))
    }

    /// The marks of names; the first is the baseline.
    pub(super) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut marks = HashMap::new();
        for name in names {
            let place = marks.len();
            marks.entry(name.to_owned()).or_insert(place);
        }
        Self(marks)
    }

    /// The mark of a name; that of an unknown name is the one after the last.
    pub(super) fn get(&self, name: &str) -> Mark {
        Mark::at(self.0.get(name).copied().unwrap_or(self.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machado, Oliveira and Fernandes' matrices for protanopia, deuteranopia and tritanopia, and no change.
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]],
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]],
        [[1.255_528, -0.076_749, -0.178_779], [-0.078_411, 0.930_809, 0.147_602], [0.004_733, 0.691_367, 0.303_900]],
    ];

    fn linear(colour: RGBColor) -> [f64; 3] {
        [colour.0, colour.1, colour.2].map(|channel| {
            let share = f64::from(channel) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance(colour: RGBColor) -> f64 {
        let [r, g, b] = linear(colour);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// CIE 1976 L*a*b* of a colour as a vision sees it.
    fn lab(colour: RGBColor, vision: &[[f64; 3]; 3]) -> [f64; 3] {
        let seen = linear(colour);
        let of = |weights: &[f64; 3]| {
            let sum: f64 = weights.iter().zip(seen).map(|(weight, share)| weight * share).sum();
            sum.clamp(0.0, 1.0)
        };
        let [r, g, b] = [of(&vision[0]), of(&vision[1]), of(&vision[2])];
        let root = |share: f64| if share > 0.008_856 { share.cbrt() } else { 7.787 * share + 16.0 / 116.0 };
        let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn difference(one: RGBColor, other: RGBColor) -> f64 {
        let differences = VISIONS.iter().map(|vision| {
            let (one, other) = (lab(one, vision), lab(other, vision));
            let squares = one.iter().zip(other).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        });
        differences.fold(f64::MAX, f64::min)
    }

    #[test]
    fn eighteen_arms_have_marks_that_any_eye_tells_apart() {
        let marks: Vec<Mark> = (0..18).map(Mark::at).collect();
        for (at, one) in marks.iter().enumerate() {
            for other in &marks[at + 1..] {
                let differs = one.shape != other.shape || difference(one.colour, other.colour) > 15.0;
                assert!(differs, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn every_colour_stands_out_on_light_and_dark_pages() {
        let (light, dark) = (RGBColor(252, 252, 250), RGBColor(22, 25, 28));
        for colour in COLOURS {
            let contrast = |page: RGBColor| {
                let (one, other) = (luminance(colour) + 0.05, luminance(page) + 0.05);
                one.max(other) / one.min(other)
            };
            assert!(contrast(light) >= 3.0, "{colour:?}: {}", contrast(light));
            assert!(contrast(dark) >= 3.0, "{colour:?}: {}", contrast(dark));
        }
    }

    #[test]
    fn a_name_keeps_its_mark_wherever_it_is_drawn() {
        let marks = Marks::of_names(["direct", "sqlite", "direct", "s3"].into_iter());
        assert_eq!(marks.get("direct"), Mark::at(0));
        assert_eq!(marks.get("s3"), Mark::at(2));
        assert_eq!(marks.get("unknown"), Mark::at(3));
    }
}
