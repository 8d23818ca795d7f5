//! Claim files: what is refused, what is counted, and the built-in ones.

use super::{READ, cases, judged, latency, parse};
use crate::claims::{Catalogue, ClaimStatus, check, judge, tally};
use crate::evidence::RunEvidence;
use crate::testing;

#[test]
fn a_malformed_claim_is_refused_with_file_line_and_field() {
    let error = |claim: &str| parse(claim).unwrap_err();
    assert!(error("").starts_with("c.toml:2: claim c: needs exactly one of `test`, `case`"));
    let both = format!("untestable = 'u'\n{}", latency(READ, "below = 1.0"));
    assert!(error(&both).contains("needs exactly one of `test`, `case`"));
    assert!(
        error("colour = 'red'")
            .starts_with("c.toml:5: field `claim[0].colour`: unknown field `colour`")
    );
    assert!(
        error(&format!("test.latency = {READ}"))
            .contains("field `claim[0].says`: claim c: is missing")
    );
    assert!(error(&latency(READ, "below = 1.0, above = 2.0")).contains("exactly one of `below`"));
    assert!(
        error(&latency(READ, "between = [2.0, 1.0]"))
            .contains("the first number is the larger one")
    );
    let unit = latency(READ, "below = 1.0").replace("'ms'", "'tokens'");
    let unit = error(&unit);
    assert!(
        unit.starts_with("c.toml:5: field `claim[0].says.unit`: claim c: \"tokens\" is not a unit of this test; its units are ms"),
        "{unit}"
    );
    let figure = "says = { below = 1.0, unit = 'tokens' }\ntest.reading = { arm = 'p', measure.context = { workload = 'w', figure = 'f' } }";
    assert!(error(figure).contains("no figure \"f\"; there are entering"));
    let metric = format!("says = {{ below = 1.0, unit = 'ms' }}\ntest.latencies = {READ}");
    assert!(error(&metric).contains("unknown variant `latencies`, expected one of `latency`"));
    let tie = "says = { equals = 1.0, unit = 'times' }\ntest.reading = { arm = 'sqlite', over = 'direct', measure.results = { workload = 'micro/read' } }";
    assert!(error(tie).contains("equal by construction"));
    let twice = "untestable = 'u'\n[[claim]]\nid = 'c'\nquote = 'q'\nuntestable = 'u'";
    assert!(error(twice).contains("two claims have the id \"c\""));
}

#[test]
fn a_run_knows_its_own_parts() {
    let run = testing::run();
    let known: [&dyn Catalogue; 1] = [&run];
    let fine = parse(&latency(READ, "below = 1.0")).unwrap();
    assert!(check(&fine, &known).is_ok());
    let wrong = parse(&latency(
        &READ.replace("'sqlite'", "'sqlight'"),
        "below = 1.0",
    ))
    .unwrap();
    let error = check(&wrong, &known).unwrap_err().to_string();
    assert!(
        error.starts_with("c.toml:6: field `claim[0].test.arm`: claim c: unknown arm \"sqlight\", expected one of direct, direct-again, sqlite"),
        "{error}"
    );
    let in_case = parse(&cases("below = 1.0", "missing")).unwrap();
    let error = check(&in_case, &known).unwrap_err().to_string();
    assert!(
        error.contains("field `claim[0].case[1].test.workload`"),
        "{error}"
    );
}

#[test]
fn the_tally_counts_what_is_settled_and_by_which_command_more_would_be() {
    let run = testing::run();
    let missing = latency(&READ.replace("micro/read", "micro/none"), "below = 1.0");
    let claims = [
        latency(READ, "below = 1.0"),
        latency(READ, "below = 0.01"),
        missing.clone(),
        missing,
        "elsewhere = 'there'".to_owned(),
        "untestable = 'why'".to_owned(),
    ];
    let judged: Vec<_> = claims.iter().map(|claim| judged(claim, &[&run])).collect();
    let tally = tally(&judged);
    assert_eq!((tally.claims, tally.settled, tally.testable), (6, 3, 5));
    let command = "ctxbench run --workload micro/none --state hot --backend sqlite";
    assert_eq!(tally.commands, [(command.to_owned(), 2)]);
    assert!(
        tally
            .words()
            .starts_with("3 of 5 testable claims are settled (60 %), 50 % of 6 in all")
    );
}

#[test]
fn the_built_in_claims_can_be_judged() {
    let judged = judge(&[]).unwrap();
    assert!(judged.len() >= 150, "{}", judged.len());
    let mut ids: Vec<_> = judged.iter().map(|claim| &claim.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), judged.len(), "two claims have one name");
    for claim in &judged {
        let needs_command = claim.status == ClaimStatus::NotMeasured;
        assert!(!needs_command || claim.settle.is_some(), "{}", claim.id);
        assert_ne!(claim.status, ClaimStatus::Confirmed, "{}", claim.id);
    }
}

/// The built-in claims that the scripted run gives a status.
#[test]
fn the_status_of_built_in_claims_on_the_scripted_run_is_as_recorded() {
    let run = testing::run();
    let (summary, contexts) = (testing::summary(), testing::contexts());
    let judged = judge(&[RunEvidence::new(&run, &summary, &contexts)]).unwrap();
    let by_run = judged.iter().filter(|claim| {
        !matches!(
            claim.status,
            ClaimStatus::NotMeasured | ClaimStatus::NotReproduced | ClaimStatus::Untestable
        )
    });
    let lines = by_run.map(|claim| format!("{}: {}\n", claim.id, claim.status.name()));
    insta::assert_snapshot!(lines.collect::<String>());
}
