//! The parameters that a model accepts: newer models refuse some that older ones need.

use serde_json::Value;

/// A parameter that some models refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// `max_tokens`; a model that refuses it expects `max_completion_tokens`.
    MaxTokens,
    /// `temperature`; a model that refuses it samples by its own rule.
    Temperature,
    /// Limits of lengths in a JSON Schema, [`SCHEMA_LIMITS`]: OpenAI's structured outputs refuse `maxLength`.
    SchemaLimits,
}

/// The keywords of a JSON Schema that limit the length of texts and lists.
const SCHEMA_LIMITS: [&str; 4] = ["minLength", "maxLength", "minItems", "maxItems"];

impl Parameter {
    /// The parameter that the body of a status 400 response reports as unsupported.
    ///
    /// OpenAI's models since o1 report it in `error.param`, `error.code` and the message. `None` for any
    /// other error, such as a value out of range.
    pub(crate) fn refused_by(body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let error = body.get("error")?;
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let message = text("message").or(error.as_str()).unwrap_or_default();
        let message = message.to_lowercase();
        let code = text("code").unwrap_or_default();
        let is_unsupported = code.starts_with("unsupported_")
            || ["unsupported", "not supported", "not support", "deprecated"].iter().any(|word| message.contains(word));
        let is_about = |name: &str| match text("param") {
            Some(param) => param == name,
            None => message.contains(name),
        };
        // The parameter is then `response_format`, and only the message names the keyword.
        let names_limit = || SCHEMA_LIMITS.iter().any(|name| message.contains(&name.to_lowercase()));
        if (is_unsupported || message.contains("not permitted")) && message.contains("schema") && names_limit() {
            return Some(Self::SchemaLimits);
        }
        [(Self::MaxTokens, "max_tokens"), (Self::Temperature, "temperature")]
            .into_iter()
            .find(|(_, name)| is_unsupported && is_about(name))
            .map(|(parameter, _)| parameter)
    }
}

/// The request format of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Send the limit of the answer as `max_completion_tokens`.
    pub(crate) has_completion_tokens: bool,
    /// Send no temperature; the server samples by its own rule.
    pub(crate) has_own_sampling: bool,
    /// Send schemas without [`SCHEMA_LIMITS`]; the reader of the answer checks its lengths.
    pub(crate) has_unlimited_schemas: bool,
}

/// A JSON Schema without [`SCHEMA_LIMITS`].
pub(crate) fn without_limits(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            // A property of such a name has an object as its value.
            let is_limit = |name: &str, value: &Value| value.is_number() && SCHEMA_LIMITS.contains(&name);
            let kept = fields.iter().filter(|(name, value)| !is_limit(name, value));
            kept.map(|(name, value)| (name.clone(), without_limits(value))).collect()
        }
        Value::Array(values) => values.iter().map(without_limits).collect(),
        other => other.clone(),
    }
}

impl Dialect {
    /// The same dialect without a parameter; `None` if it already omits that parameter.
    pub(crate) fn without(mut self, parameter: Parameter) -> Option<Self> {
        let is_left_out = match parameter {
            Parameter::MaxTokens => &mut self.has_completion_tokens,
            Parameter::Temperature => &mut self.has_own_sampling,
            Parameter::SchemaLimits => &mut self.has_unlimited_schemas,
        };
        (!std::mem::replace(is_left_out, true)).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_refused_where_it_is_named_as_not_supported() {
        let refused = |error: Value| Parameter::refused_by(&serde_json::json!({ "error": error }).to_string());
        let openai = |message: &str, param: &str, code: &str| {
            refused(serde_json::json!({
                "message": message, "type": "invalid_request_error", "param": param, "code": code,
            }))
        };
        let tokens = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        let heat = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.";
        let (parameter, value) = ("unsupported_parameter", "unsupported_value");
        let by_openai = [openai(tokens, "max_tokens", parameter), openai(heat, "temperature", value)];
        let by_message = [tokens, heat].map(|text| refused(serde_json::json!({"message": text})));
        let by_text = [tokens, heat].map(|text| refused(text.into()));
        let expected = [Parameter::MaxTokens, Parameter::Temperature].map(Some);
        assert_eq!([by_openai, by_message, by_text], [expected; 3]);
        for limit in [
            "Invalid schema for response_format 'tree': In context=('properties', 'entries'), 'maxLength' is not permitted.",
            "Invalid schema for response_format 'tree': 'minItems' is not supported in strict mode.",
        ] {
            let by_message = refused(serde_json::json!({"message": limit}));
            let refusals = [openai(limit, "response_format", "invalid_request_error"), by_message];
            assert_eq!(refusals, [Some(Parameter::SchemaLimits); 2], "{limit}");
        }
        let large = "max_tokens is too large: 200000.";
        let role = "Unsupported value: 'role' does not support 'system'";
        for other in [
            openai(large, "max_tokens", "invalid_value"),
            openai(role, "messages[0].role", value),
            openai("Invalid schema for response_format 'tree': 'oneOf' is not permitted.", "response_format", value),
            Parameter::refused_by("the temperature is not supported"),
        ] {
            assert_eq!(other, None);
        }
    }

    #[test]
    fn a_parameter_is_left_out_once() {
        let heat = Dialect::default().without(Parameter::Temperature).unwrap();
        assert!(heat.has_own_sampling && !heat.has_completion_tokens);
        assert_eq!(heat.without(Parameter::Temperature), None);
        assert!(heat.without(Parameter::MaxTokens).unwrap().has_own_sampling);
    }

    #[test]
    fn only_limits_are_left_out_of_a_schema() {
        let schema = serde_json::json!({
            "type": "array", "minItems": 1, "maxItems": 6,
            "items": {"properties": {"maxItems": {"type": "string", "maxLength": 60}}, "anyOf": [{"minLength": 1, "type": "string"}]},
        });
        let expected = serde_json::json!({
            "type": "array",
            "items": {"properties": {"maxItems": {"type": "string"}}, "anyOf": [{"type": "string"}]},
        });
        assert_eq!(without_limits(&schema), expected);
    }
}
