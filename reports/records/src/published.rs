//! Compares the files of a published report with those that follow from its run again: tables and data by field, pages and
//! charts by element, histogram logs by line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use inputs::files::{self, RUN_RECORDS};
use rundir::RECORDS;
use serde_json::Value;

use crate::Discrepancy;

/// The folders of a report.
const FOLDERS: [&str; 3] = ["charts", "hist", "passes"];

/// The endings of a report's files.
const ENDINGS: [&str; 6] = ["csv", "html", "hlog", "json", "md", "svg"];

/// The most characters of a value in a message.
const SHOWN: usize = 160;

/// How a published report is compared.
#[derive(Clone, Copy, Debug)]
pub struct PublishedTerms<'a> {
    /// Whether the words are those of this build, too. If not, figures and verdicts are compared, and prose is not.
    pub has_our_words: bool,
    /// The paths in the recomputed pages that name run directories: a copy may be elsewhere.
    pub places: &'a [String],
}

/// What a comparison of published files found.
#[derive(Clone, Debug, Default)]
pub struct PublishedFiles {
    /// The differences.
    pub differences: Vec<Discrepancy>,
    /// Files that differ in their words only, and files that no report writes.
    pub notes: Vec<String>,
    /// The files compared.
    pub files: usize,
    /// The fields, elements and lines compared.
    pub values: usize,
}

/// Compares the report in `published` with the recomputed one in `recomputed`. `step` is told how many files of how many
/// are compared.
///
/// # Errors
/// If a directory cannot be listed, or a recomputed file cannot be read.
pub fn compare_published(
    published: &Path,
    recomputed: &Path,
    terms: &PublishedTerms<'_>,
    mut step: impl FnMut(usize, usize, &str),
) -> io::Result<PublishedFiles> {
    let mut found = PublishedFiles::default();
    let expected = names(recomputed)?;
    let stated = names(published)?;
    for (done, name) in expected.iter().enumerate() {
        step(done, expected.len(), name);
        let ours = files::read_text(&recomputed.join(name), RUN_RECORDS)?;
        let theirs = files::open_inside(published, Path::new(name))
            .and_then(|file| files::read_file(file, RUN_RECORDS))
            .and_then(files::text);
        match theirs {
            Ok(theirs) => found.compare(name, &theirs, &ours, terms),
            Err(error) => {
                let why = "a file that can be read, which the report of this run has";
                let missing = Discrepancy::new(name, "whole file", "", error, why);
                found.differences.push(missing);
            }
        }
        found.files += 1;
    }
    for name in stated.difference(&expected) {
        let is_of_report = name.contains('/') || is_table(name);
        if is_of_report {
            found.differences.push(Discrepancy::new(
                name,
                "whole file",
                "",
                "a file",
                "no file: the report of this run does not have it",
            ))
        } else {
            found.notes.push(format!("{name} is not part of the report: not checked"))
        }
    }
    Ok(found)
}

/// Whether a file at the top of a run directory can be a table or page of a report.
fn is_table(name: &str) -> bool {
    let stem = Path::new(name).file_stem().unwrap_or_default();
    name.ends_with(".csv") || ["report", "faults"].iter().any(|own| stem == *own)
}

/// The files of a report in a directory, relative to it.
fn names(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let folders = FOLDERS.iter().map(|folder| (format!("{folder}/"), dir.join(folder)));
    for (prefix, folder) in std::iter::once((String::new(), dir.to_owned())).chain(folders) {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let ending = path.extension().unwrap_or_default().to_string_lossy();
            let is_record = prefix.is_empty() && RECORDS.contains(&&*name);
            if ENDINGS.contains(&&*ending) && !is_record && !path.is_dir() {
                names.insert(format!("{prefix}{name}"));
            }
        }
    }
    Ok(names)
}

