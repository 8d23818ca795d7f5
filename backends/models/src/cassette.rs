//! Recordings of a model's answers: JSON lines, one answer each, indexed by the hash of its request.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use inputs::files::{self, CASSETTE, RECORD_VALUES, has_more_values};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Cancel, Finish, Model, ModelError, Origin, Reply, Request, Timing, Usage};

/// Poll interval for cancellation during a replayed wait.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Characters of a question that identify it in a recording and in errors.
const ABOUT_MAX: usize = 80;

/// A line of a cassette.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    /// The first line.
    Head {
        /// The format's version.
        v: u32,
        /// The model that answered.
        model: String,
        /// The program that ran it, and where.
        engine: String,
        /// RFC 3339.
        recorded_at: String,
    },
    /// An answer.
    Answer {
        /// The request's [`Request::hash`].
        hash: String,
        /// The end of the question.
        about: String,
        text: String,
        finish: Finish,
        usage: Usage,
        first_byte_ms: f64,
        total_ms: f64,
        /// [`Reply::has_own_sampling`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_own_sampling: bool,
    },
}

/// Why a cassette cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("the cassette {}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A line is invalid.
    #[error("{}:{line}: {why}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The file holds another model's answers.
    #[error(
        "the cassette {} holds answers of {recorded}; answers of {model} would be replayed as its answers\n  fix: record into another file",
        .path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The model whose answers it holds.
        recorded: String,
        /// The model that was to be recorded.
        model: String,
    },
}

/// How long replayed answers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The recorded latency.
    AsRecorded,
    /// No time.
    Instant,
}

/// A model that replays a recording.
#[derive(Debug)]
pub struct Cassette {
    path: String,
    model: String,
    engine: String,
    pace: Pace,
    answers: HashMap<String, Reply>,
}

impl Cassette {
    /// Reads a recording.
    ///
    /// # Errors
    /// [`CassetteError`], which names the file and the line.
    pub fn open(path: &Path, pace: Pace) -> Result<Self, CassetteError> {
        let text =
            files::read_text(path, CASSETTE).map_err(|error| CassetteError::File { path: path.to_owned(), error })?;
        Self::parse(path, &text, pace)
    }

    /// Reads a recording from its text; `path` names it in errors.
    ///
    /// # Errors
    /// As [`Cassette::open`].
    pub fn parse(path: &Path, text: &str, pace: Pace) -> Result<Self, CassetteError> {
        let wrong = |line: usize, why: String| CassetteError::Line { path: path.to_owned(), line: line + 1, why };
        let mut head = None;
        let mut answers = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            if has_more_values(line.as_bytes(), RECORD_VALUES) {
                return Err(wrong(at, format!("it has more than {RECORD_VALUES} values")));
            }
            let line: Line = serde_json::from_str(line).map_err(|error| wrong(at, error.to_string()))?;
            match line {
                Line::Head { v, model, engine, .. } => {
                    if v != 1 || at != 0 {
                        return Err(wrong(
                            at,
                            format!("unexpected header of version {v}; a header of version 1 must come first"),
                        ));
                    }
                    head = Some((model, engine));
                }
                Line::Answer { hash, text, finish, usage, first_byte_ms, total_ms, has_own_sampling, .. } => {
                    let time = |ms: f64| {
                        Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| wrong(at, error.to_string()))
                    };
                    let timing = Timing {
                        first_byte: time(first_byte_ms)?,
                        total: time(total_ms)?,
                        attempts: 1,
                        ..Timing::default()
                    };
                    let reply = Reply { text, finish, usage, timing, origin: Origin::Recorded, has_own_sampling };
                    answers.entry(hash).or_insert(reply);
                }
            }
        }
        let Some((model, engine)) = head else {
            return Err(wrong(0, "the header is missing: this is not a cassette".to_owned()));
        };
        Ok(Self { path: path.display().to_string(), model, engine, pace, answers })
    }

    /// The program that ran the model during the recording.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Number of answers.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether the recording has no answers.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

