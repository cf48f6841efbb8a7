//! The shape of the workspace: which crate may know which, and how files begin and are laid out.
//!
//! A crate exists where a dependency must be impossible; this test is what makes it so.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// What each crate may depend on, nearest first. What is not listed is forbidden.
const ARROWS: [(&str, &[&str]); 19] = [
    ("moongate-wire", &[]),
    ("moongate-config", &[]),
    ("moongate-telemetry", &[]),
    ("moongate-core", &["moongate-wire"]),
    ("moongate-storage", &["moongate-core", "moongate-wire"]),
    ("moongate-storage-sqlite", &["moongate-storage", "moongate-core"]),
    ("moongate-security", &["moongate-storage", "moongate-core", "moongate-wire"]),
    ("moongate-launch", &[]),
    (
        "moongate-upstream",
        &["moongate-launch", "moongate-storage", "moongate-core", "moongate-wire", "moongate-telemetry"],
    ),
    ("moongate-search", &[]),
    ("moongate-backend-planning", &["moongate-storage", "moongate-core"]),
    ("moongate-backend-playbook", &["moongate-storage", "moongate-core"]),
    ("moongate-backend-ui", &["moongate-storage", "moongate-core"]),
    ("moongate-backend-content", &["moongate-search", "moongate-storage", "moongate-core"]),
    ("moongate-backend-workspace", &["moongate-launch", "moongate-core"]),
    (
        "moongate-proxy",
        &[
            "moongate-security",
            "moongate-storage",
            "moongate-core",
            "moongate-wire",
            "moongate-config",
            "moongate-telemetry",
        ],
    ),
    (
        "moongate-admin",
        &["moongate-proxy", "moongate-security", "moongate-core", "moongate-config", "moongate-telemetry"],
    ),
    ("moongate-cli", &["*"]),
    // Stands for a crate of the registry: pingora's flate2 links against it.
    ("libz-ng-sys", &[]),
];

/// Crates of the registry that only one crate of ours may name.
const ALONE: [(&str, &str); 3] = [
    ("pingora", "moongate-cli"),
    ("pingora-limits", "moongate-cli"),
    ("rusqlite", "moongate-storage-sqlite"),
];

#[test]
fn crates_depend_downward_only() {
    let allowed = BTreeMap::from(ARROWS);
    let mut wrong = Vec::new();
    for (crate_name, dependencies) in product_crates() {
        let Some(targets) = allowed.get(crate_name.as_str()) else {
            wrong.push(format!("{crate_name} has no entry in ARROWS"));
            continue;
        };
        for dependency in dependencies.iter().filter(|name| allowed.contains_key(name.as_str())) {
            if !targets.contains(&"*") && !targets.contains(&dependency.as_str()) {
                wrong.push(format!("{crate_name} may not depend on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_arrow_names_a_crate() {
    let crates = product_crates();
    for (crate_name, _) in ARROWS {
        assert!(crates.contains_key(crate_name), "{crate_name} is gone; take it out of ARROWS");
    }
}

#[test]
fn heavy_crates_have_one_user() {
    let crates = product_crates();
    for (dependency, user) in ALONE {
        let users: Vec<_> = crates.iter().filter(|(_, names)| names.contains(dependency)).collect();
        let names: Vec<_> = users.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [user], "{dependency}");
    }
}

#[test]
fn modules_lie_beside_their_directories() {
    let misplaced: Vec<_> =
        sources().into_iter().filter(|path| path.file_name().is_some_and(|name| name == "mod.rs")).collect();
    assert!(misplaced.is_empty(), "foo/mod.rs is foo.rs here: {misplaced:?}");
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "these files do not begin with `//!`: {silent:#?}");
}

/// Our crates outside `tests/`, each with what it needs to be built. Dev-dependencies are free: no product has them.
fn product_crates() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a workspace has packages");
    let tests = root().join("tests");
    packages
        .iter()
        .filter(|package| !Path::new(text(&package["manifest_path"])).starts_with(&tests))
        .map(|package| (text(&package["name"]).to_owned(), dependencies(package)))
        .collect()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| dependency["kind"] != "dev")
        .map(|dependency| text(&dependency["name"]).to_owned())
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn root() -> PathBuf {
    // Where tests run, not where they were compiled: a clone may find those of another in the cache.
    let here = std::env::current_dir().expect("tests run in their package");
    here.ancestors().nth(2).expect("this crate lies two levels below the root").to_owned()
}

/// Every Rust file of the workspace.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending: Vec<_> = ["gateway", "backends", "config", "tests"].map(|name| root().join(name)).into();
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).expect("the directory exists") {
            let path = entry.expect("the directory can be read").path();
            let skipped = path.file_name().is_some_and(|name| name == "target" || name == "node_modules");
            if path.is_dir() && !skipped {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 50, "the walk found next to nothing: {found:?}");
    found
}
