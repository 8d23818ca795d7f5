//! The command of each external server: its arguments, environment and files.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{ServerAccess, ServerKind};

/// How a server's process is started and stopped.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) command: Command,
    /// Time to end after SIGTERM; `None` to kill it at once.
    pub(crate) grace: Option<Duration>,
    /// Files that the server leaves outside of its directory.
    pub(crate) leftovers: Vec<PathBuf>,
}

/// Time to end after SIGTERM; `None` to kill the server at once.
fn grace(kind: ServerKind) -> Option<Duration> {
    match kind {
        // An orderly end takes 25 seconds, and acknowledged data is in its files anyway.
        ServerKind::Seaweedfs => None,
        _ => Some(Duration::from_secs(2)),
    }
}

/// A loopback port that is currently free.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The command that serves `dir` on a loopback port. Secrets go into the environment or a file.
pub(crate) fn launch(
    kind: ServerKind,
    program: &Path,
    port: u16,
    dir: &Path,
    access: &ServerAccess,
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
        // The embedded server has no process.
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
                // Also accepts virtual-hosted requests below `localhost`.
                .env("MINIO_DOMAIN", "localhost")
                // Without this, MinIO looks for updates on the network.
                .env("MINIO_UPDATE", "off")
                // Without this, MinIO refuses a directory on the root disk.
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
                // SeaweedFS has no option for the path of these sockets.
                leftovers.push(format!("/tmp/seaweedfs-{role}-grpc-{port}.sock").into());
            }
            // Without `-volume.max`, SeaweedFS runs out of volumes at the third bucket.
            command.args(["-volume.max=0", "-master.volumeSizeLimitMB=64"]);
            // Without these, SeaweedFS takes fixed ports, leaves sockets in /tmp and sends telemetry.
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
                // Quoted: the variable is a list, and its items contain a comma.
                .env("RCLONE_AUTH_KEY", format!("\"{},{}\"", access.access_key, access.secret_key));
        }
    }
    Ok(Launch { command, grace: grace(kind), leftovers })
}

fn seaweedfs_config(access: &ServerAccess) -> String {
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
