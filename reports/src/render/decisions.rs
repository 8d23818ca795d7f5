//! Decisions as pages: the verdicts of each policy, the figures that carry them, and the rows of each policy.

use std::path::Path;

use inputs::border::terminal_cell;

use super::csv_file::{csv, csv_columns};
use super::markdown::markdown;
use super::output::WriteError;
use super::page::QUESTION;
use super::part::Part::{self, Folded, Heading, List, Matrix, Table, Text};
use crate::answer::Overview;
use figures::text::{columns, paragraph, table};
use verdicts::decide::{Decision, PolicyVerdict, Row, RowRole, RowState, arm_words, remedies};

/// The verdicts that are no plain words.
const VERDICTS: &str = "adopt: change to the candidate. archive: keep what you have, not the candidate.";
/// The verdicts in the order in which they are listed.
const VERDICT_ORDER: [PolicyVerdict; 4] =
    [PolicyVerdict::Adopt, PolicyVerdict::AdoptIf, PolicyVerdict::NotDecided, PolicyVerdict::Archive];
/// Figures below the verdicts.
const FIGURES: usize = 3;
/// The most lines of a use among decisions in a terminal.
const ANSWER_LINES: usize = 8;

/// The names in the order of their first decisions.
fn names<'a>(decisions: &'a [Decision], name: impl Fn(&'a Decision) -> &'a str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for decision in decisions {
        if !names.contains(&name(decision)) {
            names.push(name(decision));
        }
    }
    names
}

/// The candidates, those with decisions of most policies first.
fn candidates(decisions: &[Decision]) -> Vec<&str> {
    let mut candidates = names(decisions, |decision| &decision.candidate);
    let count = |name: &str| {
        let of_candidate = decisions.iter();
        of_candidate.filter(|decision| decision.candidate == name).count()
    };
    candidates.sort_by_key(|name| std::cmp::Reverse(count(name)));
    candidates
}

/// The most candidates that have a column each.
const MOST_COLUMNS: usize = 6;

/// The verdicts of each policy: with the first reason of each, or of many candidates the names.
fn overview(decisions: &[Decision]) -> Part {
    let candidates = candidates(decisions);
    if candidates.len() > MOST_COLUMNS {
        let rows = names(decisions, |decision| &decision.policy).into_iter().map(|policy| {
            let mut cells = vec![title(decisions, policy).to_owned()];
            cells.extend(VERDICT_ORDER.map(|verdict| with_verdict(decisions, policy, verdict).join(", ")));
            cells
        });
        let mut head = columns("use");
        head.extend(VERDICT_ORDER.map(|verdict| verdict.name().to_owned()));
        return Table(head, rows.collect());
    }
    let mut head = columns("use");
    head.extend(candidates.iter().map(|name| (*name).to_owned()));
    let policies = names(decisions, |decision| &decision.policy).into_iter();
    let rows = policies.map(|policy| {
        let cells = candidates.iter().map(|candidate| {
            let decision = of(decisions, policy, candidate)?;
            Some((decision.verdict, shortened(&decision.why)))
        });
        (title(decisions, policy).to_owned(), cells.collect())
    });
    Matrix(head, rows.collect())
}

/// The name of the use that a policy decides on.
fn title<'a>(decisions: &'a [Decision], policy: &'a str) -> &'a str {
    let mut of_policy = decisions.iter();
    of_policy.find(|decision| decision.policy == policy).map_or(policy, Decision::use_title)
}

fn of<'a>(decisions: &'a [Decision], policy: &str, candidate: &str) -> Option<&'a Decision> {
    let mut decisions = decisions.iter();
    decisions.find(|decision| decision.policy == policy && decision.candidate == candidate)
}

fn verdict_and_why(decision: &Decision) -> String {
    format!("{}: {}", decision.verdict.name(), decision.why)
}

/// At most half a line.
fn shortened(text: &str) -> String {
    const WIDEST: usize = 72;
    if text.chars().count() <= WIDEST {
        return text.to_owned();
    }
    let start: String = text.chars().take(WIDEST - 1).collect();
    let whole = start.rsplit_once(' ').map_or(start.as_str(), |(words, _)| words);
    format!("{}…", whole.trim_end_matches([',', ':', ';']))
}

