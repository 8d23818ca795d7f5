//! Faults of the SQLite file under a store: a foreign lock, truncation, bit flips, a newer schema, a lost
//! log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use arms::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{AgentEventKind, Audit, ORDERLY_END, Return};
use rusqlite::Connection;
use rustix::io::Errno;

use super::super::agent::Job;
use super::super::bed::{StepResult, TestBed, infra};

/// The mount options that a refused mount may name as a fix.
const STEPS: [&str; 2] = ["--without-log", "--rebuild-cache"];

/// The result of a check of a database without a problem.
const WHOLE: &str = "whole";

/// Where a database says `user_version`.
const USER_VERSION: u64 = 60;

/// Page size of the stores' databases, in bytes.
const PAGE: u64 = 4096;

fn database(bed: &TestBed) -> StepResult<PathBuf> {
    let found = bed.backend.database(&bed.config);
    Ok(found.context("there is no database")?)
}

/// Another connection holds a write transaction for `seconds`.
pub fn lock(bed: &mut TestBed, seconds: f64) -> StepResult {
    bed.open_and_fill()?;
    let path = database(bed)?;
    let other = Connection::open(&path).context("SQLite")?;
    other.execute_batch("BEGIN IMMEDIATE").context("SQLite")?;
    bed.injected(format!("another connection holds SQLite's write lock for {seconds} s"));
    let locked = Instant::now();
    let answer = bed.write(1)?;
    let waited = locked.elapsed();
    bed.count("write_waited_ms", waited.as_millis() as u64);
    let failure = answer.as_ref().and_then(|answer| answer.failures.first());
    match failure {
        None if answer.is_some() => {
            return infra("a change succeeded while another program held the lock: the fault hit nothing");
        }
        Some(failure) if failure.errno != Some(Errno::BUSY.raw_os_error()) => {
            let text = failure.text.clone();
            bed.breach(format!("a locked database returns {text}, not EBUSY"));
        }
        _ => {}
    }
    let left = Duration::from_secs_f64(seconds).saturating_sub(locked.elapsed());
    // In WAL mode, readers need no write lock.
    bed.audit_as("while-locked", Some(Acknowledgement::Write))?;
    std::thread::sleep(left);
    other.execute_batch("ROLLBACK").context("SQLite")?;
    drop(other);
    let unlocked = Instant::now();
    bed.go_on(unlocked, "it did not continue after the lock was released")?;
    bed.audit()
}

/// Fills the store and unmounts it in order, so that the database file holds all data.
fn fill_and_end(bed: &mut TestBed) -> StepResult<PathBuf> {
    bed.open_and_fill()?;
    let path = database(bed)?;
    if let Err(error) = bed.close()? {
        return infra(format!("a clean unmount: {error}"));
    }
    Ok(path)
}

/// Mounts a damaged store and checks how it reports the damage. Missing data must give an error, never
/// other bytes.
fn open_damaged(bed: &mut TestBed, path: &Path) -> StepResult {
    let said = match sqlite::check(path) {
        Ok(checked) => match checked.problems.as_slice() {
            [] => WHOLE.to_owned(),
            [first, ..] => format!("{} problems, such as: {first}", checked.problems.len()),
        },
        Err(error) => error.to_string(),
    };
    let is_told_by_check = said != WHOLE;
    bed.words("check_store", said);
    let started = Instant::now();
    match bed.backend.open(&bed.config) {
        Err(error) => {
            let words = error.to_string();
            bed.refused(refusal(&words));
            let after = started.elapsed();
            let helped = if named(&words).is_empty() {
                let step = "a copy of the database: its content cannot be repaired";
                bed.recovered(Return::Never, after, Some(step.to_owned()));
                None
            } else {
                follow(bed, &words, after)?
            };
            let audit = match helped {
                // The store ended in order, so a bucket holds all of it.
                Some(option) => {
                    let mut audit = bed.audit_promise(Some(Acknowledgement::Write))?;
                    audit.note = Some(format!("the damaged store was refused, and then mounted with {option}"));
                    audit
                }
                None => Audit::unknown("the damaged store is refused, so none of its files can be read"),
            };
            bed.audited("damaged", audit);
        }
        Ok(workspace) => {
            bed.workspace = Some(workspace);
            let mut audit = bed.audit_promise(bed.backend.promises().killed_daemon)?;
            let wrong = audit.torn + audit.stale + audit.phantom;
            let missing = audit.lost;
            if wrong + missing > 0 && !is_told_by_check {
                bed.breach("damage to the database is served as content, and doctor --store does not find it");
            }
            // The fault removed the missing records, so the audit's note lists them. Wrong content is the
            // backend's failure.
            audit.note = Some(format!(
                "{missing} records were missing without an error; doctor --store {}",
                if is_told_by_check { "finds the damage" } else { "finds nothing" }
            ));
            bed.audited("damaged", audit);
        }
    }
    Ok(())
}

