use arms::promise::Acknowledgement::Write;
use rundir::faults::AuditVerdict;

use super::super::history::RecordChange;
use super::*;

/// A test bed of a backend that mounts, with nothing mounted.
fn bare(dir: &Path) -> TestBed {
    let text = "name = \"x\"\ngroup = \"daemon\"\ntitle = \"t\"\nessay = \"What it stands for, and what a good backend does about it, in a sentence or two.\"\ninjection = \"nothing\"\n";
    let scenario = Scenario::parse(Path::new("x.toml"), text).unwrap();
    std::fs::create_dir_all(dir.join("mnt")).unwrap();
    let config = WorkspaceConfig::new(dir.to_owned(), PathBuf::from("/nonexistent"));
    let backend = backends::registry::Registry::default().find("sqlite").unwrap();
    TestBed::new(&scenario, backend.into(), config, 1, Interrupt::never(), false)
}

#[test]
fn an_agent_gets_no_task_while_nothing_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let mut bed = bare(dir.path());
    bed.history.begin(1, 1, RecordChange::Put);
    bed.history.acknowledge(1, 1, Write);
    // The bare directory holds a record, and would accept another.
    let usable = bed.is_usable().unwrap();
    assert_eq!(usable, Err("mount: nothing is mounted there".to_owned()));
    let audit = bed.audit_promise(Some(Write)).unwrap();
    assert_eq!((audit.verdict, audit.lost, audit.present), (AuditVerdict::Unknown, 0, 0), "{audit:?}");
    let failed = bed.write_whole(5).unwrap();
    assert!(failed.unwrap().contains("nothing is mounted"));
    assert_eq!(std::fs::read_dir(dir.path().join("mnt")).unwrap().count(), 0);
    // A path outside the mount point is not in the mount.
    assert!(!bed.is_bare(&dir.path().join("second").join("mnt")));
}

#[test]
fn an_agents_writes_to_a_bare_mount_point_are_not_acknowledgements() {
    let dir = tempfile::tempdir().unwrap();
    let mut bed = bare(dir.path());
    let records = dir.path().join("mnt").join("records");
    std::fs::create_dir(&records).unwrap();
    std::fs::write(records.join("r000001"), "x").unwrap();
    bed.sweep();
    assert!(!records.exists(), "the next mount needs an empty directory");
    let audit = bed.audit_promise(Some(Write)).unwrap();
    assert_eq!(audit.verdict, AuditVerdict::Unknown);
    assert!(audit.note.unwrap().contains("prove nothing"));
}

#[test]
fn a_call_over_the_limit_is_a_breach_even_if_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut bed = bare(dir.path());
    let answer = |seconds: u64| JobAnswer { longest_ns: seconds * 1_000_000_000, ..JobAnswer::default() };
    bed.note(&answer(30));
    assert_eq!(bed.outcome.breaches, [""; 0]);
    bed.note(&answer(31));
    assert!(bed.outcome.breaches[0].contains("31.0 s"), "{:?}", bed.outcome.breaches);
    bed.note_uninterruptible(Duration::from_secs(29));
    assert_eq!(bed.outcome.breaches.len(), 1);
    bed.note_uninterruptible(Duration::from_secs(31));
    assert!(bed.outcome.breaches[1].contains("state D"));
    assert_eq!(bed.outcome.uninterruptible_ms, 31_000);
}
