//! Parses the stream of a chat completion: server-sent events, each a piece of the answer.

use network::limits::MODEL_ANSWER;
use serde_json::Value;

use crate::{Finish, Usage};

/// The received part of an answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) finish: Option<Finish>,
    /// The model has declined, in the protocol's `refusal` field.
    is_refused: bool,
    pub(crate) usage: Option<Usage>,
    /// The server reports that it has no model.
    pub(crate) is_simulated: bool,
    /// The server has sent `[DONE]`.
    pub(crate) is_done: bool,
    /// Bytes of an incomplete line.
    rest: Vec<u8>,
}

impl Answer {
    /// Parses the next bytes of a stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        // Only the new bytes are searched: a line that does not end is not read again with each piece.
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if (self.rest.len() + self.text.len()) as u64 > MODEL_ANSWER.bytes {
                return Err(format!("it is longer than {} bytes", MODEL_ANSWER.bytes));
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                let line = std::str::from_utf8(&line).map_err(|_| "a line of the stream is not UTF-8".to_owned())?;
                self.line(line.trim())?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        // Comments only keep the connection alive; other fields are not needed.
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            return Ok(());
        };
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|error| format!("an event is not JSON: {error}"))?;
        self.event(&event)
    }

    /// Why the answer ended. A refusal counts as filtered, whatever the finish reason.
    pub(crate) fn finish(&self) -> Finish {
        if self.is_refused {
            return Finish::Filtered;
        }
        self.finish.unwrap_or(Finish::Other)
    }

    /// Parses one event, or a whole answer that was not streamed.
    pub(crate) fn event(&mut self, event: &Value) -> Result<(), String> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let said = error.get("message").and_then(Value::as_str);
            return Err(format!("an error: {}", said.unwrap_or("without a message")));
        }
        let choice = event.get("choices").and_then(|choices| choices.get(0));
        if choice.is_none() && event.get("usage").is_none() && event.get("choices").is_none() {
            return Err("it has neither `choices` nor `usage`".to_owned());
        }
        if let Some(choice) = choice {
            let message = choice.get("delta").or_else(|| choice.get("message"));
            let piece = message.and_then(|message| message.get("content"));
            self.text.push_str(piece.and_then(Value::as_str).unwrap_or_default());
            let refusal = message.and_then(|message| message.get("refusal"));
            self.is_refused |= refusal.and_then(Value::as_str).is_some_and(|refusal| !refusal.is_empty());
            if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
                self.finish = Some(match finish {
                    "stop" => Finish::Stop,
                    "length" => Finish::Length,
                    "content_filter" => Finish::Filtered,
                    _ => Finish::Other,
                });
            }
        }
        if let Some(usage) = event.get("usage").filter(|usage| !usage.is_null()) {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64);
            if let (Some(prompt), Some(output)) = (count("prompt_tokens"), count("completion_tokens")) {
                self.usage = Some(Usage { prompt, output, is_estimated: false });
            }
        }
        let fingerprint = event.get("system_fingerprint").and_then(Value::as_str);
        self.is_simulated |= fingerprint == Some(crate::SIMULATED);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Grü\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"ße\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        for size in 1..STREAM.len() {
            let mut answer = Answer::default();
            for piece in STREAM.as_bytes().chunks(size) {
                answer.push(piece).unwrap();
            }
            assert_eq!(answer.text, "Grüße");
            assert_eq!(answer.finish, Some(Finish::Stop));
            let usage = answer.usage.unwrap();
            assert_eq!((usage.prompt, usage.output), (7, 2));
            assert!(answer.is_done && !answer.is_simulated);
        }
    }

    #[test]
    fn a_refusal_that_ends_in_order_does_not_count_as_an_answer() {
        let mut answer = Answer::default();
        let refusal = r#""content":null,"refusal":"No.""#;
        let stream = STREAM.replacen(r#""content":"Grü""#, refusal, 1);
        answer.push(stream.as_bytes()).unwrap();
        assert_eq!(answer.finish, Some(Finish::Stop));
        assert_eq!(answer.finish(), Finish::Filtered);
    }

    #[test]
    fn a_line_that_is_not_an_event_is_refused() {
        for bad in [
            &b"data: {\"choices\": [\n"[..],
            b"data: {\"error\":{\"message\":\"context too long\"}}\n",
            b"data: {}\n",
            b"data: \xff\n",
        ] {
            assert!(Answer::default().push(bad).is_err(), "{bad:?}");
        }
    }
}
