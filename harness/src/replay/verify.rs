//! Comparing what an operation returned with what the model says. Never under the clock.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;
use workloads::model::{Entry, Expected};
use workloads::path::WorkspacePath;
use workloads::script::FileOp;

use super::{Observed, Scratch};
use crate::replay::perform::Entry as Seen;

/// Says what is wrong with a result, or nothing if it is what the model expects.
pub fn verify(
    op: &FileOp,
    expected: &Expected,
    observed: &Result<Observed, Errno>,
    scratch: &Scratch,
) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{}: {what}", op.describe()));
    let observed = match (expected, observed) {
        (Expected::Errno(expected), Err(errno)) if errno.raw_os_error() == *expected => {
            return Ok(());
        }
        (Expected::Errno(expected), Ok(_)) => {
            return wrong(format!(
                "succeeded, but must fail with error number {expected}"
            ));
        }
        (_, Err(errno)) => return wrong(format!("failed: {errno}")),
        (_, Ok(observed)) => observed,
    };
    match (expected, observed) {
        (Expected::Done, Observed::Done) => Ok(()),
        (Expected::Bytes(bytes), Observed::Bytes(place)) => {
            same_bytes(bytes, &scratch.data[place.clone()]).or_else(wrong)
        }
        (Expected::Part { whole, start, end }, Observed::Bytes(place)) => {
            same_bytes(&whole[*start..*end], &scratch.data[place.clone()]).or_else(wrong)
        }
        // A search for a path that turns out to be a file reads that file.
        (
            Expected::Attributes { size: Some(size) },
            Observed::Attributes { size: seen, is_dir },
        ) => {
            if *is_dir {
                wrong("is a directory, but should be a file".to_owned())
            } else if seen == size {
                Ok(())
            } else {
                wrong(format!("has {seen} bytes, but should have {size}"))
            }
        }
        (Expected::Attributes { size: None }, Observed::Attributes { is_dir: true, .. }) => Ok(()),
        (Expected::Entries(entries), Observed::Entries(place)) => {
            same_entries(entries, place, scratch).or_else(wrong)
        }
        (Expected::Tree(tree), Observed::Entries(place)) => {
            let expected = tree.iter().map(|(path, bytes)| (path, Some(&bytes[..])));
            same_files(op, expected.collect(), place, scratch).or_else(wrong)
        }
        (Expected::Paths(paths), Observed::Entries(place)) => {
            let expected = paths.iter().map(|path| (path, None));
            same_files(op, expected.collect(), place, scratch).or_else(wrong)
        }
        (expected, observed) => wrong(format!("returned {observed:?}, but should {expected:?}")),
    }
}

fn same_bytes(expected: &[u8], seen: &[u8]) -> Result<(), String> {
    if expected == seen {
        return Ok(());
    }
    let differs = expected.iter().zip(seen).position(|(a, b)| a != b);
    Err(match differs {
        Some(at) => format!("byte {at} of {} is wrong", expected.len()),
        None => format!(
            "returned {} bytes instead of {}",
            seen.len(),
            expected.len()
        ),
    })
}

fn same_entries(
    expected: &BTreeMap<String, Entry>,
    place: &Range<usize>,
    scratch: &Scratch,
) -> Result<(), String> {
    let seen = &scratch.entries[place.clone()];
    for entry in seen {
        let name = text(scratch, &entry.name);
        match (expected.get(name.as_ref()), entry) {
            (Some(Entry::Directory), Seen { is_dir: true, .. }) => {}
            (
                Some(Entry::File(size)),
                Seen {
                    is_dir: false,
                    size: seen,
                    ..
                },
            ) => {
                if seen.is_some_and(|seen| seen != *size) {
                    return Err(format!("{name} has {seen:?} bytes, but should have {size}"));
                }
            }
            (Some(_), _) => return Err(format!("{name} is of the wrong kind")),
            (None, _) => return Err(format!("lists {name}, which should not be there")),
        }
    }
    same_count(expected.len(), seen.len())
}

fn same_files(
    op: &FileOp,
    expected: BTreeMap<&WorkspacePath, Option<&[u8]>>,
    place: &Range<usize>,
    scratch: &Scratch,
) -> Result<(), String> {
    let files = scratch.entries[place.clone()]
        .iter()
        .filter(|entry| !entry.is_dir);
    let mut count = 0;
    for file in files {
        count += 1;
        let path = text(scratch, &file.name);
        let path = op.path().join(&path).map_err(|error| error.to_string())?;
        match expected.get(&path) {
            None => return Err(format!("finds {path}, which should not be there")),
            Some(None) => {}
            Some(Some(bytes)) => same_bytes(bytes, &scratch.data[file.content.clone()])
                .map_err(|what| format!("{path}: {what}"))?,
        }
    }
    same_count(expected.len(), count)
}

fn same_count(expected: usize, seen: usize) -> Result<(), String> {
    if expected == seen {
        Ok(())
    } else {
        Err(format!("returns {seen} entries instead of {expected}"))
    }
}

fn text<'a>(scratch: &'a Scratch, name: &Range<usize>) -> std::borrow::Cow<'a, str> {
    String::from_utf8_lossy(&scratch.names[name.clone()])
}
