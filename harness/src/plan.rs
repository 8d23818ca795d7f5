//! The plan of a run: cells to measure and cells to skip. A pure function of the suite and the backends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use backends::backend::{Access, Backend, Unavailable, Versions};
use rundir::faults::{KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS};
use rundir::{Arm, ArmBackend, ModelFilesPlan, Plan, PlannedWorkload, SCHEMA_VERSION, Skipped};
use workloads::definition::{CacheState, Workload};
use workloads::script::Script;
use workloads::suite::Suite;

use crate::pass::{unsupported_by_program, unsupported_in_tasks};
use replay::in_process;
use replay::tools::unsupported;
use replay::{program, program_directories};

/// The baseline: the backend that the others are compared with.
pub const BASELINE: &str = "direct";

/// The A/A arm: the baseline a second time.
pub const AA_ARM: &str = "direct-again";

/// The seed of generated histories of model files. Recordings hold the answers for this seed only.
const MODEL_FILES_SEED: u64 = 1;

/// The most reads of a workload for a backend that asks a model at each read.
const GUESSES_MAX: usize = 16;

/// An arm with its backend.
#[derive(Clone)]
pub struct LiveArm {
    pub name: String,
    pub backend: Arc<dyn Backend>,
    /// By how many percent its calls are lengthened on purpose; `None` for a normal arm.
    pub slowed_percent: Option<u32>,
    /// The arm that it is compared with, if not the baseline.
    pub against: Option<String>,
    /// The versions of its software, or why it cannot be used.
    pub versions: Result<Versions, Unavailable>,
}

impl LiveArm {
    fn of(backend: &Arc<dyn Backend>) -> Self {
        Self {
            name: backend.describe().name,
            backend: Arc::clone(backend),
            slowed_percent: None,
            against: None,
            versions: backend.versions(),
        }
    }
}

/// The suite, arms and workloads of a plan.
pub struct Inputs<'a> {
    pub suite: &'a Suite,
    /// The arms, in the order of reports.
    pub arms: &'a [LiveArm],
    /// The suite's workloads, in its order.
    pub workloads: &'a [Arc<Workload>],
    /// Tokens of all tool results of an agent workload, by its name.
    pub result_tokens: &'a BTreeMap<String, u64>,
    /// Whether the kernel's caches can be dropped.
    pub can_drop_caches: bool,
}

/// Makes the plan. `given` has its name, its times and settings, and its policies.
pub fn plan(inputs: &Inputs<'_>, given: Plan) -> Plan {
    let workloads = inputs.suite.workloads.iter().zip(inputs.workloads);
    let mut plan = Plan {
        schema: SCHEMA_VERSION,
        essay: inputs.suite.essay.trim().to_owned(),
        probes: inputs.suite.probes,
        model_files: inputs
            .suite
            .model_files
            .as_ref()
            .map(|files| ModelFilesPlan {
                lengths: files.lengths.clone(),
                histories: files.histories,
                reads: files.reads,
                seed: MODEL_FILES_SEED,
                is_brief: files.brief,
            }),
        arms: inputs
            .arms
            .iter()
            .map(|live| Arm {
                only: inputs
                    .suite
                    .only
                    .get(&live.name)
                    .cloned()
                    .unwrap_or_default(),
                ..arm(live)
            })
            .collect(),
        workloads: workloads
            .map(|(entry, workload)| {
                let states = entry.states.iter().map(|state| state.name().to_owned());
                PlannedWorkload {
                    epochs: entry.epochs,
                    ..planned_workload(workload, states.collect(), inputs.result_tokens)
                }
            })
            .collect(),
        features: match inputs.suite.probes {
            true => crate::probe::short_features()
                .map(crate::probe::feature_name)
                .collect(),
            false => Vec::new(),
        },
        ..given
    };
    for (entry, workload) in inputs.suite.workloads.iter().zip(inputs.workloads) {
        for state in &entry.states {
            let only = |arm: &&LiveArm| inputs.suite.only.get(&arm.name);
            let takes_part =
                |arm: &&LiveArm| only(arm).is_none_or(|names| names.contains(&workload.name));
            for arm in inputs.arms.iter().filter(takes_part) {
                if let Some(reason) = skip_reason(arm, workload, *state, inputs.can_drop_caches) {
                    plan.skipped.push(Skipped {
                        arm: arm.name.clone(),
                        workload: workload.name.clone(),
                        state: state.name().to_owned(),
                        reason,
                    });
                }
            }
        }
    }
    plan
}

/// The arms for these backends. The A/A arm follows the baseline.
pub fn arms(backends: Vec<Arc<dyn Backend>>) -> Vec<LiveArm> {
    let mut arms = Vec::new();
    for backend in &backends {
        let arm = LiveArm::of(backend);
        let aa_arm = (arm.name == BASELINE).then(|| LiveArm {
            name: AA_ARM.to_owned(),
            ..arm.clone()
        });
        arms.push(arm);
        arms.extend(aa_arm);
    }
    arms
}

