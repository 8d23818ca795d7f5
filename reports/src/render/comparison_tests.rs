//! Constructed runs: what a comparison must find, and what it must not.

use rundir::{Outcome, Run};
use stats::Verdict;

use super::{comparison_junit, comparison_markdown, comparison_text, ranking_text};
use figures::evidence::RunEvidence;
use figures::summary::summarise;
use figures::testing;
use verdicts::claims::{ClaimFile, ClaimStatus, judge_file};
use verdicts::compare::{Gate, RunComparison, compare, differences};

const CLAIM: &str = "source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\nsays = { below = 0.3, unit = 'ms' }\ntest.reading = { arm = 'sqlite', measure.latency = { workload = 'micro/read', state = 'hot', metric = 'read' } }\n";

fn found(old: &Run, new: &[&Run], allow_mixed: bool) -> Result<RunComparison, String> {
    let contexts = testing::contexts();
    let summarised = |run: &Run| summarise(run).unwrap();
    let before = summarised(old);
    let after: Vec<_> = new.iter().map(|run| summarised(run)).collect();
    let old = RunEvidence::new(old, &before, &contexts);
    let new = new.iter().zip(&after);
    let new: Vec<_> = new.map(|(run, summary)| RunEvidence::new(run, summary, &contexts)).collect();
    let file = ClaimFile::parse("c.toml".as_ref(), CLAIM).unwrap();
    let before = judge_file(&file, std::slice::from_ref(&old));
    let after = judge_file(&file, &new);
    compare(&old, &new, (&before, &after), allow_mixed)
}

fn assert_all(found: &RunComparison, verdict: Verdict) {
    let mut cells = found.cells.iter();
    assert!(cells.all(|cell| cell.verdict == verdict), "{found:?}");
}

#[test]
fn a_planted_slowdown_is_found_and_an_unchanged_arm_is_not_called_changed() {
    let old = testing::seeded(1);
    let same = testing::seeded(2);
    let unchanged = found(&old, &[&same], false).unwrap();
    assert_eq!(unchanged.cells.len(), 2, "the baseline and the identical arm are apart");
    assert_eq!((unchanged.drift.len(), unchanged.identical.len()), (2, 2));
    assert_all(&unchanged, Verdict::Same);
    assert!(unchanged.counts.is_empty() && unchanged.failures.is_empty() && unchanged.claims.is_empty());
    let mut slow = testing::seeded(2);
    testing::scale(&mut slow, "sqlite", 2.0);
    let slower = found(&old, &[&slow], false).unwrap();
    assert_all(&slower, Verdict::Worse);
    let cell = &slower.cells[0];
    assert!((1.9..2.1).contains(&cell.ratio) && cell.p.unwrap() <= 0.01);
    let detectable = cell.detectable.unwrap();
    assert!(detectable > cell.margin.ratio && detectable < cell.ratio);
    assert!((cell.new_ns / cell.old_ns / 2.0 - 1.0).abs() < 0.2, "{cell:?}");
    let faster = found(&slow, &[&old], false).unwrap();
    assert_all(&faster, Verdict::Better);
    let confirmed = &slower.claims[0];
    assert_eq!((confirmed.old, confirmed.new), (ClaimStatus::Confirmed, ClaimStatus::Refuted));
    assert!(confirmed.is_lost() && !faster.claims[0].is_lost());
}

#[test]
fn a_machine_that_drifts_as_a_whole_changes_no_arm() {
    let old = testing::seeded(1);
    let mut drifted = testing::seeded(2);
    for arm in ["direct", "direct-again", "sqlite"] {
        testing::scale(&mut drifted, arm, 1.5);
    }
    let found = found(&old, &[&drifted], false).unwrap();
    assert_all(&found, Verdict::Same);
    for cell in &found.drift {
        assert!((1.2..1.9).contains(&cell.ratio), "{cell:?}");
    }
}

