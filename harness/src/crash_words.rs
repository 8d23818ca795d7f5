//! The words for kills and power cuts on a terminal.

use rundir::faults::{CrashPoints, KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS, Status};
use stats::failure_bound;

/// The results of a backend's kills and power cuts, in a line: after how many something promised was lost or wrong, and the
/// upper 95 % bound of their share, of the series with the fewest points.
pub fn crash_words(lines: &[CrashPoints]) -> String {
    let backend = lines.first().map_or("", |line| line.backend.as_str());
    let ran = |line: &&CrashPoints| line.status == Status::Ran;
    let (machines, here): (Vec<&CrashPoints>, Vec<&CrashPoints>) =
        lines.iter().filter(ran).partition(|line| line.loss == MACHINE_LOSS);
    let mut words: Vec<String> =
        [here, machines].iter().filter(|series| !series.is_empty()).map(|series| together(series)).collect();
    for line in lines {
        let what = noun(&line.loss);
        let reason = line.reason.as_deref().unwrap_or_default();
        match line.status {
            Status::Ran if !reason.is_empty() => words.push(format!("{what} ended early: {reason}")),
            Status::Ran | Status::Unfit => {}
            Status::Skipped | Status::Infra => words.push(format!("no {what}: {reason}")),
        }
        if line.audit.unreadable > 0 {
            words.push(format!("{what}: records unreadable"));
        }
        if line.died_by_itself > 0 {
            words.push(format!("{what}: the daemon had ended by itself"));
        }
    }
    if words.is_empty() {
        format!("{backend}: nothing to kill, and no promise for a power cut")
    } else {
        format!("{backend}: {}", words.join("; "))
    }
}

/// Series in one clause, with the widest of their bounds.
fn together(series: &[&CrashPoints]) -> String {
    let lost = |line: &CrashPoints| line.broken.unwrap_or(0);
    let sum: u64 = series.iter().map(|line| lost(line)).sum();
    // A kill that could show nothing counts as a try, and narrows no bound.
    let bounds = series.iter().map(|line| failure_bound(lost(line), line.exposed_points()));
    let bound = bounds.fold(0.0, f64::max) * 100.0;
    let places = if bound < 1.0 { 1 } else { 0 };
    let tries = series.iter().map(|line| format!("{} {}", line.points, noun(&line.loss)));
    let tries = tries.collect::<Vec<_>>().join(" and ");
    format!("{sum} lost in {tries} (at most {bound:.places$} %)")
}

fn noun(loss: &str) -> &str {
    match loss {
        KILLED_DAEMON => "kills",
        POWER_LOSS => "simulated power cuts",
        MACHINE_LOSS => "machine losses",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(loss: &str, points: u64, broken: u64) -> CrashPoints {
        CrashPoints {
            points,
            broken: Some(broken),
            reason: None,
            ..CrashPoints::not_run("sqlite", loss, Status::Ran, "")
        }
    }

    #[test]
    fn a_line_says_how_many_lost_something_and_the_bound() {
        let [kills, cuts] = [KILLED_DAEMON, POWER_LOSS].map(|loss| series(loss, 60, 0));
        assert_eq!(
            crash_words(&[kills.clone(), cuts.clone()]),
            "sqlite: 0 lost in 60 kills and 60 simulated power cuts (at most 5 %)"
        );
        let many = CrashPoints { exposed: Some(1000), ..series(KILLED_DAEMON, 1021, 0) };
        assert_eq!(crash_words(&[many]), "sqlite: 0 lost in 1021 kills (at most 0.3 %)");
        let idle = CrashPoints { exposed: Some(0), ..kills.clone() };
        assert_eq!(crash_words(&[idle]), "sqlite: 0 lost in 60 kills (at most 100 %)");
        let lost = series(POWER_LOSS, 20, 1);
        assert_eq!(
            crash_words(&[kills.clone(), lost, series(MACHINE_LOSS, 2, 0)]),
            "sqlite: 1 lost in 60 kills and 20 simulated power cuts (at most 22 %); 0 lost in 2 machine losses (at most 78 %)"
        );
        let no_root = CrashPoints::not_run("sqlite", POWER_LOSS, Status::Skipped, "needs root");
        let ended = CrashPoints { reason: Some("it did not come back".to_owned()), ..kills };
        assert_eq!(
            crash_words(&[ended, no_root]),
            "sqlite: 0 lost in 60 kills (at most 5 %); kills ended early: it did not come back; no simulated power cuts: needs root"
        );
        let unfit = CrashPoints::not_run("memory", KILLED_DAEMON, Status::Unfit, "no");
        assert_eq!(crash_words(&[unfit]), "memory: nothing to kill, and no promise for a power cut");
    }
}
