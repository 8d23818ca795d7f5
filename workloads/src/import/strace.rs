//! Importer for `strace -f` logs of programs: each file that is opened and closed is a read or a write.
//! The log shows the beginning of each content (`-s`); the rest of a write is filler of the same size.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufRead;
use std::rc::Rc;

use serde_json::json;

use super::detect::Head;
use super::json::whole;
use super::recorder::{Answer, Recorder};
use super::records::Damage;
use super::{ImportedSession, Importer};

/// strace.
#[derive(Debug)]
pub struct Strace;

/// Directories of the system, whose files do not belong to the context.
const SYSTEM: [&str; 12] = [
    "/usr/",
    "/lib/",
    "/lib64/",
    "/etc/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/bin/",
    "/sbin/",
    "/nix/",
    "/run/",
    "/var/lib/",
];

/// The most bytes of one file whose content is kept.
const CONTENT_MAX: usize = 16 << 20;

impl Importer for Strace {
    fn id(&self) -> &'static str {
        "strace"
    }

    fn reads(&self) -> &'static str {
        "logs of `strace -f`"
    }

    fn lacks(&self) -> Option<&'static str> {
        Some(
            "the model's answers and usage; contents longer than -s shows are filler, and calls that only ask for attributes (stat, access, readlink) are left out",
        )
    }

    fn detects(&self, head: &Head) -> bool {
        let lines: Vec<&str> = head.text.lines().filter(|line| !line.trim().is_empty()).take(40).collect();
        let calls = lines.iter().filter(|line| parsed(line).is_some()).count();
        calls > 0 && calls * 2 >= lines.len()
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let text = whole(recording)?;
        let mut log = Log::new();
        for line in text.lines() {
            let (thread, line) = process(line);
            log.line(thread, line);
            log.ready_lines();
        }
        log.end_of_waiting();
        log.ready_lines();
        log.close_all();
        log.recorder.unreadable(Damage { unreadable: log.lost, mended: 0 });
        Ok(vec![log.recorder.finish()])
    }
}

/// The most bytes of all written files that are kept: a line states any size.
const WRITTEN_MAX: usize = 256 << 20;

/// The most descriptors of all processes: each new process has those of its parent.
const DESCRIPTORS_MAX: usize = 1 << 17;

/// An open file, which several descriptors of several processes may name.
#[derive(Clone, Debug, Default)]
struct Open {
    path: String,
    read: Vec<u8>,
    written: Vec<u8>,
    reads: bool,
    writes: bool,
    lists: bool,
    /// Whether the file is empty when it is opened: truncated or created.
    truncates: bool,
    appends: bool,
    /// Whether the content that was read is known from the beginning.
    is_known: bool,
    /// Whether a read has returned the end of the file.
    is_at_end: bool,
    /// The size that the process was told.
    size: Option<u64>,
}

/// A descriptor of a process.
#[derive(Clone, Debug)]
struct Descriptor {
    file: Rc<RefCell<Open>>,
    /// Whether a program that the process begins does not get it.
    closes_on_exec: bool,
}

struct Log {
    recorder: Recorder,
    /// By process and number.
    open: BTreeMap<(u64, i64), Descriptor>,
    dirs: HashMap<u64, String>,
    /// The beginning of the call that each thread is in.
    unfinished: HashMap<u64, String>,
    /// The process of each thread: threads share descriptors and directory.
    processes: HashMap<u64, u64>,
    /// How many of the unfinished calls begin a process.
    forking: usize,
    /// The number of the process that the log did not name at first.
    first: Option<u64>,
    /// Lines of processes whose parent's call has not returned: the log does not say yet whose children they are. Each with
    /// its number.
    waiting: HashMap<u64, Vec<(u64, String)>>,
    waited: u64,
    /// Lines that waited, and are read before the next line of the log.
    ready: VecDeque<(u64, String)>,
    count: u64,
    /// Bytes of written contents that may still be kept.
    kept: usize,
    lost: u64,
}

/// A system call: its name, arguments, and result.
struct Call<'a> {
    name: &'a str,
    args: Vec<&'a str>,
    result: i64,
    /// The path of a descriptor that it returns, in a log of `strace -y`.
    shown: Option<&'a str>,
}

/// Whether the beginning of a call is of one that begins a process or a thread.
fn begins_process(start: &str) -> bool {
    let name = start.split('(').next().unwrap_or_default();
    ["clone", "clone3", "fork", "vfork"].contains(&name)
}

impl Log {
    fn new() -> Self {
        Self {
            recorder: Recorder::without_model("strace"),
            open: BTreeMap::new(),
            dirs: HashMap::new(),
            unfinished: HashMap::new(),
            processes: HashMap::new(),
            forking: 0,
            first: None,
            waiting: HashMap::new(),
            waited: 0,
            ready: VecDeque::new(),
            count: 0,
            kept: WRITTEN_MAX,
            lost: 0,
        }
    }

