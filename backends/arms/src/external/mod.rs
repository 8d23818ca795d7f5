//! Third-party file systems as backends, each defined by a TOML file of commands.
//!
//! This module runs the commands, each with a deadline and in its own process group. A hanging command
//! is killed with all its children, and its error names it.

mod command;
mod definition;
mod server;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse::Counters;
use fuse::connection::{Connection, MountEntry, detach, mount_at, mounts};
use include_dir::{Dir, include_dir};
use inputs::sha256;
use processes::ChildProcess;

use crate::backend::{
    Backend, Capabilities, DEFINITION, Description, KillHandle, Need, PropertyCall, Unavailable, Versions, Workspace,
    WorkspaceConfig, kernel, log_end,
};
use crate::services::Services;
use crate::services::s3::DistantServer;
use command::{CommandContext, exit_reason, left_running, run, start};
use definition::{ExternalDefinition, Service};
use variables::Variables;

/// The definitions that ship with this program.
static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../external");

/// How long a command may take that only queries, such as one that prints a version.
const VERSION_PATIENCE: Duration = Duration::from_secs(10);

/// How long the processes of a `mount` command without a daemon may take to end after it.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Poll interval while a mount starts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A backend that a TOML file defines.
#[derive(Clone, Debug)]
pub struct ExternalBackend {
    definition: ExternalDefinition,
    /// The S3 server, for a definition that uses one.
    server: Option<DistantServer>,
    /// The first 6 bytes of the SHA-256 of its text and of the shipped files that it uses, in hexadecimal.
    digest: String,
    /// The path of its file; `None` for a shipped definition.
    file: Option<PathBuf>,
    services: Arc<Services>,
}

/// The text of a file that ships beside the definitions.
fn shipped_text(path: &str) -> Option<&'static str> {
    SHIPPED.get_file(path)?.contents_utf8()
}

/// Whether a text is that of a shipped definition.
fn is_shipped(text: &str) -> bool {
    SHIPPED.files().any(|file| file.contents_utf8() == Some(text))
}

/// The digest of a definition's text and of the shipped files that it uses.
fn digest(text: &str, definition: &ExternalDefinition) -> String {
    let shipped = definition.file.iter().filter_map(|file| file.shipped.as_deref());
    let mut texts = text.to_owned();
    texts.extend(shipped.filter_map(shipped_text));
    let mut digest = sha256(texts);
    digest.truncate(12);
    digest
}

/// The shipped backends, sorted by file name.
///
/// # Panics
/// If a shipped file is invalid, which a test rules out.
#[expect(clippy::expect_used, reason = "a test reads them all")]
pub fn shipped(services: &Arc<Services>) -> Vec<ExternalBackend> {
    let mut files: Vec<_> = SHIPPED.files().collect();
    files.sort_by_key(|file| file.path());
    let shipped = files.into_iter().map(|file| {
        let text = file.contents_utf8().expect("shipped files are text");
        ExternalBackend::parse(file.path(), text, None, services).expect("shipped files are right")
    });
    shipped.collect()
}

/// The shipped backend of that name, which may end with an S3 server.
pub fn named(name: &str, services: &Arc<Services>) -> Option<ExternalBackend> {
    let mut found = shipped(services).into_iter().filter_map(|external| {
        let server = external.definition.answers_to(name)?;
        Some(ExternalBackend { server, ..external })
    });
    found.next()
}

impl ExternalBackend {
    /// Reads a user's definition, whose name must not be that of another arm. A copy of a shipped definition may have the
    /// name of that one.
    ///
    /// # Errors
    /// [`inputs::InputError`] with file, line and field.
    pub fn read(
        file: &Path,
        services: &Arc<Services>,
        is_taken: impl Fn(&str) -> bool,
    ) -> Result<Self, inputs::InputError> {
        let text = inputs::read(file)?;
        let path = file.canonicalize();
        let path = path.map_err(|error| inputs::InputError::whole(file, error))?;
        let external = Self::parse(file, &text, Some(path), services)?;
        let name = external.name();
        if is_taken(&name) && !is_shipped(&text) {
            let own = external.definition.stem();
            let message = format!(
                "{name:?} is the name of a built-in arm, whose figures would be mixed with those of this file system (choose another name, such as \"my-{own}\")"
            );
            let field = [inputs::PathStep::Field("name")];
            return Err(inputs::toml_error(file, &text, &field, &message));
        }
        Ok(external)
    }

