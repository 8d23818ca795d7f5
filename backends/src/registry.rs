//! All backends by name. No other module of this crate uses this one.

use std::path::Path;
use std::sync::Arc;

use agent_memory::backend::{AgentMemoryMount, AgentMemoryOptions};
use arms::backend::Backend;
use arms::external::{self, ExternalBackend};
use arms::mount_command::MountCommand;
use arms::mounted::{MountedStore, StoreBackend};
use arms::services::Services;
use arms::services::model::Answers;
use arms::services::s3::DistantServer;
use inputs::InputError;
use llm::{LlmMode, LlmMount};
use s3_store::{S3Bare, S3Mount, S3Options, S3Variant};
use sqlite::backend::{SqliteMount, SqliteOptions};
use view::{ViewMount, ViewOptions};

use crate::direct::Direct;
use crate::fio::Fio;
use crate::memory::{MemoryMount, MemoryOptions};
use crate::null::{NullMount, NullOptions};
use crate::rsync::Rsync;
use crate::state::State;
use crate::tools::SqlTools;

/// The arm that is the baseline a second time.
pub const AA_ARM: &str = "direct-again";

/// What the names of arms end with that are copies of another one: identical, or slowed by so many percent.
const OF_COPIES: [&str; 2] = ["-again", "-slowed-"];

/// The backends of one process, and the servers that they share.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    services: Arc<Services>,
}

impl Registry {
    /// The servers that the backends share.
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// What `ctxbench mount` can mount, in the order of its help, besides the file systems of language models: their
    /// options are the harness's, which knows what models cost.
    pub fn mount_commands() -> Vec<MountCommand> {
        vec![
            MountCommand::of::<SqliteOptions>(),
            MountCommand::of::<AgentMemoryOptions>(),
            MountCommand::of::<S3Options>(),
            MountCommand::of::<ViewOptions>(),
            MountCommand::of::<MemoryOptions>(),
            MountCommand::of::<NullOptions>(),
        ]
    }

    /// Every backend of this program, in the order of reports.
    pub fn ours(&self) -> Vec<Box<dyn Backend>> {
        vec![
            Box::new(Direct),
            mounted(NullMount, env!("CTXBENCH_LINES_NULL")),
            mounted(MemoryMount, env!("CTXBENCH_LINES_MEMORY")),
            mounted(SqliteMount { writeback: false }, env!("CTXBENCH_LINES_SQLITE")),
            mounted(SqliteMount { writeback: true }, env!("CTXBENCH_LINES_SQLITE")),
            mounted(AgentMemoryMount { meaning: false }, env!("CTXBENCH_LINES_AGENT_MEMORY")),
            mounted(AgentMemoryMount { meaning: true }, env!("CTXBENCH_LINES_AGENT_MEMORY_MEANING")),
            self.s3(S3Variant::Default),
            self.s3(S3Variant::Fsync),
            self.llm(LlmMode::History, Answers::Local),
            self.llm(LlmMode::Generate, Answers::Local),
            Box::new(State),
        ]
    }

    /// Backends that are only measured: variants of a backend of [`Registry::ours`], baselines, and arms over a source
    /// that other programs write.
    ///
    /// Other checks run on ours alone, because their results hold for the variants too.
    pub fn variants(&self) -> Vec<Box<dyn Backend>> {
        vec![
            self.s3(S3Variant::Fresh),
            self.s3(S3Variant::Close),
            Box::new(S3Bare::on(DistantServer::default_here(), &self.services)),
            Box::new(Fio),
            Box::new(Rsync),
        ]
        .into_iter()
        .chain(self.task_arms())
        .collect()
    }

    /// Arms over a source that other programs write: see [`Backend::source`].
    pub fn task_arms(&self) -> Vec<Box<dyn Backend>> {
        vec![
            mounted(ViewMount::Mail, env!("CTXBENCH_LINES_VIEW")),
            mounted(ViewMount::Controller { is_writable: false }, env!("CTXBENCH_LINES_VIEW")),
            mounted(ViewMount::Controller { is_writable: true }, env!("CTXBENCH_LINES_VIEW")),
            Box::new(SqlTools::InProcess),
            Box::new(SqlTools::OverMcp),
        ]
    }

    /// Third-party backends whose definitions ship with this program, sorted by file name.
    pub fn peers(&self) -> Vec<Box<dyn Backend>> {
        let shipped = external::shipped(&self.services).into_iter();
        shipped.map(|external| Box::new(external) as Box<dyn Backend>).collect()
    }

    /// All of them, in the order of reports.
    pub fn all(&self) -> impl Iterator<Item = Box<dyn Backend>> {
        let ours = self.ours().into_iter();
        ours.chain(self.variants()).chain(self.peers())
    }

