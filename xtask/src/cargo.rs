//! Runs cargo, and reads what it knows about the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{process, workspace};

/// The target of guests.
pub(crate) const GUEST_TARGET: &str = "wasm32-unknown-unknown";

/// Features that take minutes to build: `cargo xtask ci` has a step of its own for each.
pub(crate) const SLOW_FEATURES: &[&str] = &["spirv-val"];

/// Makes a cargo command that runs in the workspace's root.
///
/// It is the cargo that runs this program, with its environment.
pub(crate) fn command(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}

/// What cargo knows about the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Members, and their dependencies where asked for.
    pub(crate) packages: Vec<Package>,
    /// Where cargo builds.
    pub(crate) target_directory: PathBuf,
    /// Root of the workspace.
    pub(crate) workspace_root: PathBuf,
}

/// A package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// License expression.
    pub(crate) license: Option<String>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<Target>,
}

/// What a package builds: a library, a test, an example.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    #[serde(rename = "required-features", default)]
    pub(crate) required_features: Vec<String>,
}

impl Metadata {
    /// Asks for the members alone.
    ///
    /// # Errors
    /// There is no workspace, or a manifest is wrong.
    pub(crate) fn of_members() -> Result<Self> {
        Self::load(&["--no-deps"])
    }

    /// Asks for the members and for all that they depend on, on any target with any feature.
    ///
    /// # Errors
    /// There is no workspace, a manifest is wrong, or a dependency cannot be fetched.
    pub(crate) fn of_everything() -> Result<Self> {
        Self::load(&["--all-features"])
    }

    fn load(arguments: &[&str]) -> Result<Self> {
        let root = workspace::root()?;
        let mut command = command(&root);
        command
            .args(["metadata", "--format-version", "1"])
            .args(arguments);
        let answer = process::capture(&mut command)?;
        serde_json::from_str(&answer).context("reading cargo's metadata")
    }

    /// Finds a package by name.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Checks that a member has a test target, so that cargo's own refusal need not be explained.
    ///
    /// # Errors
    /// There is no such member, or it has no such test.
    pub(crate) fn ensure_test(&self, package: &str, test: &str) -> Result<()> {
        let found = self
            .package(package)
            .with_context(|| format!("the workspace has no package {package}"))?;
        ensure!(
            found.targets_of("test").any(|target| target.name == test),
            "package {package} has no test target {test}"
        );
        Ok(())
    }

    /// Lists the features of all members that build fast, as cargo takes them: `package/feature`.
    pub(crate) fn fast_features(&self) -> Vec<String> {
        let features = self.packages.iter().flat_map(|package| {
            let names = package.features.keys();
            names
                .filter(|name| *name != "default" && !is_slow(package, name))
                .map(|name| format!("{}/{name}", package.name))
        });
        features.collect()
    }
}

impl Package {
    /// Lists the targets of a kind: `test`, `example`, `bench`.
    pub(crate) fn targets_of(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets
            .iter()
            .filter(move |target| target.kind.iter().any(|found| found == kind))
    }

    /// Whether a target builds without the slow features.
    pub(crate) fn builds_fast(&self, target: &Target) -> bool {
        let needs = &target.required_features;
        !needs.iter().any(|feature| is_slow(self, feature))
    }
}

/// Whether a feature is slow, or enables a slow one.
fn is_slow(package: &Package, feature: &str) -> bool {
    let plain = feature.rsplit('/').next().unwrap_or(feature);
    if SLOW_FEATURES.contains(&plain) {
        return true;
    }
    let enabled = package.features.get(feature).into_iter().flatten();
    // Cargo refuses features that enable one another in a circle.
    enabled
        .filter(|name| *name != feature)
        .any(|name| is_slow(package, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let text = r#"{
            "target_directory": "/t", "workspace_root": "/w",
            "packages": [{
                "name": "a", "version": "0.1.0", "license": "MIT",
                "features": {
                    "default": ["std"], "std": [], "spirv-val": ["dep:x"],
                    "all": ["std", "b/spirv-val"]
                },
                "targets": [
                    {"name": "a", "kind": ["lib"]},
                    {"name": "quick", "kind": ["test"]},
                    {"name": "slow", "kind": ["test"], "required-features": ["all"]}
                ]
            }]
        }"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn fast_features_leave_out_what_enables_a_slow_one() {
        assert_eq!(metadata().fast_features(), ["a/std"]);
    }

    #[test]
    fn tests_are_fast_unless_they_require_a_slow_feature() {
        let metadata = metadata();
        let package = metadata.package("a").unwrap();
        let fast = package
            .targets_of("test")
            .map(|test| (test.name.as_str(), package.builds_fast(test)));
        assert_eq!(fast.collect::<Vec<_>>(), [("quick", true), ("slow", false)]);
    }

    #[test]
    fn a_missing_test_or_package_is_named() {
        let metadata = metadata();
        assert!(metadata.ensure_test("a", "quick").is_ok());
        let error = |package, test| metadata.ensure_test(package, test).unwrap_err().to_string();
        assert_eq!(error("a", "a"), "package a has no test target a");
        assert_eq!(error("b", "x"), "the workspace has no package b");
    }

    #[test]
    fn the_workspace_describes_itself() {
        let metadata = Metadata::of_members().unwrap();
        let xtask = metadata.package("xtask").unwrap();
        assert_eq!(xtask.license.as_deref(), Some("MIT OR Apache-2.0"));
        assert!(metadata.workspace_root.join("xtask/Cargo.toml").is_file());
    }
}
