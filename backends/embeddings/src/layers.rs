//! The pass of word pieces through a model's layers. [`super::bert`] makes their vectors, and one vector of a text's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::math::{LayerNorm, Linear, dot, gelu, softmax};

/// One layer of the encoder.
pub(crate) struct Layer {
    /// Projects to queries, keys and values at once.
    pub(crate) attention: Linear,
    pub(crate) mixed: Linear,
    pub(crate) mixed_norm: LayerNorm,
    pub(crate) wide: Linear,
    pub(crate) narrow: Linear,
    pub(crate) narrow_norm: LayerNorm,
}

/// Passes the vectors `x` of the pieces of texts through all layers. `lengths` are the numbers of pieces.
///
/// A text alone, as a question that an agent waits for, is shared by two threads.
pub(crate) fn pass(layers: &[Layer], heads: usize, x: &[f32], lengths: &[usize]) -> Vec<f32> {
    if x.is_empty() {
        return Vec::new();
    }
    let pieces: usize = lengths.iter().sum();
    let width = x.len() / pieces;
    let shares = if lengths.len() == 1 { 2 } else { 1 };
    let share = pieces.div_ceil(shares) * width;
    let shares: Vec<Mutex<Rows>> = x.chunks(share).map(Rows::of).collect();
    let (mut qkv, mut mixed) = (Vec::new(), Vec::new());
    if let Some(first) = layers.first() {
        side_by_side(&shares, |rows| rows.ask(first));
    }
    for (number, layer) in layers.iter().enumerate() {
        qkv.clear();
        for rows in &shares {
            qkv.extend_from_slice(&locked(rows).qkv);
        }
        attend(&qkv, width, heads, lengths, &mut mixed);
        for (rows, mixed) in shares.iter().zip(mixed.chunks(share)) {
            locked(rows).mixed = mixed.to_vec();
        }
        let next = layers.get(number + 1);
        side_by_side(&shares, |rows| {
            rows.answer(layer);
            if let Some(next) = next {
                rows.ask(next);
            }
        });
    }
    let rows = shares
        .iter()
        .map(|rows| std::mem::take(&mut locked(rows).x));
    rows.flatten().collect()
}

/// Some of the rows of a layer, each a piece of a text; only attention mixes rows.
#[derive(Default)]
struct Rows {
    x: Vec<f32>,
    qkv: Vec<f32>,
    /// What attention made of all rows' queries, keys and values.
    mixed: Vec<f32>,
    y: Vec<f32>,
    wide: Vec<f32>,
}

impl Rows {
    fn of(x: &[f32]) -> Mutex<Self> {
        Mutex::new(Self {
            x: x.to_vec(),
            ..Self::default()
        })
    }

    /// Makes queries, keys and values.
    fn ask(&mut self, layer: &Layer) {
        layer.attention.apply(&self.x, &mut self.qkv);
    }

    /// Goes through the rest of a layer.
    fn answer(&mut self, layer: &Layer) {
        layer.mixed.apply(&self.mixed, &mut self.y);
        add(&mut self.x, &self.y);
        layer.mixed_norm.apply(&mut self.x);
        layer.wide.apply(&self.x, &mut self.wide);
        gelu(&mut self.wide);
        layer.narrow.apply(&self.wide, &mut self.y);
        add(&mut self.x, &self.y);
        layer.narrow_norm.apply(&mut self.x);
    }
}

fn locked(rows: &Mutex<Rows>) -> MutexGuard<'_, Rows> {
    rows.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the same to all shares of rows, each in a thread of its own where the system gives one.
fn side_by_side(shares: &[Mutex<Rows>], work: impl Fn(&mut Rows) + Sync) {
    let Some((first, others)) = shares.split_first() else {
        return;
    };
    std::thread::scope(|scope| {
        let work = &work;
        for rows in others {
            let thread = std::thread::Builder::new().name("embedding a question".to_owned());
            let spawned = thread.spawn_scoped(scope, move || work(&mut locked(rows)));
            if spawned.is_err() {
                work(&mut locked(rows));
            }
        }
        work(&mut locked(first));
    });
}

/// Attention, separately for each head and each text: softmax(Q · Kᵀ / √width of a head) · V.
fn attend(qkv: &[f32], width: usize, heads: usize, lengths: &[usize], to: &mut Vec<f32>) {
    let head = width / heads;
    let row = 3 * width;
    let scale = 1.0 / (head as f32).sqrt();
    to.clear();
    to.resize(qkv.len() / 3, 0.0);
    let mut shares = Vec::new();
    let mut first = 0;
    for &length in lengths {
        let rows = &qkv[first * row..(first + length) * row];
        for at in (0..width).step_by(head) {
            for (asking, to) in rows
                .chunks_exact(row)
                .zip(to[first * width..].chunks_exact_mut(width))
            {
                let query = &asking[at..at + head];
                let keys = rows.chunks_exact(row).map(|row| &row[width + at..][..head]);
                shares.clear();
                shares.extend(keys.map(|key| scale * dot(query, key)));
                softmax(&mut shares, length);
                let values = rows
                    .chunks_exact(row)
                    .map(|row| &row[2 * width + at..][..head]);
                for (share, value) in shares.iter().zip(values) {
                    for (to, value) in to[at..at + head].iter_mut().zip(value) {
                        *to += share * value;
                    }
                }
            }
        }
        first += length;
    }
}

pub(crate) fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_pieces_go_through_no_layer() {
        assert!(pass(&[], 2, &[], &[]).is_empty());
        assert!(pass(&[], 2, &[], &[0, 0]).is_empty());
        assert_eq!(
            pass(&[], 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3]),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
    }

    #[test]
    fn attention_mixes_values_by_how_queries_meet_keys_and_texts_do_not_mix() {
        // Two heads of width 1; a text of two tokens, then one of one token.
        let qkv = [
            // queries, keys, values
            0.0,
            2_f32.ln(),
            5.0,
            1.0,
            1.0,
            10.0, //
            0.0,
            0.0,
            7.0,
            0.0,
            3.0,
            40.0, //
            9.0,
            9.0,
            9.0,
            9.0,
            6.0,
            8.0,
        ];
        let mut to = Vec::new();
        attend(&qkv, 2, 2, &[2, 1], &mut to);
        // First head: all queries are 0, so values are averaged. Second: weights e^(ln 2 · 1) to e^0, 2 to 1.
        let expected = [2.0, 20.0, 2.0, 25.0, 6.0, 8.0];
        for (got, expected) in to.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{to:?}");
        }
    }
}
