//! Failures in a row of the engine's work, and the pauses after them.
//!
//! Uploads and polls have a state each, and only a success of the same work ends it: a poll proves neither that the local
//! disk has room, nor that the bucket takes what is written.

use std::io::ErrorKind;
use std::mem::{Discriminant, discriminant};
use std::path::Path;
use std::time::{Duration, Instant};

use s3::objects::Fault;
use s3::session::{BrokenLog, SessionError};

/// The longest pause after failures in a row.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the engine does for a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Commits of the local changes.
    Upload,
    /// Adopting the commits of others.
    Poll,
}

impl Work {
    /// What cannot be done.
    fn words(self) -> &'static str {
        match self {
            Self::Upload => "cannot upload changes",
            Self::Poll => "cannot adopt the commits of others",
        }
    }
}

/// Failures of one kind differ in the request or in the file that they name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Bucket(Discriminant<Fault>),
    Log(Discriminant<BrokenLog>),
    Cache(ErrorKind),
    Outrun,
}

impl FailureKind {
    fn of(error: &SessionError) -> Self {
        match error {
            SessionError::Fault(fault) => Self::Bucket(discriminant(fault)),
            SessionError::Broken(broken) => Self::Log(discriminant(broken)),
            SessionError::Replica(error) => Self::Cache(error.kind),
            SessionError::Outrun(_) => Self::Outrun,
        }
    }
}

/// The failures in a row of one kind of work.
#[derive(Debug)]
pub(super) struct Retry {
    work: Work,
    failures: u32,
    last: Option<FailureKind>,
    not_before: Instant,
}

impl Retry {
    pub(super) fn new(work: Work, now: Instant) -> Self {
        Self { work, failures: 0, last: None, not_before: now }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// When the work may be tried again without being asked for.
    pub(super) fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Notes a failure, and puts off the next attempt. Answers the line for the log, if the failure is of another kind than
    /// the one before. `cache` is the database of the working copy.
    pub(super) fn failed(&mut self, error: &SessionError, cache: &Path, now: Instant) -> Option<String> {
        self.failures += 1;
        let pause = Duration::from_millis(100) * 2_u32.saturating_pow(self.failures.min(10));
        self.not_before = now + pause.min(PAUSE_MAX);
        let kind = Some(FailureKind::of(error));
        if std::mem::replace(&mut self.last, kind) == kind {
            return None;
        }
        let work = self.work.words();
        Some(match error {
            SessionError::Fault(fault) => format!("{work}: the bucket: {fault}; retrying"),
            SessionError::Replica(error) => format!("{work}: the cache {}: {error}; retrying", cache.display()),
            SessionError::Broken(broken) => {
                let fix = broken.fix();
                format!("{work}: {broken}. Uploads are suspended, and local changes are kept. Fix: {fix}")
            }
            SessionError::Outrun(_) => format!("{work}: {error}; retrying"),
        })
    }

    /// Notes a success of the work. Answers the line for the log, if it ends failures.
    pub(super) fn succeeded(&mut self, now: Instant) -> Option<String> {
        self.not_before = now;
        self.last = None;
        let failures = std::mem::take(&mut self.failures);
        let times = if failures == 1 { "failure" } else { "failures" };
        (failures > 0).then(|| match self.work {
            Work::Upload => format!("changes are uploaded again, after {failures} {times}"),
            Work::Poll => format!("the commits of others are adopted again, after {failures} {times}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use s3::replica::ReplicaError;

    use super::*;

    const CACHE: &str = "/home/alice/memory.db";

    fn unknown(reason: &str) -> SessionError {
        Fault::Unknown(reason.to_owned()).into()
    }

    fn full() -> SessionError {
        ReplicaError { kind: ErrorKind::StorageFull, reason: "no space left".to_owned() }.into()
    }

    #[test]
    fn a_log_has_each_kind_of_failure_once_in_a_row() {
        let now = Instant::now();
        let mut uploads = Retry::new(Work::Upload, now);
        let mut says = |error: SessionError| uploads.failed(&error, Path::new(CACHE), now).is_some();
        assert!(says(unknown("PUT a")));
        assert!(!says(unknown("PUT b")));
        assert!(says(SessionError::Broken(BrokenLog::Gone(7))));
        assert!(says(Fault::Refused("PUT c".to_owned()).into()));
        assert!(says(full()));
        assert!(!says(full()));
        let damaged = "the content of a is damaged".to_owned();
        assert!(says(ReplicaError { kind: ErrorKind::InvalidData, reason: damaged }.into()));
    }

    #[test]
    fn a_log_names_the_database_that_cannot_be_written() {
        let now = Instant::now();
        let mut uploads = Retry::new(Work::Upload, now);
        let line = uploads.failed(&full(), Path::new(CACHE), now).unwrap();
        assert_eq!(line, "cannot upload changes: the cache /home/alice/memory.db: no space left; retrying");
        let line = uploads.succeeded(now).unwrap();
        assert_eq!(line, "changes are uploaded again, after 1 failure");
        assert_eq!(uploads.succeeded(now), None);
    }

    #[test]
    fn each_failure_in_a_row_makes_the_pause_longer() {
        let mut now = Instant::now();
        let mut uploads = Retry::new(Work::Upload, now);
        let mut attempts = 0;
        let end = now + Duration::from_secs(60);
        while now < end {
            uploads.failed(&full(), Path::new(CACHE), now);
            attempts += 1;
            assert!(uploads.not_before() > now);
            now = uploads.not_before();
        }
        assert!((12..=18).contains(&attempts), "{attempts} attempts in a minute");
        uploads.succeeded(now);
        assert_eq!(uploads.not_before(), now);
    }
}
