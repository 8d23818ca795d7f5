//! The arithmetic of a transformer's layers, on row-major matrices.
//!
//! Products use our own kernel: a query has about ten rows, for which matrix libraries take longer to
//! pack the weights than to multiply. Ours are packed once, when the model is read.

use std::ops::Range;

/// `x` · `weight`ᵀ + `bias` for each row of `x`.
///
/// A weight is a 16-bit integer times the scale of its output: half the bytes of a float, and an error of at most 1/65,534 of
/// the largest weight of that output.
pub(crate) struct Linear {
    /// The number of inputs.
    inner: usize,
    /// For each panel of outputs, the weights of the first input, then those of the next. Zeros fill the last panel.
    panels: Vec<[i16; PANEL]>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

/// Outputs computed side by side, each in a lane of an AVX-512 vector or of two of AVX2.
const PANEL: usize = 16;

/// How many weights before its use a processor is asked to read one: weights come from memory, and this is 2 KiB.
const AHEAD: usize = 64 * PANEL;

/// Rows per pass through a layer: few enough for the processor's cache, and they share one read of the weights.
const ROWS: usize = 64;

/// How a processor multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vectors {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of it.
    Plain,
}

impl Vectors {
    /// Whether this processor has them.
    fn is_usable(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Plain => true,
        }
    }

    /// The widest first.
    fn usable() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
            Self::Plain,
        ];
        all.into_iter().filter(|vectors| vectors.is_usable())
    }

    /// How many rows of `x` share a read of a weight. AVX2's 16 registers hold two for each row, and what is multiplied.
    fn rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 12,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 6,
            Self::Plain => 6,
        }
    }
}

/// One panel of the outputs of a block of rows.
struct Block<'a> {
    linear: &'a Linear,
    panel: usize,
    weights: &'a [[i16; PANEL]],
    /// The first number of each row, then the second.
    x: &'a [f32],
}

impl Linear {
    /// `weight` has a row of inputs for each output, as many as `bias` has numbers.
    pub(crate) fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inner = weight.len() / bias.len();
        let mut panels = vec![[0; PANEL]; inner * bias.len().div_ceil(PANEL)];
        let scales = weight.chunks_exact(inner).enumerate().map(|(output, row)| {
            let largest = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let scale = largest / f32::from(i16::MAX);
            let panel = &mut panels[output / PANEL * inner..][..inner];
            for (weights, x) in panel.iter_mut().zip(row) {
                // Of zeros alone, this is NaN, which becomes 0.
                weights[output % PANEL] = (x / scale).round() as i16;
            }
            scale
        });
        Self {
            scales: scales.collect(),
            inner,
            panels,
            bias,
        }
    }

    pub(crate) fn apply(&self, x: &[f32], to: &mut Vec<f32>) {
        let widest = Vectors::usable().next().unwrap_or(Vectors::Plain);
        self.apply_by(widest, x, to);
    }

    fn apply_by(&self, vectors: Vectors, x: &[f32], to: &mut Vec<f32>) {
        let columns = self.bias.len();
        to.clear();
        to.resize(x.len() / self.inner * columns, 0.0);
        let chunks = x.chunks(ROWS * self.inner);
        for (x, to) in chunks.zip(to.chunks_mut(ROWS * columns)) {
            self.apply_to_few(vectors, x, to);
        }
    }

    fn apply_to_few(&self, vectors: Vectors, x: &[f32], to: &mut [f32]) {
        let (inner, columns) = (self.inner, self.bias.len());
        let rows = x.len() / inner;
        let blocks = rows.div_ceil(vectors.rows());
        // Blocks of about one size: a block of one row would wait for each sum.
        let blocks = (0..blocks).map(|block| rows * block / blocks..rows * (block + 1) / blocks);
        let blocks: Vec<Range<usize>> = blocks.collect();
        let mut packed = Vec::with_capacity(x.len());
        for block in &blocks {
            let x = &x[block.start * inner..block.end * inner];
            for input in 0..inner {
                packed.extend(x[input..].iter().step_by(inner));
            }
        }
        for (panel, weights) in self.panels.chunks_exact(inner).enumerate() {
            for block in &blocks {
                let to = &mut to[block.start * columns..block.end * columns];
                let block = Block {
                    linear: self,
                    panel,
                    weights,
                    x: &packed[block.start * inner..block.end * inner],
                };
                block.write(vectors, to);
            }
        }
    }
}

