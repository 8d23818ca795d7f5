//! BERT (Devlin and others, 2019), as in sentence-transformers, but that products with weights are of quantised numbers.
//!
//! A sentence's vector is the mean of the last layer (Reimers and Gurevych, *Sentence-BERT*, 2019).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hex_simd::AsciiCase;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::layers::{self, Layer, Projection, Weights, add};
use crate::math::{LayerNorm, normalise};
use crate::wordpiece::Vocabulary;

/// The file with the weights.
pub(crate) const WEIGHTS: &str = "model.safetensors";

/// Maximum word pieces of a text, unless the model's files set a limit.
const PIECES_MAX: usize = 256;

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SentenceModelError {
    /// A file of the model cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file of the model is invalid or unsupported.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The dimensions of a model, from `config.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Config {
    model_type: String,
    hidden_act: String,
    /// Number of elements of a vector.
    pub hidden_size: usize,
    intermediate_size: usize,
    layer_norm_eps: f32,
    max_position_embeddings: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    vocab_size: usize,
}

#[derive(Deserialize)]
struct Pooling {
    pooling_mode_mean_tokens: bool,
}

#[derive(Deserialize)]
struct Limits {
    max_seq_length: usize,
}

/// The prefixes that the model expects before a text.
#[derive(Default, Deserialize)]
struct Prompts {
    #[serde(default)]
    query: String,
    #[serde(default)]
    document: String,
}

#[derive(Default, Deserialize)]
struct PromptConfig {
    #[serde(default)]
    prompts: Prompts,
}

/// Questions and notes, a line each. No two are about the same subject.
const UNRELATED: &str = include_str!("unrelated.txt");

/// A model with its layers in memory. The vectors of word pieces are read from its file on demand.
pub struct SentenceModel {
    config: Config,
    vocabulary: Vocabulary,
    id: String,
    pieces_max: usize,
    weights: PathBuf,
    file: File,
    /// Byte offset of the word pieces' vectors in the file.
    rows_at: u64,
    positions: Vec<f32>,
    kind: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
    prompts: Prompts,
    /// The component common to all vectors; E5's vectors are mostly that.
    centre: Vec<f32>,
}

impl std::fmt::Debug for SentenceModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SentenceModel").field("id", &self.id).field("config", &self.config).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, SentenceModelError> {
    std::fs::read(path).map_err(|error| SentenceModelError::Io { path: path.to_owned(), error })
}

fn malformed(path: &Path, reason: impl ToString) -> SentenceModelError {
    SentenceModelError::Malformed { path: path.to_owned(), reason: reason.to_string() }
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path, bytes: &[u8]) -> Result<T, SentenceModelError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(path, error))
}

impl Config {
    /// Reads and checks the small files of a model, without reading its weights.
    ///
    /// # Errors
    /// [`SentenceModelError`].
    pub fn read(dir: &Path) -> Result<Self, SentenceModelError> {
        let path = dir.join("config.json");
        let config: Self = parse(&path, &read(&path)?)?;
        if (config.model_type.as_str(), config.hidden_act.as_str()) != ("bert", "gelu") {
            let reason = format!(
                "models of type {} with {} are not supported: only bert with gelu is",
                config.model_type, config.hidden_act
            );
            return Err(malformed(&path, reason));
        }
        let heads = config.num_attention_heads;
        if heads == 0 || !config.hidden_size.is_multiple_of(heads) || config.hidden_size == 0 {
            return Err(malformed(&path, "num_attention_heads does not divide hidden_size"));
        }
        if config.max_position_embeddings < 2 || config.intermediate_size == 0 || config.vocab_size == 0 {
            return Err(malformed(&path, "max_position_embeddings, intermediate_size or vocab_size is too small"));
        }
        let path = dir.join("1_Pooling/config.json");
        let pooling: Pooling = parse(&path, &read(&path)?)?;
        if !pooling.pooling_mode_mean_tokens {
            return Err(malformed(&path, "only mean pooling of tokens is supported"));
        }
        let path = dir.join(WEIGHTS);
        std::fs::metadata(&path).map_err(|error| SentenceModelError::Io { path, error })?;
        Ok(config)
    }
}

