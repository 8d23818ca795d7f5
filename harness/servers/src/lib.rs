//! The S3 servers that a run starts, and the delay and the faults that are put before them.
//!
//! [`start`] brings one up on a loopback port, with a bucket in it and credentials of its own, and
//! [`Server::stop`] takes it down again. What talks to a server as a file system is not here.

mod access;
mod bucket;
mod child;
mod embedded;
mod faults;
mod kind;
mod launch;
mod proxy;
mod running;

pub use access::{Access, REGION};
pub use bucket::{BUCKET, BucketError, create_bucket};
pub use child::{ChildError, exec_bound_to_parent};
pub use embedded::{Embedded, Quirk};
pub use faults::{Answered, Fault, FaultProxy, Fired, Operation, Rule, Seen, When};
pub use kind::{Found, NotFound, ServerKind, targets};
pub use proxy::Proxy;
pub use running::{Announcement, Options, Server, StartError, start};
