use super::*;

/// The changes of a commit, as the command lists them.
fn events(log: &CommitHistory, number: usize) -> Vec<String> {
    let events = log.entries[number].events.iter();
    let shown = events.map(|(path, event)| {
        let path = log.path(*path);
        match event {
            Event::Added => format!("added {path}"),
            Event::Changed => format!("changed {path}"),
            Event::Attributes => format!("attributes {path}"),
            Event::Renamed(from) => format!("renamed {} -> {path}", log.path(*from)),
            Event::Removed => format!("removed {path}"),
        }
    });
    shown.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn history_shows_and_restores_every_version() {
    let world = World::new().await;
    let first = world.commit(&[("dir/a.md", "one"), ("dir/deep/b.md", "b")]).await;
    let between = now();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = world.commit(&[("dir/a.md", "two"), ("c.md", "c")]).await;
    let third = world.remove("dir/deep/b.md").await;
    let show = async |at: HistoryPoint| world.show("dir/a.md", at).await;
    assert_eq!(show(HistoryPoint::Commit(first)).await.unwrap(), "one");
    assert_eq!(show(HistoryPoint::Time(between)).await.unwrap(), "one");
    assert_eq!(show(HistoryPoint::Commit(second)).await.unwrap(), "two");
    let far = show(HistoryPoint::Commit(99)).await;
    assert!(matches!(far, Err(HistoryError::NoCommit(99, newest)) if newest == third));
    let early = show(HistoryPoint::Commit(1)).await;
    assert!(matches!(early, Err(HistoryError::NoPath(..))), "{early:?}");
    let of_dir = world.show("dir", HistoryPoint::Head).await;
    assert!(matches!(of_dir, Err(HistoryError::NotFile(..))), "{of_dir:?}");
    let of_dir = log(&world.client(), "dir/deep/").await.unwrap();
    let numbers: Vec<u64> = of_dir.entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [third, first]);
    assert_eq!(events(&of_dir, 0), ["removed dir/deep/b.md"]);
    assert_eq!(of_dir.entries[0].writer, "alice@host");
    let all = log(&world.client(), "").await.unwrap();
    assert_eq!(events(&all, 1), ["added c.md", "changed dir/a.md"]);

    let bucket = world.bucket();
    let client = Client::new(&bucket, &world.config);
    let sent = bucket.requests()["s3_put"];
    let done = restore(&client, "dir", HistoryPoint::Commit(first), None, "alice@host").await.unwrap();
    assert_eq!((done.from, done.nodes), (first, 4));
    assert_eq!(done.commit, Some(third + 1));
    let again = restore(&client, "dir", HistoryPoint::Commit(first), None, "alice@host").await;
    assert_eq!(again.unwrap().commit, None);
    assert_eq!(world.head("dir/a.md").await, "one");
    assert_eq!(world.head("dir/deep/b.md").await, "b");
    assert_eq!(world.head("c.md").await, "c");
    let copy = restore(&client, "dir/a.md", HistoryPoint::Commit(second), Some("old/a.md"), "w").await;
    assert!(copy.unwrap().commit.is_some());
    assert_eq!(world.head("old/a.md").await, "two");
    let same = restore(&client, "old/a.md", HistoryPoint::Head, None, "w").await.unwrap();
    assert_eq!(same.commit, None);
    let over = restore(&client, "c.md", HistoryPoint::Head, Some("dir"), "w").await;
    assert!(matches!(over, Err(HistoryError::Occupied(_))), "{over:?}");
    let mut checkout = Checkout::open(&client, "w").await.unwrap();
    let id = checkout.tree().find(b"c.md").unwrap();
    let node = checkout.tree().node(id).unwrap().clone();
    checkout.put(b"dir/d.md", node, Some(id)).unwrap();
    checkout.remove(b"c.md");
    checkout.commit(&client).await.unwrap();
    let renamed = log(&client, "dir/d.md").await.unwrap();
    assert_eq!(events(&renamed, 0), ["renamed c.md -> dir/d.md"]);
    // Three commits, and six times the proof that log/1 is not overwritten: no content is uploaded again.
    assert_eq!(bucket.requests()["s3_put"] - sent, 9);
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_a_gap_that_a_mount_committed_over() {
    let world = World::new().await;
    let number = world.commit(&[("a.md", "1")]).await;
    let client = world.client();
    let newest = client.get(Key::Log(number), None).await.unwrap().unwrap();
    let past = Key::Log(number + 2);
    assert_eq!(client.put_new(past, newest).await, Ok(PutOutcome::Created));
    let problems = world.check().await.problems;
    let expected = "commit 3 is missing, but commit 4 exists";
    assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_damage_to_every_kind_of_object() {
    let world = World::new().await;
    let big = "big ".repeat(40_000);
    world.commit(&[("small.md", "a small file"), ("big.txt", &big)]).await;
    world.commit(&[("other.md", "another small file")]).await;
    let found = world.check().await;
    assert_eq!((found.commits, found.nodes, found.chunks), (3, 4, 3));
    assert_eq!(found.bytes, 12 + 160_000 + 18);
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.notes.len(), 3, "nothing is mirrored: {:?}", found.notes);
    world.damage(big.as_bytes());
    let [problem] = &world.check().await.problems[..] else { panic!() };
    assert!(problem.contains("digest"), "{problem}");
    world.damage(b"another small file");
    let problems = world.check().await.problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("Log(3): it is damaged"), "{problems:?}");
    // No commit after a damaged one can be reached.
    world.damage(b"a small file");
    let problems = world.check().await.problems;
    assert!(problems.iter().any(|problem| problem.starts_with("Log(2): it is damaged")), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_that_was_away_goes_on_after_a_collection() {
    let world = World::with(Quirk::None).await;
    world.commit(&[("a.md", "1")]).await;
    let client = world.client();
    let mut away = Checkout::open(&client, "away").await.unwrap();
    away.write(b"mine.md", &Bytes::from_static(b"mine"), now()).unwrap();
    world.commit(&[("b.md", "1")]).await;
    world.commit(&[("a.md", "2"), ("b.md", "2")]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(swept.deleted.len(), 2, "commits 2 and 3: {:?}", swept.deleted);
    away.join(&client).await.unwrap();
    let number = away.commit(&client).await.unwrap().number;
    assert_eq!(number, Some(5));
    assert_eq!(world.head("mine.md").await, "mine");
    assert_eq!(world.head("a.md").await, "2");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_whose_head_is_kept_for_its_inline_files_follows_the_floor() {
    let world = World::with(Quirk::None).await;
    world.commit(&[("kept.md", "kept inline")]).await;
    let client = world.client();
    let mut away = Checkout::open(&client, "away").await.unwrap();
    away.write(b"mine.md", &Bytes::from_static(b"mine"), now()).unwrap();
    world.commit(&[("b.md", "1")]).await;
    world.commit(&[("b.md", "2")]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(swept.deleted, [format!("log/{:020}", 3)], "commit 2 holds kept.md");
    away.join(&client).await.unwrap();
    assert_eq!(away.commit(&client).await.unwrap().number, Some(5));
    assert_eq!(world.head("mine.md").await, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_several_chunks_are_committed_shown_and_checked() {
    let world = World::new().await;
    let long = Bytes::from(vec![b'l'; CHUNK as usize + 5]);
    let client = world.client();
    let mut checkout = Checkout::open(&client, "alice@host").await.unwrap();
    checkout.write(b"long.bin", &long, now()).unwrap();
    checkout.commit(&client).await.unwrap();
    assert_eq!(world.head("long.bin").await.as_bytes(), long);
    let nothing = mirrored(&Tree::default(), &world.tree().await);
    assert_eq!(nothing, MirrorPlan::default());
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

/// Nested directories below `top`, not committed yet: at least this many.
async fn nested(client: &Client, depth: u64) -> Checkout {
    let mut checkout = Checkout::open(client, "w").await.unwrap();
    let directory = Node { body: Body::Directory, attributes: s3::tree::Attributes::default() };
    checkout.put(b"top", directory, None).unwrap();
    // Twice as many with each step.
    let mut nodes = 1;
    while nodes < depth {
        let tree = checkout.tree().clone();
        let top = tree.find(b"top").unwrap();
        let bottom = [&b"top"[..], &b"/d".repeat(nodes as usize)].concat();
        nodes += checkout.copy(&tree, top, &bottom).unwrap();
    }
    checkout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_reads_a_few_names_for_each_change_however_deep_it_is_nested() {
    const DEPTH: u64 = 30_000;
    let world = World::new().await;
    let client = world.client();
    let mut checkout = nested(&client, DEPTH).await;
    let nodes = checkout.tree().count() as u64 - 1;
    assert!(nodes >= DEPTH, "{nodes} are nested");
    checkout.commit(&client).await.unwrap();
    let tree = checkout.tree().clone();
    let top = tree.find(b"top").unwrap();
    checkout.copy(&tree, top, b"copy").unwrap();
    checkout.commit(&client).await.unwrap();
    // The first commit of a memory is empty.
    for (path, commits) in [("", 3), ("top", 1), ("copy/d/d", 1), ("other", 0)] {
        let log = log(&client, path).await.unwrap();
        assert_eq!(log.entries.len(), commits, "{path}");
        let changes: usize = log.entries.iter().map(|entry| entry.events.len()).sum();
        let below = match path {
            "" => 2 * nodes,
            "top" => nodes,
            "other" => 0,
            _ => nodes - 2,
        };
        assert_eq!(changes as u64, below, "{path}");
        // The directory of a change, and the change, in each of the two commits.
        assert!(log.names_read() <= 4 * nodes, "{}", log.names_read());
    }
    let log = log(&client, "copy").await.unwrap();
    let (last, event) = log.entries[0].events.last().unwrap();
    assert_eq!(*event, Event::Added);
    assert_eq!(log.path(*last), format!("copy{}", "/d".repeat(nodes as usize - 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_tells_links_renames_and_renames_of_directories_above_apart() {
    let world = World::new().await;
    let client = world.client();
    world.commit(&[("a/b/f", "one"), ("a/b/g", "two"), ("a.x", "x")]).await;
    let mut checkout = Checkout::open(&client, "w").await.unwrap();
    let known = |checkout: &Checkout, path: &str| {
        let id = checkout.tree().find(path.as_bytes()).unwrap();
        (checkout.tree().node(id).unwrap().clone(), Some(id))
    };
    let (node, id) = known(&checkout, "a/b/f");
    checkout.put(b"a/link", node, id).unwrap();
    checkout.commit(&client).await.unwrap();
    let (node, id) = known(&checkout, "a/b/g");
    checkout.put(b"c/g", node, id).unwrap();
    checkout.remove(b"a/b/g");
    checkout.commit(&client).await.unwrap();
    let all = log(&client, "").await.unwrap();
    assert_eq!(events(&all, 0), ["added c", "renamed a/b/g -> c/g"]);
    assert_eq!(events(&all, 1), ["added a/link"]);
    let first = ["added a", "added a/b", "added a/b/f", "added a/b/g", "added a.x"];
    assert_eq!(events(&all, 2), first);
    // The rename is a change of the place that the file had, too.
    let of_place = log(&client, "a/b").await.unwrap();
    assert_eq!(events(&of_place, 0), ["renamed a/b/g -> c/g"]);
    assert_eq!(of_place.entries.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_looks_up_each_name_once_however_deep_it_is_nested() {
    const DEPTH: u64 = 30_000;
    let world = World::new().await;
    let client = world.client();
    let mut checkout = nested(&client, DEPTH).await;
    let tree = checkout.tree().clone();
    let top = tree.find(b"top").unwrap();
    let before = checkout.lookups();
    let nodes = checkout.copy(&tree, top, b"copy").unwrap();
    assert!(nodes >= DEPTH, "{nodes} are nested");
    assert_eq!(checkout.lookups() - before, nodes);
    let number = checkout.commit(&client).await.unwrap().number.unwrap();
    let again = restore(&client, "top", HistoryPoint::Commit(number), Some("again"), "w").await;
    let again = again.unwrap();
    assert_eq!((again.nodes, again.commit), (nodes, Some(number + 1)));
}
