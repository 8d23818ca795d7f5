//! CSV files: their columns, and how they are written.

use std::io::Write;
use std::path::Path;

use inputs::border;
use rundir::Outcome;

use super::output::{NewFile, WriteError};

/// The encoded text of a field. Only [`Field`] makes one.
pub(super) struct CsvField(String);

/// A field of a CSV file.
pub(super) trait Field {
    /// Its text; empty if there is no value.
    fn text(&self) -> CsvField;
}

macro_rules! fields {
    ($($type:ty)*) => {
        $(impl Field for $type {
            fn text(&self) -> CsvField {
                CsvField(border::csv(&self.to_string()))
            }
        })*
    };
}

fields! { &str String u32 u64 usize f64 Outcome }

impl<T: Field> Field for Option<T> {
    fn text(&self) -> CsvField {
        let text = self.as_ref().map(T::text);
        text.unwrap_or_else(|| CsvField(String::new()))
    }
}

/// The names of a CSV file's columns, and the function from a value to its row.
/// A column is a field of the value, or an expression with a name of its own.
macro_rules! csv_columns {
    ($row:ident: $type:ty => $($name:ident $(= $value:expr)?),* $(,)?) => {
        (
            [$(stringify!($name)),*],
            |$row: $type| vec![$($crate::render::csv_file::csv_columns!(@ $row $name $($value)?)),*],
        )
    };
    (@ $row:ident $name:ident) => {
        $crate::render::csv_file::Field::text(&$row.$name)
    };
    (@ $row:ident $name:ident $value:expr) => {
        $crate::render::csv_file::Field::text(&$value)
    };
}
pub(super) use csv_columns;

/// Writes a table below a line of column names, row by row, so that no table is held in memory.
pub(super) fn csv<T, H: IntoIterator<Item: AsRef<str>>>(
    file: &Path,
    (head, row): (H, impl Fn(T) -> Vec<CsvField>),
    rows: impl IntoIterator<Item = T>,
) -> Result<(), WriteError> {
    let format = |error: csv::Error| WriteError::Format(format!("{}: {error}", file.display()));
    let mut new = NewFile::create(file)?;
    {
        let mut writer = csv::Writer::from_writer(new.by_ref());
        let head = head.into_iter().map(|name| border::csv(name.as_ref()));
        writer.write_record(head).map_err(format)?;
        for value in rows {
            let fields = row(value).into_iter().map(|field| field.0);
            writer.write_record(fields).map_err(format)?;
        }
        writer.flush().map_err(|error| WriteError::Io { file: file.to_owned(), error })?;
    }
    new.finish()
}