impl PublishedFiles {
    fn compare(&mut self, name: &str, stated: &str, recomputed: &str, terms: &PublishedTerms<'_>) {
        let ending = PathBuf::from(name);
        let ending = ending.extension().unwrap_or_default().to_string_lossy();
        let mut file = ComparedFile { name, terms, found: self, has_other_words: false };
        let before = file.found.differences.len();
        match &*ending {
            "csv" => file.table(stated, recomputed),
            "json" => file.data(stated, recomputed),
            "hlog" => file.lines(stated, recomputed),
            _ => file.page(stated, recomputed),
        }
        let is_found = file.found.differences.len() > before || file.has_other_words;
        // Two texts of one value: a field that appears twice, or other quotes.
        if stated != recomputed && !is_found && terms.has_our_words && !matches!(&*ending, "html" | "md") {
            file.lines(stated, recomputed);
        }
        if file.has_other_words {
            self.notes.push(format!(
                "{name}: the words are those of another version of ctxbench; its figures and verdicts were compared"
            ));
        }
    }
}

/// A file under comparison.
struct ComparedFile<'a> {
    name: &'a str,
    terms: &'a PublishedTerms<'a>,
    found: &'a mut PublishedFiles,
    has_other_words: bool,
}

impl ComparedFile<'_> {
    fn differs(&mut self, row: &str, field: &str, stated: &str, recomputed: &str) {
        let (stated, recomputed) = (shown(stated), shown(recomputed));
        let difference = Discrepancy::new(self.name, row, field, stated, recomputed);
        self.found.differences.push(difference);
    }

    /// Compares two values of one field. In words of another version, the figures must be equal.
    fn value(&mut self, row: &str, field: &str, stated: &str, recomputed: &str) {
        self.found.values += 1;
        if stated == recomputed {
            return;
        }
        let is_prose = |text: &str| text.contains(' ') && text.len() > LONGEST_VERDICT;
        let both_prose = is_prose(stated) && is_prose(recomputed);
        if !self.terms.has_our_words && both_prose && figures(stated) == figures(recomputed) {
            self.has_other_words = true;
            return;
        }
        self.differs(row, field, stated, recomputed);
    }

    fn table(&mut self, stated: &str, recomputed: &str) {
        let (theirs, ours) = match (rows(stated), rows(recomputed)) {
            (Ok(theirs), Ok(ours)) => (theirs, ours),
            (Err(error), _) | (_, Err(error)) => {
                return self.differs("whole file", "", &error, "a table");
            }
        };
        let none = Vec::new();
        let head = ours.first().unwrap_or(&none);
        let their_head = theirs.first().unwrap_or(&none);
        if head != their_head {
            let columns = |row: &[String]| row.join(", ");
            return self.differs("line 1", "columns", &columns(their_head), &columns(head));
        }
        let pairs = if theirs.len() == ours.len() {
            (1..ours.len()).map(|at| (Some(at), Some(at))).collect()
        } else {
            aligned(&theirs, &ours)
        };
        for (their, our) in pairs {
            let row = |at: usize, row: &[String]| format!("row {at} ({})", identity(head, row));
            match (their, our) {
                (Some(their), Some(our)) => {
                    let place = row(their, &ours[our]);
                    for (column, field) in head.iter().enumerate() {
                        let cell = |rows: &[Vec<String>], at: usize| rows[at].get(column).cloned().unwrap_or_default();
                        self.value(&place, field, &cell(&theirs, their), &cell(&ours, our));
                    }
                }
                (Some(their), None) => {
                    let row = row(their, &theirs[their]);
                    self.differs(&row, "", &theirs[their].join(","), "no such row");
                }
                (None, Some(our)) => {
                    let row = row(our, &ours[our]);
                    self.differs(&row, "", "no such row", &ours[our].join(","));
                }
                (None, None) => {}
            }
        }
    }

    fn data(&mut self, stated: &str, recomputed: &str) {
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        match (parse(stated), parse(recomputed)) {
            (Ok(theirs), Ok(ours)) => self.json("", "", &theirs, &ours),
            (Err(error), _) | (_, Err(error)) => self.differs("whole file", "", &error, "JSON"),
        }
    }

    /// Compares two values below `path`, the place of their table.
    fn json(&mut self, path: &str, field: &str, stated: &Value, recomputed: &Value) {
        let below = match (path.is_empty(), field.is_empty()) {
            (_, true) => path.to_owned(),
            (true, false) => field.to_owned(),
            (false, false) => format!("{path}.{field}"),
        };
        match (stated, recomputed) {
            (Value::Object(theirs), Value::Object(ours)) => {
                let names = theirs.keys().chain(ours.keys().filter(|name| !theirs.contains_key(*name)));
                for name in names {
                    match (theirs.get(name), ours.get(name)) {
                        (Some(theirs), Some(ours)) => self.json(&below, name, theirs, ours),
                        // Another version has other fields.
                        _ if !self.terms.has_our_words => self.has_other_words = true,
                        (theirs, ours) => {
                            let text =
                                |value: Option<&Value>| value.map_or("no such field".to_owned(), Value::to_string);
                            self.differs(&below, name, &text(theirs), &text(ours));
                        }
                    }
                }
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                if theirs.len() != ours.len() {
                    let count = |items: &[Value]| format!("{} items", items.len());
                    self.differs(&below, "length", &count(theirs), &count(ours));
                }
                for (at, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                    let name = named(ours);
                    let place = format!("{below}[{at}]{name}");
                    self.json(&place, "", theirs, ours);
                }
            }
            (Value::String(theirs), Value::String(ours)) => {
                self.value(path, field, theirs, ours);
            }
            (theirs, ours) => self.value(path, field, &theirs.to_string(), &ours.to_string()),
        }
    }

    /// Compares texts whose every line counts.
    fn lines(&mut self, stated: &str, recomputed: &str) {
        let (theirs, ours): (Vec<&str>, Vec<&str>) = (stated.lines().collect(), recomputed.lines().collect());
        for at in 0..theirs.len().max(ours.len()) {
            let line = |lines: &[&str]| lines.get(at).copied().unwrap_or("no such line").to_owned();
            let (theirs, ours) = (line(&theirs), line(&ours));
            self.found.values += 1;
            if theirs != ours {
                let start = common_start(&theirs, &ours);
                let field = format!("from byte {}", start + 1);
                let row = format!("line {}", at + 1);
                self.differs(&row, &field, &theirs[start..], &ours[start..]);
            }
        }
        if stated != recomputed && theirs == ours {
            self.differs("whole file", "line ends", "other line ends", "those of a report");
        }
    }

    /// Compares pages and charts by element: a tag with the text behind it.
    fn page(&mut self, stated: &str, recomputed: &str) {
        let is_markdown = self.name.ends_with(".md");
        let (theirs, ours) = (elements(stated, is_markdown), elements(recomputed, is_markdown));
        self.found.values += ours.len();
        if stated == recomputed {
            return;
        }
        let known: BTreeSet<String> = if self.terms.has_our_words {
            BTreeSet::new()
        } else {
            ours.iter().flat_map(|element| figures(text_of(element.text))).collect()
        };
        for (theirs, ours) in hunks(&theirs, &ours) {
            self.hunk(theirs, ours, &known);
        }
    }

    fn hunk(&mut self, theirs: &[Element<'_>], ours: &[Element<'_>], known: &BTreeSet<String>) {
        let paired = theirs.len() == ours.len();
        if paired {
            for (theirs, ours) in theirs.iter().zip(ours) {
                self.element(theirs, ours, known);
            }
            return;
        }
        let joined = |elements: &[Element<'_>]| {
            let texts: Vec<&str> = elements.iter().map(|element| element.text).collect();
            texts.concat()
        };
        let (stated, recomputed) = (joined(theirs), joined(ours));
        let place = theirs.first().or(ours.first());
        let row = place.map_or(String::new(), |element| element.place.to_string());
        if self.terms.has_our_words {
            let or_nothing = |text: &str| match text.trim() {
                "" => "nothing here".to_owned(),
                text => text.to_owned(),
            };
            return self.differs(&row, "text", &or_nothing(&stated), &or_nothing(&recomputed));
        }
        self.has_other_words = true;
        self.unknown_figures(&row, &stated, known);
    }

    fn element(&mut self, stated: &Element<'_>, ours: &Element<'_>, known: &BTreeSet<String>) {
        let (theirs, recomputed) = (stated.text, ours.text);
        if theirs == recomputed || self.is_same_but_place(theirs, recomputed) {
            return;
        }
        let row = stated.place.to_string();
        if self.terms.has_our_words {
            let start = common_start(theirs, recomputed);
            let word = |text: &str| {
                let from = text[..start].rfind([' ', '>', '"']).map_or(0, |at| at + 1);
                text[from..].trim().to_owned()
            };
            return self.differs(&row, "text", &word(theirs), &word(recomputed));
        }
        let (theirs, recomputed) = (text_of(theirs), text_of(recomputed));
        if theirs == recomputed {
            return;
        }
        let have_same_words = words(theirs) == words(recomputed);
        let both = theirs.split_whitespace().count() == recomputed.split_whitespace().count();
        if have_same_words || (both && verdicts(theirs) != verdicts(recomputed)) {
            return self.differs(&row, "text", theirs, recomputed);
        }
        self.has_other_words = true;
        self.unknown_figures(&row, theirs, known);
    }

    /// In words of another version, figures that the recomputed page has nowhere.
    fn unknown_figures(&mut self, row: &str, stated: &str, known: &BTreeSet<String>) {
        let unknown: Vec<String> =
            figures(text_of(stated)).into_iter().filter(|figure| !known.contains(figure)).collect();
        if !unknown.is_empty() {
            let why = "no such figure on the recomputed page";
            self.differs(row, "figures", &unknown.join(", "), why);
        }
    }

    /// Whether two texts differ only in the path of the run directory.
    fn is_same_but_place(&self, stated: &str, recomputed: &str) -> bool {
        let (theirs, ours) = (stated.split(' '), recomputed.split(' '));
        let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.collect(), ours.collect());
        let is_same = |(theirs, ours): (&&str, &&str)| {
            theirs == ours
                || self.terms.places.iter().any(|place| {
                    ours.split_once(place.as_str()).is_some_and(|(before, after)| {
                        theirs.len() >= before.len() + after.len()
                            && theirs.starts_with(before)
                            && theirs.ends_with(after)
                            && !theirs.contains(['<', '>', '"'])
                    })
                })
        };
        theirs.len() == ours.len() && theirs.iter().zip(&ours).all(is_same)
    }
}

