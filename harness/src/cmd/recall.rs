//! `ctxbench recall`: what agent memory finds of planted evidence, and how long it takes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use backends::backend;
use clap::{Args, Subcommand};
use reports::render;
use serde_json::json;

use crate::environment;
use crate::interrupt::Interrupt;
use crate::recall::quality::{self, write_file};
use crate::recall::speed::{self, Figure, ITEMS, Item, Place, Samples};
use crate::scratch::ScratchDir;

/// Measure agent memory: what is found of planted evidence, and how long it takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench recall quality --notes 100,1000        # seconds
  ctxbench recall quality                         # up to 100,000 notes: about two minutes
  ctxbench recall quality --embeddings            # also by meaning, up to 1,000 notes: 100 notes a second are embedded
  ctxbench recall speed --out results/speed")]
pub struct Recall {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Quality(Quality),
    Speed(Speed),
}

/// Ask generated questions whose answers are planted among generated notes.
///
/// The ways to answer them: the whole MEMORY.md, its end, grep, :search, and :recall by strategy. Only counts come
/// out, no times: the same seed gives the same table on every machine.
#[derive(Debug, Args)]
struct Quality {
    /// How many notes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000, 100_000], value_parser = size)]
    notes: Vec<usize>,
    /// Tokens that an answer may bring into the context.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(64..=1_000_000))]
    max_tokens: u64,
    /// Also recall by meaning, with the sentence model in this directory [default: the one that is installed].
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    embeddings: Option<Option<PathBuf>>,
    /// With --embeddings: memories of more notes are not embedded, and have no rows by meaning.
    #[arg(
        long,
        value_name = "NOTES",
        default_value_t = 1000,
        requires = "embeddings"
    )]
    embed_max: usize,
    #[command(flatten)]
    common: Common,
}

/// Time writing, searching and recalling, in this process and through a mount, at several sizes in turn.
#[derive(Debug, Args)]
struct Speed {
    /// How many notes.
    #[arg(long, value_delimiter = ',', default_values_t = [116, 1000, 10_000, 100_000], value_parser = size)]
    notes: Vec<usize>,
    /// Rounds; fewer than 8 carry no interval.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// The seed of notes, questions and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the figures into this directory, as JSON and Markdown.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the databases are made [default: as `run`].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// A number of notes.
fn size(text: &str) -> Result<usize, String> {
    match text.replace('_', "").parse() {
        Ok(size) if (100..=1_000_000).contains(&size) => Ok(size),
        _ => Err("a number from 100 to 1000000".to_owned()),
    }
}

impl Recall {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Quality(quality) => quality.run(),
            What::Speed(speed) => speed.run(),
        }
    }
}

