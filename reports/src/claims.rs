//! Published claims, and the judgement of a run on each of them.

use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};

use crate::context::{ContextCost, Contexts};
use crate::render::time;
use crate::summary::{Summary, is_simulated};
use inputs::{InputError, parse_toml};
use rundir::Basis;
use stats::{Interval, MIN_EPOCHS};

static CLAIMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/claims");

/// The metric of claims about readiness: the time from the start of the daemon to a usable mount.
const READY: &str = "ready";

/// The factor by which a measurement may differ from a claim of "about" a figure.
const ABOUT: f64 = 2.0;

/// A file of claims from one source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    source: String,
    #[serde(rename = "claim")]
    claims: Vec<Claim>,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    id: String,
    quote: String,
    /// The cell that tests it, if it is about time.
    test: Option<Test>,
    /// The session figure that tests it, if it is about tokens.
    tokens: Option<TokenTest>,
    /// Why no run can test it yet.
    untested: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    arm: String,
    workload: String,
    state: String,
    metric: String,
    /// The upper limit in milliseconds.
    below_ms: Option<f64>,
    /// The claimed range in milliseconds, both ends included.
    between_ms: Option<(f64, f64)>,
    /// The approximate figure in milliseconds; a factor of two in either direction confirms it.
    about_ms: Option<f64>,
}

/// A figure of a session's context. Tokens are counted exactly, so it has no interval.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTest {
    workload: String,
    /// The context policy, or a published account.
    policy: String,
    /// One of [`ContextCost::FIGURES`].
    figure: String,
    /// The policy against which `policy` saves; the claim is then in percent.
    saved_against: Option<String>,
    /// The upper limit.
    below: Option<f64>,
    /// The claimed range, both ends included.
    between: Option<(f64, f64)>,
    /// The approximate figure; a factor of two in either direction confirms it.
    about: Option<f64>,
}

/// The verdict of a run on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimStatus {
    /// The whole interval lies within the claimed range.
    Confirmed,
    /// The whole interval lies outside the claimed range.
    Refuted,
    /// The interval overlaps the end of the range, or the run did not measure it.
    Open,
    /// The claim's own figures add up; nothing was counted or measured.
    ArithmeticOnly,
    /// No run can test it yet.
    Untested,
}

impl ClaimStatus {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ClaimStatus::Confirmed => "confirmed",
            ClaimStatus::Refuted => "refuted",
            ClaimStatus::Open => "open",
            ClaimStatus::ArithmeticOnly => "arithmetic only",
            ClaimStatus::Untested => "untested",
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The claim's name.
    pub id: String,
    /// The publisher.
    pub source: String,
    /// The quoted claim.
    pub quote: String,
    /// The verdict of the run.
    pub standing: ClaimStatus,
    /// The measurement and its cell, or why there is none.
    pub evidence: String,
}

/// Judges all built-in claims by a run.
///
/// # Errors
/// If a claims file is malformed.
pub fn judge(summary: &Summary, contexts: &Contexts) -> Result<Vec<Judged>, InputError> {
    let mut files: Vec<_> = CLAIMS.files().collect();
    files.sort_by_key(|file| file.path());
    let mut judged = Vec::new();
    for file in files {
        let name = Path::new("reports/claims").join(file.path());
        let text = file.contents_utf8().unwrap_or_default();
        judged.extend(judge_file(&name, text, summary, contexts)?);
    }
    Ok(judged)
}

fn judge_file(
    name: &Path,
    text: &str,
    summary: &Summary,
    contexts: &Contexts,
) -> Result<Vec<Judged>, InputError> {
    let file: ClaimFile = parse_toml(name, text)?;
    let mut judged = Vec::new();
    for claim in file.claims {
        let wrong =
            |message: String| InputError::whole(name, format!("claim {}: {message}", claim.id));
        let (standing, evidence) = match (&claim.test, &claim.tokens, &claim.untested) {
            (None, Some(test), None) => test.judge(contexts).map_err(wrong)?,
            (Some(test), None, None) => {
                let range = test.range().map_err(wrong)?;
                test.judge(range, summary)
            }
            (None, None, Some(reason)) => (ClaimStatus::Untested, reason.clone()),
            _ => {
                let message = format!(
                    "claim {}: needs exactly one of `test`, `tokens` and `untested`",
                    claim.id
                );
                return Err(InputError::whole(name, message));
            }
        };
        judged.push(Judged {
            id: claim.id,
            source: file.source.clone(),
            quote: claim.quote,
            standing,
            evidence,
        });
    }
    Ok(judged)
}

