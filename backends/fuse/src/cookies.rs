//! Directory cookies below 2³¹, for stores whose own have up to 63 bits.
//!
//! A program with a 32-bit `off_t` cannot read a directory with larger ones: its C library answers `EOVERFLOW`.
//!
//! A store's cookie below [`NARROW`] stays as it is. Of a larger one the first 29 bits are enough, unless the next entry
//! has the same: then a table keeps it. A store that lists names by hashes needs the table for few names of many.

use std::collections::HashMap;
use std::ops::ControlFlow;

use parking_lot::Mutex;

use crate::store::{DirEntry, Errno, Ino, Result};

/// Cookies from here on stand for a bucket of the store's cookies: those with the same first bits.
const NARROW: u64 = 1 << 29;

/// Cookies from here on are numbers in a table.
const TABLE: u64 = 1 << 30;

/// The exclusive upper bound of all cookies.
const LIMIT: u64 = 1 << 31;

/// Bits of a store's cookie within its bucket.
const BUCKET_BITS: u32 = 63 - 29;

/// The tables of one mount, by directory.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    tables: Mutex<HashMap<Ino, Table>>,
}

#[derive(Debug, Default)]
struct Table {
    cookies: Vec<u64>,
    numbers: HashMap<u64, u64>,
}

impl Cookies {
    /// The store's cookie to go on after.
    ///
    /// # Errors
    /// `EINVAL` if no listing of this directory gave this cookie.
    pub(super) fn widen(&self, dir: Ino, cookie: u64) -> Result<u64> {
        if cookie < NARROW {
            return Ok(cookie);
        }
        if cookie < TABLE {
            // The entry was the last of its bucket.
            return Ok(((cookie - NARROW + 1) << BUCKET_BITS) - 1);
        }
        let number = usize::try_from(cookie - TABLE).map_err(|_| Errno::INVAL)?;
        let tables = self.tables.lock();
        let found = tables.get(&dir).and_then(|table| table.cookies.get(number));
        Ok(*found.ok_or(Errno::INVAL)?)
    }

    /// The cookie of an entry that the store gave `cookie`, and the entry after it `next`. The same at every listing for
    /// as long as the entry and the next one exist; an earlier one stays valid for as long as the kernel knows `dir`.
    fn narrow(&self, dir: Ino, cookie: u64, next: Option<u64>) -> Result<u64> {
        let bucket = |cookie: u64| cookie >> BUCKET_BITS;
        if cookie < NARROW {
            return Ok(cookie);
        }
        if next.is_none_or(|next| bucket(next) != bucket(cookie)) {
            return Ok(NARROW + bucket(cookie));
        }
        let mut tables = self.tables.lock();
        let table = tables.entry(dir).or_default();
        let new = TABLE + table.cookies.len() as u64;
        let number = *table.numbers.entry(cookie).or_insert(new);
        if number == new {
            if new >= LIMIT {
                table.numbers.remove(&cookie);
                return Err(Errno::OVERFLOW.into());
            }
            table.cookies.push(cookie);
        }
        Ok(number)
    }

    /// The kernel has forgotten a directory, and the cookies of its listings.
    pub(super) fn forget(&self, dir: Ino) {
        let mut tables = self.tables.lock();
        if !tables.is_empty() {
            tables.remove(&dir);
        }
    }

    /// Starts passing the entries of `dir` to `add`, which returns true when it is full.
    pub(super) fn listing<'a>(&'a self, dir: Ino, add: &'a mut dyn FnMut(DirEntry<'_>) -> bool) -> Listing<'a> {
        Listing { cookies: self, dir, add, name: Vec::new(), waiting: None, is_full: false }
    }
}

/// A listing, whose entries wait until the next one is known.
pub(super) struct Listing<'a> {
    cookies: &'a Cookies,
    dir: Ino,
    add: &'a mut dyn FnMut(DirEntry<'_>) -> bool,
    /// The name of the entry that waits.
    name: Vec<u8>,
    waiting: Option<DirEntry<'static>>,
    is_full: bool,
}

