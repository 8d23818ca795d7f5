//! Probes what a backend offers besides files: by the state and the commands that it names, and by other processes and
//! hosts. What it does not name is *not offered*.

mod tree;

use std::ffi::CStr;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use arms::backend::{PropertyCall, Workspace, WorkspaceConfig};
use processes::wait_until;
use rundir::properties::{
    DIFF, FORK, MACHINE_LOSS, PORTABLE, PROPERTIES, PROPERTY, SECOND_PROCESS, SNAPSHOT, VERSIONS, WATCHERS,
    WATCHERS_OTHER_HOST,
};
use rundir::{Outcome, Probe};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::{Prober, STEP_LIMIT};
use crate::watchdog::Watchdog;

/// How long an event of a change through the same mount may take.
const EVENT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a change may take to another host, or into a fork.
const OTHER_PATIENCE: Duration = Duration::from_secs(10);

/// The most versions that are read.
const VERSIONS_MAX: usize = 100;

/// What a probe found: `Ok(None)` if the property is not offered, an `Err` if it failed.
type Finding = Result<Option<String>, Failure>;

/// Why a property is not there although it is offered.
#[derive(Debug)]
struct Failure(Outcome, String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(Outcome::Errno, error.to_string())
    }
}

fn wrong<T>(detail: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(Outcome::WrongData, detail.into()))
}

pub(super) fn probe(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
    let mut probes = Vec::new();
    let mut record = |name: &str, finding: Finding| {
        let (outcome, detail) = match finding {
            Ok(Some(detail)) => (Outcome::Ok, detail),
            Ok(None) => {
                watchdog.mend();
                return probes.push(Probe::not_offered(PROPERTY, name, &prober.arm));
            }
            Err(_) if watchdog.killed().is_some() => (Outcome::Hang, "hung and was aborted".to_owned()),
            Err(Failure(outcome, detail)) => (outcome, detail),
        };
        watchdog.mend();
        probes.push(prober.probe(PROPERTY, name, outcome, detail));
    };
    let is_over = || prober.interrupt.is_set() || watchdog.is_abandoned();
    let holds_data = prober.backend.describe().capabilities.holds_data;
    if !holds_data || prober.shows_rows() || !prober.backend.has_paths() {
        let mut found = in_tools(prober);
        for (name, _) in PROPERTIES {
            let own = found.iter().position(|(of, _)| *of == name);
            let finding = own.map_or(Ok(None), |at| found.swap_remove(at).1);
            record(name, finding);
        }
        return Ok(probes);
    }
    record(PORTABLE, portable(prober, watchdog));
    if is_over() {
        return Ok(probes);
    }
    record(MACHINE_LOSS, survives_machine_loss(prober, watchdog));
    let (config, workspace) = prober.open("properties", watchdog)?;
    let mut open = Open { prober, watchdog, config, workspace };
    let steps: [(&str, Step<'_>); 7] = [
        (SNAPSHOT, Open::snapshot),
        (DIFF, Open::diff),
        (VERSIONS, Open::versions),
        (FORK, Open::fork),
        (SECOND_PROCESS, Open::second_process),
        (WATCHERS, Open::watchers),
        (WATCHERS_OTHER_HOST, Open::watchers_other_host),
    ];
    let mut is_cut = false;
    for (name, find) in steps {
        if is_over() {
            return Ok(probes);
        }
        // The files that a view shows are another program's: it is not the view that keeps them.
        let is_of_state = [SNAPSHOT, DIFF, VERSIONS, FORK].contains(&name);
        let finding = if is_cut {
            Err(Failure(Outcome::Skipped, "an earlier probe hung and was aborted".to_owned()))
        } else if is_of_state && prober.backend.source(Path::new("")).is_some() {
            Ok(None)
        } else {
            open.step(find)
        };
        is_cut |= watchdog.killed().is_some();
        record(name, finding);
    }
    watchdog.enter(STEP_LIMIT);
    watchdog.depend_on(open.workspace.kill_handle());
    // The end of a workspace is not part of a property.
    if let Err(error) = open.workspace.close() {
        tracing::warn!(arm = prober.arm, "{error}");
    }
    watchdog.leave();
    Ok(probes)
}

/// Copies the named state of a closed workspace to another place, and compares what a mount of the copy shows with
/// what was written. The original is gone by then.
fn portable(prober: &Prober, watchdog: &Watchdog) -> Finding {
    let (config, mut workspace) = prober.open("portable", watchdog)?;
    let state = workspace.state();
    if state.is_empty() {
        watchdog.enter(STEP_LIMIT);
        workspace.close()?;
        watchdog.leave();
        return Ok(None);
    }
    watchdog.enter(STEP_LIMIT);
    let expected = tree::plant(workspace.root())?;
    watchdog.enter(STEP_LIMIT);
    workspace.stop()?;
    let copied = prober.workspace_config("portable-copy")?;
    let size = copy(&state, &config.dir, &copied.dir)?;
    workspace.close()?;
    watchdog.independent();
    std::fs::remove_dir_all(&config.dir)?;
    watchdog.enter(STEP_LIMIT);
    let copy = prober.backend.open_copy(&copied)?;
    watchdog.depend_on(copy.kill_handle());
    let found = tree::read(copy.root());
    let differences = found.map(|found| expected.differences(&found));
    watchdog.enter(STEP_LIMIT);
    copy.close()?;
    watchdog.leave();
    match &differences?[..] {
        [] => Ok(Some(format!(
            "a copy of its state showed the same {} names; the state has {} files, {} bytes{}",
            expected.len(),
            size.files,
            size.bytes,
            expected.remark()
        ))),
        [first, more @ ..] => wrong(format!(
            "a mount of a copy of its state differs in {} of {} names: {first}",
            more.len() + 1,
            expected.len()
        )),
    }
}

/// The number of files and bytes of a state.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    files: u64,
    bytes: u64,
}