/// The figures that carry the verdicts: of each policy the one that decides first, decided verdicts before others.
pub(super) fn carrying(decisions: &[Decision]) -> Vec<String> {
    let decided = |decision: &&Decision| decision.verdict != PolicyVerdict::NotDecided;
    let order = decisions.iter().filter(decided);
    let order = order.chain(decisions.iter().filter(|decision| !decided(decision)));
    let mut found: Vec<(&str, &str, String)> = Vec::new();
    for decision in order {
        let Some(figure) = &decision.figure else {
            continue;
        };
        let known = found.iter().any(|(policy, ..)| *policy == decision.policy);
        if !known && found.len() < FIGURES {
            found.push((&decision.policy, &decision.candidate, figure.clone()));
        }
    }
    let lines = found.into_iter();
    lines.map(|(policy, candidate, figure)| format!("{}, {candidate}: {figure}", title(decisions, policy))).collect()
}

/// The first screen: question, verdicts, figures.
pub(super) fn first_screen(decisions: &[Decision], parts: &mut Vec<Part>) {
    if decisions.is_empty() {
        return;
    }
    parts.push(Heading(2, "Which context backend, for what, at what cost".to_owned()));
    parts.push(overview(decisions));
    parts.push(List(carrying(decisions)));
    parts.push(Text(VERDICTS.to_owned()));
    let gaps = gaps(decisions);
    if !gaps.is_empty() {
        let title = "Missing evidence, and the commands that make it".to_owned();
        parts.push(Folded(title, vec![List(gaps)]));
    }
    if decisions.iter().any(|decision| !decision.planned) {
        let names = names(decisions, |decision| &decision.policy);
        let unplanned = names
            .into_iter()
            .filter(|name| decisions.iter().any(|decision| decision.policy == *name && !decision.planned));
        parts.push(Text(format!(
            "Not fixed before every run, and so proves less: {}.",
            unplanned.map(|policy| title(decisions, policy)).collect::<Vec<_>>().join(", ")
        )));
    }
}

/// The sections of all policies: for each candidate verdict, rows, and what would flip it.
pub(super) fn policies(decisions: &[Decision], parts: &mut Vec<Part>) {
    for policy in names(decisions, |decision| &decision.policy) {
        let of_policy: Vec<&Decision> = decisions.iter().filter(|decision| decision.policy == policy).collect();
        let Some(first) = of_policy.first() else {
            continue;
        };
        parts.push(Heading(2, first.use_title().to_owned()));
        parts.push(Text(format!(
            "{} Candidates are compared with {}. A candidate needs at least {} of {} benefits, and every cost must be tolerated. Policy {policy}, {}….",
            first.question,
            arm_words(&first.baseline),
            first.benefits_needed,
            first.of_role(RowRole::Benefit).count(),
            first.policy_sha256.chars().take(12).collect::<String>()
        )));
        let verdicts = of_policy
            .iter()
            .map(|decision| vec![decision.candidate.clone(), verdict_and_why(decision), decision.would_flip.clone()]);
        let head = columns("candidate | verdict | what would change it");
        parts.push(Table(head, verdicts.collect()));
        sources(&of_policy, parts);
        for decision in of_policy {
            let title = format!("{}: gates, benefits and costs", decision.candidate);
            parts.push(Folded(title, rows(decision)));
        }
    }
}

/// The rows of a decision, as parts of a page.
fn rows(decision: &Decision) -> Vec<Part> {
    let rows = decision.rows.iter().map(|row| {
        let mut cells = row_cells(row);
        cells.insert(2, row.baseline.clone());
        cells.push(row.evidence.clone());
        cells
    });
    let head = columns(&format!(
        " | row | {} | {} | figure | bound | state | in the user's unit | evidence",
        decision.baseline, decision.candidate
    ));
    let mut parts = vec![Table(head, rows.collect())];
    if !decision.missing.is_empty() {
        parts.push(List(gaps(std::slice::from_ref(decision))));
    }
    parts
}

/// Role, title, candidate, figure, bound, state and remarks of a row.
fn row_cells(row: &Row) -> Vec<String> {
    vec![
        row.role.name().to_owned(),
        row.title.clone(),
        row.candidate.clone(),
        row.figure(),
        row.bound.words(),
        row.role.state(row.state).to_owned(),
        remarks(row),
    ]
}

