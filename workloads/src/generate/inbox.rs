//! Seeded mail, tasks and logs with planted answers, and questions about them in the order of a schedule.
//!
//! Every third change makes the right answer newer than a copy may have it; the reference answers are in
//! [`crate::tasks`].

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::check_range;
use crate::filler::fill;
use crate::script::Script;
use crate::tasks::{Find, LogLine, MailMessage, SourceChange, Task, TaskKind, TaskQuestion, TaskState, Tasks, World};

/// The parameters of a workload of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inbox {
    /// The subject of the tasks.
    about: About,
    /// Threads of mail, tasks, or requests in the logs.
    size: usize,
    /// Questions in a pass.
    questions: usize,
    /// Seconds of the schedule between two questions.
    asked_every_s: u64,
    /// Seconds of the schedule between two updates of a copy.
    copied_every_s: u64,
    /// The seed of all text and choices.
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum About {
    Mail,
    Tasks,
    Logs,
}

const PEOPLE: [&str; 12] =
    ["ann", "bob", "carla", "dieter", "elena", "farid", "grace", "hugo", "ines", "jonas", "kira", "lars"];

const PROJECTS: [&str; 12] =
    ["Falcon", "Heron", "Osprey", "Kestrel", "Merlin", "Harrier", "Condor", "Egret", "Ibis", "Plover", "Swift", "Tern"];

const ATTRIBUTES: [&str; 6] = ["budget", "deadline", "owner", "region", "supplier", "licence"];

/// Questions whose answers change shortly before: of each four the third.
const CHANGES_AT: (usize, usize) = (4, 2);

/// The number of the first message; all have four digits, so that names sort by time.
const FIRST_MESSAGE: u64 = 1001;

/// Numbers of messages that arrive during a pass: far apart, because drafts get the numbers between.
const ARRIVALS: (u64, u64) = (2000, 100);

const SERVICES: [&str; 8] = ["web", "api", "auth", "billing", "search", "cache", "queue", "db"];

const CAUSES: [&str; 6] = [
    "disk is full",
    "connection refused",
    "certificate has expired",
    "too many open files",
    "deadlock detected",
    "out of memory",
];

const SYMPTOM: &str = "upstream failed";

