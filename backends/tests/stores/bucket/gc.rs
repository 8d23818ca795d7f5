use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_log_is_checked_and_collected_like_any_other() {
    let mut world = World::with(Quirk::None).await;
    world.config.seal = Some(Secret([7; 32]));
    let big = |name: &str| name.repeat(40_000);
    world.commit(&[("a.md", "inline"), ("a.bin", &big("one "))]).await;
    world.commit(&[("a.bin", &big("two "))]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(swept.deleted.len(), 1, "the blob of \"one \": {:?}", swept.deleted);
    assert!(swept.deleted[0].starts_with("blob/"), "{:?}", swept.deleted);
    assert_eq!(world.head("a.bin").await, big("two "));
    assert_eq!(world.head("a.md").await, "inline");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bucket_policy_denies_overwriting_and_deleting_in_a_log() {
    let world = World::new().await;
    world.commit(&[("a.md", "1")]).await;
    let tool = world.tool();
    let log = path(".ctx/log/00000000000000000002");
    assert!(tool.put(&log, "overwritten".into()).await.is_err());
    assert!(tool.delete(&log).await.is_err());
    assert!(tool.copy(&path(".ctx/log/00000000000000000001"), &log).await.is_err());
    world.tool().put(&path("notes.md"), "a note".into()).await.unwrap();
    let sweeper = Sweeper::new(&world.bucket(), &world.config);
    let options = GcOptions { older_than: Duration::ZERO, grace: Duration::ZERO, dry_run: false };
    world.commit(&[("a.md", "2")]).await;
    world.commit(&[("a.md", "3")]).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let client = world.client();
    let floor = collect(&client, &sweeper, options, now()).await.unwrap().floor;
    assert_eq!(floor, Some(4));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let denied = collect(&client, &sweeper, options, now()).await.unwrap_err();
    assert!(denied.to_string().contains("AccessDenied"), "{denied}");
    assert_eq!(world.head("a.md").await, "3");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_collection_keeps_every_version_inside_the_window() {
    let world = World::with(Quirk::None).await;
    let big = |name: &str| name.repeat(40_000);
    world.commit(&[("kept.md", "kept inline"), ("old.bin", &big("old "))]).await;
    world.commit(&[("churn.md", "1"), ("dead.bin", &big("dead"))]).await;
    world.remove("dead.bin").await;
    world.commit(&[("churn.md", "2")]).await;
    world.commit(&[("old.bin", &big("new "))]).await;
    let floor = world.commit(&[("churn.md", "3")]).await;
    let hour = Duration::from_secs(3600);
    let cutoff = now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let fourth = world.commit(&[("churn.md", "4")]).await;
    world.commit(&[("old.bin", &big("last"))]).await;
    let before = world.tree().await;

    let young = world.collect(hour, Duration::ZERO, false).await;
    assert_eq!(young, GcReport::default(), "nothing is older than an hour");
    let dry = world.collect_before(cutoff, hour, true).await;
    assert_eq!((dry.floor, dry.swept), (Some(floor), None));
    let made = world.collect_before(cutoff, hour, false).await;
    assert_eq!((made.floor, made.swept), (Some(floor), None), "a floor deletes nothing at once");
    assert_eq!(made.deleted, Vec::<String>::new());
    let still = world.collect_before(cutoff, hour, false).await;
    assert_eq!((still.floor, still.swept), (None, None), "the grace time is not over");

    let dry = world.collect_before(cutoff, Duration::ZERO, true).await;
    let swept = world.collect_before(cutoff, Duration::ZERO, false).await;
    assert_eq!(dry, swept, "a dry run says what a run does");
    assert_eq!(swept.swept, Some(floor));
    assert_eq!(swept.stray, Vec::<u64>::new());
    let client = world.client();
    let key = |number| format!("log/{number:020}");
    // Commit 2 has kept.md inline; those after it are garbage, with the blobs of old.bin and dead.bin.
    let logs: Vec<String> = (3..floor).map(key).collect();
    let deleted = |part: &str| -> Vec<String> {
        let keys = swept.deleted.iter().filter(|key| key.starts_with(part));
        keys.cloned().collect()
    };
    assert_eq!(deleted("log/"), logs);
    assert_eq!(deleted("blob/").len(), 2, "{:?}", swept.deleted);
    // A mount that was away too long commits with a number that was used before. The commit is kept and reported.
    client.put_new(Key::Log(3), Bytes::from_static(b"stray")).await.unwrap();
    let again = world.collect_before(cutoff, Duration::ZERO, false).await;
    assert_eq!((again.deleted, again.stray), (Vec::new(), vec![3]));

    assert_eq!(world.tree().await, before);
    assert_eq!(world.head("kept.md").await, "kept inline");
    assert_eq!(world.head("old.bin").await, big("last"));
    assert_eq!(world.show("churn.md", HistoryPoint::Commit(floor)).await.unwrap(), "3");
    assert_eq!(world.show("old.bin", HistoryPoint::Commit(fourth)).await.unwrap(), big("new "));
    let early = world.show("churn.md", HistoryPoint::Commit(floor - 1)).await;
    assert!(matches!(early, Err(HistoryError::TooOld(oldest)) if oldest == floor));
    assert_eq!(log(&client, "").await.unwrap().entries.len(), 2);
    assert_eq!(world.check().await.problems, Vec::<String>::new());
    // The content of a deleted blob is uploaded again, and that of a kept blob is not.
    world.commit(&[("again.bin", &big("dead")), ("copy.bin", &big("last"))]).await;
    assert_eq!(world.head("again.bin").await, big("dead"));
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

/// The failure of the n-th request of a collection and of all requests after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The server refuses them.
    Refused,
    /// The process is killed before they are sent.
    Killed,
    /// The process is killed, and they arrive after the next collections and a commit.
    Late,
}

/// A collection that sweeps for one floor and makes another, with a crash at its n-th request: nothing is lost, and the
/// next collections finish. Whether it had fewer requests.
async fn crash(request: u64, how: Crash) -> bool {
    let world = World::with(Quirk::None).await;
    let big = |name: &str| name.repeat(20_000);
    let (one, two, three) = (big("one "), big("two "), big("three "));
    world.commit(&[("a.md", "1"), ("a.bin", &one)]).await;
    world.commit(&[("b.md", "1"), ("a.bin", &two)]).await;
    let floor = world.commit(&[("b.md", "2")]).await;
    let all = Duration::ZERO;
    assert_eq!(world.collect(all, all, false).await.floor, Some(floor));
    let middle = world.commit(&[("a.bin", &three)]).await;
    let head = world.commit(&[("a.md", "2")]).await;
    let kept = [(floor, ["1", "2", &two]), (middle, ["1", "2", &three]), (head, ["2", "2", &three])];
    let whole = async |when: &str| {
        let label = format!("{when} a crash at request {request} ({how:?})");
        for (commit, files) in &kept {
            for (path, content) in std::iter::zip(["a.md", "b.md", "a.bin"], files) {
                match world.show(path, HistoryPoint::Commit(*commit)).await {
                    Ok(read) => assert!(read == **content, "{label}: {path} of {commit}"),
                    // The crashed collection has made its floor.
                    Err(HistoryError::TooOld(oldest)) if *commit < oldest => {
                        assert_eq!(oldest, head, "{label}");
                    }
                    Err(error) => panic!("{label}: {path} of {commit}: {error}"),
                }
            }
        }
        assert_eq!(world.check().await.problems, Vec::<String>::new(), "{label}");
    };

    let (proxy, config) = world.behind_faults();
    let fault = match how {
        Crash::Refused => RequestFault::Refuse { status: 403, code: "AccessDenied".to_owned(), retry_after: None },
        Crash::Killed => RequestFault::Hang,
        Crash::Late => RequestFault::Hold,
    };
    let passes = Rule::always(RequestFault::Delay { ms: 0.0 }).when(RuleFrequency::First(request - 1));
    proxy.set(vec![passes, Rule::always(fault)]);
    let is_hit = || proxy.fired()[1].done > 0;
    let hit = async {
        while how == Crash::Refused || !is_hit() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let bucket = Bucket::new(&config).unwrap();
    let (client, sweeper) = (Client::new(&bucket, &config), Sweeper::new(&bucket, &config));
    let options = GcOptions { older_than: all, grace: all, dry_run: false };
    // The server's times have whole milliseconds.
    tokio::time::sleep(Duration::from_millis(5)).await;
    tokio::select! {
        collected = collect(&client, &sweeper, options, now()) => {
            assert_eq!(collected.is_err(), is_hit(), "request {request}: {collected:?}");
        }
        () = hit => {}
    }
    let is_complete = !is_hit();
    whole("after").await;
    let (mut floors, mut deleted) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let next = world.collect(all, all, false).await;
        floors.extend(next.floor);
        deleted.extend(next.deleted);
    }
    assert!(floors.len() <= 1, "{floors:?}");
    whole("some collections after").await;
    let rest = world.collect(all, all, true).await;
    assert_eq!((rest.swept, rest.deleted), (Some(head), Vec::new()));
    assert!(world.show("a.bin", HistoryPoint::Commit(floor)).await.is_err());

    // The content of deleted blobs comes back before the late requests do.
    world.commit(&[("one.bin", &one), ("two.bin", &two)]).await;
    let (seen, held) = (proxy.seen().len(), proxy.fired()[1].done as usize);
    proxy.clear();
    while how == Crash::Late && proxy.seen().len() < seen + held {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    whole("long after").await;
    assert_eq!(world.head("one.bin").await, one);
    assert_eq!(world.head("two.bin").await, two);
    is_complete
}

/// Lets a collection crash at its first request, at its second, and so on, until it has no more.
async fn crash_everywhere(how: Crash) {
    let mut request = 1;
    while !crash(request, how).await {
        request += 1;
    }
    println!("{how:?}: {} requests", request - 1);
    assert!(request > 12, "a collection has {} requests", request - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_refused_at_any_request_loses_nothing() {
    crash_everywhere(Crash::Refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_killed_at_any_request_loses_nothing() {
    crash_everywhere(Crash::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_requests_of_a_killed_collection_lose_nothing() {
    crash_everywhere(Crash::Late).await;
}
