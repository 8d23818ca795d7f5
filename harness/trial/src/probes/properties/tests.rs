use std::fs;
use std::sync::Arc;

use arms::backend::{Backend, Description, Unavailable, Versions};
use arms::source::Source;

use rundir::SkipReason;

use super::*;
use crate::interrupt::Interrupt;
use crate::watchdog::supervise;

fn direct() -> Arc<dyn Backend> {
    backends::registry::Registry::default().find("direct").unwrap().into()
}

/// How much of a long file the store keeps with the others.
const HEAD: u64 = 256 * 1024;

/// A store over directories that offers every property, and how it lies.
#[derive(Clone, Debug, Default)]
struct LyingBackend {
    /// Offers nothing.
    nothing: bool,
    /// Does not name the directory of its tails as part of its state.
    no_tails: bool,
    /// Reads a snapshot from the live files.
    live_snapshot: bool,
    /// Names every file in a diff.
    whole_diff: bool,
    /// Keeps the newest version alone.
    one_version: bool,
    /// Makes a fork that is the original.
    linked_fork: bool,
    /// The directory of its bucket.
    bucket: Option<PathBuf>,
    /// Has a bucket, and stores nothing in it.
    empty_bucket: bool,
    /// Shows none of what others write into its source.
    blind: bool,
}

struct LyingWorkspace {
    backend: LyingBackend,
    dir: PathBuf,
    root: PathBuf,
}

impl Backend for LyingBackend {
    fn describe(&self) -> Description {
        let mut described = direct().describe();
        described.name = "offering".to_owned();
        described.capabilities.several_hosts = !self.nothing;
        described
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Versions::new())
    }

    fn ends_with_process(&self) -> bool {
        self.bucket.is_some()
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        self.blind.then(|| Source::Directory(dir.join("plain")))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let home = match &self.bucket {
            Some(bucket) if !self.empty_bucket => bucket.join(config.dir.file_name().unwrap()),
            _ => config.dir.clone(),
        };
        let root = home.join("root");
        fs::create_dir_all(&root)?;
        fs::create_dir_all(config.dir.join("plain/state"))?;
        fs::create_dir_all(root.join("state"))?;
        let (long, tail) = (root.join("tree/long.bin"), config.dir.join("tails/long"));
        if tail.exists() {
            let mut file = fs::File::options().append(true).open(long)?;
            file.write_all(&fs::read(tail)?)?;
        }
        Ok(Box::new(LyingWorkspace { backend: self.clone(), dir: config.dir.clone(), root }))
    }
}

