//! What can be broken about an S3 server and the way to it.

use serde::Deserialize;

/// What is broken, with its parameters: as in `[injection.s3.outage]`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum S3Fault {
    /// Nothing gets through for a while, and the agent goes on.
    Outage {
        /// Why.
        cause: OutageCause,
        /// How long, in seconds.
        seconds: f64,
        /// How long in a long run, in which a request also gets the time that a mount gives it unless told otherwise.
        long_seconds: f64,
        /// Files that the agent writes meanwhile.
        files: u64,
    },
    /// Single requests fail while others do not.
    Flaky {
        /// How.
        how: Flaky,
    },
    /// Every exchange takes so much longer.
    Slow {
        /// The round-trip time that is added, in milliseconds.
        rtt_ms: f64,
    },
    /// What is fetched comes wrong: the first time, and then each time.
    BadAnswer {
        /// How.
        how: BadAnswer,
    },
    /// What is put arrives with wrong bytes.
    DamagedUpload,
    /// Listings show what was there before.
    StaleList,
    /// The way is cut in the middle of `ctxbench s3 sync`.
    PartitionInSync,
    /// Two hosts change the same files while one of them is cut off.
    Conflict {
        /// How many files both change.
        files: u64,
    },
    /// The server comes back with an empty bucket.
    Emptied,
}

/// Why nothing gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutageCause {
    /// The server's process is killed, and started again on what it had.
    ServerKilled,
    /// Connections are taken and requests read, and no answer comes.
    ServerStopped,
    /// Connections are refused, and those there were are reset.
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

/// How single requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Flaky {
    /// 503 `SlowDown`, so many in a row, then as many pass until a round of `every` is full.
    SlowDownBursts {
        /// Requests of a burst.
        length: u64,
        /// Requests of a round.
        every: u64,
    },
    /// 500 `InternalError` for every `nth` request.
    InternalErrors {
        /// Which.
        nth: u64,
    },
    /// Every `nth` upload is done, and its answer is lost.
    LostAnswers {
        /// Which.
        nth: u64,
    },
    /// Every `nth` connection is reset before the server has seen the request.
    Resets {
        /// Which.
        nth: u64,
    },
}

/// How an answer is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BadAnswer {
    /// The connection is reset in the middle of the body.
    Reset,
    /// The body ends in its middle; `Content-Length` speaks of all of it.
    Cut,
    /// Half of the body, and a `Content-Length` that says so.
    Short,
    /// As many bytes, some of them wrong.
    WrongBytes,
}

impl S3Fault {
    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            S3Fault::Outage { .. } => "s3.outage",
            S3Fault::Flaky { .. } => "s3.flaky",
            S3Fault::Slow { .. } => "s3.slow",
            S3Fault::BadAnswer { .. } => "s3.bad-answer",
            S3Fault::DamagedUpload => "s3.damaged-upload",
            S3Fault::StaleList => "s3.stale-list",
            S3Fault::PartitionInSync => "s3.partition-in-sync",
            S3Fault::Conflict { .. } => "s3.conflict",
            S3Fault::Emptied => "s3.emptied",
        }
    }

    /// Whether its parameters make sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |field: &str, value: f64, least: f64, most: f64| {
            let name = self.name();
            (least..=most).contains(&value).then_some(()).ok_or(format!(
                "field `injection.{name}.{field}`: {value} is not from {least} to {most}"
            ))
        };
        match *self {
            S3Fault::Outage {
                seconds,
                long_seconds,
                files,
                ..
            } => {
                within("seconds", seconds, 1.0, 3600.0)?;
                within("long_seconds", long_seconds, seconds, 3600.0)?;
                within("files", files as f64, 1.0, 10_000.0)
            }
            S3Fault::Slow { rtt_ms } => within("rtt_ms", rtt_ms, 0.1, 10_000.0),
            S3Fault::Conflict { files } => within("files", files as f64, 1.0, 100.0),
            S3Fault::Flaky { how } => match how {
                Flaky::SlowDownBursts { length, every } => {
                    within("how.every", every as f64, 2.0, 1000.0)?;
                    within("how.length", length as f64, 1.0, every as f64 - 1.0)
                }
                Flaky::InternalErrors { nth }
                | Flaky::LostAnswers { nth }
                | Flaky::Resets { nth } => within("how.nth", nth as f64, 2.0, 1000.0),
            },
            S3Fault::BadAnswer { .. }
            | S3Fault::DamagedUpload
            | S3Fault::StaleList
            | S3Fault::PartitionInSync
            | S3Fault::Emptied => Ok(()),
        }
    }
}
