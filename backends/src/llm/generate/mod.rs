//! A [`Store`] whose tree a model proposes and whose files it writes when they are first read (LLMFS, the second seed).
//!
//! A file that nobody has read *waits*: its size is 0, and the kernel is told not to keep that, so that it asks again
//! before a read. Then, and never for `stat`, a listing, `open` or a truncation, its [`Generator`] makes the content, once
//! for all who wait for it, and the file is kept: from then on it is a file like any other. Whoever writes to a waiting
//! file, or cuts it off, makes it theirs: nothing is generated any more.
//!
//! Durability: with a save file, `fsync`, unmounting and each generated file write everything into it; what was changed
//! since is lost with a killed daemon. Without one, nothing stays.

mod cache;
mod generator;
mod saved;
mod settings;
mod standard;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use models::{Cancel, Schema};

pub use cache::AnswerCache;
pub use generator::{FileToMake, Generator, Generators, Made, Surroundings, TreeLine, Written};
pub use saved::SavedError;
pub use settings::Setting;
pub use tree::{
    ENTRIES_MAX, EntryKind, TreeEntry, TreeError, parse as parse_tree, schema as tree_schema,
};

use self::saved::Pending;
use super::asker::{Asker, Purpose};
use super::flight::{Failed, Flights};
use super::names::Names;
use crate::memory::MemoryStore;
use crate::store::{
    Allocate, Attr, Caller, Change, Coherence, DirEntry, Errno, Ino, KernelCache, Kind, NewNode,
    ROOT, RenameMode, Result, Seek, Slow, StatFs, Store, StoreError, Timestamp, XattrMode,
};

/// The attribute that names what makes a file.
pub const GENERATOR: &str = "user.llmfs.generator";

/// The attribute that says what a file is to hold.
pub const PROMPT: &str = "user.llmfs.prompt";

/// The attribute with the reason of the last failure.
pub const ERROR: &str = "user.llmfs.error";

/// The longest prompt in bytes.
pub const PROMPT_MAX: usize = 64 * 1024;

/// How often a tree that cannot be used is asked for again.
const REPAIRS: usize = 2;

/// The control files that are made anew for every reader, and what makes them.
const LIVE: [(&str, &str, u16); 6] = [
    ("tree", "tree", 0o444),
    ("README", "readme", 0o444),
    ("cache_enabled", "cache_enabled", 0o644),
    ("cache_stats", "cache_stats", 0o444),
    ("cache_clear", "cache_clear", 0o644),
    ("cache_list", "cache_list", 0o444),
];

/// What a file system is made of.
#[derive(Debug)]
pub struct GenerateOptions {
    /// What it is about.
    pub prompt: Option<String>,
    /// Its names, so that no model has to be asked for them.
    pub tree: Option<Vec<TreeEntry>>,
    /// Where it is saved; loaded from there if it is there.
    pub save: Option<PathBuf>,
    /// What makes content.
    pub generators: Generators,
    /// Answers that need not be asked for again.
    pub cache: AnswerCache,
}

/// Why a file system cannot be brought up.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Its prompt is too long.
    #[error("the prompt has {0} bytes; at most {PROMPT_MAX} are taken")]
    Prompt(usize),
    /// The model gives no tree that can be used.
    #[error(
        "the model {model} proposes no tree that can be used: {error}\n  fix: give one by --tree FILE, or try another prompt or model"
    )]
    Tree {
        /// The model.
        model: String,
        /// What is wrong with its last one.
        error: TreeError,
    },
    /// The model does not answer.
    #[error("asking for the tree: {0}")]
    Model(StoreError),
    /// The saved file system cannot be used.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The tree cannot be laid out.
    #[error("laying out the tree: {0}")]
    Store(#[from] StoreError),
}

/// A file system that a model makes up.
#[derive(Debug)]
pub struct GenerateStore {
    shared: Arc<Shared>,
    flights: Arc<Flights<Ino, ()>>,
    /// What each reader of a control file was shown last.
    shown: Mutex<HashMap<Ino, Arc<Vec<u8>>>>,
}

struct Kernel(Arc<dyn KernelCache>);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

