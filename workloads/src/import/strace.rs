//! Importer for `strace -f` logs of programs: each file that is opened and closed is a read or a write.
//! The log shows the beginning of each content (`-s`); the rest of a write is filler of the same size.

use std::collections::HashMap;
use std::io::BufRead;

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
        Some("the model's answers and usage; contents longer than -s shows are filler")
    }

    fn detects(&self, head: &Head) -> bool {
        let lines: Vec<&str> = head
            .text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .take(40)
            .collect();
        let calls = lines.iter().filter(|line| parsed(line).is_some()).count();
        calls > 0 && calls * 2 >= lines.len()
    }

    fn import(&self, recording: &mut dyn BufRead) -> Result<Vec<ImportedSession>, String> {
        let text = whole(recording)?;
        let mut log = Log {
            recorder: Recorder::without_model("strace"),
            open: HashMap::new(),
            dirs: HashMap::new(),
            unfinished: HashMap::new(),
            count: 0,
            kept: WRITTEN_MAX,
        };
        let mut lost = 0;
        for line in text.lines() {
            let (pid, line) = process(line);
            if let Some((start, _)) = line.split_once(" <unfinished ...>") {
                log.unfinished.insert(pid, start.to_owned());
                continue;
            }
            let resumed = line
                .split_once(" resumed>")
                .filter(|(name, _)| name.starts_with("<... "));
            let joined = match resumed {
                Some((_, rest)) => log.unfinished.remove(&pid).unwrap_or_default() + rest,
                None => line.to_owned(),
            };
            match call(&joined) {
                Some(call) => log.call(pid, &call),
                None if joined.starts_with("+++")
                    || joined.starts_with("---")
                    || joined.is_empty() => {}
                None => lost += 1,
            }
        }
        log.close_all();
        log.recorder.unreadable(Damage {
            unreadable: lost,
            mended: 0,
        });
        Ok(vec![log.recorder.finish()])
    }
}

/// The most bytes of all written files that are kept: a line states any size.
const WRITTEN_MAX: usize = 256 << 20;

/// An open file.
#[derive(Clone, Debug, Default)]
struct Open {
    path: String,
    read: Vec<u8>,
    written: Vec<u8>,
    reads: bool,
    writes: bool,
    lists: bool,
    truncates: bool,
    appends: bool,
    /// Whether the content that was read is known whole, from the beginning.
    is_known: bool,
}

struct Log {
    recorder: Recorder,
    open: HashMap<(u64, i64), Open>,
    dirs: HashMap<u64, String>,
    unfinished: HashMap<u64, String>,
    count: u64,
    /// Bytes of written contents that may still be kept.
    kept: usize,
}

/// A system call: its name, arguments, and result.
struct Call<'a> {
    name: &'a str,
    args: Vec<&'a str>,
    result: i64,
}

