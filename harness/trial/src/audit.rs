//! The audit of records: the fate of each record, from its history and the state that was found. Pure
//! functions.
//!
//! Changes of a record are sequential and atomic. The found state must be the state after one of them,
//! and after no earlier one than the last that is acknowledged in the promised class.

use std::collections::BTreeMap;

use arms::promise::Acknowledgement;
use rundir::faults::{Audit, AuditVerdict};

use super::history::{History, RecordChange, RecordStep};
use super::record::{DAMAGED_LINES, LOG_LINES, STRANGERS, State};

/// How many examples of each wrong fate the audit names.
const EXAMPLES: usize = 3;

/// The fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The record has the state of its last acknowledged change, or of a later one.
    Present,
    /// The record is absent, and no change of it was acknowledged.
    AbsentNeverAcknowledged,
    /// The record is absent or old, but the lost change's acknowledgement is weaker than the promise.
    Unpromised,
    /// An acknowledged record is absent.
    Lost,
    /// The bytes match no version of the record.
    Torn,
    /// Part of a change is present that the promise does not cover and that need not be atomic.
    Half,
    /// The record has the state before an acknowledged change.
    Stale,
    /// The record was never written, or its removal was acknowledged.
    Phantom,
    /// The record cannot be read.
    Unreadable,
}

/// Whether each change is atomic, so that part of it must never be seen. That holds for our stores, which
/// promise to keep changes from `write` or `close` on. POSIX does not require it.
fn changes_are_whole(promised: Option<Acknowledgement>) -> bool {
    promised.is_some_and(|promised| promised < Acknowledgement::Fsync)
}

/// The fate of one record. The backend promises to keep changes that `promised` acknowledges.
pub fn fate(steps: &[RecordStep], found: &State, promised: Option<Acknowledgement>) -> Fate {
    let is_promised = |step: &RecordStep| promised.is_some_and(|promised| step.acknowledged >= Some(promised));
    // No state before this change is allowed. `None` means that the record may be absent.
    let floor = steps.iter().rposition(is_promised);
    let acknowledged = steps.iter().rposition(|step| step.acknowledged.is_some());
    let is_allowed = |at: usize| floor.is_none_or(|floor| at >= floor);
    let is_latest = |at: usize| acknowledged.is_none_or(|last| at >= last);
    match found {
        State::Unreadable(_) => Fate::Unreadable,
        State::Damaged(_) => {
            let since = floor.map_or(0, |floor| floor + 1);
            let may_be_half = steps[since..].iter().any(|step| step.change.writes());
            if may_be_half && !changes_are_whole(promised) { Fate::Half } else { Fate::Torn }
        }
        State::Whole(version) => {
            let written = steps.iter().position(|step| step.version == *version && step.change.writes());
            match written {
                None => Fate::Phantom,
                Some(at) if is_allowed(at) && is_latest(at) => Fate::Present,
                Some(at) if is_allowed(at) => Fate::Unpromised,
                Some(at) => {
                    let between = &steps[at..=floor.unwrap_or(at)];
                    let removed = between.iter().any(|step| step.change == RecordChange::Remove);
                    if removed { Fate::Phantom } else { Fate::Stale }
                }
            }
        }
        State::Absent => {
            let removed = steps.iter().rposition(|step| step.change == RecordChange::Remove);
            match (removed, acknowledged) {
                (Some(at), _) if is_allowed(at) && is_latest(at) => Fate::Present,
                (None, None) => Fate::AbsentNeverAcknowledged,
                (Some(at), _) if is_allowed(at) => Fate::Unpromised,
                (_, _) if floor.is_none() => Fate::Unpromised,
                _ => Fate::Lost,
            }
        }
        State::Empty => {
            // An empty file was created where no file was, and not yet written.
            let is_being_made = |at: &usize| {
                let was_there = at.checked_sub(1).is_some_and(|before| steps[before].change.writes());
                steps[*at].change.writes() && !was_there
            };
            let made = (floor.map_or(0, |floor| floor + 1)..steps.len()).rfind(is_being_made);
            match made {
                Some(at) if steps[at..].iter().all(|step| step.acknowledged.is_none()) => Fate::AbsentNeverAcknowledged,
                Some(_) => Fate::Unpromised,
                None if floor.is_none() => Fate::Unpromised,
                None => Fate::Lost,
            }
        }
    }
}

