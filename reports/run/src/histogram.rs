//! Latencies of the calls of one kind, in a form for JSON lines.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The longest time that a histogram holds, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The significant digits of a histogram's times.
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds with 3 significant digits, for up to an hour.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).unwrap_or_else(|_| unreachable!("these bounds are valid"))
}

/// The bytes before the counts of an unpacked histogram: cookie, length of the counts, offset, digits, lowest and
/// highest value, ratio.
const HEADER: usize = 40;

/// The most bytes of an unpacked histogram: nine for each of the values that [`histogram`] tells apart.
const LONGEST_UNPACKED: u64 = 1 << 20;

/// Checks the bounds in an unpacked histogram's header, which says how much memory reading it takes.
fn check_bounds(unpacked: &[u8]) -> Result<(), String> {
    let number = |range: std::ops::Range<usize>| {
        let bytes = unpacked.get(range).unwrap_or_default().iter();
        bytes.fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
    };
    let (counts, digits, low, high) = (number(4..8), number(12..16), number(16..24), number(24..32));
    let is_ours = digits == u64::from(DIGITS) && low == 1 && high == LONGEST_NS;
    if is_ours && unpacked.len() as u64 == HEADER as u64 + counts {
        Ok(())
    } else {
        Err("histogram: is not a histogram of times up to an hour with 3 digits".to_owned())
    }
}

/// The successful calls of one kind in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// Number of calls.
    pub count: u64,
    /// The sum of their service times, in nanoseconds.
    pub total_ns: u64,
    /// The median service time in nanoseconds.
    pub p50_ns: u64,
    /// The 90th percentile in nanoseconds; with fewer than ten calls, the maximum.
    pub p90_ns: u64,
    /// The longest service time in nanoseconds.
    pub max_ns: u64,
}

impl Calls {
    /// Summarises a histogram. `total_ns` is passed separately because the histogram rounds.
    pub fn of(histogram: &Histogram<u64>, total_ns: u64) -> Self {
        Self {
            count: histogram.len(),
            total_ns,
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            max_ns: histogram.max(),
        }
    }

    /// The mean service time in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
}

/// All service times of one kind of call in one cell of one epoch.
/// The encoding is an HdrHistogram (V2, deflate) in base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Latencies(String);

impl TryFrom<String> for Latencies {
    type Error = String;

    fn try_from(packed: String) -> Result<Self, String> {
        let latencies = Self(packed);
        latencies.unpacked().map(|_| latencies)
    }
}

impl Latencies {
    /// Packs a histogram.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn new(histogram: &Histogram<u64>) -> Result<Self, String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .map_err(|error| format!("encoding a histogram: {error:?}"))?;
        Ok(Self(STANDARD.encode(bytes)))
    }

    /// The unpacked bytes, whose bounds are those of [`histogram`].
    fn unpacked(&self) -> Result<Vec<u8>, String> {
        let bytes = STANDARD.decode(&self.0).map_err(|error| format!("histogram: {error}"))?;
        // A cookie and the length of what follows it precede the packed bytes.
        let packed = bytes.get(8..).ok_or("histogram: is truncated")?;
        let mut unpacked = Vec::new();
        ZlibDecoder::new(packed)
            .take(LONGEST_UNPACKED)
            .read_to_end(&mut unpacked)
            .map_err(|error| format!("histogram: {error}"))?;
        check_bounds(&unpacked)?;
        Ok(unpacked)
    }

    /// Unpacks the histogram.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let unpacked = self.unpacked()?;
        Deserializer::new().deserialize(&mut &unpacked[..]).map_err(|error| format!("histogram: {error:?}"))
    }

    /// All of them in one histogram; `None` if there are none.
    ///
    /// # Errors
    /// If one is damaged.
    pub fn merged(all: &[&Self]) -> Result<Option<Histogram<u64>>, String> {
        let Some((first, rest)) = all.split_first() else {
            return Ok(None);
        };
        let mut merged = first.histogram()?;
        for more in rest {
            merged.add(more.histogram()?).map_err(|error| format!("merging histograms: {error:?}"))?;
        }
        Ok(Some(merged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_every_call() {
        let of = |times: &[u64]| {
            let mut histogram = histogram();
            times.iter().for_each(|time| histogram.record(*time).unwrap());
            Latencies::new(&histogram).unwrap()
        };
        assert_eq!(Latencies::merged(&[]), Ok(None));
        let merged = Latencies::merged(&[&of(&[10, 20]), &of(&[]), &of(&[20])]);
        let merged = merged.unwrap().unwrap();
        assert_eq!((merged.len(), merged.count_at(20)), (3, 2));
        let damaged = Latencies("AAAA".to_owned());
        Latencies::merged(&[&of(&[10]), &damaged]).unwrap_err();
    }

    #[test]
    fn a_histogram_survives_its_encoding() {
        let mut times = histogram();
        for time in [10, 20, 30, 40_000_000] {
            times.record(time).unwrap();
        }
        let latencies = Latencies::new(&times).unwrap();
        let text = serde_json::to_string(&latencies).unwrap();
        let back: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(back.histogram().unwrap(), times);
        let calls = Calls::of(&times, 40_000_060);
        assert_eq!((calls.count, calls.p50_ns), (4, 20));
        assert_eq!(calls.mean_ns(), 10_000_015.0);
    }

    #[test]
    fn a_histogram_that_would_take_much_memory_is_refused() {
        let packed = |unpacked: &[u8]| {
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packer, unpacked).unwrap();
            Latencies(STANDARD.encode([&[0; 8], &packer.finish().unwrap()[..]].concat()))
        };
        let zeros = packed(&vec![0; 8 << 20]);
        zeros.histogram().unwrap_err();
        let wide = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 5).unwrap();
        Latencies::new(&wide).unwrap().histogram().unwrap_err();
        // The length of the counts is not believed.
        let mut header = vec![0; HEADER];
        header[4..8].copy_from_slice(&[0xff; 4]);
        header[15] = DIGITS;
        header[23] = 1;
        header[24..32].copy_from_slice(&LONGEST_NS.to_be_bytes());
        packed(&header).histogram().unwrap_err();
    }

    #[test]
    fn a_damaged_histogram_is_an_error() {
        for damaged in ["\"AAAA\"", "\"=\"", "\"\""] {
            serde_json::from_str::<Latencies>(damaged).unwrap_err();
        }
    }
}
