//! Keys of a role: from EC2's metadata service, a container's agent, and the security token service, all scripted here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use s3::credentials::Credentials;

use super::*;

/// A request to the scripted server.
#[derive(Clone, Debug)]
struct ReceivedRequest {
    /// Method and path.
    line: String,
    /// The headers, with names in lower case.
    headers: BTreeMap<String, String>,
    body: String,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Whether it is one to S3, and not for a key.
    fn is_signed(&self) -> bool {
        self.header("authorization").starts_with("AWS4")
    }
}

/// The answer to a request: status and body, and further headers.
type Answer = (&'static str, String);

/// A server on loopback that gives keys and is S3, too.
struct ScriptedServer {
    address: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ScriptedServer {
    /// Answers requests for keys as `keys` says, which gets the number of such requests before. S3 answers as `s3` says.
    fn start(
        keys: impl Fn(&ReceivedRequest, usize) -> Answer + Send + Sync + 'static,
        s3: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (log, keys, s3) = (Arc::clone(&received), Arc::new(keys), Arc::new(s3));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, keys, s3) = (Arc::clone(&log), Arc::clone(&keys), Arc::clone(&s3));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(request) = receive(&mut reader) {
                        let before = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.iter().filter(|it| !it.is_signed()).count() - 1
                        };
                        let answer = if request.is_signed() { s3(&request) } else { keys(&request, before) };
                        if send(&mut stream, &answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, received }
    }

    /// A memory on it, with the keys that the variables name.
    fn config(&self, variables: &[(&str, &str)]) -> S3Config {
        let find = |name: &str| {
            let value = variables.iter().find(|(key, _)| *key == name);
            value.map(|(_, value)| value.replace("SERVER", &self.address))
        };
        let access = ServerAccess::random(1).unwrap();
        S3Config {
            endpoint: self.address.clone(),
            credentials: Credentials::find(&self.address, "us-east-1", &find).unwrap(),
            ..config(&access)
        }
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }

    /// The ids of the keys that requests to S3 were signed with.
    fn ids(&self) -> Vec<String> {
        let signed = self.received().into_iter().filter(ReceivedRequest::is_signed);
        let id = |request: ReceivedRequest| {
            let (_, rest) = request.header("authorization").split_once("Credential=").unwrap();
            let (id, _) = rest.split_once('/').unwrap();
            assert_eq!(request.header("x-amz-security-token"), format!("token-of-{id}"));
            id.to_owned()
        };
        signed.map(id).collect()
    }

    /// How often a key was asked for.
    fn asked(&self, path: &str) -> usize {
        self.received().iter().filter(|it| !it.is_signed() && it.line.contains(path)).count()
    }
}

fn receive(reader: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let lines = reader.by_ref().lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let (first, headers) = head.split_first()?;
    let headers = headers.iter().filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = first.trim_end_matches(" HTTP/1.1").to_owned();
    Some(ReceivedRequest { line, headers, body: String::from_utf8(body).unwrap() })
}

fn send(stream: &mut TcpStream, (status, body): &Answer) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: impl Into<String>) -> Answer {
    ("200 OK", body.into())
}

