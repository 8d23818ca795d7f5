//! Making a bucket, the one request that `object_store` cannot send, and seeing that it can be used.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle, actions};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Access;

/// The bucket that every server of ours starts with.
pub const BUCKET: &str = "ctxbench";

/// The object by which a bucket is tried, and what it holds.
const PROBE: &str = "ctxbench-is-it-ready";

/// How long one request may take; a loopback server that needs more does not work.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of an answer is looked at.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Why there is no bucket.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The endpoint or the bucket name cannot be part of an address.
    #[error("bucket {bucket} at {endpoint} is no valid address: {reason}")]
    Address {
        /// Where it should have been.
        endpoint: String,
        /// What it should have been called.
        bucket: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answered, or not in HTTP.
    #[error("no answer from {endpoint}: {reason}")]
    NoAnswer {
        /// Who was asked.
        endpoint: String,
        /// What happened instead.
        reason: String,
    },
    /// The server answered, but did not do it.
    #[error("{endpoint} refused to {what}: {status}: {answer}")]
    Refused {
        /// Who was asked.
        endpoint: String,
        /// What it was asked to do.
        what: String,
        /// Its status code.
        status: u16,
        /// What it said.
        answer: String,
    },
}

/// Makes a bucket over plain HTTP; one that is there already, and is the caller's, is well, too.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn create_bucket(access: &Access, bucket: &str) -> Result<(), BucketError> {
    let (status, answer) = send(access, bucket, &Action::CreateBucket).await?;
    // Only the owner is told `BucketAlreadyOwnedByYou`; other servers have but one owner.
    let is_there = status == StatusCode::CONFLICT
        && (answer.contains("BucketAlreadyOwnedByYou") || answer.contains("BucketAlreadyExists"));
    if is_there {
        return Ok(());
    }
    must_succeed(access, format!("make bucket {bucket}"), status, &answer)
}

/// Writes, reads and removes a small object: SeaweedFS has a bucket long before it can hold anything.
///
/// # Errors
/// If the server does not answer, or refuses, or has something else than what was written.
pub(crate) async fn try_bucket(access: &Access, bucket: &str) -> Result<(), BucketError> {
    for (action, what) in [
        (Action::Put, "write"),
        (Action::Get, "read"),
        (Action::Delete, "remove"),
    ] {
        let what = format!("{what} {PROBE} in bucket {bucket}");
        let (status, answer) = send(access, bucket, &action).await?;
        let is_another = matches!(action, Action::Get) && answer != PROBE;
        if is_another && status.is_success() {
            return Err(BucketError::Refused {
                endpoint: access.endpoint.clone(),
                what,
                status: status.as_u16(),
                answer: "this is not what was written".to_owned(),
            });
        }
        must_succeed(access, what, status, &answer)?;
    }
    Ok(())
}

/// A request that is sent here.
enum Action {
    CreateBucket,
    Put,
    Get,
    Delete,
}

fn must_succeed(
    access: &Access,
    what: String,
    status: StatusCode,
    answer: &str,
) -> Result<(), BucketError> {
    if status.is_success() {
        return Ok(());
    }
    Err(BucketError::Refused {
        endpoint: access.endpoint.clone(),
        what,
        status: status.as_u16(),
        answer: answer.chars().take(500).collect(),
    })
}

async fn send(
    access: &Access,
    bucket: &str,
    action: &Action,
) -> Result<(StatusCode, String), BucketError> {
    let no_answer = |reason: String| BucketError::NoAnswer {
        endpoint: access.endpoint.clone(),
        reason,
    };
    let (authority, path) = presigned(access, bucket, action)?;
    let (method, body) = match action {
        Action::CreateBucket => (Method::PUT, ""),
        Action::Put => (Method::PUT, PROBE),
        Action::Get => (Method::GET, ""),
        Action::Delete => (Method::DELETE, ""),
    };
    let exchange = async {
        let stream = TcpStream::connect(&authority)
            .await
            .map_err(|error| no_answer(error.to_string()))?;
        exchange(stream, &authority, method, &path, body)
            .await
            .map_err(|error| no_answer(error.to_string()))
    };
    timeout(PATIENCE, exchange)
        .await
        .map_err(|_| no_answer(format!("nothing within {} s", PATIENCE.as_secs())))?
}

/// The signed request: whom to connect to, and what to ask for.
fn presigned(
    access: &Access,
    bucket: &str,
    action: &Action,
) -> Result<(String, String), BucketError> {
    let wrong = |reason: String| BucketError::Address {
        endpoint: access.endpoint.clone(),
        bucket: bucket.to_owned(),
        reason,
    };
    let endpoint = access
        .endpoint
        .parse()
        .map_err(|_| wrong("the endpoint is no URL".to_owned()))?;
    let bucket = Bucket::new(
        endpoint,
        UrlStyle::Path,
        bucket.to_owned(),
        access.region.clone(),
    )
    .map_err(|error| wrong(error.to_string()))?;
    let credentials = Credentials::new(access.access_key.clone(), access.secret_key.clone());
    let expires = Duration::from_secs(60);
    let by = Some(&credentials);
    let url = match action {
        Action::CreateBucket => actions::CreateBucket::new(&bucket, &credentials).sign(expires),
        Action::Put => actions::PutObject::new(&bucket, by, PROBE).sign(expires),
        Action::Get => actions::GetObject::new(&bucket, by, PROBE).sign(expires),
        Action::Delete => actions::DeleteObject::new(&bucket, by, PROBE).sign(expires),
    };
    if url.scheme() != "http" {
        return Err(wrong(
            "only http:// is spoken here; make the bucket with another tool".to_owned(),
        ));
    }
    let host = url
        .host_str()
        .ok_or_else(|| wrong("it has no host".to_owned()))?;
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => format!("{host}:80"),
    };
    let query = url.query().unwrap_or_default();
    Ok((authority, format!("{}?{query}", url.path())))
}

async fn exchange(
    stream: TcpStream,
    authority: &str,
    method: Method,
    path: &str,
    body: &'static str,
) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    // A signature covers the host as it is written in the URL, where port 80 is left out.
    let host = authority.strip_suffix(":80").unwrap_or(authority);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_LENGTH, body.len())
        .body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER)
        .collect()
        .await?
        .to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
