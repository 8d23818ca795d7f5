//! Makes and times the calls of a script: a shell command on the files, or a call of a tool.

use std::path::Path;
use std::time::Duration;

use arms::backend::DomainTools;
use replay::shell;
use serde_json::Value;
use workloads::tasks::command::TaskCommand;
use workloads::tasks::scripts::{Console, call_text, shell_text};

use super::super::calls::{Pass, lengthened};
use crate::clock::Clock;
use crate::system;
use trial::watchdog::Watchdog;

/// The calls of one task.
#[derive(Debug, Default)]
pub(super) struct TaskCalls {
    /// Their service times, in nanoseconds.
    pub(super) took: Vec<u64>,
    /// The texts of calls and results, as a model writes and reads them.
    pub(super) texts: Vec<(String, String)>,
    /// Processor time of the calling thread around them.
    pub(super) cpu: Duration,
}

/// The console of a pass.
pub(super) struct TaskConsole<'a, C> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) clock: &'a C,
    pub(super) watchdog: &'a Watchdog,
    pub(super) root: &'a Path,
    pub(super) tools: Option<&'a mut dyn DomainTools>,
    pub(super) made: TaskCalls,
    /// Why the tools do not answer, if they do not.
    pub(super) failed: Option<String>,
}

impl<C: Clock> TaskConsole<'_, C> {
    fn timed(
        &mut self,
        call: String,
        make: impl FnOnce(&mut Self) -> Result<String, String>,
    ) -> Result<String, String> {
        self.watchdog.enter(2 * self.pass.call_timeout);
        let cpu = system::thread_cpu();
        let started = self.clock.now_ns();
        let result = make(self);
        let ended = lengthened(self.clock, started, self.clock.now_ns(), self.pass.slowed_percent);
        self.made.cpu += system::thread_cpu().saturating_sub(cpu);
        self.watchdog.leave();
        self.made.took.push(ended.saturating_sub(started));
        let text = match &result {
            Ok(text) | Err(text) => text.clone(),
        };
        self.made.texts.push((call, text));
        result
    }
}

impl<C: Clock> Console for TaskConsole<'_, C> {
    fn shell(&mut self, command: &TaskCommand) -> Result<String, String> {
        let text = shell_text(command);
        self.timed(text, |console| shell::perform(console.root, command))
    }

    fn tool(&mut self, name: &str, arguments: Value) -> Result<String, String> {
        let text = call_text(name, &arguments);
        self.timed(text, |console| match &mut console.tools {
            None => Err(format!("there is no tool {name}")),
            Some(tools) => tools.call(name, &arguments).unwrap_or_else(|error| {
                console.failed = Some(error.to_string());
                Err(error.to_string())
            }),
        })
    }
}
