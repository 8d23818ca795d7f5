//! Parts of every HTTP client here: how it resolves names, and how it reads answers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The text of the first element of that name in an answer of AWS, which has no prefixes and needs no escapes in it.
pub(crate) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Resolves names as the system does, but everything below `.localhost` to this machine (RFC 6761, section 6.3), which
/// glibc alone does not: a bucket can then be part of the name of a local server.
#[derive(Debug)]
pub(crate) struct Resolver;

/// Whether a host name is below `.localhost`.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.to_ascii_lowercase().ends_with(".localhost")
}

impl Resolve for Resolver {
    fn resolve(&self, host: Name) -> Resolving {
        Box::pin(async move {
            // The client replaces the port.
            let found: Vec<SocketAddr> = if is_this_machine(host.as_str()) {
                vec![(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]
            } else {
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect()
            };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
