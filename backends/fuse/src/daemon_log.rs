//! A daemon's log behind a bounded queue, so that a mount never waits for it. The log is standard error or a file.
//!
//! One thread writes the queue's lines. Lines that do not fit are dropped, and one line reports their
//! number later. tracing-appender is unsuitable: its guard reports a timeout by `println!`, which can
//! block or panic, and its queue has no limit in bytes.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Maximum number of queued lines.
const MAX_LINES: usize = 1000;

/// Maximum bytes of queued lines.
const MAX_BYTES: usize = 256 << 10;

/// How long an exiting daemon waits until its queue is written.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);

/// The queue, once [`start`] has created it. A process has one log and one panic hook, so it has one queue.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Creates the queue, through which all later lines and panic messages go to `file`, or to standard error.
///
/// # Errors
/// If standard error cannot be duplicated, or no thread can be started.
pub fn start(file: Option<File>) -> io::Result<()> {
    let sink = match file {
        Some(file) => file,
        // A duplicate: the lock of `io::stderr` would make other threads wait for the writing one.
        None => File::from(io::stderr().as_fd().try_clone_to_owned()?),
    };
    if QUEUE.set(Queue::start(sink)?).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            let trace = Backtrace::capture();
            if trace.status() == BacktraceStatus::Captured {
                say(format_args!("thread '{name}' {panic}\n{trace}"));
            } else {
                say(format_args!("thread '{name}' {panic}"));
            }
        }));
    }
    Ok(())
}

/// Writes one line, through the queue if there is one. A line that cannot be written is lost.
pub fn say(line: impl Display) {
    // There is no other place to report a failed write to the log.
    let line = format!("{line}\n");
    let _ = LogSink.write_all(inputs::border::terminal(&line).as_bytes());
}

/// Waits at most half a second until the queue is written. Call it at the end of a process.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish(EXIT_PATIENCE);
    }
}

/// Number of lines dropped since [`start`].
pub fn lines_dropped() -> u64 {
    QUEUE.get().map_or(0, Queue::dropped)
}

/// The log, through the queue if there is one. Each write is one line.
#[derive(Clone, Copy, Debug)]
pub struct LogSink;

impl Write for LogSink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(queue) = QUEUE.get() else {
            return io::stderr().write(line);
        };
        queue.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Entry {
    Line(Vec<u8>),
    /// The number of lines dropped at this position.
    Gap(u64),
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// Total length of the lines in `entries`.
    bytes: usize,
    dropped: u64,
    /// The part of `dropped` that a gap already reports.
    reported: u64,
    is_writing: bool,
}

impl State {
    fn report_dropped(&mut self) {
        if self.dropped > self.reported {
            let gap = Entry::Gap(self.dropped - self.reported);
            self.entries.push_back(gap);
            self.reported = self.dropped;
        }
    }

    fn is_done(&self) -> bool {
        self.entries.is_empty() && !self.is_writing
    }
}

#[derive(Default)]
struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

/// Queued lines for a sink that may block.
struct Queue(Arc<SharedState>);

impl Queue {
    fn start(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(SharedState::default());
        let queue = Self(Arc::clone(&shared));
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.drain(sink))?;
        Ok(queue)
    }

    /// Never blocks on the sink.
    fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if state.entries.len() >= MAX_LINES || state.bytes + line.len() > MAX_BYTES {
            state.dropped += 1;
            return;
        }
        state.report_dropped();
        state.bytes += line.len();
        state.entries.push_back(Entry::Line(line.to_vec()));
        self.0.changed.notify_all();
    }

    fn dropped(&self) -> u64 {
        self.0.state.lock().dropped
    }

    fn finish(&self, patience: Duration) {
        let mut state = self.0.state.lock();
        self.0.changed.wait_while_for(&mut state, |state| !state.is_done(), patience);
    }
}

impl SharedState {
    /// Writes entries until the process ends.
    fn drain(&self, mut sink: impl Write) {
        let mut state = self.state.lock();
        loop {
            let Some(entry) = state.entries.pop_front() else {
                self.changed.notify_all();
                self.changed.wait_while(&mut state, |state| state.entries.is_empty());
                continue;
            };
            if let Entry::Line(line) = &entry {
                state.bytes -= line.len();
            }
            state.is_writing = true;
            drop(state);
            let written = match &entry {
                Entry::Line(line) => sink.write_all(line),
                Entry::Gap(lines) => sink.write_all(gap(*lines).as_bytes()),
            };
            state = self.state.lock();
            state.is_writing = false;
            match (written, entry) {
                // With an empty queue, no later line may come to report the drop.
                (Ok(()), _) if state.entries.is_empty() => state.report_dropped(),
                (Err(_), Entry::Line(_)) => state.dropped += 1,
                // The next gap reports the lines of the lost one.
                (Err(_), Entry::Gap(lines)) => state.reported -= lines,
                (Ok(()), _) => {}
            }
        }
    }
}