    fn parse(
        name: &Path,
        text: &str,
        file: Option<PathBuf>,
        services: &Arc<Services>,
    ) -> Result<Self, inputs::InputError> {
        let definition = ExternalDefinition::parse(name, text)?;
        Ok(Self {
            server: definition.default_server(),
            digest: digest(text, &definition),
            definition,
            file,
            services: Arc::clone(services),
        })
    }

    fn name(&self) -> String {
        self.definition.name_with(self.server)
    }

    /// Whether its files are in a mount of the user's that a process serves. Found by names: a dead mount must not hang this.
    fn is_in_a_served_mount(&self) -> bool {
        let Some(root) = &self.definition.root else {
            return false;
        };
        let root = Variables::of_the_environment().fill(root);
        let mounts = mounts().unwrap_or_default().into_iter();
        let around = mounts.filter(|mount| Path::new(&root).starts_with(&mount.at));
        let closest = around.max_by_key(|mount| mount.at.as_os_str().len());
        closest.is_some_and(|mount| mount.is_served())
    }
}

impl Backend for ExternalBackend {
    fn ends_with_process(&self) -> bool {
        self.server.is_some()
    }

    fn describe(&self) -> Description {
        let definition = &self.definition;
        let needs = definition.need.iter().map(|need| Need { name: need.name.clone(), why: need.why.clone() });
        let server = self
            .server
            .map(|server| Need { name: server.wanted.label().to_owned(), why: "to hold the bucket".to_owned() });
        Description {
            name: self.name(),
            file: self.file.clone(),
            summary: match self.server {
                Some(server) => format!("{}, {}", definition.summary, server.words()),
                None => definition.summary.clone(),
            },
            durability: definition.durability.clone(),
            capabilities: Capabilities {
                holds_data: true,
                persistent: definition.persistent,
                several_hosts: definition.second_host,
                ..Capabilities::default()
            },
            daemons: definition.daemons.max(u32::from(self.is_in_a_served_mount())),
            mounts: 1,
            needs: needs.chain(server).collect(),
            lines_of_code: 0,
        }
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        for need in &self.definition.need {
            need.check()?;
        }
        self.definition.check_programs()?;
        let around = CommandContext { variables: Variables::of_the_environment(), ..CommandContext::default() };
        let version = if self.definition.version.is_empty() {
            "not stated".to_owned()
        } else {
            run(&self.definition.version, &around, None, VERSION_PATIENCE).map_err(|error| Unavailable {
                reason: format!("its version cannot be read: {error}"),
                fix: "correct `version` in its definition, or leave it out".to_owned(),
            })?
        };
        let first = version.lines().find(|line| !line.trim().is_empty());
        let mut versions = Versions::from([
            ("kernel".to_owned(), kernel()),
            (DEFINITION.to_owned(), self.digest.clone()),
            (self.name(), first.unwrap_or("(says nothing)").trim().to_owned()),
        ]);
        if let Some(server) = self.server {
            let label = server.wanted.label().to_owned();
            versions.insert(label, server.wanted.version()?);
        }
        Ok(versions)
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let mount_point = mount_point(config);
        let is_first = mount_at(&mount_point)?.is_none() && !mount_point.exists();
        self.open_at(config, &mount_point, is_first)
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        // A file system that changes names or contents has no such file.
        let plain = data_dir(config).join(name);
        plain.is_file().then(|| ("cat".to_owned(), vec![plain.into_os_string()]))
    }

    fn open_copy(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        self.open_at(config, &mount_point(config), false)
    }
}

impl ExternalBackend {
    /// Opens the workspace of `config`; sets it up if it `is_first`.
    fn open_at(&self, config: &WorkspaceConfig, mount_point: &Path, is_first: bool) -> io::Result<Box<dyn Workspace>> {
        let workspace = ExternalWorkspace::open(self.name(), self.definition.clone(), config, is_first, |data| {
            let mut variables = Variables::of_site(&config.dir, mount_point, data)?;
            if let Some(server) = self.server {
                server::tell(&self.services.s3, server, config, &mut variables)?;
            }
            Ok(variables)
        })?;
        Ok(Box::new(workspace))
    }
}

fn mount_point(config: &WorkspaceConfig) -> PathBuf {
    config.dir.join(crate::backend::FILES)
}

