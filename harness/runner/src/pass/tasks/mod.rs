//! A pass of tasks: a scripted agent answers questions on a source, while a writer changes the source.
//!
//! Only the agent's own calls are timed. Filling the source, commits, copies and checks are outside the clock.

mod console;
mod copies;
mod source;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arms::backend::{Access, Backend, WorkspaceConfig};
use arms::source::{CONTROLLER_DIRECTORIES, Source};
use rundir::{Outcome, Score, ScoreName, histogram};
use workloads::path::WorkspacePath;
use workloads::script::{CallKind, FileOp, Script};
use workloads::tasks::command::TaskProgram;
use workloads::tasks::scripts::{Form, definitions, perform, sees};
use workloads::tasks::{LEAD_S, TaskQuestion, Tasks, World};

use super::calls::{PREPARE_LIMIT, PassResult, Replay, TimesByKind};
use super::driver::{Driver, Rules};
use super::workspaces::{Steps, Workspaces, failure};
use crate::clock::Clock;
use console::{TaskCalls, TaskConsole};
use copies::Copies;
use source::{Writer, writer};

/// The method of the scores, as policies name it.
const METHOD: &str = "task";

/// The method of the scores of programs beside plain files, as policies name it.
const PROGRAMS: &str = "programs";

/// Pause between polls for a change.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The driver of tasks.
pub(super) struct TaskDriver {
    /// The tasks with their scripts and right answers.
    tasks: Arc<Tasks>,
    /// The source that the backend shows; `None` for one whose files are copied from a database in `dir`.
    shown: Option<Source>,
    /// The directory of the workspace's own files.
    dir: PathBuf,
    /// Whether this machine has what the programs beside plain files need.
    has_programs: bool,
}

/// The programs that a team's programs beside plain files need, and that this machine does not have; `None` if it has all.
pub fn missing_programs() -> Option<String> {
    TaskProgram::missing(|name| inputs::find_program(name, "").is_some())
}

/// Why a backend cannot take part in tasks, or in other workloads; `None` if it can.
pub fn unsupported(script: &Script, name: &str, backend: &dyn Backend) -> Option<String> {
    let capabilities = backend.describe().capabilities;
    match (&script.tasks, backend.source(Path::new(""))) {
        (None, None) => None,
        (None, Some(Source::Directory(_))) if capabilities.changes_source => outside_controller(script).map(|path| {
            let known = CONTROLLER_DIRECTORIES.join(", ");
            format!("{name} shows the directories of a controller ({known}), and {path} is in none of them")
        }),
        (None, Some(_)) => {
            Some(format!("{name} shows data that other programs write; it takes part only in tasks on that data"))
        }
        (Some(tasks), Some(Source::Directory(_))) if tasks.needs_mail() => {
            Some(format!("{name} shows a controller's directory, which has no mail"))
        }
        (Some(_), Some(_)) => None,
        (Some(_), None) if backend.access() != Access::Paths => {
            Some(format!("{name} has no directory that mail, tasks and logs could be copied to"))
        }
        (Some(_), None) if !capabilities.holds_data || capabilities.guesses_content => {
            Some(format!("{name} does not hold the files that are copied to it"))
        }
        (Some(_), None) => None,
    }
}

/// A path of a script, or of its calls, that is not in a directory of a controller.
fn outside_controller(script: &Script) -> Option<WorkspacePath> {
    let ops = || script.calls.iter().flat_map(|call| &call.ops);
    let runs = script.setup.iter().map(|run| run.directory.clone());
    let paths = script.files.iter().map(|(path, _)| path).chain(&script.dirs).chain(ops().map(FileOp::path));
    let is_inside = |path: &WorkspacePath| {
        let top = path.as_str().split('/').next();
        top.is_some_and(|top| CONTROLLER_DIRECTORIES.contains(&top))
    };
    paths.cloned().chain(runs).find(|path| !is_inside(path))
}

/// A task pass under way.
struct TaskPass<'a> {
    form: Form,
    writer: Box<dyn Writer>,
    /// The copies in the workspace, and what they show; `None` for a backend that shows the source.
    copies: Option<(Copies, World)>,
    now: World,
    /// When the next copy is due, in seconds of the schedule.
    next_copy_s: u64,
    /// When changes were committed that no copy has yet.
    uncopied_s: Vec<u64>,
    counts: Counts,
    /// Commits before questions.
    changes: u64,
    /// Whether programs beside plain files are asked, too.
    has_programs: bool,
    /// The counts of programs that a team keeps beside plain files; `None` where none was asked.
    of_programs: Option<Counts>,
    tasks: &'a Tasks,
}

/// Counts over all questions.
#[derive(Debug, Default)]
struct Counts(BTreeMap<ScoreName, u64>);

impl Counts {
    fn add(&mut self, name: ScoreName, more: u64) {
        *self.0.entry(name).or_default() += more;
    }

