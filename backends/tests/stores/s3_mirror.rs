//! The readable mirror, as mounts that end early, are killed or lose answers leave it.

use crate::common::*;
use crate::hosts::*;

use fuse::store::{ROOT, Store};
use s3::config::{MirrorMode, S3Config};
use s3_store::S3Store;
use servers::{Operation, RequestFault, Rule, RuleFrequency};

fn mirrored(memory: &Memory) -> S3Store {
    memory.mount_as(S3Config { mirror: MirrorMode::Markdown, ..memory.config("a") })
}

/// The keys of the mirror.
fn shown(memory: &Memory) -> Vec<String> {
    let mut keys = memory.keys();
    keys.retain(|key| !key.starts_with(".ctx/"));
    keys
}

#[test]
fn a_mount_that_ends_leaves_its_last_changes_in_the_mirror() {
    let memory = Memory::new();
    let a = mirrored(&memory);
    write(&a, "a.md", b"1");
    write(&a, "b.txt", b"2");
    a.upload().unwrap();
    drop(a);
    assert_eq!(shown(&memory), ["a.md"]);
    // A mount that changes nothing sends no request for the mirror.
    let a = mirrored(&memory);
    let wait = || std::thread::sleep(std::time::Duration::from_secs(3));
    let asked = spent(&a, wait);
    assert_eq!(only_requests(&asked), [].into());
    a.unlink(&now(), ROOT, b"a.md").unwrap();
    a.upload().unwrap();
    drop(a);
    assert_eq!(shown(&memory), Vec::<String>::new());
}

#[test]
fn a_mount_publishes_what_mounts_before_it_did_not() {
    let memory = Memory::new();
    let a = mirrored(&memory);
    for name in ["kept.md", "gone.md", "edited.md"] {
        write(&a, name, b"1");
    }
    a.upload().unwrap();
    drop(a);
    let mut objects = memory.objects();
    let foreign = format!("agents/{}/foreign.md", memory.agent);
    objects.insert(foreign.clone(), b"of another tool".to_vec());
    memory.replace_objects(&objects);
    // Like a daemon that was killed before it wrote to the mirror.
    let a = memory.mount("a");
    a.unlink(&now(), ROOT, b"gone.md").unwrap();
    write(&a, "edited.md", b"2");
    write(&a, "new.md", b"3");
    a.upload().unwrap();
    drop(a);
    let old = ["edited.md", "foreign.md", "gone.md", "kept.md"];
    assert_eq!(shown(&memory), old);
    drop(mirrored(&memory));
    let new = ["edited.md", "foreign.md", "kept.md", "new.md"];
    assert_eq!(shown(&memory), new);
    let now = memory.objects();
    let [edited, kept] = ["edited.md", "kept.md"].map(|name| format!("agents/{}/{name}", memory.agent));
    assert!(now[&edited].ends_with(b"---\n2"));
    for key in [foreign, kept] {
        assert_eq!(now[&key], objects[&key]);
    }
}

#[test]
fn a_commit_whose_answer_was_lost_reaches_the_mirror() {
    let memory = Memory::behind_proxy();
    let a = mirrored(&memory);
    write(&a, "a.md", b"1");
    let log = format!("agents/{}/.ctx/log/", memory.agent);
    let lost = Rule::always(RequestFault::LoseAnswer).of(&[Operation::Put]);
    memory.proxy().set(vec![lost.below(&log).when(RuleFrequency::First(1))]);
    // The client sends it again, and finds it in the log.
    a.upload().unwrap();
    assert_eq!(memory.fired(), 1);
    drop(a);
    assert_eq!(shown(&memory), ["a.md"]);
}
