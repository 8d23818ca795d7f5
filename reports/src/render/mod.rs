//! Renders a summary as pages, tables, charts and data files.
//! The text of a page is in `page`; each format has its own module for any page.

mod charts;
mod contexts;
mod endings;
mod excerpt;
mod fault_crash;
mod fault_details;
mod fault_groups;
mod fault_splice;
mod faults;
mod files;
mod found;
mod heat;
mod hosts;
mod html;
mod latencies;
mod markdown;
mod model_files;
mod model_files_page;
mod page;
mod programs;
mod text;

pub use endings::CONFORMANCE;
pub use excerpt::splice;
pub use fault_splice::splice_faults;
pub use faults::write_faults;
pub use files::{Report, WriteError, results_page, write};
pub use latencies::arm_and_its_baseline;
pub use markdown::markdown_table;
pub use text::{count, decision_table, percent, ratio, table, time};
