use object_store::PutMode;
use serde::Deserialize;

use super::*;

/// The bucket policy of the docs.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Policy {
    #[serde(rename = "Version")]
    _version: String,
    statement: Vec<Statement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Statement {
    #[serde(rename = "Sid")]
    _sid: String,
    effect: String,
    principal: String,
    action: Actions,
    resource: String,
    condition: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Actions {
    One(String),
    Many(Vec<String>),
}

/// Whether `text` is as a pattern with `*` says.
fn is_match(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.any(|at| is_match(rest, &text[at..]))
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_denies_what_the_policy_of_the_docs_denies() {
    let text = include_str!("../../../../docs/s3-policy.json");
    let policy: Policy = serde_json::from_str(text).unwrap();
    let mut named = Vec::new();
    for statement in &policy.statement {
        assert_eq!((&*statement.effect, &*statement.principal), ("Deny", "*"));
        let actions = match &statement.action {
            Actions::One(one) => std::slice::from_ref(one),
            Actions::Many(many) => many,
        };
        let keys = statement.resource.strip_prefix("arn:aws:s3:::BUCKET/").unwrap();
        named.extend(actions.iter().map(|action| (&**action, keys)));
        // The embedded server has one access key, which is not that of garbage collection.
        let exempt = if actions.iter().any(|action| action == "s3:PutObject") {
            statement.condition["Null"].get("s3:if-none-match")
        } else {
            statement.condition["ArnNotEquals"].get("aws:PrincipalArn")
        };
        assert!(exempt.is_some(), "{:?}", statement.condition);
    }
    let logs = "*/.ctx/*";
    let expected = ["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"];
    assert_eq!(named, expected.map(|action| (action, logs)));

    let world = World::new().await;
    let tool = world.tool();
    let is_denied = |outcome: &object_store::Result<()>| {
        // A deletion is a batch of one: its error has the code in its text alone.
        let error = outcome.as_ref().err();
        error.is_some_and(|error| format!("{error:?}").contains("AccessDenied"))
    };
    for key in [
        "team/agents/alice/.ctx/log/00000000000000000001",
        "team/agents/alice/.ctx/new",
        "agents/alice/notes/.ctx/x",
        "agents/alice/notes.md",
        "agents/alice/.ctx",
        "agents/alice/a.ctx/x",
        ".ctx/x",
    ] {
        let path = Path::parse(key).unwrap();
        let create = PutOptions::from(PutMode::Create);
        let created = tool.put_opts(&path, "1".into(), create).await.map(drop);
        assert!(created.is_ok(), "{key}: {created:?}");
        let overwritten = tool.put(&path, "2".into()).await.map(drop);
        let deleted = tool.delete(&path).await;
        for (action, outcome) in [("s3:PutObject", overwritten), ("s3:DeleteObject", deleted)] {
            let mut keys = named.iter().filter(|(denied, _)| *denied == action);
            let denies = keys.any(|(_, pattern)| is_match(pattern, key));
            assert_eq!(is_denied(&outcome), denies, "{action} of {key}: {outcome:?}");
            assert!(denies || outcome.is_ok(), "{action} of {key}: {outcome:?}");
        }
    }
}
