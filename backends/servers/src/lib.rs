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

use std::time::Duration;

pub use access::{REGION, ServerAccess, kept_keys, private_directory};
pub use bucket::{BUCKET, BucketError, create_bucket};
pub use child::{ChildError, bound_to_this_process, exec_bound_to_parent};
pub use embedded::{Embedded, Quirk};
pub use faults::{AnswerStatus, FaultProxy, Operation, RequestFault, Rule, RuleCounts, RuleFrequency, SeenRequest};
pub use kind::{FoundServer, MissingServer, ServerKind};
pub use proxy::Proxy;
pub use running::{Announcement, Server, ServerOptions, StartError, start};

/// Delay before the next accept when no file descriptors are left.
const AFTER_A_FAILED_ACCEPT: Duration = Duration::from_millis(50);
