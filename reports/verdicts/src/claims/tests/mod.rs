//! Constructed runs reach every status, by every kind of test.

mod files;

use std::collections::BTreeMap;
use std::path::Path;

use rundir::faults::{Audit, FaultOutcome, IN_USE};
use rundir::{Outcome, Probe, Run, Sample, Score};

use super::ClaimStatus::{
    self, ArithmeticOnly, Conditional, Confirmed, Declared, NotMeasured, NotReproduced, Refuted, Untestable,
};
use super::{ClaimFile, ClaimResult, judge_file, tally};
use figures::conformance::CONFORMANCE;
use figures::context::contexts;
use figures::evidence::RunEvidence;
use figures::prices::Prices;
use figures::summary::summarise;
use figures::testing;

/// The cell `read` of `micro/read`.
const READ: &str = "latency = { workload = 'micro/read', state = 'hot', metric = 'read' }";

fn parse(claim: &str) -> Result<ClaimFile, String> {
    let text = format!("source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\n{claim}\n");
    ClaimFile::parse(Path::new("c.toml"), &text).map_err(|error| error.to_string())
}

fn judged(claim: &str, runs: &[&Run]) -> ClaimResult {
    let prices = Prices::built_in().unwrap();
    let derived: Vec<_> = runs.iter().map(|run| (summarise(run).unwrap(), contexts(run, &prices).unwrap())).collect();
    let runs = runs.iter().zip(&derived);
    let evidence = runs.map(|(run, (summary, contexts))| RunEvidence::new(run, summary, contexts));
    judge_file(&parse(claim).unwrap(), &evidence.collect::<Vec<_>>()).remove(0)
}

/// A claim of a measure: `arms` are the fields `arm` and `baseline`.
fn reading(unit: &str, says: &str, arms: &str, measure: &str) -> String {
    format!("says = {{ {says}, unit = '{unit}' }}\ntest.reading = {{ {arms}, measure.{measure} }}")
}

/// A claim of a measure of `sqlite`.
fn of_sqlite(unit: &str, says: &str, measure: &str) -> String {
    reading(unit, says, "arm = 'sqlite'", measure)
}

/// A claim of the time of a read on `sqlite`.
fn latency(says: &str) -> String {
    of_sqlite("ms", says, READ)
}

/// The status of a claim by one run.
fn status(claim: &str, run: &Run) -> ClaimStatus {
    judged(claim, &[run]).status
}

/// The scripted run after a change.
fn changed(change: impl FnOnce(&mut Run)) -> Run {
    let mut run = testing::run();
    change(&mut run);
    run
}

/// The scripted run whose first reads on `sqlite` are changed.
fn first_read(change: impl FnOnce(&mut Sample)) -> Run {
    changed(|run| {
        let mut passes = testing::passes(run, "micro/read", "sqlite");
        change(passes.next().unwrap());
    })
}

#[test]
fn a_time_is_judged_by_its_whole_interval() {
    // The scripted `sqlite` takes about 0.2 ms.
    let run = testing::run();
    let of = |says: &str| judged(&latency(says), &[&run]);
    let confirmed = of("below = 1.0");
    assert_eq!(confirmed.status, Confirmed);
    assert_eq!((confirmed.settle, confirmed.factor), (None, None));
    let none = "0 of 28 passes failed (≤ 10.1 %)";
    assert!(confirmed.evidence.contains(none), "{}", confirmed.evidence);
    let refuted = of("between = [10.0, 50.0]");
    assert_eq!(refuted.status, Refuted);
    assert!((45.0..60.0).contains(&refuted.factor.unwrap()), "{refuted:?}");
    assert_eq!(of("about = 0.15").status, Confirmed);
    assert_eq!(of("above = 0.1").status, Confirmed);
    let summary = testing::summary();
    let mut cells = summary.cells.iter();
    let cell = cells.find(|cell| cell.arm == "sqlite" && cell.metric == "read");
    let edge = of(&format!("below = {}", cell.unwrap().typical_ns / 1e6));
    assert_eq!(edge.status, NotMeasured);
    assert!(edge.evidence.contains("contains an end of the range"), "{edge:?}");
    assert!(edge.settle.unwrap().contains("--epochs"));
}

