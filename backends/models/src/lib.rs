//! Clients for language models, without any knowledge of files.
//!
//! A [`Model`] answers [`Request`]s: an OpenAI-compatible server ([`OpenAi`]), which may be a local
//! [`LlamaServer`] over a GGUF file, or a recording ([`Cassette`]). [`Meter`] counts the use of a model
//! and enforces a budget.

mod cassette;
mod dialect;
mod error;
mod fake;
mod gguf;
mod llama_server;
mod meter;
mod model;
mod openai;
mod origin;
mod request;
mod secret;
mod sse;

pub use cassette::{Cassette, CassetteError, Pace, Recorder};
pub use error::ModelError;
pub use fake::{Behaviour, FakeServer, SIMULATED};
pub use gguf::{GgufError, SMOLLM2, check_gguf, sha256_of};
pub use llama_server::{LlamaServer, LlamaServerError, find_llama_server, find_model};
pub use meter::{Budget, Meter, Price, Totals};
pub use model::{Cancel, Model};
pub use openai::{OpenAi, OpenAiConfig};
pub use origin::Origin;
pub use request::{Finish, Message, Reply, Request, Role, Schema, Timing, Usage};
pub use secret::{ApiKey, without_secrets};
