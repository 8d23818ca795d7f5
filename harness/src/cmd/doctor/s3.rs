//! The S3 part of `ctxbench doctor`: names the server that a run would use, and tries what a mount needs of the server
//! that the environment names, if any.

use std::time::Duration;

use arms::services::s3::{ENDPOINT, ServerChoice};
use inputs::border;
use s3::bucket::S3OpenError;
use s3::checkout::Checkout;
use s3::config::S3Config;
use s3::directory::is_directory;
use s3::session::{BrokenLog, SessionError};
use s3_store::BucketOptions;
use servers::ServerKind;

use super::Findings;
use crate::cmd::s3::Remote;

/// The agent whose first commit the doctor creates, to find out whether the server honours preconditions.
const AGENT: &str = "ctxbench-doctor";

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds the lines of the server that a run, or a mount without `--endpoint`, would use.
/// The error says in one line why the server at [`ENDPOINT`] cannot be used.
pub(super) fn add_server(found: &mut Findings) -> Result<(), String> {
    match ServerChoice::default_here() {
        ServerChoice::Given => add_given(found),
        ServerChoice::Started(kind) => {
            found.add("s3", format!("{kind}, started by each run: {}", why(kind)));
            found.add("s3", format!("{ENDPOINT} is not set; a mount without --endpoint uses AWS"));
            Ok(())
        }
    }
}

/// Why a run would start this server.
fn why(kind: ServerKind) -> String {
    match (kind, ServerKind::Minio.find()) {
        (ServerKind::Minio, Ok(found)) => {
            let program = found.program().map(border::path);
            format!("it is installed ({})", program.unwrap_or_default())
        }
        (ServerKind::Minio, Err(missing)) => {
            format!("CTXBENCH_REQUIRE_MINIO is set; but {missing}")
        }
        (_, Err(missing)) => missing.to_string(),
        (_, Ok(_)) => "it is part of ctxbench".to_owned(),
    }
}

fn add_given(found: &mut Findings) -> Result<(), String> {
    let checked = match BucketOptions::of_environment(AGENT).config() {
        Ok(config) => {
            add_config(&config, found);
            check(&config).map(|()| is_directory(&config.endpoint))
        }
        Err(error) => {
            let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
            found.add("s3", format!("{endpoint} (from {ENDPOINT})"));
            Err(format!("{error:#}"))
        }
    };
    match checked {
        Ok(true) => {
            found.add("ok", "S3 server: none is needed; one of several hosts creates an object in the directory");
            Ok(())
        }
        Ok(false) => {
            found.add(
                "ok",
                "S3 server: it answers, accepts the access key, agrees on the time, has the bucket, and honours If-None-Match",
            );
            Ok(())
        }
        Err(error) => {
            let reason = in_a_line(&error);
            found.add("MISSING", format!("S3 server: {reason}"));
            Err(reason)
        }
    }
}

/// Makes the first requests of a mount: creates the first commit of a log unless it exists, and tries to create it
/// again.
fn check(config: &S3Config) -> Result<(), String> {
    let config = S3Config { timeout: LIMIT, ..config.clone() };
    let remote = Remote::new(config).map_err(|error| format!("{error:#}"))?;
    let opened = async {
        match Checkout::open(&remote.client, AGENT).await {
            Ok(_) => Ok(true),
            Err(SessionError::Broken(BrokenLog::Unconditional)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    match remote.run(opened) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err("it ignores If-None-Match, so memories on it are mounted read-only (fix: use another S3 server)"
                .to_owned())
        }
        Err(error) if error.is::<S3OpenError>() => Err(error.to_string()),
        Err(error) => Err(format!("it refuses to write: {error:#}")),
    }
}

fn add_config(config: &S3Config, found: &mut Findings) {
    found.add("s3", format!("{} (from {ENDPOINT})", config.endpoint));
    if is_directory(&config.endpoint) {
        found.add("s3", format!("bucket {}, a directory in it; no access key is needed", config.bucket));
        return;
    }
    let place = if config.path_style { "path (path style)" } else { "server's name (virtual host)" };
    found.add("s3", format!("region {}, bucket {} in the {place}", config.region, config.bucket));
    found.add("s3", format!("access key from {}", config.credentials.source()));
}

/// Formats an error and its fix in one line.
fn in_a_line(error: &str) -> String {
    match error.split_once("\n  fix: ") {
        Some((reason, fix)) => format!("{reason} (fix: {fix})"),
        None => error.to_owned(),
    }
}
