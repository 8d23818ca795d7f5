//! `ctxbench compare`: the same arms at two times or commits, or the arms of one run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use reports::render::{comparison_junit, comparison_markdown, comparison_text, ranking_markdown, ranking_text};
use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;
use verdicts::claims::judge;
use verdicts::compare::{Gate, RunComparison, compare};
use verdicts::decide::{PolicyVerdict, check_distinct};
use verdicts::rank::{Ranking, rank};

use super::format::print_json;
use crate::evidence::{PriceList, SummarisedRun, measured_run_dir};
use crate::progress_line::ProgressLine;

/// Compare old and new runs, or rank the arms of one run.
///
/// With one run, all pairs of its arms are compared round by round, with a correction for the number of pairs; arms
/// that cannot be told apart beyond the margin share a rank. With several runs, times are compared as ratios to the
/// baseline of the same run; exact counts, scores of tasks and searches, failed passes and the status of claims are
/// compared directly. The first line says whether a machine was busy, how many counts were compared, how many of them rose,
/// how many scores (tokens, answers, delays) were compared, how many of them got worse, how many of the times have a verdict, and which change of a time would have been found.
/// Verdicts are corrected for the number of cells. Runs of different machines or plans are refused, and the error names
/// the difference.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench compare results/20261123-120000-default results/20261124-120000-default
  ctxbench compare results/20261124-001409-peers   # ranks the arms of one run
  ctxbench compare old new --format markdown --fail-on worse --fail-on counts > comment.md

Exit codes: 0 no gate of --fail-on fails, 12 at least one fails, 11 nothing is decided because both runs are the same one or a copy, 1 the runs cannot be compared.")]
pub struct Compare {
    /// The old run's directory, then the new run's; the epochs of several new runs are joined. With a single directory,
    /// the arms of that run are ranked [default: the newest under --results].
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Fail if this got worse; may be given several times.
    #[arg(long, value_enum, value_name = "GATE", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// How to print the comparison.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Compare runs of different machines or plans, too; the output says what differs.
    #[arg(long)]
    mixed: bool,
    #[command(flatten)]
    prices: PriceList,
}

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A cell is slower beyond the margin, a larger share of its passes fails, it was not measured again, the tokens or calls of a
    /// task, a search or a context policy rose beyond the margin, its share of right answers fell, its commits were seen more
    /// than twice as late, there is new harm (lost records, failed recoveries, failing features, wrong answers, lost lines), or the new run did not test for it.
    Worse,
    /// An exact count has risen (requests, system calls, statements), none could be compared, passes fail where none did, the
    /// tokens or calls of a task, a search or a context policy rose beyond the margin, its share of right answers fell, there is
    /// new harm (lost records, failed recoveries, failing features, wrong answers, lost lines), or the new run did not test for all that the old one tested for.
    Counts,
    /// A confirmed claim is refuted, conditional, or without evidence.
    Claims,
}

impl FailOn {
    fn gate(self) -> Gate {
        match self {
            FailOn::Worse => Gate::Worse,
            FailOn::Counts => Gate::Counts,
            FailOn::Claims => Gate::Claims,
        }
    }
}

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for the terminal.
    Text,
    /// For a pull request.
    Markdown,
    /// For programs.
    Json,
    /// For CI systems that show tests.
    Junit,
}

/// What `compare` prints for programs.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum PrintedComparison<'a> {
    /// Of several runs: the changes from the old run to the new ones.
    Runs(&'a RunComparison),
    /// Of one run: the ranks of its arms.
    Arms(&'a Ranking),
}

/// The exit code of a failing gate: 1 is for runs that cannot be compared.
const GATE_FAILS: u8 = 12;

impl Compare {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (old, new) = match self.runs.as_slice() {
            [old, new @ ..] if !new.is_empty() => (old, new),
            runs => return self.rank(runs.first().map(PathBuf::as_path)),
        };
        let old = SummarisedRun::read(old, &self.prices)?;
        let new: anyhow::Result<Vec<SummarisedRun>> =
            new.iter().map(|dir| SummarisedRun::read(dir, &self.prices)).collect();
        let new = new?;
        let all: Vec<&Run> = std::iter::once(&old).chain(&new).map(|one| &one.run).collect();
        if let Err(same) = check_distinct(&all) {
            eprintln!("ctxbench: nothing is decided: {same}");
            return Ok(ExitCode::from(PolicyVerdict::NotDecided.exit_code()));
        }
        let old = [old.evidence()];
        let new: Vec<_> = new.iter().map(SummarisedRun::evidence).collect();
        let line = ProgressLine::moving("comparing the runs");
        let (before, after) = (judge(&old)?, judge(&new)?);
        let found = compare(&old[0], &new, (&before, &after), self.mixed);
        drop(line);
        let found = found.map_err(|problem| anyhow::anyhow!(problem))?;
        match self.format {
            Format::Text => print!("{}", comparison_text(&found)),
            Format::Markdown => print!("{}", comparison_markdown(&found)),
            Format::Json => print_json(&PrintedComparison::Runs(&found))?,
            Format::Junit => {
                let junit = comparison_junit(&found).map_err(|problem| anyhow::anyhow!(problem))?;
                print!("{junit}");
            }
        }
        let mut has_failed = false;
        for gate in &self.fail_on {
            for line in found.failing(gate.gate()) {
                eprintln!("ctxbench: --fail-on {}: {line}", name(*gate));
                has_failed = true;
            }
        }
        Ok(if has_failed { ExitCode::from(GATE_FAILS) } else { ExitCode::SUCCESS })
    }

    /// Ranks the arms of one run in each cell.
    fn rank(&self, run: Option<&Path>) -> anyhow::Result<ExitCode> {
        if self.mixed || !self.fail_on.is_empty() {
            bail!("--mixed and --fail-on need two runs to compare: name an old and a new one");
        }
        let dir = measured_run_dir(run, &self.results)?;
        let run = SummarisedRun::read(&dir, &self.prices)?;
        let line = ProgressLine::moving("comparing the arms");
        let found = rank(&run.evidence()).map_err(|problem| anyhow::anyhow!(problem))?;
        drop(line);
        match self.format {
            Format::Text => print!("{}", ranking_text(&found)),
            Format::Markdown => print!("{}", ranking_markdown(&found)),
            Format::Json => print_json(&PrintedComparison::Arms(&found))?,
            Format::Junit => {
                bail!("--format junit needs two runs to compare: name an old and a new one")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn name(gate: FailOn) -> String {
    let value = gate.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}
