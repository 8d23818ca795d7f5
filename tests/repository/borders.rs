//! Foreign text leaves this program only through `inputs::border`, and files that a user or a foreign directory names are
//! only read through `inputs::files`.

use std::path::Path;

use crate::rust_files;

/// What may only be used in some files, because it takes or gives foreign text without its border.
struct Border {
    /// The texts of the code that pass it by.
    uses: &'static [&'static str],
    /// The start of the paths that it applies to.
    within: &'static [&'static str],
    /// Files where it is allowed, and why.
    allowed: &'static [(&'static str, &'static str)],
    /// What to use instead.
    instead: &'static str,
}

const BORDERS: [Border; 9] = [
    Border {
        uses: &["PreEscaped"],
        within: &[""],
        allowed: &[("reports/src/render/html.rs", "constants, and SVG that `drawing` encoded")],
        instead: "maud's own escapes, with `inputs::border::html`",
    },
    Border {
        uses: &["csv::Writer"],
        within: &[""],
        allowed: &[("reports/src/render/csv_file.rs", "the wrapper")],
        instead: "`csv_file::csv`, whose fields are encoded",
    },
    Border {
        uses: &["SVGBackend", "Text::new("],
        within: &["reports/"],
        allowed: &[("reports/src/render/drawing.rs", "the wrapper")],
        instead: "`drawing::write`",
    },
    Border {
        uses: &["println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("],
        within: &[
            "backends/",
            "reports/",
            "workloads/",
            "harness/mcp/",
            "harness/replay/",
            "harness/runner/",
            "harness/trial/",
        ],
        allowed: &[],
        instead: "a return value, which the command prints",
    },
    Border {
        uses: &[".display()"],
        within: &[
            "harness/src/cmd/doctor/",
            "harness/src/cmd/mount.rs",
            "harness/src/cmd/mount_daemon.rs",
            "harness/src/cmd/s3/",
            "harness/src/cmd/status.rs",
            "harness/src/cmd/unmount.rs",
        ],
        allowed: &[],
        instead: "`border::path`, which keeps a name with line feeds on its line",
    },
    Border {
        uses: &["std::println!", "std::eprintln!", "std::print!", "io::stdout()", "io::stderr()"],
        within: &[""],
        allowed: &[
            ("harness/src/output.rs", "the border"),
            ("backends/fuse/src/daemon_log.rs", "the log, whose lines are encoded"),
            ("harness/src/cmd/mod.rs", "asks whether it is a terminal"),
            ("harness/src/progress_line.rs", "asks whether it is a terminal"),
            ("harness/src/cmd/shell.rs", "completions and manual pages of our own"),
            ("harness/src/cmd/mount.rs", "the mount point that the user names"),
            ("harness/src/cmd/mount_daemon.rs", "a constant line"),
            ("harness/mcp/src/sql_worker.rs", "the protocol with the parent"),
            ("harness/src/cmd/s3/serve.rs", "variables for a shell, of our own"),
            ("harness/src/cmd/s3/show.rs", "the bytes of a file"),
            ("harness/src/cmd/s3/remote.rs", "numbers on a line of progress"),
            ("harness/trial/src/agent/mod.rs", "the protocol with the parent"),
            ("harness/replay/src/workers.rs", "the protocol with the parent"),
        ],
        instead: "`println!` and `eprintln!` of the binary, which `harness/src/output.rs` encodes",
    },
    Border {
        uses: &["fs::read_to_string(", "fs::read(", "File::open("],
        within: &[
            "workloads/",
            "reports/",
            "harness/src/cmd/",
            "harness/src/evidence.rs",
            "harness/src/reporting.rs",
            "harness/src/sessions.rs",
            "harness/src/model_options.rs",
            "backends/models/src/cassette.rs",
            "backends/view/src/definition.rs",
            "backends/arms/src/external/",
        ],
        allowed: &[
            ("workloads/inputs/src/lib.rs", "the digest of this program and of models"),
            ("workloads/src/generate/corpus.rs", "an installed corpus, checked by its digest"),
            ("harness/src/cmd/status.rs", "/proc"),
            ("harness/src/cmd/mount.rs", "the settings of `fusermount3`"),
            ("backends/arms/src/external/mod.rs", "a mount to sync"),
            ("harness/src/cmd/s3/sync.rs", "a file to sync, which is not read"),
        ],
        instead: "`inputs::files`, which opens only regular files and has their limits",
    },
    Border {
        uses: &["fs::write(", "File::create("],
        within: &["reports/"],
        allowed: &[],
        instead: "`render::put`, which replaces a file when the new one is complete",
    },
    Border {
        uses: &[".join(format!(", ".join(&arm", ".join(&workload"],
        within: &["reports/"],
        allowed: &[("reports/run/src/dir.rs", "a constant name with an ending")],
        instead: "`inputs::names::FileName::within`, which cannot hold a path",
    },
];

