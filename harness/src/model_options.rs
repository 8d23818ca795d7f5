//! The options that select a model, shared by several commands; and the stores of `ctxbench mount` that ask one.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions};
use clap::{Args, ValueEnum};
use figures::prices::Prices;
use fuse::daemon_log;
use inputs::variable;
use llm::generate::{
    AnswerCache, CONTEXT_DEFAULT, CONTEXT_MAX, CommandGenerator, GenerateOptions, Generator, Generators, parse_tree,
};
use llm::history::HistoryOptions;
use llm::{Asker, AskerOptions, GENERATE, GenerateStore, HISTORY, HistoryStore, LogFile};
use models::{
    Budget, Cassette, LlamaServer, Meter, Model, OpenAi, OpenAiConfig, Pace, Price, Recorder, check_gguf,
    find_llama_server, find_model, without_secrets,
};
use serde_json::{Map, json};
use servers::bound_to_this_process;

use crate::environment::today;

/// The variables with the prompt: ours, and that of source 2.
const PROMPT_VARIABLES: [&str; 2] = ["CTXBENCH_PROMPT", "LLMFS_PROMPT"];

/// The variables with the folder of the cache: ours, and that of source 2.
const CACHE_VARIABLES: [&str; 2] = ["CTXBENCH_CACHE_FOLDER", "LLMFS_CACHE_FOLDER"];

/// OpenAI's own server, and the default model of source 2.
const OPENAI_URL: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-4o-2024-08-06";

/// The kind of model that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// A GGUF file, in a llama-server that ctxbench starts and stops.
    Local,
    /// A server with OpenAI's chat completions API: OpenAI, Ollama, vLLM, llama.cpp.
    Openai,
    /// A recording.
    Cassette,
}

/// Which model answers, and what it may cost. A key comes from `CTXBENCH_API_KEY` or `OPENAI_API_KEY`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of models")]
pub struct ModelOptions {
    /// Which kind of model answers [default: openai with --base-url, cassette with --cassette, else local].
    #[arg(long, value_enum)]
    pub provider: Option<Provider>,
    /// The URL of the server: for `openai`, such as `http://127.0.0.1:11434/v1` [default: https://api.openai.com/v1]; for
    /// `local`, that of a llama-server that already runs.
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The model: a name for `openai` [default without --base-url: gpt-4o-2024-08-06], a GGUF file for `local` [default:
    /// $CTXBENCH_MODEL, or the model that `make model` installs].
    #[arg(long, value_name = "NAME|FILE")]
    pub model: Option<String>,
    /// The SHA-256 that the model file must have.
    #[arg(long, value_name = "HEX")]
    model_sha256: Option<String>,
    /// The recording that `cassette` replays.
    #[arg(long, value_name = "FILE")]
    pub cassette: Option<PathBuf>,
    /// Replay without the recorded latency.
    #[arg(long)]
    pub replay_instantly: bool,
    /// Record the answers of a live model in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "cassette")]
    pub record: Option<PathBuf>,
    /// Seconds that one answer may take, including all attempts and the time in the queue.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    answer_timeout: f64,
    /// Maximum length of an answer, in the model's tokens [default: 4096 for openai without --base-url, else 512]. A
    /// recording is replayed by the value that it was made with.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub answer_tokens: Option<u32>,
    /// Sampling temperature, from 0 (always the likeliest token) to 2.
    #[arg(long, default_value_t = 0.0, value_parser = temperature)]
    temperature: f32,
    /// The seed of the sampling.
    #[arg(long, default_value_t = 1)]
    model_seed: u64,
    /// Maximum number of concurrent requests [default: 1 for local, else 4].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: Option<u8>,
    /// Stop asking the model after this many tokens; reads then fail with EDQUOT. Abandoned requests count, too.
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// Stop asking the model after this many US dollars. The price is that of --price, else that of the model's row in
    /// reports/prices.toml. With this option, no request goes to a model
    /// that a program names in the file `.llmfs/model`, because its price is unknown.
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    max_cost: Option<f64>,
    /// US dollars per million input tokens and per million output tokens, such as 1.25,10.
    #[arg(long, value_name = "IN,OUT", value_parser = price)]
    price: Option<Price>,
}

/// A log of operations, from which a language model derives the content of files: see docs/LLM.md.
#[derive(Clone, Debug, Args)]
pub struct HistoryMountOptions {
    /// Keep the log in this SQLite file. Without this option, the log is lost when the mount ends.
    #[arg(long, value_name = "FILE")]
    log_db: Option<PathBuf>,
    /// Rules, in plain words, by which the model allows or refuses operations. Each operation then asks the model.
    #[arg(long, value_name = "TEXT")]
    policy: Option<String>,
    /// Maximum number of log bytes in a question to the model.
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    log_bytes: usize,
    #[command(flatten)]
    model: ModelOptions,
}

/// Files that a language model generates when they are first read: see docs/LLM.md.
#[derive(Clone, Debug, Args)]
pub struct GenerateMountOptions {
    /// The subject of the file system [default: $CTXBENCH_PROMPT, or $LLMFS_PROMPT].
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Take the names of the files from this JSON file instead of asking the model. Refused if a tree is already saved. The
    /// file is {"entries": [{"path": "src/main.py", "kind": "file", "about": "prints hello"}, …]}; `kind` is file,
    /// directory or symlink (with `target`), and `about` may be left out.
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// The file in which the tree and its content are saved [default: DIR.llmfs.json].
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Do not cache answers for repeated requests.
    #[arg(long)]
    no_cache: bool,
    /// Directory of the cached answers [default: $CTXBENCH_CACHE_FOLDER, or $LLMFS_CACHE_FOLDER, or ~/.ctxbench.cache,
    /// or DIR.llmfs.cache if HOME is not set].
    #[arg(long, value_name = "FOLDER")]
    cache_folder: Option<PathBuf>,
    /// The prompt of a file also shows this many bytes of files that are already generated, related files first; 0 for
    /// none.
    #[arg(long, value_name = "BYTES", default_value_t = CONTEXT_DEFAULT, value_parser = context_bytes)]
    context_bytes: usize,
    /// A file that defines a generator: a command that gets path and prompt, or the tree, and prints the content, and
    /// patterns of the files that it writes (docs/LLM.md). May be given several times.
    #[arg(long, value_name = "FILE")]
    generator: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelOptions,
}

/// A number in a range; `otherwise` says which.
fn within<T>(text: &str, range: RangeInclusive<T>, otherwise: &str) -> Result<T, String>
where
    T: FromStr + PartialOrd,
{
    let number = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if range.contains(&number) { Ok(number) } else { Err(otherwise.to_owned()) }
}

fn context_bytes(text: &str) -> Result<usize, String> {
    within(text, 0..=CONTEXT_MAX, "it must be from 0 to 131072")
}

fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.1..=3600.0, "it must be from 0.1 to 3600")
}

