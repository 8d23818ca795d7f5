//! A definition as the levels of its directories, with the SQL that each needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::{KeyPlace, column_of, key_place, last};
use crate::definition::{
    DirectoryDefinition, FileDefinition, KEY_END, Names, QuestionDefinition, SourceKind, ViewDefinition, Write,
};
use crate::source::{Column, Source};
use crate::template::{Naming, Template};

/// The parameter that holds the key of a row, in the statements made here.
pub(super) const KEY: &str = "_key";

/// The parameter with the key, or the text, after which a page begins.
pub(super) const AFTER: &str = "_after";

/// The first character of the additional column for a number that does not equal its text; no parameter begins with it.
pub(super) const NUMBER: char = '#';

/// Rows of a page of a listing.
pub(super) const PAGE: usize = 1024;

/// Values of a page of directories or links. Many, because a query that removes duplicates may read all rows for each page.
pub(super) const NAMES_PAGE: usize = 1 << 16;

/// The entry of a fixed name.
#[derive(Clone, Copy, Debug)]
pub(super) enum FixedEntry {
    Level(usize),
    Computed(usize),
}

/// A directory, or all directories that a query names.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// The column that names it, unless its name is fixed.
    pub(super) column: Option<String>,
    pub(super) fixed: Vec<(String, FixedEntry)>,
    /// Fixed names that a listing leaves out.
    pub(super) unlisted: Vec<String>,
    /// Levels whose names are rows.
    pub(super) named: Vec<RowDirectories>,
    pub(super) files: Vec<usize>,
    pub(super) links: Vec<usize>,
    pub(super) questions: Vec<usize>,
}

impl Level {
    /// Whether all names are fixed.
    pub(super) fn is_fixed(&self) -> bool {
        self.named.is_empty() && self.files.is_empty() && self.links.is_empty() && self.questions.is_empty()
    }
}

/// The values of a column, in their order, by pages of [`NAMES_PAGE`]: their text, numbers that do not equal it, and 1 for a
/// BLOB.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) first: Query,
    /// The page after [`AFTER`].
    pub(super) next: Query,
}

/// Directories whose names are rows.
#[derive(Debug)]
pub(super) struct RowDirectories {
    pub(super) level: usize,
    pub(super) list: Values,
    /// The number whose text is [`VALUE`], if it does not equal the text, else NULL, and 1 if the value is a BLOB; no row if
    /// the value does not exist.
    pub(super) find: Query,
    /// The same without BLOBs, which share their text with other values.
    pub(super) find_text: Query,
    /// Has a row if a program may create the directory whose name is the column of `level`.
    pub(super) make: Option<Query>,
}

/// Files, one a row.
#[derive(Debug)]
pub(super) struct Files {
    /// The directories that they are in.
    pub(super) level: usize,
    pub(super) name: Template,
    /// All names that rows can have.
    pub(super) possible: Names,
    pub(super) key: KeyPlace,
    pub(super) key_column: String,
    pub(super) body: Template,
    /// Key, size, time, permissions, and the columns of the name, of a page of rows after [`AFTER`].
    pub(super) list: Query,
    /// The same without size, time and permissions.
    pub(super) names: Query,
    /// The same as `list` of the row [`KEY`].
    pub(super) one: Query,
    /// The same as `list` of the row whose name has the value [`VALUE`], where names are unique.
    pub(super) by_name: Query,
    /// The columns of the body of the row [`KEY`].
    pub(super) read: Query,
    /// All columns of the row [`KEY`].
    pub(super) row: Query,
    /// The columns that are extended attributes.
    pub(super) attributes: Vec<String>,
    /// The extended attributes of the row [`KEY`].
    pub(super) attribute_values: Query,
    /// The columns of `row`.
    pub(super) columns: Vec<String>,
    pub(super) write: Write,
    /// The key of the file at the place that `write.insert` gives to a new file, where the source is a directory.
    pub(super) place: Option<Query>,
}

/// Links, one a row.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) list: Values,
    /// The columns of the target of the row whose name is [`VALUE`].
    pub(super) find: Query,
    pub(super) target: Template,
    /// The column that names them.
    pub(super) column: String,
    pub(super) write: Write,
}

/// Names that answer a question.
#[derive(Debug)]
pub(super) struct Question {
    /// The part of the name before the parameter.
    pub(super) start: String,
    pub(super) column: String,
    pub(super) lines: Query,
    /// How the columns of a line become a path and a note; `None` if a line is one column.
    pub(super) target: Option<Target>,
}

/// A line with the path of a file.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: Template,
    /// The text after the path.
    pub(super) note: Option<Template>,
}

