//! Changes of a controller's own files through its view.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A writable view of a controller's directory.
fn writable(dir: &Path) -> ViewStore {
    opened(&shipped("vsm"), dir.to_str().unwrap(), true).unwrap()
}

fn text(dir: &Path, path: &str) -> String {
    std::fs::read_to_string(dir.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn write_at(store: &ViewStore, path: &str, text: &str) -> Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap();
    let dir = go(store, dir).unwrap();
    let ino = match store.lookup(dir, name.as_bytes()) {
        Ok(attr) => attr.ino,
        Err(_) => store.create(&caller(2), dir, name.as_bytes(), &node(Kind::File))?.ino,
    };
    overwrite(store, ino, text)
}

fn append(store: &ViewStore, path: &str, text: &str) -> Result<()> {
    let ino = go(store, path)?;
    let writer = store.open(ino, true)?;
    store.append_handle(writer, text.as_bytes())?;
    close(store, writer, ino)
}

fn rename_with(store: &ViewStore, from: &str, to: &str, mode: RenameMode) -> Result<()> {
    let (from_dir, from_name) = from.rsplit_once('/').unwrap();
    let (to_dir, to_name) = to.rsplit_once('/').unwrap();
    let (from_dir, to_dir) = (go(store, from_dir)?, go(store, to_dir)?);
    store.rename(&caller(2), (from_dir, from_name.as_bytes()), (to_dir, to_name.as_bytes()), mode).map(|_| ())
}

fn rename(store: &ViewStore, from: &str, to: &str) -> Result<()> {
    rename_with(store, from, to, RenameMode::Replace)
}

fn remove(store: &ViewStore, path: &str) -> Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap();
    store.unlink(&caller(2), go(store, dir)?, name.as_bytes()).map(|_| ())
}

fn link(store: &ViewStore, target: &str, path: &str) -> Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap();
    let link = NewNode { kind: Kind::Symlink, permissions: 0o777, rdev: 0, target: target.as_bytes() };
    store.create(&caller(2), go(store, dir)?, name.as_bytes(), &link).map(|_| ())
}

fn make_directory(store: &ViewStore, path: &str) -> Result<()> {
    let (dir, name) = path.rsplit_once('/').unwrap();
    store.create(&caller(2), go(store, dir)?, name.as_bytes(), &node(Kind::Directory)).map(|_| ())
}

/// All files below a directory with their contents, and all links with their targets.
fn tree(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let (entry, path) = entry.map(|entry| (entry.file_type().unwrap(), entry.path())).unwrap();
        let name = path.to_string_lossy().into_owned();
        if entry.is_dir() {
            found.extend(tree(&path));
        } else if entry.is_symlink() {
            found.push((name, std::fs::read_link(&path).unwrap().to_string_lossy().into_owned()));
        } else if entry.is_file() {
            found.push((name, String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()));
        }
    }
    found.sort();
    found
}

const PLAN: &str = "{\n  \"state\": \"open\",\n  \"note\": \"kept  as it is\"\n}\n";
const BUILD: &str = r#"{"state": "open", "depends_on": ["plan"]}"#;

/// A controller in the layout of source 1.
fn layout() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("sandbox/tasks/build.json", BUILD),
        ("sandbox/tasks/plan.json", PLAN),
        ("state/state.json", "{\"cycle\": 6}\n"),
        (".claude/projects/-home-me/memory/MEMORY.md", "# seen\n"),
        ("inbox/new/1.M1.host", "new mail"),
        ("inbox/cur/0.M0.host:2,S", "seen mail"),
        ("logs/1.log", "one\n"),
    ];
    write_files(dir.path(), &files);
    for empty in ["inbox/tmp", "outbox/new", "outbox/cur", "outbox/tmp"] {
        std::fs::create_dir_all(dir.path().join(empty)).unwrap();
    }
    dir
}

