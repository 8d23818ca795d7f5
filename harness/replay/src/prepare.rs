//! Prepares operations before the timed calls: paths, open files, client processes.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::rc::Rc;

use workloads::path::WorkspacePath;
use workloads::script::FileOp;

use super::workers::Workers;

/// An operation with its paths as NUL-terminated strings.
#[derive(Debug)]
pub struct PreparedOp<'a> {
    /// The operation.
    pub op: &'a FileOp,
    /// The absolute path; for a rename, the old one.
    pub path: CString,
    /// For a rename, the new absolute path; for a touch, the root.
    pub to: Option<CString>,
    /// For a sync of several files, their absolute paths.
    pub files: Vec<CString>,
    /// Whether the mount has a bucket: then one request to it makes files durable. Otherwise each file is synced.
    pub has_bucket: bool,
    /// For a read from an open file, that file.
    pub open: Option<Rc<File>>,
    /// The client processes, if the operation has several.
    pub workers: Option<Workers>,
}

/// Open files by path, shared by the operations of a script.
pub type OpenFileTable = HashMap<WorkspacePath, Rc<File>>;

/// Prepares an operation for the workspace at `root`, which must be absolute, as the paths of agents are.
pub fn prepare<'a>(root: &Path, op: &'a FileOp, open_files: &mut OpenFileTable) -> io::Result<PreparedOp<'a>> {
    let absolute = |path: &WorkspacePath| {
        let bytes = path.below(root).into_os_string().into_vec();
        CString::new(bytes).map_err(io::Error::from)
    };
    let (path, to) = match op {
        FileOp::Rename { from, to } => (absolute(from)?, Some(absolute(to)?)),
        FileOp::Touch(file) => (absolute(file)?, Some(absolute(&WorkspacePath::root())?)),
        op => (absolute(op.path())?, None),
    };
    let files = match op {
        FileOp::SyncAll { files, .. } => files.iter().map(absolute).collect::<io::Result<_>>()?,
        _ => Vec::new(),
    };
    let open = match op {
        FileOp::ReadOpen { path, .. } => Some(match open_files.get(path) {
            Some(file) => Rc::clone(file),
            None => {
                let file = Rc::new(File::open(path.below(root))?);
                open_files.insert(path.clone(), Rc::clone(&file));
                file
            }
        }),
        _ => None,
    };
    Ok(PreparedOp { op, path, to, files, has_bucket: false, open, workers: None })
}
