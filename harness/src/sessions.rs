//! Opens recorded sessions: files, packed or not, and standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::eval_archive;
use anyhow::{Context, anyhow};
use clap::builder::PossibleValuesParser;
use flate2::bufread::GzDecoder;
use importers::{IMPORTERS, Importer, claude_code, detect};
use inputs::files::{self, PACKED_PARTS, RECORDING, too_many_parts};
use inputs::sha256_of;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use session_traces::{ImportedSession, RecordedEvent, UnplacedUsage};
use tempfile::NamedTempFile;
use tokens::BilledUsage;
use workloads::trace::TokenUsage;

/// The path that means standard input.
const STDIN: &str = "-";

/// How many times its packed size a recording may have, once it is longer than [`ALWAYS_UNPACKED`].
const MOST_UNPACKED: u64 = 100;

/// Bytes up to which a packed recording may have any size.
const ALWAYS_UNPACKED: u64 = 64 << 20;

/// The longest file, packed or in UTF-16, which takes twice as many bytes: a sparse one takes no space, and is read for minutes.
const LONGEST_FILE: u64 = 2 * RECORDING.bytes();

/// The names of the formats, as values of an option.
pub fn format_names() -> PossibleValuesParser {
    PossibleValuesParser::new(IMPORTERS.iter().map(|importer| importer.id()))
}

/// A recording that can be read, from its beginning, any number of times.
pub struct Recording {
    /// Its name in messages.
    name: String,
    /// The path that the user named.
    path: PathBuf,
    /// The unpacked file.
    file: PathBuf,
    /// The file itself, if it is a copy of what was packed or came from standard input.
    _copy: Option<NamedTempFile>,
}

/// The sessions of a recording.
pub struct ImportedRecording {
    pub importer: &'static dyn Importer,
    pub sessions: Vec<ImportedSession>,
    /// SHA-256 of the recording, unpacked.
    pub sha256: String,
}

