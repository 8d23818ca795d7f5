//! The environment receipt: the properties of machine and build that the figures of a run depend on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fuse::connection::fusectl;
use rundir::{Environment, RUN_DIRECTORY_VERSION, ScratchReceipt};

use runner::scratch::ScratchDisk;

/// Version and commit of this binary.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CTXBENCH_COMMIT"), ")");

/// [`BUILD`], as plans have it.
pub fn ctxbench() -> String {
    BUILD.to_owned()
}

/// The time in UTC, in the format of plans.
pub fn now() -> String {
    in_utc(jiff::Timestamp::now())
}

/// A time in UTC, in the format of plans.
pub fn in_utc(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The day in UTC, for which prices are looked up.
pub fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// The command line of this process. It holds no secret: keys come from the environment.
pub fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("ctxbench".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Creates the directory of a new run under `results`, named by the time `created` and the suite. A second run of the
/// same second gets a number, even if both begin at once.
pub fn new_run_dir(results: &Path, created: &str, suite: &str) -> anyhow::Result<PathBuf> {
    let time = created.replace(['-', ':', 'Z'], "").replace('T', "-");
    fs::create_dir_all(results).with_context(|| format!("creating {}", results.display()))?;
    let mut number = 1;
    loop {
        let name = match number {
            1 => format!("{time}-{suite}"),
            number => format!("{time}-{suite}-{number}"),
        };
        let dir = results.join(name);
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error).with_context(|| format!("creating {}", dir.display())),
        }
    }
}

/// SHA-256 of the running binary: two builds of one commit can differ.
fn binary_sha256() -> io::Result<String> {
    inputs::sha256_of(Path::new("/proc/self/exe"))
}

/// Reads the environment of this machine.
pub fn environment(scratch: &ScratchReceipt) -> io::Result<Environment> {
    let kernel = rustix::system::uname();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map(|(_, value)| value.trim().to_owned())
    };
    let memory_kib =
        field(&read("/proc/meminfo"), "MemTotal").and_then(|total| total.split(' ').next()?.parse::<u64>().ok());
    let has_hypervisor_flag = field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    let product = read("/sys/class/dmi/id/product_name").trim().to_owned();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    Ok(Environment {
        schema: RUN_DIRECTORY_VERSION,
        kernel: format!("{} {}", kernel.release().to_string_lossy(), kernel.version().to_string_lossy()),
        cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
        cpus,
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        clock: read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim().to_owned(),
        hypervisor: (has_hypervisor_flag || !product.is_empty())
            .then(|| if product.is_empty() { "yes".to_owned() } else { product }),
        scratch: scratch.clone(),
        user: if rustix::process::geteuid().is_root() { "root".to_owned() } else { "non-root".to_owned() },
        build: format!("{}, {}", if cfg!(debug_assertions) { "debug" } else { "release" }, env!("CTXBENCH_RUSTC")),
        binary_sha256: binary_sha256()?,
        load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        cpu_pressure_avg10: pressure_avg10(),
        fusectl: fusectl().is_some(),
    })
}

/// Reads the environment of this machine with a directory as the scratch.
pub fn environment_in(dir: &Path) -> anyhow::Result<Environment> {
    let disk = ScratchDisk::choose(Some(dir), 0)?;
    Ok(environment(disk.receipt())?)
}

/// Warnings about this environment that reduce the value of figures, with advice.
pub fn warnings(environment: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    if environment.build.starts_with("debug") {
        warnings.push("this is a debug build: figures mean nothing (build with `cargo build --release`)".to_owned());
    }
    if matches!(environment.scratch.file_system.as_str(), "tmpfs" | "ramfs") {
        warnings.push("the scratch directory is in memory: fsync and cold figures mean nothing (give --scratch-dir a directory on a disk)".to_owned());
    }
    if environment.cpu_pressure_avg10.is_some_and(|share| share > 20.0) {
        warnings.push("other processes use this machine's processors: busy passes are repeated, and with many of them fewer cells get a verdict (fix: stop those processes)".to_owned());
    }
    if let Some(fallback) = &environment.scratch.fallback {
        warnings.push(format!("the scratch is a plain directory: {fallback}"));
    }
    if environment.user == "non-root" {
        warnings.push("only root can drop the kernel's caches: lukewarm and cold cells are skipped".to_owned());
    }
    if !environment.fusectl {
        warnings.push("fusectl is not mounted: a hung mount can be ended only by killing its daemon (fix: mount -t fusectl none /sys/fs/fuse/connections)".to_owned());
    }
    warnings
}

fn pressure_avg10() -> Option<f64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split("avg10=").nth(1)?.split(' ').next()?.parse().ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn runs_that_begin_in_one_second_get_directories_of_their_own() {
        let results = tempfile::tempdir().unwrap();
        let begin = || new_run_dir(results.path(), "2026-11-28T05:25:41Z", "default").unwrap();
        let dirs: BTreeSet<PathBuf> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            let dirs = threads.into_iter().map(|thread| thread.join().unwrap());
            dirs.collect()
        });
        assert_eq!(dirs.len(), 8);
        assert!(dirs.contains(&results.path().join("20261128-052541-default")));
    }
}
