//! Scores of two runs: the tokens, right and wrong answers and delays of searches and tasks, and the tokens of context policies.

use std::collections::BTreeMap;

use figures::evidence::RunEvidence;
use figures::summary::void;
use figures::text::{count, time};
use rundir::{Basis, Outcome, ScoreKind, ScoreName};
use schemars::JsonSchema;
use serde::Serialize;
use stats::{MIN_EPOCHS, Verdict};

use super::harm::Check;
use crate::measure::score_words;

/// A score that differs between two runs beyond the margin.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScoreChange {
    /// The arm or the context policy.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The score, with its method of search or task.
    pub score: String,
    /// The old figure: a count a question, the share of the questions, or a mean delay in microseconds.
    pub old: f64,
    /// The same of the new runs.
    pub new: f64,
    /// Better or worse.
    pub verdict: Verdict,
    #[serde(skip)]
    kind: ScoreKind,
}

impl ScoreChange {
    /// Whether it got worse.
    pub fn is_worse(&self) -> bool {
        self.verdict == Verdict::Worse
    }

    /// Whether it is a time, which no gate of counts reads.
    pub fn is_delay(&self) -> bool {
        self.kind == ScoreKind::Delay
    }

    /// Its old and its new figure in words.
    pub fn figures(&self) -> [String; 2] {
        [self.old, self.new].map(|figure| match self.kind {
            ScoreKind::Delay => time(figure * 1000.0),
            ScoreKind::Found | ScoreKind::Wrong => format!("{:.1} % of questions", 100.0 * figure),
            ScoreKind::Cost | ScoreKind::Circumstance if figure >= 100.0 => count(figure.round() as u64),
            ScoreKind::Cost | ScoreKind::Circumstance => format!("{figure:.2}"),
        })
    }

    /// The change in words.
    pub fn words(&self) -> String {
        let [old, new] = self.figures();
        format!("{}, {} in {}: {new}, was {old}", self.arm, self.score, self.workload)
    }
}

/// A delay is worse if every new pass is later than this many times the latest old one. Delays are times of their own, without
/// a baseline in the same round, and one pass differs from the next by up to a factor of three.
const LATER: f64 = 2.0;

/// A score of one side.
struct SideScore {
    kind: ScoreKind,
    sum: u64,
    of: u64,
    /// The mean delay of each pass on a quiet machine.
    delays: Vec<f64>,
}

impl SideScore {
    fn new(kind: ScoreKind) -> Self {
        Self { kind, sum: 0, of: 0, delays: Vec::new() }
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.of as f64
    }
}

/// The arm, the score in words, and the workload.
type ScoreKey = (String, String, String);

fn side(runs: &[&RunEvidence<'_>]) -> BTreeMap<ScoreKey, SideScore> {
    let mut all: BTreeMap<ScoreKey, SideScore> = BTreeMap::new();
    for run in runs {
        let void = void(run.run);
        let passes = run.run.samples.iter();
        let passes = passes.filter(|pass| pass.outcome == Outcome::Ok && !void.contains(&pass.epoch));
        for pass in passes {
            let scores = pass.scores.iter().flat_map(|(method, scores)| scores.iter().map(move |one| (method, one)));
            for (method, (name, score)) in scores {
                let Some(name) = ScoreName::find(name).filter(|_| score.of > 0) else {
                    continue;
                };
                let kind = name.kind();
                // No question is answered by no call and no token, or at once: such a count shows nothing.
                let is_unspent = score.sum == 0 && matches!(kind, ScoreKind::Cost | ScoreKind::Delay);
                if is_unspent || kind == ScoreKind::Circumstance {
                    continue;
                }
                let score_name = format!("{} by {method}", score_words(name.name()));
                let key = (pass.arm.clone(), score_name, pass.workload.clone());
                let found = all.entry(key).or_insert_with(|| SideScore::new(kind));
                (found.sum, found.of) = (found.sum + score.sum, found.of + score.of);
                if pass.load.busy.is_none() {
                    found.delays.extend(score.mean());
                }
            }
        }
        for cost in run.contexts.costs.iter().filter(|cost| cost.basis != Basis::Published && cost.resent > 0) {
            let key = (cost.policy.clone(), "tokens of all prompts".to_owned(), cost.workload.clone());
            let found = all.entry(key).or_insert_with(|| SideScore::new(ScoreKind::Cost));
            (found.sum, found.of) = (found.sum + cost.resent, found.of + 1);
        }
    }
    all
}

/// What the scores of two sides say.
pub(super) struct ScoreComparison {
    /// The scores that differ beyond the margin.
    pub changes: Vec<ScoreChange>,
    /// How many scores both sides have.
    pub compared: usize,
    /// The scores that only the old run has, by arm.
    pub unchecked: Vec<(String, Check, String)>,
}

/// Compares scores. `margin` is the plan's relative one: of a count of tokens or calls its share, of answers as many of all
/// questions.
pub(super) fn scores(old: &RunEvidence<'_>, new: &[RunEvidence<'_>], margin: f64) -> ScoreComparison {
    let (before, after) = (side(&[old]), side(&new.iter().collect::<Vec<_>>()));
    let mut found = ScoreComparison { changes: Vec::new(), compared: 0, unchecked: Vec::new() };
    for ((arm, score, workload), old) in before {
        let Some(new) = after.get(&(arm.clone(), score.clone(), workload.clone())) else {
            found.unchecked.push((arm, Check::Scores, format!("{score} in {workload}")));
            continue;
        };
        found.compared += 1;
        let verdict = verdict(&old, new, margin);
        let (kind, old, new) = (old.kind, old.mean(), new.mean());
        if verdict != Verdict::Same {
            found.changes.push(ScoreChange { arm, workload, score, old, new, verdict, kind });
        }
    }
    found
}

fn verdict(old: &SideScore, new: &SideScore, margin: f64) -> Verdict {
    let (before, after) = (old.mean(), new.mean());
    let (is_worse, is_better) = match old.kind {
        ScoreKind::Cost => (after > before * (1.0 + margin), after * (1.0 + margin) < before),
        ScoreKind::Found => (before - after > margin, after - before > margin),
        // The first wrong answer is new harm.
        ScoreKind::Wrong => (old.sum > 0 && after - before > margin, before - after > margin),
        ScoreKind::Delay => (is_later(&old.delays, &new.delays), is_later(&new.delays, &old.delays)),
        ScoreKind::Circumstance => (false, false),
    };
    if is_worse {
        Verdict::Worse
    } else if is_better {
        Verdict::Better
    } else {
        Verdict::Same
    }
}

/// Whether all passes of `later` are later than those of `earlier`, by [`LATER`] times.
fn is_later(earlier: &[f64], later: &[f64]) -> bool {
    let latest = earlier.iter().copied().fold(0.0, f64::max);
    earlier.len().min(later.len()) >= MIN_EPOCHS && later.iter().all(|delay| *delay > LATER * latest)
}
