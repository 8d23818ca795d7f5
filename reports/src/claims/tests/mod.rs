//! Constructed runs reach every status, by every kind of test.

mod files;

use std::collections::BTreeMap;
use std::path::Path;

use rundir::faults::{Audit, FaultOutcome, IN_USE};
use rundir::{Outcome, Probe, Run, Sample, Score};

use super::ClaimStatus::{
    ArithmeticOnly, Conditional, Confirmed, Declared, NotMeasured, NotReproduced, Refuted,
    Untestable,
};
use super::{ClaimFile, ClaimResult, judge_file, tally};
use crate::conformance::CONFORMANCE;
use crate::context::contexts;
use crate::evidence::RunEvidence;
use crate::prices::Prices;
use crate::summary::summarise;
use crate::testing;

const READ: &str = "{ arm = 'sqlite', workload = 'micro/read', state = 'hot', metric = 'read' }";
const PLAIN: &str = "{ arm = 'direct', workload = 'micro/read', state = 'hot', metric = 'read' }";

fn parse(claim: &str) -> Result<ClaimFile, String> {
    let text = format!("source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\n{claim}\n");
    ClaimFile::parse(Path::new("c.toml"), &text).map_err(|error| error.to_string())
}

fn judged(claim: &str, runs: &[&Run]) -> ClaimResult {
    let prices = Prices::built_in().unwrap();
    let derived: Vec<_> = runs
        .iter()
        .map(|run| (summarise(run).unwrap(), contexts(run, &prices).unwrap()))
        .collect();
    let evidence: Vec<_> = runs
        .iter()
        .zip(&derived)
        .map(|(run, (summary, contexts))| RunEvidence::new(run, summary, contexts))
        .collect();
    judge_file(&parse(claim).unwrap(), &evidence).remove(0)
}

fn latency(place: &str, says: &str) -> String {
    format!("says = {{ {says}, unit = 'ms' }}\ntest.latency = {place}")
}

#[test]
fn a_time_is_judged_by_its_whole_interval() {
    // The scripted `sqlite` takes about 0.2 ms.
    let run = testing::run();
    let of = |says: &str| judged(&latency(READ, says), &[&run]);
    let confirmed = of("below = 1.0");
    assert_eq!(confirmed.status, Confirmed);
    assert_eq!((confirmed.settle, confirmed.factor), (None, None));
    let refuted = of("between = [10.0, 50.0]");
    assert_eq!(refuted.status, Refuted);
    assert!(
        (45.0..60.0).contains(&refuted.factor.unwrap()),
        "{refuted:?}"
    );
    assert_eq!(of("about = 0.15").status, Confirmed);
    assert_eq!(of("above = 0.1").status, Confirmed);
    let summary = testing::summary();
    let cell = summary
        .cells
        .iter()
        .find(|cell| cell.arm == "sqlite" && cell.metric == "read");
    let edge = of(&format!("below = {}", cell.unwrap().typical_ns / 1e6));
    assert_eq!(edge.status, NotMeasured);
    assert!(
        edge.evidence.contains("contains an end of the range"),
        "{edge:?}"
    );
    assert!(edge.settle.unwrap().contains("--epochs"));
}

#[test]
fn a_time_that_no_run_has_names_the_command_that_measures_it() {
    let run = testing::run();
    let place = READ.replace("micro/read", "micro/other");
    let missing = judged(&latency(&place, "below = 1.0"), &[&run]);
    assert_eq!(missing.status, NotMeasured);
    let command = "ctxbench run --workload micro/other --state hot --backend sqlite";
    assert_eq!(missing.settle.as_deref(), Some(command));
    let with_command = judged(
        &format!("{}\nsettle = 'make it'", latency(&place, "below = 1.0")),
        &[&run],
    );
    assert_eq!(with_command.settle.as_deref(), Some("make it"));
    let without = judged(&latency(READ, "below = 1.0"), &[]);
    assert_eq!(without.status, NotMeasured);
}

