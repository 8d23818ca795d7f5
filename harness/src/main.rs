//! `ctxbench`: decides, with evidence, how an LLM agent should hold its context as files.

mod attribute;
mod cell;
mod clock;
mod cmd;
mod environment;
mod fault;
mod fusectl;
mod host;
mod interrupt;
mod lab;
mod model_files;
mod pass;
mod plan;
mod probe;
mod progress;
mod proof;
mod quiet;
mod recall;
mod replay;
mod reporting;
mod run;
mod schedule;
mod scratch;
mod session_contexts;
mod sessions;
mod supervise;
mod system;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    cmd::log_to_stderr();
    let ended = arguments.run();
    backends::s3_service::stop_all();
    backends::model_service::stop_all();
    match ended {
        Ok(code) => code,
        Err(error) => {
            // Where that cannot be written, such as on a disk that has become read-only, there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "ctxbench: {error:#}");
            ExitCode::from(1)
        }
    }
}