#[test]
fn a_time_that_no_run_has_names_the_command_that_measures_it() {
    let run = testing::run();
    let other = latency("below = 1.0").replace("micro/read", "micro/other");
    let missing = judged(&other, &[&run]);
    assert_eq!(missing.status, NotMeasured);
    let command = "ctxbench run --workload micro/other --backend sqlite";
    assert_eq!(missing.settle.as_deref(), Some(command));
    let with_command = judged(&format!("{other}\nsettle = 'make it'"), &[&run]);
    assert_eq!(with_command.settle.as_deref(), Some("make it"));
    assert_eq!(judged(&latency("below = 1.0"), &[]).status, NotMeasured);
}

#[test]
fn readiness_is_judged_by_the_daemons_start() {
    let run = testing::run();
    // The scripted daemons take 12 ms to start.
    let of = |arm: &str, says: &str| {
        let ready = READ.replace("metric = 'read'", "metric = 'ready'");
        status(&reading("ms", says, &format!("arm = '{arm}'"), &ready), &run)
    };
    assert_eq!(of("sqlite", "about = 10.0"), Confirmed);
    assert_eq!(of("sqlite", "below = 5.0"), Refuted);
    assert_eq!(of("direct", "below = 1.0"), NotMeasured);
}

#[test]
fn wrong_answers_a_busy_machine_and_two_epochs_settle_nothing() {
    let wrong = changed(|run| {
        for pass in run.samples.iter_mut().filter(|pass| pass.arm == "sqlite") {
            pass.outcome = Outcome::WrongData;
            pass.outcomes = [(Outcome::WrongData, 4)].into();
        }
    });
    let short = changed(|run| run.samples.retain(|pass| pass.epoch < 2));
    for (run, words, another_helps) in [
        (wrong, "28 of 28 passes failed", false),
        (changed(testing::make_busy), "busy", true),
        (short, "fewer than 3 epochs", true),
    ] {
        let found = judged(&latency("below = 1000.0"), &[&run]);
        assert_eq!(found.status, NotMeasured);
        assert!(found.evidence.contains(words), "{found:?}");
        assert_eq!(found.settle.is_some(), another_helps, "{found:?}");
    }
}

#[test]
fn a_simulated_distance_is_not_reproduced_and_another_machine_neither() {
    let far = changed(|run| testing::rename_arm(run, "sqlite", "s3-minio@30ms"));
    let found = judged(&reading("ms", "below = 1.0", "arm = 's3@30ms'", READ), &[&far]);
    assert_eq!(found.status, NotReproduced);
    assert!(found.evidence.contains("simulated"), "{found:?}");
    let found = judged("elsewhere = 'macOS'", &[&far]);
    assert_eq!((found.status, found.evidence.as_str()), (NotReproduced, "macOS"));
    assert_eq!(status("untestable = 'a judgement'", &far), Untestable);
}

#[test]
fn a_ratio_is_paired_by_round_and_a_count_of_nothing_has_none() {
    let run = testing::run();
    let arms = "arm = 'sqlite', baseline = 'direct'";
    let paired = judged(&reading("ratio", "between = [1.9, 2.1]", arms, READ), &[&run]);
    assert_eq!(paired.status, Confirmed, "{paired:?}");
    let saved = reading("percent saved", "between = [-110.0, -90.0]", arms, READ);
    assert_eq!(status(&saved, &run), Confirmed);
    let tools = "probes = { aspect = 'tool' }";
    let none = changed(|run| {
        run.probes = ["direct", "sqlite"].map(|arm| Probe::new("tool", "cat", arm, Outcome::Ok, "")).into();
    });
    let found = judged(&reading("ratio", "equals = 1", arms, tools), &[&none]);
    assert_eq!(found.status, NotMeasured);
    assert!(found.evidence.contains("no ratio: 0"), "{found:?}");
}

#[test]
fn growth_is_the_exponent_over_sizes() {
    let growth = "growth = { state = 'hot', metric = 'read', sizes = [[100, 'micro/read'], [10000, 'agent/session']] }";
    for (factor, says, expected) in [
        (1.0, "between = [-0.1, 0.1]", Confirmed),
        (100.0, "between = [-0.1, 0.1]", Refuted),
        (100.0, "between = [0.9, 1.1]", Confirmed),
    ] {
        // The second workload is the first with a larger size and this factor of the time.
        let run = changed(|run| {
            testing::rename_calls(run, "edit", "read");
            let passes = run.samples.iter_mut();
            passes.filter(|pass| pass.workload == "agent/session").for_each(|pass| testing::scale_pass(pass, factor));
        });
        let found = judged(&of_sqlite("exponent", says, growth), &[&run]);
        assert_eq!(found.status, expected, "{found:?}");
    }
    let missing = judged(&of_sqlite("exponent", "above = 0.5", growth), &[]);
    let command = "ctxbench run --workload micro/read --workload agent/session --backend sqlite";
    assert_eq!(missing.settle.as_deref(), Some(command));
}

