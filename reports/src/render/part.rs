//! The parts of a page, which `html` and `markdown` format. `page` has their order.

use verdicts::decide::PolicyVerdict;

/// A part of a page.
pub(super) enum Part {
    /// A heading; levels start at 1.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    List(Vec<String>),
    /// Links to files: the words, and the path relative to where the command runs.
    Files(Vec<(String, String)>),
    Table(Vec<String>, Vec<Vec<String>>),
    /// A table whose rows have anchors, and whose cells may be links.
    Linked(Vec<String>, Vec<LinkedRow>),
    /// A matrix of verdicts: the head, and rows of a name and cells.
    Matrix(Vec<String>, Vec<(String, Vec<MatrixCell>)>),
    /// A chart: the stem of its file, and its caption.
    Chart(&'static str, &'static str),
    /// A collapsed section: its title and parts.
    Folded(String, Vec<Part>),
    /// A page of its own below the first screen, which opens when it is asked for.
    Section(Section),
    /// The answers of the first screen.
    Uses(Vec<UseBlock>),
    /// The arms that a report draws: the name of each, and its description.
    Legend(Vec<(String, String)>),
    /// Every figure of the run, by workload, cache state and metric.
    Cells(Vec<String>, Vec<CellGroup>),
}

/// A page of a report.
pub(super) struct Section {
    pub(super) title: &'static str,
    /// What is in it, in a few words.
    pub(super) about: &'static str,
    pub(super) parts: Vec<Part>,
}

/// The answer for a use.
pub(super) struct UseBlock {
    pub(super) title: String,
    /// How sure the answer is.
    pub(super) confidence: String,
    pub(super) sentences: Vec<String>,
    /// The anchor of its reasons.
    pub(super) why: String,
    /// The number of its panel in the picture of uses.
    pub(super) panel: usize,
}

/// The figures of all arms for a metric of a workload in a cache state.
pub(super) struct CellGroup {
    pub(super) anchor: String,
    pub(super) title: String,
    /// The file with its passes, relative to the page.
    pub(super) passes: String,
    /// The command that measures it again.
    pub(super) command: String,
    pub(super) rows: Vec<CellRow>,
}

/// The figures of an arm.
pub(super) struct CellRow {
    pub(super) anchor: String,
    pub(super) cells: Vec<String>,
}

/// A row of a table with an anchor.
pub(super) struct LinkedRow {
    /// The anchor, without `#`; empty for none.
    pub(super) anchor: String,
    pub(super) cells: Vec<TableCell>,
}

/// A cell of a table.
pub(super) struct TableCell {
    pub(super) text: String,
    /// The anchor that it links to; empty for none.
    pub(super) to: String,
}

impl TableCell {
    pub(super) fn new(text: impl Into<String>, to: impl Into<String>) -> Self {
        Self { text: text.into(), to: to.into() }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, "")
    }
}

/// A verdict with the reason; `None` where there is none.
pub(super) type MatrixCell = Option<(PolicyVerdict, String)>;

/// The anchor of a heading, as Markdown pages have it.
pub(super) fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}
