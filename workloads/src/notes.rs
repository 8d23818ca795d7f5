//! Synthetic notes of an agent with planted evidence, and questions with known answers.
//! Facts are dated, and later facts supersede some of them. Distractors are notes on the same subject,
//! near misses without the value, the same attribute of other subjects, and small talk.
//! Questions use the fact's own words or others; some have no answer.
//! The same seed and size always give the same notes and questions.

use std::sync::LazyLock;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

/// The period before the questions over which the notes were written, in days.
const DAYS: u64 = 365;

const DAY_NANOS: u64 = 86_400_000_000_000;

/// An attribute of subjects: its name in notes, a note's sentence, and two wordings of a question.
struct Attribute {
    word: &'static str,
    states: &'static str,
    mentions: &'static str,
    asks: &'static str,
    asks_otherwise: &'static str,
}

/// The fields of each attribute, in order. `S` stands for the subject, `V` for the value.
const TABLE: &str = "deadline | The deadline of S is V. | We talked about the deadline of S again; somebody should settle it. | What is the deadline of S? | When must S be finished?
owner | The owner of S is V. | Ask the owner of S before changing anything. | Who is the owner of S? | Who is responsible for S?
budget | The budget of S is V. | The budget of S came up in the meeting, without a number. | What is the budget of S? | How much money may S cost?
database | The database of S is V. | The database of S was slow on Monday. | Which database does S use? | Where does S store its records?
region | The region of S is V. | Moving S to another region was suggested. | Which region is S in? | Where is S hosted?
timeout | The timeout of S is V. | The timeout of S is a matter of taste, says the team. | What is the timeout of S? | How long does S wait before it gives up?
licence | The licence of S is V. | Legal wants to look at the licence of S. | What is the licence of S? | Under which terms may S be used?
branch | The release branch of S is V. | The release branch of S was red for an hour. | What is the release branch of S? | From where in git is S shipped?
port | The port of S is V. | The port of S was blocked by the firewall. | What is the port of S? | Where does S listen?
reviewer | The reviewer of S is V. | The reviewer of S is on holiday this week. | Who is the reviewer of S? | Who has to approve changes to S?";

static ATTRIBUTES: LazyLock<Vec<Attribute>> = LazyLock::new(|| {
    let rows = TABLE.lines().filter_map(|line| {
        let mut fields = line.split(" | ");
        let mut next = || fields.next();
        Some(Attribute { word: next()?, states: next()?, mentions: next()?, asks: next()?, asks_otherwise: next()? })
    });
    rows.collect()
});

/// First words of subjects. Many subjects share one, so a first word alone is not selective.
const KINDS: [&str; 8] = ["project", "service", "team", "library", "customer", "pipeline", "cluster", "report"];

/// The approximate number of notes that mention a fact's subject and attribute without the value.
const NEAR_MISSES: f64 = 3.0;

/// Small talk that fits any note.
const TALK: [&str; 14] = [
    "The build was green in the morning and red after lunch.",
    "Remember to rotate the keys at the end of the quarter.",
    "The meeting ran long and ended without a decision.",
    "The cache was cold, so the first request took a while.",
    "Somebody should write this down properly.",
    "The test for the parser is flaky on slow machines.",
    "The customer asked for an export as a spreadsheet.",
    "Deploys are frozen until the incident is closed.",
    "The logs are full of warnings that nobody reads.",
    "A retry fixed it, which explains nothing.",
    "The dashboard shows an old number until it is reloaded.",
    "The plan is to try the small version first.",
    "The review found two typos and one real problem.",
    "Nothing else happened that day.",
];

/// A note; in a corpus, its text has no newline at its end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Its path from the root: a directory per month, and a number unrelated to the content.
    pub path: String,
    /// Its content.
    pub text: String,
    /// When it was written, in nanoseconds since 1970.
    pub written: i64,
}

/// Whether the notes answer a question, and whether the answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerState {
    /// One note has the answer.
    Once,
    /// Several notes have different answers; the last one is correct.
    Updated,
    /// No note has the answer.
    Never,
}

/// A question with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question in an agent's words.
    pub text: String,
    /// The most selective word, which an agent would grep for.
    pub keyword: String,
    /// The words that an agent would search for: the keyword and, unless reworded, the attribute.
    pub keywords: String,
    /// Whether it uses other words than the notes.
    pub is_reworded: bool,
    /// Whether the notes answer it.
    pub answerable: AnswerState,
    /// The line with the current answer; `None` without an answer.
    pub evidence: Option<String>,
    /// Further lines of evidence, each as good as the first.
    pub also: Vec<String>,
    /// The answer in lower case: a part of a note of evidence that contains it is as good as the line. `None` if only
    /// the line counts.
    pub answer: Option<String>,
    /// Lines with superseded answers.
    pub superseded: Vec<String>,
}

