//! The configuration of a mount: the bucket, the writer's name, and what `close` waits for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// An access key of an S3 server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// The access key id.
    pub id: String,
    /// The secret; never printed.
    pub secret: Secret,
    /// The token of temporary keys.
    pub token: Option<Secret>,
    /// Where it was found.
    pub source: String,
}

/// A value that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T = String>(pub T);

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
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
    /// The key that requests are signed with.
    pub access_key: AccessKey,
    /// The event that `close` and `fsync` wait for.
    pub sync: SyncMode,
    /// The time between two polls for commits of other hosts.
    pub poll: Duration,
    /// How long a change waits for further changes to join its commit.
    pub delay: Duration,
    /// Time limit of a request that moves little; longer bodies have more time.
    pub timeout: Duration,
    /// Which files are mirrored. Nothing is while `seal` is set.
    pub mirror: MirrorMode,
    /// The key that encrypts every object; `None` for no encryption.
    pub seal: Option<Secret<[u8; 32]>>,
}

/// Why a configuration cannot be used, and what to do. It never holds a key or a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

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

/// Finds an access key as other S3 tools do: `AWS_ACCESS_KEY_ID` and its companions, then the profile `AWS_PROFILE`
/// (or `default`) of `AWS_SHARED_CREDENTIALS_FILE` (or `~/.aws/credentials`).
/// Fails if there is none, or the file cannot be read.
pub fn find_access_key(endpoint: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<AccessKey, ConfigError> {
    let given = |name: &str| variables(name).filter(|value| !value.is_empty());
    if let Some(key) = access_key(given, "the environment") {
        return Ok(key);
    }
    let home = given("HOME").unwrap_or_else(|| "/".to_owned());
    let file =
        given("AWS_SHARED_CREDENTIALS_FILE").map_or_else(|| Path::new(&home).join(".aws/credentials"), PathBuf::from);
    let place = file.display();
    let none = || {
        let fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile to";
        ConfigError(format!("no access key for {endpoint}\n  fix: {fix} {place}"))
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(ConfigError(format!("cannot read {place}: {error}"))),
    };
    let profile = given("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let values = profile_values(&text, &profile);
    let source = format!("profile {profile} of {place}");
    access_key(|name| values.get(name).cloned(), &source).ok_or_else(none)
}

/// The access key in settings that are named as in the environment.
fn access_key(value: impl Fn(&str) -> Option<String>, source: &str) -> Option<AccessKey> {
    Some(AccessKey {
        id: value("AWS_ACCESS_KEY_ID")?,
        secret: Secret(value("AWS_SECRET_ACCESS_KEY")?),
        token: value("AWS_SESSION_TOKEN").map(Secret),
        source: source.to_owned(),
    })
}

/// The settings of one `[profile]` of an ini file, by their names in the environment.
fn profile_values(text: &str, profile: &str) -> BTreeMap<String, String> {
    let mut is_ours = false;
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            is_ours = name.trim() == profile;
        } else if is_ours
            && !line.starts_with(['#', ';'])
            && let Some((name, value)) = line.split_once('=')
        {
            values.insert(name.trim().to_uppercase(), value.trim().to_owned());
        }
    }
    values
}
