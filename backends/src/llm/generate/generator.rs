//! Generators: what makes the content of a file. One trait, a registry, and those that are always there.

use std::collections::BTreeMap;
use std::sync::Arc;

use models::{Cancel, Finish, Usage};

use super::settings::Setting;
use crate::store::{Errno, Result, StoreError};

/// A line of the tree that a generator can look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine {
    /// From the root, as in `/src/main.py`.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Where it points, if it is a symbolic link.
    pub target: Option<String>,
    /// What makes its content, if anything does.
    pub generator: Option<String>,
    /// It waits to be generated.
    pub is_pending: bool,
    /// Bytes, 0 for what waits.
    pub size: u64,
}

/// What a model has answered to a generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The answer.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// What it used, now or when it was asked.
    pub usage: Usage,
    /// It was not asked now, but is from the cache.
    pub is_cached: bool,
}

/// What a generator may ask the file system.
pub trait Surroundings {
    /// Everything there is, in the order of paths, without the control directories.
    fn tree(&self) -> Vec<TreeLine>;

    /// The setting that holds for the file at `path`, by the lookup order of source 2.
    fn setting(&self, path: &str, setting: Setting) -> Option<String>;

    /// Asks the model; from the cache, where the same was asked before.
    ///
    /// # Errors
    /// If there is no answer: the error number that the reader sees, and the reason.
    fn ask(&self, path: &str, system: &str, question: String, cancel: &Cancel) -> Result<Written>;

    /// The cache of answers.
    fn cache(&self) -> &super::AnswerCache;
}

/// A file whose content is wanted.
pub struct FileToMake<'a> {
    /// From the root, as in `/src/main.py`.
    pub path: &'a str,
    /// What it is to hold, where its tree or its attribute `user.llmfs.prompt` says.
    pub about: Option<&'a str>,
    /// What else there is.
    pub around: &'a dyn Surroundings,
    /// Nobody wants it any more.
    pub cancel: &'a Cancel,
}

/// What a generator has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The content; a file that is generated once must not be empty.
    pub content: Vec<u8>,
    /// The model that made it.
    pub model: Option<String>,
    /// What it took.
    pub usage: Option<Usage>,
    /// The model was cut off: there would have been more.
    pub is_cut_off: bool,
}

impl From<String> for Made {
    fn from(text: String) -> Self {
        Self {
            content: text.into_bytes(),
            ..Self::default()
        }
    }
}

/// Makes the content of files. A file names its generator in the attribute `user.llmfs.generator`.
pub trait Generator: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// Made anew for every reader, as in `/proc`, and never kept. Must be quick then.
    fn is_live(&self) -> bool {
        false
    }

    /// Makes the content of a file.
    ///
    /// # Errors
    /// The error number that the reader sees, and the reason.
    fn generate(&self, file: &FileToMake<'_>) -> Result<Made>;

    /// Takes what was written to a live file.
    ///
    /// # Errors
    /// `EACCES` unless the file is there to be written; `EINVAL` for what it does not take.
    fn accept(&self, _file: &FileToMake<'_>, _data: &[u8]) -> Result<()> {
        Err(StoreError::storage(
            Errno::ACCESS,
            "this file can only be read",
        ))
    }
}

/// The generators there are, by name.
#[derive(Clone, Default)]
pub struct Generators(BTreeMap<String, Arc<dyn Generator>>);

impl std::fmt::Debug for Generators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Generators {
    /// Those of source 2: `default`, `model`, `prompt`, `tree`, `readme`, and the cache's control files.
    pub fn standard() -> Self {
        Self::default()
            .with(super::standard::DefaultGenerator)
            .with(super::standard::SettingGenerator(Setting::Model))
            .with(super::standard::SettingGenerator(Setting::Prompt))
            .with(super::standard::TreeGenerator)
            .with(super::standard::ReadmeGenerator)
            .with(super::standard::CacheEnabled)
            .with(super::standard::CacheStats)
            .with(super::standard::CacheClear)
            .with(super::standard::CacheList)
    }

    /// The same and one more, which takes the place of one of the same name.
    #[must_use]
    pub fn with(mut self, generator: impl Generator + 'static) -> Self {
        self.0
            .insert(generator.name().to_owned(), Arc::new(generator));
        self
    }

    /// The generator of that name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Generator>> {
        self.0.get(name).cloned()
    }

    /// All names.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
