//! A page as Markdown.

use inputs::border;

use super::part::{LinkedRow, Part};

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
            Part::Files(files) => {
                for (words, path) in files {
                    let words = border::markdown(words);
                    text += &format!("- [{words}]({})\n", target(path));
                }
                text.push('\n');
            }
            Part::Table(head, rows) => text += &format!("{}\n", markdown_table(head, rows)),
            Part::Linked(head, rows) => {
                let texts = |row: &LinkedRow| row.cells.iter().map(|cell| cell.text.clone()).collect();
                let rows: Vec<Vec<String>> = rows.iter().map(texts).collect();
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
            Part::Section(section) => {
                text += &format!("## {}\n\n{}\n\n", section.title, section.about);
                text += &markdown(&section.parts);
            }
            Part::Uses(uses) => {
                for answer in uses {
                    let sentences = answer.sentences.join(" ");
                    // An answer that is not decided says so itself.
                    let line = if sentences.starts_with("Not decided") {
                        format!("**{}**: {sentences}", answer.title)
                    } else {
                        format!("**{}** ({}): {sentences}", answer.title, answer.confidence)
                    };
                    text += &format!("- {}\n", border::markdown(&line));
                }
                text.push('\n');
            }
            // Charts on this page name their arms themselves, and all figures are in the CSV files.
            Part::Legend(_) | Part::Cells(..) => {}
        }
    }
    text
}

/// A path as the target of a link: every byte that could end it or mean something else is percent-encoded.
fn target(path: &str) -> String {
    let encoded = path.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
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
