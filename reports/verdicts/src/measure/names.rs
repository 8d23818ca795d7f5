//! The names of arms in policies and claims, and the arms of a run that they mean: one rule for both.

use rundir::Plan;

use super::Evidence;

/// Names of servers in arms: `s3@1ms` means `s3-minio@1ms` in a run of that server.
const SERVERS: [&str; 4] = ["minio", "seaweedfs", "rclone", "embedded"];

/// Whether an arm is meant by a name or pattern: it has that name, is that arm on some server, or starts with the pattern
/// before its `*`.
pub fn matches(pattern: &str, arm: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => arm.starts_with(start),
        None => pattern == arm || is_on_server(arm, pattern),
    }
}

/// The arm of a plan that a name means: the one with that name, else the first one on some server.
pub fn planned<'p>(plan: &'p Plan, name: &str) -> Option<&'p str> {
    let mut arms = plan.arms.iter().map(|arm| arm.name.as_str());
    let same = arms.clone().find(|arm| *arm == name);
    same.or_else(|| arms.find(|arm| is_on_server(arm, name)))
}

impl<'a> Evidence<'a> {
    /// The arm of these runs that a name means, or the name itself if none has it.
    pub fn arm_named<'n>(&self, name: &'n str) -> &'n str
    where
        'a: 'n,
    {
        let plans = || self.runs.iter().map(|run| &run.run.plan);
        let same = plans().any(|plan| plan.arm(name).is_some());
        let found = plans().filter_map(|plan| planned(plan, name)).min();
        found.filter(|_| !same).unwrap_or(name)
    }
}

/// Whether `planned` is the arm `wanted` on a server: `s3-fresh-minio@1ms` of `s3-fresh@1ms`.
fn is_on_server(planned: &str, wanted: &str) -> bool {
    let (name, distance) = wanted.split_once('@').map_or((wanted, None), split);
    let (planned, at) = planned.split_once('@').map_or((planned, None), split);
    let server = planned.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    distance == at && server.is_some_and(|server| SERVERS.contains(&server))
}

fn split<'a>((name, distance): (&'a str, &'a str)) -> (&'a str, Option<&'a str>) {
    (name, Some(distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::testing;

    #[test]
    fn a_name_means_the_same_arm_in_a_policy_and_in_a_claim() {
        for (name, arm, is_meant) in [
            ("s3-fresh@1ms", "s3-fresh-minio@1ms", true),
            ("s3", "s3-embedded", true),
            ("s3", "s3", true),
            ("s3*", "s3-fresh-minio", true),
            ("s3-fresh@1ms", "s3-fresh-minio@30ms", false),
            ("s3", "s3-fresh-minio", false),
            ("sqlite", "sqlite-writeback", false),
            ("s3-minio", "s3-embedded", false),
        ] {
            assert_eq!(matches(name, arm), is_meant, "{name}: {arm}");
            let mut run = testing::run();
            testing::rename_arm(&mut run, "sqlite", arm);
            let found = planned(&run.plan, name) == Some(arm);
            assert_eq!(found, is_meant && !name.ends_with('*'), "{name}: {arm}");
        }
    }

    #[test]
    fn an_arm_with_the_name_itself_comes_before_one_on_a_server() {
        let mut run = testing::run();
        testing::rename_arm(&mut run, "sqlite", "s3-minio");
        testing::copy_arm(&mut run, "s3-minio", "s3");
        assert_eq!(planned(&run.plan, "s3"), Some("s3"));
        let (summary, contexts) = (testing::summary(), testing::contexts());
        let evidence = Evidence::of(&run, &summary, &contexts);
        assert_eq!(evidence.arm_named("s3"), "s3");
        assert_eq!(evidence.arm_named("s3-embedded"), "s3-embedded");
    }
}
