//! Opens files that a user or a foreign directory names, and limits what is read from them. The limits by kind of file
//! are here.
//!
//! Only regular files are read: a FIFO, a device or a directory is refused without waiting for it.

use std::fs::{File, FileType, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, openat};

/// The limits of one kind of file.
#[derive(Clone, Copy, Debug)]
pub struct FileLimit {
    /// The kind, for messages.
    kind: &'static str,
    /// The most bytes, unpacked.
    bytes: u64,
    /// The longest line in bytes; `u64::MAX` for files without lines.
    line: u64,
}

impl FileLimit {
    const fn new(kind: &'static str, bytes: u64, line: u64) -> Self {
        Self { kind, bytes, line }
    }

    /// The most bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The longest line in bytes.
    pub const fn line(&self) -> u64 {
        self.line
    }

    fn too_long(&self) -> io::Error {
        refused(format!("is longer than {}, the limit for {}", words(self.bytes), self.kind))
    }

    fn long_line(&self) -> io::Error {
        refused(format!("has a line longer than the {} that one of {} may have", words(self.line), self.kind))
    }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A policy, a claims file, a price list, a suite, a workload, a view or a backend's definition.
pub const DEFINITION: FileLimit = FileLimit::new("a definition", 4 * MIB, u64::MAX);
/// The most values in a definition: what is made of a row can take far more than the row.
pub const DEFINITION_VALUES: usize = 10_000;
/// A trace.
pub const TRACE: FileLimit = FileLimit::new("a trace", GIB, 256 * MIB);
/// A recorded session.
pub const RECORDING: FileLimit = FileLimit::new("a recorded session", GIB, 256 * MIB);
/// The most values of one record of a recorded session, a trace or a run directory: a small value takes many times its
/// bytes in memory.
pub const RECORD_VALUES: usize = 4_000_000;
/// The most values of a recorded session that is one document.
pub const DOCUMENT_VALUES: usize = 16_000_000;
/// Recorded answers of a model.
pub const CASSETTE: FileLimit = FileLimit::new("a recording of a model", 256 * MIB, 64 * MIB);
/// A page that a report is put into.
pub const PAGE: FileLimit = FileLimit::new("a page", 64 * MIB, u64::MAX);
/// A document of a run directory.
pub const RUN_DOCUMENT: FileLimit = FileLimit::new("a document of a run directory", 64 * MIB, u64::MAX);
/// A file of records in a run directory.
pub const RUN_RECORDS: FileLimit = FileLimit::new("the records of a run directory", 2 * GIB, 256 * MIB);
/// A blob of a trace.
pub const BLOB: FileLimit = FileLimit::new("a blob", GIB, u64::MAX);

/// The most parts of a packed file: files in a zip archive, members of gzip, frames of zstd. One without content takes a few
/// bytes, and as long as any other to open.
pub const PACKED_PARTS: usize = 100_000;
/// The most bytes that are read to open a zip archive: its directory of [`PACKED_PARTS`] files with long names.
pub const ZIP_DIRECTORY: u64 = 16 * MIB;

/// The most records of one file in a run directory.
pub const MOST_RECORDS: usize = 2 << 20;

/// How many times its packed size a packed file may have, once it is longer than [`ALWAYS_UNPACKED`].
const MOST_UNPACKED: u64 = 100;

/// Bytes up to which a packed file may have any size.
const ALWAYS_UNPACKED: u64 = 64 * MIB;

/// The metadata of a regular file, for a library that opens it by its path; symbolic links are followed.
///
/// # Errors
/// If there is none, or it is not a regular file.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    let found = path.metadata()?;
    regular(&found)?;
    Ok(found)
}

/// Opens a regular file for reading; symbolic links are followed.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked first, because opening a device can have an effect.
    metadata(path)?;
    let mut options = File::options();
    options.read(true).custom_flags(flags(OFlags::empty()));
    let file = options.open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// The first bytes of a file that tell text from other content.
