use proptest::prelude::*;

use super::*;
use Acknowledgement::{Close, Fsync, Sync, Write};

fn history(log: &str) -> History {
    let mut history = History::default();
    history.read(log, log.len()).unwrap();
    history
}

/// The fate of record 1, from an acknowledgement log and its found state.
fn fate_of(log: &str, found: State, promised: Acknowledgement) -> Fate {
    let history = history(log);
    let steps = history.records().get(&1).cloned().unwrap_or_default();
    fate(&steps, &found, Some(promised))
}

const BEGUN: &str = "put 1 1\n";
const WRITTEN: &str = "put 1 1\nwrite 1 1\n";
const ONCE: &str = "put 1 1\nfsync 1 1\n";
/// The removal is not acknowledged.
const REMOVED: &str = "put 1 1\nfsync 1 1\nremove 1 2\n";
const SYNCED: &str = "put 1 1\nfsync 1 1\nremove 1 2\nfsync 1 2\n";
/// The removal came before the acknowledged later version.
const REWRITTEN: &str = "put 1 1\nremove 1 2\nfsync 1 2\nput 1 3\nfsync 1 3\n";
const TWICE: &str = "put 1 1\nwrite 1 1\nfsync 1 1\nput 1 2\nwrite 1 2\n";

#[test]
fn the_audit_tells_each_planted_fault_from_the_others() {
    let damaged = || State::Damaged("half".to_owned());
    let unreadable = || State::Unreadable("EIO".to_owned());
    for (log, found, promised, expected) in [
        (TWICE, State::Whole(2), Write, Fate::Present),
        (TWICE, State::Whole(1), Write, Fate::Stale),
        (TWICE, State::Whole(1), Fsync, Fate::Unpromised),
        (TWICE, State::Whole(2), Fsync, Fate::Present),
        (TWICE, State::Absent, Fsync, Fate::Lost),
        (TWICE, State::Absent, Sync, Fate::Unpromised),
        (TWICE, State::Empty, Write, Fate::Lost),
        // Part of the second change, under a promise that makes changes atomic and under others.
        (TWICE, damaged(), Write, Fate::Torn),
        (TWICE, damaged(), Fsync, Fate::Half),
        (TWICE, damaged(), Sync, Fate::Half),
        (ONCE, damaged(), Fsync, Fate::Torn),
        (REMOVED, damaged(), Fsync, Fate::Torn),
        ("", damaged(), Fsync, Fate::Torn),
        (TWICE, State::Whole(9), Write, Fate::Phantom),
        (TWICE, unreadable(), Write, Fate::Unreadable),
        (BEGUN, State::Absent, Write, Fate::AbsentNeverAcknowledged),
        (BEGUN, State::Empty, Write, Fate::AbsentNeverAcknowledged),
        (BEGUN, State::Whole(1), Write, Fate::Present),
        (WRITTEN, State::Empty, Fsync, Fate::Unpromised),
        (SYNCED, State::Whole(1), Fsync, Fate::Phantom),
        (SYNCED, State::Absent, Fsync, Fate::Present),
        (REMOVED, State::Whole(1), Fsync, Fate::Present),
        (REMOVED, State::Absent, Fsync, Fate::Present),
        (REWRITTEN, State::Absent, Fsync, Fate::Lost),
        ("", State::Whole(1), Write, Fate::Phantom),
    ] {
        assert_eq!(fate_of(log, found.clone(), promised), expected, "{log:?} {found:?} {promised}");
    }
}

#[test]
fn a_store_without_promises_loses_nothing() {
    let audit = check(&history(TWICE), &BTreeMap::new(), None);
    assert_eq!((audit.unpromised, audit.lost), (1, 0));
    assert_eq!(audit.verdict, AuditVerdict::Valid);
}

#[test]
fn an_audit_prefers_invalid_to_unknown_to_valid() {
    let log = "put 1 1\nfsync 1 1\nput 2 2\nfsync 2 2\nput 3 3\nfsync 3 3\n";
    let unreadable = State::Unreadable("EIO".to_owned());
    let mut found = BTreeMap::from([(1, State::Whole(1)), (2, State::Whole(2)), (3, State::Whole(3))]);
    let verdict = |found: &BTreeMap<u64, State>| check(&history(log), found, Some(Fsync)).verdict;
    assert_eq!(verdict(&found), AuditVerdict::Valid);
    found.insert(2, unreadable);
    assert_eq!(verdict(&found), AuditVerdict::Unknown);
    found.remove(&3);
    assert_eq!(verdict(&found), AuditVerdict::Invalid);
    let audit = check(&history(log), &found, Some(Fsync));
    assert!(audit.examples[1].contains("record 3 is lost"), "{:?}", audit.examples);
    assert_eq!(audit.acknowledged["fsync"], 3);
}

#[test]
fn an_example_names_the_call_that_acknowledged_the_first_missing_change() {
    for (later, found, expected) in [
        (
            "remove 1 2\nfsync 1 2\n",
            State::Whole(1),
            "its removal by change 2 was acknowledged by fsync of the directory",
        ),
        (
            "close 1 1\nreplace 1 2\nfsync 1 2\nput 1 3\nfsync 1 3\n",
            State::Whole(1),
            "its replacement by version 2 was acknowledged by fsync of the directory",
        ),
        ("put 1 2\nfsync 1 2\nremove 1 3\nclose 1 3\n", State::Whole(1), "version 2 was acknowledged by fsync"),
        ("replace 1 2\nsync 1 2\n", State::Whole(1), "its replacement by version 2 was acknowledged by sync"),
        // The name is there: the content of the new file was not synced.
        (
            "replace 1 2\nfsync 1 2\n",
            State::Damaged("zeros".to_owned()),
            "its replacement by version 2 was acknowledged by fsync",
        ),
        ("put 1 2\nfsync 1 2\n", State::Absent, "version 1 was acknowledged by fsync of the directory"),
    ] {
        let log = format!("put 1 1\nfsync 1 1\n{later}");
        let audit = check(&history(&log), &BTreeMap::from([(1, found)]), Some(Fsync));
        let example = &audit.examples[0];
        assert!(example.ends_with(&format!("; {expected}")), "{later}: {example}");
    }
}

