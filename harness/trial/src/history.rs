//! The history of the records: every change and its acknowledgement, as the acknowledgement log outside the
//! mount lists them.
//! The audit of records against the history lives in `audit`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use arms::promise::Acknowledgement;

use super::record::State;

/// A change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// The record was written or overwritten as a whole.
    Put,
    /// A new file was renamed over the record.
    Replace,
    /// The record was removed.
    Remove,
}

impl RecordChange {
    /// Whether the record exists after it.
    pub fn writes(self) -> bool {
        self != Self::Remove
    }

    fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Replace => "replace",
            Self::Remove => "remove",
        }
    }
}

/// One change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStep {
    /// The change's number among all changes. A change that writes the record writes it as the version.
    pub version: u64,
    /// The kind of change.
    pub change: RecordChange,
    /// The strongest acknowledgement so far. `None` while the change is in flight, or if it failed.
    pub acknowledged: Option<Acknowledgement>,
}

/// All changes of all records, per record in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    records: BTreeMap<u64, Vec<RecordStep>>,
}

impl History {
    /// The changes of each record, in order.
    pub fn records(&self) -> &BTreeMap<u64, Vec<RecordStep>> {
        &self.records
    }

    /// How many changes, from change `first` on, are acknowledged, by their strongest acknowledgement.
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

    /// Adds a change that begins.
    pub fn begin(&mut self, number: u64, version: u64, change: RecordChange) {
        self.records.entry(number).or_default().push(RecordStep { version, change, acknowledged: None });
    }

    /// Records that a call returned that acknowledges a change.
    pub fn acknowledge(&mut self, number: u64, version: u64, class: Acknowledgement) {
        let steps = self.records.get_mut(&number).into_iter().flatten();
        for step in steps.filter(|step| step.version == version) {
            step.acknowledged = step.acknowledged.max(Some(class));
        }
    }

    /// Records that a call returned that acknowledges all changes that had any acknowledgement.
    pub fn acknowledge_all(&mut self, class: Acknowledgement) {
        let steps = self.records.values_mut().flatten();
        for step in steps.filter(|step| step.acknowledged.is_some()) {
            step.acknowledged = step.acknowledged.max(Some(class));
        }
    }

    /// Adds the changes of an acknowledgement log. Acknowledgements after its first `until` bytes do not
    /// count; changes there still do. A last line without its line feed is ignored, because its writer was
    /// killed.
    pub fn read(&mut self, log: &str, until: usize) -> Result<(), String> {
        let mut end = 0;
        for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
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
        let changes = [RecordChange::Put, RecordChange::Replace, RecordChange::Remove];
        match changes.into_iter().find(|change| change.word() == what) {
            Some(change) => self.begin(number, version, change),
            None => {
                let class = Acknowledgement::of_name(what)?;
                if counts {
                    self.acknowledge(number, version, class);
                }
            }
        }
        Some(())
    }

