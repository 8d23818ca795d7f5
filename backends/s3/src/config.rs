//! The configuration of a mount: the bucket, the writer's name, and what `close` waits for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `close` and `fsync` wait for.
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

/// A string that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// How to mount an agent's memory that is in a bucket.
#[derive(Clone)]
pub struct S3Config {
    /// The server, such as `https://s3.eu-central-1.amazonaws.com` or `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket; it has to exist.
    pub bucket: String,
    /// What comes before `agents/` in every key: empty, or ending in `/`.
    pub prefix: String,
    /// Whose memory it is; see [`check_name`].
    pub agent: String,
    /// The writer's name in the log and in conflict names; see [`check_name`].
    pub writer: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    /// The key that requests are signed with.
    pub access_key: AccessKey,
    /// What `close` and `fsync` wait for.
    pub sync: SyncMode,
    /// The time between two polls for commits of others.
    pub poll: Duration,
    /// How long a change waits for others to join its commit.
    pub delay: Duration,
    /// Time limit of a request that moves little; longer bodies have more time.
    pub timeout: Duration,
    /// Which files are mirrored. Nothing is while `seal` is set.
    pub mirror: MirrorMode,
    /// The key that encrypts every object; `None` for no encryption.
    pub seal: Option<[u8; 32]>,
}

impl std::fmt::Debug for S3Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The seal key is a secret, too.
        f.debug_struct("S3Config")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("agent", &self.agent)
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No access key was found.
    #[error(
        "no access key for {endpoint}\n  fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile to {}",
        .file.display()
    )]
    NoCredentials {
        /// The endpoint.
        endpoint: String,
        /// The file that has no such profile.
        file: PathBuf,
    },
    /// A name has characters that a key or a header cannot hold.
    #[error(
        "{what} {name:?} is not valid: use 1 to 64 letters, digits, `.`, `_`, `-` and `@`, not beginning with `.`"
    )]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The encryption key is not valid.
    #[error(
        "{source_name} is not 32 bytes in hexadecimal\n  fix: make a key with `openssl rand -hex 32`, and keep it: nothing can be read without it"
    )]
    SealKey {
        /// Where it was found; never the key.
        source_name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
}

/// Checks a name that becomes part of keys.
///
/// # Errors
/// [`ConfigError::Name`].
pub fn check_name(what: &'static str, name: &str) -> Result<(), ConfigError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(is_valid) && !name.starts_with('.') {
        return Ok(());
    }
    Err(ConfigError::Name {
        what,
        name: name.to_owned(),
    })
}

/// Reads an encryption key of 64 hexadecimal digits.
///
/// # Errors
/// [`ConfigError::SealKey`], which names `source_name` and not the key.
pub fn seal_key(hex: &str, source_name: &str) -> Result<[u8; 32], ConfigError> {
    let hex = hex.trim().as_bytes();
    let mut key = [0; 32];
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(&pair[0])? * 16 + digit(&pair[1])?) as u8);
    let bytes: Option<Vec<u8>> = hex.chunks_exact(2).map(pair).collect();
    match bytes {
        Some(bytes) if hex.len() == 64 => {
            key.copy_from_slice(&bytes);
            Ok(key)
        }
        _ => Err(ConfigError::SealKey {
            source_name: source_name.to_owned(),
        }),
    }
}

/// Finds an access key as other S3 tools do: `AWS_ACCESS_KEY_ID` and its companions, then the profile `AWS_PROFILE`
/// (or `default`) of `AWS_SHARED_CREDENTIALS_FILE` (or `~/.aws/credentials`).
///
/// # Errors
/// If there is none, or the file cannot be read.
pub fn find_access_key(
    endpoint: &str,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<AccessKey, ConfigError> {
    let given = |name: &str| variables(name).filter(|value| !value.is_empty());
    if let (Some(id), Some(secret)) = (given("AWS_ACCESS_KEY_ID"), given("AWS_SECRET_ACCESS_KEY")) {
        return Ok(AccessKey {
            id,
            secret: Secret(secret),
            token: given("AWS_SESSION_TOKEN").map(Secret),
            source: "the environment".to_owned(),
        });
    }
    let home = given("HOME").unwrap_or_else(|| "/".to_owned());
    let file = given("AWS_SHARED_CREDENTIALS_FILE")
        .map_or_else(|| Path::new(&home).join(".aws/credentials"), PathBuf::from);
    let none = || ConfigError::NoCredentials {
        endpoint: endpoint.to_owned(),
        file: file.clone(),
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(ConfigError::File { path: file, error }),
    };
    let profile = given("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let mut values = profile_values(&text, &profile);
    let (id, secret) = ("aws_access_key_id", "aws_secret_access_key");
    match (values.remove(id), values.remove(secret)) {
        (Some(id), Some(secret)) => Ok(AccessKey {
            id,
            secret: Secret(secret),
            token: values.remove("aws_session_token").map(Secret),
            source: format!("profile {profile} of {}", file.display()),
        }),
        _ => Err(none()),
    }
}

/// The settings of one `[profile]` of an ini file.
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
            values.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_key_comes_from_the_environment_before_a_profile() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        let text = "[default]\naws_access_key_id = a\n# no\naws_secret_access_key = b\n\
                    [other]\naws_access_key_id=c\naws_secret_access_key=d=\naws_session_token=e\n";
        std::fs::write(&file, text).unwrap();
        let path = file.display().to_string();
        let from = |pairs: &[(&str, &str)]| {
            let value = |name: &str| pairs.iter().find(|(own, _)| *own == name);
            find_access_key("x", &|name| {
                value(name).map(|(_, value)| (*value).to_owned())
            })
        };
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.as_str());
        let both = from(&[
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "S"),
            file,
        ]);
        assert_eq!(both.unwrap().id, "E");
        let profile = from(&[file]).unwrap();
        assert_eq!((profile.id.as_str(), profile.secret.0.as_str()), ("a", "b"));
        let other = from(&[file, ("AWS_PROFILE", "other")]).unwrap();
        assert_eq!(other.secret.0, "d=");
        let shown = format!("{other:?}");
        assert!(!shown.contains("d="), "a secret is never shown");
        let none = from(&[("HOME", "/nonexistent")]).unwrap_err().to_string();
        assert!(none.contains("AWS_ACCESS_KEY_ID"), "{none}");
    }

    #[test]
    fn names_and_seal_keys_are_checked() {
        assert!(check_name("agent", "alice-1.x@host").is_ok());
        for bad in ["", "a/b", ".hidden", "a b", &"x".repeat(65)] {
            assert!(check_name("agent", bad).is_err(), "{bad:?}");
        }
        assert_eq!(seal_key(&"0f".repeat(32), "x").unwrap(), [15; 32]);
        for bad in ["secret", &"0f".repeat(33), &"+f".repeat(32)] {
            let wrong = seal_key(bad, "KEY").unwrap_err().to_string();
            assert!(wrong.contains("KEY") && !wrong.contains("secret"));
        }
    }
}
