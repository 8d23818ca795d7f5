//! Decisions on constructed evidence: every policy reaches its verdicts, and wrong data bars adoption.

mod bounds;
mod cases;
mod failed;
mod golden;
mod planted;

use std::collections::BTreeMap;
use std::path::Path;

use rundir::faults::{CrashPoints, FaultOutcome, Recovery, Return, Status};
use rundir::{ModelFilesPlan, Outcome, Plan, Run, Shard};

use self::cases::{Change, cases};
use super::policy::Candidates;
use super::rows::RowEffect;
use super::sources::Standing;
use super::verdict::PolicyVerdict::{Adopt, AdoptIf, Archive, NotDecided};
use super::verdict::{Flip, MovedEnd};
use super::*;
use crate::testing::evidence::{self, UNKNOWN_FIGURES, coding, cron, kills, memory, probe, roaming, slow};
use figures::context::contexts;
use figures::evidence::RunEvidence;
use figures::prices::Prices;
use figures::provenance::Provenance;
use figures::summary::summarise;
use figures::testing;

/// The decisions of a policy's text on a run.
fn decisions_of_text(text: &str, run: &Run) -> Vec<Decision> {
    let policy = Policy::parse(Path::new("p.toml"), text).unwrap();
    let summary = summarise(run).unwrap();
    let contexts = contexts(run, &Prices::built_in().unwrap()).unwrap();
    decide(&policy, text, &Evidence::of(run, &summary, &contexts))
}

/// The decision of a policy's text on a candidate of a run.
fn of_text(text: &str, run: &Run, candidate: &str) -> Decision {
    let mut all = decisions_of_text(text, run).into_iter();
    all.find(|decision| decision.candidate == candidate)
        .unwrap_or_else(|| panic!("the policy does not fit {candidate}"))
}

fn of(policy: &str, run: &Run, candidate: &str) -> Decision {
    of_text(&find(policy).unwrap().1, run, candidate)
}

/// The run whose candidate is adopted, and all its changes.
fn runs(make: fn() -> Run, changes: Vec<Change>) -> impl Iterator<Item = Run> {
    let changed = changes.into_iter().map(move |(_, _, change)| {
        let mut run = make();
        change(&mut run);
        run
    });
    std::iter::once(make()).chain(changed)
}

fn row<'a>(decision: &'a Decision, title: &str) -> &'a Row {
    let mut rows = decision.rows.iter();
    rows.find(|row| row.title == title).unwrap()
}

#[test]
fn every_policy_reaches_its_verdicts() {
    let mut decided = Vec::new();
    for (policy, candidate, make, changes) in cases() {
        decided.push(policy.to_owned());
        let good = of(policy, &make(), candidate);
        // A property of a mount is a reason for teams that need it.
        let expected = if policy == "coding-agent" { AdoptIf } else { Adopt };
        assert_eq!(good.verdict, expected, "{policy}: {}\n{:#?}", good.why, good.rows);
        let mut reached = BTreeMap::from([(expected, 1)]);
        for (verdict, what, change) in changes {
            let mut run = make();
            change(&mut run);
            let found = of(policy, &run, candidate);
            assert_eq!(found.verdict, verdict, "{policy}: {what}: {}\n{:#?}", found.why, found.rows);
            *reached.entry(verdict).or_default() += 1;
            assert_eq!(!found.conditions.is_empty(), verdict == AdoptIf, "{policy}: {what}");
        }
        assert_eq!(reached.len(), 4, "{policy}: {reached:?}");
    }
    decided.sort();
    assert_eq!(decided, built_in());
}

#[test]
fn every_benefit_can_be_won_and_every_cost_lost() {
    let mut won: BTreeMap<(String, String), [bool; 2]> = BTreeMap::new();
    for (policy, candidate, make, changes) in cases() {
        for run in runs(make, changes) {
            for row in of(policy, &run, candidate).rows {
                let [is_won, is_lost] = won.entry((policy.to_owned(), row.title)).or_default();
                *is_won |= matches!(row.state, RowState::Met | RowState::Conditional);
                *is_lost |= row.state == RowState::Unmet;
            }
        }
    }
    let mut one_sided = Vec::new();
    for name in built_in() {
        let (file, text) = find(&name).unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        for row in policy.rows().into_iter().flat_map(|(_, rows)| rows) {
            // A declared row keeps no bound and breaks none.
            let decides = !row.measure.is_declared();
            if won[&(name.clone(), row.title.clone())] != [decides, decides] {
                one_sided.push(format!("{name}: {}", row.title));
            }
        }
    }
    assert_eq!(one_sided, Vec::<String>::new());
}

#[test]
fn forty_wrong_passes_archive_a_candidate_that_wins_its_rows() {
    for (policy, candidate, make, _) in cases() {
        // What a language model makes up and a context policy have no passes.
        if candidate.starts_with("llm-") || policy == "long-context" {
            continue;
        }
        for wrong in
            [Outcome::WrongData, Outcome::Crash, Outcome::Hang, Outcome::Setup, Outcome::Errno, Outcome::Timeout]
        {
            let mut run = make();
            let passes = run.samples.iter_mut();
            let passes = passes.filter(|pass| pass.arm == candidate);
            passes.take(40).for_each(|pass| pass.outcome = wrong);
            let found = of(policy, &run, candidate);
            assert_eq!(found.verdict, Archive, "{policy}");
            assert!(found.rows[0].candidate.starts_with("40 "), "{}", found.rows[0].candidate);
            assert!(found.why.starts_with("Failed passes"), "{}", found.why);
        }
    }
}

#[test]
fn the_named_flip_really_flips() {
    for (policy, candidate, make, changes) in cases() {
        for run in runs(make, changes) {
            let found = of(policy, &run, candidate);
            let Some(flip) = &found.flip else { continue };
            let mut rows = found.rows.clone();
            let row = rows.iter_mut().find(|row| row.title == flip.row).unwrap();
            let effect = row.effect.unwrap();
            let shift = flip.to - flip.from;
            if flip.is_bound {
                row.bound.value = flip.to
            } else {
                row.effect =
                    Some(RowEffect { value: effect.value + shift, low: effect.low + shift, high: effect.high + shift });
            }
            // A shifted interval may end beside the bound by a rounding error.
            let nudged = |by: f64| {
                let mut rows = rows.clone();
                let row = rows.iter_mut().find(|row| row.title == flip.row).unwrap();
                row.bound.value += by;
                row.state = row.state_at(&row.bound, &row.effect.unwrap());
                conclude(&rows, found.benefits_needed).0
            };
            let reached = [0.0, 1e-9, -1e-9].map(nudged);
            assert!(reached.contains(&flip.becomes), "{policy}: {}: {reached:?}", flip.condition());
            if let Some(end) = flip.end {
                let beside = (end.to - flip.bound).abs();
                assert!(
                    beside <= (flip.bound.abs() * 1e-3).max(1e-9) * 1.001,
                    "{policy}: {}: {end:?}",
                    flip.condition()
                );
            }
            assert_ne!(flip.becomes, found.verdict);
        }
    }
}

#[test]
fn a_flip_of_a_count_names_the_next_whole_number() {
    let mut run = coding();
    run.probes.retain(|probe| probe.name != "grep");
    for tool in ["a", "b", "c"] {
        probe(&mut run, "tool", tool, "sqlite", Outcome::Errno);
    }
    let found = of("coding-agent", &run, "sqlite");
    let flip = found.flip.unwrap();
    assert_eq!((flip.row.as_str(), flip.becomes), ("Common tools that fail", AdoptIf));
    assert!([(true, 0.0, 3.0), (false, 3.0, 0.0)].contains(&(flip.is_bound, flip.from, flip.to)));
}

#[test]
fn a_declared_figure_is_printed_and_decides_nothing() {
    let mut run = coding();
    let burden = |run: &Run| row(&of("coding-agent", run, "sqlite"), "What must be installed and run").clone();
    let found = burden(&run);
    assert_eq!(
        (found.state, found.provenance, found.effect, found.gap),
        (RowState::Declared, Provenance::Declared, None, None)
    );
    assert!(found.candidate.contains("1 process, 1 mount"), "{}", found.candidate);
    // Nor does what they do not say.
    let backend = &mut run.plan.arms[2].backend;
    backend.file = Some("theirs.toml".to_owned());
    (backend.needs, backend.daemons) = (Vec::new(), 90);
    let found = burden(&run);
    assert_eq!(found.state, RowState::Declared);
    let unknown = "no evidence: dependencies of sqlite (beside 90 processes, 1 mount)";
    assert_eq!(found.candidate, unknown);
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, AdoptIf);
}

#[test]
fn every_figure_has_the_mark_of_its_origin() {
    let title = "Power cuts that lose a record";
    let cut = row(&of("coding-agent", &coding(), "sqlite"), title).clone();
    assert_eq!(cut.provenance, Provenance::Simulated);
    assert!(cut.figure().starts_with("◐ 0 %"), "{}", cut.figure());
    for decision in crate::testing::decisions() {
        for row in &decision.rows {
            let figure = row.figure();
            let mark = row.provenance.mark();
            assert!(figure.is_empty() || figure.starts_with(mark), "{figure}");
            let is_declared = row.state == RowState::Declared;
            let is_marked = row.candidate.starts_with("○ ");
            let is_missing = row.candidate.starts_with("no evidence");
            assert_eq!(is_declared, is_marked || (is_declared && is_missing));
        }
    }
    // Behind an injected distance every time is simulated.
    let mut run = coding();
    testing::rename_arm(&mut run, "sqlite", "sqlite@30ms");
    let found = of("coding-agent", &run, "sqlite@30ms");
    let session = row(&found, "Wait for replayed file calls of a session");
    assert!(session.figure().starts_with("◐ "), "{}", session.figure());
}

