//! One connection of a client: forwards each request, or injects a fault.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::body::{Body, damaged, ending_early, whole};
use super::rule::{Operation, RequestFault, delay};
use super::{AnswerStatus, SeenRequest, SharedState};

/// A duplicate of the client's socket, because hyper cannot reset a connection.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<OwnedFd>);

impl Socket {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self(Arc::new(stream.as_fd().try_clone_to_owned()?)))
    }

    /// A reference that does not keep the socket open.
    pub(super) fn weak(&self) -> WeakSocket {
        WeakSocket(Arc::downgrade(&self.0))
    }

    /// Makes the next close a reset, which the peer sees as `ECONNRESET`.
    pub(super) fn reset_when_closed(&self) {
        // It fails only on a descriptor that is not a socket.
        let _ = rustix::net::sockopt::set_socket_linger(&*self.0, Some(Duration::ZERO));
    }
}

/// A [`Socket`] while its connection lasts.
#[derive(Debug)]
pub(super) struct WeakSocket(Weak<OwnedFd>);

impl WeakSocket {
    pub(super) fn socket(&self) -> Option<Socket> {
        self.0.upgrade().map(Socket)
    }
}

/// The state of one client connection.
pub(super) struct Connection {
    pub(super) shared: Arc<SharedState>,
    pub(super) socket: Socket,
    /// The connection to the server, while it lasts.
    pub(super) server: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// A request in flight at the server. It is recorded as unknown if its connection breaks before the answer.
struct InFlightRequest<'a> {
    connection: &'a Connection,
    asked: Option<&'a ClientRequest>,
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked {
            self.connection.note(asked, AnswerStatus::Unknown);
        }
    }
}

/// A request with its whole body.
struct ClientRequest {
    parts: http::request::Parts,
    body: Bytes,
    operation: Operation,
    /// Path and query.
    target: String,
}

/// An answer with its whole body.
struct Answer {
    parts: http::response::Parts,
    body: Bytes,
}

impl Answer {
    fn response(mut self, body: Body, length: Option<usize>) -> Response<Body> {
        self.parts.headers.remove(TRANSFER_ENCODING);
        self.parts.headers.remove(CONNECTION);
        if let Some(length) = length {
            self.parts.headers.insert(CONTENT_LENGTH, length.into());
        }
        Response::from_parts(self.parts, body)
    }

    fn whole(self) -> Response<Body> {
        let body = whole(self.body.clone());
        self.response(body, None)
    }
}

