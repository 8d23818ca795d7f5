//! How many of a mount's reader threads wait for requests.
//!
//! A second reader costs each request time while clients call one after another: a reply wakes the client, whose next
//! request wakes the other reader. Therefore the other readers pause then, and read again when an answer takes long.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Requests follow each other closely if each is read within this time after the last answer.
const CLOSE: Duration = Duration::from_millis(1);
/// This many requests that follow each other closely, and none beside another, make one reader enough.
const ENOUGH: u32 = 8;
/// How often a paused reader looks for an answer that takes this long, while requests come.
const TICK: Duration = Duration::from_millis(1);
/// Without a request for this long, every reader waits in the kernel again: it needs no processor time there, and learns
/// of the unmount.
const IDLE: Duration = Duration::from_millis(20);
/// After an answer that took long, no reader pauses for this long.
const BLOCKED: Duration = Duration::from_secs(1);

/// The readers of one mount.
pub(super) struct Readers {
    count: usize,
    turns: Mutex<Turns>,
    /// Nothing notifies it: a paused reader wakes by time, so that no request pays for waking it.
    tick: Condvar,
}

/// What readers answer, and when they last did.
#[derive(Debug)]
struct Turns {
    /// Readers that wait in the kernel or answer.
    active: usize,
    /// Requests being answered.
    answering: usize,
    began: Instant,
    ended: Instant,
    /// Requests in a row that followed each other closely, up to [`ENOUGH`].
    in_a_row: u32,
    blocked_until: Instant,
}

impl Turns {
    fn new(count: usize, now: Instant) -> Self {
        Self {
            active: count,
            answering: 0,
            began: now,
            ended: now,
            in_a_row: 0,
            blocked_until: now,
        }
    }

    /// A reader has read a request.
    fn begin(&mut self, now: Instant) {
        let is_close = now.saturating_duration_since(self.ended) <= CLOSE;
        self.in_a_row = match self.answering == 0 && is_close {
            true => (self.in_a_row + 1).min(ENOUGH),
            false => 0,
        };
        self.answering += 1;
        self.began = now;
    }

    /// The reader has answered it. True if this reader is to pause.
    fn end(&mut self, now: Instant) -> bool {
        self.answering -= 1;
        self.ended = now;
        let is_enough = self.answering == 0 && self.in_a_row == ENOUGH;
        let pauses = self.active > 1 && is_enough && now >= self.blocked_until;
        self.active -= usize::from(pauses);
        pauses
    }

    /// Whether a request is being answered for so long that others may wait for it.
    fn is_blocked(&self, now: Instant) -> bool {
        self.answering >= self.active && now.saturating_duration_since(self.began) >= TICK
    }

    /// A paused reader reads again.
    fn resume(&mut self) {
        self.active += 1;
        self.in_a_row = 0;
    }
}

impl Readers {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count,
            turns: Mutex::new(Turns::new(count, Instant::now())),
            tick: Condvar::new(),
        }
    }

    /// Answers a request on a reader. Returns when the reader is to read the next one.
    pub(super) fn turn(&self, answer: impl FnOnce()) {
        if self.count < 2 {
            return answer();
        }
        self.turns.lock().begin(Instant::now());
        answer();
        let mut turns = self.turns.lock();
        if turns.end(Instant::now()) {
            self.pause(turns);
        }
    }

    fn pause(&self, mut turns: MutexGuard<'_, Turns>) {
        loop {
            self.tick.wait_for(&mut turns, TICK);
            let now = Instant::now();
            if turns.is_blocked(now) {
                turns.blocked_until = now + BLOCKED;
                return turns.resume();
            }
            if now.saturating_duration_since(turns.ended) >= IDLE {
                return turns.resume();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// Requests that each come `gap` after the answer before, and take 2 µs. Returns which of them end in a pause.
    fn requests(turns: &mut Turns, now: &mut Instant, gap: Duration, count: u32) -> Vec<u32> {
        let mut pauses = |_: &u32| {
            *now += gap;
            turns.begin(*now);
            *now += 2 * MICRO;
            turns.end(*now)
        };
        (1..=count).filter(|number| pauses(number)).collect()
    }

    #[test]
    fn all_readers_but_one_pause_while_requests_follow_each_other() {
        let mut now = Instant::now();
        let mut turns = Turns::new(3, now);
        let pauses = requests(&mut turns, &mut now, 10 * MICRO, 50);
        assert_eq!(pauses, [ENOUGH, ENOUGH + 1]);
        assert_eq!(turns.active, 1);
    }

    #[test]
    fn no_reader_pauses_when_requests_are_rare() {
        let mut now = Instant::now();
        let mut turns = Turns::new(2, now);
        assert!(requests(&mut turns, &mut now, CLOSE + MICRO, 50).is_empty());
    }

    #[test]
    fn no_reader_pauses_while_requests_are_answered_beside_each_other() {
        let mut now = Instant::now();
        let mut turns = Turns::new(2, now);
        for _ in 0..50 {
            turns.begin(now);
            now += MICRO;
            turns.begin(now);
            now += MICRO;
            assert!(!turns.end(now) && !turns.end(now));
        }
    }

    #[test]
    fn an_answer_that_takes_long_ends_a_pause_and_delays_the_next() {
        let readers = Readers::new(2);
        let mut turns = readers.turns.lock();
        turns.active = 1;
        turns.begin(Instant::now());
        let before = Instant::now();
        readers.pause(turns);
        let took = before.elapsed();
        assert!(took >= TICK && took < IDLE, "{took:?}");
        let mut turns = readers.turns.lock();
        assert_eq!(turns.active, 2);
        let mut now = turns.blocked_until - BLOCKED;
        turns.end(now);
        assert!(requests(&mut turns, &mut now, MICRO, 50).is_empty());
        now = turns.blocked_until;
        assert!(!requests(&mut turns, &mut now, MICRO, 50).is_empty());
    }

    #[test]
    fn a_pause_ends_when_no_request_comes() {
        let readers = Readers::new(2);
        let mut turns = readers.turns.lock();
        turns.active = 1;
        let before = Instant::now();
        readers.pause(turns);
        assert!(before.elapsed() >= IDLE - TICK);
        assert_eq!(readers.turns.lock().active, 2);
    }

    #[test]
    fn a_paused_reader_answers_while_another_answer_takes_long() {
        let readers = Readers::new(2);
        // Each of the two last answers ends only beside the other one.
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..100).for_each(|_| readers.turn(|| {}));
                    readers.turn(|| {
                        both.wait();
                    });
                });
            }
        });
    }
}
