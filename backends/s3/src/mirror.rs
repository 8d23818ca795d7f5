//! The readable mirror: files as objects that people and other tools can read, Markdown with front matter; and the import
//! of what other tools wrote there.
//!
//! It follows the log and is never read for truth. A sealed memory has no mirror: it would show what encryption hides.
//! The import updates the mirror. If that is cut short, another import finds in the log that it has the edits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use crate::checkout::{Checkout, now};
use crate::client::{Client, ListedObject, MirrorClient, MirrorObject, Precondition};
use crate::config::MirrorMode;
use crate::history::{HistoryError, HistoryPoint, Result, walk_to};
use crate::objects::{Fault, Objects};
use crate::reader::{SessionError, Walk, read};
use crate::text::{self, is_markdown};
use crate::tree::{Body, CHUNK, Content, Hash, Node, NodeId, ROOT, Tree};
use crate::view::is_possible;

/// Files up to this many bytes are mirrored: one chunk.
pub const MIRROR_MAX: u64 = CHUNK;

/// The longest key of S3, in bytes.
const KEY_MAX: usize = 1024;

/// How late the mirror may be: a file that is missing in it was removed only if it is older than this. One hour.
pub const LATE: Duration = Duration::from_secs(3600);

/// Requests that are in flight at once.
const AT_ONCE: usize = 8;

/// How often an object that changes meanwhile is written.
const WRITES: u32 = 3;

/// The metadata that holds the commit which was mirrored, and the digest of the file.
const COMMIT: &str = "ctx-commit";
const DIGEST: &str = "ctx-sha256";

/// Bytes that front matter takes at most.
const FRONT_MAX: u64 = 1024;

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

/// The writes and deletions that turn the mirror of one tree into that of another, by key; `None` deletes.
pub type MirrorPlan = BTreeMap<String, Option<MirrorFile>>;

/// The front matter of a mirrored Markdown file: the commit, times as in RFC 3339, and the digest of what follows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontMatter {
    version: u64,
    #[serde(rename = "modified")]
    _modified: String,
    #[serde(rename = "created")]
    _created: String,
    sha256: String,
}

/// A name as a component of a key: `%XX` is a byte that is not UTF-8, that keys cannot hold, or the first of `.ctx`.
pub fn escape(name: &[u8]) -> String {
    let mut key = String::with_capacity(name.len());
    let push = |key: &mut String, byte: u8| key.push_str(&format!("%{byte:02X}"));
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_ascii_control() || "%\\".contains(c) { push(&mut key, c as u8) } else { key.push(c) }
        }
        let invalid = chunk.invalid().iter();
        invalid.for_each(|byte| push(&mut key, *byte));
    }
    if key == ".ctx" {
        key.replace_range(..1, "%2E");
    }
    key
}

/// The name in a component of a key; a `%` that escapes nothing stands for itself.
pub fn unescape(component: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(component).collect()
}

/// The files that are mirrored, by key.
pub type Files = BTreeMap<String, MirrorFile>;

/// The files of a tree that are mirrored.
pub fn files(tree: &Tree, mode: MirrorMode) -> Files {
    let mut files = Files::new();
    if mode == MirrorMode::Off {
        return files;
    }
    tree.visit(ROOT, Vec::new(), |path, id| {
        let is_wanted = mode == MirrorMode::All || is_markdown(path);
        if let Some(file) = MirrorFile::of(tree, path, id).filter(|_| is_wanted) {
            files.insert(file.key.clone(), file);
        }
    });
    files
}

/// What a mirror shows of each file, by key: less than a [`MirrorFile`], because a mount holds it as long as it runs.
#[derive(Clone, Debug, Default)]
pub struct MirrorIndex(BTreeMap<Box<str>, State>);

/// The digest of a file, and its times of change and creation.
type State = (Hash, i64, i64);

impl From<&Files> for MirrorIndex {
    fn from(files: &Files) -> Self {
        Self(files.iter().map(|(key, file)| (key.as_str().into(), file.state())).collect())
    }
}

/// The plan that turns the mirror of `old` into that of `new`, which is from [`files`].
pub fn plan(old: &MirrorIndex, new: &Files) -> MirrorPlan {
    let is_changed = |file: &&MirrorFile| old.0.get(file.key.as_str()) != Some(&file.state());
    let writes = new.values().filter(is_changed).cloned();
    let deletions = old.0.keys().filter(|key| !new.contains_key(&***key));
    let deletions = deletions.map(|key| (key.to_string(), None));
    let writes = writes.map(|file| (file.key.clone(), Some(file)));
    writes.chain(deletions).collect()
}

