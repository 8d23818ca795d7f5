//! The arithmetic of a transformer's layers, on row-major matrices, but for the products with weights: see
//! [`super::products`].

#[cfg(target_arch = "x86_64")]
use crate::products::InstructionSet;
use crate::products::ROUNDS;

/// Numbers side by side, which the compiler makes vectors of.
const LANES: usize = 32;

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
#[inline(always)]
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
    if InstructionSet::Avx2.is_usable() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
        return unsafe { gelu_avx2(x) };
    }
    gelu_of_each(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
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
    let series = t * (0.254_829_6 + t * (-0.284_496_72 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - series * exp(-x * x)).copysign(x)
}

/// The exponential of a number up to 0, without a branch or a call, so that the compiler makes vectors of it.
///
/// 2ⁿ · eʳ with |r| ≤ ln 2 / 2, by the polynomial of Cephes' `expf` (Moshier), whose error is at most 2e-7.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.max(-87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDS;
    let n = rounded - ROUNDS;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let series =
        0.5 + r * (0.166_666_66 + r * (0.041_665_796 + r * (8.333_452e-3 + r * (1.398_2e-3 + r * 1.987_569_1e-4))));
    let power = (rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits());
    (1.0 + r + r * r * series) * f32::from_bits(power)
}

/// The largest number, in [`LANES`] side by side.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for x in x {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Converts a row to positive numbers with the sum 1, in place.
#[inline(always)]
fn softmax(row: &mut [f32]) {
    let most = largest(row);
    for x in row.iter_mut() {
        *x = exp(*x - most);
    }
    let sum = sum(row, |x| x);
    for x in row {
        *x /= sum;
    }
}

/// Attention, separately for each head and each text: softmax(Q · Kᵀ / √width of a head) · V.
///
/// A row of `qkv` is the queries, the keys and the values of all heads.
pub(crate) fn attention(qkv: &[f32], heads: usize, lengths: &[usize], to: &mut Vec<f32>) {
    #[cfg(target_arch = "x86_64")]
    if InstructionSet::Avx2.is_usable() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
        return unsafe { attention_avx2(qkv, heads, lengths, to) };
    }
    attention_of_each(qkv, heads, lengths, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
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
    let (mut keys, mut weights) = (Vec::new(), Vec::new());
    let mut first = 0;
    for &length in lengths {
        let rows = || qkv[first * row..(first + length) * row].chunks_exact(row);
        for at in (0..width).step_by(head) {
            transpose(rows().map(|row| &row[width + at..][..head]), head, &mut keys);
            let asking = rows().map(|row| &row[at..][..head]);
            for (query, to) in asking.zip(to[first * width..].chunks_exact_mut(width)) {
                weights.resize(length.div_ceil(LANES), [0.0; LANES]);
                for (weights, keys) in weights.iter_mut().zip(keys.chunks_exact(head)) {
                    let mut sums = [0.0; LANES];
                    for (x, keys) in query.iter().zip(keys) {
                        add_product(&mut sums, *x, keys);
                    }
                    *weights = sums.map(|sum| scale * sum);
                }
                let weights = &mut weights.as_flattened_mut()[..length];
                softmax(weights);
                let values = rows().map(|row| &row[2 * width + at..][..head]);
                mix(weights, values, &mut to[at..at + head]);
            }
        }
        first += length;
    }
}

#[allow(clippy::needless_range_loop, reason = "lanes side by side are what the compiler makes vectors of")]
#[inline(always)]
fn add_product(sums: &mut [f32; LANES], weight: f32, x: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] += weight * x[lane];
    }
}

/// Writes `keys` in groups of [`LANES`]: the first number of each key of a group, then the second. Zeros fill the last group.
#[inline(always)]
fn transpose<'a>(keys: impl ExactSizeIterator<Item = &'a [f32]>, head: usize, to: &mut Vec<[f32; LANES]>) {
    to.clear();
    to.resize(keys.len().div_ceil(LANES) * head, [0.0; LANES]);
    for (number, key) in keys.enumerate() {
        let group = &mut to[number / LANES * head..][..head];
        for (lanes, x) in group.iter_mut().zip(key) {
            lanes[number % LANES] = *x;
        }
    }
}

