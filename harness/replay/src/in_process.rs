//! Performs operations by calls of a [`FileClient`] in the harness's own process.

use std::io;

use arms::backend::FileClient;
use rustix::io::Errno;
use workloads::path::WorkspacePath;
use workloads::script::{FileOp, Script};

use super::tools::push;
use super::{Observation, ResultBuffer};

/// Why a client cannot run a script; `None` if it can.
pub fn unsupported(script: &Script) -> Option<String> {
    for call in script.calls.iter().filter(|call| call.kind.is_some()) {
        let writes = |op: &FileOp| matches!(op, FileOp::Write { .. } | FileOp::WriteAt { .. });
        for op in &call.ops {
            let is_supported = match op {
                FileOp::Read(_)
                | FileOp::ReadAt { .. }
                | FileOp::Write { .. }
                // Micro workloads overwrite whole files, so this is a write of the file.
                | FileOp::WriteAt { offset: 0, .. }
                | FileOp::List { .. }
                | FileOp::Search(_) => true,
                // A client's writes are durable when they return, so a sync without a write has nothing to time.
                FileOp::Sync(_) | FileOp::SyncAll { .. } => call.ops.iter().any(writes),
                _ => false,
            };
            if !is_supported {
                return Some(format!("no single request can {}", op.describe()));
            }
        }
    }
    None
}

/// Executes an operation below `subtree`.
/// The error is that of the call; `EIO` if it has no number.
pub fn perform_in_process(
    op: &FileOp,
    subtree: &str,
    client: &mut dyn FileClient,
    buffer: &mut ResultBuffer,
) -> Result<Observation, Errno> {
    let path = |path: &WorkspacePath| format!("{subtree}/{path}");
    let mut bytes = Vec::new();
    match op {
        FileOp::Read(file) => {
            client.read(&path(file), &mut bytes).map_err(errno)?;
            Ok(Observation::Bytes(buffer.put(&bytes)))
        }
        FileOp::ReadAt { path: file, offset, length } => {
            client.read(&path(file), &mut bytes).map_err(errno)?;
            let start = (*offset as usize).min(bytes.len());
            let end = (start + length).min(bytes.len());
            Ok(Observation::Bytes(buffer.put(&bytes[start..end])))
        }
        FileOp::Write { path: file, content, .. } | FileOp::WriteAt { path: file, content, .. } => {
            client.write(&path(file), content).map_err(errno)?;
            Ok(Observation::Done)
        }
        FileOp::Sync(_) | FileOp::SyncAll { .. } => Ok(Observation::Done),
        FileOp::List { path: dir, .. } => {
            let start = buffer.entries.len();
            for (name, size) in client.list(&path(dir)).map_err(errno)? {
                push(buffer, &name, 0..0, Some(size));
            }
            Ok(Observation::Entries(start..buffer.entries.len()))
        }
        FileOp::Search(dir) => {
            let start = buffer.entries.len();
            let top = if dir.is_root() { subtree.to_owned() } else { path(dir) };
            for (name, size) in client.list(&top).map_err(errno)? {
                bytes.clear();
                client.read(&format!("{top}/{name}"), &mut bytes).map_err(errno)?;
                let content = buffer.put(&bytes);
                push(buffer, &name, content, Some(size));
            }
            Ok(Observation::Entries(start..buffer.entries.len()))
        }
        _ => Err(Errno::NOSYS),
    }
}

fn errno(error: io::Error) -> Errno {
    tracing::debug!("{error}");
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use workloads::model::ReferenceModel;
    use workloads::script::CallKind;

    use super::*;
    use crate::testing::{list, path, write};
    use crate::verify;

    #[derive(Default)]
    struct MemoryFiles(BTreeMap<String, Vec<u8>>);

    impl FileClient for MemoryFiles {
        fn write(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
            self.0.insert(path.to_owned(), content.to_vec());
            Ok(())
        }

        fn read(&mut self, path: &str, into: &mut Vec<u8>) -> io::Result<()> {
            let content = self.0.get(path);
            let content = content.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            into.extend_from_slice(content);
            Ok(())
        }

        fn list(&mut self, dir: &str) -> io::Result<Vec<(String, u64)>> {
            let prefix = format!("{dir}/");
            let below = self.0.iter().filter_map(|(path, content)| {
                let name = path.strip_prefix(&prefix)?;
                Some((name.to_owned(), content.len() as u64))
            });
            Ok(below.collect())
        }
    }

    #[test]
    fn a_client_returns_what_the_model_predicts() {
        let ops = [
            write("d/a", "one", true),
            write("d/b", "two", true),
            write("d/a", "three", true),
            FileOp::Read(path("d/a")),
            FileOp::ReadAt { path: path("d/a"), offset: 1, length: 100 },
            FileOp::Sync(path("d/b")),
            list("d", true),
            FileOp::Search(WorkspacePath::root()),
        ];
        let mut script = Script::new(Vec::new());
        script.dirs = vec![path("d")];
        let (mut model, mut client) = (ReferenceModel::of(&script), MemoryFiles::default());
        let mut buffer = ResultBuffer::new();
        for op in &ops {
            buffer.clear();
            let observed = perform_in_process(op, "p1", &mut client, &mut buffer);
            verify(op, &model.apply(op), &observed, &buffer).unwrap();
        }
        assert!(client.0.contains_key("p1/d/b"), "below the subtree");
    }

    #[test]
    fn a_client_does_not_support_a_sync_without_a_write() {
        let mut script = Script::new(Vec::new());
        let ops = vec![write("a", "1", true), FileOp::Sync(path("a"))];
        script.call(CallKind::Sync, ops);
        assert_eq!(unsupported(&script), None);
        script.call(CallKind::Sync, vec![FileOp::Sync(path("a"))]);
        assert!(unsupported(&script).unwrap().contains("sync"));
    }
}
