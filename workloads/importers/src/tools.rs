//! What a tool call did to files, by the tool's name, its arguments and its result.
//! Agents call the same few tools by many names. A tool that is not known here is counted and not replayed.

use serde_json::Value;

use super::SeenContent;
use super::edit_result;
use session_traces::PATH_ARGUMENTS;
use shell::file_text::{NumberedLines, WINDOW_HEADER, is_cut, numbered, stated_total};
use shell::path::is_absolute;
use shell::{Platform, Replacement, ShellCommand, ShellStep};
use workloads::trace::{CallError, Op};

/// What a call did. Paths are as the session wrote them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// The kind of the call.
    pub(super) op: Op,
    /// The file or directory.
    pub(super) path: Option<String>,
    /// The first requested line, from 1, and the number of lines.
    pub(super) range: Option<(u64, u64)>,
    /// For a list: whether it covers the tree.
    pub(super) recursive: bool,
    /// The content that the result shows.
    pub(super) seen: SeenContent,
    /// Why the call failed.
    pub(super) err: Option<CallError>,
    /// The shell command, and its language; `None` for that of the system's own shell.
    pub(super) command: Option<(String, Option<Platform>)>,
}

impl Default for Meaning {
    fn default() -> Self {
        Self {
            op: Op::Other,
            path: None,
            range: None,
            recursive: false,
            seen: SeenContent::Nothing,
            err: None,
            command: None,
        }
    }
}

/// Tools with one meaning, without `_`, `-` and capitals.
const READ: &str = "read readfile view viewfile openfile open goto scrollup scrolldown readtextfile fsread cat notebookread getfilecontents filereader \
    readmediafile viewimage readnotebook";
const WRITE: &str =
    "write writefile create createfile writetofile savefile fswrite writetextfile createnewfile filewrite";
const EDIT: &str = "edit editfile strreplace replace replaceinfile searchreplace applydiff multiedit searchandreplace \
    replacestringinfile multireplacestringinfile fileedit editnotebookfile notebookedit";
const INSERT: &str = "insert insertline insertcontent";
const APPEND: &str = "fsappend";
const PATCH: &str = "applypatch patch";
const LIST: &str = "ls list listdirectory listdir listfiles directorytree listdirectorywithsizes readfolder";
const GLOB: &str = "glob find findfile filesearch globtool findfiles globfilesearch";
const SEARCH: &str = "grep greptool grepsearch searchfilecontent search codebasesearch ripgrep searchdir searchfile \
    searchtext searchinfiles findinfiles rg greptext searchcode searchcodebase";
const SHELL: &str = "bash shell runshellcommand execute executecommand execcommand localshell localshellcall terminal \
    runterminalcmd runterminalcommand runinterminal runcommand shellcommand executebash containerexec exec cmd bashtool \
    commandexecution run runcommands terminalcommand sh";
/// Those of them that run a POSIX shell on Windows, too.
const POSIX_SHELL: &str = "bash bashtool executebash sh";
/// That of Cline, which runs several commands beside each other.
const SHELLS: &str = "runcommands";
/// Tools of MCP's file server, and of Cline, that a shell command stands for.
const MOVE: &str = "movefile";
const REMOVE: &str = "delete deletefile removefile";
const MAKE_DIR: &str = "createdirectory";
const STAT: &str = "getfileinfo";
const READ_MANY: &str = "readmultiplefiles readfiles";
const POWERSHELL: &str = "powershell pwsh runpowershell executepwsh";
const PLAN: &str = "updateplan todowrite todoread writetodos updatetodolist todo think finish attemptcompletion exitplanmode \
    enterplanmode askfollowupquestion planmoderespond reportintent managetodolist tasktracker askuser submit \
    requestuserinput updatetodos toolsearch sequentialthinking taskcreate taskupdate tasklist taskget askuserquestion askquestion \
    submitandexit";
/// Tools that wait for a command that is running, feed it, or stop it.
const WAIT: &str = "writestdin readbash writebash stopbash listbash readpowershell writepowershell stoppowershell listpowershell \
    bashoutput killbash killshell taskoutput taskstop commandstatus getterminaloutput readterminal";
const NET: &str = "webfetch websearch googlewebsearch fetch fetchurl browseraction browse urlfetch fetchwebpage webbrowser \
    websearchcall fetchwebcontent";
const AGENT: &str = "task agent skill skills newtask spawnagent delegate subagent usesubagents runsubagent activateskill delegatetoagent";
const EDITOR: &str = "strreplaceeditor strreplacebasededittool texteditor fileeditor editor fileeditortool";

fn lists(all: &str, word: &str) -> bool {
    all.split_ascii_whitespace().any(|listed| listed == word)
}

/// A tool's name without its server, `_`, `-` and capitals: `mcp__files__read_file` is `readfile`.
fn bare(tool: &str) -> String {
    let name = tool.rsplit("__").next().unwrap_or(tool);
    let name = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    let name = name.chars().filter(|c| !"_- ".contains(*c));
    name.flat_map(char::to_lowercase).collect()
}

/// The tool's kind, by its name, or by its name without a server's prefix: `files_read_file`.
fn kind(tool: &str, args: &Value) -> Option<&'static str> {
    let all = [
        READ, WRITE, EDIT, INSERT, APPEND, PATCH, LIST, GLOB, SEARCH, MOVE, REMOVE, MAKE_DIR, STAT, READ_MANY, SHELL,
        POWERSHELL, PLAN, NET, AGENT, EDITOR, WAIT,
    ];
    let named = |name: &str| {
        // MCP's file server finds names with `search_files`, Cline and Roo find text.
        if name == "searchfiles" {
            return Some(if args.get("regex").is_some() { SEARCH } else { GLOB });
        }
        all.into_iter().find(|names| lists(names, name))
    };
    named(&bare(tool)).or_else(|| {
        let (_, rest) = tool.split_once(['_', '-'])?;
        named(&bare(rest))
    })
}

