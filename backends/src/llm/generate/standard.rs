//! The built-in generators.

use std::fmt::Write;

use models::Finish;

use super::generator::{FileToMake, Generator, Made, TreeLine};
use super::settings::Setting;
use crate::llm::names::shown;
use crate::store::{Errno, Result, StoreError};

/// The most tree entries in a prompt.
const SHOWN_ENTRIES: usize = 60;

/// `default`: asks the model for the content of the file.
pub(super) struct DefaultGenerator;

impl Generator for DefaultGenerator {
    fn name(&self) -> &str {
        "default"
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        const WRITER: &str = "You write one file of a file system. Answer with the content of that file and nothing else: \
no explanation, no Markdown fence around it.";
        let mut question = String::new();
        if let Some(prompt) = file.around.setting(file.path, Setting::Prompt) {
            let _ = writeln!(question, "The file system: {prompt}");
        }
        question.push_str("Its files:\n");
        let tree = file.around.tree();
        let files = tree.iter().filter(|line| !line.is_directory);
        for line in files.clone().take(SHOWN_ENTRIES) {
            let _ = writeln!(question, "{}", shown(line.path.as_bytes()));
        }
        let more = files.count().saturating_sub(SHOWN_ENTRIES);
        if more > 0 {
            let _ = writeln!(question, "and {more} more");
        }
        let path = shown(file.path.as_bytes());
        if let Some(about) = file.about {
            let _ = writeln!(question, "{path} is about: {about}");
        }
        let _ = write!(question, "Write the file {path}.");
        let written = file.around.ask(file.path, WRITER, question, file.cancel)?;
        let content = unfenced(&written.text);
        if is_blank(&written.text) {
            return Err(StoreError::storage(Errno::IO, "the model wrote nothing"));
        }
        Ok(Made {
            content: content.into_bytes(),
            model: file.around.setting(file.path, Setting::Model),
            usage: Some(written.usage),
            is_cut_off: written.finish == Finish::Length,
        })
    }
}

/// Whether an answer has no content for a file.
pub(super) fn is_blank(answer: &str) -> bool {
    unfenced(answer).trim().is_empty()
}

/// Removes a Markdown fence around the whole text, which models often add, and ends the text with a newline.
fn unfenced(text: &str) -> String {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("```").and_then(|rest| {
        let (_language, rest) = rest.split_once('\n')?;
        let inner = rest.strip_suffix("```")?;
        (!inner.contains("\n```")).then_some(inner)
    });
    let content = inner.unwrap_or(text);
    if content.ends_with('\n') {
        content.to_owned()
    } else {
        format!("{content}\n")
    }
}

/// `model` and `prompt`: the value of the setting for the directory of the file.
pub(super) struct SettingGenerator(pub(super) Setting);

impl Generator for SettingGenerator {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        let value = file.around.setting(file.path, self.0);
        let value = value.ok_or_else(|| {
            StoreError::storage(
                Errno::NODATA,
                format!("no {} is set for {}", self.0.name(), file.path),
            )
        })?;
        Ok(format!("{value}\n").into())
    }
}

/// `tree`: the tree with one line an entry, for `grep`.
pub(super) struct TreeGenerator;

impl Generator for TreeGenerator {
    fn name(&self) -> &str {
        "tree"
    }

    fn is_live(&self) -> bool {
        true
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        let mut text = String::new();
        for line in file.around.tree() {
            let _ = writeln!(text, "{}", tree_line(&line));
        }
        Ok(text.into())
    }
}

fn tree_line(line: &TreeLine) -> String {
    let slash = if line.is_directory { "/" } else { "" };
    let mut text = format!("{}{slash}", shown(line.path.as_bytes()));
    if let Some(target) = &line.target {
        let _ = write!(text, " -> {}", shown(target.as_bytes()));
    }
    if let Some(generator) = &line.generator {
        let _ = write!(text, " [{generator}]");
    }
    if line.is_pending {
        text.push_str(" not read yet");
    } else if !line.is_directory && line.target.is_none() {
        let _ = write!(text, " {} bytes", line.size);
    }
    text
}

/// `readme`: explains the mount, lists the tree, and counts the waiting files.
pub(super) struct ReadmeGenerator;