/// Truncates the database to half its pages.
pub fn truncate(bed: &mut TestBed) -> StepResult {
    let path = fill_and_end(bed)?;
    let file = File::options().write(true).open(&path)?;
    let pages = file.metadata()?.len() / PAGE;
    file.set_len(pages / 2 * PAGE)?;
    bed.injected(format!("the database was truncated from {pages} to {} pages", pages / 2));
    open_damaged(bed, &path)
}

/// Flips bits in any page but the first.
pub fn flip(bed: &mut TestBed, bits: u32) -> StepResult {
    let path = fill_and_end(bed)?;
    flip_bits(&path, bits, bed.seed)?;
    bed.injected(format!("{bits} bits of the database flipped, none in its first page"));
    open_damaged(bed, &path)
}

fn flip_bits(path: &Path, bits: u32, seed: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..bits {
        let at = dice.random_range(PAGE..length);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << dice.random_range(0..8);
        file.write_all_at(&byte, at)?;
    }
    Ok(())
}

/// Sets the schema version of a later build.
pub fn newer(bed: &mut TestBed) -> StepResult {
    let path = fill_and_end(bed)?;
    let version = sqlite::DATABASE_VERSION;
    // SQLite would leave the page without its checksum.
    let set = |version: i32| -> StepResult {
        let file = File::options().write(true).open(&path)?;
        Ok(file.write_all_at(&version.to_be_bytes(), USER_VERSION)?)
    };
    set(version + 1)?;
    bed.injected(format!("the database says schema version {}", version + 1));
    let before = std::fs::read(&path)?;
    match bed.backend.open(&bed.config) {
        Ok(workspace) => {
            drop(workspace);
            bed.breach("a database of a later version was mounted");
        }
        Err(error) => {
            let words = error.to_string();
            bed.refused(words.lines().next().unwrap_or_default());
            if !words.contains("version") {
                bed.breach("the refusal does not say that it is about the version");
            }
        }
    }
    if std::fs::read(&path)? != before {
        bed.breach("the refused database was changed");
    }
    set(version)?;
    bed.come_back()?;
    if let Some(recovery) = &mut bed.outcome.recovery {
        recovery.step = Some("with the version that wrote it, which is the one that we pretended it was not".into());
    }
    bed.audit_as(ORDERLY_END, Some(Acknowledgement::Write))
}

