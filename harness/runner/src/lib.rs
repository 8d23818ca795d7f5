//! Runs a plan: places the arms, starts each cell in a fresh scratch, times its passes, and records what came out.

mod cache_state;
pub mod cell;
mod clock;
pub mod lab;
pub mod load;
pub mod pass;
pub mod plan;
mod quiet;
pub mod run;
pub mod schedule;
pub mod scratch;
mod system;
#[cfg(test)]
mod testing;
