//! Buckets and objects in a directory: `DIR/BUCKET/NUMBER.object`, one file per version. The highest number
//! of a key is the current version.
//!
//! Keys live in memory and in footers, not in paths. So keys have no length limit from the file system, and
//! `x/y` may exist beside `x/y/z`.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::RwLock;
use s3s::{S3Error, S3Result, s3_error};

use super::condition::Condition;
use super::incoming::IncomingBody;
use super::listing::{Page, Query};
use super::object::{Attributes, Object};

/// Directory of incomplete bodies.
const INCOMING: &str = ".incoming";

/// Suffix of every object's file.
const SUFFIX: &str = ".object";

/// A bucket: its creation time, and its objects by key.
#[derive(Debug)]
struct Bucket {
    created: SystemTime,
    objects: BTreeMap<String, Arc<Object>>,
}

/// All buckets of a directory.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    /// Held while this server uses the directory.
    _lock: File,
    /// Write-locked only while a complete version becomes the current one.
    buckets: RwLock<BTreeMap<String, Bucket>>,
    next_number: AtomicU64,
}

/// Makes a directory that other users cannot read, and those above it.
fn private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn internal(error: io::Error) -> S3Error {
    S3Error::internal_error(error)
}

impl Store {
    /// Opens a directory, and removes incomplete bodies that a killed server left behind.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        private(root)?;
        let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(root.join(".lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let root = root.display();
                return Err(io::Error::other(format!(
                    "{root} is in use by another embedded S3 server; stop it, or choose another directory"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let incoming = root.join(INCOMING);
        if incoming.exists() {
            std::fs::remove_dir_all(&incoming)?;
        }
        private(&incoming)?;
        let mut buckets = BTreeMap::new();
        let mut next_number = 0;
        for entry in std::fs::read_dir(root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name.starts_with('.') || !entry.file_type()?.is_dir() {
                continue;
            }
            let created = entry.metadata()?.modified()?;
            let (objects, last_number) = read_bucket(&entry.path())?;
            next_number = next_number.max(last_number + 1);
            buckets.insert(name, Bucket { created, objects });
        }
        Ok(Self {
            root: root.to_owned(),
            _lock: lock,
            buckets: RwLock::new(buckets),
            next_number: AtomicU64::new(next_number),
        })
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    fn read<T>(&self, bucket: &str, ask: impl FnOnce(&Bucket) -> S3Result<T>) -> S3Result<T> {
        // A panic cannot leave the map partly changed.
        let buckets = self.buckets.read();
        ask(buckets.get(bucket).ok_or_else(|| s3_error!(NoSuchBucket))?)
    }

    fn change<T>(&self, bucket: &str, change: impl FnOnce(&mut Bucket) -> S3Result<T>) -> S3Result<T> {
        let mut buckets = self.buckets.write();
        change(buckets.get_mut(bucket).ok_or_else(|| s3_error!(NoSuchBucket))?)
    }

    /// Creates an empty bucket.
    pub(crate) fn create_bucket(&self, name: &str) -> S3Result<()> {
        let mut buckets = self.buckets.write();
        if buckets.contains_key(name) {
            return Err(s3_error!(BucketAlreadyOwnedByYou));
        }
        private(&self.root.join(name)).map_err(internal)?;
        let bucket = Bucket { created: SystemTime::now(), objects: BTreeMap::new() };
        buckets.insert(name.to_owned(), bucket);
        Ok(())
    }

    /// Removes an empty bucket.
    pub(crate) fn delete_bucket(&self, name: &str) -> S3Result<()> {
        let mut buckets = self.buckets.write();
        let bucket = buckets.get(name).ok_or_else(|| s3_error!(NoSuchBucket))?;
        if !bucket.objects.is_empty() {
            return Err(s3_error!(BucketNotEmpty));
        }
        std::fs::remove_dir(self.root.join(name)).map_err(internal)?;
        buckets.remove(name);
        Ok(())
    }

    /// The buckets with their creation times.
    pub(crate) fn buckets(&self) -> Vec<(String, SystemTime)> {
        let buckets = self.buckets.read();
        let created = |(name, bucket): (&String, &Bucket)| (name.clone(), bucket.created);
        buckets.iter().map(created).collect()
    }

    /// Checks that a bucket exists.
    pub(crate) fn has_bucket(&self, name: &str) -> S3Result<()> {
        self.read(name, |_| Ok(()))
    }

    /// The metadata of an object's current version.
    pub(crate) fn get(&self, bucket: &str, key: &str) -> S3Result<Arc<Object>> {
        self.read(bucket, |bucket| {
            let object = bucket.objects.get(key);
            object.cloned().ok_or_else(|| s3_error!(NoSuchKey))
        })
    }

    /// The current version of an object and its open file, which stays readable after a replacement.
    pub(crate) fn open_object(&self, bucket: &str, key: &str) -> S3Result<(Arc<Object>, File)> {
        self.read(bucket, |bucket| {
            let object = bucket.objects.get(key);
            let object = object.cloned().ok_or_else(|| s3_error!(NoSuchKey))?;
            let file = File::open(&object.file).map_err(internal)?;
            Ok((object, file))
        })
    }

    /// A page of a bucket's keys.
    pub(crate) fn list(&self, bucket: &str, query: Query<'_>) -> S3Result<Page> {
        self.read(bucket, |bucket| Ok(Page::of(&bucket.objects, query)))
    }

    /// A file for a new body.
    pub(crate) fn incoming(&self) -> S3Result<IncomingBody> {
        let name = self.next_number().to_string();
        IncomingBody::create(self.root.join(INCOMING).join(name)).map_err(internal)
    }

    /// Makes a complete body the current version, if the precondition still holds.
    pub(crate) fn commit(
        &self,
        bucket: &str,
        key: &str,
        mut body: IncomingBody,
        e_tag: String,
        attributes: Attributes,
        condition: &Condition,
    ) -> S3Result<Arc<Object>> {
        let mut object = Object {
            file: PathBuf::new(),
            key: key.to_owned(),
            size: body.size(),
            e_tag,
            modified: SystemTime::now(),
            attributes,
        };
        object.append(&mut body.file).map_err(internal)?;
        let directory = self.root.join(bucket);
        let replaced = self.change(bucket, |bucket| {
            let existing = bucket.objects.get(key);
            condition.allows_write(existing.map(Arc::as_ref))?;
            // Under the lock, so that numbers follow the order of the versions.
            object.file = directory.join(format!("{:016x}{SUFFIX}", self.next_number()));
            body.keep(&object.file).map_err(internal)?;
            let object = Arc::new(object);
            let replaced = bucket.objects.insert(key.to_owned(), Arc::clone(&object));
            Ok((object, replaced))
        });
        let (object, replaced) = replaced?;
        if let Some(replaced) = replaced {
            std::fs::remove_file(&replaced.file).map_err(internal)?;
        }
        Ok(object)
    }

    /// Removes an object. Succeeds if it does not exist.
    pub(crate) fn delete(&self, bucket: &str, key: &str, condition: &Condition) -> S3Result<()> {
        self.change(bucket, |bucket| {
            let existing = bucket.objects.get(key);
            condition.allows_write(existing.map(Arc::as_ref))?;
            // The file first, so that a removed key does not reappear at the next start.
            if let Some(object) = existing {
                std::fs::remove_file(&object.file).map_err(internal)?;
                bucket.objects.remove(key);
            }
            Ok(())
        })
    }
}

/// The objects in a bucket's directory, and their highest number.
fn read_bucket(directory: &Path) -> io::Result<(BTreeMap<String, Arc<Object>>, u64)> {
    let mut numbered = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
            numbered.push((number, entry.path()));
        }
    }
    numbered.sort_unstable();
    let last_number = numbered.last().map_or(0, |(number, _)| *number);
    let mut objects = BTreeMap::new();
    for (_, path) in numbered {
        let object = Object::read(&path)?;
        let older: Option<Arc<Object>> = objects.insert(object.key.clone(), Arc::new(object));
        // A kill came between the new version and the removal of the old one.
        if let Some(older) = older {
            std::fs::remove_file(&older.file)?;
        }
    }
    Ok((objects, last_number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn put(store: &Store, key: &str, bytes: &[u8]) {
        let mut body = store.incoming().unwrap();
        body.write(bytes).unwrap();
        let (attributes, condition) = (Attributes::default(), Condition::default());
        store.commit("b", key, body, "tag".to_owned(), attributes, &condition).unwrap();
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_restarted_store_has_the_same_objects() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::open(scratch.path()).unwrap();
        store.create_bucket("b").unwrap();
        put(&store, "x/y", b"old");
        put(&store, "x/y", b"new");
        put(&store, "x/y/z", b"below");
        put(&store, "gone", b"");
        put(&store, &"long/".repeat(200), b"long");
        store.delete("b", "gone", &Condition::default()).unwrap();
        let unfinished = store.incoming().unwrap();
        std::mem::forget(unfinished);
        drop(store);

        let store = Store::open(scratch.path()).unwrap();
        assert_eq!(store.get("b", "x/y").unwrap().size, 3);
        assert_eq!(store.get("b", "x/y/z").unwrap().size, 5);
        assert_eq!(store.get("b", &"long/".repeat(200)).unwrap().size, 4);
        assert!(store.get("b", "gone").is_err());
        assert_eq!(files(&scratch.path().join("b")), 3);
        assert_eq!(files(&scratch.path().join(INCOMING)), 0);
    }

    #[test]
    fn no_other_user_can_read_an_object_or_list_a_bucket() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("data");
        let store = Store::open(&root).unwrap();
        store.create_bucket("b").unwrap();
        put(&store, "k", b"body");
        let object = store.get("b", "k").unwrap().file.clone();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for dir in [&root, &root.join("b"), &root.join(INCOMING)] {
            assert_eq!(mode(dir), 0o700, "{}", dir.display());
        }
        assert_eq!(mode(&object), 0o600);
        assert_eq!(mode(&root.join(".lock")), 0o600);
    }

    #[test]
    fn a_version_that_a_kill_left_behind_does_not_reappear() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::open(scratch.path()).unwrap();
        store.create_bucket("b").unwrap();
        put(&store, "k", b"old");
        let old = store.get("b", "k").unwrap().file.clone();
        let kept = scratch.path().join("kept");
        std::fs::copy(&old, &kept).unwrap();
        put(&store, "k", b"newer");
        std::fs::rename(&kept, &old).unwrap();
        drop(store);
        let store = Store::open(scratch.path()).unwrap();
        assert_eq!(store.get("b", "k").unwrap().size, 5);
        assert!(!old.exists());
    }

    #[test]
    fn a_directory_belongs_to_one_server_and_a_damaged_file_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let store = Store::open(scratch.path()).unwrap();
        let second = Store::open(scratch.path()).unwrap_err().to_string();
        assert!(second.contains("is in use by another embedded S3 server"), "{second}");
        store.create_bucket("b").unwrap();
        put(&store, "k", b"body");
        let file = store.get("b", "k").unwrap().file.clone();
        drop(store);
        std::fs::write(&file, b"cut off").unwrap();
        let damaged = Store::open(scratch.path()).unwrap_err().to_string();
        assert!(damaged.contains("is not an object of this server"), "{damaged}");
    }
}
