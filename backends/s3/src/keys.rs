//! How the objects of a log are named in the bucket.

use crate::objects::Key;

/// The keys of one agent's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys below `<prefix>agents/<agent>/`; `prefix` is empty or ends in `/`.
    pub fn new(prefix: &str, agent: &str) -> Self {
        Self {
            prefix: format!("{prefix}agents/{agent}/"),
        }
    }

    /// What every key begins with: the readable mirror is below it, but for [`Keys::log_prefix`].
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the keys of the log begin with.
    pub fn log_prefix(&self) -> String {
        format!("{}.ctx/", self.prefix)
    }

    /// The key of an object; `blob` spells the digest of a blob, which encryption hides.
    pub fn of(&self, key: Key, blob: impl Fn(crate::tree::Hash) -> String) -> String {
        let prefix = &self.prefix;
        match key {
            Key::Log(number) => format!("{prefix}.ctx/log/{number:020}"),
            Key::Blob(hash, 0) => format!("{prefix}.ctx/blob/{}", blob(hash)),
            Key::Blob(hash, salt) => format!("{prefix}.ctx/blob/{}-{salt:08x}", blob(hash)),
            Key::Checkpoint(number) => format!("{prefix}.ctx/checkpoint/{number:020}"),
            Key::Floor(number) => format!("{prefix}.ctx/floor/{number:020}"),
        }
    }

    /// The number at the end of a key of a commit, checkpoint or floor.
    pub fn number(key: &str) -> Option<u64> {
        key.rsplit('/').next()?.parse().ok()
    }
}