impl Block<'_> {
    fn write(&self, vectors: Vectors, to: &mut [f32]) {
        #[cfg_attr(
            target_arch = "x86_64",
            allow(unsafe_code, reason = "the compiler cannot know what processor it is")
        )]
        match vectors {
            // SAFETY: the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { self.write_avx512(to) },
            // SAFETY: the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { self.write_avx2(to) },
            // On other processors, `mul_add` may compile to a slow library call.
            Vectors::Plain => self.write_as::<{ cfg!(target_arch = "aarch64") }>(to),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn write_avx512(&self, to: &mut [f32]) {
        match self.x.len() / self.weights.len() {
            1 => self.rows_avx512::<1>(to),
            2 => self.rows_avx512::<2>(to),
            3 => self.rows_avx512::<3>(to),
            4 => self.rows_avx512::<4>(to),
            5 => self.rows_avx512::<5>(to),
            6 => self.rows_avx512::<6>(to),
            7 => self.rows_avx512::<7>(to),
            8 => self.rows_avx512::<8>(to),
            9 => self.rows_avx512::<9>(to),
            10 => self.rows_avx512::<10>(to),
            11 => self.rows_avx512::<11>(to),
            12 => self.rows_avx512::<12>(to),
            rows => unreachable!("a block of {rows} rows"),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn write_avx2(&self, to: &mut [f32]) {
        self.write_as::<true>(to);
    }

    #[inline(always)]
    fn write_as<const FUSED: bool>(&self, to: &mut [f32]) {
        match self.x.len() / self.weights.len() {
            1 => self.rows::<1, FUSED>(to),
            2 => self.rows::<2, FUSED>(to),
            3 => self.rows::<3, FUSED>(to),
            4 => self.rows::<4, FUSED>(to),
            5 => self.rows::<5, FUSED>(to),
            6 => self.rows::<6, FUSED>(to),
            rows => unreachable!("a block of {rows} rows"),
        }
    }

    /// The compiler spills sums of more than a few rows, unless it is told the registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn rows_avx512<const COUNT: usize>(&self, to: &mut [f32]) {
        use std::arch::x86_64::{
            _mm256_loadu_si256, _mm512_cvtepi16_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps,
            _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
        };
        let mut registers = [_mm512_setzero_ps(); COUNT];
        for (x, weights) in self.x.as_chunks::<COUNT>().0.iter().zip(self.weights) {
            prefetch(weights);
            // SAFETY: it reads the 32 bytes of the array.
            #[allow(unsafe_code, reason = "there is no safe load of a vector")]
            let weights = unsafe { _mm256_loadu_si256(weights.as_ptr().cast()) };
            let weights = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(weights));
            for (x, sum) in x.iter().zip(&mut registers) {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*x), weights, *sum);
            }
        }
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (sums, register) in sums.iter_mut().zip(registers) {
            // SAFETY: it writes the 64 bytes of the array.
            #[allow(unsafe_code, reason = "there is no safe store of a vector")]
            unsafe {
                _mm512_storeu_ps(sums.as_mut_ptr(), register);
            }
        }
        self.scale(&sums, to);
    }

    #[inline(always)]
    fn rows<const COUNT: usize, const FUSED: bool>(&self, to: &mut [f32]) {
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (x, weights) in self.x.as_chunks::<COUNT>().0.iter().zip(self.weights) {
            prefetch(weights);
            let weights = weights.map(f32::from);
            for (x, sums) in x.iter().zip(&mut sums) {
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = match FUSED {
                        true => x.mul_add(weight, *sum),
                        false => x * weight + *sum,
                    };
                }
            }
        }
        self.scale(&sums, to);
    }

    /// Writes the outputs of each row from its sums.
    #[inline(always)]
    fn scale(&self, sums: &[[f32; PANEL]], to: &mut [f32]) {
        let columns = self.linear.bias.len();
        let outputs = self.panel * PANEL..columns.min((self.panel + 1) * PANEL);
        let scales = &self.linear.scales[outputs.clone()];
        let bias = &self.linear.bias[outputs.clone()];
        for (to, sums) in to.chunks_exact_mut(columns).zip(sums) {
            let to = to[outputs.clone()].iter_mut();
            for (((to, sum), scale), bias) in to.zip(sums).zip(scales).zip(bias) {
                *to = sum * scale + bias;
            }
        }
    }
}

