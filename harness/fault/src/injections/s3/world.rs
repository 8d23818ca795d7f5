//! The environment of an S3 fault: a server, a fault proxy before it, and another host that bypasses the
//! proxy.
//! The faults live in the sibling modules.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use backends::backend::{Launch, Site, Workspace};
use rundir::faults::{Fact, Return};
use servers::{Answered, BUCKET, FaultProxy, Operation, Options, Rule, Seen, Server, ServerKind};
use tokio::runtime::Runtime;

use super::super::super::agent::{Answer, RemoteTask, Series, Task};
use super::super::super::bed::{Injected, ScenarioError, TestBed};
use super::order::{Made, out_of_order};

/// The agent id in the object keys.
const AGENT: &str = "agent";

/// The prefix of every object key.
const PREFIX: &str = "faults/";

/// Seconds that a call may take beyond the time limit of its request, within the scenario's hang limit.
const SLACK: f64 = 2.0;

/// A server, a proxy and another host for one scenario.
pub struct World {
    // Declared first, so that the proxy is dropped before its server.
    pub proxy: FaultProxy,
    server: Option<Server>,
    options: Options,
    keys: (String, String),
    endpoint: String,
    region: String,
    /// The mount of the other host.
    other: Option<Box<dyn Workspace>>,
    other_site: Site,
    runtime: Runtime,
    /// The number of requests that the proxy had seen when the fault began.
    before: usize,
}

fn spoiled(what: &str) -> impl FnOnce(std::io::Error) -> ScenarioError {
    let what = what.to_owned();
    move |error| ScenarioError::Infra(format!("{what}: {error}"))
}

/// The kind of server that a backend's name denotes.
fn kind(backend: &str) -> Injected<ServerKind> {
    let kinds = ServerKind::ALL.into_iter();
    let mut found = kinds.filter(|kind| backend.split(['-', '@']).any(|part| part == kind.name()));
    found.next().ok_or_else(|| {
        ScenarioError::Skipped(format!(
            "the server of {backend} is not ours: it is not broken on purpose"
        ))
    })
}

