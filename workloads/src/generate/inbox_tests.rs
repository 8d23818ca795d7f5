//! The generated answers hold in the generated data, and each script finds them in a simulated source.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::tasks::command::{MatchPart, TaskCommand};
use crate::tasks::scripts::{Console, Form, definitions, perform, sees, shell_text};

fn made(about: About, size: usize, questions: usize, seed: u64) -> Tasks {
    let inbox = Inbox { about, size, questions, asked_every_s: 60, copied_every_s: 300, seed };
    let script = inbox.script().unwrap();
    Tasks::clone(script.tasks.as_ref().unwrap())
}

/// Files in memory with the shell words of the scripts.
struct Shell {
    files: BTreeMap<String, String>,
}

impl Shell {
    fn of(world: &World) -> Self {
        let mut files = BTreeMap::new();
        for message in &world.messages {
            files.insert(message.inbox_path(), message.text());
            files.insert(message.thread_path(), message.text());
        }
        for task in &world.tasks {
            files.insert(task.path(), task.text());
        }
        for line in &world.log {
            let file: &mut String = files.entry(line.path()).or_default();
            *file += &format!("{}\n", line.text());
        }
        Self { files }
    }

    fn place(&self, place: &str) -> Vec<(&String, &String)> {
        let dir = place.strip_suffix('*');
        let is_in = |path: &str| match dir {
            Some(dir) => path.strip_prefix(dir).is_some_and(|rest| !rest.contains('/')),
            None => path == place,
        };
        self.files.iter().filter(|(path, _)| is_in(path)).collect()
    }
}

impl Console for Shell {
    fn shell(&mut self, command: &TaskCommand) -> Result<String, String> {
        match command {
            TaskCommand::Read(places) => {
                let found = places.iter().flat_map(|place| self.place(place));
                Ok(found.map(|(_, text)| text.as_str()).collect())
            }
            TaskCommand::Grep { texts, place, is_recursive, shows, last } => {
                let below = format!("{place}/");
                let files: Vec<_> = if *is_recursive {
                    let files = self.files.iter();
                    files.filter(|(path, _)| path.starts_with(&below)).collect()
                } else {
                    self.place(place)
                };
                let is_found = |line: &&str| texts.iter().any(|text| line.contains(text));
                let mut lines = Vec::new();
                for (path, text) in files {
                    for line in text.lines().filter(is_found) {
                        lines.push(match shows {
                            MatchPart::FileAndLine => format!("{path}:{line}"),
                            MatchPart::Line => line.to_owned(),
                            MatchPart::File => path.clone(),
                        });
                        if *shows == MatchPart::File {
                            break;
                        }
                    }
                }
                let skipped = last.map_or(0, |last| lines.len().saturating_sub(last));
                Ok(lines[skipped..].join("\n") + "\n")
            }
            TaskCommand::Write { path, content } => {
                self.files.insert(path.clone(), content.clone());
                Ok(String::new())
            }
            TaskCommand::Move { dir, suffix, to } => {
                let from: Vec<String> = self
                    .place(&format!("{dir}/*"))
                    .into_iter()
                    .map(|(path, _)| path.clone())
                    .filter(|path| path.ends_with(suffix.as_str()))
                    .collect();
                assert_eq!(from.len(), 1, "{dir} {suffix}");
                let text = self.files.remove(&from[0]).unwrap();
                let name = from[0].rsplit('/').next().unwrap();
                self.files.insert(format!("{to}/{name}"), text);
                Ok(String::new())
            }
            TaskCommand::List(_) | TaskCommand::Run { .. } => Err("a copy computes nothing".to_owned()),
        }
    }

    fn tool(&mut self, name: &str, _: Value) -> Result<String, String> {
        Err(format!("there is no tool {name}"))
    }
}

/// Asks all questions of a copy that is always up to date.
fn answered_from_files(tasks: &Tasks) {
    let mut world = tasks.world.clone();
    for question in &tasks.questions {
        if let Some(change) = &question.change {
            let is_seen = |world: &World| sees(change, Form::Copy, &mut Shell::of(world));
            assert!(!is_seen(&world), "{change:?}");
            let before = world.answer(&question.asks);
            world.apply(change);
            assert_ne!(before, world.answer(&question.asks), "{change:?}");
            assert!(is_seen(&world), "{change:?}");
        }
        let mut shell = Shell::of(&world);
        let found = perform(&question.asks, Form::Copy, &mut shell).unwrap();
        let expected = world.answer(&question.asks);
        assert_eq!(Some(found), expected, "{:?}", question.asks);
        if let Some(draft) = world.draft(&question.asks) {
            assert_eq!(shell.files[&draft.path()], draft.text());
            let ends = format!(" {}.eml", draft.answers);
            let files = shell.files.keys();
            let filed = files.filter(|path| path.starts_with("archive/"));
            assert!(filed.clone().all(|path| path.ends_with(&ends)) && filed.count() == 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_reference_answer_is_found_in_generated_mail(seed: u64, size in 20usize..60) {
        answered_from_files(&made(About::Mail, size, 12, seed));
    }

    #[test]
    fn every_reference_answer_is_found_in_generated_tasks(seed: u64, size in 20usize..120) {
        answered_from_files(&made(About::Tasks, size, 6, seed));
    }

    #[test]
    fn every_reference_answer_is_found_in_generated_logs(seed: u64, size in 20usize..200) {
        answered_from_files(&made(About::Logs, size, 8, seed));
    }
}

#[test]
fn a_quarter_of_the_questions_is_about_something_that_has_just_changed() {
    for (about, size) in [(About::Mail, 40), (About::Tasks, 50), (About::Logs, 100)] {
        let tasks = made(about, size, 8, 1);
        let changed = tasks.questions.iter().filter(|question| question.change.is_some());
        assert_eq!(changed.count(), 2);
        assert_eq!(tasks, made(about, size, 8, 1), "the same seed");
        assert_ne!(tasks, made(about, size, 8, 2));
    }
}

#[test]
fn names_sort_by_time_and_no_two_messages_have_one_number() {
    let tasks = made(About::Mail, 72, 50, 3);
    let arrivals = tasks.questions.iter().filter_map(|question| match &question.change {
        Some(SourceChange::Message(message)) => Some(message),
        _ => None,
    });
    let messages = tasks.world.messages.iter().chain(arrivals);
    let ids: Vec<u64> = messages.map(|message| message.id).collect();
    assert!(ids.is_sorted_by(|one, other| one < other));
    assert!(ids.iter().all(|id| (1000..10_000).contains(id)));
}

#[test]
fn a_view_is_told_more_of_than_a_copy_and_each_call_names_its_tool() {
    let copy = definitions(Form::Copy).unwrap();
    let view = definitions(Form::View).unwrap();
    assert!(tokens::count(&view) > tokens::count(&copy) && tokens::count(&copy) > 100);
    assert_eq!(definitions(Form::Sql), None);
    let call = shell_text(&TaskCommand::Read(vec!["health/tasks.json".to_owned()]));
    let expected = r#"{"name":"bash","arguments":{"command":"cat health/tasks.json"}}"#;
    assert_eq!(call, expected);
    assert_eq!(tokens::count(&call), 14);
}
