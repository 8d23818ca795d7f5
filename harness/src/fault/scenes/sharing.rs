//! Several agents at once, on one mount or on two.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reports::faults::{Fact, SeenKind};
use workloads::fault::WriteMode;

use super::super::agent::{Answer, How, ShareTask, Task};
use super::super::second::{Second, SecondMount};
use super::super::stage::{Played, Spoiled, Stage};
use super::super::watch::{Agent, Waited};

fn how(mode: WriteMode) -> How {
    match mode {
        WriteMode::Append => How::Append,
        WriteMode::ReadModifyWrite => How::ReadModifyWrite,
        WriteMode::Locked => How::Locked,
        WriteMode::Rename => How::Rename,
    }
}

/// So many processes add lines to one file.
pub fn writers(stage: &mut Stage, processes: u32, times: u32, mode: WriteMode) -> Played {
    stage.open()?;
    let file = stage.root().join("shared.md");
    stage.injected(format!(
        "{processes} processes add {times} lines each to one file"
    ));
    let roots = vec![file; processes as usize];
    let (lost, torn, twice) = add_lines(stage, &roots, times, how(mode), 0)?;
    let (lost_is_wrong, torn_is_wrong) = match mode {
        WriteMode::Append | WriteMode::Locked => (true, true),
        // Who reads while another writes in place may see half of it on any file system.
        WriteMode::ReadModifyWrite => (false, false),
        WriteMode::Rename => (false, true),
    };
    if lost_is_wrong && lost > 0 {
        stage.breach(format!("{lost} of {} lines are lost", processes * times));
    }
    if torn_is_wrong && torn > 0 {
        stage.breach(format!("{torn} damaged lines were read"));
    }
    if lost_is_wrong && twice > 0 {
        stage.breach(format!("{twice} lines are there twice"));
    }
    Ok(())
}

/// Adds lines by one process for each of `files`, which may be one file by several paths; notes and answers how many
/// were lost, damaged and doubled.
fn add_lines(
    stage: &mut Stage,
    files: &[PathBuf],
    times: u32,
    how: How,
    pause_us: u64,
) -> Played<(u64, u64, u64)> {
    let mut agents = Vec::new();
    for (agent, file) in (0..).zip(files) {
        let mut process = Agent::start(stage.program())?;
        process.ask(&Task::Share(ShareTask::AddLines {
            file: file.clone(),
            how,
            agent,
            times,
            pause_us,
        }))?;
        agents.push(process);
    }
    let mut torn = 0;
    for mut agent in agents {
        if let Some(answer) = wait(stage, &mut agent)? {
            torn += count(&answer, "torn_reads");
        }
    }
    let task = Task::Share(ShareTask::CountLines {
        file: files[0].clone(),
    });
    let Some(answer) = stage.perform(&task)? else {
        return Ok((0, 0, 0));
    };
    let written = files.len() as u64 * u64::from(times);
    let lost = written - count(&answer, "lines").min(written);
    let damaged = count(&answer, "lines_damaged");
    let twice = count(&answer, "lines_twice");
    for (name, value) in [
        ("lines_written", written),
        ("updates_lost", lost),
        ("torn_reads", torn),
        ("lines_damaged", damaged),
        ("lines_twice", twice),
    ] {
        stage.fact(name, Fact::Count(value));
    }
    Ok((lost, torn + damaged, twice))
}

fn count(answer: &Answer, name: &str) -> u64 {
    match answer.facts.get(name) {
        Some(Fact::Count(count)) => *count,
        _ => 0,
    }
}

/// Waits for one of several agents; what failed is noted.
fn wait(stage: &mut Stage, agent: &mut Agent) -> Played<Option<Answer>> {
    match agent.wait(stage.hang_limit(), &stage.interrupt) {
        Waited::Answered(answer) => {
            for failure in &answer.failures {
                let what = match failure.errno {
                    Some(_) => SeenKind::Errno,
                    None => SeenKind::WrongBytes,
                };
                stage.saw(&failure.call, what, failure.errno, &failure.text);
            }
            let longest = answer.longest_ns / 1_000_000;
            stage.outcome.longest_call_ms = stage.outcome.longest_call_ms.max(longest);
            Ok(Some(answer))
        }
        Waited::Interrupted => Err(Spoiled::Interrupted),
        Waited::Overdue => {
            let hang = stage.blame(agent);
            stage.note_hang(hang);
            Ok(None)
        }
        Waited::Ended(status) => {
            let text = status.map_or("unknown".to_owned(), |status| status.to_string());
            stage.saw(
                "any",
                SeenKind::Killed,
                None,
                &format!("an agent ended: {text}"),
            );
            Ok(None)
        }
    }
}

