//! The status of a claim: joins the findings of its cases and of several runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::file::{Claim, ClaimFile};
use super::finding::{Finding, Test};
use super::range::{Fit, Range};
use figures::evidence::RunEvidence;

inputs::named! {
    /// The status of a claim, by the runs given.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum ClaimStatus, name {
        /// The whole interval lies in the claimed range.
        Confirmed = "confirmed",
        /// The whole interval lies outside the claimed range.
        Refuted = "refuted",
        /// It depends on a condition, which the evidence names.
        Conditional = "conditional",
        /// The claim's own figures agree; no request was counted or measured.
        ArithmeticOnly = "arithmetic only",
        /// A constant of this project or of a backend's makers says so; nothing was tested.
        Declared = "declared",
        /// No run given settles it. The evidence says why, and `settle` which command would.
        NotMeasured = "not measured",
        /// It is about a machine, network or service that the runs did not have.
        NotReproduced = "not reproduced here",
        /// No run can test it.
        Untestable = "untestable",
    }
}

impl ClaimStatus {
    /// Whether the evidence answers the claim.
    fn is_answered(self) -> bool {
        self.is_measured() || self == ClaimStatus::ArithmeticOnly
    }

    /// Whether measurements decide the claim.
    fn is_measured(self) -> bool {
        matches!(self, ClaimStatus::Confirmed | ClaimStatus::Refuted | ClaimStatus::Conditional)
    }

    /// Whether a run, here or elsewhere, can decide the claim.
    fn is_testable(self) -> bool {
        self.is_measured() || matches!(self, ClaimStatus::NotMeasured | ClaimStatus::NotReproduced)
    }

    /// Whether the claim needs no other run here.
    pub fn is_settled(self) -> bool {
        self.is_answered() || self == ClaimStatus::NotReproduced
    }
}

/// A claim and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Judged")]
pub struct ClaimResult {
    /// The claim's name.
    pub id: String,
    /// The publisher.
    pub source: String,
    /// Where it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The quoted claim.
    pub quote: String,
    /// How the quote is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// The claimed range; empty for a claim that is not tested.
    pub says: String,
    /// How it stands.
    #[serde(rename = "standing")]
    pub status: ClaimStatus,
    /// The measurement and its place, or why there is none.
    pub evidence: String,
    /// The factor, at least 1, between a refuted figure and the nearest end of its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The command that would settle it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<String>,
    /// Its conditions, and how each stands.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<CaseResult>,
    /// Whether a run has figures of it, settled or not.
    #[serde(skip)]
    pub has_figures: bool,
}

/// A condition of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "JudgedCase")]
pub struct CaseResult {
    /// The condition, to be read after "when".
    pub when: String,
    /// How the claim stands under it.
    #[serde(rename = "standing")]
    pub status: ClaimStatus,
    /// The measurement and its place, or why there is none.
    pub evidence: String,
    /// The factor, at least 1, between a refuted figure and the nearest end of its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Whether a run has figures of it, settled or not.
    pub has_figures: bool,
}

/// One test's result.
struct TestResult {
    status: ClaimStatus,
    evidence: String,
    factor: Option<f64>,
    settle: Option<String>,
    /// Whether a run has figures, settled or not.
    has_figures: bool,
}

impl TestResult {
    /// A result without figures that no command would change.
    fn new(status: ClaimStatus, evidence: impl Into<String>) -> Self {
        Self { status, evidence: evidence.into(), factor: None, settle: None, has_figures: false }
    }

    /// A result with figures.
    fn found(status: ClaimStatus, evidence: impl Into<String>) -> Self {
        Self { has_figures: true, ..Self::new(status, evidence) }
    }
}

/// Options that narrow an interval.
const MORE: &str = "--epochs 20 --budget 1200";