/// Calls whose arguments must be encoded where they stand, in files that mention the other text.
const ENCODED: [(&str, &[&str]); 2] = [
    ("quick_junit", &["TestCase::new(", ".set_message(", ".set_system_out("]),
    ("indicatif", &[".set_message(", ".println("]),
];

/// The code without comments, and without its tests.
fn code(path: &str, text: &str) -> String {
    let name = Path::new(path).file_name().unwrap().to_string_lossy();
    let is_test = path.split('/').any(|part| matches!(part, "tests" | "testing" | "benches" | "fuzz" | "examples"));
    if is_test || matches!(&*name, "tests.rs" | "testing.rs" | "build.rs") || name.ends_with("_tests.rs") {
        return String::new();
    }
    let before_tests = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = before_tests.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether the code has this text where no longer word ends with it.
fn has(code: &str, used: &str) -> bool {
    let mut places = code.match_indices(used);
    places.any(|(at, _)| {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        !(before.is_alphanumeric() || before == '_') || used.starts_with('.')
    })
}

/// The uses that pass a border by, each with what to use instead.
fn violations(path: &str, text: &str) -> Vec<String> {
    let code = code(path, text);
    let mut found = Vec::new();
    for border in &BORDERS {
        let is_within = border.within.iter().any(|start| path.starts_with(start));
        let is_allowed = border.allowed.iter().any(|(file, _)| *file == path);
        if !is_within || is_allowed {
            continue;
        }
        let uses = border.uses.iter().filter(|used| has(&code, used));
        found.extend(uses.map(|used| format!("{path}: `{used}`: use {}", border.instead)));
    }
    for (library, calls) in ENCODED {
        if !code.contains(library) {
            continue;
        }
        for call in calls {
            let places = code.match_indices(call);
            let bare = places.filter(|(at, _)| {
                let arguments: String = code[at + call.len()..].chars().take(80).collect();
                !arguments.trim_start().starts_with("border::")
            });
            found.extend(bare.map(|_| format!("{path}: `{call}`: use a function of `inputs::border`")));
        }
    }
    found
}

#[test]
fn foreign_text_and_files_pass_their_borders() {
    let files = rust_files();
    let found: Vec<String> = files.iter().flat_map(|(path, text)| violations(path, text)).collect();
    assert_eq!(found, Vec::<String>::new());
    // An exception for what is no longer there would hide the next one.
    for border in &BORDERS {
        for (allowed, why) in border.allowed {
            let text = files.iter().find(|(path, _)| path == allowed);
            let code = text.map_or_else(String::new, |(path, text)| code(path, text));
            let is_used = border.uses.iter().any(|used| has(&code, used));
            assert!(is_used, "{allowed} ({why}) uses none of {:?}", border.uses);
        }
    }
}

#[test]
fn a_planted_use_that_passes_a_border_by_is_found() {
    for (path, planted) in [
        ("reports/src/render/page.rs", "html! { (PreEscaped(name)) }"),
        ("reports/src/render/tables.rs", "csv::Writer::from_path(file)"),
        ("reports/src/render/heat.rs", "area.draw(&Text::new(name, at, style))"),
        ("workloads/src/compile.rs", "println!(\"{name}\")"),
        ("backends/sqlite/src/lib.rs", "eprintln!(\"{name}\")"),
        ("harness/src/cmd/status.rs", "println!(\"{}\", mount.at.display())"),
        ("harness/src/cmd/report.rs", "std::println!(\"{name}\")"),
        ("harness/src/cmd/list.rs", "let mut out = std::io::stdout();"),
        ("workloads/src/catalogue.rs", "std::fs::read_to_string(path)"),
        ("reports/run/src/dir.rs", "fs::read(dir.join(name))"),
        ("reports/src/render/files.rs", "fs::write(file, text)"),
        ("reports/src/render/histogram_logs.rs", "dir.join(format!(\"{arm}.hlog\"))"),
        ("reports/src/render/compare.rs", "use quick_junit::TestCase;\nTestCase::new(name, status)"),
        ("harness/src/progress_line.rs", "use indicatif::ProgressBar;\nself.bar.println(line)"),
    ] {
        let found = violations(path, planted);
        assert_eq!(found.len(), 1, "{path}: {planted}: {found:?}");
    }
    // Tests and comments may use them.
    assert!(violations("reports/src/a.rs", "#[cfg(test)]\nmod tests {\nfs::write(a, b)").is_empty());
    assert!(violations("reports/src/a.rs", "// not fs::write(a, b)").is_empty());
    assert!(violations("reports/src/a_tests.rs", "fs::write(a, b)").is_empty());
}
