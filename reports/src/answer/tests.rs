//! Answers on planted evidence: each branch of their words is in a snapshot, and each screen keeps its limits.

use std::fmt::Write;
use std::path::Path;

use rundir::faults::{Audit, CrashPoints, Status};
use rundir::{Outcome, Run};
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::render::partial_answer;
use figures::context::contexts;
use figures::prices::Prices;
use figures::summary::summarise;
use figures::testing;
use figures::text::lower;
use verdicts::decide::{Evidence, Policy, decide, find, identity};
use verdicts::testing::evidence::{
    UNKNOWN_FIGURES, coding, cron_view, evict_nothing, exploration, inbox, long_context, memory, roaming,
};

const POLICY: &str = r#"
name = "test-use"
question = "Should an agent work on a mount?"
essay = "For tests."
baseline = "direct"
benefits_needed = 1

[advice]
title = "Test use"
keep = "Keep a plain directory"
choose = "Work on {candidate}"

[candidates]
can = ["mount"]

[[gate]]
title = "All common tools work"
measure.probes = { aspect = "tool" }
unit = "probes"
at_most = 0

[[benefit]]
title = "Reads take half the time"
measure.latency = { workload = "micro/read", state = "hot", metric = "read" }
unit = "ratio"
at_most = 0.5

[[benefit]]
title = "More state is kept when the power goes"
measure.kept = { loss = "power-loss" }
unit = "share more"
at_least = 0.05

[[cost]]
title = "Waiting for files in a recorded session"
measure.latency = { workload = "agent/session", state = "hot", metric = "makespan" }
unit = "session share"
at_most = 0.001
condition = { calls-a-turn = 0.01 }

[[cost]]
title = "Failed calls after daemon crashes"
measure.faults = { scenarios = ["cron-kill"], figure = "failed-calls" }
unit = "calls more"
at_most = 2

[[listed]]
title = "What must be run"
measure.burden = { of = ["processes", "mounts"] }
"#;

/// A run in which `sqlite` keeps more after power cuts than `direct`, and was planned with [`POLICY`].
fn good() -> Run {
    let mut run = testing::run();
    power_cuts(&mut run, 5, 10);
    let mut workloads = run.plan.workloads.iter_mut();
    let session = workloads.find(|workload| workload.name == "agent/session");
    session.unwrap().session_ms = Some(2_000_000);
    let policies = &mut run.plan.policies;
    policies.insert("test-use".to_owned(), identity(POLICY));
    run
}

/// Sets the power cuts: of ten records so many are there after each.
fn power_cuts(run: &mut Run, direct: u64, sqlite: u64) {
    run.crash_points.clear();
    for (backend, present) in [("direct", direct), ("sqlite", sqlite)] {
        let audit = Audit { present, unpromised: 10 - present, ..Audit::default() };
        run.crash_points.push(CrashPoints {
            points: 60,
            audit,
            ..CrashPoints::not_run(backend, "power-loss", Status::Ran, "")
        });
    }
}

fn fail_tool(run: &mut Run, arm: &str) {
    let mut probes = run.probes.iter_mut();
    let probe = probes.find(|probe| probe.arm == arm && probe.name == "grep");
    probe.unwrap().outcome = Outcome::Errno;
}

/// Adds an arm with all evidence about `sqlite`.
fn second_arm(run: &mut Run, name: &str) {
    testing::copy_arm(run, "sqlite", name);
    let copies = |all: &mut Vec<rundir::Probe>| {
        let of_sqlite = all.iter().filter(|probe| probe.arm == "sqlite");
        let copies = of_sqlite.cloned().map(|mut probe| {
            name.clone_into(&mut probe.arm);
            probe
        });
        let copies: Vec<rundir::Probe> = copies.collect();
        all.extend(copies);
    };
    copies(&mut run.probes);
    let mut fault = run.faults[1].clone();
    name.clone_into(&mut fault.arm);
    run.faults.push(fault);
    let points = run.crash_points.iter();
    let mut points: Vec<CrashPoints> = points.filter(|points| points.backend == "sqlite").cloned().collect();
    for points in &mut points {
        name.clone_into(&mut points.backend);
    }
    run.crash_points.extend(points);
}

fn overview_by(text: &str, run: &Run) -> Overview {
    let policy = Policy::parse(Path::new("p.toml"), text).unwrap();
    let summary = summarise(run).unwrap();
    let contexts = contexts(run, &Prices::built_in().unwrap()).unwrap();
    let evidence = Evidence::of(run, &summary, &contexts);
    let decisions = decide(&policy, text, &evidence);
    Overview::of(&decisions, &evidence.runs)
}

fn overview(run: &Run) -> Overview {
    overview_by(POLICY, run)
}

