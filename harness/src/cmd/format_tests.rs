//! The schema of what commands print for programs, from the types that are printed.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    claims, compare, conform, decide, doctor, fault, headline, list, memory_note, reproduce, s3, status, tokens,
};
use super::{trace, unmount, verify};

const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.schema.json");

const DESCRIPTION: &str = "What commands print, by their names in $defs, with a hyphen for each space: `--format json`, and `--json` of tokens. A line of `s3 log` is a document. Definitions with a capital letter are parts of others.";

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The type that each command prints. Where it prints one of several, they are listed together.
type Printed = (&'static str, &'static [fn(&mut SchemaGenerator) -> Schema]);

const PRINTED: [Printed; 23] = [
    ("claims", &[schema_of::<claims::CheckedClaims<'_>>]),
    ("compare", &[schema_of::<compare::PrintedComparison<'_>>]),
    ("conform", &[schema_of::<conform::ConformanceTable>]),
    ("decide", &[schema_of::<decide::PrintedDecisions<'_>>]),
    ("doctor", &[schema_of::<doctor::PrintedFindings<'_>>]),
    ("doctor-store", &[schema_of::<doctor::store::PrintedStoreCheck<'_>>]),
    ("list", &[schema_of::<list::Listing>]),
    ("merge", &[schema_of::<headline::Headline<'_>>]),
    ("recall", &[schema_of::<memory_note::RecalledNotes<'_>>]),
    ("remember", &[schema_of::<memory_note::RememberedNote<'_>>]),
    ("report", &[schema_of::<headline::Headline<'_>>, schema_of::<fault::FaultHeadline<'_>>]),
    ("reproduce", &[schema_of::<reproduce::PrintedReproduction<'_>>]),
    ("run", &[schema_of::<headline::Headline<'_>>]),
    ("s3-check", &[schema_of::<s3::check::PrintedLogCheck<'_>>]),
    ("s3-gc", &[schema_of::<s3::gc::Collection>]),
    ("s3-log", &[schema_of::<s3::log::PrintedCommit<'_>>]),
    ("s3-sync", &[schema_of::<s3::sync::Synced<'_>>]),
    ("status", &[schema_of::<Vec<status::MountStatus<'_>>>]),
    ("tokens", &[schema_of::<Vec<tokens::SessionJson>>]),
    ("trace-check", &[schema_of::<trace::PrintedTraceCheck<'_>>]),
    ("trace-show", &[schema_of::<trace::PrintedTrace<'_>>]),
    ("unmount", &[schema_of::<unmount::Unmounted<'_>>]),
    ("verify", &[schema_of::<verify::Verification>]),
];

fn commands_schema() -> String {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut definitions = serde_json::Map::new();
    for (command, types) in PRINTED {
        let mut schemas: Vec<Schema> = types.iter().map(|schema| schema(&mut generator)).collect();
        let schema = if schemas.len() == 1 { schemas.remove(0) } else { json_schema!({ "anyOf": schemas }) };
        definitions.insert(command.to_owned(), schema.into());
    }
    definitions.extend(generator.take_definitions(true));
    let schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ctxbench COMMAND --format json",
        "description": DESCRIPTION,
        "$defs": definitions,
    });
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

#[test]
fn the_published_schema_is_that_of_the_printed_types() {
    let schema = commands_schema();
    if std::env::var_os("CTXBENCH_WRITE_SCHEMA").is_some() {
        std::fs::write(PUBLISHED, &schema).unwrap();
    }
    let published = std::fs::read_to_string(PUBLISHED).unwrap();
    assert!(published == schema, "docs/commands.schema.json is old: run this test with CTXBENCH_WRITE_SCHEMA=1");
}
