//! Files that a language model makes up.

use rundir::{MODEL_FILES, ModelFiles, MountedModel};
use serde::Deserialize;
use stats::{LEVEL, share_interval};

use super::{ArmReading, Evidence, Gap, MeasureResult, matches, missing, pooled};

/// The candidate that makes up files from their paths.
pub(super) const GENERATE: &str = "llm-generate";
/// The candidate that makes up files from the history of writes.
pub(super) const HISTORY: &str = "llm-history";

/// The least parameters of a model whose files say something of what people would use.
const CAPABLE: f64 = 7e9;

/// The command that asks a model by its provider's interface.
const WITH_A_KEY: &str =
    "CTXBENCH_MODEL_URL=… CTXBENCH_MODEL_NAME=… CTXBENCH_API_KEY=… ctxbench run --suite model-files";

/// The number of parameters that a model's name states: `135M`, `0.5b`. `None` if it states none.
fn smallest_in_name(model: &str) -> Option<f64> {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let sizes = words.filter_map(|word| {
        let (number, unit) = word.split_at_checked(word.len().checked_sub(1)?)?;
        let unit = match unit {
            "M" | "m" => 1e6,
            "B" | "b" => 1e9,
            _ => return None,
        };
        Some(number.parse::<f64>().ok()? * unit)
    });
    sizes.reduce(f64::min)
}

/// A figure of made-up files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileFigure {
    /// Share of imports in made-up files that name a file of the tree.
    Plausible,
    /// Share of second reads that return the same bytes.
    Consistent,
    /// Share of written files that are read back exactly.
    Exact,
    /// Tools that fail.
    FailedSteps,
    /// Prompt and output tokens over output tokens: the cost of a made-up file over that of a written one.
    TokensOverWriting,
    /// Seconds for a made-up file.
    SecondsAFile,
    /// Questions to the model in a step.
    Calls,
    /// Milliseconds of a step.
    StepMs,
    /// Share of byte-exact reads after a number of operations.
    ExactReads,
    /// Milliseconds of an answer after a number of operations.
    AnswerMs,
    /// The time of reading a made-up file again over that of reading one of `memory`.
    Reread,
}

/// See [`super::Measure::ModelFiles`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMeasure {
    pub figure: FileFigure,
    /// The step, as `model-files.json` names it, for `calls` and `step-ms`.
    pub step: Option<String>,
    /// The number of operations in the history, for `exact-reads` and `answer-ms`.
    pub operations: Option<u32>,
}

impl FileMeasure {
    pub(super) fn kind(&self) -> &'static str {
        match self.figure {
            FileFigure::Plausible | FileFigure::Consistent | FileFigure::Exact | FileFigure::ExactReads => "share",
            FileFigure::FailedSteps => "steps",
            FileFigure::TokensOverWriting | FileFigure::Reread => "times",
            FileFigure::SecondsAFile => "seconds",
            FileFigure::Calls => "calls",
            FileFigure::StepMs | FileFigure::AnswerMs => "ms",
        }
    }

    /// The field that the figure needs and lacks, or has and does not take.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let of_step = matches!(self.figure, FileFigure::Calls | FileFigure::StepMs);
        let of_length = matches!(self.figure, FileFigure::ExactReads | FileFigure::AnswerMs);
        let fields = [("step", of_step, self.step.is_some()), ("operations", of_length, self.operations.is_some())];
        let mut wrong = fields.into_iter().filter(|(_, needs, has)| needs != has);
        let (field, needs, _) = wrong.next()?;
        let message =
            if needs { format!("this figure needs `{field}`") } else { format!("this figure does not take `{field}`") };
        Some((field, message))
    }

    /// Whether it says how useful the files are, which depends on the model. Counts and times of the mount do not.
    fn needs_capable_model(&self) -> bool {
        !matches!(
            self.figure,
            FileFigure::Calls | FileFigure::StepMs | FileFigure::ExactReads | FileFigure::AnswerMs | FileFigure::Reread
        )
    }
}

