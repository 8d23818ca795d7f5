//! Signed requests to a bucket on an S3 server over one pool of connections, and their answers.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Method, Request, header};
use inputs::with_causes;
use jiff::Timestamp;
use network::limits::{self, BodyLimit, SLOWEST};
use network::{BodyError, RedirectError, TransportError, execute, read_body, read_start};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{S3Action, UrlStyle};
use url::Url;

use crate::config::S3Config;
use crate::credentials::{Credentials, KeyError};
use crate::objects::Fault;
use crate::signature::sign;
use crate::stored::{ListedObject, Object, Precondition, Requests, S3OpenError};
use crate::tree::Hash;
use crate::wire::{Resolver, element};

/// The waits before a request is sent again. The engine tries again later, and for longer.
const WAITS: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(100)];

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

/// The bucket's address, in one of the two styles.
pub(crate) fn bucket_address(config: &S3Config, path_style: bool) -> Result<rusty_s3::Bucket, S3OpenError> {
    let (endpoint, name) = (&config.endpoint, &config.bucket);
    let wrong = |error: &dyn std::fmt::Display| {
        let reason = format!("endpoint {endpoint:?} is not an http or https address: {error}");
        S3OpenError::new(reason, "give an address such as http://127.0.0.1:9000")
    };
    let url = Url::parse(endpoint).map_err(|error| wrong(&error))?;
    let style = if path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
    let bucket = rusty_s3::Bucket::new(url, style, name.clone(), config.region.clone());
    bucket.map_err(|error| match error {
        // Such as an IP address.
        rusty_s3::BucketError::ParseError(error) if !path_style => {
            let part = format!("bucket {name} cannot be part of the host name of {endpoint}");
            S3OpenError::new(format!("{part}: {error}"), "leave out --virtual-host")
        }
        error => wrong(&error),
    })
}

/// An answer of the server, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The redirect that it is.
    redirected: Option<RedirectError>,
    /// The key was of a role, and another is asked for.
    is_key_expired: bool,
}

impl Answer {
    /// The error code of S3 in the body.
    pub(crate) fn code(&self) -> Option<&str> {
        element(std::str::from_utf8(&self.body).ok()?, "Code")
    }

    fn into_object(self) -> Object {
        let metadata = self.headers.iter().filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix("x-amz-meta-")?;
            Some((name.to_owned(), value.to_str().ok()?.to_owned()))
        });
        Object {
            // `rclone serve s3` answers a part with status 200.
            is_part: self.headers.contains_key(header::CONTENT_RANGE),
            metadata: metadata.collect(),
            etag: self.header("etag").map(str::to_owned),
            body: self.body,
        }
    }

    /// A header of the answer, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the same request may succeed later.
    fn is_transient(&self) -> bool {
        match self.status {
            501 => false,
            _ if self.is_key_expired => true,
            408 | 409 | 429 | 500..=599 => true,
            _ => self.code().is_some_and(|code| TRANSIENT.contains(&code)),
        }
    }

    /// Advice for the user on an answer that reports a failure.
    pub(crate) fn fix(&self) -> &'static str {
        match (self.status, self.code().unwrap_or_default()) {
            (_, "NoSuchBucket") => "create the bucket, or name another one with --bucket",
            (_, "RequestTimeTooSkewed") => "set the clock, as with `timedatectl set-ntp true`",
            (_, "InvalidObjectState") => "restore the object, and exclude it from lifecycle rules",
            (300..=399, _) | (400, "AuthorizationHeaderMalformed") => {
                "check the endpoint and --region: the bucket is in another place"
            }
            (401 | 403, _) => "check the access key, and what its policy allows in this bucket",
            (501, _) => "the server does not implement this: use another S3 server",
            _ => "check that the endpoint is the S3 port of a running server",
        }
    }

    /// Why it is not the answer that was asked for, for a user: S3's error code, and the host that the server redirects to.
    pub(crate) fn reason(&self) -> String {
        match (self.code(), &self.redirected) {
            (Some(code), Some(redirected)) => format!("{code}: {redirected}"),
            (None, Some(redirected)) => redirected.to_string(),
            (Some(code), None) => code.to_owned(),
            (None, None) => "with an answer that is not S3's".to_owned(),
        }
    }

    /// Why the request failed, and what to do.
    pub(crate) fn fault(&self, request: &str) -> Fault {
        let code = self.code().unwrap_or("an answer without an S3 error code");
        let told = match &self.redirected {
            Some(redirected) => format!("{request}: {} {code}: {redirected}", self.status),
            None => format!("{request}: {} {code}", self.status),
        };
        if self.is_transient() { Fault::Unknown(told) } else { Fault::Refused(format!("{told} ({})", self.fix())) }
    }
}

