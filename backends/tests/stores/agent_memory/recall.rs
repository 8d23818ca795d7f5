//! Recall: its order and its token budget.

use fuse::store::{Errno, ROOT, Store};

use super::{DAY, Memory, place, with_memory};
use crate::common::{has, lacks};
use proptest::prelude::*;

#[test]
fn each_strategy_orders_relevant_notes_by_its_rule() {
    with_memory(|memory| {
        let old = memory.write(ROOT, "old.md", "NVDA risk is high after earnings\n");
        memory.set(old, "importance", "1");
        memory.pass(300 * DAY);
        let middle = memory.write(ROOT, "middle.md", "NVDA risk is moderate\n");
        memory.set(middle, "importance", "0.6");
        memory.pass(30 * DAY);
        let new = memory.write(ROOT, "new.md", "NVDA risk is low\n");
        memory.set(new, "importance", "0.1");
        for number in 0..30 {
            memory.write(ROOT, &format!("other{number}.md"), "weather in Lisbon\n");
        }
        let order = |strategy| memory.recalls(&format!(":recall?NVDA+risk&strategy={strategy}"));
        assert_eq!(order("recency"), ["new.md", "middle.md", "old.md"]);
        assert_eq!(order("importance"), ["old.md", "middle.md", "new.md"]);
        // The old one is the least relevant, and by far the most important.
        assert_eq!(order("balanced"), ["old.md", "middle.md", "new.md"]);
        assert_eq!(order("RECENCY"), order("recency"));
        memory.says(ROOT, ":recall?NVDA+zebra", &["# in no note: zebra"]);
    });
}

#[test]
fn importance_recency_and_relevance_each_decide_a_balanced_recall() {
    let short = "NVDA risk is low\n";
    let long = "NVDA risk was one of many things that we talked about on the way home\n";
    // The notes as (name, age in days, importance if any, text), the expected first one first.
    for notes in [
        [("important", 0, Some("0.9"), short), ("plain", 0, None, short)],
        [("plain", 0, None, short), ("unimportant", 0, Some("0.2"), short)],
        [("new", 0, None, short), ("old", 365, None, short)],
        [("relevant", 0, None, short), ("wordy", 0, None, long)],
        // One of them outweighs another.
        [("important", 365, Some("0.9"), short), ("new", 0, None, short)],
        [("important", 0, Some("1"), long), ("relevant", 0, None, short)],
        [("relevant", 365, None, short), ("new", 0, None, long)],
        [("relevant", 0, None, short), ("important", 0, Some("0.55"), long)],
    ] {
        with_memory(|memory| {
            let mut by_age = notes;
            by_age.sort_by_key(|(_, age, _, _)| -age);
            let mut days = by_age[0].1;
            for (name, age, importance, text) in by_age {
                memory.pass((days - age) * DAY);
                days = age;
                let ino = memory.write(ROOT, &format!("{name}.md"), text);
                if let Some(importance) = importance {
                    memory.set(ino, "importance", importance);
                }
            }
            memory.pass(days * DAY);
            for number in 0..30 {
                memory.write(ROOT, &format!("other{number}.md"), "weather in Lisbon\n");
            }
            let first = format!("{}.md", notes[0].0);
            assert_eq!(memory.recalls(":recall?NVDA+risk")[0], first, "{notes:?}");
        });
    }
}

#[test]
fn recency_and_importance_come_before_any_relevance_of_notes_with_the_words() {
    with_memory(|memory| {
        let best = "NVDA risk, NVDA risk: NVDA\n";
        let passing = format!("NVDA {}\n", "and other things of that day ".repeat(40));
        let key = memory.write(ROOT, "key.md", &passing);
        memory.set(key, "importance", "0.9");
        memory.pass(10 * DAY);
        for number in 0..300 {
            memory.write(ROOT, &format!("best{number}.md"), best);
        }
        memory.pass(10 * DAY);
        memory.write(ROOT, "news.md", &passing);
        for (strategy, first) in [("recency", "news.md"), ("importance", "key.md")] {
            let request = format!(":recall?NVDA+risk&strategy={strategy}");
            assert_eq!(memory.recalls(&request)[0], first, "{strategy}");
        }
        let balanced = memory.recalls(":recall?NVDA+risk");
        assert!(balanced[0].starts_with("best"), "{balanced:?}");
    });
}

