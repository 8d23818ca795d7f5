//! An operator's burden: what a backend's makers declare.

use serde::Deserialize;

use super::{Evidence, MeasureResult, missing};

/// A part of an operator's burden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BurdenPart {
    /// Processes besides the agent.
    Processes,
    Mounts,
    /// Devices and users that the backend needs.
    Privileges,
    /// Programs, services and secrets that it needs.
    Dependencies,
    /// Lines of this project's code that the files depend on.
    LinesOfCode,
}

impl Evidence<'_> {
    pub(super) fn burden(&self, of: &[BurdenPart], arm: &str) -> MeasureResult {
        let Some(planned) = self.arm(arm) else {
            let command = format!("ctxbench run --backend {arm}");
            return missing(format!("{arm} is in no plan"), command);
        };
        let backend = &planned.backend;
        let needs = backend.needs.iter();
        let names = needs.filter_map(|need| need.split(':').next());
        let (privileges, dependencies): (Vec<&str>, Vec<&str>) =
            names.partition(|name| name.starts_with("/dev/") || *name == "root");
        let mut parts: Vec<String> = Vec::new();
        let (mut sum, mut unknown) = (0, Vec::new());
        for part in of {
            let (count, words) = match part {
                BurdenPart::Processes => (backend.daemons as usize, plural(backend.daemons, "process")),
                BurdenPart::Mounts => (backend.mounts as usize, plural(backend.mounts, "mount")),
                BurdenPart::LinesOfCode if backend.lines_of_code == 0 => {
                    unknown.push("lines of code");
                    continue;
                }
                BurdenPart::LinesOfCode => {
                    let lines = backend.lines_of_code;
                    (lines as usize, format!("{lines} lines of code"))
                }
                BurdenPart::Privileges => (privileges.len(), privileges.join(", ")),
                // The description of an external backend may leave its needs out.
                BurdenPart::Dependencies if backend.file.is_some() && backend.needs.is_empty() => {
                    unknown.push("dependencies");
                    continue;
                }
                BurdenPart::Dependencies => (dependencies.len(), dependencies.join(", ")),
            };
            sum += count;
            if count > 0 {
                parts.push(words);
            }
        }
        // A part without evidence is not zero of it.
        if !unknown.is_empty() {
            let what = format!("{} of {arm}", unknown.join(" and "));
            let known = if parts.is_empty() { String::new() } else { format!(" (beside {})", parts.join(", ")) };
            let command = format!("ctxbench fault --backend {arm}");
            return missing(format!("{what}{known}"), command);
        }
        let words = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
        MeasureResult::exact(sum as f64, words, "plan.toml: arms.backend")
    }
}

fn plural(count: u32, noun: &str) -> String {
    let ending = if noun.ends_with('s') { "es" } else { "s" };
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}{ending}"),
    }
}
