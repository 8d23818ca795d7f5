//! Finds an installed model.

use std::path::{Path, PathBuf};

/// The environment variable with the path of a model's directory.
pub const VARIABLE: &str = "CTXBENCH_EMBEDDINGS";

/// Where `scripts/embeddings` installs the model, below `target`.
const BELOW_TARGET: &str = "embeddings";

/// No model is installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no embedding model is installed ({looked}); `make embeddings` installs one (79 MB)")]
pub struct MissingModel {
    /// The searched places.
    pub looked: String,
}

/// Finds the model's directory: `CTXBENCH_EMBEDDINGS`, else as installed by `make embeddings`.
///
/// # Errors
/// [`MissingModel`].
pub fn find() -> Result<PathBuf, MissingModel> {
    // An explicit path has no fallback.
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        if has_model(&named) {
            return Ok(named);
        }
        let looked = format!("{VARIABLE} names {}, which has no model", named.display());
        return Err(MissingModel { looked });
    }
    let places = targets();
    match places.iter().find(|place| has_model(place)) {
        Some(place) => Ok(place.clone()),
        None => Err(MissingModel {
            looked: match places.first() {
                Some(place) => format!("none in {}", place.display()),
                None => format!("{VARIABLE} is not set"),
            },
        }),
    }
}

fn has_model(dir: &Path) -> bool {
    dir.join(crate::bert::WEIGHTS).is_file()
}

/// `target/embeddings` of the repository that contains this program.
fn targets() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    program
        .ancestors()
        .filter(|dir| dir.file_name().is_some_and(|name| name == "target"))
        .map(|target| target.join(BELOW_TARGET))
        .collect()
}
