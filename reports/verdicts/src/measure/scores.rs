//! Exact counts of a search method or a task.

use std::collections::BTreeMap;

use rundir::{SAMPLES, Score as Sum, ScoreKind, ScoreName};
use serde::Deserialize;
use stats::{Interval, LEVEL, share_interval};

use super::faults::most_unseen;
use super::{ArmReading, Evidence, Gap, MeasureResult, matches, pooled, run_gap};
use figures::provenance::Provenance;
use figures::summary::TASK;
use figures::text::{count, time};

/// The score of the time until a task's reader sees a commit.
const LAG: &str = "lag-us";

/// The count of answers of a task that were right before the last commit.
const STALE_ANSWERS: &str = "stale-answers";

/// The count of the tokens that a search returned.
const TOKENS: &str = "tokens";

/// The names of scores that a policy or claim can count.
pub const SCORES: [&str; 15] = [
    "evidence-in-budget",
    "found-at-1",
    "found-at-5",
    "found-at-10",
    "own-words",
    "other-words",
    "old-first",
    "stale",
    TOKENS,
    "definition-tokens",
    "call-tokens",
    "result-tokens",
    "calls",
    STALE_ANSWERS,
    LAG,
];

/// What a score counts, in words.
pub(crate) fn score_words(name: &str) -> &str {
    match name {
        "evidence-in-budget" => "answers within the budget of tokens",
        "found-at-1" => "answers in the first place",
        "found-at-5" => "answers among the first 5",
        "found-at-10" => "answers among the first 10",
        "own-words" => "answers to questions in a note's own words",
        "other-words" => "answers to questions in other words",
        "old-first" => "outdated notes before current ones",
        "stale" => "outdated answers",
        "definition-tokens" => "tokens of definitions",
        "call-tokens" => "tokens of calls",
        "result-tokens" => "tokens of results",
        STALE_ANSWERS => "stale answers",
        LAG => "delays of commits",
        "tokens-unanswerable" => "tokens for questions without an answer",
        "admitted" => "questions without an answer of which the search said so",
        // "tokens" and "calls" are words.
        name => name,
    }
}

/// What several scores count together, in words.
fn all_words(names: &[String]) -> String {
    names.iter().map(|name| score_words(name)).collect::<Vec<_>>().join(" and ")
}

/// The counts that are 0 or 1 of each question of a search, so that their sum over questions is a share with an interval.
const OF_QUESTIONS: [&str; 8] =
    ["evidence-in-budget", "found-at-1", "found-at-5", "found-at-10", "own-words", "other-words", "old-first", "stale"];

/// Whether a count is 0 or 1 of each question of a search.
pub(super) fn is_of_question(count: &str) -> bool {
    OF_QUESTIONS.contains(&count)
}

/// The count of a task whose agent works on copies, which are made on a schedule of a simulated clock.
const COPIES: &str = "copies";

/// See [`super::Measure::Score`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreMeasure {
    pub workload: String,
    /// The method; a `*` at the end stands for any rest, and the first such method counts.
    pub method: String,
    /// The counts, added up.
    pub counts: Vec<String>,
    /// The divisor of the sum.
    #[serde(default)]
    pub per: Divisor,
    /// The baseline's workload, if it is another one.
    pub baseline_workload: Option<String>,
    /// The baseline's method, if it is another one.
    pub baseline_method: Option<String>,
    /// Another method of the baseline for the same; the one of both with the smaller sum counts.
    pub or_baseline_method: Option<String>,
    /// The largest share of questions that may have a wrong answer although none had one.
    pub within: Option<f64>,
}

impl ScoreMeasure {
    /// Whether fewer of all its counts are better.
    pub(super) fn is_of_cost(&self) -> bool {
        self.counts.iter().all(|count| is_of_kind(count, ScoreKind::Cost))
    }

    /// The number of questions that would decide a share which a bound leaves open, in words; `None` for other counts.
    pub fn deciding_words(&self, share: f64, bound: f64) -> Option<String> {
        self.is_share().then(|| match deciding_questions(share, bound) {
            Some(questions) => format!("about {} questions with the same share would decide", count(questions)),
            None => "no feasible number of questions with the same share would decide".to_owned(),
        })
    }

    /// The largest figure that it can have: a question has each count of [`OF_QUESTIONS`] once at most, and its answer a token
    /// at least.
    pub(super) fn most(&self) -> f64 {
        let mut counts = self.counts.iter();
        if !counts.all(|count| is_of_question(count) || count == STALE_ANSWERS) {
            return f64::INFINITY;
        }
        let of_question = self.counts.len() as f64;
        match self.per {
            Divisor::Question => of_question,
            Divisor::ThousandTokens => 1000.0 * of_question,
        }
    }

