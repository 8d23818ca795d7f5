//! The mark of a memory in its bucket: what the server makes of conditions, and when the bucket was first filled. It is
//! never deleted by a mount: where it is gone, or another, somebody has emptied the bucket.

use std::io::Read;

use bytes::Bytes;
use object_store::Attributes;
use serde::{Deserialize, Serialize};

use super::config::S3Config;
use super::layout::Layout;
use super::object;
use super::remote::{Expect, Remote, RemoteError, S3OpenError};
use super::{Conditions, Inner};
use crate::store::StoreError;

/// What the marks of earlier versions have for an id, and caches for what they know of those.
const WITHOUT_ID: &str = "yes";

/// Who writes a mark where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// The first mount of a memory.
    First,
    /// One that fills an emptied bucket again.
    Again,
}

/// The mark, for those that come after who wrote it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    endpoint: String,
    conditions_are_honoured: bool,
    /// Random, and kept by whoever writes the mark anew: another means that the bucket was emptied in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// All that has to be understood of a mark to know which it is.
#[derive(Debug, Default, Deserialize)]
struct Id {
    #[serde(default)]
    id: Option<String>,
}

fn id_in(mark: &[u8]) -> Option<String> {
    serde_json::from_slice::<Id>(mark).unwrap_or_default().id
}

fn known_as(id: Option<String>) -> String {
    id.unwrap_or_else(|| WITHOUT_ID.to_owned())
}

fn new_id() -> std::io::Result<String> {
    let mut random = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(object::hex(&random))
}

/// The id of the mark that is in the bucket; `None` if none is.
async fn mark(remote: &Remote, layout: &Layout) -> Result<Option<String>, RemoteError> {
    match remote.get(&layout.server()).await {
        Ok(found) => Ok(Some(known_as(id_in(&found.body)))),
        Err(RemoteError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Inner {
    /// The id of the mark that is in the bucket; `None` if none is.
    pub(super) async fn mark(&self) -> Result<Option<String>, StoreError> {
        Ok(mark(&self.remote, &self.layout).await?)
    }
}

/// What the server makes of conditions: as somebody else has found out, or by trying. Also the id of the mark that says
/// so in the bucket, if it is there by now.
pub(super) async fn probe(
    remote: &Remote,
    layout: &Layout,
    config: &S3Config,
    filling: Filling,
) -> Result<(Conditions, Option<String>), S3OpenError> {
    let key = layout.server();
    let found = remote.get(&key).await;
    let known = found.as_ref().ok();
    let known = known.and_then(|found| serde_json::from_slice::<Server>(&found.body).ok());
    if let Some(known) = known.filter(|known| known.endpoint == config.endpoint) {
        let conditions = Conditions {
            are_honoured: known.conditions_are_honoured,
        };
        return Ok((conditions, Some(known_as(known.id))));
    }
    let conditions = try_conditions(remote, layout, config).await?;
    let (id, expect) = match found {
        Ok(found) => (id_in(&found.body), Expect::Etag(found.etag)),
        // Where conditions are ignored, two first mounts at once would each know another id.
        Err(RemoteError::NotFound(_)) if !conditions.are_honoured && filling == Filling::First => {
            (None, Expect::Absent)
        }
        Err(RemoteError::NotFound(_)) => {
            let id = new_id();
            let id = id.map_err(|error| S3OpenError::Cache(format!("/dev/urandom: {error}")))?;
            (Some(id), Expect::Absent)
        }
        // Whether there is a mark is not known: one that is there must stay.
        Err(error) => {
            tracing::debug!(key, %error, "the next mount has to find out by itself");
            return Ok((conditions, None));
        }
    };
    let server = Server {
        endpoint: config.endpoint.clone(),
        conditions_are_honoured: conditions.are_honoured,
        id: id.clone(),
    };
    let body = serde_json::to_vec(&server)
        .map_err(|error| S3OpenError::Cache(format!("writing {key}: {error}")))?;
    let expect = match conditions.are_honoured {
        true => expect,
        false => Expect::Anything,
    };
    let put = remote.put(&key, body.into(), Attributes::new(), &expect);
    let noted = match put.await {
        Ok(_) => Ok(Some(known_as(id))),
        // Somebody else was first, or this was, and its answer was lost.
        Err(RemoteError::Changed(_)) => mark(remote, layout).await,
        Err(error) => Err(error),
    };
    let noted = noted.unwrap_or_else(|error| {
        tracing::debug!(key, %error, "the next mount has to find out by itself");
        None
    });
    Ok((conditions, noted))
}

/// Tries whether the server refuses writes whose condition does not hold.
async fn try_conditions(
    remote: &Remote,
    layout: &Layout,
    config: &S3Config,
) -> Result<Conditions, S3OpenError> {
    let failed = |error: RemoteError| match error {
        RemoteError::Refused(code) => S3OpenError::Credentials {
            endpoint: config.endpoint.clone(),
            source_name: config.access_key.source.clone(),
            bucket: config.bucket.clone(),
            code,
        },
        error => S3OpenError::of_request(&config.endpoint, &error),
    };
    let key = layout.probe();
    let put = |body: &'static [u8], expect: Expect| {
        let key = key.clone();
        async move {
            let body = Bytes::from_static(body);
            remote.put(&key, body, Attributes::new(), &expect).await
        }
    };
    put(b"a", Expect::Anything).await.map_err(failed)?;
    let no_such = "d41d8cd98f00b204e9800998ecf8427e".to_owned();
    let (created, updated) =
        tokio::join!(put(b"b", Expect::Absent), put(b"c", Expect::Etag(no_such)));
    remote
        .delete(std::slice::from_ref(&key))
        .await
        .map_err(failed)?;
    Ok(Conditions {
        are_honoured: matches!(created, Err(RemoteError::Changed(_)))
            && matches!(updated, Err(RemoteError::Changed(_))),
    })
}