fn dollars(text: &str) -> Result<f64, String> {
    within(text, 0.0..=f64::MAX, "it must be a number of dollars from 0")
}

fn temperature(text: &str) -> Result<f32, String> {
    within(text, 0.0..=2.0, "it must be from 0 to 2")
}

fn price(text: &str) -> Result<Price, String> {
    let numbers = text.split_once(',').and_then(|(prompt, output)| {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
        Some((number(prompt)?, number(output)?))
    });
    let (prompt, output) = numbers.ok_or("it must be two prices, as in 1.25,10")?;
    Ok(Price { prompt, output })
}

/// A model that is ready, with its server.
pub struct ReadyModel {
    pub model: Box<dyn Model>,
    /// The engine that runs it, for reports.
    pub engine: String,
    /// Distinguishes models of the same name, for the cache.
    identity: String,
    /// `local`, `openai` or `cassette`.
    pub provider: Provider,
    pub server: Option<LlamaServer>,
}

impl ReadyModel {
    /// A model without a server of its own.
    fn of(model: impl Model + 'static, engine: String, identity: String, provider: Provider) -> Self {
        Self { model: Box::new(model), engine, identity, provider, server: None }
    }
}

impl ModelOptions {
    /// The chosen provider, or the default for the other options.
    pub fn provider(&self) -> Provider {
        self.provider.unwrap_or(if self.cassette.is_some() {
            Provider::Cassette
        } else if self.base_url.is_some() {
            Provider::Openai
        } else {
            Provider::Local
        })
    }

    /// The budget in tokens and in US dollars.
    pub fn budget(&self) -> Budget {
        Budget { tokens: self.max_tokens, dollars: self.max_cost }
    }

    /// Whether the user names a model.
    pub fn names_a_model(&self) -> bool {
        self.provider.is_some() || self.base_url.is_some() || self.model.is_some() || self.cassette.is_some()
    }

