use super::*;

const MINIMAL: &str = r#"
name = "x"
group = "daemon"
title = "t"
essay = "What it stands for, and what a good backend does about it, in a sentence or two."
"#;

fn refused(rest: &str) -> String {
    let text = format!("{MINIMAL}{rest}");
    Scenario::parse(Path::new("x.toml"), &text)
        .unwrap_err()
        .to_string()
}

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

#[test]
fn errors_name_file_line_and_field() {
    for (rest, line, words) in [
        ("colour = 1\ninjection = \"nothing\"\n", 6, "colour"),
        (
            "[injection.lock-database]\nseconds = 5.0\nhard = true\n",
            8,
            "hard",
        ),
        (
            "[injection.lock-database]\nseconds = \"long\"\n",
            7,
            "seconds",
        ),
        ("injection = \"explode\"\n", 6, "explode"),
        (
            "injection = \"nothing\"\n[work]\nrecordz = 1\n",
            8,
            "recordz",
        ),
        ("injection = \"nothing\"\nneeds = [\"luck\"]\n", 7, "luck"),
    ] {
        let error = refused(rest);
        assert!(
            error.starts_with(&format!("x.toml:{line}: ")) && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn an_inconsistent_scenario_is_refused() {
    for (rest, words) in [
        ("injection = \"kill-daemon\"\n", "field `when`"),
        ("injection = \"nothing\"\nwhen = \"idle\"\n", "field `when`"),
        ("injection = \"nothing\"\nseeds = []\n", "field `seeds`"),
        (
            "injection = \"nothing\"\n[limits]\nhang = 0.0\n",
            "field `limits.hang`",
        ),
        (
            "injection = \"nothing\"\n[work]\nbytes = 5000\n",
            "field `work.bytes`",
        ),
        (
            "[injection.crash-loop]\nkills = 0\n",
            "field `injection.crash-loop.kills`",
        ),
        (
            "[injection.s3.slow]\nrtt_ms = 0.0\n",
            "field `injection.s3.slow.rtt_ms`",
        ),
        (
            "[injection.s3.flaky]\nhow = { resets = { nth = 1 } }\n",
            "field `injection.s3.flaky.how.nth`",
        ),
    ] {
        let error = refused(rest);
        assert!(
            error.starts_with("x.toml: ") && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn every_built_in_scenario_parses_and_an_unknown_name_lists_them() {
    let all = scenarios().unwrap();
    for group in Group::ALL {
        assert!(
            all.iter().any(|scenario| scenario.group == *group),
            "{group:?}"
        );
    }
    let error = scenario("nonsense").unwrap_err().to_string();
    assert!(error.contains("kill-while-writing"), "{error}");
}
