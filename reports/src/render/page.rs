//! The content and order of a report. Its formats are in `html` and `markdown`.

use std::collections::BTreeMap;

use super::bill::bill;
use super::claims::claims;
use super::contexts::contexts;
use super::decisions;
use super::endings::{conformance, endings, tools};
use super::excerpt::THE_REPORT;
use super::found::found;
use super::hosts::{hosts, syncs};
use super::latencies::{LATENCY_SHOWS, compared, margins, ratio_rows, ratios, sessions, states};
use super::model_files::model_files;
use super::part::Part::{self, Chart, Folded, Heading, Linked, List, Table, Text};
use super::part::{LinkedRow, command_anchor};
use super::placements::placements;
use super::programs::programs;
use super::report::Report;
use super::shell::shell;
use super::stems;
use super::tasks::tasks;
use crate::summary::{Cost, MAKESPAN, is_simulated};
use crate::text::{columns, count, time};
use rundir::{Basis, Outcome, Placement, cache_state};

pub(super) fn page(report: &Report<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    first_page(report, &mut parts);
    if report.run.plan.workloads.is_empty() {
        conformance(report, &mut parts);
        model_files(report, &mut parts);
        backends(report, &mut parts);
        return parts;
    }
    decisions::policies(&report.decisions, &mut parts);
    programs(report, &mut parts);
    ratios(report, &mut parts);
    states(report, &mut parts);
    placements(report, &mut parts);
    sessions(report, &mut parts);
    shell(report, &mut parts);
    syncs(report, &mut parts);
    hosts(report, &mut parts);
    found(report, &mut parts);
    tasks(report, &mut parts);
    contexts(report, &mut parts);
    costs(report, &mut parts);
    bill(report, &mut parts);
    tools(report, &mut parts);
    conformance(report, &mut parts);
    endings(report, &mut parts);
    model_files(report, &mut parts);
    claims(report, &mut parts);
    backends(report, &mut parts);
    method(report, &mut parts);
    parts
}

/// The results page of a run: origin, ratios and findings, without charts and lists of passes.
pub(super) fn results(report: &Report<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    first_page(report, &mut parts);
    conformance(report, &mut parts);
    programs(report, &mut parts);
    ratios(report, &mut parts);
    sessions(report, &mut parts);
    shell(report, &mut parts);
    syncs(report, &mut parts);
    hosts(report, &mut parts);
    found(report, &mut parts);
    tasks(report, &mut parts);
    memory(report, &mut parts);
    parts.retain(|part| !matches!(part, Chart(..) | Folded(..)));
    parts
}

/// The table of daemons' memory at the end of their cells: the maximum over epochs.
fn memory(report: &Report<'_>, parts: &mut Vec<Part>) {
    let mut most: BTreeMap<[&str; 3], (u64, u64)> = BTreeMap::new();
    let with_daemon = report.run.cells.iter();
    for cell in with_daemon.filter(|cell| cell.memory.resident > 0) {
        let largest = most
            .entry([&cell.workload, &cell.state, &cell.arm])
            .or_default();
        largest.0 = largest.0.max(cell.memory.resident);
        largest.1 = largest.1.max(cell.memory.peak);
    }
    if most.is_empty() {
        return;
    }
    let mebi = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let rows = most.into_iter().map(|(names, (resident, peak))| {
        let names = names.into_iter().map(str::to_owned);
        names.chain([mebi(resident), mebi(peak)]).collect()
    });
    parts.push(Heading(2, "Memory of daemons".to_owned()));
    let head = columns("workload | state | arm | resident at the end | most");
    parts.push(Table(head, rows.collect()));
}

/// The excerpt for a README: one chart, the sessions, the matrix of decisions, and a link to the report.
pub(super) fn excerpt(report: &Report<'_>) -> Vec<Part> {
    let plan = &report.run.plan;
    let health = &report.summary.health;
    let mut parts = vec![
        Text(format!(
            "This is from {THE_REPORT}: `ctxbench run`, suite {}, by ctxbench {}, {}, {}, {} passes in {:.0} s, on {} ({} processors), Linux {}.\nIts scratch: {}.\n{}.",
            plan.suite,
            plan.ctxbench,
            plan.created.split('T').next().unwrap_or_default(),
            health.epochs_in_words(),
            count(report.run.samples.len() as u64),
            health.took_ms as f64 / 1000.0,
            report.run.environment.cpu,
            report.run.environment.cpus,
            report.run.environment.kernel.split(' ').next().unwrap_or_default(),
            report.run.environment.scratch,
            health.identical_arms()
        )),
        List(health.notes.clone()),
        Chart(stems::LATENCY, LATENCY_SHOWS),
        Text("How long recorded agent sessions waited for files, as a ratio to the plain directory (99 % interval):".to_owned()),
        ratio_rows(report, |cell| cell.metric == MAKESPAN),
    ];
    parts.extend(decisions::excerpt(&report.decisions));
    parts
}

