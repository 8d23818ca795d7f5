//! Tokens and dollars of a session's context under a context policy.

use rundir::Basis;
use serde::Deserialize;

use super::{ArmReading, Evidence, Gap, MeasureResult, missing, pooled, runs_gap};
use figures::context::{ContextCost, DOLLARS, MODELS, RECORDED};
use figures::provenance::Provenance;
use figures::text::count;

/// See [`super::Measure::Context`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFigure {
    /// The session.
    pub workload: String,
    /// Further sessions. The figure is that of all together: their sum, and of a figure that is a largest one, the largest.
    #[serde(default)]
    pub with: Vec<String>,
    /// The context policy; the candidate itself without it.
    pub policy: Option<String>,
    /// The context policy of the baseline; the baseline itself without it.
    pub against: Option<String>,
    /// One of [`figures::context::ContextCost::FIGURES`], or `dollars`.
    pub figure: String,
    /// The model that is paid, for `dollars`: one of the report, the first of them without it, or
    /// [`figures::context::RECORDED`] for the models that each session was recorded on.
    pub model: Option<String>,
}

impl ContextFigure {
    /// The same figure of another session.
    pub fn of_session(&self, workload: &str) -> Self {
        Self { workload: workload.to_owned(), with: Vec::new(), ..self.clone() }
    }

    /// All its sessions.
    pub fn sessions(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.workload).chain(&self.with).map(String::as_str)
    }

    /// The value of one session under a policy, and the models that are paid, if any. The error is a price that is missing.
    fn value<'a>(&'a self, cost: &'a ContextCost) -> Result<(f64, Vec<&'a str>), MissingPrice> {
        if self.figure != DOLLARS {
            // A parsed policy names known figures only.
            return Ok((cost.figure(&self.figure).unwrap_or(0) as f64, Vec::new()));
        }
        let model = self.model.as_deref().unwrap_or(MODELS[0]);
        if model != RECORDED {
            let dollars = cost.dollars.get(model);
            let what = || format!("no price for context {} of {}", cost.policy, cost.workload);
            let dollars = dollars.ok_or_else(|| MissingPrice { what: what(), of: None })?;
            return Ok((*dollars, vec![model]));
        }
        let Some(recorded) = &cost.recorded else {
            return Err(MissingPrice { what: format!("no recorded model of {}", cost.workload), of: None });
        };
        let named = |model: &String| match model.as_str() {
            "" => "a model without a name".to_owned(),
            model => model.to_owned(),
        };
        let unpriced = || recorded.unpriced.iter().map(named).collect::<Vec<_>>().join(" and ");
        let dollars = recorded.dollars.ok_or_else(|| {
            let unpriced = unpriced();
            MissingPrice { what: format!("needs the price of {unpriced}"), of: Some(unpriced) }
        })?;
        Ok((dollars, recorded.models.iter().map(String::as_str).collect()))
    }

    /// Whether the figure of several sessions is the largest of theirs.
    fn is_largest(&self) -> bool {
        self.figure == "peak" || self.figure.starts_with("largest-")
    }
}

/// A price that is missing.
struct MissingPrice {
    what: String,
    /// The models that the price list lacks, if the recording names them.
    of: Option<String>,
}

/// The command for a price that is missing.
const WITH_PRICE: &str = "ctxbench try SESSION --prices FILE";

impl Evidence<'_> {
    pub(super) fn context(&self, figure: &ContextFigure, arm: &str, as_baseline: bool) -> MeasureResult {
        let policy = if as_baseline {
            figure.against.as_deref().unwrap_or(arm)
        } else {
            figure.policy.as_deref().unwrap_or(arm)
        };
        if !as_baseline && figure.policy.is_some() {
            // The arm has to hold what leaves the context.
            for session in figure.sessions() {
                match self.passes(session, None, arm) {
                    MeasureResult::Value(_) => {}
                    other => return other,
                }
            }
        }
        // A context policy as a candidate needs no arm beside the plain directory.
        let arm = figure.policy.as_ref().map_or("direct", |_| arm);
        let sessions: Vec<&str> = figure.sessions().collect();
        let source = format!("contexts.jsonl: {} of {}", figure.figure, sessions.join(" and "));
        let mut unpriced = None;
        let readings = self.runs.iter().filter_map(|run| {
            let costs = sessions.iter().map(|session| run.context(session, policy));
            match reading(figure, policy, &costs.collect::<Option<Vec<_>>>()?) {
                Ok(reading) => Some(ArmReading { source: source.clone(), ..reading }),
                Err(why) => {
                    unpriced = Some(why);
                    None
                }
            }
        });
        match (pooled(readings.collect()), unpriced) {
            (Some(reading), _) => MeasureResult::Value(reading),
            (None, Some(MissingPrice { what, of: Some(of) })) => {
                MeasureResult::Missing(Gap::of_need(&what, &format!("The price list has no row for {of}"), WITH_PRICE))
            }
            (None, Some(found)) if figure.model.as_deref() == Some(RECORDED) => {
                missing(found.what, WITH_PRICE.to_owned())
            }
            (None, Some(found)) => runs_gap(sessions, &[arm], found.what),
            (None, None) => {
                let what = format!("context {policy} of {}", sessions.join(" and "));
                runs_gap(sessions, &[arm], what)
            }
        }
    }
}

