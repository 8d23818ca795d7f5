//! Settings by directory: the prompt and the model that apply to a file.

use serde_json::Value;

/// A setting of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The model that writes the files.
    Model,
    /// The topic of the files, for the model.
    Prompt,
}

impl Setting {
    /// The name of its setting files in `.llmfs`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Prompt => "prompt",
        }
    }

    /// The setting files for the file at `path`, in lookup order: `.llmfs/NAME`, then `.llmfs/NAME.default`,
    /// first in its directory, then in each parent up to the root.
    pub(super) fn places(self, path: &str) -> Vec<String> {
        let mut places = Vec::new();
        let mut dir = path;
        while let Some(at) = dir.rfind('/') {
            dir = &dir[..at];
            // A file in `.llmfs` uses the settings of the directory that `.llmfs` is in.
            let of = dir.strip_suffix("/.llmfs").unwrap_or(dir);
            let name = self.name();
            for place in [format!("{of}/.llmfs/{name}"), format!("{of}/.llmfs/{name}.default")] {
                if place != path && !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// Parses a setting file: raw text, a JSON string, or a JSON object with a field of the setting's name.
    /// `None` if the value is empty.
    pub(super) fn value(self, content: &str) -> Option<String> {
        let raw = content.trim();
        let value = match serde_json::from_str(raw) {
            Ok(Value::String(text)) => text,
            Ok(Value::Object(fields)) => match fields.get(self.name()) {
                Some(Value::String(text)) => text.clone(),
                _ => raw.to_owned(),
            },
            _ => raw.to_owned(),
        };
        let value = value.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_looked_for_from_the_directory_up() {
        let places = Setting::Prompt.places("/src/components/a.js");
        let expected = [
            "/src/components/.llmfs/prompt",
            "/src/components/.llmfs/prompt.default",
            "/src/.llmfs/prompt",
            "/src/.llmfs/prompt.default",
            "/.llmfs/prompt",
            "/.llmfs/prompt.default",
        ];
        assert_eq!(places, expected);
        let places = Setting::Model.places("/src/.llmfs/model");
        assert_eq!(places, ["/src/.llmfs/model.default", "/.llmfs/model", "/.llmfs/model.default"]);
    }

    #[test]
    fn a_value_is_raw_text_or_json_and_an_empty_one_is_none() {
        let value = |text| Setting::Model.value(text);
        assert_eq!(value(" gpt-4o \n").as_deref(), Some("gpt-4o"));
        assert_eq!(value("\"gpt-4o\"").as_deref(), Some("gpt-4o"));
        assert_eq!(value("{\"model\": \"gpt-4o\"}").as_deref(), Some("gpt-4o"));
        assert_eq!(value("{\"x\": 1}").as_deref(), Some("{\"x\": 1}"));
        assert_eq!((value(""), value(" \n"), value("\"\"")), (None, None, None));
    }
}
