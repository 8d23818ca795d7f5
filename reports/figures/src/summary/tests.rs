use std::collections::BTreeMap;

use super::*;
use crate::testing::{self, CALLS, EPOCHS, ROUNDS};
use rundir::{Journal, Outcome, Sample};
use stats::{MarginKind, Verdict};

const SEEDS: u64 = 20;

/// Timed passes of an arm in a cell.
const PASSES: usize = (EPOCHS * ROUNDS) as usize;

fn cell<'a>(summary: &'a Summary, metric: &str, arm: &str) -> &'a Cell {
    let mut cells = summary.cells.iter();
    cells.find(|cell| cell.metric == metric && cell.arm == arm).unwrap()
}

fn compared<'a>(summary: &'a Summary, metric: &str, arm: &str) -> &'a Comparison {
    cell(summary, metric, arm).against_baseline.as_ref().unwrap()
}

#[test]
fn an_arm_is_compared_with_the_arm_that_the_plan_names_for_it() {
    let mut run = testing::run();
    let before = compared(&summarise(&run).unwrap(), "read", "sqlite").clone();
    let sqlite = run.plan.arms.iter_mut().find(|arm| arm.name == "sqlite");
    sqlite.unwrap().against = Some("direct-again".to_owned());
    let summary = summarise(&run).unwrap();
    let after = compared(&summary, "read", "sqlite");
    let ratio = cell(&summary, "read", "sqlite").typical_ns / cell(&summary, "read", "direct-again").typical_ns;
    assert!((after.ratio / ratio - 1.0).abs() < 0.02, "{after:?}");
    assert_ne!(after.ratio, before.ratio, "not with the mean of both");
}

/// Runs the A/A check over seeds: the cells that call identical arms different, and all cells.
fn called_different(seeds: u64, change: impl Fn(&mut Run)) -> (usize, usize) {
    let mut found = (0, 0);
    for seed in 0..seeds {
        let mut run = testing::seeded(seed);
        change(&mut run);
        let health = summarise(&run).unwrap().health;
        found.0 += health.aa_called_different;
        found.1 += health.aa.len();
    }
    found
}

#[test]
fn identical_arms_are_called_different_in_at_most_1_percent_of_cells() {
    let (different, cells) = called_different(SEEDS, |_| {});
    assert_eq!(cells, 2 * SEEDS as usize, "a micro cell and a session a run");
    assert!(different * 100 <= cells, "{different} of {cells}");
}

#[test]
fn the_intervals_alone_call_few_identical_arms_different() {
    // Without margins, a wrong interval is not hidden.
    let (different, cells) = called_different(5 * SEEDS, |run| {
        run.plan.margins.relative = 0.0;
        run.plan.margins.absolute_ns = 0.0;
        run.plan.margins.session_share = 0.0;
    });
    assert!(different * 100 <= cells, "{different} of {cells}");
}

#[test]
fn identical_arms_are_shown_to_be_the_same() {
    let health = testing::summary().health;
    for aa in &health.aa {
        assert_eq!(aa.comparison.verdict, Verdict::Same, "{aa:?}");
        assert!(aa.comparison.apart() < 1.05, "{aa:?}");
    }
}

#[test]
fn precision_is_said_in_one_sentence_from_the_run() {
    let mut health = testing::summary().health;
    let with = |apart: f64, epochs: usize, shown| {
        let mut aa = health.aa[0].clone();
        aa.comparison.ratio = apart;
        aa.comparison.epochs = vec![apart; epochs];
        aa.comparison.half_width = shown;
        aa
    };
    let cells =
        [with(1.003, 8, Some(1.015)), with(1.0 / 1.011, 8, Some(1.02)), with(0.999, 8, Some(1.01)), with(3.0, 2, None)];
    health.aa = cells.to_vec();
    health.half_width = Some(1.167);
    assert_eq!(
        health.identical_arms(),
        "The baseline, measured twice, differs by 0.3 % (median), at most by 1.1 % (micro/read, hot). The median half-width of an interval is 16.7 % (1.5 % for the baseline against itself): half of the comparisons cannot show a smaller difference"
    );
    health.half_width = Some(107.0);
    let wide = health.identical_arms();
    assert!(wide.ends_with("the median half-width of those of candidates is ×107"), "{wide}");
    health.aa_called_different = 1;
    let called = health.identical_arms();
    assert!(called.ends_with("; 1 of 4 comparisons of the baseline with itself call it different"), "{called}");
    health.aa = cells[3..].to_vec();
    let few = health.identical_arms();
    assert!(few.starts_with("With fewer than 3 epochs") && !few.contains('%'), "{few}");
    health.aa.clear();
    let none = health.identical_arms();
    for words in [&called, &few, &none] {
        assert!(!words.contains(" arm") && !words.contains("cell"), "{words}");
    }
    assert!(none.starts_with("The baseline was not measured twice"), "{none}");
}

#[test]
fn an_arm_that_takes_twice_as_long_is_called_worse_in_every_run() {
    for seed in 0..SEEDS {
        let summary = summarise(&testing::seeded(seed)).unwrap();
        for cell in summary.cells.iter().filter(|cell| cell.arm == "sqlite") {
            let comparison = cell.against_baseline.as_ref().unwrap();
            assert_eq!(comparison.verdict, Verdict::Worse, "seed {seed}, {cell:?}");
            let interval = comparison.interval.unwrap();
            assert!(interval.low < 2.1 && 1.9 < interval.high, "{comparison:?}");
        }
    }
}

