//! `cargo xtask tidy`: the house rules that a program can check.

mod backends;
mod blank;
mod documents;
mod licenses;
mod manifests;
mod sources;
mod texts;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::Metadata;

/// Folders that hold nothing of the project's own, wherever they lie.
const FOREIGN_FOLDERS: &[&str] = &[".git", "target"];

/// Checks every rule over the whole tree, and prints each breach with its place.
///
/// # Errors
/// A rule is broken, or the tree cannot be read.
pub(crate) fn run() -> Result<()> {
    let metadata = Metadata::of_everything()?;
    let tree = Tree::load(&metadata.workspace_root)?;
    let mut problems = Vec::new();
    problems.extend(texts::check(&tree));
    problems.extend(sources::check(&tree));
    problems.extend(backends::check(&tree));
    problems.extend(manifests::check(&tree)?);
    problems.extend(documents::check(&tree, &crate::command_names()));
    problems.extend(licenses::check(&tree, &metadata)?);
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    println!("tidy: {} files are as they should be", tree.files.len());
    Ok(())
}

/// A breach of a rule.
#[derive(Debug, PartialEq)]
struct Problem {
    path: String,
    /// Line, from 1; none if the whole file is meant.
    line: Option<usize>,
    text: String,
}

impl Problem {
    fn at(file: &File, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: file.path.clone(),
            line: Some(line),
            text: text.into(),
        }
    }

    fn of(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.path, self.text),
            None => write!(out, "{}: {}", self.path, self.text),
        }
    }
}

/// A file, by its path from the root with `/` between folders.
#[derive(Debug)]
struct File {
    path: String,
    /// What is in it; none if it is not text.
    text: Option<String>,
}

impl File {
    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// All files of the project, sorted by path.
#[derive(Debug)]
struct Tree {
    files: Vec<File>,
}

impl Tree {
    fn load(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let listing = || format!("listing {}", folder.display());
            for entry in fs::read_dir(&folder).with_context(listing)? {
                let entry = entry.with_context(listing)?;
                let path = entry.path();
                let kind = entry.file_type().with_context(listing)?;
                let name = entry.file_name();
                if kind.is_dir() {
                    if !FOREIGN_FOLDERS.iter().any(|foreign| name == *foreign) {
                        folders.push(path);
                    }
                } else if kind.is_file() {
                    let bytes =
                        fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                    let below = path.strip_prefix(root).unwrap_or(&path);
                    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
                    files.push(File {
                        path: parts.join("/"),
                        text: String::from_utf8(bytes).ok(),
                    });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    fn file(&self, path: &str) -> Option<&File> {
        let found = self
            .files
            .binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().map(|index| &self.files[index])
    }

    fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a File> {
        let files = self.files.iter();
        files.filter(move |file| file.has_extension(extension))
    }

    /// Whether there is a file or a folder of this path.
    fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.file(path).is_some()
            || self.files.iter().any(|file| file.path.starts_with(&folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Makes a tree of files that were never written.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let mut files: Vec<File> = files.iter().map(|(path, text)| file(path, text)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
    }

    pub(super) fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        }
    }

    /// Prints problems as the command does.
    pub(super) fn printed(problems: impl IntoIterator<Item = Problem>) -> Vec<String> {
        let problems = problems.into_iter();
        problems.map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn a_tree_has_the_projects_files_alone() {
        let scratch = Scratch::new().unwrap();
        for path in ["b/src/lib.rs", "a.md", "target/x", "b/target/y", ".git/z"] {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        fs::write(scratch.path().join("image"), [0xff, 0xfe]).unwrap();
        let tree = Tree::load(scratch.path()).unwrap();
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.md", "b/src/lib.rs", "image"]);
        assert_eq!(tree.file("a.md").unwrap().text(), "text");
        assert_eq!(tree.file("image").unwrap().text, None);
        assert!(tree.holds("b/src") && tree.holds("b/") && tree.holds("b/src/lib.rs"));
        assert!(!tree.holds("b/sr") && !tree.holds("target"));
    }

    #[test]
    fn problems_name_their_place() {
        let at = Problem::at(&file("a.rs", ""), 7, "is wrong");
        assert_eq!(at.to_string(), "a.rs:7: is wrong");
        assert_eq!(Problem::of("a", "is missing").to_string(), "a: is missing");
    }
}
