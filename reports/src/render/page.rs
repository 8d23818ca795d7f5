//! What a report says, in what order; not how it looks.

use super::contexts::contexts;
use super::model_files::model_files;
use super::text::{count, must, percent, ratio, time, winner};
use super::{Report, charts};
use crate::claims::Standing;
use crate::run::Outcome;
use crate::summary::{Cell, MAKESPAN};

/// A part of a page.
pub(super) enum Part {
    /// A heading of a level from 1.
    Heading(u8, String),
    /// Running text.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// A table.
    Table(Vec<String>, Vec<Vec<String>>),
    /// A chart, by its file's stem, with what it shows.
    Chart(&'static str, &'static str),
    /// Parts that are folded away at first.
    Folded(String, Vec<Part>),
}

use Part::{Chart, Folded, Heading, List, Table, Text};

pub(super) fn page(report: &Report<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    first_page(report, &mut parts);
    decision(report, &mut parts);
    ratios(report, &mut parts);
    states(report, &mut parts);
    sessions(report, &mut parts);
    contexts(report, &mut parts);
    costs(report, &mut parts);
    tools(report, &mut parts);
    endings(report, &mut parts);
    model_files(report, &mut parts);
    claims(report, &mut parts);
    backends(report, &mut parts);
    method(report, &mut parts);
    parts
}

/// What a README shows: one chart, the sessions, the decision, and where the rest is.
pub(super) fn excerpt(report: &Report<'_>, place: &str) -> Vec<Part> {
    let plan = &report.run.plan;
    let floor = report.summary.noise.median_floor.map(percent);
    let mut parts = vec![
        Text(format!(
            "This is from [a real report]({place}/report.md): `ctxbench run`, suite {}, {}, {} rounds, {} blocks, on {} ({} processors), Linux {}; noise floor {}.",
            plan.suite,
            plan.created.split('T').next().unwrap_or_default(),
            plan.rounds,
            report.run.samples.len(),
            report.run.environment.cpu,
            report.run.environment.cpus,
            report.run.environment.kernel.split(' ').next().unwrap_or_default(),
            floor.unwrap_or("unknown".to_owned()),
        )),
        Chart(
            charts::LATENCY,
            "Typical latency of one operation by backend, caches hot, with 99 % intervals; logarithmic.",
        ),
        Text("How long recorded agent sessions waited for files, as a ratio to the plain directory (99 % interval):".to_owned()),
        ratio_rows(report, |cell| cell.metric == MAKESPAN),
    ];
    if let Some(decision) = &report.decision {
        let rows = decision.rows.iter().map(|row| {
            vec![
                row.aspect.clone(),
                row.baseline.clone(),
                row.candidate.clone(),
                winner(decision, row.winner).to_owned(),
                must(row),
            ]
        });
        let head = [
            "aspect",
            &decision.baseline,
            &decision.candidate,
            "winner",
            "must be",
        ];
        parts.push(Text(format!(
            "And what follows by policy {}: **{}**.",
            decision.policy,
            decision.verdict.name()
        )));
        parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
        parts.push(List(vec![
            format!("Because: {}.", decision.because),
            format!("What would flip it: {}.", decision.would_flip),
        ]));
    }
    parts
}

