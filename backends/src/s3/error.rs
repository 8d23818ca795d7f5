//! Why requests fail, and what that means for a caller and for what comes next.

use std::path::{Path, PathBuf};

use object_store::client::{HttpError, HttpErrorKind};

use super::remote::xml_code;
use crate::sqlite::OpenError;
use crate::store::{Errno, StoreError};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// There is no such object.
    #[error("{0} is not there")]
    NotFound(String),
    /// The object is not in the state that the request was made for.
    #[error("{0} was changed by somebody else")]
    Changed(String),
    /// The server refuses.
    #[error("{0}")]
    Refused(String),
    /// It took too long.
    #[error("{0}")]
    Timeout(String),
    /// The server cannot be reached, or cannot do anything now: the next request would not fare better.
    #[error("{0}")]
    Unavailable(String),
    /// The connection broke: the server may have done what it was asked, or not.
    #[error("{0}")]
    NoAnswer(String),
    /// What came is not what is there.
    #[error("{0}")]
    Damaged(String),
    /// What the bucket holds could not be kept here.
    #[error("{0}")]
    Here(StoreError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<RemoteError> for StoreError {
    fn from(error: RemoteError) -> Self {
        let errno = match error {
            RemoteError::Here(error) => return error,
            RemoteError::Timeout(_) => Errno::TIMEDOUT,
            RemoteError::Refused(_) => Errno::ACCESS,
            RemoteError::NotFound(_)
            | RemoteError::Changed(_)
            | RemoteError::Unavailable(_)
            | RemoteError::NoAnswer(_)
            | RemoteError::Damaged(_)
            | RemoteError::Other(_) => Errno::IO,
        };
        StoreError::storage(errno, format!("S3: {error}"))
    }
}

impl RemoteError {
    /// Whether other requests would fail as well, now.
    pub(super) fn is_of_all(&self) -> bool {
        matches!(
            self,
            Self::Timeout(_) | Self::Unavailable(_) | Self::NoAnswer(_) | Self::Refused(_)
        )
    }

    /// Whether the server is away, or can do nothing now.
    pub(super) fn is_away(&self) -> bool {
        self.is_of_all() && !matches!(self, Self::Refused(_))
    }

    /// What it means that an object was not deleted: the server may have said it of that one alone.
    pub(super) fn of_deletion(error: object_store::Error) -> Self {
        let line = one_line(&error);
        if !line.contains("DeleteObjects request failed for key") {
            return error.into();
        }
        let is_code = |code: &str| line.contains(&format!("(code: {code})"));
        match () {
            () if is_code("NoSuchKey") => Self::NotFound(line),
            () if is_code("AccessDenied") => Self::Refused(line),
            () => Self::Other(line),
        }
    }

    /// The same of another object, where the server has said it of several.
    pub(super) fn again(&self) -> Self {
        let message = self.to_string();
        match self {
            Self::Refused(_) => Self::Refused(message),
            _ => Self::Other(message),
        }
    }

    /// What an answer that is no success means.
    pub(super) fn of_status(status: u16, code: Option<String>, what: &str) -> Self {
        let code = code.unwrap_or_else(|| format!("status {status}"));
        if code == "NoSuchBucket" {
            return Self::no_bucket();
        }
        let message = format!("{what}: {code}");
        match status {
            _ if code.contains(QUOTA) => Self::Unavailable(message),
            _ if code == ARCHIVED => Self::Other(message),
            401 | 403 => Self::Refused(message),
            404 => Self::NotFound(message),
            429 | 500..=599 => Self::Unavailable(message),
            _ => Self::Other(message),
        }
    }

    /// What a request without an answer means.
    pub(super) fn of_http(error: &HttpError) -> Self {
        let message = one_line(error);
        match error.kind() {
            HttpErrorKind::Timeout => Self::Timeout(message),
            _ => Self::NoAnswer(message),
        }
    }

    fn no_bucket() -> Self {
        Self::Unavailable("the bucket is not there (NoSuchBucket)".to_owned())
    }
}

/// In the codes of servers that let nobody write more, whatever their status is.
const QUOTA: &str = "QuotaExceeded";

/// The code of an object that somebody has moved where it cannot be read at once (GLACIER): a 403, but of that object alone.
const ARCHIVED: &str = "InvalidObjectState";

/// The status of the server's in what `object_store` makes of it; `None` where there was no answer.
fn status_in(line: &str) -> Option<u16> {
    let after = line.split("status code: ").nth(1)?;
    after.get(..3)?.parse().ok()
}

impl From<object_store::Error> for RemoteError {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error;
        // What the server has said, without the path: that may be any words.
        let said = std::error::Error::source(&error).map(one_line);
        let said = said.unwrap_or_default();
        if xml_code(&said).as_deref() == Some("NoSuchBucket") {
            return Self::no_bucket();
        }
        match error {
            error if said.contains(QUOTA) => Self::Unavailable(one_line(&error)),
            Error::NotFound { path, .. } => Self::NotFound(path),
            Error::AlreadyExists { path, .. }
            | Error::Precondition { path, .. }
            | Error::NotModified { path, .. } => Self::Changed(path),
            error if said.contains(ARCHIVED) => Self::Other(one_line(&error)),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Refused(one_line(&error))
            }
            // A race between conditional writers that S3 answers with 409.
            other if said.contains("ConditionalRequestConflict") => Self::Changed(one_line(&other)),
            other if said.contains("timed out") => Self::Timeout(one_line(&other)),
            other => {
                let line = one_line(&other);
                match status_in(&said) {
                    None => Self::NoAnswer(line),
                    Some(429 | 500..=599) => Self::Unavailable(line),
                    Some(_) => Self::Other(line),
                }
            }
        }
    }
}

