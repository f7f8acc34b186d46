//! Every package's license is one that deny.toml allows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use super::{Problem, Tree};
use crate::cargo::Metadata;

pub(super) fn check(tree: &Tree, metadata: &Metadata) -> Result<Vec<Problem>> {
    let file = tree.file("deny.toml").context("deny.toml is missing")?;
    let allowed = allowed(file.text())?;
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let who = format!("{} {}", package.name, package.version);
        let text = match &package.license {
            None => format!("{who} tells no license"),
            Some(license) => match Expression::parse(license) {
                Err(error) => format!("{who}: license {license:?}: {error}"),
                Ok(expression) if expression.is_met_by(&allowed) => continue,
                Ok(_) => format!("{who}: license {license:?} is not among those allowed"),
            },
        };
        problems.push(Problem::of("deny.toml", text));
    }
    Ok(problems)
}

/// Reads `licenses.allow`.
fn allowed(deny: &str) -> Result<BTreeSet<String>> {
    let table: Table = deny.parse().context("reading deny.toml")?;
    let list = table
        .get("licenses")
        .and_then(|licenses| licenses.get("allow"))
        .and_then(Value::as_array)
        .context("deny.toml has no licenses.allow")?;
    let names = list.iter().filter_map(Value::as_str);
    Ok(names.map(str::to_owned).collect())
}

/// A license expression: `MIT OR Apache-2.0`, `(A OR B) AND C`, `A WITH exception`.
#[derive(Debug, PartialEq)]
enum Expression {
    /// A license, with its exception if it has one.
    License(String),
    Any(Vec<Self>),
    All(Vec<Self>),
}

impl Expression {
    fn parse(text: &str) -> Result<Self> {
        // Old manifests write `A/B` for `A OR B`.
        let text = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let mut tokens: Vec<&str> = text.split_whitespace().rev().collect();
        let expression = Self::any(&mut tokens)?;
        ensure!(
            tokens.is_empty(),
            "what follows an expression is no operator"
        );
        Ok(expression)
    }

    /// Parses alternatives; the next token is the last one.
    fn any(tokens: &mut Vec<&str>) -> Result<Self> {
        let mut parts = vec![Self::all(tokens)?];
        while tokens.pop_if(|token| *token == "OR").is_some() {
            parts.push(Self::all(tokens)?);
        }
        Ok(Self::joined(parts, Self::Any))
    }

    fn all(tokens: &mut Vec<&str>) -> Result<Self> {
        let mut parts = vec![Self::one(tokens)?];
        while tokens.pop_if(|token| *token == "AND").is_some() {
            parts.push(Self::one(tokens)?);
        }
        Ok(Self::joined(parts, Self::All))
    }

    fn joined(mut parts: Vec<Self>, join: fn(Vec<Self>) -> Self) -> Self {
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                parts.extend(last);
                join(parts)
            }
        }
    }

    fn one(tokens: &mut Vec<&str>) -> Result<Self> {
        let first = tokens.pop().context("ends where a license must be")?;
        if first == "(" {
            let inner = Self::any(tokens)?;
            ensure!(tokens.pop() == Some(")"), "a parenthesis is not closed");
            return Ok(inner);
        }
        ensure!(
            ![")", "OR", "AND", "WITH"].contains(&first),
            "{first} is where a license must be"
        );
        if tokens.pop_if(|token| *token == "WITH").is_some() {
            let exception = tokens.pop().context("WITH is followed by no exception")?;
            return Ok(Self::License(format!("{first} WITH {exception}")));
        }
        Ok(Self::License(first.to_owned()))
    }

    fn is_met_by(&self, allowed: &BTreeSet<String>) -> bool {
        match self {
            Self::License(name) => allowed.contains(name),
            Self::Any(parts) => parts.iter().any(|part| part.is_met_by(allowed)),
            Self::All(parts) => parts.iter().all(|part| part.is_met_by(allowed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{printed, tree};
    use super::*;

    fn is_met(license: &str) -> bool {
        let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let expression = Expression::parse(license).unwrap();
        expression.is_met_by(&allowed.into())
    }

    #[test]
    fn expressions_are_met_as_they_say() {
        for license in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND Zlib",
            "(GPL-3.0 OR MIT) AND Zlib",
            "GPL-3.0 OR MIT AND Zlib",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_met(license), "{license}");
        }
        for license in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR Zlib) AND GPL-3.0",
            "GPL-3.0 OR MIT AND ISC",
            "Apache-2.0",
            "MIT WITH LLVM-exception",
        ] {
            assert!(!is_met(license), "{license}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for (license, error) in [
            ("", "ends where a license must be"),
            ("MIT OR", "ends where a license must be"),
            ("OR MIT", "OR is where a license must be"),
            ("(MIT", "a parenthesis is not closed"),
            ("MIT Zlib", "what follows an expression is no operator"),
            ("MIT WITH", "WITH is followed by no exception"),
        ] {
            let found = Expression::parse(license).unwrap_err().to_string();
            assert_eq!(found, error, "{license}");
        }
    }

    #[test]
    fn packages_are_held_against_the_list() {
        let package = |name: &str, license: &str| {
            format!(
                r#"{{"name": "{name}", "version": "1.0.0", "license": {license},
                    "features": {{}}, "targets": []}}"#
            )
        };
        let text = format!(
            r#"{{"target_directory": "/t", "workspace_root": "/w", "packages": [{}, {}, {}]}}"#,
            package("good", "\"MIT OR ISC\""),
            package("bad", "\"GPL-3.0\""),
            package("silent", "null")
        );
        let metadata: Metadata = serde_json::from_str(&text).unwrap();
        let tree = tree(&[("deny.toml", "[licenses]\nallow = [\"MIT\"]\n")]);
        assert_eq!(
            printed(check(&tree, &metadata).unwrap()),
            [
                "deny.toml: bad 1.0.0: license \"GPL-3.0\" is not among those allowed",
                "deny.toml: silent 1.0.0 tells no license"
            ]
        );
    }
}
