//! Turns a run directory into a report and a decision, for the commands `run`, `report`, `decide` and `claims`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use figures::evidence::CRON_KILL;
use inputs::files::{self, PAGE};
use inputs::names::FileName;
use reports::answer::Overview;
use reports::render::{Report, bencher, github_action_benchmark, put_output, results_page, splice, submission, write};
use reports::sessions::{self, SESSIONS, TriedSession};
use rundir::{POLICY, Plan, Run};
use trial::features::features;
use verdicts::claims::{self, Catalogue, ClaimResult};
use verdicts::decide::{Decision, Evidence, Names, Policy, built_in, check_compatible, check_distinct, decide, find};
use workloads::catalogue::workload_names;
use workloads::script::CallKind;

use crate::built_in_names::BuiltIn;
use crate::evidence::{PriceList, SummarisedRun};
use crate::progress_line::ProgressLine;
use crate::shell_word::shell_word;
use trial::probes::probe_names;

/// A run with everything derived from it.
pub struct ReportInputs {
    /// The run of the report, with what follows from it alone.
    pub reported: SummarisedRun,
    /// The published figures, judged by this run.
    pub claims: Vec<ClaimResult>,
    /// The decisions by its policies.
    pub decisions: Vec<Decision>,
    /// The answer that follows from them.
    pub overview: Overview,
    /// The directories of the other runs that claims and decisions rest on.
    others: Vec<PathBuf>,
    /// The policy file that the command line names.
    policy_file: Option<String>,
    prices: PriceList,
    /// The sessions that `ctxbench try` was given.
    sessions: Vec<TriedSession>,
}

/// A policy with its text, and its file for error messages.
pub struct OwnPolicy {
    pub policy: Policy,
    pub file: PathBuf,
    pub text: String,
    /// Whether it is one of ours, whose names a test checks.
    is_built_in: bool,
}

impl OwnPolicy {
    /// The built-in policy or policy file `name`.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let (file, text) = find(name)?;
        let policy = Policy::parse(&file, &text)?;
        let is_built_in = !name.ends_with(".toml");
        Ok(Self { policy, file, text, is_built_in })
    }

    /// Checks the names of a user's policy against ours and those of all plans of its evidence.
    fn check_names<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> anyhow::Result<()> {
        if !self.is_built_in {
            let names = known_names(&self.policy, plans)?;
            self.policy.check_names(&self.file, &self.text, &names)?;
        }
        Ok(())
    }

    /// Checks the names of a user's policy, but those of arms, before a run. Returns the unknown arms, which another run
    /// may have.
    pub fn check_names_before_run(&self, plan: &Plan) -> anyhow::Result<Vec<&str>> {
        if self.is_built_in {
            return Ok(Vec::new());
        }
        let names = known_names(&self.policy, std::iter::once(plan))?;
        self.policy.check_rows(&self.file, &self.text, &names)?;
        Ok(self.policy.unknown_arms(&names))
    }
}

/// The arms that a name or pattern may mean beside the listed ones: on another server, or behind a delay.
fn unlisted_arms<'a>(built_in: &'a BuiltIn, named: &'a str) -> impl Iterator<Item = String> + 'a {
    // No list has every delay: the start of a pattern, as `s3-minio@3*`, is completed to an arm, as `s3-minio@3ms`.
    let completions: &[&str] = if named.ends_with('*') { &["", "1ms", "ms", "s"] } else { &[""] };
    let start = named.strip_suffix('*').unwrap_or(named);
    completions.iter().filter_map(move |end| built_in.arm(&format!("{start}{end}")))
}

