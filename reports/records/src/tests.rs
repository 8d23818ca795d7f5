use rundir::faults::{CrashPoints, MACHINE_LOSS};
use rundir::{Arm, Latencies, Score, SettledLines};

use super::*;
use figures::testing;

/// A run whose records fit together.
pub(crate) fn run() -> Run {
    let mut run = testing::run();
    run.faults.clear();
    run.probes.clear();
    for cell in &mut run.cells {
        let passes = run
            .samples
            .iter()
            .filter(|pass| (pass.epoch, &pass.arm, &pass.workload) == (cell.epoch, &cell.arm, &cell.workload));
        let (warm_up, timed): (Vec<&Sample>, Vec<&Sample>) = passes.partition(|pass| pass.warm_up);
        cell.timed_us = timed.iter().map(|pass| pass.makespan_ns).sum::<u64>() / 1000;
        cell.took_ms = 100_000;
        let all = |of: fn(&Sample) -> u64| warm_up.iter().map(|pass| of(pass)).sum();
        cell.counted.passes = warm_up.len() as u64;
        cell.counted.calls = all(|pass| pass.outcomes.values().sum());
        cell.counted.waited_ns = all(|pass| pass.waited_ns);
    }
    let mut started = 0;
    for pass in &mut run.samples {
        pass.took_us = pass.waited_ns / 1000 + 10;
        pass.started_ms = started;
        started += pass.took_us / 1000 + 1;
    }
    for epoch in &mut run.epochs {
        (epoch.cells, epoch.took_ms, epoch.hot_ms) = (2, 1_000_000, 1000);
        let cells = run.cells.iter().filter(|cell| cell.epoch == epoch.epoch);
        epoch.hot_timed_ms = cells.map(|cell| cell.timed_us).sum::<u64>() / 1000;
    }
    run
}

/// The files and fields that differ after a change.
fn found(change: impl FnOnce(&mut Run)) -> Vec<String> {
    let mut run = run();
    change(&mut run);
    let found = check_records(&run);
    found.iter().map(|one| format!("{} {}", one.file, one.field)).collect()
}

fn renumber(run: &mut Run) {
    for (order, pass) in (0..).zip(&mut run.samples) {
        pass.order = order;
    }
}

#[test]
fn records_that_fit_together_have_no_difference() {
    assert_eq!(check_records(&run()), []);
}

#[test]
fn each_planted_change_of_a_record_is_found_in_its_file_and_field() {
    type Change = fn(&mut Run);
    let changes: [(Change, &str); 36] = [
        (|run| run.samples[40].arm = "memory".to_owned(), "samples.jsonl arm"),
        (|run| run.samples[40].outcome = Outcome::Errno, "samples.jsonl reason"),
        (|run| run.samples[40].outcomes.extend([(Outcome::Errno, 1)]), "samples.jsonl outcome"),
        (|run| run.samples[40].makespan_ns += 1, "samples.jsonl makespan_ns"),
        (|run| run.samples[40].waited_ns += 1, "samples.jsonl waited_ns"),
        (|run| run.samples[40].took_us = 1, "samples.jsonl took_us"),
        (|run| calls(run).p50_ns /= 2, "cells.jsonl latencies.edit"),
        (|run| calls(run).max_ns *= 2, "cells.jsonl latencies.edit"),
        (|run| calls(run).p90_ns = 1, "samples.jsonl calls.edit"),
        (|run| calls(run).count -= 1, "cells.jsonl latencies.edit"),
        (|run| testing::scale_pass(&mut run.samples[40], 0.5), "cells.jsonl timed_us"),
        // The times of one shard are in microseconds.
        (|run| in_microseconds(run, "agent/session"), "cells.jsonl timed_us"),
        (|run| in_microseconds(run, "agent/session"), "cells.jsonl latencies.edit"),
        (|run| drop(run.samples.remove(40)), "samples.jsonl order"),
        (
            |run| {
                run.samples.remove(40);
                renumber(run);
            },
            "samples.jsonl round",
        ),
        (
            |run| {
                let added = run.samples[40].clone();
                run.samples.insert(41, added);
                renumber(run);
            },
            "samples.jsonl started_ms",
        ),
        (|run| run.samples.swap(40, 60), "samples.jsonl order"),
        (|run| run.samples[40].load.busy = Some("busy".to_owned()), "samples.jsonl load.busy"),
        (
            |run| {
                let other = run.cells[1].latencies.clone();
                run.cells[2].latencies = other;
            },
            "cells.jsonl latencies.read",
        ),
        (|run| run.cells[2].latencies.clear(), "cells.jsonl latencies.read"),
        (|run| run.cells[2].counted.calls += 1, "cells.jsonl counted.calls"),
        (|run| run.cells[2].counted.passes = 0, "cells.jsonl counted.passes"),
        (|run| drop(run.cells.remove(2)), "samples.jsonl arm"),
        (|run| run.epochs[1].hot_timed_ms += 1, "epochs.jsonl hot_timed_ms"),
        (|run| run.epochs[1].cells += 1, "epochs.jsonl cells"),
        (|run| run.policy = Some("name = 'x'".to_owned()), "plan.toml policy.sha256"),
        // All passes of an arm make fewer calls than those of others.
        (
            |run| {
                let passes = run.samples.iter_mut().filter(|pass| pass.arm == "sqlite");
                passes.flat_map(|pass| pass.calls.values_mut()).for_each(|calls| calls.count = 1);
            },
            "samples.jsonl calls",
        ),
        (|run| ask(run, &[100, 99]), "samples.jsonl scores.search.tokens.of"),
        (|run| ask(run, &[100]), "samples.jsonl scores.search.tokens"),
        (
            |run| {
                for at in [40, 41] {
                    run.samples[at].makespan_ns = 1234;
                    run.samples[at].cpu.client_ns = 567;
                }
            },
            "samples.jsonl makespan_ns",
        ),
        (
            |run| run.samples[40].settled = Some(SettledLines { lines: 999, on_both: 999, ..SettledLines::default() }),
            "samples.jsonl settled.lines",
        ),
        (|run| run.samples[40].settled = Some(SettledLines::default()), "samples.jsonl settled.lines"),
        // The passes of a store, as those of a plain directory.
        (
            |run| testing::passes(run, "micro/read", "direct").for_each(|pass| pass.cpu.daemon_ns = 5),
            "samples.jsonl cpu.daemon_ns",
        ),
        (|run| arm(run, "sqlite").unavailable = Some("no /dev/fuse".to_owned()), "samples.jsonl arm"),
        (|run| arm(run, "sqlite").same_as = Some("direct".to_owned()), "plan.toml same_as"),
        (
            |run| {
                let mut series = CrashPoints::not_run("sqlite", MACHINE_LOSS, Status::Ran, "");
                series.audit.promised = Some("sync".to_owned());
                run.crash_points.push(series);
            },
            "crash-points.jsonl audit.promised",
        ),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let found = found(change);
        let is_found = found.iter().any(|one| one == expected);
        assert!(is_found, "change {number}: {expected} is not in {found:?}");
    }
}

