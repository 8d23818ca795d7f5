//! Claim files: what is refused, what is counted, and the built-in ones.

use rundir::{Run, Score};

use super::{READ, cases, changed, judged, latency, of_sqlite, parse, reading};
use crate::claims::{Catalogue, ClaimResult, ClaimStatus, check, judge, tally};
use figures::evidence::RunEvidence;
use figures::summary::summarise;
use figures::testing;

#[test]
fn a_malformed_claim_is_refused_with_file_line_and_field() {
    let context = "context = { workload = 'w', figure = 'f' }";
    let baseline = "arm = 'sqlite', baseline = 'direct'";
    let results = "results = { workload = 'micro/read' }";
    let sizes = "growth = { state = 'hot', metric = 'read', sizes = [[1, 'a'], [1, 'b']] }";
    let errors = [
        String::new(),
        format!("untestable = 'u'\n{}", latency("below = 1.0")),
        "colour = 'red'".to_owned(),
        format!("test.reading = {{ arm = 'sqlite', measure.{READ} }}"),
        latency("below = 1.0, above = 2.0"),
        latency("below = inf"),
        latency("between = [2.0, 1.0]"),
        latency("above = -1.0"),
        latency("below = 0.0"),
        of_sqlite("probes", "above = 1", "probes = { aspect = 'tool', names = ['cat'] }"),
        latency("about = 0.0"),
        latency("below = 1.0").replace("'ms'", "'tokens'"),
        of_sqlite("ratio", "below = 1.0", READ),
        reading("ms", "below = 1.0", baseline, READ),
        of_sqlite("tokens", "below = 1.0", context),
        of_sqlite("exponent", "below = 1.0", sizes),
        latency("below = 1.0").replace("latency", "latencies"),
        reading("ratio", "equals = 1.0", baseline, results),
        of_sqlite("calls", "equals = 1", "model-files = { figure = 'calls' }"),
        of_sqlite("passes", "equals = 0", "passes = { workload = 'micro/read' }"),
        of_sqlite("properties", "equals = 1", "property = { of = ['survives-machine-loss'] }"),
        of_sqlite("notes", "above = 0", "hosts = { workload = 'micro/read', figure = 'unseen-notes' }"),
        of_sqlite("records", "equals = 0", "faults = { scenarios = ['cron-kill'], figure = 'lost-records' }"),
        reading("ratio", "about = 1.0", "arm = 'sqlite', baseline = 'sqlite'", READ),
        "says = { equals = 1, unit = 'tokens' }\ntest.arithmetic.sum = [1.0]".to_owned(),
        "untestable = 'u'\n[[claim]]\nid = 'c'\nquote = 'q'\nuntestable = 'u'".to_owned(),
    ];
    let errors = errors.map(|claim| parse(&claim).unwrap_err());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn a_run_knows_its_own_parts() {
    let run = testing::run();
    let known: [&dyn Catalogue; 1] = [&run];
    let fine = parse(&latency("below = 1.0")).unwrap();
    assert!(check(&fine, &known).is_ok());
    let growth = "growth = { state = 'hot', metric = 'read', sizes = [[1, 'micro/read'], [2, 'micro/none']] }";
    for (claim, place, words) in [
        (
            latency("below = 1.0").replace("'sqlite'", "'sqlight'"),
            "c.toml:6: field `claim[0].test.reading.arm`",
            "unknown arm \"sqlight\"; use one of direct, direct-again, sqlite",
        ),
        (
            latency("below = 1.0").replace("'hot'", "'cold'"),
            "c.toml:6: field `claim[0].test.reading.measure.latency.state`",
            "micro/read has no cache state \"cold\"; use one of hot",
        ),
        (
            latency("below = 1.0").replace("'read'", "'red'"),
            "c.toml:6: field `claim[0].test.reading.measure.latency.metric`",
            "micro/read has no metric \"red\"; use one of read, ready",
        ),
        (
            cases("below = 1.0", "missing"),
            "c.toml:12: field `claim[0].case[1].test.reading.measure.latency.workload`",
            "unknown workload \"micro/none\"",
        ),
        (
            of_sqlite("exponent", "below = 1.0", growth),
            "c.toml:6: field `claim[0].test.reading.measure.growth.sizes`",
            "unknown workload \"micro/none\"",
        ),
    ] {
        let error = check(&parse(&claim).unwrap(), &known).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(place) && error.contains(words), "{error}");
    }
}

