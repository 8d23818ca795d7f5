//! The cost of contexts, end to end: the command, and a run that accounts for its sessions, including files
//! in an agent's state.

use std::fs;

use crate::common::{Scratch, Succeeds, ctxbench, has, lines, measure, refused, run, stderr, stdout, text_of, words};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = ctxbench(arguments.iter().copied().chain(["--json"])).succeeds();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A session of two answers. The second prompt contains the first one.
fn trajectory(model: &str, second_prompt: u64, seconds: u64) -> String {
    let answer = |text: &str, created: u64, prompt: u64| {
        serde_json::json!({"role": "assistant", "content": text, "extra": {"response": {
            "model": model, "created": created, "usage": {"prompt_tokens": prompt, "completion_tokens": 9}}}})
    };
    serde_json::json!({
        "trajectory_format": "mini-swe-agent-1",
        "info": {"mini_version": "1"},
        "messages": [
            {"role": "system", "content": "You have a shell."},
            {"role": "user", "content": "one two three four five six seven eight nine ten"},
            answer("I look.\n```bash\nls\n```", 1000, 17),
            {"role": "user", "content": "<returncode>0</returncode>\n<output>\nfile\n</output>"},
            answer("Done.", 1000 + seconds, second_prompt),
        ],
    })
    .to_string()
}

#[test]
fn offloading_saves_tokens_only_if_the_model_did_not_write_them() {
    let found = json(&words(
        "tokens --workload agent/offload-comparison --model gpt-6.1-sol --policy inline \
         --policy offload --policy evict --window 20000",
    ));
    let policies = found[0]["policies"].as_array().unwrap();
    let figure = |at: usize, name: &str| policies[at][name].as_u64().unwrap();
    let (inline, offload, evict) = (0, 1, 2);
    assert!(figure(offload, "entering") > figure(inline, "entering"));
    assert!(figure(offload, "output") > 10 * figure(inline, "output"));
    assert!(figure(evict, "entering") < figure(inline, "entering") / 2);
    assert!(figure(inline, "full_at_call") == 2, "{found}");
    assert!(policies[evict]["full_at_call"].is_null());
    let dollars = |at: usize| policies[at]["dollars"].as_f64().unwrap();
    assert!(dollars(evict) < dollars(inline) && dollars(inline) < dollars(offload));
    for policy in policies {
        let figure = |name: &str| policy[name].as_u64().unwrap();
        assert_eq!(figure("fresh") + figure("cached"), figure("resent"));
    }
}

#[test]
fn the_advice_follows_the_rules_of_source_5_and_says_what_files_save() {
    let line = "tokens --workload agent/offload-comparison --model gpt-6.1-sol --policy inline --policy evict --advise";
    let found = json(&words(line));
    let advice = &found[0]["advice"];
    assert_eq!(advice["use_files"], true, "{advice}");
    let rules = advice["rules"].as_array().unwrap();
    let applies = |rule: &Value| rule["applies"].as_bool();
    let applies: Vec<Option<bool>> = rules.iter().map(applies).collect();
    let (yes, no) = (Some(true), Some(false));
    // Two large results are queried; only the words of a question would tell whether it compares, or is about one thing.
    assert_eq!(applies, [yes, yes, None, no, no, no, no, None, no]);
    let planned = json(&words("tokens --workload agent/offload-plan --model none --advise"));
    assert_eq!(planned[0]["advice"]["rules"][4]["applies"], true, "{planned}");
    // It is the difference of the two policies.
    let of = |at: usize, name: &str| found[0]["policies"][at][name].as_f64().unwrap();
    let resent = of(1, "resent") - of(0, "resent");
    assert_eq!(advice["evict_resent"].as_f64().unwrap(), resent);
    let dollars = advice["evict_dollars"].as_f64().unwrap();
    assert!((dollars - (of(1, "dollars") - of(0, "dollars"))).abs() < 1e-9);
    let page = stdout(&run(words(line)));
    let parts = ["advice: keep large results in files", "fewer tokens", "(simulated)"];
    has(&page, &parts);

    // A session with one small result, as a file.
    let scratch = Scratch::new();
    let file = scratch.path().join("small.traj.json");
    fs::write(&file, trajectory("gpt-6.1-sol", 40, 5)).unwrap();
    let small = stdout(&run(["tokens", "--advise", file.to_str().unwrap()]));
    has(&small, &["advice: leave results in the context: none is large"]);
    let without = json(&["tokens", file.to_str().unwrap()]);
    assert!(without[0].get("advice").is_none());
}

