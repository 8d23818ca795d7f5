//! A file of claims: its fields, and what a well-formed claim has.

use std::path::{Path, PathBuf};

use inputs::PathStep::{self, Any, Field, Item};
use inputs::{InputError, parse_toml, toml_error};
use serde::Deserialize;

use super::arithmetic::Arithmetic;
use super::finding::Test;
use super::range::Range;
use super::reading::ReadingTest;

/// A file of claims from one source.
#[derive(Clone, Debug)]
pub struct ClaimFile {
    /// The file's name, for error messages.
    pub file: PathBuf,
    /// The publisher, unless a claim names its own.
    pub source: String,
    /// The claims, in the file's order.
    pub(super) claims: Vec<Claim>,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimDocument {
    source: String,
    #[serde(rename = "claim")]
    claims: Vec<Claim>,
}

/// A published figure or statement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub id: String,
    /// The words of the source.
    pub quote: String,
    /// How the quote is read, where it leaves that open.
    pub taken: Option<String>,
    /// The publisher, if it is not the file's.
    pub source: Option<String>,
    /// Where it was published.
    pub url: Option<String>,
    /// The published range.
    pub says: Option<Range>,
    /// The test, if the claim has no cases.
    pub test: Option<Subject>,
    /// The tests by condition, if the claim has no test of its own.
    #[serde(rename = "case", default)]
    pub cases: Vec<Case>,
    /// The command whose run tests it, if the one that follows from the test is not the best.
    pub settle: Option<String>,
    /// The machine or service that the claim is about, which a run does not have.
    pub elsewhere: Option<String>,
    /// Why no run can test it.
    pub untestable: Option<String>,
}

/// A condition under which a claim is tested.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The condition, to be read after "when".
    pub when: String,
    /// The range, if it is not the claim's.
    pub says: Option<Range>,
    pub test: Subject,
    /// As in the claim.
    pub settle: Option<String>,
}

impl ClaimFile {
    /// Parses a file of claims; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let document: ClaimDocument = parse_toml(file, text)?;
        let parsed =
            Self { file: file.to_owned(), source: document.source, claims: document.claims, text: text.to_owned() };
        for (at, claim) in parsed.claims.iter().enumerate() {
            parsed.check(at, claim)?;
        }
        Ok(parsed)
    }

    fn check(&self, at: usize, claim: &Claim) -> Result<(), InputError> {
        let kinds =
            [claim.test.is_some(), !claim.cases.is_empty(), claim.elsewhere.is_some(), claim.untestable.is_some()];
        if kinds.into_iter().filter(|is| *is).count() != 1 {
            let message = "needs exactly one of `test`, `case`, `elsewhere` and `untestable`";
            return Err(self.wrong(at, &[], message));
        }
        if self.claims[..at].iter().any(|other| other.id == claim.id) {
            let message = format!("two claims have the id {:?}", claim.id);
            return Err(self.wrong(at, &[Field("id")], &message));
        }
        for (place, says, test) in claim.tests() {
            let wrong = |own: &[PathStep<'_>], message: &str| Err(self.wrong(at, &[&place, own].concat(), message));
            let Some(says) = says else {
                return wrong(&[Field("says")], "is missing");
            };
            if let Some((field, message)) = says.problem() {
                let path = [Field("says"), Field(field)];
                let path = if field.is_empty() { &path[..1] } else { &path[..] };
                return wrong(path, message);
            }
            if let Some((path, message)) = test.problem() {
                let path = [&[Field("test"), Any], &*path].concat();
                return wrong(&path, &message);
            }
            let units = test.units();
            if !units.contains(&says.unit) {
                let message = format!("{:?} is not a unit of this test; its units are {}", says.unit, units.join(", "));
                return wrong(&[Field("says"), Field("unit")], &message);
            }
            if let Some(message) = says.one_sided(test.range(&says.unit)) {
                return wrong(&[Field("says")], &message);
            }
        }
        Ok(())
    }

    /// An error about a field of the claim at `at`.
    pub(super) fn wrong(&self, at: usize, own: &[PathStep<'_>], message: &str) -> InputError {
        let path = [&[Field("claim"), Item(at)], own].concat();
        let id = self.claims.get(at).map_or("", |claim| claim.id.as_str());
        let message = format!("claim {id}: {message}");
        toml_error(&self.file, &self.text, &path, &message)
    }
}

impl Claim {
    /// All tests of the claim: the place in it, the range and the test.
    pub(super) fn tests(&self) -> impl Iterator<Item = (Vec<PathStep<'static>>, Option<&Range>, &dyn Test)> {
        let one = self.test.iter();
        let one = one.map(|subject| (Vec::new(), self.says.as_ref(), subject.test()));
        let cases = self.cases.iter().enumerate();
        let cases = cases.map(|(at, case)| {
            let says = case.says.as_ref().or(self.says.as_ref());
            (vec![Field("case"), Item(at)], says, case.test.test())
        });
        one.chain(cases)
    }
}

/// A measure of a run, or of a claim's own figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// A measure of an arm.
    Reading(ReadingTest),
    /// The claim's own figures.
    Arithmetic(Arithmetic),
}

impl Subject {
    /// The test of this kind.
    pub(super) fn test(&self) -> &dyn Test {
        match self {
            Subject::Reading(test) => test,
            Subject::Arithmetic(test) => test,
        }
    }
}
