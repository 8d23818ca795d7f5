//! The bucket: signed requests over one pool of connections, and what their answers mean.
//!
//! What a client may do is its type: [`Client`] creates and reads objects of the log, [`MirrorClient`] writes only
//! outside of logs, [`Sweeper`] only deletes from one. Why a bucket cannot be used at all is in [`crate::access`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, ReqwestConnector};
use rusty_s3::S3Action;
use rusty_s3::actions::ListObjectsV2;
use url::Url;

use crate::access::{Problem, Resolver, S3OpenError, bucket_address};
use crate::config::S3Config;
use crate::keys::Keys;
use crate::objects::{Fault, Key, Objects, Put};
use crate::seal::{Seal, is_sealed};
use crate::tree::CHUNK;

/// The slowest connection on which long bodies are waited for, in bytes a second.
const SLOWEST: u64 = 64 << 10;

/// How often a request is sent at most. The engine tries again later, and for longer.
const ATTEMPTS: u32 = 3;

/// The wait before the second attempt; before the third it is four times as long.
const FIRST_WAIT: Duration = Duration::from_millis(25);

/// The header with the CRC-32 of a body.
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-crc32");

/// S3 error codes, beside statuses, after which the same request may succeed.
const TRANSIENT: [&str; 7] = [
    "RequestTimeout",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch",
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
];

/// A request before it is signed.
#[derive(Debug)]
struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    /// The SHA-256 of the body, if it is known already.
    digest: Option<[u8; 32]>,
}

impl Request {
    fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            digest: None,
        }
    }

    fn put(url: Url, body: Bytes) -> Self {
        let mut request = Self::new(Method::PUT, url);
        let length = HeaderValue::from(body.len());
        request.headers.insert(header::CONTENT_LENGTH, length);
        // SeaweedFS does not compare the body with the digest that the signature covers.
        let checksum = STANDARD.encode(crc32fast::hash(&body).to_be_bytes());
        if let Ok(checksum) = HeaderValue::try_from(checksum) {
            request.headers.insert(CHECKSUM, checksum);
        }
        Self { body, ..request }
    }
}

/// An answer of the server, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The error code of S3 in the body.
    pub(crate) fn code(&self) -> Option<&str> {
        let body = std::str::from_utf8(&self.body).ok()?;
        let (_, rest) = body.split_once("<Code>")?;
        Some(rest.split_once("</Code>")?.0)
    }

    /// A header of the answer, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the same request may succeed later.
    fn is_transient(&self) -> bool {
        match self.status {
            501 => false,
            408 | 409 | 429 | 500..=599 => true,
            _ => self.code().is_some_and(|code| TRANSIENT.contains(&code)),
        }
    }

    /// Why the answer is no success, and what to do.
    fn fault(&self, request: &str) -> Fault {
        let code = self.code().unwrap_or("an answer without an S3 error code");
        let told = format!("{request}: {} {code}", self.status);
        if self.is_transient() {
            return Fault::Unknown(told);
        }
        let fix = match (self.status, code) {
            (_, "NoSuchBucket") => "the bucket is gone: mount the right one, or create it again",
            (_, "RequestTimeTooSkewed") => "set the clock, as with `timedatectl set-ntp true`",
            (_, "InvalidObjectState") => "restore the object, and exclude it from lifecycle rules",
            (401 | 403, _) => "check the access key, and what its policy allows in this bucket",
            (300..=399, _) => "check the endpoint and --region: the bucket is elsewhere",
            (501, _) => "the server does not implement this: use another S3 server",
            _ => "check that the endpoint is an S3 server",
        };
        Fault::Refused(format!("{told} ({fix})"))
    }
}

/// The names of the counters.
const COUNTERS: [&str; 7] = [
    "s3_get",
    "s3_head",
    "s3_put",
    "s3_list",
    "s3_delete",
    "s3_bytes_sent",
    "s3_bytes_received",
];

/// How often each kind of request was sent, and how many bytes of bodies were moved.
#[derive(Debug, Default)]
struct Counters([AtomicU64; COUNTERS.len()]);

impl Counters {
    fn sent(&self, request: &Request) {
        let counter = match request.method.as_str() {
            "HEAD" => 1,
            "PUT" => 2,
            "DELETE" => 4,
            _ if request.url.query().is_some() => 3,
            _ => 0,
        };
        self.0[counter].fetch_add(1, Ordering::Relaxed);
        self.0[5].fetch_add(request.body.len() as u64, Ordering::Relaxed);
    }

