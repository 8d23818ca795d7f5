//! What every model can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::{ModelError, Reply, Request};

/// Where an answer comes from. Latencies of different origins are never pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A model that answered now.
    Live,
    /// A recording of a model's answer, with the latency that was measured then.
    Recorded,
    /// No model: a program that answers like one.
    Simulated,
}

impl Origin {
    /// Its name in results and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Recorded => "recorded",
            Self::Simulated => "simulated",
        }
    }
}

/// Tells whoever works on an answer that nobody wants it any more.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nobody wants the answer any more.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that answers requests. Called from several threads at once.
pub trait Model: Send + Sync {
    /// The name of the model that answers unless a request names another.
    fn name(&self) -> &str;

    /// Answers a request; returns within the provider's timeout, and soon after `cancel`.
    ///
    /// # Errors
    /// [`ModelError`], which never holds a key.
    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError>;
}