#[test]
fn an_aa_arm_that_is_10_percent_slower_is_called_different() {
    let (different, cells) = called_different(SEEDS, |run| {
        // The session's own margin is 7 %, too close to 10 % for so few passes.
        run.plan.margins.session_share = 0.0;
        testing::scale(run, "direct-again", 1.1);
    });
    assert!(different * 100 >= 95 * cells, "{different} of {cells}");
}

#[test]
fn a_ratio_is_to_the_mean_of_both_identical_arms() {
    let mut run = testing::run();
    let before = compared(&summarise(&run).unwrap(), "read", "sqlite").ratio;
    testing::scale(&mut run, "direct-again", 4.0);
    let after = compared(&summarise(&run).unwrap(), "read", "sqlite").ratio;
    assert!((before / after - 2.0).abs() < 1e-3, "{before}, {after}");
}

#[test]
fn only_rounds_that_all_compared_arms_have_are_paired() {
    let mut run = testing::run();
    run.samples.retain(|pass| pass.warm_up || pass.arm != "sqlite" || pass.round < 4);
    run.samples.retain(|pass| pass.warm_up || pass.arm != "direct-again" || pass.round > 1);
    // The rounds that only `direct` has must not change the ratio.
    let alone = |pass: &&mut Sample| pass.arm == "direct" && !(2..4).contains(&pass.round);
    for sample in run.samples.iter_mut().filter(alone) {
        testing::scale_pass(sample, 100.0);
    }
    let summary = summarise(&run).unwrap();
    let found = compared(&summary, "read", "sqlite");
    assert_eq!(found.rounds, 2 * EPOCHS as usize);
    assert!((found.ratio - 2.0).abs() < 0.1, "{found:?}");
}

#[test]
fn figures_of_one_placement_are_the_same_with_and_without_the_other() {
    let alone = testing::run();
    let mut both = alone.clone();
    testing::with_shared_cpu(&mut both, 0.6);
    let (before, after) = (summarise(&alone).unwrap(), summarise(&both).unwrap());
    let words = |cells: &[Cell]| cells.iter().map(|cell| format!("{cell:?}")).collect::<Vec<_>>();
    let free: Vec<Cell> = after.cells.iter().filter(|cell| cell.state == "hot").cloned().collect();
    assert_eq!(words(&before.cells), words(&free));
    let shared = after.cell("micro/read", "hot-shared-cpu", "read", "sqlite").unwrap();
    let ratio = shared.against_baseline.as_ref().unwrap().ratio;
    assert!((1.1..1.3).contains(&ratio), "{ratio}");
    assert_eq!(shared.placed_freely(), Some(SeriesKey::new("micro/read", "hot", "read")));
    assert_eq!(after.health.epochs_in_words(), "4 epochs of all, 4 of shared");
    assert_eq!(before.health.epochs_in_words(), "4 epochs");
}

#[test]
fn placements_with_different_verdicts_say_which_machine_gets_which() {
    let notes = |factor: f64| {
        let mut run = testing::run();
        testing::with_shared_cpu(&mut run, factor);
        summarise(&run).unwrap().health.notes
    };
    // Worse in both placements.
    assert_eq!(notes(0.6), [""; 0]);
    let [note] = &notes(0.3)[..] else {
        panic!("{:?}", notes(0.3));
    };
    assert!(
        note.starts_with("sqlite against direct in micro/read (read) depends on the machine: worse (×2.0"),
        "{note}"
    );
    assert!(
        note.contains("on several processors, better (×0.6")
            && note.ends_with("on one processor or in a container with one CPU."),
        "{note}"
    );
    // Half as fast freely, and as fast on one processor.
    let [note] = &notes(0.5)[..] else {
        panic!("{:?}", notes(0.5));
    };
    assert!(note.contains("the same (×1.0"), "{note}");
}

#[test]
fn a_section_that_counts_has_no_ratio_and_no_aa_check() {
    let mut run = testing::run();
    run.plan.schedule.sections[0].counts = true;
    let summary = summarise(&run).unwrap();
    assert!(!summary.cells.is_empty());
    for cell in &summary.cells {
        assert!(cell.against_baseline.is_none() && cell.against_floor.is_none(), "{cell:?}");
    }
    assert!(summary.health.aa.is_empty() && summary.health.compared == 0);
    assert!(!summary.costs.is_empty(), "exact counts are there");
}

#[test]
fn a_section_without_epochs_is_named_and_the_others_keep_their_verdicts() {
    let mut run = testing::run();
    testing::with_shared_cpu(&mut run, 0.6);
    run.epochs.retain(|epoch| epoch.section == "all");
    let summary = summarise(&run).unwrap();
    assert!(compared(&summary, "read", "sqlite").verdict == Verdict::Worse);
    let notes = &summary.health.notes;
    assert!(notes.iter().any(|note| note.starts_with("Section shared has 0 epochs")), "{notes:?}");
}