#[derive(Debug)]
struct Shared {
    asker: Asker,
    cache: AnswerCache,
    generators: Generators,
    save: Option<PathBuf>,
    files: MemoryStore,
    owner: Caller,
    names: RwLock<Names>,
    waiting: RwLock<HashMap<Ino, Pending>>,
    /// Control files and the names of their generators; fixed once the store is open.
    live: HashMap<Ino, &'static str>,
    /// Names in `/.llmfs` that are made at each mount.
    not_saved: Vec<Ino>,
    is_saved: AtomicBool,
    generated: AtomicU64,
    saving: Mutex<()>,
    kernel: OnceLock<Kernel>,
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GenerateStore {
    /// Brings a file system up: from its save file if there is one, else from a given tree, else by asking the model
    /// for a tree if there is a prompt, else empty.
    ///
    /// # Errors
    /// [`GenerateError`]; nothing has been saved then.
    pub fn open(
        asker: Asker,
        options: GenerateOptions,
        owner: &Caller,
    ) -> std::result::Result<Self, GenerateError> {
        if let Some(prompt) = options
            .prompt
            .as_ref()
            .filter(|prompt| prompt.len() > PROMPT_MAX)
        {
            return Err(GenerateError::Prompt(prompt.len()));
        }
        let files = MemoryStore::new(owner);
        let mut names = Names::default();
        let mut waiting = HashMap::new();
        let saved = options.save.as_ref().filter(|save| save.exists());
        if let Some(save) = saved {
            let loaded = saved::load(save, &files, |ino, dir, name| names.add(ino, dir, name))?;
            waiting.extend(loaded);
        }
        let mut shared = Shared {
            asker,
            cache: options.cache,
            generators: options.generators,
            save: options.save.clone(),
            files,
            owner: *owner,
            names: RwLock::new(names),
            waiting: RwLock::new(waiting),
            live: HashMap::new(),
            not_saved: Vec::new(),
            is_saved: AtomicBool::new(saved.is_some()),
            generated: AtomicU64::new(0),
            saving: Mutex::default(),
            kernel: OnceLock::new(),
        };
        shared.add_control(options.prompt.as_deref())?;
        if saved.is_none() {
            let entries = match (options.tree, &options.prompt) {
                (Some(tree), _) => tree,
                (None, Some(prompt)) => shared.ask_tree(prompt)?,
                (None, None) => Vec::new(),
            };
            shared.lay_out(&entries)?;
        }
        Ok(Self {
            shared: Arc::new(shared),
            flights: Arc::default(),
            shown: Mutex::default(),
        })
    }

    /// What asks.
    pub fn asker(&self) -> &Asker {
        &self.shared.asker
    }

    /// The answers that are kept.
    pub fn cache(&self) -> &AnswerCache {
        &self.shared.cache
    }

    /// Has the content of a waiting file made, for everybody who waits for it.
    fn make(&self, ino: Ino) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        self.flights
            .join(ino, move |cancel| shared.make(ino, cancel))
    }

    fn waits(&self, ino: Ino) -> bool {
        read(&self.shared.waiting).contains_key(&ino)
    }

    /// Somebody else has decided what the file holds.
    fn is_theirs_now(&self, ino: Ino) {
        write(&self.shared.waiting).remove(&ino);
        self.shared.is_saved.store(false, Ordering::Relaxed);
    }

    fn show(&self, ino: Ino, generator: &str) -> Result<Arc<Vec<u8>>> {
        let content = Arc::new(
            self.shared
                .generate(ino, generator, None, &Cancel::default())?
                .content,
        );
        lock(&self.shown).insert(ino, Arc::clone(&content));
        Ok(content)
    }

