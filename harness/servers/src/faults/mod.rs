//! An HTTP proxy on a loopback port through which requests go wrong, by rules that change while it runs.
//!
//! It sits between a client and one server, reads requests and answers whole, and passes the `Host` header on as
//! the client has signed it. Status codes, bodies that end early and stale listings need HTTP; a delay of packets
//! alone is [`Proxy`](crate::Proxy)'s. It counts what it did, so that who has ordered a fault can tell whether
//! it came to pass.

mod body;
mod connection;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use connection::{Connection, Socket, WeakSocket};
use rule::Rules;
pub use rule::{Fault, Fired, Operation, Rule, When};

/// How long a body that will be reset may take to leave.
const BEFORE_A_RESET: Duration = Duration::from_millis(20);

/// How long to wait when the process has no file descriptors left for another connection.
const AFTER_A_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// Requests that are remembered; older ones are only counted.
const REMEMBERED: usize = 100_000;

/// What came back for a request from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The server has not seen it, or has not answered.
    Not,
    /// The connection was cut while the server was at it.
    Unknown,
    /// The server has answered with this status, whether or not the client was told.
    Status(u16),
}

/// A request that came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it asked for.
    pub operation: Operation,
    /// Its path, as it was sent.
    pub path: String,
    /// Bytes of its body.
    pub bytes: u64,
    /// What came of it.
    pub answered: Answered,
}

/// The rules in force, by their generation.
type InForce = (u64, Arc<Rules>);

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    rules: watch::Sender<InForce>,
    /// Whether connections are taken.
    is_open: watch::Sender<bool>,
    seen: Mutex<Vec<Seen>>,
    listings: Mutex<Listings>,
}

/// What was listed, for listings that lag behind.
#[derive(Debug, Default)]
struct Listings {
    latest: HashMap<String, Bytes>,
    /// As they were when the rules of a generation came.
    old: (u64, HashMap<String, Bytes>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn rules(&self) -> InForce {
        self.rules.borrow().clone()
    }

    /// Waits until other rules are in force than those of a generation.
    async fn next_rules(&self, generation: u64) {
        let mut rules = self.rules.subscribe();
        // An error means that the proxy is gone.
        let _ = rules.wait_for(|(now, _)| *now != generation).await;
    }

    fn note(&self, seen: Seen) {
        let mut all = lock(&self.seen);
        if all.len() < REMEMBERED {
            all.push(seen);
        }
    }

    fn keep_listing(&self, key: String, body: Bytes) {
        lock(&self.listings).latest.insert(key, body);
    }

    fn old_listing(&self, generation: u64, key: &str) -> Option<Bytes> {
        let listings = lock(&self.listings);
        let (of, old) = &listings.old;
        (*of == generation).then(|| old.get(key).cloned()).flatten()
    }
}

/// A running proxy; it and its connections end when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Keeps the port while nobody listens on it: connections are refused then, and nobody else gets it.
    _holder: TcpSocket,
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// Listens on a loopback port (0 for any) for requests to `upstream`, without any rule.
    ///
    /// # Errors
    /// If the port cannot be had, or no thread.
    pub fn start(port: u16, upstream: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let holder = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        let address = holder.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            rules: watch::Sender::new((0, Arc::default())),
            is_open: watch::Sender::new(true),
            seen: Mutex::default(),
            listings: Mutex::default(),
        });
        let listener = bind(address)?.listen(BACKLOG)?;
        runtime.spawn(accept_while_open(listener, address, Arc::clone(&shared)));
        drop(entered);
        Ok(Self {
            address,
            shared,
            _holder: holder,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As in `http://127.0.0.1:9000`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts rules in force for requests that come from now on, in place of the earlier ones.
    pub fn set(&self, rules: Vec<Rule>) {
        self.shared.rules.send_modify(|(generation, in_force)| {
            *generation += 1;
            *in_force = Arc::new(Rules::new(rules));
            let mut listings = lock(&self.shared.listings);
            let latest = listings.latest.clone();
            listings.old = (*generation, latest);
        });
    }

    /// Nothing goes wrong from now on.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// What each of the rules in force has done so far.
    #[must_use]
    pub fn fired(&self) -> Vec<Fired> {
        self.shared.rules().1.fired()
    }

    /// Refuses connections from now on, and resets those there are; or takes them again.
    ///
    /// # Errors
    /// If the port does not do so within two seconds.
    pub fn partition(&self, is_cut: bool) -> io::Result<()> {
        self.shared.is_open.send_replace(!is_cut);
        for _ in 0..1000 {
            let connected = std::net::TcpStream::connect(self.address);
            if connected.is_err() == is_cut {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other(format!(
            "{} still {} connections",
            self.address,
            if is_cut { "takes" } else { "refuses" }
        )))
    }

    /// The requests that have come so far, the first 100,000 of them.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever waits is waiting for this proxy only.
            runtime.shutdown_background();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // More than one socket may have the port, as long as one listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Takes connections while that is wanted; in between the port is bound, and nobody listens.
async fn accept_while_open(first: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut is_open = shared.is_open.subscribe();
    let mut listener = Some(first);
    loop {
        let listening = match listener.take() {
            Some(listener) => Ok(listener),
            None => bind(address).and_then(|socket| socket.listen(BACKLOG)),
        };
        match listening {
            Ok(listener) => {
                let mut connections = JoinSet::new();
                let mut sockets = Vec::new();
                tokio::select! {
                    () = accept(&listener, &shared, &mut connections, &mut sockets) => {}
                    _ = is_open.wait_for(|is_open| !is_open) => {}
                }
                for socket in sockets.iter().filter_map(WeakSocket::socket) {
                    socket.reset_when_closed();
                }
                connections.shutdown().await;
            }
            Err(error) => {
                tracing::warn!("the fault proxy cannot listen on {address}: {error}");
                tokio::time::sleep(AFTER_A_FAILED_ACCEPT).await;
            }
        }
        if is_open.wait_for(|is_open| *is_open).await.is_err() {
            return;
        }
    }
}

async fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
    sockets: &mut Vec<WeakSocket>,
) {
    loop {
        let taken = match listener.accept().await {
            Ok((stream, _)) => Socket::of(&stream).map(|socket| (stream, socket)),
            Err(error) => Err(error),
        };
        match taken {
            Ok((stream, socket)) => {
                sockets.retain(|socket| socket.socket().is_some());
                sockets.push(socket.weak());
                connections.spawn(serve(stream, socket, Arc::clone(shared)));
            }
            Err(error) => {
                tracing::warn!("the fault proxy could not accept a connection: {error}");
                tokio::time::sleep(AFTER_A_FAILED_ACCEPT).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, socket: Socket, shared: Arc<Shared>) {
    // Small answers must not wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("the fault proxy could not set TCP_NODELAY: {error}");
    }
    let connection = Arc::new(Connection {
        shared,
        socket,
        server: tokio::sync::Mutex::default(),
    });
    let service = service_fn(move |request| Arc::clone(&connection).answer(request));
    let serving = hyper::server::conn::http1::Builder::new()
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!("the fault proxy ended a connection: {error}");
    }
}