#[test]
fn harm_that_the_old_run_never_did_fails_the_gates_of_counts_and_times() {
    let old = testing::seeded(1);
    let harmed = |change: &dyn Fn(&mut Run)| {
        let (mut before, mut after) = (old.clone(), testing::seeded(2));
        for run in [&mut before, &mut after] {
            run.crash_points.push(rundir::faults::CrashPoints {
                backend: "sqlite".to_owned(),
                loss: rundir::faults::KILLED_DAEMON.to_owned(),
                points: 60,
                audit: rundir::faults::Audit { present: 600, ..Default::default() },
                ..Default::default()
            });
            run.probes.push(rundir::Probe::new("conformance", "names: rename", "sqlite", Outcome::Ok, ""));
        }
        change(&mut after);
        let found = found(&before, &[&after], false).unwrap();
        let new: Vec<String> = found.new_harm().collect();
        for gate in [Gate::Counts, Gate::Worse] {
            assert!(new.iter().all(|line| found.failing(gate).contains(line)));
        }
        let kind = new.first().map_or("not kept after", |line| line.split([',', ':']).nth(1).unwrap().trim());
        assert_eq!(comparison_junit(&found).unwrap().contains(kind), !new.is_empty());
        new
    };
    assert_eq!(harmed(&|_| {}), [""; 0]);
    let lost = harmed(&|run| run.crash_points[0].audit.lost = 6);
    assert_eq!(lost, ["sqlite, records not kept after killed-daemon: 6 of 606, 0 of 600 before"]);
    let unreadable = harmed(&|run| run.crash_points[0].audit.unreadable = 1);
    assert_eq!(unreadable.len(), 1);
    let mixture = harmed(&|run| run.crash_points[0].mixtures = Some(2));
    assert_eq!(mixture, ["sqlite, records not kept after killed-daemon: 2 of 600, 0 of 600 before"]);
    let died = harmed(&|run| run.crash_points[0].died_by_itself = 3);
    assert_eq!(died, ["sqlite, exits of the daemon itself before killed-daemon: 3 of 60, 0 of 60 before"]);
    for outcome in [Outcome::Ok, Outcome::Errno] {
        let by_hand = harmed(&|run| (run.faults[1].recovered, run.faults[1].outcome) = (false, outcome));
        assert_eq!(by_hand, ["sqlite, recoveries from cron-kill by hand or never: 1 of 1, 0 of 1 before"]);
    }
}

#[test]
fn a_new_run_of_the_plan_that_did_not_look_for_harm_again_does_not_pass() {
    let old = {
        let mut old = testing::seeded(1);
        old.crash_points.push(rundir::faults::CrashPoints {
            backend: "sqlite".to_owned(),
            loss: rundir::faults::KILLED_DAEMON.to_owned(),
            points: 60,
            audit: rundir::faults::Audit { present: 600, ..Default::default() },
            ..Default::default()
        });
        for feature in ["names: rename", "names: odd ones"] {
            old.probes.push(rundir::Probe::new("conformance", feature, "sqlite", Outcome::Ok, ""));
        }
        old
    };
    let unchecked = |change: fn(&mut Run)| {
        let mut new = Run { samples: testing::seeded(2).samples, ..old.clone() };
        change(&mut new);
        let compared = found(&old, &[&new], false).unwrap();
        let lines: Vec<String> = compared.not_checked_again().collect();
        let failing = compared.failing(Gate::Counts);
        assert!(lines.iter().all(|line| failing.contains(line)), "{failing:?}");
        assert_eq!(compared.failing(Gate::Worse).is_empty(), lines.is_empty() || lines[0].contains(" of counts "));
        for written in [comparison_markdown(&compared), comparison_text(&compared)] {
            let words = written.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words.contains("not look again at all"), !lines.is_empty(), "{written}");
        }
        assert_eq!(comparison_junit(&compared).unwrap().contains("looked at again"), !lines.is_empty());
        // Another plan may look at less.
        new.plan.suite = "other".to_owned();
        assert_eq!(found(&old, &[&new], true).unwrap().not_checked_again().count(), 0);
        lines
    };
    assert_eq!(unchecked(|_| {}), [""; 0]);
    let end = "which is not a pass";
    let records = "sqlite: 1 check of records not looked at again (records not kept after killed-daemon)";
    let recoveries =
        "sqlite: 1 check of recoveries not looked at again (exits of the daemon itself before killed-daemon)";
    let all = [format!("{records}, {end}"), format!("{recoveries}, {end}")];
    assert_eq!(unchecked(|run| run.crash_points.clear()), all);
    // Kills without a record that could be checked looked at nothing.
    let unknown = |run: &mut Run| run.crash_points[0].audit = rundir::faults::Audit::unknown("no log");
    assert_eq!(unchecked(unknown), [format!("{records}, {end}")]);
    let features = "sqlite: 2 checks of features and tools not looked at again (failure of conformance names: odd ones; failure of conformance names: rename)";
    let probes = |run: &mut Run| run.probes.retain(|probe| probe.aspect != "conformance");
    assert_eq!(unchecked(probes), [format!("{features}, {end}")]);
    let passes = unchecked(|run| run.samples.retain(|pass| (&*pass.arm, &*pass.workload) != ("sqlite", "micro/read")));
    assert_eq!(passes, [format!("sqlite: 1 check of passes not looked at again (micro/read, hot), {end}")]);
    let counts = unchecked(|run| run.cells.retain(|cell| (&*cell.arm, &*cell.workload) != ("sqlite", "micro/read")));
    let both = "sqlite: 2 checks of counts not looked at again (micro/read, hot; micro/read, hot: requests)";
    assert_eq!(counts, [format!("{both}, {end}")]);
    let requests = unchecked(|run| run.cells.iter_mut().for_each(|cell| cell.counted.daemon = None));
    assert!(requests[0].contains("(agent/session, hot: requests; micro/read, hot: requests)"), "{requests:?}");
}

