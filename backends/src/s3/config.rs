//! What a mount has to be told: where the bucket is, who writes, and what a close promises.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `close` and `fsync` wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// The local journal: the bucket follows in the background.
    #[default]
    Local,
    /// `fsync` waits for the bucket, `close` for the journal.
    Fsync,
    /// Both wait for the bucket.
    Close,
}

/// What happens to a change whose file somebody else has changed meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Both are kept: the later one under a name of its own.
    #[default]
    KeepBoth,
    /// The later one overwrites, as in source 4. What it overwrote is lost.
    LastWriteWins,
}

/// Where to get access keys from when the environment has none.
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
#[derive(Clone, Debug)]
pub struct S3Config {
    /// The server, such as `https://s3.eu-central-1.amazonaws.com` or `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket; it has to exist.
    pub bucket: String,
    /// What comes before `agents/` in every key: empty, or ending in `/`.
    pub prefix: String,
    /// Whose memory is mounted: a name of letters, digits, `.`, `_`, `-`.
    pub agent: String,
    /// Who writes, as others see it: agent and host unless given.
    pub writer: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    /// The key that requests are signed with.
    pub access_key: AccessKey,
    /// What `close` waits for.
    pub sync: SyncMode,
    /// What happens when two have changed a file.
    pub conflicts: ConflictPolicy,
    /// Show the front matter of Markdown files in the mount.
    pub front_matter_visible: bool,
    /// Keep what an overwritten or deleted file was.
    pub keep_versions: bool,
    /// How old what others have changed may get before this mount sees it: the time between two looks.
    pub poll: Duration,
    /// How long changes wait for others to go up together.
    pub delay: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// Encrypts content and names; 32 bytes.
    pub seal: Option<[u8; 32]>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There are no access keys.
    #[error("no credentials for {endpoint}\n  fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with {}", .file.display())]
    NoCredentials {
        /// The server they are for.
        endpoint: String,
        /// Where a profile would be.
        file: PathBuf,
    },
    /// A name has characters that would get lost in a key or a header.
    #[error(
        "{what} {name:?} may hold only letters, digits, `.`, `_`, `-` and `@`, 1 to 64 of them"
    )]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The key that encrypts is none.
    #[error(
        "{source_name} is not 32 bytes in hexadecimal\n  fix: make one with `openssl rand -hex 32`, and keep it: without it nothing can be read"
    )]
    SealKey {
        /// Where it was found; never what.
        source_name: String,
    },
    /// A file cannot be read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Checks a name that becomes part of keys and headers.
///
/// # Errors
/// [`ConfigError::Name`].
pub fn check_name(what: &'static str, name: &str) -> Result<(), ConfigError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let length = 1..=64;
    if length.contains(&name.len()) && name.chars().all(is_fine) && !name.starts_with('.') {
        return Ok(());
    }
    Err(ConfigError::Name {
        what,
        name: name.to_owned(),
    })
}

/// Reads a key of 64 hexadecimal digits.
///
/// # Errors
/// [`ConfigError::SealKey`], which names `source_name` and not the key.
pub fn seal_key(hex: &str, source_name: &str) -> Result<[u8; 32], ConfigError> {
    let wrong = || ConfigError::SealKey {
        source_name: source_name.to_owned(),
    };
    let hex = hex.trim();
    if hex.len() != 64 || !hex.is_ascii() {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

/// Finds access keys as other S3 tools do: `AWS_ACCESS_KEY_ID` and its companions, then the profile
/// `AWS_PROFILE` (or `default`) of `AWS_SHARED_CREDENTIALS_FILE` (or `~/.aws/credentials`).
///
/// # Errors
/// If there are none, or the file cannot be read.
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
    match (
        values.remove("aws_access_key_id"),
        values.remove("aws_secret_access_key"),
    ) {
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
    fn keys_come_from_the_environment_before_a_profile() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        std::fs::write(
            &file,
            "[default]\naws_access_key_id = a\n# no\naws_secret_access_key = b\n[other]\naws_access_key_id=c\naws_secret_access_key=d=\naws_session_token=e\n",
        )
        .unwrap();
        let path = file.display().to_string();
        let from = |pairs: &[(&str, &str)]| {
            let pairs: BTreeMap<String, String> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            find_access_key("x", &move |name| pairs.get(name).cloned())
        };
        let both = from(&[
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "S"),
            ("AWS_SHARED_CREDENTIALS_FILE", &path),
        ]);
        assert_eq!(both.unwrap().id, "E");
        let profile = from(&[("AWS_SHARED_CREDENTIALS_FILE", &path)]).unwrap();
        assert_eq!((profile.id.as_str(), profile.secret.0.as_str()), ("a", "b"));
        let other = from(&[
            ("AWS_SHARED_CREDENTIALS_FILE", path.as_str()),
            ("AWS_PROFILE", "other"),
        ]);
        let other = other.unwrap();
        assert_eq!(other.secret.0, "d=");
        assert!(
            !format!("{other:?}").contains("d="),
            "a secret is never shown"
        );
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
        let wrong = seal_key("secret", "KEY").unwrap_err().to_string();
        assert!(wrong.contains("KEY") && !wrong.contains("secret"));
    }
}