    fn line(&mut self, thread: u64, line: &str) {
        if !self.processes.contains_key(&thread) {
            if self.forking > 0 && !self.resumes_first(line) {
                self.waited += 1;
                let lines = self.waiting.entry(thread).or_default();
                lines.push((self.waited, line.to_owned()));
                return;
            }
            // A log on a terminal names the first process only while there are others.
            let is_first = thread != 0 && self.first.is_none() && self.processes.contains_key(&0);
            let process = if is_first { 0 } else { thread };
            self.processes.insert(thread, process);
            if is_first {
                self.first = Some(thread);
                let start = self.unfinished.remove(&0);
                self.unfinished.extend(start.map(|start| (thread, start)));
            }
        }
        if let Some((start, _)) = line.split_once(" <unfinished ...>") {
            self.forking += usize::from(begins_process(start));
            let before = self.unfinished.insert(thread, start.to_owned());
            self.forking -= usize::from(before.is_some_and(|start| begins_process(&start)));
            return;
        }
        let resumed = line.split_once(" resumed>").filter(|(name, _)| name.starts_with("<... "));
        let joined = match resumed {
            Some((_, rest)) => {
                let start = self.unfinished.remove(&thread).unwrap_or_default();
                self.forking -= usize::from(begins_process(&start));
                start + rest
            }
            None => line.to_owned(),
        };
        match call(&joined) {
            Some(call) => self.call(thread, &call),
            None if joined.starts_with("+++ superseded by ") => self.superseded(thread, &joined),
            None if joined.starts_with("+++") => self.ended(thread),
            // With `-qq` a log has no line for the end of a process.
            None if joined.starts_with("exit_group(") => self.close_where(self.process(thread), |_| true),
            None if is_note(&joined) => {}
            None => self.lost += 1,
        }
        if self.forking == 0 && self.ready.is_empty() && !self.waiting.is_empty() {
            self.end_of_waiting();
        }
    }

    /// Reads the lines that do not wait any more.
    fn ready_lines(&mut self) {
        while let Some((thread, line)) = self.ready.pop_front() {
            self.line(thread, &line);
        }
    }

    /// Whether a line ends the call of the first process, which the log begins to name.
    fn resumes_first(&self, line: &str) -> bool {
        let name = line.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
        let Some((name, _)) = name else {
            return false;
        };
        let start = self.unfinished.get(&0);
        start.is_some_and(|start| start.split('(').next() == Some(name))
    }

