//! The mark of a memory in its bucket: a random id, in an object of its own. No mount deletes it: where it is gone, or
//! another, somebody has emptied the bucket.
//!
//! Earlier builds had the id in what is known of the server, or none. A cache of theirs is held against that, until its
//! first mount by this build has found nothing missing: then the bucket gets such an object with the id that they know.

use std::io::Read;

use bytes::Bytes;
use object_store::Attributes;
use serde::Deserialize;

use super::known;
use super::layout::Layout;
use super::object;
use super::remote::{Expect, Fetched, Remote, RemoteError};
use super::{Conditions, Inner};
use crate::store::{Errno, StoreError};

/// The id where there was none: of a mark by an earlier build, or on a server that ignores conditions.
const WITHOUT_ID: &str = "yes";

/// Who writes a mark where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// The first mount of a memory.
    First,
    /// One that fills an emptied bucket again.
    Again,
}

/// The mark that a cache knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Of its own object.
    Own(String),
    /// Of a build that had no such object.
    InServer(String),
}

/// What a bucket has of the mark that a cache knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Same,
    Gone,
    Other(String),
}

fn id_in(mark: &[u8]) -> String {
    String::from_utf8_lossy(mark).trim().to_owned()
}

/// The id that earlier builds had in what is known of the server.
fn id_in_server(server: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    struct Server {
        #[serde(default)]
        id: Option<String>,
    }
    let server = serde_json::from_slice::<Server>(server).unwrap_or_default();
    server.id.unwrap_or_else(|| WITHOUT_ID.to_owned())
}

fn new_id() -> std::io::Result<String> {
    let mut random = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(object::hex(&random))
}

fn if_there<T>(found: Result<T, RemoteError>) -> Result<Option<T>, RemoteError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(RemoteError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The id in the mark's own object; `None` if there is none.
async fn mark(remote: &Remote, layout: &Layout) -> Result<Option<String>, RemoteError> {
    let found = if_there(remote.get(layout.mark()).await)?;
    Ok(found.map(|found| id_in(&found.body)))
}

async fn put_mark(
    remote: &Remote,
    layout: &Layout,
    id: String,
    conditions: Conditions,
) -> Result<Option<String>, RemoteError> {
    let expect = match conditions.are_honoured {
        true => Expect::Absent,
        false => Expect::Anything,
    };
    let body = Bytes::from(format!("{id}\n"));
    let put = remote.put(layout.mark(), body, Attributes::new(), &expect);
    match put.await {
        Ok(_) => Ok(Some(id)),
        // Somebody else was first, or this was, and its answer was lost.
        Err(RemoteError::Changed(_)) => mark(remote, layout).await,
        Err(error) => Err(error),
    }
}

/// The id of the mark: as it was `found`, or of one that is written where there is none. The inner result says whether
/// the server has told, and taken it.
pub(super) async fn write_mark(
    remote: &Remote,
    layout: &Layout,
    found: Result<Fetched, RemoteError>,
    of_server: Option<&Bytes>,
    conditions: Conditions,
    filling: Filling,
) -> std::io::Result<Result<Option<String>, RemoteError>> {
    // Whether there is a mark is not known if this fails: one that is there must stay.
    let id = match (if_there(found), of_server) {
        (Err(error), _) => return Ok(Err(error)),
        (Ok(Some(found)), _) => return Ok(Ok(Some(id_in(&found.body)))),
        // Those who have known the memory for longer know this one.
        (Ok(None), Some(server)) if filling == Filling::First => id_in_server(server),
        // Where conditions are ignored, two first mounts at once would each know another id.
        (Ok(None), _) if !conditions.are_honoured && filling == Filling::First => {
            WITHOUT_ID.to_owned()
        }
        (Ok(None), _) => new_id()?,
    };
    Ok(put_mark(remote, layout, id, conditions).await)
}

impl Inner {
    /// What the bucket has of the mark that the cache knows.
    pub(super) async fn find_mark(&self, known: &Known) -> Result<Found, StoreError> {
        let (remote, layout) = (&self.remote, &self.layout);
        let (id, found) = match known {
            Known::Own(id) => (id, mark(remote, layout).await?),
            Known::InServer(id) => {
                let found = match mark(remote, layout).await? {
                    Some(found) => Some(found),
                    None => if_there(remote.get(&layout.server()).await)?
                        .map(|server| id_in_server(&server.body)),
                };
                (id, found)
            }
        };
        Ok(match found {
            None => Found::Gone,
            Some(found) if found == *id => Found::Same,
            Some(found) => Found::Other(found),
        })
    }

    /// Whether the bucket has no word of the server any more, which the first mount writes and none removes.
    pub(super) async fn has_lost_server(&self) -> Result<bool, StoreError> {
        let found = if_there(self.remote.get(&self.layout.server()).await)?;
        Ok(found.is_none())
    }

    /// Gives the bucket the mark that it could not be given before, or the one that an earlier build knew an object of
    /// its own, after a look that has found nothing missing.
    pub(super) async fn settle_mark(&self) -> Result<(), StoreError> {
        let (remote, layout) = (&self.remote, &self.layout);
        let found = match self.cache.transaction(known::settings)?.mark {
            Some(Known::Own(_)) => return Ok(()),
            Some(Known::InServer(id)) => match mark(remote, layout).await? {
                Some(found) => Some(found),
                None => put_mark(remote, layout, id, self.conditions).await?,
            },
            None => {
                let server = if_there(remote.get(&layout.server()).await)?;
                let server = server.map(|server| server.body);
                let marked = remote.get(layout.mark()).await;
                let first = Filling::First;
                let written = write_mark(
                    remote,
                    layout,
                    marked,
                    server.as_ref(),
                    self.conditions,
                    first,
                );
                let failed =
                    |error| StoreError::storage(Errno::IO, format!("/dev/urandom: {error}"));
                written.await.map_err(failed)??
            }
        };
        match found {
            Some(found) => self.cache.transaction(|db| known::keep_mark(db, &found)),
            None => Ok(()),
        }
    }
}
