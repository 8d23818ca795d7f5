//! Checking a log: everything that can be reached, against the digests that the log gives.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};

use crate::client::{Client, MirrorClient};
use crate::config::MirrorMode;
use crate::format::inline_bytes;
use crate::history::{HistoryError, Walk, checkpoint};
use crate::mirror::{Origin, files, origin};
use crate::objects::Objects;
use crate::session::{SessionError, fetch};
use crate::tree::{Changes, Chunk, Node, Place};

/// Chunks that are read at once; each holds up to 8 MiB in memory.
const AT_ONCE: usize = 4;

/// What was found in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Commits that were read.
    pub commits: u64,
    /// Checkpoints that were compared with the commits.
    pub checkpoints: u64,
    /// Files, directories and links in the newest tree.
    pub nodes: u64,
    /// Chunks that were read, each once.
    pub chunks: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Damage, one line each.
    pub problems: Vec<String>,
    /// Differences between the mirror and the newest tree, one line each: they are no damage.
    pub notes: Vec<String>,
}

fn chunks(changes: &Changes) -> impl Iterator<Item = &Chunk> {
    changes
        .nodes
        .values()
        .filter_map(Node::content)
        .flat_map(|content| &content.chunks)
}

/// Reads everything that can be reached from the oldest kept state to the newest, and compares it with its digests.
/// With a mirror, it is compared with the newest tree. Nothing is written.
///
/// # Errors
/// If a request fails. Damage is no error, but a problem in the answer.
pub async fn check(
    client: &Client,
    mirror: Option<(&MirrorClient, MirrorMode)>,
) -> Result<Checked, HistoryError> {
    let mut found = Checked::default();
    let mut walk = match Walk::from_oldest(client).await {
        Ok(walk) => walk,
        Err(SessionError::Broken(broken)) => {
            found.problems.push(broken.to_string());
            return Ok(found);
        }
        Err(error) => return Err(error.into()),
    };
    let checkpoints: BTreeSet<u64> = client.checkpoints().await?.into_iter().collect();
    let mut wanted: BTreeSet<Chunk> = chunks(&walk.tree().to_changes()).copied().collect();
    loop {
        let step = match walk.next().await {
            Ok(Some(step)) => step,
            Ok(None) => break,
            Err(SessionError::Broken(broken)) => {
                let reason = "what was committed after it cannot be reached";
                found.problems.push(format!("{broken}; {reason}"));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let number = step.commit.number;
        for chunk in chunks(&step.commit.changes) {
            match chunk.place {
                Place::Inline { commit, .. } if commit == number => {
                    found.chunks += 1;
                    found.bytes += u64::from(chunk.length);
                    if inline_bytes(&step.object, chunk).is_none() {
                        let reason = "an inline file differs from its digest";
                        found.problems.push(format!("commit {number}: {reason}"));
                    }
                }
                _ => drop(wanted.insert(*chunk)),
            }
        }
        walk.apply(&step);
        found.commits += 1;
        if checkpoints.contains(&number) {
            found.checkpoints += 1;
            let same = match checkpoint(client, number).await {
                Ok(Some((own, tree))) => own.hash == walk.head().hash && tree == *walk.tree(),
                // Garbage collection removed it meanwhile.
                Ok(None) => true,
                Err(SessionError::Broken(_)) => false,
                Err(error) => return Err(error.into()),
            };
            if !same {
                let problem = format!("checkpoint {number} differs from the commits up to it");
                found.problems.push(problem);
            }
        }
    }
    found.nodes = walk.tree().len() as u64;
    let mut fetched = stream::iter(&wanted)
        .map(|chunk| async move { (chunk, fetch(client, chunk).await) })
        .buffer_unordered(AT_ONCE);
    while let Some((chunk, result)) = fetched.next().await {
        match result {
            Ok(bytes) => {
                found.chunks += 1;
                found.bytes += bytes.len() as u64;
            }
            Err(SessionError::Fault(crate::objects::Fault::Unknown(reason))) => {
                return Err(SessionError::Fault(crate::objects::Fault::Unknown(reason)).into());
            }
            Err(error) => found
                .problems
                .push(format!("chunk {:?}: {error}", chunk.hash)),
        }
    }
    if let Some((mirror, mode)) = mirror {
        compare_mirror(&walk, mirror, mode, &mut found.notes).await?;
    }
    Ok(found)
}

async fn compare_mirror(
    walk: &Walk<'_, Client>,
    mirror: &MirrorClient,
    mode: MirrorMode,
    notes: &mut Vec<String>,
) -> Result<(), HistoryError> {
    let mut files = files(walk.tree(), mode);
    for object in mirror.list(mirror.prefix()).await? {
        let key = object.key.strip_prefix(mirror.prefix()).unwrap_or_default();
        if key.starts_with(".ctx/") {
            continue;
        }
        let file = files.remove(key);
        let Some(read) = mirror.get(&object.key).await? else {
            continue;
        };
        let note = match (origin(key, &read.body, &read.metadata), file) {
            (Origin::Foreign { .. }, _) => "was written by another tool (`ctxbench s3 import`)",
            (Origin::Ours, None) => "mirrors a file that is gone",
            (Origin::Ours, Some(file)) => match file.is_mirrored_by(&read) {
                true => continue,
                false => "mirrors an earlier version",
            },
        };
        notes.push(format!("{} {note}", object.key));
    }
    let missing = files
        .keys()
        .map(|key| format!("{}{key} is missing", mirror.prefix()));
    notes.extend(missing);
    Ok(())
}
