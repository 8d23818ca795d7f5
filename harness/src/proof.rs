//! Proving the cache state: what must have reached the daemon, or the disk, if the caches were empty.

use std::collections::BTreeSet;

use reports::run::DaemonCounters;
use workloads::definition::CacheState;
use workloads::path::WorkspacePath;
use workloads::script::{Call, FileOp, Script};

/// What the timed calls of a script touch of what was there at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Files with content whose content is read before it is written.
    pub read: usize,
    /// Directories that are listed.
    pub listed: usize,
    /// Files that are only asked for attributes.
    pub asked: usize,
}

/// What these calls of a script touch.
pub fn touched(script: &Script, calls: &[Call]) -> Touched {
    let mut untouched: BTreeSet<&WorkspacePath> = script
        .files
        .iter()
        .filter(|(_, content)| !content.is_empty())
        .map(|(path, _)| path)
        .collect();
    let mut touched = Touched::default();
    let mut listed = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for op in calls.iter().flat_map(|call| &call.ops) {
        match op {
            FileOp::Read(path) | FileOp::ReadAt { path, .. } | FileOp::ReadOpen { path, .. } => {
                touched.read += usize::from(untouched.remove(path));
            }
            FileOp::Search(top) => {
                let before = untouched.len();
                untouched.retain(|path| !path.is_within(top));
                touched.read += before - untouched.len();
                listed.insert(top);
            }
            FileOp::List { path, .. } | FileOp::Walk(path) => {
                listed.insert(path);
            }
            FileOp::Stat(path) => {
                asked.insert(path);
            }
            FileOp::Rename { from: path, .. } | FileOp::Remove(path) => {
                untouched.remove(path);
            }
            // What has been written is in the caches again.
            FileOp::Write { path, .. }
            | FileOp::WriteAt { path, .. }
            | FileOp::Append { path, .. } => {
                untouched.remove(path);
            }
            FileOp::Create(_) | FileOp::MakeDir(_) | FileOp::Sync(_) => {}
        }
    }
    touched.listed = listed.len();
    touched.asked = asked.len();
    touched
}

/// Whether the caches can have been as empty as the state says.
///
/// # Errors
/// What is missing from the proof.
pub fn check(
    state: CacheState,
    touched: &Touched,
    daemon: Option<&DaemonCounters>,
    disk_read_bytes: u64,
) -> Result<(), String> {
    if state == CacheState::Hot {
        return Ok(());
    }
    let state = state.name();
    let Some(daemon) = daemon else {
        if touched.read > 0 && disk_read_bytes == 0 {
            return Err(format!(
                "the state {state} is not proved: {} files were read, but nothing came from disk (is the scratch directory on a file system in memory?)",
                touched.read
            ));
        }
        return Ok(());
    };
    let reads = daemon.count("read");
    if reads < touched.read as u64 {
        return Err(format!(
            "the state {state} is not proved: {} files were read, but the daemon was asked only {reads} times for content",
            touched.read
        ));
    }
    let listings = daemon.count("readdir") + daemon.count("readdirplus");
    if listings < touched.listed as u64 {
        return Err(format!(
            "the state {state} is not proved: {} directories were listed, but the daemon was asked only {listings} times",
            touched.listed
        ));
    }
    let names = daemon.count("lookup") + daemon.count("getattr") + listings;
    if touched.asked > 0 && names == 0 {
        return Err(format!(
            "the state {state} is not proved: the daemon was not asked for any name"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reports::run::OpcodeCount;

    fn path(path: &str) -> WorkspacePath {
        WorkspacePath::new(path).unwrap()
    }

    fn script() -> Script {
        let content = |text: &str| text.as_bytes().into();
        let mut script = Script::new(vec![
            (path("a/one"), content("1")),
            (path("a/two"), content("2")),
            (path("b/three"), content("3")),
            (path("b/empty"), content("")),
        ]);
        script.meanwhile(vec![
            FileOp::Read(path("a/one")),
            FileOp::Read(path("a/one")),
            FileOp::Append {
                path: path("b/three"),
                content: content("x"),
            },
            FileOp::Read(path("b/three")),
            FileOp::Search(path("a")),
            FileOp::Stat(path("b/empty")),
        ]);
        script
    }

    fn counted(counts: &[(&str, u64)]) -> DaemonCounters {
        let count = |count| OpcodeCount {
            count,
            ..OpcodeCount::default()
        };
        DaemonCounters {
            fuse: counts
                .iter()
                .map(|(name, n)| ((*name).to_owned(), count(*n)))
                .collect(),
            store: Default::default(),
        }
    }

    #[test]
    fn only_the_first_touch_of_what_was_there_counts() {
        let expected = Touched {
            read: 2,
            listed: 1,
            asked: 1,
        };
        let script = script();
        assert_eq!(touched(&script, &script.calls), expected);
    }

    #[test]
    fn a_daemon_that_was_not_asked_proves_nothing() {
        let touched = touched(&script(), &script().calls);
        let check =
            |state, counts: &[(&str, u64)]| check(state, &touched, Some(&counted(counts)), 0);
        assert!(check(CacheState::Hot, &[]).is_ok());
        let all = [("read", 2), ("readdir", 1), ("lookup", 3)];
        assert!(check(CacheState::Lukewarm, &all).is_ok());
        for missing in 0..3 {
            let mut counts = all.to_vec();
            counts.remove(missing);
            let is_proved = check(CacheState::Cold, &counts).is_ok();
            // The listing alone proves that names were asked for.
            assert_eq!(is_proved, missing == 2, "{missing}");
        }
    }

    #[test]
    fn without_a_daemon_the_disk_must_have_been_read() {
        let touched = touched(&script(), &script().calls);
        assert!(check(CacheState::Lukewarm, &touched, None, 4096).is_ok());
        let reason = check(CacheState::Lukewarm, &touched, None, 0).unwrap_err();
        assert!(reason.contains("nothing came from disk"), "{reason}");
    }
}
