//! CSV files: their columns, and how they are written.

use std::fs;
use std::path::Path;

use rundir::Outcome;

use super::output::WriteError;

/// A field of a CSV file.
pub(super) trait Field {
    /// Its text; empty for what there is not.
    fn text(&self) -> String;
}

macro_rules! fields {
    ($($type:ty)*) => {
        $(impl Field for $type {
            fn text(&self) -> String {
                self.to_string()
            }
        })*
    };
}

fields! { &str String u32 u64 usize f64 Outcome }

impl<T: Field> Field for Option<T> {
    fn text(&self) -> String {
        self.as_ref().map(T::text).unwrap_or_default()
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
pub(super) fn csv<T, H: IntoIterator<Item: AsRef<[u8]>>>(
    file: &Path,
    (head, row): (H, impl Fn(T) -> Vec<String>),
    rows: impl IntoIterator<Item = T>,
) -> Result<(), WriteError> {
    let format = |error: csv::Error| WriteError::Format(format!("{}: {error}", file.display()));
    let half = file.with_extension("part");
    let mut writer = csv::Writer::from_path(&half).map_err(format)?;
    writer.write_record(head).map_err(format)?;
    for value in rows {
        writer.write_record(row(value)).map_err(format)?;
    }
    let renamed = writer.flush().and_then(|()| fs::rename(&half, file));
    renamed.map_err(|error| WriteError::Io {
        file: file.to_owned(),
        error,
    })
}
