//! Tests of the page in headless Chromium: widths, sorting, contrast, links, and that it asks nothing of a network.
//! Without Chromium they say so and pass; `CTXBENCH_REQUIRE_CHROMIUM`, set in CI, makes that a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::testing::{Inputs, largest};
use super::write;

/// How long Chromium may take for a page.
const PATIENCE: Duration = Duration::from_secs(120);

/// The WCAG AA contrast of text.
const CONTRAST: f64 = 4.5;

/// The first line of the page's head: no network, and every problem is noted.
const HOOKS: &str = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<script>
window.problems = [];
addEventListener('error', event => problems.push('error: ' + event.message));
addEventListener('securitypolicyviolation', event => problems.push('request: ' + event.blockedURI));
for (const name of ['error', 'warn']) console[name] = (...words) => problems.push(name + ': ' + words.join(' '));
</script>"#;

/// Looks at the page in a frame of 360, 768 and 1,280 pixels, and by its rules for paper, and writes what it finds as hexadecimal JSON.
const LOOK: &str = r#"
const frame = document.getElementById('page');
const lines = color => {
  const [r, g, b] = color.match(/[\d.]+/g).map(Number).slice(0, 3).map(channel => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [high, low] = [lines(one), lines(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const look = () => {
  const page = frame.contentDocument, view = frame.contentWindow, found = {};
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = view.getComputedStyle(element).backgroundColor;
      if (!/^rgba\(.*, 0\)$|transparent/.test(color)) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = inside => {
    const walker = page.createTreeWalker(inside, view.NodeFilter.SHOW_TEXT), all = [];
    while (walker.nextNode()) if (walker.currentNode.data.trim()) all.push(walker.currentNode);
    return all;
  };
  found.words = page.body.innerText.split(/\s+/).filter(Boolean).length;
  page.querySelectorAll('details').forEach(element => element.open = true);
  // Texts of charts that overlap another text, or leave their chart or the window, at three widths.
  found.texts = 0;
  found.overlaps = [];
  found.clipped = [];
  found.cut = new Set();
  found.cutAnywhere = new Set();
  const charts = (medium, width) => {
    frame.style.width = width + 'px';
    for (const svg of page.querySelectorAll('main svg')) {
      const around = svg.getBoundingClientRect();
      if (around.right > width + 1 || around.left < -1) found.clipped.push([medium, 'a chart', around.right]);
      const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent.trim(), text.getBoundingClientRect()]);
      found.texts += boxes.length;
      boxes.forEach(([text, box], at) => {
        const inside = box.left >= around.left - 1 && box.right <= around.right + 1 && box.top >= around.top - 1 && box.bottom <= around.bottom + 1;
        // "read-…: open" names a family of sizes.
        if (/…(?!: )/.test(text)) found.cutAnywhere.add(text);
        // The answer's pictures have room for their words.
        if (text.includes('…') && !svg.closest('details')) found.cut.add(text);
        if (!inside || box.width === 0) found.clipped.push([medium, text, box.left - around.left, box.right - around.left]);
        for (const [other, next] of boxes.slice(at + 1)) {
          const wide = Math.min(box.right, next.right) - Math.max(box.left, next.left);
          const high = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
          // The boxes of lines of text touch: their letters do not.
          if (wide > 1 && high > 4) found.overlaps.push([medium, text, other]);
        }
      });
    }
  };
  for (const width of [1280, 768, 360]) charts(width, width);
  const shown = texts(page.body).filter(node => !node.parentElement.closest('script, style'));
  frame.style.width = '360px';
  found.narrow = { width: page.documentElement.scrollWidth, inner: view.innerWidth };
  const broken = new Set();
  for (const text of shown.filter(node => !node.parentElement.closest('code, svg'))) {
    for (const word of text.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
      // An address that is longer than a line breaks somewhere.
      if (/\S*\/\S*$/.test(text.data.slice(0, word.index).match(/\S*$/)[0])) continue;
      const range = page.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].filter(box => box.width > 0).map(box => Math.round(box.top)));
      if (tops.size > 1) broken.add(word[0]);
    }
  }
  found.broken = [...broken].slice(0, 10);
  frame.style.width = '1280px';
  found.wide = { width: page.documentElement.scrollWidth, inner: view.innerWidth };
  found.is_dark = view.matchMedia('(prefers-color-scheme: dark)').matches;
  found.faint = [];
  const contrasts = () => { for (const text of shown) {
    const element = text.parentElement, style = view.getComputedStyle(element), svg = element.closest('svg');
    // Texts on coloured cells of a heat map have colours of their own, for light and dark pages.
    if (svg && /^rgb\((20, 20, 20|250, 250, 250)\)$/.test(style.fill)) continue;
    const ratio = contrast(svg ? style.fill : style.color, behind(svg ? svg.parentElement : element));
    if (!(ratio >= 4.5)) found.faint.push([text.data.trim().slice(0, 40), ratio]);
  } };
  contrasts();
  const links = [...page.querySelectorAll('a[href]')].map(link => link.getAttribute('href'));
  found.links = links.length;
  found.files = [...new Set(links.filter(link => !link.startsWith('#')))];
  found.dead = links.filter(link => link.startsWith('#') && !page.getElementById(link.slice(1)));
  const ids = [...page.querySelectorAll('[id]')].map(element => element.id);
  found.twice = ids.filter((id, at) => ids.indexOf(id) !== at);
  const buttons = [...page.querySelectorAll('table.sortable th button')];
  found.buttons = buttons.length;
  const mean = buttons.find(button => button.textContent === 'direct' && button.closest('#speed'));
  const table = mean.closest('table'), head = mean.parentElement;
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].textContent);
  mean.focus();
  found.focused = page.activeElement === mean;
  mean.click();
  found.ascending = { sort: head.getAttribute('aria-sort'), cells: column() };
  mean.click();
  found.descending = { sort: head.getAttribute('aria-sort'), cells: column() };
  const cells = page.querySelector('table.cells'), filter = cells.parentElement.previousElementSibling;
  const rows = () => [...cells.querySelectorAll('tr[id]')].filter(row => !row.hidden).length;
  found.rows = rows();
  filter.value = 'agent sqlite';
  filter.dispatchEvent(new view.Event('input'));
  found.filtered = rows();
  // On paper, 720 pixels wide.
  let rules = 0;
  for (const sheet of page.styleSheets) for (const rule of sheet.cssRules) if (rule.media && rule.media.mediaText === 'print') {
    rule.media.mediaText = 'all';
    rules++;
  }
  charts('print', 720);
  contrasts();
  found.paper = { rules, color: view.getComputedStyle(page.body).backgroundColor };
  found.overlaps = found.overlaps.slice(0, 10);
  found.clipped = found.clipped.slice(0, 10);
  found.faint = found.faint.slice(0, 10);
  found.cut = [...found.cut].slice(0, 10);
  found.cutAnywhere = [...found.cutAnywhere].slice(0, 10);
  found.requests = view.performance.getEntriesByType('resource').map(entry => entry.name);
  found.problems = view.problems;
  return found;
};
addEventListener('load', () => {
  let found;
  try { found = look(); } catch (error) { found = { failed: String(error.stack) }; }
  const bytes = new TextEncoder().encode(JSON.stringify(found));
  document.getElementById('found').textContent = [...bytes].map(byte => byte.toString(16).padStart(2, '0')).join('');
});
"#;

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut places = names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        assert!(
            std::env::var_os("CTXBENCH_REQUIRE_CHROMIUM").is_none(),
            "CTXBENCH_REQUIRE_CHROMIUM is set, but chromium is not in PATH (apt-get install chromium)"
        );
        eprintln!("SKIPPED: chromium is not in PATH (apt-get install chromium)");
    }
    found
}

