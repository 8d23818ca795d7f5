//! Lines of JSON from a peer that is not trusted: each has a limit, and the id of a request that exceeds it is still found.

use rmcp::model::RequestId;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The longest line, in bytes: as much as a tool reads of a file.
pub const LINE_MAX: usize = 16 << 20;

/// The longest id of a request that is too long, in bytes.
const ID_MAX: usize = 256;

/// One line.
#[derive(Debug, PartialEq)]
pub enum MessageLine {
    /// Without its end.
    Whole(Vec<u8>),
    /// It exceeded the limit and was dropped; the id of its request, if it has one.
    TooLong(Option<RequestId>),
}

/// Reads lines. A cancelled read loses nothing.
pub struct MessageLines<R> {
    input: R,
    longest: usize,
    line: Vec<u8>,
    /// Set while the rest of a line that is too long is skipped.
    skipped: Option<IdScanner>,
}

impl<R: AsyncBufRead + Unpin> MessageLines<R> {
    pub fn new(input: R, longest: usize) -> Self {
        Self { input, longest, line: Vec::new(), skipped: None }
    }

    /// The next line; `None` at the end of the input. The last line needs no end.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub async fn next(&mut self) -> std::io::Result<Option<MessageLine>> {
        loop {
            let read = self.input.fill_buf().await?;
            if read.is_empty() {
                let is_left = !self.line.is_empty() || self.skipped.is_some();
                return Ok(is_left.then(|| self.take()));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            if self.skipped.is_none() && self.line.len() + part.len() > self.longest {
                let mut scanner = IdScanner::default();
                scanner.read(&self.line);
                self.line = Vec::new();
                self.skipped = Some(scanner);
            }
            match &mut self.skipped {
                Some(scanner) => scanner.read(part),
                None => self.line.extend_from_slice(part),
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> MessageLine {
        match self.skipped.take() {
            Some(scanner) => MessageLine::TooLong(scanner.found),
            None => MessageLine::Whole(std::mem::take(&mut self.line)),
        }
    }
}

/// The id of a request, if it has one that can be found without parsing it.
pub fn id_of(line: &[u8]) -> Option<RequestId> {
    let mut scanner = IdScanner::default();
    scanner.read(line);
    scanner.found
}

/// Finds the value of the key `id` in the outermost object of a JSON text that is read in parts.
#[derive(Debug, Default)]
struct IdScanner {
    depth: u64,
    is_in_string: bool,
    is_escaped: bool,
    /// Whether the next token of the outermost object is a value.
    is_value: bool,
    /// The current token of the outermost object, to [`ID_MAX`] bytes and one more.
    token: Vec<u8>,
    is_id: bool,
    found: Option<RequestId>,
}

impl IdScanner {
    fn read(&mut self, part: &[u8]) {
        for byte in part {
            if self.found.is_some() {
                return;
            }
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.is_in_string {
            self.keep(byte);
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                // An object is not a valid id.
                self.token.clear();
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.token == br#""id""#;
                self.is_value = true;
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_value(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= ID_MAX {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.is_value && self.is_id {
            self.found = serde_json::from_slice(&self.token).ok();
        }
        (self.is_value, self.is_id) = (false, false);
        self.token.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn all(input: &[u8], longest: usize) -> Vec<MessageLine> {
        // A small buffer: lines and tokens are cut anywhere.
        let mut lines = MessageLines::new(BufReader::with_capacity(7, input), longest);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_its_id_is_found() {
        let number = Some(RequestId::Number(-7));
        let text = Some(RequestId::String("a\"b".into()));
        let long = "x".repeat(300);
        for (line, id) in [
            (format!(r#"{{"id": -7, "params": "{long}"}}"#), number.clone()),
            (format!(r#"{{"params": ["{long}", {{"id": 1}}], "id" :-7}}"#), number.clone()),
            (format!(r#"{{"a{long}": 1, "params": "\"id\": 3, \\", "id": "a\"b"}}"#), text),
            (format!(r#"{{"params": "{long}", "id": {{"id": 1}}, "x": 2}}"#), None),
            (format!(r#"{{"params": {{"id": 5}}, "value": "id", "y": "{long}"}}"#), None),
            (format!(r#"{{"id": "{long}", "y": "{long}"}}"#), None),
            (format!(r#"{{"id": 5.5, "y": "{long}"}}"#), None),
            (format!(r#"[{{"id": 5}}, "{long}"]"#), None),
            (format!(r#"}}}}{{"id": "{long}"#), None),
            (long.clone(), None),
        ] {
            let input = format!("one\n{line}\ntwo");
            let whole = |line: &str| MessageLine::Whole(line.as_bytes().to_vec());
            let expected = [whole("one"), MessageLine::TooLong(id), whole("two")];
            assert_eq!(all(input.as_bytes(), 64).await, expected, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_of_the_limit_is_whole() {
        for (length, is_whole) in [(64, true), (65, false)] {
            let lines = all(&vec![b'x'; length], 64).await;
            assert_eq!(lines.len(), 1);
            assert_eq!(matches!(lines[0], MessageLine::Whole(_)), is_whole, "{length}");
        }
    }
}