#[test]
fn a_wrong_answer_of_any_kind_is_new_harm_and_a_cost_is_none() {
    let old = {
        let mut old = testing::seeded(1);
        for pass in &mut old.samples {
            let scores = rundir::ScoreName::ALL.iter();
            let scores = scores.map(|name| (name.name().to_owned(), rundir::Score { sum: 0, of: 9 }));
            pass.scores.insert("task".to_owned(), scores.collect());
        }
        old
    };
    for name in rundir::ScoreName::ALL {
        let mut new = old.clone();
        let passes = testing::passes(&mut new, "micro/read", "sqlite");
        passes.for_each(|pass| pass.scores.get_mut("task").unwrap().get_mut(name.name()).unwrap().sum = 1);
        let harm: Vec<String> = found(&old, &[&new], false).unwrap().new_harm().collect();
        let is_wrong = ["old-first", "stale", "stale-answers"].contains(&name.name());
        assert_eq!(harm.len(), usize::from(is_wrong), "{}: {harm:?}", name.name());
    }
}

/// A run whose passes of a task on `sqlite` have every score.
fn scored() -> Run {
    let mut run = testing::seeded(1);
    for (at, pass) in testing::passes(&mut run, "micro/read", "sqlite").enumerate() {
        let scores = rundir::ScoreName::ALL.iter().map(|name| {
            let sum = match name.kind() {
                rundir::ScoreKind::Found => 90,
                rundir::ScoreKind::Wrong => 10,
                // Passes differ by a factor of three.
                rundir::ScoreKind::Delay => 1000 * (1 + at as u64 % 3),
                _ => 10_000,
            };
            (name.name().to_owned(), rundir::Score { sum, of: 100 })
        });
        pass.scores.insert("task".to_owned(), scores.collect());
    }
    run
}

