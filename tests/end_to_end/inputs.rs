//! Errors on bad input: they name the file, the line, the field and the allowed values.

use std::fs;

use crate::common::{
    Mount, Scratch, Succeeds, can_mount, ctxbench, every_command, has, lines, measure, refused, run, stderr, stdout,
    text_of, words,
};

#[test]
fn an_unknown_name_is_answered_with_the_nearest_known_ones() {
    // Each: a command line, and after the colon a part of the refusal.
    for case in [
        "run --suite nonsense: unknown suite; use one of ",
        "run --workload micro/nonsense: unknown workload; the nearest are micro/",
        "run --backend nonsense: unknown backend; use one of ",
        "run --backend no-such-file.toml: no-such-file.toml: No such file",
        "run --policy nonsense: unknown policy; use one of ",
        "run --rounds 0: 0 is not in 1..",
        "run --epochs 2: 2 is not in 3..",
        "run --budget 0: above 0",
        "run --call-timeout 0: above 0",
        "run --workload micro/rename --state cold: no workload has any of the requested cache states",
        "mount nonsense /tmp: unknown store nonsense; use one of ",
        "mount memory /tmp --db x: unexpected argument '--db'",
        "mount view /tmp --source x: --definition",
    ] {
        let (line, reason) = case.split_once(": ").unwrap();
        has(&refused(&words(line)), &[reason]);
    }
}

#[test]
fn an_error_says_what_failed_on_which_thing_and_what_to_do() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(scratch.path().join("file"), "").unwrap();
    fs::write(dir.join("entry"), "").unwrap();
    scratch.dir("mnt");
    // Each: a command line, what it names, and what it proposes.
    for (line, named, fix) in [
        (
            "mount sqlite mnt --db none/x.db",
            "none/x.db cannot be opened: No such file",
            "fix: create its directory with `mkdir -p ",
        ),
        ("mount sqlite mnt --log none/x.log", "opening the log ", "fix: create its directory with `mkdir -p "),
        ("mount sqlite mnt --db dir", "it is not a regular file", "fix: choose another file"),
        ("unmount mnt", "mnt: nothing is mounted there", "fix: `ctxbench status` lists"),
        ("unmount none", "none: No such file", "fix: `ctxbench status` lists"),
        ("unmount file", "file: it is a file", "fix: `ctxbench status` lists"),
        ("unmount /proc", "/proc: the mount there is proc", "fix: `ctxbench status` lists"),
        ("s3 sync dir", "dir: in no s3 mount", "fix: `ctxbench status` lists"),
        ("doctor --store none.db", "none.db cannot be opened", "fix: correct the path"),
        ("doctor --store file", "it is empty", "fix: choose another file"),
        ("doctor --scratch none", "scratch directory in none", "fix: correct the path"),
        ("report file", "file: not the directory of a run", "fix: name a directory"),
        ("decide none", "none: not the directory of a run", "fix: name a directory"),
        ("run --suite none.toml", "none.toml: No such file", "fix: correct the path"),
        ("run --backend dir/none/x.toml", "x.toml: No such file", "fix: correct the path"),
        (
            "run --scratch-dir file --workload micro/stat",
            "scratch directory in file",
            "fix: correct the path: a file stands",
        ),
        ("run --results file --workload micro/stat", "creating file", "fix: choose another name"),
        ("try none.jsonl", "reading none.jsonl: No such file", "fix: correct the path"),
        ("tokens none.jsonl", "reading none.jsonl: No such file", "fix: correct the path"),
        ("try file", "file: is empty", "fix: name the file of a recorded session"),
        ("trace check none", "reading none: No such file", "fix: correct the path"),
        ("mcp files none", "cannot open none: No such file", "fix: correct the path"),
        ("recall none what", "cannot open none: No such file", "fix: correct the path"),
        ("s3 serve --dir file", "file", "fix: correct the path: a file stands"),
    ] {
        let mut command = ctxbench(words(line));
        let output = command.current_dir(scratch.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        let said = stderr(&output);
        assert!(said.contains(named) && said.contains(fix), "{line}: {said}");
        assert_eq!(said.matches("fix: ").count(), 1, "{line}: {said}");
    }
}

