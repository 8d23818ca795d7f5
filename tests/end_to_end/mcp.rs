//! `ctxbench mcp`, driven by bare JSON-RPC and by the official Python SDK.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    CTXBENCH, Mount, Scratch, Server, Succeeds, can_mount, ctxbench, has, installed, mountable, mounts_under, refused,
    run, signal, stdout, text_of,
};

/// A session with a server.
pub struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Session {
    pub fn new(arguments: &[&str]) -> Self {
        Self::of(ctxbench(["mcp"]).args(arguments))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut session = Self { process, input, output, next: 0 };
        let client = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = session.request("initialize", client);
        let server = &answer["result"]["serverInfo"]["name"];
        assert_eq!(server, "ctxbench", "{answer}");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{line}");
        answer
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// The text of an answer, and whether it is an error.
    fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, result["isError"] == json!(true))
    }

    pub fn good(&mut self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments);
        assert!(!is_error, "{text}");
        text
    }

    fn bad(&mut self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments);
        assert!(is_error, "{text}");
        text
    }

    /// Makes a call whose answer has this part.
    #[track_caller]
    fn says(&mut self, tool: &str, arguments: Value, part: &str) {
        has(&self.good(tool, arguments), &[part]);
    }

    /// Makes a call that is refused with this reason.
    #[track_caller]
    fn refuses(&mut self, tool: &str, arguments: Value, reason: &str) {
        has(&self.bad(tool, arguments), &[reason]);
    }

    /// Ends the session by the end of its input.
    pub fn end(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().unwrap().success());
    }

    /// Ends the session as Ctrl-C does.
    fn interrupt(mut self) {
        signal(&self.process, Signal::INT);
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The end of its input lets a server unmount, which a kill would not.
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn file_tools_read_write_and_search_a_directory() {
    let scratch = Scratch::new();
    let dir = scratch.dir("work");
    let mut session = Session::new(&["files", text(&dir)]);
    let tools = ["ls_files", "read_file", "write_file", "search", "ls", "write_todos"];
    assert_eq!(session.tools(), tools);
    let written = json!({"path": "a/b.md", "content": "one\ntwo\n"});
    session.good("write_file", written);
    assert_eq!(text_of(&dir, "a/b.md"), "one\ntwo\n");
    session.says("ls_files", json!({}), "a/b.md (8 bytes)");
    let page = json!({"path": "a/b.md", "offset": 2, "limit": 1});
    let page = session.good("read_file", page);
    assert!(page.ends_with("     2|two"), "{page}");
    let found = session.good("search", json!({"text": "tw"}));
    assert_eq!(found, "a/b.md:2:two");
    session.refuses("read_file", json!({"path": "none"}), "no such file");
    session.refuses("read_file", json!({"name": "none"}), "unknown field `name`");
    // With the names of source 5.
    let written = json!({"file_path": "july.json", "content": "[]\n"});
    session.good("write_file", written);
    session.says("read_file", json!({"file_path": "july.json"}), "     1|[]");
    session.says("ls", json!({}), "july.json (3 bytes)");
    session.says("ls", json!({"path": "a"}), "a/b.md (8 bytes)");
    let plan = json!({"todos": [
        {"id": "1", "content": "Find July meetings", "status": "completed"},
        {"id": "2", "content": "Save July results", "status": "pending"},
    ]});
    let saved = "Saved todos.json: 1 pending, 0 in progress, 1 completed";
    session.says("write_todos", plan.clone(), saved);
    let kept: Value = serde_json::from_str(&text_of(&dir, "todos.json")).unwrap();
    assert_eq!(kept, plan["todos"]);
    let unknown = session.request("tools/call", json!({"name": "rm", "arguments": {}}));
    let message = unknown["error"]["message"].as_str().unwrap();
    has(message, &["unknown tool rm"]);
    session.end();
}

#[test]
fn no_path_of_a_file_tool_leaves_the_workspace() {
    let scratch = Scratch::new();
    let dir = scratch.dir("work");
    let secret = scratch.path().join("secret");
    std::fs::write(&secret, "hidden").unwrap();
    std::os::unix::fs::symlink("..", dir.join("up")).unwrap();
    std::os::unix::fs::symlink(&secret, dir.join("link")).unwrap();
    let mut session = Session::new(&["files", text(&dir)]);
    let secret_path = text(&secret);
    for path in ["../secret", secret_path, "up/secret", "link", "a/../../secret"] {
        session.bad("read_file", json!({"path": path}));
        session.bad("write_file", json!({"path": path, "content": "changed"}));
    }
    session.bad("write_file", json!({"path": "up/new/file", "content": "x"}));
    for dir in ["..", "up"] {
        session.bad("ls_files", json!({"dir": dir}));
    }
    session.bad("search", json!({"text": "hidden", "dir": ".."}));
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "hidden");
    assert!(!scratch.path().join("new").exists());
    session.end();
}