/// A planted change of [`good`], the expected kind of advice and its confidence.
type PlantedChange = (&'static str, AdviceKind, Confidence, fn(&mut Run));

const PLANTINGS: [PlantedChange; 19] = [
    ("as made", AdviceKind::Choose, Confidence::Sure, |_| {}),
    ("two equal candidates", AdviceKind::Choose, Confidence::Sure, |run| second_arm(run, "other")),
    ("two candidates, one fails a tool", AdviceKind::Choose, Confidence::Sure, |run| {
        second_arm(run, "other");
        fail_tool(run, "sqlite");
    }),
    ("two candidates, the other has no probes", AdviceKind::Choose, Confidence::Sure, |run| {
        second_arm(run, "other");
        run.probes.retain(|probe| probe.arm != "other");
    }),
    ("a benefit near its bound", AdviceKind::Choose, Confidence::Fragile, |run| {
        power_cuts(run, 10, 10);
        testing::scale(run, "sqlite", 0.2465);
    }),
    ("a session waits longer than its margin", AdviceKind::ChooseIf, Confidence::Fragile, |run| {
        let mut workloads = run.plan.workloads.iter_mut();
        let session = workloads.find(|workload| workload.name == "agent/session");
        session.unwrap().session_ms = Some(6_000);
    }),
    ("a tool fails", AdviceKind::Keep, Confidence::Sure, |run| fail_tool(run, "sqlite")),
    ("no benefit", AdviceKind::Keep, Confidence::Sure, |run| {
        power_cuts(run, 10, 10);
    }),
    ("a benefit that is too small", AdviceKind::Keep, Confidence::Sure, |run| {
        power_cuts(run, 10, 10);
        testing::scale(run, "sqlite", 0.4);
    }),
    ("no benefit, and two candidates", AdviceKind::Keep, Confidence::Sure, |run| {
        power_cuts(run, 10, 10);
        second_arm(run, "other");
    }),
    ("a cost that no condition excuses", AdviceKind::Keep, Confidence::Sure, |run| run.faults[1].failed_calls = 20),
    ("one wrong byte", AdviceKind::Keep, Confidence::Sure, |run| {
        let first = testing::passes(run, "micro/read", "sqlite").next();
        first.unwrap().outcome = Outcome::WrongData;
    }),
    ("no daemon was killed", AdviceKind::NotDecided, Confidence::NotDecided, |run| run.faults.clear()),
    ("a busy machine, and every figure far inside its margin", AdviceKind::Choose, Confidence::Sure, |run| {
        testing::make_busy(run)
    }),
    ("the baseline fails", AdviceKind::NotDecided, Confidence::NotDecided, |run| {
        let first = testing::passes(run, "micro/read", "direct").next();
        first.unwrap().outcome = Outcome::WrongData;
    }),
    ("two candidates, one archived and one without evidence", AdviceKind::NotDecided, Confidence::NotDecided, |run| {
        second_arm(run, "other");
        fail_tool(run, "sqlite");
        run.probes.retain(|probe| probe.arm != "other");
    }),
    ("a candidate behind a simulated distance", AdviceKind::Choose, Confidence::Sure, |run| {
        second_arm(run, "sqlite@30ms");
        run.plan.arms.retain(|arm| arm.name != "sqlite");
    }),
    ("all epochs but two were busy", AdviceKind::NotDecided, Confidence::NotDecided, |run| {
        run.samples.retain(|sample| sample.epoch < 2)
    }),
    ("a policy that was not planned", AdviceKind::Choose, Confidence::Sure, |run| run.plan.policies.clear()),
];

#[test]
fn each_planting_leads_to_its_advice_and_words() {
    let mut text = String::new();
    for (name, kind, confidence, plant) in PLANTINGS {
        let mut run = good();
        plant(&mut run);
        let found = overview(&run);
        let [answer] = found.uses.as_slice() else {
            panic!("{name}: {:?}", found.uses);
        };
        writeln!(text, "== {name}").unwrap();
        for sentence in answer.sentences() {
            writeln!(text, "{sentence}").unwrap();
        }
        for line in found.answer_lines(3) {
            writeln!(text, "|{line}").unwrap();
        }
        assert_eq!((answer.kind, answer.confidence), (kind, confidence), "{name}\n{text}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_arm_that_only_runs_of_other_questions_have_leaves_a_use_decided() {
    let mut run = good();
    fail_tool(&mut run, "sqlite");
    let mut more = good();
    second_arm(&mut more, "other");
    more.plan.arms.retain(|arm| arm.name != "sqlite");
    more.probes.retain(|probe| probe.arm != "other");
    let policy = Policy::parse(Path::new("p.toml"), POLICY).unwrap();
    let answer = |runs: [&Run; 2]| {
        let summaries = runs.map(|run| summarise(run).unwrap());
        let contexts = runs.map(|run| contexts(run, &Prices::built_in().unwrap()).unwrap());
        let runs = (0..2).flat_map(|at| Evidence::of(runs[at], &summaries[at], &contexts[at]).runs);
        let evidence = Evidence { runs: runs.collect() };
        let decisions = decide(&policy, POLICY, &evidence);
        Overview::of(&decisions, &evidence.runs).uses.remove(0)
    };
    // A run that was planned with the policy asks about its arms.
    assert_eq!(answer([&run, &more]).kind, AdviceKind::NotDecided);
    more.plan.policies.clear();
    let decided = answer([&run, &more]);
    assert_eq!((decided.kind, &decided.undecided[..]), (AdviceKind::Keep, &["other".to_owned()][..]));
    assert!(decided.planned, "one program made both runs");
    let words = decided.sentences().join(" ");
    assert!(words.contains("Not decided: other."), "{words}");
    more.environment.binary_sha256 = "f".repeat(64);
    assert!(!answer([&run, &more]).planned);
    run.plan.policies.clear();
    assert_eq!(answer([&run, &more]).kind, AdviceKind::NotDecided);
}

#[test]
fn a_fragile_answer_says_what_makes_it_so_and_no_other_answer_does() {
    const UNMEASURED: &str = "no run measured a real network";
    let with_unmeasured = POLICY.replacen("[advice]\n", "[advice]\nunmeasured = \"a real network\"\n", 1);
    assert_ne!(with_unmeasured, POLICY);
    for (name, kind, confidence, plant) in PLANTINGS {
        let mut run = good();
        plant(&mut run);
        let is_choice = matches!(kind, AdviceKind::Choose | AdviceKind::ChooseIf);
        for (policy, has_unmeasured) in [(POLICY, false), (&with_unmeasured, is_choice)] {
            let answer = overview_by(policy, &run).uses.remove(0);
            let is_fragile = answer.confidence == Confidence::Fragile;
            assert_eq!(is_fragile, confidence == Confidence::Fragile || has_unmeasured, "{name}");
            assert_eq!(answer.fragile.iter().any(|clause| clause == UNMEASURED), has_unmeasured, "{name}");
            let turns = answer.fragile.iter().filter(|clause| clause.contains(" if "));
            assert_eq!(turns.count(), usize::from(confidence == Confidence::Fragile), "{name}: {:?}", answer.fragile);
            for said in [answer.sentences().join(" "), answer.lines(80, 6).join(" ")] {
                assert_eq!(said.contains("Fragile: "), is_fragile, "{name}: {said}");
            }
        }
    }
}

#[test]
fn every_figure_of_an_answer_is_one_of_its_decision() {
    for (name, _, _, plant) in PLANTINGS {
        let mut run = good();
        plant(&mut run);
        let policy = Policy::parse(Path::new("p.toml"), POLICY).unwrap();
        let summary = summarise(&run).unwrap();
        let contexts = contexts(&run, &Prices::built_in().unwrap()).unwrap();
        let evidence = Evidence::of(&run, &summary, &contexts);
        let decisions = decide(&policy, POLICY, &evidence);
        for answer in Overview::of(&decisions, &evidence.runs).uses {
            let mut of_candidate = decisions.iter();
            let decision = of_candidate.find(|decision| decision.candidate == answer.candidate);
            let rows = &decision.unwrap().rows;
            for figure in answer.figures.iter().chain(&answer.costs) {
                let row = rows.iter().find(|row| row.title == figure.title).unwrap();
                let value = row.effect.map(|effect| effect.value);
                assert_eq!(figure.value, value, "{name}: {}", figure.title);
                assert_ne!(figure.provenance, "declared", "{name}: {}", figure.title);
                let is_simulated = figure.provenance == "simulated";
                let of_power = figure.title == "More state is kept when the power goes";
                let is_far = answer.candidate.contains('@');
                assert_eq!(is_simulated, of_power || is_far, "{name}: {}", figure.title);
                let marked = format!("({} ", figure.mark);
                assert!(figure.words("").contains(&marked), "{}", figure.words(""));
            }
        }
    }
}

/// [`POLICY`] with a benefit of properties.
fn with_properties() -> String {
    let row = "\n[[benefit]]\ntitle = \"Properties\"\nmeasure.property = { of = [\"snapshot\", \"portable\", \"fork\"] }\nunit = \"properties more\"\nat_least = 1\n";
    format!("{POLICY}{row}")
}

/// Lets the properties of an arm be what its probes found.
fn properties(run: &mut Run, arm: &str, found: [Outcome; 3]) {
    for (name, outcome) in ["snapshot", "portable", "fork"].into_iter().zip(found) {
        run.probes.push(match outcome {
            Outcome::Skipped => rundir::Probe::not_offered("property", name, arm),
            _ => rundir::Probe::new("property", name, arm, outcome, "scripted"),
        });
    }
}

/// A run in which `sqlite` and `other` cost too much and only `other` shows a benefit.
fn none_wins() -> Run {
    let mut run = good();
    power_cuts(&mut run, 10, 10);
    second_arm(&mut run, "other");
    for fault in &mut run.faults {
        fault.failed_calls *= 20;
    }
    use Outcome::{Ok, Skipped};
    properties(&mut run, "direct", [Skipped, Ok, Skipped]);
    properties(&mut run, "sqlite", [Skipped, Ok, Skipped]);
    properties(&mut run, "other", [Ok, Skipped, Skipped]);
    run
}

#[test]
fn an_answer_that_keeps_the_baseline_says_which_probed_need_would_change_it() {
    let run = none_wins();
    let answer = overview_by(&with_properties(), &run).uses.remove(0);
    assert_eq!(answer.kind, AdviceKind::Keep);
    // It lacks one thing, a cost; `sqlite` lacks a benefit, too. A property of the plain directory is not a reason.
    assert_eq!(answer.candidate, "other");
    assert_eq!(
        answer.headline(),
        "Keep a plain directory (sure, by a policy that is newer than the run), unless you need snapshots, which other has (● tried)."
    );
    assert_eq!(answer.otherwise, "");
    let said = answer.lines(80, 4).join(" ");
    assert!(said.contains("sqlite shows no benefit, and has this cost, too (20 calls more)."), "{said}");
}

#[test]
fn a_benefit_below_its_bound_is_called_small_and_none_is_called_none() {
    let mut run = good();
    power_cuts(&mut run, 10, 10);
    second_arm(&mut run, "other");
    testing::scale(&mut run, "sqlite", 0.4);
    let answer = overview(&run).uses.remove(0);
    assert_eq!(answer.reason, "The closest candidate (sqlite) shows too small a benefit.");
    assert_eq!((answer.without_benefit.as_slice(), answer.small_benefit.len()), (["other".to_owned()].as_slice(), 0));
    let said = answer.sentences().join(" ");
    // The bound of a benefit is no limit.
    assert!(said.contains("; needed: ×0.5 or less)") && !said.contains("needed at most"), "{said}");
    assert!(said.contains("other shows no benefit."), "{said}");
    testing::scale(&mut run, "other", 0.4);
    let answer = overview(&run).uses.remove(0);
    let said = answer.sentences().join(" ");
    assert!(said.contains("other shows too small a benefit."), "{said}");
}

#[test]
fn a_busy_run_leaves_a_tail_open_and_blames_the_machine() {
    let row = "\n[[cost]]\ntitle = \"Tail of reads\"\nmeasure.tail = { workload = \"micro/read\", state = \"hot\", metric = \"read\" }\nunit = \"ms more\"\nat_most = 10\n";
    let text = format!("{POLICY}{row}");
    let mut run = good();
    assert_eq!(overview_by(&text, &run).uses[0].kind, AdviceKind::Choose);
    testing::make_busy(&mut run);
    let answer = overview_by(&text, &run).uses.remove(0);
    assert_eq!(answer.advice, "Not decided: the machine was busy.");
    assert!(!answer.lacks_evidence);
    assert_eq!(answer.command, run.plan.command);
    let words = format!("To decide, without other work: {}", run.plan.command);
    assert!(answer.sentences().contains(&words), "{:?}", answer.sentences());
}

#[test]
fn a_short_try_that_left_out_programs_is_measured_longer_and_not_the_programs_alone() {
    let row = "\n[[cost]]\ntitle = \"Git\"\nmeasure.latency = { workload = \"program/git\", state = \"hot\", metric = \"makespan\" }\nunit = \"ratio\"\nat_most = 2\n";
    let text = format!("{POLICY}{row}");
    let mut run = good();
    for (budget, expected) in [("5", "ctxbench try SESSION --budget 60"), ("60", "ctxbench run --workload program/git")]
    {
        run.plan.command = format!("ctxbench try SESSION --budget {budget}");
        let answer = overview_by(&text, &run).uses.remove(0);
        assert!(answer.command.starts_with(expected), "{}", answer.command);
    }
}

#[test]
fn sessions_of_the_user_are_measured_longer_by_their_own_command() {
    let mut run = good();
    run.plan.command = "ctxbench try SESSION --budget 60".to_owned();
    // Three epochs that differ leave the bound in the interval.
    let row = "\n[[cost]]\ntitle = \"Time of a read\"\nmeasure.latency = { workload = \"micro/read\", state = \"hot\", metric = \"read\" }\nunit = \"ratio\"\nat_most = BOUND\n";
    let ratio = overview_by(&format!("{POLICY}{}", row.replace("BOUND", "1000")), &run).calls.rows[0].cells[0].ratio;
    let text = format!("{POLICY}{}", row.replace("BOUND", &ratio.unwrap().to_string()));
    let answer = overview_by(&text, &run).uses.remove(0);
    assert_eq!(answer.kind, AdviceKind::NotDecided, "{}", answer.advice);
    assert_eq!(answer.command, "ctxbench try SESSION --budget 120");
    run.plan.command = "ctxbench run --suite default".to_owned();
    let answer = overview_by(&text, &run).uses.remove(0);
    assert!(answer.command.starts_with("ctxbench run --workload micro/read"), "{}", answer.command);
}

#[test]
fn a_use_whose_figures_are_open_does_not_lack_evidence() {
    let row = "\n[[gate]]\ntitle = \"Few kills\"\nmeasure.durability = { loss = \"killed-daemon\" }\nunit = \"share\"\nat_most = 0.05\n";
    let answer = overview_by(&format!("{POLICY}{row}"), &good()).uses.remove(0);
    assert_eq!(answer.advice, "Not decided: too few kills of sqlite for “few kills”.");
    assert!(!answer.lacks_evidence);
    let mut run = good();
    run.faults.clear();
    let answer = overview_by(&format!("{POLICY}{row}"), &run).uses.remove(0);
    assert!(answer.lacks_evidence, "{}", answer.advice);
}

#[test]
fn a_time_that_is_shorter_than_the_baselines_is_no_cost() {
    let row = "\n[[cost]]\ntitle = \"Time of a read\"\nmeasure.latency = { workload = \"micro/read\", state = \"hot\", metric = \"read\" }\nunit = \"ms\"\nat_most = 1000\n";
    let costs = |factor: f64| {
        let mut run = good();
        testing::scale(&mut run, "sqlite", factor);
        let answer = overview_by(&format!("{POLICY}{row}"), &run).uses.remove(0);
        answer.costs.into_iter().map(|cost| cost.title).collect::<Vec<_>>()
    };
    assert!(costs(1.0).contains(&"Time of a read".to_owned()));
    assert!(!costs(0.05).contains(&"Time of a read".to_owned()));
}

#[test]
fn of_equal_candidates_the_one_with_less_to_run_is_named_and_noise_names_none() {
    let run = |factor: f64, has_bucket: bool| {
        let mut run = good();
        power_cuts(&mut run, 10, 10);
        second_arm(&mut run, "other");
        testing::scale(&mut run, "other", factor);
        for arm in run.plan.arms.iter_mut().filter(|arm| arm.name == "sqlite") {
            arm.backend.has_bucket = has_bucket;
        }
        overview(&run).uses.remove(0).candidate
    };
    assert_eq!(run(1.0, false), "sqlite", "the first of the plan");
    assert_eq!(run(1.0, true), "other", "it needs no server");
    // The intervals overlap, so the faster copy does not come first.
    assert_eq!(run(0.999, false), "sqlite");
    // Ten times as far from its bound.
    assert_eq!(run(10.0, true), "sqlite");
    assert_eq!(run(0.3, false), "other");
}

#[test]
fn an_answer_does_not_name_the_embedded_server_of_a_run() {
    let mut run = good();
    second_arm(&mut run, "s3-embedded");
    run.plan.arms.retain(|arm| arm.name != "sqlite");
    let found = overview(&run);
    assert_eq!(found.uses[0].candidate, "s3-embedded");
    let screen = found.terminal(&[]);
    assert!(screen.contains("Work on s3 (sure)"), "{screen}");
    assert!(!screen.contains("embedded"), "{screen}");
}

#[test]
fn files_of_a_small_model_are_answered_by_the_command_that_asks_a_capable_one() {
    let mut run = testing::run();
    run.model_files.as_mut().unwrap().model = "SmolLM2-135M-Instruct".to_owned();
    let (_, text) = find("exploration").unwrap();
    let found = overview_by(&text, &run);
    let answer = &found.uses[0];
    assert_eq!(answer.headline(), "Not decided: llm-generate needs a capable model.");
    let command = "CTXBENCH_MODEL_URL=… CTXBENCH_MODEL_NAME=… CTXBENCH_API_KEY=… ctxbench run --suite model-files";
    assert_eq!(answer.command, command);
    let screen = found.terminal(&[]);
    let said = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.matches(command).count(), 1, "{screen}");
    let sentences = answer.sentences().join(" ");
    assert!(sentences.contains("(135 million parameters) is too small"), "{sentences}");
}

#[test]
fn a_policy_without_words_of_its_own_is_named_by_its_file() {
    let (before, after) = POLICY.split_once("[advice]").unwrap();
    let (_, after) = after.split_once("\n\n").unwrap();
    let text = format!("{before}{after}");
    let answer = overview_by(&text, &good()).uses.remove(0);
    assert_eq!(answer.title, "Test use");
    assert_eq!(answer.advice, "Use sqlite.");
    let mut run = good();
    fail_tool(&mut run, "sqlite");
    let answer = overview_by(&text, &run).uses.remove(0);
    assert_eq!(answer.advice, "Keep a plain directory.");
    let wrong = POLICY.replace("Work on {candidate}", "Work there");
    let refused = Policy::parse(Path::new("p.toml"), &wrong).unwrap_err();
    let refused = refused.to_string();
    let expected = "p.toml:11: field `advice.choose`: must name the candidate as {candidate}";
    assert!(refused.starts_with(expected), "{refused}");
}

#[test]
fn losses_and_failures_are_sentences_with_counts_and_bounds() {
    let losses = |arm: &str, kills, power_cuts, lost| StoreLosses {
        arm: arm.to_owned(),
        kills,
        power_cuts,
        lost,
        unreadable: 0,
        example: None,
    };
    let none = [0, 0];
    for (found, not_tried, expected) in [
        (vec![], vec![], ""),
        (
            vec![losses("a", 60, 60, none), losses("b", 60, 60, none)],
            vec![],
            "Lost: 0 acknowledged records in ● 60 kills and ◐ 60 simulated power cuts of each of a, b (at most 5 % of kills and of power cuts lose one).",
        ),
        (
            vec![losses("a", 1000, 0, none)],
            vec!["b"],
            "Lost: 0 acknowledged records in ● 1,000 kills of a (at most 0.3 % of kills lose one). No kill and no power cut was tried on b.",
        ),
        (
            vec![losses("a", 1, 0, none), losses("b", 0, 60, none)],
            vec![],
            "Lost: 0 acknowledged records in ◐ 60 simulated power cuts of b (at most 5 % of power cuts lose one); ● 1 kill of a (at most 95 % of kills lose one).",
        ),
        (
            vec![losses("a", 60, 60, [0, 1]), losses("b", 60, 60, none)],
            vec![],
            "a LOST 1 acknowledged record in ● 60 kills and ◐ 60 simulated power cuts. Lost: 0 acknowledged records in ● 60 kills and ◐ 60 simulated power cuts of b (at most 5 % of kills and of power cuts lose one).",
        ),
        (
            vec![StoreLosses { example: Some("cut 4: record 16 is phantom".to_owned()), ..losses("a", 60, 4, [0, 1]) }],
            vec![],
            "a LOST 1 acknowledged record in ● 60 kills and ◐ 4 simulated power cuts (cut 4: record 16 is phantom).",
        ),
    ] {
        let not_tried: Vec<String> = not_tried.into_iter().map(str::to_owned).collect();
        assert_eq!(kept::losses_words(&found, &not_tried), expected);
    }
    let mut run = good();
    let (found, not_tried) = (overview(&run).losses, overview(&run).not_killed);
    assert_eq!(found, [losses("sqlite", 1, 60, none)]);
    assert!(not_tried.is_empty());
    run.crash_points[1].audit.lost = 2;
    run.faults[1].lost = 1;
    run.crash_points[1].audit.unreadable = 5;
    run.crash_points[1].audit.examples = vec!["cut 1: it did not recover".to_owned()];
    let lost = overview(&run).losses.remove(0);
    assert_eq!((lost.lost, lost.unreadable), ([1, 2], 1), "records that cannot be read are not lost one by one");
    assert_eq!(lost.example.as_deref(), Some("cut 1: it did not recover"));
    run.crash_points.clear();
    run.faults.clear();
    assert_eq!(overview(&run).not_killed, ["sqlite"]);
    let passes = |run: &Run| overview(run).passes.words();
    assert_eq!(passes(&run), "Failures: 0 of 168 passes.");
    for (at, pass) in testing::passes(&mut run, "micro/read", "sqlite").enumerate() {
        pass.outcome = match at {
            0 | 1 => Outcome::Errno,
            2 => Outcome::Timeout,
            3 => Outcome::Skipped,
            _ => Outcome::Ok,
        };
    }
    assert_eq!(passes(&run), "Failures: 3 of 167 passes: sqlite 2 errno and 1 timeout.");
    run.samples.clear();
    assert_eq!(passes(&run), "No pass was made.");
}

#[test]
fn a_store_that_did_not_recover_lost_more_than_0_records() {
    let mut run = good();
    let cuts = run.crash_points.iter_mut().find(|points| points.backend == "sqlite").unwrap();
    (cuts.points, cuts.broken) = (1, Some(1));
    cuts.audit = Audit { unreadable: 10, ..Audit::unknown("it did not recover") };
    let found = overview(&run);
    let words = kept::losses_words(&found.losses, &found.not_killed);
    assert_eq!(words, "sqlite COULD NOT BE READ once in ● 1 kill and ◐ 1 simulated power cut.");
    // As a harness wrote it that did not count such points.
    run.crash_points.iter_mut().for_each(|points| points.broken = Some(0));
    assert_eq!(kept::losses_words(&overview(&run).losses, &[]), words);
    run.faults[1].recovered = false;
    run.faults[1].lost = 3;
    let found = overview(&run);
    let words = kept::losses_words(&found.losses, &found.not_killed);
    let expected =
        "sqlite LOST 3 acknowledged records and COULD NOT BE READ 2 times in ● 1 kill and ◐ 1 simulated power cut.";
    assert_eq!(words, expected);
}

#[test]
fn a_screen_counts_one_arm_as_one_and_cuts_placements_behind_a_clause() {
    let mut run = good();
    for name in ["one", "two", "three"] {
        second_arm(&mut run, name);
        testing::passes(&mut run, "micro/read", name).next().unwrap().outcome = Outcome::Errno;
    }
    testing::passes(&mut run, "micro/read", "sqlite").next().unwrap().outcome = Outcome::Errno;
    let mut found = overview(&run);
    assert!(found.passes.words().ends_with("; 1 more arm."), "{}", found.passes.words());
    found.calls.placements = format!("By placement: read ×1{}.", "; write ×1, up to ×9".repeat(9));
    let screen = found.terminal(&[]);
    let line = screen.lines().find(|line| line.contains("By placement")).unwrap();
    assert!(line.ends_with("; write ×1, up to ×9; …"), "{line}");
    while found.calls.arms.len() < 20 {
        found.calls.arms.push("another".to_owned());
    }
    let more = |found: &Overview| {
        let screen = found.terminal(&[]);
        screen.lines().find(|line| line.contains("in the report.")).unwrap_or_default().trim().to_owned()
    };
    let counts: Vec<String> = (0..20)
        .map(|_| {
            let words = more(&found);
            found.calls.arms.pop();
            words
        })
        .collect();
    assert!(counts.contains(&"1 more arm is in the report.".to_owned()), "{counts:?}");
}

#[test]
fn decided_uses_come_first_and_a_short_line_keeps_the_figures() {
    let run = testing::run();
    let (summary, contexts) = (summarise(&run).unwrap(), contexts(&run, &Prices::built_in().unwrap()).unwrap());
    let evidence = Evidence::of(&run, &summary, &contexts);
    let mut decisions = verdicts::testing::decisions();
    let last = decisions.last().unwrap().policy.clone();
    let of_last = decisions.iter_mut().filter(|decision| decision.policy == last);
    of_last.for_each(|decision| decision.verdict = verdicts::decide::PolicyVerdict::Archive);
    let found = Overview::of(&decisions, &evidence.runs);
    assert_eq!(found.uses[0].policy, last);
    let is_open: Vec<bool> = found.uses.iter().map(|answer| answer.kind == AdviceKind::NotDecided).collect();
    assert!(is_open.contains(&true) && is_open.contains(&false) && is_open.is_sorted(), "{is_open:?}");
    let mut answer = overview(&good()).uses.remove(0);
    answer.advice = "Work on it. ".repeat(12);
    let short = answer.lines(81, 3).join(" ");
    assert!(short.contains("Benefits: more state is kept when the power goes (◐ 50 % more)."), "{short}");
}

#[test]
fn the_small_table_has_times_ratios_and_failures_in_words() {
    let mut run = good();
    second_arm(&mut run, "partial");
    run.samples.retain(|pass| pass.arm != "partial" || pass.workload != "agent/session");
    let first = testing::passes(&mut run, "micro/read", "partial").last();
    first.unwrap().outcome = Outcome::Errno;
    let table = overview(&run).calls;
    assert_eq!(table.arms, ["sqlite", "partial"]);
    assert_eq!(table.title, "caches hot");
    let cell = |row: usize, arm: usize| table.rows[row].cells[arm].text.as_str();
    assert!(cell(0, 0).starts_with("×2.0"), "{}", cell(0, 0));
    assert!(cell(0, 0).contains(" ±0.0"), "{}", cell(0, 0));
    assert!(cell(0, 1).ends_with(", 1 of 28 failed"), "{}", cell(0, 1));
    assert_eq!(cell(1, 1), "not measured");
}

#[test]
fn a_ratio_is_written_with_the_digits_that_its_interval_earns() {
    for (ratio, low, high, expected) in [
        (1.3249, 1.31, 1.34, "×1.32 [1.31, 1.34]"),
        (5.84, 5.6, 6.1, "×5.8 [5.6, 6.1]"),
        (153.2, 148.0, 160.0, "×153 [148, 160]"),
        (0.47, 0.02, 13.2, "×0.47 [0.02, 13.2]"),
        (0.0041, 0.004, 0.0042, "×0.0041 [0.004, 0.0042]"),
    ] {
        assert_eq!(figure::ratio_words(ratio, low, high), expected);
    }
}

/// The widest and longest planted run: many arms and uses with long names, failures, losses, a busy machine.
fn largest() -> (Overview, Vec<String>) {
    let mut run = good();
    for at in 0..12 {
        let name = format!("{}-{at}", "an-arm-with-a-long-name-".repeat(9));
        second_arm(&mut run, &name);
        fail_tool(&mut run, &name);
        let pass = testing::passes(&mut run, "micro/read", &name).next();
        pass.unwrap().outcome = Outcome::Timeout;
    }
    testing::make_busy(&mut run);
    run.environment.scratch.fallback = Some("no root, ".repeat(40));
    run.environment.cpu = "Processor ".repeat(30);
    let mut found = overview(&run);
    let mut answers = Vec::new();
    for plant in PLANTINGS {
        let mut run = good();
        plant.3(&mut run);
        answers.extend(overview(&run).uses);
    }
    for answer in &mut answers {
        answer.title = "寫檔案的代理".repeat(9);
        answer.reason = format!("{} {}", answer.reason, "字".repeat(300));
        answer.others = run.plan.arms.iter().map(|arm| arm.name.clone()).collect();
    }
    found.uses.extend(answers);
    for wide in ["Δ".repeat(300), "一 二".repeat(100), "\u{1b}[31m\n".repeat(50)] {
        found.notes.push(wide.clone());
        found.missing.push(Remedy { command: wide.clone(), makes: vec![wide] });
    }
    let closing = vec![
        "Report: results/20261128-040000-default/report.html".to_owned(),
        "Why: ctxbench decide --policy coding-agent".to_owned(),
    ];
    (found, closing)
}

fn assert_small(screen: &str, closing: &[String]) {
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() <= LINES, "{} lines\n{screen}", lines.len());
    for line in &lines {
        assert!(line.width() <= WIDTH, "{} columns: {line}", line.width());
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    let last: Vec<&str> = lines[lines.len() - closing.len()..].to_vec();
    assert_eq!(last, closing);
}

#[test]
fn an_answer_says_which_operation_depends_on_the_placement() {
    let placements = |factor: f64| {
        let mut run = testing::run();
        testing::with_shared_cpu(&mut run, factor);
        let (summary, contexts) = (summarise(&run).unwrap(), contexts(&run, &Prices::built_in().unwrap()).unwrap());
        let evidence = Evidence::of(&run, &summary, &contexts);
        let found = Overview::of(&[], &evidence.runs);
        let screen = found.terminal(&[]);
        let words = found.calls.placements;
        assert_eq!(screen.contains("By placement"), !words.is_empty(), "{screen}");
        assert!(screen.contains(&words), "{screen}");
        words
    };
    assert_eq!(placements(0.5), "By placement: read ×1 on one processor, up to ×2 across two.");
    assert_eq!(placements(0.95), "");
    assert_eq!(placements(2.0), "");
}

#[test]
fn the_largest_planted_run_fits_a_screen_of_40_lines_and_100_columns() {
    let (found, closing) = largest();
    assert!(found.uses.len() > 15);
    assert_small(&found.terminal(&closing), &closing);
    let every = Overview { uses: found.uses.iter().cycle().take(200).cloned().collect(), ..found };
    assert_small(&every.terminal(&closing), &closing);
}

#[test]
fn a_listed_fact_is_in_the_answer_whether_or_not_the_use_is_decided() {
    let fact = "\n[[listed]]\ntitle = \"Answers\"\nsays = \"On planted notes, grep found {baseline}, recall {candidate}\"\n\
                measure.score = { workload = \"micro/read\", method = \"recall\", baseline_method = \"grep\", counts = [\"evidence-in-budget\"] }\n";
    let said = "On planted notes, grep found 100 of 100 in 293 tokens a question, recall 97 of 100 in 1,990 tokens a question.";
    for is_decided in [true, false] {
        let mut run = good();
        for (arm, method, found, tokens) in [("direct", "grep", 100, 29_300), ("sqlite", "recall", 97, 199_000)] {
            let scores = [("evidence-in-budget", found), ("tokens", tokens)];
            let scores = scores.map(|(name, sum)| (name.to_owned(), rundir::Score { sum, of: 100 }));
            for pass in testing::passes(&mut run, "micro/read", arm) {
                pass.scores.insert(method.to_owned(), scores.clone().into());
            }
        }
        if !is_decided {
            run.faults.clear();
        }
        let found = overview_by(&format!("{POLICY}{fact}"), &run);
        let [answer] = &found.uses[..] else { panic!("{:?}", found.uses) };
        assert_eq!(answer.confidence == Confidence::NotDecided, !is_decided);
        assert!(answer.sentences().iter().any(|sentence| sentence == said), "{:?}", answer.sentences());
        // A line of its own keeps it on a screen.
        let lines = answer_text(&found);
        assert!(lines.contains(said), "{lines}");
    }
}

/// The answers of a screen, in one line.
fn answer_text(found: &Overview) -> String {
    let lines = found.answer_lines(3);
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_scripted_run_by_all_policies_fits_and_reads_as_recorded() {
    let run = testing::run();
    let summary = summarise(&run).unwrap();
    let contexts = contexts(&run, &Prices::built_in().unwrap()).unwrap();
    let evidence = Evidence::of(&run, &summary, &contexts);
    let found = Overview::of(&verdicts::testing::decisions(), &evidence.runs);
    let closing = ["Report: results/scripted/report.html".to_owned()];
    let screen = found.terminal(&closing);
    assert_small(&screen, &closing);
    for title in ["Coding agent", "Several machines", "Agent notes"] {
        assert!(screen.contains(title), "{title}\n{screen}");
    }
    let one = overview(&good()).terminal(&closing);
    insta::assert_snapshot!(one);
}

#[test]
fn a_full_screen_keeps_the_advice_and_a_figure_of_every_use() {
    type PlantedRun = (&'static str, fn() -> Run);
    let planted: [PlantedRun; 7] = [
        ("coding-agent", coding),
        ("cron-controller", cron_view),
        ("inbox", inbox),
        ("long-context", long_context),
        ("roaming-agents", roaming),
        ("agent-memory", memory),
        ("exploration", exploration),
    ];
    let mut found = overview(&good());
    found.uses = planted.iter().flat_map(|(policy, run)| overview_by(&find(policy).unwrap().1, &run()).uses).collect();
    found.uses.iter_mut().for_each(|answer| answer.planned = true);
    // Everything else takes as many lines as it may.
    found.about = vec!["about the machine ".repeat(3); 3];
    found.identical_arms = "The baseline, measured twice, differs. ".repeat(7);
    found.calls.rows = found.calls.rows.iter().cycle().take(6).cloned().collect();
    found.calls.placements = "By placement: append ×4 on one processor, up to ×8 across two.".to_owned();
    found.not_killed = vec!["a-store-of-many".to_owned(); 12];
    let closing = ["Report: results/scripted/report.html".to_owned()];
    let screen = found.terminal(&closing);
    assert_small(&screen, &closing);
    let said: Vec<&str> = screen.lines().map(|line| line.get(19..).unwrap_or_default().trim()).collect();
    let said = said.join(" ");
    assert_eq!(found.uses.len(), planted.len());
    let mut chosen = 0;
    for answer in &found.uses {
        assert!(said.contains(&answer.headline()), "{}\n{screen}", answer.headline());
        if matches!(answer.kind, AdviceKind::Choose | AdviceKind::ChooseIf) {
            let words = format!("{} (", lower(&answer.figures[0].title));
            assert!(said.contains(&words), "{words}\n{screen}");
            chosen += 1;
        }
    }
    assert!(chosen > 3, "{screen}");
}

#[test]
fn a_figure_that_measured_passes_do_not_bound_is_named_as_open() {
    for (title, _, change) in UNKNOWN_FIGURES {
        let mut run = coding();
        // The run as a whole was quiet.
        run.plan.limits.busy_share = 1.0;
        change(&mut run);
        let summary = summarise(&run).unwrap();
        let contexts = contexts(&run, &Prices::built_in().unwrap()).unwrap();
        let evidence = Evidence::of(&run, &summary, &contexts);
        let (file, text) = find("coding-agent").unwrap();
        let policy = Policy::parse(&file, &text).unwrap();
        let mut decisions = decide(&policy, &text, &evidence).into_iter();
        let found = decisions.find(|decision| decision.candidate == "sqlite").unwrap();
        let answer = Overview::of(std::slice::from_ref(&found), &evidence.runs).uses.remove(0);
        // The busy passes of git leave each of its rows open; the first one is named.
        let is_named = title.contains("clone") || title.contains("git") || answer.advice.contains(&lower(title));
        assert!(is_named && answer.advice.ends_with("” of sqlite is not known."), "{}", answer.advice);
        assert!(!answer.lacks_evidence, "{title}");
        let sessions = ["agent/claude-code-write-heavy".to_owned()];
        if let Some(text) = partial_answer(&found, &sessions) {
            let text = text.replace('\n', " ");
            assert!(text.contains("Measured, but open: ") && text.contains(title), "{text}");
            assert!(!text.contains("Not measured"), "{text}");
        }
    }
}

#[test]
fn a_benefit_of_one_example_names_its_bound_and_counts_the_sessions_that_show_it() {
    let (_, text) = find("long-context").unwrap();
    let mut run = long_context();
    evict_nothing(&mut run, true, 0);
    let words = |run: &Run| overview_by(&text, run).uses.remove(0).sentences()[1].clone();
    insta::assert_snapshot!(words(&run), @"Needed: ×0.8 or less, compared with every result in the context. One example shows it: largest prompt (◐ ×0.184); dollars (◐ ×0.284); none of 3 other sessions shows both (×1; ×1).");
    // One of the three sessions shows both.
    let mut run = long_context();
    let inline = run.contexts[0].clone();
    for context in run.contexts.iter_mut().filter(|context| context.policy == "evict") {
        if ["agent/claude-code-compaction", "agent/claude-code-read-heavy"].contains(&context.workload.as_str()) {
            context.conversation = inline.conversation.clone();
        }
    }
    insta::assert_snapshot!(words(&run), @"Needed: ×0.8 or less, compared with every result in the context. One example shows it: largest prompt (◐ ×0.184); dollars (◐ ×0.284); 1 of 3 other sessions shows both (×0.184 to ×1; ×0.284 to ×1).");
}

#[test]
fn an_answer_for_the_baseline_covers_only_the_candidates_that_were_measured() {
    let text = POLICY.replace("can = [\"mount\"]", "can = [\"mount\"]\nexpected = [\"sqlite\", \"s3\"]");
    let mut run = good();
    fail_tool(&mut run, "sqlite");
    let headline = |run: &Run| overview_by(&text, run).uses.remove(0).headline();
    assert_eq!(
        headline(&run),
        "Keep a plain directory rather than use sqlite (sure, by a policy that is newer than the run). s3 was not measured."
    );
    // On a server of the run.
    second_arm(&mut run, "s3-embedded");
    assert_eq!(headline(&run), "Keep a plain directory (sure, by a policy that is newer than the run).");
    assert_eq!(headline(&good()), "Work on sqlite (sure, by a policy that is newer than the run).");
}
