//! Many dirty files that are made durable together, in separate calls for new and overwritten files.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::{check_range, path};
use crate::filler::fill;
use crate::path::WorkspacePath;
use crate::script::{CallKind, FileOp, Script};

/// The parameters of dirty files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Syncing {
    /// Number of files that are dirty at once.
    files: u32,
    /// Bytes of each file.
    bytes: u64,
    /// Number of repetitions: create files, sync, overwrite them, sync.
    times: u32,
    /// The seed of the texts.
    seed: u64,
}

impl Syncing {
    pub(crate) fn script(&self) -> Result<Script, String> {
        for (field, value, most) in [
            ("files", u64::from(self.files), 10_000),
            ("bytes", self.bytes, 1 << 20),
            ("times", u64::from(self.times), 100),
        ] {
            check_range(&format!("syncing.{field}"), &value, 1..=most)?;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut script = Script::new(Vec::new());
        let dir = path("notes")?;
        script.dirs = vec![dir.clone()];
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
    use super::*;
    use crate::model::{Expected, ReferenceModel};

    fn syncing() -> Syncing {
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
                assert_eq!(model.apply(op), Expected::Done);
                let is_write = matches!(op, FileOp::Write { .. });
                let is_second = matches!(timed.last(), Some(CallKind::SyncNew));
                assert!(!is_write || was_there == is_second, "{}", op.describe());
            }
            timed.extend(call.kind);
        }
        let (new, overwritten) = (CallKind::SyncNew, CallKind::SyncOverwritten);
        assert_eq!(timed, [new, overwritten, new, overwritten]);
    }
}
