//! The directories that a session names, and the place of each path below them in the trace's workspace.
//! A path in the main root keeps its place; one in another root is in `.roots/` with its whole path.
//! A path in no root has no place.

use std::collections::HashMap;

use shell::path::{is_absolute, is_windows};

/// Bytes of the longest path that Linux takes (`PATH_MAX`).
pub(super) const LONGEST: usize = 4096;

/// The directory of the workspace that contains the other roots.
const OTHERS: &str = ".roots";

/// Directories in which any session may keep files: scratch space and the agents' own state.
const SCRATCH: &[&[&str]] = &[&["tmp"], &["var", "tmp"], &["var", "folders"], &["dev", "shm"]];

/// The same on Windows, in lower case; `*` is any user.
const WINDOWS_SCRATCH: &[&[&str]] = &[
    &["users", "*", "appdata", "local", "temp"],
    &["docume~1", "*", "locals~1", "temp"],
    &["documents and settings", "*", "local settings", "temp"],
    &["windows", "temp"],
    &["temp"],
    &["tmp"],
];

/// Directories in the user's home that contain an agent's own plans, memories and results.
const STATE: &[&str] = &[
    ".agents", ".claude", ".codex", ".gemini", ".copilot", ".cursor", ".factory", ".kiro", ".pi", ".config", ".cache",
];

/// Directories at the top that contain the system's own files.
const SYSTEM: &[&str] = &["bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"];

/// The roots of a session.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// The components of each root, in the order of their addition.
    roots: Vec<Vec<String>>,
    /// Whether the session ran on Windows, where `\` separates components and case does not matter.
    is_windows: bool,
    /// On Windows, the first spelling of each path in the workspace, by its lower case.
    spellings: HashMap<String, String>,
}

impl Roots {
    /// Adds a directory that the session names. A relative path is not a root. `/` and the directories at the top
    /// are roots only if the session begins there.
    pub fn add(&mut self, dir: &str) {
        if is_windows(dir) {
            self.is_windows = true;
        }
        let Some(parts) = self.parts(dir) else {
            return;
        };
        let is_top = parts.len() < 2 && !self.roots.is_empty();
        if !is_top && !self.roots.iter().any(|root| self.is_within(&parts, root)) {
            self.roots.push(parts);
        }
    }

