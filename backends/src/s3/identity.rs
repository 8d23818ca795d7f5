//! Which object it is that is found: the one that is known here, one of ours whose answer was lost, or somebody else's.
//!
//! What an object says of itself decides. Its entity tag alone does not: it is one of the bytes, so that what somebody has
//! made anew with the same bytes has the same; and some servers answer an upload with another than they tell later.

use super::Inner;
use super::cache::Object;
use super::object::Meta;
use super::plan::Put;
use super::remote::{Fetched, RemoteError};
use super::seal::object_length;
use crate::store::Kind;

/// What is there where an object was to be written.
pub(super) enum Met {
    /// What is known here, if under another entity tag, and so what may be replaced.
    Known(Option<Object>),
    /// What was to be written.
    Done(Meta),
    /// What somebody else has written.
    Another,
}

/// Whether an entity tag says of how many parts its object is, and so is no digest of all bytes.
fn is_of_parts(etag: &str) -> bool {
    etag.contains('-')
}

/// Whether one object can have had both entity tags: as it was answered, and as it is told later. Two digests of all bytes
/// that differ are of two, whatever these say of themselves: another tool has kept that, and changed the bytes.
fn may_be_of_one(etag: &str, other: &str) -> bool {
    etag == other || etag.is_empty() || is_of_parts(etag) != is_of_parts(other)
}

/// Whether an object that says this, and has this entity tag, is the one that is known.
pub(super) fn is_known(known: &Object, meta: &Meta, etag: &str) -> bool {
    // What nobody has told the checksum of is known by its entity tag and time alone.
    let is_told = etag == known.etag || !meta.sha256.is_empty();
    is_told && *meta == known.meta && may_be_of_one(&known.etag, etag)
}

impl Inner {
    /// What an object of ours says of itself; `None` also where another tool has kept that, and changed the length.
    pub(super) fn said_by(&self, found: &Fetched) -> Option<Meta> {
        let meta = Meta::from_attributes(&found.attributes, self.seal.as_ref())?;
        let length = object_length(meta.header + meta.size, self.seal.is_some());
        (meta.kind() != Kind::File || length == found.size).then_some(meta)
    }

    /// Whether an object is the one that is known still.
    pub(super) fn is_still(&self, known: &Object, found: &Fetched) -> bool {
        match self.said_by(found) {
            Some(meta) => is_known(known, &meta, &found.etag),
            None => {
                let is_as_old = !known.meta.is_foreign() || known.meta.modified == found.modified.0;
                known.etag == found.etag && is_as_old
            }
        }
    }

    /// What is found where a put was refused, or not answered; `known` is what it was to replace.
    pub(super) async fn met(
        &self,
        put: &Put,
        known: Option<&Object>,
        found: &Fetched,
    ) -> Result<Met, RemoteError> {
        let under_this_name = |meta: Meta| {
            Met::Known(Some(Object {
                parent: put.parent,
                name: put.name.clone(),
                key: put.key.clone(),
                ino: put.attr.ino,
                etag: found.etag.clone(),
                meta,
            }))
        };
        let said = self.said_by(found);
        if let Some(known) = known.filter(|known| self.is_still(known, found)) {
            return Ok(under_this_name(known.meta.clone()));
        }
        if let Some(meta) = said {
            // The same bytes under the same entity tag: this is what a put that is not refused replaces, too.
            let has_same_tag = known.is_some_and(|known| known.etag == found.etag);
            let ours = self.would_say(put).await?;
            match ours {
                Some(ours) if ours.says_the_same_as(&meta) => return Ok(Met::Done(meta)),
                // Nothing but attributes is replaced.
                Some(ours) if ours.has_the_content_of(&meta) => return Ok(under_this_name(meta)),
                _ if has_same_tag => return Ok(under_this_name(meta)),
                _ => {}
            }
        } else if known.is_some_and(|known| known.etag == found.etag) {
            return Ok(Met::Known(None));
        }
        // An earlier version of ours, which this one replaces.
        let sent = self.sent_in(&put.key, found)?;
        Ok(sent.map_or(Met::Another, under_this_name))
    }

    /// What an object that was to be written would say of itself, but for its version; `None` if the file has changed
    /// since, or is not here.
    async fn would_say(&self, put: &Put) -> Result<Option<Meta>, RemoteError> {
        let sha256 = match &put.sha256 {
            Some(sha256) => Some(sha256.clone()),
            None => self.checksum_of(put).await?,
        };
        Ok(sha256.map(|sha256| self.describe(put, &put.attr, 0, sha256).1))
    }
}

impl Meta {
    /// Whether both say the same of a file, whoever has written it, and as which version.
    fn says_the_same_as(&self, other: &Self) -> bool {
        let of_file = |meta: &Self| Self {
            version: 0,
            writer: String::new(),
            // Each host has it since a time of its own.
            created: 0,
            // What stands before the content says the version, too.
            size: 0,
            header: 0,
            ..meta.clone()
        };
        of_file(self) == of_file(other)
    }

    /// Whether both are files of one kind with the same in them.
    fn has_the_content_of(&self, other: &Self) -> bool {
        !self.sha256.is_empty()
            && (self.kind(), self.rdev, &self.sha256) == (other.kind(), other.rdev, &other.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ROOT, Timestamp};

    fn known(etag: &str) -> Object {
        let mut meta = Meta::foreign(5, Timestamp(7), 1, 1);
        (meta.version, meta.writer, meta.sha256) = (2, "alice".to_owned(), "ab".to_owned());
        Object {
            parent: ROOT,
            name: b"n".to_vec(),
            key: "n".to_owned(),
            ino: 2,
            etag: etag.to_owned(),
            meta,
        }
    }

    #[test]
    fn what_an_object_says_decides_and_its_tag_where_that_tells() {
        let of_parts = known("aaaa-3");
        let meta = of_parts.meta.clone();
        assert!(is_known(&of_parts, &meta, "aaaa-3"));
        assert!(is_known(&of_parts, &meta, "bbbb"), "told otherwise later");
        assert!(!is_known(&of_parts, &meta, "bbbb-3"), "other bytes");
        assert!(!is_known(&of_parts, &meta, "bbbb-4"), "other parts");
        assert!(!is_known(&known("aaaa"), &meta, "bbbb"), "other bytes");
        assert!(is_known(&known(""), &meta, "bbbb"), "nothing was answered");
        for change in [
            |meta: &mut Meta| meta.version += 1,
            |meta: &mut Meta| meta.writer.push('x'),
            |meta: &mut Meta| meta.modified += 1,
            |meta: &mut Meta| meta.mode ^= 0o111,
        ] {
            let mut other = meta.clone();
            change(&mut other);
            assert!(!is_known(&of_parts, &other, "aaaa-3"));
        }
        let mut untold = known("aaaa-3");
        untold.meta.sha256.clear();
        assert!(!is_known(&untold, &untold.meta, "bbbb"));
        assert!(is_known(&untold, &untold.meta, "aaaa-3"));
    }
}