impl Recording {
    /// Opens a recording. What is packed with gzip or zstd, and a log of inspect_ai, is unpacked; `-` is standard input.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        if path == Path::new(STDIN) {
            let copy =
                copied(io::stdin().lock(), RECORDING.bytes(), RECORDING.bytes()).context("reading standard input")?;
            // Standard input can be packed, too.
            let inner = Self::open(copy.path())?;
            return Ok(Self {
                name: "standard input".to_owned(),
                path: path.to_owned(),
                file: inner.file,
                _copy: Some(inner._copy.unwrap_or(copy)),
            });
        }
        let reading = || format!("reading {name}");
        let file = files::open(path).with_context(reading)?;
        let packed = file.metadata().with_context(reading)?.len();
        if packed > LONGEST_FILE {
            return Err(anyhow!(
                "{name}: has {packed} bytes; the file of a recorded session may have at most {LONGEST_FILE}"
            ));
        }
        let mut file = BufReader::new(file);
        let start: Vec<u8> = file.fill_buf().with_context(reading)?.iter().take(4).copied().collect();
        let most = packed.saturating_mul(MOST_UNPACKED).max(ALWAYS_UNPACKED);
        let copy = match start[..] {
            [0x1f, 0x8b, ..] => Some(unpacked(GzipMembers::new(file), most, &name)?),
            [0x28, 0xb5, 0x2f, 0xfd] => Some(unpacked(ZstdFrames::new(file), most, &name)?),
            // What PowerShell redirects to a file is UTF-16.
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                let limit = RECORDING.bytes();
                Some(copied(Utf16::new(file, start[0] == 0xfe), limit, limit).with_context(reading)?)
            }
            _ if start == eval_archive::MAGIC => {
                let archive = file.into_inner();
                let reading = || format!("reading {name}");
                Some(eval_archive::unpacked(archive, RECORDING.bytes().min(most)).with_context(reading)?)
            }
            _ => None,
        };
        Ok(Self {
            file: copy.as_ref().map_or(path.to_owned(), |copy| copy.path().to_owned()),
            name,
            path: path.to_owned(),
            _copy: copy,
        })
    }

    /// A recording that another program or database holds.
    pub fn of_text(name: String, text: &str) -> anyhow::Result<Self> {
        let copy =
            copied(text.as_bytes(), RECORDING.bytes(), RECORDING.bytes()).with_context(|| format!("reading {name}"))?;
        Ok(Self { file: copy.path().to_owned(), path: PathBuf::from(&name), name, _copy: Some(copy) })
    }

    /// The recording's bytes.
    pub fn reader(&self) -> anyhow::Result<impl BufRead + use<>> {
        let file = files::open(&self.file).with_context(|| format!("reading {}", self.name))?;
        let length = file.metadata()?.len();
        if length > RECORDING.bytes() {
            return Err(anyhow!(
                "{}: has {length} bytes; a recorded session may have at most {}",
                self.name,
                RECORDING.bytes()
            ));
        }
        Ok(BufReader::with_capacity(1 << 18, file))
    }

    /// The recording's text, for a trace.
    pub fn text(&self) -> anyhow::Result<String> {
        let reading = || format!("reading {}", self.name);
        let bytes = files::read(&self.file, RECORDING).with_context(reading)?;
        // A broken character in one message must not lose the whole session.
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The sessions in it: in the format with this name, or else in the one that its content shows.
    pub fn sessions(&self, format: Option<&str>) -> anyhow::Result<ImportedRecording> {
        let read = detect::read(self.reader()?, format);
        let (importer, mut sessions) = read.map_err(|problem| anyhow!("{}: {problem}", self.name))?;
        if importer.id() == "cline"
            && let [task] = &mut *sessions
        {
            take_cline_usage(task, &self.path);
        }
        if importer.id() == "kiro"
            && let Some(metadata) = kiro_metadata(&self.path)
        {
            let metadata = io::Cursor::new(format!("\n{metadata}\n"));
            let whole = importer.import(&mut self.reader()?.chain(metadata));
            sessions = whole.map_err(|problem| anyhow!("{}: {problem}", self.name))?;
        }
        if importer.id() == "claude-code" {
            let others = subagents(&self.path)?;
            if !others.is_empty() {
                let mut readers = Vec::new();
                for other in &others {
                    readers.push(Box::new(other.reader()?) as Box<dyn BufRead>);
                }
                let whole = claude_code::read(&mut self.reader()?, &mut readers);
                sessions = vec![whole.map_err(|problem| anyhow!("{}: {problem}", self.name))?];
            }
        }
        let sha256 = sha256_of(&self.file).with_context(|| format!("reading {}", self.name))?;
        Ok(ImportedRecording { importer, sessions, sha256 })
    }
}

/// Unpacks a file. Of one that is damaged or cut off, what could be unpacked stays, and a warning says so.
fn unpacked(packed: impl Read, most: u64, name: &str) -> anyhow::Result<NamedTempFile> {
    let mut readable = ReadablePart { source: packed, bytes: 0, is_damaged: false };
    let copy = copied(&mut readable, most, RECORDING.bytes()).map_err(|error| {
        // Neither the system nor a limit has refused it.
        let is_damage = error.raw_os_error().is_none() && error.kind() != io::ErrorKind::FileTooLarge;
        if is_damage {
anyhow!("unpacking {name}: nothing of it can be unpacked ({error})\n  fix: copy or pack the recording again; `gzip -t` and `zstd -t` test such a file")
} else {
anyhow::Error::new(error).context(format!("unpacking {name}"))
}
    })?;
    if readable.is_damaged {
        eprintln!("warning: {name} is damaged or cut off: only its first {} unpacked bytes are read", readable.bytes);
    }
    Ok(copy)
}

/// What can be read of a source: an error behind its first bytes is its end.
struct ReadablePart<R> {
    source: R,
    bytes: u64,
    is_damaged: bool,
}

impl<R: Read> Read for ReadablePart<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.source.read(buffer) {
            Ok(read) => {
                self.bytes += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted || self.bytes == 0 => Err(error),
            // A limit, and no damage.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(error),
            Err(_) => {
                self.is_damaged = true;
                Ok(0)
            }
        }
    }
}

/// Reads UTF-16 as UTF-8.
struct Utf16<R> {
    source: R,
    is_big_endian: bool,
    /// Units of the last character read, if more of it follows: a byte, and half of a pair.
    odd: Option<u8>,
    half: Option<u16>,
    text: io::Cursor<Vec<u8>>,
}

