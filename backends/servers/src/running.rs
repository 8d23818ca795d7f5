//! A running S3 server of any kind, from start to stop.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::bucket::try_bucket;
use crate::child::Child;
use crate::launch::{free_port, launch};
use crate::{BUCKET, BucketError, ChildError, Embedded, FoundServer, Proxy, ServerAccess, ServerKind, create_bucket};

/// How long a server may take to become ready. SeaweedFS needs up to ten seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a port may be taken.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two readiness checks.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Settings for starting a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// The server to start.
    pub server: FoundServer,
    /// Directory for its data and its log; it must exist.
    pub dir: PathBuf,
    /// The announced loopback port; 0 for any.
    pub port: u16,
    /// The added round-trip time; zero for no proxy.
    pub rtt: Duration,
    /// Access key and secret, for a server that restarts on existing data. `None` for fresh random ones.
    pub keys: Option<(String, String)>,
    /// Program and arguments that launch the server's command, such as a program that calls
    /// [`exec_bound_to_parent`](crate::exec_bound_to_parent). May be empty.
    pub launcher: Vec<OsString>,
}

impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keeps the credentials out of logs.
        f.debug_struct("ServerOptions")
            .field("server", &self.server)
            .field("dir", &self.dir)
            .field("port", &self.port)
            .field("rtt", &self.rtt)
            .finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its directory, its port or its random credentials are not available.
    #[error("{server} cannot {what}: {error}")]
    Setup {
        /// The server.
        server: ServerKind,
        /// The step that failed.
        what: String,
        /// The cause.
        error: io::Error,
    },
    /// Its process does not start.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// Its process ended before it was ready.
    #[error("{server} ended before it was ready ({status}); its last output:\n{last_words}")]
    Ended {
        /// The server.
        server: ServerKind,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        last_words: String,
    },
    /// It runs, but its bucket was not usable in time.
    #[error("{server} was not ready within {} s: {last}\n{last_words}", PATIENCE.as_secs())]
    NotReady {
        /// The server.
        server: ServerKind,
        /// The last failure.
        last: BucketError,
        /// The end of its log.
        last_words: String,
    },
}

/// A running server with [`BUCKET`] in it, which is empty or holds earlier data.
#[derive(Debug)]
pub struct Server {
    kind: ServerKind,
    version: String,
    access: ServerAccess,
    rtt: Duration,
    // Declared before the server, so that the proxy is dropped first.
    _proxy: Option<Proxy>,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Embedded(Embedded),
    Child(Box<Child>),
}

/// The announcement of `ctxbench s3 serve`: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// Such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// Name of the server for people: [`ServerKind::label`].
    pub server: String,
    /// Its version.
    pub version: String,
    /// The access key id.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: String,
    /// The region for which requests are signed.
    pub region: String,
    /// Name of the existing bucket.
    pub bucket: String,
    /// The added round-trip time, in milliseconds.
    #[serde(serialize_with = "whole_if_it_is")]
    pub rtt_ms: f64,
}

/// Serializes a whole number without a fraction: `0` for 0.0.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn whole_if_it_is<S: serde::Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && (0.0..1e9).contains(number) {
        serializer.serialize_u64(*number as u64)
    } else {
        serializer.serialize_f64(*number)
    }
}

