//! A second mount of a store, and an unmount while a file is open.

use std::time::{Duration, Instant};

use arms::promise::Acknowledgement;
use fuse::connection::{end, mount_at};
use processes::wait_until;
use rundir::faults::{AgentEventKind, ORDERLY_END};
use rustix::process::Signal;

use super::super::agent::Job;
use super::super::bed::{StepResult, TestBed, infra, skipped};
use super::super::second_mount::{SecondMount, mount_over};

/// How long a daemon may take to end after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Mounts the store a second time, then another file system on the same directory.
pub fn twice(bed: &mut TestBed) -> StepResult {
    bed.open_and_fill()?;
    bed.injected("a second mount of the same store elsewhere, then one on the same directory");
    let beside = bed.config.dir.join("second");
    let second = SecondMount::start(&*bed.backend, &bed.config, &beside)?;
    match &second {
        SecondMount::NoMount => {
            return skipped("it cannot be mounted a second time");
        }
        SecondMount::Refused(words) => {
            bed.words("same_store", format!("refused: {words}"));
            bed.refused(words);
            if words.is_empty() {
                bed.breach("the second mount was refused without a reason");
            }
        }
        SecondMount::Mounted(second) => {
            bed.words("same_store", "mounted a second time");
            // The second mount must show what the first has acknowledged, or, with a bucket, what is
            // uploaded.
            let promised = bed.backend.promises().machine_loss;
            let promised = promised.or(Some(Acknowledgement::Write));
            let audit = bed.audit_through(second.root().to_owned(), promised)?;
            bed.audited("second-mount", audit);
        }
    }
    bed.dismiss_agent();
    second.end();
    on_the_same_directory(bed)?;
    bed.fill_again()?;
    bed.audit()
}

/// Runs `ctxbench mount` on the mounted directory. It must be refused and leave the mount intact.
fn on_the_same_directory(bed: &mut TestBed) -> StepResult {
    let mount = bed.mount_point();
    let log = bed.config.dir.join("same-directory.log");
    match mount_over(bed.program(), &mount, &log, END_PATIENCE)? {
        None => {
            bed.breach("a directory that is a mount was mounted over");
            bed.words("same_directory", "mounted over");
        }
        Some(words) if words.is_empty() => {
            bed.breach("a second mount on the same directory was refused without a reason, or took too long");
        }
        Some(words) => {
            bed.words("same_directory", format!("refused: {words}"));
            bed.refused(&words);
        }
    }
    Ok(())
}

/// Unmounts while an agent process has a file open, then sends SIGTERM to the daemon.
pub fn unmount_in_use(bed: &mut TestBed) -> StepResult {
    bed.open_and_fill()?;
    if !bed.hold()? {
        return infra("no file could be held open");
    }
    bed.injected("an unmount while a file is open, then SIGTERM to the daemon");
    let mount = bed.mount_point();
    match end(&mount) {
        Ok(()) => bed.breach("a mount in use was unmounted"),
        Err(error) => bed.saw("unmount", AgentEventKind::Refusal, error.raw_os_error(), &error.to_string()),
    }
    let started = Instant::now();
    bed.signal_daemon(Signal::TERM)?;
    // The daemon may wait for the open file.
    std::thread::sleep(Duration::from_millis(500));
    bed.perform(bed.root(), &Job::SyncHeld)?;
    bed.dismiss_agent();
    let has_ended = || bed.workspace.is_none() || bed.exit_reason().is_some();
    let patience = END_PATIENCE.saturating_sub(started.elapsed());
    if !wait_until(patience, Duration::from_millis(10), has_ended) {
        bed.breach("the daemon did not end after SIGTERM");
    }
    bed.count("daemon_ended_ms", started.elapsed().as_millis() as u64);
    if mount_at(&mount)?.is_some() {
        bed.breach("the mount is still there after the daemon has ended");
    }
    bed.read_acknowledgements()?;
    bed.come_back()?;
    bed.audit_as(ORDERLY_END, Some(Acknowledgement::Write))
}
