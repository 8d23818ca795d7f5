//! The [`Generator`] trait, its view of the file system, and the registry. The built-in generators are in
//! `standard`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fuse::store::{Attr, Errno, Kind, Result, StoreError};
use models::{Cancel, Finish, Usage};

use super::GENERATOR;
use super::context::ContextFile;
use super::settings::Setting;

/// An entry of the tree, as a generator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine {
    /// Path from the root, such as `/src/main.py`.
    pub path: String,
    /// What `stat` says; a waiting file has size 0.
    pub attr: Attr,
    /// The target of a symbolic link.
    pub target: Option<String>,
    /// Its extended attributes whose names and values are UTF-8.
    pub attributes: BTreeMap<String, String>,
    /// Whether it waits for generation.
    pub is_pending: bool,
}

impl TreeLine {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attr.kind == Kind::Directory
    }

    /// The name of its generator, if it has one.
    pub fn generator(&self) -> Option<&str> {
        self.attributes.get(GENERATOR).map(String::as_str)
    }
}

/// A model's answer to a generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The text of the answer.
    pub text: String,
    /// Why the answer ended.
    pub finish: Finish,
    /// Tokens of the request; for a cached answer, of the original request.
    pub usage: Usage,
    /// Whether the answer is from the cache.
    pub is_cached: bool,
    /// Tokens of the request that other files took, estimated by their share of its bytes.
    pub context_tokens: u64,
}

/// The file system, as a generator sees it.
pub trait CommandContext {
    /// All entries, sorted by name in each directory, without the control directories.
    fn tree(&self) -> Vec<TreeLine>;

    /// The value of a setting for the file at `path`, by the lookup order of source 2.
    fn setting(&self, path: &str, setting: Setting) -> Option<String>;

    /// The generated files that the prompt of the file at `path` shows, nearest first, within the limit of the mount
    /// and within `most` bytes.
    fn context(&self, path: &str, most: usize) -> Vec<ContextFile>;

    /// Asks the model, or returns the cached answer to the same request. `context_bytes` of the question are other files.
    ///
    /// # Errors
    /// The error number for the reader, and the reason.
    fn ask(
        &self,
        path: &str,
        system: &str,
        question: String,
        context_bytes: usize,
        cancel: &Cancel,
    ) -> Result<ModelAnswer>;

    /// The cache of answers.
    fn cache(&self) -> &super::AnswerCache;

    /// The requests, tokens and cost of this mount, in words.
    fn usage(&self) -> String;
}

/// A file to generate.
pub struct FileRequest<'a> {
    /// Path from the root, such as `/src/main.py`.
    pub path: &'a str,
    /// The prompt of the file, from its tree or its attribute `user.llmfs.prompt`.
    pub about: Option<&'a str>,
    /// The file system that the file is in.
    pub around: &'a dyn CommandContext,
    /// Set when no caller waits for the file any more.
    pub cancel: &'a Cancel,
}

/// The result of a generator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedContent {
    /// The content; only that of a live file may be empty.
    pub content: Vec<u8>,
    /// The model that wrote the content, if one did.
    pub model: Option<String>,
    /// Tokens of the request, if a model was asked.
    pub usage: Option<Usage>,
    /// Whether the answer ended at the token limit.
    pub is_cut_off: bool,
    /// The other files that the generator was shown.
    pub context: Vec<ContextFile>,
    /// As in [`ModelAnswer`].
    pub context_tokens: u64,
}

impl From<String> for GeneratedContent {
    fn from(text: String) -> Self {
        Self { content: text.into_bytes(), ..Self::default() }
    }
}

/// Makes the content of files. A file names its generator in the attribute `user.llmfs.generator`.
pub trait Generator: Send + Sync {
    /// The name, as in `user.llmfs.generator`.
    fn name(&self) -> &str;

    /// Whether the content is generated for each reader, as in `/proc`, and never stored. It must then be fast.
    fn is_live(&self) -> bool {
        false
    }

    /// Whether it writes the file of the tree at `path`, from the root, instead of `default`.
    fn writes(&self, _path: &str) -> bool {
        false
    }

    /// Makes the content of a file.
    ///
    /// # Errors
    /// The error number for the reader, and the reason.
    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent>;

    /// Handles a write to a live file.
    ///
    /// # Errors
    /// `EACCES` if the file is read-only; `EINVAL` if it does not accept the data.
    fn accept(&self, _file: &FileRequest<'_>, _data: &[u8]) -> Result<()> {
        Err(read_only())
    }
}

/// The error of a write to a file that takes none.
pub(super) fn read_only() -> StoreError {
    StoreError::storage(Errno::ACCESS, "this file is read-only")
}

/// The generators of a mount, in the order in which they were added.
#[derive(Clone, Default)]
pub struct Generators(Vec<Arc<dyn Generator>>);

impl std::fmt::Debug for Generators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Generators {
    /// Adds a generator. It replaces one of the same name.
    #[must_use]
    pub fn with(mut self, generator: impl Generator + 'static) -> Self {
        self.0.retain(|other| other.name() != generator.name());
        self.0.push(Arc::new(generator));
        self
    }

    /// The generator called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Generator>> {
        self.0.iter().find(|generator| generator.name() == name).cloned()
    }

    /// The name of the first generator that writes the file of the tree at `path` instead of `default`.
    pub(super) fn of_path(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|generator| generator.writes(path)).map(|generator| generator.name())
    }

    /// The names of all generators, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|generator| generator.name()).collect();
        names.sort_unstable();
        names
    }
}
