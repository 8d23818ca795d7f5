//! Operations for tests; those of `harness` include this file.

use workloads::path::WorkspacePath;
use workloads::script::{Bytes, FileOp, Host};

pub fn path(path: &str) -> WorkspacePath {
    WorkspacePath::new(path).unwrap()
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::from(text.as_bytes().to_vec())
}

pub fn write(file: &str, text: &str, sync: bool) -> FileOp {
    FileOp::Write { path: path(file), content: bytes(text), sync }
}

pub fn append(file: &str, text: &str) -> FileOp {
    FileOp::Append { path: path(file), content: bytes(text) }
}

pub fn rename(from: &str, to: &str) -> FileOp {
    FileOp::Rename { from: path(from), to: path(to) }
}

pub fn list(dir: &str, attributes: bool) -> FileOp {
    FileOp::List { path: path(dir), attributes }
}

pub fn add_line(host: Host, file: &str, line: &str) -> FileOp {
    FileOp::AddLine { host, path: path(file), line: bytes(line) }
}
