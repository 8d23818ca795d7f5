//! `ctxbench verify`: checks that the published figures of a run follow from its records.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use records::published::{PublishedFiles, PublishedTerms, compare_published};
use records::{Discrepancy, check_records};
use reports::render::write_faults;
use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;

use super::format::ScreenFormat;
use crate::environment;
use crate::evidence::{PriceList, run_dir};
use crate::history::{check_built_in, check_history, check_plan};
use crate::progress_line::ProgressLine;
use crate::reporting::ReportInputs;

/// Check that every published figure and verdict of a run follows from its records.
///
/// First compares the records with each other: each pass with the histogram, the counts and the epoch that contain it, its
/// calls and questions with those of other passes of the workload, the order of cells and arms with the seed, the epochs with
/// the plan and its budget, the promises with the plan, the plan with its command. Then makes the report again, in a
/// temporary directory, and compares every table, page, chart and histogram log with the published one.
/// A difference is printed with its file, row and field, the stated and the recomputed value. Nothing is measured, and the
/// run directory is not changed.
///
/// It cannot find records that were invented consistently, a changed figure that its histogram still allows, or a changed
/// count that no other record repeats, such as `system_calls` or `bytes_read`, if the report was made after the change.
/// It does not know whether the run was repeated until its result pleased, whether plan and command were changed together,
/// or whether the stated machine and versions are true. It measures nothing: `ctxbench reproduce` does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench verify                                    # the newest run under results
  ctxbench verify results/20261128-165326-default
  ctxbench verify results/mine --with results/fault  # a report that was made with other evidence
  ctxbench verify results/mine --format json

If another version of ctxbench wrote the report, only its figures and verdicts are compared, and the output names the files. To compare every word, verify with that version.

Exit codes: 0 no difference, 1 at least one, or a file cannot be read.")]
pub struct Verify {
    /// The run's directory [default: the newest under --results].
    #[arg(value_name = "RUN")]
    run: Option<PathBuf>,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The policy that the report was made by, if not those of the run.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// A run whose evidence the report also used; may be given several times.
    #[arg(long, value_name = "RUN")]
    with: Vec<PathBuf>,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    prices: PriceList,
}

/// The most differences that are printed as text.
const SHOWN: usize = 40;

/// The parts of a verification, for the progress.
const STEPS: usize = 4;

/// What was compared, and what differs.
#[derive(Serialize, JsonSchema)]
pub(super) struct Verification {
    /// The run's directory.
    run: String,
    /// Whether nothing differs.
    holds: bool,
    /// The version that made the run.
    made_by: String,
    /// The version that verified it.
    verified_by: String,
    /// Passes, lines of histograms and counts, epochs; files and values of the report.
    compared: ComparedCounts,
    /// The differences.
    differences: Vec<Discrepancy>,
    /// What was not checked, and why.
    notes: Vec<String>,
}

/// How much was compared.
#[derive(Serialize, JsonSchema)]
struct ComparedCounts {
    passes: usize,
    histograms: usize,
    epochs: usize,
    files: usize,
    values: usize,
}

