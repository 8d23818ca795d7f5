//! `ctxbench conform`: checks by feature that a file system does what Linux programs expect.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use arms::backend::{Backend, WorkspaceConfig};
use backends::registry::Registry;
use clap::Args;
use reports::render::{markdown_table, table};
use rundir::{Arm, ArmBackend, Plan, Writer};
use schemars::JsonSchema;
use serde::Serialize;

use super::format::ScreenFormat;
use crate::environment::{self, environment_in};
use crate::named_backends::check_usable;
use crate::progress_line::ProgressLine;
use runner::plan::{arm, single_arms};
use runner::scratch::EpochScratch;
use trial::features::{Feature, FeatureResult, features, try_features, try_in_workspace};
use trial::interrupt::Interrupt;
use trial::watchdog::supervise;

/// Test which file system features a backend or a directory has.
///
/// Without arguments, it tests every backend that holds data, `direct` first: a feature that fails on `direct` is
/// missing in the machine's own file system, not in the backends. Each run writes a directory of its own under
/// --results, from which `ctxbench report` makes pages. Tests of permissions need root. A feature that could not be
/// tested is `skipped`, with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench conform                          # our backends, side by side
  ctxbench conform sqlite
  ctxbench conform --path /mnt/theirs       # any directory; a scratch directory is made in it
  ctxbench conform --path /mnt/a --also /mnt/b   # two mounts of the same files

Exit codes: 0 no feature fails, 1 at least one fails.")]
pub struct Conform {
    /// Test only these backends.
    #[arg(value_name = "BACKEND", conflicts_with = "path")]
    backends: Vec<String>,
    /// Test this directory instead, whatever file system it is on.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// The directory of a second mount of the same files, for the features that need two mounts.
    #[arg(long, value_name = "DIR", requires = "path")]
    also: Option<PathBuf>,
    /// Test only features whose group or name contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    /// Directory in which each run creates its own directory.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Directory for the workspaces [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// The purpose of the run, for its plan.
const ESSAY: &str = "What Linux programs expect of a file system, feature by feature: works, fails or skipped.";

/// One file system's results by feature, in the order of the plan.
struct Column {
    arm: Arm,
    results: Vec<FeatureResult>,
}

impl Conform {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let features = self.features()?;
        let columns = match &self.path {
            Some(path) => vec![self.of_directory(path, &features, &interrupt)?],
            None => self.of_backends(registry, &features, &interrupt)?,
        };
        if interrupt.is_set() {
            return Ok(ExitCode::from(130));
        }
        self.format.print(|| self.page(&features, &columns), &ConformanceTable::of(&features, &columns))?;
        let mut results = columns.iter().flat_map(|column| &column.results);
        let fails = results.any(|result| matches!(result, FeatureResult::Fails(_)));
        Ok(ExitCode::from(u8::from(fails)))
    }