fn gap(lines: u64) -> String {
    format!("log: {lines} lines dropped because the log was not written in time\n")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

    use super::*;

    /// Blocks in each write until the test sends its result.
    struct Sink {
        results: Receiver<io::Result<()>>,
        written: Sender<String>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a sender it blocks for ever, as a pipe that is never read.
            let result = self.results.recv();
            result.unwrap_or_else(|_| {
                loop {
                    std::thread::park();
                }
            })?;
            let text = String::from_utf8_lossy(bytes).into_owned();
            let _ = self.written.send(text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Queue, Sender<io::Result<()>>, Receiver<String>) {
        let (tell, results) = channel();
        let (written, lines) = channel();
        let queue = Queue::start(Sink { results, written }).unwrap();
        (queue, tell, lines)
    }

    /// The same, whose thread has taken the line `first`: it takes no other one before the sink accepts that.
    fn blocked_queue() -> (Queue, Sender<io::Result<()>>, Receiver<String>) {
        let (queue, tell, lines) = queue();
        queue.push(b"first\n");
        while !queue.0.state.lock().entries.is_empty() {
            std::thread::yield_now();
        }
        (queue, tell, lines)
    }

    #[test]
    fn a_sink_that_never_accepts_blocks_no_caller_and_drops_are_counted() {
        let (queue, _tell, _lines) = queue();
        let started = Instant::now();
        for _ in 0..5000 {
            queue.push(b"a line\n");
        }
        // The thread may hold one more line.
        let kept = 5000 - queue.dropped();
        assert!((1000..=1001).contains(&kept), "{kept}");
        queue.finish(Duration::from_millis(50));
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn the_queue_is_limited_in_bytes() {
        let (queue, _tell, _lines) = queue();
        for _ in 0..100 {
            queue.push(&[b'x'; 10 << 10]);
        }
        let kept = 100 - queue.dropped();
        assert!((25..=26).contains(&kept), "{kept}");
    }

    #[test]
    fn a_gap_is_reported_in_its_place_when_there_is_room_again() {
        let (queue, tell, lines) = blocked_queue();
        for _ in 0..1500 {
            queue.push(b"filler\n");
        }
        let dropped = queue.dropped();
        tell.send(Ok(())).unwrap();
        assert_eq!(lines.recv().unwrap(), "first\n");
        // The thread takes the next line asynchronously.
        while queue.0.state.lock().entries.len() >= MAX_LINES {
            std::thread::yield_now();
        }
        queue.push(b"last\n");
        accept(&tell, 3000);
        queue.finish(Duration::from_secs(60));
        let text: String = lines.try_iter().collect();
        let end = format!("filler\n{}last\n", gap(dropped));
        assert!(text.ends_with(&end), "{text}");
    }

    #[test]
    fn a_gap_is_reported_although_nothing_follows_it() {
        let (queue, tell, lines) = blocked_queue();
        for _ in 0..1500 {
            queue.push(b"filler\n");
        }
        let dropped = queue.dropped();
        accept(&tell, 3000);
        queue.finish(Duration::from_secs(60));
        let text: String = lines.try_iter().collect();
        assert!(text.ends_with(&gap(dropped)), "{text}");
    }

    #[test]
    fn a_closed_sink_loses_lines_and_nothing_else() {
        let (queue, tell, lines) = queue();
        // All lines come before the first failure: a gap between them would be written, too.
        for _ in 0..3 {
            queue.push(b"lost\n");
        }
        for _ in 0..3 {
            tell.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        }
        queue.finish(Duration::from_secs(60));
        assert_eq!(queue.dropped(), 3);
        accept(&tell, 20);
        queue.push(b"kept\n");
        queue.finish(Duration::from_secs(60));
        let text: String = lines.try_iter().collect();
        assert_eq!(text, format!("{}kept\n", gap(3)));
    }

    /// Makes the sink accept this number of writes.
    fn accept(tell: &Sender<io::Result<()>>, writes: usize) {
        for _ in 0..writes {
            tell.send(Ok(())).unwrap();
        }
    }
}
