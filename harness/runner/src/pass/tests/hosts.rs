//! Tests of passes with several hosts, each with its own directory.

use std::path::PathBuf;

use arms::backend::{Description, Unavailable, Versions, WorkspaceConfig};
use rundir::SettledLines;
use workloads::script::Host;

use super::*;

/// A backend with one directory for each host, whose syncs can copy files between them.
struct TwoHostBackend {
    /// Called with both roots when the second host is synced.
    exchange: fn(&Path, &Path),
}

/// One host.
struct HostWorkspace {
    dir: PathBuf,
    root: PathBuf,
    exchange: fn(&Path, &Path),
}

impl Backend for TwoHostBackend {
    fn describe(&self) -> Description {
        direct().describe()
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Default::default())
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let root = config.dir.join("first");
        std::fs::create_dir(&root)?;
        Ok(Box::new(HostWorkspace { dir: config.dir.clone(), root, exchange: self.exchange }))
    }
}

impl Workspace for HostWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        Ok(Some(Box::new(HostWorkspace { dir: self.dir.clone(), root: beside.to_owned(), exchange: self.exchange })))
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.root.ends_with("host2") {
            (self.exchange)(&self.dir.join("first"), &self.root);
        }
        Ok(())
    }
}

fn split(exchange: fn(&Path, &Path), script: Script, times: &[u64], timeout_ms: u64) -> PassResult {
    let made = PassInput {
        backend: Arc::new(TwoHostBackend { exchange }),
        timeout: Duration::from_millis(timeout_ms),
        ..PassInput::of(script, times)
    };
    made.passed()
}

/// As [`passed`], where both hosts have one directory.
fn shared(script: Script, times: &[u64]) -> PassResult {
    let backend = BrokenBackend { is_shared: true, ..BrokenBackend::default() };
    let made = PassInput { backend: Arc::new(backend), ..PassInput::of(script, times) };
    made.passed()
}

fn handoff() -> Script {
    let mut script = Script::new(Vec::new());
    let seen = FileOp::SeenByOther { host: Host::SECOND, path: path("note.md"), content: bytes("a note") };
    let ops = vec![write("note.md", "a note", false), seen];
    script.call(CallKind::Handoff, ops);
    script
}

/// Two hosts that add two lines each, in turn; the first host begins.
fn writers() -> Script {
    let mut script = Script::new(Vec::new());
    for (host, line) in [(Host::FIRST, "a\n"), (Host::SECOND, "b\n"), (Host::FIRST, "c\n"), (Host::SECOND, "d\n")] {
        script.call(CallKind::Edit, vec![add_line(host, "shared.md", line)]);
    }
    script
}

#[test]
fn a_handoff_succeeds_when_the_other_host_sees_the_file() {
    let handed = shared(handoff(), &[700]);
    assert!(handed.worst_outcome.is_none(), "{:?}", handed.worst_outcome);
    assert_eq!(handed.sample.calls["handoff"].total_ns, 700, "timed as a whole");
    assert_eq!(handed.sample.outcomes, BTreeMap::from([(Outcome::Ok, 1)]));
}

#[test]
fn a_handoff_that_the_other_host_never_sees_is_a_timeout() {
    let mut script = handoff();
    script.call(CallKind::Stat, vec![FileOp::Stat(path("note.md"))]);
    let unseen = split(|_, _| {}, script, &[700, 50], 2000);
    let (outcome, reason) = unseen.worst_outcome.unwrap();
    assert_eq!((outcome, reason.as_str()), (Outcome::Timeout, "see note.md on host 2: not within 2 s"));
    assert!(!unseen.sample.calls.contains_key("handoff"), "it has no latency");
    assert_eq!(unseen.sample.outcomes, BTreeMap::from([(Outcome::Ok, 1), (Outcome::Timeout, 1)]));
}

#[test]
fn a_handoff_to_two_hosts_ends_when_both_have_read_the_note() {
    let mut script = handoff();
    let seen = FileOp::SeenByOther { host: Host(2), path: path("note.md"), content: bytes("a note") };
    script.calls[0].ops.push(seen);
    let of = |tamper| {
        let made = PassInput {
            backend: Arc::new(TwoHostBackend { exchange: |_, _| {} }),
            timeout: Duration::from_millis(500),
            tamper,
            ..PassInput::of(script.clone(), &[700])
        };
        made.passed()
    };
    fn hand(first: &Path, host: &str) {
        std::fs::write(first.with_file_name(host).join("note.md"), "a note").unwrap();
    }
    let one = of(|first| hand(first, "host2"));
    assert!(matches!(one.worst_outcome, Some((Outcome::Timeout, _))), "{:?}", one.worst_outcome);
    let both = of(|first| {
        hand(first, "host2");
        hand(first, "host3");
    });
    assert_eq!(both.worst_outcome, None);
    assert_eq!(both.sample.calls["handoff"].total_ns, 700, "timed as a whole");
}

