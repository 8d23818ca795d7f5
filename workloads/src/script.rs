//! The script that a replay executes: an agent's calls, each a few file operations.
//! A script is complete: contents are bytes, paths are checked, and it contains no commands.
//! The expected results are in [`crate::model`]; the harness turns operations into system calls.

pub mod clients;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::exam::ExamQuestion;
use crate::path::WorkspacePath;
use crate::tasks::Tasks;
use clients::Clients;

/// Content of a file; cheap to clone.
pub type Bytes = Arc<Vec<u8>>;

/// The number of a host, from 0, among those that mount the same files at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u32);

impl Host {
    /// The default host of an operation.
    pub const FIRST: Self = Self(0);
    /// The next one.
    pub const SECOND: Self = Self(1);
}

/// One file operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Open, `fstat` for the size, read all, close.
    Read(WorkspacePath),
    /// Open, read `length` bytes at an offset by one system call, close.
    ReadAt {
        /// The file.
        path: WorkspacePath,
        /// The offset in bytes.
        offset: u64,
        /// The number of bytes.
        length: usize,
    },
    /// Read `length` bytes at an offset by one system call, from a file that stays open.
    ReadOpen {
        /// The file.
        path: WorkspacePath,
        /// The offset in bytes.
        offset: u64,
        /// The number of bytes.
        length: usize,
    },
    /// Open, creating or truncating, write all by one system call, sync if `sync`, close.
    Write {
        /// The file.
        path: WorkspacePath,
        /// Its new content.
        content: Bytes,
        /// Call `fsync` before closing.
        sync: bool,
    },
    /// Open an existing file, write at an offset by one system call, sync if `sync`, close.
    WriteAt {
        /// The file.
        path: WorkspacePath,
        /// The offset in bytes.
        offset: u64,
        /// The new bytes.
        content: Bytes,
        /// Call `fsync` before closing.
        sync: bool,
    },
    /// Open for appending, creating a missing file, write by one system call, close.
    Append {
        /// The file.
        path: WorkspacePath,
        /// The bytes to add.
        content: Bytes,
    },
    /// Create a file that must not exist, close.
    Create(WorkspacePath),
    /// Read the attributes.
    Stat(WorkspacePath),
    /// Read a directory; with `attributes`, also those of each entry.
    List {
        /// The directory.
        path: WorkspacePath,
        /// Whether to read each entry's attributes.
        attributes: bool,
    },
    /// List a tree from `path` down and read every file in it.
    Search(WorkspacePath),
    /// List a tree from `path` down, without reading files.
    Walk(WorkspacePath),
    /// Rename, replacing an existing file.
    Rename {
        /// The old name.
        from: WorkspacePath,
        /// The new name.
        to: WorkspacePath,
    },
    /// Remove a file.
    Remove(WorkspacePath),
    /// Create a directory and its missing ancestors.
    MakeDir(WorkspacePath),
    /// Remove an empty directory.
    RemoveDir(WorkspacePath),
    /// Open, `fsync`, close.
    Sync(WorkspacePath),
    /// Make files durable: in the backend's bucket if it has one, else by [`FileOp::Sync`] of each.
    SyncAll {
        /// The directory of the files.
        dir: WorkspacePath,
        /// The files.
        files: Vec<WorkspacePath>,
    },
    /// On another host, poll a file until it has the expected content.
    SeenByOther {
        /// The host that polls.
        host: Host,
        /// The file.
        path: WorkspacePath,
        /// The expected content.
        content: Bytes,
    },
    /// Read a whole file, append a line, write it back; a missing file counts as empty.
    AddLine {
        /// The host of the operation.
        host: Host,
        /// The file.
        path: WorkspacePath,
        /// The line, with its newline.
        line: Bytes,
    },
    /// Set the modification time of the root, then open and close a file.
    /// This writes nothing, but invalidates the backend's earlier answers.
    Touch(WorkspacePath),
    /// Several processes concurrently read and overwrite their own files.
    Together {
        /// The directory with one subdirectory for each process.
        dir: WorkspacePath,
        /// The work of the processes.
        clients: Clients,
    },
    /// Run a program in the workspace, and wait until it has exited.
    Run(Box<ProgramRun>),
    /// Open a name that the backend answers as a question, read the whole answer, close.
    Ask {
        /// The question.
        path: WorkspacePath,
        /// The words that the answer must mention.
        mentions: Vec<String>,
    },
}

impl FileOp {
    /// Writes a whole file, and does not sync it.
    pub fn write(path: WorkspacePath, content: impl Into<Bytes>) -> Self {
        let (content, sync) = (content.into(), false);
        Self::Write { path, content, sync }
    }

