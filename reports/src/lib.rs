//! Turns run directories into summaries, decisions and pages.
//! Everything here is a function of files, so an old run can always be reported again.
//! Nothing here mounts, times or probes; statistics are in the crate `stats`.

pub mod answer;
mod bucket_price;
pub mod claims;
pub mod compare;
pub mod conformance;
pub mod context;
pub mod decide;
pub mod evidence;
mod measure;
pub mod prices;
mod provenance;
pub mod published;
pub mod rank;
pub mod records;
pub mod render;
pub mod reported;
pub mod reproduction;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod text;

pub use inputs::InputError;