#[test]
fn a_pass_in_which_a_call_failed_is_in_no_latency() {
    let mut run = testing::run();
    for sample in run.samples.iter_mut().filter(|pass| pass.round > 1) {
        sample.outcome = Outcome::WrongData;
        sample.reason = Some("byte 0 is wrong".to_owned());
        testing::scale_pass(sample, 1000.0);
    }
    let summary = summarise(&run).unwrap();
    for cell in &summary.cells {
        assert_eq!(cell.passes, EPOCHS as usize, "{cell:?}");
        assert!(cell.typical_ns < 1e9, "{cell:?}");
    }
    let ending = &summary.endings[0];
    let wrong = u64::from(2 * EPOCHS * (ROUNDS - 1));
    assert_eq!(ending.passes[&Outcome::WrongData], wrong);
    assert_eq!(ending.reasons.values().sum::<u64>(), wrong);
    let bound = ending.failure_bound().unwrap();
    let share = wrong as f64 / f64::from(2 * EPOCHS * (ROUNDS + 1));
    assert!(bound > share && bound < share + 0.15, "{bound}");
    let failed = &summary.cells[0].failed;
    assert_eq!(failed.count(), wrong / 2);
    assert!(failed.words().contains("20 wrong-data: 71.4 %, ≤ 84.9 %"), "{}", failed.words());
}

#[test]
fn an_arm_with_only_wrong_answers_has_a_wait_but_no_latency() {
    let mut run = testing::run();
    for sample in testing::passes(&mut run, "agent/session", "sqlite") {
        sample.outcome = Outcome::WrongData;
        sample.outcomes = BTreeMap::from([(Outcome::WrongData, 5), (Outcome::Ok, CALLS - 5)]);
        sample.waited_ns = 1_000_000_000;
    }
    let summary = summarise(&run).unwrap();
    let mut cells = summary.cells.iter();
    assert!(!cells.any(|cell| cell.arm == "sqlite" && cell.workload == "agent/session"));
    assert!(summary.cells.iter().any(|cell| cell.arm == "sqlite"));
    let [failing] = &summary.failing[..] else {
        panic!("{:?}", summary.failing);
    };
    // The warm-up pass of each epoch is wrong too.
    let passes = u64::from(EPOCHS * (ROUNDS + 1));
    assert_eq!((failing.passes, failing.of_passes), (passes, passes));
    assert_eq!(failing.calls[&Outcome::WrongData], 5 * passes);
    assert!((failing.share() - 0.05).abs() < 1e-9);
    assert!((failing.waited_ns - 1e9).abs() < 1.0);
    assert!(failing.baseline_ns.unwrap() < 1e9);
    assert!(testing::summary().failing.is_empty());
}

#[test]
fn n_passes_without_failure_bound_the_failure_rate() {
    let summary = testing::summary();
    let ending = &summary.endings[0];
    let passes = u64::from(2 * EPOCHS * (ROUNDS + 1));
    assert_eq!(ending.passes[&Outcome::Ok], passes);
    assert_eq!(ending.calls[&Outcome::Ok], passes * CALLS);
    assert_eq!(ending.failure_bound(), Some(stats::failure_bound(0, passes)));
}

#[test]
fn percentiles_are_computed_over_all_calls_of_a_cell() {
    let summary = testing::summary();
    let read = cell(&summary, "read", "direct");
    assert_eq!(read.calls, PASSES as u64 * CALLS);
    assert_eq!(read.passes, PASSES);
    assert!(read.p99_ns.is_some() && read.p999_ns.is_none());
    assert!(read.p50_ns < read.p90_ns && read.p90_ns < read.p99_ns);
    // A makespan is not a call, and has no percentiles of calls.
    let session = cell(&summary, MAKESPAN, "direct");
    assert_eq!((session.p50_ns, session.calls), (None, read.calls));
    assert!(session.max_ns > session.typical_ns as u64);
}

#[test]
fn the_parts_of_a_cost_add_up() {
    let summary = testing::summary();
    let cost = |arm: &str| summary.costs.iter().find(|cost| cost.arm == arm).unwrap();
    let sqlite = cost("sqlite");
    let sum = sqlite.store_ns + sqlite.front_end_ns + sqlite.kernel_and_queue_ns;
    assert!((sum / sqlite.service_ns - 1.0).abs() < 1e-9);
    assert!((sqlite.store_ns / sqlite.service_ns - 0.2).abs() < 0.01);
    // Exact counts come from the warm-up pass of each epoch.
    assert_eq!(sqlite.counted_passes, u64::from(EPOCHS));
    assert_eq!((sqlite.requests, sqlite.system_calls), (2.0, 3.0));
    assert_eq!(sqlite.store_counts["sql_statements"], 3.0);
    assert_eq!(sqlite.disk_written_bytes, 4096.0);
    let direct = cost("direct");
    assert_eq!((direct.requests, direct.store_ns), (0.0, 0.0));
    assert!((direct.kernel_and_queue_ns / direct.service_ns - 1.0).abs() < 1e-9);
}

