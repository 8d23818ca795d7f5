//! A deterministic OpenAI-compatible server without a model, for tests. Its answers are labelled `simulated`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The `system_fingerprint` of a server without a model.
pub const SIMULATED: &str = "ctxbench-simulated";

/// The only model that the server lists.
const MODEL: &str = "simulated";

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The server's reaction to a request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Answers by the default rule: see [`FakeServer`].
    Answer,
    /// Answers with this text.
    Say(String),
    /// Answers with the result of this function of the request's body.
    By(fn(&Value) -> String),
    /// Answers with this text and the finish reason `content_filter`.
    Filtered(String),
    /// Answers with a status and an endless body.
    EndlessError(u16),
    /// Answers with this text after a pause.
    SayAfter(Duration, String),
    /// Accepts the request and never answers.
    Hang,
    /// Answers with a status, a message, and an optional `Retry-After`.
    Status(u16, String, Option<String>),
    /// Answers every request, that for the list of models, too, with this status and `Location`.
    Redirect(u16, String),
    /// Breaks the connection in the middle of the answer.
    BreakOff,
    /// Answers with invalid JSON.
    Garbage,
    /// Refuses `max_tokens` and a temperature other than 1, one parameter at a time, with OpenAI's messages.
    /// Answers other requests by the default rule.
    AnswerAsNewerModels,
    /// Answers with bytes that are not UTF-8.
    NotUtf8,
}

/// A server on a loopback port, ended when dropped.
///
/// By its default rule it answers with the last line of the question. With a schema, it answers with the
/// minimal value that the schema permits, in which a field `content` is that line. Its tokens are words.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    shared: Arc<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    /// The first behaviour is for the next request; the last one repeats.
    script: Mutex<Vec<Behaviour>>,
    requests: Mutex<Vec<Value>>,
    headers: Mutex<Vec<String>>,
    is_stopped: AtomicBool,
}

impl FakeServer {
    /// Starts a server with a `script` of one behaviour per request; the last one repeats.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn start(script: Vec<Behaviour>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(SharedState {
            script: Mutex::new(script),
            requests: Mutex::default(),
            headers: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.is_stopped.load(Ordering::Relaxed) {
                    break;
                }
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || {
                    // Some tests close the connection on purpose.
                    let _ = serving.serve(stream);
                });
            }
        });
        Ok(Self { port, shared })
    }

    /// The base URL for a client.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Replaces the script.
    pub fn behave(&self, script: Vec<Behaviour>) {
        *self.shared.script.lock() = script;
    }

    /// The bodies of all completion requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().clone()
    }

    /// The request lines and headers of all requests so far.
    pub fn headers(&self) -> Vec<String> {
        self.shared.headers.lock().clone()
    }

    /// Number of completion requests so far.
    pub fn calls(&self) -> usize {
        self.requests().len()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it sees the flag.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl SharedState {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let is_list = head.starts_with("GET");
        self.headers.lock().push(head);
        if let Some(Behaviour::Redirect(status, location)) = self.script.lock().first() {
            let (status, more) = (format!("{status} X"), format!("Location: {location}\r\n"));
            if !is_list {
                self.requests.lock().push(Value::Null);
            }
            return respond(&mut stream, &status, JSON, &more, b"{}");
        }
        if is_list {
            let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
            return json_answer(&mut stream, "200 OK", "", &list);
        }
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let behaviour = {
            let mut script = self.script.lock();
            if script.len() > 1 { script.remove(0) } else { script.first().cloned().unwrap_or(Behaviour::Answer) }
        };
        self.requests.lock().push(request.clone());
        let mut say = |text: &str| stream_answer(&mut stream, &request, text, "stop");
        match behaviour {
            Behaviour::Answer => say(&own_answer(&request)),
            Behaviour::Say(text) => say(&text),
            Behaviour::By(answer) => say(&answer(&request)),
            Behaviour::Filtered(text) => stream_answer(&mut stream, &request, &text, "content_filter"),
            Behaviour::EndlessError(status) => {
                let head = format!("HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\n\r\n");
                stream.write_all(head.as_bytes())?;
                while !self.is_stopped.load(Ordering::Relaxed) {
                    stream.write_all(&[b'x'; 4096])?;
                }
                Ok(())
            }
            Behaviour::SayAfter(pause, text) => {
                std::thread::sleep(pause);
                say(&text)
            }
            Behaviour::Hang => {
                while !self.is_stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
            Behaviour::Status(status, message, retry_after) => {
                let more = retry_after.map_or_else(String::new, |after| format!("Retry-After: {after}\r\n"));
                let body = json!({"error": {"message": message}});
                json_answer(&mut stream, &format!("{status} X"), &more, &body)
            }
            // Answered above.
            Behaviour::Redirect(..) => Ok(()),
            Behaviour::BreakOff => {
                let event = format!("data: {}\n\n", piece("The beginning", None));
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n";
                stream.write_all(head.as_bytes())?;
                stream.write_all(event.as_bytes())
            }
            Behaviour::AnswerAsNewerModels => match not_taken(&request) {
                Some(error) => {
                    let body = json!({ "error": error });
                    json_answer(&mut stream, "400 Bad Request", "", &body)
                }
                None => say(&own_answer(&request)),
            },
            Behaviour::Garbage => {
                let body = b"data: {nonsense\n\n";
                respond(&mut stream, "200 OK", EVENTS, "", body)
            }
            Behaviour::NotUtf8 => {
                let body = b"{\"choices\":\"\xff\xfe\"}";
                respond(&mut stream, "200 OK", JSON, "", body)
            }
        }
    }
}

/// The error of OpenAI's newer models for a parameter that only older ones accept.
fn not_taken(request: &Value) -> Option<Value> {
    let error = |message: String, param: &str, code: &str| json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    if request.get("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        let code = "unsupported_parameter";
        return Some(error(message.to_owned(), "max_tokens", code));
    }
    let asked = request.get("temperature")?.as_f64().unwrap_or_default();
    (asked != 1.0).then(|| {
        let message = format!(
            "Unsupported value: 'temperature' does not support {asked} with this model. Only the default (1) value is supported."
        );
        error(message, "temperature", "unsupported_value")
    })
}

fn piece(text: &str, finish: Option<&str>) -> Value {
    json!({
        "object": "chat.completion.chunk",
        "system_fingerprint": SIMULATED,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}],
    })
}