impl TokenTest {
    fn judge(&self, contexts: &Contexts) -> Result<(ClaimStatus, String), String> {
        let (from, to) = match (self.below, self.between, self.about) {
            (Some(below), None, None) => (f64::NEG_INFINITY, below),
            (None, Some(range), None) => range,
            (None, None, Some(about)) => (about / ABOUT, about * ABOUT),
            _ => return Err("needs exactly one of `below`, `between`, `about`".to_owned()),
        };
        if !ContextCost::FIGURES.contains(&self.figure.as_str()) {
            return Err(format!(
                "field `tokens.figure`: unknown figure {:?}, expected one of {}",
                self.figure,
                ContextCost::FIGURES.join(", ")
            ));
        }
        let figure = |policy: &str| {
            let mut costs = contexts.costs.iter();
            let own = costs.find(|own| own.workload == self.workload && own.policy == policy)?;
            Some((own.figure(&self.figure)? as f64, own.basis))
        };
        let place = format!("{} of {}", self.figure, self.workload);
        let Some((own, basis)) = figure(&self.policy) else {
            let missing = format!("this run did not account for {place} under {}", self.policy);
            return Ok((ClaimStatus::Open, missing));
        };
        let counted = match basis {
            Basis::Published => "as published, in its own units; ",
            Basis::Recorded | Basis::Generated => "counted; ",
            Basis::PartlyStated => "counted where there is a text, else as published; ",
            Basis::Simulated => "simulated from what was counted; ",
        };
        let (value, evidence) = match &self.saved_against {
            None => (
                own,
                format!("{own} tokens: {counted}{place} under {}", self.policy),
            ),
            Some(against) => {
                let Some((before, _)) = figure(against).filter(|(before, _)| *before > 0.0) else {
                    let missing = format!("this run did not account for {place} under {against}");
                    return Ok((ClaimStatus::Open, missing));
                };
                let saved = (1.0 - own / before) * 100.0;
                let evidence = format!(
                    "{saved:.1} % saved: {counted}{place} is {own} tokens under {}, {before} under {against}",
                    self.policy
                );
                (saved, evidence)
            }
        };
        let standing = match ((from..=to).contains(&value), basis) {
            // Published figures within the range confirm only the claim's own arithmetic.
            (true, Basis::Published) => ClaimStatus::ArithmeticOnly,
            (true, _) => ClaimStatus::Confirmed,
            (false, _) => ClaimStatus::Refuted,
        };
        Ok((standing, evidence))
    }
}

impl Test {
    /// The claimed range in milliseconds.
    fn range(&self) -> Result<(f64, f64), String> {
        match (self.below_ms, self.between_ms, self.about_ms) {
            (Some(below), None, None) => Ok((0.0, below)),
            (None, Some(range), None) => Ok(range),
            (None, None, Some(about)) => Ok((about / ABOUT, about * ABOUT)),
            _ => Err("needs exactly one of `below_ms`, `between_ms`, `about_ms`".to_owned()),
        }
    }

