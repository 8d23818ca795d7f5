//! Tests of the page in headless Chromium: widths, sorting, contrast, links, and that it asks nothing of a network.
//! Without Chromium they say so and pass; `CTXBENCH_REQUIRE_CHROMIUM`, set in CI, makes that a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::testing::Inputs;
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

/// Looks at the page in a frame of 360 and of 1,280 pixels, and writes what it finds as hexadecimal JSON.
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
  page.querySelectorAll('details').forEach(element => element.open = true);
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
  for (const text of shown) {
    const element = text.parentElement, style = view.getComputedStyle(element), svg = element.closest('svg');
    // Texts on coloured cells of a heat map have colours of their own, for light and dark pages.
    if (svg && /^rgb\((20, 20, 20|250, 250, 250)\)$/.test(style.fill)) continue;
    const ratio = contrast(svg ? style.fill : style.color, behind(svg ? svg.parentElement : element));
    if (!(ratio >= 4.5)) found.faint.push([text.data.trim().slice(0, 40), ratio]);
  }
  found.faint = found.faint.slice(0, 10);
  const links = [...page.querySelectorAll('a[href]')].map(link => link.getAttribute('href'));
  found.links = links.length;
  found.dead = links.filter(link => !link.startsWith('#') || !page.getElementById(link.slice(1)));
  const ids = [...page.querySelectorAll('[id]')].map(element => element.id);
  found.twice = ids.filter((id, at) => ids.indexOf(id) !== at);
  const buttons = [...page.querySelectorAll('table.sortable th button')];
  found.buttons = buttons.length;
  const mean = buttons.find(button => button.textContent === 'typical');
  const table = mean.closest('table'), head = mean.parentElement;
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].textContent);
  mean.focus();
  found.focused = page.activeElement === mean;
  mean.click();
  found.ascending = { sort: head.getAttribute('aria-sort'), cells: column() };
  mean.click();
  found.descending = { sort: head.getAttribute('aria-sort'), cells: column() };
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
    let mut places = names
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
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

/// A page with every built-in policy and claim.
fn page(dir: &Path) -> String {
    let report = Inputs::judged();
    fs::read_to_string(write(&report.report(), dir).unwrap()).unwrap()
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
    let mut child = command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
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
    for nothing in ["broken", "faint", "dead", "twice", "requests", "problems"] {
        let hits = found[nothing].as_array().unwrap();
        assert!(
            hits.is_empty(),
            "{nothing} (contrast {CONTRAST}): {hits:#?}"
        );
    }
    assert!(found["links"].as_u64().unwrap() > 5, "{found:#}");
    assert!(found["buttons"].as_u64().unwrap() > 20, "{found:#}");
    assert_eq!(found["focused"], true);
    let times = |order: &str| -> Vec<f64> {
        let cells = found[order]["cells"].as_array().unwrap().iter();
        cells
            .map(|cell| nanoseconds(cell.as_str().unwrap()))
            .collect()
    };
    for order in ["ascending", "descending"] {
        assert_eq!(found[order]["sort"], order);
    }
    let (up, mut down) = (times("ascending"), times("descending"));
    assert!(
        up.len() > 3 && up.is_sorted() && up[0] < up[up.len() - 1],
        "{up:?}"
    );
    down.reverse();
    assert!(down.is_sorted(), "{down:?}");
}

#[test]
fn the_page_fits_sorts_and_can_be_read_on_light_and_dark_screens() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    for is_dark in [false, true] {
        check(&looked_at(&chromium, dir.path(), &page, is_dark), is_dark);
    }
}

#[test]
fn a_page_that_overflows_or_asks_the_network_is_found() {
    let Some(chromium) = chromium() else { return };
    let dir = tempfile::tempdir().unwrap();
    let wrong = "<main><p style=\"width:900px;color:#ddd\">faint</p><img src=\"https://example.org/a.png\"><a href=\"#nowhere\">x</a>";
    let page = page(dir.path()).replacen("<main>", wrong, 1);
    let found = looked_at(&chromium, dir.path(), &page, false);
    assert!(
        found["narrow"]["width"].as_u64().unwrap() > 900,
        "{found:#}"
    );
    assert_eq!(found["faint"][0][0], "faint");
    assert_eq!(found["dead"][0], "#nowhere");
    let problems = found["problems"].to_string();
    assert!(
        problems.contains("request: https://example.org"),
        "{problems}"
    );
}
