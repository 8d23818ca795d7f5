//! Injected faults: what they took, what failed, and the steps after them.

use std::collections::{BTreeMap, BTreeSet};

use rundir::faults::{
    Audit, CellKind, CrashMethod, CrashPoints, FaultOutcome, KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS, Return, Status,
};
use rundir::{Fault, Outcome};
use serde::Deserialize;

use super::{ArmReading, Evidence, Gap, MeasureResult, missing};
use figures::evidence::CRON_KILL;
use figures::provenance::Provenance;

/// A figure of fault outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultFigure {
    /// Acknowledged records that are lost or torn.
    LostRecords,
    /// Calls that failed until the backend was back.
    FailedCalls,
    /// Faults after which only a manual step, or nothing, brought the backend back.
    ManualRecoveries,
    /// Calls that did not end within the limit.
    Hangs,
    /// Lines that agents without locks appended with success, and that are gone.
    UpdatesLost,
    /// Milliseconds until the files were usable again.
    RecoveryMs,
}

impl FaultFigure {
    /// Whether it counts what no fault should do, so that a few faults without it show little.
    pub fn is_event(self) -> bool {
        matches!(self, FaultFigure::LostRecords | FaultFigure::ManualRecoveries | FaultFigure::Hangs)
    }
}

inputs::named! {
    /// The part that is lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    pub enum Loss, name {
        /// The daemon, or without one the agent.
        #[serde(rename = "killed-daemon")]
        Daemon = KILLED_DAEMON,
        /// Everything that has not reached the disk.
        #[serde(rename = "power-loss")]
        Power = POWER_LOSS,
        /// The machine and its disks.
        #[serde(rename = "machine-loss")]
        Machine = MACHINE_LOSS,
    }
}

impl Loss {
    /// What a series of these losses consists of.
    pub(crate) fn things(self) -> &'static str {
        match self {
            Self::Daemon => "kills",
            Self::Power => "power cuts",
            Self::Machine => "losses of the machine",
        }
    }
}

/// The audits after a fault that destroyed bytes of the store. No backend promises those bytes, and the faults of
/// `direct` destroy none.
const DESTROYED: [&str; 2] = ["damaged", "log-gone"];

/// Whether the fault has destroyed bytes of the store itself.
fn is_destroyed(outcome: &FaultOutcome) -> bool {
    let mut looks = outcome.audits.keys();
    looks.any(|look| DESTROYED.contains(&look.as_str()))
}

/// Whether the kill itself did not end well. The harness writes no such line; one by other means shows no kept record.
fn is_bad(kill: &Fault) -> bool {
    kill.outcome != Outcome::Ok
}

/// Whether a kill could show a loss: it hit a request, or the files had acknowledged records.
fn is_exposed(kill: &Fault) -> bool {
    kill.acknowledged + kill.lost + kill.failed_calls > 0 || !kill.recovered || is_bad(kill)
}

/// An upper bound in percent, rounded up: one that is written as 5 % is not above 5 %.
fn bound_words(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).ceil() / 10.0)
}

/// The share of `things` that may be otherwise although none of `tried` was.
pub(super) fn most_unseen(tried: u64, things: &str) -> String {
    format!("at most {} of {things}", bound_words(stats::failure_bound(0, tried)))
}

impl ArmReading {
    /// This reading of `tried` things of which none did what the policy asks about; with `high` as its upper end if more than
    /// the share `within` may do so all the same.
    pub(super) fn unseen(self, tried: u64, within: Option<f64>, high: f64) -> Self {
        if within.is_some_and(|share| stats::failure_bound(0, tried) > share) { Self { high, ..self } } else { self }
    }
}

