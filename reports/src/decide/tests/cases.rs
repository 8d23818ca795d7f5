//! For each policy changes of the evidence that adopts its candidate, with the verdicts that they lead to.

use rundir::faults::{Audit, CrashPoints, Status};
use rundir::{Outcome, Run};

use super::Verdict::{self, Adopt, AdoptIf, Archive, NotDecided};
use super::evidence::*;
use crate::testing;

/// A policy, a candidate, evidence that adopts it, and changes of the evidence with their verdicts.
pub(super) type Change = (Verdict, &'static str, fn(&mut Run));
pub(super) type Case = (&'static str, &'static str, fn() -> Run, Vec<Change>);

pub(super) fn cases() -> Vec<Case> {
    vec![
        (
            "cron-controller",
            "sqlite",
            cron,
            vec![
                (Archive, "calls fail when the daemon dies", |run| {
                    run.faults
                        .iter_mut()
                        .for_each(|own| own.failed_calls = u64::from(own.killed))
                }),
                (Archive, "a tool does not work", |run| {
                    probe(run, "tool", "grep", "sqlite", Outcome::Errno)
                }),
                (
                    Archive,
                    "no benefit: health is not computed, logs and losses as before",
                    |run| {
                        probe(
                            run,
                            "visible",
                            "how often it was asked for what",
                            "sqlite",
                            Outcome::Errno,
                        );
                        copy_workload(run, "micro/read", "agent/inbox-log", "read");
                        for arm in ["direct", "sqlite"] {
                            score(
                                run,
                                "agent/inbox-log",
                                arm,
                                "task",
                                &[("call-tokens", 5), ("result-tokens", 5)],
                            );
                        }
                        for backend in ["direct", "sqlite"] {
                            let audit = Audit {
                                present: 10,
                                ..Audit::default()
                            };
                            run.crash_points.push(CrashPoints {
                                audit,
                                ..CrashPoints::not_run(backend, "power-loss", Status::Ran, "")
                            });
                        }
                    },
                ),
                (NotDecided, "nobody killed a daemon", |run| {
                    run.faults.clear()
                }),
                (AdoptIf, "a cycle takes twenty times as long", |run| {
                    testing::scale(run, "sqlite", 20.0)
                }),
                (Archive, "a record is lost", |run| run.faults[1].lost = 1),
                (Archive, "cron has to ask for help", |run| {
                    run.faults[1].recovered = false
                }),
                (Adopt, "aggregated logs are shorter", |run| {
                    copy_workload(run, "micro/read", "agent/inbox-log", "read");
                    for (arm, tokens) in [("direct", 100), ("sqlite", 10)] {
                        score(
                            run,
                            "agent/inbox-log",
                            arm,
                            "task",
                            &[("call-tokens", 5), ("result-tokens", tokens)],
                        );
                    }
                }),
                (Adopt, "more is left when the power goes", |run| {
                    for (backend, present) in [("direct", 5), ("sqlite", 10)] {
                        let audit = Audit {
                            present,
                            unpromised: 10 - present,
                            ..Audit::default()
                        };
                        run.crash_points.push(CrashPoints {
                            audit,
                            ..CrashPoints::not_run(backend, "power-loss", Status::Ran, "")
                        });
                    }
                }),
                (Archive, "four facts are hidden", |run| {
                    for fact in ["a", "b", "c", "d"] {
                        probe(run, "visible", fact, "direct", Outcome::Ok);
                        probe(run, "visible", fact, "sqlite", Outcome::Errno);
                    }
                }),
                (Archive, "three mounts", |run| {
                    run.plan.arms[2].backend.mounts = 3
                }),
            ],
        ),
        (
            "inbox",
            "view-mail",
            inbox,
            vec![
                (Archive, "files save no tokens", |run| {
                    for workload in ["agent/inbox-find", "agent/inbox-triage"] {
                        score(
                            run,
                            workload,
                            "view-mail",
                            "task",
                            &[("definition-tokens", 90_000), ("result-tokens", 60_000)],
                        );
                    }
                }),
                (NotDecided, "no task was measured", |run| {
                    run.samples.iter_mut().for_each(|own| own.scores.clear())
                }),
                (AdoptIf, "one answer of fifty is stale", |run| {
                    score(
                        run,
                        "agent/inbox-find",
                        "view-mail",
                        "task",
                        &[("stale-answers", 2)],
                    )
                }),
                (AdoptIf, "triage reads more", |run| {
                    score(
                        run,
                        "agent/inbox-triage",
                        "view-mail",
                        "task",
                        &[("result-tokens", 90_000)],
                    )
                }),
                (
                    Archive,
                    "a triage reads more than definitions save",
                    |run| {
                        score(
                            run,
                            "agent/inbox-triage",
                            "view-mail",
                            "task",
                            &[("result-tokens", 290_000)],
                        )
                    },
                ),
                (Archive, "a message is not found", |run| {
                    fail_a_pass(run, "agent/inbox-find", "view-mail")
                }),
                (Archive, "a message is filed wrongly", |run| {
                    fail_a_pass(run, "agent/inbox-triage", "view-mail")
                }),
                (Archive, "a process for each mailbox", |run| {
                    run.plan.arms[2].backend.daemons = 9
                }),
                (
                    Archive,
                    "two benefits fail: old copies, and as many definitions",
                    |run| {
                        score(
                            run,
                            "agent/inbox-triage",
                            "view-mail",
                            "task",
                            &[("lag-us", 2_000_000), ("definition-tokens", 90_000)],
                        );
                    },
                ),
            ],
        ),
        (
            "coding-agent",
            "sqlite",
            coding,
            vec![
                (Archive, "it gives nothing", |run| {
                    run.plan.arms[2].backend.gives = Some(Vec::new())
                }),
                (Archive, "a tool does not work", |run| {
                    probe(run, "tool", "git", "sqlite", Outcome::Errno)
                }),
                (Archive, "renaming does not work", |run| {
                    probe(
                        run,
                        "conformance",
                        "rename: replaces",
                        "direct",
                        Outcome::Ok,
                    );
                    probe(
                        run,
                        "conformance",
                        "rename: replaces",
                        "sqlite",
                        Outcome::Errno,
                    );
                }),
                (NotDecided, "conformance was not tried", |run| {
                    run.probes.retain(|own| own.aspect != "conformance")
                }),
                (NotDecided, "a busy machine", |run| {
                    run.samples
                        .iter_mut()
                        .for_each(|own| own.load.busy = Some("busy".to_owned()))
                }),
                (AdoptIf, "git takes three times as long", |run| {
                    for sample in run
                        .samples
                        .iter_mut()
                        .filter(|own| own.arm == "sqlite" && own.workload == "program/git")
                    {
                        testing::scale_pass(sample, 3.0);
                    }
                }),
                (Archive, "a record is lost", |run| run.faults[1].lost = 1),
                (Adopt, "it has snapshots and versions", |run| {
                    run.plan.arms[2].backend.gives =
                        Some(vec!["snapshots".to_owned(), "versions".to_owned()]);
                }),
                (AdoptIf, "a session is short", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(1000))
                }),
                (Archive, "a process for each directory", |run| {
                    run.plan.arms[2].backend.daemons = 9
                }),
                (Archive, "installing takes ten times as long", |run| {
                    for sample in run
                        .samples
                        .iter_mut()
                        .filter(|own| own.arm == "sqlite" && own.workload == "program/npm-few")
                    {
                        testing::scale_pass(sample, 10.0);
                    }
                }),
            ],
        ),
        (
            "agent-memory",
            "sqlite",
            memory,
            vec![
                (Archive, "it finds nothing", |run| {
                    score(
                        run,
                        "micro/find-by-request-1000",
                        "sqlite",
                        ":recall balanced, 500 tokens",
                        &[("evidence-in-budget", 0)],
                    )
                }),
                (NotDecided, "no question was asked", |run| {
                    run.samples.iter_mut().for_each(|own| own.scores.clear())
                }),
                (AdoptIf, "it finds less than a search", |run| {
                    score(
                        run,
                        "micro/find-by-request-1000",
                        "sqlite",
                        ":recall balanced, 500 tokens",
                        &[("evidence-in-budget", 60)],
                    )
                }),
                (Archive, "a search fails", |run| {
                    fail_a_pass(run, "micro/find-in-files-1000", "sqlite")
                }),
                (AdoptIf, "a session is short", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(1000))
                }),
                (Archive, "a process for each note", |run| {
                    run.plan.arms[2].backend.daemons = 9
                }),
                (Archive, "it answers with what no longer holds", |run| {
                    score(
                        run,
                        "micro/find-by-request-1000",
                        "sqlite",
                        ":recall balanced, 500 tokens",
                        &[("stale", 20)],
                    )
                }),
            ],
        ),
        (
            "roaming-agents",
            "sqlite",
            roaming,
            vec![
                (Archive, "the memory is gone with the machine", |run| {
                    run.crash_points[0].audit = Audit {
                        present: 5,
                        unpromised: 95,
                        ..Audit::default()
                    }
                }),
                (Archive, "a line is lost", |run| {
                    run.samples
                        .iter_mut()
                        .filter(|own| own.arm == "sqlite")
                        .filter_map(|own| own.settled.as_mut())
                        .for_each(|own| own.lost = 1)
                }),
                (NotDecided, "nobody lost a machine", |run| {
                    run.crash_points.clear()
                }),
                (AdoptIf, "lines end in conflict copies", |run| {
                    run.samples
                        .iter_mut()
                        .filter(|own| own.arm == "sqlite")
                        .filter_map(|own| own.settled.as_mut())
                        .for_each(|own| (own.on_both, own.only_in_copies) = (40, 10))
                }),
                (Archive, "a record is lost in a kill", |run| {
                    run.faults[1].lost = 1
                }),
                (Archive, "no note is seen", |run| {
                    let cells = run.cells.iter_mut().filter(|own| own.arm == "sqlite");
                    cells
                        .filter(|own| own.workload == "agent/handoff")
                        .for_each(|own| own.latencies.clear());
                }),
                (AdoptIf, "a session is short", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(1000))
                }),
                (Archive, "a sync waits, and nobody knows for what", |run| {
                    slow_sync(run, "sqlite", 12_000.0);
                }),
                (Archive, "six more things to run", |run| {
                    run.plan.arms[2].backend.daemons = 6
                }),
            ],
        ),
        (
            "long-context",
            "sqlite",
            long_context,
            vec![
                (Archive, "files save nothing", |run| {
                    let inline = run
                        .contexts
                        .iter()
                        .find(|own| own.policy == "inline")
                        .unwrap()
                        .conversation
                        .clone();
                    run.contexts
                        .iter_mut()
                        .for_each(|own| own.conversation = inline.clone());
                }),
                (NotDecided, "no context was counted", |run| {
                    run.contexts.clear()
                }),
                (AdoptIf, "a turn waits", |run| {
                    testing::scale(run, "sqlite", 20.0)
                }),
                (Archive, "what is read back differs", |run| {
                    fail_a_pass(run, "agent/offload-comparison", "sqlite")
                }),
                (Archive, "four things to run", |run| {
                    run.plan.arms[2].backend.daemons = 4
                }),
            ],
        ),
        (
            "exploration",
            "llm-generate",
            exploration,
            vec![
                (Archive, "files name files that do not exist", |run| {
                    run.model_files.as_mut().unwrap().generate.consistency[1].1 =
                        "45 imports in the Python files, 0 of them of a file that is listed"
                            .to_owned()
                }),
                (Archive, "cat fails", |run| {
                    run.model_files.as_mut().unwrap().generate.steps[0].outcome =
                        "exit status: 1".to_owned()
                }),
                (Archive, "another file each time", |run| {
                    run.model_files.as_mut().unwrap().generate.consistency[0].1 =
                        "1 of 4".to_owned()
                }),
                (NotDecided, "consistency was not checked", |run| {
                    run.model_files
                        .as_mut()
                        .unwrap()
                        .generate
                        .consistency
                        .clear()
                }),
                (AdoptIf, "the prompt is long", |run| {
                    run.model_files.as_mut().unwrap().generate.steps[0].prompt_tokens = 4000
                }),
                (Archive, "a file takes a minute", |run| {
                    run.model_files.as_mut().unwrap().generate.steps[0].seconds = 240.0
                }),
            ],
        ),
    ]
}
