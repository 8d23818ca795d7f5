//! The forms in which commands print what they found.

use clap::ValueEnum;
use serde::Serialize;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Tables for the terminal.
    Text,
    /// A page or a comment, as for a pull request.
    Markdown,
    /// For programs.
    Json,
}

/// A form of output of commands whose result is no page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScreenFormat {
    /// For the terminal.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Prints a document. Its type has an entry in `format_tests`.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}

impl ScreenFormat {
    /// Prints what was found in this form.
    pub fn print(self, text: impl FnOnce() -> String, json: &impl Serialize) -> anyhow::Result<()> {
        match self {
            ScreenFormat::Text => print!("{}", text()),
            ScreenFormat::Json => print_json(json)?,
        }
        Ok(())
    }
}

impl OutputFormat {
    /// Prints what was found in this form.
    pub fn print(
        self,
        text: impl FnOnce() -> String,
        markdown: impl FnOnce() -> String,
        json: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self {
            OutputFormat::Text => print!("{}", text()),
            OutputFormat::Markdown => print!("{}", markdown()),
            OutputFormat::Json => print_json(json)?,
        }
        Ok(())
    }
}
