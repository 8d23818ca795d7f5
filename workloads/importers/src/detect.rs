//! Finds the format of a recording by its content: by the head of the file, and, if it is JSON, by its shape.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Cursor, Read};

use serde::de::IgnoredAny;

use super::repair::repaired;
use super::{IMPORTERS, ImportedSession, Importer};

/// Bytes of a file of lines that are looked at.
const HEAD: u64 = 1 << 20;

/// Bytes of a document, or of a first line, that are looked at.
const DOCUMENT: u64 = 1 << 30;

/// Bytes of a block of a tar archive.
const TAR_BLOCK: u64 = 512;

/// Lines that are looked at.
const LINES: usize = 400;

/// The deepest field of the shape.
const DEPTH: usize = 9;

/// The most fields of the shape, the most values of a field, and the longest value in bytes.
const FIELDS: usize = 4096;
const VALUES: usize = 64;
const VALUE: usize = 120;

/// The beginning of a file, as importers see it.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The beginning of the text, which detection reads.
    pub text: String,
    /// Whether each line is a JSON value of its own.
    pub is_lines: bool,
    /// Whether the file is one JSON value.
    pub is_document: bool,
    /// Whether the value is a list, or the lines are.
    pub is_list: bool,
    fields: BTreeMap<String, BTreeSet<String>>,
}

impl Head {
    /// The head of a file.
    pub fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        // A disk that lost its data leaves zeros.
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\0'));
        let mut head = Self::default();
        let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
        let is_object = |line: &str| line.starts_with('{') && (is_json(line) || is_json(&repaired(line)));
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default();
        let others = lines.clone().take(LINES).count();
        // A bad first line does not make lines a document, nor does a document over many lines make it lines.
        let is_document = || matches!(first, "{" | "[") || serde_json::from_str::<IgnoredAny>(text).is_ok();
        head.is_lines = if is_object(first) { others > 0 } else { !is_document() && lines.take(6).any(is_object) };
        head.is_document = !head.is_lines && text.starts_with(['{', '[']);
        head.is_list = text.starts_with('[');
        if head.is_lines {
            for line in text.lines().take(LINES) {
                head.scan(line.trim());
            }
        } else if head.is_document {
            head.scan(text);
        }
        let end = (0..=text.len().min(64 << 10)).rev();
        let end = end.into_iter().find(|at| text.is_char_boundary(*at));
        head.text = text[..end.unwrap_or(0)].to_owned();
        head
    }

    /// Whether a record has this field, as in `payload.type`. Elements of lists have no name of their own.
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Whether a field of a record has this value.
    pub fn is(&self, field: &str, value: &str) -> bool {
        self.fields.get(field).is_some_and(|values| values.contains(value))
    }

    /// Whether a value of a field begins with this text.
    pub fn begins(&self, field: &str, start: &str) -> bool {
        let values = self.fields.get(field).into_iter().flatten();
        values.into_iter().any(|value| value.starts_with(start))
    }

    /// The fields of the records, without the fields in them.
    fn outer_fields(&self) -> Vec<&str> {
        let outer = self.fields.keys().filter(|field| !field.contains('.'));
        outer.map(String::as_str).take(12).collect()
    }

    fn add(&mut self, stack: &[Level], value: Option<&str>) {
        if stack.len() > DEPTH {
            return;
        }
        let names = stack.iter().filter_map(|level| match level {
            Level::Object(name) if !name.is_empty() => Some(name.as_str()),
            _ => None,
        });
        let field = names.collect::<Vec<_>>().join(".");
        if field.is_empty() || self.fields.len() >= FIELDS && !self.fields.contains_key(&field) {
            return;
        }
        let values = self.fields.entry(field).or_default();
        if let Some(value) = value
            && values.len() < VALUES
        {
            let mut value = value.to_owned();
            while value.len() > VALUE {
                value.pop();
            }
            values.insert(value);
        }
    }

    /// Notes the fields of a JSON text, which may be cut off.
    fn scan(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut stack: Vec<Level> = Vec::new();
        let mut is_name = false;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'{' => {
                    self.add(&stack, None);
                    stack.push(Level::Object(String::new()));
                    is_name = true;
                }
                b'[' => {
                    self.add(&stack, None);
                    stack.push(Level::List);
                    is_name = false;
                }
                b'}' | b']' => {
                    stack.pop();
                    is_name = false;
                }
                b',' => is_name = matches!(stack.last(), Some(Level::Object(_))),
                b':' => is_name = false,
                b'"' => {
                    let start = at + 1;
                    at = start;
                    while let Some(byte) = bytes.get(at)
                        && *byte != b'"'
                    {
                        at += if *byte == b'\\' { 2 } else { 1 };
                    }
                    let string = text.get(start..at.min(bytes.len())).unwrap_or_default();
                    match stack.last_mut() {
                        Some(Level::Object(name)) if is_name => {
                            string.clone_into(name);
                        }
                        _ => self.add(&stack, Some(string)),
                    }
                }
                b if b.is_ascii_whitespace() => {}
                _ => {
                    let start = at;
                    while bytes.get(at + 1).is_some_and(|b| !b",:]}\"{[".contains(b) && !b.is_ascii_whitespace()) {
                        at += 1;
                    }
                    let value = text.get(start..=at);
                    self.add(&stack, value);
                }
            }
            if stack.len() > 1000 {
                return;
            }
            at += 1;
        }
    }
}