    fn received(&self, bytes: usize) {
        self.0[6].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its whole key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970 by the server's clock.
    pub modified: i64,
}

/// A bucket on a server. Clones share one pool of connections.
#[derive(Clone, Debug)]
pub struct Bucket(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    http: HttpClient,
    address: rusty_s3::Bucket,
    credential: AwsCredential,
    timeout: Duration,
    counters: Counters,
}

impl Bucket {
    /// The bucket of a configuration. Connects with the first request.
    ///
    /// # Errors
    /// If the endpoint or the access key cannot be used in a request.
    pub fn new(config: &S3Config) -> Result<Self, S3OpenError> {
        let options = ClientOptions::new()
            .with_allow_http(true)
            // Reading them takes longer than a mount may, and http needs none.
            .with_no_system_certificates(config.endpoint.starts_with("http://"))
            .with_dns_resolver(Arc::new(Resolver))
            .with_connect_timeout(config.timeout.min(Duration::from_secs(5)))
            // Each request has its own time limit, by its length.
            .with_timeout_disabled();
        let http = ReqwestConnector::default().connect(&options);
        let http = http.map_err(|error| {
            let reason = format!("cannot start an HTTP client: {}", one_line(&error));
            S3OpenError::new(Problem::Machine, reason, "check the proxy and TLS settings")
        })?;
        let key = &config.access_key;
        let token = key.token.as_ref().map(|token| token.0.clone());
        let is_header = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_header(&key.id) || !token.as_deref().is_none_or(is_header) {
            return Err(S3OpenError::access_key(
                config,
                "it has blanks or other characters",
            ));
        }
        Ok(Self(Arc::new(Pool {
            http,
            address: bucket_address(config, config.path_style)?,
            credential: AwsCredential {
                key_id: key.id.clone(),
                secret_key: key.secret.0.clone(),
                token,
            },
            timeout: config.timeout,
            counters: Counters::default(),
        })))
    }

    /// Requests sent by kind (`s3_get`, `s3_put`, …), retries included, and bytes of bodies moved (`s3_bytes_sent`,
    /// `s3_bytes_received`).
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        let counters = self.0.counters.0.iter();
        let values = counters.map(|counter| counter.load(Ordering::Relaxed));
        std::iter::zip(COUNTERS, values).collect()
    }

    /// Asks for one key of a bucket, once: the smallest request that needs everything to be right.
    pub(crate) async fn ask(&self, address: &rusty_s3::Bucket) -> Result<Answer, HttpError> {
        let mut list = ListObjectsV2::new(address, None);
        list.with_max_keys(1);
        let url = list.sign(Duration::ZERO);
        self.attempt(&Request::new(Method::GET, url)).await
    }

    fn url(&self, key: &str) -> Url {
        self.0.address.object_url(key)
    }

    fn limit(&self, bytes: u64) -> Duration {
        self.0.timeout + Duration::from_millis(bytes * 1000 / SLOWEST)
    }

    /// Signs a request and sends it once.
    async fn attempt(&self, request: &Request) -> Result<Answer, HttpError> {
        let pool = &*self.0;
        let invalid = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let late = |error| HttpError::new(HttpErrorKind::Timeout, error);
        let mut signed = http::Request::new(request.body.clone().into());
        *signed.method_mut() = request.method.clone();
        *signed.uri_mut() =
            request
                .url
                .as_str()
                .parse()
                .map_err(|error: http::uri::InvalidUri| {
                    HttpError::new(HttpErrorKind::Unknown, error)
                })?;
        *signed.headers_mut() = request.headers.clone();
        // The digest of the body is part of the signature, so the server refuses a damaged one.
        let digest = request.digest.as_ref().map(<[u8; 32]>::as_slice);
        AwsAuthorizer::new(&pool.credential, "s3", pool.address.region())
            .try_authorize(&mut signed, digest)
            .map_err(invalid)?;
        pool.counters.sent(request);
        let execute = pool.http.execute(signed);
        let limit = self.limit(request.body.len() as u64);
        let response = tokio::time::timeout(limit, execute).await.map_err(late)??;
        let (parts, body) = response.into_parts();
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let limit = self.limit(length.unwrap_or(CHUNK));
        let body = tokio::time::timeout(limit, body.bytes())
            .await
            .map_err(late)??;
        pool.counters.received(body.len());
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// Sends a request that may be repeated, a few times at most.
    async fn send(&self, request: &Request) -> Result<Answer, Fault> {
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let is_last = attempt == ATTEMPTS;
            match self.attempt(request).await {
                Ok(answer) if is_last || !answer.is_transient() => return Ok(answer),
                // A second attempt would take as long.
                Err(error) if is_last || error.kind() == HttpErrorKind::Timeout => {
                    let (method, path) = (&request.method, request.url.path());
                    let reason = one_line(&error);
                    return Err(Fault::Unknown(format!("{method} {path}: {reason}")));
                }
                _ => {}
            }
            tokio::time::sleep(wait).await;
            wait *= 4;
        }
        Err(Fault::Unknown("no attempt".to_owned()))
    }

