//! Inputs of users: files, parsed with errors that name file, line and field, their digests, variables, and what they
//! have installed. [`named!`] declares enums whose variants have names in them.
//! [`files`] opens files and has their limits, [`names`] checks names, [`border`] encodes foreign text for each output.

mod advice;
pub mod border;
mod document;
pub mod files;
mod location;
mod named;
pub mod names;

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hex_simd::AsciiCase;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use advice::{advice, advised, advised_for_new};
pub use document::{Mismatch, parse_json, read_value, toml_as_json};
pub use location::PathStep;

/// A defect in an input file.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct InputError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, if known.
    pub line: Option<usize>,
    /// The defect, with the field and the allowed values.
    pub message: String,
}

impl InputError {
    /// An error about a file as a whole.
    pub fn whole(file: &Path, message: impl ToString) -> Self {
        Self { file: file.to_owned(), line: None, message: message.to_string() }
    }

    /// An error in one line.
    pub fn at(file: &Path, line: usize, message: impl ToString) -> Self {
        Self { line: Some(line), ..Self::whole(file, message) }
    }
}

/// An error with all its causes, in one line. A cause whose words the line has already is left out.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The value of an environment variable; `None` if it is not set, or empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The `target` directories in which our scripts install programs and models: of the current directory, and of this
/// program.
pub fn targets() -> Vec<PathBuf> {
    let here = std::env::current_dir().map(|here| here.join("target"));
    let mut targets: Vec<PathBuf> = here.into_iter().collect();
    if let Ok(program) = std::env::current_exe() {
        let above = program.ancestors().filter(|path| path.ends_with("target"));
        targets.extend(above.map(Path::to_owned));
    }
    targets
}

/// Finds an executable file of this name in `below`, a directory of [`targets`], else on the `PATH`.
pub fn find_program(name: &str, below: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = targets().into_iter().map(|target| target.join(below));
    let mut places = ours.chain(std::env::split_paths(&path));
    places.find_map(|place| Some(place.join(name)).filter(|program| is_program(program)))
}

/// Whether a path is that of an executable file.
pub fn is_program(path: &Path) -> bool {
    let file = path.metadata();
    file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    hex_simd::encode_to_string(bytes, AsciiCase::Lower)
}

/// SHA-256 in lower-case hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes))
}

/// SHA-256 of a file, in lower-case hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn sha256_of(file: &Path) -> io::Result<String> {
    sha256_of_open(File::open(file)?)
}

/// SHA-256 of the rest of an open file, in lower-case hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn sha256_of_open(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(hash.finalize())),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The text of a definition, policy, suite or price list.
///
/// # Errors
/// [`InputError`] if it cannot be read, is not a regular file, or is longer than [`files::DEFINITION`].
pub fn read(file: &Path) -> Result<String, InputError> {
    let text = files::read_text(file, files::DEFINITION);
    text.map_err(|error| InputError::whole(file, advised(&error)))
}

/// The file and the text of the `what` that a user names: a `.toml` file by its path, else the built-in one.
/// `known` are the names of those.
///
/// # Errors
/// [`InputError`] if the file cannot be read, or none is built in under that name.
pub fn named(
    what: &str,
    name: &str,
    built_in: Option<(PathBuf, &str)>,
    known: &[String],
) -> Result<(PathBuf, String), InputError> {
    let path = Path::new(name);
    if name.ends_with(".toml") {
        return Ok((path.to_owned(), read(path)?));
    }
    let known = names::alternatives(name, known.iter().map(String::as_str));
    let message = format!("unknown {what}; {known}; or give the path of a .toml file");
    let found = built_in.map(|(file, text)| (file, text.to_owned()));
    found.ok_or_else(|| InputError::whole(path, message))
}

/// Parses a definition in TOML, of at most [`files::DEFINITION_VALUES`] values; `file` is only for error messages. A date
/// without quotes is text, and a variant without fields may be an empty table.
///
/// # Errors
/// [`InputError`] with the line and the field; without the field if the text is not TOML, has a number of 2^63 or more, or
/// has too many values.
pub fn parse_toml<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, InputError> {
    let tree = document::toml_tree(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        InputError::at(file, location::line(text, start), error.message())
    })?;
    let (values, most) = (document::values(&tree), files::DEFINITION_VALUES);
    if values > most {
        let message = format!("has {values} values; a definition may have {most}");
        return Err(InputError::whole(file, message));
    }
    document::read_toml(tree).map_err(|error| {
        let (_, line) = location::locate(text, &error.path());
        InputError::at(file, line.unwrap_or(1), error)
    })
}

