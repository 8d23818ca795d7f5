//! The interface of embedding models, and the state of embedding in a memory.

use std::path::PathBuf;

/// A model that turns texts into vectors. Texts of similar meaning get vectors of similar direction, unrelated ones a cosine
/// around 0.
pub trait Embedder: Send + Sync {
    /// The identity of the model. Vectors of different models cannot be compared.
    fn id(&self) -> &str;

    /// The number of dimensions of a vector.
    fn dimensions(&self) -> usize;

    /// The word pieces of a question that are embedded; none if it has no words.
    fn question(&self, text: &str) -> Vec<u32>;

    /// The word pieces of a note that are embedded; none if it has no words.
    fn note(&self, text: &str) -> Vec<u32>;

    /// One vector of length 1 for each text, given by its pieces.
    ///
    /// # Errors
    /// Why the model failed, for the log and `:stats`.
    fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String>;
}

impl Embedder for embeddings::SentenceModel {
    fn id(&self) -> &str {
        embeddings::SentenceModel::id(self)
    }

    fn dimensions(&self) -> usize {
        embeddings::SentenceModel::dimensions(self)
    }

    fn question(&self, text: &str) -> Vec<u32> {
        embeddings::SentenceModel::question(self, text)
    }

    fn note(&self, text: &str) -> Vec<u32> {
        embeddings::SentenceModel::note(self, text)
    }

    fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String> {
        embeddings::SentenceModel::embed(self, texts).map_err(|error| error.to_string())
    }
}

/// Whether to use an embedding model, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embeddings {
    /// Full text alone.
    Off {
        /// The reason, for `:stats`.
        reason: String,
    },
    /// The model in this directory, which [`embeddings::SentenceModel::load`] reads.
    In(PathBuf),
}

/// The state of embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingState {
    /// Full text alone; the reason.
    Off(String),
    /// The model is being loaded.
    Loading,
    /// The model is loaded and embeds notes.
    Ready {
        /// See [`Embedder::id`].
        model: String,
        /// Notes without a vector.
        waiting: u64,
    },
    /// Embedding has stopped; the reason. The model could not be loaded, the vectors could not be read, or a
    /// batch failed five times in a row.
    Failed(String),
}
