//! Definitions compared with the columns that their source has.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use fuse::store::NAME_MAX;
use inputs::InputError;

use crate::definition::{
    ComputedDefinition, DirectoryDefinition, FileDefinition, LinkDefinition, Names, QuestionDefinition, SourceKind,
    ViewDefinition,
};
use crate::source::{FileChange, NAME, Source, StatementDescription, TARGET};
use crate::template::{MARK, Part, Template};
use crate::{ATTRIBUTE, REASON};

/// Bytes of a name that are reserved for the key and for columns that are cut.
const ROOM: usize = 64;

/// A fault in a definition: the text that it is about, the path of its section, and the message.
struct DefinitionFault<'a> {
    about: &'a str,
    section: Option<&'a str>,
    message: String,
}

fn wrong(about: &str, message: impl ToString) -> DefinitionFault<'_> {
    DefinitionFault { about, section: None, message: message.to_string() }
}

fn wrong_path(path: &str, message: impl ToString) -> DefinitionFault<'_> {
    within(path)(wrong(path, message))
}

fn within<'a>(path: &'a str) -> impl Fn(DefinitionFault<'a>) -> DefinitionFault<'a> {
    move |wrong| DefinitionFault { section: Some(path), ..wrong }
}

/// The line that sets a path, and the section that it is in; of two, the last.
fn section(lines: &[&str], path: &str) -> Option<(usize, Range<usize>)> {
    let quoted = [format!("\"{path}\""), format!("'{path}'")];
    let sets = |line: &&str| line.trim_start().starts_with("path") && quoted.iter().any(|path| line.contains(path));
    let begins = |line: &&str| line.trim_start().starts_with("[[");
    let at = lines.iter().rposition(sets)?;
    let start = lines[..at].iter().rposition(begins).unwrap_or(0);
    let end = lines[at..].iter().position(begins);
    Some((at, start..end.map_or(lines.len(), |end| at + end)))
}

/// The line of a text that a definition has.
fn line_of(text: &str, wrong: &DefinitionFault<'_>) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let all = 0..lines.len();
    let mut range = match wrong.section.map(|path| (path, section(&lines, path))) {
        Some((path, Some((at, _)))) if path == wrong.about => return Some(at + 1),
        Some((_, Some((_, range)))) => range,
        _ => all,
    };
    let first = (wrong.about.lines()).find(|line| !line.trim().is_empty())?;
    Some(range.find(|at| lines[*at].contains(first))? + 1)
}

/// How rows name the entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    /// Directories or links, by one column.
    Value,
    /// Files, by one column with text beside it.
    Text,
    /// Files, by one column alone.
    Column,
    /// Files, by the key and, optionally, other columns and text.
    Key,
}

/// The names that rows give in a directory.
struct RowNames<'a> {
    dir: &'a str,
    path: &'a str,
    names: Names,
    kind: NameKind,
}

impl<'a> RowNames<'a> {
    /// Of files if there is a `key`, else of directories or links.
    fn new(path: &'a str, key: Option<&str>) -> Result<Self, String> {
        let template = Template::parse(last(path))?;
        Ok(Self {
            dir: path.rsplit_once('/').map_or("", |(dir, _)| dir),
            path,
            names: Names::new(&template, key),
            kind: match key {
                None => NameKind::Value,
                Some(key) if template.columns().any(|column| column == key) => NameKind::Key,
                Some(_) if template.0.len() > 1 => NameKind::Text,
                Some(_) => NameKind::Column,
            },
        })
    }

    /// Whether both can give the same name, and no mark would tell the two apart (`ViewStore::value_name`).
    fn clashes(&self, other: &Self) -> bool {
        use NameKind::{Key, Text, Value};
        let gets_mark = matches!((self.kind, other.kind), (Value, Text | Key) | (Text | Key, Value));
        self.dir == other.dir && !gets_mark && self.names.overlaps(&other.names)
    }
}

impl ViewDefinition {
    /// Compares the definition with the columns that its source has.
    ///
    /// # Errors
    /// With file and line: of an unknown column, an ambiguous name, a template without a key, a path that two things share.
    pub(super) fn check(
        &self,
        file: &Path,
        text: &str,
        kind: SourceKind,
        source: &mut dyn Source,
    ) -> Result<(), InputError> {
        self.find_fault(kind, source).map_err(|wrong| match line_of(text, &wrong) {
            Some(line) => InputError::at(file, line, wrong.message),
            None => InputError::whole(file, wrong.message),
        })
    }

