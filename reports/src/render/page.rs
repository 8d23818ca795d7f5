//! The content and order of a report: the answer first, then a page for each question. Its formats are in `html` and
//! `markdown`.

use std::collections::BTreeMap;

use super::answers::{Use, arm_title, first_words, uses};
use super::bill::bill;
use super::cells_page::cells;
use super::claims::claims;
use super::contexts::contexts;
use super::decisions;
use super::endings::{conformance, endings, tools};
use super::found::found;
use super::growth::growth;
use super::hosts::{hosts, syncs};
use super::latencies::{LATENCY_SHOWS, compared, margins, ratio_rows, ratio_words, ratios, sessions, states};
use super::model_files::model_files;
use super::part::Part::{self, Chart, Folded, Heading, Legend, List, Table, Text, Uses};
use super::part::Section;
use super::placements::placements;
use super::programs::programs;
use super::report::Report;
use super::shell::shell;
use super::stems;
use super::tasks::tasks;
use super::tried::tried;
use super::why::why;
use crate::answer::load;
use figures::provenance::Provenance;
use figures::summary::{Cost, is_simulated};
use figures::text::{columns, count, time};
use rundir::{Basis, Outcome, Placement, cache_state};
use verdicts::decide::MODEL_ARMS;

/// The question that a report answers.
pub(super) const QUESTION: &str = "Where should an agent keep its files?";
/// How to read the figures, pictures and confidences of the first screen.
const HOW_TO_READ: &str = "×0.8 is 0.8 times today's figure. A picture shows each candidate's best benefit and worst cost: the middle line is today's figure, the left tick the benefit needed, the shade the cost tolerated; each row has its own scale. \"sure\": the answer stays the same when any one bound is halved or doubled, or any one figure is at an end of its interval. \"fragile\": it changes, or something that matters was not measured.";
/// Uses on the first screen; the page Why has the others.
const MOST_USES: usize = 8;
/// Notes on the first screen; the page How it was measured has the others.
const MOST_NOTES: usize = 4;
/// Words of a note, and of a foreign text in a line of the first screen.
const NOTE_WORDS: usize = 30;
const LINE_WORDS: usize = 12;
/// Other runs that the first screen names.
const MOST_OTHERS: usize = 4;

pub(super) fn page(report: &Report<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    if report.run.plan.workloads.is_empty() {
        parts.push(Heading(1, format!("ctxbench report: suite {}", report.run.plan.suite)));
        parts.push(Text(report.run.plan.essay.clone()));
        parts.push(List(vec![made(report), machine(report), scratch(report)]));
        conformance(report, &mut parts);
        model_files(report, &mut parts);
        backends(report, &mut parts);
        as_chapters(&mut parts);
        return parts;
    }
    first_screen(report, &mut parts);
    let sections = sections(report).into_iter();
    parts.extend(sections.filter(|section| !section.parts.is_empty()).map(Part::Section));
    parts
}

/// The first screen: the answer for each use with its picture, and what a reader needs before any figure.
fn first_screen(report: &Report<'_>, parts: &mut Vec<Part>) {
    let all = uses(&report.decisions);
    parts.push(Heading(
        1,
        if all.is_empty() { format!("ctxbench report: suite {}", report.run.plan.suite) } else { QUESTION.to_owned() },
    ));
    parts.push(Text(about(report)));
    let notes = report.summary.health.notes.iter().take(MOST_NOTES);
    let mut notes: Vec<String> = notes.cloned().collect();
    let idle = idle(report);
    notes.extend(idle.iter().take(MOST_NOTES).cloned());
    if idle.len() > MOST_NOTES {
        notes.push(format!("{} more sessions have nothing to replay", idle.len() - MOST_NOTES));
    }
    let notes: Vec<String> = notes.iter().map(|note| first_words(note, NOTE_WORDS)).collect();
    if !notes.is_empty() {
        parts.push(List(notes));
    }
    tried(report, parts);
    if all.is_empty() {
        parts.push(Text("This run was made without a policy, so it has figures, but no answer for a use.".to_owned()));
        return parts.push(Chart(stems::LATENCY, LATENCY_SHOWS));
    }
    parts.push(Text(format!("Marks: {}.", Provenance::legend())));
    let shown = all.iter().take(MOST_USES).enumerate();
    parts.push(Uses(shown.filter_map(|(panel, answer)| answer.block(report.overview, panel)).collect()));
    if let Some(rest) = all.get(MOST_USES..).filter(|rest| !rest.is_empty()) {
        parts.push(Folded(
            format!("{} more uses", rest.len()),
            vec![List(rest.iter().map(|answer| answer.title.clone()).collect())],
        ));
    }
    parts.push(Text(HOW_TO_READ.to_owned()));
    parts.push(legend(report, &all));
    let gaps = decisions::gaps(&report.decisions);
    if !gaps.is_empty() {
        let title = "Missing evidence, and the commands that make it".to_owned();
        parts.push(Folded(title, vec![List(gaps)]));
    }
}