fn first_page(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    let environment = &report.run.environment;
    let noise = &report.summary.noise;
    parts.push(Heading(1, format!("ctxbench report: suite {}", plan.suite)));
    parts.push(Text(plan.essay.clone()));
    let blocks = report.run.samples.len();
    let ok = report
        .run
        .samples
        .iter()
        .filter(|s| s.outcome == Outcome::Ok)
        .count();
    let mut facts = vec![
        format!(
            "Measured {} by ctxbench {}, seed {}, {} rounds: {blocks} blocks, {ok} of them ended well.",
            plan.created, plan.ctxbench, plan.seed, plan.rounds
        ),
        format!(
            "On {} ({} processors{}), Linux {}, scratch on {}.",
            environment.cpu,
            environment.cpus,
            match &environment.hypervisor {
                Some(name) if name == "yes" => ", virtual".to_owned(),
                Some(name) => format!(", {name}"),
                None => String::new(),
            },
            environment.kernel.split(' ').next().unwrap_or_default(),
            environment.scratch
        ),
    ];
    match (noise.median_floor, &noise.worst) {
        (Some(median), Some(worst)) => facts.push(format!(
            "Noise floor: two identical arms of {} differ by up to {} in the median cell, {} in the noisiest ({} {} {}). Nothing below a cell's own floor gets a verdict.",
            report.summary.baseline,
            percent(median),
            percent(worst.floor),
            worst.metric,
            worst.workload,
            worst.state
        )),
        _ => facts.push("Noise floor: unknown, too few rounds of the twin arms.".to_owned()),
    }
    facts.push(format!(
        "A/A check: judged by the floor of the other cells, the twins are called different in {} of {} cells; their own 99 % interval leaves out 1 in {}. In the median cell, twins that differ by {} would be told apart four times out of five.",
        noise.called_different,
        noise.twins.len(),
        noise.excluding_one,
        noise.median_detectable.map_or("an unknown ratio".to_owned(), percent)
    ));
    if plan.settings.placement == "shared-cpu" {
        facts.push("Client and daemon share one processor: in a closed loop only one of them runs at a time, and no figure depends on where the scheduler wakes the other. With --placement free, figures on many machines are higher.".to_owned());
    }
    if environment.build.starts_with("debug") {
        facts.push("This was a DEBUG build: figures mean nothing.".to_owned());
    }
    facts.push(origins(report));
    parts.push(List(facts));
}

