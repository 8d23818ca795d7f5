//! The TOML format of a third-party backend, and its checks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use inputs::{InputError, parse_toml};
use serde::Deserialize;

use super::command::search_path;
use super::server::IN_NAME;
use super::shipped_text;
use super::variables::{DIRECTORY, OF_FIRST, OF_PROPERTY, OF_SERVER, OF_SITE, SECRET, named};
use crate::backend::Unavailable;
use crate::services::s3::DistantServer;

/// A third-party backend. Commands are argument lists, never passed to a shell.
///
/// `{name}` in a command is a variable:
/// - of the workspace: `site`, `mount`, `data`, `id`, `port`, `port_2` to `port_6`;
/// - of the environment: `directory` (`CTXBENCH_DIRECTORY`);
/// - of the first of two hosts: `first_data`, `first_port`, `first_port_2` to `first_port_6`;
/// - of the S3 server, which a use starts: `s3_server`, `s3_endpoint`, `s3_bucket`, `s3_region`,
///   `s3_prefix`; in the environment and in files also `s3_access_key` and `s3_secret_key`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalDefinition {
    /// The name on the command line and in results; ends with `-{s3_server}` if it uses the S3 server.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// One sentence for help texts and reports.
    pub summary: String,
    /// Its durability after a killed daemon and after power loss, according to its documentation.
    pub durability: String,
    /// Whether files survive an unmount and a mount.
    pub persistent: bool,
    /// Whether a second host can mount the same files with the same definition.
    ///
    /// It has its own `site`, `mount`, `data` and ports, and runs no `services`, `setup` and `teardown`.
    #[serde(default)]
    pub second_host: bool,
    /// Processes that must run, besides the agent, while its files are in use. That it is 0 is tested: without a daemon, no kill
    /// can lose a record.
    pub daemons: u32,
    /// Requirements of the machine.
    #[serde(default)]
    pub need: Vec<Requirement>,
    /// Command that prints its version, if it has one.
    #[serde(default)]
    pub version: Vec<String>,
    /// Variables added to the environment of every command but `version`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Files with mode 600, written before any command runs.
    #[serde(default)]
    pub file: Vec<PrivateFile>,
    /// Programs that run as long as the workspace: started before `setup`, killed after `teardown`.
    #[serde(default)]
    pub services: Vec<Vec<String>>,
    /// Programs that run as long as the workspace: started after `setup`, each once the one before is ready.
    #[serde(default)]
    pub service: Vec<Service>,
    /// Commands that run once, in order, before the first mount of a workspace.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Command that mounts on `{mount}`.
    pub mount: Vec<String>,
    /// Whether the `mount` program stays in the foreground and serves the files.
    #[serde(default)]
    pub stays: bool,
    /// Command that succeeds once the mount is usable; by default, `{mount}` has to be a mount point.
    #[serde(default)]
    pub ready: Vec<String>,
    /// The agent's working directory, if not `{mount}` itself.
    pub root: Option<String>,
    /// Command that empties its own caches; the harness empties the kernel's.
    #[serde(default)]
    pub drop_caches: Vec<String>,
    /// Command that prints its daemon's counters since its start, one name and number per line.
    #[serde(default)]
    pub counters: Vec<String>,
    /// Command that unmounts; by default, the mount is detached.
    #[serde(default)]
    pub unmount: Vec<String>,
    /// Commands that run in order when the workspace closes.
    #[serde(default)]
    pub teardown: Vec<Vec<String>>,
    /// What it offers besides files. A run tries each.
    #[serde(default)]
    pub properties: Properties,
}