/// The record of an arm in a plan.
pub fn arm(live: &LiveArm) -> Arm {
    let described = live.backend.describe();
    let (versions, unavailable) = match &live.versions {
        Ok(versions) => (versions.clone(), None),
        Err(reason) => (Versions::new(), Some(reason.to_string())),
    };
    let needs = described.needs.iter();
    Arm {
        name: live.name.clone(),
        same_as: (live.name == AA_ARM).then(|| BASELINE.to_owned()),
        slowed_percent: live.slowed_percent,
        against: live.against.clone(),
        only: Vec::new(),
        unavailable,
        backend: ArmBackend {
            name: described.name.clone(),
            file: described
                .file
                .as_ref()
                .map(|file| file.to_string_lossy().into_owned()),
            summary: described.summary.clone(),
            durability: described.durability.clone(),
            holds_data: described.capabilities.holds_data,
            persistent: described.capabilities.persistent,
            counts_requests: described.capabilities.counts_requests,
            has_bucket: live.backend.promises().machine_loss.is_some(),
            promises: promised(&*live.backend),
            daemons: described.daemons,
            mounts: described.mounts,
            needs: needs
                .map(|need| format!("{}: {}", need.name, need.why))
                .collect(),
            gives: live
                .backend
                .gives()
                .map(|gives| gives.iter().map(|name| (*name).to_owned()).collect()),
            lines_of_code: described.lines_of_code,
            versions,
        },
    }
}

/// The arms for these backends without an A/A arm.
pub fn single_arms(backends: &[Arc<dyn Backend>]) -> Vec<LiveArm> {
    backends.iter().map(LiveArm::of).collect()
}

/// The call after which a backend keeps data, by kind of loss.
fn promised(backend: &dyn Backend) -> BTreeMap<String, String> {
    let promises = backend.promises();
    let promised = [
        (KILLED_DAEMON, promises.killed_daemon),
        (POWER_LOSS, promises.power_loss),
        (MACHINE_LOSS, promises.machine_loss),
    ];
    let promised = promised.into_iter();
    promised
        .filter_map(|(loss, call)| Some((loss.to_owned(), call?.name().to_owned())))
        .collect()
}

fn planned_workload(
    workload: &Workload,
    states: Vec<String>,
    result_tokens: &BTreeMap<String, u64>,
) -> PlannedWorkload {
    let script = &workload.script;
    let turns = &script.think_ms;
    PlannedWorkload {
        name: workload.name.clone(),
        file: workload
            .file
            .as_ref()
            .map(|file| file.display().to_string()),
        essay: workload.essay.clone(),
        sha256: workload.sha256.clone(),
        states,
        epochs: None,
        calls: script
            .timed_calls()
            .into_iter()
            .map(|(kind, count)| (kind.to_string(), count))
            .collect(),
        not_replayed: script.not_replayed.clone(),
        commands: script.commands.clone(),
        result_tokens: result_tokens.get(&workload.name).copied(),
        session_ms: (!turns.is_empty()).then(|| turns.iter().sum()),
        turns: (!turns.is_empty()).then_some(turns.len() as u64),
    }
}

/// How many operations of a script read file content.
fn content_reads(script: &Script) -> usize {
    let ops = script.calls.iter().flat_map(|call| &call.ops);
    let reads = ops.filter(|op| op.reads_content());
    reads.count()
}

/// Why a program cannot run, with the package that has it.
fn missing_program(needs: &BTreeMap<String, String>) -> Option<String> {
    needs.iter().find_map(|(need, package)| {
        let words: Vec<&str> = need.split(' ').collect();
        let problem = match &words[..] {
            [name] => {
                let is_there = program_directories().any(|dir| dir.join(name).is_file());
                (!is_there).then(|| format!("{name} is not installed"))
            }
            [name, arguments @ ..] => {
                let output = program(name, arguments, Path::new("/")).output();
                let succeeds = output.is_ok_and(|output| output.status.success());
                (!succeeds).then(|| format!("`{need}` fails"))
            }
            [] => None,
        };
        Some(format!("{}: `apt-get install {package}`", problem?))
    })
}