#[test]
fn counts_are_exact() {
    let run = testing::run();
    let cost = |figure: &str| format!("cost = {{ workload = 'micro/read', state = 'hot', figure = '{figure}' }}");
    let requests = of_sqlite("a call", "equals = 2", &cost("requests"));
    assert_eq!(status(&requests, &run), Confirmed);
    let statements = of_sqlite("a call", "equals = 1", &cost("sql_statements"));
    let found = judged(&statements, &[&run]);
    assert_eq!((found.status, found.factor), (Refuted, Some(3.0)));
    let arms = "arm = 'sqlite', baseline = 'direct'";
    let over = reading("ratio", "equals = 1", arms, &cost("system-calls"));
    assert_eq!(status(&over, &run), Confirmed);
    let tools = |says: &str, run: &Run| status(&of_sqlite("probes", says, "probes = { aspect = 'tool' }"), run);
    assert_eq!(tools("equals = 0", &changed(|run| run.probes.clear())), NotMeasured);
    let one = changed(|run| {
        run.probes = [("cat", Outcome::Ok), ("git", Outcome::Errno)]
            .map(|(name, outcome)| Probe::new("tool", name, "sqlite", outcome, ""))
            .into();
    });
    assert_eq!(tools("equals = 1", &one), Confirmed);
    assert_eq!(tools("equals = 0", &one), Refuted);
}

#[test]
fn claims_do_not_count_features_that_the_machine_itself_fails() {
    let links = "conformance = { groups = ['links'] }";
    let count = |run: &Run, number: u32| {
        let says = format!("equals = {number}");
        status(&of_sqlite("features", &says, links), run)
    };
    let probe = |arm, name, outcome| Probe::new(CONFORMANCE, name, arm, outcome, "");
    let mut run = testing::run();
    run.probes =
        ["links: hard", "links: symbolic", "xattr: set"].map(|name| probe("sqlite", name, Outcome::Errno)).into();
    assert_eq!(count(&run, 2), Confirmed);
    run.probes.push(probe("direct", "links: hard", Outcome::Errno));
    // It may work or not: one feature fails, or two.
    assert!(![Confirmed, Refuted].contains(&count(&run, 1)) && ![Confirmed, Refuted].contains(&count(&run, 2)));
    assert_eq!((count(&run, 0), count(&run, 3)), (Refuted, Refuted));
    run.probes[1].outcome = Outcome::Infra;
    assert_eq!(count(&run, 1), NotMeasured);
}

#[test]
fn a_fault_is_judged_by_what_came_of_it_over_all_seeds() {
    let lost = "faults = { scenarios = ['kill-idle'], figure = 'lost-records' }";
    let claim = of_sqlite("records", "equals = 0", lost);
    let outcome = |lost| {
        let mut outcome = FaultOutcome::ran("kill-idle", "daemon", "sqlite", 1);
        let audit = Audit { lost, ..Audit::default() };
        outcome.audits.insert(IN_USE.to_owned(), audit);
        outcome
    };
    let mut run = testing::run();
    let none = judged(&claim, &[&run]);
    assert_eq!(none.status, NotMeasured);
    let command = "ctxbench fault --scenario kill-idle --backend sqlite";
    assert_eq!(none.settle.as_deref(), Some(command));
    run.fault_outcomes = vec![outcome(0), outcome(0)];
    assert_eq!(status(&claim, &run), Confirmed);
    run.fault_outcomes.push(outcome(2));
    assert_eq!(status(&claim, &run), Refuted);
}

