//! What every model can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

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

/// Tells whoever works on an answer that nobody wants it any more, and until when it is wanted.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    is_cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Cancel {
    /// Nobody wants the answer any more.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// The same, for an answer that comes too late after `deadline`.
    #[must_use]
    pub fn before(&self, deadline: Instant) -> Self {
        Self {
            is_cancelled: Arc::clone(&self.is_cancelled),
            deadline: Some(deadline),
        }
    }

    /// When an answer would come too late, where somebody has said so.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Something that answers requests. Called from several threads at once.
pub trait Model: Send + Sync {
    /// The name of the model that answers unless a request names another.
    fn name(&self) -> &str;

    /// Answers a request; returns within the provider's timeout, by `cancel`'s deadline, and soon after it is cancelled.
    ///
    /// # Errors
    /// [`ModelError`], which never holds a key.
    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError>;
}