#[test]
fn an_unreadable_log_hides_no_lost_record_and_loses_no_line() {
    let line = LOG_LINES + 1;
    let log = format!("put 1 1\nfsync 1 1\nput {line} 1\nfsync {line} 1\n");
    let found = BTreeMap::from([(LOG_LINES, State::Unreadable("EIO".to_owned()))]);
    let audit = check(&history(&log), &found, Some(Fsync));
    assert_eq!((audit.lost, audit.unreadable), (1, 2));
    assert_eq!(audit.verdict, AuditVerdict::Invalid);
}

#[test]
fn the_audit_counts_damaged_pieces_of_a_log_except_unpromised_lines() {
    let (first, second) = (LOG_LINES + 1, LOG_LINES + 2);
    let log = format!("put {first} 1\nfsync {first} 1\nput {second} 2\nwrite {second} 2\n");
    let damaged = |at| (DAMAGED_LINES + at, State::Damaged("zeros".to_owned()));
    let whole = (first, State::Whole(1));
    let found = BTreeMap::from([whole.clone(), damaged(0), damaged(1), damaged(2)]);
    let counts = |promised| {
        let audit = check(&history(&log), &found, promised);
        (audit.torn, audit.half, audit.verdict)
    };
    assert_eq!(counts(Some(Fsync)), (2, 1, AuditVerdict::Invalid));
    assert_eq!(counts(Some(Write)), (3, 0, AuditVerdict::Invalid));
    let found = BTreeMap::from([whole, damaged(0)]);
    let audit = check(&history(&log), &found, Some(Fsync));
    assert_eq!((audit.half, audit.verdict), (1, AuditVerdict::Valid));
}

/// Changes of one record with increasing versions. No change has a stronger acknowledgement than an earlier
/// one.
fn steps() -> impl Strategy<Value = Vec<RecordStep>> {
    let class = prop_oneof![Just(None), Just(Some(Write)), Just(Some(Close)), Just(Some(Fsync)), Just(Some(Sync))];
    let change = prop_oneof![Just(RecordChange::Put), Just(RecordChange::Replace), Just(RecordChange::Remove)];
    prop::collection::vec((change, class), 0..8).prop_map(|steps| {
        let steps = steps.into_iter().zip(1..);
        steps.map(|((change, acknowledged), version)| RecordStep { version, change, acknowledged }).collect()
    })
}

fn state_after(steps: &[RecordStep]) -> State {
    match steps.last() {
        Some(step) if step.change.writes() => State::Whole(step.version),
        _ => State::Absent,
    }
}

proptest! {
    /// A store that keeps its promise passes, whichever later changes it kept.
    #[test]
    fn a_store_that_keeps_its_promise_passes(steps in steps(), at in 0..4usize, later in 0..9usize) {
        let promised = Acknowledgement::ALL[at];
        let floor = steps.iter().rposition(|step| step.acknowledged >= Some(promised));
        let kept = floor.map_or(0, |floor| floor + 1);
        let upto = kept + later % (steps.len() - kept + 1);
        let fate = fate(&steps, &state_after(&steps[..upto]), Some(promised));
        prop_assert!(
            matches!(fate, Fate::Present | Fate::Unpromised | Fate::AbsentNeverAcknowledged),
            "{fate:?}"
        );
    }

    /// A store with a state before its promise fails, unless that state equals the promised one.
    #[test]
    fn a_store_that_breaks_its_promise_fails(steps in steps(), at in 0..4usize, back in 0..8usize) {
        let promised = Acknowledgement::ALL[at];
        let floor = steps.iter().rposition(|step| step.acknowledged >= Some(promised));
        let Some(floor) = floor else { return Ok(()) };
        let planted = state_after(&steps[..back % (floor + 1)]);
        let allowed: Vec<State> = (floor..steps.len()).map(|at| state_after(&steps[..=at])).collect();
        let fate = fate(&steps, &planted, Some(promised));
        let is_accused = matches!(fate, Fate::Lost | Fate::Stale | Fate::Phantom);
        prop_assert_eq!(is_accused, !allowed.contains(&planted), "{:?}", fate);
    }

    /// Damaged bytes and versions that were never written always fail.
    #[test]
    fn a_store_with_unwritten_content_fails(steps in steps(), at in 0..4usize) {
        let promised = Some(Acknowledgement::ALL[at]);
        let torn = State::Damaged("x".to_owned());
        let floor = steps.iter().rposition(|step| step.acknowledged >= promised);
        let since = floor.map_or(0, |floor| floor + 1);
        let is_promised = steps[since..].iter().all(|step| step.change == RecordChange::Remove);
        let is_torn = fate(&steps, &torn, promised) == Fate::Torn;
        prop_assert_eq!(is_torn, is_promised || promised < Some(Fsync));
        prop_assert_eq!(fate(&steps, &State::Whole(99), promised), Fate::Phantom);
    }
}
