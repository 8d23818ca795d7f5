//! The controller of source 1. In each cycle it reads its state and mail, works on a task,
//! notes observations, replies, computes its health and writes its state back.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::plain as path;
use crate::filler::fill;
use crate::path::WorkspacePath;
use crate::script::{CallKind, FileOp, Script};

/// The parameters of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VsmCycle {
    /// Number of cycles.
    cycles: u32,
    /// Tasks in the queue.
    tasks: u32,
    /// Number of observations noted before the first cycle.
    observations: u32,
    /// Bytes of an observation.
    observation_bytes: u32,
    /// The seed of all text and choices.
    seed: u64,
}

/// Bytes of the body of a mail.
const MAIL_BYTES: u64 = 700;

/// Bytes of the log of an earlier cycle.
const LOG_BYTES: u64 = 4_000;

struct Controller<'a> {
    parameters: &'a VsmCycle,
    rng: ChaCha8Rng,
    script: Script,
}

impl VsmCycle {
    pub(crate) fn script(&self) -> Script {
        let mut controller =
            Controller { parameters: self, rng: ChaCha8Rng::seed_from_u64(self.seed), script: Script::default() };
        controller.script = controller.first_state();
        for cycle in 1..=self.cycles {
            controller.cycle(cycle);
        }
        controller.script
    }
}

impl Controller<'_> {
    fn first_state(&mut self) -> Script {
        let mut files = vec![(path("state/state.json"), self.state(0))];
        for task in 0..self.parameters.tasks {
            files.push((task_file(task), self.task(task, "pending", 0)));
        }
        for number in 0..self.parameters.observations {
            files.push((observation_file(number), self.observation(number)));
        }
        for cycle in 1..=self.parameters.cycles {
            files.push((inbox("new", cycle, ""), self.mail(cycle)));
        }
        files.push((log_file(0), fill(self.rng.random(), LOG_BYTES, 50)));
        let files = files.into_iter();
        let mut script = Script::new(files.map(|(path, bytes)| (path, bytes.into())).collect());
        let maildirs = "inbox/cur inbox/tmp outbox outbox/new outbox/cur outbox/tmp";
        script.dirs.extend(maildirs.split(' ').map(path));
        script.dirs.sort();
        script
    }

    fn cycle(&mut self, cycle: u32) {
        let read = |path: WorkspacePath| vec![FileOp::Read(path)];
        let list = |dir: &str| vec![FileOp::list(path(dir), false)];
        let state = path("state/state.json");
        self.script.call(CallKind::Read, read(state.clone()));

        self.script.call(CallKind::List, list("tasks"));
        let task = self.rng.random_range(0..self.parameters.tasks.max(1));
        for candidate in [task, (task + 1) % self.parameters.tasks.max(1)] {
            if candidate < self.parameters.tasks {
                self.script.call(CallKind::Read, read(task_file(candidate)));
            }
        }

        self.script.call(CallKind::List, list("inbox/new"));
        let (from, to) = (inbox("new", cycle, ""), inbox("cur", cycle, ":2,S"));
        self.script.call(CallKind::Read, read(from.clone()));
        let seen = FileOp::Rename { from, to };
        self.script.call(CallKind::Rename, vec![seen]);

        self.script.call(CallKind::List, list("observations"));
        let known = self.parameters.observations + cycle - 1;
        for _ in 0..2.min(known) {
            let seen = observation_file(self.rng.random_range(0..known));
            self.script.call(CallKind::Read, read(seen));
        }
        let observation = FileOp::write(observation_file(known), self.observation(known));
        self.script.call(CallKind::Write, vec![observation]);

        if task < self.parameters.tasks {
            let update = self.task(task, "active", cycle);
            let ops = replace(&task_file(task), update);
            self.script.call(CallKind::Write, ops);
        }

        let answer = self.mail(cycle + 10_000);
        let ops = deliver("outbox", cycle, answer);
        self.script.call(CallKind::Fsync, ops);

        for step in 0..3 {
            let at = time(cycle, step);
            let line = format!("{at} cycle={cycle} step={step} ok task={task}\n");
            let op = FileOp::Append { path: log_file(cycle), content: line.into_bytes().into() };
            self.script.call(CallKind::Append, vec![op]);
        }

        // The health is computed from the age of the state, the lengths of the queues, and the log.
        let stat = vec![FileOp::Stat(state.clone())];
        self.script.call(CallKind::Stat, stat);
        for queue in ["tasks", "inbox/new", "outbox/new"] {
            let op = FileOp::list(path(queue), true);
            self.script.call(CallKind::ListAttributes, vec![op]);
        }
        self.script.call(CallKind::Read, read(log_file(cycle)));

        let ops = replace(&state, self.state(cycle));
        self.script.call(CallKind::Write, ops);
    }

    fn words(&mut self, bytes: u64) -> String {
        String::from_utf8_lossy(&fill(self.rng.random(), bytes, 0)).into_owned()
    }

    fn state(&mut self, cycle: u32) -> Vec<u8> {
        let goals: Vec<_> = (0..6)
            .map(|goal| {
                serde_json::json!({
                    "id": goal,
                    "text": self.words(90),
                    "progress": self.rng.random_range(0..100),
                })
            })
            .collect();
        json(&serde_json::json!({
            "cycle": cycle,
            "updated": time(cycle, 9),
            "mode": "autonomous",
            "budget": {"tokens_used": 1500 * u64::from(cycle), "tokens_per_cycle": 1500},
            "queues": {"tasks": self.parameters.tasks, "inbox": self.parameters.cycles - cycle},
            "goals": goals,
            "last_error": null,
        }))
    }

    fn task(&mut self, number: u32, status: &str, cycle: u32) -> Vec<u8> {
        json(&serde_json::json!({
            "id": format!("task-{number:04}"),
            "status": status,
            "priority": self.rng.random_range(1..=5),
            "depends_on": if number == 0 { vec![] } else { vec![format!("task-{:04}", number - 1)] },
            "updated_in_cycle": cycle,
            "title": self.words(50),
            "detail": self.words(350),
        }))
    }

    fn observation(&mut self, number: u32) -> Vec<u8> {
        let title = self.words(40);
        let head = format!("---\nid: obs-{number:04}\nimportance: 0.{}\n---\n\n# {title}\n\n", number % 10);
        let rest = u64::from(self.parameters.observation_bytes).saturating_sub(head.len() as u64);
        let mut text = head.into_bytes();
        text.extend(fill(self.rng.random(), rest, rest / 80));
        text
    }

    fn mail(&mut self, number: u32) -> Vec<u8> {
        let head = format!(
            "From: owner@example.org\nTo: vsm@example.org\nSubject: {}\nMessage-ID: <{number}@example.org>\nDate: {}\n\n",
            self.words(45),
            time(number, 0)
        );
        let mut text = head.into_bytes();
        text.extend(fill(self.rng.random(), MAIL_BYTES, MAIL_BYTES / 70));
        text
    }
}

