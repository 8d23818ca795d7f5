//! Taking in what other tools wrote into the readable mirror.
//!
//! The import updates the mirror afterwards. If that is cut short, another import takes in the same edits again, which
//! may repeat lines that were appended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::checkout::{Checkout, now};
use crate::client::{Client, MirrorClient};
use crate::config::MirrorMode;
use crate::history::{At, HistoryError, read, tree_at};
use crate::mirror::{Origin, digest_of, files, origin, unescape};
use crate::objects::Fault;
use crate::text;
use crate::tree::{Content, Node, Tree};

/// Objects that are read at once.
const AT_ONCE: usize = 8;

/// How late the mirror may be: a file that is missing in it was removed only if it is older than this. One hour.
pub const LATE: Duration = Duration::from_secs(3600);

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The commit; `None` if there was nothing to take in.
    pub commit: Option<u64>,
    /// Paths of new files.
    pub added: Vec<String>,
    /// Paths of changed files.
    pub changed: Vec<String>,
    /// Paths of removed files.
    pub removed: Vec<String>,
    /// What was left out or replaced, one line each.
    pub notes: Vec<String>,
}

/// The path that a key below the mirror stands for; `None` if no file can have it.
fn path_of(key: &str) -> Option<Vec<u8>> {
    let names: Vec<Vec<u8>> = key.split('/').map(unescape).collect();
    let is_name = |name: &Vec<u8>| {
        !name.is_empty()
            && name.len() <= 255
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, b'/' | 0))
    };
    names.iter().all(is_name).then(|| names.join(&b'/'))
}

fn content_at<'a>(tree: &'a Tree, path: &[u8]) -> Option<&'a Content> {
    tree.node(tree.find(path)?).and_then(Node::content)
}

/// Commits what other tools wrote into the mirror since it was last published: new, changed and, if asked for, removed
/// files. With `remove`, files that are older than this, such as [`LATE`], and missing in the mirror are removed: right
/// only for a mirror that was published all the time. Files that both changed are merged as two writers' are; where that
/// is not possible the import replaces the newer version, which stays in the history. All that is taken in is held in
/// memory.
///
/// # Errors
/// [`HistoryError`]. After a [`Fault`] the commit may be in the log.
pub async fn import(
    client: &Client,
    mirror: &MirrorClient,
    mode: MirrorMode,
    remove: Option<Duration>,
    writer: &str,
) -> Result<Imported, HistoryError> {
    let mut done = Imported::default();
    let listed = mirror.list(mirror.prefix()).await?;
    let mut checkout = Checkout::open(client, writer).await?;
    let objects = listed.into_iter().filter_map(|object| {
        let key = object.key.strip_prefix(mirror.prefix())?.to_owned();
        // A key that ends in `/` is how some tools mark a directory.
        (!key.starts_with(".ctx/") && !key.ends_with('/')).then_some((key, object.modified))
    });
    let mut objects = stream::iter(objects)
        .map(|(key, modified)| async move {
            let object = mirror.get(&format!("{}{key}", mirror.prefix())).await?;
            Ok::<_, Fault>((key, modified, object))
        })
        .buffered(AT_ONCE);
    let (mut present, mut is_published) = (BTreeSet::new(), false);
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    while let Some((key, modified, object)) = objects.try_next().await? {
        let Some(object) = object else { continue };
        is_published |= object.commit().is_some();
        present.insert(key.clone());
        let Origin::Foreign { content, base } = origin(&key, &object.body, &object.metadata) else {
            continue;
        };
        let Some(path) = path_of(&key) else {
            done.notes
                .push(format!("{key} is left out: no file can have this name"));
            continue;
        };
        let name = String::from_utf8_lossy(&path).into_owned();
        let there = content_at(checkout.tree(), &path).cloned();
        let content = match &there {
            Some(there) if there.same_bytes(&Content::local(&content)) => continue,
            Some(there) => match merged(client, base, &path, &content, there).await? {
                Some(merged) => merged,
                None => {
                    let note = "replaces a newer version, which is in the history";
                    done.notes
                        .push(format!("{name} {note} (`ctxbench s3 log`)"));
                    content
                }
            },
            None => content,
        };
        match (checkout.write(&path, &content, modified), there) {
            (Err(occupied), _) => {
                done.notes.push(format!("{key} is left out: {occupied}"));
                continue;
            }
            (Ok(()), Some(_)) => done.changed.push(name),
            (Ok(()), None) => done.added.push(name),
        }
        taken.extend(object.etag.map(|etag| (key, etag)));
    }
    if let Some(late) = remove {
        let cutoff = now().saturating_sub(late.as_nanos() as i64);
        match tree_at(client, At::Time(cutoff)).await {
            _ if !is_published => {
                let note = "nothing is removed: the mirror has no object of ctxbench";
                done.notes.push(note.to_owned());
            }
            Err(HistoryError::TooOld(_)) => {
                let note = "nothing is removed: the history is too short to tell removed files from new ones";
                done.notes.push(note.to_owned());
            }
            Err(error) => return Err(error),
            Ok((_, old)) => {
                let missing = files(&old, mode).into_keys();
                let missing = missing.filter(|key| !present.contains(key));
                for path in missing.filter_map(|key| path_of(&key)) {
                    let is_old = content_at(checkout.tree(), &path) == content_at(&old, &path);
                    if is_old && checkout.remove(&path) {
                        done.removed
                            .push(String::from_utf8_lossy(&path).into_owned());
                    }
                }
            }
        }
    }
    done.commit = checkout.commit(client).await?.number;
    if let Some(commit) = done.commit
        && let Err(error) = update(client, mirror, checkout.tree(), commit, taken).await
    {
        let fix = "import again only after the mirror was published";
        done.notes
            .push(format!("the mirror was not updated: {error} ({fix})"));
    }
    Ok(done)
}

/// An imported file merged with the version `there`, if both come from one commit.
async fn merged(
    client: &Client,
    base: Option<(u64, String)>,
    path: &[u8],
    ours: &Bytes,
    there: &Content,
) -> Result<Option<Bytes>, HistoryError> {
    let Some((since, digest)) = base else {
        return Ok(None);
    };
    if digest == digest_of(there).to_string() {
        return Ok(Some(ours.clone()));
    }
    let tree = match tree_at(client, At::Commit(since)).await {
        Ok((_, tree)) => tree,
        Err(HistoryError::TooOld(_) | HistoryError::NoCommit(..)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(base) = content_at(&tree, path) else {
        return Ok(None);
    };
    let (base, theirs) = (read(client, base).await?, read(client, there).await?);
    let merged = text::merge(Some(&base), ours, &theirs, false);
    Ok(merged.map(Bytes::from))
}

/// Replaces objects that were taken in by those of the commit, unless another tool wrote them again.
async fn update(
    client: &Client,
    mirror: &MirrorClient,
    tree: &Tree,
    commit: u64,
    taken: BTreeMap<String, String>,
) -> Result<(), HistoryError> {
    let files: BTreeMap<Vec<u8>, _> = files(tree, MirrorMode::All)
        .into_values()
        .filter_map(|file| Some((path_of(&file.key)?, file)))
        .collect();
    for (key, etag) in taken {
        let Some(file) = path_of(&key).and_then(|path| files.get(&path)) else {
            continue;
        };
        let object = file.object(read(client, &file.content).await?, commit);
        let key = format!("{}{key}", mirror.prefix());
        mirror
            .replace(&key, object, &file.metadata(commit), &etag)
            .await?;
    }
    Ok(())
}
