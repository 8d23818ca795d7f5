//! Objects as a bucket holds and lists them, counts of requests, and why a bucket cannot be used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::config::S3Config;

/// The names of the counters.
const COUNTERS: [&str; 6] = ["s3_get", "s3_put", "s3_list", "s3_delete", "s3_bytes_sent", "s3_bytes_received"];

/// Why a bucket cannot be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct S3OpenError(String);

impl S3OpenError {
    pub(crate) fn new(reason: String, fix: &str) -> Self {
        Self(format!("{reason}\n  fix: {fix}"))
    }

    pub(crate) fn access_key(config: &S3Config, code: &str) -> Self {
        let (endpoint, source) = (&config.endpoint, config.credentials.source());
        Self::new(
            format!("{endpoint} refuses the access key from {source}: {code}"),
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what their policy allows in this bucket",
        )
    }
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key, without what was listed.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970 by the server's clock.
    pub modified: i64,
}

/// An object, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    /// Whether the body is the part that was asked for, and not the whole object.
    pub(crate) is_part: bool,
    /// Its metadata, by names without `x-amz-meta-`.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Its entity tag, as a server gave it.
    pub(crate) etag: Option<String>,
}

/// The precondition for writing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// Anything or nothing.
    None,
    /// No object.
    Absent,
    /// The object with this entity tag.
    Etag(&'a str),
}

/// Counts of requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    counters: [AtomicU64; COUNTERS.len()],
    answers: AtomicU64,
}

impl Requests {
    pub(crate) fn count(&self, counter: &str, by: usize) {
        let at = COUNTERS.iter().position(|name| *name == counter);
        if let Some(at) = at {
            self.counters[at].fetch_add(by as u64, Ordering::Relaxed);
        }
    }

    /// The counts, by name.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let values = self.counters.iter();
        let values = values.map(|counter| counter.load(Ordering::Relaxed));
        std::iter::zip(COUNTERS, values).collect()
    }

    /// Answers that do not ask for a repetition.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Counts an answer that does not ask for a repetition.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}
