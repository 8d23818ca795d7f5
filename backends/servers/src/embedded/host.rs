//! Virtual-hosted addressing: the bucket is part of the host name.

use http::StatusCode;
use s3s::host::{S3Host, VirtualHost};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Takes the bucket from the host name before the domain. Refuses the domain alone.
#[derive(Debug)]
pub(super) struct VirtualHosts {
    /// The domain with a leading dot.
    suffix: String,
}

impl VirtualHosts {
    /// For a domain with its port, as in the `Host` header.
    pub(super) fn new(domain: &str) -> Self {
        Self { suffix: format!(".{domain}") }
    }
}

impl S3Host for VirtualHosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let bucket = host.strip_suffix(&self.suffix);
        match bucket.filter(|bucket| !bucket.is_empty()) {
            Some(bucket) => Ok(VirtualHost::new(&self.suffix[1..]).with_bucket(bucket)),
            // The answer of servers without path-style addressing, such as Alibaba OSS.
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
    fn the_host_name_before_the_domain_is_the_bucket() {
        let hosts = VirtualHosts::new("localhost:9000");
        let parsed = hosts.parse_host_header("notes.localhost:9000").unwrap();
        assert_eq!(parsed.bucket(), Some("notes"));
        for host in ["localhost:9000", ".localhost:9000", "notes.localhost", "x"] {
            assert!(hosts.parse_host_header(host).is_err(), "{host}");
        }
    }
}
