use super::*;

fn compared(name: &str, stated: &str, recomputed: &str, has_our_words: bool) -> PublishedFiles {
    let places = ["results/run".to_owned()];
    let terms = PublishedTerms { has_our_words, places: &places };
    let mut found = PublishedFiles::default();
    found.compare(name, stated, recomputed, &terms);
    found
}

/// The differences of a file in words of this build, as `row | field | stated | recomputed`.
fn differences(name: &str, stated: &str, recomputed: &str) -> Vec<String> {
    let found = compared(name, stated, recomputed, true);
    let words = found
        .differences
        .iter()
        .map(|one| format!("{} | {} | {} | {}", one.row, one.field, one.stated, one.recomputed));
    words.collect()
}

const TABLE: &str = "workload,arm,p50_ns,verdict\nmicro/stat,direct,10,\nmicro/stat,sqlite,20.5,worse\n";

#[test]
fn a_changed_field_of_a_table_is_named_with_both_values() {
    assert_eq!(differences("cells.csv", TABLE, TABLE), Vec::<String>::new());
    let changed = TABLE.replace("20.5", "10.5");
    let expected = "row 2 (micro/stat, sqlite) | p50_ns | 10.5 | 20.5";
    assert_eq!(differences("cells.csv", &changed, TABLE), [expected]);
    let verdict = TABLE.replace("worse", "better");
    let expected = "row 2 (micro/stat, sqlite) | verdict | better | worse";
    assert_eq!(differences("cells.csv", &verdict, TABLE), [expected]);
    assert_eq!(
        differences("cells.csv", &TABLE.replace("p50_ns", "p99_ns"), TABLE),
        ["line 1 | columns | workload, arm, p99_ns, verdict | workload, arm, p50_ns, verdict"]
    );
}

#[test]
fn a_missing_or_added_row_is_named_and_the_others_are_compared_with_their_own() {
    let without = TABLE.replace("micro/stat,direct,10,\n", "");
    let expected = "row 1 (micro/stat, direct) |  | no such row | micro/stat,direct,10,";
    assert_eq!(differences("cells.csv", &without, TABLE), [expected]);
    let added = format!("{TABLE}micro/stat,memory,1,better\n");
    let expected = "row 3 (micro/stat, memory) |  | micro/stat,memory,1,better | no such row";
    assert_eq!(differences("cells.csv", &added, TABLE), [expected]);
}