#[test]
fn writes_create_replace_append_and_empty_the_controllers_own_files() {
    let dir = layout();
    let root = dir.path();
    let store = writable(root);
    write_at(&store, "tasks/new.json", "{}").unwrap();
    assert_eq!(text(root, "sandbox/tasks/new.json"), "{}");
    write_at(&store, "state/state.json", "{\"cycle\": 7}\n").unwrap();
    assert_eq!(text(root, "state/state.json"), "{\"cycle\": 7}\n");
    append(&store, "logs/1.log", "two\n").unwrap();
    assert_eq!(text(root, "logs/1.log"), "one\ntwo\n");
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\ntwo\n");
    write_at(&store, "observations/disk.md", "full\n").unwrap();
    assert_eq!(text(root, ".claude/projects/-home-me/memory/disk.md"), "full\n");
    write_at(&store, "observations/MEMORY.md", "# more\n").unwrap();
    assert_eq!(text(root, ".claude/projects/-home-me/memory/MEMORY.md"), "# more\n");
    // A Maildir gets a mail whole, in `new`.
    write_at(&store, "outbox/2.M2.host", "sent").unwrap();
    assert_eq!(text(root, "outbox/new/2.M2.host"), "sent");
    // Only cut, or created, when it is closed for the last time.
    let ino = go(&store, "state/state.json").unwrap();
    let cut = open_cut(&store, ino).unwrap();
    store.close(cut, ino).unwrap();
    assert_eq!(text(root, "state/state.json"), "{\"cycle\": 7}\n", "a program may write yet");
    store.release(cut);
    assert_eq!(text(root, "state/state.json"), "");
    let ino = create(&store, go(&store, "state").unwrap(), "flag", Kind::File).ino;
    let writer = store.open(ino, true).unwrap();
    close(&store, writer, ino).unwrap();
    assert_eq!(text(root, "state/flag"), "");
    assert_eq!(list(&store, "state"), ["flag", "state.json"]);
    remove(&store, "state/flag").unwrap();
    assert!(!root.join("state/flag").exists());
    assert_eq!(list(&store, "state"), ["state.json"]);
}

#[test]
fn an_emptied_file_that_another_program_writes_keeps_what_that_program_wrote() {
    let dir = layout();
    let store = writable(dir.path());
    let ino = go(&store, "state/state.json").unwrap();
    let cut = open_cut(&store, ino).unwrap();
    overwrite(&store, ino, "of another").unwrap();
    close(&store, cut, ino).unwrap();
    assert_eq!(text(dir.path(), "state/state.json"), "of another");
    // As `exec 3> file; echo > file; exec 3>&-`.
    let ino = create(&store, go(&store, "state").unwrap(), "new", Kind::File).ino;
    let first = store.open(ino, true).unwrap();
    overwrite(&store, ino, "of another").unwrap();
    close(&store, first, ino).unwrap();
    assert_eq!(text(dir.path(), "state/new"), "of another");
}