/// The longest verdict, in bytes. Longer texts with spaces are prose.
const LONGEST_VERDICT: usize = 24;

/// The words that state a verdict.
const VERDICTS: [&str; 20] = [
    "adopt",
    "archive",
    "better",
    "worse",
    "same",
    "undecided",
    "decided",
    "withheld",
    "below",
    "confirmed",
    "refuted",
    "conditional",
    "untestable",
    "sure",
    "fragile",
    "failed",
    "ok",
    "lost",
    "quiet",
    "busy",
];

/// A value as it is shown in a message.
fn shown(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if text.is_empty() => "nothing".to_owned(),
        None => text.to_owned(),
    }
}

/// The length of the common start of two texts, in bytes.
fn common_start(one: &str, other: &str) -> usize {
    let pairs = one.char_indices().zip(other.chars());
    let differs = pairs.clone().find(|((_, one), other)| one != other);
    match differs {
        Some(((at, _), _)) => at,
        None => pairs.map(|((_, one), _)| one.len_utf8()).sum(),
    }
}

fn rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).flexible(true);
    let records = reader.from_reader(text.as_bytes()).into_records();
    let rows = records.map(|record| {
        let record = record.map_err(|error| error.to_string())?;
        Ok(record.iter().map(str::to_owned).collect())
    });
    rows.collect()
}

