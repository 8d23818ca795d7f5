//! For each policy changes of the evidence that adopts its candidate, with the verdicts that they lead to.

use rundir::{Outcome, Run};

use super::PolicyVerdict::{self, Adopt, AdoptIf, Archive, NotDecided};
use crate::testing::evidence::*;
use figures::testing;

/// A verdict, and the change of the evidence that leads to it: in words, and as a function.
pub(super) type Change = (PolicyVerdict, &'static str, fn(&mut Run));
/// A policy, a candidate, evidence that adopts it, and changes of the evidence with their verdicts.
pub(super) type Case = (&'static str, &'static str, fn() -> Run, Vec<Change>);

pub(super) fn cases() -> Vec<Case> {
    vec![
        (
            "cron-controller",
            "sqlite",
            cron,
            vec![
                (Archive, "calls fail when the daemon dies", |run| {
                    run.faults.iter_mut().for_each(|fault| fault.failed_calls = 20 * u64::from(fault.killed))
                }),
                (Archive, "a tool does not work", |run| probe(run, "tool", "grep", "sqlite", Outcome::Errno)),
                (Archive, "no benefit: health is not computed, logs and losses as before", |run| {
                    triage(run, 5, 5);
                    log(run, 5, 5);
                    power_loss(run, 10, 10);
                }),
                (Archive, "a program beside the files prints the same health", |run| {
                    log(run, 5, 5);
                    programs_print(run, "agent/inbox-triage", 10);
                }),
                (NotDecided, "no program beside the files was tried", |run| {
                    run.samples.iter_mut().for_each(|pass| drop(pass.scores.remove("programs")))
                }),
                (NotDecided, "no daemon was killed", |run| run.faults.clear()),
                (AdoptIf, "a triage takes fifty times as long", |run| testing::scale(run, "sqlite", 50.0)),
                (Archive, "a record is lost", |run| run.faults[1].lost = 1),
                (NotDecided, "the daemon was killed once", |run| run.crash_points.clear()),
                (Archive, "eight triages wait a second longer", |run| {
                    slow(run, "agent/inbox-triage", "sqlite", 100_000.0)
                }),
                (Archive, "a triage takes eleven calls of the model", |run| {
                    score(run, "agent/inbox-triage", "sqlite", "task", &[("calls", 1_100)])
                }),
                (NotDecided, "no triage was timed or counted", |run| {
                    run.samples.retain(|pass| pass.workload != "agent/inbox-triage");
                    run.cells.retain(|cell| cell.workload != "agent/inbox-triage");
                }),
                (Adopt, "it cannot run the cycle that writes, as a view", |run| {
                    skip(run, "agent/vsm-cycle", "sqlite", "it shows what others write")
                }),
                (Archive, "the files are back after a minute", |run| run.faults[1].recovery_ms = 60_000),
                (Archive, "cron has to ask for help", |run| run.faults[1].recovered = false),
                (Adopt, "aggregated logs are shorter", |run| log(run, 100, 10)),
                (Adopt, "more is left when the power goes", |run| power_loss(run, 5, 10)),
                (Archive, "four facts are hidden", |run| {
                    for fact in ["a", "b", "c", "d"] {
                        probe(run, "visible", fact, "direct", Outcome::Ok);
                        probe(run, "visible", fact, "sqlite", Outcome::Errno);
                    }
                }),
                (Adopt, "three mounts, which are declared", |run| run.plan.arms[2].backend.mounts = 3),
            ],
        ),
        (
            "inbox",
            "view-mail",
            inbox,
            vec![
                (Archive, "files save no tokens", |run| {
                    let counts = [("definition-tokens", 90_000), ("result-tokens", 60_000)];
                    task(run, "agent/inbox-find", &counts);
                    task(run, "agent/inbox-log", &counts);
                    task(run, "agent/inbox-triage", &counts);
                }),
                (NotDecided, "no task was measured", |run| {
                    let passes = run.samples.iter_mut();
                    passes.for_each(|pass| pass.scores.clear())
                }),
                (Archive, "answers of one pass of many are stale", |run| {
                    let mut passes = testing::passes(run, "agent/inbox-find", "view-mail");
                    let scores = &mut passes.find(|pass| !pass.warm_up).unwrap().scores;
                    scores.get_mut("task").unwrap().get_mut("stale-answers").unwrap().sum = 3;
                }),
                (Archive, "one answer of fifty is stale", |run| task(run, "agent/inbox-find", &[("stale-answers", 2)])),
                (NotDecided, "a dozen questions were asked", |run| {
                    let mut passes = testing::passes(run, "agent/inbox-find", "view-mail");
                    let scores = passes.next().unwrap().scores.get_mut("task").unwrap();
                    scores.get_mut("stale-answers").unwrap().of = 12;
                    passes.for_each(|pass| pass.scores.clear());
                }),
                (AdoptIf, "triage reads more", |run| task(run, "agent/inbox-triage", &[("result-tokens", 90_000)])),
                (Archive, "a triage reads more than definitions save", |run| {
                    task(run, "agent/inbox-triage", &[("result-tokens", 290_000)])
                }),
                (Archive, "a triage waits three hundred times as long", |run| {
                    slow(run, "agent/inbox-triage", "view-mail", 300.0)
                }),
                (Archive, "a message is not found", |run| fail_a_pass(run, "agent/inbox-find", "view-mail")),
                (Archive, "a message is filed wrongly", |run| fail_a_pass(run, "agent/inbox-triage", "view-mail")),
                (Adopt, "a process for each mailbox, as declared", |run| run.plan.arms[2].backend.daemons = 9),
                (Archive, "a commit is seen after twenty seconds", |run| {
                    task(run, "agent/inbox-triage", &[("lag-us", 2_000_000_000)])
                }),
                (Archive, "the next start needs a hand", |run| run.faults[1].recovered = false),
                (NotDecided, "the daemon was killed four times", |run| cron_kills(run, 4)),
                (Archive, "the files are back after a minute", |run| {
                    run.faults.iter_mut().for_each(|fault| fault.recovery_ms = 60_000)
                }),
            ],
        ),
        (
            "coding-agent",
            "sqlite",
            coding,
            vec![
                (Archive, "it has no property, and is as slow as the baseline", |run| {
                    power_loss(run, 10, 10);
                    properties(run, Outcome::Skipped);
                }),
                (Adopt, "it has no property, and takes a quarter of the time", |run| {
                    power_loss(run, 10, 10);
                    properties(run, Outcome::Skipped);
                    slow(run, "program/git", "sqlite", 0.25);
                }),
                (Archive, "a tool does not work", |run| probe(run, "tool", "git", "sqlite", Outcome::Errno)),
                (NotDecided, "a tool is broken on the machine", |run| {
                    for arm in ["direct", "sqlite"] {
                        probe(run, "tool", "git", arm, Outcome::Errno);
                    }
                }),
                (Archive, "renaming does not work", |run| {
                    let rename = "rename: replaces";
                    probe(run, "conformance", rename, "direct", Outcome::Ok);
                    probe(run, "conformance", rename, "sqlite", Outcome::Errno);
                }),
                (NotDecided, "conformance was not tried", |run| {
                    run.probes.retain(|probe| probe.aspect != "conformance")
                }),
                (NotDecided, "a busy machine", |run| testing::make_busy(run)),
                (Archive, "git takes three times as long", |run| slow(run, "program/git", "sqlite", 3.0)),
                (Archive, "git takes three times as long in a small repository", |run| {
                    slow(run, "program/git", "sqlite", 3.0);
                    for arm in ["direct", "direct-again", "sqlite"] {
                        slow(run, "program/git", arm, 1e-3);
                    }
                }),
                (Adopt, "its properties are for some, and a quarter of the time for all", |run| {
                    slow(run, "program/git", "sqlite", 0.25)
                }),
                (Archive, "one read in a hundred takes 100 ms", |run| slow_tail(run, "micro/read-1k", 500)),
                (Archive, "every sixth kill loses a record", |run| kills(run, "sqlite", 10)),
                (Archive, "every sixth power cut loses a record", |run| {
                    run.crash_points
                        .iter_mut()
                        .filter(|points| points.loss == "power-loss")
                        .for_each(|points| points.broken = Some(10))
                }),
                (NotDecided, "the power was cut ten times", |run| {
                    run.crash_points.iter_mut().for_each(|points| points.points = 10)
                }),
                (NotDecided, "properties were not tried", |run| {
                    power_loss(run, 10, 10);
                    run.probes.retain(|probe| probe.aspect != "property");
                }),
                (AdoptIf, "no package was installed", |run| {
                    run.samples.retain(|pass| pass.workload != "program/npm-few");
                    run.cells.retain(|cell| cell.workload != "program/npm-few");
                }),
                (AdoptIf, "all programs are measured", |run| programs(run, 1.0)),
                (Archive, "all programs take ten times as long", |run| programs(run, 10.0)),
                (Archive, "a record is lost", |run| run.faults[1].lost = 1),
                (AdoptIf, "a session is short", |run| set_session(run, "agent/claude-code-write-heavy", Some(1000))),
                (Archive, "a session's file calls take twenty times as long", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(2_000_000_000));
                    slow(run, "agent/claude-code-write-heavy", "sqlite", 40.0);
                }),
                (AdoptIf, "a process for each directory, as declared", |run| run.plan.arms[2].backend.daemons = 9),
                (Archive, "the next start needs a hand", |run| run.faults[1].recovered = false),
                (Archive, "installing takes ten times as long", |run| slow(run, "program/npm-few", "sqlite", 10.0)),
                (Archive, "the files are back after a minute", |run| run.faults[1].recovery_ms = 60_000),
            ],
        ),
        (
            "agent-memory",
            "sqlite",
            memory,
            vec![
                (Archive, "it finds nothing", |run| recalls(run, &[("evidence-in-budget", 0)])),
                (NotDecided, "no question was asked", |run| {
                    let passes = run.samples.iter_mut();
                    passes.for_each(|pass| pass.scores.clear())
                }),
                (Archive, "a session's file calls take twenty times as long", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(2_000_000_000));
                    slow(run, "agent/claude-code-write-heavy", "sqlite", 20.0);
                }),
                (Archive, "it finds less than grep in dialogues", |run| recalls_dialogues(run, 10)),
                (NotDecided, "it finds a few more than grep, of a hundred questions", |run| recalls_dialogues(run, 52)),
                (NotDecided, "no dialogue was asked", |run| run.samples.retain(|pass| pass.workload != DIALOGUES)),
                (Archive, "it sends as much as the file", |run| recalls(run, &[("tokens", 4_000_000)])),
                (Archive, "every sixth kill loses a note", |run| kills(run, "sqlite", 10)),
                (Archive, "a search fails", |run| fail_a_pass(run, "micro/find-in-files-1000", "sqlite")),
                (AdoptIf, "a session is short", |run| set_session(run, "agent/claude-code-write-heavy", Some(1000))),
                (Adopt, "a process for each note, as declared", |run| run.plan.arms[2].backend.daemons = 9),
                (Archive, "it answers with what no longer holds", |run| recalls_changed(run, 200)),
                (NotDecided, "six in a hundred answers are outdated", |run| recalls_changed(run, 60)),
                (Archive, "the next start needs a hand", |run| run.faults[1].recovered = false),
                (Archive, "the files are back after a minute", |run| run.faults[1].recovery_ms = 60_000),
            ],
        ),
        (
            "roaming-agents",
            "sqlite",
            roaming,
            vec![
                (Archive, "the memory is gone with the machine", |run| machine_loss(run, Outcome::WrongData)),
                (Archive, "a line is lost", |run| settle(run, |settled| settled.lost = 1)),
                (Archive, "half of the losses of the machine lose records", |run| machine_losses(run, 30)),
                (NotDecided, "no loss of the machine was tried with records", |run| {
                    run.crash_points.retain(|points| points.loss != "machine-loss")
                }),
                (Archive, "a session's file calls take twenty times as long", |run| {
                    set_session(run, "agent/claude-code-write-heavy", Some(2_000_000_000));
                    slow(run, "agent/claude-code-write-heavy", "sqlite", 20.0);
                }),
                (NotDecided, "no loss of a machine was tried", |run| {
                    run.probes.retain(|probe| probe.name != "survives-machine-loss")
                }),
                (AdoptIf, "more lines end in conflict copies than rsync loses", |run| {
                    settle(run, |settled| (settled.on_both, settled.only_in_copies) = (40, 10))
                }),
                (Adopt, "as many lines end in conflict copies as rsync loses", |run| {
                    settle(run, |settled| (settled.on_both, settled.only_in_copies) = (44, 6))
                }),
                (AdoptIf, "rsync loses no line, and four are in conflict copies", |run| {
                    rsync_loses(run, 0);
                    settle(run, |settled| (settled.on_both, settled.only_in_copies) = (46, 4))
                }),
                (NotDecided, "rsync is not installed", |run| {
                    run.samples.retain(|pass| pass.arm != "rsync" && pass.workload != "program/rsync-few");
                    run.cells.retain(|cell| cell.arm != "rsync" && cell.workload != "program/rsync-few");
                }),
                (Archive, "a note is seen after many seconds", |run| slow_tail(run, "agent/handoff-few", 200_000)),
                (Archive, "a record is lost in a kill", |run| run.faults[1].lost = 1),
                (Archive, "every sixth kill loses a record", |run| kills(run, "sqlite", 10)),
                (Archive, "the next start needs a hand", |run| run.faults[1].recovered = false),
                (NotDecided, "every note was seen, but none in a quiet pass", |run| {
                    let cells = run.cells.iter_mut().filter(|cell| cell.arm == "sqlite");
                    cells.filter(|cell| cell.workload == "agent/handoff-few").for_each(|cell| cell.latencies.clear());
                }),
                (Archive, "no note is seen", |run| {
                    let cells = run.cells.iter_mut().filter(|cell| cell.arm == "sqlite");
                    cells.filter(|cell| cell.workload == "agent/handoff-few").for_each(|cell| cell.latencies.clear());
                    for pass in testing::passes(run, "agent/handoff-few", "sqlite") {
                        pass.calls.get_mut("handoff").unwrap().count = 0;
                    }
                }),
                (Archive, "one note is not seen", |run| {
                    let mut passes = testing::passes(run, "agent/handoff-few", "sqlite");
                    let pass = passes.find(|pass| !pass.warm_up).unwrap();
                    pass.calls.get_mut("handoff").unwrap().count -= 1;
                }),
                (Archive, "no other host sees a note", |run| {
                    skip(run, "agent/handoff-few", "sqlite", "one mount at a time")
                }),
                (Adopt, "no other host sees a plain directory, as in every run", |run| {
                    for workload in ["agent/handoff-few", "agent/two-writers-few"] {
                        skip(run, workload, "direct", "it is on one machine");
                    }
                }),
                (NotDecided, "no second host was there", |run| {
                    run.samples.retain(|pass| pass.workload != "agent/handoff-few");
                    run.cells.retain(|cell| cell.workload != "agent/handoff-few");
                }),
                (AdoptIf, "a session is short", |run| set_session(run, "agent/claude-code-write-heavy", Some(1000))),
                (Archive, "a sync waits for an unknown reason", |run| slow(run, "agent/sync-100", "sqlite", 12_000.0)),
                (Adopt, "six more things to run, as declared", |run| run.plan.arms[2].backend.daemons = 6),
                (Archive, "the files are back after a minute", |run| run.faults[1].recovery_ms = 60_000),
            ],
        ),
        (
            "long-context",
            "evict",
            long_context,
            vec![
                (Archive, "it leaves out nothing", |run| evict_nothing(run, false, 0)),
                (Archive, "recorded sessions cost more", |run| evict_nothing(run, true, 5_000)),
                (AdoptIf, "recorded sessions save nothing", |run| evict_nothing(run, true, 0)),
                (NotDecided, "a recorded session was not counted", |run| {
                    run.contexts.retain(|context| context.workload != "agent/claude-code-compaction")
                }),
                (NotDecided, "the example was not counted", |run| {
                    run.contexts.retain(|context| context.workload != "agent/offload-comparison")
                }),
                (Adopt, "a turn waits on one place", |run| testing::scale(run, "sqlite", 300.0)),
                (Adopt, "one place returns other bytes", |run| fail_a_pass(run, "agent/offload-comparison", "sqlite")),
                (Archive, "no place returns what was stored", |run| {
                    for arm in ["direct", "sqlite"] {
                        fail_a_pass(run, "agent/offload-comparison", arm);
                    }
                }),
                (NotDecided, "no place was killed", |run| {
                    run.crash_points.clear();
                    run.faults.clear();
                }),
            ],
        ),
        (
            "exploration",
            "llm-generate",
            exploration,
            vec![
                (Archive, "files name files that do not exist", |run| {
                    made_up(run).consistency[1].1 =
                        "45 imports in the Python files, 0 of them of a file that is listed".to_owned()
                }),
                (Archive, "cat fails", |run| made_up(run).steps[0].outcome = "exit status: 1".to_owned()),
                (Archive, "another file each time", |run| made_up(run).consistency[0].1 = "1 of 4".to_owned()),
                (NotDecided, "the model is small", |run| {
                    run.model_files.as_mut().unwrap().model = "SmolLM2-135M".to_owned()
                }),
                (NotDecided, "the name of the model states no size", |run| {
                    run.model_files.as_mut().unwrap().model = "tiny".to_owned()
                }),
                (NotDecided, "consistency was not checked", |run| made_up(run).consistency.clear()),
                (AdoptIf, "the prompt is long", |run| made_up(run).steps[0].prompt_tokens = 4000),
                (Archive, "a file takes a minute", |run| made_up(run).steps[0].seconds = 240.0),
            ],
        ),
    ]
}
