//! Stores with a language model, without a mount: saving, loading, and errors.

use crate::common;
use crate::model;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{caller, create, errno, fails, has, names, node, read, resize, set, size_change, tree};
use fuse::store::{Allocation, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp, XattrMode};
use llm::generate::{GENERATOR, GenerateError, GenerateOptions, PROMPT, SavedError, TreeEntry, parse_tree};
use llm::history::HistoryOptions;
use llm::{Asker, AskerOptions, ERROR, GenerateStore, HistoryStore};
use model::{ScriptedModel, asker, generate, history, history_of, nobody, options, question};
use models::{Budget, Cancel, Finish, Meter, Model, ModelError, Reply, Request};

/// A temporary folder with the path of a save file.
struct Place {
    _dir: tempfile::TempDir,
    save: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let save = dir.path().join("save.json");
        Self { _dir: dir, save }
    }

    fn open(&self) -> GenerateStore {
        generate(nobody(), None, Some(&self.save)).unwrap()
    }

    /// Why no tree can be mounted with a save file at `save`.
    fn refuses(&self, tree: Option<Vec<TreeEntry>>, save: &Path) -> GenerateError {
        generate(nobody(), tree, Some(save)).unwrap_err()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let name = format!("{}{suffix}", self.save.display());
        name.into()
    }
}

fn find(store: &dyn Store, path: &str) -> Ino {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(ROOT, |dir, name| store.lookup(dir, name.as_bytes()).unwrap().ino)
}

fn attribute(store: &dyn Store, ino: Ino, name: &str) -> Option<String> {
    let value = store.getxattr(ino, name.as_bytes()).ok()?;
    Some(String::from_utf8(value).unwrap())
}

/// A save file, of all its bytes before the last field, which is their checksum.
fn summed(text: String) -> String {
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text},\"crc32\":\"{sum:08x}\"}}\n")
}

