//! Stores with a language model that is a function.

use std::path::Path;
use std::time::Duration;

use llm::generate::{AnswerCache, CONTEXT_DEFAULT, GenerateError, GenerateOptions, Generators, TreeEntry};
use llm::history::HistoryOptions;
use llm::{Asker, AskerOptions, GenerateStore, HistoryStore, LogFile};
use models::{Budget, Cancel, Finish, Meter, Model, ModelError, Origin, Reply, Request, Timing, Usage};

use crate::common::caller;

/// A model that answers by a function.
pub struct ScriptedModel<F>(pub F);

impl<F: Fn(&Request, &Cancel) -> Result<String, ModelError> + Send + Sync> Model for ScriptedModel<F> {
    fn name(&self) -> &str {
        "scripted"
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        Ok(Reply {
            text: (self.0)(request, cancel)?,
            finish: Finish::Stop,
            usage: Usage::default(),
            timing: Timing::default(),
            origin: Origin::Simulated,
            has_own_sampling: false,
        })
    }
}

/// An asker of `model` that logs to `log`.
pub fn asker(model: impl Model + 'static, log: Option<&Path>) -> Asker {
    let meter = Meter::new(Box::new(model), None, Budget::default(), 8).with_patience(Duration::from_secs(60));
    let log = log.map(|path| LogFile::open(path).unwrap());
    Asker::new(meter, AskerOptions::default(), log)
}

/// A history whose prompts have room for the whole log.
pub fn history(model: impl Model + 'static, policy: Option<&str>) -> HistoryStore {
    history_of(asker(model, None), policy)
}

pub fn history_of(asker: Asker, policy: Option<&str>) -> HistoryStore {
    let options = HistoryOptions { policy: policy.map(str::to_owned), log_bytes: 200 * 1024 };
    HistoryStore::open(asker, options, None, &caller(1)).unwrap()
}

/// A generated file system with `model`, without a cache.
pub fn generate(
    model: impl Model + 'static,
    tree: Option<Vec<TreeEntry>>,
    save: Option<&Path>,
) -> Result<GenerateStore, GenerateError> {
    let options = GenerateOptions { tree, save: save.map(Path::to_owned), ..options() };
    GenerateStore::open(asker(model, None), options, &caller(1))
}

/// Options of a generated file system without prompt, tree, save file and cache.
pub fn options() -> GenerateOptions {
    GenerateOptions {
        prompt: None,
        tree: None,
        save: None,
        generators: Generators::standard(),
        cache: AnswerCache::new("/nonexistent".into(), "nowhere", false),
        context_bytes: CONTEXT_DEFAULT,
    }
}

/// A model that panics when it is called.
pub fn nobody() -> impl Model + 'static {
    ScriptedModel(|request: &Request, _: &Cancel| -> Result<String, ModelError> {
        panic!("the model was asked: {request:?}")
    })
}

/// The last message of a request.
pub fn question(request: &Request) -> &str {
    &request.messages.last().unwrap().content
}

/// A model that answers exactly, see [`crate::oracle`].
pub fn exact() -> impl Model + 'static {
    ScriptedModel(|request: &Request, _: &Cancel| Ok(crate::oracle::answer(question(request))))
}
