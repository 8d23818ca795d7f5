//! Imports between the files and between the root modules of every crate: no circles.
//! Code of tests, edges between a file and the `mod.rs` files above it, and paths of macros are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{packages, top};

/// The names of a path, from the crate's root; that of the root's file is empty.
type ModulePath = Vec<String>;

/// The content of a file below the crate's `src`, if it exists.
type ReadFile<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Default)]
struct Module {
    tokens: Vec<String>,
    children: BTreeSet<String>,
    /// Absolute paths of this crate that the file names.
    paths: Vec<ModulePath>,
    /// The absolute paths of names that the file imports or exports again.
    imported: BTreeMap<String, ModulePath>,
}

/// The modules of a crate, without those of tests.
struct Crate(BTreeMap<ModulePath, Module>);

/// Identifiers, `::` and punctuation, without comments and texts.
fn tokens(source: &str) -> Vec<String> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let find = |from: usize, end: &str| {
        let end: Vec<char> = end.chars().collect();
        let mut starts = from..chars.len();
        starts.find(|start| chars[*start..].starts_with(&end))
    };
    let (mut tokens, mut index) = (Vec::new(), 0);
    while index < chars.len() {
        let hashes = chars[index + 1..].iter().take_while(|c| **c == '#');
        let hashes = hashes.count();
        let is_raw = at(index) == 'r' && at(index + 1 + hashes) == '"';
        index = match at(index) {
            '/' if at(index + 1) == '/' => find(index, "\n").unwrap_or(chars.len()),
            'r' if is_raw => {
                let end = format!("\"{}", "#".repeat(hashes));
                find(index + 2 + hashes, &end).unwrap_or(chars.len()) + end.len()
            }
            '"' => {
                let mut end = index + 1;
                while end < chars.len() && at(end) != '"' {
                    end += if at(end) == '\\' { 2 } else { 1 };
                }
                end + 1
            }
            '\'' if at(index + 1) == '\\' => find(index + 3, "'").map_or(chars.len(), |end| end + 1),
            '\'' if at(index + 2) == '\'' => index + 3,
            ':' if at(index + 1) == ':' => {
                tokens.push("::".to_owned());
                index + 2
            }
            first if first.is_alphanumeric() || first == '_' => {
                let word = chars[index..].iter();
                let word: String = word.take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                let end = index + word.chars().count();
                tokens.push(word);
                end
            }
            other => {
                if !other.is_whitespace() {
                    tokens.push(other.to_string());
                }
                index + 1
            }
        };
    }
    tokens
}

/// The index after the brackets that open at `start`.
fn after_brackets(tokens: &[String], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The tokens without items that are only built for tests.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let test = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if !tokens[at..].iter().take(test.len()).eq(test) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        while tokens[at] == "#" {
            at = after_brackets(tokens, at + 1);
        }
        let end = tokens[at..].iter().position(|token| token == ";" || token == "{");
        at += end.unwrap_or(tokens.len() - at - 1);
        at = after_brackets(tokens, at);
    }
    kept
}

/// The paths of a `use` tree, each with the name that it defines, and the index after it.
fn use_tree(tokens: &[String], mut at: usize, prefix: &[String]) -> (Vec<(ModulePath, String)>, usize) {
    let mut path = prefix.to_vec();
    if tokens[at] == "{" {
        let mut found = Vec::new();
        at += 1;
        while tokens[at] != "}" {
            let (below, after) = use_tree(tokens, at, prefix);
            found.extend(below);
            at = after + usize::from(tokens[after] == ",");
        }
        return (found, at + 1);
    }
    if tokens[at] != "self" || prefix.is_empty() {
        path.push(tokens[at].clone());
    }
    match tokens.get(at + 1).map(String::as_str) {
        Some("::") => use_tree(tokens, at + 2, &path),
        Some("as") => (vec![(path, tokens[at + 2].clone())], at + 3),
        _ => {
            let name = path.last().cloned().unwrap_or_default();
            (vec![(path, name)], at + 1)
        }
    }
}

