//! What was done to the records, and how far it was acknowledged: the acknowledgement log outside the mount.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use backends::promise::Acknowledgement;

use super::record::State;

/// A change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was written, or overwritten as a whole.
    Put,
    /// It was removed.
    Remove,
}

/// A change, in its place among those of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the change among all; that of a [`Change::Put`] is the version it writes.
    pub version: u64,
    /// What it did.
    pub change: Change,
    /// The strongest call that returned for it; `None` while it is under way, or if it failed.
    pub acknowledged: Option<Acknowledgement>,
}

/// All changes of all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    records: BTreeMap<u64, Vec<Step>>,
}

impl History {
    /// The changes of each record, in order.
    pub fn records(&self) -> &BTreeMap<u64, Vec<Step>> {
        &self.records
    }

    /// How many changes are acknowledged, from change `first` on, by the strongest call that returned.
    pub fn acknowledged_since(&self, first: u64) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let steps = self.records.values().flatten();
        for step in steps.filter(|step| step.version >= first) {
            if let Some(class) = step.acknowledged {
                *counts.entry(class.name().to_owned()).or_default() += 1;
            }
        }
        counts
    }

    /// A change begins.
    pub fn begin(&mut self, number: u64, version: u64, change: Change) {
        self.records.entry(number).or_default().push(Step {
            version,
            change,
            acknowledged: None,
        });
    }

    /// A call has returned that acknowledges a change.
    pub fn acknowledge(&mut self, number: u64, version: u64, class: Acknowledgement) {
        let steps = self.records.get_mut(&number).into_iter().flatten();
        for step in steps.filter(|step| step.version == version) {
            step.acknowledged = step.acknowledged.max(Some(class));
        }
    }

    /// A call has returned that acknowledges everything that was acknowledged at all.
    pub fn acknowledge_all(&mut self, class: Acknowledgement) {
        let steps = self.records.values_mut().flatten();
        for step in steps.filter(|step| step.acknowledged.is_some()) {
            step.acknowledged = step.acknowledged.max(Some(class));
        }
    }

    /// Adds what an acknowledgement log says; what stands after `until` bytes of it was begun, but is not acknowledged. A last
    /// line without its end is ignored: its writer was killed.
    ///
    /// # Errors
    /// If a line is none.
    pub fn read(&mut self, log: &str, until: usize) -> Result<(), String> {
        let mut end = 0;
        for line in log
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            end += line.len();
            self.line(line.trim_end(), end <= until)
                .ok_or_else(|| format!("not a line of an acknowledgement log: {line:?}"))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str, counts: bool) -> Option<()> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let number = words.next()?.parse().ok()?;
        let version = words.next()?.parse().ok()?;
        match what {
            "put" => self.begin(number, version, Change::Put),
            "remove" => self.begin(number, version, Change::Remove),
            class => {
                let class = Acknowledgement::of_name(class)?;
                if counts {
                    self.acknowledge(number, version, class);
                }
            }
        }
        Some(())
    }

    /// After a recovery, what is there is there: changes that were under way have either happened, or will never.
    /// What has been seen since counts as acknowledged by `class`.
    pub fn settle(&mut self, found: &BTreeMap<u64, State>, class: Acknowledgement) {
        for (number, steps) in &mut self.records {
            let state = found.get(number).unwrap_or(&State::Absent);
            let at = match state {
                State::Whole(version) => steps.iter().rposition(|step| step.version == *version),
                State::Absent => steps.iter().rposition(|step| step.change == Change::Remove),
                _ => continue,
            };
            let kept = at.map_or(0, |at| at + 1);
            let last_acknowledged = steps.iter().rposition(|step| step.acknowledged.is_some());
            // What was lost stays lost: it is counted at every look.
            if last_acknowledged.is_some_and(|last| last >= kept) {
                continue;
            }
            steps.truncate(kept);
            if let Some(step) = steps.last_mut() {
                step.acknowledged = step.acknowledged.max(Some(class));
            }
        }
        self.records.retain(|_, steps| !steps.is_empty());
    }

    /// Takes what is found for what there is, after it was counted as wrong: what comes to light later is not the same once more.
    pub fn adopt(&mut self, found: &BTreeMap<u64, State>, class: Acknowledgement) {
        self.records.retain(|number, _| found.contains_key(number));
        for (number, state) in found {
            match state {
                State::Whole(version) => {
                    let step = Step {
                        version: *version,
                        change: Change::Put,
                        acknowledged: Some(class),
                    };
                    self.records.insert(*number, vec![step]);
                }
                State::Absent | State::Empty => {
                    self.records.remove(number);
                }
                // Nobody knows what it is: it counts at every look.
                State::Damaged(_) | State::Unreadable(_) => {}
            }
        }
    }

    /// Forgets all records of these numbers: we removed them, and that was acknowledged.
    pub fn forget(&mut self, numbers: Range<u64>) {
        self.records.retain(|number, _| !numbers.contains(number));
    }

    /// Whether the records together were ever as they are found: after some of the changes, in their order, and none of
    /// those after them. A file without a byte was made, and not yet written: it counts as not there.
    pub fn had_state(&self, found: &BTreeMap<u64, State>) -> bool {
        let mut changes: Vec<(u64, u64, Change)> = Vec::new();
        for (number, steps) in &self.records {
            changes.extend(
                steps
                    .iter()
                    .map(|step| (step.version, *number, step.change)),
            );
        }
        // A record comes before its line in the log, whose number is the higher.
        changes.sort_by_key(|(version, number, _)| (*version, *number));
        let mut found = found.clone();
        found.retain(|_, state| *state != State::Empty);
        let mut state = BTreeMap::new();
        let mut was_so = state == found;
        for (version, number, change) in changes {
            match change {
                Change::Put => state.insert(number, State::Whole(version)),
                Change::Remove => state.remove(&number),
            };
            was_so |= state == found;
        }
        was_so
    }

    /// Whether a change from `first` on was begun, and not acknowledged.
    pub fn has_unacknowledged_since(&self, first: u64) -> bool {
        let mut steps = self.records.values().flatten();
        steps.any(|step| step.version >= first && step.acknowledged.is_none())
    }

    /// Forgets what came before the last change that `class` acknowledges: for a long run.
    pub fn shorten(&mut self, class: Acknowledgement) {
        for steps in self.records.values_mut() {
            let last = steps
                .iter()
                .rposition(|step| step.acknowledged >= Some(class));
            if let Some(last) = last {
                steps.drain(..last);
            }
        }
    }
}