/// The decisions on the uses that the first screen has pictures of, in order; the candidate of the answer comes first.
pub(super) fn pictured<'a>(report: &'a Report<'_>) -> Vec<Vec<&'a verdicts::decide::Decision>> {
    let uses = uses(&report.decisions).into_iter().take(MOST_USES);
    let with_answer = uses.map(|mut found| {
        let mut answers = report.overview.uses.iter();
        if let Some(answer) = answers.find(|answer| answer.policy == found.policy) {
            let of_answer = |decision: &&verdicts::decide::Decision| decision.candidate == answer.candidate;
            found.decisions.sort_by_key(|decision| !of_answer(decision));
        }
        // What a candidate does not offer is no comparison. The page Why has it.
        if found.decisions.iter().any(|decision| decision.fits()) {
            found.decisions.retain(|decision| decision.fits());
        }
        found.decisions
    });
    with_answer.collect()
}

/// The arms and candidates, each with its description.
fn legend(report: &Report<'_>, uses: &[Use<'_>]) -> Part {
    const WORDS: usize = 14;
    const MOST_NAMES: usize = 14;
    let candidates = uses.iter().flat_map(|answer| &answer.decisions);
    let mut names = vec![report.summary.baseline.as_str()];
    for decision in candidates {
        if !names.contains(&decision.candidate.as_str()) {
            names.push(&decision.candidate);
        }
    }
    names.truncate(MOST_NAMES);
    let entries = names.into_iter().map(|name| {
        let summary = report.run.plan.arm(name).map(|arm| arm.backend.summary.as_str());
        let is_context = report.contexts.costs.iter().any(|cost| cost.policy == name);
        let is_model = report.run.model_files.is_some() && MODEL_ARMS.contains(&name);
        let summary = match (summary, is_context, is_model) {
            (Some(summary), ..) => summary,
            (None, true, _) => context_words(name),
            (None, false, true) => "files that a language model makes up",
            (None, false, false) => "of another run",
        };
        // The page on the method has the whole sentence.
        let clause = summary.split([';', ':', ',', '.']).next().unwrap_or(summary);
        // The title of a plain directory says what it is.
        let mut words = first_words(clause.strip_prefix("a plain directory ").unwrap_or(clause), WORDS);
        if arm_title(name) != name {
            words += &format!("; in tables: {name}");
        }
        (name.to_owned(), words)
    });
    Legend(entries.collect())
}

/// What a context policy does with large results, in a few words.
fn context_words(policy: &str) -> &'static str {
    match policy {
        "inline" => "every result stays in the prompt",
        "evict" => "the tool layer stores large results as files",
        "offload" => "the model writes large results to files",
        "offload-clearing" => "as offload and cuts them from the prompt",
        "evict-oldest" => "the oldest results are stored as files",
        _ => "a policy for what stays in the prompt",
    }
}

