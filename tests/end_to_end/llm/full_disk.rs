//! Stores with a model on a disk that is full or can only be read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Lab, answering};
use crate::common::{Succeeds, as_root, ctxbench, has, stderr, text_of};

/// A disk of 16 MiB for the files of a store.
fn small_disk(lab: &Lab) -> PathBuf {
    let disk = lab.scratch.dir("disk");
    mount(&["-t", "tmpfs", "-o", "size=16m", "none"], &disk);
    disk
}

fn mount(options: &[&str], disk: &Path) {
    Command::new("mount").args(options).arg(disk).succeeds();
}

/// Fills a disk, as another program does.
fn fill(disk: &Path) -> PathBuf {
    let filler = disk.join("filler");
    let mut file = File::options().create(true).append(true).open(&filler).unwrap();
    for piece in [1 << 16, 4096, 1] {
        while file.write_all(&vec![1; piece]).is_ok() {}
    }
    filler
}

fn names(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_history_on_a_disk_that_another_program_has_filled_mounts_and_can_be_emptied() {
    if as_root().is_none() {
        return;
    }
    let Some(lab) = answering() else { return };
    let disk = small_disk(&lab);
    let log = disk.join("log.db");
    let mounted = || lab.mount("llm-history", &["--log-db", log.to_str().unwrap()]);
    let history = mounted();
    let dir = history.dir.clone();
    let file = |number: usize| dir.join(format!("{number:04}"));
    for number in 0..1500 {
        fs::write(file(number), "x").unwrap();
    }
    let filler = fill(&disk);
    // The mount has reserved room for some changes.
    let mut more = File::create(dir.join("more")).unwrap();
    let full = loop {
        if let Err(error) = more.write_all(&vec![1; 100_000]) {
            break error;
        }
    };
    drop(more);
    assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    for number in 0..500 {
        fs::remove_file(file(number)).unwrap();
    }
    fs::rename(file(500), file(501)).unwrap();
    File::options().write(true).open(file(502)).unwrap().set_len(0).unwrap();
    let left = names(&dir);
    history.end();

    fill(&disk);
    let history = mounted();
    assert_eq!(names(&dir), left);
    for number in 501..1500 {
        fs::remove_file(file(number)).unwrap();
    }
    assert!(names(&dir) <= 1);
    history.end();

    fs::remove_file(filler).unwrap();
    let history = mounted();
    assert!(names(&dir) <= 1);
    fs::write(dir.join("new"), "x").unwrap();
    history.end();
}

#[test]
fn an_unmount_of_generated_files_that_cannot_be_saved_is_refused_and_loses_nothing() {
    if as_root().is_none() {
        return;
    }
    let Some(lab) = answering() else { return };
    let disk = small_disk(&lab);
    let save = disk.join("save.json");
    let mounted = || lab.mount("llm-generate", &["--save", save.to_str().unwrap()]);
    let mut generate = mounted();
    let dir = generate.dir.clone();
    let bytes = "text\n".repeat(50_000);
    fs::write(dir.join("mine"), &bytes).unwrap();
    let filler = fill(&disk);
    let refused = ctxbench(["unmount"]).arg(&dir).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    has(&stderr(&refused), &["is still mounted: its changes cannot be saved", "No space left", "fix: free disk space"]);
    assert_eq!(text_of(&dir, "mine"), bytes);
    // Another program unmounts it: the daemon waits for room.
    Command::new("umount").arg(&dir).succeeds();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    fs::remove_file(filler).unwrap();
    assert!(generate.process.wait().unwrap().success());

    let generate = mounted();
    assert_eq!(text_of(&dir, "mine"), bytes);
    generate.end();
}

#[test]
fn a_store_with_a_model_on_a_read_only_file_system_mounts_read_only() {
    if as_root().is_none() {
        return;
    }
    let Some(lab) = answering() else { return };
    let disk = small_disk(&lab);
    let (save, log) = (disk.join("save.json"), disk.join("log.db"));
    let stores = [("llm-generate", "--save", save), ("llm-history", "--log-db", log)];
    let mounted = |at: usize| {
        let (store, option, file) = &stores[at];
        lab.mount(store, &[option, file.to_str().unwrap()])
    };
    for at in 0..stores.len() {
        let store = mounted(at);
        fs::write(store.dir.join("mine"), "text").unwrap();
        store.end();
    }
    mount(&["-o", "remount,ro"], &disk);
    for at in 0..stores.len() {
        let mut store = mounted(at);
        assert!(store.said().starts_with("read-only: "));
        assert_eq!(fs::metadata(store.dir.join("mine")).unwrap().len(), 4);
        let refused = fs::write(store.dir.join("new"), "text").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem, "{refused}");
        store.end();
    }
}
