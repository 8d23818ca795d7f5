//! `ctxbench`: decides, with evidence, how an LLM agent should hold its context as files.

// The standard library's panic when the reader of standard output is gone.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}
macro_rules! println {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprintln {
    () => { $crate::output::write_message(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write_message(format_args!("{}\n", format_args!($($text)*))) };
}

mod advice;
mod built_in_names;
mod cmd;
mod crash_words;
mod environment;
mod error_text;
mod eval_archive;
mod evidence;
mod fusectl;
mod history;
mod model_files;
mod model_options;
mod named_backends;
mod opencode_sessions;
mod output;
mod progress;
mod progress_line;
mod reporting;
mod results_bucket;
mod session_contexts;
mod session_files;
mod sessions;
mod shell_word;
mod signals;

use std::process::ExitCode;

use backends::registry::Registry;
use clap::Parser;
use fuse::daemon_log;
use trial::interrupt::accept_signals;

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    // After an error, the inherited mask and disposition stay.
    let _ = accept_signals();
    let arguments = cmd::Arguments::parse();
    cmd::start_log(arguments.has_log_file());
    let registry = Registry::default();
    let ended = arguments.run(&registry);
    registry.services().stop();
    let code = match ended {
        Ok(_) if output::has_failed() => ExitCode::from(1),
        Ok(code) => code,
        Err(error) => {
            daemon_log::say(format_args!("ctxbench: {}", error_text::words(&error)));
            ExitCode::from(1)
        }
    };
    daemon_log::finish();
    code
}
