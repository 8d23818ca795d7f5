//! Measures the model calls of common tools through real mounts: count, time and outcome.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fuse::{Counters, ask};
use processes::ChildProcess;
use rundir::{AskedStep, MountedModel};
use stats::mean_with_interval;

use super::RemainingBudget;
use crate::progress_line::ProgressLine;
use trial::interrupt::Interrupt;

/// How long a tool may take, in seconds.
const PATIENCE: &str = "300";

/// How long a mount may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The tree of the generated files.
const TREE: &str = r#"{"entries":[
{"path":"README.md","kind":"file","about":"what this project is"},
{"path":"main.py","kind":"file","about":"the program: adds two numbers"},
{"path":"util.py","kind":"file","about":"one helper function"},
{"path":"test_main.py","kind":"file","about":"one test"},
{"path":"config.toml","kind":"file","about":"two settings"}]}"#;

/// The prompt for the generated files.
const PROMPT: &str = "A very small Python program";

/// Rereads of one file in a block.
const REREADS: usize = 2000;

/// Blocks for each mount.
const BLOCKS: usize = 10;

/// A mount served by a child process.
struct Mount {
    process: ChildProcess,
    dir: PathBuf,
    control: PathBuf,
    backend: String,
    /// Shows the step under way.
    line: ProgressLine,
}

impl Mount {
    fn new(budget: Option<&RemainingBudget<'_>>, backend: &str, at: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let dir = at.join("mnt");
        std::fs::create_dir_all(&dir)?;
        let control = at.join("control");
        // An earlier mount may have left its socket.
        let _ = std::fs::remove_file(&control);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mount", backend]).arg(&dir).arg("--control").arg(&control).arg("--until-stdin-ends");
        if let Some(budget) = budget {
            command.args(budget.args().again());
        }
        command
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The page already reports each failing read.
            .stderr(std::fs::File::create(at.join("messages"))?);
        // Removing the scratch directory detaches the mount of a process that had to be killed.
        let mut process = ChildProcess::start(&mut command, END_PATIENCE).context("starting a mount")?;
        let mut line = String::new();
        BufReader::new(process.output()?).read_line(&mut line)?;
        let mount = Self { process, dir, control, backend: backend.to_owned(), line: ProgressLine::still() };
        if line.trim() != arms::READY {
            let said = std::fs::read_to_string(at.join("messages")).unwrap_or_default();
            bail!("{backend} could not be mounted: {}", said.trim());
        }
        Ok(mount)
    }

    fn counters(&self) -> anyhow::Result<Counters> {
        ask(&self.control, fuse::ControlCommand::Counters).context("asking the mount")
    }