/// The directory that commands name as `{data}`.
fn data_dir(config: &WorkspaceConfig) -> PathBuf {
    config.dir.join("data")
}

struct ExternalWorkspace {
    name: String,
    definition: ExternalDefinition,
    config: WorkspaceConfig,
    mount_point: PathBuf,
    /// The agent's working directory, inside the mount.
    root: PathBuf,
    around: CommandContext,
    services: Vec<ChildProcess>,
    daemon: Option<ChildProcess>,
    connection: Option<Connection>,
    is_mounted: bool,
    /// Teardown has run.
    is_closed: bool,
    time_to_ready: Duration,
}

impl ExternalWorkspace {
    /// Prepares and mounts a definition for `config`. `variables` returns the commands' variables, given the
    /// data directory.
    fn open(
        name: String,
        definition: ExternalDefinition,
        config: &WorkspaceConfig,
        is_first: bool,
        variables: impl FnOnce(&Path) -> io::Result<Variables>,
    ) -> io::Result<Self> {
        let mount_point = mount_point(config);
        // A dead mount exists in the mount table, but accessing it fails.
        if mount_at(&mount_point)?.is_none() {
            std::fs::create_dir_all(&mount_point)?;
        }
        let data = data_dir(config);
        std::fs::create_dir_all(&data)?;
        let variables = variables(&data)?;
        let mut workspace = Self {
            name,
            root: definition
                .root
                .as_ref()
                .map_or_else(|| mount_point.clone(), |below| PathBuf::from(variables.fill(below))),
            around: CommandContext { variables, environment: definition.environment.clone() },
            definition,
            config: config.clone(),
            mount_point,
            services: Vec::new(),
            daemon: None,
            connection: None,
            is_mounted: false,
            is_closed: false,
            time_to_ready: Duration::ZERO,
        };
        workspace.prepare(is_first)?;
        workspace.mount()?;
        workspace.check_writable()?;
        Ok(workspace)
    }

