//! A large file that gets another name: the server copies it, on the same condition as if it were sent.

use futures::{StreamExt, TryStreamExt, stream};

use super::Inner;
use super::cache::Object;
use super::large::PARALLEL_PARTS;
use super::plan::Put;
use super::remote::{Expect, RemoteError};
use super::seal::object_length;
use super::upload::{Done, Parts, other};

/// Bytes that one request copies: S3 takes up to 5 GiB, and a timeout has to do for it.
pub(super) const PART: u64 = 256 << 20;

impl Inner {
    /// Has a file copied from the object that it is in under another name; `None` if it has to be sent: that object has
    /// changed, or this server cannot copy on conditions.
    pub(super) async fn put_copy(
        &self,
        put: &Put,
        key: &str,
        source: &Object,
        version: u64,
        expect: &Expect,
    ) -> Result<Option<Done>, RemoteError> {
        if !self.conditions.are_honoured {
            return Ok(None);
        }
        let sha256 = source.meta.sha256.clone();
        let (_, mut meta) = self.describe(put, &put.attr, version, sha256);
        // What it says of its bytes is said of those that are copied.
        (meta.size, meta.header) = (source.meta.size, source.meta.header);
        let attributes = meta.attributes(self.seal.as_ref()).map_err(other)?;
        let upload = self.begin_parts(key, attributes).await?;
        let copied = self.copy_parts(source, key, &upload).await;
        let Some(etag) = self.end_parts(key, &upload, copied, expect).await? else {
            return Ok(None);
        };
        self.copy_digests(source, key, &etag).await;
        Ok(Some(Done::Written { etag, meta }))
    }

    /// The entity tags of the parts; `None` if the server does not copy them, or the object has changed.
    pub(super) async fn copy_parts(
        &self,
        source: &Object,
        key: &str,
        upload: &str,
    ) -> Result<Option<Vec<String>>, RemoteError> {
        let length = self.length_of(source);
        let from = self.key(&source.key);
        let from = from.as_str();
        let copied = stream::iter(0..length.div_ceil(PART)).map(|part| {
            let range = part * PART..((part + 1) * PART).min(length);
            let to = (key, upload, part as usize);
            self.remote.copy_part((from, &source.etag, range), to)
        });
        let etags: Vec<Option<String>> = copied.buffered(PARALLEL_PARTS).try_collect().await?;
        Ok(etags.into_iter().collect())
    }

    /// Bytes of an object.
    pub(super) fn length_of(&self, object: &Object) -> u64 {
        object_length(object.meta.header + object.meta.size, self.seal.is_some())
    }

    /// Tells others the digests of the parts under the new name, too, where the writer of the old one has.
    async fn copy_digests(&self, source: &Object, key: &str, etag: &str) {
        let from = self.layout.parts(&self.key(&source.key));
        let told = match self.remote.get(&from).await {
            Ok(told) => self.parse_json::<Parts>(&told),
            Err(error) => Err(error),
        };
        match told {
            Ok(told) if told.etag == source.etag => self.tell_parts(key, etag, told.sha256).await,
            Ok(_) => {}
            Err(error) => tracing::debug!(key, %error, "the digests of its parts"),
        }
    }
}
