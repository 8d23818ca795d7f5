//! Workloads of several hosts with the same files: one hands notes over to all others, or two write one file.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::{check_range, path};
use crate::filler::fill;
use crate::script::{Bytes, CallKind, FileOp, Host, Script};

/// The maximum number of notes or lines, because the harness may wait for each.
const CALLS_MAX: u32 = 1000;

/// The maximum number of hosts: each has a mount of its own, with a daemon.
const HOSTS_MAX: u32 = 16;

/// The maximum pause, in milliseconds: the default interval of an S3 mount's polls.
const PAUSE_MAX: u64 = 1_000;

/// The parameters of handed-over notes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    /// Number of notes.
    notes: u32,
    /// Bytes of each note.
    bytes: u64,
    /// The longest pause before a note, in milliseconds. A host reads a note just after a poll, so the pauses decide when in
    /// its poll interval the next note is written: they cover an interval of this length evenly.
    pause_ms: u64,
    /// The number of hosts: the first one writes, and a note is handed over when all others have read it.
    #[serde(default = "two_hosts")]
    hosts: u32,
    /// The seed of texts and pauses.
    seed: u64,
}

fn two_hosts() -> u32 {
    2
}

/// The parameters of two writers of one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoWriters {
    /// Number of lines that each writer appends.
    lines: u32,
    /// The longest pause before a line, in milliseconds.
    pause_ms: u64,
    /// The seed of the pauses and of the order of writers.
    seed: u64,
}

fn check(field: &str, calls: u32, pause_ms: u64) -> Result<(), String> {
    check_range(field, &calls, 1..=CALLS_MAX)?;
    if pause_ms > PAUSE_MAX {
        let table = field.split('.').next().unwrap_or(field);
        return Err(format!("field `{table}.pause_ms`: at most {PAUSE_MAX}"));
    }
    Ok(())
}

/// Pauses of up to `longest` milliseconds in random order: a random one from each of `count` equal parts.
fn spread_pauses(rng: &mut ChaCha8Rng, count: u32, longest: u64) -> Vec<u64> {
    let part = longest as f64 / f64::from(count);
    let mut pauses: Vec<u64> =
        (0..count).map(|number| ((f64::from(number) + rng.random_range(0.0..1.0)) * part) as u64).collect();
    pauses.shuffle(rng);
    pauses
}

impl Handoff {
    pub(crate) fn script(&self) -> Result<Script, String> {
        check("handoff.notes", self.notes, self.pause_ms)?;
        check_range("handoff.bytes", &self.bytes, 1..=1 << 20)?;
        check_range("handoff.hosts", &self.hosts, 2..=HOSTS_MAX)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut script = Script::new(Vec::new());
        let pauses = spread_pauses(&mut rng, self.notes, self.pause_ms);
        for (note, pause) in (0..self.notes).zip(pauses) {
            let path = path(format!("note-{note:04}.md"))?;
            let content: Bytes = fill(rng.next_u64(), self.bytes, self.bytes / 40).into();
            let mut ops = vec![FileOp::write(path.clone(), content.clone())];
            // One host after the other: a host whose turn comes late may have the note by then, so the last read ends when the
            // slowest host has it.
            let others = (1..self.hosts).map(Host);
            ops.extend(others.map(|host| FileOp::SeenByOther { host, path: path.clone(), content: content.clone() }));
            script.call_after(pause, CallKind::Handoff, ops);
        }
        Ok(script)
    }
}