/// The names that a policy may use: ours, and those of these plans.
fn known_names<'a>(policy: &Policy, plans: impl Iterator<Item = &'a Plan>) -> anyhow::Result<Names> {
    let built_in = BuiltIn::default();
    let (_, mut arms) = built_in.names();
    arms.extend(policy.arms().flat_map(|named| unlisted_arms(&built_in, named)));
    let scenarios = workloads::fault::scenarios()?.into_iter();
    let kinds = CallKind::ALL.iter().map(|kind| kind.name().to_owned());
    let mut names = Names {
        workloads: workload_names().into_iter().collect(),
        metrics: kinds.collect(),
        scenarios: scenarios.map(|scenario| scenario.name).collect(),
        arms,
        probes: probe_names(),
        features: features().map(|feature| feature.full_name()).collect(),
    };
    names.scenarios.insert(CRON_KILL.to_owned());
    plans.for_each(|plan| names.add(plan));
    Ok(names)
}

/// Every built-in policy.
pub const ALL_POLICIES: &str = "all";

/// The policies that decide on runs: `asked`, which may be [`ALL_POLICIES`]; else those that a single run was made for.
/// `others` are further runs of the evidence, whose names a policy may use.
pub fn policies(asked: Option<&str>, runs: &[&Run], others: &[SummarisedRun]) -> anyhow::Result<Vec<OwnPolicy>> {
    let built_in = || built_in().iter().map(|name| OwnPolicy::named(name)).collect();
    match (asked, runs) {
        (Some(ALL_POLICIES), _) => built_in(),
        (Some(name), _) => {
            // What a run was made for comes before the built-in policy of the same name; another one needs none of it.
            let own = runs.iter().flat_map(|run| of_run(run).unwrap_or_default());
            if let Some(own) = own.into_iter().find(|own| own.policy.name == name) {
                return Ok(vec![own]);
            }
            let policy = OwnPolicy::named(name)?;
            let plans = runs.iter().map(|run| &run.plan);
            policy.check_names(plans.chain(others.iter().map(|other| &other.run.plan)))?;
            Ok(vec![policy])
        }
        (None, [run]) => match &run.policy {
            Some(_) => of_run(run),
            None if run.plan.policies.is_empty() => Ok(Vec::new()),
            None => built_in(),
        },
        (None, _) => built_in(),
    }
}

/// The policies that a run was made for instead of the built-in ones: the one that it was given, and those that `ctxbench
/// try` adds, in the order of their names.
fn of_run(run: &Run) -> anyhow::Result<Vec<OwnPolicy>> {
    let Some(text) = &run.policy else {
        return Ok(Vec::new());
    };
    let file = run.dir.join(POLICY);
    let policy = Policy::parse(&file, text).context(
        "the policy that this run was made for cannot be read (choose another one with --policy NAME, or `--policy all`)",
    )?;
    let own = OwnPolicy { policy, file, text: text.clone(), is_built_in: false };
    let files = run.plan.policies.keys().filter_map(|name| {
        let file = FileName::of_name(name, ".toml").ok()?.within(&run.dir.join(SESSIONS));
        file.is_file().then_some(file)
    });
    let policies = files.map(|file| {
        let name = file.to_str().with_context(|| format!("{}: is not UTF-8 text", file.display()))?;
        OwnPolicy::named(name)
    });
    std::iter::once(Ok(own)).chain(policies).collect()
}

impl ReportInputs {
    /// Reads a run and decides by `policy`, or by the policies in its plan. Claims and decisions rest on the evidence of
    /// `others`, too.
    pub fn of(dir: &Path, others: &[PathBuf], policy: Option<&str>, prices: &PriceList) -> anyhow::Result<Self> {
        let reported = SummarisedRun::read(dir, prices)?;
        let others = others.iter().map(|dir| SummarisedRun::read(dir, prices));
        let others: Vec<SummarisedRun> = others.collect::<Result<_, _>>()?;
        let all = || std::iter::once(&reported).chain(&others);
        let runs: Vec<&Run> = all().map(|each| &each.run).collect();
        check_distinct(&runs).map_err(anyhow::Error::msg)?;
        if let Err(problem) = check_compatible(&runs) {
            bail!("{problem}\n  fix: name runs of one machine, build and plan after --with");
        }
        let evidence = Evidence { runs: all().map(SummarisedRun::evidence).collect() };
        let line = ProgressLine::moving("checking the published claims");
        let claims = claims::judge(&evidence.runs)?;
        line.show(0.5, None, "deciding by the policies");
        let chosen = policies(policy, &[&reported.run], &others)?;
        let decisions = chosen.iter();
        let decisions = decisions.flat_map(|policy| decide(&policy.policy, &policy.text, &evidence));
        let decisions: Vec<Decision> = decisions.collect();
        let overview = Overview::of(&decisions, &evidence.runs);
        Ok(Self {
            overview,
            policy_file: policy.filter(|name| name.ends_with(".toml")).map(str::to_owned),
            prices: prices.clone(),
            sessions: sessions::read(dir)?,
            others: others.iter().map(|each| each.run.dir.clone()).collect(),
            reported,
            claims,
            decisions,
        })
    }

