//! Importer for `strace -f` logs of programs: each file that is opened and closed is a read or a write.
//! The log shows the beginning of each content (`-s`); the rest of a write is filler of the same size.

mod file;
mod line;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::BufRead;
use std::rc::Rc;

use serde_json::json;

use super::detect::Head;
use super::json::whole;
use super::recorder::{Answer, Recorder};
use super::records::Damage;
use super::{ImportedSession, Importer};
use file::{FileUse, Offset, OpenFile};
use line::{Call, NOT_FOUND, beginning, call, data, is_note, is_of_strace, process, shown_path};

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
        let calls = lines.iter().filter(|line| is_of_strace(line)).count();
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

/// The most descriptors that all new processes get together. After that, a process gets at most [`FEW`].
const INHERITED_MAX: usize = 1 << 21;

/// Enough descriptors for redirections.
const FEW: usize = 16;

/// A process and the number of its descriptor.
type Descriptor = (u64, i64);

struct Log {
    recorder: Recorder,
    open: BTreeMap<Descriptor, Rc<RefCell<OpenFile>>>,
    /// The descriptors that a program does not get which the process begins.
    closed_on_exec: BTreeSet<Descriptor>,
    /// How many descriptors new processes have got.
    inherited: usize,
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
            closed_on_exec: BTreeSet::new(),
            inherited: 0,
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
        if let Some(start) = beginning(line) {
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
            None if joined.starts_with("exit_group(") => self.close_process(self.process(thread)),
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
            self.close_process(process);
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
        let path = |at: usize| call.path(at);
        let number = |at: usize| call.number(at);
        let fd = number(0);
        let failed = call.result < 0;
        // With `-y`, a call names the directory of its process.
        let here = call.args.first().filter(|arg| arg.starts_with("AT_FDCWD"));
        if let Some(dir) = here.and_then(|arg| shown_path(arg))
            && self.dirs.get(&pid).is_none_or(|known| *known != dir)
        {
            if !is_system(&dir) {
                self.recorder.directory(&dir);
            }
            self.dirs.insert(pid, dir);
        }
        match call.name {
            "open" | "openat" | "openat2" | "creat" => {
                let at = usize::from(call.name.starts_with("openat"));
                let Some(path) = path(at) else {
                    return;
                };
                let mut path = self.absolute(pid, &path, call.args.first().copied().filter(|_| at == 1));
                if !path.starts_with('/')
                    && let Some(shown) = &call.shown
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
                let file = Rc::new(RefCell::new(OpenFile::new(path, flags)));
                self.describe(pid, call.result, Some(file), flags.contains("O_CLOEXEC"));
            }
            "fcntl" if !failed && !call.args.get(1).is_some_and(|command| command.starts_with("F_DUPFD")) => {
                match call.args.get(1).copied() {
                    Some("F_SETFD") => {
                        let closes_on_exec = call.has(2, "FD_CLOEXEC");
                        if let Some(fd) = fd {
                            self.close_on_exec((pid, fd), closes_on_exec);
                        }
                    }
                    Some("F_SETFL") => {
                        if let Some(mut file) = self.file(pid, fd) {
                            file.appends = call.has(2, "O_APPEND");
                        }
                    }
                    _ => {}
                }
            }
            "dup" | "dup2" | "dup3" | "fcntl" if !failed => {
                if fd == Some(call.result) {
                    return;
                }
                let closes_on_exec = call.has(2, "O_CLOEXEC") || call.has(1, "F_DUPFD_CLOEXEC");
                let same = fd.and_then(|fd| self.open.get(&(pid, fd))).map(Rc::clone);
                self.describe(pid, call.result, same, closes_on_exec);
            }
            "execve" | "execveat" if !failed => {
                let closed: Vec<i64> = self.closed_on_exec.range(all_of(pid)).map(|(_, fd)| *fd).collect();
                self.close(pid, closed);
            }
            "fstat" | "newfstatat" if !failed => {
                let size = call.args.iter().find_map(|arg| {
                    let (_, rest) = arg.split_once("st_size=")?;
                    rest.split([',', '}']).next()?.parse().ok()
                });
                let is_of_descriptor = call.name == "fstat" || path(1).is_some_and(|path| path.is_empty());
                if let (Some(mut file), Some(size)) = (self.file(pid, fd.filter(|_| is_of_descriptor)), size) {
                    file.tell_size(size);
                }
            }
            "lseek" => {
                let is_end = call.args.get(2) == Some(&"SEEK_END") && number(1) == Some(0);
                if let (Some(mut file), Ok(position)) = (self.file(pid, fd), u64::try_from(call.result)) {
                    file.seek(position, is_end.then_some(position));
                }
            }
            "read" | "pread64" | "readv" | "preadv" | "preadv2" if !failed => {
                // A read of no bytes says nothing of the file.
                if let Some(mut file) = self.file(pid, fd).filter(|_| number(2) != Some(0)) {
                    let (bytes, is_cut) = call.args.get(1).map_or_else(Default::default, |arg| data(arg, 0));
                    let size = call.result as u64;
                    if is_cut { file.read_unseen(offset(call), size) } else { file.read(offset(call), &bytes, size) }
                }
            }
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" if !failed => {
                let bytes = |most| call.args.get(1).map_or_else(Default::default, |arg| data(arg, most).0);
                let is_added = call.name == "pwritev2" && call.has(4, "RWF_APPEND");
                self.written(pid, fd, (offset(call), is_added), call.result as u64, bytes);
            }
            "ftruncate" if !failed => {
                let size = number(1).and_then(|size| u64::try_from(size).ok());
                if let (Some(mut file), Some(size)) = (self.file(pid, fd), size) {
                    file.resize(size);
                }
            }
            "mmap" => {
                if let Some(mut file) = self.file(pid, number(4)) {
                    file.read_unseen(Offset::Unknown, 0);
                }
            }
            "sendfile" | "copy_file_range" if !failed => {
                // `sendfile` names the file that it writes first, and writes at its position.
                let (from, read_at, to, write_at) = match call.name {
                    "sendfile" => (number(1), pointed(call, 2), fd, Offset::Current),
                    _ => (fd, pointed(call, 1), number(2), pointed(call, 3)),
                };
                let size = call.result as u64;
                if let Some(mut file) = self.file(pid, from) {
                    file.read_unseen(read_at, size);
                }
                self.written(pid, to, (write_at, false), size, |_| Vec::new());
            }
            "getdents64" | "getdents" => {
                if let Some(mut file) = self.file(pid, fd) {
                    file.list();
                }
            }
            "close" => {
                if let Some(fd) = fd {
                    self.describe(pid, fd, None, false);
                }
            }
            "fchdir" if !failed => {
                let dir = call.args.first().and_then(|fd| shown_path(fd));
                let dir = dir.or_else(|| self.file(pid, fd).map(|file| file.path.clone()));
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
        let shown = at.and_then(shown_path);
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
        let most = if self.inherited < INHERITED_MAX { room } else { room.min(FEW) };
        let inherited: Vec<_> =
            self.open.range(all_of(parent)).take(most).map(|((_, fd), file)| (*fd, Rc::clone(file))).collect();
        self.inherited += inherited.len();
        for (fd, file) in inherited {
            let closes_on_exec = self.closed_on_exec.contains(&(parent, fd));
            self.describe(child, fd, Some(file), closes_on_exec);
        }
    }

    /// The file of a descriptor.
    fn file(&self, pid: u64, fd: Option<i64>) -> Option<RefMut<'_, OpenFile>> {
        self.open.get(&(pid, fd?))?.try_borrow_mut().ok()
    }

