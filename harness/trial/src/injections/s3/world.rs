//! The environment of an S3 fault: a server, a fault proxy before it, and another host that bypasses the
//! proxy.
//! The faults live in the sibling modules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use arms::backend::{Launch, Workspace, WorkspaceConfig};
use arms::promise::Acknowledgement;
use rundir::faults::{Fact, MACHINE_LOSS, Return};
use s3_store::BucketMount;
use servers::{AnswerStatus, BUCKET, FaultProxy, Operation, Rule, SeenRequest, Server, ServerKind, ServerOptions};
use tokio::runtime::Runtime;

use super::super::super::agent::{FileSeries, Job, JobAnswer};
use super::super::super::bed::{ScenarioError, StepResult, TestBed, infra, skipped};

/// The prefix of every object key.
const PREFIX: &str = "faults/";

/// Name of the cache and journal of a mount, and prefix of the files beside it.
const CACHE: &str = "cache.s3.db";

/// Seconds that a call may take beyond the time limit of its request, within the scenario's hang limit.
const SLACK: f64 = 2.0;

/// A server, a proxy and another host for one scenario.
pub struct BucketWorld {
    // Declared first, so that the proxy is dropped before its server.
    pub proxy: FaultProxy,
    server: Option<Server>,
    options: ServerOptions,
    keys: (String, String),
    endpoint: String,
    region: String,
    /// The mount of the other host.
    other: Option<Box<dyn Workspace>>,
    other_config: WorkspaceConfig,
    runtime: Runtime,
    /// Options of the test bed's mounts.
    more: Vec<String>,
    /// The number of requests that the proxy had seen when the server began with its present bucket.
    before: usize,
}

/// The kind of server that a backend's name denotes.
fn kind(backend: &str) -> StepResult<ServerKind> {
    let kinds = ServerKind::ALL.into_iter();
    let mut found = kinds.filter(|kind| backend.split(['-', '@']).any(|part| part == kind.name()));
    match found.next() {
        Some(kind) => Ok(kind),
        None => skipped(format!("the server of {backend} is not ours: it is not broken on purpose")),
    }
}

