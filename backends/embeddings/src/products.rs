//! Products of the rows of a matrix with weights, in integers.
//!
//! The kernel is our own: a query has about ten rows, for which matrix libraries take longer to pack the weights than to
//! multiply. Ours are packed once, when the model is read.
//!
//! Every processor makes the same vectors: sums of integers do not depend on their order, and floats are multiplied and added
//! in one order, never in one fused step.

use std::ops::Range;

/// Outputs computed side by side, each in a lane of an AVX-512 vector or of two of AVX2.
const PANEL: usize = 16;

/// Inputs whose products are summed as integers, then scaled. Each group of a row has its own scale.
const GROUP: usize = 32;

/// The largest quantised number of a row.
const ROW_MAX: i32 = (1 << 14) - 1;

/// The largest sum of an output's quantised weights in a group, without their signs: times [`ROW_MAX`], it still is 32 bits.
const WEIGHTS_MAX: i32 = (1 << 17) - 1;

/// The distance in bytes from the weights in use to those that are prefetched from memory.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;

/// Added to a number of at most 22 bits, it rounds it to an integer, which then is in the lowest bits.
pub(crate) const ROUNDS: f32 = 12_582_912.0;

/// Rows that share one read of the weights from memory: few enough for the processor's cache.
const ROWS: usize = 72;

/// The instructions by which a processor multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Those that every processor of this architecture has.
    Plain,
}

impl InstructionSet {
    /// Whether this processor has them.
    pub(crate) fn is_usable(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
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
        all.into_iter().filter(|set| set.is_usable())
    }

    /// How many rows share a load of a weight. AVX2's 16 registers hold two accumulators for each row, and both factors.
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

/// Two numbers side by side, whose products one instruction adds.
type Pair = [i16; 2];

/// A pair of weights of each output of a panel.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct PanelWeights([Pair; PANEL]);

/// The rows of a matrix, quantised: in each group of a row, the largest number becomes [`ROW_MAX`].
pub(crate) struct Rows {
    /// One that this processor has.
    set: InstructionSet,
    /// The number of pairs of a row.
    pairs: usize,
    blocks: Vec<Block>,
}

/// Rows that share a load of a weight.
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
        let widest = InstructionSet::usable().next().unwrap_or(InstructionSet::Plain);
        Self::by(widest, x, count)
    }

    fn by(set: InstructionSet, x: &[f32], count: usize) -> Self {
        assert!(set.is_usable(), "this processor has no {set:?}");
        let inner = x.len() / count;
        let blocks = count.div_ceil(set.rows());
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
                block.quantise(set, row, x);
            }
            block
        });
        Self { set, pairs: inner.div_ceil(2), blocks: blocks.collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.rows.end)
    }
}

