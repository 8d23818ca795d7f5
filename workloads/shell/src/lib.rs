//! Shell commands of recorded sessions: parsed, never executed.
//! [`operations`] says what a command did to files, as long as its text and output leave no doubt.

mod cmd;
mod command;
mod control_flow;
mod directory;
pub mod file_text;
mod listing;
mod outcomes;
pub mod patch;
pub mod path;
mod phrases;
mod posix;
mod powershell;
pub mod programs;
mod python;
mod python_tokens;
mod sed;
mod shown;
mod steps;
mod variables;
mod words;

pub use directory::{ShellDirectory, UNKNOWN_DIRECTORY};
use steps::STEPS_MAX;
pub use steps::{
    AddedPlace, LineEdit, PatchChunk, Platform, ProgramClass, Replacement, ShellCommand, ShellStep, ShellWork,
    ShownText,
};

/// The file operations of a command that ended with status 0 (`ok`) and printed `output`. The effects of a command on
/// files must be certain from its text and output; otherwise the work says why they are not.
pub fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    let mut work = match command.platform {
        Platform::Posix => posix::operations(command, output, ok),
        Platform::PowerShell => powershell::operations(command, output, ok),
        Platform::Cmd => cmd::operations(command, output, ok),
    };
    if work.steps.len() > STEPS_MAX {
        return ShellWork { dirs: work.dirs, ..ShellWork::uncertain("a command of extreme size") };
    }
    if file_text::is_cut_output(output) {
        // A cut output lists only a part, and may hide that a write failed.
        work.listed.clear();
        work.shown = None;
        if !work.steps.iter().all(ShellStep::only_reads) {
            return ShellWork { dirs: work.dirs, ..ShellWork::uncertain("an output that was cut") };
        }
    }
    work
}

/// The directories to which a command goes, by its text alone.
pub fn directories(command: &ShellCommand) -> Vec<String> {
    if command.platform == Platform::Posix && !posix::may_go(&command.line) {
        Vec::new()
    } else {
        operations(command, "", true).dirs
    }
}

/// The language of a command on Windows whose tool names no shell. In PowerShell, variables begin with `$`.
pub fn windows_platform(line: &str) -> Platform {
    if line.contains('$') || is_powershell(line) { Platform::PowerShell } else { Platform::Cmd }
}