#[test]
fn tokens_and_dollars_are_judged_by_the_count() {
    let run = testing::run();
    let (entering, bill) = ("'entering'", "'dollars', model = 'claude-opus-5-5'");
    let evict = "arm = 'evict', baseline = 'inline'";
    for (unit, says, arms, figure, expected) in [
        ("tokens", "between = [51800, 51900]", "arm = 'before'", entering, ArithmeticOnly),
        ("tokens", "below = 1.0", "arm = 'before'", entering, Refuted),
        ("tokens", "below = 50000.0", "arm = 'inline'", entering, Confirmed),
        ("percent saved", "between = [80.0, 90.0]", evict, entering, Confirmed),
        ("tokens", "below = 1.0", "arm = 'nonsense'", entering, NotMeasured),
        ("USD", "above = 0.0", "arm = 'inline'", bill, Confirmed),
        ("percent saved", "above = 0.0", evict, bill, Confirmed),
    ] {
        let measure = format!("context = {{ workload = 'agent/session', figure = {figure} }}");
        let found = judged(&reading(unit, says, arms, &measure), &[&run]);
        assert_eq!(found.status, expected, "{found:?}");
    }
}

#[test]
fn the_lag_of_a_commit_is_that_of_the_slowest_pass_if_all_ended_well() {
    let claim = |says: &str| of_sqlite("ms", says, "lag = { workload = 'micro/read' }");
    let mut run = testing::run();
    assert_eq!(status(&claim("below = 10.0"), &run), NotMeasured);
    let passes = testing::passes(&mut run, "micro/read", "sqlite");
    for (pass, lag_us) in passes.zip([300, 8_000, 500]) {
        let lag = Score { sum: 2 * lag_us, of: 2 };
        let counts = BTreeMap::from([("lag-us".to_owned(), lag)]);
        pass.scores.insert("task".to_owned(), counts);
    }
    let seen = judged(&claim("below = 10.0"), &[&run]);
    assert_eq!(seen.status, Confirmed);
    assert!(seen.evidence.contains("8.00 ms"), "{seen:?}");
    assert_eq!(status(&claim("below = 5.0"), &run), Refuted);
    let mut passes = testing::passes(&mut run, "micro/read", "sqlite");
    passes.next().unwrap().outcome = Outcome::WrongData;
    drop(passes);
    assert_eq!(status(&claim("below = 10.0"), &run), NotMeasured);
}

#[test]
fn a_share_of_questions_has_the_interval_of_a_sample_and_a_sum_of_tokens_has_none() {
    let questions = |says: &str, run: &Run| {
        let measure = "questions = { workload = 'micro/read', method = 'own', count = 'found-at-1' }";
        status(&of_sqlite("share", says, measure), run)
    };
    let put = |sum, of| {
        let counts = BTreeMap::from([("found-at-1".to_owned(), Score { sum, of })]);
        first_read(|pass| _ = pass.scores.insert("own".to_owned(), counts))
    };
    assert_eq!(questions("above = 0.9", &testing::run()), NotMeasured);
    assert_eq!(questions("above = 0.9", &put(249, 250)), Confirmed);
    assert_eq!(questions("above = 0.9", &put(100, 250)), Refuted);
    assert_eq!(questions("above = 0.9", &put(1, 1)), NotMeasured, "one question");
    let score = |count: &str, says: &str, run: &Run| {
        let measure = format!("score = {{ workload = 'micro/read', method = 'own', counts = ['{count}'] }}");
        status(&of_sqlite("per question", says, &measure), run)
    };
    assert_eq!(score("found-at-1", "above = 0.9", &put(249, 250)), Confirmed);
    assert_eq!(score("found-at-1", "equals = 1", &put(1, 1)), NotMeasured);
    let counts = BTreeMap::from([("tokens".to_owned(), Score { sum: 7, of: 1 })]);
    let run = first_read(|pass| _ = pass.scores.insert("own".to_owned(), counts));
    assert_eq!(score("tokens", "equals = 7", &run), Confirmed);
}

#[test]
fn counts_of_a_recorded_model_are_evidence_and_its_times_are_not() {
    let mut run = testing::run();
    let model = run.model_files.as_mut().unwrap();
    model.origin = "recorded".to_owned();
    let (what, calls) = (model.history.steps[0].what.clone(), model.history.steps[0].calls);
    let of = |unit: &str, says: &str, figure: &str| {
        let measure = format!("model-files = {{ figure = '{figure}', step = \"{what}\" }}");
        reading(unit, says, "arm = 'llm-history'", &measure)
    };
    let count = of("calls", &format!("equals = {calls}"), "calls");
    let time = of("ms", "above = 0.0", "step-ms");
    assert_eq!(status(&count, &run), Confirmed);
    assert_eq!(status(&time, &run), NotMeasured);
    run.model_files.as_mut().unwrap().origin = "live".to_owned();
    assert_eq!(status(&time, &run), Confirmed);
    run.model_files = None;
    let missing = judged(&count, &[&run]);
    let command = "ctxbench run --suite model-files";
    assert_eq!(missing.settle.as_deref(), Some(command));
}

