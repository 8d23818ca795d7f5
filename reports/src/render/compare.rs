//! A comparison of runs and a ranking of arms, as text, Markdown and JUnit.

use inputs::border;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use stats::Verdict;

use super::markdown::markdown;
use super::part::Part::{self, Files, Folded, Heading, List, Table, Text};
use figures::text::{columns, count as count_words, number_of, paragraph, ratio_with_interval, table, time};
use verdicts::compare::{CellChange, CountChange, Gate, RunComparison, failed_words};
use verdicts::rank::Ranking;

const CELL_HEAD: &str = "arm | metric | workload | state | old | new | new over old";

fn row(cell: &CellChange) -> Vec<String> {
    let verdict = match &cell.withheld {
        Some(why) => format!("no verdict: {why}"),
        None => cell.verdict.name().to_owned(),
    };
    let change = match (cell.verdict, &cell.withheld) {
        (Verdict::BelowWhatMatters, None) => verdict,
        _ => format!("{} {verdict}", ratio_with_interval(cell.ratio, cell.interval)),
    };
    vec![
        cell.arm.clone(),
        cell.metric.clone(),
        cell.workload.clone(),
        cell.state.clone(),
        format!("×{:.2}, {}{}", cell.old, time(cell.old_ns), failed_words(cell.old_failed)),
        format!("×{:.2}, {}{}", cell.new, time(cell.new_ns), failed_words(cell.new_failed)),
        change,
    ]
}

fn cells<'a>(cells: impl IntoIterator<Item = &'a CellChange>) -> Vec<Vec<String>> {
    cells.into_iter().map(row).collect()
}

/// Whether the comparison could decide at all: a busy machine, the counts, the times; then what was found.
fn headline(found: &RunComparison) -> String {
    let busy = match (found.busy.len(), 1 + found.new.len()) {
        (0, _) => String::new(),
        (busy, runs) => format!("The machine was busy in {busy} of {runs} runs. "),
    };
    let compared = found.counts_compared;
    let risen = found.counts.iter().filter(|change| change.is_worse());
    let counts = match (compared.exact, compared.varying) {
        (0, 0) => "No count was compared, which is not a pass.".to_owned(),
        (0, varying) => format!("No exact count was compared, which is not a pass: all {varying} vary between epochs."),
        (exact, _) => {
            let exact = count_words(exact as u64);
            format!("{exact} exact counts compared, {} rose.", risen.count())
        }
    };
    let failing = found.failures.iter().filter(|change| change.is_worse()).count();
    let others = match found.failures.len() - failing {
        0 => String::new(),
        others => format!(", {others} as often or less often"),
    };
    let detectable = found.detectable().map_or(String::new(), |ratio| {
        format!(" In half of the cells, a change to ×{ratio:.2} or more would have been found with a chance of 80 %.")
    });
    let scores = match found.scores_compared {
        0 => String::new(),
        compared => {
            let worse = found.scores.iter().filter(|change| change.is_worse()).count();
            format!(" {} of tokens, answers and delays compared, {worse} got worse.", number_of(compared, "score"))
        }
    };
    let unchecked = match found.not_checked_again().count() {
        0 => "",
        _ => " The new run did not look again at all that the old one checked, which is not a pass.",
    };
    format!(
        "{busy}{counts}{scores} {} {} cells fail more often{others}. {} confirmed claims were lost. New harm: {} of {} kinds (lost records, failing features, wrong answers, lost lines).{unchecked}{detectable}",
        times_words(found),
        failing,
        found.failing(Gate::Claims).len(),
        found.new_harm().count(),
        found.harms_compared
    )
}

/// How many times could be decided, and how.
fn times_words(found: &RunComparison) -> String {
    let count = |verdict| found.with(verdict).count();
    let below = count(Verdict::BelowWhatMatters);
    let all = found.cells.len() - below;
    let decided = match (all, all - count(Verdict::Undecided)) {
        (0, _) if below > 0 => "No time is long enough to matter.".to_owned(),
        (0, _) => "No time could be compared: the runs have no measured cell in common.".to_owned(),
        (_, 0) => format!("None of {all} times has a verdict{}.", why_undecided(found)),
        (all, decided) => format!(
            "{decided} of {all} times have a verdict: {} worse, {} better, {} same.",
            count(Verdict::Worse),
            count(Verdict::Better),
            count(Verdict::Same)
        ),
    };
    match below {
        0 => decided,
        below => format!("{decided} Below what matters: {below} more."),
    }
}