/// The length of the part of an object that a request asks for, in bytes.
#[derive(Clone, Copy, Debug)]
struct PartLength(u64);

/// A bucket on a server.
#[derive(Debug)]
pub(crate) struct Server {
    http: reqwest::Client,
    address: rusty_s3::Bucket,
    credentials: Credentials,
    timeout: Duration,
    pub(crate) requests: Requests,
}

impl Server {
    /// Fails if endpoint or access key cannot be used; the first request connects.
    pub(crate) fn new(config: &S3Config) -> Result<Self, S3OpenError> {
        let http = network::client()
            .dns_resolver(Resolver)
            // As S3 speaks it.
            .http1_only()
            // A body is the bytes of the object, as many as its length says.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            // Each request has its own time limit, by its length.
            .connect_timeout(config.timeout.min(Duration::from_secs(5)));
        let http = if config.endpoint.starts_with("http://") {
            // Reading the system's certificates takes longer than a mount may.
            http.tls_certs_only([])
        } else {
            http
        };
        let http = network::build(http).map_err(|error| {
            let reason = format!("cannot start an HTTP client: {error}");
            S3OpenError::new(reason, "check the proxy and TLS settings")
        })?;
        if let Credentials::Key(key) = &config.credentials
            && !key.is_valid()
        {
            let reason = "it has blanks or other characters";
            return Err(S3OpenError::access_key(config, reason));
        }
        Ok(Self {
            http,
            address: bucket_address(config, config.path_style)?,
            credentials: config.credentials.clone(),
            timeout: config.timeout,
            requests: Requests::default(),
        })
    }

    /// Asks for one key of a bucket, once: the smallest request that needs everything to be right.
    pub(crate) async fn ask(&self, address: &rusty_s3::Bucket) -> Result<Answer, RequestError> {
        let mut list = ListObjectsV2::new(address, None);
        list.with_max_keys(1);
        let request = Request::get(list.sign(Duration::ZERO).as_str()).body(Bytes::new());
        let request = request.map_err(RequestError::of)?;
        self.attempt(&request, limits::LISTING_PAGE).await
    }

    /// Writes an object, as `Bucket::write` does.
    pub(crate) async fn write(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        precondition: Precondition<'_>,
        digest: Option<Hash>,
    ) -> Result<bool, Fault> {
        // SeaweedFS does not compare the body with the digest that the signature covers.
        let checksum = STANDARD.encode(crc32fast::hash(&body).to_be_bytes());
        let mut request = Request::put(self.address.object_url(key).as_str())
            .header(header::CONTENT_LENGTH, body.len())
            .header("x-amz-checksum-crc32", checksum);
        for (name, value) in metadata {
            request = request.header(format!("x-amz-meta-{name}"), value);
        }
        request = match precondition {
            Precondition::None => request,
            Precondition::Absent => request.header(header::IF_NONE_MATCH, "*"),
            Precondition::Etag(etag) => request.header(header::IF_MATCH, etag),
        };
        if let Some(digest) = digest {
            request = request.extension(digest);
        }
        let answer = self.send(request, body).await?;
        match answer.status {
            // Also after a retry of a request that created it.
            304 | 412 if precondition != Precondition::None => Ok(false),
            _ if answer.is_success() => Ok(true),
            _ => Err(answer.fault(&format!("PUT {key}"))),
        }
    }

    /// Signs a request and sends it once. The body of a successful answer has at most `limit`.
    async fn attempt(&self, request: &Request<Bytes>, limit: BodyLimit) -> Result<Answer, RequestError> {
        let mut signed = reqwest::Request::try_from(request.clone()).map_err(TransportError::from)?;
        let digest = request.extensions().get::<Hash>().copied();
        let digest = digest.unwrap_or_else(|| Hash::of(request.body()));
        let key = self.credentials.key().await?;
        let region = self.address.region();
        sign(&mut signed, &digest, &key, region, Timestamp::now()).map_err(RequestError::of)?;
        let kind = match *request.method() {
            Method::PUT => "s3_put",
            Method::DELETE => "s3_delete",
            _ if request.uri().query().is_some() => "s3_list",
            _ => "s3_get",
        };
        self.requests.count(kind, 1);
        self.requests.count("s3_bytes_sent", request.body().len());
        let execute = execute(&self.http, signed);
        let sending = request.body().len() as u64 * 1000 / SLOWEST;
        let time = self.timeout + Duration::from_millis(sending);
        let response = tokio::time::timeout(time, execute).await??;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let redirected = RedirectError::of(&response);
        let part = request.extensions().get::<PartLength>();
        let is_part = status == 206 || headers.contains_key(header::CONTENT_RANGE);
        let limit = match part.filter(|_| is_part) {
            Some(PartLength(length)) => limit.at_most(*length),
            None => limit,
        };
        let body = if response.status().is_success() {
            read_body(response, limit.within(self.timeout)).await?
        } else {
            read_start(response, limits::ERROR.within(self.timeout)).await
        };
        self.requests.count("s3_bytes_received", body.len());
        let mut answer = Answer { status, headers, body, redirected, is_key_expired: false };
        answer.is_key_expired =
            !answer.is_success() && answer.code() == Some("ExpiredToken") && self.credentials.forget(&key.id);
        if !answer.is_transient() {
            self.requests.answered();
        }
        Ok(answer)
    }

