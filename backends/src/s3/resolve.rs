//! Names of servers: as the system resolves them, but whatever ends in `.localhost` is this machine (RFC 6761,
//! section 6.3), which glibc alone does not know. A bucket can then be part of the name of a server that runs here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use object_store::client::{DnsFuture, DnsResolver};

/// Resolves names.
#[derive(Debug)]
pub(super) struct Resolver;

fn is_this_machine(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.to_ascii_lowercase().ends_with(".localhost")
}

impl DnsResolver for Resolver {
    fn resolve(&self, host: &str) -> DnsFuture {
        if is_this_machine(host) {
            let here: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Box::pin(std::future::ready(Ok(here)));
        }
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_localhost_is_always_this_machine() {
        for here in ["ctxbench.localhost", "a.b.LOCALHOST", "x.localhost."] {
            assert!(is_this_machine(here), "{here}");
        }
        // The system knows `localhost` itself.
        for elsewhere in ["localhost", "notlocalhost", "localhost.example.com"] {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }
}
