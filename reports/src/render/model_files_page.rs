//! The page on model-generated files: all results of `model-files.json`.

use std::fmt::Write;

use rundir::{AskedStep, AtLength, ModelFiles, MountedModel};

use super::markdown::markdown_table as table;
use crate::prices::Prices;
use crate::text::columns;

/// The origin of answers from a recording.
const RECORDED: &str = "recorded";

/// The hosted models whose prices apply to counted tokens, and the day of the prices.
const PRICED: ([&str; 2], &str) = (["gpt-5", "claude-haiku-5-5"], "2026-11-22");

/// The dollars of `calls` calls with these tokens on each of the [`PRICED`] models.
fn dollars(calls: u64, prompt: u64, output: u64) -> Result<Vec<f64>, String> {
    let prices = Prices::built_in().map_err(|error| error.to_string())?;
    let of = |name: &&str| {
        let model = prices.of(name, PRICED.1)?;
        Ok(model.dollars_of(calls, prompt, output))
    };
    PRICED.0.iter().map(of).collect()
}

/// The labels of these prices: prices, first day and source.
fn price_labels() -> Result<String, String> {
    let prices = Prices::built_in().map_err(|error| error.to_string())?;
    let of = |name: &&str| {
        let model = prices.of(name, PRICED.1)?;
        Ok(model.label())
    };
    let labels: Result<Vec<String>, String> = PRICED.0.iter().map(of).collect();
    Ok(labels?.join("; "))
}

/// The page as Markdown.
pub(super) fn model_files_page(results: &ModelFiles) -> Result<String, String> {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "# Files that a language model makes up\n\n{} by {}; answers: **{}**.\n",
        results.model, results.engine, results.origin
    );
    fidelity(&mut page, results)?;
    latency(&mut page, results);
    mounted(&mut page, "llm-history", &results.history, &results.origin)?;
    mounted(
        &mut page,
        "llm-generate",
        &results.generate,
        &results.origin,
    )?;
    if let Some((ratio, low, high)) = results.memory_ratio {
        let _ = writeln!(
            page,
            "A generated file read again (open, read, close) takes ×{ratio:.2} [{low:.2}, {high:.2}] of what `memory` takes \
             (99 % interval; no model is asked).\n"
        );
    }
    answer(&mut page, results);
    Ok(page)
}

fn share(part: usize, all: usize) -> String {
    if all == 0 {
        "–".to_owned()
    } else {
        format!("{part} of {all}")
    }
}

fn fidelity(page: &mut String, results: &ModelFiles) -> Result<(), String> {
    let head = columns(
        "operations | byte-exact reads | of files changed since | \
         median edit distance of the rest | removed files said to be there | \
         names right / missing / invented | no usable answer | tokens in + out a question | \
         time an answer | US$ per 1,000 reads, computed",
    );
    let rows: Result<Vec<Vec<String>>, String> = results
        .fidelity
        .iter()
        .map(|found| row(found, results))
        .collect();
    let rows = rows?;
    let _ = writeln!(
        page,
        "## Fidelity of llm-history\n\n{}",
        table(&head, &rows)
    );
    let _ = writeln!(
        page,
        "Seeded histories of small files ({} of each length, seed {}); a read is compared with a plain interpreter of the same \
         log. {} Costs are computed from the counted tokens at the \
         prices of reports/prices.toml on {}, in US dollars per million tokens ({}); they are not those of a run on these models.\n",
        results.plan.histories,
        results.plan.seed,
        in_all(results),
        PRICED.1,
        price_labels()?
    );
    let unanswered: u32 = results.fidelity.iter().map(|found| found.unanswered).sum();
    if unanswered > 0 {
        let mut reasons = results.fidelity.iter();
        let because = reasons.find_map(|found| found.unanswered_because.as_deref());
        let _ = writeln!(
            page,
            "{unanswered} questions got no answer at all, and are in no figure: that is not the model's fault. The first: {}.\n",
            because.unwrap_or("for an unknown reason")
        );
    }
    let reads = results.fidelity.iter().flat_map(|found| &found.reads);
    let mut by_size = Vec::new();
    for (label, from, to) in [
        ("up to 16 B", 0, 16),
        ("17 to 64 B", 17, 64),
        ("more", 65, usize::MAX),
    ] {
        let of: Vec<_> = reads
            .clone()
            .filter(|read| (from..=to).contains(&read.bytes))
            .collect();
        let exact = of.iter().filter(|read| read.is_exact).count();
        by_size.push(vec![label.to_owned(), share(exact, of.len())]);
    }
    let _ = writeln!(
        page,
        "{}",
        table(&["file size", "byte-exact reads"], &by_size)
    );
    let mut by_changes = Vec::new();
    for (label, from, to) in [("0", 0, 0), ("1", 1, 1), ("2 or more", 2, u32::MAX)] {
        let of = reads.clone();
        let of: Vec<_> = of
            .filter(|read| (from..=to).contains(&read.changes))
            .collect();
        let exact = of.iter().filter(|read| read.is_exact).count();
        by_changes.push(vec![label.to_owned(), share(exact, of.len())]);
    }
    let _ = writeln!(
        page,
        "{}\nA change is a write, an append or a rename after the file was made.\n",
        table(
            &["changes since it was made", "byte-exact reads"],
            &by_changes
        )
    );
    Ok(())
}