    fn find_fault(&self, kind: SourceKind, source: &mut dyn Source) -> Result<(), DefinitionFault<'_>> {
        const PART_MAX: usize = NAME_MAX - ROOM;
        let mut paths = BTreeSet::new();
        for path in self.paths() {
            let mut faults = path.split('/').map(|part| match part {
                "" | "." | ".." => Some("it has an empty part".to_owned()),
                // A marked name stands for a value.
                _ if part.starts_with(MARK) => Some(format!("a name may not begin with `{MARK}`")),
                _ if part.len() > PART_MAX => Some(format!("a part has more than {PART_MAX} bytes")),
                _ => None,
            });
            let twice = (!paths.insert(path)).then(|| "it appears twice".to_owned());
            if let Some(fault) = twice.or_else(|| faults.find_map(|fault| fault)) {
                return Err(wrong_path(path, format!("path {path:?}: {fault}")));
            }
        }
        for file in &self.computed {
            let is_below = |path: &&&String| {
                let below = path.strip_prefix(file.path.as_str());
                below.is_some_and(|below| below.starts_with('/'))
            };
            if let Some(below) = paths.iter().find(is_below) {
                let message = format!("path {below:?}: {:?} is a computed file, not a directory", file.path);
                return Err(wrong(below, message));
            }
        }
        if paths.is_empty() {
            return Err(wrong("name", "it shows no file: add a [[file]], [[computed]] or [[directory]]"));
        }
        for it in &self.source.tables {
            if !it.columns.iter().any(|(name, _)| *name == it.key) {
                let message = format!("key: table `{}` has no column `{}`", it.name, it.key);
                return Err(wrong(&it.key, message));
            }
        }
        for dir in &self.unlisted {
            let is_below = |path: &&String| path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
            if last(dir).contains('{') || !self.paths().any(|path| is_below(&path)) {
                let message = format!("unlisted: {dir:?} is no directory with a fixed name");
                return Err(wrong(dir, message));
            }
        }
        for it in &self.directories {
            let checked = self.check_directory(it, source);
            checked.map_err(within(&it.path))?;
        }
        for it in &self.files {
            let checked = self.check_file(it, kind, source);
            checked.map_err(within(&it.path))?;
        }
        for it in &self.computed {
            let checked = self.check_computed(it, source);
            checked.map_err(within(&it.path))?;
        }
        for it in &self.links {
            let checked = self.check_link(it, kind, source);
            checked.map_err(within(&it.path))?;
        }
        for it in &self.questions {
            let checked = self.check_question(it, source);
            checked.map_err(within(&it.path))?;
        }
        self.check_names()
    }

    fn check_directory<'a>(
        &'a self,
        it: &'a DirectoryDefinition,
        source: &mut dyn Source,
    ) -> Result<(), DefinitionFault<'a>> {
        let mut above = self.columns_above(&it.path)?;
        let column = only_column(&it.path)?;
        check_query(source, &it.rows, &above, &[column])?;
        add_parameter(&mut above, column, &it.path)?;
        match &it.make {
            None => Ok(()),
            Some(make) => check_query(source, make, &above, &[]).map(|_| ()),
        }
    }

    fn check_computed<'a>(
        &'a self,
        it: &'a ComputedDefinition,
        source: &mut dyn Source,
    ) -> Result<(), DefinitionFault<'a>> {
        let above = self.columns_above(&it.path)?;
        if last(&it.path).contains('{') {
            return Err(wrong(&it.path, "path: a computed file has a fixed name"));
        }
        check_lines(source, &it.rows, &above)
    }

    fn check_link<'a>(
        &'a self,
        it: &'a LinkDefinition,
        kind: SourceKind,
        source: &mut dyn Source,
    ) -> Result<(), DefinitionFault<'a>> {
        let above = self.columns_above(&it.path)?;
        let target = Template::parse(&it.target).map_err(|error| wrong(&it.target, format!("target: {error}")))?;
        let column = only_column(&it.path)?;
        let mut wanted = vec![column];
        wanted.extend(target.columns());
        check_query(source, &it.rows, &above, &wanted)?;
        for (what, sql) in it.write.statements() {
            if kind != SourceKind::Directory || what == "update" {
                let message = format!("{what}: a link of this source has no such statement");
                return Err(wrong(sql, message));
            }
            let columns = source.describe(sql, false).map_err(|error| wrong(sql, format!("{what}: {error}")))?;
            let is_known = |name: &str| name == column || above.contains(name) || (what, name) == ("insert", TARGET);
            check_statement(sql, what, &columns, &["path", "content"], is_known)?;
        }
        Ok(())
    }

    fn check_question<'a>(
        &'a self,
        it: &'a QuestionDefinition,
        source: &mut dyn Source,
    ) -> Result<(), DefinitionFault<'a>> {
        let mut above = self.columns_above(&it.path)?;
        let name = last(&it.path);
        let template = Template::parse(name).map_err(|error| wrong(&it.path, format!("path: {error}")))?;
        match template.0.as_slice() {
            [Part::Literal(start), Part::Column(column)] if start.starts_with(':') && start.ends_with('?') => {
                add_parameter(&mut above, column, &it.path)?;
            }
            _ => return Err(wrong(&it.path, "path: a question is `:name?{column}`")),
        }
        let parse = |name: &str, text: &'a Option<String>| match text {
            None => Ok(None),
            Some(text) => match Template::parse(text) {
                Ok(template) => Ok(Some(template)),
                Err(error) => Err(wrong(text, format!("{name}: {error}"))),
            },
        };
        match (parse("target", &it.target)?, parse("note", &it.note)?) {
            (None, None) => check_lines(source, &it.rows, &above),
            (None, Some(_)) => Err(wrong("note", "note: it follows a `target`, which is missing")),
            (Some(target), note) => {
                let note = note.iter().flat_map(Template::columns);
                let wanted: Vec<&str> = target.columns().chain(note).collect();
                check_query(source, &it.rows, &above, &wanted).map(|_| ())
            }
        }
    }

    /// Refuses two things in one directory that rows can give the same name.
    fn check_names(&self) -> Result<(), DefinitionFault<'_>> {
        let mut all: Vec<RowNames<'_>> = Vec::new();
        let values = (self.directories.iter().map(|it| &it.path))
            .chain(self.links.iter().map(|it| &it.path))
            .map(|path| (path, None));
        let files = (self.files.iter()).map(|it| (&it.path, Some(it.key.as_str())));
        for (path, key) in values.chain(files) {
            let named = RowNames::new(path, key).map_err(|error| wrong_path(path, format!("path: {error}")))?;
            if let Some(other) = all.iter().find(|other| named.clashes(other)) {
                let message =
                    format!("path {path:?}: a name could also be one of {:?} in the same directory", other.path);
                return Err(wrong_path(path, message));
            }
            all.push(named);
        }
        for (dir, fixed) in self.fixed_names() {
            let template = Template::parse(fixed).map_err(|error| wrong(fixed, format!("path: {error}")))?;
            let names = Names::new(&template, None);
            let here = || all.iter().filter(|named| named.dir == dir);
            // A name that equals a fixed one gets a mark. A name with a key cannot get one; a file and a directory of
            // the same name would both get the same.
            let cannot_be_marked = |named: &&RowNames<'_>| match named.kind {
                NameKind::Key => true,
                NameKind::Text => here().any(|other| other.kind == NameKind::Value),
                NameKind::Column | NameKind::Value => false,
            };
            let mut clashes = here().filter(|named| named.names.overlaps(&names));
            if let Some(RowNames { path, .. }) = clashes.find(cannot_be_marked) {
                let message = format!("path {path:?}: a name could also be {fixed:?} in the same directory");
                return Err(wrong_path(path, message));
            }
        }
        Ok(())
    }

    /// The paths of all sections.
    fn paths(&self) -> impl Iterator<Item = &String> {
        (self.directories.iter().map(|it| &it.path))
            .chain(self.files.iter().map(|it| &it.path))
            .chain(self.computed.iter().map(|it| &it.path))
            .chain(self.links.iter().map(|it| &it.path))
            .chain(self.questions.iter().map(|it| &it.path))
    }

    /// Directories, and the fixed names and questions in them.
    fn fixed_names(&self) -> BTreeSet<(&str, &str)> {
        let split = |path| str::rsplit_once(path, '/').unwrap_or(("", path));
        let mut names: BTreeSet<(&str, &str)> = self.questions.iter().map(|it| split(&it.path)).collect();
        for path in self.paths() {
            let mut rest = path.as_str();
            while !rest.is_empty() {
                let (dir, name) = split(rest);
                if !name.contains('{') {
                    names.insert((dir, name));
                }
                rest = dir;
            }
        }
        names
    }

    fn check_file<'a>(
        &'a self,
        it: &'a FileDefinition,
        kind: SourceKind,
        source: &mut dyn Source,
    ) -> Result<(), DefinitionFault<'a>> {
        let above = &self.columns_above(&it.path)?;
        let name = Template::parse(last(&it.path)).map_err(|error| wrong(&it.path, format!("path: {error}")))?;
        match it.unique {
            true if name.columns().count() == 1 => {}
            true => return Err(wrong(&it.path, "path: a `unique` name has one column")),
            false => {
                key_place(&name, &it.key).map_err(|error| wrong(&it.path, format!("path: {error}")))?;
            }
        }
        let body = Template::parse(&it.body).map_err(|error| wrong(&it.body, format!("body: {error}")))?;
        let mut wanted: Vec<&str> = name.columns().chain(body.columns()).collect();
        wanted.extend(it.modified.as_deref());
        wanted.extend(it.attributes.iter().map(String::as_str));
        let mut seen = BTreeSet::new();
        let most = NAME_MAX - ATTRIBUTE.len();
        for column in &it.attributes {
            let fault = match column {
                column if !seen.insert(column) => "appears twice".to_owned(),
                column if column.len() > most => format!("has more than {most} bytes"),
                _ => continue,
            };
            let message = format!("attributes: `{column}` {fault}");
            return Err(wrong("attributes", message));
        }
        if it.attributes.iter().any(|column| column == REASON) {
            let message = format!("attributes: `{REASON}` says why a change was refused: name it otherwise");
            return Err(wrong("attributes", message));
        }
        wanted.push(&it.key);
        let columns = check_query(source, &it.rows, above, &wanted)?;
        let mut known: BTreeSet<String> = above.clone();
        known.extend(columns);
        let in_body: BTreeSet<&str> = body.columns().collect();
        if it.write.update.is_some() || it.write.insert.is_some() {
            let is_adjacent = body.0.windows(2).any(|pair| matches!(pair, [Part::Column(_), Part::Column(_)]));
            if is_adjacent || in_body.len() != body.columns().count() {
                let message = "body: what can be written has text between columns, and each column once";
                return Err(wrong(&it.body, message));
            }
        }
        let names_files = kind == SourceKind::Directory;
        for (what, sql) in it.write.statements() {
            let described =
                source.describe(sql, !names_files).map_err(|error| wrong(sql, format!("{what}: {error}")))?;
            let is_known = |name: &str| match what {
                "insert" => above.contains(name) || in_body.contains(name) || (names_files && name == NAME),
                // A change of a file that is too long to be shown has no row.
                "delete" | "receive" if names_files => {
                    above.contains(name) || name == it.key || (what, name) == ("receive", NAME)
                }
                _ => known.contains(name),
            };
            let wanted = if names_files { FileChange::columns(what) } else { &[] };
            check_statement(sql, what, &described, wanted, is_known)?;
        }
        Ok(())
    }

    /// The columns of the directories that a path is in.
    fn columns_above<'a>(&'a self, path: &'a str) -> Result<BTreeSet<String>, DefinitionFault<'a>> {
        let mut above = BTreeSet::new();
        let parts: Vec<&str> = path.split('/').collect();
        for end in 1..parts.len() {
            let part = parts[end - 1];
            if !part.contains('{') {
                continue;
            }
            let dir = parts[..end].join("/");
            if !self.directories.iter().any(|it| it.path == dir) {
                let message = format!("path {path:?}: no [[directory]] has the path {dir:?}");
                return Err(wrong(path, message));
            }
            above.extend(column_of(part).map(str::to_owned));
        }
        Ok(above)
    }
}

