//! A client for OpenAI's chat completions: OpenAI, Ollama, vLLM, llama.cpp.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use network::{
    BodyError, RedirectError, TransportError, is_loopback, limits, next_chunk, read_body, read_start, refuse_plain_key,
    send,
};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use url::Url;

use crate::dialect::{Dialect, Parameter, without_limits};
use crate::secret::without_secrets;
use crate::sse::Answer;
use crate::{ApiKey, Cancel, Model, ModelError, Origin, Reply, Request, Timing, Usage};

/// Poll interval for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the list of models may take.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause between two attempts, unless `Retry-After` sets one.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Maximum characters of a server's error text that are shown.
const SAID_MAX: usize = 300;

/// The variables that may hold a key, by priority.
const KEY_VARIABLES: [&str; 2] = ["CTXBENCH_API_KEY", "OPENAI_API_KEY"];

/// Address, model and limits of a server.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The URL before `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model, unless a request names another.
    pub model: String,
    /// The API key; `None` for a server that needs none.
    pub key: Option<ApiKey>,
    /// How long one answer may take, including all attempts and pauses.
    pub timeout: Duration,
    /// Maximum number of retries after transient failures.
    pub retries: u32,
    /// The server ignores the model name of a request, so the client refuses other names.
    pub is_only_model: bool,
    /// Additional parameters of every request, such as `cache_prompt` of llama.cpp.
    pub more: Map<String, Value>,
}

impl OpenAiConfig {
    /// A server at `base_url` with two retries and no additional parameters.
    ///
    /// The key comes from `CTXBENCH_API_KEY` or `OPENAI_API_KEY`.
    pub fn new(base_url: &str, model: &str, timeout: Duration) -> Self {
        Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            model: model.to_owned(),
            key: ApiKey::from_environment(&KEY_VARIABLES),
            timeout,
            retries: 2,
            is_only_model: false,
            more: Map::new(),
        }
    }
}

/// A model behind an OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAi {
    config: OpenAiConfig,
    client: Client,
    runtime: Runtime,
    /// The dialects of models that have refused a parameter.
    dialects: Mutex<HashMap<String, Dialect>>,
}

/// A failed attempt, whether to retry, and after which pause.
struct Failure {
    error: ModelError,
    retry: Option<Option<Duration>>,
    /// The parameter that the model refuses; the retry omits it.
    refuses: Option<Parameter>,
}

/// The content of an error response.
struct ErrorReply {
    text: String,
    refuses: Option<Parameter>,
}

