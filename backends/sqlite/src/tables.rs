//! The rows of a [`SqliteStore`](crate::SqliteStore), for a store that is built on it and has tables of its own.
//!
//! [`SqliteStore::open_with`](crate::SqliteStore::open_with) opens it, and [`SqliteStore::db`](crate::SqliteStore::db)
//! locks its connection. Rows change in [`SqliteStore::transaction`](crate::SqliteStore::transaction), or in
//! [`SqliteStore::note`](crate::SqliteStore::note), whose note makes the change again after a kill.

pub use crate::db::{Db, GuestRecovery, UnsealedFile, first};

/// The bytes of files: those before [`HEAD`](crate::HEAD) are rows, those after it are a file's tail.
pub mod content {
    pub use crate::content::{
        cut_off, held_tail, lengthen_tail, note_synced, punch, read, read_left, tail_length, truncate, write,
        write_tail,
    };
}

pub use crate::synced_rows::{is_copied, note_copied};

/// Calls of [`Store`](fuse::store::Store) on a connection that the caller has locked.
pub mod held {
    pub use crate::held::{append, fallocate, read, seek, write};
}

/// The names in directories.
pub mod names {
    pub use crate::name_cache::Name;
    pub use crate::names::{find, insert, is_empty, remove};
}

/// The rows of inodes.
pub mod nodes {
    pub use crate::nodes::{
        PathToRoot, find, get, get_file, insert, names_changed, parent, set_origin, set_parent, signed, target,
        unsigned, update,
    };
}

/// The extended attributes of inodes.
pub mod xattrs {
    pub use crate::xattrs::{clear, get, list, set};
}