impl Target {
    fn of(it: &QuestionDefinition) -> Result<Option<Self>, String> {
        let Some(path) = &it.target else {
            return Ok(None);
        };
        let note = it.note.as_deref().map(Template::parse).transpose()?;
        let path = Template::parse(path)?;
        Ok(Some(Self { path, note }))
    }

    fn columns(&self) -> impl Iterator<Item = &str> {
        let note = self.note.iter().flat_map(Template::columns);
        self.path.columns().chain(note)
    }
}

/// A definition with all its queries.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) levels: Vec<Level>,
    pub(super) files: Vec<Files>,
    /// The query for the lines of each computed file.
    pub(super) computed: Vec<Query>,
    pub(super) links: Vec<Links>,
    pub(super) questions: Vec<Question>,
    /// All files of a directory, by key, for those that no row of the definition shows. `None`: the source is no directory.
    pub(super) unshown: Option<usize>,
    pub(super) naming: Naming,
}

/// The files of a directory that no row of a definition shows: a program has created one, and may rename it into the view.
fn unshown() -> FileDefinition {
    FileDefinition {
        path: "{name}".to_owned(),
        key: "key".to_owned(),
        unique: true,
        rows: "SELECT * FROM file".to_owned(),
        body: "{content}".to_owned(),
        modified: Some("modified".to_owned()),
        attributes: Vec::new(),
        write: Write {
            update: Some("SELECT path, :content AS content FROM file WHERE key = :key".to_owned()),
            delete: Some("SELECT path FROM file WHERE key = :key".to_owned()),
            ..Write::default()
        },
    }
}

fn quoted(column: &str) -> String {
    format!("\"{}\"", column.replace('"', "\"\""))
}

/// A query over the rows of a definition.
#[derive(Debug)]
pub(super) struct Query {
    /// The path in the definition, for messages.
    pub(super) path: Arc<str>,
    pub(super) sql: String,
}

/// Definitions of directories by path.
type Directories<'a> = BTreeMap<&'a str, &'a DirectoryDefinition>;

/// Makes queries over the rows of one path.
struct Rows {
    path: Arc<str>,
    /// The `FROM` clause. A line break before its parenthesis ends a comment in the query.
    from: String,
    columns: Vec<Column>,
}

impl Rows {
    fn new(path: &str, rows: &str, source: &mut dyn Source) -> Result<Self, String> {
        Ok(Self {
            path: path.into(),
            from: format!("FROM ({}\n) AS it", rows.trim().trim_end_matches(';')),
            columns: source.describe(rows, false)?.columns,
        })
    }

    fn column(&self, name: &str) -> Result<&Column, String> {
        let found = self.columns.iter().find(|column| column.name == name);
        found.ok_or_else(|| format!("path {:?}: no column `{name}`", self.path))
    }

    fn text(&self, column: &str) -> Result<&str, String> {
        Ok(&self.column(column)?.text)
    }

    /// Expressions for the text of columns; a number if there are none.
    fn texts<'b>(&self, columns: impl Iterator<Item = &'b str>) -> Result<String, String> {
        let texts: Vec<&str> = columns.map(|column| self.text(column)).collect::<Result<_, _>>()?;
        Ok(if texts.is_empty() { "0".to_owned() } else { texts.join(", ") })
    }

    /// The names of all columns, and the expressions for their text. A column whose numbers do not equal their text
    /// gives one more, whose name begins with [`NUMBER`].
    fn whole(&self) -> (Vec<String>, String) {
        let texts = self.columns.iter().map(|it| (it.name.clone(), &it.text));
        let number = |it: &Column| format!("{NUMBER}{}", it.name);
        let numbers = (self.columns.iter()).filter_map(|it| Some((number(it), it.number.as_ref()?)));
        let (names, texts): (Vec<String>, Vec<&str>) =
            (texts.chain(numbers).map(|(name, text)| (name, text.as_str()))).unzip();
        (names, texts.join(", "))
    }

    /// The values of a column, as `text` and `more`.
    fn values(&self, text: &str, more: &str) -> Values {
        let page = |which: &str| {
            let page = format!("WHERE {text} {which} ORDER BY 1 LIMIT {NAMES_PAGE}");
            self.query(&format!("DISTINCT {text}{more}"), &page)
        };
        Values {
            // NULL gives no name; the name of the empty text is `%`.
            first: page("IS NOT NULL"),
            next: page(&format!("> :{AFTER}")),
        }
    }

    fn query(&self, shown: &str, rest: &str) -> Query {
        Query { path: Arc::clone(&self.path), sql: format!("SELECT {shown} {} {rest}", self.from) }
    }
}

