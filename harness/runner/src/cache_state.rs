//! Proves the cache state of a pass: empty caches imply requests to the daemon or reads from disk.

use std::collections::{BTreeMap, BTreeSet};

use rundir::DaemonCounters;
use workloads::definition::CacheState;
use workloads::path::WorkspacePath;
use workloads::script::{Call, FileOp, Script};

/// The initial files and directories that the timed calls of a script touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Non-empty files that are read before they are written.
    pub read: usize,
    /// Bytes that the first reads of those files return.
    pub read_bytes: u64,
    /// Directories that are listed.
    pub listed: usize,
    /// Paths whose attributes are read.
    pub asked: usize,
    /// Whether the calls change files. If so, each pass needs a fresh or a restored subtree.
    pub changes: bool,
}

/// Computes what `calls` touch.
pub fn touched(script: &Script, calls: &[Call]) -> Footprint {
    let mut untouched: BTreeMap<&WorkspacePath, u64> = script
        .files
        .iter()
        .filter(|(_, content)| !content.is_empty())
        .map(|(path, content)| (path, content.len() as u64))
        .collect();
    let mut touched = Footprint::default();
    let mut listed = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for op in calls.iter().flat_map(|call| &call.ops) {
        touched.changes |= !matches!(
            op,
            FileOp::Read(_)
                | FileOp::ReadAt { .. }
                | FileOp::ReadOpen { .. }
                | FileOp::Search(_)
                | FileOp::List { .. }
                | FileOp::Walk(_)
                | FileOp::Stat(_)
                | FileOp::Ask { .. }
                | FileOp::Touch(_)
        );
        match op {
            FileOp::Read(_) | FileOp::ReadAt { .. } | FileOp::ReadOpen { .. } => {
                let most = match op {
                    FileOp::ReadAt { length, .. } | FileOp::ReadOpen { length, .. } => *length,
                    _ => usize::MAX,
                };
                if let Some(bytes) = untouched.remove(op.path()) {
                    touched.read += 1;
                    touched.read_bytes += bytes.min(most as u64);
                }
            }
            FileOp::Search(top) => {
                untouched.retain(|path, bytes| {
                    let is_found = path.is_within(top);
                    touched.read += usize::from(is_found);
                    touched.read_bytes += u64::from(is_found) * *bytes;
                    !is_found
                });
                listed.insert(top);
            }
            FileOp::List { path, .. } | FileOp::Walk(path) => {
                listed.insert(path);
            }
            FileOp::Stat(path) => {
                asked.insert(path);
            }
            // Written content is in the caches, so a later read proves nothing.
            FileOp::Rename { from: path, .. }
            | FileOp::Remove(path)
            | FileOp::Write { path, .. }
            | FileOp::WriteAt { path, .. }
            | FileOp::Append { path, .. }
            | FileOp::AddLine { path, .. } => {
                untouched.remove(path);
            }
            // The client processes read their files before the timed calls.
            // Which files a program reads is not known.
            FileOp::Run(_) => untouched.clear(),
            FileOp::Together { dir, .. } => untouched.retain(|path, _| !path.is_within(dir)),
            FileOp::Create(_)
            | FileOp::Touch(_)
            | FileOp::MakeDir(_)
            | FileOp::RemoveDir(_)
            | FileOp::Sync(_)
            | FileOp::SyncAll { .. }
            // It reads through the other host's caches, whose state is not part of the cell.
            | FileOp::SeenByOther { .. }
            | FileOp::Ask { .. } => {}
        }
    }
    touched.listed = listed.len();
    touched.asked = asked.len();
    touched
}

/// Bytes that the caller may read from disk in a hot pass: earlier passes can evict pages of programs and
/// metadata.
const HOT_CLIENT_MAX: u64 = 64 * 1024;

/// As [`HOT_CLIENT_MAX`], for a daemon: if an earlier cell dropped the caches, the daemon's code comes from disk.
const HOT_DAEMON_MAX: u64 = 1024 * 1024;

