use super::*;

const MINIMAL: &str = r#"
name = "x"
group = "daemon"
title = "t"
essay = "What it stands for, and what a good backend does about it, in a sentence or two."
"#;

#[test]
fn a_scenario_has_defaults_and_parameters() {
    let text = format!("{MINIMAL}injection = \"kill-daemon\"\nwhen = \"writing\"\n");
    let scenario = Scenario::parse(Path::new("x.toml"), &text).unwrap();
    assert_eq!(scenario.injection, Injection::KillDaemon);
    assert_eq!(scenario.when, Some(Moment::Writing));
    assert_eq!(scenario.limits.hang, 30.0);
    assert_eq!(scenario.seeds, [1]);
    let text = format!("{MINIMAL}[injection.lock-database]\nseconds = 5.0\n");
    let scenario = Scenario::parse(Path::new("x.toml"), &text).unwrap();
    assert_eq!(scenario.injection, Injection::LockDatabase { seconds: 5.0 });
}

/// The place and the words of an error, and the lines, separated by `;`, in which it is.
const REFUSED: &str = "x.toml:6: / colour / colour = 1;injection = 'nothing'
x.toml:8: / hard / [injection.lock-database];seconds = 5.0;hard = true
x.toml:7: / seconds / [injection.lock-database];seconds = 'long'
x.toml:6: / explode / injection = 'explode'
x.toml:8: / recordz / injection = 'nothing';[work];recordz = 1
x.toml:7: / luck / injection = 'nothing';needs = ['luck']
x.toml: / field `when` / injection = 'kill-daemon'
x.toml: / field `when` / injection = 'nothing';when = 'idle'
x.toml: / field `seeds` / injection = 'nothing';seeds = []
x.toml: / field `limits.hang` / injection = 'nothing';[limits];hang = 0.0
x.toml: / field `work.bytes` / injection = 'nothing';[work];bytes = 5000
x.toml: / field `injection.crash-loop.kills` / [injection.crash-loop];kills = 0
x.toml: / field `injection.s3.slow.rtt_ms` / [injection.s3.slow];rtt_ms = 0.0
x.toml: / field `injection.s3.flaky.how.nth` / [injection.s3.flaky];how = { resets = { nth = 1 } }";

#[test]
fn a_malformed_or_inconsistent_scenario_is_refused_by_file_line_and_field() {
    for case in REFUSED.lines() {
        let [place, words, lines] = case.split(" / ").collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let text = format!("{MINIMAL}{}\n", lines.replace(';', "\n"));
        let refused = Scenario::parse(Path::new("x.toml"), &text);
        let error = refused.unwrap_err().to_string();
        let is_named = error.starts_with(&format!("{place} ")) && error.contains(words);
        assert!(is_named, "{case}: {error}");
    }
}

#[test]
fn every_built_in_scenario_parses_and_an_unknown_name_gets_the_nearest() {
    let all = scenarios().unwrap();
    for group in Group::ALL {
        let mut groups = all.iter().map(|scenario| scenario.group);
        assert!(groups.any(|present| present == *group), "{group:?}");
    }
    let error = scenario("kill-while-writin").unwrap_err().to_string();
    let nearest = "the nearest are kill-while-writing";
    assert!(error.contains(nearest), "{error}");
}
