//! The OpenAI client against a server that answers, fails, and hangs.

#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use models::{
    ApiKey, Behaviour, Cancel, FakeServer, Finish, Message, Model, ModelError, OpenAi, OpenAiConfig, Origin, Reply,
    Request, Role, Schema,
};

const KEY: &str = "sk-this-must-never-be-seen";

fn client(server: &FakeServer, timeout: Duration) -> OpenAi {
    let mut config = OpenAiConfig::new(&server.base_url(), "simulated", timeout);
    config.key = Some(ApiKey::new(KEY));
    OpenAi::new(config).unwrap()
}

fn request() -> Request {
    Request {
        model: "simulated".to_owned(),
        messages: vec![Message::new(Role::User, "What is in\na file?")],
        max_tokens: 100,
        ..Request::default()
    }
}

fn ask(script: Vec<Behaviour>) -> (Result<Reply, ModelError>, usize) {
    let server = FakeServer::start(script).unwrap();
    let client = client(&server, Duration::from_secs(60));
    let answered = client.complete(&request(), &Cancel::default());
    (answered, server.calls())
}

#[test]
fn answers_come_with_usage_and_are_labelled_simulated() {
    let server = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let client = client(&server, Duration::from_secs(60));
    client.check().unwrap();
    let reply = client.complete(&request(), &Cancel::default()).unwrap();
    assert_eq!(reply.text, "a file?\n");
    assert_eq!(reply.origin, Origin::Simulated);
    assert_eq!((reply.usage.prompt, reply.usage.output), (5, 2));
    assert!(!reply.usage.is_estimated && reply.timing.first_byte <= reply.timing.total);
    let schema = serde_json::json!({"type": "object", "properties": {"content": {"type": "string"}}});
    let mut structured = request();
    structured.schema = Some(Schema { name: "file", schema });
    let reply = client.complete(&structured, &Cancel::default()).unwrap();
    assert_eq!(reply.text, "{\"content\":\"a file?\\n\"}");
    let sent = &server.requests()[1];
    assert_eq!(sent["response_format"]["json_schema"]["strict"], true);
    assert!(server.headers().iter().all(|head| head.contains(KEY)), "the server gets the key");
}

#[test]
fn a_temporary_failure_is_retried_after_the_time_in_retry_after() {
    let (reply, calls) =
        ask(vec![Behaviour::Status(500, "oops".to_owned(), None), Behaviour::BreakOff, Behaviour::Answer]);
    assert_eq!((reply.unwrap().timing.attempts, calls), (3, 3));

    let started = Instant::now();
    let (reply, calls) =
        ask(vec![Behaviour::Status(429, "slow down".to_owned(), Some("1".to_owned())), Behaviour::Answer]);
    assert!(reply.is_ok() && calls == 2);
    assert!(started.elapsed() >= Duration::from_secs(1));

    let later = Some("3600".to_owned());
    let (reply, calls) = ask(vec![Behaviour::Status(429, "slow down".to_owned(), later)]);
    let error = reply.unwrap_err().to_string();
    assert!(calls == 1 && error.contains("3600 s"), "{error}");
    assert!(error.contains("(429): slow down, and"), "{error}");

    // Pauses outside the range of `Instant` and of `Duration`.
    for astronomical in ["18446744073709551615", "1e300", "-1"] {
        let (reply, calls) = ask(vec![
            Behaviour::Status(429, "never".to_owned(), Some(astronomical.to_owned())),
            Behaviour::Status(400, "asked again all the same".to_owned(), None),
        ]);
        let error = reply.unwrap_err();
        let is_kept_to = matches!(error, ModelError::RateLimited { .. }) && calls == 1;
        let is_no_pause = matches!(error, ModelError::Refused { .. }) && calls == 2;
        assert!(is_kept_to || is_no_pause, "{astronomical}: {error}");
    }
}

