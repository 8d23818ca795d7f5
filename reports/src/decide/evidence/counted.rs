//! Exact counts: passes, probes, conformance, faults, losses, burden, properties.

use std::collections::{BTreeMap, BTreeSet};

use rundir::faults::{Audit, FaultOutcome, MACHINE_LOSS, Status};
use rundir::{Fault, Outcome, PROBES, Probe, SAMPLES};

use super::safety::is_destroyed;
use super::{Evidence, Found, missing, run_gap};
use crate::conformance::{CONFORMANCE, tried_features};
use crate::decide::measure::{Aspect, BurdenPart, FaultFigure, Property};
use crate::evidence::CRON_KILL;

impl Evidence<'_> {
    pub(super) fn passes(&self, workload: &str, arm: &str) -> Found {
        let runs = self.runs.iter();
        let passes = runs.flat_map(|run| run.passes(workload, arm));
        let tried = passes.map(|pass| pass.outcome);
        let tried = tried.filter(|outcome| !matches!(outcome, Outcome::Skipped | Outcome::Infra));
        let tried: Vec<Outcome> = tried.collect();
        if tried.is_empty() {
            return match self.left_out(workload, arm) {
                Some(why) => Found::NotOffered(why),
                None => run_gap(workload, &[arm], format!("passes of {workload} on {arm}")),
            };
        }
        let failed = tried.iter().filter(|outcome| **outcome != Outcome::Ok);
        let failed = failed.count();
        let words = format!("{failed} of {} passes failed", tried.len());
        let source = format!("{SAMPLES}: outcomes of {workload}");
        Found::exact(failed as f64, words, &source)
    }

    pub(super) fn results(&self, workload: &str, arm: &str) -> Found {
        match self.passes(workload, arm) {
            Found::Value(found) if found.value == 0.0 => {}
            Found::Value(found) => {
                let what = format!("{workload} on {arm} has wrong results: {}", found.words);
                return run_gap(workload, &[arm], what);
            }
            other => return other,
        }
        let tokens = self.runs.iter().find_map(|run| run.result_tokens(workload));
        match tokens {
            Some(tokens) => {
                let words = format!("{tokens} tokens of verified results");
                let source = "plan.toml: workloads.result_tokens; samples.jsonl: outcomes";
                Found::exact(tokens as f64, words, source)
            }
            None => run_gap(
                workload,
                &[arm],
                format!("tokens of the results of {workload}"),
            ),
        }
    }

    pub(super) fn probes(&self, aspect: Aspect, names: &[String], arm: &str) -> Found {
        let name = aspect.name();
        let tried = self.runs.iter().flat_map(|run| run.probes(name, arm));
        let tried = tried.filter(|probe| names.is_empty() || names.contains(&probe.name));
        let tried: Vec<&Probe> = tried.collect();
        let broken = tried.iter().find(|probe| probe.outcome == Outcome::Infra);
        if tried.is_empty() || broken.is_some() {
            let what = match broken {
                Some(probe) => format!("probe {} of {arm}: {}", probe.name, probe.detail),
                None => format!("{name} probes of {arm}"),
            };
            return missing(what, format!("ctxbench run --backend {arm}"));
        }
        let failing = tried.iter().filter(|probe| probe.outcome != Outcome::Ok);
        let failing: Vec<&str> = failing.map(|probe| probe.name.as_str()).collect();
        let verb = match aspect {
            Aspect::Tool => "work",
            Aspect::Visible => "are visible",
        };
        let words = failing_of(&failing, tried.len(), verb);
        let source = format!("{PROBES}: aspect {name}");
        Found::exact(failing.len() as f64, words, &source)
    }

    pub(super) fn conformance(&self, groups: &[String], arm: &str) -> Found {
        fn group_of(feature: &str) -> &str {
            feature.split(':').next().unwrap_or_default()
        }
        let is_wanted =
            |name: &str| groups.is_empty() || groups.iter().any(|group| group == group_of(name));
        let probes = self.runs.iter().flat_map(|run| &run.run.probes);
        let not_tried = |what: String| missing(what, format!("ctxbench conform direct {arm}"));
        // A group of which nothing was tried would pass.
        let is_tried = |group: &&String| {
            tried_features(probes.clone(), arm, |name| group_of(name) == **group).is_some()
        };
        if let Some(group) = groups.iter().find(|group| !is_tried(group)) {
            return not_tried(format!("conformance of {arm} in the group {group}"));
        }
        let Some(tried) = tried_features(probes, arm, is_wanted) else {
            return not_tried(format!("conformance of {arm}"));
        };
        let words = failing_of(&tried.failing, tried.count, "work");
        let source = format!("{PROBES}: aspect {CONFORMANCE}");
        Found::exact(tried.failing.len() as f64, words, &source)
    }

    fn outcomes(&self, arm: &str) -> Vec<&FaultOutcome> {
        self.runs.iter().flat_map(|run| run.outcomes(arm)).collect()
    }

    pub(super) fn faults(&self, scenarios: &[String], figure: FaultFigure, arm: &str) -> Found {
        let kills = self.runs.iter().flat_map(|run| run.kills(arm));
        let kills = kills.filter(|kill| scenarios.contains(&kill.scenario));
        let kills: Vec<&Fault> = kills.collect();
        let mut outcomes = self.outcomes(arm);
        outcomes.retain(|outcome| scenarios.is_empty() || scenarios.contains(&outcome.scenario));
        let seen = outcomes.iter().map(|outcome| outcome.scenario.as_str());
        let mut seen: BTreeSet<&str> = seen.collect();
        seen.extend(kills.iter().map(|kill| kill.scenario.as_str()));
        let mut wanted = scenarios.iter();
        let lacking =
            wanted.find(|name| !seen.contains(name.as_str()) && !self.is_unfit(name, arm));
        if let Some(name) = lacking {
            let command = match name.as_str() {
                CRON_KILL => format!("ctxbench run --backend {arm}"),
                _ => format!("ctxbench fault --scenario {name} --backend {arm}"),
            };
            return missing(format!("fault {name} on {arm}"), command);
        }
        // The worst injection of each scenario: the same fault once more must not change the figure.
        let mut total = 0;
        let mut worst: BTreeMap<&str, u64> = BTreeMap::new();
        let mut add = |scenario, count: u64| {
            total += count;
            let known: &mut u64 = worst.entry(scenario).or_default();
            *known = count.max(*known);
        };
        for kill in &kills {
            let count = match figure {
                FaultFigure::LostRecords => kill.lost,
                FaultFigure::FailedCalls => kill.failed_calls,
                FaultFigure::ManualRecoveries => u64::from(!kill.recovered),
                FaultFigure::Hangs => u64::from(kill.outcome == Outcome::Hang),
            };
            add(kill.scenario.as_str(), count);
        }
        for outcome in &outcomes {
            let count = match figure {
                FaultFigure::LostRecords => outcome.broken(),
                FaultFigure::FailedCalls => outcome.errors(),
                FaultFigure::ManualRecoveries => u64::from(outcome.needs_hand()),
                FaultFigure::Hangs => u64::from(outcome.hang.is_some()),
            };
            add(outcome.scenario.as_str(), count);
        }
        let what = match figure {
            FaultFigure::LostRecords => "records lost or torn",
            FaultFigure::FailedCalls => "calls failed",
            FaultFigure::ManualRecoveries => "manual recoveries",
            FaultFigure::Hangs => "hangs",
        };
        let count: u64 = worst.values().sum();
        let killed = kills.iter().filter(|kill| kill.killed).count();
        let slowest = kills.iter().map(|kill| kill.recovery_ms).max();
        let how = match (killed, slowest) {
            (_, None) => format!(" in {} scenarios", outcomes.len()),
            (0, Some(_)) => ", no daemon to kill".to_owned(),
            (kills, Some(ms)) => format!(" in {kills} kills, usable again within {ms} ms"),
        };
        let source = format!(
            "faults.jsonl, fault-outcomes.jsonl: {}",
            scenarios.join(", ")
        );
        let most = match count == total {
            true => String::new(),
            false => format!(", at most {count} in one of each"),
        };
        Found::exact(count as f64, format!("{total} {what}{how}{most}"), &source)
    }

    /// Whether a run found that a scenario does not apply to an arm, such as a killed daemon without one.
    fn is_unfit(&self, scenario: &str, arm: &str) -> bool {
        let mut all = self.runs.iter().flat_map(|run| &run.run.fault_outcomes);
        all.any(|outcome| {
            outcome.scenario == scenario
                && outcome.backend == arm
                && outcome.status == Status::Unfit
        })
    }

    pub(super) fn kept(&self, loss: &str, arm: &str, as_baseline: bool) -> Found {
        let outcomes = self.outcomes(arm).into_iter();
        let audits = outcomes.filter_map(|outcome| outcome.audits.get(loss));
        let points = self.runs.iter();
        let points = points.flat_map(|run| run.crash_points(loss, arm));
        let audits: Vec<&Audit> = audits.chain(points.map(|series| &series.audit)).collect();
        let present: u64 = audits.iter().map(|audit| audit.present).sum();
        let known = audits
            .iter()
            .map(|audit| audit.looks() - audit.absent - audit.phantom);
        let all: u64 = known.sum();
        if all == 0 {
            let backend = self.arm(arm).map(|planned| &planned.backend);
            let lists = |listed: &BTreeMap<String, String>| {
                !listed.is_empty() && !listed.contains_key(loss)
            };
            // A plan that lists promises and none for this loss has no audit to offer.
            if backend.is_some_and(|backend| lists(&backend.promises)) {
                // What is lost with the machine by the meaning of the words is counted. That no promise was made does not
                // say that nothing would be left, so that a baseline without one has no figure.
                if loss == MACHINE_LOSS && backend.is_some_and(|backend| !backend.has_bucket) {
                    let words = "0: its files are on the lost machine".to_owned();
                    return Found::exact(0.0, words, "plan.toml: arms.backend.promises");
                }
                if !as_baseline {
                    return Found::NotOffered(format!("promises nothing for {loss}"));
                }
            }
            return missing(
                format!("records after {loss} of {arm}"),
                format!("ctxbench fault --backend {arm} --crash-points 100"),
            );
        }
        let words = format!("{present} of {all} records kept");
        let source = format!("fault-outcomes.jsonl, crash-points.jsonl: {loss}");
        Found::exact(present as f64 / all as f64, words, &source)
    }

    pub(super) fn burden(&self, of: &[BurdenPart], arm: &str) -> Found {
        let Some(planned) = self.arm(arm) else {
            let command = format!("ctxbench run --backend {arm}");
            return missing(format!("{arm} is in no plan"), command);
        };
        let backend = &planned.backend;
        let needs = backend.needs.iter();
        let names = needs.filter_map(|need| need.split(':').next());
        let (privileges, dependencies): (Vec<&str>, Vec<&str>) =
            names.partition(|name| name.starts_with("/dev/") || *name == "root");
        let mut parts: Vec<String> = Vec::new();
        let (mut sum, mut unknown) = (0, Vec::new());
        for part in of {
            let (count, words) = match part {
                BurdenPart::Processes => {
                    (backend.daemons as usize, plural(backend.daemons, "process"))
                }
                BurdenPart::Mounts => (backend.mounts as usize, plural(backend.mounts, "mount")),
                BurdenPart::Privileges => (privileges.len(), privileges.join(", ")),
                // The description of an external backend may leave its needs out.
                BurdenPart::Dependencies if backend.file.is_some() && backend.needs.is_empty() => {
                    unknown.push("dependencies");
                    continue;
                }
                BurdenPart::Dependencies => (dependencies.len(), dependencies.join(", ")),
                BurdenPart::RecoverySteps => match self.recovery_steps(arm) {
                    Some(steps) => (steps.len(), plural(steps.len() as u32, "recovery step")),
                    None => {
                        unknown.push("recovery steps");
                        continue;
                    }
                },
            };
            sum += count;
            if count > 0 {
                parts.push(words);
            }
        }
        // A part without evidence is not zero of it.
        if !unknown.is_empty() {
            let what = format!("{} of {arm}", unknown.join(" and "));
            let known = match parts.is_empty() {
                true => String::new(),
                false => format!(" (beside {})", parts.join(", ")),
            };
            let command = format!("ctxbench fault --backend {arm}");
            return missing(format!("{what}{known}"), command);
        }
        let words = match parts.is_empty() {
            true => "nothing".to_owned(),
            false => parts.join(", "),
        };
        let source = "plan.toml: arms.backend; fault-outcomes.jsonl: recovery";
        Found::exact(sum as f64, words, source)
    }

    /// The manual steps after faults, without those that a plain directory needs in the same scenario, such as a repaired
    /// disk. A scenario that `direct` did not try is not compared: `None` if none is left.
    fn recovery_steps(&self, arm: &str) -> Option<BTreeSet<String>> {
        let of_disk = self.outcomes("direct");
        let tried = |scenario: &str| {
            of_disk.iter().any(|outcome| outcome.scenario == scenario)
                || self.is_unfit(scenario, "direct")
        };
        let outcomes = self.outcomes(arm).into_iter();
        let comparable = outcomes.filter(|outcome| tried(&outcome.scenario));
        let comparable: Vec<&FaultOutcome> = comparable.collect();
        if comparable.is_empty() {
            return None;
        }
        let mut own = BTreeSet::new();
        for outcome in comparable {
            let same = of_disk.iter().copied();
            let same = same.filter(|other| other.scenario == outcome.scenario);
            let of_disk = steps(&same.collect::<Vec<_>>());
            own.extend(&steps(&[outcome]) - &of_disk);
        }
        Some(own)
    }

    pub(super) fn gives(&self, what: &[Property], arm: &str) -> Found {
        let mut plans = self.planned(arm);
        let given = plans.find_map(|arm| arm.backend.gives.as_ref());
        let Some(given) = given else {
            return Found::Unknown(format!("the description of {arm} does not say"));
        };
        let wanted = what.iter().map(|property| property.name());
        let has: Vec<&str> = wanted
            .filter(|name| given.iter().any(|property| property == name))
            .collect();
        let words = match has.is_empty() {
            true => "none".to_owned(),
            false => has.join(", "),
        };
        let source = "plan.toml: arms.backend.gives (described, not measured)";
        Found::exact(has.len() as f64, words, source)
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

/// The manual steps after faults that left the store's own bytes alone.
fn steps(outcomes: &[&FaultOutcome]) -> BTreeSet<String> {
    let outcomes = outcomes.iter().filter(|outcome| !is_destroyed(outcome));
    let manual = outcomes.filter(|outcome| outcome.needs_hand());
    manual
        .filter_map(|outcome| Some(outcome.recovery.as_ref()?.step.clone().unwrap_or_default()))
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
