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

/// A difference as a ratio above 1, in words: in percent, and from twice on as a ratio.
pub(crate) fn difference(ratio: f64) -> String {
    match ratio < 2.0 {
        true => percent(ratio),
        false => format!("×{}", digits(ratio)),
    }
}

/// The verdict on times that are too short to matter, in words.
pub(crate) const BELOW_WHAT_MATTERS: &str = "below what matters";

/// A share in percent with one significant digit if it is small: 0.000003 is `0.0003 %`.
pub(crate) fn small_share(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = match percent {
        // From 9.5 on, rounding gives another digit before the first one.
        percent if percent > 0.0 => (-(percent / 0.95).log10().floor()).clamp(0.0, 12.0) as usize,
        _ => 0,
    };
    format!("{percent:.digits$} %")
}

/// A comparison in a table: ratio, interval and verdict. Without a ratio where no ratio matters.
pub fn ratio(comparison: &Comparison) -> String {
    let interval = match comparison.interval {
        Some(interval) => format!(" [{:.2}, {:.2}]", interval.low, interval.high),
        None => String::new(),
    };
    let verdict = match (comparison.verdict, comparison.margin.kind) {
        (Verdict::BelowWhatMatters, _) => return BELOW_WHAT_MATTERS.to_owned(),
        (Verdict::Same, MarginKind::Absolute) => {
            "too little to matter (under the margin of a call)".to_owned()
        }
        (Verdict::Same, MarginKind::Session) => {
            "too little to matter (under the margin of a session)".to_owned()
        }
        (Verdict::Undecided, _) => match (&comparison.withheld, comparison.smallest_shown) {
            (Some(why), _) => format!("no verdict: {why}"),
            (None, Some(shown)) => format!("undecided (this run can show {})", difference(shown)),
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
    use stats::{Margin, Ratios, compare};

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
        let differences = [1.0, 1.015, 1.99, 2.0, 27.36].map(difference);
        assert_eq!(differences, ["0.0 %", "1.5 %", "99.0 %", "×2.00", "×27.4"]);
    }

    #[test]
    fn a_small_share_keeps_one_significant_digit() {
        let shares = [0.0, 3.2e-6, 9.7e-6, 9.4e-4, 0.021, 0.5, 1.0].map(small_share);
        let expected = [
            "0 %", "0.0003 %", "0.001 %", "0.09 %", "2 %", "50 %", "100 %",
        ];
        assert_eq!(shares, expected);
    }

    #[test]
    fn a_cell_says_what_its_run_can_show_and_no_ratio_where_none_matters() {
        let margin = |ratio, kind| Margin { ratio, kind };
        let compared = |center: f64, margin| {
            let epochs = [-0.02, 0.0, 0.02].map(|apart| vec![center.ln() + apart]);
            ratio(&compare(&Ratios::undisturbed(epochs.to_vec()), 0.01, margin).unwrap())
        };
        let relative = margin(1.05, MarginKind::Relative);
        assert_eq!(
            compared(1.1, relative),
            "×1.10 [0.98, 1.23] undecided (this run can show 12.1 %)"
        );
        assert_eq!(compared(2.0, relative), "×2.00 [1.78, 2.24] worse");
        let wide = margin(97.0, MarginKind::Session);
        assert_eq!(compared(0.47, wide), "below what matters");
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
