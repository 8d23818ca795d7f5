//! Tests of a run in a scripted lab, whose cells return given results.

use std::collections::BTreeMap;
use std::path::Path;

use rundir::{Calls, CellEpoch, Looks};

use std::collections::BTreeSet;

use super::*;
use crate::lab::unfinished;
use crate::testing::{environment, plan};

/// The arguments of one measurement.
#[derive(Clone, Debug, PartialEq)]
struct MeasureArguments {
    epoch: u32,
    workload: String,
    arms: Vec<String>,
    slice: Duration,
}

/// A lab that returns two rounds for every cell at once, until it is interrupted.
struct ScriptedLab {
    asked: Vec<MeasureArguments>,
    /// The number of cells after which it is interrupted.
    until: usize,
    /// The time of an arm's calls by workload, arm and epoch, in nanoseconds.
    takes: fn(&str, &str, u32) -> u64,
    /// The duration of a cell by workload and epoch, and of an epoch.
    cell_ms: fn(&str, u32) -> u64,
    epoch_ms: u64,
    /// Whether an epoch is void.
    is_void: fn(u32) -> bool,
    /// The setup failure of every arm.
    setup: Option<String>,
}

impl Default for ScriptedLab {
    fn default() -> Self {
        Self {
            asked: Vec::new(),
            until: usize::MAX,
            takes: |_, _, _| 1000,
            cell_ms: |_, _| 4,
            epoch_ms: 10,
            is_void: |_| false,
            setup: None,
        }
    }
}

impl ScriptedLab {
    fn sample(&self, plan: &Plan, epoch: u32, cell: &PlannedCell, arm: usize, round: u32) -> Sample {
        let workload = &plan.workloads[cell.workload];
        let arm = &plan.arms[arm].name;
        // Rounds differ a little, as on a real machine.
        let took = (self.takes)(&workload.name, arm, epoch) + u64::from(round);
        let calls = Calls { count: 1, total_ns: took, p50_ns: took, p90_ns: took, max_ns: took };
        let outcome = self.setup.as_ref().map_or(Outcome::Ok, |_| Outcome::Setup);
        Sample {
            round,
            reason: self.setup.clone(),
            calls: BTreeMap::from([("stat".to_owned(), calls)]),
            makespan_ns: took,
            waited_ns: took,
            ..unfinished(plan, epoch, cell, arm, outcome, "")
        }
    }

    fn cell(&self, plan: &Plan, epoch: u32, cell: &PlannedCell, arm: usize) -> CellEpoch {
        let workload = &plan.workloads[cell.workload];
        CellEpoch {
            v: RUN_DIRECTORY_VERSION,
            epoch,
            arm: plan.arms[arm].name.clone(),
            workload: workload.name.clone(),
            state: workload.states[cell.state].clone(),
            took_ms: 4,
            timed_us: 700,
            ..CellEpoch::default()
        }
    }

    /// The arms that were measured in an epoch, by workload.
    fn in_epoch(&self, epoch: u32) -> BTreeMap<&str, &[String]> {
        let asked = self.asked.iter().filter(|asked| asked.epoch == epoch);
        asked.map(|asked| (asked.workload.as_str(), &asked.arms[..])).collect()
    }

    fn epochs(&self) -> BTreeSet<u32> {
        self.asked.iter().map(|asked| asked.epoch).collect()
    }
}

impl Lab for ScriptedLab {
    fn begin_epoch(&mut self, _: &Plan, _: &Section, turn: u32) -> anyhow::Result<Option<u32>> {
        Ok(Some(turn % 2))
    }