#[test]
fn parameters_that_a_model_refuses_are_left_out_from_then_on() {
    let server = FakeServer::start(vec![Behaviour::AnswerAsNewerModels]).unwrap();
    let mut config = OpenAiConfig::new(&server.base_url(), "simulated", Duration::from_secs(60));
    config.key = None;
    config.retries = 0;
    let client = OpenAi::new(config).unwrap();
    let first = client.complete(&request(), &Cancel::default()).unwrap();
    assert_eq!((first.timing.attempts, first.has_own_sampling), (3, true));
    let again = client.complete(&request(), &Cancel::default()).unwrap();
    assert_eq!((again.timing.attempts, again.has_own_sampling), (1, true));
    let sent = server.requests();
    for (name, expected) in [
        ("max_tokens", [true, false, false, false]),
        ("max_completion_tokens", [false, true, true, true]),
        ("temperature", [true, true, false, false]),
    ] {
        let is_sent = sent.iter().map(|body| body.get(name).is_some());
        assert!(is_sent.eq(expected), "{name}: {sent:?}");
    }
    assert_eq!(sent[3]["max_completion_tokens"], 100);

    // Another model at the same server may accept a parameter that this one refuses.
    server.behave(vec![Behaviour::Answer]);
    let mut other = request();
    other.model = "older".to_owned();
    let reply = client.complete(&other, &Cancel::default()).unwrap();
    assert!(!reply.has_own_sampling && server.requests()[4]["temperature"] == 0.0);

    // The client stops when a server refuses a parameter that the request omits.
    let refuses = "Unsupported parameter: 'max_tokens' is not supported with this model.";
    let (reply, calls) = ask(vec![Behaviour::Status(400, refuses.to_owned(), None)]);
    assert!(matches!(reply.unwrap_err(), ModelError::Refused { .. }) && calls == 2);
}

#[test]
fn limits_that_structured_outputs_refuse_are_left_out_from_then_on() {
    let refuses = "Invalid schema for response_format 'file': In context=('properties', 'content'), 'maxLength' is not permitted.";
    let server = FakeServer::start(vec![Behaviour::Status(400, refuses.to_owned(), None), Behaviour::Answer]).unwrap();
    let client = client(&server, Duration::from_secs(60));
    let content = serde_json::json!({"type": "string", "maxLength": 60});
    let schema = serde_json::json!({"type": "object", "properties": {"content": content}});
    let mut structured = request();
    structured.schema = Some(Schema { name: "file", schema });
    for _ in 0..2 {
        let reply = client.complete(&structured, &Cancel::default()).unwrap();
        assert_eq!(reply.text, "{\"content\":\"a file?\\n\"}");
    }
    let sent = server.requests();
    let limits = sent.iter().map(|body| body["response_format"].to_string().contains("maxLength"));
    assert!(limits.eq([true, false, false]), "{sent:?}");
    assert_eq!(sent[2]["response_format"]["json_schema"]["schema"]["properties"]["content"]["type"], "string");
}

#[test]
fn an_error_without_end_is_read_only_so_far() {
    let started = Instant::now();
    let (reply, _) = ask(vec![Behaviour::EndlessError(400)]);
    let error = reply.unwrap_err();
    assert!(matches!(error, ModelError::Refused { .. }), "{error}");
    assert!(error.to_string().len() < 1000, "{error}");
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_redirect_is_an_error_and_takes_neither_question_nor_key_elsewhere() {
    let elsewhere = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let to = elsewhere.base_url();
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{to}/chat/completions?secret");
        let server = FakeServer::start(vec![Behaviour::Redirect(status, location)]).unwrap();
        let client = client(&server, Duration::from_secs(60));
        let listed = client.check().unwrap_err();
        let answered = client.complete(&request(), &Cancel::default()).unwrap_err();
        for error in [listed, answered] {
            let host = to.trim_start_matches("http://").trim_end_matches("/v1");
            let text = error.to_string();
            assert!(matches!(error, ModelError::Redirected { .. }), "{text}");
            assert!(text.contains(host) && !text.contains("secret"), "{text}");
        }
        assert_eq!(server.calls(), 1, "it is not asked again");
    }
    assert!(elsewhere.headers().is_empty(), "{:?}", elsewhere.headers());
}

