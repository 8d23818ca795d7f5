//! The mean length of notes, which BM25 needs.

use fuse::store::Result;

use sqlite::tables::Db;

/// The mean number of words in a note, names and tags included, from the record that FTS5 keeps for its own `bm25()`:
/// the number of rows, and the words of each column, as SQLite's variable-length integers.
pub(super) fn mean_length(db: &Db) -> Result<f64> {
    let record = db.row("SELECT block FROM memory_text_data WHERE id = 1", (), |row| {
        Ok(varints(row.get_ref(0)?.as_blob_or_null()?.unwrap_or_default()))
    })?;
    Ok(match record.as_deref() {
        // The last column has directories.
        Some([rows, name, tags, text, ..]) if *rows > 0 => (name + tags + text) as f64 / *rows as f64,
        _ => 1.0,
    })
}

fn varints(bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    let (mut number, mut length) = (0_u64, 0);
    for byte in bytes {
        length += 1;
        if length == 9 {
            number = number << 8 | u64::from(*byte);
        } else {
            number = number << 7 | u64::from(byte & 0x7f);
        }
        if length == 9 || *byte < 0x80 {
            numbers.push(number);
            (number, length) = (0, 0);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::varints;

    #[test]
    fn numbers_of_variable_length_are_read_as_sqlite_writes_them() {
        assert_eq!(varints(&[0x05, 0x81, 0x00, 0x7f]), [5, 128, 127]);
        assert_eq!(varints(&[0xff; 9]), [u64::MAX]);
        assert!(varints(&[]).is_empty());
    }
}
