//! Each fault, as a client behind the proxy and the server see it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener as StdListener;
use std::net::TcpStream as StdStream;
use std::time::Instant;

use super::*;

/// The answer of the test server.
const ANSWER: &str = "0123456789abcdef";

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A server that answers each request with [`ANSWER`] or a configured text, and records the requests'
/// bodies.
struct TinyServer {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<String>>,
    pause: Arc<Mutex<Duration>>,
}

impl TinyServer {
    fn start() -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tiny = Self {
            address: listener.local_addr().unwrap(),
            bodies: Arc::default(),
            answer: Arc::new(Mutex::new(ANSWER.to_owned())),
            pause: Arc::default(),
        };
        let (bodies, answer) = (Arc::clone(&tiny.bodies), Arc::clone(&tiny.answer));
        let pause = Arc::clone(&tiny.pause);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (bodies, answer) = (Arc::clone(&bodies), Arc::clone(&answer));
                let pause = Arc::clone(&pause);
                std::thread::spawn(move || {
                    let stream = stream.unwrap();
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Ok(Some((head, body))) = message(&mut reader) {
                        assert!(head.to_lowercase().contains("host: signed.example"), "{head}");
                        bodies.lock().push(body);
                        let answer = answer.lock().clone();
                        let pause = *pause.lock();
                        std::thread::sleep(pause);
                        let length = answer.len();
                        let said =
                            format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {length}\r\n\r\n{answer}");
                        // Some tests end the proxy before the answer.
                        let _ = (&stream).write_all(said.as_bytes());
                    }
                });
            }
        });
        tiny
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().clone()
    }
}

/// Head and body of the next message; `None` at the end of the stream.
fn message(reader: &mut impl BufRead) -> io::Result<Option<(String, String)>> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((head, String::from_utf8(body).unwrap())))
}

/// A proxy with one rule before a test server.
fn behind(rule: Rule) -> (TinyServer, FaultProxy) {
    let tiny = TinyServer::start();
    let proxy = FaultProxy::start(0, tiny.address).unwrap();
    proxy.set(vec![rule]);
    (tiny, proxy)
}

fn client(proxy: &FaultProxy) -> BufReader<StdStream> {
    let stream = StdStream::connect(proxy.address()).unwrap();
    let patience = Some(PATIENCE);
    stream.set_read_timeout(patience).unwrap();
    BufReader::new(stream)
}

fn send(client: &mut BufReader<StdStream>, line: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let said = format!("{line} HTTP/1.1\r\nHost: signed.example\r\nContent-Length: {length}\r\n\r\n{body}");
    client.get_mut().write_all(said.as_bytes())
}

fn exchange(client: &mut BufReader<StdStream>, line: &str, body: &str) -> io::Result<String> {
    send(client, line, body)?;
    let answer = message(client)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(format!("{}\n{}", answer.0, answer.1))
}

fn get(proxy: &FaultProxy) -> io::Result<String> {
    exchange(&mut client(proxy), "GET /b/k", "")
}

fn kind(result: io::Result<String>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn the_proxy_without_rules_forwards_everything() {
    let tiny = TinyServer::start();
    let proxy = FaultProxy::start(0, tiny.address).unwrap();
    let mut client = client(&proxy);
    for nth in 0..3 {
        let answer = exchange(&mut client, "PUT /b/k?x=1", &format!("body {nth}")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with(ANSWER), "{answer}");
    }
    assert_eq!(tiny.bodies(), ["body 0", "body 1", "body 2"]);
    let seen = SeenRequest {
        operation: Operation::Put,
        path: "/b/k".to_owned(),
        bytes: 6,
        answered: AnswerStatus::Status(200),
    };
    assert_eq!(proxy.seen(), [seen.clone(), seen.clone(), seen]);
}

#[test]
fn a_delay_takes_as_long_as_it_says() {
    let (_tiny, proxy) = behind(Rule::always(RequestFault::Delay { ms: 50.0 }));
    let mut client = client(&proxy);
    let begun = Instant::now();
    exchange(&mut client, "GET /b/k", "").unwrap();
    let took = begun.elapsed().as_millis();
    // No upper limit: that depends on the machine's load.
    assert!(took >= 50, "{took} ms");
    proxy.set(vec![Rule::always(RequestFault::Delay { ms: 0.5 })]);
    let mut times: Vec<Duration> = (0..51)
        .map(|_| {
            let begun = Instant::now();
            exchange(&mut client, "GET /b/k", "").unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[0] >= Duration::from_micros(500), "{:?}", times[0]);
    // Half a millisecond is not rounded up to the first delay.
    assert!(times[0] < Duration::from_millis(50), "{:?}", times[0]);
}

#[test]
fn a_hanging_request_ends_when_the_rules_change() {
    let (tiny, proxy) = behind(Rule::always(RequestFault::Hang));
    let mut client = client(&proxy);
    client.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let hung = exchange(&mut client, "GET /b/k", "");
    assert_eq!(kind(hung), io::ErrorKind::WouldBlock);
    eventually("the request", || proxy.fired() == [RuleCounts { met: 1, done: 1 }]);
    proxy.clear();
    client.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "the connection ends");
    assert!(tiny.bodies().is_empty(), "the server was never asked");
    assert!(get(&proxy).is_ok());
}

#[test]
fn the_proxy_forwards_a_held_request_late() {
    let (tiny, proxy) = behind(Rule::always(RequestFault::Hold));
    let mut client = client(&proxy);
    let is_held = || proxy.fired()[0].done == 1;
    send(&mut client, "PUT /b/k", "late").unwrap();
    eventually("the request", is_held);
    std::thread::sleep(Duration::from_millis(100));
    assert!(tiny.bodies().is_empty());
    proxy.clear();
    assert!(message(&mut client).unwrap().is_some());
    assert_eq!(tiny.bodies(), ["late"]);
    // The proxy also forwards a request whose client has disconnected.
    proxy.set(vec![Rule::always(RequestFault::Hold)]);
    send(&mut client, "PUT /b/k", "later").unwrap();
    eventually("the request", is_held);
    drop(client);
    std::thread::sleep(Duration::from_millis(100));
    proxy.clear();
    eventually("the request at the server", || tiny.bodies().len() == 2);
    assert_eq!(tiny.bodies(), ["late", "later"]);
}

#[test]
fn a_refusal_is_an_s3_error_and_the_server_is_not_asked() {
    let (tiny, proxy) =
        behind(Rule::always(RequestFault::Refuse { status: 503, code: "SlowDown".to_owned(), retry_after: Some(2) }));
    let answer = get(&proxy).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("<Code>SlowDown</Code>") && answer.contains("retry-after: 2"));
    assert!(tiny.bodies().is_empty());
    assert_eq!(proxy.seen()[0].answered, AnswerStatus::Not);
}

