//! The client's messages, one a line. The server answers an invalid line with an error.
//!
//! The input ends when all requests are answered: the server drops answers 5 s after its end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use inputs::files::has_more_values;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

use crate::lines::{LINE_MAX, MessageLine, MessageLines, id_of};

/// How long the end of the input waits for answers, at most.
const ANSWERS_MAX: Duration = Duration::from_secs(600);

/// The most requests without an answer, and the bytes of all of them. The next line is read when some are answered.
const UNANSWERED_MAX: usize = 64;
const UNANSWERED_BYTES: usize = 64 << 20;

/// The most values of a message: in memory, a small one takes many times its bytes.
const VALUES_MAX: usize = 100_000;

type SendFuture = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// A transport over lines, whose input ends when all requests are answered, or after [`ANSWERS_MAX`].
pub struct AnswerTransport<R, W> {
    lines: MessageLines<BufReader<R>>,
    output: Arc<Mutex<W>>,
    /// The answer to an invalid line. It is kept here, because a cancelled `receive` must not cut it.
    refusal: Option<SendFuture>,
    /// Requests without an answer, and their bytes.
    unanswered: Arc<watch::Sender<HashMap<RequestId, usize>>>,
    ended: Option<Instant>,
}

impl<R, W> AnswerTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub fn new(input: R, output: W) -> Self {
        Self {
            lines: MessageLines::new(BufReader::new(input), LINE_MAX),
            output: Arc::new(Mutex::new(output)),
            refusal: None,
            unanswered: Arc::default(),
            ended: None,
        }
    }

    /// The id of a request, if an earlier one has it and no answer. Only one of the two would be answered.
    fn used_id(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(asked) if self.unanswered.borrow().contains_key(&asked.id) => {
                Some(asked.id.clone())
            }
            _ => None,
        }
    }

    /// The next message of the client and its bytes; `None` at the end of the input.
    async fn message(&mut self) -> Option<(ClientJsonRpcMessage, usize)> {
        loop {
            if let Some(sending) = &mut self.refusal {
                let sent = sending.await;
                self.refusal = None;
                sent.ok()?;
            }
            let mut unanswered = self.unanswered.subscribe();
            let has_room =
                unanswered.wait_for(|all| all.len() < UNANSWERED_MAX && all.values().sum::<usize>() < UNANSWERED_BYTES);
            _ = has_room.await;
            let line = match self.lines.next().await {
                Ok(line) => line?,
                Err(error) => {
                    tracing::error!(%error, "reading a message");
                    return None;
                }
            };
            let refused = match line {
                MessageLine::Whole(line) => match parsed(&line) {
                    ParseResult::Message(message) => match self.used_id(&message) {
                        None => return Some((*message, line.len())),
                        Some(id) => {
                            let error =
                                "another request with this id is not answered yet; give each request its own id";
                            (Some(id), ErrorData::invalid_request(error, None))
                        }
                    },
                    ParseResult::Ignored => continue,
                    ParseResult::Refused(id, error) => (id, error),
                },
                MessageLine::TooLong(id) => {
                    let error = format!("the message is longer than {LINE_MAX} bytes; send less in one call");
                    (id, ErrorData::invalid_request(error, None))
                }
            };
            // JSON-RPC asks for the id `null` where it is not known; the type of the library would leave it out.
            let (id, error) = refused;
            let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
            let output = Arc::clone(&self.output);
            self.refusal = Some(Box::pin(write(output, answer.to_string().into_bytes())));
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(output: Arc<Mutex<W>>, mut line: Vec<u8>) -> std::io::Result<()> {
    line.push(b'\n');
    let mut output = output.lock().await;
    output.write_all(&line).await?;
    output.flush().await
}

/// The result of parsing a line.
enum ParseResult {
    Message(Box<ClientJsonRpcMessage>),
    /// Nothing that JSON-RPC answers.
    Ignored,
    /// No message: the id of the request, if it has one, and why.
    Refused(Option<RequestId>, ErrorData),
}

fn parsed(line: &[u8]) -> ParseResult {
    // RFC 8259 lets a parser ignore a byte order mark.
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return ParseResult::Ignored;
    }
    if has_more_values(line, VALUES_MAX) {
        let reason = format!("the message has more than {VALUES_MAX} values; send less in one call");
        return ParseResult::Refused(id_of(line), ErrorData::invalid_request(reason, None));
    }
    let reason = match serde_json::from_slice(line) {
        // A request whose id is of a wrong type reads as a notification, which has no answer.
        Ok(JsonRpcMessage::Notification(_)) if has_id(line) => "its id must be a whole number or a text".to_owned(),
        Ok(message) => return ParseResult::Message(Box::new(message)),
        Err(error) => error.to_string(),
    };
    match serde_json::from_slice::<Value>(line) {
        // Its text may have bytes that are not UTF-8 or half of a surrogate pair, or be nested too deeply.
        Err(error) => {
            ParseResult::Refused(id_of(line), ErrorData::parse_error(format!("the line is not JSON: {error}"), None))
        }
        Ok(value) if value["method"].is_string() && value.get("id").is_none() => ParseResult::Ignored,
        Ok(mut value) => {
            let id = value.get_mut("id").map(Value::take);
            let id = id.and_then(|id| serde_json::from_value(id).ok());
            let reason = format!("the message is not an MCP request: {reason}");
            ParseResult::Refused(id, ErrorData::invalid_request(reason, None))
        }
    }
}

fn has_id(line: &[u8]) -> bool {
    serde_json::from_slice::<Value>(line).is_ok_and(|value| value.get("id").is_some())
}

impl<R, W> Transport<RoleServer> for AnswerTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

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
        let output = Arc::clone(&self.output);
        async move {
            let sent = match serde_json::to_vec(&message) {
                Ok(line) => write(output, line).await,
                Err(error) => Err(error.into()),
            };
            if let Some(id) = answered {
                unanswered.send_modify(|all| _ = all.remove(&id));
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let ended = match self.ended {
            Some(ended) => ended,
            None => match self.message().await {
                Some((message, bytes)) => {
                    self.unanswered.send_modify(|all| match &message {
                        JsonRpcMessage::Request(asked) => _ = all.insert(asked.id.clone(), bytes),
                        JsonRpcMessage::Notification(told) => {
                            // The server answers no request that the client has cancelled.
                            if let ClientNotification::CancelledNotification(it) = &told.notification
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
        let answered = unanswered.wait_for(HashMap::is_empty);
        if timeout_at(ended + ANSWERS_MAX, answered).await.is_err() {
            tracing::warn!("calls take longer than {ANSWERS_MAX:?} after the end of the input");
        }
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.output.lock().await.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{RequestId, ServerResult};
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_input_ends_when_all_requests_are_answered_or_cancelled() {
        let input = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}
{"jsonrpc": "2.0", "id": 2, "method": "ping"}
{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
"#;
        let mut transport = AnswerTransport::new(input.as_bytes(), tokio::io::sink());
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
        let waited = timeout(Duration::from_secs(60), transport.receive()).await;
        assert!(waited.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_request_whose_id_is_in_use_is_refused_and_takes_no_room() {
        let ping = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\n";
        let input = ping.repeat(3) + &ping.replace("1,", "2,");
        let (output, mut client) = tokio::io::duplex(1 << 20);
        let mut transport = AnswerTransport::new(std::io::Cursor::new(input), output);
        for expected in [1, 2] {
            let Some(JsonRpcMessage::Request(asked)) = transport.receive().await else {
                panic!("no request {expected}");
            };
            assert_eq!(asked.id, RequestId::Number(expected));
        }
        let answer = ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1));
        transport.send(answer).await.unwrap();
        drop(transport);
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let refused = said.iter().filter(|it| it["error"]["code"] == -32600);
        assert_eq!((refused.count(), said.len()), (2, 3), "{said:?}");
    }

    /// The answers to invalid lines, and whether a ping after them is received.
    async fn answers(lines: &[Vec<u8>]) -> Vec<Value> {
        let mut input = lines.join(&b'\n');
        input.extend(b"\n{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\n");
        let (output, mut client) = tokio::io::duplex(1 << 20);
        let mut transport = AnswerTransport::new(std::io::Cursor::new(input), output);
        let (ping, _) = transport.message().await.unwrap();
        assert!(matches!(ping, JsonRpcMessage::Request(_)));
        drop(transport);
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn every_invalid_line_is_answered_with_an_error_and_the_next_one_is_read() {
        let long = format!(
            r#"{{"method":"tools/call","params":{{"content":"{}"}},"jsonrpc":"2.0","id":"seven"}}"#,
            "x".repeat(20_000_000)
        );
        let many =
            format!(r#"{{"jsonrpc":"2.0","id":8,"method":"ping","params":{{"a":[0{}]}}}}"#, ",0".repeat(VALUES_MAX));
        let deep = [vec![b'['; 50_000], vec![b']'; 50_000]].concat();
        for (line, id, code) in [
            (long.into_bytes(), json!("seven"), -32600),
            (vec![b'x'; LINE_MAX + 1], Value::Null, -32600),
            (many.into_bytes(), json!(8), -32600),
            (b"garbage".to_vec(), Value::Null, -32700),
            (b"\xff\xfe\0".to_vec(), Value::Null, -32700),
            (deep, Value::Null, -32700),
            (br#"{"id": 9"#.to_vec(), Value::Null, -32700),
            (br#"{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"a": "\ud800"}}"#.to_vec(), json!(9), -32700),
            (
                b"{\"jsonrpc\": \"2.0\", \"id\": 9, \"method\": \"ping\", \"params\": {\"a\": \"\xff\"}}".to_vec(),
                json!(9),
                -32700,
            ),
            (br#"{"jsonrpc": "1.0", "id": 9, "method": "ping"}"#.to_vec(), json!(9), -32600),
            (br#"{"jsonrpc": "2.0", "id": 9, "method": 5}"#.to_vec(), json!(9), -32600),
            (br#"{"jsonrpc": "2.0", "id": {}, "method": "ping"}"#.to_vec(), Value::Null, -32600),
            (b"[]".to_vec(), Value::Null, -32600),
            (b"5".to_vec(), Value::Null, -32600),
        ] {
            let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
            let said = answers(&[line]).await;
            assert_eq!(said.len(), 1, "{shown}: {said:?}");
            assert!(said[0].as_object().unwrap().contains_key("id"), "{shown}");
            assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&id, &json!(code)), "{shown}");
        }
        let blank = [b"".to_vec(), b" \r".to_vec(), br#"{"method": "$/lsp"}"#.to_vec()];
        assert_eq!(answers(&blank).await, Vec::<Value>::new());
    }
}
