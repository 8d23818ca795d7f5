//! Files of the repository that are built into the binary: their names, and the text of one.

use std::path::{Path, PathBuf};

use include_dir::Dir;

/// The names of the files in `dir` without their extensions, in order.
pub(crate) fn stems(dir: &Dir<'_>) -> Vec<String> {
    let files = dir.files();
    let stems = files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
    let mut stems: Vec<String> = stems.collect();
    stems.sort();
    stems
}

/// The file called `stem` in a directory that is built in, whose place in the repository is `place`.
pub(crate) fn file<'a>(dir: &'a Dir<'_>, place: &str, stem: &str) -> Option<(PathBuf, &'a str)> {
    let file = format!("{stem}.toml");
    let text = dir.get_file(&file)?.contents_utf8()?;
    Some((Path::new("workloads").join(place).join(file), text))
}
