//! Several concurrent agent processes, on one mount or on two.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rundir::faults::{Audit, Fact};
use workloads::fault::WriteMode;

use super::super::agent::{Job, JobAnswer, word};
use super::super::agent_process::Agent;
use super::super::bed::{StepResult, TestBed, skipped};
use super::super::second_mount::SecondMount;

/// Several processes add lines to one file.
pub fn writers(bed: &mut TestBed, processes: u32, times: u32, mode: WriteMode) -> StepResult {
    bed.open()?;
    let file = bed.root().join("shared.md");
    bed.injected(format!("{processes} processes add {times} lines each to one file"));
    let roots = vec![file; processes as usize];
    let before = bed.counted();
    let added = add_lines(bed, &roots, times, mode, 0)?;
    bed.count_syncs(before.as_ref());
    let Some(found) = read_lines(bed, &roots[0])? else {
        lines_unread(bed);
        return Ok(());
    };
    let lost = added.acknowledged.difference(&found.present).count() as u64;
    bed.count("updates_lost", lost);
    bed.count("lines_damaged", found.damaged);
    bed.count("lines_twice", found.twice);
    let (lost_is_wrong, torn_is_wrong) = match mode {
        WriteMode::Append | WriteMode::Locked => (true, true),
        // On any file system, a reader may see a partial in-place write.
        WriteMode::ReadModifyWrite => (false, false),
        WriteMode::Rename => (false, true),
    };
    if lost_is_wrong && lost > 0 {
        let acknowledged = added.acknowledged.len();
        bed.breach(format!("{lost} of {acknowledged} acknowledged lines are lost"));
    }
    let torn = added.torn_reads + found.damaged;
    if torn_is_wrong && torn > 0 {
        bed.breach(format!("{torn} damaged lines were read"));
    }
    if lost_is_wrong && found.twice > 0 {
        bed.breach(format!("{} lines appear twice", found.twice));
    }
    Ok(())
}

/// The result of several agent processes adding lines.
#[derive(Default)]
struct AppendResult {
    /// The lines whose calls all succeeded.
    acknowledged: BTreeSet<String>,
    torn_reads: u64,
}

/// The content of a file of lines.
struct Lines {
    present: BTreeSet<String>,
    damaged: u64,
    twice: u64,
}

fn words(answer: &JobAnswer, name: &str) -> BTreeSet<String> {
    let words = answer.words(name);
    words.split_whitespace().map(str::to_owned).collect()
}

/// The lines of an agent process whose calls all succeeded.
fn acknowledged(agent: u32, times: u32, answer: &JobAnswer) -> BTreeSet<String> {
    let not_added = words(answer, "not_added");
    let all = (0..times).map(|number| word(agent, number));
    all.filter(|word| !not_added.contains(word)).collect()
}

/// Adds lines with one process for each of `files`, which may be several paths of one file. Returns the
/// added lines.
fn add_lines(
    bed: &mut TestBed,
    files: &[PathBuf],
    times: u32,
    how: WriteMode,
    pause_us: u64,
) -> StepResult<AppendResult> {
    let mut agents = Vec::new();
    for (agent, file) in (0..).zip(files) {
        let mut process = Agent::start(bed.program())?;
        let job = Job::AddLines { how, agent, times, pause_us };
        process.ask(file, &job)?;
        agents.push(process);
    }
    let mut added = AppendResult::default();
    for (number, agent) in (0..).zip(agents) {
        if let (Some(answer), _) = bed.end_of(agent)? {
            added.torn_reads += answer.count("torn_reads");
            added.acknowledged.extend(acknowledged(number, times, &answer));
        }
    }
    bed.count("lines_added", added.acknowledged.len() as u64);
    let asked = files.len() as u64 * u64::from(times);
    bed.count("lines_not_added", asked - added.acknowledged.len() as u64);
    bed.count("torn_reads", added.torn_reads);
    Ok(added)
}

/// Reads the lines of a file. `None` if it cannot be read.
fn read_lines(bed: &mut TestBed, file: &Path) -> StepResult<Option<Lines>> {
    let answer = bed.perform(file, &Job::CountLines)?;
    let answer = answer.filter(|answer| answer.facts.contains_key("present"));
    Ok(answer.map(|answer| Lines {
        present: words(&answer, "present"),
        damaged: answer.count("lines_damaged"),
        twice: answer.count("lines_twice"),
    }))
}

/// Records that the fate of the lines is unknown.
fn lines_unread(bed: &mut TestBed) {
    let audit = Audit::unknown("the shared file could not be read at the end");
    bed.audited("shared-file", audit);
}

/// Two mounts of one store. A backend without mounts uses its directory twice.
pub fn two_mounts(bed: &mut TestBed, notes: u32) -> StepResult {
    bed.open()?;
    bed.injected("the same store mounted a second time, and used through both mounts");
    let beside = bed.config.dir.join("second");
    let second = SecondMount::start(&*bed.backend, &bed.config, &beside)?;
    let there = match &second {
        SecondMount::Refused(words) => {
            bed.refused(words);
            bed.words("second_mount", format!("refused: {words}"));
            return Ok(());
        }
        SecondMount::NoMount if bed.backend.describe().mounts > 0 => {
            return skipped("it cannot be mounted a second time");
        }
        SecondMount::NoMount => bed.root(),
        SecondMount::Mounted(second) => second.root().to_owned(),
    };
    let here = bed.root();
    visibility(bed, &here, &there, notes)?;
    locks(bed, &here, &there)?;
    // Both processes use read-modify-rename without locks. The pauses let each see the other's changes.
    let files = [here.join("both.md"), there.join("both.md")];
    let added = add_lines(bed, &files, 20, WriteMode::Rename, 20_000)?;
    settle(bed, &here, &there, &added)?;
    bed.dismiss_agent();
    second.end();
    Ok(())
}