/// Whether a command is certainly one of PowerShell, whose commands are named `Verb-Noun`, and whose assignments begin
/// with `$`.
pub fn is_powershell(line: &str) -> bool {
    let is_name = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let is_verb = |text: &str| is_name(text) && text[1..].starts_with(|second: char| second.is_ascii_lowercase());
    let is_cmdlet = |word: &str| word.split_once('-').is_some_and(|(verb, noun)| is_verb(verb) && is_name(noun));
    let assigns = line.starts_with('$') && line.split_whitespace().nth(1) == Some("=");
    assigns || line.contains("$env:") || line.split(|c: char| c.is_whitespace() || "(|;{".contains(c)).any(is_cmdlet)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn work(platform: Platform, line: &str, output: &str, ok: bool) -> ShellWork {
        let command = ShellCommand { line: line.to_owned(), cwd: "/w".to_owned(), platform };
        operations(&command, output, ok)
    }

    fn posix(line: &str, output: &str) -> ShellWork {
        work(Platform::Posix, line, output, true)
    }

    /// The steps of a command, in short.
    fn steps(work: &ShellWork) -> String {
        let shown = work.steps.iter().map(|step| match step {
            ShellStep::Read(path) => format!("read {path}"),
            ShellStep::Stat(path) => format!("stat {path}"),
            ShellStep::List { path, attributes } => {
                format!("{} {path}", if *attributes { "list-l" } else { "list" })
            }
            ShellStep::Walk(path) => format!("walk {path}"),
            ShellStep::Search(path) => format!("search {path}"),
            ShellStep::Write { path, content } => format!("write {path} {content:?}"),
            ShellStep::Append { path, content } => format!("append {path} {content:?}"),
            ShellStep::Edit { path, replacements } => {
                let texts = replacements.iter().map(|each| format!("{:?}>{:?}", each.old, each.new));
                format!("edit {path} {}", texts.collect::<Vec<_>>().join(","))
            }
            ShellStep::Patch { path, chunks } => {
                let chunks = chunks.iter().map(|chunk| {
                    let anchor = chunk.anchor.iter().map(|anchor| format!("@{anchor} ")).collect::<String>();
                    format!("{anchor}{}>{}", chunk.old.join("|"), chunk.new.join("|"))
                });
                format!("patch {path} {}", chunks.collect::<Vec<_>>().join(","))
            }
            ShellStep::Rewrite(path) => format!("rewrite {path}"),
            ShellStep::EditLines { path, edits } => format!("edit-lines {path} {}", edits.len()),
            ShellStep::RemoveDir(path) => format!("rmdir {path}"),
            ShellStep::Transfer { from, to, is_move, is_into } => {
                let name = if *is_move { "move" } else { "copy" };
                format!("{name}-{} {from} {to}", if *is_into { "into" } else { "as" })
            }
            ShellStep::Copy { from, to } => format!("copy {from} {to}"),
            ShellStep::Move { from, to } => format!("move {from} {to}"),
            ShellStep::Remove { path, force } => {
                format!("{} {path}", if *force { "remove-f" } else { "remove" })
            }
            ShellStep::MakeDir(path) => format!("mkdir {path}"),
            ShellStep::Touch(path) => format!("touch {path}"),
        });
        let mut shown: Vec<String> = shown.collect();
        shown.extend(work.programs.iter().map(|(class, dir)| format!("{class:?} {dir}")));
        shown.join("; ")
    }

    #[test]
    fn certain_effects_of_a_command_become_file_operations() {
        for (line, expected) in [
            ("cat a b/c", "read /w/a; read /w/b/c"),
            ("head -n 20 a | tail -5", "read /w/a"),
            ("tail -n5 'a b.txt'", "read /w/a b.txt"),
            ("sed -n '1,20p' a", "read /w/a"),
            ("nl -ba a | sed -n '1,5p'", "read /w/a"),
            ("wc -l < a", "read /w/a"),
            ("tail +2 a", "read /w/a"),
            ("awk '$1 > 5 || /x/ { print ($2 > 3), \">|\" } END { print n; if (n > 1) exit }' a", "read /w/a"),
            ("ls", "list /w"),
            ("ls -la src 2>/dev/null", "list-l /w/src"),
            ("ls -R .", "walk /w/."),
            ("find . -name '*.rs' | head -3", "walk /w/."),
            ("grep -rn 'a b' src | wc -l", "search /w/src"),
            ("grep -n -A 3 x a", "read /w/a"),
            ("rg -n x", "search /w"),
            ("rg --files src", "search /w/src"),
            ("cp -r a b", "copy /w/a /w/b"),
            ("mv a b c/", "move-into /w/a /w/c/; move-into /w/b /w/c/"),
            ("rm -rf a && mkdir -p a/b", "remove-f /w/a; mkdir /w/a/b"),
            ("rm a", "remove /w/a"),
            ("touch a", "touch /w/a"),
            ("echo x > a", "write /w/a \"x\\n\""),
            ("echo -n 'x y' >> a", "append /w/a \"x y\""),
            ("printf 'a\\n%s' b > c", "write /w/c \"a\\nb\""),
            ("echo x | tee -a a", "append /w/a \"x\\n\""),
            ("> a", "write /w/a \"\""),
            ("cat > a << 'EOF'\n$x `y`\n  z\nEOF\nrm b", "write /w/a \"$x `y`\\n  z\\n\"; remove /w/b"),
            ("cat <<-EOF >a\n\tx\n\tEOF", "write /w/a \"x\\n\""),
            ("tee a <<< x", "write /w/a \"x\\n\""),
            ("sed -i 's/a\\.b/c/g' f", "edit /w/f \"a.b\">\"c\""),
            ("sed -i '' -e 's|x|y|g' f", "edit /w/f \"x\">\"y\""),
            ("sed -i 's/a.*b/c/g' f", "rewrite /w/f"),
            ("sed -ri 's/a/b/g' f", "edit /w/f \"a\">\"b\""),
            ("sed -Ei -s --expression='s/a/b/g' f g", "edit /w/f \"a\">\"b\"; edit /w/g \"a\">\"b\""),
            ("sed -i -re 's/a/b/g' -e 's/c/d/g' f", "edit /w/f \"a\">\"b\",\"c\">\"d\""),
            ("sed -zi 's/a/b/g' f", "rewrite /w/f"),
            ("sed -n -i 's/a/b/g' f", "rewrite /w/f"),
            ("sed -i \"s/a/$b/g\" f", "rewrite /w/f"),
            ("sed -i 's/x/w/;2d' f", "edit-lines /w/f 2"),
            ("sed -E 's/x/w/' f", "read /w/f"),
            ("cp -r d/. e", "copy-as /w/d/. /w/e"),
            ("cp -rv . e", "copy-as /w/. /w/e"),
            ("cp a b/", "copy-into /w/a /w/b/"),
            ("cat a > b", "copy-as /w/a /w/b"),
            (": > a", "write /w/a \"\""),
            ("printf '%s\\n' a 'b c' > d", "write /w/d \"a\\nb c\\n\""),
            ("printf 'x\\n' > d", "write /w/d \"x\\n\""),
            (r"printf '%s\n' $'a\tb\'c' > d", r#"write /w/d "a\tb'c\n""#),
            ("sed -i '2a\\  x (y)' a && sed -i 's/f(x)/g(x)/' a", "edit-lines /w/a 1; edit-lines /w/a 1"),
            ("rmdir d", "rmdir /w/d"),
            ("rm -rfv -- a", "remove-f /w/a"),
            ("cd sub && cat a", "read /w/sub/a"),
            ("cd /x; cat a", "read /x/a"),
            ("FOO=1 timeout 5 cat a", "read /w/a"),
            ("bash -lc \"cat a && ls b\"", "read /w/a; list /w/b"),
            ("cat a || echo none", "read /w/a"),
            ("git status && git -C /x log", "VersionControl /w; VersionControl /x"),
            (
                "git add a && git commit -m \"$(cat <<'EOF'\nOne (of two).\n\n$x `y`\nEOF\n)\" && cat a",
                "read /w/a; VersionControl /w",
            ),
            ("f=$(cat <<EOF\na\nEOF\n); cat \"sub/$f\"", "read /w/sub/a"),
            ("echo \"$(date -u)\" $(pwd 2>/dev/null); cat a", "read /w/a"),
            ("cargo test 2>&1 | tail -5", "Build /w"),
            ("python3 -m pytest -q", "Build /w"),
            ("python3 -c \"import json; print(json.load(open('a'))['x'])\" && ls", "read /w/a; list /w"),
            (
                "cd d && python - <<'PY'\ns = open('a').read()\nopen('a', 'w').write(s.replace('x', 'y'))\nPY\ncargo test",
                "read /w/d/a; edit /w/d/a \"x\">\"y\"; Build /w/d",
            ),
            ("python3 -m json.tool a | head; cat b | python3 -m json.tool", "read /w/a; read /w/b"),
            ("cat ~/.claude/a", "read ~/.claude/a"),
            ("d=/x/y; f=\"$d/a b\"; wc -l \"$f\"", "read /x/y/a b"),
            ("d=sub && cat ${d}/a", "read /w/sub/a"),
            ("cat a \\\n  b # c", "read /w/a; read /w/b"),
            (
                "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: n\n+x\n*** Update File: u\n@@\n a\n-b\n+c\n*** Delete File: d\n*** End Patch\nEOF",
                "write /w/n \"x\\n\"; patch /w/u a|b>a|c; remove /w/d",
            ),
            (
                "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: u\n@@ f()\n a\n+b\n*** End Patch\nEOF",
                "patch /w/u @f() a>a|b",
            ),
        ] {
            let work = posix(line, "some output");
            assert_eq!(work.uncertain, None, "{line}");
            assert_eq!(steps(&work), expected, "{line}");
        }
    }

    #[test]
    fn a_command_whose_work_is_not_certain_has_no_operation() {
        for line in [
            "cat $FILE",
            "mv --exchange a b",
            "d='a b'; cat $d",
            "d=a; read d; cat $d",
            "d=$HOME; cat \"$d\"",
            "true | d=a; cat $d",
            "d=a; cat '$d'/\"$e\"",
            "cat *.rs",
            "cat \"$(ls)\"",
            "cat $(pwd)/a",
            "cat \"$(cat b)\"",
            "echo $(rm b); cat a",
            "echo $(date > b); cat a",
            "echo $(echo *); cat a",
            "echo $(echo $(date)); cat a",
            "echo $(date; cat a",
            "echo $((1 + 2)); cat a",
            "cat $(cat <<EOF\na b\nEOF\n)",
            "d=$(date); cat $d",
            "cat a || echo \"none at $(date)\"",
            "cat a || echo \"no $x\"",
            "for f in a; do cat $f; done",
            "cat a &",
            "(cat a)",
            "make_it > a",
            "ls > a",
            "python3 x.py",
            "python3 -c \"print(open('$f').read())\"",
            "python3 - <<PY\nprint(open('$f').read())\nPY",
            "python3 -c 'import os; os.remove(\"a\")'",
            "cat a || rm b",
            "find . -delete",
            "find . -exec rm {} +",
            "cat <<EOF > a\n$x\nEOF",
            "cat <<EOF > a\nno end",
            "echo \"$x\" > a",
            "echo 'a\\nb' > a",
            "cat 'a",
            "cat {a,b}",
            "cat",
            "grep x",
            "sort -o b a",
            "chmod +x a",
            "curl x",
            "./run.sh",
            "if true; then cat a; fi",
            "f() { cat a; }",
            "cat <(ls)",
            "sed -i.bak 's/a/b/g' f",
            "sed 's/a/b/w out' f",
            "sed -i -f x f",
            "sed -Ei.bak 's/a/b/g' f",
            "sed -i .bak 's/a/b/g' f",
            "sed -ie 's/a/b/g' f",
            "sed -i -y 's/a/b/g' f",
            "awk -i inplace '{ print }' f",
            "awk -f x f",
            "cp -n a b",
            "cp -nv a b",
            "cp -rfu a b",
            "cp --update=none a b",
            "cp -ri a b",
            "cp -t d a",
            "mv -uv a b",
            "mv -vi a b",
            "mv --no-clobber a b",
            "rm -i a",
            "rm -rI a",
            "rm --interactive a",
            "touch -c a",
            "rmdir -p a/b",
            "sort --output=b a",
            "sort -ro b a",
            "uniq a b",
            "xxd -r a b",
            "fd x -x rm",
            "tree -o b",
            "[[ a < b ]] && cat c",
            "find . -fprint0 b",
            "rg --pre x y",
            "cat a > a",
            "cat a b > c",
            "printf '%d' 1 > a",
            r"printf '%s\n' $'\x41' > a",
            "printf '%s\\n' $\"x\" > a",
            "printf '%s\\n' *.c > a",
            "printf -v x y > a",
            "perl -pi.bak -e 's/a/b/' f",
            "perl -pi -e 'unlink \"b\"' f",
            "awk '{ print $1, f(\"(\") > \"out\" }' a",
            "awk '{ printf \"%s\", $1 | \"sort\" }' a",
            "awk '{ system(\"rm \" $1) }' a",
            "cp a",
            "echo hi",
            "true && sleep 1",
            "",
            "x=1",
            "ls missing 2>/dev/null; cat a 2>/dev/null",
            "apply_patch x",
        ] {
            let output = if line.contains("missing") { "" } else { "x" };
            let work = posix(line, output);
            assert!(work.uncertain.is_some(), "{line}: {}", steps(&work));
            assert!(work.steps.is_empty() && work.programs.is_empty(), "{line}");
        }
        // Only where the status is not that of every command do words tell of a failure.
        let says = "cat: a: No such file or directory";
        for line in ["cat a | head", "cat a; ls", "cat a && ls | wc -l"] {
            assert!(posix(line, says).uncertain.is_some(), "{line}");
        }
        assert_eq!(steps(&posix("cd src && cat a", says)), "read /w/src/a");
        assert!(posix("cat a || echo none", "none").uncertain.is_some());
        assert!(work(Platform::Posix, "cat a", "", false).uncertain.is_some());
        // A cut output hides no read, but may hide that a write failed.
        let cut = "a\n…12 tokens truncated…\nb";
        assert_eq!(steps(&posix("rg -n x src", cut)), "search /w/src");
        assert!(posix("rm a && ls", cut).uncertain.is_some());
        // Failed tests have read the tree. A program that does not exist has not.
        let failed = |line: &str, output: &str| steps(&work(Platform::Posix, line, output, false));
        assert_eq!(failed("cd sub && cargo test 2>&1 | tail", "1 failed"), "Build /w/sub");
        assert_eq!(failed("cargo test", "cargo: command not found"), "");
        assert_eq!(failed("cd sub && make", "sh: 1: cd: can't cd to sub"), "");
        assert_eq!(
            failed("cd sub && make", "cc a\ncc b\ncc c\nsh: 1: cd: can't cd to x\nmake: *** [y]"),
            "Build /w/sub"
        );
        assert_eq!(failed("cd sub && rg x", ""), "search /w/sub");
        assert_eq!(failed("make && cat a", ""), "");
        assert_eq!(posix("git -C ../other log", "x").dirs, ["/w/../other"]);
        // Without a match, grep has read its file all the same.
        assert_eq!(steps(&work(Platform::Posix, "grep x a", "", false)), "read /w/a");
    }

    #[test]
    fn a_command_is_replayed_if_it_has_certainly_run() {
        for (line, output, expected) in [
            // The status of the last list alone is known.
            ("npm test && mv a z; git status", "1 failing", "a command that may not have run"),
            ("make && rm a\ngit status", "", "a command that may not have run"),
            ("[ -f a ] && rm a; ls", "x", "a command that may not have run"),
            ("grep -q x a && echo y >> a; ls", "x", "a command that may not have run"),
            ("diff -q a b && mv a z; ls", "x", "a command that may not have run"),
            (
                "cat a && npm test; git status && mv a z",
                "1 failing",
                "read /w/a; move /w/a /w/z; Build /w; VersionControl /w",
            ),
            ("npm test && git add -A && mv a z", "ok", "move /w/a /w/z; Build /w; VersionControl /w"),
            ("npm test && git status; ls", "x", "a command that may not have run"),
            ("mkdir d && cp a d/ && ls d; cat b", "x", "mkdir /w/d; copy-into /w/a /w/d/; list /w/d; read /w/b"),
            ("mkdir d && cp a d/; ls", "mkdir: d: Datei oder Verzeichnis existiert bereits", "a part that failed"),
            ("cp a b; ls", "cp: a and b are identical (not copied).\nx", "a part that failed"),
            ("cd d && rm a; ls", "bash: line 1: cd: d: Kein solches Verzeichnis", "a part that failed"),
            ("cd d; rm a", "(eval):cd:1: no such file or directory: d", "a part that failed"),
            ("false && cd d; rm a", "", "remove /w/a"),
            ("false && rm a; cat b", "x", "read /w/b"),
            // Agents do not take a search without a match for a failure.
            ("npm test && rm a && grep x b", "1 failing", "a command that may not have run"),
            // The parts of a pipe.
            ("cd d | true; rm a", "", "a directory that is not certain"),
            ("rm a 2>&1 | tail -1", "x", "a command whose success is not known"),
            ("rm a 2>/dev/null; ls", "x", "a command whose success is not known"),
            ("set -o pipefail; rm a 2>&1 | cat", "", "remove /w/a"),
            ("cat a b 2>/dev/null | head", "x", "a part whose errors are hidden"),
            ("cat a 2>/dev/null | head", "x", "read /w/a"),
            ("ls a 2>/dev/null | head; ls", "x", "list /w/a; list /w"),
            // What an `echo` did not say did not run.
            ("npm test && rm a && echo done || echo failed", "1 failing\nfailed", "a part that failed"),
            ("npm test && rm a && echo done || echo failed", "ok\ndone", "remove /w/a; Build /w"),
            ("rm a || true", "", "remove /w/a"),
            // An agent takes words of its own out of the output.
            ("echo END && git add -A && git diff --cached", "x", "VersionControl /w"),
            ("grep -r x src", "grep: src/a: binary file matches", "search /w/src"),
            ("grep -r x src; ls", "grep: src/a: binary file matches", "search /w/src; list /w"),
            ("find src; ls", "find: src: x", "a part that failed"),
            ("rm a 2>/dev/null || true", "x", "a command whose success is not known"),
            ("cat a || echo x > b", "x", "a command for the case of a failure"),
            ("cd d || exit 1; rm a", "", "remove /w/d/a"),
            ("npm test || exit 1; rm a", "", "remove /w/a; Build /w"),
            // A strict shell ends with a failure.
            ("set -e; npm test; rm a; ls", "x", "remove /w/a; list /w; Build /w"),
            ("set -euo pipefail\nnpm test | tail\nrm a", "x", "remove /w/a; Build /w"),
            ("set -e; npm test && rm a; ls", "x", "a command that may not have run"),
            ("bash -ec 'npm test; rm a'; ls", "x", "a command that may not have run"),
            ("bash -ec 'npm test; rm a' && ls", "x", "remove /w/a; list /w; Build /w"),
            ("bash -c 'npm test && rm a'; ls", "x", "a command that may not have run"),
            ("bash -c 'npm test && rm a' && ls", "x", "remove /w/a; list /w; Build /w"),
            (
                "python3 -c 'print(open(\"a\").read())' | head",
                "Traceback (most recent call last):",
                "a part that failed",
            ),
            ("python3 <<A\nopen(\"a\", \"w\").write(\"x\")\nA\nls", "  File \"<stdin>\", line 1", "a part that failed"),
            (
                "python3 -c 'open(\"a\", \"w\").write(\"x\")' 2>&1 | tail -1",
                "x",
                "a command whose success is not known",
            ),
            ("exec cat a; rm b", "x", "a program in place of the shell"),
            ("set -n; rm a", "", "an option of the shell"),
            // A variable has its value if its assignment has run.
            ("npm test && d=x; rm $d/a", "", "a variable in a path"),
            ("cd e && d=x && rm $d/a", "", "remove /w/e/x/a"),
            ("a=1 && d=x; rm $d/a", "", "remove /w/x/a"),
            ("command -v npm && rm a", "x", "remove /w/a"),
            ("env --chdir=d rm a", "", "a program whose work on files is not known"),
            // A virtual environment changes variables, and no file.
            ("source .venv/bin/activate && pytest -q", "2 passed", "read /w/.venv/bin/activate; Build /w"),
            (". env.sh && cat a", "x", "a program whose work on files is not known"),
            ("source .venv/bin/activate && ./deploy", "x", "a program whose work on files is not known"),
            ("pkill -f 'a b'; pgrep c; rm -f d", "", "remove-f /w/d"),
            // A check of the grammar runs nothing.
            ("node --check a.mjs && ruby -c b.rb && bash -n c.sh", "", "read /w/a.mjs; read /w/b.rb; read /w/c.sh"),
            ("node a.mjs", "", "a program whose work on files is not known"),
            // The files that `find` names are read in turn.
            ("find d -name '*.go' | xargs -0 grep -l x", "d/a.go", "walk /w/d; search /w/d"),
            ("find d -newer e | xargs grep x", "d/a", "a program whose work on files is not known"),
            ("find d | head -3 | xargs grep x", "d/a", "a program whose work on files is not known"),
            ("find d | xargs grep x f", "d/a", "a program whose work on files is not known"),
            ("find d | xargs rm", "", "a program whose work on files is not known"),
            ("find d >f; xargs cat <f", "", "an output whose text is unknown"),
            // The output of `wc` names the files of a pattern.
            (
                "cd d && wc -l *.c e",
                "  3 a.c\n 14 b.c\n  1 e\n 18 total\n",
                "read /w/d/a.c; read /w/d/b.c; read /w/d/e",
            ),
            ("wc -l *.c", "3 1.c\n", "read /w/1.c"),
            ("wc -l *.c", "3 a.c\n14 b.c\n", "a pattern of file names"),
            ("wc -l *.c", "3 d/a.c\n", "a pattern of file names"),
            ("wc -l *.c *.h", "3 a.c\n", "a pattern of file names"),
            ("wc -l *.c | head -1", "3 a.c\n", "a pattern of file names"),
            ("wc -l *.c; cat a.c", "3 a.c\n", "a pattern of file names"),
            ("find d; xargs cat", "d/a", "a program whose work on files is not known"),
        ] {
            let work = posix(line, output);
            assert_eq!(work.uncertain.map_or_else(|| steps(&work), str::to_owned), expected, "{line}");
        }
    }

    #[test]
    fn an_output_names_files() {
        let listed = |line: &str, output: &str| {
            let files = posix(line, output).listed.into_iter();
            let files = files.map(|(path, size)| match size {
                Some(size) => format!("{path}={size}"),
                None => path,
            });
            files.collect::<Vec<_>>().join(" ")
        };
        let long = "total 8\n-rw-r--r-- 1 u g 17 Feb  9 09:20 a b.txt\ndrwxr-xr-x@ 4 u g 128 Feb  9 09:38 d\n";
        assert_eq!(listed("ls -la x", long), "/w/x/a b.txt=17");
        let one = "-rw-r--r--@ 1 u g 17 Feb  9 09:20 x/a\n";
        assert_eq!(listed("ls -l x/a", one), "/w/x/a=17");
        assert_eq!(listed("cd /v && find . -type f | head", "./a\n./b/c\n"), "/v/./a /v/./b/c");
        assert_eq!(listed("grep -rn x .", "./a.c:3:x\n./a.c:4:x\n./b.c:1:x"), "/w/./a.c /w/./b.c");
        assert_eq!(listed("grep -rl x src", "src/a\n"), "/w/src/a");
        assert_eq!(listed("find . | wc -l", "12\n"), "");
        assert_eq!(listed("cat a.c", "a.c:1:x"), "");
    }

    #[test]
    fn an_output_shows_a_file_or_a_part_of_it() {
        let shown = |line: &str, output: &str| {
            posix(line, output).shown.map_or("nothing".to_owned(), |shown| {
                let end = if shown.reaches_end { " to the end" } else { "" };
                format!("{} {}{end} {}", shown.path, shown.first, shown.text)
            })
        };
        for (line, output, expected) in [
            ("cat a", "x\n\n", "/w/a 1 to the end x\n"),
            ("cat a", "x", "/w/a 1 to the end x"),
            ("cd sub && cat a 2>/dev/null", "x\n", "/w/sub/a 1 to the end x"),
            ("head -n 2 a", "x\ny\n", "/w/a 1 x\ny"),
            ("head -2 a", "x\n", "/w/a 1 to the end x"),
            ("head a", "x", "/w/a 1 to the end x"),
            ("sed -n '3,4p' a", "x\ny\n", "/w/a 3 x\ny"),
            ("sed -n '3,9p' a", "x\n", "/w/a 3 to the end x"),
            // The agent may have cut off two empty lines.
            ("sed -n '3,5p' a", "x", "/w/a 3 x"),
            ("sed -n '3,$p' a", "x\n", "/w/a 3 to the end x"),
            ("tail -n +7 a", "x\n", "/w/a 7 to the end x"),
            ("cat a | head -n 1", "x\n", "/w/a 1 x"),
            ("tail -n +3 a | sed -n 2,3p", "x\ny\n", "/w/a 4 x\ny"),
            ("nl -ba a | sed -n '2,3p'", "     2\tx\n     3\t\n", "/w/a 2 x\n"),
            ("cat -n a", "     1\tx\n", "/w/a 1 to the end x"),
            ("nl a", "     1\tx\n", "nothing"),
            ("sed -n '3,5p' a | nl -ba", "     1\tx\n", "nothing"),
            ("tail -n +3 a | cat -n", "     1\tx\n", "nothing"),
            ("cat -n a | nl -ba", "     1\t     1\tx\n", "nothing"),
            ("nl -ba a | sed -n 2,3p", "     5\tx\n", "nothing"),
            ("cat a b", "x\n", "nothing"),
            ("cat a; cat b", "x\n", "nothing"),
            ("cat a | grep x", "x\n", "nothing"),
            ("head -n 1 a", "x\ny\n", "nothing"),
            ("cat a", "x\n... [3 lines truncated] ...\ny\n", "nothing"),
            ("cat a", "Command: cat a\nOutput: x\n", "nothing"),
            ("cat a", "", "nothing"),
            ("tail -n 3 a", "x\n", "nothing"),
            ("sed -n '0,18446744073709551615p' a", "x\n", "nothing"),
        ] {
            assert_eq!(shown(line, output), expected, "{line}");
        }
        assert_eq!(posix("wc -c a", "17 a\n").listed, [("/w/a".to_owned(), Some(17))]);
    }

    #[test]
    fn powershells_file_commands_become_file_operations() {
        for (line, expected) in [
            ("Get-Content -Path 'a b.txt' -Head 5", "read /w/a b.txt"),
            ("gc a | Select-Object -First 3", "read /w/a"),
            ("Set-Content -Path a -Value 'it''s'", "write /w/a \"it's\\r\\n\""),
            ("Set-Content a @'\nx\ny\n'@ -NoNewline", "write /w/a \"x\\ny\""),
            ("Add-Content a x", "append /w/a \"x\\r\\n\""),
            ("'x' | Set-Content a", "write /w/a \"x\\r\\n\""),
            ("'x' | Out-File a -Encoding ascii", "write /w/a \"x\\r\\n\""),
            ("$p = 'a b'; $d = \"$p\\c\"; Set-Content $d \"x $p\"", "write /w/a b\\c \"x a b\\r\\n\""),
            ("(Get-Content a) -replace 'x', 'y' -replace \"z\" | Set-Content a -Encoding UTF8", "rewrite /w/a"),
            ("(gc a -Raw).Replace('x', 'y') | Set-Content -Path a -NoNewline", "rewrite /w/a"),
            ("Set-Content a \"x`ny\"", "write /w/a \"x\\ny\\r\\n\""),
            ("@\"\nx\ny\n\"@ | Add-Content a", "append /w/a \"x\\ny\\r\\n\""),
            ("cd d && rm a; ls", "remove /w/d/a; list-l /w/d"),
            ("npm test && rm a", "remove /w/a; Build /w"),
            ("Get-ChildItem -Recurse -Path src", "walk /w/src"),
            ("ls; dir b", "list-l /w; list-l /w/b"),
            ("Remove-Item -Recurse -Force a", "remove /w/a"),
            ("Copy-Item a -Destination C:\\t\\b", "copy /w/a C:\\t\\b"),
            ("Move-Item -Path a b", "move /w/a /w/b"),
            ("New-Item -ItemType Directory -Force -Path d", "mkdir /w/d"),
            ("New-Item d/f -Value x", "write /w/d/f \"x\""),
            ("cd C:\\p; Test-Path a", "stat C:\\p/a"),
        ] {
            let work = work(Platform::PowerShell, line, "", true);
            assert_eq!(work.uncertain, None, "{line}");
            assert_eq!(steps(&work), expected, "{line}");
        }
        for line in [
            "gc $x",
            "gc *.txt",
            "if ($x) { rm a }",
            "gc a > b",
            "x.exe",
            "gc 'a",
            "ls | sc a",
            "foo || rm a",
            "npm test && mv a z; git status",
            "'x' | Out-File a",
            "'x' | Out-File a -Encoding utf8",
            "Set-Content a x -Encoding Unicode",
            "$p = 'a'; $p = Get-Date; Get-Content $p",
            "$p = 'a'; Get-Content $p.txt",
            "(Get-Content a) -replace 'x', 'y' | Set-Content b",
            "(Get-Content a) -replace 'x', { $_ } | Set-Content a",
            "Set-Content a \"x`0\"",
            "rg x && rm a; ls",
        ] {
            let work = work(Platform::PowerShell, line, "", true);
            assert!(work.uncertain.is_some(), "{line}: {}", steps(&work));
        }
    }

    #[test]
    fn programs_on_windows_have_the_steps_that_they_have_elsewhere() {
        for (line, expected) in [
            ("git status; git -C sub log 2>&1", "VersionControl /w; VersionControl /w/sub"),
            ("cd sub; cargo.exe test 2>&1 | Select-Object -Last 5", "Build /w/sub"),
            ("python -m pytest -q", "Build /w"),
            ("rg -n -g *.rs 'x y' src", "search /w/src"),
            ("rg x", "search /w"),
            ("gc a 2>$null | rg x", "read /w/a"),
        ] {
            let work = work(Platform::PowerShell, line, "some output", true);
            assert_eq!(work.uncertain, None, "{line}");
            assert_eq!(steps(&work), expected, "{line}");
        }
        let failed = |line: &str, output: &str| steps(&work(Platform::PowerShell, line, output, false));
        assert_eq!(failed("cd sub; npm test", "1 failed"), "Build /w/sub");
        assert_eq!(failed("npm test", "npm : The term 'npm' is not recognized as the name of a cmdlet"), "");
        assert_eq!(failed("rg x", ""), "search /w");
        assert_eq!(failed("gc a; npm test", "1 failed"), "");
    }

    #[test]
    fn commands_of_cmd_become_file_operations() {
        for (line, expected) in [
            (r"cd /d C:\p && type src\a.txt", r"read C:\p/src\a.txt"),
            ("dir /b", "list-l /w"),
            ("dir /s /b src", "walk /w/src"),
            (r#"type "a b.txt" c 2>nul"#, "read /w/a b.txt; read /w/c"),
            ("del /f /q a b", "remove /w/a; remove /w/b"),
            (r"ren src\a.txt b.txt", r"move /w/src\a.txt /w/src\b.txt"),
            ("copy /y a b & move c d", "copy /w/a /w/b; move /w/c /w/d"),
            ("mkdir d", "mkdir /w/d"),
            (r#"findstr /n /i "it's x" a.txt"#, "read /w/a.txt"),
            (r#"findstr /s /i "x" src\*.ts"#, "search /w"),
            (r#"npx tsc --noEmit 2>&1 | findstr /i "error""#, "Build /w"),
            ("git status", "VersionControl /w"),
        ] {
            let work = work(Platform::Cmd, line, "some output", true);
            assert_eq!(work.uncertain, None, "{line}");
            assert_eq!(steps(&work), expected, "{line}");
        }
        for line in [
            "type %X%",
            "type *.txt",
            "foo || del a",
            "echo x > a",
            "(type a)",
            "type a^b",
            "x.exe",
            "tasklist",
            "npm test && del a & git status",
        ] {
            let work = work(Platform::Cmd, line, "", true);
            assert!(work.uncertain.is_some(), "{line}: {}", steps(&work));
        }
        assert_eq!(windows_platform(r"cd c:\p && dir"), Platform::Cmd);
        assert_eq!(windows_platform("cd a; Get-Content b"), Platform::PowerShell);
        for line in ["$a = 1; & $a", "& $env:SystemRoot\\a", "(Get-Item b).Length"] {
            assert!(is_powershell(line), "{line}");
        }
        for line in ["echo $a", "x-Y=1 ls", "grep 'Get-Item' a", "git log --Format-x", "cat README-CN.md Read-Me.md"] {
            assert!(!is_powershell(line), "{line}");
        }
    }

    #[test]
    fn a_command_with_very_many_arguments_is_not_replayed() {
        for (platform, program, between) in
            [(Platform::Posix, "rm -f", " "), (Platform::PowerShell, "del", ","), (Platform::Cmd, "del", " ")]
        {
            let steps = |arguments: usize| {
                let line = format!("{program} {}", vec!["a"; arguments].join(between));
                work(platform, &line, "", true).steps.len()
            };
            assert_eq!((steps(STEPS_MAX), steps(STEPS_MAX + 1)), (STEPS_MAX, 0), "{platform:?}");
        }
    }

    #[test]
    fn a_command_that_goes_down_and_down_is_not_replayed() {
        let line = format!("mkdir d; {}", "cd d; mkdir d;".repeat(3000));
        let found = work(Platform::Posix, &line, "", true);
        assert!(found.steps.is_empty() && found.dirs.len() < 2100, "{}", found.dirs.len());
        let short = format!("mkdir d; {}", "cd d; mkdir d;".repeat(30));
        assert_eq!(work(Platform::Posix, &short, "", true).steps.len(), 31);
    }

    #[test]
    fn a_long_command_is_parsed_in_time() {
        let parts = [
            "cat a && ",
            "'x' ",
            "\"x\" ",
            "$(",
            "$(pwd) ",
            "((",
            "{ ",
            "<<A ",
            "\\\n",
            "a|",
            "> a ",
            "cat <<A\nx\nA\n",
            "-e ",
            "s/a/b/g;",
            "*** Begin Patch\n",
            "bash -c '",
            "@'\n",
            "`",
            "(",
            "open('a', 'w').write(s)\n",
            "s = s.replace('x', s)\n",
            "${a:-",
            "${",
        ];
        let try_one = |platform: Platform, start: &str, part: &str| {
            let long = part.repeat((1 << 19) / part.len());
            let began = Instant::now();
            work(platform, &format!("{start}{long}\nA"), &long, true);
            // A quadratic parser takes minutes, and a busy machine a few seconds.
            assert!(began.elapsed() < Duration::from_secs(60), "{start}{part}");
        };
        for part in parts {
            for platform in [Platform::Posix, Platform::PowerShell, Platform::Cmd] {
                try_one(platform, "", part);
            }
            // Words of Posix shells.
            for start in ["cat ", "sed -i '", "apply_patch \"", "echo ", "python3 <<'A'\ns = open('a').read()\n"] {
                try_one(Platform::Posix, start, part);
            }
        }
    }

    #[test]
    fn a_variable_that_doubles_its_text_is_uncertain() {
        for (platform, doubles) in [(Platform::Posix, "A=$A$A;"), (Platform::PowerShell, "$a=\"$a$a\";")] {
            let start = if platform == Platform::Posix { "A=a;" } else { "$a=\"a\";" };
            let read = |times: usize| work(platform, &format!("{start}{}cat $A", doubles.repeat(times)), "x", true);
            assert!(read(60).uncertain.is_some());
        }
        let certain = work(Platform::Posix, "A=a;A=$A$A;cat $A", "x", true);
        assert_eq!(steps(&certain), "read /w/aa");
    }

    proptest! {
        #[test]
        fn any_text_is_a_command_or_none(
            parts in prop::collection::vec(prop::sample::select(vec![
                "cat ", "rm -rf ", "cp ", "mv ", "sed -i ", "s/a/b/g ", "echo ", "ls -l ", "grep -r ", "find ", "cd ", "tee ",
                "apply_patch ", "bash -c ", "a ", "/b/../c ", "-n ", "é ", "'", "\"", "\\", "$", "$(", "`", "{", "}", "(", ")", "<<E\n", "E\n",
                "<", ">", ">>", "2>&1", "|", "||", "&&", "&", ";", "\n", "#", "*", "@'\n", "~", "-", "-- ",
            ]), 0..20),
            output in ".{0,40}",
            ok in any::<bool>(),
        ) {
            let line = parts.concat();
            for platform in [Platform::Posix, Platform::PowerShell, Platform::Cmd] {
                let made = work(platform, &line, &output, ok);
                let is_empty = made.steps.is_empty() && made.programs.is_empty();
                prop_assert_eq!(made.uncertain.is_some(), is_empty);
            }
        }
    }

    #[test]
    fn a_literal_replacement_is_one_text() {
        let work = posix("sed -i 's/a\\/b/c&/g' f", "x");
        assert_eq!(steps(&work), "rewrite /w/f");
        let work = posix("sed -i 's#a/b#c#g' f", "x");
        let replacement = Replacement { old: "a/b".to_owned(), new: "c".to_owned(), all: true };
        let path = "/w/f".to_owned();
        let replacements = vec![replacement];
        assert_eq!(work.steps, [ShellStep::Edit { path, replacements }]);
    }
}