    /// Reads an object. `None` if there is none.
    async fn get(&self, key: &str, range: Option<&Range<u64>>) -> Result<Option<Answer>, Fault> {
        let mut request = Request::new(Method::GET, self.url(key));
        if let Some(range) = range {
            let bytes = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            let bytes = HeaderValue::try_from(bytes);
            let bytes = bytes.map_err(|error| Fault::Refused(error.to_string()))?;
            request.headers.insert(header::RANGE, bytes);
        }
        let answer = self.send(&request).await?;
        match (answer.status, answer.code()) {
            (200 | 206, _) => Ok(Some(answer)),
            // Only S3's own code says so: a proxy may answer 404, too.
            (404, Some("NoSuchKey")) => Ok(None),
            (416, _) => Err(Fault::Unreadable(format!(
                "{key} is too short: it is damaged"
            ))),
            _ => Err(answer.fault(&format!("GET {key}"))),
        }
    }

    /// All objects whose keys begin with `prefix`, in order; one request for each thousand.
    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        let mut listed = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut list = ListObjectsV2::new(&self.0.address, None);
            list.with_prefix(prefix);
            if let Some(token) = &token {
                list.with_continuation_token(token.clone());
            }
            let request = Request::new(Method::GET, list.sign(Duration::ZERO));
            let answer = self.send(&request).await?;
            if answer.status != 200 {
                return Err(answer.fault(&format!("LIST {prefix}")));
            }
            let page = str::from_utf8(&answer.body).ok();
            // A listing that is cut may parse all the same.
            let page = page.filter(|page| page.trim_end().ends_with("</ListBucketResult>"));
            let page = page.and_then(|page| ListObjectsV2::parse_response(page).ok());
            let damaged = || Fault::Unknown(format!("LIST {prefix}: the answer is damaged"));
            let page = page.ok_or_else(damaged)?;
            listed.extend(page.contents.into_iter().map(|object| {
                Listed {
                    key: object.key,
                    size: object.size.unwrap_or(0),
                    modified: object
                        .last_modified
                        .map_or(i64::MAX, |time| nanoseconds(&time)),
                }
            }));
            token = page.next_continuation_token;
            if token.is_none() {
                return Ok(listed);
            }
        }
    }

    async fn delete(&self, key: &str) -> Result<(), Fault> {
        let request = Request::new(Method::DELETE, self.url(key));
        let answer = self.send(&request).await?;
        match answer.is_success() || answer.code() == Some("NoSuchKey") {
            true => Ok(()),
            false => Err(answer.fault(&format!("DELETE {key}"))),
        }
    }
}

/// A time of S3 in nanoseconds since 1970; the far future, which garbage collection spares, if it is none.
fn nanoseconds(time: &str) -> i64 {
    let time = time.parse::<jiff::Timestamp>().ok();
    time.and_then(|time| i64::try_from(time.as_nanosecond()).ok())
        .unwrap_or(i64::MAX)
}

/// An error and its causes, in a line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
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

/// The log of one agent: creates and reads objects, and does nothing else.
#[derive(Clone, Debug)]
pub struct Client {
    bucket: Bucket,
    keys: Keys,
    seal: Option<Seal>,
}

impl Client {
    /// The log of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self {
            bucket: bucket.clone(),
            keys: Keys::new(&config.prefix, &config.agent),
            seal: config.seal.as_ref().map(Seal::new),
        }
    }

    /// The whole key of an object.
    pub fn key(&self, key: Key) -> String {
        let blob = |hash| match &self.seal {
            Some(seal) => seal.blob_name(hash),
            None => hash.to_string(),
        };
        self.keys.of(key, blob)
    }
}

