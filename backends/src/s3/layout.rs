//! Which key holds what: names to keys and back.
//!
//! ```text
//! <prefix>agents/<agent>/notes/today.md          a file, by its path
//! <prefix>ctx/<agent>/manifest.json              directories that their keys do not tell of
//! <prefix>ctx/<agent>/index/<writer>.json        attributes of what a writer has written, for others to list by
//! <prefix>ctx/<agent>/versions/notes/today.md/…  what a file was
//! <prefix>ctx/<agent>/long-versions/<digest>/…    the same, of a file whose path is too long for that
//! <prefix>ctx/<agent>/parts/big.bin/digests.json which parts of a large file a change has left alone
//! <prefix>ctx/<agent>/audit/<writer>/….jsonl     who wrote what
//! <prefix>.ctx/<agent>/mark                      which bucket this is: before all others in a listing
//! ```
//!
//! No object of ours is a prefix of another's directory: a name is a file or a directory, never both.

use super::object;
use super::seal::Seal;

/// The longest key that S3 has, in bytes.
pub(super) const KEY_MAX: usize = 1024;

/// What stands behind the path in the key of a version.
pub(super) const NUMBER_AND_TAG: usize = "/0000000001-0123456789abcdef".len();

/// Characters of a path component that would be lost, or mean something, in a key.
fn must_escape(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f || byte == b'%' || byte == b'\\'
}

/// A name as a component of a key: as it is, with `%XX` for what is no UTF-8 or no character of a key.
pub(super) fn escape(name: &[u8]) -> String {
    let mut key = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match u8::try_from(c) {
                Ok(byte) if must_escape(byte) => key.push_str(&format!("%{byte:02X}")),
                _ => key.push(c),
            }
        }
        for byte in chunk.invalid() {
            key.push_str(&format!("%{byte:02X}"));
        }
    }
    key
}

/// The name in a component of a key; a `%` that escapes nothing is one.
pub(super) fn unescape(component: &str) -> Vec<u8> {
    let bytes = component.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3);
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) if bytes[at] == b'%' => {
                name.push(byte);
                at += 3;
            }
            _ => {
                name.push(bytes[at]);
                at += 1;
            }
        }
    }
    name
}

/// Where an agent's objects are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    files: String,
    about: String,
    mark: String,
    writer: String,
}

impl Layout {
    pub(super) fn new(prefix: &str, agent: &str, writer: &str) -> Self {
        Self {
            files: format!("{prefix}agents/{agent}/"),
            about: format!("{prefix}ctx/{agent}/"),
            mark: format!("{prefix}.ctx/{agent}/mark"),
            writer: writer.to_owned(),
        }
    }

    /// What every file's key begins with.
    pub(super) fn files(&self) -> &str {
        &self.files
    }

    pub(super) fn manifest(&self) -> String {
        format!("{}manifest.json", self.about)
    }

    pub(super) fn indexes(&self) -> String {
        format!("{}index/", self.about)
    }

    pub(super) fn index(&self) -> String {
        format!("{}index/{}.json", self.about, self.writer)
    }

    pub(super) fn seal_check(&self) -> String {
        format!("{}seal-check", self.about)
    }

    /// The mark of a memory; see [`mark`](super::mark). Its key is before those of files: who deletes everything in the
    /// order of a listing deletes it first.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// What is known of the server; see [`probe`](super::probe).
    pub(super) fn server(&self) -> String {
        format!("{}server.json", self.about)
    }

    pub(super) fn probe(&self) -> String {
        format!("{}probe/{}", self.about, self.writer)
    }

    pub(super) fn audit(&self, at: &str) -> String {
        format!("{}audit/{}/{at}.jsonl", self.about, self.writer)
    }

    /// The versions of the file whose key is `key`. A path that is too long to be part of their keys is its digest there:
    /// what stands above a file may have got a longer name after the file had its own.
    pub(super) fn versions(&self, key: &str) -> String {
        let path = key.strip_prefix(self.files.as_str()).unwrap_or(key);
        let versions = format!("{}versions/{path}", self.about);
        if versions.len() + NUMBER_AND_TAG <= KEY_MAX {
            return versions + "/";
        }
        let digest = object::checksum(path.as_bytes());
        format!("{}long-versions/{digest}/", self.about)
    }

    /// What the keys of a version begin with, of which there is one for each host that has begun to count anew.
    pub(super) fn version(&self, key: &str, version: u64) -> String {
        format!("{}{version:010}", self.versions(key))
    }

    /// The key of a version that had an entity tag: no other version ever takes its place.
    pub(super) fn version_of(&self, key: &str, version: u64, etag: &str) -> String {
        let tag = object::checksum(etag.as_bytes());
        format!("{}-{}", self.version(key, version), &tag[..16])
    }

