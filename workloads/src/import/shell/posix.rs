//! Commands of `sh`, `bash` and `zsh`.

use super::steps::{ShellCommand, ShellWork};

pub(super) fn operations(_command: &ShellCommand, _output: &str, _ok: bool) -> ShellWork {
    ShellWork::uncertain("not parsed yet")
}
