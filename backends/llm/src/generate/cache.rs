//! The cache of model answers: JSON files, each named by the hash of its request and its server.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fuse::own_file;
use models::{Finish, Reply, Request, Usage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::answer::is_blank;
use super::checksum;

/// A cached answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CachedAnswer {
    /// The model that answered.
    pub(super) model: String,
    pub(super) text: String,
    pub(super) finish: Finish,
    /// Tokens of the original request.
    pub(super) usage: Usage,
    /// See [`checksum`].
    #[serde(default, skip_serializing)]
    crc32: String,
}

/// A folder of cached answers. Several mounts may share it; hits and misses are this mount's.
#[derive(Debug)]
pub struct AnswerCache {
    folder: PathBuf,
    server: String,
    is_enabled: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    saved_tokens: AtomicU64,
}

impl AnswerCache {
    /// A cache in `folder`, which the first stored answer creates. `server` is part of each key, because
    /// models of the same name on different servers may differ.
    pub fn new(folder: PathBuf, server: &str, is_enabled: bool) -> Self {
        Self {
            folder,
            server: server.to_owned(),
            is_enabled: AtomicBool::new(is_enabled),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            saved_tokens: AtomicU64::new(0),
        }
    }

    /// Whether answers are read from the cache and stored in it.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Switches the cache on or off for later requests.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Hits and misses of this mount.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Tokens, prompt and output, that hits of this mount saved.
    pub fn saved_tokens(&self) -> u64 {
        self.saved_tokens.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, request: &Request) -> Option<CachedAnswer> {
        if !self.is_enabled() {
            return None;
        }
        let path = self.path(&self.key(request));
        let found = own_file::read(&path).ok().and_then(|bytes| {
            let kept = serde_json::from_slice::<CachedAnswer>(&bytes).map_err(|error| error.to_string());
            let kept = match kept {
                Ok(_) if !checksum::is_right(&bytes) => Err("its checksum is wrong".to_owned()),
                kept => kept,
            };
            kept.map_err(|problem| {
                tracing::warn!(
                    "{} is not a valid cached answer, so the model is asked again: {problem}",
                    path.display()
                )
            })
            .ok()
        });
        match &found {
            Some(kept) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                let tokens = kept.usage.prompt + kept.usage.output;
                self.saved_tokens.fetch_add(tokens, Ordering::Relaxed);
            }
            None => {
                self.misses.fetch_add(1, Ordering::Relaxed);
            }
        }
        found
    }

    /// Stores an answer; an empty one is none. A write error is only logged as a warning.
    pub(super) fn put(&self, request: &Request, reply: &Reply) {
        let is_none = reply.finish == Finish::Filtered || is_blank(&reply.text, reply.finish == Finish::Length);
        if !self.is_enabled() || is_none {
            return;
        }
        let kept = CachedAnswer {
            model: request.model.clone(),
            text: reply.text.clone(),
            finish: reply.finish,
            usage: reply.usage,
            crc32: String::new(),
        };
        if let Err(error) = self.write(&self.path(&self.key(request)), &kept) {
            tracing::warn!("the cache {}: {error}", self.folder.display());
        }
    }

    fn write(&self, path: &Path, kept: &CachedAnswer) -> std::io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&checksum::with_checksum(serde_json::to_vec(kept)?))?;
        file.persist(path)?;
        Ok(())
    }

    fn key(&self, request: &Request) -> String {
        let mut hash = Sha256::new();
        // The request's hash has no NUL, so distinct pairs of hash and server give distinct bytes.
        hash.update(request.hash());
        hash.update([0]);
        hash.update(&self.server);
        inputs::hex(hash.finalize())
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}.json"))
    }

    /// The hash and the size in bytes of each cached answer, sorted by hash.
    pub fn list(&self) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut list: Vec<(String, u64)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let hash = name.strip_suffix(".json").filter(|hash| hash.len() == 64)?;
                Some((hash.to_owned(), entry.metadata().ok()?.len()))
            })
            .collect();
        list.sort();
        list
    }

    /// Removes all cached answers.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn clear(&self) -> std::io::Result<()> {
        for (hash, _) in self.list() {
            std::fs::remove_file(self.path(&hash))?;
        }
        Ok(())
    }

    /// The text of `cache_stats`, in the format of source 2.
    pub(super) fn stats(&self) -> String {
        let (hits, misses) = self.hits_and_misses();
        let size: u64 = self.list().iter().map(|(_, bytes)| bytes).sum();
        let enabled = if self.is_enabled() { "True" } else { "False" };
        format!("Hits: {hits}\nMisses: {misses}\nSize: {size} bytes\nEnabled: {enabled}\n")
    }
}

#[cfg(test)]
mod tests {
    use models::{Message, Origin, Role, Timing};

    use super::*;

    #[test]
    fn an_answer_is_kept_by_all_that_decides_it_and_only_while_enabled() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        let cache = AnswerCache::new(folder.clone(), "here", true);
        let request = |text: &str| Request {
            model: "m".to_owned(),
            messages: vec![Message::new(Role::User, text)],
            temperature: 0.0,
            max_tokens: 10,
            seed: 1,
            schema: None,
        };
        let reply = Reply {
            text: "answer".to_owned(),
            finish: Finish::Stop,
            usage: Usage { prompt: 4, output: 2, is_estimated: false },
            timing: Timing::default(),
            origin: Origin::Simulated,
            has_own_sampling: false,
        };
        assert!(cache.get(&request("a")).is_none());
        cache.put(&request("a"), &reply);
        assert_eq!(cache.get(&request("a")).unwrap().text, "answer");
        assert!(cache.get(&request("b")).is_none());
        let elsewhere = AnswerCache::new(folder, "elsewhere", true);
        assert!(elsewhere.get(&request("a")).is_none(), "another server's");
        let filtered = Reply { finish: Finish::Filtered, ..reply.clone() };
        elsewhere.put(&request("a"), &filtered);
        let empty = Reply { text: "```\n```".to_owned(), ..reply.clone() };
        elsewhere.put(&request("a"), &empty);
        assert!(elsewhere.get(&request("a")).is_none(), "an empty answer is not cached");
        assert_eq!((cache.hits_and_misses(), cache.saved_tokens()), ((1, 2), 6));
        cache.enable(false);
        assert!(cache.get(&request("a")).is_none());
        cache.enable(true);
        assert!(cache.stats().starts_with("Hits: 1\nMisses: 2\nSize: "));

        // A damaged file is a miss.
        let path = cache.path(&cache.list()[0].0);
        let damaged = std::fs::read_to_string(&path).unwrap().replace("answer", "answes");
        std::fs::write(&path, damaged).unwrap();
        assert!(cache.get(&request("a")).is_none(), "a changed byte");
        std::fs::write(&path, "{").unwrap();
        assert!(cache.get(&request("a")).is_none());
        cache.clear().unwrap();
        assert!(cache.list().is_empty());
    }
}