    /// Reads a directory; with `attributes`, also those of each entry.
    pub fn list(path: WorkspacePath, attributes: bool) -> Self {
        Self::List { path, attributes }
    }

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
            | FileOp::RemoveDir(path)
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
            FileOp::Run(run) => &run.directory,
        }
    }

    /// The host of the operation.
    pub fn host(&self) -> Host {
        match self {
            FileOp::SeenByOther { host, .. } | FileOp::AddLine { host, .. } => *host,
            _ => Host::FIRST,
        }
    }

    /// Whether it returns the content of a file.
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

    /// Whether it makes files durable.
    pub fn syncs(&self) -> bool {
        match self {
            FileOp::Sync(_) | FileOp::SyncAll { .. } => true,
            FileOp::Write { sync, .. } | FileOp::WriteAt { sync, .. } => *sync,
            _ => false,
        }
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
            FileOp::RemoveDir(_) => "remove directory",
            FileOp::Sync(_) => "sync",
            FileOp::SyncAll { .. } => "sync all of",
            FileOp::SeenByOther { host, path, .. } => return format!("see {path} on host {}", host.0 + 1),
            FileOp::AddLine { .. } => "add a line to",
            FileOp::Touch(_) => "touch",
            FileOp::Together { .. } => "let several processes work in",
            FileOp::Ask { .. } => "ask",
            FileOp::Run(run) => return format!("run `{}`", run.shortened()),
        };
        format!("{verb} {}", self.path())
    }
}

/// A program that runs in the workspace, and what must be true after it. It must exit with status 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRun {
    /// The directory that it runs in.
    pub directory: WorkspacePath,
    /// The program and its arguments. No shell interprets them.
    pub command: Vec<String>,
    /// Its whole standard output; `None` if it is not checked.
    pub output: Option<String>,
    /// Trees that it copies: from, to.
    pub copies: Vec<(WorkspacePath, WorkspacePath)>,
    /// Trees that it removes.
    pub removes: Vec<WorkspacePath>,
    /// Files and directories of its own making, whose content is not compared.
    pub makes: Vec<WorkspacePath>,
}

impl ProgramRun {
    /// The start of its command: an argument may be a whole script.
    fn shortened(&self) -> String {
        const SHOWN: usize = 60;
        let whole = self.command.join(" ");
        let line = whole.lines().next().unwrap_or_default();
        let shown: String = line.chars().take(SHOWN).collect();
        let rest = if shown.len() < whole.len() { "…" } else { "" };
        format!("{shown}{rest}")
    }
}

inputs::named! {
    /// The kind of an agent's call on files. Reports group latency by it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(missing_docs, reason = "docs/FORMAT.md explains them")]
    pub enum CallKind {
        Read = "read", Write = "write", Edit = "edit", List = "list",
        ListAttributes = "list-attributes", Pread = "pread", Search = "search", Stat = "stat", Create = "create",
        Append = "append", Rename = "rename", Delete = "delete", Fsync = "fsync", Sync = "sync",
        Recall = "recall", Handoff = "handoff", SyncNew = "sync-new", SyncOverwritten = "sync-overwritten",
        Concurrent = "concurrent",
        Add = "add", Commit = "commit", Status = "status", Clone = "clone", Checkout = "checkout",
        CopyTree = "copy-tree", Grep = "grep", Find = "find", Archive = "archive", Extract = "extract",
        RemoveTree = "remove-tree", Import = "import", Transactions = "transactions",
        Log = "log", FindSize = "find-size", DiskUsage = "disk-usage",
        Mirror = "mirror", MirrorUnchanged = "mirror-unchanged",
        Environment = "environment", Install = "install", Build = "build", Rebuild = "rebuild", Test = "test",
        Save = "save", Follow = "follow", ToolCall = "tool-call",
        Shell = "shell", ModelledProgram = "modelled-program",
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One call of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Its kind in reports. `None` for a change outside the agent's own calls, such as the effect of a
    /// recorded shell command: it is applied and checked, but not timed.
    pub kind: Option<CallKind>,
    /// An untimed pause before the call, in milliseconds.
    pub pause_ms: u64,
    /// Its operations, in order. They are timed as a whole, from the first start to the last end.
    pub ops: Vec<FileOp>,
    /// For a read: the first line that the agent requested, from 1, and the number of lines.
    /// Replay reads the whole file, as the tool does. The range decides what the agent sees,
    /// and what is requested of a file in an agent's state.
    pub lines: Option<(u64, u64)>,
    /// For a recorded read of a file whose bytes are known: the tokens of the result that the agent saw.
    pub recorded_tokens: Option<u64>,
    /// Whether the recorded agent shows a tab after a line's number, and not an arrow.
    pub numbers_by_tab: bool,
    /// The question of the call, if its answer is scored.
    pub asked: Option<ExamQuestion>,
}

/// Files that make a store large. No call uses them and no memory holds them. They are made between the first files of a script,
/// so that these are spread over the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillerFiles {
    /// The number of files.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u32,
}

impl FillerFiles {
    /// The numbers of those that are made after first file `number` of `files`.
    pub fn after(self, number: usize, files: usize) -> Range<u64> {
        let before = |file: usize| u64::from(self.count) * file as u64 / files.max(1) as u64;
        before(number)..before(number + 1)
    }

    /// The bytes that all of them take on a disk, in whole blocks of 4 KiB.
    pub fn disk_bytes(self) -> u64 {
        u64::from(self.count) * u64::from(self.bytes).next_multiple_of(4096)
    }
}