impl BucketWorld {
    /// Starts the server and the proxy, and routes the test bed's mounts, which get `options`, through the proxy.
    pub fn start(bed: &mut TestBed, options: &[&str]) -> StepResult<Self> {
        let more = options.iter().map(|option| (*option).to_owned()).collect();
        let name = bed.backend.describe().name;
        let kind = kind(&name)?;
        let found = kind.find().map_err(|missing| ScenarioError::Skipped(missing.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let dir = bed.config.dir.join("server");
        std::fs::create_dir_all(&dir)?;
        let us = bed.config.program.clone();
        let parent = std::process::id().to_string();
        let mut options = ServerOptions {
            server: found,
            dir,
            port: 0,
            rtt: Duration::ZERO,
            keys: None,
            launcher: vec![us.into(), "with-parent".into(), parent.into()],
        };
        let server = runtime.block_on(servers::start(options.clone())).with_context(|| format!("starting {kind}"))?;
        let access = server.access().clone();
        let upstream: SocketAddr =
            access.endpoint.trim_start_matches("http://").parse().with_context(|| access.endpoint.clone())?;
        options.port = upstream.port();
        options.keys = Some((access.access_key.clone(), access.secret_key.clone()));
        let proxy = FaultProxy::start(0, upstream).context("starting the proxy")?;
        let mut other_config = bed.config.clone();
        other_config.dir = bed.config.dir.join("other");
        std::fs::create_dir_all(&other_config.dir)?;
        let world = Self {
            proxy,
            server: Some(server),
            options,
            keys: (access.access_key, access.secret_key),
            endpoint: access.endpoint,
            region: access.region,
            other: None,
            other_config,
            runtime,
            more,
            before: 0,
        };
        let mut launch = world.launch(bed, &world.proxy.endpoint(), "main", cache(&bed.config));
        launch.arguments.extend(world.more.iter().map(Into::into));
        bed.backend = bed.with_launch(launch)?.into();
        Ok(world)
    }

    /// Time limit, in seconds, of a request of the test bed's mounts.
    pub fn timeout(bed: &TestBed) -> u64 {
        (bed.scenario.limits.hang - SLACK).max(1.0) as u64
    }

    fn launch(&self, bed: &TestBed, endpoint: &str, writer: &str, cache: PathBuf) -> Launch {
        let mount = BucketMount {
            endpoint,
            region: &self.region,
            bucket: BUCKET,
            prefix: PREFIX,
            cache: &cache,
            writer: Some(writer),
            keys: Some(self.keys.clone()),
        };
        let mut launch = mount.launch();
        let timeout = Self::timeout(bed).to_string();
        let options = &mut launch.arguments;
        options.extend(["--timeout".into(), timeout.into()]);
        if bed.backend.describe().name.starts_with("s3-fsync") {
            options.extend(["--sync".into(), "fsync".into()]);
        }
        launch
    }

    // ── The fault ──────────────────────────────────────────────────────────────────────────────

    /// Kills the server. The proxy refuses connections, as the server's own port then does.
    pub fn kill_server(&mut self) -> StepResult {
        self.partition(true)?;
        if let Some(server) = self.server.take() {
            let killed = self.runtime.block_on(server.kill());
            killed.context("killing the server")?;
        }
        Ok(())
    }

    /// Restarts the server with its data, or empty.
    pub fn start_server(&mut self, empty: bool) -> StepResult {
        if empty {
            std::fs::remove_dir_all(&self.options.dir)?;
            std::fs::create_dir_all(&self.options.dir)?;
            self.before = self.proxy.seen().len();
        }
        let started = servers::start(self.options.clone());
        let started = self.runtime.block_on(started);
        self.server = Some(started.context("starting the server again")?);
        self.partition(false)
    }

    /// Makes the proxy refuse or accept connections.
    pub fn partition(&self, is_cut: bool) -> StepResult {
        Ok(self.proxy.partition(is_cut).context("the partition")?)
    }

    pub fn set(&self, rules: Vec<Rule>) {
        self.proxy.set(rules);
    }

    /// Records how many requests the active rules hit. Zero is an error, because the scenario would then
    /// prove nothing.
    pub fn fired(&self, bed: &mut TestBed) -> StepResult {
        let hits = self.hits();
        bed.count("requests_hit", hits);
        if hits == 0 {
            return infra("the fault hit no request");
        }
        Ok(())
    }

    /// How many requests the active rules hit.
    pub fn hits(&self) -> u64 {
        self.proxy.fired().iter().map(|fired| fired.done).sum()
    }

    // ── Checks of uploads ──────────────────────────────────────────────────────────────────────

    /// The requests of the test bed's mounts for objects of the log in the present bucket.
    fn requests_of_log(&self) -> impl Iterator<Item = SeenRequest> {
        let seen = self.proxy.seen().into_iter().skip(self.before);
        seen.filter(|seen| seen.path.contains("/.ctx/"))
    }

    /// How many commits the server has created.
    pub fn commits(&self) -> u64 {
        self.created("/.ctx/log/")
    }

    /// How many checkpoints the server has created.
    pub fn checkpoints(&self) -> u64 {
        self.created("/.ctx/checkpoint/")
    }

    fn created(&self, below: &str) -> u64 {
        let requests = self.requests_of_log();
        requests.filter(|seen| is_creation(seen) && seen.path.contains(below)).count() as u64
    }

    /// Checks that no object of the log was written twice, or written or deleted by anything but a PUT.
    pub fn check_keys(&self, bed: &mut TestBed) -> StepResult {
        let mut created: BTreeMap<String, u64> = BTreeMap::new();
        let mut others = 0;
        for seen in self.requests_of_log() {
            match seen.operation {
                Operation::Get | Operation::List => {}
                Operation::Put if is_creation(&seen) => {
                    *created.entry(seen.path).or_default() += 1;
                }
                Operation::Put => {}
                _ => others += 1,
            }
        }
        bed.count("objects_created", created.len() as u64);
        bed.count("commits", self.commits());
        let twice: Vec<&str> = created.iter().filter(|(_, times)| **times > 1).map(|(path, _)| path.as_str()).collect();
        if !twice.is_empty() {
            bed.breach(format!("objects of the log were written twice: {}", twice.join(", ")));
        }
        if others > 0 {
            bed.breach(format!("{others} requests on objects of the log were neither GET nor PUT"));
        }
        if created.is_empty() { infra("the mount has created no object") } else { Ok(()) }
    }

    // ── The other host ─────────────────────────────────────────────────────────────────────────

    /// The directory of the other host, which is mounted at the first call.
    pub fn elsewhere(&mut self, bed: &TestBed) -> StepResult<PathBuf> {
        if self.other.is_none() {
            let launch = self.launch(bed, &self.endpoint, "other", cache(&self.other_config));
            let opened = bed.with_launch(launch)?.open(&self.other_config);
            self.other = Some(opened.context("the other host's mount")?);
        }
        let root = self.other.as_ref().map(|other| other.root().to_owned());
        Ok(root.unwrap_or_default())
    }

    /// Makes the other host write a series, and waits until the test bed's mount shows it.
    pub fn others_write(&mut self, bed: &mut TestBed, series: &FileSeries) -> StepResult {
        let there = self.elsewhere(bed)?;
        whole(bed, &there, &Job::WriteSeries(series.clone()))?;
        sync(bed, there)?;
        let awaited = whole(bed, bed.root(), &Job::AwaitSeries(series.clone()))?;
        match awaited.count("awaited") {
            count if count == series.files => Ok(()),
            count => infra(format!("{count} of {} files of another host were seen", series.files)),
        }
    }

    /// Kills the daemon as soon as the bucket has acknowledged everything, so that nothing is uploaded afterwards. Then
    /// mounts without a cache and without the proxy, as a new machine would, and audits what that shows. Acknowledged is
    /// what `ctxbench s3 sync` has returned for, or `fsync` where it promises the bucket.
    pub fn lose_machine(&self, bed: &mut TestBed) -> StepResult {
        self.lose_machine_behind(bed, &self.endpoint)
    }

    /// As [`BucketWorld::lose_machine`], with a new machine that reaches the server by `endpoint`.
    pub fn lose_machine_behind(&self, bed: &mut TestBed, endpoint: &str) -> StepResult {
        let acknowledged = match bed.backend.promises().machine_loss {
            Some(Acknowledgement::Fsync) => {
                // The last changes before the loss, which no sync follows.
                bed.write(5)?;
                bed.kill_daemon()?;
                Acknowledgement::Fsync
            }
            _ => {
                if let Err(error) = bed.sync_and_kill()? {
                    return infra(format!("sync before the machine was lost: {error}"));
                }
                Acknowledgement::Sync
            }
        };
        bed.dismiss_agent();
        bed.workspace = None;
        for entry in std::fs::read_dir(&bed.config.dir)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(CACHE) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?
            } else {
                std::fs::remove_file(entry.path())?
            }
        }
        let launch = self.launch(bed, endpoint, "new-machine", cache(&bed.config));
        bed.backend = bed.with_launch(launch)?.into();
        bed.open()?;
        bed.audit_as(MACHINE_LOSS, Some(acknowledged))
    }
}

