//! How long it takes to write a note, to search and to recall, by how many notes there are.
//!
//! In every round all sizes take their turn in random order: in this process, with the index as it was written and
//! merged, and through a mount. A block is a few calls of each kind; its median is the sample. The same may be asked
//! twice, but something has changed before each call, so no answer is one that was given before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backends::agent_memory::AgentMemory;
use backends::backend::{self, Site, Workspace};
use backends::store::{Change, ROOT, Store, Timestamp};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use stats::{Interval, mean_with_interval};
use workloads::generate::notes::{Notebook, notebook};

use super::{ask, caller, encoded, fill, node};
use crate::interrupt::Interrupt;

/// Calls of each kind in a block.
const CALLS: usize = 32;

/// Words that are in many notes.
const COMMON: [&str; 10] = [
    "meeting",
    "customer",
    "test",
    "cache",
    "logs",
    "plan",
    "review",
    "build",
    "dashboard",
    "deploys",
];

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Item {
    /// Create a note, write about 100 bytes, close: then it is found.
    Remember,
    /// `:search` for a subject and an attribute.
    Search,
    /// `:search` for two words that are each in a tenth of the notes or more.
    SearchCommon,
    /// `:recall` of 2,000 tokens for a question.
    Recall,
    /// `:recall` of 2,000 tokens for three words that are in many notes.
    RecallCommon,
}

/// All of them, in the order of tables.
pub const ITEMS: [Item; 5] = [
    Item::Remember,
    Item::Search,
    Item::SearchCommon,
    Item::Recall,
    Item::RecallCommon,
];

impl Item {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remember => "remember",
            Self::Search => "search",
            Self::SearchCommon => "search, common words",
            Self::Recall => "recall",
            Self::RecallCommon => "recall, common words",
        }
    }
}

/// Where the calls come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The store, called in this process, with its index as it was written.
    Unmerged,
    /// The store, called in this process.
    InProcess,
    /// A mount that another process serves.
    Mount,
}

/// The samples of one kind of call: medians of blocks in milliseconds, by round.
pub type Samples = BTreeMap<(Place, usize, Item), Vec<f64>>;

/// One size, in all places.
struct Arm {
    notes: usize,
    memory: AgentMemory,
    unmerged: AgentMemory,
    workspace: Box<dyn Workspace>,
    notebook: Notebook,
}

