//! Tests with a server that speaks the protocol, and uses it against the client.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fuse::store::StoreError;

use super::{Postgresql, Source, SourceDefinition, opener};

/// The time limit of a request, in milliseconds: a busy machine may answer late.
const LIMIT: u64 = 60_000;

/// That of a request that gets no answer.
const SOON: u64 = 5000;

/// How the error says that there is none.
const LATE: &str = "no answer in time";

const TEXT: u32 = 25;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 4) as u32;
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn columns(types: &[u32]) -> Vec<u8> {
    let column = |kind: &u32| [b"c\0".as_slice(), &[0; 6], &kind.to_be_bytes(), &[0; 2], &[255; 4], &[0; 2]].concat();
    let columns: Vec<u8> = types.iter().flat_map(column).collect();
    let count = types.len() as u16;
    message(b'T', &[&count.to_be_bytes()[..], &columns].concat())
}

/// What the server knows of a statement before it runs it: no parameters, and columns of these types.
fn described(types: &[u32]) -> Vec<u8> {
    [message(b't', &[0; 2]), columns(types)].concat()
}

fn row(values: &[&[u8]]) -> Vec<u8> {
    let value = |value: &&[u8]| [&(value.len() as u32).to_be_bytes()[..], value].concat();
    let body: Vec<u8> = values.iter().flat_map(value).collect();
    let count = values.len() as u16;
    message(b'D', &[&count.to_be_bytes()[..], &body].concat())
}

/// How a server answers a message of a client; `None`: as every server does.
type Answer = dyn Fn(u8, &[u8], &mut TcpStream) -> Option<io::Result<()>> + Send + Sync;

/// Writes the same until the client leaves.
fn forever(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    loop {
        stream.write_all(bytes)?;
    }
}

fn serve(mut stream: TcpStream, answer: &Answer) -> io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut startup)?;
    let greeting = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    match answer(0, &startup, &mut stream) {
        Some(answered) => answered?,
        None => stream.write_all(&greeting)?,
    }
    loop {
        let mut header = [0; 5];
        stream.read_exact(&mut header)?;
        let [kind, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body)?;
        if let Some(answered) = answer(kind, &body, &mut stream) {
            answered?;
            continue;
        }
        let usual = match kind {
            b'P' => message(b'1', &[]),
            b'D' => described(&[TEXT]),
            b'B' => message(b'2', &[]),
            b'E' => [row(&[b""]), message(b'C', b"SELECT 1\0")].concat(),
            b'C' => message(b'3', &[]),
            b'S' => message(b'Z', b"I"),
            b'Q' => [message(b'C', b"BEGIN\0"), message(b'Z', b"I")].concat(),
            _ => return Ok(()),
        };
        stream.write_all(&usual)?;
    }
}

/// The URL of a server on a port of its own.
fn started(answer: impl Fn(u8, &[u8], &mut TcpStream) -> Option<io::Result<()>> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer: Arc<Answer> = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Each answer goes out at once: a hundred small ones take no time.
            let _ = stream.set_nodelay(true);
            let answer = Arc::clone(&answer);
            // It fails when the client leaves.
            std::thread::spawn(move || serve(stream, &*answer));
        }
    });
    format!("postgresql://user@127.0.0.1:{port}/db")
}

fn open(place: &str, limit: u64) -> Result<Postgresql, String> {
    let text = format!("kind = 'postgresql'\ntimeout_ms = {limit}");
    let definition: SourceDefinition = inputs::parse_toml(Path::new("x.toml"), &text).unwrap();
    opener(place, &definition, false)?()
}

/// All rows of a query, and how it ended.
fn rows(source: &mut Postgresql) -> (Vec<Vec<super::Text>>, Result<(), StoreError>) {
    let mut rows = Vec::new();
    let ended = source.query("SELECT c FROM t", &[], &mut |row| {
        // As many as a caller may want.
        if rows.len() < 100_000 {
            rows.push(row);
        }
        ControlFlow::Continue(())
    });
    (rows, ended)
}

fn says(error: &str, part: &str) {
    assert!(error.contains(part), "{error:?} does not say {part:?}");
}

#[test]
fn an_honest_server_is_read() {
    let mut source = open(&started(|_, _, _| None), LIMIT).unwrap();
    for _ in 0..300 {
        let (rows, ended) = rows(&mut source);
        ended.unwrap();
        assert_eq!(rows, [[Some(Vec::new())]]);
    }
}