/// The columns whose values name a row.
const NAMES: [&str; 12] =
    ["order", "policy", "candidate", "kind", "row", "id", "workload", "state", "metric", "arm", "model", "scenario"];

/// The values that name a row of a table.
fn identity(head: &[String], row: &[String]) -> String {
    let named = head.iter().zip(row);
    let named = named.filter(|(column, _)| NAMES.contains(&column.as_str()));
    let names: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
    if names.is_empty() { row.first().cloned().unwrap_or_default() } else { names.join(", ") }
}

/// The values that name an item of a list.
fn named(item: &Value) -> String {
    let names = ["name", "policy", "candidate", "id", "workload", "state", "metric", "arm"];
    let names = names.iter().filter_map(|name| item.get(name)?.as_str());
    let names: Vec<&str> = names.collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// The rows of two tables of different lengths, paired by the values that name them, in order. The head is left out.
fn aligned(theirs: &[Vec<String>], ours: &[Vec<String>]) -> Vec<(Option<usize>, Option<usize>)> {
    let head = &ours[0];
    let mut open: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, row) in ours.iter().enumerate().skip(1).rev() {
        open.entry(identity(head, row)).or_default().push(at);
    }
    let mut pairs = Vec::new();
    for (at, row) in theirs.iter().enumerate().skip(1) {
        let same = open.get_mut(&identity(head, row));
        pairs.push((Some(at), same.and_then(Vec::pop)));
    }
    let left = open.into_values().flatten();
    pairs.extend(left.map(|at| (None, Some(at))));
    pairs
}