impl World {
    /// Starts the server and the proxy, and routes the test bed's mounts through the proxy.
    pub fn start(bed: &mut TestBed) -> Injected<Self> {
        let name = bed.backend.describe().name;
        let kind = kind(&name)?;
        let found = kind
            .find()
            .map_err(|missing| ScenarioError::Skipped(missing.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let dir = bed.site.dir.join("server");
        std::fs::create_dir_all(&dir)?;
        let us = bed.site.program.clone();
        let parent = std::process::id().to_string();
        let mut options = Options {
            server: found,
            dir,
            port: 0,
            rtt: Duration::ZERO,
            keys: None,
            launcher: vec![us.into(), "with-parent".into(), parent.into()],
        };
        let server = runtime
            .block_on(servers::start(options.clone()))
            .map_err(|error| ScenarioError::Infra(format!("starting {kind}: {error}")))?;
        let access = server.access().clone();
        let upstream: SocketAddr = access
            .endpoint
            .trim_start_matches("http://")
            .parse()
            .map_err(|error| ScenarioError::Infra(format!("{}: {error}", access.endpoint)))?;
        options.port = upstream.port();
        options.keys = Some((access.access_key.clone(), access.secret_key.clone()));
        let proxy = FaultProxy::start(0, upstream).map_err(spoiled("starting the proxy"))?;
        let mut other_site = bed.site.clone();
        other_site.dir = bed.site.dir.join("other");
        std::fs::create_dir_all(&other_site.dir)?;
        let world = Self {
            proxy,
            server: Some(server),
            options,
            keys: (access.access_key, access.secret_key),
            endpoint: access.endpoint,
            region: access.region,
            other: None,
            other_site,
            runtime,
            before: 0,
        };
        let launch = world.launch(bed, &world.proxy.endpoint(), "main", cache(&bed.site));
        world.go_by(bed, launch)?;
        Ok(world)
    }

    /// Time limit, in seconds, of a request of the test bed's mounts.
    pub fn timeout(bed: &TestBed) -> u64 {
        (bed.scenario.limits.hang - SLACK).max(1.0) as u64
    }

    fn launch(&self, bed: &TestBed, endpoint: &str, writer: &str, cache: PathBuf) -> Launch {
        let words: [(&str, String); 7] = [
            ("--endpoint", endpoint.to_owned()),
            ("--region", self.region.clone()),
            ("--bucket", BUCKET.to_owned()),
            ("--prefix", PREFIX.to_owned()),
            ("--agent-id", AGENT.to_owned()),
            ("--writer", writer.to_owned()),
            ("--timeout", Self::timeout(bed).to_string()),
        ];
        let words = words.into_iter();
        let mut arguments: Vec<std::ffi::OsString> = words
            .flat_map(|(name, value)| [name.into(), value.into()])
            .collect();
        arguments.extend(["--cache".into(), cache.into()]);
        if bed.backend.describe().name.starts_with("s3-fsync") {
            arguments.extend(["--sync".into(), "fsync".into()]);
        }
        let (id, secret) = self.keys.clone();
        Launch {
            arguments,
            environment: vec![
                ("AWS_ACCESS_KEY_ID", id),
                ("AWS_SECRET_ACCESS_KEY", secret),
                ("AWS_SESSION_TOKEN", String::new()),
                ("CTXBENCH_S3_KEY", String::new()),
            ],
        }
    }

    fn go_by(&self, bed: &mut TestBed, launch: Launch) -> Injected {
        let backend = bed.backend.launched_by(launch);
        let backend = backend
            .ok_or_else(|| ScenarioError::Skipped("its daemon is not one of ours".into()))?;
        bed.backend = backend.into();
        Ok(())
    }

    // ── The fault ──────────────────────────────────────────────────────────────────────────────

    /// Marks the start of the fault: later requests belong to the fault and its recovery.
    pub fn begin(&mut self) {
        self.before = self.proxy.seen().len();
    }

    /// Kills the server. The proxy refuses connections, as the server's own port then does.
    pub fn kill_server(&mut self) -> Injected {
        self.proxy
            .partition(true)
            .map_err(spoiled("refusing connections"))?;
        if let Some(server) = self.server.take() {
            let killed = self.runtime.block_on(server.kill());
            killed.map_err(spoiled("killing the server"))?;
        }
        Ok(())
    }

    /// Restarts the server with its data, or empty.
    pub fn start_server(&mut self, empty: bool) -> Injected {
        if empty {
            std::fs::remove_dir_all(&self.options.dir)?;
            std::fs::create_dir_all(&self.options.dir)?;
        }
        let server = self
            .runtime
            .block_on(servers::start(self.options.clone()))
            .map_err(|error| ScenarioError::Infra(format!("starting the server again: {error}")))?;
        self.server = Some(server);
        self.proxy
            .partition(false)
            .map_err(spoiled("taking connections"))
    }

    /// Makes the proxy refuse or accept connections.
    pub fn partition(&self, is_cut: bool) -> Injected {
        let done = self.proxy.partition(is_cut);
        done.map_err(spoiled("the partition"))
    }

    pub fn set(&self, rules: Vec<Rule>) {
        self.proxy.set(rules);
    }

    /// Records how many requests the active rules hit. Zero is an error, because the scenario would then
    /// prove nothing.
    pub fn fired(&self, bed: &mut TestBed) -> Injected {
        let done: u64 = self.proxy.fired().iter().map(|fired| fired.done).sum();
        bed.fact("requests_hit", Fact::Count(done));
        if done == 0 {
            return Err(ScenarioError::Infra(
                "no request was hit by the fault".into(),
            ));
        }
        Ok(())
    }

    // ── Checks of uploads ──────────────────────────────────────────────────────────────────────

    /// The requests since [`World::begin`] that succeeded, or whose answer is not known.
    fn done(&self) -> Vec<Seen> {
        let seen = self.proxy.seen();
        let since = seen.into_iter().skip(self.before);
        let is_done =
            |answered| matches!(answered, Answered::Status(200..=299) | Answered::Unknown);
        since.filter(|seen| is_done(seen.answered)).collect()
    }

    /// Checks the order in which the changes reached the bucket: new files, replaced files, the manifest
    /// with the new directory, deletions.
    pub fn in_order(&self, bed: &mut TestBed, new: &Series, replaced: &Series) {
        let keys = |series: &Series| -> Vec<String> {
            let numbers = series.first..series.first + series.files;
            numbers.map(|number| key(series, number)).collect()
        };
        let made = Made {
            new: keys(new),
            replaced: keys(replaced),
            manifest: format!("/{BUCKET}/{PREFIX}ctx/{AGENT}/manifest.json"),
        };
        let wrong = out_of_order(&self.done(), &made);
        let words = match wrong.is_empty() {
            true => "new, replaced, manifest, deleted".to_owned(),
            false => wrong.join("; "),
        };
        bed.fact("order", Fact::Words(words));
        for wrong in wrong {
            bed.breach(wrong);
        }
    }

    /// Checks that each file of a series was uploaded exactly once, and none after the first deletion.
    pub fn once_and_before_deletions(&self, bed: &mut TestBed, series: &Series) {
        let done = self.done();
        let in_doubt = std::cell::Cell::new(0);
        let place = |number: u64| {
            let key = key(series, number);
            let places = done.iter().enumerate();
            let mut places =
                places.filter(|(_, seen)| seen.operation == Operation::Put && seen.path == key);
            let known = places.clone();
            let known = known.filter(|(_, seen)| seen.answered != Answered::Unknown);
            match (known.count(), places.next_back()) {
                // The connection broke before the answer, and the daemon did not retry. So the upload
                // counts as done.
                (0, Some((at, _))) => {
                    in_doubt.set(in_doubt.get() + 1);
                    (1, Some(at))
                }
                (count, last) => (count, last.map(|(at, _)| at)),
            }
        };
        let numbers = series.first..series.first + series.files;
        let places: Vec<_> = numbers.map(place).collect();
        let once = places.iter().filter(|(count, _)| *count == 1).count() as u64;
        let never = places.iter().filter(|(count, _)| *count == 0).count();
        bed.fact("uploaded_once", Fact::Count(once));
        bed.fact("uploads_expected", Fact::Count(series.files));
        if in_doubt.get() > 0 {
            // A mount on a new machine shows later whether these objects exist.
            bed.fact("uploads_cut_off", Fact::Count(in_doubt.get()));
        }
        if never > 0 {
            bed.breach(format!(
                "{never} of {} changes never got to the bucket",
                series.files
            ));
        }
        let more = series.files - once - never as u64;
        if more > 0 {
            bed.breach(format!(
                "{more} of {} changes got to the bucket more than once",
                series.files
            ));
        }
        let last = places.iter().filter_map(|(_, at)| *at).max();
        let deletion = done
            .iter()
            .position(|seen| seen.operation == Operation::Delete);
        match (last, deletion) {
            (Some(last), Some(deletion)) if deletion < last => {
                bed.breach("something was deleted before what was written earlier was there");
            }
            (Some(_), Some(_)) => bed.fact("deleted_early", Fact::Count(0)),
            _ => bed.fact(
                "deleted_early",
                Fact::Words("not looked at: nothing was deleted".to_owned()),
            ),
        }
    }

    // ── The other host ─────────────────────────────────────────────────────────────────────────

    /// The directory of the other host, which is mounted at the first call.
    pub fn elsewhere(&mut self, bed: &TestBed) -> Injected<PathBuf> {
        if self.other.is_none() {
            let launch = self.launch(bed, &self.endpoint, "other", cache(&self.other_site));
            let backend = bed.backend.launched_by(launch);
            let backend = backend
                .ok_or_else(|| ScenarioError::Skipped("its daemon is not one of ours".into()))?;
            let opened = backend.open(&self.other_site);
            self.other = Some(opened.map_err(spoiled("the other host's mount"))?);
        }
        let root = self.other.as_ref().map(|other| other.root().to_owned());
        Ok(root.unwrap_or_default())
    }

    /// Makes the other host write a series, and waits until the test bed's mount shows it.
    pub fn others_write(&mut self, bed: &mut TestBed, series: &Series) -> Injected {
        let there = Series {
            dir: self.elsewhere(bed)?,
            ..series.clone()
        };
        whole(bed, RemoteTask::Write(there.clone()))?;
        sync(bed, there.dir)?;
        let awaited = whole(bed, RemoteTask::Await(series.clone()))?;
        match awaited.facts.get("awaited") {
            Some(Fact::Count(count)) if *count == series.files => Ok(()),
            other => Err(ScenarioError::Infra(format!(
                "{other:?} of {} files of another host were seen",
                series.files
            ))),
        }
    }

    /// Kills the daemon as soon as `ctxbench s3 sync` has returned, so that nothing is uploaded afterwards.
    /// Then mounts without a cache, bypassing the proxy, as a new machine would.
    pub fn lose_machine(&mut self, bed: &mut TestBed) -> Injected {
        let synced = bed.sync_and_kill()?;
        synced.map_err(|error| {
            ScenarioError::Infra(format!("sync before the machine went: {error}"))
        })?;
        bed.dismiss_agent();
        bed.workspace = None;
        self.begin_anew(bed, "new-machine")
    }

    /// Mounts without a cache, as a new writer, bypassing the proxy.
    pub fn begin_anew(&self, bed: &mut TestBed, writer: &str) -> Injected {
        let cache = cache(&bed.site);
        for suffix in ["", "-wal", "-shm", "-log"] {
            let mut file = cache.clone().into_os_string();
            file.push(suffix);
            // Some of these files may not exist.
            let _ = std::fs::remove_file(file);
        }
        let launch = self.launch(bed, &self.endpoint, writer, cache);
        self.go_by(bed, launch)?;
        bed.open()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.other = None;
        if let Some(server) = self.server.take() {
            // If this fails, dropping the server kills it.
            let _ = self.runtime.block_on(server.stop());
        }
    }
}

/// The request path of a file's object.
fn key(series: &Series, number: u64) -> String {
    format!("/{BUCKET}/{PREFIX}agents/{AGENT}/{}-{number}", series.name)
}

/// Path of the cache of a mount at `site`.
fn cache(site: &Site) -> PathBuf {
    site.dir.join("cache.s3.db")
}

/// Performs a task while no fault is active. A failure is then the harness's.
pub fn whole(bed: &mut TestBed, task: RemoteTask) -> Injected<Answer> {
    match bed.perform(&Task::Remote(task))? {
        Some(answer) if answer.failures.is_empty() => Ok(answer),
        Some(answer) => {
            let failure = &answer.failures[0];
            let (call, text) = (&failure.call, &failure.text);
            Err(ScenarioError::Infra(format!(
                "where nothing was broken, {call} failed: {text}"
            )))
        }
        None => Err(ScenarioError::Infra(
            "where nothing was broken, the agent hung or ended".into(),
        )),
    }
}

/// Runs `ctxbench s3 sync` while no fault is active.
pub fn sync(bed: &mut TestBed, root: PathBuf) -> Injected {
    match bed.perform(&Task::Sync { root })? {
        Some(answer) if answer.failures.is_empty() => Ok(()),
        Some(answer) => Err(ScenarioError::Infra(format!(
            "sync: {}",
            answer.failures[0].text
        ))),
        None => Err(ScenarioError::Infra("sync hung".into())),
    }
}

/// Polls until the mount reports no pending changes, within the scenario's recovery limit. The mount has to
/// get there by itself. Otherwise `ctxbench s3 sync` is the manual step. Returns false if that fails, too.
pub fn recover(bed: &mut TestBed) -> Injected<bool> {
    let limit = Duration::from_secs_f64(bed.scenario.limits.recovery);
    let started = Instant::now();
    let mut last = "nobody said how much is missing".to_owned();
    let is_by_itself = loop {
        let seen = bed.outcome.seen.clone();
        let root = bed.root();
        let answer = bed.perform(&Task::Pending { root })?;
        bed.outcome.seen = seen;
        match answer
            .as_ref()
            .and_then(|answer| answer.facts.get("pending"))
        {
            Some(Fact::Count(0)) => break true,
            Some(pending) => last = format!("{pending} changes were missing"),
            None => {}
        }
        if started.elapsed() > limit {
            break false;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let ms = started.elapsed().as_millis() as u64;
    let root = bed.root();
    let answer = bed.perform(&Task::Sync { root })?;
    let failed = match &answer {
        None => Some("sync hung".to_owned()),
        Some(answer) => answer.failures.first().map(|failure| failure.text.clone()),
    };
    match (is_by_itself, failed) {
        (true, None) => bed.recovered(Return::ByItself, ms, None),
        (false, None) => {
            let limit = limit.as_secs_f64();
            let step = format!("ctxbench s3 sync; after {limit} s {last}");
            bed.recovered(Return::AfterStep, ms, Some(step));
        }
        (_, Some(reason)) => {
            bed.recovered(Return::Never, ms, Some(reason.clone()));
            bed.breach(format!(
                "what was done meanwhile did not get to the bucket: {last}; {reason}"
            ));
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
    let daemon = bed.workspace.as_ref()?.daemon()?;
    // proc_pid_clear_refs(5): writing 5 sets the peak to the current value.
    std::fs::write(format!("/proc/{daemon}/clear_refs"), "5").ok()?;
    status(bed, "VmRSS:")
}

fn status(bed: &TestBed, field: &str) -> Option<u64> {
    let daemon = bed.workspace.as_ref()?.daemon()?;
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