impl Generator for ReadmeGenerator {
    fn name(&self) -> &str {
        "readme"
    }

    fn is_live(&self) -> bool {
        true
    }

    fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
        let tree = file.around.tree();
        let files: Vec<&TreeLine> = tree
            .iter()
            .filter(|line| !line.is_directory && line.target.is_none())
            .collect();
        let pending = files.iter().filter(|line| line.is_pending).count();
        let setting = |setting| {
            file.around
                .setting("/x", setting)
                .unwrap_or_else(|| "(none)".to_owned())
        };
        let mut text = format!(
            "# A file system that a model makes up\n\n\
             Prompt: {}\nModel: {}\nFiles: {}, of which {pending} have not been read and hold nothing yet\n\n\
             A file is written by the model when it is first read, and then kept. Until then its size is 0: `cat`,\n\
             `cp`, `grep`, `wc` and `head` read it all the same; what believes the size (`tar`, `rsync`, `git`) finds it\n\
             empty. To have all of it: `find . -type f -exec cat {{}} + >/dev/null`.\n\n\
             `.llmfs/tree` lists it, `.llmfs/log` says what was asked, `.llmfs/model.default` and `prompt.default` can be\n\
             written, for one directory in `DIR/.llmfs/model` and `DIR/.llmfs/prompt`. `.llmfs/cache_enabled` takes 0 or\n\
             1, `.llmfs/cache_clear` takes 1; `cache_stats` and `cache_list` tell.\n\n",
            setting(Setting::Prompt),
            setting(Setting::Model),
            files.len(),
        );
        for line in &tree {
            let _ = writeln!(text, "    {}", tree_line(line));
        }
        Ok(text.into())
    }
}

/// Parses `0` or `1`, as written to a control file.
fn switch(data: &[u8]) -> Result<bool> {
    match data.trim_ascii() {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(StoreError::storage(Errno::INVAL, "it takes 0 or 1")),
    }
}

macro_rules! control {
    ($(#[$doc:meta])* $type:ident, $name:literal, $show:expr $(, $accept:expr)?) => {
        $(#[$doc])*
        pub(super) struct $type;

        impl Generator for $type {
            fn name(&self) -> &str {
                $name
            }

            fn is_live(&self) -> bool {
                true
            }

            fn generate(&self, file: &FileToMake<'_>) -> Result<Made> {
                let show: fn(&super::AnswerCache) -> String = $show;
                Ok(show(file.around.cache()).into())
            }

            $(fn accept(&self, file: &FileToMake<'_>, data: &[u8]) -> Result<()> {
                let accept: fn(&super::AnswerCache, &[u8]) -> Result<()> = $accept;
                accept(file.around.cache(), data)
            })?
        }
    };
}

control!(
    /// Whether the cache is enabled; a write of 0 or 1 switches it.
    CacheEnabled,
    "cache_enabled",
    |cache| format!("{}\n", u8::from(cache.is_enabled())),
    |cache, data| {
        cache.enable(switch(data)?);
        Ok(())
    }
);

control!(
    /// Hits, misses and size of the cache.
    CacheStats,
    "cache_stats",
    |cache| cache.stats()
);

control!(
    /// Removes all cached answers when 1 is written.
    CacheClear,
    "cache_clear",
    |_| "0\n".to_owned(),
    |cache, data| {
        if switch(data)? {
            cache.clear().map_err(|error| StoreError::storage(Errno::IO, error))?;
        }
        Ok(())
    }
);

control!(
    /// The hash and the size in bytes of each cached answer.
    CacheList,
    "cache_list",
    |cache| cache.list().iter().fold(String::new(), |mut text, (hash, bytes)| {
        let _ = writeln!(text, "{hash} {bytes}");
        text
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_around_all_of_it_is_taken_off_and_others_stay() {
        assert_eq!(unfenced("```python\nprint(1)\n```"), "print(1)\n");
        assert_eq!(unfenced("print(1)"), "print(1)\n");
        assert_eq!(unfenced("  indented\n"), "  indented\n");
        let two = "```a\nx\n```\ntext\n```b\ny\n```";
        assert_eq!(unfenced(two), format!("{two}\n"));
    }
}
