//! Response bodies that end early or contain wrong bytes.

use std::io;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::connection::Socket;

/// The body of a response to a client.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Sends the bytes, then ends the connection: by a reset if `socket` is given, else by a close.
pub(super) fn ending_early(bytes: Bytes, socket: Option<Socket>) -> Body {
    let said = stream::once(async move { Ok(Frame::data(bytes)) });
    let end = stream::once(async move {
        // The bytes must leave first, because a reset discards the sender's buffer.
        tokio::time::sleep(super::BEFORE_A_RESET).await;
        if let Some(socket) = socket {
            socket.reset_when_closed();
        }
        Err(io::Error::other("a fault ends the answer here"))
    });
    StreamBody::new(said.chain(end)).boxed_unsync()
}

/// Damages every 64th byte of the second half, at least one, and keeps the length.
pub(super) fn damaged(bytes: &Bytes) -> Bytes {
    let mut wrong = bytes.to_vec();
    let middle = wrong.len() / 2;
    for byte in wrong.iter_mut().skip(middle).step_by(64) {
        // A letter stays a letter: XML and JSON still parse, and only a checksum finds the damage.
        *byte ^= 1;
    }
    wrong.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_keeps_the_length_and_changes_the_second_half() {
        for length in [1_usize, 2, 63, 1000] {
            let bytes = Bytes::from(vec![b'a'; length]);
            let wrong = damaged(&bytes);
            assert_eq!(wrong.len(), length);
            assert_ne!(wrong, bytes);
            assert_eq!(wrong[..length / 2], bytes[..length / 2]);
        }
        assert!(damaged(&Bytes::new()).is_empty());
    }
}
