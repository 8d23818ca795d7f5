//! A host that mounts an agent's memory: `ctxbench mount s3` in a process of its own, with its own cache.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backends::READY;
use backends::fuse::{self, Counters};
use backends::s3::{AccessKey, ConflictPolicy, S3Config, Secret, SyncMode, find_access_key};
use backends::s3_service::{Address, Wanted};

/// How long a mount may take to end; it brings up what is left.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server of that name, or the one there is; says which and of what version.
pub fn server(name: Option<&str>) -> anyhow::Result<Wanted> {
    let server = match name {
        Some(name) => {
            Wanted::of_name(name).with_context(|| format!("there is no server {name:?}"))?
        }
        None => Wanted::default_here(),
    };
    println!("server: {} {}", server.label(), server.version()?);
    Ok(server)
}

/// Whose memory in which bucket.
#[derive(Clone)]
pub struct Memory {
    pub address: Address,
    /// What comes before `agents/`; of this memory's own.
    pub prefix: String,
}

impl Memory {
    /// The configuration of the client, for requests past any mount.
    pub fn config(&self) -> anyhow::Result<S3Config> {
        let variable = |name: &str| std::env::var(name).ok();
        let access_key = match &self.address.keys {
            Some((id, secret)) => AccessKey {
                id: id.clone(),
                secret: Secret(secret.clone()),
                token: None,
                source: "the server that was started".to_owned(),
            },
            None => find_access_key(&self.address.endpoint, &variable)?,
        };
        Ok(S3Config {
            endpoint: self.address.endpoint.clone(),
            region: self.address.region.clone(),
            bucket: self.address.bucket.clone(),
            prefix: self.prefix.clone(),
            agent: "agent".to_owned(),
            writer: "bare".to_owned(),
            path_style: true,
            access_key,
            sync: SyncMode::Local,
            conflicts: ConflictPolicy::KeepBoth,
            front_matter_visible: false,
            keep_versions: false,
            poll: Duration::from_secs(1),
            delay: Duration::from_millis(200),
            timeout: Duration::from_secs(30),
            seal: None,
        })
    }
}

/// A mounted memory. Dropping it ends the mount.
pub struct Host {
    process: Child,
    stdin: Option<ChildStdin>,
    root: PathBuf,
    control: PathBuf,
}

impl Host {
    /// Mounts `memory` for `writer`, with everything it needs under `dir`, which must be its own.
    pub fn mount(
        memory: &Memory,
        writer: &str,
        dir: &Path,
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let root = dir.join("mnt");
        std::fs::create_dir_all(&root)?;
        let control = dir.join("control");
        // A socket that an earlier mount left behind would keep this one from listening.
        let _ = std::fs::remove_file(&control);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["mount", "s3"])
            .arg(&root)
            .args(["--endpoint", &memory.address.endpoint])
            .args(["--region", &memory.address.region])
            .args(["--bucket", &memory.address.bucket])
            .args(["--prefix", &memory.prefix])
            .args(["--agent-id", "agent", "--writer", writer])
            .arg("--cache")
            .arg(dir.join("cache.db"))
            .arg("--control")
            .arg(&control)
            .arg("--until-stdin-ends")
            .args(options)
            .env_remove("CTXBENCH_S3_KEY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join("log"))?);
        if let Some((id, secret)) = &memory.address.keys {
            command
                .env("AWS_ACCESS_KEY_ID", id)
                .env("AWS_SECRET_ACCESS_KEY", secret)
                .env_remove("AWS_SESSION_TOKEN");
        }
        let mut process = command.spawn().context("starting a mount")?;
        let stdin = process.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let host = Self {
            process,
            stdin,
            root,
            control,
        };
        if line.trim() != READY {
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            bail!("the mount of {writer} did not come up: {}", log.trim());
        }
        Ok(host)
    }

    /// The mounted directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What its daemon has counted.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        fuse::ask(&self.control, fuse::Command::Counters).context("asking a mount for its counters")
    }

    /// Requests it has sent, of all kinds.
    pub fn requests(&self) -> anyhow::Result<u64> {
        let counters = self.counters()?;
        let kinds = ["get", "head", "put", "part", "copy", "list", "delete"];
        let count = |kind: &&str| counters.store.get(&format!("s3_{kind}")).copied();
        Ok(kinds.iter().filter_map(count).sum())
    }

    /// Waits until everything is in the bucket.
    pub fn sync(&self) -> anyhow::Result<()> {
        fuse::ask(&self.control, fuse::Command::Sync).context("waiting for the bucket")?;
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        tracing::warn!("a mount did not end: killing it");
        // An error means that it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