fn first_page(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    let environment = &report.run.environment;
    let health = &report.summary.health;
    parts.push(Heading(1, format!("ctxbench report: suite {}", plan.suite)));
    parts.push(Text(plan.essay.clone()));
    decisions::first_screen(&report.decisions, parts);
    if !report.others.is_empty() {
        let names = report.others.iter().filter_map(|dir| dir.file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        parts.push(Text(format!(
            "Decisions and claims rest on this run and on {}. All other figures are of this run.",
            names.join(", ")
        )));
    }
    // Health notes are about passes.
    if !health.notes.is_empty() && !plan.workloads.is_empty() {
        parts.push(List(health.notes.clone()));
    }
    let is_recorded = |name: &str| {
        let mut contexts = report.run.contexts.iter();
        contexts.any(|session| session.workload == name && session.basis == Basis::Recorded)
    };
    let idle = plan.workloads.iter();
    let idle = idle.filter(|one| one.calls.is_empty() && is_recorded(&one.name));
    let idle = idle.map(|one| {
        format!(
            "{}: nothing to replay: no recorded call is a file operation, so it has no times.",
            one.name
        )
    });
    let idle: Vec<String> = idle.collect();
    if !idle.is_empty() {
        parts.push(List(idle));
    }
    let passes = report.run.samples.len();
    let ok = report
        .run
        .samples
        .iter()
        .filter(|s| s.outcome == Outcome::Ok)
        .count();
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let machine = format!(
        "On {} ({} processors{}), Linux {}.",
        environment.cpu,
        environment.cpus,
        match &environment.hypervisor {
            Some(name) if name == "yes" => ", virtual".to_owned(),
            Some(name) => format!(", {name}"),
            None => String::new(),
        },
        environment.kernel.split(' ').next().unwrap_or_default(),
    );
    let scratch = format!(
        "Scratch: {}; options {}; features {}.",
        environment.scratch,
        environment.scratch.mount_options,
        match environment.scratch.features.is_empty() {
            true => "not known".to_owned(),
            false => environment.scratch.features.join(" "),
        }
    );
    if plan.workloads.is_empty() {
        let made = format!("Made {} by ctxbench {}.", plan.created, plan.ctxbench);
        return parts.push(List(vec![made, machine, scratch]));
    }
    let mut facts = vec![
        machine,
        format!(
            "Pressure while it was measured: tasks waited for a processor {}, for the disk {}, for memory {} of the time, the run's own tasks among them. The hypervisor gave {} of processor time to other machines. {} of {} timed passes were outside the plan's limits{}.",
            share(health.stalled[0]),
            share(health.stalled[1]),
            share(health.stalled[2]),
            share(health.steal),
            count(health.busy_passes as u64),
            count(health.passes as u64),
            busy(&health.busy)
        ),
        format!("{}.", health.identical_arms()),
        format!(
            "Measured {} by ctxbench {}, seed {}: {}, {} passes in {:.0} s, {} of them ended well; {} of hot cells' wall-clock was timed work.",
            plan.created,
            plan.ctxbench,
            plan.seed,
            health.epochs_in_words(),
            count(passes as u64),
            health.took_ms as f64 / 1000.0,
            count(ok as u64),
            health
                .hot_timed_share
                .map_or("an unknown share".to_owned(), share)
        ),
        scratch,
        format!(
            "{}. Margins, fixed before the run: {}.",
            health.verdicts(),
            margins(report)
        ),
    ];
    if plan
        .schedule
        .sections
        .iter()
        .any(|section| section.placement == Placement::SharedCpu)
    {
        facts.push("In the states that end in -shared-cpu, client and daemon share one processor, another one each epoch: no request wakes another processor. That is the best case, which users have only on one processor or in a container with one CPU. In all other states the scheduler places both, as users have it.".to_owned());
    }
    let has_clients =
        |workload: &rundir::PlannedWorkload| workload.calls.contains_key("concurrent");
    if plan.workloads.iter().any(has_clients) {
        facts.push("Workloads with several client processes are the exception: clients and daemon use all processors.".to_owned());
    }
    if environment.build.starts_with("debug") {
        facts.push("This was a DEBUG build: figures mean nothing.".to_owned());
    }
    facts.push(origins(report));
    parts.push(List(facts));
}

/// The limits that busy passes exceeded.
fn busy(reasons: &BTreeMap<String, usize>) -> String {
    let reasons = reasons
        .iter()
        .map(|(what, passes)| format!("{what}: {passes}"));
    let reasons: Vec<String> = reasons.collect();
    match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join("; ")),
    }
}