/// The most words that are visible when a page opens, and the most bytes of it. Here most of the twelve arms are candidates of
/// most policies, so that the page is larger than that of a default run.
const WORDS: u64 = 1200;
const BYTES: usize = 600_000;

/// A page with every built-in policy and claim, on the largest planted run.
fn page(dir: &Path) -> String {
    let report = Inputs::judged_of(largest());
    fs::read_to_string(write(&report.report(), dir).unwrap()).unwrap()
}

/// As [`page`], with the longest names and texts that a run directory and a policy may have.
fn hostile_page(dir: &Path) -> String {
    const WIDE: &str = "W\u{fdfd}\u{301}\u{202e}<b>&amp;猫MMMMMMMM ";
    let mut run = largest();
    let long = |name: &str| format!("{name}-{}", "W".repeat(60));
    for arm in ["memory", "sqlite", "view-vsm"] {
        figures::testing::rename_arm(&mut run, arm, &long(arm));
    }
    for arm in &mut run.plan.arms {
        arm.backend.summary = WIDE.repeat(200);
    }
    for workload in &mut run.plan.workloads {
        workload.essay = WIDE.repeat(50);
    }
    run.plan.essay = WIDE.repeat(50);
    run.environment.cpu = WIDE.repeat(50);
    let mut inputs = Inputs::judged_of(run);
    inputs.change_decisions(|decisions| {
        for decision in decisions.iter_mut() {
            (decision.why, decision.would_flip) = (WIDE.repeat(50), WIDE.repeat(50));
            for row in &mut decision.rows {
                row.title += &WIDE.repeat(20);
                row.candidate = WIDE.repeat(20);
            }
        }
        let mut more = decisions.clone();
        for decision in &mut more {
            decision.policy += "-again";
        }
        decisions.extend(more);
    });
    fs::read_to_string(write(&inputs.report(), dir).unwrap()).unwrap()
}

