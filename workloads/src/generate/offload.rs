//! The worked examples of source 5: queries, results saved to files, a part of them read back, and an answer. Some begin
//! with a plan, and some save an analysis before they answer.
//! The results are JSON of a given size, so that their tokens are counted.
//! The system prompt and the model's text have the token numbers that source 5 states, because it has no text.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::json;
use tokens::{CallPurpose, Conversation, FixedOrigin, Part, PartKind, Step};

use super::plain;
use crate::conversation::{TURN_MS, part, result_part};
use crate::path::WorkspacePath;
use crate::script::{Bytes, Call, CallKind, FileOp, Script};

/// The parameters of the workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffloadComparison {
    /// The files that the results are saved to.
    files: Vec<WorkspacePath>,
    /// Bytes of each result.
    bytes: usize,
    /// The share of each file's lines that is read back.
    read_back: f64,
    /// Number of repetitions in a pass.
    repeats: u32,
    /// The seed of the meetings.
    seed: u64,
    /// Tokens of the system prompt, as published.
    system_tokens: u64,
    /// The user's question.
    question: String,
    /// Tokens of the model's query, as published.
    query_tokens: u64,
    /// Tokens of the model's answer, as published.
    answer_tokens: u64,
    /// The steps of the plan that the model writes first, by `write_todos`; none by default.
    #[serde(default)]
    todos: Vec<String>,
    /// What the model writes about the results, saves, and reads again before it answers.
    analysis: Option<Analysis>,
    /// Published accounts, in their own units.
    published: Vec<PublishedAccount>,
}

/// A text that the model writes about results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Analysis {
    file: WorkspacePath,
    bytes: usize,
}

impl Analysis {
    /// Sentences about the topics of the meetings, of exactly `bytes` bytes.
    fn text(&self, rng: &mut ChaCha8Rng) -> String {
        let mut text = String::new();
        while text.len() < self.bytes {
            text += &pick(rng, SENTENCES).replace("{}", pick(rng, TOPICS));
            text.push('\n');
        }
        // The sentences are ASCII.
        text.truncate(self.bytes);
        text
    }
}

/// A published account.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedAccount {
    /// Its name.
    name: String,
    /// Tokens before the first message.
    fixed: u64,
    /// For each call of the model: tokens that enter, and tokens of its output.
    turns: Vec<(u64, u64)>,
}

