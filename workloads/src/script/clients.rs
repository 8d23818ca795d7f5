//! Concurrent client processes, each of which reads and overwrites its own files in one workspace.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::Bytes;

/// The parameters of concurrent clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Number of concurrent processes.
    pub processes: u32,
    /// Files of each process.
    pub files: u32,
    /// Bytes of each file, and of each read and write.
    pub bytes: u32,
    /// Calls of each process in a pass.
    pub calls: u32,
    /// Share of calls that overwrite a file, in percent; the others read one.
    pub writes: u32,
    /// Whether to open each file once, outside the clock, instead of for every call.
    #[serde(default)]
    pub keep_open: bool,
    /// In an open loop: the microseconds from the scheduled start of a call of a process to that of its next one, whether
    /// the first has ended or not. `None`: a process makes its next call when the last one has ended.
    #[serde(default)]
    pub every_us: Option<u32>,
    /// The seed of each process's choices.
    pub seed: u64,
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCall {
    /// The file, from 0.
    pub file: u32,
    /// The byte that an overwrite fills the file with; `None` for a read.
    pub write: Option<u8>,
}

impl Clients {
    /// The name of a client's file below the directory of all clients.
    pub fn name(process: u32, file: u32) -> String {
        format!("{process}/{file}")
    }

    /// The content of a file filled with `byte`.
    pub fn content(&self, byte: u8) -> Bytes {
        vec![byte; self.bytes as usize].into()
    }

    /// The scheduled start of a call of a process, from the start of all; `None` without a schedule. Processes take turns.
    pub fn due(&self, process: u32, call: u32) -> Option<Duration> {
        let every = Duration::from_micros(self.every_us?.into());
        Some(every * call + every * process / self.processes.max(1))
    }

    /// The calls of a process, in order; they are equal in every pass.
    pub fn calls(&self, process: u32) -> impl Iterator<Item = ClientCall> + use<> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(process));
        let (files, writes) = (self.files, self.writes);
        (0..self.calls).map(move |number| ClientCall {
            file: rng.random_range(0..files),
            write: (rng.random_range(0..100) < writes).then_some((number % 255) as u8 + 1),
        })
    }

    /// The final content of the written files of all processes, by name.
    pub(crate) fn written(&self) -> Vec<(String, Bytes)> {
        let mut written = Vec::new();
        for process in 0..self.processes {
            let mut last = vec![None; self.files as usize];
            for call in self.calls(process) {
                if call.write.is_some() {
                    last[call.file as usize] = call.write;
                }
            }
            for (file, byte) in (0..).zip(last) {
                if let Some(byte) = byte {
                    written.push((Self::name(process, file), self.content(byte)));
                }
            }
        }
        written
    }
}
