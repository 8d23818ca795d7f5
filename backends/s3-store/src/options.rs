//! The options of a mount of a bucket; those that select the bucket are shared with the commands of `ctxbench s3`.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use agent_memory::backend::EmbeddingOptions;
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions};
use clap::{Args, ValueEnum};
use inputs::files::{self, DEFINITION, read_all};
use inputs::variable;
use s3::config::{ConfigError, GLANCE_EVERY, MirrorMode, S3Config, Secret, SyncMode, check_name, seal_key};
use s3::credentials::Credentials;
use s3::directory::is_directory;
use sqlite::backend::LogOption;

use crate::{OpenOptions, S3Memory};

/// The variable with the encryption key.
const SEAL_VARIABLE: &str = "CTXBENCH_S3_KEY";

/// Milliseconds between two polls, unless an option says otherwise.
const POLL_MS: u64 = 1000;
/// The shortest time between two polls, and of waiting for further changes.
const LEAST_MS: u64 = 10;

/// Milliseconds that a change waits for others, unless an option says otherwise.
const DELAY_MS: u64 = 200;

/// The seconds that one request may take, unless an option says otherwise.
const TIMEOUT_S: u64 = 30;

/// Why options name no bucket that can be used. It never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum BucketOptionsError {
    /// Neither an option nor the environment names an agent.
    #[error("neither --agent-id nor $USER names an agent (give --agent-id)")]
    NoAgent,
    /// The file of `--key-file` cannot be read.
    #[error("reading the key in {}: {error}\n  fix: correct --key-file", .file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A name or a key is not valid, or there is no access key.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Which bucket, and whose memory in it. Access keys come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a profile
/// of `~/.aws/credentials`, or a role of AWS.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The bucket")]
pub struct BucketOptions {
    /// The server, or a directory that hosts share, as file:///mnt/shared [default: $CTXBENCH_S3_ENDPOINT, or AWS by its
    /// region].
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region [default: $AWS_REGION, or us-east-1].
    #[arg(long)]
    region: Option<String>,
    /// The bucket [default: $CTXBENCH_S3_BUCKET, or ctxbench].
    #[arg(long)]
    bucket: Option<String>,
    /// The beginning of every key, before `agents/`, such as `team/`.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// The agent whose memory this is [default: the user's name].
    #[arg(long, value_name = "NAME")]
    agent_id: Option<String>,
    /// Address the bucket by host name, as AWS does, instead of by path.
    #[arg(long)]
    virtual_host: bool,
    /// A file with a key of 64 hexadecimal digits that encrypts every object [default: $CTXBENCH_S3_KEY].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Seconds that one request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// A bucket on an S3 server, with a local cache: see docs/S3.md.
#[derive(Debug, Args)]
pub struct S3Options {
    /// The local cache and journal, created if missing [default: DIR.s3.db].
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// The writer's name in the log and in the names of conflict files [default: agent and host].
    #[arg(long, value_name = "NAME")]
    writer: Option<String>,
    /// Mount the cache even if the server does not answer. Changes are uploaded when it answers again.
    #[arg(long)]
    allow_offline: bool,
    /// Rename the old cache, because it is damaged or belongs to an earlier log, and create a new one. Uncommitted
    /// changes, but not removals, are recovered from the readable parts of the old cache.
    #[arg(long, conflicts_with_all = ["allow_offline", "refill_bucket"])]
    rebuild_cache: bool,
    /// Begin a new log with the content of the cache, because the bucket was emptied by mistake. If another host has
    /// already done so, both versions of differing files are kept.
    #[arg(long, conflicts_with = "allow_offline")]
    refill_bucket: bool,
    /// Which calls return only when their changes are in the bucket.
    #[arg(long, value_enum, default_value_t = Sync::Local)]
    sync: Sync,
    /// Which files are also written as objects that other S3 tools can read.
    #[arg(long, value_enum, default_value_t = Mirror::Markdown)]
    mirror: Mirror,
    /// Milliseconds between two polls for commits of other hosts.
    #[arg(long, value_name = "MS", default_value_t = POLL_MS, value_parser = milliseconds)]
    poll: u64,
    /// Milliseconds that a change waits for further changes to join its commit.
    #[arg(long, value_name = "MS", default_value_t = DELAY_MS, value_parser = milliseconds)]
    delay: u64,
    #[command(flatten)]
    model: EmbeddingOptions,
    #[command(flatten)]
    log: LogOption,
    #[command(flatten)]
    bucket: BucketOptions,
}

/// Parses milliseconds that a poll or an upload may be apart.
fn milliseconds(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|ms| *ms >= LEAST_MS);
    number
        .ok_or_else(|| format!("give a whole number of milliseconds from {LEAST_MS} without a unit, such as {POLL_MS}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// None: uploads follow in the background.
    Local,
    /// fsync.
    Fsync,
    /// fsync and close.
    Close,
}

/// Which files a readable mirror holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mirror {
    /// None.
    Off,
    /// Markdown files, with front matter.
    #[default]
    Markdown,
    /// Every file up to 8 MiB.
    All,
}

impl Sync {
    fn mode(self) -> SyncMode {
        match self {
            Self::Local => SyncMode::Local,
            Self::Fsync => SyncMode::Fsync,
            Self::Close => SyncMode::Close,
        }
    }
}

impl Mirror {
    /// The choice as a [`MirrorMode`].
    pub fn mode(self) -> MirrorMode {
        match self {
            Self::Off => MirrorMode::Off,
            Self::Markdown => MirrorMode::Markdown,
            Self::All => MirrorMode::All,
        }
    }
}

impl BucketOptions {
    /// The bucket that the environment names, for the memory of `agent_id`.
    pub fn of_environment(agent_id: &str) -> Self {
        Self {
            endpoint: None,
            region: None,
            bucket: None,
            prefix: String::new(),
            agent_id: Some(agent_id.to_owned()),
            virtual_host: false,
            key_file: None,
            timeout: TIMEOUT_S,
        }
    }