#[test]
fn a_context_policy_is_simulated_because_it_adds_calls_to_a_session() {
    let found = of("long-context", &evidence::long_context(), "evict");
    for title in ["Largest prompt", "Dollars", "Dollars in a session that reads"] {
        let figure = row(&found, title).figure();
        assert!(figure.starts_with("◐ "), "{title}: {figure}");
    }
    // The delay of copies on a schedule is computed: no run waits for one.
    let found = of("roaming-agents", &roaming(), "sqlite");
    let delay = row(&found, "Median time until the other host has read a note");
    assert!(delay.figure().starts_with("∑ ×0.0"), "{}", delay.figure());
    assert!(delay.baseline.starts_with("30.0 s: half of the 60 s between copies, and "), "{}", delay.baseline);
    let longest = row(&found, "Longest time until the other host has read a note");
    assert!(longest.baseline.starts_with("60.0 s: the 60 s between copies, and "), "{}", longest.baseline);
}

#[test]
fn a_controller_is_compared_with_the_cheaper_of_plain_files_and_programs() {
    let tokens = |programs: u64| {
        let mut run = cron();
        evidence::programs_print(&mut run, "agent/inbox-triage", programs);
        let found = of("cron-controller", &run, "sqlite");
        let row = row(&found, "Tokens for health computed on read");
        (row.effect.unwrap().value, row.baseline.clone())
    };
    // 20 tokens on `sqlite`, 110 from plain files.
    let (ratio, baseline) = tokens(390);
    assert!((ratio - 20.0 / 110.0).abs() < 1e-9 && baseline.contains("(task: "), "{ratio}: {baseline}");
    let (ratio, baseline) = tokens(15);
    assert!((ratio - 20.0 / 25.0).abs() < 1e-9 && baseline.contains("(programs: "), "{ratio}: {baseline}");
}

#[test]
fn a_listed_fact_is_a_sentence_with_the_figures_of_both() {
    let title = "Planted notes that are found";
    let says = |run: &Run| row(&of("agent-memory", run, "sqlite"), title).says.clone();
    let sentence = "Made-up notes do not decide it: grep, given both words of each planted fact, found 100 of 100 in 293 tokens a question; recall 95 of 100 in 400 tokens a question";
    assert_eq!(says(&memory()), sentence);
    let mut run = memory();
    testing::passes(&mut run, "micro/find-in-files-1000", "direct").for_each(|pass| pass.scores.clear());
    assert_eq!(says(&run), "", "half of a fact is none");
}

#[test]
fn missing_evidence_names_the_command_that_makes_it() {
    let run = testing::run();
    let found = of("coding-agent", &run, "sqlite");
    assert_eq!(found.verdict, NotDecided);
    for command in ["ctxbench conform direct sqlite", "ctxbench run --workload program/git --backend sqlite"] {
        let mut missing = found.missing.iter();
        assert!(missing.any(|gap| gap.command == command), "{command}");
    }
}

#[test]
fn a_gate_without_evidence_does_not_hide_a_certain_archive() {
    let mut run = coding();
    run.crash_points.clear();
    run.faults.clear();
    let open = of("coding-agent", &run, "sqlite");
    assert_eq!(open.verdict, NotDecided, "{}", open.why);
    // No reason to change, whatever the kills would show.
    evidence::properties(&mut run, Outcome::Skipped);
    let found = of("coding-agent", &run, "sqlite");
    assert_eq!(found.verdict, Archive, "{}", found.why);
    assert_eq!(found.missing, []);
    // Nothing can be compared with a wrong baseline.
    let first = testing::passes(&mut run, "program/git", "direct").next();
    first.unwrap().outcome = Outcome::Errno;
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, NotDecided);
}

#[test]
fn one_epoch_or_two_leave_every_latency_open() {
    let mut run = coding();
    run.samples.retain(|sample| sample.epoch < 2);
    let found = of("coding-agent", &run, "sqlite");
    assert_eq!(found.verdict, NotDecided);
    assert_eq!(
        found.why,
        "open: Time of git status, log, commit and checkout; Time of git clone, git add of all files and rm -rf; Wait for replayed file calls of a session; Replayed file calls of a session, against a plain directory; Time to install packages with npm"
    );
}

/// The decision of `coding-agent` on `sqlite` by some of these runs.
fn of_both(runs: &[Run; 2], which: &[usize]) -> Decision {
    of_several("coding-agent", "sqlite", runs, which)
}

/// The decision of a policy on a candidate by some of these runs, in this order.
fn of_several(policy: &str, candidate: &str, runs: &[Run], which: &[usize]) -> Decision {
    let summaries: Vec<_> = runs.iter().map(|run| summarise(run).unwrap()).collect();
    let prices = Prices::built_in().unwrap();
    let costs: Vec<_> = runs.iter().map(|run| contexts(run, &prices).unwrap()).collect();
    let chosen = which.iter();
    let chosen = chosen.map(|at| RunEvidence::new(&runs[*at], &summaries[*at], &costs[*at]));
    let evidence = Evidence { runs: chosen.collect() };
    let (file, text) = find(policy).unwrap();
    let policy = Policy::parse(&file, &text).unwrap();
    let mut all = decide(&policy, &text, &evidence).into_iter();
    all.find(|decision| decision.candidate == candidate).unwrap()
}

#[test]
fn the_order_of_the_runs_changes_no_verdict_and_no_figure() {
    for (policy, candidate, make, changes) in cases() {
        for (_, what, change) in changes {
            let mut runs = [make(), make()];
            change(&mut runs[1]);
            let found = [[0, 1], [1, 0]].map(|order| {
                let found = of_several(policy, candidate, &runs, &order);
                let rows = found.rows.into_iter();
                let rows = rows.map(|row| (row.title, row.state, row.effect.map(|effect| format!("{effect:?}"))));
                (found.verdict, rows.collect::<Vec<_>>())
            });
            assert_eq!(found[0], found[1], "{policy}: {what}");
        }
    }
}

#[test]
fn a_note_that_was_not_seen_in_one_of_two_runs_rules_out_sharing_a_memory() {
    let unseen = "one note is not seen";
    let (_, candidate, make, changes) = cases().into_iter().find(|case| case.0 == "roaming-agents").unwrap();
    let (verdict, _, change) = changes.into_iter().find(|change| change.1 == unseen).unwrap();
    let mut runs = [make(), make()];
    change(&mut runs[1]);
    for order in [[0, 1], [1, 0]] {
        let found = of_several("roaming-agents", candidate, &runs, &order);
        assert_eq!(found.verdict, verdict, "{}", found.why);
        let words = &row(&found, "Notes that another host does not see").candidate;
        assert!(words.starts_with("1 of "), "{words}");
    }
}

#[test]
fn a_cell_in_two_runs_must_keep_the_bound_in_both() {
    let fast = coding();
    let mut slow = coding();
    testing::scale(&mut slow, "sqlite", 5.0);
    let runs = [fast, slow];
    let found = of_both(&runs, &[0, 1]);
    assert_eq!(row(&found, "Time of git status, log, commit and checkout").state, RowState::Open);
    assert_eq!(found.verdict, NotDecided);
}

#[test]
fn a_latency_says_its_share_of_the_session_and_what_was_not_replayed() {
    let mut run = coding();
    let mut workloads = run.plan.workloads.iter_mut();
    let session = workloads.find(|workload| workload.name.starts_with("agent/"));
    session.unwrap().not_replayed.insert("exec".to_owned(), 25);
    let found = of("coding-agent", &run, "sqlite");
    let row = row(&found, "Wait for replayed file calls of a session");
    insta::assert_snapshot!(row.session.as_ref().unwrap(), @"a session of 2000 s waits 11.6 ms for its replayed file calls in all (the baseline's wait included): 0.0006 %; 25 of 125 recorded calls were not replayed, and are not in this figure (25 exec)");
    insta::assert_snapshot!(row.break_even.as_ref().unwrap().words, @"a turn of 3.60 s with more than 1,800 file calls becomes longer by over 1 %");
}

