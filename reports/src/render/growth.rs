//! How times grow with a size: workloads whose names differ in a number at their ends only, such as `stat-flat-100` and
//! `stat-flat-100000`.

use std::collections::BTreeMap;

use stats::{Growth, SizedTime, growth as fitted};

use super::part::Part::{self, Heading, Table, Text};
use super::report::Report;
use super::titles::short_name;
use figures::provenance::Provenance;
use figures::summary::{MAKESPAN, is_simulated};
use figures::text::{columns, count, time};
use rundir::cache_state;

/// The metric of a daemon's start in a cold cell: the time until its mount is usable.
const READY: &str = "ready";

/// The family and the size in the name of a workload.
pub(super) fn sized(workload: &str) -> Option<(&str, u32)> {
    let (family, size) = workload.rsplit_once('-')?;
    Some((family, size.parse().ok()?))
}

/// Adds the table, if the run has a family with enough sizes for a curve.
pub(super) fn growth(report: &Report<'_>, parts: &mut Vec<Part>) {
    let mut curves: BTreeMap<[&str; 4], Vec<SizedTime>> = BTreeMap::new();
    let is_twin = |arm: &str| report.summary.aa_arm.as_deref() == Some(arm);
    for cell in report.summary.cells.iter().filter(|cell| cell.metric != MAKESPAN && !is_twin(&cell.arm)) {
        if let Some((family, size)) = sized(&cell.workload) {
            let key = [family, &cell.state, &cell.metric, &cell.arm];
            let at = SizedTime { size: f64::from(size), time: cell.typical_ns, interval: cell.interval };
            curves.entry(key).or_default().push(at);
        }
    }
    // Other starts are on empty workspaces, so no size is in their time.
    for ready in report.summary.ready.iter().filter(|ready| cache_state(&ready.state) == "cold" && !is_twin(&ready.arm))
    {
        if let Some((family, size)) = sized(&ready.workload) {
            let key = [family, &ready.state, READY, &ready.arm];
            let at = SizedTime { size: f64::from(size), time: ready.typical_ns, interval: ready.interval };
            curves.entry(key).or_default().push(at);
        }
    }
    let rows = curves.into_iter().filter_map(|([family, state, metric, arm], times)| {
        let arm = if is_simulated(arm) { Provenance::Simulated.marked(arm) } else { arm.to_owned() };
        let names = [&format!("{}-…", short_name(family)), state, metric, &arm].map(str::to_owned);
        Some(names.into_iter().chain(figures(&times, &fitted(&times)?)).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    parts.push(Heading(2, "How times grow with a size".to_owned()));
    parts.push(Text("The simplest curve that fits the times of all sizes: constant (it grows by less than 10 %), a + b ln n, a + b n, or worse; after ± the largest deviation of a measured time from it. \"none fits\": it is more than 25 %. The exponent is that of a power law through all sizes, with its 99 % interval: 0 is constant, 1 is linear. The knee is the size from which on a call takes more than twice as long as at the smallest size; \"–\": it stays below. The metric ready, of cold cells, is the time from a daemon's start to a usable mount.".to_owned()));
    parts.push(Table(columns("workload | state | metric | arm | smallest | largest | curve | exponent | knee"), rows));
}

/// The columns of a curve.
fn figures(times: &[SizedTime], growth: &Growth) -> [String; 5] {
    let mut times: Vec<&SizedTime> = times.iter().collect();
    times.sort_by(|one, other| one.size.total_cmp(&other.size));
    let words = |at: Option<&&SizedTime>| {
        at.map_or("–".to_owned(), |at| format!("{} at {}", time(at.time), count(at.size as u64)))
    };
    let exponent = match growth.exponent_interval {
        Some(interval) => format!("{:.2} [{:.2}, {:.2}]", growth.exponent, interval.low, interval.high),
        None => format!("{:.2}", growth.exponent),
    };
    [
        words(times.first()),
        words(times.last()),
        if growth.fits() {
            format!("{} ±{:.0} %", growth.shape.name(), growth.deviation * 100.0)
        } else {
            format!("none fits (the nearest, {}, ±{:.0} %)", growth.shape.name(), growth.deviation * 100.0)
        },
        exponent,
        growth.knee.map_or("–".to_owned(), |knee| format!("about {}", count(two_digits(knee)))),
    ]
}

/// A number rounded to two digits.
fn two_digits(number: f64) -> u64 {
    let unit = 10_f64.powf((number.log10().floor() - 1.0).max(0.0));
    ((number / unit).round() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing;
    use figures::testing as scripted;
    use rundir::Run;

    /// The scripted run with one of its workloads in four sizes, whose calls take as long as the curve says.
    fn sizes(curve: fn(f64) -> f64) -> Run {
        let small = scripted::run();
        let mut run = small.clone();
        let name = small.plan.workloads[0].name.clone();
        for size in [100_u32, 1000, 10_000, 100_000] {
            let mut workload = small.plan.workloads[0].clone();
            workload.name = format!("micro/planted-{size}");
            let of_workload = small.samples.iter().filter(|sample| sample.workload == name);
            run.samples.extend(of_workload.cloned().map(|mut sample| {
                sample.workload.clone_from(&workload.name);
                let factor = curve(f64::from(size));
                for calls in sample.calls.values_mut() {
                    for figure in [&mut calls.total_ns, &mut calls.p50_ns, &mut calls.p90_ns, &mut calls.max_ns] {
                        *figure = (*figure as f64 * factor) as u64;
                    }
                }
                sample.makespan_ns = (sample.makespan_ns as f64 * factor) as u64;
                sample
            }));
            run.plan.workloads.push(workload);
        }
        run
    }

    fn rows(curve: fn(f64) -> f64) -> Vec<Vec<String>> {
        let parts = testing::parts(&sizes(curve), growth);
        let [Heading(..), Text(_), Table(head, rows)] = &parts[..] else {
            panic!("{} parts", parts.len());
        };
        assert_eq!(head.len(), 9);
        rows.clone()
    }

    #[test]
    fn each_arm_of_a_family_has_its_curve() {
        type Case = (fn(f64) -> f64, &'static str, &'static str);
        let cases: [Case; 3] = [
            (|_| 1.0, "constant ±", "–"),
            (|n| 1.0 + n / 1e4, "linear ±", "about 10,000"),
            (|n| 1.0 + n * n / 1e7, "worse than linear ±", "about 1,800"),
        ];
        for (curve, words, knee) in cases {
            let rows = rows(curve);
            assert!(!rows.is_empty());
            for row in rows {
                assert_eq!(row[0], "planted-…");
                assert!(row[4].ends_with("at 100") && row[5].ends_with("at 100,000"), "{row:?}");
                assert!(row[6].starts_with(words) && row[8].starts_with(knee), "{row:?}");
                assert!(!["direct-again"].contains(&row[3].as_str()), "{row:?}");
            }
        }
    }

    #[test]
    fn the_cold_starts_of_each_arm_with_daemons_have_a_curve() {
        let mut run = sizes(|_| 1.0);
        run.plan.workloads.iter_mut().for_each(|workload| workload.states = vec!["cold".to_owned()]);
        run.samples.iter_mut().for_each(|sample| sample.state = "cold".to_owned());
        let mut cells = Vec::new();
        for workload in run.plan.workloads.iter().filter(|workload| workload.name.starts_with("micro/planted")) {
            let (_, size) = sized(&workload.name).unwrap();
            let of_first = run.cells.iter().filter(|cell| cell.workload == run.plan.workloads[0].name);
            cells.extend(of_first.cloned().map(|mut cell| {
                cell.workload.clone_from(&workload.name);
                // The first start of a cold cell is on an empty workspace.
                let restart = cell.ready_ns.first().map(|ns| ns * u64::from(size));
                cell.ready_ns.extend(restart);
                cell
            }));
        }
        run.cells.extend(cells);
        run.cells.iter_mut().for_each(|cell| cell.state = "cold".to_owned());
        let parts = testing::parts(&run, growth);
        let Some(Table(_, rows)) = parts.last() else {
            panic!("{} parts", parts.len());
        };
        let mut ready = rows.iter().filter(|row| row[2] == READY);
        let [Some(sqlite), None] = [ready.next(), ready.next()] else {
            panic!("{rows:?}");
        };
        assert_eq!((sqlite[3].as_str(), sqlite[1].as_str()), ("sqlite", "cold"));
        assert!(sqlite[6].starts_with("linear ±") && sqlite[8].starts_with("about 200"), "{sqlite:?}");
    }

    #[test]
    fn a_run_without_a_family_of_four_sizes_has_no_table() {
        let mut run = sizes(|_| 1.0);
        run.samples.retain(|sample| sample.workload != "micro/planted-100");
        assert!(testing::parts(&run, growth).is_empty());
    }

    #[test]
    fn a_knee_is_rounded_to_two_digits() {
        assert_eq!([1.4, 7.0, 12.0, 1234.0, 98_765.0].map(two_digits), [1, 7, 12, 1200, 99_000]);
    }
}