    fn of(&self, name: ScoreName) -> u64 {
        self.0.get(&name).copied().unwrap_or(0)
    }

    /// Counts the calls of a task and their texts.
    fn calls(&mut self, made: &TaskCalls) {
        self.add(ScoreName::Calls, made.took.len() as u64);
        for (call, result) in &made.texts {
            self.add(ScoreName::CallTokens, tokens::count(call));
            self.add(ScoreName::ResultTokens, tokens::count(result));
        }
    }
}

impl TaskDriver {
    pub(super) fn new(tasks: &Arc<Tasks>) -> Self {
        let has_programs = missing_programs().is_none();
        Self { tasks: Arc::clone(tasks), shown: None, dir: PathBuf::new(), has_programs }
    }

    /// Performs the tasks, and notes their calls, scores and outcome.
    fn perform<C: Clock>(&self, replay: &mut Replay<'_, C>) {
        let (pass, clock, watchdog) = (replay.pass, replay.clock, replay.watchdog);
        let Replay { workspaces, times, passed, .. } = replay;
        watchdog.enter(PREPARE_LIMIT);
        let task_pass = TaskPass::prepare(self, workspaces);
        watchdog.leave();
        let mut task_pass = match task_pass {
            Ok(task_pass) => task_pass,
            Err(error) => {
                let (outcome, why) = failure(watchdog, workspaces.exit_reason(), Outcome::Setup);
                return passed.note(outcome, format!("preparing the source: {error}{why}"));
            }
        };
        let root = task_pass.root(workspaces);
        for question in &self.tasks.questions {
            if pass.interrupt.is_set() {
                passed.interrupted = true;
                return;
            }
            let mut console = TaskConsole {
                pass,
                clock,
                watchdog,
                root: &root,
                tools: workspaces.first.domain_tools(),
                made: TaskCalls::default(),
                failed: None,
            };
            let changed = task_pass.before(question, &mut console, pass.call_timeout);
            console.made = TaskCalls::default();
            let answer = match &changed {
                Ok(()) => perform(&question.asks, task_pass.form, &mut console),
                Err(_) => Err(String::new()),
            };
            let (made, failed) = (std::mem::take(&mut console.made), console.failed.take());
            let (mut outcome, mut reason) = match (changed, failed, answer) {
                (Err((outcome, reason)), ..) => (outcome, reason),
                (_, Some(error), _) => (Outcome::Errno, error),
                (_, _, answer) => task_pass.outcome_of(question, answer),
            };
            let slowest = made.took.iter().copied().max().unwrap_or(0);
            if outcome == Outcome::Ok && slowest > pass.call_timeout.as_nanos() as u64 {
                let seconds = slowest as f64 / 1e9;
                (outcome, reason) = (Outcome::Timeout, format!("a call took {seconds:.1} s"));
            }
            if outcome != Outcome::Ok {
                let (worse, why) = failure(watchdog, workspaces.exit_reason(), outcome);
                (outcome, reason) = (worse, format!("{:?}: {reason}{why}", question.asks));
            }
            note_calls(&made, outcome, times, passed);
            if pass.reads_back {
                task_pass.counts.calls(&made);
            }
            // Their tokens do not depend on what holds the files, and starting them would disturb a timed arm with a daemon.
            if pass.reads_back && outcome == Outcome::Ok && pass.backend.mounts == 0 {
                let mut console = TaskConsole {
                    pass,
                    clock,
                    watchdog,
                    root: &root,
                    tools: None,
                    made: TaskCalls::default(),
                    failed: None,
                };
                (outcome, reason) = task_pass.ask_programs(question, &mut console);
            }
            if outcome != Outcome::Ok {
                passed.note(outcome, reason);
            }
            if matches!(outcome, Outcome::Hang | Outcome::Crash) {
                return;
            }
        }
        watchdog.enter(PREPARE_LIMIT);
        let finished = task_pass.finish(&root);
        watchdog.leave();
        if let Err((outcome, reason)) = finished {
            let (outcome, why) = failure(watchdog, workspaces.exit_reason(), outcome);
            return passed.note(outcome, format!("{reason}{why}"));
        }
        if pass.reads_back {
            let stated = workspaces.first.domain_tools().map(|tools| tools.definitions().to_owned());
            let stated = definitions(task_pass.form).or(stated).unwrap_or_default();
            passed.sample.scores.insert(METHOD.to_owned(), task_pass.scores(&task_pass.counts, &stated));
            if let (Some(counts), Some(stated)) = (&task_pass.of_programs, definitions(Form::Programs)) {
                passed.sample.scores.insert(PROGRAMS.to_owned(), task_pass.scores(counts, &stated));
            }
        }
    }
}

