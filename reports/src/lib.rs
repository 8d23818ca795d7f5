//! Turns the figures of runs, and what is decided on them, into answers and pages.
//! Nothing here mounts, times or probes; statistics are in the crate `stats`, decisions in `verdicts`.

pub mod answer;
pub mod render;
pub mod sessions;
