//! Two hosts change the same files while one of them has no connection to the bucket.

use std::path::PathBuf;
use std::time::Duration;

use rundir::faults::Fact;

use super::super::super::agent::{RemoteTask, Series, Task};
use super::super::super::bed::{Injected, TestBed, infra};
use super::series;
use super::world::{World, names, recover, sync, whole};

/// Bytes of each file.
const BYTES: usize = 700;

/// Name of the file to which both hosts append.
const APPENDED: &str = "appended";

/// Both hosts must show both versions of each file afterwards, and all lines of a file to which both appended.
pub fn conflict(bed: &mut TestBed, world: &mut World, files: u64) -> Injected {
    bed.open()?;
    let base = series(bed, "shared", files, BYTES);
    whole(bed, RemoteTask::Write(base.clone()))?;
    write_text(bed, bed.root(), "begun\n")?;
    sync(bed, bed.root())?;
    let elsewhere = world.elsewhere(bed)?;
    let awaited = whole(
        bed,
        RemoteTask::Await(Series {
            dir: elsewhere.clone(),
            ..base.clone()
        }),
    )?;
    if awaited.facts.get("awaited") != Some(&Fact::Count(files)) {
        return infra("the other host did not see the files");
    }
    world.partition(true)?;
    let ours = Series {
        version: 2,
        ..base.clone()
    };
    let theirs = Series {
        version: 3,
        dir: elsewhere.clone(),
        ..base
    };
    whole(bed, RemoteTask::Write(ours.clone()))?;
    whole(bed, RemoteTask::Write(theirs.clone()))?;
    write_text(bed, bed.root(), "begun\nours 1\nours 2\n")?;
    write_text(bed, elsewhere.clone(), "begun\ntheirs 1\ntheirs 2\n")?;
    sync(bed, elsewhere.clone())?;
    let root = bed.root();
    let cut_off = bed.perform(&Task::Sync { root })?;
    if cut_off.is_some_and(|answer| answer.failures.is_empty()) {
        return infra("the host was not cut off");
    }
    world.partition(false)?;
    bed.injected(format!(
        "{files} files were changed on two hosts while one of them was cut off"
    ));
    bed.outcome.label = Some("simulated by a proxy: no packet was dropped".to_owned());
    if !recover(bed)? {
        return Ok(());
    }
    // Conflict files are uploaded with the next commit. The other host polls every second.
    sync(bed, bed.root())?;
    std::thread::sleep(Duration::from_secs(3));
    for (host, dir) in [("here", bed.root()), ("there", elsewhere)] {
        let kept = kept(bed, &ours, &dir)?;
        bed.fact(&format!("kept_versions_{host}"), Fact::Count(kept));
        if kept < files {
            bed.breach(format!(
                "{} of {files} versions of the host that was cut off are missing {host}",
                files - kept
            ));
        }
        let winner_dir = dir.clone();
        let winner = Series {
            dir,
            ..theirs.clone()
        };
        let read = bed.perform(&Task::Remote(RemoteTask::Read(winner)))?;
        let right = read.and_then(|answer| answer.facts.get("right").cloned());
        if right != Some(Fact::Count(files)) {
            bed.breach(format!(
                "the first committed versions are not under their names {host}"
            ));
        }
        let log = RemoteTask::ReadAny {
            file: winner_dir.join(APPENDED),
        };
        let read = whole(bed, log)?.facts.remove("text");
        let both = Fact::Words("begun\ntheirs 1\ntheirs 2\nours 1\nours 2\n".to_owned());
        if read.as_ref() != Some(&both) {
            bed.breach(format!(
                "not all lines that both appended are in the file {host}: {read:?}"
            ));
        }
    }
    let conflicts = bed
        .counters()
        .and_then(|counters| counters.store.get("s3_conflicts").copied());
    bed.fact("conflicts_detected", Fact::Count(conflicts.unwrap_or(0)));
    if conflicts.unwrap_or(0) != files {
        bed.breach(format!(
            "{} conflicts were detected of {files}",
            conflicts.unwrap_or(0)
        ));
    }
    Ok(())
}

/// Writes the file to which both hosts append.
fn write_text(bed: &mut TestBed, dir: PathBuf, text: &str) -> Injected {
    let (file, text) = (dir.join(APPENDED), text.to_owned());
    whole(bed, RemoteTask::WriteText { file, text }).map(drop)
}

/// How many conflict files hold this host's content.
fn kept(bed: &mut TestBed, ours: &Series, dir: &std::path::Path) -> Injected<u64> {
    let names = names(bed, dir.to_owned())?;
    let mut kept = 0;
    for number in 0..ours.files {
        let start = format!("{}-{number}.conflict-main-", ours.name);
        let Some(name) = names.iter().find(|name| name.starts_with(&start)) else {
            continue;
        };
        let content = ours.content(number);
        let read = whole(
            bed,
            RemoteTask::ReadAny {
                file: dir.join(name),
            },
        )?;
        let wanted: String = String::from_utf8_lossy(&content)
            .chars()
            .take(200)
            .collect();
        let is_ours = read.facts.get("text") == Some(&Fact::Words(wanted))
            && read.facts.get("bytes") == Some(&Fact::Count(content.len() as u64));
        kept += u64::from(is_ours);
    }
    Ok(kept)
}
