//! Reading a body within its limits. The length that a peer states is compared with the limit and not believed: memory
//! is taken as bytes arrive.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::Response;

use crate::limits::{BodyLimit, SLOWEST};
use crate::transport::{TransportError, next_chunk};

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is longer than its kind may be.
    #[error("{} is longer than {} bytes, the limit", .0.kind, .0.bytes)]
    TooLong(BodyLimit),
    /// It arrives too slowly.
    #[error(
        "{} arrives too slowly: {received} bytes within {} s, and after {} s fewer than {SLOWEST} bytes a second",
        .limit.kind, .seconds, .limit.patience.as_secs()
    )]
    TooSlow {
        /// The limit.
        limit: BodyLimit,
        /// Bytes that arrived.
        received: u64,
        /// How long they took.
        seconds: u64,
    },
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] TransportError),
}

impl BodyError {
    /// Whether the peer was too slow, so that a repetition would take as long.
    pub fn is_late(&self) -> bool {
        match self {
            Self::TooLong(_) => false,
            Self::TooSlow { .. } => true,
            Self::Broken(error) => error.is_late,
        }
    }
}

/// Reads a whole body.
///
/// # Errors
/// If it is longer or slower than `limit`, or the connection breaks.
pub async fn read_body(response: Response, limit: BodyLimit) -> Result<Bytes, BodyError> {
    if response.content_length().is_some_and(|length| length > limit.bytes) {
        return Err(BodyError::TooLong(limit));
    }
    let mut body = BytesMut::new();
    read(response, limit, &mut body).await?;
    Ok(body.freeze())
}

/// The start of a body, up to its limit or to where the peer stops: for error messages.
pub async fn read_start(response: Response, limit: BodyLimit) -> Bytes {
    let mut body = BytesMut::new();
    // The bytes that have arrived are enough.
    let _ = read(response, limit, &mut body).await;
    body.freeze()
}

/// Appends a body to `body`, which is never longer than the limit.
async fn read(mut response: Response, limit: BodyLimit, body: &mut BytesMut) -> Result<(), BodyError> {
    let began = Instant::now();
    loop {
        let received = body.len() as u64;
        let deadline = began + limit.patience + Duration::from_secs(received / SLOWEST);
        let chunk = tokio::time::timeout_at(deadline.into(), next_chunk(&mut response)).await;
        let too_slow = |_| BodyError::TooSlow { limit, received, seconds: began.elapsed().as_secs() };
        let chunk = chunk.map_err(too_slow)??;
        let Some(chunk) = chunk else {
            return Ok(());
        };
        let room = limit.bytes - received;
        if chunk.len() as u64 > room {
            body.extend_from_slice(&chunk[..room as usize]);
            return Err(BodyError::TooLong(limit));
        }
        body.extend_from_slice(&chunk);
    }
}