enum Level {
    /// An object, and the name of the field that is being read.
    Object(String),
    List,
}

/// Known files that cannot be imported: how to recognise them, their description, and advice.
type KnownFormat = (fn(&Head) -> bool, &'static str, &'static str);

const KNOWN: &[KnownFormat] = &[
    (
        |head| head.text.starts_with("SQLite format 3"),
        "an SQLite database, as OpenCode, Cursor, Goose and others use for sessions",
        "export the session with its agent (OpenCode: `opencode export SESSION > session.json`)",
    ),
    (
        |head| head.text.starts_with("PK\u{3}\u{4}"),
        "a zip archive, as inspect_ai's `.eval` logs are",
        "unpack it, or convert the log: `inspect log convert --to json --output-dir DIR FILE`",
    ),
    (
        |head| head.is("t", "head") && head.has("fidelity"),
        "a ctxbench trace, which is already imported",
        "name it in a workload file for --workload, or inspect it with `ctxbench trace show`",
    ),
    (
        |head| head.is("v", "1") && head.has("cli_version") && head.has("agent") && head.has("content"),
        "a condensed transcript of the Entire CLI, which lacks cached tokens and the structure of results",
        "name the agent's own session, which is beside it as `full.jsonl` (branch `entire/checkpoints/v1`)",
    ),
    (
        |head| ["\u{1f}\u{fffd}\u{8}", "(\u{fffd}/\u{fffd}"].iter().any(|magic| head.text.starts_with(magic)),
        "a packed file within a packed one",
        "unpack it once, and name the file that comes out",
    ),
    (
        |head| head.text.contains("<!-- Generated by SpecStory"),
        "a conversation that SpecStory exported as Markdown, which lacks usage and most results of tools",
        "name the agent's own session, from which SpecStory made it",
    ),
    (
        |head| head.has("requests.message") && (head.has("requesterUsername") || head.has("responderUsername")),
        "a chat of Copilot in VS Code, which keeps neither usage nor whole results of tools",
        "name a session of Copilot CLI (`~/.copilot/session-state`)",
    ),
    (
        |head| head.has("sessionId") && head.has("message.parts"),
        "a session of Qwen Code",
        "add an importer (docs/ADDING-AN-IMPORTER.md)",
    ),
    (
        |head| head.has("step_index") && head.is("type", "PLANNER_RESPONSE"),
        "a conversation of Antigravity, which keeps no usage and cuts calls and results off",
        "name a session of Gemini CLI (`~/.gemini/tmp`) or of another agent",
    ),
    (
        |head| head.has("traj.role") && head.has("task_id") && head.has("reward"),
        "results of tau-bench, which have messages and tools of a service, but no files and no usage",
        "write the messages of one task, from which tokens are counted: `jq '.[0].traj' FILE > session.json`",
    ),
    (
        |head| head.text.starts_with("PAR1") || head.text.starts_with("ARROW1"),
        "a Parquet or Arrow table",
        "write its rows as JSON lines",
    ),
    (
        |head| {
            let start: String = head.text.chars().take(15).collect();
            start.to_lowercase().starts_with("<!doctype html") || start.starts_with("<html")
        },
        "a web page",
        "name the recording itself, not a page that shows it",
    ),
];

