//! The report's section on contexts and their cost.

use super::part::Part::{self, Chart, Folded, Heading, List, Table, Text};
use super::report::Report;
use super::stems;
use figures::context::{ContextCost, Delay, INLINE, MODELS, Reconciliation, WINDOW, WaitCost};
use figures::text::{columns, count};
use rundir::Basis;

pub(super) fn contexts(report: &Report<'_>, parts: &mut Vec<Part>) {
    let found = report.contexts;
    if found.costs.is_empty() {
        return;
    }
    parts.push(Heading(3, "What the context costs".to_owned()));
    parts.push(Text("The tokens of recorded and generated sessions are exact counts of their texts (`o200k`), except for what precedes a recorded session's first message, which is inferred. A file counts once when it is read. What a model writes counts as output, and as input of every later call.".to_owned()));
    let words = [
        "\"Partly stated\": the published session gives only numbers, and no text, for a part of itself.",
        "\"Simulated\": the session as it would have been under that policy, with calls that no model made. How much the policy reads back is an assumption.",
        "\"Enter once\": each token counts once, when it enters the context, the model's own output included.",
        "\"Sent in all\": the prompts of all calls together, which are billed in full without a cache.",
        "\"Uncached\": the part of them that a prompt cache of five minutes does not serve.",
    ];
    parts.push(List(words.map(str::to_owned).into()));
    parts.push(Chart(
        stems::TOKENS,
        "What a context costs over a session: the tokens in the prompt of each call, by context policy. Behind each name stands the session's price in dollars, on the model that it was recorded on, or else on the first model of the table of dollars. A line falls where content was cleared, stored as a file, or compacted.",
    ));
    parts.push(accounts(&found.costs));
    subagents(&found.costs, parts);
    parts.push(Folded("Dollars by model, with a prompt cache".to_owned(), vec![dollars(&found.costs)]));
    published(&found.costs, parts);
    worth(&found.costs, parts);
    residuals(report, parts);
    waiting(report, parts);
    parts.push(Folded(
        format!(
            "Prices on {} (USD for a million tokens), and what a model counts for an o200k token",
            report.run.plan.created.get(..10).unwrap_or_default()
        ),
        vec![List(found.prices.clone()), List(found.factors.clone())],
    ));
}

fn accounts(costs: &[ContextCost]) -> Part {
    let rows = costs.iter().map(|cost| {
        vec![
            cost.workload.clone(),
            cost.policy.clone(),
            basis(cost, costs),
            cost.calls.to_string(),
            count(cost.entering),
            count(cost.resent),
            count(cost.fresh),
            count(cost.output),
            count(cost.peak),
            match cost.full_at_call {
                Some(call) => format!("call {call}"),
                None => "never".to_owned(),
            },
            cost.compactions.to_string(),
        ]
    });
    let head = columns(&format!(
        "session | context policy | tokens are | calls | enter once | sent in all | uncached | \
         written | peak | {} o200k tokens full | compactions",
        count(WINDOW)
    ));
    Table(head, rows.collect())
}

/// The origin of a session's tokens; for a simulated policy, also the origin of its base.
fn basis(cost: &ContextCost, costs: &[ContextCost]) -> String {
    let name = cost.basis.name();
    let mut inline = costs.iter();
    let inline = inline.find(|inline| inline.workload == cost.workload && inline.policy == INLINE);
    match inline {
        Some(inline) if cost.basis == Basis::Simulated => {
            format!("{name}, from {}", inline.basis.name())
        }
        _ => name.to_owned(),
    }
}

/// Adds a note on subagents, which are in no account because they have their own contexts.
fn subagents(costs: &[ContextCost], parts: &mut Vec<Part>) {
    let with = costs.iter();
    let with = with.filter(|cost| cost.policy == INLINE && cost.subagent_calls > 0);
    let lines: Vec<String> = with
        .map(|cost| {
            format!("{}: {} calls in {} subagents not counted", cost.workload, cost.subagent_calls, cost.subagents)
        })
        .collect();
    if !lines.is_empty() {
        parts.push(List(lines));
    }
}

