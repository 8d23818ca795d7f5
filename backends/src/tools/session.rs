//! A client of `ctxbench mcp` over standard input and output: JSON-RPC, one line a message.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use processes::ChildProcess;
use serde_json::{Value, json};

/// The protocol version that this client speaks.
const PROTOCOL: &str = "2025-06-18";

/// How long a server may take to end after its input has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A session with a server of our own.
#[derive(Debug)]
pub(super) struct Session {
    process: ChildProcess,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Session {
    /// Starts `program mcp` with `arguments`, and completes the handshake.
    ///
    /// # Errors
    /// If the server does not start, or does not answer as a server of MCP.
    pub(super) fn start(program: &Path, arguments: &[&std::ffi::OsStr]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("mcp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = ChildProcess::start(&mut command, ENDS_WITHIN)?;
        let output = BufReader::new(process.output()?);
        let mut session = Self { process, output, next: 0 };
        let client = json!({"name": "ctxbench-run", "version": env!("CARGO_PKG_VERSION")});
        let hello = json!({"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client});
        session.request("initialize", &hello)?;
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(session)
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        self.process.input()?.write_all(line.as_bytes())
    }

    /// The result of a request.
    ///
    /// # Errors
    /// If the server does not answer it, or answers with an error.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.next += 1;
        let id = self.next;
        let wrong = |what: &str| io::Error::other(format!("the MCP server, {method}: {what}"));
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(wrong("it ended without an answer"));
        }
        let mut answer: Value = serde_json::from_str(&line)?;
        if answer["id"] != id {
            return Err(wrong("it answered another request"));
        }
        if let Some(message) = answer["error"]["message"].as_str() {
            return Err(wrong(message));
        }
        Ok(answer["result"].take())
    }

    /// Calls a tool: the text of its answer, or of its error.
    ///
    /// # Errors
    /// As [`Session::request`].
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<String, String>> {
        let mut result = self.request("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        let Value::String(text) = result["content"][0]["text"].take() else {
            return Err(io::Error::other(format!("the MCP server, {tool}: its answer has no text")));
        };
        Ok(if result["isError"] == json!(true) { Err(text) } else { Ok(text) })
    }

    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Whether the server has ended.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.ended().ok().flatten()
    }

    /// Kills the server, as a crash does.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }
}