/// The importer for a file with this head.
///
/// # Errors
/// A message that says what the file looks like, or what was looked for.
pub fn detect(head: &Head) -> Result<&'static dyn Importer, String> {
    if let Some(importer) = IMPORTERS.iter().find(|importer| importer.detects(head)) {
        return Ok(*importer);
    }
    if let Some((_, what, fix)) = KNOWN.iter().find(|(is, _, _)| is(head)) {
        return Err(format!("this looks like {what}\n  fix: {fix}"));
    }
    if head.text.trim().is_empty() {
        return Err("is empty\n  fix: name the file of a recorded session".to_owned());
    }
    let what = if head.is_lines || head.is_document {
        let kind = match (head.is_lines, head.is_list) {
            (true, _) => "JSON lines",
            (false, true) => "a JSON list",
            (false, false) => "a JSON document",
        };
        match head.outer_fields()[..] {
            [] => format!("it is {kind}"),
            ref fields => format!("it is {kind} with the fields {}", fields.join(", ")),
        }
    } else {
        "it is not JSON, a strace log or an aider history".to_owned()
    };
    let looked_for = IMPORTERS.iter().map(|importer| importer.id());
    Err(format!(
        "has an unknown format: {what}\n  known formats: {}\n  fix: name the format with --format, or add an importer (docs/ADDING-AN-IMPORTER.md)",
        looked_for.collect::<Vec<_>>().join(", ")
    ))
}

/// Whether a file with this first block is a tar archive, in any of its formats: whether the block's checksum is right,
/// which counts its own bytes as blanks.
fn is_tar(block: &[u8]) -> bool {
    const CHECKSUM: std::ops::Range<usize> = 148..156;
    let (Some(field), true) = (block.get(CHECKSUM), block.len() as u64 == TAR_BLOCK) else {
        return false;
    };
    let digits: String = field.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_digit).collect();
    let bytes = block.iter().enumerate();
    let sum: u64 =
        bytes.map(|(at, byte)| if CHECKSUM.contains(&at) { u64::from(b' ') } else { u64::from(*byte) }).sum();
    u64::from_str_radix(&digits, 8) == Ok(sum)
}

/// The importer with this name.
///
/// # Errors
/// A message with the names.
pub fn importer(id: &str) -> Result<&'static dyn Importer, String> {
    let named = IMPORTERS.iter().find(|importer| importer.id() == id);
    named.copied().ok_or_else(|| {
        let names = IMPORTERS.iter().map(|importer| importer.id());
        format!("unknown format {id:?}; {}", inputs::names::alternatives(id, names))
    })
}

