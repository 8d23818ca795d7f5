//! What is wrong with a server, an address or an access key, found out by asking for one key of the bucket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use object_store::client::{DnsFuture, DnsResolver};
use rusty_s3::UrlStyle;
use rusty_s3::actions::ListObjectsV2;
use url::Url;

use crate::client::{Bucket, one_line};
use crate::config::S3Config;

/// Time limit of one request of a check: a caller who made a mistake waits for it.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// What is wrong with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The endpoint is no address.
    Endpoint,
    /// The server does not answer.
    Unreachable,
    /// The server's certificate is not trusted.
    Certificate,
    /// The bucket has to be in the path and is in the host name, or the other way round.
    AddressStyle,
    /// The access key is wrong, or its policy denies this.
    AccessKey,
    /// There is no such bucket.
    NoBucket,
    /// The bucket is in another region.
    Region,
    /// The clocks differ too much for signatures.
    Clock,
    /// The server answers, but not as S3 does.
    Answer,
    /// This machine lacks something.
    Machine,
}

/// Why a bucket cannot be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}\n  fix: {fix}")]
pub struct S3OpenError {
    /// What is wrong.
    pub problem: Problem,
    /// The same for people, with the endpoint or the bucket.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

impl S3OpenError {
    pub(crate) fn new(problem: Problem, reason: String, fix: impl Into<String>) -> Self {
        let fix = fix.into();
        Self {
            problem,
            reason,
            fix,
        }
    }

    pub(crate) fn access_key(config: &S3Config, code: &str) -> Self {
        let (endpoint, bucket) = (&config.endpoint, &config.bucket);
        let source = &config.access_key.source;
        Self::new(
            Problem::AccessKey,
            format!("{endpoint} refuses the access key from {source}: {code}"),
            format!(
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what their policy allows in bucket {bucket}"
            ),
        )
    }
}

/// The bucket's address, in one of the two styles.
pub(crate) fn bucket_address(
    config: &S3Config,
    path_style: bool,
) -> Result<rusty_s3::Bucket, S3OpenError> {
    let (endpoint, name) = (&config.endpoint, &config.bucket);
    let wrong = |reason: String| {
        let reason = format!("endpoint {endpoint:?} is no http or https address: {reason}");
        S3OpenError::new(
            Problem::Endpoint,
            reason,
            "give an address such as http://127.0.0.1:9000",
        )
    };
    let no_name = |reason: String| {
        let reason =
            format!("bucket {name} cannot be part of the host name of {endpoint}: {reason}");
        S3OpenError::new(Problem::AddressStyle, reason, "leave out --virtual-host")
    };
    let url = Url::parse(endpoint).map_err(|error| wrong(error.to_string()))?;
    let is_ip = matches!(url.host(), Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)));
    let style = match path_style {
        true => UrlStyle::Path,
        false if is_ip => return Err(no_name("it is an IP address".to_owned())),
        false => UrlStyle::VirtualHost,
    };
    let bucket = rusty_s3::Bucket::new(url, style, name.clone(), config.region.clone());
    bucket.map_err(|error| match error {
        rusty_s3::BucketError::ParseError(error) if !path_style => no_name(error.to_string()),
        error => wrong(error.to_string()),
    })
}

/// Checks address, access key, clock and bucket, as a mount does before anything else. Nothing is written. Each of at
/// most two requests takes five seconds at most.
///
/// # Errors
/// [`S3OpenError`].
pub fn check_access(config: &S3Config) -> Result<(), S3OpenError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            let reason = format!("cannot start a runtime: {error}");
            S3OpenError::new(Problem::Machine, reason, "raise the limits of this process")
        })?;
    let checked = runtime.block_on(check(config));
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    checked
}