/// Whether anything on the page did not come from what it names.
fn origins(report: &Report<'_>) -> String {
    let of_arm = |arm: &crate::run::Arm| {
        let answers = arm.backend.receipt.get("answers")?;
        (answers != "live").then(|| format!("the answers of {} are {answers}", arm.name))
    };
    let mut other: Vec<String> = report.run.plan.arms.iter().filter_map(of_arm).collect();
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

fn decision(report: &Report<'_>, parts: &mut Vec<Part>) {
    let Some(decision) = &report.decision else {
        return;
    };
    parts.push(Heading(2, format!("Decision: {}", decision.verdict.name())));
    parts.push(Text(format!(
        "Policy {} ({}…, {}): should {} replace {}?",
        decision.policy,
        decision.policy_sha256.chars().take(12).collect::<String>(),
        if decision.planned {
            "fixed before the run"
        } else {
            "NOT the one the run was made for: chosen after seeing the figures, it proves less"
        },
        decision.candidate,
        decision.baseline
    )));
    let rows = decision.rows.iter().map(|row| {
        vec![
            row.aspect.clone(),
            row.seed_says.clone(),
            row.baseline.clone(),
            row.candidate.clone(),
            winner(decision, row.winner).to_owned(),
            must(row),
            row.evidence.clone(),
        ]
    });
    let head = [
        "aspect",
        "the seed says",
        &decision.baseline,
        &decision.candidate,
        "winner",
        "must be",
        "evidence",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
    parts.push(List(vec![
        format!("Verdict: {}.", decision.verdict.name()),
        format!("Because: {}.", decision.because),
        format!("What would flip it: {}.", decision.would_flip),
    ]));
}

/// The arms to show as columns beside the baseline.
fn compared<'a>(report: &'a Report<'_>) -> Vec<&'a str> {
    let arms = report.run.plan.arms.iter().map(|arm| arm.name.as_str());
    arms.filter(|arm| {
        *arm != report.summary.baseline && Some(*arm) != report.summary.twin.as_deref()
    })
    .collect()
}

fn find<'a>(report: &'a Report<'_>, place: &Cell, arm: &str) -> Option<&'a Cell> {
    report.summary.cells.iter().find(|cell| {
        cell.arm == arm
            && cell.workload == place.workload
            && cell.state == place.state
            && cell.metric == place.metric
    })
}

fn ratio_rows(report: &Report<'_>, wanted: impl Fn(&Cell) -> bool) -> Part {
    let arms = compared(report);
    let mut head = vec![
        "workload".to_owned(),
        "state".to_owned(),
        "metric".to_owned(),
    ];
    head.push(report.summary.baseline.clone());
    head.push("noise floor".to_owned());
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let mut rows = Vec::new();
    let baseline = report.summary.cells.iter();
    for cell in baseline.filter(|cell| cell.arm == report.summary.baseline && wanted(cell)) {
        let floor = report.summary.noise.twins.iter().find(|twin| {
            twin.workload == cell.workload && twin.state == cell.state && twin.metric == cell.metric
        });
        let mut row = vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            time(cell.typical_ns),
            floor.map_or("–".to_owned(), |twin| percent(twin.floor)),
        ];
        for arm in &arms {
            row.push(match find(report, cell, arm) {
                None => "–".to_owned(),
                Some(own) => {
                    let comparison = own.against_baseline.as_ref().map(ratio);
                    let label = if own.is_kernel_cache() {
                        " (kernel cache)"
                    } else {
                        ""
                    };
                    format!("{}{label}", comparison.unwrap_or("–".to_owned()))
                }
            });
        }
        rows.push(row);
    }
    Table(head, rows)
}

fn ratios(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Ratios to the plain directory".to_owned()));
    parts.push(Text(format!(
        "Each figure is a ratio to {} in the same round: the geometric mean over rounds of the blocks' medians, with its 99 % interval. \"better\" and \"worse\" clear the cell's noise floor; \"same\" is shown to lie within it, if it is at most 25 %; \"?\" is neither. \"kernel cache\": no call reached the daemon.",
        report.summary.baseline
    )));
    parts.push(Chart(charts::LATENCY, "Typical latency of one operation by backend, caches hot, with 99 % intervals; logarithmic."));
    parts.push(ratio_rows(report, |cell| {
        cell.workload.starts_with("micro/")
    }));
    let floors: Vec<Vec<String>> = report
        .summary
        .cells
        .iter()
        .filter_map(|cell| {
            let comparison = cell.against_floor.as_ref()?;
            Some(vec![
                cell.workload.clone(),
                cell.state.clone(),
                cell.metric.clone(),
                cell.arm.clone(),
                ratio(comparison),
            ])
        })
        .collect();
    if !floors.is_empty() {
        let head = ["workload", "state", "metric", "arm", "ratio to memory"];
        parts.push(Folded(
            "Ratios to the floor: the same front end over memory".to_owned(),
            vec![Table(head.map(str::to_owned).to_vec(), floors)],
        ));
    }
    parts.push(Folded(
        "Latencies and percentiles".to_owned(),
        vec![latencies(report)],
    ));
}

fn latencies(report: &Report<'_>) -> Part {
    let head = [
        "workload",
        "state",
        "metric",
        "arm",
        "blocks",
        "calls",
        "typical",
        "99 % interval",
        "p90",
        "p99",
        "p99.9",
        "max",
        "detectable",
    ];
    let dash = |value: Option<u64>| value.map_or("—".to_owned(), |ns| time(ns as f64));
    let rows = report.summary.cells.iter().map(|cell| {
        let interval = cell
            .interval
            .map(|i| format!("[{}, {}]", time(i.low), time(i.high)));
        let detectable = cell
            .against_baseline
            .and_then(|c| c.detectable)
            .map(percent);
        vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            cell.blocks.to_string(),
            count(cell.calls),
            time(cell.typical_ns),
            interval.unwrap_or("—".to_owned()),
            dash(cell.p90_ns),
            dash(cell.p99_ns),
            dash(cell.p999_ns),
            time(cell.max_ns as f64),
            detectable.unwrap_or("—".to_owned()),
        ]
    });
    Table(head.map(str::to_owned).to_vec(), rows.collect())
}

fn states(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_states = report.summary.cells.iter().any(|cell| cell.state != "hot");
    if !has_states {
        return;
    }
    parts.push(Heading(2, "Hot, lukewarm, cold".to_owned()));
    parts.push(Text("Hot: everything has just been used. Lukewarm: the kernel's caches are empty, the daemon keeps its own. Cold: the daemon has just been started too. Each state is proved by what the daemon was asked, or by what came from disk.".to_owned()));
    parts.push(Chart(
        charts::STATES,
        "The same operation with caches hot, lukewarm and cold, by backend; logarithmic.",
    ));
}

