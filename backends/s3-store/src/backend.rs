//! The `s3` backends. Their servers are in [`arms::services::s3`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arms::backend::{Description, Launch, Need, PropertyCall, Unavailable, Versions, WorkspaceConfig};
use arms::mount_command::StoreOptions;
use arms::mounted::{MountedStore, description};
use arms::promise::{Acknowledgement, Promises};
use arms::services::Services;
use arms::services::s3::{DistantServer, place};
use processes::output;
use sqlite::backend::PROMISES;

use crate::S3Options;

/// The file name of the local cache and journal in the workspace's directory.
const CACHE: &str = "cache.s3.db";

/// A variant of the `s3` mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Variant {
    /// The defaults of `ctxbench mount s3`, but no embedding model.
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
    /// The options that name the memory in the bucket, for any command of `ctxbench s3`.
    fn memory(&self) -> Vec<OsString> {
        vec![
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
        ]
    }

    /// The options and the environment of its daemon.
    pub fn launch(self) -> Launch {
        let mut arguments = self.memory();
        arguments.extend(["--cache".into(), self.cache.into()]);
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
        Launch { arguments, environment }
    }
}

/// A variant of the `s3` mount, and its server.
pub struct S3Mount {
    /// The variant.
    pub variant: S3Variant,
    /// The server that holds the bucket.
    pub server: DistantServer,
    /// The servers of this process.
    pub services: Arc<Services>,
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
            Self::Close => ", close waits for it, and the mount polls for commits of others every 10 ms",
        }
    }
}

impl S3Mount {
    /// Parses a backend's name: `s3`, an optional variant, then an optional server and distance as in
    /// [`DistantServer::of_suffix`].
    pub fn of_name(name: &str, services: &Arc<Services>) -> Option<Self> {
        let rest = name.strip_prefix("s3")?;
        S3Variant::ALL.into_iter().find_map(|variant| {
            let server = DistantServer::of_suffix(rest.strip_prefix(variant.suffix())?)?;
            let services = Arc::clone(services);
            Some(Self { variant, server, services })
        })
    }
}

impl MountedStore for S3Mount {
    fn describe(&self) -> Description {
        let is_fresh = self.variant == S3Variant::Fresh;
        let empty = if is_fresh { ", empty at each restart as on a new host (cold cells only)" } else { "" };
        let server = self.server.words();
        let how = self.variant.difference();
        let name = format!("s3{}{}", self.variant.suffix(), self.server.suffix());
        let mut description = description(
            &name,
            format!("FUSE over a local SQLite cache and journal{empty} of a bucket {server}{how}"),
            match self.variant {
                S3Variant::Fsync => {
                    "as sqlite after a killed daemon; fsync returns when all earlier changes are in the bucket, which survives the loss of the machine"
                }
                S3Variant::Close => {
                    "as sqlite after a killed daemon; close and fsync return when the file is in the bucket, which survives the loss of the machine"
                }
                S3Variant::Default | S3Variant::Fresh => {
                    "as sqlite after a killed daemon or power loss; what is in the bucket survives the loss of the machine; an upload begins within 200 ms"
                }
            },
        );
        description.capabilities.starts_empty = is_fresh;
        description.capabilities.several_hosts = true;
        description.capabilities.answers_requests = true;
        description
            .needs
            .push(Need { name: self.server.wanted.label().to_owned(), why: "to hold the bucket".to_owned() });
        description
    }

    fn store(&self) -> String {
        S3Options::NAME.to_owned()
    }

    fn ends_with_process(&self) -> bool {
        true
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

    fn property(&self, config: &WorkspaceConfig, mount: &Path, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        let history = History::new(self, config)?;
        // A commit is readable by its number only once it is in the bucket.
        match call {
            PropertyCall::Snapshot { .. }
            | PropertyCall::Diff { .. }
            | PropertyCall::Versions { .. }
            | PropertyCall::Fork { .. } => history.sync(mount)?,
            PropertyCall::ReadSnapshot { .. } | PropertyCall::ReadVersion { .. } => {}
        }
        let said = match call {
            PropertyCall::Snapshot { .. } => history.newest()?,
            PropertyCall::ReadSnapshot { snapshot, file } => history.run(&["show", file, "--at", snapshot])?,
            PropertyCall::Diff { snapshot } => {
                let log = history.run(&["log"])?;
                let commit_of = |line: &&str| line.split(' ').next() == Some(snapshot);
                let since = log.lines().take_while(|line| !commit_of(line));
                let changes = since.filter(|line| line.starts_with(' '));
                changes.map(|line| format!("{line}\n")).collect()
            }
            PropertyCall::Versions { file } => {
                let log = history.run(&["log", file])?;
                let commits = log.lines().filter(|line| !line.starts_with(' '));
                commits.map(|line| format!("{line}\n")).collect()
            }
            PropertyCall::ReadVersion { version, file } => history.run(&["show", file, "--at", version])?,
            PropertyCall::Fork { from, to } => {
                let at = history.newest()?;
                history.run(&["restore", from, "--at", &at, "--to", to])?
            }
        };
        Ok(Some(said))
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
            // Its directory names the host.
            writer: beside.and_then(Path::file_name).and_then(OsStr::to_str),
            keys: address.keys,
        };
        let mut launch = mount.launch();
        let options = self.variant.options().iter();
        launch.arguments.extend(options.map(OsString::from));
        // Answers must not depend on the models that a machine has.
        launch.arguments.extend(["--embeddings".into(), "none".into()]);
        Ok(launch)
    }
}

/// The commands of `ctxbench s3` that look back into the memory of a workspace.
struct History {
    program: PathBuf,
    memory: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
    patience: Duration,
}

impl History {
    fn new(mount: &S3Mount, config: &WorkspaceConfig) -> io::Result<Self> {
        let address = mount.services.s3.address(&config.program, mount.server)?;
        let bucket = BucketMount {
            endpoint: &address.endpoint,
            region: &address.region,
            bucket: &address.bucket,
            prefix: &format!("{}/", place(&config.dir)),
            cache: Path::new(CACHE),
            writer: None,
            keys: address.keys,
        };
        Ok(Self {
            program: config.program.clone(),
            memory: bucket.memory(),
            environment: bucket.launch().environment,
            patience: config.patience,
        })
    }

    /// Runs `ctxbench s3` with `words` on the memory.
    fn run(&self, words: &[&str]) -> io::Result<String> {
        let mut command = Command::new(&self.program);
        command.arg("s3").args(words).args(&self.memory);
        let environment = self.environment.iter();
        command.envs(environment.map(|(name, value)| (name, value)));
        output(&mut command, self.patience)
    }

    /// Waits until everything in the mount is in the bucket.
    fn sync(&self, mount: &Path) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        output(command.args(["s3", "sync"]).arg(mount), self.patience).map(drop)
    }

    /// The number of the newest commit.
    fn newest(&self) -> io::Result<String> {
        let log = self.run(&["log"])?;
        let number = log.split(' ').next().unwrap_or_default();
        Ok(number.to_owned())
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
        assert_eq!(near.server, DistantServer::default_here());
        for wrong in ["s3-", "s3-fresh-", "s3-freshly", "s3-fsync-fresh", "s4"] {
            assert!(named(wrong).is_none(), "{wrong}");
        }
    }
}
