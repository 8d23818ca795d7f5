//! Definitions: which rows are which files. Parsed here; compared with the columns that a source has in `check`.
//!
//! docs/VIEW.md is the reference for their authors.

mod names;

use std::path::Path;
use std::time::Duration;

use include_dir::{Dir, include_dir};
use inputs::{InputError, parse_toml};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub(super) use names::Names;

use crate::template::{Naming, SEPARATES};

/// The exclusive upper bound of keys: a listing's cookie has no room for larger ones.
pub(super) const KEY_END: i64 = 1 << 53;

static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/views");

/// A definition file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewDefinition {
    /// Its name.
    pub name: String,
    /// A description of the view and its purpose.
    pub essay: String,
    /// Where the rows are.
    pub source: SourceDefinition,
    /// Directories with one name for each row.
    #[serde(default, rename = "directory")]
    pub directories: Vec<DirectoryDefinition>,
    /// Files, one for each row.
    #[serde(default, rename = "file")]
    pub files: Vec<FileDefinition>,
    /// Files that are computed from many rows when they are read.
    #[serde(default, rename = "computed")]
    pub computed: Vec<ComputedDefinition>,
    /// Symbolic links, one for each row.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkDefinition>,
    /// Names that no directory lists, and that answer a question.
    #[serde(default, rename = "question")]
    pub questions: Vec<QuestionDefinition>,
    /// Paths of directories that are found by their names, and that no directory lists.
    #[serde(default)]
    pub unlisted: Vec<String>,
    /// How values become names.
    #[serde(skip)]
    pub(super) naming: Naming,
}

/// Where the rows are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDefinition {
    /// The kind of source; of several, the value of `--source` selects one.
    #[serde(rename = "kind", deserialize_with = "one_or_more")]
    pub kinds: Vec<SourceKind>,
    /// The channel on which a PostgreSQL database notifies of every change.
    pub channel: Option<String>,
    /// The tables that an HTTP source has.
    #[serde(default, rename = "table")]
    pub tables: Vec<TableDefinition>,
    /// How old an answer may be, in milliseconds; 0: every call asks the source. For sources that are expensive to ask.
    #[serde(default)]
    pub stale_ms: u64,
    /// How long a call may wait for the source, in milliseconds.
    #[serde(default = "two_seconds")]
    pub timeout_ms: u64,
}

impl SourceDefinition {
    /// The kind of the source at `place`.
    ///
    /// # Errors
    /// If the definition has none for such a place.
    pub(super) fn kind_of(&self, place: &str) -> Result<SourceKind, String> {
        match &self.kinds[..] {
            [kind] => Ok(*kind),
            kinds => (kinds.iter().copied().find(|kind| kind.fits(place))).ok_or_else(|| {
                let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
                format!("the definition is for {}, which this source is not", kinds.join(" and "))
            }),
        }
    }

    /// How old an answer may be.
    pub fn stale(&self) -> Duration {
        Duration::from_millis(self.stale_ms)
    }

    /// How long a call may wait for the source.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// A kind of source, or a list of them.
fn one_or_more<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<SourceKind>, D::Error> {
    struct Kinds;

    impl<'de> Visitor<'de> for Kinds {
        type Value = Vec<SourceKind>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a kind of source, or a list of them")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
            Ok(vec![SourceKind::deserialize(name.into_deserializer())?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            let kinds = Vec::deserialize(SeqAccessDeserializer::new(list))?;
            if kinds.is_empty() { Err(de::Error::invalid_length(0, &self)) } else { Ok(kinds) }
        }
    }
    input.deserialize_any(Kinds)
}

fn two_seconds() -> u64 {
    2000
}

/// How a source is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// An SQLite database that other programs own.
    Sqlite,
    /// A PostgreSQL database that other programs own.
    Postgresql,
    /// A directory, whose files are the rows of table `file`.
    Directory,
    /// A JSON interface over HTTP.
    Http,
}

impl SourceKind {
    /// Whether `place` looks like a source of this kind: a URL, or a path.
    fn fits(self, place: &str) -> bool {
        let scheme = place.split_once("://").map(|(scheme, _)| scheme);
        match self {
            Self::Postgresql => matches!(scheme, Some("postgresql" | "postgres")),
            Self::Http => matches!(scheme, Some("http" | "https")),
            Self::Sqlite | Self::Directory => scheme.is_none(),
        }
    }
}

/// A table that an HTTP source fills from a list of JSON objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDefinition {
    /// Its name in queries.
    pub name: String,
    /// The path and query of its first page, relative to the URL of the source.
    pub path: String,
    /// The column that identifies an object. If the list grows between two requests, two pages can contain one object.
    pub key: String,
    /// Its columns: a name, and the JSON pointer of the value in an object.
    pub columns: Vec<(String, String)>,
    /// How many objects a full page has; `None` if it is not known.
    pub page_rows: Option<usize>,
}

/// Directories with one name for each row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryDefinition {
    /// The path; its last part is the column that names the directories, as in `inbox/{sender}`.
    pub path: String,
    /// The query for the rows. `:column` stands for the column of a directory above.
    pub rows: String,
    /// A query that has a row if a program may create the directory whose name is the column.
    pub make: Option<String>,
}