/// A sentence that names the simulated and recorded figures of the page, if any.
fn origins(report: &Report<'_>) -> String {
    let of_arm = |arm: &rundir::Arm| {
        let answers = arm.backend.versions.get("answers")?;
        (answers != "live").then(|| format!("the answers of {} are {answers}", arm.name))
    };
    let arms = report.run.plan.arms.iter();
    let mut other: Vec<String> = arms.clone().filter_map(of_arm).collect();
    let far = arms.filter(|arm| is_simulated(&arm.name));
    other.extend(far.map(|arm| {
        format!(
            "the distance of {} from its server is SIMULATED by our own proxy",
            arm.name
        )
    }));
    if let Some(found) = &report.run.model_files
        && !matches!(found.origin.as_str(), "" | "live")
    {
        other.push(format!(
            "the answers under \"Files that a language model makes up\" are {}",
            found.origin
        ));
    }
    if other.is_empty() {
        return "All latencies are live: nothing on this page is simulated or recorded.".to_owned();
    }
    format!(
        "All latencies are live, but for these, which are in no figure of another: {}.",
        other.join("; ")
    )
}

fn costs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let costs = &report.summary.costs;
    if costs.is_empty() {
        return;
    }
    parts.push(Heading(2, "Where the time goes".to_owned()));
    parts.push(Text("What a caller waits for one call, in three parts. Store: the time inside it. Front end: our code around the store. Kernel and queue: all the rest, which is the caller's own system calls, the kernel, the queue, waking up, reading and writing /dev/fuse. Counts are exact. Counts and parts of hot cells come from the warm-up pass of each epoch, which is in no latency: they show where time goes, not how long a hot call takes. Those of lukewarm and cold cells come from every pass. Processor times are around the timed calls; checking is outside.".to_owned()));
    parts.push(Chart(stems::COSTS, "Time of one call: kernel and queue, front end, store; caches hot where anything reached the daemon, else lukewarm."));
    let spent = |ns: f64| match ns > 0.0 {
        true => time(ns),
        false => "–".to_owned(),
    };
    let rows = costs.iter().map(|cost| {
        let counts = cost.store_counts.iter().filter(|(_, n)| **n >= 0.005);
        let counts: Vec<_> = counts.map(|(name, n)| format!("{name} {n:.2}")).collect();
        vec![
            cost.workload.clone(),
            cost.state.clone(),
            cost.arm.clone(),
            time(cost.service_ns),
            time(cost.kernel_and_queue_ns),
            spent(cost.front_end_ns),
            spent(cost.store_ns),
            format!("{:.2}", cost.requests),
            opcodes(cost),
            counts.join(", "),
            format!("{:.2}", cost.system_calls),
            count(cost.disk_written_bytes.round() as u64),
            time(cost.client_cpu_ns),
            spent(cost.daemon_cpu_ns),
        ]
    });
    let head = columns(
        "workload | state | arm | service time | kernel and queue | front end | store | \
         FUSE requests | requests of a kind a call × (front end + store) of each | \
         store's counts | system calls | bytes dirtied for the disk | client CPU | daemon CPU",
    );
    parts.push(Folded(
        "All cells".to_owned(),
        vec![Table(head, rows.collect())],
    ));
    let mut memory: Vec<Vec<String>> = Vec::new();
    for arm in compared(report) {
        let costs = report.summary.costs.iter().filter(|cost| cost.arm == arm);
        let peak = costs
            .clone()
            .map(|cost| cost.daemon_peak_bytes)
            .max()
            .unwrap_or(0);
        let ready_of = |cold: bool| {
            let costs = costs
                .clone()
                .filter(|cost| (cache_state(&cost.state) == "cold") == cold);
            let mut ready: Vec<u64> = costs.flat_map(|cost| cost.ready_ns.clone()).collect();
            ready.sort_unstable();
            let middle = ready.get(ready.len() / 2);
            middle.map_or("–".to_owned(), |ns| time(*ns as f64))
        };
        if peak > 0 {
            memory.push(vec![
                arm.to_owned(),
                format!("{:.1} MiB", peak as f64 / f64::from(1 << 20)),
                ready_of(false),
                ready_of(true),
            ]);
        }
    }
    let head = columns(
        "arm | daemon's peak memory | first start to usable mount, median | \
         cold restart to usable mount, median",
    );
    parts.push(Table(head, memory));
}

