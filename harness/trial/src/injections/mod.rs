//! The faults: one function each, which runs on a test bed.

mod client;
mod crash_loop;
mod daemon;
mod database;
mod llm;
mod mounting;
pub mod power_cut;
mod s3;
mod sharing;
mod stopped;
mod storage;

use workloads::fault::{Injection, Moment};

use super::agent::Job;
use super::bed::{StepResult, TestBed};

/// Runs the test bed's scenario.
pub fn run(bed: &mut TestBed) -> StepResult {
    match bed.scenario.injection.clone() {
        Injection::Nothing => daemon::nothing(bed),
        Injection::KillDaemon => {
            let when = bed.scenario.when.unwrap_or(Moment::Idle);
            daemon::kill(bed, when)
        }
        Injection::StopDaemon { seconds, long_seconds } => stopped::stop(bed, seconds, long_seconds),
        Injection::PanicDaemon => stopped::panic(bed),
        Injection::MountTwice => mounting::twice(bed),
        Injection::UnmountInUse => mounting::unmount_in_use(bed),
        Injection::CrashLoop { kills } => crash_loop::run(bed, kills),
        Injection::FillDisk { mib } => storage::full(bed, mib),
        Injection::FillQuota { mib } => storage::quota(bed, mib),
        Injection::CutPower { mib, cuts } => power_cut::run(bed, mib, cuts),
        Injection::RemountReadOnly => storage::read_only(bed),
        Injection::LockDatabase { seconds } => database::lock(bed, seconds),
        Injection::TruncateDatabase => database::truncate(bed),
        Injection::FlipBits { bits } => database::flip(bed, bits),
        Injection::NewerDatabase => database::newer(bed),
        Injection::RemoveLog => database::remove_log(bed),
        Injection::ManyWriters { processes, times, mode } => sharing::writers(bed, processes, times, mode),
        Injection::TwoMounts { notes } => sharing::two_mounts(bed, notes),
        Injection::KillClient => client::killed(bed),
        Injection::OpenMany { files } => {
            let what = format!("{files} files open at once");
            client::ask(bed, what, "open", &Job::OpenMany(files))
        }
        Injection::ManyFiles { files } => {
            let what = format!("{files} files in one directory");
            client::ask(bed, what, "many", &Job::ManyFiles(files))
        }
        Injection::LargeFile { mib, written_mib, long_written_mib } => {
            let written_mib = if bed.is_long { long_written_mib } else { written_mib };
            if written_mib < long_written_mib {
                let label = format!("shortened: {written_mib} of {mib} MiB are written");
                bed.label(label);
            }
            let what = format!("a file of {mib} MiB, {written_mib} of them written");
            client::ask(bed, what, "large", &Job::LargeFile { mib, written_mib })
        }
        Injection::OddNames => {
            let what = "names that cause errors in programs".to_owned();
            client::ask(bed, what, "odd", &Job::OddNames)
        }
        Injection::DeepPath { depth } => {
            let what = format!("{depth} directories within one another");
            client::ask(bed, what, "deep", &Job::DeepPath(depth))
        }
        Injection::S3(fault) => s3::run(bed, fault),
        Injection::Llm(fault) => llm::run(bed, fault),
        Injection::RemoveTree => client::removed(bed),
    }
}