impl<R: Read> Utf16<R> {
    fn new(source: R, is_big_endian: bool) -> Self {
        Self { source, is_big_endian, odd: None, half: None, text: io::Cursor::default() }
    }

    /// Reads more text. Returns `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes: Vec<u8> = self.odd.take().into_iter().collect();
        let read = self.source.by_ref().take(1 << 16).read_to_end(&mut bytes)?;
        let mut pairs = bytes.chunks_exact(2);
        let unit = |pair: &[u8]| {
            if self.is_big_endian {
                u16::from_be_bytes([pair[0], pair[1]])
            } else {
                u16::from_le_bytes([pair[0], pair[1]])
            }
        };
        let mut units: Vec<u16> = self.half.take().into_iter().chain(pairs.by_ref().map(unit)).collect();
        if read > 0 {
            self.odd = pairs.remainder().first().copied();
            self.half = units.pop_if(|unit| (0xd800..0xdc00).contains(unit));
        }
        let chars = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        self.text = io::Cursor::new(chars.collect::<String>().into_bytes());
        Ok(read > 0)
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.text.read(buffer)?;
            if read > 0 || buffer.is_empty() || !self.fill()? {
                return Ok(read + self.text.read(&mut buffer[read..])?);
            }
        }
    }
}

/// Reads the members of a file that is packed with gzip, one after the other.
struct GzipMembers<R> {
    /// `None` after the last one.
    member: Option<GzDecoder<R>>,
    members: usize,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(source: R) -> Self {
        Self { member: Some(GzDecoder::new(source)), members: 1 }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(ended) = self.member.take() else {
                break;
            };
            let mut source = ended.into_inner();
            if source.fill_buf()?.is_empty() {
                break;
            }
            if self.members >= PACKED_PARTS {
                return Err(too_many_parts("members"));
            }
            self.members += 1;
            self.member = Some(GzDecoder::new(source));
        }
        Ok(0)
    }
}

/// Reads the frames of a file that is packed with zstd, one after the other.
struct ZstdFrames<R> {
    source: R,
    /// Frames so far, also those without content.
    frames: usize,
    decoder: FrameDecoder,
    /// Whether the decoder is in a frame.
    is_open: bool,
    /// Why the rest of the file cannot be unpacked.
    damage: Option<io::Error>,
}