    fn measure(&mut self, plan: &Plan, epoch: u32, cell: &PlannedCell, slice: Duration) -> Option<CellResult> {
        if self.asked.len() == self.until {
            return None;
        }
        let arms = cell.arms.iter();
        self.asked.push(MeasureArguments {
            epoch,
            workload: plan.workloads[cell.workload].name.clone(),
            arms: arms.map(|arm| plan.arms[*arm].name.clone()).collect(),
            slice,
        });
        let mut result = CellResult {
            took: Duration::from_millis((self.cell_ms)(&plan.workloads[cell.workload].name, epoch)),
            ..CellResult::default()
        };
        for arm in &cell.arms {
            for round in 0..2 {
                let sample = self.sample(plan, epoch, cell, *arm, round);
                result.lines.push(Line::Sample(Box::new(sample)));
            }
            let cell = self.cell(plan, epoch, cell, *arm);
            result.lines.push(Line::Cell(Box::new(cell)));
        }
        Some(result)
    }

    fn end_epoch(&mut self, epoch: &mut Epoch) {
        epoch.took_ms = self.epoch_ms;
        epoch.void = (self.is_void)(epoch.epoch).then(|| "the machine slept".to_owned());
    }
}

struct SilentWatcher;

impl Watcher for SilentWatcher {
    fn epoch(&mut self, _: &Plan, _: &Section, _: u32, _: usize) {}
    fn begins(&mut self, _: &Plan, _: &PlannedCell) {}
    fn recorded(&mut self, _: &Sample) {}
    fn ends(&mut self) {}
}

/// Two cells of five arms, eight epochs.
fn two_cells() -> Plan {
    let mut plan = plan();
    let mut other = plan.workloads[0].clone();
    other.name = "micro/other".to_owned();
    let cells = &mut plan.schedule.sections[0].cells;
    cells.insert(other.name.clone(), other.states.clone());
    plan.workloads.push(other);
    plan
}

/// A section of `two_cells` that has only the second cell, with this budget and these epochs.
fn second_section(plan: &mut Plan, budget_ms: u64, epochs: u32) {
    let first = &mut plan.schedule.sections[0];
    let states = first.cells.remove("micro/other").unwrap();
    let cells = BTreeMap::from([("micro/other".to_owned(), states)]);
    let second =
        Section { name: "second".to_owned(), budget_ms, epochs, cells, looks: Looks::at_end(epochs), ..first.clone() };
    plan.schedule.sections.push(second);
}

/// Runs `plan` in `dir`, or resumes the run in `dir`.
fn go(dir: &Path, plan: &Plan, lab: &mut ScriptedLab) -> RunEnd {
    let (writer, before) = if dir.join("plan.toml").exists() {
        let (writer, run) = Writer::resume(dir).unwrap();
        (writer, Some(run))
    } else {
        let writer = Writer::create(dir, plan, &environment(), None, &[]).unwrap();
        (writer, None)
    };
    let never = Interrupt::never();
    Runner::new(plan, &writer, &never, before).run(lab, &mut SilentWatcher)
}

/// Runs `plan` to its end in a directory of its own.
fn complete(plan: &Plan, lab: &mut ScriptedLab) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let ended = go(dir.path(), plan, lab);
    assert!(matches!(ended, RunEnd::Complete), "{ended:?}");
    Run::read(dir.path()).unwrap()
}

/// `sqlite` is better in one epoch and worse in the next, so its cell is never decided.
fn wavering(arm: &str, epoch: u32) -> u64 {
    match (arm, epoch % 2) {
        ("sqlite", 0) => 500_000,
        ("sqlite", _) => 2_000_000,
        _ => 1_000_000,
    }
}