/// A row for a terminal: its state, its figure with its bound, and what the figure rests on.
fn row_lines(row: &Row) -> String {
    const INDENT: &str = "           ";
    let state = row.role.state(row.state);
    let first = format!("{:<8} ", row.role.name());
    let mut text = paragraph(&first, INDENT, &format!("{}: {state}", row.title));
    let bound = match row.role {
        RowRole::Listed => String::new(),
        _ => row.bound_words(),
    };
    let figure = [row.figure(), bound];
    let figure: Vec<&str> = figure.iter().map(String::as_str).collect();
    let figure = figure.into_iter().filter(|part| !part.is_empty());
    let parts = [figure.collect::<Vec<_>>().join(", "), row.candidate.clone(), remarks(row)];
    for part in parts.iter().filter(|part| !part.is_empty()) {
        text += &paragraph(INDENT, INDENT, part);
    }
    text
}

/// The share of a session and the break-even of a row.
fn remarks(row: &Row) -> String {
    let break_even = row.break_even.as_ref().map(|break_even| break_even.words.clone());
    let parts = row.session.iter().cloned().chain(break_even);
    parts.collect::<Vec<_>>().join("; ")
}

/// The commands that make missing evidence, each with what it makes.
pub(super) fn gaps(decisions: &[Decision]) -> Vec<String> {
    const SHOWN: usize = 3;
    let remedies = remedies(decisions).into_iter();
    remedies
        .map(|remedy| {
            let more = match remedy.makes.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!("; {more} more"),
            };
            let shown = remedy.makes.iter().take(SHOWN).cloned().collect::<Vec<_>>();
            format!("Missing: {}{more}. Run `{}`.", shown.join("; "), remedy.command)
        })
        .collect()
}

/// The table of a source's aspects, with two columns for each candidate.
fn sources(decisions: &[&Decision], parts: &mut Vec<Part>) {
    let rows = source_rows(decisions);
    if rows.is_empty() {
        return;
    }
    let mut head = columns("aspect | the source says");
    for decision in decisions {
        head.push(format!("found on {}", decision.candidate));
        head.push("stands".to_owned());
    }
    parts.push(Text("The source's own comparison, and the evidence for it:".to_owned()));
    parts.push(Table(head, rows));
}

/// For each aspect the source's words, then each candidate's finding and whether the words stand.
fn source_rows(decisions: &[&Decision]) -> Vec<Vec<String>> {
    let Some(first) = decisions.first() else {
        return Vec::new();
    };
    let rows = first.sources.iter().enumerate().map(|(at, row)| {
        let mut cells = vec![row.aspect.clone(), row.says.clone()];
        for decision in decisions {
            let source = &decision.sources[at];
            cells.push(source.found.clone());
            cells.push(source.stands.words().to_owned());
        }
        cells
    });
    rows.collect()
}

/// The candidates that a policy has given a verdict.
fn with_verdict<'a>(decisions: &'a [Decision], policy: &str, verdict: PolicyVerdict) -> Vec<&'a str> {
    let found = decisions.iter().filter(|decision| decision.policy == policy && decision.verdict == verdict);
    found.map(|decision| decision.candidate.as_str()).collect()
}

/// The verdicts of each use with the candidates that got them, in lines for a terminal.
fn verdict_lines(decisions: &[Decision]) -> String {
    let mut text = format!("{VERDICTS}\n");
    for policy in names(decisions, |decision| &decision.policy) {
        text += &paragraph("  ", "    ", &format!("{} (--policy {policy})", title(decisions, policy)));
        for verdict in VERDICT_ORDER {
            let found = with_verdict(decisions, policy, verdict);
            if !found.is_empty() {
                let line = format!("{}: {}", verdict.name(), found.join(", "));
                text += &paragraph("    ", "      ", &line);
            }
        }
    }
    text
}

