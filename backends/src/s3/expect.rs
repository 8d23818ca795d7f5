//! Writing on a condition, also where the server overwrites whatever a request says: there each write is preceded by a look,
//! and somebody may come between the two.

use bytes::Bytes;
use object_store::Attributes;

use super::Inner;
use super::remote::{Expect, RemoteError};

impl Inner {
    /// Puts an object in one request; its entity tag.
    pub(super) async fn put_whole(
        &self,
        key: &str,
        body: Vec<u8>,
        attributes: Attributes,
        expect: &Expect,
    ) -> Result<String, RemoteError> {
        if !self.conditions.are_honoured {
            self.look_first(key, expect).await?;
        }
        let body = Bytes::from(body);
        self.remote.put(key, body, attributes, expect).await
    }

    /// Makes an object of parts; its entity tag. The look comes now, as sending the parts may have taken minutes.
    pub(super) async fn put_parts_together(
        &self,
        key: &str,
        upload: &str,
        parts: &[String],
        expect: &Expect,
    ) -> Result<String, RemoteError> {
        if !self.conditions.are_honoured_of_parts {
            self.look_first(key, expect).await?;
        }
        let made = self.remote.complete_parts(key, upload, parts, expect);
        match made.await? {
            // Not every server answers it here.
            etag if etag.is_empty() => Ok(self.remote.head(key).await?.etag),
            etag => Ok(etag),
        }
    }

    async fn look_first(&self, key: &str, expect: &Expect) -> Result<(), RemoteError> {
        if *expect == Expect::Anything {
            return Ok(());
        }
        let found = match self.remote.head(key).await {
            Ok(found) => Some(found.etag),
            Err(RemoteError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        match (expect, found) {
            (Expect::Absent, None) => Ok(()),
            (Expect::Etag(etag), Some(found)) if *etag == found => Ok(()),
            _ => Err(RemoteError::Changed(key.to_owned())),
        }
    }
}