#[test]
fn a_cell_is_in_every_epoch_however_clear_its_figures_are() {
    let mut lab = ScriptedLab {
        takes: |workload, arm, epoch| match (workload, arm) {
            ("micro/stat", "direct" | "direct-again") => 1_000_000,
            ("micro/stat", _) => 3_000_000,
            _ => wavering(arm, epoch),
        },
        ..ScriptedLab::default()
    };
    let plan = two_cells();
    let run = complete(&plan, &mut lab);
    assert_eq!(lab.epochs(), (0..8).collect());
    let all: Vec<String> = plan.arms.iter().map(|arm| arm.name.clone()).collect();
    for epoch in 0..8 {
        let expected = BTreeMap::from([("micro/stat", &all[..]), ("micro/other", &all[..])]);
        assert_eq!(lab.in_epoch(epoch), expected, "epoch {epoch}");
    }
    assert_eq!(run.samples.len(), 2 * 8 * 2 * 5);
    assert_eq!(run.cells.len(), 8 * 2 * 5);
    let orders: Vec<u64> = run.samples.iter().map(|sample| sample.order).collect();
    assert_eq!(orders, (0..run.samples.len() as u64).collect::<Vec<_>>());
    assert_eq!(run.epochs.len(), 8);
    let first = &run.epochs[0];
    assert_eq!((first.cells, first.cpu, first.hot_ms), (2, Some(0), 8));
    // 700 µs an arm and cell.
    assert_eq!(first.hot_timed_ms, 7);
}

#[test]
fn the_budget_ends_a_run_but_never_before_three_sound_epochs() {
    let epochs = |budget_ms, is_void| {
        let mut plan = two_cells();
        plan.schedule.sections[0].budget_ms = budget_ms;
        let mut lab = ScriptedLab {
            takes: |_, arm, epoch| wavering(arm, epoch),
            epoch_ms: 400,
            is_void,
            ..ScriptedLab::default()
        };
        complete(&plan, &mut lab);
        (lab.epochs().len(), lab.asked)
    };
    let (made, asked) = epochs(1, |_| false);
    assert_eq!(made, 3);
    let slices: Duration = asked.iter().map(|asked| asked.slice).sum();
    assert!(slices <= Duration::from_millis(1), "{slices:?}");
    // The budget is 5.25 epochs: less than half an epoch remains for the sixth.
    assert_eq!(epochs(2_100, |_| false).0, 5);
    assert_eq!(epochs(60_000, |_| false).0, 8);
    assert_eq!(epochs(1, |epoch| epoch == 1).0, 4, "one of them is void");
}

#[test]
fn a_cell_that_takes_more_than_its_part_takes_nothing_from_the_other() {
    let mut plan = two_cells();
    plan.schedule.sections[0].budget_ms = 8_000;
    let slices = |cell_ms: fn(&str, u32) -> u64, epoch_ms| {
        let mut lab =
            ScriptedLab { cell_ms, epoch_ms, takes: |_, arm, epoch| wavering(arm, epoch), ..ScriptedLab::default() };
        complete(&plan, &mut lab);
        let other = lab.asked.iter().filter(|asked| asked.workload == "micro/other");
        let slices = other.map(|asked| asked.slice.as_millis());
        slices.collect::<Vec<_>>()
    };
    // One second for each epoch, half of it for each cell.
    assert_eq!(slices(|_, _| 500, 1_000), [500; 8]);
    // The first cell takes the budget of three epochs in each: there are fewer epochs, and the second cell keeps half of its
    // part in each of them.
    let greedy: fn(&str, u32) -> u64 = |workload, _| if workload == "micro/stat" { 2_900 } else { 300 };
    assert_eq!(slices(greedy, 3_200), [500, 342, 250]);
}

