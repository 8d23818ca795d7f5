//! A TCP proxy on a loopback port that adds a round-trip time. Faults live in `faults`.
//!
//! It forwards every chunk half a round trip after its arrival, so bandwidth is unchanged. A new connection
//! costs one more round trip, as a TCP handshake does. It uses threads, because tokio's timers have
//! millisecond resolution.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::AFTER_A_FAILED_ACCEPT;

/// Longest chunk that is forwarded at once, in bytes.
const CHUNK: usize = 64 * 1024;

/// Chunks in flight per direction: 64 MiB, more than any delay here needs.
const ON_THEIR_WAY: usize = 1024;

/// A running proxy. After it is dropped, it accepts no new connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

/// A chunk with the time at which it is forwarded.
type Chunk = (Instant, Vec<u8>);

impl Proxy {
    /// Listens on a loopback port (0 for any) for connections to `upstream`.
    ///
    /// # Errors
    /// If the port is not available.
    pub fn start(port: u16, upstream: SocketAddr, rtt: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("s3-proxy".to_owned())
            .spawn(move || accept(&listener, upstream, rtt, &stopped))?;
        Ok(Self { address, stop })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. If that fails, the thread is awake.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, rtt: Duration, stop: &AtomicBool) {
    loop {
        let client = listener.accept();
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let begun = client.and_then(|(client, _)| connect(client, upstream, rtt));
        if let Err(error) = begun {
            tracing::warn!("the S3 proxy lost a connection to {upstream}: {error}");
            std::thread::sleep(AFTER_A_FAILED_ACCEPT);
        }
    }
}

/// Connects a client with the server, by one pump per direction.
fn connect(client: TcpStream, upstream: SocketAddr, rtt: Duration) -> io::Result<()> {
    let accepted = Instant::now();
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (to_server, to_client) = (server.try_clone()?, client.try_clone()?);
    // The local handshake is already done. Over a real distance it takes one round trip.
    pump(client, to_server, accepted + rtt, rtt / 2)?;
    pump(server, to_client, accepted, rtt / 2)
}

/// Forwards data in one direction, with the delay.
fn pump(from: TcpStream, to: TcpStream, not_before: Instant, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = sync_channel(ON_THEIR_WAY);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    thread("s3-proxy-in").spawn(move || read(from, &sender, not_before, delay))?;
    thread("s3-proxy-out").spawn(move || write(to, &receiver))?;
    Ok(())
}

/// Reads chunks until the connection or the receiver ends.
fn read(mut from: TcpStream, sender: &SyncSender<Chunk>, not_before: Instant, delay: Duration) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A broken connection counts as closed, half a round trip later.
            Err(_) => 0,
        };
        let due = Instant::now().max(not_before) + delay;
        // An empty chunk marks the end of the stream, which is delayed as any other chunk.
        let is_gone = sender.send((due, buffer[..length].to_vec())).is_err();
        if length == 0 || is_gone {
            return;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<Chunk>) {
    // The kernel may let a thread oversleep by 50 microseconds to save power. If it refuses the change, the
    // delay is that much longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    for (due, chunk) in receiver {
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        if chunk.is_empty() {
            // Only this direction: the other one may still have data.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if to.write_all(&chunk).is_err() {
            // The receiver is gone, so the reader of this connection must stop, too.
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A server that answers the first byte of each request with `length` bytes.
    fn answering(length: usize) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let answer = vec![b'x'; length];
            for stream in listener.incoming() {
                let (mut stream, answer) = (stream.unwrap(), answer.clone());
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || {
                    while stream.read_exact(&mut [0]).is_ok() {
                        stream.write_all(&answer).unwrap();
                    }
                });
            }
        });
        address
    }

    fn connect(to: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn exchange(stream: &mut TcpStream, answer: &mut [u8]) -> Duration {
        let begun = Instant::now();
        stream.write_all(b"?").unwrap();
        stream.read_exact(answer).unwrap();
        begun.elapsed()
    }

    /// The shortest duration of `times` exchanges on one connection, which no other process lengthens.
    fn least(to: SocketAddr, length: usize, times: usize) -> Duration {
        let (mut stream, mut answer) = (connect(to), vec![0; length]);
        exchange(&mut stream, &mut answer);
        (0..times).map(|_| exchange(&mut stream, &mut answer)).min().unwrap()
    }

    /// The first duration below `limit`, in milliseconds: on a busy machine, many are longer, but not all for a minute.
    fn added_by(limit: u64, mut measure: impl FnMut() -> Duration) -> Duration {
        let begun = Instant::now();
        loop {
            let took = measure();
            if took < MS(limit) {
                return took;
            }
            assert!(begun.elapsed() < MS(60_000), "{took:?}");
        }
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn an_exchange_takes_one_round_trip_longer() {
        let server = answering(1);
        let direct = least(server, 1, 501);
        println!("direct: {direct:?}");
        for (rtt, times) in [(0, 501), (1, 301), (5, 101), (20, 31)] {
            let proxy = Proxy::start(0, server, MS(rtt)).unwrap();
            let added = added_by(rtt + 5, || least(proxy.address(), 1, times).saturating_sub(direct));
            println!("RTT {rtt} ms: {added:?} added");
            assert!(added >= MS(rtt), "{rtt}: {added:?}");
        }
    }

    #[test]
    fn a_long_answer_takes_one_round_trip_longer_not_one_per_chunk() {
        let length = 1 << 20;
        let server = answering(length);
        let direct = least(server, length, 21);
        let proxy = Proxy::start(0, server, MS(20)).unwrap();
        // Sixteen chunks of half a round trip each would be 160 ms.
        let added = added_by(60, || least(proxy.address(), length, 21).saturating_sub(direct));
        println!("1 MiB: {direct:?} direct, {added:?} added at an RTT of 20 ms");
        assert!(added >= MS(19), "{added:?}");
    }

    #[test]
    fn a_new_connection_takes_one_more_round_trip() {
        let proxy = Proxy::start(0, answering(1), MS(20)).unwrap();
        let took = added_by(60, || {
            let begun = Instant::now();
            exchange(&mut connect(proxy.address()), &mut [0]);
            begun.elapsed()
        });
        assert!(took >= MS(40), "{took:?}");
    }

    #[test]
    fn the_proxy_forwards_the_end_of_a_stream_and_stops_listening_when_dropped() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(0, listener.local_addr().unwrap(), MS(1)).unwrap();
        let mut client = connect(proxy.address());
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "last words");
        // The other direction is still open.
        server.write_all(b"understood").unwrap();
        drop(server);
        client.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "last wordsunderstood");

        let address = proxy.address();
        drop(proxy);
        let begun = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(begun.elapsed() < MS(60_000), "it still listens");
            std::thread::sleep(MS(1));
        }
    }
}
