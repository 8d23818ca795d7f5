//! The daemon's counters: per FUSE opcode a count, errors, times and a histogram.
//!
//! A time starts when a request is parsed and ends when its reply is ready. It excludes waiting in the
//! kernel's queue. It also excludes writing the reply: that call wakes the requester, which may run and
//! send its next request before the call returns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

macro_rules! opcodes {
    ($($variant:ident => $name:literal),* $(,)?) => {
        /// A FUSE request type, by its name in the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the protocol's own names")]
        pub enum Opcode { $($variant),* }

        impl Opcode {
            /// Every opcode that the front end answers.
            pub const ALL: &[Opcode] = &[$(Opcode::$variant),*];

            /// The protocol's name in lower case, without `FUSE_`.
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$variant => $name),* }
            }
        }
    };
}

opcodes! {
    Lookup => "lookup", Forget => "forget", Getattr => "getattr", Setattr => "setattr",
    Readlink => "readlink", Mknod => "mknod", Mkdir => "mkdir", Unlink => "unlink",
    Rmdir => "rmdir", Symlink => "symlink", Rename => "rename", Link => "link",
    Open => "open", Read => "read", Write => "write", Flush => "flush", Release => "release",
    Fsync => "fsync", Opendir => "opendir", Readdir => "readdir", Readdirplus => "readdirplus",
    Releasedir => "releasedir", Fsyncdir => "fsyncdir", Statfs => "statfs",
    Setxattr => "setxattr", Getxattr => "getxattr", Listxattr => "listxattr",
    Removexattr => "removexattr", Access => "access", Create => "create", Ioctl => "ioctl",
    Fallocate => "fallocate", Lseek => "lseek",
}

/// Counts of one opcode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeCount {
    /// Requests answered.
    pub count: u64,
    /// Requests answered with an error number, among them failed lookups.
    pub errors: u64,
    /// Sum of nanoseconds from parsed request to ready reply.
    pub handling_ns: u64,
    /// The part of `handling_ns` inside the store.
    pub store_ns: u64,
    /// Median of the handling time in nanoseconds.
    pub handling_p50_ns: u64,
    /// Longest handling time in nanoseconds.
    pub handling_max_ns: u64,
}

/// A daemon's counters since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Counts by opcode name, without opcodes that were never requested.
    pub fuse: BTreeMap<String, OpcodeCount>,
    /// The store's own counts, by name.
    pub store: BTreeMap<String, u64>,
    /// Inodes that the kernel references.
    pub inodes: u64,
    /// Log lines dropped because the log was not written in time.
    pub log_lines_dropped: u64,
}

impl Counters {
    /// The number of all requests without `forget`, which has no reply.
    pub fn requests(&self) -> u64 {
        let forget = Opcode::Forget.name();
        self.fuse.iter().filter(|(name, _)| *name != forget).map(|(_, opcode)| opcode.count).sum()
    }

    /// Requests of one opcode.
    pub fn count(&self, opcode: Opcode) -> u64 {
        self.fuse.get(opcode.name()).map_or(0, |c| c.count)
    }
}

/// The live counters of a mount.
pub(crate) struct Recorder {
    slots: Vec<Mutex<Slot>>,
}

struct Slot {
    count: OpcodeCount,
    handling: Histogram<u64>,
}

impl Slot {
    fn new() -> Self {
        // 2 significant digits: a median within 1 %.
        let handling = Histogram::new(2).unwrap_or_else(|_| unreachable!("2 digits are valid"));
        Self { count: OpcodeCount::default(), handling }
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let slots = Opcode::ALL.iter().map(|_| Mutex::new(Slot::new()));
        Self { slots: slots.collect() }
    }

    fn slot(&self, opcode: Opcode) -> MutexGuard<'_, Slot> {
        // A counter stays valid if a thread panics while it holds the lock.
        self.slots[opcode as usize].lock()
    }

    /// Starts timing a request.
    pub(crate) fn start(&self, opcode: Opcode) -> Span<'_> {
        Span {
            recorder: self,
            opcode,
            started: Instant::now(),
            is_recorded: false,
            in_store: Duration::ZERO,
            failed: false,
        }
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<String, OpcodeCount> {
        let mut counts = BTreeMap::new();
        for &opcode in Opcode::ALL {
            let slot = self.slot(opcode);
            if slot.count.count > 0 {
                let count = OpcodeCount {
                    handling_p50_ns: slot.handling.value_at_quantile(0.5),
                    handling_max_ns: slot.handling.max(),
                    ..slot.count.clone()
                };
                counts.insert(opcode.name().to_owned(), count);
            }
        }
        counts
    }
}

/// The time of one request, recorded when handled or, on every other path, when dropped.
pub(crate) struct Span<'a> {
    recorder: &'a Recorder,
    opcode: Opcode,
    started: Instant,
    is_recorded: bool,
    in_store: Duration,
    failed: bool,
}

impl Span<'_> {
    /// Runs a call of the store and adds its time to `store_ns`.
    pub(crate) fn store<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        self.in_store += started.elapsed();
        result
    }

    /// Ends the handling time and counts the request. Call it before sending the reply: the requester may
    /// read the counters before this thread runs again.
    pub(crate) fn handled(&mut self) {
        self.record();
    }

    /// As [`Span::handled`], with an error number.
    pub(crate) fn failed(&mut self) {
        self.failed = true;
        self.record();
    }

    /// Another span counts this request.
    pub(crate) fn hand_over(mut self) {
        self.is_recorded = true;
    }

    fn record(&mut self) {
        if std::mem::replace(&mut self.is_recorded, true) {
            return;
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let handling = nanos(self.started.elapsed());
        let mut slot = self.recorder.slot(self.opcode);
        slot.count.count += 1;
        slot.count.errors += u64::from(self.failed);
        slot.count.handling_ns += handling;
        slot.count.store_ns += nanos(self.in_store);
        slot.handling.saturating_record(handling);
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            // A panicking handler answers with an error.
            self.failed |= std::thread::panicking();
            self.record();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_times_and_errors_by_opcode() {
        let recorder = Recorder::new();
        recorder.start(Opcode::Lookup).failed();
        let mut span = recorder.start(Opcode::Lookup);
        span.store(|| std::thread::sleep(Duration::from_millis(2)));
        span.handled();
        let told = recorder.snapshot();
        assert_eq!(told["lookup"].count, 2, "counted before the reply goes");
        std::thread::sleep(Duration::from_millis(20));
        drop(span);
        drop(recorder.start(Opcode::Forget));

        let counters = Counters { fuse: recorder.snapshot(), ..Counters::default() };
        let lookup = &counters.fuse["lookup"];
        assert_eq!((lookup.count, lookup.errors), (2, 1));
        assert!(lookup.store_ns >= 2_000_000 && lookup.handling_ns >= lookup.store_ns);
        let after = lookup.handling_ns - lookup.store_ns;
        assert!(after < 20_000_000, "what follows the reply is not counted");
        assert_eq!(counters.requests(), 2, "forget is not waited for");
        assert_eq!(counters.count(Opcode::Read), 0);
    }
}