    /// Whether it divides the tokens of a search by themselves.
    pub(super) fn is_tokens_per_token(&self) -> bool {
        self.per == Divisor::ThousandTokens && matches!(&self.counts[..], [only] if only == TOKENS)
    }

    /// Whether it is a time.
    pub(super) fn is_of_delay(&self) -> bool {
        self.counts.iter().all(|count| is_of_kind(count, ScoreKind::Delay))
    }

    /// Whether it counts wrong answers without an interval, so that a few questions without one show little.
    pub(super) fn is_event(&self) -> bool {
        !self.is_share() && self.counts.iter().any(|count| is_of_kind(count, ScoreKind::Wrong))
    }

    /// Whether it is the share of questions that have one count.
    pub(super) fn is_share(&self) -> bool {
        self.per == Divisor::Question && matches!(&self.counts[..], [only] if is_of_question(only))
    }
}

/// The number of questions, to two digits, at which the same share would be on one side of a bound; `None` if no feasible
/// number of them decides.
fn deciding_questions(share: f64, bound: f64) -> Option<u64> {
    const FEWEST: u64 = 10;
    const MOST: u64 = 1_000_000;
    let decides = |of: u64| {
        let ends = share_interval((share * of as f64).round() as u64, of, 1.0 - LEVEL);
        ends.high <= bound || ends.low > bound
    };
    let mut most = FEWEST;
    while !decides(most) {
        most = Some(2 * most).filter(|more| *more <= MOST)?;
    }
    let mut least = most / 2;
    while most - least > 1 {
        let middle = least.midpoint(most);
        if decides(middle) { most = middle } else { least = middle }
    }
    let size = 10_u64.pow(most.ilog10().saturating_sub(1));
    Some(most.div_ceil(size) * size)
}

/// Whether fewer of several counts together are better. `None` if they are of different kinds.
pub(super) fn is_less_better(counts: &[String]) -> Option<bool> {
    let kinds = counts.iter().map(|count| match ScoreName::find(count)?.kind() {
        ScoreKind::Found => Some(false),
        ScoreKind::Wrong | ScoreKind::Cost | ScoreKind::Delay => Some(true),
        ScoreKind::Circumstance => None,
    });
    let kinds: Option<Vec<bool>> = kinds.collect();
    let (first, others) = kinds.as_deref()?.split_first()?;
    others.iter().all(|kind| kind == first).then_some(*first)
}

/// Whether a count is of this kind.
fn is_of_kind(count: &str, kind: ScoreKind) -> bool {
    ScoreName::find(count).is_some_and(|name| name.kind() == kind)
}

/// What follows from copies on a schedule is simulated: nothing sleeps until the next copy.
fn provenance(counts: &BTreeMap<String, Sum>, names: &[String]) -> Provenance {
    let is_scheduled = |name: &String| [LAG, STALE_ANSWERS].contains(&name.as_str());
    if counts.contains_key(COPIES) && names.iter().any(is_scheduled) {
        Provenance::Simulated
    } else {
        Provenance::Measured
    }
}

/// See [`super::Measure::Questions`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionShare {
    pub workload: String,
    /// The method of search.
    pub method: String,
    /// The count, which is 0 or 1 of a question.
    pub count: String,
}

/// The divisor of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Divisor {
    /// Questions or tasks.
    #[default]
    #[serde(rename = "question")]
    Question,
    /// Thousands of tokens that the method returned.
    #[serde(rename = "1,000 tokens")]
    ThousandTokens,
}