/// Asks the processor to read the weights that come [`AHEAD`] of these.
#[inline(always)]
fn prefetch(weights: &[i16; PANEL]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let ahead = weights.as_ptr().wrapping_add(AHEAD);
        // SAFETY: a prefetch reads nothing that the program sees, of any address.
        #[allow(
            unsafe_code,
            unused_unsafe,
            reason = "older compilers have it as unsafe"
        )]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = weights;
}

/// Number of floats that one step of [`dot`] multiplies, as in an AVX2 vector.
const LANES: usize = 8;

/// Layer normalisation (Ba, Kiros and Hinton, 2016).
pub(crate) struct LayerNorm {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    pub(crate) epsilon: f32,
}

impl LayerNorm {
    /// Normalises each row of `x` to mean 0 and variance 1, then scales and shifts it.
    pub(crate) fn apply(&self, x: &mut [f32]) {
        let width = self.weight.len();
        for row in x.chunks_exact_mut(width) {
            let mean = sum(row, |x| x) / width as f32;
            let variance = sum(row, |x| (x - mean) * (x - mean)) / width as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for ((x, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
    }
}

/// The sum of `of` each number, in [`LANES`] sums side by side.
fn sum(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for x in x {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane += of(*x);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|x| of(*x)).sum::<f32>()
}

/// Gaussian error linear units (Hendrycks and Gimpel, 2016): x · Φ(x), in place.
pub(crate) fn gelu(x: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if Vectors::Avx2.is_usable() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
        return unsafe { gelu_avx2(x) };
    }
    gelu_of_each(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn gelu_avx2(x: &mut [f32]) {
    gelu_of_each(x);
}

#[inline(always)]
fn gelu_of_each(x: &mut [f32]) {
    for x in x {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// The error function, by formula 7.1.26 of Abramowitz and Stegun.
///
/// The error is at most 1.5e-7, about the precision of an `f32`.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let t = 1.0 / (0.327_591_1 * x.abs() + 1.0);
    let series = t
        * (0.254_829_6
            + t * (-0.284_496_72 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - series * exp(-x * x)).copysign(x)
}

/// The exponential of a number up to 0, without a branch or a call, so that the compiler makes vectors of it.
///
/// 2ⁿ · eʳ with |r| ≤ ln 2 / 2, by the polynomial of Cephes' `expf` (Moshier), whose error is at most 2e-7.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding it rounds a number to an integer, which then is in the lowest bits.
    const ROUNDS: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDS;
    let n = rounded - ROUNDS;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let series = 0.5
        + r * (0.166_666_66
            + r * (0.041_665_796 + r * (8.333_452e-3 + r * (1.398_2e-3 + r * 1.987_569_1e-4))));
    let power = (rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits());
    (1.0 + r + r * r * series) * f32::from_bits(power)
}

/// Converts each row of `width` to positive numbers with the sum 1, in place.
#[inline(always)]
fn softmax(x: &mut [f32], width: usize) {
    for row in x.chunks_exact_mut(width) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for x in row.iter_mut() {
            *x = exp(*x - most);
            sum += *x;
        }
        for x in row {
            *x /= sum;
        }
    }
}

/// The dot product of two vectors.
#[allow(
    clippy::needless_range_loop,
    reason = "lanes side by side are what the compiler makes vectors of"
)]
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

/// Attention, separately for each head and each text: softmax(Q · Kᵀ / √width of a head) · V.
///
/// A row of `qkv` is the queries, the keys and the values of all heads.
pub(crate) fn attention(qkv: &[f32], heads: usize, lengths: &[usize], to: &mut Vec<f32>) {
    #[cfg(target_arch = "x86_64")]
    if Vectors::Avx2.is_usable() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
        return unsafe { attention_avx2(qkv, heads, lengths, to) };
    }
    attention_of_each(qkv, heads, lengths, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn attention_avx2(qkv: &[f32], heads: usize, lengths: &[usize], to: &mut Vec<f32>) {
    attention_of_each(qkv, heads, lengths, to);
}

#[inline(always)]
fn attention_of_each(qkv: &[f32], heads: usize, lengths: &[usize], to: &mut Vec<f32>) {
    to.clear();
    to.resize(qkv.len() / 3, 0.0);
    let pieces = lengths.iter().sum::<usize>().max(1);
    let row = qkv.len() / pieces;
    let width = row / 3;
    let head = width / heads;
    let scale = 1.0 / (head as f32).sqrt();
    let mut weights = Vec::new();
    let mut first = 0;
    for &length in lengths {
        let rows = &qkv[first * row..(first + length) * row];
        for at in (0..width).step_by(head) {
            for (asking, to) in rows
                .chunks_exact(row)
                .zip(to[first * width..].chunks_exact_mut(width))
            {
                let query = &asking[at..at + head];
                weights.clear();
                // A loop, since what an iterator collects is not compiled for the caller's features.
                for row in rows.chunks_exact(row) {
                    weights.push(scale * dot(query, &row[width + at..][..head]));
                }
                softmax(&mut weights, length);
                let values = rows
                    .chunks_exact(row)
                    .map(|row| &row[2 * width + at..][..head]);
                for (weight, value) in weights.iter().zip(values) {
                    for (to, value) in to[at..at + head].iter_mut().zip(value) {
                        *to += weight * value;
                    }
                }
            }
        }
        first += length;
    }
}

/// Scales a vector to length 1, in place; a zero vector stays zero.
pub(crate) fn normalise(x: &mut [f32]) {
    let length = x.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        for x in x {
            *x /= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-6, "{a} is not {b}");
        }
    }

    #[test]
    fn a_linear_layer_is_weights_times_input_and_bias() {
        let linear = Linear::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![10.0, 20.0]);
        let mut to = Vec::new();
        linear.apply(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &mut to);
        let expected = [11.0, 24.0, 16.0, 35.0];
        // Half a step of the smallest scale for each input.
        let error = 3.0 * 6.0 / 65_534.0;
        let off = |(a, b): (&f32, f32)| (a - b).abs();
        assert!(
            to.iter().zip(expected).all(|pair| off(pair) < error),
            "{to:?}"
        );
        Linear::new(&[0.0; 3], vec![7.0]).apply(&[1.0, 2.0, 3.0], &mut to);
        assert_eq!(to, [7.0]);
    }