impl Tree {
    /// Makes the levels of a definition that [`ViewDefinition::check`] has passed.
    pub(super) fn new(definition: ViewDefinition, kind: SourceKind, source: &mut dyn Source) -> Result<Self, String> {
        let mut tree = Self {
            levels: vec![Level::default()],
            files: Vec::new(),
            computed: Vec::new(),
            links: Vec::new(),
            questions: Vec::new(),
            unshown: None,
            naming: definition.naming,
        };
        let directories: Directories<'_> = definition.directories.iter().map(|it| (it.path.as_str(), it)).collect();
        for it in &definition.directories {
            tree.level(&it.path, &directories, source)?;
        }
        for it in definition.files {
            let level = tree.level_above(&it.path, &directories, source)?;
            tree.levels[level].files.push(tree.files.len());
            tree.add_files(level, it, kind, source)?;
        }
        if kind == SourceKind::Directory {
            for files in &mut tree.files {
                files.place = files.write.insert.as_deref().map(|insert| Query {
                    path: Arc::clone(&files.row.path),
                    sql: format!("SELECT file.key FROM ({insert}\n) AS it JOIN file ON file.path = it.path LIMIT 1"),
                });
            }
            tree.unshown = Some(tree.files.len());
            tree.add_files(0, unshown(), kind, source)?;
        }
        for it in definition.computed {
            let level = tree.level_above(&it.path, &directories, source)?;
            let fixed = FixedEntry::Computed(tree.computed.len());
            let name = last(&it.path).to_owned();
            tree.levels[level].fixed.push((name, fixed));
            tree.computed.push(lines(&it.path, &it.rows, source)?);
        }
        for it in definition.links {
            let level = tree.level_above(&it.path, &directories, source)?;
            let rows = Rows::new(&it.path, &it.rows, source)?;
            let column = column_of(last(&it.path)).unwrap_or_default();
            let target = Template::parse(&it.target)?;
            let is_it = format!("WHERE {} LIMIT 1", rows.column(column)?.is_value);
            tree.levels[level].links.push(tree.links.len());
            tree.links.push(Links {
                list: rows.values(rows.text(column)?, ""),
                find: rows.query(&rows.texts(target.columns())?, &is_it),
                target,
                column: column.to_owned(),
                write: it.write,
            });
        }
        for it in definition.questions {
            let level = tree.level_above(&it.path, &directories, source)?;
            let (start, column) = last(&it.path).split_once('{').unwrap_or_default();
            let target = Target::of(&it)?;
            tree.levels[level].questions.push(tree.questions.len());
            tree.questions.push(Question {
                start: start.to_owned(),
                column: column.trim_end_matches('}').to_owned(),
                lines: match &target {
                    None => lines(&it.path, &it.rows, source)?,
                    Some(target) => {
                        let rows = Rows::new(&it.path, &it.rows, source)?;
                        rows.query(&rows.texts(target.columns())?, "")
                    }
                },
                target,
            });
        }
        for path in &definition.unlisted {
            let level = tree.level_above(path, &directories, source)?;
            tree.levels[level].unlisted.push(last(path).to_owned());
        }
        Ok(tree)
    }

    fn add_files(
        &mut self,
        level: usize,
        it: FileDefinition,
        kind: SourceKind,
        source: &mut dyn Source,
    ) -> Result<(), String> {
        let rows = Rows::new(&it.path, &it.rows, source)?;
        let name = Template::parse(last(&it.path))?;
        let body = Template::parse(&it.body)?;
        let mut size = body.literal_bytes().to_string();
        for column in body.columns() {
            let length = &rows.column(column)?.length;
            size.push_str(&format!(" + coalesce({length}, 0)"));
        }
        let modified = it.modified.as_deref().map_or(Ok("NULL"), |column| rows.text(column))?;
        let (key, named) = (quoted(&it.key), rows.texts(name.columns())?);
        let key_text = rows.text(&it.key)?;
        // Only the table of a directory has files with permissions.
        let mode = match kind {
            SourceKind::Directory => rows.text("mode").unwrap_or("NULL"),
            _ => "NULL",
        };
        let shown = format!("{key_text}, {size}, {modified}, {mode}, {named}");
        // `it.` orders by the column, not by its text, to which PostgreSQL gives the same name.
        let page = format!("WHERE {key} > :{AFTER} AND {key} < {KEY_END} ORDER BY it.{key} LIMIT {PAGE}");
        let one = format!("WHERE {key} = :{KEY}");
        let name_column = name.columns().next().unwrap_or_default();
        let has_name = &rows.column(name_column)?.is_value;
        let (columns, row) = rows.whole();
        self.files.push(Files {
            level,
            key: if it.unique { KeyPlace::Unique } else { key_place(&name, &it.key)? },
            by_name: rows.query(&shown, &format!("WHERE {has_name} LIMIT 1")),
            list: rows.query(&shown, &page),
            names: rows.query(&format!("{key_text}, 0, NULL, NULL, {named}"), &page),
            one: rows.query(&shown, &one),
            read: rows.query(&rows.texts(body.columns())?, &one),
            row: rows.query(&row, &one),
            attribute_values: rows.query(&rows.texts(it.attributes.iter().map(String::as_str))?, &one),
            attributes: it.attributes,
            columns,
            possible: Names::new(&name, Some(&it.key)),
            key_column: it.key,
            name,
            body,
            write: it.write,
            place: None,
        });
        Ok(())
    }

