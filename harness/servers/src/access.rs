//! Where a server listens and who may use it.

use std::io;

/// The region that every server of ours claims to be in.
pub const REGION: &str = "us-east-1";

/// What a client needs to use a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// As in `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The name half of the credentials.
    pub access_key: String,
    /// The secret half of the credentials.
    pub secret_key: String,
    /// What requests are signed for.
    pub region: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of logs.
        f.debug_struct("Access")
            .field("endpoint", &self.endpoint)
            .field("access_key", &self.access_key)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Fresh random credentials for a server on a loopback port.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub fn random(port: u16) -> io::Result<Self> {
        Self::on(port, None)
    }

    /// Such keys, or fresh random ones, for a server on a loopback port.
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

/// Random bytes as hexadecimal digits: what every server takes as a key.
fn random_hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
