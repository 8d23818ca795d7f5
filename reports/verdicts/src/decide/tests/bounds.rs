//! Bounds that decide nothing: rows that no candidate can keep, or that every candidate keeps, are refused before a run.

use std::path::Path;

use inputs::InputError;

use super::super::policy::{Names, Policy};

const HEAD: &str = "name = 'mine'\nquestion = 'q'\nessay = 'e'\nbaseline = 'direct'\nbenefits_needed = 1\n";

const CANDIDATES: &str = "[candidates]\ncan = ['persistent']\n";

const BENEFIT: &str = "[[benefit]]\ntitle = 'Faster'\nmeasure.latency = { workload = 'w', state = 'hot', metric = 'read' }\n\
                       unit = 'ratio'\nat_most = 0.9\n";

fn names() -> Names {
    Names {
        workloads: ["w", "w2", "w3"].map(str::to_owned).into(),
        metrics: ["read".to_owned()].into(),
        scenarios: ["cron-kill", "stop", "idle"].map(str::to_owned).into(),
        arms: ["direct".to_owned()].into(),
        probes: [("tool".to_owned(), ["cat", "ls"].map(str::to_owned).into())].into(),
        features: ["names: a", "names: b", "rename: c"].map(str::to_owned).into(),
    }
}

fn checked(text: &str) -> Result<(), InputError> {
    let file = Path::new("p.toml");
    Policy::parse(file, text)?.check_names(file, text, &names())
}

/// A policy with one more row.
fn with_row(role: &str, row: &str) -> Result<(), InputError> {
    checked(&format!("{HEAD}{CANDIDATES}{BENEFIT}[[{role}]]\ntitle = 'A row'\n{row}"))
}

/// The measure, the unit, the side, bounds that decide, and bounds that do not.
type Case<'a> = (String, &'a str, &'a str, &'a [f64], &'a [f64]);

