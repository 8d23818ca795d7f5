//! Buckets that are part of the server's name.

use http::StatusCode;
use s3s::host::{S3Host, VirtualHost};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What stands before the domain is the bucket; the domain alone is refused.
#[derive(Debug)]
pub(super) struct VirtualHosts {
    /// Preceded by the dot that ends the bucket.
    suffix: String,
}

impl VirtualHosts {
    /// Of a domain with its port, as it stands in `Host`.
    pub(super) fn new(domain: &str) -> Self {
        Self {
            suffix: format!(".{domain}"),
        }
    }
}

impl S3Host for VirtualHosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let bucket = host.strip_suffix(&self.suffix);
        match bucket.filter(|bucket| !bucket.is_empty()) {
            Some(bucket) => Ok(VirtualHost::new(&self.suffix[1..]).with_bucket(bucket)),
            // As servers say it that have given up path style: Alibaba's OSS is one.
            None => {
                let code = S3ErrorCode::Custom("SecondLevelDomainForbidden".into());
                let mut error = S3Error::with_message(code, "use virtual hosted style");
                error.set_status_code(StatusCode::FORBIDDEN);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_is_what_stands_before_the_domain() {
        let hosts = VirtualHosts::new("localhost:9000");
        let parsed = hosts.parse_host_header("notes.localhost:9000").unwrap();
        assert_eq!(parsed.bucket(), Some("notes"));
        for host in ["localhost:9000", ".localhost:9000", "notes.localhost", "x"] {
            assert!(hosts.parse_host_header(host).is_err(), "{host}");
        }
    }
}