#[test]
fn a_second_server_on_a_memory_says_that_another_process_has_it_open() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("memory");
    let mut first = Session::new(&["agent-memory", text(&dir), "--agent-id", "kim"]);
    let refused = refused(&["mcp", "agent-memory", text(&dir), "--agent-id", "akashi"]);
    has(&refused, &["another process has it open", "end that process first", "ctxbench mcp files"]);
    assert!(!refused.contains("unmount"), "{refused}");
    assert!(dir.join("control").exists());
    // The names and types of source 3 and of the SDKs.
    first.says("remember", json!({"text": "Tea", "ttl": 3600}), "memory/private/kim/tea.md");
    first.says("recall", json!({"query": "tea"}), "Tea");
    first.end();
}

#[test]
fn an_agents_memory_in_a_bucket_is_served_and_another_host_sees_what_it_wrote() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let endpoint = server.announcement.endpoint.as_str();
    let serve = |cache: &Path, agent: &str| {
        Session::of(&mut server.command(&["mcp", "s3", "--endpoint", endpoint, "--agent-id", agent, text(cache)]))
    };
    let (a, b) = (scratch.dir("a"), scratch.dir("b"));
    let mut session = serve(&a, "alice");
    session.says("write_file", json!({"path": "plan.md", "content": "one"}), "Saved plan.md");
    session.says("remember", json!({"text": "RSI above 70: exit"}), "notes/rsi-above-70-exit.md");
    session.end();
    let mut session = serve(&b, "alice");
    session.says("read_file", json!({"path": "plan.md"}), "1|one");
    session.says("recall", json!({"question": "when to exit?"}), "RSI above 70");
    session.end();
    let mut session = serve(&scratch.dir("c"), "bob");
    session.says("ls_files", json!({}), "No files");
    session.end();
    assert!(mounts_under(scratch.path()).is_empty());
}

/// A question as long as the target of a symbolic link may be. In a name, a Chinese character takes nine bytes.
fn long_question() -> String {
    let question = format!("RSI exit {}", "什么时候".repeat(340));
    assert_eq!(question.len(), 4089);
    question
}

#[test]
fn an_agents_memory_remembers_and_recalls_and_leaves_no_mount() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("memory");
    let mut session = Session::new(&["agent-memory", text(&dir)]);
    assert_eq!(session.tools()[6..], ["remember", "recall"]);
    let asked = json!({"text": "RSI above 70: exit", "importance": 0.9, "tags": ["trading"]});
    session.says("remember", asked, "notes/rsi-above-70-exit.md");
    let again = json!({"text": "RSI above 70: exit"});
    session.says("remember", again, "rsi-above-70-exit-2.md");
    session.says("recall", json!({"question": "RSI exit"}), "RSI above 70");
    let asked = json!({"question": long_question()});
    session.says("recall", asked, "2 of 2 relevant notes");
    let long = json!({"question": "R".repeat(4096)});
    session.refuses("recall", long, "the maximum is 4095");
    let few = json!({"question": "RSI", "max_tokens": 1});
    session.refuses("recall", few, "64 to 1,000,000");
    session.interrupt();
    assert!(mounts_under(scratch.path()).is_empty());
    let mut session = Session::new(&["agent-memory", text(&dir)]);
    session.says("recall", json!({"question": "RSI exit"}), "RSI above 70");
    session.end();
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn scripts_remember_and_recall_in_a_mounted_memory() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &[]);
    let note = "RSI above 70: exit";
    let said = run(["remember", text(&dir), note, "--tag", "trading"]);
    has(&stdout(&said), &["notes/rsi-above-70-exit.md"]);
    has(&text_of(&dir, ":search?tags:trading"), &["1 note matches"]);
    for question in ["RSI exit", &long_question()] {
        let found = run(["recall", text(&dir), question]);
        has(&stdout(&found), &["RSI above 70"]);
    }
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().collect();
    assert_eq!(left.len(), 1, "only notes/: {left:?}");
    let refused = refused(&["recall", text(scratch.path()), "RSI"]);
    has(&refused, &["is not in a mounted agent-memory"]);
    mount.end();
}

