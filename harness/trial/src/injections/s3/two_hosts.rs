//! Two hosts change the same files while one of them has no connection to the bucket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rundir::faults::Fact;

use super::super::super::agent::{FileSeries, Job};
use super::super::super::bed::{StepResult, TestBed, infra};
use super::world::{BucketWorld, names, recover, sync, whole, write};

/// Bytes of each file.
const BYTES: usize = 700;

/// Name of the file to which both hosts append.
const APPENDED: &str = "appended";

/// Both hosts must show both versions of each file afterwards, and all lines of a file to which both appended.
pub fn conflict(bed: &mut TestBed, world: &mut BucketWorld, files: u64) -> StepResult {
    bed.open()?;
    let base = FileSeries::new("shared", files, BYTES);
    write(bed, &base)?;
    write_text(bed, bed.root(), "begun\n")?;
    sync(bed, bed.root())?;
    let elsewhere = world.elsewhere(bed)?;
    let awaited = whole(bed, &elsewhere, &Job::AwaitSeries(base.clone()))?;
    if awaited.count("awaited") != files {
        return infra("the other host did not see the files");
    }
    world.partition(true)?;
    let (ours, theirs) = (base.version(2), base.version(3));
    write(bed, &ours)?;
    whole(bed, &elsewhere, &Job::WriteSeries(theirs.clone()))?;
    write_text(bed, bed.root(), "begun\nours 1\nours 2\n")?;
    write_text(bed, elsewhere.clone(), "begun\ntheirs 1\ntheirs 2\n")?;
    sync(bed, elsewhere.clone())?;
    if bed.succeeds(bed.root(), &Job::Sync)? {
        return infra("the host was not cut off");
    }
    world.partition(false)?;
    bed.injected(format!("{files} files were changed on two hosts while one of them was cut off"));
    bed.label("simulated by a proxy: no packet was dropped");
    if !recover(bed)? {
        return Ok(());
    }
    // Conflict files are uploaded with the next commit. The other host polls every second.
    sync(bed, bed.root())?;
    std::thread::sleep(Duration::from_secs(3));
    for (host, dir) in [("here", bed.root()), ("there", elsewhere)] {
        let kept = kept(bed, &ours, &dir)?;
        bed.count(&format!("kept_versions_{host}"), kept);
        if kept < files {
            bed.breach(format!("{} of {files} versions of the host that was cut off are missing {host}", files - kept));
        }
        let read = bed.perform(&dir, &Job::ReadSeries(theirs.clone()))?;
        if read.is_none_or(|answer| answer.count("right") != files) {
            bed.breach(format!("the first committed versions are not under their names {host}"));
        }
        let log = whole(bed, dir.join(APPENDED), &Job::ReadAny)?;
        let read = log.facts.get("text");
        let both = Fact::Words("begun\ntheirs 1\ntheirs 2\nours 1\nours 2\n".to_owned());
        if read != Some(&both) {
            bed.breach(format!("not all lines that both appended are in the file {host}: {read:?}"));
        }
    }
    let counters = bed.counters();
    let conflicts = counters.and_then(|counters| counters.store.get("s3_conflicts").copied());
    let conflicts = conflicts.unwrap_or(0);
    bed.count("conflicts_detected", conflicts);
    if conflicts != files {
        bed.breach(format!("{conflicts} conflicts were detected of {files}"));
    }
    Ok(())
}

/// Writes the file to which both hosts append.
fn write_text(bed: &mut TestBed, dir: PathBuf, text: &str) -> StepResult {
    let job = Job::WriteText(text.to_owned());
    whole(bed, dir.join(APPENDED), &job).map(drop)
}

/// How many conflict files hold this host's content.
fn kept(bed: &mut TestBed, ours: &FileSeries, dir: &Path) -> StepResult<u64> {
    let names = names(bed, dir)?;
    let mut kept = 0;
    for number in 0..ours.files {
        let start = format!("{}-{number}.conflict-main-", ours.name);
        let Some(name) = names.iter().find(|name| name.starts_with(&start)) else {
            continue;
        };
        let content = ours.content(number);
        let read = whole(bed, dir.join(name), &Job::ReadAny)?;
        let begins = read.words("text");
        let is_ours =
            !begins.is_empty() && content.starts_with(begins.as_bytes()) && read.count("bytes") == content.len() as u64;
        kept += u64::from(is_ours);
    }
    Ok(kept)
}