/// Measures how long a write takes to become visible on the other mount.
fn visibility(bed: &mut TestBed, here: &Path, there: &Path, notes: u32) -> StepResult {
    let mut other = Agent::start(bed.program())?;
    let mut delays = Vec::new();
    let mut partial = 0;
    for note in 0..notes {
        let name = format!("note-{note}.md");
        let text = format!("note {note}\n").repeat(100);
        other.ask(&there.join(&name), &Job::AwaitText(text.clone()))?;
        std::thread::sleep(Duration::from_millis(20));
        bed.perform(here.join(&name), &Job::WriteText(text))?;
        let written = std::time::Instant::now();
        let (answer, agent) = bed.end_of(other)?;
        if let Some(answer) = answer {
            // A note that was not seen has no delay. The failure is recorded.
            if answer.failures.is_empty() {
                delays.push(written.elapsed().as_secs_f64() * 1e3);
            }
            partial += answer.count("partial_reads");
        }
        other = match agent {
            Some(agent) => agent,
            None => Agent::start(bed.program())?,
        };
    }
    delays.sort_by(f64::total_cmp);
    // The median of an even number is the upper of the middle two.
    if let (Some(median), Some(longest)) = (delays.get(delays.len() / 2), delays.last()) {
        bed.fact("visible_ms_median", Fact::Number(*median));
        bed.fact("visible_ms_longest", Fact::Number(*longest));
    }
    bed.count("partial_reads", partial);
    Ok(())
}

/// Whether a lock held on one mount excludes the other mount.
fn locks(bed: &mut TestBed, here: &Path, there: &Path) -> StepResult {
    let mut other = Agent::start(bed.program())?;
    let mine = bed.perform(here.join("lock"), &Job::TryLock)?;
    std::thread::sleep(Duration::from_millis(50));
    other.ask(&there.join("lock"), &Job::TryLock)?;
    let (theirs, other) = bed.end_of(other)?;
    if let (Some(mine), Some(theirs)) = (mine, theirs) {
        let excludes = mine.count("locked") == 1 && theirs.count("locked") == 0;
        let words =
            if excludes { "flock on one excludes the other" } else { "flock on one does not exclude the other" };
        bed.words("locks", words);
    }
    bed.perform(here, &Job::Unlock)?;
    drop(other);
    Ok(())
}

/// Syncs both mounts, then searches the file and its conflict copies for every acknowledged line.
fn settle(bed: &mut TestBed, here: &Path, there: &Path, added: &AppendResult) -> StepResult {
    for _ in 0..2 {
        for root in [here, there] {
            bed.perform(root, &Job::Sync)?;
        }
        // Longer than the interval between two polls.
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let one = read_lines(bed, &here.join("both.md"))?;
    let other = read_lines(bed, &there.join("both.md"))?;
    let (Some(one), Some(other)) = (one, other) else {
        lines_unread(bed);
        return Ok(());
    };
    let lost = &added.acknowledged - &one.present;
    bed.count("updates_lost", lost.len() as u64);
    if one.present != other.present {
        bed.breach(format!(
            "after both were synced, one shows {} lines and the other {}, or others",
            one.present.len(),
            other.present.len()
        ));
    }
    let beside = kept_beside(bed, here)?;
    let mut kept = BTreeSet::new();
    for file in &beside {
        if let Some(lines) = read_lines(bed, file)? {
            kept.extend(lines.present);
        }
    }
    bed.count("kept_beside", beside.len() as u64);
    // An update may also be lost on one host, when an agent process overwrites lines it has not read. No
    // conflict copy holds those.
    let nowhere = lost.difference(&kept).count() as u64;
    bed.count("updates_in_no_version", nowhere);
    let has_hosts = bed.backend.promises().machine_loss.is_some();
    if has_hosts && nowhere > 0 && beside.is_empty() {
        bed.breach(format!("two hosts wrote one file, {nowhere} lines are lost, and no version was kept"));
    }
    Ok(())
}

/// The conflict copies in a directory.
fn kept_beside(bed: &mut TestBed, dir: &Path) -> StepResult<Vec<PathBuf>> {
    let Some(answer) = bed.perform(dir, &Job::List)? else {
        return Ok(Vec::new());
    };
    let names = answer.words("names");
    let kept = names.lines().filter(|name| name.contains("conflict"));
    Ok(kept.map(|name| dir.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_failed_does_not_count_as_lost() {
        let mut answer = JobAnswer::default();
        let not_added = Fact::Words("003-00001 003-00002".to_owned());
        answer.facts.insert("not_added".to_owned(), not_added);
        let added = acknowledged(3, 4, &answer);
        assert_eq!(added, BTreeSet::from(["003-00000".to_owned(), "003-00003".to_owned()]));
        let present = BTreeSet::from(["003-00000".to_owned(), "003-00001".to_owned()]);
        assert_eq!(added.difference(&present).count(), 1);
    }
}