impl Evidence<'_> {
    pub(super) fn score(&self, score: &ScoreMeasure, arm: &str, as_baseline: bool) -> MeasureResult {
        let other = |name: &Option<String>| name.clone().filter(|_| as_baseline);
        let workload = other(&score.baseline_workload).unwrap_or_else(|| score.workload.clone());
        let method = other(&score.baseline_method).unwrap_or_else(|| score.method.clone());
        let found = self.score_by(score, (&workload, &method), arm, as_baseline);
        match (found, other(&score.or_baseline_method)) {
            (MeasureResult::Value(one), Some(method)) => {
                match self.score_by(score, (&workload, &method), arm, as_baseline) {
                    MeasureResult::Value(two) if one.value <= two.value => MeasureResult::Value(one),
                    found => found,
                }
            }
            (found, _) => found,
        }
    }

    fn score_by(
        &self,
        score: &ScoreMeasure,
        (workload, method): (&str, &str),
        arm: &str,
        as_baseline: bool,
    ) -> MeasureResult {
        let runs = self.runs.iter();
        let passes = runs.flat_map(|run| {
            let void = &run.summary.health.void;
            run.passes(workload, arm).map(|pass| (&pass.scores, void.contains_key(&pass.epoch)))
        });
        let source = format!("{SAMPLES}: scores of {workload}, {}", score.counts.join(" + "));
        let mut readings: Vec<ArmReading> = Vec::new();
        // A pass asks after commits of its own, so that each of its questions is one more try.
        let mut tried = 0;
        // Passes with scores, and those with a score of this method: a method without a question has no figure.
        let (mut is_measured, mut has_method, mut unspent) = (false, false, None);
        for (scores, is_void) in passes.filter(|(scores, _)| !scores.is_empty()) {
            is_measured = true;
            let found = scores.iter().find(|(name, _)| matches(method, name));
            let Some((name, counts)) = found else {
                continue;
            };
            has_method |= score.counts.iter().any(|count| counts.contains_key(count));
            let sums = score.counts.iter().map(|count| counts.get(count));
            let sums: Option<Vec<&Sum>> = sums.collect();
            let Some(sums) = sums else { continue };
            let sum: u64 = sums.iter().map(|part| part.sum).sum();
            // No question is answered by no call and no token.
            let mut counted = score.counts.iter().zip(&sums);
            let empty = counted.find(|(name, part)| part.sum == 0 && part.of > 0 && is_of_kind(name, ScoreKind::Cost));
            if let Some((name, _)) = empty {
                unspent = Some(score_words(name));
                continue;
            }
            tried += sums.iter().map(|part| part.of).max().filter(|_| !is_void).unwrap_or(0);
            let of = match score.per {
                Divisor::Question => sums.iter().map(|part| part.of).max().map(|of| of as f64),
                Divisor::ThousandTokens => counts.get(TOKENS).map(|tokens| tokens.sum as f64 / 1000.0),
            };
            if let Some(of) = of.filter(|of| *of > 0.0) {
                let value = sum as f64 / of;
                let tokens = counts.get(TOKENS).and_then(|tokens| tokens.mean());
                let (figure, how) = match (score.per, tokens.filter(|_| score.is_share())) {
                    (Divisor::Question, Some(tokens)) => {
                        (format!("{sum} of {of} in {} tokens a question", count(tokens.round() as u64)), name.clone())
                    }
                    (Divisor::Question, None) => {
                        (format!("{} a question", short(value)), format!("{name}: {} in {of} questions", count(sum)))
                    }
                    (Divisor::ThousandTokens, _) => {
                        (format!("{} per 1,000 tokens", short(value)), format!("{name}: {sum} in {of:.1} thousand"))
                    }
                };
                let words = format!("{figure} ({how})");
                // Each pass asks the same questions, so that more passes are no larger sample.
                let ends = if score.is_share() {
                    share_interval(sum, of as u64, 1.0 - LEVEL)
                } else {
                    Interval { low: value, high: value }
                };
                readings.push(ArmReading {
                    low: ends.low,
                    high: ends.high,
                    provenance: provenance(counts, &score.counts),
                    short: figure,
                    ..ArmReading::exact(value, words, &source)
                });
            }
        }
        // Exact where passes agree, but for a share of questions. An error in one pass is one, whatever the others say.
        let is_of_errors = score.counts.iter().any(|count| is_of_kind(count, ScoreKind::Wrong));
        let reading = if is_of_errors && !as_baseline {
            readings.into_iter().max_by(ArmReading::order)
        } else {
            pooled(readings)
        };
        if let Some(what) = unspent {
            return MeasureResult::Unknown(format!("a pass of {workload} on {arm} answered questions with 0 {what}"));
        }
        match reading {
            Some(reading) if score.within.is_some() && reading.value == 0.0 && !as_baseline => {
                let words = format!("0 of {tried} questions ({})", most_unseen(tried, "questions"));
                MeasureResult::Value(ArmReading { short: words.clone(), words, ..reading }.unseen(
                    tried,
                    score.within,
                    1.0,
                ))
            }
            Some(reading) => MeasureResult::Value(reading),
            None => match self.left_out(workload, arm) {
                Some(why) => MeasureResult::NotOffered(why),
                // A run of an earlier version lacks a method of the baseline. That says nothing about the candidate.
                None if is_measured && !has_method && !as_baseline => {
                    MeasureResult::NotOffered(format!("{arm} has no method {method}"))
                }
                None => {
                    let what = format!("{} by {method} in {workload}, on {arm}", all_words(&score.counts));
                    run_gap(workload, &[arm], what)
                }
            },
        }
    }
}

