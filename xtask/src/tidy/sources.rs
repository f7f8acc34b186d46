//! Rules for Rust sources.

use super::blank::{blank, is_name};
use super::{File, Problem, Tree};

/// Lines past which a file must be split.
const MAX_LINES: usize = 700;
/// Characters in a line.
const MAX_WIDTH: usize = 100;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Code that must not be committed, and why.
const FORBIDDEN_CODE: &[(&str, &str)] = &[
    ("todo!", "unfinished code is not committed"),
    ("unimplemented!", "absent ability is a typed error"),
    ("dbg!", "output for debugging is not committed"),
    ("#[ignore", "a test that is not run is no test"),
    ("#[should_panic", "a test says what it expects, by value"),
];

/// Words that must not be anywhere, comments included. Written in pieces, for this file's sake.
const FORBIDDEN_WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems: Vec<Problem> = tree
        .with_extension("rs")
        .flat_map(|file| {
            let code = blank(file.text());
            let mut problems = width(file);
            problems.extend(forbidden(file, &code));
            problems.extend(reasons(file, &code));
            problems.extend(unsafe_is_announced(file, &code));
            problems
        })
        .collect();
    problems.extend(lengths(tree, LONG_FILES));
    problems
}

fn lengths(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Problem> {
    let is_long = |file: &File| file.text().lines().count() > MAX_LINES;
    let is_listed = |file: &File| exceptions.iter().any(|(path, _)| *path == file.path);
    let long = tree
        .with_extension("rs")
        .filter(|file| is_long(file) && !is_listed(file))
        .map(|file| {
            let lines = file.text().lines().count();
            let text = format!("{lines} lines, at most {MAX_LINES}: look for a seam");
            Problem::of(&file.path, text)
        });
    let stale = exceptions
        .iter()
        .filter(|(path, _)| !tree.file(path).is_some_and(is_long))
        .map(|(path, _)| Problem::of(*path, "listed as a long file, and is none"));
    long.chain(stale).collect()
}

fn width(file: &File) -> Vec<Problem> {
    let lines = (1..).zip(file.text().lines());
    lines
        .filter(|(_, line)| line.chars().count() > MAX_WIDTH && !is_table_row(line))
        .map(|(number, line)| {
            let width = line.chars().count();
            Problem::at(
                file,
                number,
                format!("{width} characters wide, at most {MAX_WIDTH}"),
            )
        })
        .collect()
}

/// Whether a line is a row of a table in a doc comment: those cannot be wrapped.
fn is_table_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! |") || line.starts_with("/// |")
}

fn forbidden(file: &File, code: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        for (pattern, why) in FORBIDDEN_CODE {
            if words(line, pattern).next().is_some() {
                problems.push(Problem::at(file, number, format!("{pattern}: {why}")));
            }
        }
    }
    for (number, line) in (1..).zip(file.text().lines()) {
        for pattern in FORBIDDEN_WORDS {
            if words(line, pattern).next().is_some() {
                let text = format!("{pattern}: finish it, or write it down where work is planned");
                problems.push(Problem::at(file, number, text));
            }
        }
    }
    problems
}

/// Finds the places of `word` in a text where it is not a part of a longer name.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    let starts_with_name = word.starts_with(is_name);
    let ends_with_name = word.ends_with(is_name);
    text.match_indices(word).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let joined = (starts_with_name && before.is_some_and(is_name))
            || (ends_with_name && after.is_some_and(is_name));
        (!joined).then_some(at)
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Every attribute that silences a lint says why.
fn reasons(file: &File, code: &str) -> Vec<Problem> {
    attributes(code)
        .filter(|(_, attribute)| {
            ["allow", "expect"].iter().any(|name| {
                words(attribute, name).any(|at| attribute[at + name.len()..].starts_with('('))
            })
        })
        .filter(|(_, attribute)| words(attribute, "reason").next().is_none())
        .map(|(at, _)| {
            Problem::at(
                file,
                line_of(code, at),
                "a lint is silenced without a reason",
            )
        })
        .collect()
}