#[test]
fn tokens_answers_and_delays_that_got_worse_beyond_the_margin_fail_the_gates() {
    use rundir::ScoreKind::{Circumstance, Cost, Delay, Found, Wrong};
    let old = scored();
    // As failing: the gates of times, and of counts.
    for (kind, factor, failing) in [
        (Cost, 3.0, [true, true]),
        (Cost, 1.06, [true, true]),
        (Cost, 1.04, [false, false]),
        (Cost, 0.3, [false, false]),
        (Found, 0.5, [true, true]),
        (Found, 0.93, [true, true]),
        (Found, 0.96, [false, false]),
        (Found, 1.1, [false, false]),
        (Wrong, 2.0, [true, true]),
        (Wrong, 1.4, [false, false]),
        (Wrong, 0.0, [false, false]),
        (Delay, 10.0, [true, false]),
        // The fastest pass is as late as the slowest one was.
        (Delay, 3.0, [false, false]),
        (Delay, 0.1, [false, false]),
        (Circumstance, 9.0, [false, false]),
    ] {
        for name in rundir::ScoreName::ALL.iter().filter(|name| name.kind() == kind) {
            let mut new = old.clone();
            for pass in testing::passes(&mut new, "micro/read", "sqlite") {
                let score = pass.scores.get_mut("task").unwrap().get_mut(name.name()).unwrap();
                score.sum = (score.sum as f64 * factor).round() as u64;
            }
            let found = found(&old, &[&new], false).unwrap();
            let of_scores = |gate| found.failing(gate).iter().filter(|line| line.contains(" by task")).count() == 1;
            let case = format!("{} × {factor}", name.name());
            assert_eq!([Gate::Worse, Gate::Counts].map(of_scores), failing, "{case}: {:?}", found.scores);
            let is_better = found.scores.iter().any(|change| change.verdict == Verdict::Better);
            assert_eq!(is_better, [0.0, 0.1, 0.3, 1.1].contains(&factor), "{case}: {:?}", found.scores);
            let headline = comparison_markdown(&found);
            let worse = usize::from(failing[0]);
            assert!(headline.contains(&format!("answers and delays compared, {worse} got worse.")), "{headline}");
            assert_eq!(headline.contains("### Tokens, answers and delays"), worse == 1 || is_better, "{case}");
            assert_eq!(comparison_junit(&found).unwrap().contains("<failure"), worse == 1, "{case}");
        }
    }
}

#[test]
fn a_delay_of_few_or_busy_passes_decides_nothing() {
    let old = scored();
    for change in [(|run| run.samples.retain(|pass| pass.epoch < 2 || pass.scores.is_empty())) as fn(&mut Run), |run| {
        run.samples.iter_mut().for_each(|pass| pass.load.busy = Some("others".to_owned()))
    }] {
        let mut new = old.clone();
        for pass in testing::passes(&mut new, "micro/read", "sqlite") {
            pass.scores.get_mut("task").unwrap().get_mut("lag-us").unwrap().sum *= 10;
        }
        let is_later = |new: &Run| found(&old, &[new], false).unwrap().scores.iter().any(|change| change.is_delay());
        assert!(is_later(&new));
        // One pass with scores each epoch, as in a run.
        for pass in testing::passes(&mut new, "micro/read", "sqlite").filter(|pass| pass.round != 1) {
            pass.scores.clear();
        }
        assert!(is_later(&new));
        change(&mut new);
        assert!(!is_later(&new));
    }
}

#[test]
fn a_score_that_the_new_run_lacks_or_that_cost_nothing_was_not_looked_at_again() {
    let old = scored();
    let unchecked = |change: &dyn Fn(&mut Run)| {
        let mut new = old.clone();
        change(&mut new);
        let found = found(&old, &[&new], false).unwrap();
        let lines: Vec<String> = found.not_checked_again().collect();
        for gate in [Gate::Worse, Gate::Counts] {
            assert!(lines.iter().all(|line| found.failing(gate).contains(line)));
        }
        lines.join("; ")
    };
    assert_eq!(unchecked(&|_| {}), "");
    let scores = |run: &mut Run, change: &dyn Fn(&mut std::collections::BTreeMap<String, rundir::Score>)| {
        let passes = testing::passes(run, "micro/read", "sqlite");
        passes.for_each(|pass| change(pass.scores.get_mut("task").unwrap()));
    };
    let words = |score: &str| {
        format!("sqlite: 1 check of scores not looked at again ({score} by task in micro/read), which is not a pass")
    };
    let free = unchecked(&|run| {
        scores(run, &|task| task.get_mut("result-tokens").unwrap().sum = 0);
    });
    assert_eq!(free, words("tokens of results"));
    let renamed = unchecked(&|run| {
        scores(run, &|task| {
            task.remove("evidence-in-budget");
        });
    });
    assert_eq!(renamed, words("answers within the budget of tokens"));
    let wrong = unchecked(&|run| {
        scores(run, &|task| {
            task.remove("stale-answers");
        });
    });
    assert_eq!(wrong, words("stale answers"));
}