    /// Adds the directory of the files on which tools work, if none of them is in a root: an agent may begin in a directory of its
    /// own. Directories of the system are not added.
    pub fn add_elsewhere<'a>(&mut self, paths: impl Iterator<Item = &'a str> + Clone) {
        let mut absolute = paths.filter(|path| is_absolute(path));
        let system = |parts: &Vec<String>| parts.first().is_none_or(|first| SYSTEM.contains(&first.as_str()));
        if let Some(dir) = common_directory(absolute.clone())
            && let Some(parts) = self.parts(&dir).filter(|parts| !system(parts))
            && absolute.all(|path| self.place(path).is_none())
        {
            self.roots.push(parts);
        }
    }

    /// Whether the session ran on Windows.
    pub fn is_windows(&self) -> bool {
        self.is_windows
    }

    /// Whether no directory is known.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// `path` as seen from the directory `cwd`.
    pub fn absolute(&self, cwd: &str, path: &str) -> String {
        let path = match (path.strip_prefix('~'), self.home()) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with(['/', '\\']) => {
                return format!("{home}{rest}");
            }
            _ => path,
        };
        if is_absolute(path) || cwd.is_empty() {
            path.to_owned()
        } else if self.is_windows && path.starts_with(['/', '\\']) {
            let drive: String = cwd.chars().take(2).collect();
            format!("{drive}{path}")
        } else {
            format!("{cwd}/{path}")
        }
    }

    /// The place of an absolute path, or one relative to the main root, in the workspace: `.` for the main root.
    /// `None` if the path leaves all roots.
    pub fn place(&mut self, path: &str) -> Option<String> {
        if path.len() > LONGEST {
            // No file has this name: `WorkspacePath` refuses it.
            return Some(path.to_owned());
        }
        if let Some(rest) = self.main().and_then(|main| self.plainly_below(path, main)) {
            return Some(rest.to_owned());
        }
        let parts = match self.parts(path) {
            Some(parts) => parts,
            // A home that is not known is in no root.
            None if is_absolute(path) || path == "~" || path.starts_with("~/") => return None,
            None => {
                let mut parts = self.main().cloned().unwrap_or_default();
                let depth = parts.len();
                for part in self.split(path) {
                    match part {
                        "" | "." => {}
                        ".." => {
                            parts.pop()?;
                        }
                        name => parts.push(name.to_owned()),
                    }
                }
                if self.roots.is_empty() {
                    return Some(joined(&parts[depth.min(parts.len())..]));
                }
                parts
            }
        };
        if let Some(main) = self.main()
            && self.is_within(&parts, main)
        {
            let place = joined(&parts[main.len()..]);
            return Some(self.spelt(place));
        }
        let is_inside = self.roots.iter().any(|root| self.is_within(&parts, root));
        if is_inside || self.is_scratch(&parts) || self.is_state(&parts) {
            return Some(self.spelt(format!("{OTHERS}/{}", joined(&parts))));
        }
        None
    }

    /// The first root, or a later one that contains it.
    fn main(&self) -> Option<&Vec<String>> {
        let first = self.roots.first()?;
        let around = self.roots.iter().filter(|root| self.is_within(first, root));
        around.min_by_key(|root| root.len())
    }

    /// The rest of a path below a root, if the path needs no change. Most do not.
    fn plainly_below<'a>(&self, path: &'a str, root: &[String]) -> Option<&'a str> {
        if self.is_windows || path.contains('\0') || path.starts_with("/private/") {
            return None;
        }
        let mut rest = path;
        for name in root {
            rest = rest.strip_prefix('/')?.strip_prefix(name.as_str())?;
        }
        let rest = rest.strip_prefix('/')?;
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        rest.split('/').all(is_plain).then_some(rest)
    }

    /// The user's home, if a root names it.
    fn home(&self) -> Option<String> {
        self.roots.iter().find_map(|root| match &root[..] {
            [home, user, ..] if home == "home" || home == "Users" => Some(format!("/{home}/{user}")),
            [first, ..] if first == "root" => Some("/root".to_owned()),
            [drive, users, user, ..] if users.eq_ignore_ascii_case("users") => Some(format!("{drive}:/{users}/{user}")),
            _ => None,
        })
    }

    /// The name of the user's home on Windows, if a root has it in full.
    fn windows_user(&self) -> Option<&str> {
        self.roots.iter().find_map(|root| match &root[..] {
            [_, users, user, ..] if users.eq_ignore_ascii_case("users") && !user.contains('~') => Some(user.as_str()),
            _ => None,
        })
    }

    fn is_scratch(&self, parts: &[String]) -> bool {
        if SCRATCH.iter().any(|dir| lies_in(dir, parts)) {
            return true;
        }
        let below_drive: Vec<String> = parts.iter().skip(1).map(|part| part.to_lowercase()).collect();
        self.is_windows && WINDOWS_SCRATCH.iter().any(|dir| lies_in(dir, &below_drive))
    }

    fn is_state(&self, parts: &[String]) -> bool {
        let Some(home) = self.home().and_then(|home| self.parts(&home)) else {
            return false;
        };
        let below = parts.get(home.len());
        self.is_within(parts, &home) && below.is_some_and(|name| STATE.contains(&name.as_str()))
    }

    fn is_within(&self, path: &[String], root: &[String]) -> bool {
        let same = |a: &String, b: &String| if self.is_windows { a.to_lowercase() == b.to_lowercase() } else { a == b };
        path.len() >= root.len() && path.iter().zip(root).all(|(a, b)| same(a, b))
    }

    fn split<'a>(&self, path: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let is_windows = self.is_windows || is_windows(path);
        path.split(move |c| c == '/' || is_windows && c == '\\')
    }

    /// The components of an absolute path, without `.` and `..`. A drive is a component of one letter.
    fn parts(&self, path: &str) -> Option<Vec<String>> {
        if !is_absolute(path) || path.contains('\0') {
            return None;
        }
        // `\\?\C:\a` is `C:\a`, and `\\?\UNC\host\a` is `\\host\a`.
        let path = path.strip_prefix(r"\\?\").or(path.strip_prefix(r"\\.\")).map_or(path, |rest| {
            let is_share = rest.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(r"UNC\"));
            if is_share { &rest[4..] } else { rest }
        });
        let mut parts: Vec<String> = Vec::new();
        for (at, part) in self.split(path).enumerate() {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                drive if at == 0 && is_windows(drive) => {
                    parts.push(drive[..1].to_lowercase());
                }
                name => parts.push(name.to_owned()),
            }
        }
        // macOS: `/tmp` and `/var` are links into `/private`.
        let is_private = parts.first().is_some_and(|first| first == "private");
        if is_private && parts.get(1).is_some_and(|next| next == "tmp" || next == "var") {
            parts.remove(0);
        }
        // Git Bash names drive C `/c`, WSL `/mnt/c`.
        if self.is_windows && path.starts_with('/') {
            let is_drive = |part: Option<&String>| {
                part.is_some_and(|part| part.len() == 1 && part.as_bytes()[0].is_ascii_alphabetic())
            };
            if parts.first().is_some_and(|first| first == "mnt") && is_drive(parts.get(1)) {
                parts.remove(0);
            }
            if is_drive(parts.first()) {
                parts[0] = parts[0].to_lowercase();
            }
        }
        if let [_, users, user, ..] = &mut parts[..]
            && users.eq_ignore_ascii_case("users")
            && let Some((start, _)) = user.split_once('~')
            && let Some(known) = self.windows_user().filter(|known| is_short_for(start, known))
        {
            *user = known.to_owned();
        }
        Some(parts)
    }

    /// On Windows, the first spelling of a path.
    fn spelt(&mut self, path: String) -> String {
        if !self.is_windows || path == "." {
            return path;
        }
        let mut spelt = String::new();
        for part in path.split('/') {
            if !spelt.is_empty() {
                spelt.push('/');
            }
            spelt.push_str(part);
            let known = self.spellings.entry(spelt.to_lowercase());
            spelt.clone_from(known.or_insert_with(|| spelt.clone()));
        }
        spelt
    }
}