    /// The configuration, with the defaults of a mount.
    ///
    /// # Errors
    /// See [`BucketOptionsError`].
    pub fn config(&self) -> Result<S3Config, BucketOptionsError> {
        self.config_of(None)
    }

    /// As [`BucketOptions::config`], with the writer's name; `None` for agent and host.
    fn config_of(&self, writer: Option<String>) -> Result<S3Config, BucketOptionsError> {
        let region = self.region.clone().or_else(|| variable("AWS_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let given = self.endpoint.clone();
        let given = given.or_else(|| variable("CTXBENCH_S3_ENDPOINT"));
        let is_aws = given.is_none();
        let endpoint = given.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let agent = self.agent_id.clone().or_else(|| variable("USER"));
        let agent = agent.ok_or(BucketOptionsError::NoAgent)?;
        check_name("agent", &agent)?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let writer = writer.unwrap_or_else(|| format!("{agent}@{host}"));
        check_name("writer", &writer)?;
        let mut prefix = self.prefix.trim_start_matches('/').to_owned();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        let bucket = self.bucket.clone();
        let bucket = bucket.or_else(|| variable("CTXBENCH_S3_BUCKET"));
        Ok(S3Config {
            credentials: if is_directory(&endpoint) {
                Credentials::None
            } else {
                Credentials::find(&endpoint, &region, &variable)?
            },
            endpoint,
            region,
            bucket: bucket.unwrap_or_else(|| "ctxbench".to_owned()),
            prefix,
            agent,
            writer,
            path_style: !(self.virtual_host || is_aws),
            sync: SyncMode::default(),
            poll: Duration::from_millis(POLL_MS),
            glance: GLANCE_EVERY,
            delay: Duration::from_millis(DELAY_MS),
            timeout: Duration::from_secs(self.timeout),
            mirror: MirrorMode::default(),
            seal: self.seal()?,
        })
    }

    /// A bucket for results of runs, on the server that the environment names. The names of agent and writer are in no key.
    ///
    /// # Errors
    /// See [`BucketOptionsError`].
    pub fn results(bucket: &str, prefix: &str) -> Result<S3Config, BucketOptionsError> {
        const RESULTS: &str = "results";
        let options =
            Self { bucket: Some(bucket.to_owned()), prefix: prefix.to_owned(), ..Self::of_environment(RESULTS) };
        options.config_of(Some(RESULTS.to_owned()))
    }

    fn seal(&self) -> Result<Option<Secret<[u8; 32]>>, BucketOptionsError> {
        if let Some(file) = &self.key_file {
            // A FIFO is fine: a shell makes one of the output of a password manager.
            let read = File::open(file).and_then(|file| read_all(file, DEFINITION));
            let text = read.and_then(files::text);
            let text = text.map_err(|error| BucketOptionsError::KeyFile { file: file.clone(), error })?;
            return Ok(Some(seal_key(&text, &file.display().to_string())?));
        }
        let key = variable(SEAL_VARIABLE).map(|key| seal_key(&key, SEAL_VARIABLE));
        Ok(key.transpose()?)
    }
}

impl S3Options {
    fn config(&self) -> Result<S3Config, BucketOptionsError> {
        Ok(S3Config {
            sync: self.sync.mode(),
            mirror: self.mirror.mode(),
            poll: Duration::from_millis(self.poll),
            delay: Duration::from_millis(self.delay),
            ..self.bucket.config_of(self.writer.clone())?
        })
    }
}

impl StoreOptions for S3Options {
    const NAME: &'static str = "s3";
    const EXAMPLES: &'static [&'static str] = &[
        "s3 --endpoint http://127.0.0.1:9000 --agent-id alice ~/memory",
        "s3 --agent-id alice --allow-offline ~/memory    # without the server",
    ];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let config = self.config()?;
        let options = OpenOptions {
            allow_offline: self.allow_offline,
            refill_bucket: self.refill_bucket,
            rebuild_cache: self.rebuild_cache,
        };
        let cache = self.cache.unwrap_or_else(|| at.beside(".s3.db"));
        self.log.prepare(&cache)?;
        let source = format!("{}/{}agents/{}", config.bucket, config.prefix, config.agent);
        let memory = S3Memory::open(config, &cache, at.owner, options, self.model.wanted())?;
        let files = memory.files();
        let (notes, read_only) = (files.notes().to_vec(), files.read_only().map(str::to_owned));
        Ok(OpenedStore { notes, read_only, ..OpenedStore::of(memory, source) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_whose_name_cannot_be_in_a_key_is_refused_in_every_command() {
        let bucket = BucketOptions::of_environment(&"a".repeat(64));
        let refused = |writer: Option<&str>| {
            let config = bucket.config_of(writer.map(str::to_owned));
            config.is_err_and(|error| error.to_string().starts_with("writer "))
        };
        assert!(refused(None), "agent and host are more than 64 letters");
        assert!(refused(Some("a/b")));
        assert!(!refused(Some("short")));
    }
}