/// The weights of a model by name.
struct Tensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Tensors<'_> {
    fn take(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, SentenceModelError> {
        let named = |reason: String| malformed(self.path, format!("{name}: {reason}"));
        let view = self.tensors.tensor(name).map_err(|error| named(error.to_string()))?;
        if view.dtype() != Dtype::F32 || view.shape() != shape {
            return Err(named(format!("{:?} of {:?}, and not F32 of {shape:?}", view.dtype(), view.shape())));
        }
        let (numbers, _) = view.data().as_chunks::<4>();
        let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let numbers: Vec<f32> = numbers.collect();
        if numbers.iter().all(|number| number.is_finite()) {
            Ok(numbers)
        } else {
            Err(named("it has a number that is infinite or NaN".to_owned()))
        }
    }

    fn projection(&self, name: &str, outputs: usize, inputs: usize) -> Result<Projection, SentenceModelError> {
        Ok(Projection {
            weight: self.take(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.take(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn norm(&self, name: &str, config: &Config) -> Result<LayerNorm, SentenceModelError> {
        let width = [config.hidden_size];
        Ok(LayerNorm {
            weight: self.take(&format!("{name}.weight"), &width)?,
            bias: self.take(&format!("{name}.bias"), &width)?,
            epsilon: config.layer_norm_eps,
        })
    }

    fn layer(&self, number: usize, config: &Config) -> Result<Layer, SentenceModelError> {
        let (width, wide) = (config.hidden_size, config.intermediate_size);
        let at = |name: &str| format!("encoder.layer.{number}.{name}");
        let attention = |name: &str| self.projection(&at(&format!("attention.self.{name}")), width, width);
        Ok(Layer::new(Weights {
            heads: config.num_attention_heads,
            qkv: [attention("query")?, attention("key")?, attention("value")?],
            mixed: self.projection(&at("attention.output.dense"), width, width)?,
            mixed_norm: self.norm(&at("attention.output.LayerNorm"), config)?,
            wide: self.projection(&at("intermediate.dense"), wide, width)?,
            narrow: self.projection(&at("output.dense"), width, wide)?,
            narrow_norm: self.norm(&at("output.LayerNorm"), config)?,
        }))
    }
}

const PIECES: &str = "embeddings.word_embeddings.weight";

impl SentenceModel {
    /// Reads a model, and embeds the twelve texts of `unrelated.txt`.
    ///
    /// `dir` holds the files of sentence-transformers: `model.safetensors`, `vocab.txt`, `config.json`,
    /// `1_Pooling/config.json` and optionally `sentence_bert_config.json` and `config_sentence_transformers.json`.
    ///
    /// # Errors
    /// [`SentenceModelError`], with the file and the reason.
    pub fn load(dir: &Path) -> Result<Self, SentenceModelError> {
        let config = Config::read(dir)?;
        let path = dir.join("vocab.txt");
        let vocabulary_text = read(&path)?;
        let text = std::str::from_utf8(&vocabulary_text).map_err(|error| malformed(&path, error))?;
        let vocabulary = Vocabulary::parse(text).map_err(|piece| malformed(&path, format!("{piece} is missing")))?;
        if vocabulary.len() > config.vocab_size {
            return Err(malformed(&path, format!("more than the {} pieces of config.json", config.vocab_size)));
        }
        let path = dir.join("sentence_bert_config.json");
        let pieces_max = if path.exists() { parse::<Limits>(&path, &read(&path)?)?.max_seq_length } else { PIECES_MAX };
        let path = dir.join("config_sentence_transformers.json");
        let prompts =
            if path.exists() { parse::<PromptConfig>(&path, &read(&path)?)?.prompts } else { Prompts::default() };

        let path = dir.join(WEIGHTS);
        let bytes = read(&path)?;
        let broken = |error: SafeTensorError| malformed(&path, error);
        let (header, metadata): (usize, Metadata) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
        let tensors = Tensors { path: &path, tensors: SafeTensors::deserialize(&bytes).map_err(broken)? };
        let width = config.hidden_size;
        let rows = metadata.info(PIECES).ok_or_else(|| malformed(&path, format!("{PIECES} is missing")))?;
        if rows.dtype != Dtype::F32 || rows.shape != [config.vocab_size, width] {
            return Err(malformed(&path, format!("{PIECES} is {:?} of {:?}", rows.dtype, rows.shape)));
        }
        let kinds = tensors.tensors.tensor("embeddings.token_type_embeddings.weight").map_err(broken)?;
        let mut kind = tensors.take("embeddings.token_type_embeddings.weight", kinds.shape())?;
        kind.truncate(width);
        if kind.len() != width {
            return Err(malformed(&path, "embeddings.token_type_embeddings.weight is too small"));
        }
        let mut hash = Sha256::new();
        let made_of = [&prompts.query, &prompts.document, UNRELATED];
        let made_of = made_of.map(str::as_bytes);
        for part in [&*bytes, &*vocabulary_text].into_iter().chain(made_of) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let id = hex_simd::encode_to_string(&hash.finalize()[..8], AsciiCase::Lower);
        let mut model = Self {
            id,
            pieces_max: pieces_max.clamp(2, config.max_position_embeddings),
            file: File::open(&path).map_err(|error| SentenceModelError::Io { path: path.clone(), error })?,
            rows_at: 8 + (header + rows.data_offsets.0) as u64,
            positions: tensors
                .take("embeddings.position_embeddings.weight", &[config.max_position_embeddings, width])?,
            kind,
            norm: tensors.norm("embeddings.LayerNorm", &config)?,
            layers: (0..config.num_hidden_layers)
                .map(|number| tensors.layer(number, &config))
                .collect::<Result<_, _>>()?,
            weights: path.clone(),
            vocabulary,
            config,
            prompts,
            centre: vec![0.0; width],
        };
        model.centre = model.mean_of_unrelated()?;
        Ok(model)
    }

    /// The mean vector of texts that are about different things.
    fn mean_of_unrelated(&self) -> Result<Vec<f32>, SentenceModelError> {
        let texts: Vec<Vec<u32>> = UNRELATED
            .lines()
            .map(|line| if line.ends_with('?') { self.question(line) } else { self.note(line) })
            .collect();
        let mut mean = vec![0.0; self.config.hidden_size];
        for vector in self.embed(&texts)? {
            add(&mut mean, &vector);
        }
        mean.iter_mut().for_each(|number| *number /= texts.len() as f32);
        Ok(mean)
    }

    /// The first 8 bytes of the SHA-256 of weights, vocabulary, prompts and `unrelated.txt`, in hexadecimal.
    ///
    /// Vectors of models with different IDs are not comparable.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Number of elements of a vector.
    pub fn dimensions(&self) -> usize {
        self.config.hidden_size
    }

    /// The word pieces of a question, including `[CLS]` and `[SEP]`, truncated to the model's limit; none if it has no words.
    pub fn question(&self, text: &str) -> Vec<u32> {
        self.pieces(&self.prompts.query, text)
    }

    /// The word pieces of a text that may answer questions, as [`SentenceModel::question`] has them.
    pub fn note(&self, text: &str) -> Vec<u32> {
        self.pieces(&self.prompts.document, text)
    }

    fn pieces(&self, prompt: &str, text: &str) -> Vec<u32> {
        let of_prompt = self.vocabulary.cut(prompt, self.pieces_max).len();
        let mut pieces = self.vocabulary.cut(&format!("{prompt}{text}"), self.pieces_max);
        if pieces.len() == of_prompt {
            pieces.clear();
        }
        pieces
    }

    /// The vectors of texts, each of length 1, without what the vectors of unrelated texts have in common.
    ///
    /// One call for several texts takes less work than one call each; a text alone is embedded by two threads.
    ///
    /// # Errors
    /// [`SentenceModelError`] if the model's file can no longer be read.
    ///
    /// # Panics
    /// If a text has more tokens than the model permits; those of [`SentenceModel::note`] never do.
    pub fn embed(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, SentenceModelError> {
        let width = self.config.hidden_size;
        let x = self.look_up(texts)?;
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let x = layers::pass(&self.layers, &x, &lengths);
        let mut rest = &x[..];
        Ok(texts
            .iter()
            .map(|tokens| {
                let (rows, after) = rest.split_at(tokens.len() * width);
                rest = after;
                let mut mean = vec![0.0; width];
                for row in rows.chunks_exact(width) {
                    add(&mut mean, row);
                }
                normalise(&mut mean);
                mean.iter_mut().zip(&self.centre).for_each(|(x, centre)| *x -= centre);
                normalise(&mut mean);
                mean
            })
            .collect())
    }

    /// The normalised sum of each token's word piece, position and type embeddings.
    fn look_up(&self, texts: &[Vec<u32>]) -> Result<Vec<f32>, SentenceModelError> {
        let width = self.config.hidden_size;
        let total: usize = texts.iter().map(Vec::len).sum();
        let mut x = Vec::with_capacity(total * width);
        let mut bytes = vec![0; width * 4];
        for tokens in texts {
            for (token, position) in tokens.iter().zip(self.positions.chunks_exact(width)) {
                let at = self.rows_at + u64::from(*token) * bytes.len() as u64;
                self.file
                    .read_exact_at(&mut bytes, at)
                    .map_err(|error| SentenceModelError::Io { path: self.weights.clone(), error })?;
                let (row, _) = bytes.as_chunks::<4>();
                let row = row.iter().zip(position).zip(&self.kind);
                x.extend(row.map(|((word, place), kind)| f32::from_le_bytes(*word) + place + kind));
            }
        }
        assert_eq!(x.len(), total * width, "a text has more tokens than the model has positions");
        self.norm.apply(&mut x);
        Ok(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_another_kind_is_refused_with_file_and_reason() {
        let dir = tempfile::tempdir().unwrap();
        let error = |dir: &Path| SentenceModel::load(dir).unwrap_err().to_string();
        assert!(error(dir.path()).contains("config.json"));
        let config = |kind: &str, heads: usize| {
            format!(
                r#"{{"model_type": "{kind}", "hidden_act": "gelu", "hidden_size": 4, "intermediate_size": 8,
                "layer_norm_eps": 1e-12, "max_position_embeddings": 16, "num_attention_heads": {heads},
                "num_hidden_layers": 1, "vocab_size": 5}}"#
            )
        };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("config.json", &config("roberta", 2));
        assert!(error(dir.path()).contains("roberta"));
        write("config.json", &config("bert", 3));
        assert!(error(dir.path()).contains("num_attention_heads"));
        write("config.json", &config("bert", 2));
        std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
        write("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": false}"#);
        assert!(error(dir.path()).contains("pooling"));
        write("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
        write("model.safetensors", "no tensors");
        assert!(error(dir.path()).contains("vocab.txt"));
        write("vocab.txt", "[UNK]\n[CLS]\n");
        assert!(error(dir.path()).contains("[SEP] is missing"));
        write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n");
        assert!(error(dir.path()).contains("model.safetensors"));
    }
}
