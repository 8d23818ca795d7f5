//! Properties of the merge, over generated trees and file operations on two copies of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use s3::merge::{ChunkBytes, MergeResult, RemoteCommit, ReplicaError, difference, merge, validate};
use s3::tree::{Changes, Node, NodeId, Tree};

use files::{Files, is_equal, tokens_of};

#[allow(dead_code)]
#[path = "simulation/files.rs"]
mod files;

type Ops = Vec<[u32; 4]>;

fn ops(length: usize) -> impl Strategy<Value = Ops> {
    prop::collection::vec(prop::array::uniform4(0u32..1000), 0..length)
}

fn run(mut files: Files, writer: u64, ops: &Ops) -> Files {
    files.writer = writer;
    ops.iter().for_each(|op| files.act(*op));
    files
}

/// The base and the two copies.
fn copies(base: &Ops, ours: &Ops, theirs: &Ops) -> [Files; 3] {
    files::forget();
    let base = run(Files::new(1, 1 << 20, 0), 1, base);
    [base.clone(), run(base.clone(), 2, ours), run(base, 3, theirs)]
}

/// Merges as a session does: content is fetched when it is asked for.
fn merged(base: &Tree, ours: &Files, theirs: &Changes, is_own: bool) -> MergeResult {
    let local = difference(base, &ours.tree);
    let mut fetched = ChunkBytes::new();
    loop {
        let mut next = 1 << 40;
        let mut fresh = || {
            next += 1;
            NodeId { writer: 2, ino: next }
        };
        let mut read = |id: NodeId| -> Result<Option<Bytes>, ReplicaError> {
            let content = ours.tree.node(id).and_then(Node::content);
            Ok(Some(ours.read(content.expect("a file of ours")).expect("bytes at hand").into()))
        };
        let theirs = RemoteCommit { changes: theirs, number: 7, is_own, fetched: &fetched, writer: "bob@host" };
        match merge(base, theirs, &local, &mut read, &mut fresh).unwrap() {
            Ok(merged) => return merged,
            Err(needs) => {
                for chunk in needs {
                    fetched.insert(chunk.hash, files::oracle(&chunk.hash));
                }
            }
        }
    }
}

/// The working copy after a merge.
fn adopted(ours: &Tree, merged: &MergeResult) -> Tree {
    for (hash, bytes) in &merged.bytes {
        files::note(*hash, bytes);
    }
    let renamed: BTreeMap<NodeId, NodeId> = merged.forks.iter().copied().collect();
    let of = |id: NodeId| renamed.get(&id).copied().unwrap_or(id);
    let all = ours.to_changes();
    let tree = Tree::of(&Changes {
        nodes: all.nodes.into_iter().map(|(id, node)| (of(id), node)).collect(),
        names: all.names.into_iter().map(|((dir, name), id)| ((of(dir), name), id.map(of))).collect(),
    });
    let mut tree = tree.expect("forks leave a tree");
    validate(&tree, &merged.actions).expect("the actions leave a tree");
    tree.apply(&merged.actions);
    tree
}

fn after(base: &Tree, changes: &Changes) -> Tree {
    let mut tree = base.clone();
    tree.apply(changes);
    tree
}

fn check(base: &Files, ours: &Files, theirs: &Files) -> Result<(), TestCaseError> {
    let changes = difference(&base.tree, &theirs.tree);
    prop_assert_eq!(validate(&base.tree, &changes), Ok(()));
    prop_assert_eq!(&after(&base.tree, &changes), &theirs.tree);
    let merged = merged(&base.tree, ours, &changes, false);
    let tree = adopted(&ours.tree, &merged);
    // The next commit leads every other host to the same tree.
    let next = difference(&theirs.tree, &tree);
    prop_assert_eq!(validate(&theirs.tree, &next), Ok(()));
    prop_assert_eq!(&after(&theirs.tree, &next), &tree);
    // The working copy's journal has all of that: what was local before, under its identity now, and the actions.
    let renamed: BTreeMap<NodeId, NodeId> = merged.forks.iter().copied().collect();
    let of = |id: NodeId| renamed.get(&id).copied().unwrap_or(id);
    let local = difference(&base.tree, &ours.tree);
    let nodes: BTreeSet<NodeId> = local.nodes.into_keys().map(of).chain(merged.actions.nodes.keys().copied()).collect();
    let names: BTreeSet<_> = local.names.into_keys().map(|(dir, name)| (of(dir), name)).collect();
    for id in next.nodes.keys() {
        prop_assert!(nodes.contains(id) || merged.forks.iter().any(|(_, fork)| fork == id), "{id:?}");
    }
    for entry in next.names.keys() {
        let is_forked = next.names[entry].is_some_and(|id| merged.forks.iter().any(|(_, fork)| *fork == id));
        prop_assert!(names.contains(entry) || merged.actions.names.contains_key(entry) || is_forked, "{entry:?}");
    }
    // Nothing that a writer left in place is lost. Of content that two files have, each writer may overwrite one: a file
    // with two names, one of which an editor replaces, becomes two.
    let [before, our, their, now] = [&base.tree, &ours.tree, &theirs.tree, &tree].map(tokens_of);
    let holders = |tree: &Tree, token: &String| -> Vec<NodeId> {
        let has = |node: &Node| {
            let tokens = node.content().map(|content| files::tokens_in(&files::whole(content)));
            tokens.is_some_and(|tokens| tokens.contains(token))
        };
        tree.nodes().filter(|(_, node)| has(node)).map(|(id, _)| id).collect()
    };
    let is_left = |token: &String| {
        let [was] = holders(&base.tree, token)[..] else {
            return false;
        };
        let has_one_name = base.tree.names_of(was).count() == 1;
        has_one_name
            && [&ours.tree, &theirs.tree].into_iter().all(|tree| {
                let now = holders(tree, token);
                now.len() == 1 && (now[0] == was || tree.node(was).is_none())
            })
    };
    let kept = |token: &String| !before.contains(token) || is_left(token);
    let lost: BTreeSet<&String> = our.union(&their).filter(|token| kept(token) && !now.contains(*token)).collect();
    let show = || [&base.tree, &ours.tree, &theirs.tree, &tree].map(files::show).join("\n--\n");
    prop_assert!(lost.is_empty(), "lost: {lost:?}; base, ours, theirs, merged:\n{}", show());
    for entry in &merged.conflicts {
        prop_assert!(entry.1.0.len() <= 255);
        prop_assert!(ours.tree.name(entry).is_none() && theirs.tree.name(entry).is_none());
        prop_assert!(tree.name(entry).is_some());
    }
    Ok(())
}

