//! What replay executes: calls of an agent, each a few file operations.
//!
//! A script is complete: contents are bytes, paths are checked, and nothing in it is a command. Its
//! meaning is given by [`crate::model`]; how an operation becomes system calls is the harness's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::exam::Asked;
use crate::generate::clients::Clients;
use crate::path::WorkspacePath;

/// Content of a file; cheap to copy.
pub type Bytes = Arc<[u8]>;

/// One of the hosts that have the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The one that every operation is on which says nothing else.
    First,
    /// Another, which mounts the same at the same time.
    Second,
}

/// One file operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Open, ask for the size, read all of it, close.
    Read(WorkspacePath),
    /// Open, read so many bytes at an offset by one call, close.
    ReadAt {
        /// The file.
        path: WorkspacePath,
        /// Where to start, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// Read so many bytes at an offset by one call, from a file that is kept open.
    ReadOpen {
        /// The file.
        path: WorkspacePath,
        /// Where to start, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// Open, creating or truncating, write all by one call, sync if `sync`, close.
    Write {
        /// The file.
        path: WorkspacePath,
        /// Its new content.
        content: Bytes,
        /// Call `fsync` before closing.
        sync: bool,
    },
    /// Open an existing file, write at an offset by one call, sync if `sync`, close.
    WriteAt {
        /// The file.
        path: WorkspacePath,
        /// Where to start, in bytes.
        offset: u64,
        /// The new bytes.
        content: Bytes,
        /// Call `fsync` before closing.
        sync: bool,
    },
    /// Open for appending, creating where missing, write by one call, close.
    Append {
        /// The file.
        path: WorkspacePath,
        /// The bytes to add.
        content: Bytes,
    },
    /// Create a file that must not exist, close.
    Create(WorkspacePath),
    /// Ask for the attributes.
    Stat(WorkspacePath),
    /// Read a directory; with `attributes`, ask for those of each entry too.
    List {
        /// The directory.
        path: WorkspacePath,
        /// Ask for each entry's attributes.
        attributes: bool,
    },
    /// List a tree from `path` down and read every file in it.
    Search(WorkspacePath),
    /// List a tree from `path` down, without reading files.
    Walk(WorkspacePath),
    /// Rename, replacing what is there.
    Rename {
        /// The old name.
        from: WorkspacePath,
        /// The new name.
        to: WorkspacePath,
    },
    /// Remove a file.
    Remove(WorkspacePath),
    /// Create a directory and those above it, as far as they are missing.
    MakeDir(WorkspacePath),
    /// Open, `fsync`, close.
    Sync(WorkspacePath),
    /// Make files durable as far as the backend can: in its bucket where it has one, else by [`FileOp::Sync`] of each.
    SyncAll {
        /// The directory that they are in.
        dir: WorkspacePath,
        /// The files.
        files: Vec<WorkspacePath>,
    },
    /// On the second host, read a file again and again until it is as it should be.
    SeenByOther {
        /// The file.
        path: WorkspacePath,
        /// What it should be.
        content: Bytes,
    },
    /// Read all of a file, add a line to what was read, write it back; a file that is not there is empty.
    AddLine {
        /// The host that does it.
        host: Host,
        /// The file.
        path: WorkspacePath,
        /// The line, with its newline.
        line: Bytes,
    },
    /// Set the modification time of the root, then open and close a file: nothing is written, but answers that were given
    /// before no longer hold.
    Touch(WorkspacePath),
    /// Several processes read and overwrite files of their own at the same time.
    Together {
        /// The directory that holds a directory of each process.
        dir: WorkspacePath,
        /// What the processes do.
        clients: Clients,
    },
    /// Open a name that the backend answers as a question, read all of it, close.
    Ask {
        /// The question.
        path: WorkspacePath,
        /// What the answer must mention.
        mentions: Vec<String>,
    },
}

impl FileOp {
    /// The path it works on; the destination of a rename.
    pub fn path(&self) -> &WorkspacePath {
        match self {
            FileOp::Read(path)
            | FileOp::Create(path)
            | FileOp::Stat(path)
            | FileOp::Search(path)
            | FileOp::Walk(path)
            | FileOp::Remove(path)
            | FileOp::MakeDir(path)
            | FileOp::Sync(path)
            | FileOp::Touch(path)
            | FileOp::ReadAt { path, .. }
            | FileOp::ReadOpen { path, .. }
            | FileOp::Write { path, .. }
            | FileOp::WriteAt { path, .. }
            | FileOp::Append { path, .. }
            | FileOp::Ask { path, .. }
            | FileOp::SyncAll { dir: path, .. }
            | FileOp::Together { dir: path, .. }
            | FileOp::SeenByOther { path, .. }
            | FileOp::AddLine { path, .. }
            | FileOp::List { path, .. }
            | FileOp::Rename { to: path, .. } => path,
        }
    }

    /// The host that it is done on.
    pub fn host(&self) -> Host {
        match self {
            FileOp::SeenByOther { .. } => Host::Second,
            FileOp::AddLine { host, .. } => *host,
            _ => Host::First,
        }
    }

    /// Whether it returns what a file holds.
    pub fn reads_content(&self) -> bool {
        matches!(
            self,
            FileOp::Read(_)
                | FileOp::ReadAt { .. }
                | FileOp::ReadOpen { .. }
                | FileOp::Search(_)
                | FileOp::Ask { .. }
                | FileOp::SeenByOther { .. }
                | FileOp::AddLine { .. }
        )
    }

    /// A short description for messages.
    pub fn describe(&self) -> String {
        let verb = match self {
            FileOp::Read(_) | FileOp::ReadAt { .. } | FileOp::ReadOpen { .. } => "read",
            FileOp::Write { .. } | FileOp::WriteAt { .. } => "write",
            FileOp::Append { .. } => "append to",
            FileOp::Create(_) => "create",
            FileOp::Stat(_) => "stat",
            FileOp::List { .. } => "list",
            FileOp::Search(_) => "search",
            FileOp::Walk(_) => "walk",
            FileOp::Rename { .. } => "rename to",
            FileOp::Remove(_) => "remove",
            FileOp::MakeDir(_) => "create directory",
            FileOp::Sync(_) => "sync",
            FileOp::SyncAll { .. } => "sync all of",
            FileOp::SeenByOther { .. } => "see on the other host",
            FileOp::AddLine { .. } => "add a line to",
            FileOp::Touch(_) => "touch",
            FileOp::Together { .. } => "let several processes work in",
            FileOp::Ask { .. } => "ask",
        };
        format!("{verb} {}", self.path())
    }
}

macro_rules! call_kinds {
    ($($variant:ident => $name:literal),* $(,)?) => {
        /// What an agent's call does to files; latency is reported by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "docs/FORMAT.md explains them")]
        pub enum CallKind { $($variant),* }

        impl CallKind {
            /// The name in traces, results and reports.
            pub fn name(self) -> &'static str {
                match self { $(CallKind::$variant => $name),* }
            }
        }
    };
}

