//! A report of a large run: time and memory. Ignored by default; `make scale` runs it with the release binary.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{CTXBENCH, Scratch, memory_of};
use crate::large_run::million_calls;

#[test]
#[ignore = "takes a release binary: make scale"]
fn a_run_of_a_million_calls_is_rendered_in_5_s_and_500_mb() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("run");
    let calls = million_calls(&dir);
    assert!(calls >= 1_000_000, "{calls}");
    let program = std::env::var_os("CTXBENCH_RELEASE").map_or(CTXBENCH.into(), PathBuf::from);
    let began = Instant::now();
    let mut report =
        Command::new(program).args(["report", "--policy", "all"]).arg(&dir).stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(memory_of(report.id(), "VmHWM:").unwrap_or(0));
        if let Some(status) = report.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = began.elapsed();
    assert!(status.success(), "{status}");
    let page = std::fs::metadata(dir.join("report.html")).unwrap().len();
    println!("{calls} calls: {:.2} s, {} MiB, a page of {} KiB", took.as_secs_f64(), most / 1024, page / 1024);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(most < 500_000, "{most} KiB");
    assert!(page < 3_000_000, "{page} bytes");
}