/// A trace with one call of each of these tools, by name and kind.
fn trace_of_calls(calls: &[(&str, &str)]) -> String {
    let usage = serde_json::json!({"uncached": 0, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0, "output": 0, "reasoning": 0});
    let mut lines = vec![
        serde_json::json!({"t": "head", "v": 1, "id": "t", "source": {"format": "claude-code", "path": "t", "sha256": "0"}, "agent": "a", "model": "m", "cwd": "/ws", "fidelity": "shape", "tokenizer": "o200k"}),
        serde_json::json!({"t": "user", "turn": 0, "tok": 100}),
    ];
    for (i, (tool, op)) in calls.iter().enumerate() {
        lines.extend([
            serde_json::json!({"t": "api", "k": i, "at": i, "usage": usage, "usage_src": "recomputed", "text_tok": 5, "thinking_tok": 0}),
            serde_json::json!({"t": "call", "i": i, "k": i, "lane": "main", "tool": tool, "op": op, "args": {}, "tok": 20, "at": i}),
            serde_json::json!({"t": "result", "i": i, "ok": true, "bytes": 9, "tok": 3}),
        ]);
    }
    lines.push(serde_json::json!({"t": "end", "exit": "unknown"}));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_advice_finds_plans_and_listings_in_the_calls_of_a_recorded_session() {
    let scratch = Scratch::new();
    let file = scratch.path().join("s.trace.jsonl");
    let (plan, list, read) = (("TodoWrite", "plan"), ("Glob", "list"), ("Read", "read"));
    for (calls, has_plan, is_schema) in [
        (&[plan, read, list, ("WebFetch", "net")][..], Some(true), Some(false)),
        (&[read, read, plan], Some(false), Some(false)),
        (&[list, ("LS", "list")], Some(false), Some(true)),
        (&[plan, list, ("Bash", "exec")], None, None),
    ] {
        fs::write(&file, trace_of_calls(calls)).unwrap();
        let found = json(&["tokens", "--model", "none", "--advise", file.to_str().unwrap()]);
        let rules = &found[0]["advice"]["rules"];
        let applies = [4_usize, 8].map(|rule| rules[rule]["applies"].as_bool());
        assert_eq!(applies, [has_plan, is_schema], "{calls:?}: {rules}");
    }
}

#[test]
fn one_question_is_cheaper_by_recall_and_a_hundred_by_a_file_of_notes() {
    let dollars = |workload: &str| {
        let found = json(&words(&format!(
            "tokens --workload {workload} --model claude-opus-5-5 --policy inline \
             --policy memory-file --policy memory-recall"
        )));
        let policies = found[0]["policies"].as_array().unwrap();
        let basis: Vec<_> = policies.iter().map(|policy| &policy["tokens_are"]).collect();
        assert_eq!(basis, ["partly stated", "simulated", "simulated"]);
        [0, 1, 2].map(|at| policies[at]["dollars"].as_f64().unwrap())
    };
    let [whole, cut, recall] = dollars("agent/memory-1-question");
    assert!(recall < cut && cut < whole, "{recall} {cut} {whole}");
    let [whole, cut, recall] = dollars("agent/memory-100-questions");
    assert!(cut < whole && whole < recall, "{recall} {cut} {whole}");
    let line = "tokens --workload agent/offload-comparison --policy inline --policy memory-file";
    let reason = "agent/offload-comparison: the policy memory-file needs a session with notes";
    has(&refused(&words(line)), &[reason]);
}

#[test]
fn the_ledger_compares_a_recorded_session_with_reported_usage() {
    let scratch = Scratch::new();
    let file = scratch.path().join("s.traj.json");
    fs::write(&file, trajectory("gpt-5-codex", 44, 10)).unwrap();
    let line = format!("tokens --format mini-swe-agent {}", file.display());
    let of = |more: &[&str]| json(&[&words(&line), more].concat())[0].clone();
    let found = of(&[]);
    assert_eq!(found["fixed_is"], "stated");
    assert_eq!(found["reconciled"]["calls"], 2);
    let deviation = found["reconciled"]["median_abs"].as_f64().unwrap();
    assert!(deviation < 0.3, "{found}");
    let cached = |found: &Value| found["policies"][0]["cached"].as_u64().unwrap();
    assert!(cached(&found) > 0);
    // Without a cache, or with a lifetime that is too short, all tokens are uncached.
    assert_eq!(cached(&of(&["--cache-ttl", "0"])), 0);
    let short = ["--cache-ttl", "9s", "--model", "none"];
    assert_eq!(cached(&of(&short)), 0);
    assert_eq!(of(&short)["policies"][0]["expired"], 1);
    assert_eq!(found["policies"][0]["tokens_are"], "recorded");
    assert_eq!(found["priced_for"].as_str().unwrap().len(), 10);

    let parts = [
        "×1.00, measured: ",
        "gpt-5: 1.25 in, 10 out, 0.125 from the cache",
        "genai-prices",
        "compared with the usage that the API reported",
    ];
    has(&stdout(&run(words(&line))), &parts);
}

/// The committed sessions with usage that the API reported, and the largest allowed median deviation.
const REPORTED: [&str; 5] = [
    "claude-code-read-heavy",
    "claude-code-write-heavy",
    "claude-code-search-heavy",
    "claude-code-shell-heavy",
    "claude-code-compaction",
];
const REACH: f64 = 0.10;

/// The median absolute residual of a session with about fifty calls or more.
fn median_size(workload: &str) -> f64 {
    let found = json(&["tokens", "--workload", workload]);
    let reconciled = &found[0]["reconciled"];
    assert!(reconciled["calls"].as_u64().unwrap() > 48, "{found}");
    reconciled["median_abs"].as_f64().unwrap()
}

#[test]
fn the_median_deviation_of_the_ledger_is_below_ten_percent() {
    for name in REPORTED {
        let size = median_size(&format!("agent/{name}"));
        assert!(size > 0.0 && size < REACH, "{name}: {size}");
    }
    // A session with inflated reports, 50 % more for every call but the first, must exceed the limit.
    let scratch = Scratch::new();
    let trace = include_str!("../../workloads/traces/claude-code-read-heavy.trace.jsonl");
    let mut calls = 0;
    let inflated: Vec<String> = trace
        .lines()
        .map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if let Some(usage) = event.get_mut("usage").and_then(Value::as_object_mut) {
                calls += 1;
                for (_, tokens) in usage.iter_mut().filter(|_| calls > 1) {
                    *tokens = (tokens.as_u64().unwrap() * 3 / 2).into();
                }
            }
            event.to_string()
        })
        .collect();
    assert!(calls > 48);
    fs::write(scratch.path().join("t.trace.jsonl"), inflated.join("\n")).unwrap();
    let workload = scratch.path().join("w.toml");
    let built_in = include_str!("../../workloads/agent/claude-code-read-heavy.toml");
    let text = built_in.replace("traces/claude-code-read-heavy", "t");
    let text = text.replace("agent/claude-code-read-heavy", "w");
    fs::write(&workload, text).unwrap();
    let size = median_size(workload.to_str().unwrap());
    assert!(size > REACH, "{size}");
}

