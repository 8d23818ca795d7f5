//! The client's messages. Their input ends when all requests are answered: the server drops answers 5 s after its end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long the end of the input waits for answers, at most.
const ANSWERS_MAX: Duration = Duration::from_secs(600);

/// A transport whose input ends when all requests of `inner` are answered, or after [`ANSWERS_MAX`].
pub struct Answering<T> {
    inner: T,
    /// Requests without an answer.
    unanswered: Arc<watch::Sender<HashSet<RequestId>>>,
    ended: Option<Instant>,
}

impl<T> Answering<T> {
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            unanswered: Arc::default(),
            ended: None,
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answering<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            JsonRpcMessage::Error(answer) => answer.id.clone(),
            _ => None,
        };
        let unanswered = Arc::clone(&self.unanswered);
        let sending = self.inner.send(message);
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                unanswered.send_modify(|all| _ = all.remove(&id));
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let ended = match self.ended {
            Some(ended) => ended,
            None => match self.inner.receive().await {
                Some(message) => {
                    self.unanswered.send_modify(|all| match &message {
                        JsonRpcMessage::Request(asked) => _ = all.insert(asked.id.clone()),
                        JsonRpcMessage::Notification(told) => {
                            // The server answers no request that the client has cancelled.
                            if let ClientNotification::CancelledNotification(it) =
                                &told.notification
                                && let Some(id) = &it.params.request_id
                            {
                                all.remove(id);
                            }
                        }
                        _ => {}
                    });
                    return Some(message);
                }
                None => *self.ended.insert(Instant::now()),
            },
        };
        let mut unanswered = self.unanswered.subscribe();
        let answered = unanswered.wait_for(HashSet::is_empty);
        if timeout_at(ended + ANSWERS_MAX, answered).await.is_err() {
            tracing::warn!("calls take longer than {ANSWERS_MAX:?} after the end of the input");
        }
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{RequestId, ServerResult};
    use rmcp::transport::async_rw::AsyncRwTransport;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_input_ends_when_all_requests_are_answered_or_cancelled() {
        let input = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}
{"jsonrpc": "2.0", "id": 2, "method": "ping"}
{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
"#;
        let inner = AsyncRwTransport::new_server(input.as_bytes(), tokio::io::sink());
        let mut transport = Answering::new(inner);
        for _ in input.lines() {
            assert!(transport.receive().await.is_some());
        }
        let moment = Duration::from_millis(50);
        assert!(timeout(moment, transport.receive()).await.is_err());
        let ended = transport.ended.take();
        transport.ended = Instant::now().checked_sub(ANSWERS_MAX);
        assert!(transport.receive().await.is_none(), "it has waited enough");
        transport.ended = ended;
        let answer = ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1));
        transport.send(answer).await.unwrap();
        let waited = timeout(moment, transport.receive()).await;
        assert!(waited.unwrap().is_none());
    }
}
