//! Names that a bucket cannot hold.

use super::layout::{KEY_MAX, NUMBER_AND_TAG};
use super::{Inner, cache, layout};
use crate::sqlite::nodes;
use crate::store::{Errno, Ino, ROOT, Result};

impl Inner {
    /// Refuses a name whose object, or a version of it, would have a longer key than there is: it could never go up.
    /// Whatever else is wrong with it, who makes it says.
    pub(super) fn must_fit(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.longest_key(parent, name) {
            Ok(length) if length > KEY_MAX => Err(Errno::NAMETOOLONG.into()),
            _ => Ok(()),
        }
    }

    /// How long the longest key is that is about a file of this name.
    fn longest_key(&self, parent: Ino, name: &[u8]) -> Result<usize> {
        let component = |name: &[u8]| layout::component(name, self.seal.as_ref()).len();
        let before = self
            .layout
            .files()
            .len()
            .max(self.layout.versions("").len());
        let mut length = before + component(name) + NUMBER_AND_TAG;
        let db = self.cache.db();
        let mut dir = parent;
        while dir != ROOT {
            if let Some((prefix, _)) = cache::directory(&db, dir)? {
                return Ok(length + prefix.len());
            }
            let above = nodes::parent(&db, dir)?;
            length += component(&cache::name_of(&db, above, dir)?) + "/".len();
            dir = above;
        }
        Ok(length)
    }
}
