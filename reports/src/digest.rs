//! Digests that identify the inputs and the policy of a run.

use sha2::{Digest, Sha256};

/// SHA-256 of a text, in lower-case hexadecimal.
pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