/// The tools of MCP's file server.
const FILE_SERVER: &str = "readfile readtextfile readmediafile readmultiplefiles writefile editfile createdirectory \
    listdirectory listdirectorywithsizes directorytree movefile searchfiles getfileinfo";

/// Whether a tool is one of MCP's file server, and works on a file with an absolute path: other servers have tools of the
/// same names for files elsewhere.
pub(super) fn is_of_file_server(tool: &str, args: &Value) -> bool {
    let named = ["path", "source"].iter().find_map(|name| args.get(name));
    let path = named.or_else(|| args.get("paths")?.get(0)).and_then(Value::as_str);
    tool.starts_with("mcp__") && lists(FILE_SERVER, &bare(tool)) && path.is_some_and(is_absolute)
}

/// Whether a tool is that of MCP's file server which lists the directories in which the server works.
pub(super) fn lists_directories(tool: &str) -> bool {
    bare(tool) == "listalloweddirectories"
}

/// The directories in the result of that tool, one a line.
pub(super) fn allowed_directories(shown: &str) -> impl Iterator<Item = &str> {
    shown.lines().map(str::trim).filter(|line| is_absolute(line))
}

/// The first of these arguments that is a text.
fn text<'a>(args: &'a Value, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| args.get(name)?.as_str())
}

fn number(args: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| {
        let value = args.get(name)?;
        value.as_u64().or_else(|| value.as_str()?.trim().parse().ok()).map(|number: u64| number.min(1 << 50))
    })
}

/// What a call did. `result` is the text that the agent saw, and whether the call failed; `None` if there is none.
pub(super) fn meaning(tool: &str, args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let Some(kind) = kind(tool, args) else {
        return match text(args, &["command", "cmd"]) {
            Some(_) => shell(args, result, None),
            None => Meaning { err: failure(Op::Other, result), ..Meaning::default() },
        };
    };
    match kind {
        READ => match operations(args) {
            Some(operations) => read_operations(operations, result),
            None => read(bare(tool).as_str(), args, result),
        },
        // Kiro's tool makes and changes files.
        WRITE if text(args, &["command"]).is_some() => editor(args, result),
        WRITE => write(args, result),
        INSERT => insert(args, result),
        EDIT => edit(args, result),
        PATCH => patch(args, result),
        LIST => list(args, result, is_recursive(tool, args)),
        GLOB => list(args, result, true),
        SEARCH => search(args, result),
        SHELL if lists(SHELLS, &bare(tool)) => shells(args, result),
        SHELL => shell(args, result, lists(POSIX_SHELL, &bare(tool)).then_some(Platform::Posix)),
        POWERSHELL => shell(args, result, Some(Platform::PowerShell)),
        APPEND => append(args, result),
        READ_MANY => read_files(tool, args, result),
        MOVE | REMOVE | MAKE_DIR | STAT => as_command(kind, args, result),
        EDITOR => editor(args, result),
        PLAN => plain(Op::Plan, result),
        NET => plain(Op::Net, result),
        AGENT => plain(Op::Agent, result),
        _ => plain(Op::Other, result),
    }
}

fn plain(op: Op, result: Option<(&str, bool)>) -> Meaning {
    Meaning { op, err: failure(op, result), ..Meaning::default() }
}

fn is_recursive(tool: &str, args: &Value) -> bool {
    bare(tool) == "directorytree"
        || ["recursive", "is_recursive"]
            .iter()
            .filter_map(|name| args.get(name))
            .any(|value| value.as_bool() == Some(true) || value.as_str() == Some("true"))
}

/// The editor with commands of the Anthropic API, which OpenHands and others have, too.
fn editor(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    match text(args, &["command"]) {
        Some("view") => {
            let shown = result.map_or("", |(shown, _)| shown);
            let head: String = shown.chars().take(200).collect();
            if head.contains("files and directories up to") {
                list(args, result, true)
            } else {
                read("view", args, result)
            }
        }
        Some("create") => write(args, result),
        Some("insert") => insert(args, result),
        Some("str_replace" | "strReplace" | "undo_edit") => edit(args, result),
        Some("append") => append(args, result),
        None => edit_without_command(args, result),
        _ => plain(Op::Other, result),
    }
}

/// Cline's editor inserts before a line if one is given. It replaces a text otherwise, and creates a file that is not there.
fn edit_without_command(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let (Some(path), Some(new)) = (text(args, &PATH_ARGUMENTS), text(args, &NEW)) else {
        return plain(Op::Other, result);
    };
    let path = path.to_owned();
    if result.is_some_and(|(shown, failed)| !failed && shown.starts_with("File created successfully")) {
        let seen = SeenContent::Written { path: path.clone(), before: None, content: new.to_owned() };
        return Meaning { op: Op::Write, path: Some(path), seen, ..Meaning::default() };
    }
    let Some(line) = number(args, &["insert_line"]) else {
        return edit(args, result);
    };
    let err = failure(Op::Edit, result);
    let seen = match (result, line.checked_sub(1)) {
        (Some((shown, _)), Some(after)) if err.is_none() => {
            let hunks = vec![edit_result::insertion(shown, after, new, false)];
            SeenContent::Edited { path: path.clone(), before: None, replacements: Vec::new(), hunks }
        }
        _ => SeenContent::Nothing,
    };
    Meaning { op: Op::Edit, path: Some(path), seen, err, ..Meaning::default() }
}