/// Reads the sessions of a recording: in the format with this name, or else in the one that its content shows.
///
/// # Errors
/// If the format is not known, or the recording does not follow it.
pub fn read(
    mut input: impl BufRead,
    format: Option<&str>,
) -> Result<(&'static dyn Importer, Vec<ImportedSession>), String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let mut start = Vec::new();
    // Records of several members would be read as one session.
    input.by_ref().take(TAR_BLOCK).read_to_end(&mut start).map_err(failed)?;
    if is_tar(&start) {
        return Err("is a tar archive, which can hold several sessions\n  fix: unpack it into a directory with `tar -xf ARCHIVE -C DIRECTORY`, and name the directory".to_owned());
    }
    let importer = match format {
        Some(id) => importer(id)?,
        None => {
            input.by_ref().take(HEAD - TAR_BLOCK).read_to_end(&mut start).map_err(failed)?;
            let mut head = Head::new(&start);
            let is_longer = start.len() as u64 == HEAD;
            let streaming = || detect(&head).ok().filter(|importer| is_longer && importer.streams());
            match streaming() {
                Some(importer) => importer,
                None => {
                    if is_longer && !start.contains(&b'\n') {
                        input.by_ref().take(DOCUMENT).read_until(b'\n', &mut start).map_err(failed)?;
                        head = Head::new(&start);
                    }
                    if head.is_document && is_longer {
                        // The distinguishing field of a document can be at its end.
                        input.by_ref().take(DOCUMENT).read_to_end(&mut start).map_err(failed)?;
                        head = Head::new(&start);
                    }
                    detect(&head)?
                }
            }
        }
    };
    let mut all = Cursor::new(start).chain(input);
    let is_nothing = |session: &ImportedSession| {
        session.events.is_empty() && session.totals.is_empty() && session.unplaced.is_empty()
    };
    let read = importer.import(&mut all);
    match (read, format) {
        (Ok(sessions), Some(id)) if sessions.iter().all(is_nothing) => Err(not_of_format(id, NOTHING)),
        (Ok(sessions), None) if sessions.iter().all(is_nothing) => {
            let (nothing, fix) = match importer.id() {
                "strace" => (NO_FILE, "name a log of a program that works on files of a project"),
                _ => (NOTHING, "name a session in which the agent has answered"),
            };
            Err(format!("looks like {}, but holds {nothing}\n  fix: {fix}", importer.reads()))
        }
        (Ok(sessions), _) => Ok((importer, sessions)),
        (Err(problem), Some(id)) if !problem.contains("fix: ") => Err(not_of_format(id, &problem)),
        (Err(problem), _) => Err(problem),
    }
}

/// What a recording without anything to import holds.
const NOTHING: &str = "no message, no call and no usage";

/// What a log without anything to import holds.
const NO_FILE: &str =
    "no call on a file of a project (those on the system's files, as below /usr, /etc and /nix, are left out)";

