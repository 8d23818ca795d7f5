//! `report.json`, and the schema that it follows.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;

use super::report::Report;
use crate::answer::Overview;
use figures::context::Contexts;
use figures::summary::Summary;
use verdicts::claims::ClaimResult;
use verdicts::decide::Decision;

/// A report of a run of ctxbench, for programs.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "ctxbench report.json")]
struct ReportJson<'a> {
    /// The schema version of the run directory.
    schema: u32,
    /// The plan, written before the first pass.
    plan: &'a rundir::Plan,
    /// The answer: for each use what to choose, at what cost, how sure; calls, failures, losses, missing evidence.
    answer: &'a Overview,
    /// The machine.
    environment: &'a rundir::Environment,
    /// Cells, costs, outcomes and health.
    summary: &'a Summary,
    /// The costs of the sessions' contexts.
    contexts: &'a Contexts,
    /// How published claims stand.
    claims: &'a [ClaimResult],
    /// The decision of each policy about each candidate.
    decisions: &'a [Decision],
    /// The probes.
    probes: &'a [rundir::Probe],
    /// The injected faults of `faults.jsonl`.
    faults: &'a [rundir::Fault],
}

pub(super) fn json(report: &Report<'_>) -> Result<String, String> {
    let json = ReportJson {
        schema: rundir::RUN_DIRECTORY_VERSION,
        plan: &report.run.plan,
        answer: report.overview,
        environment: &report.run.environment,
        summary: report.summary,
        contexts: report.contexts,
        claims: report.claims,
        decisions: &report.decisions,
        probes: &report.run.probes,
        faults: &report.run.faults,
    };
    serde_json::to_string_pretty(&json).map_err(|error| error.to_string())
}

/// The JSON Schema (draft 2020-12) of `report.json`, from the types that are written.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn report_schema() -> Result<String, serde_json::Error> {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<ReportJson<'_>>();
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::Inputs;

    const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report.schema.json");

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let schema = report_schema().unwrap();
        if std::env::var_os("CTXBENCH_WRITE_SCHEMA").is_some() {
            std::fs::write(PUBLISHED, &schema).unwrap();
        }
        let published = std::fs::read_to_string(PUBLISHED).unwrap();
        assert!(published == schema, "docs/report.schema.json is old: run this test with CTXBENCH_WRITE_SCHEMA=1");
    }

    #[test]
    fn a_report_follows_the_published_schema_and_a_damaged_one_does_not() {
        let inputs = Inputs::judged();
        let schema = std::fs::read_to_string(PUBLISHED).unwrap();
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let text = json(&inputs.report()).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        json["summary"]["cells"][0]["typical_ns"] = "fast".into();
        assert!(!validator.is_valid(&json));
    }
}
