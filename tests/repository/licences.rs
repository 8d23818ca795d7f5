//! Dependencies must have an allowed licence and come from crates.io. Checks `deny.toml` without the
//! network and without `cargo deny`.

use std::path::Path;

use spdx::{Expression, ParseMode};

use crate::packages;

/// The source of every foreign crate.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn allowed() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
    let deny: toml::Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let allow = deny["licenses"]["allow"].as_array().unwrap();
    allow.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

fn is_allowed(licence: &str, allowed: &[String]) -> bool {
    Expression::parse_mode(licence, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(|req| allowed.contains(&req.to_string())))
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = allowed();
    let packages = packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(package["license"].as_str().unwrap_or(""), &allowed))
        .map(|package| format!("{} ({})", package["name"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "not in deny.toml: {refused:?}");
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let foreign: Vec<String> = packages()
        .iter()
        .filter(|package| !package["source"].is_null() && package["source"] != CRATES_IO)
        .map(|package| format!("{} ({})", package["name"], package["source"]))
        .collect();
    assert!(foreign.is_empty(), "from elsewhere: {foreign:?}");
}

#[test]
fn an_unlisted_licence_is_refused() {
    let allowed = allowed();
    for refused in
        ["GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0 WITH Classpath-exception-2.0", "", "proprietary"]
    {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
    assert!(is_allowed("GPL-3.0-only OR MIT", &allowed));
}