#[test]
fn a_cell_without_requests_was_answered_by_the_kernel() {
    let mut run = testing::run();
    let summary = summarise(&run).unwrap();
    assert_eq!(cell(&summary, "read", "sqlite").requests_per_call, Some(2.0));
    assert!(!cell(&summary, "read", "sqlite").is_kernel_cache());
    assert_eq!(cell(&summary, "read", "direct").requests_per_call, None);
    for cell in &mut run.cells {
        if let Some(daemon) = &mut cell.counted.daemon {
            daemon.fuse.clear();
        }
    }
    let summary = summarise(&run).unwrap();
    assert!(cell(&summary, "read", "sqlite").is_kernel_cache());
    assert!(!cell(&summary, "read", "direct").is_kernel_cache());
}

/// Marks the first `count` timed passes as made on a busy machine.
fn disturb(run: &mut Run, count: usize) {
    let timed = run.samples.iter_mut().filter(|pass| !pass.warm_up);
    for sample in timed.take(count) {
        sample.load.busy = Some("tasks waited for a processor in 45 % of this pass".to_owned());
    }
}

#[test]
fn a_busy_run_has_verdicts_that_hold_whatever_the_disturbance_changed() {
    let timed = 6 * PASSES;
    // In the scripted run, half of a pass of `direct` is waiting, and a sixth of one of `sqlite`.
    for (ratio, verdict) in [
        (4.0, Verdict::Worse),
        (2.0, Verdict::Worse),
        (1.2, Verdict::Undecided),
        (1.0, Verdict::Undecided),
        (0.3, Verdict::Better),
    ] {
        let mut run = at_ratio(ratio);
        let quiet = compared(&summarise(&run).unwrap(), "read", "sqlite").clone();
        disturb(&mut run, timed / 2 + 1);
        let summary = summarise(&run).unwrap();
        let health = &summary.health;
        assert!(health.is_busy);
        assert_eq!((health.passes, health.busy_passes), (timed, timed / 2 + 1));
        assert_eq!(health.busy, BTreeMap::from([("tasks waited for a processor".to_owned(), timed / 2 + 1)]));
        for cell in &summary.cells {
            assert_eq!(cell.passes, PASSES, "busy passes are in the figures");
        }
        let busy = compared(&summary, "read", "sqlite");
        assert_eq!((busy.verdict, &busy.withheld), (verdict, &None), "×{ratio}: {busy:?}");
        assert!(!busy.verdict.contradicts(quiet.verdict));
        let (wide, narrow) = (busy.interval.unwrap(), quiet.interval.unwrap());
        assert!(wide.low < narrow.low && wide.high > narrow.high, "{busy:?}");
        assert!(busy.half_width > quiet.half_width);
    }
}

#[test]
fn a_busy_run_without_processor_times_gets_no_verdict() {
    let mut run = testing::run();
    disturb(&mut run, 6 * PASSES);
    let cell_of = |pass: &&mut Sample| pass.workload == "micro/read" && pass.arm == "sqlite";
    let lost = run.samples.iter_mut().filter(cell_of).last();
    lost.unwrap().cpu = rundir::Cpu::default();
    let summary = summarise(&run).unwrap();
    let found = compared(&summary, "read", "sqlite");
    assert_eq!((found.verdict, found.interval), (Verdict::Undecided, None));
    let other = compared(&summary, MAKESPAN, "sqlite");
    assert_eq!(other.verdict, Verdict::Worse, "its passes are all known");
}

#[test]
fn a_busy_machine_is_said_once_with_what_to_stop() {
    let mut run = testing::run();
    disturb(&mut run, 6 * PASSES);
    let note = |run: &Run| {
        let health = summarise(run).unwrap().health;
        assert_eq!(health.notes.len(), 1, "{:?}", health.notes);
        health.notes[0].clone()
    };
    let unknown = note(&run);
    assert!(unknown.starts_with("This machine was busy in "), "{unknown}");
    assert!(unknown.contains("stop the other processes,"), "{unknown}");
    for epoch in &mut run.epochs {
        let used = [("rustc", 30.0), ("a\u{1b}[31m|b", 2.0), ("sshd", 0.1), ("cron", 0.2)];
        let used = used.map(|(name, seconds)| (name.to_owned(), seconds));
        epoch.neighbours = BTreeMap::from(used);
    }
    let named = note(&run);
    let words =
        "stop rustc (120 s of processor time), a__31m_b (8 s of processor time), cron (1 s of processor time), and";
    assert!(named.contains(words), "{named}");
    for (beside, expected) in [
        ("", "given. `reproduce --load` asked for this load."),
        ("rustc", "beside it, these used the processors: rustc (40 s of processor time)."),
    ] {
        for epoch in &mut run.epochs {
            let used = [(rundir::LOAD_PROCESS, 50.0), (beside, 10.0)];
            let used = used.into_iter().filter(|(name, _)| !name.is_empty());
            epoch.neighbours = used.map(|(name, seconds)| (name.to_owned(), seconds)).collect();
        }
        let loaded = note(&run);
        assert!(loaded.ends_with(expected), "{loaded}");
        assert!(!loaded.contains("stop") && !loaded.contains(rundir::LOAD_PROCESS), "{loaded}");
    }
    let summary = summarise(&run).unwrap();
    let mut cells = summary.cells.iter();
    let is_silent = |cell: &Cell| {
        let compared = cell.against_baseline.as_ref();
        compared.is_none_or(|compared| !crate::text::ratio(compared).contains("busy"))
    };
    assert!(cells.all(is_silent), "no row repeats it");
}

