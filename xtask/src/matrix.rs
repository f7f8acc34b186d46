//! `cargo xtask matrix`: the feature combinations that must build, and what must stay absent.

mod lanes;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{self, Metadata, SLOW_FEATURES};
use crate::process::{self, ProcessError};
use lanes::{Absence, Expected, Lane};

/// Checks every lane package by package, so that features do not unify, then the absences.
///
/// # Errors
/// A combination does not do what is expected of it, a forbidden package is in a tree, or a
/// feature is in no lane.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_members()?;
    let missing = features_in_no_lane(&metadata, lanes::LANES);
    ensure!(
        missing.is_empty(),
        "features in no lane of xtask/src/matrix/lanes.rs: {}",
        missing.join(", ")
    );
    let lock = metadata.workspace_root.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let known = locked_names(&lock)?;

    let lanes = lanes::LANES.iter().map(|lane| check(&metadata, lane));
    let absences = lanes::ABSENCES
        .iter()
        .map(|absence| prove(&metadata, absence, &known));
    // All of them, so that one run shows all that is wrong.
    let failures: Vec<_> = lanes.chain(absences).filter_map(Result::err).collect();
    for failure in &failures {
        println!("failed: {failure:#}");
    }
    ensure!(
        failures.is_empty(),
        "matrix: {} of the parts failed",
        failures.len()
    );
    println!(
        "matrix: {} combinations and {} absences are as expected",
        lanes::LANES.len(),
        lanes::ABSENCES.len()
    );
    Ok(())
}

fn check(metadata: &Metadata, lane: &Lane) -> Result<()> {
    let mut command = cargo::command(&metadata.workspace_root);
    // Clippy in place of check: a combination that warns is as wrong as one that fails.
    command.args(["clippy", "--quiet", "--package", lane.package]);
    command.args(["--no-default-features", "--features", lane.features]);
    if let Some(target) = lane.target {
        command.args(["--target", target]);
    }
    command.args(["--", "-D", "warnings"]);
    match lane.expected {
        Expected::Builds => process::run(&mut command)?,
        Expected::Refused(sentence) => {
            println!("$ {} (must fail)", process::line(&command));
            match process::capture(&mut command) {
                Ok(_) => bail!("{} built, but must be refused", lane.name()),
                Err(ProcessError::Failed { output, .. }) if output.contains(sentence) => {}
                Err(error) => {
                    return Err(error).context(format!(
                        "{} failed without the sentence {sentence:?}",
                        lane.name()
                    ));
                }
            }
        }
    }
    Ok(())
}

fn prove(metadata: &Metadata, absence: &Absence, known: &BTreeSet<String>) -> Result<()> {
    for pattern in absence.forbidden {
        // A name that nothing has, misspelled perhaps, is absent everywhere and proves nothing.
        ensure!(
            known.iter().any(|name| matches(name, pattern)),
            "{}: no package is called {pattern}: its absence proves nothing",
            absence.package
        );
    }
    let mut command = cargo::command(&metadata.workspace_root);
    command.args(["tree", "--package", absence.package, "--edges", "normal"]);
    command.args(["--prefix", "none", "--format", "{p}"]);
    command.args(["--no-default-features", "--features", absence.features]);
    if let Some(target) = absence.target {
        command.args(["--target", target]);
    }
    println!("$ {}", process::line(&command));
    let tree = process::capture(&mut command)?;
    let found = present(&tree, absence.forbidden);
    ensure!(
        found.is_empty(),
        "{} with features [{}] must not depend on {}",
        absence.package,
        absence.features,
        found.join(", ")
    );
    Ok(())
}

/// Names the packages of a tree, one a line with its version, that a pattern forbids.
fn present(tree: &str, forbidden: &[&str]) -> Vec<String> {
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let found = names
        .into_iter()
        .filter(|name| forbidden.iter().any(|pattern| matches(name, pattern)));
    found.map(str::to_owned).collect()
}

/// Whether a name is a pattern's, which may end with `*`.
fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Names every package of a lock file.
fn locked_names(lock: &str) -> Result<BTreeSet<String>> {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(serde::Deserialize)]
    struct Locked {
        name: String,
    }
    let lock: Lock = toml::from_str(lock).context("reading Cargo.lock")?;
    Ok(lock.package.into_iter().map(|locked| locked.name).collect())
}

/// Names the features of members, `package/feature`, that no lane checks by name.
fn features_in_no_lane(metadata: &Metadata, lanes: &[Lane]) -> Vec<String> {
    let covered = |package: &str, feature: &str| {
        lanes.iter().any(|lane| {
            lane.package == package && lane.features.split(',').any(|name| name == feature)
        })
    };
    let features = metadata.packages.iter().flat_map(|package| {
        let names = package.features.keys();
        names.map(|feature| (package.name.as_str(), feature.as_str()))
    });
    features
        .filter(|(_, feature)| *feature != "default" && !SLOW_FEATURES.contains(feature))
        .filter(|(package, feature)| !covered(package, feature))
        .map(|(package, feature)| format!("{package}/{feature}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_absences_are_about_members() {
        let metadata = Metadata::of_members().unwrap();
        for lane in lanes::LANES {
            let package = metadata.package(lane.package).expect(lane.package);
            for feature in lane.features.split(',').filter(|name| !name.is_empty()) {
                assert!(package.features.contains_key(feature), "{}", lane.name());
            }
        }
        for absence in lanes::ABSENCES {
            assert!(metadata.package(absence.package).is_some());
            assert!(!absence.forbidden.is_empty());
        }
    }

    #[test]
    fn lanes_are_distinct() {
        let names: BTreeSet<String> = lanes::LANES.iter().map(Lane::name).collect();
        assert_eq!(names.len(), lanes::LANES.len());
    }

    #[test]
    fn a_tree_shows_what_is_forbidden_by_name_and_by_start() {
        let tree = "grafos-std v0.1.0 (/w/grafos-std)\nash v0.38.0\nashen v1.0.0\n\
                    gpu-backend-mock v0.1.0 (/w/m)\nash v0.38.0 (*)\n";
        assert_eq!(present(tree, &["ash"]), ["ash"]);
        assert_eq!(present(tree, &["gpu-backend-*"]), ["gpu-backend-mock"]);
        assert_eq!(present(tree, &["libc", "gpu-backend-hip"]), [""; 0]);
    }

    #[test]
    fn lock_files_give_names() {
        let lock = "version = 4\n[[package]]\nname = \"ash\"\nversion = \"0.38.0\"\n";
        assert_eq!(locked_names(lock).unwrap(), ["ash".to_owned()].into());
    }

    #[test]
    fn a_feature_without_a_lane_is_found() {
        let metadata: Metadata = serde_json::from_str(
            r#"{"target_directory": "/t", "workspace_root": "/w", "packages": [{
                "name": "a", "version": "0.1.0", "license": null, "targets": [],
                "features": {"default": [], "one": [], "two": [], "spirv-val": []}
            }]}"#,
        )
        .unwrap();
        let lane = |features| Lane {
            package: "a",
            features,
            target: None,
            expected: Expected::Builds,
        };
        assert_eq!(features_in_no_lane(&metadata, &[lane("one")]), ["a/two"]);
        assert_eq!(
            features_in_no_lane(&metadata, &[lane(""), lane("two,one")]),
            [""; 0]
        );
    }
}