/// An error and what caused it, in a line.
pub(super) fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why a bucket cannot be mounted, found out before anything is.
#[derive(Debug, thiserror::Error)]
pub enum S3OpenError {
    /// The endpoint is no address.
    #[error("endpoint {0:?} is no http or https address: {1}")]
    Endpoint(String, String),
    /// Nobody answers there.
    #[error(
        "endpoint {endpoint} does not answer: {reason}\n  fix: is the server running, and is this its address?{}",
        instead(.cache)
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// What the connection said.
        reason: String,
        /// What an earlier mount has left, and can be mounted meanwhile.
        cache: Option<PathBuf>,
    },
    /// Nobody answers there, and what there is here cannot be mounted without.
    #[error(
        "endpoint {endpoint} does not answer: {reason}; and without it nothing can be mounted: {why}\n  fix: wait for the server, and mount once with it"
    )]
    NothingCached {
        /// The endpoint.
        endpoint: String,
        /// What the connection said.
        reason: String,
        /// What the cache lacks.
        why: String,
    },
    /// The bucket has to be part of the server's name.
    #[error(
        "{endpoint} wants bucket {bucket} as part of its name, as in {host}, and not in the path\n  fix: add --virtual-host"
    )]
    WantsVirtualHost {
        /// The endpoint.
        endpoint: String,
        /// The bucket.
        bucket: String,
        /// The name with the bucket in it.
        host: String,
    },
    /// The bucket has to be part of the path.
    #[error(
        "{endpoint} wants bucket {bucket} in the path, and does not know it as part of its name ({host})\n  fix: leave out --virtual-host"
    )]
    NoVirtualHost {
        /// The endpoint.
        endpoint: String,
        /// The bucket.
        bucket: String,
        /// The name with the bucket in it.
        host: String,
    },
    /// The bucket cannot be part of the server's name.
    #[error(
        "bucket {bucket} cannot be part of the name of {endpoint}: {reason}\n  fix: leave out --virtual-host, or give the server's name"
    )]
    NoName {
        /// The endpoint.
        endpoint: String,
        /// The bucket.
        bucket: String,
        /// Why.
        reason: String,
    },
    /// The server's certificate is not trusted.
    #[error(
        "endpoint {endpoint} has a certificate that is not trusted: {reason}\n  fix: set SSL_CERT_FILE to the authority that signed it"
    )]
    Certificate {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The keys are wrong, or may not do this.
    #[error(
        "{endpoint} refuses the credentials from {source_name}: {code}\n  fix: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do with bucket {bucket}"
    )]
    Credentials {
        /// The endpoint.
        endpoint: String,
        /// Where the keys came from.
        source_name: String,
        /// The bucket.
        bucket: String,
        /// S3's code for it.
        code: String,
    },
    /// There is no such bucket.
    #[error(
        "there is no bucket {bucket} at {endpoint}\n  fix: create it, as with `aws s3 mb s3://{bucket} --endpoint-url {endpoint}`"
    )]
    NoBucket {
        /// The endpoint.
        endpoint: String,
        /// The bucket.
        bucket: String,
    },
    /// The clocks differ too much for signatures.
    #[error(
        "this machine's clock and that of {endpoint} differ by more than S3 allows\n  fix: set the clock, as with `timedatectl set-ntp true`"
    )]
    Clock {
        /// The endpoint.
        endpoint: String,
    },
    /// The server answers, but not as S3 does.
    #[error("{endpoint} answered status {status}: {reason}")]
    Answer {
        /// The endpoint.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        reason: String,
    },
    /// What is in the bucket was sealed with another key.
    #[error(
        "agent {agent}'s memory in bucket {bucket} {problem}\n  fix: give the key it was written with, in CTXBENCH_S3_KEY or --key-file"
    )]
    Key {
        /// Whose memory.
        agent: String,
        /// The bucket.
        bucket: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The local cache is damaged.
    #[error(
        "{}, the cache of this memory, is damaged: {reason}\n  fix: mount it with --rebuild-cache: the file is set aside and not deleted, what had not gone up is taken from it as far as it can be read, and the rest comes from the bucket",
        .file.display()
    )]
    Damaged {
        /// The cache.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The local cache was set aside, and what had not gone up has not all been taken from it.
    #[error(
        "{}, the cache of this memory, is being rebuilt, or that was cut short: what had not gone up is in {}\n  fix: mount it with --rebuild-cache again, which begins anew with that",
        .file.display(), .aside.display()
    )]
    Unfinished {
        /// The cache.
        file: PathBuf,
        /// Where it was set aside.
        aside: PathBuf,
    },
    /// The local cache was written by a later ctxbench.
    #[error(
        "{}, the cache of this memory, was written by a newer ctxbench ({reason})\n  fix: mount it with that one, or with --rebuild-cache to begin anew: the file is set aside, and what had not gone up stays in it until the newer ctxbench mounts it",
        .file.display()
    )]
    Newer {
        /// The cache.
        file: PathBuf,
        /// What it is too new in.
        reason: String,
    },
    /// The local cache cannot be used.
    #[error("{0}")]
    Cache(String),
}