#[test]
fn times_below_what_matters_are_said_once_and_counted_apart() {
    let mut run = at_ratio(0.47);
    let key = |metric: &str, workload: &str| SeriesKey::new(workload, "hot", metric);
    let session = key(MAKESPAN, "agent/session");
    let before = summarise(&run).unwrap();
    assert_eq!(before.below_what_matters(&run.plan, &session), None);
    assert_eq!((before.health.compared, before.health.below_what_matters), (2, 0));
    // 0.1 % of the session is a hundred times what its calls take: 10 ms of 1,000 s.
    run.plan.workloads[1].session_ms = Some(1_000_000);
    let summary = summarise(&run).unwrap();
    let found = compared(&summary, MAKESPAN, "sqlite");
    assert_eq!(found.verdict, Verdict::BelowWhatMatters, "{found:?}");
    let words = summary.below_what_matters(&run.plan, &session).unwrap();
    assert_eq!(words, "below what matters (0.001 % of the session)");
    let health = &summary.health;
    assert_eq!((health.compared, health.below_what_matters), (1, 1));
    assert!(health.verdicts().ends_with("; below what matters: 1 more"));
    // An arm that takes longer than what matters is said on its own.
    testing::copy_arm(&mut run, "sqlite", "slow");
    testing::scale(&mut run, "slow", 1000.0);
    let summary = summarise(&run).unwrap();
    assert_eq!(compared(&summary, MAKESPAN, "slow").verdict, Verdict::Worse);
    assert_eq!(summary.below_what_matters(&run.plan, &session), None);
    // A margin a call.
    run.plan.margins.absolute_ns = 1e9;
    let summary = summarise(&run).unwrap();
    let read = summary.below_what_matters(&run.plan, &key("read", "micro/read"));
    let read = read.unwrap();
    assert!(read.starts_with("below what matters (at most ") && read.ends_with("ms a call)"), "{read}");
}

#[test]
fn an_undecided_kind_of_calls_in_a_long_session_is_below_what_matters() {
    // The edits of a session come out at the edge of the margin of 5 %.
    let mut run = at_ratio(1.05);
    let edit = |run: &Run| compared(&summarise(run).unwrap(), "edit", "sqlite").clone();
    assert_eq!(edit(&run).verdict, Verdict::Undecided);
    run.plan.workloads[1].session_ms = Some(1_000_000);
    let found = edit(&run);
    assert_eq!(found.verdict, Verdict::BelowWhatMatters, "{found:?}");
    let key = SeriesKey::new("agent/session", "hot", "edit");
    let words = summarise(&run).unwrap().below_what_matters(&run.plan, &key);
    assert_eq!(words.unwrap(), "below what matters (0.001 % of the session)");
    // A short session, and a difference that is decided.
    run.plan.workloads[1].session_ms = Some(1);
    assert_eq!(edit(&run).verdict, Verdict::Undecided);
    let mut run = at_ratio(2.0);
    run.plan.workloads[1].session_ms = Some(1_000_000);
    assert_eq!(edit(&run).verdict, Verdict::Worse);
}

#[test]
fn a_verdict_on_medians_that_the_means_contradict_is_withheld() {
    // Calls of `sqlite` take half of the time, and a few take so long that the mean is this many times as large.
    for (slower, verdict, words) in [
        (1.0, Verdict::Better, None),
        (1.5, Verdict::Better, None),
        (4.0, Verdict::Undecided, Some("better by the median, slower by the mean of all calls (×")),
    ] {
        let mut run = at_ratio(0.5);
        for pass in testing::passes(&mut run, "micro/read", "sqlite") {
            for calls in pass.calls.values_mut() {
                calls.total_ns = (calls.total_ns as f64 * slower) as u64;
            }
        }
        let summary = summarise(&run).unwrap();
        let found = compared(&summary, "read", "sqlite");
        assert_eq!(found.verdict, verdict, "{slower}: {found:?}");
        let why = found.withheld.as_deref();
        assert_eq!(why.is_some(), words.is_some());
        if let (Some(why), Some(words)) = (why, words) {
            assert!(why.starts_with(words), "{why}");
        }
    }
}

#[test]
fn a_run_with_half_of_its_passes_busy_leaves_them_out_and_has_verdicts() {
    let mut run = testing::run();
    let busy = 6 * PASSES / 2;
    // A neighbour that is there in every other round.
    for sample in run.samples.iter_mut().filter(|pass| !pass.warm_up && pass.round.is_multiple_of(2)) {
        sample.load.busy = Some("tasks waited for a processor in 45 % of this pass".to_owned());
        testing::scale_pass(sample, 1000.0);
    }
    let summary = summarise(&run).unwrap();
    assert!(!summary.health.is_busy);
    assert!(summary.health.notes.is_empty(), "{:?}", summary.health.notes);
    let values = |summary: &Summary| -> usize {
        let main = summary.cells.iter().filter(|cell| cell.is_main());
        main.map(|cell| cell.passes).sum()
    };
    assert_eq!(values(&summary), 6 * PASSES - busy);
    assert_eq!(compared(&summary, "read", "sqlite").verdict, Verdict::Worse);
    assert!((compared(&summary, "read", "sqlite").ratio - 2.0).abs() < 0.1);
}