impl Workspace for LyingWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, _: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        Ok((!self.backend.nothing).then(|| -> Box<dyn Workspace> {
            Box::new(Self { backend: self.backend.clone(), dir: self.dir.clone(), root: self.root.clone() })
        }))
    }

    fn state(&self) -> Vec<PathBuf> {
        let is_elsewhere = self.backend.nothing || self.backend.bucket.is_some();
        let names: &[&str] = match (is_elsewhere, self.backend.no_tails) {
            (true, _) => &[],
            (false, true) => &["root"],
            (false, false) => &["root", "tails"],
        };
        names.iter().map(|name| self.dir.join(name)).collect()
    }

    fn stop(&mut self) -> io::Result<()> {
        let long = self.root.join("tree/long.bin");
        if let Ok(bytes) = fs::read(&long) {
            fs::create_dir(self.dir.join("tails"))?;
            fs::write(self.dir.join("tails/long"), &bytes[HEAD as usize..])?;
            fs::File::options().write(true).open(&long)?.set_len(HEAD)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let (kept, live) = (self.dir.join("versions"), self.root.join("versions"));
        if let Ok(bytes) = fs::read(live) {
            fs::create_dir_all(&kept)?;
            let number = if self.backend.one_version { 0 } else { fs::read_dir(&kept)?.count() };
            fs::write(kept.join(number.to_string()), bytes)?;
        }
        Ok(())
    }

    fn property(&mut self, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        if self.backend.nothing {
            return Ok(None);
        }
        let copy = |from: &Path, to: &Path| {
            let mut cp = Command::new("cp");
            super::super::run(cp.arg("-r").arg(from).arg(to), &self.dir).map_err(io::Error::other)
        };
        Ok(Some(match call {
            PropertyCall::Snapshot { at } => copy(&self.root, at)?,
            PropertyCall::ReadSnapshot { snapshot, file } => {
                if self.backend.live_snapshot {
                    fs::read_to_string(self.root.join(file))?
                } else {
                    fs::read_to_string(Path::new(snapshot).join(file))?
                }
            }
            PropertyCall::Diff { .. } if self.backend.whole_diff => "diff-changed\ndiff-unchanged\n".to_owned(),
            PropertyCall::Diff { snapshot } => {
                let mut diff = Command::new("diff");
                let output = diff.arg("-rq").arg(&self.root).arg(snapshot).output()?;
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            PropertyCall::Versions { .. } => {
                let kept = fs::read_dir(self.dir.join("versions"))?;
                kept.map(|entry| format!("{} kept\n", entry.unwrap().file_name().display())).collect()
            }
            PropertyCall::ReadVersion { version, .. } => fs::read_to_string(self.dir.join("versions").join(version))?,
            PropertyCall::Fork { from, to } => {
                let (from, to) = (self.root.join(from), self.root.join(to));
                if self.backend.linked_fork {
                    std::os::unix::fs::symlink(from, to).map(|()| String::new())?
                } else {
                    copy(&from, &to)?
                }
            }
        }))
    }
}

/// Probes a backend; the outcomes and details by name.
fn probed(backend: Arc<dyn Backend>) -> Vec<(String, Outcome, String)> {
    let scratch = tempfile::tempdir().unwrap();
    let prober = Prober {
        arm: "offering".to_owned(),
        backend,
        scratch: scratch.path().to_owned(),
        program: "/nonexistent".into(),
        interrupt: Interrupt::never(),
        kills: 0,
    };
    let probes = supervise(&Interrupt::never(), move |watchdog| probe(&prober, watchdog).unwrap());
    let probes = probes.unwrap();
    assert!(probes.iter().all(|probe| probe.aspect == "property"));
    for probe in probes.iter().filter(|probe| probe.outcome == Outcome::Skipped) {
        assert_eq!(probe.skipped, Some(SkipReason::NotOffered), "{probe:?}");
    }
    let found = probes.into_iter().map(|probe| (probe.name, probe.outcome, probe.detail));
    found.collect()
}

/// The names that did not end well.
fn failed(found: &[(String, Outcome, String)]) -> Vec<&str> {
    let failed = found.iter().filter(|(_, outcome, _)| *outcome != Outcome::Ok);
    failed.map(|(name, ..)| name.as_str()).collect()
}

#[test]
fn a_store_that_offers_everything_is_found_to_have_it() {
    let bucket = tempfile::tempdir().unwrap();
    let found = probed(Arc::new(LyingBackend::default()));
    assert_eq!(failed(&found), [MACHINE_LOSS], "{found:?}");
    assert_eq!(found[0].0, PORTABLE);
    let (_, _, portable) = &found[0];
    assert!(portable.contains("206 names") && portable.contains("202 files"), "{portable}");
    let found = probed(Arc::new(LyingBackend { bucket: Some(bucket.path().to_owned()), ..LyingBackend::default() }));
    let loss = found.iter().find(|(name, ..)| name == MACHINE_LOSS);
    assert_eq!(loss.unwrap().1, Outcome::Ok, "{found:?}");
}

#[test]
fn each_property_that_a_store_only_claims_is_found_to_be_missing() {
    let bucket = tempfile::tempdir().unwrap();
    let honest = LyingBackend::default;
    for (lying, name, said) in [
        (LyingBackend { no_tails: true, ..honest() }, PORTABLE, "long.bin has 262144 bytes, not 716800"),
        (LyingBackend { live_snapshot: true, ..honest() }, SNAPSHOT, "not in it as it was saved"),
        (LyingBackend { whole_diff: true, ..honest() }, DIFF, "named an unchanged file"),
        (LyingBackend { one_version: true, ..honest() }, VERSIONS, "none of 1 versions is version 1"),
        (LyingBackend { linked_fork: true, ..honest() }, FORK, "changed the original"),
        (
            LyingBackend { bucket: Some(bucket.path().to_owned()), empty_bucket: true, ..honest() },
            MACHINE_LOSS,
            "206 of 206 names",
        ),
    ] {
        let words = format!("{lying:?}");
        let found = probed(Arc::new(lying));
        let own = found.iter().find(|(own, ..)| own == name).unwrap();
        assert_eq!(own.1, Outcome::WrongData, "{words}: {own:?}");
        assert!(own.2.contains(said), "{words}: {own:?}");
        let others: Vec<&str> =
            failed(&found).into_iter().filter(|failed| ![name, MACHINE_LOSS, PORTABLE].contains(failed)).collect();
        assert_eq!(others, [""; 0], "{words}: {found:?}");
    }
    let found = probed(Arc::new(LyingBackend { blind: true, ..honest() }));
    for name in [SECOND_PROCESS, WATCHERS] {
        assert!(failed(&found).contains(&name), "{found:?}");
    }
}

#[test]
fn a_property_that_a_backend_does_not_name_is_not_offered() {
    let found = probed(Arc::new(LyingBackend { nothing: true, ..LyingBackend::default() }));
    for (name, outcome, detail) in &found {
        let expected = match name.as_str() {
            SECOND_PROCESS | WATCHERS => Outcome::Ok,
            _ => Outcome::Skipped,
        };
        assert_eq!(*outcome, expected, "{name}: {detail}");
    }
    assert_eq!(found.len(), PROPERTIES.len());
}

#[test]
fn a_plain_directory_is_portable_and_offers_no_snapshot() {
    let found = probed(direct());
    let outcome = |name: &str| found.iter().find(|(own, ..)| own == name).unwrap().1;
    for name in [PORTABLE, SECOND_PROCESS, WATCHERS] {
        assert_eq!(outcome(name), Outcome::Ok, "{found:?}");
    }
    // No other host sees a plain directory.
    for name in [SNAPSHOT, DIFF, VERSIONS, FORK, MACHINE_LOSS, WATCHERS_OTHER_HOST] {
        assert_eq!(outcome(name), Outcome::Skipped, "{found:?}");
    }
}

#[test]
fn files_in_tool_calls_are_portable_by_their_snapshot() {
    let state = backends::registry::Registry::default().find("state").unwrap();
    let found = probed(state.into());
    let ok = found.iter().filter(|(_, outcome, _)| *outcome == Outcome::Ok);
    let ok: Vec<&str> = ok.map(|(name, ..)| name.as_str()).collect();
    assert_eq!(ok, [PORTABLE, SNAPSHOT], "{found:?}");
    assert_eq!(found.len(), PROPERTIES.len());
}
