//! Unpacks the logs of inspect_ai (`.eval`): zip archives with a header and one file a sample.
//! The result is the document that `inspect log convert --to json` writes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use inputs::files::{PACKED_PARTS, RECORD_VALUES, ZIP_DIRECTORY, has_more_values, too_many_parts};
use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;
use tempfile::NamedTempFile;
use zip::{CompressionMethod, ZipArchive};

/// The bytes that a zip archive begins with.
pub const MAGIC: [u8; 4] = *b"PK\x03\x04";

/// The method number of members that are packed with zstd.
const ZSTD: u16 = 93;

/// The longest header.
const HEADER_BYTES: u64 = 64 << 20;

/// Unpacks a log into one document of at most `most` bytes. A sample that is not JSON costs that sample.
///
/// # Errors
/// If the archive is damaged or no log of inspect_ai, or if it is too long.
pub fn unpacked(archive: File, most: u64) -> anyhow::Result<NamedTempFile> {
    let mut archive = open(archive)?;
    let names: Vec<String> = archive.file_names().map(str::to_owned).collect();
    let mut samples: Vec<&String> =
        names.iter().filter(|name| name.starts_with("samples/") && name.ends_with(".json")).collect();
    samples.sort();
    // A log that was interrupted has no header: its beginning is in the journal.
    let header =
        ["header.json", "_journal/start.json"].into_iter().find(|header| names.iter().any(|name| name == header));
    let Some(header) = header else {
        bail!(
            "is a zip archive, but no log of inspect_ai (it holds no header.json)\n  fix: unpack it, and name the recordings in it"
        );
    };
    let reading = || format!("{header} in the zip archive");
    let bytes = member(&mut archive, header, HEADER_BYTES)?;
    if has_more_values(&bytes, RECORD_VALUES) {
        bail!("{}: has more than {RECORD_VALUES} values", reading());
    }
    let header: Value = serde_json::from_slice(&bytes).with_context(reading)?;
    drop(bytes);
    let mut document = NamedTempFile::new()?;
    let start = format!("{{\"eval\":{},\"stats\":{},\"samples\":[", header["eval"], header["stats"]);
    document.write_all(start.as_bytes())?;
    let mut left = most.saturating_sub(start.len() as u64);
    let mut is_first = true;
    for name in samples {
        let bytes = member(&mut archive, name, left)?;
        // Also one that is not JSON: many names may stand for the same packed bytes.
        left -= bytes.len() as u64;
        if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            document.write_all(b",\n")?;
        }
        document.write_all(&bytes)?;
    }
    document.write_all(b"]}\n")?;
    document.flush()?;
    Ok(document)
}

/// Opens an archive. What the archive states of its directory is checked before the library believes it.
fn open(archive: File) -> anyhow::Result<ZipArchive<Watched<BufReader<File>>>> {
    let opening = Rc::new(RefCell::new(Opening { left: ZIP_DIRECTORY, ..Opening::default() }));
    let watched = Watched { source: BufReader::new(archive), opening: Rc::clone(&opening) };
    let opened = ZipArchive::new(watched);
    let mut opening = opening.borrow_mut();
    // The library takes some errors for another place of the directory.
    if let Some(refusal) = opening.refusal.take() {
        bail!(refusal);
    }
    opening.is_over = true;
    opened.context("reading the zip archive")
}

/// What is read while an archive is opened.
#[derive(Default)]
struct Opening {
    /// Bytes that may still be read.
    left: u64,
    /// The last bytes that were read, without a gap.
    last: Vec<u8>,
    /// Why no more is read.
    refusal: Option<String>,
    is_over: bool,
}

/// The beginning and the length of the record in which a large archive states the number of its files, and where that is.
const LARGE: [u8; 4] = *b"PK\x06\x06";
const LARGE_LENGTH: usize = 56;
const LARGE_FILES: usize = 32;

impl Opening {
    /// Checks bytes that were read. After a refusal, all others are refused, too.
    fn check(&mut self, read: &[u8]) -> io::Result<()> {
        self.refusal = self.refusal.take().or_else(|| self.defect(read));
        match &self.refusal {
            None => Ok(()),
            Some(refusal) => Err(io::Error::new(io::ErrorKind::FileTooLarge, refusal.clone())),
        }
    }

    /// The limit that these bytes exceed.
    fn defect(&mut self, read: &[u8]) -> Option<String> {
        let Some(left) = self.left.checked_sub(read.len() as u64) else {
            return Some(format!("takes more than {ZIP_DIRECTORY} bytes to open, the limit for a zip archive"));
        };
        self.left = left;
        self.last.extend_from_slice(read);
        let states_too_many = self.last.windows(LARGE_LENGTH).any(|record| {
            let files = record[LARGE_FILES..].first_chunk().map_or(0, |files| u64::from_le_bytes(*files));
            record.starts_with(&LARGE) && files > PACKED_PARTS as u64
        });
        self.last.drain(..self.last.len().saturating_sub(LARGE_LENGTH - 1));
        states_too_many.then(|| too_many_parts("files").to_string())
    }
}

/// An archive's bytes, of which few may be read until it is open.
struct Watched<R> {
    source: R,
    opening: Rc<RefCell<Opening>>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        let mut opening = self.opening.borrow_mut();
        if !opening.is_over {
            opening.check(&buffer[..read])?;
        }
        Ok(read)
    }
}

impl<R: Seek> Seek for Watched<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.opening.borrow_mut().last.clear();
        self.source.seek(to)
    }

    // The default seeks, and a buffered reader then drops its buffer.
    fn stream_position(&mut self) -> io::Result<u64> {
        self.source.stream_position()
    }
}

