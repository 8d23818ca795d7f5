//! The features of each S3 server, against those that it is known to lack.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion, WriteMultipart,
};
use servers::{FaultProxy, Operation, RequestFault, Rule, ServerKind};

use super::{found, serve};
use crate::common::{Server, s3_client};

type Outcome = Result<(), String>;

/// The features in the order of the table.
const ASKED: [&str; 17] = [
    "creates only what is absent",
    "one of two concurrent creations wins",
    "refuses an update with a wrong If-Match",
    "one of two concurrent updates wins",
    "multipart upload of 11 MiB",
    "range reads",
    "lists 1,005 keys in pages",
    "lists from a key on",
    "lists from any key in a tree on",
    "lists entity tags as GET has them",
    "keeps user metadata",
    "304 for If-None-Match",
    "CopyObject",
    "bulk delete",
    "`x/y` beside `x/y/z`",
    "404 for a prefix; keys of 900 bytes",
    DAMAGED,
];

/// The feature whose test needs the fault proxy.
const DAMAGED: &str = "refuses an upload that was damaged on its way";

/// Known missing features of a server, and how they show.
fn lacking(kind: ServerKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        ServerKind::Embedded => &[],
        ServerKind::Seaweedfs => &[(DAMAGED, "takes wrong bytes")],
        ServerKind::Minio => &[("`x/y` beside `x/y/z`", "not listed below its prefix")],
        ServerKind::Rclone => &[
            ("creates only what is absent", "overwrites silently"),
            ("one of two concurrent creations wins", "both win"),
            ("refuses an update with a wrong If-Match", "overwrites silently"),
            ("one of two concurrent updates wins", "both win"),
            ("range reads", "non-partial response"),
            ("`x/y` beside `x/y/z`", "500 Internal Server Error"),
            (DAMAGED, "takes wrong bytes"),
        ],
    }
}

fn key(text: &str) -> Key {
    Key::from(text)
}

fn fails(error: impl std::fmt::Display) -> String {
    let error = error.to_string();
    let error = error.split(": <?xml").next().unwrap_or_default();
    let line = error.lines().next().unwrap_or_default();
    line.chars().take(160).collect()
}

pub(super) async fn put(client: &AmazonS3, at: &str, bytes: &[u8]) -> Result<UpdateVersion, String> {
    let payload = PutPayload::from(Bytes::copy_from_slice(bytes));
    let put = client.put(&key(at), payload).await.map_err(fails)?;
    Ok(put.into())
}

pub(super) async fn get(client: &AmazonS3, at: &str) -> Result<Bytes, String> {
    let got = client.get(&key(at)).await.map_err(fails)?;
    got.bytes().await.map_err(fails)
}

async fn put_if(
    client: &AmazonS3,
    at: &str,
    bytes: &'static [u8],
    mode: PutMode,
) -> object_store::Result<object_store::PutResult> {
    let payload = PutPayload::from_static(bytes);
    client.put_opts(&key(at), payload, mode.into()).await
}

fn expect(is_so: bool, otherwise: &str) -> Outcome {
    is_so.then_some(()).ok_or(otherwise.to_owned())
}

/// Checks that an object has this body.
async fn holds(client: &AmazonS3, at: &str, body: &str) -> Outcome {
    expect(get(client, at).await? == body, "another body")
}

/// Checks that a conditional request is refused by this error.
fn refused<T>(result: object_store::Result<T>, is_refusal: fn(&Error) -> bool, otherwise: &str) -> Outcome {
    match result {
        Err(error) if is_refusal(&error) => Ok(()),
        Err(error) => Err(fails(error)),
        Ok(_) => Err(otherwise.to_owned()),
    }
}

