//! The configuration of a mount: the bucket, the writer's name, and what `close` waits for.

use std::time::Duration;

use crate::credentials::Credentials;
pub use crate::secret::{ConfigError, Secret};

/// How often a mount checks that its newest commit is still in the log.
pub const GLANCE_EVERY: Duration = Duration::from_secs(10);

/// The event that `close` and `fsync` wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// The local journal: commits follow in the background.
    #[default]
    Local,
    /// `fsync` waits for the commit, `close` for the journal.
    Fsync,
    /// Both wait for the commit.
    Close,
}

/// Which files are written to the readable mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorMode {
    /// None.
    Off,
    /// Markdown files.
    #[default]
    Markdown,
    /// All files.
    All,
}

/// How to mount an agent's memory that is in a bucket.
#[derive(Clone, Debug)]
pub struct S3Config {
    /// The server, such as `https://s3.eu-central-1.amazonaws.com` or `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket; it has to exist.
    pub bucket: String,
    /// The part of every key before `agents/`: empty, or ending in `/`.
    pub prefix: String,
    /// Whose memory it is; see [`check_name`].
    pub agent: String,
    /// The writer's name in the log and in conflict names; see [`check_name`].
    pub writer: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    /// Where the keys are from that requests are signed with.
    pub credentials: Credentials,
    /// The event that `close` and `fsync` wait for.
    pub sync: SyncMode,
    /// The time between two polls for commits of other hosts.
    pub poll: Duration,
    /// The time between two checks that the newest commit is still in the log: [`GLANCE_EVERY`], except in tests.
    pub glance: Duration,
    /// How long a change waits for further changes to join its commit.
    pub delay: Duration,
    /// Time limit of a request that moves little; longer bodies have more time.
    pub timeout: Duration,
    /// Which files are mirrored. Nothing is while `seal` is set.
    pub mirror: MirrorMode,
    /// The key that encrypts every object; `None` for no encryption.
    pub seal: Option<Secret<[u8; 32]>>,
}

/// Checks a name that becomes part of keys. Fails for characters that a key or a header cannot hold.
pub fn check_name(what: &'static str, name: &str) -> Result<(), ConfigError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(is_valid) && !name.starts_with('.') {
        return Ok(());
    }
    let rule = "use 1 to 64 letters, digits, `.`, `_`, `-` and `@`, not beginning with `.`";
    Err(ConfigError(format!("{what} {name:?} is not valid: {rule}")))
}

/// Reads an encryption key of 64 hexadecimal digits, which was found in `source_name`. Fails if it is not that.
pub fn seal_key(hex: &str, source_name: &str) -> Result<Secret<[u8; 32]>, ConfigError> {
    let bytes = hex_simd::decode_to_vec(hex.trim()).ok();
    let key = bytes.and_then(|bytes| bytes.try_into().ok());
    key.map(Secret).ok_or_else(|| {
        let fix = "create a key with `openssl rand -hex 32`, and keep a copy: without it, the memory cannot be read";
        let reason = format!("{source_name} is not 32 bytes in hexadecimal");
        ConfigError(format!("{reason}\n  fix: {fix}"))
    })
}
