//! The options that select a bucket, shared by several commands.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use inputs::variable;
use s3::config::{MirrorMode, S3Config, Secret, SyncMode, check_name, find_access_key, seal_key};

/// The variable with the encryption key.
const SEAL_VARIABLE: &str = "CTXBENCH_S3_KEY";

/// Which bucket, and whose memory in it. Access keys come from `AWS_ACCESS_KEY_ID` and
/// `AWS_SECRET_ACCESS_KEY`, or a profile of `~/.aws/credentials`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of s3")]
pub struct Bucket {
    /// The server [default: $CTXBENCH_S3_ENDPOINT, or AWS by its region].
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The region [default: $AWS_REGION, or us-east-1].
    #[arg(long)]
    region: Option<String>,
    /// The bucket [default: $CTXBENCH_S3_BUCKET, or ctxbench].
    #[arg(long)]
    bucket: Option<String>,
    /// The beginning of every key, before `agents/`, such as `team/`.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// Whose memory [default: of s3 the user's name; of agent-memory none, and then no namespaces].
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Options of s3 and agent-memory"
    )]
    pub agent_id: Option<String>,
    /// The bucket is part of the server's name, as with AWS, and not of the path.
    #[arg(long)]
    virtual_host: bool,
    /// A file with a key of 64 hexadecimal digits that encrypts every object [default: $CTXBENCH_S3_KEY].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How many seconds one request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// How a mount of a bucket behaves.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of s3")]
pub struct Behaviour {
    /// The local cache and journal; created where missing [default: DIR.s3.db].
    #[arg(long, value_name = "FILE")]
    pub cache: Option<PathBuf>,
    /// The writer's name in the log and in the names of conflict files [default: agent and host].
    #[arg(long, value_name = "NAME")]
    writer: Option<String>,
    /// Mount the cache if the server does not answer now. Changes are uploaded when it does.
    #[arg(long)]
    pub allow_offline: bool,
    /// Begin with a new cache, because this one is damaged, or is of an earlier log. The old one is set aside; the changes
    /// that only it has are taken from it, as far as it can be read.
    #[arg(long, conflicts_with_all = ["allow_offline", "refill_bucket"])]
    pub rebuild_cache: bool,
    /// Begin a new log with what the cache holds, because the bucket was emptied by mistake. Where another host has done
    /// so before, both versions of a file that differs are kept.
    #[arg(long, conflicts_with = "allow_offline")]
    pub refill_bucket: bool,
    /// The calls that wait for the bucket: none, fsync, or close as well.
    #[arg(long, value_enum, default_value_t = Sync::Local)]
    sync: Sync,
    /// Which files are also written as objects that other S3 tools can read.
    #[arg(long, value_enum, default_value_t = Mirror::Markdown)]
    mirror: Mirror,
    /// Milliseconds between two polls for commits of others.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    poll: u64,
    /// Milliseconds that a change waits for others to join its commit.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..))]
    delay: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// Nothing: the bucket follows.
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

impl Mirror {
    pub fn mode(self) -> MirrorMode {
        match self {
            Self::Off => MirrorMode::Off,
            Self::Markdown => MirrorMode::Markdown,
            Self::All => MirrorMode::All,
        }
    }
}

impl Bucket {
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
            timeout: 30,
        }
    }

    /// The configuration. `None` for `behaviour` stands for its defaults.
    pub fn config(&self, behaviour: Option<&Behaviour>) -> anyhow::Result<S3Config> {
        let region = self.region.clone().or_else(|| variable("AWS_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let given = self.endpoint.clone();
        let given = given.or_else(|| variable("CTXBENCH_S3_ENDPOINT"));
        let is_aws = given.is_none();
        let endpoint = given.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let agent = self.agent_id.clone().or_else(|| variable("USER"));
        let agent = agent.context("no agent is given (name it with --agent-id)")?;
        check_name("agent", &agent)?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let writer = behaviour.and_then(|behaviour| behaviour.writer.clone());
        let writer = writer.unwrap_or_else(|| format!("{agent}@{host}"));
        check_name("writer", &writer)?;
        let mut prefix = self.prefix.trim_start_matches('/').to_owned();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        let bucket = self.bucket.clone();
        let bucket = bucket.or_else(|| variable("CTXBENCH_S3_BUCKET"));
        Ok(S3Config {
            access_key: find_access_key(&endpoint, &variable)?,
            endpoint,
            region,
            bucket: bucket.unwrap_or_else(|| "ctxbench".to_owned()),
            prefix,
            agent,
            writer,
            path_style: !(self.virtual_host || is_aws),
            sync: behaviour.map_or(SyncMode::Local, |behaviour| match behaviour.sync {
                Sync::Local => SyncMode::Local,
                Sync::Fsync => SyncMode::Fsync,
                Sync::Close => SyncMode::Close,
            }),
            poll: Duration::from_millis(behaviour.map_or(1000, |behaviour| behaviour.poll)),
            delay: Duration::from_millis(behaviour.map_or(200, |behaviour| behaviour.delay)),
            timeout: Duration::from_secs(self.timeout),
            mirror: behaviour
                .map_or_else(Mirror::default, |behaviour| behaviour.mirror)
                .mode(),
            seal: self.seal()?,
        })
    }

    fn seal(&self) -> anyhow::Result<Option<Secret<[u8; 32]>>> {
        if let Some(file) = &self.key_file {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("reading the key in {}", file.display()))?;
            return Ok(Some(seal_key(&text, &file.display().to_string())?));
        }
        let key = variable(SEAL_VARIABLE).map(|key| seal_key(&key, SEAL_VARIABLE));
        Ok(key.transpose()?)
    }
}
