//! Tasks on mail, tasks and logs that other programs write: the data, the changes during a pass, the questions, and the
//! reference answers. How an agent answers them is in [`scripts`]; the harness performs the calls.

pub mod command;
pub mod scripts;

use std::collections::{BTreeMap, BTreeSet};

/// Seconds between a change and the next question.
pub const LEAD_S: u64 = 10;

/// A message of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailMessage {
    /// Its number; later messages have larger ones, of as many digits.
    pub id: u64,
    /// Its thread.
    pub thread: u64,
    /// Who wrote it, as a name without spaces.
    pub sender: String,
    /// When, in ISO 8601.
    pub sent_at: String,
    /// The subject.
    pub subject: String,
    /// The text.
    pub body: String,
}

impl MailMessage {
    /// The file as the shipped definition `mail` shows it.
    pub fn text(&self) -> String {
        format!("From: {}\nTo: me\nDate: {}\nSubject: {}\n\n{}\n", self.sender, self.sent_at, self.subject, self.body)
    }

    /// Its file in the inbox.
    pub fn inbox_path(&self) -> String {
        let date = self.sent_at.get(..10).unwrap_or_default();
        format!("inbox/{}/{date} {} {}.eml", self.sender, self.subject, self.id)
    }

    /// Its file in its thread.
    pub fn thread_path(&self) -> String {
        format!("threads/{}/{} {}.eml", self.thread, self.id, self.sender)
    }
}

inputs::named! {
    /// The state of a task.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TaskState {
        /// Not begun.
        Open = "open",
        /// Begun.
        Running = "running",
        /// Ended well.
        Done = "done",
    }
}

impl TaskState {
    /// The state of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|state| state.name() == name).copied()
    }
}

/// A task of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name, without spaces.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Who does it.
    pub owner: String,
    /// When it last showed life, in ISO 8601.
    pub heartbeat: String,
    /// Its state.
    pub state: TaskState,
    /// The tasks that must be done before it begins.
    pub depends_on: Vec<String>,
}

impl Task {
    /// The file: a field a line, as editors and controllers write it.
    pub fn text(&self) -> String {
        let depends_on = self.depends_on.iter().map(|name| format!("\"{name}\""));
        let depends_on: Vec<String> = depends_on.collect();
        format!(
            "{{\n  \"name\": \"{}\",\n  \"title\": \"{}\",\n  \"owner\": \"{}\",\n  \"heartbeat\": \"{}\",\n  \"state\": \"{}\",\n  \"depends_on\": [{}]\n}}\n",
            self.name,
            self.title,
            self.owner,
            self.heartbeat,
            self.state.name(),
            depends_on.join(", ")
        )
    }

    /// Its file.
    pub fn path(&self) -> String {
        format!("tasks/{}.json", self.name)
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When, in ISO 8601; no two lines have the same time.
    pub at: String,
    /// The service that wrote it.
    pub service: String,
    /// `INFO` or `ERROR`.
    pub level: String,
    /// The request that it is about.
    pub request: String,
    /// The message.
    pub message: String,
}

impl LogLine {
    /// The line, without its newline.
    pub fn text(&self) -> String {
        format!("{} {} {} request={} {}", self.at, self.service, self.level, self.request, self.message)
    }

    /// The file of its service.
    pub fn path(&self) -> String {
        format!("logs/{}.log", self.service)
    }
}

/// Everything that the questions are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Mail, oldest first.
    pub messages: Vec<MailMessage>,
    /// Tasks, by name.
    pub tasks: Vec<Task>,
    /// Log lines, oldest first.
    pub log: Vec<LogLine>,
}

/// A change that another program commits during a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceChange {
    /// A message arrives.
    Message(MailMessage),
    /// A task has this state now.
    State {
        /// The task.
        task: String,
        /// Its new state.
        state: TaskState,
    },
    /// Lines are appended to logs.
    Log(Vec<LogLine>),
}

/// The task that a question sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Find the mail of a sender on a subject, read its thread, draft an answer with the latest value, file the mail.
    Find(Find),
    /// Which tasks can begin, and how many wait for others?
    Triage,
    /// What caused the last failed request of a service?
    Cause {
        /// The service.
        service: String,
    },
}

/// The mail that is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The sender.
    pub sender: String,
    /// The subject, such as `Budget of Falcon`.
    pub topic: String,
    /// The words before the value in a message, such as `The budget of Falcon is `.
    pub fact: String,
}

impl Find {
    /// The answer to the mail of this number, with a value.
    fn draft(&self, answers: u64, value: &str) -> Draft {
        Draft {
            answers,
            recipient: self.sender.clone(),
            subject: format!("Re: {}", self.topic),
            body: format!("{}{value}.", self.fact),
        }
    }
}

/// The value that a text gives a fact last: what follows it, up to the end of the sentence.
pub fn last_value(text: &str, fact: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once(fact)?;
    Some(rest.split('.').next()?.to_owned())
}

