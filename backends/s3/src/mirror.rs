//! The readable mirror: files as objects that people and other tools can read, Markdown with front matter.
//!
//! It follows the log and is never read for truth; [`crate::import`] takes in what other tools wrote there. A sealed
//! memory has no mirror: the mirror would show what encryption hides.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use crate::client::{MirrorClient, MirrorObject};
use crate::config::MirrorMode;
use crate::objects::Objects;
use crate::session::{SessionError, fetch};
use crate::tree::{CHUNK, Content, Hash, NodeId, ROOT, Tree};

/// Files up to this many bytes are mirrored: one chunk.
pub const MIRROR_MAX: u64 = CHUNK;

/// The longest key of S3, in bytes.
const KEY_MAX: usize = 1024;

/// Requests that are in flight at once.
const AT_ONCE: usize = 8;

/// The metadata that holds the commit which was mirrored, and the digest of the file.
const COMMIT: &str = "ctx-commit";
const DIGEST: &str = "ctx-sha256";

const OPENING: &str = "---\nctxbench:\n";
const CLOSING: &str = "\n---\n";

/// A file as it is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorFile {
    /// Its key below `agents/<agent>/`.
    pub key: String,
    /// Its node.
    pub node: NodeId,
    /// Its content: one chunk, or none.
    pub content: Content,
    modified: i64,
    created: i64,
}

/// What turns the mirror of one tree into that of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorPlan {
    /// Files to write.
    pub writes: Vec<MirrorFile>,
    /// Keys to delete.
    pub deletions: Vec<String>,
}

impl MirrorPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.deletions.is_empty()
    }
}

/// The front matter of a mirrored Markdown file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontMatter {
    /// The commit that was mirrored.
    pub version: u64,
    /// Last change, as in RFC 3339.
    pub modified: String,
    /// Creation, as in RFC 3339.
    pub created: String,
    /// The digest of the file without its front matter, in hexadecimal.
    pub sha256: String,
}

/// A name as a component of a key: `%XX` stands for bytes that are no UTF-8 or that a key cannot hold, and for the first
/// byte of a name that belongs to logs.
pub fn escape(name: &[u8]) -> String {
    let mut key = String::with_capacity(name.len());
    let push = |key: &mut String, byte: u8| key.push_str(&format!("%{byte:02X}"));
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match u8::try_from(c) {
                Ok(byte) if byte < 0x20 || matches!(byte, 0x7f | b'%' | b'\\') => {
                    push(&mut key, byte);
                }
                _ => key.push(c),
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| push(&mut key, *byte));
    }
    if key == ".ctx" {
        key.replace_range(..1, "%2E");
    }
    key
}

