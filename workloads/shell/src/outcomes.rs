//! Which commands of a line have run, and whether they have done their work: from the line's status, from its output, and
//! from how its commands are joined.

use memchr::memchr;

use super::command::{base_name, echoed, goes, is_build, is_given_script, is_message, opens_file, program_name};
use super::control_flow::{Ends, Pipeline, executions};
use super::phrases::Phrases;
use super::programs::lists;
use super::python;
use super::steps::CertainResult;
use super::words::{Expansion, Joint, RedirectionKind, SimpleCommand, Word, assignment, without_wrappers};

/// Programs that end with status 0 whatever the files are.
const WITHOUT_FAILURE: &str = ": clear date echo id printf ps pwd set sleep true umask uname uptime whoami yes";

/// Programs that say so if they fail.
const REPORTERS: &str = "base64 cat cat cksum column comm cp cut dir du file find fold head hexdump less ls md5sum mkdir more mv nl od \
    realpath rev rm rmdir sed sha1sum sha256sum shasum sort stat strings tac tail tee touch tr tree uniq unlink wc xxd";

/// Programs whose status answers a question: they have read their files all the same.
const ANSWERERS: &str = "[ [[ ag awk cmp diff egrep fd fdfind fgrep find grep jq rg test";

/// Words of a program that could not do its work.
static FAILURES: Phrases = Phrases::new(&[
    "No such file or directory",
    "cannot access",
    "Permission denied",
    "Is a directory",
    "Not a directory",
    "command not found",
    "File exists",
    "no such file or directory",
    "not a directory",
    "permission denied",
    "Read-only file system",
    "No space left on device",
    "os error",
    "fatal: not a git repository",
]);

/// What is known of a command of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has run, and done all of its work.
    Done,
    /// It has run. Whether it failed is not known.
    Ran {
        /// Whether its words of failure would not be in the output.
        is_hidden: bool,
        /// Whether the output has words of failure.
        tells_failure: bool,
    },
    /// It has not run.
    LeftOut,
    /// It may not have run.
    Doubtful,
}

/// What a result tells of a line.
#[derive(Clone, Copy)]
pub(super) struct Report<'a> {
    pub(super) output: &'a str,
    /// Whether the line ended with status 0; `None` if that is not known.
    pub(super) succeeded: Option<bool>,
}

/// The outcome of each command of a line: whether it has run, and done its work.
///
/// # Errors
/// Why none of them is certain.
pub(super) fn outcomes(all: &[SimpleCommand], report: Report, is_strict: bool) -> CertainResult<Vec<Outcome>> {
    let output = report.output;
    let complaints = Complaints::new(all, output);
    if report.succeeded == Some(false) {
        return outcomes_of_failure(all, output, &complaints);
    }
    let is_cut = crate::file_text::is_cut_output(output);
    for or in all.iter().filter(|simple| simple.joint == Joint::Or) {
        let is_certain = is_message(or) && or.words.iter().all(|word| word.expansion == Expansion::Plain);
        let words: Vec<&str> = or.words.iter().map(|word| word.text.as_str()).collect();
        let has_run = is_certain
            && words.split_first().is_some_and(|(program, said)| {
                let said = said.join(" ");
                *program == "echo" && output.lines().any(|line| line.trim() == said.trim())
            });
        if has_run || !is_certain && !ends_shell(or) {
            return Err(if has_run { "a part that failed" } else { "a command for the case of a failure" });
        }
    }
    let (mut is_strict, mut has_pipefail) = (is_strict, false);
    let mut pipelines: Vec<Pipeline> = Vec::new();
    let mut own = Vec::with_capacity(all.len());
    for (at, simple) in all.iter().enumerate() {
        let is_before_pipe = all.get(at + 1).is_some_and(|next| next.joint == Joint::Pipe);
        let ends = ends(simple, is_before_pipe, is_cut, report, &complaints);
        own.push(ends);
        match pipelines.last_mut() {
            Some(pipeline) if simple.joint == Joint::Pipe => {
                pipeline.ends = if has_pipefail { pipeline.ends.followed_by(ends) } else { ends };
            }
            _ => pipelines.push(Pipeline { joint: simple.joint, ends, is_strict }),
        }
        if simple.words.first().is_some_and(|word| word.text == "set") {
            let is_certain = simple.joint == Joint::Sequence && !is_before_pipe;
            match options(&simple.words[1..]).filter(|_| is_certain) {
                Some(options) => {
                    is_strict = options.is_strict.unwrap_or(is_strict);
                    has_pipefail = options.has_pipefail.unwrap_or(has_pipefail);
                }
                None => return Err("an option of the shell"),
            }
        }
        if simple.words.first().is_some_and(|word| word.text == "exec") && at + 1 < all.len() {
            return Err("a program in place of the shell");
        }
    }
    // Agents do not take the status 1 of an answer for a failure.
    let last = all.last().map_or("", program_name);
    let is_exact = !lists(ANSWERERS, last);
    let mut executions = executions(&pipelines, report.succeeded.filter(|_| is_exact)).into_iter();
    let mut outcomes = Vec::with_capacity(all.len());
    let mut execution = Default::default();
    for (at, simple) in all.iter().enumerate() {
        if simple.joint != Joint::Pipe {
            execution = executions.next().unwrap_or_default();
        }
        let is_before_pipe = all.get(at + 1).is_some_and(|next| next.joint == Joint::Pipe);
        let name = program_name(simple);
        let is_hidden = hides_errors(simple, is_before_pipe);
        let complains = complaints.has(name);
        let tells_failure = complains || complaints.has_words;
        let has_succeeded =
            own[at] == Ends::SUCCESS || (!is_before_pipe || has_pipefail) && execution.ends == Ends::SUCCESS;
        let has_answered = lists(ANSWERERS, name)
            && if at + 1 == all.len() && report.succeeded == Some(true) {
                // The status of a search without a failure.
                name != "find" || !complains
            } else {
                !is_hidden && !tells_failure
            };
        outcomes.push(match (execution.ends == Ends::NONE, execution.skipped) {
            (true, true) => Outcome::LeftOut,
            (true, false) => return Err("an output that contradicts the status"),
            (false, true) => Outcome::Doubtful,
            (false, false) if has_succeeded || has_answered => Outcome::Done,
            (false, false) => Outcome::Ran { is_hidden, tells_failure },
        });
    }
    Ok(outcomes)
}