async fn ask(client: &AmazonS3, what: &str) -> Outcome {
    match what {
        "creates only what is absent" => {
            put_if(client, "create", b"first", PutMode::Create).await.map_err(fails)?;
            let again = put_if(client, "create", b"second", PutMode::Create).await;
            let exists = |error: &Error| matches!(error, Error::AlreadyExists { .. });
            refused(again, exists, "overwrites silently")?;
            holds(client, "create", "first").await
        }
        "one of two concurrent creations wins" => {
            let race = |attempt: usize| async move { (format!("race/create-{attempt}"), PutMode::Create) };
            races(client, race).await
        }
        "refuses an update with a wrong If-Match" => {
            let old = put(client, "update", b"first").await?;
            put(client, "update", b"second").await?;
            let stale = put_if(client, "update", b"third", PutMode::Update(old)).await;
            let fails = |error: &Error| matches!(error, Error::Precondition { .. });
            refused(stale, fails, "overwrites silently")?;
            holds(client, "update", "second").await
        }
        "one of two concurrent updates wins" => {
            let race = |attempt: usize| async move {
                let at = format!("race/update-{attempt}");
                let version = put(client, &at, b"before").await.unwrap();
                (at, PutMode::Update(version))
            };
            races(client, race).await
        }
        "multipart upload of 11 MiB" => {
            let body = large();
            let upload = client.put_multipart(&key("large")).await.map_err(fails)?;
            let mut writer = WriteMultipart::new_with_chunk_size(upload, 5 << 20);
            writer.write(&body);
            writer.finish().await.map_err(fails)?;
            expect(get(client, "large").await? == body, "another body")
        }
        "range reads" => {
            let body = large();
            put(client, "ranges", &body).await?;
            let end = body.len() as u64;
            let ranges: [Range<u64>; 4] = [0..1, 5_242_870..5_242_890, end - 7..end, 100..9_000_000];
            for range in ranges {
                let at = key("ranges");
                let got = client.get_range(&at, range.clone()).await.map_err(fails)?;
                let want = &body[range.start as usize..range.end as usize];
                expect(got == want, &format!("another body at {range:?}"))?;
            }
            Ok(())
        }
        "lists 1,005 keys in pages" => {
            let keys = many(client).await?;
            let listed = list(client, "many", None).await?;
            expect(listed == keys, &differs(&keys, &listed))
        }
        "lists from a key on" => {
            let keys = many(client).await?;
            let listed = list(client, "many", Some(&keys[1])).await?;
            expect(listed == keys[2..], &differs(&keys[2..], &listed))
        }
        "lists from any key in a tree on" => {
            let keys = ["a", "b/1", "b/2/x", "b/2/y", "b/20", "c/1/x", "d"];
            let keys: Vec<String> = keys.iter().map(|key| format!("tree/{key}")).collect();
            for at in &keys {
                put(client, at, b"-").await?;
            }
            for (index, after) in keys.iter().enumerate() {
                let rest = &keys[index + 1..];
                let listed = list(client, "tree", Some(after)).await?;
                let otherwise = format!("after {after}: {}", differs(rest, &listed));
                expect(listed == rest, &otherwise)?;
            }
            Ok(())
        }
        "lists entity tags as GET has them" => {
            put(client, "tags/one", b"tagged").await?;
            let listed: Vec<_> = client.list(Some(&key("tags"))).try_collect().await.map_err(fails)?;
            let got = client.head(&key("tags/one")).await.map_err(fails)?.e_tag;
            let unquoted = |tag: &Option<String>| tag.as_ref().map(|tag| tag.replace('"', ""));
            let listed = listed.first().and_then(|object| unquoted(&object.e_tag));
            expect(listed.is_some(), "none")?;
            expect(listed == unquoted(&got), "another")
        }
        "keeps user metadata" => {
            let name = Attribute::Metadata("ctx".into());
            let attributes = Attributes::from_iter([(name.clone(), "mode=0644; x")]);
            let options = PutOptions { attributes, ..Default::default() };
            let payload = PutPayload::from_static(b"with metadata");
            client.put_opts(&key("metadata"), payload, options).await.map_err(fails)?;
            let got = client.get(&key("metadata")).await.map_err(fails)?;
            let kept = got.attributes.get(&name).map(|value| value.to_string());
            expect(kept.as_deref() == Some("mode=0644; x"), "lost")
        }
        "304 for If-None-Match" => {
            let version = put(client, "unchanged", b"same").await?;
            let options = GetOptions { if_none_match: version.e_tag, ..Default::default() };
            let got = client.get_opts(&key("unchanged"), options).await;
            let is_same = |error: &Error| matches!(error, Error::NotModified { .. });
            refused(got, is_same, "sends the body")
        }
        "CopyObject" => {
            put(client, "copy/from", b"copied").await?;
            let (from, to) = (key("copy/from"), key("copy/to"));
            client.copy(&from, &to).await.map_err(fails)?;
            holds(client, "copy/to", "copied").await?;
            let moved = client.rename(&to, &key("copy/moved")).await;
            moved.map_err(fails)?;
            holds(client, "copy/moved", "copied").await?;
            expect(get(client, "copy/to").await.is_err(), "still there")
        }
        "bulk delete" => {
            let keys = many(client).await?;
            let locations = stream::iter(keys.clone()).map(|at| Ok(key(&at))).boxed();
            let deleted: Vec<_> = client.delete_stream(locations).try_collect().await.map_err(fails)?;
            expect(deleted.len() == keys.len(), "not all")?;
            expect(list(client, "many", None).await?.is_empty(), "not all")
        }
        "`x/y` beside `x/y/z`" => {
            put(client, "x/y", b"above").await?;
            put(client, "x/y/z", b"below").await?;
            holds(client, "x/y", "above").await?;
            holds(client, "x/y/z", "below").await?;
            let below = list(client, "x/y", None).await?;
            expect(below == ["x/y/z"], "not listed below its prefix")?;
            let listed = list(client, "x", None).await?;
            let only = format!("lists only {listed:?}");
            expect(listed == ["x/y", "x/y/z"], &only)
        }
        "404 for a prefix; keys of 900 bytes" => {
            let long = format!("deep/{}end", "directory/".repeat(89));
            put(client, &long, b"deep").await?;
            holds(client, &long, "deep").await?;
            let prefix = client.head(&key("deep/directory")).await;
            let is_missing = |error: &Error| matches!(error, Error::NotFound { .. });
            refused(prefix, is_missing, "a prefix is taken for an object")
        }
        _ => unreachable!("{what}"),
    }
}

