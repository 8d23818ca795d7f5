//! Latencies of the calls of one kind in one block, as a line of JSON can carry them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// An empty histogram of nanoseconds, to 3 significant digits, up to an hour and growing beyond.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("these bounds are valid"))
}

/// The calls of one kind in one block that ended well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Their service times in nanoseconds, summed.
    pub total_ns: u64,
    /// The median service time in nanoseconds.
    pub p50_ns: u64,
    /// The longest service time in nanoseconds.
    pub max_ns: u64,
    /// All service times: an HdrHistogram in its V2 deflate encoding, in base64.
    hdr: String,
}

impl Calls {
    /// Packs a histogram; `total_ns` is exact, while the histogram rounds.
    ///
    /// # Errors
    /// If the histogram cannot be encoded.
    pub fn new(histogram: &Histogram<u64>, total_ns: u64) -> Result<Self, String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .map_err(|error| format!("encoding a histogram: {error:?}"))?;
        Ok(Self {
            count: histogram.len(),
            total_ns,
            p50_ns: histogram.value_at_quantile(0.5),
            max_ns: histogram.max(),
            hdr: STANDARD.encode(bytes),
        })
    }

    /// Unpacks the histogram.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = STANDARD
            .decode(&self.hdr)
            .map_err(|error| format!("histogram: {error}"))?;
        Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| format!("histogram: {error:?}"))
    }

    /// The mean service time in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_encoding() {
        let mut times = histogram();
        for time in [10, 20, 30, 40_000_000] {
            times.record(time).unwrap();
        }
        let calls = Calls::new(&times, 40_000_060).unwrap();
        let back: Calls = serde_json::from_str(&serde_json::to_string(&calls).unwrap()).unwrap();
        assert_eq!(back.histogram().unwrap(), times);
        assert_eq!((calls.count, calls.p50_ns), (4, 20));
        assert_eq!(calls.mean_ns(), 10_000_015.0);
    }

    #[test]
    fn a_damaged_histogram_is_an_error() {
        let calls = Calls::new(&histogram(), 0).unwrap();
        let text = serde_json::to_string(&calls).unwrap();
        let damaged: Calls = serde_json::from_str(&text.replace(&calls.hdr, "AAAA")).unwrap();
        assert!(damaged.histogram().is_err());
    }
}
