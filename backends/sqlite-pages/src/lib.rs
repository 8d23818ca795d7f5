//! A checksum in every page of a database, in the file and in SQLite's log: a VFS over the one of the system.
//!
//! SQLite leaves the last `RESERVED` bytes of each page free; other programs ignore them, and copy them with the page.
//! A page gets its checksum before it is written to either file, and is compared with it whenever it is read from one.
//! In the log, SQLite computes a frame's checksum before it writes the page, so this VFS computes that again. It writes
//! the frames of a transaction together: SQLite shows none of them to another connection before the last one is written.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::{Connection, OpenFlags, ffi};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bytes at the end of a page: a CRC-32 of the page's number and its other bytes, and [`MARK`].
const RESERVED: usize = 8;

/// Ends every page that has a checksum.
const MARK: [u8; 4] = *b"ctxs";

/// Bytes of a page that SQLite uses.
const USED: usize = PAGE - RESERVED;

/// Bytes before the first frame of a log, and before the page of each frame.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const FRAME: usize = FRAME_HEADER + PAGE;

/// The most damaged pages that are logged. A check of the store lists all.
const LOGGED: usize = 1000;

/// What was logged of damaged pages: SQLite reads such a page again for each statement that needs it.
static LOGGED_PAGES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether a text about a damaged page is to be logged.
fn is_new(text: &str) -> bool {
    let mut known = LOGGED_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    known.len() < LOGGED && known.insert(text.to_owned())
}

/// Bytes of frames that are written together at most: the VFS of the system takes less than 128 KiB.
const GATHERED_MAX: usize = 31 * FRAME;

/// The page that SQLite never uses: it locks bytes of it.
const LOCK_PAGE: u64 = (1 << 30) / PAGE as u64 + 1;

/// The name of the VFS.
const NAME: &CStr = c"ctxbench-pages";

fn checksum(page: &[u8], number: u32) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&number.to_le_bytes());
    sum.update(&page[..USED]);
    sum.finalize().to_le_bytes()
}

/// Writes the checksum of a page into it.
fn stamp(page: &mut [u8], number: u32) {
    let sum = checksum(page, number);
    page[USED..USED + 4].copy_from_slice(&sum);
    page[USED + 4..PAGE].copy_from_slice(&MARK);
}

/// Whether a page is what was written as page `number`, from 1 on.
fn is_whole(page: &[u8], number: u32) -> bool {
    page.len() == PAGE && page[USED + 4..] == MARK && page[USED..USED + 4] == checksum(page, number)
}

/// Opens a connection whose pages have checksums, and whose new database will have them.
///
/// # Errors
/// Those of SQLite.
pub fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags_and_vfs(path, flags, register()?)?;
    reserve(&connection)?;
    Ok(connection)
}

/// Makes SQLite leave room for the checksums in a database that it creates.
#[expect(unsafe_code, reason = "rusqlite has no call for it")]
fn reserve(connection: &Connection) -> rusqlite::Result<()> {
    let mut bytes = RESERVED as c_int;
    let place = (&raw mut bytes).cast::<c_void>();
    // SAFETY: the handle is open, the name ends with 0, and `place` is the int that this operation reads and writes.
    let result = unsafe {
        let main = c"main".as_ptr();
        let operation = ffi::SQLITE_FCNTL_RESERVE_BYTES;
        ffi::sqlite3_file_control(connection.handle(), main, operation, place)
    };
    match result {
        ffi::SQLITE_OK => Ok(()),
        failed => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(failed), None)),
    }
}

/// Has the kernel read the pages of a long row together when a connection jumps to the page with its start. `file` is the file
/// of its database, and must be open elsewhere for as long as SQLite uses it: a `close` of it ends SQLite's locks.
///
/// # Errors
/// If the connection is not one of this VFS.
pub fn read_rows_together(connection: &Connection, file: &Arc<File>) -> io::Result<()> {
    with_file(connection, |own| {
        own.rows = Some(RowReadAhead { file: Arc::clone(file), asked: 0..0, next: 0 });
        Ok(())
    })
}

/// Bytes before a page that are read together with it. A row of 32 KiB takes eight overflow pages, and SQLite appends them to the
/// file before the page that refers to them; a page of its pointer map may lie between them.
const BEFORE: u64 = 9 * PAGE as u64;

/// The pages that the kernel was asked for. SQLite reads the overflow pages of a row one after the other. The kernel begins to
/// read ahead only at the second of them, so SQLite waits several times; and then it reads far past the end of the row.
struct RowReadAhead {
    file: Arc<File>,
    /// The range that was asked for last.
    asked: Range<u64>,
    /// The end of the page that was read last.
    next: u64,
}

impl RowReadAhead {
    /// SQLite is about to read the page at this offset.
    fn before(&mut self, at: u64) {
        const ONE: u64 = PAGE as u64;
        // Pages in order: there, the kernel's own read-ahead is better. The overflow pages of a leaf's next row follow the leaf.
        let is_next = (self.next..=self.next + ONE).contains(&at);
        self.next = at + ONE;
        if is_next || self.asked.contains(&at) {
            return;
        }
        let start = at.saturating_sub(BEFORE);
        self.asked = start..at + ONE;
        #[cfg(test)]
        tests::EVENTS.with_borrow_mut(|events| events.push((false, self.asked.clone())));
        // Only a hint: without it, the read of the page waits.
        let _ = fadvise(&self.file, start, NonZeroU64::new(at + ONE - start), Advice::WillNeed);
    }
}

/// Does `work` with the file of a connection's database.
#[expect(unsafe_code, reason = "rusqlite has no call for it")]
fn with_file<T>(connection: &Connection, work: impl FnOnce(&mut PageFile) -> io::Result<T>) -> io::Result<T> {
    let mut file: *mut PageFile = std::ptr::null_mut();
    // SAFETY: the handle is open, the name ends with 0, and this operation writes a pointer to the file. It lives as long
    // as the connection, which `work` cannot use meanwhile; whether it is one of this VFS is asked before it is used.
    let file = unsafe {
        let (main, operation) = (c"main".as_ptr(), ffi::SQLITE_FCNTL_FILE_POINTER);
        let place = (&raw mut file).cast::<c_void>();
        ffi::sqlite3_file_control(connection.handle(), main, operation, place);
        if !file.is_null() && is_ours((*file).base.pMethods) { &mut *file } else { return Err(unreadable_file()) }
    };
    work(file)
}

fn unreadable_file() -> io::Error {
    io::Error::other("the file cannot be read")
}

/// The header of a file, before any checksum has confirmed it.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// It is one of a database.
    pub is_database: bool,
    /// `PRAGMA application_id`.
    pub application_id: i32,
    /// `PRAGMA user_version`.
    pub user_version: i32,
    /// Pages have room for a checksum.
    pub has_checksums: bool,
}