    /// The features that `--only` selects.
    fn features(&self) -> anyhow::Result<Vec<&'static Feature>> {
        let Some(only) = &self.only else {
            return Ok(features().collect());
        };
        let wanted: Vec<_> =
            features().filter(|feature| feature.group.contains(only) || feature.name.contains(only)).collect();
        if wanted.is_empty() {
            bail!("no feature's group or name contains `{only}` (`ctxbench conform direct` lists them)");
        }
        Ok(wanted)
    }

    /// Creates the run directory. Prints its path on standard error, because standard output holds only the table.
    fn begin(&self, features: &[&Feature], arms: Vec<Arm>, scratch: &Path) -> anyhow::Result<Writer> {
        let created = environment::now();
        let dir = environment::new_run_dir(&self.results, &created, "conform")?;
        let plan = Plan {
            features: features.iter().map(|feature| feature.full_name()).collect(),
            ..Plan::without_passes("conform", ESSAY, created, environment::ctxbench(), environment::command(), arms)
        };
        let environment = environment_in(scratch).context("reading the properties of the machine")?;
        let writer = Writer::create(&dir, &plan, &environment, None, &[])?;
        eprintln!("results in {}", dir.display());
        Ok(writer)
    }

    fn of_directory(
        &self,
        path: &Path,
        features: &[&'static Feature],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Column> {
        let absolute = |path: &Path| path.canonicalize().with_context(|| format!("reading {}", path.display()));
        let also = self.also.as_deref().map(absolute).transpose()?;
        let (dir, wanted) = (absolute(path)?, features.to_vec());
        let arm = arm_of(path);
        let writer = self.begin(features, vec![arm.clone()], &dir)?;
        let tried = supervise(interrupt, {
            let interrupt = interrupt.clone();
            move |watchdog| try_features(&dir, also.as_deref(), &wanted, watchdog, &interrupt)
        });
        recorded(&writer, features, arm, tried.map_err(io::Error::from).flatten())
    }

    fn of_backends(
        &self,
        registry: &Registry,
        features: &[&'static Feature],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<Column>> {
        let scratch = EpochScratch::in_directory(self.scratch.as_deref())?;
        // Checks of permissions act as other users, who must be able to traverse this directory.
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))?;
        let mut columns = Vec::new();
        let arms = single_arms(&self.chosen(registry)?);
        check_usable(&arms, |_| !self.backends.is_empty())?;
        let writer = self.begin(features, arms.iter().map(arm).collect(), scratch.path())?;
        let line = ProgressLine::still();
        let all = arms.len();
        for (done, live) in arms.into_iter().enumerate() {
            let (planned, name, backend) = (arm(&live), live.name, live.backend);
            if let Err(unavailable) = live.versions {
                line.say(&format!("{name} is skipped: {unavailable}"));
                continue;
            }
            line.step(done, all, &format!("trying {name}"));
            let config = WorkspaceConfig {
                allow_other: rustix::process::geteuid().is_root(),
                ..WorkspaceConfig::new(scratch.path().join(&name), std::env::current_exe()?)
            };
            std::fs::create_dir(&config.dir)?;
            let wanted = features.to_vec();
            let tried = supervise(interrupt, {
                let interrupt = interrupt.clone();
                move |watchdog| try_in_workspace(&*backend, &config, &wanted, watchdog, &interrupt)
            });
            columns.push(recorded(&writer, features, planned, tried.map_err(io::Error::from).flatten())?);
            if interrupt.is_set() {
                break;
            }
        }
        Ok(columns)
    }

    fn chosen(&self, registry: &Registry) -> anyhow::Result<Vec<Arc<dyn Backend>>> {
        if self.backends.is_empty() {
            let all = registry.ours().into_iter();
            let hold_data = all.filter(|backend| {
                let described = backend.describe();
                // Backends that ask a model run only if the user names them.
                described.capabilities.holds_data && backend.has_paths() && !described.needs_model()
            });
            return Ok(hold_data.map(Arc::from).collect());
        }
        let named = self.backends.iter().map(|name| {
            let backend = registry.find(name)?;
            if !backend.describe().capabilities.holds_data {
                bail!("`{name}` holds no data, so there is nothing to test\n  fix: name another backend (`ctxbench list`)");
            }
            if !backend.has_paths() {
                bail!("`{name}` is reached by tool calls only, so it has no path to test\n  fix: name a backend that is mounted");
            }
            Ok(Arc::from(backend))
        });
        named.collect()
    }

    fn page(&self, features: &[&Feature], columns: &[Column]) -> String {
        let mut head = vec!["about", "feature"];
        head.extend(columns.iter().map(|column| column.arm.name.as_str()));
        let mut rows = Vec::new();
        let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (at, feature) in features.iter().enumerate() {
            let mut row = vec![feature.group.to_owned(), feature.name.to_owned()];
            for column in columns {
                let (word, why) = match &column.results[at] {
                    FeatureResult::Works => ("works", None),
                    FeatureResult::Fails(why) => ("FAILS", Some(why)),
                    FeatureResult::Skipped(why) => ("skipped", Some(why)),
                };
                if let Some(why) = why {
                    let key = (column.arm.name.as_str(), why.as_str());
                    reasons.entry(key).or_default().push(feature.name);
                }
                row.push(word.to_owned());
            }
            rows.push(row);
        }
        let mut page = if self.markdown { markdown_table(&head, &rows) } else { table(&head, &rows) };
        if !reasons.is_empty() {
            page.push('\n');
        }
        for ((column, why), names) in reasons {
            let bullet = if self.markdown { "* " } else { "" };
            page += &format!("{bullet}{column}: {}: {why}\n", names.join("; "));
        }
        page
    }
}

/// What `conform` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConformanceTable {
    features: Vec<FeatureRow>,
}

/// A feature on each file system.
#[derive(Serialize, JsonSchema)]
struct FeatureRow {
    group: &'static str,
    name: &'static str,
    /// The result on each file system, by its name.
    results: BTreeMap<String, FeatureOutcome>,
}

/// How a feature is on a file system.
#[derive(Serialize, JsonSchema)]
struct FeatureOutcome {
    outcome: OutcomeWord,
    reason: Option<String>,
}

/// Whether a feature works.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OutcomeWord {
    Works,
    Fails,
    Skipped,
}

impl FeatureOutcome {
    fn of(result: &FeatureResult) -> Self {
        match result {
            FeatureResult::Works => Self { outcome: OutcomeWord::Works, reason: None },
            FeatureResult::Fails(why) => Self { outcome: OutcomeWord::Fails, reason: Some(why.clone()) },
            FeatureResult::Skipped(why) => Self { outcome: OutcomeWord::Skipped, reason: Some(why.clone()) },
        }
    }
}

impl ConformanceTable {
    fn of(features: &[&Feature], columns: &[Column]) -> Self {
        let rows = features.iter().enumerate().map(|(at, feature)| {
            let results =
                columns.iter().map(|column| (column.arm.name.clone(), FeatureOutcome::of(&column.results[at])));
            FeatureRow { group: feature.group, name: feature.name, results: results.collect() }
        });
        Self { features: rows.collect() }
    }
}

/// A directory as an arm. The environment records its file system.
fn arm_of(path: &Path) -> Arm {
    let name = path.display().to_string();
    Arm {
        name: name.clone(),
        backend: ArmBackend {
            name,
            summary: "a directory that was there".to_owned(),
            durability: "not known".to_owned(),
            holds_data: true,
            persistent: true,
            ..ArmBackend::default()
        },
        ..Arm::default()
    }
}

/// Records the results of an arm.
fn recorded(
    writer: &Writer,
    features: &[&Feature],
    arm: Arm,
    tried: io::Result<Vec<FeatureResult>>,
) -> anyhow::Result<Column> {
    let results = tried.with_context(|| format!("trying {}", arm.name))?;
    for (feature, result) in features.iter().zip(&results) {
        writer.probe(&feature.probe(&arm.name, result))?;
    }
    Ok(Column { arm, results })
}
