//! Settings by directory: which prompt and which model hold for a file.

use serde_json::Value;

/// What can be set for a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The model that is asked.
    Model,
    /// What the files are about.
    Prompt,
}

impl Setting {
    /// The name of its files in `.llmfs`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Prompt => "prompt",
        }
    }

    /// The files that are looked at for the file at `path`, in order: `.llmfs/NAME`, then `.llmfs/NAME.default`, in its
    /// directory and in every one above, the root's last.
    pub(super) fn places(self, path: &str) -> Vec<String> {
        let mut places = Vec::new();
        let mut dir = path;
        while let Some(at) = dir.rfind('/') {
            dir = &dir[..at];
            // A setting file is itself looked up from the directory that it is for.
            let of = dir.strip_suffix("/.llmfs").unwrap_or(dir);
            let name = self.name();
            for place in [
                format!("{of}/.llmfs/{name}"),
                format!("{of}/.llmfs/{name}.default"),
            ] {
                if place != path && !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// What the content of such a file says: raw text, or JSON, a string or an object with a field of the setting's
    /// name. `None` if it is empty.
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
        let own = Setting::Model.places("/src/.llmfs/model");
        assert_eq!(
            own,
            [
                "/src/.llmfs/model.default",
                "/.llmfs/model",
                "/.llmfs/model.default"
            ]
        );
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
