//! Signature Version 4 of AWS, in the headers of a request.
//!
//! Steps and terms are those of <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use url::{Position, Url};

use crate::credentials::AccessKey;
use crate::tree::Hash;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The characters that a canonical query percent-encodes.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A header has other characters than visible ASCII and blanks.
#[derive(Debug, thiserror::Error)]
#[error("header {0} has characters that a signature cannot cover")]
pub struct UnsignableHeader(HeaderName);

/// Signs an S3 request as sent at `now`, whose body has the given digest: a server refuses a body with another digest.
///
/// Signs every header that the request already has, except its length, which the HTTP client may set again.
pub fn sign(
    request: &mut Request,
    digest: &Hash,
    key: &AccessKey,
    region: &str,
    now: Timestamp,
) -> Result<(), UnsignableHeader> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &time[..8];
    let digest = digest.to_string();
    let token = key.token.as_ref().map(|token| &token.0);
    let headers =
        [("x-amz-date", Some(&time)), ("x-amz-content-sha256", Some(&digest)), ("x-amz-security-token", token)];
    for (name, value) in headers {
        if let Some(value) = value {
            insert(request, HeaderName::from_static(name), value)?;
        }
    }

    let headers = canonical_headers(request)?;
    let names: Vec<&str> = headers.keys().copied().collect();
    let names = names.join(";");
    let (method, path) = (request.method(), request.url().path());
    let mut canonical = format!("{method}\n{path}\n{}\n", canonical_query(request.url()));
    for (name, value) in &headers {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{digest}");

    let scope = format!("{day}/{region}/s3/aws4_request");
    let canonical = Hash::of(canonical.as_bytes());
    let secret = format!("AWS4{}", key.secret.0);
    let derived = [day, region, "s3", "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| Hash::with_key(&key, part.as_bytes()).0.to_vec());
    let signed = format!("{ALGORITHM}\n{time}\n{scope}\n{canonical}");
    let signature = Hash::with_key(&derived, signed.as_bytes());
    let credential = format!("{}/{scope}", key.id);
    let value = format!("{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}");
    insert(request, AUTHORIZATION, &value)
}

fn insert(request: &mut Request, name: HeaderName, value: &str) -> Result<(), UnsignableHeader> {
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| UnsignableHeader(name.clone()))?;
    // Debug output does not show it.
    value.set_sensitive(true);
    request.headers_mut().insert(name, value);
    Ok(())
}

fn canonical_query(url: &Url) -> String {
    let encode = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let pairs = url.query_pairs();
    let mut pairs: Vec<_> = pairs.map(|(name, value)| (encode(&name), encode(&value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// The headers that are signed, by name.
fn canonical_headers(request: &Request) -> Result<BTreeMap<&str, String>, UnsignableHeader> {
    let url = request.url();
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let mut headers = BTreeMap::from([(HOST.as_str(), host.to_owned())]);
    for (name, value) in request.headers() {
        if [AUTHORIZATION, CONTENT_LENGTH, HOST].contains(name) {
            continue;
        }
        let value = value.to_str().map_err(|_| UnsignableHeader(name.clone()))?;
        let words: Vec<&str> = value.split_whitespace().collect();
        let words = words.join(" ");
        headers.entry(name.as_str()).and_modify(|values| *values = format!("{values},{words}")).or_insert(words);
    }
    Ok(headers)
}
