//! The initial content of a file system: the control files and the tree of names.

use std::collections::HashMap;

use fuse::store::{Attr, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Result, Store, StoreError};
use models::{Cancel, Finish, Schema};

use super::saved::PendingFile;
use super::{EntryKind, GENERATOR, GenerateError, PROMPT, Setting, SharedState, TreeEntry, TreeError, tree};
use crate::asker::Purpose;
use crate::names::shown;

/// How often an invalid tree is requested again.
const REPAIRS: usize = 2;

/// The control files that are generated for each reader: name, generator, mode.
const LIVE: [(&str, &str, u16); 6] = [
    ("tree", "tree", 0o444),
    ("README", "readme", 0o444),
    ("cache_enabled", "cache_enabled", 0o644),
    ("cache_stats", "cache_stats", 0o444),
    ("cache_clear", "cache_clear", 0o644),
    ("cache_list", "cache_list", 0o444),
];

impl SharedState {
    /// Creates `/.llmfs` and its control files.
    pub(super) fn add_control(&mut self, prompt: Option<&str>) -> Result<()> {
        let dir = self.directory(ROOT, b".llmfs")?;
        self.control = dir;
        for (name, generator, permissions) in LIVE {
            self.set_aside(dir, name)?;
            let attr = self.put(dir, name.as_bytes(), Kind::File, permissions, b"")?;
            self.set_attribute(&self.owner, attr.ino, GENERATOR, generator)?;
            self.live.insert(attr.ino, generator);
            self.not_saved.push(attr.ino);
        }
        if let Some(log) = self.asker.log_file() {
            let target = std::os::unix::ffi::OsStrExt::as_bytes(log.path().as_os_str()).to_vec();
            self.set_aside(dir, "log")?;
            let attr = self.put(dir, b"log", Kind::Symlink, 0o777, &target)?;
            self.not_saved.push(attr.ino);
        }
        let defaults =
            [(Setting::Model, Some(self.asker.model().to_owned())), (Setting::Prompt, prompt.map(str::to_owned))];
        for (setting, value) in defaults {
            let name = format!("{}.default", setting.name());
            let ino = match self.files.lookup(dir, name.as_bytes()) {
                Ok(attr) if attr.kind == Kind::File => attr.ino,
                // The user has replaced it, such as by a link to a prompt elsewhere.
                Ok(_) => continue,
                Err(_) => self.put(dir, name.as_bytes(), Kind::File, 0o644, b"")?.ino,
            };
            // An option of this mount overrides the saved value.
            if let Some(value) = value {
                let cut = Change { size: Some(0), ..Change::default() };
                self.files.setattr(&self.owner, ino, &cut)?;
                self.files.write(&self.owner, ino, 0, format!("{value}\n").as_bytes())?;
            }
            self.set_attribute(&self.owner, ino, GENERATOR, setting.name())?;
        }
        Ok(())
    }

    /// Renames a saved file that has the name of a control file.
    fn set_aside(&self, dir: Ino, name: &str) -> Result<()> {
        let Ok(there) = self.files.lookup(dir, name.as_bytes()) else {
            return Ok(());
        };
        let free = (1..).map(|number| format!("{name}.saved-{number}"));
        let mut free = free.filter(|name| self.files.lookup(dir, name.as_bytes()).is_err());
        let Some(other) = free.next() else {
            return Ok(());
        };
        let (from, to) = ((dir, name.as_bytes()), (dir, other.as_bytes()));
        let mode = RenameMode::NoReplace;
        self.files.rename(&self.owner, from, to, mode)?;
        self.names.write().rename(there.ino, None, from, to, mode);
        self.asker.log(&format!("/.llmfs/{name} of the saved file system is now called /.llmfs/{other}"));
        Ok(())
    }

    fn put(&self, dir: Ino, name: &[u8], kind: Kind, permissions: u16, target: &[u8]) -> Result<Attr> {
        let node = NewNode { kind, permissions, rdev: 0, target };
        let attr = self.files.create(&self.owner, dir, name, &node)?;
        self.names.write().add(attr.ino, dir, name);
        Ok(attr)
    }