/// Notes, and questions about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notebook {
    /// The notes in order of time.
    pub notes: Vec<Note>,
    /// The questions in random order.
    pub questions: Vec<Question>,
    /// The time of the questions, in nanoseconds since 1970.
    pub now: i64,
}

/// A fact in the notes, with its values in order of time.
struct Fact {
    subject: usize,
    attribute: usize,
    values: Vec<String>,
}

/// Generates `size` notes and up to 250 questions about them.
pub fn notebook(size: usize, seed: u64) -> Notebook {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let subjects = subjects(subject_count(size), &mut rng);
    let facts = facts(size, subjects.len(), &mut rng);
    let mut notebook = written(size, &subjects, &facts, 200, &mut rng);
    for number in 0..notebook.questions.len() / 4 {
        notebook.questions.push(unanswerable(number, &facts, &subjects, &mut rng));
    }
    notebook.questions.shuffle(&mut rng);
    notebook
}

/// The most facts that can change in `size` notes: each is stated twice, and no attribute of a subject belongs to two facts.
pub fn changed_max(size: usize) -> usize {
    (subject_count(size) * ATTRIBUTES.len()).min(size / 2)
}

/// Generates `size` notes with `changed` facts, at most [`changed_max`], each of which changes once, and a question about
/// each.
pub fn notebook_of_changes(size: usize, changed: usize, seed: u64) -> Notebook {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let subjects = subjects(subject_count(size), &mut rng);
    let pairs = pairs(subjects.len(), &mut rng).into_iter();
    let facts = pairs.take(changed).map(|(subject, attribute)| {
        let values = (0..2).map(|_| value(&mut rng)).collect();
        Fact { subject, attribute, values }
    });
    let facts: Vec<Fact> = facts.collect();
    let mut notebook = written(size, &subjects, &facts, changed, &mut rng);
    notebook.questions.shuffle(&mut rng);
    notebook
}

/// Subjects of `size` notes.
fn subject_count(size: usize) -> usize {
    size.div_ceil(20).max(12)
}

/// Writes notes about facts, and questions about the first `asked` of them.
fn written(size: usize, subjects: &[String], facts: &[Fact], asked: usize, rng: &mut ChaCha8Rng) -> Notebook {
    // The fact of each note, shuffled over time with the values of each fact in order.
    let mut lines: Vec<Option<(usize, usize)>> = Vec::with_capacity(size);
    for (number, fact) in facts.iter().enumerate() {
        lines.extend((0..fact.values.len()).map(|value| Some((number, value))));
    }
    lines.resize(size.max(lines.len()), None);
    lines.shuffle(rng);
    let mut stated = vec![0; facts.len()];
    for line in lines.iter_mut().flatten() {
        line.1 = stated[line.0];
        stated[line.0] += 1;
    }

    let now: i64 = 1_795_300_000_000_000_000;
    let step = DAYS * DAY_NANOS / lines.len() as u64;
    // Three in ten of the 2.5 other lines of a note are near misses.
    let near_miss = (NEAR_MISSES * facts.len() as f64 / (0.75 * lines.len() as f64)).min(1.0);
    let notes: Vec<Note> = lines
        .iter()
        .enumerate()
        .map(|(number, line)| {
            let age = step * (lines.len() - number) as u64;
            let line = line.map(|(fact, value)| {
                let fact = &facts[fact];
                ATTRIBUTES[fact.attribute]
                    .states
                    .replace('S', &subjects[fact.subject])
                    .replace('V', &fact.values[value])
            });
            Note {
                path: format!("{:02}/{number:06}.md", number * 12 / lines.len() + 1),
                text: text(line, subjects, facts, near_miss, rng),
                written: now - age as i64,
            }
        })
        .collect();

    let questions = facts.iter().take(asked).map(|fact| self::asked(fact, subjects, rng));
    Notebook { notes, questions: questions.collect(), now }
}

/// Generated names of subjects: a common first word and a unique second one.
fn subjects(count: usize, rng: &mut ChaCha8Rng) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(count);
    let mut known = std::collections::HashSet::new();
    while names.len() < count {
        let name = made_up(rng);
        if known.insert(name.clone()) {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            names.push(format!("{kind} {name}"));
        }
    }
    names
}