/// The last part of a path.
pub(super) fn last(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

/// The column that a part of a path is, if it is one.
pub(super) fn column_of(part: &str) -> Option<&str> {
    let column = part.strip_prefix('{')?.strip_suffix('}')?;
    (!column.contains(['{', '}'])).then_some(column)
}

/// Adds the last part of a path to the columns above it.
fn add_parameter<'a>(above: &mut BTreeSet<String>, column: &str, path: &'a str) -> Result<(), DefinitionFault<'a>> {
    if above.insert(column.to_owned()) {
        Ok(())
    } else {
        let message = format!("path {path:?}: `:{column}` would be two of its parts");
        Err(wrong(path, message))
    }
}

fn only_column(path: &str) -> Result<&str, DefinitionFault<'_>> {
    column_of(last(path))
        .ok_or_else(|| wrong(path, format!("path {path:?}: its last part must be one column, as `{{id}}`")))
}

/// Where the key is in a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// Digits after so many bytes.
    First(usize),
    /// Digits before so many bytes.
    Last(usize),
    /// Nowhere: the value of its one column is unique.
    Unique,
}

/// Finds the key in a name, so that each name belongs to exactly one row.
pub(super) fn key_place(name: &Template, key: &str) -> Result<KeyPlace, String> {
    let is_key = |part: &Part| *part == Part::Column(key.to_owned());
    let count = name.0.iter().filter(|part| is_key(part)).count();
    if count != 1 {
        return Err(format!(
            "two rows could give one name: the name must have the key `{{{key}}}` once, or the file `unique = true`"
        ));
    }
    let (first, last) = (&name.0[0], &name.0[name.0.len() - 1]);
    let length = |part: &Part| match part {
        Part::Literal(text) => text.len(),
        Part::Column(_) => 0,
    };
    // Whether a digit can be next to the key; `nearest` is the character of a literal at the key's side.
    let may_be_digit = |beside: Option<&Part>, nearest: fn(&str) -> Option<char>| match beside {
        Some(Part::Literal(text)) => nearest(text).is_some_and(|char| char.is_ascii_digit()),
        Some(Part::Column(_)) => true,
        None => false,
    };
    let at = name.0.iter().position(is_key).unwrap_or(0);
    if name.0[..at].iter().all(|part| matches!(part, Part::Literal(_)))
        && !may_be_digit(name.0.get(at + 1), |text| text.chars().next())
    {
        return Ok(KeyPlace::First(if at == 0 { 0 } else { length(first) }));
    }
    let is_last = name.0[at + 1..].iter().all(|part| matches!(part, Part::Literal(_)));
    let before = at.checked_sub(1).and_then(|before| name.0.get(before));
    if is_last && !may_be_digit(before, |text| text.chars().next_back()) {
        return Ok(KeyPlace::Last(if at + 1 == name.0.len() { 0 } else { length(last) }));
    }
    Err(format!("the key `{{{key}}}` must be the first or the last column, with text between it and the next"))
}

