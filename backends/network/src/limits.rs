//! The limits on what a peer may send, by kind. Every client of a network takes its limits from here.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The lowest average rate, in bytes a second, at which a body may arrive after its [`BodyLimit::patience`].
pub const SLOWEST: u64 = 64 * KIB;

/// How much of a body one kind of answer may have, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimit {
    /// The kind of body, for messages, such as `a page of a listing`.
    pub kind: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// The time that a body may take, besides a second for every [`SLOWEST`] bytes that have arrived.
    pub patience: Duration,
}

impl BodyLimit {
    const fn new(kind: &'static str, bytes: u64) -> Self {
        Self { kind, bytes, patience: Duration::from_secs(30) }
    }

    /// The same limit with another patience.
    #[must_use]
    pub const fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same limit, with at most this many bytes.
    #[must_use]
    pub const fn at_most(self, bytes: u64) -> Self {
        if bytes < self.bytes { Self { bytes, ..self } } else { self }
    }
}

/// The answer of a server that reports an error.
pub const ERROR: BodyLimit = BodyLimit::new("an error", 64 * KIB);

/// An access key, or the token or the name of a role that it is asked for with.
pub const KEY: BodyLimit = BodyLimit::new("an access key", 64 * KIB);

/// One page of the keys of a bucket: a thousand keys of 1,024 bytes each, percent-encoded, and their attributes.
pub const LISTING_PAGE: BodyLimit = BodyLimit::new("a page of a listing", 16 * MIB);

/// A commit of a log in a bucket.
pub const COMMIT: BodyLimit = BodyLimit::new("a commit", 256 * MIB);

/// A checkpoint of a log in a bucket: a whole tree, without content.
pub const CHECKPOINT: BodyLimit = BodyLimit::new("a checkpoint", 1024 * MIB);

/// A floor of a log in a bucket.
pub const FLOOR: BodyLimit = BodyLimit::new("a floor", 4 * KIB);

/// A blob of a log in a bucket: a chunk of 8 MiB, and what encryption adds.
pub const BLOB: BodyLimit = BodyLimit::new("a chunk", 8 * MIB + 4 * KIB);

/// An object of a mirror that a mount wrote: a file of 8 MiB, with front matter.
pub const MIRROR_OBJECT: BodyLimit = BodyLimit::new("an object of a mirror", 9 * MIB);

/// An object of a mirror that another tool wrote, which an import takes in.
pub const FOREIGN_OBJECT: BodyLimit = BodyLimit::new("an object of another tool", 1024 * MIB);

/// The list of a shard's records in a bucket of results.
pub const RESULTS_MANIFEST: BodyLimit = BodyLimit::new("the manifest of a shard", MIB);

/// A piece of a file of records in a bucket of results.
pub const RESULTS_PIECE: BodyLimit = BodyLimit::new("a piece of a shard's records", 32 * MIB);

/// An answer of a language model.
pub const MODEL_ANSWER: BodyLimit = BodyLimit::new("an answer of a model", 16 * MIB);

/// A list of language models.
pub const MODEL_LIST: BodyLimit = BodyLimit::new("a list of models", 4 * MIB);

/// One page of a list that a view reads over HTTP.
pub const VIEW_PAGE: BodyLimit = BodyLimit::new("a page", 64 * MIB);

/// Bytes in all pages of a list that a view reads over HTTP.
pub const VIEW_LIST: u64 = 256 * MIB;

/// Pages of a list that a view reads over HTTP.
pub const VIEW_PAGES: usize = 1000;

/// Rows of a list that a view reads over HTTP.
pub const VIEW_ROWS: usize = 1_000_000;

/// Bytes of one row of such a list: the parsed form of a row takes many times its length.
pub const VIEW_ROW: usize = 16 << 20;

/// Bytes of one message of a PostgreSQL server: a row with content of 256 MiB, the most that a view shows.
pub const DATABASE_MESSAGE: u64 = 257 * MIB;

/// Bytes of a PostgreSQL server before the rows of a query: its greeting, the columns of a statement, and their types.
pub const DATABASE_DESCRIPTION: u64 = 16 * MIB;

/// Answers of a PostgreSQL server about the types of one statement. A type that is made of others needs an answer for each
/// level, and the client's stack has a frame for it.
pub const DATABASE_TYPES: u64 = 128;

/// Bytes of the settings that a PostgreSQL server states in one connection: the client keeps all of them.
pub const DATABASE_SETTINGS: u64 = MIB;

/// Keys in a listing of a bucket.
pub const LISTED_KEYS: usize = 5_000_000;

/// Pages in a listing of a bucket.
pub const LISTING_PAGES: usize = 50_000;

/// Consecutive pages without a key in a bucket's listing: a server may leave out keys that it has deleted.
pub const EMPTY_PAGES: usize = 100;

/// Floors of a log, one for each garbage collection that removed history.
pub const FLOORS: usize = 20_000;
