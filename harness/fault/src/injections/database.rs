//! Faults of the SQLite file under a store: a foreign lock, truncation, bit flips, a newer schema, a lost
//! log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::{Audit, Fact, ORDERLY_END, Return, SeenKind};
use rusqlite::Connection;
use rustix::io::Errno;

use super::super::agent::Task;
use super::super::bed::{Injected, ScenarioError, TestBed, infra};

/// The mount options that a refused mount may name as a fix.
const STEPS: [&str; 2] = ["--without-log", "--rebuild-cache"];

/// Page size of the stores' databases, in bytes.
const PAGE: u64 = 4096;

fn database(bed: &TestBed) -> Injected<PathBuf> {
    let found = bed.backend.database(&bed.config);
    found.ok_or_else(|| ScenarioError::Infra("there is no database".into()))
}

/// Another connection holds a write transaction for `seconds`.
pub fn lock(bed: &mut TestBed, seconds: f64) -> Injected {
    bed.open()?;
    bed.fill()?;
    let path = database(bed)?;
    let other = Connection::open(&path).map_err(sqlite)?;
    other.execute_batch("BEGIN IMMEDIATE").map_err(sqlite)?;
    bed.injected(format!(
        "another connection holds SQLite's write lock for {seconds} s"
    ));
    let locked = Instant::now();
    let answer = bed.write(1)?;
    let waited = locked.elapsed();
    bed.fact("write_waited_ms", Fact::Count(waited.as_millis() as u64));
    let failure = answer.as_ref().and_then(|answer| answer.failures.first());
    match failure {
        None if answer.is_some() => {
            return infra("a change was made while another held the lock: nothing was hit");
        }
        Some(failure) if failure.errno != Some(Errno::BUSY.raw_os_error()) => {
            let text = failure.text.clone();
            bed.breach(format!("a locked database is told as {text}, not as EBUSY"));
        }
        _ => {}
    }
    let left = Duration::from_secs_f64(seconds).saturating_sub(locked.elapsed());
    // In WAL mode, readers need no write lock.
    bed.audit_as("while-locked", Some(Acknowledgement::Write))?;
    std::thread::sleep(left);
    other.execute_batch("ROLLBACK").map_err(sqlite)?;
    drop(other);
    let unlocked = Instant::now();
    match bed.is_usable()? {
        Ok(()) => {
            let ms = unlocked.elapsed().as_millis() as u64;
            bed.recovered(Return::ByItself, ms, None);
        }
        Err(reason) => {
            bed.breach(format!("it did not go on when the lock was gone: {reason}"));
            bed.come_back()?;
        }
    }
    bed.audit()
}

fn sqlite(error: rusqlite::Error) -> ScenarioError {
    ScenarioError::Infra(format!("SQLite: {error}"))
}

/// Fills the store and unmounts it in order, so that the database file holds all data.
fn fill_and_end(bed: &mut TestBed) -> Injected<PathBuf> {
    bed.open()?;
    bed.fill()?;
    let path = database(bed)?;
    if let Err(error) = bed.close()? {
        return infra(format!("an orderly end: {error}"));
    }
    Ok(path)
}

/// Mounts a damaged store and checks how it reports the damage. Missing data must give an error, never
/// other bytes.
fn open_damaged(bed: &mut TestBed, path: &Path) -> Injected {
    let checked = backends::sqlite::check(path);
    let said = match &checked {
        Ok(checked) if checked.problems.is_empty() => "whole".to_owned(),
        Ok(checked) => format!(
            "{} problems, such as: {}",
            checked.problems.len(),
            checked.problems[0]
        ),
        Err(error) => error.to_string(),
    };
    let is_told_by_check = said != "whole";
    bed.fact("check_store", Fact::Words(said));
    let started = Instant::now();
    match bed.backend.open(&bed.config) {
        Err(error) => {
            let words = error.to_string();
            bed.saw("mount", SeenKind::Refusal, None, refusal(&words));
            let ms = started.elapsed().as_millis() as u64;
            let helped = if named(&words).is_empty() {
                let step = "a copy of the database: what it held cannot be mended";
                bed.recovered(Return::Never, ms, Some(step.to_owned()));
                None
            } else {
                follow(bed, &words, ms)?
            };
            let audit = match helped {
                // The store ended in order, so a bucket holds all of it.
                Some(option) => {
                    let mut audit = bed.audit_promise(Some(Acknowledgement::Write))?;
                    audit.note = Some(format!(
                        "the damaged store was refused, and then told to go on by {option}"
                    ));
                    audit
                }
                None => Audit::unknown("the damaged store is refused: nothing of it can be read"),
            };
            bed.outcome.audits.insert("damaged".to_owned(), audit);
        }
        Ok(workspace) => {
            bed.workspace = Some(workspace);
            let audit = bed.audit_promise(bed.backend.promises().killed_daemon)?;
            let wrong = audit.torn + audit.stale + audit.phantom;
            let missing = audit.lost;
            if wrong + missing > 0 && !is_told_by_check {
                bed.breach("damage to the database passes for its content, and doctor --store does not find it");
            }
            // The fault removed the missing records, so the audit's note lists them. Wrong content is the
            // backend's failure.
            let mut shown = audit;
            shown.note = Some(format!(
                "{missing} records were gone without an error; doctor --store {}",
                if is_told_by_check {
                    "finds the damage"
                } else {
                    "finds nothing"
                }
            ));
            bed.outcome.audits.insert("damaged".to_owned(), shown);
        }
    }
    Ok(())
}

