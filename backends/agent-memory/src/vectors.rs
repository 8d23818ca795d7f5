//! Vectors of notes: their stored form, and the search for the nearest.
//!
//! A stored vector has one signed byte a number. Memory holds only the signs, 48 bytes for 384 numbers. The
//! notes whose signs differ least from a question's are then compared by their vectors.

use std::collections::{HashMap, HashSet};

/// Packs a vector into one signed byte a number, the largest 127. This keeps the direction, not the length.
pub(super) fn packed(vector: &[f32]) -> Vec<u8> {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let scale = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    vector.iter().map(|number| ((number * scale).round() as i8).cast_unsigned()).collect()
}

/// The cosine of a vector of length 1 and a packed one; `None` if their dimensions differ or the packed one
/// is 0.
pub(super) fn cosine(vector: &[f32], packed: &[u8]) -> Option<f64> {
    if packed.len() != vector.len() || packed.is_empty() {
        return None;
    }
    let (mut product, mut square) = (0.0_f32, 0.0_f32);
    for (a, b) in vector.iter().zip(packed) {
        let b = f32::from(b.cast_signed());
        product += a * b;
        square += b * b;
    }
    (square > 0.0).then(|| f64::from(product / square.sqrt()))
}

/// A vector of length 1 between `vector` and `share` of a packed one; `None` as for [`cosine`], and where they cancel out.
pub(super) fn towards(vector: &[f32], packed: &[u8], share: f64) -> Option<Vec<f32>> {
    let length = |numbers: &[f32]| numbers.iter().map(|n| n * n).sum::<f32>().sqrt();
    cosine(vector, packed)?;
    let other: Vec<f32> = packed.iter().map(|b| f32::from(b.cast_signed())).collect();
    let share = share as f32 / length(&other);
    let sum = vector.iter().zip(&other).map(|(a, b)| share.mul_add(*b, *a));
    let mut sum: Vec<f32> = sum.collect();
    let of = length(&sum);
    sum.iter_mut().for_each(|number| *number /= of);
    // Packed numbers have a hundredth of this precision.
    (of > 1e-4).then_some(sum)
}

/// The signs of vectors, by note.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// The number of 64-bit words for the signs of one vector.
    stride: usize,
    signs: Vec<u64>,
    ids: Vec<i64>,
    places: HashMap<i64, usize>,
    /// Notes without any text.
    blank: HashSet<i64>,
}

fn signs(vector: impl Iterator<Item = bool>, to: &mut Vec<u64>) {
    let mut word = 0;
    let mut count = 0;
    for is_positive in vector {
        word |= u64::from(is_positive) << (count % 64);
        count += 1;
        if count % 64 == 0 {
            to.push(std::mem::take(&mut word));
        }
    }
    if count % 64 != 0 {
        to.push(word);
    }
}

/// In how many signs each vector differs from `wanted`.
fn distances(signs: &[u64], wanted: &[u64]) -> Vec<u16> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has the feature that the function is compiled for.
        #[allow(unsafe_code, reason = "the compiler cannot know what processor it is")]
        return unsafe { distances_popcnt(signs, wanted) };
    }
    distances_of_each(signs, wanted)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn distances_popcnt(signs: &[u64], wanted: &[u64]) -> Vec<u16> {
    distances_of_each(signs, wanted)
}

/// In loops, since what iterators collect is not compiled for the caller's features.
#[inline(always)]
fn distances_of_each(signs: &[u64], wanted: &[u64]) -> Vec<u16> {
    let mut distances = vec![0; signs.len() / wanted.len()];
    match wanted.as_chunks() {
        // The 384 signs of the installed model: a length that the compiler knows takes half of the time.
        ([wanted], []) => {
            let wanted: &[u64; 6] = wanted;
            for (distance, signs) in distances.iter_mut().zip(signs.as_chunks::<6>().0) {
                *distance = differing(signs, wanted);
            }
        }
        _ => {
            let signs = signs.chunks_exact(wanted.len());
            for (distance, signs) in distances.iter_mut().zip(signs) {
                *distance = differing(signs, wanted);
            }
        }
    }
    distances
}

#[inline(always)]
fn differing(a: &[u64], b: &[u64]) -> u16 {
    let mut count = 0;
    for (a, b) in a.iter().zip(b) {
        count += (a ^ b).count_ones() as u16;
    }
    count
}

impl Signs {
    pub(super) fn new(dimensions: usize) -> Self {
        Self { stride: dimensions.div_ceil(64), ..Self::default() }
    }

    /// Adds a note with its packed vector, which is empty for a note without text.
    pub(super) fn add(&mut self, id: i64, packed: &[u8]) {
        self.remove(id);
        if packed.is_empty() {
            self.blank.insert(id);
            return;
        }
        self.places.insert(id, self.ids.len());
        self.ids.push(id);
        signs(packed.iter().map(|byte| byte.cast_signed() > 0), &mut self.signs);
    }

    pub(super) fn remove(&mut self, id: i64) {
        self.blank.remove(&id);
        let Some(place) = self.places.remove(&id) else {
            return;
        };
        self.ids.swap_remove(place);
        let last = self.ids.len() * self.stride;
        self.signs.copy_within(last.., place * self.stride);
        self.signs.truncate(last);
        if let Some(moved) = self.ids.get(place) {
            self.places.insert(*moved, place);
        }
    }

