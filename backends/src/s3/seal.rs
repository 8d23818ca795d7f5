//! Encryption on this side of the server: XChaCha20-Poly1305 for content, AES-SIV for names.
//!
//! A sealed object is a random nonce prefix of 19 bytes, then segments of 64 KiB, each with its own tag
//! over its place and whether it is the last: so a range can be read, and nothing can be cut, moved or
//! swapped within an object. Names are sealed deterministically, one component at a time: equal names in
//! one bucket look equal, and how long they are shows.

use aes_siv::siv::Aes256Siv;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha512};

/// Bytes of content in a segment.
pub(super) const SEGMENT: u64 = 64 * 1024;
/// Bytes that sealing adds to a segment.
const TAG: u64 = 16;
/// Bytes before the first segment.
const PREFIX: u64 = 19;

/// Something was not sealed with this key, or was changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was sealed with another key, or changed since")]
pub(super) struct NotOurs;

/// Seals and opens with one key.
#[derive(Clone)]
pub(super) struct Seal {
    content: XChaCha20Poly1305,
    names: [u8; 64],
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

/// A key for one purpose.
fn derive(key: &[u8; 32], purpose: &str) -> [u8; 64] {
    let mut hash = Sha512::new();
    hash.update(purpose.as_bytes());
    hash.update(key);
    hash.finalize().into()
}

impl Seal {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let content = derive(key, "ctxbench content 1");
        let mut content_key = [0; 32];
        content_key.copy_from_slice(&content[..32]);
        Self {
            content: XChaCha20Poly1305::new(&content_key.into()),
            names: derive(key, "ctxbench names 1"),
        }
    }

    fn nonce(prefix: &[u8], index: u64, is_last: bool) -> XNonce {
        let mut nonce = [0; 24];
        nonce[..19].copy_from_slice(prefix);
        nonce[19..23].copy_from_slice(&(index as u32).to_be_bytes());
        nonce[23] = u8::from(is_last);
        nonce.into()
    }

    /// A nonce prefix for a new object.
    pub(super) fn new_prefix() -> std::io::Result<[u8; 19]> {
        let mut prefix = [0; 19];
        let mut random = std::fs::File::open("/dev/urandom")?;
        std::io::Read::read_exact(&mut random, &mut prefix)?;
        Ok(prefix)
    }

    /// Seals the segments that `plain` is, of an object that has `more` after them.
    pub(super) fn seal_segments(
        &self,
        prefix: &[u8; 19],
        first: u64,
        plain: &[u8],
        more: bool,
    ) -> Result<Vec<u8>, NotOurs> {
        let mut sealed = Vec::with_capacity(plain.len() + plain.len() / SEGMENT as usize * 16 + 32);
        let segments: Vec<&[u8]> = if plain.is_empty() {
            vec![plain]
        } else {
            plain.chunks(SEGMENT as usize).collect()
        };
        let count = segments.len();
        for (at, segment) in segments.into_iter().enumerate() {
            let is_last = !more && at + 1 == count;
            let nonce = Self::nonce(prefix, first + at as u64, is_last);
            sealed.extend(self.content.encrypt(&nonce, segment).map_err(|_| NotOurs)?);
        }
        Ok(sealed)
    }

    /// A whole object.
    pub(super) fn seal(&self, plain: &[u8]) -> std::io::Result<Vec<u8>> {
        let prefix = Self::new_prefix()?;
        let mut object = prefix.to_vec();
        let sealed = self
            .seal_segments(&prefix, 0, plain, false)
            .map_err(std::io::Error::other)?;
        object.extend(sealed);
        Ok(object)
    }

    /// Opens a whole object.
    pub(super) fn open(&self, object: &[u8]) -> Result<Vec<u8>, NotOurs> {
        let (prefix, sealed) = object.split_at_checked(PREFIX as usize).ok_or(NotOurs)?;
        self.open_segments(prefix, 0, sealed, true)
    }