impl OpenAi {
    /// Creates a client without sending a request.
    ///
    /// # Errors
    /// If the URL is invalid, or there is no key for `api.openai.com`.
    pub fn new(config: OpenAiConfig) -> Result<Self, ModelError> {
        let unreachable = |why: String| ModelError::Unreachable { url: without_secrets(&config.base_url), why };
        let url = Url::parse(&config.base_url).map_err(|error| unreachable(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "an address must not hold a name or a password";
            return Err(unreachable(why.to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            let why = "an address must not hold a query";
            return Err(unreachable(why.to_owned()));
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unreachable("it is neither http nor https".to_owned()));
        }
        if config.key.is_none() && url.host_str() == Some("api.openai.com") {
            return Err(ModelError::NoKey { url: config.base_url });
        }
        if config.key.is_some() {
            refuse_plain_key(&url, &KEY_VARIABLES.join(" or "))
                .map_err(|why| ModelError::PlainKey { url: without_secrets(&config.base_url), why })?;
        }
        let mut client = network::client().connect_timeout(CONNECT.min(config.timeout));
        if url.host_str().is_some_and(is_loopback) {
            // A proxy would see file content, and cannot reach this machine's loopback servers.
            client = client.no_proxy();
        }
        let client = network::build(client).map_err(|error| unreachable(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("model")
            .enable_all()
            .build()
            .map_err(|error| unreachable(error.to_string()))?;
        Ok(Self { config, client, runtime, dialects: Mutex::default() })
    }

    /// Requests the list of models: checks that the server answers, accepts the key, and has the model.
    ///
    /// # Errors
    /// If a check fails. A server without such a list passes.
    pub fn check(&self) -> Result<(), ModelError> {
        let url = format!("{}/models", self.config.base_url);
        let asked = async {
            let response = send(self.authorised(self.client.get(&url))).await;
            let response = response.map_err(|error| self.unsent(&error))?;
            let status = response.status();
            if status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            if let Some(redirected) = RedirectError::of(&response) {
                return Err(self.redirected(redirected));
            }
            if !status.is_success() {
                return Err(self.status_error(status, self.said(response).await).error);
            }
            let bytes = read_body(response, limits::MODEL_LIST).await;
            let bytes = bytes.map_err(|error| self.malformed(&error.to_string()))?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let patience = LIST_PATIENCE.min(self.config.timeout);
        let timed = self.runtime.block_on(async { tokio::time::timeout(patience, asked).await });
        let answered =
            timed.map_err(|_| ModelError::TimedOut { url: self.config.base_url.clone(), after: patience })?;
        let Some(text) = answered? else {
            tracing::info!("{} lists no models; continuing without a list", self.config.base_url);
            return Ok(());
        };
        let list: Value = serde_json::from_str(&text)
            .map_err(|error| self.malformed(&format!("its list of models is not JSON: {error}")))?;
        let names = list.get("data").and_then(Value::as_array);
        let names = names.into_iter().flatten();
        let mut known: Vec<String> =
            names.filter_map(|model| model.get("id").and_then(Value::as_str)).map(str::to_owned).collect();
        if known.is_empty() || self.config.is_only_model || known.contains(&self.config.model) {
            return Ok(());
        }
        known.truncate(20);
        Err(self.no_such_model(&self.config.model, known))
    }

    fn authorised(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.config.key {
            Some(key) => request.bearer_auth(key.reveal()),
            None => request,
        }
    }

    fn no_such_model(&self, model: &str, known: Vec<String>) -> ModelError {
        ModelError::NoSuchModel { model: model.to_owned(), url: self.config.base_url.clone(), known }
    }

    fn redirected(&self, to: RedirectError) -> ModelError {
        ModelError::Redirected { url: self.config.base_url.clone(), to }
    }

    fn malformed(&self, why: &str) -> ModelError {
        ModelError::Malformed { url: self.config.base_url.clone(), why: self.scrub(why) }
    }

    fn scrub(&self, text: &str) -> String {
        match &self.config.key {
            Some(key) => key.scrub(text),
            None => text.to_owned(),
        }
    }

    fn unsent(&self, error: &TransportError) -> ModelError {
        let url = self.config.base_url.clone();
        if error.is_late && !error.is_connect {
            let after = self.config.timeout;
            return ModelError::TimedOut { url, after };
        }
        ModelError::Unreachable { url, why: self.scrub(&error.to_string()) }
    }

    /// Reads an error response.
    async fn said(&self, response: Response) -> ErrorReply {
        let bytes = read_start(response, limits::ERROR.within(self.config.timeout)).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let refuses = Parameter::refused_by(&text);
        let message = serde_json::from_str::<Value>(&text).ok().and_then(|body| {
            let error = body.get("error")?;
            let message = error.get("message").unwrap_or(error);
            message.as_str().map(str::to_owned)
        });
        let text = message.unwrap_or(text);
        let text = self.scrub(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let text = text.chars().take(SAID_MAX).collect();
        ErrorReply { text, refuses }
    }

    fn status_error(&self, status: StatusCode, said: ErrorReply) -> Failure {
        let url = self.config.base_url.clone();
        let refuses = said.refuses.filter(|_| status == StatusCode::BAD_REQUEST);
        let said = said.text;
        let status = status.as_u16();
        let error = match status {
            401 | 403 => ModelError::Key { url, status, said },
            404 => self.no_such_model(&self.config.model, Vec::new()),
            429 => ModelError::RateLimited { url, said, retry_after: None },
            408 | 500..=599 => ModelError::Failed { url, status, said },
            _ => ModelError::Refused { url, status, said },
        };
        Failure { error, retry: matches!(status, 408 | 429 | 500..=599).then_some(None), refuses }
    }

    /// Records that `model` refused a parameter.
    fn learn(&self, model: &str, refused: Parameter, error: &ModelError) {
        let mut dialects = self.dialects.lock();
        let dialect = dialects.entry(model.to_owned()).or_default();
        let Some(without) = dialect.without(refused) else {
            // A concurrent request has recorded it already.
            return;
        };
        *dialect = without;
        match refused {
            Parameter::MaxTokens => {
                tracing::info!(%error, "using max_completion_tokens for {model} from now on");
            }
            Parameter::SchemaLimits => {
                tracing::info!(%error, "sending {model} schemas without limits of lengths from now on");
            }
            Parameter::Temperature => tracing::warn!(
                %error,
                "sending {model} no temperature from now on: the server chooses it, and answers are not deterministic"
            ),
        }
    }

    fn body(&self, request: &Request, dialect: Dialect) -> Vec<u8> {
        let mut body = json!({
            "model": request.model,
            "messages": request.messages,
            "seed": request.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Value::Object(body) = &mut body {
            let longest = if dialect.has_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
            body.insert(longest.to_owned(), request.max_tokens.into());
            if !dialect.has_own_sampling {
                body.insert("temperature".to_owned(), request.temperature.into());
            }
            if let Some(schema) = &request.schema {
                let unlimited = dialect.has_unlimited_schemas.then(|| without_limits(&schema.schema));
                let form = json!({
                    "type": "json_schema",
                    "json_schema": {
                        "name": schema.name,
                        "strict": true,
                        "schema": unlimited.as_ref().unwrap_or(&schema.schema),
                    },
                });
                body.insert("response_format".to_owned(), form);
            }
            body.extend(self.config.more.clone());
        }
        body.to_string().into_bytes()
    }

    async fn attempt(&self, request: &Request, dialect: Dialect) -> Result<(Answer, Timing), Failure> {
        let failed = |error, retry| Failure { error, retry, refuses: None };
        let passing = |error| failed(error, Some(None));
        let malformed = |why: &str| failed(self.malformed(why), None);
        let started = Instant::now();
        let url = format!("{}/chat/completions", self.config.base_url);
        let request = self
            .authorised(self.client.post(url))
            .header(CONTENT_TYPE, "application/json")
            .body(self.body(request, dialect));
        let mut response = send(request).await.map_err(|error| passing(self.unsent(&error)))?;
        let status = response.status();
        if let Some(redirected) = RedirectError::of(&response) {
            return Err(failed(self.redirected(redirected), None));
        }
        if !status.is_success() {
            let retry_after = retry_after(response.headers());
            let mut failure = self.status_error(status, self.said(response).await);
            if let Some(retry) = &mut failure.retry {
                *retry = retry_after;
            }
            return Err(failure);
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let is_whole =
            kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("application/json"));
        let mut answer = Answer::default();
        let mut first_byte = None;
        let broke_off = |why: String, bytes| ModelError::BrokeOff {
            url: self.config.base_url.clone(),
            bytes,
            why: self.scrub(&why),
        };
        if is_whole {
            first_byte = Some(started.elapsed());
            let limit = limits::MODEL_ANSWER.within(self.config.timeout);
            let body = read_body(response, limit).await.map_err(|error| match error {
                BodyError::Broken(error) => passing(broke_off(error.to_string(), 0)),
                error => malformed(&error.to_string()),
            })?;
            let text = std::str::from_utf8(&body).map_err(|_| malformed("it is not UTF-8"))?;
            let event: Value =
                serde_json::from_str(text).map_err(|error| malformed(&format!("it is not JSON: {error}")))?;
            answer.event(&event).map_err(|why| malformed(&why))?;
        } else {
            while !answer.is_done {
                match next_chunk(&mut response).await {
                    Ok(Some(chunk)) => {
                        answer.push(&chunk).map_err(|why| malformed(&why))?;
                        if !answer.text.is_empty() {
                            first_byte.get_or_insert_with(|| started.elapsed());
                        }
                    }
                    // Some servers end the stream without `[DONE]`; a finish reason then completes the answer.
                    Ok(None) if answer.finish.is_some() => break,
                    Ok(None) => {
                        let why = "the stream ended before the answer did".to_owned();
                        return Err(passing(broke_off(why, answer.text.len())));
                    }
                    Err(error) => {
                        return Err(passing(broke_off(error.to_string(), answer.text.len())));
                    }
                }
            }
        }
        let total = started.elapsed();
        let timing = Timing { first_byte: first_byte.unwrap_or(total), total, ..Timing::default() };
        Ok((answer, timing))
    }

    /// Waits until `work` is done, the deadline passes, or the request is cancelled.
    async fn within<T>(
        &self,
        work: impl Future<Output = T>,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<T, ModelError> {
        let cancelled = async {
            while !cancel.is_cancelled() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            done = work => Ok(done),
            () = cancelled => Err(ModelError::Cancelled),
            () = tokio::time::sleep_until(deadline.into()) => Err(ModelError::TimedOut {
                url: self.config.base_url.clone(),
                after: self.config.timeout,
            }),
        }
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.config.model
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        if self.config.is_only_model && request.model != self.config.model {
            let known = vec![self.config.model.clone()];
            return Err(self.no_such_model(&request.model, known));
        }
        let deadline = Instant::now() + self.config.timeout;
        let deadline = cancel.deadline().map_or(deadline, |at| at.min(deadline));
        self.runtime.block_on(async {
            let known = self.dialects.lock().get(&request.model).copied();
            let mut dialect = known.unwrap_or_default();
            // An attempt refused because of a parameter does not count as a retry.
            let (mut attempts, mut refused, mut broke_off) = (0, 0, 0);
            loop {
                attempts += 1;
                let attempt = self.attempt(request, dialect);
                let failure = match self.within(attempt, deadline, cancel).await? {
                    Ok((answer, timing)) => {
                        let timing = Timing { attempts, broke_off, ..timing };
                        return Ok(reply(request, answer, timing, dialect));
                    }
                    Err(failure) => failure,
                };
                if let Some(parameter) = failure.refuses
                    && let Some(without) = dialect.without(parameter)
                {
                    self.learn(&request.model, parameter, &failure.error);
                    dialect = without;
                    refused += 1;
                    continue;
                }
                broke_off += u32::from(failure.error.has_been_asked());
                let failed: u32 = attempts - refused;
                let Some(named) = failure.retry.filter(|_| failed <= self.config.retries) else {
                    return Err(failure.error);
                };
                let backoff = Duration::from_millis(250) * 2_u32.pow(failed.min(6) - 1);
                let pause = named.unwrap_or_else(|| backoff.min(PAUSE_MAX));
                // Comparing durations avoids an overflow: `Retry-After` may exceed the range of `Instant`.
                if pause > deadline.saturating_duration_since(Instant::now()) {
                    return Err(match failure.error {
                        ModelError::RateLimited { url, said, .. } => {
                            ModelError::RateLimited { url, said, retry_after: named }
                        }
                        error => error,
                    });
                }
                tracing::info!(error = %failure.error, "retrying in {} ms", pause.as_millis());
                self.within(tokio::time::sleep(pause), deadline, cancel).await?;
            }
        })
    }
}

fn reply(request: &Request, answer: Answer, timing: Timing, dialect: Dialect) -> Reply {
    let usage = answer.usage.unwrap_or_else(|| Usage {
        prompt: request.estimated_tokens(),
        output: tokens::count(&answer.text),
        is_estimated: true,
    });
    Reply {
        finish: answer.finish(),
        usage,
        timing,
        origin: if answer.is_simulated { Origin::Simulated } else { Origin::Live },
        text: answer.text,
        has_own_sampling: dialect.has_own_sampling,
    }
}

/// Parses `Retry-After`: seconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let wait = at.duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(wait).unwrap_or_default())
}
