//! The report's section on what a backend's requests to S3 and its bytes at rest would cost at list prices.

use std::collections::BTreeMap;

use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::prices::Prices;
use figures::text::{columns, count};

/// The calls that a price in the table is for.
const CALLS: f64 = 1e6;

pub(super) fn bill(report: &Report<'_>, parts: &mut Vec<Part>) {
    let mut at_rest: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for cell in &report.run.cells {
        if let Some(bytes) = cell.stored_bytes {
            let largest = at_rest.entry([&cell.workload, &cell.state, &cell.arm]).or_default();
            *largest = bytes.max(*largest);
        }
    }
    // A test reads the built-in list.
    let Ok(prices) = Prices::built_in() else {
        return;
    };
    let Some(bucket) = prices.bucket() else {
        return;
    };
    let rows = report.summary.costs.iter().filter_map(|cost| {
        let of = |names: &[&str]| -> f64 {
            let counts = names.iter().filter_map(|name| cost.store_counts.get(*name));
            counts.sum()
        };
        let (writes, reads, sent) = (of(&["s3_put", "s3_list"]), of(&["s3_get", "s3_head"]), of(&["s3_bytes_sent"]));
        // A call that sends nothing costs nothing, and has no row.
        if writes + reads + sent == 0.0 {
            return None;
        }
        // Bare requests replace objects: what they send does not add up.
        let stays = Some(sent).filter(|_| !cost.arm.starts_with("s3-bare"));
        let month = stays.map(|bytes| format!("{:.4}", bucket.of_stored((CALLS * bytes).round() as u64)));
        Some(vec![
            cost.workload.clone(),
            cost.state.clone(),
            cost.arm.clone(),
            format!("{writes:.3}"),
            format!("{reads:.3}"),
            format!("{:.2}", CALLS * bucket.of_requests(writes, reads)),
            count(sent.round() as u64),
            month.unwrap_or_else(|| "–".to_owned()),
        ])
    });
    let requests: Vec<Vec<String>> = rows.collect();
    let rows = report.summary.costs.iter().filter_map(|cost| {
        let key = [&*cost.workload, &*cost.state, &*cost.arm];
        let stored = *at_rest.get(&key)?;
        let cells = [count(stored), format!("{:.6}", bucket.of_stored(stored))];
        Some(key.map(str::to_owned).into_iter().chain(cells).collect())
    });
    let stored: Vec<Vec<String>> = rows.collect();
    if requests.is_empty() && stored.is_empty() {
        return;
    }
    parts.push(Heading(3, "Requests to S3 and bytes at rest".to_owned()));
    parts.push(List(vec![bucket.label()]));
    if !requests.is_empty() {
        parts.push(Text("What a million calls would cost in US dollars, by their counted requests. A call is one timed step, such as a `git` command in program/git; uploads that end in a pass count, even of files that were written before it. Beside the price are the bytes that a call sends to the bucket, with the price of keeping them for a month. Repeated requests and replaced objects count, so a call leaves at most this much in the bucket. Cells whose calls send no request are left out.".to_owned()));
        let head = columns(
            "workload | state | arm | PUT and LIST a call | GET and HEAD a call | \
             $ for a million calls | bytes to the bucket a call | $ a month for the bytes of a million calls",
        );
        parts.push(Table(head, requests));
    }
    if !stored.is_empty() {
        parts.push(Text("The blocks that an arm's files occupy on the local disk at the end of a cell (the maximum over epochs), and the price of as many bytes for a month in the bucket.".to_owned()));
        let head = columns("workload | state | arm | bytes at rest on the disk | $ a month for as many in S3");
        parts.push(Table(head, stored));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::markdown::markdown;
    use crate::render::testing::parts;
    use figures::testing;
    use rundir::Run;

    fn page(run: &Run) -> String {
        markdown(&parts(run, bill))
    }

    #[test]
    fn a_bill_has_requests_of_arms_that_send_some_and_the_most_bytes_of_all_epochs() {
        let mut run = testing::run();
        assert_eq!(page(&run).trim(), "");
        let cells = run.cells.iter_mut();
        for cell in cells.filter(|cell| cell.workload == "micro/read") {
            cell.stored_bytes = Some(1_000_000_000 - u64::from(cell.epoch));
            let calls = cell.counted.calls;
            if let Some(daemon) = &mut cell.counted.daemon {
                daemon.store.insert("s3_put".to_owned(), 2 * calls);
                daemon.store.insert("s3_get".to_owned(), 5 * calls);
                daemon.store.insert("s3_bytes_sent".to_owned(), 1500 * calls);
            }
        }
        let text = page(&run);
        for row in [
            "| micro/read | hot | sqlite | 2.000 | 5.000 | 12.00 | 1,500 | 0.0345 |",
            "| micro/read | hot | sqlite | 1,000,000,000 | 0.023000 |",
            "| micro/read | hot | direct | 1,000,000,000 | 0.023000 |",
            "$ 0.005 for 1,000 PUT or LIST",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
        assert!(!text.contains("agent/session"), "{text}");
        let rows = text.lines().filter(|row| row.starts_with("| micro/read | hot | direct |"));
        assert_eq!(rows.count(), 1, "an arm that sends no request has no row of them: {text}");
        for cell in &mut run.cells {
            cell.stored_bytes = None;
            if let Some(daemon) = &mut cell.counted.daemon {
                let store = daemon.store.iter_mut().filter(|(name, _)| name.starts_with("s3_"));
                store.for_each(|(_, sum)| *sum = 0);
            }
        }
        assert_eq!(page(&run).trim(), "", "calls that send nothing have no row");
    }
}
