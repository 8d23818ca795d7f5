//! Counting what goes to the server and what comes back, below every retry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

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
}

impl Requests {
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

/// Makes clients that count.
#[derive(Debug)]
pub(super) struct Counting(pub(super) Arc<Requests>);

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted {
            client,
            requests: Arc::clone(&self.0),
        }))
    }
}

#[derive(Debug)]
struct Counted {
    client: HttpClient,
    requests: Arc<Requests>,
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let requests = &self.requests;
        requests.kind(&request).fetch_add(1, Ordering::Relaxed);
        let sent = request.body().content_length() as u64;
        requests.sent.fetch_add(sent, Ordering::Relaxed);
        let is_head = request.method() == "HEAD";
        let response = self.client.execute(request).await?;
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
