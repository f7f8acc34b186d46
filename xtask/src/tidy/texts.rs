//! Rules for all text files.

use super::{File, Problem, Tree};

/// Files that programs write, or whose text is not ours.
const NOT_OURS: &[&str] = &["Cargo.lock", "LICENSE-APACHE"];

/// Hosts that the project may refer to. Others may be private, or gone tomorrow.
const HOSTS: &[&str] = &[
    "doc.rust-lang.org",
    "docs.rs",
    "docs.vulkan.org",
    "github.com",
    "registry.khronos.org",
    "www.apache.org",
];

/// Starts of paths that exist on somebody's machine alone. Written in pieces, for this file's sake.
const PRIVATE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let files = tree.files.iter();
    files
        .filter(|file| !NOT_OURS.contains(&file.path.as_str()))
        .flat_map(check_file)
        .collect()
}

fn check_file(file: &File) -> Vec<Problem> {
    let text = file.text();
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.split('\n')) {
        let mut found = |text: String| problems.push(Problem::at(file, number, text));
        if line.ends_with([' ', '\t', '\r']) {
            found("blank characters at the end of the line".to_owned());
        }
        for private in PRIVATE_PATHS {
            if starts_a_path(line, private) {
                found(format!("{private} is a path of one machine"));
            }
        }
        for host in hosts(line).filter(|host| !HOSTS.contains(host)) {
            found(format!(
                "{host} is not among the hosts of xtask/src/tidy/texts.rs"
            ));
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        problems.push(Problem::of(
            &file.path,
            "does not end with exactly one line break",
        ));
    }
    problems
}

/// Whether a path in the line starts with this, and does not merely go through it.
fn starts_a_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|character| character.is_alphanumeric() || "._-}".contains(character))
    })
}

/// Finds the hosts of the addresses in a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let schemes = ["https://", "http://"].into_iter();
    let starts = schemes.flat_map(|scheme| {
        line.match_indices(scheme)
            .map(|(at, scheme)| at + scheme.len())
    });
    starts.filter_map(|start| {
        let rest = &line[start..];
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-.:@".contains(c);
        let end = rest.find(|c| !is_host(c)).unwrap_or(rest.len());
        let host = rest[..end].trim_end_matches(['.', ':']);
        (!host.is_empty()).then_some(host)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, printed};
    use super::*;

    fn check_one(text: &str) -> Vec<String> {
        printed(check_file(&file("a.md", text)))
    }

    #[test]
    fn clean_text_has_no_problem() {
        let text = "# A\n\nSee https://docs.rs/ash and (https://github.com/x/y).\n";
        assert_eq!(check_one(text), [""; 0]);
        assert_eq!(check_one(""), [""; 0]);
    }

    #[test]
    fn blank_ends_of_lines_and_files_are_found() {
        assert_eq!(
            check_one("a \nb\r\nc\n"),
            [
                "a.md:1: blank characters at the end of the line",
                "a.md:2: blank characters at the end of the line"
            ]
        );
        let end = ["a.md: does not end with exactly one line break"];
        assert_eq!(check_one("a"), end);
        assert_eq!(check_one("a\n\n"), end);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let [home, ..] = PRIVATE_PATHS else {
            panic!("no path is private");
        };
        assert_eq!(
            check_one(&format!("see {home}me/x\n")),
            [format!("a.md:1: {home} is a path of one machine")]
        );
        assert_eq!(check_one(&format!("see target{home}x\n")), [""; 0]);
    }

    #[test]
    fn unknown_hosts_are_found_with_their_port() {
        let text = concat!("a http:/", "/example.test:8080/x and https://docs.rs.\n");
        let found = "a.md:1: example.test:8080 is not among the hosts of xtask/src/tidy/texts.rs";
        assert_eq!(check_one(text), [found]);
        assert_eq!(check_one("the scheme https:// alone\n"), [""; 0]);
    }
}