/// The pages below the first screen.
fn sections(report: &Report<'_>) -> Vec<Section> {
    let filled = |fill: &dyn Fn(&mut Vec<Part>)| {
        let mut parts = Vec::new();
        fill(&mut parts);
        parts
    };
    vec![
        Section {
            title: "Why",
            about: "For each use its gates, benefits and costs, and what would change the answer.",
            parts: why(report),
        },
        Section {
            title: "Speed",
            about: "Operations, cache states, sessions, several hosts.",
            parts: filled(&|parts| speed(report, parts)),
        },
        Section {
            title: "Programs",
            about: "Which of git, npm and others work, and how long they take.",
            parts: filled(&|parts| all_programs(report, parts)),
        },
        Section {
            title: "What breaks",
            about: "Failed passes, tools, features, killed daemons.",
            parts: filled(&|parts| {
                if report.run.samples.is_empty() {
                    return;
                }
                parts.push(Chart(
                    stems::FAILURES,
                    "What breaks and what is lost: the share of attempts that worked, by kind of attempt. Skipped attempts do not count.",
                ));
                endings(report, parts);
                tools(report, parts);
                conformance(report, parts);
            }),
        },
        Section {
            title: "Tokens and dollars",
            about: "What a context costs, what a search finds, what a task takes.",
            parts: filled(&|parts| {
                contexts(report, parts);
                found(report, parts);
                tasks(report, parts);
                bill(report, parts);
                model_files(report, parts);
            }),
        },
        Section {
            title: "Published claims",
            about: "Figures that others have published, tested here.",
            parts: filled(&|parts| claims(report, parts)),
        },
        Section {
            title: "How it was measured",
            about: "Machine, method, backends, workloads, and where the time goes.",
            parts: filled(&|parts| method(report, parts)),
        },
        Section {
            title: "All cells",
            about: "Every figure, its passes and the command that measures it again.",
            parts: vec![
                Text("A cell is a kind of call of a workload in a cache state. Percentiles come from merged histograms, never from averages: p99 from 299 calls on, p99.9 from 2,995. Behind the failed passes stands the upper 95 % bound of their share.".to_owned()),
                cells(report),
            ],
        },
    ]
}