#[test]
fn a_recall_by_importance_keeps_its_order_over_days_and_a_balanced_one_says_each_day_once() {
    with_memory(|memory| {
        for (name, importance, days) in [("a", "0.9", 0), ("c", "0.1", 1), ("b", "0.5", 0)] {
            let ino = memory.write(ROOT, &format!("{name}.md"), "zebra\n");
            memory.set(ino, "importance", importance);
            memory.pass(days * DAY);
        }
        let request = ":recall?zebra&strategy=importance";
        assert_eq!(memory.recalls(request), ["a.md", "b.md", "c.md"]);
        let dates = |request| {
            let answer = memory.ask(ROOT, request);
            answer.lines().filter(|line| line.starts_with("# 20")).count()
        };
        assert_eq!((dates(request), dates(":recall?zebra")), (3, 2));
    });
}

#[test]
fn a_recall_counts_relevant_notes_only_if_it_read_them_all() {
    with_memory(|memory| {
        // A larger budget has more candidates.
        for (notes, tokens, says) in [
            (0..60, 2000, "# 60 of 60 relevant notes, "),
            (60..300, 2000, "# 128 of 128 candidates, "),
            (300..300, 10_000, "# 300 of 300 relevant notes, "),
        ] {
            for number in notes {
                memory.write(ROOT, &format!("n{number}.md"), "NVDA risk\n");
            }
            let answer = memory.ask(ROOT, &format!(":recall?NVDA&max_tokens={tokens}"));
            assert!(answer.starts_with(says), "{answer:.80}");
        }
    });
}

#[test]
fn a_recall_says_each_date_once_and_begins_with_the_day_of_the_best_note() {
    with_memory(|memory| {
        memory.write(ROOT, "weak.md", "zebra and many other animals of the plain\n");
        memory.write(ROOT, "best.md", "zebra zebra\n");
        memory.pass(DAY);
        memory.write(ROOT, "middle.md", "zebra and others\n");
        let answer = memory.ask(ROOT, ":recall?zebra");
        let headings: Vec<&str> = answer.lines().filter(|line| line.starts_with('#')).collect();
        let expected = [
            "# 3 of 3 relevant notes, by full text",
            "# 2026-11-21",
            "## /best.md",
            "## /weak.md",
            "# 2026-11-22",
            "## /middle.md",
        ];
        assert_eq!(headings, expected);
    });
}

#[test]
fn a_recall_ranks_by_rarity_repetition_and_length_and_fills_its_budget() {
    with_memory(|memory| {
        let once = "the zebra was seen with many other animals of the plain\n";
        let often = "zebra, zebra and zebra again, near other animals there\n";
        for (name, text) in [("once", once), ("often", often), ("short", "zebra\n")] {
            memory.write(ROOT, &format!("{name}.md"), text);
        }
        for number in 0..40 {
            memory.write(ROOT, &format!("{number}.md"), "animals eat grass\n");
        }
        let order = ["short.md", "often.md", "once.md"];
        assert_eq!(memory.recalls(":recall?zebra"), order);
        // The rare word decides, and what has only the common one fills the rest of the budget.
        let both = memory.recalls(":recall?zebra+animals&max_tokens=300");
        for name in order {
            assert!(both[..3].contains(&name.to_owned()), "{both:?}");
        }
        assert!(both.len() > 10, "{both:?}");
    });
}

#[test]
fn a_recall_finds_other_forms_of_a_word_and_a_search_does_not() {
    with_memory(|memory| {
        memory.write(ROOT, "a.md", "We painted the harbour\n");
        memory.write(ROOT, "b.md", "Nothing of the kind\n");
        for question in ["painting", "paints", "harbours"] {
            assert_eq!(memory.recalls(&format!(":recall?{question}")), ["a.md"]);
        }
        memory.finds_nothing(ROOT, ":search?painting");
        memory.finds_nothing(ROOT, ":search?paint");
        has(&memory.ask(ROOT, ":search?painted"), &["/a.md"]);
    });
}