/// The header of a connection's database, as it is in the file; `None` where that is empty.
///
/// # Errors
/// If the file cannot be read.
pub fn header(connection: &Connection) -> io::Result<Option<Header>> {
    with_file(connection, |file| {
        let mut header = [0; 100];
        match (file.length(), file.read_exact(&mut header, 0)) {
            // To SQLite one byte is nothing, too.
            (Some(0 | 1), _) => return Ok(None),
            (_, ffi::SQLITE_OK | ffi::SQLITE_IOERR_SHORT_READ) => {}
            _ => return Err(unreadable_file()),
        }
        Ok(Some(Header::of(&header)))
    })
}

impl Header {
    fn of(header: &[u8]) -> Self {
        let number = |at: usize| {
            let four = header.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map_or(0, i32::from_be_bytes)
        };
        Self {
            is_database: header.starts_with(b"SQLite format 3\0"),
            application_id: number(68),
            user_version: number(60),
            has_checksums: header[16..18] == (PAGE as u16).to_be_bytes() && header[20] == RESERVED as u8,
        }
    }
}

/// The pages in a connection's file that are not as they were written. With `may_be_in_log`, pages of zeros do not
/// count as damage: they were only written to the log.
///
/// # Errors
/// If the file cannot be read.
pub fn damaged(connection: &Connection, may_be_in_log: bool) -> io::Result<Vec<u64>> {
    with_file(connection, |file| {
        let length = file.length().ok_or_else(unreadable_file)?;
        let mut found = Vec::new();
        let mut page = vec![0; PAGE];
        for number in 1..=length.div_ceil(PAGE as u64) {
            let mut is_good = number == LOCK_PAGE;
            for attempt in 0..3 {
                if is_good {
                    break;
                }
                if attempt > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    // A mount may have given free pages at the end back to the disk.
                    let length = file.length().ok_or_else(unreadable_file)?;
                    if number > length.div_ceil(PAGE as u64) {
                        return Ok(found);
                    }
                }
                // A mount may be writing it: then it is another one the next time.
                let read = file.read_exact(&mut page, ((number - 1) * PAGE as u64) as i64);
                is_good = read == ffi::SQLITE_OK
                    && (is_whole(&page, number as u32) || may_be_in_log && page.iter().all(|byte| *byte == 0));
            }
            found.extend((!is_good).then_some(number));
        }
        Ok(found)
    })
}

/// The pages of a database that its log has: the next connection reads them there.
///
/// # Errors
/// If the log cannot be read.
pub fn in_log(log: File) -> io::Result<HashSet<u64>> {
    let mut found = HashSet::new();
    let mut log = BufReader::with_capacity(16 * FRAME, log);
    let mut header = [0; LOG_HEADER];
    if !is_filled(&mut log, &mut header)? {
        return Ok(found);
    }
    let number = |bytes: &[u8], at: usize| {
        let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map_or(0, u32::from_be_bytes)
    };
    let two = |bytes: &[u8], at: usize| [number(bytes, at), number(bytes, at + 4)];
    let is_big = header[3] & 1 == 1;
    let mut sum = frame_checksum([0; 2], &header[..24], is_big);
    if sum != two(&header, 24) {
        return Ok(found);
    }
    let (mut frame, mut uncommitted) = (vec![0; FRAME], Vec::new());
    while is_filled(&mut log, &mut frame)? {
        let (head, page) = frame.split_at(FRAME_HEADER);
        sum = frame_checksum(sum, &head[..8], is_big);
        sum = frame_checksum(sum, page, is_big);
        // As SQLite does it: the log ends here.
        if head[8..16] != header[16..24] || sum != two(head, 16) {
            break;
        }
        uncommitted.push((number(head, 0), is_whole(page, number(head, 0))));
        // The last frame of a transaction has the size of the database.
        if number(head, 4) > 0 {
            for (page, is_whole) in uncommitted.drain(..) {
                if is_whole {
                    found.insert(u64::from(page))
                } else {
                    found.remove(&u64::from(page))
                };
            }
        }
    }
    Ok(found)
}

/// Fills `out`; false where the file ends before.
fn is_filled(file: &mut impl Read, out: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(out) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Gives the pages of a database at `path` checksums if none of them has one, and its header `is_ours`: a program without
/// this VFS has made it, by `VACUUM`. No connection may have it open. The first page gets its checksum last, so a call that
/// was interrupted is completed by the next one.
///
/// # Errors
/// If the file cannot be read or written.
pub fn stamp_copy(path: &Path, is_ours: impl FnOnce(Header) -> bool) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let pages = file.metadata()?.len() / PAGE as u64;
    let mut page = vec![0; PAGE];
    if pages == 0 {
        return Ok(());
    }
    file.read_exact_at(&mut page, 0)?;
    if !is_ours(Header::of(&page)) {
        return Ok(());
    }
    let is_bare = |page: &[u8]| page[USED..] == [0; RESERVED];
    if !is_bare(&page) {
        return Ok(());
    }
    for number in 2..=pages {
        file.read_exact_at(&mut page, (number - 1) * PAGE as u64)?;
        if !is_bare(&page) && !is_whole(&page, number as u32) {
            return Ok(());
        }
    }
    for number in (1..=pages).rev() {
        let at = (number - 1) * PAGE as u64;
        file.read_exact_at(&mut page, at)?;
        stamp(&mut page, number as u32);
        if number == 1 {
            file.sync_all()?;
        }
        file.write_all_at(&page, at)?;
    }
    file.sync_all()
}

/// The name of the VFS, which exists from the first call on.
#[expect(unsafe_code, reason = "SQLite takes a VFS as a struct of pointers")]
fn register() -> rusqlite::Result<&'static CStr> {
    static REGISTERED: OnceLock<c_int> = OnceLock::new();
    let registered = REGISTERED.get_or_init(|| {
        // SAFETY: SQLite's own VFS lives as long as the process, and is only read. So does the copy, which is leaked.
        // The copied functions use no other field than the length of paths, which is the same; `xOpen` passes the
        // original.
        unsafe {
            let system = ffi::sqlite3_vfs_find(std::ptr::null());
            let Some(of_system) = system.as_ref() else {
                return ffi::SQLITE_ERROR;
            };
            let mut vfs = Box::new(*of_system);
            vfs.szOsFile += size_of::<PageFile>() as c_int;
            vfs.pNext = std::ptr::null_mut();
            vfs.zName = NAME.as_ptr();
            vfs.pAppData = system.cast();
            vfs.xOpen = Some(open);
            ffi::sqlite3_vfs_register(Box::into_raw(vfs), 0)
        }
    });
    match *registered {
        ffi::SQLITE_OK => Ok(NAME),
        failed => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(failed), None)),
    }
}

/// Which file it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Database,
    Log,
}

