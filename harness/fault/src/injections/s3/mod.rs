//! Faults of the S3 server and of the connections to it.

mod order;
mod outage;
mod single;
mod two_hosts;
mod world;

use servers::{Fault, Rule};
use workloads::fault::S3Fault;

use super::super::agent::Series;
use super::super::bed::{Injected, TestBed};

/// Runs the scenario of one S3 fault.
pub fn play(bed: &mut TestBed, fault: S3Fault) -> Injected {
    match fault {
        S3Fault::Outage {
            cause,
            seconds,
            long_seconds,
            files,
        } => {
            let seconds = match bed.is_long {
                true => long_seconds,
                false => seconds,
            };
            outage::outage(bed, cause, seconds, files)
        }
        S3Fault::PartitionInSync => outage::partition_in_sync(bed),
        S3Fault::Emptied => outage::emptied(bed),
        S3Fault::Flaky { how } => single::flaky(bed, how),
        S3Fault::Slow { rtt_ms } => single::slow(bed, rtt_ms),
        S3Fault::BadAnswer { how } => single::bad_answer(bed, how),
        S3Fault::DamagedUpload => single::damaged_upload(bed),
        S3Fault::StaleList => single::stale_list(bed),
        S3Fault::Conflict { files } => two_hosts::conflict(bed, files),
    }
}

/// A rule that refuses every request with this status and error code.
fn refuse(status: u16, code: &str) -> Rule {
    Rule::always(Fault::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    })
}

/// A series of files in the test bed's mount.
fn series(bed: &TestBed, name: &str, files: u64, bytes: usize) -> Series {
    Series {
        dir: bed.root(),
        name: name.to_owned(),
        first: 0,
        files,
        bytes,
        version: 1,
    }
}