#[test]
fn the_tally_counts_what_is_tested_and_by_which_command_more_would_be() {
    let run = testing::run();
    let missing = latency("below = 1.0").replace("micro/read", "micro/none");
    let claims = [
        latency("below = 1.0"),
        latency("below = 0.01"),
        missing.clone(),
        missing,
        "elsewhere = 'there'".to_owned(),
        "untestable = 'why'".to_owned(),
    ];
    let judged: Vec<_> = claims.iter().map(|claim| judged(claim, &[&run])).collect();
    let tally = tally(&judged);
    assert_eq!((tally.claims, tally.tested, tally.testable), (6, 2, 5));
    let command = "ctxbench run --workload micro/none --backend sqlite";
    assert_eq!(tally.commands, [(command.to_owned(), 2)]);
    let expected = "Measurements decide 2 of the 5 claims that a run can decide (1 confirmed, 1 refuted); 2 not measured, 1 not reproduced here. No run can decide the other one (1 untestable).";
    assert_eq!(tally.words(), expected);
    // Arithmetic on published figures measures nothing.
    let arithmetic = ClaimResult { status: ClaimStatus::ArithmeticOnly, ..judged[0].clone() };
    let counted = super::super::tally(&[judged[0].clone(), arithmetic]);
    assert_eq!((counted.claims, counted.tested, counted.testable), (2, 1, 1));
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

/// A built-in claim, judged by the scripted run after a change.
fn built_in(id: &str, change: impl FnOnce(&mut Run)) -> ClaimResult {
    let run = changed(change);
    let (summary, contexts) = (summarise(&run).unwrap(), testing::contexts());
    let judged = judge(&[RunEvidence::new(&run, &summary, &contexts)]).unwrap();
    judged.into_iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn what_the_field_says_of_the_cost_of_fuse_is_confirmed_or_refuted_by_its_time() {
    // The scripted `sqlite` takes twice the time of `direct`.
    for (id, cells) in [
        ("computer-metadata", [("micro/stat", "stat"), ("micro/delete", "delete")]),
        ("agentfense-overhead", [("micro/read-1k", "read"), ("micro/write-1k", "write")]),
    ] {
        for (factor, expected) in [(0.25, ClaimStatus::Confirmed), (1.0, ClaimStatus::Refuted)] {
            let claim = built_in(id, |run| {
                testing::rename_arm(run, "sqlite", "memory");
                testing::scale(run, "memory", factor);
                for (workload, kind) in cells {
                    testing::copy_workload(run, "micro/read", workload, kind);
                }
            });
            assert_eq!(claim.status, expected, "{id} at ×{factor}: {}", claim.evidence);
        }
    }
}

#[test]
fn that_grep_finds_more_is_confirmed_or_refuted_by_the_evidence_found() {
    use ClaimStatus::{Confirmed, NotMeasured, Refuted};
    for (grep, recall, expected) in [(240, 150, Confirmed), (150, 240, Refuted), (200, 205, NotMeasured)] {
        let claim = built_in("grep-beats-vectors", |run| {
            let arm = "agent-memory-meaning";
            testing::rename_arm(run, "sqlite", arm);
            for workload in ["micro/corpus-longmemeval", "micro/corpus-locomo"] {
                testing::copy_workload(run, "micro/read", workload, "recall");
                for pass in testing::passes(run, workload, arm) {
                    for (method, sum) in [("grep, most words first", grep), (":recall balanced", recall)] {
                        let counts = [("evidence-in-budget".to_owned(), Score { sum, of: 250 })];
                        pass.scores.insert(method.to_owned(), counts.into());
                    }
                }
            }
        });
        assert_eq!(claim.status, expected, "{grep} and {recall} of 250: {}", claim.evidence);
    }
}

/// The built-in claims that the scripted run gives a status.
#[test]
fn the_status_of_built_in_claims_on_the_scripted_run_is_as_recorded() {
    let run = testing::run();
    let (summary, contexts) = (testing::summary(), testing::contexts());
    let judged = judge(&[RunEvidence::new(&run, &summary, &contexts)]).unwrap();
    let by_run = judged.iter().filter(|claim| {
        !matches!(claim.status, ClaimStatus::NotMeasured | ClaimStatus::NotReproduced | ClaimStatus::Untestable)
    });
    let lines = by_run.map(|claim| format!("{}: {}\n", claim.id, claim.status.name()));
    insta::assert_snapshot!(lines.collect::<String>());
}