    fn changed<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.shared.is_saved.store(false, Ordering::Relaxed);
        }
        done
    }

    /// The control files are there as long as the mount is.
    fn check_not_control(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.shared.files.lookup(parent, name) {
            Ok(attr) if self.shared.not_saved.contains(&attr.ino) => Err(StoreError::storage(
                Errno::PERM,
                "it is a control file of this mount",
            )),
            _ => Ok(()),
        }
    }

    /// An attribute that makes an empty file wait to be generated.
    fn set_generator(&self, ino: Ino, value: &[u8]) -> Result<()> {
        let generator = String::from_utf8_lossy(value).into_owned();
        let known = self.shared.generators.get(&generator);
        let attr = self.shared.files.getattr(ino)?;
        if known.is_none_or(|generator| generator.is_live()) || attr.kind != Kind::File {
            let names = self.shared.generators.names().join(", ");
            let why = format!("there is no generator {generator:?} for a file; there are {names}");
            return Err(StoreError::storage(Errno::INVAL, why));
        }
        if attr.size > 0 || self.shared.live.contains_key(&ino) {
            let why = "it holds something; cut it off first: `truncate -s 0`";
            return Err(StoreError::storage(Errno::EXIST, why));
        }
        let about = self.shared.files.getxattr(ino, PROMPT.as_bytes()).ok();
        let about = about.map(|about| String::from_utf8_lossy(&about).into_owned());
        write(&self.shared.waiting).insert(ino, Pending { generator, about });
        Ok(())
    }
}

impl Shared {
    /// Makes `/.llmfs` as it is in every mount.
    fn add_control(&mut self, prompt: Option<&str>) -> Result<()> {
        let dir = self.directory(ROOT, b".llmfs")?;
        for (name, generator, permissions) in LIVE {
            let attr = self.put(dir, name.as_bytes(), Kind::File, permissions, b"")?;
            self.files.setxattr(
                &self.owner,
                attr.ino,
                GENERATOR.as_bytes(),
                generator.as_bytes(),
                XattrMode::Set,
            )?;
            self.live.insert(attr.ino, generator);
            self.not_saved.push(attr.ino);
        }
        if let Some(log) = self.asker.log_file() {
            let target = std::os::unix::ffi::OsStrExt::as_bytes(log.path().as_os_str()).to_vec();
            let attr = self.put(dir, b"log", Kind::Symlink, 0o777, &target)?;
            self.not_saved.push(attr.ino);
        }
        let defaults = [
            (Setting::Model, Some(self.asker.model().to_owned())),
            (Setting::Prompt, prompt.map(str::to_owned)),
        ];
        for (setting, value) in defaults {
            let name = format!("{}.default", setting.name());
            let ino = match self.files.lookup(dir, name.as_bytes()) {
                Ok(attr) => attr.ino,
                Err(_) => self.put(dir, name.as_bytes(), Kind::File, 0o644, b"")?.ino,
            };
            // What was given now counts more than what was saved.
            if let Some(value) = value {
                let cut = Change {
                    size: Some(0),
                    ..Change::default()
                };
                self.files.setattr(&self.owner, ino, &cut)?;
                self.files
                    .write(&self.owner, ino, 0, format!("{value}\n").as_bytes())?;
            }
            self.files.setxattr(
                &self.owner,
                ino,
                GENERATOR.as_bytes(),
                setting.name().as_bytes(),
                XattrMode::Set,
            )?;
        }
        Ok(())
    }

    fn put(
        &self,
        dir: Ino,
        name: &[u8],
        kind: Kind,
        permissions: u16,
        target: &[u8],
    ) -> Result<Attr> {
        let node = NewNode {
            kind,
            permissions,
            rdev: 0,
            target,
        };
        let attr = self.files.create(&self.owner, dir, name, &node)?;
        write(&self.names).add(attr.ino, dir, name);
        Ok(attr)
    }

    fn directory(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        match self.files.lookup(dir, name) {
            Ok(attr) => Ok(attr.ino),
            Err(_) => Ok(self.put(dir, name, Kind::Directory, 0o755, b"")?.ino),
        }
    }

