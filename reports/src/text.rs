//! Formats of numbers and plain tables.

use inputs::border;
use stats::{Comparison, MarginKind, Verdict};

/// A time with a suitable unit: `5.3 µs`.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// A number with three significant digits; digits before the point are all kept.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A whole number with thousands separated.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A ratio's excess over 1 in percent: 1.05 is `5 %`.
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", (ratio - 1.0) * 100.0)
}

/// A comparison in a table: ratio, interval and verdict.
pub fn ratio(comparison: &Comparison) -> String {
    let interval = match comparison.interval {
        Some(interval) => format!(" [{:.2}, {:.2}]", interval.low, interval.high),
        None => String::new(),
    };
    let verdict = match (comparison.verdict, comparison.margin.kind) {
        (Verdict::Same, MarginKind::Absolute) => "same (under the margin a call)".to_owned(),
        (Verdict::Same, MarginKind::Session) => "same (under the margin of a session)".to_owned(),
        (Verdict::Undecided, _) => match (&comparison.withheld, comparison.epochs_needed) {
            (Some(why), _) => format!("no verdict: {why}"),
            (None, Some(epochs)) => format!("undecided (about {epochs} epochs would do)"),
            (None, None) => "undecided".to_owned(),
        },
        (verdict, _) => verdict.name().to_owned(),
    };
    format!("×{:.2}{interval} {verdict}", comparison.ratio)
}

/// The columns that a head names, separated by ` | `.
pub fn columns(head: &str) -> Vec<String> {
    head.split(" | ").map(str::to_owned).collect()
}

/// A table for a terminal. Columns fit their content up to 60 characters; longer cells are wrapped.
pub fn table(head: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    const WIDEST: usize = 60;
    let wrapped: Vec<Vec<Vec<String>>> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().map(|cell| border::terminal_cell(cell));
            cells.map(|cell| wrap(&cell, WIDEST)).collect()
        })
        .collect();
    let width = |column: usize| {
        let cells = wrapped.iter().filter_map(|row| row.get(column)).flatten();
        let widest = cells.map(|line| line.chars().count()).max().unwrap_or(0);
        widest.max(head[column].as_ref().chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    let mut text = line(head.iter().map(AsRef::as_ref).collect());
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    text += &line(rules.iter().map(String::as_str).collect());
    for row in &wrapped {
        let height = row.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            let cells = row
                .iter()
                .map(|cell| cell.get(at).map_or("", String::as_str));
            text += &line(cells.collect());
        }
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut();
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_three_digits() {
        let times = [7.0, 530.2, 5321.0, 99_960.0, 1_234_567.0, 2e9].map(time);
        assert_eq!(
            times,
            [
                "7.00 ns", "530 ns", "5.32 µs", "100 µs", "1.23 ms", "2.00 s"
            ]
        );
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(percent(1.053), "5.3 %");
    }

    #[test]
    fn a_table_keeps_its_columns_and_wraps_long_cells() {
        let long = "word ".repeat(20);
        let rows = vec![
            vec!["a".to_owned(), long.trim().to_owned()],
            vec!["µµ".to_owned(), "b".to_owned()],
        ];
        insta::assert_snapshot!(table(&["x", "y"], &rows), @r"
        x   y
        --  -----------------------------------------------------------
        a   word word word word word word word word word word word word
            word word word word word word word word
        µµ  b
        ");
    }
}
