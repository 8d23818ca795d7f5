//! The plan of a run: cells to measure and cells to skip. A pure function of the suite and the backends.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arms::backend::{Backend, Unavailable, Versions};
use rundir::faults::{KILLED_DAEMON, MACHINE_LOSS, POWER_LOSS};
use rundir::{
    Arm, ArmBackend, Looks, ModelFilesPlan, Placement, Plan, PlannedWorkload, RUN_DIRECTORY_VERSION, Section,
    SkippedCell, cache_state,
};
use stats::MIN_EPOCHS;
use trial::features::{Feature, short_features};
use trial::probes::probe_names;
use workloads::definition::{CacheState, Workload};
use workloads::script::{FileOp, Script};
use workloads::suite::{Suite, SuiteSection};

use crate::cell::SETTLING;
use crate::pass::{Driver, driver, unsupported_in_tasks};
use crate::schedule::all_cells;
use replay::{program, program_directories};

/// The baseline: the backend that the others are compared with.
pub const BASELINE: &str = "direct";

/// Kills, and power cuts, of each store of a run with probes: 0 lost of 60 is at most 5 % with 95 % confidence.
const CRASH_POINTS: u64 = 60;

/// The A/A arm: the baseline a second time.
pub const AA_ARM: &str = backends::registry::AA_ARM;

/// The seed of generated histories of model files. Recordings hold the answers for this seed only.
const MODEL_FILES_SEED: u64 = 1;

/// The most reads of a workload for a backend that asks a model at each read.
const GUESSES_MAX: usize = 16;

/// An arm with its backend.
#[derive(Clone)]
pub struct LiveArm {
    /// Its name in reports: the backend's, with a suffix for a second use of it.
    pub name: String,
    /// What mounts it.
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
    /// The sections with their shares of the budget.
    pub suite: &'a Suite,
    /// The arms, in the order of reports.
    pub arms: &'a [LiveArm],
    /// The workloads of the suite's sections, each once.
    pub workloads: &'a [Arc<Workload>],
    /// Tokens of all tool results of an agent workload, by its name.
    pub result_tokens: &'a BTreeMap<String, u64>,
    /// Whether the kernel's caches can be dropped.
    pub can_drop_caches: bool,
}

/// Makes the plan. `given` has its name, its times and settings, and its policies.
pub fn plan(inputs: &Inputs<'_>, given: Plan) -> Plan {
    let mut plan = Plan {
        schema: RUN_DIRECTORY_VERSION,
        essay: inputs.suite.essay.trim().to_owned(),
        probes: inputs.suite.probes,
        crash_points: if inputs.suite.probes { CRASH_POINTS } else { 0 },
        model_files: inputs.suite.model_files.as_ref().map(|files| ModelFilesPlan {
            lengths: files.lengths.clone(),
            histories: files.histories,
            reads: files.reads,
            seed: MODEL_FILES_SEED,
            is_brief: files.brief,
        }),
        arms: inputs
            .arms
            .iter()
            .map(|live| Arm { only: inputs.suite.only.get(&live.name).cloned().unwrap_or_default(), ..arm(live) })
            .collect(),
        workloads: inputs
            .workloads
            .iter()
            .map(|workload| {
                let sections = given.schedule.sections.iter();
                let states = sections.filter_map(|section| section.cells.get(&workload.name));
                let states = states.flatten().cloned().collect();
                planned_workload(workload, states, inputs.result_tokens)
            })
            .collect(),
        features: if inputs.suite.probes { short_features().map(Feature::full_name).collect() } else { Vec::new() },
        probed: if inputs.suite.probes { probe_names() } else { BTreeMap::new() },
        ..given
    };
    let mut skipped = Vec::new();
    for (planned, workload) in plan.workloads.iter().zip(inputs.workloads) {
        for name in &planned.states {
            let mut states = workload.states.iter();
            let Some(state) = states.find(|state| state.name() == cache_state(name)) else {
                continue;
            };
            let takes_part = |arm: &&LiveArm| plan.takes_part(&arm.name, &workload.name, name);
            for arm in inputs.arms.iter().filter(takes_part) {
                if let Some(reason) = skip_reason(arm, workload, *state, inputs.can_drop_caches) {
                    skipped.push(SkippedCell {
                        arm: arm.name.clone(),
                        workload: workload.name.clone(),
                        state: name.clone(),
                        reason,
                    });
                }
            }
        }
    }
    plan.skipped = skipped;
    plan
}