#[test]
fn two_texts_of_one_value_differ() {
    let quoted = TABLE.replace("20.5", "\"20.5\"");
    assert_eq!(differences("cells.csv", &quoted, TABLE).len(), 1);
    let (twice, once) = (r#"{"a": 1, "a": 2}"#, r#"{"a": 2}"#);
    assert_eq!(differences("report.json", twice, once).len(), 1);
    assert_eq!(differences("cells.csv", &TABLE.replace('\n', "\r\n"), TABLE).len(), 1);
}

#[test]
fn a_changed_value_of_a_document_is_named_by_its_path() {
    let json = r#"{"schema": 4, "summary": {"cells": [{"workload": "micro/stat", "arm": "sqlite", "ns": 2.5, "modes": null}]}}"#;
    assert_eq!(differences("report.json", json, json), Vec::<String>::new());
    for (from, to, expected) in [
        ("2.5", "2.4", "summary.cells[0] (micro/stat, sqlite) | ns | 2.4 | 2.5"),
        ("null", "1", "summary.cells[0] (micro/stat, sqlite) | modes | 1 | null"),
        (", \"modes\": null", "", "summary.cells[0] (micro/stat, sqlite) | modes | no such field | null"),
        ("\"schema\": 4", "\"schema\": \"4\"", " | schema | \"4\" | 4"),
    ] {
        let changed = json.replace(from, to);
        let found = differences("report.json", &changed, json);
        assert_eq!(found, [expected], "{from}");
    }
    let fewer = r#"{"schema": 4, "summary": {"cells": []}}"#;
    assert_eq!(differences("report.json", fewer, json), ["summary.cells | length | 0 items | 1 items"]);
}

const PAGE: &str = "<h2 id=\"uses\">Uses</h2><p><b>Keep files.</b> sqlite takes ×1.5 [1.3, 1.7].</p>\n<td>975 ns<td>better\n<p>Again: <code>ctxbench report results/run</code>.</p>\n";

#[test]
fn a_changed_word_of_a_page_is_named_with_its_line_and_anchor() {
    assert_eq!(differences("report.html", PAGE, PAGE), Vec::<String>::new());
    for (from, to, expected) in [
        ("1.3,", "1.1,", "line 1, below \"uses\" | text | [1.1, 1.7]. | [1.3, 1.7]."),
        ("975", "97.5", "line 2, below \"uses\" | text | 97.5 ns | 975 ns"),
        ("better", "worse", "line 2, below \"uses\" | text | worse | better"),
        ("<td>975 ns", "", "line 2, below \"uses\" | text | nothing here | <td>975 ns"),
    ] {
        let found = differences("report.html", &PAGE.replace(from, to), PAGE);
        assert_eq!(found, [expected], "{from}");
    }
    let chart = "<svg><text x=\"1\">a</text><rect width=\"20\"/></svg>";
    let found = differences("charts/a.svg", &chart.replace("20", "10"), chart);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = "# Run\n\n| a | ×1.5 |\n";
    let expected = "line 3, below \"Run\" | text | ×1.4 | | ×1.5 |";
    assert_eq!(differences("report.md", &text.replace("×1.5", "×1.4"), text), [expected]);
}

#[test]
fn the_path_of_a_copied_run_directory_is_no_difference() {
    let moved = PAGE.replace("results/run", "/srv/copies/7");
    assert_eq!(differences("report.html", &moved, PAGE), Vec::<String>::new());
    // Nothing else may stand in the place of the path.
    let figure = PAGE.replace("results/run</code>.", "results/run</code> 9 times faster.");
    assert_eq!(differences("report.html", &figure, PAGE).len(), 1);
}

#[test]
fn in_words_of_another_version_figures_and_verdicts_are_compared_and_prose_is_not() {
    let found = |name: &str, stated: &str, recomputed: &str| {
        let found = compared(name, stated, recomputed, false);
        (found.differences.len(), found.notes.len())
    };
    let old = PAGE.replace("Keep files.", "Keep your plain files.").replace("takes", "needs");
    assert_eq!(found("report.html", &old, PAGE), (0, 1));
    let reordered = PAGE.replace("sqlite takes ×1.5 [1.3, 1.7].", "It takes ×1.5 (sqlite).");
    assert_eq!(found("report.html", &reordered, PAGE), (0, 1));
    assert_eq!(found("report.html", &old.replace("1.3", "1.1"), PAGE).0, 1);
    assert_eq!(found("report.html", &PAGE.replace("975", "957"), PAGE).0, 1);
    assert_eq!(found("report.html", &PAGE.replace("better", "worse"), PAGE).0, 1);
    let table = "policy,row,figure,status\ncoding,\"Time of a session, in its git steps\",4.5,missed\n";
    let title = table.replace("Time of a session, in its git steps", "The git steps of a session take longer");
    assert_eq!(found("decisions.csv", &title, table), (0, 1));
    for (from, to) in [("4.5", "1.5"), ("missed", "met"), ("take", "take 7 times")] {
        let changed = title.replace(from, to);
        assert_eq!(found("decisions.csv", &changed, table).0, 1, "{from}");
    }
    let (json, more) = (r#"{"a": 1}"#, r#"{"a": 1, "b": 2}"#);
    assert_eq!(found("report.json", json, more), (0, 1));
    assert_eq!(found("report.json", r#"{"a": 3}"#, more).0, 1);
}

#[test]
fn a_missing_file_and_one_that_no_report_has_are_differences() {
    let (published, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = |dir: &Path, name: &str, text: &str| {
        let file = dir.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    for dir in [published.path(), again.path()] {
        put(dir, "cells.csv", TABLE);
        put(dir, "hist/a.hlog", "1\n2\n");
    }
    put(published.path(), "samples.jsonl", "{}\n");
    put(published.path(), "plan.toml", "");
    put(published.path(), "env.json", "{}");
    put(published.path(), "notes.md", "mine");
    let compare = || {
        let terms = PublishedTerms { has_our_words: true, places: &[] };
        let found = compare_published(published.path(), again.path(), &terms, |_, _, _| {}).unwrap();
        let files = found.differences.iter().map(|one| one.file.clone());
        (files.collect::<Vec<_>>(), found.notes)
    };
    let (differences, notes) = compare();
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(notes, ["notes.md is not part of the report: not checked"]);
    put(published.path(), "hist/a.hlog", "1\n3\n");
    put(published.path(), "hist/b.hlog", "1\n");
    put(published.path(), "claims.csv", "id\n");
    fs::remove_file(published.path().join("cells.csv")).unwrap();
    assert_eq!(compare().0, ["cells.csv", "hist/a.hlog", "claims.csv", "hist/b.hlog"]);
    // A link is not followed.
    std::os::unix::fs::symlink(again.path().join("cells.csv"), published.path().join("cells.csv")).unwrap();
    assert!(compare().0.contains(&"cells.csv".to_owned()));
}
