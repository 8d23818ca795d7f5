//! The report's section on model-generated files, in short; the full page is in `model_files_page`.

use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::text::columns;
use rundir::{AskedStep, ModelFiles};

pub(super) fn model_files(report: &Report<'_>, parts: &mut Vec<Part>) {
    let Some(found) = &report.run.model_files else {
        return;
    };
    parts.push(Heading(3, "Files that a language model makes up".to_owned()));
    if let Some(why) = &found.failed {
        parts.push(Text(format!("They were not measured: {why}.")));
        return;
    }
    parts.push(Text(format!(
        "By {}, {}. Its answers are {}. The session has few reads of small files, because the model is slow. Only the decision on model-made files and the published claims about them use these figures. All of them are in model-files.md beside this page; `make model-files` measures more.",
        found.model, found.engine, found.origin
    )));
    let rows = found.fidelity.iter().map(|at| {
        let exact = at.reads.iter().filter(|read| read.is_exact).count();
        vec![
            at.operations.to_string(),
            format!("{exact} of {}", at.reads.len()),
            format!("{} of {}", at.unusable, at.calls),
            at.unanswered.to_string(),
            format!("{:.2} s ({})", at.answer_ms / 1000.0, found.origin),
        ]
    });
    let head = columns(
        "operations in the log | byte-exact reads of llm-history | \
         answers that cannot be used | questions without an answer | time an answer",
    );
    parts.push(Table(head, rows.collect()));
    let head = columns("done | on | model calls | time | ended");
    parts.push(Table(head, steps(found)));
    let mut facts = Vec::new();
    if let (Some((here, there)), Some((reads, exact))) = (found.history.session, found.history.session_reads) {
        facts.push(format!(
            "A session of 12 calls, 4 of them reads: {here:.2} s in llm-history ({}), {:.2} ms in a plain directory; {exact} of its {reads} reads returned the written bytes.",
            found.origin,
            there * 1000.0
        ));
    }
    facts.push(belongs(found));
    parts.push(List(facts));
}

/// The conclusion whether a language model is fit to answer `read`.
fn belongs(found: &ModelFiles) -> String {
    let all: Vec<bool> = found.fidelity.iter().flat_map(|at| &at.reads).map(|read| read.is_exact).collect();
    let exact = all.iter().filter(|exact| **exact).count();
    let answer = if all.is_empty() {
        "nothing here says"
    } else if exact < all.len() {
        "not behind the read of a file that must hold what was written to it"
    } else {
        "too few reads to speak against it; none was wrong"
    };
    format!(
        "Does a language model belong behind read? With {}: {answer} ({exact} of {} reads right).",
        found.model,
        all.len()
    )
}

fn steps(found: &ModelFiles) -> Vec<Vec<String>> {
    let row = |on: &str, step: &AskedStep| {
        vec![
            step.what.clone(),
            on.to_owned(),
            step.calls.to_string(),
            format!("{:.3} s", step.seconds),
            step.outcome.clone(),
        ]
    };
    let history = found.history.steps.iter().map(|step| row("llm-history", step));
    let generate = found.generate.steps.iter().map(|step| row("llm-generate", step));
    history.chain(generate).collect()
}
