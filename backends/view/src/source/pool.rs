//! The connections to one source: a slow query blocks only its own caller while other connections are free.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuse::store::{Errno, Result, StoreError};
use parking_lot::{Condvar, Mutex};

use super::Source;

type OpenResult = std::result::Result<Box<dyn Source>, String>;

/// A state of the source as one connection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Version {
    connection: usize,
    count: u64,
}

/// Connections that are not in use.
struct IdleConnections {
    connections: Vec<(usize, Box<dyn Source>)>,
    /// The number of open connections, including those in use.
    opened: usize,
}

/// Connections to one source.
pub(in super::super) struct Pool {
    open: Box<dyn Fn() -> OpenResult + Send + Sync>,
    most: usize,
    timeout: Duration,
    idle: Mutex<IdleConnections>,
    returned: Condvar,
    /// The number of calls that have a [`Turn`].
    changing: Mutex<usize>,
    changed: Condvar,
    queries: AtomicU64,
}

/// The right to change rows. Its limit keeps connections free for reads while another program locks the database.
pub(in super::super) struct Turn<'a>(&'a Pool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.changing.lock() -= 1;
        self.0.changed.notify_one();
    }
}

impl Pool {
    /// A pool with one connection that opens more with `open`, up to `most`.
    ///
    /// # Errors
    /// Why the first cannot be opened.
    pub(super) fn new(
        most: usize,
        timeout: Duration,
        open: impl Fn() -> OpenResult + Send + Sync + 'static,
    ) -> std::result::Result<Self, String> {
        let first = open()?;
        Ok(Self {
            open: Box::new(open),
            most,
            timeout,
            idle: Mutex::new(IdleConnections { connections: vec![(0, first)], opened: 1 }),
            returned: Condvar::new(),
            changing: Mutex::default(),
            changed: Condvar::new(),
            queries: AtomicU64::new(0),
        })
    }

    /// A pool of one connection.
    ///
    /// # Errors
    /// None: as [`Pool::new`].
    pub(super) fn of(timeout: Duration, source: Box<dyn Source>) -> std::result::Result<Self, String> {
        let source = Mutex::new(Some(source));
        Self::new(1, timeout, move || source.lock().take().ok_or_else(|| "there is one connection".to_owned()))
    }

    /// A connection that sees all commits until now. The caller must not take a second one while it holds this one.
    ///
    /// # Errors
    /// `EIO` if the source is away or too slow, or if no connection becomes free within the timeout.
    pub(in super::super) fn take(&self) -> Result<PooledConnection<'_>> {
        // One deadline for both: a caller that waited for a connection does not wait as long again for the source.
        let deadline = Instant::now() + self.timeout;
        let mut lent = self.take_any(deadline)?;
        lent.begin(deadline)?;
        Ok(lent)
    }

    /// As [`Pool::take`], to change rows.
    ///
    /// # Errors
    /// `EBUSY` if other calls that change rows wait for the whole timeout.
    pub(in super::super) fn take_to_change(&self) -> Result<(Turn<'_>, PooledConnection<'_>)> {
        let deadline = Instant::now() + self.timeout;
        let most = self.most.div_ceil(2);
        let mut changing = self.changing.lock();
        while *changing >= most {
            if self.changed.wait_until(&mut changing, deadline).timed_out() {
                let limit = self.timeout.as_millis();
                let reason = format!("{most} other changes took longer than {limit} ms (`timeout_ms`)");
                return Err(StoreError::storage(Errno::BUSY, reason));
            }
        }
        *changing += 1;
        drop(changing);
        let turn = Turn(self);
        let mut lent = self.take_any(deadline)?;
        lent.begin(deadline)?;
        Ok((turn, lent))
    }

    fn take_any(&self, deadline: Instant) -> Result<PooledConnection<'_>> {
        let mut idle = self.idle.lock();
        loop {
            // The connection that was used last has its statements and pages cached.
            if let Some((number, source)) = idle.connections.pop() {
                return Ok(PooledConnection { pool: self, number, source: Some(source) });
            }
            if idle.opened < self.most {
                let number = idle.opened;
                idle.opened += 1;
                drop(idle);
                let opened = (self.open)();
                if opened.is_err() {
                    self.idle.lock().opened -= 1;
                }
                let away = |reason| StoreError::storage(Errno::IO, reason);
                return Ok(PooledConnection { pool: self, number, source: Some(opened.map_err(away)?) });
            }
            let waited = self.returned.wait_until(&mut idle, deadline);
            if waited.timed_out() && idle.connections.is_empty() {
                let (busy, limit) = (idle.opened, self.timeout.as_millis());
                let reason = format!("other calls kept all {busy} connections busy for {limit} ms (`timeout_ms`)");
                return Err(StoreError::storage(Errno::IO, reason));
            }
        }
    }

    /// How often the source was asked.
    pub(in super::super) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }
}

/// A connection in use.
pub(in super::super) struct PooledConnection<'a> {
    pool: &'a Pool,
    number: usize,
    source: Option<Box<dyn Source>>,
}

impl PooledConnection<'_> {
    /// The version of the source's content; `None` if the source cannot tell.
    ///
    /// # Errors
    /// `EIO` if the source is away or too slow.
    pub(in super::super) fn state(&mut self) -> Result<Option<Version>> {
        let connection = self.number;
        let count = self.version()?;
        Ok(count.map(|count| Version { connection, count }))
    }

    /// Counts a query.
    pub(in super::super) fn count(&self) {
        self.pool.queries.fetch_add(1, Ordering::Relaxed);
    }
}

impl Deref for PooledConnection<'_> {
    type Target = dyn Source;

    #[expect(clippy::expect_used, reason = "only `drop` takes it")]
    fn deref(&self) -> &Self::Target {
        &**self.source.as_ref().expect("it is in use")
    }
}

impl DerefMut for PooledConnection<'_> {
    #[expect(clippy::expect_used, reason = "only `drop` takes it")]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.source.as_mut().expect("it is in use")
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            self.pool.idle.lock().connections.push((self.number, source));
            self.pool.returned.notify_one();
        }
    }
}