    /// The backend called `name`, or the one that the TOML file at that path defines.
    ///
    /// # Errors
    /// [`InputError`] if no backend has that name, or with the position of an error in the file.
    pub fn find(&self, name: &str) -> Result<Box<dyn Backend>, InputError> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "toml") {
            let is_taken = |name: &str| is_of_copy(name) || self.built_in(name).is_some();
            return Ok(Box::new(ExternalBackend::read(path, &self.services, is_taken)?));
        }
        self.built_in(name).ok_or_else(|| {
            let known: Vec<String> = self.all().map(|backend| backend.describe().name).collect();
            let known = inputs::names::alternatives(name, known.iter().map(String::as_str));
            let message = format!("unknown backend; {known}; or give the path of a .toml file (all: ctxbench list)");
            InputError::whole(path, message)
        })
    }

    /// The backend of this program, or of a shipped definition, that is called `name`.
    fn built_in(&self, name: &str) -> Option<Box<dyn Backend>> {
        if let Some(server) = S3Bare::server_of(name) {
            return Some(Box::new(S3Bare::on(server, &self.services)));
        }
        if let Some(mount) = S3Mount::of_name(name, &self.services) {
            return Some(mounted(mount, env!("CTXBENCH_LINES_S3")));
        }
        if let Some((mode, answers)) = LlmMode::of_name(name) {
            return Some(self.llm(mode, answers));
        }
        if let Some(external) = external::named(name, &self.services) {
            return Some(Box::new(external));
        }
        let mut listed = self.ours().into_iter().chain(self.variants());
        listed.find(|backend| backend.describe().name == name)
    }

    fn s3(&self, variant: S3Variant) -> Box<dyn Backend> {
        let (server, services) = (DistantServer::default_here(), Arc::clone(&self.services));
        mounted(S3Mount { variant, server, services }, env!("CTXBENCH_LINES_S3"))
    }

    fn llm(&self, mode: LlmMode, answers: Answers) -> Box<dyn Backend> {
        let lines = match mode {
            LlmMode::History => env!("CTXBENCH_LINES_LLM_HISTORY"),
            LlmMode::Generate => env!("CTXBENCH_LINES_LLM_GENERATE"),
        };
        mounted(LlmMount { mode, answers, services: Arc::clone(&self.services) }, lines)
    }
}

/// A backend of one of our stores; the build script counts the `lines` that serve its files.
fn mounted(store: impl MountedStore + 'static, lines: &str) -> Box<dyn Backend> {
    Box::new(StoreBackend::new(store, lines.parse().unwrap_or(0)))
}

/// Whether a name is that of an arm that a run adds as a copy of another one.
fn is_of_copy(name: &str) -> bool {
    let [again, slowed] = OF_COPIES;
    let percent = name.rsplit_once(slowed).map(|(_, percent)| percent);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.ends_with(again) || percent.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with this name, and how it is read from a file.
    fn read(name: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        let server = if name.ends_with("{s3_server}") { "{s3_bucket}" } else { "" };
        let text = format!(
            "summary = 's'\nname = '{name}'\ndurability = 'd'\npersistent = true\ndaemons = 1\nmount = ['true', '{server}']\n"
        );
        std::fs::write(&file, text).unwrap();
        let found = Registry::default().find(file.to_str().unwrap());
        let found = found.map(|backend| backend.describe().name);
        found.map_err(|error| error.to_string().replace(file.to_str().unwrap(), "x.toml"))
    }

    #[test]
    fn a_definition_cannot_have_the_name_of_another_arm() {
        let registry = Registry::default();
        let built_in = registry.all().map(|backend| backend.describe().name);
        let more = [
            "direct-again",
            "memory-slowed-10",
            "s3",
            "s3-close",
            "llm-history-live",
            "rclone-s3-{s3_server}",
            "s3-{s3_server}",
        ];
        for name in built_in.chain(more.map(str::to_owned)) {
            // A name with a delay has a letter that no definition may have.
            if name.contains('@') {
                continue;
            }
            let refused = read(&name).unwrap_err();
            let place = "x.toml:2: field `name`: ";
            assert!(refused.starts_with(place), "{name}: {refused}");
            assert!(refused.contains("built-in arm"), "{name}: {refused}");
        }
        for name in ["my-sqlite", "slowed-10", "again", "a-slowed-x"] {
            assert_eq!(read(name).unwrap(), name);
        }
    }

    #[test]
    fn a_copy_of_a_shipped_definition_keeps_its_name() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/external/bind.toml");
        let found = Registry::default().find(shipped).unwrap().describe();
        assert_eq!(found.name, "bind");
        assert!(found.file.is_some());
    }
}