    /// Adopts the recovered state: a change in flight has happened, or never will. What was found counts as
    /// acknowledged by `class`.
    pub fn settle(&mut self, found: &BTreeMap<u64, State>, class: Acknowledgement) {
        for (number, steps) in &mut self.records {
            let state = found.get(number).unwrap_or(&State::Absent);
            let at = match state {
                State::Whole(version) => steps.iter().rposition(|step| step.version == *version),
                State::Absent => steps.iter().rposition(|step| step.change == RecordChange::Remove),
                _ => continue,
            };
            let kept = at.map_or(0, |at| at + 1);
            let last_acknowledged = steps.iter().rposition(|step| step.acknowledged.is_some());
            // A lost change stays in the history, so that every audit counts it.
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

    /// Adopts the found state after an audit has counted its errors, so that later audits do not count them
    /// again.
    pub fn adopt(&mut self, found: &BTreeMap<u64, State>, class: Acknowledgement) {
        self.records.retain(|number, _| found.contains_key(number));
        for (number, state) in found {
            match state {
                State::Whole(version) => {
                    let step = RecordStep { version: *version, change: RecordChange::Put, acknowledged: Some(class) };
                    self.records.insert(*number, vec![step]);
                }
                State::Absent | State::Empty => {
                    self.records.remove(number);
                }
                // Its version is unknown, so every audit counts it.
                State::Damaged(_) | State::Unreadable(_) => {}
            }
        }
    }

    /// Forgets the records with these numbers, because the harness has removed them.
    pub fn forget(&mut self, numbers: Range<u64>) {
        self.records.retain(|number, _| !numbers.contains(number));
    }

    /// Whether the records together were ever in the found state: the state after some prefix of all
    /// changes.
    pub fn had_state(&self, found: &BTreeMap<u64, State>) -> bool {
        let records = self.records.iter();
        let changes = records.flat_map(|(number, steps)| {
            let steps = steps.iter();
            steps.map(|step| (*number, step.version, step.change))
        });
        let mut changes: Vec<_> = changes.collect();
        // A record is written before its log line, which has the higher number.
        changes.sort_by_key(|(number, version, _)| (*version, *number));
        was_state(BTreeMap::new(), &changes, 0, found)
    }

    /// Whether a change from `first` on has begun and is not acknowledged.
    pub fn has_unacknowledged_since(&self, first: u64) -> bool {
        let mut steps = self.records.values().flatten();
        steps.any(|step| step.version >= first && step.acknowledged.is_none())
    }

    /// Forgets changes before the last one that `class` acknowledges, to bound the memory of a long run.
    pub fn shorten(&mut self, class: Acknowledgement) {
        for steps in self.records.values_mut() {
            let last = steps.iter().rposition(|step| step.acknowledged >= Some(class));
            if let Some(last) = last {
                steps.drain(..last);
            }
        }
    }
}

/// Whether the found state is the state after some prefix of `changes`, from `base` on, that includes at
/// least the first `acknowledged`. Changes are record, version and kind. An empty file counts as absent, because
/// it was created and not yet written.
pub fn was_state(
    base: BTreeMap<u64, State>,
    changes: &[(u64, u64, RecordChange)],
    acknowledged: usize,
    found: &BTreeMap<u64, State>,
) -> bool {
    let is_there = |_: &u64, state: &mut State| *state != State::Empty;
    let (mut state, mut found) = (base, found.clone());
    state.retain(is_there);
    found.retain(is_there);
    let mut was_so = acknowledged == 0 && state == found;
    for ((number, version, change), made) in changes.iter().zip(1..) {
        if change.writes() {
            state.insert(*number, State::Whole(*version))
        } else {
            state.remove(number)
        };
        was_so |= made >= acknowledged && state == found;
    }
    was_so
}

/// The log line for a change that begins.
pub fn begin_line(number: u64, version: u64, change: RecordChange) -> String {
    format!("{} {number} {version}\n", change.word())
}

/// The log lines for acknowledged changes.
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
    fn the_parser_ignores_a_truncated_last_line() {
        let mut log = begin_line(3, 1, RecordChange::Put);
        log += &acknowledge_lines(&[(3, 1)], Write);
        log += &begin_line(3, 2, RecordChange::Remove);
        let history = of(&format!("{log}fsync 3 "));
        let steps = &history.records()[&3];
        assert_eq!(steps[0].acknowledged, Some(Write));
        assert_eq!((steps[1].change, steps[1].acknowledged), (RecordChange::Remove, None));
        let wrong = History::default().read("hope 3 1\n", 9).unwrap_err();
        assert!(wrong.contains("hope"), "{wrong}");
    }

    #[test]
    fn a_log_line_after_the_power_cut_is_not_an_acknowledgement() {
        let log = "put 1 1\nfsync 1 1\nput 1 2\nfsync 1 2\n";
        let mut history = History::default();
        history.read(log, log.len() - 1).unwrap();
        let steps = &history.records()[&1];
        assert_eq!((steps[0].acknowledged, steps[1].acknowledged), (Some(Fsync), None));
    }

    #[test]
    fn an_adopted_error_is_not_counted_again() {
        use super::super::audit::check;
        let mut history = of("put 1 1\nwrite 1 1\nput 2 2\nwrite 2 2\nput 2 3\nwrite 2 3\n");
        let strange = super::super::record::STRANGERS + 9;
        // One lost, one stale, one unknown file.
        let found = BTreeMap::from([(2, State::Whole(2)), (strange, State::Whole(0))]);
        let wrong = |history: &History, found: &BTreeMap<u64, State>| {
            let audit = check(history, found, Some(Write));
            audit.lost + audit.stale + audit.phantom
        };
        assert_eq!(wrong(&history, &found), 3);
        history.adopt(&found, Write);
        assert_eq!(wrong(&history, &found), 0);
        // Later losses are still found.
        assert_eq!(wrong(&history, &BTreeMap::new()), 2);
    }

    #[test]
    fn a_history_tells_a_mixture_from_a_past_state() {
        let history = of("put 1 1\nput 2 2\nput 1 3\nremove 2 4\n");
        let whole = |states: &[(u64, u64)]| -> BTreeMap<u64, State> {
            let states = states.iter();
            states.map(|(number, version)| (*number, State::Whole(*version))).collect()
        };
        for there_was in [&[][..], &[(1, 1)], &[(1, 1), (2, 2)], &[(1, 3), (2, 2)], &[(1, 3)]] {
            assert!(history.had_state(&whole(there_was)), "{there_was:?}");
        }
        assert!(!history.had_state(&whole(&[(2, 2)])), "the second without the first");
        assert!(!history.had_state(&whole(&[(1, 4)])));
        let mut made = whole(&[(1, 1)]);
        made.insert(2, State::Empty);
        assert!(history.had_state(&made));
        let changes = [(1, 1, RecordChange::Put), (2, 2, RecordChange::Put), (1, 3, RecordChange::Remove)];
        let is_state =
            |acknowledged, found: &[(u64, u64)]| was_state(whole(&[(9, 9)]), &changes, acknowledged, &whole(found));
        assert!(is_state(0, &[(9, 9)]) && is_state(3, &[(2, 2), (9, 9)]));
        assert!(!is_state(1, &[(9, 9)]), "the first was acknowledged");
        assert!(!is_state(0, &[]), "the base was there before");
    }

    #[test]
    fn a_history_counts_only_new_changes_as_unacknowledged() {
        let mut history = of("put 1 1\nput 2 2\nwrite 2 2\n");
        assert!(history.has_unacknowledged_since(1));
        assert!(!history.has_unacknowledged_since(2));
        history.forget(2..9);
        assert_eq!(history.records().len(), 1);
    }

    #[test]
    fn a_recovery_settles_changes_in_flight() {
        let log = "put 1 1\nwrite 1 1\nput 1 2\nput 2 3\nput 3 4\nwrite 3 4\n";
        let mut history = of(log);
        let found = BTreeMap::from([(1, State::Whole(2))]);
        history.settle(&found, Write);
        let records = history.records();
        assert_eq!(records[&1].last().unwrap().acknowledged, Some(Write));
        assert!(!records.contains_key(&2), "it never happened, and never will");
        assert_eq!(records[&3].len(), 1, "what was lost is not forgotten");
        history.acknowledge(1, 2, Fsync);
        history.shorten(Fsync);
        assert_eq!(history.records()[&1].len(), 1);
    }
}
