//! What breaks and what is lost: failed passes, and acknowledged records after kills and power cuts.

use std::collections::BTreeMap;

use rundir::Outcome;
use rundir::faults::{Audit, CrashPoints, KILLED_DAEMON, POWER_LOSS};
use schemars::JsonSchema;
use serde::Serialize;
use stats::failure_bound;

use figures::evidence::RunEvidence;
use figures::provenance::Provenance;
use figures::summary::FailedPasses;
use figures::text::count;
use verdicts::decide::arm_words;

/// The passes of all arms, and the failed ones by arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PassCount {
    /// Passes that were tried.
    pub tried: u64,
    /// Failed passes.
    pub failed: u64,
    /// Arms with failed passes, in words, the one with the most first.
    pub by_arm: Vec<String>,
}

impl PassCount {
    pub(super) fn of(runs: &[RunEvidence<'_>]) -> Self {
        let samples = || runs.iter().flat_map(|run| &run.run.samples);
        let all = FailedPasses::of(samples());
        let mut by_arm: BTreeMap<&str, BTreeMap<Outcome, u64>> = BTreeMap::new();
        for pass in samples() {
            if !matches!(pass.outcome, Outcome::Ok | Outcome::Skipped) {
                let of_arm = by_arm.entry(&pass.arm).or_default();
                *of_arm.entry(pass.outcome).or_default() += 1;
            }
        }
        let mut arms: Vec<(&str, u64, String)> = by_arm
            .into_iter()
            .map(|(arm, outcomes)| {
                let mut most: Vec<(&Outcome, &u64)> = outcomes.iter().collect();
                most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
                let words = most.iter().map(|(how, count)| format!("{count} {how}"));
                let words: Vec<String> = words.collect();
                (arm, outcomes.values().sum(), words.join(" and "))
            })
            .collect();
        arms.sort_by_key(|(_, failed, _)| std::cmp::Reverse(*failed));
        Self {
            tried: all.tried,
            failed: all.count(),
            by_arm: arms.into_iter().map(|(arm, _, words)| format!("{arm} {words}")).collect(),
        }
    }

    /// In a sentence.
    pub fn words(&self) -> String {
        const SHOWN: usize = 3;
        if self.tried == 0 {
            return "No pass was made.".to_owned();
        }
        let (failed, tried) = (count(self.failed), count(self.tried));
        let arms = match self.by_arm.len() {
            0 => String::new(),
            all if all <= SHOWN => format!(": {}", self.by_arm.join("; ")),
            all => {
                let shown = self.by_arm[..SHOWN].join("; ");
                let more = plural((all - SHOWN) as u64, "more arm", "more arms");
                format!(": {shown}; {more}")
            }
        };
        format!("Failures: {failed} of {tried} passes{arms}.")
    }
}

/// The acknowledged records that an arm lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct StoreLosses {
    /// The arm.
    pub arm: String,
    /// Kills of its daemon that could show a loss, and after which its records were checked.
    pub kills: u64,
    /// Simulated power cuts after which its records were checked.
    pub power_cuts: u64,
    /// Acknowledged records that were not kept as promised, in kills and in power cuts.
    pub lost: [u64; 2],
    /// Kills and power cuts after which records could not be read, because the store did not recover or returned errors: at
    /// least this many.
    pub unreadable: u64,
    /// The first record that was not kept, and what acknowledged it; null if all were kept or no record was named.
    pub example: Option<String>,
}

impl StoreLosses {
    /// The records of an audit that were not kept.
    fn count(&mut self, audit: &Audit) -> u64 {
        let lost = audit.broken();
        if lost + audit.unreadable > 0 && self.example.is_none() {
            self.example = audit.examples.first().cloned();
        }
        lost
    }
}

/// Points of a series after which records could not be read: at least this many. Such records are not lost one by one.
fn unreadable(series: &CrashPoints) -> u64 {
    let least = u64::from(series.records_not_kept() > series.audit.broken());
    match series.audit.broken() {
        0 => series.broken.unwrap_or(0).max(least),
        _ => least,
    }
}

