//! Shell completions and manual pages, generated from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Arguments;

/// Print a shell's completions, or write manual pages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench completions bash > ~/.local/share/bash-completion/completions/ctxbench
  ctxbench completions --man ~/.local/share/man/man1")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write a manual page for each command into this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

impl Completions {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut command = Arguments::command();
        if let Some(dir) = &self.man {
            let at = dir.display();
            std::fs::create_dir_all(dir).with_context(|| format!("making {at}"))?;
            clap_mangen::generate_to(command, dir).with_context(|| format!("writing into {at}"))?;
            println!("{at}: see `man ctxbench` and `man ctxbench-run`");
        } else if let Some(shell) = self.shell {
            let mut script = Vec::new();
            generate(shell, &mut command, "ctxbench", &mut script);
            let mut out = std::io::stdout();
            out.write_all(&script)
                .context("writing to standard output")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
