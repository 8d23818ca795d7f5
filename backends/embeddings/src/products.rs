//! Products of the rows of a matrix with weights, in integers.
//!
//! The kernel is our own: a query has about ten rows, for which matrix libraries take longer to pack the weights than to
//! multiply. Ours are packed once, when the model is read. Sums of integers do not depend on their order, so every processor
//! makes the same vectors.

use std::ops::Range;

/// Outputs computed side by side, each in a lane of an AVX-512 vector or of two of AVX2.
const PANEL: usize = 16;

/// Inputs whose products are summed as integers, then scaled. Each group of a row has its own scale.
const GROUP: usize = 128;

/// The largest integer of a row.
const ROW_MAX: i32 = (1 << 13) - 1;

/// How much the integers of an output's weights in a group may add up to: times [`ROW_MAX`], the sum still is 32 bits.
const WEIGHTS_MAX: i32 = (1 << 18) - 1;

/// How many bytes before its use a processor is asked to read a weight, which comes from memory.
const AHEAD: usize = 2048;

/// Added to a number of less than 22 bits, it leaves the nearest integer in the lowest bits.
const ROUNDS: f32 = 12_582_912.0;

/// Rows per pass through the weights: few enough for the processor's cache, and they share one read of the weights.
const ROWS: usize = 64;

/// How a processor multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of it.
    Plain,
}

impl Vectors {
    /// Whether this processor has them.
    pub(crate) fn is_usable(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
            }
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

    /// How many rows share a read of a weight. AVX2's 16 registers hold two for each row, and what is multiplied.
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

/// Two numbers side by side, which one instruction multiplies and adds.
type Pair = [i16; 2];

/// A pair of weights of each output of a panel.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Weights([Pair; PANEL]);

/// The rows of a matrix, in integers: of each group of a row, the largest is [`ROW_MAX`].
pub(crate) struct Rows {
    vectors: Vectors,
    blocks: Vec<Block>,
}

/// Rows that share a read of a weight.
struct Block {
    rows: Range<usize>,
    /// The first pair of each row, then the second.
    pairs: Vec<Pair>,
    /// The scales of the first group of each row, then of the second.
    scales: Vec<f32>,
}

impl Rows {
    /// `x` has `count` rows, at least one.
    pub(crate) fn new(x: &[f32], count: usize) -> Self {
        let widest = Vectors::usable().next().unwrap_or(Vectors::Plain);
        Self::by(widest, x, count)
    }

    fn by(vectors: Vectors, x: &[f32], count: usize) -> Self {
        let inner = x.len() / count;
        let blocks = count.div_ceil(vectors.rows());
        // Blocks of about one size: a block of one row would wait for each sum.
        let blocks = (0..blocks).map(|block| count * block / blocks..count * (block + 1) / blocks);
        let blocks = blocks.map(|rows| {
            let count = rows.len();
            let mut block = Block {
                pairs: vec![[0; 2]; count * inner.div_ceil(2)],
                scales: vec![0.0; count * inner.div_ceil(GROUP)],
                rows: rows.clone(),
            };
            let x = x[rows.start * inner..rows.end * inner].chunks_exact(inner);
            for (row, x) in x.enumerate() {
                block.set(row, x);
            }
            block
        });
        Self {
            vectors,
            blocks: blocks.collect(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.rows.end)
    }
}

impl Block {
    fn set(&mut self, row: usize, x: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if Vectors::Avx2.is_usable() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
            return unsafe { self.set_avx2(row, x) };
        }
        self.set_by_group(row, x);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn set_avx2(&mut self, row: usize, x: &[f32]) {
        self.set_by_group(row, x);
    }

