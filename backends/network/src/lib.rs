//! Clients of servers that are not trusted: one constructor of HTTP clients, the functions that send requests, limits on
//! what a peer may send, by kind, and the one function that reads a body within them. No protocol lives here.

mod body;
mod client;
pub mod limits;
mod transport;

pub use body::{BodyError, read_body, read_start};
pub use client::{RedirectError, client, is_loopback, refuse_plain_key};
pub use limits::BodyLimit;
pub use transport::{TransportError, build, execute, next_chunk, send};

#[cfg(test)]
mod tests;