/// Remembers a note of an agent's mount from a script, and returns its path.
fn remembers(dir: &Path, arguments: &[&str]) -> String {
    let said = run([&["remember", text(dir)], arguments].concat());
    let said = stdout(&said);
    let path = said.trim().strip_prefix("Remembered in ");
    path.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn a_note_from_a_script_is_private_unless_it_has_a_namespace() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let db = scratch.path().join("avm.db");
    let as_agent = |agent| {
        let options = ["--db", text(&db), "--agent-id", agent];
        Mount::new("agent-memory", &dir, &options)
    };
    let mount = as_agent("akashi");
    let rule = [
        "RSI above 70 on NVDA: average -12% in 5 days",
        "--title",
        "nvda_rsi_rule",
        "--importance",
        "0.9",
        "--tags",
        "trading,nvda",
        "--ttl",
        "7d",
    ];
    let path = "memory/private/akashi/nvda_rsi_rule.md";
    assert_eq!(remembers(&dir, &rule), path);
    assert_eq!(
        text_of(&dir, path),
        "---\nimportance: 0.9\ntags: [trading, nvda]\nttl: 7d\n---\nRSI above 70 on NVDA: average -12% in 5 days\n"
    );
    let meta = text_of(&dir, &format!("{path}:meta"));
    has(&meta, &["importance: 0.9\n", "tags: nvda,trading\n", "ttl: expires "]);
    // The same title once more is another note.
    let again = ["RSI again", "--title", "nvda_rsi_rule"];
    let second = "memory/private/akashi/nvda_rsi_rule-2.md";
    assert_eq!(remembers(&dir, &again), second);
    let shared = ["Market regime: RSI risk-off", "--namespace", "market"];
    let market = "memory/shared/market/market-regime-rsi-risk-off.md";
    assert_eq!(remembers(&dir, &shared), market);
    // In a directory of the agent's own, the note is there; in one that others see, it is refused.
    let trading = dir.join("memory/private/akashi/trading");
    std::fs::create_dir(&trading).unwrap();
    assert_eq!(remembers(&trading, &["RSI of BTC"]), "rsi-of-btc.md");
    let gone = ["RSI of yesterday", "--ttl", "0s"];
    remembers(&dir, &gone);
    std::fs::create_dir(dir.join("work")).unwrap();
    for (below, arguments, reason) in [
        ("work", &["RSI"][..], "other agents find notes in /work/"),
        ("memory/shared", &["RSI"], "other agents find notes"),
        ("work", &["RSI", "--namespace", "market"], "give the root of the mount"),
        ("", &["RSI", "--namespace", "../private/kim"], "the namespace"),
        ("", &["RSI", "--title", "../../shared/x"], "the title"),
        ("", &["RSI", "--ttl", "soon"], "ttl is \"soon\""),
        ("", &["RSI", "--importance", "2"], "it must be 0 to 1"),
    ] {
        let below = dir.join(below);
        let said = refused(&[&["remember", text(&below)], arguments].concat());
        has(&said, &[reason]);
    }
    assert_eq!(std::fs::read_dir(dir.join("work")).unwrap().count(), 0);
    assert!(text_of(&dir, ":search?RSI").starts_with("4 notes match"));
    mount.end();

    let mount = as_agent("kim");
    let found = text_of(&dir, ":search?RSI");
    has(&found, &["1 note matches", &format!("/{market} ")]);
    for strategy in ["balanced", "recency", "IMPORTANCE"] {
        let found = run(["recall", text(&dir), "RSI NVDA", "--strategy", strategy]);
        has(&stdout(&found), &["# 1 of 1 relevant notes", "risk-off"]);
    }
    // The namespace exists, and another agent writes into it.
    let shared = ["RSI risk-on", "--namespace", "market"];
    assert_eq!(remembers(&dir, &shared), "memory/shared/market/rsi-risk-on.md");
    mount.end();
}