/// The reads of one call: of MCP's file server and of Kiro, whole files, and of Cline, files or lines of them.
fn read_files(tool: &str, args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let given = ["files", "file_paths", "paths"].iter().find_map(|name| args.get(*name)).unwrap_or(args);
    let files = match given {
        Value::Array(files) => files.as_slice(),
        file => std::slice::from_ref(file),
    };
    let as_args = |file: &Value| match file {
        Value::String(path) => serde_json::json!({ "path": path }),
        file => file.clone(),
    };
    let files: Vec<Value> = files.iter().map(as_args).collect();
    // MCP's file server writes the path above a file.
    if let ([only], "readfiles") = (&files[..], bare(tool).as_str()) {
        return read("readfiles", only, result);
    }
    let shown = result.map_or("", |(shown, _)| shown);
    let failed = shown.lines().filter_map(|line| Some(line.split_once(": Error")?.0.trim()));
    let failed: Vec<&str> = failed.collect();
    let is_of = |path: &str, said: &str| {
        said.strip_prefix(path).is_some_and(|part| matches!(part.chars().next(), None | Some(':')))
    };
    let files = files.iter().filter_map(|file| Some((text(file, &PATH_ARGUMENTS)?, range(file))));
    let files: Vec<_> = files.filter(|(path, _)| !failed.iter().any(|said| is_of(path, said))).collect();
    let is_whole = files.iter().all(|(_, range)| range.is_none());
    let lines: Vec<String> = if is_whole && !files.is_empty() {
        let words: Vec<String> = files.iter().map(|(path, _)| quoted(path)).collect();
        vec![format!("cat -- {}", words.join(" "))]
    } else {
        let each = files.iter().map(|(path, range)| match range {
            None => format!("cat {}", quoted(path)),
            Some((first, count)) => {
                format!("sed -n {first},{}p {}", (first + count).saturating_sub(1), quoted(path))
            }
        });
        each.collect()
    };
    script(lines, result)
}

/// The shell commands that do the same as a call.
fn script(lines: Vec<String>, result: Option<(&str, bool)>) -> Meaning {
    if lines.is_empty() {
        return plain(Op::Other, result);
    }
    Meaning {
        op: Op::Exec,
        err: failure(Op::Exec, result),
        command: Some((lines.join(" && "), Some(Platform::Posix))),
        ..Meaning::default()
    }
}

fn read(tool: &str, args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let (path, part) = match text(args, &PATH_ARGUMENTS) {
        Some(path) => {
            let (path, part) = part_of_path(path);
            (Some(path.to_owned()), part)
        }
        None => (None, None),
    };
    let range = range(args).or(part);
    let err = failure(Op::Read, result);
    if let (Some(path), Some((shown, _)), None) = (&path, result, err)
        && let Some(files) = files_of_directory(shown, path)
    {
        let seen = SeenContent::Listed(files);
        return Meaning { op: Op::List, path: Some(path.clone()), seen, ..Meaning::default() };
    }
    let (seen, stated) = match (&path, result) {
        (Some(path), Some((shown, _))) if err.is_none() => shown_file(tool, path, shown, range),
        _ => (SeenContent::Nothing, None),
    };
    // Agents count the first line from 0 or from 1: the numbers before the lines are certain.
    let asked = range.map_or(1, |(first, _)| first);
    let range = stated.filter(|(first, _)| *first != asked).or(range);
    Meaning { op: Op::Read, path, range, seen, err, ..Meaning::default() }
}

/// The operations that Kiro CLI's tool is given.
fn operations(args: &Value) -> Option<&Vec<Value>> {
    args.get("operations")?.as_array().filter(|operations| !operations.is_empty())
}

/// Reads of Kiro CLI's tool. The results of several follow each other without a mark.
fn read_operations(operations: &[Value], result: Option<(&str, bool)>) -> Meaning {
    let mode = |operation: &Value| text(operation, &["mode"]).unwrap_or("Line").to_owned();
    match operations {
        [only] => match mode(only).as_str() {
            "Line" => {
                let mut args = only.clone();
                // -1 is the last line, and this is the default.
                if only["end_line"].as_i64() == Some(-1)
                    && let Some(args) = args.as_object_mut()
                {
                    args.remove("end_line");
                    if only["start_line"].as_i64() == Some(1) {
                        args.remove("start_line");
                    }
                }
                read("fsread", &args, result)
            }
            "Directory" => list(only, result, false),
            "Search" => search(only, result),
            _ => Meaning { path: text(only, &PATH_ARGUMENTS).map(str::to_owned), ..plain(Op::Read, result) },
        },
        many if many.iter().all(|one| mode(one) == "Line") => {
            let paths: Vec<&str> = many.iter().filter_map(|one| text(one, &PATH_ARGUMENTS)).collect();
            read_files("fsread", &serde_json::json!({ "paths": paths }), result)
        }
        _ => plain(Op::Read, result),
    }
}

/// Lines at the end of a file, as a command.
fn append(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let added = text(args, &["new_str", "newStr", "content", "text"]);
    let (Some(path), Some(added)) = (text(args, &PATH_ARGUMENTS), added) else {
        return plain(Op::Edit, result);
    };
    let added = added.trim_end_matches('\n');
    let line = format!("cat >> {} <<'END_OF_TEXT'\n{added}\nEND_OF_TEXT", quoted(path));
    Meaning {
        op: Op::Exec,
        err: failure(Op::Edit, result),
        command: Some((line, Some(Platform::Posix))),
        ..Meaning::default()
    }
}

/// The files of a directory, if OpenCode's `read` was given one: it lists the entries, with `/` after each directory.
fn files_of_directory(shown: &str, dir: &str) -> Option<Vec<String>> {
    if !shown.lines().take(3).any(|line| line == "<type>directory</type>") {
        return None;
    }
    let (_, entries) = shown.split_once("<entries>\n")?;
    let (entries, _) = entries.split_once("\n</entries>").unwrap_or((entries, ""));
    // The list ends with its length, after an empty line: `(3 entries)`.
    let names = entries.lines().take_while(|line| !line.is_empty());
    let files = names.filter(|name| !name.ends_with('/'));
    Some(files.map(|name| format!("{}/{name}", dir.trim_end_matches('/'))).collect())
}

/// The lines that a read without an end shows.
const REST: u64 = 2000;

