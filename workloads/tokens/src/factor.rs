//! Factors between models' own token counts and `o200k` counts.

use crate::ThinkingRetention;

/// A model's own tokens per `o200k` token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// The factor.
    pub per_o200k: f64,
    /// Whether it was measured for this model's family; otherwise it is an estimate.
    pub is_measured: bool,
    /// The source of the factor.
    pub source: &'static str,
}

/// The provider's default treatment of thinking in prompts.
/// Claude keeps all thinking from Opus 4.5, Sonnet 4.6 and the fifth generation on.
/// Earlier Claude models keep the thinking of the last turn
/// (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking>).
/// Agents on GPT-5 send its encrypted reasoning back, and agents on GLM-5 its reasoning: reported prompts grow by all of it.
/// Chat APIs of other providers do not accept it as text.
pub fn thinking_stays(model: &str) -> ThinkingRetention {
    let model = model.to_ascii_lowercase();
    let is = |part: &str| model.contains(part);
    if is("gpt-5") || is("glm-5") {
        return ThinkingRetention::Always;
    }
    if !is("claude") {
        return ThinkingRetention::Never;
    }
    let last_turn_only = is("claude-3")
        || is("haiku-4")
        || (is("sonnet-4") && !is("sonnet-4-6") && !is("sonnet-4.6"))
        || is("opus-4-20")
        || is("opus-4-1")
        || is("opus-4.1");
    if last_turn_only { ThinkingRetention::UntilUserSpeaks } else { ThinkingRetention::Always }
}

const CLAUDE: &str = "reported usage of Claude 4.5 and 4.6 sessions, R² 0.996";
const CLAUDE_NEWER: &str = "reported usage of Claude 4.8 and 5 sessions, R² 0.997";
const GEMINI: &str = "reported usage of Gemini 3 sessions";
const GPT: &str = "reported usage of GPT-5 Codex sessions, R² 0.997";

/// The generations of Claude that were measured: those up to the first one have the older vocabulary, the others the
/// newer one.
const CLAUDE_OLDER_UNTIL: (u32, u32) = (4, 6);
const CLAUDE_NEWER_MEASURED: [(u32, u32); 2] = [(4, 8), (5, 0)];

/// The generation in the name of a Claude model: 4 and 6 for `claude-opus-4-6` and `us.anthropic.claude-opus-4.6-v1:0`.
fn claude_generation(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let is_day = |part: &&str| part.len() > 2;
    let mut numbers = name
        .split(['-', '.', '@', '[', ':', '_'])
        .skip_while(|part| part.parse::<u32>().is_err())
        .take_while(|part| !is_day(part))
        .map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Tokens around a tool call and around its result, which the recorded texts do not contain, in `o200k` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Around the call, which the model writes.
    pub call: u64,
    /// Around the result.
    pub result: u64,
}

/// The frame of tool calls of a model, from the growth of reported prompts.
pub fn frame(model: &str) -> Frame {
    let (call, result) = match &*model.to_ascii_lowercase() {
        claude if claude.contains("claude") => (36, 30),
        gpt if gpt.contains("gpt-5") => (10, 12),
        _ => (0, 0),
    };
    Frame { call, result }
}

/// The factor of a model, by its name in a recording or in `prices.toml`.
pub fn factor(model: &str) -> Factor {
    let model = model.to_ascii_lowercase();
    let is = |part: &str| model.contains(part);
    if is("claude") {
        let generation = claude_generation(&model);
        let is_older = generation.is_some_and(|generation| generation <= CLAUDE_OLDER_UNTIL);
        let is_newer = generation.is_some_and(|known| CLAUDE_NEWER_MEASURED.contains(&known));
        Factor {
            per_o200k: if is_older { 1.10 } else { 1.53 },
            is_measured: is_older || is_newer,
            source: if is_older { CLAUDE } else { CLAUDE_NEWER },
        }
    } else if is("gemini") {
        Factor { per_o200k: 1.20, is_measured: is("gemini-3-") && !is("image"), source: GEMINI }
    } else {
        Factor {
            per_o200k: 1.0,
            is_measured: is_measured_gpt(&model),
            source: if is("gpt") { GPT } else { "nothing is known about this model's vocabulary" },
        }
    }
}