#[test]
fn a_context_policy_that_sends_more_tokens_fails_the_gates() {
    let run = testing::seeded(1);
    let summary = summarise(&run).unwrap();
    let before = testing::contexts();
    let mut after = before.clone();
    after.costs.iter_mut().find(|cost| cost.policy == "evict").unwrap().resent *= 3;
    let old = RunEvidence::new(&run, &summary, &before);
    let new = RunEvidence::new(&run, &summary, &after);
    let found = compare(&old, &[new], (&[], &[]), false).unwrap();
    for gate in [Gate::Worse, Gate::Counts] {
        let failing = found.failing(gate);
        assert!(failing.len() == 1 && failing[0].starts_with("evict, tokens of all prompts in agent/session: "));
    }
    after.costs.retain(|cost| cost.policy != "evict");
    let new = RunEvidence::new(&run, &summary, &after);
    let found = compare(&old, &[new], (&[], &[]), false).unwrap();
    let words =
        "evict: 1 check of scores not looked at again (tokens of all prompts in agent/session), which is not a pass";
    assert_eq!(found.failing(Gate::Counts), [words]);
}

#[test]
fn a_cell_without_a_baseline_in_both_runs_is_not_gone() {
    let [mut old, mut new] = [1, 2].map(testing::seeded);
    for run in [&mut old, &mut new] {
        run.samples.retain(|pass| pass.workload != "micro/read" || pass.arm == "sqlite");
    }
    let both = found(&old, &[&new], false).unwrap();
    assert_eq!(both.gone, [""; 0]);
    new.samples.retain(|pass| pass.workload != "micro/read");
    let gone = found(&old, &[&new], false).unwrap().gone;
    assert!(!gone.is_empty() && gone.iter().all(|cell| cell.contains("sqlite")), "{gone:?}");
}

/// Lets every second pass of `sqlite` in `micro/read` fail.
fn fail_every_second_pass(run: &mut Run) {
    let passes = testing::passes(run, "micro/read", "sqlite").enumerate();
    passes.filter(|(at, _)| at % 2 == 1).for_each(|(_, pass)| pass.outcome = Outcome::Errno);
}

#[test]
fn a_time_of_the_passes_that_ended_well_is_printed_with_the_share_of_the_others() {
    let (mut old, mut new) = (testing::seeded(1), testing::seeded(2));
    let words = |found: &RunComparison| {
        // The terminal has the same rows, in lines that are broken.
        let rows = comparison_markdown(found);
        [rows.matches(", 14 of 28 failed |").count(), rows.matches(" failed |").count()]
    };
    let headline = |found: &RunComparison| comparison_text(found).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&found(&old, &[&new], false).unwrap()), [0, 0]);
    fail_every_second_pass(&mut new);
    let worse = found(&old, &[&new], false).unwrap();
    assert_eq!(words(&worse), [1, 1], "{}", comparison_markdown(&worse));
    assert!(headline(&worse).contains("1 cells fail more often."), "{}", headline(&worse));
    fail_every_second_pass(&mut old);
    let both = found(&old, &[&new], false).unwrap();
    assert_eq!(words(&both), [2, 2], "{}", comparison_markdown(&both));
    assert!(comparison_text(&both).contains(", 14"), "{}", comparison_text(&both));
    assert!(headline(&both).contains("0 cells fail more often, 1 as often or less often."), "{}", headline(&both));
}

#[test]
fn several_new_runs_count_as_one() {
    let old = testing::seeded(1);
    let (one, two) = (testing::seeded(2), testing::seeded(3));
    let both = found(&old, &[&one, &two], false).unwrap();
    let alone = found(&old, &[&one], false).unwrap();
    assert_eq!(both.new.len(), 2);
    assert_all(&both, Verdict::Same);
    assert!(both.notes[0].starts_with("4 epochs, and 4 epochs, and 4 epochs."));
    assert!(alone.notes[0].starts_with("4 epochs, and 4 epochs."));
}