#[test]
fn a_cell_ends_in_time_although_its_last_round_and_unmounts_follow_its_slice() {
    /// A lab whose cells end 40 ms after their slice.
    struct LateLab(ScriptedLab);
    impl Lab for LateLab {
        fn begin_epoch(&mut self, plan: &Plan, section: &Section, turn: u32) -> anyhow::Result<Option<u32>> {
            self.0.begin_epoch(plan, section, turn)
        }
        fn measure(&mut self, plan: &Plan, epoch: u32, cell: &PlannedCell, slice: Duration) -> Option<CellResult> {
            let result = self.0.measure(plan, epoch, cell, slice)?;
            Some(CellResult { took: slice + Duration::from_millis(40), ..result })
        }
        fn end_epoch(&mut self, epoch: &mut Epoch) {
            let asked = self.0.asked.iter().filter(|asked| asked.epoch == epoch.epoch);
            let took = asked.map(|asked| asked.slice.as_millis() as u64 + 40);
            self.0.epoch_ms = took.sum();
            self.0.end_epoch(epoch);
        }
    }
    let mut plan = two_cells();
    plan.schedule.sections[0].budget_ms = 3_200;
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &plan, &environment(), None, &[]).unwrap();
    let mut lab = LateLab(ScriptedLab::default());
    let never = Interrupt::never();
    let ended = Runner::new(&plan, &writer, &never, None).run(&mut lab, &mut SilentWatcher);
    assert!(matches!(ended, RunEnd::Complete), "{ended:?}");
    let asked = lab.0.asked.iter().filter(|asked| asked.workload == "micro/stat");
    let slices: Vec<u128> = asked.map(|asked| asked.slice.as_millis()).collect();
    // Half of 400 ms for each cell. The overruns of the first epoch are spread over the others.
    assert_eq!(slices[0], 200);
    assert!(slices[1..].iter().all(|slice| (154..=155).contains(slice)), "{slices:?}");
    let took: u64 = Run::read(dir.path()).unwrap().epochs.iter().map(|epoch| epoch.took_ms).sum();
    assert!((3_190..=3_200).contains(&took), "{took}");
}

#[test]
fn a_cell_that_took_too_long_in_one_epoch_has_its_whole_slice_in_the_others() {
    let slices = |cell_ms: fn(&str, u32) -> u64, is_void| {
        let mut plan = two_cells();
        plan.schedule.sections[0].budget_ms = 8_000;
        let mut lab = ScriptedLab { cell_ms, is_void, epoch_ms: 1, ..ScriptedLab::default() };
        complete(&plan, &mut lab);
        let asked = lab.asked.iter().filter(|asked| asked.epoch >= 2 && asked.workload == "micro/stat");
        let slices: Vec<Duration> = asked.map(|asked| asked.slice).collect();
        slices
    };
    // A call hangs in the second epoch.
    let whole = slices(|_, _| 0, |_| false);
    assert_eq!(slices(|_, epoch| if epoch == 1 { 60_000 } else { 0 }, |_| false), whole);
    // The machine sleeps in the first two epochs.
    let is_void = |epoch| epoch < 2;
    let whole = slices(|_, _| 0, is_void);
    assert_eq!(slices(|_, epoch| if epoch < 2 { 60_000 } else { 0 }, is_void), whole);
}

#[test]
fn no_section_takes_the_budget_of_another() {
    let budgets = |first_ms: u64| {
        let mut plan = two_cells();
        plan.schedule.sections[0].budget_ms = first_ms;
        second_section(&mut plan, 10_000, 10);
        let mut lab =
            ScriptedLab { takes: |_, arm, epoch| wavering(arm, epoch / 2), epoch_ms: 1_000, ..ScriptedLab::default() };
        let run = complete(&plan, &mut lab);
        let of = |name: &str| run.epochs.iter().filter(|epoch| epoch.section == name).count();
        let second = lab.asked.iter().filter(|asked| asked.workload == "micro/other");
        let slices: Vec<u128> = second.map(|asked| asked.slice.as_millis()).collect();
        (of("all"), of("second"), slices)
    };
    let with_enough = budgets(8_000);
    assert_eq!((with_enough.0, with_enough.1), (8, 10));
    // The first section has a budget for a fraction of its epochs only.
    let with_little = budgets(100);
    assert_eq!((with_little.0, with_little.1), (3, 10));
    assert_eq!(with_little.2, with_enough.2);
}

