//! The checksum at the end of a JSON object: its last field, the CRC-32 of all bytes before it.

use std::io::{self, Write};

/// The end of an object whose other bytes have this checksum.
fn end(checksum: u32) -> String {
    format!(",\"crc32\":\"{checksum:08x}\"}}\n")
}

/// A JSON object with its checksum. `object` is not empty.
pub(super) fn with_checksum(mut object: Vec<u8>) -> Vec<u8> {
    let brace = object.pop();
    debug_assert_eq!(brace, Some(b'}'), "an object ends with a brace");
    let checksum = crc32fast::hash(&object);
    object.extend(end(checksum).as_bytes());
    object
}

/// Whether the bytes are a JSON object with the right checksum.
pub(super) fn is_right(bytes: &[u8]) -> bool {
    let split = bytes.len().checked_sub(end(0).len());
    split.is_some_and(|at| bytes[at..] == *end(crc32fast::hash(&bytes[..at])).as_bytes())
}

/// Writes the bytes of an object without its last brace, then its end with the checksum.
pub(super) struct ChecksumWriter<W> {
    to: W,
    checksum: crc32fast::Hasher,
}

impl<W: Write> ChecksumWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, checksum: crc32fast::Hasher::new() }
    }

    /// Ends the object.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.write_all(end(self.checksum.finalize()).as_bytes())?;
        Ok(self.to)
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_and_every_missing_end_is_found() {
        let object = with_checksum(br#"{"v":3,"nodes":[]}"#.to_vec());
        let mut out = ChecksumWriter::new(Vec::new());
        out.write_all(br#"{"v":3,"nodes":[]"#).unwrap();
        assert_eq!(out.finish().unwrap(), object);
        serde_json::from_slice::<serde_json::Value>(&object).unwrap();
        assert!(is_right(&object));
        for bit in 0..object.len() * 8 {
            let mut damaged = object.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&damaged), "{bit}");
        }
        assert!((0..object.len()).all(|end| !is_right(&object[..end])));
    }
}