    /// The number of a version of the file whose key is `key`; earlier builds had nothing behind it.
    pub(super) fn number_of_version(&self, key: &str, kept: &str) -> Option<u64> {
        let component = kept.strip_prefix(&self.versions(key))?;
        let number = component.split_once('-').map_or(component, |it| it.0);
        number.parse().ok()
    }

    /// The digests of the parts of a large file.
    pub(super) fn parts(&self, key: &str) -> String {
        let path = key.strip_prefix(self.files.as_str()).unwrap_or(key);
        format!("{}parts/{path}/digests.json", self.about)
    }
}

/// The component of a key that stands for a name.
pub(super) fn component(name: &[u8], seal: Option<&Seal>) -> String {
    match seal {
        Some(seal) => seal.name(name),
        None => escape(name),
    }
}

/// The name that a component of a key stands for; `None` if it is none of ours, or none that a directory can hold.
pub(super) fn name(component: &str, seal: Option<&Seal>) -> Option<Vec<u8>> {
    let name = match seal {
        Some(seal) => seal.open_name(component)?,
        None => unescape(component),
    };
    let is_name = !name.is_empty()
        && name.len() <= crate::store::NAME_MAX
        && name != b"."
        && name != b".."
        && !name.contains(&b'/')
        && !name.contains(&0);
    is_name.then_some(name)
}

/// A component without the `~2` that tells it from another that has its key.
pub(super) fn without_number(component: &str) -> &str {
    match component.rsplit_once('~') {
        Some((name, number)) if !name.is_empty() && number.parse::<u64>().is_ok() => name,
        _ => component,
    }
}

/// The name under which the losing version of a conflict is kept: `name.conflict-<writer>-<version>.md`.
pub(super) fn conflict_name(name: &[u8], writer: &str, version: u64) -> Vec<u8> {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let (stem, extension) = match dot {
        Some(at) if at > 0 => name.split_at(at),
        _ => (name, &[][..]),
    };
    let tag = format!(".conflict-{writer}-{version}");
    let room = crate::store::NAME_MAX.saturating_sub(tag.len() + extension.len());
    let mut conflict = stem[..stem.len().min(room)].to_vec();
    conflict.extend_from_slice(tag.as_bytes());
    conflict.extend_from_slice(extension);
    conflict
}

/// Whether a name's content gets front matter.
pub(super) fn is_markdown(name: &[u8]) -> bool {
    name.to_ascii_lowercase().ends_with(b".md")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_comes_back_from_its_key(name in prop::collection::vec(any::<u8>(), 1..64)) {
            let key = escape(&name);
            prop_assert!(key.bytes().all(|byte| byte >= 0x20 && byte != 0x7f));
            prop_assert_eq!(unescape(&key), name);
        }
    }

    #[test]
    fn keys_are_readable() {
        assert_eq!(escape("Grüße: 100%.md".as_bytes()), "Grüße: 100%25.md");
        assert_eq!(unescape("50% off"), b"50% off");
        assert_eq!(name("..", None), None);
        assert_eq!(name("", None), None);
        let layout = Layout::new("p/", "alice", "w");
        assert_eq!(layout.files(), "p/agents/alice/");
        assert_eq!(
            layout.version("p/agents/alice/a/b.md", 3),
            "p/ctx/alice/versions/a/b.md/0000000003"
        );
        let key = "p/agents/alice/a/b.md";
        let kept = layout.version_of(key, 3, "etag");
        assert_eq!(layout.number_of_version(key, &kept), Some(3));
        assert_ne!(layout.version_of(key, 3, "other"), kept);
        let earlier = layout.version(key, 7);
        assert_eq!(layout.number_of_version(key, &earlier), Some(7));
        let another = layout.version_of("p/agents/alice/a/b.md/0000000003", 3, "etag");
        assert_eq!(layout.number_of_version(key, &another), None);
        let long = format!("p/agents/alice/{}", "x".repeat(1000));
        let kept = layout.version_of(&long, 3, "etag");
        assert!(kept.len() <= KEY_MAX);
        assert_eq!(layout.number_of_version(&long, &kept), Some(3));
        assert_eq!(layout.number_of_version(&format!("{long}y"), &kept), None);
        assert!(layout.mark() < layout.files() && layout.mark() < layout.about.as_str());
    }

    #[test]
    fn a_conflict_keeps_the_extension_and_fits() {
        assert_eq!(conflict_name(b"a.md", "bob", 7), b"a.conflict-bob-7.md");
        assert_eq!(conflict_name(b".env", "bob", 7), b".env.conflict-bob-7");
        assert!(conflict_name(&[b'x'; 255], "bob", 7).len() <= 255);
    }
}