    /// Opens whole segments from the `first` on; `to_end` if the last of them is the object's last.
    pub(super) fn open_segments(
        &self,
        prefix: &[u8],
        first: u64,
        sealed: &[u8],
        to_end: bool,
    ) -> Result<Vec<u8>, NotOurs> {
        let segments: Vec<&[u8]> = sealed.chunks((SEGMENT + TAG) as usize).collect();
        let count = segments.len();
        let mut plain = Vec::with_capacity(sealed.len());
        for (at, segment) in segments.into_iter().enumerate() {
            let is_last = to_end && at + 1 == count;
            let nonce = Self::nonce(prefix, first + at as u64, is_last);
            let payload = Payload {
                msg: segment,
                aad: &[],
            };
            plain.extend(self.content.decrypt(&nonce, payload).map_err(|_| NotOurs)?);
        }
        if count == 0 {
            return Err(NotOurs);
        }
        Ok(plain)
    }

    /// The component of a key that a name is sealed as.
    pub(super) fn name(&self, name: &[u8]) -> String {
        let mut siv = Aes256Siv::new(&self.names.into());
        let sealed = siv.encrypt([b"name".as_slice()], name);
        // Only more than 126 headers are refused.
        URL_SAFE_NO_PAD.encode(sealed.unwrap_or_default())
    }

    /// The name that a component seals; `None` if it was not sealed with this key.
    pub(super) fn open_name(&self, component: &str) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(component).ok()?;
        let mut siv = Aes256Siv::new(&self.names.into());
        siv.decrypt([b"name".as_slice()], &sealed).ok()
    }
}

/// How long so many bytes are when sealed.
pub(super) fn sealed_length(plain: u64) -> u64 {
    PREFIX + plain + plain.div_ceil(SEGMENT).max(1) * TAG
}

/// The range of an object that holds the segments of a range of content, and the first of these segments.
pub(super) fn segments(start: u64, end: u64) -> (std::ops::Range<u64>, u64) {
    let (first, last) = (start / SEGMENT, end.div_ceil(SEGMENT));
    let at = |segment: u64| PREFIX + segment * (SEGMENT + TAG);
    (at(first)..at(last), first)
}

/// How long the object of a file is.
pub(super) fn object_length(plain: u64, is_sealed: bool) -> u64 {
    if is_sealed {
        sealed_length(plain)
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_only_and_unchanged_only() {
        let seal = Seal::new(&[1; 32]);
        for length in [0, 1, 65_535, 65_536, 65_537, 200_000] {
            let plain = bytes(length);
            let mut object = seal.seal(&plain).unwrap();
            assert_eq!(object.len() as u64, sealed_length(length as u64));
            assert_eq!(seal.open(&object).unwrap(), plain);
            assert_eq!(Seal::new(&[2; 32]).open(&object), Err(NotOurs));
            if length > 65_536 {
                // Cut at a segment's end: the last tag says that more must come.
                let cut = (PREFIX + SEGMENT + TAG) as usize;
                assert_eq!(seal.open(&object[..cut]), Err(NotOurs));
            }
            let middle = object.len() / 2;
            object[middle] ^= 1;
            assert_eq!(seal.open(&object), Err(NotOurs));
        }
    }

    #[test]
    fn a_range_opens_without_the_rest() {
        let seal = Seal::new(&[1; 32]);
        let plain = bytes(200_000);
        let object = seal.seal(&plain).unwrap();
        let (range, first) = segments(70_000, 130_000);
        let part = &object[range.start as usize..range.end as usize];
        let opened = seal
            .open_segments(&object[..19], first, part, false)
            .unwrap();
        assert_eq!(opened, plain[65_536..131_072]);
    }

    #[test]
    fn names_are_sealed_the_same_each_time_and_open_again() {
        let seal = Seal::new(&[1; 32]);
        let sealed = seal.name(b"secret plan.md");
        assert_eq!(sealed, seal.name(b"secret plan.md"));
        assert!(!sealed.contains("secret"));
        assert_eq!(seal.open_name(&sealed).unwrap(), b"secret plan.md");
        assert_eq!(Seal::new(&[2; 32]).open_name(&sealed), None);
        assert_eq!(seal.open_name("notes.md"), None);
    }
}
