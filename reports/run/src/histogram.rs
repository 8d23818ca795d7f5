//! Latencies of the calls of one kind, in a form for JSON lines.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// An empty histogram of nanoseconds with 3 significant digits, for up to an hour.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("these bounds are valid"))
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
#[serde(transparent)]
pub struct Latencies(String);

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

    /// Unpacks the histogram.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = STANDARD
            .decode(&self.0)
            .map_err(|error| format!("histogram: {error}"))?;
        Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| format!("histogram: {error:?}"))
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
            merged
                .add(more.histogram()?)
                .map_err(|error| format!("merging histograms: {error:?}"))?;
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
            times
                .iter()
                .for_each(|time| histogram.record(*time).unwrap());
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
    fn a_damaged_histogram_is_an_error() {
        let damaged: Latencies = serde_json::from_str("\"AAAA\"").unwrap();
        assert!(damaged.histogram().is_err());
    }
}
