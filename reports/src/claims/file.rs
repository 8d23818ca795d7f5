//! A file of claims: its fields, and what a well-formed claim has.

use std::path::{Path, PathBuf};

use inputs::{InputError, parse_toml};
use serde::Deserialize;

use super::finding::Test;
use super::range::Range;
use super::subject::Subject;

/// A file of claims from one source.
#[derive(Clone, Debug)]
pub struct ClaimFile {
    /// The file's name, for error messages.
    pub file: PathBuf,
    /// The publisher, unless a claim names its own.
    pub source: String,
    /// The claims, in the file's order.
    pub(super) claims: Vec<Claim>,
    /// The line of each claim's head, from 1.
    lines: Vec<usize>,
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
        let heads = (1..).zip(text.lines());
        let heads = heads.filter(|(_, line)| line.trim_start().starts_with("[[claim]]"));
        let parsed = Self {
            file: file.to_owned(),
            source: document.source,
            claims: document.claims,
            lines: heads.map(|(number, _)| number).collect(),
            text: text.to_owned(),
        };
        for (at, claim) in parsed.claims.iter().enumerate() {
            parsed.check(at, claim)?;
        }
        Ok(parsed)
    }

    fn check(&self, at: usize, claim: &Claim) -> Result<(), InputError> {
        let kinds = [
            claim.test.is_some(),
            !claim.cases.is_empty(),
            claim.elsewhere.is_some(),
            claim.untestable.is_some(),
        ];
        if kinds.into_iter().filter(|is| *is).count() != 1 {
            let message = "needs exactly one of `test`, `case`, `elsewhere` and `untestable`";
            return Err(self.wrong(at, "", message));
        }
        if self.claims[..at].iter().any(|other| other.id == claim.id) {
            return Err(self.wrong(at, "id", format!("two claims have the id {:?}", claim.id)));
        }
        for (place, says, test) in claim.tests() {
            let Some(says) = says else {
                return Err(self.wrong(at, &format!("{place}says"), "is missing"));
            };
            says.check()
                .map_err(|message| self.wrong(at, &format!("{place}says"), message))?;
            test.check()
                .map_err(|message| self.wrong(at, &format!("{place}test"), message))?;
            let units = test.units();
            if !units.contains(&says.unit) {
                let units: Vec<_> = units.iter().map(|unit| unit.name()).collect();
                let message = format!(
                    "{:?} is not a unit of this test; its units are {}",
                    says.unit.name(),
                    units.join(" or ")
                );
                return Err(self.wrong(at, &format!("{place}says.unit"), message));
            }
        }
        Ok(())
    }

    /// An error about a field of the claim at `at`. The line is the first of the claim with a quoted word of the
    /// message, else the claim's head.
    pub(super) fn wrong(&self, at: usize, field: &str, message: impl ToString) -> InputError {
        let message = message.to_string();
        let head = self.lines.get(at).copied();
        let end = self.lines.get(at + 1).copied().unwrap_or(usize::MAX);
        let quoted = message.split('"').nth(1);
        let line = quoted.and_then(|quoted| {
            let numbered = (1..).zip(self.text.lines());
            let mut lines = numbered.filter(|(number, _)| Some(*number) >= head && *number < end);
            let spelled = [format!("\"{quoted}\""), format!("'{quoted}'")];
            lines
                .find(|(_, line)| spelled.iter().any(|word| line.contains(word.as_str())))
                .map(|(number, _)| number)
        });
        let id = self.claims.get(at).map_or("", |claim| claim.id.as_str());
        let field = match field {
            "" => String::new(),
            field => format!("field `claim[{at}].{field}`: "),
        };
        InputError {
            file: self.file.clone(),
            line: line.or(head),
            message: format!("{field}claim {id}: {message}"),
        }
    }
}

impl Claim {
    /// All tests of the claim: the field's place in it, the range and the subject.
    pub(super) fn tests(&self) -> impl Iterator<Item = (String, Option<&Range>, &dyn Test)> {
        let one = self.test.iter();
        let one = one.map(|subject| (String::new(), self.says.as_ref(), subject.test()));
        let cases = self.cases.iter().enumerate();
        let cases = cases.map(|(at, case)| {
            let says = case.says.as_ref().or(self.says.as_ref());
            (format!("case[{at}]."), says, case.test.test())
        });
        one.chain(cases)
    }
}