#[test]
fn an_answer_that_a_filter_ended_says_so() {
    let (reply, _) = ask(vec![Behaviour::Filtered("The beginning".to_owned())]);
    assert_eq!(reply.unwrap().finish, Finish::Filtered);
}

#[test]
fn a_deadline_that_comes_before_the_timeout_counts() {
    let server = FakeServer::start(vec![Behaviour::Hang]).unwrap();
    let patient = client(&server, Duration::from_secs(120));
    let started = Instant::now();
    let soon = Cancel::default().before(started + Duration::from_millis(200));
    let error = patient.complete(&request(), &soon).unwrap_err();
    assert!(matches!(error, ModelError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn attempts_that_broke_off_are_counted() {
    let (reply, _) = ask(vec![Behaviour::BreakOff, Behaviour::Answer]);
    assert_eq!(reply.unwrap().timing.broke_off, 1);
}

#[test]
fn a_permanent_failure_is_not_retried() {
    let (reply, calls) = ask(vec![Behaviour::Garbage]);
    assert!(matches!(reply.unwrap_err(), ModelError::Malformed { .. }) && calls == 1);
    let (reply, calls) = ask(vec![Behaviour::NotUtf8]);
    assert!(matches!(reply.unwrap_err(), ModelError::Malformed { .. }) && calls == 1);
    let long = "the context is too long";
    let (reply, calls) = ask(vec![Behaviour::Status(400, long.to_owned(), None)]);
    assert!(reply.unwrap_err().to_string().contains(long) && calls == 1);
    let (reply, calls) = ask(vec![Behaviour::Status(404, "no".to_owned(), None)]);
    assert!(matches!(reply.unwrap_err(), ModelError::NoSuchModel { .. }) && calls == 1);
    let (reply, calls) = ask(vec![Behaviour::BreakOff]);
    assert!(matches!(reply.unwrap_err(), ModelError::BrokeOff { .. }) && calls == 3);
}

#[test]
fn a_server_that_never_answers_is_given_up_and_a_cancelled_request_at_once() {
    let server = FakeServer::start(vec![Behaviour::Hang]).unwrap();
    let stuck = client(&server, Duration::from_millis(500));
    let started = Instant::now();
    let error = stuck.complete(&request(), &Cancel::default()).unwrap_err();
    assert!(matches!(error, ModelError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(50));

    let patient = client(&server, Duration::from_secs(120));
    let cancel = Cancel::default();
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
        });
        assert_eq!(patient.complete(&request(), &cancel).unwrap_err(), ModelError::Cancelled);
    });
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_key_is_in_no_error_even_if_the_server_echoes_it() {
    let echo = format!("Incorrect API key provided: {KEY}, or sk-thi***een");
    for status in [401, 403, 400, 429, 500] {
        let (reply, _) = ask(vec![Behaviour::Status(status, echo.clone(), None)]);
        let error = reply.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("***") && !shown.contains("sk-thi"), "{shown}");
    }
}

#[test]
fn a_server_or_model_that_is_not_there_is_named() {
    let error = |url: &str| {
        let mut config = OpenAiConfig::new(url, "gpt-9", Duration::from_secs(60));
        config.key = None;
        match OpenAi::new(config) {
            Ok(client) => client.check().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    assert!(error("http://127.0.0.1:1/v1").contains("127.0.0.1:1"));
    assert!(error("nonsense").contains("nonsense"));
    assert!(error("ftp://x/v1").contains("neither http nor https"));
    assert!(error("https://api.openai.com/v1").contains("OPENAI_API_KEY"));
    for with_secret in [
        "http://user:hidden@127.0.0.1:1/v1",
        "http://user:hidden@[bad/v1",
        "ftp://user:hidden@host/v1",
        "user:hidden@host",
        "http://127.0.0.1:1/v1?key=hidden",
    ] {
        let said = error(with_secret);
        assert!(said.contains("***") && !said.contains("hidden"), "{said}");
    }
    let server = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let unknown = error(&server.base_url());
    assert!(unknown.contains("gpt-9") && unknown.contains("simulated"), "{unknown}");
}
