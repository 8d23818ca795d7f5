//! What an `s3` mount is called, and how it is started. Its servers are in `s3_service`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::Launch;
use crate::backend::Site;
use crate::s3_service::{self, Server};

/// The cache and journal of a bucket, in its site.
pub(super) const CACHE: &str = "cache.s3.db";

/// An `s3` mount, and the server that it is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct S3Mount {
    /// `fsync` waits for the bucket.
    pub(crate) fsync_waits: bool,
    pub(crate) server: Server,
}

impl S3Mount {
    /// The mount that a backend's name stands for: `s3` or `s3-fsync`, then maybe the server and the distance to
    /// it, as [`Server::of_suffix`] has them.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("s3")?;
        let (fsync_waits, suffix) = match rest.strip_prefix("-fsync") {
            Some(suffix) => (true, suffix),
            None => (false, rest),
        };
        let server = Server::of_suffix(suffix)?;
        Some(Self {
            fsync_waits,
            server,
        })
    }

    pub(super) fn name(self) -> String {
        let fsync = if self.fsync_waits { "-fsync" } else { "" };
        format!("s3{fsync}{}", self.server.suffix())
    }

    /// `beside` is where another host that mounts the same bucket has its cache.
    pub(super) fn launch(self, site: &Site, beside: Option<&Path>) -> io::Result<Launch> {
        let cache = beside.unwrap_or(&site.dir).join(CACHE);
        let address = self.server.address(&site.program)?;
        let mut arguments: Vec<OsString> = vec![
            "--endpoint".into(),
            address.endpoint.into(),
            "--region".into(),
            address.region.into(),
            "--bucket".into(),
            address.bucket.into(),
            "--prefix".into(),
            format!("{}/", s3_service::place(&site.dir)).into(),
            "--agent-id".into(),
            "agent".into(),
            "--cache".into(),
            cache.into(),
        ];
        if beside.is_some() {
            arguments.extend(["--writer".into(), "second".into()]);
        }
        if self.fsync_waits {
            arguments.extend(["--sync".into(), "fsync".into()]);
        }
        let environment = match address.keys {
            Some((id, secret)) => vec![
                ("AWS_ACCESS_KEY_ID", id),
                ("AWS_SECRET_ACCESS_KEY", secret),
                ("AWS_SESSION_TOKEN", String::new()),
                ("CTXBENCH_S3_KEY", String::new()),
            ],
            None => Vec::new(),
        };
        Ok(Launch {
            arguments,
            environment,
        })
    }
}
