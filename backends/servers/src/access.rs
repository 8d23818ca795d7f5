//! The endpoint and the credentials of a server.

use std::io;

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
        Ok(Self {
            endpoint: format!("http://127.0.0.1:{port}"),
            access_key,
            secret_key,
            region: REGION.to_owned(),
        })
    }
}

/// Random bytes as hexadecimal digits, which every server accepts as a key.
pub(crate) fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(inputs::hex(&random))
}