/// Copies those of `paths` that exist from the directory `from` to `to`.
fn copy(paths: &[PathBuf], from: &Path, to: &Path) -> Result<Size, Failure> {
    for path in paths {
        let Ok(below) = path.strip_prefix(from) else {
            let path = path.display();
            return wrong(format!("{path} is not in the workspace's directory"));
        };
        if !path.exists() {
            continue;
        }
        let target = to.join(below);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut command = Command::new("cp");
        command.args(["-a", "-T", "--"]).arg(path).arg(&target);
        super::run(&mut command, from).map_err(|error| Failure(Outcome::Infra, format!("cp: {error}")))?;
    }
    let mut size = Size::default();
    tree::walk(to, &mut |_, metadata| {
        if metadata.is_file() {
            size.files += 1;
            size.bytes += metadata.len();
        }
        Ok(())
    })?;
    match size.files {
        0 => wrong("the files that it names as its state do not exist after an unmount"),
        _ => Ok(size),
    }
}

/// Syncs, kills the daemon, removes everything of the workspace on this machine, and mounts again.
fn survives_machine_loss(prober: &Prober, watchdog: &Watchdog) -> Finding {
    let is_elsewhere = prober.backend.promises().machine_loss.is_some() || prober.backend.ends_with_process();
    if !is_elsewhere {
        return Ok(None);
    }
    let (config, mut workspace) = prober.open("machine", watchdog)?;
    let expected = tree::plant(workspace.root())?;
    watchdog.enter(STEP_LIMIT);
    workspace.sync()?;
    // Dropped, not closed: the daemon is killed.
    drop(workspace);
    watchdog.independent();
    std::fs::remove_dir_all(&config.dir)?;
    std::fs::create_dir(&config.dir)?;
    watchdog.enter(STEP_LIMIT);
    let again = prober.backend.open_copy(&config)?;
    watchdog.depend_on(again.kill_handle());
    let found = tree::read(again.root());
    let differences = found.map(|found| expected.differences(&found));
    watchdog.enter(STEP_LIMIT);
    again.close()?;
    watchdog.leave();
    match &differences?[..] {
        [] => Ok(Some(format!(
            "without its local files and its killed daemon, a new mount showed the same {} names{}",
            expected.len(),
            expected.remark()
        ))),
        [first, more @ ..] => {
            wrong(format!("{} of {} names that were synced differ: {first}", more.len() + 1, expected.len()))
        }
    }
}