#[test]
fn readiness_is_judged_by_the_daemons_start() {
    let run = testing::run();
    let ready = READ.replace("metric = 'read'", "metric = 'ready'");
    // The scripted daemons take 12 ms to start.
    let of = |place: &str, says: &str| judged(&latency(place, says), &[&run]).status;
    assert_eq!(of(&ready, "about = 10.0"), Confirmed);
    assert_eq!(of(&ready, "below = 5.0"), Refuted);
    assert_eq!(
        of(&ready.replace("sqlite", "direct"), "below = 1.0"),
        NotMeasured
    );
}

#[test]
fn wrong_answers_a_busy_machine_and_two_epochs_settle_nothing() {
    let claim = latency(READ, "below = 1000.0");
    let mut wrong = testing::run();
    for sample in wrong.samples.iter_mut().filter(|pass| pass.arm == "sqlite") {
        sample.outcome = Outcome::WrongData;
        sample.outcomes = [(Outcome::WrongData, 4)].into();
    }
    let found = judged(&claim, &[&wrong]);
    assert_eq!(found.status, NotMeasured);
    assert!(
        found.evidence.contains("a wrong answer has no latency"),
        "{found:?}"
    );
    assert_eq!(found.settle, None, "another run would end in the same way");
    let mut busy = testing::run();
    testing::make_busy(&mut busy);
    let found = judged(&claim, &[&busy]);
    assert_eq!(found.status, NotMeasured);
    assert!(
        found.evidence.contains("busy") && found.settle.is_some(),
        "{found:?}"
    );
    let mut short = testing::run();
    short.samples.retain(|sample| sample.epoch < 2);
    let found = judged(&claim, &[&short]);
    assert_eq!(found.status, NotMeasured);
    assert!(found.evidence.contains("fewer than 3 epochs"), "{found:?}");
}

#[test]
fn a_simulated_distance_is_not_reproduced_and_another_machine_neither() {
    let mut far = testing::run();
    testing::rename_arm(&mut far, "sqlite", "s3-minio@30ms");
    let place = READ.replace("'sqlite'", "'s3@30ms'");
    let found = judged(&latency(&place, "below = 1.0"), &[&far]);
    assert_eq!(found.status, NotReproduced);
    assert!(found.evidence.contains("simulated"), "{found:?}");
    let found = judged("elsewhere = 'macOS'", &[&far]);
    assert_eq!(
        (found.status, found.evidence.as_str()),
        (NotReproduced, "macOS")
    );
    let found = judged("untestable = 'a judgement'", &[&far]);
    assert_eq!(found.status, Untestable);
}

#[test]
fn a_ratio_is_paired_in_one_cell_and_compared_between_cells() {
    let run = testing::run();
    let of = |claim: String| judged(&claim, &[&run]);
    let paired = of(format!(
        "says = {{ between = [1.9, 2.1], unit = 'times' }}\ntest.ratio = {{ of = {READ}, to = {PLAIN} }}"
    ));
    assert_eq!(paired.status, Confirmed, "{paired:?}");
    assert!(paired.evidence.contains("paired by round"));
    let edit = "{ arm = 'direct', workload = 'agent/session', state = 'hot', metric = 'edit' }";
    let apart = of(format!(
        "says = {{ above = 10.0, unit = 'times' }}\ntest.ratio = {{ of = {READ}, to = {edit} }}"
    ));
    assert_eq!(apart.status, Refuted, "{apart:?}");
    assert!(apart.evidence.contains("not paired"));
}

/// A run whose second workload is the first with twice the size and, on `sqlite`, this factor of the time.
fn sizes(factor: f64) -> Run {
    let mut run = testing::run();
    testing::rename_calls(&mut run, "edit", "read");
    for sample in run
        .samples
        .iter_mut()
        .filter(|pass| pass.workload == "agent/session")
    {
        testing::scale_pass(sample, factor);
    }
    run
}