    /// Writes `size` bytes at an offset, or at the end of the file. `bytes` gives those that the log shows, up to a number.
    fn written(
        &mut self,
        pid: u64,
        fd: Option<i64>,
        (offset, is_added): (Offset, bool),
        size: u64,
        bytes: impl FnOnce(usize) -> Vec<u8>,
    ) {
        let left = self.kept;
        let Some(mut file) = self.file(pid, fd).filter(|_| size > 0) else {
            return;
        };
        let kept = file.room(size, left);
        let mut bytes = bytes(kept);
        bytes.resize(kept, b' ');
        let appends = file.appends;
        file.appends |= is_added;
        file.write(offset, bytes, size);
        file.appends = appends;
        drop(file);
        self.kept -= kept;
    }

    /// Gives a descriptor to a file, or closes it. The last descriptor of a file closes the file.
    fn describe(&mut self, pid: u64, fd: i64, file: Option<Rc<RefCell<OpenFile>>>, closes_on_exec: bool) {
        self.close_on_exec((pid, fd), closes_on_exec && file.is_some());
        let before = match file {
            Some(file) => self.open.insert((pid, fd), file),
            None => self.open.remove(&(pid, fd)),
        };
        if let Some(file) = before.and_then(Rc::into_inner) {
            self.closed(file.into_inner());
        }
    }