/// What a file system offers besides files. Absent: it is not offered.
///
/// More variables of these commands: `file`, `from` and `to`, relative to the agent's directory; `snapshot`, `version`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Properties {
    /// The files and directories below `{site}` or `{data}` that are its whole state after an unmount. They need not all
    /// exist.
    pub state: Vec<String>,
    /// Command that saves the state of this moment: at the path `{snapshot}`, or under a name that is the last word of
    /// what it prints, and `{snapshot}` from then on.
    pub snapshot: Vec<String>,
    /// Command that prints `{file}` as it was at `{snapshot}`.
    pub read_snapshot: Vec<String>,
    /// Command that prints the names of the files that changed since `{snapshot}`.
    pub diff: Vec<String>,
    /// Command that prints the names of all kept versions of `{file}`, each as the first word of a line.
    pub versions: Vec<String>,
    /// Command that prints `{file}` as of `{version}`.
    pub read_version: Vec<String>,
    /// Command that makes an independent, writable copy of the directory `{from}` at `{to}`.
    pub fork: Vec<String>,
}

impl Properties {
    /// The commands with their field, and the variables of properties that each has.
    fn commands(&self) -> [(&'static str, &Vec<String>, &'static [&'static str]); 6] {
        [
            ("snapshot", &self.snapshot, &["snapshot"]),
            ("read_snapshot", &self.read_snapshot, &["snapshot", "file"]),
            ("diff", &self.diff, &["snapshot"]),
            ("versions", &self.versions, &["file"]),
            ("read_version", &self.read_version, &["version", "file"]),
            ("fork", &self.fork, &["from", "to"]),
        ]
    }

    fn check(&self) -> Result<(), String> {
        for path in &self.state {
            let is_data = path == "{data}";
            if !is_data && !is_own_path(path) {
                return Err(format!("`properties.state`: {path:?} is not below {{site}} or {{data}}"));
            }
        }
        let needs = |field: &str, command: &[String], other: &str, needed: &[String]| {
            if command.is_empty() || !needed.is_empty() {
                Ok(())
            } else {
                Err(format!("`properties.{field}` needs `properties.{other}`"))
            }
        };
        let (save, read) = (&self.snapshot, &self.read_snapshot);
        needs("snapshot", save, "read_snapshot", read)?;
        needs("read_snapshot", read, "snapshot", save)?;
        needs("diff", &self.diff, "snapshot", save)?;
        let (list, read) = (&self.versions, &self.read_version);
        needs("versions", list, "read_version", read)?;
        needs("read_version", read, "versions", list)
    }
}

/// Whether a path is below the workspace's directories.
fn is_own_path(path: &str) -> bool {
    let is_below = path.starts_with("{site}/") || path.starts_with("{data}/");
    is_below && !path.split('/').any(|part| part == "..")
}

/// A private file of a workspace, such as a password file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateFile {
    /// Its path, below `{site}` or `{data}`.
    pub path: String,
    /// Its text, in which variables are replaced. Empty for a file that `shipped` names.
    #[serde(default)]
    pub content: String,
    /// Instead of `content`: a file that ships with this program, copied as it is, such as `python/passthrough.py`.
    pub shipped: Option<String>,
}

/// A program that a mount needs, and how it is seen to be ready.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The program, in the foreground.
    pub run: Vec<String>,
    /// Command that succeeds once the program can be used; it is repeated until then.
    pub ready: Vec<String>,
}

/// A requirement of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// A program, `root`, or an environment variable that must be set, written `$NAME`.
    pub name: String,
    /// The reason why the backend needs it.
    pub why: String,
    /// How to install or set it.
    pub fix: String,
}

