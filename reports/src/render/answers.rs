//! The answer for each use as the first screen prints it: the sentences of `answer`, with a picture and a link.

use super::part::UseBlock;
use crate::answer::Overview;
use verdicts::decide::{Decision, PolicyVerdict, arm_words};

/// Words of an answer on the first screen.
const MOST_WORDS: usize = 53;
/// The room of an answer, in which `answer` leaves out whole sentences, the least needed first.
const COLUMNS: usize = 100;
const LINES: usize = 3;
/// Words of a use's title.
const TITLE_WORDS: usize = 6;

/// A use: its policy, and the decisions on all candidates.
pub(super) struct Use<'a> {
    pub(super) policy: &'a str,
    /// Its name, with the policy's if two uses have the same.
    pub(super) title: String,
    pub(super) decisions: Vec<&'a Decision>,
}

/// The uses: decided ones first, each group in the order of the decisions.
pub(super) fn uses(decisions: &[Decision]) -> Vec<Use<'_>> {
    let mut uses: Vec<Use<'_>> = Vec::new();
    for decision in decisions {
        match uses.iter_mut().find(|found| found.policy == decision.policy) {
            Some(found) => found.decisions.push(decision),
            None => uses.push(Use {
                policy: &decision.policy,
                title: decision.use_title().to_owned(),
                decisions: vec![decision],
            }),
        }
    }
    let titles: Vec<String> = uses.iter().map(|found| found.title.clone()).collect();
    for found in &mut uses {
        if titles.iter().filter(|title| **title == found.title).count() > 1 {
            found.title += &format!(" ({})", found.policy);
        }
    }
    uses.sort_by_key(|found| {
        let has = |wanted: &[PolicyVerdict]| found.decisions.iter().any(|decision| wanted.contains(&decision.verdict));
        has(&[PolicyVerdict::NotDecided]) && !has(&[PolicyVerdict::Adopt, PolicyVerdict::AdoptIf])
    });
    uses
}

/// An arm as the first screen names it: a reader chooses a plain directory or `s3`, and not the server of a run.
pub(super) fn arm_title(name: &str) -> &str {
    let words = arm_words(name);
    words.strip_prefix("a ").unwrap_or(words)
}

/// The anchor of a use's reasons.
pub(super) fn why_anchor(title: &str) -> String {
    super::part::anchor(&why_title(title))
}

/// The heading of a use's reasons.
pub(super) fn why_title(title: &str) -> String {
    format!("Why: {title}")
}

impl Use<'_> {
    /// The answer as a block of the page; `None` without one. `panel` is the number of its picture.
    pub(super) fn block(&self, overview: &Overview, panel: usize) -> Option<UseBlock> {
        let mut answers = overview.uses.iter();
        let answer = answers.find(|answer| answer.policy == self.policy)?;
        // The confidence stands beside the title.
        let most = LINES + answer.lines_of_facts();
        let text = fitted(|lines| answer.lines(COLUMNS, lines).join(" "), most);
        let text = text.unwrap_or_else(|| answer.headline());
        let rest = text.strip_prefix(&answer.headline()).unwrap_or_default();
        let rest = if answer.command.is_empty() {
            rest.to_owned()
        } else {
            rest.replace(&answer.command, &format!("`{}`", answer.command))
        };
        let sentences = [answer.whole_advice(""), rest.trim().to_owned()];
        let sentences = sentences.into_iter().filter(|text| !text.is_empty());
        Some(UseBlock {
            title: first_words(&answer.title, TITLE_WORDS),
            confidence: answer.confidence.words().to_owned(),
            sentences: limited(sentences.collect()),
            why: why_anchor(&self.title),
            panel,
        })
    }
}

/// The text of the most lines that has at most [`MOST_WORDS`] words; fewer lines have fewer of the least needed sentences.
fn fitted(text: impl Fn(usize) -> String, most: usize) -> Option<String> {
    let mut texts = (1..=most).rev().map(text);
    texts.find(|text| text.split_whitespace().count() <= MOST_WORDS)
}

/// Whole sentences of at most [`MOST_WORDS`] words together; the page Why has the others. Only a first sentence that is
/// longer is cut.
fn limited(sentences: Vec<String>) -> Vec<String> {
    let mut left = MOST_WORDS;
    let mut kept = Vec::new();
    for sentence in sentences {
        let words = sentence.split_whitespace().count();
        if kept.is_empty() {
            kept.push(first_words(&sentence, left));
        } else if words <= left {
            kept.push(sentence);
        } else {
            continue;
        }
        left = left.saturating_sub(words);
    }
    kept
}

/// The first words of a text; an ellipsis stands for the others.
pub(super) fn first_words(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() <= most { text.to_owned() } else { format!("{} …", words[..most].join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;

    #[test]
    fn each_use_has_one_answer_and_its_pictures_number() {
        let inputs = Inputs::judged();
        let report = inputs.report();
        let uses = uses(&report.decisions);
        let policies: Vec<&str> = uses.iter().map(|answer| answer.policy).collect();
        let mut once = policies.clone();
        once.dedup();
        assert_eq!(policies, once);
        for (panel, answer) in uses.iter().enumerate() {
            let block = answer.block(report.overview, panel).unwrap();
            assert_eq!((block.panel, block.why), (panel, why_anchor(&answer.title)));
            assert!(!block.sentences.is_empty());
            // The confidence stands once.
            let advice = &block.sentences[0];
            assert!(!advice.contains(&block.confidence) || block.confidence == "not decided", "{advice}");
        }
    }

    #[test]
    fn an_answer_with_too_many_words_loses_lines_and_not_all_of_them() {
        let text = |lines: usize| "word ".repeat(25 * lines);
        assert_eq!(fitted(text, 5).unwrap().split_whitespace().count(), 50);
        assert_eq!(fitted(|_| "word ".repeat(MOST_WORDS + 1), 5), None);
    }

    #[test]
    fn an_answer_of_many_words_has_whole_sentences() {
        let long = "three ".repeat(MOST_WORDS);
        let sentences = ["one two", &long, "four"].map(str::to_owned);
        assert_eq!(limited(sentences.to_vec()), ["one two", "four"]);
        let cut = limited(vec![format!("one {long}"), "four".to_owned()]);
        assert_eq!(cut.len(), 1);
        assert!(cut[0].ends_with("three …"), "{cut:?}");
    }
}