const TEXT_HEAD: usize = 4096;

/// Opens a file of text to append to it; creates it if there is none. The last name of the path may not be a symbolic link.
///
/// # Errors
/// If it cannot be opened, is not a regular file, or begins with bytes that are not text.
pub fn open_text_to_append(path: &Path) -> io::Result<File> {
    // Asked first, because opening a device can have an effect.
    if let Ok(there) = path.symlink_metadata() {
        regular(&there)?;
    }
    let mut options = File::options();
    let options = options.create(true).append(true).read(true);
    let file = options.custom_flags(flags(OFlags::NOFOLLOW)).open(path)?;
    regular(&file.metadata()?)?;
    let mut head = Vec::new();
    (&file).take(TEXT_HEAD as u64).read_to_end(&mut head)?;
    if is_text(&head) { Ok(file) } else { Err(refused("has content that is not text")) }
}

/// Whether these first bytes of a file are text: UTF-8 without control characters but those of a terminal. A full disk may
/// have cut its end, and a power cut may have left zeros there.
fn is_text(head: &[u8]) -> bool {
    let end = head.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let (head, zeros) = head.split_at(end);
    if !zeros.is_empty() && !head.contains(&b'\n') {
        return false;
    }
    let is_control = |byte: &u8| {
        let is_of_terminal = matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
        byte.is_ascii_control() && !is_of_terminal
    };
    let is_utf_8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    is_utf_8 && !head.iter().any(is_control)
}

/// Opens a regular file below a directory for reading. `inside` is relative; no component of it may be a symbolic link.
///
/// # Errors
/// If it cannot be opened, is not a regular file, or leaves `dir`.
pub fn open_inside(dir: &Path, inside: &Path) -> io::Result<File> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let mut options = File::options();
    let directory = flags(OFlags::DIRECTORY);
    let mut at = options.read(true).custom_flags(directory).open(dir)?;
    let mut components = inside.components().peekable();
    if components.peek().is_none() {
        return Err(refused("is a directory, not a regular file"));
    }
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(refused("is not inside its directory"));
        };
        let is_last = components.peek().is_none();
        let kind = if is_last {
            // A device has no effect before it is read or written, and a FIFO is not waited for.
            OFlags::NONBLOCK | OFlags::NOCTTY
        } else {
            OFlags::DIRECTORY
        };
        let options = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | kind;
        let opened = openat(&at, name, options, Mode::empty());
        at = File::from(opened.map_err(|error| match error {
            rustix::io::Errno::LOOP => refused("is a symbolic link; one is not followed here"),
            rustix::io::Errno::NOTDIR => refused("is not inside its directory, or leads over a symbolic link"),
            error => error.into(),
        })?);
    }
    regular(&at.metadata()?)?;
    Ok(at)
}

fn flags(more: OFlags) -> i32 {
    (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits() as i32
}

fn regular(file: &Metadata) -> io::Result<()> {
    if file.is_file() { Ok(()) } else { Err(refused(format!("is {}, not a regular file", kind(file.file_type())))) }
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "a symbolic link"
    }
}

/// Whether a text of JSON has more than `most` values: each but the first follows one of these signs.
pub fn has_more_values(json: &[u8], most: usize) -> bool {
    if json.len() < most {
        return false;
    }
    let (mut values, mut is_in_string, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_string,
            b'"' => is_in_string = !is_in_string,
            b',' | b':' | b'[' | b'{' if !is_in_string => values += 1,
            _ => {}
        }
    }
    values > most
}

/// The error of a packed file with more than [`PACKED_PARTS`] parts, which are called `parts`.
pub fn too_many_parts(parts: &str) -> io::Error {
    let message = format!("has more than {PACKED_PARTS} {parts}, the limit for a packed file");
    io::Error::new(ErrorKind::FileTooLarge, message)
}

fn refused(message: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message.into())
}

