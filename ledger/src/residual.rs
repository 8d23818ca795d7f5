//! How far the ledger is from what the API reported.

use crate::account::{Account, Terms};
use crate::conversation::{Conversation, Fixed};

/// How far the ledger is from the reported prompts. A residual is `ledger / reported - 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// Calls that were compared.
    pub calls: usize,
    /// The median residual of a prompt.
    pub median: f64,
    /// The median of its absolute value.
    pub median_abs: f64,
    /// The largest absolute value.
    pub worst_abs: f64,
    /// The median absolute residual of what is beyond the fixed part, which no constant can hide;
    /// `None` where no prompt grows.
    pub growth_median_abs: Option<f64>,
    /// All compared prompts together: in the ledger, and as reported.
    pub prompts: (u64, u64),
}

/// Compares each call with what was reported for it. Where the fixed part was inferred from the first call,
/// that call is no evidence and is left out. `None` if nothing is left to compare.
pub fn residual(conversation: &Conversation, terms: &Terms) -> Option<Residual> {
    let account = Account::of(conversation, terms);
    let fixed = conversation.fixed as f64 * terms.per_o200k;
    let first = usize::from(conversation.fixed_is == Fixed::Inferred);
    let mut prompts = (0, 0);
    let (mut all, mut growth) = (Vec::new(), Vec::new());
    let steps = conversation.steps.iter().zip(&account.calls).skip(first);
    for (step, call) in steps {
        let Some(reported) = step.reported.filter(|reported| reported.prompt > 0) else {
            continue;
        };
        let (ours, theirs) = (call.prompt as f64, reported.prompt as f64);
        prompts = (prompts.0 + call.prompt, prompts.1 + reported.prompt);
        all.push(ours / theirs - 1.0);
        if theirs > fixed + 1.0 {
            growth.push(((ours - fixed) / (theirs - fixed) - 1.0).abs());
        }
    }
    let absolute: Vec<f64> = all.iter().map(|residual| residual.abs()).collect();
    Some(Residual {
        calls: all.len(),
        median: median(all)?,
        worst_abs: absolute.iter().copied().fold(0.0, f64::max),
        median_abs: median(absolute)?,
        growth_median_abs: median(growth),
        prompts,
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Part, PartKind, Reported, Step};

    fn step(enters: u64, reported: u64) -> Step {
        Step {
            enters: vec![Part::new(PartKind::User, enters)],
            reported: (reported > 0).then_some(Reported {
                prompt: reported,
                cached: 0,
                output: 0,
            }),
            ..Step::default()
        }
    }

    #[test]
    fn the_first_call_is_no_evidence_for_what_was_inferred_from_it() {
        let mut conversation = Conversation {
            fixed: 1000,
            fixed_is: Fixed::Inferred,
            steps: vec![step(0, 1000), step(100, 1050), step(100, 1300), step(0, 0)],
        };
        let found = residual(&conversation, &Terms::default()).unwrap();
        assert_eq!((found.calls, found.prompts), (2, (2300, 2350)));
        assert!((found.worst_abs - 100.0 / 1300.0).abs() < 1e-9);
        // Beyond the constant it is 100 instead of 50, then 200 instead of 300.
        let growth = found.growth_median_abs.unwrap();
        assert!((growth - (1.0 + 1.0 / 3.0) / 2.0).abs() < 1e-9, "{growth}");
        conversation.fixed_is = Fixed::Stated;
        assert_eq!(residual(&conversation, &Terms::default()).unwrap().calls, 3);
        conversation.steps.clear();
        assert_eq!(residual(&conversation, &Terms::default()), None);
    }
}
