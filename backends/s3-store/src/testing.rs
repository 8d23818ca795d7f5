//! Mounts for the unit tests of this crate.

use std::time::Duration;

use fuse::store::{Caller, Kind, NewNode, Timestamp};
use s3::config::{MirrorMode, S3Config, Secret, SyncMode};
use s3::credentials::{AccessKey, Credentials};

/// Who mounts.
pub(super) const OWNER: Caller = Caller { uid: 1, gid: 1, now: Timestamp(0) };

/// A new file.
pub(super) const FILE: NewNode<'static> = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: b"" };

/// A memory that is mounted without polls or commits that no call asks for.
pub(super) fn config(endpoint: String, bucket: &str, writer: &str) -> S3Config {
    const NEVER: Duration = Duration::from_secs(3600);
    let key = AccessKey {
        id: "key".to_owned(),
        secret: Secret("secret".to_owned()),
        token: None,
        source: "the test".to_owned(),
    };
    S3Config {
        endpoint,
        region: "us-east-1".to_owned(),
        bucket: bucket.to_owned(),
        prefix: String::new(),
        agent: "alice".to_owned(),
        writer: writer.to_owned(),
        path_style: true,
        credentials: Credentials::Key(key),
        sync: SyncMode::Local,
        poll: NEVER,
        glance: NEVER,
        delay: NEVER,
        timeout: Duration::from_secs(10),
        mirror: MirrorMode::Off,
        seal: None,
    }
}