impl OffloadComparison {
    /// Checks the parameters.
    ///
    /// # Errors
    /// A message with the field and the defect.
    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = if self.files.is_empty() {
            "files`: name at least one"
        } else if !(2_000..=10_000_000).contains(&self.bytes) {
            "bytes`: must be from 2,000 to 10,000,000"
        } else if !(0.0..=1.0).contains(&self.read_back) {
            "read_back`: must be a share from 0 to 1"
        } else if self.repeats == 0 {
            "repeats`: must be at least 1"
        } else if self.todos.len() > 100 {
            "todos`: must be at most 100"
        } else if self.analysis.as_ref().is_some_and(|it| !(1..=1_000_000).contains(&it.bytes)) {
            "analysis.bytes`: must be from 1 to 1,000,000"
        } else if self.analysis.as_ref().is_some_and(|it| self.files.contains(&it.file)) {
            "analysis.file`: a result has this name"
        } else {
            return Ok(());
        };
        Err(format!("field `offload_comparison.{wrong}"))
    }

    fn results(&self) -> Vec<(WorkspacePath, Bytes)> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let results = self.files.iter().map(|path| {
            let meetings = meetings(&mut rng, self.bytes);
            (path.clone(), meetings.into_bytes().into())
        });
        results.collect()
    }

    /// The plan, as `write_todos` takes it; `None` without steps.
    fn plan(&self) -> Option<serde_json::Value> {
        let todos = (1..).zip(&self.todos);
        let todos = todos.map(|(id, content)| json!({"id": id.to_string(), "content": content, "status": "pending"}));
        (!self.todos.is_empty()).then(|| todos.collect())
    }

    fn analysis(&self) -> Option<(WorkspacePath, String)> {
        let analysis = self.analysis.as_ref()?;
        let text = analysis.text(&mut ChaCha8Rng::seed_from_u64(self.seed));
        Some((analysis.file.clone(), text))
    }

    /// The file operations: the plan and each result are saved, the files are listed, a part of each result is read back,
    /// and the analysis is saved and read.
    pub(crate) fn script(&self) -> Script {
        let results = self.results();
        let plan = self.plan().map(|plan| format!("{plan:#}\n").into_bytes());
        let analysis = self.analysis().map(|(path, text)| (path, text.into_bytes()));
        let mut script = Script::new(vec![(plain("plan.md"), format!("# {}\n", self.question).into_bytes().into())]);
        for _ in 0..self.repeats {
            if let Some(plan) = &plan {
                script.call(CallKind::Write, vec![FileOp::write(plain("todos.json"), plan.clone())]);
            }
            for (path, content) in &results {
                let write = FileOp::write(path.clone(), Bytes::clone(content));
                script.call(CallKind::Write, vec![write]);
            }
            let list = FileOp::list(WorkspacePath::root(), true);
            script.call(CallKind::List, vec![list]);
            for (path, content) in &results {
                let lines = content.iter().filter(|byte| **byte == b'\n').count() as f64;
                let count = (lines * self.read_back).ceil().max(1.0) as u64;
                script.calls.push(Call {
                    kind: Some(CallKind::Read),
                    ops: vec![FileOp::Read(path.clone())],
                    lines: Some((1, count)),
                    ..Call::default()
                });
            }
            if let Some((path, text)) = &analysis {
                script.call(CallKind::Write, vec![FileOp::write(path.clone(), text.clone())]);
                script.call(CallKind::Read, vec![FileOp::Read(path.clone())]);
            }
        }
        script
    }

    /// The session without any saved result.
    pub(crate) fn conversation(&self) -> Conversation {
        let mut steps = vec![Step { enters: vec![part(PartKind::User, &self.question)], ..Step::default() }];
        let mut call = |purpose: CallPurpose, emits: Part, result: &str| {
            if let Some(asking) = steps.last_mut() {
                asking.emits = vec![emits];
                asking.purposes = vec![purpose];
            }
            steps.push(Step { gap_ms: TURN_MS, enters: vec![result_part(result)], ..Step::default() });
        };
        let tool = |name: &str, input: serde_json::Value| json!({"name": name, "input": input}).to_string();
        if let Some(plan) = self.plan() {
            let written = tool("write_todos", json!({ "todos": plan }));
            let saved = format!("Saved todos.json: {} pending, 0 in progress, 0 completed", self.todos.len());
            call(CallPurpose::Plan, part(PartKind::Content, &written), &saved);
        }
        for (_, content) in self.results() {
            let query = Part::new(PartKind::Arguments, self.query_tokens);
            call(CallPurpose::Gathering, query, &String::from_utf8_lossy(&content));
        }
        if let Some((path, text)) = self.analysis() {
            let lines = text.matches('\n').count() + 1;
            let written = tool("write_file", json!({"file_path": path, "content": text}));
            let saved = format!("✅ Saved {path} ({} bytes, {lines} lines)", text.len());
            call(CallPurpose::Change, part(PartKind::Content, &written), &saved);
            let read = tool("read_file", json!({ "file_path": path }));
            call(CallPurpose::Gathering, part(PartKind::Arguments, &read), &text);
        }
        if let Some(last) = steps.last_mut() {
            last.emits = vec![Part::new(PartKind::Text, self.answer_tokens)];
        }
        Conversation { fixed: self.system_tokens, fixed_is: FixedOrigin::Stated, steps, ..Conversation::default() }
    }

    /// The published accounts, by name.
    pub(crate) fn published(&self) -> Vec<(String, Conversation)> {
        let published = self.published.iter().map(|account| {
            let steps = account.turns.iter().enumerate();
            let steps = steps.map(|(at, (enters, emits))| Step {
                gap_ms: if at == 0 { 0 } else { TURN_MS },
                enters: vec![match at {
                    0 => Part::new(PartKind::User, *enters),
                    _ => Part::new(PartKind::Result, *enters),
                }],
                emits: vec![Part::new(PartKind::Text, *emits)],
                ..Step::default()
            });
            let conversation = Conversation {
                fixed: account.fixed,
                fixed_is: FixedOrigin::Stated,
                steps: steps.collect(),
                ..Conversation::default()
            };
            (account.name.clone(), conversation)
        });
        published.collect()
    }
}

const TOPICS: &[&str] = &[
    "US strategy",
    "international engagement",
    "the autumn campaign",
    "grant reporting",
    "hiring plans",
    "the website relaunch",
    "partner onboarding",
    "budget review",
    "the annual meeting",
    "data policy",
    "volunteer training",
    "press outreach",
];
const PEOPLE: &[&str] =
    &["Ann", "Bogdan", "Carla", "Dinesh", "Emeka", "Fatima", "Greta", "Hiro", "Ines", "Jonas", "Katya", "Liam"];
const KINDS: &[&str] = &["All Hands", "Leadership sync", "Working group", "Retrospective", "Planning", "One on one"];
const SENTENCES: &[&str] = &[
    "We agreed to move {} to the next quarter.",
    "{} needs an owner before the end of the month.",
    "There was concern that {} is behind schedule.",
    "The numbers for {} look better than expected.",
    "Nobody objected to the proposal on {}.",
    "A decision about {} was put off until costs are known.",
    "{} will be piloted with two partners first.",
    "Feedback on {} was mixed but constructive.",
];