impl Evidence<'_> {
    fn outcomes(&self, arm: &str) -> Vec<&FaultOutcome> {
        self.runs.iter().flat_map(|run| run.outcomes(arm)).collect()
    }

    pub(super) fn faults(
        &self,
        scenarios: &[String],
        figure: FaultFigure,
        crashes_a_year: Option<f64>,
        within: Option<f64>,
        arm: &str,
    ) -> MeasureResult {
        let mut kills = self.cron_kills(arm);
        kills.retain(|kill| scenarios.contains(&kill.scenario));
        let mut outcomes = self.outcomes(arm);
        outcomes.retain(|outcome| scenarios.is_empty() || scenarios.contains(&outcome.scenario));
        let seen = outcomes.iter().map(|outcome| outcome.scenario.as_str());
        let mut seen: BTreeSet<&str> = seen.collect();
        seen.extend(kills.iter().map(|kill| kill.scenario.as_str()));
        let mut untried = scenarios.iter().filter(|name| !seen.contains(name.as_str()));
        let lacking = untried.find(|name| !self.has_no_daemon(arm) || self.unfit(name, arm).is_none());
        if let Some(name) = lacking {
            if let Some(why) = self.unfit(name, arm) {
                return MeasureResult::Void(format!("void: fault {name} was not tried on {arm}: {why}"));
            }
            let command = match name.as_str() {
                CRON_KILL => format!("ctxbench run --backend {arm}"),
                _ => format!("ctxbench fault --scenario {name} --backend {arm}"),
            };
            let was_missed = name == CRON_KILL && self.runs.iter().any(|run| run.kills(arm).next().is_some());
            let what = format!("fault {name} on {arm}");
            return MeasureResult::Missing(if was_missed {
                Gap::because(&what, "a run found no process to kill", command)
            } else {
                Gap::new(what, command)
            });
        }
        if figure == FaultFigure::RecoveryMs {
            let is_never = |outcome: &&&FaultOutcome| {
                outcome.recovery.as_ref().is_some_and(|recovery| recovery.how == Return::Never)
            };
            let of_kills = kills.iter().filter(|kill| !kill.recovered || is_bad(kill)).count();
            let never = of_kills + outcomes.iter().filter(is_never).count();
            if never > 0 {
                let words = format!("not usable again after {never} of {} faults", kills.len() + outcomes.len());
                return MeasureResult::exact(f64::INFINITY, words, "faults.jsonl, fault-outcomes.jsonl");
            }
        }
        // The worst injection of each scenario: the same fault once more must not change the figure.
        let (mut total, mut counts) = (0, Vec::new());
        let mut worst: BTreeMap<&str, u64> = BTreeMap::new();
        let mut add = |scenario, count: u64| {
            total += count;
            counts.push(count as f64);
            let known: &mut u64 = worst.entry(scenario).or_default();
            *known = count.max(*known);
        };
        for kill in &kills {
            let count = match figure {
                FaultFigure::LostRecords => kill.lost.max(u64::from(is_bad(kill))),
                FaultFigure::FailedCalls => kill.failed_calls,
                FaultFigure::ManualRecoveries => u64::from(!kill.recovered || is_bad(kill)),
                FaultFigure::Hangs => u64::from(kill.outcome == Outcome::Hang),
                FaultFigure::UpdatesLost => 0,
                FaultFigure::RecoveryMs => kill.recovery_ms,
            };
            add(kill.scenario.as_str(), count);
        }
        for outcome in &outcomes {
            let count = match figure {
                FaultFigure::LostRecords => outcome.broken(),
                FaultFigure::FailedCalls => outcome.errors(),
                FaultFigure::ManualRecoveries => u64::from(outcome.needs_hand()),
                FaultFigure::Hangs => u64::from(outcome.hang.is_some()),
                FaultFigure::UpdatesLost => outcome.updates_lost(),
                FaultFigure::RecoveryMs => outcome.recovery.as_ref().map_or(0, |recovery| recovery.ms),
            };
            add(outcome.scenario.as_str(), count);
        }
        let what = match figure {
            FaultFigure::LostRecords => "records lost or torn",
            FaultFigure::FailedCalls => "calls failed",
            FaultFigure::ManualRecoveries => "manual recoveries",
            FaultFigure::Hangs => "hangs",
            FaultFigure::UpdatesLost => "updates lost",
            FaultFigure::RecoveryMs => "ms of recovery",
        };
        let count: u64 = worst.values().sum();
        let killed = kills.iter().filter(|kill| kill.killed).count();
        let slowest = kills.iter().map(|kill| kill.recovery_ms).max();
        let how = match (killed, slowest) {
            (_, None) => format!(" in {} scenarios", outcomes.len()),
            (0, Some(_)) => ", no daemon to kill".to_owned(),
            (kills, Some(ms)) => format!(" in {kills} kills, usable again within {ms} ms"),
        };
        let source = format!("faults.jsonl, fault-outcomes.jsonl: {}", scenarios.join(", "));
        if let Some(rate) = crashes_a_year {
            let injected = (kills.len() + outcomes.len()).max(1);
            let mean = total as f64 / injected as f64;
            let (of_one, unit) = match figure {
                FaultFigure::RecoveryMs => (rate / 1000.0, " s"),
                _ => (rate, ""),
            };
            // A few faults bound no mean: each crash of the year may be like any of them. A series of kills has the median
            // and the longest of its recoveries.
            let mut tried = counts.len() as u64;
            if figure == FaultFigure::RecoveryMs && scenarios.iter().any(|name| name == CRON_KILL) {
                let all = self.runs.iter().flat_map(|run| run.crash_points(KILLED_DAEMON, arm));
                for series in all.filter(|series| series.recovery_ms.1 > 0.0) {
                    counts.extend([series.recovery_ms.0, series.recovery_ms.1]);
                    tried += series.points;
                }
            }
            let least = counts.iter().copied().fold(mean, f64::min);
            let most = counts.iter().copied().fold(mean, f64::max);
            let yearly = of_one * mean;
            let words = format!(
                "{total} {what}{how}: {yearly:.1}{unit} a year at {rate} crashes, {:.1}{unit} if each were the largest of {tried}",
                of_one * most
            );
            let exact = ArmReading::exact(yearly, words, &source);
            return MeasureResult::Value(ArmReading { low: of_one * least, high: of_one * most, ..exact });
        }
        let most = if count == total { String::new() } else { format!(", at most {count} in one of them") };
        let seen = format!("{total} {what}{how}{most}");
        let exact = ArmReading::exact(count as f64, seen, &source);
        let is_of_kills = figure.is_event() && scenarios.iter().all(|name| name == CRON_KILL);
        if !is_of_kills || count > 0 || killed == 0 {
            return MeasureResult::Value(exact);
        }
        // None was seen: one more may be hidden, as long as the bound of its share is not the one that is asked for.
        let (broken, others) = match figure {
            FaultFigure::LostRecords => self.crashes(KILLED_DAEMON, arm, CrashPoints::exposed_points),
            _ => self.crashes(KILLED_DAEMON, arm, |series| series.points),
        };
        let exposed = kills.iter().filter(|kill| figure != FaultFigure::LostRecords || is_exposed(kill));
        let tried = exposed.filter(|kill| kill.killed).count() as u64 + others;
        let bound = stats::failure_bound(broken, tried);
        let words = format!(
            "0 {what} in {tried} kills (at most {} of kills), usable again within {} ms",
            bound_words(bound),
            slowest.unwrap_or(0)
        );
        let is_hidden = within.is_some_and(|share| bound > share);
        MeasureResult::Value(ArmReading { high: f64::from(u8::from(is_hidden)), words, ..exact })
    }

    /// The kills of a cron job's daemon of an arm. One that killed nothing is evidence only about an arm without a daemon.
    fn cron_kills(&self, arm: &str) -> Vec<&Fault> {
        let kills = self.runs.iter().flat_map(|run| run.kills(arm));
        kills.filter(|kill| kill.killed || self.has_no_daemon(arm)).collect()
    }

    /// Whether an arm has no daemon that a fault could hit.
    fn has_no_daemon(&self, arm: &str) -> bool {
        self.arm(arm).is_some_and(|planned| planned.backend.daemons == 0)
    }

    /// The crash points of a loss at which the data was not kept, and all that count. A series whose records could not be
    /// checked has none.
    fn crashes(&self, loss: &str, arm: &str, counted: fn(&CrashPoints) -> u64) -> (u64, u64) {
        let all = self.crash_series(loss, arm).into_iter().filter(|series| !series.is_unknown());
        // A series after which no promised record was there to be kept shows nothing.
        let all = all.filter(|series| series.audit.present > 0 || series.failed_points() > 0);
        all.fold((0, 0), |(failed, points), series| {
            let lost = series.failed_points();
            (failed + lost, points + counted(series).max(series.died_by_itself).max(lost))
        })
    }

    /// The series of crash points of an arm. Power cuts that are simulated in files are those of their seed, whichever run makes
    /// them: of several series of one seed, the worst or else the longest counts.
    fn crash_series(&self, loss: &str, arm: &str) -> Vec<&CrashPoints> {
        let files = Some(CrashMethod::SimulatedFiles);
        let mut all: Vec<&CrashPoints> = Vec::new();
        for series in self.runs.iter().flat_map(|run| run.crash_points(loss, arm)) {
            let of_seed =
                |known: &&CrashPoints| (known.method, series.method, known.seed) == (files, files, series.seed);
            let rank = (series.failed_points(), series.points);
            match all.iter().position(of_seed) {
                Some(at) if (all[at].failed_points(), all[at].points) < rank => all[at] = series,
                Some(_) => {}
                None => all.push(series),
            }
        }
        all
    }

    /// The command that makes more kills of an arm. Only a store of this project can be killed at crash points; other
    /// daemons are killed by every run.
    pub fn more_kills(&self, arm: &str) -> String {
        let is_killed_by_runs = self.arm(arm).is_some_and(|planned| {
            let promises = &planned.backend.promises;
            let is_view = promises.contains_key(KILLED_DAEMON) && !promises.contains_key(POWER_LOSS);
            is_view || planned.backend.file.is_some()
        });
        if is_killed_by_runs { format!("ctxbench run --backend {arm}") } else { crash_points(arm) }
    }

    /// Why a run did not try a scenario on an arm that it does not fit, such as a killed daemon without one.
    fn unfit(&self, scenario: &str, arm: &str) -> Option<&str> {
        let mut all = self.runs.iter().flat_map(|run| &run.run.fault_outcomes);
        let unfit = all.find(|outcome| {
            (&*outcome.scenario, &*outcome.backend, outcome.status) == (scenario, arm, Status::Unfit)
        })?;
        Some(unfit.reason.as_deref().unwrap_or("it does not fit"))
    }

    /// The share of kills or power cuts at which a promised record was lost, with its upper 95 % bound.
    pub(super) fn durability(&self, loss: &str, arm: &str) -> MeasureResult {
        let (mut failed, mut points) = self.crashes(loss, arm, CrashPoints::exposed_points);
        let series = self.runs.iter();
        let series = series.flat_map(|run| run.crash_points(loss, arm));
        let own: u64 = series.map(|series| series.died_by_itself).sum();
        let kills = if loss == KILLED_DAEMON { self.cron_kills(arm) } else { Vec::new() };
        for kill in kills.iter().filter(|kill| kill.killed && is_exposed(kill)) {
            points += 1;
            // The records of a store that did not come back are not kept.
            failed += u64::from(kill.lost > 0 || !kill.recovered || is_bad(kill));
        }
        if points == 0 {
            // Without a daemon none can be killed: a run has tried, or has found that the fault does not fit.
            let all = self.runs.iter().flat_map(|run| &run.run.crash_points);
            let mut own = all.filter(|points| (&*points.backend, &*points.loss) == (arm, loss));
            let was_tried = if kills.is_empty() {
                own.any(|points| points.status == Status::Unfit)
            } else {
                kills.iter().all(|kill| kill.lost == 0)
            };
            if was_tried && loss == KILLED_DAEMON && self.has_no_daemon(arm) {
                let words = "no daemon to kill".to_owned();
                return MeasureResult::exact(0.0, words, "faults.jsonl, crash-points.jsonl");
            }
            return match self.no_promise(loss, arm) {
                Some(why) => MeasureResult::NotOffered(why),
                None => missing(format!("crash points ({}) of {arm}", loss.replace('-', " ")), self.more_kills(arm)),
            };
        }
        let high = stats::failure_bound(failed, points);
        let own = match own {
            0 => String::new(),
            own => format!(", {own} of which were exits of its own,"),
        };
        let of = match loss {
            KILLED_DAEMON => "kills",
            MACHINE_LOSS => "machine losses",
            _ => "power cuts",
        };
        let words =
            format!("{failed} of {points} {of}{own} lost a record (95 %: at most {} of {of})", bound_words(high));
        let source = format!("crash-points.jsonl, faults.jsonl: {loss}");
        MeasureResult::Value(ArmReading {
            low: stats::share_interval(failed, points, 0.1).low,
            high,
            provenance: self.origin_of_losses(loss, arm),
            ..ArmReading::exact(failed as f64 / points as f64, words, &source)
        })
    }

    /// That a plan lists the promises of an arm, and none for this loss.
    fn no_promise(&self, loss: &str, arm: &str) -> Option<String> {
        let promises = &self.arm(arm)?.backend.promises;
        let is_silent = !promises.is_empty() && !promises.contains_key(loss);
        is_silent.then(|| format!("promises nothing for {loss}"))
    }

    /// How the crash points of an arm were made.
    fn methods(&self, loss: &str, arm: &str) -> BTreeSet<CrashMethod> {
        let points = self.runs.iter();
        let points = points.flat_map(|run| run.crash_points(loss, arm));
        // Points that ran have a method.
        points.filter_map(|points| points.method).collect()
    }

    /// Simulated if any of the crash points is: a test cannot take the power of the machine that runs it, nor the machine.
    fn origin_of_losses(&self, loss: &str, arm: &str) -> Provenance {
        let is_killed = self.methods(loss, arm).iter().all(|method| *method == CrashMethod::Kill);
        if [POWER_LOSS, MACHINE_LOSS].contains(&loss) || !is_killed {
            Provenance::Simulated
        } else {
            Provenance::Measured
        }
    }

    pub(super) fn kept(&self, loss: &str, arm: &str, as_baseline: bool) -> MeasureResult {
        // A simulation without a mount and one over a real disk are not compared.
        let (own, of_direct) = (self.methods(loss, arm), self.methods(loss, "direct"));
        if !own.is_empty() && !of_direct.is_empty() && own != of_direct {
            let what = format!("records after {loss} of {arm}, lost in the same way as on direct");
            return missing(what, crash_points(arm));
        }
        let outcomes = self.outcomes(arm).into_iter();
        let audits = outcomes.filter_map(|outcome| outcome.audits.get(loss));
        let points = self.runs.iter();
        let points = points.flat_map(|run| run.crash_points(loss, arm));
        let audits: Vec<&Audit> = audits.chain(points.map(|series| &series.audit)).collect();
        let present: u64 = audits.iter().map(|audit| audit.present).sum();
        let known = audits.iter().map(|audit| audit.looks() - audit.absent - audit.phantom);
        let all: u64 = known.sum();
        if all == 0 {
            let backend = self.arm(arm).map(|planned| &planned.backend);
            // A plan that lists promises and none for this loss has no audit to offer.
            if let Some(why) = self.no_promise(loss, arm) {
                // What is lost with the machine by the meaning of the words is counted. That no promise was made does not
                // say that nothing would be left, so that a baseline without one has no figure.
                if loss == MACHINE_LOSS && backend.is_some_and(|backend| !backend.has_bucket) {
                    let words = "0: its files are on the lost machine".to_owned();
                    return MeasureResult::exact(0.0, words, "plan.toml: arms.backend.promises");
                }
                if !as_baseline {
                    return MeasureResult::NotOffered(why);
                }
            }
            return missing(format!("records after {loss} of {arm}"), crash_points(arm));
        }
        let words = format!("{present} of {all} records kept");
        let source = format!("fault-outcomes.jsonl, crash-points.jsonl: {loss}");
        let kept = ArmReading::exact(present as f64 / all as f64, words, &source);
        MeasureResult::Value(ArmReading { provenance: self.origin_of_losses(loss, arm), ..kept })
    }

    /// Acknowledged records that an arm lost or damaged, in any fault or with two hosts; `Missing` without an audit.
    pub fn lost_records(&self, arm: &str) -> MeasureResult {
        let (mut looked, mut lost, mut checked, mut unsettled) = (false, 0u64, 0u64, 0u64);
        let mut places: Vec<String> = Vec::new();
        for run in &self.runs {
            for fault in run.run.faults.iter().filter(|fault| fault.arm == arm) {
                looked |= !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped);
                checked += fault.acknowledged;
                lost += fault.lost;
                if fault.lost > 0 {
                    places.push(fault.scenario.clone());
                }
            }
            let outcomes = run.run.fault_outcomes.iter();
            let outcomes = outcomes.filter(|outcome| outcome.backend == arm && !is_destroyed(outcome));
            for outcome in outcomes {
                looked |= outcome.status == Status::Ran;
                let broken = outcome.broken();
                let audits = outcome.audits.values();
                checked += audits.map(|audit| audit.present).sum::<u64>();
                // The audit has no record for bytes that no task wrote.
                let other = u64::from(broken == 0 && outcome.cell() == CellKind::Lost);
                lost += broken + other;
                if broken + other > 0 {
                    places.push(outcome.scenario.clone());
                }
            }
            let points = run.run.crash_points.iter();
            for series in points.filter(|series| series.backend == arm) {
                looked |= series.status == Status::Ran;
                checked += series.audit.present;
                let not_kept = if series.status == Status::Ran { series.records_not_kept() } else { 0 };
                lost += not_kept;
                if not_kept > 0 {
                    places.push(format!("crash points, {}", series.loss));
                }
            }
            for (workload, settled) in run.settled(arm) {
                looked = true;
                checked += settled.lines;
                lost += settled.lost;
                // The other host may still overwrite it.
                unsettled += settled.on_one;
                if settled.lost > 0 {
                    places.push(workload.to_owned());
                }
            }
        }
        if !looked {
            let command = format!("ctxbench fault --backend {arm}");
            return missing(format!("no fault was injected on {arm}"), command);
        }
        places.dedup();
        let place = if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
        let open = match unsettled {
            0 => String::new(),
            lines => format!("; {lines} lines on one host only, which the other one may still overwrite"),
        };
        let words = format!("{lost} not kept as promised, {checked} kept{place}{open}");
        let source = "faults.jsonl, fault-outcomes.jsonl, crash-points.jsonl, samples.jsonl";
        let exact = ArmReading::exact(lost as f64, words, source);
        MeasureResult::Value(ArmReading { high: (lost + unsettled) as f64, ..exact })
    }
}