#[test]
fn a_cost_behind_an_injected_delay_names_the_round_trip_at_which_it_matters() {
    let mut run = roaming();
    testing::copy_arm(&mut run, "sqlite", "sqlite@30ms");
    // 0.2 ms on loopback, 3 s behind 30 ms: a hundred round trips, of which a second holds ten milliseconds.
    slow(&mut run, "agent/sync-100", "sqlite@30ms", 15_000.0);
    let waits = |candidate: &str| {
        let found = of("roaming-agents", &run, candidate);
        row(&found, "Time to sync a hundred notes to the bucket").clone()
    };
    assert_eq!(waits("sqlite").state, RowState::Met);
    let far = waits("sqlite@30ms");
    assert_eq!(far.state, RowState::Unmet);
    let break_even = far.break_even.unwrap();
    assert!(break_even.can_hold && (9.0..11.5).contains(&break_even.amount), "{break_even:?}");
    assert!(break_even.condition.starts_with("the server is nearer than ◐ "), "{}", break_even.condition);
    // Without a bucket, it is the time of a disk.
    run.plan.arms.iter_mut().for_each(|arm| arm.backend.has_bucket = false);
    let local = of("roaming-agents", &run, "sqlite");
    let local = row(&local, "Time to sync a hundred notes to the bucket");
    assert_eq!((local.state, local.candidate.as_str()), (RowState::Unmeasured, "has no bucket"));
    assert_eq!((local.effect, local.baseline.as_str()), (None, ""));
}

#[test]
fn a_view_is_judged_by_the_cycle_that_it_can_run() {
    let verdict = |run: &Run| of("cron-controller", run, "view-vsm");
    let mut run = evidence::cron_view();
    let found = verdict(&run);
    assert_eq!(found.verdict, Adopt, "{}: {:#?}", found.why, found.rows);
    slow(&mut run, "agent/inbox-triage", "view-vsm", 100_000.0);
    assert_eq!(verdict(&run).verdict, Archive);
    let mut run = evidence::cron_view();
    run.samples.retain(|pass| (&*pass.arm, &*pass.workload) != ("view-vsm", "agent/inbox-triage"));
    run.cells.retain(|cell| (&*cell.arm, &*cell.workload) != ("view-vsm", "agent/inbox-triage"));
    assert_eq!(verdict(&run).verdict, NotDecided);
    // A view that computes no health saves nothing.
    let mut run = evidence::cron_view();
    for pass in testing::passes(&mut run, "agent/inbox-triage", "view-vsm") {
        for counts in pass.scores.values_mut() {
            counts.insert("result-tokens".to_owned(), rundir::Score { sum: 100, of: 100 });
        }
    }
    assert_eq!(verdict(&run).verdict, NotDecided, "no log was asked");
    evidence::log(&mut run, 100, 100);
    for pass in testing::passes(&mut run, "agent/inbox-log", "view-vsm") {
        pass.scores = BTreeMap::from([(
            "task".to_owned(),
            ["definition-tokens", "call-tokens", "result-tokens"]
                .map(|count| (count.to_owned(), rundir::Score { sum: 100, of: 100 }))
                .into(),
        )]);
    }
    assert_eq!(verdict(&run).verdict, Archive);
}

#[test]
fn a_right_conclusion_with_the_wrong_figure_is_a_result_of_its_own() {
    let found = of("cron-controller", &cron(), "sqlite");
    let stands: BTreeMap<&str, Standing> =
        found.sources.iter().map(|source| (source.aspect.as_str(), source.stands)).collect();
    assert_eq!(found.sources.len(), 7);
    // No call `read` in this session, no token counted: open. What must be installed is declared.
    assert_eq!(stands["Read latency"], Standing::Open);
    assert_eq!(stands["Deployment"], Standing::Declared);
    assert_eq!(stands["Cron safety"], Standing::No);
    assert_eq!(stands["Token cost"], Standing::WrongFigure);
    let mut run = cron();
    testing::rename_calls(&mut run, "edit", "read");
    let read = |run: &Run| of("cron-controller", run, "sqlite").sources[0].stands;
    // 0.2 ms against 0.1 ms: slower, but not by 10 to 50 ms.
    assert_eq!(read(&run), Standing::WrongFigure);
    testing::scale(&mut run, "sqlite", 100.0);
    assert_eq!(read(&run), Standing::Yes);
    testing::scale(&mut run, "sqlite", 0.001);
    assert_eq!(read(&run), Standing::No);
}

#[test]
fn a_policy_is_fixed_before_a_run_only_if_the_plan_has_its_hash() {
    let mut run = cron();
    assert!(!of("cron-controller", &run, "sqlite").planned);
    run.plan.policies = identities();
    assert!(of("cron-controller", &run, "sqlite").planned);
    let text = find("cron-controller").unwrap().1.replace("at_most = 120", "at_most = 121");
    assert!(!of_text(&text, &run, "sqlite").planned);
}

#[test]
fn runs_of_another_machine_or_plan_are_named_and_refused() {
    let one = testing::run();
    let mut other = testing::run();
    other.dir = "results/other".into();
    assert_eq!(check_compatible(&[&one, &other]), Ok(()));
    let problem = |change: fn(&mut Run)| {
        let mut other = other.clone();
        change(&mut other);
        check_compatible(&[&one, &other]).unwrap_err()
    };
    insta::assert_snapshot!(problem(|run| run.environment.cpu = "Other CPU".to_owned()), @"results/scripted and results/other: different machines: processor: Scripted CPU and Other CPU");
    assert!(problem(|run| run.environment.memory_bytes /= 8).contains("different machines: memory"));
    assert!(problem(|run| run.environment.scratch.file_system = "tmpfs".to_owned()).contains("scratch"));
    assert!(problem(|run| run.plan.ctxbench = "1".to_owned()).contains("different builds of ctxbench"));
    // The version of a build with changes is that of every such build.
    let mut changed = one.clone();
    changed.plan.ctxbench = "0.1.0 (abc with changes)".to_owned();
    let mut another = Run { dir: "results/another".into(), ..changed.clone() };
    assert_eq!(check_compatible(&[&changed, &another]), Ok(()));
    another.environment.binary_sha256 = "2".repeat(64);
    let why = check_compatible(&[&changed, &another]).unwrap_err();
    assert!(why.contains("different builds of ctxbench 0.1.0 (abc with changes), by SHA-256: "), "{why}");
    assert!(problem(|run| run.plan.margins.relative = 0.5).contains("different margins"));
    assert!(
        problem(|run| run.plan.workloads[0].sha256 = "1".to_owned()).contains("different definitions of micro/read")
    );
    assert!(
        problem(|run| _ = run.plan.arms[2].backend.versions.insert("x".to_owned(), "1".to_owned()))
            .contains("different versions of sqlite")
    );
    assert_eq!(check_compatible(&[]), Err("no run was given".to_owned()));
}

#[test]
fn a_copy_of_a_run_is_refused_whatever_its_plan_says_and_another_run_is_not() {
    let mut one = testing::run();
    kills(&mut one, "sqlite", 0);
    one.crash_points[0].took_ms = 1800;
    let mut copy = one.clone();
    copy.dir = "results/copy".into();
    let refused = |other: &Run| check_distinct(&[&one, other]).unwrap_err();
    insta::assert_snapshot!(refused(&copy), @"results/scripted and results/copy: the same run twice: both have a pass of direct in micro/read, hot, that waited 9804037 ns (name it once; a joined or merged run holds the runs that it was made of)");
    let changes: [fn(&mut Run); 4] = [
        |run| run.plan.created = "2026-11-29T08:00:01Z".to_owned(),
        // The epochs of a joined run have other numbers.
        |run| run.samples.iter_mut().for_each(|pass| (pass.epoch, pass.order) = (pass.epoch + 4, pass.order + 100)),
        |run| run.samples.truncate(3),
        |run| run.samples.clear(),
    ];
    for change in changes {
        let mut other = copy.clone();
        change(&mut other);
        assert!(refused(&other).contains("the same run twice"));
    }
    fn restarted(run: &mut Run) {
        run.plan.created = "2026-11-29T08:00:01Z".to_owned();
        run.samples.iter_mut().for_each(|pass| pass.started_ms += 1);
        run.crash_points[0].took_ms += 1;
    }
    let edits: [fn(&mut Run); 2] = [restarted, |run| {
        restarted(run);
        run.samples.iter_mut().for_each(|pass| (pass.waited_ns, pass.cpu.client_ns) = (1, 1));
    }];
    for edit in edits {
        let mut other = copy.clone();
        edit(&mut other);
        let words = refused(&other);
        assert!(words.contains("passes with an equal time in nanoseconds"), "{words}");
    }
    // Another seed, in the same second.
    let mut other = testing::seeded(2);
    other.plan = Plan { seed: 2, ..one.plan.clone() };
    kills(&mut other, "sqlite", 0);
    other.crash_points[0].took_ms = 1801;
    assert_eq!(check_distinct(&[&one, &other]), Ok(()));
    // The same command once more has the same seed.
    other.plan = Plan { created: "2026-11-29T08:00:01Z".to_owned(), ..one.plan.clone() };
    assert_eq!(check_distinct(&[&one, &other]), Ok(()));
    // Times of another run in the plan of this one.
    other.plan.created.clone_from(&one.plan.created);
    assert!(refused(&other).contains("both have the plan of "), "{}", refused(&other));
    // Shards that a scheduler starts at once.
    other.plan.shard = Some(Shard { index: 1, of: 2 });
    assert_eq!(check_distinct(&[&one, &other]), Ok(()));
}

#[test]
fn evidence_of_several_runs_is_pooled() {
    let mut conformance = coding();
    conformance.samples.clear();
    conformance.plan.workloads.clear();
    let mut measured = coding();
    measured.probes.retain(|probe| probe.aspect != "conformance");
    let runs = [conformance, measured];
    assert_eq!(of_both(&runs, &[0, 1]).verdict, AdoptIf);
    assert_eq!(of_both(&runs, &[1]).verdict, NotDecided);
}