/// A file that SQLite has opened. The file of the system's VFS follows it in memory.
#[repr(C)]
struct PageFile {
    /// SQLite looks for its functions here.
    base: ffi::sqlite3_file,
    kind: Kind,
    /// The path, which lives as long as the file.
    name: *const c_char,
    /// The offset in the log of a frame header that came last, and waits for its page.
    header_at: i64,
    header: [u8; FRAME_HEADER],
    /// The offset in the log of the frame that was read last as a whole: its header may follow alone.
    read_at: i64,
    /// The header of SQLite's index of the log, for as long as it is mapped; null otherwise.
    index: *const u32,
    /// Of a database whose long rows are read together.
    rows: Option<RowReadAhead>,
    /// Room for a frame.
    buffer: Vec<u8>,
    /// The frame of the log that was written or gathered last; `None` where that has to be read.
    last: Option<LastFrame>,
    /// Frames of the log that wait to be written together, and the offset of the first. Every other use of the file writes
    /// them before.
    gathered: Vec<u8>,
    gathered_at: i64,
    /// The offset of the first frame that could not be written, and why: SQLite believes that it was. Until SQLite writes
    /// a frame there again, after the end of the transaction, nothing from there on can be read or written.
    lost: Option<(i64, c_int)>,
}

/// What the next frame of a log continues.
#[derive(Clone, Copy)]
struct LastFrame {
    /// The offset of its end.
    end: i64,
    sum: [u32; 2],
    is_big: bool,
}

#[expect(unsafe_code, reason = "the interface of SQLite's files")]
mod file {
    use super::{
        CStr, Errno, FRAME, FRAME_HEADER, GATHERED_MAX, Kind, LOG_HEADER, LastFrame, PAGE, PageFile, c_char, c_int,
        c_void, ffi, frame_checksum, is_new, is_whole, stamp,
    };

    /// The functions of a file of the system's VFS.
    type Methods = &'static ffi::sqlite3_io_methods;

    impl PageFile {
        /// The file of the system's VFS.
        fn system(&mut self) -> (*mut ffi::sqlite3_file, Option<Methods>) {
            // SAFETY: `szOsFile` leaves room for it behind this one, and `open` has filled it. Its methods are static.
            unsafe {
                let file = (&raw mut *self).add(1).cast::<ffi::sqlite3_file>();
                (file, (*file).pMethods.as_ref())
            }
        }

        /// Bytes of the file.
        pub(super) fn length(&mut self) -> Option<u64> {
            let (file, methods) = self.system();
            let size = methods.and_then(|methods| methods.xFileSize)?;
            let mut length = 0;
            // SAFETY: the file is open, and the call writes the length.
            let result = unsafe { size(file, &raw mut length) };
            (result == ffi::SQLITE_OK).then_some(length as u64)
        }

        pub(super) fn read_exact(&mut self, out: &mut [u8], at: i64) -> c_int {
            let (file, methods) = self.system();
            let Some(read) = methods.and_then(|methods| methods.xRead) else {
                return ffi::SQLITE_IOERR_READ;
            };
            // SAFETY: the file is open, and `out` is as long as the call says.
            unsafe { read(file, out.as_mut_ptr().cast(), out.len() as c_int, at) }
        }

        fn write_all(&mut self, bytes: &[u8], at: i64) -> c_int {
            #[cfg(test)]
            {
                super::tests::WRITES.set(super::tests::WRITES.get() + 1);
                if at + bytes.len() as i64 > super::tests::ROOM.get() {
                    return ffi::SQLITE_FULL;
                }
            }
            let (file, methods) = self.system();
            let Some(write) = methods.and_then(|methods| methods.xWrite) else {
                return ffi::SQLITE_IOERR_WRITE;
            };
            // SAFETY: the file is open, and `bytes` are as long as the call says.
            let result = unsafe { write(file, bytes.as_ptr().cast(), bytes.len() as c_int, at) };
            if result != ffi::SQLITE_IOERR_WRITE {
                return result;
            }
            // SQLite tells a full disk from other failures, and takes a quota that is used up, or `ulimit -f`, for one of
            // those.
            match Errno::from_raw_os_error(self.last_errno()) {
                Errno::DQUOT | Errno::FBIG => ffi::SQLITE_FULL,
                _ => result,
            }
        }

        /// The error number of the last system call that failed.
        fn last_errno(&mut self) -> c_int {
            let (file, methods) = self.system();
            let mut number: c_int = 0;
            if let Some(control) = methods.and_then(|methods| methods.xFileControl) {
                let place = (&raw mut number).cast::<c_void>();
                // SAFETY: the file is open, and `place` is the int that this operation writes.
                unsafe { control(file, ffi::SQLITE_FCNTL_LAST_ERRNO, place) };
            }
            number
        }

        fn damaged(&self, number: u32, why: &str) -> c_int {
            let name = if self.name.is_null() {
                "a database".into()
            } else {
                // SAFETY: SQLite's name of the file ends with 0 and lives as long as the file.
                unsafe { CStr::from_ptr(self.name) }.to_string_lossy()
            };
            let text = format!("{name}: page {number} {why}");
            if is_new(&text) {
                tracing::error!("{text}");
            }
            ffi::SQLITE_IOERR_DATA
        }

        pub(super) fn read(&mut self, out: &mut [u8], at: i64) -> c_int {
            match self.kind {
                Kind::Database => self.read_database(out, at),
                Kind::Log => self.read_log(out, at),
            }
        }

        fn read_database(&mut self, out: &mut [u8], at: i64) -> c_int {
            if out.len() == PAGE
                && let Some(rows) = &mut self.rows
            {
                rows.before(at as u64);
            }
            #[cfg(test)]
            super::tests::EVENTS.with_borrow_mut(|events| events.push((true, at as u64..at as u64 + out.len() as u64)));
            let result = self.read_exact(out, at);
            if out.len() < 512 {
                // A part of the header. SQLite reads the whole page before it relies on any of it.
                return result;
            }
            let number = (at / PAGE as i64 + 1) as u32;
            if result == ffi::SQLITE_IOERR_SHORT_READ {
                return match self.committed() {
                    // The open transaction has added it, and moved what was in it: to SQLite it is zeros.
                    Some(pages) if number > pages => result,
                    _ => self.damaged(number, "is missing: the file is too short"),
                };
            }
            if result != ffi::SQLITE_OK {
                return result;
            }
            if at % PAGE as i64 == 0 && is_whole(out, number) {
                ffi::SQLITE_OK
            } else {
                self.damaged(number, "is damaged: wrong checksum")
            }
        }

        /// Pages of the database with its last commit; `None` if the file does not say.
        fn committed(&mut self) -> Option<u32> {
            let in_log = if self.index.is_null() {
                0
            } else {
                // SAFETY: SQLite has mapped the index and not ended that; its field `nPage` follows five of 4 bytes.
                unsafe { self.index.add(5).read_volatile() }
            };
            if in_log > 0 {
                return Some(in_log);
            }
            // The log has no commit.
            let mut header = [0; 32];
            let read = self.read_exact(&mut header, 0);
            (read == ffi::SQLITE_OK).then(|| big_endian(&header, 28))
        }

