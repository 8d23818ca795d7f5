//! Whether a session's results belong into files, by the nine rules of source 5.
//!
//! Rules about the meaning of a question are not decided: a trace has no words of the user.

use schemars::JsonSchema;
use serde::Serialize;
use tokens::{CallPurpose, Conversation, PartKind};

/// Source 5: "Query returns large results (>5,000 tokens)".
const LARGE: u64 = 5000;

/// Source 5: "Simple queries with small results (<2,000 tokens)".
const SMALL: u64 = 2000;

/// How many later calls send an intermediate result again, at least.
const LATER_CALLS: usize = 2;

/// Source 5: "multiple data gathering steps", at least.
const GATHERING_CALLS: usize = 2;

/// What a rule says, if it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAdvice {
    /// Keep results in files.
    UseFiles,
    /// Leave results in the context.
    DoWithoutFiles,
}

/// A rule of source 5, and what it finds in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuleAnswer {
    /// What the rule advises if it applies.
    pub says: RuleAdvice,
    /// The rule in the words of source 5.
    pub rule: &'static str,
    /// Whether the rule applies; null if neither counts of tokens nor the purposes of calls tell.
    pub applies: Option<bool>,
    /// What was counted, or why it is not known.
    pub because: String,
}

/// A tool's result.
struct SessionResult {
    tokens: u64,
    /// The number of the user's message before it.
    turn: usize,
    /// How many calls send it after the one that it enters with.
    later_calls: usize,
}

/// The results of a session, in their order.
fn results(session: &Conversation) -> Vec<SessionResult> {
    let (mut found, mut turn) = (Vec::new(), 0);
    for (at, step) in session.steps.iter().enumerate() {
        let after = &session.steps[at + 1..];
        let later_calls = after.iter().take_while(|step| !step.compacted).count();
        for part in &step.enters {
            match part.kind {
                PartKind::User => turn += 1,
                PartKind::Result => found.push(SessionResult { tokens: part.tokens, turn, later_calls }),
                _ => {}
            }
        }
    }
    found
}

/// How many of the turns that have results in `of` have a number of them for which `is` holds, and how many turns there are.
fn turns(of: &[&SessionResult], is: impl Fn(usize) -> bool) -> (usize, usize) {
    let turns = of.chunk_by(|a, b| a.turn == b.turn);
    let (mut matching, mut all) = (0, 0);
    for turn in turns {
        all += 1;
        matching += usize::from(is(turn.len()));
    }
    (matching, all)
}

/// Whether a rule applies, and why.
type Finding = (Option<bool>, String);

/// The purposes of all calls, in order; an error if the session has results of calls without one.
fn purposes(session: &Conversation, results: usize) -> Result<Vec<CallPurpose>, String> {
    let purposes: Vec<CallPurpose> = session.steps.iter().flat_map(|step| step.purposes.iter().copied()).collect();
    if purposes.is_empty() && results > 0 {
        Err("the session does not say which tools it called".to_owned())
    } else {
        Ok(purposes)
    }
}

/// Whether calls gather data after a plan was written.
fn gathers_by_plan(purposes: &[CallPurpose]) -> Finding {
    let Some(planned) = purposes.iter().position(|it| *it == CallPurpose::Plan) else {
        return (Some(false), format!("none of {} calls writes a plan", purposes.len()));
    };
    let of = |purpose| purposes[planned..].iter().filter(|it| **it == purpose).count();
    let (gathering, unknown) = (of(CallPurpose::Gathering), of(CallPurpose::Unknown));
    let because = format!("after a plan, {gathering} calls read, search, query or fetch");
    match gathering >= GATHERING_CALLS {
        false if unknown > 0 => (None, format!("{because}; of {unknown} more, the session does not tell")),
        applies => (Some(applies), because),
    }
}

/// Whether calls check which data exist, and do nothing else.
fn only_lists(purposes: &[CallPurpose]) -> Finding {
    let of = |purpose| purposes.iter().filter(|it| **it == purpose).count();
    let (names, unknown) = (of(CallPurpose::Names), of(CallPurpose::Unknown));
    let others = of(CallPurpose::Gathering) + of(CallPurpose::Change);
    let because = format!("{names} calls list names or attributes; {others} read or change data");
    if others == 0 && unknown > 0 {
        (None, format!("{because}; of {unknown} more, the session does not tell"))
    } else {
        (Some(names > 0 && others == 0), because)
    }
}