/// What to do while a server is away, where there is something to mount.
fn instead(cache: &Option<PathBuf>) -> String {
    cache.as_ref().map_or_else(String::new, |cache| {
        let cache = cache.display();
        format!(" To mount what {cache} holds of it meanwhile, add --allow-offline")
    })
}

/// Whether SQLite, or what was read with it, says that a file is damaged, and not that it cannot be had.
pub(super) fn is_damage(reason: &str) -> bool {
    [
        "malformed",
        "not a database",
        "is damaged",
        "no such table",
        "no such column",
        // A byte of the schema or of a setting that is no text any more.
        "invalid utf-8",
    ]
    .iter()
    .any(|told| reason.contains(told))
}

impl S3OpenError {
    pub(super) fn unreachable(endpoint: &str, reason: String) -> Self {
        Self::Unreachable {
            endpoint: endpoint.to_owned(),
            reason,
            cache: None,
        }
    }

    /// Why a request has failed that came after one that had not.
    pub(super) fn of_request(endpoint: &str, error: &RemoteError) -> Self {
        if let RemoteError::Timeout(reason) | RemoteError::NoAnswer(reason) = error {
            return Self::unreachable(endpoint, reason.clone());
        }
        Self::Answer {
            endpoint: endpoint.to_owned(),
            status: 0,
            reason: error.to_string(),
        }
    }

    /// What a cache cannot be read for.
    pub(super) fn of_cache(file: &Path, reason: &impl std::fmt::Display) -> Self {
        let reason = reason.to_string();
        if is_damage(&reason) {
            let file = file.to_owned();
            return Self::Damaged { file, reason };
        }
        Self::Cache(format!("{}: {reason}", file.display()))
    }

    /// What a cache cannot be opened for.
    pub(super) fn of_open(file: &Path, error: OpenError) -> Self {
        let path = file.display();
        match error {
            OpenError::Owned(_) => Self::Cache(format!(
                "{path} is in use by another ctxbench mount\n  fix: unmount that one first, or choose another file with --cache"
            )),
            OpenError::Foreign { .. } => Self::Cache(format!(
                "{path} is an SQLite database, but not a cache of ctxbench\n  fix: choose another file with --cache"
            )),
            OpenError::Newer { found, .. } => Self::Newer {
                file: file.to_owned(),
                reason: format!("it has schema version {found}"),
            },
            gone @ OpenError::LogGone { .. } => Self::Cache(format!(
                "{gone}; or with --rebuild-cache, to take the bucket's state and redo what the journal still tells"
            )),
            cut @ (OpenError::Cut { .. } | OpenError::NotWhole { .. }) => {
                let text = cut.to_string();
                Self::Damaged {
                    file: file.to_owned(),
                    reason: text.lines().next().unwrap_or_default().to_owned(),
                }
            }
            full @ OpenError::Full { .. } => Self::Cache(full.to_string()),
            OpenError::Unreadable { reason, .. } => Self::of_cache(file, &reason),
        }
    }

    /// What is wrong, without what to do.
    pub(super) fn first_line(&self) -> String {
        let text = self.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Whether the server may well be away for a while, and everything else right: what a cache is for.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            // What stands before a server that is down.
            Self::Answer { status, .. } => matches!(status, 429 | 500 | 502..=504),
            _ => false,
        }
    }
}
