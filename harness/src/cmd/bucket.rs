//! `ctxbench bucket`: what the `s3` backend costs beyond the bare requests of its own client.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use backends::s3::BareClient;
use backends::s3_service::address;
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use reports::render;
use stats::mean_with_interval;

use crate::attribute;
use crate::host::{self, Host, Memory};
use crate::interrupt::Interrupt;
use crate::scratch::ScratchDir;

/// Files that are synced at once, as in the published tables.
const DIRTY: usize = 100;

/// Files in the directory that is listed.
const LISTED: usize = 1000;

/// Requests or files of one kind in a row.
const CALLS: usize = 8;

/// Hold the s3 backend against bare requests, at several round-trip times. About four minutes.
///
/// In every round, in random order: a PUT of 1 KiB by the bare client, and a file of 1 KiB written and synced to the
/// bucket through a mount; a GET, and the first read of a file that another host wrote; the LIST requests of a
/// directory of 1,000 files, by a client with an open connection and by one that has just been made, the time from
/// starting a host without a cache to having listed it, and the time of that listing alone; 100 PUTs one after the
/// other, and 100 dirty files synced at once. A round-trip time is added by a proxy.
#[derive(Debug, Args)]
pub struct Bucket {
    /// Round-trip times to add, in milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 30, 150])]
    rtt: Vec<u32>,
    /// Rounds; at 30 ms and more, a third of them.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The server [default: MinIO where it is installed, else the embedded one].
    #[arg(long)]
    server: Option<String>,
    /// The seed of the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the hosts keep their caches [default: as `run`].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// How long a writer that is left alone takes to tell others what it wrote.
const SETTLED: Duration = Duration::from_millis(600);

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Put,
    PutNew,
    WriteSynced,
    Get,
    FirstRead,
    List,
    /// By a client that has yet to connect.
    ColdList,
    ColdListing,
    /// The part of [`Item::ColdListing`] after the mount is ready.
    ListingAlone,
    PutsInARow,
    SyncDirty,
}

const ITEMS: [Item; 10] = [
    Item::Put,
    Item::PutNew,
    Item::WriteSynced,
    Item::Get,
    Item::FirstRead,
    Item::List,
    Item::ColdList,
    Item::ColdListing,
    Item::PutsInARow,
    Item::SyncDirty,
];

/// What is held against what.
const PAIRS: [(&str, Item, Item); 7] = [
    (
        "write 1 KiB + fsync, in the bucket / one PUT",
        Item::WriteSynced,
        Item::Put,
    ),
    (
        "the same / one PUT that must find nothing there",
        Item::WriteSynced,
        Item::PutNew,
    ),
    ("first read of 1 KiB / one GET", Item::FirstRead, Item::Get),
    (
        "list 1,000 files, once mounted / their LIST requests",
        Item::ListingAlone,
        Item::List,
    ),
    (
        "mount and list 1,000 files / the same requests",
        Item::ColdListing,
        Item::List,
    ),
    (
        "the same / the same by a client that has yet to connect",
        Item::ColdListing,
        Item::ColdList,
    ),
    (
        "sync of 100 dirty files / 100 PUTs in a row",
        Item::SyncDirty,
        Item::PutsInARow,
    ),
];

