//! A page as Markdown.

use inputs::border;

use super::part::Part;

pub(super) fn markdown(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Heading(level, title) => {
                let title = border::markdown(title);
                text += &format!("{} {title}\n\n", "#".repeat(usize::from(*level)));
            }
            Part::Text(paragraph) => {
                let lines = paragraph.lines().map(border::markdown);
                let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
                text += &format!("{}\n\n", lines.join("\n"));
            }
            Part::List(items) => {
                for item in items {
                    text += &format!("- {}\n", border::markdown(item));
                }
                text.push('\n');
            }
            Part::Table(head, rows) => text += &format!("{}\n", markdown_table(head, rows)),
            Part::Linked(head, rows) => {
                let rows: Vec<Vec<String>> = rows.iter().map(|row| row.cells.clone()).collect();
                text += &format!("{}\n", markdown_table(head, &rows));
            }
            Part::Matrix(head, rows) => {
                let rows = rows.iter().map(|(name, cells)| {
                    let cells = cells.iter().map(|cell| match cell {
                        Some((verdict, why)) => format!("**{}** {why}", verdict.name()),
                        None => "–".to_owned(),
                    });
                    std::iter::once(name.clone()).chain(cells).collect()
                });
                let rows: Vec<Vec<String>> = rows.collect();
                text += &format!("{}\n", markdown_table(head, &rows));
            }
            Part::Chart(stem, shows) => text += &format!("![{shows}](charts/{stem}.svg)\n\n"),
            Part::Folded(summary, parts) => {
                let summary = border::markdown_html(summary);
                text += &format!("<details><summary>{summary}</summary>\n\n");
                text += &markdown(parts);
                text += "</details>\n\n";
            }
        }
    }
    text
}

/// A table in Markdown.
pub fn markdown_table(head: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let rows = rows.iter().map(|row| line(row));
    let rule = format!("|{}\n", " --- |".repeat(head.len()));
    line(head) + &rule + &rows.collect::<String>()
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cells = cells.iter().map(|cell| border::markdown(cell.as_ref()));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}