/// Finds the attributes of blanked code: where they start, and their text up to the bracket.
fn attributes(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices('#').filter_map(|(at, _)| {
        let after = &code[at + 1..];
        let open = after.strip_prefix('!').unwrap_or(after);
        if !open.starts_with('[') {
            return None;
        }
        let mut depth = 0;
        let end = open.find(|character| {
            match character {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        Some((at, &open[..end]))
    })
}

/// A file with unsafe code says so, with a reason, before anything else.
fn unsafe_is_announced(file: &File, code: &str) -> Option<Problem> {
    let first = words(code, "unsafe").find(|&at| is_unsafe_code(&code[at + "unsafe".len()..]))?;
    // What comes before the first item: comments are blank, inner attributes are not.
    let opening = code.trim_start();
    let announced = opening.starts_with("#![") && {
        let mut rest = opening;
        let mut found = false;
        while let Some((0, attribute)) = attributes(rest).next().filter(|_| rest.starts_with("#!"))
        {
            found |= words(attribute, "expect").next().is_some()
                && words(attribute, "unsafe_code").next().is_some();
            rest = rest[attribute.len() + "#!]".len()..].trim_start();
        }
        found
    };
    (!announced).then(|| {
        let text = "unsafe code in a file that does not open with \
                    #![expect(unsafe_code, reason = \"...\")]";
        Problem::at(file, line_of(code, first), text)
    })
}

/// Whether what follows the word `unsafe` makes it code that the lint sees: types of unsafe
/// functions are none.
fn is_unsafe_code(after: &str) -> bool {
    let after = after.trim_start();
    if let Some(function) = after.strip_prefix("fn") {
        return function.trim_start().starts_with(is_name);
    }
    if let Some(block) = after.strip_prefix("extern") {
        // The ABI's name is blank, its quotes are not.
        let block = block.trim_start_matches([' ', '"', '\n']);
        return match block.strip_prefix("fn") {
            Some(function) => function.trim_start().starts_with(is_name),
            None => block.starts_with('{'),
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, printed, tree};
    use super::*;

    /// Checks one file by all rules.
    fn check_one(text: &str) -> Vec<String> {
        printed(check(&tree(&[("a.rs", text)])))
    }

    #[test]
    fn clean_code_has_no_problem() {
        let text = "//! A file.\n#![expect(unsafe_code, reason = \"raw calls\")]\n\n\
                    // No todo! here, and \"#[ignore]\" is no attribute.\n\
                    #[allow(dead_code, reason = \"used on one target\")]\n\
                    fn main() { unsafe { f() } }\n";
        assert_eq!(check_one(text), [""; 0]);
    }

    #[test]
    fn wide_lines_are_found_by_characters() {
        let fits = format!("// {}\n", "µ".repeat(97));
        assert_eq!(check_one(&fits), [""; 0]);
        let row = format!("/// | a | {} |\n", "x".repeat(100));
        assert_eq!(check_one(&row), [""; 0]);
        let wide = format!("fn a() {{}}\n// {}\n", "x".repeat(98));
        assert_eq!(
            check_one(&wide),
            ["a.rs:2: 101 characters wide, at most 100"]
        );
    }

    #[test]
    fn long_files_are_found_and_exceptions_must_be_needed() {
        let long = "\n".repeat(701);
        let tree = tree(&[("a.rs", &long), ("b.rs", &long), ("c.rs", "\n")]);
        let listed = [("b.rs", "r"), ("c.rs", "r"), ("d.rs", "r")];
        assert_eq!(
            printed(lengths(&tree, &listed)),
            [
                "a.rs: 701 lines, at most 700: look for a seam",
                "c.rs: listed as a long file, and is none",
                "d.rs: listed as a long file, and is none"
            ]
        );
    }

    #[test]
    fn unfinished_code_and_untested_tests_are_found() {
        let problems = check_one("fn a() { todo!() }\n\n#[should_panic(expected = \"x\")]\n");
        assert_eq!(
            problems,
            [
                "a.rs:1: todo!: unfinished code is not committed",
                "a.rs:3: #[should_panic: a test says what it expects, by value"
            ]
        );
        assert_eq!(check_one("fn a() { my_todo!() }\n"), [""; 0]);
    }

    #[test]
    fn words_of_unfinished_work_are_found_in_comments() {
        let word = FORBIDDEN_WORDS[1];
        let problems = check_one(&format!("// {word}: later\n// {word}S\n"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(&format!("a.rs:1: {word}: finish it")));
    }

    #[test]
    fn silenced_lints_need_a_reason() {
        let text = "#[allow(dead_code)]\nfn a() {}\n#![expect(\n    x,\n    y\n)]\n\
                    #[cfg_attr(test, allow(z))]\nfn b() { Some(1).expect(\"c\"); }\n";
        let lines: Vec<usize> = reasons(&file("a.rs", text), &blank(text))
            .iter()
            .map(|problem| problem.line.unwrap())
            .collect();
        assert_eq!(lines, [1, 3, 7]);
        assert_eq!(
            check_one("#[expect(x, reason = \"y\")]\nfn a() {}\n"),
            [""; 0]
        );
    }

    #[test]
    fn unsafe_code_must_be_announced_first() {
        let found = ["a.rs:2: unsafe code in a file that does not open with \
                      #![expect(unsafe_code, reason = \"...\")]"];
        assert_eq!(check_one("fn a() {}\nunsafe impl Send for A {}\n"), found);
        let late = "mod x;\nunsafe fn f() {}\n#![expect(unsafe_code, reason = \"\")]\n";
        assert_eq!(check_one(late), found);
        let second = "#![no_std]\n#![expect(unsafe_code, reason = \"r\")]\nunsafe fn f() {}\n";
        assert_eq!(check_one(second), [""; 0]);
    }

    #[test]
    fn types_of_unsafe_functions_are_not_unsafe_code() {
        for text in [
            "type F = unsafe extern \"system\" fn(u32);\n",
            "type F = unsafe fn();\n",
            "// unsafe { }\n",
            "fn unsafe_name() {}\n",
        ] {
            assert_eq!(check_one(text), [""; 0], "{text}");
        }
        for text in [
            "unsafe extern \"C\" {}\n",
            "unsafe extern \"C\" fn f() {}\n",
            "#[unsafe(no_mangle)]\n",
        ] {
            assert_eq!(check_one(text).len(), 1, "{text}");
        }
    }
}