/// As [`check_access`], within a runtime.
///
/// # Errors
/// As [`check_access`].
pub async fn check(config: &S3Config) -> Result<(), S3OpenError> {
    let limited = S3Config {
        timeout: config.timeout.min(CHECK_LIMIT),
        ..config.clone()
    };
    let bucket = Bucket::new(&limited)?;
    let address = bucket_address(config, config.path_style)?;
    let Err(error) = ask(&bucket, &address, config).await else {
        return Ok(());
    };
    // Servers refuse the wrong address style in many ways.
    let may_be_style = match error.problem {
        Problem::Answer | Problem::AccessKey | Problem::NoBucket => true,
        // A host name with the bucket in it need not exist.
        Problem::Unreachable => !config.path_style,
        _ => false,
    };
    if may_be_style
        && let Ok(other) = bucket_address(config, !config.path_style)
        && ask(&bucket, &other, config).await.is_ok()
    {
        let (place, fix) = match config.path_style {
            true => ("host name, not in the path", "add --virtual-host"),
            false => ("path, not in the host name", "leave out --virtual-host"),
        };
        let reason = format!(
            "{} needs bucket {} in the {place}",
            config.endpoint, config.bucket
        );
        return Err(S3OpenError::new(Problem::AddressStyle, reason, fix));
    }
    Err(error)
}

async fn ask(
    bucket: &Bucket,
    address: &rusty_s3::Bucket,
    config: &S3Config,
) -> Result<(), S3OpenError> {
    let (endpoint, name) = (&config.endpoint, &config.bucket);
    let answer = bucket.ask(address).await.map_err(|error| {
        let reason = one_line(&error);
        // The TLS library gives no type for it.
        match reason.contains("certificate") || reason.contains("UnknownIssuer") {
            true => S3OpenError::new(
                Problem::Certificate,
                format!("endpoint {endpoint} has a certificate that is not trusted: {reason}"),
                "set SSL_CERT_FILE to the authority that signed it",
            ),
            false => S3OpenError::new(
                Problem::Unreachable,
                format!("endpoint {endpoint} does not answer: {reason}"),
                "check that the server runs, and that this is its address",
            ),
        }
    })?;
    let status = answer.status;
    // A server that does not know the bucket in its host name may list buckets instead.
    let is_listing = std::str::from_utf8(&answer.body).is_ok_and(|body| {
        body.contains("<ListBucketResult") && ListObjectsV2::parse_response(body).is_ok()
    });
    if status == 200 && is_listing {
        return Ok(());
    }
    Err(match (status, answer.code()) {
        (_, Some("NoSuchBucket")) => S3OpenError::new(
            Problem::NoBucket,
            format!("there is no bucket {name} at {endpoint}"),
            format!("create it, as with `aws s3 mb s3://{name} --endpoint-url {endpoint}`"),
        ),
        (_, Some("RequestTimeTooSkewed")) => S3OpenError::new(
            Problem::Clock,
            format!("the clocks of this machine and of {endpoint} differ too much for S3"),
            "set the clock, as with `timedatectl set-ntp true`",
        ),
        (300..=399, _) | (400, Some("AuthorizationHeaderMalformed")) => S3OpenError::new(
            Problem::Region,
            format!(
                "bucket {name} is not in region {} of {endpoint}",
                config.region
            ),
            match answer.header("x-amz-bucket-region") {
                Some(region) => format!("add --region {region}, with an endpoint of that region"),
                None => "give its --region, and an endpoint of that region".to_owned(),
            },
        ),
        (401 | 403, code) => S3OpenError::access_key(config, code.unwrap_or("no reason given")),
        (_, Some(code)) if code.contains("AccessKey") => S3OpenError::access_key(config, code),
        (_, code) => S3OpenError::new(
            Problem::Answer,
            format!(
                "{endpoint} answered {status}: {}",
                code.unwrap_or("not as S3 does")
            ),
            "check that this is the S3 port of the server, and that the server is well",
        ),
    })
}

/// Resolves names as the system does, but everything below `.localhost` to this machine (RFC 6761, section 6.3), which
/// glibc alone does not: a bucket can then be part of the name of a local server.
#[derive(Debug)]
pub(crate) struct Resolver;

fn is_this_machine(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.to_ascii_lowercase().ends_with(".localhost")
}

impl DnsResolver for Resolver {
    fn resolve(&self, host: &str) -> DnsFuture {
        if is_this_machine(host) {
            let here: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Box::pin(std::future::ready(Ok(here)));
        }
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_localhost_are_always_this_machine() {
        for here in ["ctxbench.localhost", "a.b.LOCALHOST", "x.localhost."] {
            assert!(is_this_machine(here), "{here}");
        }
        // The system knows `localhost` itself.
        for elsewhere in ["localhost", "notlocalhost", "localhost.example.com"] {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }
}
