//! Generated files in the prompts of others.

use std::sync::{Arc, Mutex};

use fuse::store::{Ino, ROOT, Store};
use inputs::sha256;
use llm::GenerateStore;
use llm::generate::{GENERATOR, GenerateOptions, parse_tree};
use models::{Cancel, Finish, Model, ModelError, Reply, Request, Usage};

use crate::common::{caller, has, lacks, read, resize, set};
use crate::model::{ScriptedModel, asker, options, question};

const MODULE: &str = "def twice(number):\n    return 2 * number\n";
const TEST: &str = "from x import twice\n\ndef test_twice():\n    assert twice(2) == 4\n";

/// A model that writes the module and the test by their names, keeps the questions, and counts bytes as tokens.
struct Author(Arc<Mutex<Vec<String>>>);

impl Model for Author {
    fn name(&self) -> &str {
        "author"
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let asked = question(request).to_owned();
        let prompt = request.messages.iter().map(|message| message.content.len() as u64).sum();
        let answer = match &asked {
            asked if asked.ends_with("Write the file /src/x.py.") => MODULE.to_owned(),
            asked if asked.ends_with("Write the file /tests/test_x.py.") => TEST.to_owned(),
            asked if asked.ends_with("Write the file /long.md.") => "A line of many.\n".repeat(10_000),
            asked => format!("Another file: {}\n", asked.len()),
        };
        self.0.lock().unwrap().push(asked);
        let reply = ScriptedModel(move |_: &Request, _: &Cancel| Ok(answer.clone())).complete(request, cancel)?;
        let usage = Usage { prompt, output: 1, is_estimated: false };
        Ok(Reply { usage, finish: Finish::Stop, ..reply })
    }
}

/// A store of this tree, and the questions that its model was asked.
fn store(options: GenerateOptions) -> (GenerateStore, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let author = Author(Arc::clone(&asked));
    (GenerateStore::open(asker(author, None), options, &caller(1)).unwrap(), asked)
}

fn files(paths: &[&str]) -> GenerateOptions {
    let entries: Vec<String> = paths.iter().map(|path| format!(r#"{{"path":"{path}","kind":"file"}}"#)).collect();
    let tree = format!(r#"{{"entries":[{}]}}"#, entries.join(","));
    GenerateOptions { tree: Some(parse_tree(&tree).unwrap()), ..options() }
}

fn find(store: &dyn Store, path: &str) -> Ino {
    path.split('/').fold(ROOT, |dir, name| store.lookup(dir, name.as_bytes()).unwrap().ino)
}

fn text(store: &dyn Store, path: &str) -> String {
    String::from_utf8(read(store, find(store, path), 0, 1 << 20)).unwrap()
}

fn attribute(store: &dyn Store, path: &str, name: &str) -> Option<String> {
    let value = store.getxattr(find(store, path), format!("user.llmfs.{name}").as_bytes()).ok()?;
    Some(String::from_utf8(value).unwrap())
}

#[test]
fn the_prompt_of_a_test_shows_its_generated_module_and_the_test_records_it() {
    let (store, asked) = store(files(&["src/x.py", "src/y.py", "tests/test_x.py"]));
    let last = || asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(text(&store, "src/x.py"), MODULE);
    lacks(&last(), &["already written"]);
    assert_eq!(
        (attribute(&store, "src/x.py", "context"), attribute(&store, "src/x.py", "context-tokens")),
        (None, None)
    );

    assert_eq!(text(&store, "tests/test_x.py"), TEST);
    let shown = format!("/src/x.py:\n```\n{MODULE}```\n");
    has(&last(), &["The new file must fit them:\n", &shown]);
    // A file that waits is not asked for.
    assert_eq!(asked.lock().unwrap().len(), 2);
    let record = format!("{}  src/x.py\n", sha256(MODULE));
    assert_eq!(attribute(&store, "tests/test_x.py", "context").unwrap(), record);
    let context = "These files are already written. The new file must fit them:\n".len() + shown.len();
    assert_eq!(attribute(&store, "tests/test_x.py", "context-tokens").unwrap(), context.to_string());
    assert_eq!(store.counters()["context-tokens-estimated"], context as u64);
    has(
        &text(&store, ".llmfs/README"),
        &["2 requests; ", &format!("of which about {context} for other files; 2 output")],
    );

    // A change of the module changes neither the test nor its record, and asks no model.
    let module = find(&store, "src/x.py");
    store.write(&caller(20), module, 0, b"# mine\n").unwrap();
    assert_eq!(text(&store, "tests/test_x.py"), TEST);
    assert_eq!(attribute(&store, "tests/test_x.py", "context").unwrap(), record);
    assert_eq!(asked.lock().unwrap().len(), 2);
    // What a program has written is not sent to the model.
    text(&store, "src/y.py");
    has(&last(), &["/tests/test_x.py:\n```\nfrom x"]);
    lacks(&last(), &["# mine", "/src/x.py:"]);

    // A test that is generated again, beside no generated module, shows what it sees then.
    let test = find(&store, "tests/test_x.py");
    resize(&store, test, 0);
    assert_eq!(attribute(&store, "tests/test_x.py", "context"), None);
    set(&store, test, GENERATOR, "default").unwrap();
    text(&store, "tests/test_x.py");
    let record = attribute(&store, "tests/test_x.py", "context").unwrap();
    has(&record, &["  src/y.py\n"]);
    lacks(&record, &["src/x.py"]);
}

#[test]
fn a_prompt_shows_other_files_within_its_limit_and_says_what_it_cut() {
    let paths = ["src/x.py", "long.md", "notes.md", "tests/test_x.py"];
    for (limit, has_module, has_long) in [(0, false, false), (1_000, true, true), (100, true, false)] {
        let (store, asked) = store(GenerateOptions { context_bytes: limit, ..files(&paths) });
        for path in paths {
            text(&store, path);
        }
        let last = asked.lock().unwrap().last().unwrap().clone();
        assert_eq!(last.contains(MODULE), has_module, "{limit}: {last}");
        assert_eq!(last.contains("/long.md ("), has_long, "{limit}: {last}");
        let before = last.split("These files").next().unwrap().len();
        let after = "Write the file /tests/test_x.py.".len()
            + "These files are already written. The new file must fit them:\n".len();
        assert!(last.len() <= before + after + limit, "{limit}: {last}");
        let record = attribute(&store, "tests/test_x.py", "context").unwrap_or_default();
        assert_eq!(record.contains("bytes:\n"), has_long, "{record}");
        let whole = format!("{}  long.md\n", sha256("A line of many.\n".repeat(10_000)));
        assert_eq!(record.contains(&whole), has_long, "{record}");
    }
}

#[test]
fn a_remount_shows_the_saved_files_and_keeps_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let save = Some(dir.path().join("save.json"));
    let (first, _) =
        store(GenerateOptions { save: save.clone(), ..files(&["src/x.py", "src/y.py", "tests/test_x.py"]) });
    text(&first, "src/x.py");
    text(&first, "tests/test_x.py");
    let record = attribute(&first, "tests/test_x.py", "context");
    drop(first);
    let (again, asked) = store(GenerateOptions { save, ..options() });
    assert!(record.is_some());
    assert_eq!(attribute(&again, "tests/test_x.py", "context"), record);
    text(&again, "src/y.py");
    has(&asked.lock().unwrap()[0], &[MODULE, TEST]);
}
