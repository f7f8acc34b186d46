//! Rules for the members' Cargo.toml.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::{Problem, Tree};

/// Keys of `[package]` that come from the workspace.
const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

/// Folders whose package has another name, with the name.
const RENAMED: &[(&str, &str)] = &[("kernels", "grafos-kernels")];

/// Tables of dependencies.
const DEPENDENCIES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let root = parse(tree, "Cargo.toml")?;
    let workspace = root.get("workspace");
    let members = workspace
        .and_then(|workspace| workspace.get("members"))
        .and_then(Value::as_array)
        .context("Cargo.toml lists no members")?;
    let declared: BTreeSet<&str> = workspace
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table)
        .into_iter()
        // The project's own packages are there for who needs them next.
        .flat_map(|table| {
            table
                .iter()
                .filter(|(_, value)| value.get("path").is_none())
        })
        .map(|(name, _)| name.as_str())
        .collect();

    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for member in members.iter().filter_map(Value::as_str) {
        let path = format!("{member}/Cargo.toml");
        let manifest = parse(tree, &path)?;
        problems.extend(member_problems(&path, member, &manifest));
        used.extend(dependencies(&manifest).map(|(name, _)| name.to_owned()));
    }
    for name in declared.iter().filter(|name| !used.contains(**name)) {
        let text = format!("workspace dependency {name} is used by no member");
        problems.push(Problem::of("Cargo.toml", text));
    }
    Ok(problems)
}

fn parse(tree: &Tree, path: &str) -> Result<Table> {
    let file = tree
        .file(path)
        .with_context(|| format!("{path} is missing"))?;
    let table = file.text().parse();
    table.with_context(|| format!("reading {path}"))
}

fn member_problems(path: &str, folder: &str, manifest: &Table) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut found = |text: String| problems.push(Problem::of(path, text));
    let package = manifest.get("package");
    let key = |name: &str| package.and_then(|package| package.get(name));

    let renamed = RENAMED.iter().find(|(renamed, _)| *renamed == folder);
    let expected = renamed.map_or(folder, |(_, name)| name);
    let name = key("name").and_then(Value::as_str).unwrap_or_default();
    if name != expected {
        found(format!("package is called {name}, must be {expected}"));
    }
    if key("description").and_then(Value::as_str).is_none() {
        found("package has no description".to_owned());
    }
    for name in INHERITED {
        if !key(name).is_some_and(is_inherited) {
            found(format!("package.{name} does not come from the workspace"));
        }
    }
    if !manifest.get("lints").is_some_and(is_inherited) {
        found("lints do not come from the workspace".to_owned());
    }
    for (name, value) in dependencies(manifest) {
        if !is_inherited(value) {
            found(format!(
                "dependency {name} does not come from the workspace"
            ));
        }
    }
    problems
}

/// Whether a value is `{ workspace = true, ... }`.
fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Lists all dependencies of a member, those of single targets included.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&str, &Value)> {
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    let tables = std::iter::once(manifest).chain(targets);
    tables
        .flat_map(|table| DEPENDENCIES.iter().filter_map(|name| table.get(*name)))
        .filter_map(Value::as_table)
        .flat_map(|table| table.iter().map(|(name, value)| (name.as_str(), value)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{printed, tree};
    use super::*;

    const ROOT: &str = "[workspace]\nmembers = [\"a\"]\n[workspace.dependencies]\nx = \"1\"\n";
    const MEMBER: &str = "[package]\nname = \"a\"\ndescription = \"A\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\
        publish.workspace = true\n[lints]\nworkspace = true\n\
        [target.'cfg(unix)'.dev-dependencies]\nx = { workspace = true, features = [\"y\"] }\n";

    fn check_member(member: &str) -> Vec<String> {
        printed(check(&tree(&[("Cargo.toml", ROOT), ("a/Cargo.toml", member)])).unwrap())
    }

    #[test]
    fn a_member_that_inherits_all_has_no_problem() {
        assert_eq!(check_member(MEMBER), [""; 0]);
    }

    #[test]
    fn own_versions_and_keys_are_found() {
        let member = MEMBER
            .replace("edition.workspace = true", "edition = \"2024\"")
            .replace("name = \"a\"", "name = \"b\"")
            .replace("description = \"A\"\n", "")
            .replace("[lints]\nworkspace = true\n", "[dependencies]\nz = \"2\"\n");
        assert_eq!(
            check_member(&member),
            [
                "a/Cargo.toml: package is called b, must be a",
                "a/Cargo.toml: package has no description",
                "a/Cargo.toml: package.edition does not come from the workspace",
                "a/Cargo.toml: lints do not come from the workspace",
                "a/Cargo.toml: dependency z does not come from the workspace"
            ]
        );
    }

    #[test]
    fn unused_dependencies_of_the_workspace_are_found() {
        let root = format!("{ROOT}y = \"1\"\nown = {{ path = \"own\" }}\n");
        let tree = tree(&[("Cargo.toml", &root), ("a/Cargo.toml", MEMBER)]);
        assert_eq!(
            printed(check(&tree).unwrap()),
            ["Cargo.toml: workspace dependency y is used by no member"]
        );
    }

    #[test]
    fn a_member_without_a_manifest_is_an_error() {
        let error = check(&tree(&[("Cargo.toml", ROOT)])).unwrap_err();
        assert_eq!(error.to_string(), "a/Cargo.toml is missing");
    }
}