const POLICY: &str = r#"
name = "mine"
question = "q"
essay = "e"
baseline = "direct"
benefits_needed = 1
[candidates]
can = ["persistent"]
[[benefit]]
title = "Faster"
measure.latency = { workload = "micro/read", state = "hot", metric = "read" }
unit = "ratio"
at_most = 0.9
[[cost]]
title = "Faults"
measure.faults = { scenarios = ["cron-kill"], figure = "failed-calls" }
unit = "calls more"
at_most = 1
[[gate]]
title = "Tools"
measure.probes = { aspect = "tool", names = ["cat", "ls"] }
unit = "probes"
at_most = 0
[[gate]]
title = "Features"
measure.conformance = { groups = ["rename"] }
unit = "features"
at_most = 0
"#;

const LATENCY: &str = "measure.latency = { workload = \"micro/read\", state = \"hot\", metric = \"read\" }";

#[test]
fn a_ratio_to_a_baseline_of_nothing_shows_no_benefit() {
    // Two counts are no share with an interval.
    let row_of = "measure.score = { workload = \"micro/read\", method = \"search\", counts = [\"found-at-1\", \"found-at-5\"] }\nunit = \"ratio\"\nat_least = 1.5";
    let text = POLICY.replacen(&format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"), row_of, 1);
    for (of_direct, of_candidate, expected) in
        [(20, 90, RowState::Met), (0, 90, RowState::Open), (0, 0, RowState::Unmet), (80, 80, RowState::Unmet)]
    {
        let mut run = testing::run();
        for (arm, found) in [("direct", of_direct), ("sqlite", of_candidate)] {
            let counts = [("found-at-1", found), ("found-at-5", 0)];
            evidence::score(&mut run, "micro/read", arm, "search", &counts);
        }
        let found = decisions_of_text(&text, &run).remove(0);
        assert_eq!(row(&found, "Faster").state, expected, "{of_direct}, {of_candidate}: {:?}", row(&found, "Faster"));
    }
}

#[test]
fn answers_that_took_no_token_are_not_a_benefit() {
    const TITLE: &str = "Tokens to find a message";
    let mut run = evidence::inbox();
    assert_eq!(row(&of("inbox", &run, "view-mail"), TITLE).state, RowState::Met);
    let counts = [("definition-tokens", 0), ("call-tokens", 0), ("result-tokens", 0)];
    evidence::task(&mut run, "agent/inbox-find", &counts);
    let found = of("inbox", &run, "view-mail");
    assert_eq!(row(&found, TITLE).state, RowState::Open, "{:?}", row(&found, TITLE));
}

#[test]
fn a_malformed_policy_names_file_line_and_field() {
    let names = Names {
        workloads: ["micro/read".to_owned()].into(),
        metrics: ["read".to_owned()].into(),
        scenarios: ["cron-kill".to_owned()].into(),
        arms: ["direct".to_owned(), "s3-close".to_owned()].into(),
        probes: [("tool".to_owned(), ["cat".to_owned(), "ls".to_owned()].into())].into(),
        features: ["names: a", "names: b", "rename: over a file"].map(str::to_owned).into(),
    };
    let error = |from: &str, to: &str| {
        let text = POLICY.replacen(from, to, 1);
        assert_ne!(text, POLICY);
        let file = Path::new("p.toml");
        let policy = Policy::parse(file, &text);
        let checked = policy.and_then(|policy| policy.check_names(file, &text, &names));
        checked.unwrap_err().to_string()
    };
    let errors = [
        error("[[benefit]]", "[[gate]]"),
        error("benefits_needed = 1", "benefits_needed = 2"),
        error("unit = \"ratio\"", "unit = \"tokens\""),
        error("unit = \"calls more\"", "unit = \"session share\""),
        error("workload = \"micro/read\"", "workload = \"micro/reed\""),
        error("metric = \"read\"", "metric = \"red\""),
        error("state = \"hot\"", "state = \"warm\""),
        error("[\"cron-kill\"]", "[\"cron-kil\"]"),
        error("\"ls\"", "\"lss\""),
        error("[\"rename\"]", "[\"renames\"]"),
        error("baseline = \"direct\"", "baseline = \"dirct\""),
        error("unit = \"calls more\"", "unit = \"calls more\"\nbaseline = \"s3-clos\""),
        error("can = [\"persistent\"]", "names = [\"s3-*\", \"direct\"]\nexcept = [\"sqlite*\"]"),
        error("at_most = 0.9", "at_most = 0.9\nat_least = 0.1"),
        error("at_most = 0.9", "at_most = nan"),
        error("figure = \"failed-calls\"", "figure = \"lost-records\""),
        error("figure = \"failed-calls\"", "figure = \"manual-recoveries\", within = 1.0"),
        error("figure = \"failed-calls\"", "figure = \"failed-calls\", within = 0.05"),
        error("at_most = 0.9", "at_most = 0.9\ncondition = \"needed\""),
        error("at_most = 0.9", "at_most = 0.9\ncondition = { sessions = { like = \"it is long\", others = [\"a\"] } }"),
        error("at_most = 0.9", "at_mots = 0.9"),
        error("at_most = 1", "at_most = 1\ncondition = { calls-a-turn = 0.1 }"),
        error("at_most = 0.9", "at_most = 0.9\ncondition = { calls-a-turn = 0.1 }"),
        error("measure.latency", "measure.delay"),
        error(LATENCY, "measure.property = { of = [\"one-file\"] }"),
        error(LATENCY, "measure.burden = { of = [\"privileges\", \"mounts\"] }"),
        error("measure.conformance = { groups = [\"rename\"] }", "measure.burden = { of = [\"mounts\"] }"),
        error("unit = \"ratio\"\n", ""),
        error("at_most = 0.9", "at_most = 0.0"),
        error("at_most = 0.9", "at_least = 0.0"),
        error("at_most = 1", "at_most = 1\nif_measured = 1"),
        error("at_most = 0.9", "at_most = 0.9\nif_measured = true"),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"",
            "measure.durability = { loss = \"power-loss\" }\nunit = \"share\"",
        ),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "measure.durability = { loss = \"power-loss\" }\nunit = \"share\"\nat_most = 1.0",
        ),
        error(
            LATENCY,
            "measure.score = { workload = \"micro/read\", method = \"a\", or_baseline_method = \"b\", counts = [\"stale\"] }",
        ),
        error(
            LATENCY,
            "measure.hosts = { workload = \"micro/read\", figure = \"unseen-notes\", copies = { every_s = 60, or_every_s = 5, copy = { workload = \"micro/read\", state = \"hot\", metric = \"read\" } } }",
        ),
        error(
            LATENCY,
            "measure.hosts = { workload = \"micro/read\", figure = \"handoff-ms\", copies = { every_s = 0, or_every_s = 5, copy = { workload = \"micro/read\", state = \"hot\", metric = \"read\" } } }",
        ),
        error(
            LATENCY,
            "measure.hosts = { workload = \"micro/read\", figure = \"handoff-ms\", copies = { every_s = 60, or_every_s = 90, copy = { workload = \"micro/read\", state = \"hot\", metric = \"read\" } } }",
        ),
        error(LATENCY, "measure.hosts = { workload = \"micro/read\", figure = \"longest-handoff-ms\" }"),
        error(LATENCY, "measure.passes = { workload = \"micro/read\", within = 1.0 }"),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "measure.passes = { workload = \"micro/read\", within = 0.05 }\nunit = \"passes\"\nat_most = 1000",
        ),
        error("title = \"Faster\"", "title = \"\u{200b}\""),
        error("can = [\"persistent\"]", "contexts = [\"evict\"]"),
        error("at_most = 0.9", "at_most = 0.9\nbaseline = \"itself\""),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 2",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.property = { of = [\"fork\", \"diff\"] }\nunit = \"properties more\"\nat_least = 3",
        ),
        error("figure = \"failed-calls\"", "figure = \"updates-lost\""),
        error(LATENCY, "measure.context = { workload = \"micro/read\", figure = \"resent\" }"),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.score = { workload = \"micro/read\", method = \"a\", counts = [\"stale\"] }\nunit = \"per question\"\nat_most = 1.0",
        ),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"ms\"\nat_most = 0"),
        error(
            "names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "names = [] }\nunit = \"probes\"\nat_most = 2",
        ),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"percent saved\"\nat_least = 101"),
        error("title = \"Faster\"", "title = \" \""),
        error(
            "[[cost]]",
            &format!("[[benefit]]\ntitle = \"Faster, again\"\n{LATENCY}\nunit = \"ratio\"\nat_most = 0.8\n[[cost]]"),
        ),
        error("at_most = 0.9", "at_most = 2.0"),
        error("at_most = 0.9", "at_least = 1.2"),
        error("at_most = 0.9", "at_most = 1e-9"),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"percent saved\"\nat_most = -5"),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"session share\"\nat_most = 5"),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"ms more\"\nat_most = -1e18"),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"ms fewer\"\nat_least = 1e18"),
        error("at_most = 1", "at_least = 1"),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "measure.durability = { loss = \"power-loss\" }\nunit = \"share\"\nat_least = 0.1",
        ),
        error(
            "measure.probes = { aspect = \"tool\", names = [\"cat\", \"ls\"] }\nunit = \"probes\"\nat_most = 0",
            "measure.durability = { loss = \"power-loss\" }\nunit = \"share\"\nat_most = 1e-9",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.score = { workload = \"micro/read\", method = \"a\", counts = [\"found-at-1\"] }\nunit = \"per question fewer\"\nat_least = 0.1",
        ),
        error(
            "measure.faults = { scenarios = [\"cron-kill\"], figure = \"failed-calls\" }\nunit = \"calls more\"\nat_most = 1",
            "measure.score = { workload = \"micro/read\", method = \"a\", counts = [\"tokens\"] }\nunit = \"per question\"\nat_most = 0",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.property = { of = [\"portable\"] }\nunit = \"properties\"\nat_least = 1",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.property = { of = [\"fork\", \"fork\"] }\nunit = \"properties more\"\nat_least = 2",
        ),
        error(
            "measure.faults = { scenarios = [\"cron-kill\"], figure = \"failed-calls\" }\nunit = \"calls more\"\nat_most = 1",
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 1e308"),
        ),
        error(
            "figure = \"failed-calls\" }\nunit = \"calls more\"\nat_most = 1\n",
            "figure = \"lost-records\", within = 0.05 }\nunit = \"records\"\nat_most = 1000\n",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.score = { workload = \"micro/read\", method = \"task\", counts = [\"stale-answers\"] }\nunit = \"per question\"\nat_most = 0",
        ),
        error(
            LATENCY,
            "measure.score = { workload = \"micro/read\", method = \"task\", counts = [\"tokens\"], within = 0.1 }",
        ),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.score = { workload = \"micro/read\", method = \"task\", counts = [\"tokens\"] }\nunit = \"percent saved\"\nat_least = -50",
        ),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"ms more\"\nat_most = 5"),
        error("unit = \"ratio\"\nat_most = 0.9", "unit = \"ms\"\nat_most = 1000"),
        error(
            &format!("{LATENCY}\nunit = \"ratio\"\nat_most = 0.9"),
            "measure.conformance = { groups = [] }\nunit = \"features\"\nat_most = 50",
        ),
        find("nonsense").unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn a_benefit_is_one_fact_in_all_units_and_nothing_saves_everything() {
    let error = |from: &str, to: &str| {
        let text = POLICY.replacen(from, to, 1);
        Policy::parse(Path::new("p.toml"), &text).unwrap_err().to_string()
    };
    let saved = "unit = \"percent saved\"\nat_least = ";
    let again = format!("[[benefit]]\ntitle = \"Faster, again\"\n{LATENCY}\n{saved}10\n[[cost]]");
    let twice = error("[[cost]]", &again);
    assert!(twice.contains("asks what \"Faster\" asks"), "{twice}");
    let all = error("unit = \"ratio\"\nat_most = 0.9", &format!("{saved}100"));
    assert!(all.contains("no candidate can keep this bound") && all.contains("from -99900 to 99.9"), "{all}");
}

#[test]
fn a_run_has_a_candidate_if_an_arm_for_itself_or_a_model_fits() {
    let text = find("cron-controller").unwrap().1;
    let mut policy = Policy::parse(Path::new("p.toml"), &text).unwrap();
    let mut run = testing::run();
    run.plan.model_files = None;
    let mut has = |candidates: &str, run: &Run| {
        policy.candidates = toml::from_str(candidates).unwrap();
        policy.has_candidate(&run.plan)
    };
    assert!(has("names = ['sqlite']", &run));
    assert!(!has("names = ['direct*']", &run), "the baseline, twice");
    assert!(!has("names = ['llm-*']", &run));
    run.plan.model_files = Some(ModelFilesPlan::default());
    assert!(has("names = ['llm-*']", &run));
    let wanted = |candidates: &str| toml::from_str::<Candidates>(candidates).unwrap().to_string();
    assert_eq!(wanted("can = ['mount']\nnames = ['a', 'b*']"), r#"can = ["mount"], names = ["a", "b*"]"#);
    assert_eq!(wanted(""), "any arm");
}

#[test]
fn a_context_policy_as_baseline_is_not_an_arm_and_an_unknown_arm_is_listed() {
    let names =
        Names { workloads: ["agent/task".to_owned()].into(), arms: ["direct".to_owned()].into(), ..Names::default() };
    let parsed = |measure: &str, unit: &str| {
        let (head, _) = POLICY.split_once("measure.latency").unwrap();
        let row = "baseline = \"inline\"\nat_most = 0.9\n";
        let text = format!("{head}measure.{measure}\nunit = \"{unit}\"\n{row}");
        let policy = Policy::parse(Path::new("p.toml"), &text).unwrap();
        let checked = policy.check_names(Path::new("p.toml"), &text, &names);
        let unknown = policy.unknown_arms(&names);
        (checked.is_ok(), unknown.join(", "))
    };
    let context =
        "context = { workload = \"agent/task\", policy = \"evict\", against = \"inline\", figure = \"resent\" }";
    assert_eq!(parsed(context, "ratio"), (true, String::new()));
    let latency = "latency = { workload = \"agent/task\", state = \"hot\", metric = \"makespan\" }";
    assert_eq!(parsed(latency, "ratio"), (false, "inline".to_owned()));
}

/// An outcome of a storage fault after which a manual step was needed.
fn storage_fault(scenario: &str, backend: &str, step: &str) -> FaultOutcome {
    let mut outcome = FaultOutcome::ran(scenario, "storage", backend, 1);
    outcome.recovery = Some(Recovery { how: Return::AfterStep, ms: 1, step: Some(step.to_owned()) });
    outcome
}

#[test]
fn the_same_fault_once_more_changes_no_figure() {
    let mut run = cron();
    run.faults[1].failed_calls = 2;
    let failing = |run: &Run| {
        let found = of("cron-controller", run, "sqlite");
        let row = row(&found, "Failed calls after daemon crashes");
        (row.state, row.effect.unwrap().value, found.verdict)
    };
    assert_eq!(failing(&run), (RowState::Met, 24.0, Adopt));
    run.faults.extend(run.faults.clone());
    assert_eq!(failing(&run), (RowState::Met, 24.0, Adopt));
    let faults = run.faults.iter_mut();
    faults.for_each(|fault| fault.failed_calls *= 10);
    assert_eq!(failing(&run).0, RowState::Unmet);
}

#[test]
fn a_fault_that_does_not_fit_a_daemon_is_not_a_fault_without_errors() {
    let text = POLICY.replace("cron-kill", "kill-idle");
    let mut run = testing::run();
    for arm in ["direct", "sqlite"] {
        let mut outcome = FaultOutcome::ran("kill-idle", "daemon", arm, 1);
        (outcome.status, outcome.reason) = (Status::Unfit, Some("not our daemon".to_owned()));
        run.fault_outcomes.push(outcome);
    }
    let faults = |run: &Run| row(&of_text(&text, run, "sqlite"), "Faults").clone();
    let untried = faults(&run);
    assert_eq!(untried.state, RowState::Void);
    assert_eq!(untried.candidate, "void: fault kill-idle was not tried on sqlite: not our daemon");
    run.plan.arms[2].backend.daemons = 0;
    assert_eq!(faults(&run).state, RowState::Met, "nothing of it can be killed");
}

#[test]
fn a_baseline_without_a_promise_is_not_taken_to_keep_nothing() {
    let kept = "More state is kept when the power goes";
    let text = find("coding-agent").unwrap().1
        + "\n[[benefit]]\ntitle = \"More state is kept when the power goes\"\nmeasure.kept = { loss = \"power-loss\" }\nunit = \"share more\"\nat_least = 0.05\n";
    let mut run = coding();
    evidence::properties(&mut run, Outcome::Skipped);
    run.crash_points.retain(|points| points.backend != "direct");
    for arm in &mut run.plan.arms {
        let promises = &mut arm.backend.promises;
        promises.insert("killed-daemon".to_owned(), "write".to_owned());
    }
    let found = of_text(&text, &run, "sqlite");
    assert_eq!(row(&found, kept).state, RowState::Missing);
    assert_eq!(found.verdict, NotDecided);
    run.crash_points.clear();
    let found = of_text(&text, &run, "sqlite");
    let row = row(&found, kept);
    assert_eq!(row.state, RowState::Unmet);
    assert_eq!(row.candidate, "not offered: promises nothing for power-loss");
}

#[test]
fn a_cost_that_was_not_measured_on_the_candidate_is_not_tolerated() {
    let mut run = memory();
    let passes = testing::passes(&mut run, evidence::CHANGED, "sqlite");
    for pass in passes {
        for counts in pass.scores.values_mut() {
            counts.remove("stale");
        }
    }
    let found = of("agent-memory", &run, "sqlite");
    let row = row(&found, "Outdated answers of the default recall");
    assert_eq!((row.state, found.verdict), (RowState::Open, NotDecided));
}

#[test]
fn a_method_that_was_asked_no_question_lacks_evidence_and_is_not_archived() {
    let found = |questions: u64| {
        let mut run = memory();
        for pass in &mut run.samples {
            let scores = pass.scores.iter_mut().filter(|(method, _)| method.starts_with(":recall"));
            for score in scores.flat_map(|(_, counts)| counts.values_mut()) {
                (score.sum, score.of) = (score.sum.min(questions), score.of.min(questions));
            }
        }
        of("agent-memory", &run, "sqlite").verdict
    };
    assert_eq!(found(0), NotDecided);
    assert_eq!(found(u64::MAX), Adopt);
}

#[test]
fn faster_can_win_a_benefit() {
    let mut run = coding();
    evidence::power_loss(&mut run, 10, 10);
    evidence::properties(&mut run, Outcome::Skipped);
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, Archive);
    testing::scale(&mut run, "sqlite", 0.1);
    assert_eq!(of("coding-agent", &run, "sqlite").verdict, Adopt);
}

#[test]
fn a_run_without_an_arm_that_rows_compare_with_is_refused_with_file_line_and_field() {
    let file = Path::new("p.toml");
    let policy = Policy::parse(file, POLICY).unwrap();
    let mut run = testing::run();
    assert!(policy.check_baselines(file, POLICY, &run.plan).is_ok());
    run.plan.arms.retain(|arm| arm.name != "direct");
    let problem = policy.check_baselines(file, POLICY, &run.plan);
    let problem = problem.unwrap_err().to_string();
    assert!(problem.starts_with("p.toml:5: field `baseline`: rows compare with \"direct\""), "{problem}");
}

#[test]
fn a_place_that_does_not_qualify_says_why() {
    let mut run = evidence::long_context();
    evidence::fail_a_pass(&mut run, "agent/offload-comparison", "sqlite");
    let found = of("long-context", &run, "evict");
    let places: Vec<(&str, RowState)> = found.places.iter().map(|place| (place.name.as_str(), place.state)).collect();
    assert_eq!(places, [("direct", RowState::Met), ("sqlite", RowState::Unmet)]);
    assert!(found.places[1].why.contains("1 errno"), "{}", found.places[1].why);
}

#[test]
fn a_property_that_was_not_tried_is_missing_and_one_that_failed_is_none() {
    let mut run = coding();
    evidence::power_loss(&mut run, 10, 10);
    let title = "Snapshots, forks, diffs, versions or a portable state";
    let state = |run: &Run| row(&of("coding-agent", run, "sqlite"), title).state;
    assert_eq!(state(&run), RowState::Conditional);
    for (outcome, expected) in [
        (Outcome::Skipped, RowState::Unmet),
        (Outcome::WrongData, RowState::Unmet),
        (Outcome::Errno, RowState::Unmet),
        (Outcome::Infra, RowState::Open),
    ] {
        evidence::properties(&mut run, outcome);
        assert_eq!(state(&run), expected, "{outcome}");
    }
    // What the plain directory was not asked for is not compared.
    let tried = |probe: &rundir::Probe| probe.aspect == "property" && probe.arm == "direct";
    run.probes.retain(|probe| !tried(probe));
    assert_eq!(state(&run), RowState::Missing);
}

#[test]
fn a_second_probe_of_a_property_hides_no_failure_and_the_baselines_probes_must_agree() {
    use rundir::{Probe, SkipReason};
    let title = "Snapshots, forks, diffs, versions or a portable state";
    let mut run = coding();
    evidence::properties(&mut run, Outcome::Skipped);
    let of_arm = |arm: &str, outcome| Probe::new("property", "snapshot", arm, outcome, "scripted");
    let offered = Probe::not_offered("property", "snapshot", "direct");
    let untried = |arm: &str| of_arm(arm, Outcome::Skipped);
    assert_eq!(untried("sqlite").skipped, Some(SkipReason::NotTried));
    for (own, others, [low, value, high]) in [
        (vec![of_arm("sqlite", Outcome::Ok)], vec![offered.clone()], [1.0, 1.0, 1.0]),
        // What failed once does not work, whatever another probe could not try.
        (vec![of_arm("sqlite", Outcome::WrongData), of_arm("sqlite", Outcome::Infra)], vec![offered.clone()], [0.0; 3]),
        (vec![of_arm("sqlite", Outcome::WrongData), untried("sqlite")], vec![offered.clone()], [0.0; 3]),
        // Nothing is known of what was not tried.
        (vec![untried("sqlite")], vec![offered.clone()], [0.0, 0.0, 1.0]),
        (vec![of_arm("sqlite", Outcome::Ok)], vec![untried("direct")], [0.0, 1.0, 1.0]),
        (vec![of_arm("sqlite", Outcome::Ok)], vec![], [0.0, 1.0, 1.0]),
        // A probe that could not end does not say that direct lacks it; one that found something else does.
        (vec![of_arm("sqlite", Outcome::Ok)], vec![of_arm("direct", Outcome::Errno)], [0.0, 1.0, 1.0]),
        (vec![of_arm("sqlite", Outcome::Ok)], vec![of_arm("direct", Outcome::WrongData)], [1.0, 1.0, 1.0]),
        // One probe says that direct lacks it, and another one that it works there.
        (vec![of_arm("sqlite", Outcome::Ok)], vec![of_arm("direct", Outcome::Ok), offered.clone()], [0.0, 1.0, 1.0]),
    ] {
        for is_reversed in [false, true] {
            let mut run = run.clone();
            run.probes.retain(|probe| probe.name != "snapshot");
            let mut probes = [own.clone(), others.clone()].concat();
            if is_reversed {
                probes.reverse();
            }
            run.probes.extend(probes);
            let effect = row(&of("coding-agent", &run, "sqlite"), title).effect.unwrap();
            assert_eq!([effect.low, effect.value, effect.high], [low, value, high], "{own:?}, {others:?}");
        }
    }
}

#[test]
fn a_property_that_the_baseline_has_too_does_not_hide_another_one() {
    let title = "Snapshots, forks, diffs, versions or a portable state";
    for (portable, snapshot, expected) in [
        // The plain directory is portable, and has no snapshot.
        (Outcome::Ok, Outcome::Ok, [1.0, 1.0, 1.0]),
        (Outcome::Skipped, Outcome::Ok, [1.0, 1.0, 1.0]),
        (Outcome::Ok, Outcome::Skipped, [0.0, 0.0, 0.0]),
        (Outcome::Skipped, Outcome::Infra, [0.0, 0.0, 1.0]),
        // Whether it is portable changes nothing: the plain directory is.
        (Outcome::Infra, Outcome::Ok, [1.0, 1.0, 1.0]),
    ] {
        let mut run = coding();
        evidence::properties(&mut run, snapshot);
        probe(&mut run, "property", "portable", "sqlite", portable);
        let effect = row(&of("coding-agent", &run, "sqlite"), title).effect.unwrap();
        assert_eq!([effect.low, effect.value, effect.high], expected, "{portable}, {snapshot}");
    }
}

#[test]
fn a_number_of_properties_is_no_margin_that_could_be_wider() {
    let title = "Survival of the loss of the machine";
    let mut run = roaming();
    let mut flips = Vec::new();
    for outcome in [Outcome::Ok, Outcome::WrongData] {
        evidence::machine_loss(&mut run, outcome);
        let rows = of("roaming-agents", &run, "sqlite").rows;
        let row = rows.iter().find(|row| row.title == title).unwrap();
        let changes = verdict::changes(row, &row.effect.unwrap());
        flips.extend(changes.into_iter().map(|(is_margin, from, to, _)| (is_margin, from, to)));
    }
    assert_eq!(flips, [(false, 1.0, 0.0), (false, 0.0, 1.0)]);
}

#[test]
fn a_stated_parameter_that_turns_a_verdict_makes_it_fragile_and_is_named() {
    let (_, text) = find("roaming-agents").unwrap();
    let found = |factor: u64, or_every_s: &str| {
        let mut run = roaming();
        evidence::slow_tail(&mut run, "agent/handoff-few", factor);
        let text = text.replace("or_every_s = 5.0", &format!("or_every_s = {or_every_s}"));
        let found = of_text(&text, &run, "sqlite");
        let condition = found.fragile.as_ref().map(|flip| (flip.is_stated, flip.condition()));
        (found.verdict_words(), condition)
    };
    assert_eq!(found(1, "5.0"), ("adopt".to_owned(), None));
    // The longest delay is about a tenth of 9 s.
    let (verdict, condition) = found(2_000, "5.0");
    assert_eq!(verdict, "adopt (fragile: time between copies)");
    let stated = "the stated “time between copies” were 7.5 s instead of 60 s".to_owned();
    assert_eq!(condition, Some((true, stated)));
    assert_eq!(found(2_000, "60.0"), ("adopt".to_owned(), None));
}

#[test]
fn a_rate_of_crashes_is_a_stated_parameter_of_every_row_that_has_it() {
    let measure = |rate: f64| {
        let text = find("roaming-agents").unwrap().1;
        let policy = Policy::parse(
            Path::new("p.toml"),
            &text.replace("crashes_a_year = 12", &format!("crashes_a_year = {rate}")),
        );
        policy.unwrap().costs.pop().unwrap().measure
    };
    let restated =
        measure(12.0).restated().into_iter().map(|other| (other.parameter, other.from, other.to, other.measure));
    let expected = [6.0, 24.0].map(|rate| ("crashes".to_owned(), 12.0, rate, measure(rate)));
    assert_eq!(restated.collect::<Vec<_>>(), expected);
}

#[test]
fn a_few_notes_or_machine_losses_are_open_and_name_what_makes_more_of_them() {
    let few_notes = |run: &mut Run, notes: u64| {
        let passes = testing::passes(run, "agent/handoff-few", "sqlite").filter(|pass| !pass.warm_up);
        for (at, pass) in passes.enumerate() {
            let count = if at == 0 { notes } else { 0 };
            pass.calls.get_mut("handoff").unwrap().count = count;
            pass.outcomes = BTreeMap::from([(Outcome::Ok, count)]);
        }
    };
    let [mut enough, mut few, mut losses] = std::array::from_fn(|_| roaming());
    few_notes(&mut enough, 14);
    few_notes(&mut few, 13);
    let of_machine = losses.crash_points.iter_mut().find(|points| points.loss == "machine-loss");
    of_machine.unwrap().points = 10;
    for (run, verdict, title, command) in [
        (enough, Adopt, "", ""),
        (
            few,
            NotDecided,
            "Notes that another host does not see",
            "ctxbench run --epochs 9 --workload agent/handoff-few --backend sqlite",
        ),
        (losses, NotDecided, "Losses of the machine that lose a record", "ctxbench run --backend sqlite"),
    ] {
        let found = of("roaming-agents", &run, "sqlite");
        assert_eq!(found.verdict, verdict, "{}\n{:#?}", found.why, found.rows);
        let open = found.rows.iter().filter(|row| row.role == RowRole::Gate && row.state == RowState::Open);
        let open: Vec<&str> = open.map(|row| row.title.as_str()).collect();
        assert_eq!(open.join(", "), title);
        let commands = remedies(&[found]).into_iter().map(|remedy| remedy.command);
        assert_eq!(commands.collect::<Vec<_>>().join(" "), command);
    }
}

#[test]
fn a_loss_that_was_never_seen_has_no_figure_that_could_be_shifted() {
    let run = roaming();
    let rows = of("roaming-agents", &run, "sqlite").rows;
    let row = rows.iter().find(|row| row.title == "Kills that lose a record").unwrap();
    let unseen = RowEffect { value: 0.0, low: 0.0, high: 0.046 };
    let shifts = |effect: RowEffect| {
        let changes = verdict::changes(&Row { state: row.bound.state(&effect), ..row.clone() }, &effect);
        changes.into_iter().filter(|(is_bound, ..)| !is_bound).count()
    };
    assert_eq!(shifts(unseen), 0, "0.4 % of 66 kills are no kill");
    assert!(shifts(RowEffect { value: 0.02, low: 0.01, ..unseen }) > 0);
}

#[test]
fn a_flip_is_a_clause_with_a_noun_and_two_figures_that_differ() {
    let flip = |role, unit: &str, is_bound, from, to| Flip {
        row: "Tokens of a triage".to_owned(),
        role,
        is_bound,
        is_stated: false,
        from,
        to,
        unit: unit.to_owned(),
        bound: 2.0,
        end: None,
        becomes: NotDecided,
    };
    use RowRole::{Benefit, Cost, Gate};
    let ended =
        |is_low, from, to| Flip { end: Some(MovedEnd { is_low, from, to }), ..flip(Cost, "ratio", false, 4.0, 2.4) };
    for (flip, expected) in [
        (
            flip(Benefit, "ratio", true, 0.9, 0.9749),
            "a saving of 2.5 % instead of 10 % were enough in “tokens of a triage”",
        ),
        (flip(Benefit, "ratio", true, 0.9, 1.0001), "no saving were needed in “tokens of a triage”, instead of 10 %"),
        (
            flip(Benefit, "properties more", true, 2.0, 1.0),
            "1 property more instead of 2 properties more were enough for “tokens of a triage”",
        ),
        (flip(Cost, "ratio", true, 2.0, 4.0), "×4 instead of ×2 were tolerated for “tokens of a triage”"),
        (flip(Gate, "probes", true, 0.0, 3.0), "the limit of “tokens of a triage” were 3 probes instead of 0 probes"),
        (flip(Cost, "ratio", false, 4.0, 2.0), "“tokens of a triage” were ×2 instead of ×4"),
        (flip(Cost, "ratio", false, 1.5, 2.0001), "“tokens of a triage” were above ×2 instead of ×1.5"),
        (flip(Cost, "ratio", false, 2.0, 2.0001), "“tokens of a triage” were slightly above ×2"),
        (ended(true, 3.6, 2.0), "the interval of “tokens of a triage” began at ×2 instead of ×3.6"),
        (ended(false, 1.5, 2.0001), "the interval of “tokens of a triage” ended above ×2 instead of ×1.5"),
        (ended(true, 2.0, 1.9999), "the interval of “tokens of a triage” began slightly below ×2"),
        (flip(Cost, "ratio", true, 2.0, 1.9999), "the bound of “tokens of a triage” were slightly below ×2"),
    ] {
        assert_eq!(flip.condition(), expected);
    }
    let flip = flip(Cost, "ratio", false, 4.0, 2.0);
    let stated = Flip { row: "time between copies".to_owned(), unit: "s".to_owned(), is_stated: true, ..flip.clone() };
    assert_eq!(stated.condition(), "the stated “time between copies” were 2 s instead of 4 s");
    assert_eq!(flip.outcome("s3"), "s3 would be undecided");
    assert_eq!(Flip { becomes: AdoptIf, ..flip }.outcome("s3"), "s3 would be chosen under a condition");
}

#[test]
fn a_kill_that_did_not_end_well_is_not_counted_as_one_that_lost_nothing() {
    for outcome in [Outcome::Hang, Outcome::WrongData, Outcome::Crash, Outcome::Errno] {
        for (policy, make, gate) in [
            ("coding-agent", coding as fn() -> Run, "Kills that lose a record"),
            ("cron-controller", cron, "Records lost in kills of a cron job's daemon"),
        ] {
            let mut run = make();
            evidence::cron_kills(&mut run, 60);
            run.faults.iter_mut().filter(|fault| fault.arm == "sqlite").for_each(|fault| fault.outcome = outcome);
            let found = of(policy, &run, "sqlite");
            let states = [gate, "Starts after a kill that need a hand"].map(|title| row(&found, title).state);
            assert_eq!((states, found.verdict), ([RowState::Unmet; 2], Archive), "{policy}, {outcome}");
        }
    }
}

#[test]
fn no_built_in_tail_is_one_of_the_kernels_caches() {
    let mut tails = 0;
    for name in built_in() {
        let (file, text) = find(&name).unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        for row in policy.rows().into_iter().flat_map(|(_, rows)| rows) {
            if let crate::measure::Measure::Tail(cell) = &row.measure {
                tails += 1;
                assert_ne!(cell.state, "hot", "{name}: {}", row.title);
            }
        }
    }
    assert_eq!(tails, 1);
}

#[test]
fn a_row_of_kills_is_kept_only_by_enough_of_them() {
    let title = "Records lost in kills of a cron job's daemon";
    for (kills, lost, state, words) in [
        (60, 0, RowState::Met, "0 records lost or torn in 60 kills (at most 4.9 % of kills)"),
        (59, 0, RowState::Met, "0 records lost or torn in 59 kills (at most 5.0 % of kills)"),
        (58, 0, RowState::Open, "0 records lost or torn in 58 kills (at most 5.1 % of kills)"),
        (4, 0, RowState::Open, "0 records lost or torn in 4 kills (at most 52.8 % of kills)"),
        (1, 0, RowState::Open, "0 records lost or torn in 1 kills (at most 95.0 % of kills)"),
        (60, 1, RowState::Unmet, "1 records lost or torn in 60 kills"),
        (4, 1, RowState::Unmet, "1 records lost or torn in 4 kills"),
    ] {
        let mut run = evidence::cron_view();
        evidence::cron_kills(&mut run, kills);
        run.faults.last_mut().unwrap().lost = lost;
        let found = of("cron-controller", &run, "view-vsm");
        let row = row(&found, title);
        assert_eq!(row.state, state, "{kills} kills: {}", row.candidate);
        assert!(row.candidate.starts_with(words), "{}", row.candidate);
        let verdict = match state {
            RowState::Met => Adopt,
            RowState::Open => NotDecided,
            _ => Archive,
        };
        assert_eq!(found.verdict, verdict, "{kills} kills");
        let gap = row.gap.as_ref().map(|gap| gap.command.as_str());
        let is_open = state == RowState::Open;
        let command = "ctxbench fault --crash-points 1000 --backend view-vsm";
        assert_eq!(gap, is_open.then_some(command));
    }
    // A view is killed by every run. So is a daemon of others.
    let mut run = evidence::cron_view();
    evidence::cron_kills(&mut run, 4);
    let promises = &mut run.plan.arms[2].backend.promises;
    promises.insert("killed-daemon".to_owned(), "close".to_owned());
    let found = of("cron-controller", &run, "view-vsm");
    let command = &row(&found, title).gap.as_ref().unwrap().command;
    assert_eq!(command, "ctxbench run --backend view-vsm");
}

#[test]
fn a_figure_that_measured_passes_do_not_bound_is_open_and_never_missing() {
    for (title, why, change) in UNKNOWN_FIGURES {
        let mut run = coding();
        // The run as a whole was quiet.
        run.plan.limits.busy_share = 1.0;
        change(&mut run);
        let found = of("coding-agent", &run, "sqlite");
        let row = row(&found, title);
        assert_eq!((row.state, row.effect), (RowState::Open, None), "{title}: {row:?}");
        assert!(row.candidate.starts_with("measured, but") && row.candidate.contains(why), "{}", row.candidate);
        assert_eq!((found.verdict, &found.missing), (NotDecided, &Vec::new()), "{title}");
    }
}

#[test]
fn the_turns_of_a_recording_without_times_are_assumed_and_said_to_be() {
    let mut run = coding();
    let workload = "agent/claude-code-write-heavy";
    let share = |run: &Run| {
        let found = of("coding-agent", run, "sqlite");
        row(&found, "Wait for replayed file calls of a session").clone()
    };
    evidence::set_session(&mut run, workload, Some(36_000));
    let recorded = share(&run);
    evidence::set_session(&mut run, workload, None);
    let planned = run.plan.workloads.iter_mut().find(|planned| planned.name == workload);
    planned.unwrap().turns = Some(10);
    let assumed = share(&run);
    assert_eq!((assumed.effect, assumed.state), (recorded.effect, recorded.state));
    assert!(assumed.candidate.contains("the recording has no times: 10 turns of "), "{}", assumed.candidate);
    assert_eq!((recorded.provenance, assumed.provenance), (Provenance::Measured, Provenance::Computed));
}

#[test]
fn the_kills_of_a_cron_jobs_daemon_count_for_its_durability() {
    let kill = |run: &Run| {
        let found = of("coding-agent", run, "sqlite");
        row(&found, "Kills that lose a record").clone()
    };
    let mut run = coding();
    run.crash_points.retain(|points| points.loss != "killed-daemon");
    evidence::cron_kills(&mut run, 60);
    assert_eq!(kill(&run).state, RowState::Met);
    for fault in &mut run.faults[1..11] {
        fault.recovered = false;
    }
    let lost = kill(&run);
    assert_eq!(lost.state, RowState::Unmet, "{}", lost.candidate);
    run.faults.iter_mut().for_each(|fault| fault.killed = false);
    assert_eq!(kill(&run).state, RowState::Missing, "its daemon lived");
    let found = of("coding-agent", &run, "sqlite");
    let start = row(&found, "Starts after a kill that need a hand");
    assert_eq!(start.gap.as_ref().unwrap().what, "fault cron-kill on sqlite: a run found no process to kill");
    run.plan.arms[2].backend.daemons = 0;
    assert_eq!(kill(&run).candidate, "no daemon to kill");
}

#[test]
fn a_benefit_of_one_session_is_a_condition_and_never_sure() {
    let mut run = evidence::long_context();
    assert_eq!(of("long-context", &run, "evict").verdict_words(), "adopt");
    evidence::evict_nothing(&mut run, true, 0);
    let found = of("long-context", &run, "evict");
    let words = found.verdict_words();
    assert!(words.starts_with("adopt if (fragile: "), "{words}");
    let condition = "they fill most of the context";
    assert_eq!(found.conditions, [condition], "once for both benefits");
    let largest = row(&found, "Largest prompt");
    assert_eq!(largest.state, RowState::Conditional);
    assert!(largest.candidate.ends_with("; ×1 in 3 other sessions"), "{}", largest.candidate);
    // One session of four is enough for a condition.
    let mut run = evidence::long_context();
    let inline = run.contexts[0].clone();
    for context in &mut run.contexts {
        if context.workload == "agent/claude-code-compaction" && context.policy == "evict" {
            context.conversation = inline.conversation.clone();
        }
    }
    assert_eq!(of("long-context", &run, "evict").verdict, AdoptIf);
}

#[test]
fn a_share_of_questions_has_the_interval_of_its_sample() {
    for (outdated, of_questions, state) in [
        (0, 39, RowState::Open),
        (2, 39, RowState::Open),
        (8, 39, RowState::Unmet),
        (0, 104, RowState::Met),
        (0, 103, RowState::Open),
        (15, 39, RowState::Unmet),
        (80, 390, RowState::Unmet),
    ] {
        let mut run = memory();
        let passes = testing::passes(&mut run, evidence::CHANGED, "sqlite");
        for pass in passes {
            let counts = pass.scores.get_mut(":recall balanced").unwrap();
            let outdated = rundir::Score { sum: outdated, of: of_questions };
            counts.insert("stale".to_owned(), outdated);
        }
        let found = of("agent-memory", &run, "sqlite");
        let row = row(&found, "Outdated answers of the default recall");
        assert_eq!(row.state, state, "{outdated} of {of_questions}: {:?}", row.effect);
        let is_said = row.says.starts_with("“outdated answers of the default recall” is open: about ");
        assert_eq!(is_said, state == RowState::Open, "{outdated} of {of_questions}: {}", row.says);
        let method = format!("(:recall balanced: {outdated} in {of_questions} questions)");
        assert!(row.candidate.contains(&method), "{}", row.candidate);
        let effect = row.effect.unwrap();
        assert!(effect.low < effect.high, "{effect:?}");
    }
}

#[test]
fn what_copies_show_late_by_a_schedule_is_simulated() {
    let mut run = evidence::inbox();
    let lag = |run: &Run| {
        let found = of("inbox", run, "direct");
        let of_row = |title| {
            let row = row(&found, title);
            (row.provenance, row.figure())
        };
        (of_row("Delay until a commit is seen"), of_row("Stale answers"))
    };
    let (late, stale) = lag(&run);
    assert_eq!((late.0, stale.0), (Provenance::Measured, Provenance::Measured));
    for workload in ["agent/inbox-find", "agent/inbox-triage"] {
        evidence::score(&mut run, workload, "direct", "task", &[("copies", 3)]);
    }
    let (late, stale) = lag(&run);
    assert_eq!((late.0, stale.0), (Provenance::Simulated, Provenance::Simulated));
    assert!(late.1.starts_with("◐ "), "{}", late.1);
    // The mail that a view shows is late by the clock.
    let view = of("inbox", &run, "view-mail");
    let late = row(&view, "Delay until a commit is seen");
    assert_eq!(late.provenance, Provenance::Measured);
}

#[test]
fn a_policy_finds_an_arm_on_any_server_as_a_claim_does() {
    let text = find("coding-agent").unwrap().1;
    let mut run = coding();
    testing::rename_arm(&mut run, "direct", "s3-embedded");
    let run = run;
    let of_baseline = |name: &str| {
        let text = text.replacen("baseline = \"direct\"", &format!("baseline = {name:?}"), 1);
        let policy = Policy::parse(Path::new("p.toml"), &text).unwrap();
        let is_there = policy.check_baselines(Path::new("p.toml"), &text, &run.plan).is_ok();
        let mut found = decisions_of_text(&text, &run).into_iter();
        let found = found.find(|decision| decision.candidate == "sqlite");
        let found = found.unwrap();
        let state = row(&found, "Time of git status, log, commit and checkout").state;
        (is_there, found.baseline, state)
    };
    let named = ("s3-embedded".to_owned(), RowState::Met);
    for name in ["s3-embedded", "s3"] {
        let (is_there, baseline, state) = of_baseline(name);
        assert!(is_there, "{name}");
        assert_eq!((baseline, state), named, "{name}");
    }
    let (is_there, baseline, state) = of_baseline("s3-minio");
    assert!(!is_there);
    assert_eq!((baseline.as_str(), state), ("s3-minio", RowState::Missing));
}

#[test]
fn the_bound_of_lost_records_falls_with_the_number_of_kills() {
    let mut run = coding();
    run.faults.clear();
    let kill = |run: &Run| {
        let found = of("coding-agent", run, "sqlite");
        row(&found, "Kills that lose a record").clone()
    };
    let enough = kill(&run);
    assert_eq!(enough.state, RowState::Met);
    assert_eq!(enough.candidate, "0 of 60 kills lost a record (95 %: at most 4.9 % of kills)");
    let points = run.crash_points.iter_mut();
    points.for_each(|points| points.points = 58);
    let few = kill(&run);
    assert_eq!(few.state, RowState::Open);
    let command = "ctxbench fault --crash-points 1000 --backend sqlite";
    assert_eq!(few.gap.unwrap().command, command);
    kills(&mut run, "sqlite", 1);
    assert_eq!(kill(&run).state, RowState::Open, "1 of 60 is at most 7.7 %");
    run.crash_points.clear();
    assert_eq!(kill(&run).state, RowState::Missing);
    // Nothing can be killed without a daemon. A power cut that does not apply shows nothing.
    for loss in ["killed-daemon", "power-loss"] {
        let points = CrashPoints::not_run("sqlite", loss, Status::Unfit, "no daemon");
        run.crash_points.push(points);
    }
    assert_eq!(kill(&run).state, RowState::Missing, "its daemon was not killed");
    run.plan.arms[2].backend.daemons = 0;
    assert_eq!(kill(&run).state, RowState::Met);
    let found = of("coding-agent", &run, "sqlite");
    let cut = row(&found, "Power cuts that lose a record");
    assert_eq!(cut.state, RowState::Missing);
}