impl Verify {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        let found = self.verify(dir)?;
        self.format.print(|| text(&found), &found)?;
        Ok(ExitCode::from(u8::from(!found.holds)))
    }

    /// What differs in the run in `dir`.
    pub fn differences(dir: PathBuf, prices: PriceList) -> anyhow::Result<Vec<Discrepancy>> {
        let verify = Self {
            run: None,
            results: PathBuf::new(),
            policy: None,
            with: Vec::new(),
            format: ScreenFormat::default(),
            prices,
        };
        Ok(verify.verify(dir)?.differences)
    }

    fn verify(&self, dir: PathBuf) -> anyhow::Result<Verification> {
        let line = ProgressLine::still();
        line.step(0, STEPS, "reading the records");
        let run = Run::read(&dir)?;
        line.step(1, STEPS, "comparing the records with each other");
        let of_records = check_records(&run);
        let is_refused = !of_records.is_empty();
        let (mut differences, mut notes) = records(&run, of_records);
        line.step(2, STEPS, "making the report again");
        let again = tempfile::tempdir().context("making a temporary directory")?;
        let other = run.plan.measures_nothing();
        let mut places = vec![dir.display().to_string()];
        let published = match other {
            _ if is_refused => {
                notes.push("the report was not made again: records of the run are missing or changed".to_owned());
                PublishedFiles::default()
            }
            Some(_) if !run.plan.breaks_things() => {
                notes.push("a conformance run has no report: only its records were checked".to_owned());
                PublishedFiles::default()
            }
            Some(_) => {
                let mut copy = run.clone();
                copy.dir = again.path().to_owned();
                places.push(copy.dir.display().to_string());
                write_faults(&copy).context("making the page again")?;
                self.published(&run, again.path(), &places, &line)?
            }
            None => {
                drop(line);
                let inputs = ReportInputs::of(&dir, &self.with, self.policy.as_deref(), &self.prices)?;
                inputs.write_into(again.path())?;
                let line = ProgressLine::still();
                let with = self.with.iter().map(|dir| dir.display().to_string());
                places.extend(with);
                self.published(&run, again.path(), &places, &line)?
            }
        };
        differences.extend(published.differences);
        notes.extend(published.notes);
        Ok(Verification {
            holds: differences.is_empty(),
            made_by: run.plan.ctxbench.clone(),
            verified_by: environment::ctxbench(),
            compared: ComparedCounts {
                passes: run.samples.len(),
                histograms: run.cells.iter().map(|cell| cell.latencies.len()).sum(),
                epochs: run.epochs.len(),
                files: published.files,
                values: published.values,
            },
            run: dir.to_string_lossy().into_owned(),
            differences,
            notes,
        })
    }

    /// Compares the published report with the one in `again`.
    fn published(
        &self,
        run: &Run,
        again: &std::path::Path,
        places: &[String],
        line: &ProgressLine,
    ) -> anyhow::Result<PublishedFiles> {
        let terms = PublishedTerms { has_our_words: run.plan.ctxbench == environment::ctxbench(), places };
        let found = compare_published(&run.dir, again, &terms, |done, all, name| {
            line.step(done, all, &format!("comparing {name}"));
        });
        found.with_context(|| format!("comparing the report in {}", run.dir.display()))
    }
}

/// What differs between the records of a run, and between them and its plan, and what was not checked.
fn records(run: &Run, mut differences: Vec<Discrepancy>) -> (Vec<Discrepancy>, Vec<String>) {
    let mut notes = Vec::new();
    if run.plan.measures_nothing().is_some() {
        return (differences, notes);
    }
    if run.plan.command.starts_with("ctxbench report ") {
        notes.push(
            "the run was joined from several runs: its order, its seed and its end were not checked (verify those runs)"
                .to_owned(),
        );
        return (differences, notes);
    }
    differences.extend(check_history(run));
    differences.extend(check_plan(&run.plan));
    if run.plan.ctxbench == environment::ctxbench() {
        differences.extend(check_built_in(run))
    } else {
        notes.push(format!(
            "ctxbench {} made the run: its workloads, its policies and the tokens of its sessions were not compared with those of this version",
            run.plan.ctxbench
        ))
    }
    (differences, notes)
}

fn text(found: &Verification) -> String {
    let mut lines: Vec<String> = found.differences.iter().take(SHOWN).map(ToString::to_string).collect();
    if found.differences.len() > SHOWN {
        let more = found.differences.len() - SHOWN;
        lines.push(format!("{more} more differences (--format json has all of them)"));
    }
    lines.extend(found.notes.iter().map(|note| format!("note: {note}")));
    let compared = &found.compared;
    lines.push(format!(
        "{}: {} in {} passes, {} histograms and {} epochs, and in {} files of the report with {} values",
        found.run,
        match found.differences.len() {
            0 => "no difference".to_owned(),
            1 => "1 difference".to_owned(),
            count => format!("{count} differences"),
        },
        compared.passes,
        compared.histograms,
        compared.epochs,
        compared.files,
        compared.values
    ));
    lines.join("\n") + "\n"
}
