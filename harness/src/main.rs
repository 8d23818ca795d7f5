//! The binary of [`harness`]. Cargo starts to compile a library when the metadata of its dependencies is ready; a binary
//! waits until they are compiled.

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main()
}
