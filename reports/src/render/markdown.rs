//! A page as Markdown.

use super::page::Part;

pub(super) fn markdown(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Heading(level, title) => {
                text += &format!("{} {title}\n\n", "#".repeat(usize::from(*level)));
            }
            Part::Text(paragraph) => text += &format!("{paragraph}\n\n"),
            Part::List(items) => {
                for item in items {
                    text += &format!("- {item}\n");
                }
                text.push('\n');
            }
            Part::Table(head, rows) => {
                let head: Vec<&str> = head.iter().map(String::as_str).collect();
                text += &format!("{}\n", markdown_table(&head, rows));
            }
            Part::Chart(stem, shows) => text += &format!("![{shows}](charts/{stem}.svg)\n\n"),
            Part::Folded(summary, parts) => {
                text += &format!("<details><summary>{summary}</summary>\n\n");
                text += &markdown(parts);
                text += "</details>\n\n";
            }
        }
    }
    text
}

/// A table in Markdown.
pub fn markdown_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = line(head);
    text += &line(&vec!["---"; head.len()]);
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn line(cells: &[&str]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| cell.replace('|', "\\|").replace('\n', " "))
        .collect();
    format!("| {} |\n", cells.join(" | "))
}
