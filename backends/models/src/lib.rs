//! Language models that a file system asks.
//!
//! A [`Model`] answers one [`Request`] after the other: an OpenAI-compatible server ([`OpenAi`]), a
//! `llama-server` of our own over a GGUF file ([`LlamaServer`] starts and stops it), or a recording
//! ([`Cassette`]). [`Meter`] counts what any of them uses and stops at a budget. What files have to do
//! with models is not known here.

mod cassette;
mod dialect;
mod error;
mod fake;
mod gguf;
mod llama_server;
mod meter;
mod model;
mod openai;
mod request;
mod secret;
mod sse;

pub use cassette::{Cassette, CassetteError, Pace, Recorder};
pub use error::ModelError;
pub use fake::{Behaviour, FakeServer, SIMULATED};
pub use gguf::{GgufError, SMOLLM2, check_gguf, sha256_of};
pub use llama_server::{LlamaServer, LlamaServerError, find_llama_server, find_model};
pub use meter::{Budget, Meter, Price, Totals};
pub use model::{Cancel, Model, Origin};
pub use openai::{OpenAi, OpenAiConfig};
pub use request::{Finish, Message, Reply, Request, Role, Schema, Timing, Usage};
pub use secret::{ApiKey, without_secrets};