#[test]
fn a_count_that_no_epoch_disputes_is_exact_and_another_is_not() {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    let cells = new.cells.iter_mut().filter(|cell| cell.arm == "sqlite" && cell.workload == "micro/read");
    for (at, cell) in cells.enumerate() {
        cell.counted.system_calls += cell.counted.calls;
        let daemon = cell.counted.daemon.as_mut().unwrap();
        *daemon.store.get_mut("sql_statements").unwrap() += at as u64;
    }
    let compared = found(&old, &[&new], false).unwrap();
    let counts = compared.counts;
    assert_eq!(counts.len(), 2, "{counts:?}");
    // System calls of three arms and requests of one in two workloads; the statements of one of them vary.
    assert_eq!(compared.counts_compared.exact, 2 * (3 + 1) + 1);
    assert_eq!(compared.counts_compared.varying, 1);
    assert_eq!((counts[0].name.as_str(), counts[0].old, counts[0].new), ("system calls", 3.0, 4.0));
    assert!(counts[0].is_worse());
    assert!(counts[1].name == "sql_statements" && !counts[1].is_exact && !counts[1].is_worse());
    let back = found(&new, &[&old], false).unwrap().counts;
    assert!(!back[0].is_worse(), "fewer is not worse");
}

#[test]
fn failing_passes_are_compared_by_their_share() {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    let mut passes = new.samples.iter_mut();
    passes.find(|pass| pass.arm == "sqlite").unwrap().outcome = Outcome::WrongData;
    let failures = found(&old, &[&new], false).unwrap().failures;
    assert_eq!(failures.len(), 1);
    assert!(failures[0].is_worse() && failures[0].old.0 == 0 && failures[0].new.0 == 1);
    assert!(!found(&new, &[&old], false).unwrap().failures[0].is_worse());
}

#[test]
fn runs_of_other_machines_or_plans_are_refused_by_name() {
    let old = testing::seeded(1);
    let mut other = testing::seeded(2);
    other.environment.cpu = "another processor".to_owned();
    other.plan.workloads[0].sha256 = "1".repeat(64);
    let error = found(&old, &[&other], false).unwrap_err();
    assert!(error.contains("and another processor"), "{error}");
    assert!(error.contains("definition of micro/read: 000000000000 and 111111111111"), "{error}");
    assert!(error.contains("--mixed"), "{error}");
    let mixed = found(&old, &[&other], true).unwrap();
    assert_eq!(mixed.mixed.len(), 2, "{:?}", mixed.mixed);
    // The build is what a comparison is about.
    let mut built = testing::seeded(2);
    built.plan.ctxbench = "0.2.0".to_owned();
    built.environment.binary_sha256 = "2".repeat(64);
    assert!(differences(&old, &built).is_empty());
}

#[test]
fn two_epochs_get_no_verdict() {
    let old = testing::seeded(1);
    let mut short = testing::seeded(2);
    testing::scale(&mut short, "sqlite", 3.0);
    short.samples.retain(|pass| pass.epoch < 2);
    let found = found(&old, &[&short], false).unwrap();
    assert!(!found.cells.is_empty());
    for cell in &found.cells {
        let is_open = cell.verdict == Verdict::Undecided && cell.withheld.is_some();
        assert!(is_open, "{cell:?}");
    }
    let text = comparison_text(&found).replace('\n', " ");
    assert!(text.contains(" None of 2 times has a verdict: too few epochs"), "{text}");
}

#[test]
fn a_busy_machine_decides_what_is_far_apart_and_is_said_once() {
    let old = testing::seeded(1);
    let busy = |factor| {
        let mut busy = testing::seeded(2);
        testing::scale(&mut busy, "sqlite", factor);
        testing::make_busy(&mut busy);
        found(&old, &[&busy], false).unwrap()
    };
    assert_all(&busy(4.0), Verdict::Worse);
    // Half of a pass of `direct` was waiting, and a sixth of one of `sqlite`.
    for factor in [0.7, 1.0, 1.2] {
        assert_all(&busy(factor), Verdict::Undecided);
    }
    let far = busy(4.0);
    for (written, head) in [(comparison_text(&far), ""), (comparison_markdown(&far), "## ctxbench compare\n\n")] {
        let first = format!("{head}The machine was busy in 1 of 2 runs. 10 exact counts compared");
        assert!(written.starts_with(&first), "{written}");
        let why = written.find("This machine was busy").unwrap();
        assert!(why < written.find("sqlite").unwrap(), "{written}");
        assert_eq!(written.matches("This machine was busy").count(), 1);
    }
    let unknown = {
        let mut busy = testing::seeded(2);
        testing::scale(&mut busy, "sqlite", 9.0);
        testing::make_busy(&mut busy);
        busy.samples.iter_mut().for_each(|pass| pass.cpu = rundir::Cpu::default());
        found(&old, &[&busy], false).unwrap()
    };
    assert_all(&unknown, Verdict::Undecided);
}

