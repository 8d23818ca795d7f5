//! The database tools over MCP: those of [`SqlTool`].

use backends::tools::sql::SqlTool;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use super::toolset::{ToolAnswer, Toolset, definition};

impl Toolset for SqlTool {
    fn definitions(&self) -> Vec<Tool> {
        let all = SqlTool::definitions(self).into_iter();
        all.map(|tool| definition(tool.name, tool.description, tool.properties, tool.required))
            .collect()
    }

    fn call(&mut self, name: &str, given: JsonObject) -> Option<ToolAnswer> {
        SqlTool::call(self, name, Value::Object(given))
    }
}
