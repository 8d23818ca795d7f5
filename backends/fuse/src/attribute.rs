//! Extended attributes of files in a mount, by which programs send it commands.

use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The value of an attribute as text, at most 64 KiB.
pub fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; 65_536];
    let length = getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(String::from_utf8_lossy(&value).into_owned())
}
