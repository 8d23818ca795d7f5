//! Where a figure comes from, which bounds what it can decide, and the mark that says so beside the figure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::summary::is_simulated;

inputs::named! {
    /// The origin of a figure, the strongest first. A figure of several inputs has the weakest of theirs: what is computed
    /// from simulated figures is simulated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Provenance, name {
        /// Timed or counted in a run.
        Measured = "measured",
        /// Computed from measured figures, recorded sessions, dated prices and stated rates.
        Computed = "computed",
        /// Timed, counted or computed with something simulated: a distance, a power cut, or calls of a model that no agent made.
        Simulated = "simulated",
        /// A constant of this project or of a backend's makers. It shows no benefit, shows no cost to be tolerated and
        /// confirms no claim.
        Declared = "declared",
    }
}

impl Provenance {
    /// All of them, the strongest first.
    pub const ALL: [Provenance; 4] =
        [Provenance::Measured, Provenance::Computed, Provenance::Simulated, Provenance::Declared];

    /// The mark beside a figure, in every output.
    pub const fn mark(self) -> &'static str {
        match self {
            Provenance::Measured => "●",
            Provenance::Simulated => "◐",
            Provenance::Computed => "∑",
            Provenance::Declared => "○",
        }
    }

    /// A text about a figure behind its mark.
    pub fn marked(self, text: &str) -> String {
        format!("{} {text}", self.mark())
    }

    /// A text in which every mark stays on the line of its figure.
    pub fn unbroken(text: &str) -> String {
        Self::ALL.iter().fold(text.to_owned(), |text, provenance| {
            let mark = provenance.mark();
            text.replace(&format!("{mark} "), &format!("{mark}\u{a0}"))
        })
    }

    /// What the marks mean, in a line.
    pub fn legend() -> String {
        let marks = Self::ALL.map(|provenance| match provenance {
            // A run tries what has no amount, such as a snapshot.
            Provenance::Measured => provenance.marked("measured or tried"),
            _ => provenance.marked(provenance.name()),
        });
        marks.join("  ")
    }

    /// The origin of times of an arm, which may be behind a simulated distance.
    pub fn of_arm(arm: &str) -> Self {
        if is_simulated(arm) { Provenance::Simulated } else { Provenance::Measured }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_has_a_mark_of_its_own_and_the_legend_explains_each() {
        assert_eq!(Provenance::legend(), "● measured or tried  ∑ computed  ◐ simulated  ○ declared");
        assert_eq!(Provenance::Declared.marked("1 process"), "○ 1 process");
        // The weakest of several inputs is the largest.
        assert!(Provenance::ALL.is_sorted());
    }

    #[test]
    fn an_arm_behind_an_injected_distance_is_simulated() {
        assert_eq!(Provenance::of_arm("s3@30ms"), Provenance::Simulated);
        assert_eq!(Provenance::of_arm("s3-embedded"), Provenance::Measured);
    }
}