/// An arm of the plan.
fn arm<'a>(run: &'a mut Run, name: &str) -> &'a mut Arm {
    run.plan.arms.iter_mut().find(|arm| arm.name == name).unwrap()
}

/// Lets the first timed passes of an arm have a score of so many questions each.
fn ask(run: &mut Run, questions: &[u64]) {
    let passes = testing::passes(run, "micro/read", "sqlite").filter(|pass| !pass.warm_up);
    for (pass, of) in passes.zip(questions) {
        let counts = BTreeMap::from([("tokens".to_owned(), Score { sum: 7, of: *of })]);
        pass.scores.insert("search".to_owned(), counts);
    }
}

/// Divides the times of a workload's passes by a thousand.
fn in_microseconds(run: &mut Run, workload: &str) {
    let passes = run.samples.iter_mut().filter(|pass| pass.workload == workload);
    passes.for_each(|pass| testing::scale_pass(pass, 1e-3));
}

/// The calls of a timed pass.
fn calls(run: &mut Run) -> &mut Calls {
    run.samples[40].calls.values_mut().next().unwrap()
}

#[test]
fn one_call_that_a_histogram_lacks_or_moves_is_found() {
    let packed = |change: fn(&mut Histogram<u64>)| {
        found(|run| {
            let latencies = run.cells[2].latencies.values_mut().next().unwrap();
            let mut times = latencies.histogram().unwrap();
            change(&mut times);
            *latencies = Latencies::new(&times).unwrap();
        })
    };
    assert_eq!(packed(|_| {}), Vec::<String>::new());
    assert_eq!(packed(|times| times.record(5000).unwrap()), ["cells.jsonl latencies.read"]);
    let moved = packed(|times| {
        let slowest = times.max();
        times
            .subtract({
                let mut one = rundir::histogram();
                one.record(slowest).unwrap();
                one
            })
            .unwrap();
        times.record(10).unwrap();
    });
    assert_eq!(moved, ["cells.jsonl latencies.read"]);
}

#[test]
fn a_failed_pass_that_was_removed_leaves_a_gap_in_the_rounds_of_its_arm() {
    let mut run = run();
    // Of sqlite in round 3 of the first cell of epoch 1.
    let is_it = |pass: &Sample| (pass.epoch, pass.round, pass.arm.as_str()) == (1, 3, "sqlite");
    let failed = run.samples.iter().position(is_it).unwrap();
    run.samples.remove(failed);
    renumber(&mut run);
    let all = check_records(&run);
    let gap = all.iter().find(|one| one.field == "round").unwrap();
    assert!(gap.recomputed.contains("sqlite in round 3"), "{gap}");
    assert!(gap.row.contains("epoch 1"), "{gap}");
}

