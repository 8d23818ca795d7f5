//! A member of a JSON object, replaced in its text: what a program wrote around it stays as it is.

use serde::de::IgnoredAny;

use crate::source::elements::value_length;

/// The length of what `is` accepts at the start of a text.
fn run(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|char| !is(char)).unwrap_or(text.len())
}

fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

/// The length of a value, or of a key, at the start of valid JSON: up to the comma, colon or bracket after it.
fn length(text: &str) -> usize {
    value_length(text.as_bytes(), b",:]}").unwrap_or(text.len())
}

/// The text of an object with `value`, which is JSON, as its member `key`; a missing member becomes the first. `None` if the
/// text is not an object, if it has the member twice, or if `value` is not JSON.
pub(super) fn put(object: &str, key: &str, value: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(object).ok()?;
    serde_json::from_str::<IgnoredAny>(value).ok()?;
    let start = run(object, is_blank);
    let members = object[start..].strip_prefix('{')?;
    let first = object.len() - members.len();
    let (mut at, mut found) = (first, None);
    loop {
        at += run(&object[at..], is_blank);
        if object[at..].starts_with('}') {
            break;
        }
        let name = &object[at..at + length(&object[at..])];
        at += name.len() + 1;
        at += run(&object[at..], is_blank);
        let old = &object[at..at + length(&object[at..])];
        if serde_json::from_str::<String>(name).ok()? == key {
            let old = at..at + old.trim_end_matches(is_blank).len();
            if found.replace(old).is_some() {
                return None;
            }
        }
        at += old.len();
        if object[at..].starts_with(',') {
            at += 1;
        }
    }
    Some(match found {
        Some(old) => format!("{}{value}{}", &object[..old.start], &object[old.end..]),
        None => {
            let end = if object[first..].trim_start_matches(is_blank).starts_with('}') { "" } else { ", " };
            let key = serde_json::to_string(key).ok()?;
            format!("{}{key}: {value}{end}{}", &object[..first], &object[first..])
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_replaced_in_its_place_and_all_other_bytes_stay() {
        for (object, key, value, expected) in [
            (r#"{"state": "open", "n": 1}"#, "state", "\"done\"", Some(r#"{"state": "done", "n": 1}"#)),
            (
                "{\n  \"n\" : [1, {\"state\": 2}],\n  \"state\" : 3\n}\n",
                "state",
                "4",
                Some("{\n  \"n\" : [1, {\"state\": 2}],\n  \"state\" : 4\n}\n"),
            ),
            (r#"{"a": "}\",{", "\u0061b": {}}"#, "ab", "[]", Some(r#"{"a": "}\",{", "\u0061b": []}"#)),
            ("{}", "state", "1", Some(r#"{"state": 1}"#)),
            (" { \"n\":1}", "s\"", "1", Some(" {\"s\\\"\": 1,  \"n\":1}")),
            (r#"{"s": 1, "s": 2}"#, "s", "3", None),
            ("[1]", "s", "3", None),
            ("{", "s", "3", None),
            ("{}", "s", "nonsense", None),
            ("", "s", "1", None),
        ] {
            assert_eq!(put(object, key, value).as_deref(), expected, "{object}");
        }
    }

    proptest::proptest! {
            #[test]
            fn any_object_has_the_new_member_and_its_other_ones(
                members in proptest::collection::btree_map(".{0,4}", ".{0,4}", 0..6),
                key in ".{0,4}",
                is_pretty: bool,
            ) {
                let text = if is_pretty {
    serde_json::to_string_pretty(&members)
    } else {
    serde_json::to_string(&members)
    };
                let changed = put(&text.unwrap(), &key, "\"new\"").unwrap();
                let changed: std::collections::BTreeMap<String, String> = serde_json::from_str(&changed).unwrap();
                let mut expected = members;
                expected.insert(key, "new".to_owned());
                proptest::prop_assert_eq!(changed, expected);
            }

            #[test]
            fn any_text_has_an_answer(text in "[\\[\\]{}\",:\\\\ a1é]{0,40}") {
                let _ = put(&text, "a", "1");
            }
        }
}
