//! Renders a summary as pages, tables, charts and data files.
//! `page` orders the parts of a report, `part` defines the kinds of parts, and each format has its own module.

mod adr;
mod answers;
mod axis;
mod bill;
#[cfg(test)]
mod browser_tests;
mod cells_page;
mod charts;
mod claims;
mod compare;
#[cfg(test)]
mod comparison_tests;
mod contexts;
mod csv_file;
mod curves;
mod decisions;
mod drawing;
mod endings;
mod excerpt;
mod failures;
mod fault_crash;
mod fault_details;
mod fault_groups;
mod fault_splice;
mod fault_words;
mod faults;
mod files;
mod found;
mod growth;
mod heat;
mod histogram_logs;
#[cfg(test)]
mod hostile_tests;
mod hosts;
mod html;
mod json;
mod latencies;
mod markdown;
mod marks;
mod model_files;
mod model_files_page;
mod output;
mod page;
mod part;
mod placements;
mod programs;
mod ratios;
mod report;
mod shell;
mod stems;
mod submission;
mod tables;
mod tasks;
#[cfg(test)]
mod testing;
mod titles;
mod tried;
mod use_panels;
mod why;

pub use adr::decision_record;
pub use claims::{claims_markdown, claims_text};
pub use compare::{comparison_junit, comparison_markdown, comparison_text, ranking_markdown, ranking_text};
pub use decisions::{decisions_markdown, decisions_text, partial_answer};
pub use excerpt::splice;
pub use fault_splice::splice_faults;
pub use faults::write_faults;
pub use files::{results_page, write};
pub use json::report_schema;
pub use markdown::markdown_table;
pub use output::{WriteError, abandon_files, put, put_output, put_output_by};
pub use report::Report;
pub use submission::{bencher, github_action_benchmark, submission};

pub use figures::text::{columns, count, number_of, paragraph, percent, ratio, table, time};