#[test]
fn the_command_refuses_by_name_what_it_cannot_count_or_price() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str| {
        let file = scratch.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let session = file("s.traj.json", &trajectory("nobody/knows-9", 44, 10));
    let refuses = |more: &[&str], reason: &str| {
        has(&refused(&[&["tokens"], more].concat()), &[reason]);
    };
    refuses(&[], "nothing to count");
    for (format, reason) in [
        ("claude-code", "s.traj.json: is not of the format claude-code: no line"),
        ("openhands", "s.traj.json: is not of the format openhands: holds no event of a session"),
    ] {
        refuses(&["--format", format, &session], reason);
    }
    refuses(&[&session, "--model", "knows-9"], "\"knows-9\" has no price; none of the ");
    // A session on a model without a price keeps its tokens.
    let unpriced = run(["tokens", &session]);
    assert_eq!(unpriced.status.code(), Some(0));
    has(&stderr(&unpriced), &["no dollars: model \"nobody/knows-9\" has no price"]);
    has(&stdout(&unpriced), &["no prices", "–"]);
    let line = format!("tokens --format mini-swe-agent {session} --model none");
    has(&stdout(&ctxbench(words(&line)).succeeds()), &["–"]);
    let unknown = file("unknown.json", "{\"alpha\": 1}");
    refuses(&[&unknown], "a JSON document with the fields alpha");
    // Of several files, the readable ones are counted.
    let good = file("good.traj.json", &trajectory("gpt-5-codex", 44, 10));
    let output = run(["tokens", &good, &unknown]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("good.traj.json") && stderr(&output).contains("alpha"));
    refuses(&["--workload", "micro/stat"], "not a session");

    let policy = file("p.toml", "name = 'p'\nessay = 'e'\n[evict]\nabove = 1\n");
    let prices = file("prices.toml", "[[model]]\nname = 'm'\nprize = 1\n");
    let offload = |line: &str, reason: &str| {
        let workload = ["--workload", "agent/offload-comparison"];
        refuses(&[&workload[..], &words(line)].concat(), reason);
    };
    for model in words("gpt-5.5-pro gpt-5.1-codex-maxi gpt-5.5-cyber gemini-3-pro-image gpt-99") {
        let reason = format!("model \"{model}\" has no price");
        offload(&format!("--model {model}"), &reason);
    }
    let above = "p.toml:4: field `evict.above`: unknown field `above`";
    let hour = "a cache time of 3600 s has no price for model gpt-6.1-sol: use 5m";
    for (line, reason) in [
        ("--policy nonsense", "use one of inline, evict"),
        (&*format!("--policy {policy}"), above),
        (&*format!("--prices {prices}"), "prices.toml:3: "),
        (&*format!("--prices {prices}"), "unknown field `prize`"),
        ("--model gpt-6.1-sol --cache-ttl 1h", hour),
        ("--cache-ttl 10m", "use 5m, 1h"),
        ("--on tomorrow", "a day such as 2026-11-21"),
        ("--cache-ttl 5_minutes", "5m, 1h or 90s"),
    ] {
        offload(line, reason);
    }

    let essay = "What this stands for, at some length, so that nobody has to guess what it is there for at all.";
    let text = format!(
        "name = 'w'\nessay = '{essay}'\nstates = ['hot']\ncontexts = ['outline']\n[vsm_cycle]\ncycles = 1\ntasks = 1\nobservations = 1\nobservation_bytes = 100\nseed = 1\n"
    );
    let workload = file("w.toml", &text);
    let reason = "w.toml: field `contexts`: outline: unknown context policy";
    refuses(&["--workload", &workload], reason);
}

