//! Stores as sub-commands of `ctxbench mount`: the options of each, and how they open it.

use std::any::TypeId;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, value_parser};
use models::LlamaServer;

use fuse::store::{Caller, Store};

/// Why a store cannot be opened, in words for its user.
pub type StoreOpenError = Box<dyn std::error::Error + Send + Sync>;

/// The place at which a store is mounted.
#[derive(Clone, Copy, Debug)]
pub struct MountPoint<'a> {
    /// The directory.
    pub dir: &'a Path,
    /// The owner of the root of a new store.
    pub owner: &'a Caller,
}

impl MountPoint<'_> {
    /// The path of the directory with `suffix` at its end: of `ctx`, `ctx.db` with `.db`.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        beside(self.dir, suffix)
    }
}

/// The path of `dir` with `suffix` at its end: of a directory `ctx`, `ctx.db` with `.db`.
pub fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut beside: OsString = dir.components().collect::<PathBuf>().into();
    beside.push(suffix);
    beside.into()
}

/// A store that is ready to be mounted.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its source in the mount table, without the prefix `ctxbench-`.
    pub source: String,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Whether the kernel gathers writes.
    pub writeback: bool,
    /// Why the store can only be read; `None` if it can be written.
    pub read_only: Option<String>,
    /// A server that must live as long as the mount.
    pub server: Option<LlamaServer>,
}

impl OpenedStore {
    /// A store without messages and server; the kernel passes each write on.
    pub fn of(store: impl Store + 'static, source: impl Into<String>) -> Self {
        Self {
            store: Arc::new(store),
            source: source.into(),
            notes: Vec::new(),
            writeback: false,
            read_only: None,
            server: None,
        }
    }
}

/// An option of stores whose files nothing but the mount changes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Writeback {
    /// Let the kernel cache writes until a file is closed or synced: for programs that write small pieces to files that
    /// stay open, such as logs and databases. If the daemon is killed, writes that were neither closed nor synced can be
    /// lost.
    #[arg(long)]
    pub writeback: bool,
}

/// The options of a store in `ctxbench mount`. The documentation of the type is the store's help.
///
/// No field has the name of an option of every mount, such as `log` or `threads`, or is called `dir`; clap refuses that.
pub trait StoreOptions: Args {
    /// The name of the store there.
    const NAME: &'static str;

    /// Examples for its help, as arguments of `ctxbench mount`. The help adds one with `--daemon`.
    const EXAMPLES: &'static [&'static str] = &[];

    /// Opens the store.
    ///
    /// # Errors
    /// If the options do not fit, or the store cannot be opened.
    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError>;
}

/// Parses a path, and makes it absolute: a daemon leaves the directory that it was started from. The folder is resolved,
/// since a path such as `ctx/../ctx.db` would later lead through the mount on `ctx`; the last name is not, since a dead
/// mount there cannot be resolved.
pub fn absolute_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let path = std::path::absolute(path)?;
        Ok::<_, std::io::Error>(match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => resolved(folder).join(name),
            _ => resolved(&path),
        })
    })
}

fn absolute(argument: Arg) -> Arg {
    if argument.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
        argument.value_parser(absolute_path())
    } else {
        argument
    }
}

/// Where the file at the absolute `path` is, or would be created, without symbolic links. Links of a path that the kernel
/// refuses, since they lead to themselves or the path is too long, stay as they are.
fn resolved(path: &Path) -> PathBuf {
    /// As many links as the kernel follows.
    const LINKS_MAX: usize = 40;
    /// Bytes of the longest path that the kernel takes.
    const PATH_MAX: usize = 4095;
    let names = |path: &Path| -> Vec<OsString> {
        let names = path.components().rev();
        names.map(|name| name.as_os_str().to_owned()).collect()
    };
    let (mut found, mut rest, mut links) = (PathBuf::new(), names(path), 0);
    while let Some(name) = rest.pop() {
        if name == ".." {
            // `found` has no links, so its parent is the directory above.
            found.pop();
            continue;
        }
        found.push(name);
        if links < LINKS_MAX
            && found.as_os_str().len() <= PATH_MAX
            && let Ok(target) = found.read_link()
        {
            links += 1;
            found.pop();
            rest.extend(names(&target));
        }
    }
    found
}

/// A file of a mount would lie in the directory that the mount hides.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is inside {}, where the mount would hide it\n  fix: choose a file outside of that directory", .file.display(), .dir.display()
)]
pub struct HiddenByMount {
    file: PathBuf,
    dir: PathBuf,
}

/// What stores without options call their files, after the directory's name.
const OF_STORES: [&str; 5] = [".db", ".s3.db", ".llmfs.log", ".llmfs.cache", ".llmfs.json"];

/// The log of a mount would be written into a file of its store.
#[derive(Debug, thiserror::Error)]
#[error("the log {} would be written into a file of the store\n  fix: name another file with --log FILE", .0.display())]
pub struct LogIsOfStore(PathBuf);

/// A sub-command of `ctxbench mount`.
#[derive(Clone, Copy, Debug)]
pub struct MountCommand {
    /// The name of the store.
    pub name: &'static str,
    examples: &'static [&'static str],
    augment: fn(Command) -> Command,
    open: fn(&ArgMatches, MountPoint<'_>) -> Result<OpenedStore, StoreOpenError>,
}

impl MountCommand {
    /// The argument with the directory.
    pub const DIR: &'static str = "dir";

    /// The sub-command with the options `O`.
    pub fn of<O: StoreOptions>() -> Self {
        Self {
            name: O::NAME,
            examples: O::EXAMPLES,
            augment: O::augment_args,
            open: |matches, at| O::from_arg_matches(matches)?.open(at),
        }
    }