        /// Writes the frames that wait. If that fails they are lost, and so is their transaction: see [`PageFile::lost`].
        pub(super) fn flush(&mut self) -> c_int {
            if self.gathered.is_empty() {
                return ffi::SQLITE_OK;
            }
            let mut frames = std::mem::take(&mut self.gathered);
            let result = self.write_all(&frames, self.gathered_at);
            if result != ffi::SQLITE_OK {
                self.last = None;
                self.lost = Some((self.gathered_at, result));
            }
            frames.clear();
            self.gathered = frames;
            result
        }

        /// Why nothing that ends at `end` in the log can be read or written; `SQLITE_OK` if it can.
        fn lost_before(&self, end: i64) -> c_int {
            match self.lost {
                Some((from, failed)) if end > from => failed,
                _ => ffi::SQLITE_OK,
            }
        }

        /// Writes to the log after the frames that wait.
        fn write_after(&mut self, bytes: &[u8], at: i64) -> c_int {
            self.last = None;
            match self.flush() {
                ffi::SQLITE_OK => {}
                failed => return failed,
            }
            match self.lost_before(at + bytes.len() as i64) {
                ffi::SQLITE_OK => self.write_all(bytes, at),
                failed => failed,
            }
        }

        /// Leaves a frame to be written with those that follow it, up to the last of its transaction.
        fn gather(&mut self, frame: &[u8], at: i64) -> c_int {
            if self.gathered_at + self.gathered.len() as i64 != at {
                let result = self.flush();
                if result != ffi::SQLITE_OK {
                    return result;
                }
            }
            if self.gathered.is_empty() {
                self.gathered_at = at;
            }
            self.gathered.extend_from_slice(frame);
            // The last frame of a transaction has the size of the database.
            if big_endian(frame, 4) > 0 || self.gathered.len() >= GATHERED_MAX { self.flush() } else { ffi::SQLITE_OK }
        }

        /// What a frame at this offset of the log continues: the frame before it, or the log's header.
        fn before(&mut self, frame_at: i64) -> Result<LastFrame, c_int> {
            if let Some(last) = self.last.filter(|last| last.end == frame_at) {
                return Ok(last);
            }
            let must = |result| match result {
                ffi::SQLITE_OK => Ok(()),
                failed => Err(failed),
            };
            must(self.flush())?;
            let sum_at = if frame_at == LOG_HEADER as i64 { 24 } else { frame_at - FRAME as i64 + 16 };
            let (mut sum, mut magic) = ([0; 8], [0; 4]);
            must(self.read_exact(&mut sum, sum_at))?;
            must(self.read_exact(&mut magic, 0))?;
            Ok(LastFrame { end: frame_at, sum: [big_endian(&sum, 0), big_endian(&sum, 4)], is_big: magic[3] & 1 == 1 })
        }

        fn read_log(&mut self, out: &mut [u8], at: i64) -> c_int {
            for result in [self.flush(), self.lost_before(at + out.len() as i64)] {
                if result != ffi::SQLITE_OK {
                    return result;
                }
            }
            if out.len() == FRAME {
                self.read_at = at;
            }
            let frame_at = at - FRAME_HEADER as i64;
            if out.len() != PAGE || !is_frame(frame_at) {
                return self.read_exact(out, at);
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = self.read_exact(&mut buffer, frame_at);
            let number = big_endian(&buffer, 0);
            let result = match result {
                ffi::SQLITE_OK if is_whole(&buffer[FRAME_HEADER..], number) => {
                    out.copy_from_slice(&buffer[FRAME_HEADER..]);
                    ffi::SQLITE_OK
                }
                ffi::SQLITE_OK | ffi::SQLITE_IOERR_SHORT_READ => {
                    self.damaged(number, "is damaged in the log: wrong checksum")
                }
                failed => failed,
            };
            self.buffer = buffer;
            result
        }

        pub(super) fn write(&mut self, bytes: &[u8], at: i64) -> c_int {
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = match self.kind {
                Kind::Database => self.write_database(bytes, at, &mut buffer),
                Kind::Log => self.write_log(bytes, at, &mut buffer),
            };
            self.buffer = buffer;
            result
        }

        fn write_database(&mut self, bytes: &[u8], at: i64, buffer: &mut [u8]) -> c_int {
            if bytes.len() != PAGE || at % PAGE as i64 != 0 {
                return self.write_all(bytes, at);
            }
            let page = &mut buffer[..PAGE];
            page.copy_from_slice(bytes);
            stamp(page, (at / PAGE as i64 + 1) as u32);
            self.write_all(page, at)
        }

        fn write_log(&mut self, bytes: &[u8], at: i64, buffer: &mut [u8]) -> c_int {
            let waiting = std::mem::replace(&mut self.header_at, -1);
            if let Ok(header) = <[u8; FRAME_HEADER]>::try_from(bytes)
                && is_frame(at)
            {
                (self.header_at, self.header) = (at, header);
                // A header that SQLite computes again after it has read the frame comes alone.
                return if self.read_at == at { self.write_after(bytes, at) } else { ffi::SQLITE_OK };
            }
            let frame_at = at - FRAME_HEADER as i64;
            if bytes.len() != PAGE || !is_frame(frame_at) {
                return self.write_after(bytes, at);
            }
            buffer[FRAME_HEADER..].copy_from_slice(bytes);
            if waiting != frame_at {
                // The page of a frame of this transaction; it computes the headers again at its end.
                let read = match self.flush() {
                    ffi::SQLITE_OK => self.read_exact(&mut buffer[..FRAME_HEADER], frame_at),
                    failed => failed,
                };
                if read != ffi::SQLITE_OK {
                    return read;
                }
                let number = big_endian(buffer, 0);
                stamp(&mut buffer[FRAME_HEADER..], number);
                return self.write_after(&buffer[FRAME_HEADER..], at);
            }
            // A transaction that began after the one with the lost frames writes over them.
            self.lost = self.lost.filter(|(from, _)| frame_at > *from);
            if let Some((_, failed)) = self.lost {
                return failed;
            }
            buffer[..FRAME_HEADER].copy_from_slice(&self.header);
            let number = big_endian(buffer, 0);
            stamp(&mut buffer[FRAME_HEADER..], number);
            // A header without a salt is computed again at the end of the transaction.
            if self.header[8..] == [0; FRAME_HEADER - 8] {
                return self.write_after(buffer, frame_at);
            }
            let LastFrame { sum, is_big, .. } = match self.before(frame_at) {
                Ok(before) => before,
                Err(failed) => return failed,
            };
            let sum = frame_checksum(sum, &buffer[..8], is_big);
            let sum = frame_checksum(sum, &buffer[FRAME_HEADER..], is_big);
            buffer[16..20].copy_from_slice(&sum[0].to_be_bytes());
            buffer[20..24].copy_from_slice(&sum[1].to_be_bytes());
            let end = frame_at + FRAME as i64;
            self.last = Some(LastFrame { end, sum, is_big });
            self.gather(buffer, frame_at)
        }
    }

    /// Whether these are the functions of a file of this VFS.
    pub(super) fn is_ours(methods: *const ffi::sqlite3_io_methods) -> bool {
        std::ptr::eq(methods, &raw const METHODS)
    }

