//! The S3 servers that the workspaces of one process share: started at first use, ended by `Services::stop`.
//!
//! Each is a `ctxbench s3 serve` process. It ends with this process, even if this process is killed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use inputs::{sha256, variable};
use parking_lot::Mutex;
use processes::ChildProcess;
use servers::{Announcement, ServerKind};

use crate::backend::Unavailable;

/// The variable with the URL of an external server, used instead of one that we start.
pub const ENDPOINT: &str = "CTXBENCH_S3_ENDPOINT";

/// The variable that makes a missing MinIO an error.
const REQUIRE_MINIO: &str = "CTXBENCH_REQUIRE_MINIO";

/// How long a server may take to end before it is killed: it may have to remove very many files.
const PATIENCE: Duration = Duration::from_secs(120);

/// Selects a server: one that we start, or an external one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerChoice {
    /// A server that we start.
    Started(ServerKind),
    /// The external server at [`ENDPOINT`].
    Given,
}

impl ServerChoice {
    /// The default on this machine: the external server, else MinIO if installed or required, else the
    /// embedded one.
    pub fn default_here() -> Self {
        if variable(ENDPOINT).is_some() {
            Self::Given
        } else if ServerKind::Minio.find().is_ok() || variable(REQUIRE_MINIO).is_some() {
            Self::Started(ServerKind::Minio)
        } else {
            Self::Started(ServerKind::Embedded)
        }
    }

    /// Its name, as part of a backend's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started(kind) => kind.name(),
            Self::Given => "given",
        }
    }

    /// The server of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let given = Some(Self::Given).filter(|_| name == "given");
        let all = ServerKind::ALL.into_iter();
        let started = all.map(Self::Started).find(|wanted| wanted.name() == name);
        given.or(started)
    }

    /// Its name in reports and messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Started(kind) => kind.label(),
            Self::Given => "the S3 server at $CTXBENCH_S3_ENDPOINT",
        }
    }

    /// Its version; for the external server, its URL.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn version(self) -> Result<String, Unavailable> {
        let Self::Started(kind) = self else {
            let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
            return Ok(endpoint);
        };
        let found = kind.find().map_err(|missing| Unavailable {
            reason: format!("{kind} is not installed: {}", missing.reason),
            fix: missing.fix,
        })?;
        found.version().map_err(|error| Unavailable {
            reason: format!("{kind} does not print its version: {error}"),
            fix: "install it again".to_owned(),
        })
    }
}

/// A server, and the simulated distance to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistantServer {
    /// The server.
    pub wanted: ServerChoice,
    /// Added round-trip time in milliseconds.
    rtt_ms: u32,
}

impl DistantServer {
    /// The default server of this machine, on loopback.
    pub fn default_here() -> Self {
        Self { wanted: ServerChoice::default_here(), rtt_ms: 0 }
    }

    /// Parses the end of a backend's name: an optional server such as `-minio`, then an optional
    /// round-trip time such as `@30ms`.
    pub fn of_suffix(suffix: &str) -> Option<Self> {
        let (server, rtt_ms) = match suffix.split_once('@') {
            Some((server, rtt)) => (server, rtt.strip_suffix("ms")?.parse().ok()?),
            None => (suffix, 0),
        };
        let wanted = match server.strip_prefix('-') {
            Some(server) => ServerChoice::of_name(server)?,
            None if server.is_empty() => ServerChoice::default_here(),
            None => return None,
        };
        Some(Self { wanted, rtt_ms })
    }

    /// The inverse of [`DistantServer::of_suffix`].
    pub fn suffix(self) -> String {
        match self.rtt_ms {
            0 => format!("-{}", self.wanted.name()),
            rtt => format!("-{}@{rtt}ms", self.wanted.name()),
        }
    }

    /// The server and its distance, for a description.
    pub fn words(self) -> String {
        let label = self.wanted.label();
        match self.rtt_ms {
            0 => format!("on {label}, on loopback"),
            rtt => format!("on {label}, behind a simulated round-trip time of {rtt} ms"),
        }
    }
}

/// How a workspace reaches a server.
#[derive(Clone)]
pub struct Address {
    /// The URL, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region for which requests are signed.
    pub region: String,
    /// An existing bucket.
    pub bucket: String,
    /// Access key and secret of a server that we start; `None` for the external one.
    pub keys: Option<(String, String)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys.
        write!(f, "{}/{}", self.endpoint, self.bucket)
    }
}