call_kinds! {
    Read => "read", Write => "write", Edit => "edit", List => "list",
    ListAttributes => "list-attributes", Pread => "pread", Search => "search", Stat => "stat", Create => "create",
    Append => "append", Rename => "rename", Delete => "delete", Fsync => "fsync", Sync => "sync",
    Recall => "recall", Handoff => "handoff", SyncNew => "sync-new", SyncOverwritten => "sync-overwritten",
    Concurrent => "concurrent",
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One call of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is reported as; `None` for what happens outside the agent's own calls, such as the
    /// effect of a recorded shell command: it is applied and checked, but not timed.
    pub kind: Option<CallKind>,
    /// Milliseconds in which nothing happens before it, untimed.
    pub pause_ms: u64,
    /// What it does, in order. Timed as a whole, from the start of the first to the end of the last.
    pub ops: Vec<FileOp>,
    /// For a read: the first line that the agent asked for, from 1, and how many. A file system is read whole,
    /// as Read does; what the agent is shown, and what files in an agent's state are asked for, is this.
    pub lines: Option<(u64, u64)>,
    /// For a recorded read of a file that is known byte for byte: tokens of what the agent was shown.
    pub recorded_tokens: Option<u64>,
    /// The question that it asks, where its answer is scored.
    pub asked: Option<Asked>,
}