fn made_up(rng: &mut ChaCha8Rng) -> String {
    const CONSONANTS: &[u8] = b"bdfgklmnprtvz";
    const VOWELS: &[u8] = b"aeiou";
    let mut name = String::new();
    for _ in 0..4 {
        for letters in [CONSONANTS, VOWELS] {
            name.push(char::from(letters[rng.random_range(0..letters.len())]));
        }
    }
    name
}

/// A tenth of the notes, 20 to 200, states facts. Two in five facts change later, up to three times.
fn facts(size: usize, subjects: usize, rng: &mut ChaCha8Rng) -> Vec<Fact> {
    let count = (size / 10).clamp(20, 200);
    pairs(subjects, rng)
        .into_iter()
        .take(count)
        .map(|(subject, attribute)| {
            let versions = if rng.random_bool(0.4) { rng.random_range(2..=4) } else { 1 };
            let values = (0..versions).map(|_| value(rng)).collect();
            Fact { subject, attribute, values }
        })
        .collect()
}

/// Subjects with attributes, in random order.
fn pairs(subjects: usize, rng: &mut ChaCha8Rng) -> Vec<(usize, usize)> {
    let of_subject = |subject| (0..ATTRIBUTES.len()).map(move |attribute| (subject, attribute));
    let mut pairs: Vec<(usize, usize)> = (0..subjects).flat_map(of_subject).collect();
    pairs.shuffle(rng);
    pairs
}

/// A value in lower case: the capitals S and V are placeholders in a sentence.
fn value(rng: &mut ChaCha8Rng) -> String {
    format!("{} {}", made_up(rng), rng.random_range(1..100))
}

/// The text of a note: its fact, if any, among one to four other lines.
fn text(fact: Option<String>, subjects: &[String], facts: &[Fact], near_miss: f64, rng: &mut ChaCha8Rng) -> String {
    let mut lines: Vec<String> = Vec::new();
    for _ in 0..rng.random_range(1..=4) {
        let subject = &subjects[rng.random_range(0..subjects.len())];
        lines.push(match rng.random_range(0..10) {
            // A near miss: the subject and attribute of a fact without the value.
            0..3 => {
                let fact = facts.choose(rng).filter(|_| rng.random_bool(near_miss));
                let (subject, attribute) = match fact {
                    Some(fact) => (&subjects[fact.subject], &ATTRIBUTES[fact.attribute]),
                    None => (subject, &ATTRIBUTES[rng.random_range(0..ATTRIBUTES.len())]),
                };
                attribute.mentions.replace('S', subject)
            }
            3..6 => format!("Spent an hour on {subject}."),
            _ => TALK.choose(rng).copied().unwrap_or_default().to_owned(),
        });
    }
    let says = fact.is_some();
    if let Some(fact) = fact {
        lines.insert(rng.random_range(0..=lines.len()), fact);
    }
    // Facts tend to be slightly more important than other notes.
    let importance = rng.random_range(if says { 3..=9 } else { 1..=7 });
    if rng.random_bool(0.3) {
        lines.insert(0, format!("---\nimportance: 0.{importance}\n---"));
    }
    lines.join("\n") + "\n"
}

fn asked(fact: &Fact, subjects: &[String], rng: &mut ChaCha8Rng) -> Question {
    let attribute = &ATTRIBUTES[fact.attribute];
    let subject = &subjects[fact.subject];
    let is_reworded = rng.random_bool(0.25);
    let sentence = attribute.states.replace('S', subject);
    let stated = fact.values.iter().map(|value| sentence.replace('V', value));
    let mut stated: Vec<String> = stated.collect();
    let evidence = stated.pop();
    Question {
        answerable: if stated.is_empty() { AnswerState::Once } else { AnswerState::Updated },
        evidence,
        superseded: stated,
        ..question(attribute, subject, is_reworded)
    }
}

/// A question for an attribute that is stated only of other subjects, or for a subject in no note.
fn unanswerable(number: usize, facts: &[Fact], subjects: &[String], rng: &mut ChaCha8Rng) -> Question {
    let is_stated = |subject: usize, attribute: usize| {
        let mut stated = facts.iter().map(|fact| (fact.subject, fact.attribute));
        stated.any(|stated| stated == (subject, attribute))
    };
    loop {
        let subject = rng.random_range(0..subjects.len());
        let attribute = rng.random_range(0..ATTRIBUTES.len());
        if number.is_multiple_of(2) {
            let stranger = format!("project {}", made_up(rng));
            if !subjects.contains(&stranger) {
                return question(&ATTRIBUTES[attribute], &stranger, false);
            }
        } else if !is_stated(subject, attribute) {
            return question(&ATTRIBUTES[attribute], &subjects[subject], false);
        }
    }
}

