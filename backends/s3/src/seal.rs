//! Encryption: whole objects by XChaCha20-Poly1305, names of blobs by a keyed hash.
//!
//! ```text
//! magic (8 bytes) | nonce (24 bytes, random) | ciphertext | tag (16 bytes)
//! ```
//!
//! The tag also covers the magic and the object's key: an object under another key does not open.

use bytes::Bytes;
use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::tree::Hash;

/// The first bytes of every sealed object; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"ctxseal\x01";

/// Bytes before the ciphertext: the magic and the nonce.
const START: usize = MAGIC.len() + 24;

/// Bytes after the ciphertext.
const TAG: usize = 16;

/// Why an object cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not sealed.
    #[error("it is not encrypted, but a key was given (leave out CTXBENCH_S3_KEY and --key-file)")]
    Plain,
    /// Another key sealed it, or its bytes were changed.
    #[error(
        "it does not open with this key: it was encrypted with another key, moved, or damaged (give the key it was \
         written with in CTXBENCH_S3_KEY or --key-file)"
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
    names: [u8; 32],
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

fn keyed_hash(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    // HMAC pads a short key with zeros.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut hash = Hmac::<Sha256>::new(&block.into());
    hash.update(bytes);
    hash.finalize().into_bytes().into()
}

/// What the tag covers beside the content.
fn associated(key: &str) -> Vec<u8> {
    [MAGIC, key.as_bytes()].concat()
}

/// Whether an object looks sealed.
pub fn is_sealed(object: &[u8]) -> bool {
    object.starts_with(MAGIC)
}

impl Seal {
    /// For a key of 32 random bytes; content and names get derived keys.
    pub fn new(key: &[u8; 32]) -> Self {
        let content = keyed_hash(key, b"ctxbench s3 objects 1");
        Self {
            cipher: XChaCha20Poly1305::new(&content.into()),
            names: keyed_hash(key, b"ctxbench s3 names 1"),
        }
    }

    /// The name of the blob of a digest, which it does not tell without the key.
    pub fn blob_name(&self, hash: Hash) -> String {
        Hash(keyed_hash(&self.names, &hash.0)).to_string()
    }

    /// The object that holds `content` under `key`.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn seal(&self, key: &str, content: &[u8]) -> Result<Bytes, SealError> {
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut object = Vec::with_capacity(START + content.len() + TAG);
        object.extend(MAGIC);
        object.extend(nonce);
        object.extend(content);
        let (nonce, buffer) = (XNonce::from(nonce), &mut object[START..]);
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce, &associated(key), buffer.into())
            .map_err(|_| SealError::Closed)?;
        object.extend(tag);
        Ok(object.into())
    }

    /// The content of the object under `key`.
    ///
    /// # Errors
    /// [`SealError::Plain`] or [`SealError::Closed`].
    pub fn open(&self, key: &str, object: Bytes) -> Result<Bytes, SealError> {
        if !is_sealed(&object) {
            return Err(SealError::Plain);
        }
        let mut object = Vec::from(object);
        let end = object.len().checked_sub(TAG).filter(|end| *end >= START);
        let end = end.ok_or(SealError::Closed)?;
        let (object_start, tag) = object.split_at_mut(end);
        let (start, content) = object_start.split_at_mut(START);
        let nonce = XNonce::try_from(&start[MAGIC.len()..]).map_err(|_| SealError::Closed)?;
        let tag = Tag::try_from(&*tag).map_err(|_| SealError::Closed)?;
        self.cipher
            .decrypt_inout_detached(&nonce, &associated(key), content.into(), &tag)
            .map_err(|_| SealError::Closed)?;
        Ok(Bytes::from(object).slice(START..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_opens_only_with_its_key_under_its_name_and_unchanged() {
        let seal = Seal::new(&[1; 32]);
        for length in [0, 1, 200_000] {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let object = seal.seal("log/1", &content).unwrap();
            assert_eq!(seal.open("log/1", object.clone()).unwrap(), content);
            assert_eq!(seal.open("log/2", object.clone()), Err(SealError::Closed));
            let other = Seal::new(&[2; 32]);
            assert_eq!(other.open("log/1", object.clone()), Err(SealError::Closed));
            for at in [MAGIC.len(), object.len() / 2, object.len() - 1] {
                let mut damaged = object.to_vec();
                damaged[at] ^= 1;
                assert_eq!(seal.open("log/1", damaged.into()), Err(SealError::Closed));
            }
            let cut = object.slice(..object.len() - 1);
            assert_eq!(seal.open("log/1", cut), Err(SealError::Closed));
            assert_ne!(
                object,
                seal.seal("log/1", &content).unwrap(),
                "random nonce"
            );
        }
        let plain = Bytes::from_static(b"ctxlog\0\x01");
        assert_eq!(seal.open("log/1", plain), Err(SealError::Plain));
        let short = Bytes::from_static(MAGIC);
        assert_eq!(seal.open("log/1", short), Err(SealError::Closed));
    }

    #[test]
    fn the_name_of_a_blob_does_not_tell_its_digest() {
        let (seal, hash) = (Seal::new(&[1; 32]), Hash::of(b"x"));
        assert_eq!(seal.blob_name(hash), seal.blob_name(hash));
        assert_ne!(seal.blob_name(hash), hash.to_string());
        assert_ne!(seal.blob_name(hash), Seal::new(&[2; 32]).blob_name(hash));
    }
}
