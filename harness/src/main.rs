//! `ctxbench`: decides, with evidence, how an LLM agent should hold its context as files.

mod cmd;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    cmd::log_to_stderr();
    match arguments.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ctxbench: {error:#}");
            ExitCode::from(1)
        }
    }
}
