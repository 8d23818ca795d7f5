//! A file's text as results show it: lines with numbers before them, parts that are cut, lines in all.

use super::phrases::Phrases;

/// Whether a result says that it leaves a part out.
pub fn is_cut(shown: &str) -> bool {
    let end = shown.len().saturating_sub(400);
    let end = (end..shown.len()).find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
    let start: String = shown.chars().take(400).collect();
    [start.as_str(), &shown[end..]].iter().any(|part| {
        let part = part.to_lowercase();
        ["truncated", "more lines", "response clipped", "output too large", "<tool_output_masked>"]
            .iter()
            .any(|word| part.contains(word))
    }) || shown.contains("[TRUNCATED]")
}

/// Whether a program's output was cut before the agent saw it.
pub fn is_cut_output(shown: &str) -> bool {
    static MARKS: Phrases = Phrases::new(&[
        "tokens truncated…",
        "chars truncated…",
        "characters truncated",
        "[... omitted ",
        "<elided_chars>",
        "[TRUNCATED]",
        "... [truncated",
        "Output too large",
        "<tool_output_masked>",
        "output truncated",
    ]);
    MARKS.are_in(shown)
}

/// The number of lines of the whole file, if a result states it: `94 lines total`, `of 5929 total lines`.
pub fn stated_total(shown: &str) -> Option<u64> {
    let edges = shown.lines().take(4).chain(shown.lines().rev().take(4));
    edges.into_iter().find_map(|line| {
        let words: Vec<&str> =
            line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        words.windows(3).find_map(|three| match three {
            [number, "lines", "total"] | [number, "total", "lines"] => number.parse().ok(),
            ["total", number, "lines"] | ["of", number, "lines"] => number.parse().ok(),
            _ => None,
        })
    })
}

/// Lines that were shown with numbers before them.
pub struct NumberedLines<'a> {
    /// The number of the first one.
    pub first: u64,
    /// The lines without numbers.
    pub lines: Vec<&'a str>,
    /// Whether only a tool writes numbers like that.
    pub is_certain: bool,
}

/// The start of the header above SWE-agent's windows, whose lines have no blank after the number's colon.
pub const WINDOW_HEADER: &str = "[File: ";

/// Lines around the numbered ones that a tool may write.
const FRAME_LINES: usize = 6;

/// Keeps the longer run of numbered lines.
fn keep_longer<'a>(run: Option<(&'a str, NumberedLines<'a>)>, best: &mut Option<(&'a str, NumberedLines<'a>)>) {
    if let Some((_, run_lines)) = &run
        && best.as_ref().is_none_or(|(_, known)| known.lines.len() < run_lines.lines.len())
    {
        *best = run;
    }
}

/// The longest run of lines that begin with rising numbers.
pub fn numbered(shown: &str) -> Option<NumberedLines<'_>> {
    let mut best: Option<(&str, NumberedLines<'_>)> = None;
    let mut run: Option<(&str, NumberedLines<'_>)> = None;
    let mut count = 0;
    for line in shown.lines().map(|line| line.trim_end_matches('\r')) {
        count += 1;
        // OpenCode's frame begins on the first line.
        let found = number_of(line.strip_prefix("<content>").unwrap_or(line));
        if let (Some((separator, run)), Some((number, like, text))) = (&mut run, found)
            && number == run.first + run.lines.len() as u64
            && *separator == like
        {
            run.lines.push(text);
            continue;
        }
        keep_longer(run.take(), &mut best);
        run = found.map(|(first, separator, text)| {
            let is_certain = matches!(separator, "\t" | "→" | "| " | " | " | "|");
            let lines = vec![text];
            (separator, NumberedLines { first, lines, is_certain })
        });
    }
    keep_longer(run, &mut best);
    let (separator, mut best) = best?;
    let begins_with_blank = |line: &&str| line.is_empty() || line.starts_with(' ');
    if separator == ":" && !shown.contains(WINDOW_HEADER) && best.lines.iter().all(begins_with_blank) {
        best.lines.iter_mut().for_each(|line| *line = line.strip_prefix(' ').unwrap_or(line));
    }
    let others = count - best.lines.len();
    (best.first > 0 && (others <= FRAME_LINES || others < best.lines.len())).then_some(best)
}

/// The number before a line, what separates them, and the line.
fn number_of(line: &str) -> Option<(u64, &str, &str)> {
    let trimmed = line.trim_start_matches(' ');
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 9 {
        return None;
    }
    let number = trimmed[..digits].parse().ok()?;
    let rest = &trimmed[digits..];
    // The blank after a colon may be the text's first.
    let separators = ["\t", "→", "| ", " | ", "|", ":", ". "];
    separators
        .iter()
        .find_map(|separator| {
            let text = rest.strip_prefix(separator)?;
            Some((number, *separator, text))
        })
        .or_else(|| {
            // An editor drops the blank before an empty line.
            let separator = match rest {
                " |" => " | ",
                "." => ". ",
                _ => return None,
            };
            Some((number, separator, ""))
        })
}
