//! Rules for documents: what must be there, and whether links lead somewhere.

use std::collections::BTreeMap;

use super::{File, Problem, Tree};

/// Documents that the root must have.
const REQUIRED: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "deny.toml",
];

/// Commands that the README must show: a newcomer needs no others.
const README_COMMANDS: &[&str] = &[
    "cargo run --release --example vector_add",
    "cargo xtask test",
];

/// Folders that need a README of their own, by how their names start: the root's README and the
/// crates' docs cover the others.
const NEED_README: &[&str] = &["gpu-backend-", "kernels"];

/// Checks the documents; `commands` are those of `cargo xtask`.
pub(super) fn check(tree: &Tree, commands: &[String]) -> Vec<Problem> {
    let mut problems = required(tree);
    problems.extend(commands_are_shown(tree, commands));
    problems.extend(changelog(tree));
    for file in tree.with_extension("md") {
        problems.extend(links(tree, file));
    }
    problems
}

fn required(tree: &Tree) -> Vec<Problem> {
    let missing = |path: &str| tree.file(path).is_none();
    let in_root = REQUIRED.iter().map(|path| (*path).to_owned());
    let of_crates = tree
        .files
        .iter()
        .filter_map(|file| file.path.strip_suffix("/Cargo.toml"))
        .filter(|folder| NEED_README.iter().any(|start| folder.starts_with(start)))
        .map(|folder| format!("{folder}/README.md"));
    in_root
        .chain(of_crates)
        .filter(|path| missing(path))
        .map(|path| Problem::of(path, "is missing"))
        .collect()
}

fn commands_are_shown(tree: &Tree, commands: &[String]) -> Vec<Problem> {
    let readme = README_COMMANDS
        .iter()
        .map(|command| ("README.md", (*command).to_owned()));
    let contributing = commands
        .iter()
        .map(|command| ("CONTRIBUTING.md", format!("cargo xtask {command}")));
    readme
        .chain(contributing)
        .filter_map(|(path, command)| Some((tree.file(path)?, command)))
        .filter(|(file, command)| !file.text().contains(command))
        .map(|(file, command)| Problem::of(&file.path, format!("does not show `{command}`")))
        .collect()
}

fn changelog(tree: &Tree) -> Option<Problem> {
    let file = tree.file("CHANGELOG.md")?;
    let mut headings = (1..).zip(file.text().lines());
    match headings.find(|(_, line)| line.starts_with("## ")) {
        Some((_, "## Unreleased")) => None,
        Some((number, line)) => {
            let text = format!("the first section must be `## Unreleased`, not `{line}`");
            Some(Problem::at(file, number, text))
        }
        None => Some(Problem::of(&file.path, "has no section `## Unreleased`")),
    }
}

/// Relative links lead to a file, a folder or a heading.
fn links(tree: &Tree, file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in prose(file.text()) {
        for link in links_in(line) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = resolve(&file.path, path);
            let problem = match &target {
                None => Some("leads out of the project"),
                Some(target) if !tree.holds(target) => Some("leads nowhere"),
                Some(target) if !anchor.is_empty() => {
                    let text = tree.file(target).map_or("", File::text);
                    let known = anchors(text).any(|known| known == anchor);
                    (!known).then_some("leads to no heading")
                }
                Some(_) => None,
            };
            if let Some(problem) = problem {
                problems.push(Problem::at(file, number, format!("link {link} {problem}")));
            }
        }
    }
    problems
}

/// Gives the lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// Finds the targets of `[text](target)` and `[name]: target` in a line.
fn links_in(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    // Text between backquotes is code.
    for (index, part) in line.split('`').enumerate() {
        // A link whose text ends with code starts in the part after it.
        if index % 2 == 1 {
            continue;
        }
        for (at, _) in part.match_indices("](") {
            let rest = &part[at + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            found.push(&rest[..end]);
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target.trim());
    }
    found
}

/// Resolves a link against the file that it is in; none if it leaves the root.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Lists the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    prose(text).filter_map(move |(_, line)| {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            return None;
        }
        let kept = heading
            .trim()
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        let anchor: String = kept
            .flat_map(char::to_lowercase)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let times = seen.entry(anchor.clone()).or_default();
        *times += 1;
        Some(match *times {
            1 => anchor,
            times => format!("{anchor}-{}", times - 1),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, printed, tree};
    use super::*;

    #[test]
    fn missing_documents_are_found() {
        let tree = tree(&[
            ("README.md", ""),
            ("gpu-backend-x/Cargo.toml", ""),
            ("grafos-std/Cargo.toml", ""),
        ]);
        let problems = printed(required(&tree));
        assert_eq!(problems.len(), REQUIRED.len());
        assert!(problems.contains(&"LICENSE-MIT: is missing".to_owned()));
        assert!(problems.contains(&"gpu-backend-x/README.md: is missing".to_owned()));
        assert!(!problems.contains(&"README.md: is missing".to_owned()));
    }

    #[test]
    fn commands_that_are_not_shown_are_found() {
        let tree = tree(&[
            ("README.md", "Run `cargo xtask test`.\n"),
            ("CONTRIBUTING.md", "cargo xtask tidy\n"),
        ]);
        let commands = ["tidy", "bench"].map(str::to_owned);
        assert_eq!(
            printed(commands_are_shown(&tree, &commands)),
            [
                "README.md: does not show `cargo run --release --example vector_add`",
                "CONTRIBUTING.md: does not show `cargo xtask bench`"
            ]
        );
    }

    #[test]
    fn a_changelog_starts_with_what_is_unreleased() {
        let check = |text: &str| printed(changelog(&tree(&[("CHANGELOG.md", text)])));
        assert_eq!(check("# Changes\n\n## Unreleased\n\n## 0.1.0\n"), [""; 0]);
        assert_eq!(
            check("# Changes\n\n## 0.1.0\n\n## Unreleased\n"),
            ["CHANGELOG.md:3: the first section must be `## Unreleased`, not `## 0.1.0`"]
        );
        assert_eq!(
            check("# Changes\n"),
            ["CHANGELOG.md: has no section `## Unreleased`"]
        );
    }

    #[test]
    fn links_must_lead_somewhere() {
        let text = "# Top\n[a](b.md) [c](../x/) [d](#top) [e](b.md#two-words)\n\
                    [f](gone.md) [g](#bottom) [h](../../out) [`i`](gone/) `[j](k)`\n\
                    ```\n[l](m)\n```\n[n](https://docs.rs/x#y)\n[o]: lost.md\n";
        let tree = tree(&[("d/a.md", text), ("d/b.md", "## Two words\n"), ("x/y", "")]);
        assert_eq!(
            printed(links(&tree, &file("d/a.md", text))),
            [
                "d/a.md:3: link gone.md leads nowhere",
                "d/a.md:3: link #bottom leads to no heading",
                "d/a.md:3: link ../../out leads out of the project",
                "d/a.md:3: link gone/ leads nowhere",
                "d/a.md:8: link lost.md leads nowhere"
            ]
        );
    }

    #[test]
    fn anchors_are_githubs() {
        let text = "# `cargo xtask`: all of it\n## A & B\n## A & B\n#no\n```\n# code\n```\n";
        assert_eq!(
            anchors(text).collect::<Vec<_>>(),
            ["cargo-xtask-all-of-it", "a--b", "a--b-1"]
        );
    }
}