/// Removes the log after a kill, so that the last checkpoint's state is left.
pub fn remove_log(bed: &mut TestBed) -> StepResult {
    // An orderly end checkpoints the log, so that there is an earlier state.
    let path = fill_and_end(bed)?;
    bed.open_and_fill()?;
    bed.kill_daemon()?;
    bed.dismiss_agent();
    bed.workspace = None;
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let bytes = std::fs::metadata(&log)?.len();
    std::fs::remove_file(&log)?;
    bed.injected(format!("after kill -9, the -wal file ({bytes} bytes) was removed"));
    let said_before = bed.daemon_log().len();
    let started = Instant::now();
    let opened = bed.backend.open(&bed.config);
    let after = started.elapsed();
    let (told, is_silent) = match opened {
        Err(error) => {
            let words = error.to_string();
            bed.refused(refusal(&words));
            let Some(option) = follow(bed, &words, after)? else {
                let audit = Audit::unknown("the store is refused, so none of its files can be read");
                bed.audited("log-gone", audit);
                return Ok(());
            };
            let told = format!("the mount was refused, and then mounted with {option}");
            (told, false)
        }
        Ok(workspace) => {
            bed.workspace = Some(workspace);
            bed.recovered(Return::NextMount, after, None);
            let is_told = bed.logs(said_before, "-wal");
            let problem = match sqlite::check(&path) {
                Ok(checked) => checked.problems.into_iter().next(),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = &problem {
                bed.breach(format!("the remaining store is inconsistent: {problem}"));
            }
            let words = problem.unwrap_or_else(|| WHOLE.to_owned());
            bed.words("check_store", words);
            let told = if is_told { "the daemon's log names the -wal file" } else { "the next mount says nothing" };
            bed.words("told", told);
            (told.to_owned(), !is_told)
        }
    };
    // The promise for a killed daemon applies: lost changes count even though the harness removed the log.
    let promised = bed.backend.promises().killed_daemon;
    let mut audit = bed.audit_promise(promised)?;
    audit.note = Some(format!("the content of the log was removed on purpose, with the log; {told}"));
    let gone = audit.lost + audit.stale;
    if gone > 0 && is_silent {
        bed.breach(format!(
            "{gone} records were only in the log; the next mount works, and does not report that they are lost"
        ));
    }
    bed.count("gone_with_the_log", gone);
    // The recovered state must be a past state. Later changes without earlier ones are a mixture.
    if let Some(answer) = bed.perform(bed.root(), &Job::ReadRecords(bed.seed))?
        && answer.failures.is_empty()
        && !bed.history.had_state(&answer.found)
    {
        bed.breach("the remaining state is a mixture that never existed");
    }
    bed.audited("log-gone", audit);
    Ok(())
}

/// Mounts with each option that the refusal names, in order, and returns the first accepted one. Records
/// how the backend recovered.
fn follow(bed: &mut TestBed, words: &str, after: Duration) -> StepResult<Option<&'static str>> {
    let named = named(words);
    let mut refused = String::new();
    for option in &named {
        let began = Instant::now();
        match bed.open_with(option)? {
            Ok(()) => {
                let step = format!("a mount with {option}, as the refusal says");
                bed.recovered(Return::AfterStep, began.elapsed(), Some(step));
                return Ok(Some(option));
            }
            Err(words) => {
                refused = refusal(&words).to_owned();
                bed.saw(&format!("mount {option}"), AgentEventKind::Refusal, None, &refused);
            }
        }
    }
    let step = if named.is_empty() {
        format!("the mount is refused, which names no option that would help: {words}")
    } else {
        format!("none of {} helps: {refused}", named.join(", "))
    };
    bed.recovered(Return::Never, after, Some(step));
    if !named.is_empty() {
        bed.breach(format!("the step that the refusal names does not help: {refused}"));
    }
    Ok(None)
}

/// The line of a refused mount that gives the reason. The lines before it are warnings of the daemon.
fn refusal(words: &str) -> &str {
    let mut lines = words.lines();
    let first = lines.clone().next().unwrap_or_default();
    lines.find(|line| line.contains("ctxbench: ")).unwrap_or(first)
}

/// The mount options that a refusal names, in order.
fn named(words: &str) -> Vec<&'static str> {
    let places = STEPS.iter().filter_map(|step| Some((words.find(step)?, *step)));
    let mut places: Vec<(usize, &str)> = places.collect();
    places.sort_unstable();
    places.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_tells_a_refusal_from_earlier_warnings() {
        let words = "the daemon did not mount: WARN a dead mount\nctxbench: the log is gone\n  fix: put it back";
        assert_eq!(refusal(words), "ctxbench: the log is gone");
        assert_eq!(refusal("the daemon took too long\n"), "the daemon took too long");
    }

    #[test]
    fn a_parser_keeps_the_order_of_a_refusals_options() {
        assert_eq!(named("the file is gone\n  fix: put it back"), [""; 0]);
        let words =
            "the log is gone\n  fix: mount with --without-log; or with --rebuild-cache, to start with an empty cache";
        assert_eq!(named(words), ["--without-log", "--rebuild-cache"]);
        let words = "it is damaged\n  fix: mount it with --rebuild-cache";
        assert_eq!(named(words), ["--rebuild-cache"]);
    }
}
