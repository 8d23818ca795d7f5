//! The arithmetic of a transformer's layers, on row-major matrices.
//!
//! Products use our own kernel: a query has about ten rows, for which matrix libraries take longer to
//! pack the weights than to multiply (36 ms against 6 ms).

/// `x` · `weight`ᵀ + `bias` for each row of `x`.
pub(crate) struct Linear {
    /// One row per output.
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl Linear {
    pub(crate) fn apply(&self, x: &[f32], to: &mut Vec<f32>) {
        let columns = self.bias.len();
        let inner = self.weight.len() / columns;
        let rows = x.len() / inner;
        to.clear();
        for _ in 0..rows {
            to.extend_from_slice(&self.bias);
        }
        for (x, to) in x.chunks(ROWS * inner).zip(to.chunks_mut(ROWS * columns)) {
            self.add_to(x, inner, to);
        }
    }

    fn add_to(&self, x: &[f32], inner: usize, to: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
            return unsafe { add_products_avx2(x, &self.weight, inner, to) };
        }
        // On other processors, `mul_add` may compile to a slow library call.
        add_products::<{ cfg!(target_arch = "aarch64") }>(x, &self.weight, inner, to);
    }
}

/// Rows per pass through a layer: few enough for the processor's cache, and they share one read of the weights.
const ROWS: usize = 64;

/// Number of floats that one step multiplies, as in an AVX2 vector.
const LANES: usize = 8;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_products_avx2(x: &[f32], weight: &[f32], inner: usize, to: &mut [f32]) {
    add_products::<true>(x, weight, inner, to);
}

/// Adds x · weightᵀ in blocks of two rows of weights by four rows of x.
#[inline(always)]
fn add_products<const FUSED: bool>(x: &[f32], weight: &[f32], inner: usize, to: &mut [f32]) {
    let columns = weight.len() / inner;
    // Zeros pad an incomplete block; their products are dropped.
    let zeros = vec![0.0; inner];
    for (pair, weights) in weight.chunks(2 * inner).enumerate() {
        let (first, second) = weights.split_at(inner);
        let second = if second.is_empty() { &zeros } else { second };
        let mut at = 2 * pair;
        for four in x.chunks(4 * inner) {
            let mut rows = [&zeros[..]; 4];
            for (row, x) in rows.iter_mut().zip(four.chunks_exact(inner)) {
                *row = x;
            }
            let sums = dots::<FUSED>(rows, [first, second]);
            for sums in sums.iter().take(four.len() / inner) {
                to[at] += sums[0];
                if 2 * pair + 1 < columns {
                    to[at + 1] += sums[1];
                }
                at += columns;
            }
        }
    }
}

/// Dot products of four rows of x with two rows of weights.
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "lanes side by side are what the compiler makes vectors of"
)]
fn dots<const FUSED: bool>(rows: [&[f32]; 4], weights: [&[f32]; 2]) -> [[f32; 2]; 4] {
    let [(first, first_rest), (second, second_rest)] = weights.map(<[f32]>::as_chunks::<LANES>);
    let count = first.len();
    let (first, second) = (&first[..count], &second[..count]);
    let [a, b, c, d] = rows.map(|row| &row.as_chunks::<LANES>().0[..count]);
    let mut sums = [[[0.0_f32; LANES]; 2]; 4];
    let [sums_a, sums_b, sums_c, sums_d] = &mut sums;
    for at in 0..count {
        let (first, second) = (&first[at], &second[at]);
        add::<FUSED>(&a[at], first, second, sums_a);
        add::<FUSED>(&b[at], first, second, sums_b);
        add::<FUSED>(&c[at], first, second, sums_c);
        add::<FUSED>(&d[at], first, second, sums_d);
    }
    let done = count * LANES;
    let mut dots = [[0.0; 2]; 4];
    for ((dots, lanes), row) in dots.iter_mut().zip(&sums).zip(rows) {
        for ((dot, lanes), rest) in dots.iter_mut().zip(lanes).zip([first_rest, second_rest]) {
            let rest: f32 = row[done..].iter().zip(rest).map(|(a, b)| a * b).sum();
            *dot = lanes.iter().sum::<f32>() + rest;
        }
    }
    dots
}

#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "lanes side by side are what the compiler makes vectors of"
)]
fn add<const FUSED: bool>(
    row: &[f32; LANES],
    first: &[f32; LANES],
    second: &[f32; LANES],
    sums: &mut [[f32; LANES]; 2],
) {
    for lane in 0..LANES {
        if FUSED {
            sums[0][lane] = row[lane].mul_add(first[lane], sums[0][lane]);
            sums[1][lane] = row[lane].mul_add(second[lane], sums[1][lane]);
        } else {
            sums[0][lane] += row[lane] * first[lane];
            sums[1][lane] += row[lane] * second[lane];
        }
    }
}

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
            let mean = row.iter().sum::<f32>() / width as f32;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for ((x, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
    }
}

/// Gaussian error linear units (Hendrycks and Gimpel, 2016): x · Φ(x), in place.
pub(crate) fn gelu(x: &mut [f32]) {
    for x in x {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// The error function, by formula 7.1.26 of Abramowitz and Stegun.
///
/// The error is at most 1.5e-7, about the precision of an `f32`.
fn erf(x: f32) -> f32 {
    let t = 1.0 / 0.327_591_1_f32.mul_add(x.abs(), 1.0);
    let series = t
        * (0.254_829_6
            + t * (-0.284_496_72 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - series * (-x * x).exp()).copysign(x)
}

/// Converts each row of `width` to positive numbers with the sum 1, in place.
pub(crate) fn softmax(x: &mut [f32], width: usize) {
    for row in x.chunks_exact_mut(width) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for x in row.iter_mut() {
            *x = (*x - most).exp();
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
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
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
        let linear = Linear {
            weight: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            bias: vec![10.0, 20.0],
        };
        let mut to = Vec::new();
        linear.apply(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &mut to);
        close(&to, &[11.0, 24.0, 16.0, 35.0]);
    }

    #[test]
    fn rows_alone_and_together_give_the_same() {
        for (inner, columns) in [(24, 6), (19, 5), (3, 1)] {
            let numbers = |count: usize, step: usize| -> Vec<f32> {
                (0..count)
                    .map(|n| (n * step % 17) as f32 / 4.0 - 2.0)
                    .collect()
            };
            let linear = Linear {
                weight: numbers(inner * columns, 5),
                bias: numbers(columns, 3),
            };
            let x = numbers(inner * (ROWS + 7), 7);
            let (mut many, mut few) = (Vec::new(), Vec::new());
            linear.apply(&x, &mut many);
            for rows in x.chunks(inner * 7) {
                let mut some = Vec::new();
                linear.apply(rows, &mut some);
                few.extend(some);
            }
            close(&many, &few);
            let mut unfused = linear.bias.repeat(ROWS);
            let x = &x[..inner * ROWS];
            add_products::<false>(x, &linear.weight, inner, &mut unfused);
            close(&many[..columns * ROWS], &unfused);
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
