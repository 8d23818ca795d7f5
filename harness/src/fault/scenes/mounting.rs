//! Mounted twice, unmounted while in use.

use std::process::Command;
use std::time::{Duration, Instant};

use backends::fuse::connection::{end, mount_at};
use backends::promise::Acknowledgement;
use reports::faults::{Audit, Fact, ORDERLY_END, SeenKind};
use rustix::process::Signal;

use super::super::agent::Task;
use super::super::check::check;
use super::super::second::{Second, SecondMount};
use super::super::stage::{Played, Spoiled, Stage};

/// How long a daemon that is told to end may take.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// A second mount of the store, and then one on the directory that is mounted already.
pub fn twice(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.fill()?;
    stage.injected("a second mount of the same store elsewhere, then one on the same directory");
    let beside = stage.site.dir.join("second");
    let second = SecondMount::start(&*stage.backend, &stage.site, &beside)?;
    match &second {
        Second::NoMount => {
            return Err(Spoiled::Skipped(
                "it cannot be mounted a second time".into(),
            ));
        }
        Second::Refused(words) => {
            stage.fact("same_store", Fact::Words(format!("refused: {words}")));
            stage.saw("mount", SeenKind::Refusal, None, words);
            if words.is_empty() {
                stage.breach("the second mount was refused without a word");
            }
        }
        Second::Mounted(second) => {
            stage.fact("same_store", Fact::Words("mounted a second time".into()));
            let task = Task::ReadRecords {
                root: second.root().to_owned(),
                seed: stage.seed,
            };
            // Both have to agree: what the first has acknowledged, the second must show, but of a bucket only what is there.
            let promised = stage.backend.promises().machine_loss;
            let promised = promised.or(Some(Acknowledgement::Write));
            let audit = match stage.perform(&task)? {
                None => Audit::unknown("reading the records hung"),
                Some(answer) => match answer.failures.first() {
                    Some(failure) => Audit::unknown(format!("{}: {}", failure.call, failure.text)),
                    None => check(&stage.history, &answer.found, promised),
                },
            };
            stage
                .outcome
                .audits
                .insert("second-mount".to_owned(), audit);
        }
    }
    stage.dismiss_agent();
    drop(second);
    on_the_same_directory(stage)?;
    stage.fill_again()?;
    stage.audit()
}

/// Our own command, on the directory that is mounted: it must be refused, and leave the mount alone.
fn on_the_same_directory(stage: &mut Stage) -> Played {
    let mount = stage.mount_point();
    let mut command = Command::new(stage.program());
    command
        .args(["mount", "memory"])
        .arg(&mount)
        .arg("--until-stdin-ends");
    let log = stage.site.dir.join("same-directory.log");
    match SecondMount::run(command, mount, &log, END_PATIENCE)? {
        Second::Mounted(over) => {
            stage.breach("a directory that is a mount was mounted over");
            stage.fact("same_directory", Fact::Words("mounted over".to_owned()));
            drop(over);
        }
        Second::Refused(words) if words.is_empty() => {
            stage.breach(
                "a second mount on the same directory was refused without a word, or took too long",
            );
        }
        Second::Refused(words) => {
            stage.fact("same_directory", Fact::Words(format!("refused: {words}")));
            stage.saw("mount", SeenKind::Refusal, None, &words);
        }
        Second::NoMount => {}
    }
    Ok(())
}

/// Unmounted while a program has a file open, then the daemon is told to end.
pub fn unmount_in_use(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.fill()?;
    let task = stage.write_task(1);
    let held = stage.perform(&Task::WriteAndHold(task))?;
    if held.is_none_or(|answer| !answer.failures.is_empty()) {
        return Err(Spoiled::Infra("no file could be held open".into()));
    }
    stage.injected("an unmount while a file is open, then SIGTERM to the daemon");
    let mount = stage.mount_point();
    match end(&mount) {
        Ok(()) => stage.breach("a mount in use was unmounted as if it were not"),
        Err(error) => stage.saw(
            "unmount",
            SeenKind::Refusal,
            error.raw_os_error(),
            &error.to_string(),
        ),
    }
    let started = Instant::now();
    stage.signal_daemon(Signal::TERM)?;
    // As long as the file is open, the daemon may wait for it.
    std::thread::sleep(Duration::from_millis(500));
    stage.perform(&Task::SyncHeld)?;
    stage.dismiss_agent();
    while stage.workspace.is_some() && stage.obituary().is_none() {
        if started.elapsed() > END_PATIENCE {
            stage.breach("the daemon did not end after SIGTERM");
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    stage.fact(
        "daemon_ended_ms",
        Fact::Count(started.elapsed().as_millis() as u64),
    );
    if mount_at(&mount)?.is_some() {
        stage.breach("the mount is still there after the daemon has ended");
    }
    stage.read_acknowledgements()?;
    stage.come_back()?;
    stage.audit_as(ORDERLY_END, Some(Acknowledgement::Write))
}