impl ExternalDefinition {
    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let definition: Self = parse_toml(file, text)?;
        definition.check(file).map_err(|error| {
            // The mistake is in the first line that has the quoted text.
            let quoted = error.message.split('"').nth(1).filter(|text| !text.is_empty());
            let line = quoted.and_then(|quoted| text.lines().position(|line| line.contains(quoted)));
            InputError { line: error.line.or(line.map(|at| at + 1)), ..error }
        })?;
        Ok(definition)
    }

    fn check(&self, file: &Path) -> Result<(), InputError> {
        let wrong = |message: String| Err(InputError::whole(file, message));
        let stem = self.stem();
        let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if stem.is_empty() || !stem.bytes().all(is_of_name) {
            return wrong(format!(
                "field `name`: {:?} must consist of lower-case letters, digits and `-`, with an optional `{IN_NAME}` at its end",
                self.name
            ));
        }
        if self.mount.is_empty() {
            return wrong("field `mount`: the command is empty".to_owned());
        }
        for service in &self.service {
            for (field, command) in [("run", &service.run), ("ready", &service.ready)] {
                if command.is_empty() {
                    return wrong(format!("field `service.{field}`: the command is empty"));
                }
            }
        }
        let of_processes =
            [("stays", self.stays), ("services", !self.services.is_empty()), ("service", !self.service.is_empty())];
        let contradicts = of_processes.iter().find(|(_, has_one)| self.daemons == 0 && *has_one);
        if let Some((field, _)) = contradicts {
            return wrong(format!(
                "field `daemons`: 0, but `{field}` runs a process while the files are in use: state how many run"
            ));
        }
        let of_environment = [DIRECTORY];
        let in_commands = [&of_environment, OF_SITE, OF_FIRST, OF_SERVER].concat();
        let anywhere = [in_commands.as_slice(), SECRET].concat();
        let in_properties = [in_commands.as_slice(), OF_PROPERTY].concat();
        for (texts, known) in [
            (self.version.iter().collect(), of_environment.as_slice()),
            (self.commands(), &in_commands),
            (self.private_texts(), &anywhere),
            (self.property_texts(), &in_properties),
        ] {
            for text in texts {
                let Some(unknown) = named(text).find(|name| !known.contains(name)) else {
                    continue;
                };
                return wrong(if SECRET.contains(&unknown) {
                    format!(
                        "{text:?}: every user can read a command's arguments: pass `{unknown}` by [environment] or a [[file]]"
                    )
                } else {
                    let known = inputs::names::alternatives(unknown, known.iter().copied());
                    format!("{text:?}: unknown variable `{unknown}`; {known}")
                });
            }
        }
        for (field, command, own) in self.properties.commands() {
            for text in command {
                let names = &mut named(text).filter(|name| OF_PROPERTY.contains(name));
                if let Some(unknown) = names.find(|name| !own.contains(name)) {
                    return wrong(format!(
                        "field `properties.{field}`: {text:?}: it has no variable `{unknown}`, but {}",
                        own.join(", ")
                    ));
                }
            }
        }
        if let Err(message) = self.properties.check() {
            return wrong(format!("field {message}"));
        }
        for file in &self.file {
            if let Err(message) = file.check() {
                return wrong(format!("file {:?}: {message}", file.path));
            }
        }
        let texts = self.commands().into_iter().chain(self.private_texts());
        let mut texts = texts.chain(self.property_texts());
        let uses_server = texts.any(|text| named(text).any(|name| name.starts_with("s3_")));
        match (uses_server, self.name.ends_with(IN_NAME)) {
            (true, false) => wrong(format!(
                "field `name`: {:?} does not end with `{IN_NAME}`, but the S3 server is used: add it, so that figures name their server",
                self.name
            )),
            (false, true) => wrong(format!("field `name`: {:?} names the S3 server, but nothing uses it", self.name)),
            _ => Ok(()),
        }
    }

    /// The arguments of all commands but `version`.
    fn commands(&self) -> Vec<&String> {
        let single = [&self.mount, &self.ready, &self.drop_caches, &self.counters, &self.unmount];
        let several = [&self.services, &self.setup, &self.teardown];
        let services = self.service.iter();
        let services = services.flat_map(|service| [&service.run, &service.ready]);
        let several = several.into_iter().flatten().chain(services);
        let arguments = single.into_iter().chain(several).flatten();
        arguments.chain(&self.root).collect()
    }

    /// Texts that only the workspace's programs can see, unlike command arguments.
    fn private_texts(&self) -> Vec<&String> {
        let files = self.file.iter();
        let files = files.flat_map(|file| [&file.path, &file.content]);
        self.environment.values().chain(files).collect()
    }

    /// The paths and arguments of its properties.
    fn property_texts(&self) -> Vec<&String> {
        let commands = self.properties.commands();
        let arguments = commands.into_iter().flat_map(|(_, command, _)| command);
        self.properties.state.iter().chain(arguments).collect()
    }

    /// The definition for a second host: the first host starts and ends the services.
    pub(super) fn of_second_host(&self) -> Self {
        Self { services: Vec::new(), service: Vec::new(), setup: Vec::new(), teardown: Vec::new(), ..self.clone() }
    }

    /// Its name without the server's name.
    pub(super) fn stem(&self) -> &str {
        self.name.strip_suffix(IN_NAME).unwrap_or(&self.name)
    }

    /// Its name with the server's name.
    pub(super) fn name_with(&self, server: Option<DistantServer>) -> String {
        let server = server.map_or(String::new(), DistantServer::suffix);
        format!("{}{server}", self.stem())
    }

    /// The server for a name that ends with none.
    pub(super) fn default_server(&self) -> Option<DistantServer> {
        self.name.ends_with(IN_NAME).then(DistantServer::default_here)
    }

    /// The server that `name` selects, if `name` is a name of this definition.
    pub(super) fn answers_to(&self, name: &str) -> Option<Option<DistantServer>> {
        let suffix = name.strip_prefix(self.stem())?;
        if self.name.ends_with(IN_NAME) {
            Some(Some(DistantServer::of_suffix(suffix)?))
        } else {
            suffix.is_empty().then_some(None)
        }
    }
}