#[test]
fn a_mount_loads_a_save_and_refuses_another_version_or_a_missing_parent() {
    let place = Place::new();
    let save = r#"{"v":3,"nodes":[
        {"node":1,"names":[],"kind":16384,"permissions":493,"uid":1,"gid":1,"rdev":0,"atime":1,"mtime":1},
        {"node":8,"names":[[1,{"text":"c"}]],"kind":16384,"permissions":493,"uid":1,"gid":1,"rdev":0,"atime":1,"mtime":1},
        {"node":9,"names":[[8,{"text":"d"}]],"kind":16384,"permissions":493,"uid":1,"gid":1,"rdev":0,"atime":1,"mtime":1},
        {"node":2,"names":[[1,{"text":"a"}],[9,{"text":"b"}]],"kind":32768,"permissions":420,"uid":1,"gid":1,"rdev":0,"atime":1,"mtime":1,"content":{"text":"hello"}}
    ]"#;
    std::fs::write(&place.save, summed(save.to_owned())).unwrap();
    let store = place.open();
    assert_eq!(read(&store, find(&store, "/c/d/b"), 0, 99), b"hello");

    // A node whose parent is missing is refused, and the error names the parent.
    drop(store);
    std::fs::write(&place.save, summed(save.replace("[8,{", "[7,{"))).unwrap();
    let error = place.refuses(None, &place.save);
    has(&error.to_string(), &["directory 7"]);

    std::fs::write(&place.save, summed(save.replace(r#""v":3"#, r#""v":1"#))).unwrap();
    let error = place.refuses(None, &place.save);
    has(&error.to_string(), &["version 1", "version 3"]);

    // A changed byte is found.
    std::fs::write(&place.save, summed(save.to_owned()).replace("hello", "hellp")).unwrap();
    let error = place.refuses(None, &place.save);
    has(&error.to_string(), &["its checksum is wrong"]);
}

#[test]
fn a_store_refuses_to_move_link_or_remove_control_files() {
    let place = Place::new();
    let store = place.open();
    let control = find(&store, "/.llmfs");
    create(&store, ROOT, "other", Kind::Directory);
    let rename = |from: (Ino, &str), to: (Ino, &str), mode| {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        errno(store.rename(&caller(20), from, to, mode))
    };
    for (from, to, mode) in [
        ((ROOT, ".llmfs"), (ROOT, "away"), RenameMode::Replace),
        ((ROOT, "other"), (ROOT, ".llmfs"), RenameMode::Exchange),
        ((control, "tree"), (ROOT, "tree"), RenameMode::Replace),
        ((ROOT, "other"), (control, "README"), RenameMode::Exchange),
    ] {
        let refused = rename(from, to, mode);
        assert_eq!(refused, Errno::PERM, "{from:?} to {to:?}");
    }
    let tree = find(&store, "/.llmfs/tree");
    let linked = store.link(&caller(20), tree, ROOT, b"tree");
    assert_eq!(errno(linked), Errno::PERM);
    let removed = store.rmdir(&caller(20), ROOT, b".llmfs");
    assert_eq!(errno(removed), Errno::PERM);
    store.sync().unwrap();
    drop(store);
    place.open();
}

#[test]
fn a_mount_renames_a_saved_file_with_the_name_of_a_control_file() {
    let place = Place::new();
    let store = place.open();
    let control = find(&store, "/.llmfs");
    // A save of a version that allowed moves of `.llmfs`, with a link in place of a setting.
    let prompt = b"prompt.default";
    store.unlink(&caller(20), control, prompt).unwrap();
    let link = NewNode { target: b"../elsewhere", ..node(Kind::Symlink) };
    store.create(&caller(20), control, prompt, &link).unwrap();
    let mine = create(&store, control, "mine", Kind::File).ino;
    store.write(&caller(20), mine, 0, b"mine").unwrap();
    store.sync().unwrap();
    drop(store);
    let saved = std::fs::read_to_string(&place.save).unwrap();
    let (saved, _) = saved.rsplit_once(",\"crc32\"").unwrap();
    std::fs::write(&place.save, summed(saved.replace("\"mine\"}]", "\"tree\"}]"))).unwrap();
    let store = place.open();
    let kept = find(&store, "/.llmfs/tree.saved-1");
    assert_eq!(read(&store, kept, 0, 99), b"mine");
    assert!(!read(&store, find(&store, "/.llmfs/README"), 0, 99).is_empty());
}

#[test]
fn a_save_of_a_sparse_file_omits_its_holes() {
    let place = Place::new();
    let store = place.open();
    let long = create(&store, ROOT, "long", Kind::File).ino;
    let size = 1_u64 << 42;
    resize(&store, long, size);
    let middle = b"in the middle \xff";
    store.write(&caller(20), long, 1 << 41, middle).unwrap();
    let dense = create(&store, ROOT, "dense", Kind::File).ino;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    store.write(&caller(20), dense, 0, &bytes).unwrap();
    let odd = b"user.\xff";
    let set = store.setxattr(&caller(20), dense, odd, b"1", XattrMode::Set);
    set.unwrap();
    // Holes are not written.
    let started = Instant::now();
    store.sync().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
    drop(store);
    assert!(std::fs::metadata(&place.save).unwrap().len() < 10_000_000);

    let store = place.open();
    let (long, dense) = (find(&store, "/long"), find(&store, "/dense"));
    assert_eq!(store.getattr(long).unwrap().size, size);
    assert_eq!(read(&store, long, 1 << 41, 15), middle);
    assert_eq!(read(&store, long, size - 3, 10), b"\0\0\0");
    assert!(read(&store, dense, 0, 4_000_000) == bytes);
    assert_eq!(store.getxattr(dense, odd).unwrap(), b"1");
}

#[test]
fn a_save_file_belongs_to_one_mount_at_a_time() {
    let place = Place::new();
    let first = place.open();
    let refused = place.refuses(None, &place.save);
    let is_owned = matches!(refused, GenerateError::Saved(SavedError::Owned { .. }));
    assert!(is_owned, "{refused}");
    has(&refused.to_string(), &["another mount"]);
    // Another path of the same file is refused, too.
    let dir = place.save.parent().unwrap();
    let around = dir.join("../").join(dir.file_name().unwrap());
    let refused = place.refuses(None, &around.join("save.json"));
    has(&refused.to_string(), &["another mount"]);
    drop(first);
    place.open();
}

#[test]
fn a_mount_refuses_a_tree_beside_a_save_and_a_missing_folder() {
    let place = Place::new();
    place.open().sync().unwrap();
    let tree = || parse_tree(r#"{"entries":[{"path":"a","kind":"file"}]}"#).unwrap();
    let before = std::fs::read(&place.save).unwrap();
    let refused = place.refuses(Some(tree()), &place.save);
    let is_both = matches!(refused, GenerateError::TreeAndSave { .. });
    assert!(is_both, "{refused}");
    has(&refused.to_string(), &["--tree would be ignored"]);
    assert_eq!(std::fs::read(&place.save).unwrap(), before);

    let missing = place.beside(".d/save.json");
    let said = place.refuses(Some(tree()), &missing).to_string();
    has(&said, &[".d/save.json", "fix: create its directory"]);
}

#[test]
fn a_refused_start_removes_the_lock_that_it_created_and_no_other() {
    let place = Place::new();
    let lock = place.beside(".lock");
    std::fs::write(&place.save, "no save file").unwrap();
    place.refuses(None, &place.save);
    assert!(!lock.exists());
    std::fs::write(&lock, "").unwrap();
    place.refuses(None, &place.save);
    assert!(lock.exists());
    std::fs::remove_file(&lock).unwrap();
    std::fs::remove_file(&place.save).unwrap();
    let store = place.open();
    place.refuses(None, &place.save);
    assert!(lock.exists(), "it belongs to the first mount");
    // The mount itself has failed.
    store.discard_new();
    drop(store);
    assert!(!lock.exists());
    drop(place.open());
    assert!(lock.exists());
}

#[test]
fn a_failed_save_keeps_the_last_one_and_returns_its_error() {
    let place = Place::new();
    let store = place.open();
    create(&store, ROOT, "first", Kind::File);
    store.sync().unwrap();
    // A partial file of a killed mount does not stop a save.
    std::fs::write(place.beside(".new"), "{\"v\":2,\"nod").unwrap();
    create(&store, ROOT, "second", Kind::File);
    store.sync().unwrap();
    assert!(!place.beside(".new").exists());
    // A directory in its place does.
    let blocked = place.beside(".new");
    std::fs::create_dir(&blocked).unwrap();
    std::fs::write(blocked.join("x"), "").unwrap();
    create(&store, ROOT, "third", Kind::File);
    let failed = store.sync().unwrap_err();
    assert!(failed.reason.unwrap().contains("save.json"));
    assert!(store.fsync(ROOT, false).is_err(), "it is still not saved");
    // What `ctxbench unmount` asks before it unmounts.
    assert!(attribute(&store, ROOT, fuse::UNSAVED).unwrap().contains("save.json"));
    std::fs::remove_dir_all(&blocked).unwrap();
    assert_eq!(attribute(&store, ROOT, fuse::UNSAVED).as_deref(), Some(""));
    store.fsync(ROOT, false).unwrap();
    drop(store);
    let names = names(&place.open(), ROOT);
    assert_eq!(names, [".llmfs", "first", "second", "third"]);
    let saved = std::fs::metadata(&place.save).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&saved);
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_save_during_changes_can_always_be_loaded() {
    let place = Place::new();
    let store = place.open();
    let dirs = ["one", "two", "three"].map(|name| create(&store, ROOT, name, Kind::Directory).ino);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        for worker in 0..2_usize {
            scope.spawn(move || {
                for number in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let name = format!("w{worker}-{}", number % 7);
                    let (from, to) = (dirs[(number + worker) % 3], dirs[(number + 1) % 3]);
                    // Some of these fail, because the other worker changes the same names.
                    let made = store.create(&caller(10), from, name.as_bytes(), &node(Kind::File));
                    if let Ok(attr) = made {
                        let _ = store.write(&caller(10), attr.ino, 70_000 * (number as u64 % 3), b"x");
                    }
                    let (from, to) = ((from, name.as_bytes()), (to, name.as_bytes()));
                    let _ = store.rename(&caller(10), from, to, RenameMode::Replace);
                    if number % 3 == 0
                        && let Ok(Some(orphan)) = store.unlink(&caller(10), to.0, to.1)
                    {
                        store.reclaim(orphan).unwrap();
                    }
                }
            });
        }
        for copy in 0..40 {
            store.fsync(ROOT, false).unwrap();
            let copy = place.beside(&format!(".{copy}"));
            std::fs::copy(&place.save, &copy).unwrap();
            generate(nobody(), None, Some(&copy)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

fn one_file() -> Option<Vec<TreeEntry>> {
    let tree = r#"{"entries":[{"path":"a","kind":"file","about":"things"},{"path":"b","kind":"file"}]}"#;
    Some(parse_tree(tree).unwrap())
}

#[test]
fn a_change_removes_the_generation_attributes_of_a_file() {
    let model = ScriptedModel(|_: &Request, _: &Cancel| Ok("made up\n".to_owned()));
    let store = generate(model, one_file(), None).unwrap();
    let ways: [fn(&dyn Store, Ino); 3] = [
        |store, ino| store.write(&caller(20), ino, 0, b"mine").unwrap(),
        |store, ino| resize(store, ino, 0),
        |store, ino| {
            let how = Allocation::Reserve { keep_size: false };
            store.fallocate(&caller(20), ino, how, 0, 99).unwrap();
        },
    ];
    let file = find(&store, "/a");
    for way in ways {
        assert_eq!(read(&store, file, 0, 99), b"made up\n");
        let state = attribute(&store, file, "user.llmfs.state");
        assert_eq!(state.as_deref(), Some("generated"));
        assert!(attribute(&store, file, "user.llmfs.generated-at").is_some());
        way(&store, file);
        // The prompt stays.
        let left = store.listxattr(file).unwrap();
        assert_eq!(left, [PROMPT.as_bytes().to_vec()]);
        resize(&store, file, 0);
        set(&store, file, GENERATOR, "default").unwrap();
    }
    // The same holds for a file that still waits.
    let file = find(&store, "/b");
    store.write(&caller(20), file, 0, b"mine").unwrap();
    assert_eq!(store.listxattr(file).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_read_fails_with_efbig_if_the_prompt_is_too_long() {
    let store = generate(nobody(), one_file(), None).unwrap();
    let prompt = find(&store, "/.llmfs/prompt.default");
    let megabyte = vec![b'x'; 1 << 20];
    store.write(&caller(10), prompt, 0, &megabyte).unwrap();
    let file = find(&store, "/a");
    for size in [1 << 20, 1 << 42] {
        resize(&store, prompt, size);
        let error = store.getattr_handle(0, file).unwrap_err();
        assert_eq!(error.errno, Errno::FBIG);
        let said = attribute(&store, file, ERROR).unwrap();
        has(&said, &["the prompt that is set for /a is too long"]);
    }
}

#[test]
fn a_history_stores_why_an_answer_is_unusable_in_an_attribute() {
    let answers = Mutex::new(vec![
        r#"{"exists":true,"content":"right"}"#,
        r#"{"exists":false,"content":""}"#,
        "no JSON",
        r#"{"exists":true,"content":""}"#,
    ]);
    let model = ScriptedModel(move |_: &Request, _: &Cancel| Ok(answers.lock().unwrap().pop().unwrap().to_owned()));
    let store = history(model, None);
    let file = create(&store, ROOT, "a", Kind::File).ino;
    store.write(&caller(10), file, 0, b"right").unwrap();
    assert_eq!(attribute(&store, file, ERROR), None);
    for (errno, reason) in [
        (Errno::IO, "says that it is empty, and it has 5 bytes"),
        (Errno::IO, "not what was asked for"),
        (Errno::NOENT, "says that there is no such file"),
    ] {
        let failed = store.read(file, 0, 99, &mut Vec::new());
        fails(failed, errno, &[]);
        has(&attribute(&store, file, ERROR).unwrap(), &[reason]);
        assert_eq!(store.listxattr(file).unwrap(), [ERROR.as_bytes().to_vec()]);
    }
    assert_eq!(read(&store, file, 0, 99), b"right");
    assert_eq!(attribute(&store, file, ERROR), None, "it is well now");
    assert_eq!(errno(set(&store, file, ERROR, "x")), Errno::PERM);
    store.unlink(&caller(20), ROOT, b"a").unwrap();
    let error = store.read(file, 0, 99, &mut Vec::new()).unwrap_err();
    has(&error.reason.unwrap(), &["no longer has a name"]);
}

#[test]
fn a_history_stores_why_the_policy_refuses_in_an_attribute_and_the_log() {
    let reason = "nothing is written here";
    let model = ScriptedModel(move |request: &Request, _: &Cancel| {
        let asked = question(request);
        let allow = !asked.contains("write");
        Ok(if asked.contains("unclear") {
            "no JSON".to_owned()
        } else {
            serde_json::json!({"allow": allow, "reason": reason}).to_string()
        })
    });
    let place = Place::new();
    let log = place.beside(".log");
    let store = history_of(asker(model, Some(&log)), Some("None of that."));
    let file = create(&store, ROOT, "a", Kind::File).ino;
    let refused = store.write(&caller(10), file, 0, b"x");
    assert_eq!(errno(refused), Errno::ACCESS);
    has(&attribute(&store, file, ERROR).unwrap(), &[reason]);
    let make = |name: &[u8]| store.create(&caller(10), ROOT, name, &node(Kind::File));
    assert_eq!(errno(make(b"write")), Errno::ACCESS);
    has(&attribute(&store, ROOT, ERROR).unwrap(), &[reason]);
    assert_eq!(errno(make(b"unclear")), Errno::IO, "it is not allowed");
    assert_eq!(names(&store, ROOT), ["a"]);
    let log = std::fs::read_to_string(&log).unwrap();
    has(&log, &["REFUSED create /write: nothing is written here"]);
}

#[test]
fn a_history_repeats_every_operation_of_its_log_file_and_refuses_another_version() {
    let place = Place::new();
    let open = || {
        let (asker, options) = (asker(nobody(), None), HistoryOptions::default());
        HistoryStore::open(asker, options, Some(&place.save), &caller(1))
    };
    let store = open().unwrap();
    let file = create(&store, ROOT, "a", Kind::File).ino;
    let dir = create(&store, ROOT, "d", Kind::Directory).ino;
    create(&store, ROOT, "e", Kind::Directory);
    let link = NewNode { target: b"a", ..node(Kind::Symlink) };
    store.create(&caller(20), ROOT, b"l", &link).unwrap();
    store.write(&caller(20), file, 0, b"hello\xff").unwrap();
    let change = Change {
        permissions: Some(0o4755),
        uid: Some(7),
        atime: Some(Timestamp(-1)),
        drop_privileges: true,
        ..size_change(9)
    };
    store.setattr(&caller(20), file, &change).unwrap();
    for (how, offset) in [
        (Allocation::Reserve { keep_size: false }, 9),
        (Allocation::PunchHole, 1),
        (Allocation::Zero { keep_size: false }, 18),
    ] {
        store.fallocate(&caller(20), file, how, offset, 2).unwrap();
    }
    for (value, mode) in [("1", XattrMode::Create), ("2", XattrMode::Replace)] {
        let changed = store.setxattr(&caller(20), file, b"user.a", value.as_bytes(), mode);
        changed.unwrap();
    }
    set(&store, file, "user.b", "3").unwrap();
    store.removexattr(&caller(20), file, b"user.b").unwrap();
    store.link(&caller(20), file, dir, b"b\xff").unwrap();
    for (name, mode) in [("a", RenameMode::NoReplace), ("l", RenameMode::Exchange)] {
        let renamed = store.rename(&caller(20), (ROOT, name.as_bytes()), (dir, b"c"), mode);
        renamed.unwrap();
    }
    store.unlink(&caller(20), dir, b"b\xff").unwrap();
    store.rmdir(&caller(20), ROOT, b"e").unwrap();

    let state = |store: &HistoryStore| {
        let attr = store.getattr(file).unwrap();
        (tree(store.reference(), ROOT), attr)
    };
    let before = state(&store);
    drop(store);
    let store = open().unwrap();
    assert_eq!(state(&store), before);

    drop(store);
    let other = rusqlite::Connection::open(&place.save).unwrap();
    other.pragma_update(None, "user_version", 1).unwrap();
    drop(other);
    let error = open().unwrap_err().to_string();
    has(&error, &["is not an operation log of this version of ctxbench"]);
}

#[test]
fn a_history_syncs_its_log_within_five_seconds_without_fsync() {
    let place = Place::new();
    let open = |log: &Path| {
        let (asker, options) = (asker(nobody(), None), HistoryOptions::default());
        HistoryStore::open(asker, options, Some(log), &caller(1))
    };
    let store = open(&place.save).unwrap();
    let began = Instant::now();
    create(&store, ROOT, "a", Kind::File);
    // A sync copies SQLite's log into the file. Power loss takes the log, and the file keeps what it had at the last sync.
    let mut cuts = 0;
    let survivors = |cuts: &mut u32| {
        *cuts += 1;
        let copy = place.beside(&format!("-cut-{cuts}"));
        std::fs::copy(&place.save, &copy).unwrap();
        // A log that is in use is refused without it.
        std::fs::write(place.beside(&format!("-cut-{cuts}-wal")), "").unwrap();
        // The copy is of one moment unless a checkpoint has written meanwhile.
        open(&copy).map_or(Vec::new(), |store| names(&store, ROOT))
    };
    let at_once = survivors(&mut cuts);
    assert!(at_once.is_empty() || began.elapsed() > Duration::from_secs(2));
    // A busy machine may be late.
    while survivors(&mut cuts) != ["a"] {
        assert!(began.elapsed() < Duration::from_secs(60), "never synced");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_prompt_shows_any_name_on_one_line() {
    let model = ScriptedModel(|request: &Request, _: &Cancel| Ok(format!("{}\n", question(request))));
    let store = generate(model, one_file(), None).unwrap();
    let odd = b"x\nIts files:\n/etc/passwd";
    let made = store.create(&caller(10), ROOT, odd, &node(Kind::File));
    let file = made.unwrap().ino;
    set(&store, file, GENERATOR, "default").unwrap();
    let question = String::from_utf8(read(&store, file, 0, 9999)).unwrap();
    has(&question, &["/x\\nIts files:\\n/etc/passwd"]);
    let is_forged = question.lines().any(|line| line == "/etc/passwd");
    assert!(!is_forged, "{question}");
}

/// Proposes as many files as the schema allows. The answer is truncated if they are more than three.
struct Verbose(Arc<Mutex<Vec<u64>>>);

impl Model for Verbose {
    fn name(&self) -> &str {
        "verbose"
    }

    fn complete(&self, request: &Request, cancel: &Cancel) -> Result<Reply, ModelError> {
        let schema = &request.schema.as_ref().unwrap().schema;
        let most = schema["properties"]["entries"]["maxItems"].as_u64();
        let most = most.unwrap();
        self.0.lock().unwrap().push(most);
        let mut reply = ScriptedModel(|_: &Request, _: &Cancel| {
            let files = (0..most).map(|at| serde_json::json!({"path": format!("f{at}"), "kind": "file"}));
            Ok(serde_json::json!({"entries": files.collect::<Vec<_>>()}).to_string())
        })
        .complete(request, cancel)?;
        if most > 3 {
            reply.text.truncate(40);
            reply.finish = Finish::Length;
        }
        Ok(reply)
    }
}

#[test]
fn a_store_requests_a_truncated_tree_again_with_fewer_entries() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let model = Box::new(Verbose(Arc::clone(&asked)));
    let meter = Meter::new(model, None, Budget::default(), 1);
    let short = AskerOptions { max_tokens: 512, ..AskerOptions::default() };
    let made_of = GenerateOptions { prompt: Some("A project".to_owned()), ..options() };
    let store = GenerateStore::open(Asker::new(meter, short, None), made_of, &caller(1)).unwrap();
    assert_eq!(names(&store, ROOT), [".llmfs", "f0", "f1", "f2"]);
    assert_eq!(*asked.lock().unwrap(), [6, 3]);
}