impl Evidence<'_> {
    /// The made-up files of an arm, of each run that has some.
    fn made_up(&self, arm: &str) -> Vec<(&ModelFiles, &MountedModel)> {
        let found = self.runs.iter().filter_map(|run| run.model_files());
        let is = |name: &str| matches(&format!("{name}*"), arm);
        match (is(GENERATE), is(HISTORY)) {
            (true, _) => found.map(|found| (found, &found.generate)).collect(),
            (_, true) => found.map(|found| (found, &found.history)).collect(),
            _ => Vec::new(),
        }
    }

    /// The tools that used the made-up files of an arm, and how many of them `timeout` ended.
    pub(super) fn barring_steps(&self, arm: &str) -> Option<(u64, u64)> {
        const ENDED: [&str; 2] = ["exit status: 124", "exit status: 137"];
        let of_runs = self.made_up(arm);
        let steps = || of_runs.iter().flat_map(|(_, mounted)| &mounted.steps);
        let hung = steps().filter(|step| ENDED.contains(&step.outcome.as_str()));
        (!of_runs.is_empty()).then(|| (steps().count() as u64, hung.count() as u64))
    }

    /// Why the model of these files decides nothing; `None` for a capable one.
    fn incapable_because(found: &ModelFiles) -> Option<String> {
        let Some(smallest) = smallest_in_name(&found.model) else {
            return Some(format!("the name {:?} states no number of parameters, such as 70B", found.model));
        };
        (smallest < CAPABLE).then(|| format!("{} ({} million parameters) is too small", found.model, smallest / 1e6))
    }

    pub(super) fn model_files(&self, measure: &FileMeasure, arm: &str) -> MeasureResult {
        let of_runs = self.made_up(arm).into_iter();
        let found = of_runs.map(|(found, mounted)| Self::model_files_of(measure, arm, found, mounted));
        let mut others = Vec::new();
        let readings = found.filter_map(|found| found.value().map_err(|other| others.push(other)).ok());
        let readings: Vec<ArmReading> = readings.collect();
        let reading = match measure.figure {
            // A tool that failed in one run has failed, whatever the others say.
            FileFigure::FailedSteps => readings.into_iter().max_by(ArmReading::order),
            _ => pooled(readings),
        };
        match reading {
            Some(reading) => MeasureResult::Value(reading),
            None => others.into_iter().next().unwrap_or_else(|| files_gap("made-up files", arm)),
        }
    }

    /// The figure of the files of one run.
    fn model_files_of(measure: &FileMeasure, arm: &str, found: &ModelFiles, mounted: &MountedModel) -> MeasureResult {
        let gap = |what: &str| files_gap(what, arm);
        if measure.needs_capable_model()
            && let Some(why) = Self::incapable_because(found)
        {
            return MeasureResult::Missing(Gap::of_need("needs a capable model", &why, WITH_A_KEY));
        }
        let share = |pairs: Vec<(u64, u64)>| -> Option<(f64, String)> {
            let add = |sum: (u64, u64), pair: &(u64, u64)| (sum.0 + pair.0, sum.1 + pair.1);
            let (part, all) = pairs.iter().fold((0, 0), add);
            (all > 0).then(|| (part as f64 / all as f64, format!("{part} of {all}")))
        };
        let asked = mounted.steps.iter().filter(|step| step.calls > 0);
        let calls: u64 = asked.clone().map(|step| step.calls).sum();
        // Its counts are exact. Its times are those of the model when it was recorded.
        if measure.kind() == "ms" && found.origin != "live" {
            let origin = &found.origin;
            return MeasureResult::Void(format!("times of a model that is {origin} settle nothing"));
        }
        let step = || {
            let mut steps = mounted.steps.iter();
            steps.find(|step| Some(&step.what) == measure.step.as_ref())
        };
        let at_length = || {
            let mut lengths = found.fidelity.iter();
            lengths.find(|length| Some(length.operations) == measure.operations)
        };
        let source = format!("{}, {}", found.model, found.origin);
        let reading = match measure.figure {
            FileFigure::Calls => step().map(|step| {
                let words = format!("{} questions to the model for {:?}", step.calls, step.what);
                (step.calls as f64, words)
            }),
            FileFigure::StepMs => step().map(|step| {
                let ms = step.seconds * 1e3;
                (ms, format!("{ms:.2} ms for {:?}", step.what))
            }),
            FileFigure::AnswerMs => {
                let at = at_length().filter(|length| length.calls > 0);
                at.map(|at| {
                    let words = format!("{:.1} ms an answer", at.answer_ms);
                    let words = format!("{words} after {} operations", at.operations);
                    (at.answer_ms, words)
                })
            }
            FileFigure::ExactReads => {
                let Some(at) = at_length().filter(|length| !length.reads.is_empty()) else {
                    return gap("reads after so many operations");
                };
                let exact = at.reads.iter().filter(|read| read.is_exact).count() as u64;
                let (all, operations) = (at.reads.len() as u64, at.operations);
                let ends = share_interval(exact, all, 1.0 - LEVEL);
                let words = format!("{exact} of {all} reads exact after {operations} operations; {source}");
                return MeasureResult::Value(ArmReading {
                    low: ends.low,
                    high: ends.high,
                    ..ArmReading::exact(exact as f64 / all as f64, words, MODEL_FILES)
                });
            }
            FileFigure::Reread => {
                let Some((ratio, low, high)) = found.memory_ratio else {
                    return gap("a made-up file read again");
                };
                let words = format!("a made-up file read again over a file of memory; {source}");
                return MeasureResult::Value(ArmReading { low, high, ..ArmReading::exact(ratio, words, MODEL_FILES) });
            }
            FileFigure::Plausible => share(vec![plausible_imports(mounted)]),
            FileFigure::Consistent => {
                let checks = mounted.consistency.iter();
                let again = checks.filter(|(what, _)| what.starts_with("the same path"));
                share(again.filter_map(|(_, result)| of(result)).collect())
            }
            FileFigure::Exact => {
                mounted.session_reads.and_then(|(reads, exact)| share(vec![(exact.into(), reads.into())]))
            }
            FileFigure::FailedSteps => {
                let failed = mounted.steps.iter().filter(|step| step.outcome != "ok");
                let failed = failed.count();
                let all = mounted.steps.len();
                (all > 0).then(|| (failed as f64, format!("{failed} of {all} tools failed")))
            }
            FileFigure::TokensOverWriting => {
                let prompt: u64 = asked.clone().map(|step| step.prompt_tokens).sum();
                let output: u64 = asked.clone().map(|step| step.output_tokens).sum();
                (output > 0).then(|| {
                    let words = format!("{prompt} prompt and {output} output tokens for {calls} files");
                    ((prompt + output) as f64 / output as f64, words)
                })
            }
            FileFigure::SecondsAFile => {
                let seconds: f64 = asked.map(|step| step.seconds).sum();
                let words = format!("{seconds:.1} s for {calls} files");
                (calls > 0).then(|| (seconds / calls as f64, words))
            }
        };
        let Some((value, words)) = reading else {
            return gap("a figure of made-up files");
        };
        MeasureResult::exact(value, format!("{words}; {source}"), MODEL_FILES)
    }
}