impl Listing<'_> {
    /// Takes the next entry of the store.
    pub(super) fn take(&mut self, entry: DirEntry<'_>) -> Result<ControlFlow<()>> {
        self.pass(Some(entry.cookie))?;
        if self.is_full {
            return Ok(ControlFlow::Break(()));
        }
        self.name.clear();
        self.name.extend_from_slice(entry.name);
        self.waiting = Some(DirEntry { name: b"", ..entry });
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on the last entry.
    pub(super) fn finish(mut self) -> Result<()> {
        self.pass(None)
    }

    fn pass(&mut self, next: Option<u64>) -> Result<()> {
        if let Some(entry) = self.waiting.take() {
            let cookie = self.cookies.narrow(self.dir, entry.cookie, next)?;
            self.is_full = (self.add)(DirEntry { name: &self.name, cookie, ..entry });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::store::{FIRST_COOKIE, Kind};

    const DIR: Ino = 5;

    /// Lists up to `size` entries of a directory, by the store's cookies, after `after`: pairs of the store's cookie and
    /// the one that a program sees.
    fn page(cookies: &Cookies, store: &BTreeSet<u64>, after: u64, size: usize) -> Vec<(u64, u64)> {
        let from = match after {
            0 => 0,
            after => cookies.widen(DIR, after).unwrap(),
        };
        let mut seen = Vec::new();
        let mut add = |entry: DirEntry<'_>| {
            let is_full = seen.len() == size;
            if !is_full {
                seen.push((entry.ino, entry.cookie));
            }
            is_full
        };
        let mut listing = cookies.listing(DIR, &mut add);
        for &cookie in store.range(from + 1..) {
            let entry = DirEntry { name: b"x", ino: cookie, kind: Kind::File, cookie, attr: None };
            if listing.take(entry).unwrap().is_break() {
                break;
            }
        }
        listing.finish().unwrap();
        seen
    }

    fn cookie() -> impl Strategy<Value = u64> {
        // Of any size; of few buckets; of neighbours, as keys of rows are.
        prop_oneof![
            FIRST_COOKIE..1 << 63,
            (0..4_u64, 0..50_u64).prop_map(|(bucket, at)| (bucket << 34) + at + FIRST_COOKIE),
            (0..20_u64).prop_map(|at| (1 << 29) - 10 + at),
            (0..3_u64).prop_map(|at| (1 << 63) - 1 - at),
        ]
    }

    proptest! {
        #[test]
        fn each_entry_is_listed_once_while_others_come_and_go(
            stays in prop::collection::btree_set(cookie(), 1..80),
            changes in prop::collection::vec(prop::collection::btree_set(cookie(), 0..6), 1..60),
            size in 1_usize..9,
        ) {
            let cookies = Cookies::default();
            let (mut store, mut after) = (stays.clone(), 0);
            let mut seen = BTreeMap::<u64, u64>::new();
            let mut changes = changes.iter().cycle();
            loop {
                let found = page(&cookies, &store, after, size);
                let Some(last) = found.last() else { break };
                after = last.1;
                for (entry, cookie) in found {
                    prop_assert!((FIRST_COOKIE..LIMIT).contains(&cookie));
                    prop_assert_eq!(seen.insert(entry, cookie), None, "listed twice");
                }
                for change in changes.next().into_iter().flatten() {
                    if !stays.contains(change) && !store.remove(change) {
                        store.insert(*change);
                    }
                }
            }
            prop_assert!(stays.iter().all(|entry| seen.contains_key(entry)));
            // A program may go back to any place that it has seen.
            for (entry, cookie) in &seen {
                let next = stays.range(entry + 1..).next();
                let rest = page(&cookies, &store, *cookie, usize::MAX);
                prop_assert!(rest.iter().all(|(other, _)| other > entry));
                prop_assert!(next.is_none_or(|next| rest.iter().any(|(other, _)| other == next)));
            }
        }
    }

    #[test]
    fn a_table_is_needed_for_few_of_many_hashed_names_and_goes_with_its_directory() {
        let cookies = Cookies::default();
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) >> 3;
        let store: BTreeSet<u64> = (1..=100_000).map(hash).collect();
        let seen = page(&cookies, &store, 0, usize::MAX);
        assert_eq!(seen.len(), 100_000);
        let kept = cookies.tables.lock().get(&DIR).map_or(0, |t| t.cookies.len());
        assert!(kept < 200, "{kept}");
        cookies.forget(DIR);
        assert!(cookies.tables.lock().is_empty());
        assert_eq!(cookies.widen(DIR, TABLE).unwrap_err().errno, Errno::INVAL);
    }
}
