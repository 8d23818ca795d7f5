//! Faults of the S3 server and of the connections to it.

mod outage;
mod single;
mod two_hosts;
mod world;

use servers::RequestFault;
use workloads::fault::S3Fault;

use super::super::bed::{StepResult, TestBed};
use world::BucketWorld;

/// Bytes of a file whose content is an object of its own: a poll does not bring it, only a read does.
const BLOB: usize = 70_000;

/// Runs the scenario of one S3 fault, and checks which keys the mounts wrote.
pub fn run(bed: &mut TestBed, fault: S3Fault) -> StepResult {
    if matches!(fault, S3Fault::Outage { .. }) {
        outage::lengthen_limits(bed);
    }
    let options: &[&str] = match fault {
        S3Fault::PartitionInSync => &outage::ONE_COMMIT,
        _ => &[],
    };
    let mut world = BucketWorld::start(bed, options)?;
    let world = &mut world;
    match fault {
        S3Fault::Outage { cause, seconds, long_seconds, files } => {
            let seconds = bed.seconds(seconds, long_seconds);
            outage::outage(bed, world, cause, seconds, files)
        }
        S3Fault::PartitionInSync => outage::partition_in_sync(bed, world),
        S3Fault::Emptied => outage::emptied(bed, world),
        S3Fault::Flaky { how } => single::flaky(bed, world, how),
        S3Fault::Slow { rtt_ms } => single::slow(bed, world, rtt_ms),
        S3Fault::BadAnswer { how } => single::bad_answer(bed, world, how),
        S3Fault::DamagedUpload => single::damaged_upload(bed, world),
        S3Fault::StaleList => single::stale_list(bed, world),
        S3Fault::Conflict { files } => two_hosts::conflict(bed, world, files),
    }?;
    world.check_keys(bed)
}

/// An answer with this status and error code, in place of the server's.
fn refusal(status: u16, code: &str) -> RequestFault {
    RequestFault::Refuse { status, code: code.to_owned(), retry_after: None }
}
