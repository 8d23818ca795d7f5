//! A page as one self-contained HTML file, with inline charts, for dark, light, wide and narrow screens.

use std::collections::BTreeMap;

use inputs::border::html as shown;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::part::{LinkedRow, Part};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2125; --paper: #fcfcfa; --line: #d5d8dc; --faint: #f1f2f0; --accent: #0a5f9e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --paper: #16191c; --line: #3a4046; --faint: #1f2428; --accent: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--accent); } :target { outline: 2px solid var(--accent); }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
ul { padding-left: 1.2rem; }
.scroll { position: relative; overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); min-width: 4rem; }
td { max-width: 24rem; } th { background: var(--faint); white-space: nowrap; }
tbody th { background: none; font-weight: 600; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--accent); }
th button::after { content: ' \\21C5'; opacity: .6; } [aria-sort=ascending] button::after { content: ' \\2191'; opacity: 1; } [aria-sort=descending] button::after { content: ' \\2193'; opacity: 1; }
.adopt, .adopt-if, .archive, .not-decided { padding: 0 .3rem; border-radius: .2rem; border: 1px solid var(--ink); white-space: nowrap; }
.adopt { background: var(--ink); color: var(--paper); } .adopt-if { background: var(--faint); } .not-decided { border-style: dashed; font-weight: 400; }
@media (max-width: 40rem) {
.scroll table { width: max-content; } .scroll .matrix { width: auto; } td { max-width: 15rem; }
.matrix thead { position: absolute; clip-path: inset(50%); } .matrix tr, .matrix td, .matrix tbody th { display: block; max-width: none; }
.matrix tr { border-bottom: 1px solid var(--line); padding: .5rem 0; } .matrix td, .matrix tbody th { border: 0; padding: .15rem 0; }
.matrix td::before { content: attr(data-label) ': '; } .matrix .none { display: none; } .matrix tbody th { font-size: 1rem; }
}
figure { margin: 1rem 0; overflow-x: auto; } figure svg { width: 100%; min-width: 52rem; height: auto; max-width: 60rem; color: var(--ink); } figure svg a { fill: var(--accent); text-decoration: underline; }
figcaption { font-size: .85rem; position: sticky; left: 0; } summary { cursor: pointer; color: var(--accent); margin: 1rem 0; }
code { background: var(--faint); padding: 0 .25rem; overflow-wrap: anywhere; }
@media print { :root { --ink: #000; --paper: #fff; --line: #bbb; --faint: #eee; --accent: #004a80; } body { max-width: none; padding: 0; font-size: 10pt; } .scroll, figure { overflow: visible; } figure svg { min-width: 0; } table { font-size: 7pt; } th { white-space: normal; } th button::after { content: ''; } tr, figure { break-inside: avoid; } h2 { break-after: avoid; } details::details-content { content-visibility: visible; height: auto; } }
";

/// Makes tables sortable by buttons in their heads, and opens the section that a link leads into. Numbers are compared with
/// their units; cells without a number come last.
const SCRIPT: &str = "
const UNITS = { ns: 1, '\u{b5}s': 1e3, ms: 1e6, s: 1e9, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
const value = text => {
  const found = text.trim().match(/^[^\\d\\w-]*(-?[\\d,]*\\.?\\d+)\\s*([\\w\u{b5}]*)/);
  return found ? Number(found[1].replaceAll(',', '')) * (UNITS[found[2]] || 1) : NaN;
};
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const keys = new Map([...table.tBodies[0].rows].map(row => [row, row.cells[column].textContent]));
      const compare = (one, other) => {
        const [a, b] = [value(one), value(other)];
        if (isNaN(a) !== isNaN(b)) return isNaN(a) ? 1 : -1;
        return (up ? 1 : -1) * (isNaN(a) ? one.localeCompare(other) : a - b);
      };
      const rows = [...keys.keys()].sort((one, other) => compare(keys.get(one), keys.get(other)));
      table.tBodies[0].append(...rows);
    });
  });
}
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let element = target; element; element = element.parentElement) if (element.tagName === 'DETAILS') element.open = true;
  target.scrollIntoView();
};
addEventListener('hashchange', open);
open();
";

/// Renders the page. `charts` has the inline SVG of each chart by stem.
pub(super) fn html(title: &str, parts: &[Part], charts: &BTreeMap<&'static str, String>) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (shown(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (render(parts, charts)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn render(parts: &[Part], charts: &BTreeMap<&'static str, String>) -> Markup {
    html! {
        @for part in parts {
            @match part {
                Part::Heading(1, title) => h1 { (shown(title)) },
                Part::Heading(_, title) => h2 id=(anchor(title)) { (shown(title)) },
                Part::Text(text) => p { (code(text)) },
                Part::List(items) => ul { @for item in items { li { (code(item)) } } },
                Part::Table(head, rows) => div.scroll {
                    table class=[sortable(rows.len())] {
                        thead { tr { @for cell in head { th scope="col" { (shown(cell)) } } } }
                        tbody {
                            @for row in rows {
                                tr { @for cell in row { td { (shown(cell)) } } }
                            }
                        }
                    }
                },
                Part::Linked(head, rows) => div.scroll {
                    table class=[sortable(rows.len())] {
                        thead { tr { @for cell in head { th scope="col" { (shown(cell)) } } } }
                        tbody { @for row in rows { (linked(row)) } }
                    }
                },
                Part::Matrix(head, rows) => div.scroll {
                    table.matrix {
                        thead { tr { @for cell in head { th scope="col" { (shown(cell)) } } } }
                        tbody {
                            @for (name, cells) in rows {
                                tr {
                                    th scope="row" { (shown(name)) }
                                    @for (candidate, cell) in head.iter().skip(1).zip(cells) {
                                        @match cell {
                                            Some((verdict, why)) => td data-label=(shown(candidate)) {
                                                strong class=(verdict.name().replace(' ', "-")) { (verdict.name()) }
                                                " " (shown(why))
                                            },
                                            None => td.none { "–" },
                                        }
                                    }
                                }
                            }
                        }
                    }
                },
                Part::Chart(stem, shows) => @if let Some(svg) = charts.get(stem) {
                    figure {
                        (PreEscaped(svg))
                        figcaption { (shown(shows)) }
                    }
                },
                Part::Folded(summary, parts) => details {
                    summary { (shown(summary)) }
                    (render(parts, charts))
                },
            }
        }
    }
}

fn linked(row: &LinkedRow) -> Markup {
    html! {
        tr id=[Some(&row.anchor).filter(|anchor| !anchor.is_empty())] {
            @for (at, cell) in row.cells.iter().enumerate() {
                td {
                    @if at == 0 && !row.to.is_empty() {
                        a href=(format!("#{}", row.to)) { (shown(cell)) }
                    } @else {
                        (code(cell))
                    }
                }
            }
        }
    }
}

/// The class of a table that can be sorted.
fn sortable(rows: usize) -> Option<&'static str> {
    (rows > 1).then_some("sortable")
}

/// The anchor of a heading, as Markdown pages have it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Renders text, with `code` for parts between backquotes.
fn code(text: &str) -> Markup {
    html! {
        @for (at, piece) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (shown(piece)) } } @else { (shown(piece)) }
        }
    }
}
