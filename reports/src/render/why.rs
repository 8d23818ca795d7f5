//! The page Why: for each use its gates, benefits and costs with the figures of all candidates, and what would flip the
//! verdicts.

use std::collections::BTreeSet;

use super::answers::{uses, why_title};
use super::part::Part::{self, Folded, Heading, List, Table, Text};
use super::part::{LinkedRow, TableCell};
use super::report::Report;
use figures::summary::cell_anchor;
use figures::text::{columns, lower, number_of};
use verdicts::decide::{Decision, Row, RowRole, arm_words};

/// The words of this page, once for all uses.
const WORDS: &str = "A policy asks for three kinds of rows. A gate must hold before anything is compared, a benefit is a reason to change, and a cost is a reason not to change. Each row has a bound, which was written before the run; the whole interval of a figure must meet it. Behind failed passes, \"≤\" is the upper 95 % bound of their share.";

/// The verdicts and words of the tables.
const VERDICTS: [&str; 5] = [
    "\"adopt\": change to the candidate. Every gate holds, enough benefits are shown, and every cost is tolerated.",
    "\"adopt if\": the same, where the condition beside it holds.",
    "\"archive\": keep what you have, not the candidate. A gate fails, too few benefits are shown, or a cost is not tolerated.",
    "\"not decided\": the evidence does not decide; the last column names what would.",
    "\"declared\" figures are statements of a backend's makers; they decide nothing.",
];

pub(super) fn why(report: &Report<'_>) -> Vec<Part> {
    let uses = uses(&report.decisions);
    if uses.is_empty() {
        return vec![Text(
            "This run was made without a policy, so it has no answer for a use (`ctxbench report --policy all` decides by the built-in policies).".to_owned(),
        )];
    }
    let mut parts = vec![Text(WORDS.to_owned()), List(VERDICTS.map(str::to_owned).into())];
    for found in &uses {
        let Some(first) = found.decisions.first() else {
            continue;
        };
        parts.push(Heading(3, why_title(&found.title)));
        parts.push(Text(format!(
            "{} {} A candidate needs at least {} of {} here. In commands, the use is `--policy {}`.",
            first.question,
            baselines(first),
            first.benefits_needed,
            number_of(first.of_role(RowRole::Benefit).count(), "benefit"),
            first.policy,
        )));
        parts.push(verdicts(&found.decisions));
        parts.push(rows(&found.decisions));
        let mut notes = remarks(&found.decisions);
        notes.extend(not_planned(first));
        if !notes.is_empty() {
            parts.push(Folded("Notes on these figures".to_owned(), vec![List(notes)]));
        }
        if let Some(part) = sources(&found.decisions) {
            let title = "The source's own comparison, and the evidence for it".to_owned();
            parts.push(Folded(title, vec![part]));
        }
    }
    parts
}

/// What the figures of a use are compared with, in a sentence.
fn baselines(decision: &Decision) -> String {
    let own = arm_words(&decision.baseline);
    let (named, others): (Vec<&Row>, Vec<&Row>) =
        decision.rows.iter().filter(|row| !row.against.is_empty()).partition(|row| row.names_its_baseline());
    let mut by_baseline: Vec<(&str, Vec<String>)> = Vec::new();
    for row in others.into_iter().filter(|row| row.against != own) {
        let title = format!("“{}”", lower(&row.title));
        match by_baseline.iter_mut().find(|(against, _)| *against == row.against) {
            Some((_, titles)) => titles.push(title),
            None => by_baseline.push((&row.against, vec![title])),
        }
    }
    let mut words = format!("Candidates are compared with {own}");
    for (against, titles) in by_baseline {
        words += &format!(". In {}, they are compared with {against}", titles.join(" and "));
    }
    if !named.is_empty() {
        words += ". A row that names another baseline compares with that one";
    }
    words + "."
}

/// The anchor behind a row's evidence; a page that lacks it has no link.
fn evidence_anchor(row: &Row) -> String {
    if let Some(cell) = &row.cell {
        return cell_anchor(&cell.workload, &cell.state, &cell.metric);
    }
    let known = [
        ("samples.jsonl: scores", "what-a-search-finds"),
        ("samples.jsonl", "how-calls-ended"),
        ("probes.jsonl: aspect conformance", "conformance"),
        ("probes.jsonl", "tools-and-killed-daemons"),
        ("faults.jsonl", "tools-and-killed-daemons"),
        ("contexts.jsonl", "what-the-context-costs"),
        ("plan.toml", "backends"),
    ];
    let found = known.iter().find(|(start, _)| row.evidence.starts_with(start));
    found.map_or(String::new(), |(_, anchor)| (*anchor).to_owned())
}

fn verdicts(decisions: &[&Decision]) -> Part {
    let rows = decisions.iter().map(|decision| {
        vec![
            decision.candidate.clone(),
            decision.verdict.name().to_owned(),
            decision.why.clone(),
            decision.would_flip.clone(),
        ]
    });
    Table(columns("candidate | verdict | because | what would change it"), rows.collect())
}

