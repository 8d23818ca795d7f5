//! Names in definitions and records, by one grammar: relative paths of one or more components without hidden characters.
//! [`FileName`] is the only kind of text from which a report makes the path of a file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error};

/// The maximum length of a name in bytes: that of a file's name in Linux.
const LONGEST: usize = 255;

/// The most names that a message lists.
const LISTED: usize = 8;

/// The likeness (Jaro-Winkler) from which on a name may be meant by another one.
const LIKE: f64 = 0.8;

/// The most names that are near another one.
const NEAREST: usize = 3;

/// The known names that may be meant by `name`, the nearest first: at most three.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // The two are taken for one another.
    let plain = |name: &str| name.replace('_', "-");
    let name = plain(name);
    let likeness = |known: &str| strsim::jaro_winkler(&plain(known), &name);
    let mut names: Vec<&str> = known.into_iter().collect();
    names.retain(|known| likeness(known) >= LIKE);
    names.sort_unstable();
    names.dedup();
    names.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    names.truncate(NEAREST);
    names
}

/// The end of a message about an unknown name: all known names if they are few, else those that may be meant,
/// else the first ones.
pub fn alternatives<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = known.into_iter().collect();
    match all.len() {
        0 => "there are none".to_owned(),
        few if few <= LISTED => format!("use one of {}", all.join(", ")),
        many => match nearest(name, all.iter().copied()).as_slice() {
            [] => {
                let more = many - LISTED;
                format!("use one of {} or {more} more", all[..LISTED].join(", "))
            }
            near => format!("the nearest are {}", near.join(", ")),
        },
    }
}

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name {name:?} {problem} (a name has 1 to {LONGEST} bytes and no control characters, and is neither absolute nor contains `..`)"
)]
pub struct NameError {
    name: String,
    problem: &'static str,
}

/// Checks a name of an arm, a workload, a cache state, a scenario, a policy or a kind of call.
///
/// # Errors
/// If it is empty, too long, absolute, has an empty, `.` or `..` component, or a control character or one that changes
/// the direction of writing.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let mut parts = name.split('/');
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > LONGEST {
        "is too long"
    } else if name.starts_with('/') {
        "is an absolute path"
    } else if parts.any(|part| matches!(part, "" | "." | "..")) {
        "has an empty, `.` or `..` component"
    } else if crate::border::terminal_cell(name) != name {
        "has a control character"
    } else {
        return Ok(());
    };
    // A long name is not printed whole.
    let name = name.chars().take(80).collect();
    Err(NameError { name, problem })
}

/// The name of a file: one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName(String);

impl FileName {
    /// Checks a file name.
    ///
    /// # Errors
    /// As [`check_name`], and if it has a `/`.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        check_name(&name)?;
        if name.contains('/') { Err(NameError { name, problem: "has a `/`" }) } else { Ok(Self(name)) }
    }

    /// The file name for a name that may have several components, which `-` joins, with an ending. Of a name that is too
    /// long, the end is replaced by its digest.
    ///
    /// # Errors
    /// As [`check_name`].
    pub fn of_name(name: &str, ending: &str) -> Result<Self, NameError> {
        let mut stem = name.replace('/', "-");
        if stem.len() + ending.len() > LONGEST {
            let digest = crate::sha256(&stem);
            let mut cut = LONGEST.saturating_sub(ending.len() + 17);
            while !stem.is_char_boundary(cut) {
                cut -= 1;
            }
            stem.truncate(cut);
            stem = format!("{stem}-{}", &digest[..16]);
        }
        Self::new(stem + ending)
    }

    /// The path of the file in `dir`.
    pub fn within(&self, dir: &Path) -> PathBuf {
        dir.join(&self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a name, for `deserialize_with`.
///
/// # Errors
/// As [`check_name`].
pub fn name<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let name = String::deserialize(input)?;
    check_name(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Reads a name that may be missing, for `deserialize_with`.
///
/// # Errors
/// As [`check_name`].
pub fn optional_name<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    name.iter().try_for_each(|name| check_name(name)).map_err(D::Error::custom)?;
    Ok(name)
}

/// Reads a list of names, for `deserialize_with`.
///
/// # Errors
/// As [`check_name`].
pub fn name_list<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(input)?;
    names.iter().try_for_each(|name| check_name(name)).map_err(D::Error::custom)?;
    Ok(names)
}

/// Reads values by name, for `deserialize_with`.
///
/// # Errors
/// As [`check_name`].
pub fn by_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<BTreeMap<String, T>, D::Error> {
    let values = BTreeMap::<String, T>::deserialize(input)?;
    values.keys().try_for_each(|name| check_name(name)).map_err(D::Error::custom)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_the_nearest_ones_and_not_a_list_of_forty() {
        let many: Vec<String> = (0..40).map(|number| format!("micro/{number}")).collect();
        let known = many.iter().map(String::as_str).chain(["sqlite", "direct"]);
        assert_eq!(alternatives("sqlit", known.clone()), "the nearest are sqlite");
        let unlike = "use one of micro/0, micro/1, micro/2, micro/3, micro/4, micro/5, micro/6, micro/7 or 34 more";
        assert_eq!(alternatives("nonsense", known), unlike);
        assert_eq!(alternatives("x", ["b", "a"]), "use one of b, a");
        assert_eq!(alternatives("x", []), "there are none");
        assert_eq!(nearest("a_b", ["a_c", "a-b"]), ["a-b", "a_c"]);
    }
    use proptest::prelude::*;

    #[test]
    fn names_that_leave_a_directory_or_order_a_terminal_are_refused() {
        let long = "a".repeat(256);
        for bad in [
            "",
            "/etc/x",
            "..",
            "../../x",
            "a/../b",
            "a//b",
            "a/",
            ".",
            "a\0",
            "a\n",
            "\u{1b}[31m",
            "a\u{202e}b",
            &long,
        ] {
            check_name(bad).unwrap_err();
            FileName::new(bad).unwrap_err();
        }
        for good in ["sqlite", "micro/read-1k", "s3-minio@30ms", "näme", "a b", "...", &long[1..]] {
            check_name(good).unwrap();
        }
        FileName::new("a/b").unwrap_err();
        let told = check_name("../x").unwrap_err().to_string();
        assert!(told.starts_with("the name \"../x\" has an empty, `.` or `..` component"), "{told}");
    }

    #[test]
    fn a_long_name_becomes_a_file_name_of_its_own() {
        let (one, other) = ("é".repeat(127), "é".repeat(126) + "x");
        let file = |name: &str| FileName::of_name(name, ".hot.sqlite.hlog").unwrap();
        assert!(file(&one).to_string().len() <= 255);
        assert_ne!(file(&one), file(&other));
        assert_eq!(file("micro/read").to_string(), "micro-read.hot.sqlite.hlog");
    }

    proptest! {
        #[test]
        fn an_accepted_file_name_stays_in_its_directory(name in "[a./\\\\\0\n:]{0,12}") {
            if let Ok(name) = FileName::new(name) {
                let path = name.within(Path::new("/root"));
                prop_assert_eq!(path.parent(), Some(Path::new("/root")));
                prop_assert!(path.components().all(|part| part.as_os_str() != ".."));
            }
        }
    }
}
