//! The SQLite file under a store is locked, cut, changed, or loses its log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backends::promise::Acknowledgement;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reports::faults::{Audit, Fact, ORDERLY_END, Return, SeenKind};
use rusqlite::Connection;
use rustix::io::Errno;

use super::super::agent::Task;
use super::super::stage::{Played, Spoiled, Stage};

/// The options of `ctxbench mount` that a refusal to mount a database may name.
const STEPS: [&str; 2] = ["--without-log", "--rebuild-cache"];

/// Bytes of a page of our databases.
const PAGE: u64 = 4096;

fn database(stage: &Stage) -> Played<PathBuf> {
    let found = stage.backend.database(&stage.site);
    found.ok_or_else(|| Spoiled::Infra("there is no database".into()))
}

/// Another process begins a transaction that writes and keeps it for so many seconds.
pub fn lock(stage: &mut Stage, seconds: f64) -> Played {
    stage.open()?;
    stage.fill()?;
    let path = database(stage)?;
    let other = Connection::open(&path).map_err(infra)?;
    other.execute_batch("BEGIN IMMEDIATE").map_err(infra)?;
    stage.injected(format!(
        "another connection holds SQLite's write lock for {seconds} s"
    ));
    let locked = Instant::now();
    let answer = stage.write(1)?;
    let waited = locked.elapsed();
    stage.fact("write_waited_ms", Fact::Count(waited.as_millis() as u64));
    let failure = answer.as_ref().and_then(|answer| answer.failures.first());
    match failure {
        None if answer.is_some() => {
            return Err(Spoiled::Infra(
                "a change was made while another held the lock: nothing was hit".into(),
            ));
        }
        Some(failure) if failure.errno != Some(Errno::BUSY.raw_os_error()) => {
            let text = failure.text.clone();
            stage.breach(format!("a locked database is told as {text}, not as EBUSY"));
        }
        _ => {}
    }
    let left = Duration::from_secs_f64(seconds).saturating_sub(locked.elapsed());
    // Reading needs no lock.
    stage.audit_as("while-locked", Some(Acknowledgement::Write))?;
    std::thread::sleep(left);
    other.execute_batch("ROLLBACK").map_err(infra)?;
    drop(other);
    let unlocked = Instant::now();
    match stage.is_usable()? {
        Ok(()) => {
            let ms = unlocked.elapsed().as_millis() as u64;
            stage.recovered(Return::ByItself, ms, None);
        }
        Err(reason) => {
            stage.breach(format!("it did not go on when the lock was gone: {reason}"));
            stage.come_back()?;
        }
    }
    stage.audit()
}

fn infra(error: rusqlite::Error) -> Spoiled {
    Spoiled::Infra(format!("SQLite: {error}"))
}

/// Fills the store and ends it in order, so that all is in one file.
fn fill_and_end(stage: &mut Stage) -> Played<PathBuf> {
    stage.open()?;
    stage.fill()?;
    let path = database(stage)?;
    if let Err(error) = stage.close()? {
        return Err(Spoiled::Infra(format!("an orderly end: {error}")));
    }
    Ok(path)
}

/// Mounts a store that was damaged while it was not mounted, and sees what is said of it. What is gone was taken away
/// by us: it must be told from what was never there, by an error, and never come back as other bytes.
fn open_damaged(stage: &mut Stage, path: &Path) -> Played {
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
    stage.fact("check_store", Fact::Words(said));
    let started = Instant::now();
    match stage.backend.open(&stage.site) {
        Err(error) => {
            let words = error.to_string();
            stage.saw("mount", SeenKind::Refusal, None, refusal(&words));
            let ms = started.elapsed().as_millis() as u64;
            let helped = if named(&words).is_empty() {
                let step = "a copy of the database: what it held cannot be mended";
                stage.recovered(Return::Never, ms, Some(step.to_owned()));
                None
            } else {
                follow(stage, &words, ms)?
            };
            let audit = match helped {
                // It had ended in order: with a bucket, all of it is there.
                Some(option) => {
                    let mut audit = stage.audit_promise(Some(Acknowledgement::Write))?;
                    audit.note = Some(format!(
                        "the damaged store was refused, and then told to go on by {option}"
                    ));
                    audit
                }
                None => Audit::unknown("the damaged store is refused: nothing of it can be read"),
            };
            stage.outcome.audits.insert("damaged".to_owned(), audit);
        }
        Ok(workspace) => {
            stage.workspace = Some(workspace);
            let audit = stage.audit_promise(stage.backend.promises().killed_daemon)?;
            let wrong = audit.torn + audit.stale + audit.phantom;
            let missing = audit.lost;
            if wrong + missing > 0 && !is_told_by_check {
                stage.breach("damage to the database passes for its content, and check-store does not find it");
            }
            // What was taken away is not the backend's loss; what it shows in its place is.
            let mut shown = audit;
            shown.note = Some(format!(
                "{missing} records were gone without an error; check-store {}",
                if is_told_by_check {
                    "finds the damage"
                } else {
                    "finds nothing"
                }
            ));
            stage.outcome.audits.insert("damaged".to_owned(), shown);
        }
    }
    Ok(())
}

