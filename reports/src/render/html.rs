//! A page as one self-contained HTML file, with inline charts, for dark, light, wide and narrow screens.

use std::collections::{BTreeMap, HashSet};

use inputs::border::html as shown;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::answers::arm_title;
use super::drawing::{DrawError, Picture};
use super::marks::Marks;
use super::part::{CellGroup, MatrixCell, Part, TableCell, UseBlock, anchor};
use super::stems::USES;
use figures::provenance::Provenance;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2125; --soft: #555c63; --paper: #fcfcfa; --line: #d5d8dc; --faint: #f1f2f0; --accent: #0a5f9e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --soft: #a9b0b7; --paper: #16191c; --line: #3a4046; --faint: #1f2428; --accent: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 78rem; color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--accent); } td a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .2em; } :target { outline: 2px solid var(--accent); } .page:target { outline: none; }
h1, h2, h3, p, li, summary, figcaption { overflow-wrap: anywhere; }
h1 { line-height: 1.2; margin: .5rem 0; } h3 { margin: 2rem 0 .5rem; } p, li, figcaption { max-width: 46rem; }
ul { padding-left: 1.2rem; } h1 + p { color: var(--soft); font-size: .9rem; max-width: 60rem; }
.uses { display: grid; gap: 2rem 2.5rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); margin: 1.5rem 0; }
.use { min-width: 0; border-top: 2px solid var(--ink); padding-top: .5rem; display: flex; flex-direction: column; break-inside: avoid; }
.use h2 { font-size: 1.1rem; margin: 0; } .use h2 small { font-weight: 400; color: var(--soft); margin-left: .4rem; }
.use p { margin: .4rem 0 .8rem; } .use p b { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; font-size: .85rem; } .legend svg { vertical-align: -.15em; margin-right: .3rem; }
svg { color: var(--ink); fill: currentColor; font: 12px sans-serif; dominant-baseline: central; } .g { stroke: currentColor; opacity: .13; } .h { stroke: currentColor; opacity: .3; } .m, .e { text-anchor: middle; font-size: 11px; } .s { font-size: 11px; } .t { font-size: 13px; font-weight: bold; } .e { text-anchor: end; } polyline { fill: none; } svg a { fill: var(--accent); text-decoration: underline; }
figure { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; margin: 1rem 0; overflow-x: auto; } figure svg, .use svg { flex: none; display: block; }
figcaption { font-size: .85rem; flex: 0 0 100%; max-width: none; padding-right: max(0px, 100% - 46rem); color: var(--soft); }
details.page { border-top: 1px solid var(--line); } details.page > summary { padding: .6rem 0; } details.page:last-of-type { border-bottom: 1px solid var(--line); }
details.page > summary h2 { display: inline; font-size: 1.2rem; margin: 0 .5rem 0 0; } details.page > summary span { color: var(--soft); }
summary { cursor: pointer; color: var(--accent); margin: .5rem 0; }
.scroll { position: relative; overflow: auto; max-height: 80vh; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); min-width: 4rem; }
td { max-width: 24rem; } thead th { background: var(--faint); white-space: nowrap; position: sticky; top: 0; }
tbody th { background: none; font-weight: 600; } .cells td { white-space: nowrap; } .cells tbody th { padding-top: 1rem; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--accent); }
th button::after { content: ' \\21C5'; opacity: .6; } [aria-sort=ascending] button::after { content: ' \\2191'; opacity: 1; } [aria-sort=descending] button::after { content: ' \\2193'; opacity: 1; }
.filter { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--soft); border-radius: .2rem; padding: .2rem .5rem; margin-top: 1rem; max-width: 100%; }
.adopt, .adopt-if, .archive, .not-decided { padding: 0 .3rem; border-radius: .2rem; border: 1px solid var(--ink); white-space: nowrap; }
.adopt { background: var(--ink); color: var(--paper); } .adopt-if { background: var(--faint); } .not-decided { border-style: dashed; font-weight: 400; }
@media (min-width: 40rem) { .names td:first-child { white-space: nowrap; max-width: none; } }
@media (max-width: 40rem) {
.scroll table { width: max-content; } .scroll .matrix { width: auto; } td { max-width: 15rem; }
.matrix thead { position: absolute; clip-path: inset(50%); } .matrix tr, .matrix td, .matrix tbody th { display: block; max-width: none; }
.matrix tr { border-bottom: 1px solid var(--line); padding: .5rem 0; } .matrix td, .matrix tbody th { border: 0; padding: .15rem 0; }
.matrix td::before { content: attr(data-label) ': '; } .matrix .none { display: none; } .matrix tbody th { font-size: 1rem; }
}
code { background: var(--faint); padding: 0 .25rem; overflow-wrap: anywhere; }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --paper: #fff; --line: #bbb; --faint: #eee; --accent: #004a80; } body { max-width: none; padding: 0; font-size: 10pt; } .scroll, figure { overflow: visible; max-height: none; } table { font-size: 7pt; } th, thead th { white-space: normal; position: static; } .cells td { white-space: normal; } .filter { display: none; } th button::after { content: ''; } tr, svg { break-inside: avoid; } h2, h3 { break-after: avoid; } details::details-content { content-visibility: visible; height: auto; } }
";

