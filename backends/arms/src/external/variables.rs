//! The variables `{name}` of a definition.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;

/// The variable that the environment sets, as `CTXBENCH_DIRECTORY`.
pub(super) const DIRECTORY: &str = "directory";

/// The variables of a workspace. Ports were free when chosen; `id` is derived from the site's path.
pub(super) const OF_SITE: &[&str] =
    &["site", "mount", "data", "id", "port", "port_2", "port_3", "port_4", "port_5", "port_6"];

/// The variables with the first host's values, on both hosts.
pub(super) const OF_FIRST: &[&str] =
    &["first_data", "first_port", "first_port_2", "first_port_3", "first_port_4", "first_port_5", "first_port_6"];

/// The variables of the S3 server.
pub(super) const OF_SERVER: &[&str] = &["s3_server", "s3_endpoint", "s3_bucket", "s3_region", "s3_prefix"];

/// The variables of `read_snapshot` and the other commands of properties.
pub(super) const OF_PROPERTY: &[&str] = &["snapshot", "file", "version", "from", "to"];

/// The variables that no command may contain, because every user of the machine can see its arguments.
pub(super) const SECRET: &[&str] = &["s3_access_key", "s3_secret_key"];

/// The values of all variables.
#[derive(Clone, Default)]
pub(super) struct Variables {
    values: BTreeMap<&'static str, String>,
    secrets: Vec<String>,
}

impl Variables {
    /// The variables that the environment sets.
    pub(super) fn of_the_environment() -> Self {
        let mut variables = Self::default();
        if let Ok(directory) = std::env::var("CTXBENCH_DIRECTORY") {
            variables.set(DIRECTORY, directory);
        }
        variables
    }

    /// The variables of the environment and of a workspace.
    pub(super) fn of_site(site: &Path, mount: &Path, data: &Path) -> io::Result<Self> {
        let mut variables = Self::of_the_environment();
        // Distinct for each site, and stable across its mounts.
        let id = text(site);
        let id: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let id = id[id.len().saturating_sub(40)..].to_lowercase();
        variables.set("id", id);
        variables.set_own(site, mount, data)?;
        for &name in OF_FIRST {
            let plain = name.strip_prefix("first_").unwrap_or(name);
            let value = variables.values.get(plain).cloned().unwrap_or_default();
            variables.set(name, value);
        }
        Ok(variables)
    }

    /// The variables of a second host of the same workspace.
    pub(super) fn of_second(&self, site: &Path, mount: &Path, data: &Path) -> io::Result<Self> {
        let mut variables = self.clone();
        variables.set_own(site, mount, data)?;
        Ok(variables)
    }

    /// Sets the variables that differ between two hosts.
    fn set_own(&mut self, site: &Path, mount: &Path, data: &Path) -> io::Result<()> {
        for (name, value) in [("site", text(site)), ("mount", text(mount)), ("data", text(data))] {
            self.set(name, value);
        }
        // Keep all ports bound until all are chosen, so that no two are the same.
        let mut held = Vec::new();
        for &name in OF_SITE.iter().filter(|name| name.starts_with("port")) {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            self.set(name, listener.local_addr()?.port().to_string());
            held.push(listener);
        }
        Ok(())
    }

    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.values.insert(name, value);
    }

    /// As [`Variables::set`], for a value that must not be printed.
    pub(super) fn set_secret(&mut self, name: &'static str, value: String) {
        self.secrets.push(value.clone());
        self.set(name, value);
    }

    /// `text` with every `{name}` replaced. Unknown names stay; parsing a definition has refused them.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled += before;
            let value = after.split_once('}').and_then(|(name, behind)| Some((self.values.get(name)?, behind)));
            match value {
                Some((value, behind)) => {
                    filled += value;
                    rest = behind;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled + rest
    }

    /// `text` without the secrets, for errors that quote a program's output.
    pub(super) fn redact(&self, text: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The texts in braces that look like a variable's name: lower case, digits and `_`.
pub(super) fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0)).filter(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_others_are_left() {
        let dir = Path::new("/tmp/a");
        let variables = Variables::of_site(dir, &dir.join("mnt"), &dir.join("data")).unwrap();
        assert_eq!(
            variables.fill("{mount}:{data}/x {other} {\"a\": \"{id}\"}"),
            "/tmp/a/mnt:/tmp/a/data/x {other} {\"a\": \"tmpa\"}"
        );
        let port = |name: &str| variables.fill(name).parse::<u16>().unwrap();
        assert_ne!(port("{port}"), port("{port_6}"));
    }

    #[test]
    fn a_second_host_has_its_own_places_and_knows_those_of_the_first() {
        let dir = Path::new("/tmp/a");
        let first = Variables::of_site(dir, &dir.join("mnt"), &dir.join("data")).unwrap();
        let beside = dir.join("second");
        let (mount, data) = (beside.join("mnt"), beside.join("data"));
        let second = first.of_second(&beside, &mount, &data).unwrap();
        assert_eq!(
            second.fill("{site} {mount} {data} {first_data} {id}"),
            "/tmp/a/second /tmp/a/second/mnt /tmp/a/second/data /tmp/a/data tmpa"
        );
        assert_eq!(first.fill("{first_data}"), "/tmp/a/data");
        for of_first in ["port", "port_5"] {
            let theirs = first.fill(&format!("{{{of_first}}}"));
            assert_eq!(second.fill(&format!("{{first_{of_first}}}")), theirs);
            assert_ne!(second.fill(&format!("{{{of_first}}}")), theirs);
        }
    }

    #[test]
    fn a_value_is_not_filled_in_again_and_a_secret_is_not_repeated() {
        let mut variables = Variables::default();
        variables.set_secret("s3_secret_key", "{id}hush".to_owned());
        variables.set("id", "x".to_owned());
        assert_eq!(variables.fill("{s3_secret_key}"), "{id}hush");
        assert_eq!(variables.redact("key {id}hush is wrong"), "key … is wrong");
    }

    #[test]
    fn names_are_told_from_other_braces() {
        let text = "{ \"a\": \"{s3_region}\" } awk '{ print $1 }' ${HOME} {date}";
        assert_eq!(named(text).collect::<Vec<_>>(), ["s3_region", "date"]);
    }
}
