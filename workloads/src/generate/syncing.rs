//! Many dirty files that are made durable together, in separate calls for new and overwritten files.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::{check_range, path};
use crate::filler::fill;
use crate::path::WorkspacePath;
use crate::script::{CallKind, FileOp, Script};

/// The longest history: a pass makes all of it.
const HISTORY_MAX: u32 = 10_000;

/// The parameters of dirty files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirtyFiles {
    /// Number of files that are dirty at once.
    files: u32,
    /// Bytes of each file.
    bytes: u64,
    /// Number of repetitions: create files, sync, overwrite them, sync.
    times: u32,
    /// How often one more file has been overwritten and synced before, outside the clock.
    #[serde(default)]
    history: u32,
    /// The seed of the texts.
    seed: u64,
}

impl DirtyFiles {
    pub(crate) fn script(&self) -> Result<Script, String> {
        for (field, value, most) in [
            ("files", u64::from(self.files), 10_000),
            ("bytes", self.bytes, 1 << 20),
            ("times", u64::from(self.times), 100),
        ] {
            check_range(&format!("syncing.{field}"), &value, 1..=most)?;
        }
        if self.history > HISTORY_MAX {
            return Err(format!("field `syncing.history`: at most {HISTORY_MAX}"));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut script = Script::new(Vec::new());
        let dir = path("notes")?;
        script.dirs = vec![dir.clone()];
        for _ in 0..self.history {
            let earlier = path("notes/earlier.md")?;
            let write = FileOp::write(earlier.clone(), fill(rng.next_u64(), self.bytes, self.bytes / 40));
            script.meanwhile(vec![write, FileOp::SyncAll { dir: dir.clone(), files: vec![earlier] }]);
        }
        for time in 0..self.times {
            let names = (0..self.files).map(|file| path(format!("notes/{time:02}-{file:04}.md")));
            let files = names.collect::<Result<Vec<_>, _>>()?;
            for kind in [CallKind::SyncNew, CallKind::SyncOverwritten] {
                let write = |path: &WorkspacePath| {
                    let content = fill(rng.next_u64(), self.bytes, self.bytes / 40);
                    FileOp::write(path.clone(), content)
                };
                script.meanwhile(files.iter().map(write).collect());
                let (dir, files) = (dir.clone(), files.clone());
                script.call(kind, vec![FileOp::SyncAll { dir, files }]);
            }
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{ExpectedResult, ReferenceModel};
    use crate::script::Call;

    fn syncing() -> DirtyFiles {
        toml::from_str("files = 5\nbytes = 1024\ntimes = 2\nseed = 1").unwrap()
    }

    #[test]
    fn files_are_new_at_the_first_sync_and_overwritten_at_the_second() {
        assert_eq!(syncing().script(), syncing().script());
        let script = syncing().script().unwrap();
        let mut model = ReferenceModel::of(&script);
        let mut timed = Vec::new();
        for call in &script.calls {
            for op in &call.ops {
                let was_there = model.file(op.path()).is_some();
                assert_eq!(model.apply(op), ExpectedResult::Done);
                let is_write = matches!(op, FileOp::Write { .. });
                let is_second = matches!(timed.last(), Some(CallKind::SyncNew));
                assert!(!is_write || was_there == is_second, "{}", op.describe());
            }
            timed.extend(call.kind);
        }
        let (new, overwritten) = (CallKind::SyncNew, CallKind::SyncOverwritten);
        assert_eq!(timed, [new, overwritten, new, overwritten]);
    }

    #[test]
    fn a_history_is_synced_version_by_version_before_the_timed_calls() {
        let long = DirtyFiles { history: 3, ..syncing() }.script().unwrap();
        let (history, timed) = long.calls.split_at(3);
        let mut versions = BTreeSet::new();
        for call in history {
            let [FileOp::Write { path, content, .. }, FileOp::SyncAll { files, .. }] = &call.ops[..] else {
                panic!("{call:?}");
            };
            assert_eq!((call.kind, &files[..]), (None, std::slice::from_ref(path)));
            versions.insert(content.clone());
        }
        assert_eq!(versions.len(), 3);
        let kinds = |calls: &[Call]| calls.iter().map(|call| call.kind).collect::<Vec<_>>();
        assert_eq!(kinds(timed), kinds(&syncing().script().unwrap().calls));
        let refused = DirtyFiles { history: HISTORY_MAX + 1, ..syncing() }.script().unwrap_err();
        assert!(refused.contains("syncing.history"), "{refused}");
    }
}
