//! A generator in Rust, for docs/LLM.md: its files say how many files there are.

use fuse::store::{Kind, ROOT, Result};
use llm::GenerateStore;
use llm::generate::{FileRequest, GENERATOR, GenerateOptions, GeneratedContent, Generator, Generators, parse_tree};

use crate::common::{caller, create, read, set};
use crate::model::{asker, nobody, options};

struct Count;

impl Generator for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent> {
        let tree = file.around.tree();
        let files = tree.iter().filter(|line| !line.is_directory()).count();
        Ok(format!("{files} files, seen from {}\n", file.path).into())
    }
}

#[test]
fn a_file_is_written_by_the_generator_that_its_attribute_names() {
    let options = GenerateOptions {
        tree: Some(parse_tree(r#"{"entries":[{"path":"a","kind":"file"}]}"#).unwrap()),
        generators: Generators::standard().with(Count),
        ..options()
    };
    let store = GenerateStore::open(asker(nobody(), None), options, &caller(1)).unwrap();
    let file = create(&store, ROOT, "count", Kind::File).ino;
    set(&store, file, GENERATOR, "count").unwrap();
    assert_eq!(read(&store, file, 0, 100), b"2 files, seen from /count\n");
}