    /// Sends a request that may be repeated, a few times at most; its answer holds no content.
    async fn send(&self, request: Builder, body: Bytes) -> Result<Answer, Fault> {
        self.send_for(request, body, limits::ERROR).await
    }

    /// The same for an answer with content of at most `limit`.
    async fn send_for(&self, request: Builder, body: Bytes, limit: BodyLimit) -> Result<Answer, Fault> {
        let request = request.body(body);
        let request = request.map_err(|error| Fault::Refused(error.to_string()))?;
        let mut waits = WAITS.into_iter();
        loop {
            let answered = self.attempt(&request, limit).await;
            let may_repeat = match &answered {
                Ok(answer) => answer.is_transient(),
                // A second attempt would take as long.
                Err(error) => !error.is_late && !error.is_too_long,
            };
            match waits.next().filter(|_| may_repeat) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => {
                    let (method, path) = (request.method(), request.uri().path());
                    return answered.map_err(|error| {
                        let told = format!("{method} {path}: {error}");
                        // A change may be done, whatever its answer is.
                        if error.is_too_long && *method == Method::GET {
                            Fault::Unreadable(told)
                        } else {
                            Fault::Unknown(told)
                        }
                    });
                }
            }
        }
    }

    /// Reads an object, as `Bucket::get` does.
    pub(crate) async fn get(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        limit: BodyLimit,
    ) -> Result<Option<Object>, Fault> {
        let mut request = Request::get(self.address.object_url(key).as_str());
        if let Some(range) = range {
            let bytes = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            request = request.header(header::RANGE, bytes);
            request = request.extension(PartLength(range.end.saturating_sub(range.start)));
        }
        let answer = self.send_for(request, Bytes::new(), limit).await?;
        match (answer.status, answer.code()) {
            (200 | 206, _) => Ok(Some(answer.into_object())),
            // Only S3's own code says so: a proxy may answer 404, too.
            (404, Some("NoSuchKey")) => Ok(None),
            (416, _) => Err(Fault::Unreadable(format!("{key} is truncated"))),
            _ => Err(answer.fault(&format!("GET {key}"))),
        }
    }

    /// All objects whose keys begin with `prefix`, in order; one request for each thousand. Fails if the listing does not
    /// end: if it repeats itself, or has more pages or keys than a bucket of ours; or if there are more than `most`.
    pub(crate) async fn list(&self, prefix: &str, most: usize) -> Result<Vec<ListedObject>, Fault> {
        let mut listed = Vec::new();
        let mut progress = ListingProgress::default();
        let mut token: Option<String> = None;
        loop {
            let mut list = ListObjectsV2::new(&self.address, None);
            list.with_prefix(prefix);
            if let Some(token) = &token {
                list.with_continuation_token(token.clone());
            }
            let request = Request::get(list.sign(Duration::ZERO).as_str());
            let answer = self.send_for(request, Bytes::new(), limits::LISTING_PAGE);
            let answer = answer.await?;
            if answer.status != 200 {
                return Err(answer.fault(&format!("LIST {prefix}")));
            }
            let page = str::from_utf8(&answer.body).ok();
            // A listing that is cut may parse all the same.
            let page = page.filter(|page| page.trim_end().ends_with("</ListBucketResult>"));
            let page = page.and_then(|page| ListObjectsV2::parse_response(page).ok());
            let damaged = || Fault::Unknown(format!("LIST {prefix}: the answer is damaged"));
            let page = page.ok_or_else(damaged)?;
            let keys = page.contents.iter().map(|object| object.key.as_str());
            token = page.next_continuation_token;
            let checked = progress.check(keys, token.as_deref());
            checked.map_err(|reason| Fault::Unknown(format!("LIST {prefix}: {reason}")))?;
            if progress.pages.is_multiple_of(LISTING_NEWS) {
                let (pages, keys) = (progress.pages, listed.len());
                tracing::info!("still listing {prefix}: {keys} keys in {pages} pages so far");
            }
            listed.extend(page.contents.into_iter().filter_map(|object| {
                Some(ListedObject {
                    key: object.key.strip_prefix(prefix)?.to_owned(),
                    size: object.size.unwrap_or(0),
                    modified: nanoseconds(object.last_modified.as_deref()),
                })
            }));
            if listed.len() > most {
                return Err(Fault::Unreadable(format!("LIST {prefix}: there are more than {most} objects")));
            }
            if token.is_none() {
                return Ok(listed);
            }
        }
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        let request = Request::delete(self.address.object_url(key).as_str());
        let answer = self.send(request, Bytes::new()).await?;
        if answer.is_success() || answer.code() == Some("NoSuchKey") {
            Ok(())
        } else {
            Err(answer.fault(&format!("DELETE {key}")))
        }
    }
}

