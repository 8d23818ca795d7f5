//! Notes which commit and which compiler made this binary, for the environment receipt.

use std::process::Command;

fn main() {
    // In a linked worktree they are not below `.git`. A file that is missing would make every build compile again.
    for name in ["HEAD", "index"] {
        if let Some(file) = output("git", &["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    // Without its lock git does not renew the index, for which cargo would compile again.
    let status = ["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"];
    let changed = output("git", &status);
    let commit = match (commit, changed) {
        (Some(commit), Some(changed)) if changed.is_empty() => commit,
        (Some(commit), _) => format!("{commit} with changes"),
        (None, _) => "no commit".to_owned(),
    };
    println!("cargo:rustc-env=CTXBENCH_COMMIT={commit}");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown rustc".to_owned());
    println!("cargo:rustc-env=CTXBENCH_RUSTC={version}");
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
