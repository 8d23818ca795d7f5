//! Mounted twice, unmounted while in use.

use std::time::{Duration, Instant};

use backends::fuse::connection::{end, mount_at};
use reports::faults::{Fact, KILLED_DAEMON, Return, SeenKind};
use rustix::process::Signal;

use super::super::agent::Task;
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
            stage.perform(&task)?;
        }
    }
    stage.dismiss_agent();
    drop(second);
    on_the_same_directory(stage)?;
    stage.fill_again()?;
    stage.recovered(Return::ByItself, 0, None);
    stage.audit(KILLED_DAEMON)
}

/// Our own command, on the directory that is mounted: it must be refused, and leave the mount alone.
fn on_the_same_directory(stage: &mut Stage) -> Played {
    let output = std::process::Command::new(stage.program())
        .args(["mount", "memory"])
        .arg(stage.site.dir.join("mnt"))
        .stdin(std::process::Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or_default().to_owned();
    if output.status.success() {
        stage.breach("a directory that is a mount was mounted over");
    }
    stage.fact("same_directory", Fact::Words(format!("refused: {said}")));
    stage.saw("mount", SeenKind::Refusal, None, &said);
    Ok(())
}

/// Unmounted while a program has a file open, then the daemon is told to end.
pub fn unmount_in_use(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.fill()?;
    let task = stage.write_task(1);
    stage.perform(&Task::WriteAndHold(task))?;
    stage.injected("an unmount while a file is open, then SIGTERM to the daemon");
    let mount = stage.site.dir.join("mnt");
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
    while stage
        .workspace
        .as_mut()
        .is_some_and(|open| open.obituary().is_none())
    {
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
    stage.audit(KILLED_DAEMON)
}