/// Truncates the database to half its pages.
pub fn truncate(bed: &mut TestBed) -> Injected {
    let path = fill_and_end(bed)?;
    let file = File::options().write(true).open(&path)?;
    let pages = file.metadata()?.len() / PAGE;
    file.set_len(pages / 2 * PAGE)?;
    bed.injected(format!(
        "the database was cut from {pages} to {} pages",
        pages / 2
    ));
    open_damaged(bed, &path)
}

/// Flips bits in any page but the first.
pub fn flip(bed: &mut TestBed, bits: u32) -> Injected {
    let path = fill_and_end(bed)?;
    flip_bits(&path, bits, bed.seed)?;
    bed.injected(format!(
        "{bits} bits of the database flipped, none in its first page"
    ));
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
pub fn newer(bed: &mut TestBed) -> Injected {
    let path = fill_and_end(bed)?;
    let version = backends::sqlite::SCHEMA_VERSION;
    let set = |version: i32| -> Injected {
        let other = Connection::open(&path).map_err(sqlite)?;
        other
            .pragma_update(None, "user_version", version)
            .map_err(sqlite)
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
            bed.saw(
                "mount",
                SeenKind::Refusal,
                None,
                words.lines().next().unwrap_or_default(),
            );
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
        recovery.step = Some(
            "with the version that wrote it, which is the one that we pretended it was not".into(),
        );
    }
    bed.audit_as(ORDERLY_END, Some(Acknowledgement::Write))
}

/// Removes the log after a kill, so that the last checkpoint's state is left.
pub fn remove_log(bed: &mut TestBed) -> Injected {
    // An orderly end checkpoints the log, so that there is an earlier state.
    let path = fill_and_end(bed)?;
    bed.open()?;
    bed.fill()?;
    bed.kill_daemon()?;
    bed.dismiss_agent();
    bed.workspace = None;
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let bytes = std::fs::metadata(&log)?.len();
    std::fs::remove_file(&log)?;
    bed.injected(format!(
        "after kill -9, the -wal file ({bytes} bytes) was removed"
    ));
    let said_before = bed.daemon_log().len();
    let started = Instant::now();
    let opened = bed.backend.open(&bed.config);
    let ms = started.elapsed().as_millis() as u64;
    match opened {
        Err(error) => {
            let words = error.to_string();
            bed.saw("mount", SeenKind::Refusal, None, refusal(&words));
            return refused_without_log(bed, &words, ms);
        }
        Ok(workspace) => bed.workspace = Some(workspace),
    }
    bed.recovered(Return::NextMount, ms, None);
    let is_told = bed.logs(said_before, "-wal");
    let checked = backends::sqlite::check(&path);
    let words = match &checked {
        Ok(checked) if checked.problems.is_empty() => "whole".to_owned(),
        Ok(checked) => checked.problems[0].clone(),
        Err(error) => error.to_string(),
    };
    if words != "whole" {
        bed.breach(format!("what is left is not whole: {words}"));
    }
    bed.fact("check_store", Fact::Words(words));
    let told = match is_told {
        true => "the daemon's log names the -wal file",
        false => "the next mount says nothing",
    };
    bed.fact("told", Fact::Words(told.to_owned()));
    // The promise for a killed daemon applies: lost changes count even though the harness removed the log.
    let promised = bed.backend.promises().killed_daemon;
    let mut audit = bed.audit_promise(promised)?;
    audit.note = Some(format!(
        "what was in the log was taken away on purpose, with the log; {told}"
    ));
    let gone = audit.lost + audit.stale;
    if gone > 0 && !is_told {
        bed.breach(format!(
            "{gone} records were in the log alone; the next mount works, and nothing says that they are gone"
        ));
    }
    bed.fact("gone_with_the_log", Fact::Count(gone));
    must_be_a_state(bed)?;
    bed.outcome.audits.insert("log-gone".to_owned(), audit);
    Ok(())
}

/// Mounts with each option that the refusal names, in order, and returns the first accepted one. Records
/// how the backend recovered.
fn follow(bed: &mut TestBed, words: &str, ms: u64) -> Injected<Option<&'static str>> {
    let named = named(words);
    let mut refused = String::new();
    for option in &named {
        let began = Instant::now();
        match bed.open_with(option)? {
            Ok(()) => {
                let ms = began.elapsed().as_millis() as u64;
                let step = format!("a mount with {option}, as the refusal says");
                bed.recovered(Return::AfterStep, ms, Some(step));
                return Ok(Some(option));
            }
            Err(words) => {
                refused = refusal(&words).to_owned();
                bed.saw(
                    &format!("mount {option}"),
                    SeenKind::Refusal,
                    None,
                    &refused,
                );
            }
        }
    }
    let step = match named.is_empty() {
        true => format!("the mount is refused, which names no option that would help: {words}"),
        false => format!("none of {} helps: {refused}", named.join(", ")),
    };
    bed.recovered(Return::Never, ms, Some(step));
    if !named.is_empty() {
        bed.breach(format!(
            "the step that the refusal names does not help: {refused}"
        ));
    }
    Ok(None)
}