    /// Asks for a tree, and again with what was wrong with it.
    fn ask_tree(&self, prompt: &str) -> std::result::Result<Vec<TreeEntry>, GenerateError> {
        const PLANNER: &str = "You design file systems. Answer in JSON only: a list of entries, each with a relative path such as \
src/main.py, its kind, and for files a few words about what they hold. Name each path once. Paths never begin with a slash and \
never hold two dots.";
        let schema = Schema {
            name: "tree",
            schema: tree::asked_schema(),
        };
        let question = format!("Design the files for: {prompt}");
        let model = self.asker.model().to_owned();
        let mut request = self.asker.request(&model, PLANNER, question, Some(schema));
        let mut purpose = Purpose::Tree;
        let mut repairs = 0;
        loop {
            // Only what can be used is kept for the next time.
            let kept = self.cache.get(&request);
            if let Some(entries) = kept.and_then(|kept| tree::parse(&kept.text).ok()) {
                return Ok(entries);
            }
            let reply = self
                .asker
                .ask(purpose, "/", &request, &Cancel::default())
                .map_err(|failed| GenerateError::Model(failed.into()))?;
            match tree::parse(&reply.text) {
                Ok(entries) => {
                    self.cache.put(&request, &reply);
                    return Ok(entries);
                }
                Err(error) if repairs == REPAIRS => {
                    return Err(GenerateError::Tree { model, error });
                }
                Err(error) => {
                    self.asker
                        .log(&format!("tree /: refused, asking again: {error}"));
                    repairs += 1;
                    purpose = Purpose::Repair;
                    let question = format!(
                        "Design the files for: {prompt}\nYour last answer could not be used: {error}. Answer again, without that mistake."
                    );
                    request.messages[1].content = question;
                }
            }
        }
    }

    /// Makes the names of a tree; all of its files wait.
    fn lay_out(&self, entries: &[TreeEntry]) -> Result<()> {
        let mut inodes: HashMap<String, Ino> = HashMap::from([(String::new(), ROOT)]);
        let split = |path: &str| match path.rsplit_once('/') {
            Some((dir, name)) => (dir.to_owned(), name.to_owned()),
            None => (String::new(), path.to_owned()),
        };
        for path in tree::directories(entries) {
            let (dir, name) = split(&path);
            let ino = self.directory(inodes[&dir], name.as_bytes())?;
            inodes.insert(path, ino);
        }
        for entry in entries {
            let (dir, name) = split(&entry.path);
            let dir = inodes[&dir];
            match entry.kind {
                EntryKind::Directory => {}
                EntryKind::Symlink => {
                    let target = entry.target.as_deref().unwrap_or_default();
                    self.put(
                        dir,
                        name.as_bytes(),
                        Kind::Symlink,
                        0o777,
                        target.as_bytes(),
                    )?;
                }
                EntryKind::File => {
                    let ino = self.put(dir, name.as_bytes(), Kind::File, 0o644, b"")?.ino;
                    let mut attributes = vec![(GENERATOR, "default")];
                    attributes.extend(entry.about.as_deref().map(|about| (PROMPT, about)));
                    for (name, value) in attributes {
                        self.files.setxattr(
                            &self.owner,
                            ino,
                            name.as_bytes(),
                            value.as_bytes(),
                            XattrMode::Set,
                        )?;
                    }
                    let waits = Pending {
                        generator: "default".to_owned(),
                        about: entry.about.clone(),
                    };
                    write(&self.waiting).insert(ino, waits);
                }
            }
        }
        Ok(())
    }

