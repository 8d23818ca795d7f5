use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Debug, Default, Deserialize)]
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
    by_kind: BTreeMap<Unit, Vec<i32>>,
    tagged: Vec<Tagged>,
    untagged: Vec<Untagged>,
    flat: Flat,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only its errors are looked at")]
struct Wrapped(i64);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Unit {
    One,
    Other,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only its errors are looked at")]
enum Kind {
    Unit,
    Value(i32),
    Pair(i32, i32),
    Fields { a: Option<u8> },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
#[expect(dead_code, reason = "only its errors are looked at")]
enum Tagged {
    A { a: u8 },
    B { b: Vec<Kind> },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its errors are looked at")]
enum Untagged {
    Number(f64),
    Text(String),
    Map(BTreeMap<String, u8>),
}

#[derive(Debug, Default, Deserialize)]
#[expect(dead_code, reason = "only its errors are looked at")]
struct Flat {
    own: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u8>,
}

fn refused(json: &str) -> Mismatch {
    read_value::<Everything>(parse_json(json).unwrap()).unwrap_err()
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    let error = parse_json(r#"{"a": 1, "b": {"c": 1, "c": 2}}"#).unwrap_err();
    insta::assert_snapshot!(error, @"`c` appears twice at line 1 column 30");
}

#[test]
fn a_mismatch_says_what_was_found_and_what_is_allowed() {
    insta::assert_snapshot!(refused(r#"{"large": null}"#), @"field `large`: invalid type: null, expected u64");
    insta::assert_snapshot!(refused(r#"{"by_kind": {"Two": []}}"#), @"field `by_kind`: unknown variant `Two`, expected `One` or `Other`");
    insta::assert_snapshot!(refused(r#"{"by_number": {"+1": true}}"#), @"field `by_number`: invalid value: expected key to be a number in quotes");
    insta::assert_snapshot!(refused(r#"{"list": [5]}"#), @"field `list[0]`: invalid type: integer `5`, expected string or map");
}

#[test]
fn a_mismatch_says_where() {
    let places = [
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
        (r#"{"list": ["Value"]}"#, "list[0].Value"),
        (r#"{"list": [{"Unit": 1}]}"#, "list[0].Unit"),
        (r#"{"list": [{"Value": 1, "Unit": null}]}"#, "list[0]"),
        (r#"{"list": [{"Pair": [1]}]}"#, "list[0].Pair"),
        (r#"{"list": [{"Pair": [1, 2, 3]}]}"#, "list[0].Pair"),
        (r#"{"list": [{"Fields": {"a": 256}}]}"#, "list[0].Fields.a"),
        (r#"{"wrapped": "1"}"#, "wrapped"),
        // A key that is not the number that it should be is not part of the path.
        (r#"{"by_number": {"x": true}}"#, "by_number"),
        (r#"{"by_number": {"65536": true}}"#, "by_number.65536"),
        (r#"{"by_number": {"+1": true}}"#, "by_number"),
        (r#"{"by_number": {"01": true}}"#, "by_number"),
        (r#"{"by_kind": {"Two": []}}"#, "by_kind"),
        (r#"{"by_kind": {"One": [1, "x"]}}"#, "by_kind"),
        (r#"{"tagged": [{"kind": "A", "a": 1}, {"kind": "A"}]}"#, "tagged[1]"),
        (r#"{"tagged": [{"kind": "A", "a": 1, "b": 1}]}"#, "tagged[0]"),
        (r#"{"untagged": [true]}"#, "untagged[0]"),
        (r#"{"flat": {"own": 1, "x": 256}}"#, "flat"),
    ];
    for (json, place) in places {
        assert_eq!(refused(json).field(), place, "{json}");
    }
}

#[test]
fn toml_becomes_json_with_dates_as_text_and_without_infinite_numbers() {
    let value = toml_as_json("a = 2026-11-27\nb = [-1, 2.5, true]\n[c]\nd = {}\n").unwrap();
    assert_eq!(value.to_string(), r#"{"a":"2026-11-27","b":[-1,2.5,true],"c":{"d":{}}}"#);
    let error = |text: &str| toml_as_json(text).unwrap_err().message().to_owned();
    insta::assert_snapshot!(error("a = [{ b = -inf }]"), @"field `a[0].b`: the number -inf is out of range");
    insta::assert_snapshot!(error("a = nan"), @"field `a`: the number NaN is out of range");
}

#[test]
fn nested_lists_are_refused_before_they_fill_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let value = parse_json(&nested(127)).unwrap();
    read_value::<Value>(value).unwrap();
    let error = parse_json(&nested(100_000)).unwrap_err().to_string();
    assert!(error.starts_with("recursion limit exceeded"), "{error}");
    toml_as_json(&format!("a = {}", nested(70))).unwrap();
    toml_as_json(&format!("a = {}", nested(100_000))).unwrap_err();
}

#[test]
fn a_text_with_too_many_values_is_refused_before_it_is_parsed() {
    let many = ",0".repeat(RECORD_VALUES);
    let error = parse_json(&format!("[0{many}]")).unwrap_err().to_string();
    assert_eq!(error, "it has more than 4000000 values");
    let error = toml_tree(&format!("a = '\"'\nb = [0{many}]")).unwrap_err().to_string();
    assert!(error.contains("it has more than 4000000 values"), "{error}");
    let text = "x,".repeat(RECORD_VALUES + 1);
    assert!(parse_json(&format!("\"{text}\"")).is_ok());
}
