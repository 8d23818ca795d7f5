//! One batch: what the journal holds, as one moment of the file system.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::{self, Entry, Object};
use super::doubt::{self, Doubtful};
use super::object::Meta;
use super::seal::Seal;
use super::stub::{self, Stub};
use super::{large, layout, object};
use crate::sqlite::db::Db;
use crate::sqlite::{content, names, nodes, xattrs};
use crate::store::{Attr, Ino, Kind, Result};

/// Files up to this many bytes are read with the plan; larger ones when their turn comes.
const READ_AT_ONCE: u64 = 256 * 1024;

/// Files of more bytes are copied by the server where it has them under another name; of others the bytes are sent.
const COPIED_FROM: u64 = large::PART;

/// Bytes of content that one plan holds.
const HELD_MAX: u64 = 32 << 20;

/// A name whose object has to be written.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) parent: Ino,
    pub(super) name: Vec<u8>,
    pub(super) attr: Attr,
    pub(super) key: String,
    /// The component that the name is, where the key ends in another.
    pub(super) other_name: Option<String>,
    /// The object that is there now.
    pub(super) known: Option<Object>,
    /// What the object before had that is no more.
    pub(super) last_version: u64,
    pub(super) last_etag: Option<String>,
    /// Of the content, where the plan holds it or knows it: noted as sent.
    pub(super) sha256: Option<String>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the file's other object says, where the file begins with that one's front matter here.
    pub(super) shown: Option<Meta>,
    pub(super) body: Body,
}

/// Where the bytes of an object come from.
#[derive(Debug)]
pub(super) enum Body {
    /// Here they are.
    Bytes(Vec<u8>),
    /// From the file, a piece at a time, if it is then still as it was.
    File,
    /// From a copy of the file: it has changed while it was read before.
    Restless,
    /// From another object that holds the same file, and is large.
    Copy(Box<Object>),
}

/// What one batch has to do, in the order in which it may become visible: new objects, then what changes
/// objects that others may know, then deletions. So nobody sees a change before the new object that it may refer to;
/// the order in which objects were changed and others created is lost.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) batch: u64,
    pub(super) added: Vec<Put>,
    pub(super) changed: Vec<Put>,
    pub(super) gone: Vec<Object>,
    /// Names that are gone, and whose objects may be there all the same.
    pub(super) doubtful: Vec<Doubtful>,
    /// What the manifest must say of a prefix; `None`: nothing.
    pub(super) directories: BTreeMap<String, Option<Entry>>,
    /// The manifest has something to say: of a directory, or of what an earlier batch could not tell.
    pub(super) must_tell: bool,
    pub(super) inodes: Vec<Ino>,
    pub(super) names: Vec<(Ino, Vec<u8>)>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.names.is_empty() && !self.must_tell
    }
}

/// Takes up everything that is journalled. `restless` are files that have changed while they were read.
pub(super) fn plan(db: &Db, seal: Option<&Seal>, restless: &BTreeSet<Ino>) -> Result<Plan> {
    let batch = cache::end_batch(db)?;
    let mut plan = Plan {
        batch,
        inodes: cache::dirty_inodes(db, batch)?,
        names: cache::dirty_names(db, batch)?,
        ..Plan::default()
    };
    let dirty: BTreeSet<Ino> = plan.inodes.iter().copied().collect();
    let mut touched: BTreeSet<(Ino, Vec<u8>)> = plan.names.iter().cloned().collect();
    let mut directories = BTreeSet::new();
    for ino in &plan.inodes {
        match nodes::find(db, *ino)? {
            Some(attr) if attr.kind == Kind::Directory => {
                directories.insert(*ino);
            }
            _ => {
                let objects = cache::objects_of(db, *ino)?.into_iter();
                touched.extend(objects.map(|object| (object.parent, object.name)));
            }
        }
    }
    let sent = doubt::sent_by_name(db)?;
    let mut held = 0;
    for (parent, name) in touched {
        let is_living = nodes::find(db, parent)?.is_some_and(|attr| attr.nlink > 0);
        let local = if is_living {
            directories.insert(parent);
            names::find(db, parent, &name)?
        } else {
            None
        };
        let known = cache::object(db, parent, &name)?;
        let attr = match local {
            Some(local) => nodes::find(db, local.ino)?,
            None => None,
        };
        match attr {
            Some(attr) if attr.kind != Kind::Directory => {
                let is_same = known.as_ref().is_some_and(|known| known.ino == attr.ino);
                if is_same && !dirty.contains(&attr.ino) {
                    continue;
                }
                let mut put = put(db, seal, parent, name, attr, known, &dirty, &mut held)?;
                if matches!(put.body, Body::File) && restless.contains(&attr.ino) {
                    put.body = Body::Restless;
                }
                if put.known.is_some() {
                    plan.changed.push(put);
                } else {
                    plan.added.push(put);
                }
            }
            other => {
                directories.extend(other.map(|attr| attr.ino));
                if known.is_none() {
                    let keys = sent.get(&(parent, name.clone())).into_iter().flatten();
                    plan.doubtful.extend(keys.map(|key| Doubtful {
                        parent,
                        name: name.clone(),
                        key: key.clone(),
                    }));
                }
                plan.gone.extend(known);
            }
        }
    }
    for dir in directories {
        let is_living = nodes::find(db, dir)?
            .is_some_and(|attr| attr.nlink > 0 && attr.kind == Kind::Directory);
        if !is_living {
            continue;
        }
        let needed = cache::needed_entry(db, dir, seal)?;
        let prefix = cache::ensure_prefix(db, dir, seal)?;
        let said = cache::directory(db, dir)?.and_then(|(_, entry)| entry);
        match (needed, said) {
            (Some(needed), said) if said.as_ref() != Some(&needed) => {
                plan.directories.insert(prefix, Some(needed));
            }
            // What it says is no longer needed, nor true.
            (None, Some(said))
                if said.permissions != cache::DIRECTORY_PERMISSIONS
                    || cache::split_prefix(&prefix)
                        != (said.parent.as_str(), said.name.as_str()) =>
            {
                plan.directories.insert(prefix, None);
            }
            _ => {}
        }
    }
    if !plan.names.is_empty() {
        for (prefix, _) in cache::removed_directories(db)? {
            plan.directories.insert(prefix, None);
        }
    }
    plan.must_tell = !plan.directories.is_empty() || !cache::touched(db)?.is_empty();
    Ok(plan)
}