/// The requested lines.
pub(super) fn range(args: &Value) -> Option<(u64, u64)> {
    if let Some(view) = args.get("view_range").and_then(Value::as_array) {
        let first = view.first()?.as_u64()?.max(1);
        let last = view.get(1).and_then(Value::as_i64).unwrap_or(-1);
        let last = u64::try_from(last).ok();
        return Some((first, last.map_or(REST, |last| (last + 1).saturating_sub(first))));
    }
    let first = ["start_line", "startLine", "line_start", "start_line_one_indexed", "StartLine"];
    let last = ["end_line", "endLine", "line_end", "end_line_one_indexed_inclusive", "EndLine"];
    let (first, last) = (number(args, &first), number(args, &last));
    if first.is_some() || last.is_some() {
        let first = first.unwrap_or(1).max(1);
        return Some((first, last.map_or(REST, |last| (last + 1).saturating_sub(first))));
    }
    if let Some(head) = number(args, &["head"]) {
        return Some((1, head));
    }
    let offset = number(args, &["offset"]);
    let limit = number(args, &["limit"]);
    (offset.is_some() || limit.is_some()).then(|| (offset.unwrap_or(1).max(1), limit.unwrap_or(REST)))
}

/// A path without the part that forks of Pi name behind it, `:175-360`, `:175` or `:raw`; and the first line and the number of lines.
fn part_of_path(path: &str) -> (&str, Option<(u64, u64)>) {
    let Some((file, part)) = path.rsplit_once(':') else {
        return (path, None);
    };
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let (first, last) = match part.split_once('-') {
        Some((first, last)) => (number(first), number(last)),
        None => (number(part), number(part).map(|first| first + REST - 1)),
    };
    match first.zip(last) {
        _ if part == "raw" => (file, None),
        Some((first, last)) if 0 < first && first <= last => (file, Some((first, last - first + 1))),
        _ => (path, None),
    }
}

fn newlines(text: &str) -> u64 {
    text.matches('\n').count() as u64
}

/// SWE-agent's tools that show a window of a file below a header with its number of newlines.
const WINDOWS: &[&str] = &["open", "goto", "scrollup", "scrolldown"];

/// The content that the result of a read shows, with or without numbers before the lines; and of a part with numbers, the
/// first line and their count.
fn shown_file(tool: &str, path: &str, shown: &str, range: Option<(u64, u64)>) -> (SeenContent, Option<(u64, u64)>) {
    // `1. x` can be a line of a file, too, unless the tool always writes numbers.
    let writes_numbers = tool == "view"
        || WINDOWS.contains(&tool)
        || ["<file>", "<content>", "[File: "].iter().any(|frame| shown.contains(frame));
    let numbered = numbered(shown).filter(|found| found.is_certain || writes_numbers);
    if numbered.is_none()
        && let Some((content, total_lines)) = part_above_note(shown, range.map_or(1, |(first, _)| first))
    {
        return (SeenContent::Part { path: path.to_owned(), content: content.to_owned(), total_lines }, None);
    }
    if shown.is_empty() || is_cut(shown) && numbered.is_none() {
        return (SeenContent::Nothing, None);
    }
    let path = path.to_owned();
    let Some(NumberedLines { first, lines, .. }) = numbered else {
        // Without numbers, only a whole file can be recognised.
        let seen = match range {
            None => SeenContent::Whole { path, content: shown.to_owned() },
            Some(_) => SeenContent::Part {
                path,
                content: shown.trim_end_matches('\n').to_owned(),
                total_lines: stated_total(shown).unwrap_or(newlines(shown) + 1),
            },
        };
        return (seen, None);
    };
    let last = first + lines.len() as u64 - 1;
    let total = stated_total(shown);
    let reaches_end = total.is_none_or(|total| last >= total);
    let counts_newlines = WINDOWS.contains(&tool) && shown.contains(WINDOW_HEADER);
    let is_whole = first == 1 && range.is_none() && reaches_end && !is_cut(shown);
    let mut content = lines.join("\n");
    if is_whole {
        // A last line without text stands for the newline at the end, unless the tool counts newlines.
        if counts_newlines || !content.is_empty() && !content.ends_with('\n') {
            content.push('\n');
        }
        return (SeenContent::Whole { path, content }, None);
    }
    let total_lines = total.unwrap_or(last).max(last) + u64::from(counts_newlines);
    (SeenContent::Part { path, content, total_lines }, Some((first, lines.len() as u64)))
}

/// Lines of a file without numbers above Pi's note of those that follow, and the number of all lines:
/// `[3 more lines in file. Use offset=9 to continue.]`. The note is certain if it names the line behind the shown ones.
fn part_above_note(shown: &str, first: u64) -> Option<(&str, u64)> {
    let (part, note) = shown.trim_end().rsplit_once("\n\n")?;
    let next = first.checked_add(newlines(part))?.checked_add(1)?;
    let (said, _) = note.split_once(&format!(" Use offset={next} to continue"))?;
    let words: Vec<&str> = said.split([' ', '[', '(']).collect();
    let total = words.windows(2).find_map(|two| match two {
        [count, "more"] => (next - 1).checked_add(count.parse().ok()?),
        ["of", total] => total.trim_end_matches('.').parse().ok(),
        _ => None,
    })?;
    Some((part, total))
}

fn write(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let path = text(args, &PATH_ARGUMENTS).map(str::to_owned);
    let content = text(args, &["content", "file_text", "contents", "text", "fileText", "code_edit", "data"]);
    let err = failure(Op::Write, result);
    let seen = match (&path, content) {
        (Some(path), Some(content)) if err.is_none() && result.is_some() => {
            SeenContent::Written { path: path.clone(), before: None, content: content.to_owned() }
        }
        _ => SeenContent::Nothing,
    };
    Meaning { op: Op::Write, path, seen, err, ..Meaning::default() }
}

