//! A copy of a file's content at one moment, for readers that are slower than writers.

use std::fs::File;
use std::io::Write;

use super::{HEAD, SqliteStore, content, nodes};
use crate::store::{Attr, Errno, Ino, Result, StoreError};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

impl SqliteStore {
    /// Copies a file of at most `longest` bytes into a file without a name beside the database, and answers that with
    /// the attributes of the moment; `None` if it is longer. Writers to the file wait meanwhile.
    pub(crate) fn copy_of(&self, ino: Ino, longest: u64) -> Result<Option<(File, Attr)>> {
        let failed = |error: std::io::Error| {
            let full = error.kind() == std::io::ErrorKind::StorageFull;
            let errno = if full { Errno::NOSPC } else { Errno::IO };
            StoreError::storage(errno, format!("copying a file that is written to: {error}"))
        };
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mut copy = tempfile::tempfile_in(dir.unwrap_or(".".as_ref())).map_err(failed)?;
        let db = self.db();
        let attr = nodes::get_file(&db, ino)?;
        if attr.size > longest {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        content::read(&db, ino, 0, attr.size.min(HEAD) as usize, &mut bytes)?;
        let tail = content::tail_length(attr.size);
        let _still = self.tails.hold_still(ino);
        drop(db);
        copy.write_all(&bytes).map_err(failed)?;
        let mut at = 0;
        while at < tail {
            bytes.resize(PIECE.min((tail - at) as usize), 0);
            self.tails.read(ino, at, &mut bytes)?;
            copy.write_all(&bytes).map_err(failed)?;
            at += bytes.len() as u64;
        }
        Ok(Some((copy, attr)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::store::{Caller, Kind, NewNode, ROOT, Store, Timestamp};

    #[test]
    fn a_copy_is_all_of_the_file_and_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Caller {
            uid: 0,
            gid: 0,
            now: Timestamp(1),
        };
        let store = SqliteStore::open(&dir.path().join("x.db"), &owner).unwrap();
        let node = NewNode {
            kind: Kind::File,
            permissions: 0o644,
            rdev: 0,
            target: b"",
        };
        for length in [0, 10, HEAD as usize, HEAD as usize + 3 * PIECE + 7] {
            let name = length.to_string();
            let ino = store
                .create(&owner, ROOT, name.as_bytes(), &node)
                .unwrap()
                .ino;
            let content: Vec<u8> = (0..length).map(|at| (at / 251) as u8).collect();
            store.write(&owner, ino, 0, &content).unwrap();
            let (copy, attr) = store.copy_of(ino, 64 << 20).unwrap().unwrap();
            store.write(&owner, ino, 0, &[255; 5000]).unwrap();
            let mut read = vec![0; attr.size as usize];
            copy.read_exact_at(&mut read, 0).unwrap();
            assert!(read == content, "{length}");
            assert!(store.copy_of(ino, 4999).unwrap().is_none());
        }
    }
}
