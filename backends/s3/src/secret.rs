//! Values that are never shown, and why a configuration with them cannot be used.

/// A value that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T = String>(pub T);

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Why a configuration cannot be used, and what to do. It never holds a key or a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);
