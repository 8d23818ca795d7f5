//! The server: requests, and what their failures mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector, HttpErrorKind, HttpRequestBody};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attributes, BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rusty_s3::actions::{CompleteMultipartUpload, ListObjectsV2, PutObject, UploadPart};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};

use super::config::S3Config;
pub(super) use super::error::RemoteError;
pub use super::error::S3OpenError;
use super::error::one_line;
use super::requests::{Counting, Moves, Requests};
use super::resolve::Resolver;
use super::uplink::Uplink;
use crate::store::Timestamp;

/// What a key in a header must have escaped.
const UNSAFE_IN_KEYS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// How long a signed address is good for.
pub(super) const SIGNED_FOR: Duration = Duration::from_secs(300);

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
}

/// An object, or a range of one, as it came.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) body: Bytes,
    pub(super) etag: String,
    pub(super) attributes: Attributes,
    /// Of the whole object.
    pub(super) size: u64,
    pub(super) modified: Timestamp,
}

/// What has to be true of an object for it to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// It is not there.
    Absent,
    /// It has this entity tag.
    Etag(String),
    /// Nothing.
    Anything,
}

/// A bucket on a server.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) store: AmazonS3,
    raw: HttpClient,
    pub(super) bucket: Bucket,
    pub(super) credentials: Credentials,
    requests: Arc<Requests>,
    uplink: Uplink,
}