impl ExternalDefinition {
    /// Checks that the programs of all commands exist, before anything is made.
    pub(super) fn check_programs(&self) -> Result<(), Unavailable> {
        let path = match self.environment.get("PATH") {
            Some(own) if named(own).next().is_none() => own.into(),
            // A path that a workspace decides is known once there is one.
            Some(_) => return Ok(()),
            None => search_path(),
        };
        let fields = [
            ("version", &self.version),
            ("mount", &self.mount),
            ("ready", &self.ready),
            ("drop_caches", &self.drop_caches),
            ("counters", &self.counters),
            ("unmount", &self.unmount),
        ];
        let several = [("services", &self.services), ("setup", &self.setup), ("teardown", &self.teardown)];
        let several =
            several.into_iter().flat_map(|(field, commands)| commands.iter().map(move |command| (field, command)));
        let services =
            self.service.iter().flat_map(|service| [("service.run", &service.run), ("service.ready", &service.ready)]);
        for (field, command) in fields.into_iter().chain(several).chain(services) {
            let Some(program) = command.first() else {
                continue;
            };
            if named(program).next().is_some() || has_program(&path, program) {
                continue;
            }
            let near = if program.contains('/') { String::new() } else { near_programs(&path, program) };
            let needed = self.need.iter().find(|need| need.name == *program);
            return Err(Unavailable {
                reason: format!("`{field}` names the program {program:?}, which is not installed{near}"),
                fix: needed.map_or_else(|| format!("install it, or correct `{field}`"), |need| need.fix.clone()),
            });
        }
        Ok(())
    }
}

fn has_program(path: &OsStr, program: &str) -> bool {
    if program.contains('/') {
        Path::new(program).is_file()
    } else {
        std::env::split_paths(path).any(|dir| dir.join(program).is_file())
    }
}

/// The installed programs whose names are most like `program`, in words.
fn near_programs(path: &OsStr, program: &str) -> String {
    let dirs = std::env::split_paths(path).filter_map(|dir| std::fs::read_dir(dir).ok());
    let files = dirs.flat_map(|entries| entries.flatten());
    let names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = inputs::names::nearest(program, names.iter().map(String::as_str));
    if near.is_empty() { String::new() } else { format!(" (the nearest installed are {})", near.join(", ")) }
}