impl<C: Clock> Driver<C> for TaskDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        replay.measure(|replay| self.perform(replay));
    }

    fn open(&mut self, _: &mut Workspaces, backend: &dyn Backend, config: &WorkspaceConfig) -> io::Result<()> {
        self.shown = backend.source(&config.dir);
        self.dir.clone_from(&config.dir);
        Ok(())
    }

    /// Each pass fills its source itself.
    fn fill(&self, _: &mut Workspaces, _: &Script, _: &mut Steps<'_>) -> io::Result<()> {
        Ok(())
    }

    fn rules(&self) -> Rules {
        // The agent does not make the requests for copies and polls between tasks.
        Rules { lacks_paths: true, is_uncounted: true, is_unproved: true, waits_for_disk: true, ..Rules::default() }
    }
}

fn note_calls(made: &TaskCalls, outcome: Outcome, times: &mut TimesByKind, passed: &mut PassResult) {
    *passed.sample.outcomes.entry(outcome).or_default() += made.took.len() as u64;
    passed.sample.waited_ns += made.took.iter().sum::<u64>();
    passed.sample.cpu.client_ns += made.cpu.as_nanos() as u64;
    if outcome != Outcome::Ok {
        return;
    }
    let (histogram, total) = times.entry(CallKind::ToolCall).or_insert_with(|| (histogram(), 0));
    for took in &made.took {
        histogram.saturating_record((*took).max(1));
        *total += took;
        passed.sample.makespan_ns += took;
    }
    passed.sample.bytes_read += made.texts.iter().map(|(_, result)| result.len() as u64).sum::<u64>();
}

impl<'a> TaskPass<'a> {
    /// Fills the source, and the first copy of it.
    fn prepare(driver: &'a TaskDriver, workspaces: &mut Workspaces) -> io::Result<Self> {
        let source = driver.shown.clone();
        let source = source.unwrap_or_else(|| Source::database(&driver.dir));
        source.make()?;
        let mut writer = writer(&source)?;
        writer.reset(&driver.tasks.world)?;
        let form = match (&driver.shown, workspaces.first.domain_tools()) {
            (None, _) => Form::Copy,
            (Some(_), Some(_)) => Form::Sql,
            (Some(_), None) => Form::View,
        };
        let now = driver.tasks.world.clone();
        let copies = match form {
            Form::Copy | Form::Programs => {
                let mut copies = Copies::start(source.path(), &copied_to(workspaces))?;
                copies.update()?;
                Some((copies, now.clone()))
            }
            Form::View | Form::Sql => None,
        };
        Ok(Self {
            form,
            writer,
            copies,
            now,
            next_copy_s: driver.tasks.copies_every_s,
            uncopied_s: Vec::new(),
            counts: Counts::default(),
            changes: 0,
            has_programs: driver.has_programs && form == Form::Copy && !driver.tasks.needs_mail(),
            of_programs: None,
            tasks: &driver.tasks,
        })
    }

    /// Where the agent's shell works.
    fn root(&self, workspaces: &Workspaces) -> PathBuf {
        match self.form {
            Form::Copy | Form::Programs => copied_to(workspaces),
            Form::View | Form::Sql => workspaces.first.root().to_owned(),
        }
    }

    /// Answers a question by the programs beside plain files, and counts their tokens. No time of them counts.
    fn ask_programs<C: Clock>(
        &mut self,
        question: &TaskQuestion,
        console: &mut TaskConsole<'_, C>,
    ) -> (Outcome, String) {
        if !self.has_programs {
            return (Outcome::Ok, String::new());
        }
        let answer = perform(&question.asks, Form::Programs, console);
        let (outcome, reason, is_stale) = self.compared(question, answer);
        let counts = self.of_programs.get_or_insert_default();
        counts.calls(&console.made);
        counts.add(ScoreName::StaleAnswers, u64::from(is_stale));
        match outcome {
            Outcome::Ok => (outcome, reason),
            _ => (outcome, format!("{:?} by the programs in bin: {reason}", question.asks)),
        }
    }