impl Address {
    /// Access key and secret; those of the external server come from the environment.
    ///
    /// # Errors
    /// If a variable of the environment is not set, or a directory is in the place of a server.
    pub fn credentials(&self) -> io::Result<(String, String)> {
        if self.endpoint.starts_with("file:") {
            return Err(io::Error::other(format!(
                "{} is a directory, and this backend needs a server\n  fix: unset {ENDPOINT}, or start a server with `ctxbench s3 serve`",
                self.endpoint
            )));
        }
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        let key = |name: &str| {
            variable(name).ok_or_else(|| {
                io::Error::other(format!("{name} is not set\n  fix: set it to what the server at ${ENDPOINT} takes"))
            })
        };
        Ok((key("AWS_ACCESS_KEY_ID")?, key("AWS_SECRET_ACCESS_KEY")?))
    }
}

/// The key prefix of a workspace at `site`, without a trailing slash.
///
/// It is the same at each call, so that a reopened workspace finds its objects.
pub fn place(site: &Path) -> String {
    let digest = sha256(site.as_os_str().as_bytes());
    format!("ctxbench-blocks/{}", &digest[..16])
}

/// The running servers, by kind and added round-trip time in milliseconds.
#[derive(Debug, Default)]
pub struct Servers(Mutex<BTreeMap<(ServerChoice, u32), Service>>);

#[derive(Debug)]
struct Service {
    address: Address,
    process: Option<ChildProcess>,
}

impl Servers {
    /// The address of a server; starts it if it is not running. `program` is the `ctxbench` binary.
    ///
    /// # Errors
    /// If it does not start, or is the external server and has an added round-trip time.
    pub fn address(&self, program: &Path, server: DistantServer) -> io::Result<Address> {
        let DistantServer { wanted, rtt_ms } = server;
        let mut services = self.0.lock();
        if let Some(service) = services.get(&(wanted, rtt_ms)) {
            return Ok(service.address.clone());
        }
        let service = match wanted {
            ServerChoice::Given => given(rtt_ms)?,
            ServerChoice::Started(kind) => start(program, kind, rtt_ms)?,
        };
        let address = service.address.clone();
        services.insert((wanted, rtt_ms), service);
        Ok(address)
    }

    /// The process IDs of all servers that were started, and of their descendants.
    pub fn processes(&self) -> Vec<u32> {
        let services = self.0.lock();
        let started = services.values().flat_map(|service| &service.process);
        let mut all: Vec<u32> = started.map(ChildProcess::id).collect();
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            next += 1;
            let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                let children = std::fs::read_to_string(thread.path().join("children"));
                let children = children.unwrap_or_default();
                let children = children.split_whitespace().map(str::parse::<u32>);
                all.extend(children.flatten());
            }
        }
        all
    }

    pub(super) fn stop(&self) {
        // Dropping a server ends it, which may take long: without the lock.
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

fn given(rtt_ms: u32) -> io::Result<Service> {
    if rtt_ms > 0 {
        let message = "a round-trip time can be added only to a server that ctxbench starts";
        return Err(io::Error::other(message));
    }
    let address = Address {
        endpoint: variable(ENDPOINT).unwrap_or_default(),
        region: variable("AWS_REGION").unwrap_or_else(|| "us-east-1".to_owned()),
        bucket: variable("CTXBENCH_S3_BUCKET").unwrap_or_else(|| "ctxbench".to_owned()),
        keys: None,
    };
    Ok(Service { address, process: None })
}

fn start(program: &Path, kind: ServerKind, rtt_ms: u32) -> io::Result<Service> {
    let mut command = Command::new(program);
    command
        .args(["s3", "serve", "--until-stdin-ends", "--server", kind.name()])
        .args(["--rtt", &rtt_ms.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = ChildProcess::start(&mut command, PATIENCE)?;
    let mut line = String::new();
    // `ctxbench s3 serve` has its own timeout for a server that does not start.
    BufReader::new(process.output()?).read_line(&mut line)?;
    match serde_json::from_str::<Announcement>(&line) {
        Ok(said) => Ok(Service {
            address: Address {
                endpoint: said.endpoint,
                region: said.region,
                bucket: said.bucket,
                keys: Some((said.access_key, said.secret_key)),
            },
            process: Some(process),
        }),
        Err(_) => Err(io::Error::other(format!("{kind} did not start"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_with_server_and_distance() {
        for suffix in ["-minio", "-embedded", "-given", "-minio@30ms"] {
            assert_eq!(DistantServer::of_suffix(suffix).unwrap().suffix(), suffix);
        }
        assert_eq!(DistantServer::of_suffix(""), Some(DistantServer::default_here()));
        let far = DistantServer::of_suffix("-embedded@5ms").unwrap();
        assert_eq!(far.wanted, ServerChoice::Started(ServerKind::Embedded));
        assert_eq!(far.words(), "on embedded S3, behind a simulated round-trip time of 5 ms");
        for wrong in ["-", "-maxio", "minio", "-minio@30", "@ms"] {
            assert_eq!(DistantServer::of_suffix(wrong), None, "{wrong}");
        }
    }
}