/// The plan that turns a mirror of unknown state into that of `new`. It names every file, and every other listed object
/// that a mount with this mode may have written.
pub fn plan_all(listed: &[ListedObject], new: &Files, mode: MirrorMode) -> MirrorPlan {
    let is_possible = |object: &&ListedObject| {
        let is_in_scope = mode == MirrorMode::All || is_markdown(object.key.as_bytes());
        is_in_scope && object.size <= MIRROR_MAX + FRONT_MAX && path_of(&object.key).is_some()
    };
    let others = listed.iter().filter(is_possible);
    let others = others.map(|object| (object.key.clone(), None));
    let files = new.values().cloned();
    let files = files.map(|file| (file.key.clone(), Some(file)));
    others.chain(files).collect()
}

/// The digest of a content of at most one chunk.
pub(crate) fn digest_of(content: &Content) -> Hash {
    let first = content.chunks.first();
    first.map_or_else(|| Hash::of(b""), |chunk| chunk.hash)
}

impl MirrorFile {
    /// The file at a path, if it can be mirrored.
    pub(crate) fn of(tree: &Tree, path: &[u8], node: NodeId) -> Option<Self> {
        let Node { body, attributes } = tree.node(node)?;
        let Body::File(content) = body else {
            return None;
        };
        let names = path.split(|byte| *byte == b'/').map(escape);
        let file = Self {
            key: names.collect::<Vec<_>>().join("/"),
            node,
            content: content.clone(),
            modified: attributes.mtime,
            created: attributes.btime,
        };
        (content.size <= MIRROR_MAX).then_some(file)
    }

    fn state(&self) -> State {
        (self.digest(), self.modified, self.created)
    }

    /// The digest of the content.
    pub fn digest(&self) -> Hash {
        digest_of(&self.content)
    }

