//! Versions: what an object is, kept before it is overwritten or deleted.

use super::Inner;
use super::cache::Object;
use super::copy::PART;
use super::remote::{Expect, RemoteError};
use super::upload::other;

impl Inner {
    /// Keeps what an object is before it is overwritten or deleted.
    pub(super) async fn keep_version(&self, known: &Object) -> Result<(), RemoteError> {
        if !self.config.keep_versions || known.meta.is_foreign() {
            return Ok(());
        }
        let from = self.key(&known.key);
        let to = self
            .layout
            .version_of(&from, known.meta.version, &known.etag);
        let length = self.length_of(known);
        if length > PART && self.keep_large(known, &to).await? {
            return Ok(());
        }
        match self.remote.copy((&from, &known.etag, length), &to).await {
            // Gone or changed since: by somebody else, whose version it is to keep, or by us before a crash.
            Ok(()) | Err(RemoteError::NotFound(_) | RemoteError::Changed(_)) => Ok(()),
            // It would stand in the way of the file, and of all that follows, for ever.
            Err(error @ (RemoteError::Timeout(_) | RemoteError::Other(_))) if length > PART => {
                tracing::warn!(from, %error, "the server cannot copy it: this version is not kept");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps a large object, in parts that the server copies; whether there is nothing more to be done.
    async fn keep_large(&self, known: &Object, to: &str) -> Result<bool, RemoteError> {
        match self.remote.head(to).await {
            // An earlier batch has got as far as that.
            Ok(_) => return Ok(true),
            Err(RemoteError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let attributes = known.meta.attributes(self.seal.as_ref()).map_err(other)?;
        let upload = self.begin_parts(to, attributes).await?;
        let copied = self.copy_parts(known, to, &upload).await;
        match self.end_parts(to, &upload, copied, &Expect::Anything).await {
            Ok(made) => Ok(made.is_some()),
            // In one piece it would take longer still.
            Err(RemoteError::Timeout(error)) => {
                tracing::warn!(
                    to,
                    error,
                    "the server is too slow to copy it: this version is not kept"
                );
                Ok(true)
            }
            Err(RemoteError::Other(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