    /// The same options with another budget.
    pub fn with_budget(&self, budget: Budget) -> Self {
        Self { max_tokens: budget.tokens, max_cost: budget.dollars, ..self.clone() }
    }

    /// The command line options that give another `ctxbench` process the same model.
    pub fn again(&self) -> Vec<OsString> {
        fn text(value: Option<impl ToString>) -> Option<OsString> {
            value.map(|value| value.to_string().into())
        }
        let provider = self.provider().to_possible_value();
        let provider = provider.as_ref().map(|value| value.get_name());
        let price = self.price;
        let price = price.map(|price| format!("{},{}", price.prompt, price.output));
        let options = [
            ("--provider", text(provider)),
            ("--base-url", text(self.base_url.as_ref())),
            ("--model", text(self.model.as_ref())),
            ("--model-sha256", text(self.model_sha256.as_ref())),
            ("--cassette", self.cassette.as_ref().map(OsString::from)),
            ("--record", self.record.as_ref().map(OsString::from)),
            ("--answer-timeout", text(Some(self.answer_timeout))),
            ("--answer-tokens", text(Some(self.answer_tokens()))),
            ("--temperature", text(Some(self.temperature))),
            ("--model-seed", text(Some(self.model_seed))),
            ("--parallel", text(self.parallel)),
            ("--max-tokens", text(self.max_tokens)),
            ("--max-cost", text(self.max_cost)),
            ("--price", text(price)),
        ];
        let given = options.into_iter();
        let given = given.filter_map(|(name, value)| Some([name.into(), value?]));
        let flag = self.replay_instantly.then(|| "--replay-instantly".into());
        given.flatten().chain(flag).collect()
    }

    /// The maximum length of an answer. Small models do not end by themselves, and they are slow.
    pub fn answer_tokens(&self) -> u32 {
        let is_of_openai = self.provider() == Provider::Openai && self.base_url.is_none();
        let default = if is_of_openai { 4096 } else { 512 };
        self.answer_tokens.unwrap_or(default)
    }

    /// The options of each request.
    pub fn options(&self) -> AskerOptions {
        AskerOptions { temperature: self.temperature, max_tokens: self.answer_tokens(), seed: self.model_seed }
    }

    /// Starts or connects to the model and checks that it is available.
    pub fn ready(&self) -> anyhow::Result<ReadyModel> {
        let timeout = Duration::from_secs_f64(self.answer_timeout);
        let provider = self.provider();
        let mut ready = match provider {
            Provider::Cassette => {
                let Some(path) = &self.cassette else {
                    bail!("--provider cassette needs a recording\n  fix: name one with --cassette FILE");
                };
                let pace = if self.replay_instantly { Pace::Instant } else { Pace::AsRecorded };
                let cassette = Cassette::open(path, pace)?;
                let (file, engine) = (path.display(), cassette.engine());
                let identity = format!("recording of {engine}");
                let engine = format!("recording {file} of {engine}");
                ReadyModel::of(cassette, engine, identity, provider)
            }
            Provider::Openai => {
                let (base_url, model) = self.server_and_model()?;
                let client = OpenAi::new(OpenAiConfig::new(base_url, model, timeout))?;
                client.check()?;
                ReadyModel::of(client, base_url.to_owned(), base_url.to_owned(), provider)
            }
            Provider::Local => self.local(timeout)?,
        };
        if let Some(path) = &self.record {
            if provider == Provider::Cassette {
                bail!("--record cannot record a replayed recording\n  fix: leave out --record or --cassette");
            }
            let recorder = Recorder::open(ready.model, path, &ready.engine)?;
            ready.model = Box::new(recorder);
        }
        Ok(ready)
    }

    /// The URL of the server and the name of the model of `--provider openai`: without options, those of source 2.
    fn server_and_model(&self) -> anyhow::Result<(&str, &str)> {
        match (&self.base_url, &self.model) {
            (Some(base_url), None) => {
                let server = without_secrets(base_url);
                bail!("the model at {server} is not named\n  fix: name it with --model")
            }
            (base_url, model) => {
                Ok((base_url.as_deref().unwrap_or(OPENAI_URL), model.as_deref().unwrap_or(OPENAI_MODEL)))
            }
        }
    }