#[expect(
    clippy::too_many_arguments,
    reason = "one step of the plan, cut out to be read"
)]
fn put(
    db: &Db,
    seal: Option<&Seal>,
    parent: Ino,
    name: Vec<u8>,
    attr: Attr,
    known: Option<Object>,
    dirty: &BTreeSet<Ino>,
    held: &mut u64,
) -> Result<Put> {
    let prefix = cache::ensure_prefix(db, parent, seal)?;
    let component = layout::component(&name, seal);
    let key = match &known {
        Some(known) => known.key.clone(),
        None => cache::free_key(db, &format!("{prefix}{component}"))?,
    };
    // A directory that was renamed may keep the key that the name would have.
    let other_name = (key.strip_prefix(&prefix) != Some(&component)).then_some(component);
    let mut attributes = Vec::new();
    for xattr in xattrs::list(db, attr.ino)? {
        let value = xattrs::get(db, attr.ino, &xattr)?;
        attributes.push((xattr, value));
    }
    let stub: Option<Stub> = stub::find(db, attr.ino)?;
    let elsewhere = cache::objects_of(db, attr.ino)?;
    let same = elsewhere.into_iter().find(|object| {
        object.key != key && layout::is_markdown(&object.name) == layout::is_markdown(&name)
    });
    // Only its name is new, and what it holds has a checksum, which others hold it against.
    let is_named = known.is_none() && !dirty.contains(&attr.ino);
    let same = same.filter(|object| is_named && !object.meta.sha256.is_empty());
    let shown = same.as_ref().map(|object| object.meta.clone());
    let shown = shown.filter(|meta| meta.header > 0 && attr.size == meta.header + meta.size);
    let body = match (attr.kind, same) {
        (Kind::File, Some(object)) if attr.size > COPIED_FROM => Body::Copy(Box::new(object)),
        (Kind::File, _) if stub.is_none() && attr.size <= READ_AT_ONCE && *held < HELD_MAX => {
            let mut bytes = Vec::new();
            // All of it is in the database: nothing is left to be read from a tail.
            content::read(db, attr.ino, 0, attr.size as usize, &mut bytes)?;
            *held += attr.size;
            Body::Bytes(bytes)
        }
        (Kind::File, _) => Body::File,
        (Kind::Symlink, _) => Body::Bytes(nodes::target(db, attr.ino)?),
        _ => Body::Bytes(Vec::new()),
    };
    let sha256 = match &body {
        Body::Bytes(_) if let Some(shown) = &shown => Some(shown.sha256.clone()),
        Body::Bytes(bytes) => Some(object::checksum(bytes)),
        Body::Copy(object) => Some(object.meta.sha256.clone()),
        Body::File | Body::Restless => None,
    };
    if let Some(sha256) = &sha256 {
        doubt::send(db, &key, sha256, parent, &name)?;
    }
    let last_version = cache::last_version(db, &key)?;
    let last_etag = cache::last_etag(db, &key)?;
    Ok(Put {
        parent,
        name,
        attr,
        key,
        other_name,
        known,
        last_version,
        last_etag,
        sha256,
        xattrs: attributes,
        shown,
        body,
    })
}

/// Takes out what can be put now: an object that holds what goes to another of these is overwritten after that has gone
/// up, so that no content is ever without one. What changes places goes last, and together.
pub(super) fn next_in_order(puts: &mut Vec<Put>) -> Vec<Put> {
    let to_come: BTreeSet<Ino> = puts.iter().map(|put| put.attr.ino).collect();
    let waits = |put: &Put| {
        let overwritten = put.known.as_ref().map(|known| known.ino);
        overwritten.is_some_and(|ino| ino != put.attr.ino && to_come.contains(&ino))
    };
    let (waiting, first): (Vec<Put>, Vec<Put>) = std::mem::take(puts).into_iter().partition(waits);
    if first.is_empty() {
        return waiting;
    }
    *puts = waiting;
    first
}

/// What can be put although some files cannot: not what overwrites the only object that one of these has.
pub(super) fn hold_back(mut puts: Vec<Put>, failed: &mut BTreeSet<Ino>) -> Vec<Put> {
    loop {
        let is_held = |put: &Put| {
            put.known
                .as_ref()
                .is_some_and(|known| known.ino != put.attr.ino && failed.contains(&known.ino))
        };
        let (held, kept): (Vec<Put>, Vec<Put>) = puts.into_iter().partition(is_held);
        puts = kept;
        if held.is_empty() {
            return puts;
        }
        failed.extend(held.iter().map(|put| put.attr.ino));
    }
}
