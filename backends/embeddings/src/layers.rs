//! The pass of word pieces through a model's layers. [`super::bert`] makes their vectors, and one vector of a text's.
//!
//! A layer is held in two shares, each of half of its heads and half of its wide outputs, as in tensor parallelism
//! (Shoeybi and others, *Megatron-LM*, 2019, §3). What the shares add to a text is summed twice a layer. So two threads that
//! embed one question read half of the weights each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::math::{LayerNorm, Linear, attention, gelu};

/// One layer of the encoder.
pub(crate) struct Layer {
    /// Two, or one if a half would not be of whole heads.
    pub(crate) shares: Vec<Share>,
    pub(crate) mixed_norm: LayerNorm,
    pub(crate) narrow_norm: LayerNorm,
}

/// A share of a layer's heads and of its wide outputs.
pub(crate) struct Share {
    /// The number of its heads.
    pub(crate) heads: usize,
    /// Projects to queries, keys and values of its heads at once.
    pub(crate) qkv: Linear,
    pub(crate) mixed: Linear,
    pub(crate) wide: Linear,
    pub(crate) narrow: Linear,
}

/// What one share computes in one half of a layer.
#[derive(Clone, Copy)]
enum Half {
    Attention,
    Wide,
}

/// Buffers of a thread, reused from layer to layer.
#[derive(Default)]
struct Buffers {
    wide: Vec<f32>,
    mixed: Vec<f32>,
    part: Vec<f32>,
}

impl Share {
    /// Computes `buffers.part`, the part of the sum that this share adds to `x`.
    fn part(&self, half: Half, x: &[f32], lengths: &[usize], buffers: &mut Buffers) {
        let Buffers { wide, mixed, part } = buffers;
        match half {
            Half::Attention => {
                self.qkv.apply(x, wide);
                attention(wide, self.heads, lengths, mixed);
                self.mixed.apply(mixed, part);
            }
            Half::Wide => {
                self.wide.apply(x, wide);
                gelu(wide);
                self.narrow.apply(wide, part);
            }
        }
    }
}

impl Layer {
    /// Passes `x` through the layer; `add` adds to it the parts of all shares.
    fn pass(&self, x: &mut [f32], mut add: impl FnMut(Half, &mut [f32])) {
        add(Half::Attention, x);
        self.mixed_norm.apply(x);
        add(Half::Wide, x);
        self.narrow_norm.apply(x);
    }
}

/// Passes the vectors `x` of the pieces of texts through all layers. `lengths` are the numbers of pieces.
///
/// A text alone, as a question that an agent waits for, is passed by two threads.
pub(crate) fn pass(layers: &[Layer], x: &[f32], lengths: &[usize]) -> Vec<f32> {
    let has_two = layers.iter().all(|layer| layer.shares.len() == 2);
    let by_two = match has_two && lengths.len() == 1 {
        true => pass_by_two(layers, x, lengths),
        false => None,
    };
    by_two.unwrap_or_else(|| pass_by_one(layers, x, lengths))
}

fn pass_by_one(layers: &[Layer], x: &[f32], lengths: &[usize]) -> Vec<f32> {
    let mut x = x.to_vec();
    let mut buffers = Buffers::default();
    let mut sum = Vec::new();
    for layer in layers {
        layer.pass(&mut x, |half, x| {
            sum.clear();
            sum.resize(x.len(), 0.0);
            for share in &layer.shares {
                share.part(half, x, lengths, &mut buffers);
                add(&mut sum, &buffers.part);
            }
            add(x, &sum);
        });
    }
    x
}

/// Returns `None` if the system gives no second thread.
fn pass_by_two(layers: &[Layer], x: &[f32], lengths: &[usize]) -> Option<Vec<f32>> {
    let meeting = Meeting::default();
    let pass = |own: usize| {
        let _leaving = Leaving(&meeting);
        let mut x = x.to_vec();
        let mut buffers = Buffers::default();
        let mut round = 0;
        for layer in layers {
            layer.pass(&mut x, |half, x| {
                layer.shares[own].part(half, x, lengths, &mut buffers);
                round += 1;
                meeting.add_other(own, round, &mut buffers.part);
                add(x, &buffers.part);
            });
        }
        x
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("embedding a question".to_owned());
        thread.spawn_scoped(scope, || pass(1)).ok()?;
        Some(pass(0))
    })
}

/// Where two threads that are in step exchange their parts.
#[derive(Default)]
struct Meeting {
    /// By round, even or odd, then by thread: a thread may be in the next round while the other reads.
    parts: [[Mutex<Vec<f32>>; 2]; 2],
    /// Of both threads, in all rounds.
    arrived: AtomicUsize,
}

impl Meeting {
    /// How often a thread looks before it lets others run. The other one is microseconds behind, if it runs.
    const LOOKS: usize = 2000;

    /// Adds the other thread's part in the `round`th round, counted from 1.
    fn add_other(&self, own: usize, round: usize, part: &mut [f32]) {
        let parts = &self.parts[round % 2];
        let mut mine = locked(&parts[own]);
        mine.clear();
        mine.extend_from_slice(part);
        drop(mine);
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0;
        while self.arrived.load(Ordering::Acquire) < 2 * round {
            looks += 1;
            match looks % Self::LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        add(part, &locked(&parts[1 - own]));
    }
}

/// Lets the other thread end, whose result is then dropped, if this one panics.
struct Leaving<'a>(&'a Meeting);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.arrived.store(usize::MAX / 2, Ordering::Release);
        }
    }
}

fn locked<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(pass(&[], &[], &[]).is_empty());
        assert!(pass(&[], &[], &[0, 0]).is_empty());
        assert_eq!(pass(&[], &[1.0, 2.0], &[1]), [1.0, 2.0]);
    }

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        let number = |n| (n * step % 23) as f32 / 23.0 - 0.5;
        (0..count).map(number).collect()
    }

    fn layer(number: usize) -> Layer {
        let linear = |outputs: usize, inputs: usize, step: usize| {
            Linear::new(
                &numbers(outputs * inputs, step + number),
                numbers(outputs, 3),
            )
        };
        let share = |step: usize| Share {
            heads: 2,
            qkv: linear(12, 8, step),
            mixed: linear(8, 4, step + 1),
            wide: linear(10, 8, step + 2),
            narrow: linear(8, 10, step + 3),
        };
        let norm = || LayerNorm {
            weight: vec![1.0; 8],
            bias: vec![0.0; 8],
            epsilon: 1e-12,
        };
        Layer {
            shares: vec![share(5), share(11)],
            mixed_norm: norm(),
            narrow_norm: norm(),
        }
    }

    #[test]
    fn two_threads_make_what_one_does() {
        let layers: Vec<Layer> = (0..20).map(layer).collect();
        for pieces in [1, 2, 7, 30] {
            let x = numbers(pieces * 8, 7);
            let one = pass_by_one(&layers, &x, &[pieces]);
            let two = pass_by_two(&layers, &x, &[pieces]).unwrap();
            assert_eq!(one.len(), two.len());
            for (one, two) in one.iter().zip(&two) {
                assert!(
                    (one - two).abs() < 1e-4,
                    "{pieces} pieces: {one} is not {two}"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_thread_that_panics_does_not_leave_the_other_waiting() {
        let mut layers: Vec<Layer> = (0..4).map(layer).collect();
        layers[2].shares.truncate(1);
        pass_by_two(&layers, &numbers(16, 7), &[2]);
    }
}
