//! What a database of another kind takes from this store: pages with checksums, and what is beside a database file.

pub use crate::files::has_log;
pub use crate::header::{check_content, immutable};
pub use crate::open::{read_only_reason, unwritable_folder};
pub use crate::redo::boot;
pub use crate::room::{Room, leave_bytes, place_if_room};
pub use sqlite_pages::{Header, connect, header};