impl Log {
    fn call(&mut self, pid: u64, call: &Call<'_>) {
        let path = |at: usize| {
            call.args
                .get(at)
                .and_then(|arg| text(arg))
                .map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned())
        };
        let fd = call
            .args
            .first()
            .and_then(|fd| fd.split('<').next()?.trim().parse::<i64>().ok());
        let failed = call.result < 0;
        match call.name {
            "open" | "openat" | "openat2" | "creat" => {
                let at = usize::from(call.name.starts_with("openat"));
                let Some(path) = path(at) else {
                    return;
                };
                let path =
                    self.absolute(pid, &path, call.args.first().copied().filter(|_| at == 1));
                let flags = match call.name {
                    "creat" => "O_WRONLY|O_CREAT|O_TRUNC",
                    _ => call.args.get(at + 1).copied().unwrap_or_default(),
                };
                if failed {
                    if call.result == NOT_FOUND && !is_system(&path) {
                        self.add(
                            "open",
                            "read_file",
                            json!({ "path": path }),
                            "No such file or directory",
                            true,
                        );
                    }
                    return;
                }
                let is_directory = flags.contains("O_DIRECTORY");
                self.open.insert(
                    (pid, call.result),
                    Open {
                        path,
                        truncates: flags.contains("O_TRUNC"),
                        appends: flags.contains("O_APPEND"),
                        lists: is_directory,
                        is_known: true,
                        ..Open::default()
                    },
                );
            }
            "read" | "pread64" | "write" | "pwrite64" => {
                let Some(open) = fd.and_then(|fd| self.open.get_mut(&(pid, fd))) else {
                    return;
                };
                let Ok(size) = usize::try_from(call.result) else {
                    return;
                };
                let (mut bytes, is_cut) = call
                    .args
                    .get(1)
                    .and_then(|arg| text(arg))
                    .unwrap_or_default();
                let is_at_end = call.name.starts_with("pread") || call.name.starts_with("pwrite");
                open.is_known &= !is_cut && !is_at_end;
                if call.name.contains("read") {
                    open.reads = true;
                    if open.read.len() + bytes.len() <= CONTENT_MAX {
                        open.read.extend(bytes);
                    } else {
                        open.is_known = false;
                    }
                } else {
                    open.writes = true;
                    let size = size
                        .min(CONTENT_MAX.saturating_sub(open.written.len()))
                        .min(self.kept);
                    self.kept -= size;
                    bytes.resize(size, b' ');
                    open.written.extend(bytes);
                }
            }
            "readv" | "preadv" | "mmap" | "sendfile" | "copy_file_range" => {
                let fd = match call.name {
                    "mmap" => call
                        .args
                        .get(4)
                        .and_then(|fd| fd.split('<').next()?.trim().parse().ok()),
                    _ => fd,
                };
                if let Some(open) = fd.and_then(|fd| self.open.get_mut(&(pid, fd))) {
                    open.reads = true;
                    open.is_known = false;
                }
            }
            "getdents64" | "getdents" => {
                if let Some(open) = fd.and_then(|fd| self.open.get_mut(&(pid, fd))) {
                    open.lists = true;
                    open.reads = true;
                }
            }
            "close" => {
                if let Some(open) = fd.and_then(|fd| self.open.remove(&(pid, fd))) {
                    self.closed(open);
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
                self.forked(pid, call.result as u64)
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
                    let both = [
                        self.absolute(pid, &from, None),
                        self.absolute(pid, &to, None),
                    ];
                    self.program("mv", call.name, &both);
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
        let shown = at
            .and_then(|at| at.split_once('<'))
            .and_then(|(_, path)| path.strip_suffix('>'));
        let opened = || {
            let fd = at?.trim().parse::<i64>().ok()?;
            self.open.get(&(pid, fd)).map(|open| open.path.as_str())
        };
        let dir = shown
            .or_else(opened)
            .or_else(|| self.dirs.get(&pid).map(String::as_str));
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
        let inherited = self.open.iter().filter(|((pid, _), _)| *pid == parent);
        // The parent's reads and writes stay its own.
        let inherited: Vec<_> = inherited
            .map(|((_, fd), open)| {
                let open = Open {
                    path: open.path.clone(),
                    appends: open.appends,
                    lists: open.lists,
                    ..Open::default()
                };
                ((child, *fd), open)
            })
            .collect();
        self.open.extend(inherited);
    }

    fn close_all(&mut self) {
        let mut rest: Vec<((u64, i64), Open)> = self.open.drain().collect();
        rest.sort_by_key(|(key, _)| *key);
        for (_, open) in rest {
            self.closed(open);
        }
    }

    fn closed(&mut self, open: Open) {
        if is_system(&open.path) {
            return;
        }
        let path = open.path;
        if open.lists {
            if open.reads {
                self.add(
                    "getdents64",
                    "list_directory",
                    json!({ "path": path }),
                    "",
                    false,
                );
            }
        } else if open.writes && open.truncates {
            let content = String::from_utf8_lossy(&open.written).into_owned();
            self.add(
                "write",
                "write_file",
                json!({ "path": path, "content": content }),
                "",
                false,
            );
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
            let shown = match open.is_known {
                true => String::from_utf8_lossy(&open.read).into_owned(),
                false => String::new(),
            };
            self.add("read", "read_file", json!({ "path": path }), &shown, false);
        } else if open.truncates {
            self.add(
                "open",
                "write_file",
                json!({ "path": path, "content": "" }),
                "",
                false,
            );
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
        let answer = Answer {
            shown: shown.to_owned(),
            failed,
            ..Answer::default()
        };
        self.recorder.answered(&id, answer);
    }
}

/// The result of a call that fails with ENOENT.
const NOT_FOUND: i64 = -2;

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
    if let Some((found, rest)) = line
        .strip_prefix("[pid")
        .and_then(|rest| rest.split_once(']'))
    {
        pid = found.trim().parse().unwrap_or(0);
        line = rest.trim_start();
    }
    loop {
        let Some((first, rest)) = line.split_once(' ') else {
            return (pid, line);
        };
        let is_time = !first.is_empty()
            && first
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b':' || b == b'.' || b == b'+' || b == b'-');
        if !is_time || !first.starts_with(|c: char| c.is_ascii_digit() || c == '+') {
            return (pid, line);
        }
        if pid == 0 && first.bytes().all(|b| b.is_ascii_digit()) {
            pid = first.parse().unwrap_or(0);
        }
        line = rest.trim_start();
    }
}

/// Whether a line is one of strace.
fn parsed(line: &str) -> Option<()> {
    let (_, line) = process(line);
    if line.starts_with("<... ") && line.contains(" resumed>")
        || line.starts_with("+++ exited with")
        || line.starts_with("--- SIG")
    {
        return Some(());
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let (name, rest) = line.split_once('(')?;
    (is_name(name)
        && (rest.ends_with(" <unfinished ...>") || rest.contains(") = ") || rest.contains(")  ")))
    .then_some(())
}

/// A whole call.
fn call(line: &str) -> Option<Call<'_>> {
    let (name, rest) = line.split_once('(')?;
    let (args, result) = rest.rsplit_once(" = ")?;
    let args = args.trim_end().strip_suffix(')')?;
    let mut words = result.split_whitespace();
    let number = words.next()?;
    let error = words.next();
    let number = number.split('<').next()?;
    let result = match (number, error) {
        ("-1", Some("ENOENT")) => NOT_FOUND,
        ("?", _) => return None,
        (number, _) => match number.strip_prefix("0x") {
            Some(_) => 0,
            None => number.parse().ok()?,
        },
    };
    Some(Call {
        name,
        args: arguments(args),
        result,
    })
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
}
