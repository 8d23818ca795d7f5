//! Joins several runs of one plan on one machine into one run.

use std::path::{Path, PathBuf};

use rundir::{Look, Looks, MODEL_FILES, RecordCounts, Run, Writer};
use verdicts::decide::check_distinct;
use verdicts::reproduction::check_same_plan;

/// Joins the runs in `dirs`: their epochs become the epochs of one run, in the new directory `out`.
///
/// The joined run has one analysis, after all of its epochs. Its intervals cover the variation between epochs.
/// They cover the variation between the times of the runs only if there are many runs.
/// Fails if the runs have different plans or machines, or `dirs` holds a run twice.
pub fn pool(dirs: &[PathBuf], out: &Path) -> anyhow::Result<()> {
    let runs: Result<Vec<Run>, _> = dirs.iter().map(|dir| Run::read(dir)).collect();
    let runs = runs?;
    if let Err(problem) = check_same_plan(&runs) {
        anyhow::bail!("{problem}\n  fix: join only runs of one plan on one machine");
    }
    if let Some(run) = runs.iter().find(|run| !run.plan.merged.is_empty()) {
        anyhow::bail!(
            "{}: a merged run cannot be joined with others: its epochs belong to several shards",
            run.dir.display()
        );
    }
    check_distinct(&runs.iter().collect::<Vec<_>>()).map_err(anyhow::Error::msg)?;
    let mut made_up = runs.iter().filter_map(|run| Some((run, run.model_files.as_ref()?)));
    if let Some((first, files)) = made_up.next()
        && let Some((other, _)) = made_up.find(|(_, others)| !files.agrees_with(others))
    {
        anyhow::bail!(
            "{} and {} have different results in {MODEL_FILES}, and a joined run has one such file\n  fix: name the runs one by one, as in `ctxbench decide RUN RUN`",
            first.dir.display(),
            other.dir.display()
        );
    }
    let first = &runs[0];
    let mut plan = first.plan.clone();
    let names = dirs.iter().map(|dir| dir.display().to_string());
    plan.command = format!("ctxbench report {}", names.collect::<Vec<_>>().join(" "));
    for section in &mut plan.schedule.sections {
        // The runs have one plan, so each has the section.
        section.budget_ms = section.budget_ms.saturating_mul(runs.len() as u64);
        section.epochs = section.epochs.saturating_mul(runs.len() as u32);
        // Only the last look's alpha is left: cells decided at an earlier look have spent that look's alpha.
        let alpha = section.looks.0.last().map_or(0.01, |look| look.alpha);
        section.looks = Looks(vec![Look { epochs: section.epochs, alpha }]);
    }
    let policy = first.policy.as_deref();
    let writer = Writer::create(out, &plan, &first.environment, policy, &first.contexts)?;
    let mut before = RecordCounts::default();
    for run in &runs {
        writer.append(run, &mut before)?;
    }
    Ok(())
}