#[test]
fn growth_is_the_exponent_over_sizes() {
    let claim = |says: &str| {
        format!(
            "says = {{ {says}, unit = 'exponent' }}\ntest.growth = {{ arm = 'sqlite', state = 'hot', metric = 'read', sizes = [[100, 'micro/read'], [10000, 'agent/session']] }}"
        )
    };
    for (factor, says, status) in [
        (1.0, "between = [-0.1, 0.1]", Confirmed),
        (100.0, "between = [-0.1, 0.1]", Refuted),
        (100.0, "between = [0.9, 1.1]", Confirmed),
    ] {
        let found = judged(&claim(says), &[&sizes(factor)]);
        assert_eq!(found.status, status, "{found:?}");
    }
}

#[test]
fn counts_are_exact() {
    let mut run = testing::run();
    let of = |run: &Run, says: &str, test: &str| {
        let claim = format!(
            "says = {{ {says}, unit = 'count' }}\ntest.reading = {{ arm = 'sqlite', measure.{test} }}"
        );
        judged(&claim, &[run])
    };
    let cost = |figure: &str| {
        format!("cost = {{ workload = 'micro/read', state = 'hot', figure = '{figure}' }}")
    };
    assert_eq!(of(&run, "equals = 2", &cost("requests")).status, Confirmed);
    let store = cost("sql_statements");
    let found = of(&run, "equals = 1", &store);
    assert_eq!((found.status, found.factor), (Refuted, Some(3.0)));
    let tools = "probes = { aspect = 'tool' }";
    run.probes.clear();
    assert_eq!(of(&run, "equals = 0", tools).status, NotMeasured);
    for (name, outcome) in [("cat", Outcome::Ok), ("git", Outcome::Errno)] {
        run.probes
            .push(Probe::new("tool", name, "sqlite", outcome, ""));
    }
    assert_eq!(of(&run, "equals = 1", tools).status, Confirmed);
    assert_eq!(of(&run, "equals = 0", tools).status, Refuted);
    let over = "says = { equals = 1, unit = 'times' }\ntest.reading = { arm = 'sqlite', over = 'direct', measure.cost = { workload = 'micro/read', state = 'hot', figure = 'system-calls' } }";
    assert_eq!(judged(over, &[&run]).status, Confirmed);
}

#[test]
fn claims_do_not_count_features_that_the_machine_itself_fails() {
    let count = |run: &Run, equals: u32| {
        let claim = format!(
            "says = {{ equals = {equals}, unit = 'count' }}\ntest.reading = {{ arm = 'sqlite', measure.conformance = {{ groups = ['links'] }} }}"
        );
        judged(&claim, &[run]).status
    };
    let probe = |arm, name, outcome| Probe::new(CONFORMANCE, name, arm, outcome, "");
    let mut run = testing::run();
    run.probes = vec![
        probe("sqlite", "links: hard", Outcome::Errno),
        probe("sqlite", "links: symbolic", Outcome::Errno),
        probe("sqlite", "xattr: set", Outcome::Errno),
    ];
    assert_eq!(count(&run, 2), Confirmed);
    run.probes
        .push(probe("direct", "links: hard", Outcome::Errno));
    assert_eq!(count(&run, 1), Confirmed);
    assert_eq!(count(&run, 2), Refuted);
    run.probes[1].outcome = Outcome::Infra;
    assert_eq!(count(&run, 1), NotMeasured);
}

fn outcome(lost: u64) -> FaultOutcome {
    FaultOutcome {
        audits: BTreeMap::from([(
            IN_USE.to_owned(),
            Audit {
                lost,
                ..Audit::default()
            },
        )]),
        ..FaultOutcome::ran("kill-idle", "daemon", "sqlite", 1)
    }
}

#[test]
fn a_fault_is_judged_by_what_came_of_it_over_all_seeds() {
    let claim = "says = { equals = 0, unit = 'count' }\ntest.reading = { arm = 'sqlite', measure.faults = { scenarios = ['kill-idle'], figure = 'lost-records' } }";
    let mut run = testing::run();
    let none = judged(claim, &[&run]);
    assert_eq!(none.status, NotMeasured);
    let command = "ctxbench fault --scenario kill-idle --backend sqlite";
    assert_eq!(none.settle.as_deref(), Some(command));
    run.fault_outcomes = vec![outcome(0), outcome(0)];
    assert_eq!(judged(claim, &[&run]).status, Confirmed);
    run.fault_outcomes.push(outcome(2));
    assert_eq!(judged(claim, &[&run]).status, Refuted);
}

