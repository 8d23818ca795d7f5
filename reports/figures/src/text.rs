//! Formats of numbers, and plain tables and paragraphs for a terminal.

use inputs::border;
use stats::{Comparison, Interval, MarginKind, Verdict};
use unicode_width::UnicodeWidthStr;

/// The most columns of a line for a terminal. Only a path or a command may be wider, so that it can be copied.
pub const TERMINAL: usize = 100;

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

/// A number of things, whose plural ends with `s`: `1 cell`, `1,200 cells`.
pub fn number_of(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", count(number as u64))
}

/// A title inside a sentence. A name or an abbreviation keeps its letters.
pub fn lower(text: &str) -> String {
    let mut letters = text.chars();
    let (first, second) = (letters.next(), letters.next());
    match (first, second) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            let rest = &text[first.len_utf8()..];
            first.to_lowercase().collect::<String>() + rest
        }
        _ => text.to_owned(),
    }
}

/// A ratio's excess over 1 in percent: 1.05 is `5 %`.
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", (ratio - 1.0) * 100.0)
}

/// A difference as a ratio above 1, in words: in percent, and from twice on as a ratio.
pub fn difference(ratio: f64) -> String {
    if ratio < 2.0 { percent(ratio) } else { format!("×{}", digits(ratio)) }
}

/// The verdict on times that are too short to matter, in words.
pub const BELOW_WHAT_MATTERS: &str = "below what matters";

/// An interval behind its figure, ` [1.52, 1.69]`; empty if both ends are written like the figure.
pub fn interval_words(figure: &str, low: &str, high: &str) -> String {
    if figure == low && figure == high { String::new() } else { format!(" [{low}, {high}]") }
}

/// A ratio with two places and its interval: `×1.60 [1.52, 1.69]`.
pub fn ratio_with_interval(ratio: f64, interval: Option<Interval>) -> String {
    let [figure, low, high] = match interval {
        Some(interval) => [ratio, interval.low, interval.high],
        None => [ratio; 3],
    }
    .map(|end| format!("{end:.2}"));
    format!("×{figure}{}", interval_words(&figure, &low, &high))
}

/// A share in percent with one significant digit if it is small: 0.000003 is `0.0003 %`.
pub fn small_share(share: f64) -> String {
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
    let verdict = match (comparison.verdict, comparison.margin.kind) {
        (Verdict::BelowWhatMatters, _) => return BELOW_WHAT_MATTERS.to_owned(),
        (Verdict::Same, MarginKind::Absolute) => "too little to matter (under the margin of a call)".to_owned(),
        (Verdict::Same, MarginKind::Session) => "too little to matter (under the margin of a session)".to_owned(),
        (Verdict::Undecided, _) => match (&comparison.withheld, comparison.interval) {
            (Some(why), _) => format!("no verdict: {why}"),
            (None, Some(_)) => {
                let edge = comparison.margin.ratio;
                format!("undecided (margin ×{:.2} to ×{edge:.2})", 1.0 / edge)
            }
            (None, None) => "undecided".to_owned(),
        },
        (verdict, _) => verdict.name().to_owned(),
    };
    format!("{} {verdict}", ratio_with_interval(comparison.ratio, comparison.interval))
}

/// The columns that a head names, separated by ` | `.
pub fn columns(head: &str) -> Vec<String> {
    head.split(" | ").map(str::to_owned).collect()
}

/// The widest column of a table.
const WIDEST: usize = 60;

/// Columns between two columns of a table.
const GAP: usize = 2;

/// The widths of columns that fit into a line for a terminal, from the widths of their content. The widest columns give way
/// first, but none below the width of its longest word.
fn fitted(mut widths: Vec<usize>, words: &[usize]) -> Vec<usize> {
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > TERMINAL {
        let columns = widths.iter().enumerate();
        let wide = columns.filter(|(at, width)| **width > words[*at]);
        let Some((widest, _)) = wide.max_by_key(|(_, width)| **width) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}

/// A table for a terminal. Columns fit their content up to 60 characters, and all of them a line; longer cells are wrapped.
pub fn table(head: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| cell.as_ref().to_owned()).collect();
    let plain = |row: &Vec<String>| {
        let cells = row.iter().map(|cell| border::terminal_cell(cell));
        cells.collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(plain).collect();
    let of_column = |column: usize| {
        let cells = std::iter::once(&head).chain(&rows);
        cells.filter_map(move |row| row.get(column))
    };
    let widest = |column: usize| {
        let widths = of_column(column).map(|cell| cell.width());
        widths.max().unwrap_or(0).min(WIDEST)
    };
    let longest_word = |column: usize| {
        let words = of_column(column).flat_map(|cell| cell.split(' '));
        words.map(|word| word.width()).max().unwrap_or(0)
    };
    let words: Vec<usize> = (0..head.len()).map(longest_word).collect();
    let limits = fitted((0..head.len()).map(widest).collect(), &words);
    let wrapped = |row: &Vec<String>| {
        let cells = row.iter().zip(&limits);
        let cells = cells.map(|(cell, limit)| wrap(cell.split(' '), *limit));
        cells.collect::<Vec<Vec<String>>>()
    };
    let head = wrapped(&head);
    let wrapped: Vec<Vec<Vec<String>>> = rows.iter().map(wrapped).collect();
    let width = |column: usize| {
        let rows = std::iter::once(&head).chain(&wrapped);
        let cells = rows.filter_map(|row| row.get(column)).flatten();
        cells.map(|line| line.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width()))));
        let line = padded.collect::<Vec<_>>().join(&" ".repeat(GAP));
        format!("{}\n", line.trim_end())
    };
    let lines = |row: &Vec<Vec<String>>| {
        let height = row.iter().map(Vec::len).max().unwrap_or(1);
        let lines = (0..height).map(|at| {
            let cells = row.iter();
            let cells = cells.map(|cell| cell.get(at).map_or("", String::as_str));
            line(cells.collect())
        });
        lines.collect::<String>()
    };
    let mut text = lines(&head);
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    text += &line(rules.iter().map(String::as_str).collect());
    for row in &wrapped {
        text += &lines(row);
    }
    text
}

