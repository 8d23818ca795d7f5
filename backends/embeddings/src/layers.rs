//! The pass of word pieces through a model's layers. [`super::bert`] makes their vectors, and one vector of a text's.
//!
//! A layer is held in two shares, each of half of its heads and half of its wide outputs, as in tensor parallelism
//! (Shoeybi and others, *Megatron-LM*, 2019, §3). What the shares add to a text is summed twice a layer. So two threads that
//! embed one question read half of the weights each.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::math::{LayerNorm, attention, gelu};
use crate::products::{Linear, Rows};

/// One layer of the encoder.
pub(crate) struct Layer {
    shares: Vec<Share>,
    mixed_norm: LayerNorm,
    narrow_norm: LayerNorm,
}

/// The numbers of a layer, as a model's file has them.
pub(crate) struct Weights {
    pub(crate) heads: usize,
    /// Of queries, keys and values.
    pub(crate) qkv: [Projection; 3],
    pub(crate) mixed: Projection,
    pub(crate) mixed_norm: LayerNorm,
    pub(crate) wide: Projection,
    pub(crate) narrow: Projection,
    pub(crate) narrow_norm: LayerNorm,
}

/// A row of inputs for each output, and a bias for each.
pub(crate) struct Projection {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl Projection {
    /// The weights and biases of the `part`th of `parts` equal parts of the outputs.
    fn outputs(&self, part: usize, parts: usize) -> (&[f32], &[f32]) {
        let (weights, biases) = (self.weight.len() / parts, self.bias.len() / parts);
        (&self.weight[weights * part..][..weights], &self.bias[biases * part..][..biases])
    }

    /// The weights of the `part`th of `parts` equal parts of the inputs. The first part has the bias.
    fn inputs(&self, part: usize, parts: usize) -> Linear {
        let all = self.weight.len() / self.bias.len();
        let inputs = all / parts;
        let rows = self.weight.chunks_exact(all);
        let weight = rows.flat_map(|row| &row[inputs * part..][..inputs]);
        let bias = match part {
            0 => self.bias.clone(),
            _ => vec![0.0; self.bias.len()],
        };
        Linear::new(&weight.copied().collect::<Vec<f32>>(), bias)
    }
}

/// A share of a layer's heads and of its wide outputs.
struct Share {
    /// The number of its heads.
    heads: usize,
    /// Projects to queries, keys and values of its heads at once.
    qkv: Linear,
    mixed: Linear,
    wide: Linear,
    narrow: Linear,
}

/// The two parts of a layer, one after the other.
#[derive(Clone, Copy)]
enum Sublayer {
    Attention,
    Wide,
}

/// Buffers of a thread, reused from layer to layer.
#[derive(Default)]
struct Buffers {
    qkv: Vec<f32>,
    mixed: Vec<f32>,
    wide: Vec<f32>,
    part: Vec<f32>,
}

impl Share {
    /// Computes `buffers.part`, the part of the sum that this share adds to `x`.
    fn part(&self, sublayer: Sublayer, x: &Rows, lengths: &[usize], buffers: &mut Buffers) {
        let Buffers { qkv, mixed, wide, part } = buffers;
        match sublayer {
            Sublayer::Attention => {
                self.qkv.apply(x, qkv);
                attention(qkv, self.heads, lengths, mixed);
                self.mixed.apply(&Rows::new(mixed, x.count()), part);
            }
            Sublayer::Wide => {
                self.wide.apply(x, wide);
                gelu(wide);
                self.narrow.apply(&Rows::new(wide, x.count()), part);
            }
        }
    }
}

impl Layer {
    /// Two shares, or one if heads or wide outputs cannot be halved.
    pub(crate) fn new(weights: Weights) -> Self {
        let is_even = weights.heads.is_multiple_of(2) && weights.wide.bias.len().is_multiple_of(2);
        Self::in_shares(if is_even { 2 } else { 1 }, weights)
    }