pub(super) fn judge(file: &ClaimFile, claim: &Claim, runs: &[RunEvidence<'_>]) -> ClaimResult {
    let mut cases = Vec::new();
    let result = match (&claim.elsewhere, &claim.untestable, &claim.test) {
        (Some(why), ..) => TestResult::new(ClaimStatus::NotReproduced, why),
        (_, Some(why), _) => TestResult::new(ClaimStatus::Untestable, why),
        (.., Some(test)) => of_runs(test.test(), claim.says.as_ref(), runs, claim.settle.as_ref()),
        _ => {
            let mut settle = None;
            for case in &claim.cases {
                let says = case.says.as_ref().or(claim.says.as_ref());
                let command = case.settle.as_ref().or(claim.settle.as_ref());
                let found = of_runs(case.test.test(), says, runs, command);
                settle = settle.or(found.settle);
                cases.push(CaseResult {
                    when: case.when.clone(),
                    status: found.status,
                    evidence: found.evidence,
                    factor: found.factor,
                    has_figures: found.has_figures,
                });
            }
            of_cases(&cases, settle)
        }
    };
    let mut ranges: Vec<String> = claim.tests().filter_map(|(_, says, _)| says.map(Range::words)).collect();
    ranges.dedup();
    let is_open = matches!(result.status, ClaimStatus::NotMeasured | ClaimStatus::Conditional);
    ClaimResult {
        id: claim.id.clone(),
        source: claim.source.as_ref().unwrap_or(&file.source).clone(),
        url: claim.url.clone(),
        quote: claim.quote.clone(),
        taken: claim.taken.clone(),
        says: ranges.join("; "),
        status: result.status,
        evidence: result.evidence,
        factor: result.factor,
        settle: result.settle.filter(|_| is_open),
        has_figures: cases.iter().any(|case| case.has_figures) || (cases.is_empty() && result.has_figures),
        cases,
    }
}

/// Joins a claim's cases. A claim is confirmed or refuted only if it is so in all of them.
fn of_cases(cases: &[CaseResult], settle: Option<String>) -> TestResult {
    let mut kinds: Vec<ClaimStatus> = cases.iter().map(|case| case.status).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let is_open = kinds.contains(&ClaimStatus::NotMeasured);
    let settled = kinds.iter().filter(|kind| kind.is_answered()).count();
    // Cases without any figure are named together: their evidence is the same.
    let (without, with): (Vec<_>, Vec<_>) =
        cases.iter().partition(|case| case.status == ClaimStatus::NotMeasured && !case.has_figures);
    let with = with.into_iter().map(|case| {
        let factor = case.factor.map_or(String::new(), by_factor);
        let status = case.status.name();
        format!("when {}: {status}{factor} ({})", case.when, case.evidence)
    });
    let mut words: Vec<String> = with.collect();
    if let Some(first) = without.first() {
        let names: Vec<_> = without.iter().map(|case| case.when.as_str()).collect();
        words.push(format!("not measured when {} ({})", names.join(", nor when "), first.evidence));
    }
    let status = match kinds.as_slice() {
        [one] => *one,
        // The weakest of the cases: a constant confirms nothing.
        _ if kinds.contains(&ClaimStatus::Declared) && settled < 2 => ClaimStatus::Declared,
        // Cases that agree settle a claim only together with those that are not measured yet.
        _ if settled >= 2 || (settled == 1 && !is_open) => ClaimStatus::Conditional,
        _ if is_open => ClaimStatus::NotMeasured,
        [first, ..] => *first,
        [] => ClaimStatus::NotMeasured,
    };
    // Of a claim that every case refutes, the smallest factor holds.
    let factors = cases.iter().map(|case| case.factor);
    let factors: Option<Vec<f64>> = factors.collect();
    let smallest = factors.and_then(|factors| factors.into_iter().reduce(f64::min));
    TestResult {
        factor: smallest.filter(|_| status == ClaimStatus::Refuted),
        settle,
        ..TestResult::found(status, words.join("; "))
    }
}

/// Judges one test by all runs. Runs that disagree make it conditional on the run.
fn of_runs(test: &dyn Test, says: Option<&Range>, runs: &[RunEvidence<'_>], command: Option<&String>) -> TestResult {
    // A parsed claim has a range for each of its tests.
    let Some(says) = says else {
        return TestResult::new(ClaimStatus::NotMeasured, "no range");
    };
    let command = command.cloned();
    let command = command.unwrap_or_else(|| test.command(&says.unit));
    let nothing = || TestResult {
        settle: Some(command.clone()),
        ..TestResult::new(ClaimStatus::NotMeasured, "no run was given")
    };
    if let Some(finding) = test.alone() {
        return of_finding(finding, says, &command);
    }
    let results = runs.iter().map(|run| {
        let name = run.run.dir.file_name();
        let name = name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
        (name, of_finding(test.measure(run, &says.unit), says, &command))
    });
    let results: Vec<(String, TestResult)> = results.collect();
    let settled = results.iter().filter(|(_, result)| result.status.is_answered());
    let settled: Vec<&(String, TestResult)> = settled.collect();
    let is_other = |(_, result): &&(String, TestResult)| result.status != settled[0].1.status;
    if settled.iter().any(is_other) {
        let words =
            settled.iter().map(|(run, result)| format!("{} by {run} ({})", result.status.name(), result.evidence));
        let words = format!("on the run: {}", words.collect::<Vec<_>>().join("; "));
        return TestResult::found(ClaimStatus::Conditional, words);
    }
    let others = settled.len().saturating_sub(1);
    // A run that settles the claim comes first, then one of a simulated place, then one with figures.
    let rank = |(_, result): &(String, TestResult)| match result.status {
        status if status.is_answered() => 0,
        ClaimStatus::NotReproduced => 1,
        _ if result.has_figures => 2,
        _ => 3,
    };
    let Some((run, mut result)) = results.into_iter().min_by_key(rank) else {
        return nothing();
    };
    if runs.len() > 1 && result.has_figures {
        let more = match others {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        result.evidence += &format!(", {run}{more}");
    }
    result
}

/// Judges a finding; `command` makes better evidence.
fn of_finding(finding: Finding, says: &Range, command: &str) -> TestResult {
    let command = || command.to_owned();
    match finding {
        Finding::Open { words, is_final } => {
            TestResult { settle: (!is_final).then(command), ..TestResult::found(ClaimStatus::NotMeasured, words) }
        }
        Finding::Missing(words) => {
            TestResult { settle: Some(command()), ..TestResult::new(ClaimStatus::NotMeasured, words) }
        }
        Finding::Declared(words) => TestResult::found(ClaimStatus::Declared, words),
        Finding::Simulated(words) => TestResult::found(ClaimStatus::NotReproduced, words),
        Finding::Value { value, interval, words, is_published } => match says.fit(value, interval) {
            Fit::Inside if is_published => TestResult::found(ClaimStatus::ArithmeticOnly, words),
            Fit::Inside => TestResult::found(ClaimStatus::Confirmed, words),
            Fit::Outside(factor) => TestResult { factor, ..TestResult::found(ClaimStatus::Refuted, words) },
            Fit::Across => {
                let more =
                    if command().starts_with("ctxbench run ") { format!("{} {MORE}", command()) } else { command() };
                let words = format!("{words}: the interval contains an end of the range");
                TestResult { settle: Some(more), ..TestResult::found(ClaimStatus::NotMeasured, words) }
            }
        },
    }
}

/// A factor in words.
pub fn by_factor(factor: f64) -> String {
    match factor {
        factor if factor >= 10.0 => format!(" by ×{factor:.0}"),
        factor => format!(" by ×{factor:.2}"),
    }
}

/// The number of claims of each status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// Claims.
    pub claims: usize,
    /// Claims that measurements of these runs decide: confirmed, refuted, conditional.
    pub tested: usize,
    /// Claims that some run can decide: those, and the ones that are not measured or not reproduced here.
    pub testable: usize,
    /// Claims by status.
    #[serde(rename = "by_standing")]
    pub by_status: BTreeMap<ClaimStatus, usize>,
    /// Commands that would settle more claims, with their number, the most first.
    pub commands: Vec<(String, usize)>,
}

impl Tally {
    /// The tally in a sentence.
    pub fn words(&self) -> String {
        let listed = |is_wanted: fn(ClaimStatus) -> bool| {
            let counts = self.by_status.iter().filter(|(status, _)| is_wanted(**status));
            let counts = counts.map(|(status, count)| format!("{count} {}", status.name()));
            counts.collect::<Vec<_>>().join(", ")
        };
        let in_brackets = |words: String| if words.is_empty() { words } else { format!(" ({words})") };
        let decided = in_brackets(listed(ClaimStatus::is_measured));
        let open = listed(|status| status.is_testable() && !status.is_measured());
        let open = if open.is_empty() { open } else { format!("; {open}") };
        let others = match self.claims - self.testable {
            0 => String::new(),
            1 => format!(" No run can decide the other one{}.", in_brackets(listed(|status| !status.is_testable()))),
            others => {
                format!(" No run can decide the other {others}{}.", in_brackets(listed(|status| !status.is_testable())))
            }
        };
        format!(
            "Measurements decide {} of the {} claims that a run can decide{decided}{open}.{others}",
            self.tested, self.testable
        )
    }
}

/// Counts how claims stand.
pub fn tally(claims: &[ClaimResult]) -> Tally {
    let mut tally = Tally { claims: claims.len(), ..Tally::default() };
    let mut commands: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in claims {
        *tally.by_status.entry(claim.status).or_default() += 1;
        tally.tested += usize::from(claim.status.is_measured());
        tally.testable += usize::from(claim.status.is_testable());
        if let Some(command) = &claim.settle {
            *commands.entry(command).or_default() += 1;
        }
    }
    let commands = commands.into_iter();
    tally.commands = commands.map(|(command, count)| (command.to_owned(), count)).collect();
    // Stable: commands of the same number stay in their order.
    tally.commands.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    tally
}