fn skip_reason(
    arm: &LiveArm,
    workload: &Workload,
    state: CacheState,
    can_drop_caches: bool,
) -> Option<String> {
    let described = arm.backend.describe();
    let name = &described.name;
    if let Err(reason) = &arm.versions {
        return Some(reason.to_string());
    }
    if let Some(reason) = unsupported_in_tasks(&workload.script, name, &*arm.backend) {
        return Some(reason);
    }
    if workload.script.tasks.is_some() {
        return None;
    }
    if !described.capabilities.holds_data && !workload.fits_fixed_tree {
        return Some(format!(
            "{name} holds nothing: it takes part only in workloads whose names and bytes are fixed"
        ));
    }
    match arm.backend.access() {
        Access::Paths => {}
        Access::Client => {
            if let Some(reason) = in_process::unsupported(&workload.script) {
                return Some(format!("{name}: {reason}"));
            }
            if state == CacheState::Lukewarm {
                return Some(format!("{name} keeps nothing: there is no cache to empty"));
            }
        }
        Access::Program => {
            if let Some(reason) = unsupported_by_program(&workload.script) {
                return Some(format!("{name}: {reason}"));
            }
            if state != CacheState::Hot {
                return Some(format!(
                    "the state of the caches that {name} meets is not proved"
                ));
            }
        }
        Access::Tools => {
            if workload.name.starts_with("micro/") {
                return Some(format!(
                    "{name} is reached by tool calls only: it has no path for a POSIX operation"
                ));
            }
            if let Some(reason) = unsupported(&workload.script) {
                return Some(format!("{name}: {reason}"));
            }
            if state != CacheState::Hot {
                return Some(format!(
                    "{name} is in the agent's own memory: there is no cache to empty"
                ));
            }
        }
    }
    if let Some(reason) = missing_program(&workload.needs) {
        return Some(reason);
    }
    if described.capabilities.guesses_content && workload.script.runs_programs() {
        return Some(format!(
            "{name} asks a model whenever a program reads a file"
        ));
    }
    let reads = content_reads(&workload.script);
    if described.capabilities.guesses_content && reads > GUESSES_MAX {
        return Some(format!(
            "{name} asks a model at each of its {reads} reads, for seconds; agent/shortened has few"
        ));
    }
    if reads > 0
        && let Some(reason) = arm.backend.lacks(&workload.name, &workload.sha256)
    {
        return Some(reason);
    }
    if workload.asks && !described.capabilities.answers_requests {
        return Some(format!("{name} only holds files: it answers no requests"));
    }
    if workload.script.needs_second_host() && !described.capabilities.several_hosts {
        return Some(format!(
            "{name} allows one mount at a time: a second mount is refused, or shows none of the files"
        ));
    }
    if state == CacheState::Cold && !described.capabilities.persistent {
        return Some(format!("what {name} holds is gone when its daemon stops"));
    }
    if described.capabilities.starts_empty && state != CacheState::Cold {
        return Some(format!(
            "{name} differs from the backend without `-fresh` once its daemon was started anew: only cold cells show it"
        ));
    }
    if state != CacheState::Hot && !can_drop_caches {
        return Some(
            "only root can drop the kernel's caches (fix: run as root, for instance `sudo make bench`)"
                .to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use backends::registry::Registry;
    use rundir::{Looks, Schedule};
    use workloads::catalogue;

    /// An arm whose backend can be used.
    fn usable(backend: &str) -> LiveArm {
        LiveArm {
            versions: Ok(Versions::new()),
            ..LiveArm::of(&Registry::default().find(backend).unwrap().into())
        }
    }

    fn planned(seed: u64, can_drop_caches: bool, fuse: bool) -> Plan {
        let text = r#"
essay = "e"
backends = ["direct", "null", "memory", "sqlite", "state"]
[[workload]]
name = "micro/read-1k"
states = ["hot", "lukewarm", "cold"]
[[workload]]
name = "agent/vsm-cycle"
states = ["hot"]
"#;
        let suite = Suite::parse(Path::new("s.toml"), text).unwrap();
        let found = suite
            .backends
            .iter()
            .map(|name| Registry::default().find(name).unwrap().into());
        let mut arms = arms(found.collect());
        for arm in &mut arms {
            arm.versions = if fuse || arm.backend.describe().daemons == 0 {
                Ok(Versions::new())
            } else {
                Err(Unavailable {
                    reason: "no /dev/fuse".to_owned(),
                    fix: "modprobe fuse".to_owned(),
                })
            };
        }
        let workloads: Vec<Arc<Workload>> = suite
            .workloads
            .iter()
            .map(|entry| Arc::new(catalogue::workload(&entry.name).unwrap()))
            .collect();
        let inputs = Inputs {
            suite: &suite,
            arms: &arms,
            workloads: &workloads,
            result_tokens: &BTreeMap::from([("agent/vsm-cycle".to_owned(), 7)]),
            can_drop_caches,
        };
        let given = Plan {
            suite: "test".to_owned(),
            created: "now".to_owned(),
            seed,
            schedule: Schedule {
                budget_ms: 1000,
                epochs: 3,
                rounds: 4,
                looks: Looks::within(3),
            },
            ..Plan::default()
        };
        plan(&inputs, given)
    }

    #[test]
    fn a_cell_holds_every_arm_that_can_take_part() {
        let plan = planned(1, true, true);
        let cells = crate::schedule::all_cells(&plan);
        let arms: Vec<usize> = cells.iter().map(|cell| cell.arms.len()).collect();
        // read-1k: 5 arms hot, 5 lukewarm, 4 cold, because `memory` is not persistent. vsm-cycle: 4 arms, because
        // `null` holds no data. `state` is in none: its tools have no paths and no rename.
        assert_eq!(arms, [5, 5, 4, 4]);
    }

    #[test]
    fn a_backend_takes_part_in_its_workloads_only_and_is_not_called_unable() {
        let mut plan = planned(1, true, true);
        plan.arms[4].only = vec!["agent/vsm-cycle".to_owned()];
        let cells = crate::schedule::all_cells(&plan);
        let with_store = cells.iter().map(|cell| cell.arms.contains(&4));
        assert_eq!(with_store.collect::<Vec<_>>(), [false, false, false, true]);
        assert!(
            plan.skipped
                .iter()
                .all(|cell| cell.arm != plan.arms[4].name)
        );
    }

    #[test]
    fn the_plan_skips_an_unmeasurable_cell_with_its_reason() {
        let reason = |plan: &Plan, arm: &str, state: &str| {
            let skipped = plan.skipped.iter();
            let mut reasons = skipped.filter(|s| s.arm == arm && s.state == state);
            reasons.next().map(|s| s.reason.clone()).unwrap_or_default()
        };
        let plan = planned(1, true, true);
        assert!(reason(&plan, "memory", "cold").contains("gone when its daemon stops"));
        assert!(reason(&plan, "null", "hot").contains("holds nothing"));
        assert_eq!(reason(&plan, "sqlite", "cold"), "");

        assert!(reason(&plan, "state", "hot").contains("no path for a POSIX operation"));

        let plan = planned(1, false, true);
        assert!(reason(&plan, "direct", "lukewarm").contains("only root can drop"));

        let plan = planned(1, true, false);
        assert!(reason(&plan, "sqlite", "hot").contains("no /dev/fuse"));
        assert!(
            plan.arms[4]
                .unavailable
                .as_ref()
                .unwrap()
                .contains("modprobe fuse")
        );
        for cell in crate::schedule::all_cells(&plan) {
            assert_eq!(cell.arms, [0, 1], "direct still runs, twice");
        }
    }

    #[test]
    fn a_model_arm_skips_many_reads_and_a_recording_skips_unrecorded_workloads() {
        use backends::services::model::RECORDED;
        let reason = |arm: &str, workload: &str| {
            let workload = catalogue::workload(workload).unwrap();
            skip_reason(&usable(arm), &workload, CacheState::Hot, true).unwrap_or_default()
        };
        for arm in ["llm-history", "llm-history-given", "llm-history-recorded"] {
            assert!(reason(arm, "micro/read-1k").contains("at each of its 1024 reads"));
            assert_eq!(reason(arm, "micro/stat"), "");
        }
        assert_eq!(reason("llm-history", "agent/shortened"), "");
        assert!(reason("llm-history", "agent/vsm-cycle").contains("asks a model"));
        for name in ["micro/read-1k", "agent/shortened", "agent/vsm-cycle"] {
            assert_eq!(reason("llm-generate", name), "");
        }
        let is_recorded = !RECORDED.is_empty();
        let lacking = reason("llm-history-recorded", "agent/shortened");
        assert_eq!(lacking.is_empty(), is_recorded, "{lacking}");
        for (name, sha256) in RECORDED {
            let workload = catalogue::workload(name).unwrap();
            assert_eq!(
                &workload.sha256, sha256,
                "{name} has changed: its recording is another workload's"
            );
        }
    }

    #[test]
    fn a_two_host_workload_skips_backends_that_one_host_mounts() {
        for workload in ["agent/handoff", "agent/two-writers"] {
            let reason = |arm: &str| {
                let workload = catalogue::workload(workload).unwrap();
                skip_reason(&usable(arm), &workload, CacheState::Hot, true).unwrap_or_default()
            };
            for arm in ["direct", "s3", "s3-close@30ms", "bind", "seaweedfs"] {
                assert_eq!(reason(arm), "", "{arm}");
            }
            for arm in ["sqlite", "memory", "agentfs"] {
                assert!(reason(arm).contains("one mount at a time"), "{arm}");
            }
            assert!(reason("state").contains("takes a file system"));
        }
    }

    #[test]
    fn a_plan_survives_its_file() {
        let plan = planned(1, true, true);
        let text = toml::to_string_pretty(&plan).unwrap();
        assert_eq!(toml::from_str::<Plan>(&text).unwrap(), plan);
    }
}
