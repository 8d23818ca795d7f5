//! The constructor of HTTP clients.

use std::ffi::OsStr;

use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};
use url::Host;

/// A server's answer that points elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it redirects ({status}) to {host}, and redirects are not followed (if you trust that host, give its address instead)"
)]
pub struct RedirectError {
    /// The HTTP status.
    pub status: u16,
    /// The host of the location, with its port; the rest of a location may hold secrets.
    pub host: String,
}

impl RedirectError {
    /// The redirect that an answer is; `None` for another answer.
    pub fn of(response: &Response) -> Option<Self> {
        let status = response.status().as_u16();
        if !matches!(status, 300..=399) || status == 304 {
            return None;
        }
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|it| response.url().join(it.to_str().ok()?).ok());
        let host = location.as_ref().and_then(|url| {
            let host = url.host()?.to_owned();
            Some(match url.port() {
                Some(port) => format!("{}:{port}", in_brackets(&host)),
                None => in_brackets(&host),
            })
        });
        Some(Self { status, host: host.unwrap_or_else(|| "an unnamed location".to_owned()) })
    }
}

fn in_brackets(host: &Host) -> String {
    match host {
        Host::Ipv6(address) => format!("[{address}]"),
        host => host.to_string(),
    }
}

/// A builder of HTTP clients that follow no redirect: a server must not send a request, with its key and its content, to
/// another host. Every HTTP client of the workspace is built from it.
#[expect(clippy::disallowed_methods, reason = "this is the one constructor of clients")]
pub fn client() -> ClientBuilder {
    // rustls takes its cryptography from the process; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).user_agent(concat!("ctxbench/", env!("CARGO_PKG_VERSION")))
}

/// Whether a host is this machine by its name: a loopback address, `localhost`, or a name below it.
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    if let Ok(address) = host.parse::<std::net::IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The variable that permits keys over plain HTTP in a trusted network, with the value `1`.
const PLAIN_HTTP: &str = "CTXBENCH_PLAIN_HTTP";

/// Refuses a key, named by `key`, for a URL whose requests are readable in the network, unless `CTXBENCH_PLAIN_HTTP` is `1`.
///
/// # Errors
/// What to do instead.
pub fn refuse_plain_key(url: &reqwest::Url, key: &str) -> Result<(), String> {
    check_plain_key(url, key, std::env::var_os(PLAIN_HTTP).as_deref())
}

/// As [`refuse_plain_key`], where [`PLAIN_HTTP`] has the value `permission`.
pub(super) fn check_plain_key(url: &reqwest::Url, key: &str, permission: Option<&OsStr>) -> Result<(), String> {
    let is_permitted = permission.is_some_and(|value| value == "1");
    match plain_host(url).filter(|_| !is_permitted) {
        None => Ok(()),
        Some(host) => {
            let port = url.port_or_known_default().unwrap_or(80);
            Err(format!(
                "the key of {key} and all content would cross the network to {host} in plain text: use https, or a tunnel to 127.0.0.1 such as `ssh -L {port}:localhost:{port} {host}`; in a trusted network, set {PLAIN_HTTP}=1"
            ))
        }
    }
}

/// The host of a URL of plain HTTP, unless it is this machine.
fn plain_host(url: &reqwest::Url) -> Option<&str> {
    url.host_str().filter(|host| url.scheme() == "http" && !is_loopback(host))
}