/// The name in a component of a key; a `%` that escapes nothing stands for itself.
pub fn unescape(component: &str) -> Vec<u8> {
    let bytes = component.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = component.get(at + 1..at + 3);
        let hex = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
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

/// Whether a file or key has front matter.
pub fn is_markdown(name: &[u8]) -> bool {
    name.to_ascii_lowercase().ends_with(b".md")
}

/// The files that are mirrored, by key.
pub type Files = BTreeMap<String, MirrorFile>;

/// The files of a tree that are mirrored.
pub fn files(tree: &Tree, mode: MirrorMode) -> Files {
    let mut files = BTreeMap::new();
    let mut dirs = match mode {
        MirrorMode::Off => Vec::new(),
        _ => vec![(ROOT, String::new())],
    };
    while let Some((dir, prefix)) = dirs.pop() {
        for (name, id) in tree.children(dir) {
            let Some(node) = tree.node(id) else { continue };
            let key = format!("{prefix}{}", escape(&name.0));
            if node.is_directory() {
                dirs.push((id, format!("{key}/")));
            } else if let Some(content) = node.content()
                && content.size <= MIRROR_MAX
                && (mode == MirrorMode::All || is_markdown(&name.0))
            {
                let file = MirrorFile {
                    key: key.clone(),
                    node: id,
                    content: content.clone(),
                    modified: node.attributes.mtime,
                    created: node.attributes.btime,
                };
                files.insert(key, file);
            }
        }
    }
    files
}

/// What has to be written and deleted so that the mirror of `old` becomes that of `new`, both from [`files`].
pub fn plan(old: &Files, new: &Files) -> MirrorPlan {
    let deletions = old.keys().filter(|key| !new.contains_key(*key));
    let deletions = deletions.cloned().collect();
    let is_same = |one: &MirrorFile, other: &MirrorFile| {
        one.content.same_bytes(&other.content)
            && (one.modified, one.created) == (other.modified, other.created)
    };
    let is_changed = |(key, file): &(&String, &MirrorFile)| {
        !old.get(*key).is_some_and(|before| is_same(before, file))
    };
    let changed = new.iter().filter(is_changed);
    MirrorPlan {
        writes: changed.map(|(_, file)| file.clone()).collect(),
        deletions,
    }
}

/// The digest of a content of at most one chunk.
pub(crate) fn digest_of(content: &Content) -> Hash {
    content
        .chunks
        .first()
        .map_or_else(|| Hash::of(b""), |chunk| chunk.hash)
}

impl MirrorFile {
    /// The digest of the content.
    pub fn digest(&self) -> Hash {
        digest_of(&self.content)
    }

    /// Whether an object of ours is of this content.
    pub fn is_mirrored_by(&self, object: &MirrorObject) -> bool {
        let digest = object.metadata.get(DIGEST).cloned();
        let digest = digest.or_else(|| Some(front_matter(&object.body)?.0.sha256));
        digest == Some(self.digest().to_string())
    }

    /// The metadata of the object that mirrors the file as of a commit.
    pub fn metadata(&self, commit: u64) -> [(&'static str, String); 2] {
        [
            (COMMIT, commit.to_string()),
            (DIGEST, self.digest().to_string()),
        ]
    }

    /// The object that mirrors the file as of a commit.
    pub fn object(&self, content: Bytes, commit: u64) -> Bytes {
        if !is_markdown(self.key.as_bytes()) {
            return content;
        }
        let time = |time: i64| {
            let time = jiff::Timestamp::from_nanosecond(time.into());
            time.map_or_else(|_| String::new(), |time| format!("{time:.9}"))
        };
        let (modified, created) = (time(self.modified), time(self.created));
        let front = format!(
            "{OPENING}  version: {commit}\n  modified: {modified:?}\n  created: {created:?}\n  sha256: \"{}\"{CLOSING}",
            self.digest()
        );
        [front.as_bytes(), &content].concat().into()
    }
}

/// Our front matter at the start of an object, and its length in bytes.
pub fn front_matter(object: &[u8]) -> Option<(FrontMatter, usize)> {
    #[derive(Deserialize)]
    struct Block {
        ctxbench: FrontMatter,
    }
    let head = object[..object.len().min(1024)].utf8_chunks().next()?;
    let head = head.valid();
    let end = head.strip_prefix(OPENING)?.find(CLOSING)? + OPENING.len();
    let block: Block = serde_saphyr::from_str(&head["---\n".len()..end]).ok()?;
    Some((block.ctxbench, end + CLOSING.len()))
}

impl MirrorObject {
    /// The commit of which the object was published, if the object tells.
    pub fn commit(&self) -> Option<u64> {
        self.metadata.get(COMMIT)?.parse().ok()
    }
}

/// Who wrote an object of the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We did, and its content is unchanged.
    Ours,
    /// Another tool.
    Foreign {
        /// The file without our front matter.
        content: Bytes,
        /// The commit, and the digest of the file in it, that the tool began with, if the object tells.
        base: Option<(u64, String)>,
    },
}

/// Who wrote an object: another tool may keep our metadata or front matter, but not the digest.
pub fn origin(key: &str, body: &Bytes, metadata: &BTreeMap<String, String>) -> Origin {
    let front = match is_markdown(key.as_bytes()) {
        true => front_matter(body),
        false => None,
    };
    let content = body.slice(front.as_ref().map_or(0, |(_, length)| *length)..);
    let of_metadata = || {
        Some((
            metadata.get(COMMIT)?.parse().ok()?,
            metadata.get(DIGEST)?.clone(),
        ))
    };
    let of_front = front.map(|(front, _)| (front.version, front.sha256));
    // The front matter travels with a copy to another key, where the metadata may be of an earlier object.
    match of_front.or_else(of_metadata) {
        Some((_, digest)) if digest == Hash::of(&content).to_string() => Origin::Ours,
        base => Origin::Foreign { content, base },
    }
}

/// Writes what `plan` says, as of a commit. `local` may give the bytes of a file; others are read from the log. Files
/// whose keys are too long for S3 are left out. Done twice, it does the same.
///
/// # Errors
/// If a request fails, or content is gone because the tree is no longer current; the mirror is then partly updated.
pub async fn publish<O: Objects>(
    mirror: &MirrorClient,
    objects: &O,
    plan: &MirrorPlan,
    commit: u64,
    local: &(dyn Fn(&MirrorFile) -> Option<Bytes> + Sync),
) -> Result<(), SessionError> {
    let key_of = |key: &str| format!("{}{key}", mirror.prefix());
    let fits = |key: &String| key.len() <= KEY_MAX;
    let writes = plan.writes.iter().filter(|file| fits(&key_of(&file.key)));
    let writes = writes.map(|file| async {
        let given = local(file).filter(|bytes| Hash::of(bytes) == file.digest());
        let content = match (given, file.content.chunks.first()) {
            (Some(bytes), _) => bytes,
            (None, Some(chunk)) => fetch(objects, chunk).await?,
            (None, None) => Bytes::new(),
        };
        let object = file.object(content, commit);
        mirror
            .put(&key_of(&file.key), object, &file.metadata(commit))
            .await?;
        Ok::<_, SessionError>(())
    });
    stream::iter(writes)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let deletions = plan.deletions.iter().map(|key| key_of(key)).filter(fits);
    let deletions = deletions.map(|key| async move { mirror.delete(&key).await });
    stream::iter(deletions)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{Attributes, Body, Changes, Name, Node};

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut changes = Changes::default();
        for (at, (name, content)) in files.iter().enumerate() {
            let id = NodeId {
                writer: 1,
                ino: 2 + at as u64,
            };
            let node = Node {
                body: Body::File(Content::local(content.as_bytes())),
                attributes: Attributes::default(),
            };
            changes.nodes.insert(id, node);
            changes
                .names
                .insert((ROOT, Name(name.as_bytes().to_vec())), Some(id));
        }
        Tree::of(&changes).unwrap()
    }

    proptest! {
        #[test]
        fn every_name_comes_back_from_its_key(name in prop::collection::vec(any::<u8>(), 1..64)) {
            let key = escape(&name);
            prop_assert!(key.bytes().all(|byte| byte >= 0x20 && byte != 0x7f && byte != b'\\'));
            prop_assert_eq!(unescape(&key), name);
        }
    }

    #[test]
    fn keys_are_readable_and_never_those_of_logs() {
        assert_eq!(escape("Grüße: 100%.md".as_bytes()), "Grüße: 100%25.md");
        assert_eq!(escape(b".ctx"), "%2Ectx");
        assert_eq!(unescape("%2Ectx"), b".ctx");
        assert_eq!(unescape("50% off %+f"), b"50% off %+f");
    }

    #[test]
    fn a_plan_writes_what_changed_and_deletes_what_is_gone() {
        let old = tree(&[("a.md", "1"), ("b.md", "2"), ("c.txt", "3")]);
        let new = tree(&[("a.md", "1"), ("d.MD", "2"), ("c.txt", "4")]);
        let keys = |plan: &MirrorPlan| -> Vec<String> {
            plan.writes.iter().map(|file| file.key.clone()).collect()
        };
        let plan_of = |mode| plan(&files(&old, mode), &files(&new, mode));
        let markdown = plan_of(MirrorMode::Markdown);
        assert_eq!(keys(&markdown), ["d.MD"]);
        assert_eq!(markdown.deletions, ["b.md"]);
        let all = plan_of(MirrorMode::All);
        assert_eq!(keys(&all), ["c.txt", "d.MD"]);
        assert!(plan_of(MirrorMode::Off).is_empty());
    }

    #[test]
    fn an_object_of_ours_is_told_from_one_that_another_tool_wrote() {
        let tree = tree(&[("a.md", "hello")]);
        let file = &files(&tree, MirrorMode::All)["a.md"];
        let object = file.object(Bytes::from_static(b"hello"), 7);
        let text = String::from_utf8(object.to_vec()).unwrap();
        assert!(
            text.contains("version: 7\n  modified: \"1970-01-01T00:00:00"),
            "{text}"
        );
        let nothing = BTreeMap::new();
        assert_eq!(origin("a.md", &object, &nothing), Origin::Ours);
        let edited = Bytes::from(text.replace("hello", "hello you"));
        let found = origin("a.md", &edited, &nothing);
        let Origin::Foreign {
            content,
            base: Some((7, digest)),
        } = found
        else {
            panic!("{found:?}");
        };
        assert_eq!(content, "hello you");
        assert_eq!(digest, file.digest().to_string());
        // Other front matter is content.
        for other in [
            "---\ntitle: x\n---\n",
            "---\nctxbench:\n  version: 1\n---\n",
            "",
        ] {
            let body = Bytes::from(other);
            let content = body.clone();
            let found = origin("a.md", &body, &nothing);
            assert_eq!(
                found,
                Origin::Foreign {
                    content,
                    base: None
                }
            );
        }
        let body = Bytes::from_static(b"data");
        let claimed = |digest: Hash| {
            let pairs = [(COMMIT, "3".to_owned()), (DIGEST, digest.to_string())];
            BTreeMap::from(pairs.map(|(name, value)| (name.to_owned(), value)))
        };
        assert_eq!(
            origin("x.bin", &body, &claimed(Hash::of(b"data"))),
            Origin::Ours
        );
        // A tool that kept the metadata of the object it overwrote.
        let kept = origin("x.bin", &body, &claimed(Hash::of(b"old")));
        assert!(
            matches!(
                kept,
                Origin::Foreign {
                    base: Some((3, _)),
                    ..
                }
            ),
            "{kept:?}"
        );
    }
}