/// The sections of a suite with these arms and workloads, each of which has a budget from `budget`.
pub fn sections(
    suite: &Suite,
    arms: &[LiveArm],
    budget: impl Fn(&SuiteSection) -> f64,
    epochs: u32,
    rounds: u32,
) -> Vec<Section> {
    let section = |own: &SuiteSection| {
        let placement = if own.shared_cpu { Placement::SharedCpu } else { Placement::Free };
        let epochs = own.epochs.unwrap_or(epochs);
        let takes_part = |arm: &&LiveArm| {
            let is_second = arm.name == AA_ARM;
            let named = if is_second { BASELINE } else { &arm.backend.describe().name };
            let is_named =
                own.backends.as_ref().is_none_or(|names| named == BASELINE || names.iter().any(|name| name == named));
            // Nothing is compared with the second of two identical arms.
            is_named && !(own.counts && is_second)
        };
        Section {
            name: own.name.clone(),
            budget_ms: (budget(own) * 1000.0).ceil() as u64,
            epochs,
            rounds: own.rounds.unwrap_or(rounds),
            placement,
            warm_up: own.warm_up,
            counts: own.counts,
            arms: arms.iter().filter(takes_part).map(|arm| arm.name.clone()).collect(),
            cells: own
                .workloads
                .iter()
                .map(|entry| {
                    let states = entry.states.iter();
                    let states = states.map(|state| placement.state(state.name()));
                    (entry.name.clone(), states.collect())
                })
                .collect(),
            looks: Looks::at_end(epochs),
        }
    };
    suite.sections.iter().map(section).collect()
}

/// A daemon cannot start, mount, unmount and end in less.
const LEAST_DAEMON: Duration = Duration::from_millis(10);

/// A program cannot start and end in less.
const LEAST_PROGRAM: Duration = Duration::from_millis(1);

/// A lower bound of the time that a section needs: for one timed round of each cell in the fewest epochs. It holds on any
/// machine, so the real time is longer.
pub fn least_time(plan: &Plan, section: usize, workloads: &[Arc<Workload>], arms: &[LiveArm]) -> Duration {
    let cells = all_cells(plan).into_iter();
    let cells = cells.filter(|cell| cell.section == section);
    let epoch: Duration = cells
        .map(|cell| {
            let workload = &workloads[cell.workload];
            let state = &plan.workloads[cell.workload].states[cell.state];
            let is_hot = cache_state(state) == CacheState::Hot.name();
            let is_cold = cache_state(state) == CacheState::Cold.name();
            let passes = 1 + u32::from(is_hot && plan.schedule.sections[section].warm_up);
            let script = &workload.script;
            let pauses = script.calls.iter().map(|call| call.pause_ms).sum();
            let runs = script.calls.iter().flat_map(|call| &call.ops);
            let runs = runs.filter(|op| matches!(op, FileOp::Run(_))).count() as u32;
            let pass = Duration::from_millis(pauses) + LEAST_PROGRAM * runs;
            let daemons = cell.arms.iter();
            let daemons: u32 = daemons.map(|arm| arms[*arm].backend.describe().daemons.min(1)).sum();
            let starts = daemons * (1 + u32::from(is_cold)) * script.hosts();
            let settling = if is_hot { Duration::ZERO } else { SETTLING };
            LEAST_DAEMON * starts + pass * passes * cell.arms.len() as u32 + settling
        })
        .sum();
    epoch * MIN_EPOCHS as u32
}