/// Whether a path is in a directory, some of whose components can have any name.
fn lies_in(dir: &[&str], path: &[String]) -> bool {
    path.len() >= dir.len() && path.iter().zip(dir).all(|(part, name)| *name == "*" || part == name)
}

/// Whether a short name of Windows, such as `RUNNER~1`, can stand for a name: `start` is its part before `~`.
fn is_short_for(start: &str, name: &str) -> bool {
    let kept = name.chars().filter(|c| !matches!(c, ' ' | '.')).take(6);
    start.eq_ignore_ascii_case(&kept.collect::<String>())
}

fn joined(parts: &[String]) -> String {
    match parts {
        [] => ".".to_owned(),
        parts => parts.join("/"),
    }
}

/// The deepest directory that holds all absolute paths.
pub fn common_directory<'a>(paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let separators = ['/', '\\'];
    let mut common: Option<Vec<&str>> = None;
    for path in paths.filter(|path| is_absolute(path)) {
        let mut parts: Vec<&str> = path.split(separators).collect();
        parts.pop();
        common = Some(match common {
            None => parts,
            Some(known) => {
                let same = known.iter().zip(&parts).take_while(|(a, b)| a == b);
                let same = same.count();
                known.into_iter().take(same).collect()
            }
        });
    }
    let common = common?.join("/");
    (!common.is_empty()).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workloads::path::WorkspacePath;

    fn roots(dirs: &[&str]) -> Roots {
        let mut roots = Roots::default();
        for dir in dirs {
            roots.add(dir);
        }
        roots
    }

    #[test]
    fn the_temporary_directories_of_windows_are_scratch_space_and_short_names_mean_the_same_file() {
        let mut roots = roots(&[r"C:\Users\Ann Marie\proj"]);
        for path in [
            r"C:\Users\Ann Marie\AppData\Local\Temp\x\a.txt",
            r"c:\Users\ANNMAR~1\AppData\Local\Temp\x\a.txt",
            "/c/Users/ANNMAR~1/AppData/Local/Temp/x/a.txt",
        ] {
            let place = roots.place(path);
            assert_eq!(place.as_deref(), Some(".roots/c/Users/Ann Marie/AppData/Local/Temp/x/a.txt"), "{path}");
        }
        assert_eq!(roots.place(r"C:\Users\ANNMAR~1\proj\a.txt").as_deref(), Some("a.txt"));
        for (path, is_scratch) in [
            (r"C:\Users\BOBSMI~1\AppData\Local\Temp\a.txt", true),
            (r"D:\Temp\a.txt", true),
            (r"C:\WINDOWS\TEMP\a.txt", true),
            (r"C:\DOCUME~1\Ann\LOCALS~1\Temp\a.txt", true),
            (r"C:\Users\BOBSMI~1\a.txt", false),
            (r"C:\Users\Bob\AppData\Local\a.txt", false),
            (r"C:\Windows\a.txt", false),
        ] {
            assert_eq!(roots.place(path).is_some(), is_scratch, "{path}");
        }
        let mut posix = self::roots(&["/home/ann/p"]);
        assert_eq!(posix.place("/Users/x/AppData/Local/Temp/a.txt"), None);
    }

    #[test]
    fn files_elsewhere_are_a_root_only_if_no_tool_works_in_one() {
        let elsewhere = |paths: &[&str], path: &str| {
            let mut roots = roots(&["/workspace"]);
            roots.add_elsewhere(paths.iter().copied());
            roots.place(path)
        };
        let placed = Some(".roots/home/lib/a.c".to_owned());
        assert_eq!(elsewhere(&["/home/lib/a.c", "/home/b.c", "c.c"], "/home/lib/a.c"), placed);
        assert_eq!(elsewhere(&["/home/lib/a.c", "/workspace/b.c"], "/home/lib/a.c"), None);
        assert_eq!(elsewhere(&["/etc/ssh/a", "/etc/b"], "/etc/b"), None);
        assert_eq!(elsewhere(&["/home/a", "/srv/b"], "/srv/b"), None);
    }

    #[test]
    fn every_directory_that_a_session_names_is_a_root_of_the_workspace() {
        let mut top = roots(&["/"]);
        assert_eq!(top.place("/etc/a").unwrap(), "etc/a");
        let mut roots = roots(&["/home/u/p/sub", "/home/u/p", "/home/u/tree-2", "/", "/etc"]);
        for (path, expected) in [
            ("/home/u/p/sub/a.txt", Some("sub/a.txt")),
            ("/home/u/p", Some(".")),
            ("a.txt", Some("a.txt")),
            ("/home/u/p/x/../b", Some("b")),
            ("/home/u/tree-2/a", Some(".roots/home/u/tree-2/a")),
            ("/private/tmp/x/a", Some(".roots/tmp/x/a")),
            ("/tmp/x/a", Some(".roots/tmp/x/a")),
            ("/home/u/.claude/plans/a.md", Some(".roots/home/u/.claude/plans/a.md")),
            ("/home/u/other/a", None),
            ("/etc/passwd", None),
            ("~/x", None),
            ("/home/u/p/../../../../x", None),
            ("../tree-3/a", None),
        ] {
            assert_eq!(roots.place(path).as_deref(), expected, "{path}");
        }
        assert_eq!(roots.absolute("/w", "a"), "/w/a");
        assert_eq!(roots.absolute("/w", "~/a"), "/home/u/a");
    }

    #[test]
    fn a_windows_path_keeps_its_tree_in_any_spelling() {
        let mut roots = roots(&[r"C:\Users\Ann Lee\proj"]);
        for (path, expected) in [
            (r"C:\Users\Ann Lee\proj\src\A.txt", Some("src/A.txt")),
            (r"c:/users/ann lee\PROJ/SRC/a.TXT", Some("src/A.txt")),
            (r"\\?\C:\Users\Ann Lee\proj\b", Some("b")),
            ("/c/Users/Ann Lee/proj/src/c", Some("src/c")),
            (r"src\d", Some("src/d")),
            (r"C:\Users\Ann Lee\.claude\x", Some(".roots/c/Users/Ann Lee/.claude/x")),
            (r"D:\proj\x", None),
            (r"C:\Windows\x", None),
        ] {
            assert_eq!(roots.place(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_share_is_one_place_in_both_spellings() {
        let mut roots = roots(&[r"\\srv\share\p"]);
        for path in [r"\\srv\share\p\a", r"\\?\UNC\srv\share\p\a", r"\\?\unc\SRV\share\p\A", "//srv/share/p/a"] {
            assert_eq!(roots.place(path).as_deref(), Some("a"), "{path}");
        }
        assert_eq!(roots.place(r"\\other\share\p\a"), None);
    }

    proptest! {
        #[test]
        fn a_place_is_inside_the_workspace(
            dirs in prop::collection::vec("(/|C:\\\\|)[ab./\\\\]{0,8}", 0..4),
            path in "(/|/tmp/|c:/|~|)[ab.~/\\\\]{0,12}",
        ) {
            let dirs: Vec<&str> = dirs.iter().map(String::as_str).collect();
            let mut roots = roots(&dirs);
            if let Some(place) = roots.place(&path) {
                prop_assert!(WorkspacePath::new(place.clone()).is_ok(), "{place:?}");
            }
        }
    }
}
