//! How each server is started: its arguments, its environment, its files.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Access, ServerKind};

/// How a server is started, and how it is ended.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) command: Command,
    /// How long it may take to end when it is asked to; `None` if it is killed at once.
    pub(crate) grace: Option<Duration>,
    /// What it leaves outside of its directory.
    pub(crate) leftovers: Vec<PathBuf>,
}

/// How long a server may take to end when it is asked to; `None` if it is not worth asking.
fn grace(kind: ServerKind) -> Option<Duration> {
    match kind {
        // It takes 25 seconds, and what it was told is in its files all the same.
        ServerKind::Seaweedfs => None,
        _ => Some(Duration::from_secs(2)),
    }
}

/// A loopback port that is free in this moment.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// How to serve `dir` on a loopback port; secrets are in the environment or in a file.
pub(crate) fn launch(
    kind: ServerKind,
    program: &Path,
    port: u16,
    dir: &Path,
    access: &Access,
) -> io::Result<Launch> {
    let mut leftovers = Vec::new();
    let data = dir.join("data");
    std::fs::create_dir_all(&data)?;
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("TMPDIR", dir)
        .current_dir(dir);
    match kind {
        // There is no program to start; `start` does not ask.
        ServerKind::Embedded => return Err(io::ErrorKind::Unsupported.into()),
        ServerKind::Minio => {
            command
                .args(["server", "--quiet", "--address"])
                .arg(format!("127.0.0.1:{port}"))
                .args(["--console-address", "127.0.0.1:0", "--certs-dir"])
                .arg(dir.join("certs"))
                .arg(&data)
                .env("MINIO_ROOT_USER", &access.access_key)
                .env("MINIO_ROOT_PASSWORD", &access.secret_key)
                .env("MINIO_BROWSER", "off")
                // Buckets may be part of the name `localhost`, too.
                .env("MINIO_DOMAIN", "localhost")
                // It looks for updates on the network otherwise.
                .env("MINIO_UPDATE", "off")
                // It refuses a directory on the root disk otherwise.
                .env("CI", "1");
        }
        ServerKind::Seaweedfs => {
            let config = dir.join("s3.json");
            write_secret(&config, &seaweedfs_config(access))?;
            command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer"]);
            for (flag, path) in [("dir", &data), ("s3.config", &config)] {
                command.arg(format!("-{flag}={}", path.display()));
            }
            command.args(["-s3", &format!("-s3.port={port}")]);
            for role in ["master", "volume", "filer"] {
                command.arg(format!("-{role}.port={}", free_port()?));
            }
            for role in ["master", "volume", "filer", "s3"] {
                let port = free_port()?;
                command.arg(format!("-{role}.port.grpc={port}"));
                // No option moves these elsewhere.
                leftovers.push(format!("/tmp/seaweedfs-{role}-grpc-{port}.sock").into());
            }
            // Without the first it runs out of volumes at the third bucket.
            command.args(["-volume.max=0", "-master.volumeSizeLimitMB=64"]);
            // Otherwise it takes fixed ports, leaves sockets in /tmp, and reports to its makers.
            command.args([
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-s3.localSocket=s3.sock",
                "-filer.localSocket=filer.sock",
                "-master.telemetry=false",
            ]);
        }
        ServerKind::Rclone => {
            command
                .args(["serve", "s3", "--addr"])
                .arg(format!("127.0.0.1:{port}"))
                .arg(&data)
                .env("RCLONE_CONFIG", dir.join("rclone.conf"))
                // Quoted: the variable is a list, and its items hold a comma.
                .env(
                    "RCLONE_AUTH_KEY",
                    format!("\"{},{}\"", access.access_key, access.secret_key),
                );
        }
    }
    Ok(Launch {
        command,
        grace: grace(kind),
        leftovers,
    })
}

fn seaweedfs_config(access: &Access) -> String {
    serde_json::json!({
        "identities": [{
            "name": "ctxbench",
            "credentials": [{ "accessKey": access.access_key, "secretKey": access.secret_key }],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]
    })
    .to_string()
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}