/// Two mounts of one store: a plain directory is used twice as it is.
pub fn two_mounts(stage: &mut Stage, notes: u32) -> Played {
    stage.open()?;
    stage.injected("the same store mounted a second time, and used through both mounts");
    let beside = stage.site.dir.join("second");
    let second = SecondMount::start(&*stage.backend, &stage.site, &beside)?;
    let there = match &second {
        Second::Refused(words) => {
            stage.saw("mount", SeenKind::Refusal, None, words);
            stage.fact("second_mount", Fact::Words(format!("refused: {words}")));
            return Ok(());
        }
        Second::NoMount if stage.backend.describe().mounts > 0 => {
            return Err(Spoiled::Skipped(
                "it cannot be mounted a second time".into(),
            ));
        }
        Second::NoMount => stage.root(),
        Second::Mounted(second) => second.root().to_owned(),
    };
    let here = stage.root();
    let mut other = Agent::start(stage.program())?;
    visibility(stage, &mut other, &here, &there, notes)?;
    locks(stage, &mut other, &here, &there)?;
    // Both read, add and write back, as agents do that do not lock. The pauses let one see the other.
    let files = [here.join("both.md"), there.join("both.md")];
    add_lines(stage, &files, 20, How::Rename, 20_000)?;
    settle(stage, &here, &there)?;
    let task = ShareTask::CountNames {
        dir: here,
        word: "conflict".to_owned(),
    };
    if let Some(answer) = stage.perform(&Task::Share(task))? {
        stage.fact("kept_beside", Fact::Count(count(&answer, "names")));
    }
    drop(other);
    stage.dismiss_agent();
    drop(second);
    Ok(())
}

/// How long until one sees what the other wrote.
fn visibility(
    stage: &mut Stage,
    other: &mut Agent,
    here: &Path,
    there: &Path,
    notes: u32,
) -> Played {
    let mut delays = Vec::new();
    let mut partial = 0;
    for note in 0..notes {
        let name = format!("note-{note}.md");
        let text = format!("note {note}\n").repeat(100);
        other.ask(&Task::Share(ShareTask::AwaitNote {
            file: there.join(&name),
            text: text.clone(),
            limit_ms: 10_000,
        }))?;
        std::thread::sleep(Duration::from_millis(20));
        let task = ShareTask::WriteNote {
            file: here.join(&name),
            text,
        };
        stage.perform(&Task::Share(task))?;
        let written = std::time::Instant::now();
        if let Some(answer) = wait(stage, other)? {
            delays.push(written.elapsed().as_secs_f64() * 1e3);
            partial += count(&answer, "partial_reads");
        }
    }
    delays.sort_by(f64::total_cmp);
    if let (Some(median), Some(longest)) = (delays.get(delays.len() / 2), delays.last()) {
        stage.fact("visible_ms_median", Fact::Number(*median));
        stage.fact("visible_ms_longest", Fact::Number(*longest));
    }
    stage.fact("partial_reads", Fact::Count(partial));
    Ok(())
}

/// Whether a lock that is held on one mount is seen on the other.
fn locks(stage: &mut Stage, other: &mut Agent, here: &Path, there: &Path) -> Played {
    let task = |dir: &Path| {
        Task::Share(ShareTask::TryLock {
            file: dir.join("lock"),
        })
    };
    let mine = stage.perform(&task(here))?;
    std::thread::sleep(Duration::from_millis(50));
    other.ask(&task(there))?;
    let theirs = wait(stage, other)?;
    if let (Some(mine), Some(theirs)) = (mine, theirs) {
        let excludes = count(&mine, "locked") == 1 && count(&theirs, "locked") == 0;
        let words = if excludes {
            "flock on one excludes the other"
        } else {
            "flock on one does not exclude the other"
        };
        stage.fact("locks", Fact::Words(words.to_owned()));
    }
    stage.perform(&Task::Share(ShareTask::Unlock))?;
    Ok(())
}

/// Lets both have all of what the other wrote.
fn settle(stage: &mut Stage, here: &Path, there: &Path) -> Played {
    for _ in 0..2 {
        for root in [here, there] {
            let task = Task::Sync {
                root: root.to_owned(),
            };
            stage.perform(&task)?;
        }
        // Longer than a bucket is looked at.
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let both = [here, there].map(|root| root.join("both.md"));
    let mut seen = Vec::new();
    for file in both {
        let task = Task::Share(ShareTask::CountLines { file });
        if let Some(answer) = stage.perform(&task)? {
            seen.push(count(&answer, "lines"));
        }
    }
    let [one, other] = seen[..] else {
        return Ok(());
    };
    let written = match stage.outcome.facts.get("lines_written") {
        Some(Fact::Count(written)) => *written,
        _ => 0,
    };
    stage.fact("updates_lost", Fact::Count(written - one.min(written)));
    if one != other {
        stage.breach(format!(
            "after both were synced, one shows {one} lines and the other {other}"
        ));
    }
    Ok(())
}