/// A file of the archive, of at most `most` bytes.
fn member(archive: &mut ZipArchive<Watched<BufReader<File>>>, name: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("{name} in the zip archive");
    let at = archive.index_for_name(name).ok_or_else(|| anyhow!("is missing")).with_context(reading)?;
    // Newer versions pack with zstd.
    let raw = archive.by_index_raw(at).with_context(reading)?;
    #[expect(deprecated, reason = "the number of a method is compared")]
    let is_zstd = raw.compression() == CompressionMethod::Unsupported(ZSTD);
    let mut bytes = Vec::new();
    let read = if is_zstd {
        let decoder = StreamingDecoder::new(raw).map_err(|error| anyhow!("{error}")).with_context(reading)?;
        decoder.take(most + 1).read_to_end(&mut bytes)
    } else {
        drop(raw);
        let file = archive.by_index(at).with_context(reading)?;
        file.take(most + 1).read_to_end(&mut bytes)
    };
    read.with_context(reading)?;
    if bytes.len() as u64 > most {
        bail!("{name} in the zip archive: is longer than a recorded session may be");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use importers::detect;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(files: &[(&str, &str)]) -> File {
        let mut writer = ZipWriter::new(tempfile::tempfile().unwrap());
        for (name, text) in files {
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            writer.start_file(*name, options).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        let mut file = writer.finish().unwrap();
        file.rewind().unwrap();
        file
    }

    const SAMPLE: &str = r#"{"id":1,"epoch":1,"messages":[{"role":"user","content":"Look."}],"model_usage":{"m":{"input_tokens":5,"output_tokens":2}}}"#;

    #[test]
    fn a_log_becomes_one_document_with_its_readable_samples() {
        let header = r#"{"version":2,"status":"success","eval":{"task":"t","model":"m"}}"#;
        let log = archive(&[
            ("samples/1_epoch_1.json", SAMPLE),
            ("samples/2_epoch_1.json", "{cut"),
            ("summaries.json", "[]"),
            ("header.json", header),
        ]);
        let document = std::fs::read(unpacked(log, 1 << 20).unwrap().path()).unwrap();
        let (importer, sessions) = detect::read(&document[..], None).unwrap();
        assert_eq!((importer.id(), sessions.len()), ("inspect-ai", 1));
        let log = archive(&[("header.json", header), ("samples/1_epoch_1.json", SAMPLE)]);
        let refused = unpacked(log, 100).unwrap_err().to_string();
        assert!(refused.contains("longer than"), "{refused}");
    }

    #[test]
    fn samples_that_are_not_json_count_as_unpacked_bytes() {
        let blanks = " ".repeat(4000);
        let names: Vec<String> = (0..10).map(|n| format!("samples/{n}.json")).collect();
        let mut members = vec![("header.json", "{}")];
        members.extend(names.iter().map(|name| (name.as_str(), blanks.as_str())));
        let refused = unpacked(archive(&members), 20_000).unwrap_err().to_string();
        assert!(refused.contains("longer than"), "{refused}");
    }

    /// The end of an archive that states this many files in its directory, which it says begins at `start`.
    fn large_end(at: u64, start: u64, files: u64) -> Vec<u8> {
        let mut record = LARGE.to_vec();
        record.extend(44_u64.to_le_bytes());
        record.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for number in [files, files, at - start, start] {
            record.extend(number.to_le_bytes());
        }
        assert_eq!((record.len(), record[LARGE_FILES..][..8].to_vec()), (LARGE_LENGTH, files.to_le_bytes().to_vec()));
        record.extend(b"PK\x06\x07\0\0\0\0");
        record.extend(at.to_le_bytes());
        record.extend([1, 0, 0, 0]);
        record.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
        record
    }

    #[test]
    fn an_archive_that_states_too_many_files_is_refused_before_they_are_read() {
        let limit = format!("has more than {PACKED_PARTS} files");
        let length = 1 << 30;
        // No directory: it would be read from the hole.
        for (files, is_refused) in [(PACKED_PARTS as u64, false), (PACKED_PARTS as u64 + 1, true), (20_000_000, true)] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&MAGIC).unwrap();
            file.seek(SeekFrom::Start(length)).unwrap();
            file.write_all(&large_end(length, 4, files)).unwrap();
            file.rewind().unwrap();
            let refused = format!("{:#}", unpacked(file, 1 << 20).unwrap_err());
            assert_eq!(refused.contains(&limit), is_refused, "{files}: {refused}");
        }
    }

    #[test]
    fn a_directory_that_takes_too_long_to_read_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&MAGIC).unwrap();
        let mut entry = b"PK\x01\x02".to_vec();
        entry.resize(46, 0);
        entry[28] = 200;
        entry.resize(46 + 200, b'x');
        let entries = ZIP_DIRECTORY / entry.len() as u64 + 1;
        assert!(entries <= PACKED_PARTS as u64);
        let directory = entry.repeat(usize::try_from(entries).unwrap());
        file.write_all(&directory).unwrap();
        file.write_all(&large_end(4 + directory.len() as u64, 4, entries)).unwrap();
        file.rewind().unwrap();
        let refused = format!("{:#}", unpacked(file, 1 << 20).unwrap_err());
        assert!(refused.contains("bytes to open"), "{refused}");
    }

    #[test]
    fn another_archive_is_named() {
        let refused = unpacked(archive(&[("a.txt", "x")]), 1 << 20).unwrap_err();
        assert!(refused.to_string().contains("no log of inspect_ai"));
        let mut broken = tempfile::tempfile().unwrap();
        broken.write_all(b"PK\x03\x04 and no more").unwrap();
        broken.rewind().unwrap();
        assert!(unpacked(broken, 1 << 20).is_err());
    }
}
