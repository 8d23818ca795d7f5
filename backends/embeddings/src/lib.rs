//! Sentence embeddings: a BERT model in this process, on the CPU.
//!
//! [`Model::load`] reads a directory of sentence-transformers, [`Model::question`] and
//! [`Model::note`] split a text into word pieces, [`Model::embed`] computes unit vectors. The closer two texts in meaning,
//! the closer their [`cosine`] is to 1. Agent memory, in `backends`, decides what to embed and stores the vectors.

mod bert;
mod layers;
mod math;
mod place;
mod products;
mod wordpiece;

pub use bert::{Config, Model, ModelError};
pub use place::{NotInstalled, VARIABLE, find};

/// The cosine of two vectors of length 1.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