#[test]
fn a_single_host_backend_refuses_a_second_host() {
    let dir = tempfile::tempdir().unwrap();
    let config = workspace_config(dir.path());
    let mut workspaces = Workspaces::one(BrokenBackend::default().open(&config).unwrap());
    let error = workspaces.add_hosts(2, &config).unwrap_err();
    assert_eq!(error.to_string(), "no second host can have it");
}

#[test]
fn one_directory_loses_no_line_of_two_hosts() {
    let found = shared(writers(), &[10, 20, 30, 40]);
    assert!(found.worst_outcome.is_none(), "{:?}", found.worst_outcome);
    assert_eq!(found.sample.calls["edit"].count, 4);
    let expected = SettledLines { lines: 4, on_both: 4, agree: true, ..SettledLines::default() };
    assert_eq!(found.sample.settled, Some(expected));
}

#[test]
fn a_host_that_replaces_the_file_loses_the_lines_of_the_other() {
    let replace: fn(&Path, &Path) =
        |first, second| drop(std::fs::copy(second.join("shared.md"), first.join("shared.md")));
    let found = split(replace, writers(), &[1; 4], 10_000);
    assert!(found.worst_outcome.is_none(), "a loss is a count: {:?}", found.worst_outcome);
    let expected = SettledLines { lines: 4, on_both: 2, lost: 2, agree: true, ..SettledLines::default() };
    assert_eq!(found.sample.settled, Some(expected));
}

#[test]
fn a_conflict_copy_keeps_the_lines_of_both_hosts() {
    let keep: fn(&Path, &Path) = |first, second| {
        if !second.join("shared.conflict.md").exists() {
            std::fs::copy(first.join("shared.md"), second.join("shared.conflict.md")).unwrap();
            std::fs::copy(first.join("shared.md"), first.join("shared.conflict.md")).unwrap();
            std::fs::copy(second.join("shared.md"), first.join("shared.md")).unwrap();
        }
    };
    let expected = SettledLines {
        lines: 4,
        on_both: 2,
        only_in_copies: 2,
        conflict_copies: 1,
        agree: true,
        ..SettledLines::default()
    };
    let found = split(keep, writers(), &[1; 4], 10_000);
    assert_eq!(found.sample.settled, Some(expected), "{:?}", found.worst_outcome);
}

#[test]
fn a_pass_reports_hosts_that_never_agree() {
    let found = split(|_, _| {}, writers(), &[1; 4], 2000);
    assert!(found.worst_outcome.is_none(), "{:?}", found.worst_outcome);
    let expected = SettledLines { lines: 4, on_one: 4, ..SettledLines::default() };
    assert_eq!(found.sample.settled, Some(expected));
}

#[test]
fn a_damaged_line_is_wrong_data_and_not_a_loss() {
    let damage: fn(&Path, &Path) = |first, _| std::fs::write(first.join("shared.md"), "a\n\0\0").unwrap();
    let found = split(damage, writers(), &[1; 4], 2000);
    let (outcome, reason) = found.worst_outcome.unwrap();
    assert_eq!(outcome, Outcome::WrongData);
    assert!(reason.contains("a line that no host wrote"), "{reason}");
    assert_eq!(found.sample.settled, None);
}

#[test]
fn a_mount_without_a_bucket_syncs_file_by_file() {
    let mut script = two_files();
    let sync_all = |files: &[&str]| FileOp::SyncAll {
        dir: WorkspacePath::root(),
        files: files.iter().map(|file| path(file)).collect(),
    };
    script.call(CallKind::SyncNew, vec![sync_all(&["a", "b"])]);
    let synced = passed(script, &[90]);
    assert!(synced.worst_outcome.is_none(), "{:?}", synced.worst_outcome);
    assert_eq!(synced.sample.calls["sync-new"].total_ns, 90);
}