fn edit(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let path = text(args, &PATH_ARGUMENTS).map(str::to_owned);
    let err = failure(Op::Edit, result);
    // MCP's file server shows what an edit would change.
    if ["dryRun", "dry_run"].iter().any(|name| args.get(*name).is_some_and(|value| value == true)) {
        return Meaning { op: Op::Read, path, err, ..Meaning::default() };
    }
    let replacements = replacements(args);
    // Replacing nothing by a text creates the file.
    if let ([only], Some(path)) = (&replacements[..], &path)
        && only.old.is_empty()
        && err.is_none()
        && result.is_some()
    {
        return Meaning {
            op: Op::Write,
            path: Some(path.clone()),
            seen: SeenContent::Written { path: path.clone(), before: None, content: only.new.clone() },
            ..Meaning::default()
        };
    }
    let seen = match (&path, result) {
        (Some(path), Some((shown, _))) if err.is_none() && !replacements.is_empty() => {
            let hunks = edit_result::hunks(shown, &replacements);
            SeenContent::Edited { path: path.clone(), before: None, replacements, hunks }
        }
        _ => SeenContent::Nothing,
    };
    Meaning { op: Op::Edit, path, seen, err, ..Meaning::default() }
}

/// An insertion by the number of the line before it, or, as Roo does, of the line after it.
fn insert(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let after = number(args, &["insert_line", "insertLine"]);
    let after = after.or_else(|| number(args, &["line", "line_number"])?.checked_sub(1));
    let lines = text(args, &["insert_text", "insertText"]);
    let inserted = lines.or_else(|| text(args, &["new_str", "content", "text"]));
    let mut meaning = edit(args, result);
    if let (Some(after), Some(inserted), Some((shown, _))) = (after, inserted, result)
        && let (Op::Edit, None, Some(path)) = (meaning.op, meaning.err, &meaning.path)
    {
        let hunk = edit_result::insertion(shown, after, inserted, lines.is_some());
        let (path, replacements) = (path.clone(), Vec::new());
        meaning.seen = SeenContent::Edited { path, before: None, replacements, hunks: vec![hunk] };
    }
    meaning
}

const OLD: [&str; 7] = ["old_string", "oldString", "old_str", "oldStr", "oldText", "old_text", "search"];
const NEW: [&str; 7] = ["new_string", "newString", "new_str", "newStr", "newText", "new_text", "replace"];

/// The replacements of an edit, in turn.
fn replacements(args: &Value) -> Vec<Replacement> {
    let one = |edit: &Value| {
        let old = text(edit, &OLD)?;
        let all = ["replace_all", "replaceAll", "allow_multiple"].iter();
        let all = all.filter_map(|name| edit.get(name)).any(|all| all.as_bool() == Some(true));
        let new = text(edit, &NEW).unwrap_or_default();
        Some(Replacement {
            old: old.to_owned(),
            new: new.to_owned(),
            all: all || number(edit, &["expected_replacements"]).is_some_and(|count| count > 1),
        })
    };
    for list in ["edits", "replacements", "operations"] {
        if let Some(edits) = args.get(list).and_then(Value::as_array) {
            return edits.iter().filter_map(one).collect();
        }
    }
    if let Some(edit) = one(args) {
        return vec![edit];
    }
    let diff = text(args, &["diff", "content"]).unwrap_or_default();
    search_blocks(diff)
}

/// The blocks of Cline's and Roo's diffs: `<<<<<<< SEARCH`, `=======`, `>>>>>>> REPLACE`.
pub(super) fn search_blocks(diff: &str) -> Vec<Replacement> {
    let mut all = Vec::new();
    let mut old: Option<Vec<&str>> = None;
    let mut new: Option<Vec<&str>> = None;
    let is_marker = |line: &str, mark: char| line.len() >= 3 && line.starts_with(&mark.to_string().repeat(3));
    let joined = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    for line in diff.lines() {
        match (&mut old, &mut new) {
            (None, _) if (is_marker(line, '<') || is_marker(line, '-')) && line.contains("SEARCH") => {
                old = Some(Vec::new());
            }
            (Some(_), None) if is_marker(line, '=') => new = Some(Vec::new()),
            (Some(lines), None) => {
                // Roo states the place of a block.
                let is_place = lines.is_empty() && line.starts_with(":start_line:")
                    || lines.is_empty() && line.starts_with(":end_line:");
                if !(is_place || lines.is_empty() && line == "-------") {
                    lines.push(line);
                }
            }
            (Some(_), Some(lines)) => {
                let ends = (is_marker(line, '>') || is_marker(line, '+')) && line.contains("REPLACE");
                if ends {
                    if let (Some(old), Some(new)) = (old.take(), new.take()) {
                        all.push(Replacement { old: joined(old), new: joined(new), all: false });
                    }
                } else {
                    lines.push(line);
                }
            }
            (None, _) => {}
        }
    }
    all
}

/// A patch of several files is a shell command of the same name.
fn patch(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let patch = text(args, &["input", "patch", "patchText", "patch_text", "diff"]);
    let Some(patch) = patch.or_else(|| args.as_str()) else {
        return plain(Op::Edit, result);
    };
    Meaning {
        op: Op::Exec,
        err: failure(Op::Edit, result),
        command: Some((patch_command(patch), Some(Platform::Posix))),
        ..Meaning::default()
    }
}

/// The shell command that applies a patch.
fn patch_command(patch: &str) -> String {
    let patch = patch.trim_end_matches('\n');
    format!("apply_patch <<'END_OF_PATCH'\n{patch}\nEND_OF_PATCH")
}

fn list(args: &Value, result: Option<(&str, bool)>, recursive: bool) -> Meaning {
    let path = text(args, &PATH_ARGUMENTS).map_or(".", |path| if path.is_empty() { "." } else { path });
    let err = failure(Op::List, result);
    let seen = match result {
        Some((shown, _)) if err.is_none() && recursive => SeenContent::Listed(listed(shown, path)),
        _ => SeenContent::Nothing,
    };
    Meaning { op: Op::List, path: Some(path.to_owned()), recursive, seen, err, ..Meaning::default() }
}

