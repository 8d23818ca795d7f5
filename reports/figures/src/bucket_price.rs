//! The prices of a bucket, a row of `prices.toml`.

use serde::Deserialize;

/// The prices of a bucket, in US dollars.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketPrice {
    /// The provider's name of it.
    pub name: String,
    /// The source of the prices.
    pub source: String,
    /// The day on which the source was read.
    pub retrieved: String,
    /// A thousand requests that write or list.
    thousand_writes: f64,
    /// A thousand requests that read.
    thousand_reads: f64,
    /// 10⁹ bytes, stored for a month.
    gigabyte_month: f64,
}

impl BucketPrice {
    /// Dollars of requests: PUT and LIST are `writes`, GET and HEAD `reads`.
    pub fn of_requests(&self, writes: f64, reads: f64) -> f64 {
        (writes * self.thousand_writes + reads * self.thousand_reads) / 1000.0
    }

    /// Dollars of bytes that are stored for a month.
    pub fn of_stored(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e9 * self.gigabyte_month
    }

    /// Prices and source in one line.
    pub fn label(&self) -> String {
        let Self { name, source, retrieved, thousand_writes, thousand_reads, gigabyte_month } = self;
        format!(
            "{name}: $ {thousand_writes} for 1,000 PUT or LIST, $ {thousand_reads} for 1,000 GET or HEAD, $ {gigabyte_month} for a GB and month; {source}, {retrieved}."
        )
    }
}
