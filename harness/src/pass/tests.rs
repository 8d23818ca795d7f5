//! Blocks over a plain directory, with a clock that says what it is told to.

mod hosts;

use super::*;
use crate::clock::Scripted;
use crate::supervise::supervise;
use workloads::path::WorkspacePath;

fn path(path: &str) -> WorkspacePath {
    WorkspacePath::new(path).unwrap()
}

fn workload(script: Script) -> Arc<Workload> {
    Arc::new(Workload {
        name: "micro/test".to_owned(),
        essay: "A test.".to_owned(),
        states: vec![CacheState::Hot],
        script,
        session: workloads::definition::SessionSource::Script,
        contexts: Vec::new(),
        file: None,
        is_recorded: false,
        fits_fixed_tree: false,
        asks: false,
        sha256: String::new(),
    })
}

/// Runs a script over a plain directory, with a clock that makes each call take what it is told.
fn measured(script: Script, times: &[u64], timeout: Duration) -> Measured {
    let direct = backends::backend::find("direct").unwrap();
    measured_on(direct.into(), script, times, timeout)
}

fn measured_on(
    backend: Arc<dyn Backend>,
    script: Script,
    times: &[u64],
    timeout: Duration,
) -> Measured {
    let dir = tempfile::tempdir().unwrap();
    let task = Task {
        backend,
        workload: workload(script),
        state: CacheState::Hot,
        site: Site {
            dir: dir.path().to_owned(),
            program: "/nonexistent".into(),
            patience: Duration::from_secs(1),
            cpu: None,
            allow_other: false,
        },
        call_timeout: timeout,
        interrupt: Interrupt::never(),
    };
    // Each call reads the clock twice; the harness's own time in between costs nothing.
    let steps: Vec<u64> = times.iter().flat_map(|time| [1_000_000, *time]).collect();
    supervise(&Interrupt::never(), move |pulse| {
        task.run(pulse, &Scripted::new(steps))
    })
    .unwrap()
}

fn two_files() -> Script {
    let content = |text: &str| Bytes::from(text.as_bytes());
    Script::new(vec![
        (path("a"), content("first")),
        (path("b"), content("second")),
    ])
}

/// A plain directory that is tampered with once it has been filled, and may say that it died.
struct Tampered {
    tamper: fn(&Path),
    obituary: Option<&'static str>,
    guesses_content: bool,
}

struct TamperedWorkspace {
    root: std::path::PathBuf,
    tamper: fn(&Path),
    obituary: Option<&'static str>,
}

fn of_a_plain_directory(below: &Path) -> backends::backend::Lifeline {
    let direct = backends::backend::find("direct").unwrap();
    let site = Site {
        dir: below.join("unused"),
        program: "/nonexistent".into(),
        patience: Duration::ZERO,
        cpu: None,
        allow_other: false,
    };
    direct.open(&site).unwrap().lifeline()
}

impl Backend for Tampered {
    fn describe(&self) -> backends::backend::Description {
        let mut described = backends::backend::find("direct").unwrap().describe();
        described.capabilities.guesses_content = self.guesses_content;
        described
    }

    fn receipt(&self) -> Result<backends::backend::Receipt, backends::backend::Unavailable> {
        Ok(Default::default())
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        Ok(Box::new(TamperedWorkspace {
            root: site.dir.clone(),
            tamper: self.tamper,
            obituary: self.obituary,
        }))
    }

    fn offline_read(&self, _: &Site, _: &str) -> Option<(String, Vec<std::ffi::OsString>)> {
        None
    }
}

impl Workspace for TamperedWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lifeline(&self) -> backends::backend::Lifeline {
        of_a_plain_directory(&self.root)
    }

    fn daemon(&self) -> Option<u32> {
        None
    }

    fn time_to_ready(&self) -> Duration {
        Duration::ZERO
    }

    fn sync(&mut self) -> io::Result<()> {
        (self.tamper)(&self.root);
        Ok(())
    }

    fn drop_caches(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        Ok(None)
    }

    fn obituary(&mut self) -> Option<String> {
        self.obituary.map(str::to_owned)
    }

    fn kill(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

fn tampered(tamper: fn(&Path), obituary: Option<&'static str>) -> Measured {
    let mut script = two_files();
    script.warm_up.clear();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("b"))]);
    let backend = Tampered {
        tamper,
        obituary,
        guesses_content: false,
    };
    measured_on(
        Arc::new(backend),
        script,
        &[100, 200],
        Duration::from_secs(10),
    )
}

