//! Tests with definitions that mount nothing.

use super::*;

#[test]
fn every_shipped_file_is_right_and_has_a_name_of_its_own() {
    let names: Vec<String> = shipped(&Arc::default()).iter().map(|external| external.describe().name).collect();
    assert!(names.len() >= 5, "{names:?}");
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    for external in shipped(&Arc::default()) {
        assert!(!external.definition.need.is_empty(), "{}", external.definition.name);
    }
}

/// Opens a workspace at `dir` from the text of a definition.
fn open(text: &str, dir: &Path) -> io::Result<Box<dyn Workspace>> {
    external(text).open(&config(dir))
}

fn external(text: &str) -> ExternalBackend {
    with_daemons(1, text)
}

/// A backend that says how many daemons it has.
fn with_daemons(count: u32, text: &str) -> ExternalBackend {
    let head = "name = 'x'\nsummary = 's'\ndurability = 'd'\npersistent = true\nversion = ['true']\n";
    let text = format!("{head}daemons = {count}\n{text}");
    let definition = ExternalDefinition::parse(Path::new("x.toml"), &text).unwrap();
    ExternalBackend { definition, server: None, digest: String::new(), file: None, services: Arc::default() }
}

fn config(dir: &Path) -> WorkspaceConfig {
    WorkspaceConfig {
        dir: dir.to_owned(),
        program: "unused".into(),
        patience: Duration::from_secs(60),
        cpu: None,
        allow_other: false,
    }
}

/// The patience with what never comes up.
const SOON: Duration = Duration::from_millis(300);

fn failure(text: &str) -> String {
    failure_within(Duration::from_secs(60), text)
}

fn failure_within(patience: Duration, text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    match external(text).open(&WorkspaceConfig { patience, ..config(dir.path()) }) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_system_that_does_not_come_up_says_why() {
    let hangs = failure_within(SOON, "mount = ['sleep', '1000']\nstays = true");
    assert!(hangs.starts_with("x took too long to mount"), "{hangs}");
    let ends = failure("mount = ['sh', '-c', 'echo no licence >&2; exit 3']\nstays = true");
    assert!(ends.contains("exit code 3") && ends.contains("no licence"), "{ends}");
    let fails = failure("setup = [['false']]\nmount = ['true']");
    assert_eq!(fails, "x could not be set up: false: exit code 1: ");
}

#[test]
fn a_definition_that_denies_its_daemon_is_refused() {
    let opened = |count, mount: &str| {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("mount = ['sh', '-c', '{mount}', 'sh', '{{data}}']\nready = ['true']\nroot = '{{data}}'");
        let opened = with_daemons(count, &text).open(&config(dir.path())).map(drop);
        if let Ok(pid) = std::fs::read_to_string(dir.path().join("data/pid")) {
            let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        opened
    };
    // As a daemon does: in a session of its own, after `mount` has ended.
    let daemon = "setsid sleep 1000 & echo $! > \"$1/pid\"";
    let refused = opened(0, daemon).unwrap_err().to_string();
    assert!(refused.contains("has `daemons = 0`, but its commands have left process"), "{refused}");
    opened(1, daemon).unwrap();
    // A helper that ends soon after `mount` is not a daemon.
    opened(0, "sleep 0.1 &").unwrap();
}

#[test]
fn a_version_command_that_fails_is_to_be_corrected() {
    let mut external = external("mount = ['true']");
    external.definition.version = vec!["false".to_owned()];
    let unavailable = external.versions().unwrap_err();
    assert_eq!(unavailable.reason, "its version cannot be read: false: exit code 1");
    assert_eq!(unavailable.fix, "correct `version` in its definition, or leave it out");
}

#[test]
fn a_file_that_is_plain_in_the_data_directory_can_be_read_without_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let (external, config) = (external("mount = ['true']"), config(dir.path()));
    assert_eq!(external.offline_read(&config, "a"), None, "its name is changed");
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let plain = dir.path().join("data/a");
    std::fs::write(&plain, "text").unwrap();
    assert_eq!(external.offline_read(&config, "a"), Some(("cat".to_owned(), vec![plain.into()])));
}

#[test]
fn services_files_environment_and_counters_are_those_of_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
services = [['sh', '-c', 'echo $$ > \"$1\"; exec sleep 1000', 'sh', '{data}/service']]
setup = [['sh', '-c', 'until test -s \"$1\"; do sleep 0.01; done', 'sh', '{data}/service'], ['sh', '-c', 'stat -c %a \"$1\" > \"$1.mode\"; echo $KEY >> \"$1\"', 'sh', '{site}/deep/key']]
mount = ['true']
ready = ['true']
root = '{data}'
counters = ['printf', 'object_put 3\\n\\nobject get 4\\n']
unmount = ['false']
teardown = [['touch', '{data}/torn']]
[environment]
KEY = 'of {id}'
[[file]]
path = '{site}/deep/key'
content = 'in {id},'";
    let mut workspace = open(text, dir.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("deep/key.mode"), "600\n");
    let key = read("deep/key");
    assert!(key.starts_with("in ") && key.contains(",of "), "{key}");
    let counters = workspace.counters().unwrap().unwrap().store;
    assert_eq!(counters, counted("object_put 3\nobject get 4").unwrap());
    assert!(counted("object_put three").is_err());
    let service = read("data/service");
    let service = Path::new("/proc").join(service.trim());
    assert!(service.exists());
    // The teardown runs even if the unmount fails.
    let error = workspace.close().unwrap_err().to_string();
    assert!(error.contains("could not be unmounted: false"), "{error}");
    assert!(!service.exists());
    assert!(dir.path().join("data/torn").exists());
}

