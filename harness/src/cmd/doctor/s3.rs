//! The S3 part of `ctxbench doctor`: names the server that a run would use. Sends the first request of a mount
//! to the server that the environment names, if any, and writes nothing there.

use backends::s3::{S3Config, check_access};
use backends::s3_service::{ENDPOINT, Wanted};
use servers::ServerKind;

use crate::cmd::s3::Bucket;

/// Prints the lines of the server that a run, or a mount without `--endpoint`, would use.
///
/// # Errors
/// Why the server at [`ENDPOINT`] cannot be used, in one line.
pub fn print_server() -> Result<(), String> {
    match Wanted::default_here() {
        Wanted::Given => print_given(),
        Wanted::Started(kind) => {
            println!("s3        {}, started by each run: {}", kind, why(kind));
            println!("s3        {ENDPOINT} is not set; a mount without --endpoint means AWS");
            Ok(())
        }
    }
}

/// Why a run would start this server.
fn why(kind: ServerKind) -> String {
    match (kind, ServerKind::Minio.find()) {
        (ServerKind::Minio, Ok(found)) => {
            let program = found.program().map(|program| program.display().to_string());
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
    // The request is the same for every agent.
    let bucket = Bucket::of_environment("doctor");
    let checked = match bucket.config(None) {
        Ok(config) => {
            print_config(&config);
            check_access(&config).map_err(|error| error.to_string())
        }
        Err(error) => {
            let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
            println!("s3        {endpoint} (from {ENDPOINT})");
            Err(format!("{error:#}"))
        }
    };
    match checked {
        Ok(()) => {
            println!(
                "ok        S3 server: it answers, takes the keys, agrees on the time, and has the bucket"
            );
            println!(
                "s3        may the keys write there, and are conditions of writes honoured? A mount tries that: it has to write to find out"
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

fn print_config(config: &S3Config) {
    println!("s3        {} (from {ENDPOINT})", config.endpoint);
    println!(
        "s3        region {}, bucket {} in the {}",
        config.region,
        config.bucket,
        if config.path_style {
            "path (path style)"
        } else {
            "server's name (virtual host)"
        }
    );
    println!("s3        credentials from {}", config.access_key.source);
}

/// Formats an error and its fix in one line.
fn in_a_line(error: &str) -> String {
    match error.split_once("\n  fix: ") {
        Some((reason, fix)) => format!("{reason} (fix: {fix})"),
        None => error.to_owned(),
    }
}
