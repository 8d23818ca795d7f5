//! Probes whether an agent's files are readable: in use, after the daemon was killed, and without a daemon.

use std::io;
use std::process::Command;

use rundir::{Outcome, Probe};

use super::{Prober, STEP_LIMIT, is_installed, run};
use crate::watchdog::Watchdog;

const NAME: &str = "seen.md";
const TEXT: &str = "# seen\n\nplain text\n";

const IN_USE: &str = "a file, by cat, while in use";
const COUNTED: &str = "how often it was asked for what";
const AFTER_KILL: &str = "a file, by cat, after its daemon was killed";
const OFFLINE: &str = "a file, by a common tool, while nothing runs";

/// The facts that are probed.
pub(super) const NAMES: [&str; 4] = [IN_USE, COUNTED, AFTER_KILL, OFFLINE];

pub(super) fn probe(prober: &Prober, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
    if !prober.backend.describe().capabilities.holds_data || prober.shows_rows() {
        return Ok(Vec::new());
    }
    let (config, mut workspace) = prober.open("visible", watchdog)?;
    let (written, read) = prober.places(&config, &*workspace);
    let file = read.join(NAME);
    std::fs::write(written.join(NAME), TEXT)?;
    let offline = if written == read { NAME.to_owned() } else { format!("state/{NAME}") };
    let mut probes = Vec::new();
    let outcome_of = |name: &str, result: Result<String, String>| {
        let (outcome, detail) = match result {
            Ok(text) if text == TEXT => (Outcome::Ok, "the text as it was written".to_owned()),
            Ok(text) => (Outcome::WrongData, format!("{} other bytes", text.len())),
            Err(problem) => (Outcome::Errno, problem),
        };
        prober.probe("visible", name, outcome, detail)
    };
    let cat = || run(Command::new("cat").arg(&file), &config.dir);

    probes.push(outcome_of(IN_USE, cat()));
    let (outcome, detail) = match workspace.counters()? {
        Some(counters) if counters.requests() > 0 => {
            (Outcome::Ok, format!("{} requests, by kind", counters.requests()))
        }
        Some(_) => (Outcome::Errno, "no request was counted".to_owned()),
        None => (Outcome::Errno, "it has no request counters".to_owned()),
    };
    probes.push(prober.probe("visible", COUNTED, outcome, detail));
    workspace.kill()?;
    watchdog.independent();
    probes.push(outcome_of(AFTER_KILL, cat()));
    // The next daemon removes the dead mount and then ends in order.
    drop(workspace);
    watchdog.enter(STEP_LIMIT);
    prober.backend.open(&config)?.close()?;
    let offline = match prober.backend.offline_read(&config, &offline) {
        None => Err("no common tool can read it".to_owned()),
        Some((program, _)) if !is_installed(&program) => {
            let detail = format!("{program} is not installed on this machine");
            probes.push(prober.probe("visible", OFFLINE, Outcome::Skipped, detail));
            watchdog.leave();
            return Ok(probes);
        }
        // sqlite3 prints an additional newline.
        Some((program, arguments)) => run(Command::new(program).args(arguments), &config.dir)
            .map(|text| text.replace("\n\n\n", "\n\n").trim_end().to_owned() + "\n"),
    };
    probes.push(outcome_of(OFFLINE, offline));
    watchdog.leave();
    Ok(probes)
}