/// The outcomes of a line that ended with another status than 0. The shell may have been stopped anywhere: only the outcome
/// of one command that works on files is known.
fn outcomes_of_failure(all: &[SimpleCommand], output: &str, complaints: &Complaints) -> CertainResult<Vec<Outcome>> {
    const FAILED: &str = "a command that failed";
    let mut working = all.iter().filter(|simple| simple.joint != Joint::Pipe && !is_message(simple) && !goes(simple));
    let (Some(one), None) = (working.next(), working.next()) else {
        return Err(FAILED);
    };
    let is_pipe = all.iter().any(|simple| simple.joint == Joint::Pipe);
    // A program that runs says more than the shell that did not get to its directory.
    let is_lost = (complaints.has("cd") || complaints.has("pushd")) && output.trim().lines().count() <= 4;
    if is_lost || one.joint == Joint::Or {
        return Err(FAILED);
    }
    let (first, rest) = without_wrappers(&one.words).split_first().ok_or(FAILED)?;
    let name = base_name(&first.text);
    // Without a match or with a difference, these end with status 1, and have read their files.
    let answers = lists("grep egrep fgrep rg diff cmp", name) && !is_pipe && !complaints.has_words;
    // Failed tests have read the tree all the same.
    let has_run = !["command not found", "not found\n", "Permission denied"].iter().any(|words| output.contains(words));
    if !(answers || is_build(name, rest) && has_run) {
        return Err(FAILED);
    }
    let outcome = |simple: &SimpleCommand| match simple.joint {
        Joint::Pipe => Outcome::Ran { is_hidden: false, tells_failure: false },
        _ if is_message(simple) => Outcome::Doubtful,
        _ if answers && std::ptr::eq(simple, one) && hides_errors(simple, false) => {
            Outcome::Ran { is_hidden: true, tells_failure: false }
        }
        _ => Outcome::Done,
    };
    Ok(all.iter().map(outcome).collect())
}

/// The ends that a command can have.
fn ends(simple: &SimpleCommand, is_before_pipe: bool, is_cut: bool, report: Report, complaints: &Complaints) -> Ends {
    let is_silent = hides_errors(simple, is_before_pipe);
    let name = program_name(simple);
    let has_reported = is_silent || complaints.has(name) || name != "cd" && complaints.has_words;
    let opens_files = simple.redirections.iter().any(opens_file);
    // `sudo` and `timeout` have failures of their own.
    let first = simple.words.iter().find(|word| assignment(&word.text).is_none());
    let is_limited = first.is_some_and(|word| lists("sudo timeout", &word.text));
    match name {
        "false" => Ends::FAILURE,
        "exit" if ends_shell(simple) && report.succeeded == Some(true) => Ends::NONE,
        "echo" if simple.joint == Joint::Sequence && !opens_files => Ends::SUCCESS,
        "echo" if !is_before_pipe && !opens_files && !is_cut && is_absent(simple, report.output) => Ends::NONE,
        "apply_patch" | "applypatch" if report.output.contains("Success. Updated the following files:") => {
            Ends::SUCCESS
        }
        "" if !opens_files => Ends::SUCCESS,
        _ if lists(WITHOUT_FAILURE, name) && !opens_files => Ends::SUCCESS,
        _ if is_limited => Ends::ANY,
        // A script that ends early without a word has no certain steps.
        "python" | "python3" if !has_reported && is_given_script(simple) && !python::has_failed(report.output) => {
            Ends::SUCCESS
        }
        "git" if !has_reported && !complaints.has_git && has_words_of_failure(simple) => Ends::SUCCESS,
        "" | "cd" | "pushd" if !has_reported => Ends::SUCCESS,
        _ if (lists(WITHOUT_FAILURE, name) || lists(REPORTERS, name)) && !has_reported => Ends::SUCCESS,
        _ => Ends::ANY,
    }
}

