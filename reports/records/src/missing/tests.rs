use std::fs;
use std::path::Path;

use rundir::faults::{CrashMethod, CrashPoints, KILLED_DAEMON, POWER_LOSS, Status};
use rundir::{Fault, MergedShard, Outcome, PlannedPolicy, Probe, RECORDS, RecordCounts, Writer};

use super::*;
use crate::check_records;
use crate::tests::run;
use figures::conformance::CONFORMANCE;
use figures::context::contexts;
use figures::prices::Prices;
use figures::summary::summarise;
use figures::testing;
use verdicts::decide::{Evidence, Policy, PolicyVerdict, built_in, decide, find};

/// A whole run with kills, crash points and a policy.
fn whole() -> Run {
    let mut run = run();
    let kill = testing::run().faults[0].clone();
    for arm in ["direct", "sqlite"] {
        for _ in 0..4 {
            let order = run.faults.len() as u64;
            run.faults.push(Fault { arm: arm.to_owned(), order, recovered: true, ..kill.clone() });
        }
        let losses = [(KILLED_DAEMON, CrashMethod::Kill), (POWER_LOSS, CrashMethod::SimulatedFiles)].into_iter();
        run.crash_points.extend(losses.map(|(loss, method)| CrashPoints {
            method: Some(method),
            ..CrashPoints::not_run(arm, loss, Status::Ran, "it ended")
        }));
    }
    run.plan.features = vec!["names: a".to_owned(), "links: b".to_owned(), "links: c".to_owned()];
    let probes = run.plan.features.iter().map(|name| Probe::new(CONFORMANCE, name, "direct", Outcome::Ok, ""));
    run.probes.extend(probes);
    let text = "name = 'x'\n".to_owned();
    let sha256 = verdicts::decide::identity(&text);
    run.plan.policy = Some(PlannedPolicy { name: "x".to_owned(), sha256 });
    run.policy = Some(text);
    run
}

#[test]
fn a_whole_run_lacks_no_record() {
    assert_eq!(check_records(&whole()), []);
    assert_eq!(check_records(&Run::default()), []);
}

#[test]
fn a_file_that_was_cut_off_at_any_line_is_noticed() {
    let noticed = |what: &str, change: &dyn Fn(&mut Run)| {
        let mut run = whole();
        change(&mut run);
        assert!(!check_records(&run).is_empty(), "{what}");
    };
    let all = whole();
    for left in (0..all.samples.len()).step_by(5).chain([all.samples.len() - 1]) {
        noticed(&format!("{left} passes"), &|run| run.samples.truncate(left));
    }
    for left in 0..all.cells.len() {
        noticed(&format!("{left} cells"), &|run| run.cells.truncate(left));
    }
    for left in 0..all.epochs.len() {
        noticed(&format!("{left} epochs"), &|run| run.epochs.truncate(left));
    }
    // An arm has all of its probes, or none.
    noticed("two probes", &|run| run.probes.truncate(2));
    noticed("a kill", &|run| drop(run.faults.remove(2)));
    noticed("no policy", &|run| run.policy = None);
    noticed("half a policy", &|run| run.policy.as_mut().unwrap().truncate(4));
}

#[test]
fn all_passes_of_an_arm_that_were_removed_from_a_cell_are_missed() {
    let mut run = whole();
    let is_gone = |arm: &str, epoch: u32| arm == "sqlite" && epoch == 2;
    run.samples.retain(|pass| !is_gone(&pass.arm, pass.epoch));
    run.cells.retain(|cell| !is_gone(&cell.arm, cell.epoch));
    for (order, pass) in (0..).zip(&mut run.samples) {
        pass.order = order;
    }
    let found = check_records(&run);
    let is_named = |one: &Discrepancy| one.file == SAMPLES && one.recomputed.contains("sqlite");
    assert!(found.iter().any(is_named), "{found:?}");
}

/// A run without probes, kills and files of a model, whose last epoch has no line.
fn killed() -> Run {
    let mut run =
        Run { probes: Vec::new(), faults: Vec::new(), crash_points: Vec::new(), model_files: None, ..whole() };
    run.epochs.pop();
    run
}