/// Makes tables sortable by buttons in their heads, gives long ones a filter, and opens the section that a link leads into.
/// Numbers are compared with their units; cells without a number come last.
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
for (const table of document.querySelectorAll('table.filtered')) {
  const filter = document.createElement('input');
  filter.type = 'search';
  filter.className = 'filter';
  filter.placeholder = 'Filter by words';
  filter.setAttribute('aria-label', 'Show the rows with all of these words');
  table.parentElement.before(filter);
  filter.addEventListener('input', () => {
    const words = filter.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const body of table.tBodies) {
      const group = body.rows[0].querySelector('th[colspan]') && body.rows[0];
      const title = group ? group.textContent.toLowerCase() + ' ' : '';
      let shown = 0;
      for (const row of body.rows) {
        if (row === group) continue;
        const text = title + row.textContent.toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
        shown += !row.hidden;
      }
      if (group) group.hidden = !shown;
    }
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

/// Renders the page. `charts` has the pictures by stem, and `marks` the marks of a legend.
pub(super) fn html(
    title: &str,
    parts: &[Part],
    charts: &BTreeMap<&'static str, Picture>,
    marks: Option<&Marks>,
) -> Result<String, DrawError> {
    let mut anchors = HashSet::new();
    collect_anchors(parts, &mut anchors);
    let page = Page { charts, anchors, marks };
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
                main { (page.render(parts)?) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(without_optional_tags(page.into_string()))
}

/// A page without the end tags of cells, rows and items, which HTML lets a page omit: a tenth of its bytes.
/// No text has these bytes, because its `<` is encoded.
fn without_optional_tags(mut page: String) -> String {
    for (long, short) in [
        ("</td><td", "<td"),
        ("</td></tr>", "</tr>"),
        ("</th><th", "<th"),
        ("</th></tr>", "</tr>"),
        ("</tr><tr", "<tr"),
        ("</tr></tbody>", "</tbody>"),
        ("</li><li", "<li"),
        ("</li></ul>", "</ul>"),
    ] {
        page = page.replace(long, short);
    }
    page
}

/// The anchors of all parts, so that no link leads nowhere.
fn collect_anchors(parts: &[Part], anchors: &mut HashSet<String>) {
    for part in parts {
        match part {
            Part::Heading(_, title) => {
                anchors.insert(anchor(title));
            }
            Part::Linked(_, rows) => {
                let named = rows.iter().filter(|row| !row.anchor.is_empty());
                anchors.extend(named.map(|row| row.anchor.clone()));
            }
            Part::Cells(_, groups) => {
                anchors.extend(groups.iter().map(|group| group.anchor.clone()));
                let rows = groups.iter().flat_map(|group| &group.rows);
                anchors.extend(rows.map(|row| row.anchor.clone()));
            }
            Part::Section(section) => {
                anchors.insert(anchor(section.title));
                collect_anchors(&section.parts, anchors);
            }
            Part::Folded(_, parts) => collect_anchors(parts, anchors),
            _ => {}
        }
    }
}

/// What the parts of a page need.
struct Page<'a> {
    charts: &'a BTreeMap<&'static str, Picture>,
    anchors: HashSet<String>,
    marks: Option<&'a Marks>,
}

impl Page<'_> {
    fn render(&self, parts: &[Part]) -> Result<Markup, DrawError> {
        let parts: Result<Vec<Markup>, DrawError> = parts.iter().map(|part| self.part(part)).collect();
        let parts = parts?;
        Ok(html! { @for part in parts { (part) } })
    }

    fn part(&self, part: &Part) -> Result<Markup, DrawError> {
        Ok(match part {
            Part::Heading(1, title) => html! { h1 { (shown(title)) } },
            Part::Heading(2, title) => html! { h2 id=(anchor(title)) { (shown(title)) } },
            Part::Heading(_, title) => html! { h3 id=(anchor(title)) { (shown(title)) } },
            Part::Text(text) => html! { p { (code(&Provenance::unbroken(text))) } },
            Part::List(items) => html! { ul { @for item in items { li { (code(item)) } } } },
            Part::Files(files) => html! {
                ul { @for (words, path) in files { li { a href=(path) { (words) } } } }
            },
            Part::Table(head, rows) => table(
                head,
                class(rows.iter().map(|row| row.first().map_or("", String::as_str))),
                html! {
                    @for row in rows {
                        tr { @for cell in row { td { (code(cell)) } } }
                    }
                },
            ),
            Part::Linked(head, rows) => table(
                head,
                class(rows.iter().map(|row| row.cells.first().map_or("", |cell| cell.text.as_str()))),
                html! {
                    @for row in rows {
                        tr id=[Some(&row.anchor).filter(|anchor| !anchor.is_empty())] {
                            @for cell in &row.cells { td { (self.linked(cell)) } }
                        }
                    }
                },
            ),
            Part::Matrix(head, rows) => matrix(head, rows),
            Part::Chart(stem, shows) => match self.charts.get(stem) {
                Some(picture) => html! {
                    figure {
                        figcaption { (shown(shows)) }
                        (PreEscaped(picture.for_page()))
                    }
                },
                None => html! {},
            },
            Part::Folded(summary, parts) => {
                let parts = self.render(parts)?;
                html! { details { summary { (shown(summary)) } (parts) } }
            }
            Part::Section(section) => {
                let parts = self.render(&section.parts)?;
                html! {
                    details.page id=(anchor(section.title)) {
                        summary { h2 { (shown(section.title)) } span { (shown(section.about)) } }
                        (parts)
                    }
                }
            }
            Part::Uses(uses) => html! {
                div.uses { @for answer in uses { (self.answer(answer)) } }
            },
            Part::Legend(entries) => self.legend(entries)?,
            Part::Cells(head, groups) => cells(head, groups),
        })
    }

    fn linked(&self, cell: &TableCell) -> Markup {
        html! {
            @if self.anchors.contains(&cell.to) {
                a href=(format!("#{}", cell.to)) { (shown(&cell.text)) }
            } @else {
                (code(&cell.text))
            }
        }
    }

    fn answer(&self, answer: &UseBlock) -> Markup {
        let picture = self.charts.get(USES).and_then(|picture| picture.0.get(answer.panel));
        let (advice, reasons) = match answer.sentences.split_first() {
            Some((advice, reasons)) => (Provenance::unbroken(advice), Provenance::unbroken(&reasons.join(" "))),
            None => (String::new(), String::new()),
        };
        html! {
            article.use {
                h2 { (shown(&answer.title)) small { (shown(&answer.confidence)) } }
                p {
                    b { (code(&advice)) } " " (code(&reasons)) " "
                    @if self.anchors.contains(&answer.why) {
                        a href=(format!("#{}", answer.why)) { "Why" }
                    }
                }
                @if let Some(panel) = picture { (PreEscaped(panel.for_page())) }
            }
        }
    }

    fn legend(&self, entries: &[(String, String)]) -> Result<Markup, DrawError> {
        let drawn = entries.iter().map(|(name, what)| {
            let mark = self.marks.map(|marks| marks.get(name).alone()).transpose()?;
            Ok((mark.map(|mark| mark.for_page()), name, what))
        });
        let drawn: Result<Vec<_>, DrawError> = drawn.collect();
        let drawn = drawn?;
        Ok(html! {
            ul.legend {
                @for (mark, name, what) in drawn {
                    li {
                        @if let Some(mark) = mark { (PreEscaped(mark)) }
                        b { (shown(arm_title(name))) } " " (shown(what))
                    }
                }
            }
        })
    }
}

/// A table that scrolls beside the page's text.
fn table(head: &[String], class: String, body: Markup) -> Markup {
    html! {
        div.scroll {
            table class=[Some(class).filter(|class| !class.is_empty())] {
                thead { tr { @for cell in head { th { (shown(cell)) } } } }
                tbody { (body) }
            }
        }
    }
}

/// The classes of a table by its first column: it can be sorted, or filtered, too, and its rows begin with names, which no
/// line breaks.
fn class<'a>(first: impl Iterator<Item = &'a str> + Clone) -> String {
    const LONG: usize = 8;
    let mut classes = match first.clone().count() {
        0 | 1 => Vec::new(),
        2..LONG => vec!["sortable"],
        _ => vec!["sortable", "filtered"],
    };
    if first.clone().all(|cell| !cell.contains(' ')) {
        classes.push("names");
    }
    classes.join(" ")
}

