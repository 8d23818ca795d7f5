//! `ctxbench decide`: decides by policies on the candidates of one or several runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reports::answer::Overview;
use reports::render::{decision_record, decisions_markdown, decisions_text};
use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;
use verdicts::decide::{Decision, Evidence, PolicyVerdict, check_compatible, decide};

use super::format::OutputFormat;
use crate::evidence::{PriceList, SummarisedRun, measured_run_dir};
use crate::progress_line::ProgressLine;
use crate::reporting::policies;

/// Decide by policies: adopt a candidate, archive it (keep what you have), or neither.
///
/// Gates come first: a pass with wrong data, an unexpected error number, a timeout, a hang, a crash or a failed set-up
/// rules out adoption, and so does the loss of an acknowledged record. Then come the benefits that a policy asks for, then
/// the costs that it tolerates. Prints the answer for each use, and all verdicts. For one policy and one candidate, it prints every row, the smallest change that flips
/// the verdict, and the commands that produce missing evidence.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench decide                                     # the newest run, by the policies that it was made for
  ctxbench decide results/*-default results/*-fault   # evidence of several runs
  ctxbench decide --policy inbox --candidate view-mail
  ctxbench decide --policy my-policy.toml --adr > docs/adr/0007-context.md

Exit codes: 0 adopt, 10 archive, 11 not decided, 12 adopt if, 1 failed. For several decisions: 11 if any is not decided, else 10 if any is archive, else 12 if any has a condition, else 0.")]
pub struct Decide {
    /// Run directories: measured, fault, conformance and other runs of one machine [default: the newest measured run
    /// under --results].
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// A policy that the run was made for, a built-in one, `all` built-in ones, or the path of a policy file [default: the
    /// policies that the run was made for].
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Decide on this candidate only.
    #[arg(long, value_name = "NAME")]
    candidate: Option<String>,
    /// Write an architecture decision record in Markdown.
    #[arg(long, conflicts_with = "format")]
    adr: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Accept runs of different machines, builds or plans.
    #[arg(long)]
    mixed: bool,
    #[command(flatten)]
    prices: PriceList,
}

/// What `decide` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct PrintedDecisions<'a> {
    /// The answer for each use.
    answer: &'a Overview,
    /// The decision of each policy about each candidate.
    decisions: &'a [Decision],
}

impl Decide {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dirs = if self.runs.is_empty() { vec![measured_run_dir(None, &self.results)?] } else { self.runs.clone() };
        let read = SummarisedRun::read_all(&dirs, &self.prices)?;
        let runs: Vec<&Run> = read.iter().map(|evidence| &evidence.run).collect();
        if !self.mixed
            && let Err(problem) = check_compatible(&runs)
        {
            bail!("{problem}\n  fix: name runs of one machine, build and plan, or add --mixed");
        }
        let evidence = Evidence { runs: read.iter().map(SummarisedRun::evidence).collect() };
        let line = ProgressLine::moving("deciding by the policies");
        let decisions = self.decisions(&runs, &evidence)?;
        let overview = Overview::of(&decisions, &evidence.runs);
        drop(line);
        if self.adr {
            print!("{}", decision_record(&decisions, &runs))
        } else {
            self.format.print(
                || decisions_text(&overview, &decisions),
                || decisions_markdown(&overview, &decisions),
                &PrintedDecisions { answer: &overview, decisions: &decisions },
            )?
        }
        Ok(ExitCode::from(worst(&decisions).exit_code()))
    }

    fn decisions(&self, runs: &[&Run], evidence: &Evidence<'_>) -> anyhow::Result<Vec<Decision>> {
        let policies = policies(self.policy.as_deref(), runs, &[])?;
        if policies.is_empty() {
            bail!(
                "{} was planned without a policy (name one with --policy, or use `--policy all`)",
                runs[0].dir.display()
            );
        }
        let decisions = policies.iter();
        let decisions = decisions.flat_map(|policy| decide(&policy.policy, &policy.text, evidence));
        let all: Vec<Decision> = decisions.collect();
        if all.is_empty() {
            let wanted =
                policies.iter().map(|policy| format!("\n  {}: {}", policy.policy.name, policy.policy.candidates));
            bail!(
                "no arm of these runs is a candidate: they have {}, and candidates must be{}",
                evidence.arms().join(", "),
                wanted.collect::<String>()
            );
        }
        let Some(candidate) = &self.candidate else {
            return Ok(all);
        };
        let candidates = all.iter().map(|decision| decision.candidate.clone());
        let mut names: Vec<String> = candidates.collect();
        names.sort();
        names.dedup();
        let chosen: Vec<Decision> = all.into_iter().filter(|decision| decision.candidate == *candidate).collect();
        if chosen.is_empty() {
            bail!("{candidate} is not a candidate of these policies (candidates: {})", names.join(", "));
        }
        Ok(chosen)
    }
}

/// Of several verdicts: not decided, else archive, else adopt if, else adopt.
fn worst(decisions: &[Decision]) -> PolicyVerdict {
    let order = [PolicyVerdict::NotDecided, PolicyVerdict::Archive, PolicyVerdict::AdoptIf];
    let mut order = order.into_iter();
    let found = order.find(|verdict| {
        let mut decisions = decisions.iter();
        decisions.any(|decision| decision.verdict == *verdict)
    });
    found.unwrap_or(PolicyVerdict::Adopt)
}
