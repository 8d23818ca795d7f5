//! What a text means, as a vector: a sentence model of the BERT kind, run in this process on the processor.
//!
//! [`Model::load`] reads a directory as sentence-transformers writes it (`model.safetensors`, `vocab.txt`,
//! `config.json`, `1_Pooling/config.json`), [`Model::tokens`] cuts a text into word pieces, [`Model::embed`] makes
//! vectors of length 1 of them: the closer two texts are in meaning, the closer their product is to 1.
//!
//! What lives elsewhere: what is embedded, when, and where vectors are kept (agent memory, in `backends`).

mod bert;
mod math;
mod place;
mod wordpiece;

pub use bert::{Config, Model, ModelError};
pub use place::{NotInstalled, VARIABLE, find};

/// The cosine of two vectors of length 1.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