fn files_gap(what: &str, arm: &str) -> MeasureResult {
    let command = "ctxbench run --suite model-files".to_owned();
    missing(format!("{what} of {arm}"), command)
}

/// Imports in made-up files that name a file of the tree, and all imports. The check reads `45 imports in the Python
/// files, 0 of them of a file that is listed`.
fn plausible_imports(mounted: &MountedModel) -> (u64, u64) {
    let checks = mounted.consistency.iter();
    let listed = checks.filter(|(what, _)| what.starts_with("listing against"));
    let numbers = listed.map(|(_, result)| {
        let words = result.split_whitespace();
        let numbers = words.filter_map(|word| word.parse::<u64>().ok());
        numbers.collect::<Vec<_>>()
    });
    numbers.fold((0, 0), |sum, numbers| match numbers[..] {
        [all, plausible, ..] => (sum.0 + plausible, sum.1 + all),
        _ => sum,
    })
}

/// The numbers of a result such as `4 of 4`.
fn of(result: &str) -> Option<(u64, u64)> {
    let mut words = result.split([' ', ';']);
    let part = words.next()?.parse().ok()?;
    (words.next()? == "of").then_some(())?;
    Some((part, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_says_how_small_it_is() {
        for (model, size) in [
            ("SmolLM2-135M-Instruct-Q4_K_M.gguf", Some(135e6)),
            ("qwen2.5-0.5b", Some(0.5e9)),
            ("llama-3.3-70B-instruct", Some(70e9)),
            ("claude-opus-5-5", None),
            ("", None),
        ] {
            assert_eq!(smallest_in_name(model), size, "{model}");
        }
    }
}