#[test]
fn a_wrong_byte_an_error_and_a_death_are_told_apart_and_in_no_latency() {
    let flip: fn(&Path) = |root| std::fs::write(root.join("a"), "fIrst").unwrap();
    let remove: fn(&Path) = |root| std::fs::remove_file(root.join("a")).unwrap();

    let wrong = tampered(flip, None);
    assert_eq!(
        wrong.outcomes,
        BTreeMap::from([(Outcome::Ok, 1), (Outcome::WrongData, 1)])
    );
    assert_eq!((wrong.makespan_ns, wrong.calls["read"].count), (200, 1));
    assert_eq!(
        wrong.waited_ns, 300,
        "the caller waited for wrong bytes, too"
    );
    let (outcome, reason) = wrong.verdict.unwrap();
    assert_eq!(
        (outcome, reason.as_str()),
        (Outcome::WrongData, "read a: byte 1 of 5 is wrong")
    );

    let failed = tampered(remove, None);
    assert_eq!(failed.outcomes[&Outcome::Errno], 1);
    assert_eq!(failed.verdict.unwrap().0, Outcome::Errno);

    let died = tampered(remove, Some("the daemon was killed"));
    let (outcome, reason) = died.verdict.unwrap();
    assert_eq!(outcome, Outcome::Crash);
    assert!(reason.ends_with("; the daemon was killed"), "{reason}");
    assert_eq!(
        died.outcomes,
        BTreeMap::from([(Outcome::Crash, 1)]),
        "nothing follows a death"
    );
}

#[test]
fn what_a_backend_guesses_is_asked_for_by_timed_reads_only() {
    let spoil: fn(&Path) = |root| std::fs::write(root.join("b"), "sXcond").unwrap();
    let remove: fn(&Path) = |root| std::fs::remove_file(root.join("b")).unwrap();
    let verdict = |tamper, guesses_content| {
        let mut script = two_files();
        // A search of everything; the listings would show a directory of the test's own.
        script.warm_up.truncate(1);
        script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
        let backend = Tampered {
            tamper,
            obituary: None,
            guesses_content,
        };
        let measured = measured_on(Arc::new(backend), script, &[100], Duration::from_secs(10));
        measured.verdict.map(|(outcome, _)| outcome)
    };
    assert_eq!(verdict(spoil, false), Some(Outcome::WrongData));
    assert_eq!(verdict(spoil, true), None, "nobody read b");
    assert_eq!(
        verdict(remove, true),
        Some(Outcome::WrongData),
        "names are no guess"
    );
}

#[test]
fn a_call_takes_what_the_clock_says_and_nothing_around_it_counts() {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("b"))]);
    // Applied and checked, but nobody's waiting time.
    script.meanwhile(vec![FileOp::Remove(path("a"))]);
    script.call(CallKind::Stat, vec![FileOp::Stat(path("b"))]);
    let measured = measured(script, &[100, 300, 7777, 50], Duration::from_secs(10));
    assert!(measured.verdict.is_none(), "{:?}", measured.verdict);
    assert_eq!(measured.makespan_ns, 450);
    let read = &measured.calls["read"];
    assert_eq!((read.count, read.total_ns, read.max_ns), (2, 400, 300));
    assert_eq!(measured.calls["stat"].total_ns, 50);
    assert_eq!(measured.outcomes, BTreeMap::from([(Outcome::Ok, 3)]));
    assert_eq!(measured.bytes_read, 11);
}

#[test]
fn a_failure_that_the_recording_had_too_is_waited_for_but_is_in_no_latency() {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.meanwhile(vec![FileOp::Remove(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    let measured = measured(script, &[100, 1, 200], Duration::from_secs(10));
    assert_eq!(measured.outcomes[&Outcome::Ok], 2);
    assert_eq!(measured.makespan_ns, 300);
    let read = &measured.calls["read"];
    assert_eq!((read.count, read.total_ns), (1, 100));
}

#[test]
fn a_call_that_ends_too_late_is_a_timeout() {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("b"))]);
    let measured = measured(script, &[2_000_000_000, 100], Duration::from_secs(1));
    assert_eq!(
        measured.outcomes,
        BTreeMap::from([(Outcome::Ok, 1), (Outcome::Timeout, 1)])
    );
    let (outcome, reason) = measured.verdict.unwrap();
    assert_eq!(
        (outcome, reason.as_str()),
        (Outcome::Timeout, "read a: took 2.0 s")
    );
    assert_eq!(measured.makespan_ns, 100);
}

#[test]
fn a_workspace_that_cannot_be_filled_is_a_setup_failure() {
    let mut script = two_files();
    script.dirs.clear();
    script
        .files
        .push((path("no/dir/for/this"), Bytes::from([])));
    script.call(CallKind::Stat, vec![FileOp::Stat(path("a"))]);
    let measured = measured(script, &[], Duration::from_secs(1));
    let (outcome, reason) = measured.verdict.unwrap();
    assert_eq!(outcome, Outcome::Setup);
    assert!(reason.contains("write no/dir/for/this"), "{reason}");
    assert!(measured.outcomes.is_empty());
}

#[test]
fn of_several_failures_the_worst_stands() {
    let mut measured = Measured::default();
    measured.note(Outcome::Errno, "first".to_owned());
    measured.note(Outcome::WrongData, "second".to_owned());
    measured.note(Outcome::WrongData, "third".to_owned());
    measured.note(Outcome::Timeout, "fourth".to_owned());
    assert_eq!(
        measured.verdict,
        Some((Outcome::WrongData, "second".to_owned()))
    );
}