fn task_file(number: u32) -> WorkspacePath {
    path(&format!("tasks/task-{number:04}.json"))
}

fn observation_file(number: u32) -> WorkspacePath {
    path(&format!("observations/obs-{number:04}.md"))
}

fn log_file(cycle: u32) -> WorkspacePath {
    path(&format!("logs/cycle-{cycle:04}.log"))
}

/// A Maildir name; `flags` such as `:2,S` for a seen mail.
fn inbox(folder: &str, number: u32, flags: &str) -> WorkspacePath {
    path(&format!("inbox/{folder}/{}.M{number}.vsm{flags}", 1_770_000_000 + number))
}

/// Replaces a file atomically: write a temporary file and rename it.
fn replace(file: &WorkspacePath, content: Vec<u8>) -> Vec<FileOp> {
    let temporary = path(&format!("{file}.tmp"));
    vec![FileOp::write(temporary.clone(), content), FileOp::Rename { from: temporary, to: file.clone() }]
}

/// Delivers a mail into a Maildir: write in `tmp`, sync, rename into `new`.
fn deliver(maildir: &str, number: u32, content: Vec<u8>) -> Vec<FileOp> {
    let name = format!("{}.M{number}.vsm", 1_770_000_000 + number);
    let temporary = path(&format!("{maildir}/tmp/{name}"));
    vec![
        FileOp::Write { path: temporary.clone(), content: content.into(), sync: true },
        FileOp::Rename { from: temporary, to: path(&format!("{maildir}/new/{name}")) },
    ]
}

fn time(cycle: u32, step: u32) -> String {
    format!("2026-02-{:02}T{:02}:{:02}:{step:02}Z", 1 + cycle / 96 % 28, cycle / 4 % 24, cycle % 4 * 15)
}

fn json(value: &serde_json::Value) -> Vec<u8> {
    let mut text =
        serde_json::to_vec_pretty(value).unwrap_or_else(|_| unreachable!("a JSON value can always be written"));
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_does_what_the_seed_describes() {
        let script = VsmCycle { cycles: 2, tasks: 3, observations: 4, observation_bytes: 500, seed: 1 }.script();
        let story: Vec<String> = script
            .calls
            .iter()
            .map(|call| {
                let ops: Vec<_> = call.ops.iter().map(FileOp::describe).collect();
                format!("{}: {}", call.kind.unwrap(), ops.join(", "))
            })
            .collect();
        insta::assert_snapshot!(story.join("\n"));
    }
}
