//! Checking a bucket: is every object of an agent's what it says it is?

use std::collections::BTreeSet;

use super::cache::Manifest;
use super::config::S3Config;
use super::layout::{self, Layout};
use super::object::{self, Meta};
use super::open::check_seal;
use super::remote::{Remote, RemoteError, S3OpenError};
use super::seal::Seal;

/// What was found in an agent's part of a bucket.
#[derive(Debug, Default)]
pub struct CheckedBucket {
    /// Objects looked at.
    pub objects: u64,
    /// Objects that nothing of ours wrote; they are readable.
    pub foreign: Vec<String>,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

/// Reads every object of an agent's and holds it against what it says of itself. Nothing is changed.
///
/// # Errors
/// If the bucket cannot be read.
pub fn check(config: &S3Config) -> Result<CheckedBucket, S3OpenError> {
    let remote = Remote::new(config)?;
    let layout = Layout::new(&config.prefix, &config.agent, &config.writer);
    let seal = config.seal.as_ref().map(Seal::new);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| S3OpenError::Cache(format!("starting threads: {error}")))?;
    runtime.block_on(async {
        remote.check(config).await?;
        if config.seal.is_some() {
            check_seal(&remote, &layout, seal.as_ref(), config, None).await?;
        }
        check_objects(&remote, &layout, seal.as_ref())
            .await
            .map_err(|error| S3OpenError::Answer {
                endpoint: config.endpoint.clone(),
                status: 0,
                reason: error.to_string(),
            })
    })
}

async fn check_objects(
    remote: &Remote,
    layout: &Layout,
    seal: Option<&Seal>,
) -> Result<CheckedBucket, RemoteError> {
    let mut found = CheckedBucket::default();
    let listed = remote.list(layout.files()).await?;
    let keys: BTreeSet<&str> = listed.iter().map(|object| object.key.as_str()).collect();
    for object in &listed {
        found.objects += 1;
        let key = object.key.as_str();
        let path = key.strip_prefix(layout.files()).unwrap_or(key);
        let is_path = path
            .split('/')
            .all(|component| layout::name(layout::without_number(component), seal).is_some());
        if !is_path {
            let problem = "is no path: it is not shown in a mount";
            found.problems.push(format!("{key} {problem}"));
            continue;
        }
        let below = format!("{key}/");
        if keys
            .range(below.as_str()..)
            .next()
            .is_some_and(|next| next.starts_with(&below))
        {
            let problem =
                "is an object, and a directory of others: only one of them is shown in a mount";
            found.problems.push(format!("{key} {problem}"));
        }
        let fetched = match remote.get(key).await {
            Ok(fetched) => fetched,
            // Deleted since it was listed.
            Err(RemoteError::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        let Some(meta) = Meta::from_attributes(&fetched.attributes, seal) else {
            if seal.is_some() {
                let problem = "was not sealed with this key";
                found.problems.push(format!("{key} {problem}"));
            } else if object::parse_front_matter(&fetched.body).is_some() {
                let problem = "has front matter, but no metadata: another tool has written it";
                found.problems.push(format!("{key} {problem}"));
            } else {
                found.foreign.push(key.to_owned());
            }
            continue;
        };
        match object::open(&fetched.body, seal) {
            Ok(plain) => {
                let content = plain.get(meta.header as usize..).unwrap_or_default();
                if meta.kind() == crate::store::Kind::File
                    && object::checksum(content) != meta.sha256
                {
                    let problem =
                        "has a wrong checksum: it was changed by another tool, or damaged";
                    found.problems.push(format!("{key} {problem}"));
                }
            }
            Err(error) => found.problems.push(format!("{key}: {error}")),
        }
    }
    match remote.get(&layout.manifest()).await {
        Ok(fetched) => {
            let plain = object::open(&fetched.body, seal);
            let manifest = plain.map(|plain| serde_json::from_slice::<Manifest>(&plain));
            if !matches!(manifest, Ok(Ok(_))) {
                let problem = "cannot be read: empty and renamed directories are not shown right";
                found
                    .problems
                    .push(format!("{} {problem}", layout.manifest()));
            }
        }
        Err(RemoteError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}
