use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_once_and_read_whole_or_in_part() {
    let world = World::new().await;
    let bucket = world.bucket();
    let client = Client::new(&bucket, &world.config);
    let first = Bytes::from_static(b"0123456789");
    assert_eq!(client.put_new(Key::Log(1), first.clone()).await, Ok(PutOutcome::Created));
    let again = client.put_new(Key::Log(1), Bytes::from_static(b"other")).await;
    assert_eq!(again, Ok(PutOutcome::Exists));
    assert_eq!(client.get(Key::Log(1), None).await, Ok(Some(first)));
    let part = client.get(Key::Log(1), Some(2..5)).await;
    assert_eq!(part, Ok(Some(Bytes::from_static(b"234"))));
    assert_eq!(client.get(Key::Log(2), None).await, Ok(None));
    assert_eq!(client.get(Key::Log(2), Some(0..8)).await, Ok(None));
    let beyond = client.get(Key::Log(1), Some(10..12)).await;
    assert!(matches!(beyond, Err(Fault::Unreadable(_))), "{beyond:?}");
    let (hash, empty) = (Hash::of(b""), Bytes::new());
    assert_eq!(client.put_new(Key::Blob(hash, 7), empty.clone()).await, Ok(PutOutcome::Created));
    assert_eq!(client.get(Key::Blob(hash, 7), None).await, Ok(Some(empty)));
    for number in [3, 70] {
        let body = Bytes::from_static(b"checkpoint");
        client.put_new(Key::Checkpoint(number), body).await.unwrap();
    }
    assert_eq!(client.checkpoints().await, Ok(vec![3, 70]));
    let requests = bucket.requests();
    let counts = ["s3_put", "s3_get", "s3_list", "s3_delete", "s3_bytes_sent"];
    assert_eq!(counts.map(|name| requests[name]), [5, 6, 1, 0, 35]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_log_tells_nothing_without_its_key() {
    let mut world = World::new().await;
    let plain = world.client();
    world.config.seal = Some(Secret([7; 32]));
    let sealed = world.client();
    let (hash, content) = (Hash::of(b"secret"), Bytes::from_static(b"secret"));
    let key = Key::Blob(hash, 0);
    assert_eq!(sealed.put_new(key, content.clone()).await, Ok(PutOutcome::Created));
    assert_eq!(sealed.put_new(key, content.clone()).await, Ok(PutOutcome::Exists));
    assert_eq!(sealed.get(key, None).await, Ok(Some(content.clone())));
    let part = sealed.get(key, Some(1..3)).await;
    assert_eq!(part, Ok(Some(Bytes::from_static(b"ec"))));
    assert!(!sealed.key(key).contains(&hash.to_string()));
    assert_eq!(plain.get(key, None).await, Ok(None), "its name is hidden");
    sealed.put_new(Key::Log(1), content.clone()).await.unwrap();
    world.config.seal = Some(Secret([8; 32]));
    for other in [world.client(), plain.clone()] {
        let read = other.get(Key::Log(1), None).await;
        assert!(matches!(read, Err(Fault::Unreadable(_))), "{read:?}");
    }
    plain.put_new(Key::Log(2), content).await.unwrap();
    let read = sealed.get(Key::Log(2), None).await;
    assert!(matches!(read, Err(Fault::Unreadable(_))), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_connection_are_retried_and_then_unknown() {
    let world = World::new().await;
    let (proxy, config) = world.behind_faults();
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    let body = || Bytes::from(vec![b'x'; 200]);
    let put = |number: u64| client.put_new(Key::Log(number), body());
    let of_puts = |fault: RequestFault| Rule::always(fault).of(&[Operation::Put]);
    let refuse = |status: u16, code: &str| RequestFault::Refuse { status, code: code.to_owned(), retry_after: None };
    let slow_down = of_puts(refuse(503, "SlowDown"));
    proxy.set(vec![slow_down.clone().when(RuleFrequency::First(2))]);
    assert_eq!(put(1).await, Ok(PutOutcome::Created));
    proxy.set(vec![slow_down]);
    assert!(matches!(put(2).await, Err(Fault::Unknown(_))));
    proxy.set(vec![of_puts(RequestFault::Reset).when(RuleFrequency::First(1))]);
    assert_eq!(put(2).await, Ok(PutOutcome::Created));
    // The request was done, and its answer lost.
    proxy.set(vec![of_puts(RequestFault::LoseAnswer).when(RuleFrequency::First(1))]);
    assert_eq!(put(3).await, Ok(PutOutcome::Exists));
    proxy.set(vec![of_puts(RequestFault::DamageRequest)]);
    let blob = Key::Blob(Hash::of(&body()), 0);
    assert!(matches!(put(4).await, Err(Fault::Unknown(_))), "another attempt may succeed");
    assert!(client.put_new(blob, body()).await.is_err());
    proxy.set(vec![of_puts(refuse(403, "AccessDenied"))]);
    assert!(matches!(put(4).await, Err(Fault::Refused(told)) if told.contains("access key")));
    proxy.set(vec![of_puts(refuse(404, "NoSuchBucket"))]);
    assert!(matches!(put(4).await, Err(Fault::Refused(_))));
    proxy.set(vec![of_puts(RequestFault::Hang)]);
    let seen = proxy.seen().len();
    let config = S3Config { timeout: Duration::from_secs(1), ..config };
    let impatient = Client::new(&Bucket::new(&config).unwrap(), &config);
    assert!(matches!(impatient.put_new(Key::Log(4), body()).await, Err(Fault::Unknown(_))));
    eventually("the request at the proxy", || proxy.seen().len() > seen);
    assert_eq!(proxy.seen().len(), seen + 1, "a timeout is not retried");
    proxy.clear();
    assert_eq!(client.get(Key::Log(4), None).await, Ok(None), "a damaged body is refused");
    assert_eq!(client.get(blob, None).await, Ok(None), "a damaged body is refused");
    assert_eq!(client.get(Key::Log(3), None).await, Ok(Some(body())));
    proxy.set(vec![Rule::always(RequestFault::ShortenBody).of(&[Operation::List])]);
    client.put_new(Key::Checkpoint(1), body()).await.unwrap();
    assert!(matches!(client.checkpoints().await, Err(Fault::Unknown(_))), "a cut listing");
    proxy.set(vec![Rule::always(RequestFault::ResetInBody).of(&[Operation::Get]).when(RuleFrequency::First(1))]);
    assert_eq!(client.get(Key::Log(3), None).await, Ok(Some(body())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_key_or_bucket_is_named() {
    let world = World::new().await;
    assert_eq!(check_access(&world.config).await, Ok(()));
    let changed = async |change: &dyn Fn(&mut S3Config)| {
        let mut config = world.config.clone();
        change(&mut config);
        check_access(&config).await.unwrap_err()
    };
    let error = changed(&|config| config.bucket = "nobody".to_owned()).await;
    assert!(error.to_string().contains("there is no bucket nobody"), "{error}");
    let error = changed(&|config| config.credentials = credentials(&world.access.access_key, "wrong")).await;
    assert!(error.to_string().contains("the access key from the test"), "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong"), "{error}");
    let error = changed(&|config| config.credentials = credentials("two words", "wrong")).await;
    assert!(error.to_string().contains("the access key from the test"), "{error}");
    let error = changed(&|config| config.endpoint = "http://127.0.0.1:1".to_owned()).await;
    assert!(error.to_string().contains("does not answer"), "{error}");
    let error = changed(&|config| config.endpoint = "http://nowhere.invalid".to_owned()).await;
    assert!(error.to_string().contains("does not answer"), "{error}");
    let error = changed(&|config| config.endpoint = "ftp://x".to_owned()).await;
    assert!(error.to_string().contains("is not an http or https address"), "{error}");
    let error = changed(&|config| config.path_style = false).await;
    assert!(error.to_string().contains("--virtual-host"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_can_be_part_of_the_host_name() {
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let access = ServerAccess::random(port).unwrap();
    let domain = format!("s3.localhost:{port}");
    let _server = Embedded::serve_virtual_hosts(listener, dir.path(), &access, &domain).unwrap();
    let mut config = S3Config { path_style: false, endpoint: format!("http://{domain}"), ..config(&access) };
    // The host of this endpoint is an IP address.
    servers::create_bucket(&access, servers::BUCKET).await.unwrap();
    assert_eq!(check_access(&config).await, Ok(()));
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    let body = Bytes::from_static(b"x");
    assert_eq!(client.put_new(Key::Log(1), body.clone()).await, Ok(PutOutcome::Created));
    assert_eq!(client.get(Key::Log(1), None).await, Ok(Some(body)));
    config.path_style = true;
    let error = check_access(&config).await.unwrap_err();
    assert!(error.to_string().contains("--virtual-host"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_whether_a_request_may_succeed_later() {
    let world = World::new().await;
    let (proxy, config) = world.behind_faults();
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    let refused = async |status: u16, code: &str| {
        let code = code.to_owned();
        let rule = Rule::always(RequestFault::Refuse { status, code, retry_after: None });
        proxy.set(vec![rule]);
        client.get(Key::Log(1), None).await.unwrap_err()
    };
    let transient = [
        (503, "SlowDown"),
        (500, "InternalError"),
        (429, "TooManyRequests"),
        (409, "ConditionalRequestConflict"),
        (400, "RequestTimeout"),
        (400, "BadDigest"),
        (507, "XMinioStorageFull"),
    ];
    for (status, code) in transient {
        let fault = refused(status, code).await;
        assert!(matches!(fault, Fault::Unknown(_)), "{fault:?}");
    }
    let final_ones = [
        (403, "AccessDenied", "access key"),
        (403, "RequestTimeTooSkewed", "clock"),
        (404, "NoSuchBucket", "create the bucket"),
        (301, "PermanentRedirect", "--region"),
        (501, "NotImplemented", "another S3 server"),
    ];
    for (status, code, fix) in final_ones {
        match refused(status, code).await {
            Fault::Refused(told) => assert!(told.contains(fix) && told.contains(code), "{told}"),
            fault => panic!("{fault:?}"),
        }
    }
}
