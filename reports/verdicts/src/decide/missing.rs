//! The commands that make missing evidence, merged over candidates and workloads.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::Row;
use super::{Decision, arm_words};
use crate::measure::{Gap, GapKind};
use figures::text::lower;

/// A command and the evidence that it makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remedy {
    /// The command.
    pub command: String,
    /// The missing evidence.
    pub makes: Vec<String>,
}

type StringSet = BTreeSet<String>;

const CONFORM: &str = "ctxbench conform";
const RUN: &str = "ctxbench run --workload ";
const BACKEND: &str = " --backend ";
/// The beginning of the names of workloads on the files of `make corpora`.
const OF_CORPORA: &str = " --workload micro/corpus-";

/// The commands that make the missing evidence of these decisions. Commands that differ in backends or workloads only
/// are one command.
pub fn remedies(decisions: &[Decision]) -> Vec<Remedy> {
    let mut by_command: BTreeMap<String, (StringSet, StringSet)> = BTreeMap::new();
    for decision in decisions {
        for gap in &decision.missing {
            let (base, backends) = parts(gap);
            let (all_backends, makes) = by_command.entry(base).or_default();
            all_backends.extend(backends);
            makes.insert(gap_words(&decision.rows, &decision.candidate, gap));
        }
    }
    let mut by_backends: BTreeMap<(String, StringSet), (Vec<String>, StringSet)> = BTreeMap::new();
    for (base, (backends, makes)) in by_command {
        let (base, workload) = match base.strip_prefix(RUN) {
            Some(workload) => ("ctxbench run".to_owned(), Some(workload.to_owned())),
            None => (base, None),
        };
        let (workloads, all_makes) = by_backends.entry((base, backends)).or_default();
        workloads.extend(workload);
        all_makes.extend(makes);
    }
    let merged = by_backends.into_iter();
    merged
        .map(|((base, backends), (workloads, makes))| {
            let before = if base == CONFORM { " " } else { BACKEND };
            let workloads: String = workloads.iter().map(|workload| format!(" --workload {workload}")).collect();
            let backends: String = backends.iter().map(|backend| format!("{before}{backend}")).collect();
            let first = if workloads.contains(OF_CORPORA) { "make corpora && " } else { "" };
            Remedy { command: format!("{first}{base}{workloads}{backends}"), makes: makes.into_iter().collect() }
        })
        .collect()
}

/// Missing evidence for a reader: the first row of a candidate that lacks it, or the words of the gap if they give a reason.
pub(super) fn gap_words(rows: &[Row], candidate: &str, gap: &Gap) -> String {
    let candidate = arm_words(candidate);
    let row = rows.iter().find(|row| row.gap.as_ref() == Some(gap));
    match (&gap.kind, row) {
        // The answer of the use has the details, once for all its candidates.
        (GapKind::Need { need, .. }, _) => format!("{candidate}, which {need}"),
        (GapKind::TooFew(things), Some(row)) => format!("more {things} for “{}” of {candidate}", lower(&row.title)),
        (GapKind::Unmeasured, Some(row)) => format!("“{}” of {candidate}", lower(&row.title)),
        _ => gap.what.clone(),
    }
}

/// A command without its backends, and the backends.
fn parts(gap: &Gap) -> (String, Vec<String>) {
    let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    if let Some(names) = gap.command.strip_prefix(CONFORM) {
        return (CONFORM.to_owned(), owned(&mut names.split_whitespace()));
    }
    let mut words = gap.command.split(BACKEND);
    let base = words.next().unwrap_or_default().to_owned();
    (base, owned(&mut words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::rows::{Bound, RowRole, without};
    use crate::measure::MeasureResult;

    #[test]
    fn missing_evidence_is_named_by_the_title_of_its_row() {
        let makes = |gap: Gap| {
            let bound = Bound { is_most: true, value: 0.0, unit: "probes".to_owned() };
            let row = without(RowRole::Gate, "Answers found", bound, MeasureResult::Missing(gap.clone()));
            let decision = Decision {
                candidate: "s3-embedded".to_owned(),
                rows: vec![row],
                missing: vec![gap],
                ..Decision::default()
            };
            remedies(&[decision]).remove(0).makes.remove(0)
        };
        let run = "ctxbench run --workload a";
        // A colon in a name is no reason.
        let unmeasured = Gap::new("evidence-in-budget of micro/corpus, method: recall", run);
        assert_eq!(makes(unmeasured), "“answers found” of s3");
        let need = Gap::of_need("needs a capable model", "x is small", run);
        assert_eq!(makes(need), "s3, which needs a capable model");
        let reason = Gap::because("s3 cannot be used here", "no server", run);
        assert_eq!(makes(reason), "s3 cannot be used here: no server");
    }

    #[test]
    fn commands_that_differ_in_backends_or_workloads_only_are_one() {
        let gap = |what: &str, command: &str| Gap::new(what, command);
        let decision = |missing| Decision { missing, ..Decision::default() };
        let found = remedies(&[
            decision(vec![
                gap("a on x", "ctxbench run --workload a --backend x"),
                gap("b on x", "ctxbench run --workload b --backend x"),
                gap("conformance of x", "ctxbench conform direct x"),
                gap("faults of x", "ctxbench fault --backend x"),
            ]),
            decision(vec![
                gap("a on y", "ctxbench run --workload a --backend y"),
                gap("b on y", "ctxbench run --workload b --backend y"),
                gap("conformance of y", "ctxbench conform direct y"),
                gap("faults of x", "ctxbench fault --backend x"),
            ]),
        ]);
        let commands: Vec<&str> = found.iter().map(|remedy| remedy.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "ctxbench conform direct x y",
                "ctxbench fault --backend x",
                "ctxbench run --workload a --workload b --backend x --backend y",
            ]
        );
        assert_eq!(found[2].makes, ["a on x", "a on y", "b on x", "b on y"]);
    }
}