/// Checks that an object with other bytes than were signed is refused and not stored.
fn refuses_damage(runtime: &tokio::runtime::Runtime, server: &Server) -> Outcome {
    let endpoint = &server.announcement.endpoint;
    let upstream = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    let way = FaultProxy::start(0, upstream).unwrap();
    let far = s3_client(&way.endpoint(), &server.announcement);
    runtime.block_on(async {
        // Without a rule, the proxy forwards the object unchanged.
        put(&far, "undamaged", b"as it is").await?;
        way.set(vec![Rule::always(RequestFault::DamageRequest).of(&[Operation::Put])]);
        let body = vec![b'x'; 4096];
        let sent = put(&far, "damaged", &body).await;
        let damaged: u64 = way.fired().iter().map(|fired| fired.done).sum();
        expect(damaged == 1, "nothing was damaged")?;
        expect(sent.is_err(), "takes wrong bytes")?;
        let kept = get(&server.client(), "damaged").await;
        expect(kept.is_err(), "says no, and keeps wrong bytes")
    })
}

/// Twenty attempts with two concurrent writers each. Exactly one writer may win each attempt.
async fn races<F: Future<Output = (String, PutMode)>>(client: &AmazonS3, prepare: impl Fn(usize) -> F) -> Outcome {
    for attempt in 0..20 {
        let (at, mode) = prepare(attempt).await;
        let (left, right) =
            futures::join!(put_if(client, &at, b"left", mode.clone()), put_if(client, &at, b"right", mode));
        let body = get(client, &at).await?;
        match (left, right) {
            (Ok(_), Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {
                expect(body == "left", "the loser's body")?;
            }
            (Err(Error::AlreadyExists { .. } | Error::Precondition { .. }), Ok(_)) => {
                expect(body == "right", "the loser's body")?;
            }
            (Ok(_), Ok(_)) => return Err("both win".to_owned()),
            (Err(error), _) | (_, Err(error)) => return Err(fails(error)),
        }
    }
    Ok(())
}

/// 11 MiB in which no two pieces are equal.
fn large() -> Bytes {
    let numbers = 0..(11_u64 << 20) / 8;
    let bytes: Vec<u8> = numbers.flat_map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    bytes.into()
}

/// Creates 1,005 small objects unless they exist. Returns their keys.
async fn many(client: &AmazonS3) -> Result<Vec<String>, String> {
    let keys: Vec<String> = (0..1005).map(|number| format!("many/{number:04}")).collect();
    let there: BTreeSet<String> = list(client, "many", None).await?.into_iter().collect();
    // The first object alone: rclone sometimes fails when two requests create the same directory.
    if !there.contains(&keys[0]) {
        put(client, &keys[0], b"-").await?;
    }
    stream::iter(keys[1..].iter().filter(|key| !there.contains(*key)))
        .map(|at| put(client, at, b"-"))
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(keys)
}

async fn list(client: &AmazonS3, prefix: &str, after: Option<&str>) -> Result<Vec<String>, String> {
    let prefix = key(prefix);
    let listed = match after {
        Some(after) => client.list_with_offset(Some(&prefix), &key(after)),
        None => client.list(Some(&prefix)),
    };
    listed.map_ok(|object| object.location.to_string()).try_collect().await.map_err(fails)
}

fn differs(wanted: &[String], got: &[String]) -> String {
    let (found, all) = (got.len(), wanted.len());
    format!("{found} of {all} keys, first {:?}", got.first())
}

#[test]
fn each_server_has_the_features_in_the_table() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut wrong = Vec::new();
    for kind in found() {
        let server = serve(kind.name(), &[]);
        let client = server.client();
        for what in ASKED {
            let outcome = match what {
                DAMAGED => refuses_damage(&runtime, &server),
                what => runtime.block_on(ask(&client, what)),
            };
            let lack = lacking(kind).iter().find(|(row, _)| *row == what);
            match (&outcome, lack) {
                (Ok(()), None) => {}
                (Err(how), Some((_, known))) if how.contains(known) => {}
                _ => wrong.push(format!("{kind}: {what}: {outcome:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}