#[test]
fn arithmetic_is_computed_without_a_run() {
    let growth = "yearly-growth = { from = 50.0, to = 2500.0, years = 3.0 }";
    let saved = "saved = { from = 109150.0, to = 15550.0 }";
    let power = "exponent = [[1, 2.0], [10, 20.0]]";
    let sum = "sum = [1.0, 2.0, 3.0]";
    let counted = "tokens-of = 'hello world'";
    for (unit, says, test, expected) in [
        ("tokens", "equals = 6.0", sum, ArithmeticOnly),
        ("percent a year", "between = [119.5, 120.5]", growth, Refuted),
        ("percent saved", "between = [85.0, 86.0]", saved, ArithmeticOnly),
        ("exponent", "between = [0.99, 1.01]", power, ArithmeticOnly),
        ("tokens", "equals = 2", counted, Confirmed),
    ] {
        let claim = format!("says = {{ {says}, unit = '{unit}' }}\ntest.arithmetic.{test}");
        let found = judged(&claim, &[]);
        assert_eq!(found.status, expected, "{found:?}");
        assert_eq!(found.evidence.contains("268.4 %"), test == growth);
    }
}

/// A claim of two cases: reads of `sqlite` in a range, `far` behind a delay, or `missing`.
fn cases(first: &str, second: &str) -> String {
    let case = |says: &str| match says {
        "far" => reading("ms", "below = 1.0", "arm = 's3@30ms'", READ),
        "missing" => latency("below = 1.0").replace("micro/read", "micro/none"),
        says => latency(says),
    };
    let (first, second) = (case(first), case(second));
    format!("[[claim.case]]\nwhen = 'one'\n{first}\n[[claim.case]]\nwhen = 'two'\n{second}")
}

#[test]
fn cases_that_differ_make_a_claim_conditional_on_them() {
    let mut run = testing::run();
    let (yes, no) = ("below = 1.0", "below = 0.01");
    let of = |run: &Run, first, second| judged(&cases(first, second), &[run]);
    let differ = of(&run, yes, no);
    assert_eq!(differ.status, Conditional);
    for words in ["when one: confirmed", "when two: refuted"] {
        assert!(differ.evidence.contains(words), "{differ:?}");
    }
    assert_eq!(of(&run, yes, yes).status, Confirmed);
    let refuted = of(&run, no, "below = 0.1");
    assert_eq!(refuted.status, Refuted);
    assert!((1.5..3.0).contains(&refuted.factor.unwrap()), "the smallest factor holds");
    let half = of(&run, yes, "missing");
    assert_eq!(half.status, NotMeasured, "half of the cases settle nothing");
    assert!(half.settle.is_some());
    // An arm at a simulated distance beside the others.
    testing::copy_arm(&mut run, "sqlite", "s3-minio@30ms");
    assert_eq!(of(&run, yes, "far").status, Conditional);
    assert_eq!(of(&run, "far", "far").status, NotReproduced);
}

#[test]
fn several_runs_are_judged_together_and_contradictions_are_named() {
    let slow = changed(|run| {
        testing::scale(run, "sqlite", 100.0);
        run.dir = "results/slow".into();
    });
    let fast = testing::run();
    let claim = latency("below = 1.0");
    assert_eq!(judged(&claim, &[&fast, &fast]).status, Confirmed);
    let differ = judged(&claim, &[&fast, &slow]);
    assert_eq!(differ.status, Conditional);
    let words = "on the run: confirmed by scripted";
    assert!(differ.evidence.starts_with(words), "{differ:?}");
    assert!(differ.evidence.contains("refuted by slow"), "{differ:?}");
    // A run without the cell changes nothing.
    let other = changed(|run| run.samples.clear());
    assert_eq!(judged(&claim, &[&other, &fast]).status, Confirmed);
}