/// The arms for these backends. The A/A arm follows the baseline.
pub fn arms(backends: Vec<Arc<dyn Backend>>) -> Vec<LiveArm> {
    let mut arms = Vec::new();
    for backend in &backends {
        let arm = LiveArm::of(backend);
        let aa_arm = (arm.name == BASELINE).then(|| LiveArm { name: AA_ARM.to_owned(), ..arm.clone() });
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
            file: described.file.as_ref().map(|file| file.to_string_lossy().into_owned()),
            summary: described.summary.clone(),
            durability: described.durability.clone(),
            holds_data: described.capabilities.holds_data,
            persistent: described.capabilities.persistent,
            counts_requests: described.capabilities.counts_requests,
            has_bucket: live.backend.promises().machine_loss.is_some(),
            is_practice: described.capabilities.is_practice,
            promises: promised(&*live.backend),
            daemons: described.daemons,
            mounts: described.mounts,
            needs: needs.map(|need| format!("{}: {}", need.name, need.why)).collect(),
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
    promised.filter_map(|(loss, call)| Some((loss.to_owned(), call?.name().to_owned()))).collect()
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
        file: workload.file.as_ref().map(|file| file.display().to_string()),
        essay: workload.essay.clone(),
        sha256: workload.sha256.clone(),
        states,
        calls: script.timed_calls().into_iter().map(|(kind, count)| (kind.to_string(), count)).collect(),
        syncs: script.kinds_that_sync().into_iter().map(|kind| kind.to_string()).collect(),
        not_replayed: script.not_replayed.clone(),
        commands: script.commands.clone(),
        result_tokens: result_tokens.get(&workload.name).copied(),
        // All turns of a recording without times are 0 long.
        session_ms: Some(turns.iter().sum()).filter(|ms| *ms > 0),
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

fn skip_reason(arm: &LiveArm, workload: &Workload, state: CacheState, can_drop_caches: bool) -> Option<String> {
    let described = arm.backend.describe();
    let name = &described.name;
    if let Err(reason) = &arm.versions {
        return Some(reason.to_string());
    }
    if let Some(reason) = &workload.missing {
        // Its script is empty: passes of it would succeed without a call.
        return Some(reason.clone());
    }
    if let Some(reason) = unsupported_in_tasks(&workload.script, name, &*arm.backend) {
        return Some(reason);
    }
    if workload.script.tasks.is_some() {
        return None;
    }
    if !described.capabilities.holds_data && !workload.fits_fixed_tree {
        return Some(format!("{name} holds no data; it takes part only in workloads whose names and bytes are fixed"));
    }
    let reads = content_reads(&workload.script);
    if described.capabilities.guesses_content && reads > GUESSES_MAX {
        return Some(format!(
            "{name} asks a model at each of the {reads} reads, which takes seconds each; agent/shortened has few reads"
        ));
    }
    if reads > 0
        && let Some(reason) = arm.backend.unsupported_reason(&workload.name, &workload.sha256)
    {
        return Some(reason);
    }
    let driver: Box<dyn Driver> = driver(&workload.script, &*arm.backend);
    let has_subtrees = !driver.rules().lacks_paths
        && !described.capabilities.guesses_content
        && !described.capabilities.changes_source;
    if workload.script.filler.count > 0 && !has_subtrees {
        return Some(format!("{name} has no directory for filler files beside that of the workload"));
    }
    if let Some(reason) = driver.unsupported(workload, state, &described) {
        return Some(reason);
    }
    if let Some(reason) = missing_program(&workload.needs) {
        return Some(reason);
    }
    if workload.asks && !described.capabilities.answers_requests {
        return Some(format!("{name} only holds files, and answers no search requests"));
    }
    if state == CacheState::Cold && !described.capabilities.persistent {
        return Some(format!("{name} loses its data when its daemon stops"));
    }
    if described.capabilities.starts_empty && state != CacheState::Cold {
        return Some(format!(
            "{name} differs from the backend without `-fresh` only after a restart of its daemon, so it takes part only in cold cells"
        ));
    }
    if state != CacheState::Hot && !can_drop_caches {
        return Some(
            "only root can drop the kernel's caches (fix: run as root, for instance `sudo make bench`)".to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use backends::registry::Registry;

    use super::*;
    use rundir::Schedule;
    use workloads::catalogue;

    /// An arm whose backend can be used.
    fn usable(backend: &str) -> LiveArm {
        LiveArm { versions: Ok(Versions::new()), ..LiveArm::of(&Registry::default().find(backend).unwrap().into()) }
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
        let found = suite.backends.iter().map(|name| Registry::default().find(name).unwrap().into());
        let mut arms = arms(found.collect());
        for arm in &mut arms {
            arm.versions = if fuse || arm.backend.describe().daemons == 0 {
                Ok(Versions::new())
            } else {
                Err(Unavailable { reason: "no /dev/fuse".to_owned(), fix: "modprobe fuse".to_owned() })
            };
        }
        let workloads: Vec<Arc<Workload>> =
            suite.workloads().map(|entry| Arc::new(catalogue::workload(&entry.name).unwrap())).collect();
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
            schedule: Schedule { sections: sections(&suite, &arms, |_| 1.0, 3, 4) },
            ..Plan::default()
        };
        plan(&inputs, given)
    }

    #[test]
    fn a_cell_holds_every_arm_that_can_take_part() {
        let plan = planned(1, true, true);
        let cells = all_cells(&plan);
        let arms: Vec<usize> = cells.iter().map(|cell| cell.arms.len()).collect();
        // read-1k: 5 arms hot, 5 lukewarm, 4 cold, because `memory` is not persistent. vsm-cycle: 4 arms, because
        // `null` holds no data. `state` is in none: its tools have no paths and no rename.
        assert_eq!(arms, [5, 5, 4, 4]);
    }

    #[test]
    fn a_plan_names_the_calls_that_make_files_durable() {
        let plan = planned(1, true, true);
        let syncs = |name: &str| plan.workload(name).unwrap().syncs.clone();
        assert_eq!(syncs("micro/read-1k"), Vec::<String>::new());
        // A mail is delivered by a synced file.
        assert_eq!(syncs("agent/vsm-cycle"), ["fsync"]);
    }

    /// The plan of a suite with two sections over three backends, of which `direct` appears twice.
    fn of_sections(second: &str) -> (Plan, Vec<Arc<Workload>>, Vec<LiveArm>) {
        let text = format!(
            "essay = 'e'\nbackends = ['direct', 'memory', 'sqlite']\n[[section]]\nname = 'one'\nbudget = 4\n[[section.workload]]\nname = 'micro/read-1k'\nstates = ['hot', 'cold']\n[[section]]\nname = 'two'\n{second}\n[[section.workload]]\nname = 'micro/read-1k'\nstates = ['hot']\n"
        );
        let suite = Suite::parse(Path::new("s.toml"), &text).unwrap();
        let backends = suite.backends.iter();
        let backends = backends.map(|name| Registry::default().find(name).unwrap().into());
        let mut arms = arms(backends.collect());
        for arm in &mut arms {
            arm.versions = Ok(Versions::new());
        }
        let workloads = vec![Arc::new(catalogue::workload("micro/read-1k").unwrap())];
        let budget = |section: &SuiteSection| section.budget.unwrap_or(2.0);
        let given = Plan { schedule: Schedule { sections: sections(&suite, &arms, budget, 8, 60) }, ..Plan::default() };
        let inputs = Inputs {
            suite: &suite,
            arms: &arms,
            workloads: &workloads,
            result_tokens: &BTreeMap::new(),
            can_drop_caches: true,
        };
        (plan(&inputs, given), workloads, arms)
    }

    #[test]
    fn a_cell_of_another_placement_is_another_cell_of_another_section() {
        let (plan, ..) = of_sections("shared_cpu = true\nepochs = 5\nbackends = ['sqlite']");
        assert_eq!(plan.workloads[0].states, ["hot", "cold", "hot-shared-cpu"]);
        let [one, two] = &plan.schedule.sections[..] else {
            panic!("{plan:?}");
        };
        assert_eq!((one.placement, two.placement), (Placement::Free, Placement::SharedCpu));
        assert_eq!((one.budget_ms, two.budget_ms), (4_000, 2_000));
        assert_eq!((one.epochs, two.epochs), (8, 5));
        let cells = all_cells(&plan);
        let of = |section| cells.iter().filter(move |cell| cell.section == section);
        assert_eq!(of(0).map(|cell| cell.arms.len()).collect::<Vec<_>>(), [4, 3]);
        // Both identical arms, and the backend that the section names.
        assert_eq!(of(1).map(|cell| cell.arms.clone()).collect::<Vec<_>>(), [[0, 1, 3]]);
        assert_eq!(plan.alpha("micro/read-1k", "hot-shared-cpu", 5), 0.01);
        assert_eq!(plan.alpha("micro/read-1k", "hot", 5), 0.01);
    }

    #[test]
    fn a_section_that_counts_has_no_second_baseline_and_compares_nothing() {
        let (plan, ..) = of_sections("shared_cpu = true\ncounts = true");
        assert_eq!(plan.schedule.sections[1].arms, ["direct", "memory", "sqlite"]);
        assert!(!plan.compares("micro/read-1k", "hot-shared-cpu"));
        assert!(plan.compares("micro/read-1k", "hot"));
    }

    #[test]
    fn the_least_time_of_a_section_grows_with_its_daemons_and_states() {
        let (plan, workloads, arms) = of_sections("shared_cpu = true\nbackends = []");
        let least = |section| least_time(&plan, section, &workloads, &arms).as_millis();
        // Three epochs, in which two daemons start hot, and one starts twice in the cold cell.
        assert_eq!(least(0), 3 * (2 * 10 + 2 * 10 + SETTLING.as_millis()));
        assert_eq!(least(1), 0, "without daemons");
    }

    #[test]
    fn a_backend_takes_part_in_its_workloads_only_and_is_not_called_unable() {
        let mut plan = planned(1, true, true);
        plan.arms[4].only = vec!["agent/vsm-cycle".to_owned()];
        let cells = all_cells(&plan);
        let with_store = cells.iter().map(|cell| cell.arms.contains(&4));
        assert_eq!(with_store.collect::<Vec<_>>(), [false, false, false, true]);
        assert!(plan.skipped.iter().all(|cell| cell.arm != plan.arms[4].name));
    }

    #[test]
    fn the_plan_skips_an_unmeasurable_cell_with_its_reason() {
        let reason = |plan: &Plan, arm: &str, state: &str| {
            let skipped = plan.skipped.iter();
            let mut reasons = skipped.filter(|s| s.arm == arm && s.state == state);
            reasons.next().map(|s| s.reason.clone()).unwrap_or_default()
        };
        let plan = planned(1, true, true);
        assert!(reason(&plan, "memory", "cold").contains("loses its data when its daemon stops"));
        assert!(reason(&plan, "null", "hot").contains("holds no data"));
        assert_eq!(reason(&plan, "sqlite", "cold"), "");

        assert!(reason(&plan, "state", "hot").contains("no path for a POSIX operation"));

        let plan = planned(1, false, true);
        assert!(reason(&plan, "direct", "lukewarm").contains("only root can drop"));

        let plan = planned(1, true, false);
        assert!(reason(&plan, "sqlite", "hot").contains("no /dev/fuse"));
        assert!(plan.arms[4].unavailable.as_ref().unwrap().contains("modprobe fuse"));
        for cell in all_cells(&plan) {
            assert_eq!(cell.arms, [0, 1], "direct still runs, twice");
        }
    }

    #[test]
    fn a_memory_in_a_bucket_takes_part_in_searches_and_recalls() {
        for name in ["micro/find-by-request-1000", "micro/notes-recall-116"] {
            let workload = catalogue::workload(name).unwrap();
            let reason = |arm| skip_reason(&usable(arm), &workload, CacheState::Hot, true);
            for arm in ["agent-memory", "s3-embedded", "s3-close-embedded"] {
                assert_eq!(reason(arm), None, "{arm}");
            }
            for arm in ["direct", "sqlite"] {
                assert!(reason(arm).unwrap_or_default().contains("answers no search requests"), "{arm}");
            }
        }
    }

    #[test]
    fn every_arm_skips_a_workload_whose_corpus_is_not_installed() {
        let mut workload = catalogue::workload("micro/read-1k").unwrap();
        workload.missing = Some("corpus c: `make corpora` installs it".to_owned());
        for arm in ["direct", "memory", "sqlite", "agent-memory", "state", "null"] {
            let reason = skip_reason(&usable(arm), &workload, CacheState::Hot, true);
            assert!(reason.unwrap_or_default().contains("make corpora"), "{arm}");
        }
    }

    #[test]
    fn a_model_arm_skips_many_reads_and_a_recording_skips_unrecorded_workloads() {
        use arms::services::model::RECORDED;
        let reason = |arm: &str, workload: &str| {
            let workload = catalogue::workload(workload).unwrap();
            skip_reason(&usable(arm), &workload, CacheState::Hot, true).unwrap_or_default()
        };
        for arm in ["llm-history", "llm-history-given", "llm-history-recorded"] {
            assert!(reason(arm, "micro/read-1k").contains("at each of the 1024 reads"));
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
            assert_eq!(&workload.sha256, sha256, "{name} has changed: its recording is another workload's");
        }
    }

    #[test]
    fn a_two_host_workload_skips_backends_that_one_host_mounts() {
        for workload in ["agent/handoff", "agent/two-writers"] {
            let reason = |arm: &str| {
                let workload = catalogue::workload(workload).unwrap();
                skip_reason(&usable(arm), &workload, CacheState::Hot, true).unwrap_or_default()
            };
            for arm in ["s3", "s3-close@30ms", "bind", "seaweedfs"] {
                assert_eq!(reason(arm), "", "{arm}");
            }
            assert_eq!(reason("direct"), "direct keeps its files on one machine: no other host sees them");
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