/// The command that kills an arm and cuts its power.
fn crash_points(arm: &str) -> String {
    format!("ctxbench fault --crash-points 1000 --backend {arm}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::evidence::RunEvidence;
    use figures::testing;
    use rundir::Run;
    use rundir::faults::AuditVerdict;

    #[test]
    fn a_record_that_cannot_be_read_after_a_recovery_is_not_kept() {
        let unreadable = Audit { unreadable: 3, verdict: AuditVerdict::Unknown, ..Audit::default() };
        for (look, lost) in [("in-use", 0.0), ("orderly-end", 3.0), ("machine-loss", 3.0)] {
            let mut run = testing::run();
            let mut outcome = FaultOutcome::ran("a fault", "storage", "sqlite", 1);
            outcome.audits.insert(look.to_owned(), unreadable.clone());
            run.fault_outcomes = vec![outcome];
            let (summary, contexts) = (testing::summary(), testing::contexts());
            let found = Evidence::of(&run, &summary, &contexts).lost_records("sqlite").value().unwrap();
            assert_eq!(found.value, lost, "{look}");
        }
    }

    #[test]
    fn only_points_that_could_show_a_loss_count_and_unknown_ones_do_not() {
        let of = |change: fn(&mut CrashPoints)| {
            let mut series = CrashPoints {
                points: 60,
                broken: Some(0),
                audit: Audit { present: 600, ..Audit::default() },
                ..CrashPoints::not_run("sqlite", KILLED_DAEMON, Status::Ran, "")
            };
            change(&mut series);
            let mut run = testing::run();
            run.faults.clear();
            run.crash_points = vec![series];
            let (summary, contexts) = (testing::summary(), testing::contexts());
            let evidence = Evidence::of(&run, &summary, &contexts);
            evidence.durability(KILLED_DAEMON, "sqlite").value().map(|found| found.words).ok()
        };
        for (change, words) in [
            ((|_| {}) as fn(&mut CrashPoints), Some("0 of 60 kills lost a record (95 %: at most 4.9 % of kills)")),
            (
                |series| (series.in_flight, series.newly_acknowledged) = (Some(40), Some(30)),
                Some("0 of 40 kills lost a record (95 %: at most 7.3 % of kills)"),
            ),
            (
                |series| (series.in_flight, series.exposed) = (Some(40), Some(50)),
                Some("0 of 50 kills lost a record (95 %: at most 5.9 % of kills)"),
            ),
            (|series| (series.in_flight, series.newly_acknowledged) = (Some(0), Some(0)), None),
            (|series| series.audit = Audit::unknown("no log"), None),
            // Nothing was promised, so that nothing could be lost.
            (|series| series.audit = Audit { unpromised: 600, ..Audit::default() }, None),
            (|series| series.audit.unreadable = 2, Some("2 of 60 kills lost a record (95 %: at most 10.2 % of kills)")),
            (
                |series| series.audit.verdict = AuditVerdict::Invalid,
                Some("1 of 60 kills lost a record (95 %: at most 7.7 % of kills)"),
            ),
            (
                |series| series.mixtures = Some(60),
                Some("60 of 60 kills lost a record (95 %: at most 100.0 % of kills)"),
            ),
        ] {
            assert_eq!(of(change).as_deref(), words);
        }
    }

    #[test]
    fn simulated_power_cuts_of_one_seed_count_once_and_the_worst_of_them() {
        let series = |method, seed, points, broken| CrashPoints {
            method: Some(method),
            seed,
            points,
            broken: Some(broken),
            audit: Audit { present: 600, lost: broken, ..Audit::default() },
            ..CrashPoints::not_run("sqlite", POWER_LOSS, Status::Ran, "")
        };
        let (files, disk) = (CrashMethod::SimulatedFiles, CrashMethod::SimulatedDisk);
        for (all, words) in [
            (vec![series(files, 7, 60, 0), series(files, 7, 60, 0)], "0 of 60 power cuts"),
            (vec![series(files, 7, 12, 0), series(files, 7, 60, 0)], "0 of 60 power cuts"),
            (vec![series(files, 7, 60, 1), series(files, 7, 1000, 0)], "1 of 60 power cuts"),
            (vec![series(files, 7, 60, 0), series(files, 8, 60, 0)], "0 of 120 power cuts"),
            (vec![series(disk, 7, 60, 0), series(disk, 7, 60, 0)], "0 of 120 power cuts"),
        ] {
            for all in [all.clone(), all.into_iter().rev().collect()] {
                let all: Vec<CrashPoints> = all;
                let runs = all.into_iter().map(|series| Run { crash_points: vec![series], ..testing::run() });
                let runs: Vec<Run> = runs.collect();
                let (summary, contexts) = (testing::summary(), testing::contexts());
                let evidence = runs.iter().map(|run| RunEvidence::new(run, &summary, &contexts));
                let found = Evidence { runs: evidence.collect() }.durability(POWER_LOSS, "sqlite").value().unwrap();
                assert!(found.words.starts_with(words), "{}", found.words);
            }
        }
    }

    #[test]
    fn a_figure_of_a_few_crashes_reaches_from_the_least_to_the_largest_of_all_kills() {
        let mut run = testing::run();
        run.crash_points = vec![CrashPoints {
            points: 60,
            recovery_ms: (15.0, 40.0),
            audit: Audit::default(),
            ..CrashPoints::not_run("sqlite", KILLED_DAEMON, Status::Ran, "")
        }];
        let (summary, contexts) = (testing::summary(), testing::contexts());
        let evidence = Evidence::of(&run, &summary, &contexts);
        let scenarios = [CRON_KILL.to_owned()];
        let found = evidence.faults(&scenarios, FaultFigure::RecoveryMs, Some(100.0), None, "sqlite");
        let found = found.value().unwrap();
        assert_eq!((found.value, found.low, found.high), (2.0, 1.5, 4.0));
        assert!(found.words.ends_with("4.0 s if each were the largest of 61"), "{}", found.words);
    }

    #[test]
    fn a_daemon_that_did_not_come_back_has_no_time_of_recovery() {
        let mut run = testing::run();
        run.faults[1].recovered = false;
        let (summary, contexts) = (testing::summary(), testing::contexts());
        let evidence = Evidence::of(&run, &summary, &contexts);
        for rate in [None, Some(12.0)] {
            let found = evidence.faults(&[CRON_KILL.to_owned()], FaultFigure::RecoveryMs, rate, None, "sqlite");
            assert_eq!(found.value().unwrap().value, f64::INFINITY);
        }
    }

    #[test]
    fn records_that_a_fault_destroyed_in_the_store_are_not_lost_and_those_that_a_kill_took_are() {
        for (look, lost) in [("damaged", 0.0), ("log-gone", 0.0), ("killed-daemon", 1.0)] {
            let mut run = testing::run();
            let mut outcome = FaultOutcome::ran("a fault", "storage", "sqlite", 1);
            let audit = Audit { lost: 1, ..Audit::default() };
            outcome.audits.insert(look.to_owned(), audit);
            run.faults.clear();
            run.fault_outcomes = vec![outcome];
            let (summary, contexts) = (testing::summary(), testing::contexts());
            let evidence = Evidence::of(&run, &summary, &contexts);
            match evidence.lost_records("sqlite") {
                MeasureResult::Value(found) => assert_eq!(found.value, lost, "{look}"),
                // No other fault was injected.
                MeasureResult::Missing(_) => assert_eq!(lost, 0.0, "{look}"),
                other => panic!("{look}: {other:?}"),
            }
        }
    }
}