/// Why no time could be decided, and what to do.
fn why_undecided(found: &RunComparison) -> String {
    let is_short = |cell: &CellChange| cell.interval.is_none();
    if found.cells.iter().all(is_short) {
        ": too few epochs, or a busy machine without a bound on its disturbance (measure again with at least three epochs)".to_owned()
    } else {
        ": their intervals are too wide (measure again on a quiet machine, with a longer --budget or more --epochs)"
            .to_owned()
    }
}

fn origins(found: &RunComparison) -> String {
    let new = found.new.iter();
    let new = new.map(|run| format!("{} ({}, ctxbench {})", run.dir, run.created, run.ctxbench));
    format!(
        "old: {} ({}, ctxbench {}); new: {}",
        found.old.dir,
        found.old.created,
        found.old.ctxbench,
        new.collect::<Vec<_>>().join(", ")
    )
}

/// The reports of the runs, each with words and path, and the commands that make the others.
fn reports(found: &RunComparison) -> (Vec<(String, String)>, Vec<String>) {
    let runs = std::iter::once(("old", &found.old));
    let runs = runs.chain(found.new.iter().map(|run| ("new", run)));
    let (mut links, mut others) = (Vec::new(), Vec::new());
    for (side, run) in runs {
        match &run.report {
            Some(report) => {
                links.push((format!("report of the {side} run {}", run.dir), report.clone()));
            }
            None => others.push(format!("no report of the {side} run yet: ctxbench report {}", run.dir)),
        }
    }
    (links, others)
}

/// What only the old run checked.
fn unchecked(found: &RunComparison) -> impl Iterator<Item = &String> {
    found.unchecked.iter().map(|check| &check.words)
}

/// The sentences that a reader needs before any figure.
fn notes(found: &RunComparison) -> Vec<String> {
    let mixed = found.mixed.iter();
    let mixed = mixed.map(|difference| format!("compared anyway (--mixed): {difference}"));
    let notes = found.busy.iter().chain(&found.notes).cloned();
    notes.chain(mixed).collect()
}