/// All reads together, and the bound for reads that were not made.
fn in_all(results: &ModelFiles) -> String {
    let reads = results.fidelity.iter().flat_map(|found| &found.reads);
    let (exact, all) = reads.fold((0, 0), |(exact, all), read| {
        (exact + u64::from(read.is_exact), all + 1)
    });
    if all == 0 {
        return "No file was read.".to_owned();
    }
    format!(
        "In all {exact} of {all} reads were right; of such reads at least {:.0} % and at most {:.0} % are, each at 95 % (exact \
         one-sided bounds, Clopper and Pearson).",
        (1.0 - most(all - exact, all)) * 100.0,
        most(exact, all) * 100.0
    )
}

/// The upper 95 % bound of a share when `found` of `all` are observed, by Clopper and Pearson.
fn most(found: u64, all: u64) -> f64 {
    if found >= all {
        return 1.0;
    }
    let at_most = |share: f64| -> f64 {
        let mut term = (1.0 - share).powf(all as f64);
        let mut sum = term;
        for k in 0..found {
            term *= (all - k) as f64 / (k + 1) as f64 * share / (1.0 - share);
            sum += term;
        }
        sum
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

fn row(found: &AtLength, results: &ModelFiles) -> Result<Vec<String>, String> {
    let exact = found.reads.iter().filter(|read| read.is_exact).count();
    let changed: Vec<_> = found.reads.iter().filter(|read| read.changes > 0).collect();
    let changed_exact = changed.iter().filter(|read| read.is_exact).count();
    let mut distances: Vec<usize> = found
        .reads
        .iter()
        .filter(|read| !read.is_exact)
        .filter_map(|read| read.distance)
        .collect();
    distances.sort_unstable();
    let calls = found.calls.max(1);
    let cost = dollars(found.calls, found.prompt_tokens, found.output_tokens)?;
    let cost: Vec<String> = cost
        .iter()
        .map(|dollars| format!("{:.2}", dollars / calls as f64 * 1000.0))
        .collect();
    Ok(vec![
        found.operations.to_string(),
        share(exact, found.reads.len()),
        share(changed_exact, changed.len()),
        distances
            .get(distances.len() / 2)
            .map_or("–".to_owned(), |distance| format!("{distance} B")),
        share(
            found.removed_invented as usize,
            found.removed_asked as usize,
        ),
        format!(
            "{} / {} / {}",
            found.names_right, found.names_missing, found.names_invented
        ),
        share(found.unusable as usize, (found.calls) as usize),
        format!(
            "{} + {}",
            found.prompt_tokens / calls,
            found.output_tokens / calls
        ),
        format!("{:.2} s ({})", found.answer_ms / 1000.0, results.origin),
        cost.join(" · "),
    ])
}

fn latency(page: &mut String, results: &ModelFiles) {
    let latency = &results.latency;
    let head = columns("part of an answer | mean");
    let ms = |value: f64| format!("{value:.2} ms");
    let rows = vec![
        vec!["waiting for the model".to_owned(), ms(latency.queue_ms)],
        vec![
            "reading the question, to the first byte".to_owned(),
            ms(latency.first_byte_ms),
        ],
        vec!["writing the answer".to_owned(), ms(latency.generation_ms)],
        vec![
            "putting the question together, checking the answer".to_owned(),
            ms(latency.validation_ms),
        ],
    ];
    let _ = writeln!(
        page,
        "## Where the time goes\n\n{}\n{} answers ({}); {:.0} tokens/s read, {:.0} tokens/s written. The same question asked \
         twice gave the same answer {} of {} times{}.{} Questions are asked one at a time here: waiting is 0 by construction.\n",
        table(&head, &rows),
        latency.answers,
        results.origin,
        latency.prompt_tokens_per_second,
        latency.output_tokens_per_second,
        results.repeats.equal,
        results.repeats.asked_twice,
        if results.origin == RECORDED {
            ", which says nothing: a recording always does"
        } else {
            ""
        },
        if results.repeats.has_own_sampling {
            " The server takes no temperature: sampling is its own, and answers are not deterministic."
        } else {
            ""
        },
    );
}

fn mounted(
    page: &mut String,
    name: &str,
    mounted: &MountedModel,
    origin: &str,
) -> Result<(), String> {
    let head = columns("done | model calls | tokens in + out | US$, computed | time | ended");
    let row = |step: &AskedStep| -> Result<Vec<String>, String> {
        let cost = dollars(step.calls, step.prompt_tokens, step.output_tokens)?;
        let cost: Vec<String> = cost.iter().map(|dollars| format!("{dollars:.5}")).collect();
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
    let rows = rows?;
    let _ = writeln!(
        page,
        "## What asks the model: {name}\n\n{}",
        table(&head, &rows)
    );
    let _ = writeln!(
        page,
        "Times hold {origin} answers. Dollars are those of {}, computed from the tokens.\n",
        PRICED.0.join(" and ")
    );
    if let (Some((here, there)), Some((reads, exact))) = (mounted.session, mounted.session_reads) {
        let _ = writeln!(
            page,
            "A session of 12 calls with 4 reads, made up for this and no recorded one: {here:.2} s here ({origin}), {:.2} ms in a plain \
             directory, ×{:.0}; {exact} of {reads} reads were byte-exact.\n",
            there * 1000.0,
            here / there
        );
    }
    if let Some((calls, prompt, output)) = mounted.session_tokens {
        let cost = dollars(calls, prompt, output)?;
        let cost: Vec<String> = cost.iter().map(|dollars| format!("{dollars:.5}")).collect();
        let _ = writeln!(
            page,
            "Its {calls} questions had {prompt} tokens and were answered by {output} ({origin}): US$ {} a session at the prices of {}, \
             computed from these tokens, not billed.\n",
            cost.join(" and "),
            PRICED.0.join(" and ")
        );
    }
    if !mounted.consistency.is_empty() {
        let rows: Vec<Vec<String>> = mounted
            .consistency
            .iter()
            .map(|(what, found)| vec![what.clone(), found.clone()])
            .collect();
        let _ = writeln!(page, "{}", table(&["consistency", "found"], &rows));
    }
    Ok(())
}

fn answer(page: &mut String, results: &ModelFiles) {
    let reads: Vec<_> = results
        .fidelity
        .iter()
        .flat_map(|found| &found.reads)
        .collect();
    let exact = reads.iter().filter(|read| read.is_exact).count();
    let calls: f64 = results
        .fidelity
        .iter()
        .map(|found| found.answer_ms * found.calls as f64)
        .sum();
    let count: f64 = results
        .fidelity
        .iter()
        .map(|found| found.calls as f64)
        .sum();
    let mean = calls / count.max(1.0) / 1000.0;
    let belongs = if exact == reads.len() && !reads.is_empty() && mean < 0.1 {
        "these figures do not speak against it"
    } else {
        "not behind the read of a file that is to hold what was written to it"
    };
    let _ = writeln!(
        page,
        "## Does a language model belong behind read?\n\nWith {}: {belongs}. {exact} of {} reads gave what had been written, at {mean:.2} s \
         ({}) a question. Where a file is made up once and then kept, as in `llm-generate`, a later read costs what memory costs, and \
         the question is only whether the content is wanted.",
        results.model,
        reads.len(),
        results.origin,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_clopper_and_pearsons() {
        // 1 - 0.05^(1/13); and the share at which the binomial terms from 0 to 5 of 20 add up to 0.05.
        assert!((most(0, 13) - 0.205_8).abs() < 1e-4);
        assert!((most(5, 20) - 0.455_58).abs() < 1e-4);
        assert!((most(7, 7) - 1.0).abs() < 1e-12);
        assert!(((1.0 - most(0, 7)) - 0.05_f64.powf(1.0 / 7.0)).abs() < 1e-9);
    }

    /// After a change of the page, run `UPDATE_EXAMPLE=1 cargo test -p reports the_committed_page` and review
    /// the diff.
    #[test]
    fn the_committed_page_is_what_its_figures_give() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/example/model-files");
        let figures = std::fs::read_to_string(format!("{dir}/model-files.json")).unwrap();
        let results: ModelFiles = serde_json::from_str(&figures).unwrap();
        let again = model_files_page(&results).unwrap();
        let file = format!("{dir}/model-files.md");
        if std::env::var_os("UPDATE_EXAMPLE").is_some() {
            std::fs::write(&file, &again).unwrap();
        }
        assert_eq!(std::fs::read_to_string(file).unwrap(), again);
    }
}
