//! The sessions that `ctxbench try` was given, as its run directory keeps them: their names, calls, tokens and dollars.

use std::io;
use std::path::Path;

use inputs::InputError;
use inputs::files::{self, RUN_DOCUMENT};
use serde::{Deserialize, Serialize};

/// The directory of a run with what `ctxbench try` made of the sessions.
pub const SESSIONS: &str = "sessions";

/// The file in it that lists them.
pub const LIST: &str = "sessions.json";

/// The most dollars of a session that a reader believes.
const MOST_DOLLARS: f64 = 1e9;

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriedSession {
    /// The name of its file, without the directories.
    pub name: String,
    /// The workload that replays it; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// The agent.
    pub agent: String,
    /// Recorded calls of tools.
    pub calls: u64,
    /// Those that can be replayed.
    pub replayed: u64,
    /// What each model used, as the recording reports it.
    pub bills: Vec<TriedBill>,
    /// Tokens that ctxbench counted, if the recording reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Dollars that the recording states itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<f64>,
}

/// What one model of a session used, as the recording reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriedBill {
    /// The model; empty if the recording does not say.
    pub model: String,
    /// Prompt tokens, cached or not.
    pub prompt: u64,
    /// Output tokens.
    pub output: u64,
    /// Dollars; `None` without a price.
    pub dollars: Option<f64>,
}

/// The sessions of a run directory; none if `ctxbench try` did not make it.
///
/// # Errors
/// If the list cannot be read, with file and line.
pub fn read(run: &Path) -> Result<Vec<TriedSession>, InputError> {
    let file = run.join(SESSIONS).join(LIST);
    let text = match files::read_text(&file, RUN_DOCUMENT) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        read => read.map_err(|error| InputError::whole(&file, error.to_string()))?,
    };
    let sessions: Vec<TriedSession> =
        serde_json::from_str(&text).map_err(|error| InputError::whole(&file, error.to_string()))?;
    let dollars =
        sessions.iter().flat_map(|session| session.bills.iter().map(|bill| bill.dollars).chain([session.stated]));
    let is_wrong = |dollars: &f64| !(0.0..=MOST_DOLLARS).contains(dollars);
    match dollars.flatten().find(is_wrong) {
        Some(wrong) => Err(InputError::whole(&file, format!("{wrong:e} are no dollars of a session"))),
        None => Ok(sessions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_a_damaged_one_is_refused_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        std::fs::create_dir(dir.path().join(SESSIONS)).unwrap();
        let file = dir.path().join(SESSIONS).join(LIST);
        let bill = TriedBill { model: "m".to_owned(), prompt: 5, output: 6, dollars: Some(0.25) };
        let session = TriedSession { name: "a.jsonl".to_owned(), bills: vec![bill], ..TriedSession::default() };
        let text = serde_json::to_string(&[&session]).unwrap();
        std::fs::write(&file, &text).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [session]);
        for (from, to) in [("0.25", "1e300"), ("0.25", "-1.0"), ("\"calls\"", "\"calles\""), ("]", "")] {
            let damaged = text.replace(from, to);
            assert_ne!(damaged, text);
            std::fs::write(&file, damaged).unwrap();
            let error = read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(LIST), "{error}");
        }
    }
}