impl Crate {
    fn read(root: &str, read: ReadFile<'_>) -> Self {
        let mut package = Self(BTreeMap::new());
        package.add(Vec::new(), root, read);
        let names: Vec<ModulePath> = package.0.keys().cloned().collect();
        for name in names {
            package.find_paths(&name);
        }
        package
    }

    fn add(&mut self, name: ModulePath, file: &str, read: ReadFile<'_>) {
        let text = read(file).unwrap_or_else(|| panic!("there is no {file}"));
        let tokens = without_tests(&tokens(&text));
        let modules = tokens.windows(3);
        let modules = modules.filter(|item| item[0] == "mod" && item[2] == ";");
        let children: BTreeSet<String> = modules.map(|item| item[1].clone()).collect();
        let dir = name.iter().map(|part| format!("{part}/"));
        let dir: String = dir.collect();
        for child in &children {
            let files = [format!("{dir}{child}.rs"), format!("{dir}{child}/mod.rs")];
            let file = files.iter().find(|file| read(file).is_some());
            let file = file.unwrap_or_else(|| panic!("no file of module {child} in {name:?}"));
            let path = [name.as_slice(), std::slice::from_ref(child)].concat();
            self.add(path, file, read);
        }
        let module = Module { tokens, children, ..Module::default() };
        self.0.insert(name, module);
    }

    /// A path that a module names, from the root; `None` if it leaves the crate.
    fn absolute(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let (mut base, mut rest) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" | "super" => {
                while let Some(("self" | "super", more)) =
                    rest.split_first().map(|(first, more)| (first.as_str(), more))
                {
                    if rest[0] == "super" {
                        base.pop();
                    }
                    rest = more;
                }
            }
            first if self.0[module].children.contains(first) => {}
            _ => return None,
        }
        Some([base.as_slice(), rest].concat())
    }

    fn find_paths(&mut self, name: &ModulePath) {
        let tokens = std::mem::take(&mut self.0.get_mut(name).unwrap().tokens);
        let (mut paths, mut imported, mut at) = (Vec::new(), BTreeMap::new(), 0);
        while at < tokens.len() {
            let is_use = tokens[at] == "use";
            let is_path = matches!(tokens[at].as_str(), "crate" | "super" | "self")
                && tokens.get(at + 1).is_some_and(|token| token == "::")
                && (at == 0 || tokens[at - 1] != "in");
            if !is_use && !is_path {
                at += 1;
                continue;
            }
            let (found, after) = use_tree(&tokens, at + usize::from(is_use), &[]);
            for (path, alias) in found {
                let Some(path) = self.absolute(name, &path) else {
                    continue;
                };
                if is_use {
                    imported.insert(alias, path.clone());
                }
                paths.push(path);
            }
            at = after;
        }
        let module = self.0.get_mut(name).unwrap();
        (module.paths, module.imported) = (paths, imported);
    }

    /// The module that defines what a path names; items that another file exports again are followed.
    fn definition(&self, path: &[String], followed: usize) -> ModulePath {
        let mut module = ModulePath::new();
        for (at, name) in path.iter().enumerate() {
            if self.0[&module].children.contains(name) {
                module.push(name.clone());
                continue;
            }
            return match self.0[&module].imported.get(name) {
                Some(target) if followed < 8 => {
                    let target = [target.as_slice(), &path[at + 1..]].concat();
                    self.definition(&target, followed + 1)
                }
                _ => module,
            };
        }
        module
    }

    /// The files that each file imports from, without the `mod.rs` files above it and the files below it.
    fn imports(&self) -> Graph {
        let files = self.0.iter().map(|(name, module)| {
            let targets = module.paths.iter().map(|path| self.definition(path, 0));
            let targets = targets.filter(|target| !target.starts_with(name) && !name.starts_with(target));
            let targets = targets.map(|target| target.join("::"));
            (name.join("::"), targets.collect())
        });
        files.collect()
    }

    /// The modules of the root that define what each module of the root names, with all that is below it.
    fn root_imports(&self) -> Graph {
        let mut graph = Graph::new();
        for (name, module) in self.0.iter().filter(|(name, _)| !name.is_empty()) {
            let imports = graph.entry(name[0].clone()).or_default();
            let named = module.paths.iter().map(|path| self.definition(path, 0));
            let named = named.filter_map(|path| path.into_iter().next());
            imports.extend(named.filter(|target| *target != name[0]));
        }
        graph
    }
}