    fn close_on_exec(&mut self, descriptor: Descriptor, closes: bool) {
        if closes {
            self.closed_on_exec.insert(descriptor)
        } else {
            self.closed_on_exec.remove(&descriptor)
        };
    }

    fn close(&mut self, pid: u64, descriptors: Vec<i64>) {
        for fd in descriptors {
            self.describe(pid, fd, None, false);
        }
    }

    /// Closes all descriptors of a process, in their order.
    fn close_process(&mut self, pid: u64) {
        let all = self.open.range(all_of(pid)).map(|((_, fd), _)| *fd).collect();
        self.close(pid, all);
    }

    fn close_all(&mut self) {
        while let Some((&(pid, fd), _)) = self.open.first_key_value() {
            self.describe(pid, fd, None, false);
        }
    }

    fn closed(&mut self, file: OpenFile) {
        if is_system(&file.path) {
            return;
        }
        let path = file.path.clone();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match file.into_use(&mut self.kept) {
            FileUse::Nothing => {}
            FileUse::List => self.add("getdents64", "list_directory", json!({ "path": path }), "", false),
            FileUse::Read(content) => {
                let shown = content.map(text).unwrap_or_default();
                self.add("read", "read_file", json!({ "path": path }), &shown, false);
            }
            FileUse::Write(content) => {
                self.add("write", "write_file", json!({ "path": path, "content": text(content) }), "", false);
            }
            FileUse::Append(bytes) => {
                let command = format!("printf %s {} >> {}", quoted(&text(bytes)), quoted(&path));
                self.add("write", "shell", json!({ "command": command }), "", false);
            }
            FileUse::Resize(size) => self.program(&format!("truncate -s {size}"), "ftruncate", &[path]),
            FileUse::Edit(contents) => {
                let contents = contents.map(|(before, after)| (text(before), text(after)));
                let (before, after) = contents.unzip();
                let answer = Answer { before, after, ..Answer::default() };
                self.answer("write", "edit_file", json!({ "path": path }), answer);
            }
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
        self.answer(name, tool, args, Answer { shown: shown.to_owned(), failed, ..Answer::default() });
    }

    fn answer(&mut self, name: &str, tool: &str, args: serde_json::Value, answer: Answer) {
        self.count += 1;
        let id = format!("{name} {}", self.count);
        self.recorder.call(&id, tool, args, None);
        self.recorder.answered(&id, answer);
    }
}

/// Where a call on one file reads or writes.
fn offset(call: &Call<'_>) -> Offset {
    match (call.name, call.number(3)) {
        ("read" | "readv" | "write" | "writev", _) | ("preadv2" | "pwritev2", Some(-1)) => Offset::Current,
        (_, at) => at.and_then(|at| u64::try_from(at).ok()).map_or(Offset::Unknown, Offset::At),
    }
}

/// Where a call between two files reads or writes: at the position of the descriptor, or at `[512]` or `[512] => [1024]`.
fn pointed(call: &Call<'_>, at: usize) -> Offset {
    let Some(arg) = call.args.get(at).filter(|arg| **arg != "NULL") else {
        return Offset::Current;
    };
    let number = arg.strip_prefix('[').and_then(|rest| rest.split(']').next()?.parse().ok());
    number.map_or(Offset::Unknown, Offset::At)
}

/// The keys of all descriptors of a process.
fn all_of(pid: u64) -> std::ops::RangeInclusive<Descriptor> {
    (pid, i64::MIN)..=(pid, i64::MAX)
}

fn is_system(path: &str) -> bool {
    SYSTEM.iter().any(|dir| path.starts_with(dir))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::file::CONTENT_MAX;
    use super::{DESCRIPTORS_MAX, FEW, INHERITED_MAX, Log, WRITTEN_MAX};
    use crate::SeenContent;
    use crate::testing::{calls, imported};

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
    fn writes_go_to_their_positions() {
        // Made by strace 6.1 of a Python program.
        let log = r#"31 getcwd("/w/p", 4096) = 5
31 openat(AT_FDCWD, "new", O_RDWR|O_CREAT|O_TRUNC|O_CLOEXEC, 0777) = 3
31 write(3, "hello world", 11)         = 11
31 lseek(3, 6, SEEK_SET)               = 6
31 write(3, "W", 1)                    = 1
31 pwrite64(3, "J", 1, 0)              = 1
31 pwritev2(3, [{iov_base="ab", iov_len=2}, {iov_base="cd", iov_len=2}], 2, 14, 0) = 4
31 writev(3, [{iov_base="--", iov_len=2}, {iov_base="++", iov_len=2}], 2) = 4
31 close(3)                            = 0
31 openat(AT_FDCWD, "copy", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0777) = 4
31 copy_file_range(3, [0], 4, [2], 4, 0) = 4
31 sendfile(4, 3, [0] => [4], 2)     = 2
31 pwritev(4, [{iov_base="a"..., iov_len=3}, {iov_base="b", iov_len=1}], 2, 3) = 4
31 ftruncate(4, 8)                     = 0
31 close(4)                            = 0
31 openat(AT_FDCWD, "sparse", O_WRONLY|O_CREAT|O_EXCL, 0777) = 4
31 pwrite64(4, "x", 1, 100000000000)   = 1
31 ftruncate(4, 1)                     = 0
31 close(4)                            = 0
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(
            calls(&session),
            [
                "write_file write new: written Jello W--++\0\0\0abcd",
                "write_file write copy: written    a  b\0",
                "write_file write sparse: written \0",
            ]
        );
    }

    #[test]
    fn writes_to_an_old_file_are_an_edit_unless_they_go_to_its_end() {
        let log = r#"31 getcwd("/w/p", 4096) = 5
31 openat(AT_FDCWD, "base", O_RDWR|O_CLOEXEC) = 3
31 pread64(3, "56789", 5, 5)           = 5
31 pread64(3, "01234", 5, 0)           = 5
31 pread64(3, "", 5, 10)               = 0
31 pwrite64(3, "XY", 2, 3)             = 2
31 lseek(3, 0, SEEK_END)               = 10
31 write(3, "end", 3)                  = 3
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_WRONLY|O_APPEND|O_CLOEXEC) = 3
31 write(3, "A", 1)                    = 1
31 pwrite64(3, "B", 1, 0)              = 1
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_WRONLY|O_CLOEXEC) = 3
31 lseek(3, 0, SEEK_END)               = 15
31 write(3, "tail", 4)                 = 4
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_WRONLY|O_CLOEXEC) = 3
31 fcntl(3, F_SETFL, O_WRONLY|O_APPEND) = 0
31 write(3, "C", 1)                    = 1
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_WRONLY|O_CLOEXEC) = 3
31 pwritev2(3, [{iov_base="Q", iov_len=1}], 1, 3, RWF_APPEND) = 1
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_WRONLY|O_CLOEXEC) = 3
31 pwrite64(3, "D", 1, 0)              = 1
31 close(3)                            = 0
31 openat(AT_FDCWD, "base", O_RDWR|O_CLOEXEC) = 3
31 ftruncate(3, 4)                     = 0
31 close(3)                            = 0
"#;
        let session = imported("strace", log);
        assert_eq!(
            calls(&session),
            [
                "edit_file edit base: 2 replacements of a known file",
                "shell exec: printf %s 'AB' >> '/w/p/base' in /w/p -> ",
                "shell exec: printf %s 'tail' >> '/w/p/base' in /w/p -> ",
                "shell exec: printf %s 'C' >> '/w/p/base' in /w/p -> ",
                "shell exec: printf %s 'Q' >> '/w/p/base' in /w/p -> ",
                "edit_file edit base",
                "shell exec: truncate -s 4 '/w/p/base' in /w/p -> ",
            ]
        );
        let first = session.results().next().unwrap().seen.load().unwrap();
        let SeenContent::Edited { before, replacements, .. } = first else { panic!("{first:?}") };
        assert_eq!((before.as_deref(), replacements[0].new.as_str()), (Some("0123456789"), "012XY56789end"));
    }

    #[test]
    fn reads_at_positions_show_a_file_if_they_cover_it() {
        let log = |reads: &str| {
            let open = "31 getcwd(\"/w/p\", 4096) = 5\n31 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3\n";
            format!("{open}{reads}\n31 close(3) = 0\n")
        };
        for (reads, expected) in [
            (
                r#"31 preadv2(3, [{iov_base="ab", iov_len=2}, {iov_base="cd", iov_len=9}], 2, 0, 0) = 4
31 lseek(3, 2, SEEK_SET) = 2
31 read(3, "cde", 9) = 3
31 readv(3, [{iov_base="", iov_len=9}], 1) = 0"#,
                "whole abcde",
            ),
            (
                r#"31 newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=4, ...}, AT_EMPTY_PATH) = 0
31 preadv(3, [{iov_base="cd", iov_len=2}], 1, 2) = 2
31 pread64(3, "ab", 2, 0) = 2"#,
                "whole abcd",
            ),
            // There is a gap, the end is not known, a part is cut, no byte is asked for, or the file changes.
            ("31 pread64(3, \"cd\", 2, 2) = 2\n31 pread64(3, \"\", 2, 4) = 0", ""),
            ("31 pread64(3, \"ab\", 2, 0) = 2\n31 pread64(3, \"\", 2, 4) = 0", ""),
            ("31 preadv(3, [{iov_base=\"ab\"..., iov_len=4}], 1, 0) = 4\n31 pread64(3, \"\", 2, 4) = 0", ""),
            ("31 read(3, \"ab\", 2) = 2\n31 read(3, \"\", 0) = 0", ""),
            (
                "31 read(3, \"ab\", 2) = 2\n31 pread64(3, \"b!\", 2, 1) = 2\n31 pread64(3, \"c\", 2, 1) = 1\n31 pread64(3, \"\", 2, 3) = 0",
                "",
            ),
        ] {
            let whole = if expected.is_empty() { String::new() } else { format!(": {expected}") };
            assert_eq!(calls(&imported("strace", &log(reads))), [format!("read_file read a{whole}")], "{reads}");
        }
    }

    #[test]
    fn paths_of_descriptors_are_read_with_their_escapes() {
        // Made by `strace -y`; the last name as a version without escapes shows it.
        let log = r#"31 openat(AT_FDCWD</w/p>, "a, b (x", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</w/p/a, b (x>
31 write(3</w/p/a, b (x>, "1\n", 2) = 2
31 close(3</w/p/a, b (x>) = 0
31 openat(AT_FDCWD</w/p>, "a = \"b", O_RDONLY) = 3</w/p/a = \"b> <0.000012>
31 read(3</w/p/a = \"b>, "1\n", 10) = 2 <0.000012>
31 read(3</w/p/a = \"b>, "", 10) = 0 <0.000012>
31 close(3</w/p/a = \"b>(deleted)) = 0 <0.000012>
31 openat(AT_FDCWD</w/p>, "d > e", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = 3</w/p/d \76 e>
31 openat(3</w/p/d \76 e>, "\303\251", O_WRONLY|O_CREAT|O_TRUNC, 0777) = 4</w/p/d \76 e/\303\251>
31 write(4</w/p/d \76 e/\303\251>, "x <unfinished ...>", 18) = 18
31 close(4</w/p/d \76 e/\303\251>) = 0
31 unlinkat(AT_FDCWD</w/p/d \040\x65>, "in", 0) = 0
31 openat(AT_FDCWD</w/p/a>b>, "c", O_WRONLY|O_CREAT|O_TRUNC, 0777) = 4</w/p/a>b/c>
31 close(4</w/p/a>b/c>) = 0
31 capset({version=_LINUX_CAPABILITY_VERSION_3, pid=0}, {effective=1<<CAP_CHOWN|1<<CAP_KILL, permitted=0, inheritable=0}) = 0
31 read(0</dev/pts/0<char 136:0>>, "q", 1) = 1
"#;
        let session = imported("strace", log);
        assert_eq!(session.unreadable_lines, 0);
        assert_eq!(
            calls(&session),
            [
                "write_file write a, b (x: written 1\n",
                "read_file read a = \"b: whole 1\n",
                "write_file write d > e/é: written x <unfinished ...>",
                "shell exec: rm '/w/p/d  e/in' in /w/p -> ",
                "write_file write a>b/c: written ",
            ]
        );
    }

    #[test]
    fn holes_of_written_files_have_a_limit() {
        let mut log = Log::new();
        let last = CONTENT_MAX - 1;
        for _ in 0..2 * WRITTEN_MAX / CONTENT_MAX {
            log.line(1, "creat(\"/w/a\", 0600) = 3");
            log.line(1, &format!("pwrite64(3, \"x\", 1, {last}) = 1"));
            for _ in 0..3 {
                log.line(1, "ftruncate(3, 0) = 0");
                log.line(1, "ftruncate(3, 9000000000) = 0");
            }
            log.line(1, "close(3) = 0");
        }
        assert_eq!(log.kept, 0);
    }

    #[test]
    fn processes_that_end_get_a_limited_number_of_descriptors_together() {
        let mut log = Log::new();
        for fd in 3..4_003 {
            log.line(1, &format!("open(\"/w/{fd}\", O_RDONLY) = {fd}"));
        }
        let forks = INHERITED_MAX / 4_000 + 100;
        for pid in 0..forks {
            log.line(1, &format!("fork() = {}", pid + 2));
            log.line(pid as u64 + 2, "+++ exited with 0 +++");
        }
        assert!(log.inherited <= INHERITED_MAX + 4_000 + 100 * FEW, "{}", log.inherited);
        log.line(1, "fork() = 9");
        assert!(log.open.contains_key(&(9, 3)), "the lowest descriptors are still inherited");
    }

    #[test]
    fn a_program_that_begins_looks_only_at_descriptors_that_it_does_not_get() {
        let mut log = Log::new();
        log.line(1, "open(\"/w/a\", O_RDONLY) = 3");
        log.line(1, "open(\"/w/b\", O_RDONLY|O_CLOEXEC) = 4");
        log.line(1, "fcntl(3, F_DUPFD_CLOEXEC, 10) = 10");
        log.line(1, "fcntl(10, F_SETFD, 0) = 0");
        log.line(1, "fcntl(3, F_SETFD, FD_CLOEXEC) = 0");
        log.line(1, "dup2(4, 5) = 5");
        log.line(1, "fork() = 2");
        assert_eq!(log.closed_on_exec.len(), 4);
        log.line(2, "execve(\"/bin/x\", [\"x\"], 0x7ffe /* 10 vars */) = 0");
        let left: Vec<i64> = log.open.keys().filter(|(pid, _)| *pid == 2).map(|(_, fd)| *fd).collect();
        assert_eq!(left, [5, 10]);
        assert_eq!(log.closed_on_exec.len(), 2);
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
