//! `ctxbench doctor`: reports what this machine can measure, and how to fix the rest.

mod s3;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use arms::backend::{Backend, Need};
use arms::services::s3::Wanted;
use backends::registry::Registry;
use clap::Args;
use fuse::check_device;
use inputs::border;
use view::find_postgresql;

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

Exit codes: 0 every backend can be measured, or the store is undamaged; 1 something is missing or damaged.")]
pub struct Doctor {
    /// The scratch directory to check [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Check only this database of a `sqlite` or `agent-memory` mount.
    #[arg(long, value_name = "FILE", conflicts_with = "scratch")]
    store: Option<PathBuf>,
}

/// Prints what `ctxbench mount view` can show: with FUSE, rows of SQLite at least.
fn print_views() {
    match check_device() {
        Ok(()) => println!("view      of SQLite, directories and HTTP; of PostgreSQL servers, by their URL"),
        Err(error) => println!("no view   {error}"),
    }
    match find_postgresql() {
        Some(dir) => println!("view      PostgreSQL for tests: {}", border::path(dir)),
        None => {
            println!("no tests  of views of PostgreSQL: it is not installed (fix: make postgres)")
        }
    }
}

impl Doctor {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        if let Some(store) = &self.store {
            let is_whole = store::print_store(store)?;
            return Ok(ExitCode::from(u8::from(!is_whole)));
        }
        let scratch = EpochScratch::in_directory(self.scratch.as_deref())?;
        let environment = environment_in(scratch.path())?;
        println!("machine   {} ({} processors)", environment.cpu, environment.cpus);
        println!("kernel    {}", environment.kernel);
        let has_scratch = self.print_scratch();
        println!("clock     {}", environment.clock);
        println!("user      {}", environment.user);
        println!("ctxbench  {}, {}", crate::environment::ctxbench(), environment.build);
        let s3 = s3::print_server();
        let mut is_well = s3.is_ok() && has_scratch;
        // The version of an external server is only its address. It does not prove that the server answers.
        let versions = |backend: &dyn Backend, needs: &[Need]| {
            let given = Wanted::Given.label();
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
                    println!("ok        {name}: {}", parts.join(", "));
                }
                Err(reason) => {
                    is_well = false;
                    println!("MISSING   {name}: {reason}");
                }
            }
        }
        for peer in registry.peers() {
            let described = peer.describe();
            let name = described.name;
            match versions(peer.as_ref(), &described.needs) {
                Ok(versions) => {
                    let version = versions.get(&name).map_or("", String::as_str);
                    println!("peer      {name}: {version}");
                }
                Err(reason) => println!("no peer   {name}: {reason}"),
            }
        }
        print_views();
        for warning in warnings(&environment) {
            println!("warning   {warning}");
        }
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Prints the scratch of a run and the reason for it; false if there is none.
    fn print_scratch(&self) -> bool {
        match ScratchDisk::choose(self.scratch.as_deref(), 0) {
            Ok(disk) => {
                let receipt = disk.receipt();
                let why = match (&receipt.fallback, &self.scratch) {
                    (Some(reason), _) => format!("because {reason}"),
                    (None, Some(_)) => "because --scratch names it".to_owned(),
                    (None, None) => "the default; a test image was made and mounted there".to_owned(),
                };
                println!("a run     measures in {receipt}; {why}");
                true
            }
            Err(error) => {
                println!("MISSING   scratch: {error:#}");
                false
            }
        }
    }
}