impl Inbox {
    pub(crate) fn script(&self) -> Result<Script, String> {
        let most = match self.about {
            About::Mail => PROJECTS.len() * ATTRIBUTES.len(),
            About::Tasks => 500,
            About::Logs => 5000,
        };
        check_range("inbox.size", &self.size, 10..=most)?;
        check_range("inbox.questions", &self.questions, 1..=self.size.min(50))?;
        if self.asked_every_s <= crate::tasks::LEAD_S || self.copied_every_s == 0 {
            return Err(format!(
                "fields `inbox.asked_every_s` and `copied_every_s`: must be above {} and 0",
                crate::tasks::LEAD_S
            ));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let (world, asked) = match self.about {
            About::Mail => self.mail(&mut rng),
            About::Tasks => self.tasks(&mut rng),
            About::Logs => self.logs(&mut rng),
        };
        let questions = (1..).zip(asked).map(|(number, (change, asks))| TaskQuestion {
            at_s: number * self.asked_every_s,
            change,
            asks,
        });
        Ok(Script {
            tasks: Some(std::sync::Arc::new(Tasks {
                world,
                questions: questions.collect(),
                copies_every_s: self.copied_every_s,
            })),
            ..Script::default()
        })
    }

    fn changes(&self, question: usize) -> bool {
        question % CHANGES_AT.0 == CHANGES_AT.1
    }

    fn mail(&self, rng: &mut ChaCha8Rng) -> (World, Vec<(Option<SourceChange>, TaskKind)>) {
        let pairs = PROJECTS.iter();
        let pairs = pairs.flat_map(|project| ATTRIBUTES.map(|attribute| (*project, attribute)));
        let mut pairs: Vec<(&str, &str)> = pairs.collect();
        pairs.shuffle(rng);
        pairs.truncate(self.size);
        // Messages of all threads, in the order of their arrival.
        let mut arrivals: Vec<(usize, usize)> = Vec::new();
        let mut writers: Vec<Vec<&str>> = Vec::new();
        for thread in 0..pairs.len() {
            let count = rng.random_range(3..=6);
            arrivals.extend((0..count).map(|at| (thread, at)));
            let mut people = PEOPLE.to_vec();
            people.shuffle(rng);
            people.truncate(count);
            writers.push(people);
        }
        arrivals.shuffle(rng);
        let mut sent = vec![0; pairs.len()];
        let mut messages = Vec::new();
        for (at, (thread, _)) in arrivals.into_iter().enumerate() {
            let place = sent[thread];
            sent[thread] += 1;
            let (id, writer) = (FIRST_MESSAGE + at as u64, writers[thread][place]);
            messages.push(self.message(rng, id, thread, pairs[thread], writer, place));
        }
        let mut threads: Vec<usize> = (0..pairs.len()).collect();
        threads.shuffle(rng);
        let mut arrived = 0;
        let asked = (0..self.questions).map(|number| {
            let thread = threads[number];
            let (project, attribute) = pairs[thread];
            // Any writer of the thread: the mail is not always its first.
            let sender = writers[thread][rng.random_range(0..writers[thread].len())];
            let change = self.changes(number).then(|| {
                let id = ARRIVALS.0 + ARRIVALS.1 * arrived;
                arrived += 1;
                let others = PEOPLE.iter().filter(|person| !writers[thread].contains(*person));
                let others: Vec<&str> = others.copied().collect();
                let writer = others.choose(rng).copied().unwrap_or(PEOPLE[0]);
                SourceChange::Message(self.message(rng, id, thread, pairs[thread], writer, 2))
            });
            let asks = TaskKind::Find(Find {
                sender: sender.to_owned(),
                topic: topic(project, attribute),
                fact: fact(project, attribute),
            });
            (change, asks)
        });
        let asked = asked.collect();
        let world = World { messages, ..World::default() };
        (world, asked)
    }

    /// A message: the first and every second one of a thread state a value, the others only talk about it.
    fn message(
        &self,
        rng: &mut ChaCha8Rng,
        id: u64,
        thread: usize,
        (project, attribute): (&str, &str),
        sender: &str,
        place: usize,
    ) -> MailMessage {
        let subject = match place {
            0 => topic(project, attribute),
            _ => format!("Re: {}", topic(project, attribute)),
        };
        let talk = |rng: &mut ChaCha8Rng, bytes| {
            let text = fill(rng.random(), bytes, 0);
            let text = String::from_utf8_lossy(&text);
            text.trim_end_matches('.').to_owned()
        };
        let (bytes, more) = (rng.random_range(80..240), rng.random_range(40..120));
        let before = talk(rng, bytes);
        let after = talk(rng, more);
        let planted = match place % 2 {
            0 => {
                // A value that arrives during a pass differs from every earlier one.
                let values = if id < ARRIVALS.0 { 100..1000 } else { 1000..10_000 };
                let value = rng.random_range(values);
                format!("{}{attribute}-{value}.", fact(project, attribute))
            }
            _ => format!("Does anybody know whether the {attribute} of {project} will change?"),
        };
        MailMessage {
            id,
            thread: thread as u64 + 1,
            sender: sender.to_owned(),
            sent_at: time(id * 600),
            subject,
            body: format!("{before}.\n\n{planted} {after}."),
        }
    }

    fn tasks(&self, rng: &mut ChaCha8Rng) -> (World, Vec<(Option<SourceChange>, TaskKind)>) {
        const VERBS: [&str; 10] =
            ["build", "check", "clean", "deploy", "fetch", "index", "merge", "report", "scan", "sync"];
        let mut tasks: Vec<Task> = Vec::new();
        for at in 0..self.size {
            let project = PROJECTS[at / VERBS.len() % PROJECTS.len()].to_lowercase();
            let round = at / (VERBS.len() * PROJECTS.len());
            let suffix = match round {
                0 => String::new(),
                _ => format!("-{round}"),
            };
            // Every tenth task can begin, so that a change has one to end.
            let is_first = at % VERBS.len() == 0;
            let count = if is_first { 0 } else { rng.random_range(0..=3).min(at) };
            let mut depends_on: Vec<String> = Vec::new();
            for _ in 0..count {
                // Dependencies point backwards, so that there is no cycle.
                let other = tasks[rng.random_range(0..at)].name.clone();
                if !depends_on.contains(&other) {
                    depends_on.push(other);
                }
            }
            depends_on.sort();
            let is_startable = depends_on.iter().all(|name| is_done(&tasks, name));
            let state = match rng.random_range(0..10) {
                _ if is_first => TaskState::Open,
                0..=4 if is_startable => TaskState::Done,
                5 if is_startable => TaskState::Running,
                _ => TaskState::Open,
            };
            let verb = VERBS[at % VERBS.len()];
            tasks.push(Task {
                name: format!("{verb}-{project}{suffix}"),
                title: String::from_utf8_lossy(&fill(rng.random(), 60, 0)).into_owned(),
                owner: PEOPLE[rng.random_range(0..PEOPLE.len())].to_owned(),
                heartbeat: time(600_000 + at as u64 * 37),
                state,
                depends_on,
            });
        }
        tasks.sort_by(|one, other| one.name.cmp(&other.name));
        let world = World { tasks, ..World::default() };
        let mut now = world.clone();
        let asked = (0..self.questions).map(|number| {
            let changes = self.changes(number).then(|| {
                // A task that can begin is done: others may begin then, and the answer changes in any case.
                let open = now.tasks.iter().filter(|task| task.state == TaskState::Open);
                let mut open = open.filter(|task| {
                    let mut others = task.depends_on.iter();
                    others.all(|name| is_done(&now.tasks, name))
                });
                open.next().map(|task| SourceChange::State { task: task.name.clone(), state: TaskState::Done })
            });
            let change = changes.flatten();
            if let Some(change) = &change {
                now.apply(change);
            }
            (change, TaskKind::Triage)
        });
        let asked = asked.collect();
        (world, asked)
    }

    fn logs(&self, rng: &mut ChaCha8Rng) -> (World, Vec<(Option<SourceChange>, TaskKind)>) {
        let mut log = Vec::new();
        let mut clock = 0;
        for number in 0..self.size {
            // The last requests fail once through each service in front, so that every question has an answer.
            let failing = (number + SERVICES.len() > self.size)
                .then(|| self.size - 1 - number)
                .or_else(|| (rng.random_range(0..12) == 0).then(|| rng.random_range(0..SERVICES.len() - 1)));
            log.extend(request(rng, number, &mut clock, failing));
        }
        let asked = (0..self.questions).map(|number| {
            let front = number % (SERVICES.len() - 1);
            let change = self
                .changes(number)
                .then(|| SourceChange::Log(request(rng, self.size + number, &mut clock, Some(front))));
            let asks = TaskKind::Cause { service: SERVICES[front].to_owned() };
            (change, asks)
        });
        let asked = asked.collect();
        let world = World { log, ..World::default() };
        (world, asked)
    }
}

fn is_done(tasks: &[Task], name: &str) -> bool {
    let mut done = tasks.iter().filter(|task| task.state == TaskState::Done);
    done.any(|task| task.name == name)
}

/// The lines of one request. `failing`: the service in front, whose error has its cause in a service behind it.
fn request(rng: &mut ChaCha8Rng, number: usize, clock: &mut u64, failing: Option<usize>) -> Vec<LogLine> {
    let request = format!("r{:05}", 10_000 + number);
    let front = failing.unwrap_or(0);
    let behind = rng.random_range(front + 1..SERVICES.len());
    let cause = CAUSES.choose(rng).copied().unwrap_or(CAUSES[0]);
    let mut lines = Vec::new();
    let mut line = |service: usize, level: &str, message: String| {
        *clock += 1;
        lines.push(LogLine {
            at: time(*clock),
            service: SERVICES[service].to_owned(),
            level: level.to_owned(),
            request: request.clone(),
            message,
        });
    };
    for service in front..=behind {
        let queue = rng.random_range(0..9);
        line(service, "INFO", format!("took it, queue of {queue}"));
    }
    match failing {
        Some(_) => {
            line(behind, "ERROR", cause.to_owned());
            for service in (front..behind).rev() {
                line(service, "ERROR", SYMPTOM.to_owned());
            }
        }
        None => {
            let time = rng.random_range(1..400);
            line(front, "INFO", format!("answered in {time} ms"));
        }
    }
    lines
}

fn topic(project: &str, attribute: &str) -> String {
    let (first, rest) = attribute.split_at(1);
    format!("{}{rest} of {project}", first.to_uppercase())
}

fn fact(project: &str, attribute: &str) -> String {
    format!("The {attribute} of {project} is ")
}

/// Seconds after the start of the year 2026, as ISO 8601.
fn time(seconds: u64) -> String {
    // 2026-01-01T00:00:00Z.
    const START: i64 = 1_767_225_600;
    let time = jiff::Timestamp::from_second(START + seconds as i64).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
