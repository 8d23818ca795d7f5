//! The [`Model`] trait, and cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::{ModelError, Reply, Request};

/// Cancellation and deadline of a request.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    is_cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Cancel {
    /// Cancels the request.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the request is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// The same cancellation, with a deadline for the answer.
    #[must_use]
    pub fn before(&self, deadline: Instant) -> Self {
        Self { is_cancelled: Arc::clone(&self.is_cancelled), deadline: Some(deadline) }
    }

    /// The deadline of the answer; `None` without one.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// A model that answers requests. Several threads may call it at once.
pub trait Model: Send + Sync {
    /// The name of the default model.
    fn name(&self) -> &str;

    /// Answers a request. Returns within the provider's timeout, by `cancel`'s deadline, and soon after a
    /// cancellation.
    ///
    /// # Errors
    /// [`ModelError`], which never holds a key.
    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError>;
}