#[test]
fn tokens_and_dollars_are_judged_by_the_count() {
    let run = testing::run();
    let of = |unit: &str, says: &str, arms: &str, figure: &str| {
        let claim = format!(
            "says = {{ {says}, unit = '{unit}' }}\ntest.reading = {{ {arms}, measure.context = {{ workload = 'agent/session', figure = {figure} }} }}"
        );
        judged(&claim, &[&run]).status
    };
    let entering = "'entering'";
    let about = "between = [51800, 51900]";
    assert_eq!(
        of("tokens", about, "arm = 'before'", entering),
        ArithmeticOnly
    );
    assert_eq!(
        of("tokens", "below = 1.0", "arm = 'before'", entering),
        Refuted
    );
    assert_eq!(
        of("tokens", "below = 50000.0", "arm = 'inline'", entering),
        Confirmed
    );
    let evict = "arm = 'evict', saved_against = 'inline'";
    assert_eq!(
        of("percent", "between = [80.0, 90.0]", evict, entering),
        Confirmed
    );
    assert_eq!(
        of("tokens", "below = 1.0", "arm = 'nonsense'", entering),
        NotMeasured
    );
    let bill = "'dollars', model = 'claude-opus-5-5'";
    assert_eq!(
        of("dollars", "above = 0.0", "arm = 'inline'", bill),
        Confirmed
    );
    assert_eq!(of("percent", "above = 0.0", evict, bill), Confirmed);
}

#[test]
fn the_lag_of_a_commit_is_that_of_the_slowest_pass_if_all_ended_well() {
    let claim = "says = { below = 10.0, unit = 'ms' }\ntest.reading = { arm = 'sqlite', measure.lag = { workload = 'micro/read' } }";
    let mut run = testing::run();
    assert_eq!(judged(claim, &[&run]).status, NotMeasured);
    let is_reader = |pass: &&mut Sample| pass.arm == "sqlite" && pass.workload == "micro/read";
    for (sample, lag_us) in run
        .samples
        .iter_mut()
        .filter(is_reader)
        .zip([300, 8_000, 500])
    {
        let lag = Score {
            sum: 2 * lag_us,
            of: 2,
        };
        let counts = BTreeMap::from([("lag-us".to_owned(), lag)]);
        sample.scores.insert("task".to_owned(), counts);
    }
    let seen = judged(claim, &[&run]);
    assert_eq!(seen.status, Confirmed);
    assert!(seen.evidence.contains("8.000 ms"), "{seen:?}");
    assert_eq!(
        judged(&claim.replace("10.0", "5.0"), &[&run]).status,
        Refuted
    );
    run.samples.iter_mut().find(is_reader).unwrap().outcome = Outcome::WrongData;
    assert_eq!(judged(claim, &[&run]).status, NotMeasured);
}

#[test]
fn a_score_is_a_share_with_its_interval() {
    let mut run = testing::run();
    let score = |sum, of| BTreeMap::from([("found".to_owned(), Score { sum, of })]);
    let of = |run: &Run, says: &str| {
        let claim = format!(
            "says = {{ {says}, unit = 'percent' }}\ntest.score = {{ arm = 'direct', workload = 'micro/read', method = 'own', figure = 'found', unit = 'percent' }}"
        );
        judged(&claim, &[run])
    };
    assert_eq!(of(&run, "above = 90.0").status, NotMeasured);
    let put = |run: &mut Run, sum, of| {
        let first = testing::passes(run, "micro/read", "direct").next();
        let scores = &mut first.unwrap().scores;
        scores.insert("own".to_owned(), score(sum, of));
    };
    put(&mut run, 249, 250);
    assert_eq!(of(&run, "above = 90.0").status, Confirmed);
    put(&mut run, 100, 250);
    assert_eq!(of(&run, "above = 90.0").status, Refuted);
    put(&mut run, 1, 1);
    assert_eq!(of(&run, "above = 90.0").status, NotMeasured, "one question");
}

