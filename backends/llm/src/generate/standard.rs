//! The built-in generators.

use std::fmt::Write;

use fuse::store::{Errno, Result, StoreError};
use models::Finish;

use super::answer::{is_blank, unfenced};
use super::generator::{FileRequest, GeneratedContent, Generator, Generators, TreeLine, read_only};
use super::settings::Setting;
use super::{AnswerCache, context};
use crate::asker::QUESTION_MAX;
use crate::names::shown;

/// The most tree entries in a prompt.
const SHOWN_ENTRIES: usize = 60;

impl Generators {
    /// The generators of source 2: `default`, `model`, `prompt`, `tree`, `readme`, and the cache's control
    /// files.
    pub fn standard() -> Self {
        Self::default()
            .with(DefaultGenerator)
            .with(SettingGenerator(Setting::Model))
            .with(SettingGenerator(Setting::Prompt))
            .with(Live("tree", tree, None))
            .with(Live("readme", readme, None))
            .with(Live("cache_enabled", cache_enabled, Some(enable_cache)))
            .with(Live("cache_stats", cache_stats, None))
            .with(Live("cache_clear", |_| "0\n".to_owned(), Some(clear_cache)))
            .with(Live("cache_list", cache_list, None))
    }
}

/// `default`: asks the model for the content of the file.
struct DefaultGenerator;

impl Generator for DefaultGenerator {
    fn name(&self) -> &str {
        "default"
    }

    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent> {
        const WRITER: &str = "You write one file of a file system. Answer with the content of that file and nothing else: \
no explanation, no Markdown fence around it.";
        let mut question = String::new();
        if let Some(prompt) = file.around.setting(file.path, Setting::Prompt) {
            let _ = writeln!(question, "The file system: {prompt}");
        }
        question.push_str("Its files:\n");
        let tree = file.around.tree();
        let files = tree.iter().filter(|line| !line.is_directory());
        for line in files.clone().take(SHOWN_ENTRIES) {
            let _ = writeln!(question, "{}", shown(line.path.as_bytes()));
        }
        let more = files.count().saturating_sub(SHOWN_ENTRIES);
        if more > 0 {
            let _ = writeln!(question, "and {more} more");
        }
        let path = shown(file.path.as_bytes());
        let mut order = String::new();
        if let Some(about) = file.about {
            let _ = writeln!(order, "{path} is about: {about}");
        }
        let _ = write!(order, "Write the file {path}.");
        let room = QUESTION_MAX.saturating_sub(WRITER.len() + question.len() + order.len() + context::HEAD.len());
        let context = file.around.context(file.path, room);
        let shown_context = context::in_prompt(&context);
        question.push_str(&shown_context);
        question.push_str(&order);
        let written = file.around.ask(file.path, WRITER, question, shown_context.len(), file.cancel)?;
        let is_cut_off = written.finish == Finish::Length;
        if is_blank(&written.text, is_cut_off) {
            return Err(StoreError::storage(Errno::IO, "the model wrote nothing"));
        }
        Ok(GeneratedContent {
            content: unfenced(&written.text, is_cut_off).into_bytes(),
            model: file.around.setting(file.path, Setting::Model),
            usage: Some(written.usage),
            is_cut_off,
            context,
            context_tokens: written.context_tokens,
        })
    }
}

/// `model` and `prompt`: the value of the setting for the directory of the file.
struct SettingGenerator(Setting);

impl Generator for SettingGenerator {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent> {
        let value = file.around.setting(file.path, self.0);
        let value = value.ok_or_else(|| {
            let why = format!("no {} is set for {}", self.0.name(), file.path);
            StoreError::storage(Errno::NODATA, why)
        })?;
        Ok(format!("{value}\n").into())
    }
}

/// The effect of a write to a live file.
type Accept = fn(&AnswerCache, &[u8]) -> Result<()>;

/// A live file: its name, its content, and how it takes a write; `None` for one that can only be read.
struct Live(&'static str, fn(&FileRequest<'_>) -> String, Option<Accept>);

impl Generator for Live {
    fn name(&self) -> &str {
        self.0
    }

    fn is_live(&self) -> bool {
        true
    }

