//! `ctxbench conform`: does a file system do what Linux programs expect?

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use backends::backend::{self, Backend, Site};
use backends::conform::{Verdict, features};
use clap::Args;
use reports::render::{markdown_table, table};

use crate::interrupt::Interrupt;
use crate::scratch::ScratchDir;
use crate::supervise::{Lost, Pulse, supervise};

/// How long one feature may take.
const FEATURE_LIMIT: Duration = Duration::from_secs(60);

/// How long a daemon may take to start or to stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// Try what Linux programs expect of a file system, feature by feature.
///
/// Without arguments, every backend that holds data is tried, `direct` first: what fails there is the
/// machine's own file system's, not the backend's. Permissions need root to be tried: a feature that
/// could not be is `skipped`, with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench conform                          # our backends, side by side
  ctxbench conform sqlite
  ctxbench conform --path /mnt/theirs       # any directory; a scratch directory is made in it
  ctxbench conform --path /mnt/a --also /mnt/b   # two mounts of the same files

Exit codes: 0 nothing fails, 1 something does.")]
pub struct Conform {
    /// Only these backends.
    #[arg(value_name = "BACKEND", conflicts_with = "path")]
    backends: Vec<String>,
    /// Try this directory instead, whatever file system it is on.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// The same directory through another mount of the same files.
    #[arg(long, value_name = "DIR", requires = "path")]
    also: Option<PathBuf>,
    /// Only features whose group or name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// Where workspaces live [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// One file system's verdicts by feature, in the order of [`features`].
struct Column {
    name: String,
    verdicts: Vec<Verdict>,
}

impl Conform {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let columns = match &self.path {
            Some(path) => vec![self.of_directory(path, &interrupt)?],
            None => self.of_backends(&interrupt)?,
        };
        if interrupt.is_set() {
            return Ok(ExitCode::from(130));
        }
        print!("{}", self.page(&columns));
        let mut verdicts = columns.iter().flat_map(|column| &column.verdicts);
        let fails = verdicts.any(|verdict| matches!(verdict, Verdict::Fails(_)));
        Ok(ExitCode::from(u8::from(fails)))
    }

    fn of_directory(&self, path: &Path, interrupt: &Interrupt) -> anyhow::Result<Column> {
        let absolute = |path: &Path| {
            path.canonicalize()
                .with_context(|| format!("looking at {}", path.display()))
        };
        let also = self.also.as_deref().map(absolute).transpose()?;
        let (dir, only) = (absolute(path)?, self.only.clone());
        let tried = supervise(interrupt, {
            let interrupt = interrupt.clone();
            move |pulse| try_all(&dir, also.as_deref(), only.as_deref(), pulse, &interrupt)
        });
        column(&path.display().to_string(), tried)
    }

    fn of_backends(&self, interrupt: &Interrupt) -> anyhow::Result<Vec<Column>> {
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        // Other users must be able to pass, or nothing can be said about permissions.
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))?;
        let mut columns = Vec::new();
        for backend in self.chosen()? {
            let name = backend.describe().name;
            if let Err(unavailable) = backend.receipt() {
                eprintln!("{name} is left out: {unavailable}");
                continue;
            }
            eprintln!("trying {name}");
            let site = Site {
                dir: scratch.path().join(&name),
                program: std::env::current_exe()?,
                patience: DAEMON_PATIENCE,
                cpu: None,
                allow_other: rustix::process::geteuid().is_root(),
            };
            std::fs::create_dir(&site.dir)?;
            let only = self.only.clone();
            let tried = supervise(interrupt, {
                let interrupt = interrupt.clone();
                move |pulse| {
                    let workspace = backend.open(&site)?;
                    pulse.depend_on(workspace.lifeline());
                    let verdicts =
                        try_all(workspace.root(), None, only.as_deref(), pulse, &interrupt)?;
                    workspace.close()?;
                    Ok(verdicts)
                }
            });
            columns.push(column(&name, tried)?);
            if interrupt.is_set() {
                break;
            }
        }
        Ok(columns)
    }

    fn chosen(&self) -> anyhow::Result<Vec<Arc<dyn Backend>>> {
        if self.backends.is_empty() {
            let all = backend::registry().into_iter();
            let hold_data = all.filter(|backend| {
                let described = backend.describe();
                // A model is asked only where somebody names it.
                described.capabilities.holds_data
                    && !backend.is_tools_only()
                    && !described.needs_model()
            });
            return Ok(hold_data.map(Arc::from).collect());
        }
        let named = self.backends.iter().map(|name| {
            let backend = backend::find(name)?;
            if !backend.describe().capabilities.holds_data {
                bail!("`{name}` holds no data: there is nothing to try");
            }
            if backend.is_tools_only() {
                bail!("`{name}` is reached by tool calls only: there is no path to try");
            }
            Ok(Arc::from(backend))
        });
        named.collect()
    }

    fn page(&self, columns: &[Column]) -> String {
        let mut head = vec!["about", "feature"];
        head.extend(columns.iter().map(|column| column.name.as_str()));
        let mut rows = Vec::new();
        let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        let wanted = features().filter(|feature| is_wanted(feature, self.only.as_deref()));
        for (at, feature) in wanted.enumerate() {
            let mut row = vec![feature.group.to_owned(), feature.name.to_owned()];
            for column in columns {
                let word = match column.verdicts.get(at) {
                    Some(Verdict::Works) => "works",
                    Some(Verdict::Fails(why)) => {
                        let key = (column.name.as_str(), why.as_str());
                        reasons.entry(key).or_default().push(feature.name);
                        "FAILS"
                    }
                    Some(Verdict::Skipped(why)) => {
                        let key = (column.name.as_str(), why.as_str());
                        reasons.entry(key).or_default().push(feature.name);
                        "skipped"
                    }
                    None => "not reached",
                };
                row.push(word.to_owned());
            }
            rows.push(row);
        }
        let render = if self.markdown { markdown_table } else { table };
        let mut page = render(&head, &rows);
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

fn is_wanted(feature: &backends::conform::Feature, only: Option<&str>) -> bool {
    only.is_none_or(|only| feature.group.contains(only) || feature.name.contains(only))
}

/// Tries every feature in `dir`, up to one that never came back.
fn try_all(
    dir: &Path,
    also: Option<&Path>,
    only: Option<&str>,
    pulse: &Pulse,
    interrupt: &Interrupt,
) -> std::io::Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for feature in features().filter(|feature| is_wanted(feature, only)) {
        if interrupt.is_set() {
            break;
        }
        pulse.enter(FEATURE_LIMIT);
        let verdict = feature.run(dir, also)?;
        pulse.leave();
        match pulse.severed() {
            None => verdicts.push(verdict),
            Some(cut) => {
                verdicts.push(Verdict::Fails(cut.to_string()));
                break;
            }
        }
    }
    Ok(verdicts)
}

fn column(
    name: &str,
    tried: Result<std::io::Result<Vec<Verdict>>, Lost>,
) -> anyhow::Result<Column> {
    let verdicts = match tried {
        Ok(verdicts) => verdicts.with_context(|| format!("trying {name}"))?,
        Err(Lost::Stuck) => bail!("{name}: a call did not come back, and could not be cut off"),
        Err(Lost::Panicked) => bail!("{name}: a check panicked; see the log"),
    };
    Ok(Column {
        name: name.to_owned(),
        verdicts,
    })
}
