//! Creates a bucket, and checks that it is usable.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use inputs::with_causes;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle, actions};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ServerAccess;

/// Name of the bucket that every server starts with.
pub const BUCKET: &str = "ctxbench";

/// Key and content of the object that checks a bucket.
const PROBE: &str = "ctxbench-is-it-ready";

/// Time limit of one request to a loopback server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Why a bucket is not available.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The endpoint or the bucket's name is not valid in a URL.
    #[error("bucket {bucket} at {endpoint} is not a valid address: {reason}")]
    Address {
        /// The endpoint.
        endpoint: String,
        /// Name of the bucket.
        bucket: String,
        /// The reason why it is invalid.
        reason: String,
    },
    /// The server did not answer, or not in HTTP.
    #[error("no answer from {endpoint}: {reason}")]
    NoAnswer {
        /// The endpoint.
        endpoint: String,
        /// The error of the request.
        reason: String,
    },
    /// The server answered with an error.
    #[error("{endpoint} refused to {what}: {status}: {answer}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The refused operation.
        what: String,
        /// The HTTP status.
        status: u16,
        /// The body of the answer.
        answer: String,
    },
}

/// Creates a bucket over plain HTTP. An existing bucket of the caller also counts as success.
///
/// # Errors
/// If the server does not answer, or refuses.
pub async fn create_bucket(access: &ServerAccess, bucket: &str) -> Result<(), BucketError> {
    let (status, answer) = send(access, bucket, &Action::CreateBucket).await?;
    // Other servers answer `BucketAlreadyExists` to the owner, too; they have only one account.
    let is_there = status == StatusCode::CONFLICT
        && (answer.contains("BucketAlreadyOwnedByYou") || answer.contains("BucketAlreadyExists"));
    if is_there {
        return Ok(());
    }
    must_succeed(access, format!("make bucket {bucket}"), status, &answer)
}

/// Writes, reads and removes a small object. SeaweedFS creates a bucket long before it can store objects.
///
/// # Errors
/// If the server does not answer, refuses, or returns other content than was written.
pub(crate) async fn try_bucket(access: &ServerAccess, bucket: &str) -> Result<(), BucketError> {
    for (action, what) in [(Action::Put, "write"), (Action::Get, "read"), (Action::Delete, "remove")] {
        let what = format!("{what} {PROBE} in bucket {bucket}");
        let (status, answer) = send(access, bucket, &action).await?;
        let is_another = matches!(action, Action::Get) && answer != PROBE;
        if is_another && status.is_success() {
            return Err(BucketError::Refused {
                endpoint: access.endpoint.clone(),
                what,
                status: status.as_u16(),
                answer: "read other bytes than were written".to_owned(),
            });
        }
        must_succeed(access, what, status, &answer)?;
    }
    Ok(())
}

/// A request to the server.
enum Action {
    CreateBucket,
    Put,
    Get,
    Delete,
}

fn must_succeed(access: &ServerAccess, what: String, status: StatusCode, answer: &str) -> Result<(), BucketError> {
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

async fn send(access: &ServerAccess, bucket: &str, action: &Action) -> Result<(StatusCode, String), BucketError> {
    let no_answer = |reason: String| BucketError::NoAnswer { endpoint: access.endpoint.clone(), reason };
    let (authority, path) = presigned(access, bucket, action)?;
    let (method, body) = match action {
        Action::CreateBucket => (Method::PUT, ""),
        Action::Put => (Method::PUT, PROBE),
        Action::Get => (Method::GET, ""),
        Action::Delete => (Method::DELETE, ""),
    };
    let exchange = async {
        let stream = TcpStream::connect(&authority).await.map_err(|error| no_answer(with_causes(&error)))?;
        exchange(stream, &authority, method, &path, body).await.map_err(|error| no_answer(with_causes(&*error)))
    };
    timeout(PATIENCE, exchange).await.map_err(|_| no_answer(format!("nothing within {} s", PATIENCE.as_secs())))?
}

/// Signs a request. Returns the authority to connect to, and path with query.
fn presigned(access: &ServerAccess, bucket: &str, action: &Action) -> Result<(String, String), BucketError> {
    let wrong =
        |reason: String| BucketError::Address { endpoint: access.endpoint.clone(), bucket: bucket.to_owned(), reason };
    let endpoint = access.endpoint.parse().map_err(|_| wrong("the endpoint is not a URL".to_owned()))?;
    let bucket = Bucket::new(endpoint, UrlStyle::Path, bucket.to_owned(), access.region.clone())
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
        return Err(wrong("only http:// is supported here; create the bucket with another tool".to_owned()));
    }
    let host = url.host_str().ok_or_else(|| wrong("it has no host".to_owned()))?;
    let authority = format!("{host}:{}", url.port().unwrap_or(80));
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
    // The signature covers the host as in the URL, which omits port 80.
    let host = authority.strip_suffix(":80").unwrap_or(authority);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONTENT_LENGTH, body.len())
        .body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await?.to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
