//! Real programs on a generated source tree: each step runs one program in the workspace, without a shell.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use super::check_range;
use crate::path::WorkspacePath;
use crate::script::{Bytes, CallKind, FileOp, ProgramRun, Script};

/// A source tree, and the programs that run on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The Debian package of each program that has to be installed. A key with arguments is a command that has to
    /// exit with status 0.
    pub(crate) needs: BTreeMap<String, String>,
    tree: Tree,
    /// Steps that complete the initial files, before the caches are brought into a state.
    #[serde(default)]
    setup: Vec<Step>,
    step: Vec<Step>,
}

/// A tree of text files: `<directory>/d<00..>/f<0000..>.<extension>`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    directory: String,
    directories: u32,
    files: u32,
    /// The mean length of a file; each is between half and one and a half times as long.
    bytes: u32,
    extension: String,
    seed: u64,
}

/// One program with its arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    run: Vec<String>,
    /// The directory that it runs in; the root of the workspace by default.
    #[serde(default)]
    directory: Option<String>,
    /// The kind of the timed call; without one the step is not timed.
    #[serde(default)]
    kind: Option<CallKind>,
    /// Its whole standard output; not checked if missing.
    #[serde(default)]
    output: Option<String>,
    /// Trees that it copies: from, to.
    #[serde(default)]
    copies: Vec<(String, String)>,
    /// Trees that it removes.
    #[serde(default)]
    removes: Vec<String>,
    /// Files and directories of its own making, whose content is not compared.
    #[serde(default)]
    makes: Vec<String>,
}

/// The text that the last file of a tree, and no other, contains.
pub const NEEDLE: &str = "the needle in the haystack";

impl Tree {
    fn files(&self) -> Result<Vec<(WorkspacePath, Bytes)>, String> {
        for (field, value, most) in
            [("directories", self.directories, 100), ("files", self.files, 10_000), ("bytes", self.bytes, 1 << 20)]
        {
            check_range(&format!("program.tree.{field}"), &value, 1..=most)?;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let files = (0..self.files).map(|at| {
            let (dir, name) = (at % self.directories, &self.directory);
            let path = format!("{name}/d{dir:02}/f{at:04}.{}", self.extension);
            let length = rng.random_range(self.bytes / 2..=self.bytes + self.bytes / 2) as usize;
            let mut text = String::with_capacity(length + 80);
            if at + 1 == self.files {
                text = format!("# {NEEDLE}\n");
            }
            while text.len() < length {
                // A comment in most languages, so that a file can be a module, too.
                text.push_str(&format!("# {:016x} {:016x}\n", rng.random::<u64>(), at));
            }
            Ok((super::path(path)?, Bytes::from(text.into_bytes())))
        });
        files.collect()
    }
}

impl Program {
    pub(crate) fn script(&self) -> Result<Script, String> {
        let mut script = Script::new(self.tree.files()?);
        for step in &self.setup {
            if step.kind.is_some() || !step.copies.is_empty() || !step.removes.is_empty() {
                return Err("field `program.setup`: has no `kind`, `copies` or `removes`".to_owned());
            }
            script.setup.push(self.run(step)?);
        }
        if !script.setup.is_empty() {
            // Listings show files that the programs have made, which the model does not know.
            script.warm_up.retain(|op| !matches!(op, FileOp::List { .. }));
        }
        for step in &self.step {
            let run = FileOp::Run(Box::new(self.run(step)?));
            match step.kind {
                Some(kind) => script.call(kind, vec![run]),
                None => script.meanwhile(vec![run]),
            }
        }
        if script.calls.iter().any(|call| call.kind.is_some()) {
            Ok(script)
        } else {
            Err("field `program.step`: no step has a `kind`: nothing is timed".to_owned())
        }
    }

    fn run(&self, step: &Step) -> Result<ProgramRun, String> {
        let path = |field: &str, path: &str| {
            WorkspacePath::new(path).map_err(|error| format!("field `program.step.{field}`: {error}"))
        };
        let paths = |field: &str, all: &[String]| {
            let all = all.iter().map(|one| path(field, one));
            all.collect::<Result<Vec<_>, String>>()
        };
        let Some(program) = step.run.first() else {
            return Err("field `program.step.run`: names no program".to_owned());
        };
        if !self.needs.contains_key(program) {
            return Err(format!("field `program.needs`: lacks the package of {program}"));
        }
        let copies = step.copies.iter();
        let copies = copies.map(|(from, to)| Ok((path("copies", from)?, path("copies", to)?)));
        Ok(ProgramRun {
            directory: path("directory", step.directory.as_deref().unwrap_or("."))?,
            command: step.run.clone(),
            output: step.output.clone(),
            copies: copies.collect::<Result<_, String>>()?,
            removes: paths("removes", &step.removes)?,
            makes: paths("makes", &step.makes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Result<Script, String> {
        let tree = "needs = { ls = 'coreutils' }\n[tree]\ndirectory = 'src'\ndirectories = 2\nfiles = 3\nbytes = 100\nextension = 'txt'\nseed = 1\n";
        let program: Program = toml::from_str(&format!("{tree}{text}")).map_err(|e| e.to_string())?;
        program.script()
    }

    #[test]
    fn a_tree_is_the_same_every_time_and_only_its_last_file_has_the_needle() {
        let make = || program("[[step]]\nrun = ['ls']\nkind = 'find'").unwrap();
        let script = make();
        assert_eq!(script, make());
        let names = script.files.iter().map(|(path, _)| path.as_str());
        let names: Vec<_> = names.collect();
        let expected = "src/d00/f0000.txt src/d01/f0001.txt src/d00/f0002.txt";
        assert_eq!(names.join(" "), expected);
        let has_needle = script.files.iter().map(|(_, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            assert!((50..=230).contains(&bytes.len()), "{}", bytes.len());
            text.contains(NEEDLE)
        });
        assert_eq!(has_needle.collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_step_that_cannot_be_run_or_timed_is_refused_by_its_field() {
        let find = "run = ['ls']\nkind = 'find'";
        let timed_setup = format!("{find}\n[[setup]]\n{find}");
        for (step, field) in [
            ("run = []\nkind = 'find'", "program.step.run"),
            ("run = ['git']\nkind = 'find'", "program.needs"),
            ("run = ['ls']", "program.step`: no step has a `kind`"),
            (&format!("{find}\nremoves = ['../x']"), "step.removes"),
            (&format!("{find}\nshell = true"), "shell"),
            (&timed_setup, "program.setup"),
        ] {
            let error = program(&format!("[[step]]\n{step}")).unwrap_err();
            assert!(error.contains(field), "{step}: {error}");
        }
    }

    #[test]
    fn the_model_knows_that_setup_programs_have_made_files() {
        use crate::model::ReferenceModel;
        let setup = "[[setup]]\nrun = ['ls']\nmakes = ['src/made']\n[[step]]\nrun = ['ls']\nkind = 'find'";
        let script = program(setup).unwrap();
        assert_eq!((script.setup.len(), script.calls.len()), (1, 1));
        assert!(ReferenceModel::of(&script).has_opaque());
        let lists = |op: &FileOp| matches!(op, FileOp::List { .. });
        assert!(!script.warm_up.iter().any(lists), "a listing would be compared");
    }
}
