//! The S3 server that a definition's file system keeps its objects on: the one that our own `s3` is measured with.

use std::io;

use super::variables::Variables;
use crate::backend::Site;
use crate::s3_service::{self, Wanted};

/// The end of the name of a definition that needs a server.
pub(super) const IN_NAME: &str = "-{s3_server}";

/// A server, and the distance to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) wanted: Wanted,
    /// Milliseconds of round-trip time that are added.
    rtt_ms: u32,
}

impl Server {
    pub(super) fn default_here() -> Self {
        Self {
            wanted: Wanted::default_here(),
            rtt_ms: 0,
        }
    }

    /// The server that the rest of a backend's name stands for: nothing or as in `-minio`, then maybe a
    /// round-trip time as in `@30ms`.
    pub(super) fn of_suffix(suffix: &str) -> Option<Self> {
        let (server, rtt_ms) = match suffix.split_once('@') {
            Some((server, rtt)) => (server, rtt.strip_suffix("ms")?.parse().ok()?),
            None => (suffix, 0),
        };
        let wanted = match server.strip_prefix('-') {
            Some(server) => Wanted::of_name(server)?,
            None if server.is_empty() => Wanted::default_here(),
            None => return None,
        };
        Some(Self { wanted, rtt_ms })
    }

    /// The inverse of [`Server::of_suffix`].
    pub(super) fn suffix(self) -> String {
        match self.rtt_ms {
            0 => format!("-{}", self.wanted.name()),
            rtt => format!("-{}@{rtt}ms", self.wanted.name()),
        }
    }

    /// Which it is and how far away, for a description.
    pub(super) fn words(self) -> String {
        let label = self.wanted.label();
        match self.rtt_ms {
            0 => format!("on {label}, on loopback"),
            rtt => format!("on {label}, behind a simulated round-trip time of {rtt} ms"),
        }
    }

    /// Starts it if it is not running, and says where it is.
    pub(super) fn tell(self, site: &Site, variables: &mut Variables) -> io::Result<()> {
        let address = s3_service::address(&site.program, self.wanted, self.rtt_ms)?;
        let (access_key, secret_key) = address.credentials()?;
        variables.set("s3_server", self.wanted.name().to_owned());
        variables.set("s3_endpoint", address.endpoint);
        variables.set("s3_bucket", address.bucket);
        variables.set("s3_region", address.region);
        variables.set("s3_prefix", s3_service::place(&site.dir));
        variables.set_secret("s3_access_key", access_key);
        variables.set_secret("s3_secret_key", secret_key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use servers::ServerKind;

    #[test]
    fn a_name_ends_with_server_and_distance() {
        for suffix in ["-minio", "-embedded", "-given", "-minio@30ms"] {
            assert_eq!(Server::of_suffix(suffix).unwrap().suffix(), suffix);
        }
        assert_eq!(Server::of_suffix(""), Some(Server::default_here()));
        let far = Server::of_suffix("-embedded@5ms").unwrap();
        assert_eq!(far.wanted, Wanted::Started(ServerKind::Embedded));
        assert_eq!(
            far.words(),
            "on embedded S3, behind a simulated round-trip time of 5 ms"
        );
        for wrong in ["-", "-maxio", "minio", "-minio@30", "@ms"] {
            assert_eq!(Server::of_suffix(wrong), None, "{wrong}");
        }
    }
}