fn dollars(costs: &[ContextCost]) -> Part {
    let counted = costs.iter().filter(|cost| cost.basis != Basis::Published);
    let has_own = costs.iter().any(|cost| cost.recorded.is_some());
    let rows = counted.map(|cost| {
        let mut row = vec![cost.workload.clone(), cost.policy.clone()];
        row.extend(MODELS.iter().map(|model| match cost.dollars.get(*model) {
            Some(dollars) => format!("{dollars:.4}"),
            None => "–".to_owned(),
        }));
        row.extend(has_own.then(|| own_dollars(cost)));
        row
    });
    let mut head = columns("session | context policy");
    head.extend(MODELS.iter().map(|model| format!("USD, {model}")));
    head.extend(has_own.then(|| "USD, models of the recording".to_owned()));
    Table(head, rows.collect())
}

/// The dollars of a session on its own models, with their names.
fn own_dollars(cost: &ContextCost) -> String {
    let Some(own) = &cost.recorded else {
        return "–".to_owned();
    };
    let listed = |models: &[String]| {
        let named = models.iter().map(|model| match model.as_str() {
            "" => "a model without a name",
            model => model,
        });
        named.collect::<Vec<_>>().join(", ")
    };
    match own.dollars {
        Some(dollars) => format!("{dollars:.4} ({})", listed(&own.models)),
        None => format!("no price of {}", listed(&own.unpriced)),
    }
}

/// Selects a figure of an account.
type Figure = fn(&ContextCost) -> u64;

/// The saving against `before`, or the increase, in percent.
fn saved(before: f64, after: f64) -> String {
    if before == 0.0 {
        return "–".to_owned();
    }
    let share = (1.0 - after / before) * 100.0;
    if share.abs() < 0.05 {
        "the same".to_owned()
    } else if share > 0.0 {
        format!("{share:.1} % saved")
    } else {
        format!("{:.1} % more", -share)
    }
}

/// For workloads with published accounts: each published saving against our count.
fn published(costs: &[ContextCost], parts: &mut Vec<Part>) {
    let mut names: Vec<&str> =
        costs.iter().filter(|cost| cost.basis == Basis::Published).map(|cost| cost.workload.as_str()).collect();
    names.dedup();
    for name in names {
        let of_session: Vec<&ContextCost> = costs.iter().filter(|cost| cost.workload == name).collect();
        let theirs: Vec<&&ContextCost> = of_session.iter().filter(|cost| cost.basis == Basis::Published).collect();
        let ([before, after], Some(inline)) = (&theirs[..], of_session.iter().find(|cost| cost.policy == INLINE))
        else {
            continue;
        };
        let others: Vec<&&ContextCost> =
            of_session.iter().filter(|cost| cost.basis != Basis::Published && cost.policy != INLINE).collect();
        let mut head = columns("accounting | everything stays");
        head.extend(others.iter().map(|cost| cost.policy.clone()));
        let mut rows = Vec::new();
        let figures: [(&str, Figure); 5] = [
            ("enter once, counted", |cost| cost.entering),
            ("peak context", |cost| cost.peak),
            ("sent in all, no cache", |cost| cost.resent),
            ("uncached input", |cost| cost.fresh),
            ("written by the model", |cost| cost.output),
        ];
        for (title, figure) in figures {
            let mut row = vec![title.to_owned(), count(figure(inline))];
            row.extend(others.iter().map(|cost| {
                let share = saved(figure(inline) as f64, figure(cost) as f64);
                format!("{} ({share})", count(figure(cost)))
            }));
            rows.push(row);
        }
        for model in MODELS {
            let of = |cost: &ContextCost| cost.dollars.get(model).copied().unwrap_or(0.0);
            let mut row = vec![format!("USD, {model}"), format!("{:.4}", of(inline))];
            row.extend(others.iter().map(|cost| format!("{:.4} ({})", of(cost), saved(of(inline), of(cost)))));
            rows.push(row);
        }
        parts.push(Text(format!(
            "How much of the published saving of {name} remains. As published: {} tokens before, {} after, {}. That figure counts each token once, however often it is sent, and lets the model save a result without writing it. It also states the size of the same results as 50,000 tokens and as 50,000 bytes. The table has the same session with everything kept, and simulated under the policies, with {} tokens a result:",
            count(before.entering),
            count(after.entering),
            saved(before.entering as f64, after.entering as f64),
            count(inline.largest_entering)
        )));
        parts.push(Table(head, rows));
    }
}

