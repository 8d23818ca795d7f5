//! Exact counts: passes, probes, conformance, faults, losses, burden, properties.

use std::collections::BTreeSet;

use rundir::faults::{FaultOutcome, Status};
use rundir::{Outcome, PROBES, Probe, SAMPLES};

use super::safety::{broken, is_destroyed};
use super::{Evidence, Found, Gap, Reading, planned, run_gap};
use crate::conformance::{CONFORMANCE, tried_features};
use crate::decide::measure::{
    Aspect, Burden, BurdenPart, Conformance, FaultFigure, Faults, Gives, Kept, Passes, Probes,
    Results,
};

/// The scenario of `faults.jsonl`, which the probes of every run make.
pub const CRON_KILL: &str = "cron-kill";

impl Evidence<'_> {
    pub(super) fn passes(&self, passes: &Passes, arm: &str) -> Found {
        let samples = self.runs.iter().flat_map(|own| &own.run.samples);
        let own = samples.filter(|own| own.arm == arm && own.workload == passes.workload);
        let outcomes: Vec<Outcome> = own.map(|own| own.outcome).collect();
        let tried = outcomes
            .iter()
            .filter(|own| !matches!(own, Outcome::Skipped | Outcome::Infra));
        let tried: Vec<_> = tried.collect();
        if tried.is_empty() {
            if let Some(why) = self.left_out(&passes.workload, arm) {
                return Found::NotOffered(why);
            }
            let what = format!("passes of {} on {arm}", passes.workload);
            return run_gap(&passes.workload, &[arm], what);
        }
        let failed = tried.iter().filter(|own| ***own != Outcome::Ok).count();
        let words = format!("{failed} of {} passes failed", tried.len());
        let source = format!("{SAMPLES}: outcomes of {}", passes.workload);
        Found::Value(Reading::exact(failed as f64, words, &source))
    }

    pub(super) fn results(&self, results: &Results, arm: &str) -> Found {
        let passes = Passes {
            workload: results.workload.clone(),
        };
        match self.passes(&passes, arm) {
            Found::Value(found) if found.value == 0.0 => {}
            Found::Value(found) => {
                let what = format!(
                    "{} on {arm} has wrong results: {}",
                    results.workload, found.words
                );
                return run_gap(&results.workload, &[arm], what);
            }
            other => return other,
        }
        let mut plans = self.runs.iter().flat_map(|own| &own.run.plan.workloads);
        let tokens =
            plans.find_map(|own| own.result_tokens.filter(|_| own.name == results.workload));
        match tokens {
            Some(tokens) => {
                let words = format!("{tokens} tokens of verified results");
                let source = "plan.toml: workloads.result_tokens; samples.jsonl: outcomes";
                Found::Value(Reading::exact(tokens as f64, words, source))
            }
            None => {
                let what = format!("tokens of the results of {}", results.workload);
                run_gap(&results.workload, &[arm], what)
            }
        }
    }

    fn tried(&self, aspect: &str, arm: &str) -> Vec<&Probe> {
        let probes = self.runs.iter().flat_map(|own| &own.run.probes);
        let own = probes.filter(|probe| probe.aspect == aspect && probe.arm == arm);
        own.filter(|probe| probe.outcome != Outcome::Skipped)
            .collect()
    }

    pub(super) fn probes(&self, probes: &Probes, arm: &str) -> Found {
        let aspect = probes.aspect.name();
        let wanted =
            |probe: &&&Probe| probes.names.is_empty() || probes.names.contains(&probe.name);
        let tried = self.tried(aspect, arm);
        let tried: Vec<_> = tried.iter().filter(wanted).collect();
        let broken = tried.iter().find(|probe| probe.outcome == Outcome::Infra);
        if tried.is_empty() || broken.is_some() {
            return Found::Missing(Gap {
                what: match broken {
                    Some(probe) => format!("probe {} of {arm}: {}", probe.name, probe.detail),
                    None => format!("{aspect} probes of {arm}"),
                },
                command: format!("ctxbench run --backend {arm}"),
            });
        }
        let failing = tried.iter().filter(|probe| probe.outcome != Outcome::Ok);
        let failing: Vec<&str> = failing.map(|probe| probe.name.as_str()).collect();
        let verb = match probes.aspect {
            Aspect::Tool => "work",
            Aspect::Visible => "are visible",
        };
        let words = failing_of(&failing, tried.len(), verb);
        let source = format!("{PROBES}: aspect {aspect}");
        Found::Value(Reading::exact(failing.len() as f64, words, &source))
    }

    pub(super) fn conformance(&self, conformance: &Conformance, arm: &str) -> Found {
        let is_wanted = |name: &str| {
            let group = name.split(':').next().unwrap_or_default();
            conformance.groups.is_empty() || conformance.groups.iter().any(|own| own == group)
        };
        let probes = self.runs.iter().flat_map(|own| &own.run.probes);
        let Some(tried) = tried_features(probes, arm, is_wanted) else {
            return Found::Missing(Gap {
                what: format!("conformance of {arm}"),
                command: format!("ctxbench conform direct {arm}"),
            });
        };
        let words = failing_of(&tried.failing, tried.count, "work");
        let source = format!("{PROBES}: aspect {CONFORMANCE}");
        Found::Value(Reading::exact(tried.failing.len() as f64, words, &source))
    }

    fn outcomes(&self, arm: &str, scenarios: &[String]) -> Vec<&FaultOutcome> {
        let all = self.runs.iter().flat_map(|own| &own.run.fault_outcomes);
        let own = all.filter(|own| own.backend == arm && own.status == Status::Ran);
        own.filter(|own| scenarios.is_empty() || scenarios.contains(&own.scenario))
            .collect()
    }

    pub(super) fn faults(&self, faults: &Faults, arm: &str) -> Found {
        let wants_cron = faults.scenarios.iter().any(|name| name == CRON_KILL);
        let lines = self.runs.iter().flat_map(|own| &own.run.faults);
        let lines = lines.filter(|own| wants_cron && own.arm == arm && own.scenario == CRON_KILL);
        // A backend that did not come back is a result. One that could not be tried is not.
        let lines = lines.filter(|own| !matches!(own.outcome, Outcome::Infra | Outcome::Skipped));
        let lines: Vec<_> = lines.collect();
        let outcomes = self.outcomes(arm, &faults.scenarios);
        let mut seen: BTreeSet<&str> = outcomes.iter().map(|own| own.scenario.as_str()).collect();
        if !lines.is_empty() {
            seen.insert(CRON_KILL);
        }
        let missing = faults
            .scenarios
            .iter()
            .find(|name| !seen.contains(name.as_str()) && !self.is_unfit(name, arm));
        if let Some(name) = missing {
            return Found::Missing(Gap {
                what: format!("fault {name} on {arm}"),
                command: match name.as_str() {
                    CRON_KILL => format!("ctxbench run --backend {arm}"),
                    _ => format!("ctxbench fault --scenario {name} --backend {arm}"),
                },
            });
        }
        let audits = |own: &FaultOutcome| -> u64 { own.audits.values().map(broken).sum() };
        let manual =
            |own: &&&FaultOutcome| own.recovery.as_ref().is_some_and(|own| !own.is_unaided());
        let count: u64 = match faults.figure {
            FaultFigure::LostRecords => {
                lines.iter().map(|own| own.lost).sum::<u64>()
                    + outcomes.iter().map(|own| audits(own)).sum::<u64>()
            }
            FaultFigure::FailedCalls => {
                let seen = outcomes.iter().flat_map(|own| &own.seen);
                let failed = seen.filter(|own| own.errno.is_some()).map(|own| own.times);
                lines.iter().map(|own| own.failed_calls).sum::<u64>() + failed.sum::<u64>()
            }
            FaultFigure::ManualRecoveries => {
                (lines.iter().filter(|own| !own.recovered).count()
                    + outcomes.iter().filter(manual).count()) as u64
            }
            FaultFigure::Hangs => {
                let hung = lines
                    .iter()
                    .filter(|own| own.outcome == Outcome::Hang)
                    .count();
                (hung + outcomes.iter().filter(|own| own.hang.is_some()).count()) as u64
            }
        };
        let killed = lines.iter().filter(|own| own.killed).count();
        let slowest = lines.iter().map(|own| own.recovery_ms).max();
        let mut words = match faults.figure {
            FaultFigure::LostRecords => format!("{count} records lost or torn"),
            FaultFigure::FailedCalls => format!("{count} calls failed"),
            FaultFigure::ManualRecoveries => format!("{count} manual recoveries"),
            FaultFigure::Hangs => format!("{count} hangs"),
        };
        words += &match (killed, slowest) {
            (_, None) => format!(" in {} scenarios", outcomes.len()),
            (0, Some(_)) => ", no daemon to kill".to_owned(),
            (kills, Some(ms)) => format!(" in {kills} kills, usable again within {ms} ms"),
        };
        let source = format!(
            "faults.jsonl, fault-outcomes.jsonl: {}",
            faults.scenarios.join(", ")
        );
        Found::Value(Reading::exact(count as f64, words, &source))
    }

    /// Whether a run found that a scenario does not apply to an arm, such as a killed daemon without one.
    fn is_unfit(&self, scenario: &str, arm: &str) -> bool {
        let mut all = self.runs.iter().flat_map(|own| &own.run.fault_outcomes);
        all.any(|own| own.scenario == scenario && own.backend == arm && own.status == Status::Unfit)
    }

    pub(super) fn kept(&self, kept: &Kept, arm: &str) -> Found {
        let loss = kept.loss.name();
        let mut audits = Vec::new();
        for own in self.outcomes(arm, &[]) {
            audits.extend(own.audits.get(loss));
        }
        let points = self.runs.iter().flat_map(|own| &own.run.crash_points);
        let points = points
            .filter(|own| own.backend == arm && own.loss == loss && own.status == Status::Ran);
        audits.extend(points.map(|own| &own.audit));
        let present: u64 = audits.iter().map(|own| own.present).sum();
        let gone = audits.iter().map(|own| {
            own.unpromised + own.lost + own.torn + own.half + own.stale + own.unreadable
        });
        let all = present + gone.sum::<u64>();
        if all == 0 {
            let promise = self.arm(arm).and_then(|own| own.backend.promises.get(loss));
            // A plan that lists promises and none for this loss has no audit to offer.
            let known = self
                .arm(arm)
                .is_some_and(|own| !own.backend.promises.is_empty());
            if promise.is_none() && known {
                let words = format!("promises nothing for {loss}");
                let source = "plan.toml: arms.backend.promises";
                return Found::Value(Reading::exact(0.0, words, source));
            }
            return Found::Missing(Gap {
                what: format!("records after {loss} of {arm}"),
                command: format!("ctxbench fault --backend {arm} --crash-points 100"),
            });
        }
        let words = format!("{present} of {all} records kept");
        let source = format!("fault-outcomes.jsonl, crash-points.jsonl: {loss}");
        Found::Value(Reading::exact(present as f64 / all as f64, words, &source))
    }

    pub(super) fn burden(&self, burden: &Burden, arm: &str) -> Found {
        let Some(planned) = self.arm(arm) else {
            let what = format!("{arm} is in no plan");
            let command = format!("ctxbench run --backend {arm}");
            return Found::Missing(Gap { what, command });
        };
        let backend = &planned.backend;
        let names = backend
            .needs
            .iter()
            .filter_map(|need| need.split(':').next());
        let names: Vec<&str> = names.collect();
        let (privileges, dependencies): (Vec<&str>, Vec<&str>) = names
            .into_iter()
            .partition(|name| name.starts_with("/dev/") || *name == "root");
        let mut parts: Vec<String> = Vec::new();
        let (mut sum, mut unknown) = (0, Vec::new());
        for part in &burden.of {
            let (count, words) = match part {
                BurdenPart::Processes => {
                    (backend.daemons as usize, plural(backend.daemons, "process"))
                }
                BurdenPart::Mounts => (backend.mounts as usize, plural(backend.mounts, "mount")),
                BurdenPart::Privileges => (privileges.len(), privileges.join(", ")),
                // The file of another file system that names no need does not say that there is none.
                BurdenPart::Dependencies if backend.file.is_some() && backend.needs.is_empty() => {
                    unknown.push("dependencies");
                    continue;
                }
                BurdenPart::Dependencies => (dependencies.len(), dependencies.join(", ")),
                BurdenPart::RecoverySteps => {
                    let outcomes = self.outcomes(arm, &[]);
                    if outcomes.is_empty() && backend.daemons > 0 {
                        unknown.push("recovery steps");
                        continue;
                    }
                    // What a plain directory needs as well, such as a repaired disk, is not the backend's.
                    let of_disk = steps(&self.outcomes("direct", &[]));
                    let steps: BTreeSet<_> = &steps(&outcomes) - &of_disk;
                    (steps.len(), plural(steps.len() as u32, "recovery step"))
                }
            };
            sum += count;
            if count > 0 {
                parts.push(words);
            }
        }
        if unknown.len() == burden.of.len() {
            return Found::Unknown(format!("{} unknown", unknown.join(" and ")));
        }
        let mut words = match parts.is_empty() {
            true => "nothing".to_owned(),
            false => parts.join(", "),
        };
        if !unknown.is_empty() {
            words += &format!("; {} unknown, not counted", unknown.join(" and "));
        }
        let source = "plan.toml: arms.backend; fault-outcomes.jsonl: recovery";
        Found::Value(Reading::exact(sum as f64, words, source))
    }

    pub(super) fn gives(&self, gives: &Gives, arm: &str) -> Found {
        let plans = self.runs.iter().filter_map(|own| planned(own.run, arm));
        let given = plans.filter_map(|arm| arm.backend.gives.as_ref()).next();
        let Some(given) = given else {
            return Found::Unknown(format!("the description of {arm} does not say"));
        };
        let wanted = gives.what.iter().map(|own| own.name());
        let has: Vec<&str> = wanted
            .filter(|name| given.iter().any(|own| own == name))
            .collect();
        let words = match has.is_empty() {
            true => "none".to_owned(),
            false => has.join(", "),
        };
        let source = "plan.toml: arms.backend.gives (described, not measured)";
        Found::Value(Reading::exact(has.len() as f64, words, source))
    }
}

