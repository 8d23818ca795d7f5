//! Fault outcomes in words, for every table of a fault run.

use nix::errno::Errno;
use rundir::Run;
use rundir::faults::{AgentEventKind, Audit, CellKind, FaultOutcome, Return};

/// The worst outcome of a scenario on a backend, over all seeds.
pub(super) fn worst<'a>(run: &'a Run, scenario: &str, backend: &str) -> Option<&'a FaultOutcome> {
    let outcomes = run.fault_outcomes.iter();
    let outcomes = outcomes.filter(|outcome| outcome.scenario == scenario && outcome.backend == backend);
    outcomes.max_by_key(|outcome| outcome.cell())
}

/// An outcome in a few letters.
pub(super) fn short(outcome: &FaultOutcome) -> String {
    let kind = outcome.cell();
    let waited = outcome.longest_call_ms;
    let slow = if waited >= 1000 { format!(" {:.0} s", waited as f64 / 1e3) } else { String::new() };
    match kind {
        CellKind::Unfit => "–".to_owned(),
        CellKind::Skipped => "skipped".to_owned(),
        CellKind::Clean => format!("ok{slow}"),
        CellKind::Raced => match (outcome.updates_lost(), outcome.torn_reads()) {
            (0, torn) => format!("{torn} torn reads"),
            (lost, _) => format!("{lost} upd. lost"),
        },
        CellKind::Unknown => "unknown".to_owned(),
        CellKind::Infra => "failed".to_owned(),
        CellKind::Breach => format!("breach{slow}"),
        CellKind::Manual => "by hand".to_owned(),
        CellKind::Hang => {
            let waited = outcome.hang.as_ref().map_or(0, |hang| hang.waited_ms);
            format!("hang {} s", waited / 1000)
        }
        CellKind::Lost => {
            let sum = |count: fn(&Audit) -> u64| -> u64 { outcome.audits.values().map(count).max().unwrap_or(0) };
            let counts = [
                (sum(|audit| audit.lost), "lost"),
                (sum(|audit| audit.torn), "torn"),
                (sum(|audit| audit.phantom), "phantom"),
                (sum(|audit| audit.stale), "stale"),
            ];
            let first = counts.into_iter().find(|(count, _)| *count > 0);
            first.map_or("wrong bytes".to_owned(), |(number, what)| format!("{number} {what}"))
        }
        CellKind::Error => {
            // An error number is more specific than the scenario's own effect on the agent.
            let all = || {
                let seen = outcome.seen.iter();
                seen.filter(|seen| seen.what != AgentEventKind::Nothing)
            };
            let seen = all().find(|seen| seen.errno.is_some()).or_else(|| all().next());
            let what = seen.map_or("error".to_owned(), |seen| match (seen.errno, seen.what) {
                (Some(errno), _) => errno_name(errno),
                (None, AgentEventKind::Refusal) => "refused".to_owned(),
                (None, AgentEventKind::Killed) => "agent killed".to_owned(),
                (None, AgentEventKind::Late) => "seen late".to_owned(),
                (None, _) => "error".to_owned(),
            });
            format!("{what}{slow}")
        }
    }
}

/// The name of an error number of Linux.
pub(super) fn errno_name(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::UnknownErrno => format!("errno {errno}"),
        known => format!("{known:?}"),
    }
}

/// The recovery, in words.
pub(super) fn recovery(outcome: &FaultOutcome) -> String {
    let Some(recovery) = &outcome.recovery else {
        return "nothing had to come back".to_owned();
    };
    let how = match recovery.how {
        Return::ByItself => "by itself",
        Return::NextMount => "at the next mount",
        Return::AfterStep => "after a step by hand",
        Return::Never => "NOT",
    };
    let step = recovery.step.as_ref().map(|step| format!(": {step}"));
    format!("{how}, {:.3} s{}", recovery.ms as f64 / 1e3, step.unwrap_or_default())
}

/// The audit, in words.
pub(super) fn data(audit: &Audit) -> String {
    let counts = [
        (audit.present, "as they should be"),
        (audit.absent, "absent, never acknowledged"),
        (audit.unpromised, "gone or old, not promised"),
        (audit.lost, "LOST"),
        (audit.torn, "TORN"),
        (audit.half, "half of an unpromised change"),
        (audit.stale, "STALE"),
        (audit.phantom, "PHANTOM"),
        (audit.unreadable, "unreadable"),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, what)| format!("{count} {what}")).collect();
    let promised = match &audit.promised {
        Some(class) => format!(" (promised after {class})"),
        None => String::new(),
    };
    let note = audit.note.as_ref().map(|note| format!("; {note}"));
    format!(
        "{}: {}{promised}{}",
        audit.verdict.name(),
        if told.is_empty() { "no record".to_owned() } else { told.join(", ") },
        note.unwrap_or_default()
    )
}
