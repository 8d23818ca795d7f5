//! The figures of a run: what its records say, as ratios with intervals, tokens, dollars and counts of failures.
//! Everything here is a function of files, so an old run can always be read again.

mod bucket_price;
pub mod conformance;
pub mod context;
pub mod evidence;
pub mod prices;
pub mod provenance;
pub mod reported;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