    /// Its definition for the command line.
    pub fn command(&self) -> Command {
        let dir = Arg::new(Self::DIR)
            .value_name("DIR")
            .help("An empty directory")
            .value_parser(value_parser!(PathBuf))
            .required(true);
        let plain = format!("{} ctx", self.name);
        let mut examples = self.examples.to_vec();
        if examples.is_empty() {
            examples.push(&plain);
        }
        let first = examples[0].split("  ").next().unwrap_or_default();
        let in_background = format!("--daemon {first}");
        examples.push(&in_background);
        let lines = examples.iter();
        let lines = lines.map(|line| format!("\n  ctxbench mount {line}"));
        let command = (self.augment)(Command::new(self.name).arg(dir)).mut_args(absolute);
        command.after_help(format!("Examples:{}", lines.collect::<String>()))
    }

    /// Checks that a log is no file of the store: neither a path in `matches`, nor one that a store has without options, nor a
    /// file that a database keeps beside itself.
    ///
    /// # Errors
    /// [`LogIsOfStore`] if it is.
    pub fn check_log(matches: &ArgMatches, log: &Path, dir: &Path) -> Result<(), LogIsOfStore> {
        let log = std::path::absolute(log).unwrap_or_default();
        let log = resolved(&log);
        let is_of = |file: PathBuf| {
            let rest = log.as_os_str().as_bytes();
            let rest = rest.strip_prefix(file.as_os_str().as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
        };
        let dir = resolved(&std::path::absolute(dir).unwrap_or_default());
        let mut usual = OF_STORES.iter().map(|suffix| beside(&dir, suffix));
        if Self::paths(matches).any(|path| is_of(resolved(path))) || usual.any(is_of) {
            Err(LogIsOfStore(log))
        } else {
            Ok(())
        }
    }

    fn paths(matches: &ArgMatches) -> impl Iterator<Item = &Path> {
        // clap shows the options of every mount here, too.
        let others = [Self::DIR, "log", "control"];
        let ids = matches.ids().filter(move |id| !others.contains(&id.as_str()));
        let given = ids.filter_map(|id| matches.try_get_many::<PathBuf>(id.as_str()).ok()?);
        given.flatten().map(PathBuf::as_path)
    }

    /// Checks that no path in `matches`, or of `more`, lies in `dir`, which is an empty directory.
    ///
    /// # Errors
    /// [`HiddenByMount`] with the first that does.
    pub fn check_paths<'a>(
        matches: &'a ArgMatches,
        more: impl IntoIterator<Item = &'a Path>,
        dir: &Path,
    ) -> Result<(), HiddenByMount> {
        let dir = resolved(dir);
        match Self::paths(matches).chain(more).find(|file| resolved(file).starts_with(&dir)) {
            None => Ok(()),
            Some(file) => Err(HiddenByMount { file: file.to_owned(), dir }),
        }
    }

    /// Opens the store by its options in `matches`, those of [`MountCommand::command`].
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(&self, matches: &ArgMatches, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        (self.open)(matches, at)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_log_is_no_file_of_the_store() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("ctx")).unwrap();
        symlink("ctx", root.join("link")).unwrap();
        let command = Command::new("mount").args([
            Arg::new("db").long("db").value_parser(value_parser!(PathBuf)),
            Arg::new("log").long("log").value_parser(value_parser!(PathBuf)),
            Arg::new(MountCommand::DIR).value_parser(value_parser!(PathBuf)),
        ]);
        let checked = |log: &str| {
            let (db, log, dir) = (root.join("a.db"), root.join(log), root.join("link"));
            let given = [Path::new("mount"), "--db".as_ref(), &db, "--log".as_ref(), &log, &dir];
            let matches = command.clone().try_get_matches_from(given).unwrap();
            MountCommand::check_log(&matches, &log, &dir)
        };
        for refused in ["a.db", "a.db-redo", "ctx/../a.db", "ctx.db", "ctx.s3.db", "ctx.llmfs.json"] {
            let error = checked(refused).unwrap_err().to_string();
            assert!(error.contains("fix: "), "{error}");
        }
        for log in ["ctx.log", "ctx.2026.log", "a.db.log", "log", "ctx.llmfs.logs"] {
            checked(log).unwrap();
        }
    }

    #[test]
    fn a_path_is_where_its_links_lead_even_if_it_does_not_exist() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let dir = root.join("in");
        std::fs::create_dir(&dir).unwrap();
        symlink("in", root.join("folder")).unwrap();
        symlink("in/missing", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for inside in ["in/a", "in/a/b", "folder/a", "dangling", "in", "folder"] {
            let path = resolved(&root.join(inside));
            assert!(path.starts_with(&dir), "{inside}: {}", path.display());
        }
        for outside in ["a", "in.db", "loop", "b/c", "in/../a", "in/../folder/../a", "missing/../a"] {
            let path = resolved(&root.join(outside));
            assert!(!path.starts_with(&dir), "{outside}: {}", path.display());
        }
    }

    #[test]
    fn a_link_that_leads_through_itself_and_a_path_of_any_length_are_resolved_on_any_stack() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        symlink("through/x", root.join("through")).unwrap();
        symlink("to/y", root.join("fro")).unwrap();
        symlink("fro/z", root.join("to")).unwrap();
        let long = root.join("a/".repeat(60_000)).join("b");
        let small_stack = std::thread::Builder::new().stack_size(256 << 10);
        let resolving = small_stack.spawn(move || {
            for name in ["through", "fro", "to/x"] {
                assert!(resolved(&root.join(name)).starts_with(&root), "{name}");
            }
            assert_eq!(resolved(&long), long);
        });
        resolving.unwrap().join().unwrap();
    }
}
