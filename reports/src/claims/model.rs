//! Files that a language model makes up: `model-files.json`.

use rundir::{ModelFiles, MountedModel};
use serde::Deserialize;
use stats::Interval;

use super::evidence::{Evidence, percent_interval};
use super::finding::Finding;
use super::range::Unit;
use crate::decide::plausible_imports;

/// A figure of model-generated files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTest {
    figure: ModelFigure,
    /// The mount: `history` or `generate`, for figures of a step or a session.
    mount: Option<Mount>,
    /// The step, as `model-files.json` names it, for `calls` and `time`.
    step: Option<String>,
    /// The number of operations in the history, for `exact-reads` and `answer`.
    operations: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mount {
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

impl ModelTest {
    pub(super) fn measure(&self, run: &Evidence<'_>) -> Finding {
        let found = run.run.model_files.as_ref();
        let Some(found) = found.filter(|found| found.failed.is_none()) else {
            return Self::missing(
                "this run has nothing about files of a language model".to_owned(),
            );
        };
        let Some((value, interval, words)) = self.value(found) else {
            return Self::missing(format!("this run did not measure {}", self.words()));
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

    fn missing(words: String) -> Finding {
        Finding::Missing { words }
    }

    fn mounted<'a>(&self, found: &'a ModelFiles) -> Option<&'a MountedModel> {
        Some(match self.mount? {
            Mount::History => &found.history,
            Mount::Generate => &found.generate,
        })
    }

    /// The value, its interval unless it is exact, and both in words.
    fn value(&self, found: &ModelFiles) -> Option<(f64, Option<Interval>, String)> {
        let step = || {
            let steps = &self.mounted(found)?.steps;
            let step = self.step.as_ref()?;
            steps.iter().find(|own| own.what == *step)
        };
        let at_length = || {
            let mut lengths = found.fidelity.iter();
            lengths.find(|own| Some(own.operations) == self.operations)
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
                let share =
                    (!reads.is_empty()).then(|| 100.0 * exact as f64 / reads.len() as f64)?;
                let interval = percent_interval(exact as u64, reads.len() as u64);
                let words = format!("{exact} of {} {words}", reads.len());
                return Some((share, Some(interval), words));
            }
            ModelFigure::Answer => {
                let at = at_length().filter(|own| own.calls > 0)?;
                (at.answer_ms, format!("{:.1} ms, {words}", at.answer_ms))
            }
            ModelFigure::EqualAnswers => {
                let repeats = &found.repeats;
                let of = (repeats.asked_twice > 0).then_some(repeats.asked_twice)?;
                let share = 100.0 * f64::from(repeats.equal) / f64::from(of);
                let interval = percent_interval(repeats.equal.into(), of.into());
                let words = format!("{} of {of} {words}", repeats.equal);
                return Some((share, Some(interval), words));
            }
            ModelFigure::Plausible => {
                let (own, of) = plausible_imports(self.mounted(found)?);
                let share = (of > 0).then(|| 100.0 * own as f64 / of as f64)?;
                let words = format!("{own} of {of} {words}");
                return Some((share, Some(percent_interval(own, of)), words));
            }
            ModelFigure::Reread => {
                let (ratio, low, high) = found.memory_ratio?;
                let words = format!("×{ratio:.2} [{low:.2}, {high:.2}], {words}");
                return Some((ratio, Some(Interval { low, high }), words));
            }
            ModelFigure::Session => {
                let (own, plain) = self.mounted(found)?.session.filter(|own| own.1 > 0.0)?;
                let words = format!(
                    "×{:.1}: {own:.2} s against {plain:.4} s, {words}",
                    own / plain
                );
                (own / plain, words)
            }
        };
        Some((value, None, words))
    }

    fn words(&self) -> String {
        let mount = match self.mount {
            Some(Mount::History) => "llm-history",
            Some(Mount::Generate) => "llm-generate",
            None => "llm-history",
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

    pub(super) fn unit(&self) -> Unit {
        match self.figure {
            ModelFigure::Calls => Unit::Count,
            ModelFigure::Time | ModelFigure::Answer => Unit::Ms,
            ModelFigure::ExactReads | ModelFigure::EqualAnswers | ModelFigure::Plausible => {
                Unit::Percent
            }
            ModelFigure::Reread | ModelFigure::Session => Unit::Times,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
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

    pub(super) fn command() -> String {
        "make model-files".to_owned()
    }
}
