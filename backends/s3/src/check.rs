//! Diagnoses a server, an address or an access key by asking for one key of the bucket, and verifies a log: everything
//! that can be reached is compared with the digests that the log gives.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use rusty_s3::actions::ListObjectsV2;

use crate::client::{Client, MirrorClient};
use crate::config::{MirrorMode, S3Config};
use crate::directory::Directory;
use crate::history::Result;
use crate::mirror::{Origin, files, origin};
use crate::objects::{Fault, Objects};
use crate::reader::{SessionError, Walk, checkpoint, fetch, floors, oldest};
use crate::server::{Server, bucket_address};
use crate::stored::S3OpenError;
use crate::tree::{Chunk, Tree};

/// Time limit of one request: a user with a wrong address waits this long for the error.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Checks address, access key, clock and bucket, by at most two requests, or that a directory can be written. Nothing is
/// left behind.
pub async fn check_access(config: &S3Config) -> Result<(), S3OpenError> {
    let limited = S3Config { timeout: config.timeout.min(CHECK_LIMIT), ..config.clone() };
    if let Some(directory) = Directory::of(&limited)? {
        return directory.check().await;
    }
    let server = Server::new(&limited)?;
    let key = config.credentials.key().await;
    key.map_err(|error| S3OpenError::new(format!("no access key for {}: {error}", config.endpoint), error.fix))?;
    let address = bucket_address(config, config.path_style)?;
    let Err((error, may_be_style)) = ask(&server, &address, config).await else {
        return Ok(());
    };
    if may_be_style
        && let Ok(other) = bucket_address(config, !config.path_style)
        && ask(&server, &other, config).await.is_ok()
    {
        let (place, fix) = if config.path_style {
            ("host name, not in the path", "add --virtual-host")
        } else {
            ("path, not in the host name", "leave out --virtual-host")
        };
        let (endpoint, name) = (&config.endpoint, &config.bucket);
        let reason = format!("{endpoint} needs bucket {name} in the {place}");
        return Err(S3OpenError::new(reason, fix));
    }
    Err(error)
}

/// Asks for one key. An error comes with whether the bucket may belong in the other place of the address.
async fn ask(server: &Server, address: &rusty_s3::Bucket, config: &S3Config) -> Result<(), (S3OpenError, bool)> {
    let (endpoint, name) = (&config.endpoint, &config.bucket);
    let answer = server.ask(address).await.map_err(|error| {
        let (what, fix) = if error.is_untrusted {
            ("has an untrusted certificate", "set SSL_CERT_FILE to the certificate of the authority that signed it")
        } else {
            ("does not answer", "check that the server is running at this address")
        };
        // A host name with the bucket in it need not exist.
        let may_be_style = !error.is_untrusted && !config.path_style;
        let reason = format!("endpoint {endpoint} {what}: {error}");
        (S3OpenError::new(reason, fix), may_be_style)
    })?;
    // A server that does not know the bucket in its host name may list buckets instead.
    let is_listing = std::str::from_utf8(&answer.body)
        .is_ok_and(|body| body.contains("<ListBucketResult") && ListObjectsV2::parse_response(body).is_ok());
    if answer.status == 200 && is_listing {
        return Ok(());
    }
    let (status, code) = (answer.status, answer.code().unwrap_or_default());
    let error = match code {
        "NoSuchBucket" => format!("there is no bucket {name} at {endpoint}"),
        "RequestTimeTooSkewed" => {
            format!("the clocks of this machine and of {endpoint} differ too much for S3")
        }
        _ if matches!(status, 401 | 403) || code.contains("AccessKey") => {
            return Err((S3OpenError::access_key(config, code), true));
        }
        _ => match answer.header("x-amz-bucket-region") {
            Some(region) => format!("bucket {name} of {endpoint} is in region {region}"),
            None => format!("{endpoint} answered {status}: {}", answer.reason()),
        },
    };
    let may_be_style = !matches!(status, 300..=399) && code != "RequestTimeTooSkewed";
    Err((S3OpenError::new(error, answer.fix()), may_be_style))
}

/// Chunks that are read at once; each holds up to 8 MiB in memory.
const AT_ONCE: usize = 4;

/// The result of a check of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Commits that were read.
    pub commits: u64,
    /// Checkpoints that were compared with the commits.
    pub checkpoints: u64,
    /// Files, directories and links in the newest tree.
    pub nodes: u64,
    /// Chunks that were read, each once.
    pub chunks: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Damage, one line each.
    pub problems: Vec<String>,
    /// Differences between the mirror and the newest tree, one line each. They do not count as damage.
    pub notes: Vec<String>,
}

