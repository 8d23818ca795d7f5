//! Files that a language model makes up: `model-files.json`.

use rundir::{ModelFiles, MountedModel};
use serde::Deserialize;
use stats::Interval;

use super::cells::percent_interval;
use super::finding::{Finding, Test};
use super::range::Unit;
use crate::evidence::RunEvidence;
use crate::measure::plausible_imports;

/// A figure of model-generated files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTest {
    figure: ModelFigure,
    /// The mount: `history` or `generate`, for figures of a step or a session.
    mount: Option<ModelMount>,
    /// The step, as `model-files.json` names it, for `calls` and `time`.
    step: Option<String>,
    /// The number of operations in the history, for `exact-reads` and `answer`.
    operations: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModelMount {
    History,
    Generate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModelFigure {
    /// Questions to the model in a step.
    Calls,
    /// The duration of a step.
    Time,
    /// Byte-exact reads after a number of operations.
    ExactReads,
    /// The mean time of an answer after a number of operations.
    Answer,
    /// Questions that got the same answer twice.
    EqualAnswers,
    /// Imports in made-up files that name a file of the tree.
    Plausible,
    /// Reading a generated file again over reading one of `memory`.
    Reread,
    /// A short session on the mount over one in a plain directory.
    Session,
}

impl Test for ModelTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let Some(found) = run.model_files() else {
            return Finding::Missing(
                "this run has no results about files of a language model".to_owned(),
            );
        };
        let Some((value, interval, words)) = self.value(found) else {
            return Finding::Missing(format!("this run did not measure {}", self.words()));
        };
        let words = format!("{words}; {} by {}", found.origin, found.model);
        // Counts of a recording are exact. Its times are those of the model when it was recorded.
        let is_time = matches!(self.unit(), Unit::Ms | Unit::Times);
        match is_time && self.figure != ModelFigure::Reread {
            true if found.origin != "live" => Finding::Open {
                words: format!("{words}: times of a recording settle nothing"),
                is_final: false,
            },
            _ => Finding::Value {
                value,
                interval,
                words,
                is_published: false,
            },
        }
    }

    fn units(&self) -> Vec<Unit> {
        vec![self.unit()]
    }

    fn check(&self) -> Result<(), String> {
        let of_step = matches!(self.figure, ModelFigure::Calls | ModelFigure::Time);
        let of_mount =
            of_step || matches!(self.figure, ModelFigure::Session | ModelFigure::Plausible);
        let of_length = matches!(self.figure, ModelFigure::ExactReads | ModelFigure::Answer);
        let fields = [
            ("mount", of_mount, self.mount.is_some()),
            ("step", of_step, self.step.is_some()),
            ("operations", of_length, self.operations.is_some()),
        ];
        for (field, is_needed, is_there) in fields {
            if is_needed != is_there {
                let what = match is_needed {
                    true => "needs",
                    false => "does not take",
                };
                return Err(format!("`model`: this figure {what} `{field}`"));
            }
        }
        Ok(())
    }

    fn command(&self) -> String {
        "make model-files".to_owned()
    }
}

impl ModelTest {
    fn mounted<'a>(&self, found: &'a ModelFiles) -> Option<&'a MountedModel> {
        Some(match self.mount? {
            ModelMount::History => &found.history,
            ModelMount::Generate => &found.generate,
        })
    }

    /// The value, its interval unless it is exact, and both in words.
    fn value(&self, found: &ModelFiles) -> Option<(f64, Option<Interval>, String)> {
        let step = || {
            let steps = &self.mounted(found)?.steps;
            let step = self.step.as_ref()?;
            steps.iter().find(|asked| asked.what == *step)
        };
        let at_length = || {
            let mut lengths = found.fidelity.iter();
            lengths.find(|length| Some(length.operations) == self.operations)
        };
        let words = self.words();
        let (value, words) = match self.figure {
            ModelFigure::Calls => {
                let calls = step()?.calls;
                (calls as f64, format!("{calls} {words}"))
            }
            ModelFigure::Time => {
                let ms = step()?.seconds * 1e3;
                (ms, format!("{ms:.2} ms, {words}"))
            }
            ModelFigure::ExactReads => {
                let reads = &at_length()?.reads;
                let exact = reads.iter().filter(|read| read.is_exact).count();
                return share(exact as u64, reads.len() as u64, &words);
            }
            ModelFigure::Answer => {
                let at = at_length().filter(|length| length.calls > 0)?;
                (at.answer_ms, format!("{:.1} ms, {words}", at.answer_ms))
            }
            ModelFigure::EqualAnswers => {
                let repeats = &found.repeats;
                return share(repeats.equal.into(), repeats.asked_twice.into(), &words);
            }
            ModelFigure::Plausible => {
                let (plausible, all) = plausible_imports(self.mounted(found)?);
                return share(plausible, all, &words);
            }
            ModelFigure::Reread => {
                let (ratio, low, high) = found.memory_ratio?;
                let words = format!("×{ratio:.2} [{low:.2}, {high:.2}], {words}");
                return Some((ratio, Some(Interval { low, high }), words));
            }
            ModelFigure::Session => {
                let session = self.mounted(found)?.session;
                let (mounted, plain) = session.filter(|(_, plain)| *plain > 0.0)?;
                let words = format!(
                    "×{:.1}: {mounted:.2} s against {plain:.4} s, {words}",
                    mounted / plain
                );
                (mounted / plain, words)
            }
        };
        Some((value, None, words))
    }

    fn words(&self) -> String {
        let mount = match self.mount {
            Some(ModelMount::Generate) => "llm-generate",
            Some(ModelMount::History) | None => "llm-history",
        };
        let step = self.step.as_deref().unwrap_or_default();
        let operations = self.operations.unwrap_or_default();
        match self.figure {
            ModelFigure::Calls => format!("questions to the model for {step:?} on {mount}"),
            ModelFigure::Time => format!("the time of {step:?} on {mount}"),
            ModelFigure::ExactReads => {
                format!("reads were byte-exact after {operations} operations on {mount}")
            }
            ModelFigure::Answer => format!("an answer after {operations} operations on {mount}"),
            ModelFigure::EqualAnswers => "questions got the same answer twice".to_owned(),
            ModelFigure::Plausible => {
                format!("imports in made-up files name a file of the tree on {mount}")
            }
            ModelFigure::Reread => "a generated file read again over a file of memory".to_owned(),
            ModelFigure::Session => format!("a short session on {mount}"),
        }
    }

    fn unit(&self) -> Unit {
        match self.figure {
            ModelFigure::Calls => Unit::Count,
            ModelFigure::Time | ModelFigure::Answer => Unit::Ms,
            ModelFigure::ExactReads | ModelFigure::EqualAnswers | ModelFigure::Plausible => {
                Unit::Percent
            }
            ModelFigure::Reread | ModelFigure::Session => Unit::Times,
        }
    }
}

/// A share in percent with its interval, and both counts in words; `None` of nothing.
fn share(count: u64, of: u64, words: &str) -> Option<(f64, Option<Interval>, String)> {
    let share = (of > 0).then(|| 100.0 * count as f64 / of as f64)?;
    let words = format!("{count} of {of} {words}");
    Some((share, Some(percent_interval(count, of)), words))
}
