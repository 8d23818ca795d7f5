//! `ctxbench load-worker`: one of the processes of `ctxbench load`.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Files of each process.
pub const FILES: usize = 100;

/// Calls between two looks at the clock.
const CALLS_BETWEEN: u64 = 32;

/// Prepares its files, prints `ready`, waits for a line, works, prints how many calls it made.
#[derive(Debug, Args)]
pub struct LoadWorker {
    dir: PathBuf,
    seconds: u64,
    /// Out of 100 calls, how many write.
    writes: u32,
    /// Bytes in each file.
    bytes: usize,
    /// Open each file once, not for every call.
    #[arg(action = clap::ArgAction::Set)]
    keep_open: bool,
    seed: u64,
}

/// A file under load.
struct Target {
    path: PathBuf,
    open: Option<File>,
}

impl LoadWorker {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.dir)
            .with_context(|| format!("creating {}", self.dir.display()))?;
        let mut content = vec![b'x'; self.bytes];
        let mut targets = Vec::new();
        for number in 0..FILES {
            let path = self.dir.join(number.to_string());
            std::fs::write(&path, &content)
                .with_context(|| format!("writing {}", path.display()))?;
            let mut target = Target { path, open: None };
            // Read once, so that every turn begins with what has just been used.
            target.read(&mut content)?;
            if self.keep_open {
                let file = OpenOptions::new().read(true).write(true).open(&target.path);
                target.open =
                    Some(file.with_context(|| format!("opening {}", target.path.display()))?);
            }
            targets.push(target);
        }
        println!("ready");
        std::io::stdout().flush()?;
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            // Whoever started this has gone.
            return Ok(ExitCode::SUCCESS);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let deadline = Instant::now() + Duration::from_secs(self.seconds);
        let mut calls = 0;
        while Instant::now() < deadline {
            for _ in 0..CALLS_BETWEEN {
                let target = &targets[rng.random_range(0..FILES)];
                if rng.random_range(0..100) < self.writes {
                    content[0] = content[0].wrapping_add(1);
                    target.overwrite(&content)?;
                } else {
                    target.read(&mut content)?;
                }
            }
            calls += CALLS_BETWEEN;
        }
        println!("{calls}");
        Ok(ExitCode::SUCCESS)
    }
}

impl Target {
    fn read(&self, content: &mut [u8]) -> anyhow::Result<()> {
        let read = match &self.open {
            Some(file) => file.read_at(content, 0),
            None => File::open(&self.path).and_then(|file| file.read_at(content, 0)),
        };
        let read = read.with_context(|| format!("reading {}", self.path.display()))?;
        if read != content.len() {
            let (path, wanted) = (self.path.display(), content.len());
            bail!("{path}: {read} bytes instead of {wanted}");
        }
        Ok(())
    }

    fn overwrite(&self, content: &[u8]) -> anyhow::Result<()> {
        let written = match &self.open {
            Some(file) => file.write_all_at(content, 0),
            None => OpenOptions::new()
                .write(true)
                .open(&self.path)
                .and_then(|file| file.write_all_at(content, 0)),
        };
        written.with_context(|| format!("overwriting {}", self.path.display()))
    }
}