#[test]
fn a_bound_that_no_candidate_or_every_candidate_keeps_is_refused_for_each_measure_and_unit() {
    let latency = "latency = { workload = 'w', state = 'hot', metric = 'read' }";
    let probes = |names: &str| format!("probes = {{ aspect = 'tool', names = [{names}] }}");
    let features = |groups: &str| format!("conformance = {{ groups = [{groups}] }}");
    let faults = |figure: &str| format!("faults = {{ scenarios = ['stop', 'idle'], figure = '{figure}' }}");
    let yearly = |figure: &str, rate: f64| {
        format!("faults = {{ scenarios = ['cron-kill'], figure = '{figure}', crashes_a_year = {rate:?} }}")
    };
    let score = |counts: &str| format!("score = {{ workload = 'w', method = 'm', counts = [{counts}] }}");
    let per_token = "score = { workload = 'w', method = 'm', counts = ['found-at-1'], per = '1,000 tokens' }";
    let stale = "score = { workload = 'w', method = 'm', counts = ['stale-answers'], within = 0.1 }";
    let context = |figure: &str| {
        format!("context = {{ workload = 'w', policy = 'evict', against = 'inline', figure = '{figure}' }}")
    };
    let hosts = |figure: &str| format!("hosts = {{ workload = 'w', figure = '{figure}', within = 0.2 }}");
    let files = |figure: &str| format!("model-files = {{ figure = {figure} }}");
    let property = "property = { of = ['fork', 'diff'] }";
    let growth = "growth = { state = 'hot', metric = 'read', sizes = [[64, 'w'], [10000, 'w2']] }";
    let tokens = "score-growth = { method = 'm', count = 'tokens', sizes = [[100, 'w'], [1000, 'w2'], [10000, 'w3']] }";
    let cases: &[Case<'_>] = &[
        (latency.into(), "ms", "at_most", &[1e-6, 86_400e3], &[-1.0, 0.0, 1e-7, 86_400_001.0]),
        (latency.into(), "ratio", "at_most", &[0.001, 1.0, 1000.0], &[-1.0, 0.0, 9e-4, 1001.0, 1e308]),
        (latency.into(), "percent saved", "at_least", &[-99_900.0, 99.9], &[-99_901.0, 99.91, 101.0]),
        (latency.into(), "ms more", "at_most", &[-86_400e3, 0.0, 86_400e3], &[-86_400_001.0, 1e18]),
        (latency.into(), "ms fewer", "at_least", &[-5.0, 5.0], &[-1e18, 1e18]),
        (latency.into(), "session share", "at_most", &[-0.5, 1.0], &[-1.1, 1.1]),
        (latency.into(), "turn share", "at_most", &[-0.5, 1.0], &[-1.1, 5.0]),
        (latency.replacen("latency", "tail", 1), "ms", "at_most", &[10.0], &[0.0, 1e9]),
        (
            format!("mix = {{ steps = [{{ times = 2, cell = {} }}] }}", &latency[10..]),
            "ms",
            "at_most",
            &[9.0],
            &[0.0, 1e9],
        ),
        ("lag = { workload = 'w' }".into(), "ms", "at_most", &[1000.0], &[0.0, 1e9]),
        ("passes = { workload = 'w' }".into(), "passes", "at_most", &[0.0], &[-1.0, 0.5, 1.0, 1e6]),
        (probes("'cat', 'ls'"), "probes", "at_most", &[0.0, 1.0], &[-1.0, 2.0]),
        (probes("'cat', 'cat'"), "probes", "at_most", &[0.0], &[1.0]),
        (probes(""), "probes", "at_most", &[0.0, 1.0], &[-1.0, 2.0, 100.0]),
        (probes(""), "probes more", "at_most", &[-2.0, 1.0], &[-3.0, 2.0]),
        (probes(""), "ratio", "at_most", &[2.0], &[1001.0]),
        (features("'names'"), "features", "at_most", &[0.0, 1.0], &[-1.0, 2.0, 10_000.0]),
        (features("'names: a'"), "features", "at_most", &[0.0], &[1.0]),
        (features(""), "features", "at_most", &[2.0], &[3.0, 10_000.0]),
        (faults("manual-recoveries"), "recoveries", "at_most", &[0.0, 1.0], &[-1.0, 2.0]),
        (faults("hangs"), "hangs more", "at_most", &[-2.0, 1.0], &[-3.0, 2.0]),
        (faults("lost-records"), "records", "at_most", &[0.0, 10.0], &[-1.0, 1e7]),
        (faults("recovery-ms"), "ms", "at_most", &[1000.0], &[-1.0, 1e9]),
        (yearly("hangs", 12.0), "hangs a year", "at_most", &[0.0, 11.0], &[-1.0, 12.0]),
        (yearly("failed-calls", 12.0), "calls a year", "at_most", &[120.0], &[-1.0, 1.3e7]),
        (yearly("recovery-ms", 12.0), "seconds a year", "at_most", &[300.0], &[-1.0, 1_036_801.0]),
        (yearly("recovery-ms", 1e-3), "seconds a year", "at_most", &[80.0], &[300.0]),
        ("kept = { loss = 'power-loss' }".into(), "share", "at_least", &[0.5, 1.0], &[0.0, 1.1]),
        ("kept = { loss = 'power-loss' }".into(), "share more", "at_least", &[0.5, 1.0], &[-1.0, 1.1]),
        ("durability = { loss = 'power-loss' }".into(), "share", "at_most", &[3e-6, 0.99], &[0.0, 1e-9, 1.0]),
        ("durability = { loss = 'power-loss' }".into(), "share fewer", "at_least", &[0.5], &[-1.0, 1.0]),
        (
            "questions = { workload = 'w', method = 'm', count = 'stale' }".into(),
            "share",
            "at_most",
            &[0.05],
            &[0.0, 1.0],
        ),
        (score("'evidence-in-budget'"), "per question", "at_least", &[0.5], &[0.0, 1.0]),
        (score("'evidence-in-budget'"), "per question more", "at_least", &[0.1], &[-1.0, 1.0, 2.0]),
        (score("'found-at-1', 'found-at-5'"), "per question", "at_least", &[2.0], &[0.0, 2.1]),
        (per_token.into(), "per 1,000 tokens", "at_least", &[1.0, 1000.0], &[0.0, 1001.0]),
        (stale.into(), "per question", "at_most", &[0.0], &[-1.0, 1.0]),
        (stale.into(), "per question more", "at_most", &[0.5], &[-1.1, 1.0]),
        (score("'tokens'"), "per question", "at_most", &[100.0], &[0.0, 1e13]),
        (score("'lag-us'"), "per question", "at_most", &[100.0], &[0.0, 1e12]),
        (context("dollars"), "USD", "at_most", &[0.5], &[0.0, 1e7]),
        (context("peak"), "tokens", "at_most", &[1e5], &[0.0, 1e13]),
        (context("resent"), "tokens", "at_most", &[0.0, 1e5], &[-1.0, 1e13]),
        (
            "cost = { workload = 'w', state = 'hot', figure = 'requests' }".into(),
            "a call",
            "at_most",
            &[0.0, 3.0],
            &[-1.0, 1e7],
        ),
        (hosts("handoff-ms"), "ms", "at_most", &[10.0], &[0.0, 1e9]),
        (hosts("lines-outside"), "lines more", "at_most", &[-1.0, 1.0], &[-1e7, 1e7]),
        (property.into(), "properties", "at_least", &[1.0, 2.0], &[0.0, 3.0]),
        (property.into(), "properties more", "at_least", &[1.0, 2.0], &[0.0, 3.0]),
        (property.into(), "ratio", "at_least", &[1.5, 2.0], &[0.0, 2.5]),
        (files("'consistent'"), "share", "at_least", &[0.99, 1.0], &[0.0, 1.1]),
        (files("'exact-reads', operations = 9"), "share", "at_least", &[0.99], &[0.0, 1.0]),
        (files("'tokens-over-writing'"), "times", "at_most", &[2.0], &[0.9, 1001.0]),
        (files("'seconds-a-file'"), "seconds", "at_most", &[10.0], &[0.0, 86_401.0]),
        (files("'step-ms', step = 's'"), "ms", "at_most", &[10.0], &[0.0, 1e9]),
        (growth.into(), "exponent", "at_most", &[-6.0, 0.1, 6.0], &[-7.0, 7.0]),
        (tokens.into(), "exponent", "at_most", &[-5.0, 0.1, 5.0], &[-10.0, 10.0]),
    ];
    let mut wrong = Vec::new();
    for (measure, unit, side, kept, refused) in cases {
        let row = |bound: &f64| with_row("gate", &format!("measure.{measure}\nunit = '{unit}'\n{side} = {bound:?}\n"));
        let field = format!("p.toml:17: field `gate[0].{side}`: ");
        for bound in *kept {
            if let Err(error) = row(bound) {
                wrong.push(format!("{side} {bound} {unit}: {error}"));
            }
        }
        for bound in *refused {
            match row(bound) {
                Err(error) if error.to_string().starts_with(&field) => {}
                found => wrong.push(format!("{side} {bound} {unit} of {measure}: {found:?}")),
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_row_whose_figure_is_the_same_for_every_candidate_is_refused() {
    let latency = "{ workload = 'w', state = 'hot', metric = 'read' }";
    for (row, expected) in [
        (
            "measure.results = { workload = 'w' }\nunit = 'ratio'\nat_most = 0.9",
            "`gate[0].measure`: all arms replay one script",
        ),
        (
            "measure.score = { workload = 'w', method = 'm', counts = ['tokens'], per = '1,000 tokens' }\nunit = 'ratio'\nat_most = 0.9",
            "`gate[0].measure.score.per`: tokens per 1,000 tokens are 1,000",
        ),
        (
            "measure.context = { workload = 'w', policy = 'evict', against = 'evict', figure = 'peak' }\nunit = 'ratio'\nat_most = 0.9",
            "`gate[0].measure.context.against`: compares a context policy with itself",
        ),
        (
            "measure.questions = { workload = 'w', method = 'm', count = 'tokens' }\nunit = 'share'\nat_most = 0.9",
            "`gate[0].measure.questions.count`: \"tokens\" is not 0 or 1 of a question",
        ),
        (
            "measure.passes = { workload = 'w', within = 0.95 }\nunit = 'passes'\nat_most = 0",
            "`gate[0].measure.passes.within`: must be a share from 0.000003, which a million tries show, to below 0.95",
        ),
        (
            "measure.faults = { scenarios = ['stop'], figure = 'failed-calls', crashes_a_year = 4e7 }\nunit = 'calls a year'\nat_most = 9",
            "`gate[0].measure.faults.crashes_a_year`: must be above 0 and at most 31536000, one a second",
        ),
        (
            &format!(
                "measure.mix = {{ steps = [{{ times = 1e300, cell = {latency} }}] }}\nunit = 'ratio'\nat_most = 9"
            ),
            "`gate[0].measure.mix.steps`: `times` must be above 0 and at most 1000000",
        ),
    ] {
        let error = with_row("gate", row).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_row_of_arms_is_refused_for_candidates_that_are_context_policies_and_asked_of_their_places() {
    let context = "[[benefit]]\ntitle = 'Tokens'\nmeasure.context = { workload = 'w', figure = 'peak' }\nunit = 'ratio'\nat_most = 0.8\n";
    let row = "title = 'Passes'\nmeasure.passes = { workload = 'w' }\nunit = 'passes'\nat_most = 0\n";
    let of = |rows: &str| {
        checked(&format!(
            "{HEAD}[candidates]\ncontexts = ['evict']\n{context}{rows}[places.arms]\ncan = ['holds-data']\n"
        ))
    };
    of(&format!("[[places.row]]\n{row}")).unwrap();
    let error = of(&format!("[[gate]]\n{row}[[places.row]]\n{row}")).unwrap_err().to_string();
    assert!(
        error.contains("field `gate[0].measure`: is measured of arms") && error.contains("[[places.row]]"),
        "{error}"
    );
    let tokens = context.replace("[[benefit]]", "[[places.row]]");
    let error = of(&tokens).unwrap_err().to_string();
    assert!(error.contains("`places.row[0].measure.context`: needs the field `policy`"), "{error}");
}