/// The losses of each arm, in the order of the plans, and the arms with a daemon and durable files that none was tried on.
pub(super) fn losses(runs: &[RunEvidence<'_>]) -> (Vec<StoreLosses>, Vec<String>) {
    let mut tried: Vec<StoreLosses> = Vec::new();
    let mut not_tried = Vec::new();
    let arms = runs.iter().flat_map(|run| &run.run.plan.arms);
    for arm in arms.filter(|arm| arm.can_be_candidate()) {
        let is_known = tried.iter().any(|known| known.arm == arm.name) || not_tried.contains(&arm.name);
        let keeps_files = arm.backend.persistent && arm.backend.daemons > 0;
        if is_known || !keeps_files || arm.unavailable.is_some() {
            continue;
        }
        let mut losses =
            StoreLosses { arm: arm.name.clone(), kills: 0, power_cuts: 0, lost: [0, 0], unreadable: 0, example: None };
        for run in runs {
            for kill in run.kills(&arm.name).filter(|kill| kill.killed) {
                losses.kills += 1;
                losses.lost[0] += kill.lost;
                losses.unreadable += u64::from(!kill.recovered);
            }
            for points in run.crash_points(KILLED_DAEMON, &arm.name) {
                losses.kills += points.exposed_points();
                losses.lost[0] += losses.count(&points.audit);
                losses.unreadable += unreadable(points);
            }
            for points in run.crash_points(POWER_LOSS, &arm.name) {
                losses.power_cuts += points.exposed_points();
                losses.lost[1] += losses.count(&points.audit);
                losses.unreadable += unreadable(points);
            }
        }
        match losses.kills + losses.power_cuts {
            0 => not_tried.push(arm.name.clone()),
            _ => tried.push(losses),
        }
    }
    (tried, not_tried)
}

/// The losses in a sentence or two.
pub(super) fn losses_words(losses: &[StoreLosses], not_tried: &[String]) -> String {
    let mut sentences = Vec::new();
    let kinds = |losses: &StoreLosses| {
        let kills = Some(losses.kills).filter(|kills| *kills > 0);
        let kills = kills.map(|kills| plural(kills, "kill", "kills"));
        let kills = kills.map(|words| Provenance::Measured.marked(&words));
        let cuts = Some(losses.power_cuts).filter(|cuts| *cuts > 0);
        let cuts = cuts.map(|cuts| plural(cuts, "simulated power cut", "simulated power cuts"));
        let cuts = cuts.map(|words| Provenance::Simulated.marked(&words));
        let words: Vec<String> = kills.into_iter().chain(cuts).collect();
        words.join(" and ")
    };
    let is_kept = |losses: &&StoreLosses| losses.lost == [0, 0] && losses.unreadable == 0;
    for lost in losses.iter().filter(|losses| !is_kept(losses)) {
        let records = Some(lost.lost[0] + lost.lost[1]).filter(|records| *records > 0);
        let records =
            records.map(|records| format!("LOST {}", plural(records, "acknowledged record", "acknowledged records")));
        let gone = match lost.unreadable {
            0 => None,
            1 => Some("COULD NOT BE READ once".to_owned()),
            times => Some(format!("COULD NOT BE READ {} times", count(times))),
        };
        let parts: Vec<String> = records.into_iter().chain(gone).collect();
        let example = lost.example.as_ref().map(|example| format!(" ({example})")).unwrap_or_default();
        sentences.push(format!("{} {} in {}{example}.", lost.arm, parts.join(" and "), kinds(lost)));
    }
    let kept: Vec<&StoreLosses> = losses.iter().filter(is_kept).collect();
    // Stores with the same bounds stand together.
    let mut groups: BTreeMap<String, Vec<&StoreLosses>> = BTreeMap::new();
    for losses in &kept {
        groups.entry(bound_words(&[losses])).or_default().push(losses);
    }
    let mut groups: Vec<(String, Vec<&StoreLosses>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, of_group)| std::cmp::Reverse(of_group.len()));
    let groups = groups.into_iter().filter_map(|(bound, of_group)| {
        let first = *of_group.first()?;
        let fewest = StoreLosses {
            kills: of_group.iter().map(|losses| losses.kills).min()?,
            power_cuts: of_group.iter().map(|losses| losses.power_cuts).min()?,
            ..first.clone()
        };
        let is_same = |other: &&StoreLosses| (other.kills, other.power_cuts) == (first.kills, first.power_cuts);
        let least = if of_group.iter().all(is_same) { "" } else { "at least " };
        let of = match of_group.len() {
            1 => arm_words(&first.arm).to_owned(),
            _ => format!("each of {}", names(&of_group)),
        };
        Some(format!("{least}{} of {of} ({bound})", kinds(&fewest)))
    });
    let groups: Vec<String> = groups.collect();
    if !groups.is_empty() {
        sentences.push(format!("Lost: 0 acknowledged records in {}.", groups.join("; ")));
    }
    if losses.is_empty() && not_tried.is_empty() {
        return String::new();
    }
    if !not_tried.is_empty() {
        sentences.push(format!("No kill and no power cut was tried on {}.", not_tried.join(", ")));
    }
    sentences.join(" ")
}

/// The upper bound of the share of kills, and of power cuts, that lose a record: of the store with the fewest.
fn bound_words(kept: &[&StoreLosses]) -> String {
    let fewest = |of: fn(&StoreLosses) -> u64| {
        let counts = kept.iter().map(|losses| of(losses));
        counts.filter(|count| *count > 0).min()
    };
    let bound = |fewest: Option<u64>| fewest.map(|fewest| percent(failure_bound(0, fewest)));
    let kills = bound(fewest(|losses| losses.kills));
    let cuts = bound(fewest(|losses| losses.power_cuts));
    match (kills, cuts) {
        (Some(one), Some(other)) if one == other => format!("at most {one} % of kills and of power cuts lose one"),
        (kills, cuts) => {
            let words = |what: &str, percent: String| format!("at most {percent} % of {what} lose one");
            let kills = kills.map(|percent| words("kills", percent));
            let cuts = cuts.map(|percent| words("power cuts", percent));
            kills.into_iter().chain(cuts).collect::<Vec<_>>().join(", ")
        }
    }
}

fn names(losses: &[&StoreLosses]) -> String {
    let names: Vec<&str> = losses.iter().map(|losses| arm_words(&losses.arm)).collect();
    names.join(", ")
}

fn plural(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{} {many}", count(number)),
    }
}

/// A share in percent, rounded up to a whole number or to a tenth below 1 %.
fn percent(share: f64) -> String {
    // A product such as 0.05 × 100 is not exact.
    let percent = share * 100.0 - 1e-9;
    match percent {
        percent if percent >= 1.0 => format!("{:.0}", percent.ceil()),
        percent => format!("{:.1}", (percent * 10.0).ceil() / 10.0),
    }
}