/// Decisions for a terminal: the answer and all verdicts, or for one decision its rows, reasons and missing evidence.
pub fn decisions_text(overview: &Overview, decisions: &[Decision]) -> String {
    let [decision] = decisions else {
        let mut text = overview.answer_lines(ANSWER_LINES).join("\n");
        text += &format!("\n\n{}", verdict_lines(decisions));
        for gap in gaps(decisions) {
            text += &format!("\n{}", paragraph("", "  ", &gap).trim_end());
        }
        return text.trim_end().to_owned() + "\n";
    };
    let mut text = paragraph("", "", &format!("{}: {}", decision.use_title(), decision.question));
    text += &format!("candidate: {}\n\n", terminal_cell(&decision.candidate));
    text.extend(decision.rows.iter().map(row_lines));
    let meaning = match decision.verdict {
        PolicyVerdict::Archive => " (keep what you have, not the candidate)",
        _ => "",
    };
    text += &format!("\nverdict: {}{meaning}\n", decision.verdict.name());
    let below = "    ";
    text += &paragraph("  because: ", below, &decision.why);
    for condition in &decision.conditions {
        text += &paragraph("  if: ", below, condition);
    }
    text += &paragraph("  what would change it: ", below, &decision.would_flip);
    for gap in gaps(decisions) {
        text += &paragraph("  ", below, &gap);
    }
    let source_rows = source_rows(&[decision]);
    if !source_rows.is_empty() {
        text += &format!("\n{}", table(&["aspect", "the source says", "found", "stands"], &source_rows));
    }
    if !decision.planned {
        text += &paragraph(
            "  note: ",
            below,
            "not every run was made for this policy; a policy chosen after seeing the figures proves less",
        );
    }
    text
}

/// Of a decision that lacks evidence: what the cells of these workloads say, which rows were measured and are open, and which no
/// pass measured. `None` if it is decided, or these workloads have no figure in it.
pub fn partial_answer(decision: &Decision, workloads: &[String]) -> Option<String> {
    const SHOWN: usize = 4;
    if decision.verdict != PolicyVerdict::NotDecided {
        return None;
    }
    let is_own = |row: &&Row| {
        let cell = row.cell.as_ref();
        cell.is_some_and(|cell| workloads.contains(&cell.workload)) && row.effect.is_some()
    };
    let own = decision.rows.iter().filter(is_own).map(|row| {
        let state = row.role.state(row.state);
        let title = &row.title;
        format!("{title} {}, {}: {state}", row.figure(), row.bound_words())
    });
    let own: Vec<String> = own.collect();
    let listed = |title: &str, states: &[RowState]| {
        let rows = decision.rows.iter().filter(|row| states.contains(&row.state));
        let titles: Vec<&str> = rows.map(|row| row.title.as_str()).collect();
        let more = match titles.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = titles.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        (!titles.is_empty()).then(|| format!(" {title}: {shown}{more}."))
    };
    let open = listed("Measured, but open", &[RowState::Open, RowState::Void]);
    let missing = listed("Not measured", &[RowState::Missing]);
    if own.is_empty() || (open.is_none() && missing.is_none()) {
        return None;
    }
    let text = format!(
        "By these sessions alone, {} compared with {}: {}.{}{}",
        arm_words(&decision.candidate),
        arm_words(&decision.baseline),
        own.join("; "),
        open.unwrap_or_default(),
        missing.unwrap_or_default()
    );
    Some(paragraph("", "", &text))
}

/// Decisions as a Markdown page, after the answers for all uses.
pub fn decisions_markdown(answer: &Overview, decisions: &[Decision]) -> String {
    let answers = answer.uses.iter().map(|answer| format!("{}: {}", answer.title, answer.sentences().join(" ")));
    let parts = [Heading(1, QUESTION.to_owned()), List(answers.collect())];
    format!("{}\n{}", markdown(&parts), reasons(decisions))
}

/// Verdicts and reasons of decisions, in Markdown.
pub(super) fn reasons(decisions: &[Decision]) -> String {
    let mut parts = Vec::new();
    first_screen(decisions, &mut parts);
    policies(decisions, &mut parts);
    markdown(&parts)
}

