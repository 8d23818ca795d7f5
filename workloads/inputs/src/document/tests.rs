use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Everything {
    flag: bool,
    small: i8,
    large: u64,
    ratio: f64,
    letter: char,
    text: Option<String>,
    nothing: (),
    pair: (u8, String),
    list: Vec<Kind>,
    wrapped: Option<Wrapped>,
    by_number: BTreeMap<u16, bool>,
    by_kind: BTreeMap<Unit, i32>,
    tagged: Vec<Tagged>,
    untagged: Vec<Untagged>,
    flat: Flat,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(i64);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Unit {
    One,
    Other,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Unit,
    Value(i32),
    Pair(i32, i32),
    Fields { a: Option<u8> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
enum Tagged {
    A { a: u8 },
    B { b: Vec<Kind> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Text(String),
    Map(BTreeMap<String, u8>),
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Flat {
    own: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u8>,
}

/// Reads a text by this crate and by `serde_json`.
fn read(text: &str) -> (Result<Everything, Mismatch>, serde_json::Result<Everything>) {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    (Document::from_json(text).unwrap().read(), serde_json::from_value(value))
}

#[test]
fn it_reads_what_serde_json_reads() {
    let accepted = [
        "{}",
        r#"{"flag": true, "small": -128, "large": 18446744073709551615, "ratio": 3, "letter": "ä"}"#,
        r#"{"ratio": -1.5, "text": null, "nothing": null, "pair": [7, "x"]}"#,
        r#"{"text": "", "list": ["Unit", {"Unit": null}, {"Value": -1}, {"Pair": [1, 2]}, {"Fields": {"a": 3}}, {"Fields": {}}]}"#,
        r#"{"wrapped": 5, "by_number": {"1": true, "65535": false}, "by_kind": {"Other": 1, "One": -1}}"#,
        r#"{"tagged": [{"kind": "A", "a": 1}, {"b": ["Unit"], "kind": "B"}], "untagged": [1, "x", {"y": 2}]}"#,
        r#"{"flat": {"own": 1, "x": 2, "y": 3}}"#,
    ];
    for text in accepted {
        let (ours, theirs) = read(text);
        assert_eq!(ours.unwrap(), theirs.unwrap(), "{text}");
    }
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    let error = Document::from_json(r#"{"a": 1, "b": {"c": 1, "c": 2}}"#).unwrap_err();
    insta::assert_snapshot!(error, @"`c` appears twice at line 1 column 30");
}

#[test]
fn a_mismatch_says_what_was_found_and_what_is_allowed() {
    let error = |text| read(text).0.unwrap_err().to_string();
    insta::assert_snapshot!(error(r#"{"large": null}"#), @"large: invalid type: null, expected u64");
    insta::assert_snapshot!(error(r#"{"by_kind": {"Two": 1}}"#), @"by_kind.Two: unknown variant `Two`, expected `One` or `Other`");
    insta::assert_snapshot!(error(r#"{"list": [5]}"#), @"list[0]: invalid type: integer `5`, expected one of `Unit`, `Value`, `Pair`, `Fields`, or a table with one of them");
}

#[test]
fn a_list_is_not_a_struct() {
    let (ours, theirs) = read("[]");
    assert_eq!(theirs.unwrap(), Everything::default());
    let error = ours.unwrap_err().to_string();
    insta::assert_snapshot!(error, @"invalid type: sequence, expected struct Everything");
}

#[test]
fn it_refuses_what_serde_json_refuses_and_says_where() {
    let refused = [
        ("0", ""),
        (r#"{"other": 1}"#, "other"),
        (r#"{"flag": 1}"#, "flag"),
        (r#"{"small": 128}"#, "small"),
        (r#"{"small": 1.0}"#, "small"),
        (r#"{"large": -1}"#, "large"),
        (r#"{"ratio": "1"}"#, "ratio"),
        (r#"{"letter": "ab"}"#, "letter"),
        (r#"{"text": 1}"#, "text"),
        (r#"{"nothing": 0}"#, "nothing"),
        (r#"{"pair": [7]}"#, "pair"),
        (r#"{"pair": [7, "x", 1]}"#, "pair"),
        (r#"{"pair": [7, 7]}"#, "pair[1]"),
        (r#"{"list": ["Unit", "None"]}"#, "list[1]"),
        (r#"{"list": ["Value"]}"#, "list[0]"),
        (r#"{"list": [{"Unit": 1}]}"#, "list[0].Unit"),
        (r#"{"list": [{"Value": 1, "Unit": null}]}"#, "list[0]"),
        (r#"{"list": [{"Pair": [1]}]}"#, "list[0].Pair"),
        (r#"{"list": [{"Fields": {"a": 256}}]}"#, "list[0].Fields.a"),
        (r#"{"by_number": {"x": true}}"#, "by_number.x"),
        (r#"{"by_number": {"65536": true}}"#, "by_number.65536"),
        (r#"{"by_number": {"+1": true}}"#, "by_number.+1"),
        (r#"{"by_number": {"01": true}}"#, "by_number.01"),
        (r#"{"by_kind": {"Two": 1}}"#, "by_kind.Two"),
        (r#"{"tagged": [{"kind": "A", "a": 1}, {"kind": "A"}]}"#, "tagged[1]"),
        (r#"{"tagged": [{"kind": "A", "a": 1, "b": 1}]}"#, "tagged[0]"),
        (r#"{"untagged": [true]}"#, "untagged[0]"),
        (r#"{"flat": {"own": 1, "x": 256}}"#, "flat"),
    ];
    for (text, place) in refused {
        let (ours, theirs) = read(text);
        theirs.unwrap_err();
        assert_eq!(ours.unwrap_err().field(), place, "{text}");
    }
}

#[test]
fn a_text_with_too_many_values_is_refused_before_it_is_parsed() {
    let many = ",0".repeat(RECORD_VALUES);
    let error = Document::from_json(&format!("[0{many}]")).unwrap_err().to_string();
    assert_eq!(error, "it has more than 4000000 values");
    let error = Document::from_toml(&format!("a = '\"'\nb = [0{many}]")).unwrap_err().to_string();
    assert!(error.contains("it has more than 4000000 values"), "{error}");
    let text = "x,".repeat(RECORD_VALUES + 1);
    assert!(Document::from_json(&format!("\"{text}\"")).is_ok());
}
