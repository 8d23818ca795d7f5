//! The command line: one file a verb.

mod bucket;
mod busy;
mod calibrate;
mod check_store;
mod claims;
mod conform;
mod decide;
mod doctor;
mod fault;
mod fault_agent;
mod list;
pub mod llm;
mod load;
mod load_worker;
mod model_files;
mod mount;
mod pool;
mod recall;
mod report;
mod reproduce;
mod run;
mod s3;
mod serve;
mod sync;
mod tokens;
mod trace;
mod unmount;
mod versions;
mod with_parent;

use std::io::IsTerminal;
use std::process::ExitCode;

use backends::daemon_log;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Decides, with evidence, how an LLM agent should hold its context as files.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Reproduce(Box<reproduce::Reproduce>),
    Pool(pool::Pool),
    Report(report::Report),
    Decide(decide::Decide),
    Claims(claims::Claims),
    List(list::List),
    Doctor(doctor::Doctor),
    Calibrate(calibrate::Calibrate),
    Mount(Box<mount::Mount>),
    #[command(name = "serve-s3")]
    ServeS3(serve::ServeS3),
    #[command(hide = true)]
    WithParent(with_parent::WithParent),
    Conform(conform::Conform),
    Load(load::Load),
    #[command(hide = true)]
    LoadWorker(load_worker::LoadWorker),
    Fault(fault::Fault),
    #[command(hide = true)]
    FaultAgent(fault_agent::FaultAgent),
    #[command(hide = true)]
    Busy(busy::Busy),
    Bucket(bucket::Bucket),
    Recall(recall::Recall),
    Sync(sync::Sync),
    Unmount(unmount::Unmount),
    Versions(versions::Versions),
    CheckStore(check_store::CheckStore),
    ModelFiles(model_files::ModelFiles),
    Trace(trace::TraceVerb),
    Tokens(tokens::Tokens),
}

impl Arguments {
    /// Runs the verb; the exit code is its own where it has one.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Run(run) => run.run(),
            Verb::Reproduce(reproduce) => reproduce.run(),
            Verb::Pool(pool) => pool.run(),
            Verb::Report(report) => report.run(),
            Verb::Decide(decide) => decide.run(),
            Verb::Claims(claims) => claims.run(),
            Verb::List(list) => list.run(),
            Verb::Doctor(doctor) => doctor.run(),
            Verb::Calibrate(calibrate) => calibrate.run(),
            Verb::Mount(mount) => mount.run(),
            Verb::ServeS3(serve) => serve.run(),
            Verb::WithParent(with) => with.run(),
            Verb::Conform(conform) => conform.run(),
            Verb::Load(load) => load.run(),
            Verb::LoadWorker(worker) => worker.run(),
            Verb::Fault(fault) => fault.run(),
            Verb::FaultAgent(agent) => agent.run(),
            Verb::Busy(busy) => busy.run(),
            Verb::Bucket(bucket) => bucket.run(),
            Verb::Recall(recall) => recall.run(),
            Verb::Sync(sync) => sync.run(),
            Verb::Unmount(unmount) => unmount.run(),
            Verb::Versions(versions) => versions.run(),
            Verb::CheckStore(check) => check.run(),
            Verb::ModelFiles(files) => files.run(),
            Verb::Trace(trace) => trace.run(),
            Verb::Tokens(tokens) => tokens.run(),
        }
    }
}

/// Warnings and errors go to standard error; `CTXBENCH_LOG` sets another level, as in `debug`.
pub fn log_to_stderr() {
    // fuser logs normal events too: a request that it does not implement (a warning of `fuser` itself), a reply to an
    // interrupted call (an error of `reply`), and `fusermount3 -u` before us (a warning of `session`).
    let filter = EnvFilter::try_from_env("CTXBENCH_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,fuser=error,fuser::mnt=warn,fuser::reply=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| daemon_log::Stderr)
        // A daemon's log is a file.
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // It would tell of a log that cannot be written on that same log, and panic: a full disk under the log of a
        // mount would end the mount.
        .log_internal_errors(false)
        .init();
}
