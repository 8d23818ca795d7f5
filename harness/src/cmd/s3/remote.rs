//! Shared parts of the commands for a memory in a bucket: connection, progress, points in time, and output.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use s3::check::check_access;
use s3::client::{Bucket, Client, MirrorClient, Sweeper};
use s3::config::S3Config;
use s3::history::{HistoryError, HistoryPoint};
use s3::session::SessionError;

/// When progress is first shown, and how often after that.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// An agent's memory in a bucket.
pub struct Remote {
    pub config: S3Config,
    bucket: Bucket,
    pub client: Client,
}

impl Remote {
    /// Connects with the first request.
    pub fn new(config: S3Config) -> anyhow::Result<Self> {
        let bucket = Bucket::new(&config)?;
        Ok(Self { client: Client::new(&bucket, &config), bucket, config })
    }

    pub fn mirror(&self) -> MirrorClient {
        MirrorClient::new(&self.bucket, &self.config)
    }

    pub fn sweeper(&self) -> Sweeper {
        Sweeper::new(&self.bucket, &self.config)
    }

    /// Runs `work` to its end, with progress on a terminal. If a request failed because the server, the access key or the
    /// bucket cannot be used, the error says so.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, HistoryError>>) -> anyhow::Result<T> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        let done = runtime.block_on(async {
            tokio::select! {
                biased;
                done = work => match done {
                    Err(error @ HistoryError::Session(SessionError::Fault(_))) => {
                        check_access(&self.config).await?;
                        Err(error.into())
                    }
                    Err(HistoryError::NoMemory) => Err(self.no_memory()),
                    done => Ok(done?),
                },
                never = self.show_progress() => never,
            }
        });
        // A name that is still being resolved is not waited for.
        runtime.shutdown_background();
        done
    }

    /// The error for an agent without a memory in the bucket.
    pub fn no_memory(&self) -> anyhow::Error {
        let S3Config { endpoint, bucket, agent, .. } = &self.config;
        anyhow!("{endpoint} bucket {bucket} has no memory of agent {agent} (check --bucket, --prefix and --agent-id)")
    }

    async fn show_progress<T>(&self) -> T {
        let mut error_output = std::io::stderr();
        let is_terminal = error_output.is_terminal();
        tokio::time::sleep(PROGRESS_AFTER).await;
        let _line = Line(is_terminal);
        loop {
            if is_terminal {
                let requests = self.bucket.requests();
                let count = |name: &str| requests.get(name).copied().unwrap_or(0);
                let kinds = ["s3_get", "s3_put", "s3_list", "s3_delete"];
                let sent: u64 = kinds.into_iter().map(count).sum();
                let mib = (count("s3_bytes_sent") + count("s3_bytes_received")) >> 20;
                // Progress may be lost: the terminal may be gone.
                let _ = write!(error_output, "\r\x1b[K{sent} requests, {mib} MiB");
            }
            tokio::time::sleep(PROGRESS_EVERY).await;
        }
    }
}

/// The line of progress, which is erased in the end.
struct Line(bool);

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Parses a commit number or a time such as `2026-07-01T12:00:00Z`.
pub fn moment(text: &str) -> Result<HistoryPoint, String> {
    if let Ok(number) = text.parse() {
        return Ok(HistoryPoint::Commit(number));
    }
    let time = text.parse::<Timestamp>().ok();
    let time = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    time.map(HistoryPoint::Time)
        .ok_or_else(|| "give a commit number, or a time such as 2026-07-01T12:00:00Z".to_owned())
}

/// A time in nanoseconds since 1970, as RFC 3339 in UTC to the second.
pub fn time(nanoseconds: i64) -> String {
    let time = Timestamp::from_nanosecond(nanoseconds.into());
    time.map_or_else(|_| "?".to_owned(), |time| format!("{time:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_commit_or_a_time() {
        assert_eq!(moment("17"), Ok(HistoryPoint::Commit(17)));
        assert_eq!(moment("1970-01-01T00:00:02Z"), Ok(HistoryPoint::Time(2_000_000_000)));
        for wrong in ["", "-1", "yesterday", "2026-07-01"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(time(2_900_000_000), "1970-01-01T00:00:02Z");
    }
}