#[test]
fn a_second_host_runs_no_more_than_its_own_and_takes_down_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let text = "
second_host = true
services = [['sh', '-c', 'echo service >> \"$1\"; exec sleep 1000', 'sh', '{first_data}/ran']]
setup = [['sh', '-c', 'until test -s \"$1\"; do sleep 0.01; done; echo setup >> \"$1\"', 'sh', '{first_data}/ran']]
mount = ['sh', '-c', 'echo mount \"$1\" \"$2\" >> \"$3\"', 'sh', '{mount}', '{id}', '{first_data}/mounts']
ready = ['test', '-e', '{site}/key']
root = '{first_data}'
unmount = ['sh', '-c', 'echo unmount \"$1\" >> \"$2\"', 'sh', '{mount}', '{first_data}/mounts']
teardown = [['sh', '-c', 'echo teardown >> \"$1\"', 'sh', '{first_data}/ran']]
[[file]]
path = '{site}/key'
content = 'k'";
    let first = open(text, dir.path()).unwrap();
    let beside = dir.path().join("second");
    std::fs::create_dir(&beside).unwrap();
    let second = first.second_host(&beside).unwrap().unwrap();
    assert_eq!(second.root(), first.root());
    second.close().unwrap();
    let said = |name: &str| std::fs::read_to_string(dir.path().join("data").join(name)).unwrap();
    assert!(!said("ran").contains("teardown"), "{}", said("ran"));
    first.close().unwrap();
    let ran = said("ran");
    for once in ["service", "setup", "teardown"] {
        assert_eq!(ran.matches(once).count(), 1, "{ran}");
    }
    let mounts = said("mounts");
    let lines: Vec<Vec<&str>> = mounts.lines().map(|l| l.split(' ').collect()).collect();
    let verbs: Vec<&str> = lines.iter().map(|words| words[0]).collect();
    assert_eq!(verbs, ["mount", "mount", "unmount", "unmount"]);
    assert_eq!(lines[0][2], lines[1][2], "both are of one workspace");
    assert!(lines[1][1].contains("second") && lines[2][1] == lines[1][1]);
    let alone = dir.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    let alone = open(&text.replace("true", "false"), &alone).unwrap();
    assert!(alone.second_host(&beside).unwrap().is_none());
}

#[test]
fn a_file_system_that_dies_or_does_not_end_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let served = "mount = ['sleep', '1000']\nstays = true\nready = ['true']\nroot = '{data}'\nunmount = ['true']";
    let impatient = WorkspaceConfig { patience: Duration::from_secs(3), ..config(dir.path()) };
    let mut workspace = external(served).open(&impatient).unwrap();
    assert_eq!(workspace.exit_reason(), None);
    let daemon = workspace.daemon().unwrap();
    let error = workspace.close().unwrap_err().to_string();
    assert!(error.contains("did not end after it was unmounted"), "{error}");
    assert!(!Path::new(&format!("/proc/{daemon}")).exists());

    let dies = served.replace("'sleep', '1000'", "'sleep', '0.2'");
    let mut workspace = open(&dies, dir.path()).unwrap();
    let began = Instant::now();
    let reason = loop {
        if let Some(reason) = workspace.exit_reason() {
            break reason;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(reason, "x ended: exit code 0");
}

#[test]
fn a_service_starts_after_setup_and_the_mount_waits_until_it_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let service = "setup = [['touch', '{site}/made']]\nmount = ['cat', '{site}/up']\nready = ['true']\nunmount = ['true']\n\
        [[service]]\nrun = ['sh', '-c', 'test -e {site}/made && sleep 0.1 && touch {site}/up && sleep 60']\nready = ['test', '-e', '{site}/up']\n";
    drop(open(service, dir.path()).unwrap());
    let never = failure_within(SOON, "mount = ['true']\n[[service]]\nrun = ['sleep', '60']\nready = ['false']\n");
    assert!(never.contains("x could not start its service sleep: its command `ready` did not succeed in"), "{never}");
    let ends = failure("mount = ['true']\n[[service]]\nrun = ['sh', '-c', 'exit 3']\nready = ['false']\n");
    assert!(ends.contains("x could not start its service sh, which ended before it was ready: exit code 3"), "{ends}");
}
