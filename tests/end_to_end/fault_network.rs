//! `ctxbench fault` with the groups `s3` and `llm`: faults of the bucket and of the model, over real
//! mounts.

use rundir::faults::{AgentEventKind, AuditVerdict, Fact, FaultOutcome, Return, Status};

use crate::common::{has, mountable};
use crate::faults::{fault, of};

fn count(outcome: &FaultOutcome, name: &str) -> u64 {
    match outcome.facts.get(name) {
        Some(Fact::Count(count)) => *count,
        other => panic!("{name} is {other:?}: {outcome:#?}"),
    }
}

#[test]
fn a_mount_reports_bucket_faults_as_errors_and_loses_nothing() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=s3-embedded --scenario=s3-short-body --scenario=s3-wrong-bytes \
                --scenario=s3-stale-list --scenario=s3-lost-answers --scenario=s3-conflict \
                --scenario=s3-partition-in-sync";
    let (_, run, said) = fault(&scratch, line);
    assert_eq!(run.fault_outcomes.len(), 6, "{said}");
    for outcome in &run.fault_outcomes {
        assert_eq!(outcome.status, Status::Ran, "{outcome:#?}");
        assert_eq!(outcome.breaches, [""; 0], "{outcome:#?}");
        for audit in outcome.audits.values() {
            assert_eq!(audit.verdict, AuditVerdict::Valid, "{outcome:#?}");
        }
        has(outcome.label.as_ref().unwrap(), &["simulated"]);
        for seen in &outcome.seen {
            assert_eq!(seen.what, AgentEventKind::Errno, "{outcome:#?}");
        }
        match outcome.scenario.as_str() {
            "s3-conflict" => assert_eq!(count(outcome, "conflicts_detected"), 5),
            "s3-partition-in-sync" => assert_eq!(count(outcome, "commits_of_the_batch"), 1),
            // A fault that hit no request would prove nothing.
            _ => assert!(count(outcome, "requests_hit") > 0, "{outcome:#?}"),
        }
    }
}

#[test]
fn a_mount_commits_every_change_once_after_an_outage() {
    let Some(scratch) = mountable() else { return };
    let (_, run, _) = fault(&scratch, "--backend=s3-embedded --scenario=s3-slow-down");
    let outcome = of(&run, "s3-slow-down");
    assert_eq!(outcome.status, Status::Ran, "{outcome:#?}");
    let mut breaches = outcome.breaches.clone();
    // The limit holds for release builds. The limit for debug builds is below.
    breaches.retain(|breach| !breach.starts_with("the daemon grew"));
    assert_eq!(breaches, [""; 0], "{outcome:#?}");
    let recovery = outcome.recovery.as_ref().unwrap();
    assert_eq!(recovery.how, Return::ByItself, "{outcome:#?}");
    assert!(count(outcome, "commits") > 0, "{outcome:#?}");
    // The daemon must not hold even half of the data written during the outage.
    // The kernel counts both at different moments: a daemon that did not grow can have the lower peak.
    let before = count(outcome, "rss_before_kib");
    let grown = count(outcome, "rss_peak_kib").saturating_sub(before);
    let written = count(outcome, "written_meanwhile_kib");
    assert!(grown < written / 2, "{outcome:#?}");
}

#[test]
fn a_mount_reports_model_faults_as_errors_never_as_an_empty_file() {
    let Some(scratch) = mountable() else { return };
    let line = "--backend=llm-history-scripted --backend=llm-generate-scripted \
                --scenario=llm-empty --scenario=llm-context-overflow --scenario=llm-wrong-content";
    let (_, run, said) = fault(&scratch, line);
    assert_eq!(run.fault_outcomes.len(), 6, "{said}");
    for outcome in &run.fault_outcomes {
        let is_wrong = outcome.scenario == "llm-wrong-content";
        if is_wrong && outcome.backend != "llm-history-scripted" {
            assert_eq!(outcome.status, Status::Skipped, "{outcome:#?}");
            continue;
        }
        assert_eq!(outcome.status, Status::Ran, "{outcome:#?}");
        assert!(count(outcome, "model_calls") > 0, "{outcome:#?}");
        let seen = &outcome.seen[0];
        if is_wrong {
            // The mount cannot detect this. The report records that wrong bytes were read.
            assert_eq!(seen.what, AgentEventKind::WrongBytes, "{outcome:#?}");
            continue;
        }
        assert_eq!(seen.errno, Some(5), "{outcome:#?}");
        let line = outcome.facts.get("log_line");
        assert!(matches!(line, Some(Fact::Words(_))), "{outcome:#?}");
        assert_eq!(outcome.breaches, [""; 0], "{outcome:#?}");
        let recovery = outcome.recovery.as_ref().unwrap();
        assert_eq!(recovery.how, Return::ByItself, "{outcome:#?}");
    }
}
