//! A [`Store`] whose tree a model proposes and whose files it writes on their first read (LLMFS, source 2).
//!
//! A *waiting* file has size 0, which the kernel does not cache. Its first read runs its [`Generator`] once for
//! all readers; a write or truncation ends the wait instead. With a save file, `fsync`, unmount and each
//! generated file save everything; a killed daemon loses later changes.

mod answer;
mod cache;
mod checksum;
mod command;
mod context;
mod generation;
mod generator;
mod layout;
mod load;
mod rule;
mod save;
mod saved;
mod settings;
mod standard;
mod store;
mod tree;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use models::Cancel;
use parking_lot::{Mutex, RwLock};

pub use cache::AnswerCache;
pub use command::CommandGenerator;
pub use context::{CONTEXT_DEFAULT, CONTEXT_MAX, ContextFile};
pub use generator::{CommandContext, FileRequest, GeneratedContent, Generator, Generators, ModelAnswer, TreeLine};
pub use saved::SavedError;
pub use settings::Setting;
pub use tree::{ENTRIES_MAX, EntryKind, TreeEntry, TreeError, parse as parse_tree, schema as tree_schema};

use fuse::memory::MemoryStore;
use fuse::store::{Caller, Errno, Ino, KernelCache, Kind, ROOT, Result, Store, StoreError};

use self::saved::{PendingFile, SaveFile};
use super::asker::Asker;
use super::flight::Flights;
use super::names::Names;

/// The extended attribute with the name of a file's generator.
pub const GENERATOR: &str = "user.llmfs.generator";

/// The extended attribute that describes the content of a file to be generated.
pub const PROMPT: &str = "user.llmfs.prompt";

/// The longest prompt in bytes.
pub const PROMPT_MAX: usize = 64 * 1024;

/// The initial settings of a generated file system.
#[derive(Debug)]
pub struct GenerateOptions {
    /// The topic of the file system, for the model.
    pub prompt: Option<String>,
    /// The tree of names. Without one, the model proposes a tree for `prompt`.
    pub tree: Option<Vec<TreeEntry>>,
    /// The save file, which is loaded if it exists.
    pub save: Option<PathBuf>,
    /// The generators of the mount.
    pub generators: Generators,
    /// The cache of model answers.
    pub cache: AnswerCache,
    /// The most bytes of other generated files in a prompt, up to [`CONTEXT_MAX`]; 0 for none.
    pub context_bytes: usize,
}

/// Why a file system cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The prompt is too long; its length in bytes.
    #[error("the prompt has {0} bytes; the maximum is {PROMPT_MAX}")]
    Prompt(usize),
    /// The model proposes no valid tree.
    #[error(
        "the model {model} proposed no usable tree: {error}\n  fix: give a tree with --tree FILE, or try another prompt or model"
    )]
    Tree {
        /// The model.
        model: String,
        /// The error of its last tree.
        error: TreeError,
    },
    /// Both a tree and a saved file system are given.
    #[error(
        "{} holds a saved file system, so --tree would be ignored\n  fix: leave --tree out to continue with it, name another file with --save, or remove it",
        .save.display()
    )]
    TreeAndSave {
        /// The save file.
        save: PathBuf,
    },
    /// The request for a tree failed.
    #[error("asking the model for the tree: {0}")]
    Model(StoreError),
    /// The save file cannot be used.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// A node of the tree or a control file cannot be created.
    #[error("creating the files of the tree: {0}")]
    Store(StoreError),
}

impl From<StoreError> for GenerateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A file system whose tree and content a model writes.
#[derive(Debug)]
pub struct GenerateStore {
    shared: Arc<SharedState>,
    flights: Arc<Flights<Ino, ()>>,
    /// The content last shown of each control file.
    shown: Mutex<HashMap<Ino, Arc<Vec<u8>>>>,
}

struct Kernel(Arc<dyn KernelCache>);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

#[derive(Debug)]
struct SharedState {
    asker: Asker,
    cache: AnswerCache,
    generators: Generators,
    save: Option<SaveFile>,
    files: MemoryStore,
    owner: Caller,
    names: RwLock<Names>,
    waiting: RwLock<HashMap<Ino, PendingFile>>,
    /// Control files and the names of their generators; fixed once the store is open.
    live: HashMap<Ino, &'static str>,
    /// The directory `/.llmfs`.
    control: Ino,
    /// Inodes in `/.llmfs` that each mount creates for itself.
    not_saved: Vec<Ino>,
    is_saved: AtomicBool,
    generated: AtomicU64,
    /// The most bytes of other generated files in a prompt.
    context_bytes: usize,
    /// Tokens that these took in the requests of this mount, estimated.
    context_tokens: AtomicU64,
    saving: Mutex<()>,
    kernel: OnceLock<Kernel>,
}

