//! How every test writes a program that it then runs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program with `text` and makes it executable.
///
/// A child process writes the file. If this process did, another test could fork while the file was open for
/// writing, and as long as that child had not called `exec`, the program would not start: "Text file busy".
pub fn write_executable(file: &Path, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "cannot write {}", file.display());
}
