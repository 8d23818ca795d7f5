//! Running generators: their view of the file system, storing their results, and saving the file system.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use fuse::store::{Caller, Errno, Ino, Kind, ROOT, Result, Store, StoreError, Timestamp, XattrMode};
use models::{Cancel, Usage};

use super::context::ContextFile;
use super::{
    AnswerCache, CommandContext, FileRequest, GENERATOR, GeneratedContent, Kernel, ModelAnswer, PROMPT_MAX, Setting,
    SharedState, TreeLine, context,
};
use crate::ERROR;
use crate::asker::Purpose;
use crate::flight::Failure;
use crate::names::shown;

const MODEL: &str = "user.llmfs.model";
const TOKENS: &str = "user.llmfs.tokens";
const GENERATED_AT: &str = "user.llmfs.generated-at";
const CUT_OFF: &str = "user.llmfs.cut-off";
const CONTEXT: &str = "user.llmfs.context";
const CONTEXT_TOKENS: &str = "user.llmfs.context-tokens";

/// The extended attributes that describe how a file was generated.
pub(super) const ATTRIBUTES: [&str; 8] =
    [GENERATOR, MODEL, TOKENS, GENERATED_AT, CUT_OFF, CONTEXT, CONTEXT_TOKENS, ERROR];

impl SharedState {
    /// Generates the content of a waiting file and stores it, unless a caller wrote to the file meanwhile.
    pub(super) fn make(&self, ino: Ino, cancel: &Cancel) -> std::result::Result<(), Failure> {
        let Some(waits) = self.waiting.read().get(&ino).cloned() else {
            return Ok(());
        };
        let made = self.generate(ino, &waits.generator, waits.about.as_deref(), cancel);
        let made = made.and_then(|made| match made.content[..] {
            [] => Err(StoreError::storage(Errno::IO, "the generator made no content")),
            _ => Ok(made),
        });
        let now = Caller { now: Timestamp::now(), ..self.owner };
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                self.note_failure(&now, ino, &error);
                return Err(error.into());
            }
        };
        let mut waiting = self.waiting.write();
        if !waiting.contains_key(&ino) {
            self.asker.log(&format!("inode {ino} was written to while it was generated: the written content stays"));
            return Ok(());
        }
        self.keep(&now, ino, &made)?;
        waiting.remove(&ino);
        drop(waiting);
        self.tell_kernel(ino, &made.content);
        self.generated.fetch_add(1, Ordering::Relaxed);
        self.is_saved.store(false, Ordering::Relaxed);
        // Save now: a killed daemon must not lose content that a model was paid for.
        if let Err(error) = self.save() {
            tracing::error!(%error, "could not save a generated file yet");
        }
        Ok(())
    }

    /// Stores in the attribute [`ERROR`] of a waiting file why it could not be generated.
    fn note_failure(&self, now: &Caller, ino: Ino, error: &StoreError) {
        let path = self.names.read().shown_path(ino).unwrap_or_default();
        self.asker.log(&format!("{path} FAILED: {error}"));
        let waiting = self.waiting.read();
        if error.errno == Errno::INTR || !waiting.contains_key(&ino) {
            return;
        }
        let reason = error.reason.clone().unwrap_or_else(|| error.to_string());
        if let Err(error) = self.set_attribute(now, ino, ERROR, &reason) {
            tracing::debug!(ino, %error, "the file was removed");
        }
    }

    /// Notifies the kernel of a file's new size. The reply to the reader has the size, too, but the kernel
    /// ignores it if another request has read the attributes meanwhile. The reader would then see the old
    /// size and get no data.
    pub(super) fn tell_kernel(&self, ino: Ino, content: &[u8]) {
        if let (Some(Kernel(kernel)), [.., last]) = (self.kernel.get(), content) {
            kernel.store_pages(ino, content.len() as u64 - 1, &[*last]);
        }
    }

    pub(super) fn set_attribute(&self, caller: &Caller, ino: Ino, name: &str, value: &str) -> Result<()> {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        self.files.setxattr(caller, ino, name, value, XattrMode::Set)
    }

    fn keep(&self, now: &Caller, ino: Ino, made: &GeneratedContent) -> Result<()> {
        self.files.write(now, ino, 0, &made.content)?;
        let tokens = made.usage.map(|usage| usage.prompt + usage.output);
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let has_context = !made.context.is_empty();
        let has_context_tokens = has_context && made.usage.is_some();
        let attributes = [
            (MODEL, made.model.clone()),
            (TOKENS, tokens.map(|tokens| tokens.to_string())),
            (GENERATED_AT, Some(at.to_string())),
            (CUT_OFF, made.is_cut_off.then(|| "1".to_owned())),
            (CONTEXT, has_context.then(|| context::record(&made.context))),
            (CONTEXT_TOKENS, has_context_tokens.then(|| made.context_tokens.to_string())),
            (ERROR, None),
        ];
        for (name, value) in attributes {
            match value {
                Some(value) => self.set_attribute(now, ino, name, &value)?,
                // The attribute is missing unless the file was generated, or failed, before.
                None => {
                    let _ = self.files.removexattr(now, ino, name.as_bytes());
                }
            }
        }
        Ok(())
    }

    pub(super) fn generate(
        &self,
        ino: Ino,
        generator: &str,
        about: Option<&str>,
        cancel: &Cancel,
    ) -> Result<GeneratedContent> {
        let path = self.names.read().path(ino);
        let path = path.ok_or_else(|| StoreError::storage(Errno::IO, "a file without a name cannot be generated"))?;
        let makes = self.generators.get(generator).ok_or_else(|| {
            let why = format!("this mount has no generator {generator:?}; give its definition with --generator");
            StoreError::storage(Errno::IO, why)
        })?;
        makes.generate(&FileRequest { path: &path, about, around: self, cancel })
    }

    fn cached(
        &self,
        path: &str,
        request: &models::Request,
        context_bytes: usize,
        cancel: &Cancel,
    ) -> std::result::Result<ModelAnswer, Failure> {
        let purpose = Purpose::Content;
        let bytes: usize = request.messages.iter().map(|message| message.content.len()).sum();
        let share = context_bytes as f64 / bytes.max(1) as f64;
        let context_tokens = |usage: Usage| (usage.prompt as f64 * share).round() as u64;
        if let Some(kept) = self.cache.get(request) {
            let purpose = purpose.name();
            self.asker.log(&format!("{purpose} {path}: answered from the cache"));
            return Ok(ModelAnswer {
                text: kept.text,
                finish: kept.finish,
                usage: kept.usage,
                is_cached: true,
                context_tokens: context_tokens(kept.usage),
            });
        }
        let reply = self.asker.ask(purpose, path, request, cancel)?;
        self.cache.put(request, &reply);
        let context_tokens = context_tokens(reply.usage);
        if context_bytes > 0 {
            self.context_tokens.fetch_add(context_tokens, Ordering::Relaxed);
            self.asker.log(&format!(
                "{} {path}: {context_bytes} bytes of the prompt are other generated files, about {context_tokens} tokens",
                purpose.name()
            ));
        }
        Ok(ModelAnswer { text: reply.text, finish: reply.finish, usage: reply.usage, is_cached: false, context_tokens })
    }

    /// The first `PROMPT_MAX + 1` bytes of a file, which is enough to detect an overlong setting.
    fn beginning(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        self.files.read(ino, 0, PROMPT_MAX + 1, &mut content)?;
        Ok(content)
    }

    fn find(&self, path: &str) -> Option<Ino> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.files.lookup(at, name.as_bytes()).ok()?.ino;
        }
        Some(at)
    }

    fn walk(&self, dir: Ino, path: &str, lines: &mut Vec<TreeLine>) -> Result<()> {
        let mut entries = Vec::new();
        self.files.readdir(dir, 0, true, &mut |entry| {
            if let Some(attr) = entry.attr {
                entries.push((String::from_utf8_lossy(entry.name).into_owned(), attr));
            }
            ControlFlow::Continue(())
        })?;
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, attr) in entries {
            if name == ".llmfs" {
                continue;
            }
            let path = format!("{path}/{name}");
            let target = match attr.kind {
                Kind::Symlink => Some(String::from_utf8_lossy(&self.files.readlink(attr.ino)?).into_owned()),
                _ => None,
            };
            lines.push(TreeLine {
                path: path.clone(),
                attr,
                target,
                attributes: self.attributes(attr.ino),
                is_pending: self.waiting.read().contains_key(&attr.ino),
            });
            if attr.kind == Kind::Directory {
                self.walk(attr.ino, &path, lines)?;
            }
        }
        Ok(())
    }

    /// The extended attributes of a node whose names and values are UTF-8.
    fn attributes(&self, ino: Ino) -> BTreeMap<String, String> {
        let names = self.files.listxattr(ino).unwrap_or_default();
        let attribute = |name: Vec<u8>| {
            let value = self.files.getxattr(ino, &name).ok()?;
            Some((String::from_utf8(name).ok()?, String::from_utf8(value).ok()?))
        };
        names.into_iter().filter_map(attribute).collect()
    }

    pub(super) fn save(&self) -> Result<()> {
        let Some(save) = self.save.as_ref().filter(|save| save.read_only().is_none()) else {
            return Ok(());
        };
        let _one_at_a_time = self.saving.lock();
        if self.is_saved.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let inodes = {
            // The lock stops renames, which could hide a file from the walk.
            let _names = self.names.read();
            save.inodes(&self.files, &|ino| self.not_saved.contains(&ino))
        };
        let waiting = |ino: Ino| self.waiting.read().get(&ino).cloned();
        let written = inodes.and_then(|inodes| save.write(&self.files, &inodes, &waiting));
        written.map_err(|error| {
            self.is_saved.store(false, Ordering::Relaxed);
            StoreError::storage(error.errno(), error)
        })
    }
}