/// The measured models of the GPT-5 family.
const GPT_MEASURED: [&str; 5] = ["gpt-5-codex", "gpt-5.3-codex", "gpt-5.3-codex-spark", "gpt-5.4", "gpt-5.5"];

/// Whether the name is that of a measured model, with an optional provider prefix and release date suffix.
fn is_measured_gpt(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("databricks-").unwrap_or(name);
    GPT_MEASURED.iter().any(|known| {
        let rest = name.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("-20") || rest.starts_with("@20"))
    })
}

impl Factor {
    /// The factor with its reliability, as shown in reports.
    pub fn label(&self) -> String {
        let standing = if self.is_measured { "measured" } else { "an estimate" };
        format!("×{:.2}, {standing}: {}", self.per_o200k, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_claude_models_keep_their_thinking() {
        let newer = "claude-opus-4-5-20251101 claude-opus-5-5 claude-sonnet-4-6";
        let older = "claude-sonnet-4-5-20250929 claude-opus-4-1 claude-haiku-4-5 claude-opus-4-20250514";
        for (models, expected) in [
            (newer, ThinkingRetention::Always),
            (older, ThinkingRetention::UntilUserSpeaks),
            ("google/gemini-3-pro-preview", ThinkingRetention::Never),
            ("openai/gpt-5.5", ThinkingRetention::Always),
            ("zai/glm-5.2 z-ai/glm-5", ThinkingRetention::Always),
            ("glm-4.5", ThinkingRetention::Never),
        ] {
            for model in models.split(' ') {
                assert_eq!(thinking_stays(model), expected, "{model}");
            }
        }
    }

    #[test]
    fn only_a_measured_family_is_labelled_measured() {
        let of = |model: &str| (factor(model).per_o200k, factor(model).is_measured);
        for (models, expected) in [
            (
                "claude-sonnet-4-5-20250929 claude-opus-4-6 claude-opus-4-20250514 claude-3-5-haiku-20241022 us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                (1.10, true),
            ),
            (
                "claude-opus-4-8 claude-opus-5 claude-sonnet-5-20260801 claude-fable-5[1m] anthropic/claude-opus-4.8",
                (1.53, true),
            ),
            ("claude-opus-5-5 claude-sonnet-5-5-20261001 claude-opus-4-7 claude", (1.53, false)),
        ] {
            for model in models.split(' ') {
                assert_eq!(of(model), expected, "{model}");
            }
        }
        assert_eq!(of("google/gemini-3-pro-preview"), (1.20, true));
        assert_eq!(of("gemini-3.1-pro-preview"), (1.20, false));
        assert_eq!(of("gpt-5-codex"), (1.0, true));
        assert_eq!(of("openai/gpt-5-codex-2025-09-15"), (1.0, true));
        assert_eq!(of("gpt-5.5"), (1.0, true));
        let others = "gpt-5 gpt-5.5-pro gpt-5.1-codex-mini gpt-5-codex-mini gpt-6.1-sol";
        for other in others.split(' ') {
            assert_eq!(of(other), (1.0, false), "{other}");
        }
        assert_eq!(of("gemini-3-pro-image"), (1.20, false));
        assert_eq!(of("meta-llama/llama-4-maverick"), (1.0, false));
        assert!(factor("llama").label().contains("an estimate"));
    }

    #[test]
    fn a_name_in_upper_case_or_of_databricks_has_the_factor_of_its_model() {
        for (name, model) in [
            ("CLAUDE-SONNET-4-5", "claude-sonnet-4-5"),
            ("databricks-claude-opus-4-8", "claude-opus-4-8"),
            ("OpenAI/GPT-5.5", "openai/gpt-5.5"),
            ("databricks-gpt-5-codex", "gpt-5-codex"),
            ("Gemini-3-Pro-Preview", "gemini-3-pro-preview"),
        ] {
            assert_eq!(factor(name), factor(model), "{name}");
            assert_eq!(frame(name), frame(model), "{name}");
            assert_eq!(thinking_stays(name), thinking_stays(model), "{name}");
        }
    }
}
