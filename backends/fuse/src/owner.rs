//! A stored owner that is shown as the mounting user, such as user 0 of a rootless container.

use std::str::FromStr;

use crate::store::{Attr, Caller};

/// A user and a group, as a store has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl FromStr for StoredOwner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The kernel takes the largest number for "unchanged".
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| *number != u32::MAX);
            number.ok_or_else(|| {
                format!("{text:?} is not the number of a user or group (give UID or UID:GID, as in 0:0)")
            })
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { uid: number(uid)?, gid: number(gid)? })
    }
}

/// Which stored owner is shown as which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerMap {
    stored: StoredOwner,
    shown: StoredOwner,
}

fn mapped(id: u32, from: u32, to: u32) -> u32 {
    if id == from { to } else { id }
}

impl OwnerMap {
    /// Shows `stored` as the user of this process.
    pub(crate) fn new(stored: StoredOwner) -> Self {
        let shown = StoredOwner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        Self { stored, shown }
    }

    /// The attributes that the kernel gets.
    pub(super) fn shown(&self, attr: &Attr) -> Attr {
        Attr {
            uid: mapped(attr.uid, self.stored.uid, self.shown.uid),
            gid: mapped(attr.gid, self.stored.gid, self.shown.gid),
            ..*attr
        }
    }

    /// The stored user for one that the kernel names.
    pub(super) fn stored_uid(&self, uid: u32) -> u32 {
        mapped(uid, self.shown.uid, self.stored.uid)
    }

    /// The stored group for one that the kernel names.
    pub(super) fn stored_gid(&self, gid: u32) -> u32 {
        mapped(gid, self.shown.gid, self.stored.gid)
    }

    /// The caller, as the store sees it.
    pub(super) fn stored(&self, caller: Caller) -> Caller {
        Caller { uid: self.stored_uid(caller.uid), gid: self.stored_gid(caller.gid), ..caller }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Kind, Timestamp};

    #[test]
    fn an_owner_is_a_user_or_a_user_and_a_group() {
        let owner = |uid, gid| Ok(StoredOwner { uid, gid });
        assert_eq!("0".parse(), owner(0, 0));
        assert_eq!("1000:100".parse(), owner(1000, 100));
        for wrong in ["", "root", "0:", ":0", "0:0:0", "-1", "4294967295", "0:4294967295"] {
            assert!(wrong.parse::<StoredOwner>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shown_owner_is_stored_as_it_was() {
        let map = OwnerMap { stored: StoredOwner { uid: 0, gid: 5 }, shown: StoredOwner { uid: 1000, gid: 100 } };
        let caller = Caller { uid: 1000, gid: 100, now: Timestamp(0) };
        let stored = map.stored(caller);
        assert_eq!((stored.uid, stored.gid), (0, 5));
        let mine = Attr::new(2, Kind::File, 0o644, &stored);
        let shown = map.shown(&mine);
        assert_eq!((shown.uid, shown.gid), (1000, 100));
        let others = Caller { uid: 7, gid: 8, now: Timestamp(0) };
        let stored = map.stored(others);
        assert_eq!((stored.uid, stored.gid), (7, 8));
        let theirs = Attr::new(3, Kind::File, 0o644, &others);
        assert_eq!((map.shown(&theirs).uid, map.shown(&theirs).gid), (7, 8));
    }
}
