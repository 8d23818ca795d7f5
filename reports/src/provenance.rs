//! Where a figure comes from, which bounds what it can decide.

use serde::Serialize;

inputs::named! {
    /// The origin of a figure, the strongest first. A figure of several inputs has the weakest of theirs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Provenance, name {
        /// Timed or counted in a run.
        Measured = "measured",
        /// Computed from measured figures, recorded sessions, dated prices and stated rates.
        Arithmetic = "arithmetic",
        /// A constant of this project or of a backend's makers. It shows no benefit, keeps no cost inside a margin and
        /// confirms no claim.
        Declared = "declared",
    }
}
