//! The client against a server that sends too much, too slowly, or elsewhere.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::client::check_plain_key;

/// Serves every connection with `answer`, after its request was read; the address.
fn serve(answer: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut head = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while head.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
                    line.clear();
                }
                answer(stream);
            });
        }
    });
    url
}

async fn get(url: &str) -> reqwest::Response {
    let client = build(client().no_proxy()).unwrap();
    send(client.get(url)).await.unwrap()
}

/// A limit of a mebibyte.
const LIMIT: BodyLimit = limits::ERROR.within(Duration::from_secs(120));

#[tokio::test]
async fn a_body_ends_at_its_limit_whatever_length_the_server_states() {
    for head in ["\r\n", "Content-Length: 35184372088832\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"] {
        let url = serve(move |mut stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}");
            let chunk = if head.starts_with("Transfer") {
                [&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n"].concat()
            } else {
                vec![b'x'; 4096]
            };
            while stream.write_all(&chunk).is_ok() {}
        });
        let read = read_body(get(&url).await, LIMIT).await;
        assert!(matches!(read, Err(BodyError::TooLong(_))), "{read:?}");
        let start = read_start(get(&url).await, LIMIT).await;
        assert_eq!(start.len() as u64, LIMIT.bytes);
    }
}

#[tokio::test]
async fn a_body_of_exactly_its_limit_is_whole() {
    let url = serve(|mut stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LIMIT.bytes);
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&vec![b'x'; LIMIT.bytes as usize]);
    });
    let body = read_body(get(&url).await, LIMIT).await.unwrap();
    assert_eq!(body.len() as u64, LIMIT.bytes);
    let shorter = LIMIT.at_most(LIMIT.bytes - 1);
    let read = read_body(get(&url).await, shorter).await;
    assert!(matches!(read, Err(BodyError::TooLong(_))), "{read:?}");
}

#[tokio::test]
async fn a_byte_now_and_then_does_not_keep_a_reader() {
    let url = serve(|mut stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let began = Instant::now();
    let soon = LIMIT.within(Duration::from_millis(200));
    let read = read_body(get(&url).await, soon).await.unwrap_err();
    assert!(read.is_late(), "{read}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_its_host() {
    let elsewhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let to = elsewhere.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let url = serve(move |mut stream| {
            let _ = write!(
                stream,
                "HTTP/1.1 {status} Go\r\nLocation: http://user:secret@{to}/path?token=secret\r\nContent-Length: 0\r\n\r\n"
            );
        });
        let redirected = RedirectError::of(&get(&url).await).unwrap();
        assert_eq!((redirected.status, &redirected.host), (status, &to.to_string()));
        assert!(!redirected.to_string().contains("secret"));
    }
    assert!(elsewhere.accept().is_err(), "a request was sent elsewhere");
}

#[tokio::test]
async fn an_answer_with_another_status_is_not_a_redirect() {
    for status in ["200 OK", "304 Not Modified", "404 Not Found"] {
        let url = serve(move |mut stream| {
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        });
        assert_eq!(RedirectError::of(&get(&url).await), None, "{status}");
    }
}

#[test]
fn a_loopback_host_is_known_by_its_address_or_name() {
    for host in
        ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost.", "db.localhost", "::ffff:127.0.0.1"]
    {
        assert!(is_loopback(host), "{host}");
    }
    for host in ["10.0.0.1", "localhost.example.org", "127.0.0.1.example.org", "0.0.0.0", "example", "::", ""] {
        assert!(!is_loopback(host), "{host}");
    }
}

#[test]
fn a_key_for_another_host_over_plain_http_is_refused() {
    let checked = |url: &str, permission: Option<&str>| {
        let url = reqwest::Url::parse(url).unwrap();
        check_plain_key(&url, "CTXBENCH_VIEW_TOKEN", permission.map(OsStr::new))
    };
    let refused = |url: &str| checked(url, None);
    for url in ["https://example.org/", "http://127.0.0.1:80/v1", "http://[::1]/", "http://localhost:11434/v1"] {
        assert_eq!(refused(url), Ok(()), "{url}");
    }
    for url in ["http://example.org/", "http://10.0.0.1:8080/v1", "http://127.0.0.1.example.org/"] {
        let reason = refused(url).unwrap_err();
        let says = ["CTXBENCH_VIEW_TOKEN", "in plain text", "use https", "CTXBENCH_PLAIN_HTTP=1"];
        assert!(says.iter().all(|words| reason.contains(words)), "{reason}");
        for permission in ["0", "", "yes"] {
            assert!(checked(url, Some(permission)).is_err(), "{permission:?}");
        }
        assert_eq!(checked(url, Some("1")), Ok(()));
    }
}

#[tokio::test]
async fn an_error_names_every_cause_and_no_part_of_the_address() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let client = build(client().no_proxy()).unwrap();
    let url = |host: &str| format!("http://alice:secret@{host}/secret?X-Amz-Signature=secret");
    let refused = send(client.get(url(&free.to_string()))).await.unwrap_err();
    assert!(refused.is_connect && !refused.is_late && refused.to_string().ends_with("(os error 111)"), "{refused}");
    let cut = serve(|mut stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    });
    let cut = cut.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let cut = send(client.get(url(&cut))).await.unwrap();
    let cut = read_body(cut, LIMIT).await.unwrap_err();
    assert!(cut.to_string().contains("end of file before message length reached"), "{cut}");
    let slow = serve(|stream| {
        std::thread::sleep(Duration::from_secs(60));
        drop(stream);
    });
    let slow = slow.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let slow = client.get(url(&slow)).timeout(Duration::from_millis(200));
    let slow = send(slow).await.unwrap_err();
    assert!(slow.is_late && slow.to_string().contains("timed out"), "{slow}");
    let nonsense = send(client.get(url("a b"))).await.unwrap_err();
    for error in [refused.to_string(), cut.to_string(), slow.to_string(), nonsense.to_string()] {
        assert!(!error.contains("secret") && !error.contains("alice") && !error.contains('\n'), "{error}");
    }
}
