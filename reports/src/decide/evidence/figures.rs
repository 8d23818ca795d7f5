//! Figures of tasks and sessions: scores, contexts, made-up files, two hosts.

use rundir::{Basis, MODEL_FILES, ModelFiles, MountedModel, SAMPLES, Score as Sum};

use super::{Evidence, Found, Reading, missing, run_gap};
use crate::context::{DOLLARS, MODELS};
use crate::decide::measure::{ContextFigure, FileFigure, HostFigure, Per, ScoreMeasure};
use crate::decide::policy::matches;
use crate::text::{count, time};

/// The candidate that makes up files from their paths.
pub(super) const GENERATE: &str = "llm-generate";
/// The candidate that makes up files from the history of writes.
pub(super) const HISTORY: &str = "llm-history";

impl Evidence<'_> {
    pub(super) fn score(&self, score: &ScoreMeasure, arm: &str, as_baseline: bool) -> Found {
        let other = |name: &Option<String>| name.clone().filter(|_| as_baseline);
        let workload = other(&score.baseline_workload).unwrap_or_else(|| score.workload.clone());
        let method = other(&score.baseline_method).unwrap_or_else(|| score.method.clone());
        let runs = self.runs.iter();
        let passes = runs.flat_map(|run| run.passes(&workload, arm));
        let scored = passes.map(|pass| &pass.scores);
        let mut values: Vec<(f64, String)> = Vec::new();
        let mut is_measured = false;
        for scores in scored.filter(|scores| !scores.is_empty()) {
            is_measured = true;
            let found = scores.iter().find(|(name, _)| matches(&method, name));
            let Some((name, counts)) = found else {
                continue;
            };
            let sums = score.counts.iter().map(|count| counts.get(count));
            let sums: Option<Vec<&Sum>> = sums.collect();
            let Some(sums) = sums else { continue };
            let sum: u64 = sums.iter().map(|part| part.sum).sum();
            let of = match score.per {
                Per::Question => sums.iter().map(|part| part.of).max().map(|of| of as f64),
                Per::ThousandTokens => counts
                    .get("tokens")
                    .map(|tokens| tokens.sum as f64 / 1000.0),
            };
            if let Some(of) = of.filter(|of| *of > 0.0) {
                let value = sum as f64 / of;
                let words = match score.per {
                    Per::Question => {
                        format!("{} a question ({name}: {}/{of})", short(value), count(sum))
                    }
                    Per::ThousandTokens => {
                        format!(
                            "{} per 1,000 tokens ({name}: {sum} in {of:.1} thousand)",
                            short(value)
                        )
                    }
                };
                values.push((value, words));
            }
        }
        let figures = || values.iter().map(|(value, _)| *value);
        let low = figures().fold(f64::INFINITY, f64::min);
        let high = figures().fold(f64::NEG_INFINITY, f64::max);
        match values.into_iter().next() {
            Some((value, words)) => Found::Value(Reading {
                value,
                // Exact where passes agree.
                low,
                high,
                words,
                source: format!(
                    "{SAMPLES}: scores of {workload}, {}",
                    score.counts.join(" + ")
                ),
            }),
            None => match self.left_out(&workload, arm) {
                Some(why) => Found::NotOffered(why),
                None if is_measured => Found::NotOffered(format!("{arm} has no method {method}")),
                None => {
                    let what = format!(
                        "{} of {workload}, method {method}, on {arm}",
                        score.counts.join(" + ")
                    );
                    run_gap(&workload, &[arm], what)
                }
            },
        }
    }

    pub(super) fn context(&self, figure: &ContextFigure, arm: &str, as_baseline: bool) -> Found {
        let policy = match as_baseline {
            true => &figure.against,
            false => &figure.policy,
        };
        if !as_baseline {
            // The arm has to hold what leaves the context.
            match self.passes(&figure.workload, arm) {
                Found::Value(_) => {}
                other => return other,
            }
        }
        let mut runs = self.runs.iter();
        let Some(cost) = runs.find_map(|run| run.context(&figure.workload, policy)) else {
            let what = format!("context {policy} of {}", figure.workload);
            return run_gap(&figure.workload, &[arm], what);
        };
        let (value, words) = match figure.figure.as_str() {
            DOLLARS => {
                let Some(dollars) = cost.dollars.get(MODELS[0]) else {
                    let what = format!("no price for context {policy} of {}", figure.workload);
                    return run_gap(&figure.workload, &[arm], what);
                };
                let words = format!("{dollars:.4} USD ({}, {policy})", MODELS[0]);
                (*dollars, words)
            }
            name => {
                // A parsed policy names known figures only.
                let tokens = cost.figure(name).unwrap_or(0);
                let words = format!("{} tokens ({policy})", count(tokens));
                (tokens as f64, words)
            }
        };
        let basis = match cost.basis {
            Basis::Recorded | Basis::Generated => String::new(),
            other => format!(", {}", other.name()),
        };
        let source = format!("contexts.jsonl: {} of {}", figure.figure, figure.workload);
        Found::exact(value, format!("{words}{basis}"), &source)
    }

    fn made_up(&self, arm: &str) -> Option<(&ModelFiles, &MountedModel)> {
        let found = self.runs.iter().find_map(|run| run.model_files())?;
        let is = |name: &str| matches(&format!("{name}*"), arm);
        match (is(GENERATE), is(HISTORY)) {
            (true, _) => Some((found, &found.generate)),
            (_, true) => Some((found, &found.history)),
            _ => None,
        }
    }

    /// The tools that used the made-up files of an arm, and how many of them `timeout` ended.
    pub(super) fn barring_steps(&self, arm: &str) -> Option<(u64, u64)> {
        const ENDED: [&str; 2] = ["exit status: 124", "exit status: 137"];
        let (_, mounted) = self.made_up(arm)?;
        let hung = mounted.steps.iter();
        let hung = hung.filter(|step| ENDED.contains(&step.outcome.as_str()));
        Some((mounted.steps.len() as u64, hung.count() as u64))
    }

    pub(super) fn model_files(&self, figure: FileFigure, arm: &str) -> Found {
        let gap = |what: &str| {
            let command = "ctxbench run --suite model-files".to_owned();
            missing(format!("{what} of {arm}"), command)
        };
        let Some((found, mounted)) = self.made_up(arm) else {
            return gap("made-up files");
        };
        let share = |pairs: Vec<(u64, u64)>| -> Option<(f64, String)> {
            let add = |sum: (u64, u64), pair: &(u64, u64)| (sum.0 + pair.0, sum.1 + pair.1);
            let (part, all) = pairs.iter().fold((0, 0), add);
            (all > 0).then(|| (part as f64 / all as f64, format!("{part} of {all}")))
        };
        let asked = mounted.steps.iter().filter(|step| step.calls > 0);
        let calls: u64 = asked.clone().map(|step| step.calls).sum();
        let reading = match figure {
            FileFigure::Plausible => share(vec![plausible_imports(mounted)]),
            FileFigure::Consistent => {
                let checks = mounted.consistency.iter();
                let again = checks.filter(|(what, _)| what.starts_with("the same path"));
                share(again.filter_map(|(_, result)| of(result)).collect())
            }
            FileFigure::Exact => mounted
                .session_reads
                .and_then(|(reads, exact)| share(vec![(exact.into(), reads.into())])),
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
                    let words =
                        format!("{prompt} prompt and {output} output tokens for {calls} files");
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
        let words = format!("{words}; {}, {}", found.model, found.origin);
        Found::exact(value, words, MODEL_FILES)
    }

    pub(super) fn hosts(&self, workload: &str, figure: HostFigure, arm: &str) -> Found {
        let mut runs = self.runs.iter();
        let found = match figure {
            HostFigure::LinesOutside | HostFigure::LostLines => {
                let found = runs.find_map(|run| run.shared_files(workload, arm));
                found.map(|found| {
                    let words = format!(
                        "of {} lines {} in the file on both hosts, {} in conflict copies, {} on one host, {} lost",
                        found.lines, found.on_both, found.only_in_copies, found.on_one, found.lost
                    );
                    let value = match figure {
                        HostFigure::LostLines => found.lost,
                        _ => found.only_in_copies + found.on_one + found.lost,
                    };
                    // Lines a pass, as runs differ in the number of passes.
                    (value as f64 / found.passes.max(1) as f64, words)
                })
            }
            HostFigure::HandoffMs | HostFigure::UnseenNotes => {
                let found = runs.find_map(|run| run.handoffs(workload, arm));
                found.map(|found| match (figure, found.median_ns) {
                    (HostFigure::UnseenNotes, _) => {
                        let unseen = found.written.saturating_sub(found.seen);
                        let words = format!("{unseen} of {} notes not seen in time", found.written);
                        (unseen as f64, words)
                    }
                    (_, Some(ns)) => {
                        let words = format!("{} (median of {} notes)", time(ns as f64), found.seen);
                        (ns as f64 / 1e6, words)
                    }
                    (_, None) => {
                        let words = format!("none of {} notes was seen", found.written);
                        (f64::INFINITY, words)
                    }
                })
            }
        };
        match (found, self.left_out(workload, arm)) {
            (Some((value, words)), _) => {
                Found::exact(value, words, &format!("{SAMPLES}: {workload}"))
            }
            (None, Some(why)) => Found::NotOffered(why),
            (None, None) => {
                let what = format!("two hosts of {arm} in {workload}");
                run_gap(workload, &[arm], what)
            }
        }
    }
}

/// Imports in made-up files that name a file of the tree, and all imports. The check reads `45 imports in the Python
/// files, 0 of them of a file that is listed`.
pub(crate) fn plausible_imports(mounted: &MountedModel) -> (u64, u64) {
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

/// A number with three digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => count(value.round() as u64),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
