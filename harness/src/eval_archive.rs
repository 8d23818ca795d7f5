//! Unpacks the logs of inspect_ai (`.eval`): zip archives with a header and one file a sample.
//! The result is the document that `inspect log convert --to json` writes.

use std::fs::File;
use std::io::{BufReader, Read, Write};

use anyhow::{Context, anyhow, bail};
use inputs::files::{RECORD_VALUES, has_more_values};
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
    let mut archive = ZipArchive::new(BufReader::new(archive)).context("reading the zip archive")?;
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

/// A file of the archive, of at most `most` bytes.
fn member(archive: &mut ZipArchive<BufReader<File>>, name: &str, most: u64) -> anyhow::Result<Vec<u8>> {
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
    use std::io::Seek;

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
