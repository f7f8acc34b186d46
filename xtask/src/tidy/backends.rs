//! Backends mirror one another: who knows one finds his way in all.

use std::collections::BTreeSet;

use super::blank::blank;
use super::{Problem, Tree};

/// Sources that every backend has.
const MIRRORED: &[&str] = &[
    "context.rs",
    "device.rs",
    "driver.rs",
    "error.rs",
    "launch.rs",
    "lib.rs",
    "memory.rs",
    "module.rs",
    "stream.rs",
];

/// A source that one backend has or lacks, against the rule.
struct Exception {
    package: &'static str,
    file: &'static str,
    /// Why; for the reader of this file.
    #[expect(dead_code, reason = "the reason is for people")]
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let packages: BTreeSet<&str> = tree
        .files
        .iter()
        .filter_map(|file| file.path.split_once('/').map(|(folder, _)| folder))
        .filter(|folder| folder.starts_with("gpu-backend-"))
        .collect();
    let mut problems = Vec::new();
    for package in &packages {
        problems.extend(mirror(tree, package, EXCEPTIONS));
        problems.extend(library_is_bare(tree, package));
    }
    problems
}

/// The sources of a backend are the mirrored ones; others lie in folders of mirrored names.
fn mirror(tree: &Tree, package: &str, exceptions: &[Exception]) -> Vec<Problem> {
    let sources = format!("{package}/src/");
    let below = tree
        .files
        .iter()
        .filter_map(|file| file.path.strip_prefix(&sources));
    let found: BTreeSet<&str> = below.filter(|name| !name.contains('/')).collect();
    let expected: BTreeSet<&str> = MIRRORED.iter().copied().collect();
    let excepted: BTreeSet<&str> = exceptions
        .iter()
        .filter(|exception| exception.package == package)
        .map(|exception| exception.file)
        .collect();
    let differences: BTreeSet<&str> = found.symmetric_difference(&expected).copied().collect();
    let mut problems = Vec::new();
    for name in differences.difference(&excepted) {
        let text = if found.contains(name) {
            "is no mirrored name: put it into the folder of one"
        } else {
            "is missing: every backend has it"
        };
        problems.push(Problem::of(format!("{sources}{name}"), text));
    }
    for name in excepted.difference(&differences) {
        let text = "is listed as an exception, and is none";
        problems.push(Problem::of(format!("{sources}{name}"), text));
    }
    problems
}

/// A backend's `lib.rs` declares modules, names what is public, and holds the backend's type.
fn library_is_bare(tree: &Tree, package: &str) -> Vec<Problem> {
    let path = format!("{package}/src/lib.rs");
    let Some(file) = tree.file(&path) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let mut types = 0;
    let mut depth = 0_i32;
    for (number, line) in (1..).zip(blank(file.text()).lines()) {
        let is_item = depth == 0 && !line.starts_with([' ', '}', ')', ']']);
        let mut words = line.split_whitespace();
        let first = words.find(|word| !word.starts_with("pub")).unwrap_or("");
        let allowed = match first {
            "" | "mod" | "use" | "extern" | "impl" => true,
            "struct" => {
                types += 1;
                types == 1
            }
            other => other.starts_with('#'),
        };
        if is_item && !allowed {
            let text =
                format!("lib.rs has modules, re-exports and the backend's type alone, not {first}");
            problems.push(Problem::at(file, number, text));
        }
        for character in line.chars() {
            match character {
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => depth -= 1,
                _ => {}
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::tests::{printed, tree};
    use super::*;

    fn complete() -> Vec<(String, &'static str)> {
        let paths = MIRRORED.iter();
        paths
            .map(|name| (format!("gpu-backend-x/src/{name}"), ""))
            .collect()
    }

    fn tree_of(files: &[(String, &str)]) -> Tree {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        tree(&files)
    }

    #[test]
    fn a_complete_backend_has_no_problem() {
        let mut files = complete();
        files.push(("gpu-backend-x/src/launch/recorder.rs".into(), ""));
        files.push(("grafos-std/src/odd.rs".into(), ""));
        assert_eq!(printed(check(&tree_of(&files))), [""; 0]);
    }

    #[test]
    fn missing_and_extra_sources_are_found() {
        let mut files = complete();
        files.retain(|(path, _)| !path.ends_with("stream.rs"));
        files.push(("gpu-backend-x/src/helper.rs".into(), ""));
        assert_eq!(
            printed(check(&tree_of(&files))),
            [
                "gpu-backend-x/src/helper.rs: is no mirrored name: put it into the folder of one",
                "gpu-backend-x/src/stream.rs: is missing: every backend has it"
            ]
        );
    }

    #[test]
    fn exceptions_must_be_needed() {
        let mut files = complete();
        files.push(("gpu-backend-x/src/clock.rs".into(), ""));
        let exception = |file| Exception {
            package: "gpu-backend-x",
            file,
            reason: "",
        };
        let exceptions = [exception("clock.rs"), exception("driver.rs")];
        assert_eq!(
            printed(mirror(&tree_of(&files), "gpu-backend-x", &exceptions)),
            ["gpu-backend-x/src/driver.rs: is listed as an exception, and is none"]
        );
    }

    #[test]
    fn a_library_holds_one_type_and_no_function() {
        let text = "//! Doc.\n#![cfg_attr(x, y)]\nmod a;\npub mod b;\npub(crate) use a::B;\n\
                    pub use b::{\n    C,\n    D,\n};\n/// Doc.\n#[derive(Debug)]\npub struct X {\n    \
                    a: u8,\n}\nimpl X {\n    pub fn new() {}\n}\nfn helper() {}\n\
                    pub struct Y;\nconst Z: u8 = 1;\n";
        let tree = tree(&[("gpu-backend-x/src/lib.rs", text)]);
        assert_eq!(
            printed(library_is_bare(&tree, "gpu-backend-x")),
            ["fn", "struct", "const"]
                .iter()
                .zip([18, 19, 20])
                .map(|(word, line)| format!(
                    "gpu-backend-x/src/lib.rs:{line}: lib.rs has modules, re-exports and the \
                     backend's type alone, not {word}"
                ))
                .collect::<Vec<_>>()
        );
    }
}