/// Writes `decisions.csv`; an open end is empty.
pub(super) fn write_csv(file: &Path, decisions: &[Decision]) -> Result<(), WriteError> {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let bound = |row: &Row, is_most: bool| {
        let bound = Some(row.bound.value).filter(|_| row.bound.is_most == is_most);
        finite(bound)
    };
    let columns = csv_columns! {
        pair: (&Decision, &Row) =>
        policy = pair.0.policy,
        candidate = pair.0.candidate,
        verdict = pair.0.verdict.name(),
        role = pair.1.role.name(),
        row = pair.1.title,
        value = finite(pair.1.effect.map(|effect| effect.value)),
        low = finite(pair.1.effect.map(|effect| effect.low)),
        high = finite(pair.1.effect.map(|effect| effect.high)),
        at_most = bound(pair.1, true),
        at_least = bound(pair.1, false),
        unit = pair.1.bound.unit,
        state = pair.1.role.state(pair.1.state),
    };
    let rows = decisions.iter().flat_map(|decision| decision.rows.iter().map(move |row| (decision, row)));
    csv(file, columns, rows)
}

/// The rows of a role in a state, each with its figure and its bound.
pub(super) fn titles(decision: &Decision, role: RowRole, state: RowState) -> Vec<String> {
    let rows = decision.of_role(role).filter(|row| row.state == state);
    rows.map(|row| match row.figure() {
        figure if figure.is_empty() => format!("{}: {}", row.title, row.candidate),
        figure => format!("{}: {figure}, {} ({})", row.title, row.bound_words(), row.candidate),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::decision_record;
    use figures::evidence::RunEvidence;
    use figures::testing;

    fn overview() -> Overview {
        let (run, summary) = (testing::run(), testing::summary());
        let contexts = testing::contexts();
        let evidence = RunEvidence::new(&run, &summary, &contexts);
        Overview::of(&verdicts::testing::decisions(), &[evidence])
    }

    #[test]
    fn many_decisions_are_an_answer_with_verdicts_and_commands() {
        insta::assert_snapshot!(decisions_text(&overview(), &verdicts::testing::decisions()));
    }

    #[test]
    fn one_decision_has_its_rows_reasons_and_source() {
        let mut decisions = verdicts::testing::decisions();
        decisions.retain(|decision| decision.policy == "cron-controller");
        insta::assert_snapshot!(decisions_text(&overview(), &decisions));
        let record = decision_record(&decisions, &[&testing::run()]);
        insta::assert_snapshot!("record", record);
    }

    #[test]
    fn a_terminal_says_what_archive_means() {
        let mut decision = verdicts::testing::decisions().remove(0);
        decision.verdict = PolicyVerdict::Archive;
        let text = decisions_text(&overview(), &[decision]);
        assert!(text.contains("verdict: archive (keep what you have, not the candidate)\n"), "{text}");
    }

    #[test]
    fn a_record_accepts_costs_only_of_what_is_adopted() {
        let mut decisions = verdicts::testing::decisions();
        decisions.retain(|decision| decision.of_role(RowRole::Cost).any(|row| row.state == RowState::Met));
        decisions.truncate(1);
        let words = |decisions: &[Decision], verdict: PolicyVerdict| {
            let decisions: Vec<Decision> =
                decisions.iter().cloned().map(|decision| Decision { verdict, ..decision }).collect();
            let record = decision_record(&decisions, &[&testing::run()]);
            ["accepted cost:", "tolerated cost:"].map(|words| record.contains(words))
        };
        for (verdict, expected) in [
            (PolicyVerdict::Adopt, [true, false]),
            (PolicyVerdict::AdoptIf, [true, false]),
            (PolicyVerdict::Archive, [false, true]),
            (PolicyVerdict::NotDecided, [false, true]),
        ] {
            assert_eq!(words(&decisions, verdict), expected, "{verdict:?}");
        }
    }

    #[test]
    fn half_a_line_ends_at_a_word() {
        let long = "words and more words ".repeat(9);
        let short = shortened(&long);
        assert!(short.chars().count() <= 72 && short.ends_with("words…"), "{short}");
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn the_file_of_decisions_has_every_row() {
        let (dir, decisions) = (tempfile::tempdir().unwrap(), verdicts::testing::decisions());
        let file = dir.path().join("decisions.csv");
        write_csv(&file, &decisions).unwrap();
        let rows = decisions.iter().map(|decision| decision.rows.len()).sum::<usize>();
        let mut written = ::csv::Reader::from_path(file).unwrap();
        assert_eq!(written.records().flatten().count(), rows);
    }
}