    #[inline(always)]
    fn set_by_group(&mut self, row: usize, x: &[f32]) {
        let count = self.rows.len();
        let pairs = self.pairs.chunks_mut(count * GROUP / 2);
        let scales = self.scales[row..].iter_mut().step_by(count);
        for ((x, pairs), scale) in x.chunks(GROUP).zip(pairs).zip(scales) {
            let mut largest = 0;
            for x in x {
                // Without their signs, floats are in the order of their bits.
                largest = largest.max(x.abs().to_bits());
            }
            let largest = f32::from_bits(largest);
            *scale = largest / ROW_MAX as f32;
            let per_unit = ROW_MAX as f32 / largest;
            let mut integers = [0; GROUP];
            for (integer, x) in integers.iter_mut().zip(x) {
                *integer = (x * per_unit + ROUNDS).to_bits() as i16;
            }
            let pairs = pairs[row..].iter_mut().step_by(count);
            for (pair, integers) in pairs.zip(integers.as_chunks().0) {
                *pair = *integers;
            }
        }
    }
}

/// `x` · `weight`ᵀ + `bias` for each row of `x`.
///
/// A weight is a 16-bit integer times the scale of its output.
pub(crate) struct Linear {
    /// The number of pairs of inputs.
    pairs: usize,
    /// For each panel of outputs, the weights of the first pair of inputs, then those of the next. Zeros fill the last panel.
    panels: Vec<Weights>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// `weight` has a row of inputs for each output, as many as `bias` has numbers.
    pub(crate) fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inner = weight.len() / bias.len();
        let pairs = inner.div_ceil(2);
        let mut panels = vec![Weights([[0; 2]; PANEL]); pairs * bias.len().div_ceil(PANEL)];
        let scales = weight.chunks_exact(inner).enumerate().map(|(output, row)| {
            let per_unit = integers_per_unit(row);
            let panel = &mut panels[output / PANEL * pairs..][..pairs];
            for (Weights(weights), x) in panel.iter_mut().zip(row.chunks(2)) {
                for (weight, x) in weights[output % PANEL].iter_mut().zip(x) {
                    // Of zeros alone, this is NaN, which becomes 0.
                    *weight = (x * per_unit).round() as i16;
                }
            }
            1.0 / per_unit
        });
        Self {
            scales: scales.collect(),
            pairs,
            panels,
            bias,
        }
    }

    pub(crate) fn apply(&self, x: &Rows, to: &mut Vec<f32>) {
        let columns = self.bias.len();
        to.clear();
        to.resize(x.count() * columns, 0.0);
        for blocks in x.blocks.chunks(ROWS / x.vectors.rows()) {
            for (panel, weights) in self.panels.chunks_exact(self.pairs).enumerate() {
                for block in blocks {
                    let product = Product {
                        linear: self,
                        panel,
                        weights,
                        block,
                    };
                    let to = &mut to[block.rows.start * columns..block.rows.end * columns];
                    product.write(x.vectors, to);
                }
            }
        }
    }
}

/// By what the weights of an output are multiplied before they are rounded.
fn integers_per_unit(row: &[f32]) -> f32 {
    let largest = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let sums = row.chunks(GROUP).map(|x| x.iter().map(|x| x.abs()).sum());
    let sum = sums.fold(0.0, f32::max);
    // Rounding adds up to half a unit to each.
    let sum_max = WEIGHTS_MAX - GROUP as i32;
    (f32::from(i16::MAX) / largest).min(sum_max as f32 / sum)
}

/// One panel of the outputs of a block of rows.
struct Product<'a> {
    linear: &'a Linear,
    panel: usize,
    weights: &'a [Weights],
    block: &'a Block,
}

/// Calls a kernel that is compiled for the number of rows.
macro_rules! with_rows {
    ($product:ident.$kernel:ident($to:ident), $($count:literal)+) => {
        match $product.block.rows.len() {
            $($count => $product.$kernel::<$count>($to),)+
            rows => unreachable!("a block of {rows} rows"),
        }
    };
}