    /// Makes the content of a file and keeps it, unless somebody wrote to it meanwhile.
    fn make(&self, ino: Ino, cancel: &Cancel) -> std::result::Result<(), Failed> {
        let Some(waits) = read(&self.waiting).get(&ino).cloned() else {
            return Ok(());
        };
        let made = self.generate(ino, &waits.generator, waits.about.as_deref(), cancel);
        let made = made.and_then(|made| {
            if made.content.is_empty() {
                return Err(StoreError::storage(Errno::IO, "the generator made nothing"));
            }
            Ok(made)
        });
        let now = Caller {
            now: Timestamp::now(),
            ..self.owner
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                let path = read(&self.names).path(ino).unwrap_or_default();
                self.asker.log(&format!("{path} FAILED: {error}"));
                let reason = error.reason.clone().unwrap_or_else(|| error.to_string());
                let kept = self.files.setxattr(
                    &now,
                    ino,
                    ERROR.as_bytes(),
                    reason.as_bytes(),
                    XattrMode::Set,
                );
                if let Err(error) = kept {
                    tracing::debug!(ino, %error, "the file has gone");
                }
                return Err(error.into());
            }
        };
        let mut waiting = write(&self.waiting);
        if !waiting.contains_key(&ino) {
            self.asker.log(&format!(
                "inode {ino} was written to while it was generated: what was written stays"
            ));
            return Ok(());
        }
        self.keep(&now, ino, &made)?;
        waiting.remove(&ino);
        drop(waiting);
        self.tell_kernel(ino, &made.content);
        self.generated.fetch_add(1, Ordering::Relaxed);
        self.is_saved.store(false, Ordering::Relaxed);
        // What was generated has cost something: it must not be lost with the daemon.
        if let Err(error) = self.save() {
            tracing::error!(%error, "a generated file is not saved yet");
        }
        Ok(())
    }

    /// Tells the kernel how long a file is now. The answer to whoever waits says so, too, but the kernel disregards that if
    /// anybody has looked at the file meanwhile: it would believe the older size, and the reader would find nothing.
    fn tell_kernel(&self, ino: Ino, content: &[u8]) {
        if let (Some(Kernel(kernel)), [.., last]) = (self.kernel.get(), content) {
            kernel.learn(ino, content.len() as u64 - 1, &[*last]);
        }
    }

    fn keep(&self, now: &Caller, ino: Ino, made: &Made) -> Result<()> {
        self.files.write(now, ino, 0, &made.content)?;
        let usage = made
            .usage
            .map(|usage| (usage.prompt + usage.output).to_string());
        let at = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let attributes = [
            ("user.llmfs.model", made.model.clone()),
            ("user.llmfs.tokens", usage),
            ("user.llmfs.generated-at", Some(at)),
            (
                "user.llmfs.cut-off",
                made.is_cut_off.then(|| "1".to_owned()),
            ),
        ];
        for (name, value) in attributes {
            if let Some(value) = value {
                self.files
                    .setxattr(now, ino, name.as_bytes(), value.as_bytes(), XattrMode::Set)?;
            }
        }
        // There need not have been a failure before.
        let _ = self.files.removexattr(now, ino, ERROR.as_bytes());
        Ok(())
    }

    fn generate(
        &self,
        ino: Ino,
        generator: &str,
        about: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Made> {
        let path = read(&self.names).path(ino);
        let path = path.ok_or_else(|| {
            StoreError::storage(Errno::IO, "a file without a name cannot be generated")
        })?;
        let makes = self.generators.get(generator).ok_or_else(|| {
            StoreError::storage(
                Errno::IO,
                format!("this mount has no generator {generator:?}"),
            )
        })?;
        makes.generate(&FileToMake {
            path: &path,
            about,
            around: self,
            cancel,
        })
    }

    fn cached(
        &self,
        purpose: Purpose,
        path: &str,
        request: &models::Request,
        cancel: &Cancel,
    ) -> std::result::Result<Written, Failed> {
        if let Some(kept) = self.cache.get(request) {
            self.asker.log(&format!(
                "{} {path}: answered from the cache",
                purpose.name()
            ));
            return Ok(Written {
                text: kept.text,
                finish: kept.finish,
                usage: kept.usage,
                is_cached: true,
            });
        }
        let reply = self.asker.ask(purpose, path, request, cancel)?;
        self.cache.put(request, &reply);
        Ok(Written {
            text: reply.text,
            finish: reply.finish,
            usage: reply.usage,
            is_cached: false,
        })
    }

    fn content(&self, ino: Ino) -> Result<Vec<u8>> {
        let size = self.files.getattr(ino)?.size;
        let mut content = Vec::new();
        self.files.read(
            ino,
            0,
            usize::try_from(size).unwrap_or(usize::MAX),
            &mut content,
        )?;
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
                Kind::Symlink => {
                    Some(String::from_utf8_lossy(&self.files.readlink(attr.ino)?).into_owned())
                }
                _ => None,
            };
            let generator = self.files.getxattr(attr.ino, GENERATOR.as_bytes()).ok();
            lines.push(TreeLine {
                path: path.clone(),
                is_directory: attr.kind == Kind::Directory,
                target,
                generator: generator.map(|name| String::from_utf8_lossy(&name).into_owned()),
                is_pending: read(&self.waiting).contains_key(&attr.ino),
                size: attr.size,
            });
            if attr.kind == Kind::Directory {
                self.walk(attr.ino, &path, lines)?;
            }
        }
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let Some(path) = &self.save else {
            return Ok(());
        };
        let _one_at_a_time = lock(&self.saving);
        if self.is_saved.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let waiting = |ino: Ino| read(&self.waiting).get(&ino).cloned();
        let is_left_out = |ino: Ino| self.not_saved.contains(&ino);
        saved::save(path, &self.files, &waiting, &is_left_out).map_err(|error| {
            self.is_saved.store(false, Ordering::Relaxed);
            StoreError::storage(Errno::IO, error)
        })
    }
}