impl CommandContext for SharedState {
    fn tree(&self) -> Vec<TreeLine> {
        let mut lines = Vec::new();
        if let Err(error) = self.walk(ROOT, "", &mut lines) {
            tracing::debug!(%error, "the tree changed while it was listed");
        }
        lines
    }

    fn setting(&self, path: &str, setting: Setting) -> Option<String> {
        for place in setting.places(path) {
            let Some(ino) = self.find(&place) else {
                continue;
            };
            // A waiting setting file is empty, so it sets nothing.
            let content = self.beginning(ino).unwrap_or_default();
            let value = setting.value(&String::from_utf8_lossy(&content));
            tracing::debug!(path, place, found = value.is_some(), "looking for a {}", setting.name());
            if value.is_some() {
                return value;
            }
        }
        None
    }

    fn context(&self, path: &str, most: usize) -> Vec<ContextFile> {
        let most = most.min(self.context_bytes);
        match most {
            0 => Vec::new(),
            _ => self.context_files(path, &self.tree(), most),
        }
    }

    fn ask(
        &self,
        path: &str,
        system: &str,
        question: String,
        context_bytes: usize,
        cancel: &Cancel,
    ) -> Result<ModelAnswer> {
        let model = self.setting(path, Setting::Model);
        let model = model.unwrap_or_else(|| self.asker.model().to_owned());
        // Refuse an overlong prompt even if the question does not contain it.
        let prompt = self.setting(path, Setting::Prompt);
        if let Some(prompt) = prompt.filter(|prompt| prompt.len() > PROMPT_MAX) {
            let path = shown(path.as_bytes());
            let why = format!(
                "the prompt that is set for {path} is too long: it has {} bytes or more, and the maximum is {PROMPT_MAX}",
                prompt.len()
            );
            return Err(StoreError::storage(Errno::FBIG, why));
        }
        let request = self.asker.request(&model, system, question, None);
        Ok(self.cached(path, &request, context_bytes, cancel)?)
    }

    fn cache(&self) -> &AnswerCache {
        &self.cache
    }

    fn usage(&self) -> String {
        let meter = self.asker.meter();
        let totals = meter.totals();
        let context = self.context_tokens.load(Ordering::Relaxed);
        let cost = meter.dollars().map_or(String::new(), |dollars| format!("; US$ {dollars:.6}"));
        format!(
            "{} requests; {} prompt tokens, of which about {context} for other files; {} output tokens{cost}",
            totals.calls, totals.prompt_tokens, totals.output_tokens
        )
    }
}