impl Product<'_> {
    fn write(&self, vectors: Vectors, to: &mut [f32]) {
        #[cfg_attr(
            target_arch = "x86_64",
            allow(unsafe_code, reason = "the compiler cannot know what processor it is")
        )]
        match vectors {
            // SAFETY: the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe {
                with_rows!(self.rows_avx512(to), 1 2 3 4 5 6 7 8 9 10 11 12)
            },
            // SAFETY: the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { with_rows!(self.rows_avx2(to), 1 2 3 4 5 6) },
            Vectors::Plain => with_rows!(self.rows(to), 1 2 3 4 5 6),
        }
    }

    /// The pairs of each row, the weights and the scales of the rows, by group.
    #[inline(always)]
    fn groups<const COUNT: usize>(
        &self,
    ) -> impl Iterator<Item = (&[[Pair; COUNT]], &[Weights], &[f32; COUNT])> {
        let pairs = self.block.pairs.as_chunks::<COUNT>().0.chunks(GROUP / 2);
        let weights = self.weights.chunks(GROUP / 2);
        let scales = self.block.scales.as_chunks::<COUNT>().0;
        let groups = pairs.zip(weights).zip(scales);
        groups.map(|((pairs, weights), scales)| (pairs, weights, scales))
    }

    /// The compiler spills sums of more than a few rows, unless it is told the registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn rows_avx512<const COUNT: usize>(&self, to: &mut [f32]) {
        use std::arch::x86_64::{
            _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpwssd_epi32, _mm512_load_si512,
            _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
            _mm512_setzero_si512, _mm512_storeu_ps,
        };
        let mut registers = [_mm512_setzero_ps(); COUNT];
        for (pairs, weights, scales) in self.groups::<COUNT>() {
            let mut sums = [_mm512_setzero_si512(); COUNT];
            for (pairs, weights) in pairs.iter().zip(weights) {
                prefetch(weights);
                // SAFETY: it reads the 64 bytes of the array, which is aligned to as many.
                #[allow(unsafe_code, reason = "there is no safe load of a vector")]
                let weights = unsafe { _mm512_load_si512(weights.0.as_ptr().cast()) };
                for (pair, sum) in pairs.iter().zip(&mut sums) {
                    *sum = _mm512_dpwssd_epi32(*sum, _mm512_set1_epi32(bits(*pair)), weights);
                }
            }
            for ((register, sum), scale) in registers.iter_mut().zip(sums).zip(scales) {
                let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(*scale));
                *register = _mm512_add_ps(*register, scaled);
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

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn rows_avx2<const COUNT: usize>(&self, to: &mut [f32]) {
        use std::arch::x86_64::{
            __m256i, _mm256_add_epi32, _mm256_load_si256, _mm256_madd_epi16, _mm256_set1_epi32,
            _mm256_setzero_si256, _mm256_storeu_si256,
        };
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (pairs, weights, scales) in self.groups::<COUNT>() {
            let mut registers = [[_mm256_setzero_si256(); 2]; COUNT];
            for (pairs, weights) in pairs.iter().zip(weights) {
                prefetch(weights);
                let halves: *const __m256i = weights.0.as_ptr().cast();
                // SAFETY: it reads the 64 bytes of the array, which is aligned to as many.
                #[allow(unsafe_code, reason = "there is no safe load of a vector")]
                let weights =
                    unsafe { [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))] };
                for (pair, registers) in pairs.iter().zip(&mut registers) {
                    let pair = _mm256_set1_epi32(bits(*pair));
                    for (register, weights) in registers.iter_mut().zip(weights) {
                        *register = _mm256_add_epi32(*register, _mm256_madd_epi16(pair, weights));
                    }
                }
            }
            for ((registers, sums), scale) in registers.iter().zip(&mut sums).zip(scales) {
                let mut integers = [0_i32; PANEL];
                let halves: *mut __m256i = integers.as_mut_ptr().cast();
                // SAFETY: it writes the 64 bytes of the array.
                #[allow(unsafe_code, reason = "there is no safe store of a vector")]
                unsafe {
                    _mm256_storeu_si256(halves, registers[0]);
                    _mm256_storeu_si256(halves.add(1), registers[1]);
                }
                add_scaled(sums, &integers, *scale);
            }
        }
        self.scale(&sums, to);
    }

    #[inline(always)]
    fn rows<const COUNT: usize>(&self, to: &mut [f32]) {
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (pairs, weights, scales) in self.groups::<COUNT>() {
            let mut integers = [[0_i32; PANEL]; COUNT];
            for (pairs, weights) in pairs.iter().zip(weights) {
                for (pair, integers) in pairs.iter().zip(&mut integers) {
                    for (integer, weights) in integers.iter_mut().zip(&weights.0) {
                        *integer += i32::from(pair[0]) * i32::from(weights[0])
                            + i32::from(pair[1]) * i32::from(weights[1]);
                    }
                }
            }
            for ((integers, sums), scale) in integers.iter().zip(&mut sums).zip(scales) {
                add_scaled(sums, integers, *scale);
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

#[inline(always)]
fn add_scaled(sums: &mut [f32; PANEL], integers: &[i32; PANEL], scale: f32) {
    for (sum, integer) in sums.iter_mut().zip(integers) {
        *sum += *integer as f32 * scale;
    }
}

/// The two numbers as they lie in memory.
#[inline(always)]
fn bits([first, second]: Pair) -> i32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    i32::from_ne_bytes([a, b, c, d])
}

/// Asks the processor to read the weights that come [`AHEAD`] of these.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(weights: &Weights) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let ahead = weights.0.as_ptr().wrapping_byte_add(AHEAD);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_layer_is_weights_times_input_and_bias() {
        let linear = Linear::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![10.0, 20.0]);
        let mut to = Vec::new();
        linear.apply(&Rows::new(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2), &mut to);
        let expected = [11.0, 24.0, 16.0, 35.0];
        // Half a step of the smallest scale for each input.
        let error = 3.0 * 6.0 / 65_534.0;
        let off = |(a, b): (&f32, f32)| (a - b).abs();
        assert!(
            to.iter().zip(expected).all(|pair| off(pair) < error),
            "{to:?}"
        );
        Linear::new(&[0.0; 3], vec![7.0]).apply(&Rows::new(&[1.0, 2.0, 3.0], 1), &mut to);
        assert_eq!(to, [7.0]);
    }

    /// What integers make of a product is off by at most half a unit of each number, times what it meets.
    fn close_to_product(weight: &[f32], x: &[f32], got: f32) {
        let off = 0.5 / integers_per_unit(weight);
        let (mut product, mut error) = (0.0, 1e-4);
        for (weight, x) in weight.chunks(GROUP).zip(x.chunks(GROUP)) {
            let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (weight, x) in weight.iter().zip(x) {
                product += f64::from(*weight) * f64::from(*x);
                error += weight.abs() * largest / ROW_MAX as f32 / 2.0 + x.abs() * off;
                error += off * largest / ROW_MAX as f32 / 2.0;
            }
        }
        let off = (f64::from(got) - product).abs();
        assert!(off < f64::from(error), "{got} is not {product}");
    }

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        let number = |n| (n * step % 17) as f32 / 4.0 - 2.0;
        (0..count).map(number).collect()
    }

    #[test]
    fn every_processor_makes_the_same_products_of_any_number_of_rows() {
        for (inner, columns) in [(24, 6), (19, 37), (3, 1), (128, 16), (300, 20)] {
            let (weight, bias) = (numbers(inner * columns, 5), numbers(columns, 3));
            let linear = Linear::new(&weight, bias.clone());
            let count = ROWS + 7;
            let x = numbers(inner * count, 7);
            let mut many = Vec::new();
            linear.apply(&Rows::new(&x, count), &mut many);
            for (x, many) in x.chunks(inner).zip(many.chunks(columns)) {
                for ((weight, bias), got) in weight.chunks(inner).zip(&bias).zip(many) {
                    close_to_product(weight, x, got - bias);
                }
            }
            for vectors in Vectors::usable() {
                for rows in (1..=2 * vectors.rows()).chain([count]) {
                    let mut some = Vec::new();
                    linear.apply(&Rows::by(vectors, &x[..inner * rows], rows), &mut some);
                    assert_eq!(many[..columns * rows], some, "{rows} rows, {vectors:?}");
                }
            }
        }
    }

    /// Numbers of one sign and size have the largest sum.
    #[test]
    fn no_sum_overflows() {
        for inner in [1, 2, GROUP - 1, GROUP, 3 * GROUP] {
            for (weight, x) in [(1.0, 1.0), (-7e30, 0.1), (1e-30, -1e30), (0.3, 3e-30)] {
                let (weight, x) = (vec![weight; inner], vec![x; inner]);
                let linear = Linear::new(&weight, vec![0.0]);
                for vectors in Vectors::usable() {
                    let mut to = Vec::new();
                    linear.apply(&Rows::by(vectors, &x, 1), &mut to);
                    let exact = f64::from(weight[0]) * f64::from(x[0]) * inner as f64;
                    let off = f64::from(to[0]) / exact - 1.0;
                    assert!(off.abs() < 1e-3, "{to:?} is not {exact}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let linear = Linear::new(&[1.0; 6], vec![0.0; 2]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut to = Vec::new();
            linear.apply(&Rows::new(&[1.0, bad, 3.0, 1.0, 2.0, 3.0], 2), &mut to);
            assert!(to[..2].iter().all(|x| x.is_nan()), "{to:?}");
            assert!(to[2..].iter().all(|x| (x - 6.0).abs() < 0.01), "{to:?}");
        }
    }
}