#[test]
fn a_closed_reader_is_not_an_error_and_a_full_disk_is_one() {
    for line in ["list", "fault --list"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ctxbench(words(line)).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{line}");
    }
    // A client process ends with the process that started it.
    let idle = r#"{"processes":1,"files":0,"bytes":0,"calls":0,"writes":0,"seed":0}"#;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut worker = ctxbench(["worker", "/", "0", idle]);
    let output = worker.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(&stderr(&output), &["Broken pipe"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = ctxbench(["list"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(&stderr(&output), &["ctxbench: writing to standard output: No space left"]);
}

#[test]
fn a_malformed_file_is_refused_with_file_line_and_field() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str| {
        let file = scratch.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let refuses = |option: &str, name: &str, text: &str, parts: &[&str]| {
        has(&refused(&["run", option, &file(name, text)]), parts);
    };
    let text = "essay = 'e'\nrounds = 1\nbackends = []\ncolour = 1\n";
    let unknown = "unknown field `colour`, expected one of `essay`, `budget`";
    refuses("--suite", "s.toml", text, &["s.toml:4: ", unknown]);
    for (field, wrong, reason) in [
        ("epochs", "2", "must be at least 3"),
        ("budget", "0.0", "is not above 0"),
        ("rounds", "0", "must be at least 1"),
    ] {
        let text = format!(
            "essay = 'e'\n{field} = {wrong}\nbackends = []\n[[workload]]\nname = 'micro/stat'\nstates = ['hot']\n"
        );
        let parts = [&*format!("field `{field}`: "), reason];
        refuses("--suite", "s.toml", &text, &parts);
    }

    let trace = "{\"t\":\"head\",\"v\":1,\"id\":\"t\",\"source\":{\"format\":\"f\",\"path\":\"p\",\"sha256\":\"0\"},\"agent\":\"a\",\"model\":\"m\",\"cwd\":\"/ws\",\"fidelity\":\"shape\",\"tokenizer\":\"o200k\"}\n{\"t\":\"file\",\"path\":\"../../etc/passwd\",\"known\":\"full\",\"content\":{\"bytes\":0,\"lines\":0,\"sha256\":\"0\"}}\n{\"t\":\"end\",\"exit\":\"\"}\n";
    file("t.jsonl", trace);
    let essay =
        "essay = \"What this stands for, at some length, so that nobody has to guess what it is there for at all.\"\n";
    for (rest, parts) in [
        ("states = ['warm']\n", &["w.toml:3: ", "expected one of `hot`, `lukewarm`, `cold`"][..]),
        (
            "states = ['hot']\n[micro]\noperation = 'read'\nfiles = 1\nbytes = 1\ncalls = 0\n",
            &["w.toml: field `micro.calls`: must be at least 1"],
        ),
        (
            "states = ['hot']\n[trace]\nfile = 't.jsonl'\n",
            &["t.jsonl:2: field `path`: path \"../../etc/passwd\" leaves the workspace"],
        ),
    ] {
        let text = format!("name = 'w'\n{essay}{rest}");
        refuses("--workload", "w.toml", &text, parts);
    }

    let text = "name = 'p'\nquestion = 'q'\nessay = 'e'\nbaseline = 'direct'\nbenefits_needed = 1\nweight = 3\n";
    let parts = ["p.toml:6: unknown field `weight`"];
    refuses("--policy", "p.toml", text, &parts);
    let text = "name = 'b'\nsummary = 's'\ncolour = 1\n";
    let parts = ["b.toml:3: unknown field `colour`"];
    refuses("--backend", "b.toml", text, &parts);

    let generator = file("g.toml", "name = 'g'\ncommand = ['cat']\nshell = true\n");
    let dir = scratch.dir("mnt").display().to_string();
    let line = format!("mount llm-generate {dir} --generator {generator} --model m");
    let message = refused(&words(&line));
    has(&message, &["g.toml:3: unknown field `shell`"]);

    let left = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 7, "nothing was begun");
}

const CASSETTE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../backends/models/cassettes/run.jsonl");

/// The uses of the TOML blocks in the docs: a part of such a block, the command that takes it, and the option.
const TAKES: [(&str, &str, &str); 6] = [
    ("[trace]", "run", "--workload"),
    ("[[need]]", "run", "--backend"),
    ("[[benefit]]", "decide", "--policy"),
    ("[[claim]]", "claims", "--file"),
    ("timeout-seconds", "mount", "--generator"),
    ("[[directory]]", "view", "--definition"),
];

/// A database with the table that the page on views shows.
fn notes(scratch: &Scratch) -> String {
    let file = scratch.path().join("notes.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE note (id INTEGER PRIMARY KEY, tag TEXT, title TEXT, text TEXT);
         INSERT INTO note VALUES (7, 'todo', 'Plan', 'first');",
    )
    .unwrap();
    file.display().to_string()
}

/// Every TOML block of the docs: the command and the option that take it, and its file.
fn blocks(scratch: &Scratch) -> Vec<[String; 3]> {
    let mut all = Vec::new();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    let pages = fs::read_dir(docs).unwrap().map(|page| page.unwrap().path());
    for page in pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let (block, _) = block.split_once("```").unwrap();
            let takes = TAKES.iter().find(|(part, ..)| block.contains(part));
            let nothing = || panic!("{}: no command takes {block}", page.display());
            let (_, command, option) = takes.unwrap_or_else(nothing);
            let file = scratch.path().join(format!("{}.toml", all.len()));
            fs::write(&file, block).unwrap();
            all.push([*command, *option, file.to_str().unwrap()].map(str::to_owned));
        }
    }
    all
}

#[test]
fn a_recorded_session_is_imported_and_judged_by_the_toml_of_the_docs() {
    let scratch = Scratch::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/importers/src/fixtures");
    let [out, nonsense, target] = ["mine.trace.jsonl", "nonsense.jsonl", "never.jsonl"]
        .map(|name| scratch.path().join(name).display().to_string());
    let import = |from: &str, to: &str| format!("trace import --format claude-code {from} --out {to}");
    let session = format!("{fixtures}/claude-code-traps.jsonl");
    let mut imports = ctxbench(words(&import(&session, &out)));
    let imported = imports.args(["--licence", "MIT"]).succeeds();
    let shown = stdout(&run(["trace", "show", &out]));
    // The trace does not hold the damaged lines of the session.
    let imported = stdout(&imported);
    let (of_trace, of_lines) = imported.split_once("  lines of the session: ").unwrap();
    assert_eq!(shown, of_trace);
    has(of_lines, &["1 with text outside of a record, 0 repaired"]);
    has(&shown, &["calls replayed: edit 2, modelled-program 1, read 3, search 1, write 1"]);

    let line = "--backend sqlite --budget 60 --epochs 3 --rounds 2 --policy none --no-probes";
    let (run_dir, mut replayed) = measure(&scratch, line);
    let (measured, others): (Vec<_>, Vec<_>) = blocks(&scratch).into_iter().partition(|[command, ..]| command == "run");
    let options = measured.iter().flat_map(|[_, option, file]| [option, file]);
    replayed.args(options).succeeds();
    for [command, option, file] in others {
        if command == "view" {
            if can_mount() {
                let (dir, source) = (scratch.dir("view"), notes(&scratch));
                let mount = Mount::new("view", &dir, &["--writable", &option, &file, "--source", &source]);
                assert_eq!(text_of(&dir, "todo/Plan 7.md"), "first\n");
                fs::write(dir.join("todo/Plan 7.md"), "second\n").unwrap();
                assert_eq!(text_of(&dir, "todo/Plan 7.md"), "second\n");
                mount.end();
            }
        } else if command != "mount" {
            let mut command = ctxbench([command, option, file]);
            let output = command.arg(&run_dir).output().unwrap();
            // On a busy machine a decision is open, which has an exit code of its own.
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 10..=12)), "{}", stderr(&output));
        } else if can_mount() {
            let options = ["--cassette", CASSETTE, &option, &file];
            Mount::new("llm-generate", &scratch.dir("mnt"), &options).end();
        }
    }
    let mut samples = lines(&run_dir, "samples.jsonl");
    samples.retain(|sample| sample["outcome"] == "ok" && sample["arm"] != "my-bind");
    // These arms have one warm-up round and two rounds in each of three epochs.
    let arms = if can_mount() { 3 } else { 2 };
    assert_eq!(samples.len(), 3 * 3 * arms, "{samples:?}");

    fs::write(&nonsense, "{}\n").unwrap();
    let message = refused(&words(&import(&nonsense, &target)));
    has(&message, &["no line of it is a message"]);
    assert!(!fs::exists(&target).unwrap());
}