#[test]
fn an_agent_over_mcp_has_private_notes_that_another_one_does_not_reach() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("memory");
    let as_agent = |agent| Session::new(&["agent-memory", text(&dir), "--agent-id", agent]);
    let mut kim = as_agent("kim");
    let secret = json!({
        "text": "The takeover of Acme is on Friday", "title": "takeover", "importance": 1,
        "tags": ["acme"], "ttl": "4w",
    });
    kim.says("remember", secret, "memory/private/kim/takeover.md");
    let shared = json!({"text": "Acme reports on Monday", "namespace": "market"});
    kim.says("remember", shared, "memory/shared/market/acme-reports-on-monday.md");
    let plan = json!({"todos": [{"content": "Buy Acme", "status": "in_progress"}]});
    kim.says("write_todos", plan, "Saved memory/private/kim/todos.json");
    kim.says("recall", json!({"question": "takeover"}), "on Friday");
    kim.end();

    let mut akashi = as_agent("akashi");
    for strategy in ["balanced", "recency", "importance"] {
        let asked = json!({"question": "When is the takeover of Acme?", "strategy": strategy});
        let answer = akashi.good("recall", asked);
        has(&answer, &["# 1 of 1 relevant notes", "Monday"]);
    }
    let found = akashi.good("search", json!({"text": "Acme"}));
    assert_eq!(found.lines().count(), 1, "{found}");
    let listed = akashi.good("ls", json!({}));
    assert!(!listed.contains("kim"), "{listed}");
    let path = "memory/private/kim/takeover.md";
    for path in [path, "memory/private/akashi/../kim/takeover.md", "memory/private/kim/todos.json", "../m.db"] {
        akashi.bad("read_file", json!({"path": path}));
        akashi.bad("write_file", json!({"path": path, "content": "x"}));
    }
    for (name, value) in [
        ("namespace", "../private/kim"),
        ("namespace", "market/../../private/kim"),
        ("title", "../kim/note"),
        ("title", "/etc/note"),
    ] {
        akashi.refuses("remember", json!({"text": "x", name: value}), name);
    }
    akashi.end();

    for id in ["../kim", "a/b", "/kim", "..", ".", "", "a b", "kim\n"] {
        let elsewhere = scratch.path().join("elsewhere");
        let said = refused(&["mcp", "agent-memory", text(&elsewhere), "--agent-id", id]);
        has(&said, &["agent", "is not valid"]);
        assert!(!elsewhere.exists(), "{id:?}");
    }
    for backend in ["sqlite", "files", "sql"] {
        let said = refused(&["mcp", backend, text(&dir), "--agent-id", "kim"]);
        has(&said, &["--agent-id is for agent-memory only"]);
    }
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn a_database_tool_shows_each_commit_of_another_program() {
    let scratch = Scratch::new();
    let file = scratch.path().join("mail.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE messages(id INTEGER PRIMARY KEY, sender TEXT)").unwrap();
    let mut session = Session::new(&["sql", text(&file)]);
    assert_eq!(session.tools(), ["query"]);
    let sql = json!({"sql": "SELECT id FROM messages WHERE sender = ?1", "parameters": ["kim"]});
    session.says("query", sql.clone(), r#""rows":[]"#);
    db.execute("INSERT INTO messages VALUES (7, 'kim')", []).unwrap();
    session.says("query", sql, "[[7]]");
    for (sql, reason) in
        [("DELETE FROM messages", "only SELECT"), ("SELECT hex(zeroblob(100000000))", "a value has more than")]
    {
        session.refuses("query", json!({"sql": sql}), reason);
    }
    session.end();
}

#[test]
fn a_server_without_a_usable_source_says_why() {
    let missing = "cannot open /nowhere/a.db as a SQLite database";
    for (arguments, reason) in [
        (&["sql", "/nowhere/a.db"][..], missing),
        (&["nonsense", "/tmp"], "unknown backend"),
        (&["files"], "files needs a directory"),
        (&["sqlite", "/nowhere/memory", "--endpoint", "http://127.0.0.1:1"], "--endpoint is for s3 only"),
        (&["s3-embedded", "/nowhere/memory"], "an S3 server that ends with this command"),
        (&["memory", "/nowhere/memory"], "are lost when this command ends"),
    ] {
        has(&refused(&[&["mcp"], arguments].concat()), &[reason]);
    }
}

/// Starts a server, prints its tools, and makes calls one after the other, with the official Python SDK.
const CLIENT: &str = r#"
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", *sys.argv[3:]])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        print([tool.name for tool in (await session.list_tools()).tools])
        for tool, arguments in json.loads(sys.argv[2]):
            print((await session.call_tool(tool, arguments)).content[0].text)

asyncio.run(main())
"#;

#[test]
fn the_official_python_sdk_uses_the_server() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/mcp/bin/python");
    let missing = format!("{} is missing: make mcp", python.display());
    let found = python.exists().then_some(()).ok_or(missing);
    if installed(found, "CTXBENCH_REQUIRE_MCP").is_none() {
        return;
    }
    let uses = |server: &[&str], calls: Value| {
        let mut client = Command::new("timeout");
        client.arg("60").arg(&python).args(["-c", CLIENT, CTXBENCH]);
        stdout(&client.arg(calls.to_string()).args(server).succeeds())
    };
    let scratch = Scratch::new();
    let file = scratch.path().join("a.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (41)").unwrap();
    let query = json!([["query", {"sql": "SELECT a + ?1 FROM t", "parameters": [1]}]]);
    let said = uses(&["sql", text(&file)], query);
    has(&said, &["['query']", "[[42]]"]);

    let work = scratch.dir("work");
    let calls = json!([
        ["write_file", {"path": "a/b.md", "content": "one\ntwo\n"}],
        ["ls_files", {}],
        ["read_file", {"path": "a/b.md", "offset": 2}],
        ["search", {"text": "tw"}],
    ]);
    let said = uses(&["files", text(&work)], calls);
    has(&said, &["a/b.md (8 bytes)", "     2|two", "a/b.md:2:two"]);

    if !can_mount() {
        return;
    }
    let memory = scratch.dir("memory");
    let calls = json!([
        ["remember", {"text": "RSI above 70: exit", "tags": ["trading"]}],
        ["recall", {"question": "RSI exit"}],
    ]);
    let said = uses(&["agent-memory", text(&memory)], calls);
    let parts = ["notes/rsi-above-70-exit.md", "1 of 1 relevant notes"];
    has(&said, &parts);
    assert!(mounts_under(scratch.path()).is_empty());
}

