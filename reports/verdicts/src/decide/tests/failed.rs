//! Failed passes: whose they are decides what becomes of a row.

use super::*;
use crate::testing::evidence::{coding, fail_a_pass};

const STATUS: &str = "Time of git status, log, commit and checkout";

fn status_row(run: &Run) -> Row {
    row(&of("coding-agent", run, "sqlite"), STATUS).clone()
}

/// Ends a pass of `program/git` on an arm in this way.
fn git_ends(run: &mut Run, arm: &str, how: Outcome) {
    let first = testing::passes(run, "program/git", arm).next();
    first.unwrap().outcome = how;
}

#[test]
fn every_latency_says_how_many_passes_failed_and_the_bound() {
    let found = status_row(&coding());
    let share = "0 of 28 passes failed (≤ 10.1 %)";
    assert!(found.candidate.contains(share), "{}", found.candidate);
    assert!(found.baseline.contains(share), "{}", found.baseline);
}

#[test]
fn a_failed_pass_of_the_candidate_fails_the_row_whatever_the_others_took() {
    for how in [Outcome::Errno, Outcome::Timeout, Outcome::WrongData, Outcome::Hang, Outcome::Crash, Outcome::Setup] {
        let mut run = coding();
        git_ends(&mut run, "sqlite", how);
        let found = status_row(&run);
        assert_eq!(found.state, RowState::Failed, "{how}");
        assert_eq!(found.effect, None, "the passes that survived give no figure");
        let said = format!("1 of 28 passes failed (1 {how}: 3.6 %, ≤ 15.9 %) in program/git");
        assert_eq!(found.candidate, said);
    }
}

#[test]
fn an_error_counts_in_every_cache_state_and_a_missing_proof_only_in_the_one_that_is_read() {
    for (how, state) in [(Outcome::Errno, RowState::Failed), (Outcome::Infra, RowState::Met)] {
        let mut run = coding();
        let mut cold = testing::passes(&mut run, "program/git", "sqlite").next().unwrap().clone();
        (cold.state, cold.outcome) = ("cold".to_owned(), how);
        run.samples.push(cold);
        assert_eq!(status_row(&run).state, state, "{how}");
    }
}

#[test]
fn a_pass_that_the_harness_failed_voids_the_row_but_not_from_a_void_epoch() {
    let mut run = coding();
    git_ends(&mut run, "sqlite", Outcome::Infra);
    assert_eq!(status_row(&run).state, RowState::Void);
    let mut run = coding();
    let mut epoch = run.epochs[0].clone();
    (epoch.epoch, epoch.void) = (9, Some("the machine slept".to_owned()));
    let mut pass = run.samples.last().unwrap().clone();
    (pass.epoch, pass.outcome) = (9, Outcome::Infra);
    (pass.arm, pass.workload) = ("sqlite".to_owned(), "program/git".to_owned());
    run.epochs.push(epoch);
    run.samples.push(pass);
    assert_eq!(status_row(&run).state, RowState::Met);
}

#[test]
fn a_wrong_baseline_voids_the_comparison_and_says_so() {
    for arm in ["direct", "direct-again"] {
        let mut run = coding();
        git_ends(&mut run, arm, Outcome::WrongData);
        let found = of("coding-agent", &run, "sqlite");
        assert_eq!(found.verdict, NotDecided, "{arm}");
        assert!(found.why.starts_with("Failed passes of the baseline: void: 1 of"), "{}", found.why);
        assert_eq!(row(&found, STATUS).state, RowState::Void);
    }
    // In a workload that no row reads, too: a plain directory that is wrong is a wrong machine.
    let mut run = cron();
    fail_a_pass(&mut run, "micro/read", "direct");
    assert_eq!(of("cron-controller", &run, "sqlite").verdict, NotDecided);
}

#[test]
fn an_error_where_the_baseline_fails_too_is_not_the_candidates() {
    let mut run = coding();
    fail_a_pass(&mut run, "program/git", "sqlite");
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, Archive);
    fail_a_pass(&mut run, "program/git", "direct");
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, NotDecided);
    git_ends(&mut run, "sqlite", Outcome::WrongData);
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, Archive);
}

#[test]
fn passes_that_the_harness_failed_do_not_show_that_passes_end_well() {
    let mut run = coding();
    let passes = run.samples.iter_mut().filter(|pass| pass.arm == "sqlite");
    passes.for_each(|pass| pass.outcome = Outcome::Infra);
    let found = of("coding-agent", &run, "sqlite");
    assert_eq!(row(&found, "Failed passes").state, RowState::Missing);
}