impl Objects for Client {
    async fn put_new(&self, key: Key, body: Bytes) -> Result<Put, Fault> {
        let name = self.key(key);
        let url = self.bucket.url(&name);
        let mut request = match &self.seal {
            Some(seal) => {
                let sealed = seal.seal(&name, &body);
                let sealed = sealed.map_err(|error| Fault::Refused(format!("{name}: {error}")))?;
                Request::put(url, sealed)
            }
            None => Request::put(url, body),
        };
        if let (None, Key::Blob(hash, _)) = (&self.seal, key) {
            request.digest = Some(hash.0);
        }
        let any = HeaderValue::from_static("*");
        request.headers.insert(header::IF_NONE_MATCH, any);
        let answer = self.bucket.send(&request).await?;
        match answer.status {
            // Also after a retry of a request that created it: the session knows its own commit by the nonce.
            304 | 412 => Ok(Put::Exists),
            _ if answer.is_success() => Ok(Put::Created),
            _ => Err(answer.fault(&format!("PUT {name}"))),
        }
    }

    async fn get(&self, key: Key, range: Option<Range<u64>>) -> Result<Option<Bytes>, Fault> {
        let name = self.key(key);
        let unreadable = |reason: &str| Fault::Unreadable(format!("{name}: {reason}"));
        // A sealed object opens as a whole only.
        let asked = range.as_ref().filter(|_| self.seal.is_none());
        let Some(answer) = self.bucket.get(&name, asked).await? else {
            return Ok(None);
        };
        // `rclone serve s3` answers a part with status 200.
        let is_part = answer.headers.contains_key(header::CONTENT_RANGE);
        let body = match &self.seal {
            Some(seal) => {
                let opened = seal.open(&name, answer.body);
                opened.map_err(|error| unreadable(&error.to_string()))?
            }
            None if !is_part && is_sealed(&answer.body) => {
                let fix = "it is encrypted: give the key in CTXBENCH_S3_KEY or --key-file";
                return Err(unreadable(fix));
            }
            None => answer.body,
        };
        match range {
            Some(range) if !is_part => {
                let (start, end) = (range.start as usize, range.end as usize);
                let is_within = start <= end && end <= body.len();
                let part = is_within.then(|| body.slice(start..end));
                part.map(Some)
                    .ok_or_else(|| unreadable("it is too short: it is damaged"))
            }
            _ => Ok(Some(body)),
        }
    }

    async fn checkpoints(&self) -> Result<Vec<u64>, Fault> {
        let prefix = format!("{}checkpoint/", self.keys.log_prefix());
        let listed = self.bucket.list(&prefix).await?;
        let numbers = listed.iter().filter_map(|object| Keys::number(&object.key));
        Ok(numbers.collect())
    }
}

/// An object outside of logs.
#[derive(Clone, Debug)]
pub struct MirrorObject {
    /// Its bytes.
    pub body: Bytes,
    /// Its metadata, by names without `x-amz-meta-`.
    pub metadata: BTreeMap<String, String>,
    /// Its entity tag, as the server gave it.
    pub etag: Option<String>,
}

/// Writes, reads and deletes objects outside of logs. Nothing that it reads is taken for the truth.
#[derive(Clone, Debug)]
pub struct MirrorClient {
    bucket: Bucket,
    prefix: String,
}