    /// The metadata of the object that mirrors the file as of a commit.
    pub fn metadata(&self, commit: u64) -> [(&'static str, String); 2] {
        let digest = self.digest().to_string();
        [(COMMIT, commit.to_string()), (DIGEST, digest)]
    }

    /// Whether an object mirrors the file with that content already, as of any commit.
    fn is_shown_by(&self, there: &MirrorObject, content: &Bytes) -> bool {
        let shown = commit_of(there).map(|commit| self.object(content.clone(), commit));
        shown.is_some_and(|shown| shown == there.body)
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
    let head = object[..object.len().min(FRONT_MAX as usize)].utf8_chunks().next()?;
    let head = head.valid();
    let end = head.strip_prefix(OPENING)?.find(CLOSING)? + OPENING.len();
    let block: Block = yaml_serde::from_str(&head["---\n".len()..end]).ok()?;
    Some((block.ctxbench, end + CLOSING.len()))
}

/// The writer of an object of the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We did, and its content, which has this digest, is unchanged.
    Ours(Hash),
    /// Another tool.
    Foreign {
        /// The file without our front matter.
        content: Bytes,
        /// The commit, and the digest of the file in it, that the tool began with, if the object tells.
        base: Option<(u64, String)>,
    },
}

/// The writer of an object: another tool may keep our metadata or front matter, but not the digest.
pub fn origin(key: &str, body: &Bytes, metadata: &BTreeMap<String, String>) -> Origin {
    let is_markdown = is_markdown(key.as_bytes());
    let front = is_markdown.then(|| front_matter(body)).flatten();
    let content = body.slice(front.as_ref().map_or(0, |(_, length)| *length)..);
    let commit = || metadata.get(COMMIT)?.parse().ok();
    let of_metadata = || commit().zip(metadata.get(DIGEST).cloned());
    let of_front = front.map(|(front, _)| (front.version, front.sha256));
    let digest = Hash::of(&content);
    // The front matter travels with a copy to another key, where the metadata may be of an earlier object.
    match of_front.or_else(of_metadata) {
        Some((_, given)) if given == digest.to_string() => Origin::Ours(digest),
        base => Origin::Foreign { content, base },
    }
}

/// Writes what `plan` says, as of a commit, and leaves alone what other tools wrote and what shows a later commit. `local`
/// may give the bytes of a file; others are read from the log. Files whose keys are too long for S3 are left out. Done
/// twice, it does the same.
/// Fails if a request does, or content is gone because the tree is no longer current; the mirror is then partly updated.
pub async fn publish<O: Objects>(
    mirror: &MirrorClient,
    objects: &O,
    plan: &MirrorPlan,
    commit: u64,
    local: &(dyn Fn(&MirrorFile) -> Option<Bytes> + Sync),
) -> Result<(), SessionError> {
    let changes = plan.iter().map(|(key, file)| async move {
        if mirror.key(key).len() > KEY_MAX {
            return Ok(());
        }
        let Some(file) = file else {
            return Ok(remove(mirror, key, commit).await?);
        };
        let given = local(file).filter(|bytes| Hash::of(bytes) == file.digest());
        let mut content = given;
        for _ in 0..WRITES {
            let there = match mirror.get_ours(key).await {
                // No mount writes an object that is too long: it is another tool's.
                Err(Fault::Unreadable(_)) => return Ok(()),
                there => there?,
            };
            if there.as_ref().is_some_and(|it| !may_replace(key, it, commit)) {
                return Ok(());
            }
            let content = match &content {
                Some(bytes) => bytes.clone(),
                None => content.insert(read(objects, &file.content).await?).clone(),
            };
            let precondition = match &there {
                None => Precondition::Absent,
                Some(there) if file.is_shown_by(there, &content) => return Ok(()),
                Some(there) => (there.etag.as_deref()).map_or(Precondition::None, Precondition::Etag),
            };
            let (object, metadata) = (file.object(content, commit), file.metadata(commit));
            if mirror.put(key, object, &metadata, precondition).await? {
                return Ok(());
            }
        }
        // Another writer was faster each time; the next attempt compares its commits.
        Err(Fault::Unknown(format!("{key} changed during each of several reads")).into())
    });
    let changes = stream::iter(changes).buffer_unordered(AT_ONCE);
    changes.try_collect().await
}

/// Whether an object is of a mount, and of no later commit.
fn may_replace(key: &str, there: &MirrorObject, commit: u64) -> bool {
    let is_ours = matches!(origin(key, &there.body, &there.metadata), Origin::Ours(_));
    is_ours && commit_of(there).is_none_or(|shown| shown <= commit)
}

/// The commit whose state an object shows.
fn commit_of(there: &MirrorObject) -> Option<u64> {
    let of_front = || Some(front_matter(&there.body)?.0.version);
    let of_metadata = || there.metadata.get(COMMIT)?.parse().ok();
    of_metadata().or_else(of_front)
}

/// Removes an object that may be replaced. What cannot be read stays.
async fn remove(mirror: &MirrorClient, key: &str, commit: u64) -> std::result::Result<(), Fault> {
    match mirror.get_ours(key).await {
        Ok(Some(there)) if may_replace(key, &there, commit) => mirror.delete(key).await,
        Ok(_) | Err(Fault::Refused(_) | Fault::Unreadable(_)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The commit; `None` if there was nothing to take in.
    pub commit: Option<u64>,
    /// Paths of new files.
    pub added: Vec<String>,
    /// Paths of changed files.
    pub changed: Vec<String>,
    /// Paths of removed files.
    pub removed: Vec<String>,
    /// Remarks on what was left out or replaced, one line each.
    pub notes: Vec<String>,
}

/// The path that a key below the mirror stands for; `None` if no file can have it.
fn path_of(key: &str) -> Option<Vec<u8>> {
    let names: Vec<Vec<u8>> = key.split('/').map(unescape).collect();
    let are_possible = names.iter().all(|name| is_possible(name));
    are_possible.then(|| names.join(&b'/'))
}

/// Commits what other tools wrote into the mirror since it was last published: new, changed and, if asked for, removed
/// files. With `remove`, files that are older than this, such as [`LATE`], and missing in the mirror are removed: this is
/// right only if mounts have published the mirror since the memory was created. A file that changed on both sides is
/// merged like the versions of two writers. Where this is not possible, the import replaces the newer version, which
/// stays in the history. All imported content is held in memory.
/// After a [`Fault`] the commit may be in the log.
pub async fn import(
    client: &Client,
    mirror: &MirrorClient,
    mode: MirrorMode,
    remove: Option<Duration>,
    writer: &str,
) -> Result<ImportReport> {
    let mut done = ImportReport::default();
    let mut listed = mirror.list("").await?;
    // A key that ends in `/` is how some tools mark a directory.
    listed.retain(|object| !object.key.ends_with('/'));
    let mut checkout = Checkout::open(client, writer).await?;
    let reads = listed.into_iter().map(|it| async move {
        let object = mirror.get(&it.key).await?;
        Ok::<_, Fault>((it, object))
    });
    let mut objects = stream::iter(reads).buffered(AT_ONCE);
    let (mut present, mut is_published) = (BTreeSet::new(), false);
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    while let Some((ListedObject { key, modified, .. }, object)) = objects.try_next().await? {
        let Some(object) = object else { continue };
        present.insert(key.clone());
        let (content, base) = match origin(&key, &object.body, &object.metadata) {
            Origin::Ours(_) => {
                is_published = true;
                continue;
            }
            Origin::Foreign { content, base } => (content, base),
        };
        is_published |= base.is_some();
        let Some(path) = path_of(&key) else {
            let note = format!("{key} is skipped: it is not a valid file name");
            done.notes.push(note);
            continue;
        };
        let name = String::from_utf8_lossy(&path).into_owned();
        let there = checkout.tree().content_at(&path).cloned();
        let edited = match &there {
            Some(there) => merged(client, base, &path, &content, there).await?,
            None => Some(content.clone()),
        };
        let content = edited.unwrap_or_else(|| {
            let note = "replaces a newer version, which is in the history (`ctxbench s3 log`)";
            done.notes.push(format!("{name} {note}"));
            content
        });
        let local = Content::local(&content);
        if there.as_ref().is_some_and(|it| it.same_bytes(&local)) {
            continue;
        }
        match (checkout.write(&path, &content, modified), there) {
            (Err(occupied), _) => {
                done.notes.push(format!("{key} is skipped: {occupied}"));
                continue;
            }
            (Ok(()), Some(_)) => done.changed.push(name),
            (Ok(()), None) => done.added.push(name),
        }
        taken.extend(object.etag.map(|etag| (key, etag)));
    }
    if let Some(late) = remove {
        let cutoff = now().saturating_sub(late.as_nanos() as i64);
        match walk_to(client, HistoryPoint::Time(cutoff)).await {
            _ if !is_published => {
                let note = "nothing is removed: no object of the mirror was written by ctxbench";
                done.notes.push(note.to_owned());
            }
            Err(HistoryError::TooOld(_)) => {
                let reason = "the history is too short to tell removed files from new ones";
                done.notes.push(format!("nothing is removed: {reason}"));
            }
            Err(error) => return Err(error),
            Ok(Walk { tree: old, .. }) => {
                let missing = files(&old, mode).into_keys();
                let missing = missing.filter(|key| !present.contains(key));
                for path in missing.filter_map(|key| path_of(&key)) {
                    let is_old = checkout.tree().content_at(&path) == old.content_at(&path);
                    if is_old && checkout.remove(&path) {
                        let path = String::from_utf8_lossy(&path);
                        done.removed.push(path.into_owned());
                    }
                }
            }
        }
    }
    done.commit = checkout.commit(client).await?.number;
    if let Some(commit) = done.commit
        && let Err(error) = update(client, mirror, checkout.tree(), commit, taken).await
    {
        let fix = "wait until a mount has published the mirror, and import again";
        done.notes.push(format!("the mirror was not updated: {error} ({fix})"));
    }
    Ok(done)
}

/// An imported file merged with the version `there`, or that version if the log has the edit; `None` if both must stay.
async fn merged(
    client: &Client,
    base: Option<(u64, String)>,
    path: &[u8],
    ours: &Bytes,
    there: &Content,
) -> Result<Option<Bytes>> {
    let edited = Content::local(ours);
    let Some((since, digest)) = base else {
        return Ok(there.same_bytes(&edited).then(|| ours.clone()));
    };
    if there.same_bytes(&edited) || digest == digest_of(there).to_string() {
        return Ok(Some(ours.clone()));
    }
    let mut walk = match walk_to(client, HistoryPoint::Commit(since)).await {
        Ok(walk) => walk,
        Err(HistoryError::TooOld(_) | HistoryError::NoCommit(..)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(base) = walk.tree.content_at(path).cloned() else {
        return Ok(None);
    };
    let (base, theirs) = (read(client, &base).await?, read(client, there).await?);
    let merge = |theirs: &[u8]| text::merge(Some(&base), ours, theirs, false);
    while let Some(step) = walk.next().await? {
        let before = walk.tree.content_at(path).cloned();
        walk.apply(&step);
        let Some(after) = walk.tree.content_at(path) else {
            continue;
        };
        let mut is_taken = after.same_bytes(&edited);
        if let Some(before) = before.filter(|before| !before.same_bytes(after)) {
            let merged = merge(&read(client, &before).await?);
            is_taken |= merged.is_some_and(|it| after.same_bytes(&Content::local(&it)));
        }
        if is_taken {
            return Ok(Some(theirs));
        }
    }
    Ok(merge(&theirs).map(Bytes::from))
}

/// Replaces objects that were taken in by those of the commit, unless another tool wrote them again.
async fn update(
    client: &Client,
    mirror: &MirrorClient,
    tree: &Tree,
    commit: u64,
    taken: BTreeMap<String, String>,
) -> Result<()> {
    for (key, etag) in taken {
        let file = path_of(&key).and_then(|path| MirrorFile::of(tree, &path, tree.find(&path)?));
        let Some(file) = file else { continue };
        let object = file.object(read(client, &file.content).await?, commit);
        let metadata = file.metadata(commit);
        let precondition = Precondition::Etag(&etag);
        mirror.put(&key, object, &metadata, precondition).await?;
    }
    Ok(())
}