impl Surroundings for Shared {
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
            // A setting file that waits itself says nothing yet.
            let content = self.content(ino).unwrap_or_default();
            let value = setting.value(&String::from_utf8_lossy(&content));
            tracing::debug!(
                path,
                place,
                found = value.is_some(),
                "looking for a {}",
                setting.name()
            );
            if value.is_some() {
                return value;
            }
        }
        None
    }

    fn ask(&self, path: &str, system: &str, question: String, cancel: &Cancel) -> Result<Written> {
        let model = self.setting(path, Setting::Model);
        let model = model.unwrap_or_else(|| self.asker.model().to_owned());
        if let Some(prompt) = self
            .setting(path, Setting::Prompt)
            .filter(|prompt| prompt.len() > PROMPT_MAX)
        {
            let why = format!(
                "the prompt that is set for {path} has {} bytes; at most {PROMPT_MAX} are taken",
                prompt.len()
            );
            return Err(StoreError::storage(Errno::FBIG, why));
        }
        let request = self.asker.request(&model, system, question, None);
        Ok(self.cached(Purpose::Content, path, &request, cancel)?)
    }

    fn cache(&self) -> &AnswerCache {
        &self.cache
    }
}

impl Store for GenerateStore {
    fn kind(&self) -> &'static str {
        "llm-generate"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.shared.files.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.shared.files.getattr(ino)
    }

    fn is_settled(&self, ino: Ino) -> bool {
        !self.waits(ino) && !self.shared.live.contains_key(&ino)
    }

    fn size_for_read(&self, ino: Ino) -> Result<Attr> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let mut attr = self.getattr(ino)?;
            let content = self.show(ino, generator)?;
            attr.size = content.len() as u64;
            self.shared.tell_kernel(ino, &content);
            return Ok(attr);
        }
        if self.waits(ino) {
            self.make(ino)?;
        }
        self.getattr(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        if change.size.is_some() {
            // A control file has no size of its own: `echo 1 > cache_clear` cuts it off first.
            if self.shared.live.contains_key(&ino) {
                return self.getattr(ino);
            }
            self.is_theirs_now(ino);
        }
        self.changed(self.shared.files.setattr(caller, ino, change))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.shared.files.parent(dir)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.shared.files.readlink(ino)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Attr> {
        let mut names = write(&self.shared.names);
        let attr = self.changed(self.shared.files.create(caller, parent, name, node))?;
        names.add(attr.ino, parent, name);
        Ok(attr)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut names = write(&self.shared.names);
        let attr = self.changed(self.shared.files.link(caller, ino, parent, name))?;
        names.add(ino, parent, name);
        Ok(attr)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.check_not_control(parent, name)?;
        let mut names = write(&self.shared.names);
        let ino = self.lookup(parent, name)?.ino;
        let orphan = self.changed(self.shared.files.unlink(caller, parent, name))?;
        names.remove(ino, parent, name);
        Ok(orphan)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let mut names = write(&self.shared.names);
        let ino = self.lookup(parent, name)?.ino;
        let orphan = self.changed(self.shared.files.rmdir(caller, parent, name))?;
        names.remove(ino, parent, name);
        Ok(orphan)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        self.check_not_control(from.0, from.1)?;
        self.check_not_control(to.0, to.1)?;
        let mut names = write(&self.shared.names);
        let source = self.lookup(from.0, from.1)?.ino;
        let target = self.lookup(to.0, to.1).ok().map(|attr| attr.ino);
        let orphan = self.changed(self.shared.files.rename(caller, from, to, mode))?;
        if target != Some(source) {
            names.rename(source, target, from, to, mode);
        }
        Ok(orphan)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        let is_gone = self
            .shared
            .files
            .getattr(ino)
            .is_ok_and(|attr| attr.nlink == 0);
        if is_gone {
            write(&self.shared.waiting).remove(&ino);
            lock(&self.shown).remove(&ino);
        }
        self.shared.files.reclaim(ino)
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let shown = lock(&self.shown).get(&ino).cloned();
            let content = match shown {
                Some(content) => content,
                None => self.show(ino, generator)?,
            };
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(content.len());
            let end = start.saturating_add(size).min(content.len());
            out.extend_from_slice(&content[start..end]);
            return Ok(());
        }
        if self.waits(ino) {
            self.make(ino)?;
        }
        self.shared.files.read(ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let generator = self.shared.generators.get(generator).ok_or(Errno::IO)?;
            let path = read(&self.shared.names).path(ino).unwrap_or_default();
            let file = FileToMake {
                path: &path,
                about: None,
                around: &*self.shared,
                cancel: &Cancel::default(),
            };
            generator.accept(&file, data)?;
            let said = String::from_utf8_lossy(data).trim().to_owned();
            self.shared.asker.log(&format!("{path} was set to {said}"));
            return Ok(());
        }
        self.is_theirs_now(ino);
        self.shared.files.write(caller, ino, offset, data)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        how: Allocate,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        if self.shared.live.contains_key(&ino) {
            return Err(Errno::INVAL.into());
        }
        self.is_theirs_now(ino);
        self.shared
            .files
            .fallocate(caller, ino, how, offset, length)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.shared.files.seek(ino, offset, what)
    }

    fn readdir(
        &self,
        dir: Ino,
        after: u64,
        with_attr: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.shared.files.readdir(dir, after, with_attr, emit)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if name == b"user.llmfs.state" {
            let has_generator = self
                .shared
                .files
                .getxattr(ino, GENERATOR.as_bytes())
                .is_ok();
            return match (self.waits(ino), has_generator) {
                (true, _) => Ok(b"waiting".to_vec()),
                (false, true) => Ok(b"generated".to_vec()),
                (false, false) => Err(Errno::NODATA.into()),
            };
        }
        self.shared.files.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.shared.files.listxattr(ino)?;
        if names.iter().any(|name| name == GENERATOR.as_bytes()) {
            names.push(b"user.llmfs.state".to_vec());
        }
        Ok(names)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if name == PROMPT.as_bytes() {
            if value.len() > PROMPT_MAX {
                return Err(StoreError::storage(
                    Errno::FBIG,
                    format!("a prompt has at most {PROMPT_MAX} bytes"),
                ));
            }
            if let Some(waits) = write(&self.shared.waiting).get_mut(&ino) {
                waits.about = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        if name == b"user.llmfs.state" {
            return Err(Errno::PERM.into());
        }
        if name == GENERATOR.as_bytes() {
            mode.check(self.shared.files.getxattr(ino, name).is_ok())?;
            self.set_generator(ino, value)?;
        }
        self.changed(self.shared.files.setxattr(caller, ino, name, value, mode))?;
        if let (Some(Kernel(kernel)), true) =
            (self.shared.kernel.get(), name == GENERATOR.as_bytes())
        {
            // The kernel must ask again before it believes that the file is empty.
            kernel.forget_inode(ino);
        }
        Ok(())
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.changed(self.shared.files.removexattr(caller, ino, name))?;
        if name == GENERATOR.as_bytes() {
            self.is_theirs_now(ino);
        }
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.shared.save()
    }

    fn sync(&self) -> Result<()> {
        self.shared.save()
    }

    fn is_slow(&self, ino: Ino, call: Slow) -> bool {
        match call {
            Slow::Read { .. } => self.waits(ino),
            Slow::SizeForRead => !self.is_settled(ino),
            Slow::Fsync => self.shared.save.is_some(),
            _ => false,
        }
    }

    fn attach(&self, kernel: Arc<dyn KernelCache>) {
        // Called once.
        let _ = self.shared.kernel.set(Kernel(kernel));
    }

    fn statfs(&self) -> Result<StatFs> {
        self.shared.files.statfs()
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.shared.asker.counters();
        let (hits, misses) = self.shared.cache.hits_and_misses();
        counters.insert("cache-hits", hits);
        counters.insert("cache-misses", misses);
        counters.insert("cache-saved-tokens", self.shared.cache.saved_tokens());
        counters.insert("generated", self.shared.generated.load(Ordering::Relaxed));
        counters.insert("waiting", read(&self.shared.waiting).len() as u64);
        counters
    }
}
