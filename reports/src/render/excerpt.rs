//! The excerpt of a report in a README, between two marks.

use super::markdown::markdown;
use super::output::WriteError;
use super::page::excerpt;
use super::part::Part;
use super::report::Report;

/// The mark before the excerpt.
const BEGIN: &str = "<!-- ctxbench report: begin -->";
/// The mark after the excerpt.
const END: &str = "<!-- ctxbench report: end -->";

/// The words that link to the report, at the excerpt's start.
pub(super) const THE_REPORT: &str = "a real report";

/// Replaces the text between the marks by the excerpt of a report.
/// Links to the report's charts and page are relative to `place`.
///
/// # Errors
/// If the text does not contain exactly one of each mark, in order.
pub fn splice(report: &Report<'_>, text: &str, place: &str) -> Result<String, WriteError> {
    let unmarked = || {
        WriteError::Format(format!(
            "needs the lines `{BEGIN}` and `{END}`, in this order"
        ))
    };
    let (before, rest) = text.split_once(BEGIN).ok_or_else(unmarked)?;
    let (_, after) = rest.split_once(END).ok_or_else(unmarked)?;
    if after.contains(BEGIN) || after.contains(END) {
        return Err(unmarked());
    }
    let parts: Vec<Part> = excerpt(report);
    let linked = format!("[{THE_REPORT}]({place}/report.md)");
    let excerpt = markdown(&parts)
        .replacen(THE_REPORT, &linked, 1)
        .replace("](charts/", &format!("]({place}/charts/"));
    Ok(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        excerpt.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;
    use crate::testing;

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
