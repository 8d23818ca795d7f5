//! Why requests fail, and what that means for a caller and for what comes next.

use object_store::client::{HttpError, HttpErrorKind};

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
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<RemoteError> for StoreError {
    fn from(error: RemoteError) -> Self {
        let errno = match error {
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
            Self::Timeout(_) | Self::Unavailable(_) | Self::NoAnswer(_)
        )
    }

    /// What an answer that is no success means.
    pub(super) fn of_status(status: u16, code: Option<String>, what: &str) -> Self {
        let code = code.unwrap_or_else(|| format!("status {status}"));
        if code == "NoSuchBucket" {
            return Self::no_bucket();
        }
        let message = format!("{what}: {code}");
        match status {
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

/// The status of the server's in what `object_store` makes of it; `None` where there was no answer.
fn status_in(line: &str) -> Option<u16> {
    let after = line.split("status code: ").nth(1)?;
    after.get(..3)?.parse().ok()
}

impl From<object_store::Error> for RemoteError {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error;
        if one_line(&error).contains("NoSuchBucket") {
            return Self::no_bucket();
        }
        match error {
            Error::NotFound { path, .. } => Self::NotFound(path),
            Error::AlreadyExists { path, .. }
            | Error::Precondition { path, .. }
            | Error::NotModified { path, .. } => Self::Changed(path),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Refused(one_line(&error))
            }
            // A race between conditional writers that S3 answers with 409.
            other if one_line(&other).contains("ConditionalRequestConflict") => {
                Self::Changed(one_line(&other))
            }
            other if one_line(&other).contains("timed out") => Self::Timeout(one_line(&other)),
            other => {
                let line = one_line(&other);
                match status_in(&line) {
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
        "endpoint {endpoint} does not answer: {reason}\n  fix: is the server running, and is this its address?"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// What the connection said.
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
    /// The local cache cannot be used.
    #[error("{0}")]
    Cache(String),
}
