//! Models that make vectors of texts, and what a memory says of the one it has.

use std::path::PathBuf;

/// What makes vectors of texts; texts that mean the same have vectors of about the same direction.
pub trait Embedder: Send + Sync {
    /// Which model it is: vectors of one say nothing to another.
    fn id(&self) -> &str;

    /// How many numbers a vector has.
    fn dimensions(&self) -> usize;

    /// What is embedded of a text; nothing if it says nothing.
    fn pieces(&self, text: &str) -> Vec<u32>;

    /// The vectors of texts by their pieces, one each, of length 1.
    ///
    /// # Errors
    /// What went wrong.
    fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String>;
}

impl Embedder for embeddings::Model {
    fn id(&self) -> &str {
        embeddings::Model::id(self)
    }

    fn dimensions(&self) -> usize {
        embeddings::Model::dimensions(self)
    }

    fn pieces(&self, text: &str) -> Vec<u32> {
        let pieces = self.tokens(text);
        // Every text begins with one piece and ends with another.
        if pieces.len() <= 2 {
            return Vec::new();
        }
        pieces
    }

    fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String> {
        embeddings::Model::embed(self, texts).map_err(|error| error.to_string())
    }
}

/// Where the model is that relevance by meaning needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Embeddings {
    /// Full text alone.
    Off {
        /// Why, for `:stats`.
        reason: String,
    },
    /// A directory that [`embeddings::Model::load`] reads.
    In(PathBuf),
}

/// How far embedding is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingState {
    /// Full text alone, and why.
    Off(String),
    /// The model is being read.
    Loading,
    /// So many notes have no vector yet.
    Ready {
        /// See [`Embedder::id`].
        model: String,
        /// Notes without a vector.
        waiting: u64,
    },
    /// The model or the database could not be read, or vectors not be made or kept, five times in a row.
    Failed(String),
}
