//! Everything about an operation that can be done before the clock runs.

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

/// An operation with its paths as the system call wants them.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The operation.
    pub op: &'a FileOp,
    /// Its absolute path; of a rename, the old one.
    pub path: CString,
    /// Of a rename, the new absolute path; of a touch, the root.
    pub to: Option<CString>,
    /// Of files that are to be durable, their absolute paths.
    pub files: Vec<CString>,
    /// What makes files durable is asked of the mount, which has a bucket; otherwise each is synced.
    pub has_bucket: bool,
    /// Of a read from a file that is kept open, that file.
    pub open: Option<Rc<File>>,
    /// The processes that work at once, where there are several.
    pub workers: Option<Workers>,
}

/// Files that are kept open, by path, while the operations of a block are prepared.
pub type OpenFiles = HashMap<WorkspacePath, Rc<File>>;

/// Prepares an operation for the workspace at `root`, an absolute path: agents use absolute paths.
///
/// # Errors
/// If a path has a NUL, which no checked workspace path has, or a file that is to be kept open cannot
/// be opened.
pub fn prepare<'a>(
    root: &Path,
    op: &'a FileOp,
    open_files: &mut OpenFiles,
) -> io::Result<Prepared<'a>> {
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
    Ok(Prepared {
        op,
        path,
        to,
        files,
        has_bucket: false,
        open,
        workers: None,
    })
}