/// A whole workload, ready to be replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Directories to create first, each after those above it.
    pub dirs: Vec<WorkspacePath>,
    /// Files to create first.
    pub files: Vec<(WorkspacePath, Bytes)>,
    /// How long before a pass each of `files` was written, in nanoseconds; empty where that is no matter.
    pub ages_ns: Vec<u64>,
    /// What brings caches into the state called hot.
    pub warm_up: Vec<FileOp>,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// How many calls touch something for the first time, where later ones only repeat them: with
    /// empty caches, only these say anything. `None` if all calls belong together.
    pub first_touches: Option<usize>,
    /// Recorded calls that no file operation stands for, by the trace's `op`: shell, network, planning.
    pub not_replayed: BTreeMap<String, u64>,
    /// Where the agent's model thought in between, in milliseconds; empty for generated workloads.
    pub think_ms: Vec<u64>,
}

impl Script {
    /// A script that starts from `files`, with the directories they need, and warms up by reading them
    /// all and asking for all attributes.
    pub fn new(files: Vec<(WorkspacePath, Bytes)>) -> Self {
        let mut dirs: Vec<WorkspacePath> = files
            .iter()
            .flat_map(|(path, _)| path.ancestors())
            .collect();
        dirs.sort();
        dirs.dedup();
        // Content first: reading it makes a file system forget the access time, and so the attributes.
        let list = |path: WorkspacePath| FileOp::List {
            path,
            attributes: true,
        };
        let mut warm_up = vec![FileOp::Search(WorkspacePath::root())];
        warm_up.push(list(WorkspacePath::root()));
        warm_up.extend(dirs.iter().cloned().map(list));
        Self {
            dirs,
            files,
            warm_up,
            ..Self::default()
        }
    }

    /// Appends a timed call.
    pub fn call(&mut self, kind: CallKind, ops: Vec<FileOp>) {
        self.call_after(0, kind, ops);
    }

    /// Appends a timed call before which nothing happens for so many milliseconds.
    pub fn call_after(&mut self, pause_ms: u64, kind: CallKind, ops: Vec<FileOp>) {
        self.calls.push(Call {
            kind: Some(kind),
            pause_ms,
            ops,
            lines: None,
            recorded_tokens: None,
            asked: None,
        });
    }

    /// Appends something that happens untimed between calls.
    pub fn meanwhile(&mut self, ops: Vec<FileOp>) {
        self.calls.push(Call {
            kind: None,
            pause_ms: 0,
            ops,
            lines: None,
            recorded_tokens: None,
            asked: None,
        });
    }

    /// Has the answer of the last call scored.
    pub(crate) fn ask_last(&mut self, asked: Asked) {
        if let Some(call) = self.calls.last_mut() {
            call.asked = Some(asked);
        }
    }

    /// Keeps the first so many calls, and of each content its first `bytes`.
    pub(crate) fn shorten(&mut self, calls: usize, bytes: usize) {
        self.calls.truncate(calls);
        let cut = |content: &mut Bytes| {
            if content.len() > bytes {
                *content = content[..bytes].into();
            }
        };
        for (_, content) in &mut self.files {
            cut(content);
        }
        for op in self.calls.iter_mut().flat_map(|call| &mut call.ops) {
            if let FileOp::Write { content, .. } | FileOp::Append { content, .. } = op {
                cut(content);
            }
        }
    }

    /// The calls to replay with caches that are hot or not.
    pub fn calls_when(&self, hot: bool) -> &[Call] {
        match self.first_touches {
            Some(count) if !hot => &self.calls[..count.min(self.calls.len())],
            _ => &self.calls,
        }
    }

    /// Whether it takes a second host that has the same files at the same time.
    pub fn needs_second_host(&self) -> bool {
        let mut ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.any(|op| op.host() == Host::Second)
    }

    /// Whether several processes work at the same time.
    pub fn has_clients(&self) -> bool {
        let mut ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.any(|op| matches!(op, FileOp::Together { .. }))
    }

    /// The files that more than one host adds lines to, each once: what they hold in the end is no matter of the script.
    pub fn shared_files(&self) -> BTreeSet<&WorkspacePath> {
        let ops = self.calls.iter().flat_map(|call| &call.ops);
        let added = ops.filter(|op| matches!(op, FileOp::AddLine { .. }));
        added.map(FileOp::path).collect()
    }

    /// Number of timed calls by kind.
    pub fn timed_calls(&self) -> BTreeMap<CallKind, u64> {
        let mut counts = BTreeMap::new();
        for kind in self.calls.iter().filter_map(|call| call.kind) {
            *counts.entry(kind).or_insert(0) += 1;
        }
        counts
    }
}
