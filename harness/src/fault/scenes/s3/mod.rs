//! The S3 server, or the way to it, fails.

mod order;
mod outage;
mod single;
mod two_hosts;
mod world;

use servers::{Fault, Rule};
use workloads::fault::S3Fault;

use super::super::agent::Series;
use super::super::stage::{Played, Stage};

/// Plays one of them.
pub fn play(stage: &mut Stage, fault: S3Fault) -> Played {
    match fault {
        S3Fault::Outage {
            cause,
            seconds,
            long_seconds,
            files,
        } => {
            let seconds = match stage.is_long {
                true => long_seconds,
                false => seconds,
            };
            outage::outage(stage, cause, seconds, files)
        }
        S3Fault::PartitionInSync => outage::partition_in_sync(stage),
        S3Fault::Emptied => outage::emptied(stage),
        S3Fault::Flaky { how } => single::flaky(stage, how),
        S3Fault::Slow { rtt_ms } => single::slow(stage, rtt_ms),
        S3Fault::BadAnswer { how } => single::bad_answer(stage, how),
        S3Fault::DamagedUpload => single::damaged_upload(stage),
        S3Fault::StaleList => single::stale_list(stage),
        S3Fault::Conflict { files } => two_hosts::conflict(stage, files),
    }
}

/// Every request is refused so.
fn refuse(status: u16, code: &str) -> Rule {
    Rule::always(Fault::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    })
}

/// Files in the stage's mount.
fn series(stage: &Stage, name: &str, files: u64, bytes: usize) -> Series {
    Series {
        dir: stage.root(),
        name: name.to_owned(),
        first: 0,
        files,
        bytes,
        version: 1,
    }
}