#[test]
fn a_busy_run_widens_intervals_against_memory_too() {
    let mut run = testing::run();
    testing::rename_arm(&mut run, "direct", FLOOR);
    let floor = |run: &Run| {
        let summary = summarise(run).unwrap();
        let against_floor = cell(&summary, "read", "sqlite").against_floor.clone();
        against_floor.unwrap()
    };
    let quiet = floor(&run);
    disturb(&mut run, 6 * PASSES);
    let busy = floor(&run);
    assert_eq!((quiet.verdict, busy.verdict), (Verdict::Worse, Verdict::Worse));
    assert!(busy.half_width > quiet.half_width);
}

#[test]
fn a_scratch_without_a_journal_withholds_creating_deleting_and_syncing_only() {
    let kinds = [
        ("create", true),
        ("delete", true),
        ("fsync", true),
        ("sync", true),
        ("sync-new", true),
        ("sync-overwritten", true),
        ("read", false),
        ("stat", false),
        ("rename", false),
    ];
    for (kind, is_withheld) in kinds {
        let mut run = testing::run();
        testing::rename_calls(&mut run, "read", kind);
        run.environment.scratch.journal = Journal::None;
        let summary = summarise(&run).unwrap();
        let found = compared(&summary, kind, "sqlite");
        assert_eq!(found.verdict == Verdict::Undecided, is_withheld, "{kind}");
        assert_eq!(found.withheld.is_some(), is_withheld, "{kind}");
        assert!((found.ratio - 2.0).abs() < 0.1, "{kind}");
        let session = compared(&summary, MAKESPAN, "sqlite");
        assert_eq!(session.verdict, Verdict::Worse);
        assert!(summary.health.notes[0].contains("no journal"));
        for journal in [Journal::Journaled, Journal::Unknown] {
            run.environment.scratch.journal = journal;
            let summary = summarise(&run).unwrap();
            assert_eq!(compared(&summary, kind, "sqlite").verdict, Verdict::Worse);
        }
    }
}

#[test]
fn a_sync_that_survives_no_power_loss_is_neither_better_nor_the_same_and_may_be_worse() {
    // By kind and ratio: whether the verdict on the calls is withheld, and that on the session.
    for (kind, ratio, is_withheld) in [
        ("fsync", 0.5, [true, true]),
        ("sync-new", 1.0, [true, true]),
        ("fsync", 2.0, [false, false]),
        ("read", 0.5, [false, true]),
    ] {
        let mut run = at_ratio(ratio);
        testing::rename_calls(&mut run, "read", kind);
        // A session in which some calls sync.
        run.plan.workloads[1].syncs = vec!["edit".to_owned()];
        let verdicts = |run: &Run| {
            let summary = summarise(run).unwrap();
            [kind, MAKESPAN].map(|metric| compared(&summary, metric, "sqlite").clone())
        };
        let of = |promising: &[&str]| {
            let mut run = run.clone();
            let arms = run.plan.arms.iter_mut();
            for arm in arms.filter(|arm| promising.contains(&&*arm.backend.name)) {
                arm.backend.promises.insert("power-loss".to_owned(), "fsync".to_owned());
            }
            verdicts(&run)
        };
        let found = of(&["direct"]);
        assert_eq!(found.clone().map(|one| one.withheld.is_some()), is_withheld, "{kind} {ratio}: {found:?}");
        assert_eq!(found.map(|one| one.verdict == Verdict::Undecided), is_withheld, "{kind} {ratio}");
        for promising in [&["direct", "sqlite"][..], &[]] {
            let found = of(promising);
            assert!(found.iter().all(|one| one.withheld.is_none()), "{kind} {ratio} {promising:?}: {found:?}");
        }
    }
}

/// A run whose `sqlite` takes `ratio` times as long as `direct`.
fn at_ratio(ratio: f64) -> Run {
    let mut run = testing::run();
    testing::scale(&mut run, "sqlite", ratio / 2.0);
    run
}

/// The summary of a run whose `sqlite` takes `ratio` times as long as `direct`, and whose passes that `is_slow` picks take
/// twice as long.
fn with_slow_passes(ratio: f64, is_slow: impl Fn(&Sample) -> bool) -> Summary {
    let mut run = at_ratio(ratio);
    for sample in run.samples.iter_mut().filter(|pass| is_slow(pass)) {
        testing::scale_pass(sample, 2.0);
    }
    summarise(&run).unwrap()
}

fn is_baseline(sample: &Sample) -> bool {
    sample.arm.starts_with("direct")
}

#[test]
fn a_verdict_that_depends_on_the_baselines_level_is_withheld() {
    // In one round of six the baseline takes twice as long, which turns 1.5 times slower into 1.3 times faster.
    let summary = with_slow_passes(1.5, |pass| is_baseline(pass) && pass.round == 3);
    let modes = cell(&summary, "read", "direct").modes.unwrap();
    assert!((modes.high / modes.low / 2.0 - 1.0).abs() < 0.1, "{modes:?}");
    assert!((modes.high_share - 1.0 / 6.0).abs() < 0.05);
    for metric in ["read", MAKESPAN] {
        let found = compared(&summary, metric, "sqlite");
        assert!(found.interval.unwrap().low > 1.05, "{found:?}");
        assert_eq!(found.verdict, Verdict::Undecided);
        assert!(found.withheld.as_ref().unwrap().contains("two levels"));
    }
}

