//! What the server makes of conditions: tried once for each memory, and noted in its bucket.

use std::borrow::Cow;

use bytes::Bytes;
use object_store::{Attribute, Attributes};
use serde::{Deserialize, Serialize};

use super::Conditions;
use super::config::S3Config;
use super::known::HONOURED;
use super::layout::Layout;
use super::mark::{Filling, write_mark};
use super::remote::{Expect, Remote, RemoteError, S3OpenError};

/// What is known of the server, for those that come after who has tried. Earlier builds refuse what they do not know.
#[derive(Debug, Serialize, Deserialize)]
struct Server {
    endpoint: String,
    conditions_are_honoured: bool,
}

/// Whether conditions of uploads in parts are honoured, in the metadata of that; those of earlier builds, which have not
/// tried, say nothing.
const OF_PARTS: Attribute = Attribute::Metadata(Cow::Borrowed("ctx-conditions-of-parts"));

/// What the server makes of conditions: as somebody else has found out, or by trying. Also the id of the mark of the
/// bucket, if it is there by now.
pub(super) async fn probe(
    remote: &Remote,
    layout: &Layout,
    config: &S3Config,
    filling: Filling,
) -> Result<(Conditions, Option<String>), S3OpenError> {
    let key = layout.server();
    let (found, marked) = tokio::join!(remote.get(&key), remote.get(layout.mark()));
    let known = found.as_ref().ok();
    let known = known.and_then(|found| serde_json::from_slice::<Server>(&found.body).ok());
    let known = known.filter(|known| known.endpoint == config.endpoint);
    let of_parts = found.as_ref().ok();
    let of_parts = of_parts.and_then(|found| found.attributes.get(&OF_PARTS));
    let of_parts = of_parts.is_some_and(|word| word.as_ref() == HONOURED);
    let is_noted = known.is_some();
    let conditions = match known {
        Some(known) => Conditions {
            are_honoured: known.conditions_are_honoured,
            are_honoured_of_parts: of_parts,
        },
        None => try_conditions(remote, layout, config).await?,
    };
    let later = |error: RemoteError| {
        tracing::debug!(%error, "the next mount has to find out by itself");
        None
    };
    let of_server = found.as_ref().ok().map(|found| &found.body);
    let mark = write_mark(remote, layout, marked, of_server, conditions, filling).await;
    let mark = mark.map_err(|error| S3OpenError::Cache(format!("/dev/urandom: {error}")))?;
    let mark = mark.unwrap_or_else(later);
    if is_noted {
        return Ok((conditions, mark));
    }
    let expect = match found {
        _ if !conditions.are_honoured => Expect::Anything,
        Ok(found) => Expect::Etag(found.etag),
        Err(RemoteError::NotFound(_)) => Expect::Absent,
        Err(error) => {
            later(error);
            return Ok((conditions, mark));
        }
    };
    let server = Server {
        endpoint: config.endpoint.clone(),
        conditions_are_honoured: conditions.are_honoured,
    };
    let body = serde_json::to_vec(&server)
        .map_err(|error| S3OpenError::Cache(format!("writing {key}: {error}")))?;
    let mut attributes = Attributes::new();
    if conditions.are_honoured_of_parts {
        attributes.insert(OF_PARTS, HONOURED.into());
    }
    let put = remote.put(&key, body.into(), attributes, &expect);
    match put.await {
        // Somebody else was first, or this was, and its answer was lost.
        Ok(_) | Err(RemoteError::Changed(_)) => {}
        Err(error) => {
            later(error);
        }
    }
    Ok((conditions, mark))
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
    let expected = Expect::Etag(no_such);
    let (created, updated, are_honoured_of_parts) = tokio::join!(
        put(b"b", Expect::Absent),
        put(b"c", expected.clone()),
        refuses_parts(remote, &key, &expected)
    );
    remote
        .delete(std::slice::from_ref(&key))
        .await
        .map_err(failed)?;
    Ok(Conditions {
        are_honoured: matches!(created, Err(RemoteError::Changed(_)))
            && matches!(updated, Err(RemoteError::Changed(_))),
        are_honoured_of_parts,
    })
}

/// Whether the server refuses to make parts an object on a condition that does not hold. One that cannot say so is asked
/// what is there before each.
async fn refuses_parts(remote: &Remote, key: &str, expected: &Expect) -> bool {
    let made = async {
        let upload = remote.start_parts(key, Attributes::new()).await?;
        let part = Bytes::from_static(b"d");
        let part = remote.put_part(key, &upload, 0, part).await?;
        let made = remote.complete_parts(key, &upload, &[part], expected).await;
        if made.is_err()
            && let Err(error) = remote.abort_parts(key, &upload).await
        {
            tracing::debug!(%error, "an upload that only tried something takes space in the bucket");
        }
        made
    };
    matches!(made.await, Err(RemoteError::Changed(_)))
}
