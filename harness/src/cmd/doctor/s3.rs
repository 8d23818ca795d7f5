//! The S3 part of `ctxbench doctor`: names the server that a run would use, and tries what a mount needs of the server
//! that the environment names, if any.

use std::time::Duration;

use arms::services::s3::{ENDPOINT, Wanted};
use inputs::border;
use s3::bucket::S3OpenError;
use s3::checkout::Checkout;
use s3::config::S3Config;
use s3::directory::is_directory;
use s3::session::{Broken, SessionError};
use s3_store::BucketOptions;
use servers::ServerKind;

use crate::cmd::s3::Remote;

/// The agent whose first commit the doctor creates, to find out whether the server honours preconditions.
const AGENT: &str = "ctxbench-doctor";

/// Time limit of one request.
const LIMIT: Duration = Duration::from_secs(5);

/// Prints the lines of the server that a run, or a mount without `--endpoint`, would use.
/// The error says in one line why the server at [`ENDPOINT`] cannot be used.
pub fn print_server() -> Result<(), String> {
    match Wanted::default_here() {
        Wanted::Given => print_given(),
        Wanted::Started(kind) => {
            println!("s3        {}, started by each run: {}", kind, why(kind));
            println!("s3        {ENDPOINT} is not set; a mount without --endpoint uses AWS");
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

fn print_given() -> Result<(), String> {
    let checked = match BucketOptions::of_environment(AGENT).config() {
        Ok(config) => {
            print_config(&config);
            check(&config).map(|()| is_directory(&config.endpoint))
        }
        Err(error) => {
            let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
            println!("s3        {endpoint} (from {ENDPOINT})");
            Err(format!("{error:#}"))
        }
    };
    match checked {
        Ok(true) => {
            println!("ok        S3 server: none is needed; one of several hosts creates an object in the directory");
            Ok(())
        }
        Ok(false) => {
            println!(
                "ok        S3 server: it answers, accepts the access key, agrees on the time, has the bucket, and honours If-None-Match"
            );
            Ok(())
        }
        Err(error) => {
            let reason = in_a_line(&error);
            println!("MISSING   S3 server: {reason}");
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
            Err(SessionError::Broken(Broken::Unconditional)) => Ok(false),
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

fn print_config(config: &S3Config) {
    println!("s3        {} (from {ENDPOINT})", config.endpoint);
    if is_directory(&config.endpoint) {
        println!("s3        bucket {}, a directory in it; no access key is needed", config.bucket);
        return;
    }
    println!(
        "s3        region {}, bucket {} in the {}",
        config.region,
        config.bucket,
        if config.path_style { "path (path style)" } else { "server's name (virtual host)" }
    );
    println!("s3        access key from {}", config.credentials.source());
}

/// Formats an error and its fix in one line.
fn in_a_line(error: &str) -> String {
    match error.split_once("\n  fix: ") {
        Some((reason, fix)) => format!("{reason} (fix: {fix})"),
        None => error.to_owned(),
    }
}