/// A time from now, as AWS writes it.
fn end(seconds: i64) -> String {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The key `id`, whose secret is `hush`, as EC2 and containers give it.
fn json(id: &str, seconds: i64) -> Answer {
    ok(format!(
        r#"{{"Code": "Success", "AccessKeyId": "{id}", "SecretAccessKey": "hush", "Token": "token-of-{id}", "Expiration": "{}"}}"#,
        end(seconds)
    ))
}

/// An empty bucket.
fn empty(_: &ReceivedRequest) -> Answer {
    ok(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>ctxbench</Name><IsTruncated>false</IsTruncated><MaxKeys>1</MaxKeys><KeyCount>0</KeyCount></ListBucketResult>",
    )
}

const CONTAINER: &[(&str, &str)] = &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "SERVER/get-key")];

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_gives_the_key_of_its_role() {
    let server = ScriptedServer::start(
        |request, _| match &*request.line {
            "PUT /latest/api/token" if !request.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty() => ok("t0"),
            _ if request.header("x-aws-ec2-metadata-token") != "t0" => ("401 Unauthorized", String::new()),
            "GET /latest/meta-data/iam/security-credentials/" => ok("my-role\n"),
            "GET /latest/meta-data/iam/security-credentials/my-role" => json("A1", 3600),
            other => panic!("{other}"),
        },
        empty,
    );
    let config = server.config(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "SERVER")]);
    assert_eq!(check_access(&config).await, Ok(()));
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    assert_eq!(server.ids(), ["A1", "A1"]);
    assert_eq!(server.asked("/my-role"), 1, "one key for all requests of a mount");
    assert_eq!(config.credentials.source(), "the metadata service of the EC2 instance (127.0.0.1)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_shows_what_its_file_says_now() {
    let server = ScriptedServer::start(
        |request, _| match request.header("authorization") {
            "first" => json("C1", 5),
            "second" => json("C2", 3600),
            _ => ("403 Forbidden", String::new()),
        },
        empty,
    );
    let dir = tempfile::tempdir().unwrap();
    // As in a pod, where the file is a link.
    let (link, file) = (dir.path().join("token"), dir.path().join("data"));
    std::os::unix::fs::symlink("data", &link).unwrap();
    std::fs::write(&file, "first\n").unwrap();
    let link = link.display().to_string();
    let config = server.config(&[CONTAINER[0], ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &link)]);
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    std::fs::write(&file, "second\n").unwrap();
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    assert_eq!(server.ids(), ["C1", "C2"], "a key is not used after its end");

    let value = server.config(&[CONTAINER[0], ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "second")]);
    assert_eq!(check_access(&value).await, Ok(()));
    let refused = check_access(&server.config(CONTAINER)).await.unwrap_err().to_string();
    assert!(refused.contains("the container's host (127.0.0.1) gave no access key: asked for the key"), "{refused}");
    assert!(refused.contains("403") && !refused.contains("get-key"), "the path is as secret as a key: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_identity_becomes_a_role() {
    let server = ScriptedServer::start(
        |request, before| {
            match before {
            0 => ("503 Service Unavailable", String::new()),
            1 => {
                assert_eq!(request.line, "POST /");
                let parts = ["Action=AssumeRoleWithWebIdentity&", "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&", "WebIdentityToken=ey.J%2B"];
                for part in parts {
                    assert!(request.body.contains(part), "{part} in {}", request.body);
                }
                let credentials = format!("<AccessKeyId>W1</AccessKeyId><SecretAccessKey>hush</SecretAccessKey><SessionToken>token-of-W1</SessionToken><Expiration>{}</Expiration>", end(3600));
                ok(format!("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>{credentials}</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"))
            }
            _ => ("400 Bad Request", "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>ey.J+</Message></Error></ErrorResponse>".to_owned()),
        }
        },
        empty,
    );
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "ey.J+\n").unwrap();
    let token = token.display().to_string();
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &*token),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", "SERVER"),
    ];
    assert_eq!(check_access(&server.config(&variables)).await, Ok(()));
    assert_eq!(server.ids(), ["W1"]);
    let refused = check_access(&server.config(&variables)).await.unwrap_err().to_string();
    assert!(refused.contains("ExpiredTokenException") && refused.contains("trust policy"), "{refused}");
    assert!(!refused.contains("ey.J"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_key_outlives_a_service_that_fails_and_an_expired_one_does_not() {
    let server = ScriptedServer::start(
        |_, before| match before {
            // Due at once, because it ends within five minutes.
            0 => json("K1", 8),
            // Answers that are no keys.
            1 => ok(r#"{"AccessKeyId": "K9", "SecretAccessKey": "hush", "Token": "token-of-K9"}"#),
            _ => ok("not JSON, hush"),
        },
        empty,
    );
    let config = server.config(CONTAINER);
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    // A quarter of the time that the key has left.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(client.checkpoints().await, Ok(vec![]), "the key is still valid");
    }
    let asked = server.asked("/get-key");
    assert!(asked == 2 || (asked > 2 && begun.elapsed() > Duration::from_secs(1)), "one of four requests renews it");
    tokio::time::sleep(Duration::from_millis(5900)).await;
    let Err(Fault::Unknown(ended)) = client.checkpoints().await else { panic!("a key was used after its end") };
    assert!(ended.contains("its answer is not JSON") && !ended.contains("hush"), "{ended}");
    assert_eq!(server.ids(), ["K1", "K1", "K1", "K1"]);
    assert!(!format!("{config:?}").contains("hush"), "{config:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_server_calls_expired_is_renewed_at_once() {
    let server = ScriptedServer::start(
        |_, before| json(&format!("E{before}"), 3600),
        |request| {
            if request.header("authorization").contains("=E0/") {
                ("400 Bad Request", "<Error><Code>ExpiredToken</Code></Error>".to_owned())
            } else {
                empty(request)
            }
        },
    );
    let config = server.config(CONTAINER);
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    assert_eq!(server.ids(), ["E0", "E1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_redirects_or_sends_too_much_gives_no_key() {
    let redirecting = ScriptedServer::start(
        |_, _| ("307 Temporary Redirect\r\nLocation: http://elsewhere.invalid/", String::new()),
        empty,
    );
    let long = ScriptedServer::start(|_, _| ok("x".repeat(1 << 20)), empty);
    for (server, reason) in [(redirecting, "redirects (307) to elsewhere.invalid"), (long, "longer than 65536 bytes")] {
        let refused = check_access(&server.config(CONTAINER)).await.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn keys_are_not_asked_for_over_a_network_in_plain_text() {
    let find = |variables: &[(&str, &str)]| {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Credentials::find("x", "eu-west-1", &value).map(|found| found.source()).map_err(|error| error.to_string())
    };
    let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    for good in
        ["http://169.254.170.23/v1", "http://[fd00:ec2::23]/v1", "http://localhost:1/x", "https://keys.example.com/"]
    {
        assert!(find(&[(full, good)]).is_ok(), "{good}");
    }
    let sts =
        |address| [("AWS_WEB_IDENTITY_TOKEN_FILE", "t"), ("AWS_ROLE_ARN", "r"), ("AWS_ENDPOINT_URL_STS", address)];
    for bad in ["http://example.com/keys", "http://169.254.1.1/", "ftp://localhost/", "nonsense"] {
        assert!(find(&[(full, bad)]).is_err(), "{bad}");
        assert!(find(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", bad)]).is_err(), "{bad}");
        assert!(find(&sts(bad)).is_err(), "{bad}");
    }
    assert!(find(&sts("http://169.254.169.254/")).is_err(), "the metadata service is no token service");
    let relative = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@example.com/")];
    assert!(find(&relative).is_err(), "the host cannot be replaced");
    let default = find(&[("AWS_WEB_IDENTITY_TOKEN_FILE", "t"), ("AWS_ROLE_ARN", "r")]);
    assert_eq!(default.unwrap(), "the security token service (sts.eu-west-1.amazonaws.com)");
}