    /// Makes the agent's directory. A run writes files: a mount that takes none is refused by name.
    fn check_writable(&self) -> io::Result<()> {
        let probe = self.root.join(format!(".ctxbench-{}", std::process::id()));
        let written = std::fs::create_dir_all(&self.root)
            .and_then(|()| std::fs::create_dir(&probe))
            .and_then(|()| std::fs::remove_dir(&probe));
        let Err(error) = written else {
            return Ok(());
        };
        let refuses = [rustix::io::Errno::ROFS, rustix::io::Errno::NOSYS];
        let is_refused =
            error.raw_os_error().is_some_and(|code| refuses.iter().any(|errno| errno.raw_os_error() == code));
        if is_refused {
            Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                format!(
                    "{} is a read-only file system: {error}. A run writes files (mount it writable, or measure a store that can be written)",
                    self.name
                ),
            ))
        } else {
            Err(io::Error::new(error.kind(), format!("{}: {}: {error}", self.name, self.root.display())))
        }
    }

    fn log(&self) -> PathBuf {
        self.config.dir.join("daemon.log")
    }

    /// Runs a command with the workspace's deadline; its standard error goes to the log.
    fn run(&self, command: &[String]) -> io::Result<String> {
        let log = self.log();
        run(command, &self.around, Some(&log), self.config.patience)
    }

    /// As [`Self::run`], with what could not be done and the last lines of the log in its error.
    fn perform(&self, what: &str, command: &[String]) -> io::Result<()> {
        let done = self.run(command).map(drop);
        done.map_err(|error| self.failure(&format!("could not {what}: {error}")))
    }

    /// Writes the files, starts the services and, for a new workspace, runs the setup.
    fn prepare(&mut self, is_first: bool) -> io::Result<()> {
        for file in &self.definition.file {
            let path = PathBuf::from(self.around.variables.fill(&file.path));
            let content = match file.shipped.as_deref().and_then(shipped_text) {
                Some(shipped) => shipped.to_owned(),
                None => self.around.variables.fill(&file.content),
            };
            write_private(&path, &content)
                .map_err(|error| io::Error::new(error.kind(), format!("writing {}: {error}", path.display())))?;
        }
        for service in &self.definition.services {
            self.services.push(start(service, &self.around, &self.log())?);
        }
        if is_first {
            for command in &self.definition.setup {
                self.perform("be set up", command)?;
            }
        }
        for service in self.definition.service.clone() {
            self.start_service(&service)?;
        }
        Ok(())
    }

    /// Starts a service, and waits until it is ready.
    fn start_service(&mut self, service: &Service) -> io::Result<()> {
        let program = service.run.first().map_or("", String::as_str);
        let mut running = start(&service.run, &self.around, &self.log())?;
        let started = Instant::now();
        let failed = loop {
            if run(&service.ready, &self.around, None, VERSION_PATIENCE).is_ok() {
                break None;
            }
            if let Some(ended) = exit_reason(&mut running) {
                break Some(format!("could not start its service {program}, which ended before it was ready: {ended}"));
            }
            if started.elapsed() > self.config.patience {
                break Some(format!(
                    "could not start its service {program}: its command `ready` did not succeed in {} s",
                    self.config.patience.as_secs()
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        self.services.push(running);
        match failed {
            Some(what) => Err(self.failure(&what)),
            None => Ok(()),
        }
    }

    fn tear_down(&mut self) -> io::Result<()> {
        self.is_closed = true;
        let teardown = self.definition.teardown.iter();
        // Each command runs, even if an earlier one failed.
        let torn_down: Vec<_> = teardown.map(|command| self.perform("be torn down", command)).collect();
        for service in &mut self.services {
            // An error means that it has ended.
            let _ = service.kill();
        }
        torn_down.into_iter().collect()
    }

    fn mount(&mut self) -> io::Result<()> {
        let started = Instant::now();
        let command = &self.definition.mount;
        if self.definition.stays {
            self.daemon = Some(start(command, &self.around, &self.log())?);
        } else {
            self.perform("be mounted", command)?;
        }
        self.is_mounted = true;
        while !self.is_ready()? {
            if let Some(ended) = self.daemon.as_mut().and_then(exit_reason) {
                self.take_down_by_force();
                return Err(self.failure(&format!("ended before the mount was ready: {ended}")));
            }
            if started.elapsed() > self.config.patience {
                self.take_down_by_force();
                return Err(self.failure("took too long to mount"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.time_to_ready = started.elapsed();
        self.check_daemons()?;
        self.connection = mount_at(&self.mount_point)?.as_ref().and_then(Connection::of);
        Ok(())
    }

    /// Refuses a definition that has processes although it says `daemons = 0`: kills of no daemon would count as kept records.
    fn check_daemons(&self) -> io::Result<()> {
        if self.definition.daemons > 0 {
            return Ok(());
        }
        let served = mount_at(&self.mount_point)?.filter(MountEntry::is_served);
        let processes = || left_running(&self.around.variables.fill("{site}"));
        let started = Instant::now();
        let mut left = processes();
        if left.is_empty() {
            // A process has no variables for a moment while it begins another program.
            std::thread::sleep(POLL_INTERVAL);
            left = processes();
        }
        // A helper of `mount` may end a moment after it.
        while !left.is_empty() && started.elapsed() < ENDS_WITHIN {
            std::thread::sleep(POLL_INTERVAL);
            left = processes();
        }
        let why = match (served, &left[..]) {
            (Some(mount), _) => format!("a process serves its mount, which is of type {}", mount.kind),
            (None, [first, ..]) => format!("its commands have left process {first} running"),
            (None, []) => return Ok(()),
        };
        Err(self.failure(&format!("has `daemons = 0`, but {why} (state in its definition how many run)")))
    }

    fn is_ready(&self) -> io::Result<bool> {
        if self.definition.ready.is_empty() {
            return Ok(mount_at(&self.mount_point)?.is_some());
        }
        let ready = run(&self.definition.ready, &self.around, None, VERSION_PATIENCE);
        Ok(ready.is_ok())
    }

    fn unmount(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let unmounted = if self.definition.unmount.is_empty() {
            detach(&self.mount_point)
        } else {
            self.run(&self.definition.unmount).map(|_| ())
        };
        if let Err(error) = unmounted {
            self.take_down_by_force();
            return Err(self.failure(&format!("could not be unmounted: {error}")));
        }
        if let Some(mut daemon) = self.daemon.take()
            && let Ok(None) = daemon.wait_for(self.config.patience)
        {
            // Killed with its group; an error means that it has ended.
            let _ = daemon.kill();
            self.take_down_by_force();
            return Err(self.failure("did not end after it was unmounted"));
        }
        Ok(())
    }

    /// An error with the last lines of the log, without secrets.
    fn failure(&self, what: &str) -> io::Error {
        let said = format!("{} {what}: {}", self.name, log_end(&self.log()));
        io::Error::other(self.around.variables.redact(&said))
    }

    fn take_down_by_force(&mut self) {
        self.kill_handle().kill();
        if let Some(mut daemon) = self.daemon.take() {
            // Also its group; an error means that it has ended.
            let _ = daemon.kill();
        }
        self.connection = None;
        self.is_mounted = false;
    }
}

impl Workspace for ExternalWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        if !self.definition.second_host {
            return Ok(None);
        }
        let config = WorkspaceConfig { dir: beside.to_owned(), ..self.config.clone() };
        let mount_point = mount_point(&config);
        let second = Self::open(self.name.clone(), self.definition.of_second_host(), &config, true, |data| {
            let first = &self.around.variables;
            first.of_second(&config.dir, &mount_point, data)
        })?;
        Ok(Some(Box::new(second)))
    }

    fn kill_handle(&self) -> KillHandle {
        KillHandle { daemon: self.daemon(), mount: Some((self.mount_point.clone(), self.connection.clone())) }
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(ChildProcess::id)
    }

    fn time_to_ready(&self) -> Duration {
        self.time_to_ready
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.mount_point)?)?)
    }

    fn state(&self) -> Vec<PathBuf> {
        let state = self.definition.properties.state.iter();
        let paths = state.map(|path| self.around.variables.fill(path).into());
        paths.collect()
    }

    fn property(&mut self, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        let properties = &self.definition.properties;
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (command, values) = match call {
            PropertyCall::Snapshot { at } => (&properties.snapshot, vec![("snapshot", path(at))]),
            PropertyCall::ReadSnapshot { snapshot, file } => {
                (&properties.read_snapshot, vec![("snapshot", snapshot.to_owned()), ("file", file.to_owned())])
            }
            PropertyCall::Diff { snapshot } => (&properties.diff, vec![("snapshot", snapshot.to_owned())]),
            PropertyCall::Versions { file } => (&properties.versions, vec![("file", file.to_owned())]),
            PropertyCall::ReadVersion { version, file } => {
                (&properties.read_version, vec![("version", version.to_owned()), ("file", file.to_owned())])
            }
            PropertyCall::Fork { from, to } => {
                (&properties.fork, vec![("from", from.to_owned()), ("to", to.to_owned())])
            }
        };
        if command.is_empty() {
            return Ok(None);
        }
        let mut around = self.around.clone();
        for (name, value) in values {
            around.variables.set(name, value);
        }
        let said = run(command, &around, Some(&self.log()), self.config.patience);
        let said = said.map_err(|error| self.failure(&format!("offers it, but {error}")));
        said.map(Some)
    }

    fn drop_own_caches(&mut self) -> io::Result<()> {
        match &self.definition.drop_caches[..] {
            [] => Ok(()),
            command => self.perform("drop its caches", command),
        }
    }

    fn stop(&mut self) -> io::Result<()> {
        self.unmount()
    }

    fn start(&mut self) -> io::Result<()> {
        self.mount()
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        if self.definition.counters.is_empty() {
            return Ok(None);
        }
        let command = &self.definition.counters;
        let said = run(command, &self.around, None, VERSION_PATIENCE)?;
        Ok(Some(Counters { store: counted(&said)?, ..Counters::default() }))
    }

    fn exit_reason(&mut self) -> Option<String> {
        let ended = exit_reason(self.daemon.as_mut()?)?;
        Some(format!("{} ended: {ended}", self.name))
    }

    fn kill(&mut self) -> io::Result<bool> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(false);
        };
        daemon.kill()?;
        Ok(true)
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        let unmounted = self.unmount();
        unmounted.and(self.tear_down())
    }
}

impl Drop for ExternalWorkspace {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        if self.is_mounted {
            self.take_down_by_force();
        }
        if let Err(error) = self.tear_down() {
            tracing::warn!("{error}");
        }
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, content: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut options = File::options();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
    // An existing file may have another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content.as_bytes())
}

/// Parses the output of a `counters` command.
fn counted(said: &str) -> io::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        let counted = line.trim().rsplit_once(char::is_whitespace);
        let Some((name, count)) = counted.and_then(|(name, n)| Some((name, n.parse().ok()?))) else {
            let message = format!("counters: {line:?} is not a name and a whole number");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        counts.insert(name.trim().to_owned(), count);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests;
