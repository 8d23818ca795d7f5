//! Gives free pages of the database back to the disk, a few at a time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::store::Result;
use parking_lot::{Mutex, MutexGuard};

use crate::db::Db;
use crate::nodes::unsigned;
use crate::transaction::locked;

/// Pages that are given back under one lock: about a millisecond.
const STEP: u64 = 64;

/// How long a mounted database may take at once, and one that is being unmounted.
const TAKES_MOUNTED: Duration = Duration::from_millis(500);
const TAKES_UNMOUNTING: Duration = Duration::from_secs(5);

/// Pages in use up to which all free ones are given back in one transaction, which moves no more than these.
const MOVED_AT_ONCE: u64 = 4096;

/// Pages of a database.
#[derive(Clone, Copy, Debug)]
struct Pages {
    used: u64,
    free: u64,
}

impl Pages {
    /// Free pages that a mount gives back: not before it has many, but then most of them. Space that is soon used again
    /// stays.
    fn excess(self) -> u64 {
        if self.free > self.used / 8 + 1024 { self.free - self.used / 16 - 512 } else { 0 }
    }
}

/// Gives back the free pages of a mounted database that are too many. Other calls go on in between.
pub(super) fn give_back_excess(db: &Mutex<Db>) -> Result<()> {
    let until = Instant::now() + TAKES_MOUNTED;
    let mut left = locked(db).pages()?.excess();
    while left > 0 && Instant::now() < until {
        let db = locked(db);
        db.commit()?;
        if left <= STEP {
            // A checkpoint makes the file shorter.
            db.room.was_copied.store(true, Ordering::Release);
        }
        let given = db.give_back(left.min(STEP))?;
        MutexGuard::unlock_fair(db);
        if given == 0 {
            break;
        }
        left = left.saturating_sub(given);
    }
    Ok(())
}

impl Db {
    fn pages(&self) -> Result<Pages> {
        let pragma = |sql: &str| -> rusqlite::Result<u64> {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row((), |row| row.get(0)).map(unsigned)
        };
        let free = pragma("PRAGMA freelist_count")?;
        let all = pragma("PRAGMA page_count")?;
        Ok(Pages { used: all.saturating_sub(free), free })
    }

    /// Gives back up to `pages` free pages; how many. None in a database that an earlier ctxbench made.
    fn give_back(&self, pages: u64) -> Result<u64> {
        let before = self.pages()?.free;
        {
            let sql = format!("PRAGMA incremental_vacuum({pages})");
            let mut statement = self.connection.prepare(&sql)?;
            let mut steps = statement.query(())?;
            while steps.next()?.is_some() {}
        }
        if let Some(log) = self.log.get() {
            log.committed();
        }
        Ok(before.saturating_sub(self.pages()?.free))
    }

    /// Gives back the free pages of a database that is being unmounted, if they are more than a few.
    /// Stops after a while in a large database.
    pub(super) fn give_back_all(&self) -> Result<()> {
        let Pages { used, free } = self.pages()?;
        if self.is_broken.get() || free <= used / 256 {
            return Ok(());
        }
        if used <= MOVED_AT_ONCE {
            // The commit of the first statement does it.
            let full = self.connection.pragma_update(None, "auto_vacuum", "FULL");
            self.connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            return Ok(full?);
        }
        let until = Instant::now() + TAKES_UNMOUNTING;
        while Instant::now() < until && self.give_back(4 * STEP)? > 0 {}
        Ok(())
    }
}
