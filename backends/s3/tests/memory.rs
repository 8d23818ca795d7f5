//! How much memory a tree takes: allocations are counted.

#![allow(missing_docs, unsafe_code, clippy::unwrap_used, reason = "tests, and a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use s3::tree::{Attributes, Body, Changes, Content, Name, Node, NodeId, ROOT, Tree};

/// What an allocator such as glibc's adds to an allocation, and the multiple that it rounds up to, in bytes.
const HEADER: usize = 8;
const GRAIN: usize = 16;

/// Bytes that are allocated now.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

struct CountingAllocator;

fn taken(layout: Layout) -> usize {
    (layout.size() + HEADER).next_multiple_of(GRAIN).max(2 * GRAIN)
}

// SAFETY: every call is passed on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The changes that make `files` files of one kilobyte, 200 in a directory.
fn files(files: u64) -> Changes {
    let mut changes = Changes::default();
    let id = |ino: u64| NodeId { writer: 7, ino };
    let mut add = |dir: NodeId, name: String, ino: u64, body: Body| {
        let attributes = Attributes { permissions: 0o644, uid: 1000, mtime: 1, btime: 1, ..Attributes::default() };
        changes.nodes.insert(id(ino), Node { body, attributes });
        changes.names.insert((dir, Name(name.into_bytes())), Some(id(ino)));
    };
    let content = Content::local(&[b'x'; 1024]);
    for file in 0..files {
        let dir = 2 + file / 200 * 201;
        if file % 200 == 0 {
            add(ROOT, format!("directory-{dir}"), dir, Body::Directory);
        }
        add(id(dir), format!("observation-{file:06}.md"), dir + 1 + file % 200, Body::File(content.clone()));
    }
    changes
}

#[test]
fn a_file_takes_less_than_half_a_kibibyte_of_a_tree() {
    const FILES: usize = 100_000;
    let changes = files(FILES as u64);
    let before = ALLOCATED.load(Ordering::Relaxed);
    let tree = Tree::of(&changes).unwrap();
    let per_file = (ALLOCATED.load(Ordering::Relaxed) - before) / FILES;
    println!("{per_file} bytes a file of a tree from a checkpoint");
    assert!(per_file < 512, "{per_file} bytes a file");

    // A tree that grew commit by commit.
    let before = ALLOCATED.load(Ordering::Relaxed);
    let mut grown = Tree::default();
    let names: BTreeMap<NodeId, _> = changes.names.iter().map(|(entry, to)| (to.unwrap(), entry)).collect();
    let by_node: Vec<(&NodeId, &Node)> = changes.nodes.iter().collect();
    for some in by_node.chunks(100) {
        let mut commit = Changes::default();
        for (id, node) in some {
            commit.nodes.insert(**id, (*node).clone());
            commit.names.insert(names[id].clone(), Some(**id));
        }
        grown.apply(&commit);
    }
    drop((names, by_node));
    let per_file = (ALLOCATED.load(Ordering::Relaxed) - before) / FILES;
    println!("{per_file} bytes a file of a tree from commits");
    assert!(grown == tree);
    assert!(per_file < 512, "{per_file} bytes a file");
}