/// The files that a list of paths names, one a line.
fn listed(shown: &str, dir: &str) -> Vec<String> {
    let is_file = |line: &&str| {
        let name = line.rsplit(['/', '\\']).next().unwrap_or_default();
        let has_extension = name.rsplit_once('.').is_some_and(|(_, end)| !end.is_empty());
        has_extension && !line.contains([' ', ':', '<', '"', '(']) && line.len() < 400
    };
    let lines = shown.lines().map(|line| line.trim().trim_start_matches("./"));
    let files = lines.filter(is_file).take(2000);
    files
        .map(|file| match file.starts_with('/') || dir == "." {
            true => file.to_owned(),
            false if file.starts_with(dir.trim_start_matches("./")) => file.to_owned(),
            false => format!("{}/{file}", dir.trim_end_matches('/')),
        })
        .collect()
}

fn search(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let path = text(args, &PATH_ARGUMENTS).map_or(".", |path| if path.is_empty() { "." } else { path });
    let err = failure(Op::Search, result);
    let seen = match result {
        Some((shown, _)) if err.is_none() => {
            // OpenCode writes a file's path above the lines that it found there.
            let mut lines = shown.lines().peekable();
            let mut files = Vec::new();
            while let Some(line) = lines.next() {
                let is_above = lines.peek().is_some_and(|next| next.starts_with("  Line "));
                let above = line.strip_suffix(':').filter(|path| is_above && is_absolute(path));
                files.extend(above.or_else(|| found_file(line)).map(str::to_owned));
            }
            files.dedup();
            SeenContent::Listed(files)
        }
        _ => SeenContent::Nothing,
    };
    Meaning { op: Op::Search, path: Some(path.to_owned()), seen, err, ..Meaning::default() }
}

/// The file in a line of a search: `path:12:text`, or the path alone.
fn found_file(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let is_path = |path: &str| {
        !path.is_empty()
            && path.len() < 400
            && !path.contains(char::is_whitespace)
            && path.rsplit('/').next().is_some_and(|name| name.contains('.'))
    };
    match line.split_once(':') {
        Some((path, rest)) if is_path(path) => {
            let number = rest.split_once([':', '-']).map_or(rest, |(number, _)| number);
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            is_number.then_some(path)
        }
        None if is_path(line) && line.contains('/') => Some(line),
        _ => None,
    }
}

fn shell(args: &Value, result: Option<(&str, bool)>, platform: Option<Platform>) -> Meaning {
    let (line, platform) = match command_line(args) {
        Some((line, own)) => (Some(line), platform.or(own)),
        None => (None, None),
    };
    let op = match &line {
        Some(line) => super::shell_op(line),
        None => Op::Exec,
    };
    Meaning { op, err: failure(Op::Exec, result), command: line.map(|line| (line, platform)), ..Meaning::default() }
}

/// The line that a shell tool is given: a text, or words such as `["bash", "-lc", "ls"]`, which are a POSIX command.
fn command_line(args: &Value) -> Option<(String, Option<Platform>)> {
    let names = ["command", "cmd", "commands", "script", "CommandLine", "code"];
    let given = names.iter().find_map(|name| args.get(name)).unwrap_or(args);
    match given {
        Value::String(line) => Some((line.clone(), None)),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let line = match words[..] {
                [] => return None,
                [shell, flag, line] if is_shell(shell) && flag.starts_with('-') && flag.ends_with('c') => {
                    line.to_owned()
                }
                _ if let Some((line, platform)) = windows_line(&words) => return Some((line, Some(platform))),
                _ => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            };
            Some((line, Some(Platform::Posix)))
        }
        _ => None,
    }
}

/// The line that a shell of Windows is given: `["powershell.exe", "-NoProfile", "-Command", "ls"]`.
fn windows_line(words: &[&str]) -> Option<(String, Platform)> {
    let (program, rest) = words.split_first()?;
    let name = program.rsplit(['/', '\\']).next()?.to_lowercase();
    let (platform, begins, options) = match name.strip_suffix(".exe").unwrap_or(&name) {
        "powershell" | "pwsh" => (Platform::PowerShell, "-command -c", "-noprofile -nologo -noninteractive -nop -noni"),
        "cmd" => (Platform::Cmd, "/c", "/d /s /q"),
        _ => return None,
    };
    let mut rest = rest.iter();
    loop {
        let option = rest.next()?.to_lowercase();
        if lists(begins, &option) {
            break;
        }
        if platform == Platform::PowerShell && lists("-executionpolicy -ep", &option) {
            rest.next()?;
        } else if !lists(options, &option) {
            return None;
        }
    }
    let line = rest.copied().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some((line, platform))
}

/// The shell command that does the same as a tool of MCP's file server.
fn as_command(kind: &str, args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let path = text(args, &PATH_ARGUMENTS);
    let (program, paths) = match kind {
        MOVE => ("mv", [text(args, &["source"]), text(args, &["destination"])].into_iter().collect()),
        REMOVE => ("rm", path.map(|path| vec![path])),
        MAKE_DIR => ("mkdir -p", path.map(|path| vec![path])),
        _ => ("stat", path.map(|path| vec![path])),
    };
    let words = paths.map(|paths: Vec<&str>| paths.into_iter().map(quoted).collect::<Vec<_>>());
    let line = words.map(|words| format!("{program} -- {}", words.join(" ")));
    script(line.into_iter().collect(), result)
}