impl PrivateFile {
    fn check(&self) -> Result<(), String> {
        if !is_own_path(&self.path) {
            return Err("not below {site} or {data}".to_owned());
        }
        match &self.shipped {
            Some(_) if !self.content.is_empty() => Err("`content` and `shipped` cannot be used together".to_owned()),
            Some(shipped) if shipped_text(shipped).is_none() => {
                Err(format!("no file {shipped:?} ships with this program"))
            }
            _ => Ok(()),
        }
    }
}

impl Requirement {
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        let reason = if let Some(variable) = self.name.strip_prefix('$') {
            let value = inputs::variable(variable);
            value.is_none().then(|| format!("{variable} is not set"))
        } else if self.name == "root" {
            (!rustix::process::geteuid().is_root()).then(|| "it needs root".to_owned())
        } else {
            (!is_on_path(&self.name)).then(|| format!("{} is not installed", self.name))
        };
        let fix = self.fix.clone();
        reason.map_or(Ok(()), |reason| Err(Unavailable { reason, fix }))
    }
}

fn is_on_path(program: &str) -> bool {
    has_program(&search_path(), program)
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
        ExternalDefinition::parse(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_definition_is_read_and_what_is_wrong_is_named() {
        let whole = ExternalDefinition::parse(Path::new("x.toml"), WHOLE).unwrap();
        assert_eq!(whole.mount.len(), 4);
        assert_eq!(
            error(&WHOLE.replace("persistent", "persistant")),
            "x.toml:5: unknown field `persistant`, expected one of `name`, `summary`, `durability`, `persistent`, `second_host`, `daemons`, `need`, `version`, `environment`, `file`, `services`, `service`, `setup`, `mount`, `stays`, `ready`, `root`, `drop_caches`, `counters`, `unmount`, `teardown`, `properties`"
        );
        assert!(error(&WHOLE.replace("{data}", "{date}")).contains("unknown variable `date`"));
        assert!(error(&WHOLE.replace("\"bind\"", "\"Bind it\"")).contains("field `name`"));
        let mistake = error(&WHOLE.replace("{data}", "{date}"));
        assert!(mistake.starts_with("x.toml:8: "), "{mistake}");
        for process in
            ["stays = true", "services = [[\"sleep\", \"9\"]]", "[[service]]\nrun = [\"a\"]\nready = [\"b\"]"]
        {
            let mistake = error(&format!("{WHOLE}{process}\n"));
            assert!(mistake.contains("field `daemons`: 0, but `s"), "{mistake}");
        }
        let unversioned = WHOLE.replace("version = [\"mount\", \"--version\"]\n", "");
        assert!(ExternalDefinition::parse(Path::new("x.toml"), &unversioned).is_ok());
        let service = format!("{WHOLE}[[service]]\nrun = ['a']\nready = []\n");
        assert!(error(&service).contains("field `service.ready`: the command is empty"));
    }

    #[test]
    fn a_misspelt_program_is_found_before_anything_is_made() {
        let definition = |mount: &str| {
            let text = WHOLE.replace("mount = [\"mount\"", &format!("mount = [\"{mount}\""));
            ExternalDefinition::parse(Path::new("x.toml"), &text).unwrap()
        };
        assert!(definition("mount").check_programs().is_ok());
        assert!(definition("{site}/mine").check_programs().is_ok());
        let missing = definition("moumt").check_programs().unwrap_err().reason;
        assert!(missing.starts_with("`mount` names the program \"moumt\"") && missing.contains("mount"), "{missing}");
        assert!(definition("/no/such").check_programs().is_err());
    }

    #[test]
    fn a_definition_that_uses_the_server_says_which_and_shows_no_secret() {
        let with = |name: &str, argument: &str, end: &str| {
            let text = WHOLE.replace("\"bind\"", &format!("{name:?}"));
            text.replace("{data}", argument) + end
        };
        let parse = |text: &str| ExternalDefinition::parse(Path::new("x.toml"), text);
        let whole = parse(&with("x-{s3_server}", "{s3_endpoint}", "")).unwrap();
        let minio = whole.answers_to("x-minio").unwrap();
        assert_eq!(whole.name_with(minio), "x-minio");
        assert_eq!(whole.answers_to("x").unwrap(), whole.default_server());
        assert_eq!(whole.answers_to("x-maxio"), None);
        let unnamed = error(&with("x", "{s3_endpoint}", ""));
        assert!(unnamed.contains("does not end with `-{s3_server}`"), "{unnamed}");
        let unused = error(&with("x-{s3_server}", "{data}", ""));
        assert!(unused.contains("nothing uses it"), "{unused}");

        let shown = error(&with("x-{s3_server}", "{s3_secret_key}", ""));
        assert!(shown.contains("by [environment] or a [[file]]"), "{shown}");
        let hidden =
            "[environment]\nKEY = '{s3_secret_key}'\n[[file]]\npath = '{site}/key'\ncontent = '{s3_access_key}'";
        assert!(parse(&with("x-{s3_server}", "{data}", hidden)).is_ok());
        for place in ["/etc/key", "{site}/../key", "key"] {
            let elsewhere = hidden.replace("{site}/key", place);
            let refused = error(&with("x-{s3_server}", "{data}", &elsewhere));
            assert!(refused.contains("not below {site} or {data}"), "{refused}");
        }
        let version = error(&WHOLE.replace("--version", "{mount}"));
        assert!(version.contains("unknown variable `mount`"), "{version}");
    }

    #[test]
    fn a_property_without_its_counterpart_or_with_a_strange_path_is_refused() {
        let with = |properties: &str| format!("{WHOLE}[properties]\n{properties}");
        let parse = |text: &str| ExternalDefinition::parse(Path::new("x.toml"), text);
        let whole = "state = ['{data}', '{data}/a']\nsnapshot = ['save', '{snapshot}']\n\
            read_snapshot = ['cat', '{snapshot}/{file}']\ndiff = ['diff', '{snapshot}']\n\
            versions = ['log', '{file}']\nread_version = ['show', '{version}', '{file}']\n\
            fork = ['cp', '-r', '{mount}/{from}', '{mount}/{to}']";
        parse(&with(whole)).unwrap();
        for (text, said) in [
            ("stat = []", "x.toml:10: field `properties.stat`: unknown field"),
            ("state = ['/etc']", "`properties.state`: \"/etc\" is not below"),
            ("state = ['{data}/../x']", "is not below {site} or {data}"),
            ("snapshot = ['s']", "`properties.snapshot` needs `properties.read_snapshot`"),
            ("diff = ['d']", "`properties.diff` needs `properties.snapshot`"),
            ("versions = ['v']", "needs `properties.read_version`"),
            ("fork = ['f', '{file}']", "field `properties.fork`: \"{file}\": it has no variable `file`, but from, to"),
            ("fork = ['f', '{s3_secret_key}']", "by [environment] or a [[file]]"),
            ("fork = ['f', '{s3_bucket}']", "does not end with `-{s3_server}`"),
        ] {
            let refused = error(&with(text));
            assert!(refused.contains(said), "{text}: {refused}");
        }
        assert!(error(&WHOLE.replace("{data}", "{snapshot}")).contains("unknown variable `snapshot`"));
    }

    #[test]
    fn a_missing_need_is_named_with_its_fix() {
        let need = |name: &str| Requirement { name: name.to_owned(), why: "w".to_owned(), fix: "get it".to_owned() };
        assert!(need("sh").check().is_ok());
        let missing = need("no-such-program").check().unwrap_err();
        assert_eq!(missing.reason, "no-such-program is not installed");
        assert_eq!(missing.fix, "get it");
        let unset = need("$CTXBENCH_NOT_SET").check().unwrap_err();
        assert_eq!(unset.reason, "CTXBENCH_NOT_SET is not set");
    }
}