#[test]
fn a_server_whose_greeting_or_types_have_no_end_is_refused_in_time() {
    type Case = (&'static str, Box<Answer>);
    let next_type = AtomicU32::new(1 << 20);
    let another = move || next_type.fetch_add(1, Ordering::Relaxed);
    let is_about_types = |body: &[u8]| body.windows(7).any(|part| part == b"pg_type");
    let domains = AtomicU32::new(1 << 20);
    let (asks_types, asks_enum) = (AtomicU32::new(0), AtomicU32::new(0));
    // The columns of the client's question for a type.
    const TYPE: [u32; 7] = [19, 18, 26, 26, 26, 19, 26];
    let setting = message(b'S', &[&b"name"[..], &[0], &[b'v'; 60_000], &[0]].concat());
    let notice = message(b'N', &[&b"M"[..], &[b'v'; 60_000], &[0, 0]].concat());
    let greeting = message(b'R', &[0; 4]);
    let cases: Vec<Case> = vec![
        (
            "settings of more than",
            Box::new({
                let greeting = greeting.clone();
                move |kind, _, stream| {
                    let mut endless = || {
                        stream.write_all(&greeting)?;
                        forever(stream, &setting)
                    };
                    (kind == 0).then(&mut endless)
                }
            }),
        ),
        (
            "describes a statement by more than",
            Box::new(move |kind, _, stream| {
                let mut endless = || {
                    stream.write_all(&greeting)?;
                    forever(stream, &notice)
                };
                (kind == 0).then(&mut endless)
            }),
        ),
        // Each answer about a type has a column of another unknown type.
        (
            "take more than",
            Box::new(move |kind, _, stream| (kind == b'D').then(|| stream.write_all(&described(&[another()])))),
        ),
        // A domain over a domain over a domain …
        (
            "take more than",
            Box::new(move |kind, body, stream| match kind {
                b'P' => {
                    asks_types.store(u32::from(is_about_types(body)), Ordering::Relaxed);
                    None
                }
                b'D' if asks_types.load(Ordering::Relaxed) == 1 => {
                    Some(stream.write_all(&[message(b't', &[0, 1, 0, 0, 0, 26]), columns(&TYPE)].concat()))
                }
                b'D' => Some(stream.write_all(&described(&[1 << 19]))),
                b'E' => {
                    let base = domains.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                    let none = [0; 4];
                    let row = row(&[b"d", b"d", &none, &none, &base, b"s", &none]);
                    Some(stream.write_all(&[row, message(b'C', b"SELECT 1\0")].concat()))
                }
                _ => None,
            }),
        ),
        // An enumeration without an end.
        (
            "describes a statement by more than",
            Box::new(move |kind, body, stream| match kind {
                b'P' => {
                    let asked = if body.windows(7).any(|part| part == b"pg_enum") {
                        2
                    } else {
                        u32::from(is_about_types(body))
                    };
                    asks_enum.store(asked, Ordering::Relaxed);
                    None
                }
                b'D' => Some(stream.write_all(&match asks_enum.load(Ordering::Relaxed) {
                    0 => described(&[1 << 19]),
                    1 => [message(b't', &[0, 1, 0, 0, 0, 26]), columns(&TYPE)].concat(),
                    _ => [message(b't', &[0, 1, 0, 0, 0, 26]), columns(&[19])].concat(),
                })),
                b'E' if asks_enum.load(Ordering::Relaxed) == 2 => Some(forever(stream, &row(&[&[b'v'; 60]]))),
                b'E' => {
                    let none = [0; 4];
                    let row = row(&[b"e", b"e", &none, &none, &none, b"s", &none]);
                    Some(stream.write_all(&[row, message(b'C', b"SELECT 1\0")].concat()))
                }
                _ => None,
            }),
        ),
        // Other answers than were asked for.
        ("", Box::new(|kind, _, stream| (kind == b'D').then(|| stream.write_all(&described(&[23]))))),
        ("", Box::new(|kind, _, stream| (kind == b'D').then(|| stream.write_all(&described(&[]))))),
        ("", Box::new(|kind, _, stream| (kind == b'E').then(|| stream.write_all(&row(&[]))))),
        (
            "",
            Box::new(|kind, _, stream| {
                let bad = columns(&[TEXT]).into_iter();
                let bad = bad.map(|byte| if byte == b'c' { 255 } else { byte });
                let bad: Vec<u8> = message(b't', &[0; 2]).into_iter().chain(bad).collect();
                (kind == b'D').then(|| stream.write_all(&bad))
            }),
        ),
        ("", Box::new(|kind, _, stream| (kind == b'P').then(|| forever(stream, b"garbage")))),
        (LATE, Box::new(|kind, _, _| (kind == b'S').then_some(Ok(())))),
        (LATE, Box::new(|kind, _, _| (kind == 0).then_some(Ok(())))),
        (
            "2147483647 bytes",
            Box::new(|kind, _, stream| {
                let stated = [&[b'S'][..], &i32::MAX.to_be_bytes(), b"server_version"].concat();
                (kind == 0).then(|| stream.write_all(&[message(b'R', &[0; 4]), stated].concat()))
            }),
        ),
    ];
    for (number, (part, answer)) in cases.into_iter().enumerate() {
        let place = started(answer);
        let began = Instant::now();
        let limit = if part == LATE { SOON } else { LIMIT };
        let error = open(&place, limit).err().unwrap_or_else(|| panic!("case {number} is accepted"));
        says(&error, part);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(50), "case {number}: {took:?}");
    }
}