/// One host adds a line to a file with two names and removes the second name, the other host puts a new file in place of
/// the first: each has left the old content under the name that the other took.
#[test]
fn a_file_of_which_each_host_takes_one_name_stays() {
    let (create_a, link_b) = ([0, 0, 4, 0], [17, 0, 1, 0]);
    let (add_line, remove_b) = ([4, 0, 18, 0], [14, 1, 0, 0]);
    let replace_a = [9, 0, 16, 0];
    let begin = vec![create_a, add_line, link_b];
    let edits = vec![add_line, remove_b];
    let [base, one, other] = copies(&begin, &edits, &vec![replace_a]);
    for (ours, theirs) in [(&one, &other), (&other, &one)] {
        check(&base, ours, theirs).unwrap();
        let changes = difference(&base.tree, &theirs.tree);
        let tree = adopted(&ours.tree, &merged(&base.tree, ours, &changes, false));
        let both = &tokens_of(&one.tree) | &tokens_of(&other.tree);
        assert_eq!(both.len(), 4);
        assert_eq!(tokens_of(&tree), both, "{}", files::show(&tree));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("CTXBENCH_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(20_000),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_merge_leaves_a_tree_and_loses_no_content(base in ops(25), ours in ops(12), theirs in ops(12)) {
        let [base, ours, theirs] = copies(&base, &ours, &theirs);
        check(&base, &ours, &theirs)?;
    }

    #[test]
    fn a_journal_that_both_hosts_make_is_one_file_with_every_line_once(
        base in ops(20),
        ours in ops(8),
        theirs in ops(8),
        lines in prop::array::uniform2(1usize..20),
    ) {
        let [base, mut ours, mut theirs] = copies(&base, &ours, &theirs);
        (0..lines[0]).for_each(|_| ours.append_to_journal());
        (0..lines[1]).for_each(|_| theirs.append_to_journal());
        check(&base, &ours, &theirs)?;
        let changes = difference(&base.tree, &theirs.tree);
        let merged = merged(&base.tree, &ours, &changes, false);
        let is_conflict = merged.conflicts.iter().any(|(_, name)| name.0.starts_with(b"journal."));
        prop_assert!(!is_conflict);
        let tree = adopted(&ours.tree, &merged);
        let journal = tree.find(files::JOURNAL.as_bytes()).unwrap();
        let found = files::tokens_in(&files::whole(tree.node(journal).unwrap().content().unwrap()));
        let once: BTreeSet<String> = found.iter().cloned().collect();
        prop_assert_eq!(found.len(), once.len());
        prop_assert_eq!(once, &ours.appended | &theirs.appended);
    }

    #[test]
    fn a_copy_without_changes_becomes_theirs(base in ops(20), theirs in ops(12)) {
        let [base, ours, theirs] = copies(&base, &Vec::new(), &theirs);
        let changes = difference(&base.tree, &theirs.tree);
        prop_assert_eq!(adopted(&ours.tree, &merged(&base.tree, &ours, &changes, false)), theirs.tree);
    }

    #[test]
    fn the_same_changes_on_both_sides_give_no_conflict(base in ops(20), both in ops(12)) {
        let [base, _, theirs] = copies(&base, &Vec::new(), &both);
        // The same operations by another writer: other identities, equal content.
        let mut ours = theirs.clone();
        let all = theirs.tree.to_changes();
        let of = |id: NodeId| if id.writer == 3 { NodeId { writer: 2, ..id } } else { id };
        ours.tree = Tree::of(&Changes {
            nodes: all.nodes.into_iter().map(|(id, node)| (of(id), node)).collect(),
            names: all.names.into_iter().map(|((dir, name), id)| ((of(dir), name), id.map(of))).collect(),
        }).unwrap();
        let changes = difference(&base.tree, &theirs.tree);
        let merged = merged(&base.tree, &ours, &changes, false);
        prop_assert_eq!(&merged.conflicts, &Vec::new());
        prop_assert!(is_equal(&adopted(&ours.tree, &merged), &theirs.tree));
    }

    #[test]
    fn a_forgotten_commit_of_the_same_working_copy_is_merged_once(base in ops(20), first in ops(8), later in ops(8)) {
        let [base, _, theirs] = copies(&base, &Vec::new(), &first);
        let ours = run(theirs.clone(), 2, &later);
        let changes = difference(&base.tree, &theirs.tree);
        let merged = merged(&base.tree, &ours, &changes, true);
        let tree = adopted(&ours.tree, &merged);
        let lost: Vec<String> = tokens_of(&ours.tree).difference(&tokens_of(&tree)).cloned().collect();
        prop_assert!(lost.is_empty(), "lost: {lost:?}");
    }
}
