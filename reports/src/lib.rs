//! Run directories to statistics, verdicts and pages.
//!
//! Everything here is a function of files: nothing is mounted, timed or probed, and an old run can
//! always be reported again.

pub mod run;