    /// Whether a frame of the log can be at this offset.
    fn is_frame(at: i64) -> bool {
        at >= LOG_HEADER as i64 && (at - LOG_HEADER as i64) % FRAME as i64 == 0
    }

    fn big_endian(bytes: &[u8], at: usize) -> u32 {
        let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map_or(0, u32::from_be_bytes)
    }

    /// Opens a file: one with pages as a [`PageFile`], any other as the system does.
    pub(super) unsafe extern "C" fn open(
        vfs: *mut ffi::sqlite3_vfs,
        name: *const c_char,
        file: *mut ffi::sqlite3_file,
        flags: c_int,
        out_flags: *mut c_int,
    ) -> c_int {
        let kind = match flags {
            _ if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 => Some(Kind::Database),
            _ if flags & ffi::SQLITE_OPEN_WAL != 0 => Some(Kind::Log),
            _ => None,
        };
        // SAFETY: SQLite passes the VFS of this module, whose data is the system's, and memory for a file of
        // `szOsFile` bytes, aligned to 8: the struct is written without a reference to it.
        unsafe {
            let system = (*vfs).pAppData.cast::<ffi::sqlite3_vfs>();
            let Some(open) = (*system).xOpen else {
                return ffi::SQLITE_CANTOPEN;
            };
            let Some(kind) = kind else {
                return open(system, name, file, flags, out_flags);
            };
            let ours = file.cast::<PageFile>();
            let theirs = ours.add(1).cast::<ffi::sqlite3_file>();
            (*file).pMethods = std::ptr::null();
            (*theirs).pMethods = std::ptr::null();
            let result = open(system, name, theirs, flags, out_flags);
            if (*theirs).pMethods.is_null() {
                return result;
            }
            ours.write(PageFile {
                base: ffi::sqlite3_file { pMethods: &raw const METHODS },
                kind,
                name,
                header_at: -1,
                header: [0; FRAME_HEADER],
                read_at: -1,
                index: std::ptr::null(),
                rows: None,
                buffer: vec![0; FRAME],
                last: None,
                gathered: Vec::new(),
                gathered_at: 0,
                lost: None,
            });
            result
        }
    }

    unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
        // SAFETY: SQLite passes a file that `open` has written, and uses it no more.
        unsafe {
            let ours = file.cast::<PageFile>();
            let (theirs, methods) = (*ours).system();
            let close = methods.and_then(|methods| methods.xClose);
            let result = close.map_or(ffi::SQLITE_OK, |close| close(theirs));
            ours.drop_in_place();
            result
        }
    }

    unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, out: *mut c_void, length: c_int, at: i64) -> c_int {
        // SAFETY: SQLite passes a file that `open` has written, used by one thread at a time, and room for `length`
        // bytes, which the system's VFS fills or clears.
        unsafe {
            std::ptr::write_bytes(out.cast::<u8>(), 0, length as usize);
            let out = std::slice::from_raw_parts_mut(out.cast::<u8>(), length as usize);
            (*file.cast::<PageFile>()).read(out, at)
        }
    }

    unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, length: c_int, at: i64) -> c_int {
        // SAFETY: SQLite passes a file that `open` has written, used by one thread at a time, and `length` bytes.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize);
            (*file.cast::<PageFile>()).write(bytes, at)
        }
    }

    /// A function that the system's VFS has, called for its file; where it says `after_frames`, after the frames that wait.
    macro_rules! forwarded {
        (after_frames $name:ident, $method:ident, ($($argument:ident: $type:ty),*), $absent:expr) => {
            unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
                forwarded!(now, $method, ($($argument: $type),*), $absent);
                // SAFETY: SQLite passes a file that `open` has written, and arguments as the method wants them.
                unsafe {
                    match (*file.cast::<PageFile>()).flush() {
                        ffi::SQLITE_OK => now(file $(, $argument)*),
                        failed => failed,
                    }
                }
            }
        };
        ($name:ident, $method:ident, ($($argument:ident: $type:ty),*), $absent:expr) => {
            unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
                // SAFETY: SQLite passes a file that `open` has written, and arguments as the method wants them.
                unsafe {
                    let (theirs, methods) = (*file.cast::<PageFile>()).system();
                    let method = methods.and_then(|methods| methods.$method);
                    method.map_or($absent, |method| method(theirs $(, $argument)*))
                }
            }
        };
    }

    forwarded!(after_frames truncate, xTruncate, (size: i64), ffi::SQLITE_IOERR);
    forwarded!(after_frames sync, xSync, (flags: c_int), ffi::SQLITE_IOERR);
    forwarded!(after_frames file_size, xFileSize, (size: *mut i64), ffi::SQLITE_IOERR);
    forwarded!(lock, xLock, (level: c_int), ffi::SQLITE_IOERR);
    forwarded!(unlock, xUnlock, (level: c_int), ffi::SQLITE_IOERR);
    forwarded!(is_reserved, xCheckReservedLock, (out: *mut c_int), ffi::SQLITE_IOERR);
    forwarded!(control, xFileControl, (operation: c_int, argument: *mut c_void), ffi::SQLITE_NOTFOUND);
    forwarded!(sector_size, xSectorSize, (), PAGE as c_int);
    forwarded!(characteristics, xDeviceCharacteristics, (), 0);
    forwarded!(lock_memory, xShmLock, (first: c_int, count: c_int, flags: c_int), ffi::SQLITE_IOERR);

    /// Makes the file system allocate every block behind `bytes` of mapped memory. SQLite writes one byte of each 4 KiB of
    /// the file; where blocks are smaller, a store to the others would end this process on a full disk, by `SIGBUS`.
    ///
    /// # Safety
    /// The memory is mapped, from `start` back to the beginning of its page, and may be written.
    pub(super) unsafe fn allocate(start: *mut c_void, bytes: usize, populate: Populate) -> c_int {
        let before = start.addr() % rustix::param::page_size();
        // SAFETY: the memory is mapped, and may be written.
        let mut allocated = unsafe { populate(start.byte_sub(before), bytes + before) };
        if let Err(Errno::INVAL | Errno::NOSYS) = allocated {
            // SAFETY: as above.
            allocated = unsafe { populate_pages(start.byte_sub(before), bytes + before) };
        }
        match allocated {
            Ok(()) => ffi::SQLITE_OK,
            // A store would raise `SIGBUS`.
            Err(Errno::FAULT) => ffi::SQLITE_FULL,
            Err(error @ (Errno::INVAL | Errno::NOSYS)) => {
                tracing::warn!(
                    %error,
                    "this kernel cannot allocate SQLite's shared memory: if the disk is full and its blocks are smaller than 4 KiB, SIGBUS ends this process"
                );
                ffi::SQLITE_OK
            }
            Err(error) => {
                tracing::error!(%error, "allocating SQLite's shared memory");
                ffi::SQLITE_IOERR_SHMMAP
            }
        }
    }

    /// Makes the kernel allocate what lies behind mapped memory; the memory keeps its bytes.
    pub(super) type Populate = unsafe fn(*mut c_void, usize) -> Result<(), Errno>;

    fn answer(returned: i64) -> Result<(), Errno> {
        match returned {
            0.. => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    /// By one call, which Linux before 5.14 refuses with `EINVAL`.
    ///
    /// # Safety
    /// The memory is mapped from `start`, the beginning of a page, and may be written.
    pub(super) unsafe fn populate(start: *mut c_void, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the advice changes no byte of the memory, which is mapped.
        answer(unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) }.into())
    }

    /// Page by page, on any Linux: the kernel adds 0 to a word of each, atomically, and says `EFAULT` where a store would raise
    /// `SIGBUS`. Another thread or process may change the word at the same time.
    ///
    /// # Safety
    /// As for [`populate`].
    pub(super) unsafe fn populate_pages(start: *mut c_void, bytes: usize) -> Result<(), Errno> {
        /// `FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)`: add 0; the comparison only matters if a thread waits for the word.
        const ADD_NOTHING: u32 = libc::FUTEX_OP_ADD.cast_unsigned() << 28;
        let other: u32 = 0;
        let none: libc::c_long = 0;
        for offset in (0..bytes).step_by(rustix::param::page_size()) {
            // SAFETY: both words are mapped, and aligned, since `start` is. No thread waits for either, so none is woken.
            let returned = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    &raw const other,
                    libc::c_long::from(libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG),
                    none,
                    none,
                    start.byte_add(offset),
                    libc::c_long::from(ADD_NOTHING),
                )
            };
            answer(returned)?;
        }
        Ok(())
    }

    unsafe extern "C" fn map_memory(
        file: *mut ffi::sqlite3_file,
        page: c_int,
        bytes: c_int,
        extend: c_int,
        out: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: SQLite passes a file that `open` has written, and a place for the address of the memory.
        unsafe {
            let ours = file.cast::<PageFile>();
            let (theirs, methods) = (*ours).system();
            let Some(map) = methods.and_then(|methods| methods.xShmMap) else {
                return ffi::SQLITE_IOERR;
            };
            let result = match map(theirs, page, bytes, extend, out) {
                ffi::SQLITE_OK if !(*out).is_null() => allocate(*out, bytes as usize, populate),
                result => result,
            };
            if result != ffi::SQLITE_OK && result != ffi::SQLITE_READONLY {
                // SQLite would use it the next time, without a call.
                *out = std::ptr::null_mut();
            }
            if page == 0 && result == ffi::SQLITE_OK {
                (*ours).index = (*out).cast_const().cast();
            }
            result
        }
    }

    unsafe extern "C" fn unmap_memory(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
        // SAFETY: SQLite passes a file that `open` has written.
        unsafe {
            let ours = file.cast::<PageFile>();
            (*ours).index = std::ptr::null();
            let (theirs, methods) = (*ours).system();
            let unmap = methods.and_then(|methods| methods.xShmUnmap);
            unmap.map_or(ffi::SQLITE_IOERR, |unmap| unmap(theirs, delete))
        }
    }

    unsafe extern "C" fn barrier(file: *mut ffi::sqlite3_file) {
        // SAFETY: SQLite passes a file that `open` has written.
        unsafe {
            let (theirs, methods) = (*file.cast::<PageFile>()).system();
            if let Some(barrier) = methods.and_then(|methods| methods.xShmBarrier) {
                barrier(theirs);
            }
        }
    }

    /// Version 2: without mapped pages, which SQLite would read without a call.
    static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
        iVersion: 2,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(is_reserved),
        xFileControl: Some(control),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(characteristics),
        xShmMap: Some(map_memory),
        xShmLock: Some(lock_memory),
        xShmBarrier: Some(barrier),
        xShmUnmap: Some(unmap_memory),
        xFetch: None,
        xUnfetch: None,
    };
}