/// An answer to a mail, as a file of drafts and as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The mail that it answers, which is filed.
    pub answers: u64,
    /// Who gets it.
    pub recipient: String,
    /// The subject.
    pub subject: String,
    /// The text.
    pub body: String,
}

impl Draft {
    /// The file as the shipped definition `mail` takes it.
    pub fn text(&self) -> String {
        format!("To: {}\nSubject: {}\n\n{}\n", self.recipient, self.subject, self.body)
    }

    /// Its file.
    pub fn path(&self) -> String {
        format!("drafts/{}.eml", self.answers)
    }
}

impl World {
    /// Applies a change.
    pub fn apply(&mut self, change: &SourceChange) {
        match change {
            SourceChange::Message(message) => self.messages.push(message.clone()),
            SourceChange::State { task, state } => {
                let mut all = self.tasks.iter_mut();
                if let Some(entry) = all.find(|entry| entry.name == *task) {
                    entry.state = *state;
                }
            }
            SourceChange::Log(lines) => self.log.extend(lines.iter().cloned()),
        }
    }

    /// The reference answer; `None` if the question has none.
    pub fn answer(&self, asks: &TaskKind) -> Option<String> {
        match asks {
            TaskKind::Find(find) => {
                let (mail, value) = (self.asked_mail(find)?, self.value(find)?);
                let (id, thread, fact) = (mail.id, mail.thread, &find.fact);
                Some(format!("{id} in thread {thread}: {fact}{value}"))
            }
            TaskKind::Triage => {
                let tasks = self.tasks.iter();
                let states = tasks.clone().map(|task| (&task.name, task.state));
                let states: BTreeMap<&String, TaskState> = states.collect();
                let is_done = |name: &String| states.get(name) == Some(&TaskState::Done);
                let waits = |task: &&Task| !task.depends_on.iter().all(is_done);
                let left = tasks.clone().filter(|task| task.state != TaskState::Done);
                let blocked = left.filter(waits).count();
                let open = tasks.filter(|task| task.state == TaskState::Open);
                let ready = open.filter(|task| !waits(task)).map(|task| &task.name);
                Some(triaged(blocked as u64, ready.cloned().collect()))
            }
            TaskKind::Cause { service } => {
                let mut errors = self.log.iter().filter(|line| line.level == "ERROR");
                let last = errors.clone().rfind(|line| line.service == *service)?;
                let LogLine { request, .. } = last;
                let first = errors.find(|line| line.request == *request)?;
                Some(format!("{request}: {}: {}", first.service, first.message))
            }
        }
    }

    /// The mail that a question is about.
    fn asked_mail(&self, find: &Find) -> Option<&MailMessage> {
        let mut mails = self.messages.iter().filter(|mail| mail.sender == find.sender);
        mails.find(|mail| mail.subject.ends_with(&find.topic))
    }

    /// The latest value in the thread of a question's mail.
    fn value(&self, find: &Find) -> Option<String> {
        let thread = self.asked_mail(find)?.thread;
        let bodies = self.messages.iter().filter(|mail| mail.thread == thread);
        let mut values = bodies.filter_map(|mail| last_value(&mail.body, &find.fact));
        values.next_back()
    }

    /// The answer that has to be drafted; `None` where a question asks for none.
    pub fn draft(&self, asks: &TaskKind) -> Option<Draft> {
        let TaskKind::Find(find) = asks else {
            return None;
        };
        Some(find.draft(self.asked_mail(find)?.id, &self.value(find)?))
    }
}

/// The answer to [`Asks::Triage`].
fn triaged(blocked: u64, ready: BTreeSet<String>) -> String {
    let ready: Vec<String> = ready.into_iter().collect();
    format!("{blocked} blocked; ready: {}", ready.join(", "))
}

/// A question, and what changes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQuestion {
    /// When it is asked, in seconds of the schedule.
    pub at_s: u64,
    /// The change that another program commits [`LEAD_S`] seconds before.
    pub change: Option<SourceChange>,
    /// The task that it sets.
    pub asks: TaskKind,
}

/// The tasks of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// The data at the start of a pass.
    pub world: World,
    /// The questions, in order.
    pub questions: Vec<TaskQuestion>,
    /// A copy of the source is brought up to date so often, in seconds of the schedule.
    pub copies_every_s: u64,
}

impl Tasks {
    /// Calls of the SQL script in a pass; the other scripts make as many, or one fewer for a question.
    pub fn calls(&self) -> u64 {
        let calls = self.questions.iter().map(|question| match question.asks {
            TaskKind::Find(_) => 4,
            TaskKind::Triage | TaskKind::Cause { .. } => 2,
        });
        calls.sum()
    }

    /// Whether mail is needed, which a controller's directory does not have.
    pub fn needs_mail(&self) -> bool {
        !self.world.messages.is_empty()
    }
}
