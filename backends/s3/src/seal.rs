//! Encryption: whole objects by XChaCha20-Poly1305, names of blobs by a keyed hash.
//!
//! ```text
//! magic (8 bytes) | nonce (24 bytes, random) | ciphertext | tag (16 bytes)
//! ```
//!
//! The tag also covers the magic and the object's key: an object under another key does not open.

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::tree::Hash;

/// The first bytes of every sealed object; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"ctxseal\x01";

/// Why an object cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not sealed.
    #[error("it is not encrypted, but a key is given (remove CTXBENCH_S3_KEY and --key-file)")]
    Plain,
    /// Another key sealed it, or its bytes were changed.
    #[error(
        "this key does not decrypt it: it was encrypted with another key, moved, or damaged (give \
         the right key with CTXBENCH_S3_KEY or --key-file)"
    )]
    Closed,
    /// The kernel provides no random bytes.
    #[error("the kernel provides no random bytes")]
    Random,
}

/// Seals and opens objects with one key.
#[derive(Clone)]
pub struct Seal {
    cipher: XChaCha20Poly1305,
    names: Hash,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

/// Whether an object looks sealed.
pub fn is_sealed(object: &[u8]) -> bool {
    object.starts_with(MAGIC)
}

impl Seal {
    /// For a key of 32 random bytes; content and names get derived keys.
    pub fn new(key: &[u8; 32]) -> Self {
        let content = Hash::with_key(key, b"ctxbench s3 objects 1");
        Self { cipher: XChaCha20Poly1305::new(&content.0.into()), names: Hash::with_key(key, b"ctxbench s3 names 1") }
    }

    /// The name of the blob of a digest, which it does not tell without the key.
    pub fn blob_name(&self, hash: Hash) -> String {
        Hash::with_key(&self.names.0, &hash.0).to_string()
    }

    /// The object that holds `content` under `key`.
    pub fn seal(&self, key: &str, content: &[u8]) -> Result<Bytes, SealError> {
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|_| SealError::Random)?;
        let (msg, aad) = (content, &[MAGIC, key.as_bytes()].concat()[..]);
        let sealed = self.cipher.encrypt(&nonce.into(), Payload { msg, aad });
        let sealed = sealed.map_err(|_| SealError::Closed)?;
        Ok([&MAGIC[..], &nonce, &sealed].concat().into())
    }

    /// The content of the object under `key`.
    pub fn open(&self, key: &str, object: Bytes) -> Result<Bytes, SealError> {
        if !is_sealed(&object) {
            return Err(SealError::Plain);
        }
        let rest = object[MAGIC.len()..].split_first_chunk::<24>();
        let (nonce, msg) = rest.ok_or(SealError::Closed)?;
        let aad = &[MAGIC, key.as_bytes()].concat()[..];
        let content = self.cipher.decrypt(nonce.into(), Payload { msg, aad });
        content.map(Bytes::from).map_err(|_| SealError::Closed)
    }
}
