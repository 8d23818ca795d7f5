//! `ctxbench worker`: a client process of a workload with several clients.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use workloads::generate::clients::Clients;

use crate::replay::workers::{DONE, GO, READY, say};

/// Reads its files once, says `ready`, waits until it is told to go, makes its calls, says `done`.
#[derive(Debug, Args)]
pub struct Worker {
    /// The directory of all processes.
    dir: PathBuf,
    /// Which of them this is.
    process: u32,
    /// What the processes do, as JSON.
    clients: String,
}

/// A file of this process.
struct Target {
    path: PathBuf,
    open: Option<File>,
}

impl Worker {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let clients: Clients = serde_json::from_str(&self.clients).context("what to do")?;
        let mut content = vec![0; clients.bytes as usize];
        let mut targets = Vec::new();
        for file in 0..clients.files {
            let path = self.dir.join(Clients::name(self.process, file));
            let mut target = Target { path, open: None };
            target.read(&mut content)?;
            if clients.keep_open {
                let open = OpenOptions::new().read(true).write(true).open(&target.path);
                target.open =
                    Some(open.with_context(|| format!("opening {}", target.path.display()))?);
            }
            targets.push(target);
        }
        let calls: Vec<_> = clients.calls(self.process).collect();
        let mut held = vec![0_u8; targets.len()];
        say(READY)?;
        let mut told = String::new();
        std::io::stdin().lock().read_to_string(&mut told)?;
        if told != GO {
            return Ok(ExitCode::SUCCESS);
        }
        for call in calls {
            let file = call.file as usize;
            match call.write {
                Some(byte) => {
                    content.fill(byte);
                    targets[file].overwrite(&content)?;
                    held[file] = byte;
                }
                None => {
                    targets[file].read(&mut content)?;
                    if content.first() != Some(&held[file]) {
                        let path = targets[file].path.display();
                        bail!("{path} does not hold what was written to it last");
                    }
                }
            }
        }
        say(DONE)?;
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
