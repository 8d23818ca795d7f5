//! What goes to the server and what comes back, below every retry: counted, and given time by its length.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// The slowest way to a server that a body gets there on, in bytes a second: what is longer has more time.
const SLOWEST: u64 = 64 << 10;

/// The slowest that a server copies, in bytes a second.
const SLOWEST_COPY: u64 = 4 << 20;

/// How many bytes a request moves that says so neither in its body nor by a range: an answer, or a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves(pub(super) u64);

/// How often each kind of request was sent, and how many bytes of objects it moved.
#[derive(Debug, Default)]
pub(super) struct Requests {
    get: AtomicU64,
    head: AtomicU64,
    put: AtomicU64,
    part: AtomicU64,
    copy: AtomicU64,
    list: AtomicU64,
    delete: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    answered: AtomicU64,
    /// Until when each request may take that is under way and was given more time.
    until: Mutex<Vec<Instant>>,
}

impl Requests {
    fn until(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the last of the requests under way will have taken too long, of those that send much.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.until().iter().max().copied()
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn snapshot(&self) -> BTreeMap<&'static str, u64> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("s3_get", load(&self.get)),
            ("s3_head", load(&self.head)),
            ("s3_put", load(&self.put)),
            ("s3_part", load(&self.part)),
            ("s3_copy", load(&self.copy)),
            ("s3_list", load(&self.list)),
            ("s3_delete", load(&self.delete)),
            ("s3_bytes_sent", load(&self.sent)),
            ("s3_bytes_received", load(&self.received)),
        ])
    }

    fn kind(&self, request: &HttpRequest) -> &AtomicU64 {
        let query = request.uri().query().unwrap_or("");
        match request.method().as_str() {
            "HEAD" => &self.head,
            "PUT" if request.headers().contains_key("x-amz-copy-source") => &self.copy,
            "PUT" if query.contains("partNumber=") => &self.part,
            "PUT" => &self.put,
            "POST" if query.starts_with("delete") => &self.delete,
            // The first and the last request of a multipart upload.
            "POST" => &self.part,
            "DELETE" => &self.delete,
            _ if query.contains("list-type=2") => &self.list,
            _ => &self.get,
        }
    }
}

/// The range that a header asks for.
fn range(request: &HttpRequest, header: &str) -> Option<Range<u64>> {
    let range = request.headers().get(header)?.to_str().ok()?;
    let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some(start.parse().ok()?..last.parse::<u64>().ok()?.saturating_add(1))
}

/// How much longer than any other a request may take: time that doubles with its length, as each has clients of its own.
fn more_time(request: &HttpRequest) -> Duration {
    let length = |range: Range<u64>| range.end.saturating_sub(range.start);
    let told = request.extensions().get::<Moves>().map_or(0, |it| it.0);
    let is_copy = request.headers().contains_key("x-amz-copy-source");
    let seconds = if is_copy {
        let part = range(request, "x-amz-copy-source-range").map_or(0, length);
        part.max(told) / SLOWEST_COPY
    } else {
        let asked = range(request, "range").map_or(0, length);
        let sent = request.body().content_length() as u64;
        asked.max(sent).max(told) / SLOWEST
    };
    match seconds {
        0 => Duration::ZERO,
        seconds => Duration::from_secs(seconds.next_power_of_two()),
    }
}

/// Makes clients that count.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) requests: Arc<Requests>,
    /// How long a request may take that moves little.
    pub(super) timeout: Duration,
}

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let counted = Counted {
            client: connect(options, self.timeout)?,
            patient: Mutex::default(),
            options: options.clone(),
            requests: Arc::clone(&self.requests),
            timeout: self.timeout,
        };
        Ok(HttpClient::new(counted))
    }
}

fn connect(options: &ClientOptions, timeout: Duration) -> object_store::Result<HttpClient> {
    ReqwestConnector::default().connect(&options.clone().with_timeout(timeout))
}

#[derive(Debug)]
struct Counted {
    client: HttpClient,
    /// Others, by how much longer their requests may take: a client has one time for all.
    patient: Mutex<BTreeMap<Duration, HttpClient>>,
    options: ClientOptions,
    requests: Arc<Requests>,
    timeout: Duration,
}

impl Counted {
    fn client(&self, more: Duration) -> HttpClient {
        if more.is_zero() {
            return self.client.clone();
        }
        let mut patient = self.patient.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = patient.get(&more) {
            return client.clone();
        }
        match connect(&self.options, self.timeout + more) {
            Ok(client) => patient.entry(more).or_insert(client).clone(),
            Err(error) => {
                tracing::debug!(%error, "a client with more time");
                self.client.clone()
            }
        }
    }
}

/// A request that has more time, for as long as it is under way.
struct UnderWay<'a>(&'a Requests, Instant);

impl<'a> UnderWay<'a> {
    fn begin(requests: &'a Requests, until: Instant) -> Self {
        requests.until().push(until);
        Self(requests, until)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut until = self.0.until();
        if let Some(nth) = until.iter().position(|it| *it == self.1) {
            until.swap_remove(nth);
        }
    }
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let requests = &self.requests;
        requests.kind(&request).fetch_add(1, Ordering::Relaxed);
        let sent = request.body().content_length() as u64;
        requests.sent.fetch_add(sent, Ordering::Relaxed);
        let is_head = request.method() == "HEAD";
        let more = more_time(&request);
        let until = Instant::now() + self.timeout + more;
        let sends_much = !more.is_zero() && sent > 0;
        let _under_way = sends_much.then(|| UnderWay::begin(requests, until));
        let response = self.client(more).execute(request).await?;
        if response.status().is_success() {
            requests.answered.fetch_add(1, Ordering::Relaxed);
        }
        let length = response.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if !is_head && let Some(length) = length {
            requests.received.fetch_add(length, Ordering::Relaxed);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_more_has_more_time() {
        let seconds = |header: Option<(&str, &str)>, moves: u64, sent: usize| {
            let mut request = http::Request::builder().method("PUT").uri("http://s/b");
            if let Some((name, value)) = header {
                request = request.header(name, value);
            }
            let request = request.extension(Moves(moves));
            more_time(&request.body(vec![0; sent].into()).unwrap()).as_secs()
        };
        assert_eq!(seconds(None, 0, 1024), 0);
        assert_eq!(seconds(None, 0, 8 << 20), 128);
        assert_eq!(seconds(None, 9 << 20, 0), 256);
        assert_eq!(seconds(Some(("range", "bytes=0-4194303")), 0, 0), 64);
        assert_eq!(seconds(Some(("range", "bytes=wrong")), 0, 0), 0);
        let copied = ("x-amz-copy-source", "/b/k");
        assert_eq!(seconds(Some(copied), 0, 0), 0);
        assert_eq!(seconds(Some(copied), 4 << 30, 0), 1024);
    }
}