/// What each node points to.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn reached<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

/// Sets of more than `most` nodes, each of which reaches all others of its set.
fn circles(graph: &Graph, most: usize) -> BTreeSet<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|node| (node.as_str(), reached(graph, node))).collect();
    let circles = reached.iter().map(|(node, targets)| {
        let back = targets.iter().filter(|target| {
            let targets = reached.get(*target);
            targets.is_some_and(|targets| targets.contains(node))
        });
        back.copied().collect::<BTreeSet<&str>>()
    });
    circles.filter(|circle| circle.len() > most).collect()
}

fn crate_at(root: &Path) -> Crate {
    let (src, name) = (root.parent().unwrap(), root.file_name().unwrap());
    Crate::read(name.to_str().unwrap(), &|file| std::fs::read_to_string(src.join(file)).ok())
}

/// The files with the roots of the workspace's libraries and binaries.
fn roots() -> Vec<PathBuf> {
    let packages = packages();
    let ours = packages.iter().filter(|package| package["source"].is_null());
    let targets = ours.flat_map(|package| package["targets"].as_array().unwrap());
    let built = targets.filter(|target| target["kind"][0] == "lib" || target["kind"][0] == "bin");
    built.map(|target| PathBuf::from(target["src_path"].as_str().unwrap())).collect()
}

#[test]
fn files_do_not_import_each_other_in_circles_of_more_than_two() {
    let crates: Vec<(PathBuf, Crate)> = roots().into_iter().map(|root| (root.clone(), crate_at(&root))).collect();
    for (root, package) in &crates {
        let imports = package.imports();
        let found = circles(&imports, 2);
        assert!(found.is_empty(), "{}: {found:#?}", root.display());
    }
    for src in ["backends/sqlite/src/lib.rs", "harness/src/lib.rs"] {
        let read = crates.iter().find(|(root, _)| *root == top().join(src));
        let files = read.map_or(0, |(_, package)| package.0.len());
        assert!(files > 40, "{src}: {files} modules were found");
    }
}

#[test]
fn modules_at_the_root_of_a_crate_do_not_import_each_other_in_circles() {
    let mut seen = 0;
    for root in roots() {
        let imports = crate_at(&root).root_imports();
        seen += imports.len();
        let found = circles(&imports, 1);
        assert!(found.is_empty(), "{}: {found:#?}", root.display());
    }
    assert!(seen > 100, "only {seen} modules were found");
}

#[test]
fn a_circle_is_found_through_a_name_that_is_exported_again() {
    let files = BTreeMap::from([
        ("lib.rs", "mod pages;"),
        ("pages/mod.rs", "mod a; mod b; mod c; pub use c::{Report as Input, write};"),
        ("pages/a.rs", "use super::{Input, b}; // use super::no;"),
        (
            "pages/b.rs",
            "fn f() { \"//\"; crate::pages::c::write(); }\n#[cfg(test)]\nmod tests { use super::super::a; }",
        ),
        ("pages/c.rs", "use super::a::x;"),
    ]);
    let of = |files: &BTreeMap<&str, &str>| {
        let read = |file: &str| files.get(file).map(|text| (*text).to_owned());
        Crate::read("lib.rs", &read).imports()
    };
    let found = of(&files);
    assert_eq!(circles(&found, 2), BTreeSet::from([BTreeSet::from(["pages::a", "pages::b", "pages::c"])]));
    let mut without = files;
    without.insert("pages/c.rs", "use std::a::x;");
    assert!(circles(&of(&without), 1).is_empty());
}
