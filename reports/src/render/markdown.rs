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
                text += &line(head);
                text += &line(&vec!["---".to_owned(); head.len()]);
                for row in rows {
                    text += &line(row);
                }
                text.push('\n');
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

fn line(cells: &[String]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| cell.replace('|', "\\|").replace('\n', " "))
        .collect();
    format!("| {} |\n", cells.join(" | "))
}
