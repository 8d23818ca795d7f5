//! Concurrent client processes, each of which reads and overwrites its own files in one workspace.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{check_range, path};
use crate::path::WorkspacePath;
use crate::script::{Bytes, CallKind, FileOp, Script};

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
    pub(crate) fn script(&self) -> Result<Script, String> {
        for (field, value, most) in [
            ("processes", self.processes, 64),
            ("files", self.files, 1000),
            ("bytes", self.bytes, 1 << 20),
            ("calls", self.calls, 1_000_000),
        ] {
            check_range(&format!("clients.{field}"), &value, 1..=most)?;
        }
        if self.writes > 100 {
            return Err("field `clients.writes`: must be at most 100".to_owned());
        }
        let dir = path("clients")?;
        let content = self.content(0);
        let files = self.names(&dir)?.into_iter();
        let mut script = Script::new(files.map(|path| (path, content.clone())).collect());
        script.call(
            CallKind::Concurrent,
            vec![FileOp::Together {
                dir,
                clients: self.clone(),
            }],
        );
        Ok(script)
    }

    /// The name of a client's file below the directory of all clients.
    pub fn name(process: u32, file: u32) -> String {
        format!("{process}/{file}")
    }

    fn names(&self, dir: &WorkspacePath) -> Result<Vec<WorkspacePath>, String> {
        let all = (0..self.processes).flat_map(|process| {
            (0..self.files).map(move |file| format!("{dir}/{}", Self::name(process, file)))
        });
        all.map(path).collect()
    }

    /// The content of a file filled with `byte`.
    pub fn content(&self, byte: u8) -> Bytes {
        vec![byte; self.bytes as usize].into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Expected, Model};

    fn clients() -> Clients {
        let text = "processes = 3\nfiles = 4\nbytes = 10\ncalls = 50\nwrites = 20\nseed = 1";
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_model_keeps_the_last_write_of_every_client() {
        let script = clients().script().unwrap();
        assert_eq!(script.files.len(), 12);
        let mut model = Model::of(&script);
        assert_eq!(model.apply(&script.calls[0].ops[0]), Expected::Done);
        for process in 0..3 {
            for file in 0..4 {
                let calls = clients().calls(process).filter(|call| call.file == file);
                let last = calls.filter_map(|call| call.write).last().unwrap_or(0);
                let path = WorkspacePath::new(format!("clients/{process}/{file}")).unwrap();
                assert_eq!(model.file(&path), Some(&clients().content(last)));
            }
        }
    }

    #[test]
    fn a_client_repeats_its_calls_and_differs_from_others() {
        let calls = |process| clients().calls(process).collect::<Vec<_>>();
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
        let writes = calls(0).iter().filter(|call| call.write.is_some()).count();
        assert!((1..25).contains(&writes), "{writes} of 50");
    }
}