use file::{is_ours, open};

/// The checksum of a log's frame: `bytes` after what `before` is the checksum of.
fn frame_checksum(before: [u32; 2], bytes: &[u8], is_big: bool) -> [u32; 2] {
    let word = |four: &[u8]| {
        let four = four.try_into().unwrap_or_default();
        if is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    };
    bytes.chunks_exact(8).fold(before, |[one, two], eight| {
        let one = one.wrapping_add(word(&eight[..4])).wrapping_add(two);
        let two = two.wrapping_add(word(&eight[4..])).wrapping_add(one);
        [one, two]
    })
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    thread_local! {
        /// Writes to files by this thread.
        pub(super) static WRITES: Cell<u32> = const { Cell::new(0) };
        /// Bytes that the disk has for each file.
        pub(super) static ROOM: Cell<i64> = const { Cell::new(i64::MAX) };
        /// Ranges of databases that were read (true), or that the kernel was asked for.
        pub(super) static EVENTS: RefCell<Vec<(bool, Range<u64>)>> = const { RefCell::new(Vec::new()) };
    }

    /// How many requests the disk gets if the kernel has none of the pages at first, and reads nothing that it is not asked for.
    fn requests(events: &[(bool, Range<u64>)]) -> usize {
        let (mut there, mut requests) = (BTreeSet::new(), 0);
        for (_, range) in events {
            let pages = range.start / PAGE as u64..range.end.div_ceil(PAGE as u64);
            requests += usize::from(pages.clone().any(|page| !there.contains(&page)));
            there.extend(pages);
        }
        requests
    }

    #[test]
    fn the_pages_of_a_long_row_are_one_request_to_the_disk() {
        const FILES: i64 = 100;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let writer = connect(&path, OpenFlags::default()).unwrap();
        // As `sqlite` stores files of 250 kB: eight rows of one leaf.
        let prepare = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;
             CREATE TABLE chunk (id INTEGER PRIMARY KEY, sum INTEGER, bytes BLOB NOT NULL) STRICT";
        writer.execute_batch(prepare).unwrap();
        for row in 0..8 * FILES {
            let insert = "INSERT INTO chunk VALUES (?1, 4294967296, randomblob(32768))";
            writer.execute(insert, [row / 8 * (1 << 24) + row % 8]).unwrap();
        }
        drop(writer);
        let file = Arc::new(File::open(&path).unwrap());
        let read = |is_together: bool, rows: i64| {
            let reader = connect(&path, OpenFlags::default()).unwrap();
            number(&reader, "SELECT count(*) FROM chunk WHERE id = 0");
            if is_together {
                read_rows_together(&reader, &file).unwrap();
            }
            EVENTS.take();
            for file in 1..FILES {
                // Another order than that of the file.
                let first = (file * 37 % FILES) << 24;
                let sql = "SELECT sum(length(hex(bytes))) FROM chunk WHERE id >= ?1 AND id < ?2";
                let length: rusqlite::Result<i64> = reader.query_row(sql, [first, first + rows], |row| row.get(0));
                assert_eq!(length, Ok(rows * 65536));
            }
            EVENTS.take()
        };
        let pages = |events: &[(bool, Range<u64>)]| events.iter().filter(|(is_read, _)| *is_read).count();
        let files = FILES as usize - 1;
        // Of the first row: the leaf, and eight pages.
        let (alone, together) = (read(false, 1), read(true, 1));
        assert_eq!([pages(&alone), pages(&together), requests(&alone)], [9 * files; 3]);
        assert_eq!([together.len() - pages(&together), requests(&together)], [files; 2]);
        // Of all eight rows: the pages of the others follow the leaf in order. SQLite then looks at the next leaf.
        let whole = read(true, 8);
        let asked = whole.len() - pages(&whole);
        assert!(asked <= 2 * files + 2 && pages(&whole) >= 65 * files, "{asked} of {}", pages(&whole));
    }

    fn number(connection: &Connection, sql: &str) -> i64 {
        connection.query_row(sql, (), |row| row.get(0)).unwrap()
    }

    /// A database in WAL mode, whose connection writes its pages to the log amid a transaction.
    fn spilling(path: &Path) -> Connection {
        let connection = connect(path, OpenFlags::default()).unwrap();
        let prepare = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 10;
             CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB)";
        connection.execute_batch(prepare).unwrap();
        connection
    }

    fn copy(path: &Path, to: &Path) {
        for suffix in ["", "-wal"] {
            let with = |path: &Path| format!("{}{suffix}", path.display());
            std::fs::copy(with(path), with(to)).unwrap();
        }
    }

    /// As Linux before 5.14 answers.
    #[expect(unsafe_code, reason = "it stands for a call that is")]
    unsafe fn unknown_advice(_: *mut c_void, _: usize) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }

    /// What allocating `length` bytes of a mapped file, from `at` on, answers.
    #[expect(unsafe_code, reason = "it maps a file")]
    fn allocated(file: &File, mapped: usize, at: usize, length: usize, populate: file::Populate) -> c_int {
        let map = memmap2::MmapOptions::new().len(mapped).map_raw(file).unwrap();
        // SAFETY: the range is mapped, and may be written.
        unsafe { file::allocate(map.as_mut_ptr().byte_add(at).cast(), length, populate) }
    }

    #[test]
    fn mapped_memory_is_allocated_without_a_change_of_its_bytes_on_kernels_without_the_advice_too() {
        for populate in [file::populate as file::Populate, unknown_advice] {
            let file = tempfile::tempfile_in("/var/tmp").unwrap();
            file.set_len(16 * PAGE as u64).unwrap();
            file.write_all_at(b"kept", 5 * PAGE as u64).unwrap();
            assert!(file.metadata().unwrap().blocks() < 16 * 8);
            assert_eq!(allocated(&file, 16 * PAGE, 100, 16 * PAGE - 100, populate), ffi::SQLITE_OK);
            assert!(file.metadata().unwrap().blocks() >= 16 * 8);
            let mut bytes = vec![0; 16 * PAGE];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
            assert_eq!(&bytes[5 * PAGE..5 * PAGE + 4], b"kept");
            // Nothing can be behind the pages past the end of a file: a store would raise `SIGBUS`.
            assert_eq!(allocated(&file, 20 * PAGE, 14 * PAGE, 4 * PAGE, populate), ffi::SQLITE_FULL);
        }
    }

    #[test]
    fn a_full_disk_refuses_mapped_memory_on_kernels_without_the_advice_too() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(dir.path());
        if !mount.output().is_ok_and(|mounted| mounted.status.success()) {
            eprintln!("SKIPPED: this needs root");
            return;
        }
        let answers = [file::populate as file::Populate, unknown_advice].map(|populate| {
            let file = tempfile::tempfile_in(dir.path()).unwrap();
            file.set_len(128 << 10).unwrap();
            [4 << 10, 128 << 10].map(|length| allocated(&file, 128 << 10, 0, length, populate))
        });
        let unmounted = std::process::Command::new("umount").arg(dir.path()).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(answers, [[ffi::SQLITE_OK, ffi::SQLITE_FULL]; 2]);
    }

    #[test]
    fn pages_that_a_transaction_writes_again_to_the_log_are_whole_for_every_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (path, killed) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = spilling(&path);
        let fill = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 200)
             INSERT OR REPLACE INTO t SELECT n, randomblob(9000) FROM c";
        for _ in 0..3 {
            writer.execute_batch("BEGIN").unwrap();
            writer.execute_batch(fill).unwrap();
            writer.execute_batch("SAVEPOINT s").unwrap();
            writer.execute_batch(fill).unwrap();
            assert_eq!(number(&writer, "SELECT sum(length(bytes)) FROM t"), 1_800_000);
            writer.execute_batch("ROLLBACK TO s").unwrap();
            writer.execute_batch("UPDATE t SET bytes = randomblob(9000) WHERE n % 3 = 0").unwrap();
            writer.execute_batch("COMMIT; BEGIN").unwrap();
            writer.execute_batch(fill).unwrap();
            writer.execute_batch("ROLLBACK").unwrap();
        }
        writer.execute_batch("CREATE TABLE last (n)").unwrap();
        let sum = "SELECT sum(instr(hex(bytes), '00')) FROM t";
        let expected = number(&writer, sum);
        copy(&path, &killed);
        for reader in [connect(&killed, OpenFlags::default()).unwrap(), Connection::open(&killed).unwrap()] {
            assert_eq!(number(&reader, sum), expected);
            assert_eq!(number(&reader, "SELECT count(*) FROM last"), 0);
            let checked: String = reader.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
            assert_eq!(checked, "ok");
            // The second one copies the log as the last to close: a program without this VFS.
            let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            reader.set_db_config(keep, true).unwrap();
        }
        drop(Connection::open(&killed).map(|plain| number(&plain, sum)));
        let reader = connect(&killed, OpenFlags::default()).unwrap();
        assert_eq!(damaged(&reader, false).unwrap(), Vec::<u64>::new());
        assert_eq!(number(&reader, sum), expected);
    }

    /// The content of all rows.
    const SUM: &str = "SELECT coalesce(sum(n * instr(hex(bytes), 'A7')), 0) FROM t";

    #[test]
    fn a_commit_writes_many_pages_to_the_log_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, killed) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = connect(&path, OpenFlags::default()).unwrap();
        let prepare = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB)";
        writer.execute_batch(prepare).unwrap();
        let before = WRITES.get();
        let fill = "INSERT INTO t VALUES (1, randomblob(400000))";
        writer.execute_batch(fill).unwrap();
        // 99 pages.
        let writes = WRITES.get() - before;
        assert!((1..=4).contains(&writes), "{writes} writes");
        copy(&path, &killed);
        let plain = Connection::open(&killed).unwrap();
        assert_eq!(number(&plain, SUM), number(&writer, SUM));
    }

    #[test]
    fn a_log_has_every_commit_after_a_kill_whatever_transactions_did_before() {
        let dir = tempfile::tempdir().unwrap();
        let (path, killed) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = spilling(&path);
        let mut seed: u64 = 5;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..120 {
            writer.execute_batch("BEGIN").unwrap();
            for _ in 0..1 + random(4) {
                let (first, count, bytes) = (random(40), 1 + random(20), 1 + random(20_000));
                let change = match random(6) {
                    0 => format!("DELETE FROM t WHERE n BETWEEN {first} AND {}", first + count),
                    1 => "SAVEPOINT s".to_owned(),
                    2 => "SAVEPOINT s; DELETE FROM t; ROLLBACK TO s".to_owned(),
                    _ => format!(
                        "WITH RECURSIVE c (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c LIMIT {count})
                         INSERT OR REPLACE INTO t SELECT n, randomblob({bytes}) FROM c"
                    ),
                };
                writer.execute_batch(&change).unwrap();
                number(&writer, SUM);
            }
            match random(4) {
                0 => writer.execute_batch("ROLLBACK").unwrap(),
                _ => writer.execute_batch("COMMIT").unwrap(),
            }
            // Then the log begins again, over the frames of earlier transactions.
            if random(10) == 0 {
                let copied = writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
                copied.unwrap();
            }
            copy(&path, &killed);
            for reader in [Connection::open(&killed).unwrap(), connect(&killed, OpenFlags::default()).unwrap()] {
                assert_eq!(number(&reader, SUM), number(&writer, SUM), "round {round}");
            }
        }
    }

    #[test]
    fn a_transaction_whose_pages_do_not_fit_is_never_committed_and_the_next_ones_are() {
        let dir = tempfile::tempdir().unwrap();
        let (path, killed) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = spilling(&path);
        let small = "INSERT OR REPLACE INTO t VALUES (1, randomblob(9000))";
        let mut refused = 0;
        for round in 0..60 {
            // Every other round begins the log again, over the frames of earlier ones.
            if round % 2 == 0 {
                let copied = writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
                copied.unwrap();
            }
            writer.execute_batch(small).unwrap();
            let before = number(&writer, SUM);
            let log = std::fs::metadata(path.with_extension("db-wal")).unwrap();
            let end = if round % 2 == 0 { 4 * FRAME as i64 } else { log.len() as i64 };
            // The pages of each round reach further than those before.
            ROOM.set(end + 4096 * round);
            writer.execute_batch("BEGIN").unwrap();
            for row in 2..40 {
                let insert = format!("INSERT OR REPLACE INTO t VALUES ({row}, randomblob(9000))");
                let _ = writer.execute_batch(&insert);
                // It reads all rows and changes none. SQLite undoes such a statement alone if a read fails for want of
                // space, and not its transaction.
                let read = writer.execute_batch("UPDATE t SET n = -n WHERE instr(bytes, x'00ff00ff00ff') > 1000000");
                if writer.is_autocommit() {
                    break;
                }
                if read.is_err() {
                    // Another program has freed some space.
                    ROOM.set(i64::MAX);
                    refused += 1;
                }
            }
            if !writer.is_autocommit() && writer.execute_batch("COMMIT").is_err() {
                let _ = writer.execute_batch("ROLLBACK");
            }
            ROOM.set(i64::MAX);
            let now = number(&writer, SUM);
            copy(&path, &killed);
            for reader in [Connection::open(&killed).unwrap(), connect(&killed, OpenFlags::default()).unwrap()] {
                assert_eq!(number(&reader, SUM), now, "round {round}");
                let checked: String = reader.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
                assert_eq!(checked, "ok", "round {round}");
            }
            let rows = number(&writer, "SELECT count(*) FROM t");
            assert!(now == before || rows >= 39, "round {round}: {rows} rows");
        }
        assert!(refused > 0, "no read found frames without room");
    }

    #[test]
    fn a_page_that_a_transaction_adds_and_moves_is_not_reported_as_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let writer = connect(&path, OpenFlags::default()).unwrap();
        // Then the roots of tables are the first pages, and a new one moves what is in its place.
        let prepare = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL";
        writer.execute_batch(prepare).unwrap();
        let sum = "SELECT sum(length(bytes)) FROM t";
        for round in 1..=3 {
            let change = format!(
                "BEGIN; CREATE TABLE IF NOT EXISTS t (bytes BLOB);
                 INSERT INTO t VALUES (randomblob(90000)); CREATE TABLE other{round} (n); COMMIT"
            );
            writer.execute_batch(&change).unwrap();
            assert_eq!(number(&writer, sum), round * 90_000);
            writer.execute_batch("DELETE FROM t WHERE rowid = 1; PRAGMA incremental_vacuum").unwrap();
            writer.execute_batch("INSERT INTO t (rowid, bytes) VALUES (1, randomblob(90000))").unwrap();
        }
        drop(writer);
        let reader = connect(&path, OpenFlags::default()).unwrap();
        assert_eq!(damaged(&reader, false).unwrap(), Vec::<u64>::new());
        assert_eq!(number(&reader, sum), 270_000);
    }

    #[test]
    fn a_page_in_the_place_of_another_and_a_short_one_are_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let writer = spilling(&path);
        for _ in 0..50 {
            writer.execute("INSERT INTO t (bytes) VALUES (randomblob(3000))", ()).unwrap();
        }
        drop(writer);
        let whole = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let reader = connect(&path, OpenFlags::default()).unwrap();
            let all = reader.query_row("SELECT max(bytes) FROM t", (), |_| Ok(()));
            let code = all.err().and_then(|error| error.sqlite_error().map(|error| error.extended_code));
            (code, damaged(&reader, false).unwrap())
        };
        assert_eq!(read(&whole), (None, Vec::new()));
        let mut swapped = whole.clone();
        swapped[9 * PAGE..11 * PAGE].rotate_left(PAGE);
        assert_eq!(read(&swapped), (Some(ffi::SQLITE_IOERR_DATA), vec![10, 11]));
        let mut zeroed = whole.clone();
        zeroed[9 * PAGE..10 * PAGE].fill(0);
        assert_eq!(read(&zeroed), (Some(ffi::SQLITE_IOERR_DATA), vec![10]));
        let last = whole.len().div_ceil(PAGE) as u64;
        let (code, found) = read(&whole[..whole.len() - 1]);
        assert!(code.is_some());
        assert_eq!(found, [last]);
        let (code, _) = read(&whole[..whole.len() - PAGE]);
        assert!(code.is_some());
    }

    #[test]
    fn a_copy_whose_adoption_was_interrupted_is_adopted_by_the_next_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let made = Connection::open(&path).unwrap();
        reserve(&made).unwrap();
        let rows =
            "CREATE TABLE t (a); INSERT INTO t SELECT randomblob(3000) FROM (VALUES (1), (2), (3), (4), (5), (6))";
        made.execute_batch(rows).unwrap();
        drop(made);
        let bare = std::fs::read(&path).unwrap();
        stamp_copy(&path, |_| true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert!(whole.len() / PAGE > 5 && whole != bare);
        for stamped in 0..bare.len() / PAGE {
            // From the end: the first page is the last.
            let at = bare.len() - stamped * PAGE;
            std::fs::write(&path, [&bare[..at], &whole[at..]].concat()).unwrap();
            stamp_copy(&path, |_| true).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{stamped} pages");
        }
    }
}
