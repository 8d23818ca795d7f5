//! The `fio` baseline: fio makes and times `pread` calls on the same file system as the harness.
//!
//! Its service times validate the harness's own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use arms::backend::{
    Access, Backend, Capabilities, Description, Need, ServiceTimes, TimedReader, Unavailable, Versions, Workspace,
    WorkspaceConfig,
};

/// Its name on the command line and in results.
pub(crate) const NAME: &str = "fio";

/// The program `fio` with its engine `psync`: sequential `pread` calls.
pub(crate) struct Fio;

struct Workplace {
    root: PathBuf,
    cpu: Option<usize>,
}

impl Backend for Fio {
    fn describe(&self) -> Description {
        Description {
            name: NAME.to_owned(),
            summary: "a plain directory, read by fio (engine psync), which times its own calls".to_owned(),
            durability: "fio only reads".to_owned(),
            capabilities: Capabilities { holds_data: true, persistent: true, ..Capabilities::default() },
            needs: vec![Need { name: NAME.to_owned(), why: "it makes and times the calls".to_owned() }],
            ..Description::default()
        }
    }

    fn access(&self) -> Access {
        Access::Program
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let missing = |reason: String| Unavailable { reason, fix: "sudo apt-get install fio".to_owned() };
        let asked = Command::new(NAME).arg("--version").output();
        let output = asked.map_err(|error| missing(format!("fio does not start: {error}")))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            Ok(Versions::from([(NAME.to_owned(), version)]))
        } else {
            Err(missing("fio does not print its version".to_owned()))
        }
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let root = config.dir.join(arms::backend::FILES);
        std::fs::create_dir_all(&root)?;
        let cpu = config.cpu;
        Ok(Box::new(Workplace { root, cpu }))
    }
}

impl Workspace for Workplace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn timed_reader(&mut self) -> Option<&mut dyn TimedReader> {
        Some(self)
    }
}

impl TimedReader for Workplace {
    fn pread(&mut self, file: &Path, length: usize, calls: usize) -> io::Result<ServiceTimes> {
        let mut command = Command::new(NAME);
        command
            .args(["--name=pread", "--ioengine=psync", "--rw=randread"])
            .args(["--invalidate=0", "--norandommap", "--output-format=json"])
            .args(["--percentile_list=50:90"])
            .arg(format!("--bs={length}"))
            .arg(format!("--filename={}", file.display()))
            .arg(format!("--number_ios={calls}"));
        if let Some(cpu) = self.cpu {
            command.arg(format!("--cpus_allowed={cpu}"));
        }
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("fio failed: {}", said.trim())));
        }
        service_times(&output.stdout)
    }
}

/// The read completion latencies of a fio report.
fn service_times(report: &[u8]) -> io::Result<ServiceTimes> {
    let report: serde_json::Value = serde_json::from_slice(report)?;
    let read = &report["jobs"][0]["read"]["clat_ns"];
    let missing = |what: &str| io::Error::other(format!("fio's report has no read.clat_ns.{what}"));
    let whole = |value: &serde_json::Value, what: &str| value.as_u64().ok_or_else(|| missing(what));
    let percentile = &read["percentile"];
    Ok(ServiceTimes {
        count: whole(&read["N"], "N")?,
        mean_ns: read["mean"].as_f64().ok_or_else(|| missing("mean"))?,
        p50_ns: whole(&percentile["50.000000"], "percentile.50")?,
        p90_ns: whole(&percentile["90.000000"], "percentile.90")?,
        max_ns: whole(&read["max"], "max")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_completion_latencies_of_a_report_are_read() {
        let report = r#"{"jobs":[{"read":{"clat_ns":{"min":200,"max":9000,"mean":431.5,"N":1000,
            "percentile":{"50.000000":402,"90.000000":510}}}}]}"#;
        let expected = ServiceTimes { count: 1000, mean_ns: 431.5, p50_ns: 402, p90_ns: 510, max_ns: 9000 };
        assert_eq!(service_times(report.as_bytes()).unwrap(), expected);
        let error = service_times(b"{}").unwrap_err().to_string();
        assert!(error.contains("clat_ns.N"), "{error}");
    }
}