/// A workspace in which several properties are probed.
struct Open<'a> {
    prober: &'a Prober,
    watchdog: &'a Watchdog,
    config: WorkspaceConfig,
    workspace: Box<dyn Workspace>,
}

/// A probe in it.
type Step<'a> = fn(&mut Open<'a>) -> Finding;

impl<'a> Open<'a> {
    fn step(&mut self, find: Step<'a>) -> Finding {
        self.watchdog.enter(STEP_LIMIT);
        self.watchdog.depend_on(self.workspace.kill_handle());
        let finding = find(self);
        self.watchdog.leave();
        finding
    }

    /// Writes a file of the agent's directory.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        std::fs::write(self.workspace.root().join(name), text)
    }

    /// Saves a snapshot; its name or path.
    fn save(&mut self, name: &str) -> io::Result<Option<String>> {
        let at = self.config.dir.join(name);
        let said = self.workspace.property(PropertyCall::Snapshot { at: &at })?;
        Ok(said.map(|said| match said.split_whitespace().last() {
            Some(name) => name.to_owned(),
            None => at.to_string_lossy().into_owned(),
        }))
    }

    /// Changes, replaces and removes files after a snapshot, and reads the snapshot.
    fn snapshot(&mut self) -> Finding {
        let files = ["snap-changed", "snap-removed"];
        for file in files {
            self.write(file, &text(file, 1))?;
        }
        let Some(snapshot) = self.save("snapshot")? else {
            return Ok(None);
        };
        self.write(files[0], &text(files[0], 2))?;
        std::fs::remove_file(self.workspace.root().join(files[1]))?;
        for file in files {
            let call = PropertyCall::ReadSnapshot { snapshot: &snapshot, file };
            let found = self.workspace.property(call)?;
            if found.as_deref() != Some(&text(file, 1)) {
                return wrong(format!("{file}, changed after the snapshot, is not in it as it was saved"));
            }
        }
        let live = std::fs::read_to_string(self.workspace.root().join(files[0]))?;
        if live != text(files[0], 2) {
            return wrong("reading a snapshot changed the file in the mount");
        }
        Ok(Some("a changed and a removed file read from a snapshot as they were saved".to_owned()))
    }

    /// Changes one of two files after a snapshot.
    fn diff(&mut self) -> Finding {
        let [changed, same] = ["diff-changed", "diff-unchanged"];
        for file in [changed, same] {
            self.write(file, &text(file, 1))?;
        }
        let Some(snapshot) = self.save("diff")? else {
            return Ok(None);
        };
        self.write(changed, &text(changed, 2))?;
        let call = PropertyCall::Diff { snapshot: &snapshot };
        let Some(said) = self.workspace.property(call)? else {
            return Ok(None);
        };
        match (said.contains(changed), said.contains(same)) {
            (true, false) => Ok(Some("named the changed file alone".to_owned())),
            (false, _) => wrong("did not name the changed file"),
            (true, true) => wrong("named an unchanged file, too"),
        }
    }

    /// Replaces a file, without a snapshot.
    fn versions(&mut self) -> Finding {
        let file = "versions";
        for version in 1..=2 {
            self.write(file, &text(file, version))?;
            // A version is kept of what was synced.
            self.workspace.sync()?;
        }
        let Some(said) = self.workspace.property(PropertyCall::Versions { file })? else {
            return Ok(None);
        };
        let names = said.lines().filter_map(|line| line.split_whitespace().next());
        let names: Vec<&str> = names.take(VERSIONS_MAX).collect();
        let mut found = Vec::new();
        for version in &names {
            let call = PropertyCall::ReadVersion { version, file };
            found.extend(self.workspace.property(call)?);
        }
        for version in 1..=2 {
            if !found.contains(&text(file, version)) {
                let kept = names.len();
                return wrong(format!("none of {kept} versions is version {version} of 2"));
            }
        }
        Ok(Some(format!("both of two synced versions of a file read back; it names {}", names.len())))
    }

    /// Copies a directory, and changes both.
    fn fork(&mut self) -> Finding {
        let root = self.workspace.root().to_owned();
        let [from, to] = ["fork-from", "fork-to"].map(|name| root.join(name));
        let (file, of_both, of_one) = ("file", text("fork", 1), text("fork", 2));
        std::fs::create_dir(&from)?;
        std::fs::write(from.join(file), &of_both)?;
        let call = PropertyCall::Fork { from: "fork-from", to: "fork-to" };
        if self.workspace.property(call)?.is_none() {
            return Ok(None);
        }
        let is_there = wait_until(OTHER_PATIENCE, Duration::from_millis(20), || {
            std::fs::read_to_string(to.join(file)).is_ok_and(|found| found == of_both)
        });
        if !is_there {
            return wrong("the fork does not show the files of the original");
        }
        std::fs::write(to.join(file), &of_one)?;
        if std::fs::read_to_string(from.join(file))? != of_both {
            return wrong("a change in the fork changed the original");
        }
        std::fs::write(from.join(file), text("fork", 3))?;
        if std::fs::read_to_string(to.join(file))? != of_one {
            return wrong("a change in the original changed the fork");
        }
        Ok(Some("a fork of a directory and its original changed independently".to_owned()))
    }

    /// A process reads a file, another one writes it, and a third reads it.
    fn second_process(&mut self) -> Finding {
        let (plain, shown) = self.prober.places(&self.config, &*self.workspace);
        let name = "second-process.md";
        for version in 1..=3 {
            let expected = text(name, version);
            write_by_process(&plain.join(name), &expected)?;
            let mut cat = Command::new("cat");
            let found = super::run(cat.arg(shown.join(name)), &self.config.dir);
            let found = found.map_err(|error| Failure(Outcome::Errno, error))?;
            if found != expected {
                return wrong(format!("after write {version} of 3 a second process read {} other bytes", found.len()));
            }
        }
        Ok(Some("a second process read each of three writes once the first had closed the file".to_owned()))
    }

    /// Watches a directory by inotify while another process changes it.
    fn watchers(&mut self) -> Finding {
        let (plain, shown) = self.prober.places(&self.config, &*self.workspace);
        let watch = Watch::new(&shown)?;
        let name = "watched.md";
        write_by_process(&plain.join(name), &text(name, 1))?;
        match watch.wait_for(name, EVENT_PATIENCE)? {
            Some(after) => {
                Ok(Some(format!("inotify reported a change by another process after {} ms", after.as_millis())))
            }
            None => wrong(format!("inotify reported no change within {} s", EVENT_PATIENCE.as_secs())),
        }
    }

    /// As [`Open::watchers`], for a change on a second host.
    fn watchers_other_host(&mut self) -> Finding {
        let capabilities = self.prober.backend.describe().capabilities;
        if !capabilities.several_hosts {
            return Ok(None);
        }
        let beside = self.prober.scratch.join(format!("other-host-{}", self.prober.arm));
        std::fs::create_dir(&beside)?;
        let Some(second) = self.workspace.second_host(&beside)? else {
            return Ok(None);
        };
        self.watchdog.depend_on_too(second.kill_handle());
        let finding = self.watch_other_host(&*second);
        self.watchdog.enter(STEP_LIMIT);
        let closed = second.close();
        self.watchdog.depend_on(self.workspace.kill_handle());
        closed?;
        finding
    }

    fn watch_other_host(&self, second: &dyn Workspace) -> Finding {
        let root = self.workspace.root();
        let watch = Watch::new(root)?;
        let name = "watched-other-host.md";
        write_by_process(&second.root().join(name), &text(name, 1))?;
        if let Some(after) = watch.wait_for(name, OTHER_PATIENCE)? {
            return Ok(Some(format!("inotify reported a change on another host after {} ms", after.as_millis())));
        }
        let is_there = std::fs::read_to_string(root.join(name)).is_ok_and(|found| found == text(name, 1));
        let shown = if is_there { "which this host shows" } else { "which this host does not show, either" };
        wrong(format!("inotify reported no change on another host within {} s, {shown}", OTHER_PATIENCE.as_secs()))
    }
}

