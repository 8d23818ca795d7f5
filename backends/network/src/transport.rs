//! Sending requests. No other module calls the functions of the HTTP library that can fail: a lint forbids them. So an error
//! always has all its causes, and never an address, which may hold a password or a signature.

#![expect(clippy::disallowed_methods, reason = "these are the calls whose errors are made here")]

use bytes::Bytes;
use inputs::with_causes;
use reqwest::{Client, ClientBuilder, Request, RequestBuilder, Response};

/// Why a request has no answer, or only a part of it: in one line with all causes, and without the address.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct TransportError {
    words: String,
    /// A time limit of the client is over.
    pub is_late: bool,
    /// There is no connection.
    pub is_connect: bool,
    /// The client does not trust the server's certificate.
    pub is_untrusted: bool,
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        Self {
            words: with_causes(&error),
            is_late: error.is_timeout(),
            is_connect: error.is_connect(),
            is_untrusted: is_untrusted(&error),
        }
    }
}

/// Whether a certificate that the client does not trust is a cause of an error.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    // The source of an I/O error is that of the error in it.
    let inner = error.downcast_ref::<std::io::Error>();
    match inner.and_then(std::io::Error::get_ref) {
        Some(inner) => is_untrusted(inner),
        None => error.source().is_some_and(is_untrusted),
    }
}

/// Makes the client of a builder.
///
/// # Errors
/// If the settings of proxies or TLS cannot be used.
pub fn build(builder: ClientBuilder) -> Result<Client, TransportError> {
    Ok(builder.build()?)
}

/// Sends a request; its answer, whatever its status is.
///
/// # Errors
/// If there is no answer.
pub async fn send(request: RequestBuilder) -> Result<Response, TransportError> {
    Ok(request.send().await?)
}

/// As [`send`], for a request that is signed already.
///
/// # Errors
/// If there is no answer.
pub async fn execute(client: &Client, request: Request) -> Result<Response, TransportError> {
    Ok(client.execute(request).await?)
}

/// The next bytes of a body; `None` at its end.
///
/// # Errors
/// If the connection breaks.
pub async fn next_chunk(response: &mut Response) -> Result<Option<Bytes>, TransportError> {
    Ok(response.chunk().await?)
}