fn failing_of(failing: &[&str], all: usize, verb: &str) -> String {
    const SHOWN: usize = 3;
    let works = format!("{} of {all} {verb}", all - failing.len());
    match failing.len() {
        0 => works,
        count if count <= SHOWN => format!("{works} (not: {})", failing.join("; ")),
        count => format!(
            "{works} (not: {}; {} more)",
            failing[..SHOWN].join("; "),
            count - SHOWN
        ),
    }
}

fn plural(count: u32, noun: &str) -> String {
    let ending = match noun.ends_with('s') {
        true => "es",
        false => "s",
    };
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}{ending}"),
    }
}

/// What had to be done by hand after faults that left the store's own bytes alone.
fn steps(outcomes: &[&FaultOutcome]) -> BTreeSet<String> {
    let outcomes = outcomes.iter().filter(|own| !is_destroyed(own));
    let manual = outcomes.filter_map(|own| own.recovery.as_ref().filter(|own| !own.is_unaided()));
    manual
        .map(|own| own.step.clone().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use rundir::faults::{Audit, Recovery, Return};

    use super::*;

    #[test]
    fn a_step_after_a_fault_that_destroyed_the_store_is_none_of_the_backends() {
        let outcome = |look: &str, step: &str| {
            let mut outcome = FaultOutcome::ran("a fault", "storage", "sqlite", 1);
            outcome.audits.insert(look.to_owned(), Audit::default());
            outcome.recovery = Some(Recovery {
                how: Return::AfterStep,
                ms: 1,
                step: Some(step.to_owned()),
            });
            outcome
        };
        let (kept, gone) = (
            outcome("killed-daemon", "remount"),
            outcome("log-gone", "go on"),
        );
        assert_eq!(
            steps(&[&kept, &gone]),
            BTreeSet::from(["remount".to_owned()])
        );
    }
}
