//! An error is printed with its causes, so no message may contain its cause.

use crate::rust_files;

/// The `#[error(…)]` attributes in a source text, each with the definition that follows it.
fn messages(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("#[error(").skip(1).filter_map(|after| {
        let (message, definition) = after.split_once(")]\n")?;
        let end = ["\n    },", "\n}", "),\n"];
        let end = end.iter().filter_map(|end| definition.find(end)).min();
        Some((message, &definition[..end.unwrap_or(definition.len())]))
    })
}

fn repeats_its_cause((message, definition): (&str, &str)) -> bool {
    let has_cause = ["#[from]", "#[source]", " source:"].iter().any(|mark| definition.contains(mark));
    let parts = ["{0", "{source", ".0", ".source"];
    has_cause && parts.iter().any(|part| message.contains(part))
}

#[test]
fn no_error_message_repeats_its_cause() {
    let own = "#[error(\"cannot open: {0}\")]\n    Open(#[from] io::Error),\n";
    assert!(messages(own).any(repeats_its_cause));
    let own = "#[error(\"{}: {source}\", .file)]\n    Open {\n        source: io::Error,\n    },\n";
    assert!(messages(own).any(repeats_its_cause));
    let mut all = 0;
    for (file, text) in rust_files() {
        for found in messages(&text) {
            all += 1;
            let is_own = file.ends_with("repository/errors.rs");
            assert!(is_own || !repeats_its_cause(found), "{file}: {found:?}");
        }
    }
    assert!(all > 50, "only {all} messages were found");
}
