//! What a run of a suite measures of files that a language model makes up: a minute, with the model of `make model`, or
//! with the recording of its answers.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use backends::model_service::{RECORD, RECORDING};
use clap::Parser;
use models::{check_gguf, find_llama_server, find_model};

use super::{Plan, Results, measure};
use crate::cmd::llm::ModelArgs;
use crate::interrupt::Interrupt;

/// The longest answer: what a small model adds after the file must not take the run's time.
pub const ANSWER_TOKENS: u32 = 128;

/// How much of it there is.
pub fn plan() -> Plan {
    Plan {
        lengths: vec![1, 10],
        histories: 1,
        reads: 1,
        seed: 1,
        is_brief: true,
    }
}

/// The options of `ctxbench model-files` that a run uses.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    model: ModelArgs,
}

/// Measures in short, in `scratch`.
///
/// # Errors
/// If a mount cannot be made, or no question is answered.
pub fn brief(scratch: &Path, interrupt: &Interrupt) -> anyhow::Result<Results> {
    let scratch = scratch.join("model-files");
    std::fs::create_dir_all(&scratch)?;
    let live = find_model()
        .and_then(|model| Ok((model, find_llama_server()?)))
        .map_err(anyhow::Error::new)
        .and_then(|(model, _)| Ok(check_gguf(&model, None)?));
    let mut words: Vec<OsString> = vec!["model-files".into()];
    words.push(format!("--answer-tokens={ANSWER_TOKENS}").into());
    match live {
        Ok(()) => {
            words.extend(["--provider", "local"].map(OsString::from));
            if let Some(file) = std::env::var_os(RECORD).filter(|file| !file.is_empty()) {
                words.extend(["--record".into(), file]);
            }
        }
        Err(missing) => {
            eprintln!(
                "no live model: {missing}\n  the recording of an earlier one answers, as slowly as it did"
            );
            let cassette = scratch.join("recording.jsonl");
            std::fs::write(&cassette, RECORDING)?;
            words.extend(["--provider".into(), "cassette".into(), "--cassette".into()]);
            words.push(cassette.into());
            // One at a time, as they were answered.
            words.extend(["--parallel", "1"].map(OsString::from));
        }
    }
    let options = Options::try_parse_from(words).context("options of the model")?;
    measure(&options.model, &plan(), &scratch, interrupt)
}
