//! Recognises a file by its own bytes: SQLite would write to a foreign file, or remove files beside it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::files::{has_log, log_of, open_beside};
use crate::open_error::{SqliteOpenError, unreadable};

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Bytes of the header of a database.
const HEADER: usize = 100;

/// Bytes of the header of a write-ahead log, and of each of its frames.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// Checks that the file at `path` is missing, empty, an SQLite database without tables, or one of `application_id`.
/// Reads only.
///
/// # Errors
/// If it is something else, or shorter than its header says.
pub fn check_content(path: &Path, application_id: i32) -> Result<(), SqliteOpenError> {
    let wrong = |error: io::Error| unreadable(path, &error);
    let unknown = |reason: &str| SqliteOpenError::Unknown { path: path.to_owned(), reason: reason.to_owned() };
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(wrong)?,
    };
    if !metadata.is_file() {
        return Err(unknown("it is not a regular file"));
    }
    if metadata.len() == 0 {
        return Ok(());
    }
    let mut file = File::open(path).map_err(wrong)?;
    let mut header = [0; HEADER];
    match file.read_exact(&mut header) {
        Ok(()) if header.starts_with(MAGIC) => {}
        Ok(()) => return Err(unknown("it is not an SQLite database")),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(unknown("it is shorter than the header of an SQLite database"));
        }
        Err(error) => return Err(wrong(error)),
    }
    check_length(path, &header, metadata.len())?;
    let found = application_of(&header);
    if found == application_id || log_names(path, &header, application_id).map_err(wrong)? {
        return Ok(());
    }
    let foreign = |found| SqliteOpenError::Foreign { path: path.to_owned(), found };
    if found != 0 || log_has_root(path, &header).map_err(wrong)? {
        return Err(foreign(found));
    }
    // Immutable: SQLite neither rolls back another program's journal nor makes a file beside the database.
    let (uri, flags) = immutable(path);
    let tables = Connection::open_with_flags(uri, flags).and_then(|connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get::<_, i64>(0))
    });
    match tables.map_err(|error| unreadable(path, &error))? {
        0 => Ok(()),
        _ => Err(foreign(found)),
    }
}

/// Checks that the database in `file`, which is the one at `path`, is as long as its header says. What has no header of a
/// database passes. Reads only, and closes nothing.
///
/// # Errors
/// If it is shorter, or cannot be read.
pub fn check_whole(path: &Path, file: &File) -> Result<(), SqliteOpenError> {
    let mut header = [0; HEADER];
    if file.read_exact_at(&mut header, 0).is_err() || !header.starts_with(MAGIC) {
        return Ok(());
    }
    let length = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    check_length(path, &header, length)
}

fn check_length(path: &Path, header: &[u8; HEADER], length: u64) -> Result<(), SqliteOpenError> {
    let wanted = u64::from(u32_at(header, 28)) * page_bytes(header);
    // A kill during a checkpoint may leave a file that is shorter; its log has the rest.
    if u32_at(header, 24) == u32_at(header, 92) && length < wanted && !has_log(path) {
        let reason = format!("it is truncated: {length} of {wanted} bytes are left");
        Err(unreadable(path, &reason))
    } else {
        Ok(())
    }
}

/// The address and flags of a connection that reads the file alone, without its log, and never writes.
pub fn immutable(path: &Path) -> (String, OpenFlags) {
    let mut uri = String::from("file:");
    for byte in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    (uri, flags)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn page_bytes(header: &[u8; HEADER]) -> u64 {
    match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    }
}

fn application_of(header: &[u8]) -> i32 {
    u32_at(header, 68).cast_signed()
}

/// Whether the log of the database has a first page of an application.
fn log_names(path: &Path, header: &[u8; HEADER], application_id: i32) -> io::Result<bool> {
    first_page_in_log(path, header, |page| application_of(page) == application_id)
}

/// Whether the log of the database has a first page.
fn log_has_root(path: &Path, header: &[u8; HEADER]) -> io::Result<bool> {
    first_page_in_log(path, header, |_| true)
}

