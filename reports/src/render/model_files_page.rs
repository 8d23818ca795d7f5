//! The page on model-generated files: all results of `model-files.json`.

use rundir::{AskedStep, LengthResult, ModelFiles, ModelRead, MountedModel};
use stats::share_interval;

use super::markdown::markdown;
use super::part::Part::{self, Heading, Table, Text};
use figures::prices::{ModelPrices, Prices};
use figures::text::columns;

/// The origin of answers from a recording.
const RECORDED: &str = "recorded";

/// The hosted models whose prices apply to counted tokens, and the day of the prices.
const PRICED: ([&str; 2], &str) = (["gpt-5", "claude-haiku-5-5"], "2026-11-22");

/// The value of `of` for each of the [`PRICED`] models.
fn priced<T>(of: impl Fn(&ModelPrices) -> T) -> Result<Vec<T>, String> {
    let prices = Prices::built_in().map_err(|error| error.to_string())?;
    let models = PRICED.0.iter();
    models.map(|name| Ok(of(prices.of(name, PRICED.1)?))).collect()
}

/// The page as Markdown. `made` is a sentence that says when the figures were measured, and by which build.
pub(super) fn model_files_page(results: &ModelFiles, made: &str) -> Result<String, String> {
    let mut parts = vec![
        Heading(1, "Files that a language model makes up".to_owned()),
        Text(format!("{} by {}; answers: **{}**. {made}", results.model, results.engine, results.origin)),
    ];
    fidelity(&mut parts, results)?;
    latency(&mut parts, results);
    let origin = &results.origin;
    mounted(&mut parts, "llm-history", &results.history, origin)?;
    mounted(&mut parts, "llm-generate", &results.generate, origin)?;
    if let Some((ratio, low, high)) = results.memory_ratio {
        parts.push(Text(format!(
            "A generated file read again (open, read, close) takes ×{ratio:.2} [{low:.2}, {high:.2}] of what `memory` takes \
             (99 % interval; no model is asked)."
        )));
    }
    answer(&mut parts, results);
    Ok(markdown(&parts).trim_end().to_owned() + "\n")
}

fn share(part: usize, all: usize) -> String {
    match all {
        0 => "–".to_owned(),
        all => format!("{part} of {all}"),
    }
}

/// Byte-exact reads, and all of them.
fn exact<'a>(reads: impl IntoIterator<Item = &'a ModelRead>) -> (usize, usize) {
    let add = |(exact, all), read: &ModelRead| (exact + usize::from(read.is_exact), all + 1);
    reads.into_iter().fold((0, 0), add)
}

fn all_reads(results: &ModelFiles) -> impl Iterator<Item = &ModelRead> {
    results.fidelity.iter().flat_map(|found| &found.reads)
}

/// A label, and the reads that it stands for.
type ReadGroup<'a> = (&'a str, fn(&ModelRead) -> bool);