#[test]
fn counts_of_a_recorded_model_are_evidence_and_its_times_are_not() {
    let mut run = testing::run();
    let model = run.model_files.as_mut().unwrap();
    model.origin = "recorded".to_owned();
    let step = &model.history.steps[0];
    let (what, calls) = (step.what.clone(), step.calls);
    let of = |run: &Run, says: &str, figure: &str| {
        let claim = format!(
            "says = {{ {says} }}\ntest.model = {{ figure = '{figure}', mount = 'history', step = \"{what}\" }}"
        );
        judged(&claim, &[run])
    };
    let counted = format!("equals = {calls}, unit = 'count'");
    let count = |run: &Run| of(run, &counted, "calls");
    let time = |run: &Run| of(run, "above = 0.0, unit = 'ms'", "time");
    assert_eq!(count(&run).status, Confirmed);
    assert_eq!(time(&run).status, NotMeasured);
    run.model_files.as_mut().unwrap().origin = "live".to_owned();
    assert_eq!(time(&run).status, Confirmed);
    run.model_files = None;
    let missing = count(&run);
    assert_eq!(missing.settle.as_deref(), Some("make model-files"));
}

#[test]
fn arithmetic_is_computed_without_a_run() {
    let of = |unit: &str, says: &str, test: &str| {
        let claim = format!("says = {{ {says}, unit = '{unit}' }}\ntest.arithmetic.{test}");
        judged(&claim, &[])
    };
    let growth = "yearly-growth = { from = 50.0, to = 2500.0, years = 3.0 }";
    let saved = "saved = { from = 109150.0, to = 15550.0 }";
    let power = "exponent = [[1, 2.0], [10, 20.0]]";
    let sum = "sum = [1.0, 2.0, 3.0]";
    let counted = "tokens-of = 'hello world'";
    for (unit, says, test, status) in [
        ("tokens", "equals = 6.0", sum, ArithmeticOnly),
        ("percent", "between = [119.5, 120.5]", growth, Refuted),
        ("percent", "between = [85.0, 86.0]", saved, ArithmeticOnly),
        ("exponent", "between = [0.99, 1.01]", power, ArithmeticOnly),
        ("tokens", "equals = 2", counted, Confirmed),
    ] {
        let found = of(unit, says, test);
        assert_eq!(found.status, status, "{found:?}");
        assert_eq!(found.evidence.contains("268.4 %"), test == growth);
    }
}

fn cases(first: &str, second: &str) -> String {
    let place = READ.replace("'sqlite'", "'s3@30ms'");
    let case = |says: &str| match says {
        "far" => format!("says = {{ below = 1.0, unit = 'ms' }}\ntest.latency = {place}"),
        "missing" => latency(&READ.replace("micro/read", "micro/none"), "below = 1.0"),
        says => latency(READ, says),
    };
    format!(
        "[[claim.case]]\nwhen = 'one'\n{}\n[[claim.case]]\nwhen = 'two'\n{}",
        case(first),
        case(second)
    )
}