/// Whether the first page of the database has a version in its log for which `is_it` holds.
fn first_page_in_log(path: &Path, header: &[u8; HEADER], is_it: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    let log = match open_beside(&log_of(path), File::options().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        log => log?,
    };
    let length = log.metadata()?.len();
    let mut at = LOG_HEADER;
    let mut frame = [0; FRAME_HEADER as usize];
    let mut page = [0; HEADER];
    while at + FRAME_HEADER + page_bytes(header) <= length {
        log.read_exact_at(&mut frame, at)?;
        let (number, salt) = (u32_at(&frame, 0), u32_at(&frame, 8));
        if number == 0 && salt == 0 {
            // The zeros by which a mount fills its log up.
            break;
        }
        if number == 1 {
            log.read_exact_at(&mut page, at + FRAME_HEADER)?;
            if is_it(&page) {
                return Ok(true);
            }
        }
        at += FRAME_HEADER + page_bytes(header);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::SqliteStore;
    use crate::log_mark::tests::OWNER;

    /// The names, lengths, bytes and times of all files in a directory.
    fn state(dir: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let changed = path.metadata().unwrap().modified().unwrap();
                let bytes = std::fs::read(&path).unwrap_or_default();
                (path, bytes, changed)
            })
            .collect();
        files.sort();
        files
    }

    /// A database of another program, which was killed: its journal and its log are beside it.
    fn foreign(path: &Path, mode: &str) {
        let there = path.parent().unwrap().join("alive");
        let other = Connection::open(&there).unwrap();
        let sql = format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t (a); INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2);"
        );
        other.execute_batch(&sql).unwrap();
        for suffix in ["", "-wal", "-journal"] {
            let from = format!("{}{suffix}", there.display());
            let _ = std::fs::copy(from, format!("{}{suffix}", path.display()));
        }
        drop(other);
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", there.display()));
        }
    }

    #[test]
    fn a_file_of_unknown_content_is_refused_and_left_as_it_is() {
        let ours = {
            let dir = tempfile::tempdir().unwrap();
            drop(SqliteStore::open(&dir.path().join("a"), &OWNER).unwrap());
            std::fs::read(dir.path().join("a")).unwrap()
        };
        let cases: [(&str, Vec<u8>); 9] = [
            ("one byte", b"x".to_vec()),
            ("one zero", vec![0]),
            ("text", b"dear diary".to_vec()),
            ("long text", b"dear diary\n".repeat(5000)),
            ("a page of zeros", vec![0; 4096]),
            ("many zeros", vec![0; 1 << 20]),
            ("the start of a header", ours[..50].to_vec()),
            ("a page of ours", ours[..4096].to_vec()),
            ("ours without its end", ours[..ours.len() - 1].to_vec()),
        ];
        for (what, bytes) in cases {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            std::fs::write(&path, bytes).unwrap();
            let before = state(dir.path());
            assert!(SqliteStore::open(&path, &OWNER).is_err(), "{what}");
            assert_eq!(state(dir.path()), before, "{what}");
        }
        for mode in ["DELETE", "WAL"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            foreign(&path, mode);
            let before = state(dir.path());
            let error = SqliteStore::open(&path, &OWNER).unwrap_err();
            assert!(matches!(error, SqliteOpenError::Foreign { .. }), "{mode}: {error}");
            assert_eq!(state(dir.path()), before, "{mode}");
        }
    }

    #[test]
    fn an_empty_file_becomes_a_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        File::create(&path).unwrap();
        drop(SqliteStore::open(&path, &OWNER).unwrap());
        drop(SqliteStore::open(&path, &OWNER).unwrap());
    }

    #[test]
    fn a_database_killed_before_its_first_checkpoint_is_recognised_by_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let (alive, killed) = (dir.path().join("alive"), dir.path().join("a.db"));
        let connection = Connection::open(&alive).unwrap();
        let sql = format!(
            "PRAGMA journal_mode = WAL; BEGIN; CREATE TABLE t (a); PRAGMA application_id = {}; COMMIT;",
            i32::from_be_bytes(*b"ctxb")
        );
        connection.execute_batch(&sql).unwrap();
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", alive.display());
            std::fs::copy(from, format!("{}{suffix}", killed.display())).unwrap();
        }
        check_content(&killed, i32::from_be_bytes(*b"ctxb")).unwrap();
        let error = check_content(&killed, 7).unwrap_err();
        assert!(matches!(error, SqliteOpenError::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_refused_start_removes_only_what_it_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        // A second start while the first has the database.
        assert!(SqliteStore::open(&path, &OWNER).is_err());
        assert!(path.exists());
        fuse::store::Store::discard_new(&store);
        drop(store);
        assert_eq!(state(dir.path()), []);
        drop(SqliteStore::open(&path, &OWNER).unwrap());
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        fuse::store::Store::discard_new(&store);
        drop(store);
        assert!(path.exists(), "it was there before");
    }
}