impl Model for Cassette {
    fn name(&self) -> &str {
        &self.model
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let hash = request.hash();
        let Some(reply) = self.answers.get(&hash) else {
            return Err(ModelError::NotRecorded { cassette: self.path.clone(), about: about(request), hash });
        };
        let end = Instant::now() + reply.timing.total;
        while self.pace == Pace::AsRecorded && Instant::now() < end {
            if cancel.is_cancelled() {
                return Err(ModelError::Cancelled);
            }
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        Ok(reply.clone())
    }
}

/// A model whose answers are recorded.
pub struct Recorder {
    model: Box<dyn Model>,
    path: PathBuf,
    file: Mutex<Recording>,
}

struct Recording {
    file: File,
    known: HashSet<String>,
}

impl Recorder {
    /// Appends the answers of `model` to the recording at `path`. `engine` names the program that runs it.
    ///
    /// # Errors
    /// If the file cannot be written, or is not a recording of this model.
    pub fn open(model: Box<dyn Model>, path: &Path, engine: &str) -> Result<Self, CassetteError> {
        let failed = |error| CassetteError::File { path: path.to_owned(), error };
        let known = match files::read_text(path, CASSETTE) {
            Ok(text) if !text.is_empty() => {
                let cassette = Cassette::parse(path, &text, Pace::Instant)?;
                if cassette.model != model.name() {
                    return Err(CassetteError::OtherModel {
                        path: path.to_owned(),
                        recorded: cassette.model,
                        model: model.name().to_owned(),
                    });
                }
                cassette.answers.into_keys().collect()
            }
            Ok(_) => HashSet::new(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashSet::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut file = File::options().create(true).append(true).open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() == 0 {
            let head = Line::Head {
                v: 1,
                model: model.name().to_owned(),
                engine: engine.to_owned(),
                recorded_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            };
            write_line(&mut file, &head).map_err(failed)?;
        }
        Ok(Self { model, path: path.to_owned(), file: Mutex::new(Recording { file, known }) })
    }
}

impl Model for Recorder {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let reply = self.model.complete(request, cancel)?;
        let hash = request.hash();
        let mut recording = self.file.lock();
        if !recording.known.contains(&hash) {
            let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
            let line = Line::Answer {
                hash: hash.clone(),
                about: about(request),
                text: reply.text.clone(),
                finish: reply.finish,
                usage: reply.usage,
                first_byte_ms: millis(reply.timing.first_byte),
                total_ms: millis(reply.timing.total),
                has_own_sampling: reply.has_own_sampling,
            };
            write_line(&mut recording.file, &line).map_err(|error| ModelError::NotWritten {
                cassette: self.path.display().to_string(),
                why: error.to_string(),
            })?;
            recording.known.insert(hash);
        }
        Ok(reply)
    }
}

fn write_line(file: &mut File, line: &Line) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    // One write, so that an interrupted recording ends with a complete line.
    file.write_all(&bytes)
}

/// The end of a request's last question, on one line.
fn about(request: &Request) -> String {
    let question = request.messages.last().map(|message| message.content.as_str());
    let words: Vec<&str> = question.unwrap_or_default().split_whitespace().collect();
    let line = words.join(" ");
    // The end distinguishes a question; its beginning is the same in all of them.
    let skip = line.chars().count().saturating_sub(ABOUT_MAX);
    line.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Role};

    struct UpperCaseModel;

    impl Model for UpperCaseModel {
        fn name(&self) -> &str {
            "upper"
        }
        fn complete(&self, request: &Request, _: &Cancel) -> Result<Reply, ModelError> {
            Ok(Reply {
                text: request.messages[0].content.to_uppercase(),
                finish: Finish::Stop,
                usage: Usage { prompt: 3, output: 1, is_estimated: false },
                timing: Timing {
                    first_byte: Duration::from_millis(10),
                    total: Duration::from_millis(40),
                    attempts: 1,
                    ..Timing::default()
                },
                origin: Origin::Live,
                has_own_sampling: true,
            })
        }
    }

    fn request(text: &str) -> Request {
        Request { messages: vec![Message::new(Role::User, text)], ..Request::default() }
    }

    #[test]
    fn only_recorded_answers_are_replayed_and_with_their_latency() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.jsonl");
        for _ in 0..2 {
            let recorder = Recorder::open(Box::new(UpperCaseModel), &path, "test").unwrap();
            let live = recorder.complete(&request("a"), &Cancel::default());
            assert_eq!(live.unwrap().origin, Origin::Live);
        }
        let cassette = Cassette::open(&path, Pace::AsRecorded).unwrap();
        assert_eq!((cassette.name(), cassette.engine()), ("upper", "test"));
        assert_eq!(cassette.len(), 1);
        let started = Instant::now();
        let reply = cassette.complete(&request("a"), &Cancel::default());
        let reply = reply.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(40));
        assert_eq!((reply.text.as_str(), reply.origin), ("A", Origin::Recorded));
        assert_eq!(reply.timing.first_byte, Duration::from_millis(10));
        assert_eq!(reply.usage.prompt, 3);
        assert!(reply.has_own_sampling, "a replay says that the answer was not deterministic");

        let miss = cassette.complete(&request("b"), &Cancel::default());
        let miss = miss.unwrap_err().to_string();
        for part in [request("b").hash().as_str(), "c.jsonl"] {
            assert!(miss.contains(part), "{miss}");
        }
    }

    #[test]
    fn another_models_recording_is_not_added_to() {
        struct LowerCaseModel;
        impl Model for LowerCaseModel {
            fn name(&self) -> &str {
                "lower"
            }
            fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
                UpperCaseModel.complete(request, cancel)
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.jsonl");
        Recorder::open(Box::new(UpperCaseModel), &path, "test").unwrap();
        let refused = Recorder::open(Box::new(LowerCaseModel), &path, "test").map(|_| ());
        let refused = refused.unwrap_err().to_string();
        for part in ["c.jsonl", "answers of upper", "answers of lower"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_cassette_is_refused_with_file_and_line() {
        let head = r#"{"t":"head","v":1,"model":"m","engine":"e","recorded_at":"now"}"#;
        for (text, line) in [
            ("", ":1:"),
            ("nonsense", ":1:"),
            (&format!("{head}\n{{\"t\":\"answer\"}}"), ":2:"),
            (&format!("{head}\n{head}"), ":2:"),
            (&head.replace("\"v\":1", "\"v\":2"), ":1:"),
            (&head.replace("\"t\"", "\"x\":1,\"t\""), ":1:"),
        ] {
            let error = Cassette::parse(Path::new("c.jsonl"), text, Pace::Instant);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("c.jsonl") && error.contains(line), "{text}: {error}");
        }
    }
}