/// An empty last block of a frame, and a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, frames: 0, decoder: FrameDecoder::new(), is_open: false, damage: None }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_open {
                while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                    let wanted = BlockDecodingStrategy::UptoBytes(buffer.len());
                    let Err(error) = self.decoder.decode_blocks(&mut self.source, wanted) else {
                        continue;
                    };
                    self.damage = Some(io::Error::other(error));
                    // The decoder gives its window only at the end of a frame.
                    let ended = self.decoder.decode_blocks(&mut LAST_BLOCK.as_slice(), BlockDecodingStrategy::All);
                    if ended.is_err() {
                        break;
                    }
                }
                let read = self.decoder.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.is_open = false;
            }
            if let Some(error) = self.damage.take() {
                return Err(error);
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            if self.frames >= PACKED_PARTS {
                return Err(too_many_parts("frames"));
            }
            self.frames += 1;
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.is_open = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// The end of the name of a session file of Claude Code, plain and packed.
const CLAUDE_ENDS: [&str; 3] = [".jsonl", ".jsonl.gz", ".jsonl.zst"];

/// The files of a Cline task: its conversation, and the interface, which has the usage.
const CLINE_HISTORY: &str = "api_conversation_history.json";
const CLINE_INTERFACE: &str = "ui_messages.json";

/// The most lines of a subagent's file in which its session is named.
const LINES_WITH_SESSION: usize = 20;

/// The files whose import covers this one, if they exist. A Claude Code session covers those of its subagents:
/// `SESSION/subagents/*.jsonl`, in older versions `agent-*.jsonl` beside it. The conversation of a Cline task covers the
/// interface, and the messages of a Kiro CLI session cover its metadata.
pub fn covering_files(file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name == CLINE_INTERFACE {
        return vec![file.with_file_name(CLINE_HISTORY)];
    }
    let messages = file.with_extension("jsonl");
    if name.ends_with(".json") && messages.is_file() && kiro_metadata(&messages).is_some() {
        return vec![messages];
    }
    if !CLAUDE_ENDS.iter().any(|end| name.ends_with(end)) {
        return Vec::new();
    }
    let dir = file.parent().filter(|dir| dir.file_name().is_some_and(|name| name == "subagents"));
    let session = match dir.and_then(Path::parent) {
        Some(session) => Some(session.to_owned()),
        None if name.starts_with("agent-") => session_of(file).map(|session| file.with_file_name(session)),
        None => None,
    };
    let Some(session) = session else {
        return Vec::new();
    };
    let name = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
    CLAUDE_ENDS.iter().map(|end| session.with_file_name(format!("{name}{end}"))).collect()
}

/// The session that the records of a file name.
fn session_of(file: &Path) -> Option<String> {
    let recording = Recording::open(file).ok()?;
    let lines = recording.reader().ok()?.take(1 << 20).lines().take(LINES_WITH_SESSION);
    let records = lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let named = records.filter_map(|record| record.get("sessionId")?.as_str().map(str::to_owned)).next();
    named.filter(|session| !session.is_empty() && !session.contains(['/', '\\']))
}

/// The recordings of a Claude Code session's subagents.
fn subagents(session: &Path) -> anyhow::Result<Vec<Recording>> {
    if !session.is_file() {
        return Ok(Vec::new());
    }
    let name = session.file_name().unwrap_or_default().to_string_lossy();
    let stem = CLAUDE_ENDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let beside = match session.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut files = Vec::new();
    for (dir, start) in [(beside.join(stem).join("subagents"), ""), (beside.to_owned(), "agent-")] {
        if !dir.is_dir() {
            continue;
        }
        let reading = || format!("reading {}", dir.display());
        for entry in std::fs::read_dir(&dir).with_context(reading)? {
            let file = entry.with_context(reading)?.path();
            let is_named = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
            let covers = |covering: &PathBuf| covering.file_name() == session.file_name();
            if is_named && file.is_file() && covering_files(&file).iter().any(covers) {
                files.push(file);
            }
        }
    }
    files.sort();
    files.iter().map(|file| Recording::open(file)).collect()
}

/// Takes the usage of a Cline task from its interface, which has one record for each request: its answers have none in older
/// versions, and do not tell reads from writes of the cache in newer ones.
fn take_cline_usage(session: &mut ImportedSession, history: &Path) {
    if history.file_name().is_none_or(|name| name != CLINE_HISTORY) {
        return;
    }
    let interface = Recording::open(&history.with_file_name(CLINE_INTERFACE));
    let interface = interface.and_then(|interface| interface.sessions(Some("cline")));
    for interface in interface.into_iter().flat_map(|imported| imported.sessions) {
        let requests = interface.events.iter().filter_map(|event| match event {
            RecordedEvent::Api { usage, model, .. } if *usage != TokenUsage::default() => Some((model, *usage)),
            _ => None,
        });
        let requests: Vec<(&Arc<str>, TokenUsage)> = requests.collect();
        let mut answers: Vec<&mut TokenUsage> = session.events.iter_mut().filter_map(answer_usage).collect();
        if answers.len() == requests.len() {
            answers.iter_mut().zip(&requests).for_each(|(answer, (_, usage))| **answer = *usage);
        } else if answers.is_empty() {
            session.unplaced.extend(requests.iter().map(|(model, usage)| {
                let model = if model.is_empty() { session.model.clone() } else { model.to_string() };
                UnplacedUsage { at: 0, model, tokens: BilledUsage::Call(*usage) }
            }));
        }
        if session.totals.is_empty() {
            session.totals = interface.totals;
        }
    }
}

/// The metadata of a Kiro CLI session, which are in a file beside its messages: `SESSION.json` beside `SESSION.jsonl`.
fn kiro_metadata(messages: &Path) -> Option<serde_json::Value> {
    if messages.extension().is_none_or(|extension| extension != "jsonl") {
        return None;
    }
    let file = Recording::open(&messages.with_extension("json")).ok()?;
    let (metadata, _) = importers::json::document(&mut file.reader().ok()?).ok()?;
    Some(metadata).filter(|metadata| metadata["session_state"]["conversation_metadata"].is_object())
}

/// The usage of an answer that has one.
fn answer_usage(event: &mut RecordedEvent) -> Option<&mut TokenUsage> {
    match event {
        RecordedEvent::Api { usage, .. } if *usage != TokenUsage::default() => Some(usage),
        _ => None,
    }
}

/// Copies a source into a temporary file, which is removed when it is dropped.
fn copied(source: impl Read, most: u64, limit: u64) -> io::Result<NamedTempFile> {
    let mut copy = NamedTempFile::new()?;
    let bound = most.min(limit);
    let copied = io::copy(&mut source.take(bound + 1), copy.as_file_mut())?;
    if copied > bound {
        let message = if bound < limit {
            format!("unpacks to more than {MOST_UNPACKED} times its size")
        } else {
            format!("is longer than the {limit} bytes that a recorded session may have")
        };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    copy.as_file_mut().flush()?;
    File::sync_data(copy.as_file()).ok();
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_small_packed_file_does_not_become_gigabytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bomb.jsonl.gz");
        let mut packer = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        let line = [b' '; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        for _ in 0..200 << 10 {
            packer.write_all(&line).unwrap();
        }
        packer.finish().unwrap();
        assert!(path.metadata().unwrap().len() < 2 << 20);
        let refused = format!("{:#}", Recording::open(&path).err().unwrap());
        assert!(refused.ends_with("unpacks to more than 100 times its size"), "{refused}");
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        for start in [&eval_archive::MAGIC[..], &[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd], &[0xff, 0xfe], b"{}"] {
            std::fs::write(&path, start).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(LONGEST_FILE + 1).unwrap();
            let refused = format!("{:#}", Recording::open(&path).err().unwrap());
            assert!(refused.contains("has 2147483649 bytes; the file of a recorded session"), "{refused}");
        }
    }

    #[test]
    fn a_path_that_is_not_a_regular_file_is_refused() {
        for path in ["/dev/zero", "/tmp"] {
            let refused = format!("{:#}", Recording::open(Path::new(path)).err().unwrap());
            assert!(refused.contains("not a regular file"), "{refused}");
        }
    }

    #[test]
    fn a_broken_character_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, b"a\xffb\n").unwrap();
        assert_eq!(Recording::open(&path).unwrap().text().unwrap(), "a\u{fffd}b\n");
    }

    /// The text that can be read of a file with these bytes.
    fn readable(bytes: &[u8]) -> anyhow::Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zst");
        std::fs::write(&path, bytes).unwrap();
        Recording::open(&path)?.text()
    }

    fn zst(text: &str) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn gz(text: &str) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn a_packed_file_that_is_cut_off_or_damaged_keeps_what_can_be_unpacked() {
        // Numbers, so that each block has something to pack.
        let text: String = (0..80_000_u64).map(|n| format!("{{\"a\":{}}}\n", n.wrapping_mul(n) % 99_991)).collect();
        for packed in [gz(&text), zst(&text)] {
            let cut = readable(&packed[..packed.len() * 9 / 10]).unwrap();
            assert!(text.starts_with(&cut) && cut.len() > text.len() / 2, "{}", cut.len());
            let with_text = [&packed[..], b"not packed"].concat();
            assert_eq!(readable(&with_text).unwrap(), text);
            let refused = format!("{:#}", readable(&packed[..5]).unwrap_err());
            assert!(refused.starts_with("unpacking ") && refused.contains("a.zst"), "{refused}");
        }
    }

    #[test]
    fn a_file_of_too_many_parts_is_refused_by_the_limit() {
        let skippable = b"\x50\x2a\x4d\x18\0\0\0\0".to_vec();
        for (part, called) in [(gz(""), "members"), (zst(""), "frames"), (skippable, "frames")] {
            // Content before them does not keep a part of the file.
            let start = if called == "members" { gz("{}\n") } else { zst("{}\n") };
            let within = [&start[..], &part.repeat(PACKED_PARTS - 1)].concat();
            assert_eq!(readable(&within).unwrap(), "{}\n");
            let refused = format!("{:#}", readable(&[&within[..], &part].concat()).unwrap_err());
            assert!(
                refused.ends_with(&format!("has more than {PACKED_PARTS} {called}, the limit for a packed file")),
                "{refused}"
            );
        }
    }

    #[test]
    fn utf_16_is_read_as_text() {
        // Longer than what is read at once, with a pair across its end.
        let text = format!("\u{feff}{}\u{1f600}é\n", "x".repeat((1 << 15) - 2));
        let units: Vec<u16> = text.encode_utf16().collect();
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let mut written: Vec<u8> = units.iter().flat_map(|unit| bytes(*unit)).collect();
            assert_eq!(readable(&written).unwrap(), text);
            written.push(b'x');
            assert_eq!(readable(&written).unwrap(), text);
        }
    }

    /// A line of Claude Code: an answer with a call of a million tokens in all.
    fn answer(session: &str, id: &str, subagent: Option<&str>) -> String {
        let call = serde_json::json!({"type": "tool_use", "id": format!("t{id}"), "name": "Read", "input": {"file_path": "/w/p/a"}});
        let message = serde_json::json!({"id": id, "role": "assistant", "model": "m", "content": [call], "usage": {"input_tokens": 1_000_000}});
        let line = serde_json::json!({"type": "assistant", "uuid": id, "sessionId": session, "cwd": "/w/p", "isSidechain": subagent.is_some(), "agentId": subagent, "timestamp": "2026-06-01T10:00:00Z", "message": message});
        format!("{line}\n")
    }

    fn answers(path: &Path) -> usize {
        let imported = Recording::open(path).unwrap().sessions(None).unwrap();
        let events = imported.sessions.iter().flat_map(|session| &session.events);
        events.filter(|event| matches!(event, RecordedEvent::Api { .. })).count()
    }

    #[test]
    fn a_session_covers_its_subagents_in_both_layouts_plain_and_packed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("s1/subagents")).unwrap();
        std::fs::write(at("s1.jsonl"), answer("s1", "m1", None)).unwrap();
        std::fs::write(at("s2.jsonl"), answer("s2", "m2", None)).unwrap();
        std::fs::write(at("s1/subagents/agent-x1.jsonl"), answer("s1", "m3", Some("x1"))).unwrap();
        let mut packer =
            GzEncoder::new(File::create(at("s1/subagents/agent-x2.jsonl.gz")).unwrap(), Compression::fast());
        packer.write_all(answer("s1", "m4", Some("x2")).as_bytes()).unwrap();
        packer.finish().unwrap();
        std::fs::write(at("agent-x3.jsonl"), answer("s1", "m5", Some("x3"))).unwrap();
        assert_eq!(answers(&at("s1.jsonl")), 4);
        assert_eq!(answers(&at("s2.jsonl")), 1);
        for subagent in ["s1/subagents/agent-x1.jsonl", "s1/subagents/agent-x2.jsonl.gz", "agent-x3.jsonl"] {
            assert!(covering_files(&at(subagent)).contains(&at("s1.jsonl")), "{subagent}");
        }
        assert_eq!(covering_files(&at("s1.jsonl")), Vec::<PathBuf>::new());
        assert_eq!(covering_files(&at("ui_messages.json")), [at("api_conversation_history.json")]);
    }

    #[test]
    fn a_recording_is_the_same_plain_and_packed() {
        let dir = tempfile::tempdir().unwrap();
        let text = "{\"role\":\"user\",\"content\":\"Hello.\"}\n{\"role\":\"assistant\",\"content\":\"Hello.\"}\n";
        let plain = dir.path().join("a.jsonl");
        std::fs::write(&plain, text).unwrap();
        let gz = dir.path().join("a.jsonl.gz");
        let mut packer = GzEncoder::new(File::create(&gz).unwrap(), Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap();
        let zst = dir.path().join("a.zst");
        let packed = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        std::fs::write(&zst, packed).unwrap();
        // A file may hold several frames, some without content.
        let frames = dir.path().join("b.zst");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let frame = |text: &str| {
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        };
        let skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec();
        std::fs::write(&frames, [frame(lines[0]), skippable, frame(""), frame(lines[1])].concat()).unwrap();
        let digests = [plain, gz, zst, frames].map(|path| {
            let imported = Recording::open(&path).unwrap().sessions(None).unwrap();
            assert_eq!(imported.importer.id(), "messages");
            imported.sha256
        });
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    }
}
