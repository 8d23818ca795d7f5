//! HdrHistogram logs of a run, for other tools.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use inputs::names::FileName;
use rundir::{CellEpoch, Run};

use super::output::{WriteError, place, put};

/// Writes a log per workload, cache state and arm, with a tagged line per call kind and epoch. Times are in nanoseconds.
pub(super) fn histogram_logs(run: &Run, dir: &Path) -> Result<(), WriteError> {
    let mut logs: BTreeMap<String, Vec<(Duration, &CellEpoch)>> = BTreeMap::new();
    let mut start = Duration::ZERO;
    for cell in &run.cells {
        let name = format!("{}.{}.{}", cell.workload, cell.state, cell.arm);
        logs.entry(name).or_default().push((start, cell));
        start = start.saturating_add(Duration::from_millis(cell.took_ms));
    }
    for (name, cells) in logs {
        let name = FileName::of_name(&name, ".hlog").map_err(|error| WriteError::Format(error.to_string()))?;
        let file = place(dir, "hist", &name)?;
        let format = |error: String| WriteError::Format(format!("{}: {error}", file.display()));
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("service times in nanoseconds; one line an epoch and call kind")
            .begin_log_with(&mut bytes, &mut serializer)
            .map_err(|error| format(error.to_string()))?;
        for (start, cell) in cells {
            let length = Duration::from_millis(cell.took_ms);
            for (kind, latencies) in &cell.latencies {
                // An unpacked histogram takes 200 KB: one at a time.
                let histogram = latencies.histogram().map_err(format)?;
                writer
                    .write_histogram(&histogram, start, length, Tag::new(kind))
                    .map_err(|error| format(format!("{error:?}")))?;
            }
        }
        put(&file, &bytes)?;
    }
    Ok(())
}