    /// No call begins a process: processes whose lines wait have no parent in the log.
    fn end_of_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let mut all: Vec<(u64, u64, String)> = waiting
            .flat_map(|(thread, lines)| {
                let lines = lines.into_iter();
                lines.map(move |(number, line)| (number, thread, line))
            })
            .collect();
        all.sort_unstable();
        for (_, thread, line) in all {
            self.processes.entry(thread).or_insert(thread);
            self.ready.push_back((thread, line));
        }
    }

    /// A thread has ended. The end of a process closes its files.
    fn ended(&mut self, thread: u64) {
        let process = self.process(thread);
        let is_process = thread == process || self.first == Some(thread);
        if is_process {
            self.close_where(process, |_| true);
        }
        // The system may give the number to a later process.
        if self.first != Some(thread) {
            self.processes.remove(&thread);
        }
    }

    /// Another thread has called `execve`, and continues under the number of this one. The process goes on, with its files.
    fn superseded(&mut self, thread: u64, line: &str) {
        let other = line.split_whitespace().nth(6).and_then(|pid| pid.parse().ok());
        let start = other.and_then(|other: u64| self.unfinished.remove(&other));
        self.unfinished.extend(start.map(|start| (thread, start)));
    }

    fn process(&self, thread: u64) -> u64 {
        self.processes.get(&thread).copied().unwrap_or(thread)
    }

    fn call(&mut self, thread: u64, call: &Call<'_>) {
        let pid = self.process(thread);
        let path = |at: usize| {
            call.args.get(at).and_then(|arg| text(arg)).map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned())
        };
        let number = |at: usize| {
            let arg = call.args.get(at)?;
            arg.split('<').next()?.trim().parse::<i64>().ok()
        };
        let fd = number(0);
        let failed = call.result < 0;
        // With `-y`, a call names the directory of its process.
        let here = call.args.first().filter(|arg| arg.starts_with("AT_FDCWD"));
        if let Some(dir) = here.and_then(|arg| shown_path(arg))
            && self.dirs.get(&pid).is_none_or(|known| known != dir)
        {
            self.dirs.insert(pid, dir.to_owned());
            if !is_system(dir) {
                self.recorder.directory(dir);
            }
        }
        match call.name {
            "open" | "openat" | "openat2" | "creat" => {
                let at = usize::from(call.name.starts_with("openat"));
                let Some(path) = path(at) else {
                    return;
                };
                let mut path = self.absolute(pid, &path, call.args.first().copied().filter(|_| at == 1));
                if !path.starts_with('/')
                    && let Some(shown) = call.shown
                {
                    shown.clone_into(&mut path);
                }
                let flags = match call.name {
                    "creat" => "O_WRONLY|O_CREAT|O_TRUNC",
                    _ => call.args.get(at + 1).copied().unwrap_or_default(),
                };
                if failed {
                    if call.result == NOT_FOUND && !is_system(&path) {
                        self.add("open", "read_file", json!({ "path": path }), "No such file or directory", true);
                    }
                    return;
                }
                let is_directory = flags.contains("O_DIRECTORY");
                let file = Open {
                    path,
                    truncates: flags.contains("O_TRUNC") || flags.contains("O_EXCL"),
                    appends: flags.contains("O_APPEND"),
                    lists: is_directory,
                    is_known: true,
                    ..Open::default()
                };
                let descriptor =
                    Descriptor { file: Rc::new(RefCell::new(file)), closes_on_exec: flags.contains("O_CLOEXEC") };
                self.describe(pid, call.result, Some(descriptor));
            }
            "dup" | "dup2" | "dup3" | "fcntl" if !failed => {
                let command = call.args.get(1).copied().unwrap_or_default();
                if call.name == "fcntl" && !command.starts_with("F_DUPFD") {
                    if let Some(fd) = fd.filter(|_| command == "F_SETFD")
                        && let Some(known) = self.open.get_mut(&(pid, fd))
                    {
                        let flags = call.args.get(2).copied().unwrap_or_default();
                        known.closes_on_exec = flags.contains("FD_CLOEXEC");
                    }
                    return;
                }
                if fd == Some(call.result) {
                    return;
                }
                let flags = call.args.last().copied().unwrap_or_default();
                let closes_on_exec = flags.contains("O_CLOEXEC") || command.ends_with("CLOEXEC");
                let same = fd.and_then(|fd| self.open.get(&(pid, fd)));
                let same = same.map(|known| Descriptor { file: Rc::clone(&known.file), closes_on_exec });
                self.describe(pid, call.result, same);
            }
            "execve" | "execveat" if !failed => {
                self.close_where(pid, |known| known.closes_on_exec);
            }
            "fstat" | "newfstatat" if !failed => {
                let size = call.args.iter().find_map(|arg| {
                    let (_, rest) = arg.split_once("st_size=")?;
                    rest.split([',', '}']).next()?.parse().ok()
                });
                let is_of_descriptor = call.name == "fstat" || path(1).is_some_and(|path| path.is_empty());
                if let Some(mut open) = self.file(pid, fd.filter(|_| is_of_descriptor)) {
                    open.size = size;
                }
            }
            "lseek" => {
                if let Some(mut open) = self.file(pid, fd) {
                    let stays = call.args.get(2) == Some(&"SEEK_CUR") && number(1) == Some(0);
                    let is_begin = call.result == 0 && open.read.is_empty();
                    open.is_known &= stays || is_begin;
                }
            }
            "read" | "pread64" | "write" | "pwrite64" => {
                let left = self.kept;
                let Some(mut open) = self.file(pid, fd) else {
                    return;
                };
                let Ok(size) = usize::try_from(call.result) else {
                    return;
                };
                let (mut bytes, is_cut) = call.args.get(1).and_then(|arg| text(arg)).unwrap_or_default();
                let is_at_end = call.name.starts_with("pread") || call.name.starts_with("pwrite");
                open.is_known &= !is_cut && !is_at_end;
                if call.name.contains("read") {
                    open.reads = true;
                    open.is_at_end |= size == 0;
                    if open.read.len() + bytes.len() <= CONTENT_MAX {
                        open.read.extend(bytes);
                    } else {
                        open.is_known = false;
                    }
                } else {
                    open.writes = true;
                    let size = size.min(CONTENT_MAX.saturating_sub(open.written.len())).min(left);
                    bytes.resize(size, b' ');
                    open.written.extend(bytes);
                    drop(open);
                    self.kept -= size;
                }
            }
            "writev" | "pwritev" | "pwritev2" if !failed => self.filler(pid, fd, call.result),
            "readv" | "preadv" | "preadv2" | "mmap" => {
                let fd = if call.name == "mmap" { number(4) } else { fd };
                self.reads_unknown(pid, fd);
            }
            "sendfile" | "copy_file_range" if !failed => {
                // `sendfile` names the file that it writes first.
                let (from, to) = match call.name {
                    "sendfile" => (number(1), fd),
                    _ => (fd, number(2)),
                };
                self.reads_unknown(pid, from);
                self.filler(pid, to, call.result);
            }
            "getdents64" | "getdents" => {
                if let Some(mut open) = self.file(pid, fd) {
                    open.lists = true;
                    open.reads = true;
                }
            }
            "close" => {
                if let Some(fd) = fd {
                    self.describe(pid, fd, None);
                }
            }
            "fchdir" if !failed => {
                let dir = call.args.first().and_then(|fd| shown_path(fd));
                let dir = dir.map(str::to_owned);
                let dir = dir.or_else(|| self.file(pid, fd).map(|open| open.path.clone()));
                if let Some(dir) = dir {
                    self.dirs.insert(pid, dir);
                }
            }
            "getcwd" if !failed => {
                if let Some(dir) = path(0) {
                    self.recorder.directory(&dir);
                    self.dirs.insert(pid, dir);
                }
            }
            "chdir" if !failed => {
                if let Some(dir) = path(0) {
                    let dir = self.absolute(pid, &dir, None);
                    self.dirs.insert(pid, dir);
                }
            }
            "clone" | "clone3" | "fork" | "vfork" if call.result > 0 => {
                let child = call.result as u64;
                let shares = |flag: &str| call.args.iter().any(|arg| arg.contains(flag));
                if shares("CLONE_FILES") {
                    self.processes.insert(child, pid);
                } else {
                    self.processes.insert(child, child);
                    self.forked(pid, child);
                }
                let ready = self.waiting.remove(&child).unwrap_or_default();
                for (_, line) in ready.into_iter().rev() {
                    self.ready.push_front((child, line));
                }
            }
            "unlink" | "rmdir" | "mkdir" if !failed => {
                let program = match call.name {
                    "unlink" => "rm",
                    name => name,
                };
                if let Some(one) = path(0) {
                    self.program(program, call.name, &[self.absolute(pid, &one, None)]);
                }
            }
            "unlinkat" | "mkdirat" if !failed => {
                let program = match (call.name, call.args.get(2)) {
                    ("mkdirat", _) => "mkdir",
                    (_, Some(flags)) if flags.contains("AT_REMOVEDIR") => "rmdir",
                    _ => "rm",
                };
                if let Some(one) = path(1) {
                    let one = self.absolute(pid, &one, call.args.first().copied());
                    self.program(program, call.name, &[one]);
                }
            }
            "rename" if !failed => {
                if let (Some(from), Some(to)) = (path(0), path(1)) {
                    let both = [self.absolute(pid, &from, None), self.absolute(pid, &to, None)];
                    self.program("mv", call.name, &both);
                }
            }
            "renameat2" if call.args.last().is_some_and(|flags| flags.contains("RENAME_EXCHANGE")) => {
                if let (false, Some(one), Some(other)) = (failed, path(1), path(3)) {
                    let both = [
                        self.absolute(pid, &one, call.args.first().copied()),
                        self.absolute(pid, &other, call.args.get(2).copied()),
                    ];
                    self.program("mv --exchange", call.name, &both);
                }
            }
            "truncate" | "chmod" if !failed => {
                let value = call.args.get(1).copied().unwrap_or_default();
                let program = match call.name {
                    "truncate" => format!("truncate -s {}", quoted(value)),
                    _ => format!("chmod {}", quoted(value)),
                };
                if let Some(one) = path(0) {
                    self.program(&program, call.name, &[self.absolute(pid, &one, None)]);
                }
            }
            "link" if !failed => {
                if let (Some(from), Some(to)) = (path(0), path(1)) {
                    let both = [self.absolute(pid, &from, None), self.absolute(pid, &to, None)];
                    self.program("ln", call.name, &both);
                }
            }
            "symlink" if !failed => {
                // The target is the text of the link.
                if let (Some(target), Some(link)) = (path(0), path(1)) {
                    let link = self.absolute(pid, &link, None);
                    self.program("ln -s", call.name, &[target, link]);
                }
            }
            "renameat" | "renameat2" if !failed => {
                if let (Some(from), Some(to)) = (path(1), path(3)) {
                    let both = [
                        self.absolute(pid, &from, call.args.first().copied()),
                        self.absolute(pid, &to, call.args.get(2).copied()),
                    ];
                    self.program("mv", call.name, &both);
                }
            }
            _ => {}
        }
    }

    /// A path as seen from the directory of the process, or from the descriptor `at` of a directory.
    fn absolute(&self, pid: u64, path: &str, at: Option<&str>) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        // With `-y`, a descriptor is followed by its path: `3</home/u/p>`.
        let shown = at.and_then(shown_path).map(str::to_owned);
        let opened = || {
            let fd = at?.trim().parse::<i64>().ok()?;
            Some(self.file(pid, Some(fd))?.path.clone())
        };
        let dir = shown.or_else(opened).or_else(|| self.dirs.get(&pid).cloned());
        match dir {
            Some(dir) => format!("{dir}/{path}"),
            None => path.to_owned(),
        }
    }

    /// A new process has the open files and the directory of its parent.
    fn forked(&mut self, parent: u64, child: u64) {
        if let Some(dir) = self.dirs.get(&parent).cloned() {
            self.dirs.insert(child, dir);
        }
        let room = DESCRIPTORS_MAX.saturating_sub(self.open.len());
        let inherited: Vec<_> =
            self.open.range(all_of(parent)).take(room).map(|((_, fd), known)| ((child, *fd), known.clone())).collect();
        self.open.extend(inherited);
    }

    /// The file of a descriptor.
    fn file(&self, pid: u64, fd: Option<i64>) -> Option<RefMut<'_, Open>> {
        let known = self.open.get(&(pid, fd?))?;
        known.file.try_borrow_mut().ok()
    }

    fn reads_unknown(&mut self, pid: u64, fd: Option<i64>) {
        if let Some(mut open) = self.file(pid, fd) {
            open.reads = true;
            open.is_known = false;
        }
    }

    /// Writes bytes that the log does not show.
    fn filler(&mut self, pid: u64, fd: Option<i64>, bytes: i64) {
        let left = self.kept;
        let Some(mut open) = self.file(pid, fd) else {
            return;
        };
        open.writes = true;
        let size = usize::try_from(bytes).unwrap_or(0);
        let room = CONTENT_MAX.saturating_sub(open.written.len()).min(left);
        let all = open.written.len() + size.min(room);
        open.written.resize(all, b' ');
        drop(open);
        self.kept -= size.min(room);
    }

    /// Gives a descriptor to a file, or closes it. The last descriptor of a file closes the file.
    fn describe(&mut self, pid: u64, fd: i64, descriptor: Option<Descriptor>) {
        let before = match descriptor {
            Some(descriptor) => self.open.insert((pid, fd), descriptor),
            None => self.open.remove(&(pid, fd)),
        };
        if let Some(open) = before.and_then(|known| Rc::into_inner(known.file)) {
            self.closed(open.into_inner());
        }
    }

    /// Closes descriptors of a process, in their order.
    fn close_where(&mut self, pid: u64, closes: impl Fn(&Descriptor) -> bool) {
        let chosen = self.open.range(all_of(pid));
        let chosen: Vec<i64> = chosen.filter(|(_, known)| closes(known)).map(|((_, fd), _)| *fd).collect();
        for fd in chosen {
            self.describe(pid, fd, None);
        }
    }

    fn close_all(&mut self) {
        while let Some((&(pid, fd), _)) = self.open.first_key_value() {
            self.describe(pid, fd, None);
        }
    }

    fn closed(&mut self, open: Open) {
        if is_system(&open.path) {
            return;
        }
        let path = open.path;
        if open.lists {
            if open.reads {
                self.add("getdents64", "list_directory", json!({ "path": path }), "", false);
            }
        } else if open.writes && open.truncates {
            let content = String::from_utf8_lossy(&open.written).into_owned();
            self.add("write", "write_file", json!({ "path": path, "content": content }), "", false);
        } else if open.writes {
            // Where the bytes went is not known, unless they went to the end.
            let written = String::from_utf8_lossy(&open.written).into_owned();
            let args = match open.appends {
                true => {
                    json!({ "command": format!("printf %s {} >> {}", quoted(&written), quoted(&path)) })
                }
                false => json!({ "path": path }),
            };
            let tool = if open.appends { "shell" } else { "edit_file" };
            self.add("write", tool, args, "", false);
        } else if open.reads {
            // What a process read is the file only if it read to the end.
            let is_whole = open.is_at_end || open.size == Some(open.read.len() as u64);
            let shown = match open.is_known && is_whole {
                true => String::from_utf8_lossy(&open.read).into_owned(),
                false => String::new(),
            };
            self.add("read", "read_file", json!({ "path": path }), &shown, false);
        } else if open.truncates {
            self.add("open", "write_file", json!({ "path": path, "content": "" }), "", false);
        }
    }

    fn program(&mut self, program: &str, name: &str, paths: &[String]) {
        if paths.iter().any(|path| is_system(path)) {
            return;
        }
        let paths: Vec<String> = paths.iter().map(|path| quoted(path)).collect();
        let command = format!("{program} {}", paths.join(" "));
        self.add(name, "shell", json!({ "command": command }), "", false);
    }

    fn add(&mut self, name: &str, tool: &str, args: serde_json::Value, shown: &str, failed: bool) {
        self.count += 1;
        let id = format!("{name} {}", self.count);
        self.recorder.call(&id, tool, args, None);
        let answer = Answer { shown: shown.to_owned(), failed, ..Answer::default() };
        self.recorder.answered(&id, answer);
    }
}

