//! Turns the figures of runs, and what is decided on them, into answers and pages.
//! Nothing here mounts, times or probes; statistics are in the crate `stats`, decisions in `decisions`.

pub mod answer;
pub mod published;
pub mod records;
pub mod render;
pub mod sessions;
