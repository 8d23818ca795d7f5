//! A tree of files that a probe writes in one place and compares in another.

use std::collections::BTreeMap;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use inputs::sha256;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The directory of the tree below the agent's directory.
const TOP: &str = "tree";

/// Small files.
const SMALL: usize = 200;

/// The bytes of the long file: several of the pieces in which a store may keep a file.
const LONG_BYTES: usize = 700 * 1024;

/// The extended attribute of the long file.
const ATTRIBUTE: &str = "user.ctxbench.probe";
const VALUE: &[u8] = b"kept with the file";

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, size: u64, sha256: String, attribute: Option<Vec<u8>> },
    Link(PathBuf),
    Other,
}

/// Names and what is at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
    has_no_attribute: bool,
}

impl Tree {
    /// How many names it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What was left out of the comparison, for a detail.
    pub(super) fn remark(&self) -> &'static str {
        if self.has_no_attribute { " (without an extended attribute, which it does not hold)" } else { "" }
    }

    /// Where another tree differs, in words.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (path, expected) in &self.entries {
            let name = path.display();
            match (expected, other.entries.get(path)) {
                (expected, Some(found)) if expected == found => {}
                (_, None) => differences.push(format!("{name} is missing")),
                (Entry::File { size, .. }, Some(Entry::File { size: found, .. })) if size != found => {
                    differences.push(format!("{name} has {found} bytes, not {size}"));
                }
                (Entry::File { sha256, .. }, Some(Entry::File { sha256: found, .. })) if sha256 != found => {
                    differences.push(format!("{name} reads as other bytes ({found})"));
                }
                (expected, Some(found)) => {
                    differences.push(format!("{name} is {found:?}, not {expected:?}"));
                }
            }
        }
        let more = other.entries.keys();
        let more = more.filter(|path| !self.entries.contains_key(*path));
        differences.extend(more.map(|path| format!("{} was never written", path.display())));
        differences
    }
}

/// The extended attribute of a file, if it has it.
fn attribute_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut value = [0_u8; 64];
    match rustix::fs::getxattr(path, ATTRIBUTE, &mut value) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn file(mode: u32, bytes: &[u8], attribute: Option<Vec<u8>>) -> Entry {
    Entry::File { mode, size: bytes.len() as u64, sha256: sha256(bytes), attribute }
}

/// Bytes that differ at each place.
fn content(seed: usize, length: usize) -> Vec<u8> {
    let line = |at: usize| format!("{seed} {at}\n");
    let mut bytes: Vec<u8> = (0..).map(line).take(length / 4 + 1).flat_map(String::into_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Writes the tree below `root`, and returns what must be there.
pub(super) fn plant(root: &Path) -> io::Result<Tree> {
    let top = root.join(TOP);
    let mut tree = Tree::default();
    let mut note = |path: &Path, entry: Entry| {
        tree.entries.insert(path.to_owned(), entry);
    };
    for (name, mode) in [("", 0o755), ("deep", 0o750), ("deep/er", 0o755), ("empty", 0o700)] {
        let dir = top.join(name);
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, Permissions::from_mode(mode))?;
        note(Path::new(name), Entry::Directory { mode });
    }
    for at in 0..SMALL {
        let bytes = content(at, at * 37 % 3000);
        let name = PathBuf::from(format!("deep/er/small-{at:03}.md"));
        let mode = [0o644, 0o600, 0o755][at % 3];
        fs::write(top.join(&name), &bytes)?;
        fs::set_permissions(top.join(&name), Permissions::from_mode(mode))?;
        note(&name, file(mode, &bytes, None));
    }
    let (long, name) = (content(SMALL, LONG_BYTES), Path::new("long.bin"));
    fs::write(top.join(name), &long)?;
    fs::set_permissions(top.join(name), Permissions::from_mode(0o640))?;
    let set = rustix::fs::setxattr(top.join(name), ATTRIBUTE, VALUE, XattrFlags::empty());
    let attribute = match set {
        Ok(()) => Some(VALUE.to_vec()),
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::PERM) => None,
        Err(error) => return Err(error.into()),
    };
    let has_no_attribute = attribute.is_none();
    note(name, file(0o640, &long, attribute));
    let (link, target) = (Path::new("link"), Path::new("deep/er/small-001.md"));
    symlink(target, top.join(link))?;
    note(link, Entry::Link(target.to_owned()));
    tree.has_no_attribute = has_no_attribute;
    Ok(tree)
}

/// Reads the tree below `root`; an empty one if none of it is there.
pub(super) fn read(root: &Path) -> io::Result<Tree> {
    let top = root.join(TOP);
    let mut tree = Tree::default();
    match fs::symlink_metadata(&top) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(tree),
        found => found?,
    };
    walk(&top, &mut |path, metadata| {
        let mode = metadata.mode() & 0o7777;
        let entry = if metadata.is_dir() {
            Entry::Directory { mode }
        } else if metadata.is_symlink() {
            Entry::Link(fs::read_link(path)?)
        } else if metadata.is_file() {
            Entry::File {
                mode,
                size: metadata.len(),
                // A file that cannot be read differs from every other one.
                sha256: fs::read(path).map_or_else(|error| error.to_string(), sha256),
                attribute: attribute_of(path)?,
            }
        } else {
            Entry::Other
        };
        let below = path.strip_prefix(&top).unwrap_or(path);
        tree.entries.insert(below.to_owned(), entry);
        Ok(())
    })?;
    Ok(tree)
}

/// Calls `visit` for `top` and everything below it. Follows no symbolic link.
pub(super) fn walk(top: &Path, visit: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>) -> io::Result<()> {
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        visit(&path, &metadata)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
    }
    Ok(())
}
