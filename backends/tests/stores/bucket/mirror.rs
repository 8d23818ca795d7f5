use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn another_tool_reads_the_mirror_and_cannot_be_given_a_log() {
    let world = World::new().await;
    let files = [("notes/Grüße 100%.md", "hello"), ("data.bin", "raw"), (".ctx/x.md", "own")];
    let commit = world.commit(&files).await;
    world.publish(commit).await;
    let tool = world.tool();
    let read = async |key: &str| tool.get(&path(key)).await.unwrap();
    let note = read("notes/Grüße 100%25.md").await;
    let metadata = |name: &'static str| note.attributes.get(&Attribute::Metadata(name.into()));
    assert_eq!(metadata("ctx-commit").unwrap().as_ref(), commit.to_string());
    assert_eq!(metadata("ctx-sha256").unwrap().as_ref(), Hash::of(b"hello").to_string());
    let text = String::from_utf8(note.bytes().await.unwrap().to_vec()).unwrap();
    let front = format!("---\nctxbench:\n  version: {commit}\n  modified: ");
    assert!(text.starts_with(&front) && text.ends_with("---\nhello"), "{text}");
    assert!(text.contains(&Hash::of(b"hello").to_string()), "{text}");
    assert_eq!(read("data.bin").await.bytes().await.unwrap(), "raw");
    assert!(read("%2Ectx/x.md").await.bytes().await.unwrap().ends_with(b"---\nown"));
    let log = ".ctx/log/00000000000000000001";
    let refused = world.mirror().put(log, Bytes::new(), &[], Precondition::None).await;
    assert!(matches!(refused, Err(Fault::Refused(_))));
    assert!(matches!(world.mirror().delete(log).await, Err(Fault::Refused(_))));
    // A removed file leaves the mirror.
    let before = world.tree().await;
    let commit = world.remove("data.bin").await;
    let change = mirrored(&before, &world.tree().await);
    let deletion = MirrorPlan::from([("data.bin".to_owned(), None)]);
    assert_eq!(change, deletion);
    let client = world.client();
    publish(&world.mirror(), &client, &change, commit, &|_| None).await.unwrap();
    assert!(tool.get(&path("data.bin")).await.is_err());
    assert_eq!(world.check().await.notes, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_writer_leaves_what_shows_a_later_commit() {
    let world = World::new().await;
    let first = world.commit(&[("a.md", "1"), ("b.txt", "1")]).await;
    let old = mirrored(&Tree::default(), &world.tree().await);
    let second = world.commit(&[("a.md", "2"), ("new.md", "2"), ("n.txt", "2")]).await;
    world.publish(second).await;
    let (client, mirror) = (world.client(), world.mirror());
    let read = async |key: &str| mirror.get(key).await.unwrap().unwrap().body;
    // With all that an unknown mirror would have to lose.
    let gone = ["new.md", "n.txt"].map(|key| (key.to_owned(), None));
    let late = old.into_iter().chain(gone).collect();
    publish(&mirror, &client, &late, first, &|_| None).await.unwrap();
    assert!(read("a.md").await.ends_with(b"---\n2"));
    assert!(read("new.md").await.ends_with(b"---\n2"));
    assert_eq!(read("n.txt").await, "2");
    // A mount that mirrors Markdown leaves the rest to those that mirror all.
    let listed = mirror.list("").await.unwrap();
    let anew = |mode| plan_all(&listed, &Files::new(), mode).into_keys().collect::<Vec<_>>();
    assert_eq!(anew(MirrorMode::Markdown), ["a.md", "new.md"]);
    assert_eq!(anew(MirrorMode::All), ["a.md", "b.txt", "n.txt", "new.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_takes_in_what_other_tools_wrote_and_nothing_else() {
    let world = World::new().await;
    let poem = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let files = [("a.md", "a\n"), ("dir/b.txt", "b"), ("poem.md", poem), ("gone.md", "x"), ("clash.md", "c")];
    let commit = world.commit(&files).await;
    world.publish(commit).await;
    let published = Instant::now();
    let nothing = world.import(Some(Duration::ZERO)).await;
    assert_eq!(nothing, ImportReport::default());
    // Longer than an import takes until it compares ages, on a busy machine too.
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Commits that the mirror does not show yet.
    let late = [("a.md", "newer\n"), ("late.md", "late"), ("clash.md", "theirs")];
    world.commit(&late).await;
    world.commit(&[("poem.md", &poem.replace('2', "two"))]).await;
    assert_eq!(world.import(None).await, ImportReport::default(), "a late mirror does not count as an edit");
    let tool = world.tool();
    let edit = async |key: &str, from: &str, to: &str| {
        let old = tool.get(&path(key)).await.unwrap();
        let (attributes, old) = (old.attributes.clone(), old.bytes().await.unwrap());
        let new = String::from_utf8(old.to_vec()).unwrap().replace(from, to);
        // Like s3fs, which keeps the metadata of what it overwrites.
        let options = PutOptions { attributes, ..PutOptions::default() };
        tool.put_opts(&path(key), new.into(), options).await.unwrap();
    };
    edit("poem.md", "7\n", "seven\n").await;
    edit("dir/b.txt", "b", "edited").await;
    let clash = format!("{}ours", front(&tool, "clash.md").await);
    tool.put(&path("clash.md"), clash.into()).await.unwrap();
    tool.put(&path("new/n%0A.txt"), "new".into()).await.unwrap();
    let kept = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
    let options = PutOptions { attributes: kept, ..PutOptions::default() };
    tool.put_opts(&path("dir"), "a file where a directory is".into(), options).await.unwrap();
    tool.delete(&path("gone.md")).await.unwrap();
    let done = world.import(Some(published.elapsed())).await;
    assert_eq!(done.added, ["new/n\n.txt"]);
    assert_eq!(done.changed, ["clash.md", "dir/b.txt", "poem.md"]);
    assert_eq!(done.removed, ["gone.md"], "late.md is late, not removed");
    assert_eq!(done.notes.len(), 2, "{:?}", done.notes);
    assert_eq!(world.head("poem.md").await, poem.replace('2', "two").replace('7', "seven"));
    assert_eq!(world.head("dir/b.txt").await, "edited");
    assert_eq!(world.head("new/n\n.txt").await, "new");
    assert_eq!(world.head("clash.md").await, "ours");
    let before = HistoryPoint::Commit(done.commit.unwrap() - 1);
    assert_eq!(world.show("clash.md", before).await.unwrap(), "theirs");
    assert_eq!(world.head("a.md").await, "newer\n");
    assert_eq!(world.head("late.md").await, "late");
    // The mirror was updated: the same edits are not taken in again.
    world.commit(&[("dir/b.txt", "edited again")]).await;
    let again = world.import(Some(published.elapsed())).await;
    assert_eq!((again.commit, again.changed), (None, Vec::new()));
    assert_eq!(world.head("dir/b.txt").await, "edited again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_did_not_update_the_mirror_is_not_repeated() {
    let world = World::new().await;
    let commit = world.commit(&[("log.md", "1\n"), ("whole.md", "a")]).await;
    world.publish(commit).await;
    world.commit(&[("log.md", "1\nmount\n")]).await;
    let tool = world.tool();
    let log = format!("{}1\ntool\n", front(&tool, "log.md").await);
    let whole = format!("{}b", front(&tool, "whole.md").await);
    let edit = async || {
        for (key, object) in [("log.md", &log), ("whole.md", &whole)] {
            tool.put(&path(key), object.clone().into()).await.unwrap();
        }
    };
    edit().await;
    let done = world.import(None).await;
    assert_eq!(done.changed, ["log.md", "whole.md"]);
    // As the import had found them.
    edit().await;
    let later = [("log.md", "1\nmount\ntool\nlater\n"), ("whole.md", "c")];
    world.commit(&later).await;
    assert_eq!(world.import(None).await, ImportReport::default());
    for (key, content) in later {
        assert_eq!(world.head(key).await, content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_leaves_what_another_tool_wrote_into_the_mirror_to_the_import() {
    let world = World::new().await;
    let commit = world.commit(&[("a.md", "1\n"), ("b.md", "b")]).await;
    world.publish(commit).await;
    let tool = world.tool();
    let edited = format!("{}1\ntool\n", front(&tool, "a.md").await);
    tool.put(&path("a.md"), edited.clone().into()).await.unwrap();
    let commit = world.commit(&[("a.md", "1\nmount\n"), ("b.md", "c")]).await;
    world.publish(commit).await;
    let object = async |key: &str| tool.get(&path(key)).await.unwrap().bytes().await.unwrap();
    assert_eq!(object("a.md").await, edited);
    assert!(object("b.md").await.ends_with(b"\nc"));
    assert_eq!(world.import(None).await.changed, ["a.md"]);
    let both = "1\nmount\ntool\n";
    assert_eq!(world.head("a.md").await, both);
    assert!(object("a.md").await.ends_with(both.as_bytes()));
}

/// The front matter of a mirrored file, as text.
async fn front(tool: &AmazonS3, key: &str) -> String {
    let object = tool.get(&path(key)).await.unwrap().bytes().await.unwrap();
    let (_, length) = s3::mirror::front_matter(&object).unwrap();
    String::from_utf8(object[..length].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_has_no_keys_of_logs() {
    let world = World::new().await;
    let put = async |key: &str| world.mirror().put(key, Bytes::new(), &[], Precondition::None).await;
    for key in ["p/agents/a/.ctx/log/1", ".ctx/x", "agents/a/notes/.ctx"] {
        assert!(matches!(put(key).await, Err(Fault::Refused(_))), "{key}");
    }
    for key in ["agents/a/x.ctx/y", "agents/a/%2Ectx/y", "agents/a/.ctxx"] {
        assert_eq!(put(key).await, Ok(true), "{key}");
    }
}
