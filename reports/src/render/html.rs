//! A page as one self-contained HTML file, with inline charts, for dark, light, wide and narrow screens.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::page::Part;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2125; --paper: #fcfcfa; --line: #d5d8dc; --faint: #f1f2f0; --accent: #0a5f9e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --paper: #16191c; --line: #3a4046; --faint: #1f2428; --accent: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); min-width: 4rem; }
td { max-width: 24rem; } th { background: var(--faint); white-space: nowrap; }
tbody th { background: none; font-weight: 600; }
figure { margin: 1rem 0; overflow-x: auto; } figure svg { width: 100%; min-width: 40rem; height: auto; max-width: 60rem; color: var(--ink); }
figcaption { font-size: .85rem; } summary { cursor: pointer; color: var(--accent); margin: 1rem 0; }
code { background: var(--faint); padding: 0 .25rem; }
";

/// Renders the page. `charts` has the inline SVG of each chart by stem.
pub(super) fn html(title: &str, parts: &[Part], charts: &BTreeMap<&'static str, String>) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (render(parts, charts)) } }
        }
    };
    page.into_string()
}

fn render(parts: &[Part], charts: &BTreeMap<&'static str, String>) -> Markup {
    html! {
        @for part in parts {
            @match part {
                Part::Heading(1, title) => h1 { (title) },
                Part::Heading(_, title) => h2 { (title) },
                Part::Text(text) => p { (code(text)) },
                Part::List(items) => ul { @for item in items { li { (code(item)) } } },
                Part::Table(head, rows) => div.scroll {
                    table {
                        thead { tr { @for cell in head { th scope="col" { (cell) } } } }
                        tbody {
                            @for row in rows {
                                tr { @for cell in row { td { (cell) } } }
                            }
                        }
                    }
                },
                Part::Chart(stem, shows) => @if let Some(svg) = charts.get(stem) {
                    figure {
                        (PreEscaped(svg))
                        figcaption { (shows) }
                    }
                },
                Part::Folded(summary, parts) => details {
                    summary { (summary) }
                    (render(parts, charts))
                },
            }
        }
    }
}

/// Renders text, with `code` for parts between backquotes.
fn code(text: &str) -> Markup {
    html! {
        @for (at, piece) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}
