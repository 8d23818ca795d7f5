//! An HTTP proxy on a loopback port that injects faults by rules, which can change at run time.
//!
//! It buffers whole requests and answers, and keeps the `Host` header that the client signed. It counts the
//! faults, so that a scenario knows whether any happened. [`Proxy`](crate::Proxy) adds delays below HTTP.

mod body;
mod connection;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::AFTER_A_FAILED_ACCEPT;
use connection::{Connection, Socket, WeakSocket};
use rule::Rules;
pub use rule::{Operation, RequestFault, Rule, RuleCounts, RuleFrequency};

/// Time for a partial body to leave before the reset.
const BEFORE_A_RESET: Duration = Duration::from_millis(20);

/// How long a port may take to open or close, on a busy machine.
const CHANGES_WITHIN: Duration = Duration::from_secs(60);

/// Length of the accept queue.
const BACKLOG: u32 = 128;

/// Number of requests that are recorded.
const REMEMBERED: usize = 100_000;

/// The server's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerStatus {
    /// The server did not receive the request, or did not answer.
    Not,
    /// The connection broke while the request was in flight at the server.
    Unknown,
    /// The server answered with this status. The client may not have received it.
    Status(u16),
}

/// A request that reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// The kind of request.
    pub operation: Operation,
    /// The path as the client sent it.
    pub path: String,
    /// Bytes of its body.
    pub bytes: u64,
    /// The server's answer.
    pub answered: AnswerStatus,
}

/// The active rules and their generation.
type ActiveRules = (u64, Arc<Rules>);

#[derive(Debug)]
struct SharedState {
    upstream: SocketAddr,
    rules: watch::Sender<ActiveRules>,
    /// Whether connections are accepted.
    is_open: watch::Sender<bool>,
    seen: Mutex<Vec<SeenRequest>>,
    listings: Mutex<Listings>,
}

/// Recorded listings, for stale answers.
#[derive(Debug, Default)]
struct Listings {
    latest: HashMap<String, Bytes>,
    /// The latest listings when the rules of this generation became active.
    old: (u64, HashMap<String, Bytes>),
}

impl SharedState {
    fn rules(&self) -> ActiveRules {
        self.rules.borrow().clone()
    }

    /// Waits until the rules of another generation are active.
    async fn next_rules(&self, generation: u64) {
        let mut rules = self.rules.subscribe();
        // An error means that the proxy is gone.
        let _ = rules.wait_for(|(now, _)| *now != generation).await;
    }

    fn note(&self, seen: SeenRequest) {
        let mut all = self.seen.lock();
        if all.len() < REMEMBERED {
            all.push(seen);
        }
    }

    fn keep_listing(&self, key: String, body: Bytes) {
        self.listings.lock().latest.insert(key, body);
    }

    fn old_listing(&self, generation: u64, key: &str) -> Option<Bytes> {
        let listings = self.listings.lock();
        let (of, old) = &listings.old;
        (*of == generation).then(|| old.get(key).cloned()).flatten()
    }
}

/// A running proxy. Dropping it ends its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<SharedState>,
    /// Keeps the port bound while no socket listens: connections are refused, and no other process gets the
    /// port.
    _holder: TcpSocket,
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// Listens on a loopback port (0 for any) for requests to `upstream`, without rules.
    ///
    /// # Errors
    /// If the port or a thread is not available.
    pub fn start(port: u16, upstream: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let holder = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        let address = holder.local_addr()?;
        let shared = Arc::new(SharedState {
            upstream,
            rules: watch::Sender::new((0, Arc::default())),
            is_open: watch::Sender::new(true),
            seen: Mutex::default(),
            listings: Mutex::default(),
        });
        let listener = bind(address)?.listen(BACKLOG)?;
        runtime.spawn(accept_while_open(listener, address, Arc::clone(&shared)));
        drop(entered);
        Ok(Self { address, shared, _holder: holder, runtime: Some(runtime) })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Such as `http://127.0.0.1:9000`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces the active rules, for new requests.
    pub fn set(&self, rules: Vec<Rule>) {
        self.shared.rules.send_modify(|(generation, in_force)| {
            *generation += 1;
            *in_force = Arc::new(Rules::new(rules));
            let mut listings = self.shared.listings.lock();
            let latest = listings.latest.clone();
            listings.old = (*generation, latest);
        });
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// The counters of the active rules.
    #[must_use]
    pub fn fired(&self) -> Vec<RuleCounts> {
        self.shared.rules().1.fired()
    }

    /// Refuses new connections and resets existing ones, or accepts connections again.
    ///
    /// # Errors
    /// If the port does not change within a minute.
    pub fn partition(&self, is_cut: bool) -> io::Result<()> {
        self.shared.is_open.send_replace(!is_cut);
        let begun = Instant::now();
        while begun.elapsed() < CHANGES_WITHIN {
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

    /// The first 100,000 requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.shared.seen.lock().clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Running tasks only serve this proxy, so they need not finish.
            runtime.shutdown_background();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Several sockets may bind the port if only one of them listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts connections while the proxy is open. Otherwise the port is bound without a listener.
async fn accept_while_open(first: TcpListener, address: SocketAddr, shared: Arc<SharedState>) {
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
    shared: &Arc<SharedState>,
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

async fn serve(stream: TcpStream, socket: Socket, shared: Arc<SharedState>) {
    // Small answers must not wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("the fault proxy could not set TCP_NODELAY: {error}");
    }
    let connection = Arc::new(Connection { shared, socket, server: tokio::sync::Mutex::default() });
    let service = service_fn(move |request| Arc::clone(&connection).answer(request));
    let serving =
        hyper::server::conn::http1::Builder::new().keep_alive(true).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!("the fault proxy ended a connection: {error}");
    }
}
