//! `ctxbench with-parent`: runs a program that must not outlive its parent process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

/// Become PROGRAM, which the kernel kills when the parent ends.
#[derive(Debug, Args)]
pub struct WithParent {
    /// The process that wants it.
    parent: u32,
    /// The program.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl WithParent {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let error = servers::exec_bound_to_parent(self.parent, &self.program, &self.arguments);
        Err(error).with_context(|| format!("starting {}", self.program.display()))
    }
}
