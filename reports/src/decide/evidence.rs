//! The evidence of a run for one row of a policy.

use super::policy::{Count, Criterion, Place, Policy};
use super::{Gate, Row, Winner};
use crate::render::time;
use crate::summary::{Cell, Summary};
use rundir::{Outcome, Run, SAMPLES};

/// A run and its summary.
pub(super) struct Evidence<'a> {
    pub(super) run: &'a Run,
    pub(super) summary: &'a Summary,
}

/// A count of an arm, as a number and in words.
struct Counted {
    number: u64,
    words: String,
}

impl Evidence<'_> {
    pub(super) fn row(&self, policy: &Policy, criterion: &Criterion) -> Row {
        let row = Row {
            aspect: criterion.aspect.clone(),
            source_says: criterion.source_says.clone(),
            baseline: String::new(),
            candidate: String::new(),
            winner: Winner::Open,
            demand: String::new(),
            must: Gate::None,
            evidence: String::new(),
        };
        match (&criterion.latency, criterion.count) {
            (Some(place), _) => self.latency(policy, criterion, place, row),
            (None, Some(count)) => self.counted(policy, criterion, count, row),
            // Unreachable: a parsed policy has a latency or a count in every criterion.
            (None, None) => row,
        }
    }

    fn latency(&self, policy: &Policy, criterion: &Criterion, place: &Place, row: Row) -> Row {
        let baseline = self.cell(place, &policy.baseline);
        let candidate = self.cell(place, &policy.candidate);
        let comparison = candidate.and_then(|cell| cell.against_baseline.as_ref());
        let is_summarised = self.summary.baseline == policy.baseline;
        let winner = match comparison.filter(|_| is_summarised) {
            None => Winner::Open,
            Some(comparison) => match comparison.verdict {
                stats::Verdict::Better => Winner::Candidate,
                stats::Verdict::Worse => Winner::Baseline,
                stats::Verdict::Same => Winner::Tie,
                stats::Verdict::Undecided => Winner::Open,
            },
        };
        let (demand, must) = match criterion.must_be_below_ms {
            None => (String::new(), Gate::None),
            Some(limit) => {
                let is_busy = self.summary.health.is_busy;
                let interval = candidate
                    .filter(|_| !is_busy)
                    .and_then(|cell| cell.interval);
                let must = match interval.map(|interval| interval.map(|ns| ns / 1e6)) {
                    Some(interval) if interval.high < limit => Gate::Passed,
                    Some(interval) if interval.low > limit => Gate::Failed,
                    _ => Gate::Open,
                };
                (format!("below {limit} ms"), must)
            }
        };
        let words = |cell: Option<&Cell>| match cell {
            None => "not measured".to_owned(),
            Some(cell) => {
                let interval = cell
                    .interval
                    .map(|interval| format!(" [{}, {}]", time(interval.low), time(interval.high)));
                let ratio = cell
                    .against_baseline
                    .as_ref()
                    .map(|c| format!(", ×{:.2}", c.ratio));
                format!(
                    "{}{}{}",
                    time(cell.typical_ns),
                    interval.unwrap_or_default(),
                    ratio.unwrap_or_default()
                )
            }
        };
        Row {
            baseline: words(baseline),
            candidate: words(candidate),
            winner,
            demand,
            must,
            evidence: format!(
                "{SAMPLES}: {} of {}, {}",
                place.metric, place.workload, place.state
            ),
            ..row
        }
    }

    fn counted(&self, policy: &Policy, criterion: &Criterion, count: Count, row: Row) -> Row {
        let workload = criterion.workload.as_deref().unwrap_or_default();
        let baseline = self.count(count, &policy.baseline, workload);
        let candidate = self.count(count, &policy.candidate, workload);
        let winner = match (&baseline, &candidate) {
            (Some(baseline), Some(candidate)) => match baseline.number.cmp(&candidate.number) {
                std::cmp::Ordering::Less => Winner::Baseline,
                std::cmp::Ordering::Equal => Winner::Tie,
                std::cmp::Ordering::Greater => Winner::Candidate,
            },
            _ => Winner::Open,
        };
        let must_count = criterion.must_count.unwrap_or(count);
        let (demand, must) = match criterion.must_be_at_most {
            None => (String::new(), Gate::None),
            Some(limit) => {
                let found = self.count(must_count, &policy.candidate, workload);
                let must = match &found {
                    None => Gate::Open,
                    Some(found) if found.number <= limit => Gate::Passed,
                    Some(_) => Gate::Failed,
                };
                (format!("at most {limit} {}", unit(must_count)), must)
            }
        };
        let words = |counted: Option<Counted>| {
            counted.map_or("not measured".to_owned(), |counted| counted.words)
        };
        Row {
            baseline: words(baseline),
            candidate: words(candidate),
            winner,
            demand,
            must,
            evidence: source(count).to_owned(),
            ..row
        }
    }

    fn cell(&self, place: &Place, arm: &str) -> Option<&Cell> {
        self.summary.cells.iter().find(|cell| {
            cell.workload == place.workload
                && cell.state == place.state
                && cell.metric == place.metric
                && cell.arm == arm
        })
    }

    fn count(&self, count: Count, arm: &str, workload: &str) -> Option<Counted> {
        let planned = self
            .run
            .plan
            .arms
            .iter()
            .find(|planned| planned.name == arm)?;
        let backend = &planned.backend;
        if planned.unavailable.is_some() {
            return None;
        }
        match count {
            Count::Needs => {
                let needs = backend.needs.len() as u64;
                let number = u64::from(backend.daemons) + u64::from(backend.mounts) + needs;
                let names: Vec<&str> = backend
                    .needs
                    .iter()
                    .filter_map(|need| need.split(':').next())
                    .collect();
                let words = if number == 0 {
                    "nothing".to_owned()
                } else {
                    format!(
                        "{} daemon, {} mount, {}",
                        backend.daemons,
                        backend.mounts,
                        names.join(", ")
                    )
                };
                Some(Counted { number, words })
            }
            // The code of external file systems is not counted.
            Count::LinesOfCode if backend.lines_of_code == 0 => None,
            Count::LinesOfCode => Some(Counted {
                number: backend.lines_of_code.into(),
                words: format!("{} lines", backend.lines_of_code),
            }),
            Count::ResultTokens => self.tokens(arm, workload),
            Count::ToolsFailing => self.probes("tool", arm, "tools work"),
            Count::HiddenFacts => self.probes("visible", arm, "facts visible"),
            Count::CronFailedCalls => self.cron(arm, |fault| fault.failed_calls),
            Count::CronLosses => self.cron(arm, |fault| fault.lost + u64::from(!fault.recovered)),
        }
    }

    /// Tokens of a workload's results. They are equal on every arm with correct results,
    /// and unknown on an arm with wrong results.
    fn tokens(&self, arm: &str, workload: &str) -> Option<Counted> {
        let planned = self
            .run
            .plan
            .workloads
            .iter()
            .find(|w| w.name == workload)?;
        let tokens = planned.result_tokens?;
        let mut passes = self
            .run
            .samples
            .iter()
            .filter(|sample| sample.arm == arm && sample.workload == workload)
            .peekable();
        passes.peek()?;
        let all_verified = passes.all(|sample| sample.outcome == Outcome::Ok);
        all_verified.then(|| Counted {
            number: tokens,
            words: format!("{tokens} tokens of verified results"),
        })
    }

    /// Failed probes of an aspect; skipped probes are not counted.
    fn probes(&self, aspect: &str, arm: &str, what: &str) -> Option<Counted> {
        let probes: Vec<_> = self
            .run
            .probes
            .iter()
            .filter(|probe| probe.aspect == aspect && probe.arm == arm)
            .filter(|probe| probe.outcome != Outcome::Skipped)
            .collect();
        let is_broken = probes.iter().any(|probe| probe.outcome == Outcome::Infra);
        if probes.is_empty() || is_broken {
            return None;
        }
        let failing: Vec<&str> = probes
            .iter()
            .filter(|probe| probe.outcome != Outcome::Ok)
            .map(|probe| probe.name.as_str())
            .collect();
        let working = probes.len() - failing.len();
        let mut words = format!("{working} of {} {what}", probes.len());
        if !failing.is_empty() {
            words += &format!(" (not: {})", failing.join(", "));
        }
        Some(Counted {
            number: failing.len() as u64,
            words,
        })
    }

    fn cron(&self, arm: &str, number: impl Fn(&rundir::Fault) -> u64) -> Option<Counted> {
        let faults: Vec<_> = self
            .run
            .faults
            .iter()
            .filter(|fault| fault.scenario == "cron-kill" && fault.arm == arm)
            // A backend that did not come back is a result. One that could not be tried is not.
            .filter(|fault| !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped))
            .collect();
        if faults.is_empty() {
            return None;
        }
        let sum = |value: &dyn Fn(&rundir::Fault) -> u64| -> u64 {
            faults.iter().map(|fault| value(fault)).sum()
        };
        let lost = sum(&|fault| fault.lost);
        let acknowledged = sum(&|fault| fault.acknowledged);
        let failed = sum(&|fault| fault.failed_calls);
        let recovered = faults.iter().filter(|fault| fault.recovered).count();
        let slowest = faults
            .iter()
            .map(|fault| fault.recovery_ms)
            .max()
            .unwrap_or(0);
        Some(Counted {
            number: sum(&number),
            words: format!(
                "{}: {recovered} of {} starts found it usable within {slowest} ms, {failed} calls failed, {lost} of {acknowledged} acknowledged records lost",
                match faults.iter().filter(|fault| fault.killed).count() {
                    0 => "no daemon to kill".to_owned(),
                    1 => "1 kill".to_owned(),
                    kills => format!("{kills} kills"),
                },
                faults.len()
            ),
        })
    }
}

fn source(count: Count) -> &'static str {
    match count {
        Count::Needs => "plan.toml: arms.backend.needs, daemons, mounts",
        Count::LinesOfCode => "plan.toml: arms.backend.lines_of_code",
        Count::ResultTokens => "plan.toml: workloads.result_tokens; samples.jsonl: outcomes",
        Count::ToolsFailing => "probes.jsonl: aspect tool",
        Count::HiddenFacts => "probes.jsonl: aspect visible",
        Count::CronFailedCalls | Count::CronLosses => "faults.jsonl: scenario cron-kill",
    }
}

fn unit(count: Count) -> &'static str {
    match count {
        Count::Needs => "needs",
        Count::LinesOfCode => "lines",
        Count::ResultTokens => "tokens",
        Count::ToolsFailing => "failing tools",
        Count::HiddenFacts => "hidden facts",
        Count::CronFailedCalls => "failed calls",
        Count::CronLosses => "lost records or manual recoveries",
    }
}