/// The findings of Chromium on a page.
fn looked_at(chromium: &Path, dir: &Path, page: &str, is_dark: bool) -> Value {
    let page = page.replacen("<head>", &format!("<head>{HOOKS}"), 1);
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let wrapper = dir.join("wrapper.html");
    let text = format!(
        "<!doctype html><html><head><meta charset=utf-8></head><body style=\"margin:0\"><iframe id=page style=\"width:1280px;height:900px;border:0\" srcdoc=\"{page}\"></iframe><pre id=found></pre><script>{LOOK}</script></body></html>"
    );
    fs::write(&wrapper, text).unwrap();
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--window-size=1400,1000", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(is_dark.then_some("--force-dark-mode"))
        .arg(format!("file://{}", wrapper.display()));
    let dom = dir.join("dom.html");
    let mut child =
        command.stdin(Stdio::null()).stdout(fs::File::create(&dom).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("chromium did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let dom = fs::read_to_string(dom).unwrap();
    let (_, found) = dom.split_once("<pre id=\"found\">").expect("a wrapper");
    let hex = found.split('<').next().unwrap();
    let bytes = (0..hex.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    let found: Value = serde_json::from_slice(&bytes.collect::<Vec<_>>()).unwrap();
    assert!(found["failed"].is_null(), "{found:#}");
    found
}

/// The nanoseconds of a time in a table.
fn nanoseconds(text: &str) -> f64 {
    let mut words = text.trim_start_matches("⇅ ").split(' ');
    let number: f64 = words.next().unwrap().parse().unwrap();
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let unit = words.next().unwrap();
    number * units.iter().find(|entry| entry.0 == unit).unwrap().1
}

fn check(found: &Value, is_dark: bool) {
    assert_eq!(found["is_dark"], is_dark);
    for (view, width) in [("narrow", 360), ("wide", 1280)] {
        assert_eq!(found[view]["inner"], width, "{found:#}");
        let overflow = found[view]["width"].as_u64().unwrap();
        assert!(overflow <= width, "{overflow} pixels at {width}");
    }
    let words = found["words"].as_u64().unwrap();
    assert!((50..=WORDS).contains(&words), "{words} words are visible");
    assert!(found["texts"].as_u64().unwrap() > 300, "{found:#}");
    assert_eq!(found["paper"], serde_json::json!({ "rules": 1, "color": "rgb(255, 255, 255)" }));
    for nothing in ["overlaps", "clipped", "faint", "dead", "twice", "requests", "problems"] {
        let hits = found[nothing].as_array().unwrap();
        assert!(hits.is_empty(), "{nothing} (contrast {CONTRAST}): {hits:#?}");
    }
}

/// What holds of a page whose names have the usual lengths.
fn check_use(found: &Value, dir: &Path) {
    for nothing in ["broken", "cut"] {
        let hits = found[nothing].as_array().unwrap();
        assert!(hits.is_empty(), "{nothing}: {hits:?}");
    }
    let files = found["files"].as_array().unwrap();
    assert!(!files.is_empty());
    for file in files {
        let path = dir.join(file.as_str().unwrap());
        assert!(path.is_file(), "{file} is not beside the page");
    }
    let rows = |name: &str| found[name].as_u64().unwrap();
    assert!(rows("rows") > 300 && (1..rows("rows") / 4).contains(&rows("filtered")), "{found:#}");
    assert!(found["links"].as_u64().unwrap() > 5, "{found:#}");
    assert!(found["buttons"].as_u64().unwrap() > 20, "{found:#}");
    assert_eq!(found["focused"], true);
    let times = |order: &str| -> Vec<f64> {
        let cells = found[order]["cells"].as_array().unwrap().iter();
        cells.map(|cell| nanoseconds(cell.as_str().unwrap())).collect()
    };
    for order in ["ascending", "descending"] {
        assert_eq!(found[order]["sort"], order);
    }
    let (up, mut down) = (times("ascending"), times("descending"));
    assert!(up.len() > 3 && up.is_sorted() && up[0] < up[up.len() - 1], "{up:?}");
    down.reverse();
    assert!(down.is_sorted(), "{down:?}");
}

#[test]
fn the_page_fits_sorts_and_can_be_read_on_light_and_dark_screens() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    assert!(page.len() <= BYTES, "{} bytes", page.len());
    for is_dark in [false, true] {
        let found = looked_at(&chromium, dir.path(), &page, is_dark);
        check(&found, is_dark);
        check_use(&found, dir.path());
    }
}

#[test]
fn the_longest_names_and_texts_neither_overlap_nor_leave_the_page() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = hostile_page(dir.path());
    check(&looked_at(&chromium, dir.path(), &page, false), false);
}

#[test]
fn no_chart_cuts_a_name_of_24_characters_or_a_long_operation() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut run = largest();
    for (arm, long) in [
        ("memory", "memory-with-a-cache-of-1"),
        ("sqlite", "sqlite-without-writeback"),
        ("s3-embedded", "bucket-of-another-region"),
    ] {
        assert_eq!(long.len(), 24);
        figures::testing::rename_arm(&mut run, arm, long);
    }
    for (workload, long) in [
        ("micro/append", "micro/append-to-a-log-of-a-million-lines"),
        ("program/npm-few", "program/npm-install-without-a-lock-file"),
    ] {
        figures::testing::rename_workload(&mut run, workload, long);
    }
    let inputs = Inputs::judged_of(run);
    let page = fs::read_to_string(write(&inputs.report(), dir.path()).unwrap()).unwrap();
    for name in ["memory-with-a-cache-of-1", "sqlite-without-writeback", "a-million-lines"] {
        assert!(page.contains(name), "{name}");
    }
    let found = looked_at(&chromium, dir.path(), &page, false);
    check(&found, false);
    assert_eq!(found["cutAnywhere"], serde_json::json!([]));
}

#[test]
fn a_page_that_overflows_or_asks_the_network_is_found() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = |left: u32, text: &str| format!("<text x=\"{left}\" y=\"20\">{text}</text>");
    let texts = text(10, "under") + &text(15, "over") + &text(95, "beyond");
    let svg = format!("<main><svg width=\"100\" height=\"40\">{texts}</svg>");
    let wrong = "<div style=\"width:900px;color:#ddd\">faint</div><img src=\"https://example.org/a.png\"><a href=\"#nowhere\">x</a>";
    let page = page(dir.path()).replacen("<main>", &(svg + wrong), 1);
    let found = looked_at(&chromium, dir.path(), &page, false);
    assert!(found["narrow"]["width"].as_u64().unwrap() > 900, "{found:#}");
    assert_eq!(found["faint"][0][0], "faint");
    assert_eq!(found["dead"][0], "#nowhere");
    assert_eq!(found["overlaps"][0], serde_json::json!([1280, "under", "over"]));
    assert_eq!(found["clipped"][0][1], "beyond");
    let problems = found["problems"].to_string();
    assert!(problems.contains("request: https://example.org"), "{problems}");
}