impl Quality {
    /// The directory of the model to recall with by meaning, if that is wanted.
    fn model(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(match &self.embeddings {
            None => None,
            Some(Some(dir)) => Some(dir.clone()),
            Some(None) => Some(embeddings::find()?),
        })
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch()?;
        let scratch = ScratchDir::make(self.common.scratch.as_deref())?;
        let Self {
            notes, max_tokens, ..
        } = &self;
        let seed = self.common.seed;
        let model = self.model()?;
        let by_meaning = model.as_deref().map(|model| quality::ByMeaning {
            model,
            notes_max: self.embed_max,
        });
        let rows = quality::evaluate(
            notes,
            seed,
            *max_tokens,
            by_meaning,
            scratch.path(),
            &interrupt,
        )?;
        let (head, cells) = quality::table(&rows);
        let left_out = match by_meaning {
            Some(by_meaning) if notes.iter().any(|size| *size > by_meaning.notes_max) => format!(
                "; by meaning skipped above {} notes (--embed-max)",
                by_meaning.notes_max
            ),
            _ => String::new(),
        };
        let title = format!(
            "Recall quality: budget {max_tokens} tokens ({}), seed {seed}; generated notes and questions, counts only{left_out}",
            tokens::NAME
        );
        println!("{title}\n\n{}", render::table(&head, &cells));
        let markdown = format!("{title}.\n\n{}", render::markdown_table(&head, &cells));
        let figures = json!({ "max_tokens": max_tokens, "tokenizer": tokens::NAME, "rows": rows });
        self.common.write("recall-quality", &markdown, figures)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Speed {
    fn run(self) -> anyhow::Result<ExitCode> {
        backend::find("agent-memory")?.receipt()?;
        let interrupt = Interrupt::catch()?;
        let scratch = ScratchDir::make(self.common.scratch.as_deref())?;
        let seed = self.common.seed;
        let samples = speed::measure(&self.notes, self.rounds, seed, scratch.path(), &interrupt)?;
        let (head, cells) = times(&samples, &self.notes);
        let title = format!(
            "Milliseconds a call, mean of {} blocks' medians [99 % interval], seed {seed}; generated notes, caches hot",
            self.rounds
        );
        let (ratio_head, ratios) = ratios(&samples, &self.notes);
        let claimed = claims(&samples);
        let claims_head = [
            "the seed says",
            "in process",
            "through a mount",
            "standing, in process",
        ];
        println!("{title}\n\n{}", render::table(&head, &cells));
        println!("{}", render::table(&ratio_head, &ratios));
        println!("{}", render::table(&claims_head, &claimed));
        let markdown = format!(
            "{title}.\n\n{}\n{}\n{}",
            render::markdown_table(&head, &cells),
            render::markdown_table(&ratio_head, &ratios),
            render::markdown_table(&claims_head, &claimed)
        );
        let blocks: Vec<_> = samples
            .iter()
            .map(|((place, notes, item), medians)| {
                json!({ "place": place, "notes": notes, "item": item, "medians_ms": medians })
            })
            .collect();
        let figures = json!({ "rounds": self.rounds, "blocks": blocks });
        self.common.write("recall-speed", &markdown, figures)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Common {
    /// Writes figures and where they come from, if the user wants that.
    fn write(&self, name: &str, markdown: &str, figures: serde_json::Value) -> anyhow::Result<()> {
        let Some(dir) = &self.out else {
            return Ok(());
        };
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let versions = backend::find("agent-memory")?.receipt().unwrap_or_default();
        let environment = environment::environment_in(dir)?;
        let mut report = json!({
            "schema": 1,
            "ctxbench": environment::ctxbench(),
            "versions": versions,
            "environment": environment,
            "seed": self.seed,
        });
        if let (Some(report), serde_json::Value::Object(figures)) =
            (report.as_object_mut(), figures)
        {
            report.extend(figures);
        } else {
            bail!("figures are an object");
        }
        let file = |ending: &str| -> PathBuf { Path::new(dir).join(format!("{name}.{ending}")) };
        write_file(&file("json"), &serde_json::to_string_pretty(&report)?)?;
        let by = format!("\nctxbench {}.\n", environment::ctxbench());
        write_file(&file("md"), &(markdown.to_owned() + &by))?;
        eprintln!("ctxbench: written to {}", dir.display());
        Ok(())
    }
}

const PLACES: [(Place, &str); 3] = [
    (Place::Unmerged, "in process, index not merged"),
    (Place::InProcess, "in process"),
    (Place::Mount, "mount"),
];

/// Times by size.
fn times(samples: &Samples, sizes: &[usize]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    for size in sizes {
        for (place, name) in PLACES {
            let mut row = vec![size.to_string(), name.to_owned()];
            row.extend(ITEMS.map(|item| {
                samples
                    .get(&(place, *size, item))
                    .map_or("–".to_owned(), |medians| Figure::of(medians).show(3))
            }));
            rows.push(row);
        }
    }
    let mut head = vec!["notes", "where"];
    head.extend(ITEMS.map(Item::name));
    (head, rows)
}

/// How times grow, against 1,000 notes.
fn ratios(samples: &Samples, sizes: &[usize]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    for size in sizes.iter().filter(|size| **size != 1000) {
        for (place, name) in PLACES {
            let mut row = vec![size.to_string(), name.to_owned()];
            row.extend(ITEMS.map(|item| {
                speed::ratio(samples, place, item, (*size, 1000))
                    .map_or("–".to_owned(), |ratio| format!("×{}", ratio.show(2)))
            }));
            rows.push(row);
        }
    }
    let mut head = vec!["notes, against 1,000", "where"];
    head.extend(ITEMS.map(Item::name));
    (head, rows)
}

/// The seed's figures: what, from and to how many milliseconds, at how many notes, which calls.
const CLAIMS: [(&str, f64, f64, usize, Item); 4] = [
    ("remember() write: ~0.6 ms", 0.3, 1.2, 1000, Item::Remember),
    (
        "FTS5 search (116 nodes): 0.14 ms",
        0.07,
        0.28,
        116,
        Item::Search,
    ),
    (
        "FTS5 search (1000 nodes): 0.16 ms",
        0.08,
        0.32,
        1000,
        Item::Search,
    ),
    (
        "recall() with token budget: 0.11-0.28 ms",
        0.11,
        0.28,
        1000,
        Item::Recall,
    ),
];

/// The seed's figures beside ours: as for claims in a run, "about" is within a factor of two.
fn claims(samples: &Samples) -> Vec<Vec<String>> {
    CLAIMS
        .into_iter()
        .map(|(quote, from, to, notes, item)| {
            let at = |place| {
                samples
                    .get(&(place, notes, item))
                    .map(|medians| Figure::of(medians))
            };
            let show =
                |figure: Option<Figure>| figure.map_or("not measured".to_owned(), |f| f.show(3));
            let standing = match at(Place::InProcess).and_then(|figure| figure.interval) {
                None => "open",
                Some(interval) if from <= interval.low && interval.high <= to => "confirmed",
                Some(interval) if interval.high < from => "refuted: it is faster",
                Some(interval) if to < interval.low => "refuted: it is slower",
                Some(_) => "open",
            };
            vec![
                quote.to_owned(),
                show(at(Place::InProcess)),
                show(at(Place::Mount)),
                standing.to_owned(),
            ]
        })
        .collect()
}