#[test]
fn a_log_level_that_is_none_is_named_and_changes_nothing() {
    let listed = |levels: &str| {
        // A command that asks no mount: those of other tests may be stopped.
        let mut command = ctxbench(words("fault --list --backend=direct"));
        stderr(&command.env("CTXBENCH_LOG", levels).succeeds())
    };
    has(&listed("a=b=c"), &["CTXBENCH_LOG is ignored", "give levels"]);
    assert_eq!(listed("warn,sqlite=trace"), "");
}

#[test]
fn a_directory_without_a_run_is_refused() {
    let scratch = Scratch::new();
    let message = refused(&["report", scratch.path().to_str().unwrap()]);
    has(&message, &["not the directory of a run", "plan.toml", "fix: name a directory"]);
    let results = scratch.path().join("results");
    let message = refused(&["decide", "--results", results.to_str().unwrap()]);
    has(&message, &["make a run with `ctxbench run`"]);
}

#[test]
fn a_run_is_not_written_to_a_directory_that_is_called_as_a_url() {
    for (option, scheme) in [("--out", "gs"), ("--results", "s3")] {
        let message = refused(&["run", "--budget", "0.001", option, &format!("{scheme}://bucket/x")]);
        has(&message, &[option, &format!("a local directory, not to {scheme}://")]);
    }
}

