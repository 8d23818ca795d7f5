//! Chooses the model of a run: the user's, the one of `make model`, or a recording of its answers.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use arms::services::model::{RECORD, RECORDING};
use clap::Parser;
use models::{check_gguf, find_llama_server, find_model};
use rundir::{ModelFiles, ModelFilesPlan};

use super::measure;
use crate::model_options::ModelOptions;
use trial::interrupt::Interrupt;

/// The longest answer of a brief measurement, in tokens: text that a small model adds after the file costs time.
const BRIEF_ANSWER_TOKENS: u32 = 128;

/// The options of a model, as on the command line.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    model: ModelOptions,
}

/// Measures the model files that a run plans, in `scratch`.
/// Fails if the model answers no question.
pub fn measure_for(
    plan: &ModelFilesPlan,
    asked: &ModelOptions,
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<ModelFiles> {
    let scratch = scratch.join("model-files");
    std::fs::create_dir_all(&scratch)?;
    let mut model = if asked.names_a_model() { asked.clone() } else { at_hand(&scratch)? };
    if plan.is_brief {
        model.answer_tokens = Some(model.answer_tokens().min(BRIEF_ANSWER_TOKENS));
    }
    measure(&model, plan, &scratch, interrupt)
}

/// The model of `make model`, or the recording of its answers.
fn at_hand(scratch: &Path) -> anyhow::Result<ModelOptions> {
    let live = find_model()
        .and_then(|model| Ok((model, find_llama_server()?)))
        .map_err(anyhow::Error::new)
        .and_then(|(model, _)| Ok(check_gguf(&model, None)?));
    let mut words: Vec<OsString> = vec!["run".into()];
    match live {
        Ok(()) => {
            words.extend(["--provider", "local"].map(OsString::from));
            if let Some(file) = std::env::var_os(RECORD).filter(|file| !file.is_empty()) {
                words.extend(["--record".into(), file]);
            }
        }
        Err(missing) => {
            eprintln!("no live model: {missing}\n  recorded answers are replayed instead, at the recorded speed");
            let cassette = scratch.join("recording.jsonl");
            std::fs::write(&cassette, RECORDING)?;
            words.extend(["--provider".into(), "cassette".into(), "--cassette".into()]);
            words.push(cassette.into());
            // The recorded answers came one at a time.
            words.extend(["--parallel", "1"].map(OsString::from));
        }
    }
    let options = Options::try_parse_from(words).context("options of the model")?;
    Ok(options.model)
}