/// What the processes of a server took at most while calls ran.
#[derive(Default)]
struct Peak {
    /// Of one process, in bytes.
    memory: u64,
    /// Deleted files that a process had open, in bytes.
    temporary: u64,
}

impl Peak {
    fn sample(&mut self, server: u32) {
        let mut processes = vec![server];
        // Any thread may have started a worker.
        for task in std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten() {
            let children = std::fs::read_to_string(task.unwrap().path().join("children"));
            let children = children.unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
        for process in processes {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"));
            let status = status.unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|it| it.trim().strip_suffix(" kB"));
            let kib: u64 = kib.and_then(|it| it.parse().ok()).unwrap_or(0);
            self.memory = self.memory.max(kib << 10);
            let mut temporary = 0;
            for file in std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten() {
                let Ok(file) = file else { continue };
                let name = std::fs::read_link(file.path()).unwrap_or_default();
                if name.to_string_lossy().ends_with(" (deleted)") {
                    temporary += std::fs::metadata(file.path()).map_or(0, |it| it.len());
                }
            }
            self.temporary = self.temporary.max(temporary);
        }
    }
}

impl Session {
    /// Makes calls at once: the answer and the time of each, in their order, and what they took at most.
    fn at_once(&mut self, calls: &[(&str, Value)]) -> (Vec<(Value, Duration)>, Peak) {
        let began = Instant::now();
        let first = self.next + 1;
        for (tool, arguments) in calls {
            self.next += 1;
            let params = json!({"name": tool, "arguments": arguments});
            self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": "tools/call", "params": params}));
        }
        let (server, done) = (self.process.id(), AtomicBool::new(false));
        let mut answers = vec![(Value::Null, Duration::ZERO); calls.len()];
        let peak = std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut peak = Peak::default();
                while !done.load(Ordering::Relaxed) {
                    peak.sample(server);
                    std::thread::sleep(Duration::from_millis(5));
                }
                peak
            });
            for _ in calls {
                let mut line = String::new();
                self.output.read_line(&mut line).unwrap();
                let mut answer: Value = serde_json::from_str(&line).unwrap();
                let at = (answer["id"].as_u64().unwrap() - first) as usize;
                answers[at] = (answer["result"].take(), began.elapsed());
            }
            done.store(true, Ordering::Relaxed);
            sampler.join().unwrap()
        });
        (answers, peak)
    }
}

fn mail(scratch: &Scratch) -> PathBuf {
    let file = scratch.path().join("mail.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (7, 'kim')").unwrap();
    file
}

/// The limits of a statement, as docs/TOOLS.md has them, and what a process takes besides.
const MEMORY: u64 = (512 + 128) << 20;
const TIME: Duration = Duration::from_secs(60);