    /// Makes the view read-only.
    pub(super) fn permit_no_change(&mut self) {
        let files = self.files.iter_mut().map(|files| &mut files.write);
        let links = self.links.iter_mut().map(|links| &mut links.write);
        files.chain(links).for_each(|write| *write = Write::default());
        self.levels.iter_mut().flat_map(|level| &mut level.named).for_each(|named| named.make = None);
    }

    /// Whether anything may be changed. Files that no row shows do not count: only a change can make one.
    pub(super) fn permits_changes(&self) -> bool {
        let unshown = self.unshown.unwrap_or(self.files.len());
        let files = self.files[..unshown].iter().map(|files| &files.write);
        files.chain(self.links.iter().map(|links| &links.write)).any(Write::is_any)
    }

    /// Whether a name in a directory is fixed, or a question.
    pub(super) fn is_taken(&self, level: &Level, name: &[u8]) -> bool {
        let mut questions = level.questions.iter().map(|it| &self.questions[*it].start);
        level.fixed.iter().any(|(has, _)| has.as_bytes() == name)
            || questions.any(|start| name.starts_with(start.as_bytes()))
    }

    /// Whether a file of a directory could have the name, whatever rows there are.
    pub(super) fn may_be_file(&self, level: &Level, name: &[u8]) -> bool {
        let mut files = level.files.iter().map(|files| &self.files[*files]);
        files.any(|files| files.possible.has(name))
    }

    /// Whether a program may give a file of a directory the name: not one that a directory or a link can get.
    pub(super) fn may_name(&self, level: &Level, name: &[u8]) -> bool {
        let is_mixed = !level.named.is_empty() || !level.links.is_empty();
        !is_mixed || self.may_be_file(level, name)
    }

    fn level_above(
        &mut self,
        path: &str,
        directories: &Directories<'_>,
        source: &mut dyn Source,
    ) -> Result<usize, String> {
        match path.rsplit_once('/') {
            Some((above, _)) => self.level(above, directories, source),
            None => Ok(0),
        }
    }

    /// The level with a path; creates it if it is missing.
    fn level(&mut self, path: &str, directories: &Directories<'_>, source: &mut dyn Source) -> Result<usize, String> {
        let above = self.level_above(path, directories, source)?;
        let name = last(path);
        let made = self.levels.len();
        match column_of(name) {
            Some(column) => {
                let is_it = |named: &&RowDirectories| self.levels[named.level].column.as_deref() == Some(column);
                if let Some(named) = self.levels[above].named.iter().find(is_it) {
                    return Ok(named.level);
                }
                let definition = directories.get(path);
                let rows = Rows::new(path, definition.map_or("", |it| &it.rows), source)?;
                let make = definition.and_then(|it| it.make.as_ref());
                let named = rows.column(column)?;
                let (text, is_value) = (&named.text, &named.is_value);
                let is_blob = named.is_blob.as_deref().unwrap_or("NULL");
                let number = format!("{}, {is_blob}", named.number.as_deref().unwrap_or("NULL"));
                self.levels[above].named.push(RowDirectories {
                    level: made,
                    list: rows.values(text, &format!(", {number}")),
                    find: rows.query(&number, &format!("WHERE {is_value} LIMIT 1")),
                    find_text: rows.query(&number, &format!("WHERE {is_value} AND ({is_blob}) IS NOT TRUE LIMIT 1")),
                    make: make.map(|sql| Query { path: path.into(), sql: sql.clone() }),
                });
                self.levels.push(Level { column: Some(column.to_owned()), ..Level::default() });
            }
            None => {
                let found = self.levels[above].fixed.iter().find(|(has, _)| has == name);
                if let Some((_, FixedEntry::Level(level))) = found {
                    return Ok(*level);
                }
                let fixed = (name.to_owned(), FixedEntry::Level(made));
                self.levels[above].fixed.push(fixed);
                self.levels.push(Level::default());
            }
        }
        Ok(made)
    }
}

/// A query's one column as text.
fn lines(path: &str, rows: &str, source: &mut dyn Source) -> Result<Query, String> {
    let rows = Rows::new(path, rows, source)?;
    let column = rows.columns.first().ok_or("a line is one column")?;
    Ok(rows.query(&column.text, ""))
}
