//! The answer of a report in a README, between two marks.

use inputs::border;

use super::output::WriteError;
use super::report::Report;
use super::stems;

/// The mark before the excerpt.
const BEGIN: &str = "<!-- ctxbench report: begin -->";
/// The mark after the excerpt.
const END: &str = "<!-- ctxbench report: end -->";

/// The most lines of a use.
const LINES_OF_A_USE: usize = 4;

/// Replaces the text between the marks by the answer of a report and its chart of operations.
/// Links to the report's chart and page are relative to `place`.
///
/// # Errors
/// If the text does not contain exactly one of each mark, in order.
pub fn splice(report: &Report<'_>, text: &str, place: &str) -> Result<String, WriteError> {
    let unmarked = || WriteError::Format(format!("needs the lines `{BEGIN}` and `{END}`, in this order"));
    let (before, rest) = text.split_once(BEGIN).ok_or_else(unmarked)?;
    let (_, after) = rest.split_once(END).ok_or_else(unmarked)?;
    if after.contains(BEGIN) || after.contains(END) {
        return Err(unmarked());
    }
    let plan = &report.run.plan;
    let day = plan.created.split('T').next().unwrap_or_default();
    // No line of the answer may end the block.
    let answer = report.overview.answer_lines(LINES_OF_A_USE).join("\n");
    let answer = answer.replace('`', "'");
    let about = [&plan.ctxbench, &report.overview.about.join(", ")].map(|text| border::markdown(text));
    let identical = border::markdown(report.overview.identical_arms.trim_end_matches('.'));
    let words = [
        format!(
            "The answer of a run of {} with {}: {}. [Its report]({place}/report.md) has the verdicts behind it; `ctxbench decide` prints every bound with its figure.",
            border::markdown(day),
            about[0],
            about[1]
        ),
        format!("```text\n{answer}\n```"),
        format!("{identical}."),
        format!(
            "![One operation by backend, caches hot: its time as a ratio to a plain directory, with the interval over epochs]({place}/charts/{}.svg)",
            stems::LATENCY
        ),
    ];
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", words.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;
    use figures::testing;

    #[test]
    fn splice_changes_only_the_text_between_the_marks() {
        let inputs = Inputs::of(testing::run());
        let report = inputs.report();
        let text = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        let once = splice(&report, &text, "docs/example").unwrap();
        assert!(once.starts_with("# Title\n") && once.ends_with("\nrest\n"));
        assert!(!once.contains("old") && once.contains("](docs/example/charts/latency.svg)"));
        assert_eq!(splice(&report, &once, "docs/example").unwrap(), once);
        assert!(splice(&report, "no marks", "x").is_err());
        assert!(splice(&report, &format!("{END}{BEGIN}"), "x").is_err());
    }
}