    fn in_shares(shares: usize, weights: Weights) -> Self {
        let share = |share: usize| {
            let (mut weight, mut bias) = (Vec::new(), Vec::new());
            for projection in &weights.qkv {
                let outputs = projection.outputs(share, shares);
                weight.extend_from_slice(outputs.0);
                bias.extend_from_slice(outputs.1);
            }
            let wide = weights.wide.outputs(share, shares);
            Share {
                heads: weights.heads / shares,
                qkv: Linear::new(&weight, bias),
                mixed: weights.mixed.inputs(share, shares),
                wide: Linear::new(wide.0, wide.1.to_vec()),
                narrow: weights.narrow.inputs(share, shares),
            }
        };
        Self {
            shares: (0..shares).map(share).collect(),
            mixed_norm: weights.mixed_norm,
            narrow_norm: weights.narrow_norm,
        }
    }

    /// Passes `x` through the layer; `add` adds to it the parts of all shares.
    fn pass(&self, x: &mut [f32], mut add: impl FnMut(Sublayer, &mut [f32])) {
        add(Sublayer::Attention, x);
        self.mixed_norm.apply(x);
        add(Sublayer::Wide, x);
        self.narrow_norm.apply(x);
    }
}

/// Passes the vectors `x` of the pieces of texts through all layers. `lengths` are the numbers of pieces.
///
/// A text alone, as a question that an agent waits for, is passed by two threads where there are two processors.
pub(crate) fn pass(layers: &[Layer], x: &[f32], lengths: &[usize]) -> Vec<f32> {
    if x.is_empty() {
        return Vec::new();
    }
    let has_two_shares = layers.iter().all(|layer| layer.shares.len() == 2);
    let has_two_processors = || std::thread::available_parallelism().is_ok_and(|all| all.get() > 1);
    if lengths.len() != 1 || !has_two_shares || !has_two_processors() {
        return pass_by_one(layers, x, lengths);
    }
    pass_by_two(layers, x, lengths).unwrap_or_else(|error| {
        tracing::warn!(%error, "a question is embedded by one thread: a second one cannot be started");
        pass_by_one(layers, x, lengths)
    })
}

fn pass_by_one(layers: &[Layer], x: &[f32], lengths: &[usize]) -> Vec<f32> {
    let pieces = lengths.iter().sum();
    let mut x = x.to_vec();
    let mut buffers = Buffers::default();
    let mut sum = Vec::new();
    for layer in layers {
        layer.pass(&mut x, |sublayer, x| {
            sum.clear();
            sum.resize(x.len(), 0.0);
            let rows = Rows::new(x, pieces);
            for share in &layer.shares {
                share.part(sublayer, &rows, lengths, &mut buffers);
                add(&mut sum, &buffers.part);
            }
            add(x, &sum);
        });
    }
    x
}

/// Fails if the system gives no second thread.
fn pass_by_two(layers: &[Layer], x: &[f32], lengths: &[usize]) -> io::Result<Vec<f32>> {
    let pieces = lengths.iter().sum();
    let exchange = Exchange::default();
    let pass = |thread: usize| {
        let _release = ReleaseOnPanic(&exchange);
        let mut x = x.to_vec();
        let mut buffers = Buffers::default();
        let mut round = 0;
        for layer in layers {
            layer.pass(&mut x, |sublayer, x| {
                let rows = Rows::new(x, pieces);
                layer.shares[thread].part(sublayer, &rows, lengths, &mut buffers);
                round += 1;
                exchange.add_other(thread, round, &mut buffers.part);
                add(x, &buffers.part);
            });
        }
        x
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("embedding a question".to_owned());
        thread.spawn_scoped(scope, || pass(1))?;
        Ok(pass(0))
    })
}

/// Where two threads that are in step sum their parts.
#[derive(Default)]
struct Exchange {
    /// By round, even or odd, then by thread: a thread may be in the next round while the other reads.
    parts: [[Mutex<Vec<f32>>; 2]; 2],
    /// Of both threads, in all rounds.
    arrived: AtomicUsize,
}

impl Exchange {
    /// How often a thread spins before it yields its processor, on which the other one may have to run.
    const SPINS: usize = 50;