/// The properties of files that only tool calls reach: a snapshot is text, from which another session starts.
fn in_tools(prober: &Prober) -> Vec<(&'static str, Finding)> {
    let mut found = Vec::new();
    let tried = || -> Result<Option<(usize, bool)>, Failure> {
        let config = prober.workspace_config("properties")?;
        let mut workspace = prober.backend.open(&config)?;
        let failed = |error: arms::backend::ToolError| Failure(Outcome::Errno, error.to_string());
        let name = "snapshot.md";
        let Some(tools) = workspace.tools() else {
            workspace.close()?;
            return Ok(None);
        };
        tools.write_file(name, text(name, 1).as_bytes()).map_err(failed)?;
        let snapshot = tools.snapshot();
        tools.write_file(name, text(name, 2).as_bytes()).map_err(failed)?;
        workspace.close()?;
        std::fs::remove_dir_all(&config.dir)?;
        let config = prober.workspace_config("properties-copy")?;
        let mut other = prober.backend.open(&config)?;
        let Some(tools) = other.tools() else {
            return wrong("another session has no tools");
        };
        tools.restore(&snapshot)?;
        let shown = tools.read_file(name, 1, None).map_err(failed)?;
        // Each line of an answer begins with its number.
        let shows = |version| text(name, version).lines().all(|line| shown.contains(line));
        let is_same = shows(1) && !shows(2);
        other.close()?;
        Ok(Some((snapshot.len(), is_same)))
    };
    match tried() {
        Ok(None) => {}
        Ok(Some((bytes, true))) => {
            let detail =
                format!("another session showed the same file from a snapshot; the state has 1 text, {bytes} bytes");
            found.push((PORTABLE, Ok(Some(detail.clone()))));
            found.push((SNAPSHOT, Ok(Some(detail))));
        }
        Ok(Some((_, false))) => {
            let detail = "another session did not show the file of a snapshot";
            found.push((PORTABLE, wrong(detail)));
            found.push((SNAPSHOT, wrong(detail)));
        }
        Err(Failure(outcome, detail)) => {
            found.push((PORTABLE, Err(Failure(outcome, detail.clone()))));
            found.push((SNAPSHOT, Err(Failure(outcome, detail))));
        }
    }
    found
}