/// Runs a query on a server that misuses only the rows of it.
fn queried(
    limit: u64,
    rows_of: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> (Vec<Vec<super::Text>>, Result<(), StoreError>) {
    let is_query = AtomicU32::new(0);
    let place = started(move |kind, body, stream| match kind {
        b'P' => {
            let ours = body.windows(6).any(|part| part == b"FROM t");
            is_query.store(u32::from(ours), Ordering::Relaxed);
            None
        }
        b'E' if is_query.load(Ordering::Relaxed) == 1 => Some(rows_of(stream)),
        _ => None,
    });
    let mut source = open(&place, limit).unwrap();
    let began = Instant::now();
    let found = rows(&mut source);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(50), "{took:?}");
    found
}

#[test]
fn rows_without_an_end_end_with_the_time_limit() {
    let (rows, ended) = queried(SOON, |stream| forever(stream, &row(&[b"x"])));
    assert!(rows.len() > 1);
    says(&ended.unwrap_err().to_string(), LATE);
}

#[test]
fn a_row_that_is_too_long_or_cut_off_or_has_other_columns_is_an_error() {
    for length in [1_u32 << 30, i32::MAX as u32, u32::MAX] {
        let (rows, ended) = queried(LIMIT, move |stream| {
            stream.write_all(&row(&[b"first"]))?;
            stream.write_all(&[&b"D"[..], &length.to_be_bytes(), &[0, 1]].concat())?;
            forever(stream, &[b'x'; 4096])
        });
        // The client may see the length of the second row before it answers with the first.
        assert!(rows.len() <= 1);
        says(&ended.unwrap_err().to_string(), &format!("{length} bytes"));
    }
    let bad: [Vec<u8>; 4] = [
        row(&[b"a", b"b"]),
        row(&[]),
        // A value longer than its row, and more values than it has room for.
        message(b'D', &[0, 1, 0, 0, 0, 99, b'x']),
        message(b'D', &[0xff, 0xff]),
    ];
    for bad in bad {
        let (rows, ended) = queried(LIMIT, move |stream| stream.write_all(&[row(&[b"first"]), bad.clone()].concat()));
        assert_eq!(rows, [[Some(b"first".to_vec())]]);
        ended.unwrap_err();
    }
    let (rows, ended) = queried(LIMIT, |stream| {
        let whole = row(&[b"first"]);
        stream.write_all(&[&whole[..], &row(&[b"second"])[..9]].concat())?;
        Err(io::ErrorKind::ConnectionReset.into())
    });
    assert_eq!(rows.len(), 1);
    ended.unwrap_err();
    // Text that is not UTF-8 is a value as any other.
    let (rows, ended) =
        queried(LIMIT, |stream| stream.write_all(&[row(&[b"\xff\xfe"]), message(b'C', b"SELECT 1\0")].concat()));
    ended.unwrap();
    assert_eq!(rows, [[Some(b"\xff\xfe".to_vec())]]);
}
