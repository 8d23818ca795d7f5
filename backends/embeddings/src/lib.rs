//! Sentence embeddings: a BERT model in this process, on the CPU.
//!
//! [`SentenceModel::load`] reads a directory of sentence-transformers, [`SentenceModel::question`] and
//! [`SentenceModel::note`] split a text into word pieces, [`SentenceModel::embed`] computes unit vectors. The closer two
//! texts in meaning, the closer their [`cosine`] is to 1. The crate `agent-memory` decides what to embed and stores
//! the vectors.

mod bert;
mod layers;
mod math;
mod place;
mod products;
mod wordpiece;

pub use bert::{Config, SentenceModel, SentenceModelError};
pub use place::{MissingModel, VARIABLE, find};

/// The cosine of two vectors of length 1.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