impl Bucket {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch()?;
        let server = host::server(self.server.as_deref())?;
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        let mut rows = Vec::new();
        for rtt in &self.rtt {
            let rounds = if *rtt >= 30 {
                self.rounds.div_ceil(3)
            } else {
                self.rounds
            };
            let dir = scratch.path().join(format!("rtt-{rtt}"));
            let memory = Memory {
                address: address(&std::env::current_exe()?, server, *rtt)?,
                prefix: format!("ctxbench-bucket/{}/", std::process::id()),
            };
            let mut lab = Lab::prepare(&memory, &dir)?;
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            let mut times: BTreeMap<Item, Vec<f64>> = BTreeMap::new();
            for round in 0..rounds {
                let mut order = ITEMS;
                order.shuffle(&mut rng);
                for item in order {
                    if interrupt.is_set() {
                        bail!("interrupted");
                    }
                    times.entry(item).or_default().push(lab.time(item)?);
                    if item == Item::ColdListing {
                        let alone = times.entry(Item::ListingAlone).or_default();
                        alone.push(lab.listing_alone);
                    }
                }
                eprint!(
                    "\rround-trip time {rtt} ms: round {} of {rounds} ",
                    round + 1
                );
                let _ = std::io::stderr().flush();
            }
            eprintln!();
            for (what, candidate, baseline) in PAIRS {
                rows.push(row(*rtt, what, &times[&candidate], &times[&baseline]));
            }
            println!(
                "at {rtt} ms: mounting without a cache and listing {LISTED} files took {} requests, \
                 the listing itself {}; a file written and synced {:.2}, one of {DIRTY} dirty files {:.2}",
                lab.cold_requests, lab.listing_requests, lab.write_requests, lab.dirty_requests
            );
        }
        let head = [
            "added RTT",
            "what / what",
            "s3",
            "bare",
            "ratio (99 % interval)",
            "rounds",
        ];
        print!("{}", render::table(&head, &rows));
        Ok(ExitCode::SUCCESS)
    }
}

fn row(rtt: u32, what: &str, candidate: &[f64], baseline: &[f64]) -> Vec<String> {
    let ratios: Vec<f64> = candidate
        .iter()
        .zip(baseline)
        .map(|(candidate, baseline)| (candidate / baseline).ln())
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let typical = |values: &[f64]| {
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        render::time(mean(&logs).exp() * 1e9)
    };
    let interval = match mean_with_interval(&ratios).and_then(|(_, interval)| interval) {
        Some(interval) => {
            let interval = interval.map(f64::exp);
            format!(" [{:.3}, {:.3}]", interval.low, interval.high)
        }
        None => " (too few rounds for an interval)".to_owned(),
    };
    vec![
        format!("{rtt} ms"),
        what.to_owned(),
        typical(candidate),
        typical(baseline),
        format!("×{:.3}{interval}", mean(&ratios).exp()),
        ratios.len().to_string(),
    ]
}

/// What all rounds at one round-trip time share.
struct Lab<'a> {
    memory: &'a Memory,
    dir: &'a Path,
    bare: BareClient,
    /// Writes; its fsync waits for the bucket.
    writer: Host,
    /// Reads what `writer` wrote.
    reader: Host,
    next: usize,
    /// Files that `reader` has not read yet.
    unread: usize,
    cold_requests: u64,
    listing_requests: u64,
    listing_alone: f64,
    write_requests: f64,
    dirty_requests: f64,
}

impl<'a> Lab<'a> {
    fn prepare(memory: &'a Memory, dir: &'a Path) -> anyhow::Result<Self> {
        let host =
            |name: &str, options: &[&str]| Host::mount(memory, name, &dir.join(name), options);
        let writer = host(
            "writer",
            &["--sync", "fsync", "--delay", "60000", "--poll", "60000"],
        )?;
        std::fs::create_dir(writer.root().join("listed"))?;
        for at in 0..LISTED {
            std::fs::write(writer.root().join(format!("listed/f{at}")), [7; 1024])?;
        }
        std::fs::create_dir(writer.root().join("unread"))?;
        writer.sync()?;
        std::thread::sleep(SETTLED);
        let reader = host("reader", &["--poll", "60000"])?;
        let mut config = memory.config()?;
        config.prefix = format!("{}bare/", memory.prefix);
        let bare = BareClient::open(&config)?;
        bare.put(&format!("{}bare/get", memory.prefix), vec![7; 1024])?;
        Ok(Self {
            memory,
            dir,
            bare,
            writer,
            reader,
            next: 0,
            unread: 0,
            cold_requests: 0,
            listing_requests: 0,
            listing_alone: 0.0,
            write_requests: 0.0,
            dirty_requests: 0.0,
        })
    }