    /// Runs a shell command in the mount and measures its model calls.
    fn step(&self, what: &str, command: &str) -> anyhow::Result<AskedStep> {
        self.line.show(0.0, None, &format!("{}: {what}", self.backend));
        let before = self.counters()?;
        let started = Instant::now();
        let status = Command::new("timeout")
            .args(["-k", "5", PATIENCE, "bash", "-c", command])
            .current_dir(&self.dir)
            .env("GIT_DIR", self.dir.with_file_name("repository"))
            .env("GIT_WORK_TREE", &self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let seconds = started.elapsed().as_secs_f64();
        let after = self.counters()?;
        let count = |name: &str| count(&after, name) - count(&before, name);
        Ok(AskedStep {
            what: what.to_owned(),
            calls: count("model-calls") + count("model-failures"),
            prompt_tokens: count("prompt-tokens"),
            output_tokens: count("output-tokens"),
            seconds,
            outcome: if status.success() { "ok".to_owned() } else { status.to_string() },
        })
    }

    /// Unmounts it and subtracts its usage from `budget`.
    fn end(mut self, budget: &mut RemainingBudget<'_>) -> anyhow::Result<()> {
        let used = self.counters()?;
        budget.check(&used)?;
        budget.left = budget.left_after(&used);
        self.process.close_input();
        match self.process.wait_for(END_PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("a mount ended with {status}"),
            None => bail!("a mount did not end in {} s", END_PATIENCE.as_secs()),
        }
    }
}

/// One of the store's own counters.
pub(super) fn count(counters: &Counters, name: &str) -> u64 {
    counters.store.get(name).copied().unwrap_or(0)
}

/// The save of an editor: writes a temporary file, syncs it, and renames it over the old one.
const EDITOR: &str = "printf 'edited\\n' > .FILE.swp && sync .FILE.swp && mv .FILE.swp FILE";

fn steps(
    budget: &RemainingBudget<'_>,
    mount: &Mount,
    steps: &[(&str, &str)],
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<AskedStep>> {
    let mut done = Vec::new();
    for (what, command) in steps {
        if interrupt.is_set() {
            bail!("interrupted");
        }
        done.push(mount.step(what, command)?);
        budget.check(&mount.counters()?)?;
    }
    Ok(done)
}

pub(super) fn history(
    budget: &mut RemainingBudget<'_>,
    at: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<MountedModel> {
    let mount = Mount::new(Some(budget), "llm-history", at, &[])?;
    std::fs::write(mount.dir.join("a.txt"), "one two\n")?;
    std::fs::write(mount.dir.join("b.txt"), "three four\n")?;
    std::fs::write(mount.dir.join("c.txt"), "five\n")?;
    let save = EDITOR.replace("FILE", "c.txt");
    let all = [
        ("stat FILE", "stat a.txt"),
        ("ls -l", "ls -l"),
        ("find", "find . -type f"),
        ("git status, nothing added", "git init -q; git status --short"),
        ("cat FILE", "cat a.txt"),
        ("cat FILE again", "cat a.txt"),
        ("grep -r over 3 files", "grep -r three . || true"),
        ("editor save", save.as_str()),
    ];
    let done = steps(budget, &mount, &all, interrupt)?;
    let before = mount.counters()?;
    let (session, reads) = session(&mount.dir, at)?;
    let after = mount.counters()?;
    let tokens = ["model-calls", "prompt-tokens", "output-tokens"];
    let tokens = tokens.map(|name| count(&after, name) - count(&before, name));
    mount.end(budget)?;
    Ok(MountedModel {
        steps: done,
        session: Some(session),
        session_reads: Some(reads),
        session_tokens: Some(tokens.into()),
        consistency: Vec::new(),
    })
}

/// Runs a synthetic session in `dir` and in a plain directory: writes, reads and changes notes. Returns the
/// seconds of both, and the number of reads and of exact ones.
fn session(dir: &Path, at: &Path) -> anyhow::Result<((f64, f64), (u32, u32))> {
    let line = ProgressLine::still();
    line.show(0.0, None, "llm-history: a synthetic session of 12 calls, and the same in a plain directory");
    let plain = at.join("plain");
    std::fs::create_dir_all(&plain)?;
    let run = |dir: &Path| -> anyhow::Result<(f64, Vec<Option<Vec<u8>>>)> {
        let (state, plan, new) = (dir.join("state.json"), dir.join("plan.md"), dir.join("state.tmp"));
        let started = Instant::now();
        let mut reads = Vec::new();
        std::fs::write(&state, "{\"cycle\": 1}\n")?;
        std::fs::write(&plan, "read the log\n")?;
        reads.push(std::fs::read(&state).ok());
        reads.push(std::fs::read(&plan).ok());
        std::fs::read_dir(dir)?.count();
        std::fs::metadata(&plan)?;
        std::fs::write(&new, "{\"cycle\": 2}\n")?;
        std::fs::rename(&new, &state)?;
        reads.push(std::fs::read(&state).ok());
        let mut file = std::fs::File::options().append(true).open(&plan)?;
        std::io::Write::write_all(&mut file, b"fix the parser\n")?;
        drop(file);
        reads.push(std::fs::read(&plan).ok());
        std::fs::remove_file(&state)?;
        Ok((started.elapsed().as_secs_f64(), reads))
    };
    let (here, read) = run(dir)?;
    let (there, right) = run(&plain)?;
    let exact = read.iter().zip(&right).filter(|(a, b)| a == b).count() as u32;
    Ok(((here, there), (right.len() as u32, exact)))
}

/// Writes the tree of the generated files into a directory. Returns its path.
fn write_tree(dir: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(dir)?;
    let tree = dir.join("tree.json");
    std::fs::write(&tree, TREE)?;
    Ok(tree.display().to_string())
}

pub(super) fn generate(
    budget: &mut RemainingBudget<'_>,
    at: &Path,
    is_brief: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<MountedModel> {
    let tree = write_tree(at)?;
    let cache = at.join("cache").display().to_string();
    // Without other files in its prompt, so that the answer does not depend on the order of the reads.
    let cached = ["--prompt", PROMPT, "--context-bytes", "0", "--cache-folder", &cache];
    let prompt = [&cached[..], &["--tree", &tree]].concat();
    let mount = Mount::new(Some(budget), "llm-generate", at, &prompt)?;
    let save = EDITOR.replace("FILE", "config.toml");
    let all = [
        ("stat FILE", "stat main.py"),
        ("ls -l", "ls -l"),
        ("find", "find . -type f -size -1"),
        ("git status, nothing added", "git init -q; git status --short"),
        ("open and close FILE", "exec 3<main.py"),
        ("cat FILE, first time", "cat main.py"),
        ("cat FILE again", "cat main.py"),
        ("grep -r over the other 4 files", "grep -r import --exclude-dir=.llmfs . || true"),
        ("editor save", save.as_str()),
        ("git add and git status", "git add --all . ':!.llmfs'; git status --short"),
    ];
    let done = steps(budget, &mount, &all, interrupt)?;
    let mut consistency = Vec::new();
    let names = ["README.md", "main.py", "util.py", "test_main.py"];
    let read_all = |dir: &Path| -> Vec<Option<Vec<u8>>> {
        let read = names.iter().map(|name| std::fs::read(dir.join(name)).ok());
        read.collect()
    };
    let same = |a: &[Option<Vec<u8>>], b: &[Option<Vec<u8>>]| {
        let equal = a.iter().zip(b).filter(|(a, b)| a.is_some() && a == b);
        format!("{} of {}", equal.count(), a.len())
    };
    let first = read_all(&mount.dir);
    let mut note = |what: &str, found: String| consistency.push((what.to_owned(), found));
    note("the same path read twice", same(&first, &read_all(&mount.dir)));
    let dir = mount.dir.clone();
    let other = std::thread::scope(|scope| scope.spawn(|| read_all(&dir)).join().unwrap_or_default());
    note("read by two readers", same(&first, &other));
    note("listing against content", imports(&names, &first));
    mount.end(budget)?;

    let line = ProgressLine::still();
    line.show(0.0, None, "llm-generate: after a remount, from the cache, and asked again");
    // The save file holds the names, so the mount needs no tree.
    let mount = Mount::new(Some(budget), "llm-generate", at, &cached)?;
    note("after a remount, from the save file", same(&first, &read_all(&mount.dir)));
    mount.end(budget)?;
    let ways = [("another mount, with the cache", None), ("another mount, asked again", Some("--no-cache"))];
    for (what, more) in ways.into_iter().take(if is_brief { 1 } else { 2 }) {
        let _ = std::fs::remove_file(at.join("mnt.llmfs.json"));
        let more: Vec<&str> = prompt.iter().copied().chain(more).collect();
        let mount = Mount::new(Some(budget), "llm-generate", at, &more)?;
        let started = Instant::now();
        let read = read_all(&mount.dir);
        let took = started.elapsed().as_secs_f64();
        let counters = mount.counters()?;
        let told = format!(
            "{}; {took:.3} s, {} model calls, {} cache hits, {} tokens saved",
            same(&first, &read),
            count(&counters, "model-calls"),
            count(&counters, "cache-hits"),
            count(&counters, "cache-saved-tokens")
        );
        note(what, told);
        mount.end(budget)?;
    }
    Ok(MountedModel { steps: done, consistency, ..MountedModel::default() })
}

/// Counts the imports in the Python files, and those that name a listed file.
fn imports(names: &[&str], contents: &[Option<Vec<u8>>]) -> String {
    let (mut found, mut listed) = (0, 0);
    for (name, content) in names.iter().zip(contents) {
        let text = String::from_utf8_lossy(content.as_deref().unwrap_or_default()).into_owned();
        for line in text.lines().filter(|_| name.ends_with(".py")) {
            let mut words = line.split_whitespace();
            if let (Some("import" | "from"), Some(module)) = (words.next(), words.next()) {
                found += 1;
                let module = module.trim_end_matches([',', ';']);
                let module = module.split('.').next().unwrap_or_default();
                listed += u32::from(names.contains(&format!("{module}.py").as_str()));
            }
        }
    }
    format!("{found} imports in the Python files, {listed} of them of a file that is listed")
}

/// The ratio of the times to reread a generated file and a file of the `memory` backend: open, read, close.
/// Geometric mean over pairs of blocks, with its 99 % interval.
pub(super) fn rereads(
    budget: &mut RemainingBudget<'_>,
    at: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<(f64, f64, f64)>> {
    let line = ProgressLine::still();
    line.show(0.0, None, "llm-generate: a generated file read again, against memory");
    let (ours, theirs) = (at.join("generate"), at.join("memory"));
    let tree = write_tree(&ours)?;
    let prompt = ["--prompt", PROMPT, "--context-bytes", "0", "--tree", &tree, "--no-cache"];
    let generate = Mount::new(Some(budget), "llm-generate", &ours, &prompt)?;
    let memory = Mount::new(None, "memory", &theirs, &[])?;
    let Ok(content) = std::fs::read(generate.dir.join("main.py")) else {
        line.say("the model generated no file to read again");
        return Ok(None);
    };
    std::fs::write(memory.dir.join("main.py"), &content)?;
    let block = |mount: &Mount| -> anyhow::Result<f64> {
        let path = mount.dir.join("main.py");
        let started = Instant::now();
        for _ in 0..REREADS {
            if std::fs::read(&path)? != content {
                bail!("{}: content changed between reads", path.display());
            }
        }
        Ok(started.elapsed().as_secs_f64())
    };
    let mut ratios = Vec::new();
    for at in 0..BLOCKS {
        if interrupt.is_set() {
            bail!("interrupted");
        }
        // Alternate, so that each mount is first in half of the pairs.
        let (ours, theirs) = if at % 2 == 0 {
            let ours = block(&generate)?;
            (ours, block(&memory)?)
        } else {
            let theirs = block(&memory)?;
            (block(&generate)?, theirs)
        };
        ratios.push((ours / theirs).ln());
    }
    generate.end(budget)?;
    memory.end(budget)?;
    let found = mean_with_interval(&ratios);
    Ok(found.and_then(|(mean, interval)| {
        let interval = interval?.map(f64::exp);
        Some((mean.exp(), interval.low, interval.high))
    }))
}