    #[test]
    fn rows_alone_and_together_give_what_plain_products_do() {
        for (inner, columns) in [(24, 6), (19, 37), (3, 1)] {
            let numbers = |count: usize, step: usize| -> Vec<f32> {
                (0..count)
                    .map(|n| (n * step % 17) as f32 / 4.0 - 2.0)
                    .collect()
            };
            let (weight, bias) = (numbers(inner * columns, 5), numbers(columns, 3));
            let linear = Linear::new(&weight, bias.clone());
            let x = numbers(inner * (ROWS + 7), 7);
            let (mut many, mut few) = (Vec::new(), Vec::new());
            linear.apply(&x, &mut many);
            for rows in x.chunks(inner * 7) {
                let mut some = Vec::new();
                linear.apply(rows, &mut some);
                few.extend(some);
            }
            close(&many, &few);
            for (x, many) in x.chunks(inner).zip(many.chunks(columns)) {
                let rows = weight.chunks(inner).zip(&bias).zip(many);
                for ((weight, bias), got) in rows {
                    let products = x.iter().zip(weight).map(|(x, weight)| x * weight);
                    let expected = products.sum::<f32>() + bias;
                    // Half a step of each weight, of which none exceeds 2, times what it meets.
                    let error = x.iter().map(|x| x.abs()).sum::<f32>() * 2.0 / 65_534.0 + 1e-4;
                    assert!((got - expected).abs() < error, "{got} is not {expected}");
                }
            }
            // Every number of rows that a block can have.
            for vectors in Vectors::usable() {
                for rows in 1..=2 * vectors.rows() {
                    let mut some = Vec::new();
                    linear.apply_by(vectors, &x[..inner * rows], &mut some);
                    close(&many[..columns * rows], &some);
                }
            }
        }
    }