    fn new_name(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Seconds for one of what `item` is, or for all of it where it is one thing.
    fn time(&mut self, item: Item) -> anyhow::Result<f64> {
        match item {
            Item::Put => self.each(|lab| {
                let key = format!("{}bare/{}", lab.memory.prefix, lab.new_name());
                Ok(lab.bare.put(&key, vec![7; 1024])?)
            }),
            Item::PutNew => self.each(|lab| {
                let key = format!("{}bare/{}", lab.memory.prefix, lab.new_name());
                Ok(lab.bare.put_new(&key, vec![7; 1024])?)
            }),
            Item::WriteSynced => {
                let before = self.writer.requests()?;
                let took = self.each(|lab| {
                    let name = format!("w{}", lab.new_name());
                    let path = lab.writer.root().join(name);
                    let mut file = std::fs::File::create(path)?;
                    file.write_all(&[7; 1024])?;
                    Ok(file.sync_all()?)
                });
                self.write_requests = (self.writer.requests()? - before) as f64 / CALLS as f64;
                took
            }
            Item::Get => self.each(|lab| {
                lab.bare.get(&format!("{}bare/get", lab.memory.prefix))?;
                Ok(())
            }),
            Item::FirstRead => {
                let first = self.unread;
                let path = |at: usize| format!("unread/u{at}");
                for at in first..first + CALLS {
                    std::fs::write(self.writer.root().join(path(at)), [7; 1024])?;
                }
                self.writer.sync()?;
                // The reader looks now, not when its time comes.
                attribute::get(self.reader.root(), "user.ctx.pull")?;
                self.unread += CALLS;
                let mut at = first;
                self.each(|lab| {
                    let content = std::fs::read(lab.reader.root().join(path(at)))?;
                    at += 1;
                    if content != [7; 1024] {
                        bail!("{} does not hold what was written", path(at - 1));
                    }
                    Ok(())
                })
            }
            Item::List => self.list(&self.bare),
            Item::ColdList => self.list(&BareClient::open(&self.memory.config()?)?),
            Item::ColdListing => {
                let dir = self.dir.join(format!("cold-{}", self.new_name()));
                // The host comes when the writer has told others what it wrote.
                self.writer.sync()?;
                std::thread::sleep(SETTLED);
                let started = Instant::now();
                let host = Host::mount(self.memory, "cold", &dir, &["--poll", "60000"])?;
                let mounting = host.requests()?;
                let mounted = Instant::now();
                let mut count = 0;
                for entry in std::fs::read_dir(host.root().join("listed"))? {
                    entry?.metadata()?;
                    count += 1;
                }
                let took = started.elapsed().as_secs_f64();
                self.listing_alone = mounted.elapsed().as_secs_f64();
                if count != LISTED {
                    bail!("the mount lists {count} of {LISTED} files");
                }
                self.cold_requests = host.requests()?;
                self.listing_requests = self.cold_requests - mounting;
                Ok(took)
            }
            // Measured with the mount before it.
            Item::ListingAlone => Ok(self.listing_alone),
            Item::PutsInARow => {
                let name = self.new_name();
                let started = Instant::now();
                for at in 0..DIRTY {
                    let key = format!("{}bare/{name}-{at}", self.memory.prefix);
                    self.bare.put(&key, vec![7; 1024])?;
                }
                Ok(started.elapsed().as_secs_f64())
            }
            Item::SyncDirty => {
                let name = self.new_name();
                let dir = self.writer.root().join(format!("d{name}"));
                std::fs::create_dir(&dir)?;
                for at in 0..DIRTY {
                    std::fs::write(dir.join(format!("f{at}")), [7; 1024])?;
                }
                let before = self.writer.requests()?;
                let started = Instant::now();
                self.writer.sync()?;
                let took = started.elapsed().as_secs_f64();
                self.dirty_requests = (self.writer.requests()? - before) as f64 / DIRTY as f64;
                Ok(took)
            }
        }
    }

    /// Seconds for the LIST requests of a directory.
    fn list(&self, client: &BareClient) -> anyhow::Result<f64> {
        let prefix = format!("{}agents/agent/listed/", self.memory.prefix);
        let started = Instant::now();
        let count = client.list(&prefix)?;
        if count != LISTED {
            bail!("the server lists {count} of {LISTED} objects");
        }
        Ok(started.elapsed().as_secs_f64())
    }

    /// Seconds for one of several in a row.
    fn each(
        &mut self,
        mut work: impl FnMut(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let started = Instant::now();
        for _ in 0..CALLS {
            work(self)?;
        }
        Ok(started.elapsed().as_secs_f64() / CALLS as f64)
    }
}