/// Starts a server and waits until it answers and has the bucket [`BUCKET`].
///
/// Call it on a thread that lives as long as the server: the kernel's parent-death signal fires when that
/// thread ends.
///
/// # Errors
/// [`StartError`]; no process is left running then.
pub async fn start(options: ServerOptions) -> Result<Server, StartError> {
    let kind = options.server.kind();
    let setup = |what: &str| {
        let what = what.to_owned();
        move |error| StartError::Setup { server: kind, what, error }
    };
    let inner_port = if options.rtt.is_zero() { options.port } else { 0 };
    let (process, direct) = match options.server.program() {
        None => {
            let listener = listen(inner_port).await.map_err(setup(&format!("listen on port {inner_port}")))?;
            let port = listener.local_addr().map_err(setup("say where it listens"))?.port();
            let access = ServerAccess::on(port, options.keys.as_ref()).map_err(setup("make credentials"))?;
            let data = options.dir.join("data");
            let embedded = Embedded::serve(listener, &data, &access).map_err(setup("use its directory"))?;
            (Process::Embedded(embedded), access)
        }
        Some(program) => {
            let port = match inner_port {
                0 => free_port().map_err(setup("find a free port"))?,
                port => listen(port).await.map(|_| port).map_err(setup(&format!("listen on port {port}")))?,
            };
            let access = ServerAccess::on(port, options.keys.as_ref()).map_err(setup("make credentials"))?;
            let launch = launch(kind, program, port, &options.dir, &access).map_err(setup("use its directory"))?;
            let log = options.dir.join(format!("{}.log", kind.name()));
            let child = Child::spawn(launch, &options.launcher, log)?;
            (Process::Child(Box::new(child)), access)
        }
    };
    let mut server = Server { kind, version: String::new(), access: direct, rtt: options.rtt, _proxy: None, process };
    // The program's version is asked for while the server starts, because both take time.
    let found = options.server.clone();
    let version = tokio::task::spawn_blocking(move || found.version());
    if let Err(error) = server.wait_until_ready().await {
        server.stop().await.map_err(setup("be stopped"))?;
        return Err(error);
    }
    server.version = version.await.map_err(io::Error::other).flatten().map_err(setup("say its version"))?;
    if !options.rtt.is_zero() {
        let upstream = server.access.endpoint.trim_start_matches("http://");
        let upstream = upstream.parse().map_err(io::Error::other).map_err(setup("be found behind its proxy"))?;
        let proxy = Proxy::start(options.port, upstream, options.rtt)
            .map_err(setup(&format!("have a proxy on port {}", options.port)))?;
        server.access.endpoint = format!("http://{}", proxy.address());
        server._proxy = Some(proxy);
    }
    Ok(server)
}

/// Listens on a port; waits for one that is taken, such as by a connection that another process has just made.
async fn listen(port: u16) -> io::Result<TcpListener> {
    let began = Instant::now();
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < PORT_PATIENCE => {
                tokio::time::sleep(ASK_EVERY).await;
            }
            listening => return listening,
        }
    }
}

impl Server {
    /// Creates the bucket and uses it, until both succeed.
    async fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let started = Instant::now();
        loop {
            let ready = match create_bucket(&self.access, BUCKET).await {
                Ok(()) => try_bucket(&self.access, BUCKET).await,
                not_yet => not_yet,
            };
            let Err(last) = ready else {
                return Ok(());
            };
            let Process::Child(child) = &mut self.process else {
                return Err(StartError::NotReady { server: self.kind, last, last_words: String::new() });
            };
            let (server, last_words) = (self.kind, child.last_words());
            if let Ok(Some(status)) = child.has_ended() {
                return Err(StartError::Ended { server, status, last_words });
            }
            if started.elapsed() > PATIENCE {
                return Err(StartError::NotReady { server, last, last_words });
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// The kind of server.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Endpoint and credentials for a client. Behind a proxy, the endpoint is the proxy's.
    #[must_use]
    pub fn access(&self) -> &ServerAccess {
        &self.access
    }

    /// The announcement of `ctxbench s3 serve`.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        Announcement {
            endpoint: self.access.endpoint.clone(),
            server: self.kind.label().to_owned(),
            version: self.version.clone(),
            access_key: self.access.access_key.clone(),
            secret_key: self.access.secret_key.clone(),
            region: self.access.region.clone(),
            bucket: BUCKET.to_owned(),
            rtt_ms: self.rtt.as_secs_f64() * 1e3,
        }
    }

    /// Waits until the server ends by itself. Returns the reason, if it is known.
    pub async fn has_ended(&mut self) -> String {
        let server = self.kind;
        match &mut self.process {
            Process::Embedded(embedded) => {
                let why = embedded.has_ended().await;
                format!("{server} ended: {why}")
            }
            Process::Child(child) => {
                let status = match child.wait().await {
                    Ok(status) => status.to_string(),
                    Err(error) => error.to_string(),
                };
                let last_words = child.last_words();
                format!("{server} ended unexpectedly ({status}); its last output:\n{last_words}")
            }
        }
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    /// If waiting for the process fails.
    pub async fn kill(self) -> io::Result<()> {
        match self.process {
            Process::Embedded(_) => Ok(()),
            Process::Child(child) => child.kill(),
        }
    }

    /// Stops the server. Its process has ended when this returns.
    ///
    /// # Errors
    /// If waiting for the process fails.
    pub async fn stop(self) -> io::Result<()> {
        match self.process {
            Process::Embedded(_) => Ok(()),
            Process::Child(child) => child.stop().await,
        }
    }
}