#[test]
fn a_cell_or_a_claim_that_was_not_measured_again_does_not_pass() {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    let failing = |old: &Run, new: &Run, allow_mixed: bool| {
        let found = found(old, &[new], allow_mixed).unwrap();
        [Gate::Worse, Gate::Claims].map(|gate| found.failing(gate).join("; "))
    };
    let nothing = [String::new(), String::new()];
    assert_eq!(failing(&old, &new, false), nothing);
    new.samples.retain(|pass| (&*pass.arm, &*pass.workload) != ("sqlite", "micro/read"));
    let gone = "sqlite read micro/read, hot: only the old run has it, which is not a pass";
    assert_eq!(failing(&old, &new, false), [gone, "c: not measured, was confirmed"]);
    // The old run need not have what is new, nor a run of another plan the same cells.
    assert_eq!(failing(&new, &old, false), nothing);
    new.plan.suite = "other".to_owned();
    assert_eq!(failing(&old, &new, true), nothing);
}

#[test]
fn a_comparison_without_a_count_does_not_pass() {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    let same = found(&old, &[&new], false).unwrap();
    assert!(same.failing(Gate::Counts).is_empty());
    let text = comparison_text(&same).replace('\n', " ");
    assert!(text.starts_with(
        "10 exact counts compared, 0 rose. 2 scores of tokens, answers and delays compared, 0 got worse. 2 of 2 times"
    ));
    for cell in &mut new.cells {
        cell.counted.calls = 0;
    }
    let none = found(&old, &[&new], false).unwrap();
    assert_eq!(none.counts_compared.exact, 0);
    let why = &none.failing(Gate::Counts)[0];
    assert!(why.starts_with("no exact count was compared") && why.contains("same suite"), "{why}");
    for written in [comparison_text(&none), comparison_markdown(&none)] {
        let words = "No count was compared, which is not a pass.";
        assert!(written.contains(words) && !written.contains("0 rose"), "{written}");
    }
    let junit = comparison_junit(&none).unwrap();
    assert!(junit.contains("skipped=\"1\""), "{junit}");
    let mut vary = testing::seeded(2);
    for (at, cell) in vary.cells.iter_mut().enumerate() {
        cell.counted.system_calls += at as u64;
        if let Some(daemon) = &mut cell.counted.daemon {
            let opcodes = daemon.fuse.values_mut();
            opcodes.for_each(|opcode| opcode.count += at as u64);
            daemon.store.values_mut().for_each(|count| *count += at as u64);
        }
    }
    let vary = found(&old, &[&vary], false).unwrap();
    let text = comparison_text(&vary);
    let words = "No exact count was compared, which is not a pass: all 10 vary between epochs.";
    assert!(text.starts_with(words), "{text}");
    let failing = vary.failing(Gate::Counts);
    assert!(failing[0].contains("all 10 common counts vary"), "{failing:?}");
}

#[test]
fn counts_of_all_new_runs_are_compared() {
    let old = testing::seeded(1);
    let (one, mut two) = (testing::seeded(2), testing::seeded(3));
    for cell in two.cells.iter_mut().filter(|cell| cell.arm == "sqlite") {
        cell.counted.system_calls += cell.counted.calls;
    }
    let both = found(&old, &[&one, &two], false).unwrap();
    assert_eq!(both.counts.len(), 2, "{:?}", both.counts);
    assert!(both.counts.iter().all(|change| !change.is_exact), "the new runs disagree");
}

#[test]
fn a_cell_that_only_one_run_has_is_named() {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    new.samples.retain(|pass| pass.arm != "sqlite" || pass.workload != "micro/read");
    for (one, other, side) in [(&old, &new, "old"), (&new, &old, "new")] {
        let missing = found(one, &[other], false).unwrap().missing;
        let only = format!("sqlite read micro/read, hot: only the {side} run has it");
        assert_eq!(missing, [only]);
    }
}