/// Pages after which a listing that goes on is logged.
const LISTING_NEWS: usize = 500;

/// Whether a listing comes closer to its end: a server could answer for ever.
#[derive(Default)]
struct ListingProgress {
    pages: usize,
    keys: usize,
    /// Pages without a new key, one after the other.
    empty: usize,
    /// Digests of the keys and of the tokens so far.
    seen: HashSet<u64>,
    tokens: HashSet<u64>,
    state: RandomState,
}

impl ListingProgress {
    /// Takes a page. Fails with the reason if the listing repeats itself or is too long.
    fn check<'k>(&mut self, keys: impl Iterator<Item = &'k str>, token: Option<&str>) -> Result<(), String> {
        self.pages += 1;
        let (mut count, mut is_new) = (0, false);
        for key in keys {
            count += 1;
            is_new |= self.seen.insert(self.state.hash_one(key));
        }
        self.keys += count;
        let Some(token) = token else { return Ok(()) };
        if count > 0 && !is_new {
            return Err("the server repeats the same keys".to_owned());
        }
        self.empty = if count == 0 { self.empty + 1 } else { 0 };
        if self.empty > limits::EMPTY_PAGES {
            let most = limits::EMPTY_PAGES;
            return Err(format!("the server sends more than {most} empty pages in a row"));
        }
        if !self.tokens.insert(self.state.hash_one(token)) {
            return Err("the server repeats a page: its continuation token is the same again".to_owned());
        }
        if self.pages >= limits::LISTING_PAGES || self.keys > limits::LISTED_KEYS {
            let (pages, keys) = (limits::LISTING_PAGES, limits::LISTED_KEYS);
            return Err(format!("the listing has more than {pages} pages or {keys} keys"));
        }
        Ok(())
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct RequestError {
    reason: String,
    /// Its time limit is over.
    is_late: bool,
    /// Its answer is longer than its kind may be.
    is_too_long: bool,
    /// The client does not trust the server's certificate.
    pub(crate) is_untrusted: bool,
}

impl RequestError {
    fn of(error: impl std::error::Error) -> Self {
        Self { reason: with_causes(&error), is_late: false, is_too_long: false, is_untrusted: false }
    }
}

impl From<KeyError> for RequestError {
    fn from(error: KeyError) -> Self {
        // The service was asked more than once already.
        Self { is_late: true, ..Self::of(error) }
    }
}

impl From<TransportError> for RequestError {
    fn from(error: TransportError) -> Self {
        // The faults that name a request name its address, too.
        Self { is_late: error.is_late, is_untrusted: error.is_untrusted, ..Self::of(error) }
    }
}

impl From<BodyError> for RequestError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Broken(error) => error.into(),
            error => Self {
                is_late: error.is_late(),
                is_too_long: matches!(error, BodyError::TooLong(_)),
                ..Self::of(error)
            },
        }
    }
}

impl From<tokio::time::error::Elapsed> for RequestError {
    fn from(error: tokio::time::error::Elapsed) -> Self {
        Self { is_late: true, ..Self::of(error) }
    }
}

/// A time of S3 in nanoseconds since 1970; the far future, which garbage collection spares, if it is none.
fn nanoseconds(time: Option<&str>) -> i64 {
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    let time = time.and_then(|time| time.as_nanosecond().try_into().ok());
    time.unwrap_or(i64::MAX)
}