impl GenerateStore {
    /// Opens a file system from its save file, else from the given tree, else from a tree that the model
    /// proposes for the prompt. Without all three it is empty.
    ///
    /// # Errors
    /// [`GenerateError`]; the save file is then unchanged.
    pub fn open(asker: Asker, options: GenerateOptions, owner: &Caller) -> std::result::Result<Self, GenerateError> {
        if let Some(prompt) = options.prompt.as_ref().filter(|prompt| prompt.len() > PROMPT_MAX) {
            return Err(GenerateError::Prompt(prompt.len()));
        }
        let files = MemoryStore::new(owner);
        let mut names = Names::default();
        let mut waiting = HashMap::new();
        let save = options.save.as_deref().map(SaveFile::own).transpose()?;
        let is_loaded = save.as_ref().is_some_and(SaveFile::exists);
        if let Some(save) = save.as_ref().filter(|_| is_loaded) {
            if options.tree.is_some() {
                let save = save.path().to_owned();
                return Err(GenerateError::TreeAndSave { save });
            }
            let loaded = save.load(&files, |ino, dir, name| names.add(ino, dir, name))?;
            waiting.extend(loaded);
        }
        let mut shared = SharedState {
            asker,
            cache: options.cache,
            generators: options.generators,
            save,
            files,
            owner: *owner,
            names: RwLock::new(names),
            waiting: RwLock::new(waiting),
            live: HashMap::new(),
            control: ROOT,
            not_saved: Vec::new(),
            is_saved: AtomicBool::new(is_loaded),
            generated: AtomicU64::new(0),
            context_bytes: options.context_bytes.min(CONTEXT_MAX),
            context_tokens: AtomicU64::new(0),
            saving: Mutex::default(),
            kernel: OnceLock::new(),
        };
        shared.add_control(options.prompt.as_deref())?;
        if !is_loaded {
            let entries = match (options.tree, &options.prompt) {
                (Some(tree), _) => tree,
                (None, Some(prompt)) => shared.ask_tree(prompt)?,
                (None, None) => Vec::new(),
            };
            shared.lay_out(&entries)?;
        }
        shared.assign_generators()?;
        if let Some(save) = &shared.save {
            save.discard_new_lock(false);
        }
        Ok(Self { shared: Arc::new(shared), flights: Arc::default(), shown: Mutex::default() })
    }

    /// Why the save file can only be read; `None` if it can be written, or there is none.
    pub fn read_only(&self) -> Option<&str> {
        self.shared.save.as_ref()?.read_only()
    }

    /// The asker of this store.
    pub fn asker(&self) -> &Asker {
        &self.shared.asker
    }

    /// The cache of model answers of this store.
    pub fn cache(&self) -> &AnswerCache {
        &self.shared.cache
    }

    /// Generates the content of a waiting file, once for all its readers.
    fn make(&self, ino: Ino) -> Result<()> {
        // A file truncated and marked for generation meanwhile waits again.
        while self.waits(ino) {
            let shared = Arc::clone(&self.shared);
            self.flights.join(ino, move |cancel| shared.make(ino, cancel))?;
        }
        Ok(())
    }

    fn waits(&self, ino: Ino) -> bool {
        self.shared.waiting.read().contains_key(&ino)
    }

    /// Ends the wait of a file that a caller changes, and removes the attributes that describe its
    /// generation. The attribute [`PROMPT`] stays, so that the file can be generated again.
    fn is_theirs_now(&self, caller: &Caller, ino: Ino) {
        self.shared.waiting.write().remove(&ino);
        let files = &self.shared.files;
        if files.getxattr(ino, GENERATOR.as_bytes()).is_ok() {
            for name in generation::ATTRIBUTES {
                // Some of the attributes may be missing.
                let _ = files.removexattr(caller, ino, name.as_bytes());
            }
        }
        self.shared.is_saved.store(false, Ordering::Relaxed);
    }

    fn show(&self, ino: Ino, generator: &str) -> Result<Arc<Vec<u8>>> {
        let content = Arc::new(self.shared.generate(ino, generator, None, &Cancel::default())?.content);
        self.shown.lock().insert(ino, Arc::clone(&content));
        Ok(content)
    }

    fn changed<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.shared.is_saved.store(false, Ordering::Relaxed);
        }
        done
    }

    /// Removes a name by `remove`, unless it is a control file's.
    fn remove(&self, parent: Ino, name: &[u8], remove: impl FnOnce() -> Result<Option<Ino>>) -> Result<Option<Ino>> {
        self.check_name_not_control(parent, name)?;
        let mut names = self.shared.names.write();
        let ino = self.shared.files.lookup(parent, name)?.ino;
        let orphan = self.changed(remove())?;
        names.remove(ino, parent, name);
        Ok(orphan)
    }

    /// Refuses with `EPERM` to rename, link or remove `/.llmfs` or a control file.
    fn check_not_control(&self, ino: Ino) -> Result<()> {
        if ino == self.shared.control || self.shared.not_saved.contains(&ino) {
            let why = "`.llmfs` and its control files cannot be moved, linked or removed";
            return Err(StoreError::storage(Errno::PERM, why));
        }
        Ok(())
    }

    fn check_name_not_control(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.shared.files.lookup(parent, name) {
            Ok(attr) => self.check_not_control(attr.ino),
            Err(_) => Ok(()),
        }
    }

    /// Makes an empty file wait for `value`, a generator. `EINVAL` if that is unknown, `EEXIST` if the file
    /// is not empty.
    fn set_generator(&self, ino: Ino, value: &[u8]) -> Result<()> {
        let generator = String::from_utf8_lossy(value).into_owned();
        let known = self.shared.generators.get(&generator);
        let attr = self.shared.files.getattr(ino)?;
        if known.is_none_or(|generator| generator.is_live()) || attr.kind != Kind::File {
            let names = self.shared.generators.names().join(", ");
            let why = format!("unknown generator {generator:?}; the generators of this mount are {names}");
            return Err(StoreError::storage(Errno::INVAL, why));
        }
        if attr.size > 0 || self.shared.live.contains_key(&ino) {
            let why = "the file is not empty; empty it first with `truncate -s 0`";
            return Err(StoreError::storage(Errno::EXIST, why));
        }
        let about = self.shared.files.getxattr(ino, PROMPT.as_bytes()).ok();
        let about = about.map(|about| String::from_utf8_lossy(&about).into_owned());
        self.shared.waiting.write().insert(ino, PendingFile { generator, about });
        Ok(())
    }
}
