//! The `s3` backends. Their servers are in [`crate::services::s3`].

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::S3Options;
use crate::backend::{Description, Launch, Need, Unavailable, Versions, WorkspaceConfig};
use crate::mount_command::StoreOptions;
use crate::mounted::{MountedStore, description};
use crate::promise::{Acknowledgement, Promises};
use crate::services::Services;
use crate::services::s3::{Server, place};
use crate::sqlite::backend::PROMISES;

/// The file name of the local cache and journal in the workspace's directory.
const CACHE: &str = "cache.s3.db";

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

/// A mount of a bucket by the agent `agent`, as options of `ctxbench mount s3`.
pub struct BucketMount<'a> {
    /// The URL of the server.
    pub endpoint: &'a str,
    /// The region for which requests are signed.
    pub region: &'a str,
    /// An existing bucket.
    pub bucket: &'a str,
    /// The beginning of every key, with a `/` at its end.
    pub prefix: &'a str,
    /// The file of the cache and journal.
    pub cache: &'a Path,
    /// The writer's name; `None` for the default one.
    pub writer: Option<&'a str>,
    /// Access key and secret; `None` for those of the environment.
    pub keys: Option<(String, String)>,
}

impl BucketMount<'_> {
    /// The options and the environment of its daemon.
    pub fn launch(self) -> Launch {
        let mut arguments: Vec<OsString> = vec![
            "--endpoint".into(),
            self.endpoint.into(),
            "--region".into(),
            self.region.into(),
            "--bucket".into(),
            self.bucket.into(),
            "--prefix".into(),
            self.prefix.into(),
            "--agent-id".into(),
            "agent".into(),
            "--cache".into(),
            self.cache.into(),
        ];
        if let Some(writer) = self.writer {
            arguments.extend(["--writer".into(), writer.into()]);
        }
        let environment = match self.keys {
            Some((id, secret)) => vec![
                ("AWS_ACCESS_KEY_ID", id),
                ("AWS_SECRET_ACCESS_KEY", secret),
                ("AWS_SESSION_TOKEN", String::new()),
                ("CTXBENCH_S3_KEY", String::new()),
            ],
            None => Vec::new(),
        };
        Launch {
            arguments,
            environment,
        }
    }
}

/// A variant of the `s3` mount, and its server.
pub(crate) struct S3Mount {
    pub(crate) variant: S3Variant,
    pub(crate) server: Server,
    pub(crate) services: Arc<Services>,
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
    fn difference(self) -> &'static str {
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
    pub(crate) fn of_name(name: &str, services: &Arc<Services>) -> Option<Self> {
        let rest = name.strip_prefix("s3")?;
        S3Variant::ALL.into_iter().find_map(|variant| {
            let server = Server::of_suffix(rest.strip_prefix(variant.suffix())?)?;
            let services = Arc::clone(services);
            Some(Self {
                variant,
                server,
                services,
            })
        })
    }
}

impl MountedStore for S3Mount {
    fn describe(&self) -> Description {
        let is_fresh = self.variant == S3Variant::Fresh;
        let empty = match is_fresh {
            true => ", empty at each restart as on a new host (cold cells only)",
            false => "",
        };
        let server = self.server.words();
        let how = self.variant.difference();
        let name = format!("s3{}{}", self.variant.suffix(), self.server.suffix());
        let mut description = description(
            &name,
            format!("FUSE over a local SQLite cache and journal{empty} of a bucket {server}{how}"),
            match self.variant {
                S3Variant::Fsync => {
                    "as sqlite after a killed daemon; fsync makes everything before it be in the bucket, which survives the loss of the machine"
                }
                S3Variant::Close => {
                    "as sqlite after a killed daemon; close and fsync make what is closed or synced be in the bucket, which survives the loss of the machine"
                }
                S3Variant::Default | S3Variant::Fresh => {
                    "as sqlite after a killed daemon or power loss; the bucket, which survives the loss of the machine, follows within a second"
                }
            },
            env!("CTXBENCH_LINES_S3"),
        );
        description.capabilities.starts_empty = is_fresh;
        description.capabilities.several_hosts = true;
        description.needs.push(Need {
            name: self.server.wanted.label().to_owned(),
            why: "to hold the bucket".to_owned(),
        });
        description
    }

    fn store(&self) -> String {
        S3Options::NAME.to_owned()
    }

    fn ends_with_process(&self) -> bool {
        true
    }

    fn gives(&self) -> &'static [&'static str] {
        // Every commit of the log can be read and restored.
        &["snapshots", "versions"]
    }

    fn promises(&self) -> Promises {
        Promises {
            machine_loss: Some(match self.variant {
                S3Variant::Fsync => Acknowledgement::Fsync,
                S3Variant::Close => Acknowledgement::Close,
                S3Variant::Default | S3Variant::Fresh => Acknowledgement::Sync,
            }),
            ..PROMISES
        }
    }

    fn database(&self) -> Option<&'static str> {
        Some(CACHE)
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let label = self.server.wanted.label().to_owned();
        Ok(Versions::from([(label, self.server.wanted.version()?)]))
    }

    fn launch(&self, config: &WorkspaceConfig, beside: Option<&Path>) -> io::Result<Launch> {
        let cache = beside.unwrap_or(&config.dir).join(CACHE);
        let servers = &self.services.s3;
        let address = servers.address(&config.program, self.server)?;
        let mount = BucketMount {
            endpoint: &address.endpoint,
            region: &address.region,
            bucket: &address.bucket,
            prefix: &format!("{}/", place(&config.dir)),
            cache: &cache,
            writer: beside.is_some().then_some("second"),
            keys: address.keys,
        };
        let mut launch = mount.launch();
        let options = self.variant.options().iter();
        launch.arguments.extend(options.map(OsString::from));
        Ok(launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_variant_and_the_server() {
        let named = |name: &str| S3Mount::of_name(name, &Arc::default());
        for (name, variant) in [
            ("s3-embedded", S3Variant::Default),
            ("s3-fsync-embedded@30ms", S3Variant::Fsync),
            ("s3-fresh-minio@1ms", S3Variant::Fresh),
            ("s3-close-minio", S3Variant::Close),
        ] {
            let mount = named(name).unwrap();
            let described = mount.describe();
            assert_eq!((mount.variant, described.name.as_str()), (variant, name));
        }
        let near = named("s3-fresh").unwrap();
        assert_eq!(near.server, Server::default_here());
        for wrong in ["s3-", "s3-fresh-", "s3-freshly", "s3-fsync-fresh", "s4"] {
            assert!(named(wrong).is_none(), "{wrong}");
        }
    }
}