#[test]
fn a_statement_that_takes_too_much_ends_within_limits_that_its_error_names() {
    let scratch = Scratch::new();
    let file = mail(&scratch);
    let mut session = Session::new(&["sql", text(&file), "--writable"]);
    let many = |column: &str| format!("SELECT {}", vec![column; 1900].join(", "));
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) ";
    let few = numbers.replace("100000", "100");
    let large = "hex(zeroblob(8000000))";
    let quick = ("query", json!({"sql": "SELECT b FROM t"}));
    let memory = "512 MiB of memory";
    for (sql, reason) in [
        (many("zeroblob(16000000)"), memory),
        (many("randomblob(16000000)"), memory),
        (many("printf('%*d', 16000000, 1)"), memory),
        (many(large), memory),
        (format!("{few} SELECT group_concat({large}) FROM n"), "16777216 bytes"),
        (format!("{few} SELECT json_group_array({large}) FROM n"), memory),
        (format!("SELECT replace({large}, '0', {large})"), "16777216 bytes"),
        (format!("SELECT {}1{}", "hex(".repeat(60), ")".repeat(60)), "16777216 bytes"),
        (format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)), ""),
        (format!("SELECT 1{}", "+1".repeat(100_000)), ""),
        (format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(100_000)), ""),
        (format!("SELECT {}", "json('".to_owned() + &"[".repeat(1_000_000) + "')"), ""),
        (format!("{numbers} SELECT i, randomblob(10000) FROM n ORDER BY 2"), memory),
        (format!("{numbers} SELECT a.i, b.i FROM n a, n b ORDER BY 1 + b.i"), ""),
    ] {
        let began = Instant::now();
        let (answers, peak) = session.at_once(&[("query", json!({"sql": sql}))]);
        let said = format!("{} ({:?})", answers[0].0, began.elapsed());
        let shown = &sql[..sql.len().min(90)];
        eprintln!("{shown}: {} MiB, {} bytes of files, {said:.150}", peak.memory >> 20, peak.temporary);
        assert_eq!(answers[0].0["isError"], true, "{shown}: {said:.300}");
        // On a busy machine, the time may end first.
        let is_late = said.contains("stopped after 10 s") && answers[0].1 >= Duration::from_secs(10);
        assert!(said.contains(reason) || is_late, "{shown}: {said:.300}");
        assert!(answers[0].1 < TIME, "{shown}: {said:.300}");
        assert!(peak.memory < MEMORY, "{shown}: {} MiB", peak.memory >> 20);
        assert_eq!(peak.temporary, 0, "{shown}");
        let (tool, asked) = quick.clone();
        session.says(tool, asked, "kim");
    }
    // A change that grows too much, and one that is killed: each is undone, and the file stays small.
    let grown = format!("{numbers} INSERT INTO t SELECT i + 10, {large} FROM n");
    let endless = format!("INSERT INTO t SELECT 8, instr({large}, hex(zeroblob(3000000)) || '1')");
    for (sql, reason) in [(grown, "256 MiB"), (endless, "10 s")] {
        let (answers, peak) = session.at_once(&[("execute", json!({"sql": sql}))]);
        let said = answers[0].0.to_string();
        eprintln!("{}: {:?} {said:.200}", &sql[..60], answers[0].1);
        assert!(said.contains(reason) && answers[0].1 < TIME, "{said:.300}");
        assert!(peak.memory < MEMORY);
        session.says("query", json!({"sql": "SELECT count(*) FROM t"}), "[[1]]");
        assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20);
    }
    session.end();
}

#[test]
fn a_query_that_cannot_be_interrupted_is_killed_and_blocks_no_other_call() {
    let scratch = Scratch::new();
    let mut session = Session::new(&["sql", text(&mail(&scratch))]);
    let large = "hex(zeroblob(8000000))";
    let slow = [
        format!("SELECT {large} LIKE '%{}1'", "0".repeat(49_000)),
        format!("SELECT instr({large}, hex(zeroblob(3000000)) || '1')"),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n".to_owned(),
    ];
    let query = |sql: &str| ("query", json!({"sql": sql}));
    let mut calls: Vec<_> = slow.iter().map(|sql| query(sql)).collect();
    calls.extend(vec![query("SELECT b FROM t"); 20]);
    let (answers, peak) = session.at_once(&calls);
    let first = answers[..slow.len()].iter().map(|(_, took)| *took).min().unwrap();
    for (at, (answer, took)) in answers.iter().enumerate() {
        let said = answer.to_string();
        if at < slow.len() {
            assert!(said.contains("stopped after 10 s"), "{said}");
            assert!(*took < TIME, "{took:?}");
        } else {
            assert!(said.contains("kim"), "{said}");
            assert!(*took < first, "{took:?}");
        }
    }
    assert!(peak.memory < MEMORY);
    session.says("query", json!({"sql": "SELECT b FROM t"}), "kim");
    session.end();
}