#[test]
fn a_verdict_that_depends_on_the_candidates_level_is_withheld() {
    let summary = with_slow_passes(1.0, |pass| pass.arm == "sqlite" && pass.round == 3);
    assert!(cell(&summary, "read", "direct").modes.is_none());
    let found = compared(&summary, "read", "sqlite");
    assert!(found.interval.unwrap().high < 1.05, "{found:?}");
    assert!(found.withheld.as_ref().unwrap().contains("two levels"));
}

#[test]
fn a_verdict_that_holds_at_both_levels_stays() {
    let summary = with_slow_passes(3.0, |pass| is_baseline(pass) && pass.round == 3);
    assert!(cell(&summary, "read", "direct").modes.is_some());
    let found = compared(&summary, "read", "sqlite");
    assert_eq!((found.verdict, &found.withheld), (Verdict::Worse, &None));
}

#[test]
fn levels_that_all_arms_share_withhold_nothing() {
    // One epoch with a slower processor, and one slower round in each: every ratio is equal at both levels.
    for (ratio, verdict) in [(1.0, Verdict::Same), (1.3, Verdict::Worse)] {
        for slow in [|pass: &Sample| pass.epoch == 2, |pass: &Sample| pass.round == 3] {
            let summary = with_slow_passes(ratio, slow);
            assert!(cell(&summary, "read", "direct").modes.is_some());
            let found = compared(&summary, "read", "sqlite");
            assert_eq!((found.verdict, &found.withheld), (verdict, &None));
        }
    }
}

#[test]
fn a_void_epoch_counts_for_nothing() {
    let mut run = testing::run();
    run.epochs[1].void = Some("the clock jumped by 3 s".to_owned());
    run.epochs[1].steal = 0.9;
    run.epochs[1].stalled = [0.9; 3];
    run.epochs[1].hot_timed_ms = 0;
    for sample in run.samples.iter_mut().filter(|pass| pass.epoch == 1) {
        testing::scale_pass(sample, if sample.arm == "sqlite" { 0.1 } else { 10.0 });
        sample.load.busy = Some("tasks waited for memory in 90 % of this pass".to_owned());
        sample.outcome = Outcome::Timeout;
        sample.outcomes = BTreeMap::from([(Outcome::Timeout, 1)]);
    }
    for cell in run.cells.iter_mut().filter(|cell| cell.epoch == 1) {
        cell.counted.waited_ns *= 1000;
        cell.ready_ns = vec![1];
        cell.memory.peak = u64::MAX;
    }
    let mut without = testing::run();
    without.samples.retain(|pass| pass.epoch != 1);
    without.cells.retain(|cell| cell.epoch != 1);
    without.epochs.retain(|epoch| epoch.epoch != 1);
    let (with, without) = (summarise(&run).unwrap(), summarise(&without).unwrap());
    let parts = |summary: &Summary| {
        let found = (&summary.cells, &summary.costs, &summary.ready);
        let endings = (&summary.endings, &summary.failing);
        serde_json::to_string(&(found, endings)).unwrap()
    };
    assert_eq!(parts(&with), parts(&without));
    let (health, other) = (&with.health, &without.health);
    assert_eq!((health.epochs, health.passes), (3, other.passes));
    assert_eq!((health.is_busy, health.busy_passes), (false, 0));
    assert_eq!((health.steal, health.stalled), (other.steal, other.stalled));
    assert_eq!(health.hot_timed_share, other.hot_timed_share);
    // A note names the failures of a void epoch.
    assert_eq!(
        health.notes,
        ["Epoch 1 is void and does not count: the clock jumped by 3 s. 42 of its passes did not end well."]
    );
}

#[test]
fn a_run_of_two_epochs_says_that_it_is_partial() {
    let mut run = testing::run();
    run.samples.retain(|pass| pass.epoch < 2);
    run.cells.retain(|cell| cell.epoch < 2);
    run.epochs.retain(|epoch| epoch.epoch < 2);
    let summary = summarise(&run).unwrap();
    let [note] = &summary.health.notes[..] else {
        panic!("{:?}", summary.health.notes);
    };
    assert!(note.starts_with("This is a partial run of 2 epochs"));
    for cell in &summary.cells {
        assert_eq!((cell.epochs, cell.interval), (2, None));
        if let Some(comparison) = &cell.against_baseline {
            assert_eq!(comparison.verdict, Verdict::Undecided);
        }
    }
    let found = compared(&summary, "read", "sqlite");
    assert!((found.ratio - 2.0).abs() < 0.1 && found.interval.is_none());
}

#[test]
fn a_run_that_was_interrupted_in_an_epoch_says_so() {
    let mut run = testing::run();
    run.epochs.pop();
    let health = summarise(&run).unwrap().health;
    assert_eq!(health.epochs, EPOCHS as usize - 1);
    let notes = health.notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("it is incomplete"), "{notes:?}");
    assert!(testing::summary().health.notes.is_empty());
}

