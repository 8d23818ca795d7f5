//! The names that claims may use besides those of a run: built-in backends, workloads and fault scenarios.

use std::collections::BTreeSet;

use backends::registry::Registry;
use verdicts::claims::{Catalogue, KnownWorkload};
use workloads::definition::SessionSource;
use workloads::{catalogue, fault};

/// Everything that is built in.
#[derive(Debug, Default)]
pub struct BuiltIn(pub Registry);

impl BuiltIn {
    /// The arm of the backend that a user may call `name`. Its own name has the server that `name` may leave out.
    pub fn arm(&self, name: &str) -> Option<String> {
        // A path names a backend's file, and no arm.
        let is_path = name.ends_with(".toml");
        let found = (!is_path).then(|| self.0.find(name).ok())??;
        Some(found.describe().name)
    }
}

impl Catalogue for BuiltIn {
    fn workload(&self, name: &str) -> Option<KnownWorkload> {
        let workload = catalogue::workload(name).ok()?;
        let states = workload.states.iter();
        let kinds = workload.script.timed_calls().into_iter();
        let mut policies: BTreeSet<String> = workload.contexts.iter().cloned().collect();
        if let SessionSource::Stated { published, .. } = &workload.session {
            policies.extend(published.iter().map(|(name, _)| name.clone()));
        }
        Some(KnownWorkload {
            states: states.map(|state| state.name().to_owned()).collect(),
            kinds: kinds.map(|(kind, _)| kind.to_string()).collect(),
            policies,
        })
    }

    fn has_arm(&self, name: &str) -> bool {
        self.arm(name).is_some()
    }

    #[expect(clippy::expect_used, reason = "a test reads every built-in scenario")]
    fn scenarios(&self) -> BTreeSet<String> {
        let scenarios = fault::scenarios().expect("built-in scenarios are right");
        let scenarios = scenarios.into_iter();
        scenarios.map(|scenario| scenario.name).collect()
    }

    fn names(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let workloads = catalogue::workload_names().into_iter().collect();
        let backends = self.0.all().map(|backend| backend.describe().name);
        (workloads, backends.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdicts::claims::{ClaimFile, built_in, check};

    #[test]
    fn every_built_in_claim_names_what_exists() {
        for (name, text) in built_in() {
            let file = ClaimFile::parse(&name, text).unwrap();
            check(&file, &[&BuiltIn::default()]).unwrap();
        }
    }

    #[test]
    fn the_documented_claim_file_can_be_judged() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/HOWTO.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## Add a claim").unwrap();
        let (_, block) = section.split_once("```toml\n").unwrap();
        let (text, _) = block.split_once("```").unwrap();
        let file = ClaimFile::parse("HOWTO.md".as_ref(), text).unwrap();
        check(&file, &[&BuiltIn::default()]).unwrap();
        let judged = verdicts::claims::judge_file(&file, &[]);
        let command = "ctxbench run --workload micro/read-1k --backend sqlite";
        assert_eq!(judged[0].settle.as_deref(), Some(command));
    }

    #[test]
    fn a_claim_about_an_unknown_cell_is_refused_with_file_line_and_field() {
        let error = |field: &str| {
            let text = format!(
                "source = 's'\n[[claim]]\nid = 'c'\nquote = 'q'\nsays = {{ below = 1.0, unit = 'ms' }}\n[claim.test.reading]\n{field}\n"
            );
            let file = ClaimFile::parse("c.toml".as_ref(), &text);
            let checked = file.and_then(|file| check(&file, &[&BuiltIn::default()]));
            checked.unwrap_err().to_string()
        };
        let unknown = error(
            "arm = 'direct'\n[claim.test.reading.measure.latency]\nworkload = 'micro/none'\nstate = 'hot'\nmetric = 'read'",
        );
        assert!(
            unknown.starts_with("c.toml:9: field `claim[0].test.reading.measure.latency.workload`: claim c: unknown workload \"micro/none\"; the nearest are micro/"),
            "{unknown}"
        );
        let unknown = error(
            "arm = 'sqlight'\n[claim.test.reading.measure.latency]\nworkload = 'micro/stat'\nstate = 'hot'\nmetric = 'stat'",
        );
        assert!(unknown.contains("unknown arm \"sqlight\"; the nearest are sqlite"), "{unknown}");
        let unknown = error(
            "arm = 'direct'\n[claim.test.reading.measure.latency]\nworkload = 'micro/stat'\nstate = 'warm'\nmetric = 'stat'",
        );
        assert!(
            unknown.starts_with("c.toml:10: field `claim[0].test.reading.measure.latency.state`")
                && unknown.contains("unknown state \"warm\"; use hot, lukewarm or cold"),
            "{unknown}"
        );
        let unknown = error(
            "arm = 'direct'\n[claim.test.reading.measure.latency]\nworkload = 'micro/stat'\nstate = 'hot'\nmetric = 'read'",
        );
        assert!(unknown.contains("micro/stat has no metric \"read\"; use one of ready, stat"), "{unknown}");
    }
}