    #[test]
    fn a_normalised_layer_has_mean_0_and_variance_1() {
        let norm = LayerNorm {
            weight: vec![1.0, 1.0, 2.0, 1.0],
            bias: vec![0.0, 0.0, 1.0, 0.0],
            epsilon: 1e-12,
        };
        let mut x = [1.0, 2.0, 3.0, 4.0];
        norm.apply(&mut x);
        // ±1.5 and ±0.5 by the root of 1.25.
        close(&x, &[-1.341_640_8, -0.447_213_6, 1.894_427_2, 1.341_640_8]);
    }

    #[test]
    fn the_exponential_is_that_of_64_bits() {
        for step in 0..8_700 {
            let x = -0.01 * step as f32;
            let (own, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((own / exact - 1.0).abs() < 2e-7, "{x}: {own}, not {exact}");
        }
    }

    #[test]
    fn gelu_is_what_its_definition_says() {
        // scipy.stats.norm.cdf(x) * x
        let mut x = [-3.0, -1.0, -0.1, 0.0, 0.5, 1.0, 2.0, 6.0];
        gelu(&mut x);
        close(
            &x,
            &[
                -0.004_049_69,
                -0.158_655_25,
                -0.046_017_22,
                0.0,
                0.345_731_23,
                0.841_344_8,
                1.954_499_7,
                6.0,
            ],
        );
    }

    #[test]
    fn attention_mixes_values_by_how_queries_meet_keys_and_texts_do_not_mix() {
        // Two heads of width 1; a text of two pieces, then one of one piece. Of each row queries, keys and values.
        let first = [0.0, 2_f32.ln(), 5.0, 1.0, 1.0, 10.0];
        let second = [0.0, 0.0, 7.0, 0.0, 3.0, 40.0];
        let other = [9.0, 9.0, 9.0, 9.0, 6.0, 8.0];
        let mut to = Vec::new();
        attention(&[first, second, other].concat(), 2, &[2, 1], &mut to);
        // First head: all queries are 0, so values are averaged. Second: weights e^(ln 2 · 1) to e^0, 2 to 1.
        let expected = [2.0, 20.0, 2.0, 25.0, 6.0, 8.0];
        for (got, expected) in to.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{to:?}");
        }
    }

    #[test]
    fn shares_add_up_and_large_numbers_do_not_overflow() {
        let mut x = [0.0, 0.0, 1000.0, 1000.0, 3_f32.ln(), 0.0];
        softmax(&mut x, 2);
        close(&x, &[0.5, 0.5, 0.5, 0.5, 0.75, 0.25]);
        let mut v = [3.0, 4.0];
        normalise(&mut v);
        close(&v, &[0.6, 0.8]);
        normalise(&mut [0.0, 0.0]);
    }
}