/// A store's count in words: `sql_statements` is "SQL statements".
fn count_words(name: &str) -> String {
    let words = name.split('_').map(|word| match word {
        "sql" | "s3" => word.to_uppercase(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn speed(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.extend(ratio_words(report));
    parts.push(Chart(stems::LATENCY, LATENCY_SHOWS));
    parts.push(ratio_rows(report, |cell| {
        !cell.workload.starts_with("agent/") && !cell.workload.starts_with("program/")
    }));
    parts.push(Chart(
        stems::GROWTH,
        "How the time of a call grows with the number of files, notes, processes or hosts; both scales are logarithmic.",
    ));
    growth(report, parts);
    states(report, parts);
    placements(report, parts);
    sessions(report, parts);
    shell(report, parts);
    syncs(report, parts);
    hosts(report, parts);
}

fn all_programs(report: &Report<'_>, parts: &mut Vec<Part>) {
    programs(report, parts);
    if parts.is_empty() {
        return;
    }
    parts.push(Chart(
        stems::PROGRAMS,
        "The time of the steps of programs, divided by that on the baseline. Read it like the chart of operations under Speed.",
    ));
    parts.push(ratio_rows(report, |cell| cell.workload.starts_with("program/")));
}

/// The report as Markdown: the answer, and in short what the pages of `report.html` have in full.
pub(super) fn short(report: &Report<'_>) -> Vec<Part> {
    let mut parts = page(report);
    if report.run.plan.workloads.is_empty() {
        return parts;
    }
    for part in &mut parts {
        if let Part::Section(section) = part {
            section.parts = match section.title {
                "Why" => {
                    let mut kept = std::mem::take(&mut section.parts);
                    kept.retain(|part| !matches!(part, Part::Linked(..)));
                    kept
                }
                "Speed" => {
                    // Figures of this page link to no cell.
                    let [_, words] = ratio_words(report);
                    let mut kept = vec![Chart(stems::LATENCY, LATENCY_SHOWS), words];
                    let is_hot = |cell: &figures::summary::Cell| cell.state == "hot" && cell.is_main();
                    kept.push(ratio_rows(report, |cell| {
                        is_hot(cell) && !cell.workload.starts_with("program/")
                    }));
                    syncs(report, &mut kept);
                    hosts(report, &mut kept);
                    kept
                }
                "Programs" => {
                    let mut kept = Vec::new();
                    programs(report, &mut kept);
                    kept
                }
                "Published claims" => vec![Text(verdicts::claims::tally(report.claims).words())],
                "All cells" => vec![Text(
                    "The histograms are in hist/, and every figure is in report.html, cells.csv and passes.csv beside this file.".to_owned(),
                )],
                _ => std::mem::take(&mut section.parts),
            };
            section.parts.retain(|part| !matches!(part, Folded(..)));
        }
    }
    parts
}

/// The results page of a run: origin, ratios and findings, without charts and lists of passes.
pub(super) fn results(report: &Report<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    parts.push(Heading(1, format!("ctxbench report: suite {}", report.run.plan.suite)));
    parts.push(Text(report.run.plan.essay.clone()));
    decisions::first_screen(&report.decisions, &mut parts);
    let notes = &report.summary.health.notes;
    if !notes.is_empty() && !report.run.plan.workloads.is_empty() {
        parts.push(List(notes.clone()));
    }
    parts.push(List(facts(report)));
    let unavailable = report.run.plan.arms.iter();
    let unavailable = unavailable.filter_map(|arm| Some(format!("{}: {}", arm.name, arm.unavailable.as_ref()?)));
    let unavailable: Vec<String> = unavailable.collect();
    if !unavailable.is_empty() {
        parts.push(Text("Without these arms, because the machine lacked what they need:".to_owned()));
        parts.push(List(unavailable));
    }
    conformance(report, &mut parts);
    programs(report, &mut parts);
    ratios(report, &mut parts);
    growth(report, &mut parts);
    sessions(report, &mut parts);
    shell(report, &mut parts);
    syncs(report, &mut parts);
    hosts(report, &mut parts);
    found(report, &mut parts);
    tasks(report, &mut parts);
    memory(report, &mut parts);
    parts.retain(|part| !matches!(part, Chart(..) | Folded(..)));
    as_chapters(&mut parts);
    parts
}

/// Makes sections of a page of its own out of parts of one.
fn as_chapters(parts: &mut [Part]) {
    for part in parts {
        if let Heading(level, _) = part {
            *level = (*level).min(2);
        }
    }
}

/// The table of daemons' memory at the end of their cells: the maximum over epochs.
fn memory(report: &Report<'_>, parts: &mut Vec<Part>) {
    let mut most: BTreeMap<[&str; 3], (u64, u64)> = BTreeMap::new();
    let with_daemon = report.run.cells.iter();
    for cell in with_daemon.filter(|cell| cell.memory.resident > 0) {
        let largest = most.entry([&cell.workload, &cell.state, &cell.arm]).or_default();
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

/// The run and its machine in a line each.
fn about(report: &Report<'_>) -> String {
    let (plan, environment) = (&report.run.plan, &report.run.environment);
    let health = &report.summary.health;
    let day = plan.created.split('T').next().unwrap_or_default();
    let load = load(health).map_or(String::new(), |load| format!(", {load}"));
    let mut lines = vec![format!(
        "Suite {}, {day}, on {} with {} processors: {} passes, measured in {:.0} s{load}.",
        plan.suite,
        first_words(&environment.cpu, LINE_WORDS),
        environment.cpus,
        count(report.run.samples.len() as u64),
        health.took_ms as f64 / 1000.0,
    )];
    if environment.build.starts_with("debug") {
        lines.push("This was a DEBUG build: its times mean nothing.".to_owned());
    }
    let mut sections = plan.schedule.sections.iter();
    if sections.all(|section| section.placement == Placement::SharedCpu) {
        lines.push("Client and daemon shared one processor.".to_owned());
    }
    lines.push(format!("{}.", health.identical_arms()));
    if !report.others.is_empty() {
        let names = report.others.iter().take(MOST_OTHERS).filter_map(|dir| dir.file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        if report.others.len() > MOST_OTHERS {
            names.push(format!("{} more", report.others.len() - MOST_OTHERS).into());
        }
        lines.push(format!(
            "Answers and claims rest on this run and on {}; all other figures are of this run.",
            names.join(", ")
        ));
    }
    lines.join(" ")
}

/// Sessions that have nothing to replay.
fn idle(report: &Report<'_>) -> Vec<String> {
    let is_recorded = |name: &str| {
        let mut contexts = report.run.contexts.iter();
        contexts.any(|session| session.workload == name && session.basis == Basis::Recorded)
    };
    let idle = report.run.plan.workloads.iter();
    let idle = idle.filter(|one| one.calls.is_empty() && is_recorded(&one.name));
    let idle = idle.map(|one| {
        format!("{}: nothing to replay: no recorded call is a file operation, so it has no times.", one.name)
    });
    idle.collect()
}

fn made(report: &Report<'_>) -> String {
    let plan = &report.run.plan;
    format!("Made {} by ctxbench {}.", plan.created, plan.ctxbench)
}

fn machine(report: &Report<'_>) -> String {
    let environment = &report.run.environment;
    format!(
        "On {} ({} processors{}), Linux {}.",
        environment.cpu,
        environment.cpus,
        match &environment.hypervisor {
            Some(name) if name == "yes" => ", virtual".to_owned(),
            Some(name) => format!(", {name}"),
            None => String::new(),
        },
        environment.kernel.split(' ').next().unwrap_or_default(),
    )
}

fn scratch(report: &Report<'_>) -> String {
    let scratch = &report.run.environment.scratch;
    format!(
        "Scratch: {scratch}; options {}; features {}.",
        scratch.mount_options,
        if scratch.features.is_empty() { "not known".to_owned() } else { scratch.features.join(" ") }
    )
}

/// The facts about the making of a run that a reader must know.
fn facts(report: &Report<'_>) -> Vec<String> {
    let plan = &report.run.plan;
    let environment = &report.run.environment;
    let health = &report.summary.health;
    if plan.workloads.is_empty() {
        return vec![made(report), machine(report), scratch(report)];
    }
    let ok = report.run.samples.iter().filter(|pass| pass.outcome == Outcome::Ok);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let mut facts = vec![
        machine(report),
        scratch(report),
        format!(
            "Measured {} by ctxbench {}, seed {}: {}, {} passes in {:.0} s, of which {} ended well. {} of the wall-clock time of hot cells was timed work.",
            plan.created,
            plan.ctxbench,
            plan.seed,
            health.epochs_in_words(),
            count(report.run.samples.len() as u64),
            health.took_ms as f64 / 1000.0,
            count(ok.count() as u64),
            health.hot_timed_share.map_or("An unknown share".to_owned(), share)
        ),
        format!(
            "Pressure during the run, its own tasks included: tasks waited {} of the time for a processor, {} for the disk and {} for memory. The hypervisor gave {} of processor time to other machines. {} of {} timed passes were busy: they exceeded the plan's limits{}.",
            share(health.stalled[0]),
            share(health.stalled[1]),
            share(health.stalled[2]),
            share(health.steal),
            count(health.busy_passes as u64),
            count(health.passes as u64),
            busy(&health.busy)
        ),
        format!("{}.", health.identical_arms()),
        format!("{}. Margins, fixed before the run: {}.", health.verdicts(), margins(report)),
    ];
    let mut sections = plan.schedule.sections.iter();
    if sections.any(|section| section.placement == Placement::SharedCpu) {
        facts.push("In the states that end in -shared-cpu, client and daemon share one processor, a different one in each epoch, so that no request wakes another processor. That is the best case: users with one processor always have it, others when the scheduler keeps client and daemon together. In all other states, the scheduler places both.".to_owned());
    }
    let has_clients = |workload: &rundir::PlannedWorkload| workload.calls.contains_key("concurrent");
    if plan.workloads.iter().any(has_clients) {
        facts.push(
            "Workloads with several client processes are the exception: clients and daemon use all processors."
                .to_owned(),
        );
    }
    if environment.build.starts_with("debug") {
        facts.push("This was a DEBUG build: figures mean nothing.".to_owned());
    }
    facts.push(origins(report));
    facts
}

/// The limits that busy passes exceeded.
fn busy(reasons: &BTreeMap<String, usize>) -> String {
    let reasons = reasons.iter().map(|(what, passes)| format!("{what}: {passes}"));
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
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
            "{} from its server is simulated by our own proxy",
            Provenance::Simulated.marked(&format!("the distance of {}", arm.name))
        )
    }));
    if let Some(found) = &report.run.model_files
        && !matches!(found.origin.as_str(), "" | "live")
    {
        other.push(format!("the answers under \"Files that a language model makes up\" are {}", found.origin));
    }
    if other.is_empty() {
        return "Every time of a call in this report is measured: none is simulated or recorded.".to_owned();
    }
    format!(
        "All times of calls in this report are measured, except for these, which no figure of another arm includes: {}.",
        other.join("; ")
    )
}

fn costs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let costs = &report.summary.costs;
    if costs.is_empty() {
        return;
    }
    parts.push(Heading(3, "Daemons: time, memory and starts".to_owned()));
    let spent = |ns: f64| if ns > 0.0 { time(ns) } else { "–".to_owned() };
    // Of each workload one cache state: the first in which a request reached a daemon.
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for cost in costs.iter().filter(|cost| cost.requests >= 0.01) {
        first.entry(&cost.workload).or_insert(&cost.state);
    }
    let is_shown = |cost: &&Cost| cost.requests >= 0.01 && first.get(&*cost.workload) == Some(&&*cost.state);
    let rows = costs.iter().filter(is_shown).map(|cost| {
        let counts = cost.store_counts.iter().filter(|(_, n)| **n >= 0.005);
        let counts: Vec<_> = counts.map(|(name, n)| format!("{n:.2} {}", count_words(name))).collect();
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
    let words = Text("The wait for one call has three parts. Store: the time inside the store. Front end: our code around it. Kernel and queue: all the rest, that is the caller's own system calls, the kernel, the queue, the wake-up, reading and writing /dev/fuse. Counts are exact. In hot cells, counts and parts come from the warm-up pass of each epoch, which no latency includes: they show where time goes, not how long a hot call takes. In lukewarm and cold cells they come from every pass. Processor times cover the timed calls, not the checks. The table has the arms that daemons serve, each workload in the first cache state in which a request reached a daemon; costs.csv has every cell.".to_owned());
    let title = "The parts of a call's time, and its counts".to_owned();
    parts.push(Folded(title, vec![words, Table(head, rows.collect())]));
    let mut memory: Vec<Vec<String>> = Vec::new();
    for arm in compared(report) {
        let costs = report.summary.costs.iter().filter(|cost| cost.arm == arm);
        let peak = costs.clone().map(|cost| cost.daemon_peak_bytes).max().unwrap_or(0);
        let ready_of = |cold: bool| {
            let costs = costs.clone().filter(|cost| (cache_state(&cost.state) == "cold") == cold);
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
    if !memory.is_empty() {
        parts.push(Text("The memory of the daemons, and the times until their mounts were usable:".to_owned()));
        parts.push(Table(head, memory));
    }
}

/// The opcodes with the most total time.
fn opcodes(cost: &Cost) -> String {
    const SHOWN: usize = 3;
    let frequent = cost.opcodes.iter().filter(|code| code.requests >= 0.005);
    let shown = frequent.take(SHOWN).map(|code| {
        format!("{} {:.2} × ({} + {})", code.opcode, code.requests, time(code.front_end_ns), time(code.store_ns))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn backends(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(3, "Backends".to_owned()));
    let rows = report.run.plan.arms.iter().map(|arm| {
        let backend = &arm.backend;
        let versions: Vec<_> = backend.versions.iter().map(|(k, v)| format!("{k} {v}")).collect();
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
    let head = columns("arm | what it is | what survives | runs | lines of code | versions");
    parts.push(Table(head, rows.collect()));
    let essays = report.run.plan.workloads.iter();
    let essays = essays.map(|w| format!("{}: {}", w.name, w.essay));
    parts.push(Folded("What the workloads represent".to_owned(), vec![List(essays.collect())]));
}

fn method(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    parts.push(Text(plan.essay.clone()));
    parts.push(List(facts(report)));
    let mut notes = report.summary.health.notes.clone();
    notes.extend(idle(report));
    if !notes.is_empty() {
        parts.push(List(notes));
    }
    parts.push(Heading(3, "Method".to_owned()));
    parts.push(List(vec![
        "In a cell (workload × cache state) all arms are mounted at once, and short passes alternate between them in a random order that the seed fixes. Ratios are paired within a round. A pass that changes files has a fresh subtree, or one whose changes were undone. In hot cells, the harness pauses a daemon while another arm is timed, so that its background work does not slow other arms.".to_owned(),
        "An epoch has its own scratch, daemons and order. It gives one Hodges–Lehmann estimate for each cell; the interval is Student's t over epochs, so it contains what varies between them. Verdicts are computed once, after all epochs, at an error rate of 1 %.".to_owned(),
        "One client works in a closed loop: times are service times. No schedule of arrivals exists, so a slow call delays the next one instead of making it queue, and no figure is corrected for that (coordinated omission).".to_owned(),
        format!("A call of more than {} s is a timeout. After twice that time it is aborted.", plan.settings.call_timeout_ms as f64 / 1000.0),
    ]));
    parts.push(Text(format!(
        "To reproduce the run: `{}`. To make this page again from the same files: `ctxbench report {}`. The histograms are in hist/, and the data in report.json and *.csv beside this page.",
        plan.command,
        std::iter::once(&report.run.dir).chain(report.others).map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" --with ")
    )));
    backends(report, parts);
    costs(report, parts);
}

#[cfg(test)]
mod tests {
    use super::super::markdown::markdown;
    use super::super::testing::Inputs;
    use super::*;
    use figures::testing;
    use rundir::Arm;
    use verdicts::decide::RowRole;

    #[test]
    fn a_candidate_that_does_not_offer_what_a_use_asks_for_has_no_picture() {
        let mut inputs = Inputs::judged();
        inputs.change_decisions(|decisions| {
            decisions.retain(|decision| decision.policy == "coding-agent");
            let mut other = decisions[0].clone();
            other.candidate = "other".to_owned();
            let benefits = other.rows.iter_mut().filter(|row| row.role == RowRole::Benefit);
            benefits.for_each(|row| row.is_not_offered = true);
            decisions.push(other);
        });
        let names = |inputs: &Inputs| {
            let report = inputs.report();
            let shown = pictured(&report).into_iter().flatten();
            shown.map(|decision| decision.candidate.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&inputs), ["sqlite"]);
        // A picture of none would say less.
        inputs.change_decisions(|decisions| decisions.retain(|decision| decision.candidate == "other"));
        assert_eq!(names(&inputs), ["other"]);
    }

    #[test]
    fn the_results_page_says_why_a_planned_arm_is_missing() {
        let page = |unavailable: Option<&str>| {
            let mut run = testing::run();
            let fio = Arm { unavailable: unavailable.map(str::to_owned), ..testing::arm("fio", None) };
            run.plan.arms.push(fio);
            markdown(&results(&Inputs::of(run).report()))
        };
        let missing = page(Some("fio does not start (sudo apt-get install fio)"));
        assert!(missing.contains("- fio: fio does not start (sudo apt-get install fio)"), "{missing}");
        assert!(!page(None).contains("Without these arms"));
    }

    #[test]
    fn the_legend_calls_no_candidate_of_this_run_one_of_another() {
        let inputs = Inputs::judged();
        let report = inputs.report();
        let Legend(entries) = legend(&report, &uses(&report.decisions)) else {
            panic!("no legend");
        };
        let words = |name: &str| {
            let found = entries.iter().find(|(entry, _)| entry == name);
            found.unwrap_or_else(|| panic!("no {name} in {entries:?}")).1.clone()
        };
        assert_eq!(words("evict"), "the tool layer stores large results as files");
        assert_eq!(words("llm-generate"), "files that a language model makes up");
        assert!(entries.iter().all(|(_, words)| words != "of another run"), "{entries:?}");
    }
}