impl Drop for BucketWorld {
    fn drop(&mut self) {
        self.other = None;
        if let Some(server) = self.server.take() {
            // If this fails, dropping the server kills it.
            let _ = self.runtime.block_on(server.stop());
        }
    }
}

/// Whether the server created an object.
fn is_creation(seen: &SeenRequest) -> bool {
    seen.operation == Operation::Put && matches!(seen.answered, AnswerStatus::Status(200..=299))
}

/// Path of the cache of a mount of `config`.
fn cache(config: &WorkspaceConfig) -> PathBuf {
    config.dir.join(CACHE)
}

/// Performs a job while no fault is active. A failure is then the harness's.
pub fn whole(bed: &mut TestBed, at: impl AsRef<Path>, job: &Job) -> StepResult<JobAnswer> {
    let answer = bed.perform(at, job)?;
    let answer = answer.context("without a fault, the agent hung or ended")?;
    match answer.failure() {
        Some(failure) => infra(format!("without a fault, {failure}")),
        None => Ok(answer),
    }
}

/// Writes a series in the test bed's mount while no fault is active.
pub fn write(bed: &mut TestBed, series: &FileSeries) -> StepResult {
    whole(bed, bed.root(), &Job::WriteSeries(series.clone())).map(drop)
}

/// Reads a series in the test bed's mount while no fault is active.
pub fn read(bed: &mut TestBed, series: &FileSeries) -> StepResult {
    whole(bed, bed.root(), &Job::ReadSeries(series.clone())).map(drop)
}