    /// Adds the part of the thread other than `thread` in the `round`th round, counted from 1.
    fn add_other(&self, thread: usize, round: usize, part: &mut [f32]) {
        let parts = &self.parts[round % 2];
        let mut mine = parts[thread].lock();
        mine.clear();
        mine.extend_from_slice(part);
        drop(mine);
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while self.arrived.load(Ordering::Acquire) < 2 * round {
            spins += 1;
            match spins % Self::SPINS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        add(part, &parts[1 - thread].lock());
    }
}

/// Lets the other thread end, whose result is then dropped, if this one panics.
struct ReleaseOnPanic<'a>(&'a Exchange);

impl Drop for ReleaseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.arrived.store(usize::MAX / 2, Ordering::Release);
        }
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

    const WIDTH: usize = 8;

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        let number = |n| (n * step % 23) as f32 / 23.0 - 0.5;
        (0..count).map(number).collect()
    }

    /// The numbers of a layer with heads of width 2.
    fn weights(number: usize, wide: usize) -> Weights {
        let projection = |outputs: usize, inputs: usize, step: usize| Projection {
            weight: numbers(outputs * inputs, step + number),
            bias: numbers(outputs, 3),
        };
        let norm = || LayerNorm { weight: vec![1.0; WIDTH], bias: vec![0.0; WIDTH], epsilon: 1e-12 };
        Weights {
            heads: WIDTH / 2,
            qkv: [5, 6, 9].map(|step| projection(WIDTH, WIDTH, step)),
            mixed: projection(WIDTH, WIDTH, 11),
            mixed_norm: norm(),
            wide: projection(wide, WIDTH, 13),
            narrow: projection(WIDTH, wide, 17),
            narrow_norm: norm(),
        }
    }

    fn layers(many: usize) -> Vec<Layer> {
        let layers = (0..many).map(|number| Layer::new(weights(number, 10)));
        layers.collect()
    }

    #[test]
    fn texts_without_pieces_go_through_no_layer() {
        for lengths in [&[][..], &[0], &[0, 0]] {
            assert!(pass(&layers(2), &[], lengths).is_empty());
        }
        assert_eq!(pass(&[], &[1.0, 2.0], &[1]), [1.0, 2.0]);
    }

    #[test]
    fn two_threads_make_what_one_does() {
        let layers = layers(20);
        for pieces in [1, 2, 7, 30] {
            let x = numbers(pieces * WIDTH, 7);
            let one = pass_by_one(&layers, &x, &[pieces]);
            assert_eq!(one, pass_by_two(&layers, &x, &[pieces]).unwrap());
            assert_eq!(one, pass(&layers, &x, &[pieces]));
        }
    }

    #[test]
    fn two_shares_add_up_to_one() {
        let x = numbers(5 * WIDTH, 7);
        let odd = Layer::new(weights(1, 9));
        assert_eq!(odd.shares.len(), 1);
        for wide in [10, 16] {
            let split = [Layer::new(weights(1, wide))];
            assert_eq!(split[0].shares.len(), 2);
            let whole = [Layer::in_shares(1, weights(1, wide))];
            let split = pass(&split, &x, &[2, 3]);
            let whole = pass(&whole, &x, &[2, 3]);
            for (split, whole) in split.iter().zip(&whole) {
                // Weights and rows are quantised by the largest of their share.
                assert!((split - whole).abs() < 1e-3, "{split} is not {whole}");
            }
        }
    }

    #[test]
    fn a_thread_that_panics_does_not_leave_the_other_waiting() {
        let (ended, end) = std::sync::mpsc::channel();
        let two = std::thread::spawn(move || {
            let mut layers = layers(4);
            layers[2].shares.truncate(1);
            let pass = || pass_by_two(&layers, &numbers(2 * WIDTH, 7), &[2]).unwrap();
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass));
            ended.send(passed.is_err()).unwrap();
        });
        let within = std::time::Duration::from_secs(20);
        assert_eq!(end.recv_timeout(within), Ok(true));
        two.join().unwrap();
    }
}
