//! The checker: what became of each record, by what was done to it and what was found. Pure.
//!
//! A record's changes come one after the other, each of them whole: so what is found must be the state after one of
//! them, and no earlier one than the last that was acknowledged in the class that is promised.

use std::collections::BTreeMap;

use backends::promise::Acknowledgement;
use rundir::faults::{Audit, Verdict};

use super::history::{Change, History, Step};
use super::record::{DAMAGED_LINES, LOG_LINES, STRANGERS, State};

/// How many of each kind of those that are not as they should be are named.
const EXAMPLES: usize = 3;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as the last acknowledged change left it, or a later one.
    Present,
    /// It is not there, and nothing ever said that it would be.
    AbsentNeverAcknowledged,
    /// It is gone or old; what says otherwise is less than the backend promises to keep.
    Unpromised,
    /// It was acknowledged, and is gone.
    Lost,
    /// Its bytes are no state that it ever had.
    Torn,
    /// Half of a change is there that was not acknowledged by what is promised, and that nobody promised to be whole.
    Half,
    /// It is as it was before an acknowledged change.
    Stale,
    /// Nobody wrote it, or its removal was acknowledged.
    Phantom,
    /// It cannot be read.
    Unreadable,
}

/// Whether a change is one transaction of its backend's, so that half of it must never be seen. Of ours, which promise to keep
/// what `write` or `close` acknowledges, it is; the operating system's interface asks that of nobody.
fn changes_are_whole(promised: Option<Acknowledgement>) -> bool {
    promised.is_some_and(|promised| promised < Acknowledgement::Fsync)
}

/// What became of one record, whose backend promises to keep what `promised` acknowledges.
pub fn fate(steps: &[Step], found: &State, promised: Option<Acknowledgement>) -> Fate {
    let is_promised =
        |step: &Step| promised.is_some_and(|promised| step.acknowledged >= Some(promised));
    // No state from before this change may be found; none at all means that it may never have been there.
    let floor = steps.iter().rposition(is_promised);
    let acknowledged = steps.iter().rposition(|step| step.acknowledged.is_some());
    let is_allowed = |at: usize| floor.is_none_or(|floor| at >= floor);
    let is_latest = |at: usize| acknowledged.is_none_or(|last| at >= last);
    match found {
        State::Unreadable(_) => Fate::Unreadable,
        State::Damaged(_) => {
            let since = floor.map_or(0, |floor| floor + 1);
            let may_be_half = steps[since..].iter().any(|step| step.change == Change::Put);
            match may_be_half && !changes_are_whole(promised) {
                true => Fate::Half,
                false => Fate::Torn,
            }
        }
        State::Whole(version) => {
            let written = steps
                .iter()
                .position(|step| step.version == *version && step.change == Change::Put);
            match written {
                None => Fate::Phantom,
                Some(at) if is_allowed(at) && is_latest(at) => Fate::Present,
                Some(at) if is_allowed(at) => Fate::Unpromised,
                Some(at) => {
                    let between = &steps[at..=floor.unwrap_or(at)];
                    let removed = between.iter().any(|step| step.change == Change::Remove);
                    if removed { Fate::Phantom } else { Fate::Stale }
                }
            }
        }
        State::Absent => {
            let removed = steps.iter().rposition(|step| step.change == Change::Remove);
            match (removed, acknowledged) {
                (Some(at), _) if is_allowed(at) && is_latest(at) => Fate::Present,
                (None, None) => Fate::AbsentNeverAcknowledged,
                (Some(at), _) if is_allowed(at) => Fate::Unpromised,
                (_, _) if floor.is_none() => Fate::Unpromised,
                _ => Fate::Lost,
            }
        }
        State::Empty => {
            // A file is made, and then written: without a byte it was made where there was none, and no more.
            let is_being_made = |at: &usize| {
                let before = at.checked_sub(1).map(|before| steps[before].change);
                steps[*at].change == Change::Put && before != Some(Change::Put)
            };
            let made = (floor.map_or(0, |floor| floor + 1)..steps.len()).rfind(is_being_made);
            match made {
                Some(at) if steps[at..].iter().all(|step| step.acknowledged.is_none()) => {
                    Fate::AbsentNeverAcknowledged
                }
                Some(_) => Fate::Unpromised,
                None if floor.is_none() => Fate::Unpromised,
                None => Fate::Lost,
            }
        }
    }
}

/// What became of all records.
pub fn check(
    history: &History,
    found: &BTreeMap<u64, State>,
    promised: Option<Acknowledgement>,
) -> Audit {
    let mut audit = Audit {
        promised: promised.map(|class| class.name().to_owned()),
        acknowledged: history.acknowledged_since(0),
        ..Audit::default()
    };
    let known = history.records().keys();
    let numbers: std::collections::BTreeSet<&u64> = known.chain(found.keys()).collect();
    // A log that cannot be read tells nothing about any of its lines.
    let unread_log = found
        .get(&LOG_LINES)
        .filter(|state| matches!(state, State::Unreadable(_)));
    // A piece of the log that is no line may be half of one that was not promised: as many as there are of those.
    let mut half_lines = match changes_are_whole(promised) {
        true => 0,
        false => unpromised_lines(history, found, promised),
    };
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
        let is_wrong = !matches!(
            fate,
            Fate::Present | Fate::AbsentNeverAcknowledged | Fate::Unpromised | Fate::Half
        );
        if is_wrong && *count <= EXAMPLES as u64 {
            audit.examples.push(example(*number, steps, state, fate));
        }
    }
    let wrong = audit.lost + audit.torn + audit.stale + audit.phantom;
    audit.verdict = match (wrong, audit.unreadable) {
        (1.., _) => Verdict::Invalid,
        (0, 1..) => Verdict::Unknown,
        (0, 0) => Verdict::Valid,
    };
    audit
}

/// Lines of the log that were begun, are not acknowledged by what is promised, and are not there.
fn unpromised_lines(
    history: &History,
    found: &BTreeMap<u64, State>,
    promised: Option<Acknowledgement>,
) -> usize {
    let lines = history.records().range(LOG_LINES..STRANGERS);
    let missing = lines.filter(|(number, _)| !found.contains_key(number));
    missing
        .flat_map(|(_, steps)| steps)
        .filter(|step| promised.is_none_or(|promised| step.acknowledged < Some(promised)))
        .count()
}

fn example(number: u64, steps: &[Step], state: &State, fate: Fate) -> String {
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
    let last = steps.iter().rfind(|step| step.acknowledged.is_some());
    let last = last.map_or("nothing was acknowledged".to_owned(), |step| {
        let class = step.acknowledged.map_or("", Acknowledgement::name);
        let change = match step.change {
            Change::Put => "version",
            Change::Remove => "its removal by change",
        };
        format!("{change} {} was acknowledged by {class}", step.version)
    });
    format!("{what} is {fate}: found {found}; {last}")
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