#[test]
fn the_proxy_resets_before_or_after_asking_the_server() {
    let (tiny, proxy) = behind(Rule::always(RequestFault::Reset));
    assert_eq!(kind(get(&proxy)), io::ErrorKind::ConnectionReset);
    assert!(tiny.bodies().is_empty());
    proxy.set(vec![Rule::always(RequestFault::LoseAnswer)]);
    let lost = exchange(&mut client(&proxy), "PUT /b/k", "done");
    assert_eq!(kind(lost), io::ErrorKind::ConnectionReset);
    assert_eq!(tiny.bodies(), ["done"], "the server has done it");
    assert_eq!(proxy.seen()[1].answered, AnswerStatus::Status(200));
}

/// Everything that the client receives, and how the stream ends.
fn rest(proxy: &FaultProxy) -> (String, io::Result<()>) {
    let mut client = client(proxy);
    send(&mut client, "GET /b/k", "").unwrap();
    let mut bytes = Vec::new();
    let ended = client.read_to_end(&mut bytes).map(|_| ());
    (String::from_utf8(bytes).unwrap(), ended)
}

#[test]
fn the_proxy_ends_a_body_by_a_reset_a_close_or_a_shorter_length() {
    let (_tiny, proxy) = behind(Rule::always(RequestFault::ResetInBody));
    let check = |said: &str, length: usize| {
        let length = format!("content-length: {length}\r\n");
        assert!(said.to_lowercase().contains(&length), "{said}");
        assert!(said.ends_with("\n01234567"), "{said}");
    };
    let (said, ended) = rest(&proxy);
    check(&said, 16);
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    proxy.set(vec![Rule::always(RequestFault::CutBody)]);
    let (said, ended) = rest(&proxy);
    check(&said, 16);
    assert!(ended.is_ok(), "{ended:?}");
    proxy.set(vec![Rule::always(RequestFault::ShortenBody)]);
    check(&get(&proxy).unwrap(), 8);
}

#[test]
fn the_proxy_damages_bytes_and_keeps_the_length() {
    let (tiny, proxy) = behind(Rule::always(RequestFault::DamageBody));
    let answer = get(&proxy).unwrap();
    // `8` xor 1.
    assert!(answer.ends_with("\n0123456799abcdef"), "{answer}");
    proxy.set(vec![Rule::always(RequestFault::DamageRequest)]);
    exchange(&mut client(&proxy), "PUT /b/k", "12345678").unwrap();
    let body = tiny.bodies().pop().unwrap();
    assert!(body.len() == 8 && body != "12345678", "{body}");
}

#[test]
fn the_proxy_repeats_an_earlier_listing() {
    let tiny = TinyServer::start();
    let proxy = FaultProxy::start(0, tiny.address).unwrap();
    let mut client = client(&proxy);
    let mut list = |signed: &str, answer: &str| {
        answer.clone_into(&mut tiny.answer.lock());
        let line = format!("GET /b?list-type=2&prefix=a&X-Amz-Date={signed}");
        exchange(&mut client, &line, "").unwrap()
    };
    assert!(list("1", "one").ends_with("\none"));
    proxy.set(vec![Rule::always(RequestFault::StaleList)]);
    assert!(list("2", "two").ends_with("\none"));
    assert!(list("3", "three").ends_with("\none"));
    proxy.clear();
    assert!(list("4", "four").ends_with("\nfour"));
}

#[test]
fn a_partition_resets_and_refuses_connections_until_it_ends() {
    let tiny = TinyServer::start();
    let proxy = FaultProxy::start(0, tiny.address).unwrap();
    let mut idle = client(&proxy);
    exchange(&mut idle, "GET /b/k", "").unwrap();
    for _ in 0..3 {
        proxy.partition(true).unwrap();
        let refused = StdStream::connect(proxy.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        proxy.partition(false).unwrap();
        assert!(get(&proxy).is_ok());
    }
    let reset = idle.read(&mut [0]).unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    // A request in flight at the partition may or may not be performed.
    *tiny.pause.lock() = PATIENCE;
    let mut cut = client(&proxy);
    send(&mut cut, "PUT /b/k", "who knows").unwrap();
    eventually("the request at the server", || tiny.bodies().iter().any(|body| body == "who knows"));
    proxy.partition(true).unwrap();
    let last = proxy.seen().pop().unwrap();
    assert_eq!(last.operation, Operation::Put);
    assert_eq!(last.answered, AnswerStatus::Unknown);
}