/// The file loses its second half.
pub fn truncate(stage: &mut Stage) -> Played {
    let path = fill_and_end(stage)?;
    let file = File::options().write(true).open(&path)?;
    let pages = file.metadata()?.len() / PAGE;
    file.set_len(pages / 2 * PAGE)?;
    stage.injected(format!(
        "the database was cut from {pages} to {} pages",
        pages / 2
    ));
    open_damaged(stage, &path)
}

/// Bits flip, in pages behind the first.
pub fn flip(stage: &mut Stage, bits: u32) -> Played {
    let path = fill_and_end(stage)?;
    flip_bits(&path, bits, stage.seed)?;
    stage.injected(format!(
        "{bits} bits of the database flipped, none in its first page"
    ));
    open_damaged(stage, &path)
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

/// The database says that a later version wrote it.
pub fn newer(stage: &mut Stage) -> Played {
    let path = fill_and_end(stage)?;
    let version = backends::sqlite::SCHEMA_VERSION;
    let set = |version: i32| -> Played {
        let other = Connection::open(&path).map_err(infra)?;
        other
            .pragma_update(None, "user_version", version)
            .map_err(infra)
    };
    set(version + 1)?;
    stage.injected(format!("the database says schema version {}", version + 1));
    let before = std::fs::read(&path)?;
    match stage.backend.open(&stage.site) {
        Ok(workspace) => {
            drop(workspace);
            stage.breach("a database of a later version was mounted");
        }
        Err(error) => {
            let words = error.to_string();
            stage.saw(
                "mount",
                SeenKind::Refusal,
                None,
                words.lines().next().unwrap_or_default(),
            );
            if !words.contains("version") {
                stage.breach("the refusal does not say that it is about the version");
            }
        }
    }
    if std::fs::read(&path)? != before {
        stage.breach("the refused database was changed");
    }
    set(version)?;
    stage.come_back()?;
    if let Some(recovery) = &mut stage.outcome.recovery {
        recovery.step = Some(
            "with the version that wrote it, which is the one that we pretended it was not".into(),
        );
    }
    stage.audit_as(ORDERLY_END, Some(Acknowledgement::Write))
}

/// The log goes after a crash, so that what is left is the state of the last checkpoint.
pub fn remove_log(stage: &mut Stage) -> Played {
    // An orderly end copies the log: so there is an earlier state to go on with.
    let path = fill_and_end(stage)?;
    stage.open()?;
    stage.fill()?;
    stage.kill_daemon()?;
    stage.dismiss_agent();
    stage.workspace = None;
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let bytes = std::fs::metadata(&log)?.len();
    std::fs::remove_file(&log)?;
    stage.injected(format!(
        "after kill -9, the -wal file ({bytes} bytes) was removed"
    ));
    let said_before = stage.daemon_log().len();
    let started = Instant::now();
    let opened = stage.backend.open(&stage.site);
    let ms = started.elapsed().as_millis() as u64;
    match opened {
        Err(error) => {
            let words = error.to_string();
            stage.saw("mount", SeenKind::Refusal, None, refusal(&words));
            return refused_without_log(stage, &words, ms);
        }
        Ok(workspace) => stage.workspace = Some(workspace),
    }
    stage.recovered(Return::NextMount, ms, None);
    let said = stage.daemon_log();
    let said = said.get(said_before..).unwrap_or_default();
    let is_told = said.contains("-wal");
    let checked = backends::sqlite::check(&path);
    let words = match &checked {
        Ok(checked) if checked.problems.is_empty() => "whole".to_owned(),
        Ok(checked) => checked.problems[0].clone(),
        Err(error) => error.to_string(),
    };
    if words != "whole" {
        stage.breach(format!("what is left is not whole: {words}"));
    }
    stage.fact("check_store", Fact::Words(words));
    let told = match is_told {
        true => "the daemon's log names the -wal file",
        false => "the next mount says nothing",
    };
    stage.fact("told", Fact::Words(told.to_owned()));
    // By what is promised of a killed daemon: that somebody took the log away does not make it less of a loss.
    let promised = stage.backend.promises().killed_daemon;
    let mut audit = stage.audit_promise(promised)?;
    audit.note = Some(format!(
        "what was in the log was taken away on purpose, with the log; {told}"
    ));
    let gone = audit.lost + audit.stale;
    if gone > 0 && !is_told {
        stage.breach(format!(
            "{gone} records were in the log alone; the next mount works, and nothing says that they are gone"
        ));
    }
    stage.fact("gone_with_the_log", Fact::Count(gone));
    must_be_a_state(stage)?;
    stage.outcome.audits.insert("log-gone".to_owned(), audit);
    Ok(())
}

/// Mounts with each option that a refusal names, in the order in which it names them, until one is accepted, which is the
/// answer; notes how it came back.
fn follow(stage: &mut Stage, words: &str, ms: u64) -> Played<Option<&'static str>> {
    let named = named(words);
    let mut refused = String::new();
    for option in &named {
        let began = Instant::now();
        match stage.open_with(option)? {
            Ok(()) => {
                let ms = began.elapsed().as_millis() as u64;
                let step = format!("a mount with {option}, as the refusal says");
                stage.recovered(Return::AfterStep, ms, Some(step));
                return Ok(Some(option));
            }
            Err(words) => {
                refused = refusal(&words).to_owned();
                stage.saw(
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
    stage.recovered(Return::Never, ms, Some(step));
    if !named.is_empty() {
        stage.breach(format!(
            "the step that the refusal names does not help: {refused}"
        ));
    }
    Ok(None)
}

/// The line of a failed mount that says why: others are what the daemon warned of before.
fn refusal(words: &str) -> &str {
    let mut lines = words.lines();
    let first = lines.clone().next().unwrap_or_default();
    lines
        .find(|line| line.contains("ctxbench: "))
        .unwrap_or(first)
}

/// The options of `ctxbench mount` that a refusal names, in its order.
fn named(words: &str) -> Vec<&'static str> {
    let places = STEPS
        .iter()
        .filter_map(|step| Some((words.find(step)?, *step)));
    let mut places: Vec<(usize, &str)> = places.collect();
    places.sort_unstable();
    places.into_iter().map(|(_, step)| step).collect()
}

/// Goes on without the log, where the refusal to mount says how, and looks at what is left.
fn refused_without_log(stage: &mut Stage, words: &str, ms: u64) -> Played {
    let audit = match follow(stage, words, ms)? {
        None => Audit::unknown("the store is refused: nothing of it can be read"),
        Some(option) => {
            // By what is promised of a killed daemon, as where nothing is refused.
            let mut audit = stage.audit_promise(stage.backend.promises().killed_daemon)?;
            audit.note = Some(format!(
                "what was in the log was taken away on purpose, with the log; the mount was refused, and then told to go on by {option}"
            ));
            let gone = audit.lost + audit.stale;
            stage.fact("gone_with_the_log", Fact::Count(gone));
            must_be_a_state(stage)?;
            audit
        }
    };
    stage.outcome.audits.insert("log-gone".to_owned(), audit);
    Ok(())
}

/// What is left has to be what was there at some moment: later changes without earlier ones are a mixture.
fn must_be_a_state(stage: &mut Stage) -> Played {
    let task = Task::ReadRecords {
        root: stage.root(),
        seed: stage.seed,
    };
    if let Some(answer) = stage.perform(&task)?
        && answer.failures.is_empty()
        && !stage.history.had_state(&answer.found)
    {
        stage.breach("what is left is no state that there ever was, but a mixture");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_what_was_warned_of_before() {
        let words = "the daemon did not mount: WARN a dead mount\nctxbench: the log is gone\n  fix: put it back";
        assert_eq!(refusal(words), "ctxbench: the log is gone");
        assert_eq!(
            refusal("the daemon took too long\n"),
            "the daemon took too long"
        );
    }

    #[test]
    fn the_steps_of_a_refusal_are_taken_in_its_order() {
        assert_eq!(named("the file is gone\n  fix: put it back"), [""; 0]);
        let words = "the log is gone\n  fix: mount with --without-log; or with --rebuild-cache, to begin anew";
        assert_eq!(named(words), ["--without-log", "--rebuild-cache"]);
        let words = "it is damaged\n  fix: mount it with --rebuild-cache";
        assert_eq!(named(words), ["--rebuild-cache"]);
    }
}