/// Takes all samples.
///
/// # Errors
/// If a memory cannot be filled or mounted, a call fails, or the user interrupts.
pub fn measure(
    sizes: &[usize],
    rounds: u32,
    seed: u64,
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Samples> {
    let mut arms = Vec::new();
    for size in sizes {
        arms.push(arm(*size, seed, scratch, interrupt)?);
    }
    for arm in &arms {
        merged(arm, interrupt)?;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut samples = Samples::new();
    let mut serial = 0;
    for round in 0..=rounds {
        let mut order: Vec<(usize, Place)> = (0..arms.len())
            .flat_map(|arm| {
                [Place::Unmerged, Place::InProcess, Place::Mount].map(|place| (arm, place))
            })
            .collect();
        order.shuffle(&mut rng);
        for (number, place) in order {
            let arm = &mut arms[number];
            for item in ITEMS {
                if interrupt.is_set() {
                    bail!("interrupted");
                }
                let median = block(arm, place, item, &mut serial, &mut rng)?;
                // The first round warms up.
                if round > 0 {
                    samples
                        .entry((place, arm.notes, item))
                        .or_default()
                        .push(median);
                }
            }
        }
        eprintln!("ctxbench: round {round} of {rounds}");
    }
    for arm in arms {
        arm.workspace.close()?;
    }
    Ok(samples)
}

fn arm(size: usize, seed: u64, scratch: &Path, interrupt: &Interrupt) -> anyhow::Result<Arm> {
    let notebook = notebook(size, seed);
    let dir = scratch.join(size.to_string());
    std::fs::create_dir_all(dir.join("mnt"))?;
    let path = dir.join("in-process.db");
    drop(fill(&path, &notebook, interrupt)?);
    std::fs::copy(&path, dir.join("store.db")).context("copying the database")?;
    let now = notebook.now;
    let unmerged = dir.join("unmerged.db");
    std::fs::copy(&path, &unmerged).context("copying the database")?;
    let open =
        |path: &Path| AgentMemory::open_at(path, &caller(now), None, Box::new(Timestamp::now));
    let memory = open(&path)?;
    let mut unmerged = open(&unmerged)?;
    unmerged.stop_merging();
    let site = Site {
        dir,
        program: std::env::current_exe()?,
        patience: Duration::from_secs(60),
        cpu: None,
        allow_other: false,
    };
    let workspace = backend::find("agent-memory")?.open(&site)?;
    Ok(Arm {
        notes: size,
        memory,
        unmerged,
        workspace,
        notebook,
    })
}

impl Arm {
    /// The store of a place in this process; `None` for a mount.
    fn store(&self, place: Place) -> Option<&AgentMemory> {
        match place {
            Place::Unmerged => Some(&self.unmerged),
            Place::InProcess => Some(&self.memory),
            Place::Mount => None,
        }
    }
}

/// Waits until nothing more of an arm's index is merged, which begins when it has been quiet for half a second.
fn merged(arm: &Arm, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut seen = None;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        let mount = std::fs::read_to_string(arm.workspace.root().join(":stats"))?;
        let segments = [ask(&arm.memory, ":stats")?, mount].map(|stats| {
            let line = stats
                .lines()
                .find(|line| line.starts_with("index-segments"));
            line.map(str::to_owned)
        });
        if seen.as_ref() != Some(&segments) {
            seen = Some(segments);
            since = Instant::now();
        }
        if interrupt.is_set() {
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if let Some([in_process, mount]) = seen {
        let show = |line: Option<String>| line.unwrap_or_default();
        let unmerged = ask(&arm.unmerged, ":stats")?;
        let unmerged = unmerged
            .lines()
            .find(|line| line.starts_with("index-segments"));
        eprintln!(
            "ctxbench: {} notes: as written {}; merged {}; mount {}",
            arm.notes,
            unmerged.unwrap_or_default(),
            show(in_process),
            show(mount)
        );
    }
    Ok(())
}

/// The median of a block in milliseconds.
fn block(
    arm: &mut Arm,
    place: Place,
    item: Item,
    serial: &mut u64,
    rng: &mut ChaCha8Rng,
) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(CALLS);
    let mut written: Vec<PathBuf> = Vec::new();
    for _ in 0..CALLS {
        *serial += 1;
        let question = arm
            .notebook
            .questions
            .choose(rng)
            .context("there are no questions")?;
        let common = COMMON.sample(rng, 3).copied().collect::<Vec<_>>();
        let request = match item {
            Item::Remember => {
                let name = format!("measured-{serial}.md");
                let text = format!(
                    "Measured note {serial}: {} {} {} {}\n{}\n",
                    common[0],
                    common[1],
                    common[2],
                    rng.random_range(0..1_000_000),
                    question.text,
                );
                times.push(remember(arm, place, &name, &text)?);
                written.push(name.into());
                continue;
            }
            Item::Search => format!(":search?{}&limit={}", encoded(&question.keywords), 20),
            Item::SearchCommon => format!(":search?{}+{}", common[0], common[1]),
            Item::Recall => format!(":recall?query={}&max_tokens=2000", encoded(&question.text)),
            Item::RecallCommon => format!(
                ":recall?query={}+{}+{}&max_tokens=2000",
                common[0], common[1], common[2]
            ),
        };
        // Another change before each, untimed, so that no answer stands from before.
        touch(arm, place)?;
        let started = Instant::now();
        let answer = match arm.store(place) {
            Some(store) => ask(store, &request)?,
            None => std::fs::read_to_string(arm.workspace.root().join(&request))
                .with_context(|| format!("reading {request}"))?,
        };
        times.push(started.elapsed());
        if answer.is_empty() {
            bail!("{request} was answered with nothing");
        }
    }
    forget(arm, place, &written)?;
    times.sort();
    Ok(times[CALLS / 2].as_secs_f64() * 1e3)
}

/// Changes the attributes of the root: that makes no note stale, and no answer stand.
fn touch(arm: &Arm, place: Place) -> anyhow::Result<()> {
    let now = Timestamp::now();
    match arm.store(place) {
        Some(store) => {
            let change = Change {
                mtime: Some(now),
                ..Change::default()
            };
            store.setattr(&caller(now.0), ROOT, &change)?;
            store.close(ROOT)?;
        }
        None => {
            let root = arm.workspace.root();
            std::fs::File::open(root)?.set_modified(now.into())?;
            // A file that is closed is when the store looks for what has changed.
            let note = arm.notebook.notes.first().context("there are no notes")?;
            drop(std::fs::File::open(root.join(&note.path))?);
        }
    }
    Ok(())
}

fn remember(arm: &Arm, place: Place, name: &str, text: &str) -> anyhow::Result<Duration> {
    let path = arm.workspace.root().join(name);
    let started = Instant::now();
    match arm.store(place) {
        Some(store) => {
            let caller = caller(Timestamp::now().0);
            let file = node(backends::store::Kind::File);
            let made = store.create(&caller, ROOT, name.as_bytes(), &file)?;
            store.write(&caller, made.ino, 0, text.as_bytes())?;
            store.close(made.ino)?;
        }
        None => std::fs::write(&path, text)?,
    }
    Ok(started.elapsed())
}

/// Takes away what a block has written: the sizes stay what they are.
fn forget(arm: &Arm, place: Place, written: &[PathBuf]) -> anyhow::Result<()> {
    for name in written {
        match arm.store(place) {
            Some(store) => {
                let caller = caller(Timestamp::now().0);
                let name = name.as_os_str().as_encoded_bytes();
                if let Some(ino) = store.unlink(&caller, ROOT, name)? {
                    store.reclaim(ino)?;
                }
            }
            None => std::fs::remove_file(arm.workspace.root().join(name))?,
        }
    }
    match arm.store(place) {
        Some(store) => store.close(ROOT)?,
        // Asking brings the index up to date.
        None => drop(std::fs::read(arm.workspace.root().join(":stats"))?),
    }
    Ok(())
}

/// Mean and interval of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The mean of the blocks' medians.
    pub mean: f64,
    /// Its interval; `None` with too few rounds.
    pub interval: Option<Interval>,
}

impl Figure {
    /// Of samples.
    pub fn of(samples: &[f64]) -> Self {
        let (mean, interval) = mean_with_interval(samples).unwrap_or_default();
        Self { mean, interval }
    }

    /// As text, in some unit.
    pub fn show(&self, digits: usize) -> String {
        match self.interval {
            Some(Interval { low, high }) => {
                format!("{:.digits$} [{low:.digits$}, {high:.digits$}]", self.mean)
            }
            None => format!("{:.digits$}", self.mean),
        }
    }
}

/// How much longer a kind of call takes at one size than at another, round by round.
pub fn ratio(
    samples: &Samples,
    place: Place,
    item: Item,
    (size, to): (usize, usize),
) -> Option<Figure> {
    let at = |size: usize| samples.get(&(place, size, item));
    let (here, there) = (at(size)?, at(to)?);
    let ratios: Vec<f64> = here
        .iter()
        .zip(there)
        .map(|(here, there)| here / there)
        .collect();
    Some(Figure::of(&ratios))
}