/// The criteria, each with the figures of all candidates.
fn rows(decisions: &[&Decision]) -> Part {
    let mut head = columns("part | criterion | bound");
    let baseline = decisions.first().map_or("", |decision| decision.baseline.as_str());
    head.push(baseline.to_owned());
    head.extend(decisions.iter().map(|decision| decision.candidate.clone()));
    // A gate on records exists only where they were audited: candidates may differ in their rows.
    let mut titles: Vec<(&Row, String)> = Vec::new();
    for row in decisions.iter().flat_map(|decision| &decision.rows) {
        let is_known = titles.iter().any(|(known, _)| is_same(known, row));
        if !is_known {
            titles.push((
                row,
                match row.role {
                    RowRole::Listed => "–".to_owned(),
                    _ => row.bound_words(),
                },
            ));
        }
    }
    let rows = titles.into_iter().map(|(criterion, bound)| {
        let of_all = decisions.iter().map(|decision| {
            let mut rows = decision.rows.iter();
            rows.find(|row| is_same(criterion, row))
        });
        let of_all: Vec<Option<&Row>> = of_all.collect();
        let base = of_all.iter().flatten().find(|row| !row.baseline.is_empty());
        let mut cells = vec![
            TableCell::plain(criterion.role.name()),
            TableCell::plain(criterion.title.clone()),
            TableCell::plain(bound),
            TableCell::plain(base.map_or("–".to_owned(), |row| row.baseline.clone())),
        ];
        cells.extend(of_all.iter().map(|row| match row {
            Some(row) => TableCell::new(figure(row), evidence_anchor(row)),
            None => TableCell::plain("–"),
        }));
        LinkedRow { anchor: String::new(), cells }
    });
    Part::Linked(head, rows.collect())
}

fn is_same(one: &Row, other: &Row) -> bool {
    one.role == other.role && one.title == other.title
}

/// A state and the words for what was found, which may begin with the state.
fn stated(state: &str, found: &str) -> String {
    match found.strip_prefix(state) {
        Some(rest) if rest.starts_with(':') => found.to_owned(),
        _ => format!("{state}: {found}"),
    }
}

/// The state of a row with its figure and what was found.
fn figure(row: &Row) -> String {
    let state = row.role.state(row.state);
    let is_none = row.effect.is_some_and(|effect| [effect.value, effect.low, effect.high] == [0.0; 3]);
    match row.figure() {
        // The words say that there is none, and of how many.
        _ if is_none => format!("{state}: {}", row.provenance.marked(&row.candidate)),
        figure if figure.is_empty() => stated(state, &row.candidate),
        figure => format!("{state}: {figure} ({})", row.candidate),
    }
}

/// The shares of a session and the break-evens of all rows.
fn remarks(decisions: &[&Decision]) -> Vec<String> {
    let mut remarks = Vec::new();
    for decision in decisions {
        // Rows of one workload have one session.
        let mut said = BTreeSet::new();
        for row in &decision.rows {
            let break_even = row.break_even.as_ref().map(|found| found.words.clone());
            let session = row.session.iter().filter(|words| said.insert(words.as_str()));
            let words: Vec<String> = session.cloned().chain(break_even).collect();
            if !words.is_empty() {
                let words = words.join("; ");
                remarks.push(format!("{}, {}: {words}", decision.candidate, row.title));
            }
        }
    }
    remarks
}

fn not_planned(decision: &Decision) -> Option<String> {
    (!decision.planned).then(|| {
        "This policy was not fixed before every run: a policy that is chosen after the figures are seen proves less.".to_owned()
    })
}

/// The rows of a source's own comparison.
fn sources(decisions: &[&Decision]) -> Option<Part> {
    let first = decisions.first().filter(|decision| !decision.sources.is_empty())?;
    let mut head = columns("aspect | the source says");
    head.extend(decisions.iter().map(|decision| format!("found on {}", decision.candidate)));
    let rows = first.sources.iter().enumerate().map(|(at, row)| {
        let found = decisions.iter().map(|decision| {
            let source = decision.sources.get(at);
            source.map_or("–".to_owned(), |source| format!("{} ({})", source.found, source.stands.words()))
        });
        let own = [row.aspect.clone(), row.says.clone()];
        own.into_iter().chain(found).collect()
    });
    Some(Table(head, rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdicts::decide::RowState;

    #[test]
    fn every_verdict_of_the_tables_is_explained_above_them() {
        for verdict in verdicts::testing::decisions().iter().map(|decision| decision.verdict) {
            let quoted = format!("\"{}\": ", verdict.name());
            assert!(VERDICTS.iter().any(|words| words.starts_with(&quoted)), "{quoted}");
        }
    }

    #[test]
    fn a_cell_does_not_repeat_its_state() {
        let mut without_evidence = 0;
        for decision in verdicts::testing::decisions() {
            for row in &decision.rows {
                let (state, cell) = (row.role.state(row.state), figure(row));
                assert!(cell.starts_with(state), "{cell}");
                assert!(!cell.contains(&format!("{state}: {state}")), "{cell}");
                without_evidence += usize::from(row.state == RowState::Missing);
            }
        }
        assert!(without_evidence > 0);
    }
}
