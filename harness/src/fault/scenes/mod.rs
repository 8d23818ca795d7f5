//! What each injection does: one function each, on a stage.

mod client;
mod crash_loop;
mod daemon;
mod database;
mod llm;
mod mounting;
mod power_cut;
mod s3;
mod sharing;
mod stopped;
mod storage;

use workloads::fault::{Injection, Moment};

use super::agent::ClientTask;
use super::stage::{Played, Stage};

/// Plays the stage's scenario.
pub fn play(stage: &mut Stage) -> Played {
    let inside = |stage: &Stage, name: &str| stage.dir().join(name);
    match stage.scenario.injection.clone() {
        Injection::Nothing => daemon::nothing(stage),
        Injection::KillDaemon => {
            let when = stage.scenario.when.unwrap_or(Moment::Idle);
            daemon::kill(stage, when)
        }
        Injection::StopDaemon {
            seconds,
            long_seconds,
        } => stopped::stop(stage, seconds, long_seconds),
        Injection::PanicDaemon => stopped::panic(stage),
        Injection::MountTwice => mounting::twice(stage),
        Injection::UnmountInUse => mounting::unmount_in_use(stage),
        Injection::CrashLoop { kills } => crash_loop::play(stage, kills),
        Injection::FillDisk { mib } => storage::full(stage, mib),
        Injection::FillQuota { mib } => storage::quota(stage, mib),
        Injection::CutPower { mib, cuts } => power_cut::play(stage, mib, cuts),
        Injection::RemountReadOnly => storage::read_only(stage),
        Injection::LockDatabase { seconds } => database::lock(stage, seconds),
        Injection::TruncateDatabase => database::truncate(stage),
        Injection::FlipBits { bits } => database::flip(stage, bits),
        Injection::NewerDatabase => database::newer(stage),
        Injection::RemoveLog => database::remove_log(stage),
        Injection::ManyWriters {
            processes,
            times,
            mode,
        } => sharing::writers(stage, processes, times, mode),
        Injection::TwoMounts { notes } => sharing::two_mounts(stage, notes),
        Injection::KillClient => client::killed(stage),
        Injection::OpenMany { files } => {
            stage.open()?;
            let dir = inside(stage, "open");
            let what = format!("{files} files open at once");
            client::ask(stage, what, ClientTask::OpenMany { dir, files }).map(drop)
        }
        Injection::ManyFiles { files } => {
            stage.open()?;
            let dir = inside(stage, "many");
            let what = format!("{files} files in one directory");
            client::ask(stage, what, ClientTask::ManyFiles { dir, files }).map(drop)
        }
        Injection::LargeFile {
            mib,
            written_mib,
            long_written_mib,
        } => {
            stage.open()?;
            let file = inside(stage, "large");
            let written_mib = match stage.is_long {
                true => long_written_mib,
                false => written_mib,
            };
            if written_mib < long_written_mib {
                let label = format!("shortened: {written_mib} of {mib} MiB are written");
                stage.outcome.label = Some(label);
            }
            let what = format!("a file of {mib} MiB, {written_mib} of them written");
            let task = ClientTask::LargeFile {
                file,
                mib,
                written_mib,
            };
            client::ask(stage, what, task).map(drop)
        }
        Injection::OddNames => {
            stage.open()?;
            let dir = inside(stage, "odd");
            let what = "names that programs trip over".to_owned();
            client::ask(stage, what, ClientTask::OddNames { dir }).map(drop)
        }
        Injection::DeepPath { depth } => {
            stage.open()?;
            let dir = inside(stage, "deep");
            let what = format!("{depth} directories within one another");
            client::ask(stage, what, ClientTask::DeepPath { dir, depth }).map(drop)
        }
        Injection::S3(fault) => s3::play(stage, fault),
        Injection::Llm(fault) => llm::play(stage, fault),
        Injection::RemoveTree => client::removed(stage),
    }
}
