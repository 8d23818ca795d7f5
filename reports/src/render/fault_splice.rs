//! The tables of a fault run in a document, each between two marks.

use super::fault_crash::crash_points;
use super::fault_groups::{bucket, model};
use super::faults::{findings, matrix_table};
use super::markdown::markdown;
use super::output::WriteError;
use super::part::Part;
use rundir::Run;

/// Replaces the text between `<!-- NAME -->` and `<!-- end of NAME -->` by the run's table of that name.
/// The names are `MATRIX`, `CRASH`, `FINDINGS`, `BUCKET` and `MODEL`.
/// Tables that the run does not have stay unchanged. Returns the text and the names of the replaced tables.
///
/// # Errors
/// If a mark has no end, or the text has no mark for any table of the run.
pub fn splice_faults(run: &Run, text: &str) -> Result<(String, Vec<&'static str>), WriteError> {
    let sections = [
        ("MATRIX", matrix_table(run)),
        ("CRASH", crash_points(run)),
        ("FINDINGS", findings(run)),
        ("BUCKET", bucket(run)),
        ("MODEL", model(run)),
    ];
    let mut text = text.to_owned();
    let mut replaced = Vec::new();
    for (name, section) in sections {
        let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
        let Some((before, rest)) = text.split_once(&begin) else {
            continue;
        };
        let (_, after) =
            rest.split_once(&end).ok_or_else(|| WriteError::Format(format!("`{begin}` has no `{end}` after it")))?;
        if section.is_empty() {
            continue;
        }
        let mut parts = vec![source(run)];
        parts.extend(section);
        let section = markdown(&parts);
        text = format!("{before}{begin}\n{}\n{end}{after}", section.trim_end());
        replaced.push(name);
    }
    if replaced.is_empty() {
        return Err(WriteError::Format("no mark such as `<!-- MATRIX -->` of anything that the run has".to_owned()));
    }
    Ok((text, replaced))
}

fn source(run: &Run) -> Part {
    let kernel = run.environment.kernel.split(' ').next().unwrap_or_default();
    Part::Text(format!(
        "From the run of {}, ctxbench {} ({}), on {} ({} processors), Linux {kernel}, as {}:",
        run.plan.created,
        run.plan.ctxbench,
        run.environment.build,
        run.environment.cpu,
        run.environment.cpus,
        run.environment.user,
    ))
}
