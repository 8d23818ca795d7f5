//! `ctxbench s3 serve`: an S3 server in the foreground, for a user or for the harness.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use fuse::cpu;
use inputs::border;
use servers::{FoundServer, ServerKind, ServerOptions, bound_to_this_process, kept_keys, private_directory, start};
use tokio::sync::mpsc::unbounded_channel;

use trial::interrupt::{end_signals, stop_at_end_of_stdin, stop_at_signals};

/// The variable that makes `auto` fail without MinIO.
const REQUIRE_MINIO: &str = "CTXBENCH_REQUIRE_MINIO";

/// Start an S3 server on a loopback port and serve until Ctrl-C.
///
/// When the server is ready, it prints one line of JSON with its endpoint, version, access key, secret key, region and
/// bucket. Without --dir, its data are deleted when it ends.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 serve                               # MinIO if it is installed, else the embedded server
  ctxbench s3 serve --server embedded --rtt 5     # every request takes 5 ms longer
  ctxbench s3 serve --dir ~/objects --port 9000   # keeps its data and its keys")]
pub struct Serve {
    /// The server to start.
    #[arg(long, value_enum, default_value_t = ServerSelection::Auto)]
    server: ServerSelection,
    /// Where the server keeps its data, its keys and its log [default: a temporary directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The loopback port [default: any free port].
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Add this round-trip time to every request.
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = milliseconds)]
    rtt: f64,
    /// Stop when standard input ends.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServerSelection {
    /// MinIO if it is installed, else the embedded server.
    Auto,
    /// The server in this program.
    Embedded,
    /// MinIO.
    Minio,
    /// SeaweedFS.
    Seaweedfs,
    /// rclone serve s3.
    Rclone,
}

/// Parses a round-trip time of at most 10 s.
fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=10_000.0).contains(&number) => Ok(number),
        _ => Err("must be a number of milliseconds from 0 to 10000".to_owned()),
    }
}

impl ServerSelection {
    /// Finds the server to start. Prints on standard error why `auto` chooses the embedded one.
    fn find(self) -> anyhow::Result<FoundServer> {
        let kind = match self {
            Self::Auto => {
                let missing = match ServerKind::Minio.find() {
                    Ok(found) => return Ok(found),
                    Err(missing) => missing,
                };
                if std::env::var_os(REQUIRE_MINIO).is_some_and(|value| value != "0") {
                    bail!("{REQUIRE_MINIO} is set, but {missing}");
                }
                eprintln!("ctxbench: starting the embedded S3 server instead of MinIO: {missing}");
                ServerKind::Embedded
            }
            Self::Embedded => ServerKind::Embedded,
            Self::Minio => ServerKind::Minio,
            Self::Seaweedfs => ServerKind::Seaweedfs,
            Self::Rclone => ServerKind::Rclone,
        };
        Ok(kind.find()?)
    }
}

impl Serve {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let server = self.server.find()?;
        // Catch signals before the start, so that none leaves a server or a directory behind.
        let signals = end_signals().context("setting up signal handling")?;
        let (sender, mut stopped) = unbounded_channel();
        let stop = move || {
            // The receiver is gone if the server is ending already.
            let _ = sender.send(());
        };
        stop_at_signals(signals, stop.clone());
        if self.until_stdin_ends {
            // The run that starts the server may be pinned to one processor. The server must not inherit this.
            cpu::unpin()?;
            // A run stops its servers between their passes. If the run is killed, SIGCONT lets the server read
            // the end of standard input.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
            stop_at_end_of_stdin(stop);
        }
        let (mut temporary, mut keys) = (None, None);
        let dir = match self.dir {
            Some(dir) => {
                // Files that another server writes there must be private to this user, too.
                rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
                let dir = dir.join(server.kind().name());
                private_directory(&dir).with_context(|| format!("creating {}", border::path(&dir)))?;
                keys = Some(kept_keys(&dir).context("reading the server's keys")?);
                dir.canonicalize().with_context(|| format!("reading {}", border::path(&dir)))?
            }
            None => {
                let directory = tempfile::Builder::new().prefix("ctxbench-s3-").tempdir();
                let directory = directory.context("creating a temporary directory")?;
                temporary.insert(directory).path().to_owned()
            }
        };
        let program = std::env::current_exe().context("finding our own program")?;
        let options = ServerOptions {
            server,
            dir,
            port: self.port,
            rtt: Duration::from_secs_f64(self.rtt / 1e3),
            keys,
            launcher: bound_to_this_process(&program).into(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("starting the runtime")?;
        // Run on the main thread: the server's process ends with the thread that started it.
        let served = runtime.block_on(async {
            let mut server = tokio::select! {
                server = start(options) => server?,
                _ = stopped.recv() => return Ok(()),
            };
            let line = serde_json::to_string(&server.announcement())?;
            // The reader may have closed standard output: `println!` would panic.
            let mut out = std::io::stdout();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            let ended = tokio::select! {
                reason = server.has_ended() => Some(reason),
                _ = stopped.recv() => None,
            };
            server.stop().await.context("stopping the server")?;
            match ended {
                Some(reason) => bail!(reason),
                None => Ok(()),
            }
        });
        drop(runtime);
        if let Some(temporary) = temporary {
            temporary.close().context("removing the temporary directory")?;
        }
        served?;
        Ok(ExitCode::SUCCESS)
    }
}