    /// The number of notes, those without any text included.
    pub(super) fn len(&self) -> usize {
        self.ids.len() + self.blank.len()
    }

    /// The `most` notes whose signs differ least from a vector's, the nearest first; of equals the newer first.
    pub(super) fn nearest(&self, vector: &[f32], most: usize) -> Vec<i64> {
        let mut wanted = Vec::with_capacity(self.stride);
        signs(vector.iter().map(|number| *number > 0.0), &mut wanted);
        if wanted.len() != self.stride || self.stride == 0 {
            return Vec::new();
        }
        let distances = distances(&self.signs, &wanted);
        // Count instead of sorting: there are many notes but few distinct distances.
        let mut counts = vec![0_usize; self.stride * 64 + 1];
        for distance in &distances {
            counts[usize::from(*distance)] += 1;
        }
        let mut sum = 0;
        let furthest = counts.iter().position(|count| {
            sum += count;
            sum >= most
        });
        let furthest = furthest.unwrap_or(counts.len());
        let near = distances.iter().zip(&self.ids).filter(|(distance, _)| usize::from(**distance) <= furthest);
        let mut near: Vec<(u16, i64)> = near.map(|(distance, id)| (*distance, *id)).collect();
        near.sort_unstable_by_key(|(distance, id)| (*distance, -id));
        near.truncate(most);
        near.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packed_vector_keeps_its_direction() {
        let vector = [0.6, -0.8, 0.0];
        let packed = packed(&vector);
        assert_eq!(packed[1].cast_signed(), -127);
        assert!(cosine(&vector, &packed).unwrap() > 0.9999);
        assert!(cosine(&[0.8, 0.6, 0.0], &packed).unwrap().abs() < 0.01);
        assert_eq!(cosine(&vector, &packed[..2]), None);
        assert_eq!(cosine(&[], &[]), None);
    }

    #[test]
    fn a_moved_vector_is_between_its_two_and_of_length_1() {
        let moved = towards(&[1.0, 0.0], &packed(&[0.0, 1.0]), 1.0).unwrap();
        assert!(moved.iter().all(|number| (number - 0.5_f32.sqrt()).abs() < 1e-3), "{moved:?}");
        assert_eq!(towards(&[1.0, 0.0], &[1], 1.0), None);
        assert_eq!(towards(&[1.0, 0.0], &packed(&[-1.0, 0.0]), 1.0), None);
    }

    #[test]
    fn the_nearest_come_first_and_what_is_forgotten_does_not_come() {
        let mut signs = Signs::new(4);
        let plus = 1_i8.cast_unsigned();
        let minus = (-1_i8).cast_unsigned();
        signs.add(1, &[plus, plus, plus, plus]);
        signs.add(2, &[plus, plus, minus, minus]);
        signs.add(3, &[minus, minus, minus, minus]);
        signs.add(4, &[]);
        assert_eq!(signs.nearest(&[1.0, 1.0, 1.0, -1.0], 3), [2, 1, 3]);
        assert_eq!(signs.nearest(&[1.0, 1.0, 1.0, -1.0], 1), [2]);
        signs.remove(1);
        assert_eq!(signs.nearest(&[1.0; 4], 9), [2, 3]);
        signs.add(3, &[plus, plus, plus, plus]);
        assert_eq!((signs.nearest(&[1.0; 4], 9), signs.len()), (vec![3, 2], 3));
    }

    proptest! {
        #[test]
        fn distances_count_differing_signs(words in 1_usize..14, rows in 0_usize..9, seed in any::<u64>()) {
            let number = |n: usize| (n as u64 + 1).wrapping_mul(seed | 1).rotate_left(n as u32);
            let wanted: Vec<u64> = (0..words).map(number).collect();
            let signs: Vec<u64> = (words..words * (rows + 1)).map(number).collect();
            let expected = signs.chunks(words).map(|signs| {
                let differing = signs.iter().zip(&wanted).map(|(a, b)| (a ^ b).count_ones());
                differing.sum::<u32>() as u16
            });
            let expected: Vec<u16> = expected.collect();
            prop_assert_eq!(distances(&signs, &wanted), &*expected);
            prop_assert_eq!(distances_of_each(&signs, &wanted), &*expected);
        }

        #[test]
        fn signs_follow_any_changes(steps in prop::collection::vec((0_i64..12, any::<Option<[i8; 3]>>()), 0..60)) {
            let mut signs = Signs::new(3);
            let mut model: HashMap<i64, [bool; 3]> = HashMap::new();
            for (id, vector) in steps {
                match vector {
                    Some(vector) => {
                        signs.add(id, &vector.map(i8::cast_unsigned));
                        model.insert(id, vector.map(|number| number > 0));
                    }
                    None => {
                        signs.remove(id);
                        model.remove(&id);
                    }
                }
            }
            let distance = |id: &i64| model[id].iter().filter(|sign| !**sign).count();
            let mut expected: Vec<i64> = model.keys().copied().collect();
            expected.sort_by_key(|id| (distance(id), -id));
            prop_assert_eq!(signs.nearest(&[1.0; 3], 100), expected);
        }
    }
}
