//! A [`Store`] whose tree a model proposes and whose files it writes when they are first read (LLMFS, source 2).
//!
//! A file that nobody has read *waits*: its size is 0, and the kernel is told not to keep that, so that it asks again
//! before a read. Then, and never for `stat`, a listing, `open` or a truncation, its [`Generator`] makes the content, once
//! for all who wait for it, and the file is kept: from then on it is a file like any other. Whoever writes to a waiting
//! file, or cuts it off, makes it theirs: nothing is generated any more.
//!
//! Durability: with a save file, `fsync`, unmounting and each generated file write everything into it, beside it first
//! and then in its place; what was changed since is lost with a killed daemon. Without one, nothing stays.

mod cache;
mod generator;
mod layout;
mod load;
mod made;
mod save;
mod saved;
mod settings;
mod standard;
mod store;
mod tree;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use models::Cancel;

pub use cache::AnswerCache;
pub use generator::{FileToMake, Generator, Generators, Made, Surroundings, TreeLine, Written};
pub use saved::SavedError;
pub use settings::Setting;
pub use tree::{
    ENTRIES_MAX, EntryKind, TreeEntry, TreeError, parse as parse_tree, schema as tree_schema,
};

use self::saved::{Pending, SaveFile};
use super::asker::Asker;
use super::flight::Flights;
use super::names::Names;
use crate::memory::MemoryStore;
use crate::store::{Caller, Errno, Ino, KernelCache, Kind, ROOT, Result, Store, StoreError};

/// The attribute that names what makes a file.
pub const GENERATOR: &str = "user.llmfs.generator";

/// The attribute that says what a file is to hold.
pub const PROMPT: &str = "user.llmfs.prompt";

/// The longest prompt in bytes.
pub const PROMPT_MAX: usize = 64 * 1024;

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
    /// Both a tree and a saved file system are given.
    #[error(
        "{} holds a saved file system, and --tree would be ignored\n  fix: leave --tree out to go on with it, or name another file by --save, or remove it",
        .save.display()
    )]
    TreeAndSave {
        /// The save file.
        save: PathBuf,
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
    save: Option<SaveFile>,
    files: MemoryStore,
    owner: Caller,
    names: RwLock<Names>,
    waiting: RwLock<HashMap<Ino, Pending>>,
    /// Control files and the names of their generators; fixed once the store is open.
    live: HashMap<Ino, &'static str>,
    /// The directory `/.llmfs`.
    control: Ino,
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
        let mut shared = Shared {
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
        // What somebody has emptied and wants again meanwhile is not what was waited for.
        while self.waits(ino) {
            let shared = Arc::clone(&self.shared);
            self.flights
                .join(ino, move |cancel| shared.make(ino, cancel))?;
        }
        Ok(())
    }

    fn waits(&self, ino: Ino) -> bool {
        read(&self.shared.waiting).contains_key(&ino)
    }

    /// Somebody else has decided what the file holds: nothing says any more that it was generated. What it was to hold
    /// stays, for who has it generated again.
    fn is_theirs_now(&self, caller: &Caller, ino: Ino) {
        write(&self.shared.waiting).remove(&ino);
        let files = &self.shared.files;
        if files.getxattr(ino, GENERATOR.as_bytes()).is_ok() {
            for name in made::ATTRIBUTES {
                // Not every one need be there.
                let _ = files.removexattr(caller, ino, name.as_bytes());
            }
        }
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

    /// The control files are there, under their names and no others, as long as the mount is.
    fn check_not_control(&self, ino: Ino) -> Result<()> {
        if ino == self.shared.control || self.shared.not_saved.contains(&ino) {
            let why = "`.llmfs` and what this mount shows in it stay where they are";
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
