//! The answer that `run` and `report` print at their end.

use std::borrow::Cow;
use std::path::Path;

use reports::answer::{AdviceKind, Overview, UseAnswer};
use schemars::JsonSchema;
use serde::Serialize;

use super::format::ScreenFormat;
use crate::reporting::ReportInputs;

/// What `run`, `report` and `merge` print for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Headline<'a> {
    /// The run's directory.
    run: Cow<'a, str>,
    /// The page of the report.
    report: Cow<'a, str>,
    /// The answer.
    answer: &'a Overview,
}

/// Prints the answer, and where the report is.
pub fn print_answer(inputs: &ReportInputs, page: &Path, format: ScreenFormat) -> anyhow::Result<()> {
    let run = inputs.reported.run.dir.as_path();
    match format {
        ScreenFormat::Text => {
            let closing = closing(inputs, page);
            print!("{}", inputs.overview.terminal(&closing));
        }
        ScreenFormat::Json => {
            let (run, report) = (run.to_string_lossy(), page.to_string_lossy());
            let printed = Headline { run, report, answer: &inputs.overview };
            println!("{}", serde_json::to_string_pretty(&printed)?);
        }
    }
    Ok(())
}

/// Where the report is, and the command that shows the rows behind an answer.
fn closing(inputs: &ReportInputs, page: &Path) -> Vec<String> {
    let overview = &inputs.overview;
    let mut lines = vec![format!("Report (one file, for any browser): {}", page.display())];
    // A use without evidence has nothing to explain. Most readers have a coding agent.
    let decided = |answer: &&UseAnswer| answer.kind != AdviceKind::NotDecided;
    let of_coding = |answer: &&UseAnswer| answer.policy == "coding-agent";
    let decided: Vec<&UseAnswer> = overview.uses.iter().filter(decided).collect();
    let answer = decided.iter().copied().find(of_coding);
    if let Some(answer) = answer.or(decided.first().copied()).or(overview.uses.first()) {
        lines.push(format!("Why, per use: {}", inputs.deciding(&answer.policy, &answer.candidate)));
    }
    lines
}