#[test]
fn a_void_epoch_of_one_section_is_repeated_there_alone() {
    let mut plan = two_cells();
    second_section(&mut plan, 10_000, 8);
    let mut lab = ScriptedLab {
        takes: |_, arm, epoch| wavering(arm, epoch / 2),
        is_void: |epoch| epoch == 2,
        ..ScriptedLab::default()
    };
    let run = complete(&plan, &mut lab);
    let of = |name: &str| run.epochs.iter().filter(|epoch| epoch.section == name).count();
    assert_eq!(run.epochs[2].section, "all");
    assert_eq!((of("all"), of("second")), (9, 8));
}

#[test]
fn a_run_interrupted_in_one_section_keeps_the_other_and_resumes_both() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("run");
    let mut plan = two_cells();
    second_section(&mut plan, 240_000, 4);
    let lab = |until| ScriptedLab { until, takes: |_, arm, epoch| wavering(arm, epoch / 2), ..ScriptedLab::default() };
    // Two epochs of the first section and one of the second.
    assert!(matches!(go(&dir, &plan, &mut lab(3)), RunEnd::Interrupted));
    let before = Run::read(&dir).unwrap();
    let sections: Vec<&str> = before.epochs.iter().map(|epoch| &*epoch.section).collect();
    assert_eq!(sections, ["all", "second", "all"]);
    assert!(matches!(go(&dir, &plan, &mut lab(usize::MAX)), RunEnd::Complete));
    let after = Run::read(&dir).unwrap();
    assert_eq!(after.samples[..before.samples.len()], before.samples[..]);
    let of = |name: &str| after.epochs.iter().filter(|epoch| epoch.section == name).count();
    assert_eq!((of("all"), of("second")), (8, 4));
}

#[test]
fn a_run_repeats_void_epochs_up_to_a_limit() {
    let mut lab = ScriptedLab {
        takes: |_, arm, epoch| wavering(arm, epoch / 2),
        is_void: |epoch| epoch % 2 == 0 && epoch < 6,
        ..ScriptedLab::default()
    };
    let run = complete(&two_cells(), &mut lab);
    assert_eq!(lab.epochs(), (0..11).collect());
    let void = run.epochs.iter().filter(|epoch| epoch.void.is_some());
    let void: Vec<u32> = void.map(|epoch| epoch.epoch).collect();
    assert_eq!(void, [0, 2, 4]);

    let mut sleeping = ScriptedLab { is_void: |_| true, ..ScriptedLab::default() };
    complete(&two_cells(), &mut sleeping);
    assert_eq!(sleeping.epochs().len(), 5);
}

#[test]
fn an_interrupted_run_is_readable_and_resumes_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("run");
    let plan = two_cells();
    let lab = |until| ScriptedLab { until, takes: |_, arm, epoch| wavering(arm, epoch), ..ScriptedLab::default() };
    // Two epochs and a half.
    let ended = go(&dir, &plan, &mut lab(5));
    assert!(matches!(ended, RunEnd::Interrupted));
    let before = Run::read(&dir).unwrap();
    assert_eq!((before.samples.len(), before.epochs.len()), (50, 2));

    // A kill during a write leaves half a line.
    for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl"] {
        let file = dir.join(name);
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("{\"v\":2,\"epoch\":0,\"ord");
        std::fs::write(&file, text).unwrap();
    }
    let read = Run::read(&dir).unwrap();
    assert_eq!((read.samples, read.epochs), (before.samples.clone(), before.epochs));

    let mut rest = lab(usize::MAX);
    assert!(matches!(go(&dir, &plan, &mut rest), RunEnd::Complete));
    // The half epoch stays recorded, and six whole ones follow.
    assert_eq!(rest.epochs(), (3..9).collect());
    let after = Run::read(&dir).unwrap();
    assert_eq!(after.samples[..50], before.samples[..]);
    let orders: Vec<u64> = after.samples.iter().map(|sample| sample.order).collect();
    assert_eq!(orders, (0..after.samples.len() as u64).collect::<Vec<_>>());
    let epochs: Vec<u32> = after.epochs.iter().map(|epoch| epoch.epoch).collect();
    assert_eq!(epochs, [0, 1, 3, 4, 5, 6, 7, 8]);

    let mut none = lab(usize::MAX);
    assert!(matches!(go(&dir, &plan, &mut none), RunEnd::Complete));
    assert_eq!(none.asked, []);
}