/// A paragraph for a terminal, whose lines begin with `indent` and the first with `first`. A command stays whole.
pub fn paragraph(first: &str, indent: &str, text: &str) -> String {
    let text = border::terminal_cell(text);
    let widest = first.width().max(indent.width());
    let lines = wrap(unbroken(&text), TERMINAL.saturating_sub(widest));
    let starts = std::iter::once(first).chain(std::iter::repeat(indent));
    let lines = starts.zip(&lines).map(|(start, line)| format!("{start}{line}\n"));
    lines.collect()
}

/// The words of a text. A command between backticks or in brackets is one word.
fn unbroken(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = if let Some(quoted) = rest.strip_prefix('`') {
            quoted.find('`').map_or(0, |at| at + 2)
        } else if rest.starts_with("(ctxbench ") {
            rest.find(')').map_or(0, |at| at + 1)
        } else {
            0
        };
        let end = rest[end..].find(' ').map_or(rest.len(), |at| end + at);
        let word = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or("");
        Some(word)
    })
}

fn wrap<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let last = lines.last_mut();
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= width => {
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
        assert_eq!(times, ["7.00 ns", "530 ns", "5.32 µs", "100 µs", "1.23 ms", "2.00 s"]);
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(percent(1.053), "5.3 %");
        let differences = [1.0, 1.015, 1.99, 2.0, 27.36].map(difference);
        assert_eq!(differences, ["0.0 %", "1.5 %", "99.0 %", "×2.00", "×27.4"]);
    }

    #[test]
    fn a_small_share_keeps_one_significant_digit() {
        let shares = [0.0, 3.2e-6, 9.7e-6, 9.4e-4, 0.021, 0.5, 1.0].map(small_share);
        let expected = ["0 %", "0.0003 %", "0.001 %", "0.09 %", "2 %", "50 %", "100 %"];
        assert_eq!(shares, expected);
    }

    #[test]
    fn an_undecided_cell_shows_its_margin_and_no_ratio_where_none_matters() {
        let margin = |ratio, kind| Margin { ratio, kind };
        let compared = |center: f64, margin| {
            let epochs = [-0.02, 0.0, 0.02].map(|apart| vec![center.ln() + apart]);
            ratio(&compare(&Ratios::undisturbed(epochs.to_vec()), 0.01, margin).unwrap())
        };
        let relative = margin(1.05, MarginKind::Relative);
        assert_eq!(compared(1.1, relative), "×1.10 [0.98, 1.23] undecided (margin ×0.95 to ×1.05)");
        assert_eq!(compared(2.0, relative), "×2.00 [1.78, 2.24] worse");
        let wide = margin(97.0, MarginKind::Session);
        assert_eq!(compared(0.47, wide), "below what matters");
    }

    #[test]
    fn an_interval_that_is_written_like_its_figure_is_left_out() {
        let interval = |low, high| Some(Interval { low, high });
        let words = [interval(1.52, 1.69), interval(1.599, 1.601), interval(1.6, 1.61), None];
        let words = words.map(|interval| ratio_with_interval(1.6, interval));
        assert_eq!(words, ["×1.60 [1.52, 1.69]", "×1.60", "×1.60 [1.60, 1.61]", "×1.60"]);
    }

    #[test]
    fn a_table_keeps_its_columns_and_wraps_long_cells() {
        let long = "word ".repeat(20);
        let rows = vec![vec!["a".to_owned(), long.trim().to_owned()], vec!["µµ".to_owned(), "b".to_owned()]];
        insta::assert_snapshot!(table(&["x", "y"], &rows), @r"
        x   y
        --  -----------------------------------------------------------
        a   word word word word word word word word word word word word
            word word word word word word word word
        µµ  b
        ");
    }

    #[test]
    fn a_table_fits_a_line_and_its_widest_columns_give_way() {
        let long = "some more words ".repeat(8);
        let row = |name: &str| {
            let cells = [name, "0.1 ms", long.trim(), long.trim(), long.trim()];
            cells.map(str::to_owned).to_vec()
        };
        let text =
            table(&["arm", "time", "one", "two", "three"], &[row("agent/claude-code-write-heavy"), row("short")]);
        let widest = text.lines().map(|line| line.width()).max();
        assert!(widest.is_some_and(|width| (80..=TERMINAL).contains(&width)), "{text}");
        assert!(text.contains("agent/claude-code-write-heavy  0.1 ms  "), "{text}");
        // A word is never broken: it could be a path.
        let path = "p".repeat(120);
        let text = table(&["path"], &[vec![path.clone()]]);
        assert!(text.contains(&path), "{text}");
    }

    #[test]
    fn a_paragraph_is_wrapped_and_its_commands_stay_whole() {
        let command = format!("ctxbench run {}", "--workload micro/stat ".repeat(6));
        let command = command.trim();
        let words = "some more words ".repeat(12);
        let text = paragraph("  if: ", "      ", &format!("{words}`{command}` ({command})."));
        let (wide, narrow): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.width() > TERMINAL);
        assert_eq!(wide, [format!("      `{command}`"), format!("      ({command}).")]);
        assert!(narrow.len() == 3 && narrow[0].starts_with("  if: some"), "{text}");
        assert_eq!(paragraph("", "", "a `b c"), "a `b c\n");
    }
}