/// The line of a refused mount that gives the reason. The lines before it are warnings of the daemon.
fn refusal(words: &str) -> &str {
    let mut lines = words.lines();
    let first = lines.clone().next().unwrap_or_default();
    lines
        .find(|line| line.contains("ctxbench: "))
        .unwrap_or(first)
}

/// The mount options that a refusal names, in order.
fn named(words: &str) -> Vec<&'static str> {
    let places = STEPS
        .iter()
        .filter_map(|step| Some((words.find(step)?, *step)));
    let mut places: Vec<(usize, &str)> = places.collect();
    places.sort_unstable();
    places.into_iter().map(|(_, step)| step).collect()
}

/// Follows the refusal's advice to mount without the log, and audits the records.
fn refused_without_log(bed: &mut TestBed, words: &str, ms: u64) -> Injected {
    let audit = match follow(bed, words, ms)? {
        None => Audit::unknown("the store is refused: nothing of it can be read"),
        Some(option) => {
            // The same promise applies as where the mount is not refused.
            let mut audit = bed.audit_promise(bed.backend.promises().killed_daemon)?;
            audit.note = Some(format!(
                "what was in the log was taken away on purpose, with the log; the mount was refused, and then told to go on by {option}"
            ));
            let gone = audit.lost + audit.stale;
            bed.fact("gone_with_the_log", Fact::Count(gone));
            must_be_a_state(bed)?;
            audit
        }
    };
    bed.outcome.audits.insert("log-gone".to_owned(), audit);
    Ok(())
}

/// The recovered state must be a past state. Later changes without earlier ones are a mixture.
fn must_be_a_state(bed: &mut TestBed) -> Injected {
    let task = Task::ReadRecords {
        root: bed.root(),
        seed: bed.seed,
    };
    if let Some(answer) = bed.perform(&task)?
        && answer.failures.is_empty()
        && !bed.history.had_state(&answer.found)
    {
        bed.breach("what is left is no state that there ever was, but a mixture");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_tells_a_refusal_from_earlier_warnings() {
        let words = "the daemon did not mount: WARN a dead mount\nctxbench: the log is gone\n  fix: put it back";
        assert_eq!(refusal(words), "ctxbench: the log is gone");
        assert_eq!(
            refusal("the daemon took too long\n"),
            "the daemon took too long"
        );
    }

    #[test]
    fn a_parser_keeps_the_order_of_a_refusals_options() {
        assert_eq!(named("the file is gone\n  fix: put it back"), [""; 0]);
        let words = "the log is gone\n  fix: mount with --without-log; or with --rebuild-cache, to begin anew";
        assert_eq!(named(words), ["--without-log", "--rebuild-cache"]);
        let words = "it is damaged\n  fix: mount it with --rebuild-cache";
        assert_eq!(named(words), ["--rebuild-cache"]);
    }
}
