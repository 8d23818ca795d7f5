//! What a TOML file says about a backend of others.

use std::path::Path;

use inputs::{InputError, parse_toml};
use serde::Deserialize;

use super::command::NAMES;
use crate::backend::Unavailable;

/// A backend without code. Commands are argument lists, never given to a shell; `{name}` in them is a
/// variable: `site`, `mount`, `data`, `id`, `port`, and from the environment `directory`
/// (`CTXBENCH_DIRECTORY`), `s3_endpoint`, `s3_bucket`, `s3_region` (`CTXBENCH_S3_…`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its name on the command line and in results.
    pub name: String,
    /// What it is, in one sentence.
    pub summary: String,
    /// What survives a killed daemon and power loss, as its makers say.
    pub durability: String,
    /// Whether what it holds is still there after it has been unmounted and mounted.
    pub persistent: bool,
    /// Processes that must run beside the agent for its files to be there.
    pub daemons: u32,
    /// What must be on the machine.
    #[serde(default)]
    pub need: Vec<Requirement>,
    /// Prints its version.
    pub version: Vec<String>,
    /// Run once, in order, before the first mount of a workspace.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Mounts on `{mount}`.
    pub mount: Vec<String>,
    /// The mounting program stays and serves the files, rather than ending when they are there.
    #[serde(default)]
    pub stays: bool,
    /// Succeeds once the mount can be used; unless given, being a mount point is enough.
    #[serde(default)]
    pub ready: Vec<String>,
    /// The directory that the agent works in, if not `{mount}` itself.
    pub root: Option<String>,
    /// Empties its own caches; the kernel's are emptied in any case.
    #[serde(default)]
    pub drop_caches: Vec<String>,
    /// Unmounts; unless given, the mount is detached.
    #[serde(default)]
    pub unmount: Vec<String>,
    /// Run in order when the workspace is done with.
    #[serde(default)]
    pub teardown: Vec<Vec<String>>,
}

/// Something that must be on the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// A program, `root`, or an environment variable that must be set, written `$NAME`.
    pub name: String,
    /// Why it is needed.
    pub why: String,
    /// How to get it.
    pub fix: String,
}

impl Definition {
    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let definition: Self = parse_toml(file, text)?;
        definition.check(file)?;
        Ok(definition)
    }

    fn check(&self, file: &Path) -> Result<(), InputError> {
        let is_name = !self.name.is_empty()
            && self
                .name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !is_name {
            let message = format!(
                "field `name`: {:?} is not made of lower-case letters, digits and `-`",
                self.name
            );
            return Err(InputError::whole(file, message));
        }
        for (field, command) in [("version", &self.version), ("mount", &self.mount)] {
            if command.is_empty() {
                let message = format!("field `{field}`: an empty command");
                return Err(InputError::whole(file, message));
            }
        }
        let commands = [
            &self.version,
            &self.mount,
            &self.ready,
            &self.drop_caches,
            &self.unmount,
        ];
        let arguments = commands
            .into_iter()
            .chain(&self.setup)
            .chain(&self.teardown)
            .flatten()
            .chain(&self.root);
        for argument in arguments {
            if let Some(unknown) = unknown_variable(argument) {
                let message = format!(
                    "{argument:?}: there is no variable `{unknown}`; known are {}",
                    NAMES.join(", ")
                );
                return Err(InputError::whole(file, message));
            }
        }
        Ok(())
    }

    /// How to get what it needs.
    pub(super) fn fix(&self) -> String {
        let fixes: Vec<&str> = self.need.iter().map(|need| need.fix.as_str()).collect();
        fixes.join("; ")
    }
}

impl Requirement {
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        let reason = if let Some(variable) = self.name.strip_prefix('$') {
            let is_set = std::env::var_os(variable).is_some_and(|value| !value.is_empty());
            (!is_set).then(|| format!("{variable} is not set"))
        } else if self.name == "root" {
            (!rustix::process::geteuid().is_root()).then(|| "it needs root".to_owned())
        } else {
            (!is_on_path(&self.name)).then(|| format!("{} is not installed", self.name))
        };
        match reason {
            None => Ok(()),
            Some(reason) => Err(Unavailable {
                reason,
                fix: self.fix.clone(),
            }),
        }
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The first `{word}` in a text that is no variable.
fn unknown_variable(text: &str) -> Option<&str> {
    let parts = text.split('{').skip(1);
    parts
        .filter_map(|part| part.split_once('}'))
        .map(|(name, _)| name)
        .find(|name| !NAMES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
name = "bind"
summary = "s"
durability = "d"
persistent = true
daemons = 0
version = ["mount", "--version"]
mount = ["mount", "--bind", "{data}", "{mount}"]
"#;

    fn error(text: &str) -> String {
        Definition::parse(Path::new("x.toml"), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_definition_is_read_and_what_is_wrong_is_named() {
        let whole = Definition::parse(Path::new("x.toml"), WHOLE).unwrap();
        assert_eq!(whole.mount.len(), 4);
        assert_eq!(
            error(&WHOLE.replace("persistent", "persistant")),
            "x.toml:5: unknown field `persistant`, expected one of `name`, `summary`, `durability`, `persistent`, `daemons`, `need`, `version`, `setup`, `mount`, `stays`, `ready`, `root`, `drop_caches`, `unmount`, `teardown`"
        );
        assert!(error(&WHOLE.replace("{data}", "{date}")).contains("there is no variable `date`"));
        assert!(error(&WHOLE.replace("\"bind\"", "\"Bind it\"")).contains("field `name`"));
        assert!(
            error(&WHOLE.replace("[\"mount\", \"--version\"]", "[]")).contains("field `version`")
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_way_to_get_it() {
        let need = |name: &str| Requirement {
            name: name.to_owned(),
            why: "w".to_owned(),
            fix: "get it".to_owned(),
        };
        assert!(need("sh").check().is_ok());
        let missing = need("no-such-program").check().unwrap_err();
        assert_eq!(missing.reason, "no-such-program is not installed");
        assert_eq!(missing.fix, "get it");
        let unset = need("$CTXBENCH_NOT_SET").check().unwrap_err();
        assert_eq!(unset.reason, "CTXBENCH_NOT_SET is not set");
    }
}
