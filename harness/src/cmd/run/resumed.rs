//! Resumes an interrupted run.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use arms::backend::Backend;
use backends::registry::Registry;
use rundir::Writer;
use workloads::catalogue;

use super::Options;
use super::planned::PreparedRun;
use crate::environment::environment;
use runner::plan::arms;

impl Options {
    pub(super) fn resumed(&self, registry: &Registry, dir: &Path) -> anyhow::Result<PreparedRun> {
        let (writer, run) = Writer::resume(dir)?;
        if let Some(why) = run.plan.measures_nothing() {
            bail!("cannot resume {}: {why}\n  fix: start a new run", dir.display());
        }
        let mut workloads = Vec::new();
        for planned in &run.plan.workloads {
            let place = planned.file.as_ref().unwrap_or(&planned.name);
            let workload = catalogue::workload(place)?;
            if workload.sha256 != planned.sha256 {
                bail!(
                    "workload {} has changed since {} was planned\n  fix: start a new run",
                    planned.name,
                    dir.display()
                );
            }
            workloads.push(Arc::new(workload));
        }
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        for arm in run.plan.arms.iter().filter(|arm| arm.same_as.is_none() && arm.slowed_percent.is_none()) {
            let named = arm.backend.file.as_ref().unwrap_or(&arm.backend.name);
            let found = registry.find(named)?;
            if arm.unavailable.is_none() && found.versions().ok().as_ref() != Some(&arm.backend.versions) {
                bail!(
                    "backend {} has changed since {} was planned\n  fix: start a new run",
                    arm.backend.name,
                    dir.display()
                );
            }
            backends.push(found.into());
        }
        let mut arms = arms(backends);
        let slowed = run.plan.arms.iter().filter_map(|arm| arm.slowed_percent);
        let options = Options { slowed: slowed.filter(|percent| *percent > 0).collect(), ..self.clone() };
        arms.extend(options.slowed(&arms));
        let scratch = self.scratch(&workloads, arms.len())?;
        let (then, now) = (&run.environment, environment(scratch.receipt())?);
        for (what, then, now) in [
            ("the binary", &then.binary_sha256, &now.binary_sha256),
            ("the kernel", &then.kernel, &now.kernel),
            ("the processor", &then.cpu, &now.cpu),
            ("the scratch file system", &then.scratch.file_system, &now.scratch.file_system),
            ("the user", &then.user, &now.user),
        ] {
            if then != now {
                bail!(
                    "{}: {what} has changed since the run began ({then}; now {now}), so new figures do not fit the old ones\n  fix: start a new run",
                    dir.display()
                );
            }
        }
        Ok(PreparedRun {
            dir: dir.to_owned(),
            plan: run.plan.clone(),
            writer,
            environment: now,
            before: Some(run),
            workloads,
            arms,
            scratch,
        })
    }
}