/// The problem of a recording that does not follow the format that the user named.
fn not_of_format(id: &str, problem: &str) -> String {
    let problem = if problem == NOTHING { format!("it holds {problem}") } else { problem.to_owned() };
    format!("is not of the format {id}: {problem}\n  fix: leave out --format, and the content shows the format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_lines_and_documents_is_noted_even_if_they_are_cut_off() {
        let lines = Head::new(b"{\"type\":\"a\",\"payload\":{\"type\":\"b\"}}\n{\"type\":\"c\",\"pay");
        assert!(lines.is_lines && lines.is("type", "a") && lines.is("type", "c"));
        assert!(lines.is("payload.type", "b") && !lines.has("pay"));
        let document = Head::new(b"{\n \"messages\": [\n {\"role\": \"user\", \"n\": [1, 2]}, {\"ro");
        assert!(document.is_document && document.is("messages.role", "user"));
        assert!(document.is("messages.n", "2"));
        let list = Head::new(b"[{\"role\":\"user\"}]");
        assert!(list.is_document && list.is_list && list.is("role", "user"));
    }

    #[test]
    fn any_bytes_have_a_head() {
        for bytes in [&b""[..], b"\xff\xfe", b"{", b"[[[[", b"}}}}", b"{\"a\\", b"\"", &[b'['; 5000]] {
            let _ = detect(&Head::new(bytes));
        }
    }

    #[test]
    fn a_recording_of_another_format_than_the_named_one_is_refused_with_advice() {
        let refused = |bytes: &[u8], format| read(bytes, format).map(|(found, _)| found.id()).unwrap_err();
        let claude = br#"{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"Hi."}}"#;
        for format in ["codex", "copilot", "inspect-ai"] {
            let refused = refused(claude, Some(format));
            let start = format!("is not of the format {format}: ");
            assert!(refused.starts_with(&start) && refused.contains("\n  fix: leave out --format"), "{refused}");
        }
        let refused = refused(br#"{"type":"session_meta","payload":{"id":"s"}}"#, None);
        assert!(refused.contains("holds no message") && refused.contains("\n  fix: "), "{refused}");
    }

    #[test]
    fn a_log_of_the_systems_files_alone_is_refused_in_words_of_files() {
        let log = b"10 execve(\"./a\", [\"./a\"], 0x7ffe /* 9 vars */) = 0\n10 openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = 3\n10 close(3) = 0\n10 exit_group(0) = ?\n10 +++ exited with 0 +++\n";
        let refused = read(&log[..], None).map(|(found, _)| found.id()).unwrap_err();
        assert!(refused.contains("strace") && refused.contains("no call on a file of a project"), "{refused}");
        assert!(!refused.contains("agent"), "{refused}");
    }

    #[test]
    fn a_tar_archive_of_sessions_is_refused_with_the_command_that_unpacks_it() {
        let session = r#"{"type":"user","sessionId":"s","uuid":"u","cwd":"/w","message":{"role":"user","content":"Hi."}}
{"type":"assistant","sessionId":"s","uuid":"v","cwd":"/w","message":{"id":"m","role":"assistant","model":"claude-opus-4-6","content":[{"type":"text","text":"Hi."}]}}
"#;
        let is_read = |bytes: &[u8], format| read(bytes, format).map(|(found, _)| found.id());
        assert_eq!(is_read(session.as_bytes(), None), Ok("claude-code"));
        // Archives of GNU, POSIX and of Unix V7, which has no magic number.
        for magic in [&b"ustar  \0"[..], b"ustar\x0000", b""] {
            let mut archive = vec![0; 512];
            archive[..7].copy_from_slice(b"a.jsonl");
            archive[100..108].copy_from_slice(b"0000644\0");
            archive[124..136].copy_from_slice(format!("{:011o} ", session.len()).as_bytes());
            archive[156] = b'0';
            archive[257..257 + magic.len()].copy_from_slice(magic);
            let sum: u64 = archive.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 8 * 32;
            archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            archive.extend(session.as_bytes());
            for format in [None, Some("claude-code")] {
                let refused = is_read(&archive, format).unwrap_err();
                assert!(refused.starts_with("is a tar archive") && refused.contains("tar -xf"), "{refused}");
            }
        }
    }

    #[test]
    fn an_unknown_file_is_named_or_described() {
        for (bytes, words) in [
            (&b"SQLite format 3\0"[..], "looks like an SQLite database"),
            (b"PK\x03\x04xx", "inspect log convert"),
            (b"<!DOCTYPE html><p>", "looks like a web page"),
            (b"\x1f\x8b\x08\x00", "a packed file within a packed one"),
            (b"\x28\xb5\x2f\xfd\x24", "a packed file within a packed one"),
            (b"{\"t\":\"head\",\"v\":1,\"fidelity\":\"shape\"}\n{\"t\":\"end\"}\n", "a ctxbench trace"),
            (
                b"{\"v\":1,\"agent\":\"a\",\"cli_version\":\"1\",\"type\":\"user\",\"content\":[]}\n{\"v\":1}\n",
                "full.jsonl",
            ),
            (b"<!-- Generated by SpecStory -->\n\n# Look\n", "that SpecStory exported"),
            (b"{\"version\":3,\"requesterUsername\":\"a\",\"requests\":[{\"message\":{\"text\":\"Hi.\"}}]}", "VS Code"),
            (
                b"{\"uuid\":\"u\",\"parentUuid\":null,\"sessionId\":\"s\",\"type\":\"user\",\"cwd\":\"/w\",\"message\":{\"role\":\"user\",\"parts\":[{\"text\":\"Hi.\"}]}}\n{\"type\":\"system\",\"sessionId\":\"s\"}\n",
                "Qwen Code",
            ),
            (
                b"{\"step_index\":0,\"source\":\"MODEL\",\"type\":\"PLANNER_RESPONSE\",\"status\":\"DONE\",\"content\":\"Hi.\"}\n{\"step_index\":1,\"source\":\"MODEL\",\"type\":\"LIST_DIRECTORY\",\"status\":\"DONE\"}\n",
                "Antigravity",
            ),
            (
                b"[{\"task_id\":0,\"reward\":1.0,\"trial\":0,\"traj\":[{\"role\":\"user\",\"content\":\"Hi.\"}]}]",
                "looks like results of tau-bench",
            ),
            (b"", "is empty\n  fix: "),
            (b"{\"alpha\":1,\"beta\":2}", "a JSON document with the fields alpha, beta"),
            (b"hello", "ADDING-AN-IMPORTER.md"),
        ] {
            let refused = detect(&Head::new(bytes)).map(|found| found.id()).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