/// Checks a query's columns and parameters; answers its columns.
fn check_query<'a>(
    source: &mut dyn Source,
    sql: &'a str,
    above: &BTreeSet<String>,
    wanted: &[&str],
) -> Result<Vec<String>, DefinitionFault<'a>> {
    let described = source.describe(sql, false).map_err(|error| wrong(sql, format!("rows: {error}")))?;
    if let Some(unknown) = described.parameters.iter().find(|it| !above.contains(*it)) {
        let message = format!("rows: parameter `:{unknown}` is not a column of a directory above");
        return Err(wrong(sql, message));
    }
    let columns: Vec<String> = described.columns.into_iter().map(|column| column.name).collect();
    if let Some(unknown) = wanted.iter().find(|it| !columns.iter().any(|has| has == *it)) {
        let message = format!("rows: no column `{unknown}`; there are {}", columns.join(", "));
        return Err(wrong(sql, message));
    }
    Ok(columns)
}

/// Checks the parameters of a statement that changes something, and the columns that it must have.
fn check_statement<'a>(
    sql: &'a str,
    what: &str,
    described: &StatementDescription,
    wanted: &[&str],
    is_known: impl Fn(&str) -> bool,
) -> Result<(), DefinitionFault<'a>> {
    if let Some(unknown) = described.parameters.iter().find(|name| !is_known(name)) {
        let message = format!("{what}: parameter `:{unknown}` is not one of its columns");
        return Err(wrong(sql, message));
    }
    let has = |wanted: &&&str| described.columns.iter().any(|column| column.name == **wanted);
    match wanted.iter().find(|wanted| !has(wanted)) {
        None => Ok(()),
        Some(missing) => Err(wrong(sql, format!("{what}: no column `{missing}`, which names the file or its content"))),
    }
}

fn check_lines<'a>(source: &mut dyn Source, sql: &'a str, above: &BTreeSet<String>) -> Result<(), DefinitionFault<'a>> {
    let columns = check_query(source, sql, above, &[])?;
    match columns.len() {
        1 => Ok(()),
        count => Err(wrong(sql, format!("rows: a line is one column, and here are {count}"))),
    }
}