#[test]
fn a_recall_has_the_neighbours_of_a_turn_before_what_has_its_words_in_part() {
    with_memory(|memory| {
        let talk = memory.dir(ROOT, "talk");
        for (name, text) in [
            ("0.md", "Which zebra did you see?"),
            ("1.md", "The old one, by the river."),
            ("2.md", "And then we left."),
        ] {
            memory.pass(DAY / 1440);
            memory.write(talk, name, text);
        }
        memory.pass(DAY);
        memory.write(talk, "later.md", "What I did today.");
        let other = memory.dir(ROOT, "other");
        memory.write(other, "note.md", "Bread and butter.");
        let answer = memory.ask(ROOT, ":recall?zebra");
        has(&answer, &["## /talk/0.md", "## /talk/1.md"]);
        lacks(&answer, &["talk/2.md", "talk/later.md", "other/note.md"]);
    });
}

#[test]
fn a_note_that_does_not_fit_leaves_room_for_a_smaller_one() {
    with_memory(|memory| {
        let small = memory.write(ROOT, "small.md", "NVDA risk\n");
        memory.set(small, "importance", "0");
        for number in 0..55 {
            let text = format!("NVDA risk\n{}", "and more of it ".repeat(60));
            let ino = memory.write(ROOT, &format!("n{number}.md"), &text);
            memory.set(ino, "importance", "1");
        }
        // It comes last, and is a little shorter than a passage: some budget has room for it and no other one.
        let shows = |tokens| {
            let shown = memory.recalls(&format!(":recall?NVDA&max_tokens={tokens}"));
            shown.len() < 56 && shown.last().is_some_and(|last| last == "small.md")
        };
        assert!((100..130).any(shows));
    });
}

#[test]
fn a_recall_below_the_root_cuts_no_note_that_fits() {
    with_memory(|memory| {
        let deep = memory.dir(ROOT, &"far-below-the-root-of-a-large-memory ".repeat(5));
        for number in 0..6 {
            let text = format!("zebra {number}. {}\n", "It is striped. ".repeat(30));
            memory.write(deep, &format!("{number}.md"), &text);
        }
        let whole = memory.ask(deep, ":recall?zebra&max_tokens=5000");
        lacks(&whole, &["…"]);
        // The first line and each path of it may have some tokens more.
        let enough = tokens::count(&whole) + 20;
        let answer = memory.ask(deep, &format!(":recall?zebra&max_tokens={enough}"));
        lacks(&answer, &["…"]);
    });
}

/// Text of any script, or bytes that are not UTF-8.
fn note_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-zé/#. \\n-]{0,400}".prop_map(String::into_bytes),
        "(?s).{0,200}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..400),
        // Like Latin-1: without NUL, and rarely UTF-8.
        prop::collection::vec(0x20u8..=255, 0..400),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_recall_never_exceeds_its_budget(
        notes in prop::collection::vec((note_bytes(), 0u8..4, "[a-z]{1,12}"), 1..40),
        question in "[a-z]{1,3}( [a-z]{1,3}){0,6}",
        budgets in prop::collection::vec(64u64..3000, 1..6),
    ) {
        let (_dir, path) = place();
        let memory = Memory::open(&path, None);
        for (number, (text, repeat, tag)) in notes.iter().enumerate() {
            // The name has the question, too: a note that is not text is found by its name only.
            let mut bytes = format!("{question}\n").into_bytes();
            bytes.extend(text.repeat(1 << (2 * repeat)));
            let ino = memory.write_bytes(ROOT, &format!("{question} {number} {tag}.md"), &bytes);
            if number % 3 == 0 {
                memory.set(ino, "tags", tag);
            }
        }
        for budget in budgets {
            for strategy in ["recency", "importance", "balanced"] {
                let question = question.replace(' ', "+");
                let answer = memory.ask(ROOT, &format!(":recall?{question}&max_tokens={budget}&strategy={strategy}"));
                let counted = tokens::count(&answer);
                prop_assert!(counted <= budget, "{counted} of {budget}: {answer}");
                prop_assert!(answer.starts_with("# "));
            }
        }
    }

    #[test]
    fn any_request_is_answered_or_refused_with_a_reason(name in "(?s):(search|recall)\\?.{0,60}") {
        with_memory(|memory| {
            memory.write(ROOT, "a.md", "alpha beta\n");
            match memory.store.lookup(ROOT, name.as_bytes()) {
                Ok(attr) => assert!(attr.size > 0, "{name:?}"),
                Err(error) => {
                    assert_eq!(error.errno, Errno::INVAL, "{name:?}: {error}");
                    assert!(error.reason.is_some());
                }
            }
        });
    }
}
