//! Backends mirror one another: who knows one knows where to look in all.

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
}

const fn mock(file: &'static str) -> Exception {
    Exception {
        package: "gpu-backend-mock",
        file,
    }
}

/// Each with its reason.
const EXCEPTIONS: &[Exception] = &[
    // There is no library to load, and no driver to call.
    mock("driver.rs"),
    // What a test sets: no device that is real has a clock or faults to script.
    mock("clock.rs"),
    mock("fault.rs"),
    // What a vendor's compiler makes of a kernel is a closure here.
    mock("kernel.rs"),
];

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

/// A backend's `lib.rs` declares modules, names what is public, and holds the backend's type with
/// its builder and what they keep.
fn library_is_bare(tree: &Tree, package: &str) -> Vec<Problem> {
    let path = format!("{package}/src/lib.rs");
    let Some(file) = tree.file(&path) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let mut depth = 0_i32;
    for (number, line) in (1..).zip(blank(file.text()).lines()) {
        if depth == 0
            && let Some(item) = item_elsewhere(line)
        {
            let text = format!("{item} does not belong into the lib.rs of a backend");
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

/// Names the item that starts in a line of blanked code, if it should lie in another file.
fn item_elsewhere(line: &str) -> Option<String> {
    if line.starts_with([' ', '#', '}', ')', ']']) {
        return None;
    }
    let mut words = line.split([' ', '(', '{', '<', ';', ':']);
    let mut word = words.next()?;
    let is_public = word == "pub" && line.starts_with("pub ");
    while ["pub", "crate)", "super)"].contains(&word) {
        word = words.next()?;
    }
    match word {
        "" | "mod" | "use" | "extern" | "impl" | "const" => None,
        "struct" => {
            let name = words.next()?;
            let is_backend = name.ends_with("Backend") || name.ends_with("BackendBuilder");
            (is_public && !is_backend).then(|| format!("struct {name}"))
        }
        other => Some(other.to_owned()),
    }
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
        };
        let exceptions = [exception("clock.rs"), exception("driver.rs")];
        assert_eq!(
            printed(mirror(&tree_of(&files), "gpu-backend-x", &exceptions)),
            ["gpu-backend-x/src/driver.rs: is listed as an exception, and is none"]
        );
    }

    #[test]
    fn a_library_holds_the_backend_and_no_other_public_item() {
        let lines = [
            "//! Doc.",
            "#![cfg_attr(x, y)]",
            "mod a;",
            "pub mod b;",
            "pub(crate) use a::B;",
            "pub use b::{",
            "    C,",
            "};",
            "const NAME: &str = \"x\";",
            "/// Doc.",
            "#[derive(Debug)]",
            "pub struct XBackend {",
            "    a: u8,",
            "}",
            "impl XBackend {",
            "    pub fn new() {}",
            "}",
            "pub(crate) struct Shared;",
            "pub struct XBackendBuilder;",
            "fn helper() {}",
            "pub struct Y;",
            "pub enum Z {",
            "}",
        ];
        let tree = tree(&[("gpu-backend-x/src/lib.rs", &lines.join("\n"))]);
        assert_eq!(
            printed(library_is_bare(&tree, "gpu-backend-x")),
            [(20, "fn"), (21, "struct Y"), (22, "enum")].map(|(line, item)| format!(
                "gpu-backend-x/src/lib.rs:{line}: {item} does not belong into the lib.rs of a \
                 backend"
            ))
        );
    }
}
