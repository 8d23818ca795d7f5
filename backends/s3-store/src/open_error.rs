//! Why a memory cannot be mounted.

use s3::bucket::S3OpenError;
use s3::objects::Fault;
use s3::session::BrokenLog;

/// Why a memory cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The cache cannot be opened.
    // No source: its advice names options that this mount does not have.
    #[error("{}", cache_error(.0))]
    Store(sqlite::SqliteOpenError),
    /// The file is something else, or the cache of another memory.
    #[error("{0}")]
    Cache(String),
    /// The bucket cannot be used.
    #[error(transparent)]
    Bucket(#[from] S3OpenError),
    /// A request for the log failed, though the bucket answers.
    #[error("the log cannot be read: {fault}\n  fix: try again; `ctxbench s3 check` lists damage to the log")]
    Fault {
        /// The error of the request.
        fault: Fault,
    },
    /// The log is not the one that the cache knows.
    #[error(
        "{broken}\n  fix: {}", .broken.fix()
    )]
    Broken {
        /// The reason.
        broken: BrokenLog,
    },
}

impl From<sqlite::SqliteOpenError> for OpenError {
    fn from(error: sqlite::SqliteOpenError) -> Self {
        Self::Store(error)
    }
}

/// What is wrong with a cache, and what to do: its own advice is about databases that users name.
fn cache_error(error: &sqlite::SqliteOpenError) -> String {
    use sqlite::SqliteOpenError as Error;
    let text = error.to_string();
    let fix = match error {
        Error::Full { .. } => return text,
        Error::Owned(..) => {
            "use that mount, which serves every process of this host; or unmount it; or choose another file with --cache"
        }
        Error::DanglingLink { .. } | Error::Unknown { .. } | Error::Foreign { .. } => {
            "choose another file with --cache"
        }
        _ => {
            "`ctxbench doctor --store` lists the damage; mount with --rebuild-cache to create a new cache, which recovers uncommitted changes from this one"
        }
    };
    let what = text.split_once("\n  fix: ").map_or(&*text, |(what, _)| what);
    format!("{what}\n  fix: {fix}")
}