    fn directory(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        match self.files.lookup(dir, name) {
            Ok(attr) if attr.kind == Kind::Directory => Ok(attr.ino),
            Ok(_) => {
                let name = shown(name);
                let why = format!("{name} must be a directory");
                Err(StoreError::storage(Errno::NOTDIR, why))
            }
            Err(_) => Ok(self.put(dir, name, Kind::Directory, 0o755, b"")?.ino),
        }
    }

    /// Asks the model for a tree, and after an invalid one again, with its error.
    pub(super) fn ask_tree(&self, prompt: &str) -> std::result::Result<Vec<TreeEntry>, GenerateError> {
        const PLANNER: &str = "You design file systems. Answer in JSON only: a list of entries, each with a relative path such as \
src/main.py, its kind, and for files a few words about what they hold. Name each path once. Paths never begin with a slash and \
never hold two dots.";
        let schema = Schema { name: "tree", schema: tree::asked_schema(self.asker.max_tokens(), 0) };
        let question = format!("Design the files for: {prompt}");
        let model = self.asker.model().to_owned();
        let mut request = self.asker.request(&model, PLANNER, question, Some(schema));
        let mut purpose = Purpose::Tree;
        let mut repairs = 0;
        loop {
            // Only valid trees are cached.
            let kept = self.cache.get(&request);
            if let Some(entries) = kept.and_then(|kept| tree::parse(&kept.text).ok()) {
                return Ok(entries);
            }
            let reply = self
                .asker
                .ask(purpose, "/", &request, &Cancel::default())
                .map_err(|failed| GenerateError::Model(failed.into()))?;
            let is_cut_off = reply.finish == Finish::Length;
            let parsed = tree::parse(&reply.text).map_err(|error| if is_cut_off { TreeError::CutOff } else { error });
            match parsed {
                Ok(entries) => {
                    self.cache.put(&request, &reply);
                    return Ok(entries);
                }
                Err(error) if repairs == REPAIRS => {
                    return Err(GenerateError::Tree { model, error });
                }
                Err(error) => {
                    self.asker.log(&format!("tree /: refused, asking again: {error}"));
                    repairs += 1;
                    purpose = Purpose::Repair;
                    let question = format!(
                        "Design the files for: {prompt}\nYour last answer could not be used: {error}. Answer again, without that mistake."
                    );
                    request.messages[1].content = question;
                    request.schema =
                        Some(Schema { name: "tree", schema: tree::asked_schema(self.asker.max_tokens(), repairs) });
                }
            }
        }
    }

    /// Creates the nodes of a tree; all files wait for generation.
    pub(super) fn lay_out(&self, entries: &[TreeEntry]) -> Result<()> {
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
                    let target = entry.target.as_deref().unwrap_or_default().as_bytes();
                    self.put(dir, name.as_bytes(), Kind::Symlink, 0o777, target)?;
                }
                EntryKind::File => {
                    let ino = self.put(dir, name.as_bytes(), Kind::File, 0o644, b"")?.ino;
                    let mut attributes = vec![(GENERATOR, "default")];
                    attributes.extend(entry.about.as_deref().map(|about| (PROMPT, about)));
                    for (name, value) in attributes {
                        self.set_attribute(&self.owner, ino, name, value)?;
                    }
                    let waits = PendingFile { generator: "default".to_owned(), about: entry.about.clone() };
                    self.waiting.write().insert(ino, waits);
                }
            }
        }
        Ok(())
    }

    /// Gives each file that waits for `default` the generator that writes files of its path.
    pub(super) fn assign_generators(&self) -> Result<()> {
        let names = self.names.read();
        for (ino, waits) in self.waiting.write().iter_mut() {
            let path = names.path(*ino).filter(|_| waits.generator == "default");
            if let Some(generator) = path.and_then(|path| self.generators.of_path(&path)) {
                self.set_attribute(&self.owner, *ino, GENERATOR, generator)?;
                waits.generator = generator.to_owned();
            }
        }
        Ok(())
    }
}