impl Block {
    fn quantise(&mut self, set: InstructionSet, row: usize, x: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if set != InstructionSet::Plain && InstructionSet::Avx2.is_usable() {
            // SAFETY: the processor has the features that the function is compiled for.
            #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
            return unsafe { self.quantise_avx2(row, x) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = set;
        self.quantise_each(row, x);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn quantise_avx2(&mut self, row: usize, x: &[f32]) {
        self.quantise_each(row, x);
    }

    #[inline(always)]
    fn quantise_each(&mut self, row: usize, x: &[f32]) {
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
            // Of zeros alone, this is infinite, and zero times it rounds to 0. So do numbers below 1e-35.
            let per_unit = ROW_MAX as f32 / largest;
            *scale = largest / ROW_MAX as f32;
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
/// A weight is a 16-bit integer times the scale of its output. [`WEIGHTS_MAX`] leaves about 14 of the bits and a sign to weights
/// of a normal distribution.
pub(crate) struct Linear {
    /// The number of pairs of inputs.
    pairs: usize,
    /// For each panel of outputs, the weights of the first pair of inputs, then those of the next. Zeros fill the last panel.
    panels: Vec<PanelWeights>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    /// `weight` has a row of inputs for each output, as many as `bias` has numbers.
    pub(crate) fn new(weight: &[f32], bias: Vec<f32>) -> Self {
        let inner = weight.len() / bias.len();
        let pairs = inner.div_ceil(2);
        let mut panels = vec![PanelWeights([[0; 2]; PANEL]); pairs * bias.len().div_ceil(PANEL)];
        let scales = weight.chunks_exact(inner).enumerate().map(|(output, row)| {
            let per_unit = integers_per_unit(row);
            let panel = &mut panels[output / PANEL * pairs..][..pairs];
            for (PanelWeights(weights), x) in panel.iter_mut().zip(row.chunks(2)) {
                for (weight, x) in weights[output % PANEL].iter_mut().zip(x) {
                    *weight = (x * per_unit).round() as i16;
                }
            }
            if per_unit == 0.0 { 0.0 } else { 1.0 / per_unit }
        });
        Self { scales: scales.collect(), pairs, panels, bias }
    }

    pub(crate) fn apply(&self, x: &Rows, to: &mut Vec<f32>) {
        assert_eq!(x.pairs, self.pairs, "rows of another length");
        let columns = self.bias.len();
        to.resize(x.count() * columns, 0.0);
        for blocks in x.blocks.chunks(ROWS / x.set.rows()) {
            for (panel, weights) in self.panels.chunks_exact(self.pairs).enumerate() {
                for block in blocks {
                    let product = Product { linear: self, panel, weights, block };
                    let to = &mut to[block.rows.start * columns..block.rows.end * columns];
                    product.write(x.set, to);
                }
            }
        }
    }
}

/// The factor from an output's weights to quantised ones; 0 where all are below 1e-34.
fn integers_per_unit(row: &[f32]) -> f32 {
    let largest = row.iter().fold(0.0_f64, |most, x| most.max(f64::from(x.abs())));
    let sums = row.chunks(GROUP).map(|x| x.iter().map(|x| f64::from(x.abs())).sum());
    let sum = sums.fold(0.0, f64::max);
    // Rounding adds up to half a unit to each weight, and a little to the factor.
    let sum_max = WEIGHTS_MAX - GROUP as i32;
    let per_unit = (f64::from(i16::MAX) / largest).min(f64::from(sum_max) / sum) as f32;
    if per_unit.is_finite() { per_unit } else { 0.0 }
}

/// One panel of the outputs of a block of rows.
struct Product<'a> {
    linear: &'a Linear,
    panel: usize,
    weights: &'a [PanelWeights],
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
    fn write(&self, set: InstructionSet, to: &mut [f32]) {
        #[cfg_attr(
            target_arch = "x86_64",
            allow(unsafe_code, reason = "the compiler cannot know what processor it is")
        )]
        match set {
            // SAFETY: `Rows::by` has checked that the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { with_rows!(self.rows_avx512(to), 1 2 3 4 5 6 7 8 9 10 11 12) },
            // SAFETY: `Rows::by` has checked that the processor has the features that the function is compiled for.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { with_rows!(self.rows_avx2(to), 1 2 3 4 5 6) },
            InstructionSet::Plain => with_rows!(self.rows_plain(to), 1 2 3 4 5 6),
        }
    }

    /// The pairs of each row, the weights and the scales of the rows, by group.
    #[inline(always)]
    fn groups<const COUNT: usize>(&self) -> impl Iterator<Item = (&[[Pair; COUNT]], &[PanelWeights], &[f32; COUNT])> {
        let pairs = self.block.pairs.as_chunks::<COUNT>().0.chunks(GROUP / 2);
        let weights = self.weights.chunks(GROUP / 2);
        let scales = self.block.scales.as_chunks::<COUNT>().0;
        let groups = pairs.zip(weights).zip(scales);
        groups.map(|((pairs, weights), scales)| (pairs, weights, scales))
    }

    /// The compiler spills accumulators of more than a few rows, unless it is told the registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn rows_avx512<const COUNT: usize>(&self, to: &mut [f32]) {
        use std::arch::x86_64::{
            _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpwssd_epi32, _mm512_load_si512, _mm512_mul_ps,
            _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
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
            __m256i, _mm256_add_epi32, _mm256_load_si256, _mm256_madd_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
            _mm256_storeu_si256,
        };
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (pairs, weights, scales) in self.groups::<COUNT>() {
            let mut registers = [[_mm256_setzero_si256(); 2]; COUNT];
            for (pairs, weights) in pairs.iter().zip(weights) {
                prefetch(weights);
                let halves: *const __m256i = weights.0.as_ptr().cast();
                // SAFETY: it reads the 64 bytes of the array, which is aligned to as many.
                #[allow(unsafe_code, reason = "there is no safe load of a vector")]
                let weights = unsafe { [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))] };
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

    fn rows_plain<const COUNT: usize>(&self, to: &mut [f32]) {
        let mut sums = [[0.0_f32; PANEL]; COUNT];
        for (pairs, weights, scales) in self.groups::<COUNT>() {
            let mut integers = [[0_i32; PANEL]; COUNT];
            for (pairs, weights) in pairs.iter().zip(weights) {
                for (pair, integers) in pairs.iter().zip(&mut integers) {
                    for (integer, weights) in integers.iter_mut().zip(&weights.0) {
                        *integer +=
                            i32::from(pair[0]) * i32::from(weights[0]) + i32::from(pair[1]) * i32::from(weights[1]);
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
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits([first, second]: Pair) -> i32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    i32::from_ne_bytes([a, b, c, d])
}

/// Asks the processor to read the weights that lie [`AHEAD`] bytes after these.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(weights: &PanelWeights) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let ahead = weights.0.as_ptr().wrapping_byte_add(AHEAD);
    // SAFETY: a prefetch reads nothing that the program sees, of any address.
    #[allow(unsafe_code, unused_unsafe, reason = "older compilers have it as unsafe")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
    }
}

#[cfg(test)]
mod tests;
