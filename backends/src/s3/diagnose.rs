//! What is wrong with a server, an address or a key, found out by asking for one key of the bucket.

use std::time::Duration;

use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, S3Action};
use tokio::time::timeout;

use super::config::S3Config;
use super::error::{S3OpenError, one_line};
use super::open::start_runtime;
use super::remote::{Remote, SIGNED_FOR, bucket_at, xml_code};

/// How long somebody who has made a mistake waits to be told which.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds out whether address, keys, clock and bucket are right, as a mount does before anything else: by asking for one
/// key of the bucket. Nothing is written. Each of at most two requests takes no longer than `config.timeout`, nor than
/// five seconds.
///
/// # Errors
/// [`S3OpenError`], which says what is wrong.
pub fn check_access(config: &S3Config) -> Result<(), S3OpenError> {
    let config = S3Config {
        timeout: config.timeout.min(PATIENCE),
        ..config.clone()
    };
    let remote = Remote::new(&config)?;
    let runtime = start_runtime()?;
    let checked = runtime.block_on(remote.check(&config));
    drop(remote);
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    checked
}

impl Remote {
    /// Asks for one key, and finds out what is wrong if that fails.
    pub(super) async fn check(&self, config: &S3Config) -> Result<(), S3OpenError> {
        let Err(error) = self.ask(&self.bucket, config).await else {
            return Ok(());
        };
        // Servers say in many ways that they want to be addressed in the other style, and some do not say it.
        let may_be_style = match &error {
            S3OpenError::Answer { .. }
            | S3OpenError::Credentials { .. }
            | S3OpenError::NoBucket { .. } => true,
            // A name with the bucket in it need not be one.
            S3OpenError::Unreachable { .. } => !config.path_style,
            _ => false,
        };
        if may_be_style
            && let Ok(otherwise) = bucket_at(config, !config.path_style)
            && matches!(
                timeout(PATIENCE, self.ask(&otherwise, config)).await,
                Ok(Ok(()))
            )
        {
            let host = otherwise.base_url().host_str().unwrap_or_default();
            return Err(match config.path_style {
                true => S3OpenError::WantsVirtualHost {
                    endpoint: config.endpoint.clone(),
                    bucket: config.bucket.clone(),
                    host: host.to_owned(),
                },
                false => S3OpenError::NoVirtualHost {
                    endpoint: config.endpoint.clone(),
                    bucket: config.bucket.clone(),
                    host: self
                        .bucket
                        .base_url()
                        .host_str()
                        .unwrap_or_default()
                        .to_owned(),
                },
            });
        }
        Err(error)
    }

    async fn ask(&self, bucket: &Bucket, config: &S3Config) -> Result<(), S3OpenError> {
        let mut list = ListObjectsV2::new(bucket, Some(&self.credentials));
        list.with_max_keys(1);
        let endpoint = config.endpoint.clone();
        let answer = self
            .send("GET", &list.sign(SIGNED_FOR), &[], String::new())
            .await;
        let (status, body) = answer.map_err(|error| {
            let reason = one_line(&error);
            if reason.contains("certificate") || reason.contains("UnknownIssuer") {
                S3OpenError::Certificate {
                    endpoint: endpoint.clone(),
                    reason,
                }
            } else {
                S3OpenError::unreachable(&endpoint, reason)
            }
        })?;
        // Who does not know the bucket's name as part of the server's may list buckets instead.
        let is_listing =
            body.contains("<ListBucketResult") && ListObjectsV2::parse_response(&body).is_ok();
        if status == 200 && is_listing {
            return Ok(());
        }
        let code = xml_code(&body);
        Err(match code.as_deref() {
            Some("NoSuchBucket") => S3OpenError::NoBucket {
                endpoint,
                bucket: config.bucket.clone(),
            },
            Some("RequestTimeTooSkewed") => S3OpenError::Clock { endpoint },
            Some(code) if status == 403 || status == 401 || code.contains("AccessKey") => {
                S3OpenError::Credentials {
                    endpoint,
                    source_name: config.access_key.source.clone(),
                    bucket: config.bucket.clone(),
                    code: code.to_owned(),
                }
            }
            code => S3OpenError::Answer {
                endpoint,
                status,
                reason: code.map_or_else(
                    || "not what an S3 server says: is this its S3 port?".to_owned(),
                    str::to_owned,
                ),
            },
        })
    }
}