/// The cheapest policy of each session.
fn worth(costs: &[ContextCost], parts: &mut Vec<Part>) {
    let mut lines = Vec::new();
    for inline in costs.iter().filter(|cost| cost.policy == INLINE) {
        let others = costs
            .iter()
            .filter(|cost| cost.workload == inline.workload && cost.policy != INLINE && cost.basis != Basis::Published);
        let dollars = |cost: &ContextCost| cost.paid().unwrap_or(f64::INFINITY);
        if dollars(inline) == 0.0 {
            lines.push(format!("{}: no policy saves anything, because the recording has no tokens", inline.workload));
            continue;
        }
        let Some(best) = others.min_by(|a, b| dollars(a).total_cmp(&dollars(b))) else {
            continue;
        };
        let saving = 1.0 - dollars(best) / dollars(inline);
        let peaks = format!("{} of peak context instead of {}", count(best.peak), count(inline.peak));
        lines.push(if saving.abs() < 0.0005 {
            format!(
                "{}: no policy is cheaper than keeping everything; {} changes nothing, because no result is large",
                inline.workload, best.policy
            )
        } else if saving > 0.0 {
            format!(
                "{}: {} is the cheapest, {:.1} % below keeping everything ({peaks})",
                inline.workload,
                best.policy,
                saving * 100.0
            )
        } else {
            format!(
                "{}: keeping everything is the cheapest; the next, {}, costs {:.1} % more ({peaks})",
                inline.workload,
                best.policy,
                -saving * 100.0
            )
        });
    }
    if lines.is_empty() {
        return;
    }
    parts.push(Text(format!(
        "When is a context file system worth its tokens? By dollars with a prompt cache, on the models that a session was recorded on if they have a price, else on {}; this does not show whether an agent that sees less still does its task:",
        MODELS[0]
    )));
    parts.push(List(lines));
}

fn residuals(report: &Report<'_>, parts: &mut Vec<Part>) {
    let found = &report.contexts.residuals;
    if found.is_empty() {
        return;
    }
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let rows = found.iter().map(|residual| {
        vec![
            residual.workload.clone(),
            residual.model.clone(),
            residual.calls.to_string(),
            format!("{:+.1} %", residual.median * 100.0),
            percent(residual.median_abs),
            percent(residual.worst_abs),
            residual.growth_median_abs.map_or("–".to_owned(), percent),
            format!("{} ({})", count(residual.fixed), residual.fixed_is),
        ]
    });
    let head = columns(
        "session | model | calls | median residual | median of its absolute value | largest | \
         median absolute value without the inferred system prompt | inferred system prompt",
    );
    parts.push(Text("How exact are these counts? The table calls them the ledger, and compares them with the usage that the API reported. The residual of a call is its counted prompt, divided by the reported one, minus 1. No recording contains the system prompt and the tool schemas: their size is inferred from the first call alone, which is therefore not compared.".to_owned()));
    parts.push(Table(head, rows.collect()));
    cache_residuals(found, parts);
    let compacted = found.iter().filter_map(|residual| {
        let (ours, theirs) = residual.before_compaction?;
        let share = (ours as f64 / theirs as f64 - 1.0) * 100.0;
        Some(format!(
            "{}: before its compaction the context has {} tokens in the ledger; the client recorded {} ({share:+.1} %)",
            residual.workload,
            count(ours),
            count(theirs)
        ))
    });
    let compacted: Vec<String> = compacted.collect();
    if !compacted.is_empty() {
        parts.push(List(compacted));
    }
}