/// Reads from disk and answers of the daemon, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskReads {
    /// Bytes that the calling thread read from disk during the timed calls.
    pub client: u64,
    /// Bytes that the daemon read from disk: since it started, and during the timed calls.
    pub daemon: Option<(u64, u64)>,
    /// For a daemon: bytes that it wrote anywhere during the timed calls, its answers included.
    pub answered: Option<u64>,
    /// Whether the backend keeps its files on disk.
    pub is_persistent: bool,
    /// For a daemon that starts without local files: files that it fetched from its server during the timed calls.
    pub fetched: Option<u64>,
}

/// Checks whether the counts and reads are possible in `state`.
/// The error says why the state is not proved.
pub fn check(
    state: CacheState,
    touched: &Footprint,
    daemon: Option<&DaemonCounters>,
    disk: &DiskReads,
) -> Result<(), String> {
    let name = state.name();
    let unproved = |why: String| Err(format!("the cache state {name} is not proved: {why}"));
    if state == CacheState::Hot {
        let daemon = disk.daemon.map_or(0, |(_, timed)| timed);
        if disk.client > HOT_CLIENT_MAX || daemon > HOT_DAEMON_MAX {
            return unproved(format!("{} bytes came from disk for the caller, {daemon} for the daemon", disk.client));
        }
        return Ok(());
    }
    let Some(daemon) = daemon else {
        if let Some(answered) = disk.answered {
            // An external daemon may fetch from anywhere, but it must write every answer to the FUSE device.
            if answered < touched.read_bytes {
                return unproved(format!(
                    "{} bytes of files were read for the first time, but the daemon wrote only {answered}",
                    touched.read_bytes
                ));
            }
            if answered == 0 && touched.listed + touched.asked > 0 {
                return unproved("the daemon wrote nothing".to_owned());
            }
            return Ok(());
        }
        if disk.client < touched.read_bytes {
            return unproved(format!(
                "{} bytes of files were read for the first time, but only {} came from disk (is the scratch directory on a file system in memory?)",
                touched.read_bytes, disk.client
            ));
        }
        return Ok(());
    };
    if state == CacheState::Cold && disk.is_persistent && disk.daemon.is_some_and(|(since_start, _)| since_start == 0) {
        return unproved("the new daemon read nothing from disk".to_owned());
    }
    let reads = daemon.count("read");
    if reads < touched.read as u64 {
        return unproved(format!(
            "{} files were read, but the daemon was asked only {reads} times for content",
            touched.read
        ));
    }
    if let Some(fetched) = disk.fetched
        && fetched < touched.read as u64
    {
        return unproved(format!(
            "{} files were read for the first time on this machine, but the daemon fetched only {fetched} of them from its server",
            touched.read
        ));
    }
    let listings = daemon.count("readdir") + daemon.count("readdirplus");
    if listings < touched.listed as u64 {
        return unproved(format!(
            "{} directories were listed, but the daemon was asked only {listings} times",
            touched.listed
        ));
    }
    let names = daemon.count("lookup") + daemon.count("getattr") + listings;
    if touched.asked > 0 && names == 0 {
        return unproved("the daemon was not asked for any name".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{append, bytes, path};
    use rundir::OpcodeRecord;

    fn script() -> Script {
        let mut script = Script::new(vec![
            (path("a/one"), bytes("1")),
            (path("a/two"), bytes("2")),
            (path("b/three"), bytes("3")),
            (path("b/empty"), bytes("")),
        ]);
        script.meanwhile(vec![
            FileOp::Read(path("a/one")),
            FileOp::Read(path("a/one")),
            append("b/three", "x"),
            FileOp::Read(path("b/three")),
            FileOp::Search(path("a")),
            FileOp::Stat(path("b/empty")),
        ]);
        script
    }

    fn counted(counts: &[(&str, u64)]) -> DaemonCounters {
        let count = |count| OpcodeRecord { count, ..OpcodeRecord::default() };
        DaemonCounters {
            fuse: counts.iter().map(|(name, n)| ((*name).to_owned(), count(*n))).collect(),
            store: Default::default(),
        }
    }

    #[test]
    fn touched_counts_only_the_first_read_of_an_initial_file() {
        let expected = Footprint { read: 2, read_bytes: 2, listed: 1, asked: 1, changes: true };
        let script = script();
        assert_eq!(touched(&script, &script.calls), expected);
    }

    #[test]
    fn a_daemon_that_was_not_asked_proves_nothing() {
        let touched = touched(&script(), &script().calls);
        let disk = DiskReads { daemon: Some((8192, 0)), is_persistent: true, ..DiskReads::default() };
        let check = |state, counts: &[(&str, u64)]| check(state, &touched, Some(&counted(counts)), &disk);
        assert!(check(CacheState::Hot, &[]).is_ok());
        let all = [("read", 2), ("readdir", 1), ("lookup", 3)];
        assert!(check(CacheState::Lukewarm, &all).is_ok());
        for missing in 0..3 {
            let mut counts = all.to_vec();
            counts.remove(missing);
            let is_proved = check(CacheState::Cold, &counts).is_ok();
            // A listing proves that the daemon was asked for names.
            assert_eq!(is_proved, missing == 2, "{missing}");
        }
    }

    #[test]
    fn a_client_without_a_daemon_must_read_the_disk() {
        let touched = touched(&script(), &script().calls);
        let check = |client| {
            let disk = DiskReads { client, ..DiskReads::default() };
            check(CacheState::Lukewarm, &touched, None, &disk)
        };
        assert!(check(4096).is_ok());
        let reason = check(1).unwrap_err();
        assert!(reason.contains("only 1 came from disk"), "{reason}");
    }

    #[test]
    fn a_daemon_without_counters_must_write_the_bytes_that_were_read() {
        let read = touched(&script(), &script().calls);
        let check = |touched, answered| {
            let disk = DiskReads { daemon: Some((0, 0)), answered: Some(answered), ..DiskReads::default() };
            check(CacheState::Lukewarm, touched, None, &disk)
        };
        assert!(check(&read, 4096).is_ok());
        let reason = check(&read, 1).unwrap_err();
        assert!(reason.contains("the daemon wrote only 1"), "{reason}");
        let listed = Footprint { listed: 1, ..Footprint::default() };
        assert!(check(&listed, 100).is_ok());
        assert!(check(&listed, 0).is_err());
    }

    #[test]
    fn a_new_daemon_reads_its_store_from_disk() {
        let touched = Footprint::default();
        let check = |since_start, is_persistent| {
            let disk = DiskReads { daemon: Some((since_start, 0)), is_persistent, ..DiskReads::default() };
            check(CacheState::Cold, &touched, Some(&counted(&[])), &disk)
        };
        assert!(check(4096, true).is_ok());
        assert!(check(0, false).is_ok());
        assert!(check(0, true).is_err());
    }

    #[test]
    fn a_daemon_that_starts_empty_must_fetch_every_file_that_was_read() {
        let touched = Footprint { read: 2, read_bytes: 2, ..Footprint::default() };
        let check = |fetched| {
            let disk = DiskReads { daemon: Some((4096, 0)), is_persistent: true, fetched, ..DiskReads::default() };
            check(CacheState::Cold, &touched, Some(&counted(&[("read", 2)])), &disk)
        };
        assert!(check(Some(2)).is_ok());
        assert!(check(None).is_ok(), "what was kept is read from there");
        let reason = check(Some(1)).unwrap_err();
        assert!(reason.contains("fetched only 1 of them"), "{reason}");
    }

    #[test]
    fn a_hot_pass_reads_no_file_from_disk() {
        let check = |client, timed| {
            let disk = DiskReads { client, daemon: Some((4096, timed)), is_persistent: true, ..DiskReads::default() };
            check(CacheState::Hot, &Footprint::default(), None, &disk)
        };
        assert!(check(0, 0).is_ok());
        assert!(check(100_000, 0).is_err());
        assert!(check(0, 100_000).is_ok(), "the daemon's own code");
        assert!(check(0, 2_000_000).is_err());
        let changes = Footprint { changes: true, ..Footprint::default() };
        let disk = DiskReads { client: 100_000, ..DiskReads::default() };
        let check = super::check(CacheState::Hot, &changes, None, &disk);
        assert!(check.is_err(), "also where files change");
    }
}