impl MirrorClient {
    /// The mirror of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self {
            bucket: bucket.clone(),
            prefix: Keys::new(&config.prefix, &config.agent).prefix().to_owned(),
        }
    }

    /// What the keys of the mirror begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Refuses the keys of logs, as the bucket policy does.
    fn check(key: &str) -> Result<(), Fault> {
        match key.split('/').any(|name| name == ".ctx") {
            true => Err(Fault::Refused(format!(
                "{key} belongs to a log, not to a mirror"
            ))),
            false => Ok(()),
        }
    }

    /// Writes an object, in place of any that is there.
    ///
    /// # Errors
    /// [`Fault`]; also for keys of logs.
    pub async fn put(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
    ) -> Result<(), Fault> {
        self.write(key, body, metadata, None).await.map(drop)
    }

    /// Writes an object in place of the one with that entity tag; false if that one is not there any more.
    ///
    /// # Errors
    /// [`Fault`]; also for keys of logs.
    pub async fn replace(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        etag: &str,
    ) -> Result<bool, Fault> {
        self.write(key, body, metadata, Some(etag)).await
    }

    async fn write(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        etag: Option<&str>,
    ) -> Result<bool, Fault> {
        Self::check(key)?;
        let invalid = |error: &dyn std::error::Error| Fault::Refused(format!("{key}: {error}"));
        let mut request = Request::put(self.bucket.url(key), body);
        let metadata = metadata
            .iter()
            .map(|(name, value)| (format!("x-amz-meta-{name}"), &**value));
        let precondition = etag.map(|etag| ("if-match".to_owned(), etag));
        for (name, value) in metadata.chain(precondition) {
            let name = HeaderName::try_from(name).map_err(|error| invalid(&error))?;
            let value = HeaderValue::try_from(value).map_err(|error| invalid(&error))?;
            request.headers.insert(name, value);
        }
        let answer = self.bucket.send(&request).await?;
        match answer.status {
            412 if etag.is_some() => Ok(false),
            _ if answer.is_success() => Ok(true),
            _ => Err(answer.fault(&format!("PUT {key}"))),
        }
    }

    /// Reads an object. `None` if there is none.
    ///
    /// # Errors
    /// [`Fault`].
    pub async fn get(&self, key: &str) -> Result<Option<MirrorObject>, Fault> {
        let Some(answer) = self.bucket.get(key, None).await? else {
            return Ok(None);
        };
        let metadata = answer.headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix("x-amz-meta-")?;
            Some((name.to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(Some(MirrorObject {
            metadata: metadata.collect(),
            etag: answer.header("etag").map(str::to_owned),
            body: answer.body,
        }))
    }

    /// The objects whose keys begin with `prefix`, in order of their keys.
    ///
    /// # Errors
    /// [`Fault`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.bucket.list(prefix).await
    }

    /// Deletes an object, if there is one.
    ///
    /// # Errors
    /// [`Fault`]; also for keys of logs.
    pub async fn delete(&self, key: &str) -> Result<(), Fault> {
        Self::check(key)?;
        self.bucket.delete(key).await
    }
}

/// Deletes objects of one log, for garbage collection alone.
#[derive(Debug)]
pub struct Sweeper {
    bucket: Bucket,
    prefix: String,
}

impl Sweeper {
    /// For the log of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self {
            bucket: bucket.clone(),
            prefix: Keys::new(&config.prefix, &config.agent).log_prefix(),
        }
    }

    /// What the keys of the log begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Every object of the log.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>, Fault> {
        self.bucket.list(&self.prefix).await
    }

    /// Deletes an object of the log.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        if !key.starts_with(&self.prefix) {
            return Err(Fault::Refused(format!(
                "{key} is not below {}",
                self.prefix
            )));
        }
        self.bucket.delete(key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Answer {
        let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
        Answer {
            status,
            headers: HeaderMap::new(),
            body: body.into(),
        }
    }

    #[test]
    fn a_status_says_whether_a_request_may_succeed_later() {
        let transient = [
            (503, "SlowDown"),
            (500, "InternalError"),
            (429, "TooManyRequests"),
            (409, "ConditionalRequestConflict"),
            (400, "RequestTimeout"),
            (400, "BadDigest"),
            (507, "XMinioStorageFull"),
        ];
        for (status, code) in transient {
            let fault = answer(status, code).fault("PUT k");
            assert!(matches!(fault, Fault::Unknown(_)), "{fault:?}");
        }
        let refused = [
            (403, "AccessDenied", "access key"),
            (403, "RequestTimeTooSkewed", "clock"),
            (404, "NoSuchBucket", "bucket is gone"),
            (301, "PermanentRedirect", "--region"),
            (501, "NotImplemented", "another S3 server"),
        ];
        for (status, code, fix) in refused {
            match answer(status, code).fault("PUT k") {
                Fault::Refused(told) => {
                    assert!(told.contains(fix) && told.contains(code), "{told}")
                }
                fault => panic!("{fault:?}"),
            }
        }
    }

    #[test]
    fn a_mirror_has_no_keys_of_logs() {
        for key in ["p/agents/a/.ctx/log/1", ".ctx/x", "agents/a/notes/.ctx"] {
            assert!(MirrorClient::check(key).is_err(), "{key}");
        }
        for key in ["agents/a/x.ctx/y", "agents/a/%2Ectx/y", "agents/a/.ctxx"] {
            assert!(MirrorClient::check(key).is_ok(), "{key}");
        }
    }
}