/// What each of the nine rules finds, in the order of source 5.
pub fn rules(session: &Conversation) -> [RuleAnswer; 9] {
    let results = results(session);
    let all: Vec<&SessionResult> = results.iter().collect();
    let number = all.len();
    let large: Vec<&SessionResult> = results.iter().filter(|it| it.tokens > LARGE).collect();
    let largest = results.iter().map(|it| it.tokens).max().unwrap_or(0);
    let (several, _) = turns(&large, |large| large > 1);
    let sent_again: Vec<&&SessionResult> = large.iter().filter(|it| it.later_calls >= LATER_CALLS).collect();
    let again: u64 = sent_again.iter().map(|it| it.tokens * it.later_calls as u64).sum();
    let not_small = results.iter().filter(|it| it.tokens >= SMALL).count();
    let (single, turns) = turns(&all, |results| results == 1);
    let answer = |says, rule, applies, because: String| RuleAnswer { says, rule, applies, because };
    let (files, without) = (RuleAdvice::UseFiles, RuleAdvice::DoWithoutFiles);
    let in_words =
        |what: &str| format!("only the words of a question say that it {what}, and a trace does not keep them");
    let purposes = purposes(session, number);
    let of_calls = |finding: fn(&[CallPurpose]) -> Finding| match &purposes {
        Ok(purposes) => finding(purposes),
        Err(reason) => (None, reason.clone()),
    };
    let (has_plan, plan) = of_calls(gathers_by_plan);
    let (has_schema, schema) = of_calls(only_lists);
    [
        answer(
            files,
            "query returns large results (>5,000 tokens)",
            Some(!large.is_empty()),
            format!("{} of {number} results are large; the largest has {largest} tokens", large.len()),
        ),
        answer(
            files,
            "multiple expensive queries in one workflow",
            Some(several > 0),
            format!("several large results after one message of the user: {several} times"),
        ),
        answer(files, "comparison/evolution queries", None, in_words("compares")),
        answer(
            files,
            "multi-step analysis where intermediate results are needed later",
            Some(!sent_again.is_empty()),
            format!(
                "{} large results are sent again by {LATER_CALLS} or more later calls, together {again} tokens",
                sent_again.len()
            ),
        ),
        answer(files, "TODO planning with multiple data gathering steps", has_plan, plan),
        answer(
            without,
            "simple queries with small results (<2,000 tokens)",
            Some(not_small == 0),
            format!("{not_small} of {number} results have {SMALL} tokens or more"),
        ),
        answer(
            without,
            "single query that directly answers",
            Some(single == turns),
            format!("one result after a message of the user: {single} of {turns} times"),
        ),
        answer(without, "lookup queries", None, in_words("is about one thing")),
        answer(without, "schema queries", has_schema, schema),
    ]
}

/// Whether results belong into files: by the first rule, which the others refine. A small result costs more in a file.
pub fn wants_files(rules: &[RuleAnswer; 9]) -> bool {
    rules[0].applies == Some(true)
}

#[cfg(test)]
mod tests {
    use tokens::{Part, Step};

    use super::*;

    /// A session of turns, each with the tokens of the results that its calls bring.
    fn session(turns: &[&[u64]]) -> Conversation {
        let part = Part::new;
        let mut steps = Vec::new();
        for results in turns {
            let user = vec![part(PartKind::User, 10)];
            let calls = results.iter().map(|tokens| vec![part(PartKind::Result, *tokens)]);
            steps.extend(std::iter::once(user).chain(calls).map(|enters| Step {
                enters,
                emits: vec![part(PartKind::Text, 5)],
                ..Step::default()
            }));
        }
        Conversation { steps, ..Conversation::default() }
    }

    /// The session with one call of each of these purposes.
    fn calling(purposes: &[CallPurpose]) -> Conversation {
        let mut session = session(&[&vec![1; purposes.len()][..]]);
        for (step, purpose) in session.steps.iter_mut().zip(purposes) {
            step.purposes = vec![*purpose];
        }
        session
    }

    #[test]
    fn a_plan_and_several_calls_that_gather_data_after_it_are_found() {
        use CallPurpose::{Change, Gathering, Message, Names, Plan, Unknown};
        for (calls, expected) in [
            (&[Plan, Gathering, Change, Gathering][..], Some(true)),
            (&[Plan, Gathering, Gathering, Unknown], Some(true)),
            // One step, listings, and no plan, or one that comes too late.
            (&[Plan, Gathering, Names, Message], Some(false)),
            (&[Gathering, Gathering, Unknown], Some(false)),
            (&[Gathering, Plan, Gathering], Some(false)),
            (&[Plan, Gathering, Unknown], None),
        ] {
            assert_eq!(rules(&calling(calls))[4].applies, expected, "{calls:?}");
        }
        let said = &rules(&session(&[&[1]]))[4];
        assert_eq!((said.applies, &*said.because), (None, "the session does not say which tools it called"));
    }

    #[test]
    fn calls_that_list_names_alone_are_schema_queries() {
        use CallPurpose::{Change, Gathering, Message, Names, Unknown};
        for (calls, expected) in [
            (&[Names, Message, Names][..], Some(true)),
            (&[Names, Gathering], Some(false)),
            (&[Names, Change, Unknown], Some(false)),
            (&[Message], Some(false)),
            (&[], Some(false)),
            (&[Names, Unknown], None),
        ] {
            assert_eq!(rules(&calling(calls))[8].applies, expected, "{calls:?}");
        }
    }

    fn applying(session: &Conversation) -> [Option<bool>; 9] {
        rules(session).map(|rule| rule.applies)
    }

    #[test]
    fn each_rule_that_counts_can_decide_is_met_and_missed() {
        const YES: Option<bool> = Some(true);
        const NO: Option<bool> = Some(false);
        for (turns, expected) in [
            // Small results, one a question.
            (&[&[100][..], &[1999]][..], [NO, NO, None, NO, None, YES, YES, None, None]),
            // Neither small nor large.
            (&[&[2000, 5000]], [NO, NO, None, NO, None, NO, NO, None, None]),
            // A large one at the end of the session.
            (&[&[5001]], [YES, NO, None, NO, None, NO, YES, None, None]),
            // Two in different turns: the first is sent again.
            (&[&[6000], &[6000]], [YES, NO, None, YES, None, NO, YES, None, None]),
            // Two in one turn.
            (&[&[6000, 6000, 1]], [YES, YES, None, YES, None, NO, NO, None, None]),
            // No tool at all.
            (&[&[]], [NO, NO, None, NO, NO, YES, YES, None, NO]),
        ] {
            assert_eq!(applying(&session(turns)), expected, "{turns:?}");
        }
    }

    #[test]
    fn a_result_before_a_compaction_is_not_sent_after_it() {
        let mut compacted = session(&[&[6000, 1, 1]]);
        assert_eq!(rules(&compacted)[3].applies, Some(true));
        let said = &rules(&compacted)[3].because;
        assert!(said.contains("12000 tokens"), "{said}");
        compacted.steps[3].compacted = true;
        assert_eq!(rules(&compacted)[3].applies, Some(false));
    }
}
