//! The command line. Each module is one command.

mod busy;
mod claims;
mod compare;
mod conform;
mod decide;
mod doctor;
mod fault;
mod fault_agent;
mod format;
#[cfg(test)]
mod format_tests;
mod headline;
mod list;
mod mcp;
mod memory_note;
mod merge;
mod mount;
mod mount_daemon;
mod pool;
mod report;
mod reproduce;
mod run;
mod s3;
mod shell;
mod sql_worker;
mod status;
mod submit;
mod tokens;
mod trace;
mod try_session;
mod unmount;
mod verify;
mod with_parent;
mod worker;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use backends::registry::Registry;
use clap::{Parser, Subcommand};
use fuse::daemon_log;
use tracing_subscriber::EnvFilter;

use crate::signals::end_process_at_signals;

/// Measure ways to keep an LLM agent's context as files, and decide between them.
#[derive(Debug, Parser)]
#[command(name = "ctxbench", version = crate::environment::BUILD, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Try(Box<try_session::TrySession>),
    Reproduce(Box<reproduce::Reproduce>),
    Report(report::Report),
    Decide(decide::Decide),
    Claims(claims::Claims),
    Compare(compare::Compare),
    Verify(verify::Verify),
    Submit(submit::Submit),
    Merge(merge::Merge),
    List(list::List),
    Doctor(doctor::Doctor),
    Mcp(mcp::Mcp),
    Remember(memory_note::Remember),
    Recall(memory_note::Recall),
    Mount(Box<mount::Mount>),
    #[command(hide = true)]
    WithParent(with_parent::WithParent),
    Conform(conform::Conform),
    #[command(hide = true)]
    Worker(worker::Worker),
    #[command(hide = true)]
    SqlWorker(sql_worker::SqlWorker),
    Fault(fault::Fault),
    #[command(hide = true)]
    FaultAgent(fault_agent::FaultAgent),
    #[command(hide = true)]
    Busy(busy::Busy),
    Status(status::Status),
    Unmount(unmount::Unmount),
    S3(s3::S3),
    #[command(hide = true)]
    Completions(shell::Completions),
    Trace(trace::TraceCommand),
    Tokens(tokens::Tokens),
}

impl Arguments {
    /// Whether the log goes to a file.
    pub fn has_log_file(&self) -> bool {
        matches!(&self.command, Command::Mount(mount) if mount.log.is_some())
    }

    /// Whether the command only reads and computes, and can end at any point.
    fn only_reports(&self) -> bool {
        matches!(
            self.command,
            Command::Report(_)
                | Command::Decide(_)
                | Command::Claims(_)
                | Command::Compare(_)
                | Command::Verify(_)
                | Command::Submit(_)
                | Command::Merge(_)
                | Command::Tokens(_)
                | Command::Trace(_)
        )
    }

    /// Runs the command and returns its exit code.
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        if self.only_reports() {
            end_process_at_signals().context("setting up signal handling")?;
        }
        match self.command {
            Command::Run(run) => run.run(registry),
            Command::Try(session) => session.run(registry),
            Command::Reproduce(reproduce) => reproduce.run(registry),
            Command::Report(report) => report.run(),
            Command::Decide(decide) => decide.run(),
            Command::Claims(claims) => claims.run(registry),
            Command::Compare(compare) => compare.run(),
            Command::Verify(verify) => verify.run(),
            Command::Submit(submit) => submit.run(),
            Command::Merge(merge) => merge.run(),
            Command::List(list) => list.run(registry),
            Command::Doctor(doctor) => doctor.run(registry),
            Command::Mcp(mcp) => mcp.run(registry),
            Command::Remember(remember) => remember.run(),
            Command::Recall(recall) => recall.run(),
            Command::Mount(mount) => mount.run(),
            Command::WithParent(with) => with.run(),
            Command::Conform(conform) => conform.run(registry),
            Command::Worker(worker) => worker.run(),
            Command::SqlWorker(worker) => worker.run(),
            Command::Fault(fault) => fault.run(registry),
            Command::FaultAgent(agent) => agent.run(),
            Command::Busy(busy) => busy.run(),
            Command::Unmount(unmount) => unmount.run(),
            Command::S3(s3) => s3.run(),
            Command::Status(status) => status.run(),
            Command::Completions(completions) => completions.run(),
            Command::Trace(trace) => trace.run(),
            Command::Tokens(tokens) => tokens.run(),
        }
    }
}

/// Warnings and errors go to standard error, or to the file of `mount --log`; `CTXBENCH_LOG` sets another level, as in
/// `debug`.
pub fn start_log(has_file: bool) {
    // fuser logs normal events, too. `fuser` warns of a request that it does not implement. `reply` reports an
    // error for a reply to an interrupted call. `session` warns if `fusermount3 -u` unmounted before us.
    let usual = || EnvFilter::new("warn,fuser=error,fuser::mnt=warn,fuser::reply=off");
    let asked = inputs::variable("CTXBENCH_LOG").map(EnvFilter::try_new);
    let (levels, refused) = match asked {
        None => (usual(), None),
        Some(Ok(levels)) => (levels, None),
        Some(Err(error)) => (usual(), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(levels)
        .with_writer(|| daemon_log::LogSink)
        // No colours in a log file.
        .with_ansi(!has_file && std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // Reporting a failed log write on that log panics: a full disk under a log would end the mount.
        .log_internal_errors(false)
        .init();
    if let Some(error) = refused {
        tracing::warn!("CTXBENCH_LOG is ignored: {error}; give levels, as in `debug` or `warn,sqlite=trace`");
    }
}
