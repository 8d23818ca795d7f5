//! An error as a user reads it: what failed, on which thing, why, and what to do.

use std::io;

/// The chain of an error in a line, and what to do about it. An error that says so itself stays as it is.
pub fn words(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    if text.contains("fix: ") {
        return text;
    }
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    match causes.find_map(inputs::advice) {
        Some(advice) => format!("{text}\n  fix: {advice}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_error_of_the_system_ends_with_what_to_do() {
        let missing = || io::Error::from_raw_os_error(2);
        let failed = Err::<(), _>(missing()).context("reading x.jsonl").unwrap_err();
        assert_eq!(
            words(&failed),
            "reading x.jsonl: No such file or directory (os error 2)\n  fix: correct the path, or create what is missing"
        );
        let own = Err::<(), _>(missing()).context("x is missing (fix: make x)").unwrap_err();
        assert_eq!(words(&own), format!("{own:#}"));
        let other = anyhow::anyhow!("two and two");
        assert_eq!(words(&other), "two and two");
    }
}