fn cache_residuals(found: &[Reconciliation], parts: &mut Vec<Part>) {
    let with = found.iter().filter_map(|residual| Some((residual, residual.cache?)));
    let rows: Vec<Vec<String>> = with
        .map(|(residual, cache)| {
            let share = |(ours, theirs): (f64, f64)| format!("{:+.1} %", (ours / theirs - 1.0) * 100.0);
            let (ours, theirs) = cache.fresh;
            let dollars = residual.dollars.map_or(["–"; 3].map(str::to_owned), |(ours, theirs)| {
                [format!("{ours:.4}"), format!("{theirs:.4}"), share((ours, theirs))]
            });
            let mut row = vec![
                residual.workload.clone(),
                cache.calls.to_string(),
                count(ours),
                count(theirs),
                share((ours as f64, theirs as f64)),
                cache.expired.to_string(),
                cache.missed.to_string(),
                cache.expired_and_missed.to_string(),
            ];
            row.extend(dollars);
            row
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = columns(
        "session | calls | uncached: ledger | reported | residual | expired: ledger | \
         nothing read from the cache: reported | both | USD of prompts: ledger | reported | \
         residual",
    );
    parts.push(Text("The same for the prompt cache. The first call is left out, because it may hit a prefix that another session left in the cache. The counts are least exact for tokens that are billed in full. Dollars are those of the prompts, at the recorded model's prices, with a cache of five minutes.".to_owned()));
    parts.push(Table(head, rows));
}

fn waiting(report: &Report<'_>, parts: &mut Vec<Part>) {
    let delays = &report.contexts.delays;
    if delays.is_empty() {
        return;
    }
    let three = |figure: fn(&WaitCost) -> String, delay: &Delay| {
        let figures = [&delay.without, &delay.typical, &delay.worst].map(figure);
        figures.join(" / ")
    };
    let is_broken = |delay: &&Delay| delay.worst.expired > delay.without.expired;
    let rows = delays.iter().filter(is_broken).map(|delay| {
        vec![
            delay.workload.clone(),
            delay.arm.clone(),
            delay.state.clone(),
            format!("{} / {} ms", delay.typical.longest_ms, delay.worst.longest_ms),
            three(|waited| waited.expired.to_string(), delay),
            three(|waited| count(waited.fresh), delay),
            three(|waited| format!("{:.4}", waited.dollars), delay),
            delay.passes.to_string(),
            delay.too_slow.to_string(),
            delay.left_out.to_string(),
            if delay.untimed.is_empty() { "–".to_owned() } else { delay.untimed.join(", ") },
        ]
    });
    let head = columns(&format!(
        "session | arm | state | longest turn waits: mean / slowest calls | \
         prompts expired: no waiting / mean / slowest | uncached | USD, {} | passes | \
         of them with calls that timed out or hung | failed passes, left out | \
         calls of the session without a measured time, taken as 0",
        MODELS[0]
    ));
    let mut arms: Vec<&str> = delays.iter().map(|delay| delay.arm.as_str()).collect();
    arms.sort_unstable();
    arms.dedup();
    let verdict = match delays.iter().filter(is_broken).count() {
        0 => format!(
            "No arm of this run ({}) breaks a prompt's prefix, even if every call takes as long as the slowest of its kind.",
            arms.join(", ")
        ),
        broken => format!(
            "Slow files break prefixes in {broken} of {} rows, at least if every call takes as long as the slowest of its kind.",
            delays.len()
        ),
    };
    parts.push(Text(format!(
        "A prompt cache lives five minutes, and waiting for files uses up a part of that time. Each session was computed in three variants: files take no time; each call takes the mean of its kind on that arm; each call takes as long as the slowest one measured (twice the call timeout if calls timed out or hung, because they are aborted then). {verdict}"
    )));
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        let title = "Where slow files break a prefix".to_owned();
        parts.push(Folded(title, vec![Table(head, rows)]));
    }
}