/// A whole workload, ready for replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Initial directories, each after its ancestors.
    pub dirs: Vec<WorkspacePath>,
    /// Initial files.
    pub files: Vec<(WorkspacePath, Bytes)>,
    /// The age of each of `files` at the start of a pass, in nanoseconds; empty if ages do not matter.
    pub ages_ns: Vec<u64>,
    /// Files that are made between `files`, outside their directory.
    pub filler: FillerFiles,
    /// Programs that complete the initial files, in order.
    pub setup: Vec<ProgramRun>,
    /// Operations that bring the caches into the state `hot`.
    pub warm_up: Vec<FileOp>,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// The number of leading calls that touch a file for the first time; later calls repeat them.
    /// With empty caches only the first touches are measured. `None` if all calls belong together.
    pub first_touches: Option<usize>,
    /// Recorded calls that no file operation can replay, by the trace's `op`: shell, network, planning.
    pub not_replayed: BTreeMap<String, u64>,
    /// Tasks that the scripted agent performs in place of `calls`; `None` in other workloads.
    pub tasks: Option<Arc<Tasks>>,
    /// How often the recorded shell commands ran each program, by the trace's `commands`.
    pub commands: BTreeMap<String, u64>,
    /// The times in which the agent's model thought between calls, in milliseconds; empty for generated
    /// workloads.
    pub think_ms: Vec<u64>,
}

impl Script {
    /// A script with the initial `files` and their directories. Its warm-up reads all files and all attributes.
    pub fn new(files: Vec<(WorkspacePath, Bytes)>) -> Self {
        let dirs = files.iter().flat_map(|(path, _)| path.ancestors());
        let dirs: Vec<WorkspacePath> = BTreeSet::from_iter(dirs).into_iter().collect();
        // Content first: a read changes the access time, which invalidates cached attributes.
        let mut warm_up = vec![FileOp::Search(WorkspacePath::root())];
        let listed = std::iter::once(WorkspacePath::root()).chain(dirs.iter().cloned());
        warm_up.extend(listed.map(|dir| FileOp::list(dir, true)));
        Self { dirs, files, warm_up, ..Self::default() }
    }

    /// Appends a timed call.
    pub fn call(&mut self, kind: CallKind, ops: Vec<FileOp>) {
        self.call_after(0, kind, ops);
    }

    /// The kinds of timed calls that make files durable.
    pub fn kinds_that_sync(&self) -> BTreeSet<CallKind> {
        let calls = self.calls.iter().filter(|call| call.ops.iter().any(FileOp::syncs));
        calls.filter_map(|call| call.kind).collect()
    }

    /// Appends a timed call after a pause of `pause_ms` milliseconds.
    pub fn call_after(&mut self, pause_ms: u64, kind: CallKind, ops: Vec<FileOp>) {
        self.calls.push(Call { kind: Some(kind), pause_ms, ops, ..Call::default() });
    }

    /// Appends untimed operations between calls.
    pub fn meanwhile(&mut self, ops: Vec<FileOp>) {
        self.calls.push(Call { ops, ..Call::default() });
    }

    /// Marks the answer of the last call for scoring.
    pub(crate) fn ask_last(&mut self, asked: ExamQuestion) {
        if let Some(call) = self.calls.last_mut() {
            call.asked = Some(asked);
        }
    }

    /// Keeps the first `calls` calls, and the first `bytes` bytes of each content.
    pub(crate) fn shorten(&mut self, calls: usize, bytes: usize) {
        self.calls.truncate(calls);
        let cut = |content: &mut Bytes| {
            if content.len() > bytes {
                *content = content[..bytes].to_vec().into();
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

    /// The calls to replay with hot caches, or with others.
    pub fn calls_when(&self, hot: bool) -> &[Call] {
        match self.first_touches {
            Some(count) if !hot => &self.calls[..count.min(self.calls.len())],
            _ => &self.calls,
        }
    }

    /// The number of hosts that have its files at the same time.
    pub fn hosts(&self) -> u32 {
        let ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.map(|op| op.host().0 + 1).max().unwrap_or(1)
    }

    /// Whether it needs a second host with the same files at the same time.
    pub fn needs_second_host(&self) -> bool {
        self.hosts() > 1
    }

    /// Whether a call waits until the second host sees a write of the first.
    pub fn waits_for_second_host(&self) -> bool {
        let mut ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.any(|op| matches!(op, FileOp::SeenByOther { .. }))
    }

    /// Whether several processes work concurrently.
    pub fn has_clients(&self) -> bool {
        let mut kinds = self.calls.iter().map(|call| call.kind);
        kinds.any(|kind| kind == Some(CallKind::Concurrent))
    }

    /// Whether programs run in the workspace.
    pub fn runs_programs(&self) -> bool {
        let mut ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.any(|op| matches!(op, FileOp::Run(_)))
    }

    /// The files to which hosts append lines. The script does not determine their final content.
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
        if let Some(tasks) = &self.tasks {
            counts.insert(CallKind::ToolCall, tasks.calls());
        }
        counts
    }
}