fn matrix(head: &[String], rows: &[(String, Vec<MatrixCell>)]) -> Markup {
    html! {
        div.scroll {
            table.matrix {
                thead { tr { @for cell in head { th { (shown(cell)) } } } }
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
        }
    }
}

/// The table of all cells: a group for each metric of a workload in a cache state.
fn cells(head: &[String], groups: &[CellGroup]) -> Markup {
    html! {
        div.scroll {
            table.filtered.cells {
                thead { tr { @for cell in head { th { (shown(cell)) } } } }
                @for group in groups {
                    tbody id=(shown(&group.anchor)) {
                        tr {
                            th colspan=(head.len()) {
                                (shown(&group.title)) " "
                                a href=(shown(&group.passes)) { "passes" }
                                " " code { (shown(&group.command)) }
                            }
                        }
                        @for row in &group.rows {
                            tr id=(row.anchor) { @for cell in &row.cells { td { (shown(cell)) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Renders text, with `code` for parts between backquotes.
fn code(text: &str) -> Markup {
    html! {
        @for (at, piece) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (shown(piece)) } } @else { (shown(piece)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_whose_rows_begin_with_names_does_not_break_them() {
        assert_eq!(class(["agent/claude-code-write-heavy", "micro/stat"].into_iter()), "sortable names");
        assert_eq!(class(["a sentence", "micro/stat"].into_iter()), "sortable");
        assert_eq!(class(["name"; 9].into_iter()), "sortable filtered names");
    }
}
