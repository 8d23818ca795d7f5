//! Recall: its order and its token budget.

use super::{DAY, Memory, with_memory};
use backends::store::{Errno, ROOT, Store};
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
        let order = |strategy: &str| {
            let text = memory.ask(ROOT, &format!(":recall?NVDA+risk&strategy={strategy}"));
            text.lines()
                .filter_map(|line| line.strip_prefix("## /"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(order("recency"), ["new.md", "middle.md", "old.md"]);
        assert_eq!(order("importance"), ["old.md", "middle.md", "new.md"]);
        // The old one has two words more, so it is a little less relevant: neither age nor importance outweighs that.
        assert_eq!(order("balanced").last().unwrap(), "old.md");
        let missing = memory.ask(ROOT, ":recall?NVDA+zebra");
        assert!(missing.contains("# in no note: zebra"), "{missing}");
    });
}

#[test]
fn a_recall_counts_relevant_notes_only_if_it_read_them_all() {
    with_memory(|memory| {
        for number in 0..60 {
            memory.write(ROOT, &format!("n{number}.md"), "NVDA risk\n");
        }
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100000");
        assert!(
            answer.starts_with("# 60 of 60 relevant notes, "),
            "{answer:.80}"
        );
        for number in 60..300 {
            memory.write(ROOT, &format!("n{number}.md"), "NVDA risk\n");
        }
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100000");
        assert!(
            answer.starts_with("# 100 of 128 candidates, "),
            "{answer:.80}"
        );
    });
}

#[test]
fn a_recall_ranks_by_rarity_repetition_and_length_and_fills_its_budget() {
    with_memory(|memory| {
        memory.write(
            ROOT,
            "once.md",
            "the zebra was seen with many other animals of the plain\n",
        );
        memory.write(
            ROOT,
            "often.md",
            "zebra, zebra and zebra again, near other animals there\n",
        );
        memory.write(ROOT, "short.md", "zebra\n");
        for number in 0..40 {
            memory.write(ROOT, &format!("{number}.md"), "animals eat grass\n");
        }
        let names = |request: &str| -> Vec<String> {
            let answer = memory.ask(ROOT, request);
            let names = answer.lines().filter_map(|line| line.strip_prefix("## /"));
            names.map(str::to_owned).collect()
        };
        assert_eq!(names(":recall?zebra"), ["short.md", "often.md", "once.md"]);
        // The rare word decides, and what has only the common one fills the rest of the budget.
        let both = names(":recall?zebra+animals&max_tokens=300");
        for name in ["short.md", "often.md", "once.md"] {
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
            let answer = memory.ask(ROOT, &format!(":recall?{question}"));
            assert!(answer.contains("## /a.md") && !answer.contains("## /b.md"));
        }
        let painting = memory.ask(ROOT, ":search?painting");
        assert!(painting.starts_with("nothing found"), "{painting}");
        let stem = memory.ask(ROOT, ":search?paint");
        assert!(stem.starts_with("nothing found"), "{stem}");
        let painted = memory.ask(ROOT, ":search?painted");
        assert!(painted.contains("/a.md"), "{painted}");
    });
}

#[test]
fn a_recall_has_the_neighbours_of_a_turn_before_what_has_its_words_in_part() {
    with_memory(|memory| {
        let talk = memory.dir(ROOT, "talk");
        for (number, text) in [
            "Which zebra did you see?",
            "The old one, by the river.",
            "And then we left.",
        ]
        .iter()
        .enumerate()
        {
            memory.pass(DAY / 1440);
            memory.write(talk, &format!("{number}.md"), text);
        }
        memory.pass(DAY);
        memory.write(talk, "later.md", "What I did today.");
        let other = memory.dir(ROOT, "other");
        memory.write(other, "note.md", "Bread and butter.");
        let answer = memory.ask(ROOT, ":recall?zebra");
        assert!(
            answer.contains("## /talk/0.md") && answer.contains("## /talk/1.md"),
            "{answer}"
        );
        for name in ["talk/2.md", "talk/later.md", "other/note.md"] {
            assert!(!answer.contains(name), "{name}: {answer}");
        }
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
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100");
        assert!(answer.contains("## /small.md"), "{answer}");
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
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::open(&dir.path().join("m.db"), None);
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
                if let Some((said, _)) = answer.split_once(" tokens, ") {
                    let (_, said) = said.split_once(", ").unwrap();
                    prop_assert_eq!(said.parse::<u64>().ok(), Some(counted));
                }
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