fn sessions(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_sessions = report
        .summary
        .cells
        .iter()
        .any(|cell| cell.metric == MAKESPAN);
    if !has_sessions {
        return;
    }
    parts.push(Heading(2, "Agents' sessions".to_owned()));
    parts.push(Text(
        "Makespan: how long an agent waited for files in a whole session, model time left out."
            .to_owned(),
    ));
    parts.push(Chart(
        charts::SESSIONS,
        "How long a session waited for files, by backend and cache state, with 99 % intervals.",
    ));
    parts.push(ratio_rows(report, |cell| cell.metric == MAKESPAN));
    let mut rows = Vec::new();
    for workload in &report.run.plan.workloads {
        let (Some(session_ms), Some(turns)) = (workload.session_ms, workload.turns) else {
            continue;
        };
        let cells = report.summary.cells.iter();
        for cell in cells.filter(|c| c.workload == workload.name && c.metric == MAKESPAN) {
            let session_ns = session_ms as f64 * 1e6;
            rows.push(vec![
                cell.workload.clone(),
                cell.state.clone(),
                cell.arm.clone(),
                time(cell.typical_ns),
                time(session_ns),
                turns.to_string(),
                format!("{:.3} %", cell.typical_ns / session_ns * 100.0),
            ]);
        }
    }
    if !rows.is_empty() {
        let head = [
            "session",
            "state",
            "arm",
            "waited for files",
            "recorded turns, summed",
            "turns",
            "share of the session",
        ];
        parts.push(Text("The same as a share of the recorded session: the sum of the times from one model answer to the next, tools included, breaks of more than ten minutes left out. It is what a backend can win or lose of an agent's time at all.".to_owned()));
        parts.push(Table(head.map(str::to_owned).to_vec(), rows));
    }
    parts.push(Folded(
        "Sessions by call kind".to_owned(),
        vec![ratio_rows(report, |cell| {
            cell.workload.starts_with("agent/") && cell.metric != MAKESPAN
        })],
    ));
    let replayed = report
        .run
        .plan
        .workloads
        .iter()
        .filter(|w| !w.not_replayed.is_empty());
    let lines = replayed.map(|workload| {
        let counts = |counts: &std::collections::BTreeMap<String, u64>| {
            let parts: Vec<_> = counts
                .iter()
                .map(|(kind, n)| format!("{n} {kind}"))
                .collect();
            parts.join(", ")
        };
        format!(
            "{}: replayed {}; recorded but not replayed: {}",
            workload.name,
            counts(&workload.calls),
            counts(&workload.not_replayed)
        )
    });
    parts.push(List(lines.collect()));
}

fn costs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let with_daemon: Vec<_> = report
        .summary
        .costs
        .iter()
        .filter(|cost| cost.requests > 0.0)
        .collect();
    if with_daemon.is_empty() {
        return;
    }
    parts.push(Heading(2, "Where the time goes".to_owned()));
    parts.push(Text("The cost by amputation, a call: what the caller waited, split into the store, our front end around it, and all the rest (the caller's own system calls, the kernel, the queue, waking up, reading and writing /dev/fuse). Counts are exact. Processor times are of the whole block, the harness's own checking and untimed operations included, divided by its timed calls: they can be larger than the service time.".to_owned()));
    parts.push(Chart(charts::COSTS, "Time of one call: kernel and queue, front end, store; caches hot where anything reached the daemon, else lukewarm."));
    let rows = with_daemon.iter().map(|cost| {
        let counts = cost.store_counts.iter().filter(|(_, n)| **n >= 0.005);
        let counts: Vec<_> = counts.map(|(name, n)| format!("{name} {n:.2}")).collect();
        vec![
            cost.workload.clone(),
            cost.state.clone(),
            cost.arm.clone(),
            time(cost.service_ns),
            time(cost.kernel_and_queue_ns),
            time(cost.front_end_ns),
            time(cost.store_ns),
            format!("{:.2}", cost.requests),
            counts.join(", "),
            time(cost.client_cpu_ns),
            time(cost.daemon_cpu_ns),
        ]
    });
    let head = [
        "workload",
        "state",
        "arm",
        "service time",
        "kernel and queue",
        "front end",
        "store",
        "FUSE requests",
        "store's counts",
        "client CPU, whole block",
        "daemon CPU, whole block",
    ];
    parts.push(Folded(
        "All cells".to_owned(),
        vec![Table(head.map(str::to_owned).to_vec(), rows.collect())],
    ));
    let mut memory: Vec<Vec<String>> = Vec::new();
    for arm in compared(report) {
        let costs = report.summary.costs.iter().filter(|cost| cost.arm == arm);
        let peak = costs
            .clone()
            .map(|cost| cost.daemon_peak_bytes)
            .max()
            .unwrap_or(0);
        let ready = |cold: bool| {
            let costs = costs.clone().filter(|cost| (cost.state == "cold") == cold);
            let mut ready: Vec<u64> = costs.flat_map(|cost| cost.ready_ns.clone()).collect();
            ready.sort_unstable();
            let middle = ready.get(ready.len() / 2);
            middle.map_or("–".to_owned(), |ns| time(*ns as f64))
        };
        if peak > 0 {
            memory.push(vec![
                arm.to_owned(),
                format!("{:.1} MiB", peak as f64 / f64::from(1 << 20)),
                ready(false),
                ready(true),
            ]);
        }
    }
    let head = [
        "arm",
        "daemon's peak memory",
        "first start to usable mount, median",
        "cold restart to usable mount, median",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), memory));
}