/// Adds the values, each times its weight, to `to`, which holds zeros.
#[inline(always)]
fn mix<'a>(weights: &[f32], values: impl Iterator<Item = &'a [f32]> + Clone, to: &mut [f32]) {
    let (lanes, rest) = to.as_chunks_mut::<LANES>();
    for (number, to) in lanes.iter_mut().enumerate() {
        let mut sums = [0.0; LANES];
        for (weight, value) in weights.iter().zip(values.clone()) {
            add_product(&mut sums, *weight, &value.as_chunks().0[number]);
        }
        *to = sums;
    }
    let at = lanes.len() * LANES;
    for (weight, value) in weights.iter().zip(values) {
        for (to, x) in rest.iter_mut().zip(&value[at..]) {
            *to += weight * x;
        }
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
    fn a_normalised_layer_has_mean_0_and_variance_1() {
        let norm = LayerNorm { weight: vec![1.0, 1.0, 2.0, 1.0], bias: vec![0.0, 0.0, 1.0, 0.0], epsilon: 1e-12 };
        let mut x = [1.0, 2.0, 3.0, 4.0];
        norm.apply(&mut x);
        // ±1.5 and ±0.5 by the root of 1.25.
        close(&x, &[-1.341_640_8, -0.447_213_6, 1.894_427_2, 1.341_640_8]);
    }

    #[test]
    fn the_exponential_is_that_of_64_bits() {
        for step in 0..8_700 {
            let x = -0.01 * step as f32;
            let (got, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got / exact - 1.0).abs() < 2e-7, "{x}: {got}, not {exact}");
        }
    }

    #[test]
    fn gelu_is_what_its_definition_says() {
        // scipy.stats.norm.cdf(x) * x
        let mut x = [-3.0, -1.0, -0.1, 0.0, 0.5, 1.0, 2.0, 6.0];
        gelu(&mut x);
        close(&x, &[-0.004_049_69, -0.158_655_25, -0.046_017_22, 0.0, 0.345_731_23, 0.841_344_8, 1.954_499_7, 6.0]);
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

    /// Attention in 64-bit floats, as its definition says.
    fn attention_by_definition(qkv: &[f32], heads: usize, lengths: &[usize]) -> Vec<f64> {
        let row = qkv.len() / lengths.iter().sum::<usize>();
        let head = row / 3 / heads;
        let mut to = Vec::new();
        let mut first = 0;
        for &length in lengths {
            let at = |piece: usize, part: usize, head_number: usize, n: usize| {
                f64::from(qkv[(first + piece) * row + part * row / 3 + head_number * head + n])
            };
            for (piece, head_number) in (0..length).flat_map(|p| (0..heads).map(move |h| (p, h))) {
                let score = |other: usize| {
                    let products = (0..head).map(|n| at(piece, 0, head_number, n) * at(other, 1, head_number, n));
                    (products.sum::<f64>() / (head as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..length).map(score).collect();
                let sum: f64 = scores.iter().sum();
                to.extend((0..head).map(|n| {
                    let values = (0..length).map(|other| at(other, 2, head_number, n));
                    let products = scores.iter().zip(values).map(|(score, value)| score * value);
                    products.sum::<f64>() / sum
                }));
            }
            first += length;
        }
        to
    }

    #[test]
    fn attention_is_that_of_its_definition_and_the_same_on_every_processor() {
        let lengths = [70, 0, 1, 31, 32, 33];
        let pieces: usize = lengths.iter().sum();
        for (heads, head) in [(3, 1), (2, 31), (1, 32), (2, 40), (2, 64)] {
            let count = pieces * heads * head * 3;
            let qkv: Vec<f32> = (0..count).map(|n| (n * 7 % 101) as f32 / 50.0 - 1.0).collect();
            let (mut widest, mut plain) = (vec![9.0; 5], Vec::new());
            attention(&qkv, heads, &lengths, &mut widest);
            attention_of_each(&qkv, heads, &lengths, &mut plain);
            assert_eq!(widest, plain, "{heads} heads of {head}");
            let exact = attention_by_definition(&qkv, heads, &lengths);
            assert_eq!(widest.len(), exact.len());
            for (got, exact) in widest.iter().zip(&exact) {
                assert!((f64::from(*got) - exact).abs() < 1e-5, "{got} is not {exact}");
            }
        }
    }

    #[test]
    fn gelu_is_the_same_on_every_processor() {
        let numbers: Vec<f32> = (0..10_007).map(|n| n as f32 / 500.0 - 10.0).collect();
        let (mut widest, mut plain) = (numbers.clone(), numbers);
        gelu(&mut widest);
        gelu_of_each(&mut plain);
        assert_eq!(widest, plain);
    }

    #[test]
    fn shares_add_up_and_large_numbers_do_not_overflow() {
        for (mut x, shares) in
            [([0.0, 0.0], [0.5, 0.5]), ([1000.0, 1000.0], [0.5, 0.5]), ([3_f32.ln(), 0.0], [0.75, 0.25])]
        {
            softmax(&mut x);
            close(&x, &shares);
        }
        let mut v = [3.0, 4.0];
        normalise(&mut v);
        close(&v, &[0.6, 0.8]);
        normalise(&mut [0.0, 0.0]);
    }
}
