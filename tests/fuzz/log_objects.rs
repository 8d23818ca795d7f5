//! Objects of the S3 log, as a hostile or damaged bucket returns them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use s3::checkout::Checkout;
use s3::objects::{Fault, Key, Objects, PutOutcome};
use s3::session::fetch;
use s3::tree::Hash;
use tokio::runtime::{Builder, Runtime};

use crate::{Rng, fuzz, mutation};

/// Bytes of an object's checksum, which is at its end.
const CHECKSUM: usize = 8;

/// A bucket in memory.
#[derive(Clone, Default)]
struct Bucket(std::sync::Arc<parking_lot::Mutex<BTreeMap<Key, Bytes>>>);

impl Objects for Bucket {
    async fn put_new(&self, key: Key, body: Bytes) -> Result<PutOutcome, Fault> {
        let mut objects = self.0.lock();
        if objects.contains_key(&key) {
            return Ok(PutOutcome::Exists);
        }
        objects.insert(key, body);
        Ok(PutOutcome::Created)
    }

    async fn get(&self, key: Key, range: Option<Range<u64>>) -> Result<Option<Bytes>, Fault> {
        let Some(object) = self.0.lock().get(&key).cloned() else {
            return Ok(None);
        };
        let length = object.len() as u64;
        let range = range.unwrap_or(0..length);
        let (start, end) = (range.start.min(length), range.end.min(length));
        Ok(Some(object.slice(start as usize..end.max(start) as usize)))
    }

    async fn checkpoints(&self) -> Result<Vec<u64>, Fault> {
        let objects = self.0.lock();
        let numbers = objects.keys().filter_map(|key| match key {
            Key::Checkpoint(number) => Some(*number),
            _ => None,
        });
        Ok(numbers.collect())
    }
}

/// A log of a few commits, with inline content, a blob, and names in two directories.
fn log(runtime: &Runtime) -> BTreeMap<Key, Bytes> {
    let bucket = Bucket::default();
    runtime.block_on(async {
        let mut checkout = Checkout::open(&bucket, "fuzz").await.unwrap();
        for number in 0..4_u8 {
            let path = format!("notes/{number}/a.md");
            checkout.write(path.as_bytes(), &Bytes::from(vec![number; 300]), 1).unwrap();
            checkout.write(b"long.bin", &Bytes::from(vec![number; 70_000]), 2).unwrap();
            checkout.commit(&bucket).await.unwrap();
        }
    });
    let objects = bucket.0.lock();
    objects.clone()
}

/// Gives an object the checksum of its bytes, so that its header is decoded.
fn seal(object: &mut Vec<u8>) {
    let sum = Hash::of(object);
    object.extend(&sum.0[..CHECKSUM]);
}

#[test]
fn a_damaged_log_is_refused_or_read() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let log = log(&runtime);
    let keys: Vec<Key> = log.keys().copied().collect();
    assert!(keys.len() > 4, "{keys:?}");
    let make = |rng: &mut Rng| {
        let at = rng.random_range(0..keys.len());
        let object = &log[&keys[at]];
        let forged = rng.random_range(0..4) > 0 && object.len() > CHECKSUM;
        let mut changed = if forged {
            let mut changed = mutation::bytes(rng, &object[..object.len() - CHECKSUM]);
            seal(&mut changed);
            changed
        } else {
            mutation::bytes(rng, object)
        };
        changed.insert(0, at as u8);
        changed
    };
    fuzz("log-objects", make, |input| {
        let mut objects = log.clone();
        objects.insert(keys[input[0] as usize], Bytes::copy_from_slice(&input[1..]));
        let bucket = Bucket(std::sync::Arc::new(parking_lot::Mutex::new(objects)));
        let read = async {
            let Ok(checkout) = Checkout::open(&bucket, "reader").await else {
                return;
            };
            for path in [&b"long.bin"[..], b"notes/0/a.md", b"notes/3/a.md"] {
                let node = checkout.tree().find(path).and_then(|id| checkout.tree().node(id));
                let Some(content) = node.and_then(|node| node.content()) else {
                    continue;
                };
                for chunk in content.chunks.iter().take(100) {
                    if let Ok(bytes) = fetch(&bucket, chunk).await {
                        assert_eq!(Hash::of(&bytes), chunk.hash, "other bytes than the log promises");
                    }
                }
            }
        };
        // Retries wait on the clock.
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), read).await }).expect("no end");
    });
}
