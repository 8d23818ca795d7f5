//! A generator in Rust, for docs/LLM.md: its files say how many files there are.

use backends::llm::GenerateStore;
use backends::llm::generate::{
    AnswerCache, FileToMake, GENERATOR, GenerateOptions, Generator, Generators, Made, parse_tree,
};
use backends::store::{Kind, ROOT, Result, Store, XattrMode};

use crate::common::{caller, create, read};
use crate::model::{asker, nobody};

struct Count;

impl Generator for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        let tree = file.around.tree();
        let files = tree.iter().filter(|line| !line.is_directory).count();
        Ok(format!("{files} files, seen from {}\n", file.path).into())
    }
}

#[test]
fn a_file_is_written_by_the_generator_that_its_attribute_names() {
    let options = GenerateOptions {
        prompt: None,
        tree: Some(parse_tree(r#"{"entries":[{"path":"a","kind":"file"}]}"#).unwrap()),
        save: None,
        generators: Generators::standard().with(Count),
        cache: AnswerCache::new("/nonexistent".into(), "nobody", false),
    };
    let store = GenerateStore::open(asker(nobody(), None), options, &caller(1)).unwrap();
    let file = create(&store, ROOT, "count", Kind::File).ino;
    store
        .setxattr(
            &caller(1),
            file,
            GENERATOR.as_bytes(),
            b"count",
            XattrMode::Set,
        )
        .unwrap();
    assert_eq!(read(&store, file, 0, 100), b"2 files, seen from /count\n");
}
