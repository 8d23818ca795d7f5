//! Published claims, and the status that run directories give to each.
//! `file` reads claims, `reading` asks a measure, `range` compares; `status` joins cases and runs.
//! Nothing here measures, and no claim is judged by its prose.

mod arithmetic;
mod catalogue;
mod file;
mod finding;
mod range;
mod reading;
mod status;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use inputs::InputError;

use figures::evidence::RunEvidence;

pub use catalogue::{Catalogue, KnownWorkload, check};
pub use file::ClaimFile;
pub use status::by_factor;
pub use status::{CaseResult, ClaimResult, ClaimStatus, Tally, tally};

static CLAIMS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../claims");

/// The built-in claim files, in order: the name for error messages, and the text.
pub fn built_in() -> Vec<(PathBuf, &'static str)> {
    let mut files: Vec<_> = CLAIMS.files().collect();
    files.sort_by_key(|file| file.path());
    let files = files.into_iter().map(|file| {
        let name = Path::new("reports/claims").join(file.path());
        (name, file.contents_utf8().unwrap_or_default())
    });
    files.collect()
}

/// Judges all built-in claims by runs.
///
/// # Errors
/// If a claims file is malformed.
pub fn judge(runs: &[RunEvidence<'_>]) -> Result<Vec<ClaimResult>, InputError> {
    let mut judged = Vec::new();
    for (name, text) in built_in() {
        judged.extend(judge_file(&ClaimFile::parse(&name, text)?, runs));
    }
    Ok(judged)
}

/// Judges the claims of a file by runs.
pub fn judge_file(file: &ClaimFile, runs: &[RunEvidence<'_>]) -> Vec<ClaimResult> {
    let claims = file.claims.iter();
    claims.map(|claim| status::judge(file, claim, runs)).collect()
}
