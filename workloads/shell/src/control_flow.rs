//! Which pipelines of a line have run, and how they ended: from how they are joined, from the line's status, and from
//! the ends that each one can have by itself.

use super::words::Joint;

/// The ends that a pipeline can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// It may end with status 0.
    pub(super) success: bool,
    /// It may end with another status.
    pub(super) failure: bool,
}

impl Ends {
    /// A pipeline that cannot fail.
    pub(super) const SUCCESS: Self = Self { success: true, failure: false };
    /// A pipeline that fails.
    pub(super) const FAILURE: Self = Self { success: false, failure: true };
    /// A pipeline whose status is not known.
    pub(super) const ANY: Self = Self { success: true, failure: true };
    /// A pipeline that cannot have run.
    pub(super) const NONE: Self = Self { success: false, failure: false };

    /// The ends of a pipe that fails if one of its parts does.
    pub(super) fn followed_by(self, last: Self) -> Self {
        Self { success: self.success && last.success, failure: self.failure || last.failure }
    }
}

/// A pipeline of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    /// How it follows the one before it.
    pub(super) joint: Joint,
    /// The ends that it can have.
    pub(super) ends: Ends,
    /// Whether a failure before it ends the shell, as after `set -e`.
    pub(super) is_strict: bool,
}

/// The possible executions of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Execution {
    /// It may have been left out.
    pub(super) skipped: bool,
    /// The ends that it may have had.
    pub(super) ends: Ends,
}

/// The state of the shell between two pipelines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The last status is 0.
    Success,
    /// The last status is another one.
    Failure,
    /// The last status is another one, of a pipeline before `&&` or `||`: it does not end a strict shell.
    Excused,
    /// The shell has ended with a failure.
    Ended,
}

const STATES: [State; 4] = [State::Success, State::Failure, State::Excused, State::Ended];

/// A set of states, by their place in [`STATES`].
type States = [bool; 4];

/// A step from one state to another.
struct Transition {
    to: State,
    /// Whether the pipeline succeeds; `None` if it does not run.
    success: Option<bool>,
}

/// The transitions of a pipeline, which `next` follows.
fn transitions(from: State, pipeline: &Pipeline, next: Option<Joint>) -> impl Iterator<Item = Transition> {
    let (runs, otherwise) = match (pipeline.joint, from) {
        (_, State::Ended) => (false, from),
        (Joint::And, _) => (from == State::Success, from),
        (Joint::Or, _) => (from != State::Success, from),
        (Joint::Sequence | Joint::Pipe, State::Failure) if pipeline.is_strict => (false, State::Ended),
        (Joint::Sequence | Joint::Pipe, _) => (true, from),
    };
    let failure = match next {
        Some(Joint::And | Joint::Or) => State::Excused,
        _ => State::Failure,
    };
    let success = (runs && pipeline.ends.success).then_some(Transition { to: State::Success, success: Some(true) });
    let failure = (runs && pipeline.ends.failure).then_some(Transition { to: failure, success: Some(false) });
    let left_out = (!runs).then_some(Transition { to: otherwise, success: None });
    [success, failure, left_out].into_iter().flatten()
}

/// The execution of each pipeline of a line. `succeeded`: whether the line's status is 0; `None` if it is not known. Without a
/// execution for a pipeline, what is known is contradictory.
pub(super) fn executions(pipelines: &[Pipeline], succeeded: Option<bool>) -> Vec<Execution> {
    let next = |at: usize| pipelines.get(at + 1).map(|next| next.joint);
    let index = |state: State| STATES.iter().position(|each| *each == state).unwrap_or_default();
    // The states before each pipeline that the line can reach.
    let mut before: Vec<States> = vec![[true, false, false, false]];
    for (at, pipeline) in pipelines.iter().enumerate() {
        let mut reached = States::default();
        for (from, _) in STATES.iter().zip(before[at]).filter(|(_, is_reached)| *is_reached) {
            transitions(*from, pipeline, next(at)).for_each(|step| reached[index(step.to)] = true);
        }
        before.push(reached);
    }
    // The states after it from which the line reaches its status.
    let mut after: States =
        STATES.map(|state| succeeded.is_none_or(|succeeded| succeeded == (state == State::Success)));
    let mut executions = Vec::with_capacity(pipelines.len());
    for (at, pipeline) in pipelines.iter().enumerate().rev() {
        let (mut execution, mut earlier) = (Execution::default(), States::default());
        for (from, is_reached) in STATES.iter().zip(before[at]) {
            for step in transitions(*from, pipeline, next(at)).filter(|step| after[index(step.to)]) {
                earlier[index(*from)] = true;
                match step.success.filter(|_| is_reached) {
                    Some(true) => execution.ends.success = true,
                    Some(false) => execution.ends.failure = true,
                    None => execution.skipped |= is_reached,
                }
            }
        }
        executions.push(execution);
        after = earlier;
    }
    executions.reverse();
    executions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The executions of a line of `?` (any end), `s` (success), `f` (failure) and `-` (cannot have run), each after its joint.
    fn of(line: &str, succeeded: Option<bool>, is_strict: bool) -> String {
        let mut pipelines = Vec::new();
        let mut joint = Joint::Sequence;
        for part in line.split_whitespace() {
            let ends = match part {
                "?" => Ends::ANY,
                "s" => Ends::SUCCESS,
                "f" => Ends::FAILURE,
                "-" => Ends::NONE,
                "&&" => {
                    joint = Joint::And;
                    continue;
                }
                "||" => {
                    joint = Joint::Or;
                    continue;
                }
                _ => {
                    joint = Joint::Sequence;
                    continue;
                }
            };
            pipelines.push(Pipeline { joint, ends, is_strict });
        }
        let shown = executions(&pipelines, succeeded).into_iter().map(|execution| {
            let parts = [(execution.ends.success, 's'), (execution.ends.failure, 'f'), (execution.skipped, '-')];
            parts.iter().filter(|(may, _)| *may).map(|(_, letter)| *letter).collect::<String>()
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pipeline_has_run_if_all_executions_that_lead_to_the_status_say_so() {
        for (line, succeeded, expected) in [
            ("? && ?", Some(true), "s s"),
            ("? && ?", Some(false), "sf f-"),
            ("? && ? ; ?", Some(true), "sf sf- s"),
            ("s && ? ; ?", Some(true), "s sf s"),
            ("f && ? ; ?", Some(true), "f - s"),
            ("? || ?", Some(true), "sf s-"),
            ("? || -", Some(true), "s -"),
            ("? && ? || -", Some(true), "s s -"),
            ("? || s ; ?", None, "sf s- sf"),
            ("? || f && ? ; s", Some(true), "sf f- sf- s"),
            ("? ; ?", Some(true), "sf s"),
            ("f", Some(true), ""),
        ] {
            assert_eq!(of(line, succeeded, false), expected, "{line}");
        }
    }

    #[test]
    fn a_strict_shell_ends_with_the_first_failure_but_not_with_one_before_a_joint() {
        assert_eq!(of("? ; ? ; ?", Some(true), true), "s s s");
        assert_eq!(of("? ; ?", Some(false), true), "sf f-");
        assert_eq!(of("? && ? ; ?", Some(true), true), "sf s- s");
    }
}
