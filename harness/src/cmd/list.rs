//! `ctxbench list`: lists backends, workloads, suites and policies.

use std::collections::BTreeMap;
use std::process::ExitCode;

use backends::registry::Registry;
use clap::Args;
use reports::render::{paragraph, table};
use schemars::JsonSchema;
use serde::Serialize;
use verdicts::decide::{self, Policy};
use workloads::catalogue;

use super::format::{ScreenFormat, print_json};

/// List backends, workloads, suites and policies.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench list
  ctxbench list --essays | less
  ctxbench list --format json")]
pub struct List {
    /// Also print the essay of each workload: what it represents, and what it does not show.
    #[arg(long)]
    essays: bool,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
}

/// The indent of lines below the name of a backend.
const BELOW_NAME: &str = "                        ";

impl List {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        match self.format {
            ScreenFormat::Text => self.print(registry)?,
            ScreenFormat::Json => print_json(&Listing::of(registry)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(self, registry: &Registry) -> anyhow::Result<()> {
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
        Ok(())
    }
}

/// What `list` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Listing {
    backends: Vec<ListedBackend>,
    workloads: Vec<ListedWorkload>,
    policies: Vec<ListedPolicy>,
    suites: Vec<String>,
}

/// A backend in a listing.
#[derive(Serialize, JsonSchema)]
struct ListedBackend {
    name: String,
    summary: String,
    durability: String,
    /// Why it cannot be used here.
    unusable: Option<String>,
}

/// A workload in a listing.
#[derive(Serialize, JsonSchema)]
struct ListedWorkload {
    name: String,
    essay: String,
    /// The names of its cache states.
    states: Vec<String>,
    /// The timed calls of a pass, by kind.
    calls: BTreeMap<String, u64>,
}

/// A policy in a listing.
#[derive(Serialize, JsonSchema)]
struct ListedPolicy {
    name: String,
    #[serde(rename = "use")]
    title: String,
    question: String,
}

impl Listing {
    fn of(registry: &Registry) -> anyhow::Result<Self> {
        let backends = registry.all().map(|backend| {
            let described = backend.describe();
            let unusable = backend.versions().err().map(|reason| reason.to_string());
            ListedBackend {
                name: described.name,
                summary: described.summary,
                durability: described.durability,
                unusable,
            }
        });
        let backends = backends.collect();
        let workloads = catalogue::workload_names().into_iter().map(|name| {
            let workload = catalogue::workload(&name)?;
            let states = workload.states.iter().map(|state| state.name().to_owned()).collect();
            let calls = workload.script.timed_calls().into_iter();
            let calls = calls.map(|(kind, count)| (kind.to_string(), count)).collect();
            Ok(ListedWorkload { name, essay: workload.essay, states, calls })
        });
        let workloads = workloads.collect::<anyhow::Result<_>>()?;
        let policies = decide::built_in().into_iter().map(|name| {
            let (file, text) = decide::find(&name)?;
            let policy = Policy::parse(&file, &text)?;
            Ok(ListedPolicy { name, title: policy.words().title, question: policy.question })
        });
        let policies = policies.collect::<anyhow::Result<_>>()?;
        Ok(Self { backends, workloads, policies, suites: catalogue::suite_names() })
    }
}
