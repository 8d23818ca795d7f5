//! Examples 1 and 3 and the TODO plan of source 5, by shell words over real mounts and by the tools of `state`. Example 2 is
//! the workload `agent/offload-comparison`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::{Mount, has, mountable, said};
use crate::mcp::Session;

/// Query results of about `bytes` bytes: a JSON object a line.
fn results(topic: &str, bytes: usize) -> String {
    let mut text = String::new();
    for at in 0.. {
        if text.len() >= bytes {
            break;
        }
        let decision = at % 7 == 0;
        text += &format!("{{\"meeting\": \"All Hands {at}\", \"topic\": \"{topic}\", \"decision\": {decision}}}\n");
    }
    text
}

fn with_mounts(test: impl Fn(&Path)) {
    for backend in ["memory", "sqlite", "agent-memory"] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("workspace");
        let mount = Mount::new(backend, &dir, &[]);
        test(&dir);
        mount.end();
    }
}

#[test]
fn a_query_that_saves_nothing_leaves_a_workspace_that_lists_nothing() {
    with_mounts(|dir| assert_eq!(said(dir, "ls -A; find . -mindepth 1"), ""));
}

#[test]
fn a_synthesis_of_several_sources_reads_what_it_saved() {
    with_mounts(|dir| {
        let meetings = results("international engagement", 50_000);
        let decisions = results("decisions", 48_000);
        fs::write(dir.join("intl_engagement_meetings.json"), &meetings).unwrap();
        fs::write(dir.join("decisions_raw.json"), &decisions).unwrap();
        let sizes = said(dir, "stat -c %s decisions_raw.json intl_engagement_meetings.json");
        let expected = [decisions.len(), meetings.len()].map(|size| format!("{size}\n"));
        assert_eq!(sizes, expected.concat());
        let synthesis = "grep -h '\"decision\": true' intl_engagement_meetings.json decisions_raw.json | sort > intl_engagement_decisions.txt";
        said(dir, synthesis);
        let analysis = said(dir, "cat intl_engagement_decisions.txt");
        let all = [meetings, decisions].concat();
        let wanted = all.lines().filter(|line| line.contains("true")).count();
        assert!(wanted > 100 && analysis.lines().count() == wanted);
        // A part of a large file, as `read_file(…, offset=100, limit=50)`.
        let part = said(dir, "sed -n '101,150p' decisions_raw.json");
        assert!(part.lines().count() == 50 && part.starts_with(r#"{"meeting": "All Hands 100""#));
    });
}

const STEPS: [&str; 6] = [
    "Query July meetings",
    "Save July to file",
    "Query October meetings",
    "Save October to file",
    "Read both files",
    "Compare and synthesize",
];

/// The plan when its first steps are completed.
fn plan(done: usize) -> String {
    let status = |at| if at < done { "completed" } else { "pending" };
    let lines = STEPS.iter().zip(0..);
    lines.map(|(step, at)| format!("{}. [{}] {step}\n", at + 1, status(at))).collect()
}

#[test]
fn a_todo_plan_is_kept_step_by_step_and_a_file_saved_twice_is_replaced() {
    with_mounts(|dir| {
        let todos = dir.join("current_todos.txt");
        let (july, october) = (results("July", 50_000), results("October", 48_000));
        for done in 0..=STEPS.len() {
            fs::write(&todos, plan(done)).unwrap();
            match done {
                2 => fs::write(dir.join("july.json"), &july).unwrap(),
                4 => fs::write(dir.join("october.json"), &october).unwrap(),
                5 => {
                    let both = said(dir, "cat july.json october.json");
                    assert_eq!(both, format!("{july}{october}"));
                }
                _ => {}
            }
            // The whole plan is what it was last saved as, also when it gets longer or shorter.
            assert_eq!(said(dir, "cat current_todos.txt"), plan(done));
            let open = said(dir, "grep -c pending current_todos.txt || true");
            assert_eq!(open.trim(), (STEPS.len() - done).to_string());
        }
        fs::write(dir.join("july.json"), "short\n").unwrap();
        assert_eq!(said(dir, "cat july.json"), "short\n");
        let left = "current_todos.txt\njuly.json\noctober.json\n";
        assert_eq!(said(dir, "ls"), left);
    });
}

/// The text of a file in an agent's state, without line numbers.
fn text_of(state: &mut Session, path: &str) -> String {
    let shown = state.good("read_file", json!({"path": path}));
    let numbered = shown.lines().filter_map(|line| line.split_once('|'));
    let numbered = numbered.filter(|(number, _)| number.trim().parse::<u64>().is_ok());
    let lines: Vec<&str> = numbered.map(|(_, line)| line).collect();
    lines.join("\n")
}

#[test]
fn an_agents_state_keeps_the_synthesis_and_the_plan_too() {
    let mut state = Session::new(&["state"]);
    let meetings = results("international engagement", 50_000);
    let decisions = results("decisions", 48_000);
    let sources = [("intl_engagement_meetings.json", meetings), ("decisions_raw.json", decisions)];
    for (path, content) in &sources {
        state.good("write_file", json!({"path": path, "content": content}));
        assert!(text_of(&mut state, path) == *content, "{path}");
    }
    let found = state.good("search", json!({"text": "\"decision\": true"}));
    let all = sources.iter().flat_map(|(_, content)| content.lines());
    let wanted = all.filter(|line| line.contains("true")).count();
    assert!(wanted > 100 && found.lines().count() == wanted, "{found}");
    let part = json!({"path": "decisions_raw.json", "offset": 101, "limit": 50});
    let part = state.good("read_file", part);
    assert!(part.contains("   101|{\"meeting\": \"All Hands 100\"") && !part.contains("   151|"));

    for done in 0..=STEPS.len() {
        let path = "current_todos.txt";
        state.good("write_file", json!({"path": path, "content": plan(done)}));
        assert_eq!(text_of(&mut state, path), plan(done));
    }
    let listed = state.good("ls_files", json!({}));
    has(&listed, &["current_todos.txt"]);
    state.end();
}