/// A query's result: JSON of exactly `bytes` bytes, one meeting per line.
fn meetings(rng: &mut ChaCha8Rng, bytes: usize) -> String {
    const HEAD: &str = "{\n  \"status\": \"success\",\n  \"results\": [\n";
    const TAIL: &str = "\n  ]\n}\n";
    let mut text = HEAD.to_owned();
    let mut number = 0;
    loop {
        number += 1;
        let topic = pick(rng, TOPICS);
        let sentences = [0; 2].map(|_| pick(rng, SENTENCES).replace("{}", topic));
        let meeting = serde_json::json!({
            "meeting_title": format!("{}: {topic}", pick(rng, KINDS)),
            "date": format!("2025-{:02}-{:02}", rng.random_range(7..=10), rng.random_range(1..=28)),
            "attendees": [pick(rng, PEOPLE), pick(rng, PEOPLE)],
            "summary": sentences.join(" "),
        });
        let line = format!("    {meeting}");
        let separator = if number == 1 { "" } else { ",\n" };
        let with_next = text.len() + separator.len() + line.len() + TAIL.len();
        // Stop before a line that would not fit; the last line is padded later.
        if with_next > bytes {
            break;
        }
        text += separator;
        text += &line;
    }
    let missing = bytes.saturating_sub(text.len() + TAIL.len());
    // The padding goes before the closing quote of the last summary.
    let end = text.rfind("\"}").unwrap_or(text.len());
    let sentence = SENTENCES[0].replace("{}", TOPICS[0]);
    let more: String = sentence.chars().cycle().take(missing).collect();
    text.insert_str(end, &more);
    text + TAIL
}

fn pick(rng: &mut ChaCha8Rng, from: &[&'static str]) -> &'static str {
    from[rng.random_range(0..from.len())]
}

#[cfg(test)]
mod tests {
    use crate::catalogue::workload;
    use crate::context::context;
    use crate::definition::SessionSource;
    use crate::script::FileOp;
    use tokens::{Account, Terms};

    #[test]
    fn each_result_is_json_of_the_size_in_source_5() {
        let workload = workload("agent/offload-comparison").unwrap();
        for call in &workload.script.calls[..2] {
            let [FileOp::Write { content, .. }] = &call.ops[..] else {
                panic!("{call:?}");
            };
            assert_eq!(content.len(), 50_000);
            let json: serde_json::Value = serde_json::from_slice(content).unwrap();
            assert!(json["results"].as_array().unwrap().len() > 150);
        }
    }

    #[test]
    fn the_examples_of_source_5_have_its_plan_its_files_and_its_sizes() {
        let of = |name: &str| {
            let workload = workload(name).unwrap();
            let calls = workload.script.calls.iter().flat_map(|call| &call.ops);
            let written = calls.filter_map(|op| match op {
                FileOp::Write { path, content, .. } => Some((path.to_string(), content.to_vec())),
                _ => None,
            });
            (written.take(4).collect::<Vec<_>>(), workload.conversation().unwrap())
        };
        let results = |conversation: &tokens::Conversation| -> Vec<u64> {
            let steps = conversation.steps.iter().skip(1);
            steps.flat_map(|step| &step.enters).map(|part| part.tokens).collect()
        };
        // Example 1: a result below 2,000 tokens, by which the source says to do without files.
        let (written, simple) = of("agent/offload-simple");
        assert_eq!(written[0].0, "last_meeting.json");
        assert!(matches!(results(&simple)[..], [1_000..2_000]), "{:?}", results(&simple));
        // Example 3, and the plan pattern: a plan, two large results, and in the example a saved analysis.
        for (name, files) in [
            (
                "agent/offload-synthesis",
                &["todos.json", "intl_engagement_meetings.json", "decisions_raw.json", "intl_engagement_decisions.txt"]
                    [..],
            ),
            ("agent/offload-plan", &["todos.json", "july.json", "october.json"]),
        ] {
            let (written, conversation) = of(name);
            let names: Vec<&str> = written.iter().take(files.len()).map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, files);
            let plan: serde_json::Value = serde_json::from_slice(&written[0].1).unwrap();
            let steps = plan.as_array().unwrap();
            assert!(steps.len() >= 5 && steps.iter().all(|step| step["status"] == "pending"), "{plan}");
            let results = results(&conversation);
            assert!(results[0] < 50, "the plan's receipt: {results:?}");
            assert!(results[1] > 5_000 && results[2] > 5_000, "{results:?}");
            assert_eq!(results.len(), if name.ends_with("plan") { 3 } else { 5 });
        }
    }

    #[test]
    fn the_published_figures_of_source_5_add_up() {
        let workload = workload("agent/offload-comparison").unwrap();
        let SessionSource::Stated { published, .. } = &workload.session else {
            panic!("{:?}", workload.session);
        };
        let sums = published.iter().map(|(name, conversation)| {
            let account = Account::of(conversation, &Terms::default());
            (name.as_str(), account.entering)
        });
        let expected = [("source-before", 109_150), ("source-after", 15_550)];
        assert_eq!(sums.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn saving_by_writing_costs_more_than_not_saving() {
        let workload = workload("agent/offload-comparison").unwrap();
        let inline = workload.conversation().unwrap();
        let account = |name: &str| Account::of(&context(name).unwrap().apply(&inline), &Terms::default());
        let (inline, offload, evict) = (account("inline"), account("offload"), account("evict"));
        // 50,000 bytes are not 50,000 tokens.
        assert!(inline.entering < 50_000, "{}", inline.entering);
        assert!(offload.entering > inline.entering);
        assert!(offload.resent() > inline.resent());
        assert!(evict.entering < inline.entering);
    }
}