/// The names in a directory, while no fault is active.
pub fn names(bed: &mut TestBed, dir: impl AsRef<Path>) -> StepResult<Vec<String>> {
    let names = whole(bed, dir, &Job::List)?.words("names");
    Ok(names.lines().map(str::to_owned).collect())
}

/// Runs `ctxbench s3 sync` while no fault is active.
pub fn sync(bed: &mut TestBed, root: impl AsRef<Path>) -> StepResult {
    whole(bed, root, &Job::Sync).map(drop)
}

/// Polls until the mount reports no pending changes, within the scenario's recovery limit. The mount has to
/// get there by itself. Otherwise `ctxbench s3 sync` is the manual step. Returns false if that fails, too.
pub fn recover(bed: &mut TestBed) -> StepResult<bool> {
    let limit = Duration::from_secs_f64(bed.scenario.limits.recovery);
    let started = Instant::now();
    let mut last = "the number of pending changes is not known".to_owned();
    let is_by_itself = bed.wait_until(limit, Duration::from_millis(100), |bed| {
        let answer = bed.try_out(bed.root(), &Job::Pending)?;
        let pending = answer.and_then(|mut answer| answer.facts.remove("pending"));
        if let Some(pending) = &pending {
            last = format!("{pending} changes were missing");
        }
        Ok(pending == Some(Fact::Count(0)))
    })?;
    let after = started.elapsed();
    let failed = match bed.perform(bed.root(), &Job::Sync)? {
        None => Some("sync hung".to_owned()),
        Some(answer) => answer.failures.into_iter().next().map(|failure| failure.text),
    };
    match (is_by_itself, failed) {
        (true, None) => bed.recovered(Return::ByItself, after, None),
        (false, None) => {
            let limit = limit.as_secs_f64();
            let step = format!("ctxbench s3 sync; after {limit} s {last}");
            bed.recovered(Return::AfterStep, after, Some(step));
        }
        (_, Some(reason)) => {
            bed.recovered(Return::Never, after, Some(reason.clone()));
            bed.breach(format!("changes made during the fault did not get to the bucket: {last}; {reason}"));
            return Ok(false);
        }
    }
    Ok(true)
}

/// The daemon's peak resident memory since [`watch_memory`], in KiB.
pub fn memory_peak(bed: &TestBed) -> Option<u64> {
    status(bed, "VmHWM:")
}

/// Resets the kernel's record of the daemon's peak memory. Returns its current resident memory in KiB.
/// `None` where the kernel forbids that.
pub fn watch_memory(bed: &TestBed) -> Option<u64> {
    let daemon = bed.daemon()?;
    // proc_pid_clear_refs(5): writing 5 sets the peak to the current value.
    std::fs::write(format!("/proc/{daemon}/clear_refs"), "5").ok()?;
    status(bed, "VmRSS:")
}

fn status(bed: &TestBed, field: &str) -> Option<u64> {
    let daemon = bed.daemon()?;
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