/// A part of a page, with its place.
#[derive(Clone, Copy)]
struct Element<'a> {
    text: &'a str,
    place: Place<'a>,
}

/// Where an element is: its line, and the nearest anchor before it.
#[derive(Clone, Copy)]
struct Place<'a> {
    line: usize,
    anchor: &'a str,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.anchor {
            "" => write!(f, "line {}", self.line),
            anchor => write!(f, "line {}, below {anchor:?}", self.line),
        }
    }
}

/// The elements of a page: of Markdown its lines, else tags with the text behind them.
fn elements(page: &str, is_markdown: bool) -> Vec<Element<'_>> {
    let (mut elements, mut anchor) = (Vec::new(), "");
    for (line, text) in (1..).zip(page.split_inclusive('\n')) {
        let mut start = 0;
        let ends = text.match_indices('<').map(|(at, _)| at);
        let ends = ends.filter(|at| !is_markdown && *at > 0);
        for end in ends.chain(std::iter::once(text.len())) {
            let part = &text[start..end];
            start = end;
            let id = part.split_once(" id=\"").and_then(|(_, rest)| rest.split_once('"'));
            let heading = part.strip_prefix('#').filter(|_| is_markdown);
            anchor = id.map(|(id, _)| id).or(heading.map(|text| text.trim_matches(['#', ' ', '\n']))).unwrap_or(anchor);
            elements.push(Element { text: part, place: Place { line, anchor } });
        }
    }
    elements
}

/// The text of an element, without its tag: the attributes of a tag are geometry and links.
fn text_of(element: &str) -> &str {
    if element.starts_with('<') { element.split_once('>').map_or("", |(_, text)| text) } else { element }
}

/// The figures in a text: everything between spaces and brackets that has a digit.
fn figures(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "()[]<>\"|`;:".contains(c));
    let words = words.map(|word| word.trim_matches(['.', ',', '…', '“', '”', '*']));
    let words = words.filter(|word| word.contains(|c: char| c.is_ascii_digit()));
    words.map(str::to_owned).collect()
}

/// The words of a text, without its figures and verdicts.
fn words(text: &str) -> Vec<&str> {
    let words = text.split_whitespace();
    let is_value = |word: &&str| {
        word.contains(|c: char| c.is_ascii_digit())
            || VERDICTS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()))
    };
    words.filter(|word| !is_value(word)).collect()
}

/// The verdicts in a text, in order.
fn verdicts(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| VERDICTS.contains(word)).collect()
}

/// The places where two lists of elements differ.
fn hunks<'a, 'e>(theirs: &'a [Element<'e>], ours: &'a [Element<'e>]) -> Vec<(&'a [Element<'e>], &'a [Element<'e>])> {
    // Elements have a line each: one with a line end stands for it by a character that no page has.
    let joined = |elements: &[Element<'_>]| {
        let lines = elements.iter().map(|element| element.text.replace('\n', "\u{1}") + "\n");
        lines.collect::<String>()
    };
    let (stated, recomputed) = (joined(theirs), joined(ours));
    let mut options = diffy::DiffOptions::new();
    let patch = options.set_context_len(0).create_patch(&stated, &recomputed);
    let (mut found, mut their_end, mut our_end) = (Vec::new(), 0, 0);
    for hunk in patch.hunks() {
        let (old, new) = (hunk.old_range(), hunk.new_range());
        // Between two hunks both lists go on alike, so the start of an empty range follows from the other one.
        let same = if old.is_empty() {
            new.start().saturating_sub(1 + our_end)
        } else {
            old.start().saturating_sub(1 + their_end)
        };
        let (their_start, our_start) = (their_end + same, our_end + same);
        (their_end, our_end) = (their_start + old.len(), our_start + new.len());
        found.push((
            theirs.get(their_start..their_end).unwrap_or_default(),
            ours.get(our_start..our_end).unwrap_or_default(),
        ));
    }
    found
}

#[cfg(test)]
mod tests;
