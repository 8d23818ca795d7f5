//! The endpoint and the credentials of a server.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The region of every server.
pub const REGION: &str = "us-east-1";

/// A server's endpoint and credentials, for a client.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerAccess {
    /// Such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The access key id.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: String,
    /// The region for which requests are signed.
    pub region: String,
}

impl std::fmt::Debug for ServerAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keeps the secret out of logs.
        f.debug_struct("ServerAccess")
            .field("endpoint", &self.endpoint)
            .field("access_key", &self.access_key)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl ServerAccess {
    /// An endpoint on a loopback port, with fresh random credentials.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn random(port: u16) -> io::Result<Self> {
        Self::on(port, None)
    }

    /// An endpoint on a loopback port, with the given credentials or fresh random ones.
    pub(crate) fn on(port: u16, keys: Option<&(String, String)>) -> io::Result<Self> {
        let (access_key, secret_key) = match keys {
            Some(keys) => keys.clone(),
            None => (random_hex(10)?, random_hex(20)?),
        };
        Ok(Self { endpoint: format!("http://127.0.0.1:{port}"), access_key, secret_key, region: REGION.to_owned() })
    }
}

/// Random bytes as hexadecimal digits, which every server accepts as a key.
pub(crate) fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(inputs::hex(&random))
}

/// The file in a server's directory that keeps its keys.
const KEYS: &str = "keys.json";

/// An access key id and its secret, as [`KEYS`] has them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    access_key: String,
    secret_key: String,
}

/// Makes a directory private to the user: sets mode 0700 even if the directory exists.
///
/// # Errors
/// If it cannot be made, or is another user's.
pub fn private_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// The access key and the secret of the server in `dir`, which are made at its first start and kept in a file of mode
/// 0600: a client that knows them can use the server after each start.
///
/// # Errors
/// If the file cannot be made, or holds no keys.
pub fn kept_keys(dir: &Path) -> io::Result<(String, String)> {
    let file = dir.join(KEYS);
    match std::fs::read(&file) {
        Ok(bytes) => return parse_keys(&bytes, &file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(named(&file, error)),
    }
    let keys = StoredKeys { access_key: random_hex(10)?, secret_key: random_hex(20)? };
    // Durable before the server has the keys, and whole under its name.
    let new = dir.join(format!(".{KEYS}-{}", std::process::id()));
    let written = write_private(&new, &serde_json::to_vec(&keys)?).and_then(|()| std::fs::hard_link(&new, &file));
    let removed = std::fs::remove_file(&new);
    match written {
        // Another server has made them meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        written => written.and(removed).map_err(|error| named(&file, error))?,
    }
    File::open(dir)?.sync_all()?;
    parse_keys(&std::fs::read(&file)?, &file)
}

fn named(file: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(file)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn parse_keys(bytes: &[u8], file: &Path) -> io::Result<(String, String)> {
    let is_key = |key: &str| (8..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let keys = serde_json::from_slice::<StoredKeys>(bytes).ok();
    let keys = keys.filter(|keys| is_key(&keys.access_key) && is_key(&keys.secret_key));
    let keys = keys.ok_or_else(|| {
        let file = file.display();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{file} has no valid keys: restore it from a backup; or remove it to get new keys, which every client then needs"
            ),
        )
    })?;
    Ok((keys.access_key, keys.secret_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_server_has_the_same_keys_after_each_start_and_no_other_user_reads_them() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("new/server");
        private_directory(&dir).unwrap();
        let keys = kept_keys(&dir).unwrap();
        assert_eq!(kept_keys(&dir).unwrap(), keys);
        assert_eq!((mode(&dir), mode(&dir.join(KEYS))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        let other = scratch.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        private_directory(&other).unwrap();
        assert_eq!(mode(&other), 0o700);
        assert_ne!(kept_keys(&other).unwrap(), keys);
    }

    #[test]
    fn keys_that_are_damaged_are_not_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        for damaged in ["", "{", "{\"access_key\":\"\",\"secret_key\":\"\"}"] {
            std::fs::write(scratch.path().join(KEYS), damaged).unwrap();
            let error = kept_keys(scratch.path()).unwrap_err().to_string();
            assert!(error.contains(KEYS) && error.contains("remove it"), "{error}");
            let there = std::fs::read_to_string(scratch.path().join(KEYS)).unwrap();
            assert_eq!(there, damaged);
        }
    }
}