/// The result of a call that fails with ENOENT.
const NOT_FOUND: i64 = -2;

/// The keys of all descriptors of a process.
fn all_of(pid: u64) -> std::ops::RangeInclusive<(u64, i64)> {
    (pid, i64::MIN)..=(pid, i64::MAX)
}

fn is_system(path: &str) -> bool {
    SYSTEM.iter().any(|dir| path.starts_with(dir))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The process of a line, and the line without process and time: `[pid  12] `, `12 `, `10:00:00.1 `, `1769000000.1 `.
fn process(line: &str) -> (u64, &str) {
    let mut line = line.trim();
    let mut pid = 0;
    if let Some((found, rest)) = line.strip_prefix("[pid").and_then(|rest| rest.split_once(']')) {
        pid = found.trim().parse().unwrap_or(0);
        line = rest.trim_start();
    }
    loop {
        let Some((first, rest)) = line.split_once(' ') else {
            return (pid, line);
        };
        let is_time = first.ends_with(|c: char| c.is_ascii_digit())
            && first.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.' || b == b'+' || b == b'-');
        if !is_time || !first.starts_with(|c: char| c.is_ascii_digit() || c == '+') {
            return (pid, line);
        }
        if pid == 0 && first.bytes().all(|b| b.is_ascii_digit()) {
            pid = first.parse().unwrap_or(0);
        }
        line = rest.trim_start();
    }
}

/// The path that `strace -y` shows after a descriptor: `3</home/u/p>`, `3</home/u/p>(deleted)`.
fn shown_path(descriptor: &str) -> Option<&str> {
    let (_, path) = descriptor.split_once('<')?;
    let (path, _) = path.rsplit_once('>')?;
    path.starts_with('/').then_some(path)
}

/// Whether a line without a call says something of the log or of a process.
fn is_note(line: &str) -> bool {
    let is_of_strace = line.starts_with("strace: ") || line.starts_with("[ Process PID=");
    // The result of a call that did not return is `?`.
    line.is_empty()
        || line.starts_with("---")
        || is_of_strace
        || line.contains(") = ? ")
        || line.trim_end().ends_with(" = ?")
}

/// Whether a line is one of strace.
fn parsed(line: &str) -> Option<()> {
    let (_, line) = process(line);
    if line.starts_with("<... ") && line.contains(" resumed>")
        || line.starts_with("+++ exited with")
        || line.starts_with("+++ killed by")
        || line.starts_with("--- SIG")
        || line.starts_with("strace: Process ")
    {
        return Some(());
    }
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let (name, rest) = line.split_once('(')?;
    (is_name(name) && (rest.ends_with(" <unfinished ...>") || rest.contains(") = ") || rest.contains(")  ")))
        .then_some(())
}

/// A whole call.
fn call(line: &str) -> Option<Call<'_>> {
    let (name, rest) = line.split_once('(')?;
    let (args, result) = rest.rsplit_once(" = ")?;
    let args = args.trim_end().strip_suffix(')')?;
    // With `-T`, the time that the call took is at the end: `3 <0.000012>`.
    let result = match result.rsplit_once(" <") {
        Some((rest, time)) if time.starts_with(|c: char| c.is_ascii_digit()) => rest,
        _ => result,
    };
    let mut words = result.split_whitespace();
    let number = words.next()?;
    let error = words.next();
    let shown = shown_path(result);
    let number = number.split('<').next()?;
    let result = match (number, error) {
        ("-1", Some("ENOENT")) => NOT_FOUND,
        ("?", _) => return None,
        (number, _) => match number.strip_prefix("0x") {
            Some(_) => 0,
            None => number.parse().ok()?,
        },
    };
    Some(Call { name, args: arguments(args), result, shown })
}