/// The bucket's address, in one of the two styles.
pub(super) fn bucket_at(config: &S3Config, path_style: bool) -> Result<Bucket, S3OpenError> {
    let wrong = |reason: String| S3OpenError::Endpoint(config.endpoint.clone(), reason);
    let url = url::Url::parse(&config.endpoint).map_err(|error| wrong(error.to_string()))?;
    let (name, region) = (config.bucket.clone(), config.region.clone());
    if path_style {
        return Bucket::new(url, UrlStyle::Path, name, region)
            .map_err(|error| wrong(error.to_string()));
    }
    let no_name = |reason: String| S3OpenError::NoName {
        endpoint: config.endpoint.clone(),
        bucket: config.bucket.clone(),
        reason,
    };
    if let Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)) = url.host() {
        return Err(no_name("it is an address, and no name".to_owned()));
    }
    match Bucket::new(url, UrlStyle::VirtualHost, name, region) {
        Ok(bucket) => Ok(bucket),
        Err(rusty_s3::BucketError::ParseError(error)) => Err(no_name(error.to_string())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// An entity tag without its quotes.
fn bare(etag: Option<String>) -> String {
    etag.unwrap_or_default().trim_matches('"').to_owned()
}

fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

pub(super) fn path(key: &str) -> Result<Path, RemoteError> {
    Path::parse(key).map_err(|error| RemoteError::Other(format!("key {key:?}: {error}")))
}

impl Remote {
    pub(super) fn new(config: &S3Config) -> Result<Self, S3OpenError> {
        let wrong = |reason: String| S3OpenError::Endpoint(config.endpoint.clone(), reason);
        let bucket = bucket_at(config, config.path_style)?;
        let key = &config.access_key;
        let credentials = match &key.token {
            Some(token) => Credentials::new_with_token(&key.id, &key.secret.0, &token.0),
            None => Credentials::new(&key.id, &key.secret.0),
        };
        let requests = Arc::new(Requests::default());
        // HTTP is the user's choice, made by writing `http:` in the endpoint.
        let options = ClientOptions::new()
            .with_allow_http(true)
            // Nobody is to be trusted there, and reading them all delays every mount.
            .with_no_system_certificates(config.endpoint.starts_with("http://"))
            .with_dns_resolver(Arc::new(Resolver))
            .with_connect_timeout(config.timeout.min(Duration::from_secs(5)));
        let connector = Counting {
            requests: Arc::clone(&requests),
            timeout: config.timeout,
        };
        let raw = connector
            .connect(&options)
            .map_err(|error| wrong(one_line(&error)))?;
        let endpoint = if config.path_style {
            config.endpoint.clone()
        } else {
            // The builder wants the bucket in the address of a virtual host.
            bucket.base_url().as_str().trim_end_matches('/').to_owned()
        };
        let mut builder = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_region(&config.region)
            .with_bucket_name(&config.bucket)
            .with_virtual_hosted_style_request(!config.path_style)
            .with_access_key_id(&key.id)
            .with_secret_access_key(&key.secret.0)
            .with_client_options(options)
            .with_http_connector(connector)
            // A file system's caller waits: give up long before the defaults would.
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(50),
                    max_backoff: Duration::from_secs(1),
                    base: 2.0,
                },
                max_retries: 3,
                retry_timeout: config.timeout,
            });
        if let Some(token) = &key.token {
            builder = builder.with_token(&token.0);
        }
        let store = builder.build().map_err(|error| wrong(one_line(&error)))?;
        Ok(Self {
            store,
            raw,
            bucket,
            credentials,
            requests,
            uplink: Uplink::default(),
        })
    }

    /// Requests that were answered with success so far: whether anything goes on at all.
    pub(super) fn answered(&self) -> u64 {
        self.requests.answered()
    }

    /// When the last of the requests under way that send much will have taken too long.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.requests.patience()
    }

    pub(super) fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.requests.snapshot()
    }

    /// Sends a signed request as it is; status and body.
    pub(super) async fn send(
        &self,
        method: &str,
        url: &url::Url,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<(u16, String), object_store::client::HttpError> {
        self.send_moving(method, url, headers, body, Moves(0)).await
    }

    async fn send_moving(
        &self,
        method: &str,
        url: &url::Url,
        headers: &[(&str, String)],
        body: String,
        moves: Moves,
    ) -> Result<(u16, String), object_store::client::HttpError> {
        let mut request = http::Request::builder().method(method).uri(url.as_str());
        request = request.extension(moves);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(HttpRequestBody::from(body))
            .map_err(|error| object_store::client::HttpError::new(HttpErrorKind::Request, error))?;
        let response = self.raw.execute(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().bytes().await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Whether the bucket is there: an answer to HEAD does not tell a missing object from a missing bucket.
    pub(super) async fn has_bucket(&self) -> Result<(), RemoteError> {
        let mut list = ListObjectsV2::new(&self.bucket, Some(&self.credentials));
        list.with_max_keys(1);
        let url = list.sign(SIGNED_FOR);
        match self.send_retrying("GET", &url, &[]).await? {
            (200, _) => Ok(()),
            (status, body) => Err(RemoteError::of_status(status, xml_code(&body), "listing")),
        }
    }

    /// Everything under a prefix, a request for a thousand.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, RemoteError> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut list = ListObjectsV2::new(&self.bucket, Some(&self.credentials));
            list.with_prefix(prefix);
            if let Some(token) = &token {
                list.with_continuation_token(token.clone());
            }
            let (status, body) = self
                .send_retrying("GET", &list.sign(SIGNED_FOR), &[])
                .await?;
            if status != 200 {
                let what = format!("listing {prefix}");
                return Err(RemoteError::of_status(status, xml_code(&body), &what));
            }
            // What is cut short is no listing, though what came of it may look like one.
            if !body.trim_end().ends_with("</ListBucketResult>") {
                return Err(RemoteError::Damaged(format!(
                    "listing {prefix}: the answer has no end"
                )));
            }
            let page = ListObjectsV2::parse_response(&body)
                .map_err(|error| RemoteError::Other(format!("listing {prefix}: {error}")))?;
            all.extend(page.contents.into_iter().map(|object| {
                Listed {
                    key: object.key,
                    etag: bare(object.etag),
                    size: object.size.unwrap_or(0),
                    modified: object
                        .last_modified
                        .and_then(|time| time.parse::<jiff::Timestamp>().ok())
                        .and_then(|time| i64::try_from(time.as_nanosecond()).ok())
                        .map_or(Timestamp(0), Timestamp),
                }
            }));
            token = page.next_continuation_token;
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// A request that may be sent twice, tried three times.
    async fn send_retrying(
        &self,
        method: &str,
        url: &url::Url,
        headers: &[(&str, String)],
    ) -> Result<(u16, String), RemoteError> {
        self.send_retrying_moving(method, url, headers, Moves(0))
            .await
    }

    async fn send_retrying_moving(
        &self,
        method: &str,
        url: &url::Url,
        headers: &[(&str, String)],
        moves: Moves,
    ) -> Result<(u16, String), RemoteError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let sent = self.send_moving(method, url, headers, String::new(), moves);
            match sent.await {
                // What is not implemented will not be, either.
                Ok((status, _)) if status >= 500 && status != 501 && attempt < 3 => {}
                Ok(answer) => return Ok(answer),
                Err(error) if attempt >= 3 || error.kind() == HttpErrorKind::Timeout => {
                    return Err(RemoteError::of_http(&error));
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
        }
    }

    pub(super) async fn put(
        &self,
        key: &str,
        body: Bytes,
        attributes: Attributes,
        expect: &Expect,
    ) -> Result<String, RemoteError> {
        let mode = match expect {
            Expect::Absent => PutMode::Create,
            Expect::Etag(etag) => PutMode::Update(UpdateVersion {
                e_tag: Some(quoted(etag)),
                version: None,
            }),
            Expect::Anything => PutMode::Overwrite,
        };
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        let at = path(key)?;
        let put = async {
            let put = self.store.put_opts(&at, PutPayload::from(body), options);
            put.await.map_err(RemoteError::from)
        };
        match (self.uplink.carry(put).await, expect) {
            // It was deleted meanwhile, which is a change.
            (Err(RemoteError::NotFound(_)), Expect::Etag(_)) => {
                Err(RemoteError::Changed(key.to_owned()))
            }
            (put, _) => Ok(bare(put?.e_tag)),
        }
    }

    /// Starts an upload in parts.
    pub(super) async fn start_parts(
        &self,
        key: &str,
        attributes: Attributes,
    ) -> Result<String, RemoteError> {
        let options = PutMultipartOptions {
            attributes,
            ..PutMultipartOptions::default()
        };
        Ok(self
            .store
            .create_multipart_opts(&path(key)?, options)
            .await?)
    }

    /// Uploads a part, counted from 0; its entity tag.
    pub(super) async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: usize,
        body: Bytes,
    ) -> Result<String, RemoteError> {
        let id = upload.to_owned();
        let body = PutPayload::from(body);
        let at = path(key)?;
        let put = async { Ok(self.store.put_part(&at, &id, part, body).await?.content_id) };
        self.uplink.carry(put).await
    }

    /// Makes the parts an object, if it is still in the state it was made for.
    pub(super) async fn complete_parts(
        &self,
        key: &str,
        upload: &str,
        parts: &[String],
        expect: &Expect,
    ) -> Result<String, RemoteError> {
        let etags = parts.iter().map(String::as_str);
        let mut complete =
            CompleteMultipartUpload::new(&self.bucket, Some(&self.credentials), key, upload, etags);
        let mut headers = Vec::new();
        match expect {
            Expect::Absent => headers.push(("if-none-match", "*".to_owned())),
            Expect::Etag(etag) => headers.push(("if-match", quoted(etag))),
            Expect::Anything => {}
        }
        for (name, value) in &headers {
            complete.headers_mut().insert(*name, value.clone());
        }
        let url = complete.sign(SIGNED_FOR);
        let body = complete.body();
        // Some servers put them together now: an eighth of a second for each.
        let moves = Moves(parts.len() as u64 * (8 << 10));
        let sent = self.send_moving("POST", &url, &headers, body, moves).await;
        let (status, answer) = sent.map_err(|error| RemoteError::of_http(&error))?;
        match status {
            200 if !answer.contains("<Error>") => Ok(etag_in(&answer).unwrap_or_default()),
            // The upload is gone as well when somebody else has completed one.
            404 | 409 | 412 if xml_code(&answer).as_deref() != Some("NoSuchBucket") => {
                Err(RemoteError::Changed(key.to_owned()))
            }
            _ => Err(RemoteError::of_status(status, xml_code(&answer), key)),
        }
    }

    pub(super) async fn abort_parts(&self, key: &str, upload: &str) -> Result<(), RemoteError> {
        Ok(self
            .store
            .abort_multipart(&path(key)?, &upload.to_owned())
            .await?)
    }

    pub(super) async fn get(&self, key: &str) -> Result<Fetched, RemoteError> {
        self.get_with(key, GetOptions::default()).await
    }

    /// As [`Remote::get`], unless it still has that entity tag: then `None`.
    pub(super) async fn get_unless(
        &self,
        key: &str,
        etag: Option<&str>,
    ) -> Result<Option<Fetched>, RemoteError> {
        let options = GetOptions {
            if_none_match: etag.map(quoted),
            ..GetOptions::default()
        };
        match self.get_with(key, options).await {
            Ok(fetched) => Ok(Some(fetched)),
            Err(RemoteError::Changed(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A range of one version of an object.
    pub(super) async fn get_range(
        &self,
        key: &str,
        range: std::ops::Range<u64>,
        etag: &str,
    ) -> Result<Fetched, RemoteError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: Some(quoted(etag)),
            ..GetOptions::default()
        };
        self.get_with(key, options).await
    }

    pub(super) async fn head(&self, key: &str) -> Result<Fetched, RemoteError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        self.get_with(key, options).await
    }

    async fn get_with(&self, key: &str, options: GetOptions) -> Result<Fetched, RemoteError> {
        let is_head = options.head;
        let result = self.store.get_opts(&path(key)?, options).await?;
        let (meta, attributes) = (result.meta.clone(), result.attributes.clone());
        let modified = meta.last_modified.timestamp_nanos_opt().unwrap_or(0);
        let body = if is_head {
            Bytes::new()
        } else {
            result.bytes().await?
        };
        Ok(Fetched {
            body,
            etag: bare(meta.e_tag),
            attributes,
            size: meta.size,
            modified: Timestamp(modified),
        })
    }

    /// Copies an object of so many bytes that has an entity tag still.
    pub(super) async fn copy(
        &self,
        (from, etag, length): (&str, &str, u64),
        to: &str,
    ) -> Result<(), RemoteError> {
        let headers = self.copied_from(from, etag)?;
        let mut put = PutObject::new(&self.bucket, Some(&self.credentials), to);
        for (name, value) in &headers {
            put.headers_mut().insert(*name, value.clone());
        }
        // Done twice it does the same.
        let url = put.sign(SIGNED_FOR);
        let sent = self.send_retrying_moving("PUT", &url, &headers, Moves(length));
        let (status, answer) = sent.await?;
        match status {
            200 if !answer.contains("<Error>") => Ok(()),
            412 => Err(RemoteError::Changed(from.to_owned())),
            _ => {
                let what = format!("copying {from}");
                Err(RemoteError::of_status(status, xml_code(&answer), &what))
            }
        }
    }

    /// What a request says of the object that it copies.
    fn copied_from(
        &self,
        from: &str,
        etag: &str,
    ) -> Result<[(&'static str, String); 2], RemoteError> {
        let source = format!("/{}/{}", self.bucket.name(), path(from)?);
        let source = utf8_percent_encode(&source, UNSAFE_IN_KEYS).to_string();
        Ok([
            ("x-amz-copy-source", source),
            ("x-amz-copy-source-if-match", quoted(etag)),
        ])
    }

    /// Copies a range of an object that has an entity tag still into a part, counted from 0; its entity tag. `None` if
    /// the object is not so any more, or the server does not know how.
    pub(super) async fn copy_part(
        &self,
        (from, etag, range): (&str, &str, std::ops::Range<u64>),
        (to, upload, part): (&str, &str, usize),
    ) -> Result<Option<String>, RemoteError> {
        let mut headers = self.copied_from(from, etag)?.to_vec();
        let last = range.end.saturating_sub(1);
        headers.push((
            "x-amz-copy-source-range",
            format!("bytes={}-{last}", range.start),
        ));
        let number = part as u16 + 1;
        let mut put = UploadPart::new(&self.bucket, Some(&self.credentials), to, number, upload);
        for (name, value) in &headers {
            put.headers_mut().insert(*name, value.clone());
        }
        let url = put.sign(SIGNED_FOR);
        let (status, answer) = self.send_retrying("PUT", &url, &headers).await?;
        let error = match status {
            // One that knows nothing of copies has taken it for a part without bytes, and answers none.
            200 if !answer.contains("<Error>") => return Ok(etag_in(&answer)),
            501 => return Ok(None),
            _ => RemoteError::of_status(status, xml_code(&answer), &format!("copying {from}")),
        };
        match error {
            RemoteError::NotFound(_) | RemoteError::Other(_) => Ok(None),
            error => Err(error),
        }
    }
}

/// The entity tag in an answer.
fn etag_in(answer: &str) -> Option<String> {
    let etag = answer.split("<ETag>").nth(1)?.split('<').next()?;
    let etag = etag.replace("&quot;", "").replace("&#34;", "");
    Some(bare(Some(etag)))
}

/// S3's code for an error.
pub(super) fn xml_code(body: &str) -> Option<String> {
    let code = body.split("<Code>").nth(1)?.split("</Code>").next()?;
    Some(code.to_owned())
}
