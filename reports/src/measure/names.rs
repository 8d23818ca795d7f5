//! The names of arms in policies and claims, and the arms of a run that they mean.

use crate::evidence::RunEvidence;

/// Names of servers in arms: a claim about `s3@1ms` is tested by `s3-minio@1ms`.
const SERVERS: [&str; 4] = ["minio", "seaweedfs", "rclone", "embedded"];

/// Whether a name is the pattern, or starts with it if the pattern ends with `*`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

impl RunEvidence<'_> {
    /// The name in this run of an arm that a claim names, whichever server holds its bucket.
    pub(crate) fn arm<'n>(&'n self, wanted: &'n str) -> &'n str {
        let planned = || self.run.plan.arms.iter().map(|arm| arm.name.as_str());
        let found = planned().find(|name| *name == wanted);
        let found = found.or_else(|| planned().find(|name| is_on_server(name, wanted)));
        found.unwrap_or(wanted)
    }
}

/// Whether `planned` is the arm `wanted` on a server: `s3-fresh-minio@1ms` of `s3-fresh@1ms`.
fn is_on_server(planned: &str, wanted: &str) -> bool {
    let (name, distance) = wanted.split_once('@').map_or((wanted, None), split);
    let (planned, at) = planned.split_once('@').map_or((planned, None), split);
    let server = planned
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'));
    distance == at && server.is_some_and(|server| SERVERS.contains(&server))
}

fn split<'a>((name, distance): (&'a str, &'a str)) -> (&'a str, Option<&'a str>) {
    (name, Some(distance))
}

#[cfg(test)]
mod tests {
    use super::is_on_server;

    #[test]
    fn an_arm_is_found_on_any_server_but_not_at_another_distance() {
        assert!(is_on_server("s3-fresh-minio@1ms", "s3-fresh@1ms"));
        assert!(is_on_server("s3-embedded", "s3"));
        assert!(!is_on_server("s3-fresh-minio@30ms", "s3-fresh@1ms"));
        assert!(!is_on_server("s3-fresh-minio", "s3"));
        assert!(!is_on_server("sqlite-writeback", "sqlite"));
    }
}