fn tools(report: &Report<'_>, parts: &mut Vec<Part>) {
    let run = report.run;
    if run.probes.is_empty() && run.faults.is_empty() {
        return;
    }
    parts.push(Heading(2, "Tools, visibility, cron".to_owned()));
    let rows = run.probes.iter().map(|probe| {
        vec![
            probe.aspect.clone(),
            probe.name.clone(),
            probe.arm.clone(),
            probe.outcome.to_string(),
            probe.detail.clone(),
        ]
    });
    let head = ["aspect", "probe", "arm", "outcome", "seen"];
    parts.push(Folded(
        format!(
            "{} probes, {} of them ok",
            run.probes.len(),
            run.probes
                .iter()
                .filter(|p| p.outcome == Outcome::Ok)
                .count()
        ),
        vec![Table(head.map(str::to_owned).to_vec(), rows.collect())],
    ));
    let rows = run.faults.iter().map(|fault| {
        vec![
            fault.scenario.clone(),
            fault.arm.clone(),
            fault.outcome.to_string(),
            fault.detail.clone(),
            if fault.recovered { "by itself" } else { "NO" }.to_owned(),
            format!("{} ms", fault.recovery_ms),
            format!("{} of {}", fault.lost, fault.acknowledged),
            fault.failed_calls.to_string(),
        ]
    });
    let head = [
        "scenario",
        "arm",
        "outcome",
        "what happened",
        "recovered",
        "recovery",
        "lost",
        "failed calls",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
}

fn endings(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "How calls ended".to_owned()));
    let list = |counts: &std::collections::BTreeMap<Outcome, u64>| {
        let parts: Vec<_> = counts
            .iter()
            .map(|(outcome, n)| format!("{outcome} {}", count(*n)))
            .collect();
        parts.join(", ")
    };
    let rows = report.summary.endings.iter().map(|ending| {
        vec![
            ending.arm.clone(),
            list(&ending.blocks),
            list(&ending.calls),
            match ending.failure_bound() {
                Some(bound) => format!("≤ {:.4} %", bound * 100.0),
                None => "—".to_owned(),
            },
        ]
    });
    let head = [
        "arm",
        "blocks",
        "timed calls",
        "failure rate (95 %: 3/n where none of n failed)",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
    parts.push(Text("Every read, listing and size was compared with the reference model, outside the timed section. Skipped is not passed.".to_owned()));
    failing(report, parts);
    let mut reasons = Vec::new();
    for ending in &report.summary.endings {
        for (reason, times) in &ending.reasons {
            reasons.push(format!("{} ({times} blocks): {reason}", ending.arm));
        }
    }
    if !reasons.is_empty() {
        parts.push(Folded(
            format!("What was skipped or went wrong: {} reasons", reasons.len()),
            vec![List(reasons)],
        ));
    }
}

