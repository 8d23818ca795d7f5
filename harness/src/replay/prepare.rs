//! Everything about an operation that can be done before the clock runs.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use workloads::path::WorkspacePath;
use workloads::script::FileOp;

/// An operation with its paths as the system call wants them.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The operation.
    pub op: &'a FileOp,
    /// Its absolute path; of a rename, the old one.
    pub path: CString,
    /// Of a rename, the new absolute path.
    pub to: Option<CString>,
}

/// Prepares an operation for the workspace at `root`, an absolute path: agents use absolute paths.
///
/// # Errors
/// If a path has a NUL, which no checked workspace path has.
pub fn prepare<'a>(root: &Path, op: &'a FileOp) -> io::Result<Prepared<'a>> {
    let absolute = |path: &WorkspacePath| {
        let bytes = path.below(root).into_os_string().into_vec();
        CString::new(bytes).map_err(io::Error::from)
    };
    let (path, to) = match op {
        FileOp::Rename { from, to } => (absolute(from)?, Some(absolute(to)?)),
        op => (absolute(op.path())?, None),
    };
    Ok(Prepared { op, path, to })
}
