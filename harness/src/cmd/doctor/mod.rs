//! `ctxbench doctor`: reports what this machine can measure, and how to fix the rest.

mod s3;
pub(super) mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use arms::backend::{Backend, Need};
use arms::services::s3::ServerChoice;
use backends::registry::Registry;
use clap::Args;
use fuse::check_device;
use inputs::border;
use schemars::JsonSchema;
use serde::Serialize;
use view::find_postgresql;

use super::format::ScreenFormat;
use crate::environment::{environment_in, warnings};
use runner::scratch::{EpochScratch, ScratchDisk};

/// Check what this machine can measure, or check a store for damage.
///
/// Checks FUSE, scratch space, privileges, the S3 server and third-party file systems. For each missing thing it says
/// what cannot be measured without it, and how to get it. If CTXBENCH_S3_ENDPOINT names a server, the doctor tries each
/// kind of request that a mount needs, which creates one small object below agents/ctxbench-doctor/ and takes a few
/// seconds. With --store it checks a database instead, as fsck checks a disk. It changes nothing in the database, which
/// may be mounted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench doctor
  ctxbench doctor --store notes.db
  ctxbench doctor --format json

Exit codes: 0 every backend can be measured, or the store is undamaged; 1 something is missing or damaged.")]
pub struct Doctor {
    /// The scratch directory to check [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Check only this database of a `sqlite` or `agent-memory` mount.
    #[arg(long, value_name = "FILE", conflicts_with = "scratch")]
    store: Option<PathBuf>,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
}

/// A finding about this machine: a line of the output.
#[derive(Debug, Serialize, JsonSchema)]
struct Finding {
    /// What it is about, such as `kernel`, or how it is, such as `ok` and `MISSING`.
    label: &'static str,
    text: String,
}

/// What was found, in the order of the output.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

/// What `doctor` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct PrintedFindings<'a> {
    /// Nothing is missing.
    is_well: bool,
    findings: &'a [Finding],
}

impl Findings {
    fn add(&mut self, label: &'static str, text: impl Into<String>) {
        self.0.push(Finding { label, text: text.into() });
    }

    fn text(&self) -> String {
        self.0.iter().map(|finding| format!("{:<10}{}\n", finding.label, finding.text)).collect()
    }
}

/// Adds what `ctxbench mount view` can show: with FUSE, rows of SQLite at least.
fn add_views(found: &mut Findings) {
    match check_device() {
        Ok(()) => found.add("view", "of SQLite, directories and HTTP; of PostgreSQL servers, by their URL"),
        Err(error) => found.add("no view", error.to_string()),
    }
    match find_postgresql() {
        Some(dir) => found.add("view", format!("PostgreSQL for tests: {}", border::path(dir))),
        None => found.add("no tests", "of views of PostgreSQL: it is not installed (fix: make postgres)"),
    }
}

impl Doctor {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        if let Some(store) = &self.store {
            let is_whole = store::print_store(store, self.format)?;
            return Ok(ExitCode::from(u8::from(!is_whole)));
        }
        let scratch = EpochScratch::in_directory(self.scratch.as_deref())?;
        let environment = environment_in(scratch.path())?;
        let mut found = Findings::default();
        found.add("machine", format!("{} ({} processors)", environment.cpu, environment.cpus));
        found.add("kernel", &*environment.kernel);
        let has_scratch = self.add_scratch(&mut found);
        found.add("clock", &*environment.clock);
        found.add("user", &*environment.user);
        found.add("ctxbench", format!("{}, {}", crate::environment::ctxbench(), environment.build));
        let s3 = s3::add_server(&mut found);
        let mut is_well = s3.is_ok() && has_scratch;
        // The version of an external server is only its address. It does not prove that the server answers.
        let versions = |backend: &dyn Backend, needs: &[Need]| {
            let given = ServerChoice::Given.label();
            match &s3 {
                Err(reason) if needs.iter().any(|need| need.name == given) => Err(reason.clone()),
                _ => backend.versions().map_err(|reason| reason.to_string()),
            }
        };
        for backend in registry.ours().into_iter().chain(registry.task_arms()) {
            let described = backend.describe();
            let name = described.name;
            match versions(backend.as_ref(), &described.needs) {
                Ok(versions) => {
                    let parts: Vec<_> = versions.iter().map(|(k, v)| format!("{k} {v}")).collect();
                    found.add("ok", format!("{name}: {}", parts.join(", ")));
                }
                Err(reason) => {
                    is_well = false;
                    found.add("MISSING", format!("{name}: {reason}"));
                }
            }
        }
        for peer in registry.peers() {
            let described = peer.describe();
            let name = described.name;
            match versions(peer.as_ref(), &described.needs) {
                Ok(versions) => {
                    let version = versions.get(&name).map_or("", String::as_str);
                    found.add("peer", format!("{name}: {version}"));
                }
                Err(reason) => found.add("no peer", format!("{name}: {reason}")),
            }
        }
        add_views(&mut found);
        for warning in warnings(&environment) {
            found.add("warning", warning);
        }
        self.format.print(|| found.text(), &PrintedFindings { is_well, findings: &found.0 })?;
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Adds the scratch of a run and the reason for it; false if there is none.
    fn add_scratch(&self, found: &mut Findings) -> bool {
        match ScratchDisk::choose(self.scratch.as_deref(), 0) {
            Ok(disk) => {
                let receipt = disk.receipt();
                let why = match (&receipt.fallback, &self.scratch) {
                    (Some(reason), _) => format!("because {reason}"),
                    (None, Some(_)) => "because --scratch names it".to_owned(),
                    (None, None) => "the default; a test image was made and mounted there".to_owned(),
                };
                found.add("a run", format!("measures in {receipt}; {why}"));
                true
            }
            Err(error) => {
                found.add("MISSING", format!("scratch: {error:#}"));
                false
            }
        }
    }
}
