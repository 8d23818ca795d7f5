//! The start of a path, on any system.

/// Whether a path begins with a drive, such as `C:\`, or is a share, such as `\\host\share`.
pub fn is_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let has_drive = bytes.len() >= 2
        && bytes[0].is_ascii_alphabetic()
        && bytes[1] == b':'
        && bytes.get(2).is_none_or(|next| b"/\\".contains(next));
    has_drive || path.starts_with(r"\\")
}

/// Whether a path begins at the top of a file system.
pub fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || is_windows(path)
}
