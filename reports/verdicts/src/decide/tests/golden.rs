//! The verdict and the states of all rows on the planted evidence of `cases`, as a snapshot. A change of either shows there.

use std::fmt::Write;

use super::cases::cases;
use super::*;

/// The rows that `known` does not have in the same state.
fn changed_rows(decision: &Decision, known: Option<&Decision>) -> String {
    let is_known = |row: &&Row| {
        let rows = known.map_or(&[][..], |known| &known.rows);
        let mut same = rows.iter();
        !same.any(|other| other.title == row.title && other.state == row.state)
    };
    let rows = decision.rows.iter().filter(is_known);
    let lines = rows.map(|row| {
        let state = row.role.state(row.state);
        format!("\n    {}: {}: {state}", row.role.name(), row.title)
    });
    lines.collect()
}

#[test]
fn verdicts_and_row_states_on_the_planted_evidence_are_as_recorded() {
    let mut text = String::new();
    for (policy, candidate, make, changes) in cases() {
        let good = of(policy, &make(), candidate);
        let verdict = good.verdict.name();
        writeln!(text, "{policy}, {candidate}").unwrap();
        writeln!(text, "  as made: {verdict}{}", changed_rows(&good, None)).unwrap();
        for (_, what, change) in changes {
            let mut run = make();
            change(&mut run);
            let found = of(policy, &run, candidate);
            let verdict = found.verdict.name();
            let rows = changed_rows(&found, Some(&good));
            writeln!(text, "  {what}: {verdict}{rows}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn verdicts_on_the_scripted_run_are_as_recorded() {
    let mut text = String::new();
    for decision in crate::testing::decisions() {
        let verdict = decision.verdict.name();
        let (policy, candidate) = (&decision.policy, &decision.candidate);
        let rows = changed_rows(&decision, None);
        writeln!(text, "{policy}, {candidate}: {verdict}{rows}").unwrap();
    }
    insta::assert_snapshot!(text);
}