#[test]
fn a_run_that_was_killed_before_the_line_of_its_last_epoch_is_a_smaller_run() {
    let run = killed();
    assert_eq!(check_records(&run), []);
    let health = summarise(&run).unwrap().health;
    assert_eq!(health.epochs, run.epochs.len());
    // Resumed, it measures another epoch, and its clock begins again.
    let mut resumed = whole();
    let last = resumed.epochs.remove(1).epoch;
    let at = resumed.samples.iter().position(|pass| pass.epoch > last).unwrap();
    let began = resumed.samples[at].started_ms;
    let has_gone_on = check_records(&resumed);
    assert_eq!(has_gone_on.len(), 1, "{has_gone_on:?}");
    resumed.samples[at..].iter_mut().for_each(|pass| pass.started_ms -= began);
    assert_eq!(check_records(&resumed), []);
    // Anything that follows the last epoch shows that the process went on.
    let follows: [fn(&mut Run); 4] = [
        |run| run.probes = whole().probes,
        |run| run.faults = whole().faults,
        |run| run.crash_points = whole().crash_points,
        |run| run.model_files = whole().model_files,
    ];
    for follow in follows {
        let mut run = killed();
        follow(&mut run);
        let found = check_records(&run);
        assert_eq!((found.len(), found[0].file.as_str()), (1, EPOCHS), "{found:?}");
    }
    // Only whole shards are merged.
    let mut merged = killed();
    merged.plan.merged = vec![MergedShard { first_epoch: 0, ..MergedShard::default() }];
    assert_eq!(check_records(&merged).len(), 1);
}

#[test]
fn an_interrupted_run_lacks_no_record() {
    // In the last cell, in the middle of writing its lines.
    for (passes, cells) in [(0, 0), (1, 0), (9, 0), (21, 0), (21, 1), (21, 2)] {
        let mut run = whole();
        let last = run.epochs.pop().unwrap().epoch;
        let is_last = |epoch: u32, workload: &str| epoch == last && workload == run.plan.workloads[1].name;
        let (mut passes_left, mut cells_left) = (passes, cells);
        let is_left = |left: &mut usize, is_last: bool| {
            let is_kept = !is_last || *left > 0;
            *left = left.saturating_sub(usize::from(is_last));
            is_kept
        };
        run.samples.retain(|pass| is_left(&mut passes_left, is_last(pass.epoch, &pass.workload)));
        run.cells.retain(|cell| is_left(&mut cells_left, is_last(cell.epoch, &cell.workload)));
        assert_eq!(check_records(&run), [], "{passes} {cells}");
    }
    // Between the kills of two arms.
    let mut run = whole();
    run.faults.truncate(4);
    run.crash_points.clear();
    assert_eq!(check_records(&run), []);
}

/// The decided verdicts by all built-in policies: policy, candidate and verdict. An error if the run is refused.
fn decided(dir: &Path) -> Result<BTreeSet<[String; 3]>, String> {
    let run = Run::read(dir).map_err(|error| error.to_string())?;
    if let Some(first) = check_records(&run).first() {
        return Err(first.to_string());
    }
    let summary = summarise(&run)?;
    let contexts = contexts(&run, &Prices::built_in().unwrap())?;
    let mut decided = BTreeSet::new();
    for name in built_in() {
        let (file, text) = find(&name).unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        let decisions = decide(&policy, &text, &Evidence::of(&run, &summary, &contexts)).into_iter();
        let decisions = decisions.filter(|decision| decision.verdict != PolicyVerdict::NotDecided);
        let verdict = |verdict: PolicyVerdict| verdict.name().to_owned();
        decided.extend(decisions.map(|one| [one.policy, one.candidate, verdict(one.verdict)]));
    }
    Ok(decided)
}

#[test]
fn a_truncated_file_of_a_run_decides_nothing_that_the_whole_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = whole();
    let writer = Writer::create(dir, &run.plan, &run.environment, run.policy.as_deref(), &run.contexts).unwrap();
    writer.append(&run, &mut RecordCounts::default()).unwrap();
    drop(writer);
    let of_whole = decided(dir).unwrap();
    let (mut refused, mut accepted) = (0, 0);
    for name in RECORDS {
        let file = dir.join(name);
        // The scripted run injects no fault.
        let Ok(bytes) = fs::read(&file) else { continue };
        let ends: Vec<usize> = (1..=bytes.len()).filter(|end| bytes[end - 1] == b'\n').collect();
        let lines = ends.len();
        let mut lengths: BTreeSet<usize> = [lines / 4, lines / 2, lines * 3 / 4, lines.saturating_sub(2)]
            .into_iter()
            .filter_map(|at| ends.get(at).copied())
            .collect();
        lengths.extend([0, bytes.len() / 2, bytes.len() - 2]);
        for length in lengths.into_iter().filter(|length| *length < bytes.len()) {
            fs::write(&file, &bytes[..length]).unwrap();
            match decided(dir) {
                Err(_) => refused += 1,
                Ok(found) => {
                    accepted += 1;
                    let more: Vec<_> = found.difference(&of_whole).collect();
                    assert!(more.is_empty(), "{name} with {length} of {} bytes: {more:?}", bytes.len());
                }
            }
        }
        fs::remove_file(&file).unwrap();
        if let Ok(found) = decided(dir) {
            assert!(found.is_subset(&of_whole), "without {name}: {found:?}");
        }
        fs::write(&file, bytes).unwrap();
    }
    assert_eq!(decided(dir).unwrap(), of_whole);
    assert!(refused > accepted, "{refused} {accepted}");
}
