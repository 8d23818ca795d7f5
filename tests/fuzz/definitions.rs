//! Definitions that users write: views, policies, claims, prices, suites, workloads, faults.

use std::path::{Path, PathBuf};

use crate::{fuzz, mutation};

fn seeds(dir: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir);
    let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", dir.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Parses mutations of every file in `dir` as text.
fn texts(target: &'static str, seeds: &[Vec<u8>], parse: impl Fn(&Path, &str)) {
    let make = |rng: &mut crate::Rng| {
        let seed = mutation::pick(rng, seeds);
        mutation::toml(rng, seed)
    };
    fuzz(target, make, |input| parse(Path::new("input.toml"), &String::from_utf8_lossy(input)));
}

#[test]
fn a_view_definition_is_parsed_or_refused() {
    texts("views", &seeds("backends/view/views"), |file, text| {
        let _ = view::definition::ViewDefinition::parse(file, text);
    });
}

#[test]
fn a_policy_is_parsed_or_refused() {
    texts("policies", &seeds("reports/policies"), |file, text| {
        let _ = verdicts::decide::Policy::parse(file, text);
    });
}

#[test]
fn claims_and_prices_are_parsed_or_refused() {
    let mut all = seeds("reports/claims");
    all.extend(seeds("reports"));
    texts("claims-prices", &all, |file, text| {
        let _ = verdicts::claims::ClaimFile::parse(file, text);
        let _ = figures::prices::Prices::parse(file, text);
    });
}

#[test]
fn suites_and_faults_are_parsed_or_refused() {
    let mut all = seeds("workloads/suites");
    all.extend(seeds("workloads/faults"));
    texts("suites-faults", &all, |file, text| {
        let _ = workloads::suite::Suite::parse(file, text);
        let _ = workloads::fault::Scenario::parse(file, text);
    });
}