#[test]
fn cases_that_differ_make_a_claim_conditional_on_them() {
    let mut run = testing::run();
    let (yes, no) = ("below = 1.0", "below = 0.01");
    let of = |run: &Run, first, second| judged(&cases(first, second), &[run]);
    let differ = of(&run, yes, no);
    assert_eq!(differ.status, Conditional);
    assert!(
        differ.evidence.contains("when one: confirmed")
            && differ.evidence.contains("when two: refuted")
    );
    assert_eq!(of(&run, yes, yes).status, Confirmed);
    let refuted = of(&run, no, "below = 0.1");
    assert_eq!(refuted.status, Refuted);
    assert!(
        (1.5..3.0).contains(&refuted.factor.unwrap()),
        "the smallest factor holds"
    );
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
    let mut slow = testing::run();
    testing::scale(&mut slow, "sqlite", 100.0);
    slow.dir = "results/slow".into();
    let fast = testing::run();
    let claim = latency(READ, "below = 1.0");
    assert_eq!(judged(&claim, &[&fast, &fast]).status, Confirmed);
    let differ = judged(&claim, &[&fast, &slow]);
    assert_eq!(differ.status, Conditional);
    assert!(
        differ
            .evidence
            .starts_with("on the run: confirmed by scripted"),
        "{differ:?}"
    );
    assert!(differ.evidence.contains("refuted by slow"), "{differ:?}");
    // A run without the cell changes nothing.
    let mut other = testing::run();
    other.samples.clear();
    assert_eq!(judged(&claim, &[&other, &fast]).status, Confirmed);
}

#[test]
fn a_time_of_which_passes_failed_settles_nothing_and_says_the_share() {
    let claim = latency(READ, "below = 1000.0");
    let found = judged(&claim, &[&testing::run()]);
    assert_eq!(found.status, Confirmed);
    let none = "0 of 28 passes failed (≤ 10.7 %)";
    assert!(found.evidence.contains(none), "{found:?}");
    for (how, is_final) in [
        (Outcome::Errno, true),
        (Outcome::Timeout, true),
        (Outcome::Infra, false),
    ] {
        let mut run = testing::run();
        let mut passes = testing::passes(&mut run, "micro/read", "sqlite");
        passes.nth(3).unwrap().outcome = how;
        drop(passes);
        let ratio = format!(
            "says = {{ above = 0.0, unit = 'times' }}\ntest.ratio = {{ of = {PLAIN}, to = {READ} }}"
        );
        for claim in [&claim, &ratio] {
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
    let count = |part: &str, says: &str| {
        format!(
            "says = {{ {says}, unit = 'count' }}\ntest.reading = {{ arm = 'sqlite', measure.burden = {{ of = ['{part}'] }} }}"
        )
    };
    for figure in ["processes", "dependencies", "mounts"] {
        for says in ["above = 0", "equals = 77"] {
            let found = judged(&count(figure, says), &[&run]);
            assert_eq!(found.status, Declared, "{figure}: {found:?}");
            assert_eq!((found.settle, found.factor), (None, None));
        }
    }
    // Beside what was measured, too: the weakest case decides.
    let tools = "test.reading = { arm = 'sqlite', measure.probes = { aspect = 'tool' } }";
    let needs = "test.reading = { arm = 'sqlite', measure.burden = { of = ['processes', 'mounts', 'privileges', 'dependencies'] } }";
    let both = format!(
        "[[claim.case]]\nwhen = 'a'\nsays = {{ equals = 0, unit = 'count' }}\n{tools}\n[[claim.case]]\nwhen = 'b'\nsays = {{ above = 0, unit = 'count' }}\n{needs}"
    );
    let found = judged(&both, &[&run]);
    assert_eq!(found.status, Declared, "{found:?}");
    let counted = tally(std::slice::from_ref(&found));
    assert_eq!((counted.settled, counted.testable), (0, 0));
}

#[test]
fn wrong_passes_refute_that_every_answer_is_right() {
    let claim = "says = { equals = 0, unit = 'count' }\ntest.reading = { arm = 'sqlite', measure.passes = { workload = 'micro/read' } }";
    let ended = |how: Outcome| {
        let mut run = testing::run();
        let first = testing::passes(&mut run, "micro/read", "sqlite").next();
        first.unwrap().outcome = how;
        judged(claim, &[&run]).status
    };
    assert_eq!(ended(Outcome::Ok), Confirmed);
    assert_eq!(ended(Outcome::WrongData), Refuted);
    assert_eq!(ended(Outcome::Timeout), Refuted);
    assert_eq!(ended(Outcome::Infra), NotMeasured);
    let nothing = claim.replace("micro/read", "micro/other");
    assert_eq!(judged(&nothing, &[&testing::run()]).status, NotMeasured);
}