impl TwoWriters {
    pub(crate) fn script(&self) -> Result<Script, String> {
        check("two_writers.lines", self.lines, self.pause_ms)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut script = Script::new(Vec::new());
        let mut left = [self.lines; 2];
        while left != [0, 0] {
            // The next writer is random among those with lines left, so the writers do not alternate.
            let writer = match left {
                [_, 0] => 0,
                [0, _] => 1,
                _ => rng.random_range(0..2),
            };
            let line = format!("writer {writer} line {:04}\n", self.lines - left[writer]);
            left[writer] -= 1;
            let add = FileOp::AddLine {
                host: [Host::FIRST, Host::SECOND][writer],
                path: path("shared.md")?,
                line: line.into_bytes().into(),
            };
            let pause = rng.random_range(0..=self.pause_ms);
            script.call_after(pause, CallKind::Edit, vec![add]);
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn handoff() -> Handoff {
        toml::from_str("notes = 8\nbytes = 100\npause_ms = 500\nseed = 7").unwrap()
    }

    fn writers() -> TwoWriters {
        toml::from_str("lines = 20\npause_ms = 100\nseed = 7").unwrap()
    }

    #[test]
    fn the_same_seed_makes_the_same_script_with_its_pauses() {
        assert_eq!(handoff().script(), handoff().script());
        assert_eq!(writers().script(), writers().script());
        let mut other = handoff();
        other.seed = 8;
        assert_ne!(handoff().script(), other.script());
        let script = handoff().script().unwrap();
        let pauses: BTreeSet<u64> = script.calls.iter().map(|call| call.pause_ms).collect();
        assert!(pauses.len() > 4 && pauses.iter().all(|pause| *pause <= 500));
    }

    #[test]
    fn the_pauses_of_few_notes_cover_a_whole_poll_interval() {
        let mut orders = BTreeSet::new();
        for seed in 0..20 {
            let few = Handoff { notes: 5, pause_ms: 1000, seed, ..handoff() };
            let pauses: Vec<u64> = few.script().unwrap().calls.iter().map(|call| call.pause_ms).collect();
            let parts: BTreeSet<u64> = pauses.iter().map(|pause| pause / 200).collect();
            assert_eq!(parts, (0..5).collect(), "one in each fifth of the interval: {pauses:?}");
            orders.insert(pauses.iter().map(|pause| pause / 200).collect::<Vec<_>>());
        }
        assert!(orders.len() > 10, "in random order: {orders:?}");
    }

    #[test]
    fn a_note_is_written_on_one_host_and_polled_on_the_other() {
        let script = handoff().script().unwrap();
        assert!(script.needs_second_host() && script.shared_files().is_empty());
        for call in &script.calls {
            let [FileOp::Write { path, content, .. }, seen] = &call.ops[..] else {
                panic!("{call:?}");
            };
            assert_eq!((call.ops[0].host(), seen.host()), (Host::FIRST, Host::SECOND));
            let (path, content) = (path.clone(), content.clone());
            assert_eq!(*seen, FileOp::SeenByOther { host: Host::SECOND, path, content });
        }
    }

    #[test]
    fn a_note_for_sixteen_hosts_is_read_by_each_of_the_fifteen_others() {
        let script = Handoff { hosts: 16, ..handoff() }.script().unwrap();
        assert_eq!((script.hosts(), handoff().script().unwrap().hosts()), (16, 2));
        for call in &script.calls {
            let hosts: Vec<u32> = call.ops.iter().map(|op| op.host().0).collect();
            assert_eq!(hosts, (0..16).collect::<Vec<_>>());
        }
        for hosts in [1, 17] {
            let error = Handoff { hosts, ..handoff() }.script().unwrap_err();
            assert!(error.contains("handoff.hosts"), "{error}");
        }
    }

    #[test]
    fn each_writer_adds_every_line_once_and_neither_waits_for_the_other() {
        let script = writers().script().unwrap();
        let mut lines = BTreeSet::new();
        let mut hosts = Vec::new();
        for op in script.calls.iter().flat_map(|call| &call.ops) {
            let FileOp::AddLine { host, line, .. } = op else {
                panic!("{op:?}");
            };
            assert!(lines.insert(line.clone()));
            hosts.push(*host);
        }
        assert_eq!(lines.len(), 40);
        let turns = hosts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((5..35).contains(&turns), "{hosts:?}");
        assert_eq!(script.shared_files().len(), 1);
    }
}
