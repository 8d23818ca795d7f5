//! Random histories of operations on small files, from a seed.

use fuse::store::{Caller, Kind, NewNode, ROOT, RenameMode, Result, Store, Timestamp};
use llm::HistoryStore;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Names of files.
const NAMES: [&str; 12] = [
    "notes.md",
    "tasks.json",
    "state.json",
    "log.txt",
    "plan.md",
    "main.py",
    "util.py",
    "config.toml",
    "readme.md",
    "inbox.txt",
    "draft.md",
    "report.txt",
];

/// Words of lines.
const WORDS: [&str; 16] = [
    "fix", "the", "parser", "read", "file", "done", "next", "test", "cache", "ok", "user", "error", "retry", "note",
    "one", "two",
];

/// The owner of every file.
pub const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(0) };

/// The files after a history.
#[derive(Debug, Default)]
pub struct RemainingFiles {
    /// Every existing file: its name and its number of changes since it was created.
    pub files: Vec<(String, u32)>,
    /// Names that were removed and do not exist.
    pub removed: Vec<String>,
}

/// Performs `length` random operations: creations, writes, appends, renames and removals.
pub fn live(store: &HistoryStore, length: u32, seed: u64) -> Result<RemainingFiles> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut left = RemainingFiles::default();
    for _ in 0..length {
        let choice: u32 = rng.random_range(0..100);
        let free: Vec<&str> =
            NAMES.into_iter().filter(|name| !left.files.iter().any(|(file, _)| file == name)).collect();
        if left.files.is_empty() || (choice < 30 && !free.is_empty()) {
            let name = free[rng.random_range(0..free.len())];
            let node = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: &[] };
            let attr = store.create(&OWNER, ROOT, name.as_bytes(), &node)?;
            store.write(&OWNER, attr.ino, 0, line(&mut rng).as_bytes())?;
            left.removed.retain(|removed| removed != name);
            left.files.push((name.to_owned(), 0));
            continue;
        }
        let at = rng.random_range(0..left.files.len());
        let name = left.files[at].0.clone();
        let attr = store.lookup(ROOT, name.as_bytes())?;
        match choice {
            60..=79 => {
                // Rewrite the file.
                let cut = fuse::store::Change { size: Some(0), ..fuse::store::Change::default() };
                store.setattr(&OWNER, attr.ino, &cut)?;
                store.write(&OWNER, attr.ino, 0, line(&mut rng).as_bytes())?;
                left.files[at].1 += 1;
            }
            80..=89 if !free.is_empty() => {
                let new = free[rng.random_range(0..free.len())];
                let (from, to) = ((ROOT, name.as_bytes()), (ROOT, new.as_bytes()));
                store.rename(&OWNER, from, to, RenameMode::Replace)?;
                left.files[at] = (new.to_owned(), left.files[at].1 + 1);
                left.removed.retain(|removed| removed != new);
                left.removed.push(name);
            }
            0..=29 | 80.. if left.files.len() > 1 => {
                store.unlink(&OWNER, ROOT, name.as_bytes())?;
                left.files.remove(at);
                left.removed.push(name);
            }
            // Append a line.
            _ => {
                store.write(&OWNER, attr.ino, attr.size, line(&mut rng).as_bytes())?;
                left.files[at].1 += 1;
            }
        }
    }
    Ok(left)
}

fn line(rng: &mut ChaCha8Rng) -> String {
    let words: Vec<&str> = (0..rng.random_range(2..6)).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect();
    format!("{}\n", words.join(" "))
}