/// An error about the meaning of a field in a TOML document. If the document lacks the last step, the line is
/// that of its table.
pub fn toml_error(file: &Path, text: &str, path: &[PathStep<'_>], message: &str) -> InputError {
    let (field, line) = location::locate(text, path);
    InputError { file: file.to_owned(), line, message: format!("field `{field}`: {message}") }
}

/// Reads a record as a `T`; an error names `file` and `line`.
///
/// # Errors
/// [`InputError`] with the line and the field.
pub fn read_record<T: DeserializeOwned>(file: &Path, line: usize, record: Value) -> Result<T, InputError> {
    read_value(record).map_err(|error| InputError::at(file, line, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are looked at")]
    struct Outer {
        name: String,
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are looked at")]
    struct Inner {
        count: u32,
    }

    #[test]
    fn an_error_is_one_line_with_each_of_its_causes_once() {
        #[derive(Debug)]
        struct Layer(&'static str, Option<Box<Layer>>);
        impl std::fmt::Display for Layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Layer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(self.1.as_deref()?)
            }
        }
        let inner = Layer("refused\n(os error 111)", None);
        let middle = Layer("cannot connect", Some(Box::new(inner)));
        let outer = Layer("sending: cannot connect", Some(Box::new(middle)));
        assert_eq!(with_causes(&outer), "sending: cannot connect: refused (os error 111)");
    }

    fn toml(text: &str) -> String {
        parse_toml::<Outer>(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn toml_errors_name_file_line_field_and_what_is_allowed() {
        insta::assert_snapshot!(toml("name = 'a'\n[inner]\ncount = 1\ncolour = 2\n"), @"x.toml:4: field `inner.colour`: unknown field `colour`, expected `count`");
        insta::assert_snapshot!(toml("name = 'a'\n[inner]\ncount = 'b'\n"), @r#"x.toml:3: field `inner.count`: invalid type: string "b", expected u32"#);
        insta::assert_snapshot!(toml("name = 'a'\n[inner]\n"), @"x.toml:2: field `inner`: missing field `count`");
        insta::assert_snapshot!(toml("name = \n"), @"x.toml:1: string values must be quoted, expected literal string");
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is parsed, and never read")]
    struct Lists {
        step: Vec<Step>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "lowercase")]
    #[expect(dead_code, reason = "it is parsed, and never read")]
    enum Step {
        Wait { seconds: f64 },
        Read(String),
        Stop,
    }

    #[test]
    fn toml_errors_name_the_line_in_lists() {
        let error = |text: &str| {
            let file = Path::new("x.toml");
            parse_toml::<Lists>(file, text).unwrap_err().to_string()
        };
        let lists = "[[step]]\nread = 'a'\n[[step]]\n[step.wait]\n";
        // A variant without fields may be a table, and a date may go without quotes.
        let accepted = "step = ['stop', { stop = {} }, { wait = { seconds = inf } }, { wait = { seconds = -1 } }, { read = 2026-11-27 }]";
        assert!(parse_toml::<Lists>(Path::new("x.toml"), accepted).is_ok());
        insta::assert_snapshot!(error(&format!("{lists}seconds = true\n")), @"x.toml:5: field `step[1].wait.seconds`: invalid type: boolean `true`, expected f64");
        insta::assert_snapshot!(error("[[step]]\nread = 20\n"), @"x.toml:2: field `step[0].read`: invalid type: integer `20`, expected a string");
        insta::assert_snapshot!(error("\nstep = 9223372036854775808"), @"x.toml:2: u64 value was too large");
        insta::assert_snapshot!(error("step = [\n  { read = 'a' },\n  { copy = 'b' },\n]\n"), @"x.toml:3: field `step[1]`: unknown variant `copy`, expected one of `wait`, `read`, `stop`");
    }

    #[test]
    fn a_definition_of_too_many_values_is_refused_before_it_is_read() {
        let file = Path::new("x.toml");
        let rows = |count: usize| "[[step]]\nread = 'a'\n".repeat(count);
        // The document, the list, and two values a row.
        let most = (files::DEFINITION_VALUES - 2) / 2;
        assert!(parse_toml::<Lists>(file, &rows(most)).is_ok());
        let error = parse_toml::<Lists>(file, &rows(most + 1)).unwrap_err();
        insta::assert_snapshot!(error, @"x.toml: has 10002 values; a definition may have 10000");
        for nested in ["step = [", "step = {wait=", "step", "[step"] {
            let more = ["[", "{wait=", ".wait", ".wait"];
            for more in more {
                let text = format!("{nested}{}", more.repeat(100_000));
                parse_toml::<Lists>(file, &text).unwrap_err();
            }
        }
    }

    #[test]
    fn json_errors_name_file_line_and_field() {
        let line = parse_json(r#"{"name": "a", "inner": {"count": -1}}"#).unwrap();
        let error = read_record::<Outer>(Path::new("x.jsonl"), 7, line).unwrap_err();
        insta::assert_snapshot!(error, @"x.jsonl:7: field `inner.count`: invalid value: integer `-1`, expected u32");
    }
}