fn stream_answer(stream: &mut TcpStream, request: &Value, text: &str, end: &str) -> io::Result<()> {
    let words = |text: &str| text.split_whitespace().count();
    let prompt: usize = messages(request).map(words).sum();
    let mut body = String::new();
    // Two pieces, split between characters, test that a client joins them.
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at));
    let (first, second) = text.split_at(middle.unwrap_or(0));
    for (text, finish) in [(first, None), (second, Some(end))] {
        body.push_str(&format!("data: {}\n\n", piece(text, finish)));
    }
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": words(text)});
    body.push_str(&format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage})));
    respond(stream, "200 OK", EVENTS, "", body.as_bytes())
}

fn json_answer(stream: &mut TcpStream, status: &str, more: &str, body: &Value) -> io::Result<()> {
    respond(stream, status, JSON, more, body.to_string().as_bytes())
}

fn respond(stream: &mut TcpStream, status: &str, kind: &str, more: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn messages(request: &Value) -> impl Iterator<Item = &str> {
    let messages = request.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten();
    messages.filter_map(|message| message.get("content").and_then(Value::as_str))
}

fn own_answer(request: &Value) -> String {
    let line = messages(request).last().and_then(|text| text.trim().lines().last());
    let line = line.unwrap_or_default();
    match request.pointer("/response_format/json_schema/schema") {
        Some(schema) => least(schema, "", line).to_string(),
        None => format!("{line}\n"),
    }
}

/// The minimal value that a schema permits.
fn least(schema: &Value, name: &str, line: &str) -> Value {
    if let Some(first) = schema.get("enum").and_then(|values| values.get(0)) {
        return first.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let properties = properties.into_iter().flatten();
            properties.map(|(name, schema)| (name.clone(), least(schema, name, line))).collect()
        }
        Some("array") => json!([]),
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(0),
        _ if name == "content" => json!(format!("{line}\n")),
        _ => json!(name),
    }
}