impl Connection {
    /// Answers a request. An error ends the connection without an answer.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let target = parts.uri.to_string();
        let is_copy = parts.headers.contains_key("x-amz-copy-source");
        let query = parts.uri.query().unwrap_or_default();
        let asked = ClientRequest { operation: Operation::of(&parts.method, query, is_copy), target, parts, body };
        let (generation, rules) = self.shared.rules();
        let Some(fault) = rules.fault(asked.operation, &asked.target) else {
            return Ok(self.ask(&asked).await?.whole());
        };
        tracing::debug!(?fault, target = asked.target, "a fault");
        match fault {
            RequestFault::Delay { ms } => {
                delay(*ms).await;
                Ok(self.ask(&asked).await?.whole())
            }
            RequestFault::Hang => {
                self.note(&asked, AnswerStatus::Not);
                self.shared.next_rules(generation).await;
                Err(io::Error::other("a fault: no answer"))
            }
            RequestFault::Hold => {
                // In a task, because the request is in flight even if the client disconnects.
                let held = tokio::spawn(async move {
                    self.shared.next_rules(generation).await;
                    self.ask(&asked).await
                });
                Ok(held.await.map_err(io::Error::other)??.whole())
            }
            RequestFault::Refuse { status, code, retry_after } => {
                self.note(&asked, AnswerStatus::Not);
                refusal(*status, code, *retry_after, &asked)
            }
            RequestFault::Reset => {
                self.note(&asked, AnswerStatus::Not);
                self.socket.reset_when_closed();
                Err(io::Error::other("a fault: reset"))
            }
            RequestFault::LoseAnswer => {
                self.ask(&asked).await?;
                self.socket.reset_when_closed();
                Err(io::Error::other("a fault: the answer is lost"))
            }
            RequestFault::ResetInBody | RequestFault::CutBody => {
                let answer = self.ask(&asked).await?;
                let length = answer.body.len();
                let half = answer.body.slice(..length / 2);
                let socket = (*fault == RequestFault::ResetInBody).then(|| self.socket.clone());
                Ok(answer.response(ending_early(half, socket), Some(length)))
            }
            RequestFault::ShortenBody => {
                let answer = self.ask(&asked).await?;
                let half = answer.body.slice(..answer.body.len() / 2);
                let length = half.len();
                Ok(answer.response(whole(half), Some(length)))
            }
            RequestFault::DamageBody => {
                let mut answer = self.ask(&asked).await?;
                answer.body = damaged(&answer.body);
                Ok(answer.whole())
            }
            RequestFault::DamageRequest => {
                let asked = ClientRequest { body: damaged(&asked.body), ..asked };
                Ok(self.ask(&asked).await?.whole())
            }
            RequestFault::StaleList if asked.operation == Operation::List => {
                let key = list_key(&asked.target);
                if let Some(body) = self.shared.old_listing(generation, &key) {
                    self.note(&asked, AnswerStatus::Not);
                    let mut response = Response::new(whole(body));
                    let xml = HeaderValue::from_static("application/xml");
                    response.headers_mut().insert(CONTENT_TYPE, xml);
                    return Ok(response);
                }
                Ok(self.ask(&asked).await?.whole())
            }
            RequestFault::StaleList => Ok(self.ask(&asked).await?.whole()),
        }
    }

    fn note(&self, asked: &ClientRequest, answered: AnswerStatus) {
        self.shared.note(SeenRequest {
            operation: asked.operation,
            path: asked.parts.uri.path().to_owned(),
            bytes: asked.body.len() as u64,
            answered,
        });
    }

    /// Forwards the request and records the server's answer.
    async fn ask(&self, asked: &ClientRequest) -> io::Result<Answer> {
        let mut under_way = InFlightRequest { connection: self, asked: Some(asked) };
        let answer = self.forward(asked).await;
        under_way.asked = None;
        let answered = match &answer {
            Ok(answer) => AnswerStatus::Status(answer.parts.status.as_u16()),
            Err(_) => AnswerStatus::Not,
        };
        self.note(asked, answered);
        let answer = answer?;
        if asked.operation == Operation::List && answer.parts.status == StatusCode::OK {
            let key = list_key(&asked.target);
            self.shared.keep_listing(key, answer.body.clone());
        }
        Ok(answer)
    }

    async fn forward(&self, asked: &ClientRequest) -> io::Result<Answer> {
        // Host is what the client signed. The body is buffered, so its length is known.
        let mut request = Request::new(Full::new(asked.body.clone()));
        *request.method_mut() = asked.parts.method.clone();
        *request.uri_mut() = asked.parts.uri.clone();
        *request.headers_mut() = asked.parts.headers.clone();
        let headers = request.headers_mut();
        headers.remove(CONNECTION);
        if headers.remove(TRANSFER_ENCODING).is_some() {
            headers.insert(CONTENT_LENGTH, asked.body.len().into());
        }
        let mut kept = self.server.lock().await;
        let response = loop {
            let (mut server, is_new) = match kept.take() {
                Some(server) if !server.is_closed() => (server, false),
                _ => (connect(self.shared.upstream).await?, true),
            };
            server.ready().await.map_err(io::Error::other)?;
            match server.try_send_request(request).await {
                Ok(response) => {
                    *kept = Some(server);
                    break response;
                }
                Err(mut error) => match error.take_message() {
                    // The server closed the kept connection before any byte of the request was sent.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(io::Error::other(error.into_error())),
                },
            }
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Answer { parts, body })
    }
}

async fn connect(upstream: std::net::SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the fault proxy lost its server: {error}");
        }
    });
    Ok(sender)
}

/// The identity of a listing: its path and query without the signature.
fn list_key(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters = query.split('&');
    let lasting = parameters.filter(|parameter| !parameter.to_ascii_lowercase().starts_with("x-amz-"));
    format!("{path}?{}", lasting.collect::<Vec<_>>().join("&"))
}

/// An S3 error response.
fn refusal(status: u16, code: &str, retry_after: Option<u64>, asked: &ClientRequest) -> io::Result<Response<Body>> {
    let path = asked.parts.uri.path();
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>a fault of ctxbench</Message><Resource>{path}</Resource><RequestId>0</RequestId></Error>"
    );
    let body = match asked.operation {
        Operation::Head => Bytes::new(),
        _ => Bytes::from(xml),
    };
    let mut response = Response::builder().status(status).header(CONTENT_TYPE, "application/xml");
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    response.body(whole(body)).map_err(io::Error::other)
}
