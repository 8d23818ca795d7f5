//! Faults of an S3 server and of the network to it.

use serde::{Deserialize, Serialize};

use super::Bounds;

/// An S3 fault with its parameters, as in `[injection.s3.outage]`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum S3Fault {
    /// No request succeeds for a while, and the agent continues.
    Outage {
        /// The cause.
        cause: OutageCause,
        /// The duration in seconds.
        seconds: f64,
        /// The duration with `--long`, in seconds. Requests then also keep the mount's default timeout.
        long_seconds: f64,
        /// Files that the agent writes during the outage.
        files: u64,
    },
    /// Some requests fail, others succeed.
    Flaky {
        /// The kind of failure.
        how: FailurePattern,
    },
    /// Every exchange takes longer.
    Slow {
        /// The added round-trip time, in milliseconds.
        rtt_ms: f64,
    },
    /// Downloads are damaged: first once, then each time.
    BadAnswer {
        /// The kind of failure.
        how: BadAnswer,
    },
    /// Uploads arrive with wrong bytes.
    DamagedUpload,
    /// Listings are stale.
    StaleList,
    /// The network fails during `ctxbench s3 sync`.
    PartitionInSync,
    /// Two hosts change the same files while one of them is disconnected.
    Conflict {
        /// Number of files that both hosts change.
        files: u64,
    },
    /// The server restarts with an empty bucket.
    Emptied,
}

/// The cause of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutageCause {
    /// The server's process is killed, and restarted on its data.
    ServerKilled,
    /// The server accepts connections and reads requests, but does not answer.
    ServerStopped,
    /// New connections are refused, and existing ones are reset.
    Partition,
    /// Each request is answered by 403 `AccessDenied`.
    AccessDenied,
    /// Each request is answered by 403 `InvalidAccessKeyId`.
    CredentialsRevoked,
    /// Each request is answered by 403 `RequestTimeTooSkewed`.
    ClockSkew,
    /// Each request is answered by 404 `NoSuchBucket`.
    BucketDeleted,
    /// Each request is answered by 503 `SlowDown`.
    SlowDown,
}

/// The failure of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum FailurePattern {
    /// Of every `every` requests, the first `length` get 503 `SlowDown`.
    SlowDownBursts {
        /// Failed requests in a burst.
        length: u64,
        /// The period in requests.
        every: u64,
    },
    /// 500 `InternalError` for every `nth` request.
    InternalErrors {
        /// The period in requests, uploads or connections.
        nth: u64,
    },
    /// Every `nth` upload succeeds, but its answer is lost.
    LostAnswers {
        /// The period in requests, uploads or connections.
        nth: u64,
    },
    /// Every `nth` connection is reset before the server sees the request.
    Resets {
        /// The period in requests, uploads or connections.
        nth: u64,
    },
}

/// The defect of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BadAnswer {
    /// The connection is reset in the middle of the body.
    Reset,
    /// The body ends in the middle, but `Content-Length` is the full length.
    Cut,
    /// Half of the body, with a matching `Content-Length`.
    Short,
    /// The right length, with some wrong bytes.
    WrongBytes,
}

impl S3Fault {
    /// Its parameters.
    pub(super) fn ranges(self) -> Vec<Bounds> {
        let whole = |field, value: u64, least, most| (field, value as f64, least, most);
        match self {
            S3Fault::Outage { seconds, long_seconds, files, .. } => vec![
                ("seconds", seconds, 1.0, 3600.0),
                ("long_seconds", long_seconds, seconds, 3600.0),
                whole("files", files, 1.0, 10_000.0),
            ],
            S3Fault::Slow { rtt_ms } => vec![("rtt_ms", rtt_ms, 0.1, 10_000.0)],
            S3Fault::Conflict { files } => vec![whole("files", files, 1.0, 100.0)],
            S3Fault::Flaky { how } => match how {
                FailurePattern::SlowDownBursts { length, every } => {
                    vec![whole("how.every", every, 2.0, 1000.0), whole("how.length", length, 1.0, every as f64 - 1.0)]
                }
                FailurePattern::InternalErrors { nth }
                | FailurePattern::LostAnswers { nth }
                | FailurePattern::Resets { nth } => {
                    vec![whole("how.nth", nth, 2.0, 1000.0)]
                }
            },
            _ => Vec::new(),
        }
    }
}