/// A table of the byte-exact reads that each label's condition picks.
fn by(results: &ModelFiles, what: &str, rows: [ReadGroup<'_>; 3]) -> Part {
    let rows = rows.map(|(label, wanted)| {
        let (exact, all) = exact(all_reads(results).filter(|read| wanted(read)));
        vec![label.to_owned(), share(exact, all)]
    });
    let head = columns(&format!("{what} | byte-exact reads"));
    Table(head, rows.into())
}

fn fidelity(parts: &mut Vec<Part>, results: &ModelFiles) -> Result<(), String> {
    let head = columns(
        "operations | byte-exact reads | of files changed since | \
         median edit distance of the rest | removed files said to be there | \
         names right / missing / invented | no usable answer | tokens in + out a question | \
         time an answer | US$ per 1,000 reads, computed",
    );
    let rows: Result<Vec<Vec<String>>, String> = results.fidelity.iter().map(|found| row(found, results)).collect();
    parts.push(Heading(2, "Fidelity of llm-history".to_owned()));
    parts.push(Table(head, rows?));
    parts.push(Text(format!(
        "Seeded histories of small files ({} of each length, seed {}); a read is compared with a plain interpreter of the same \
         log. {} Costs are computed from the counted tokens at the \
         prices of reports/prices.toml on {}, in US dollars per million tokens ({}); they are not those of a run on these models.",
        results.plan.histories,
        results.plan.seed,
        in_all(results),
        PRICED.1,
        priced(ModelPrices::label)?.join("; ")
    )));
    let unanswered: u32 = results.fidelity.iter().map(|found| found.unanswered).sum();
    if unanswered > 0 {
        let mut reasons = results.fidelity.iter();
        let because = reasons.find_map(|found| found.unanswered_because.as_deref());
        parts.push(Text(format!(
            "{unanswered} questions got no answer at all, and are in no figure: that is not the model's fault. The first: {}.",
            because.unwrap_or("for an unknown reason")
        )));
    }
    parts.push(by(
        results,
        "file size",
        [
            ("up to 16 B", |read| read.bytes <= 16),
            ("17 to 64 B", |read| (17..=64).contains(&read.bytes)),
            ("more", |read| read.bytes > 64),
        ],
    ));
    parts.push(by(
        results,
        "changes since it was made",
        [("0", |read| read.changes == 0), ("1", |read| read.changes == 1), ("2 or more", |read| read.changes > 1)],
    ));
    parts.push(Text("A change is a write, an append or a rename after the file was made.".to_owned()));
    Ok(())
}

/// All reads together, and the bound for reads that were not made.
fn in_all(results: &ModelFiles) -> String {
    let (exact, all) = exact(all_reads(results));
    if all == 0 {
        return "No file was read.".to_owned();
    }
    // Both one-sided bounds at 95 % are the two-sided interval at 90 %.
    let bounds = share_interval(exact as u64, all as u64, 0.1);
    format!(
        "In all {exact} of {all} reads were right; of such reads at least {:.0} % and at most {:.0} % are, each at 95 % (exact \
         one-sided bounds, Clopper and Pearson).",
        bounds.low * 100.0,
        bounds.high * 100.0
    )
}

fn row(found: &LengthResult, results: &ModelFiles) -> Result<Vec<String>, String> {
    let (right, all) = exact(&found.reads);
    let changed = found.reads.iter().filter(|read| read.changes > 0);
    let (changed_right, changed) = exact(changed);
    let wrong = found.reads.iter().filter(|read| !read.is_exact);
    let mut distances: Vec<usize> = wrong.filter_map(|read| read.distance).collect();
    distances.sort_unstable();
    let calls = found.calls.max(1);
    let cost = priced(|model| {
        let dollars = model.dollars_of(found.calls, found.prompt_tokens, found.output_tokens);
        format!("{:.2}", dollars / calls as f64 * 1000.0)
    })?;
    Ok(vec![
        found.operations.to_string(),
        share(right, all),
        share(changed_right, changed),
        distances.get(distances.len() / 2).map_or("–".to_owned(), |distance| format!("{distance} B")),
        share(found.removed_invented as usize, found.removed_asked as usize),
        format!("{} / {} / {}", found.names_right, found.names_missing, found.names_invented),
        share(found.unusable as usize, found.calls as usize),
        format!("{} + {}", found.prompt_tokens / calls, found.output_tokens / calls),
        format!("{:.2} s ({})", found.answer_ms / 1000.0, results.origin),
        cost.join(" · "),
    ])
}

fn latency(parts: &mut Vec<Part>, results: &ModelFiles) {
    let latency = &results.latency;
    let head = columns("part of an answer | mean");
    let rows = [
        ("waiting for the model", latency.queue_ms),
        ("reading the question, to the first byte", latency.first_byte_ms),
        ("writing the answer", latency.generation_ms),
        ("putting the question together, checking the answer", latency.validation_ms),
    ];
    let rows = rows.map(|(part, ms)| vec![part.to_owned(), format!("{ms:.2} ms")]);
    parts.push(Heading(2, "Where the time goes".to_owned()));
    parts.push(Table(head, rows.into()));
    parts.push(Text(format!(
        "{} answers ({}); {:.0} tokens/s read, {:.0} tokens/s written. The same question asked \
         twice gave the same answer {} of {} times{}.{} Questions are asked one at a time here: waiting is 0 by construction.",
        latency.answers,
        results.origin,
        latency.prompt_tokens_per_second,
        latency.output_tokens_per_second,
        results.repeats.equal,
        results.repeats.asked_twice,
        if results.origin == RECORDED {
", which proves nothing, because a recording always does"
} else {
""
},
        if results.repeats.has_own_sampling {
"  The server accepts no temperature: it chooses the sampling itself, and answers are not deterministic."
} else {
""
},
    )));
}

fn mounted(parts: &mut Vec<Part>, name: &str, mounted: &MountedModel, origin: &str) -> Result<(), String> {
    let dollars = |calls: u64, prompt: u64, output: u64| {
        priced(|model| format!("{:.5}", model.dollars_of(calls, prompt, output)))
    };
    let head = columns("done | model calls | tokens in + out | US$, computed | time | ended");
    let row = |step: &AskedStep| -> Result<Vec<String>, String> {
        let cost = dollars(step.calls, step.prompt_tokens, step.output_tokens)?;
        Ok(vec![
            step.what.clone(),
            step.calls.to_string(),
            format!("{} + {}", step.prompt_tokens, step.output_tokens),
            cost.join(" · "),
            format!("{:.3} s", step.seconds),
            step.outcome.clone(),
        ])
    };
    let rows: Result<Vec<Vec<String>>, String> = mounted.steps.iter().map(row).collect();
    parts.push(Heading(2, format!("What asks the model: {name}")));
    parts.push(Table(head, rows?));
    parts.push(Text(format!(
        "Times hold {origin} answers. Dollars are those of {}, computed from the tokens.",
        PRICED.0.join(" and ")
    )));
    if let (Some((here, there)), Some((reads, exact))) = (mounted.session, mounted.session_reads) {
        parts.push(Text(format!(
            "A session of 12 calls with 4 reads, made up for this and no recorded one: {here:.2} s here ({origin}), {:.2} ms in a plain \
             directory, ×{:.0}; {exact} of {reads} reads were byte-exact.",
            there * 1000.0,
            here / there
        )));
    }
    if let Some((calls, prompt, output)) = mounted.session_tokens {
        parts.push(Text(format!(
            "Its {calls} questions had {prompt} tokens and were answered by {output} ({origin}): US$ {} a session at the prices of {}, \
             computed from these tokens, not billed.",
            dollars(calls, prompt, output)?.join(" and "),
            PRICED.0.join(" and ")
        )));
    }
    if !mounted.consistency.is_empty() {
        let rows = mounted.consistency.iter();
        let rows = rows.map(|(what, found)| vec![what.clone(), found.clone()]);
        parts.push(Table(columns("consistency | found"), rows.collect()));
    }
    Ok(())
}

fn answer(parts: &mut Vec<Part>, results: &ModelFiles) {
    let (exact, all) = exact(all_reads(results));
    let times = results.fidelity.iter();
    let times = times.map(|found| (found.answer_ms * found.calls as f64, found.calls as f64));
    let (waited, calls) = times.fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    let mean = waited / calls.max(1.0) / 1000.0;
    let belongs = if exact == all && all > 0 && mean < 0.1 {
        "these figures do not speak against it"
    } else {
        "not behind the read of a file that must hold what was written to it"
    };
    parts.push(Heading(2, "Does a language model belong behind read?".to_owned()));
    parts.push(Text(format!(
        "With {}: {belongs}. {exact} of {all} reads gave what had been written, at {mean:.2} s \
         ({}) a question. Where a file is made up once and then kept, as in `llm-generate`, a later read costs what memory costs, and \
         the question is only whether the content is wanted.",
        results.model, results.origin,
    )));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: &str = "Measured before 2026-11-22T12:11Z, when commit d3a83ffbe776 added the figures.";

    /// After a change of the page, run `UPDATE_EXAMPLE=1 cargo test -p reports the_committed_page` and review
    /// the diff.
    #[test]
    fn the_committed_page_is_what_its_figures_give() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results");
        let figures = std::fs::read_to_string(format!("{dir}/model-files.json")).unwrap();
        let results: ModelFiles = serde_json::from_str(&figures).unwrap();
        let again = model_files_page(&results, MADE).unwrap();
        let file = format!("{dir}/model-files.md");
        if std::env::var_os("UPDATE_EXAMPLE").is_some() {
            std::fs::write(&file, &again).unwrap();
        }
        assert_eq!(std::fs::read_to_string(file).unwrap(), again);
    }
}