/// Audits all records.
pub fn check(history: &History, found: &BTreeMap<u64, State>, promised: Option<Acknowledgement>) -> Audit {
    let mut audit = Audit {
        promised: promised.map(|class| class.name().to_owned()),
        acknowledged: history.acknowledged_since(0),
        ..Audit::default()
    };
    let known = history.records().keys();
    let numbers: std::collections::BTreeSet<&u64> = known.chain(found.keys()).collect();
    // If the log cannot be read, the state of all its lines is unknown.
    let unread_log = found.get(&LOG_LINES).filter(|state| matches!(state, State::Unreadable(_)));
    // A damaged piece of the log may be part of an unpromised line. At most as many pieces are excused.
    let mut half_lines = if changes_are_whole(promised) { 0 } else { unpromised_lines(history, found, promised) };
    for number in numbers {
        let steps = history.records().get(number).map_or(&[][..], Vec::as_slice);
        let is_line = (LOG_LINES..STRANGERS).contains(number);
        let state = unread_log.filter(|_| is_line).or(found.get(number));
        let state = state.unwrap_or(&State::Absent);
        let fate = match fate(steps, state, promised) {
            Fate::Torn if (DAMAGED_LINES..STRANGERS).contains(number) && half_lines > 0 => {
                half_lines -= 1;
                Fate::Half
            }
            fate => fate,
        };
        let count = match fate {
            Fate::Present => &mut audit.present,
            Fate::AbsentNeverAcknowledged => &mut audit.absent,
            Fate::Unpromised => &mut audit.unpromised,
            Fate::Lost => &mut audit.lost,
            Fate::Torn => &mut audit.torn,
            Fate::Half => &mut audit.half,
            Fate::Stale => &mut audit.stale,
            Fate::Phantom => &mut audit.phantom,
            Fate::Unreadable => &mut audit.unreadable,
        };
        *count += 1;
        let is_wrong = !matches!(fate, Fate::Present | Fate::AbsentNeverAcknowledged | Fate::Unpromised | Fate::Half);
        if is_wrong && *count <= EXAMPLES as u64 {
            audit.examples.push(example(*number, steps, state, fate, promised));
        }
    }
    let wrong = audit.lost + audit.torn + audit.stale + audit.phantom;
    audit.verdict = match (wrong, audit.unreadable) {
        (1.., _) => AuditVerdict::Invalid,
        (0, 1..) => AuditVerdict::Unknown,
        (0, 0) => AuditVerdict::Valid,
    };
    audit
}

/// Says of each example of an audit where it was found.
pub fn locate(audit: &mut Audit, place: &str) {
    for example in &mut audit.examples {
        *example = format!("{place}: {example}");
    }
}

/// How many log lines have begun, lack the promised acknowledgement and are absent.
fn unpromised_lines(history: &History, found: &BTreeMap<u64, State>, promised: Option<Acknowledgement>) -> usize {
    let lines = history.records().range(LOG_LINES..STRANGERS);
    let missing = lines.filter(|(number, _)| !found.contains_key(number));
    missing
        .flat_map(|(_, steps)| steps)
        .filter(|step| promised.is_none_or(|promised| step.acknowledged < Some(promised)))
        .count()
}

/// A record that breaks the promise, and the call that acknowledged the first change that is missing.
fn example(number: u64, steps: &[RecordStep], state: &State, fate: Fate, promised: Option<Acknowledgement>) -> String {
    let what = match number.checked_sub(LOG_LINES) {
        Some(_) if number >= STRANGERS => "a file among the records".to_owned(),
        Some(_) if number >= DAMAGED_LINES => "a piece of the log".to_owned(),
        Some(change) => format!("line {change} of the log"),
        None => format!("record {number}"),
    };
    let fate = match fate {
        Fate::Lost => "lost",
        Fate::Torn => "torn",
        Fate::Stale => "stale",
        Fate::Phantom => "phantom",
        _ => "unreadable",
    };
    let found = match state {
        State::Absent => "nothing".to_owned(),
        State::Empty => "an empty file".to_owned(),
        State::Whole(version) => format!("version {version}"),
        State::Damaged(what) | State::Unreadable(what) => what.clone(),
    };
    let is_promised = |step: &RecordStep| promised.is_some_and(|promised| step.acknowledged >= Some(promised));
    let found_at = match state {
        State::Whole(version) => steps.iter().position(|step| step.version == *version),
        State::Absent => steps.iter().rposition(|step| !step.change.writes()),
        _ => steps.iter().rposition(is_promised).and_then(|last| last.checked_sub(1)),
    };
    let missing = steps[found_at.map_or(0, |at| at + 1)..].iter().find(|step| is_promised(step));
    let missing = missing.or(steps.iter().rfind(|step| step.acknowledged.is_some()));
    let missing = missing.map_or("nothing was acknowledged".to_owned(), |step| {
        let class = step.acknowledged.map_or("", Acknowledgement::name);
        let change = match step.change {
            RecordChange::Put => "version",
            RecordChange::Replace => "its replacement by version",
            RecordChange::Remove => "its removal by change",
        };
        // An older file, or none, has the name. Its content was synced before its rename.
        let is_of_name = match state {
            State::Whole(_) => step.change != RecordChange::Put,
            state => *state == State::Absent,
        };
        let of = if is_of_name && step.acknowledged == Some(Acknowledgement::Fsync) { " of the directory" } else { "" };
        format!("{change} {} was acknowledged by {class}{of}", step.version)
    });
    format!("{what} is {fate}: found {found}; {missing}")
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