/// What callers waited where something ended wrong.
fn failing(report: &Report<'_>, parts: &mut Vec<Part>) {
    let failing = &report.summary.failing;
    if failing.is_empty() {
        return;
    }
    parts.push(Text(format!(
        "A block in which a call ended otherwise than ok is in no latency, ratio or verdict above. What its caller waited all the same, for all calls of the block however they ended, beside the same calls on {}: medians of blocks, without intervals, and no makespan, because the work was not done.",
        report.summary.baseline
    )));
    let rows = failing.iter().map(|found| {
        let calls = found.calls.iter();
        let calls: Vec<String> = calls
            .map(|(outcome, n)| format!("{outcome} {}", count(*n)))
            .collect();
        let against = found.baseline_ns.filter(|base| *base > 0.0);
        vec![
            format!("{} {}", found.workload, found.state),
            found.arm.clone(),
            format!("{} of {}", found.blocks, found.of_blocks),
            calls.join(", "),
            format!("{:.1} %", found.share() * 100.0),
            time(found.waited_ns),
            against.map_or("–".to_owned(), time),
            against.map_or("–".to_owned(), |base| {
                format!("×{:.0}", found.waited_ns / base)
            }),
        ]
    });
    let head = [
        "workload",
        "arm",
        "blocks",
        "their timed calls",
        "not ok",
        "waited",
        report.summary.baseline.as_str(),
        "ratio of the medians",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
}

fn claims(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Published figures, tested".to_owned()));
    let of = |standing| {
        report
            .claims
            .iter()
            .filter(|c| c.standing == standing)
            .count()
    };
    parts.push(Text(format!(
        "{} confirmed, {} refuted, {} open, {} that are arithmetic only (a source's figures add up as it says; nothing was counted), {} that no run can test yet. A claim is judged by whether the whole 99 % interval lies where it says; \"about\" means within a factor of two; tokens are counted, and have no interval. What is tested is the figure, on this machine and with our implementation, not the published system itself.",
        of(Standing::Confirmed),
        of(Standing::Refuted),
        of(Standing::Open),
        of(Standing::ArithmeticOnly),
        of(Standing::Untested)
    )));
    let table = |untested: bool| {
        let claims = report.claims.iter();
        let claims = claims.filter(|c| (c.standing == Standing::Untested) == untested);
        let rows = claims.map(|claim| {
            vec![
                claim.source.clone(),
                claim.quote.clone(),
                claim.standing.name().to_owned(),
                claim.evidence.clone(),
            ]
        });
        let head = ["source", "it says", "standing", "evidence"];
        Table(head.map(str::to_owned).to_vec(), rows.collect())
    };
    parts.push(table(false));
    parts.push(Folded(
        "Claims that no run can test yet".to_owned(),
        vec![table(true)],
    ));
}

fn backends(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Backends".to_owned()));
    let rows = report.run.plan.arms.iter().map(|arm| {
        let backend = &arm.backend;
        let receipt: Vec<_> = backend
            .receipt
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
                None => receipt.join("; "),
            },
        ]
    });
    let head = [
        "arm",
        "what it is",
        "what survives",
        "runs",
        "lines of code",
        "receipt",
    ];
    parts.push(Table(head.map(str::to_owned).to_vec(), rows.collect()));
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
        "A block is one measured pass through a cell (backend × workload × cache state) in a fresh workspace; the block is the sample. Blocks of all backends alternate in a random order that the seed fixes; ratios are paired within a round.".to_owned(),
        "Intervals are bootstrap percentile intervals over blocks, expanded for small samples (Hesterberg 2015), 99 %. A verdict also has to clear 2 % and the cell's noise floor. Fewer than eight rounds carry neither interval nor verdict.".to_owned(),
        "p99 is printed from 299 calls on, p99.9 from 2,995; percentiles come from merged histograms, never from averages.".to_owned(),
        "One client in a closed loop: service times, no queueing of its own, so nothing for coordinated omission to hide.".to_owned(),
        format!("Calls over {} s count as timeouts, and are cut off after twice that.", plan.settings.call_timeout_ms as f64 / 1000.0),
    ]));
    parts.push(Text(format!(
        "To reproduce: `{}`. This page again, from the same files: `ctxbench report {}`. The data are in report.json and *.csv beside this page, the histograms in hist/.",
        plan.command,
        report.run.dir.display()
    )));
}