#[test]
fn a_worker_that_was_killed_is_replaced_and_ends_with_its_server() {
    let scratch = Scratch::new();
    let mut session = Session::new(&["sql", text(&mail(&scratch))]);
    let server = session.process.id();
    let workers = || -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten();
        let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
        let children: String = children.map(Result::unwrap_or_default).collect();
        children.split_whitespace().map(|it| it.parse().unwrap()).collect()
    };
    let quick = json!({"sql": "SELECT b FROM t"});
    session.says("query", quick.clone(), "kim");
    let first = workers();
    assert_eq!(first.len(), 1);
    let pid = rustix::process::Pid::from_raw(first[0]).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // Its end of the pipe is closed once it is a zombie.
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", first[0])).unwrap();
    while !state().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    session.says("query", quick, "kim");
    let second = workers();
    assert_ne!(first, second);
    session.process.kill().unwrap();
    session.process.wait().unwrap();
    let began = Instant::now();
    while Path::new(&format!("/proc/{}", second[0])).exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the worker outlives its server");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn calls_that_write_and_read_at_once_are_made_in_their_order() {
    let scratch = Scratch::new();
    let dir = scratch.dir("work");
    let mut session = Session::new(&["files", text(&dir)]);
    let mut calls = Vec::new();
    for number in 0..100 {
        calls.push(("write_file", json!({"path": "a", "content": format!("<{number}>")})));
        calls.push(("read_file", json!({"path": "a"})));
        calls.push(("search", json!({"text": "<"})));
    }
    // A read may see a later write, never an earlier one.
    let (answers, _) = session.at_once(&calls);
    for (at, (answer, _)) in answers.iter().enumerate() {
        let said = answer["content"][0]["text"].as_str().unwrap();
        if at % 3 != 0 && said.contains('<') {
            let (_, number) = said.split_once('<').unwrap();
            let number: usize = number.split_once('>').unwrap().0.parse().unwrap();
            assert!(number >= at / 3, "{at}: {said}");
        }
    }
    assert_eq!(text_of(&dir, "a"), "<99>");
    session.end();
}

#[test]
fn every_call_that_makes_no_sense_is_answered_with_an_error() {
    let scratch = Scratch::new();
    let dir = scratch.dir("work");
    std::fs::write(dir.join("a"), "one\ntwo\n").unwrap();
    let long = "n".repeat(256);
    let deep = "d/".repeat(3000);
    let file_calls = [
        ("read_file", json!({"path": "a\0b"})),
        ("read_file", json!({"path": ""})),
        ("read_file", json!({"path": long})),
        ("read_file", json!({"path": deep})),
        ("read_file", json!({"path": "a/b"})),
        ("read_file", json!({"path": "."})),
        ("read_file", json!({"path": 5})),
        ("read_file", json!({"path": null})),
        ("read_file", json!({})),
        ("read_file", json!({"path": "a", "offset": -1})),
        ("read_file", json!({"path": "a", "offset": 1.5})),
        ("read_file", json!({"path": "a", "offset": u64::MAX})),
        ("read_file", json!({"path": "a", "offset": 3, "limit": 0})),
        ("read_file", json!({"path": "a", "limit": "many"})),
        ("read_file", json!({"path": "a", "limit": 1e300})),
        ("write_file", json!({"path": "b\0c", "content": "x"})),
        ("write_file", json!({"path": "", "content": "x"})),
        ("write_file", json!({"path": ".", "content": "x"})),
        ("write_file", json!({"path": "..", "content": "x"})),
        ("write_file", json!({"path": "/b", "content": "x"})),
        ("write_file", json!({"path": "c/../../b", "content": "x"})),
        ("write_file", json!({"path": long, "content": "x"})),
        ("write_file", json!({"path": deep + "x", "content": "x"})),
        ("write_file", json!({"path": "a/b", "content": "x"})),
        ("write_file", json!({"path": "b", "content": [1]})),
        ("ls_files", json!({"dir": "a\0b"})),
        ("ls_files", json!({"dir": ".."})),
        ("ls_files", json!({"dir": long})),
        ("ls_files", json!({"dir": "a"})),
        ("ls_files", json!({"dir": []})),
        ("search", json!({"text": ""})),
        ("search", json!({"text": "o", "dir": "a\0b"})),
        ("search", json!({"text": {}, "dir": "."})),
    ];
    let sql_calls = [
        ("query", json!({"sql": ""})),
        ("query", json!({"sql": "SELECT 1\0"})),
        ("query", json!({"sql": "\0SELECT"})),
        ("query", json!({"sql": null})),
        ("query", json!({"sql": "SELECT ?1", "parameters": {}})),
        ("query", json!({"sql": "SELECT ?1", "parameters": [[]]})),
        ("query", json!({"sql": "SELECT ?1", "parameters": [1, 2, 3]})),
        ("query", json!({"sql": "SELECT ?99999999"})),
        ("query", json!({"sql": format!("SELECT 1{}", ", 1".repeat(5000))})),
        ("execute", json!({"sql": "DELETE FROM t WHERE"})),
        ("execute", json!({"sql": ""})),
    ];
    let file = mail(&scratch);
    let (files, sql) = (["files", text(&dir)], ["sql", text(&file), "--writable"]);
    for (server, calls) in [(&files[..], &file_calls[..]), (&sql[..], &sql_calls[..])] {
        let mut session = Session::new(server);
        for (tool, given) in calls {
            session.bad(tool, given.clone());
        }
        for params in [
            json!({"name": "none", "arguments": {}}),
            json!({"name": "", "arguments": {}}),
            json!({"name": "query", "arguments": [1]}),
            json!({"name": 5}),
            json!({}),
            json!([]),
            json!(null),
        ] {
            let answer = session.request("tools/call", params.clone());
            assert!(answer["error"]["message"].is_string(), "{params}: {answer}");
        }
        let answer = session.request("no/such/method", json!({"x": 1}));
        assert!(answer["error"]["message"].is_string(), "{answer}");
        let long = "x".repeat(20_000_000);
        let answer =
            session.request("tools/call", json!({"name": "write_file", "arguments": {"path": "b", "content": long}}));
        has(&answer["error"]["message"].to_string(), &["longer than 16777216 bytes"]);
        assert!(!session.tools().is_empty());
        session.end();
    }
    let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.retain(|name| name != "a" && name != "d" && name != "c");
    assert!(names.is_empty(), "{names:?}");
}