    fn local(&self, timeout: Duration) -> anyhow::Result<ReadyModel> {
        if let (Some(base_url), Some(model)) = (&self.base_url, &self.model) {
            let client = OpenAi::new(local_config(base_url, model, timeout))?;
            let engine = format!("the llama-server at {base_url}, one thread");
            return Ok(ReadyModel::of(client, engine, base_url.clone(), Provider::Local));
        }
        let file = match &self.model {
            Some(named) => PathBuf::from(named),
            None => find_model()?,
        };
        check_gguf(&file, self.model_sha256.as_deref())?;
        let program = find_llama_server()?;
        let server = LlamaServer::start(&program, &file, &launcher()?)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let config = local_config(&server.base_url(), &name, timeout);
        let version = LlamaServer::version(&program).unwrap_or_else(|| "of unknown version".to_owned());
        let engine = format!("llama-server {version}, one thread");
        let client = OpenAi::new(config)?;
        Ok(ReadyModel { server: Some(server), ..ReadyModel::of(client, engine, identity_of(&file)?, Provider::Local) })
    }

    /// The price of `model` in the built-in list with a message about it, if `--max-cost` needs it. `None` if
    /// it does not, or if `--price` is given.
    fn listed_price(&self, model: &str) -> anyhow::Result<Option<(Price, String)>> {
        if self.max_cost.is_none() || self.price.is_some() {
            return Ok(None);
        }
        let prices = Prices::built_in()?;
        let Ok(row) = prices.of(model, &today()) else {
            bail!(
                "--max-cost needs the price of {model}, which is not in reports/prices.toml\n  fix: give it with --price IN,OUT, in US dollars per million tokens"
            );
        };
        // The price of a million tokens in short questions: long questions may have another price.
        let million = 1_000_000;
        let price = Price { prompt: row.dollars_of(million, million, 0), output: row.dollars_of(million, 0, million) };
        let said = format!(
            "--max-cost counts {} in and {} out, US dollars per million tokens, by the price list: {}",
            price.prompt,
            price.output,
            row.label()
        );
        Ok(Some((price, said)))
    }

    /// A meter that counts and limits the usage of `model`.
    /// Fails if there is a limit in US dollars and no price.
    pub fn meter(&self, model: Box<dyn Model>, provider: Provider) -> anyhow::Result<Meter> {
        let listed = self.listed_price(model.name())?.map(|(price, said)| {
            daemon_log::say(said);
            price
        });
        let price = self.price.or(listed);
        let parallel = self.parallel.unwrap_or(if provider == Provider::Local { 1 } else { 4 });
        Ok(Meter::new(model, price, self.budget(), parallel.into())
            .with_patience(Duration::from_secs_f64(self.answer_timeout)))
    }

    /// The asker of a mount, with its log beside the mount.
    fn asker(&self, at: MountPoint<'_>) -> anyhow::Result<MountAsker> {
        let ready = self.ready()?;
        let path = at.beside(".llmfs.log");
        let (log, note) = match LogFile::open(&path) {
            Ok(log) => (Some(log), None),
            Err(error) if is_read_only(&error) => {
                let path = path.display();
                let note = format!("requests to the model are not logged: {path}: {error}");
                (None, Some(note))
            }
            Err(error) => {
                let failed = format!("opening the log {}", path.display());
                return Err(anyhow::Error::from(error).context(failed));
            }
        };
        let meter = self.meter(ready.model, ready.provider)?;
        let asker = Asker::new(meter, self.options(), log);
        asker.log(&format!("mounting {}: {} by {}", at.dir.display(), asker.model(), ready.engine));
        if let Some((_, said)) = self.listed_price(asker.model())? {
            asker.log(&said);
        }
        Ok(MountAsker { asker, note, identity: ready.identity, server: ready.server })
    }
}

/// The asker of a mount, with its server.
struct MountAsker {
    asker: Asker,
    /// A message for the user.
    note: Option<String>,
    /// As in [`ReadyModel`].
    identity: String,
    /// Must live as long as the asker.
    server: Option<LlamaServer>,
}