#[test]
fn rounds_that_a_slow_arm_skips_are_no_gap() {
    let rounds = |rounds: &[u32]| rounds.iter().copied().collect::<BTreeSet<u32>>();
    let all = rounds(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    for (own, stride, is_lost, expected) in [
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..], 1, false, None),
        (&[0, 1, 2, 4, 6, 8, 10, 12], 2, false, None),
        (&[0, 1, 2, 3, 6, 9, 12], 3, false, None),
        (&[0, 1, 4, 8, 12], 4, false, None),
        (&[0, 1, 4, 8, 12], 2, false, Some(2)),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 1, false, Some(12)),
        (&[0, 1, 2, 3], 1, true, None),
        (&[0, 1, 2, 3], 1, false, Some(4)),
        (&[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12], 1, false, Some(3)),
        (&[0, 1, 2, 4, 6, 10, 12], 2, false, Some(3)),
        (&[0, 1, 2, 4, 5], 1, true, Some(3)),
    ] {
        let found = missing_round(&all, &rounds(own), &[stride].into(), is_lost);
        assert_eq!(found, expected, "{own:?} every {stride}");
    }
}

#[test]
fn an_arm_skips_as_many_rounds_as_it_is_slower_in_the_first_timed_one() {
    let mut cell = Rounds::default();
    let passes = [("a", 1, 100), ("b", 1, 110), ("c", 1, 170), ("d", 1, 900), ("a", 2, 9000)];
    let passes =
        passes.map(|(arm, round, took_us)| Sample { arm: arm.to_owned(), round, took_us, ..Sample::default() });
    passes.iter().for_each(|pass| cell.note_first(pass));
    // The middle arm is c.
    for (arm, stride) in [("a", 1), ("b", 1), ("c", 1), ("d", 3)] {
        assert_eq!(cell.strides(arm), [stride].into(), "{arm}");
    }
    assert_eq!(cell.strides("e"), BTreeSet::new());
}

#[test]
fn a_missing_feature_or_fault_of_an_arm_is_found() {
    let found = |change: &dyn Fn(&mut Run)| {
        let mut run = run();
        run.plan.probed = [("tool".to_owned(), ["git", "ls", "vi"].map(str::to_owned).into())].into();
        run.probes.clear();
        run.plan.features = vec!["names: a".to_owned(), "links: b".to_owned(), "links: c".to_owned()];
        for arm in ["direct", "sqlite"] {
            for tool in ["git", "ls", "vi"] {
                run.probes.push(rundir::Probe::new("tool", tool, arm, Outcome::Ok, "works"));
            }
            for feature in run.plan.features.clone() {
                let probe = rundir::Probe::new(CONFORMANCE, &feature, arm, Outcome::Ok, "works");
                run.probes.push(probe);
            }
            for _ in 0..4 {
                let order = run.faults.len() as u64;
                let fault = testing::run().faults[0].clone();
                run.faults.push(rundir::Fault { arm: arm.to_owned(), order, ..fault });
            }
        }
        change(&mut run);
        check_records(&run)
    };
    assert_eq!(found(&|_| {}), []);
    let feature = found(&|run| drop(run.probes.remove(4)));
    assert!(feature[0].recomputed.contains("links: b"), "{feature:?}");
    assert_eq!(feature.len(), 1);
    // Of one arm, of all arms, and all but one of an arm.
    for (removed, count) in [
        ((|probe| probe.arm == "sqlite" && probe.name == "git") as fn(&rundir::Probe) -> bool, 1),
        (|probe| probe.name == "git", 2),
        (|probe| probe.aspect == "tool" && probe.name != "git", 4),
    ] {
        let tool = found(&|run| run.probes.retain(|probe| !removed(probe)));
        assert_eq!(tool.len(), count, "{tool:?}");
        assert!(tool.iter().all(|one| one.field == "name" && one.stated == "no line"), "{tool:?}");
    }
    // An aspect that failed as a whole has one line, and one that fits no arm of this kind has none.
    let whole = found(&|run| {
        run.probes.retain(|probe| probe.aspect != "tool");
        run.probes.push(rundir::Probe::new("tool", "all", "direct", Outcome::Infra, "no space"));
    });
    assert_eq!(whole, []);
    let fault = found(&|run| drop(run.faults.remove(5)));
    let fields: Vec<&str> = fault.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["order", "order", "lines"], "{fault:?}");
    let twice = found(&|run| run.probes.push(run.probes[0].clone()));
    assert_eq!((twice.len(), twice[0].file.as_str()), (1, "probes.jsonl"));
}