/// Files, one for each row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDefinition {
    /// The path; its last part is the name, in which the key is the first or the last column, unless the name is `unique`.
    pub path: String,
    /// The integer column that identifies a row, from 0 to 2⁵³.
    pub key: String,
    /// The name is one column without the key, and no two rows of a directory have the same.
    #[serde(default)]
    pub unique: bool,
    /// The query for the rows of a directory.
    pub rows: String,
    /// The content.
    pub body: String,
    /// The column with the time of the last change: ISO 8601, or seconds since 1970.
    pub modified: Option<String>,
    /// The columns that are extended attributes: `user.view.` and the column.
    #[serde(default)]
    pub attributes: Vec<String>,
    /// The changes that are permitted, as statements; the files are read-only without them.
    #[serde(default)]
    pub write: Write,
}

/// Statements that change rows. Parameters are the columns of the row as the change found it, with the values of the
/// new content in place of the old ones, and the columns of directories above. Of a `directory`, they are queries whose row
/// names the file that a call changes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// Replaces a file's content.
    pub update: Option<String>,
    /// Creates a row for a new file; returns its key.
    pub insert: Option<String>,
    /// Deletes a row.
    pub delete: Option<String>,
    /// Changes the row of a file that is moved here from another directory.
    pub receive: Option<String>,
}

impl Write {
    pub(crate) fn statements(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all =
            [("update", &self.update), ("insert", &self.insert), ("delete", &self.delete), ("receive", &self.receive)];
        all.into_iter().filter_map(|(name, sql)| Some((name, sql.as_deref()?)))
    }

    /// Whether anything may be changed.
    pub fn is_any(&self) -> bool {
        self.statements().next().is_some()
    }
}

/// A file that is computed from many rows when it is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputedDefinition {
    /// The path.
    pub path: String,
    /// A query with one column; each row is a line.
    pub rows: String,
}

/// Symbolic links, one for each row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDefinition {
    /// The path; its last part is the column that names the links.
    pub path: String,
    /// The query for the rows.
    pub rows: String,
    /// Where a link points.
    pub target: String,
    /// The changes that are permitted, only of a `directory`, and without `update`.
    #[serde(default)]
    pub write: Write,
}

/// Names that no directory lists, and that answer a question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionDefinition {
    /// The path; its last part is `:name?{column}`. The text in place of the column is the query's parameter.
    pub path: String,
    /// A query with one column, unless it has a `target`; each row is a line.
    pub rows: String,
    /// The path of the file that a line is about, from columns of `rows`; each is as in the name of the file.
    pub target: Option<String>,
    /// The text of a line after the path and `: `.
    pub note: Option<String>,
}

/// The path and the text of a definition: of a shipped one by its name, or of a file.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<(std::path::PathBuf, String), InputError> {
    let file = format!("{name}.toml");
    let found = SHIPPED.get_file(&file).and_then(|shipped| shipped.contents_utf8());
    let found = found.map(|text| (Path::new("backends/view/views").join(file), text));
    inputs::named("definition", name, found, &shipped())
}

/// The names of the shipped definitions.
pub fn shipped() -> Vec<String> {
    let files = SHIPPED.files().filter_map(|file| file.path().file_stem());
    files.map(|stem| stem.to_string_lossy().into_owned()).collect()
}

impl ViewDefinition {
    /// Parses a definition; `file` is only for error messages.
    ///
    /// # Errors
    /// With file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        parse_toml(file, text)
    }

    /// Makes names that survive `xargs`: in the text of paths, `_` takes the place of blanks, quotes and backslashes.
    pub(super) fn make_names_plain(&mut self) {
        self.naming = Naming::Plain;
        let directories = self.directories.iter_mut().map(|it| &mut it.path);
        let files = self.files.iter_mut().map(|it| &mut it.path);
        let computed = self.computed.iter_mut().map(|it| &mut it.path);
        let links = self.links.iter_mut().flat_map(|it| [&mut it.path, &mut it.target]);
        let questions = self.questions.iter_mut().flat_map(|it| [Some(&mut it.path), it.target.as_mut()]).flatten();
        let paths = directories.chain(files).chain(computed).chain(links).chain(questions).chain(&mut self.unlisted);
        paths.for_each(|path| *path = path.replace(SEPARATES, "_"));
    }

    /// Refuses fields that a source of this kind does not have.
    ///
    /// # Errors
    /// With file, line and field.
    pub(super) fn check_source(&self, file: &Path, text: &str, kind: SourceKind) -> Result<(), InputError> {
        let is_asked = matches!(kind, SourceKind::Directory | SourceKind::Http);
        let (field, kinds) = match &self.source {
            it if it.channel.is_some() && kind != SourceKind::Postgresql => ("channel", "`postgresql` sources have"),
            it if it.stale_ms > 0 && !is_asked => ("stale_ms", "`directory` and `http` sources have"),
            _ => return Ok(()),
        };
        let sets = |line: &str| line.trim_start().starts_with(field);
        let line = (text.lines().position(sets)).or_else(|| text.lines().position(|line| line.contains(field)));
        let message = format!("{field}: only {kinds} one");
        Err(match line {
            Some(line) => InputError::at(file, line + 1, message),
            None => InputError::whole(file, message),
        })
    }
}