    /// Commits the change before a question, makes the copies that are due, and measures how late the change is seen.
    fn before<C: Clock>(
        &mut self,
        question: &TaskQuestion,
        console: &mut TaskConsole<'_, C>,
        patience: Duration,
    ) -> Result<(), (Outcome, String)> {
        if let Some(change) = &question.change {
            let commit_s = question.at_s - LEAD_S;
            self.copy_until(commit_s)?;
            let committed = self.writer.commit(change);
            let at = Instant::now();
            committed.map_err(|error| (Outcome::Infra, format!("committing a change: {error}")))?;
            self.now.apply(change);
            self.changes += 1;
            if self.copies.is_some() {
                self.uncopied_s.push(commit_s);
            } else {
                while !sees(change, self.form, console) {
                    if at.elapsed() > patience || console.failed.is_some() {
                        let what = format!("a commit is not visible within {} s", patience.as_secs_f64());
                        return Err((Outcome::Timeout, what));
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
                self.counts.add(ScoreName::LagUs, (at.elapsed().as_micros() as u64).max(1));
            }
        }
        self.copy_until(question.at_s)
    }

    /// Makes the copies that are due up to a time of the schedule.
    fn copy_until(&mut self, end_s: u64) -> Result<(), (Outcome, String)> {
        while self.copies.is_some() && self.next_copy_s <= end_s {
            self.copy()?;
        }
        Ok(())
    }

    fn copy(&mut self) -> Result<(), (Outcome, String)> {
        let Some((copies, shown)) = &mut self.copies else {
            return Ok(());
        };
        let began = Instant::now();
        let updated = copies.update();
        updated.map_err(|error| (Outcome::Errno, format!("copying from the source: {error}")))?;
        let took = began.elapsed().as_micros() as u64;
        shown.clone_from(&self.now);
        // The wait for the copy is that of the schedule; nothing sleeps.
        let due = self.next_copy_s;
        let late = std::mem::take(&mut self.uncopied_s).into_iter();
        let lag: u64 = late.map(|commit_s| (due - commit_s) * 1_000_000 + took).sum();
        self.counts.add(ScoreName::LagUs, lag);
        self.counts.add(ScoreName::Copies, 1);
        self.next_copy_s += self.tasks.copies_every_s;
        Ok(())
    }

    /// The outcome of an answer; counts a stale one.
    fn outcome_of(&mut self, question: &TaskQuestion, answer: Result<String, String>) -> (Outcome, String) {
        let (outcome, reason, is_stale) = self.compared(question, answer);
        if is_stale {
            self.counts.add(ScoreName::StaleAnswers, 1);
        }
        (outcome, reason)
    }

    /// Compares an answer with the reference: of now, or else of what a copy shows, in which case it is stale.
    fn compared(&self, question: &TaskQuestion, answer: Result<String, String>) -> (Outcome, String, bool) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => return (Outcome::Errno, reason, false),
        };
        let expected = self.now.answer(&question.asks);
        if expected.as_ref() == Some(&answer) {
            return (Outcome::Ok, String::new(), false);
        }
        let copied = self.copies.as_ref();
        if copied.and_then(|(_, shown)| shown.answer(&question.asks)) == Some(answer.clone()) {
            return (Outcome::Ok, String::new(), true);
        }
        let expected = expected.unwrap_or_default();
        (Outcome::WrongData, format!("answered {answer:?}, expected {expected:?}"), false)
    }

    /// Makes the last copy, and checks the drafts and the filed mail.
    fn finish(&mut self, root: &Path) -> Result<(), (Outcome, String)> {
        if !self.uncopied_s.is_empty() {
            self.copy()?;
        }
        let questions = self.tasks.questions.iter();
        // A draft has the value that was known when it was written, so the world of each question is rebuilt.
        let mut now = self.tasks.world.clone();
        for question in questions {
            let before = now.draft(&question.asks);
            if let Some(change) = &question.change {
                now.apply(change);
            }
            let Some(draft) = now.draft(&question.asks) else {
                continue;
            };
            let found = match &self.copies {
                Some(_) => copies::drafted(root, &draft)
                    .or_else(|why| before.map_or(Err(why), |old| copies::drafted(root, &old))),
                None => self.writer.drafted(&draft),
            };
            found.map_err(|why| (Outcome::WrongData, why))?;
        }
        Ok(())
    }

    /// The scores of one way to answer; the copies and their lag are those of the pass.
    fn scores(&self, counts: &Counts, definitions: &str) -> BTreeMap<String, Score> {
        let questions = self.tasks.questions.len() as u64;
        // The definitions stand in the prompt of each task: once a task, because a prompt cache serves them again.
        let of_definitions = tokens::count(definitions) * questions;
        let counted = [ScoreName::CallTokens, ScoreName::ResultTokens, ScoreName::Calls, ScoreName::StaleAnswers];
        let counted = counted.map(|name| (name, counts.of(name), questions));
        let lags_us = self.counts.of(ScoreName::LagUs);
        let others =
            [(ScoreName::DefinitionTokens, of_definitions, questions), (ScoreName::LagUs, lags_us, self.changes)];
        // The schedule says how late copies are, not a clock: a report marks it as simulated.
        let copies = self.copies.as_ref();
        let copies = copies.map(|_| (ScoreName::Copies, self.counts.of(ScoreName::Copies), questions));
        let all = counted.into_iter().chain(others).chain(copies);
        all.map(|(name, sum, of)| (name.name().to_owned(), Score { sum, of })).collect()
    }
}

/// The directory of the copied files.
fn copied_to(workspaces: &Workspaces) -> PathBuf {
    workspaces.first.root().join("copied")
}

#[cfg(test)]
mod tests;
