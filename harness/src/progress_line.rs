//! One line of progress on standard error that redraws, with the time left.
//! If standard error is not a terminal, such as a log file, a run prints a plain line at most every 30 s, and other commands
//! print nothing.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use inputs::border;

/// The least time between two plain lines, and before the first.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// The parts of a full bar.
const PARTS: u64 = 1000;

/// How often a line redraws by itself.
const REDRAW: Duration = Duration::from_millis(200);

/// A line of progress.
pub struct ProgressLine {
    /// Hidden if standard error is not a terminal.
    bar: ProgressBar,
    started: Instant,
    /// Of the plain lines; `None` if there are none.
    throttle: Option<Throttle>,
}

/// Admits one plain line in a while.
#[derive(Default)]
struct Throttle {
    last: Cell<Duration>,
}

impl Throttle {
    /// Whether a line is due at this time since the start.
    fn is_due(&self, now: Duration) -> bool {
        let is_due = now.saturating_sub(self.last.get()) >= LINE_EVERY;
        if is_due {
            self.last.set(now);
        }
        is_due
    }
}

impl ProgressLine {
    /// A line that is redrawn only when it is shown again: a thread that redraws would disturb a measurement.
    pub fn still() -> Self {
        Self::of_style("{bar:24} {wide_msg}", Some(Throttle::default()))
    }

    /// A line that redraws by itself, for a command that measures nothing.
    pub fn moving(what: &str) -> Self {
        let line = Self::of_style("{spinner} {elapsed:>3} {wide_msg}", None);
        line.show(0.0, None, what);
        if !line.bar.is_hidden() {
            line.bar.enable_steady_tick(REDRAW);
        }
        line
    }

    fn of_style(template: &str, throttle: Option<Throttle>) -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(PARTS) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, started: Instant::now(), throttle }
    }

    /// The time since the line was made.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows what is under way, which share of the work is done, from 0 to 1, and the time left if it is known.
    pub fn show(&self, share: f64, left: Option<Duration>, what: &str) {
        let line = words(what, left);
        if !self.bar.is_hidden() {
            self.bar.set_message(border::terminal_cell(&line));
            let share = share.clamp(0.0, 1.0);
            self.bar.set_position((share * PARTS as f64) as u64);
            // Of two changes in a moment, only the first would be drawn.
            self.bar.force_draw();
        } else if let Some(throttle) = &self.throttle
            && throttle.is_due(self.elapsed())
        {
            eprintln!("{line}");
        }
    }

    /// Shows that `done` of `all` steps have ended and what is under way. The time left follows from the steps so far.
    pub fn step(&self, done: usize, all: usize, what: &str) {
        let left = left_of_steps(self.elapsed(), done, all);
        let share = done as f64 / all.max(1) as f64;
        self.show(share, left, &format!("{what} ({done} of {all} done)"));
    }

    /// Prints a message of its own above the line.
    pub fn say(&self, message: &str) {
        if self.bar.is_hidden() { eprintln!("{message}") } else { self.bar.println(border::terminal(message)) }
    }
}

/// Removes the line.
impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The time that the other steps take if they take as long as those that have ended; `None` before the first has.
fn left_of_steps(elapsed: Duration, done: usize, all: usize) -> Option<Duration> {
    let others = all.saturating_sub(done);
    (done > 0).then(|| elapsed.mul_f64(others as f64 / done as f64))
}

fn words(what: &str, left: Option<Duration>) -> String {
    let Some(left) = left else {
        return what.to_owned();
    };
    let seconds = left.as_secs();
    let left = match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    };
    format!("{left} left: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_is_due_at_most_every_30_seconds() {
        let throttle = Throttle::default();
        let due = (0..100).filter(|second| throttle.is_due(Duration::from_secs(*second)));
        assert_eq!(due.collect::<Vec<_>>(), [30, 60, 90]);
    }

    #[test]
    fn a_line_states_the_time_left() {
        let after = |seconds| words("epoch 2", Some(Duration::from_secs(seconds)));
        assert_eq!(after(0), "0 s left: epoch 2");
        assert_eq!(after(59), "59 s left: epoch 2");
        assert_eq!(after(61), "2 min left: epoch 2");
        assert_eq!(words("epoch 2", None), "epoch 2");
    }

    #[test]
    fn the_time_left_follows_from_the_steps_so_far() {
        let left = |done, all| left_of_steps(Duration::from_secs(10), done, all);
        assert_eq!(left(0, 4), None);
        assert_eq!(left(1, 4), Some(Duration::from_secs(30)));
        assert_eq!(left(4, 4), Some(Duration::ZERO));
        assert_eq!(left(5, 4), Some(Duration::ZERO));
    }
}