/// Cline's commands run beside each other, each in a shell of its own. Several are one script if none can change what another one
/// sees.
fn shells(args: &Value, result: Option<(&str, bool)>) -> Meaning {
    let given = ["commands", "command", "cmd"].iter().find_map(|name| args.get(*name)).unwrap_or(args);
    let all = match given {
        Value::Array(all) if args.get("args").is_none() => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    let line = |command: &Value| match command {
        Value::String(line) => Some(line.clone()),
        program => {
            let words = program.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let words = std::iter::once(text(program, &["command"])?).chain(words);
            Some(words.map(quoted).collect::<Vec<_>>().join(" "))
        }
    };
    let lines: Option<Vec<String>> = all.iter().map(line).collect();
    let is_alone = |line: &String| {
        let command = ShellCommand { line: line.clone(), ..ShellCommand::default() };
        let work = shell::operations(&command, "", true);
        work.steps.iter().all(ShellStep::only_reads) && work.dirs.is_empty() && !line.contains(['\n', '#'])
    };
    match lines.as_deref() {
        Some([line]) => shell(&serde_json::json!({ "command": line }), result, None),
        Some(lines) if lines.iter().all(is_alone) => {
            shell(&serde_json::json!({ "command": lines.join(" && ") }), result, None)
        }
        _ => shell(&Value::Null, result, None),
    }
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "bash" | "sh" | "zsh" | "dash")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether a result says by itself that the call failed: formats of messages do not say so elsewhere. A tool that changes files
/// answers in words of its own. What a read shows may be the file, unless it is one line that names the system's error.
fn states_failure(op: Op, shown: &str) -> bool {
    let shown = shown.trim_start();
    let first: String = shown.lines().next().unwrap_or_default().chars().take(600).collect();
    let first = first.to_lowercase();
    let starts = |words: &[&str]| words.iter().any(|word| first.starts_with(word));
    let is_error = starts(&["error:", "[error]", "<error>", "tool error:"]) || first == "error";
    match op {
        Op::Write | Op::Edit => {
            is_error
                || starts(&["error executing ", "error editing ", "error writing ", "error applying ", "failed to "])
                || starts(&[
                    "no replacement was performed",
                    "no change was made",
                    "file already exists at:",
                    "invalid `",
                ])
        }
        Op::Read | Op::List | Op::Search => {
            const SAID: [&str; 8] = [
                "enoent",
                "eacces",
                "eisdir",
                "enotdir",
                "eperm",
                "no such file",
                "permission denied",
                "does not exist",
            ];
            let says = SAID.iter().any(|word| first.contains(word));
            is_error && says && shown.trim_end().lines().nth(1).is_none()
        }
        _ => false,
    }
}

/// Why a call failed, by what the agent saw.
fn failure(op: Op, result: Option<(&str, bool)>) -> Option<CallError> {
    let (shown, failed) = result?;
    if !failed && !states_failure(op, shown) {
        return None;
    }
    let says = |words: &[&str]| {
        let start: String = shown.chars().take(600).collect();
        let start = start.to_lowercase();
        words.iter().any(|word| start.contains(word))
    };
    if says(&["rejected", "denied by", "user doesn't want", "declined", "are blocked while"]) {
        return Some(CallError::Rejected);
    }
    if op == Op::Exec {
        return Some(CallError::Exit);
    }
    if says(&[
        "not found in file",
        "text not found in",
        "no match",
        "could not find",
        "0 occurrences",
        "did not appear verbatim",
        "failed to edit, could not",
    ]) && op == Op::Edit
    {
        return Some(CallError::NoMatch);
    }
    if says(&["multiple", "not unique", "more than once"]) && op == Op::Edit {
        return Some(CallError::MultiMatch);
    }
    if says(&["no such file", "does not exist", "not found", "enoent", "cannot find"]) {
        return Some(CallError::NotFound);
    }
    Some(CallError::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(tool: &str, args: Value, shown: &str) -> Meaning {
        meaning(tool, &args, Some((shown, false)))
    }

    #[test]
    fn tools_of_many_agents_are_the_same_few_operations() {
        for (tool, args, op, path) in [
            ("Read", json!({"file_path": "/w/a"}), Op::Read, "/w/a"),
            ("read_file", json!({"absolute_path": "/w/a"}), Op::Read, "/w/a"),
            ("write_to_file", json!({"absolutePath": "/w/a", "content": "x"}), Op::Write, "/w/a"),
            ("mcp__files__read_text_file", json!({"path": "a"}), Op::Read, "a"),
            ("files_read_file", json!({"path": "a"}), Op::Read, "a"),
            ("functions.view", json!({"path": "a"}), Op::Read, "a"),
            ("write_to_file", json!({"path": "a", "content": "x"}), Op::Write, "a"),
            ("replace", json!({"file_path": "a", "old_string": "x", "new_string": "y"}), Op::Edit, "a"),
            ("list_directory", json!({"path": "d"}), Op::List, "d"),
            ("glob", json!({"pattern": "*"}), Op::List, "."),
            ("search_files", json!({"path": "d", "regex": "x"}), Op::Search, "d"),
            ("search_files", json!({"path": "d", "pattern": "x"}), Op::List, "d"),
            ("str_replace_editor", json!({"command": "view", "path": "a"}), Op::Read, "a"),
            ("str_replace_editor", json!({"command": "create", "path": "a", "file_text": ""}), Op::Write, "a"),
        ] {
            let found = of(tool, args, "ok");
            assert_eq!((found.op, found.path.as_deref()), (op, Some(path)), "{tool}");
        }
        for (tool, op) in
            [("update_plan", Op::Plan), ("web_fetch", Op::Net), ("task", Op::Agent), ("deploy", Op::Other)]
        {
            assert_eq!(of(tool, json!({}), "ok").op, op, "{tool}");
        }
    }

    #[test]
    fn a_shell_tool_holds_its_line_however_it_is_written() {
        for (args, line, platform) in [
            (json!({"command": "ls -l"}), "ls -l", None),
            (json!({"cmd": "ls"}), "ls", None),
            (json!({"command": ["bash", "-lc", "ls | wc"]}), "ls | wc", Some(Platform::Posix)),
            (json!({"command": ["cat", "a b"]}), "cat 'a b'", Some(Platform::Posix)),
            (
                json!({"command": ["powershell.exe", "-NoProfile", "-ExecutionPolicy", "Bypass", "-Command", "gc 'a b'"]}),
                "gc 'a b'",
                Some(Platform::PowerShell),
            ),
            (json!({"command": [r"C:\pwsh\PWSH.exe", "-c", "ls"]}), "ls", Some(Platform::PowerShell)),
            (json!({"command": ["cmd.exe", "/d", "/C", "type a"]}), "type a", Some(Platform::Cmd)),
            (json!({"command": ["pwsh", "-File", "a.ps1"]}), "pwsh -File a.ps1", Some(Platform::Posix)),
        ] {
            let found = of("shell", args, "");
            assert_eq!(found.command, Some((line.to_owned(), platform)));
        }
        assert_eq!(of("bash", json!({"command": "git log"}), "").op, Op::Vcs);
        let patch = of("apply_patch", json!({"input": "*** Begin Patch\n*** End Patch\n"}), "Done!");
        assert!(patch.command.unwrap().0.starts_with("apply_patch <<"));
    }

    #[test]
    fn the_lines_of_a_read_are_recognised_in_each_agents_numbering() {
        let whole = |content: &str| SeenContent::Whole { path: "a".to_owned(), content: content.to_owned() };
        for shown in [
            "     1\tx\n     2\ty\n",
            "     1→x\n     2→y",
            "<file>\n00001| x\n00002| y\n\n(End of file - total 2 lines)\n</file>",
            "1 | x\n2 | y",
            "[File: /w/a (2 lines total)]\r\n1:x\r\n2:y",
            "Here's the result of running `cat -n` on a:\n     1\tx\n     2\ty\n     3\t\n",
        ] {
            assert_eq!(shown_file("read", "a", shown, None).0, whole("x\ny\n"), "{shown}");
        }
        assert_eq!(shown_file("view", "a", "1. x\n2. y", None).0, whole("x\ny\n"));
        assert_eq!(shown_file("view", "a", "1: x\n2: y", None).0, whole("x\ny\n"));
        let indented = "[File: /w/a (4 lines total)]\n1:if x:\n2:    y\n3:\n4:\n";
        assert_eq!(shown_file("open", "a", indented, None).0, whole("if x:\n    y\n\n\n"));
        // A file can have such lines of its own.
        assert_eq!(shown_file("readfile", "a", "1. x\n2. y", None).0, whole("1. x\n2. y"));
        assert_eq!(shown_file("read", "a", "x\ny", None).0, whole("x\ny"));
        // SWE-agent's header counts newlines.
        let part = SeenContent::Part { path: "a".to_owned(), content: "x\ny".to_owned(), total_lines: 95 };
        let shown = "[File: /w/a (94 lines total)]\n7:x\n8:y\n(86 more lines below)";
        assert_eq!(shown_file("open", "a", shown, Some((7, 2))).0, part);
        let part = SeenContent::Part { path: "a".to_owned(), content: "x\n\ny".to_owned(), total_lines: 20 };
        for note in [
            "[11 more lines in file. Use offset=10 to continue.]",
            "... (11 more lines not shown. Use offset=10 to continue reading)",
            "[Showing lines 7-9 of 20. Use offset=10 to continue.]",
            "[Showing lines 7-9 of 20 (50.0KB limit). Use offset=10 to continue]",
        ] {
            assert_eq!(shown_file("read", "a", &format!("x\n\ny\n\n{note}"), Some((7, 3))).0, part, "{note}");
        }
        // A note of other lines is the file's.
        let other = "x\n\n[11 more lines in file. Use offset=10 to continue.]";
        assert_eq!(shown_file("read", "a", other, Some((7, 3))).0, SeenContent::Nothing);
        let cut = "IMPORTANT: The file content has been truncated.\nx";
        assert_eq!(shown_file("read", "a", cut, None).0, SeenContent::Nothing);
    }

    #[test]
    fn a_result_that_is_certainly_an_error_is_a_failed_call() {
        let path = json!({"path": "a", "content": "x", "old_str": "o", "new_str": "n"});
        for (tool, shown, err) in [
            ("write_file", "Error: EACCES: permission denied, open 'a'", Some(CallError::Other)),
            ("write_file", "Failed to write file: no space left", Some(CallError::Other)),
            ("write_file", "Successfully wrote to a\nError: none", None),
            ("write_file", "errors.txt written", None),
            (
                "edit",
                "No replacement was performed, old_str `o` did not appear verbatim in a.",
                Some(CallError::NoMatch),
            ),
            ("edit", "The file a has been edited.", None),
            ("read_file", "Error: ENOENT: no such file or directory, open 'a'", Some(CallError::NotFound)),
            // These may be what the file holds.
            ("read_file", "Error: ENOENT: no such file or directory\nError: EACCES\n", None),
            ("read_file", "Error: the engine stopped", None),
            ("read_file", "a line about ENOENT: no such file", None),
            ("bash", "Error: ENOENT: no such file or directory", None),
        ] {
            assert_eq!(of(tool, path.clone(), shown).err, err, "{tool}: {shown}");
        }
        let blocked = Some(("Tools that change files are blocked while a plan is made.", true));
        assert_eq!(meaning("bash", &json!({"command": "rm a"}), blocked).err, Some(CallError::Rejected));
    }

    #[test]
    fn edits_are_replacements_however_they_are_written() {
        let diff = "<<<<<<< SEARCH\n:start_line:3\n-------\nold\n=======\nnew\n>>>>>>> REPLACE\n";
        for (args, old, new) in [
            (json!({"path": "a", "old_str": "o", "new_str": "n"}), "o", "n"),
            (json!({"path": "a", "edits": [{"oldText": "o", "newText": "n"}]}), "o", "n"),
            (json!({"path": "a", "diff": diff}), "old\n", "new\n"),
        ] {
            let SeenContent::Edited { replacements, .. } = of("edit", args, "ok").seen else {
                panic!("not an edit");
            };
            let [found] = &replacements[..] else {
                panic!("{replacements:?}");
            };
            assert_eq!((&*found.old, &*found.new, found.all), (old, new, false));
        }
        let created = of("replace", json!({"file_path": "a", "old_string": "", "new_string": "n"}), "ok");
        assert!(matches!(created.seen, SeenContent::Written { .. }), "{created:?}");
        let failed = json!({"path": "a", "old_str": "o", "new_str": "n"});
        let failed = meaning("edit", &failed, Some(("Could not find the string", true)));
        assert_eq!((failed.err, failed.seen), (Some(CallError::NoMatch), SeenContent::Nothing));
    }
}
