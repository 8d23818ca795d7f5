//! `ctxbench list`: lists backends, workloads, suites and policies.

use std::process::ExitCode;

use backends::registry::Registry;
use clap::Args;
use reports::render::{paragraph, table};
use verdicts::decide::{self, Policy};
use workloads::catalogue;

/// List backends, workloads, suites and policies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench list
  ctxbench list --essays | less")]
pub struct List {
    /// Also print the essay of each workload: what it represents, and what it does not show.
    #[arg(long)]
    essays: bool,
}

/// The indent of lines below the name of a backend.
const BELOW_NAME: &str = "                        ";

impl List {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        println!("backends: what each is, its durability, and why it is not usable here");
        for backend in registry.all() {
            let described = backend.describe();
            print!("{}", paragraph(&format!("  {:<21} ", described.name), BELOW_NAME, &described.summary));
            print!("{}", paragraph(BELOW_NAME, BELOW_NAME, &format!("durability: {}", described.durability)));
            if let Err(reason) = backend.versions() {
                print!("{}", paragraph(BELOW_NAME, BELOW_NAME, &format!("NOT USABLE HERE: {reason}")));
            }
        }
        println!("");
        let mut rows = Vec::new();
        let mut essays = String::new();
        for name in catalogue::workload_names() {
            let workload = catalogue::workload(&name)?;
            let states: Vec<_> = workload.states.iter().map(|state| state.name()).collect();
            let calls: Vec<_> =
                workload.script.timed_calls().into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            essays += &format!("{name}\n  {}\n\n", workload.essay);
            rows.push(vec![name, states.join(", "), calls.join(", ")]);
        }
        println!("{}", table(&["workload", "cache states", "calls in a pass"], &rows));
        let mut rows = Vec::new();
        for name in decide::built_in() {
            let (file, text) = decide::find(&name)?;
            let policy = Policy::parse(&file, &text)?;
            rows.push(vec![name, policy.words().title, policy.question]);
        }
        println!("{}", table(&["policy", "use", "question"], &rows));
        print!("{}", paragraph("suites: ", "  ", &catalogue::suite_names().join(", ")));
        if self.essays {
            print!("\n{essays}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