    fn generate(&self, file: &FileRequest<'_>) -> Result<GeneratedContent> {
        Ok(self.1(file).into())
    }

    fn accept(&self, file: &FileRequest<'_>, data: &[u8]) -> Result<()> {
        match self.2 {
            Some(accept) => accept(file.around.cache(), data),
            None => Err(read_only()),
        }
    }
}

/// `tree`: the tree with one line an entry, for `grep`.
fn tree(file: &FileRequest<'_>) -> String {
    let tree = file.around.tree();
    tree.iter().map(|line| tree_line(line) + "\n").collect()
}

fn tree_line(line: &TreeLine) -> String {
    let slash = if line.is_directory() { "/" } else { "" };
    let mut text = format!("{}{slash}", shown(line.path.as_bytes()));
    if let Some(target) = &line.target {
        let _ = write!(text, " -> {}", shown(target.as_bytes()));
    }
    if let Some(generator) = line.generator() {
        let _ = write!(text, " [{generator}]");
    }
    if line.is_pending {
        text.push_str(" not read yet");
    } else if !line.is_directory() && line.target.is_none() {
        let _ = write!(text, " {} bytes", line.attr.size);
    }
    text
}

/// `readme`: explains the mount, lists the tree, and counts the waiting files.
fn readme(file: &FileRequest<'_>) -> String {
    let tree = file.around.tree();
    let is_file = |line: &&TreeLine| !line.is_directory() && line.target.is_none();
    let files: Vec<&TreeLine> = tree.iter().filter(is_file).collect();
    let pending = files.iter().filter(|line| line.is_pending).count();
    let setting = |setting| {
        let value = file.around.setting("/x", setting);
        value.unwrap_or_else(|| "(none)".to_owned())
    };
    let mut text = format!(
        "# A file system that a model generates\n\n\
         Prompt: {}\nModel: {}\nFiles: {}, of which {pending} are not generated yet\n\
         Asked since the mount: {}\n\n\
         The model generates a file at its first read, and the mount saves it. Until then, its size is 0: `cat`,\n\
         `cp`, `grep`, `wc` and `head` read it nevertheless; `tar`, `rsync` and `git` rely on the size, and find it\n\
         empty. To generate all files: `find . -type f -exec cat {{}} + >/dev/null`.\n\n\
         `.llmfs/tree` lists the files, and `.llmfs/log` the requests. Write a model to `.llmfs/model.default`, and a\n\
         prompt to `.llmfs/prompt.default`; `DIR/.llmfs/model` and `DIR/.llmfs/prompt` are for one directory.\n\
         Write 0 or 1 to `.llmfs/cache_enabled`, and 1 to `.llmfs/cache_clear`; `.llmfs/cache_stats` and `cache_list`\n\
         show the cache.\n\n",
        setting(Setting::Prompt),
        setting(Setting::Model),
        files.len(),
        file.around.usage(),
    );
    for line in &tree {
        let _ = writeln!(text, "    {}", tree_line(line));
    }
    text
}

/// Parses `0` or `1`, as written to a control file.
fn switch(data: &[u8]) -> Result<bool> {
    match data.trim_ascii() {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(StoreError::storage(Errno::INVAL, "it takes 0 or 1")),
    }
}

/// Whether the cache is enabled; a write of 0 or 1 switches it.
fn cache_enabled(file: &FileRequest<'_>) -> String {
    format!("{}\n", u8::from(file.around.cache().is_enabled()))
}

fn enable_cache(cache: &AnswerCache, data: &[u8]) -> Result<()> {
    cache.enable(switch(data)?);
    Ok(())
}

/// Removes all cached answers when 1 is written.
fn clear_cache(cache: &AnswerCache, data: &[u8]) -> Result<()> {
    if switch(data)? {
        let cleared = cache.clear();
        cleared.map_err(|error| StoreError::storage(Errno::IO, error))?;
    }
    Ok(())
}

fn cache_stats(file: &FileRequest<'_>) -> String {
    file.around.cache().stats()
}

/// The hash and the size in bytes of each cached answer.
fn cache_list(file: &FileRequest<'_>) -> String {
    let list = file.around.cache().list();
    let lines = list.iter().map(|(hash, bytes)| format!("{hash} {bytes}\n"));
    lines.collect()
}
