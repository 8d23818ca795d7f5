//! Budgets of calls, tokens and dollars.

use super::{answering, errno, said, saying};
use crate::common::{Mount, ctxbench, has, lacks, mounts_under, stderr, words};

#[test]
fn the_model_files_measurement_has_one_budget_for_all_its_mounts() {
    let answer = r#"{"exists":true,"content":"guessed"}"#;
    let Some(lab) = saying(answer) else { return };
    let out = lab.path("out");
    let ask = |budget: &str| {
        let output = lab.model_files(&out, &["--max-tokens", budget]);
        let said = stderr(&output);
        assert!(!output.status.success());
        has(&said, &["used up"]);
        let written = out.join("model-files.json");
        assert!(!written.exists(), "nothing half-measured is written");
        std::fs::remove_dir_all(&out).unwrap();
        assert!(mounts_under(lab.scratch.path()).is_empty());
        said
    };
    // The first budget is spent by the history questions, the second one by those and one mount together.
    ask("1");
    let for_histories = lab.server.calls();
    assert!((1..=3).contains(&for_histories), "{for_histories} calls");
    let said = ask("500");
    lacks(&said, &["read again"]);
    assert!(lab.server.calls() > for_histories + 3);
}

#[test]
fn a_mount_stops_asking_when_its_dollar_budget_is_spent() {
    let answer = r#"{"exists":true,"content":"right"}"#;
    let Some(lab) = saying(answer) else { return };
    // A dollar per token, so that the first answer exceeds the budget.
    let price = ["--price", "1000000,1000000", "--max-cost", "2"];
    let mount = lab.mount("llm-history", &price);
    let (one, two) = (mount.dir.join("one"), mount.dir.join("two"));
    std::fs::write(&one, "right").unwrap();
    std::fs::write(&two, "right").unwrap();
    assert_eq!(std::fs::read_to_string(&one).unwrap(), "right");
    assert_eq!(errno(&two), Some(122), "EDQUOT: the budget was used up");
    assert_eq!(lab.server.calls(), 1);
    // No other call needs the model.
    assert_eq!(std::fs::metadata(&two).unwrap().len(), 5);
    std::fs::write(&two, "more").unwrap();
    mount.end();
    has(&lab.log(), &["--max-cost"]);
}

#[test]
fn a_mount_with_a_dollar_limit_takes_the_price_from_the_list_and_logs_it() {
    let Some(lab) = answering() else { return };
    // The server is not asked for its model list, which lacks gpt-5.
    let options = "mount llm-generate --provider local --model gpt-5 --no-cache --max-cost 0.00001";
    let dir = lab.scratch.dir("mnt");
    let mut command = ctxbench(words(options));
    command.args(["--base-url", &lab.server.base_url()]).arg(&dir);
    command.arg("--tree").arg(lab.path("tree.json"));
    command.arg("--cache-folder").arg(lab.path("cache"));
    let mount = Mount::of(command, &dir);
    said(&mount.dir, "cat a.txt");
    assert_eq!(errno(&mount.dir.join("b.txt")), Some(122), "EDQUOT");
    mount.end();
    assert_eq!(lab.server.calls(), 1);
    let log = lab.log();
    let told = "--max-cost counts 1.25 in and 10 out, US dollars per million tokens, by the price list: gpt-5";
    has(&log, &[told, "genai-prices"]);

    let mut command = lab.command("llm-history", &["--max-cost", "1"]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let parts = ["the price of simulated", "--price IN,OUT"];
    has(&stderr(&output), &parts);
}