/// The opcodes with the most total time.
fn opcodes(cost: &Cost) -> String {
    const SHOWN: usize = 5;
    let frequent = cost.opcodes.iter().filter(|code| code.requests >= 0.005);
    let shown = frequent.take(SHOWN).map(|code| {
        format!(
            "{} {:.2} × ({} + {})",
            code.opcode,
            code.requests,
            time(code.front_end_ns),
            time(code.store_ns)
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn backends(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Backends".to_owned()));
    let rows = report.run.plan.arms.iter().map(|arm| {
        let backend = &arm.backend;
        let versions: Vec<_> = backend
            .versions
            .iter()
            .map(|(k, v)| format!("{k} {v}"))
            .collect();
        vec![
            arm.name.clone(),
            backend.summary.clone(),
            backend.durability.clone(),
            format!("{} daemon, {} mount", backend.daemons, backend.mounts),
            match backend.lines_of_code {
                0 => "not counted".to_owned(),
                lines => count(lines.into()),
            },
            match &arm.unavailable {
                Some(reason) => format!("SKIPPED: {reason}"),
                None => versions.join("; "),
            },
        ]
    });
    let head = columns("arm | what it is | what survives | runs | lines of code | receipt");
    parts.push(Table(head, rows.collect()));
    let essays = report.run.plan.workloads.iter();
    let essays = essays.map(|w| format!("{}: {}", w.name, w.essay));
    parts.push(Folded(
        "What the workloads stand for".to_owned(),
        vec![List(essays.collect())],
    ));
}

fn method(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    parts.push(Heading(2, "How it was measured".to_owned()));
    parts.push(List(vec![
        "In a cell (workload × cache state) all arms are mounted at once, and short passes alternate between them in a random order that the seed fixes; ratios are paired within a round. A pass that changes files has a fresh subtree, or one whose changes were undone. In hot cells a daemon is stopped while it is not its turn, so that no other arm pays for its background work.".to_owned(),
        "An epoch has a scratch, daemons and an order of its own. An epoch gives one Hodges–Lehmann estimate a cell; the interval is Student's t over epochs, so that it contains what varies between them. Verdicts are looked at after five eighths and all of the epochs, which share an error rate of 1 % by Bonferroni's inequality; cells that are decided stop.".to_owned(),
        "p99 is printed from 299 calls on, p99.9 from 2,995; percentiles come from merged histograms, never from averages.".to_owned(),
        "One client in a closed loop: service times, no queueing of its own, so nothing for coordinated omission to hide.".to_owned(),
        format!("Calls over {} s count as timeouts, and are cut off after twice that.", plan.settings.call_timeout_ms as f64 / 1000.0),
    ]));
    parts.push(Folded(
        "Each cell again: the command that measures it".to_owned(),
        vec![commands(report)],
    ));
    parts.push(Text(format!(
        "To reproduce: `{}`. This page again, from the same files: `ctxbench report {}`. The data are in report.json and *.csv beside this page, the histograms in hist/.",
        plan.command,
        std::iter::once(&report.run.dir).chain(report.others).map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" --with ")
    )));
}

/// The command of each cell, with the run's suite and seed.
fn commands(report: &Report<'_>) -> Part {
    let plan = &report.run.plan;
    let cells = plan.workloads.iter();
    let cells = cells.flat_map(|workload| {
        workload
            .states
            .iter()
            .map(move |state| (&workload.name, state))
    });
    let rows = cells.map(|(workload, state)| LinkedRow {
        anchor: command_anchor(workload, state),
        to: String::new(),
        cells: vec![
            workload.clone(),
            state.clone(),
            format!(
                "`ctxbench run --suite {} --workload {workload} --state {} --placement {} --seed {}`",
                plan.suite,
                cache_state(state),
                Placement::of_state(state).name(),
                plan.seed
            ),
        ],
    });
    let head = columns("workload | state | command");
    Linked(head, rows.collect())
}
