//! Shell completions, manual pages and the page of all commands, generated from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::{Shell, generate};

use super::Arguments;

/// Print a shell's completions or the help of all commands, or write manual pages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench completions bash > ~/.local/share/bash-completion/completions/ctxbench
  ctxbench completions --man ~/.local/share/man/man1
  ctxbench completions --markdown > commands.md")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, required_unless_present_any = ["man", "markdown"])]
    shell: Option<Shell>,
    /// Write a manual page for each command into this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
    /// Print the help of all commands as one page of Markdown instead.
    #[arg(long, conflicts_with_all = ["shell", "man"])]
    markdown: bool,
}

/// Columns of the help texts on the page of all commands.
const COLUMNS: usize = 140;

/// The help of a command and of those below it, each under a heading.
fn help_of(command: &mut Command, page: &mut String) {
    let help = command.render_long_help().to_string();
    let name = command.get_bin_name().unwrap_or("ctxbench");
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    *page += &format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    let below = command.get_subcommands_mut();
    for command in below.filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        help_of(command, page);
    }
}

/// The page of all commands.
fn markdown() -> String {
    let mut command = Arguments::command().term_width(COLUMNS);
    command.build();
    let mut page =
        "# Commands\n\nThe help of each command; `ctxbench completions --markdown` writes this page.\n".to_owned();
    help_of(&mut command, &mut page);
    page
}

impl Completions {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut command = Arguments::command();
        let mut out = std::io::stdout();
        if self.markdown {
            let page = markdown();
            out.write_all(page.as_bytes()).context("writing to standard output")?;
        } else if let Some(dir) = &self.man {
            let at = dir.display();
            std::fs::create_dir_all(dir).with_context(|| format!("making {at}"))?;
            clap_mangen::generate_to(command, dir).with_context(|| format!("writing into {at}"))?;
            println!("{at}: see `man ctxbench` and `man ctxbench-run`");
        } else if let Some(shell) = self.shell {
            let mut script = Vec::new();
            generate(shell, &mut command, "ctxbench", &mut script);
            out.write_all(&script).context("writing to standard output")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
