//! The parts of every group of tools: definitions, arguments and answers. No tool is here.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The answer of a tool, or why it has none; the agent reads either.
pub type ToolAnswer = Result<String, String>;

/// Tools over one source.
pub trait Toolset: Send + Sync {
    /// The definitions, which stand in the agent's prompt.
    fn definitions(&self) -> Vec<Tool>;

    /// Whether a tool changes what others answer: calls that come later wait for its end.
    fn changes(&self, name: &str) -> bool;

    /// Calls a tool; `None` if this set has no such tool. Several calls may be made at once.
    fn call(&self, name: &str, arguments: JsonObject) -> Option<ToolAnswer>;
}

/// The definition of a tool: `properties` is a JSON object of argument schemas, `required` names some of them.
pub fn definition(name: &'static str, description: impl Into<String>, properties: Value, required: &[&str]) -> Tool {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Tool::new(name, description.into(), Arc::new(schema))
}

/// The arguments of a call of `tool`.
///
/// # Errors
/// Which argument is missing, unknown or of another type.
pub fn arguments<T: DeserializeOwned>(tool: &str, arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| format!("{tool}: invalid arguments: {error}; see the tool's schema"))
}