/// Whether a file could not be opened because its file system, or its directory for this user, can only be read.
fn is_read_only(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn launcher() -> anyhow::Result<[OsString; 3]> {
    let this = std::env::current_exe().context("finding this program")?;
    Ok(bound_to_this_process(&this))
}

/// Distinguishes model files of the same name.
fn identity_of(file: &Path) -> anyhow::Result<String> {
    let about = file.metadata().with_context(|| format!("reading {}", file.display()))?;
    let path = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    Ok(format!("{} of {} bytes, changed at {}.{:09}", path.display(), about.len(), about.mtime(), about.mtime_nsec()))
}

/// The client configuration for a `llama-server` with one model.
fn local_config(base_url: &str, model: &str, timeout: Duration) -> OpenAiConfig {
    let mut config = OpenAiConfig::new(base_url, model, timeout);
    config.key = None;
    config.is_only_model = true;
    // A prompt cache would make the latency of a request depend on earlier ones.
    config.more = Map::from_iter([("cache_prompt".to_owned(), json!(false))]);
    config
}

impl StoreOptions for HistoryMountOptions {
    const NAME: &'static str = HISTORY;
    const EXAMPLES: &'static [&'static str] = &[
        "llm-history guess    # after `make model`",
        "llm-history --base-url http://127.0.0.1:11434/v1 --model qwen3 guess",
    ];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let options = HistoryOptions { policy: self.policy, log_bytes: self.log_bytes };
        let asking = self.model.asker(at)?;
        let store = HistoryStore::open(asking.asker, options, self.log_db.as_deref(), at.owner)?;
        Ok(OpenedStore {
            server: asking.server,
            notes: asking.note.into_iter().collect(),
            read_only: store.read_only(),
            ..OpenedStore::of(store, Self::NAME)
        })
    }
}

impl StoreOptions for GenerateMountOptions {
    const NAME: &'static str = GENERATE;
    const EXAMPLES: &'static [&'static str] = &[
        "llm-generate --prompt 'A small Python project' project    # after `make model`",
        "llm-generate --base-url http://127.0.0.1:11434/v1 --model qwen3 project",
    ];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let (options, asking) = self.options_and_asker(at)?;
        let store = GenerateStore::open(asking.asker, options, at.owner)?;
        Ok(OpenedStore {
            server: asking.server,
            notes: asking.note.into_iter().collect(),
            read_only: store.read_only().map(str::to_owned),
            ..OpenedStore::of(store, Self::NAME)
        })
    }
}

impl GenerateMountOptions {
    fn options_and_asker(&self, at: MountPoint<'_>) -> anyhow::Result<(GenerateOptions, MountAsker)> {
        let tree = match &self.tree {
            Some(path) => {
                let text = inputs::read(path)?;
                Some(parse_tree(&text).with_context(|| path.display().to_string())?)
            }
            None => None,
        };
        let first = |names: [&str; 2]| names.into_iter().find_map(variable);
        let prompt = self.prompt.clone().or_else(|| first(PROMPT_VARIABLES));
        let named = self.cache_folder.clone();
        let folder = named
            .or_else(|| first(CACHE_VARIABLES).map(PathBuf::from))
            .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".ctxbench.cache")))
            // Not in a world-writable directory: another user could create it first, with forged answers.
            .unwrap_or_else(|| at.beside(".llmfs.cache"));
        let save = self.save.clone().unwrap_or_else(|| at.beside(".llmfs.json"));
        let mut generators = Generators::standard();
        let commands =
            self.generator.iter().map(|file| CommandGenerator::read(file, launcher()?).map_err(anyhow::Error::from));
        let commands = commands.collect::<anyhow::Result<Vec<_>>>()?;
        for (at, (command, file)) in commands.iter().zip(&self.generator).enumerate() {
            if let Some(first) = commands[..at].iter().position(|other| other.name() == command.name()) {
                let (name, file, first) = (command.name(), file.display(), self.generator[first].display());
                bail!("{file}: field `name`: {first} also defines {name}\n  fix: give one of them another name");
            }
        }
        let asking = self.model.asker(at)?;
        for (command, file) in commands.into_iter().zip(&self.generator) {
            let (name, file) = (command.name(), file.display());
            let line = format!("generator {name}: the command of {file}, and no model");
            asking.asker.log(&line);
            generators = generators.with(command);
        }
        if prompt.is_some() && tree.is_none() && !save.exists() {
            daemon_log::say(format_args!("asking {} for the tree …", asking.asker.model()));
        }
        let options = GenerateOptions {
            prompt,
            tree,
            save: Some(save),
            generators,
            cache: AnswerCache::new(folder, &asking.identity, !self.no_cache),
            context_bytes: self.context_bytes,
        };
        Ok((options, asking))
    }
}