/// The figure of sessions of one run together. The error is a price that is missing.
fn reading(figure: &ContextFigure, policy: &str, costs: &[&ContextCost]) -> Result<ArmReading, MissingPrice> {
    let mut value = 0.0;
    let mut models: Vec<&str> = Vec::new();
    for cost in costs {
        let (of_session, paid) = figure.value(cost)?;
        value = if figure.is_largest() { f64::max(value, of_session) } else { value + of_session };
        models.extend(paid.into_iter().filter(|model| !models.contains(model)).collect::<Vec<_>>());
    }
    let words = match figure.figure.as_str() {
        DOLLARS => format!("{value:.4} USD ({}, {policy})", models.join(" and ")),
        _ => format!("{} tokens ({policy})", count(value as u64)),
    };
    // The sessions of a figure have one origin, or the weakest one is named.
    let provenance = |basis: Basis| match basis {
        Basis::Published => Provenance::Computed,
        // The policy adds calls that no agent made.
        Basis::Simulated => Provenance::Simulated,
        Basis::Recorded | Basis::Generated | Basis::PartlyStated => Provenance::Measured,
    };
    let weakest = costs.iter().map(|cost| cost.basis).max_by_key(|basis| provenance(*basis));
    let weakest = weakest.unwrap_or(Basis::Recorded);
    let basis = match weakest {
        Basis::Recorded | Basis::Generated => String::new(),
        other => format!(", {}", other.name()),
    };
    let provenance = provenance(weakest);
    Ok(ArmReading { provenance, ..ArmReading::exact(value, format!("{words}{basis}"), "") })
}

#[cfg(test)]
mod tests {
    use figures::context::{Contexts, contexts};
    use figures::prices::Prices;
    use figures::summary::summarise;
    use figures::testing;
    use rundir::Run;

    use super::*;

    /// The scripted session twice; the second one has larger prompts.
    fn two_sessions() -> Run {
        let mut run = testing::run();
        let mut again = run.contexts.clone();
        for context in &mut again {
            context.workload = "agent/other".to_owned();
            context.conversation.fixed += 5000;
        }
        run.contexts.extend(again);
        run
    }

    fn figure(name: &str, with: &[&str], model: Option<&str>) -> ContextFigure {
        ContextFigure {
            workload: "agent/session".to_owned(),
            with: with.iter().map(|name| (*name).to_owned()).collect(),
            policy: None,
            against: Some("inline".to_owned()),
            figure: name.to_owned(),
            model: model.map(str::to_owned),
        }
    }

    fn read(run: &Run, figure: &ContextFigure) -> MeasureResult {
        let summary = summarise(run).unwrap();
        let found: Contexts = contexts(run, &Prices::built_in().unwrap()).unwrap();
        Evidence::of(run, &summary, &found).context(figure, "inline", true)
    }

    fn value(run: &Run, figure: &ContextFigure) -> ArmReading {
        read(run, figure).value().unwrap()
    }

    #[test]
    fn the_dollars_of_a_recorded_session_are_those_of_its_own_model() {
        let run = two_sessions();
        let [recorded, default] = [Some(RECORDED), None].map(|model| value(&run, &figure(DOLLARS, &[], model)));
        assert!(recorded.words.contains("(claude-sonnet-4-5, inline)"), "{}", recorded.words);
        assert!(default.words.contains("(claude-opus-5-5, inline)"), "{}", default.words);
        assert!(recorded.value < default.value);
    }

    #[test]
    fn a_recorded_model_without_a_price_is_missing_evidence_with_the_option_that_names_prices() {
        let mut run = two_sessions();
        for context in &mut run.contexts {
            context.model = context.model.as_ref().map(|_| "own-model".to_owned());
        }
        let found = read(&run, &figure(DOLLARS, &["agent/other"], Some(RECORDED)));
        let MeasureResult::Missing(Gap { what, command, .. }) = found else {
            panic!("{found:?}");
        };
        assert!(what.starts_with("needs the price of own-model: "), "{what}");
        assert!(command.contains("--prices"), "{command}");
    }

    #[test]
    fn several_sessions_have_the_sum_of_their_dollars_and_the_largest_of_their_prompts() {
        let run = two_sessions();
        let of = |name: &str, with: &[&str]| value(&run, &figure(name, with, None)).value;
        let other = |name: &str| {
            let other = figure(name, &[], None).of_session("agent/other");
            value(&run, &other).value
        };
        for name in [DOLLARS, "entering", "resent"] {
            let sum = of(name, &[]) + other(name);
            assert!((of(name, &["agent/other"]) - sum).abs() < 1e-9, "{name}");
        }
        assert!(other("peak") > of("peak", &[]));
        assert_eq!(of("peak", &["agent/other"]), other("peak"));
        let gone = read(&run, &figure(DOLLARS, &["agent/gone"], None));
        assert!(
            matches!(&gone, MeasureResult::Missing(gap) if gap.command.contains("--workload agent/gone")),
            "{gone:?}"
        );
    }
}
