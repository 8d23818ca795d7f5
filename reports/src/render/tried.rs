//! The sessions that `ctxbench try` was given: their names, tokens and reported dollars.

use super::part::Part::{self, Heading, Table, Text};
use super::report::Report;
use crate::sessions::{TriedBill, TriedSession};
use figures::text::{columns, count, number_of};

/// Sessions with a row of their own.
const MOST_SESSIONS: usize = 10;

pub(super) fn tried(report: &Report<'_>, parts: &mut Vec<Part>) {
    let Some(first) = report.sessions.first() else {
        return;
    };
    parts.push(Heading(3, "Your sessions".to_owned()));
    parts.push(Text(match report.sessions.len() {
        1 => format!("The answers below are about {}, by its own calls, tokens and model.", first.name),
        _ => "The answers below are about the sessions with a workload, by their own calls, tokens and models."
            .to_owned(),
    }));
    let shown = report.sessions.iter().take(MOST_SESSIONS);
    let mut rows: Vec<Vec<String>> = shown.map(row).collect();
    if let Some(rest) = report.sessions.get(MOST_SESSIONS..).filter(|rest| !rest.is_empty()) {
        let title = format!("{} more", number_of(rest.len(), "session"));
        rows.push(sum(title, rest));
    }
    if report.sessions.len() > 1 {
        rows.push(sum("all".to_owned(), report.sessions));
    }
    let head = "session | workload | agent and models | tool calls | of them replayable | tokens in | tokens out | USD, as reported";
    parts.push(Table(columns(head), rows));
}

fn row(session: &TriedSession) -> Vec<String> {
    let models = session.bills.iter().map(|bill| match bill.model.as_str() {
        "" => "a model without a name",
        model => model,
    });
    let models: Vec<&str> = models.collect();
    let on =
        if models.is_empty() { session.agent.clone() } else { format!("{} on {}", session.agent, models.join(", ")) };
    let of = |of: fn(&TriedBill) -> u64| session.bills.iter().map(of).fold(0, u64::saturating_add);
    let (prompt, output) = match session.counted {
        Some(counted) => (format!("{} counted", count(counted)), "–".to_owned()),
        None => (count(of(|bill| bill.prompt)), count(of(|bill| bill.output))),
    };
    let workload = match session.workload.as_str() {
        "" => "–",
        workload => workload,
    };
    vec![
        session.name.clone(),
        workload.to_owned(),
        on,
        count(session.calls),
        count(session.replayed),
        prompt,
        output,
        dollars(std::slice::from_ref(session)),
    ]
}

/// The reported dollars of sessions in words; the models without a price are named.
fn dollars(sessions: &[TriedSession]) -> String {
    let bills = || sessions.iter().flat_map(|session| &session.bills);
    let priced = bills().filter_map(|bill| bill.dollars).fold(0.0, |sum, dollars| sum + dollars);
    let mut unpriced: Vec<&str> =
        bills().filter(|bill| bill.dollars.is_none()).map(|bill| bill.model.as_str()).collect();
    unpriced.sort_unstable();
    unpriced.dedup();
    let mut words = if bills().any(|bill| bill.dollars.is_some()) { format!("{priced:.2}") } else { "–".to_owned() };
    if !unpriced.is_empty() {
        words += &format!(" without {}, which has no price", unpriced.join(", "));
    }
    let stated = sessions.iter().filter_map(|session| session.stated).reduce(|one, other| one + other);
    if let Some(stated) = stated {
        words += &format!(" (the recording itself states {stated:.2})");
    }
    words
}

fn sum(title: String, sessions: &[TriedSession]) -> Vec<String> {
    let of = |of: &dyn Fn(&TriedSession) -> u64| count(sessions.iter().map(of).fold(0, u64::saturating_add));
    let bills =
        |session: &TriedSession, of: fn(&TriedBill) -> u64| session.bills.iter().map(of).fold(0, u64::saturating_add);
    vec![
        title,
        "–".to_owned(),
        "–".to_owned(),
        of(&|session| session.calls),
        of(&|session| session.replayed),
        of(&|session| bills(session, |bill| bill.prompt)),
        of(&|session| bills(session, |bill| bill.output)),
        dollars(sessions),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;
    use crate::render::{markdown, page, write};

    const HOSTILE: &str = "<script>alert(1)</script>|`[a](javascript:b)\u{1b}]0;x\u{7}\u{202e}.jsonl";

    #[test]
    fn the_page_of_a_try_has_names_and_dollars_and_no_name_gives_orders() {
        let bill = |model: &str, dollars| TriedBill { model: model.to_owned(), prompt: 1_234_567, output: 89, dollars };
        let session = |name: &str, bills| TriedSession {
            name: name.to_owned(),
            workload: "agent/session-a".to_owned(),
            agent: "claude-code 2.1".to_owned(),
            calls: 36,
            replayed: 24,
            bills,
            ..TriedSession::default()
        };
        let inputs = Inputs::judged();
        let sessions = [
            session("mine.jsonl", vec![bill("claude-sonnet-4-5", Some(4.766))]),
            session(HOSTILE, vec![bill("own-model", None)]),
        ];
        let mut report = inputs.report();
        report.sessions = &sessions;
        let parts = page::page(&report);
        let text = markdown::markdown(&parts);
        for words in
            ["mine.jsonl", "claude-code 2.1 on claude-sonnet-4-5", "1,234,567", "4.77", "own-model, which has no price"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let dir = tempfile::tempdir().unwrap();
        let html = std::fs::read_to_string(write(&report, dir.path()).unwrap()).unwrap();
        assert!(html.contains("mine.jsonl") && html.contains("4.77"));
        for page in [&text, &html] {
            assert!(!page.contains("<script>alert") && !page.contains(['\u{1b}', '\u{202e}']));
        }
        // A run that `try` did not make has no such table.
        let text = markdown::markdown(&page::page(&inputs.report()));
        assert!(!text.contains("Your sessions"));
    }
}