/// Why `SCORES` has no such count.
pub(super) fn unknown_count(counts: &[String]) -> Option<String> {
    let unknown = counts.iter().find(|name| !SCORES.contains(&name.as_str()))?;
    Some(format!("unknown count {unknown:?}; use one of {}", SCORES.join(", ")))
}

impl Evidence<'_> {
    /// More questions, for a bound that a policy asks for.
    pub fn more_questions(&self, workload: &str, asked: &str, arm: &str) -> Gap {
        let what = format!("enough questions of {workload} on {arm} for {asked}");
        let command = format!("ctxbench run --epochs 9 --workload {workload} --backend {arm}");
        Gap::too_few("questions", what, command)
    }

    /// The share of a sample of questions that have a count, with its interval.
    pub(super) fn questions(&self, share: &QuestionShare, arm: &str) -> MeasureResult {
        let (workload, method, name) = (&share.workload, &share.method, &share.count);
        let found = self.runs.iter().filter_map(|run| {
            let score = run.searched(workload, arm, method)?.score(name);
            score.filter(|score| score.of > 0)
        });
        let readings = found.map(|Sum { sum, of }| {
            let ends = share_interval(sum, of, 1.0 - LEVEL);
            ArmReading {
                low: ends.low,
                high: ends.high,
                ..ArmReading::exact(
                    sum as f64 / of as f64,
                    format!("{sum} of {of} {} by {method} in {workload}", score_words(name)),
                    &format!("{SAMPLES}: scores of {workload}, {name}"),
                )
            }
        });
        match pooled(readings.collect()) {
            Some(reading) => MeasureResult::Value(reading),
            None => {
                let what = format!("{} by {method} in {workload}, on {arm}", score_words(name));
                run_gap(workload, &[arm], what)
            }
        }
    }

    pub(super) fn lag(&self, workload: &str, arm: &str) -> MeasureResult {
        let passes = self.runs.iter().flat_map(|run| run.passes(workload, arm));
        let tasks = passes.filter_map(|pass| pass.scores.get(TASK));
        let tasks: Vec<&BTreeMap<String, Sum>> = tasks.collect();
        let lags_us: Vec<f64> = tasks.iter().filter_map(|counts| counts.get(LAG)?.mean()).collect();
        if lags_us.is_empty() {
            return match self.left_out(workload, arm) {
                Some(why) => MeasureResult::NotOffered(why),
                None => run_gap(workload, &[arm], format!("the lag of {workload} on {arm}")),
            };
        }
        if lags_us.contains(&0.0) {
            return MeasureResult::Unknown(format!("a pass of {workload} on {arm} saw its commits after 0 µs"));
        }
        let slowest = lags_us.iter().copied().fold(0.0, f64::max) / 1000.0;
        let words = format!("{}: the mean lag in the slowest of {} passes", time(slowest * 1e6), lags_us.len());
        let source = format!("{SAMPLES}: scores of {workload}, {LAG}");
        let origins = tasks.iter().map(|counts| provenance(counts, &[LAG.to_owned()]));
        MeasureResult::Value(ArmReading {
            provenance: origins.max().unwrap_or(Provenance::Measured),
            ..ArmReading::exact(slowest, words, &source)
        })
    }
}

/// A number with three digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => count(value.round() as u64),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_score_is_one_of_the_records_and_has_words_instead_of_its_key() {
        for name in SCORES {
            assert!(ScoreName::find(name).is_some(), "{name} is in no record");
            assert!(!score_words(name).contains('-'), "{name}: {}", score_words(name));
        }
        let names = ["call-tokens", "result-tokens"].map(str::to_owned);
        assert_eq!(all_words(&names), "tokens of calls and tokens of results");
    }

    #[test]
    fn a_share_is_decided_by_the_fewest_questions_whose_interval_excludes_the_bound() {
        // No outdated answer in 104 questions is at most five in a hundred.
        assert_eq!(deciding_questions(0.0, 0.05), Some(110));
        let few = deciding_questions(0.02, 0.05).unwrap();
        let many = deciding_questions(0.0575, 0.05).unwrap();
        assert!((250..600).contains(&few) && (5_000..12_000).contains(&many), "{few}, {many}");
        assert_eq!(deciding_questions(0.05, 0.05), None);
    }
}