fn words(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes / MIB) }
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`], and if it is longer than the limit.
pub fn read(path: &Path, limit: FileLimit) -> io::Result<Vec<u8>> {
    read_file(open(path)?, limit)
}

/// The bytes of an open file. One that is too long is refused before it is read: of a sparse file, any length takes no space.
///
/// # Errors
/// If it cannot be read, or exceeds a limit.
pub fn read_file(file: File, limit: FileLimit) -> io::Result<Vec<u8>> {
    check_length(&file, limit)?;
    read_all(file, limit)
}

/// Checks the length of a file against the limit, without reading it.
///
/// # Errors
/// If it is longer.
pub fn check_length(file: &File, limit: FileLimit) -> io::Result<()> {
    if file.metadata()?.len() > limit.bytes { Err(limit.too_long()) } else { Ok(()) }
}

/// The text of a regular file.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path, limit: FileLimit) -> io::Result<String> {
    text(read(path, limit)?)
}

/// The bytes as text.
///
/// # Errors
/// If they are not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "is not UTF-8 text"))
}

/// The content of a source, up to the limits; packed content is read by [`read_unpacked`].
///
/// # Errors
/// If it cannot be read, or exceeds a limit.
pub fn read_all(source: impl Read, limit: FileLimit) -> io::Result<Vec<u8>> {
    read_within(source, limit, limit.bytes, || limit.too_long())
}

/// As [`read_all`], of content that is unpacked from `packed` bytes while it is read.
///
/// # Errors
/// As [`read_all`], and if it is far longer than packed content is.
pub fn read_unpacked(source: impl Read, packed: u64, limit: FileLimit) -> io::Result<Vec<u8>> {
    let most = packed.saturating_mul(MOST_UNPACKED).max(ALWAYS_UNPACKED);
    let bytes = limit.bytes.min(most);
    read_within(source, limit, bytes, || {
        if bytes < limit.bytes {
            refused(format!("unpacks to more than {MOST_UNPACKED} times its size"))
        } else {
            limit.too_long()
        }
    })
}

fn read_within(
    mut source: impl Read,
    limit: FileLimit,
    most: u64,
    too_long: impl Fn() -> io::Error,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut line = 0;
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = &buffer[..count];
        if bytes.len() as u64 + count as u64 > most {
            return Err(too_long());
        }
        if limit.line < u64::MAX {
            let mut lines = piece.split(|byte| *byte == b'\n');
            line += lines.next().map_or(0, <[u8]>::len) as u64;
            if line > limit.line {
                return Err(limit.long_line());
            }
            // A line inside a piece is shorter than any limit.
            if let Some(last) = lines.next_back() {
                line = last.len() as u64;
            }
        }
        bytes.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    const SMALL: FileLimit = FileLimit::new("a test", 2 * MIB, MIB);

    #[test]
    fn a_file_that_is_too_long_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let mut file = File::options().create(true).truncate(true).write(true).read(true).open(&path).unwrap();
        file.set_len(2 * MIB + 1).unwrap();
        let said = "is longer than 2 MiB, the limit for a test";
        assert_eq!(read(&path, SMALL).unwrap_err().to_string(), said);
        let error = read_file(file.try_clone().unwrap(), SMALL).unwrap_err();
        assert_eq!(error.to_string(), said);
        assert_eq!(io::Seek::stream_position(&mut file).unwrap(), 0, "was read");
        file.set_len(MIB).unwrap();
        assert_eq!(read(&path, SMALL).unwrap().len(), MIB as usize);
    }

    #[test]
    fn a_path_that_is_not_a_regular_file_is_refused_by_its_kind_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let started = std::time::Instant::now();
        for (path, kind) in [
            (Path::new("/dev/zero"), "a character device"),
            (dir.path(), "a directory"),
            (&fifo, "a FIFO"),
            (&socket, "a socket"),
        ] {
            let error = read(path, DEFINITION).unwrap_err().to_string();
            assert_eq!(error, format!("is {kind}, not a regular file"));
        }
        let inside = open_inside(dir.path(), Path::new("fifo")).unwrap_err();
        assert!(inside.to_string().contains("FIFO"), "{inside}");
        assert!(started.elapsed().as_secs() < 60);
    }

    #[test]
    fn text_is_appended_to_text_and_to_nothing_else() {
        use std::io::Write;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let cut = "ä".repeat(TEXT_HEAD);
        for (name, content) in [
            ("new", None),
            ("empty", Some("")),
            ("log", Some(" WARN \u{1b}[1mone\u{1b}[0m\t\r\n")),
            ("cut", Some(&cut[..])),
            ("odd", Some(&format!("x{cut}")[..])),
        ] {
            if let Some(content) = content {
                std::fs::write(at(name), content).unwrap();
            }
            let mut file = open_text_to_append(&at(name)).unwrap();
            file.write_all(b"two\n").unwrap();
            let text = std::fs::read_to_string(at(name)).unwrap();
            assert_eq!(text, format!("{}two\n", content.unwrap_or_default()));
        }
        // What a full disk or a power cut leaves of a log.
        for content in [&b"half \xc3"[..], b" WARN x\n\0\0\0", b" WARN x\nhalf\0"] {
            std::fs::write(at("torn"), content).unwrap();
            open_text_to_append(&at("torn")).unwrap().write_all(b"two\n").unwrap();
            assert_eq!(std::fs::read(at("torn")).unwrap(), [content, b"two\n"].concat());
        }
        for content in [
            &b"SQLite format 3\0"[..],
            b"\x7fELF",
            b"\x1f\x8b\x08",
            b"caf\xe9 au lait",
            b"a\x01",
            b"\0\0",
            b"text\n\0text\n",
        ] {
            std::fs::write(at("other"), content).unwrap();
            let error = open_text_to_append(&at("other")).unwrap_err().to_string();
            assert_eq!(error, "has content that is not text");
            assert_eq!(std::fs::read(at("other")).unwrap(), content);
        }
        symlink(at("log"), at("link")).unwrap();
        symlink(at("missing"), at("dangling")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), mode).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for (name, kind) in [
            ("", "a directory"),
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("fifo", "a FIFO"),
            ("socket", "a socket"),
        ] {
            let error = open_text_to_append(&at(name)).unwrap_err().to_string();
            assert_eq!(error, format!("is {kind}, not a regular file"));
        }
        assert!(!at("missing").exists());
    }

    #[test]
    fn a_file_inside_a_directory_is_reached_over_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        std::fs::create_dir_all(inside.join("blobs")).unwrap();
        std::fs::write(inside.join("blobs/a"), "a").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("../secret", inside.join("link")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        let opened = |path: &str| open_inside(&inside, Path::new(path));
        let found = read_all(opened("blobs/a").unwrap(), BLOB).unwrap();
        assert_eq!(found, b"a");
        for bad in ["link", "up/secret", "../secret", "/etc/passwd", "blobs", "", "."] {
            opened(bad).unwrap_err();
        }
        // The user's own path may be a link.
        assert_eq!(read(&inside.join("link"), BLOB).unwrap(), b"s");
    }

    #[test]
    fn content_beyond_a_limit_is_refused_without_being_held() {
        let longest = "x".repeat(MIB as usize) + "\n";
        assert!(read_all(longest.as_bytes(), SMALL).is_ok());
        let error = read_all(io::repeat(b'\n'), SMALL).unwrap_err().to_string();
        assert_eq!(error, "is longer than 2 MiB, the limit for a test");
        let error = read_all(io::repeat(b'x'), SMALL).unwrap_err().to_string();
        assert_eq!(error, "has a line longer than the 1 MiB that one of a test may have");
        let error = read_unpacked(io::repeat(b'\n'), 1000, RECORDING).unwrap_err();
        assert_eq!(error.to_string(), "unpacks to more than 100 times its size");
    }
}
