//! The S3 servers that a run starts, and the delay proxy and fault proxy before them.
//!
//! [`start`] starts a server on a loopback port with a bucket and its own credentials; [`Server::stop`]
//! stops it. File systems on top of S3 live elsewhere.

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
