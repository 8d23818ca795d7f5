//! Claims and how they stand, for a page, a terminal and a pull request.

use super::markdown::markdown;
use super::part::Part::{self, Folded, Heading, List, Table, Text};
use super::report::Report;
use figures::text::{columns, paragraph, table};
use verdicts::claims::{ClaimResult, ClaimStatus, by_factor, tally};

/// How claims are judged, in words.
const RULES: &str = "A claim is confirmed or refuted if the whole 99 % interval is inside or outside its range; \"about\" means within a factor of two; counts and tokens are exact, and have no interval. \"conditional\": it holds under one condition, but not under another one, or not here. \"arithmetic only\": the source's own figures agree; nothing was measured. \"declared\": a constant of this project or of a backend's makers says so; nothing was tested. What is tested is the figure, on this machine and with our implementation, not the published system itself.";

pub(super) fn claims(report: &Report<'_>, parts: &mut Vec<Part>) {
    // The page stands alone, so it links nowhere, and its section has a title.
    parts.extend(page("", report.claims, false).into_iter().skip(1));
}

fn page(title: &str, claims: &[ClaimResult], with_links: bool) -> Vec<Part> {
    let counted = tally(claims);
    let mut parts = vec![
        Heading(2, title.to_owned()),
        Text(format!("{} {RULES}", counted.words())),
        List(numbered(claims)),
        claims_table(claims, with_links, |claim| claim.status.is_settled()),
    ];
    if !counted.commands.is_empty() {
        parts.push(Folded("Commands that would settle more".to_owned(), vec![List(commands(claims))]));
    }
    let open = |claim: &ClaimResult| !claim.status.is_settled();
    if claims.iter().any(open) {
        parts.push(Folded("Claims that are not settled here".to_owned(), vec![claims_table(claims, with_links, open)]));
    }
    parts
}

fn commands(claims: &[ClaimResult]) -> Vec<String> {
    let commands = tally(claims).commands.into_iter();
    commands
        .map(|(command, count)| match count {
            1 => format!("`{command}` (1 claim)"),
            count => format!("`{command}` ({count} claims)"),
        })
        .collect()
}

fn status(claim: &ClaimResult) -> String {
    let factor = claim.factor.map_or(String::new(), by_factor);
    format!("{}{factor}", claim.status.name())
}

fn evidence(claim: &ClaimResult) -> String {
    match (&claim.settle, claim.status) {
        (Some(command), ClaimStatus::NotMeasured) => format!("{} → `{command}`", claim.evidence),
        _ => claim.evidence.clone(),
    }
}

fn quote(claim: &ClaimResult) -> String {
    let taken = claim.taken.iter().map(|taken| format!(" (taken as {taken})"));
    format!("{}{}", claim.quote, taken.collect::<String>())
}

/// The sources with a number, which stand for their titles in the tables.
fn numbered(claims: &[ClaimResult]) -> Vec<String> {
    let mut sources: Vec<String> = Vec::new();
    for claim in claims {
        if number(&claim.source).is_some() && !sources.contains(&claim.source) {
            sources.push(claim.source.clone());
        }
    }
    sources
}

/// The number of a source that has one: "source 1" of "source 1: its title".
fn number(source: &str) -> Option<&str> {
    let (number, _) = source.split_once(": ")?;
    number.starts_with("source ").then_some(number)
}

fn claims_table(claims: &[ClaimResult], with_links: bool, wanted: impl Fn(&ClaimResult) -> bool) -> Part {
    let rows = claims.iter().filter(|claim| wanted(claim)).map(|claim| {
        let url = claim.url.iter().filter(|_| with_links);
        let url = url.map(|url| format!(", {url}"));
        vec![
            format!("{}{}", number(&claim.source).unwrap_or(&claim.source), url.collect::<String>()),
            quote(claim),
            claim.says.clone(),
            status(claim),
            evidence(claim),
        ]
    });
    let head = columns("source | it says | tested as | standing | evidence");
    Table(head, rows.collect())
}

/// Claims as a table for a terminal, the share tested, and the commands that would test more.
pub fn claims_text(claims: &[ClaimResult]) -> String {
    let rows: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| vec![status(claim), claim.id.clone(), quote(claim), claim.evidence.clone()])
        .collect();
    let mut text = table(&["standing", "claim", "it says", "evidence"], &rows);
    let counted = tally(claims);
    text += &format!("\n{}", paragraph("", "", &counted.words()));
    if !counted.commands.is_empty() {
        text += "\nto settle more:\n";
        for (command, count) in counted.commands {
            text += &format!("  {count:>3}  {command}\n");
        }
    }
    text
}

/// Claims as a Markdown page.
pub fn claims_markdown(claims: &[ClaimResult]) -> String {
    markdown(&page("Published claims", claims, true))
}
