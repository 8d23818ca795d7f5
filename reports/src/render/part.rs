//! The parts of a page, which `html` and `markdown` format. `page` has their order.

use crate::decide::PolicyVerdict;

/// A part of a page.
pub(super) enum Part {
    /// A heading; levels start at 1.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    List(Vec<String>),
    Table(Vec<String>, Vec<Vec<String>>),
    /// A table whose rows have anchors, and whose first cells are links.
    Linked(Vec<String>, Vec<LinkedRow>),
    /// A matrix of verdicts: the head, and rows of a name and cells.
    Matrix(Vec<String>, Vec<(String, Vec<MatrixCell>)>),
    /// A chart: the stem of its file, and its caption.
    Chart(&'static str, &'static str),
    /// A collapsed section: its title and parts.
    Folded(String, Vec<Part>),
}

/// A row of a table with an anchor.
pub(super) struct LinkedRow {
    /// The anchor, without `#`; empty for none.
    pub(super) anchor: String,
    /// The anchor that the first cell links to; empty for none.
    pub(super) to: String,
    pub(super) cells: Vec<String>,
}

/// A verdict with the reason; `None` where there is none.
pub(super) type MatrixCell = Option<(PolicyVerdict, String)>;

/// The anchor of the command that measures a cell again.
pub(super) fn command_anchor(workload: &str, state: &str) -> String {
    format!("run-{workload}-{state}").replace('/', "-")
}