#[test]
fn a_run_on_an_agents_state_is_verified_and_accounted_for() {
    let scratch = Scratch::new();
    let line = "--backend state --workload agent/offload-comparison --workload \
                agent/claude-code-write-heavy --workload agent/memory-1-question \
                --workload agent/vsm-cycle --workload micro/stat \
                --state hot --budget 60 --epochs 3 --rounds 1 --seed 1 --policy none --no-probes";
    let (dir, mut measured) = measure(&scratch, line);
    measured.succeeds();
    let samples = lines(&dir, "samples.jsonl");
    let passes = samples.iter().filter(|sample| sample["arm"] == "state");
    let passes: Vec<_> = passes.collect();
    // Three workloads with one warm-up round and one round in each of three epochs.
    assert_eq!(passes.len(), 3 * 2 * 3, "{passes:?}");
    assert!(passes.iter().all(|sample| sample["outcome"] == "ok"), "{passes:?}");
    let why = "state is reached by tool calls only: it has no path for a POSIX operation";
    let rename = "state: there is no tool for it: to rename to";
    has(&text_of(&dir, "plan.toml"), &[why, rename]);

    let report = text_of(&dir, "report.md");
    let parts = [
        "## What the context costs",
        "As published: 109,150 tokens before, 15,550 after, 85.8 % saved",
        "How exact are these counts?",
        "No arm of this run (direct, direct-again, state) breaks a prompt's prefix",
        "The same for the prompt cache",
        "| simulated, from recorded |",
        "| agent/memory-1-question | memory-file | simulated, from partly stated |",
        "| agent/memory-1-question | memory-recall | simulated, from partly stated |",
        "| partly stated |",
    ];
    has(&report, &parts);
    let claims = text_of(&dir, "claims.csv");
    for (id, standing) in [
        ("sybil-85-percent-own,", ",arithmetic only,"),
        ("sybil-85-percent,", ",refuted,"),
        ("sybil-cheaper,", ",conditional,"),
        ("sybil-50kb-is-50000-tokens,", ",refuted,"),
    ] {
        let line = claims.lines().find(|line| line.starts_with(id)).unwrap();
        has(line, &[standing]);
    }
    let contexts = text_of(&dir, "contexts.csv");
    assert!(contexts.lines().count() > 10, "{contexts}");
    // A run that cannot be priced is refused at the start. A report accepts another price list.
    let future = scratch.path().join("future.toml");
    let built_in = include_str!("../../reports/prices.toml");
    let rows: Vec<String> = built_in
        .lines()
        .map(|line| {
            if line.starts_with("effective_from") {
                // All dates a century later, because a model may have several rows with different dates.
                line.replacen("\"20", "\"21", 1)
            } else {
                line.to_owned()
            }
        })
        .collect();
    fs::write(&future, rows.join("\n")).unwrap();
    let future = future.to_str().unwrap();
    let message = refused(&["report", dir.to_str().unwrap(), "--prices", future]);
    has(&message, &["claude-opus-5-5 has no price on"]);
    let never = scratch.path().join("never");
    let line = "run --backend state --workload agent/offload-comparison --state hot --policy none";
    let line = format!("{line} --prices {future} --out {}", never.display());
    let reason = "the report of this run would have no prices";
    has(&refused(&words(&line)), &[reason]);
    assert!(!never.exists());
    // `ctxbench report` reproduces the report from the files alone.
    ctxbench(["report", dir.to_str().unwrap()]).succeeds();
    assert_eq!(text_of(&dir, "report.md"), report);
}
