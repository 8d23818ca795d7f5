//! A store of your own, mounted: files in one directory, in a `BTreeMap`.
//!
//! `cargo run -p fuse --example map -- DIR` serves them on the empty directory DIR until its standard input ends.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use fuse::store::{
    Attr, Caller, Change, Coherence, DirEntry, EntrySink, Errno, FIRST_COOKIE, Ino, Kind, NewNode, ROOT, Result, Store,
    StoreError, Timestamp, slice,
};
use fuse::{MountOptions, Stop};

/// A file: it lives until [`Store::reclaim`], even without its name.
struct File {
    attr: Attr,
    content: Vec<u8>,
}

struct Files {
    root: Attr,
    names: BTreeMap<Vec<u8>, Ino>,
    files: BTreeMap<Ino, File>,
    next: Ino,
}

impl Files {
    fn file(&mut self, ino: Ino) -> Result<&mut File> {
        let errno = if ino == ROOT { Errno::ISDIR } else { Errno::NOENT };
        self.files.get_mut(&ino).ok_or_else(|| errno.into())
    }

    fn attr(&self, ino: Ino) -> Result<Attr> {
        let file = self.files.get(&ino).map(|file| file.attr);
        file.or((ino == ROOT).then_some(self.root)).ok_or_else(|| Errno::NOENT.into())
    }
}

impl File {
    fn resize(&mut self, size: usize) {
        self.content.resize(size, 0);
        self.attr.size = size as u64;
        self.attr.blocks = self.attr.size.div_ceil(512);
    }
}

struct MapStore(Mutex<Files>);

impl MapStore {
    fn new(owner: &Caller) -> Self {
        let root = Attr::new(ROOT, Kind::Directory, 0o755, owner);
        Self(Mutex::new(Files { root, names: BTreeMap::new(), files: BTreeMap::new(), next: ROOT }))
    }

    /// The files; an error after a panic amid a change.
    fn files(&self) -> Result<MutexGuard<'_, Files>> {
        self.0.lock().map_err(|_| StoreError::storage(Errno::IO, "an earlier call panicked"))
    }
}

/// A place in a file; files of this store fit in memory.
fn place(offset: u64) -> Result<usize> {
    usize::try_from(offset).ok().filter(|place| *place < 1 << 30).ok_or_else(|| Errno::FBIG.into())
}

impl Store for MapStore {
    fn kind(&self) -> &'static str {
        "map"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let files = self.files()?;
        let ino = files.names.get(name).filter(|_| parent == ROOT);
        files.attr(*ino.ok_or(Errno::NOENT)?)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.files()?.attr(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let mut files = self.files()?;
        if ino == ROOT {
            change.apply(&mut files.root, caller.now);
            return Ok(files.root);
        }
        let file = files.file(ino)?;
        if let Some(size) = change.size {
            file.resize(place(size)?);
        }
        change.apply(&mut file.attr, caller.now);
        Ok(file.attr)
    }

    fn parent(&self, _dir: Ino) -> Result<Ino> {
        Ok(ROOT)
    }

    fn create(&self, caller: &Caller, _parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let mut files = self.files()?;
        if node.kind != Kind::File {
            return Err(Errno::OPNOTSUPP.into());
        }
        if files.names.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        files.next += 1;
        let ino = files.next;
        let attr = Attr::new(ino, Kind::File, node.permissions, caller);
        files.names.insert(name.to_owned(), ino);
        files.files.insert(ino, File { attr, content: Vec::new() });
        Ok(attr)
    }

    fn unlink(&self, caller: &Caller, _parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let mut files = self.files()?;
        let ino = files.names.remove(name).ok_or(Errno::NOENT)?;
        let attr = &mut files.file(ino)?.attr;
        (attr.nlink, attr.ctime) = (0, caller.now);
        Ok(Some(ino))
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        let mut files = self.files()?;
        if files.attr(ino).is_ok_and(|attr| attr.nlink == 0) {
            files.files.remove(&ino);
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(slice(&self.files()?.file(ino)?.content, offset, size));
        Ok(())
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let mut files = self.files()?;
        let (file, start) = (files.file(ino)?, place(offset)?);
        let end = start + data.len();
        file.resize(end.max(file.content.len()));
        file.content[start..end].copy_from_slice(data);
        (file.attr.mtime, file.attr.ctime) = (caller.now, caller.now);
        Ok(())
    }

    /// A file's cookie is its inode number, so that it keeps its place in the list.
    fn readdir(&self, _dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        let files = self.files()?;
        let named: BTreeMap<u64, &[u8]> = files.names.iter().map(|(name, ino)| (ino + FIRST_COOKIE, &**name)).collect();
        for (&cookie, &name) in named.range((Bound::Excluded(after), Bound::Unbounded)) {
            let ino = cookie - FIRST_COOKIE;
            let attr = if with_attr { Some(files.attr(ino)?) } else { None };
            if emit(DirEntry { name, ino, kind: Kind::File, cookie, attr }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: map DIR")?;
    let owner = std::fs::metadata(&dir)?;
    let owner = Caller { uid: owner.uid(), gid: owner.gid(), now: Timestamp::now() };
    let options = MountOptions { source: "map".to_owned(), threads: 2, ..MountOptions::default() };
    let until_input_ends = |stop: Stop| {
        println!("ready");
        std::thread::spawn(move || {
            // An error ends the input, too.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            stop.stop();
        });
    };
    fuse::serve(Arc::new(MapStore::new(&owner)), &dir, &options, until_input_ends)?;
    Ok(())
}
