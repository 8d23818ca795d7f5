//! The content of a file in RAM, with holes.

use std::collections::BTreeMap;

/// Bytes in a chunk; a hole is a missing chunk.
const CHUNK: u64 = 64 * 1024;

/// The content of one file. The inode holds the size; bytes outside the chunks are zeros.
#[derive(Debug, Default)]
pub struct Content {
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    /// Appends the `size` bytes at `offset` to `out`; the caller has limited `size` to the end of the file.
    pub fn read(&self, offset: u64, size: usize, out: &mut Vec<u8>) {
        for (index, within, length) in pieces(offset, size as u64) {
            let target = out.len() + length;
            if let Some(chunk) = self.chunks.get(&index) {
                let end = chunk.len().min(within + length);
                out.extend_from_slice(chunk.get(within..end).unwrap_or_default());
            }
            out.resize(target, 0);
        }
    }

    /// Replaces the bytes at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for (index, within, length) in pieces(offset, data.len() as u64) {
            let (piece, after) = rest.split_at(length);
            let chunk = self.chunks.entry(index).or_default();
            if chunk.len() < within + length {
                chunk.resize(within + length, 0);
            }
            chunk[within..within + length].copy_from_slice(piece);
            rest = after;
        }
    }

    /// Removes all bytes from `size` on.
    pub fn truncate(&mut self, size: u64) {
        self.chunks.split_off(&size.div_ceil(CHUNK));
        if let Some(chunk) = self.chunks.get_mut(&(size / CHUNK)) {
            chunk.truncate((size % CHUNK) as usize);
        }
    }

    /// Makes the whole chunks of a range a hole, and zeros the rest of it.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        // Iterate over existing chunks, because the range may be larger than any memory.
        let touched = self.chunks.range(offset / CHUNK..end.div_ceil(CHUNK));
        let touched: Vec<u64> = touched.map(|(index, _)| *index).collect();
        for index in touched {
            let start = index * CHUNK;
            let within = offset.saturating_sub(start) as usize;
            let stop = (end - start).min(CHUNK) as usize;
            if within == 0 && stop as u64 == CHUNK {
                self.chunks.remove(&index);
            } else if let Some(chunk) = self.chunks.get_mut(&index) {
                let stop = chunk.len().min(stop);
                if let Some(range) = chunk.get_mut(within..stop) {
                    range.fill(0);
                }
            }
        }
    }

    /// The first byte at or after `offset` that is not in a hole.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (index, _) = self.chunks.range(offset / CHUNK..).next()?;
        Some(offset.max(index * CHUNK))
    }

    /// The first byte at or after `offset` that is in a hole.
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut index = offset / CHUNK;
        while self.chunks.contains_key(&index) {
            index += 1;
        }
        offset.max(index * CHUNK)
    }

    /// Allocated size in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.chunks.values().map(|chunk| (chunk.len() as u64).div_ceil(4096) * 8).sum()
    }
}

/// Cuts a range at chunk borders: chunk index, offset within the chunk, length.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    (offset / CHUNK..end.div_ceil(CHUNK)).map(move |index| {
        let start = offset.max(index * CHUNK);
        let stop = end.min((index + 1) * CHUNK);
        (index, (start % CHUNK) as usize, (stop - start) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        Truncate(u64),
        Punch(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let offset = 0..3 * CHUNK;
        prop_oneof![
            (offset.clone(), prop::collection::vec(any::<u8>(), 1..CHUNK as usize * 2))
                .prop_map(|(o, d)| Step::Write(o, d)),
            offset.clone().prop_map(Step::Truncate),
            (offset, 1..2 * CHUNK).prop_map(|(o, l)| Step::Punch(o, l)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_one_flat_buffer(steps in prop::collection::vec(step(), 1..12)) {
            let mut flat = vec![0u8; 6 * CHUNK as usize];
            let mut content = Content::default();
            for step in steps {
                match step {
                    Step::Write(o, d) => {
                        flat[o as usize..o as usize + d.len()].copy_from_slice(&d);
                        content.write(o, &d);
                    }
                    Step::Truncate(size) => {
                        flat[size as usize..].fill(0);
                        content.truncate(size);
                    }
                    Step::Punch(o, l) => {
                        flat[o as usize..(o + l) as usize].fill(0);
                        content.punch(o, l);
                    }
                }
                let mut read = Vec::new();
                content.read(0, flat.len(), &mut read);
                prop_assert!(read == flat);
                // Bytes outside data are zeros.
                let mut at = 0;
                while let Some(data) = content.next_data(at) {
                    prop_assert!(flat[at as usize..data as usize].iter().all(|b| *b == 0));
                    at = content.next_hole(data);
                    prop_assert!(at > data);
                }
            }
        }
    }
}