    /// The command that decides again on a candidate by a policy, and prints its rows.
    pub fn deciding(&self, policy: &str, candidate: &str) -> String {
        let dirs = std::iter::once(&self.reported.run.dir).chain(&self.others);
        let dirs = dirs.map(|dir| shell_word(&dir.display().to_string()));
        let policy = self.policy_file.as_deref().unwrap_or(policy);
        let mut words = vec!["ctxbench decide".to_owned()];
        words.extend(dirs);
        words.push(format!("--policy {} --candidate {}", shell_word(policy), shell_word(candidate)));
        words.extend(self.prices.option());
        words.join(" ")
    }

    fn report(&self) -> Report<'_> {
        Report {
            run: &self.reported.run,
            summary: &self.reported.summary,
            contexts: &self.reported.contexts,
            claims: &self.claims,
            decisions: self.decisions.clone(),
            overview: &self.overview,
            others: &self.others,
            sessions: &self.sessions,
        }
    }

    /// Writes the report's excerpt between the marks in a file.
    pub fn splice_into(&self, file: &Path, links: &str) -> anyhow::Result<()> {
        let text = files::read_text(file, PAGE)?;
        put_output(file, &splice(&self.report(), &text, links)?)?;
        Ok(())
    }

    /// The run in one file. `records` is the SHA-256 of each of its files of records.
    pub fn submission(&self, records: &BTreeMap<String, String>) -> anyhow::Result<String> {
        Ok(submission(&self.report(), records)?)
    }

    /// The ratios as github-action-benchmark reads them.
    pub fn github_action_benchmark(&self) -> anyhow::Result<String> {
        Ok(github_action_benchmark(&self.report())?)
    }

    /// The ratios in Bencher's metric format.
    pub fn bencher(&self) -> anyhow::Result<String> {
        Ok(bencher(&self.report())?)
    }

    /// The results page, to which user pages link.
    pub fn results_page(&self) -> String {
        results_page(&self.report())
    }

    /// Writes the report into the run's directory. Returns the page's path.
    pub fn write(&self) -> anyhow::Result<PathBuf> {
        self.write_into(&self.reported.run.dir)
    }

    /// Writes the report into a directory. Returns the page's path.
    pub fn write_into(&self, dir: &Path) -> anyhow::Result<PathBuf> {
        let _line = ProgressLine::moving("writing the report");
        write(&self.report(), dir).with_context(|| format!("writing the report into {}", dir.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_is_told_with_a_fix() {
        let dir = tempfile::tempdir().unwrap();
        let error = put_output(&dir.path().join("none/report.md"), "").unwrap_err().to_string();
        assert!(error.contains("none/report.md: ") && error.contains("\n  fix: "), "{error}");
    }

    #[test]
    fn built_in_policies_name_only_what_there_is() {
        for policy in policies(Some(ALL_POLICIES), &[], &[]).unwrap() {
            let names = known_names(&policy.policy, std::iter::empty()).unwrap();
            policy.policy.check_names(&policy.file, &policy.text, &names).unwrap();
        }
    }

    #[test]
    fn a_policy_that_a_run_was_made_for_comes_before_the_built_in_one_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (_, text) = find("coding-agent").unwrap();
        let own = text.replacen("question = ", "question = \"Of this run?\" #", 1);
        let mut run = Run { dir: dir.path().to_owned(), policy: Some(own), ..Run::default() };
        let (_, further) = find("long-context").unwrap();
        std::fs::create_dir(dir.path().join(SESSIONS)).unwrap();
        let file = dir.path().join(SESSIONS).join("long-context.toml");
        std::fs::write(&file, further.replacen("question = ", "question = \"Of these sessions?\" #", 1)).unwrap();
        run.plan.policies.insert("long-context".to_owned(), String::new());
        let questions = |asked: Option<&str>| {
            let chosen = policies(asked, &[&run], &[]).unwrap();
            chosen.into_iter().map(|own| own.policy.question).collect::<Vec<_>>()
        };
        assert_eq!(questions(Some("coding-agent")), ["Of this run?"]);
        assert_eq!(questions(Some("long-context")), ["Of these sessions?"]);
        assert_eq!(questions(None), ["Of this run?", "Of these sessions?"]);
        let other = questions(Some("cron-controller"));
        assert!(other.len() == 1 && !other[0].starts_with("Of th"), "{other:?}");
        // One that cannot be read does not stop another.
        run.policy = Some("name = 1".to_owned());
        assert!(policies(None, &[&run], &[]).is_err());
        assert!(policies(Some("cron-controller"), &[&run], &[]).is_ok());
    }

    #[test]
    fn a_misspelt_probe_of_a_policy_is_refused_with_the_known_ones() {
        let (_, text) = find("cron-controller").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        let name = file.to_str().unwrap();
        let checked = |from: &str, to: &str| {
            std::fs::write(&file, text.replace(from, to)).unwrap();
            OwnPolicy::named(name).unwrap().check_names(std::iter::empty())
        };
        checked("", "").unwrap();
        let line = 1 + text.lines().position(|line| line.contains("\"grep\"")).unwrap();
        let at = format!("{name}:{line}: field `gate[0].measure.probes.names`: unknown probe \"grepp\"; ");
        let refused = checked("\"grep\"", "\"grepp\"").unwrap_err().to_string();
        assert!(refused.starts_with(&at), "{refused}");
        assert!(refused.contains("the nearest are grep"), "{refused}");
        let with_arm = |arm: &str| checked("\"view-mail\"", &format!("\"view-mail\", \"{arm}\""));
        for arm in [
            "s3-minio*",
            "s3-seaweedfs",
            "s3-close-minio@30ms",
            "s3-close-minio@3*",
            "s3-close-minio@*",
            "s3-bare-minio@30m*",
            // On any server.
            "s3-close@30ms",
            "s3-close",
        ] {
            with_arm(arm).unwrap();
        }
        // Arms have their server in their names.
        for arm in ["s3-close@*", "direct@*", "s3-minio@x*"] {
            let refused = with_arm(arm).unwrap_err().to_string();
            let unknown = format!("field `candidates.except`: unknown arm {arm:?}");
            assert!(refused.contains(&unknown), "{refused}");
        }
        let refused = checked("view-mail", "view-male").unwrap_err().to_string();
        assert!(refused.contains("field `candidates.except`: unknown arm \"view-male\""), "{refused}");
    }

    #[test]
    fn an_arm_that_another_run_may_have_is_unknown_before_a_run_and_refused_in_a_decision() {
        let (_, text) = find("cron-controller").unwrap();
        let text = text.replace("baseline = \"direct\"", "baseline = \"mine\"");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        let policy_of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            OwnPolicy::named(file.to_str().unwrap()).unwrap()
        };
        let plan = Plan::default();
        let of_mine = policy_of(&text);
        assert_eq!(of_mine.check_names_before_run(&plan).unwrap(), ["mine"]);
        let refused = of_mine.check_names(std::iter::once(&plan)).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("field `baseline`: unknown arm \"mine\": it is neither built in nor part of the run; "),
            "{refused}"
        );
        let misspelt = policy_of(&text.replace("\"grep\"", "\"grepp\""));
        misspelt.check_names_before_run(&plan).unwrap_err();
    }
}
