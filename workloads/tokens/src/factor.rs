//! Factors between models' own token counts and `o200k` counts.

use crate::ThinkingStays;

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
/// Chat APIs of other providers do not accept it as text.
pub fn thinking_stays(model: &str) -> ThinkingStays {
    let is = |part: &str| model.contains(part);
    if !is("claude") {
        return ThinkingStays::Never;
    }
    let last_turn_only = is("claude-3")
        || is("haiku-4")
        || (is("sonnet-4") && !is("sonnet-4-6") && !is("sonnet-4.6"))
        || is("opus-4-20")
        || is("opus-4-1")
        || is("opus-4.1");
    match last_turn_only {
        true => ThinkingStays::UntilUserSpeaks,
        false => ThinkingStays::Always,
    }
}

const CLAUDE: &str = "reported usage of Claude 4.5 and 4.6 sessions, R² 0.9986";
const GEMINI: &str = "reported usage of Gemini 3 sessions";
const GPT: &str = "reported usage of GPT-5-Codex sessions, R² 0.9998";

/// The Claude models covered by the measurement, up to 4.6.
const CLAUDE_MEASURED: &[&str] = &[
    "claude-3", "-4-20", "-4-1", "-4-5", "-4-6", "-4.1", "-4.5", "-4.6",
];

/// The factor of a model, by its name in a recording or in `prices.toml`.
pub fn factor(model: &str) -> Factor {
    let is = |part: &str| model.contains(part);
    if is("claude") {
        Factor {
            per_o200k: 1.12,
            is_measured: CLAUDE_MEASURED.iter().any(|version| is(version)),
            source: CLAUDE,
        }
    } else if is("gemini") {
        Factor {
            per_o200k: 1.20,
            is_measured: is("gemini-3-") && !is("image"),
            source: GEMINI,
        }
    } else {
        Factor {
            per_o200k: 1.0,
            is_measured: is_gpt_5_codex(model),
            source: match is("gpt") {
                true => GPT,
                false => "nothing is known about this model's vocabulary",
            },
        }
    }
}

/// Whether the name is the measured model of its family, with an optional provider prefix and release date
/// suffix.
fn is_gpt_5_codex(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let rest = name.strip_prefix("gpt-5-codex");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("-20") || rest.starts_with("@20"))
}

impl Factor {
    /// The factor with its reliability, as shown in reports.
    pub fn label(&self) -> String {
        let standing = match self.is_measured {
            true => "measured",
            false => "an estimate",
        };
        format!("×{:.2}, {standing}: {}", self.per_o200k, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_claude_models_keep_their_thinking() {
        let newer = "claude-opus-4-5-20251101 claude-opus-5-5 claude-sonnet-4-6";
        let older =
            "claude-sonnet-4-5-20250929 claude-opus-4-1 claude-haiku-4-5 claude-opus-4-20250514";
        for (models, expected) in [
            (newer, ThinkingStays::Always),
            (older, ThinkingStays::UntilUserSpeaks),
            ("google/gemini-3-pro-preview", ThinkingStays::Never),
        ] {
            for model in models.split(' ') {
                assert_eq!(thinking_stays(model), expected, "{model}");
            }
        }
    }

    #[test]
    fn only_a_measured_family_is_labelled_measured() {
        let of = |model: &str| (factor(model).per_o200k, factor(model).is_measured);
        assert_eq!(of("claude-sonnet-4-5-20250929"), (1.12, true));
        assert_eq!(of("claude-opus-4-6"), (1.12, true));
        assert_eq!(of("claude-opus-4-20250514"), (1.12, true));
        assert_eq!(of("claude-opus-5-5"), (1.12, false));
        assert_eq!(of("claude-sonnet-5-5-20261001"), (1.12, false));
        assert_eq!(of("google/gemini-3-pro-preview"), (1.20, true));
        assert_eq!(of("gemini-3.1-pro-preview"), (1.20, false));
        assert_eq!(of("gpt-5-codex"), (1.0, true));
        assert_eq!(of("openai/gpt-5-codex-2025-09-15"), (1.0, true));
        let others = "gpt-5 gpt-5.5-pro gpt-5.1-codex-mini gpt-5-codex-mini gpt-6.1-sol";
        for other in others.split(' ') {
            assert_eq!(of(other), (1.0, false), "{other}");
        }
        assert_eq!(of("gemini-3-pro-image"), (1.20, false));
        assert_eq!(of("meta-llama/llama-4-maverick"), (1.0, false));
        assert!(factor("llama").label().contains("an estimate"));
    }
}
