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

/// The columns of a CSV file, and what makes a row of a value: fields by their names, or expressions with another name.
macro_rules! csv_columns {
    ($own:ident: $type:ty => $($name:ident $(= $value:expr)?),* $(,)?) => {
        (
            [$(stringify!($name)),*],
            |$own: $type| vec![$($crate::render::csv_file::csv_columns!(@ $own $name $($value)?)),*],
        )
    };
    (@ $own:ident $name:ident) => {
        $crate::render::csv_file::Field::text(&$own.$name)
    };
    (@ $own:ident $name:ident $value:expr) => {
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
    for own in rows {
        writer.write_record(row(own)).map_err(format)?;
    }
    let renamed = writer.flush().and_then(|()| fs::rename(&half, file));
    renamed.map_err(|error| WriteError::Io {
        file: file.to_owned(),
        error,
    })
}