fn parts(found: &RunComparison) -> Vec<Part> {
    let mut parts = vec![Heading(2, "ctxbench compare".to_owned()), Text(headline(found)), List(notes(found))];
    let (links, others) = reports(found);
    parts.extend((!links.is_empty()).then_some(Files(links)));
    let is_decided = |cell: &&CellChange| matches!(cell.verdict, Verdict::Worse | Verdict::Better);
    let decided: Vec<&CellChange> = found.cells.iter().filter(is_decided).collect();
    if !decided.is_empty() {
        parts.push(Table(columns(CELL_HEAD), cells(decided)));
    }
    let counts = |wanted: fn(&CountChange) -> bool| {
        let counts = found.counts.iter().filter(|change| wanted(change));
        let rows = counts.map(|change| {
            vec![
                change.arm.clone(),
                change.workload.clone(),
                change.state.clone(),
                change.name.clone(),
                format!("{:.4}", change.old),
                format!("{:.4}", change.new),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    let count_head = columns("arm | workload | state | a call | old | new");
    let risen = counts(CountChange::is_worse);
    if !risen.is_empty() {
        parts.push(Heading(3, "Exact counts that rose".to_owned()));
        parts.push(Table(count_head.clone(), risen));
    }
    if !found.scores.is_empty() {
        let rows = found.scores.iter().map(|change| {
            let [old, new] = change.figures();
            let verdict = change.verdict.name().to_owned();
            vec![change.arm.clone(), change.workload.clone(), change.score.clone(), old, new, verdict]
        });
        parts.push(Heading(3, "Tokens, answers and delays that changed".to_owned()));
        parts.push(Table(columns("arm | workload | score | old | new | verdict"), rows.collect()));
    }
    let failures = found.failures.iter().map(|change| {
        vec![
            change.arm.clone(),
            change.workload.clone(),
            change.state.clone(),
            format!("{} of {}", change.old.0, change.old.1),
            format!("{} of {}", change.new.0, change.new.1),
        ]
    });
    if !found.failures.is_empty() {
        parts.push(Heading(3, "Failed passes".to_owned()));
        let head = columns("arm | workload | state | old | new");
        parts.push(Table(head, failures.collect()));
    }
    let harms = found.harms.iter().map(|change| {
        let of = |(harm, tries): (u64, u64)| format!("{harm} of {tries}");
        vec![change.arm.clone(), change.what.clone(), of(change.old), of(change.new)]
    });
    if !found.harms.is_empty() {
        parts.push(Heading(3, "Harm that only one side does".to_owned()));
        parts.push(Table(columns("arm | harm | old | new"), harms.collect()));
    }
    if !found.claims.is_empty() {
        parts.push(Heading(3, "Claims whose status changed".to_owned()));
        let rows = found.claims.iter().map(|change| {
            vec![change.id.clone(), change.old.name().to_owned(), change.new.name().to_owned(), change.evidence.clone()]
        });
        let head = columns("claim | old | new | new evidence");
        parts.push(Table(head, rows.collect()));
    }
    let mut folded = vec![
        Text("Old and new are ratios to the baseline of the same run, paired by round. \"worse\" and \"better\": beyond the margin, corrected by Holm for all cells, at 1 %. \"same\": the 99 % interval is inside the margin.".to_owned()),
        Table(columns(CELL_HEAD), cells(&found.cells)),
    ];
    let fallen = counts(|change| change.is_exact && !change.is_worse());
    if !fallen.is_empty() {
        folded.push(Text("Exact counts that fell:".to_owned()));
        folded.push(Table(count_head.clone(), fallen));
    }
    let vary = counts(|change| !change.is_exact);
    if !vary.is_empty() {
        folded.push(Text("Counts that vary between epochs of one run, which no gate uses:".to_owned()));
        folded.push(Table(count_head, vary));
    }
    parts.push(Folded("All cells and counts".to_owned(), folded));
    let drift = found
        .drift
        .iter()
        .map(|cell| format!("{}: {} and {} (×{:.2})", cell.place(), time(cell.old), time(cell.new), cell.ratio));
    parts.push(Folded("The baseline's own times: what changed on the machine".to_owned(), vec![List(drift.collect())]));
    let origins = std::iter::once(origins(found));
    let missing = found.missing.iter().chain(unchecked(found)).cloned();
    parts.push(List(origins.chain(others).chain(missing).collect()));
    parts
}

/// A comparison in Markdown, for a pull request.
pub fn comparison_markdown(found: &RunComparison) -> String {
    markdown(&parts(found))
}

/// A comparison for a terminal.
pub fn comparison_text(found: &RunComparison) -> String {
    let mut text = paragraph("", "", &headline(found));
    for note in notes(found).iter().chain(&found.missing).chain(unchecked(found)) {
        text += &paragraph("note: ", "  ", note);
    }
    let (links, others) = reports(found);
    for (words, path) in links {
        text += &format!("{words}: {path}\n");
    }
    for other in others {
        text += &paragraph("", "  ", &other);
    }
    text.push('\n');
    text += &table(&columns(CELL_HEAD), &cells(&found.cells));
    text.push('\n');
    for gate in [Gate::Worse, Gate::Counts, Gate::Claims] {
        for line in found.failing(gate) {
            text += &paragraph(&format!("{}: ", gate.name()), "  ", &line);
        }
    }
    text += &paragraph("", "  ", &origins(found));
    text
}

/// A comparison as JUnit XML: a suite each for times, counts, scores, failed passes, harm and claims.
///
/// # Errors
/// If it cannot be written as XML.
pub fn comparison_junit(found: &RunComparison) -> Result<String, String> {
    let case = |name: String, failed: Option<String>| {
        let status = match failed {
            None => TestCaseStatus::success(),
            Some(why) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(border::junit(&why));
                status
            }
        };
        TestCase::new(border::junit(&name), status)
    };
    let mut times = TestSuite::new("times");
    for cell in &found.cells {
        let change = row(cell).pop().unwrap_or_default();
        let words = format!("{change}: {}", cell.times());
        let mut test = match &cell.withheld {
            Some(why) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(border::junit(why));
                TestCase::new(border::junit(&cell.place()), status)
            }
            None => case(cell.place(), (cell.verdict == Verdict::Worse).then(|| words.clone())),
        };
        test.set_system_out(border::junit(&words));
        times.add_test_case(test);
    }
    let mut counts = TestSuite::new("counts");
    if found.counts_compared.exact == 0 {
        let mut status = TestCaseStatus::skipped();
        status.set_message(border::junit("no exact count was compared"));
        counts.add_test_case(TestCase::new(border::junit("exact counts"), status));
    }
    counts.add_test_cases(found.counts.iter().filter(|change| change.is_exact).map(|change| {
        let name = format!("{} {}, {}: {}", change.arm, change.workload, change.state, change.name);
        let words = format!("{} a call, was {}", change.new, change.old);
        case(name, change.is_worse().then_some(words))
    }));
    let mut scores = TestSuite::new("scores");
    scores.add_test_cases(found.scores.iter().map(|change| {
        let name = format!("{} {}, {}", change.arm, change.workload, change.score);
        case(name, change.is_worse().then(|| change.words()))
    }));
    let mut passes = TestSuite::new("passes");
    passes.add_test_cases(found.failures.iter().map(|change| {
        let name = format!("{} {}, {}", change.arm, change.workload, change.state);
        let words = format!("{} of {} fail, {} of {} did", change.new.0, change.new.1, change.old.0, change.old.1);
        case(name, change.is_worse().then_some(words))
    }));
    let mut harms = TestSuite::new("harm");
    harms.add_test_cases(found.harms.iter().map(|change| {
        let ((new, of), (old, of_old)) = (change.new, change.old);
        let words = format!("{new} of {of}, was {old} of {of_old}");
        case(format!("{}, {}", change.arm, change.what), change.is_worse().then_some(words))
    }));
    harms.add_test_cases(found.not_checked_again().map(|words| case("looked at again".to_owned(), Some(words))));
    let mut claims = TestSuite::new("claims");
    claims.add_test_cases(found.claims.iter().map(|change| {
        let words = format!("{}, was {}: {}", change.new.name(), change.old.name(), change.evidence);
        case(change.id.clone(), change.is_lost().then_some(words))
    }));
    let mut report = Report::new("ctxbench compare");
    report.add_test_suites([times, counts, scores, passes, harms, claims]);
    report.to_string().map_err(|error| format!("JUnit: {error}"))
}

fn ranking_rows(found: &Ranking) -> Vec<Vec<String>> {
    let cells = found.cells.iter().map(|cell| {
        let arms = cell
            .arms
            .iter()
            .map(|ranked| format!("{}. {} {} ×{:.2}", ranked.rank, ranked.arm, time(ranked.typical_ns), ranked.ratio));
        let failing = cell.not_ranked.iter();
        let failing =
            failing.map(|arm| format!("no rank: {} ({} of {} passes failed)", arm.arm, arm.failed, arm.passes));
        let arms = arms.chain(failing);
        vec![cell.metric.clone(), cell.workload.clone(), cell.state.clone(), arms.collect::<Vec<_>>().join(", ")]
    });
    cells.collect()
}

fn arm_rows(found: &Ranking) -> Vec<Vec<String>> {
    let arms = found
        .arms
        .iter()
        .map(|arm| vec![arm.arm.clone(), format!("{} of {}", arm.first, arm.cells), arm.failed_passes.to_string()]);
    arms.collect()
}

const ARM_HEAD: &str = "arm | first in | failed passes";
const RANK_HEAD: &str = "metric | workload | state | arms by rank";

fn ranking_words(found: &Ranking) -> String {
    let detectable = found.detectable.map_or(String::new(), |ratio| {
        format!(" A difference of ×{ratio:.2} between two arms would have been found with a chance of 80 % (median).")
    });
    let busy = if found.is_busy {
        " The machine was busy: ranks differ only if other processes cannot explain the difference."
    } else {
        ""
    };
    format!(
        "{} pairs, paired by round, corrected by Holm at 1 %; arms that cannot be told apart beyond the margin share a rank. The times are those of the run's report, each with its ratio to the time of the first arm; ranks come from the ratios within rounds, so that an arm with a longer time can have the better rank.{detectable}{busy}",
        found.pairs
    )
}

/// A ranking for a terminal.
pub fn ranking_text(found: &Ranking) -> String {
    format!(
        "{}\n{}\n{}",
        table(&columns(RANK_HEAD), &ranking_rows(found)),
        table(&columns(ARM_HEAD), &arm_rows(found)),
        paragraph("", "", &ranking_words(found))
    )
}

/// A ranking in Markdown.
pub fn ranking_markdown(found: &Ranking) -> String {
    markdown(&[
        Heading(2, "ctxbench compare".to_owned()),
        Text(ranking_words(found)),
        Table(columns(ARM_HEAD), arm_rows(found)),
        Table(columns(RANK_HEAD), ranking_rows(found)),
    ])
}