/// The number of calls in a block. Blocks over MCP and blocks in this process alternate.
const CALLS: u32 = 200;
const BLOCKS: usize = 20;

/// How much longer a call takes over MCP than the least that it needs in this process, in microseconds: the median of blocks.
fn more_over_mcp(
    session: &mut Session,
    (tool, asked): (&str, &Value),
    inside: &mut dyn FnMut() -> String,
    shows: &str,
) -> f64 {
    let block = |call: &mut dyn FnMut() -> String| {
        let began = Instant::now();
        for _ in 0..CALLS {
            assert!(call().contains(shows));
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
    };
    let mut more: Vec<f64> =
        (0..BLOCKS).map(|_| block(&mut || session.good(tool, asked.clone())) - block(inside)).collect();
    more.sort_by(f64::total_cmp);
    more[BLOCKS / 2]
}

#[test]
#[ignore = "measures, with a release build on a quiet machine: make speed"]
fn a_tool_call_over_mcp_takes_300_us_more_than_in_the_process() {
    let Some(scratch) = mountable() else { return };
    let file = scratch.path().join("mail.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, sender TEXT); INSERT INTO messages VALUES (7, 'kim')",
    )
    .unwrap();
    let asked = json!({"sql": "SELECT id FROM messages WHERE sender = ?1", "parameters": ["kim"]});
    let mut tool = backends::tools::sql::SqlTool::open(&file, false).unwrap();
    let mut session = Session::new(&["sql", text(&file)]);
    let mut inside = || tool.call("query", asked.clone()).unwrap().unwrap();
    let query = more_over_mcp(&mut session, ("query", &asked), &mut inside, "[[7]]");
    session.end();

    let memory = scratch.dir("memory");
    let mut session = Session::new(&["agent-memory", text(&memory)]);
    session.good("remember", json!({"text": "RSI above 70: exit"}));
    let root = memory.join("mnt");
    let note = json!({"path": "notes/rsi-above-70-exit.md"});
    let path = root.join("notes/rsi-above-70-exit.md");
    let mut inside = || std::fs::read_to_string(&path).unwrap();
    let read_file = more_over_mcp(&mut session, ("read_file", &note), &mut inside, "RSI above");
    let dir = root.join("notes");
    let mut inside = || {
        let names = std::fs::read_dir(&dir).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>().join("\n")
    };
    let ls_files = json!({"dir": "notes"});
    let ls_files = more_over_mcp(&mut session, ("ls_files", &ls_files), &mut inside, "rsi-above");
    let mut inside = || std::fs::read_to_string(&path).unwrap();
    let search = json!({"text": "above", "dir": "notes"});
    let search = more_over_mcp(&mut session, ("search", &search), &mut inside, "RSI above");
    let asked = json!({"question": "RSI exit"});
    let path = root.join(":recall?query=RSI+exit&max_tokens=2000&strategy=balanced");
    let mut inside = || std::fs::read_to_string(&path).unwrap();
    let recall = more_over_mcp(&mut session, ("recall", &asked), &mut inside, "RSI above");
    // Last, because the memory indexes the written files during later calls.
    let mut inside = || {
        std::fs::write(root.join("own.txt"), "ten").unwrap();
        "own.txt".to_owned()
    };
    let written = json!({"path": "own.txt", "content": "ten"});
    let write_file = more_over_mcp(&mut session, ("write_file", &written), &mut inside, "own.txt");
    session.end();
    let found = [
        ("query", query),
        ("read_file", read_file),
        ("ls_files", ls_files),
        ("search", search),
        ("write_file", write_file),
        ("recall", recall),
    ];
    for (tool, more) in found {
        println!("{tool} over MCP takes a median of {more:.0} µs more than in the process");
    }
    for (tool, more) in found {
        assert!(more <= 300.0, "{tool} takes a median of {more:.0} µs more");
    }
}
