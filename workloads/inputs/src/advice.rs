//! What a user can do about an error of the system on a path.

use std::io::{self, ErrorKind};
use std::path::Path;

/// What to do about an error on a path; `None` if its kind alone says too little.
pub fn advice(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::NotFound => "correct the path, or create what is missing",
        ErrorKind::PermissionDenied => "run it as a user who has the permission, or change the owner or the mode",
        ErrorKind::NotADirectory => "correct the path: a file stands where it needs a directory",
        ErrorKind::IsADirectory => "name a file: this is a directory",
        ErrorKind::AlreadyExists => "choose another name, or remove what is there",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space on that disk, or choose a place on another one"
        }
        ErrorKind::ReadOnlyFilesystem => "choose a place on a file system that can be written",
        _ => return None,
    })
}

/// The error with what to do about it, in a line of its own.
pub fn advised(error: &io::Error) -> io::Error {
    let fix = advice(error).map(|advice| format!("\n  fix: {advice}"));
    let text = format!("{error}{}", fix.unwrap_or_default());
    io::Error::new(error.kind(), text)
}

/// As [`advised`], for a new file: a missing directory is named.
pub fn advised_for_new(file: &Path, error: &io::Error) -> io::Error {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let missing = parent.filter(|parent| error.kind() == ErrorKind::NotFound && !parent.exists());
    let Some(parent) = missing.map(Path::display) else {
        return advised(error);
    };
    let text = format!("{error}\n  fix: create its directory with `mkdir -p {parent}`");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_on_a_path_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let said = |path: &Path, opened: io::Result<std::fs::File>| {
            let said = advised_for_new(path, &opened.unwrap_err()).to_string();
            let (what, fix) = said.split_once("\n  fix: ").unwrap();
            assert!(what.contains("(os error "), "{what}");
            fix.replace(dir.path().to_str().unwrap(), "D")
        };
        let opened = |path: &Path| said(path, std::fs::File::open(path));
        assert_eq!(opened(&dir.path().join("a/b")), "create its directory with `mkdir -p D/a`");
        assert_eq!(opened(&dir.path().join("b")), "correct the path, or create what is missing");
        assert!(opened(&file.join("b")).starts_with("correct the path: a file stands"));
        let created = std::fs::File::create(dir.path());
        assert!(said(dir.path(), created).contains("this is a directory"));
        let kinds = [
            ErrorKind::PermissionDenied,
            ErrorKind::StorageFull,
            ErrorKind::ReadOnlyFilesystem,
            ErrorKind::AlreadyExists,
        ];
        assert!(kinds.iter().all(|kind| advice(&(*kind).into()).is_some()));
        assert_eq!(advice(&io::Error::other("no")), None);
        assert_eq!(advised(&io::Error::other("no")).to_string(), "no");
        let missing = advised(&ErrorKind::NotFound.into()).to_string();
        assert!(missing.ends_with("\n  fix: correct the path, or create what is missing"));
    }
}