/// A question without evidence.
fn question(attribute: &Attribute, subject: &str, is_reworded: bool) -> Question {
    let pattern = if is_reworded { attribute.asks_otherwise } else { attribute.asks };
    let keyword = subject.rsplit(' ').next().unwrap_or(subject);
    let keywords = if is_reworded {
        // An agent that does not know the note's word can only search for the subject.
        subject.to_owned()
    } else {
        format!("{keyword} {}", attribute.word)
    };
    Question {
        text: pattern.replace('S', subject),
        keyword: keyword.to_owned(),
        keywords,
        is_reworded,
        answerable: AnswerState::Never,
        evidence: None,
        also: Vec::new(),
        answer: None,
        superseded: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_of_the_table_is_an_attribute_with_all_its_fields() {
        assert_eq!(ATTRIBUTES.len(), TABLE.lines().count());
        for (line, attribute) in TABLE.lines().zip(ATTRIBUTES.iter()) {
            let fields =
                [attribute.word, attribute.states, attribute.mentions, attribute.asks, attribute.asks_otherwise];
            assert_eq!(fields.join(" | "), line);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_notebook_and_another_another() {
        assert_eq!(notebook(300, 7), notebook(300, 7));
        assert_ne!(notebook(300, 7).notes, notebook(300, 8).notes);
    }

    #[test]
    fn every_answer_is_planted_once_and_superseded_ones_come_before() {
        for size in [100, 1000] {
            let notebook = notebook(size, 1);
            assert_eq!(notebook.notes.len(), size);
            assert!(notebook.notes.is_sorted_by_key(|note| note.written));
            let is_before = |note: &Note| note.written < notebook.now;
            assert!(notebook.notes.iter().all(is_before));
            let places = |line: &String| -> Vec<usize> {
                let notes = (0..).zip(&notebook.notes);
                let having = notes.filter(|(_, note)| note.text.lines().any(|found| found == line));
                having.map(|(at, _)| at).collect()
            };
            let mut kinds = BTreeSet::new();
            for question in &notebook.questions {
                kinds.insert(question.answerable);
                let Some(evidence) = &question.evidence else {
                    assert_eq!(question.answerable, AnswerState::Never);
                    continue;
                };
                let at = places(evidence);
                assert_eq!(at.len(), 1, "{question:?}");
                for old in &question.superseded {
                    let before = places(old);
                    assert!(before.len() == 1 && before[0] < at[0], "{question:?}");
                }
                assert!(evidence.contains(&question.keyword));
            }
            assert_eq!(kinds.len(), 3);
        }
    }

    #[test]
    fn each_question_about_changes_has_one_outdated_and_one_current_answer() {
        let notebook = notebook_of_changes(1000, 400, 2);
        assert_eq!((notebook.notes.len(), notebook.questions.len()), (1000, 400));
        assert!(changed_max(1000) >= 400 && changed_max(100) == 50);
        let place = |line: &String| {
            let mut notes = notebook.notes.iter();
            notes.position(|note| note.text.lines().any(|found| found == line)).unwrap()
        };
        for question in &notebook.questions {
            assert_eq!((question.answerable, question.superseded.len()), (AnswerState::Updated, 1));
            assert!(place(&question.superseded[0]) < place(question.evidence.as_ref().unwrap()));
        }
    }

    #[test]
    fn an_unanswerable_question_has_no_evidence_in_any_note() {
        let notebook = notebook(1000, 3);
        for question in &notebook.questions {
            if question.answerable != AnswerState::Never {
                continue;
            }
            let attribute = question.keywords.split(' ').nth(1).unwrap();
            let says = notebook.notes.iter().flat_map(|note| note.text.lines()).find(|line| {
                line.contains(&question.keyword)
                    && line.contains(&format!("{attribute} of"))
                    && line.contains(" is ")
                    && ATTRIBUTES.iter().all(|known| {
                        let [before, after] = known.mentions.split('S').collect::<Vec<_>>()[..] else {
                            return true;
                        };
                        !(line.starts_with(before) && line.ends_with(after))
                    })
            });
            assert_eq!(says, None, "{question:?}");
        }
    }
}