/// The text of a version of a file.
fn text(name: &str, version: u32) -> String {
    format!("# {name}\n\nversion {version} of it\n")
}

/// Replaces a file by a process of its own, which has ended on return.
fn write_by_process(path: &Path, text: &str) -> Result<(), Failure> {
    let mut tee =
        Command::new("tee").arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = tee.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    let output = tee.wait_with_output()?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure(Outcome::Errno, said))
    }
}

/// An inotify watch of a directory.
struct Watch {
    events: rustix::fd::OwnedFd,
    began: Instant,
}

impl Watch {
    fn new(dir: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&events, dir, wanted | WatchFlags::MOVED_TO)?;
        Ok(Self { events, began: Instant::now() })
    }

    /// Waits for an event of a name in the directory, and returns the time since the watch began; `None` if there is
    /// none within `limit`.
    fn wait_for(&self, name: &str, limit: Duration) -> io::Result<Option<Duration>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let is_it = |found: Option<&CStr>| found.is_some_and(|found| found.to_bytes() == name.as_bytes());
        loop {
            match reader.next() {
                Ok(event) if is_it(event.file_name()) => return Ok(Some(self.began.elapsed())),
                Ok(_) => {}
                Err(Errno::AGAIN) if self.began.elapsed() > limit => return Ok(None),
                Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