/// The line that says that a change begins.
pub fn begin_line(number: u64, version: u64, change: Change) -> String {
    let word = match change {
        Change::Put => "put",
        Change::Remove => "remove",
    };
    format!("{word} {number} {version}\n")
}

/// The lines that say that changes are acknowledged.
pub fn acknowledge_lines(changes: &[(u64, u64)], class: Acknowledgement) -> String {
    let mut lines = String::new();
    for (number, version) in changes {
        let _ = writeln!(lines, "{class} {number} {version}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use Acknowledgement::{Fsync, Write};

    fn of(log: &str) -> History {
        let mut history = History::default();
        history.read(log, log.len()).unwrap();
        history
    }

    #[test]
    fn a_log_is_read_line_by_line_and_half_a_line_is_none() {
        let mut log = begin_line(3, 1, Change::Put);
        log += &acknowledge_lines(&[(3, 1)], Write);
        log += &begin_line(3, 2, Change::Remove);
        let history = of(&format!("{log}fsync 3 "));
        let steps = &history.records()[&3];
        assert_eq!(steps[0].acknowledged, Some(Write));
        assert_eq!(
            (steps[1].change, steps[1].acknowledged),
            (Change::Remove, None)
        );
        let wrong = History::default().read("hope 3 1\n", 9).unwrap_err();
        assert!(wrong.contains("hope"), "{wrong}");
    }

    #[test]
    fn what_is_told_after_the_power_went_is_no_acknowledgement() {
        let log = "put 1 1\nfsync 1 1\nput 1 2\nfsync 1 2\n";
        let mut history = History::default();
        history.read(log, log.len() - 1).unwrap();
        let steps = &history.records()[&1];
        assert_eq!(
            (steps[0].acknowledged, steps[1].acknowledged),
            (Some(Fsync), None)
        );
    }

    #[test]
    fn what_was_counted_as_wrong_is_not_counted_again() {
        use super::super::check::check;
        let mut history = of("put 1 1\nwrite 1 1\nput 2 2\nwrite 2 2\nput 2 3\nwrite 2 3\n");
        let strange = super::super::record::STRANGERS + 9;
        // One lost, one stale, one that nobody made.
        let found = BTreeMap::from([(2, State::Whole(2)), (strange, State::Whole(0))]);
        let wrong = |history: &History, found: &BTreeMap<u64, State>| {
            let audit = check(history, found, Some(Write));
            audit.lost + audit.stale + audit.phantom
        };
        assert_eq!(wrong(&history, &found), 3);
        history.adopt(&found, Write);
        assert_eq!(wrong(&history, &found), 0);
        // What is lost from then on is found out.
        assert_eq!(wrong(&history, &BTreeMap::new()), 2);
    }

    #[test]
    fn a_mixture_is_told_from_a_state_that_there_was() {
        let history = of("put 1 1\nput 2 2\nput 1 3\nremove 2 4\n");
        let whole = |states: &[(u64, u64)]| -> BTreeMap<u64, State> {
            let states = states.iter();
            states
                .map(|(number, version)| (*number, State::Whole(*version)))
                .collect()
        };
        for there_was in [
            &[][..],
            &[(1, 1)],
            &[(1, 1), (2, 2)],
            &[(1, 3), (2, 2)],
            &[(1, 3)],
        ] {
            assert!(history.had_state(&whole(there_was)), "{there_was:?}");
        }
        assert!(
            !history.had_state(&whole(&[(2, 2)])),
            "the second without the first"
        );
        assert!(!history.had_state(&whole(&[(1, 4)])));
        let mut made = whole(&[(1, 1)]);
        made.insert(2, State::Empty);
        assert!(history.had_state(&made));
    }

    #[test]
    fn only_what_was_begun_since_counts_as_unacknowledged() {
        let mut history = of("put 1 1\nput 2 2\nwrite 2 2\n");
        assert!(history.has_unacknowledged_since(1));
        assert!(!history.has_unacknowledged_since(2));
        history.forget(2..9);
        assert_eq!(history.records().len(), 1);
    }

    #[test]
    fn a_recovery_settles_what_was_under_way() {
        let log = "put 1 1\nwrite 1 1\nput 1 2\nput 2 3\nput 3 4\nwrite 3 4\n";
        let mut history = of(log);
        let found = BTreeMap::from([(1, State::Whole(2))]);
        history.settle(&found, Write);
        let records = history.records();
        assert_eq!(records[&1].last().unwrap().acknowledged, Some(Write));
        assert!(
            !records.contains_key(&2),
            "it never happened, and never will"
        );
        assert_eq!(records[&3].len(), 1, "what was lost is not forgotten");
        history.acknowledge(1, 2, Fsync);
        history.shorten(Fsync);
        assert_eq!(history.records()[&1].len(), 1);
    }
}