#[test]
fn a_time_of_which_passes_failed_settles_nothing_and_says_the_share() {
    let arms = "arm = 'direct', baseline = 'sqlite'";
    let ratio = reading("ratio", "above = 0.0", arms, READ);
    for (how, is_final) in [(Outcome::Errno, true), (Outcome::Timeout, true), (Outcome::Infra, false)] {
        let run = changed(|run| {
            let mut passes = testing::passes(run, "micro/read", "sqlite");
            passes.nth(3).unwrap().outcome = how;
        });
        for claim in [&latency("below = 1000.0"), &ratio] {
            let found = judged(claim, &[&run]);
            assert_eq!(found.status, NotMeasured, "{how}: {found:?}");
            assert_eq!(found.settle.is_none(), is_final, "{how}: {found:?}");
            assert!(found.evidence.contains(&format!("1 {how}")), "{found:?}");
        }
    }
}

#[test]
fn a_constant_of_a_backend_confirms_and_refutes_no_claim() {
    let run = testing::run();
    let burden = |says: &str, parts: &str| of_sqlite("items", says, &format!("burden = {{ of = [{parts}] }}"));
    for part in ["'processes'", "'dependencies'", "'mounts'"] {
        for says in ["above = 0", "equals = 77"] {
            let found = judged(&burden(says, part), &[&run]);
            assert_eq!(found.status, Declared, "{part}: {found:?}");
            assert_eq!((found.settle, found.factor), (None, None));
        }
    }
    // Beside what was measured, too: the weakest case decides.
    let tools = of_sqlite("probes", "equals = 0", "probes = { aspect = 'tool' }");
    let needs = burden("above = 0", "'processes', 'dependencies'");
    let both = format!("[[claim.case]]\nwhen = 'a'\n{tools}\n[[claim.case]]\nwhen = 'b'\n{needs}");
    let found = judged(&both, &[&run]);
    assert_eq!(found.status, Declared, "{found:?}");
    let counted = tally(std::slice::from_ref(&found));
    assert_eq!((counted.tested, counted.testable), (0, 0));
}

#[test]
fn a_count_of_0_confirms_and_refutes_only_with_enough_passes() {
    let run = testing::run();
    let passes = run.samples.iter().filter(|pass| (&*pass.arm, &*pass.workload) == ("sqlite", "micro/read"));
    let passes = passes.count() as i32;
    let bound = 1.0 - 0.05_f64.powf(1.0 / f64::from(passes));
    for (within, confirmed, refuted) in [(bound + 1e-6, Confirmed, Refuted), (bound - 1e-6, NotMeasured, NotMeasured)] {
        let claim = |says: &str| {
            let measure = format!("passes = {{ workload = 'micro/read', within = {within} }}");
            status(&of_sqlite("passes", says, &measure), &run)
        };
        assert_eq!((claim("equals = 0"), claim("above = 0")), (confirmed, refuted), "{within}");
    }
}

#[test]
fn a_property_that_one_probe_saw_is_said_to_be_seen_once() {
    let claim = of_sqlite("properties", "equals = 1", "property = { of = ['snapshot'] }");
    let probes = |count| {
        let mut run = testing::run();
        run.probes = vec![Probe::new("property", "snapshot", "sqlite", Outcome::Ok, "as it was saved"); count];
        judged(&claim, &[&run])
    };
    assert_eq!(probes(0).status, NotMeasured);
    for (count, words) in [(1, "snapshots (seen once: as it was saved)"), (3, "snapshots (seen in 3 probes: ")] {
        let found = probes(count);
        assert_eq!(found.status, Confirmed);
        assert!(found.evidence.contains(words), "{}", found.evidence);
    }
}

#[test]
fn wrong_passes_refute_that_every_answer_is_right() {
    let claim = of_sqlite("passes", "equals = 0", "passes = { workload = 'micro/read', within = 0.2 }");
    for (how, expected) in [
        (Outcome::Ok, Confirmed),
        (Outcome::WrongData, Refuted),
        (Outcome::Timeout, Refuted),
        (Outcome::Infra, NotMeasured),
    ] {
        let run = first_read(|pass| pass.outcome = how);
        assert_eq!(status(&claim, &run), expected, "{how}");
    }
    let nothing = claim.replace("micro/read", "micro/other");
    assert_eq!(status(&nothing, &testing::run()), NotMeasured);
}