/// Reads everything that can be reached from the oldest kept state to the newest, and compares it with its digests.
/// With a mirror, it is compared with the newest tree. Nothing is written.
/// Fails if a request fails. Damage is reported as a problem in the answer, not as an error.
pub async fn check(log: &Client, mirror: Option<(&MirrorClient, MirrorMode)>) -> Result<CheckReport> {
    let mut found = CheckReport::default();
    let begun = async { Walk::start(log, oldest(&floors(log, Vec::new()).await?)).await };
    let mut walk = match begun.await {
        Ok(walk) => walk,
        Err(SessionError::Broken(broken)) => {
            found.problems.push(broken.to_string());
            return Ok(found);
        }
        Err(error) => return Err(error.into()),
    };
    let checkpoints: BTreeSet<u64> = log.checkpoints().await?.into_iter().collect();
    let mut wanted: BTreeSet<Chunk> = walk.tree.chunks().copied().collect();
    loop {
        let step = match walk.next().await {
            Ok(Some(step)) => step,
            Ok(None) => break,
            Err(SessionError::Broken(broken)) => {
                let reason = "what was committed after it cannot be reached";
                found.problems.push(format!("{broken}; {reason}"));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let number = step.commit.number;
        wanted.extend(step.commit.changes.chunks());
        for (chunk, bytes) in step.inline() {
            wanted.remove(chunk);
            found.chunks += 1;
            found.bytes += u64::from(chunk.length);
            if bytes.is_none() {
                let reason = "an inline file differs from its digest";
                found.problems.push(format!("commit {number}: {reason}"));
            }
        }
        walk.apply(&step);
        found.commits += 1;
        if checkpoints.contains(&number) {
            found.checkpoints += 1;
            let same = match checkpoint(log, number).await {
                Ok(Some((head, tree))) => head.hash == walk.head.hash && tree == walk.tree,
                // Garbage collection removed it meanwhile.
                Ok(None) => true,
                Err(SessionError::Broken(_)) => false,
                Err(error) => return Err(error.into()),
            };
            if !same {
                let problem = format!("checkpoint {number} differs from the commits up to it");
                found.problems.push(problem);
            }
        }
    }
    // Others may commit meanwhile, so only a commit after the next number is after a gap.
    let next = walk.head.number + 1;
    let commits = log.commits().await?;
    if let Some(past) = commits.iter().filter(|it| **it > next).min()
        && !commits.contains(&next)
    {
        let problem = format!(
            "commit {next} is missing, but commit {past} exists: the server lost commits, and a mount that did not notice it committed after the gap"
        );
        found.problems.push(problem);
    }
    found.nodes = walk.tree.count() as u64;
    let fetched = stream::iter(&wanted);
    let fetched = fetched.map(async |chunk| (chunk, fetch(log, chunk).await));
    let mut fetched = fetched.buffer_unordered(AT_ONCE);
    while let Some((chunk, result)) = fetched.next().await {
        match result {
            Ok(bytes) => {
                found.chunks += 1;
                found.bytes += bytes.len() as u64;
            }
            Err(error @ SessionError::Fault(Fault::Unknown(_))) => return Err(error.into()),
            Err(error) => found.problems.push(format!("chunk {:?}: {error}", chunk.hash)),
        }
    }
    if let Some((mirror, mode)) = mirror {
        found.notes = compare_mirror(&walk.tree, mirror, mode).await?;
    }
    Ok(found)
}

async fn compare_mirror(tree: &Tree, mirror: &MirrorClient, mode: MirrorMode) -> Result<Vec<String>> {
    let (mut files, mut notes) = (files(tree, mode), Vec::new());
    for object in mirror.list("").await? {
        let key = &object.key;
        let file = files.remove(key);
        let Some(read) = mirror.get(key).await? else {
            continue;
        };
        let note = match (origin(key, &read.body, &read.metadata), file) {
            (Origin::Foreign { .. }, _) => "was written by another tool (`ctxbench s3 import`)",
            (Origin::Ours(_), None) => "mirrors a removed file",
            (Origin::Ours(digest), Some(file)) if digest == file.digest() => continue,
            (Origin::Ours(_), Some(_)) => "mirrors an earlier version",
        };
        notes.push(format!("{} {note}", mirror.key(key)));
    }
    let missing = files.keys().map(|key| mirror.key(key));
    notes.extend(missing.map(|key| format!("{key} is missing")));
    Ok(notes)
}