/// A comparison with a slower arm, a risen count, a failing pass and a lost claim.
fn worse() -> RunComparison {
    let old = testing::seeded(1);
    let mut new = testing::seeded(2);
    testing::scale(&mut new, "sqlite", 2.0);
    for cell in new.cells.iter_mut().filter(|cell| cell.arm == "sqlite") {
        cell.counted.system_calls += cell.counted.calls;
    }
    let mut passes = new.samples.iter_mut();
    // Not in the workload of the claim, whose time would then settle nothing.
    let failing = passes.find(|pass| pass.arm == "sqlite" && pass.workload == "agent/session");
    failing.unwrap().outcome = Outcome::Errno;
    found(&old, &[&new], false).unwrap()
}

#[test]
fn every_gate_fails_on_its_own_changes_only() {
    let bad = worse();
    let failing = [Gate::Worse, Gate::Counts, Gate::Claims].map(|gate| bad.failing(gate).len());
    // Two cells and one failing pass; system calls in two cells; one claim.
    assert_eq!(failing, [3, 3, 1], "{bad:?}");
    let good = found(&testing::seeded(1), &[&testing::seeded(2)], false).unwrap();
    for gate in [Gate::Worse, Gate::Counts, Gate::Claims] {
        assert!(good.failing(gate).is_empty());
    }
}

#[test]
fn a_comparison_is_written_for_a_pull_request_and_for_ci() {
    let bad = worse();
    let page = comparison_markdown(&bad);
    assert!(
        page.starts_with("## ctxbench compare\n\n10 exact counts compared, 2 rose. 2 scores of tokens, answers and delays compared, 0 got worse. 2 of 2 times have a verdict: 2 worse, 0 better, 0 same."),
        "{page}"
    );
    assert!(page.contains("would have been found with a chance of 80 %"));
    let junit = comparison_junit(&bad).unwrap();
    let text = comparison_text(&bad);
    for (written, words) in [
        (&page, "### Exact counts that rose"),
        (&page, "### Failed passes"),
        (&page, "### Claims whose status changed"),
        (&junit, "tests=\"6\" skipped=\"0\" failures=\"6\""),
        (&junit, "<testsuites name=\"ctxbench compare\""),
        (&junit, "<testcase name=\"sqlite read micro/read, hot\""),
        (&page, "no report of the old run yet: ctxbench report results/scripted"),
        (&text, "no report of the new run yet: ctxbench report results/scripted"),
        (&text, "worse: sqlite read micro/read, hot: ×"),
        // Absolute times beside ratios, in every form.
        (&text, "µs, was "),
        (&junit, "µs, was "),
        (&page, " µs | ×"),
        (&text, "claim: c: refuted, was confirmed"),
    ] {
        assert!(written.contains(words), "{words}: {written}");
    }
    let json = serde_json::to_value(&bad).unwrap();
    assert_eq!(json["cells"][0]["verdict"], "worse");
}

#[test]
fn each_report_is_linked_by_its_path_and_a_hostile_path_stays_a_target() {
    let mut linked = worse();
    linked.old.report = Some("runs/base/report.html".to_owned());
    linked.new[0].report = Some("a b/) [x](y)/report.html".to_owned());
    let page = comparison_markdown(&linked);
    for link in [
        "- [report of the old run results/scripted](runs/base/report.html)",
        "](a%20b/%29%20%5Bx%5D%28y%29/report.html)",
    ] {
        assert!(page.contains(link), "{page}");
    }
    let text = comparison_text(&linked);
    let place = text.find("report of the old run results/scripted: runs/base/report.html");
    assert!(place.unwrap() < text.find("arm ").unwrap(), "{text}");
}

#[test]
fn a_ranking_names_the_arms_without_a_rank() {
    let mut run = testing::run();
    let passes = testing::passes(&mut run, "micro/read", "sqlite").enumerate();
    passes.filter(|(at, _)| at % 2 == 1).for_each(|(_, pass)| pass.outcome = Outcome::Errno);
    let (summary, contexts) = (summarise(&run).unwrap(), testing::contexts());
    let found = verdicts::rank::rank(&RunEvidence::new(&run, &summary, &contexts)).unwrap();
    let text = ranking_text(&found).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("no rank: sqlite (14 of 28 passes failed)"), "{text}");
}