    fn judge(&self, (from, to): (f64, f64), summary: &Summary) -> (ClaimStatus, String) {
        let place = format!(
            "{} {} {} on {}",
            self.metric, self.workload, self.state, self.arm
        );
        let cell = summary.cells.iter().find(|cell| {
            cell.arm == self.arm
                && cell.workload == self.workload
                && cell.state == self.state
                && cell.metric == self.metric
        });
        let ready = summary.ready.iter().find(|ready| {
            self.metric == READY
                && ready.arm == self.arm
                && ready.workload == self.workload
                && ready.state == self.state
        });
        let found = match ready {
            Some(ready) => Some((ready.typical_ns, ready.interval)),
            None => cell.map(|cell| (cell.typical_ns, cell.interval)),
        };
        let Some((typical_ns, interval)) = found else {
            let failing = summary.failing.iter().find(|found| {
                found.arm == self.arm
                    && found.workload == self.workload
                    && found.state == self.state
            });
            let why = failing.map_or(String::new(), |found| {
                format!(
                    ": {:.1} % of the calls did not end well, in {} of {} passes, and a wrong answer has no latency; a pass's calls were waited for {}",
                    found.share() * 100.0,
                    found.passes,
                    found.of_passes,
                    time(found.waited_ns)
                )
            });
            return (
                ClaimStatus::Open,
                format!("this run did not measure {place}{why}"),
            );
        };
        let Some(interval) = interval else {
            return (
                ClaimStatus::Open,
                format!("{place}: fewer than {MIN_EPOCHS} epochs say too little about spread"),
            );
        };
        let Interval { low, high } = interval.map(|ns| ns / 1e6);
        let standing = if from <= low && high <= to {
            ClaimStatus::Confirmed
        } else if high < from || to < low {
            ClaimStatus::Refuted
        } else {
            ClaimStatus::Open
        };
        let typical = typical_ns / 1e6;
        let evidence = format!("{typical:.4} ms [{low:.4}, {high:.4}], {place}");
        if summary.health.is_busy {
            return (
                ClaimStatus::Open,
                format!(
                    "{evidence}; this machine was busy, which neither confirms nor refutes a figure"
                ),
            );
        }
        if is_simulated(&self.arm) {
            return (
                ClaimStatus::Open,
                format!(
                    "{evidence}; the distance is simulated by our own proxy, which neither confirms nor refutes a figure about a real one"
                ),
            );
        }
        (standing, evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn standing(test: &str) -> Result<ClaimStatus, String> {
        let text = format!("source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\n{test}\n");
        let summary = testing::summary();
        judge_file(Path::new("c.toml"), &text, &summary, &testing::contexts())
            .map(|judged| judged[0].standing)
            .map_err(|error| error.to_string())
    }

    fn place(says: &str) -> String {
        // The scripted `direct` arm takes about 100 microseconds.
        format!(
            "[claim.test]\narm = 'direct'\nworkload = 'micro/read'\nstate = 'hot'\nmetric = 'read'\n{says}"
        )
    }

    #[test]
    fn a_claim_is_judged_by_the_whole_interval() {
        assert_eq!(
            standing(&place("below_ms = 1.0")),
            Ok(ClaimStatus::Confirmed)
        );
        assert_eq!(
            standing(&place("between_ms = [10.0, 50.0]")),
            Ok(ClaimStatus::Refuted)
        );
        assert_eq!(
            standing(&place("about_ms = 0.08")),
            Ok(ClaimStatus::Confirmed)
        );
        let summary = testing::summary();
        let measured = summary.cells.iter().find(|cell| cell.metric == "read");
        let typical = measured.unwrap().typical_ns / 1e6;
        let on_the_edge = place(&format!("below_ms = {typical}"));
        assert_eq!(standing(&on_the_edge), Ok(ClaimStatus::Open));
        assert_eq!(
            standing("untested = 'no backend'"),
            Ok(ClaimStatus::Untested)
        );
        let elsewhere = place("below_ms = 1.0").replace("micro/read", "micro/none");
        assert_eq!(standing(&elsewhere), Ok(ClaimStatus::Open));
    }

    #[test]
    fn a_claim_about_readiness_is_judged_by_the_daemons_start() {
        let ready = |says: &str| place(says).replace("metric = 'read'", "metric = 'ready'");
        let of_daemon = |says: &str| standing(&ready(says).replace("direct", "sqlite"));
        // The scripted daemons take 12 ms to start.
        assert_eq!(of_daemon("about_ms = 10.0"), Ok(ClaimStatus::Confirmed));
        assert_eq!(of_daemon("below_ms = 5.0"), Ok(ClaimStatus::Refuted));
        assert_eq!(
            standing(&ready("below_ms = 1.0")),
            Ok(ClaimStatus::Open),
            "nothing starts"
        );
    }

    #[test]
    fn a_wrong_answer_neither_confirms_nor_refutes_a_latency() {
        let mut run = testing::run();
        for sample in run.samples.iter_mut().filter(|s| s.arm == "sqlite") {
            sample.outcome = rundir::Outcome::WrongData;
            sample.outcomes = [(rundir::Outcome::WrongData, 4)].into();
            sample.waited_ns = 2_000_000_000;
        }
        let summary = crate::summary::summarise(&run).unwrap();
        let test = place("below_ms = 1000.0").replace("direct", "sqlite");
        let text = format!("source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\n{test}\n");
        let judged =
            judge_file(Path::new("c.toml"), &text, &summary, &testing::contexts()).unwrap();
        assert_eq!(judged[0].standing, ClaimStatus::Open);
        let evidence = &judged[0].evidence;
        assert!(
            evidence.contains("100.0 % of the calls did not end well, in 28 of 28 passes"),
            "{evidence}"
        );
        assert!(evidence.contains("2.00 s"), "{evidence}");
    }

    /// The verdict on a claim about the read latency of an arm. The scripted sqlite takes 0.2 ms.
    fn judged(run: &rundir::Run, arm: &str, says: &str) -> Judged {
        let summary = crate::summary::summarise(run).unwrap();
        let test = place(says).replace("direct", arm);
        let text = format!("source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\n{test}\n");
        let name = Path::new("c.toml");
        judge_file(name, &text, &summary, &testing::contexts())
            .unwrap()
            .remove(0)
    }

    #[test]
    fn an_arm_at_a_simulated_distance_neither_confirms_nor_refutes() {
        let mut run = testing::run();
        testing::rename_arm(&mut run, "sqlite", "s3@30ms");
        for says in ["below_ms = 1.0", "below_ms = 0.01"] {
            let found = judged(&run, "s3@30ms", says);
            assert_eq!(found.standing, ClaimStatus::Open, "{says}");
            assert!(found.evidence.contains("simulated"), "{}", found.evidence);
            assert!(found.evidence.starts_with("0.19"), "{}", found.evidence);
        }
        testing::rename_arm(&mut run, "s3@30ms", "s3");
        let confirmed = judged(&run, "s3", "below_ms = 1.0");
        assert_eq!(confirmed.standing, ClaimStatus::Confirmed);
        let refuted = judged(&run, "s3", "below_ms = 0.01");
        assert_eq!(refuted.standing, ClaimStatus::Refuted);
    }

    #[test]
    fn a_busy_run_neither_confirms_nor_refutes() {
        let mut run = testing::run();
        for sample in &mut run.samples {
            sample.load.busy = Some("tasks waited for memory in 9 % of it".to_owned());
        }
        for says in ["below_ms = 1.0", "below_ms = 0.01"] {
            let found = judged(&run, "sqlite", says);
            assert_eq!(found.standing, ClaimStatus::Open, "{says}");
            assert!(found.evidence.contains("busy"), "{}", found.evidence);
        }
    }

    #[test]
    fn two_epochs_neither_confirm_nor_refute() {
        let mut run = testing::run();
        run.samples.retain(|sample| sample.epoch < 2);
        let found = judged(&run, "sqlite", "below_ms = 1.0");
        assert_eq!(found.standing, ClaimStatus::Open);
        assert!(
            found.evidence.contains("fewer than 3 epochs"),
            "{}",
            found.evidence
        );
    }

    #[test]
    fn a_claim_about_tokens_is_judged_by_the_count() {
        let test = |policy: &str, says: &str| {
            let place = "[claim.tokens]\nworkload = 'agent/session'\nfigure = 'entering'";
            standing(&format!("{place}\npolicy = '{policy}'\n{says}"))
        };
        assert_eq!(
            test("before", "between = [51800, 51900]"),
            Ok(ClaimStatus::ArithmeticOnly)
        );
        assert_eq!(test("before", "below = 1.0"), Ok(ClaimStatus::Refuted));
        assert_eq!(
            test("inline", "below = 50000.0"),
            Ok(ClaimStatus::Confirmed)
        );
        assert_eq!(test("inline", "about = 50000.0"), Ok(ClaimStatus::Refuted));
        let saves = |policy: &str, against: &str| {
            test(
                policy,
                &format!("saved_against = '{against}'\nbetween = [80.0, 90.0]"),
            )
        };
        assert_eq!(saves("after", "before"), Ok(ClaimStatus::ArithmeticOnly));
        assert_eq!(saves("evict", "inline"), Ok(ClaimStatus::Confirmed));
        assert_eq!(saves("inline", "evict"), Ok(ClaimStatus::Refuted));
        assert_eq!(test("nonsense", "below = 1.0"), Ok(ClaimStatus::Open));
        assert_eq!(saves("inline", "nonsense"), Ok(ClaimStatus::Open));
        let error = test("inline", "").unwrap_err();
        assert!(
            error.contains("exactly one of `below`, `between`, `about`"),
            "{error}"
        );
        let error =
            standing("[claim.tokens]\nworkload = 'w'\npolicy = 'p'\nfigure = 'f'\nbelow = 1.0")
                .unwrap_err();
        assert!(
            error.contains("unknown figure \"f\", expected one of entering"),
            "{error}"
        );
    }

    #[test]
    fn a_malformed_claim_is_refused() {
        assert!(
            standing("")
                .unwrap_err()
                .contains("exactly one of `test`, `tokens` and `untested`")
        );
        assert!(
            standing(&place(""))
                .unwrap_err()
                .contains("exactly one of `below_ms`")
        );
        assert!(
            standing("colour = 'red'")
                .unwrap_err()
                .starts_with("c.toml:5: field `claim[0].colour`: unknown field `colour`")
        );
    }

    #[test]
    fn the_built_in_claims_can_be_read() {
        let judged = judge(&testing::summary(), &testing::contexts()).unwrap();
        assert!(judged.len() >= 25, "{}", judged.len());
        let mut ids: Vec<_> = judged.iter().map(|claim| &claim.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), judged.len(), "two claims have one name");
    }
}
