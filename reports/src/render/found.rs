//! The report's section on planted evidence: scores, tokens and times of search methods.

use rundir::Score;

use super::part::Part::{self, Heading, Table, Text};
use super::report::Report;
use figures::text::columns;

/// Scores that are shares of questions: their name, and their column's title.
const SHARES: [(&str, &str); 8] = [
    ("evidence-in-budget", "answer in budget"),
    ("found-at-1", "first"),
    ("found-at-5", "among 5"),
    ("found-at-10", "among 10"),
    ("own-words", "own words"),
    ("other-words", "other words"),
    ("stale", "stale"),
    ("old-first", "old before new"),
];

pub(super) fn found(report: &Report<'_>, parts: &mut Vec<Part>) {
    let all = &report.summary.found;
    if all.is_empty() {
        return;
    }
    parts.push(Heading(3, "What a search finds".to_owned()));
    let differ = all.iter().filter(|result| result.differs).count();
    let exact = match differ {
        0 => "All passes of an arm found the same.".to_owned(),
        _ => {
            format!("In rows with \"≠\" ({differ}), passes of one arm did not find the same; the first pass is shown.")
        }
    };
    parts.push(Text(format!(
        "Questions whose answers were planted among generated notes: the share of questions whose answer is within the budget of tokens, and its rank. \"own words\" and \"other words\": whether the question has the words of its note. \"stale\": only an outdated answer was found. \"old before new\": an outdated answer comes before the current one, or without it. \"said that there is no answer\": of the questions without one. Scores are computed outside the timed section. A time is that of all calls of its kind in the workload. {exact}"
    )));
    let head = columns(&format!(
        "workload | arm | method | {} | tokens a question | tokens a found answer | \
         said that there is no answer | time a call",
        SHARES.map(|(_, column)| column).join(" | ")
    ));
    let rows = all.iter().map(|result| {
        let differs = if result.differs { " ≠" } else { "" };
        let method = format!("{}{differs}", result.method);
        let mut row = vec![result.workload.clone(), result.arm.clone(), method];
        row.extend(SHARES.map(|(name, _)| share(result.score(name))));
        let tokens = result.score("tokens").unwrap_or_default();
        let found = result.score("evidence-in-budget").unwrap_or_default();
        row.push(each(tokens.sum, tokens.of));
        row.push(each(tokens.sum, found.sum));
        row.push(share(result.score("admitted")));
        row.push(report.typical(&result.workload, &result.arm, metric(&result.method)));
        row
    });
    parts.push(Table(head, rows.collect()));
}

fn share(score: Option<Score>) -> String {
    match score {
        Some(Score { sum, of }) if of > 0 => {
            format!("{:.0} % ({sum}/{of})", 100.0 * sum as f64 / of as f64)
        }
        _ => "–".to_owned(),
    }
}

fn each(sum: u64, of: u64) -> String {
    let mean = Score { sum, of }.mean();
    mean.map_or("–".to_owned(), |mean| format!("{mean:.0}"))
}

/// The kind of the calls that a method makes.
fn metric(method: &str) -> &'static str {
    match method {
        method if method.starts_with("MEMORY.md") => "read",
        method if method.starts_with(":recall") => "recall",
        _ => "search",
    }
}
