//! A server over standard input and output: its signals, its end, and its answers to one client.

use std::io;
use std::sync::Arc;

use anyhow::Context;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::toolset::Toolset;
use crate::transport::AnswerTransport;

/// A server that has caught the signals which end it, and serves nothing yet.
pub struct PreparedServer {
    runtime: Runtime,
    signals: Vec<Signal>,
}

impl PreparedServer {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// If the kernel refuses a resource that the server needs.
    pub fn new() -> io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let signals = {
            let _inside = runtime.enter();
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            kinds.into_iter().map(signal).collect::<io::Result<_>>()?
        };
        Ok(Self { runtime, signals })
    }

    /// Serves until the input ends or a signal comes.
    ///
    /// # Errors
    /// If the client breaks the protocol at its start, or a task panics.
    pub fn serve(self, toolsets: Vec<Box<dyn Toolset>>) -> anyhow::Result<()> {
        let served = self.runtime.block_on(serve(Handler::new(toolsets), self.signals));
        // A read of a terminal cannot be cancelled; the runtime must not wait for it.
        self.runtime.shutdown_background();
        served
    }
}

async fn serve(handler: Handler, signals: Vec<Signal>) -> anyhow::Result<()> {
    let interrupted = async {
        let waiting = signals.into_iter().map(|mut signal| {
            Box::pin(async move {
                signal.recv().await;
            })
        });
        futures::future::select_all(waiting).await;
    };
    let served = async {
        let (input, output) = stdio_pipes();
        match handler.serve(AnswerTransport::new(input, output)).await {
            Ok(running) => {
                running.waiting().await.context("serving MCP")?;
                Ok(())
            }
            // A client may leave before it has said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context("starting an MCP session")),
        }
    };
    tokio::select! {
        () = interrupted => Ok(()),
        ended = served => ended,
    }
}

/// The most calls at once: one that hangs in a mount blocks no other one.
const CALLS_MAX: usize = 16;

/// Answers one client's requests side by side. A call that changes something waits for those that came before it and
/// change something; all that come after it wait for its end: a client may write and read without waiting between them.
struct Handler {
    tools: Vec<Tool>,
    toolsets: Arc<Vec<Box<dyn Toolset>>>,
    /// Held by a call that changes something. Its queue is in the order of arrival.
    order: Arc<Mutex<()>>,
    calls: Arc<Semaphore>,
}

impl Handler {
    fn new(toolsets: Vec<Box<dyn Toolset>>) -> Self {
        let tools = toolsets.iter().flat_map(|set| set.definitions());
        Self {
            tools: tools.collect(),
            toolsets: Arc::new(toolsets),
            order: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
        }
    }

    /// Waits until a call may begin; `None` if the client has cancelled it before, so that it takes no more memory.
    async fn turn(&self, changes: bool, cancelled: impl Future<Output = ()>) -> Option<Turn> {
        let waiting = async {
            let order = Arc::clone(&self.order).lock_owned().await;
            let order = changes.then_some(order);
            let call = Arc::clone(&self.calls).acquire_owned().await.ok()?;
            Some(Turn { _order: order, _call: call })
        };
        tokio::select! {
            biased;
            () = cancelled => None,
            turn = waiting => turn,
        }
    }
}

/// The right of a call to run.
struct Turn {
    /// Of a call that changes something.
    _order: Option<OwnedMutexGuard<()>>,
    _call: OwnedSemaphorePermit,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("ctxbench", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let name = request.name.clone();
        let changes = self.toolsets.iter().any(|set| set.changes(&name));
        let failed = |error: &dyn std::fmt::Display| {
            ErrorData::internal_error(format!("{} failed: {error}", request.name), None)
        };
        let turn = self.turn(changes, context.ct.cancelled()).await;
        let turn = turn.ok_or_else(|| failed(&"the client has cancelled it"))?;
        let toolsets = Arc::clone(&self.toolsets);
        // A call may take seconds, or hang in a mount: signals, pings and the end of the input must be heard meanwhile.
        let called = tokio::task::spawn_blocking(move || {
            let mut called = toolsets.iter().filter_map(|set| set.call(&name, arguments.clone()));
            let called = called.next();
            drop(turn);
            called
        });
        let called = called.await.map_err(|error| failed(&error))?;
        match called {
            Some(Ok(text)) => Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into()),
            Some(Err(text)) => Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into()),
            None => {
                let message = format!("unknown tool {}; tools/list shows the tools", request.name);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_cancelled_call_ends_while_it_waits_and_never_begins() {
        let handler = Handler::new(Vec::new());
        let changing = handler.turn(true, pending()).await;
        assert!(changing.is_some());
        for changes in [true, false] {
            assert!(handler.turn(changes, ready(())).await.is_none());
        }
        drop(changing);
        assert!(handler.turn(true, pending()).await.is_some());
    }
}