/// The arguments of a call, split at the commas outside strings and braces.
fn arguments(args: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let (mut start, mut depth, mut in_string, mut escaped) = (0, 0_u32, false, false);
    for (at, byte) in args.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                all.push(args[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(args[start..].trim());
    all
}

/// The bytes of a string argument, and whether the log cuts them.
fn text(arg: &str) -> Option<(Vec<u8>, bool)> {
    let inner = arg.strip_prefix('"')?;
    let mut bytes = Vec::new();
    let mut rest = inner.bytes().peekable();
    loop {
        match rest.next()? {
            b'"' => return Some((bytes, arg.ends_with("\"..."))),
            b'\\' => match rest.next()? {
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                b'f' => bytes.push(0xc),
                b'v' => bytes.push(0xb),
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    let digits = std::str::from_utf8(&digits).ok().map(str::to_owned)?;
                    bytes.push(u8::from_str_radix(&digits, 16).ok()?);
                }
                digit @ b'0'..=b'7' => {
                    let mut value = u32::from(digit - b'0');
                    for _ in 0..2 {
                        if let Some(next) = rest.next_if(|b| (b'0'..=b'7').contains(b)) {
                            value = value * 8 + u32::from(next - b'0');
                        }
                    }
                    bytes.push(value as u8);
                }
                other => bytes.push(other),
            },
            byte => bytes.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTORS_MAX, Log};
    use crate::import::testing::{calls, imported};

    #[test]
    fn files_that_a_program_opens_are_reads_writes_and_lists() {
        let log = r#"12 10:00:00 execve("/usr/bin/x", ["x"], 0x7ffe /* 10 vars */) = 0
12 openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3
12 close(3) = 0
12 getcwd("/w/p", 4096) = 5
12 openat(AT_FDCWD, "a.txt", O_RDONLY) = 3
12 read(3, "one\n\"two\"\n", 4096) = 10
12 read(3, "", 4096) = 0
12 close(3) = 0
12 clone(child_stack=NULL, flags=SIGCHLD) = 13
[pid    13] openat(AT_FDCWD, "out.txt", O_WRONLY|O_CREAT|O_TRUNC, 0666 <unfinished ...>
12 openat(AT_FDCWD, "none", O_RDONLY) = -1 ENOENT (No such file or directory)
[pid    13] <... openat resumed>) = 4
[pid    13] write(4, "abcd"..., 10) = 10
[pid    13] close(4) = 0
12 openat(AT_FDCWD, ".", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 3
12 getdents64(3, 0x55 /* 4 entries */, 32768) = 112
12 close(3) = 0
12 rename("out.txt", "b.txt") = 0
12 +++ exited with 0 +++
"#;
        assert_eq!(
            calls(&imported("strace", log)),
            [
                "read_file read a.txt: whole one\n\"two\"\n",
                "read_file read none (NotFound)",
                "write_file write out.txt: written abcd      ",
                "list_directory list .",
                "shell exec: mv '/w/p/out.txt' '/w/p/b.txt' in /w/p -> ",
            ]
        );
    }

    #[test]
    fn a_childs_redirection_before_its_parents_clone_returns_is_a_write() {
        let log = r#"20 10:00:00.000001 execve("/bin/sh", ["sh"], 0x7ffe /* 10 vars */) = 0 <0.000100>
20 10:00:00.000002 openat(AT_FDCWD</w/p>, "log", O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC, 0666) = 10</w/p/log> <0.000009>
20 10:00:00.000003 vfork( <unfinished ...>
21 10:00:00.000004 chdir("sub") = 0 <0.000009>
21 10:00:00.000005 openat(AT_FDCWD</w/p/sub>, "out.txt", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</w/p/sub/out.txt> <0.000009>
21 10:00:00.000006 dup2(3</w/p/sub/out.txt>, 1</dev/pts/0>) = 1</w/p/sub/out.txt> <0.000009>
21 10:00:00.000007 close(3</w/p/sub/out.txt>) = 0 <0.000009>
21 10:00:00.000008 execve("/bin/x", ["x"], 0x7ffe /* 10 vars */ <unfinished ...>
20 10:00:00.000009 <... vfork resumed>) = 21 <0.000109>
21 10:00:00.000010 <... execve resumed>) = 0 <0.000009>
21 10:00:00.000011 write(1</w/p/sub/out.txt>, "a b\n", 4) = 4 <0.000009>
21 10:00:00.000012 renameat2(AT_FDCWD</w/p/sub>, "in.txt", AT_FDCWD</w/p/sub>, "old.txt", RENAME_NOREPLACE) = 0 <0.000009>
21 10:00:00.000013 renameat2(AT_FDCWD</w/p/sub>, "c", AT_FDCWD</w/p/sub>, "d", RENAME_EXCHANGE) = 0 <0.000009>
21 10:00:00.000014 exit_group(0) = ?
21 10:00:00.000015 +++ exited with 0 +++
20 10:00:00.000016 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=21} ---
20 10:00:00.000017 write(10</w/p/log>, "done\n", 5) = 5 <0.000009>
20 10:00:00.000018 exit_group(0) = ?
20 10:00:00.000019 +++ exited with 0 +++
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(
            calls(&session),
            [
                "shell exec: mv '/w/p/sub/in.txt' '/w/p/sub/old.txt' in /w/p -> ",
                "shell exec: mv --exchange '/w/p/sub/c' '/w/p/sub/d' in /w/p -> ",
                "write_file write sub/out.txt: written a b\n",
                "shell exec: printf %s 'done",
            ]
        );
    }

    #[test]
    fn threads_share_the_files_and_the_directory_of_their_process() {
        let log = r#"getcwd("/w/p", 4096) = 5
clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 31
strace: Process 31 attached
[pid    31] openat(AT_FDCWD, "a.txt", O_RDWR|O_CREAT|O_EXCL, 0600) = 5
[pid    31] openat2(AT_FDCWD, "b.txt", {flags=O_RDONLY|O_CLOEXEC, resolve=RESOLVE_BENEATH}, 24 <unfinished ...>
[pid    30] write(5, "new\n", 4) = 4
[pid    31] <... openat2 resumed>) = 6
[pid    31] +++ exited with 0 +++
read(6, "part", 4) = 4
close(6) = 0
close(5) = 0
exit_group(0) = ?
+++ killed by SIGKILL +++
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(
            calls(&session),
            // Nothing says that `part` is all of b.txt.
            ["read_file read b.txt", "write_file write a.txt: written new\n"]
        );
    }

    #[test]
    fn a_thread_that_executes_a_program_keeps_the_files_of_its_process() {
        let log = r#"10 getcwd("/w/p", 4096) = 5
10 openat(AT_FDCWD, "out", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 1
10 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 12
12 execve("/bin/x", ["x"], 0x7ffe /* 10 vars */ <unfinished ...>
10 +++ superseded by execve in pid 12 +++
10 <... execve resumed>) = 0
10 write(1, "x\n", 2) = 2
10 exit_group(0) = ?
10 +++ exited with 0 +++
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(calls(&session), ["write_file write out: written x\n"]);
    }

    #[test]
    fn a_process_ends_with_its_last_call_if_the_log_has_no_line_for_it() {
        // As `strace -qq -f` logs `gen > out; cat out`.
        let log = r#"10 getcwd("/w/p", 4096) = 5
10 fork() = 11
11 openat(AT_FDCWD, "out", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3
11 dup2(3, 1) = 1
11 close(3) = 0
11 write(1, "x\n", 2) = 2
11 exit_group(0) = ?
10 openat(AT_FDCWD, "out", O_RDONLY) = 3
10 read(3, "x\n", 4096) = 2
10 read(3, "", 4096) = 0
10 close(3) = 0
10 exit_group(0) = ?
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        let calls = calls(&session);
        assert!(
            calls[0].starts_with("write_file write out") && calls[1].starts_with("read_file read out"),
            "{calls:?}"
        );
    }

    #[test]
    fn a_process_of_a_waiting_process_has_its_directory() {
        // 12 runs before both calls that begin its ancestors have returned.
        let log = r#"10 getcwd("/w/p", 4096) = 5
10 clone( <unfinished ...>
11 chdir("sub") = 0
11 fork( <unfinished ...>
12 truncate("a", 7) = 0
12 chmod("a", 0640) = 0
12 symlink("../b", "c") = 0
12 +++ exited with 0 +++
10 <... clone resumed>) = 11
11 <... fork resumed>) = 12
11 +++ exited with 0 +++
10 vfork( <unfinished ...>
11 unlink("d") = 0
10 <... vfork resumed>) = 11
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(
            calls(&session),
            [
                "shell exec: truncate -s '7' '/w/p/sub/a' in /w/p -> ",
                "shell exec: chmod '0640' '/w/p/sub/a' in /w/p -> ",
                "shell exec: ln -s '../b' '/w/p/sub/c' in /w/p -> ",
                // The number 11 belongs to a new process.
                "shell exec: rm '/w/p/d' in /w/p -> ",
            ]
        );
    }

    #[test]
    fn inherited_descriptors_of_many_processes_have_a_limit() {
        let mut log = Log::new();
        for fd in 3..2_003 {
            log.line(1, &format!("open(\"/w/{fd}\", O_RDONLY) = {fd}"));
        }
        for pid in 2..102 {
            log.line(1, &format!("fork() = {pid}"));
        }
        assert_eq!(log.open.len(), DESCRIPTORS_MAX);
    }

    #[test]
    fn a_chain_of_processes_before_their_parents_return_is_read_in_time() {
        let mut log = "1 getcwd(\"/w\", 9) = 3\n1 clone( <unfinished ...>\n".to_owned();
        for pid in 2..60_000 {
            log += &format!("{pid} clone( <unfinished ...>\n");
        }
        for pid in 1..60_000 {
            log += &format!("{pid} <... clone resumed>) = {}\n", pid + 1);
        }
        log += "60000 unlink(\"a\") = 0\n";
        let session = imported("strace", &log);
        assert_eq!(calls(&session), ["shell exec: rm '/w/a' in /w -> "]);
    }
}
