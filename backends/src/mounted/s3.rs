//! The names, variants and launch options of `s3` mounts. Their servers are in `s3_service`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::Launch;
use crate::backend::Site;
use crate::s3_service::{self, Server};

/// The file name of the local cache and journal in its site.
pub(super) const CACHE: &str = "cache.s3.db";

/// A variant of the `s3` mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum S3Variant {
    /// The defaults of `ctxbench mount s3`.
    Default,
    /// `fsync` waits until the change is in the bucket.
    Fsync,
    /// `close` waits for the bucket, too, and the mount polls for other writers' commits every 10 ms.
    Close,
    /// Each restart begins with an empty cache, as on a host that has never mounted the memory.
    Fresh,
}

/// A variant of the `s3` mount, and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct S3Mount {
    pub(crate) variant: S3Variant,
    pub(crate) server: Server,
}

impl S3Variant {
    const ALL: [Self; 4] = [Self::Default, Self::Fsync, Self::Close, Self::Fresh];

    /// Its suffix in a backend's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Fsync => "-fsync",
            Self::Close => "-close",
            Self::Fresh => "-fresh",
        }
    }

    /// Its options of `ctxbench mount s3`.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Default | Self::Fresh => &[],
            Self::Fsync => &["--sync", "fsync"],
            Self::Close => &["--sync", "close", "--poll", "10"],
        }
    }

    /// Its part of a backend's summary.
    pub(super) fn difference(self) -> &'static str {
        match self {
            Self::Default | Self::Fsync | Self::Fresh => "",
            Self::Close => {
                ", close waits for it, and the mount polls for commits of others every 10 ms"
            }
        }
    }
}

impl S3Mount {
    /// Parses a backend's name: `s3`, an optional variant, then an optional server and distance as in
    /// [`Server::of_suffix`].
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("s3")?;
        S3Variant::ALL.into_iter().find_map(|variant| {
            let server = Server::of_suffix(rest.strip_prefix(variant.suffix())?)?;
            Some(Self { variant, server })
        })
    }

    pub(super) fn name(self) -> String {
        format!("s3{}{}", self.variant.suffix(), self.server.suffix())
    }

    /// Whether a restart begins with an empty cache.
    pub(super) fn starts_empty(self) -> bool {
        self.variant == S3Variant::Fresh
    }

    /// Removes a site's cache: database, log and tails. The daemon must have uploaded everything and ended.
    pub(super) fn remove_cache(site: &Site) -> io::Result<()> {
        for entry in std::fs::read_dir(&site.dir)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(CACHE) {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path())?,
                false => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    /// The launch for `site`, or for a second host of the same bucket whose cache is in `beside`.
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
        arguments.extend(self.variant.options().iter().map(OsString::from));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_variant_and_the_server() {
        for (name, variant) in [
            ("s3-embedded", S3Variant::Default),
            ("s3-fsync-embedded@30ms", S3Variant::Fsync),
            ("s3-fresh-minio@1ms", S3Variant::Fresh),
            ("s3-close-minio", S3Variant::Close),
        ] {
            let mount = S3Mount::of_name(name).unwrap();
            assert_eq!((mount.variant, mount.name().as_str()), (variant, name));
        }
        let near = S3Mount::of_name("s3-fresh").unwrap();
        assert_eq!(near.server, Server::default_here());
        for wrong in ["s3-", "s3-fresh-", "s3-freshly", "s3-fsync-fresh", "s4"] {
            assert_eq!(S3Mount::of_name(wrong), None, "{wrong}");
        }
    }
}