#[test]
fn each_kind_of_margin_decides_a_case_of_its_own() {
    // A call takes 100 µs, a session 10 ms; the recorded session took 700 ms.
    let margins = |relative, absolute_ns, session_share| rundir::Margins { relative, absolute_ns, session_share };
    let relative = margins(0.15, 0.0, 0.0);
    let absolute = margins(0.0, 15_000.0, 0.0);
    let session = margins(0.0, 0.0, 0.0022);
    let cases = [
        (relative, "read", MarginKind::Relative, true),
        (relative, MAKESPAN, MarginKind::Relative, true),
        (absolute, "read", MarginKind::Absolute, true),
        (absolute, MAKESPAN, MarginKind::Absolute, true),
        (session, MAKESPAN, MarginKind::Session, true),
        // A session's margin does not apply to a call.
        (session, "read", MarginKind::Relative, false),
    ];
    for (margins, metric, kind, is_same) in cases {
        let judged = |ratio: f64| {
            let mut run = at_ratio(ratio);
            run.plan.margins = margins;
            compared(&summarise(&run).unwrap(), metric, "sqlite").clone()
        };
        let near = judged(1.08);
        let wanted = if is_same { Verdict::Same } else { Verdict::Worse };
        assert_eq!(near.verdict, wanted, "{kind:?} {metric}: {near:?}");
        assert_eq!(near.margin.kind, kind, "{metric}");
        if is_same {
            assert!((near.margin.ratio - 1.15).abs() < 0.02, "{near:?}");
        }
        assert_eq!(judged(1.3).verdict, Verdict::Worse, "{kind:?} {metric}");
        assert_eq!(judged(0.7).verdict, Verdict::Better, "{kind:?} {metric}");
    }
}

#[test]
fn only_an_arm_with_a_daemon_has_a_time_to_readiness() {
    let mut run = testing::run();
    let summary = summarise(&run).unwrap();
    assert!(summary.ready.iter().all(|ready| ready.arm == "sqlite"));
    let ready = &summary.ready[0];
    let interval = ready.interval.unwrap();
    assert!(interval.low < 12e6 && 12e6 < interval.high, "{ready:?}");
    // In a cold cell, the first start is on an empty workspace.
    for workload in &mut run.plan.workloads {
        workload.states = vec!["cold".to_owned()];
    }
    for sample in &mut run.samples {
        sample.state = "cold".to_owned();
    }
    for cell in run.cells.iter_mut().filter(|cell| cell.arm == "sqlite") {
        cell.state = "cold".to_owned();
        cell.ready_ns = vec![1_000_000_000, 12_000_000, 12_000_000];
    }
    let summary = summarise(&run).unwrap();
    assert!((summary.ready[0].typical_ns - 12e6).abs() < 1.0);
    let cost = summary.costs.iter().find(|cost| cost.arm == "sqlite");
    let starts = &cost.unwrap().ready_ns;
    assert_eq!(starts.len(), 2 * EPOCHS as usize);
    assert!(starts.iter().all(|ns| *ns == 12_000_000));
}

/// Thirty cells of six arms, 50,000 passes in total, the size of a long run.
fn large() -> Run {
    let mut run = testing::run();
    let template = run.clone();
    for name in ["memory", "passthrough", "s3"] {
        let mut arm = testing::arm("sqlite", None);
        name.clone_into(&mut arm.name);
        run.plan.arms.push(arm);
    }
    run.plan.workloads.clear();
    run.samples.clear();
    run.cells.clear();
    for number in 0..15 {
        let mut workload = template.plan.workloads[number % 2].clone();
        workload.name = format!("{}-{number}", workload.name);
        workload.states = vec!["hot".to_owned(), "lukewarm".to_owned()];
        run.plan.workloads.push(workload);
    }
    for epoch in 0..8 {
        for (number, workload) in run.plan.workloads.iter().enumerate() {
            let origin = &template.plan.workloads[number % 2].name;
            for state in &workload.states {
                for (at, arm) in run.plan.arms.iter().enumerate() {
                    let like = &template.plan.arms[at.min(2)].name;
                    let mut passes = template.samples.iter().cycle();
                    for round in 0..35 {
                        let mut sample =
                            passes.find(|pass| pass.arm == *like && pass.workload == *origin).unwrap().clone();
                        (sample.epoch, sample.round) = (epoch, round);
                        sample.arm.clone_from(&arm.name);
                        sample.workload.clone_from(&workload.name);
                        sample.state.clone_from(state);
                        run.samples.push(sample);
                    }
                    let mut cells = template.cells.iter();
                    let cell = cells.find(|cell| cell.arm == *like && cell.workload == *origin);
                    let mut cell = cell.unwrap().clone();
                    cell.epoch = epoch;
                    cell.arm.clone_from(&arm.name);
                    cell.workload.clone_from(&workload.name);
                    cell.state.clone_from(state);
                    run.cells.push(cell);
                }
            }
        }
    }
    run
}

#[test]
fn a_run_of_50_000_passes_is_summarised_in_seconds() {
    let run = large();
    assert_eq!((run.samples.len(), run.cells.len()), (50_400, 1440));
    let began = std::time::Instant::now();
    let summary = summarise(&run).unwrap();
    let took = began.elapsed();
    assert!(summary.cells.len() >= 30 * 6);
    println!("{took:?}");
    // The limit excludes a scan of all passes for each cell and arm, which takes a hundred times as long.
    assert!(took.as_secs() < 20, "{took:?}");
}
