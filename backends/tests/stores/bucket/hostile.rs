//! A server that sends too much, too slowly, without end, or elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use s3::objects::{Floor, Record};

use super::*;

/// Answers each request with `answer`, which is given its first line and the number of requests before it.
fn hostile(
    answer: impl Fn(&mut TcpStream, &str, usize) -> std::io::Result<()> + Send + Sync + 'static,
) -> (S3Config, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let access = ServerAccess::random(listener.local_addr().unwrap().port()).unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let (counted, answer) = (Arc::clone(&requests), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (requests, answer) = (Arc::clone(&counted), Arc::clone(&answer));
            std::thread::spawn(move || serve(stream, &requests, &*answer));
        }
    });
    (S3Config { timeout: Duration::from_secs(60), ..config(&access) }, requests)
}

fn serve(
    mut stream: TcpStream,
    requests: &AtomicUsize,
    answer: &dyn Fn(&mut TcpStream, &str, usize) -> std::io::Result<()>,
) {
    let mut received = BufReader::new(stream.try_clone().unwrap());
    loop {
        let lines = received.by_ref().lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let Some(first) = head.first() else { return };
        let before = requests.fetch_add(1, Ordering::Relaxed);
        // A body that is left would be taken for the head of another request.
        let length =
            head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if std::io::copy(&mut received.by_ref().take(length.unwrap_or(0)), &mut std::io::sink()).is_err() {
            return;
        }
        if answer(&mut stream, first, before).is_err() {
            return;
        }
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn client(config: &S3Config) -> Client {
    Client::new(&Bucket::new(config).unwrap(), config)
}

fn keys() -> [Key; 4] {
    let blob = Key::Blob(Hash::of(b""), 1);
    [Key::Log(1), blob, Key::Checkpoint(1), Key::Floor(1)]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_length_that_a_server_states_is_believed() {
    let (config, _) = hostile(|stream, _, _| {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 45)?;
        loop {
            stream.write_all(&[0; 1 << 16])?;
        }
    });
    let client = client(&config);
    let begun = Instant::now();
    for key in keys() {
        for range in [None, Some(0..8)] {
            let read = client.get(key, range).await;
            assert!(matches!(read, Err(Fault::Unreadable(_))), "{read:?}");
        }
    }
    assert!(client.checkpoints().await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_end_is_read_to_the_limit_of_its_kind() {
    for status in ["200 OK", "403 Forbidden", "503 Slow Down"] {
        let (config, _) = hostile(move |stream, _, _| {
            write!(stream, "HTTP/1.1 {status}\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 1 << 16])?;
            }
        });
        let bucket = Bucket::new(&config).unwrap();
        let client = Client::new(&bucket, &config);
        for key in [keys()[1], keys()[3]] {
            assert!(client.get(key, None).await.is_err());
        }
        assert!(client.checkpoints().await.is_err());
        let put = client.put_new(Key::Log(1), Bytes::new()).await;
        assert!(put.is_err(), "{put:?}");
        let received = bucket.requests()["s3_bytes_received"];
        assert!(received < 2 << 20, "{received} bytes of {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_now_and_then_is_given_up() {
    for status in ["200 OK", "206 Partial Content", "403 Forbidden"] {
        let (config, requests) = hostile(move |stream, _, _| {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 1000\r\n\r\n")?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let client = client(&S3Config { timeout: Duration::from_millis(300), ..config });
        let begun = Instant::now();
        for key in keys() {
            assert!(client.get(key, None).await.is_err());
        }
        assert!(client.checkpoints().await.is_err());
        assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
        // The server may read a request after the client has given it up.
        let seen = || requests.load(Ordering::Relaxed);
        eventually("five requests", || seen() >= 5);
        assert_eq!(seen(), 5, "none is repeated");
    }
}

/// A page of a listing.
fn page(keys: &[String], token: &str) -> String {
    let object = |key: &String| {
        format!(
            "<Contents><Key>agents/alice/.ctx/checkpoint/{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
        )
    };
    let objects: String = keys.iter().map(object).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>ctxbench</Name><Prefix></Prefix><KeyCount>{}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>\
         {objects}<NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>",
        keys.len()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_does_not_progress_is_an_error() {
    let key = |number: usize| format!("{number:020}");
    type Pages = fn(usize) -> (Vec<usize>, usize);
    let cases: [(&str, usize, Pages); 4] = [
        ("continuation token is the same", 3, |page| (vec![page + 1], 7)),
        ("same keys", 3, |page| (vec![1, 2], page)),
        ("empty pages in a row", 110, |page| (vec![], page)),
        // Two tokens in turn.
        ("continuation token is the same", 4, |page| (vec![page + 1], page % 2)),
    ];
    for (reason, most, pages) in cases {
        let (config, requests) = hostile(move |stream, _, before| {
            let (numbers, token) = pages(before);
            let keys: Vec<String> = numbers.into_iter().map(key).collect();
            respond(stream, "200 OK", page(&keys, &token.to_string()).as_bytes())
        });
        let listed = client(&config).checkpoints().await;
        let told = match listed {
            Err(Fault::Unknown(told)) => told,
            other => panic!("{reason}: {other:?}"),
        };
        assert!(told.contains(reason), "{told}");
        assert!(requests.load(Ordering::Relaxed) <= most, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floors_without_end_are_damage() {
    let (config, requests) = hostile(|stream, _, _| {
        let floor = Floor { checkpoint: 7, time: 0 };
        respond(stream, "200 OK", &floor.encode(&[]).unwrap())
    });
    let checked = s3::check::check(&client(&config), None).await.unwrap();
    assert!(checked.problems[0].contains("no later checkpoint"), "{checked:?}");
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_an_error_that_names_its_host_and_the_key_stays() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let to = elsewhere.local_addr().unwrap();
    for status in [301, 302, 307, 308] {
        let (config, requests) = hostile(move |stream, _, _| {
            write!(stream, "HTTP/1.1 {status} Go\r\nLocation: http://{to}/secret\r\nContent-Length: 0\r\n\r\n")
        });
        let client = client(&config);
        let read = client.get(Key::Log(1), None).await.map(drop);
        let put = client.put_new(Key::Log(1), Bytes::from_static(b"x")).await;
        let listed = client.checkpoints().await.map(drop);
        for done in [read, put.map(drop), listed] {
            let Err(Fault::Refused(told)) = done else {
                panic!("{status}: {done:?}");
            };
            assert!(told.contains(&to.to_string()) && !told.contains("secret"), "{told}");
        }
        assert_eq!(requests.load(Ordering::Relaxed), 3);
        let told = check_access(&config).await.unwrap_err().to_string();
        assert!(told.contains(&to.to_string()) && !told.contains("secret"), "{told}");
    }
    assert!(elsewhere.accept().is_err(), "a request was sent elsewhere");
}
