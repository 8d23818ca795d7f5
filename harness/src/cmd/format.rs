//! The forms in which commands print what they found.

use clap::ValueEnum;
use serde::Serialize;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for the terminal.
    Text,
    /// A page or a comment, as for a pull request.
    Markdown,
    /// For programs.
    Json,
}

impl Format {
    /// Prints what was found in this form.
    pub fn print(
        self,
        text: impl FnOnce() -> String,
        markdown: impl FnOnce() -> String,
        json: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self {
            Format::Text => print!("{}", text()),
            Format::Markdown => print!("{}", markdown()),
            Format::Json => println!("{}", serde_json::to_string_pretty(json)?),
        }
        Ok(())
    }
}