#[test]
fn an_editor_that_saves_by_a_temporary_file_replaces_the_file() {
    let dir = layout();
    let root = dir.path();
    let tasks = root.join("sandbox/tasks");
    std::fs::set_permissions(tasks.join("plan.json"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let store = writable(root);
    // As sed and the controller do it: the temporary name is not one of a task.
    for (name, content) in [("sedA1b2C3", "{\"n\": 1}"), ("plan.json.tmp", "{\"n\": 2}")] {
        let temporary = format!("tasks/{name}");
        write_at(&store, &temporary, content).unwrap();
        assert_eq!(text(&tasks, name), content);
        assert_eq!(read(&store, &temporary).unwrap(), content);
        assert!(!list(&store, "tasks").contains(&name.to_owned()));
        rename(&store, &temporary, "tasks/plan.json").unwrap();
        assert_eq!(text(&tasks, "plan.json"), content);
        assert_eq!(read(&store, "tasks/plan.json").unwrap(), content);
        assert!(!tasks.join(name).exists());
        assert_eq!(errno(go(&store, &temporary)), Errno::NOENT);
    }
    // In place, the file keeps its mode, and a program that has it open the old content.
    write_at(&store, "tasks/build.json", "{}").unwrap();
    let mode = |name: &str| std::fs::metadata(tasks.join(name)).unwrap().mode() & 0o7777;
    std::fs::set_permissions(tasks.join("build.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
    write_at(&store, "tasks/build.json", "{\"n\": 3}").unwrap();
    assert_eq!(mode("build.json"), 0o600);
    // `sed -i` gives its temporary file the mode of the other one before it has a name in the directory.
    let (dir, private) = (go(&store, "tasks").unwrap(), NewNode { permissions: 0o600, ..node(Kind::File) });
    let ino = store.create(&caller(2), dir, b"sedD4e5F6", &private).unwrap().ino;
    let writer = store.open(ino, true).unwrap();
    store.setattr_handle(writer, &caller(2), ino, &permissions(0o640)).unwrap();
    write(&store, writer, 0, "{}").unwrap();
    close(&store, writer, ino).unwrap();
    rename(&store, "tasks/sedD4e5F6", "tasks/plan.json").unwrap();
    assert_eq!(mode("plan.json"), 0o640);
    let ino = go(&store, "tasks/plan.json").unwrap();
    assert_eq!(store.setattr(&caller(2), ino, &permissions(0o600)).unwrap().permissions, 0o600);
    assert_eq!(mode("plan.json"), 0o600);
    let owner = Change { uid: Some(7), ..Change::default() };
    assert_eq!(errno(store.setattr(&caller(2), ino, &owner)), Errno::PERM);
    // One that has no content yet, and an open one that goes on under its new name.
    let dir = go(&store, "state").unwrap();
    let ino = create(&store, dir, "later.tmp", Kind::File).ino;
    let writer = store.open(ino, true).unwrap();
    rename(&store, "state/later.tmp", "state/later.json").unwrap();
    write(&store, writer, 0, "late").unwrap();
    close(&store, writer, ino).unwrap();
    assert_eq!(text(root, "state/later.json"), "late");
    assert_eq!(list(&store, "state"), ["later.json", "state.json"]);
}

#[test]
fn a_renamed_mail_is_moved_in_its_maildir() {
    let dir = layout();
    let root = dir.path();
    let store = writable(root);
    // In the list of all mails, flags decide.
    rename(&store, "inbox/1.M1.host", "inbox/1.M1.host:2,S").unwrap();
    assert_eq!(text(root, "inbox/cur/1.M1.host:2,S"), "new mail");
    assert_eq!(list(&store, "inbox"), ["0.M0.host:2,S", "1.M1.host:2,S"]);
    // As a program that knows Maildir does it, in directories that no listing has.
    rename(&store, "inbox/cur/1.M1.host:2,S", "inbox/new/1.M1.host").unwrap();
    assert_eq!(text(root, "inbox/new/1.M1.host"), "new mail");
    assert_eq!(list(&store, "inbox/cur"), ["0.M0.host:2,S"]);
    write_at(&store, "outbox/tmp/5.M5.host", "half").unwrap();
    assert_eq!(list(&store, "outbox"), Vec::<String>::new());
    // Programs that link a mail into `new` rename it after this error.
    let (half, new) = (go(&store, "outbox/tmp/5.M5.host").unwrap(), go(&store, "outbox/new").unwrap());
    assert_eq!(errno(store.link(&caller(2), half, new, b"5.M5.host")), Errno::PERM);
    rename(&store, "outbox/tmp/5.M5.host", "outbox/new/5.M5.host").unwrap();
    assert_eq!(text(root, "outbox/new/5.M5.host"), "half");
    assert_eq!(list(&store, "outbox"), ["5.M5.host"]);
    rename(&store, "inbox/0.M0.host:2,S", "outbox/0.M0.host:2,S").unwrap();
    assert_eq!(text(root, "outbox/cur/0.M0.host:2,S"), "seen mail");
    remove(&store, "outbox/5.M5.host").unwrap();
    assert!(!root.join("outbox/new/5.M5.host").exists());
    let there = errno(rename_with(&store, "inbox/1.M1.host", "outbox/0.M0.host:2,S", RenameMode::NoReplace));
    assert_eq!(there, Errno::EXIST);
}

#[test]
fn a_task_that_is_moved_or_linked_is_edited_in_its_json() {
    let dir = layout();
    let root = dir.path();
    let store = writable(root);
    // No task is done yet.
    assert_eq!(errno(rename(&store, "tasks-by-state/open/plan.json", "tasks-by-state/done/plan.json")), Errno::NOENT);
    make_directory(&store, "tasks-by-state/done").unwrap();
    assert_eq!(errno(make_directory(&store, "tasks-by-state/open")), Errno::EXIST);
    assert_eq!(list(&store, "tasks-by-state"), ["done", "open"]);
    rename(&store, "tasks-by-state/open/plan.json", "tasks-by-state/done/plan.json").unwrap();
    assert_eq!(text(root, "sandbox/tasks/plan.json"), PLAN.replace("open", "done"));
    assert_eq!(list(&store, "tasks-by-state"), ["done", "open"]);
    assert_eq!(list(&store, "tasks-by-state/open"), ["build.json"]);
    let link_of = |path: &str| String::from_utf8(store.readlink(go(&store, path).unwrap()).unwrap()).unwrap();
    assert_eq!(link_of("tasks-by-state/done/plan.json"), "../../tasks/plan.json");
    let renamed = rename(&store, "tasks-by-state/done/plan.json", "tasks-by-state/open/other.json");
    fails(renamed, Errno::INVAL, &["a link keeps its name"]);

    write_at(&store, "tasks/test.json", "{\"state\": \"open\"}").unwrap();
    assert_eq!(errno(go(&store, "tasks/test")), Errno::NOENT, "it waits for no task");
    make_directory(&store, "tasks/test").unwrap();
    link(&store, "../../build.json", "tasks/test/depends-on/build.json").unwrap();
    assert_eq!(text(root, "sandbox/tasks/test.json"), r#"{"depends_on": ["build"], "state": "open"}"#);
    link(&store, "/mnt/vsm/tasks/plan.json", "tasks/test/depends-on/plan.json").unwrap();
    assert_eq!(list(&store, "tasks/test/depends-on"), ["build.json", "plan.json"]);
    assert_eq!(link_of("tasks/test/depends-on/plan.json"), "../../plan.json");
    shows(&store, "health/tasks.json", &["\"blocked\":1"]);
    assert_eq!(errno(link(&store, "../../plan.json", "tasks/test/depends-on/plan.json")), Errno::EXIST);
    for (target, name) in
        [("../../missing.json", "missing.json"), ("../../plan.json", "other.json"), ("plan", "test.json")]
    {
        let path = format!("tasks/build/depends-on/{name}");
        fails(link(&store, target, &path), Errno::INVAL, &["names no file"]);
    }
    remove(&store, "tasks/test/depends-on/build.json").unwrap();
    assert_eq!(text(root, "sandbox/tasks/test.json"), r#"{"depends_on": ["plan"], "state": "open"}"#);
    remove(&store, "tasks/test/depends-on/plan.json").unwrap();
    // The directory stays as long as the program that made it may need it.
    assert_eq!(list(&store, "tasks/test/depends-on"), Vec::<String>::new());
    let tasks = go(&store, "tasks").unwrap();
    store.rmdir(&caller(2), tasks, b"test").unwrap();
    assert_eq!(errno(go(&store, "tasks/test")), Errno::NOENT);
    assert_eq!(errno(store.rmdir(&caller(2), tasks, b"build")), Errno::NOTEMPTY);
    fails(make_directory(&store, "tasks/missing"), Errno::INVAL, &["no row"]);
}

#[test]
fn what_the_definition_does_not_change_is_read_only_and_the_error_says_so() {
    let dir = layout();
    let before = tree(dir.path());
    let store = writable(dir.path());
    let reason = &["its definition has no statement"][..];
    fails(write_at(&store, "health/tasks.json", "x"), Errno::ROFS, reason);
    fails(write_at(&store, "logs/all.log", "x"), Errno::ROFS, reason);
    fails(write_at(&store, "health/new.json", "x"), Errno::ROFS, reason);
    fails(remove(&store, "health/tasks.json"), Errno::ROFS, reason);
    fails(remove(&store, "tasks-by-state/open/plan.json"), Errno::ROFS, reason);
    fails(rename(&store, "health/tasks.json", "state/x"), Errno::ROFS, reason);
    fails(rename(&store, "tasks/plan.json", "health/plan.json"), Errno::ROFS, reason);
    fails(rename(&store, "tasks/plan.json", "tasks-by-state/open/x.json"), Errno::ROFS, reason);
    fails(rename(&store, "tasks-by-state/open/plan.json", "state/plan.json"), Errno::ROFS, reason);
    fails(make_directory(&store, "state/below"), Errno::ROFS, reason);
    fails(link(&store, "state.json", "state/link"), Errno::ROFS, reason);
    assert_eq!(tree(dir.path()), before);
}

#[test]
fn no_name_and_no_link_leads_out_of_the_controllers_directory() {
    let (dir, elsewhere) = (layout(), tempfile::tempdir().unwrap());
    let (root, outside) = (dir.path(), elsewhere.path());
    write_files(outside, &[("secret", "secret"), ("state/x", "x")]);
    write_files(root, &[("kept/real.json", "{}"), ("tasks/old.json", "{}")]);
    symlink("../kept/real.json", root.join("state/inside.json")).unwrap();
    let store = writable(root);
    for name in ["..%2F..%2Fsecret", "%2E%2E", "a%2Fb", "%00", "100%", "%41", ".ctxbench-view-1"] {
        let failed = write_at(&store, &format!("state/{name}"), "x");
        assert_eq!(errno(failed), Errno::INVAL, "{name}");
    }
    // An escaped byte comes back as itself.
    write_at(&store, "state/two%0Alines", "x").unwrap();
    assert_eq!(text(root, "state/two\nlines"), "x");
    // A link inside: its target is written, and stays where it is.
    write_at(&store, "state/inside.json", "[1]").unwrap();
    assert_eq!(text(root, "kept/real.json"), "[1]");
    assert!(root.join("state/inside.json").is_symlink());
    assert_eq!(errno(rename(&store, "state/inside.json", "logs/inside.json")), Errno::XDEV);
    remove(&store, "state/inside.json").unwrap();
    assert_eq!(text(root, "kept/real.json"), "[1]");
    // A name that leads out, or is no file, is not shown, and no new file takes its place.
    symlink(outside.join("secret"), root.join("state/out.json")).unwrap();
    symlink(outside.join("new"), root.join("state/dangling.json")).unwrap();
    let fifo = root.join("state/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    for name in ["out.json", "dangling.json", "fifo"] {
        let failed = write_at(&store, &format!("state/{name}"), "x");
        assert_eq!(errno(failed), Errno::EXIST, "{name}");
    }
    // A file or its directory that becomes such a link while it is open.
    let ino = go(&store, "logs/1.log").unwrap();
    let writer = open_cut(&store, ino).unwrap();
    write(&store, writer, 0, "x").unwrap();
    std::fs::rename(root.join("logs"), root.join("old-logs")).unwrap();
    symlink(outside.join("state"), root.join("logs")).unwrap();
    assert!(close(&store, writer, ino).is_err());
    assert_eq!(tree(outside).iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["secret", "x"]);
    assert_eq!(text(root, "old-logs/1.log"), "one\n");
    assert!(!tree(root).iter().any(|(name, _)| name.contains(".ctxbench")));
}

#[test]
fn a_directory_elsewhere_is_shown_and_written_below_the_source() {
    let (dir, elsewhere) = (layout(), tempfile::tempdir().unwrap());
    let (root, home) = (dir.path(), elsewhere.path());
    write_files(home, &[("memory/seen.md", "# seen\n"), ("secret", "secret")]);
    write_files(root, &[("observations/hidden.md", "hidden")]);
    symlink("../secret", home.join("memory/out.md")).unwrap();
    symlink(root.join("state/state.json"), home.join("memory/other.md")).unwrap();
    symlink("seen.md", home.join("memory/same.md")).unwrap();
    let also = format!("observations={}", home.join("memory").display()).parse().unwrap();
    let settings = ViewSettings { may_write: true, also: vec![also], ..ViewSettings::default() };
    let definition = shipped("vsm");
    let place = root.to_str().unwrap();
    let open = |settings| ViewStore::open((Path::new("x.toml"), &definition), place, settings, &caller(1));
    let store = open(settings).unwrap();
    assert_eq!(list(&store, "observations"), ["MEMORY.md", "same.md", "seen.md"]);
    write_at(&store, "observations/new.md", "new").unwrap();
    append(&store, "observations/same.md", "more\n").unwrap();
    rename(&store, "observations/new.md", "observations/renamed.md").unwrap();
    assert_eq!(text(home, "memory/seen.md"), "# seen\nmore\n");
    assert_eq!(text(home, "memory/renamed.md"), "new");
    assert_eq!(text(root, "observations/hidden.md"), "hidden");
    for name in ["out.md", "other.md"] {
        assert_eq!(errno(write_at(&store, &format!("observations/{name}"), "x")), Errno::EXIST, "{name}");
    }
    let missing = format!("logs={}", home.join("missing").display()).parse().unwrap();
    let said = refusal(open(ViewSettings { also: vec![missing], ..ViewSettings::default() }));
    has(&said, &["missing: it is not a directory"]);
    for wrong in ["logs", "=x", "../logs=x", "/logs=x"] {
        assert!(wrong.parse::<view::ExtraDirectory>().is_err(), "{wrong}");
    }
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let dir = layout();
    let root = dir.path();
    let before = tree(root);
    let store = writable(root);
    let ino = go(&store, "state/state.json").unwrap();
    let writer = open_cut(&store, ino).unwrap();
    write(&store, writer, 65 << 20, "x").unwrap();
    fails(close(&store, writer, ino), Errno::FBIG, &["64 MiB"]);
    assert_eq!(errno(write_at(&store, "outbox/%2E%2E", "x")), Errno::INVAL);
    // Its directory is not there.
    std::fs::remove_dir_all(root.join("logs")).unwrap();
    fails(write_at(&store, "logs/2.log", "x"), Errno::NOENT, &["logs/2.log"]);
    write_files(root, &[("logs/1.log", "one\n")]);
    assert_eq!(tree(root), before);
    // A file that is too long to be read.
    let long = std::fs::File::create(root.join("logs/long.log")).unwrap();
    long.set_len(1 << 30).unwrap();
    assert_eq!(errno(append(&store, "logs/long.log", "x")), Errno::FBIG);
    assert_eq!(errno(write_at(&store, "logs/long.log", "x")), Errno::FBIG);
    assert_eq!(long.metadata().unwrap().len(), 1 << 30);
    std::fs::remove_file(root.join("logs/long.log")).unwrap();
    assert_eq!(tree(root), before);
}

#[test]
fn of_two_writers_the_later_rename_wins_and_appended_lines_of_both_stay() {
    let dir = layout();
    let root = dir.path();
    let store = writable(root);
    let ino = go(&store, "state/state.json").unwrap();
    let [first, second] = [(); 2].map(|()| open_cut(&store, ino).unwrap());
    let (long, longer) = ("a".repeat(200_000), "b".repeat(300_000));
    write(&store, first, 0, &long).unwrap();
    write(&store, second, 0, &longer).unwrap();
    close(&store, second, ino).unwrap();
    assert!(text(root, "state/state.json") == longer);
    close(&store, first, ino).unwrap();
    assert!(text(root, "state/state.json") == long);
    // A program with the log open, and two through the view.
    let ino = go(&store, "logs/1.log").unwrap();
    let mut own = std::fs::File::options().append(true).open(root.join("logs/1.log")).unwrap();
    let [first, second] = [(); 2].map(|()| store.open(ino, true).unwrap());
    for round in 0..3 {
        for (name, writer) in [("first", first), ("second", second)] {
            store.append_handle(writer, format!("{name} {round}\n").as_bytes()).unwrap();
            store.fsync_handle(writer).unwrap();
        }
        std::io::Write::write_all(&mut own, format!("own {round}\n").as_bytes()).unwrap();
    }
    for writer in [first, second] {
        close(&store, writer, ino).unwrap();
    }
    // A new log, which neither of them created before the other.
    let ino = create(&store, go(&store, "logs").unwrap(), "2.log", Kind::File).ino;
    let writers = [(); 2].map(|()| store.open(ino, true).unwrap());
    for (writer, line) in writers.into_iter().zip(["first\n", "second\n"]) {
        store.append_handle(writer, line.as_bytes()).unwrap();
        close(&store, writer, ino).unwrap();
    }
    assert_eq!(text(root, "logs/2.log"), "first\nsecond\n");
    let rounds = (0..3).map(|round| format!("first {round}\nsecond {round}\nown {round}\n"));
    assert_eq!(text(root, "logs/1.log"), "one\n".to_owned() + &rounds.collect::<String>());
}