#[test]
fn a_run_interrupted_in_every_epoch_still_completes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("run");
    let mut plan = two_cells();
    plan.schedule.sections[0].epochs = 3;
    plan.schedule.sections[0].looks = Looks::at_end(3);
    for _ in 0..7 {
        let mut lab = ScriptedLab { until: 1, ..ScriptedLab::default() };
        assert!(matches!(go(&dir, &plan, &mut lab), RunEnd::Interrupted));
    }
    let mut lab = ScriptedLab::default();
    assert!(matches!(go(&dir, &plan, &mut lab), RunEnd::Complete));
    assert_eq!(lab.epochs(), (7..10).collect());
}

#[test]
fn an_interrupted_run_begins_no_cell() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    let writer = Writer::create(dir.path(), &plan, &environment(), None, &[]).unwrap();
    let set = Interrupt::of(std::sync::Arc::new(true.into()));
    let mut lab = ScriptedLab::default();
    let ended = Runner::new(&plan, &writer, &set, None).run(&mut lab, &mut SilentWatcher);
    assert!(matches!(ended, RunEnd::Interrupted));
    assert_eq!(lab.asked, []);
}

#[test]
fn the_writer_does_not_overwrite_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let create = || Writer::create(dir.path(), &plan(), &environment(), Some("text"), &[]);
    create().unwrap();
    let before = std::fs::read(dir.path().join("plan.toml")).unwrap();
    assert!(create().is_err());
    assert_eq!(std::fs::read(dir.path().join("plan.toml")).unwrap(), before);
}

#[test]
fn a_failed_write_of_results_ends_the_run() {
    for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl"] {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path(), &plan(), &environment(), None, &[]).unwrap();
        // A directory in place of the file: no line can be appended.
        std::fs::create_dir(dir.path().join(name)).unwrap();
        let mut lab = ScriptedLab::default();
        let (plan, never) = (plan(), Interrupt::never());
        let ended = Runner::new(&plan, &writer, &never, None).run(&mut lab, &mut SilentWatcher);
        assert!(matches!(ended, RunEnd::CannotRecord(_)), "{name}: {ended:?}");
        assert_eq!(lab.asked.len(), 1, "{name}");
    }
}

#[test]
fn a_full_scratch_ends_the_run_and_another_setup_failure_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let full = format!("preparing the workspace: write a: {}", Errno::NOSPC);
    let mut lab = ScriptedLab { setup: Some(full.clone()), ..ScriptedLab::default() };
    let ended = go(dir.path(), &two_cells(), &mut lab);
    assert!(matches!(ended, RunEnd::ScratchFull(reason) if reason == full));
    assert_eq!(lab.asked.len(), 1);

    let mut lab = ScriptedLab {
        setup: Some("preparing the workspace: the daemon did not mount".to_owned()),
        ..ScriptedLab::default()
    };
    complete(&two_cells(), &mut lab);
}

#[test]
fn a_reader_refuses_another_schema_version() {
    for (name, version, other) in [
        ("plan.toml", "schema = 4", "schema = 7"),
        ("env.json", "\"schema\": 4", "\"schema\": 7"),
        ("samples.jsonl", "\"v\":4", "\"v\":7"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut lab = ScriptedLab { until: 1, ..ScriptedLab::default() };
        go(dir.path(), &plan(), &mut lab);
        let file = dir.path().join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen(version, other, 1)).unwrap();
        let error = Run::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("schema version 7; this ctxbench reads version 4"), "{name}: {error}");
        assert!(Writer::resume(dir.path()).is_err(), "{name}");
    }
}
