//! A model that answers questions about a log exactly. It interprets the prompt alone, so no model can answer
//! more.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Files by path; two paths of one file have the same number.
#[derive(Default)]
struct Files {
    paths: BTreeMap<String, usize>,
    contents: Vec<Vec<u8>>,
}

/// The answer to a question of `llm-history`, as JSON.
pub fn answer(question: &str) -> String {
    if question.contains("\nMay it be done, and why?") {
        return serde_json::json!({"allow": true, "reason": "why not"}).to_string();
    }
    let (log, asked) = question.rsplit_once('\n').unwrap();
    let mut files = Files::default();
    for line in log.lines().skip(1) {
        files.operation(line);
    }
    let path = asked.strip_prefix("What does the file ").unwrap();
    let path = path.strip_suffix(" hold now?").unwrap();
    let content = files.paths.get(path).map(|number| &files.contents[*number]);
    serde_json::json!({
        "exists": content.is_some(),
        "content": String::from_utf8_lossy(content.map_or(&[][..], Vec::as_slice)),
    })
    .to_string()
}

impl Files {
    fn content(&mut self, path: &str) -> &mut Vec<u8> {
        let next = self.contents.len();
        // The prompt may omit the creation of the file.
        let number = *self.paths.entry(path.to_owned()).or_insert(next);
        if number == next {
            self.contents.push(Vec::new());
        }
        &mut self.contents[number]
    }

    fn operation(&mut self, line: &str) {
        let Some((verb, rest)) = line.split_once(' ') else {
            return;
        };
        match verb {
            "create" => {
                self.paths.remove(rest);
                self.content(rest);
            }
            "link" => {
                let (from, to) = rest.split_once(" as /").unwrap();
                self.content(from);
                let number = self.paths[from];
                self.paths.insert(format!("/{to}"), number);
            }
            "delete" => {
                self.paths.remove(rest);
            }
            "rename" | "exchange" => {
                let (from, to) = rest.split_once(" to /").unwrap();
                let (from, to) = (from.to_owned(), format!("/{to}"));
                let moved = self.take(&from);
                let replaced = self.take(&to);
                self.put(&to, moved);
                if verb == "exchange" {
                    self.put(&from, replaced);
                }
            }
            "write" => {
                let Some((path, at, data)) = write(rest) else {
                    return;
                };
                let bytes = match data.strip_prefix("base64:") {
                    // A prompt cuts a long write, so its data is unknown.
                    Some(coded) => BASE64_STANDARD.decode(coded).unwrap_or_default(),
                    None => serde_json::from_str::<String>(data).unwrap().into_bytes(),
                };
                let end = at + bytes.len();
                let content = self.content(path);
                resize(content, content.len().max(end));
                if let Some(there) = content.get_mut(at..end) {
                    there.copy_from_slice(&bytes);
                }
            }
            "truncate" => {
                let (path, size) = rest.rsplit_once(" to ").unwrap();
                let size = size.strip_suffix(" bytes").unwrap().parse().unwrap();
                resize(self.content(path), size);
            }
            "reserve" | "zero" => {
                let (length, rest) = rest.split_once(" bytes of ").unwrap();
                let keeps = rest.strip_suffix(", and leave its size");
                let (path, at) = keeps.unwrap_or(rest).rsplit_once(" at ").unwrap();
                let (at, length): (usize, usize) = (at.parse().unwrap(), length.parse().unwrap());
                let content = self.content(path);
                if keeps.is_none() {
                    resize(content, content.len().max(at + length));
                }
                if verb == "zero" {
                    let end = content.len().min(at + length);
                    content[at.min(end)..end].fill(0);
                }
            }
            _ => {}
        }
    }

    /// Removes `path` and everything below it, and returns them.
    fn take(&mut self, path: &str) -> Vec<(String, usize)> {
        let below = format!("{path}/");
        let is_of = |name: &str| name == path || name.starts_with(&below);
        let taken: Vec<String> = self.paths.keys().filter(|name| is_of(name)).cloned().collect();
        taken
            .into_iter()
            .map(|name| {
                let number = self.paths.remove(&name).unwrap();
                (name[path.len()..].to_owned(), number)
            })
            .collect()
    }

    fn put(&mut self, path: &str, taken: Vec<(String, usize)>) {
        for (rest, number) in taken {
            self.paths.insert(format!("{path}{rest}"), number);
        }
    }
}

/// Limits the size: an answer has no room for longer files.
fn resize(content: &mut Vec<u8>, size: usize) {
    content.resize(size.min(1 << 20), 0);
}

/// Parses `PATH at N: DATA`; the path may contain ` at `.
fn write(rest: &str) -> Option<(&str, usize, &str)> {
    rest.match_indices(" at ").find_map(|(end, _)| {
        let (at, data) = rest[end + 4..].split_once(": ")?;
        let is_text = serde_json::from_str::<String>(data).is_ok();
        let is_data = is_text || data.starts_with("base64:");
        Some((&rest[..end], at.parse().ok()?, is_data.then_some(data)?))
    })
}
