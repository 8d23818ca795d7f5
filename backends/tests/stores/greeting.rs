//! The shortest store: a directory with one file, for docs/ADDING-A-BACKEND.md.

use fuse::store::{
    Attr, Caller, Coherence, DirEntry, EntrySink, Errno, FIRST_COOKIE, Ino, Kind, ROOT, Result, Store, Timestamp,
};

use crate::common::caller;

struct Greeting;

const FILE: Ino = 2;
const TEXT: &[u8] = b"hello\n";

impl Store for Greeting {
    fn kind(&self) -> &'static str {
        "greeting"
    }

    // Nothing but this mount ever changes it: the kernel may keep everything it has seen.
    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        match (parent, name) {
            (ROOT, b"hello.txt") => self.getattr(FILE),
            (ROOT, _) => Err(Errno::NOENT.into()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (kind, permissions, size) = match ino {
            ROOT => (Kind::Directory, 0o755, 0),
            FILE => (Kind::File, 0o444, TEXT.len() as u64),
            _ => return Err(Errno::NOENT.into()),
        };
        let owner = Caller { uid: 0, gid: 0, now: Timestamp(0) };
        Ok(Attr { size, blocks: size.div_ceil(512), ..Attr::new(ino, kind, permissions, &owner) })
    }

    fn parent(&self, _dir: Ino) -> Result<Ino> {
        Ok(ROOT)
    }

    fn readdir(&self, _dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        if after < FIRST_COOKIE {
            let _ = emit(DirEntry {
                name: b"hello.txt",
                ino: FILE,
                kind: Kind::File,
                cookie: FIRST_COOKIE,
                attr: if with_attr { Some(self.getattr(FILE)?) } else { None },
            });
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        if ino != FILE {
            return Err(Errno::ISDIR.into());
        }
        let start = (offset as usize).min(TEXT.len());
        out.extend_from_slice(&TEXT[start..(start + size).min(TEXT.len())]);
        Ok(())
    }

    // It holds nothing that could be lost.
    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_store_of_the_fewest_methods_is_a_read_only_file_system() {
    let store = Greeting;
    let file = store.lookup(ROOT, b"hello.txt").unwrap();
    let mut text = Vec::new();
    store.read(file.ino, 0, 4096, &mut text).unwrap();
    assert_eq!(text, TEXT);
    let written = store.write(&caller(1), file.ino, 0, b"x");
    assert_eq!(written.unwrap_err().errno, Errno::ROFS);
}