/// Whether a command of git says so if it fails.
fn has_words_of_failure(simple: &SimpleCommand) -> bool {
    const SUBCOMMANDS: &str =
        "add branch checkout diff fetch log pull push restore rev-parse show stash status switch tag";
    let mut rest = without_wrappers(&simple.words).iter().skip(1).map(|word| word.text.as_str());
    let asks = rest.clone().any(|word| lists("--quiet --exit-code -q --check", word));
    let mut takes_value = false;
    let subcommand = rest.find(|word| !std::mem::replace(&mut takes_value, *word == "-C") && !word.starts_with('-'));
    subcommand.is_some_and(|word| lists(SUBCOMMANDS, word)) && !asks
}

/// Whether a text that `echo` would have written is not in the output.
fn is_absent(simple: &SimpleCommand, output: &str) -> bool {
    // A terminal breaks long lines.
    let said = said(simple).filter(|said| !said.trim().is_empty() && said.len() < 60);
    said.is_some_and(|said| !output.contains(said.trim()))
}

/// The text that `echo` writes to the output, if it is certain.
fn said(simple: &SimpleCommand) -> Option<String> {
    let is_plain = simple.redirections.is_empty() || simple.redirections.iter().all(|to| !opens_file(to));
    echoed(simple.words.get(1..)?).filter(|_| is_plain)
}

/// `exit 1`.
fn ends_shell(simple: &SimpleCommand) -> bool {
    match &simple.words[..] {
        [exit, status] => exit.text == "exit" && status.text.parse::<u8>().is_ok_and(|status| status > 0),
        _ => false,
    }
}

/// Whether the words with which a command fails go elsewhere than to the output.
fn hides_errors(simple: &SimpleCommand, is_before_pipe: bool) -> bool {
    let is_moved = simple.redirections.iter().any(|to| to.descriptor != '2' && opens_file(to));
    simple.redirections.iter().filter(|to| matches!(to.descriptor, '2' | '&')).any(|to| match to.kind {
        // Then the errors go where the output goes.
        RedirectionKind::Descriptor => to.target.text != "1" || is_before_pipe || is_moved,
        _ => true,
    })
}

/// The options of the shell that `set` changes.
#[derive(Default)]
struct Options {
    is_strict: Option<bool>,
    has_pipefail: Option<bool>,
}

/// The options that `set` with these words changes, if they are known.
fn options(words: &[Word]) -> Option<Options> {
    let mut options = Options::default();
    let mut rest = words.iter().map(|word| word.text.as_str());
    while let Some(word) = rest.next() {
        let is_on = word.starts_with('-');
        let letters = word.strip_prefix(['-', '+'])?;
        for letter in letters.chars() {
            match letter {
                'e' => options.is_strict = Some(is_on),
                'o' => match rest.next()? {
                    "errexit" => options.is_strict = Some(is_on),
                    "pipefail" => options.has_pipefail = Some(is_on),
                    "nounset" | "xtrace" | "verbose" => {}
                    _ => return None,
                },
                'u' | 'v' | 'x' => {}
                _ => return None,
            }
        }
    }
    Some(options)
}

/// Words of failure in the output of a line.
struct Complaints<'a> {
    /// The programs that say that they failed, in the order of their names: `rm: cannot remove 'a'`, `bash: line 1: cd: b`.
    programs: Vec<&'a str>,
    /// Whether git says so.
    has_git: bool,
    /// Whether the output has words of any program.
    has_words: bool,
}

impl<'a> Complaints<'a> {
    fn new(all: &'a [SimpleCommand], output: &str) -> Self {
        let mut names: Vec<&str> = all.iter().map(program_name).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let (mut is_named, mut has_git) = (vec![false; names.len()], false);
        let mut rest = output;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            let Some(colon) = memchr(b':', line.as_bytes()) else {
                continue;
            };
            let (first, parts) = (&line[..colon], &line[colon + 1..]);
            let is_git = matches!(first, "fatal" | "error");
            let name = base_name(first);
            let known = names.binary_search(&name);
            // A shell names itself first.
            let is_shell = name.ends_with("sh") || first == "(eval)";
            if !(is_git || is_shell || known.is_ok()) || line.trim_end_matches('\r').ends_with("binary file matches") {
                continue;
            }
            has_git |= is_git;
            known.into_iter().for_each(|known| is_named[known] = true);
            if is_shell {
                let parts = parts.split(':').take(4).map(str::trim);
                parts.flat_map(|part| names.binary_search(&part)).for_each(|known| is_named[known] = true);
            }
        }
        let programs =
            names.into_iter().zip(is_named).filter(|(_, is_named)| *is_named).map(|(name, _)| name).collect();
        Self { programs, has_git, has_words: FAILURES.are_in(output) }
    }

    fn has(&self, name: &str) -> bool {
        self.programs.binary_search(&name).is_ok()
    }
}
