//! Connections to a PostgreSQL server that may be hostile: a message has a limit, and its stated length is compared with
//! it before anything of the message is kept.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use network::limits::{DATABASE_DESCRIPTION, DATABASE_MESSAGE, DATABASE_SETTINGS, DATABASE_TYPES};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The port of a URL that names none.
const PORT: u16 = 5432;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerAddress {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The servers that a configuration names, in its order.
pub(super) fn addresses(config: &Config) -> Vec<ServerAddress> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let ports = config.get_ports();
    let address = |at: usize| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
        // An address has priority over the name of the same host.
        match (addresses.get(at), hosts.get(at)) {
            (Some(address), _) => Some(ServerAddress::Tcp(address.to_string(), port)),
            (None, Some(Host::Tcp(name))) => Some(ServerAddress::Tcp(name.clone(), port)),
            (None, Some(Host::Unix(dir))) => Some(ServerAddress::Unix(dir.join(format!(".s.PGSQL.{port}")))),
            (None, None) => None,
        }
    };
    let all = (0..hosts.len().max(addresses.len())).map(address);
    all.flatten().collect()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How much more a server may send.
#[derive(Debug)]
struct Allowance {
    /// Bytes, except those of rows that a caller takes one by one; `None` for any number.
    bytes: Option<u64>,
    /// Answers.
    answers: u64,
    /// Bytes of settings, in the whole connection.
    settings: u64,
    /// Why the connection was ended.
    refused: Option<String>,
}

/// The limits of one connection. The client keeps what describes a statement, so that has a limit of its own.
#[derive(Clone, Debug)]
pub(super) struct Limits(Arc<Mutex<Allowance>>);

impl Default for Limits {
    fn default() -> Self {
        let limits = Self(Arc::new(Mutex::new(Allowance {
            bytes: None,
            answers: 0,
            settings: DATABASE_SETTINGS,
            refused: None,
        })));
        limits.describing();
        limits
    }
}

impl Limits {
    /// The server greets, or describes a statement.
    pub(super) fn describing(&self) {
        let mut allowance = self.0.lock();
        allowance.bytes = Some(DATABASE_DESCRIPTION);
        allowance.answers = DATABASE_TYPES;
    }

    /// The server sends rows, which are not kept.
    pub(super) fn streaming(&self) {
        let mut allowance = self.0.lock();
        allowance.bytes = None;
        allowance.answers = u64::MAX;
    }

    /// Why the connection was ended: the client tells its callers only that it is closed.
    pub(super) fn refused(&self) -> Option<String> {
        self.0.lock().refused.clone()
    }

    /// The server begins a message.
    fn begin(&self, kind: u8, length: u64) -> io::Result<()> {
        let allowance = &mut *self.0.lock();
        allowance.take(kind, length).map_err(|reason| {
            allowance.refused = Some(reason.clone());
            io::Error::other(reason)
        })
    }
}

impl Allowance {
    fn take(&mut self, kind: u8, length: u64) -> Result<(), String> {
        if length > DATABASE_MESSAGE {
            return Err(format!("the server states a message of {length} bytes; at most {DATABASE_MESSAGE} are read"));
        }
        if kind == b'S' {
            let left = self.settings.checked_sub(length);
            self.settings =
                left.ok_or_else(|| format!("the server states settings of more than {DATABASE_SETTINGS} bytes"))?;
        }
        if let Some(bytes) = self.bytes {
            let left = bytes
                .checked_sub(length + 1)
                .ok_or_else(|| format!("the server describes a statement by more than {DATABASE_DESCRIPTION} bytes"))?;
            self.bytes = Some(left);
        }
        if kind == b'Z' {
            let left = self.answers.checked_sub(1);
            self.answers = left.ok_or_else(|| {
                format!("the types of a statement take more than {DATABASE_TYPES} answers of the server")
            })?;
        }
        Ok(())
    }
}

/// A connection that fails when the server states or sends too much.
pub(super) struct LimitedConnection {
    stream: Box<dyn Stream>,
    messages: Messages,
}

impl LimitedConnection {
    pub(super) async fn connect(address: &ServerAddress, limits: Limits) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match address {
            ServerAddress::Tcp(host, port) => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            ServerAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
        };
        Ok(Self { stream, messages: Messages { limits, ..Messages::default() } })
    }
}

/// Where a stream of messages is: a byte for the kind, four for the length, which counts itself, and the rest.
#[derive(Debug, Default)]
struct Messages {
    header: [u8; 5],
    /// Bytes of the header that have arrived.
    has: usize,
    /// Bytes of the message that have not.
    left: u64,
    limits: Limits,
}

impl Messages {
    /// More of the stream has arrived.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len() as u64);
                self.left -= skipped;
                bytes = &bytes[skipped as usize..];
                continue;
            }
            let (part, rest) = bytes.split_at((self.header.len() - self.has).min(bytes.len()));
            self.header[self.has..self.has + part.len()].copy_from_slice(part);
            self.has += part.len();
            bytes = rest;
            if self.has < self.header.len() {
                continue;
            }
            self.has = 0;
            let [kind, length @ ..] = self.header;
            let length = u64::from(u32::from_be_bytes(length));
            self.limits.begin(kind, length)?;
            self.left = length.saturating_sub(4);
        }
        Ok(())
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, out))?;
        Poll::Ready(this.messages.take(&out.filled()[before..]))
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: u32, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn streaming() -> Messages {
        let messages = Messages::default();
        messages.limits.streaming();
        messages
    }

    #[test]
    fn the_limit_of_a_message_holds_wherever_the_stream_is_cut() {
        let longest = DATABASE_MESSAGE as u32;
        let fine = [message(b'R', 8, &[0; 4]), message(b'Z', 4, &[]), message(b'D', 9, b"12345")];
        for length in [longest + 1, i32::MAX as u32, u32::MAX] {
            let stream = [fine.concat(), message(b'D', length, b"x")].concat();
            for size in 1..=stream.len() {
                let mut messages = streaming();
                let mut parts = stream.chunks(size);
                let error = parts.find_map(|part| messages.take(part).err());
                let error = error.unwrap().to_string();
                assert!(error.contains(&format!("{length} bytes")), "{error}");
            }
        }
        let mut messages = streaming();
        messages.take(&[fine.concat(), message(b'D', longest, &[0; 99])].concat()).unwrap();
        assert_eq!(messages.left, DATABASE_MESSAGE - 4 - 99);
    }

    #[test]
    fn servers_are_tried_in_the_order_of_the_url() {
        let of = |url: &str| addresses(&url.parse().unwrap());
        let tcp = |host: &str, port| ServerAddress::Tcp(host.to_owned(), port);
        assert_eq!(of("postgresql://u@a/db"), [tcp("a", 5432)]);
        assert_eq!(of("postgresql://u@a:1,b:2/db"), [tcp("a", 1), tcp("b", 2)]);
        assert_eq!(of("host=a,b hostaddr=127.0.0.1,127.0.0.2 port=7"), [tcp("127.0.0.1", 7), tcp("127.0.0.2", 7)]);
        assert_eq!(of("host=/run/pg user=u"), [ServerAddress::Unix("/run/pg/.s.PGSQL.5432".into())]);
    }
}