#[test]
fn every_command_shows_examples_in_its_help() {
    let help = stdout(&run(["--help"]));
    assert!(help.lines().count() <= 32, "more than a screen: {help}");
    let commands = every_command();
    for (command, help) in &commands {
        let examples = help.lines().filter(|line| line.contains("ctxbench "));
        // The first match is the usage line.
        assert!(examples.count() > 2, "two examples of {command}: {help}");
    }
    for nested in ["s3 gc", "trace import", "mount llm-generate"] {
        assert!(commands.contains_key(nested), "{nested}");
    }
    assert!(stdout(&run(["list"])).contains("agent/vsm-cycle"));
}

#[test]
fn the_completions_command_writes_completions_and_manual_pages() {
    let completions = stdout(&run(["completions", "bash"]));
    has(&completions, &["reproduce"]);
    let scratch = Scratch::new();
    ctxbench(["completions", "--man", scratch.path().to_str().unwrap()]).succeeds();
    let page = text_of(scratch.path(), "ctxbench-mount.1");
    has(&page, &["unmount DIR"]);
    assert!(!scratch.path().join("ctxbench-worker.1").exists());
    let reference = stdout(&run(words("completions --markdown")));
    has(&reference, &["# ctxbench mount sqlite", "# ctxbench run"]);
    assert!(!reference.contains("sql-worker"));
}
